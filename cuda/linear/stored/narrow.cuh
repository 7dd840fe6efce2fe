// narrow.cuh: rows of x in the 16-bit type of a product's other factor, in the stream's workspace.
#ifndef VB_LINEAR_NARROW_CUH
#define VB_LINEAR_NARROW_CUH

#include "linear/linear.cuh"
#include "runtime/power_of_two.cuh"

namespace vb {
namespace {

// The scales of rows before they are rounded to F16, or to BF16, which has float32's range.
VB_DEVICE float row_scale(float most, half) { return power_of_two_scale(most); }
VB_DEVICE float row_scale(float, bf16) { return 1.0f; }
VB_DEVICE constexpr bool scaled(half) { return true; }
VB_DEVICE constexpr bool scaled(bf16) { return false; }

// out[r][0..stride) = x[r] * scale in T, zeros beyond cols; inverse[r] = 1 / scale.
// One block a row, WIDTH neighbours a thread and turn; a thread holds the elements of its first turns.
template <class T, int WIDTH, int HELD>
__global__ void __launch_bounds__(256)
    narrow_kernel(T *out, float *inverse, const float *x, int64_t cols, int64_t stride) {
    using V = Vec<float, WIDTH>;
    __shared__ float scratch[32];
    wait_for_previous_kernel();
    release_next_kernel();
    x += blockIdx.x * cols, out += blockIdx.x * stride;
    const V *const from = reinterpret_cast<const V *>(x);
    const int64_t count = cols / WIDTH;
    const auto each = [&](const auto &f) { // f(nth, where it is held)
#pragma unroll
        for (int i = 0; i < HELD; i++) f(i * 256 + threadIdx.x, i);
        for (int64_t i = HELD * 256 + threadIdx.x; i < stride / WIDTH; i += 256) f(i, HELD);
    };
    V mine[HELD + 1];
    float most = 0;
    each([&](int64_t i, int at) {
        mine[at] = i < count ? from[i] : V();
#pragma unroll
        for (int e = 0; e < WIDTH; e++) most = Max::combine(most, fabsf(mine[at].at[e]));
    });
    if (scaled(T())) most = block_reduce<Max>(most, scratch);
    const float scale = row_scale(most, T());
    if (threadIdx.x == 0) inverse[blockIdx.x] = 1.0f / scale;
    each([&](int64_t i, int at) {
        if (i >= stride / WIDTH) return;
        const V v = at < HELD ? mine[at] : i < count ? from[i] : V();
        Vec<T, WIDTH> y;
#pragma unroll
        for (int e = 0; e < WIDTH; e++) y.at[e] = from_float<T>(v.at[e] * scale);
        reinterpret_cast<Vec<T, WIDTH> *>(out)[i] = y;
    });
}

template <class T>
struct NarrowRows {
    T *rows;        // [n][stride]
    float *inverse; // [n]
};

template <class T>
int64_t narrow_bytes(int64_t n, int64_t stride) {
    return n * stride * (int64_t)sizeof(T) + n * (int64_t)sizeof(float);
}
// In memory of narrow_bytes. VECTORS: rows are whole vectors.
template <bool VECTORS = false, class T>
vb_status narrow_rows(NarrowRows<T> *to, void *memory, const float *x, int64_t n, int64_t cols, int64_t stride,
                      vb_stream *stream) {
    to->rows = (T *)memory, to->inverse = (float *)(to->rows + n * stride);
    const bool vectors = VECTORS || (cols % 4 == 0 && stride % 4 == 0 && aligned16(x));
    const auto kernel = !vectors                ? narrow_kernel<T, VECTORS ? 4 : 1, 8>
                        : stride <= 2 * 4 * 256 ? narrow_kernel<T, 4, 2>
                                                : narrow_kernel<T, 4, 8>;
    return launch_overlapped(stream, (unsigned)n, 256, 0, kernel, to->rows, to->inverse, x, cols, stride);
}

// The same in the workspace.
template <bool VECTORS = false, class T>
vb_status narrow_rows(NarrowRows<T> *to, const float *x, int64_t n, int64_t cols, int64_t stride, vb_stream *stream) {
    void *memory;
    VB_TRY(workspace(&memory, narrow_bytes<T>(n, stride), stream));
    return narrow_rows<VECTORS>(to, memory, x, n, cols, stride, stream);
}

} // namespace
} // namespace vb
#endif
