/* operands.h: how the matrices of a product lie in memory, for its choosers. */
#ifndef VB_CUDA_GEMM_OPERANDS_H
#define VB_CUDA_GEMM_OPERANDS_H

#include "runtime/chooser.h"

static inline int matmul_element_bytes(vb_dtype type) { return type == VB_F32 ? 4 : 2; }

/* Whether the matrices have no gaps; A stored [m][k], B in either order. */
static inline int matmul_contiguous(const vb_matmul_args *x) {
    return x->batch == 1 && !x->a_transposed && x->a_stride == x->k && x->b_stride == (x->b_transposed ? x->k : x->n) &&
           x->c_stride == x->n;
}
/* Whether a matrix can be read in pieces of 16 bytes along its rows (the last piece of a row may be part). */
static inline int matmul_vectors(const void *matrix, vb_dtype type, int64_t stride, int64_t batch_stride) {
    const int wide = 16 / matmul_element_bytes(type);
    return vb_aligned16(matrix) && stride % wide == 0 && batch_stride % wide == 0;
}
/* Elements of 16 bits in a line of the L2. */
enum { MATMUL_LINE = 64 };
/* The share of a matrix's rows of 16 bits that begin within a line: TMA asks the L2 for two lines for each piece of 128
 * bytes of theirs. Copies of rows that are no whole vectors begin where lines do. */
static inline double matmul_off_lines(const void *matrix, vb_dtype type, int64_t stride, int64_t batch_stride) {
    if (stride % MATMUL_LINE == 0 || !matmul_vectors(matrix, type, stride, batch_stride)) return 0;
    return 1 - (double)(stride & -stride) / MATMUL_LINE;
}
static inline int matmul_operand_vectors(const vb_matmul_args *x) {
    return matmul_vectors(x->a, x->type, x->a_stride, x->a_batch_stride) &&
           matmul_vectors(x->b, x->type, x->b_stride, x->b_batch_stride);
}
static inline int matmul_sizes_below(const vb_matmul_args *x, int64_t most) {
    return x->k > 0 && x->m < most && x->n < most && x->k < most && x->batch < most;
}

#endif
