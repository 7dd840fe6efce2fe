// project_rows.cuh: h = (x V) * codes of 2 to 8 rows of x for an adapter of products that n4.cuh and n32.cuh compute,
// with the RMS norm of x before it.
//
//   h[n][matrices][8 groups], V [8 groups][cols] of F16
//   grid     a block for a row of x and eight ranks of a matrix; its 16 warps share the columns, four of 128 a lane.
//            Of 3 rows and more beside the blocks that prepare x for n32.cuh
//   moves    V once a row of x, x once a block, from L2. The first part of V comes before the kernel before has ended
//   bound    latency: some 2 us
#ifndef VB_LINEAR_PROJECT_ROWS_CUH
#define VB_LINEAR_PROJECT_ROWS_CUH

#include "linear/packed/n1_update.cuh"
#include "linear/packed/rows_update.cuh"

namespace vb {

constexpr int project_warps = 16, project_together = 3; // loads of x of a lane on the way

inline dim3 project_grid(const RowsProjection &p) { return dim3((unsigned)p.n, (unsigned)(p.matrices * p.groups)); }

// The work of a block: row `token` of x, and the ranks of h's column 8 * eight. EARLY: the next kernel fills its rings
// of weights meanwhile. Else it begins when x is on its way, which its weights would delay.
template <bool EARLY>
VB_DEVICE void project_row(const RowsProjection &p, int token, int eight) {
    __shared__ float parts[project_warps][8], squares[project_warps];
    constexpr int step = 128 * project_warps, together = project_together;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, matrix = eight / p.groups,
              group = eight - matrix * p.groups;
    // an index would have the parameters copied to memory
    const half *const of = matrix == 0 ? p.v[0] : matrix == 1 ? p.v[1] : p.v[2];
    const half *const v = of + (int64_t)8 * group * p.cols;
    const float *const x = p.x + (int64_t)token * p.cols;
    EightRanks<1> ranks[together];
    float4 norm[together], four[together][1];
    const auto load = [&](const float *from, int k) {
        return k + 4 * lane < p.cols ? *reinterpret_cast<const float4 *>(from + k + 4 * lane) : make_float4(0, 0, 0, 0);
    };
    const auto load_v = [&](int k) {
#pragma unroll
        for (int i = 0; i < together; i++) {
            ranks[i].load(v, p.cols, k + i * step, of, lane);
            norm[i] = p.norm ? load(p.norm, k + i * step) : make_float4(1, 1, 1, 1);
        }
    };
    load_v(128 * warp);
    if (EARLY) release_next_kernel();
    wait_for_previous_kernel();
    float sums[8] = {}, square = 0;
#pragma unroll 1
    for (int k = 128 * warp; k < p.cols; k += together * step) {
#pragma unroll
        for (int i = 0; i < together; i++) four[i][0] = load(x, k + i * step);
        if (k != 128 * warp) load_v(k);
        else if (!EARLY) release_next_kernel();
#pragma unroll
        for (int i = 0; i < together; i++) {
            float4 &e = four[i][0];
            square = fmaf(e.x, e.x, fmaf(e.y, e.y, fmaf(e.z, e.z, fmaf(e.w, e.w, square))));
            e.x *= norm[i].x, e.y *= norm[i].y, e.z *= norm[i].z, e.w *= norm[i].w;
            float part[8];
            ranks[i].multiply(part, four[i]);
#pragma unroll
            for (int r = 0; r < 8; r++) sums[r] += part[r];
        }
    }
    share_sums<8>(sums, 16, lane);
    sums[0] += __shfl_xor_sync(all_lanes, sums[0], 1);
    sums[0] += __shfl_xor_sync(all_lanes, sums[0], 2);
    square = warp_reduce<Sum>(square);
    if (lane % 4 == 0) parts[warp][lane / 4] = sums[0];
    if (lane == 0) squares[warp] = square;
    __syncthreads();
    if (threadIdx.x >= 8 || !of) return;
    float sum = 0, mean = 0;
#pragma unroll
    for (int w = 0; w < project_warps; w++) sum += parts[w][threadIdx.x], mean += squares[w];
    if (p.with_norm) sum *= rsqrtf(mean / static_cast<float>(p.cols) + p.eps);
    const int rank = 8 * group + threadIdx.x;
    const float code = p.codes ? p.codes[token * p.codes_stride + rank] : 1.0f;
    p.h[((int64_t)token * p.matrices + matrix) * p.groups * 8 + rank] = coded(sum, code);
}

} // namespace vb
#endif
