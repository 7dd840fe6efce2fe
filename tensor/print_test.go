package tensor_test

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"strings"
	"testing"

	"github.com/vibrant-ml/vibrant/gpu"
	"github.com/vibrant-ml/vibrant/tensor"
)

// The golden file is numpy's str(): testdata/golden.py.
func TestTensorsPrintAsNumpyDoes(t *testing.T) {
	text, err := os.ReadFile("testdata/numpy_prints.json")
	if err != nil {
		t.Fatal(err)
	}
	golden := map[string]string{}
	if err := json.Unmarshal(text, &golden); err != nil {
		t.Fatal(err)
	}
	s := gpu.CPU().Stream()
	f := func(v ...float32) *tensor.Tensor { return tensor.FromSlice(v) }
	half := func(v ...float32) *tensor.Tensor { return tensor.Convert(f(v...), tensor.F16) }
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	cases := map[string]*tensor.Tensor{
		"arange": tensor.Arange(s, 0, 1, 24, tensor.F32).Reshape(2, 3, 4), "fractions": f(1.5, 2.25, -3, 100.125).Reshape(2, 2),
		"tenth": f(0.1, 0.2, 0.30000001, 1./3), "long": tensor.Arange(s, 0, 1, 2000, tensor.F32),
		"wide": tensor.Arange(s, 0, 1.5, 40, tensor.F32), "matrix": tensor.Arange(s, 0, 1, 4096, tensor.F32).Reshape(64, 64),
		"int": tensor.Arange(s, 0, -11, 12, tensor.I32).Reshape(3, 4), "bool": tensor.Eye(s, tensor.BOOL, 3, 3),
		"scientific": f(1e-9, 1, 2.5e9), "nan": f(nan, 1, -inf), "empty": tensor.Full(s, 0, tensor.F32, 0, 3),
		"scalar": tensor.Full(s, 2.5, tensor.F32), "small": f(1e-5, 2e-5), "ratio": f(0.001, 5000),
		"digits":  f(1.658512, -1.2917449, -0.31989893, -5.1794834, 0.3942, 2).Reshape(2, 3),
		"wrapped": tensor.MulScalar(tensor.Arange(s, 0, 1, 60, tensor.F32), 0.37),
		"half":    tensor.Div(tensor.Arange(s, 0, 1, 8, tensor.F16), tensor.Full(s, 7, tensor.F16)), "half, great": half(2000, 1).Reshape(1, 2),
		"half, scientific": half(0.0001, 1./3, 65504), "million": f(1e6, 5.5e3),
		"all true": tensor.Ones(s, tensor.BOOL, 1, 2), "true": tensor.Ones(s, tensor.BOOL), "great number": tensor.Full(s, 86586157, tensor.F32),
		"great half": tensor.Full(s, 1000, tensor.F16), "middle": f(-338075584, 1e-30), "nested": tensor.Arange(s, -1e9, 1, 80, tensor.I32).Reshape(2, 5, 8),
		"number": tensor.Full(s, 3, tensor.F32), "small number": tensor.Full(s, 1.5e-5, tensor.F32),
	}
	for name, x := range cases {
		if got := fmt.Sprint(x); got != golden[name] {
			t.Errorf("%s:\n%s\nnumpy:\n%s", name, got, golden[name])
		}
	}
	if len(cases) != len(golden) {
		t.Errorf("%d cases of %d", len(cases), len(golden))
	}
	if got := fmt.Sprintf("%+v", cases["fractions"].T()); !strings.HasPrefix(got, "F32(2,2) on cpu") {
		t.Errorf("%s", got)
	}
}

// TestSummariesReadTheirEnds prints a view of 16 GB, which no machine reads within a test.
func TestSummariesReadTheirEnds(t *testing.T) {
	x := tensor.FromSlice([]float32{1, 2.5, 3}).Reshape(3, 1, 1).BroadcastTo(3, 1<<16, 1<<15)
	want := "[[[1.  1.  1.  ... 1.  1.  1. ]\n"
	if got := x.String(); !strings.HasPrefix(got, want) || strings.Count(got, "2.5") != 36 {
		t.Errorf("%s", got)
	}
	blocks := tensor.Quantize(tensor.Full(gpu.CPU().Stream(), 127, tensor.F32, 64, 32), tensor.Q8_0)
	if got := blocks.String(); !strings.HasPrefix(got, "[[127. 127. 127. ... 127. 127. 127.]\n") || strings.Count(got, "[") != 7 {
		t.Errorf("%s", got)
	}
}
