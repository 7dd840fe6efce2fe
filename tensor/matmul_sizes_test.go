package tensor_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/vibrant-ml/vibrant/gpu"
	"github.com/vibrant-ml/vibrant/internal/backend/kernel"
	"github.com/vibrant-ml/vibrant/tensor"
)

// TestMatMulIsExactAtEverySize multiplies integers, whose products and sums are exact in float32, so that any kernel's result
// must be equal to the sum rounded to its type once: for all triples of awkward sizes and every size from 1 to 257 along
// each axis, every layout, type and precision; rows without gaps, rows of whole 16-byte pieces, and rows of neither. Around the
// operands lie other numbers, and around the output what must not be overwritten. CPUs get fewer sizes.
//
// The operands are corners of two fixed matrices, so that the reference of all m and n for one k is one matrix of prefix sums.
func TestMatMulIsExactAtEverySize(t *testing.T) {
	eachBackend(t, func(t *testing.T, b kernel.Backend, d *gpu.Device) {
		if raceDetector {
			t.Skip("left out under the race detector")
		}
		sizes := productSizes([]int{1, 2, 7, 8, 17, 32, 63, 64, 65, 127, 128, 129, 256, 257}, 1)
		if d.Info().ID == "cpu" || b.Name() == "fake" {
			sizes = productSizes([]int{1, 7, 65}, 29)
		}
		newProductTest(t, d).run(sizes)
	})
}

const productSide = 257

// productSizes lists {m, k, n} by k: all triples of a set, and along each axis every step-th size.
func productSizes(set []int, step int) (sizes [productSide + 1][][2]int) {
	for _, k := range set {
		for _, m := range set {
			for _, n := range set {
				sizes[k] = append(sizes[k], [2]int{m, n})
			}
		}
	}
	for s := 1; s <= productSide; s += step {
		sizes[s] = append(sizes[s], [2]int{33, 40})
		sizes[72] = append(sizes[72], [2]int{s, 64})
		sizes[56] = append(sizes[56], [2]int{24, s})
	}
	return sizes
}

type productTest struct {
	*testing.T
	device *gpu.Device
	a, b   [productSide][productSide]float32

	mu     sync.Mutex
	placed map[placement]*gpu.Buffer
}

// placement is an operand on the device: a or b, transposed or not, so many elements from row to row.
type placement struct {
	dtype      tensor.DType
	isB, trans bool
	stride     int
}

func newProductTest(t *testing.T, d *gpu.Device) *productTest {
	p := &productTest{T: t, device: d, placed: map[placement]*gpu.Buffer{}}
	rng := rand.New(rand.NewPCG(1, 2))
	for i := range productSide {
		for j := range productSide {
			p.a[i][j], p.b[i][j] = float32(rng.IntN(31)-15), float32(rng.IntN(31)-15)
		}
	}
	return p
}

// operand returns rows of an operand, cut to the stride or followed by more numbers.
func (p *productTest) operand(at placement) (*gpu.Buffer, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if x := p.placed[at]; x != nil {
		return x, nil
	}
	from := &p.a
	if at.isB {
		from = &p.b
	}
	values := make([]float32, productSide*at.stride)
	for i := range productSide {
		for j := range at.stride {
			switch {
			case j >= productSide:
				values[i*at.stride+j] = 1e4
			case at.trans:
				values[i*at.stride+j] = from[j][i]
			default:
				values[i*at.stride+j] = from[i][j]
			}
		}
	}
	raw := make([]byte, at.dtype.Bytes(len(values)))
	if err := tensor.Convert(tensor.FromSlice(values), at.dtype).ReadBytes(raw); err != nil {
		return nil, err
	}
	x, err := p.device.Alloc(int64(len(raw)))
	if err != nil {
		return nil, err
	}
	if err := x.CopyFromHost(raw); err != nil {
		return nil, err
	}
	p.placed[at] = x
	return x, p.device.Stream().Synchronize()
}

// run checks the sizes of each k on streams of their own.
func (p *productTest) run(sizes [productSide + 1][][2]int) {
	type job struct {
		k      int
		prefix []float32 // [side][side]
	}
	jobs := make(chan job)
	var workers sync.WaitGroup
	for range 8 {
		workers.Add(1)
		go func() {
			defer workers.Done()
			s, err := p.device.NewStream()
			if err != nil {
				p.Error(err)
			}
			for j := range jobs {
				if err == nil {
					err = p.depth(s, j.k, j.prefix, sizes[j.k])
				}
			}
			if err != nil {
				p.Error(err)
			} else {
				s.Close()
			}
		}()
	}
	sums := make([]float32, productSide*productSide)
	for k := 1; k <= productSide; k++ {
		for i := range productSide {
			for j := range productSide {
				sums[i*productSide+j] += p.a[i][k-1] * p.b[k-1][j]
			}
		}
		if len(sizes[k]) > 0 {
			jobs <- job{k, append([]float32(nil), sums...)}
		}
	}
	close(jobs)
	workers.Wait()
}

// depth checks all products of one k.
func (p *productTest) depth(s *gpu.Stream, k int, prefix []float32, sizes [][2]int) error {
	for _, dtype := range []tensor.DType{tensor.F32, tensor.F16, tensor.BF16} {
		want := make([]byte, dtype.Bytes(len(prefix)))
		if err := tensor.Convert(tensor.FromSlice(prefix), dtype).ReadBytes(want); err != nil {
			return err
		}
		precisions := []tensor.Precision{tensor.PrecisionFloat32}
		if dtype == tensor.F32 {
			precisions = append(precisions, tensor.PrecisionIEEE, tensor.PrecisionTF32)
		}
		for _, size := range sizes {
			for layout := range 4 {
				for _, stride := range []int{0, 264, 259} {
					for _, precision := range precisions {
						args := kernel.MatMulArgs{M: size[0], K: k, N: size[1], Batch: 1, ATransposed: layout&1 != 0, BTransposed: layout&2 != 0,
							AStride: stride, BStride: stride, CStride: stride, Type: dtype, Precision: kernel.Precision(precision)}
						if err := p.product(s, args, want); err != nil {
							return fmt.Errorf("%v %dx%dx%d, a transposed %v, b transposed %v, stride %d, precision %d: %w",
								dtype, size[0], k, size[1], args.ATransposed, args.BTransposed, stride, precision, err)
						}
					}
				}
			}
		}
	}
	return nil
}

func (p *productTest) product(s *gpu.Stream, args kernel.MatMulArgs, want []byte) error {
	if args.CStride == 0 { // no gaps
		args.AStride, args.BStride, args.CStride = args.K, args.N, args.N
		if args.ATransposed {
			args.AStride = args.M
		}
		if args.BTransposed {
			args.BStride = args.K
		}
	}
	a, err := p.operand(placement{args.Type, false, args.ATransposed, args.AStride})
	if err != nil {
		return err
	}
	b, err := p.operand(placement{args.Type, true, args.BTransposed, args.BStride})
	if err != nil {
		return err
	}
	size := int(args.Type.Bytes(1))
	got := make([]byte, (args.M+1)*args.CStride*size) // and a row that must stay
	c, err := s.Alloc(int64(len(got)))
	if err != nil {
		return err
	}
	defer c.Free()
	err = s.Do(func(k kernel.Stream) error {
		args.A, args.B, args.C = a.Ptr(), b.Ptr(), c.Ptr()
		if err := k.Memset(args.C, 0xff, int64(len(got))); err != nil {
			return err
		}
		return k.MatMul(&args)
	})
	if err != nil {
		return err
	}
	if err := c.CopyToHost(got); err != nil {
		return err
	}
	for i := range args.M + 1 {
		row := got[i*args.CStride*size:][:args.CStride*size]
		inside := 0
		if i < args.M {
			inside = args.N * size
			if expected := want[i*productSide*size:][:inside]; string(row[:inside]) != string(expected) {
				for j := range args.N {
					if string(row[j*size:][:size]) != string(expected[j*size:][:size]) {
						return fmt.Errorf("[%d][%d] is %v, want %v", i, j, valueOf(row[j*size:], args.Type), valueOf(expected[j*size:], args.Type))
					}
				}
			}
		}
		for j, x := range row[inside:] {
			if x != 0xff {
				return fmt.Errorf("byte %d after row %d was overwritten", j, i)
			}
		}
	}
	return nil
}

func valueOf(raw []byte, t tensor.DType) float32 {
	if t == tensor.F32 {
		return math.Float32frombits(binary.LittleEndian.Uint32(raw))
	}
	x, err := tensor.FromMemory(gpu.CPU(), t, raw[:2], nil, 1)
	if err != nil {
		return float32(math.NaN())
	}
	return x.Float32s()[0]
}

// TestMatMulOfInterleavedBatches takes heads out of [rows][heads][dim] as attention does: a batch stride smaller than that of rows.
func TestMatMulOfInterleavedBatches(t *testing.T) {
	const batch, m, k, n = 3, 72, 64, 136
	rng := rand.New(rand.NewPCG(4, 5))
	ints := func(count int) []float32 {
		values := make([]float32, count)
		for i := range values {
			values[i] = float32(rng.IntN(15) - 7)
		}
		return values
	}
	a, b, want := ints(m*batch*k), ints(n*batch*k), make([]float32, m*batch*n)
	for z := range batch {
		for i := range m {
			for j := range n {
				for l := range k {
					want[(i*batch+z)*n+j] += a[(i*batch+z)*k+l] * b[(j*batch+z)*k+l]
				}
			}
		}
	}
	eachBackend(t, func(t *testing.T, _ kernel.Backend, d *gpu.Device) {
		for _, dtype := range []tensor.DType{tensor.F32, tensor.F16, tensor.BF16} {
			place := func(values []float32) (*gpu.Buffer, []byte) {
				raw := make([]byte, dtype.Bytes(len(values)))
				if err := tensor.Convert(tensor.FromSlice(values), dtype).ReadBytes(raw); err != nil {
					t.Fatal(err)
				}
				x, err := d.Alloc(int64(len(raw)))
				if err != nil {
					t.Fatal(err)
				}
				if err := x.CopyFromHost(raw); err != nil {
					t.Fatal(err)
				}
				return x, raw
			}
			x, _ := place(a)
			y, _ := place(b)
			c, expected := place(want)
			err := d.Stream().Do(func(s kernel.Stream) error {
				if err := s.Memset(c.Ptr(), 0xff, c.Size()); err != nil {
					return err
				}
				return s.MatMul(&kernel.MatMulArgs{C: c.Ptr(), A: x.Ptr(), B: y.Ptr(), M: m, K: k, N: n, Batch: batch, Type: dtype, BTransposed: true,
					AStride: batch * k, BStride: batch * k, CStride: batch * n, ABatchStride: k, BBatchStride: k, CBatchStride: n})
			})
			got := make([]byte, len(expected))
			if err == nil {
				err = c.CopyToHost(got)
			}
			if err != nil || string(got) != string(expected) {
				t.Errorf("%v: differs, %v", dtype, err)
			}
		}
	})
}

// TestBatchesWhoseOutputsOverlapAreErrors tries batches whose matrices of C share elements, which no order of writing gets right. A
// product over no elements reads no operand, whatever its strides.
func TestBatchesWhoseOutputsOverlapAreErrors(t *testing.T) {
	const batch, m, k, n = 3, 4, 5, 6
	eachBackend(t, func(t *testing.T, b kernel.Backend, d *gpu.Device) {
		x, err := d.Alloc(4 * batch * max(m*k, k*n, m*n))
		if err != nil {
			t.Fatal(err)
		}
		c, err := d.Alloc(4 * batch * m * n)
		if err != nil {
			t.Fatal(err)
		}
		product := func(change func(*kernel.MatMulArgs)) error {
			args := kernel.MatMulArgs{C: c.Ptr(), A: x.Ptr(), B: x.Ptr(), M: m, K: k, N: n, Batch: batch, Type: tensor.F32,
				AStride: k, BStride: n, CStride: n, ABatchStride: m * k, BBatchStride: k * n, CBatchStride: m * n}
			change(&args)
			return d.Stream().Do(func(s kernel.Stream) error { return s.MatMul(&args) })
		}
		for name, change := range map[string]func(*kernel.MatMulArgs){
			"as they are":   func(*kernel.MatMulArgs) {},
			"one A for all": func(a *kernel.MatMulArgs) { a.ABatchStride = 0 },
			"K is 0":        func(a *kernel.MatMulArgs) { a.K, a.A, a.B, a.AStride = 0, nil, nil, 0 },
			"interleaved":   func(a *kernel.MatMulArgs) { a.CBatchStride, a.CStride = n, batch*n },
		} {
			if err := product(change); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		if b.Name() == "fake" {
			return // it checks when the stream gets there
		}
		for name, change := range map[string]func(*kernel.MatMulArgs){
			"one C for all":        func(a *kernel.MatMulArgs) { a.CBatchStride = 0 },
			"C of fewer rows":      func(a *kernel.MatMulArgs) { a.CBatchStride = (m-1)*n + n - 1 },
			"C of shorter rows":    func(a *kernel.MatMulArgs) { a.CStride = n - 1 },
			"a negative stride":    func(a *kernel.MatMulArgs) { a.CBatchStride = -m * n },
			"interleaved too near": func(a *kernel.MatMulArgs) { a.CBatchStride, a.CStride = n, batch*n-1 },
			"K is 0, negative":     func(a *kernel.MatMulArgs) { a.K, a.A, a.B, a.ABatchStride, a.AStride = 0, nil, nil, -1, -5 },
		} {
			if err := product(change); !errors.Is(err, kernel.ErrInvalid) {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
}

// TestMatMulKeepsInfinitiesAndNaNs holds the rows and columns that meet an Inf or a NaN to IEEE 754, whatever a kernel does to its
// operands, and all others to be finite.
func TestMatMulKeepsInfinitiesAndNaNs(t *testing.T) {
	eachBackend(t, func(t *testing.T, b kernel.Backend, d *gpu.Device) {
		side := 768 // where operands are scaled and rounded
		if d.Info().HostMemory || b.Name() == "fake" {
			side = 40
		}
		inf := float32(math.Inf(1))
		a, bs := normals(1, side*side), normals(2, side*side)
		a[3*side+5], a[7*side+9], bs[11*side+13] = inf, float32(math.NaN()), -inf
		a[21*side], bs[22] = 3e38, 3e38 // their product and some sums overflow
		x, y := on(t, d, tensor.FromSlice(a, side, side)), on(t, d, tensor.FromSlice(bs, side, side))
		for _, precision := range []tensor.Precision{tensor.PrecisionFloat32, tensor.PrecisionIEEE, tensor.PrecisionTF32} {
			got := tensor.MatMulWith(x, y, tensor.MatMulOptions{Precision: precision}).Float32s()
			for i := range side {
				for j := range side {
					v := float64(got[i*side+j])
					if i != 3 && i != 7 && j != 13 && i != 21 && j != 22 {
						if math.IsNaN(v) || math.IsInf(v, 0) {
							t.Fatalf("precision %d: [%d][%d] is %v", precision, i, j, v)
						}
						continue
					}
					want := 0.0
					for l := range side {
						want += float64(a[i*side+l]) * float64(bs[l*side+j])
					}
					if math.Abs(math.Abs(want)/math.MaxFloat32-1) < 0.01 {
						continue // rounded operands may fall on the other side of the overflow
					}
					if want = float64(float32(want)); math.IsNaN(want) || math.IsInf(want, 0) {
						if math.IsNaN(want) != math.IsNaN(v) || !math.IsNaN(v) && v != want {
							t.Fatalf("precision %d: [%d][%d] is %v, want %v", precision, i, j, v, want)
						}
					} else if math.IsNaN(v) || math.IsInf(v, 0) {
						t.Fatalf("precision %d: [%d][%d] is %v, want %v", precision, i, j, v, want)
					}
				}
			}
		}
	})
}

func normals(seed uint64, n int) []float32 {
	rng := rand.New(rand.NewPCG(seed, 3))
	values := make([]float32, n)
	for i := range values {
		values[i] = float32(rng.NormFloat64())
	}
	return values
}
