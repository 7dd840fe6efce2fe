// project_rows.cu: an adapter's h of 2 rows of x, by a kernel of its own (project_rows.cuh).

#include "linear/linear.cuh"
#ifdef VB_HAS_PACKED_LAYOUT
#include "linear/packed/project_rows.cuh"

namespace vb {
namespace {

__global__ void __launch_bounds__(32 * project_warps) project_rows_kernel(RowsProjection p) {
    project_row<false>(p, blockIdx.x, blockIdx.y);
}

} // namespace

vb_status project_rows(RowsUpdate<false> *update, const Adapter &adapter, int count, const float *x, bool with_norm,
                       const float *norm, float eps, int64_t n, int64_t cols, vb_stream *stream) {
    RowsProjection p;
    VB_TRY(plan_rows_update(update, &p, adapter, count, x, with_norm, norm, eps, n, cols, stream));
    return launch_overlapped(stream, project_grid(p), 32 * project_warps, 0, project_rows_kernel, p);
}

} // namespace vb
#endif
