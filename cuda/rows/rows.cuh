// rows.cuh: how softmax.cu and norm.cu lay rows of [rows][cols] on the GPU. Three ways:
//
//   registers  A block, or on Hopper a cluster of up to 16 blocks, holds its row in registers: read once, written once.
//              Needs rows of whole 16-byte vectors, at most 4 a thread.
//   looped     A block walks its row element by element, twice: any size and alignment.
//   split      A row longer than that with few rows to fill the GPU is cut into chunks. One kernel reduces each chunk
//              to the workspace, a second combines the chunks of its row and applies the result.

#ifndef VB_CUDA_ROWS_CUH
#define VB_CUDA_ROWS_CUH

#include "arch/cluster.cuh"

namespace vb {

// ---- clusters ---------------------------------------------------------------------------------------------------------

constexpr int max_cluster = 16;

// Combines the blocks' values (the same in each thread of a block); every thread of every block gets the same result.
// `slots` is max_cluster floats of shared memory that no other reduction uses; all blocks must have begun (an arrive and
// wait before the first one).
template <class Op>
VB_DEVICE float cluster_reduce(float x, float *slots) {
#if __CUDA_ARCH__ >= 900
    const int size = cluster_size();
    if (size == 1) return x;
    if ((int)threadIdx.x < size) {
        const unsigned remote = cluster_address(slots + cluster_rank(), threadIdx.x);
        asm volatile("st.shared::cluster.f32 [%0], %1;" ::"r"(remote), "f"(x) : "memory");
    }
    cluster_arrive();
    cluster_wait();
    x = slots[0];
    for (int i = 1; i < size; i++) x = Op::combine(x, slots[i]);
#endif
    return x;
}

// ---- plans --------------------------------------------------------------------------------------------------------------

constexpr int max_row_threads = 1024;
constexpr int looped_threads = 512;
constexpr int64_t row_chunk = 8192; // elements of a chunk of the split way
constexpr int64_t max_grid = 0x7fffffff;

struct RowPlan {
    bool in_registers;
    bool split;
    int per_thread; // vectors: 1, 2 or 4
    int threads;
    int cluster;
    int64_t chunks;
};

// block_vectors: which a block has before a cluster shares them, which takes time for each reduction.
template <class T>
inline RowPlan plan_rows(int64_t rows, int64_t cols, bool aligned, vb_stream *stream, int64_t block_vectors = 512) {
    constexpr int width = Wide<T>::size;
    RowPlan plan = {false, false, 1, looped_threads, 1, ceil_div(cols, row_chunk)};
    const int sms = multiprocessors(stream);
    const int64_t vectors = cols / width;
    int64_t part = vectors;
    if (capability(stream) >= 90) {
        // More blocks a row while they do not fill the GPU and have more vectors each.
        while (plan.cluster < max_cluster &&
               (part > 4 * max_row_threads || (part > block_vectors && rows * plan.cluster * 2 <= sms))) {
            plan.cluster *= 2;
            part = ceil_div<int64_t>(vectors, plan.cluster);
        }
    }
    plan.in_registers = aligned && cols % width == 0 && part <= 4 * max_row_threads && rows <= max_grid / plan.cluster;
    if (plan.in_registers) {
        // Few rows: latency counts, so many threads. Many rows: four loads under way in each of fewer threads.
        const bool few = rows * plan.cluster <= sms;
        while (plan.per_thread < 4 && part > (int64_t)plan.per_thread * (few ? max_row_threads : 32)) plan.per_thread *= 2;
        plan.threads = (int)ceil_div<int64_t>(ceil_div<int64_t>(part, plan.per_thread), 32) * 32;
    } else {
        plan.cluster = 1;
        plan.split = cols > 2 * row_chunk && rows < 2 * sms;
    }
    return plan;
}

// Calls f(constant) for the plan's vectors a thread.
template <class F>
vb_status with_per_thread(int per_thread, F f) {
    switch (per_thread) {
    case 1: return f(Constant<1>());
    case 2: return f(Constant<2>());
    default: return f(Constant<4>());
    }
}

} // namespace vb
#endif
