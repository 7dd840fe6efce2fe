/* ptx_rows.h: how the threads of a block share rows: in registers (ptx_rows.c, which has the kernels), through shared
 * memory (ptx_staged.c), in parts (ptx_parts.c, ptx_norms.c), and by blocks that stay (ptx_ahead.c). Not installed. */
#ifndef VB_PTX_ROWS_H
#define VB_PTX_ROWS_H

#include "ptx_device.h"

/* FULL: every vector of every thread is there, and none is asked for it. Of more than two rounds such a kernel has 80
 * registers in place of 58, and fewer blocks at a time. */
typedef struct row_plan {
    int64_t lanes, threads, least_blocks, rounds, each, registers, vectors, full;
    int64_t steps, warp_steps; /* of shuffles, that join a warp's numbers, and those of a row's warps */
    int64_t staged, async, wide, turns, tile, depth, buffers, held; /* of rows in shared memory; held: parameters */
    int64_t parts, kept, shifted, rows; /* of rows in parts, of which a block has `rows` at once */
} row_plan;

/* Plans for rows in parts; false where they are too short or too long. `parameters` are those of each column. */
bool vb_jit_divide(row_plan *plan, int64_t rows, int64_t cols, int64_t size, int parameters,
    const vb_jit_device *device);

/* What fills the gaps of a kernel for rows in parts. */
extern const struct vb_jit_part_texts {
    const char *begin, *find, *bring, *edges, *load_vector, *first_edge, *second_edge, *last_edge, *rest, *whole, *read,
        *write, *mask;
} vb_jit_part_texts;
#define VB_JIT_PART_TEXTS(p) {"FIND_PARTS", vb_jit_part_texts.find}, {"BRING", vb_jit_part_texts.bring}, \
    {"EDGES", vb_jit_part_texts.edges}, {"LOAD_VECTOR", vb_jit_part_texts.load_vector}, \
    {"FIRST_EDGE", vb_jit_part_texts.first_edge}, {"SECOND_EDGE", vb_jit_part_texts.second_edge}, \
    {"LAST_EDGE", vb_jit_part_texts.last_edge}, {"REST", (p).parts > (p).kept ? vb_jit_part_texts.rest : ""}, \
    {"WHOLE", vb_jit_part_texts.whole}

/* Plans for rows in shared memory, which move on to registers; false where a block has no room for them. */
bool vb_jit_stage(row_plan *plan, int64_t rows, int64_t cols, int64_t size, int parameters,
    const vb_jit_device *device);

/* What fills the gaps of a kernel for rows in shared memory. `hold_weight` keeps a parameter of the thread's columns in
 * registers, from where `held_weight` takes it; `weight` reads it where they are too many. */
extern const struct vb_jit_staged_texts {
    const char *find, *finish, *read, *write, *mask, *bring_first, *bring_next, *bring_this, *if_there, *hold_weight,
        *hold_bias, *hold_both, *held_weight, *held_bias, *parameters, *weight, *bias;
} vb_jit_staged_texts;
#define VB_JIT_STAGED_TEXTS {"IF_THERE", vb_jit_staged_texts.if_there}, \
    {"BRING_FIRST", vb_jit_staged_texts.bring_first}, {"BRING_NEXT", vb_jit_staged_texts.bring_next}, \
    {"BRING_THIS", vb_jit_staged_texts.bring_this}

/* Norms of rows in parts (ptx_norms.c). `mean`: the layer norm. */
vb_status vb_jit_norm_in_parts(const char *name, const row_plan *plan, bool mean, void *out, const void *in,
    const float *weight, const float *bias, vb_dtype type, int64_t rows, int64_t cols, float eps, vb_stream *stream);

/* Norms by blocks that stay (ptx_ahead.c); false, with nothing done, where other kernels are to compute them. `mean`:
 * the layer norm. */
bool vb_jit_norm_ahead(vb_status *status, const char *name, bool mean, void *out, const void *in, const float *weight,
    const float *bias, vb_dtype type, int64_t rows, int64_t cols, float eps, vb_stream *stream);

#endif
