/* choose_groups.h: how blocks of packed_n1 and packed_n4 are cut where rows of W have few tiles: a part of
 * linear/choose.h. docs/experiments/2026-11-27-formats.md and 2026-11-28-formats.md measured them. */
#ifndef VB_LINEAR_CHOOSE_GROUPS_H
#define VB_LINEAR_CHOOSE_GROUPS_H

#include "linear/choose.h"

/* ---- packed_n1: warps with rows of tiles of their own ------------------------------------------------------------ */

enum {
    LINEAR_OWN_ROWS_WARPS = 12, /* of a block: there are registers for two such blocks */
    LINEAR_OWN_ROWS_TILES = 9, LINEAR_OWN_ROWS_STAGES = 12, /* of a row, and of a warp's ring, at most */
    LINEAR_OWN_ROWS_BYTES = 32 << 20 /* of weights, at most: more were not measured */
};

static inline int64_t linear_own_rows_shared(vb_packed_format f, int64_t row_tiles, const linear_items *p) {
    return (int64_t)p->warps * p->stages * (f.tile_bytes + 8) + row_tiles * vb_n1_tile_bytes(f);
}

/* n1_rows in place of n1_kernel, whose items are `block`, on Hopper and later: as many blocks and shared memory, and
 * items of one row of tiles. No blocks where a warp would have more tiles to multiply one after the other than those of
 * n1_kernel have, and for codes of more than four bits: for those, bound by their bytes, groups are faster. */
static inline linear_items linear_n1_own_rows(const vb_gpu *gpu, vb_packed_format f, int64_t row_tiles,
                                              int64_t tile_rows, const linear_items *block) {
    linear_items p = {1, 1, 1, 0, 0, 0, 0, 0, 0};
    if (gpu->capability < 90 || block->ksplit > 1 || !block->blocks || f.bits > 4 ||
        row_tiles > LINEAR_OWN_ROWS_TILES || tile_rows * row_tiles * f.tile_bytes > LINEAR_OWN_ROWS_BYTES)
        return p;
    const int64_t items = vb_ceil_div(tile_rows, block->parts),
                  tiles = vb_ceil_div(items, block->blocks) * block->parts * vb_ceil_div(row_tiles, block->warps);
    p.warps = LINEAR_OWN_ROWS_WARPS, p.stages = LINEAR_OWN_ROWS_STAGES;
    p.rounds = (int)vb_ceil_div(tile_rows, (int64_t)block->blocks * p.warps);
    while (p.stages > 1 && linear_own_rows_shared(f, row_tiles, &p) > block->shared_bytes) p.stages--;
    if (p.rounds * row_tiles > tiles || linear_own_rows_shared(f, row_tiles, &p) > block->shared_bytes) return p;
    p.shared_bytes = block->shared_bytes, p.blocks = block->blocks;
    return p;
}

/* ---- groups of warps --------------------------------------------------------------------------------------------- */

enum { LINEAR_GROUPED_WARPS = 10 }; /* of a block: the next kernel's block finds registers beside so many */

/* The shared memory of a group, of packed_n1 or of packed_n4. */
static inline int64_t linear_group_bytes(vb_packed_format f, int64_t n, int64_t row_tiles, const linear_items *p) {
    const int64_t bytes =
        n == 1 ? linear_n1_shared(f, (int)row_tiles, p) : linear_n4_shared(f, (int)n, (int)row_tiles, p);
    return vb_ceil_div(bytes, 128) * 128;
}

/* The groups of a block on Hopper and later, each of which takes items as a block does. `p` becomes a group's, but for
 * the blocks and the shared memory, which are those of all groups. Four warps of tiles of 256 columns need no help. */
static inline int linear_groups(const vb_gpu *gpu, vb_packed_format f, int64_t n, int64_t row_tiles, int64_t items,
                                linear_items *p) {
    if (gpu->capability < 90 || p->ksplit > 1 || !p->blocks || (f.depth == 256 && row_tiles >= 4)) return 1;
    const int each = (int)vb_ceil_div(row_tiles, p->warps), step = n == 1 ? 1 : p->parts; /* of stages */
    const int64_t most = n == 1 ? linear_max(1, 4 / each) : linear_min(4 / each, 8 / n), pairs = (n + 1) / 2;
    for (int64_t groups = linear_min(LINEAR_GROUPED_WARPS / p->warps, vb_ceil_div(items, p->blocks)); groups > 1;
         groups--) {
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
