// project_n1.cu: x V of one row of x for the adapters of the products that read it next, as n1_update.cuh has it: where
// no kernel before has left it, as in a model's first layer.
//
//   sums[16s of columns][matrices][8 groups] = x V, V [8 groups][cols] of F16; x is multiplied by norm[cols]
//   grid     a block for 128 columns; a warp for eight ranks of a matrix, four columns a lane
//   moves    V once, x once a block
//   bound    latency: some 2 us

#include "linear/linear.cuh"
#ifdef VB_HAS_PACKED_LAYOUT
#include "linear/packed/n1_update.cuh"

namespace vb {
namespace {

constexpr int project_columns = 128;

struct Projected {
    float *sums;
    const float *x, *norm;
    const half *v[3]; // null: zeros
    int cols, groups, matrices;
};

__global__ void __launch_bounds__(32 * 3 * LINEAR_ADAPTED_RANKS / 8) project_n1_kernel(Projected p) {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, matrix = warp / p.groups,
              group = warp - matrix * p.groups, column = blockIdx.x * project_columns + 4 * lane;
    // an index would have the parameters copied to memory
    const half *const v = matrix == 0 ? p.v[0] : matrix == 1 ? p.v[1] : p.v[2];
    EightRanks<1> ranks;
    ranks.load(v + (int64_t)8 * group * p.cols, p.cols, blockIdx.x * project_columns, v, lane);
    float4 norm = make_float4(1, 1, 1, 1), x[1] = {};
    if (p.norm && column < p.cols) norm = *reinterpret_cast<const float4 *>(p.norm + column);
    wait_for_previous_kernel();
    release_next_kernel();
    if (column < p.cols) x[0] = *reinterpret_cast<const float4 *>(p.x + column);
    x[0].x *= norm.x, x[0].y *= norm.y, x[0].z *= norm.z, x[0].w *= norm.w;
    float sum[8];
    ranks.multiply(sum, x);
    share_sums<4>(sum, 2, lane);
    if (column >= p.cols) return;
    float *const to = p.sums + ((int64_t)(column / packed_rows) * p.matrices + matrix) * p.groups * 8 + 8 * group;
    reinterpret_cast<float2 *>(to)[lane % 4] = make_float2(sum[0], sum[1]);
}

} // namespace

vb_status packed_project_n1(Adapter *a, int matrices, const float *x, const float *norm, int64_t cols, Left left,
                            vb_stream *stream) {
    take_left(a, matrices, cols, left, stream);
    if (!a->sums) return VB_OUT_OF_MEMORY;
    const Projected p = {left_at(left, stream), x, norm, {a->of[0].v, a->of[1].v, a->of[2].v}, (int)cols, a->ranks / 8,
                         matrices};
    return launch_overlapped(stream, (unsigned)ceil_div<int64_t>(cols, project_columns), 32 * matrices * p.groups, 0,
                             project_n1_kernel, p);
}

} // namespace vb
#endif
