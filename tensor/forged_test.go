package tensor_test

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"os"
	"testing"

	"github.com/vibrant-ml/vibrant/dtype"
	"github.com/vibrant-ml/vibrant/gpu"
	"github.com/vibrant-ml/vibrant/internal/backend/kernel"
	"github.com/vibrant-ml/vibrant/internal/check/testdata"
	"github.com/vibrant-ml/vibrant/tensor"
)

// TestForgedBlocksSpoilTheirRowAlone puts blocks of set bits, whose scales are no numbers in most formats, into one row of weights. Its
// products are no numbers either, and the other rows' products are those of sound weights, bit by bit.
func TestForgedBlocksSpoilTheirRowAlone(t *testing.T) {
	const rows, cols, forged = 5, 768, 1
	eachBackend(t, func(t *testing.T, _ kernel.Backend, d *gpu.Device) {
		for _, format := range dtype.All() {
			if !format.Quantized() {
				continue
			}
			blocks, err := os.ReadFile(testdata.Path(t, "quants", format.String()+".blocks.bin"))
			if errors.Is(err, os.ErrNotExist) {
				continue // no weights of models: the two-bit matrices of tensor/ternary.go
			}
			if err != nil {
				t.Fatal(err)
			}
			size := format.BlockBytes()
			sound := blocks[len(blocks)/size/2*size:] // of a quantizer; the first half is of random bytes
			sound = bytes.Repeat(sound, int(format.Bytes(rows*cols))/len(sound)+1)[:format.Bytes(rows*cols)]
			rowBytes := len(sound) / rows
			for _, at := range []int{0, rowBytes / size / 2 * size, rowBytes - size} {
				bad := bytes.Clone(sound)
				copy(bad[forged*rowBytes+at:], bytes.Repeat([]byte{255}, size))
				for _, packed := range []bool{false, true} {
					for _, n := range []int{1, 2, 7, 40} {
						name := fmt.Sprintf("%v, byte %d, packed %v, %d rows", format, at, packed, n)
						want, err := product(t, d, format, sound, rows, cols, n, packed)
						if errors.Is(err, gpu.ErrUnsupported) {
							continue
						}
						got, err2 := product(t, d, format, bad, rows, cols, n, packed)
						if err != nil || err2 != nil {
							t.Fatal(name, err, err2)
						}
						spoilt := false
						for _, v := range valuesOf(t, format, bad[forged*rowBytes:][:rowBytes], cols) {
							spoilt = spoilt || math.IsNaN(float64(v)) || math.IsInf(float64(v), 0)
						}
						for i := range got {
							x := float64(got[i])
							if i%rows != forged && got[i] != want[i] {
								t.Fatalf("%s: product %d is %v, of sound weights %v", name, i, x, want[i])
							}
							if i%rows == forged && spoilt && !math.IsNaN(x) && !math.IsInf(x, 0) {
								t.Fatalf("%s: product %d is %v, of weights that are no numbers", name, i, x)
							}
						}
					}
				}
			}
		}
	})
}

// product returns x w^T on a device, of n rows of x and weights as stored or packed.
func product(t *testing.T, d *gpu.Device, format tensor.DType, blocks []byte, rows, cols, n int, packed bool) ([]float32, error) {
	t.Helper()
	w, err := tensor.New(d.Stream(), format, rows, cols)
	if err != nil {
		return nil, err
	}
	defer w.Free()
	if err := w.WriteBytes(blocks); err != nil {
		return nil, err
	}
	if packed {
		size, err := tensor.PackedSize(d, format, rows, cols)
		if err != nil || size == 0 {
			return nil, errors.Join(err, gpu.ErrUnsupported)
		}
		memory, err := tensor.NewArena(d.Stream(), size)
		if err != nil {
			return nil, err
		}
		defer memory.Free()
		form, err := memory.NewPacked(format, rows, cols)
		if err == nil {
			err = tensor.PackInto(form, w)
		}
		if err != nil {
			return nil, err
		}
		w = form
	}
	x := tensor.RandN(d.Stream(), 5, tensor.F32, n, cols)
	defer x.Free()
	out := make([]float32, n*rows)
	var y *tensor.Tensor
	if err := tensor.Try(func() { y = tensor.Linear(x, w, nil) }); err != nil {
		return nil, err
	}
	defer y.Free()
	return out, y.ReadFloat32s(out)
}

// valuesOf returns the floats of a row of blocks.
func valuesOf(t *testing.T, format tensor.DType, blocks []byte, cols int) []float32 {
	t.Helper()
	w, err := tensor.New(gpu.CPU().Stream(), format, 1, cols)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.WriteBytes(blocks); err != nil {
		t.Fatal(err)
	}
	values := make([]float32, cols)
	if err := tensor.Convert(w, tensor.F32).ReadFloat32s(values); err != nil {
		t.Fatal(err)
	}
	return values
}
