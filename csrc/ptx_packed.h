/* ptx_packed.h: the packed layout of weights that ptx_packed.c describes, for the kernels that read it. Not
 * installed. */
#ifndef VB_PTX_PACKED_H
#define VB_PTX_PACKED_H

#include "ptx_device.h"

enum { VB_JIT_HALF, VB_JIT_HALF_MIN, VB_JIT_K4, VB_JIT_K6 }; /* scales */

typedef struct vb_jit_layout {
    int bits, scales, zero;    /* of a code; of the enum; what is subtracted from a code */
    int64_t units;             /* of a row */
    int64_t high, scale, block; /* where these planes of a row begin, in bytes */
    int64_t row;               /* bytes */
} vb_jit_layout;

/* The most units of a row for the kernels of few rows of x: 48 KiB of shared memory hold such an x. */
enum { VB_JIT_FEW_UNITS = 608 };

/* The most columns of packed weights: places in 128 rows of x have 32 bits. */
enum { VB_JIT_MOST_COLS = 1 << 24 };

/* The layout of rows of so many elements; false where a type is not packed. */
bool vb_jit_layout_of(vb_jit_layout *layout, vb_dtype type, int64_t cols);

/* A layout as the constants of a kernel's text. */
#define VB_JIT_LAYOUT(l) \
    {"BITS", (l).bits}, {"SCALES", (l).scales}, {"ZERO", (l).zero}, {"UNITS", (l).units}, {"HIGH_AT", (l).high}, \
        {"SCALE_AT", (l).scale}, {"BLOCK_AT", (l).block}, {"ROW_BYTES", (l).row}

/* Text: element `col` of the packed row at `row` becomes v. */
extern const char vb_jit_packed_value[];

/* Products of packed weights with few rows of x, and with many. They return VB_UNSUPPORTED for other calls. */
vb_status vb_jit_few(float *y, const float *x, const vb_weight *w, const float *bias, int64_t n, vb_stream *stream);
vb_status vb_jit_many(float *y, const float *x, const vb_weight *w, const float *bias, int64_t n, vb_stream *stream);
/* Products of matrices of 16 bits on tensor cores; VB_UNSUPPORTED where there are none, or few rows. */
vb_status vb_jit_product(const vb_matmul_args *args, vb_stream *stream);
vb_status vb_jit_many_add(float *sum, const float *a, const float *x, const vb_weight *w, const float *bias, int64_t n,
                          vb_stream *stream);
vb_status vb_jit_many_swiglu(float *out, const float *x, const float *norm, float eps, const vb_weight *gate,
                             const vb_weight *up, int64_t n, vb_stream *stream);

#endif
