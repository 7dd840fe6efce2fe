package tensor_test

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/vibrant-ml/vibrant/gpu"
	"github.com/vibrant-ml/vibrant/internal/backend/kernel"
	"github.com/vibrant-ml/vibrant/tensor"
)

// TestMoreElementsThanAnInt32Counts runs operations on tensors of more than 2^31 elements where a GPU has the memory, 60 GB, and on
// small tensors elsewhere, which checks the test. The rows repeat: what an operation makes of them is held against what it makes
// of the first of each, which the operation table checks.
func TestMoreElementsThanAnInt32Counts(t *testing.T) {
	eachBackend(t, func(t *testing.T, b kernel.Backend, d *gpu.Device) {
		h := huge{t: t, d: d, rows: 1<<9 + 3, cols: 256, period: 37}
		if free, _, err := d.Memory(); err != nil {
			t.Fatal(err)
		} else if b.Name() == "cuda" && free > 60<<30 && !testing.Short() {
			h.rows, h.cols, h.period = 1<<19+3, 4096, 1021
		}
		x, few := h.repeated(h.random(tensor.F16, h.period, h.cols))
		defer x.Free()
		computed := 0
		each := func(name string, f func(x *tensor.Tensor) []*tensor.Tensor, same func(name string, got, want *tensor.Tensor)) {
			computed++
			t.Run(name, func(t *testing.T) {
				h.t = t
				var want, got []*tensor.Tensor
				if err := tensor.Try(func() { want, got = f(few), f(x) }); err != nil {
					if b.Name() != "ptx" || !errors.Is(err, gpu.ErrUnsupported) {
						t.Error(err)
					}
					return
				}
				for i := range got {
					same(name, got[i], want[i])
					got[i].Free()
					want[i].Free()
				}
			})
			h.t = t
		}
		exact, close := h.sameBits, h.sameValues // sums may go another way where there are more rows
		for name, f := range map[string]func(x *tensor.Tensor) *tensor.Tensor{
			"Copy": tensor.Copy, "Abs": tensor.Abs, "Neg": tensor.Neg, "Exp": tensor.Exp, "ReLU": tensor.ReLU, "GELU": tensor.GELU,
			"GELUTanh": tensor.GELUTanh, "SiLU": tensor.SiLU, "Sigmoid": tensor.Sigmoid, "Tanh": tensor.Tanh, "Sin": tensor.Sin, "Round": tensor.Round,
			"Add":       func(x *tensor.Tensor) *tensor.Tensor { return tensor.Add(x, x) },
			"Mul":       func(x *tensor.Tensor) *tensor.Tensor { return tensor.Mul(x, x) },
			"Maximum":   func(x *tensor.Tensor) *tensor.Tensor { return tensor.Maximum(x, x) },
			"SwiGLU":    func(x *tensor.Tensor) *tensor.Tensor { return tensor.SwiGLU(x, x) },
			"AddScalar": func(x *tensor.Tensor) *tensor.Tensor { return tensor.AddScalar(x, 3) },
			"MulScalar": func(x *tensor.Tensor) *tensor.Tensor { return tensor.MulScalar(x, 3) },
			"Clamp":     func(x *tensor.Tensor) *tensor.Tensor { return tensor.Clamp(x, -.5, .5) },
			"SoftCap":   func(x *tensor.Tensor) *tensor.Tensor { return tensor.SoftCap(x, 2) },
			"F32":       func(x *tensor.Tensor) *tensor.Tensor { return tensor.Convert(x, tensor.F32) },
			"BF16":      func(x *tensor.Tensor) *tensor.Tensor { return tensor.Convert(x, tensor.BF16) },
			"Columns":   func(x *tensor.Tensor) *tensor.Tensor { return tensor.Columns(x, 3, h.cols-5) },
			"Concat":    func(x *tensor.Tensor) *tensor.Tensor { return tensor.Concat(1, x, x) },
			"Max":       func(x *tensor.Tensor) *tensor.Tensor { return tensor.Max(x, 1) },
			"Argmax": func(x *tensor.Tensor) *tensor.Tensor {
				y := tensor.Convert(x, tensor.F32)
				defer y.Free()
				return tensor.Argmax(y)
			},
			"Sort": func(x *tensor.Tensor) *tensor.Tensor { return tensor.Sort(x, 1, true) },
			"Where": func(x *tensor.Tensor) *tensor.Tensor {
				y := tensor.Neg(x)
				defer y.Free()
				greater := tensor.Gt(x, y)
				defer greater.Free()
				return tensor.Where(greater, x, y)
			},
			"MulRows": func(x *tensor.Tensor) *tensor.Tensor {
				factors := tensor.Convert(tensor.Max(x, 1), tensor.F32)
				defer factors.Free()
				return tensor.MulRows(x, factors)
			},
			"RoPE": func(x *tensor.Tensor) *tensor.Tensor {
				const dim = 128
				positions := make([]int32, x.Shape()[0])
				for i := range positions {
					positions[i] = int32(i % h.period)
				}
				table := h.random(tensor.F32, h.period, dim/2)
				defer table.Free()
				heads := x.Reshape(len(positions), h.cols/dim, dim)
				return tensor.RoPE(heads, table, table, h.indices(positions), tensor.RoPENeoX).Reshape(x.Shape()...)
			},
			"IndexSelect": func(x *tensor.Tensor) *tensor.Tensor { // from few rows
				ids := make([]int32, x.Shape()[0])
				for i := range ids {
					ids[i] = int32((i + 5) % h.period % len(ids))
				}
				return tensor.IndexSelect(few, h.indices(ids), 0)
			},
		} {
			each(name, func(x *tensor.Tensor) []*tensor.Tensor { return []*tensor.Tensor{f(x)} }, exact)
		}
		weight := h.random(tensor.F32, h.cols)
		bias := h.random(tensor.F32, h.cols)
		v, u := h.random(tensor.F16, h.cols, 16), h.random(tensor.F16, h.cols, 16)
		for name, f := range map[string]func(x *tensor.Tensor) *tensor.Tensor{
			"Softmax":     tensor.Softmax,
			"RMSNorm":     func(x *tensor.Tensor) *tensor.Tensor { return tensor.RMSNorm(x, weight, 1e-5) },
			"LayerNorm":   func(x *tensor.Tensor) *tensor.Tensor { return tensor.LayerNorm(x, weight, bias, 1e-5) },
			"Sum":         func(x *tensor.Tensor) *tensor.Tensor { return tensor.Sum(x, 1) },
			"Var":         func(x *tensor.Tensor) *tensor.Tensor { return tensor.Var(x, 1, 1) },
			"LogSumExp":   func(x *tensor.Tensor) *tensor.Tensor { return tensor.LogSumExp(x, 1) },
			"FusedUpdate": func(x *tensor.Tensor) *tensor.Tensor { return tensor.FusedUpdate(x, tensor.Update{V: v, U: u}) },
		} {
			each(name, func(x *tensor.Tensor) []*tensor.Tensor { return []*tensor.Tensor{f(x)} }, close)
		}
		each("AddRMSNorm", func(x *tensor.Tensor) []*tensor.Tensor {
			sum, out := tensor.AddRMSNorm(x, x, weight, 1e-5)
			return []*tensor.Tensor{sum, out}
		}, close)
		each("QuantizeRows", func(x *tensor.Tensor) []*tensor.Tensor {
			y := tensor.Convert(x, tensor.F32)
			defer y.Free()
			codes, scales := tensor.QuantizeRows(y)
			return []*tensor.Tensor{codes, scales}
		}, exact)
		h.turned(x, few)
		h.products(x, few)
		h.embedding(x, few)
		h.attention(x, few)
		if b.Name() != "ptx" || h.rows > 1<<10 {
			h.quantized(few)
		}
		if err := d.Stream().Synchronize(); err != nil {
			t.Fatal(err)
		}
		t.Logf("%d elements, %d operations", h.rows*h.cols, computed+7)
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

// repeated returns a matrix of these rows again and again, and the rows.
func (h *huge) repeated(few *tensor.Tensor) (all, _ *tensor.Tensor) {
	h.t.Helper()
	block := make([]byte, few.Bytes())
	if err := few.ReadBytes(block); err != nil {
		h.t.Fatal(err)
	}
	all = h.new(few.DType(), h.rows, h.cols)
	for lo := 0; lo < h.rows; lo += h.period {
		part := all.Slice(lo, min(lo+h.period, h.rows))
		if err := part.WriteBytes(block[:part.Bytes()]); err != nil {
			h.t.Fatal(err)
		}
	}
	return all, few
}

func (h *huge) indices(values []int32) *tensor.Tensor {
	h.t.Helper()
	ids := h.new(tensor.I32, len(values))
	if err := ids.WriteInt32s(values); err != nil {
		h.t.Fatal(err)
	}
	return ids
}

// blocks are the first rows of those repetitions that are looked at: all of few, else the first and the last ones, those around
// 2^30 and 2^31 elements, and one of 16 of the others.
func (h *huge) blocks() (first []int) {
	n := (h.rows + h.period - 1) / h.period
	for i := range n {
		block := int64(h.period) * int64(h.cols)
		near := func(at int64) bool { return int64(i)*block <= at && at <= int64(i+2)*block }
		if n < 100 || i < 2 || i >= n-2 || i%16 == 0 || near(1<<30) || near(1<<31) {
			first = append(first, i*h.period)
		}
	}
	return first
}

// sameBits holds rows of got against the rows of want that they repeat.
func (h *huge) sameBits(name string, got, want *tensor.Tensor) {
	h.t.Helper()
	expected := make([]byte, want.Bytes())
	if err := want.ReadBytes(expected); err != nil {
		h.t.Error(name, err)
		return
	}
	part := make([]byte, len(expected))
	for _, lo := range h.blocks() {
		rows := got.Slice(lo, min(lo+h.period, h.rows))
		if err := rows.ReadBytes(part[:rows.Bytes()]); err != nil {
			h.t.Error(name, err)
			return
		}
		if !bytes.Equal(part[:rows.Bytes()], expected[:rows.Bytes()]) {
			h.t.Errorf("%s: the rows from %d on, element %d, are not those of the small tensor", name, lo, lo*h.cols)
			return
		}
	}
}

// sameValues is sameBits but for rounding.
func (h *huge) sameValues(name string, got, want *tensor.Tensor) {
	h.t.Helper()
	w := want.Float32s()
	for _, lo := range h.blocks() {
		if !h.close(name, got.Slice(lo, min(lo+h.period, h.rows)).Float32s(), func(i int) float64 { return float64(w[i]) }, largest(w)) {
			return
		}
	}
}

// close compares sums, whose kernels differ with the size: float32 sums of cols terms of N(0, 1) in another order, and one
// rounding to F16, differ by less than 2^-10 of the largest.
func (h *huge) close(name string, got []float32, want func(i int) float64, largest float64) bool {
	h.t.Helper()
	for i, g := range got {
		if d := math.Abs(float64(g) - want(i)); !(d <= 0x1p-10*largest) {
			h.t.Errorf("%s: element %d is %g, want %g", name, i, g, want(i))
			return false
		}
	}
	return true
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
	ids := h.indices(picked)
	defer ids.Free()
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

// turned has a matrix of that many elements read and written by columns.
func (h *huge) turned(x, few *tensor.Tensor) {
	h.t.Helper()
	y := tensor.Copy(x.Transpose(0, 1))
	defer y.Free()
	want, row := few.Float32s(), make([]float32, h.rows)
	for _, column := range []int{0, 1, h.cols / 2, h.cols - 1} {
		if err := y.Slice(column, column+1).ReadFloat32s(row); err != nil {
			h.t.Fatal(err)
		}
		if !h.close("Transpose", row, func(i int) float64 { return float64(want[i%h.period*h.cols+column]) }, 0) {
			return
		}
	}
}

// attention is over a cache of that many elements. Each of its heads holds the same keys and values.
func (h *huge) attention(x, few *tensor.Tensor) {
	h.t.Helper()
	const dim = 128
	heads, capacity := h.rows/h.period, h.period*h.cols/dim
	for _, queries := range []int{1, 70} {
		q := h.random(tensor.F32, queries, heads, dim)
		over := func(x *tensor.Tensor, heads int) []float32 {
			cache := x.Slice(0, heads*h.period).Reshape(1, heads, capacity, dim)
			return tensor.Attention(q, cache, cache, tensor.AttentionOptions{}).Float32s()
		}
		want, got := over(few, 1), over(x, heads)
		h.close(fmt.Sprintf("Attention of %d queries", queries), got, func(i int) float64 { return float64(want[i]) }, largest(want))
		q.Free()
	}
}

// quantized has a weight matrix of that many elements in blocks, as a file has them and packed.
func (h *huge) quantized(few *tensor.Tensor) {
	h.t.Helper()
	for _, dtype := range []tensor.DType{tensor.Q4_K, tensor.Q8_0} {
		w, few := h.repeated(tensor.Quantize(few, dtype))
		for _, packed := range []bool{false, true} {
			if packed {
				if w.Pack() != nil || few.Pack() != nil {
					continue // a device that packs nothing
				}
			}
			for _, n := range []int{1, 20} {
				x := h.random(tensor.F32, n, h.cols)
				want := tensor.Linear(x, few, nil).Float32s()
				y := tensor.Linear(x, w, nil)
				h.close("Linear "+dtype.String(), y.Float32s(), func(i int) float64 {
					return float64(want[i/h.rows*h.period+i%h.rows%h.period])
				}, 16*largest(want)) // x is rounded to 8 bits or not, as many rows decide
				x.Free()
				y.Free()
			}
		}
		w.Free()
	}
}
