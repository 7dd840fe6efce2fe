package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/vibrant-ml/vibrant/gpu"
	"github.com/vibrant-ml/vibrant/ptx"
)

// emits reports whether this build has the emitter, which is part of the C kernels.
func emits() bool {
	_, err := ptx.Emitter{}.Emit(ptx.RMSNorm(8))
	return err == nil || !strings.Contains(err.Error(), gpu.ErrNotCompiled.Error())
}

func TestPTXIsWritten(t *testing.T) {
	if !emits() {
		t.Skip("this build has no emitter")
	}
	path := filepath.Join(t.TempDir(), "kernel.ptx")
	written := append(ptx.Names(), "gemm-tiled --m 9 --n 9 --k 9 --tile 8", "gemm-tensor-core --m 9 --n 9 --k 9", "softmax --dim 77", "layer-norm --rms",
		"attention --causal --seq 9", "quantized-gemm --k 512", "gemv --weight q6_k --k 512 --n 9", "gemv --weight f32", "dequantize --weight Q8_0 --k 64 --n 9",
		"decode-attention --heads 8 --kv-heads 2 --dim 80", "bias-activation --n 99 --dim 9 --activation relu", "silu --n 5 --entry my_silu")
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
	for args, entry := range map[string]string{
		"flash_attention_tensor_core --causal": "flash_attention_tensor_core_causal", "flash_attention_tensor_core": "flash_attention_tensor_core",
		"attention --causal": "flash_attention_causal", "flash_attention_tensor_core --causal --entry mine": "mine",
	} {
		c := ptxCommand()
		c.SetArgs(append(strings.Fields(args), "-o", path))
		if err := c.Execute(); err != nil {
			t.Errorf("%s: %v", args, err)
		}
		if text, err := os.ReadFile(path); err != nil || !strings.Contains(string(text), ".entry "+entry+"(") {
			t.Errorf("%s: %v, no entry %s", args, err, entry)
		}
	}
	for args, want := range map[string]string{
		"conv": `"conv"`, "gemm-naive --m 0": "m, n, k", "gemm-tiled --tile 7": "tile", "gemm-tensor-core --n -1": "m, n, k",
		"quantized-gemm --k 255": "want a multiple", "q8_0_gemv_warp_reduce --k 33": "blocks of 32", "softmax --dim 0": "rows, dim", "layer-norm --epsilon 2": "epsilon", "attention --dim 300": "dim",
		"softmax --target sm_9000": "target", "softmax --target hopper": "compute capability", "silu --n 0": "n: want", "gemv --weight q3_k": "Q4_K, Q5_K", "quantized-gemm --weight f32": "Q4_K, Q5_K", "q5k_gemm_ggml --weight q4_0": "Q5_K", "q4k_gemm_ggml --weight q5_k": "Q4_K",
		"rope --dim 7": "even", "rope --theta 0.5": "theta", "decode-attention --heads 8 --kv-heads 3": "divisor", "decode-attention --capacity 0": "capacity",
		"bias-activation --activation tanh": "tanh", "silu --entry 9lives": "entry", "cache-write --heads 0": "heads", "quantize --n -1": "n: want",
		"dequantize --k 16777216": "k: want at most", "flash_attention_causal --causal=false": "says otherwise", "rmsnorm --rms=false": "says otherwise",
	} {
		c := ptxCommand()
		c.SetArgs(strings.Fields(args))
		c.SilenceErrors, c.SilenceUsage = true, true
		if err := c.Execute(); err == nil || !strings.Contains(err.Error(), want) || !errors.As(err, new(usageError)) {
			t.Errorf("%s: %v, want a usage error with %q", args, err, want)
		}
	}
}
