package tensor_test

import (
	"encoding/json"
	"errors"
	"math"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/vibrant-ml/vibrant/gpu"
	"github.com/vibrant-ml/vibrant/internal/backend/fake"
	"github.com/vibrant-ml/vibrant/internal/backend/kernel"
	"github.com/vibrant-ml/vibrant/tensor"
)

// arange returns 0, 1, ... of a shape on a device.
func arange(t *testing.T, d *gpu.Device, shape ...int) *tensor.Tensor {
	t.Helper()
	n := 1
	for _, s := range shape {
		n *= s
	}
	values := make([]float32, n)
	for i := range values {
		values[i] = float32(i)
	}
	return on(t, d, tensor.FromSlice(values, shape...))
}

func TestEmptyViewsPointIntoTheirMemory(t *testing.T) {
	eachBackend(t, func(t *testing.T, b kernel.Backend, d *gpu.Device) {
		x, err := tensor.FromMemory(d, tensor.F32, make([]byte, 8192), nil, 64, 32)
		if err != nil {
			t.Fatal(err)
		}
		defer x.Free()
		for name, end := range map[string]*tensor.Tensor{
			"slice": x.Slice(64, 64), "columns": x.SliceAlong(1, 32, 32, 1), "of a view": x.T().Slice(32, 32),
		} {
			if end.Pointer() != x.Pointer() {
				t.Errorf("%s at the end: %p, want an address of the memory from %p on", name, end.Pointer(), x.Pointer())
			}
			sum := tensor.Add(end, end) // the race detector's build refuses a pointer behind the end
			if sum.Len() != 0 {
				t.Errorf("%s: a sum of %v", name, sum.Shape())
			}
			sum.Free()
		}
	})
}

// The golden file is numpy's: testdata/golden.py.
func TestViewsAndReductionsAreNumpys(t *testing.T) {
	text, err := os.ReadFile("testdata/numpy.json")
	if err != nil {
		t.Fatal(err)
	}
	golden := map[string]struct {
		Shape  []int
		Values []*float32
	}{}
	if err := json.Unmarshal(text, &golden); err != nil {
		t.Fatal(err)
	}
	eachBackend(t, func(t *testing.T, b kernel.Backend, d *gpu.Device) {
		x := arange(t, d, 2, 3, 4)
		row := on(t, d, tensor.FromSlice([]float32{1, 10, 100, 1000}))
		column := on(t, d, tensor.FromSlice([]float32{1, 2, 3}, 3, 1))
		nan, inf := float32(math.NaN()), float32(math.Inf(1))
		odd := on(t, d, tensor.FromSlice([]float32{1, nan, 3, inf, -inf, 2, nan, 5, nan, -1, -1, -1}, 4, 3))
		cases := map[string]func() *tensor.Tensor{
			"transpose":          func() *tensor.Tensor { return x.T() },
			"permute":            func() *tensor.Tensor { return x.Permute(2, 0, 1) },
			"slice along":        func() *tensor.Tensor { return x.SliceAlong(-1, 1, 4, 2) },
			"slice of transpose": func() *tensor.Tensor { return x.Permute(2, 1, 0).Slice(1, 3) },
			"select":             func() *tensor.Tensor { return x.Select(1, 1) },
			"squeeze":            func() *tensor.Tensor { return x.SliceAlong(1, 1, 2, 1).Squeeze(1) },
			"unsqueeze":          func() *tensor.Tensor { return x.Unsqueeze(1) },
			"broadcast":          func() *tensor.Tensor { return column.BroadcastTo(2, -1, 2) },
			"reshape view":       func() *tensor.Tensor { return x.SliceAlong(2, 0, 4, 2).Reshape(2, 6) },
			"reshape copy":       func() *tensor.Tensor { return x.T().Reshape(4, -1) },
			"reshape split":      func() *tensor.Tensor { return x.T().SliceAlong(1, 0, 4, 2).Reshape(2, 2, 3, 1) },
			"add row":            func() *tensor.Tensor { return tensor.Add(x, row) },
			"add column":         func() *tensor.Tensor { return tensor.Add(x, column) },
			"outer":              func() *tensor.Tensor { return tensor.Mul(column, row) },
			"sub transposed":     func() *tensor.Tensor { return tensor.Sub(x, tensor.MulScalar(arange(t, d, 2, 4, 3).T(), 3)) },
			"minimum nan": func() *tensor.Tensor {
				return tensor.Minimum(on(t, d, tensor.FromSlice([]float32{1, nan, -2, nan})), on(t, d, tensor.FromSlice([]float32{nan, 1, -3, nan})))
			},
			"sum 02":           func() *tensor.Tensor { return tensor.Sum(x, 0, 2) },
			"sum of transpose": func() *tensor.Tensor { return tensor.Sum(x.Permute(2, 0, 1), 1) },
			"mean":             func() *tensor.Tensor { return tensor.Mean(x, -1) },
			"prod":             func() *tensor.Tensor { return tensor.Prod(tensor.MulScalar(x.SliceAlong(2, 1, 3, 1), 0.125), 0, 2) },
			"var":              func() *tensor.Tensor { return tensor.Var(x, 1, 0, 2) },
			"norm":             func() *tensor.Tensor { return tensor.Norm(x, 2, 1) },
			"logsumexp":        func() *tensor.Tensor { return tensor.LogSumExp(x, 2) },
			"max nan":          func() *tensor.Tensor { return tensor.Max(odd, 1) },
			"min nan":          func() *tensor.Tensor { return tensor.Min(odd, 1) },
			"argmax nan":       func() *tensor.Tensor { return tensor.Convert(tensor.ArgmaxOver(odd, 1), tensor.F32) },
			"argmin nan":       func() *tensor.Tensor { return tensor.Convert(tensor.ArgminOver(odd, 1), tensor.F32) },
			"sum nan":          func() *tensor.Tensor { return tensor.Sum(odd, 0) },
			"argmax ties": func() *tensor.Tensor {
				return tensor.Convert(tensor.ArgmaxOver(on(t, d, tensor.FromSlice([]float32{2, 7, 7, 3, 3, 3}, 2, 3)), 1), tensor.F32)
			},
			"any": func() *tensor.Tensor {
				return tensor.Convert(tensor.Any(tensor.Gt(x, tensor.Full(d.Stream(), 22, tensor.F32)), 0, 1), tensor.F32)
			},
			"all": func() *tensor.Tensor {
				return tensor.Convert(tensor.All(tensor.Lt(x, tensor.Full(d.Stream(), 12, tensor.F32)), 1, 2), tensor.F32)
			},
			"empty sum":  func() *tensor.Tensor { return tensor.Sum(tensor.Full(d.Stream(), 0, tensor.F32, 0, 3), 0) },
			"empty prod": func() *tensor.Tensor { return tensor.Prod(tensor.Full(d.Stream(), 0, tensor.F32, 0, 3), 0) },
			"cumsum":     func() *tensor.Tensor { return tensor.CumSum(x, 1) },
			"take":       func() *tensor.Tensor { return tensor.IndexSelect(x, on(t, d, tensor.FromInt32s([]int32{2, 0, 2})), 1) },
			"take along": func() *tensor.Tensor {
				return tensor.Gather(x, on(t, d, tensor.FromInt32s([]int32{3, 0, 1, 1}, 2, 1, 2)).BroadcastTo(2, 3, 2), 2)
			},
			"eye":    func() *tensor.Tensor { return tensor.Eye(d.Stream(), tensor.F32, 3, 4) },
			"tril":   func() *tensor.Tensor { return tensor.Tril(x, 1) },
			"triu":   func() *tensor.Tensor { return tensor.Triu(x, -1) },
			"arange": func() *tensor.Tensor { return tensor.Arange(d.Stream(), -1, 0.5, 5, tensor.F32) },
			"one hot": func() *tensor.Tensor {
				return tensor.OneHot(on(t, d, tensor.FromInt32s([]int32{3, 0, 1})), 4, tensor.F32)
			},
			"concat":            func() *tensor.Tensor { return tensor.Concat(1, x, tensor.MulScalar(x.SliceAlong(1, 0, 1, 1), 2)) },
			"stack":             func() *tensor.Tensor { return tensor.Stack(1, row, tensor.MulScalar(row, 2)) },
			"pad":               func() *tensor.Tensor { return tensor.Pad(column, 1, 1, 2, 9) },
			"tile":              func() *tensor.Tensor { return tensor.Repeat(column.T(), 2, 3) },
			"matmul transposed": func() *tensor.Tensor { return tensor.MatMul(x.Select(0, 0).T(), x.Select(0, 1)) },
			"matmul sliced": func() *tensor.Tensor {
				return tensor.MatMul(x.Select(0, 0).SliceAlong(1, 1, 3, 1), x.Select(0, 1).Slice(0, 2))
			},
			"batch transposed": func() *tensor.Tensor { return tensor.MatMulWith(x, x.T(), tensor.MatMulOptions{}) },
			"batches broadcast": func() *tensor.Tensor {
				return tensor.MatMulWith(x.Unsqueeze(1), x.T().Unsqueeze(0), tensor.MatMulOptions{})
			},
			"batch of one": func() *tensor.Tensor {
				return tensor.MatMulWith(x, x.Slice(0, 1).SliceAlong(1, 0, 1, 1).T(), tensor.MatMulOptions{})
			},
			"matrix times vector": func() *tensor.Tensor { return tensor.MatMul(x, row) },
			"dot":                 func() *tensor.Tensor { return tensor.MatMul(row, row) },
			"row written to each": func() *tensor.Tensor { dst := tensor.Copy(x); tensor.CopyInto(dst, row); return dst },
			"row added into each": func() *tensor.Tensor { dst := tensor.Copy(x); tensor.AddInto(dst, row, row); return dst },
			"column written to a view": func() *tensor.Tensor {
				dst := tensor.Full(d.Stream(), 0, tensor.F32, 3, 3)
				tensor.CopyInto(dst.SliceAlong(1, 1, 2, 1), column)
				return dst
			},
			"sum of slices": func() *tensor.Tensor {
				return tensor.Add(x.Select(0, 0).SliceAlong(1, 0, 2, 1), x.Select(0, 1).SliceAlong(1, 2, 4, 1))
			},
		}
		if len(cases) != len(golden) {
			t.Errorf("%d cases, %d in the golden file", len(cases), len(golden))
		}
		for name, f := range cases {
			want, got := golden[name], f()
			if !slices.Equal(got.Shape(), want.Shape) {
				t.Errorf("%s: %v, want %v", name, got.Shape(), want.Shape)
				continue
			}
			for i, v := range got.Float32s() {
				w := want.Values[i]
				if math.IsInf(float64(v), 0) && w != nil && *w == float32(math.Copysign(math.MaxFloat32, float64(v))) {
					continue
				}
				if w == nil && v == v || w != nil && !(math.Abs(float64(v-*w)) <= 2e-6*math.Abs(float64(*w))) {
					t.Errorf("%s: element %d is %v", name, i, v)
				}
			}
		}
	})
}

// Operations that know no strides copy a view; results that go into one land in its places and nowhere else.
func TestAnyOperationTakesAndWritesViews(t *testing.T) {
	eachBackend(t, func(t *testing.T, b kernel.Backend, d *gpu.Device) {
		x := arange(t, d, 4, 6)
		if got, want := tensor.Softmax(x.T()).Float32s(), tensor.Softmax(x.T().ToContiguous()).Float32s(); !slices.Equal(got, want) {
			t.Errorf("softmax of a view: %v, want %v", got, want)
		}
		y := arange(t, d, 4, 6)
		tensor.MulScalarInto(y.SliceAlong(1, 1, 3, 1), x.SliceAlong(1, 1, 3, 1), -1)
		tensor.SoftmaxInto(y.SliceAlong(1, 4, 6, 1), tensor.MulScalar(x.SliceAlong(1, 4, 6, 1), 0))
		for i, v := range y.Float32s() {
			want := float32(i)
			switch i % 6 {
			case 1, 2:
				want = -want
			case 4, 5:
				want = 0.5
			}
			if v != want {
				t.Fatalf("element %d is %v, want %v", i, v, want)
			}
		}
		y.T().Slice(0, 1).Zero()
		if err := y.Select(1, 5).WriteFloat32s([]float32{9, 8, 7, 6}); err != nil {
			t.Fatal(err)
		}
		if got := y.Slice(1, 2).Float32s(); got[0] != 0 || got[5] != 8 || got[1] != -7 {
			t.Errorf("row 1 is %v", got)
		}
		// An output that overlaps an operand elsewhere than at its own place.
		z := arange(t, d, 3, 3)
		tensor.AddInto(z, z, z.T())
		if got, want := z.Float32s(), []float32{0, 4, 8, 4, 8, 12, 8, 12, 16}; !slices.Equal(got, want) {
			t.Errorf("x + x^T in place: %v, want %v", got, want)
		}
		if z = z.Slice(0, 2); tensor.Try(func() { tensor.AddInto(z, z, z.T()) }) == nil {
			t.Error("shapes that do not broadcast pass")
		}
	})
}

func TestWholeNumbersWrapAndConvert(t *testing.T) {
	eachBackend(t, func(t *testing.T, b kernel.Backend, d *gpu.Device) {
		a := on(t, d, tensor.FromInt32s([]int32{math.MaxInt32, math.MinInt32, 7, -7, 5}))
		c := on(t, d, tensor.FromInt32s([]int32{1, -1, 2, 2, 0}))
		for name, x := range map[string]struct {
			got  *tensor.Tensor
			want []int32
		}{
			"add": {tensor.Add(a, c), []int32{math.MinInt32, math.MaxInt32, 9, -5, 5}},
			"div": {tensor.Div(a, c), []int32{math.MaxInt32, math.MinInt32, 3, -3, 0}},
			"rem": {tensor.Rem(a, c), []int32{0, 0, 1, -1, 0}},
			"float": {tensor.Convert(on(t, d, tensor.FromSlice([]float32{3e9, -3e9, float32(math.NaN()), -2.9, 2.5})), tensor.I32),
				[]int32{math.MaxInt32, math.MinInt32, 0, -2, 2}},
			"narrow": {tensor.Convert(tensor.Convert(on(t, d, tensor.FromInt32s([]int32{128, -129, 256, 255, -1})), tensor.I8), tensor.I32),
				[]int32{-128, 127, 0, -1, -1}},
		} {
			if got := x.got.Int32s(); !slices.Equal(got, x.want) {
				t.Errorf("%s: %v, want %v", name, got, x.want)
			}
		}
	})
}

func TestExpressionsSayWhatIsWrong(t *testing.T) {
	f, i := tensor.FromSlice([]float32{1, 2}), tensor.FromInt32s([]int32{1, 2})
	for want, call := range map[string]func(){
		"types differ":        func() { tensor.Add(f, i) },
		"(2) and (3)":         func() { tensor.Sub(f, tensor.FromSlice([]float32{1, 2, 3})) },
		"want F32":            func() { tensor.Exp(i) },
		"want BOOL":           func() { tensor.Where(f, f, f) },
		"want whole numbers":  func() { tensor.Rem(f, f) },
		"more than 48 steps":  func() { tensor.Fuse(func(x tensor.Expr) tensor.Expr { return longExpression(x) }).Call(f) },
		"1 operands":          func() { tensor.Fuse(func(x, y tensor.Expr) tensor.Expr { return x }).Call(f) },
		"two expressions":     func() { tensor.Fuse(foreign()).Call(f) },
		"dimension 2":         func() { f.SliceAlong(2, 0, 1, 1) },
		"want each dimension": func() { f.Permute(0, 0) },
		"neither":             func() { tensor.Mul(tensor.Zeros(2, 3), tensor.Zeros(2, 2)) },
	} {
		var misuse *tensor.ShapeError
		if err := tensor.Try(call); !errors.As(err, &misuse) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want it to say %q", err, want)
		}
	}
}

func longExpression(x tensor.Expr) tensor.Expr {
	for range 30 {
		x = x.AddScalar(1)
	}
	return x
}

// foreign returns an expression that takes a value of another one.
func foreign() func(tensor.Expr) tensor.Expr {
	var kept tensor.Expr
	tensor.Fuse(func(x tensor.Expr) tensor.Expr { kept = x; return x }).Call(tensor.Zeros(1))
	return func(x tensor.Expr) tensor.Expr { return x.Add(kept) }
}

// The words are those of Random123's known answers (kat_vectors, philox4x32 10) for the counter and key of zeros; the numbers depend on
// the seed and their place alone. Numbers with gaps between them are the same ones.
func TestRandomNumbersArePhiloxs(t *testing.T) {
	known := []uint32{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}
	var first, normal []float32
	eachBackend(t, func(t *testing.T, b kernel.Backend, d *gpu.Device) {
		for _, kind := range []struct {
			dtype tensor.DType
			bits  int
		}{{tensor.F32, 24}, {tensor.F16, 11}, {tensor.BF16, 8}} {
			x := tensor.Convert(tensor.Rand(d.Stream(), 0, kind.dtype, 101, 99), tensor.F32)
			values := x.Float32s()
			for i, word := range known {
				if want := float32(math.Ldexp(float64(word>>(32-kind.bits)), -kind.bits)); values[i] != want {
					t.Errorf("%v: number %d is %v, want %v", kind.dtype, i, values[i], want)
				}
			}
			if most := slices.Max(values); most >= 1 {
				t.Errorf("%v: %v is not below 1", kind.dtype, most)
			}
			if kind.dtype != tensor.F32 {
				continue
			}
			if first == nil {
				first = values
			} else if !slices.Equal(first, values) {
				t.Error("numbers differ between backends")
			}
		}
		n := tensor.RandN(d.Stream(), 7, tensor.F32, 200, 500)
		values := n.Float32s()
		if normal == nil {
			normal = values // of the backend in Go, whose logarithm and cosine are float64's
		}
		for i, v := range values {
			if diff := math.Abs(float64(v - normal[i])); !(diff <= 2e-6) {
				t.Fatalf("normal number %d is %v, want %v", i, v, normal[i])
			}
		}
		if m, v := float64(tensor.Mean(n).Float32s()[0]), float64(tensor.Var(n, 1).Float32s()[0]); math.Abs(m) > 0.01 || math.Abs(v-1) > 0.02 {
			t.Errorf("normal numbers of mean %v, variance %v", m, v)
		}
	})
	u, v := float64(known[0]>>8)*0x1p-24, float64(known[1]>>8)*0x1p-24
	radius := math.Sqrt(-2 * math.Log1p(-u))
	pair := tensor.RandN(gpu.CPU().Stream(), 0, tensor.F32, 2).Float32s()
	if math.Abs(float64(pair[0])-radius*math.Cos(2*math.Pi*v)) > 1e-6 || math.Abs(float64(pair[1])-radius*math.Sin(2*math.Pi*v)) > 1e-6 {
		t.Errorf("the first normal numbers are %v", pair)
	}
}

func TestElementsAreReadAndSet(t *testing.T) {
	x := tensor.FromInt32s([]int32{1, 2, 3, 4, 5, 6}, 2, 3)
	x.T().Set(-7, 2, 0)
	if got := x.At(0, 2); got != -7 || x.At(1, 0) != 4 {
		t.Errorf("%v", x.Int32s())
	}
	base := tensor.Zeros(3, 2)
	tensor.ScatterAddInto(base, tensor.FromSlice([]float32{1, 2, 3, 4}, 2, 2), tensor.FromInt32s([]int32{2, 0, 2, 1}, 2, 2), 0)
	if got := base.Float32s(); !slices.Equal(got, []float32{0, 2, 0, 4, 4, 0}) {
		t.Errorf("scatter add: %v", got)
	}
	if err := tensor.Try(func() { tensor.Gather(base, tensor.FromInt32s([]int32{3, 0}, 1, 2), 0) }); err == nil {
		t.Error("an id outside passes on the CPU")
	}
}

// TestViewsWhereADeviceHasNoKernelOfStrides computes on the CPU what the device cannot, and keeps the elements between those of a view.
func TestViewsWhereADeviceHasNoKernelOfStrides(t *testing.T) {
	b := fake.New(fake.Config{Devices: 1, Memory: 1 << 20, Lacks: []string{"Map", "Reduce", "Index", "Sort"}})
	d, err := gpu.OpenBackend(b, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	check := func(name string, x *tensor.Tensor, want ...float32) {
		t.Helper()
		if got := x.Float32s(); !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
	x := on(t, d, tensor.FromSlice([]float32{0, 1, 2, 3, 4, 5}, 2, 3))
	check("a transposed one", x.T(), 0, 3, 1, 4, 2, 5)
	check("a copy of it", tensor.Copy(x.T()), 0, 3, 1, 4, 2, 5)
	check("rows", x.SliceAlong(1, 0, 3, 2), 0, 2, 3, 5)
	check("a sum with a row", tensor.Add(x.T(), on(t, d, tensor.FromSlice([]float32{10, 20}))), 10, 23, 11, 24, 12, 25)
	check("sums of columns", tensor.Sum(x.T(), 1), 3, 5, 7)
	tensor.CopyInto(x.SliceAlong(1, 1, 2, 1), on(t, d, tensor.FromSlice([]float32{-1, -4}, 2, 1)))
	check("a column that was written", x, 0, -1, 2, 3, -4, 5)
	even, odd := x.SliceAlong(1, 0, 3, 2), x.SliceAlong(1, 1, 2, 1)
	tensor.AddInto(even, even, odd)
	check("columns that others were added to", x, -1, -1, 1, -1, -4, 1)
	d.SetStrict(true)
	if err := tensor.Try(func() { tensor.Copy(x.T()) }); !errors.Is(err, gpu.ErrUnsupported) {
		t.Errorf("a strict device: %v", err)
	}
}

// TestTransposedViewsConvert copies transposed views to types of other sizes and kinds, at sizes beyond a tile of the copy.
func TestTransposedViewsConvert(t *testing.T) {
	eachBackend(t, func(t *testing.T, b kernel.Backend, d *gpu.Device) {
		const rows, cols = 37, 19
		values := make([]float32, rows*cols)
		for i := range values {
			values[i] = float32(i%200 + 1)
		}
		x, err := tensor.New(d.Stream(), tensor.F32, rows, cols)
		if err == nil {
			err = x.WriteFloat32s(values)
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, dtype := range []tensor.DType{tensor.F32, tensor.F16, tensor.BF16, tensor.I32, tensor.U8} {
			got := tensor.Convert(tensor.Convert(x.T(), dtype), tensor.F32).Float32s()
			for i := range got {
				if want := values[i%rows*cols+i/rows]; got[i] != want {
					t.Fatalf("%v: element %d is %v, want %v", dtype, i, got[i], want)
				}
			}
		}
	})
}

// TestLongStepsTakeOneElement slices by steps beyond the dimension, whose products with sizes and strides no int holds.
func TestLongStepsTakeOneElement(t *testing.T) {
	x := tensor.FromSlice([]float32{0, 1, 2, 3, 4, 5}, 2, 3)
	for _, step := range []int{3, 4, math.MaxInt} {
		for dim, want := range map[int][]float32{0: {0, 1, 2}, 1: {0, 3}} {
			if got := x.SliceAlong(dim, 0, x.Shape()[dim], step).Float32s(); !slices.Equal(got, want) {
				t.Errorf("dimension %d by %d: %v, want %v", dim, step, got, want)
			}
		}
	}
	if got := x.SliceAlong(1, 1, 1, math.MaxInt).Shape(); !slices.Equal(got, []int{2, 0}) {
		t.Errorf("an empty slice has the shape %v", got)
	}
}
