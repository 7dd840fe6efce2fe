package tensor_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math"
	"os"
	"strings"
	"testing"

	"github.com/vibrant-ml/vibrant/gpu"
	"github.com/vibrant-ml/vibrant/internal/backend/kernel"
	"github.com/vibrant-ml/vibrant/internal/check/testdata"
	"github.com/vibrant-ml/vibrant/tensor"
)

var quantizable = []tensor.DType{tensor.Q4_0, tensor.Q8_0, tensor.Q4_K, tensor.Q6_K}

func floatsOf(b []byte) []float32 {
	v := make([]float32, len(b)/4)
	for i := range v {
		v[i] = math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:]))
	}
	return v
}

// same compares the stored bytes of a tensor, block by block.
func same(t *testing.T, got *tensor.Tensor, want []byte) {
	t.Helper()
	b := make([]byte, got.Bytes())
	if err := got.ReadBytes(b); err != nil {
		t.Fatal(err)
	}
	size := got.DType().BlockBytes()
	if len(b) != len(want) {
		t.Fatalf("%v: %d bytes, want %d", got.DType(), len(b), len(want))
	}
	for i := 0; i < len(b); i += size {
		if !bytes.Equal(b[i:i+size], want[i:i+size]) {
			t.Fatalf("%v: block %d is %x, want %x", got.DType(), i/size, b[i:i+size], want[i:i+size])
		}
	}
}

// The golden file is by ggml's quantizers in C: testdata/quantize.py.
func TestQuantizedBlocksAreGGMLs(t *testing.T) {
	golden, err := os.ReadFile("testdata/quantize.bin")
	if err != nil {
		t.Fatal(err)
	}
	const n = 2560
	values, golden := floatsOf(golden[:4*n]), golden[4*n:]
	eachBackend(t, func(t *testing.T, _ kernel.Backend, d *gpu.Device) {
		x := on(t, d, tensor.FromSlice(values, n/256, 256))
		rest := golden
		for _, dtype := range quantizable {
			q := tensor.Quantize(x, dtype)
			if q.Device() != d || q.DType() != dtype || q.Dim(0) != n/256 {
				t.Errorf("%v%v on %v", q.DType(), q.Shape(), q.Device())
			}
			same(t, q, rest[:dtype.Bytes(n)])
			rest = rest[dtype.Bytes(n):]
		}
	})
}

func TestQuantizedBlocksAreThoseOfTheSharedData(t *testing.T) {
	read := func(name string) []byte {
		b, err := os.ReadFile(testdata.Path(t, "quants", name))
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	source := floatsOf(read("src_gauss.f32.bin"))
	eachBackend(t, func(t *testing.T, _ kernel.Backend, d *gpu.Device) {
		for _, dtype := range quantizable {
			all := read(dtype.String() + ".blocks.bin")
			made := all[len(all)/2:] // the first half is of random bytes
			n := len(made) / dtype.BlockBytes() * dtype.BlockSize()
			same(t, tensor.Quantize(on(t, d, tensor.FromSlice(source[:n])), dtype), made)
		}
	})
}

func TestValuesThatNoBlockHoldsAreErrors(t *testing.T) {
	eachBackend(t, func(t *testing.T, _ kernel.Backend, d *gpu.Device) {
		for _, bad := range []float32{float32(math.NaN()), float32(math.Inf(1)), float32(math.Inf(-1)), math.MaxFloat32, -1e30} {
			for _, dtype := range quantizable {
				values := make([]float32, 512)
				values[300] = bad
				x := on(t, d, tensor.FromSlice(values))
				var op *tensor.OpError
				err := tensor.Try(func() { tensor.Quantize(x, dtype) })
				if !errors.As(err, &op) || !errors.Is(err, gpu.ErrInvalid) || !strings.Contains(err.Error(), "too large for the scale") {
					t.Errorf("%v of %v: %v", dtype, bad, err)
				}
			}
		}
	})
	for name, f := range map[string]func(){
		"rows of Q8_0 are whole blocks of 32": func() { tensor.Quantize(tensor.Zeros(4, 33), tensor.Q8_0) },
		"to Q5_K: want Q8_0":                  func() { tensor.Quantize(tensor.Zeros(256), tensor.Q5_K) },
		"I32 (1): want F32":                   func() { tensor.Quantize(tensor.FromInt32s([]int32{1}), tensor.Q8_0) },
	} {
		if err := tensor.Try(f); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%v, want %s", err, name)
		}
	}
}

func TestQuantizeTakesViewsAndHalves(t *testing.T) {
	x := tensor.RandN(gpu.CPU().Stream(), 3, tensor.F32, 256, 4)
	want := tensor.Quantize(x.T().ToContiguous(), tensor.Q6_K)
	b := make([]byte, want.Bytes())
	if err := want.ReadBytes(b); err != nil {
		t.Fatal(err)
	}
	same(t, tensor.Quantize(x.T(), tensor.Q6_K), b)
	half := tensor.Convert(x.T(), tensor.F16)
	want = tensor.Quantize(tensor.Convert(half, tensor.F32), tensor.Q6_K)
	if err := want.ReadBytes(b); err != nil {
		t.Fatal(err)
	}
	same(t, tensor.Quantize(half, tensor.Q6_K), b)
}
