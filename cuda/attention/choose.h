/* choose.h: which kernel computes attention. decode is for few query rows a key head, whose keys are read once and
 * shared among blocks; prefill for many, in tiles of their own. */
#ifndef VB_CUDA_ATTENTION_CHOOSE_H
#define VB_CUDA_ATTENTION_CHOOSE_H

#include "quant.h"
#include "runtime/chooser.h"

#define ATTENTION_KERNELS(X)                                                                                           \
    X(ATTENTION_DECODE, "attention_decode", "attention/attention_decode.cu",                                           \
      "up to 64 rows a key head over a cache of 16 bits, 8.0")                                                         \
    X(ATTENTION_DECODE_Q8, "attention_decode_q8", "attention/attention_decode_q8.cu", "the same over Q8_0")            \
    X(ATTENTION_PREFILL_SM90, "attention_prefill_sm90", "attention/attention_prefill_sm90.cu",                         \
      "more rows over a cache of 16 bits, 9.0")                                                                        \
    X(ATTENTION_PREFILL, "attention_prefill", "attention/attention_prefill.cu", "the same, 8.0")                       \
    X(ATTENTION_PREFILL_Q8_SM90, "attention_prefill_q8_sm90", "attention/attention_prefill_q8.cu",                     \
      "more rows over Q8_0, converted before, 9.0")                                                                    \
    X(ATTENTION_PREFILL_Q8, "attention_prefill_q8", "attention/attention_prefill_q8.cu", "the same, 8.0")              \
    X(ATTENTION_PADDED_SM90, "attention_padded_sm90", "attention/attention_padded.cu",                                 \
      "16 bits, heads that do not begin at multiples of 16 bytes, copied for attention_prefill_sm90, 9.0")             \
    X(ATTENTION_PADDED, "attention_padded", "attention/attention_padded.cu",                                           \
      "the same, copied for attention_prefill, 8.0")                                                                   \
    X(ATTENTION_F32, "attention_f32", "attention/attention_f32.cu", "more rows over a cache in F32, 8.0")              \
    X(ATTENTION_SIMT, "attention_simt", "attention/attention_simt.cu",                                                 \
      "anything in float32: few rows over a cache in F32, odd heads, caps, rings, GPUs before 8.0")
VB_KERNEL_FAMILY(attention, ATTENTION, ATTENTION_KERNELS)

/* ---- sizes of the kernels ---------------------------------------------------------------------------------------- */

enum {
    ATTENTION_DECODE_MOST_ROWS = 64,   /* of a key head; with more, tensor cores take tiles of them */
    /* with more there is enough to do without sharing keys, and parts would fill memory */
    ATTENTION_DECODE_SHARED_TILES = 512,
    ATTENTION_PREFILL_ROWS = 64,       /* of a tile */
    ATTENTION_PREFILL_SM90_ROWS = 64   /* of the smallest tile */
};

/* Slots of a warp's ring of attention_decode_kernel.cuh: `most` where an SM has more than 200 KiB of shared memory. It
 * is the capability that the kernel was compiled for. */
#define ATTENTION_DECODE_SLOTS(most, capability)                                                                       \
    ((capability) == 90 || (capability) == 100 ? (most) : (most) < 3 ? 2 : (most) * 2 / 3)

/* Shared memory of its block: the warps' rings, and what a cluster sends. */
static inline int64_t attention_decode_bytes(int warps, int64_t slot_bytes, int slots, int dims, int rows) {
    const int64_t ring = slots * slot_bytes, sums = (int64_t)rows * (dims + 4) * 4;
    return warps * (ring > sums ? ring : sums) + rows * dims / 4 * (int64_t)(4 * sizeof(float) + 2 * sizeof(float));
}

/* Dimensions that instances are made for, and the tile of attention_simt.cu. */
static inline int attention_dims(int64_t dim) { return dim <= 64 ? 64 : dim <= 128 ? 128 : dim <= 256 ? 256 : 576; }
static inline int attention_widest(const vb_attention_args *a) {
    return attention_dims(a->dim > a->value_dim ? a->dim : a->value_dim);
}
static inline int attention_simt_rows(const vb_attention_args *a) {
    return attention_widest(a) > 256 ? 2 : 512 / attention_widest(a);
}

/* ---- conditions -------------------------------------------------------------------------------------------------- */

static inline int64_t attention_rows(const vb_attention_args *a) { return a->seq * (a->heads / a->kv_heads); }

/* Tiles of so many query rows, of which grids have few enough. */
static inline int64_t attention_tiles(const vb_attention_args *a, int rows) {
    return vb_ceil_div(attention_rows(a), rows) * a->batch * a->kv_heads;
}

/* Whether the kernels' 32-bit counters hold the sizes. */
static inline int attention_fits_counters(const vb_attention_args *a) {
    return a->kv_len <= INT32_MAX && a->chunk <= INT32_MAX && a->kv_capacity <= INT32_MAX &&
           a->heads <= INT32_MAX / a->seq && a->batch <= INT32_MAX / a->heads;
}

/* Whether scores, keys and values are what every kernel knows; attention_simt knows the rest of vb_attention_args. */
static inline int attention_is_plain(const vb_attention_args *a) {
    return a->v && (a->value_dim == 0 || a->value_dim == a->dim) && a->dim <= 256 && !(a->soft_cap > 0) && !a->ring;
}

/* Whether rows of q and out are whole vectors of 16 bytes, of which tensor cores multiply 16-bit numbers and those of
 * Q8_0. A float32 cache keeps float32 arithmetic: models in float32 are compared to four digits. */
static inline int attention_suits_tensor_cores(const vb_attention_args *a, const vb_gpu *gpu) {
    return attention_is_plain(a) && gpu->capability >= 80 && a->kv_type != VB_F32 && a->dim % 8 == 0 &&
           vb_aligned16(a->out) && vb_aligned16(a->q) && vb_aligned16(a->k) && vb_aligned16(a->v) &&
           a->q_batch_stride % 8 == 0 && a->q_head_stride % 8 == 0 && a->q_row_stride % 8 == 0;
}

/* The arguments with copies of q, out, k and v of whole vectors of 16 bytes, whose places follow. */
static inline vb_attention_args attention_padded_args(const vb_attention_args *a) {
    vb_attention_args padded = *a;
    padded.dim = vb_ceil_div(a->dim, 8) * 8, padded.value_dim = 0;
    padded.q_row_stride = padded.dim, padded.q_head_stride = a->seq * padded.dim;
    padded.q_batch_stride = a->heads * padded.q_head_stride, padded.kv_capacity = a->kv_len;
    return padded;
}
/* Whether copies repay, which take four kernels more. */
static inline int attention_padded_suits(const vb_attention_args *a, const vb_gpu *gpu) {
    const double work = (double)a->batch * a->heads * a->seq * a->kv_len * a->dim;
    return attention_is_plain(a) && gpu->capability >= 80 && a->kv_type != VB_F32 && a->kv_type == a->type &&
           a->kv_type != VB_Q8_0 && !a->sequences && a->kv_len > 0 && work >= 3e6 &&
           (double)a->batch * (a->heads * a->seq + a->kv_heads * a->kv_len) < 1e9 / (double)(a->dim + 8);
}

static inline int attention_decode_suits(const vb_attention_args *a) {
    const int64_t rows = attention_rows(a), tile_rows = rows <= 8 ? 8 : 16,
                  heads = vb_ceil_div(rows, tile_rows) * a->kv_heads;
    if (rows > ATTENTION_DECODE_MOST_ROWS || (a->sinks && a->seq > 1)) return 0;
    /* Copies of Q8_0 want a head's keys to begin at a multiple of 16 bytes. */
    if (a->kv_type == VB_Q8_0 && !vb_whole16(a->kv_capacity * (a->dim / VB_QK) * (int64_t)sizeof(vb_block_q8_0)))
        return 0;
    return heads * a->batch <= ATTENTION_DECODE_SHARED_TILES || (heads <= 65535 && a->batch <= 65535);
}

/* The greatest scaled score is taken for the scaled greatest score, and a tensor map has no rows of 2^40 bytes. */
static inline int attention_prefill_sm90_suits(const vb_attention_args *a, const vb_gpu *gpu) {
    return gpu->capability == 90 && a->scale > 0.0f && a->kv_len > 0 && a->kv_capacity * a->dim < (int64_t)1 << 38 &&
           attention_tiles(a, ATTENTION_PREFILL_SM90_ROWS) <= INT32_MAX / 2;
}

/* Instances of attention_f32.cu: dimensions, warps of 16 rows, keys of a step, shared memory. */
#define ATTENTION_F32_WARPS(dims) ((dims) > 192 ? 8 : 4)
#define ATTENTION_F32_KEYS(dims) ((dims) > 128 ? 16 : 32)
static inline int attention_f32_dims(int64_t dim) {
    return dim <= 64 ? 64 : dim <= 96 ? 96 : dim <= 128 ? 128 : dim <= 192 ? 192 : 256;
}
static inline int64_t attention_f32_bytes(int dims) {
    return (16 * ATTENTION_F32_WARPS(dims) + 4 * ATTENTION_F32_KEYS(dims)) * (dims + 4) * (int64_t)sizeof(float);
}
/* Few rows would leave most of a tile empty. */
static inline int attention_f32_suits(const vb_attention_args *a, const vb_gpu *gpu) {
    const int dims = attention_f32_dims(a->dim);
    return attention_is_plain(a) && gpu->capability >= 80 && a->type == VB_F32 && a->kv_type == VB_F32 &&
           a->kv_len > 0 && attention_rows(a) >= 16 && attention_f32_bytes(dims) + 1024 <= gpu->shared_bytes &&
           attention_tiles(a, 16 * ATTENTION_F32_WARPS(dims)) <= INT32_MAX / 256;
}

/* ---- choice ------------------------------------------------------------------------------------------------------ */

static inline attention_kernel choose_attention(const vb_attention_args *a, const vb_gpu *gpu) {
    if (!attention_fits_counters(a)) return ATTENTION_NONE;
    if (attention_suits_tensor_cores(a, gpu)) {
        const int q8 = a->kv_type == VB_Q8_0, hopper = attention_prefill_sm90_suits(a, gpu);
        /* Over few keys there is nothing to share where a third of the multiprocessors have tiles of prompts. */
        const int prompts = !q8 && hopper && attention_rows(a) > 16 && a->kv_len <= 1024 &&
                            3 * attention_tiles(a, ATTENTION_PREFILL_SM90_ROWS) >= gpu->multiprocessors;
        if (attention_decode_suits(a) && !prompts) return q8 ? ATTENTION_DECODE_Q8 : ATTENTION_DECODE;
        if (hopper) return q8 ? ATTENTION_PREFILL_Q8_SM90 : ATTENTION_PREFILL_SM90;
        if (attention_tiles(a, ATTENTION_PREFILL_ROWS) <= INT32_MAX && (!q8 || a->kv_len > 0))
            return q8 ? ATTENTION_PREFILL_Q8 : ATTENTION_PREFILL;
    }
    if (attention_padded_suits(a, gpu)) {
        const vb_attention_args padded = attention_padded_args(a);
        if (attention_prefill_sm90_suits(&padded, gpu)) return ATTENTION_PADDED_SM90;
        if (attention_tiles(&padded, ATTENTION_PREFILL_ROWS) <= INT32_MAX) return ATTENTION_PADDED;
    }
    if (attention_f32_suits(a, gpu)) return ATTENTION_F32;
    return attention_tiles(a, attention_simt_rows(a)) <= INT32_MAX ? ATTENTION_SIMT : ATTENTION_NONE;
}

/* The kernel that leaves what it attends as an operand of Hopper's products with packed weights, in F16:
 * ATTENTION_DECODE, ATTENTION_PREFILL_SM90 or none. */
static inline attention_kernel choose_attention_operand(const vb_attention_args *a, const vb_gpu *gpu) {
    if (a->type != VB_F32 || a->kv_type != VB_F16 || gpu->capability != 90) return ATTENTION_NONE;
    const attention_kernel kernel = choose_attention(a, gpu);
    if (kernel == ATTENTION_PREFILL_SM90) return a->dim % 32 == 0 ? kernel : ATTENTION_NONE;
    return kernel == ATTENTION_DECODE ? kernel : ATTENTION_NONE;
}

#endif
