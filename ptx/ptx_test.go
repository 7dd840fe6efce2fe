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
	"strings"
	"testing"

	"github.com/vibrant-ml/vibrant/internal/backend/kernel"
)

var update = flag.Bool("update", false, "write the golden texts anew")

// TestSmallKernelsReadAsTheyShould holds the texts of two kernels, to be looked at when the compiler changes.
func TestSmallKernelsReadAsTheyShould(t *testing.T) {
	for name, k := range map[string]Kernel{
		"gemm_naive": {Kind: GemmNaive, M: 3, N: 5, K: 7},
		"gemm_tiled": {Kind: GemmTiled, M: 3, N: 5, K: 7, Tile: 8},
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
			Q4KInference(size(100), size(5000), 256*size(40)),
		}
		for _, k := range kernels {
			module, err := Emitter{Target: target}.Emit(k)
			if err != nil {
				t.Fatalf("%+v for %s: %v", k, target, err)
			}
			if module.Entry != KernelName(k) || !strings.Contains(module.Text, ".entry "+module.Entry+"(") || module.GridX < 1 || module.Threads%32 != 0 {
				t.Errorf("%+v: %s, %d blocks of %d threads", k, module.Entry, module.GridX, module.Threads)
			}
			path := filepath.Join(t.TempDir(), "kernel.ptx")
			if err := os.WriteFile(path, []byte(module.Text), 0o644); err != nil {
				t.Fatal(err)
			}
			for _, assembler := range found[target] {
				out, err := exec.Command(assembler, "-v", "-O1", "-arch="+target, path, "-o", os.DevNull).CombinedOutput()
				if err != nil || strings.Contains(string(out), "warning") || spills.Match(out) {
					t.Errorf("%+v for %s by %s: %v\n%s", k, target, assembler, err, out)
				}
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
		{RMSNorm(8), "sm_30", "target"},
		{RMSNorm(8), "hopper", `"hopper"`},
	} {
		_, err := Emitter{Target: c.target}.Emit(c.kernel)
		if err == nil || !strings.Contains(err.Error(), c.want) || c.target != "hopper" && !errors.Is(err, kernel.ErrInvalid) {
			t.Errorf("%+v for %q: %v, want an error with %q", c.kernel, c.target, err, c.want)
		}
	}
}

// olderEntries are the entries of an older system's kernels, and the name of ours that takes the same parameters, "" for none.
var olderEntries = map[string]string{
	"gemm_naive": "gemm_naive", "gemm_tiled": "gemm_tiled", "gemm_tensor_core": "gemm_tensor_core", "gemm_wmma_fp16": "gemm_tensor_core",
	"q4k_gemm_fused": "q4k_gemm_fused", "q4k_gemm_ggml": "q4k_gemm_fused", "q5k_gemm_ggml": "", "q6k_gemm_ggml": "",
	"gemv_warp_reduce": "", "gemv_coalesced": "", "q4k_gemv_warp_reduce": "", "q5k_gemv_warp_reduce": "", "q6k_gemv_warp_reduce": "",
	"q8_0_gemv_warp_reduce": "", "q5_0_gemv_warp_reduce": "", "q4_0_gemv_warp_reduce": "", "q4_1_gemv_warp_reduce": "",
	"flash_attention": "flash_attention", "flash_attention_causal": "flash_attention_causal",
	"flash_attention_tensor_core": "flash_attention", "flash_attention_tensor_core_causal": "flash_attention_causal",
	"incremental_attention": "", "softmax_warp": "softmax_warp_shuffle", "softmax_warp_shuffle": "softmax_warp_shuffle",
	"layernorm_warp_shuffle": "layernorm_warp_shuffle", "rmsnorm": "rmsnorm", "fused_residual_rmsnorm": "",
	"rope": "", "rope_neox": "", "silu": "", "gelu": "", "elementwise_mul": "", "fused_swiglu": "", "residual_add": "",
	"bias_activation": "", "kv_cache_scatter": "", "q8_quantize": "", "q8_dequant": "", "q4k_dequant_to_f32": "", "q6k_dequant_to_f32": "",
	"argmax_block_reduce": "", "argmax_final_reduce": "",
}

// TestNamesOfOlderSystemsAreFound: each is an entry, or the error and the documentation name functions that are there.
func TestNamesOfOlderSystemsAreFound(t *testing.T) {
	read := func(path string) string {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	header, documented, functions := read("../csrc/vibrant.h"), read("../docs/ptx.md"), ""
	sources, err := filepath.Glob("../tensor/*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range sources {
		functions += read(path)
	}
	computes := regexp.MustCompile(`tensor\.(\w+) \((vb_\w+)\) computes it$`)
	without := 0
	for name, entry := range olderEntries {
		if entry == "" {
			without++
		}
		for _, spelled := range []string{name, strings.ReplaceAll(name, "_", "-")} {
			k, err := Lookup(spelled)
			if entry != "" {
				if err != nil || KernelName(k) != entry {
					t.Errorf("%s: %s, %v, want %s", spelled, KernelName(k), err, entry)
				}
				continue
			}
			said := computes.FindStringSubmatch(fmt.Sprint(err))
			if said == nil {
				t.Errorf("%s: %v, want what computes it", spelled, err)
				continue
			}
			if !regexp.MustCompile(`func `+said[1]+`[(\[]`).MatchString(functions) || !strings.Contains(header, "vb_status "+said[2]+"(") {
				t.Errorf("%s: there is no tensor.%s, or no %s", name, said[1], said[2])
			}
			row := regexp.MustCompile("(?m)^\\|.*`" + name + "`.*`tensor." + said[1] + "`.*`" + said[2] + "`")
			if !row.MatchString(documented) {
				t.Errorf("docs/ptx.md does not say what replaces %s", name)
			}
		}
	}
	if len(replaced) != without {
		t.Errorf("%d names are replaced, %d of older systems have no entry", len(replaced), without)
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
