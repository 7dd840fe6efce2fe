//go:build cgo && linux

package ptx

import (
	"fmt"
	"math"
	"math/rand/v2"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"testing"
	"unsafe"

	dl "github.com/ebitengine/purego"

	"github.com/vibrant-ml/vibrant/dtype"
	"github.com/vibrant-ml/vibrant/gpu"
	"github.com/vibrant-ml/vibrant/tensor"
)

// driver is csrc/testdata/libcuda.c, which interprets PTX and ends the process at an access outside allocated memory.
type driver struct {
	t      *testing.T
	handle uintptr
}

func openDriver(t *testing.T) driver {
	cc, err := exec.LookPath("cc")
	if err != nil {
		t.Skip(err)
	}
	path := filepath.Join(t.TempDir(), "libcuda.so.1")
	if out, err := exec.Command(cc, "-O2", "-shared", "-fPIC", "-pthread", "-o", path, "../csrc/testdata/libcuda.c", "-lm").CombinedOutput(); err != nil {
		t.Fatalf("cc: %v\n%s", err, out)
	}
	handle, err := dl.Dlopen(path, dl.RTLD_NOW|dl.RTLD_LOCAL)
	if err != nil {
		t.Fatal(err)
	}
	return driver{t, handle}
}

func (d driver) call(name string, args ...uintptr) {
	d.t.Helper()
	at, err := dl.Dlsym(d.handle, name)
	if err != nil {
		d.t.Fatal(err)
	}
	if r, _, _ := dl.SyscallN(at, args...); int32(r) != 0 {
		d.t.Fatalf("%s: error %d", name, int32(r))
	}
}

// memory copies values to the device.
func memory[T any](d driver, values []T) uint64 {
	address := new(uint64)
	bytes := uintptr(len(values)) * unsafe.Sizeof(values[0])
	d.call("cuMemAlloc_v2", uintptr(unsafe.Pointer(address)), bytes)
	d.call("cuMemcpyHtoD_v2", uintptr(*address), uintptr(unsafe.Pointer(&values[0])), bytes)
	runtime.KeepAlive(values)
	return *address
}

// memoryAt has the values so many floats behind an aligned address.
func memoryAt(d driver, at int, values []float32) uint64 {
	return memory(d, slices.Concat(make([]float32, at), values)) + 4*uint64(at)
}

// read copies n values from the device.
func read[T any](d driver, address uint64, n int) []T {
	values := make([]T, n)
	d.call("cuMemcpyDtoH_v2", uintptr(unsafe.Pointer(&values[0])), uintptr(address), uintptr(n)*unsafe.Sizeof(values[0]))
	return values
}

// run loads a kernel as a program of the driver's API does and launches it with parameters of u64 and u32.
func (d driver) run(k Kernel, target string, parameters ...any) {
	d.t.Helper()
	d.runBlocks(k, target, 0, parameters...)
}

// runBlocks is run with a caller's number of blocks, 0 for the module's.
func (d driver) runBlocks(k Kernel, target string, blocks int, parameters ...any) {
	d.t.Helper()
	module, err := Emitter{Target: target}.Emit(k)
	if err != nil {
		d.t.Fatalf("%+v: %v", k, err)
	}
	text, name := append([]byte(module.Text), 0), append([]byte(KernelName(k)), 0)
	loaded, function := new(uintptr), new(uintptr)
	d.call("cuModuleLoadData", uintptr(unsafe.Pointer(loaded)), uintptr(unsafe.Pointer(&text[0])))
	d.call("cuModuleGetFunction", uintptr(unsafe.Pointer(function)), *loaded, uintptr(unsafe.Pointer(&name[0])))
	values, places := make([]uint64, len(parameters)), make([]*uint64, len(parameters))
	for i, p := range parameters {
		switch p := p.(type) {
		case uint64:
			values[i] = p
		case int:
			values[i] = uint64(uint32(p))
		default:
			d.t.Fatalf("parameter %d: %T", i, p)
		}
		places[i] = &values[i]
	}
	if blocks == 0 {
		blocks = module.GridX
	}
	d.call("cuLaunchKernel", *function, uintptr(blocks), uintptr(module.GridY), 1, uintptr(module.Threads), 1, 1, 0, 0,
		uintptr(unsafe.Pointer(&places[0])), 0)
	runtime.KeepAlive(places)
	runtime.KeepAlive(text)
	runtime.KeepAlive(name)
}

// near compares results with float64, to `tolerance` of the size of the terms.
func near(t *testing.T, what string, got []float32, want, size []float64, tolerance float64) {
	t.Helper()
	for i := range got {
		if diff := math.Abs(float64(got[i]) - want[i]); !(diff <= tolerance*size[i]) {
			t.Errorf("%s: element %d is %v, want %v", what, i, got[i], want[i])
			return
		}
	}
}

func randoms(r *rand.Rand, n int) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(r.NormFloat64())
	}
	return x
}

// stored returns the bytes of values in a type, and what they stand for.
func stored(t *testing.T, x []float32, to dtype.Type) ([]byte, []float32) {
	t.Helper()
	convert := tensor.Quantize
	if to == dtype.F16 {
		convert = tensor.Convert
	}
	w := convert(tensor.FromSlice(x, len(x)), to)
	bytes := make([]byte, w.Bytes())
	if err := w.ReadBytes(bytes); err != nil {
		t.Fatal(err)
	}
	return bytes, decoded(t, w)
}

func decoded(t *testing.T, w *tensor.Tensor) []float32 {
	t.Helper()
	values := make([]float32, w.Len())
	if err := tensor.Convert(w, dtype.F32).ReadFloat32s(values); err != nil {
		t.Fatal(err)
	}
	return values
}

// weights returns random blocks of a type, and what they stand for: all bits are random but those of the F16 scales.
func weights(t *testing.T, r *rand.Rand, weight dtype.Type, rows, cols int) ([]byte, []float32) {
	t.Helper()
	bytes := make([]byte, weight.Bytes(rows*cols))
	for i := range bytes {
		bytes[i] = byte(r.Uint32())
	}
	places := map[dtype.Type][]int{dtype.Q4_K: {0, 2}, dtype.Q5_K: {0, 2}, dtype.Q6_K: {208}, dtype.Q4_1: {0, 2}}[weight]
	if places == nil {
		places = []int{0}
	}
	for b := 0; b < len(bytes); b += weight.BlockBytes() {
		for _, place := range places {
			bytes[b+place+1] = byte(0x1c + r.IntN(4)) // 2^-8 to 2^-7
		}
	}
	w, err := tensor.FromMemory(gpu.CPU(), weight, bytes, nil, rows, cols)
	if err != nil {
		t.Fatal(err)
	}
	return bytes, decoded(t, w)
}

// product returns a[m][k] b in float64 and the size of its terms; `b` is [n][k] where it is transposed, else [k][n].
func product(a, b []float32, m, n, k int, transposed bool) (want, size []float64) {
	want, size = make([]float64, m*n), make([]float64, m*n)
	for i := range want {
		for j := range k {
			at := j*n + i%n
			if transposed {
				at = i%n*k + j
			}
			term := float64(a[i/n*k+j]) * float64(b[at])
			want[i] += term
			size[i] += math.Abs(term)
		}
	}
	return want, size
}

func TestProductsInterpreted(t *testing.T) {
	d, r := openDriver(t), rand.New(rand.NewPCG(7, 1))
	for _, k := range []Kernel{
		{Kind: GemmNaive, M: 19, N: 33, K: 7}, {Kind: GemmTiled, M: 19, N: 33, K: 7, Tile: 8}, {Kind: GemmTiled, M: 1, N: 1, K: 1},
		{Kind: GemmTiled, M: 33, N: 35, K: 40, Tile: 32},
	} {
		a, b := randoms(r, k.M*k.K), randoms(r, k.K*k.N)
		out := memory(d, make([]float32, k.M*k.N))
		d.run(k, "", memory(d, a), memory(d, b), out, k.M, k.N, k.K)
		want, size := product(a, b, k.M, k.N, k.K, false)
		near(t, fmt.Sprintf("%+v", k), read[float32](d, out, k.M*k.N), want, size, 1e-6)
	}
	for _, target := range []string{"sm_75", "sm_80"} {
		for _, k := range []Kernel{{Kind: GemmTensorCore, M: 129, N: 72, K: 40}, {Kind: GemmTensorCore, M: 65, N: 31, K: 33, Entry: "gemm_wmma_fp16"}} {
			ab, a := stored(t, randoms(r, k.M*k.K), dtype.F16)
			bb, b := stored(t, randoms(r, k.K*k.N), dtype.F16)
			out := memory(d, make([]float32, k.M*k.N))
			d.run(k, target, memory(d, ab), memory(d, bb), out, k.M, k.N, k.K)
			want, size := product(a, b, k.M, k.N, k.K, false)
			near(t, fmt.Sprintf("%+v for %s", k, target), read[float32](d, out, k.M*k.N), want, size, 1e-6)
		}
	}
	for _, name := range []string{"gemv_warp_reduce", "gemv_coalesced"} {
		k, err := Lookup(name)
		if err != nil {
			t.Fatal(err)
		}
		k.N, k.K = 77, 133
		w, x := randoms(r, k.K*k.N), randoms(r, k.K)
		y := memory(d, make([]float32, k.N))
		d.run(k, "", y, memory(d, w), memory(d, x), k.K, k.N)
		want, size := product(x, w, 1, k.N, k.K, false)
		near(t, name, read[float32](d, y, k.N), want, size, 1e-6)
	}
}

// TestQuantizedProductsInterpreted holds what reads weights to what the C kernels decode, which third-party files prove.
func TestQuantizedProductsInterpreted(t *testing.T) {
	d, r := openDriver(t), rand.New(rand.NewPCG(7, 2))
	for _, weight := range Weights() {
		const m, n = 11, 6
		k := 512
		if weight.BlockSize() == 32 {
			k = 96
		}
		bytes, w := weights(t, r, weight, n, k)
		a, b := randoms(r, m*k), memory(d, bytes)
		gemm, gemv, dequantize := Kernel{Kind: QuantizedGemm, M: m, N: n, K: k, Weight: weight}, Kernel{Kind: Gemv, N: n, K: k, Weight: weight},
			Kernel{Kind: Dequantize, N: n, K: k, Weight: weight}
		want, size := product(a, w, m, n, k, true)
		c, y, out := memory(d, make([]float32, m*n)), memory(d, make([]float32, n)), memory(d, make([]float32, n*k))
		d.run(gemm, "", memory(d, a), b, c, m, n, k)
		near(t, KernelName(gemm), read[float32](d, c, m*n), want, size, 2e-6)
		d.run(gemv, "", y, b, memory(d, a[:k]), k, n)
		near(t, KernelName(gemv), read[float32](d, y, n), want[:n], size[:n], 2e-6)
		d.run(dequantize, "", out, b, k, n)
		for i, v := range read[float32](d, out, n*k) {
			// A weight is the difference of two products, which are rounded in another order.
			if diff := math.Abs(float64(v - w[i])); !(diff <= 4e-7*math.Max(4, math.Abs(float64(w[i])))) {
				t.Fatalf("%s: element %d is %v, want %v", KernelName(dequantize), i, v, w[i])
			}
		}
	}
	k := Q4KGGMLInference(3, 5, 256)
	bytes, w := weights(t, r, dtype.Q4_K, 5, 256)
	a, c := randoms(r, 3*256), memory(d, make([]float32, 15))
	d.run(k, "", memory(d, a), memory(d, bytes), c, 3, 5, 256)
	want, size := product(a, w, 3, 5, 256, true)
	near(t, KernelName(k), read[float32](d, c, 15), want, size, 2e-6)

	x := randoms(r, 300)
	for i := 96; i < 128; i++ {
		x[i] = 0
	}
	bytes, _ = stored(t, append(slices.Clone(x), make([]float32, 20)...), dtype.Q8_0)
	x[70] = float32(math.NaN()) // of a block with a NaN the scale is NaN
	blocks := memory(d, make([]byte, len(bytes)))
	d.run(Kernel{Kind: Quantize, N: 300}, "", blocks, memory(d, x), 300)
	got := read[byte](d, blocks, len(bytes))
	for b := range 10 {
		if g, w := got[b*34:b*34+34], bytes[b*34:b*34+34]; b != 2 && !slices.Equal(g, w) {
			t.Errorf("q8_quantize: block %d is % x, want % x", b, g, w)
		}
	}
	if scale := uint16(got[68]) | uint16(got[69])<<8; scale&0x7c00 != 0x7c00 || scale&0x3ff == 0 {
		t.Errorf("q8_quantize: the scale of a block with a NaN is %#x", scale)
	}
}

// softmaxOf is the sum of values weighed by the softmax of the scores.
func softmaxOf(scores []float64, values func(int) float64) (sum float64) {
	most, total := slices.Max(scores), 0.0
	for _, s := range scores {
		total += math.Exp(s - most)
	}
	for i, s := range scores {
		sum += math.Exp(s-most) / total * values(i)
	}
	return sum
}

func TestAttentionInterpreted(t *testing.T) {
	d, r := openDriver(t), rand.New(rand.NewPCG(7, 3))
	for _, k := range []Kernel{
		{Kind: Attention, Seq: 37, Heads: 2, Dim: 20}, {Kind: Attention, Seq: 9, Heads: 1, Dim: 200, Causal: true}, Phi2Attention(18), TensorCoreAttention(5, 64, 3),
	} {
		if k.Heads == 32 {
			k.Heads = 2 // the interpreter is slow
		}
		n := k.Heads * k.Seq * k.Dim
		q, keys, v := randoms(r, n), randoms(r, n), randoms(r, n)
		out := memory(d, make([]float32, n))
		d.run(k, "", memory(d, q), memory(d, keys), memory(d, v), out, k.Seq, k.Dim, k.Heads)
		want, size := make([]float64, n), make([]float64, n)
		for i := range want {
			head, row, col := i/k.Dim/k.Seq*k.Seq, i/k.Dim%k.Seq, i%k.Dim
			scores := make([]float64, k.Seq)
			if k.Causal {
				scores = scores[:row+1]
			}
			for j := range scores {
				for c := range k.Dim {
					scores[j] += float64(q[(head+row)*k.Dim+c]) * float64(keys[(head+j)*k.Dim+c]) / math.Sqrt(float64(k.Dim))
				}
			}
			want[i], size[i] = softmaxOf(scores, func(j int) float64 { return float64(v[(head+j)*k.Dim+col]) }), 1
		}
		near(t, fmt.Sprintf("%+v", k), read[float32](d, out, n), want, size, 3e-6)
	}
	for _, seq := range []int{0, 1, 37} {
		k := Kernel{Kind: DecodeAttention, Heads: 6, KVHeads: 2, Dim: 80, Capacity: 41}
		cache := k.KVHeads * k.Capacity * k.Dim
		q, keys, v := randoms(r, k.Heads*k.Dim), randoms(r, cache), randoms(r, cache)
		out := memory(d, make([]float32, len(q)))
		d.run(k, "", memory(d, q), memory(d, keys), memory(d, v), out, seq)
		want, size := make([]float64, len(q)), make([]float64, len(q))
		for i := range want {
			size[i] = 1
			if seq == 0 {
				continue
			}
			head, col := i/k.Dim, i%k.Dim
			first := head / 3 * k.Capacity
			scores := make([]float64, seq)
			for j := range scores {
				for c := range k.Dim {
					scores[j] += float64(q[head*k.Dim+c]) * float64(keys[(first+j)*k.Dim+c]) / math.Sqrt(float64(k.Dim))
				}
			}
			want[i] = softmaxOf(scores, func(j int) float64 { return float64(v[(first+j)*k.Dim+col]) })
		}
		near(t, fmt.Sprintf("%d keys", seq), read[float32](d, out, len(q)), want, size, 3e-6)
	}
}

func TestRowsInterpreted(t *testing.T) {
	d, r := openDriver(t), rand.New(rand.NewPCG(7, 4))
	for _, c := range []struct{ dim, at int }{{1, 0}, {77, 0}, {1000, 0}, {1000, 1}, {8200, 0}} { // vectors of pointers that are aligned
		dim, rows := c.dim, 2
		if dim > 1024*8 { // more than registers hold; the interpreter is slow
			rows = 1
		}
		x, other, gamma, beta := randoms(r, rows*dim), randoms(r, rows*dim), randoms(r, dim), randoms(r, dim)
		in, out, g, b := memoryAt(d, c.at, x), memoryAt(d, c.at, make([]float32, rows*dim)), memoryAt(d, c.at, gamma), memoryAt(d, c.at, beta)
		norm := func(at func(int) float64, mean bool) []float64 {
			want := make([]float64, rows*dim)
			for i := range want {
				sum, square, first := 0.0, 0.0, i/dim*dim
				for j := range dim {
					sum += at(first+j) / float64(dim)
				}
				if !mean {
					sum = 0
				}
				for j := range dim {
					square += (at(first+j) - sum) * (at(first+j) - sum) / float64(dim)
				}
				want[i] = (at(i) - sum) / math.Sqrt(square+1e-5)
			}
			return want
		}
		scaled := func(want []float64, beta []float32) []float64 {
			for i := range want {
				want[i] *= float64(gamma[i%dim])
				if beta != nil {
					want[i] += float64(beta[i%dim])
				}
			}
			return want
		}
		size := slices.Repeat([]float64{10}, rows*dim) // of what is multiplied and added
		one := func(i int) float64 { return float64(x[i]) }
		k := Kernel{Kind: LayerNorm, Rows: rows, Dim: dim, Epsilon: 1e-5}
		d.run(k, "", in, out, g, b, dim, rows)
		near(t, fmt.Sprintf("%+v", k), read[float32](d, out, rows*dim), scaled(norm(one, true), beta), size, 1e-6)
		k.Plain = true
		d.run(k, "", in, out, uint64(0), uint64(0), dim, rows)
		near(t, fmt.Sprintf("%+v", k), read[float32](d, out, rows*dim), norm(one, true), size, 1e-6)
		k.RMS = true
		d.run(k, "", in, out, uint64(0))
		near(t, fmt.Sprintf("%+v", k), read[float32](d, out, rows*dim), norm(one, false), size, 1e-6)
		k.Plain = false
		d.run(k, "", in, out, g)
		near(t, fmt.Sprintf("%+v", k), read[float32](d, out, rows*dim), scaled(norm(one, false), nil), size, 1e-6)
		k = Kernel{Kind: AddRMSNorm, Rows: rows, Dim: dim, Epsilon: 1e-5}
		sum := func(i int) float64 { return float64(x[i] + other[i]) }
		d.run(k, "", memory(d, other), in, out, g)
		near(t, fmt.Sprintf("%+v", k), read[float32](d, out, rows*dim), scaled(norm(sum, false), nil), size, 1e-6)
		k.Plain = true
		d.run(k, "", memory(d, other), in, out, uint64(0))
		near(t, fmt.Sprintf("%+v", k), read[float32](d, out, rows*dim), norm(sum, false), size, 1e-6)

		d.run(Kernel{Kind: Softmax, Rows: rows, Dim: dim}, "", in, out, dim)
		want := make([]float64, rows*dim)
		for i := range want {
			most, total := math.Inf(-1), 0.0
			for j := range dim {
				most = math.Max(most, one(i/dim*dim+j))
			}
			for j := range dim {
				total += math.Exp(one(i/dim*dim+j) - most)
			}
			want[i] = math.Exp(one(i)-most) / total
		}
		near(t, fmt.Sprintf("softmax of %d", dim), read[float32](d, out, rows*dim), want, want, 2e-6)

		if rows == 1 {
			continue
		}
		x[dim/2], x[dim-1] = 50, 50
		x[dim] = float32(math.NaN())
		in = memory(d, x)
		n := len(x)
		blocks := (n + 1023) / 1024
		values, places, id := memory(d, make([]float32, blocks)), memory(d, make([]uint32, blocks)), memory(d, make([]uint32, 1))
		for length, want := range map[int]int{dim: dim / 2, n: dim} { // of equal ones the first; NaN is above all
			d.run(Kernel{Kind: ArgmaxBlocks, N: length}, "", in, values, places, length)
			d.run(Kernel{Kind: ArgmaxFinal, N: (length + 1023) / 1024}, "", values, places, id, (length+1023)/1024)
			if got := read[uint32](d, id, 1)[0]; int(got) != want {
				t.Errorf("argmax of %d numbers is %d, want %d", length, got, want)
			}
		}
	}
}

func TestElementsInterpreted(t *testing.T) {
	d, r := openDriver(t), rand.New(rand.NewPCG(7, 5))
	const n = 777
	x, y := randoms(r, n), randoms(r, n)
	for i := range x {
		x[i] *= 8
	}
	copy(x, []float32{0, -100, 100, -20, 1e-30, -1e-30, 3e38})
	a, b, out := memory(d, x), memory(d, y), memory(d, make([]float32, n))
	silu := func(x float64) float64 { return x / (1 + math.Exp(-x)) }
	for kind, f := range map[Kind]func(x, y float64) float64{
		SiLU: func(x, _ float64) float64 { return silu(x) }, Mul: func(x, y float64) float64 { return x * y },
		GELU: func(x, _ float64) float64 { return x / (1 + math.Exp(-2*math.Sqrt(2/math.Pi)*(x+0.044715*x*x*x))) },
		Add:  func(x, y float64) float64 { return x + y }, SwiGLU: func(x, y float64) float64 { return silu(x) * y },
	} {
		want, size := make([]float64, n), make([]float64, n)
		for i := range want {
			want[i] = f(float64(x[i]), float64(y[i]))
			// The exponent of e^-x is rounded: that costs a part of its size, and results below 1e-37 may be 0.
			size[i] = math.Max(math.Abs(want[i])*math.Max(1, math.Min(math.Abs(float64(x[i])), 30)), 1e-31)
			if kind == Add {
				size[i] = math.Abs(float64(x[i])) + math.Abs(float64(y[i]))
			}
		}
		k := Kernel{Kind: kind, N: n}
		if kind == SiLU || kind == GELU {
			d.run(k, "", a, out, n)
		} else {
			d.run(k, "", a, b, out, n)
		}
		near(t, KernelName(k), read[float32](d, out, n), want, size, 1e-6)
	}
	for activation, f := range map[Activation]func(float64) float64{
		NoActivation: func(x float64) float64 { return x }, ReLU: func(x float64) float64 { return math.Max(x, 0) },
		QuickGELU: func(x float64) float64 { return x / (1 + math.Exp(-1.702*x)) },
	} {
		const dim = 70
		inPlace := memory(d, x)
		d.run(Kernel{Kind: BiasActivation, N: n, Dim: dim, Activation: activation}, "", inPlace, b, n)
		want, size := make([]float64, n), make([]float64, n)
		for i := range want {
			sum := float64(x[i] + y[i%dim])
			want[i] = f(sum)
			size[i] = math.Max(math.Abs(want[i])*math.Max(1, math.Min(math.Abs(2*sum), 100)), 1e-31)
		}
		near(t, fmt.Sprintf("bias with activation %d", activation), read[float32](d, inPlace, n), want, size, 1e-6)
	}
}

// TestElementsOfAnyPointersAndBlocksInterpreted: whole blocks move vectors where all pointers are aligned; else and at the end each element
// is moved alone. A thread an element, as callers of older systems launch, and more and fewer blocks are right, too.
func TestElementsOfAnyPointersAndBlocksInterpreted(t *testing.T) {
	d, r := openDriver(t), rand.New(rand.NewPCG(7, 6))
	const most, untouched = 5000, 9
	x, y := randoms(r, most+4), randoms(r, most+4)
	a, b := memory(d, x), memory(d, y)
	fill := slices.Repeat([]float32{untouched}, most+8)
	for _, n := range []int{1, 1023, 1024, 1025, 4096, most} {
		for _, at := range [][3]int{{0, 0, 0}, {1, 0, 0}, {0, 3, 0}, {0, 0, 2}, {1, 1, 1}} {
			var activated []float32
			for _, blocks := range []int{0, (n + 255) / 256, (n+255)/256 + 5, 1} {
				what := fmt.Sprintf("%d elements at %v by %d blocks", n, at, blocks)
				out := memory(d, fill)
				first := func(address uint64, i int) uint64 { return address + 4*uint64(at[i]) }
				d.runBlocks(Kernel{Kind: Add, N: n}, "", blocks, first(a, 0), first(b, 1), first(out, 2), n)
				want := slices.Clone(fill)
				for i := range n {
					want[at[2]+i] = x[at[0]+i] + y[at[1]+i]
				}
				if !slices.Equal(read[float32](d, out, len(fill)), want) {
					t.Errorf("residual_add of %s is wrong", what)
				}
				out = memory(d, fill)
				d.runBlocks(Kernel{Kind: SiLU, N: n}, "", blocks, first(a, 0), first(out, 2), n)
				if got := read[float32](d, out, len(fill)); blocks == 0 {
					activated = got // which TestElementsInterpreted holds to float64
				} else if !slices.Equal(got, activated) {
					t.Errorf("silu of %s is not that by the blocks of the module", what)
				}
				for _, dim := range []int{7, 40} { // in place: no element may be taken twice
					want = slices.Clone(fill)
					for i := range n {
						want[at[2]+i] = max(untouched+y[at[1]+i%dim], 0)
					}
					out = memory(d, fill)
					d.runBlocks(Kernel{Kind: BiasActivation, N: n, Dim: dim, Activation: ReLU}, "", blocks, first(out, 2), first(b, 1), n)
					if !slices.Equal(read[float32](d, out, len(fill)), want) {
						t.Errorf("bias_activation of %s, rows of %d, is wrong", what, dim)
					}
				}
			}
		}
	}
}

func TestRoPEAndTheCacheInterpreted(t *testing.T) {
	d, r := openDriver(t), rand.New(rand.NewPCG(7, 6))
	for _, name := range []string{"rope", "rope_neox"} {
		for _, c := range []struct {
			dim, pos int
			theta    float32
		}{{80, 0, 0}, {128, 4095, 0}, {256, 32767, 1e6}, {2, 100000, 500000}, {128, 1000000, 0}, {64, 4000000000, 1}} {
			k, err := Lookup(name)
			if err != nil {
				t.Fatal(err)
			}
			k.Heads, k.Dim, k.Theta = 3, c.dim, c.theta
			base := float64(c.theta)
			if base == 0 {
				base = 10000
			}
			x := randoms(r, 3*c.dim)
			out := memory(d, make([]float32, len(x)))
			d.run(k, "", memory(d, x), out, c.pos)
			want, size := make([]float64, len(x)), make([]float64, len(x))
			for head := range 3 {
				for i := range c.dim / 2 {
					first, second := head*c.dim+2*i, head*c.dim+2*i+1
					if k.NeoX {
						first, second = head*c.dim+i, head*c.dim+i+c.dim/2
					}
					angle := float64(c.pos) * math.Pow(base, -2*float64(i)/float64(c.dim))
					sin, cos := math.Sincos(angle)
					u, v := float64(x[first]), float64(x[second])
					want[first], want[second] = u*cos-v*sin, u*sin+v*cos
					size[first] = math.Hypot(u, v)
					size[second] = size[first]
				}
			}
			near(t, fmt.Sprintf("%s of %d at %d", name, c.dim, c.pos), read[float32](d, out, len(x)), want, size, 1e-6)
		}
	}
	const heads, dim, capacity = 3, 300, 5
	k := Kernel{Kind: CacheWrite, Heads: heads, Dim: 256}
	src, cache := randoms(r, heads*dim), randoms(r, heads*capacity*dim)
	at := memory(d, cache)
	for _, pos := range []int{2, 5} { // the second is not there
		d.run(k, "", memory(d, src), at, pos, dim, capacity)
	}
	for i := range heads * dim {
		cache[(i/dim*capacity+2)*dim+i%dim] = src[i]
	}
	if !slices.Equal(read[float32](d, at, len(cache)), cache) {
		t.Error("kv_cache_scatter: the cache is not as it should be")
	}
}
