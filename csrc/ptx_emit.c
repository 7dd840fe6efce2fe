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

static int64_t tiles(int64_t n, int64_t size) { return (n + size - 1) / size; }
static int tile_of(const vb_ptx_kernel *p) { return p->tile ? p->tile : 16; }
/* of a warp: 48 KiB of shared memory hold a block's */
static int queries_of(const vb_ptx_kernel *p) { return p->dim > 192 ? 2 : 4; }
static int target_of(const vb_ptx_kernel *p) { return p->target ? p->target : 70; }
/* Vectors that a thread of an element-wise kernel computes: it loads two of its inputs. */
static int vectors_of(const vb_ptx_kernel *p) { return p->kind == VB_PTX_SILU || p->kind == VB_PTX_GELU ? 2 : 1; }
static int64_t kv_heads_of(const vb_ptx_kernel *p) { return p->kv_heads ? p->kv_heads : p->heads; }
static bool is_size(int64_t n) { return n >= 1 && n <= INT32_MAX; }

/* ---- the mistake in the parameters of each kind, NULL if there is none ------------------------------------------- */

static const char *wrong_matrices(const vb_ptx_kernel *p) {
    if (!is_size(p->m) || !is_size(p->n) || !is_size(p->k)) return "m, n, k: want 1 to 2147483647 each";
    return p->m > 65535 * 8 ? "m: want at most 524280" : NULL;
}

static const char *wrong_tile(const vb_ptx_kernel *p) {
    if (p->tile != 0 && p->tile != 8 && p->tile != 16 && p->tile != 32) return "tile: want 8, 16 or 32";
    return wrong_matrices(p);
}

static const char *wrong_stored(const vb_ptx_kernel *p) {
    const struct stored *s = stored_of(p);
    if (!s) return "weight: want Q4_K, Q5_K, Q6_K, Q8_0, Q5_0, Q4_0 or Q4_1";
    if (p->k % vb_dtype_block_size(s->type) == 0) return NULL;
    return vb_dtype_block_size(s->type) == 256 ? "k: a row is blocks of 256 elements, want a multiple"
                                               : "k: a row is blocks of 32 elements, want a multiple";
}

static const char *wrong_quantized_gemm(const vb_ptx_kernel *p) {
    const char *wrong = wrong_matrices(p);
    return wrong ? wrong : wrong_stored(p);
}

static const char *wrong_gemv(const vb_ptx_kernel *p) {
    if (!is_size(p->n) || !is_size(p->k)) return "n, k: want 1 to 2147483647 each";
    return is_f32_gemv(p) ? NULL : wrong_stored(p);
}

static const char *wrong_dequantize(const vb_ptx_kernel *p) {
    if (!is_size(p->n) || !is_size(p->k)) return "n, k: want 1 to 2147483647 each";
    return p->k > 65535 * 256 ? "k: want at most 16776960" : wrong_stored(p);
}

static const char *wrong_rows(const vb_ptx_kernel *p) {
    return is_size(p->rows) && is_size(p->dim) ? NULL : "rows, dim: want 1 to 2147483647 each";
}

static const char *wrong_norm(const vb_ptx_kernel *p) {
    const char *wrong = wrong_rows(p);
    return wrong || (p->epsilon >= 0 && p->epsilon < 1) ? wrong : "epsilon: want 0 to 1";
}

static const char *wrong_heads(const vb_ptx_kernel *p) {
    if (p->heads < 1 || p->heads > 65535) return "heads: want 1 to 65535";
    return p->dim < 1 || p->dim > 256 ? "dim: want 1 to 256 elements a head" : NULL;
}

static const char *wrong_attention(const vb_ptx_kernel *p) {
    const char *wrong = wrong_heads(p);
    return wrong || is_size(p->seq) ? wrong : "seq: want 1 to 2147483647";
}

static const char *wrong_decode_attention(const vb_ptx_kernel *p) {
    const char *wrong = wrong_heads(p);
    if (wrong) return wrong;
    if (kv_heads_of(p) < 1 || p->heads % kv_heads_of(p)) return "kv_heads: want a divisor of heads";
    return is_size(p->capacity) ? NULL : "capacity: want 1 to 2147483647";
}

static const char *wrong_rope(const vb_ptx_kernel *p) {
    const char *wrong = wrong_heads(p);
    if (wrong) return wrong;
    if (p->dim % 2) return "dim: RoPE turns pairs, want an even number";
    return p->theta == 0 || (p->theta >= 1 && p->theta <= 1e30f) ? NULL : "theta: want 1 to 1e30";
}

static const char *wrong_elements(const vb_ptx_kernel *p) { return is_size(p->n) ? NULL : "n: want 1 to 2147483647"; }

static const char *wrong_bias(const vb_ptx_kernel *p) {
    if (!is_size(p->dim)) return "dim: want 1 to 2147483647";
    if (p->activation < 0 || p->activation > 2) return "activation: want 0 for none, 1 for ReLU or 2 for GELU";
    return wrong_elements(p);
}

/* ---- the launch of each kind ------------------------------------------------------------------------------------- */

static vb_ptx_launch_size of_blocks(int64_t x, int64_t y, int threads) { return (vb_ptx_launch_size){x, y, threads}; }

static vb_ptx_launch_size of_squares(const vb_ptx_kernel *p, int square, int threads) {
    return of_blocks(tiles(p->n, square), tiles(p->m, square), threads);
}

static vb_ptx_launch_size launch_naive(const vb_ptx_kernel *p) { return of_squares(p, 16, 256); }
static vb_ptx_launch_size launch_tiled(const vb_ptx_kernel *p) {
    return of_squares(p, tile_of(p), tile_of(p) * tile_of(p));
}
static vb_ptx_launch_size launch_tensor_core(const vb_ptx_kernel *p) {
    const int square = target_of(p) >= 80 ? 128 : 64;
    return of_squares(p, square, square * 2);
}
static vb_ptx_launch_size launch_rows(const vb_ptx_kernel *p) { return of_blocks(p->rows, 1, ROW_THREADS); }
static vb_ptx_launch_size launch_attention(const vb_ptx_kernel *p) {
    return of_blocks(tiles(p->seq, 4 * queries_of(p)), p->heads, 128);
}
static vb_ptx_launch_size launch_quantized_gemm(const vb_ptx_kernel *p) {
    return of_blocks(tiles(p->n, 4), tiles(p->m, QUANTIZED_ROWS), 128);
}
static vb_ptx_launch_size launch_gemv(const vb_ptx_kernel *p) {
    return is_f32_gemv(p) ? of_blocks(tiles(p->n, 32), 1, ROW_THREADS) : of_blocks(tiles(p->n, 4), 1, 128);
}
static vb_ptx_launch_size launch_dequantize(const vb_ptx_kernel *p) {
    return of_blocks(p->n, tiles(p->k, 256), ROW_THREADS);
}
static vb_ptx_launch_size launch_heads(const vb_ptx_kernel *p) { return of_blocks(p->heads, 1, 128); }
static vb_ptx_launch_size launch_cache_write(const vb_ptx_kernel *p) { return of_blocks(p->heads, 1, ROW_THREADS); }
static vb_ptx_launch_size launch_elements(const vb_ptx_kernel *p) {
    return of_blocks(tiles(p->n, 256), 1, ROW_THREADS);
}
static vb_ptx_launch_size launch_map(const vb_ptx_kernel *p) {
    return of_blocks(tiles(p->n, vectors_of(p) * ROW_THREADS * 4), 1, ROW_THREADS);
}
static vb_ptx_launch_size launch_argmax(const vb_ptx_kernel *p) {
    return of_blocks(tiles(p->n, 1024), 1, ROW_THREADS);
}
static vb_ptx_launch_size launch_once(const vb_ptx_kernel *p) {
    (void)p;
    return of_blocks(1, 1, ROW_THREADS);
}

/* ---- the table --------------------------------------------------------------------------------------------------- */

static const char *norm_name(const vb_ptx_kernel *p) { return p->rms ? "rmsnorm" : "layernorm_warp_shuffle"; }
static const char *attention_name(const vb_ptx_kernel *p) {
    return p->causal ? "flash_attention_causal" : "flash_attention";
}
static const char *gemm_name(const vb_ptx_kernel *p) { return stored_of(p)->gemm; }
static const char *gemv_name(const vb_ptx_kernel *p) {
    return is_f32_gemv(p) ? "gemv_warp_reduce" : stored_of(p)->gemv;
}
static const char *dequantize_name(const vb_ptx_kernel *p) { return stored_of(p)->dequantize; }
static const char *rope_name(const vb_ptx_kernel *p) { return p->neox ? "rope_neox" : "rope"; }

static const char *tensor_core_source(const vb_ptx_kernel *p) {
    return target_of(p) >= 80 ? vb_ptx_gemm_mma : vb_ptx_gemm_wmma;
}
static const char *quantized_gemm_source(const vb_ptx_kernel *p) {
    return stored_of(p)->type == VB_Q4_K ? vb_ptx_gemm_q4k : vb_ptx_gemm_quantized;
}
static const char *gemv_source(const vb_ptx_kernel *p) {
    return is_f32_gemv(p) ? vb_ptx_gemv : vb_ptx_gemv_quantized;
}

/* What a kind of kernel is. Where parameters decide on the name or the text, a function says which it is. */
static const struct kind {
    const char *(*wrong)(const vb_ptx_kernel *p);
    vb_ptx_launch_size (*launch)(const vb_ptx_kernel *p);
    const char *name, *source;
    const char *(*name_of)(const vb_ptx_kernel *p), *(*source_of)(const vb_ptx_kernel *p);
    int op; /* of elements */
} kinds[] = {
    [VB_PTX_GEMM_NAIVE] = {wrong_matrices, launch_naive, "gemm_naive", vb_ptx_gemm_naive},
    [VB_PTX_GEMM_TILED] = {wrong_tile, launch_tiled, "gemm_tiled", vb_ptx_gemm_tiled},
    [VB_PTX_GEMM_TENSOR_CORE] = {wrong_matrices, launch_tensor_core, "gemm_tensor_core",
                                 .source_of = tensor_core_source},
    [VB_PTX_SOFTMAX] = {wrong_rows, launch_rows, "softmax_warp_shuffle", vb_ptx_softmax},
    [VB_PTX_LAYER_NORM] = {wrong_norm, launch_rows, .name_of = norm_name, .source = vb_ptx_norm},
    [VB_PTX_ATTENTION] = {wrong_attention, launch_attention, .name_of = attention_name, .source = vb_ptx_attention},
    [VB_PTX_QUANTIZED_GEMM] = {wrong_quantized_gemm, launch_quantized_gemm, .name_of = gemm_name,
                               .source_of = quantized_gemm_source},
    [VB_PTX_GEMV] = {wrong_gemv, launch_gemv, .name_of = gemv_name, .source_of = gemv_source},
    [VB_PTX_DEQUANTIZE] = {wrong_dequantize, launch_dequantize, .name_of = dequantize_name,
                           .source = vb_ptx_dequantize},
    [VB_PTX_QUANTIZE] = {wrong_elements, launch_elements, "q8_quantize", vb_ptx_quantize},
    [VB_PTX_DECODE_ATTENTION] = {wrong_decode_attention, launch_heads, "incremental_attention",
                                 vb_ptx_decode_attention},
    [VB_PTX_ADD_RMS_NORM] = {wrong_norm, launch_rows, "fused_residual_rmsnorm", vb_ptx_add_rms_norm},
    [VB_PTX_ROPE] = {wrong_rope, launch_heads, .name_of = rope_name, .source = vb_ptx_rope},
    [VB_PTX_SILU] = {wrong_elements, launch_map, "silu", vb_ptx_elements, .op = VB_JIT_SILU},
    [VB_PTX_GELU] = {wrong_elements, launch_map, "gelu", vb_ptx_elements, .op = VB_JIT_GELU_TANH},
    [VB_PTX_MUL] = {wrong_elements, launch_map, "elementwise_mul", vb_ptx_elements, .op = VB_JIT_MUL},
    [VB_PTX_ADD] = {wrong_elements, launch_map, "residual_add", vb_ptx_elements, .op = VB_JIT_ADD},
    [VB_PTX_SWIGLU] = {wrong_elements, launch_map, "fused_swiglu", vb_ptx_elements, .op = VB_JIT_SWIGLU},
    [VB_PTX_BIAS] = {wrong_bias, launch_map, "bias_activation", vb_ptx_elements},
    [VB_PTX_CACHE_WRITE] = {wrong_heads, launch_cache_write, "kv_cache_scatter", vb_ptx_cache_write},
    [VB_PTX_ARGMAX_BLOCKS] = {wrong_elements, launch_argmax, "argmax_block_reduce", vb_ptx_argmax_blocks},
    [VB_PTX_ARGMAX_FINAL] = {wrong_elements, launch_once, "argmax_final_reduce", vb_ptx_argmax_final},
};

/* The mistake in the parameters, NULL if there is none. */
static const char *wrong(const vb_ptx_kernel *p) {
    static const int targets[] = {70, 72, 75, 80, 86, 87, 89, 90, 100, 120};
    bool known = p->target == 0;
    for (size_t i = 0; i < sizeof targets / sizeof *targets; i++) known |= p->target == targets[i];
    if (!known) return "target: want sm_70, 72, 75, 80, 86, 87, 89, 90, 100 or 120";
    if (p->entry && !is_name(p->entry)) return "entry: want up to 63 letters, digits and underscores";
    return (size_t)p->kind < sizeof kinds / sizeof *kinds ? kinds[p->kind].wrong(p) : "kind: unknown";
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
    const struct kind *kind = &kinds[p->kind];
    return p->entry ? p->entry : kind->name ? kind->name : kind->name_of(p);
}

const char *vb_ptx_name(const vb_ptx_kernel *kernel) {
    vb_ptx_kernel p;
    return take_kernel(&p, kernel) ? "" : name_of(&p);
}

vb_status vb_ptx_launch(vb_ptx_launch_size *size, const vb_ptx_kernel *kernel) {
    vb_ptx_kernel p;
    if (!size || take_kernel(&p, kernel)) return VB_INVALID_ARGUMENT;
    *size = kinds[p.kind].launch(&p);
    return VB_OK;
}

/* The text of a kernel with its gaps. */
static const char *source_of(const vb_ptx_kernel *p) {
    const struct kind *kind = &kinds[p->kind];
    return kind->source ? kind->source : kind->source_of(p);
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
    const int op = kinds[p->kind].op;
    const bool activation = op == VB_JIT_SILU || op == VB_JIT_GELU_TANH, glu = op == VB_JIT_SWIGLU;
    const bool bias = p->kind == VB_PTX_BIAS;
    const vb_jit_filling f = {
        .decode = stored_of(p) ? vb_jit_decode(stored_of(p)->type) : NULL,
        .texts = {
            {"SIZES", p->rms ? "" : ", f32 *beta, u32 hidden, u32 batch"},
            {"FORMULA", bias ? vb_ptx_bias : vb_jit_formula},
            {"PARAMETERS", bias ? "f32 *output, f32 *bias"
                           : activation ? "f32 *input_ptr, f32 *output_ptr"
                           : glu ? "f32 *gate_ptr, f32 *up_ptr, f32 *output_ptr"
                                 : "f32 *input1_ptr, f32 *input2_ptr, f32 *output_ptr"},
            {"TO", bias ? "output" : "output_ptr"},
            {"FIRST", bias ? "output" : activation ? "input_ptr" : glu ? "gate_ptr" : "input1_ptr"},
            {"SECOND", bias ? "bias" : glu ? "up_ptr" : "input2_ptr"},
            {"WRAP", bias ? "% DIM" : ""},
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
    const bool in_registers = rounds <= MOST_ROUNDS, map = kinds[p->kind].launch == launch_map;
    const bool vectors = kinds[p->kind].launch == launch_rows || p->kind == VB_PTX_BIAS ? p->dim % 4 == 0
                                                                     : map || (p->k % 8 == 0 && p->n % 8 == 0);
    const int op = kinds[p->kind].op;
    const vb_dtype type = stored_of(p) ? stored_of(p)->type : VB_Q4_K;
    const double scale = p->dim > 0 ? 1.4426950408889634 / sqrt((double)p->dim) : 0;
    const vb_ptx_constant constants[] = {
        {"TILE", tile_of(p), false},
        {"THREADS", ROW_THREADS, false},
        {"ROUNDS", map ? vectors_of(p) : in_registers ? rounds : 1, false},
        {"IN_REGISTERS", in_registers, false},
        {"VECTORS", vectors, false},
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
        {"KV_HEADS", (double)kv_heads_of(p), false},
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
