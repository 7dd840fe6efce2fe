package tensor_test

import (
	"cmp"
	"encoding/json"
	"errors"
	"math"
	"os"
	"slices"
	"testing"

	"github.com/vibrant-ml/vibrant/gpu"
	"github.com/vibrant-ml/vibrant/internal/backend/kernel"
	"github.com/vibrant-ml/vibrant/tensor"
)

// The golden file is numpy's: testdata/sort.py.
func TestSortsAreNumpys(t *testing.T) {
	text, err := os.ReadFile("testdata/sort.json")
	if err != nil {
		t.Fatal(err)
	}
	var golden []struct {
		Name          string
		Shape         []int
		Input, Values []*float32
		Dim           int
		Descending    bool
		Indices       []int32
	}
	if err := json.Unmarshal(text, &golden); err != nil || len(golden) == 0 {
		t.Fatal(err, len(golden))
	}
	floats := func(in []*float32) []float32 {
		out := make([]float32, len(in))
		for i, v := range in {
			switch {
			case v == nil:
				out[i] = float32(math.NaN())
			case math.Abs(float64(*v)) == math.MaxFloat32:
				out[i] = float32(math.Inf(int(math.Copysign(1, float64(*v)))))
			default:
				out[i] = *v
			}
		}
		return out
	}
	same := func(got, want []float32) bool {
		return slices.EqualFunc(got, want, func(a, b float32) bool { return a == b || a != a && b != b })
	}
	eachBackend(t, func(t *testing.T, b kernel.Backend, d *gpu.Device) {
		if b.Name() == "ptx" {
			t.Skip("no kernel for sorts: lines are sorted on the CPU")
		}
		for _, c := range golden {
			a := on(t, d, tensor.FromSlice(floats(c.Input), c.Shape...))
			values, indices := tensor.SortWithIndices(a, c.Dim, c.Descending)
			if !same(values.Float32s(), floats(c.Values)) || !slices.Equal(indices.Int32s(), c.Indices) {
				t.Errorf("%s along %d, descending %v: %v by %v", c.Name, c.Dim, c.Descending, values, indices)
			}
			negative := c.Dim - len(c.Shape)
			if got := tensor.Sort(a, negative, c.Descending); !same(got.Float32s(), floats(c.Values)) {
				t.Errorf("%s: Sort along %d is %v", c.Name, negative, got)
			}
			if got := tensor.Gather(a, tensor.Argsort(a, c.Dim, c.Descending), c.Dim); !same(got.Float32s(), floats(c.Values)) {
				t.Errorf("%s: elements gathered by Argsort along %d are %v", c.Name, c.Dim, got)
			}
			for _, k := range []int{0, 1, c.Shape[c.Dim]} {
				top, at := tensor.TopKOver(a, k, c.Dim, c.Descending)
				if !same(top.Float32s(), values.SliceAlong(c.Dim, 0, k, 1).Float32s()) || !slices.Equal(at.Int32s(), tensor.Copy(indices.SliceAlong(c.Dim, 0, k, 1)).Int32s()) {
					t.Errorf("%s: the first %d along %d, descending %v, are %v by %v", c.Name, k, c.Dim, c.Descending, top, at)
				}
			}
			// Into and from views with gaps.
			wide := tensor.Stack(len(c.Shape), a, a)
			view := wide.Select(len(c.Shape), 1)
			out := tensor.Full(d.Stream(), -9, tensor.F32, append(c.Shape, 2)...)
			tensor.SortInto(out.Select(len(c.Shape), 0), nil, view, c.Dim, c.Descending)
			if !same(tensor.Copy(out.Select(len(c.Shape), 0)).Float32s(), floats(c.Values)) || slices.ContainsFunc(out.Select(len(c.Shape), 1).Float32s(), func(v float32) bool { return v != -9 }) {
				t.Errorf("%s along %d: into a view: %v", c.Name, c.Dim, out)
			}
		}
	})
}

// Lines of each length that a backend sorts in another way.
func TestSortsOfLongLinesKeepBitsAndPutNaNLast(t *testing.T) {
	special := []float32{0, float32(math.Copysign(0, -1)), float32(math.NaN()), math.Float32frombits(0xffc12000), float32(math.Inf(1)), float32(math.Inf(-1)), 1, -1, 6e-8, -6e-8}
	eachBackend(t, func(t *testing.T, b kernel.Backend, d *gpu.Device) {
		if b.Name() == "ptx" {
			t.Skip("no kernel for sorts: lines are sorted on the CPU")
		}
		for _, n := range []int{300, 600, 5000} {
			values := make([]float32, n)
			for i := range values {
				values[i] = special[i*i%97%len(special)]
			}
			for _, dtype := range []tensor.DType{tensor.F32, tensor.F16, tensor.BF16} {
				a := on(t, d, tensor.Convert(tensor.FromSlice(values, n), dtype))
				bits, x := stored(t, a), tensor.Convert(a, tensor.F32).Float32s()
				for _, descending := range []bool{false, true} {
					order := make([]int32, n)
					for i := range order {
						order[i] = int32(i)
					}
					slices.SortStableFunc(order, func(i, j int32) int {
						c := cmp.Compare(x[i], x[j])
						if x[i] != x[i] || x[j] != x[j] {
							c = -c // cmp.Compare has NaN first
						}
						if descending {
							return -c
						}
						return c
					})
					sorted, indices := tensor.SortWithIndices(a, 0, descending)
					if !slices.Equal(indices.Int32s(), order) {
						t.Fatalf("%v of %v, descending %v: places are not those of a stable order", n, dtype, descending)
					}
					size := len(bits) / n
					for i, got := range slices.Collect(slices.Chunk(stored(t, sorted), size)) {
						if from := int(order[i]) * size; !slices.Equal(got, bits[from:from+size]) {
							t.Fatalf("%v of %v, descending %v: number %d is % x and was % x", n, dtype, descending, i, got, bits[from:from+size])
						}
					}
				}
			}
		}
	})
}

func TestSortRefusesWhatDoesNotFit(t *testing.T) {
	a := tensor.Zeros(3, 4)
	for name, f := range map[string]func(){
		"dimension":     func() { tensor.Sort(a, 2, false) },
		"more than all": func() { tensor.TopKOver(a, 5, 1, true) },
		"negative":      func() { tensor.TopKOver(a, -1, 1, true) },
		"nothing asked": func() { tensor.SortInto(nil, nil, a, 0, false) },
		"indices' type": func() { tensor.SortInto(nil, tensor.Zeros(3, 4), a, 0, false) },
		"values' shape": func() { tensor.SortInto(tensor.Zeros(4, 3), nil, a, 0, false) },
		"shapes differ": func() { tensor.SortInto(tensor.Zeros(3, 2), tensor.FromInt32s(make([]int32, 3), 3, 1), a, 1, false) },
		"own memory":    func() { tensor.SortInto(a, nil, a, 0, false) },
		"memory of both": func() {
			b := tensor.FromInt32s(make([]int32, 4))
			tensor.SortInto(b, b, tensor.FromInt32s(make([]int32, 4)), 0, false)
		},
	} {
		var shape *tensor.ShapeError
		if err := tensor.Try(f); !errors.As(err, &shape) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
