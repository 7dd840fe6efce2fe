/* ptx_emit.c: which text a kernel of vb_ptx_emit is, its entry's name, its parameters and its launch. */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "checks.h"
#include "ptx_kernels.h"
#include "ptx_strided.h"

enum { ROW_THREADS = 256, MOST_ROUNDS = 8, QUANTIZED_ROWS = 8 };

/* The stored weights that kernels read, and the names of the entries that do. */
static const struct stored { vb_dtype type; const char *gemm, *gemv, *dequantize; } all_stored[] = {
    {VB_Q4_K, "q4k_gemm_fused", "q4k_gemv_warp_reduce", "q4k_dequant_to_f32"},
    {VB_Q5_K, "q5k_gemm_ggml", "q5k_gemv_warp_reduce", "q5k_dequant_to_f32"},
    {VB_Q6_K, "q6k_gemm_ggml", "q6k_gemv_warp_reduce", "q6k_dequant_to_f32"},
    {VB_Q8_0, "q8_0_gemm_ggml", "q8_0_gemv_warp_reduce", "q8_dequant"},
    {VB_Q5_0, "q5_0_gemm_ggml", "q5_0_gemv_warp_reduce", "q5_0_dequant_to_f32"},
    {VB_Q4_0, "q4_0_gemm_ggml", "q4_0_gemv_warp_reduce", "q4_0_dequant_to_f32"},
    {VB_Q4_1, "q4_1_gemm_ggml", "q4_1_gemv_warp_reduce", "q4_1_dequant_to_f32"},
};

static const struct stored *stored_of(const vb_ptx_kernel *p) {
    if (p->weight == VB_F32) return all_stored;
    for (size_t i = 0; i < sizeof all_stored / sizeof *all_stored; i++)
        if (p->weight == all_stored[i].type) return &all_stored[i];
    return NULL;
}

static bool is_f32_gemv(const vb_ptx_kernel *p) { return p->kind == VB_PTX_GEMV && p->weight == VB_F32; }

/* A letter or an underscore, then also digits. */
static bool is_name(const char *text) {
    enum { MOST = 63 };
    size_t n = 0;
    for (; text[n]; n++) {
        const char c = text[n];
        const bool digit = c >= '0' && c <= '9';
        if (n == MOST || (n == 0 && digit)) return false;
        if (!digit && c != '_' && !(c >= 'a' && c <= 'z') && !(c >= 'A' && c <= 'Z')) return false;
    }
    return n > 0;
}

/* The mistake in the parameters of a product or of a conversion, NULL if there is none. */
static const char *wrong_product(const vb_ptx_kernel *p) {
    const int64_t most = INT32_MAX;
    const bool matrix = p->kind != VB_PTX_GEMV && p->kind != VB_PTX_DEQUANTIZE;
    if (p->n < 1 || p->k < 1 || p->n > most || p->k > most || (matrix && (p->m < 1 || p->m > most)))
        return matrix ? "m, n, k: want 1 to 2147483647 each" : "n, k: want 1 to 2147483647 each";
    if (matrix && p->m > 65535 * 8) return "m: want at most 524280";
    if (p->kind == VB_PTX_DEQUANTIZE && p->k > 65535 * 256) return "k: want at most 16776960";
    if (p->kind != VB_PTX_QUANTIZED_GEMM && p->kind != VB_PTX_DEQUANTIZE && p->kind != VB_PTX_GEMV) return NULL;
    if (is_f32_gemv(p)) return NULL;
    const struct stored *s = stored_of(p);
    if (!s) return "weight: want Q4_K, Q5_K, Q6_K, Q8_0, Q5_0, Q4_0 or Q4_1";
    if (p->k % vb_dtype_block_size(s->type) == 0) return NULL;
    return vb_dtype_block_size(s->type) == 256 ? "k: a row is blocks of 256 elements, want a multiple"
                                               : "k: a row is blocks of 32 elements, want a multiple";
}

/* The same of what has heads. */
static const char *wrong_heads(const vb_ptx_kernel *p) {
    const int64_t most = INT32_MAX, kv_heads = p->kv_heads ? p->kv_heads : p->heads;
    if (p->heads < 1 || p->heads > 65535) return "heads: want 1 to 65535";
    if (p->dim < 1 || p->dim > 256) return "dim: want 1 to 256 elements a head";
    switch (p->kind) {
    case VB_PTX_ATTENTION: return p->seq < 1 || p->seq > most ? "seq: want 1 to 2147483647" : NULL;
    case VB_PTX_ROPE:
        if (p->dim % 2) return "dim: RoPE turns pairs, want an even number";
        return p->theta != 0 && !(p->theta >= 1 && p->theta <= 1e30f) ? "theta: want 1 to 1e30" : NULL;
    case VB_PTX_DECODE_ATTENTION:
        if (kv_heads < 1 || p->heads % kv_heads) return "kv_heads: want a divisor of heads";
        return p->capacity < 1 || p->capacity > most ? "capacity: want 1 to 2147483647" : NULL;
    default: return NULL;
    }
}

/* The mistake in the parameters, NULL if there is none. */
static const char *wrong(const vb_ptx_kernel *p) {
    static const int targets[] = {70, 72, 75, 80, 86, 87, 89, 90, 100, 120};
    bool known = p->target == 0;
    for (size_t i = 0; i < sizeof targets / sizeof *targets; i++) known |= p->target == targets[i];
    if (!known) return "target: want sm_70, 72, 75, 80, 86, 87, 89, 90, 100 or 120";
    if (p->entry && !is_name(p->entry)) return "entry: want up to 63 letters, digits and underscores";
    const int64_t most = INT32_MAX;
    switch (p->kind) {
    case VB_PTX_GEMM_TILED:
        if (p->tile != 0 && p->tile != 8 && p->tile != 16 && p->tile != 32) return "tile: want 8, 16 or 32";
        /* fallthrough */
    case VB_PTX_GEMM_NAIVE:
    case VB_PTX_GEMM_TENSOR_CORE:
    case VB_PTX_QUANTIZED_GEMM:
    case VB_PTX_GEMV:
    case VB_PTX_DEQUANTIZE: return wrong_product(p);
    case VB_PTX_SOFTMAX:
    case VB_PTX_LAYER_NORM:
    case VB_PTX_ADD_RMS_NORM:
        if (p->rows < 1 || p->dim < 1 || p->rows > most || p->dim > most) return "rows, dim: want 1 to 2147483647 each";
        return p->kind != VB_PTX_SOFTMAX && !(p->epsilon >= 0 && p->epsilon < 1) ? "epsilon: want 0 to 1" : NULL;
    case VB_PTX_ATTENTION:
    case VB_PTX_DECODE_ATTENTION:
    case VB_PTX_ROPE:
    case VB_PTX_CACHE_WRITE: return wrong_heads(p);
    case VB_PTX_BIAS:
        if (p->dim < 1 || p->dim > most) return "dim: want 1 to 2147483647";
        if (p->activation < 0 || p->activation > 2) return "activation: want 0 for none, 1 for ReLU or 2 for GELU";
        /* fallthrough */
    case VB_PTX_QUANTIZE:
    case VB_PTX_SILU:
    case VB_PTX_GELU:
    case VB_PTX_MUL:
    case VB_PTX_ADD:
    case VB_PTX_SWIGLU:
    case VB_PTX_ARGMAX_BLOCKS:
    case VB_PTX_ARGMAX_FINAL: return p->n < 1 || p->n > most ? "n: want 1 to 2147483647" : NULL;
    }
    return "kind: unknown";
}

/* Copies a caller's parameters. Returns the mistake in them, NULL if there is none. */
static const char *take_kernel(vb_ptx_kernel *p, const vb_ptx_kernel *kernel) {
    if (!kernel) return "kernel: null";
    return take(p, sizeof *p, kernel) ? wrong(p) : "kernel->size: not sizeof(vb_ptx_kernel)";
}

const char *vb_ptx_invalid(const vb_ptx_kernel *kernel) {
    vb_ptx_kernel p;
    return take_kernel(&p, kernel);
}

static const char *name_of(const vb_ptx_kernel *p) {
    if (p->entry) return p->entry;
    switch (p->kind) {
    case VB_PTX_GEMM_NAIVE: return "gemm_naive";
    case VB_PTX_GEMM_TILED: return "gemm_tiled";
    case VB_PTX_GEMM_TENSOR_CORE: return "gemm_tensor_core";
    case VB_PTX_SOFTMAX: return "softmax_warp_shuffle";
    case VB_PTX_LAYER_NORM: return p->rms ? "rmsnorm" : "layernorm_warp_shuffle";
    case VB_PTX_ATTENTION: return p->causal ? "flash_attention_causal" : "flash_attention";
    case VB_PTX_QUANTIZED_GEMM: return stored_of(p)->gemm;
    case VB_PTX_GEMV: return is_f32_gemv(p) ? "gemv_warp_reduce" : stored_of(p)->gemv;
    case VB_PTX_DEQUANTIZE: return stored_of(p)->dequantize;
    case VB_PTX_QUANTIZE: return "q8_quantize";
    case VB_PTX_DECODE_ATTENTION: return "incremental_attention";
    case VB_PTX_ADD_RMS_NORM: return "fused_residual_rmsnorm";
    case VB_PTX_ROPE: return p->neox ? "rope_neox" : "rope";
    case VB_PTX_SILU: return "silu";
    case VB_PTX_GELU: return "gelu";
    case VB_PTX_MUL: return "elementwise_mul";
    case VB_PTX_ADD: return "residual_add";
    case VB_PTX_SWIGLU: return "fused_swiglu";
    case VB_PTX_BIAS: return "bias_activation";
    case VB_PTX_CACHE_WRITE: return "kv_cache_scatter";
    case VB_PTX_ARGMAX_BLOCKS: return "argmax_block_reduce";
    case VB_PTX_ARGMAX_FINAL: return "argmax_final_reduce";
    }
    return "";
}

const char *vb_ptx_name(const vb_ptx_kernel *kernel) {
    vb_ptx_kernel p;
    return take_kernel(&p, kernel) ? "" : name_of(&p);
}

static int64_t tiles(int64_t n, int64_t size) { return (n + size - 1) / size; }
static int tile_of(const vb_ptx_kernel *p) { return p->tile ? p->tile : 16; }
/* of a warp: 48 KiB of shared memory hold a block's */
static int queries_of(const vb_ptx_kernel *p) { return p->dim > 192 ? 2 : 4; }
static int target_of(const vb_ptx_kernel *p) { return p->target ? p->target : 70; }

vb_status vb_ptx_launch(vb_ptx_launch_size *size, const vb_ptx_kernel *kernel) {
    vb_ptx_kernel known;
    const vb_ptx_kernel *p = &known;
    if (!size || take_kernel(&known, kernel)) return VB_INVALID_ARGUMENT;
    int64_t x = 1, y = 1;
    int threads = ROW_THREADS, square = 16;
    switch (p->kind) {
    case VB_PTX_GEMM_TILED: square = tile_of(p), threads = square * square; break;
    case VB_PTX_GEMM_TENSOR_CORE: square = target_of(p) >= 80 ? 128 : 64, threads = square * 2; break;
    case VB_PTX_SOFTMAX:
    case VB_PTX_LAYER_NORM:
    case VB_PTX_ADD_RMS_NORM: x = p->rows; break;
    case VB_PTX_ATTENTION: x = tiles(p->seq, 4 * queries_of(p)), y = p->heads, threads = 128; break;
    case VB_PTX_QUANTIZED_GEMM: x = tiles(p->n, 4), y = tiles(p->m, QUANTIZED_ROWS), threads = 128; break;
    case VB_PTX_GEMV:
        if (is_f32_gemv(p)) x = tiles(p->n, 32);
        else x = tiles(p->n, 4), threads = 128;
        break;
    case VB_PTX_DEQUANTIZE: x = p->n, y = tiles(p->k, 256); break;
    case VB_PTX_DECODE_ATTENTION:
    case VB_PTX_ROPE: x = p->heads, threads = 128; break;
    case VB_PTX_CACHE_WRITE: x = p->heads; break;
    case VB_PTX_QUANTIZE:
    case VB_PTX_SILU:
    case VB_PTX_GELU:
    case VB_PTX_MUL:
    case VB_PTX_ADD:
    case VB_PTX_SWIGLU:
    case VB_PTX_BIAS: x = tiles(p->n, 256); break;
    case VB_PTX_ARGMAX_BLOCKS: x = tiles(p->n, 1024); break;
    case VB_PTX_GEMM_NAIVE:
    case VB_PTX_ARGMAX_FINAL: break;
    }
    if (p->kind == VB_PTX_GEMM_NAIVE || p->kind == VB_PTX_GEMM_TILED || p->kind == VB_PTX_GEMM_TENSOR_CORE)
        x = tiles(p->n, square), y = tiles(p->m, square);
    *size = (vb_ptx_launch_size){x, y, threads};
    return VB_OK;
}

/* The text of a kernel with its gaps. */
static const char *source_of(const vb_ptx_kernel *p) {
    switch (p->kind) {
    case VB_PTX_GEMM_NAIVE: return vb_ptx_gemm_naive;
    case VB_PTX_GEMM_TILED: return vb_ptx_gemm_tiled;
    case VB_PTX_GEMM_TENSOR_CORE: return target_of(p) >= 80 ? vb_ptx_gemm_mma : vb_ptx_gemm_wmma;
    case VB_PTX_SOFTMAX: return vb_ptx_softmax;
    case VB_PTX_LAYER_NORM: return vb_ptx_norm;
    case VB_PTX_ATTENTION: return vb_ptx_attention;
    case VB_PTX_QUANTIZED_GEMM: return stored_of(p)->type == VB_Q4_K ? vb_ptx_gemm_q4k : vb_ptx_gemm_quantized;
    case VB_PTX_GEMV: return is_f32_gemv(p) ? vb_ptx_gemv : vb_ptx_gemv_quantized;
    case VB_PTX_DEQUANTIZE: return vb_ptx_dequantize;
    case VB_PTX_QUANTIZE: return vb_ptx_quantize;
    case VB_PTX_DECODE_ATTENTION: return vb_ptx_decode_attention;
    case VB_PTX_ADD_RMS_NORM: return vb_ptx_add_rms_norm;
    case VB_PTX_ROPE: return vb_ptx_rope;
    case VB_PTX_SILU:
    case VB_PTX_GELU:
    case VB_PTX_MUL:
    case VB_PTX_ADD:
    case VB_PTX_SWIGLU: return vb_ptx_elements;
    case VB_PTX_BIAS: return vb_ptx_bias;
    case VB_PTX_CACHE_WRITE: return vb_ptx_cache_write;
    case VB_PTX_ARGMAX_BLOCKS: return vb_ptx_argmax_blocks;
    case VB_PTX_ARGMAX_FINAL: return vb_ptx_argmax_final;
    }
    return NULL;
}

/* The powers of theta^(-2 / dim) that FREQUENCY of RoPE multiplies, in units of 2^-64. */
static void say_powers(vb_jit_text *text, const vb_ptx_kernel *p) {
    const double step = p->dim > 0 ? 2 * log2(p->theta != 0 ? (double)p->theta : 1e4) / (double)p->dim : 0;
    for (int64_t bit = 1; bit < p->dim / 2; bit *= 2) {
        const double power = ldexp(exp2(-step * (double)bit), 64);
        vb_jit_say(text, "if ((i & %d) != 0) frequency = multiply_high(frequency, 0x%llx);", (int)bit,
                   power < 0x1p64 ? (unsigned long long)power : UINT64_MAX);
    }
}

/* Fills the gaps that are texts, as ptx_device.h's kernels have them. */
static void fill(vb_jit_text *text, const vb_ptx_kernel *p) {
    vb_jit_text powers = {0};
    if (p->kind == VB_PTX_ROPE) say_powers(&powers, p);
    const bool activation = p->kind == VB_PTX_SILU || p->kind == VB_PTX_GELU, glu = p->kind == VB_PTX_SWIGLU;
    const vb_jit_filling f = {
        .decode = stored_of(p) ? vb_jit_decode(stored_of(p)->type) : NULL,
        .texts = {
            {"SIZES", p->rms ? "" : ", f32 *beta, u32 hidden, u32 batch"},
            {"FORMULA", vb_jit_formula},
            {"INPUTS", activation ? "f32 *input_ptr" : glu ? "f32 *gate_ptr, f32 *up_ptr"
                                                           : "f32 *input1_ptr, f32 *input2_ptr"},
            {"FIRST", activation ? "input_ptr" : glu ? "gate_ptr" : "input1_ptr"},
            {"SECOND", glu ? "up_ptr" : "input2_ptr"},
            {"TAKE", vb_ptx_argmax_take},
            {"REDUCE", vb_jit_best},
            {"QUANTIZE", vb_jit_quantize},
            {"FREQUENCY", powers.data ? powers.data : ""},
        },
    };
    vb_jit_fill(text, source_of(p), &f);
    text->failed |= powers.failed;
    free(powers.data);
}

vb_status vb_ptx_emit(char **ptx, const vb_ptx_kernel *kernel) {
    vb_ptx_kernel known;
    const vb_ptx_kernel *p = &known;
    if (!ptx) return VB_INVALID_ARGUMENT;
    *ptx = NULL;
    if (take_kernel(&known, kernel)) return VB_INVALID_ARGUMENT;
    const int rounds = (int)(p->dim > 0 ? tiles(p->dim, ROW_THREADS * 4) : 1);
    const bool rows = p->kind == VB_PTX_SOFTMAX || p->kind == VB_PTX_LAYER_NORM, in_registers = rounds <= MOST_ROUNDS;
    const int op = p->kind == VB_PTX_ADD      ? VB_JIT_ADD
                   : p->kind == VB_PTX_MUL    ? VB_JIT_MUL
                   : p->kind == VB_PTX_SWIGLU ? VB_JIT_SWIGLU
                   : p->kind == VB_PTX_SILU   ? VB_JIT_SILU
                                              : VB_JIT_GELU_TANH;
    const vb_dtype type = stored_of(p) ? stored_of(p)->type : VB_Q4_K;
    const int64_t kv_heads = p->kv_heads ? p->kv_heads : p->heads;
    const double scale = p->dim > 0 ? 1.4426950408889634 / sqrt((double)p->dim) : 0;
    const vb_ptx_constant constants[] = {
        {"TILE", tile_of(p), false},
        {"THREADS", ROW_THREADS, false},
        {"ROUNDS", in_registers ? rounds : 1, false},
        {"IN_REGISTERS", in_registers, false},
        {"VECTORS", rows ? p->dim % 4 == 0 : p->k % 8 == 0 && p->n % 8 == 0, false},
        {"MEAN", !p->rms, false},
        {"AFFINE", !p->plain, false},
        {"EPSILON", p->epsilon, true},
        {"DIM", (double)p->dim, false},
        {"SCALE", scale, true},
        {"CAUSAL", p->causal != 0, false},
        {"QUERIES", queries_of(p), false},
        {"ROWS", QUANTIZED_ROWS, false},
        {"BLOCK", (double)vb_dtype_block_size(type), false},
        {"BYTES", (double)vb_dtype_block_bytes(type), false},
        {"HEADS", (double)p->heads, false},
        {"KV_HEADS", (double)kv_heads, false},
        {"CAPACITY", (double)p->capacity, false},
        {"NEOX", p->neox != 0, false},
        {"OP", op, false},
        {"EXP", op != VB_JIT_ADD && op != VB_JIT_MUL, false},
        {"FAST", 0, false},
        {"PAIR", op != VB_JIT_SILU && op != VB_JIT_GELU_TANH, false},
        {"WARPS", ROW_THREADS / 32, false},
        {"ACTIVATION", p->activation, false},
        {"hidden", (double)p->dim, false}, /* where it is no parameter */
        {NULL, 0, false},
    };
    vb_jit_text text = {NULL, 0, 0, false};
    fill(&text, p);
    char error[256]; /* of a text: the tests compile each */
    if (!text.failed) *ptx = vb_ptx_compile(text.data, name_of(p), constants, target_of(p), error, sizeof error);
    free(text.data);
    return *ptx ? VB_OK : text.failed ? VB_OUT_OF_MEMORY : VB_INTERNAL;
}

void vb_ptx_free(char *ptx) { free(ptx); }
