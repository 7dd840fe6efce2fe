/* ptx_rows.h: how the threads of a block share rows. ptx_rows.c has the kernels, ptx_parts.c the texts of rows that
 * stay with a block in parts. Not installed. */
#ifndef VB_PTX_ROWS_H
#define VB_PTX_ROWS_H

#include "ptx_device.h"

/* FULL: every vector of every thread is there, and none is asked for it. Of more than two rounds such a kernel has 80
 * registers in place of 58, and fewer blocks at a time. */
typedef struct row_plan {
    int64_t lanes, threads, least_blocks, steps, rounds, each, registers, vectors, full;
    int64_t staged, async, wide, turns, tile, depth, buffers; /* of rows in shared memory */
    int64_t parts, kept, shifted;                             /* of rows in parts */
} row_plan;

/* Plans for rows in parts; false where they are too short or too long. `parameters` are those of each column. */
bool vb_jit_divide(row_plan *plan, int64_t cols, int64_t size, int parameters, const vb_jit_device *device);

/* What fills the gaps of a kernel for rows in parts. */
extern const struct vb_jit_part_texts {
    const char *begin, *load_vector, *first_edge, *second_edge, *last_edge, *rest, *whole, *read, *write, *mask, *count,
        *scale, *each_shift, *no_shift, *weight, *bias, *shifted_weight, *shifted_bias;
} vb_jit_part_texts;

#endif
