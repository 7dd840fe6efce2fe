package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/vibrant-ml/vibrant/gpu"
	"github.com/vibrant-ml/vibrant/ptx"
)

func TestPTXIsWritten(t *testing.T) {
	if _, err := (ptx.Emitter{}).Emit(ptx.RMSNorm(8)); err != nil && strings.Contains(err.Error(), gpu.ErrNotCompiled.Error()) {
		t.Skip("this build has no emitter: the C kernels are not in it")
	}
	path := filepath.Join(t.TempDir(), "kernel.ptx")
	written := append(ptx.Names(), "gemm-tiled --m 9 --n 9 --k 9 --tile 8", "gemm-tensor-core --m 9 --n 9 --k 9", "softmax --dim 77", "layer-norm --rms",
		"attention --causal --seq 9", "quantized-gemm --k 512")
	for _, args := range written {
		c := ptxCommand()
		c.SetArgs(append(strings.Fields(args), "-o", path))
		if err := c.Execute(); err != nil {
			t.Errorf("%s: %v", args, err)
		}
		text, err := os.ReadFile(path)
		if os.Remove(path) != nil || err != nil || !strings.HasPrefix(string(text), ".version 8.0\n.target sm_70\n") {
			t.Errorf("%s: %v, %.40q", args, err, text)
		}
	}
	for args, want := range map[string]string{
		"conv": `"conv"`, "gemm-naive --m 0": "m, n, k", "gemm-tiled --tile 7": "tile", "gemm-tensor-core --n -1": "m, n, k",
		"quantized-gemm --k 255": "want a multiple", "softmax --dim 0": "rows, dim", "layer-norm --epsilon 2": "epsilon", "attention --dim 300": "dim",
		"softmax --target sm_9000": "target", "silu": "tensor.SiLU (vb_silu) computes it",
	} {
		c := ptxCommand()
		c.SetArgs(strings.Fields(args))
		c.SilenceErrors, c.SilenceUsage = true, true
		if err := c.Execute(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", args, err, want)
		}
	}
}
