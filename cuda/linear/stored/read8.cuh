// read8.cuh: eight elements of a stored row at a time, for kernels that take any type and rows that begin anywhere.
#ifndef VB_LINEAR_READ8_CUH
#define VB_LINEAR_READ8_CUH

#include "linear/quant.cuh"

namespace vb {
namespace {

// Eight elements of a row from k on, zeros beyond it. Rows of plain types that are not aligned to 16 bytes are read by
// single elements.
template <class Block>
VB_DEVICE void read8(float out[8], const Block *row, int64_t k, int64_t, bool) {
    dequantize8(out, row, k);
}
template <class T>
VB_DEVICE void read8_plain(float out[8], const T *row, int64_t k, int64_t cols, bool aligned) {
    if (aligned) dequantize8(out, row, k);
    else
        for (int i = 0; i < 8; i++) out[i] = k + i < cols ? to_float(row[k + i]) : 0.0f;
}
VB_DEVICE void read8(float out[8], const float *row, int64_t k, int64_t cols, bool aligned) {
    read8_plain(out, row, k, cols, aligned);
}
VB_DEVICE void read8(float out[8], const half *row, int64_t k, int64_t cols, bool aligned) {
    read8_plain(out, row, k, cols, aligned);
}
VB_DEVICE void read8(float out[8], const bf16 *row, int64_t k, int64_t cols, bool aligned) {
    read8_plain(out, row, k, cols, aligned);
}

} // namespace
} // namespace vb
#endif
