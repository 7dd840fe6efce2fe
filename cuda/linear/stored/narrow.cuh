// narrow.cuh: rows of x in the 16-bit type of a product's other factor, in the stream's workspace.
#ifndef VB_LINEAR_NARROW_CUH
#define VB_LINEAR_NARROW_CUH

#include "linear/linear.cuh"
#include "runtime/power_of_two.cuh"

namespace vb {
namespace {

// What rows are multiplied by before they are rounded to F16, or to BF16, which has float32's range.
VB_DEVICE float row_scale(float most, half) { return power_of_two_scale(most); }
VB_DEVICE float row_scale(float, bf16) { return 1.0f; }

// out[r][0..stride) = x[r] * scale in T, zeros beyond cols; inverse[r] = 1 / scale. One block a row.
template <class T>
__global__ void __launch_bounds__(256)
    narrow_kernel(T *out, float *inverse, const float *x, int64_t cols, int64_t stride) {
    wait_for_previous_kernel();
    release_next_kernel();
    __shared__ float scratch[32];
    x += blockIdx.x * cols, out += blockIdx.x * stride;
    float most = 0;
    for (int64_t k = threadIdx.x; k < cols; k += 256) most = Max::combine(most, fabsf(x[k]));
    most = block_reduce<Max>(most, scratch);
    const float scale = row_scale(most, T());
    if (threadIdx.x == 0) inverse[blockIdx.x] = 1.0f / scale;
    for (int64_t k = threadIdx.x; k < stride; k += 256) out[k] = from_float<T>(k < cols ? x[k] * scale : 0.0f);
}

template <class T>
struct NarrowRows {
    T *rows;        // [n][stride]
    float *inverse; // [n]
};

template <class T>
vb_status narrow_rows(NarrowRows<T> *to, const float *x, int64_t n, int64_t cols, int64_t stride, vb_stream *stream) {
    void *scratch;
    VB_TRY(workspace(&scratch, n * stride * (int64_t)sizeof(T) + n * (int64_t)sizeof(float), stream));
    to->rows = (T *)scratch, to->inverse = (float *)(to->rows + n * stride);
    return launch_overlapped(stream, (unsigned)n, 256, 0, narrow_kernel<T>, to->rows, to->inverse, x, cols, stride);
}

} // namespace
} // namespace vb
#endif
