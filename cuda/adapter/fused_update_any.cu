// fused_update_any.cu: out = add + scale * ((x V) * codes) U^T of any sizes on any GPU (vb_fused_update_args).
// The entry of the family is here too.
//
//   grid     (4 rows a block, shares of the columns); a share computes x V again
//   block    256 threads. x V, transposed V: a warp has a rank. x V, other V: threads side by side have neighbouring
//            ranks, and groups of threads share k. Then each thread has a column
//   shared   the products of 4 rows with V, and the parts of these products by group: 8 KiB
//   moves    x, out and add once; V and U once for each block of 4 rows, from L2
//   bound    float32 multiplications and L2

#include "adapter/launchers.cuh"

namespace vb {
namespace {

constexpr int threads = 256, rows_of_block = 4, most_ranks = 256;

template <class T, class W>
__global__ void __launch_bounds__(threads) fused_update_any_kernel(vb_fused_update_args a) {
    __shared__ float h[rows_of_block][most_ranks], parts[rows_of_block][threads];
    wait_for_previous_kernel();
    release_next_kernel();
    const int64_t row0 = (int64_t)blockIdx.x * rows_of_block;
    const int rows = (int)smaller<int64_t>(rows_of_block, a.m - row0), r = (int)a.r, lane = threadIdx.x % 32;
    const T *const x = (const T *)a.x + row0 * a.k, *const codes = (const T *)a.codes;
    const W *const v = (const W *)a.v, *const u = (const W *)a.u;
    if (a.v_transposed) {
        for (int j = threadIdx.x / 32; j < r; j += threads / 32) {
            float sum[rows_of_block] = {};
            for (int64_t k = lane; k < a.k; k += 32) {
                const float w = to_float(v[j * a.k + k]);
#pragma unroll
                for (int i = 0; i < rows_of_block; i++)
                    if (i < rows) sum[i] += to_float(x[i * a.k + k]) * w;
            }
#pragma unroll
            for (int i = 0; i < rows_of_block; i++) {
                const float all = warp_reduce<Sum>(sum[i]);
                if (lane == 0) h[i][j] = all;
            }
        }
    } else if (r > 0) {
        int wide = 1; // threads along the ranks
        while (wide < r) wide *= 2;
        const int j = threadIdx.x % wide, group = threadIdx.x / wide, groups = threads / wide;
        float sum[rows_of_block] = {};
        if (j < r)
            for (int64_t k = group; k < a.k; k += groups) {
                const float w = to_float(v[k * r + j]);
#pragma unroll
                for (int i = 0; i < rows_of_block; i++)
                    if (i < rows) sum[i] += to_float(x[i * a.k + k]) * w;
            }
#pragma unroll
        for (int i = 0; i < rows_of_block; i++) parts[i][threadIdx.x] = sum[i];
        __syncthreads();
        for (int e = threadIdx.x; e < rows_of_block * r; e += threads) {
            float all = 0;
            for (int p = 0; p < groups; p++) all += parts[e / r][p * wide + e % r];
            h[e / r][e % r] = all;
        }
    }
    __syncthreads();
    for (int e = threadIdx.x; e < rows * r; e += threads) {
        const float code = codes ? to_float(codes[(row0 + e / r) * a.codes_stride + e % r]) : 1.0f;
        h[e / r][e % r] = code == 0.0f ? 0.0f : h[e / r][e % r] * code * a.scale; // 0: whatever x V is
    }
    __syncthreads();
    for (int64_t n = (int64_t)blockIdx.y * threads + threadIdx.x; n < a.n; n += (int64_t)gridDim.y * threads) {
        float sum[rows_of_block] = {};
        for (int j = 0; j < r; j++) {
            const float w = to_float(u[a.u_transposed ? j * a.n + n : n * r + j]);
#pragma unroll
            for (int i = 0; i < rows_of_block; i++)
                if (i < rows) sum[i] += h[i][j] * w;
        }
#pragma unroll
        for (int i = 0; i < rows_of_block; i++) {
            if (i >= rows) continue;
            const int64_t at = (row0 + i) * a.n + n;
            const float base = a.add ? to_float(((const T *)a.add)[at]) : 0.0f;
            ((T *)a.out)[at] = from_float<T>(base + sum[i]);
        }
    }
}

template <class T, class W>
vb_status launch_any(const vb_fused_update_args &a, const adapter_plan &plan, vb_stream *stream) {
    return launch_overlapped(stream, dim3((unsigned)plan.row_blocks, (unsigned)plan.column_blocks), threads, 0,
                             fused_update_any_kernel<T, W>, a);
}

} // namespace
} // namespace vb

using namespace vb;

extern "C" vb_status vb_cuda_fused_update(const vb_fused_update_args *args, vb_stream *stream) {
    const vb_fused_update_args &a = *args;
    const adapter_plan plan = choose_fused_update(&a, &gpu_of(stream));
    if (plan.kernel == ADAPTER_NONE) return VB_UNSUPPORTED;
    chosen(stream, adapter_kernel_info(plan.kernel), "fused_update", a.type, "m k n r", a.m, a.k, a.n, a.r);
    if (plan.kernel == ADAPTER_STREAM || plan.kernel == ADAPTER_SHORT) return fused_update_stream(a, plan, stream);
    if (plan.kernel == ADAPTER_SM90) return fused_update_sm90(a, plan, stream);
    if (plan.kernel == ADAPTER_F32_SM90) return fused_update_f32_sm90(a, plan, stream);
    if (plan.kernel == ADAPTER_TILED) return fused_update_tiled(a, plan, stream);
    if (plan.kernel == ADAPTER_CLUSTER) return fused_update_cluster(a, plan, stream);
    if (plan.kernel != ADAPTER_ANY)
        return a.type == VB_F32 ? fused_update_f32(a, plan, stream) : fused_update_half(a, plan, stream);
    switch (a.type) {
    case VB_F16: return launch_any<half, half>(a, plan, stream);
    case VB_BF16: return launch_any<bf16, bf16>(a, plan, stream);
    default:
        return a.weight_type == VB_F32 ? launch_any<float, float>(a, plan, stream)
                                       : launch_any<float, half>(a, plan, stream);
    }
}
