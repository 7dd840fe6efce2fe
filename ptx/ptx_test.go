//go:build cgo

package ptx

import (
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/vibrant-ml/vibrant/dtype"
	"github.com/vibrant-ml/vibrant/internal/backend/kernel"
)

var update = flag.Bool("update", false, "write the golden texts anew")

// TestSmallKernelsReadAsTheyShould holds the texts of short kernels, to be looked at when the compiler changes.
func TestSmallKernelsReadAsTheyShould(t *testing.T) {
	for name, k := range map[string]Kernel{
		"gemm_naive": {Kind: GemmNaive, M: 3, N: 5, K: 7},
		"gemm_tiled": {Kind: GemmTiled, M: 3, N: 5, K: 7, Tile: 8}, "residual_add": {Kind: Add, N: 3},
		"gemv_coalesced": {Kind: Gemv, N: 5, K: 7, Entry: "gemv_coalesced"}, "kv_cache_scatter": {Kind: CacheWrite, Heads: 1, Dim: 3},
	} {
		module, err := Emitter{}.Emit(k)
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join("testdata", name+".ptx")
		if *update {
			if err := os.WriteFile(path, []byte(module.Text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(path)
		if err != nil || string(want) != module.Text {
			t.Errorf("%s: the text is not that of %s (go test ./ptx -update writes it): %v", name, path, err)
		}
	}
}

// targets are all that kernels may be written for.
var targets = []string{"sm_70", "sm_72", "sm_75", "sm_80", "sm_86", "sm_87", "sm_89", "sm_90", "sm_100", "sm_120"}

// assemblers returns for each target the toolkits' ptxas that know it: of CUDA_HOME, of PATH, and those that PTXAS lists. A toolkit
// drops old targets, so that CUDA 12's and 13's are both needed for all.
func assemblers() map[string][]string {
	paths := []string{os.Getenv("CUDA_HOME") + "/bin/ptxas", "../build/cuda-toolkit/site-packages/nvidia/cu13/bin/ptxas", "/usr/local/cuda/bin/ptxas"}
	if path, err := exec.LookPath("ptxas"); err == nil {
		paths = append(paths, path)
	}
	found, versions := map[string][]string{}, map[string]bool{}
	for _, path := range append(paths, filepath.SplitList(os.Getenv("PTXAS"))...) {
		version, err := exec.Command(path, "--version").Output()
		if err != nil || versions[string(version)] {
			continue
		}
		versions[string(version)] = true
		help, _ := exec.Command(path, "--help").Output()
		for _, target := range targets {
			if strings.Contains(string(help), "'"+target+"'") {
				found[target] = append(found[target], path)
			}
		}
	}
	return found
}

// TestAssemblerAcceptsEveryKernel assembles each kind at odd and random sizes for each target, and refuses warnings and spills.
func TestAssemblerAcceptsEveryKernel(t *testing.T) {
	found := assemblers()
	r := rand.New(rand.NewPCG(1, 2))
	size := func(most int) int { return 1 + r.IntN(most) }
	spills := regexp.MustCompile(`[1-9][0-9]* bytes spill`)
	for _, target := range targets {
		kernels := []Kernel{
			{Kind: GemmNaive, M: size(5000), N: size(5000), K: size(5000)},
			{Kind: GemmTiled, M: size(5000), N: size(5000), K: size(5000), Tile: 8 << r.IntN(3)},
			{Kind: GemmTensorCore, M: 128, N: 256, K: 64},
			{Kind: GemmTensorCore, M: size(5000), N: 255, K: 77},
			{Kind: Softmax, Rows: size(100), Dim: size(8192)}, {Kind: Softmax, Rows: 1, Dim: 4096}, {Kind: Softmax, Rows: 2, Dim: 20481},
			{Kind: LayerNorm, Rows: size(100), Dim: size(8192), Epsilon: 1e-5}, {Kind: LayerNorm, Rows: 2, Dim: 20481, Plain: true},
			RMSNorm(size(10000)), {Kind: LayerNorm, Rows: 3, Dim: 897, RMS: true},
			LlamaAttention(size(3000), 128), MultiHeadAttention(size(3000), size(256), 7), Phi2Attention(1), LlamaAttention(5, 256),
			Q4KInference(size(100), size(5000), 256*size(40)), FFNGemm(size(100), size(5000), size(5000)),
			{Kind: BiasActivation, N: size(9999), Dim: size(999), Activation: QuickGELU},
			{Kind: DecodeAttention, Heads: 12, KVHeads: 3, Dim: size(256), Capacity: size(9999)}, {Kind: RoPE, Heads: 3, Dim: 2 * size(128), Theta: 1e6},
		}
		for _, name := range olderEntries {
			k, err := Lookup(name)
			if err != nil {
				t.Fatal(err)
			}
			kernels = append(kernels, sized(k))
		}
		for _, kind := range Kinds() {
			if !slices.ContainsFunc(kernels, func(k Kernel) bool { return k.Kind == kind }) {
				t.Errorf("%v is not assembled", kind)
			}
		}
		whole := "" // all kernels under one header, which is assembled much faster than each alone
		for i, k := range kernels {
			name := KernelName(k)
			module, err := Emitter{Target: target}.Emit(k)
			if err != nil {
				t.Fatalf("%+v for %s: %v", k, target, err)
			}
			header, body, _ := strings.Cut(module.Text, "\n.visible .entry "+name+"(")
			if module.Entry != name || body == "" || module.GridX < 1 || module.Threads%32 != 0 {
				t.Errorf("%+v: %s, %d blocks of %d threads", k, module.Entry, module.GridX, module.Threads)
			}
			if i == 0 {
				whole = header
			}
			whole += fmt.Sprintf("\n.visible .entry number_%d_%s(", i, name) + body
		}
		path := filepath.Join(t.TempDir(), "kernels.ptx")
		if err := os.WriteFile(path, []byte(whole), 0o644); err != nil {
			t.Fatal(err)
		}
		for _, assembler := range found[target] {
			out, err := exec.Command(assembler, "-v", "-O1", "-arch="+target, path, "-o", os.DevNull).CombinedOutput()
			if err != nil || strings.Contains(string(out), "warning") || spills.Match(out) {
				t.Errorf("%s by %s: %v\n%s", target, assembler, err, out)
			}
		}
		if len(found[target]) == 0 {
			t.Logf("no ptxas for %s: its texts were written and not assembled", target)
		}
	}
}

func TestBadParametersAreNamed(t *testing.T) {
	for _, c := range []struct {
		kernel Kernel
		target string
		want   string
	}{
		{Kernel{}, "", "m, n, k"},
		{Kernel{Kind: GemmTiled, M: 1, N: 1, K: 1, Tile: 7}, "", "tile"},
		{Q4KInference(1, 1, 255), "", "multiple"},
		{Kernel{Kind: Softmax, Dim: 4}, "", "rows"},
		{LlamaAttention(1, 257), "", "dim"},
		{Kernel{Kind: LayerNorm, Rows: 1, Dim: 1, Epsilon: -1}, "", "epsilon"},
		{Kernel{Kind: 99}, "", "kind"},
		{Kernel{Kind: Gemv, N: 1, K: 33, Weight: dtype.Q8_0}, "", "blocks of 32"},
		{Kernel{Kind: Gemv, N: 1, K: 256, Weight: dtype.Q2_K}, "", "weight"},
		{Kernel{Kind: SiLU}, "", "n: want"},
		{Kernel{Kind: RoPE, Heads: 1, Dim: 3}, "", "even"},
		{Kernel{Kind: DecodeAttention, Heads: 8, KVHeads: 3, Dim: 64, Capacity: 1}, "", "divisor"},
		{Kernel{Kind: SiLU, N: 1, Entry: "a b"}, "", "entry"},
		{Kernel{Kind: SiLU, N: 1, Entry: strings.Repeat("a", 64)}, "", "entry"},
		{Kernel{Kind: BiasActivation, N: 1, Dim: 1, Activation: 3}, "", "activation"},
		{RMSNorm(8), "sm_30", "target"},
		{RMSNorm(8), "hopper", `"hopper"`},
	} {
		_, err := Emitter{Target: c.target}.Emit(c.kernel)
		if err == nil || !strings.Contains(err.Error(), c.want) || !errors.Is(err, kernel.ErrInvalid) {
			t.Errorf("%+v for %q: %v, want an error with %q", c.kernel, c.target, err, c.want)
		}
	}
}

// olderEntries are the entries of an older system's kernels.
var olderEntries = strings.Fields(`gemm_naive gemm_tiled gemm_tensor_core gemm_wmma_fp16 q4k_gemm_fused q4k_gemm_ggml q5k_gemm_ggml q6k_gemm_ggml
	gemv_warp_reduce gemv_coalesced q4k_gemv_warp_reduce q5k_gemv_warp_reduce q6k_gemv_warp_reduce q8_0_gemv_warp_reduce q5_0_gemv_warp_reduce
	q4_0_gemv_warp_reduce q4_1_gemv_warp_reduce flash_attention flash_attention_causal flash_attention_tensor_core flash_attention_tensor_core_causal
	incremental_attention softmax_warp_shuffle layernorm_warp_shuffle rmsnorm fused_residual_rmsnorm rope rope_neox silu gelu elementwise_mul
	fused_swiglu residual_add bias_activation kv_cache_scatter q8_quantize q8_dequant q4k_dequant_to_f32 q6k_dequant_to_f32 argmax_block_reduce
	argmax_final_reduce`)

// sized returns a kernel with sizes that every kind takes.
func sized(k Kernel) Kernel {
	k.M, k.N, k.K, k.Rows, k.Dim, k.Seq, k.Heads, k.Capacity = 3, 5, 256, 2, 64, 9, 2, 16
	return k
}

// TestNamesOfOlderSystemsAreEntries: each is found, emitted under its own name, and documented.
func TestNamesOfOlderSystemsAreEntries(t *testing.T) {
	documented, err := os.ReadFile("../docs/ptx.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range olderEntries {
		for _, spelled := range []string{name, strings.ReplaceAll(name, "_", "-")} {
			k, err := Lookup(spelled)
			if err != nil || KernelName(k) != name {
				t.Errorf("%s: %q, %v", spelled, KernelName(k), err)
				continue
			}
			module, err := Emitter{}.Emit(sized(k))
			if err != nil || module.Entry != name || !strings.Contains(module.Text, "\n.visible .entry "+name+"(\n") {
				t.Errorf("%s: entry %q, %v", spelled, module.Entry, err)
			}
		}
		if !strings.Contains(string(documented), "`"+name+"`") {
			t.Errorf("docs/ptx.md does not have %s", name)
		}
	}
	for spelled, entry := range map[string]string{"softmax_warp": "softmax_warp_shuffle", "layernorm": "layernorm_warp_shuffle"} {
		if k, err := Lookup(spelled); err != nil || KernelName(k) != entry {
			t.Errorf("%s: %q, %v", spelled, KernelName(k), err)
		}
	}
	for _, name := range Names() {
		if _, err := Lookup(name); err != nil {
			t.Error(err)
		}
	}
	if _, err := Lookup("conv2d"); err == nil || !strings.Contains(err.Error(), "conv2d") {
		t.Errorf("conv2d: %v", err)
	}
}

func TestWithoutTargetEveryGPUSinceVolta(t *testing.T) {
	module, err := Emitter{}.Emit(RMSNorm(4096))
	if want := ".version 8.0\n.target sm_70\n.address_size 64\n"; err != nil || !strings.HasPrefix(module.Text, want) {
		t.Errorf("%v: %.60q, want %q", err, module.Text, want)
	}
	if fmt.Sprint(Kind(99), Softmax) != "Kind(99) softmax" {
		t.Error(Kind(99), Softmax)
	}
}

func TestAGPUIsLikelyWhereItsFileIsAndNothingHidesIt(t *testing.T) {
	for visible, want := range map[string]bool{
		"": false, "-1": false, "none": false, "NoDevFiles": false, "-1,0": false, "0": true, "3,1": true, " 2": true, "GPU-8932f937": true, "MIG-4": true,
	} {
		if namesGPU(visible) != want {
			t.Errorf("CUDA_VISIBLE_DEVICES=%q names a GPU: %v, want %v", visible, !want, want)
		}
	}
	for name, want := range map[string]bool{"nvidia0": true, "nvidia12": true, "nvhost-gpu": true, "dxg": true, "nvidiactl": false, "null": false} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if hasGPU(dir) != want {
			t.Errorf("/dev/%s is a GPU: %v, want %v", name, !want, want)
		}
	}
	if hasGPU(t.TempDir()) {
		t.Error("an empty folder has a GPU")
	}
	t.Setenv("CUDA_VISIBLE_DEVICES", "")
	if CUDALikelyAvailable() {
		t.Error("a GPU is there although nothing is visible")
	}
}
