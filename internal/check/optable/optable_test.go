package optable

import (
	"context"
	"encoding/json"
	"math"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/vibrant-ml/vibrant/gpu"
	"github.com/vibrant-ml/vibrant/internal/backend/kernel"
	"github.com/vibrant-ml/vibrant/internal/backend/purego"
	"github.com/vibrant-ml/vibrant/tensor"
)

func TestComparisonsFailClosed(t *testing.T) {
	nan, inf := math.NaN(), math.Inf(1)
	rel, rms := Tolerance{Rel: 1e-3}, Tolerance{RMS: 1e-2}
	for _, c := range []struct {
		name      string
		got, want []float64
		tol       Tolerance
		ok        bool
	}{
		{"equal", []float64{1, -2, 0}, []float64{1, -2, 0}, rel, true},
		{"near", []float64{1.0005}, []float64{1}, rel, true},
		{"far", []float64{1, 1.002}, []float64{1, 1}, rel, false},
		{"zero wants zero", []float64{1e-9}, []float64{0}, rel, false},
		{"NaN", []float64{nan}, []float64{1}, rel, false},
		{"NaN in RMS", []float64{1, nan}, []float64{1, 1}, rms, false},
		{"number for NaN", []float64{1}, []float64{nan}, rel, false},
		{"NaN for NaN", []float64{nan}, []float64{nan}, rel, true},
		{"infinite", []float64{inf}, []float64{1}, rel, false},
		{"infinite in RMS", []float64{inf}, []float64{1}, rms, false},
		{"opposite infinity", []float64{-inf}, []float64{inf}, rel, false},
		{"same infinity", []float64{inf}, []float64{inf}, rel, true},
		{"missing", []float64{1}, []float64{1, 2}, rel, false},
		{"RMS near", []float64{1.005, 2}, []float64{1, 2}, rms, true},
		{"RMS far", []float64{1.1, 2}, []float64{1, 2}, rms, false},
	} {
		if _, err := compare(c.got, Want{Values: c.want}, c.tol); (err == nil) != c.ok {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

func TestTheTableFindsWrongKernels(t *testing.T) {
	d, err := gpu.OpenBackend(purego.Backend(), 0)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	for _, op := range Table() {
		broken := *op
		broken.Run = func(out, in []*tensor.Tensor, c Case) {
			op.Run(out, in, c)
			last := out[len(out)-1]
			raw := make([]byte, last.Bytes())
			if err := last.ReadBytes(raw); err != nil {
				t.Fatal(err)
			}
			raw[len(raw)-1] = raw[len(raw)-1]&0x80 | 0x60 // a float of a large exponent: one that is small may be lost among others
			if err := last.WriteBytes(raw); err != nil {
				t.Fatal(err)
			}
		}
		tried := 0
		for _, c := range op.Cases {
			outputs := op.Outputs(c)
			if c.Large || product(outputs[len(outputs)-1].Shape) == 0 || product(c.Dims) > 1<<16 || tried == 3 {
				continue
			}
			tried++
			if _, err := broken.Check(d, c, 1); err == nil {
				t.Errorf("%s/%s: one wrong element passed", op.Name, c.Name())
			}
		}
		if tried == 0 {
			t.Errorf("%s: no case", op.Name)
		}
	}
}

// TestTheTableRunsEveryKernel runs the small cases of the table and holds the kernels that were called to those of the catalogue.
func TestTheTableRunsEveryKernel(t *testing.T) {
	d, err := gpu.OpenBackend(purego.Backend(), 0, gpu.WithProfiling())
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	for _, op := range Table() {
		tried := 0
		for i, c := range op.Cases {
			if c.Large || product(c.Dims) > 1<<14 || tried == 3 {
				continue
			}
			if _, err := op.Check(d, c, uint64(i)); err == nil {
				tried++
			}
		}
	}
	profile, err := d.Profile()
	if err != nil {
		t.Fatal(err)
	}
	called, err := profile.Operations()
	if err != nil {
		t.Fatal(err)
	}
	catalogue := reflect.TypeFor[kernel.Kernels]()
	for i := range catalogue.NumMethod() {
		name := catalogue.Method(i).Name
		if name == "WeightPack" { // which pure Go has no need of; rows with Packs call it elsewhere
			continue
		}
		if !slices.ContainsFunc(called, func(o gpu.Operation) bool { return o.Name == name }) {
			t.Errorf("no row of the table calls %s", name)
		}
	}
}

func TestNamesAreUnique(t *testing.T) {
	seen := map[string]bool{}
	plain := regexp.MustCompile(`^[A-Za-z0-9._-]+$`)
	for _, op := range Table() {
		for _, c := range op.Cases {
			name := op.Name + "/" + c.Name()
			if seen[name] || !plain.MatchString(c.Name()) {
				t.Errorf("name %s", name)
			}
			seen[name] = true
			if why := op.Tolerance(c).Why; why == "" {
				t.Errorf("%s: the tolerance has no reason", name)
			}
		}
	}
}

func TestBenchMeasuresWhatMatches(t *testing.T) {
	d, err := gpu.OpenBackend(purego.Backend(), 0)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	var results []Result
	err = Bench(context.Background(), d, Choice{Match: "^(RMSNorm/7b_hidden.*F32|IncrementI32/)"}, func(r Result) { results = append(results, r) })
	if err != nil || len(results) != 2 {
		t.Fatalf("%+v, %v", results, err)
	}
	for _, r := range results {
		if !(r.Ours > 0) || r.Unit != "us" || r.Device == "" || r.Suite == "" || !(r.Roofline > 0) || r.Error == nil {
			t.Errorf("%+v", r)
		}
		if _, err := json.Marshal(r); err != nil {
			t.Error(err)
		}
	}
	if err := Bench(context.Background(), d, Choice{Match: "NoSuchOp"}, func(Result) {}); err == nil {
		t.Error("a pattern without a match is no error")
	}
	if err := Bench(context.Background(), d, Choice{Match: "("}, func(Result) {}); err == nil {
		t.Error("a broken pattern is no error")
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := Bench(ctx, d, Choice{Match: "Add"}, func(Result) {}); err != context.Canceled {
		t.Errorf("canceled: %v", err)
	}
}

func TestBenchTakesDimensionsAndATolerance(t *testing.T) {
	var got []Result
	bench := func(c Choice) error {
		got = nil
		return Bench(context.Background(), gpu.CPU(), c, func(r Result) { got = append(got, r) })
	}
	given := Choice{Match: "^FusedUpdate/bem.*F32", Dims: []int{9, 24, 40, 4}, Check: true, RTol: 1e-4}
	if err := bench(given); err != nil || len(got) != 1 || got[0].Error == nil || !strings.Contains(got[0].Case, "9x24x40x4") {
		t.Errorf("%+v, %v", got, err)
	}
	twice := Choice{Match: given.Match, Dims: []int{9, 24, 40, 4, 2, 16, 8, 4, 9, 24, 40, 4}}
	if err := bench(twice); err != nil || len(got) != 2 || !strings.Contains(got[0].Case, "9x24x40x4") || !strings.Contains(got[1].Case, "2x16x8x4") {
		t.Errorf("dimensions of three cases, two of them the same: %+v, %v", got, err)
	}
	given.RTol = 1e-12
	if err := bench(given); err == nil || !strings.Contains(err.Error(), "asked for") {
		t.Errorf("an error that is too large passes: %v", err)
	}
	for want, dims := range map[string][]int{"FusedUpdate has 4 dimensions": {9, 24, 40}, "at most 256 ranks": {9, 24, 40, 300}, "operand of": {1 << 30, 24, 40, 4}} {
		if err := bench(Choice{Match: "^FusedUpdate/bem", Dims: dims}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, want %q", dims, err, want)
		}
	}
}

// TestDrawsLeaveOutHugeOperands draws a case whose product of dimensions is 0, and whose operand would take 4 GiB.
func TestDrawsLeaveOutHugeOperands(t *testing.T) {
	op := &Op{
		Name: "Huge", Cases: []Case{{Type: tensor.F32, Dims: []int{0, 1 << 30}}},
		Inputs:    func(g *Generator, c Case) []*Array { return []*Array{g.Normal(c.Type, c.Dims[1])} },
		Outputs:   func(c Case) []Spec { return nil },
		Reference: func([]*Array, Case) []Want { return nil },
	}
	for n := range uint64(100) {
		if d := op.Draw(n); d != nil && d.Dims[1] > 4*mostDrawn {
			t.Fatalf("draw %d has dimensions %d", n, d.Dims)
		}
	}
}
