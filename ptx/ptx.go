// Package ptx writes GPU kernels as PTX, the assembly that NVIDIA's driver compiles, without nvcc or a GPU: products of
// matrices (F32, F16 on tensor cores, quantized weights), softmax, norms, attention, and what a token of a language model needs
// besides, for programs that load kernels through the driver's API (cuModuleLoadData, cuLaunchKernel).
//
// The emitter is part of libvibrant (vb_ptx_emit in C; docs/ptx.md says how its kernels are written). Builds without cgo
// call it in a libvibrant.so found at run time; without one Emit returns gpu.ErrNotCompiled.
//
// Source: NVIDIA, "Parallel Thread Execution ISA", version 8.0.
package ptx

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/vibrant-ml/vibrant/csrc"
	"github.com/vibrant-ml/vibrant/dtype"
	"github.com/vibrant-ml/vibrant/internal/backend/kernel"
)

// Kind is what a kernel computes. Matrices are row-major and without gaps; pointers are u64 and sizes u32 in the order given.
type Kind int

// The kinds of kernels, with the parameters of their entries. Numbers are F32 where nothing else is said.
const (
	GemmNaive       Kind = iota // (a_ptr, b_ptr, c_ptr, m, n, k): c[m][n] = a[m][k] b[k][n], a thread an output
	GemmTiled                   // the same through tiles in shared memory
	GemmTensorCore              // a and b of F16, c of F32, summed in float32
	Softmax                     // (input, output, length): a block a row
	LayerNorm                   // (input, output, gamma, beta, hidden, batch), of RMSNorm (input, output, gamma): a block a row
	Attention                   // (q, k, v, o_ptr, seq_len, head_dim, num_heads): [heads][seq][dim]
	QuantizedGemm               // (a_ptr, b_quant_ptr, c_ptr, m, n, k): c[m][n] = a[m][k] b^T, b of n rows of Weight
	Gemv                        // (y_ptr, w_ptr, x_ptr, k_dim, n_dim): y[n] = x[k] w[k][n], or w of n rows of Weight
	Dequantize                  // (out_ptr, w_ptr, k_dim, n_dim): out[n][k] = w, of n rows of Weight
	Quantize                    // (out_ptr, in_ptr, n_dim): to blocks of Q8_0, the last filled up with 0
	DecodeAttention             // (q_ptr, k_ptr, v_ptr, out_ptr, seq_len): q [heads][dim], caches [kv heads][capacity][dim]
	AddRMSNorm                  // (residual_ptr, input_ptr, output_ptr, gamma_ptr): the norm of a sum, a block a row
	RoPE                        // (x_ptr, out_ptr, pos): [heads][dim] at one position
	SiLU                        // (input_ptr, output_ptr, n)
	GELU                        // the same, by tanh
	Mul                         // (input1_ptr, input2_ptr, output_ptr, n)
	Add                         // the same
	SwiGLU                      // (gate_ptr, up_ptr, output_ptr, n): SiLU(gate) up
	BiasActivation              // (output, bias, n): output[i] = Activation(output[i] + bias[i % dim])
	CacheWrite                  // (src_ptr, cache_ptr, pos, head_dim, max_len): [heads][dim] into the cache [heads][max_len][dim]
	ArgmaxBlocks                // (input_ptr, block_max_vals, block_max_idxs, length): the greatest of each 1,024 numbers
	ArgmaxFinal                 // (block_max_vals, block_max_idxs, output_idx, num_blocks): the index of the greatest
)

// kinds names the kinds: first the name of the command, then those of entries, as users of older systems know them.
var kinds = [][]string{
	GemmNaive:       {"gemm-naive", "gemm_naive"},
	GemmTiled:       {"gemm-tiled", "gemm_tiled"},
	GemmTensorCore:  {"gemm-tensor-core", "gemm_tensor_core"},
	Softmax:         {"softmax", "softmax_warp_shuffle", "softmax_warp"},
	LayerNorm:       {"layer-norm", "layernorm_warp_shuffle", "layernorm"},
	Attention:       {"attention", "flash_attention"},
	QuantizedGemm:   {"quantized-gemm", "q4k_gemm_fused"},
	Gemv:            {"gemv", "gemv_warp_reduce"},
	Dequantize:      {"dequantize", "q4k_dequant_to_f32"},
	Quantize:        {"quantize", "q8_quantize"},
	DecodeAttention: {"decode-attention", "incremental_attention"},
	AddRMSNorm:      {"add-rms-norm", "fused_residual_rmsnorm"},
	RoPE:            {"rope", "rope"},
	SiLU:            {"silu", "silu"},
	GELU:            {"gelu", "gelu"},
	Mul:             {"mul", "elementwise_mul"},
	Add:             {"add", "residual_add"},
	SwiGLU:          {"swiglu", "fused_swiglu"},
	BiasActivation:  {"bias-activation", "bias_activation"},
	CacheWrite:      {"cache-write", "kv_cache_scatter"},
	ArgmaxBlocks:    {"argmax-blocks", "argmax_block_reduce"},
	ArgmaxFinal:     {"argmax-final", "argmax_final_reduce"},
}

// variants are the names of entries that say more than a kind.
var variants = func() map[string]Kernel {
	all := map[string]Kernel{
		"rmsnorm": {Kind: LayerNorm, RMS: true}, "flash_attention_causal": {Kind: Attention, Causal: true}, "rope_neox": {Kind: RoPE, NeoX: true},
		// Kernels above under another name of older systems.
		"gemm_wmma_fp16":                     {Kind: GemmTensorCore, Entry: "gemm_wmma_fp16"},
		"q4k_gemm_ggml":                      {Kind: QuantizedGemm, Weight: dtype.Q4_K, Entry: "q4k_gemm_ggml"},
		"gemv_coalesced":                     {Kind: Gemv, Entry: "gemv_coalesced"},
		"flash_attention_tensor_core":        {Kind: Attention, Entry: "flash_attention_tensor_core"},
		"flash_attention_tensor_core_causal": {Kind: Attention, Causal: true, Entry: "flash_attention_tensor_core_causal"},
	}
	for _, k := range []Kind{QuantizedGemm, Gemv, Dequantize} {
		for _, weight := range Weights() {
			all[KernelName(Kernel{Kind: k, Weight: weight})] = Kernel{Kind: k, Weight: weight}
		}
	}
	return all
}()

// Weights lists the formats of weights that QuantizedGemm, Gemv and Dequantize read.
func Weights() []dtype.Type {
	return []dtype.Type{dtype.Q4_K, dtype.Q5_K, dtype.Q6_K, dtype.Q8_0, dtype.Q5_0, dtype.Q4_0, dtype.Q4_1}
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

// Lookup finds a kernel by a name: that of a kind ("softmax") or of an entry ("flash_attention_causal", "q6k_gemv_warp_reduce"),
// also as older systems spell it ("softmax_warp", "gemm_wmma_fp16"), with "-" or "_". The result lacks its sizes.
func Lookup(name string) (Kernel, error) {
	spelled := strings.ReplaceAll(name, "-", "_")
	if k, ok := variants[spelled]; ok {
		return k, nil
	}
	for kind, names := range kinds {
		for _, n := range names {
			if spelled == strings.ReplaceAll(n, "-", "_") {
				return Kernel{Kind: Kind(kind)}, nil
			}
		}
	}
	return Kernel{}, fmt.Errorf("ptx: unknown kernel %q: want one of %s", name, strings.Join(Names(), ", "))
}

// Names lists the names that Lookup takes.
func Names() []string {
	var all []string
	for _, names := range kinds {
		all = append(all, names...)
	}
	all = slices.AppendSeq(all, maps.Keys(variants))
	slices.Sort(all)
	return slices.Compact(all)
}

// Activation is the function that BiasActivation ends with.
type Activation int

// The activations of BiasActivation.
const (
	NoActivation Activation = iota
	ReLU
	QuickGELU // x sigmoid(1.702 x)
)

// Kernel is a kernel with its sizes. The zero values of everything but the sizes are the usual choices.
type Kernel struct {
	Kind       Kind
	M, N, K    int        // of products, K in whole blocks of weights; Dequantize: N rows of K; N elements, or blocks of ArgmaxFinal
	Rows       int        // of Softmax and norms
	Dim        int        // elements of a row, of a head (at most 256) or of a bias
	Seq, Heads int        // Seq of Attention; Heads also of other kinds
	Tile       int        // of GemmTiled: 8, 16 or 32; 0 for 16
	Epsilon    float32    // of norms, added to the variance
	RMS        bool       // LayerNorm subtracts no mean and has no beta: RMSNorm
	Plain      bool       // norms have neither gamma nor beta: their pointers are not read
	Causal     bool       // Attention: a query sees the keys up to its own position
	Weight     dtype.Type // one of Weights; F32, the zero value, is Q4_K but for Gemv
	KVHeads    int        // of DecodeAttention: a divisor of Heads; 0 for Heads
	Capacity   int        // of DecodeAttention: keys that a head's cache has room for
	Theta      float32    // of RoPE: its base; 0 for 10000
	NeoX       bool       // RoPE pairs element i with i + Dim/2, not with its neighbour
	Activation Activation // of BiasActivation
	Entry      string     // the entry's name; "" for the kind's own
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
		Epsilon: k.Epsilon, RMS: k.RMS, Plain: k.Plain, Causal: k.Causal, Weight: k.Weight, KVHeads: k.KVHeads, Capacity: k.Capacity,
		Theta: k.Theta, NeoX: k.NeoX, Activation: int(k.Activation), Entry: k.Entry,
	})
	if err != nil {
		return Module{}, fmt.Errorf("ptx: %s: %w", k.Kind, err)
	}
	return Module{Text: text, Entry: entry, GridX: launch.GridX, GridY: launch.GridY, Threads: launch.Threads}, nil
}

// KernelName returns the name of a kernel's entry, whatever its sizes.
func KernelName(k Kernel) string {
	switch {
	case k.Entry != "":
		return k.Entry
	case k.Kind == LayerNorm && k.RMS:
		return "rmsnorm"
	case k.Kind == Attention && k.Causal:
		return "flash_attention_causal"
	case k.Kind == RoPE && k.NeoX:
		return "rope_neox"
	case k.Kind < 0 || int(k.Kind) >= len(kinds):
		return ""
	}
	weight := strings.Replace(strings.ToLower(k.Weight.String()), "_k", "k", 1)
	switch {
	case k.Weight == dtype.F32 || k.Weight == dtype.Q4_K && k.Kind != Gemv:
	case k.Kind == QuantizedGemm:
		return weight + "_gemm_ggml"
	case k.Kind == Gemv:
		return weight + "_gemv_warp_reduce"
	case k.Kind == Dequantize && k.Weight == dtype.Q8_0:
		return "q8_dequant"
	case k.Kind == Dequantize:
		return weight + "_dequant_to_f32"
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
		return 0, fmt.Errorf("ptx: target %q: want a compute capability such as sm_80: %w", s, kernel.ErrInvalid)
	}
	return n, nil
}

// LlamaAttention is causal attention of Llama's 32 heads.
func LlamaAttention(seq, dim int) Kernel {
	return Kernel{Kind: Attention, Seq: seq, Heads: 32, Dim: dim, Causal: true}
}

// MultiHeadAttention is causal attention of so many heads.
func MultiHeadAttention(seq, dim, heads int) Kernel {
	return Kernel{Kind: Attention, Seq: seq, Heads: heads, Dim: dim, Causal: true}
}

// TensorCoreAttention is MultiHeadAttention under the name flash_attention_tensor_core_causal of older systems. Its numbers are F32
// as well, and it computes in float32.
func TensorCoreAttention(seq, dim, heads int) Kernel {
	k := MultiHeadAttention(seq, dim, heads)
	k.Entry = "flash_attention_tensor_core_causal"
	return k
}

// LlamaTensorCoreAttention is TensorCoreAttention of Llama's 32 heads of 128 elements.
func LlamaTensorCoreAttention(seq int) Kernel { return TensorCoreAttention(seq, 128, 32) }

// Phi2Attention is causal attention of Phi-2's 32 heads of 80 elements.
func Phi2Attention(seq int) Kernel { return MultiHeadAttention(seq, 80, 32) }

// FFNGemm is the product of [batch][hidden] with the [hidden][ffn] matrix of a feed-forward layer, in tiles of 32.
func FFNGemm(batch, hidden, ffn int) Kernel {
	return Kernel{Kind: GemmTiled, M: batch, N: ffn, K: hidden, Tile: 32}
}

// Q4KInference is the product of m rows of k elements with n rows of Q4_K; k is a multiple of 256.
func Q4KInference(m, n, k int) Kernel { return Kernel{Kind: QuantizedGemm, M: m, N: n, K: k} }

// Q4KGGMLInference is Q4KInference under the name q4k_gemm_ggml of older systems.
func Q4KGGMLInference(m, n, k int) Kernel {
	return Kernel{Kind: QuantizedGemm, M: m, N: n, K: k, Entry: "q4k_gemm_ggml"}
}

// RMSNorm is the norm of one row without a weight, epsilon 1e-6.
func RMSNorm(hidden int) Kernel {
	return Kernel{Kind: LayerNorm, Rows: 1, Dim: hidden, Epsilon: 1e-6, RMS: true, Plain: true}
}

// CUDALikelyAvailable says whether a GPU is probably there, without loading the driver (gpu.Devices does): the driver has made a
// device file of a card, and CUDA_VISIBLE_DEVICES does not hide it.
func CUDALikelyAvailable() bool {
	visible, ok := os.LookupEnv("CUDA_VISIBLE_DEVICES")
	return (!ok || namesGPU(visible)) && hasGPU("/dev")
}

// hasGPU looks for the files of a card, a Jetson, and Windows' subsystem. A container may have those of other cards than the first.
func hasGPU(folder string) bool {
	for _, name := range []string{"nvidia[0-9]*", "nvhost-gpu", "dxg"} {
		if found, err := filepath.Glob(filepath.Join(folder, name)); err == nil && len(found) > 0 {
			return true
		}
	}
	return false
}

// namesGPU reports whether a list of visible devices begins with one: a number, or the name of a GPU or of a part of one. The driver
// shows what comes before the first that is none.
func namesGPU(visible string) bool {
	first, _, _ := strings.Cut(visible, ",")
	first = strings.TrimSpace(first)
	n, err := strconv.Atoi(first)
	return err == nil && n >= 0 || strings.HasPrefix(first, "GPU-") || strings.HasPrefix(first, "MIG-")
}
