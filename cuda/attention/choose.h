/* choose.h: which kernel computes attention. decode is for few query rows a key head, whose keys are read once and
 * shared among blocks; prefill is for many, in tiles of their own. */
#ifndef VB_CUDA_ATTENTION_CHOOSE_H
#define VB_CUDA_ATTENTION_CHOOSE_H

#include "quant.h"
#include "runtime/chooser.h"

#define ATTENTION_KERNELS(X)                                                                                           \
    X(ATTENTION_DECODE, "attention_decode", "attention/attention_decode.cu",                                           \
      "up to 64 rows a key head over a cache of 16 bits, where tiles are few also more over many keys, 8.0")           \
    X(ATTENTION_DECODE_VARIANTS, "attention_decode_variants", "attention/attention_decode_variants.cu",                \
      "the same over F16, Q8_0 with capped scores, rings, sinks; Q8_0 of other dimensions")                            \
    X(ATTENTION_DECODE_Q8, "attention_decode_q8", "attention/attention_decode_q8.cu",                                  \
      "the same over Q8_0, of 64, 128 or 256 dimensions")                                                              \
    X(ATTENTION_DECODE_F32, "attention_decode_f32", "attention/attention_decode_f32.cu",                               \
      "up to 64 rows a key head over a cache in F32, 128 over few keys, also with these variants, 8.0")                \
    X(ATTENTION_PREFILL_SM90, "attention_prefill_sm90", "attention/attention_prefill_sm90.cu",                         \
      "more rows over a cache of 16 bits, 9.0")                                                                        \
    X(ATTENTION_PREFILL, "attention_prefill", "attention/attention_prefill.cu",                                        \
      "the same, 8.0; 9.0 over at most 32 keys, or where few tiles have many keys, which blocks share")                \
    X(ATTENTION_PREFILL_Q8_SM90, "attention_prefill_q8_sm90", "attention/attention_prefill_q8.cu",                     \
      "more rows over Q8_0, converted before, 9.0")                                                                    \
    X(ATTENTION_PREFILL_Q8, "attention_prefill_q8", "attention/attention_prefill_q8.cu", "the same, 8.0")              \
    X(ATTENTION_PADDED_SM90, "attention_padded_sm90", "attention/attention_padded.cu",                                 \
      "16 bits, unaligned heads, copied for attention_prefill_sm90, 9.0")                                              \
    X(ATTENTION_PADDED, "attention_padded", "attention/attention_padded.cu",                                           \
      "the same, copied for attention_prefill, 8.0")                                                                   \
    X(ATTENTION_PADDED_DECODE, "attention_padded_decode", "attention/attention_padded.cu",                             \
      "the same of up to 64 rows a key head, copied for attention_decode, 8.0")                                        \
    X(ATTENTION_F32, "attention_f32", "attention/attention_f32.cu", "more rows over a cache in F32, 8.0")              \
    X(ATTENTION_SIMT, "attention_simt", "attention/attention_simt.cu",                                                 \
      "any other: odd heads, other sizes of values, before 8.0")
VB_KERNEL_FAMILY(attention, ATTENTION, ATTENTION_KERNELS)

/* ---- sizes of the kernels ---------------------------------------------------------------------------------------- */

enum {
    ATTENTION_DECODE_MOST_ROWS = 64,   /* of a key head; with more, tensor cores take tiles of them */
    ATTENTION_DECODE_SPREAD_ROWS = 512, /* the same where those tiles are few */
    ATTENTION_DECODE_F32_ROWS = 16,    /* the same over F32, where attention_f32 may take more: a tile of 64 rows */
    ATTENTION_DECODE_F32_MOST_ROWS = 128, /* over 32 to 1024 keys */
    /* with more there is enough to do without sharing keys, and parts would fill memory */
    ATTENTION_DECODE_SHARED_TILES = 512,
    ATTENTION_PREFILL_ROWS = 64,       /* of a tile */
    ATTENTION_PREFILL_SM90_ROWS = 64,  /* of the smallest tile */
    /* keys that are copied together, of which a ring has a whole number */
    ATTENTION_DECODE_KEYS = 16, ATTENTION_PREFILL_SM90_KEYS = 128
};

/* Slots of a warp's ring of attention_decode_kernel.cuh: `most` where an SM has more than 200 KiB of shared memory. It
 * is the capability that the kernel was compiled for. */
#define ATTENTION_DECODE_SLOTS(most, capability)                                                                       \
    ((capability) == 90 || (capability) == 100 ? (most) : (most) < 3 ? 2 : (most) * 2 / 3)

/* Warps of its block over a cache in F32, whose units are twice as large. */
#define ATTENTION_DECODE_F32_WARPS(dims) ((dims) > 128 ? 2 : 4)

/* Shared memory of its block: the warps' rings, and the messages of a cluster. */
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

/* Parts that the keys of each tile are cut into, which take the least time in rounds of as many blocks as there are
 * `places`. A step over `keys` keys takes `step` microseconds, and a block begins in the time of a step. Parts are
 * written and read. The tiles of a causal prompt differ, so that they fill their last round. */
static inline int attention_parts(const vb_attention_args *a, int64_t tiles, int rows, int keys, int dims,
                                  int64_t places, double step) {
    const int64_t steps = vb_ceil_div(a->kv_len, keys);
    double least = 0;
    int best = 1;
    for (int parts = 1; parts <= 32 && parts <= steps; parts++) {
        const double taken = (double)tiles * parts / (double)places,
                     rounds = !a->causal ? (double)vb_ceil_div(tiles * parts, places) : taken > 1 ? taken : 1;
        const double added = 3 + 2.7e-6 * parts * (double)tiles * rows * dims,
                     time = rounds * step * (double)(1 + vb_ceil_div(steps, parts)) + (parts > 1 ? added : 0);
        if (least == 0 || time < least) least = time, best = parts;
    }
    return best;
}

/* ---- conditions -------------------------------------------------------------------------------------------------- */

static inline int64_t attention_rows(const vb_attention_args *a) { return a->seq * (a->heads / a->kv_heads); }

/* Tiles of so many query rows, of which grids have few enough. */
static inline int64_t attention_tiles(const vb_attention_args *a, int rows) {
    return vb_ceil_div(attention_rows(a), rows) * a->batch * a->kv_heads;
}

/* Rows of a tile of attention_prefill: twice as many where they still are more than run at once. */
static inline int attention_prefill_rows(const vb_attention_args *a, int multiprocessors) {
    const int twice = a->dim <= 128 && attention_tiles(a, ATTENTION_PREFILL_ROWS) > 2 * multiprocessors;
    return (1 + twice) * ATTENTION_PREFILL_ROWS;
}

/* Whether the kernels' 32-bit counters hold the sizes. */
static inline int attention_fits_counters(const vb_attention_args *a) {
    return a->kv_len <= INT32_MAX && a->chunk <= INT32_MAX && a->kv_capacity <= INT32_MAX &&
           a->heads <= INT32_MAX / a->seq && a->batch <= INT32_MAX / a->heads;
}

/* Whether keys follow their last slot in the first slot. A cache with room for all keys is no such ring. */
static inline int attention_wraps(const vb_attention_args *a) { return a->ring && a->kv_len > a->kv_capacity; }

/* Whether values are as long as keys, which are not too long: attention_simt takes others. */
static inline int attention_has_pairs(const vb_attention_args *a) {
    return a->v && (a->value_dim == 0 || a->value_dim == a->dim) && a->dim <= 256;
}
/* Whether every kernel can compute the scores and find the keys. */
static inline int attention_is_plain(const vb_attention_args *a) {
    return attention_has_pairs(a) && !(a->soft_cap > 0) && !attention_wraps(a);
}

/* Whether rows of q and out are whole vectors of 16 bytes. */
static inline int attention_has_vectors(const vb_attention_args *a) {
    return attention_has_pairs(a) && a->dim % 8 == 0 && vb_aligned16(a->out) && vb_aligned16(a->q) &&
           vb_aligned16(a->k) && vb_aligned16(a->v) && a->q_batch_stride % 8 == 0 && a->q_head_stride % 8 == 0 &&
           a->q_row_stride % 8 == 0;
}
/* Whether tensor cores multiply numbers of 16 bits. A float32 cache keeps float32's accuracy: models in float32 are
 * compared to four digits. */
static inline int attention_suits_tensor_cores(const vb_attention_args *a, const vb_gpu *gpu) {
    return gpu->capability >= 80 && a->kv_type != VB_F32 && attention_has_vectors(a);
}

/* The arguments with copies of q, out, k and v in whole vectors of 16 bytes; the places of the copies follow. */
static inline vb_attention_args attention_padded_args(const vb_attention_args *a) {
    vb_attention_args padded = *a;
    padded.dim = vb_ceil_div(a->dim, 8) * 8, padded.value_dim = 0;
    padded.q_row_stride = padded.dim, padded.q_head_stride = a->seq * padded.dim;
    padded.q_batch_stride = a->heads * padded.q_head_stride, padded.kv_capacity = a->kv_len;
    padded.settled = 0; /* the kernel before writes the copies */
    return padded;
}
/* Whether copies repay, which take four kernels more. */
static inline int attention_padded_suits(const vb_attention_args *a, const vb_gpu *gpu) {
    const double work = (double)a->batch * a->heads * a->seq * a->kv_len * a->dim;
    return attention_is_plain(a) && gpu->capability >= 80 && a->kv_type != VB_F32 && a->kv_type == a->type &&
           a->kv_type != VB_Q8_0 && !a->sequences && a->kv_len > 0 && work >= 1e6 &&
           (attention_rows(a) >= 4 || a->batch * a->kv_heads >= 24 || work >= 1e7) &&
           (double)a->batch * (a->heads * a->seq + a->kv_heads * a->kv_len) < 1e9 / (double)(a->dim + 8);
}

/* Whether a step needs a variant that only attention_decode_variants has: of Q8_0 also any number of dimensions. */
static inline int attention_varies(const vb_attention_args *a) {
    return !attention_is_plain(a) || (a->sinks && a->seq > 1) ||
           (a->kv_type == VB_Q8_0 && a->dim != attention_dims(a->dim));
}
/* Tiles of 16 rows of more than 128 dimensions of F32 would not fit registers. */
static inline int attention_decode_tile_rows(const vb_attention_args *a) {
    return attention_rows(a) <= 8 || (a->kv_type == VB_F32 && a->dim > 128) ? 8 : 16;
}
/* Rows of a key head: more where tiles of prompts, which share no keys on Hopper, would leave seven of eight
 * multiprocessors idle over many keys. */
static inline int64_t attention_decode_most_rows(const vb_attention_args *a, const vb_gpu *gpu) {
    const int64_t tiles = attention_tiles(a, ATTENTION_PREFILL_ROWS);
    const int idle = 8 * tiles <= gpu->multiprocessors && a->kv_len > 128 * tiles;
    return a->kv_type == VB_F32 ? ATTENTION_DECODE_F32_MOST_ROWS
           : idle && a->type == a->kv_type ? ATTENTION_DECODE_SPREAD_ROWS
                                          : ATTENTION_DECODE_MOST_ROWS;
}
static inline int attention_decode_suits(const vb_attention_args *a, const vb_gpu *gpu) {
    const int64_t rows = attention_rows(a),
                  heads = vb_ceil_div(rows, attention_decode_tile_rows(a)) * a->kv_heads;
    if (rows > attention_decode_most_rows(a, gpu)) return 0;
    if (attention_varies(a) && (a->type != VB_F32 || a->kv_type == VB_BF16)) return 0;
    if (attention_wraps(a) && a->kv_capacity % ATTENTION_DECODE_KEYS != 0) return 0;
    /* Copies of Q8_0 want a head's keys to begin at a multiple of 16 bytes. */
    if (a->kv_type == VB_Q8_0 && !vb_whole16(a->kv_capacity * (a->dim / VB_QK) * (int64_t)sizeof(vb_block_q8_0)))
        return 0;
    return heads * a->batch <= ATTENTION_DECODE_SHARED_TILES || (heads <= 65535 && a->batch <= 65535);
}

static inline int attention_decode_f32_suits(const vb_attention_args *a, const vb_gpu *gpu) {
    return gpu->capability >= 80 && a->kv_type == VB_F32 && attention_has_vectors(a) && attention_decode_suits(a, gpu);
}

/* The greatest scaled score is taken for the scaled greatest score, and a tensor map has no rows of 2^40 bytes. */
static inline int attention_prefill_sm90_suits(const vb_attention_args *a, const vb_gpu *gpu) {
    return gpu->capability == 90 && a->scale > 0.0f && a->kv_len > 0 && a->kv_capacity * a->dim < (int64_t)1 << 38 &&
           attention_tiles(a, ATTENTION_PREFILL_SM90_ROWS) <= INT32_MAX / 2 &&
           (!attention_wraps(a) || a->kv_capacity % ATTENTION_PREFILL_SM90_KEYS == 0);
}

/* Instances of attention_f32.cu: dimensions, warps of 16 rows, keys of a step, shared memory; `small` ones, of one
 * stage of keys and values, fit 99 KiB where the others, of two, do not. */
#define ATTENTION_F32_WARPS(dims, small) ((dims) > 192 && !(small) ? 8 : 4)
#define ATTENTION_F32_KEYS(dims) ((dims) > 128 ? 16 : 32)
static inline int attention_f32_dims(int64_t dim) {
    return dim <= 64 ? 64 : dim <= 96 ? 96 : dim <= 128 ? 128 : dim <= 192 ? 192 : 256;
}
/* Of more rows it takes 0.65 to 0.97 of attention_f32's time over keys that its tiles, of a quarter of the rows, may
 * read so often, where both have instances of as many dimensions. Of more than two tiles a multiprocessor it takes up
 * to 1.68 of it (docs/experiments/2026-11-28-drawn-rows.md). Before Hopper attention_f32 takes 0.5 to 0.95 of its
 * time for more than 8 rows of more than 128 dimensions over more than 128 keys. */
static inline int attention_decode_f32_pays(const vb_attention_args *a, const vb_gpu *gpu) {
    if (gpu->capability < 90 && a->dim > 128 && a->kv_len > 128 && attention_rows(a) > 8) return 0;
    return attention_rows(a) <= ATTENTION_DECODE_F32_ROWS ||
           (a->kv_len >= 32 && a->kv_len <= 1024 && attention_dims(a->dim) == attention_f32_dims(a->dim) &&
            attention_tiles(a, attention_decode_tile_rows(a)) <= 2 * (int64_t)gpu->multiprocessors);
}
static inline int64_t attention_f32_bytes(int dims, int small) {
    return (16 * ATTENTION_F32_WARPS(dims, small) + (small ? 2 : 4) * ATTENTION_F32_KEYS(dims)) * (dims + 4) *
           (int64_t)sizeof(float);
}
static inline int attention_f32_small(int dims, const vb_gpu *gpu) {
    return attention_f32_bytes(dims, 0) + 1024 > gpu->shared_bytes;
}
/* Microseconds of attention_f32 and attention_simt: fits to 420 random cases on an H200, by 0.3 of their logarithm
 * (docs/experiments/2026-11-23-shapes.md). */
static inline double attention_f32_time(const vb_attention_args *a) {
    const int dims = attention_f32_dims(a->dim), tile_rows = 16 * ATTENTION_F32_WARPS(dims, 0);
    return 7.7 + 0.049 * dims +
           0.145e-6 * (double)attention_tiles(a, tile_rows) * tile_rows * (a->causal ? 0.5 : 1) * a->kv_len * dims;
}
static inline double attention_simt_time(const vb_attention_args *a) {
    const int tile_rows = attention_simt_rows(a);
    return 9.3 + 1.1e-6 * (double)attention_tiles(a, tile_rows) * tile_rows * (a->causal ? 0.5 : 1) * a->kv_len *
                     attention_widest(a);
}
/* How many warps share the rows of a tile, so that they do not wait for themselves: two where a multiprocessor has one
 * tile and few keys, four of half as large a tile where it has one of these, or next to no keys. */
enum { ATTENTION_F32_SHARED_DIMS = 128 };
static inline int attention_f32_shares(const vb_attention_args *a, int multiprocessors) {
    const int64_t tiles = attention_tiles(a, 16 * ATTENTION_F32_WARPS(ATTENTION_F32_SHARED_DIMS, 0));
    if (a->dim > ATTENTION_F32_SHARED_DIMS || tiles > multiprocessors ||
        tiles * a->kv_len > (int64_t)400 * multiprocessors)
        return 1;
    const int64_t small = attention_tiles(a, 8 * ATTENTION_F32_WARPS(ATTENTION_F32_SHARED_DIMS, 0));
    return a->kv_len <= 32 || (small <= multiprocessors && a->kv_len <= 128) ? 4 : 2;
}
/* Blocks of a multiprocessor, as registers allow. */
#define ATTENTION_F32_BLOCKS(dims) ((dims) <= 64 ? 3 : (dims) <= 192 ? 2 : 1)
#define ATTENTION_F32_PLACES(dims, shares) ((shares) == 1 ? ATTENTION_F32_BLOCKS(dims) : (shares) / 2)
/* Of the whole GPU, whose multiprocessors have `shared` bytes each: two blocks of four warps of more than 192
 * dimensions fit registers. */
static inline int64_t attention_f32_places(int dims, int shares, int64_t shared, const vb_gpu *gpu) {
    const int small = attention_f32_small(dims, gpu);
    const int64_t most = dims > 192 && small ? 2 : ATTENTION_F32_PLACES(dims, shares),
                  held = shared / (attention_f32_bytes(dims, small) + 1024);
    return gpu->multiprocessors * (held < 1 ? 1 : held < most ? held : most);
}
/* Few rows would leave most of a tile empty. */
static inline int attention_f32_suits(const vb_attention_args *a, const vb_gpu *gpu) {
    const int dims = attention_f32_dims(a->dim), small = attention_f32_small(dims, gpu);
    return attention_is_plain(a) && gpu->capability >= 80 && a->type == VB_F32 && a->kv_type == VB_F32 &&
           a->kv_len > 0 && attention_rows(a) >= 4 && attention_f32_bytes(dims, small) + 1024 <= gpu->shared_bytes &&
           attention_tiles(a, 16 * ATTENTION_F32_WARPS(dims, small)) <= INT32_MAX / 256 &&
           attention_f32_time(a) < attention_simt_time(a);
}

/* ---- choice ------------------------------------------------------------------------------------------------------ */

/* The same as attention_prompts without Hopper's instructions: docs/experiments/2026-11-28-portable.md. */
static inline int attention_prompts_portable(const vb_attention_args *a, const vb_gpu *gpu) {
    const int64_t rows = attention_rows(a), keys = a->kv_len, sms = gpu->multiprocessors;
    if (a->type != a->kv_type) return 0;
    if (keys <= (rows >= 16 ? 128 : 96)) return 1;
    /* blocks of tiles of prompts share keys; those of attention_decode not where each is alone */
    const int64_t prompts = attention_tiles(a, ATTENTION_PREFILL_ROWS),
                  tiles = attention_tiles(a, attention_decode_tile_rows(a));
    if (2 * tiles > sms && tiles <= sms && keys > 2048) return 1;
    if (rows > 16 && 6 * tiles >= sms) return 1;
    if (rows >= 4 && keys <= 640) return 1;
    if (a->dim > 128 && rows > 8) return 1;
    return rows > 16 ? keys <= 128 * prompts : a->dim > 128 && keys <= 1024;
}
/* Whether tiles of prompts take less time than blocks that share keys: of more than 16 rows where keys are few or many
 * multiprocessors have a tile, of fewer where a third have, of up to 8 where about half have
 * (docs/experiments/2026-11-29-drawn-products.md). Over few keys they do for 16-bit queries, whose conversion costs
 * nothing. Times of 200 random cases: docs/experiments/2026-11-27-shapes.md. */
static inline int attention_prompts(const vb_attention_args *a, const vb_gpu *gpu) {
    const int64_t rows = attention_rows(a), tiles = attention_tiles(a, ATTENTION_PREFILL_SM90_ROWS),
                  sms = gpu->multiprocessors, keys = a->kv_len;
    const int few_keys = keys <= 128 * tiles;
    if (!attention_prefill_sm90_suits(a, gpu)) return attention_prompts_portable(a, gpu);
    if (a->type != a->kv_type) return rows > 16 && keys <= 1024 && 3 * tiles >= sms;
    /* where clusters of four of attention_decode do not all run at once */
    if (rows <= 8) return a->dim <= 128 && keys > 128 && keys <= 2048 && 11 * tiles > 5 * sms && 2 * tiles <= sms;
    if (keys <= 512) return 1;
    return rows > 16 ? few_keys || 5 * tiles >= sms : 3 * tiles >= sms && (keys <= 4096 || a->dim > 128);
}

/* Whether, on Hopper, blocks of attention_prefill, which share the keys of a tile, take less time than attention_decode
 * and than those of attention_prefill_sm90, which do not and would leave three of four multiprocessors idle. */
enum { ATTENTION_PARTS_KEYS = 1536, ATTENTION_LEAST_KEYS = 32 };
static inline int attention_parts_pay(const vb_attention_args *a, const vb_gpu *gpu) {
    return gpu->capability == 90 && a->type == a->kv_type && attention_is_plain(a) && attention_rows(a) > 16 &&
           a->kv_len >= ATTENTION_PARTS_KEYS && (!a->causal || a->kv_len >= 4 * a->seq) &&
           8 * attention_tiles(a, ATTENTION_PREFILL_ROWS) > gpu->multiprocessors &&
           4 * attention_tiles(a, 2 * ATTENTION_PREFILL_ROWS) <= gpu->multiprocessors;
}

/* The same over so few keys that all of them are a step, but for up to 8 rows of up to 128 dimensions: tiles of
 * attention_prefill begin and end sooner. */
static inline int attention_least_pays(const vb_attention_args *a, const vb_gpu *gpu) {
    const int64_t rows = attention_rows(a);
    return gpu->capability == 90 && a->type == a->kv_type && attention_is_plain(a) && a->kv_len > 0 &&
           a->kv_len <= ATTENTION_LEAST_KEYS && rows <= ATTENTION_PREFILL_ROWS && (rows > 8 || a->dim > 128) &&
           attention_tiles(a, ATTENTION_PREFILL_ROWS) <= INT32_MAX;
}

static inline attention_kernel choose_attention(const vb_attention_args *a, const vb_gpu *gpu) {
    if (!attention_fits_counters(a)) return ATTENTION_NONE;
    if (attention_suits_tensor_cores(a, gpu)) {
        if (attention_parts_pay(a, gpu) || attention_least_pays(a, gpu)) return ATTENTION_PREFILL;
        const int q8 = a->kv_type == VB_Q8_0, hopper = attention_prefill_sm90_suits(a, gpu);
        const int prompts = !q8 && attention_prompts(a, gpu);
        if (attention_decode_suits(a, gpu) && !prompts)
            return attention_varies(a) ? ATTENTION_DECODE_VARIANTS : q8 ? ATTENTION_DECODE_Q8 : ATTENTION_DECODE;
        if (hopper) return q8 ? ATTENTION_PREFILL_Q8_SM90 : ATTENTION_PREFILL_SM90;
        if (attention_tiles(a, ATTENTION_PREFILL_ROWS) <= INT32_MAX && (!q8 || a->kv_len > 0))
            return q8 ? ATTENTION_PREFILL_Q8 : ATTENTION_PREFILL;
    }
    if (attention_padded_suits(a, gpu)) {
        const vb_attention_args padded = attention_padded_args(a);
        const int hopper = attention_prefill_sm90_suits(&padded, gpu);
        if (attention_parts_pay(&padded, gpu) || attention_least_pays(&padded, gpu)) return ATTENTION_PADDED;
        if (attention_decode_suits(&padded, gpu) && !attention_prompts(&padded, gpu)) return ATTENTION_PADDED_DECODE;
        if (hopper) return ATTENTION_PADDED_SM90;
        if (attention_tiles(&padded, ATTENTION_PREFILL_ROWS) <= INT32_MAX) return ATTENTION_PADDED;
    }
    const int decode = attention_decode_f32_suits(a, gpu);
    if (decode && attention_decode_f32_pays(a, gpu)) return ATTENTION_DECODE_F32;
    if (attention_f32_suits(a, gpu)) return ATTENTION_F32;
    if (decode && attention_rows(a) <= ATTENTION_DECODE_MOST_ROWS) return ATTENTION_DECODE_F32;
    return attention_tiles(a, attention_simt_rows(a)) <= INT32_MAX ? ATTENTION_SIMT : ATTENTION_NONE;
}

/* The kernel that leaves its result in F16 as an operand of products with packed weights: ATTENTION_DECODE,
 * ATTENTION_DECODE_VARIANTS, ATTENTION_PREFILL, ATTENTION_PREFILL_SM90 or none. */
static inline attention_kernel choose_attention_operand(const vb_attention_args *a, const vb_gpu *gpu) {
    if (a->type != VB_F32 || a->kv_type != VB_F16 || gpu->capability < 80) return ATTENTION_NONE;
    const attention_kernel kernel = choose_attention(a, gpu);
    if (kernel == ATTENTION_PREFILL_SM90) return a->dim % 32 == 0 ? kernel : ATTENTION_NONE;
    if (kernel == ATTENTION_PREFILL) return a->dim % 16 == 0 ? kernel : ATTENTION_NONE;
    return kernel == ATTENTION_DECODE || kernel == ATTENTION_DECODE_VARIANTS ? kernel : ATTENTION_NONE;
}

#endif
