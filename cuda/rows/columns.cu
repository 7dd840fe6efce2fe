// columns.cu: mul_rows (a factor for each row) and copy_columns (joins and splits rows).
//
//   grid     256 threads; a thread takes WIDTH neighbours of a row: 16 bytes where rows are whole vectors, else one
//            element
//   shared   none
//   moves    each element read and written once; bound by memory bandwidth, in decode by the launch

#include "runtime/common.cuh"
#include "rows/choose.h"

namespace vb {
namespace {

constexpr int columns_threads = 256;

template <class T, int WIDTH>
__global__ void __launch_bounds__(columns_threads)
    mul_rows_kernel(T *out, const T *a, const float *s, int64_t n, int64_t per_row) {
    wait_for_previous_kernel();
    release_next_kernel();
    const int64_t i = (int64_t)blockIdx.x * columns_threads + threadIdx.x;
    if (i >= n) return;
    const float factor = s[i / per_row];
    Vec<T, WIDTH> x = reinterpret_cast<const Vec<T, WIDTH> *>(a)[i];
#pragma unroll
    for (int e = 0; e < WIDTH; e++) x.at[e] = from_float<T>(to_float(x.at[e]) * factor);
    reinterpret_cast<Vec<T, WIDTH> *>(out)[i] = x;
}

// V is the unit of the copy; strides and n count units.
template <class V>
__global__ void __launch_bounds__(columns_threads)
    copy_columns_kernel(V *out, const V *in, int64_t out_stride, int64_t in_stride, int64_t per_row, int64_t n) {
    wait_for_previous_kernel();
    release_next_kernel();
    const int64_t i = (int64_t)blockIdx.x * columns_threads + threadIdx.x;
    if (i >= n) return;
    const int64_t row = i / per_row, at = i - row * per_row;
    out[row * out_stride + at] = in[row * in_stride + at];
}

template <class V>
vb_status copy_columns(char *out, const char *in, int64_t out_stride, int64_t in_stride, int64_t bytes, int64_t rows,
                       vb_stream *stream) {
    const int64_t size = sizeof(V), n = rows * (bytes / size), blocks = ceil_div<int64_t>(n, columns_threads);
    return launch_overlapped(stream, (unsigned)blocks, columns_threads, 0, copy_columns_kernel<V>, (V *)out,
                             (const V *)in, out_stride / size, in_stride / size, bytes / size, n);
}

} // namespace
} // namespace vb

using namespace vb;

extern "C" {

vb_status vb_cuda_mul_rows(void *out, const void *a, const float *s, vb_dtype type, int64_t rows, int64_t cols,
                           vb_stream *stream) {
    const rows_kernel kernel = choose_mul_rows(type, aligned16(out, a), cols);
    chosen(stream, rows_kernel_info(kernel), "mul_rows", type, "rows cols", rows, cols);
    const bool vectors = kernel == ROWS_MUL_VECTORS;
    return with_float_type(type, [&](auto zero) {
        using T = decltype(zero);
        constexpr int wide = Wide<T>::size;
        const int64_t per_row = cols / (vectors ? wide : 1), n = rows * per_row,
                      blocks = ceil_div<int64_t>(n, columns_threads);
        return launch_overlapped(stream, (unsigned)blocks, columns_threads, 0,
                                 vectors ? mul_rows_kernel<T, wide> : mul_rows_kernel<T, 1>, (T *)out, (const T *)a, s,
                                 n, per_row);
    });
}

vb_status vb_cuda_copy_columns(void *out, int64_t out_cols, int64_t out_first, const void *in, int64_t in_cols,
                               int64_t in_first, vb_dtype type, int64_t rows, int64_t cols, vb_stream *stream) {
    const int64_t size = type == VB_F32 || type == VB_I32 ? 4 : 2, out_stride = out_cols * size,
                  in_stride = in_cols * size;
    char *const to = (char *)out + out_first * size;
    const char *const from = (const char *)in + in_first * size;
    const rows_kernel kernel = choose_copy_columns(aligned16(to, from), out_stride, in_stride, cols * size);
    chosen(stream, rows_kernel_info(kernel), "copy_columns", type, "rows cols", rows, cols);
    if (kernel == ROWS_COLUMNS_VECTORS)
        return copy_columns<uint4>(to, from, out_stride, in_stride, cols * size, rows, stream);
    if (size == 4) return copy_columns<uint32_t>(to, from, out_stride, in_stride, cols * size, rows, stream);
    return copy_columns<uint16_t>(to, from, out_stride, in_stride, cols * size, rows, stream);
}

} // extern "C"
