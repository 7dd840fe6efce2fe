// half_rows.cuh: where rows in F16 lie in the memory that operations of a layer share (HalfRows).
#ifndef VB_LINEAR_HALF_ROWS_CUH
#define VB_LINEAR_HALF_ROWS_CUH

#include "linear/linear.cuh"
#include "linear/packed/many.cuh"

namespace vb {

// Rows that products pass on, in memory for as many floats: n > packed_batch_hopper.
inline HalfRows half_rows(float *memory, int64_t n, int64_t cols, unsigned *uneven, bool squares) {
    half *const x = (half *)memory;
    float *const sums = (float *)(x + n * cols);
    return {x, (uint8_t *)(sums + (squares ? cols / unit_rows * half_stride(n) : 0)), uneven, squares ? sums : nullptr};
}
inline HalfRows normed_rows(float *memory, int64_t n, int64_t cols, HalfFlag flag) {
    return cols % unit_rows == 0 ? half_rows(memory, n, cols, first_half_flag(memory, n, cols) + flag, true)
                                 : HalfRows();
}

} // namespace vb
#endif
