/* choose_groups.h: groups of warps in a block of packed_n1 or packed_n4, where rows of W have few tiles: a part of
 * linear/choose.h. docs/experiments/2026-11-27-formats.md measured them. */
#ifndef VB_LINEAR_CHOOSE_GROUPS_H
#define VB_LINEAR_CHOOSE_GROUPS_H

#include "linear/choose.h"

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
