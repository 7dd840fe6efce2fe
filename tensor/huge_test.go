package tensor_test

import (
	"bytes"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/vibrant-ml/vibrant/gpu"
	"github.com/vibrant-ml/vibrant/internal/backend/kernel"
	"github.com/vibrant-ml/vibrant/tensor"
)

// TestMoreElementsThanAnInt32Counts runs operations on tensors of more than 2^31 elements where a GPU has the memory, 40 GB, and on
// small tensors elsewhere, which checks the test. The rows repeat: what an operation makes of them is held against what it makes
// of the first of each, which the operation table checks.
func TestMoreElementsThanAnInt32Counts(t *testing.T) {
	eachBackend(t, func(t *testing.T, b kernel.Backend, d *gpu.Device) {
		h := huge{t: t, d: d, rows: 1<<9 + 3, cols: 128, period: 37}
		if free, _, err := d.Memory(); err != nil {
			t.Fatal(err)
		} else if b.Name() == "cuda" && free > 40<<30 && !testing.Short() {
			h.rows, h.cols, h.period = 1<<19+3, 4096, 1021
		}
		t.Logf("%d elements", h.rows*h.cols)
		x, few := h.repeated(tensor.F16)
		defer x.Free()
		weight := h.random(tensor.F32, h.cols)
		for name, f := range map[string]func(x *tensor.Tensor) *tensor.Tensor{
			"Copy":    tensor.Copy,
			"Add":     func(x *tensor.Tensor) *tensor.Tensor { return tensor.Add(x, x) },
			"SwiGLU":  func(x *tensor.Tensor) *tensor.Tensor { return tensor.SwiGLU(x, x) },
			"SiLU":    tensor.SiLU,
			"Convert": func(x *tensor.Tensor) *tensor.Tensor { return tensor.Convert(x, tensor.F32) },
			"Softmax": tensor.Softmax,
			"RMSNorm": func(x *tensor.Tensor) *tensor.Tensor { return tensor.RMSNorm(x, weight, 1e-5) },
			"Argmax": func(x *tensor.Tensor) *tensor.Tensor {
				y := tensor.Convert(x, tensor.F32)
				defer y.Free()
				return tensor.Argmax(y)
			},
			"Columns": func(x *tensor.Tensor) *tensor.Tensor { return tensor.Columns(x, 3, h.cols-5) },
		} {
			var want, got *tensor.Tensor
			if err := tensor.Try(func() { want, got = f(few), f(x) }); err != nil {
				t.Errorf("%s: %v", name, err)
				continue
			}
			h.same(name, got, want)
			got.Free()
			want.Free()
		}
		h.products(x, few)
		h.embedding(x, few)
		if err := d.Stream().Synchronize(); err != nil {
			t.Fatal(err)
		}
	})
}

// huge makes matrices of that many rows, of which the first `period` repeat.
type huge struct {
	t                  *testing.T
	d                  *gpu.Device
	rows, cols, period int
}

func (h *huge) new(dtype tensor.DType, shape ...int) *tensor.Tensor {
	h.t.Helper()
	x, err := tensor.NewTensorOnDevice(h.d, dtype, shape...)
	if err != nil {
		h.t.Fatal(err)
	}
	return x
}

func (h *huge) random(dtype tensor.DType, shape ...int) *tensor.Tensor {
	h.t.Helper()
	x := h.new(tensor.F32, shape...)
	rng := rand.New(rand.NewPCG(1, 2))
	values := make([]float32, x.Len())
	for i := range values {
		values[i] = float32(rng.NormFloat64())
	}
	if err := x.WriteFloat32s(values); err != nil {
		h.t.Fatal(err)
	}
	if dtype == tensor.F32 {
		return x
	}
	defer x.Free()
	return tensor.Convert(x, dtype)
}

// repeated returns a matrix, and the rows that it repeats.
func (h *huge) repeated(dtype tensor.DType) (all, few *tensor.Tensor) {
	h.t.Helper()
	few = h.random(dtype, h.period, h.cols)
	block := make([]byte, few.Bytes())
	if err := few.ReadBytes(block); err != nil {
		h.t.Fatal(err)
	}
	all = h.new(dtype, h.rows, h.cols)
	for lo := 0; lo < h.rows; lo += h.period {
		part := all.Slice(lo, min(lo+h.period, h.rows))
		if err := part.WriteBytes(block[:part.Bytes()]); err != nil {
			h.t.Fatal(err)
		}
	}
	return all, few
}

// same holds all rows of got against the rows of want that they repeat: bit by bit, but for operations whose sums may go another
// way where there are more rows.
func (h *huge) same(name string, got, want *tensor.Tensor) {
	h.t.Helper()
	expected := make([]byte, want.Bytes())
	if err := want.ReadBytes(expected); err != nil {
		h.t.Error(name, err)
		return
	}
	part := make([]byte, len(expected))
	for lo := 0; lo < h.rows; lo += h.period {
		rows := got.Slice(lo, min(lo+h.period, h.rows))
		if err := rows.ReadBytes(part[:rows.Bytes()]); err != nil {
			h.t.Error(name, err)
			return
		}
		if (name == "Softmax" || name == "RMSNorm") && !bytes.Equal(part[:rows.Bytes()], expected[:rows.Bytes()]) {
			w := want.Float32s()
			h.close(name, rows.Float32s(), func(i int) float64 { return float64(w[i]) }, largest(w))
			continue
		}
		if !bytes.Equal(part[:rows.Bytes()], expected[:rows.Bytes()]) {
			h.t.Errorf("%s: the rows from %d on, element %d, are not those of the small tensor", name, lo, lo*h.cols)
			return
		}
	}
}

// close is same for products, whose kernels differ with the size: float32 sums of cols terms of N(0, 1) in another order, and one
// rounding to F16, differ by less than 2^-10 of the largest.
func (h *huge) close(name string, got []float32, want func(i int) float64, largest float64) {
	h.t.Helper()
	for i, g := range got {
		if d := math.Abs(float64(g) - want(i)); !(d <= 0x1p-10*largest) {
			h.t.Errorf("%s: element %d is %g, want %g", name, i, g, want(i))
			return
		}
	}
}

func largest(values []float32) (m float64) {
	for _, v := range values {
		m = max(m, math.Abs(float64(v)))
	}
	return m
}

// products has x as a weight matrix of that many outputs, as a left factor, and a product with that many elements.
func (h *huge) products(x, few *tensor.Tensor) {
	h.t.Helper()
	row := h.random(tensor.F32, 1, h.cols)
	defer row.Free()
	want := tensor.Linear(row, few, nil).Float32s()
	got := tensor.Linear(row, x, nil).Float32s()
	h.close("Linear", got, func(i int) float64 { return float64(want[i%h.period]) }, largest(want))

	const n = 8
	right := h.random(tensor.F16, h.cols, n)
	defer right.Free()
	y := tensor.MatMul(x, right)
	want, got = tensor.MatMul(few, right).Float32s(), y.Float32s()
	y.Free()
	h.close("MatMul of many rows", got, func(i int) float64 { return float64(want[i/n%h.period*n+i%n]) }, largest(want))

	left := tensor.Columns(x, 0, n)
	defer left.Free()
	wide := h.random(tensor.F16, n, h.cols)
	defer wide.Free()
	y = tensor.MatMul(left, wide)
	defer y.Free()
	fewWant := tensor.MatMul(tensor.Columns(few, 0, n), wide).Float32s()
	for _, lo := range []int{0, h.rows / 2, h.rows - h.period} { // not all: 2^31 float32 take 8 GiB here
		rows := y.Slice(lo, lo+h.period).Float32s()
		h.close("MatMul into many elements", rows, func(i int) float64 {
			return float64(fewWant[(lo+i/h.cols)%h.period*h.cols+i%h.cols])
		}, largest(fewWant))
	}
}

// embedding looks up rows of a table of that many elements, the last ones too.
func (h *huge) embedding(table, few *tensor.Tensor) {
	h.t.Helper()
	picked := []int32{0, 1, int32(h.rows/2 - 1), int32(h.rows / 2), int32(h.rows - 1)}
	ids := h.new(tensor.I32, len(picked))
	defer ids.Free()
	if err := ids.WriteInt32s(picked); err != nil {
		h.t.Fatal(err)
	}
	want, got := few.Float32s(), tensor.Embedding(table, ids).Float32s()
	for i, id := range picked {
		for j := range h.cols {
			if g, w := got[i*h.cols+j], want[int(id)%h.period*h.cols+j]; g != w {
				h.t.Errorf("Embedding: row %d, column %d is %g, want %g", id, j, g, w)
				return
			}
		}
	}
}
