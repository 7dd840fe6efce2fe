package tensor_test

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
	"unsafe"

	"go.uber.org/goleak"

	"github.com/vibrant-ml/vibrant/gpu"
	"github.com/vibrant-ml/vibrant/internal/backend/fake"
	"github.com/vibrant-ml/vibrant/internal/backend/kernel"
	"github.com/vibrant-ml/vibrant/tensor"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func openFake(t testing.TB, c fake.Config) (*gpu.Device, *fake.GPU) {
	t.Helper()
	b := fake.New(c)
	d, err := gpu.OpenBackend(b, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
		for _, err := range b.GPU(0).Misuse() {
			t.Error(err)
		}
	})
	return d, b.GPU(0)
}

// on moves a tensor to a device.
func on(t testing.TB, d *gpu.Device, x *tensor.Tensor) *tensor.Tensor {
	t.Helper()
	y, err := x.ToDevice(tensor.On(d))
	if err != nil {
		t.Fatal(err)
	}
	return y
}

func ramp(n int) []float32 {
	v := make([]float32, n)
	for i := range v {
		v[i] = float32(i + 1)
	}
	return v
}

func equal(t testing.TB, what string, got *tensor.Tensor, want ...float32) {
	t.Helper()
	values := got.Float32s()
	if !slices.EqualFunc(values, want, func(a, b float32) bool { return math.Abs(float64(a-b)) <= 1e-6*math.Abs(float64(b)) }) {
		t.Errorf("%s: %v, want %v", what, values, want)
	}
}

// strictly runs a test in strict mode, so that nothing falls back.
func strictly(t testing.TB) {
	was := tensor.Strict()
	tensor.SetStrict(true)
	t.Cleanup(func() { tensor.SetStrict(was) })
}

func fallbackCount(op string) (n int64) {
	for _, f := range tensor.Fallbacks() {
		if f.Op == op {
			n += f.Count
		}
	}
	return n
}

func TestMisusePanicsWithOpAndShapes(t *testing.T) {
	m := func(shape ...int) *tensor.Tensor { return tensor.Zeros(shape...) }
	ids := tensor.FromInt32s([]int32{0, 1})
	for want, f := range map[string]func(){
		"matmul: (4,8) x (7,16): inner dimensions 8 and 7 differ":   func() { tensor.MatMul(m(4, 8), m(7, 16)) },
		"matmul: (8) x (2,8,4): want (..., K) x (K, N)":             func() { tensor.MatMul(m(8), m(2, 8, 4)) },
		"matmul: (2,2) x (2,3) into F32 (3,2): want F32 (2,3)":      func() { tensor.MatMulInto(m(3, 2), m(2, 2), m(2, 3)) },
		"add: (2) and (3): shapes differ, and neither 2 nor 3 is 1": func() { tensor.Add(m(2), m(3)) },
		"add: (2) of I32 and (2) of F32: types differ":              func() { tensor.Add(m(2), ids) },
		"silu: silu of I32: want F32, F16 or BF16":                  func() { tensor.SiLU(ids) },
		"matmul: (4,4) x (4,4): the result may not lie in the memory of an operand": func() {
			q := m(4, 4)
			tensor.MatMulInto(q, q, q)
		},
		"matmul: (1,4) x (4,4): the result may not lie in the memory of an operand": func() {
			q := m(5, 4)
			tensor.MatMulInto(q.Slice(1, 2), q.Slice(0, 1), q.Slice(1, 5))
		},
		"linear: (4,4) x (4,4)^T: the result may not lie in the memory of x": func() {
			q := m(4, 4)
			tensor.LinearInto(q, q, m(4, 4), nil)
		},
		"linear: (2,8) x (4,7)^T: inner dimensions 8 and 7 differ": func() {
			tensor.Linear(m(2, 8), m(4, 7), nil)
		},
		"linear: (2,8) x (4,8)^T + F32 (3): want bias F32 (4)": func() { tensor.Linear(m(2, 8), m(4, 8), m(3)) },
		"rmsnorm: (2,8) with weight F32 (7): want F32 (8)":     func() { tensor.RMSNorm(m(2, 8), m(7), 1e-5) },
		"embedding: F32 (2) of F32 (4,8): want I32 ids":        func() { tensor.Embedding(m(4, 8), m(2)) },
		"argmax: F32 (2,0): want F32 rows of at least 1":       func() { tensor.Argmax(m(2, 0)) },
		"topk: F32 (2,3): want F32 rows of at least 4":         func() { tensor.TopK(m(2, 3), 4) },
		"convert: F32 (2) to Q4_0":                             func() { tensor.Convert(m(2), tensor.Q4_0) },
		"increment: F32 (2): want I32":                         func() { tensor.IncrementI32(m(2)) },
		"rope: (2,8): want (batch, heads, seq, dim)":           func() { tensor.RoPE(m(2, 8), m(4, 4), m(4, 4), ids, tensor.RoPENeoX) },
		"rope: (2,1,8) with tables F32 (4,5)":                  func() { tensor.RoPE(m(2, 1, 8), m(4, 5), m(4, 5), ids, tensor.RoPENeoX) },
		"rope: (3,1,8) with positions (2)":                     func() { tensor.RoPE(m(3, 1, 8), m(4, 4), m(4, 4), ids, tensor.RoPENeoX) },
		"attention: (2,3,8) with cache (1,2,4,8)": func() {
			tensor.Attention(m(2, 3, 8), m(1, 2, 4, 8), m(1, 2, 4, 8), tensor.AttentionOptions{})
		},
		"attention: (5,2,8) with cache (1,2,4,8): kv length 4": func() {
			tensor.Attention(m(5, 2, 8), m(1, 2, 4, 8), m(1, 2, 4, 8), tensor.AttentionOptions{Causal: true})
		},
		"kv write: positions I32 (2): want I32 of 3": func() {
			tensor.KVWrite(m(1, 2, 4, 8), m(1, 2, 4, 8), m(3, 2, 8), m(3, 2, 8), ids, nil)
		},
		"reshape: F32 (6) to (4,-1) does not fit":                      func() { m(6).Reshape(4, -1) },
		"slice: [1:4] of (3,2)":                                        func() { m(3, 2).Slice(1, 4) },
		"zeros: (2,-1): negative dimension":                            func() { m(2, -1) },
		"zeros: (1073741824,1073741824): too many elements":            func() { m(1<<30, 1<<30) },
		"from slice: 3 values do not fill (2,2)":                       func() { tensor.FromSlice(ramp(3), 2, 2) },
		"copy: (2) to (3): dimension 0":                                func() { tensor.CopyInto(m(3), m(2)) },
		"softmax: (2) and (3): shapes differ":                          func() { tensor.SoftmaxInto(m(3), m(2)) },
		"add rmsnorm: (2,3) and (2,4): shapes differ":                  func() { tensor.AddRMSNorm(m(2, 4), m(2, 3), nil, 1e-5) },
		"swiglu: (3) and (2): shapes differ, and neither 3 nor 2 is 1": func() { tensor.SwiGLU(m(3), m(2)) },
	} {
		err := tensor.Try(f)
		var shape *tensor.ShapeError
		if !errors.As(err, &shape) || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v (%T), want %s", err, err, want)
		}
	}
	func() {
		defer func() {
			if e := recover(); e != "other" {
				t.Errorf("Try swallowed another panic: %v", e)
			}
		}()
		tensor.Try(func() { panic("other") })
	}()
}

func TestViewsShareMemory(t *testing.T) {
	for name, d := range devices(t) {
		t.Run(name, func(t *testing.T) {
			strictly(t)
			x := on(t, d, tensor.FromSlice(ramp(12), 4, 3))
			v := x.Slice(1, 3)
			equal(t, "slice", v, 4, 5, 6, 7, 8, 9)
			tensor.MulScalarInto(v, v, 10) // begins at 12 bytes: not aligned
			equal(t, "whole", x, 1, 2, 3, 40, 50, 60, 70, 80, 90, 10, 11, 12)
			equal(t, "row", x.Reshape(2, -1).Slice(1, 2), 70, 80, 90, 10, 11, 12)
			equal(t, "odd", tensor.Add(x.Reshape(12).Slice(5, 7), x.Reshape(12).Slice(1, 3)), 62, 73)
			equal(t, "empty", x.Slice(2, 2))
			c := v.Clone()
			tensor.MulScalarInto(c, c, 0)
			equal(t, "the clone's origin", v, 40, 50, 60, 70, 80, 90)
			if s := v.Shape(); !slices.Equal(s, []int{2, 3}) || v.Dim(-1) != 3 || v.Len() != 6 || v.Bytes() != 24 || v.Rank() != 2 {
				t.Errorf("shape %v", s)
			}
			x.Free()
			var op *tensor.OpError
			if err := tensor.Try(func() { tensor.Add(v, v) }); !errors.As(err, &op) || !errors.Is(err, gpu.ErrClosed) || op.Op != "add" {
				t.Errorf("a freed view: %v", err)
			}
			if s := v.String(); !strings.Contains(s, "F32(2,3)") || !strings.Contains(s, "freed") {
				t.Error(s)
			}
		})
	}
}

// devices opens a CPU and a fake GPU.
func devices(t *testing.T) map[string]*gpu.Device {
	d, _ := openFake(t, fake.Config{Delay: 20 * time.Microsecond})
	return map[string]*gpu.Device{"cpu": gpu.CPU(), "fake": d}
}

func TestDataComesBackAsItWent(t *testing.T) {
	for name, d := range devices(t) {
		t.Run(name, func(t *testing.T) {
			x, err := tensor.NewTensorOnDevice(d, tensor.F32, 3, 5)
			if err != nil {
				t.Fatal(err)
			}
			x.Zero()
			equal(t, "zeros", x, make([]float32, 15)...)
			if err := x.WriteFloat32s(ramp(15)); err != nil {
				t.Fatal(err)
			}
			equal(t, "written", x, ramp(15)...)
			half := tensor.Convert(x, tensor.F16)
			equal(t, "half", half, ramp(15)...)
			if half.Bytes() != 30 || half.DType() != tensor.F16 || x.IsOnGPU() != (name == "fake") || half.Device() != d {
				t.Error("properties")
			}
			raw := make([]byte, 30)
			if err := errors.Join(half.ReadBytes(raw), half.WriteBytes(raw), half.SyncGPU()); err != nil || raw[1] != 0x3c {
				t.Errorf("raw %v, %v", raw[:2], err)
			}
			ids := on(t, d, tensor.FromInt32s([]int32{5, -7}))
			tensor.IncrementI32(ids)
			if v := ids.Int32s(); v[0] != 6 || v[1] != -6 {
				t.Error(v)
			}
			if err := ids.WriteInt32s([]int32{1, 2}); err != nil {
				t.Error(err)
			}
			if s := fmt.Sprintf("%+v", ids); s != "I32(2) on "+d.String()+"\n[1 2]" {
				t.Error(s)
			}
			var shape *tensor.ShapeError
			for _, err := range []error{
				x.ReadFloat32s(nil), x.ReadInt32s(make([]int32, 15)), x.WriteFloat32s(ramp(14)), x.WriteInt32s(nil),
				ids.ReadFloat32s(make([]float32, 2)), ids.WriteFloat32s(ramp(2)), x.WriteBytes(nil), x.ReadBytes(nil),
			} {
				if !errors.As(err, &shape) {
					t.Errorf("%v is no ShapeError", err)
				}
			}
		})
	}
}

func TestFromMemoryUsesHostMemoryInPlace(t *testing.T) {
	values := ramp(64)
	data := unsafe.Slice((*byte)(unsafe.Pointer(&values[0])), 256)
	d, g := openFake(t, fake.Config{})
	for _, dev := range []*gpu.Device{gpu.CPU(), d} {
		x, err := tensor.FromMemory(dev, tensor.F32, data, values, 8, 8)
		if err != nil {
			t.Fatal(err)
		}
		equal(t, "in place", x, values...)
		values[0]++
		if got := x.Float32s()[0]; (got == values[0]) != (dev == gpu.CPU()) {
			t.Errorf("%v reads %v", dev, got)
		}
		values[0]--
		odd, err := tensor.FromMemory(dev, tensor.F32, data[4:20], nil, 4)
		if err != nil {
			t.Fatal(err)
		}
		equal(t, "copied", odd, values[1:5]...)
	}
	if g.Calls(fake.Alloc) == 0 {
		t.Error("nothing was copied to the device")
	}
	var shape *tensor.ShapeError
	for _, bad := range [][]int{{8, 9}, {-1}, {}} {
		if _, err := tensor.FromMemory(d, tensor.F32, data, nil, bad...); !errors.As(err, &shape) {
			t.Errorf("%v: %v", bad, err)
		}
	}
	if _, err := tensor.FromMemory(d, tensor.Q4_0, data[:18], nil, 2, 16); !errors.As(err, &shape) || !strings.Contains(err.Error(), "blocks of 32") {
		t.Errorf("half blocks: %v", err)
	}
	if _, err := tensor.FromMemory(d, tensor.DType(99), data, nil, 64); !errors.As(err, &shape) || !strings.Contains(err.Error(), "type 99") {
		t.Errorf("unknown type: %v", err)
	}
}

func TestAWeightIsMovedOnceAndKept(t *testing.T) {
	strictly(t) // moving a weight is no fallback
	d, g := openFake(t, fake.Config{})
	w, bias := tensor.FromSlice(ramp(6), 2, 3), tensor.FromSlice(ramp(2))
	x := on(t, d, tensor.FromSlice(ramp(3), 1, 3))
	copies := 0
	for i := range 3 {
		y := tensor.Linear(x, w, bias)
		equal(t, "linear", y, 15, 34)
		if y.Device() != d {
			t.Error("the result left the device")
		}
		n := g.Calls(fake.Copy)
		if i == 2 && n-copies > 1 { // one for reading back
			t.Errorf("%d copies for a weight that is there", n-copies)
		}
		copies = n
	}
	equal(t, "norm", tensor.RMSNorm(x, tensor.FromSlice([]float32{1, 1, 1}), 0), 1/2.1602469, 2/2.1602469, 3/2.1602469)
	used := d.Pool().Stats().InUse
	w.FreeGPU()
	if d.Pool().Stats().InUse >= used {
		t.Error("FreeGPU kept the copy")
	}
	equal(t, "the weight itself", w, ramp(6)...)
	equal(t, "moved again", tensor.Linear(x, w, nil), 14, 32)
}

func TestOperandsElsewhereAreMovedAndCountedOrRefused(t *testing.T) {
	d, _ := openFake(t, fake.Config{})
	here, there := on(t, d, tensor.FromSlice(ramp(3))), tensor.FromSlice(ramp(3))
	before := fallbackCount("mul")
	y := tensor.Mul(here, there)
	equal(t, "moved", y, 1, 4, 9)
	if y.Device() != d || fallbackCount("mul") != before+1 {
		t.Errorf("on %v, counted %d", y.Device(), fallbackCount("mul")-before)
	}
	strictly(t)
	err := tensor.Try(func() { tensor.Mul(here, there) })
	if !errors.Is(err, gpu.ErrInvalid) || !strings.Contains(err.Error(), "mul: (3) (3) (3)") || !strings.Contains(err.Error(), "operand on cpu") {
		t.Errorf("strict: %v", err)
	}
}

func TestAStrictDeviceLeavesOthersAsTheyAre(t *testing.T) {
	strict, _ := openFake(t, fake.Config{Lacks: []string{"SwiGLU"}})
	other, _ := openFake(t, fake.Config{Lacks: []string{"SwiGLU"}})
	strict.SetStrict(true)
	x, y, there := on(t, strict, tensor.FromSlice(ramp(3))), on(t, other, tensor.FromSlice(ramp(3))), tensor.FromSlice(ramp(3))
	if err := tensor.Try(func() { tensor.SwiGLU(x, x) }); !errors.Is(err, gpu.ErrUnsupported) {
		t.Errorf("a missing kernel: %v", err)
	}
	for _, operands := range [][2]*tensor.Tensor{{x, there}, {there, x}} {
		if err := tensor.Try(func() { tensor.Mul(operands[0], operands[1]) }); !errors.Is(err, gpu.ErrInvalid) {
			t.Errorf("an operand elsewhere: %v", err)
		}
	}
	if err := tensor.Try(func() { tensor.SwiGLU(y, y); tensor.Mul(y, there) }); err != nil || tensor.Strict() {
		t.Errorf("on another device: %v, strict %v", err, tensor.Strict())
	}
}

func TestAMissingKernelFallsBackOrIsAnError(t *testing.T) {
	d, _ := openFake(t, fake.Config{Lacks: []string{"SwiGLU", "AddRMSNorm", "Linear"}})
	x := on(t, d, tensor.FromSlice(ramp(6), 2, 3))
	before := fallbackCount("swiglu")
	tensor.SwiGLUInto(x, x, x) // in place: one copy serves all three
	want := tensor.FromSlice(ramp(6), 2, 3)
	tensor.SwiGLUInto(want, want, want)
	equal(t, "swiglu", x, want.Float32s()...)
	sum, out := tensor.AddRMSNorm(x, x, nil, 1e-6)
	wantSum, wantOut := tensor.AddRMSNorm(want, want, nil, 1e-6)
	equal(t, "sum", sum, wantSum.Float32s()...)
	equal(t, "norm", out, wantOut.Float32s()...)
	if sum.Device() != d || out.Device() != d || fallbackCount("swiglu") != before+1 {
		t.Errorf("on %v and %v, counted %d", sum.Device(), out.Device(), fallbackCount("swiglu")-before)
	}
	strictly(t)
	if err := tensor.Try(func() { tensor.SwiGLU(x, x) }); !errors.Is(err, gpu.ErrUnsupported) {
		t.Errorf("strict: %v", err)
	}
}

func TestShapesThatNoPackedWeightsHaveAreErrors(t *testing.T) {
	for want, shape := range map[string][]int{
		"packed size: Q8_0 (32): want (rows, cols)": {32}, "packed size: Q8_0 (): want (rows, cols)": {},
		"(8192,1073741824,1073741824): too many elements": {1 << 13, 1 << 30, 1 << 30}, "(2,-32): negative dimension": {2, -32},
	} {
		_, err := tensor.PackedSize(gpu.CPU(), tensor.Q8_0, shape...)
		if misuse := (*tensor.ShapeError)(nil); !errors.As(err, &misuse) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, want %q", shape, err, want)
		}
	}
}

func TestPackedWeightsComputeTheSame(t *testing.T) {
	strictly(t)
	d, _ := openFake(t, fake.Config{})
	blocks := make([]byte, 4*34) // Q8_0: a float16 scale, then 32 bytes
	for i := range blocks {
		blocks[i] = byte(i * 7)
		if i%34 < 2 {
			blocks[i] = []byte{0, 0x2c}[i%34] // 1/16
		}
	}
	w, err := tensor.FromMemory(d, tensor.Q8_0, blocks, nil, 2, 64)
	if err != nil {
		t.Fatal(err)
	}
	x, ids := on(t, d, tensor.FromSlice(ramp(64), 1, 64)), on(t, d, tensor.FromInt32s([]int32{1}))
	linear, row := tensor.Linear(x, w, nil).Float32s(), tensor.Embedding(w, ids).Float32s()
	if w.Packed() || w.Pack() != nil || !w.Packed() || w.Pack() != nil {
		t.Fatal("packing")
	}
	equal(t, "linear", tensor.Linear(x, w, nil), linear...)
	equal(t, "embedding", tensor.Embedding(w, ids), row...)
	for name, f := range map[string]func(){
		"slice": func() { w.Slice(0, 1) }, "reshape": func() { w.Reshape(-1) }, "clone": func() { w.Clone() },
		"convert": func() { tensor.Convert(w, tensor.F32) },
	} {
		if err := tensor.Try(f); err == nil {
			t.Errorf("%s of packed data", name)
		}
	}
	if _, err := w.ToDevice(tensor.CPU); !errors.Is(err, gpu.ErrUnsupported) {
		t.Errorf("moved packed data: %v", err)
	}
	plain := tensor.FromSlice(ramp(4), 2, 2)
	if err := plain.Pack(); err != nil || !slices.Equal(plain.Float32s(), ramp(4)) && !plain.Packed() {
		t.Errorf("pack of F32: %v", err)
	}
	if err := tensor.FromSlice(ramp(4)).Pack(); err == nil {
		t.Error("packed a vector")
	}
}

func TestStreamsShareWeightsFromManyGoroutines(t *testing.T) {
	strictly(t)
	d, _ := openFake(t, fake.Config{Delay: 50 * time.Microsecond})
	w := on(t, d, tensor.FromSlice(ramp(16*16), 16, 16)) // its copy is still under way on the default stream
	want := tensor.Linear(tensor.FromSlice(ramp(16), 1, 16), w, nil).Float32s()
	var wg sync.WaitGroup
	for range 6 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			s, err := d.NewStream()
			if err != nil {
				t.Error(err)
				return
			}
			defer s.Close()
			for range 10 {
				x, err := tensor.FromSlice(ramp(16), 1, 16).ToStream(s)
				if err != nil {
					t.Error(err)
					return
				}
				y := tensor.Linear(x, w, nil)
				x.Free()
				if y.Stream() != s || !slices.Equal(y.Float32s(), want) {
					t.Errorf("%v, want %v", y, want)
				}
			}
		}()
	}
	wg.Wait()
}

func TestACapturedStepReplaysWithNewData(t *testing.T) {
	for name, d := range devices(t) {
		t.Run(name, func(t *testing.T) {
			strictly(t)
			s := d.Stream()
			x, w := on(t, d, tensor.FromSlice(ramp(4), 1, 4)), on(t, d, tensor.FromSlice(ramp(16), 4, 4))
			h, y := x.Clone(), x.Clone()
			position := on(t, d, tensor.FromInt32s([]int32{0}))
			g, err := s.Capture(func() error {
				return tensor.Try(func() {
					tensor.AddInto(h, x, x)
					tensor.LinearInto(y, h, w, nil)
					tensor.IncrementI32(position)
				})
			})
			if err != nil {
				t.Fatal(err)
			}
			defer g.Close()
			for i := range 3 {
				if err := x.WriteFloat32s([]float32{1, 0, 0, float32(i)}); err != nil {
					t.Fatal(err)
				}
				if err := g.Launch(); err != nil {
					t.Fatal(err)
				}
				k := float32(i)
				equal(t, "replay", y, 2+8*k, 10+16*k, 18+24*k, 26+32*k)
				if p := position.Int32s()[0]; p != int32(i+1) {
					t.Errorf("position %d after %d launches", p, i+1)
				}
			}
		})
	}
}

func TestDeviceTroubleBecomesAnOpError(t *testing.T) {
	d, g := openFake(t, fake.Config{Memory: 1 << 20})
	x := on(t, d, tensor.FromSlice(ramp(100)))
	var op *tensor.OpError
	if _, err := tensor.NewTensorOnDevice(d, tensor.F32, 1<<20); !errors.Is(err, gpu.ErrOutOfMemory) {
		t.Errorf("too large: %v", err)
	}
	big, err := tensor.NewTensorOnDevice(d, tensor.F32, 100<<10)
	if err != nil {
		t.Fatal(err)
	}
	if err := tensor.Try(func() { tensor.Add(big, big); tensor.Softmax(tensor.Add(big, big)) }); !errors.As(err, &op) || !errors.Is(err, gpu.ErrOutOfMemory) {
		t.Errorf("out of memory: %v", err)
	} else if !strings.Contains(err.Error(), "(102400)") {
		t.Errorf("%v does not name the shape", err)
	}
	boom := errors.New("boom")
	g.FailAfter(fake.Launch, 0, boom)
	if err := tensor.Try(func() { tensor.Mul(x, x) }); !errors.Is(err, boom) || !errors.As(err, &op) || op.Op != "mul" {
		t.Errorf("launch: %v", err)
	}
	g.Poison()
	if err := tensor.Try(func() { tensor.Mul(x, x) }); !errors.Is(err, gpu.ErrDeviceLost) {
		t.Errorf("lost: %v", err)
	}
	if err := tensor.Try(func() { x.Float32s() }); !errors.Is(err, gpu.ErrDeviceLost) {
		t.Errorf("lost: %v", err)
	}
	x.Free()
}

func TestAbsentGPUIsAnErrorThatSaysWhy(t *testing.T) {
	x := tensor.Zeros(2)
	y, err := x.ToDevice(tensor.GPU)
	if err == nil {
		if !y.IsOnGPU() {
			t.Error("not on the GPU")
		}
		y.Device().Close()
		return
	}
	if !errors.Is(err, gpu.ErrNotCompiled) && !errors.Is(err, gpu.ErrNoDevice) && !errors.Is(err, gpu.ErrNoKernelImage) {
		t.Error(err)
	}
	if z, err := x.ToDevice(tensor.CPU); err != nil || z != x {
		t.Errorf("to the CPU: %v", err)
	}
}

// eachPlace runs a benchmark with 32 floats on the CPU, and on a GPU where there is one.
func eachPlace(b *testing.B, f func(b *testing.B, x *tensor.Tensor)) {
	for _, place := range []tensor.Place{tensor.CPU, tensor.GPU} {
		b.Run(fmt.Sprint(place), func(b *testing.B) {
			x, err := tensor.Zeros(32).ToDevice(place)
			if err != nil {
				b.Skip(err)
			}
			b.ReportAllocs()
			f(b, x)
		})
	}
}

// BenchmarkAdd32 is the host time of a small eager op; the goal is 3 us.
func BenchmarkAdd32(b *testing.B) {
	eachPlace(b, func(b *testing.B, x *tensor.Tensor) {
		for b.Loop() {
			y := tensor.Add(x, x)
			y.Free()
		}
	})
}

// BenchmarkAdd32Dropped leaves the results to the garbage collector.
func BenchmarkAdd32Dropped(b *testing.B) {
	eachPlace(b, func(b *testing.B, x *tensor.Tensor) {
		for b.Loop() {
			tensor.Add(x, x)
		}
	})
}

// BenchmarkAddInto32 is what a preallocated output costs.
func BenchmarkAddInto32(b *testing.B) {
	eachPlace(b, func(b *testing.B, x *tensor.Tensor) {
		y := x.Clone()
		for b.Loop() {
			tensor.AddInto(y, x, x)
		}
	})
}

// TestDataOfAStructBesidePointers writes from and reads into arrays of a struct that holds pointers of Go.
func TestDataOfAStructBesidePointers(t *testing.T) {
	eachBackend(t, func(t *testing.T, _ kernel.Backend, d *gpu.Device) {
		x, err := tensor.New(d.Stream(), tensor.I32, 3)
		if err != nil {
			t.Fatal(err)
		}
		defer x.Free()
		type held struct {
			other  *int
			values [3]int32
			raw    [12]byte
		}
		h := &held{other: new(int), values: [3]int32{1, -2, 3}}
		if err := x.WriteInt32s(h.values[:]); err != nil {
			t.Fatal(err)
		}
		if err := x.ReadBytes(h.raw[:]); err != nil {
			t.Fatal(err)
		}
		if want := [12]byte{1, 0, 0, 0, 254, 255, 255, 255, 3}; h.raw != want {
			t.Errorf("%v, want %v", h.raw, want)
		}
	})
}
