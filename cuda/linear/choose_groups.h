/* choose_groups.h: how blocks of packed_n1 and packed_n4 are cut where rows of W have few tiles: a part of
 * linear/choose.h. docs/experiments/2026-11-27-formats.md and 2026-11-28-formats.md measured them. */
#ifndef VB_LINEAR_CHOOSE_GROUPS_H
#define VB_LINEAR_CHOOSE_GROUPS_H

#include "linear/choose.h"

/* ---- packed_n1: warps with rows of tiles of their own ------------------------------------------------------------ */

enum {
    LINEAR_OWN_ROWS_BITS = 4,   /* of a code, at most: of more, whose bytes take longer, groups are faster */
    LINEAR_OWN_ROWS_WARPS = 12, /* of a block: there are registers for two such blocks */
    LINEAR_OWN_ROWS_TILES = 16, /* of a warp's part of a row, at most */
    LINEAR_OWN_ROWS_STAGES = 12, /* of a warp's ring, at most */
    LINEAR_OWN_ROWS_BYTES = 32 << 20 /* of weights, at most: more take as long by any of these */
};

/* The items of n1_rows: rows of tiles, each of a team of warps. */
typedef struct linear_own_rows {
    int share, warps, stages; /* warps of a team, and of a block; stages of a warp's ring */
    int rounds, blocks;       /* rows of a team; blocks of the grid, 0: none */
    int64_t shared_bytes;     /* of a block */
} linear_own_rows;

/* Tiles of a stage: two small ones are waited for at once, and multiplied beside each other. */
VB_CONSTANT_FN int linear_own_rows_step(vb_packed_format f) { return f.depth == 128 ? 2 : 1; }

/* Rings, x, and of each warp of a team a barrier and its sums of two rows. */
static inline int64_t linear_own_rows_shared(vb_packed_format f, int64_t row_tiles, const linear_own_rows *p) {
    return (int64_t)p->warps * (p->stages * (linear_own_rows_step(f) * f.tile_bytes + 8) +
                                (p->share > 1 ? 8 + 2 * VB_PACKED_ROWS * 4 : 0)) +
           row_tiles * vb_n1_tile_bytes(f);
}

/* n1_rows in place of n1_kernel, whose items are `block`, on Hopper and later: as many blocks and shared memory.
 * A team is of so many warps that a warp has the fewest tiles to multiply one after the other. To meet takes a team
 * half of a tile's time. No blocks where the warps of n1_kernel have fewer tiles, or of 256 columns a fourth more. */
static inline linear_own_rows linear_n1_own_rows(const vb_gpu *gpu, vb_packed_format f, int64_t row_tiles,
                                                 int64_t tile_rows, const linear_items *block) {
    linear_own_rows p = {0, LINEAR_OWN_ROWS_WARPS, LINEAR_OWN_ROWS_STAGES, 0, 0, 0};
    if (gpu->capability < 90 || !block->blocks || f.bits > LINEAR_OWN_ROWS_BITS ||
        (f.depth == 256 && block->ksplit > 1) || tile_rows * row_tiles * f.tile_bytes > LINEAR_OWN_ROWS_BYTES)
        return p;
    const int64_t items = vb_ceil_div(tile_rows, block->parts), most = f.depth == 256 ? 3 : 6;
    int64_t least = 2 * vb_ceil_div(items, block->blocks / block->ksplit) * block->parts *
                    vb_ceil_div(vb_ceil_div(row_tiles, block->ksplit), block->warps);
    if (f.depth == 256) least = least * 4 / 5;
    for (int share = 1; share <= most; share++) {
        const int64_t tiles = vb_ceil_div(row_tiles, share),
                      rounds = vb_ceil_div(tile_rows, (int64_t)block->blocks * (p.warps / share)),
                      time = rounds * (2 * tiles + (share > 1)); /* in halves of a tile */
        const bool each_has_tiles = (share - 1) * tiles < row_tiles;
        if (p.warps % share || !each_has_tiles || tiles > LINEAR_OWN_ROWS_TILES || time > least ||
            (p.share && time == least))
            continue;
        p.share = share, p.rounds = (int)rounds, least = time;
    }
    while (p.stages > 1 && linear_own_rows_shared(f, row_tiles, &p) > block->shared_bytes) p.stages--;
    if (!p.share || linear_own_rows_shared(f, row_tiles, &p) > block->shared_bytes) return p;
    p.shared_bytes = block->shared_bytes, p.blocks = block->blocks;
    return p;
}

/* ---- groups of warps --------------------------------------------------------------------------------------------- */

/* Of a block. packed_n1: the next kernel's block finds registers beside so many. packed_n4, whose block leaves none:
 * tiles of 256 columns would spill registers of more warps; Q8_0 of long rows is slower by more. */
enum { LINEAR_GROUPED_WARPS = 10, LINEAR_GROUPED_SMALL_TILES_WARPS = 16 };
static inline int linear_grouped_warps(vb_packed_format f, int64_t n, int64_t row_tiles) {
    return n == 1 || f.depth == 256 || (f.bits == 8 && row_tiles > LINEAR_WARPS) ? LINEAR_GROUPED_WARPS
                                                                                 : LINEAR_GROUPED_SMALL_TILES_WARPS;
}

/* The shared memory of a group, of packed_n1 or of packed_n4. */
static inline int64_t linear_group_bytes(vb_packed_format f, int64_t n, int64_t row_tiles, const linear_items *p) {
    const int64_t bytes =
        n == 1 ? linear_n1_shared(f, (int)row_tiles, p) : linear_n4_shared(f, (int)n, (int)row_tiles, p);
    return vb_ceil_div(bytes, 128) * 128;
}

/* The groups of a block on Hopper and later, each of which takes items as a block does. `p` becomes a group's, but for
 * the blocks and the shared memory, which are those of all groups. Four warps of tiles of 256 columns need no help, nor
 * do more than five. */
static inline int linear_groups(const vb_gpu *gpu, vb_packed_format f, int64_t n, int64_t row_tiles, int64_t items,
                                linear_items *p) {
    const bool many = f.depth == 256 && row_tiles >= 4 && (n == 1 || row_tiles != 5);
    if (gpu->capability < 90 || p->ksplit > 1 || !p->blocks || many) return 1;
    const int each = (int)vb_ceil_div(row_tiles, p->warps), step = n == 1 ? 1 : p->parts; /* of stages */
    const int64_t most = n == 1 ? linear_max(1, 4 / each) : linear_min(4 / each, 8 / n), pairs = (n + 1) / 2;
    /* each has a barrier of the block's sixteen, the first of which is all warps' */
    const int64_t at_most = linear_min(linear_grouped_warps(f, n, row_tiles) / p->warps, 15);
    for (int64_t groups = linear_min(at_most, vb_ceil_div(items, p->blocks)); groups > 1; groups--) {
        linear_items of = *p;
        of.rounds = (int)vb_ceil_div(items, p->blocks * groups);
        of.chunk = (int)linear_max(1, linear_min(linear_min(of.rounds, p->warps / pairs), most));
        of.stages = (int)linear_min((int64_t)p->parts * each * of.rounds, 12);
        while (of.stages > p->parts && groups * linear_group_bytes(f, n, row_tiles, &of) > p->shared_bytes)
            of.stages -= step;
        if (groups * linear_group_bytes(f, n, row_tiles, &of) > p->shared_bytes) continue;
        *p = of;
        return (int)groups;
    }
    return 1;
}

#endif
