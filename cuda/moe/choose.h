/* choose.h: which kernel runs for a mixture of experts. Pure functions; plain C. cuda/README.md has the map,
 * choose_test.h the test. */
#ifndef VB_MOE_CHOOSE_H
#define VB_MOE_CHOOSE_H

#include "linear/choose.h"

#define MOE_KERNELS(X) \
    X(MOE_ROUTE, "route", "moe/route.cu", "route: a warp a token") \
    X(MOE_NORM_ROUTE, "norm_route", "moe/norm_route.cu", \
      "norm_route: up to 16 tokens of up to 8192 elements, a router in F32 of rows of whole vectors, 9.0") \
    X(MOE_EXPERT_ROWS, "expert_rows", "moe/expert_linear.cu", \
      "expert_linear: stored, below two choices an expert, F32, before 7.5 (BF16: 8.0)")                            \
    X(MOE_EXPERT_TILES, "expert_tiles", "moe/expert_linear.cu", \
      "expert_linear: stored, choices sorted by expert, tensor cores") \
    X(MOE_EXPERT_N1, "expert_n1", "moe/expert_n1.cu", \
      "expert_feed_forward: packed, fewer choices than experts, or 16") \
    X(MOE_EXPERT_MANY, "expert_many", "moe/expert_many.cu", \
      "expert_feed_forward: packed, more choices, sorted by expert; expert_linear: packed") \
    X(MOE_EXPERT_MANY_SM90, "expert_many_sm90", "moe/expert_many_sm90.cu", "the same on Hopper") \
    X(MOE_COMPOSED, "composed", "../csrc/ops_experts.c", \
      "expert_feed_forward, norm_route as the operations of their formulas") \
    X(MOE_SUM_VECTORS, "expert_sum_vectors", "moe/expert_sum.cu", "expert_sum, rows of whole vectors of 16 bytes") \
    X(MOE_SUM_ELEMENTS, "expert_sum_elements", "moe/expert_sum.cu", "expert_sum of any other row")
VB_KERNEL_FAMILY(moe, MOE, MOE_KERNELS)

enum { MOE_TILE_ROWS = 128, MOE_TILE_CHOICES = 64, MOE_MOST_EXPERTS = 4096 };
enum { MOE_ROWS_BLOCK = 16, MOE_ROUTE_ROWS = 4, MOE_SUM_THREADS = 256 }; /* rows or threads of a block of a grid's x */
enum { MOE_ROUTE_CLUSTER = 16, MOE_ROUTE_WARPS = 16, MOE_ROUTE_TOKENS = 16, MOE_ROUTE_EXPERTS = 1024 };
enum { MOE_ROUTE_VECTORS = 4 }; /* of the router, of a thread and stage */
enum { MOE_GATE_UP_SHARED = 118 << 10, MOE_PAIR_SHARED = 58 << 10 };

/* The greatest number of tiles of so many choices: each expert's last tile is part. The NaN rows, of ids that name no
 * expert, are a further tile. */
static inline int64_t moe_tile_slots(int64_t choices, int64_t experts) {
    return vb_ceil_div(choices, MOE_TILE_CHOICES) + (choices < experts + 1 ? choices : experts + 1);
}

/* The limits of a grid. */
static inline bool moe_sorts(int64_t choices, int64_t experts) {
    return experts <= MOE_MOST_EXPERTS && choices <= INT32_MAX / 2 && moe_tile_slots(choices, experts) <= 65535;
}

static inline moe_kernel moe_many(const vb_gpu *gpu) {
    return linear_has_wgmma(gpu) ? MOE_EXPERT_MANY_SM90 : MOE_EXPERT_MANY;
}

/* With fewer choices than twice the experts, an expert has about one choice, and its rows are read once anyhow. */
static inline moe_kernel choose_expert_linear(const vb_expert_linear_args *a, const vb_gpu *gpu) {
    const int64_t choices = a->n * a->k;
    const bool fits = moe_sorts(choices, a->experts);
    if (a->w.layout == VB_PACKED) return fits && a->w.cols > 0 ? moe_many(gpu) : MOE_NONE;
    if (vb_ceil_div(a->w.rows, MOE_ROWS_BLOCK) > INT32_MAX) return MOE_NONE;
    const bool many = choices > 16 && choices >= 2 * a->experts;
    const bool tensor_cores = a->w.type != VB_F32 && gpu->capability >= (a->w.type == VB_BF16 ? 80 : 75);
    return many && tensor_cores && fits ? MOE_EXPERT_TILES : MOE_EXPERT_ROWS;
}

/* How the experts of a token are cut into items: rows of tiles of gate and up; rows of tiles of all down projections
 * side by side. */
typedef struct moe_choice {
    moe_kernel kernel;
    linear_items gate_up, down; /* of expert_n1, for each token */
} moe_choice;

/* On Hopper all items of a block or cluster are added up behind one barrier, if there is room in `most` bytes. So each
 * has a warp of its own, which has asked for the item's biases before the first tile. */
static inline linear_items moe_one_chunk(const vb_gpu *gpu, vb_packed_format f, const linear_items *p,
                                         int64_t row_tiles, int64_t items, int64_t most) {
    if (gpu->capability < 90 || !p->blocks) return *p;
    const int tiles = (int)vb_ceil_div(row_tiles, p->ksplit);
    linear_items one = *p;
    one.chunk = (int)linear_min(vb_ceil_div(items, p->blocks / p->ksplit), p->warps);
    one.shared_bytes = linear_min(p->shared_bytes, most);
    while (one.stages > p->parts && linear_n1_shared(f, tiles, &one) > one.shared_bytes) one.stages--;
    return linear_n1_shared(f, tiles, &one) <= one.shared_bytes ? one : *p;
}

/* Two blocks a multiprocessor hide each other's latencies where a warp has more than two tiles of 128 columns: with two
 * they lose. 0 blocks where they do not fit. docs/experiments/2026-11-28-experts.md measured them. */
static inline linear_items moe_pairs(const vb_gpu *gpu, vb_packed_format f, int ksplit, int parts, int64_t row_tiles,
                                     int64_t items) {
    linear_items p = {0, 0, 0, 0, 0, 0, 0, 0, 0};
    if (gpu->capability < 90 || gpu->multiprocessors < ksplit || f.depth != 128) return p;
    p = linear_n1_items(gpu, f, parts, ksplit, row_tiles, items);
    p.blocks *= 2;
    if (p.blocks / ksplit > items || vb_ceil_div(row_tiles, ksplit) <= 2 * p.warps) p.blocks = 0;
    p = moe_one_chunk(gpu, f, &p, row_tiles, items, MOE_PAIR_SHARED);
    if (p.shared_bytes > MOE_PAIR_SHARED) p.blocks = 0;
    return p;
}

/* A block of down finds room beside those of gate and up. */
static inline linear_items moe_gate_up_items(const vb_gpu *gpu, vb_packed_format f, int64_t row_tiles, int64_t items) {
    const linear_items pairs = moe_pairs(gpu, f, 1, 2, row_tiles, items);
    if (pairs.blocks) return pairs;
    const linear_items p = linear_n1_items(gpu, f, 2, 1, row_tiles, items);
    return moe_one_chunk(gpu, f, &p, row_tiles, items, MOE_GATE_UP_SHARED);
}

/* Blocks of an item alone, or on Hopper two or four where they have less to do one after the other. */
static inline linear_items moe_down_items(const vb_gpu *gpu, vb_packed_format f, int64_t row_tiles, int64_t items) {
    const linear_items whole = linear_n1_items(gpu, f, 1, 1, row_tiles, items);
    if (gpu->capability < 90 || gpu->multiprocessors < 2 || !whole.blocks) return whole;
    const linear_items halves = linear_n1_items(gpu, f, 1, 2, row_tiles, items);
    const bool fewer =
        halves.blocks && vb_ceil_div(items, halves.blocks / 2) < 2 * vb_ceil_div(items, whole.blocks);
    const linear_items quarters = moe_pairs(gpu, f, 4, 1, row_tiles, items);
    if (fewer && quarters.blocks) return quarters;
    return moe_one_chunk(gpu, f, fewer ? &halves : &whole, row_tiles, items, gpu->shared_bytes);
}

/* `aligned`: x, gated and the addend, to 16 bytes. */
static inline moe_choice choose_expert_feed_forward(const vb_expert_feed_forward_args *a, bool aligned,
                                                    const vb_gpu *gpu) {
    const linear_items no_items = {0, 0, 0, 0, 0, 0, 0, 0, 0};
    moe_choice c = {MOE_COMPOSED, no_items, no_items};
    const int64_t choices = a->n * a->k, rows = a->gate.rows, cols = a->gate.cols;
    const vb_packed_format f = vb_packed_format_of(a->gate.type), down = vb_packed_format_of(a->down.type);
    if (a->gate.layout != VB_PACKED || a->up.layout != VB_PACKED || a->down.layout != VB_PACKED ||
        a->up.type != a->gate.type || !aligned || choices == 0 || rows == 0 || a->experts == 0 ||
        !moe_sorts(choices, a->experts) || rows > 1 << 24 || cols > 1 << 24)
        return c;
    const bool few = choices <= 16 || choices < a->experts;
    const int64_t tile_rows = linear_tile_rows(rows);
    if (few && a->k <= 32 && a->n <= 65535 && /* a lane knows one of a token's experts */
        a->k * tile_rows * tile_rows <= (int64_t)1 << 32) { /* whose number is a quotient of the item's, by a product */
        c.gate_up = moe_gate_up_items(gpu, f, linear_row_tiles(f, cols), a->k * tile_rows);
        c.down = moe_down_items(gpu, down, a->k * linear_row_tiles(down, rows), linear_tile_rows(cols));
    }
    c.kernel = c.gate_up.blocks && c.down.blocks ? MOE_EXPERT_N1 : moe_many(gpu);
    return c;
}

/* Shared memory of norm_route: stages of the router, keys and logits of the experts, a mailbox, sums of each warp. */
static inline int64_t moe_norm_route_shared(const vb_norm_route_args *a, int stages) {
    return stages * MOE_ROUTE_VECTORS * MOE_ROUTE_WARPS * 32 * 16 + a->router.rows * 12 + 8 +
           MOE_ROUTE_WARPS * 4 * (1 + vb_ceil_div(a->router.rows, MOE_ROUTE_CLUSTER));
}
/* Three stages where a block has more of the router than two hold, and there is room. */
static inline int moe_norm_route_stages(const vb_norm_route_args *a, const vb_gpu *gpu) {
    const int64_t chunks = vb_ceil_div(a->router.cols / 4, MOE_ROUTE_WARPS * 32);
    const int64_t vectors = vb_ceil_div(a->router.rows, MOE_ROUTE_CLUSTER) * (chunks == 3 ? 4 : chunks);
    return vectors > 2 * MOE_ROUTE_VECTORS && moe_norm_route_shared(a, 3) <= gpu->shared_bytes ? 3 : 2;
}

/* `aligned`: x, norm, normed and the router to 16 bytes. */
static inline moe_kernel choose_norm_route(const vb_norm_route_args *a, bool aligned, const vb_gpu *gpu) {
    const bool fits = a->n <= MOE_ROUTE_TOKENS && a->k > 0 && a->router.rows <= MOE_ROUTE_EXPERTS &&
                      a->router.cols > 0 && a->router.cols % 4 == 0 && a->router.cols <= 8192;
    const bool plain = a->router.type == VB_F32 && a->router.layout == VB_STORED;
    return vb_has_clusters(gpu) && fits && plain && aligned && moe_norm_route_shared(a, 2) <= gpu->shared_bytes
               ? MOE_NORM_ROUTE
               : MOE_COMPOSED;
}

static inline moe_kernel choose_expert_sum(int aligned, int64_t n, int64_t cols) {
    const bool vectors = aligned && cols % 4 == 0;
    if (vb_ceil_div(n * (vectors ? cols / 4 : cols), MOE_SUM_THREADS) > INT32_MAX) return MOE_NONE;
    return vectors ? MOE_SUM_VECTORS : MOE_SUM_ELEMENTS;
}

static inline moe_kernel choose_route(int64_t n) {
    return vb_ceil_div(n, MOE_ROUTE_ROWS) <= INT32_MAX ? MOE_ROUTE : MOE_NONE;
}

#endif
