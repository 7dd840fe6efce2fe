/* choose_qkv.h: which kernels run for norm_qkv, and how they are cut up: a part of linear/choose.h. */
#ifndef VB_LINEAR_CHOOSE_QKV_H
#define VB_LINEAR_CHOOSE_QKV_H

#include "linear/choose.h"

typedef struct linear_qkv_shape {
    vb_dtype q_type, k_type, v_type;
    vb_layout q_layout, k_layout, v_layout;
    int64_t n, cols, heads, kv_heads, dim, half, table_rows;
    vb_dtype kv_type;
    bool norms;                         /* of heads */
    bool inputs_aligned, heads_aligned; /* to 16 bytes: x and its norm; q, the tables and the cache */
    bool adapted;                       /* by an adapter */
} linear_qkv_shape;

enum { LINEAR_MOST_HEAD_ITEMS = 8 }; /* of a head of which a cluster has a block for each */

/* The work that is left after the products. */
typedef enum linear_qkv_rest {
    LINEAR_QKV_NOTHING,
    LINEAR_QKV_WRITE, /* keys and values to the cache: of Q8_0, whose blocks have elements of several items, but where
                         packed_n1_qkv's clusters make them */
    LINEAR_QKV_PLACE, /* norms of heads; then one kernel that rotates and writes */
    LINEAR_QKV_ROTATE /* norms of heads; rope of q and of k; then the cache */
} linear_qkv_rest;

typedef struct linear_qkv_choice {
    linear_kernel kernel;
    bool apart;                /* packed_n1_qkv: v by a kernel of its own */
    bool raw;                  /* items: products only */
    bool placed;               /* units: they rotate the heads and write the cache */
    bool normed;               /* packed_n1_qkv: a cluster has a head, which it norms */
    linear_items qk, v;        /* v: none where it is apart */
    linear_units qk_units, v_units; /* v_units: of no blocks where v is one matrix with q and k */
    linear_qkv_rest rest;
    bool together;             /* units: those of v in the same launch as the others */
} linear_qkv_choice;

/* The mixtures of types that one kernel takes: files whose v has more bits. */
static inline bool linear_qkv_mixture(vb_dtype qk, vb_dtype v) {
    return qk == v || (qk == VB_Q4_K && v == VB_Q6_K) || (qk == VB_Q5_K && v == VB_Q6_K) ||
           (qk == VB_Q5_0 && v == VB_Q8_0);
}

/* Whether a product of units may rotate the heads and write the cache (packed/heads.cuh). */
static inline bool linear_places_heads(const linear_qkv_shape *s) {
    return !s->norms && 2 * s->half == s->dim && (s->dim == 64 || s->dim == 128) &&
           (s->kv_type == VB_F16 || s->kv_type == VB_F32) && s->table_rows > 0 && s->table_rows <= LINEAR_MOST_INT &&
           s->heads_aligned;
}

/* How the rows of q and k, and of v where it is of another type, are cut up.
 * They come one after the other, each on all multiprocessors; or, where it is faster, at the same time, each on its
 * part of them.
 * Clusters of the second find room where the clusters of the first are no smaller.
 * Of up to 64 rows of x whose heads the products do not place, the second may have shares too, with memory of their
 * own.
 * Blocks without clusters leave every other multiprocessor of many pairs. */
static inline void linear_plan_qkv_units(const vb_gpu *gpu, const linear_qkv_shape *s, linear_qkv_choice *c) {
    const vb_packed_format f = vb_packed_format_of(s->q_type), fv = vb_packed_format_of(s->v_type);
    const int64_t q_rows = linear_tile_rows(s->heads * s->dim) * VB_PACKED_ROWS,
                  kv_rows = linear_tile_rows(s->kv_heads * s->dim) * VB_PACKED_ROWS;
    const bool same = s->q_type == s->v_type;
    const int64_t qk_rows = q_rows + kv_rows + (same ? kv_rows : 0);
    const int all = gpu->multiprocessors;
    c->qk_units = linear_plan_units(gpu, f, s->n, qk_rows, s->cols, false, all, 4);
    if (same) return;
    if (!linear_has_wgmma(gpu) && linear_qkv_mixture(s->q_type, s->v_type)) { /* as if they were one matrix */
        const int blocks = (int)vb_ceil_div(qk_rows, LINEAR_UNIT_ROWS),
                  v_blocks = (int)vb_ceil_div(kv_rows, LINEAR_UNIT_ROWS);
        linear_units u = linear_plan_units(gpu, f, s->n, (int64_t)(blocks + v_blocks) * LINEAR_UNIT_ROWS, s->cols,
                                           false, all, 4);
        const int whole = u.whole;
        u.row_blocks = blocks, u.whole = (int)linear_min(whole, (int64_t)blocks * u.token_blocks);
        c->qk_units = u;
        u.row_blocks = v_blocks, u.whole = whole - u.whole;
        c->v_units = u;
        c->together = true;
        return;
    }
    c->v_units = linear_plan_units(gpu, fv, s->n, kv_rows, s->cols, false, all, 4);
    const bool shares = s->n <= LINEAR_FEW_UNITS && !(c->qk_units.cluster > 0 && c->v_units.cluster > 0);
    const double later = 2; /* v begins */
    double least = c->qk_units.time + c->v_units.time;
    for (int on = all - 8; linear_has_wgmma(gpu) && on >= all / 2; on -= 8) {
        const linear_units qk = linear_plan_units(gpu, f, s->n, qk_rows, s->cols, false, on, 4);
        const int together = qk.pair * (qk.cluster > 1 ? qk.cluster : 1);
        const linear_units v =
            linear_plan_units(gpu, fv, s->n, kv_rows, s->cols, false, all - linear_unit_blocks(&qk), together);
        const double time = qk.time > v.time + later ? qk.time : v.time + later;
        if ((v.ksplit == 1 || shares) && time < least) c->qk_units = qk, c->v_units = v, least = time;
    }
}

/* Whether pairs of blocks that do one item a warp have whole blocks of Q8_0 between them. */
static inline bool linear_makes_blocks(const vb_gpu *gpu, const linear_qkv_shape *s, const linear_items *p,
                                       int64_t items) {
    return vb_has_clusters(gpu) && s->dim % (2 * VB_QK) == 0 && p->blocks > 0 && p->blocks % 2 == 0 &&
           vb_ceil_div(items, p->blocks) <= p->chunk;
}

/* A block for each of some heads' items, of so many warps at most. Of more blocks than multiprocessors two must find
 * room on one: `room` bounds the stages of a block. */
static inline linear_items linear_head_items(const vb_gpu *gpu, vb_packed_format f, int64_t row_tiles, int64_t items,
                                             int warps, int64_t room) {
    vb_gpu of_items = *gpu;
    of_items.multiprocessors = (int)items;
    linear_items p = linear_n1_items(&of_items, f, 2, 1, row_tiles, items);
    if (!p.blocks || p.shared_bytes <= room) return p;
    const int tiles = (int)row_tiles, each = (int)vb_ceil_div(tiles, warps);
    p.warps = (int)vb_ceil_div(tiles, each), p.stages = (int)linear_min(2 * each, 12);
    while (p.stages > 1 && linear_n1_shared(f, tiles, &p) > room) p.stages--;
    p.shared_bytes = linear_max(linear_n1_shared(f, tiles, &p), room);
    return p;
}

/* Gives each item of a head its block, so that the blocks of a head's cluster have the head's sum of squares between
 * them. Whether this can be: a multiprocessor may have two of these blocks, and none waits for room. */
static inline bool linear_norms_heads(const vb_gpu *gpu, const linear_qkv_shape *s, linear_qkv_choice *c) {
    const int64_t head_items = s->dim / (2 * VB_PACKED_ROWS), kv_items = head_items * s->kv_heads;
    const int64_t qk_items = head_items * s->heads + kv_items;
    if (gpu->capability < 90 || !s->norms || s->adapted || 2 * s->half != s->dim ||
        (s->kv_type != VB_F16 && s->kv_type != VB_F32) || qk_items + kv_items > 2 * gpu->multiprocessors ||
        (head_items != 2 && head_items != 4 && head_items != LINEAR_MOST_HEAD_ITEMS))
        return false;
    const vb_packed_format f = vb_packed_format_of(s->q_type), fv = vb_packed_format_of(s->v_type);
    /* Of more blocks than multiprocessors two begin beside one of the kernel before; of all warps where those of q and
     * k can ask for all of their tiles at once (docs/experiments/2026-11-29-experts.md). */
    const bool small = qk_items + kv_items > gpu->multiprocessors;
    const int64_t room = small ? 56 << 10 : gpu->shared_bytes, tiles = linear_row_tiles(f, s->cols);
    linear_items qk, v;
    for (int warps = LINEAR_WARPS;; warps = 4) {
        qk = linear_head_items(gpu, f, tiles, qk_items, warps, room);
        v = linear_head_items(gpu, fv, linear_row_tiles(fv, s->cols), kv_items, warps, room);
        if (!small || warps == 4 || qk.stages * qk.warps >= 2 * tiles) break;
    }
    const int64_t bytes = linear_max(qk.shared_bytes, v.shared_bytes);
    if (!qk.blocks || !v.blocks || 2 * (bytes + 1024) > gpu->shared_bytes + 1024) return false;
    c->qk = qk, c->v = v;
    return true;
}

static inline linear_qkv_choice choose_norm_qkv(const linear_qkv_shape *s, const vb_gpu *gpu) {
    const linear_items no_items = {0, 0, 0, 0, 0, 0, 0, 0, 0};
    const linear_units no_units = {LINEAR_NONE, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0};
    linear_qkv_choice c = {LINEAR_COMPOSED, false, false, false, false, no_items, no_items, no_units, no_units,
                           LINEAR_QKV_NOTHING, false};
    if (s->q_layout != VB_PACKED || s->k_layout != VB_PACKED || s->v_layout != VB_PACKED || s->k_type != s->q_type ||
        !s->inputs_aligned || (s->heads + s->kv_heads) * s->dim > LINEAR_MOST_INT || s->cols > LINEAR_MOST_INT)
        return c;
    const vb_packed_format f = vb_packed_format_of(s->q_type), fv = vb_packed_format_of(s->v_type);
    const int64_t row_tiles = linear_row_tiles(f, s->cols), head_items = s->dim / (2 * VB_PACKED_ROWS);
    const int64_t q_items = head_items * s->heads, kv_items = head_items * s->kv_heads;
    const bool whole_heads = s->dim % (2 * VB_PACKED_ROWS) == 0, mixture = linear_qkv_mixture(s->q_type, s->v_type);
    /* Norms of heads need whole heads, which are spread over items; so do tables that rotate a part of a head only. */
    c.raw = s->norms || 2 * s->half != s->dim || s->kv_type == VB_BF16;
    const bool place = 2 * s->half == s->dim && s->kv_type != VB_Q8_0 &&
                       s->n * (s->heads + 2 * s->kv_heads) * s->half <= LINEAR_MOST_INT;
    const linear_qkv_rest apart = place ? LINEAR_QKV_PLACE : LINEAR_QKV_ROTATE;
    const linear_qkv_rest after_items = c.raw ? apart : s->kv_type == VB_Q8_0 ? LINEAR_QKV_WRITE : LINEAR_QKV_NOTHING;
    if (s->n == 1 && !whole_heads) return c;
    if (s->n == 1) {
        c.apart = !mixture;
        c.qk = linear_n1_items(gpu, f, 2, 1, row_tiles, q_items + kv_items);
        c.v = linear_n1_items(gpu, fv, 2, 1, linear_row_tiles(fv, s->cols), kv_items);
        /* Each item its block rather than a second item for some of them. */
        const int64_t items = q_items + 2 * kv_items;
        if (gpu->capability >= 90 && !s->adapted && items > gpu->multiprocessors && items <= 2 * gpu->multiprocessors)
            c.qk = linear_head_items(gpu, f, row_tiles, q_items + kv_items, LINEAR_WARPS, LINEAR_SHORT_SHARED);
        c.normed = linear_norms_heads(gpu, s, &c);
        if (c.normed) c.raw = false;
        if (c.qk.blocks && c.v.blocks) c.kernel = LINEAR_N1_QKV, c.rest = c.normed ? LINEAR_QKV_NOTHING : after_items;
        if (c.rest == LINEAR_QKV_WRITE && linear_makes_blocks(gpu, s, &c.qk, q_items + kv_items) &&
            linear_makes_blocks(gpu, s, &c.v, kv_items))
            c.rest = LINEAR_QKV_NOTHING;
        return c;
    }
    if (whole_heads && mixture && q_items * head_items <= 32767) { /* of items times the inverse */
        c.qk = linear_n4_items(gpu, f, 2, 1, s->n, row_tiles, q_items + kv_items);
        c.v = linear_n4_items(gpu, fv, 2, 1, s->n, row_tiles, kv_items);
        c.kernel = LINEAR_N4_QKV;
        const int tokens = linear_n32_tokens(gpu, s->n, s->heads * s->dim);
        if ((!c.qk.blocks || !c.v.blocks) && tokens) {
            c.qk = linear_n32_items(gpu, f, tokens, 2, row_tiles, q_items + kv_items);
            c.v = linear_n32_items(gpu, fv, tokens, 2, row_tiles, kv_items);
            /* All blocks have the same warps: as many as the plan with fewer, whose ring and sums then fit in both. */
            c.qk.warps = c.v.warps = (int)linear_min(c.qk.warps, c.v.warps);
            c.qk.shared_bytes = linear_n32_shared(f, tokens, 2, c.qk.warps, c.qk.stages);
            c.v.shared_bytes = linear_n32_shared(fv, tokens, 2, c.v.warps, c.v.stages);
            c.kernel = LINEAR_N32_QKV;
        }
        if (c.qk.blocks && c.v.blocks) {
            c.rest = after_items;
            return c;
        }
    }
    c.kernel = LINEAR_COMPOSED;
    if (s->n == 1 || s->n > LINEAR_MOST_TOKENS) return c;
    linear_plan_qkv_units(gpu, s, &c);
    c.kernel = c.qk_units.kernel;
    c.placed = c.qk_units.cluster > 0 && (s->q_type == s->v_type || c.v_units.cluster > 0) &&
               linear_places_heads(s);
    c.rest = c.placed ? LINEAR_QKV_NOTHING : apart;
    return c;
}

#endif
