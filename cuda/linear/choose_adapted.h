/* choose_adapted.h: which kernels run for products with an adapter's update: a part of linear/choose.h. */
#ifndef VB_LINEAR_CHOOSE_ADAPTED_H
#define VB_LINEAR_CHOOSE_ADAPTED_H

#include "linear/choose_qkv.h"

/* Whether products of units add it (packed/project.cu): Hopper's. `aligned`: V and U, to 16 bytes. */
static inline bool linear_units_adapt(const vb_gpu *gpu, int64_t ranks, bool aligned) {
    return linear_has_wgmma(gpu) && aligned && ranks > 0 && ranks % 8 == 0 && ranks <= LINEAR_ADAPTED_RANKS;
}

/* The rows of x that units are chosen for, where items do not add an update: packed_n32_sm90 takes fewer rows as
 * well. */
static inline int64_t linear_adapted_rows(const vb_gpu *gpu, int64_t n) {
    return n > 1 && n <= LINEAR_N32_HOPPER && linear_has_wgmma(gpu) ? LINEAR_N32_HOPPER + 1 : n;
}

/* The rows of x that items are chosen for. Those of packed_n32 have h made beside their x: for 3 and 4 rows, whose own
 * items wait for a kernel that makes h, they take less time. */
static inline int64_t linear_adapted_item_rows(int64_t n) { return n == 3 || n == 4 ? LINEAR_N4 + 1 : n; }

/* Whether items of 2 to 8 rows of x add it (packed/rows_update.cuh). */
static inline bool linear_rows_adapt(const vb_gpu *gpu, int64_t cols, int64_t ranks, bool aligned) {
    return linear_units_adapt(gpu, ranks, aligned) && cols % 8 == 0;
}

/* Whether the items of a choice for so many matrices of one x add it. */
static inline bool linear_items_adapt(const vb_gpu *gpu, const linear_choice *c, const linear_shape *s, int matrices,
                                      int64_t ranks, bool aligned) {
    switch (c->kernel) {
    case LINEAR_PACKED_N1:
    case LINEAR_N1_SWIGLU:
        return aligned &&
               linear_n1_adapts(gpu, vb_packed_format_of(s->type), &c->items, s->cols, matrices, ranks);
    case LINEAR_PACKED_N4:
    case LINEAR_N4_SWIGLU:
    case LINEAR_PACKED_N32:
    case LINEAR_N32_SWIGLU: return s->n > 1 && linear_rows_adapt(gpu, s->cols, ranks, aligned);
    default: return false;
    }
}

/* Whether packed_n1 adds an update for one item a block or cluster (packed/n1_one_item.cuh). A warp's part of x fits in
 * 32 registers a lane, and of blocks alone in one tile. `rows`: of all items. */
static inline bool linear_n1_one_item(vb_packed_format f, int64_t rows, int64_t cols, const linear_items *p) {
    const int64_t items = vb_ceil_div(linear_tile_rows(rows), p->parts),
                  tiles = vb_ceil_div(vb_ceil_div(linear_row_tiles(f, cols), p->ksplit), p->warps);
    return items * p->ksplit <= p->blocks &&
           (p->ksplit > 1 ? tiles * f.depth <= 8 * 128 : tiles == 1 && p->stages >= p->parts);
}

/* linear_add of 1 to 8 rows of x: by items, or composed. */
static inline linear_choice choose_adapted_linear(const linear_shape *s, int64_t ranks, bool aligned,
                                                  const vb_gpu *gpu) {
    linear_shape rows = *s;
    rows.n = linear_adapted_item_rows(s->n);
    const linear_choice c = choose_fused_linear(&rows, gpu);
    return linear_items_adapt(gpu, &c, s, 1, ranks, aligned) ? c : linear_choice_of(LINEAR_COMPOSED);
}

/* norm_swiglu of 1 to 8 rows of x. */
static inline linear_choice choose_adapted_swiglu(const linear_shape *s, vb_dtype up, vb_layout up_layout,
                                                  int64_t ranks, bool aligned, const vb_gpu *gpu) {
    linear_shape rows = *s;
    rows.n = linear_adapted_item_rows(s->n);
    const linear_choice c = choose_norm_swiglu(&rows, up, up_layout, gpu);
    return linear_items_adapt(gpu, &c, s, 2, ranks, aligned) ? c : linear_choice_of(LINEAR_COMPOSED);
}

/* feed_forward of 1 to 8 rows of x: norm_swiglu, then linear_add; both, or the first is composed. `of_down`: its V and
 * U too. */
typedef struct linear_items_choice {
    linear_choice gate_up, down;
} linear_items_choice;

static inline linear_items_choice choose_adapted_items(const linear_shape *gate, vb_dtype up, vb_layout up_layout,
                                                       const linear_shape *down, int64_t ranks, bool aligned,
                                                       bool of_down, const vb_gpu *gpu) {
    linear_items_choice c;
    c.gate_up = choose_adapted_swiglu(gate, up, up_layout, ranks, aligned, gpu);
    c.down = choose_adapted_linear(down, ranks, of_down, gpu);
    if (c.down.kernel == LINEAR_COMPOSED) c.gate_up.kernel = LINEAR_COMPOSED;
    return c;
}

/* feed_forward of more rows. */
static inline linear_feed_forward_choice choose_adapted_feed_forward(const linear_shape *gate, vb_dtype up,
                                                                     vb_layout up_layout, vb_dtype down,
                                                                     vb_layout down_layout, int64_t ranks,
                                                                     bool aligned, const vb_gpu *gpu) {
    linear_shape rows = *gate;
    rows.n = linear_adapted_rows(gpu, gate->n);
    linear_feed_forward_choice c = choose_feed_forward(&rows, up, up_layout, down, down_layout, gpu);
    if (!linear_units_adapt(gpu, ranks, aligned)) c.kernel = LINEAR_COMPOSED;
    return c;
}

/* attention_linear_add: of 1 to 8 rows of x attention, then linear_add. */
static inline linear_choice choose_adapted_attention(const linear_shape *s, bool attention_in_f16, int64_t ranks,
                                                     bool aligned, const vb_gpu *gpu) {
    const linear_choice items = choose_adapted_linear(s, ranks, aligned, gpu);
    if (s->n == 1 || items.kernel != LINEAR_COMPOSED) return items;
    linear_shape rows = *s;
    rows.n = linear_adapted_rows(gpu, s->n);
    return linear_units_adapt(gpu, ranks, aligned) ? choose_attention_linear_add(&rows, attention_in_f16, gpu)
                                                   : linear_choice_of(LINEAR_COMPOSED);
}

/* norm_qkv with an adapter's update. */
static inline linear_qkv_choice choose_adapted_qkv(const linear_qkv_shape *s, int64_t ranks, bool aligned,
                                                   const vb_gpu *gpu) {
    linear_qkv_shape rows = *s;
    rows.n = linear_adapted_item_rows(s->n);
    linear_qkv_choice c = choose_norm_qkv(&rows, gpu);
    const bool items = c.kernel == LINEAR_N4_QKV || c.kernel == LINEAR_N32_QKV;
    if (items && s->n > 1 && linear_rows_adapt(gpu, s->cols, ranks, aligned)) return c;
    rows.n = linear_adapted_rows(gpu, s->n);
    c = choose_norm_qkv(&rows, gpu);
    const vb_packed_format qk = vb_packed_format_of(s->q_type), v = vb_packed_format_of(s->v_type);
    const bool adapts =
        c.kernel == LINEAR_N1_QKV ? aligned && linear_leaves(s->cols, 3, ranks) &&
                                        linear_n1_adapts(gpu, qk, &c.qk, s->cols, 2, ranks) &&
                                        linear_n1_adapts(gpu, v, &c.v, s->cols, 2, ranks)
                                  : c.qk_units.kernel != LINEAR_NONE && linear_units_adapt(gpu, ranks, aligned);
    if (!adapts) c.kernel = LINEAR_COMPOSED;
    return c;
}

#endif
