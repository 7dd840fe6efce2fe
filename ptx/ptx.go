// Package ptx writes GPU kernels as PTX, the assembly that NVIDIA's driver compiles, without nvcc or a GPU: products of
// matrices (F32, F16 on tensor cores, Q4_K weights), softmax, norms and attention, for programs that load kernels through the
// driver's API (cuModuleLoadData, cuLaunchKernel).
//
// The emitter is part of libvibrant (vb_ptx_emit in C; docs/ptx.md says how its kernels are written). Builds without cgo
// call it in a libvibrant.so found at run time; without one Emit returns gpu.ErrNotCompiled.
//
// Source: NVIDIA, "Parallel Thread Execution ISA", version 8.0.
package ptx

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/vibrant-ml/vibrant/csrc"
	"github.com/vibrant-ml/vibrant/internal/backend/kernel"
)

// Kind is what a kernel computes. Matrices are row-major and without gaps; pointers are u64 and sizes u32 in the order given.
type Kind int

// The kinds of kernels, with the parameters of their entries.
const (
	GemmNaive      Kind = iota // (a_ptr, b_ptr, c_ptr, m, n, k): c[m][n] = a[m][k] b[k][n] in F32, a thread an output
	GemmTiled                  // the same through tiles in shared memory
	GemmTensorCore             // a and b of F16, c of F32, summed in float32
	Softmax                    // (input, output, length): a block a row of F32
	LayerNorm                  // (input, output, gamma, beta, hidden, batch): a block a row of F32
	Attention                  // (q, k, v, o_ptr, seq_len, head_dim, num_heads): [heads][seq][dim] of F32
	QuantizedGemm              // (a_ptr, b_quant_ptr, c_ptr, m, n, k): c[m][n] = a[m][k] b^T, b of n rows of Q4_K
)

// kinds names the kinds: first the name of the command, then those of entries, as users of older systems know them.
var kinds = [][]string{
	GemmNaive:      {"gemm-naive", "gemm_naive"},
	GemmTiled:      {"gemm-tiled", "gemm_tiled"},
	GemmTensorCore: {"gemm-tensor-core", "gemm_tensor_core", "gemm_wmma_fp16"},
	Softmax:        {"softmax", "softmax_warp_shuffle", "softmax_warp"},
	LayerNorm:      {"layer-norm", "layernorm_warp_shuffle", "layernorm"},
	Attention:      {"attention", "flash_attention", "flash_attention_tensor_core"},
	QuantizedGemm:  {"quantized-gemm", "q4k_gemm_fused", "q4k_gemm_ggml"},
}

func (k Kind) String() string {
	if k < 0 || int(k) >= len(kinds) {
		return "Kind(" + strconv.Itoa(int(k)) + ")"
	}
	return kinds[k][0]
}

// Kinds lists all kinds.
func Kinds() []Kind {
	all := make([]Kind, len(kinds))
	for i := range all {
		all[i] = Kind(i)
	}
	return all
}

// replaced names kernels of older systems that are no kind here, and what computes the same: a function of package tensor and
// one of vibrant.h. docs/ptx.md lists them.
var replaced = map[string]string{
	"gemv_warp_reduce":       "tensor.Linear (vb_linear)",
	"gemv_coalesced":         "tensor.Linear (vb_linear)",
	"q4k_gemv_warp_reduce":   "tensor.Linear (vb_linear)",
	"q5k_gemv_warp_reduce":   "tensor.Linear (vb_linear)",
	"q6k_gemv_warp_reduce":   "tensor.Linear (vb_linear)",
	"q8_0_gemv_warp_reduce":  "tensor.Linear (vb_linear)",
	"q5_0_gemv_warp_reduce":  "tensor.Linear (vb_linear)",
	"q4_0_gemv_warp_reduce":  "tensor.Linear (vb_linear)",
	"q4_1_gemv_warp_reduce":  "tensor.Linear (vb_linear)",
	"q5k_gemm_ggml":          "tensor.Linear (vb_linear)",
	"q6k_gemm_ggml":          "tensor.Linear (vb_linear)",
	"incremental_attention":  "tensor.Attention (vb_attention)",
	"fused_residual_rmsnorm": "tensor.AddRMSNorm (vb_add_rms_norm)",
	"rope":                   "tensor.RoPE (vb_rope)",
	"rope_neox":              "tensor.RoPE (vb_rope)",
	"silu":                   "tensor.SiLU (vb_silu)",
	"gelu":                   "tensor.GELU (vb_gelu)",
	"elementwise_mul":        "tensor.Mul (vb_mul)",
	"fused_swiglu":           "tensor.SwiGLU (vb_swiglu)",
	"residual_add":           "tensor.Add (vb_add)",
	"bias_activation":        "tensor.Fuse (vb_map)",
	"kv_cache_scatter":       "tensor.KVWrite (vb_kv_write)",
	"q8_quantize":            "tensor.Quantize (vb_convert)",
	"q8_dequant":             "tensor.Convert (vb_convert)",
	"q4k_dequant_to_f32":     "tensor.Convert (vb_convert)",
	"q6k_dequant_to_f32":     "tensor.Convert (vb_convert)",
	"argmax_block_reduce":    "tensor.Argmax (vb_argmax)",
	"argmax_final_reduce":    "tensor.Argmax (vb_argmax)",
}

// Lookup finds a kernel by a name: that of a kind ("softmax") or of an entry, also as older systems spell it ("softmax_warp",
// "flash_attention_causal", "rmsnorm"), with "-" or "_". The result lacks its sizes. Of an older system's kernel that is no
// kind, the error names the function that computes the same.
func Lookup(name string) (Kernel, error) {
	spelled := strings.ReplaceAll(name, "-", "_")
	switch spelled {
	case "rmsnorm", "rms_norm":
		return Kernel{Kind: LayerNorm, RMS: true}, nil
	case "flash_attention_causal", "attention_causal", "flash_attention_tensor_core_causal":
		return Kernel{Kind: Attention, Causal: true}, nil
	}
	for kind, names := range kinds {
		for _, n := range names {
			if spelled == strings.ReplaceAll(n, "-", "_") {
				return Kernel{Kind: Kind(kind)}, nil
			}
		}
	}
	if function, ok := replaced[spelled]; ok {
		return Kernel{}, fmt.Errorf("ptx: %q is no kernel that stands alone: %s computes it", name, function)
	}
	return Kernel{}, fmt.Errorf("ptx: unknown kernel %q: want one of %s", name, strings.Join(Names(), ", "))
}

// Names lists the names that Lookup takes.
func Names() []string {
	var all []string
	for _, names := range kinds {
		all = append(all, names...)
	}
	return append(all, "rmsnorm", "flash_attention_causal")
}

// Kernel is a kernel with its sizes. The zero values of everything but the sizes are the usual choices.
type Kernel struct {
	Kind       Kind
	M, N, K    int     // of products; K of QuantizedGemm is a multiple of 256
	Rows       int     // of Softmax and LayerNorm
	Dim        int     // elements of a row, or of a head (at most 256)
	Seq, Heads int     // of Attention
	Tile       int     // of GemmTiled: 8, 16 or 32; 0 for 16
	Epsilon    float32 // of LayerNorm, added to the variance
	RMS        bool    // LayerNorm subtracts no mean and has no beta: RMSNorm
	Plain      bool    // LayerNorm has neither gamma nor beta: their pointers are not read
	Causal     bool    // Attention: a query sees the keys up to its own position
}

// Module is an emitted kernel.
type Module struct {
	Text         string // PTX
	Entry        string // the name to ask cuModuleGetFunction for
	GridX, GridY int    // blocks
	Threads      int    // of a block; shared memory is static
}

// Emitter writes kernels for a GPU. Its zero value writes `.target sm_70`, which every later GPU runs.
type Emitter struct {
	Target string // "sm_80", "80" or "8.0"; "" for sm_70
}

// Emit writes a kernel. Errors: gpu.ErrInvalid for sizes or a target that it cannot have, by name; gpu.ErrNotCompiled in
// builds without cgo that find no libvibrant.so.
func (e Emitter) Emit(k Kernel) (Module, error) {
	target, err := parseTarget(e.Target)
	if err != nil {
		return Module{}, err
	}
	text, entry, launch, err := csrc.EmitPTX(kernel.PTX{
		Kind: int(k.Kind), M: k.M, N: k.N, K: k.K, Rows: k.Rows, Dim: k.Dim, Seq: k.Seq, Heads: k.Heads, Tile: k.Tile, Target: target,
		Epsilon: k.Epsilon, RMS: k.RMS, Plain: k.Plain, Causal: k.Causal,
	})
	if err != nil {
		return Module{}, fmt.Errorf("ptx: %s: %w", k.Kind, err)
	}
	return Module{Text: text, Entry: entry, GridX: launch.GridX, GridY: launch.GridY, Threads: launch.Threads}, nil
}

// KernelName returns the name of a kind's entry, whatever its sizes.
func KernelName(k Kernel) string {
	switch {
	case k.Kind == LayerNorm && k.RMS:
		return "rmsnorm"
	case k.Kind == Attention && k.Causal:
		return "flash_attention_causal"
	case k.Kind < 0 || int(k.Kind) >= len(kinds):
		return ""
	}
	return kinds[k.Kind][1]
}

func parseTarget(s string) (int, error) {
	if s == "" {
		return 0, nil
	}
	digits := strings.ReplaceAll(strings.TrimPrefix(s, "sm_"), ".", "")
	n, err := strconv.Atoi(digits)
	if err != nil || n < 10 {
		return 0, fmt.Errorf("ptx: target %q: want a compute capability such as sm_80", s)
	}
	return n, nil
}

// LlamaAttention is causal attention of Llama's 32 heads.
func LlamaAttention(seq, dim int) Kernel {
	return Kernel{Kind: Attention, Seq: seq, Heads: 32, Dim: dim, Causal: true}
}

// MultiHeadAttention is attention of so many heads, each over all keys.
func MultiHeadAttention(seq, dim, heads int) Kernel {
	return Kernel{Kind: Attention, Seq: seq, Heads: heads, Dim: dim}
}

// Phi2Attention is causal attention of Phi-2's 32 heads of 80 elements.
func Phi2Attention(seq int) Kernel { return LlamaAttention(seq, 80) }

// FFNGemm is the product of [batch][hidden] with the [hidden][ffn] matrix of a feed-forward layer, in tiles of 32.
func FFNGemm(batch, hidden, ffn int) Kernel {
	return Kernel{Kind: GemmTiled, M: batch, N: ffn, K: hidden, Tile: 32}
}

// Q4KInference is the product of m rows of k elements with n rows of Q4_K; k is a multiple of 256.
func Q4KInference(m, n, k int) Kernel { return Kernel{Kind: QuantizedGemm, M: m, N: n, K: k} }

// RMSNorm is the norm of one row without a weight, epsilon 1e-6.
func RMSNorm(hidden int) Kernel {
	return Kernel{Kind: LayerNorm, Rows: 1, Dim: hidden, Epsilon: 1e-6, RMS: true, Plain: true}
}

// CUDALikelyAvailable says whether a GPU is probably there, without loading the driver: a device file of NVIDIA's, and
// CUDA_VISIBLE_DEVICES does not hide it.
func CUDALikelyAvailable() bool {
	if visible, ok := os.LookupEnv("CUDA_VISIBLE_DEVICES"); ok && (visible == "" || strings.HasPrefix(visible, "-1")) {
		return false
	}
	for _, path := range []string{"/dev/nvidia0", "/dev/nvhost-gpu", "/dev/dxg"} { // a card, a Jetson, Windows' subsystem
		if _, err := os.Stat(path); err == nil {
			return true
		}
	}
	return false
}
