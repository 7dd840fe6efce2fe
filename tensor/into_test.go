package tensor_test

import (
	"math"
	"slices"
	"testing"

	"github.com/vibrant-ml/vibrant/gpu"
	"github.com/vibrant-ml/vibrant/internal/backend/kernel"
	"github.com/vibrant-ml/vibrant/tensor"
)

// TestResultsOverWhatIsThere writes each operation's result to a tensor that is there: in its own memory, in that of an operand where
// that is allowed, and in every second row of a larger one. Results are those of the plain forms, which other tests hold to numpy.
func TestResultsOverWhatIsThere(t *testing.T) {
	type T = tensor.Tensor
	eachBackend(t, func(t *testing.T, b kernel.Backend, d *gpu.Device) {
		on := func(x *T) *T {
			y, err := x.ToDevice(tensor.On(d))
			if err != nil {
				t.Fatal(err)
			}
			return y
		}
		x := on(tensor.FromSlice([]float32{3, -1, 4, 1, -5, 9, 2, -6, 5, 3, 5, 8}, 3, 4))
		y := on(tensor.FromSlice([]float32{2, 7, 1, 8, 2, 8, 1, 8, 2, 8, 4, 5}, 3, 4))
		i := on(tensor.FromInt32s([]int32{3, -1, 4, 1, -5, 9, 2, -6, 5, 3, 5, 8}, 3, 4))
		j := on(tensor.FromInt32s([]int32{2, 7, 1, 8, 2, 8, 1, 8, 2, 8, 4, 5}, 3, 4))
		truth := on(tensor.FromBools([]bool{true, false, true, true, false, false, true, false, true, true, true, false}, 3, 4))
		ids := on(tensor.FromInt32s([]int32{2, 0, 1, 2, 1, 1, 0, 0}, 2, 4))
		which := on(tensor.FromInt32s([]int32{2, 0, 2}))
		cases := []struct {
			name  string
			plain *T
			into  func(dst *T)
			over  *T // an operand that dst may be
		}{
			{"rem", tensor.Rem(i, j), func(dst *T) { tensor.RemInto(dst, i, j) }, i},
			{"eq", tensor.Eq(x, y), func(dst *T) { tensor.EqInto(dst, x, y) }, nil},
			{"ne", tensor.Ne(x, y), func(dst *T) { tensor.NeInto(dst, x, y) }, nil},
			{"lt", tensor.Lt(x, y), func(dst *T) { tensor.LtInto(dst, x, y) }, nil},
			{"le", tensor.Le(x, y), func(dst *T) { tensor.LeInto(dst, x, y) }, nil},
			{"gt", tensor.Gt(x, y), func(dst *T) { tensor.GtInto(dst, x, y) }, nil},
			{"ge", tensor.Ge(i, j), func(dst *T) { tensor.GeInto(dst, i, j) }, nil},
			{"and", tensor.And(i, j), func(dst *T) { tensor.AndInto(dst, i, j) }, j},
			{"or", tensor.Or(i, j), func(dst *T) { tensor.OrInto(dst, i, j) }, i},
			{"xor", tensor.Xor(i, j), func(dst *T) { tensor.XorInto(dst, i, j) }, i},
			{"not", tensor.Not(truth), func(dst *T) { tensor.NotInto(dst, truth) }, truth},
			{"where", tensor.Where(truth, x, y), func(dst *T) { tensor.WhereInto(dst, truth, x, y) }, y},
			{"cumsum", tensor.CumSum(x, 1), func(dst *T) { tensor.CumSumInto(dst, x, 1) }, x},
			{"cumsum of columns", tensor.CumSum(i, 0), func(dst *T) { tensor.CumSumInto(dst, i, 0) }, i},
			{"fill", tensor.Full(d.Stream(), 2.5, tensor.F32, 3, 4), func(dst *T) { tensor.Fill(dst, 2.5) }, x},
			{"mean", tensor.Mean(x, 0), func(dst *T) { tensor.MeanInto(dst, x, 0) }, nil},
			{"sum", tensor.Sum(i, 0), func(dst *T) { tensor.SumInto(dst, i, 0) }, nil},
			{"prod", tensor.Prod(x, 0), func(dst *T) { tensor.ProdInto(dst, x, 0) }, nil},
			{"max", tensor.Max(x, 0), func(dst *T) { tensor.MaxInto(dst, x, 0) }, nil},
			{"min", tensor.Min(x, 0), func(dst *T) { tensor.MinInto(dst, x, 0) }, nil},
			{"argmax", tensor.ArgmaxOver(x, 0), func(dst *T) { tensor.ArgmaxOverInto(dst, x, 0) }, nil},
			{"argmin", tensor.ArgminOver(x, 0), func(dst *T) { tensor.ArgminOverInto(dst, x, 0) }, nil},
			{"any", tensor.Any(truth, 0), func(dst *T) { tensor.AnyInto(dst, truth, 0) }, nil},
			{"all", tensor.All(truth, 0), func(dst *T) { tensor.AllInto(dst, truth, 0) }, nil},
			{"logsumexp", tensor.LogSumExp(x, 0), func(dst *T) { tensor.LogSumExpInto(dst, x, 0) }, nil},
			{"var", tensor.Var(x, 1, 0), func(dst *T) { tensor.VarInto(dst, x, 1, 0) }, nil},
			{"norm", tensor.Norm(x, math.Inf(1), 0), func(dst *T) { tensor.NormInto(dst, x, math.Inf(1), 0) }, nil},
			{"gather", tensor.Gather(x, ids, 0), func(dst *T) { tensor.GatherInto(dst, x, ids, 0) }, nil},
			{"index select", tensor.IndexSelect(x, which, 0), func(dst *T) { tensor.IndexSelectInto(dst, x, which, 0) }, nil},
		}
		values := func(x *T) []float32 { return tensor.Convert(x, tensor.F32).Float32s() }
		for _, c := range cases {
			want, shape := values(c.plain), c.plain.Shape()
			check := func(where string, dst *T) {
				c.into(dst)
				if got := values(dst); !slices.Equal(got, want) {
					t.Errorf("%s into %s: %v, want %v", c.name, where, got, want)
				}
			}
			own, err := tensor.New(d.Stream(), c.plain.DType(), shape...)
			if err != nil {
				t.Fatal(err)
			}
			check("its own memory", own)
			wide, err := tensor.New(d.Stream(), c.plain.DType(), append([]int{2 * shape[0]}, shape[1:]...)...)
			if err != nil {
				t.Fatal(err)
			}
			check("a view", wide.SliceAlong(0, 0, 2*shape[0], 2))
			if c.over != nil { // last: the operand is gone then
				before := tensor.Copy(c.over)
				check("an operand", c.over)
				tensor.CopyInto(c.over, before)
			}
		}
		if got, want := tensor.Std(x, 1).At(), math.Sqrt(tensor.Var(x, 1).At()); math.Abs(got-want) > 1e-6 {
			t.Errorf("std %v, want %v", got, want)
		}
		if got := truth.Bools(); !slices.Equal(got[:4], []bool{true, false, true, true}) {
			t.Errorf("bools %v", got)
		}
		if got := on(tensor.FromUint8s([]uint8{0, 200, 255})).Int32s(); !slices.Equal(got, []int32{0, 200, 255}) {
			t.Errorf("uint8s %v", got)
		}
	})
}

// TestResultsOverAPartOfAnOperand writes to memory of which an operand has a part: as if the operand had been copied before.
func TestResultsOverAPartOfAnOperand(t *testing.T) {
	type T = tensor.Tensor
	eachBackend(t, func(t *testing.T, b kernel.Backend, d *gpu.Device) {
		numbers := tensor.RandN(d.Stream(), 1, tensor.F32, 16, 8)
		for name, into := range map[string]func(dst, a *T){
			"add":        func(dst, a *T) { tensor.AddInto(dst, a, a) },
			"silu":       tensor.SiLUInto,
			"softmax":    tensor.SoftmaxInto,
			"rms norm":   func(dst, a *T) { tensor.RMSNormInto(dst, a, nil, 1e-5) },
			"layer norm": func(dst, a *T) { tensor.LayerNormInto(dst, a, nil, nil, 1e-5) },
			"copy":       tensor.CopyInto,
			"cumsum":     func(dst, a *T) { tensor.CumSumInto(dst, a, 1) },
			"glu":        func(dst, a *T) { tensor.GLUInto(dst, a, a, tensor.ActivationGELU) },
		} {
			x := tensor.Copy(numbers)
			want := tensor.Full(d.Stream(), 0, tensor.F32, 12, 8)
			into(want, numbers.Slice(0, 12))
			into(x.Slice(2, 14), x.Slice(0, 12))
			if got := x.Slice(2, 14).Float32s(); !slices.Equal(got, want.Float32s()) {
				t.Errorf("%s: %v\nwant %v", name, got, want.Float32s())
			}
		}
	})
}

func TestMisuseIsNamed(t *testing.T) {
	s := gpu.CPU().Stream()
	x := tensor.Full(s, 1, tensor.F32, 2, 3)
	for want, f := range map[string]func(){
		"full: 300 is no U8":                  func() { tensor.Full(s, 300, tensor.U8, 2) },
		"fill: -1 is no U8":                   func() { tensor.Fill(tensor.Full(s, 0, tensor.U8, 2), -1) },
		"set: 2 is no BOOL":                   func() { tensor.FromBools([]bool{true}).Set(2, 0) },
		"dim: dimension 5 of (2,3)":           func() { x.Dim(5) },
		"glu: (2,3) and (3,2): shapes differ": func() { tensor.GLU(x, x.Reshape(3, 2), tensor.ActivationSiLU) },
		"copy: (2,3) to (3,3): dimension 0":   func() { tensor.CopyInto(tensor.Full(s, 0, tensor.F32, 3, 3), x) },
		"fill: into (2,2) of strides [0 1], whose elements share memory": func() { tensor.Fill(tensor.Full(s, 0, tensor.F32, 2).BroadcastTo(2, 2), 1) },
		"matmul of batches: (2) and (3): shapes differ, and neither 2 nor 3 is 1": func() {
			tensor.MatMulWith(tensor.Full(s, 0, tensor.F32, 2, 1, 1), tensor.Full(s, 0, tensor.F32, 3, 1, 1), tensor.MatMulOptions{})
		},
	} {
		if err := tensor.Try(f); err == nil || err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
	}
}
