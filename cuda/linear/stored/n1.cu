// n1.cu: y[rows] = W x + bias for one row of x and weights stored as F32, F16 or BF16, in float32 arithmetic.
//
//   grid     8 warps a block, two rows of W a warp; four where there are many rows of 16 bits
//   moves    rows * cols weights once; x comes from the L1 cache, which the weights do not enter
//   bound    memory bandwidth: each lane has 8 loads of 16 bytes under way
//   measured docs/experiments/2026-11-22-stored-n64.md

#include "linear/linear.cuh"
#include "arch/streaming.cuh"

namespace vb {
namespace {

constexpr int n1_warps = 8;

// `loads` under way of each row.
template <class T, int rows_a_warp, int loads>
__global__ void __launch_bounds__(32 * n1_warps)
    n1_kernel(float *y, const float *x, const T *w, const float *bias, int64_t rows, int cols) {
    wait_for_previous_kernel();
    release_next_kernel();
    using V = typename Wide<T>::type;
    const int lane = threadIdx.x % 32;
    const int64_t first = ((int64_t)blockIdx.x * n1_warps + threadIdx.x / 32) * rows_a_warp;
    if (first >= rows) return;
    const T *row[rows_a_warp];
#pragma unroll
    for (int r = 0; r < rows_a_warp; r++) row[r] = w + smaller<int64_t>(first + r, rows - 1) * cols;
    float sum[rows_a_warp] = {};
    for (int k = lane * V::size; k < cols; k += 32 * V::size * loads) {
        V v[loads][rows_a_warp];
#pragma unroll
        for (int i = 0; i < loads; i++)
#pragma unroll
            for (int r = 0; r < rows_a_warp; r++)
                if (k + i * 32 * V::size < cols)
                    v[i][r] = load_once(reinterpret_cast<const V *>(row[r] + k + i * 32 * V::size));
#pragma unroll
        for (int i = 0; i < loads; i++) {
            if (k + i * 32 * V::size >= cols) break;
#pragma unroll
            for (int e = 0; e < V::size; e += 4) {
                const float4 u = *reinterpret_cast<const float4 *>(x + k + i * 32 * V::size + e);
                const float four[4] = {u.x, u.y, u.z, u.w};
#pragma unroll
                for (int r = 0; r < rows_a_warp; r++)
#pragma unroll
                    for (int f = 0; f < 4; f++) sum[r] = fmaf(to_float(v[i][r].at[e + f]), four[f], sum[r]);
            }
        }
    }
#pragma unroll
    for (int r = 0; r < rows_a_warp; r++) {
        const float total = warp_reduce<Sum>(sum[r]);
        if (lane == 0 && first + r < rows) y[first + r] = total + (bias ? bias[first + r] : 0.0f);
    }
}

} // namespace

vb_status stored_n1(const LinearArgs &a, vb_dtype type, vb_stream *stream) {
    return with_float_type(type, [&](auto zero) {
        using T = decltype(zero);
        const auto run = [&](int rows_a_warp, auto kernel) {
            return launch_overlapped(stream, (unsigned)ceil_div<int64_t>(a.rows, n1_warps * rows_a_warp), 32 * n1_warps,
                                     0, kernel, a.y, a.x, (const T *)a.w, a.bias, a.rows, (int)a.cols);
        };
        constexpr int many = sizeof(T) == 2 ? 4 : 2; // rows a warp where there are many
        if (a.rows >= 8192) return run(many, n1_kernel<T, many, 8 / many>);
        return run(2, n1_kernel<T, 2, 4>);
    });
}

} // namespace vb
