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
	for _, args := range []string{"gemm-tiled --m 9 --n 9 --k 9 --tile 8", "softmax --dim 77", "layer-norm --rms", "attention --causal --seq 9", "quantized-gemm --k 512"} {
		c := ptxCommand()
		c.SetArgs(append(strings.Fields(args), "-o", path))
		if err := c.Execute(); err != nil {
			t.Errorf("%s: %v", args, err)
		}
		if text, err := os.ReadFile(path); err != nil || !strings.HasPrefix(string(text), ".version 8.0\n.target sm_70\n") {
			t.Errorf("%s: %v, %.40q", args, err, text)
		}
	}
	for args, want := range map[string]string{"conv": `"conv"`, "quantized-gemm --k 255": "want a multiple", "softmax --target sm_9000": "target"} {
		c := ptxCommand()
		c.SetArgs(strings.Fields(args))
		c.SilenceErrors, c.SilenceUsage = true, true
		if err := c.Execute(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", args, err, want)
		}
	}
}
