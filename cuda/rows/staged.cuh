// staged.cuh: the plan `staged` of rows.cuh, for rows of any length and alignment. Rows without gaps are one run of
// memory. A block copies a piece of whole rows into shared memory by aligned vectors, computes there element by
// element, and writes the piece back by vectors. Only the ends of a piece may be less than a vector.
//
//   grid     ceil(rows / rows a block)
//   block    128 or 256 threads, 1 to 32 of them a row; or 32 to 1024 threads, which share the block's one row
//   shared   the piece and up to 16 bytes
//   moves    2 * rows * cols * sizeof(T) bytes
//   bound    memory bandwidth; short rows of 16 bits: instructions

#ifndef VB_CUDA_ROWS_STAGED_CUH
#define VB_CUDA_ROWS_STAGED_CUH

#include "rows/rows.cuh"

namespace vb {

// The threads that share a row: `lanes` of a warp, a power of two, or all threads of a block of more than 32.
struct RowThreads {
    int lane, lanes;
    float *scratch; // 32 floats of shared memory

    // Each of them gets the result.
    template <class Op>
    VB_DEVICE float reduce(float x) const {
        if (lanes > 32) return block_reduce<Op>(x, scratch);
        return lanes_reduce<Op>(x, lanes);
    }
};

// op(x, n, threads) computes a row of n elements in place; n is 0 for threads without a row, which take part in its
// reductions.
template <class T, class Op>
__global__ void __launch_bounds__(max_row_threads)
    rows_staged_kernel(T *out, const T *in, Op op, int64_t rows, int cols, int rows_per_block, int lanes) {
    extern __shared__ uint4 staged[];
    __shared__ float scratch[32];
    wait_for_previous_kernel();
    release_next_kernel();
    const int64_t first = (int64_t)blockIdx.x * rows_per_block;
    const int count = (int)smaller<int64_t>(rows_per_block, rows - first), elements = count * cols;
    in += first * cols, out += first * cols;
    const int before = int((uintptr_t)in % 16 / sizeof(T)), end = before + elements; // in elements of `staged`
    constexpr int width = Wide<T>::size;
    T *const piece = reinterpret_cast<T *>(staged), *const x = piece + before;
    for (int i = threadIdx.x * width; i < end; i += blockDim.x * width) {
        if (i + width <= end) {
            copy_async(shared_address(piece + i), in - before + i);
        } else {
            for (int e = i; e < end; e++) piece[e] = (in - before)[e];
        }
    }
    copy_async_commit();
    copy_async_wait<0>();
    __syncthreads();

    const RowThreads threads = {(int)threadIdx.x & (lanes - 1), lanes, scratch};
    if (lanes > 32) {
        op(x, cols, RowThreads{(int)threadIdx.x, lanes, scratch});
    } else {
        const int group = threadIdx.x / lanes, groups = blockDim.x / lanes;
        for (int row = group; row - group < count; row += groups) op(x + row * cols, row < count ? cols : 0, threads);
    }
    __syncthreads();

    if ((uintptr_t)out % 16 == (uintptr_t)in % 16) {
        for (int i = threadIdx.x * width; i < end; i += blockDim.x * width) {
            if (i >= before && i + width <= end) {
                *reinterpret_cast<uint4 *>(out - before + i) = staged[i / width];
            } else {
                for (int e = larger(i, before); e < smaller(i + width, end); e++) (out - before)[e] = piece[e];
            }
        }
    } else {
        for (int i = threadIdx.x; i < elements; i += blockDim.x) out[i] = x[i];
    }
}

template <class T, class Op>
vb_status launch_staged(const rows_plan &plan, T *out, const T *in, Op op, int64_t rows, int64_t cols,
                        vb_stream *stream) {
    return launch_overlapped(stream, (unsigned)ceil_div<int64_t>(rows, plan.rows), plan.threads,
                             rows_staged_bytes(plan.rows, cols, (int)sizeof(T)), rows_staged_kernel<T, Op>, out, in, op,
                             rows, (int)cols, plan.rows, plan.lanes);
}

} // namespace vb
#endif
