// rows.cuh: how softmax.cu, norm.cu and layer_norm.cu lay rows of [rows][cols] on the GPU; choose.h says when:
//
//   narrow     A warp has several rows, each held in the registers of 1 to 32 lanes (softmax).
//   registers  A block, or on Hopper a cluster of up to 16 blocks, holds its row in registers: read once, written once.
//              Needs rows of whole vectors of 16 bytes (norms: or of 8), at most 4 a thread.
//   staged     A block has one or several rows in shared memory, of any size that fits and any alignment (staged.cuh).
//   ahead      Blocks stay, and have the next rows on their way: norms of many rows that begin anywhere (ahead.cuh).
//   looped     A block walks its row by vectors, twice: any size and alignment.
//   chunked    A longer row, where rows are too few to fill the GPU, is cut into chunks. One kernel reduces each chunk
//              to the workspace, a second combines the chunks of its row and applies the result.

#ifndef VB_CUDA_ROWS_CUH
#define VB_CUDA_ROWS_CUH

#include "arch/cluster.cuh"
#include "arch/streaming.cuh"
#include "rows/choose.h"

namespace vb {

// ---- clusters ------------------------------------------------------------------------------------------------------

constexpr int max_cluster = ROWS_MOST_CLUSTER;

// Combines the blocks' values (the same in each thread of a block); every thread of every block gets the same result.
// `slots` is max_cluster floats of shared memory that no other reduction uses.
// All blocks must have begun: an arrive and a wait come before the first call.
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

// ---- plans ---------------------------------------------------------------------------------------------------------

constexpr int max_row_threads = ROWS_MOST_THREADS;
constexpr int looped_threads = ROWS_LOOPED_THREADS;
constexpr int64_t row_chunk = ROWS_CHUNK; // elements

// Threads of a block that reads its row more than once. More threads make fewer blocks a multiprocessor, where the rows
// of more would not stay in the L2 until they are read again.
inline int looped_block(const rows_plan &plan, int64_t row_bytes, vb_stream *stream) {
    return beyond_l2(3 * gpu_of(stream).multiprocessors * row_bytes, stream) ? max_row_threads : plan.threads;
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

// Calls f(vector) with a vector of the type that the plan's rows have.
template <class T, class F>
vb_status with_row_vectors(const rows_plan &plan, F f) {
    return plan.width == 4 ? f(Vec<T, 4>()) : f(typename Wide<T>::type());
}

// Calls f(i, x[i]) for i below n, by the threads of a block. Several loads of a thread are under way before its first
// call, which may write x[i].
template <class T, class F>
VB_DEVICE void each_of_block(const T *x, int64_t n, F f) {
    constexpr int at_once = 8;
    for (int64_t first = threadIdx.x; first < n; first += at_once * blockDim.x) {
        T held[at_once];
#pragma unroll
        for (int u = 0; u < at_once; u++)
            if (first + u * blockDim.x < n) held[u] = x[first + u * blockDim.x];
#pragma unroll
        for (int u = 0; u < at_once; u++)
            if (first + u * blockDim.x < n) f(first + u * blockDim.x, to_float(held[u]));
    }
}

// The elements of x[0..n) before its first vector.
template <class T>
VB_DEVICE int64_t row_head(const T *x, int64_t n) {
    return smaller(n, (int64_t)(-(uintptr_t)x % 16 / sizeof(T)));
}

// Calls f(i, y) for all pieces of x[0..n), by the threads of a block: y is one vector of 16 bytes in float32, the
// elements from i on, or one element before the first vector or after the last. f may change y, and then store(i, y,
// vector) is called. Several loads of a thread are under way before its first call.
template <class T, class F, class Store>
VB_DEVICE void each_piece_of_block(const T *x, int64_t n, F f, Store store) {
    constexpr int at_once = 4, width = Wide<T>::size;
    using V = typename Wide<T>::type;
    const int64_t head = row_head(x, n), vectors = (n - head) / width;
    const V *const wide = reinterpret_cast<const V *>(x + head);
    for (int64_t first = threadIdx.x; first < vectors; first += at_once * blockDim.x) {
        V held[at_once];
#pragma unroll
        for (int u = 0; u < at_once; u++)
            if (first + u * blockDim.x < vectors) held[u] = wide[first + u * blockDim.x];
#pragma unroll
        for (int u = 0; u < at_once; u++)
            if (first + u * blockDim.x < vectors) {
                const int64_t i = head + (first + u * blockDim.x) * width;
                float y[width];
#pragma unroll
                for (int e = 0; e < width; e++) y[e] = to_float(held[u].at[e]);
                f(i, y);
                store(i, y);
            }
    }
    if (threadIdx.x < n - vectors * width) {
        const int64_t i = threadIdx.x < head ? threadIdx.x : threadIdx.x + vectors * width;
        float y[1] = {to_float(x[i])};
        f(i, y);
        store(i, y);
    }
}
template <class T, class F>
VB_DEVICE void each_piece_of_block(const T *x, int64_t n, F f) {
    each_piece_of_block(x, n, f, [](int64_t, const auto &) {});
}
// Writes what f makes of the pieces to out. x may be out.
template <class T, class F>
VB_DEVICE void map_pieces_of_block(T *out, const T *x, int64_t n, F f) {
    if ((uintptr_t)out % 16 != (uintptr_t)x % 16)
        return each_of_block(x, n, [&](int64_t i, float x) {
            float y[1] = {x};
            f(i, y);
            out[i] = from_float<T>(y[0]);
        });
    each_piece_of_block(x, n, f, [&](int64_t i, const auto &y) {
        constexpr int count = sizeof(y) / sizeof(float);
        Vec<T, count> piece;
#pragma unroll
        for (int e = 0; e < count; e++) piece.at[e] = from_float<T>(y[e]);
        if (count > 1) *reinterpret_cast<uint4 *>(out + i) = reinterpret_cast<const uint4 &>(piece);
        else out[i] = piece.at[0];
    });
}
// What rows are multiplied by or have added; where there is none, four times `otherwise` in place of each four.
static __device__ const float4 zeros = {0.0f, 0.0f, 0.0f, 0.0f}, ones = {1.0f, 1.0f, 1.0f, 1.0f};
struct RowParameter {
    const float *from;
    int64_t step;

    VB_DEVICE RowParameter(const float *parameter, const float4 &otherwise)
        : from(parameter ? parameter : &otherwise.x), step(parameter ? 1 : 0) {}
    // Whether vectors of a row are vectors of the parameter too, which elements from i on begin.
    VB_DEVICE bool has_vectors(int64_t i) const { return (uintptr_t)(from + i * step) % 16 == 0; }
    // The N elements from i on, by vectors where VECTORS. Without a branch, behind which other loads would wait.
    template <bool VECTORS, int N>
    VB_DEVICE void load(float (&p)[N], int64_t i) const {
        const float *const at = from + i * step;
#pragma unroll
        for (int e = 0; e < N; e++) {
            if (VECTORS && N % 4 == 0) {
                if (e % 4 > 0) continue;
                const float4 four = __ldg(reinterpret_cast<const float4 *>(at + e * step));
                p[e] = four.x, p[(e + 1) % N] = four.y, p[(e + 2) % N] = four.z, p[(e + 3) % N] = four.w;
            } else {
                p[e] = __ldg(at + e * step);
            }
        }
    }
};

// ---- rows of a part of a warp --------------------------------------------------------------------------------------

// The result over `lanes` neighbouring lanes, a power of two, for each of them.
template <class Op>
VB_DEVICE float lanes_reduce(float x, int lanes) {
    for (int offset = lanes / 2; offset > 0; offset /= 2) x = Op::combine(x, __shfl_xor_sync(all_lanes, x, offset));
    return x;
}

// A narrow row in the registers of `lanes` lanes: LOADS vectors a lane. Lanes behind the last row have no vectors, and
// take part in reductions.
template <class T, int LOADS, class V = typename Wide<T>::type>
struct NarrowRow {
    int lane, lanes, units; // of the row's vectors the lane has lane, lane + lanes, ... below units
    int64_t first;          // element of the row in the matrix
    V x[LOADS];

    VB_DEVICE NarrowRow(const T *in, int64_t rows, int cols, int of_lanes) {
        const int shift = __ffs(of_lanes) - 1; // a division by the number of lanes would take 20 instructions
        lane = threadIdx.x & (of_lanes - 1), lanes = of_lanes;
        const int64_t row = (int64_t)blockIdx.x * (ROWS_NARROW_THREADS >> shift) + (threadIdx.x >> shift);
        units = row < rows ? cols / V::size : 0, first = row * cols;
        const V *const source = reinterpret_cast<const V *>(in + first);
        each([&](int i) { x[i] = source[lane + i * lanes]; });
    }
    // Calls f(i) for the lane's vectors x[i].
    template <class F>
    VB_DEVICE void each(F f) const {
#pragma unroll
        for (int i = 0; i < LOADS; i++)
            if (lane + i * lanes < units) f(i);
    }
    // Calls f(i, e) for the elements x[i].at[e] of the lane.
    template <class F>
    VB_DEVICE void each_element(F f) const {
        each([&](int i) {
#pragma unroll
            for (int e = 0; e < V::size; e++) f(i, e);
        });
    }
    // Writes vector i of the lane.
    VB_DEVICE void store(T *out, int i) const { reinterpret_cast<V *>(out + first)[lane + i * lanes] = x[i]; }
};

} // namespace vb
#endif
