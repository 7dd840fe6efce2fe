// softmax.cu: out[r][c] = exp(in[r][c] - max_r) / sum_r, in place allowed; arithmetic in float32.
//
//   narrow     grid rows / (256 / lanes a row), block 256; 1 or 4 vectors a lane, or up to 16 elements
//   registers  grid rows * cluster, block 32..1024 threads; 16-byte loads, 1..4 a thread; static shared memory 384
//              bytes.
//   looped     grid rows, block 512; two readings of the row (the second from the cache) and one writing.
//   chunked    grid rows * ceil(cols / 8192), block 512, two kernels.
//   moves      2 * rows * cols * sizeof(T) bytes, about 10 FLOPs an element
//   bound      memory bandwidth; one short row: latency of a load, two reductions and a launch
//   measured docs/experiments/2026-11-22-rows.md

#include "rows/rows.cuh"
#include "arch/streaming.cuh"

namespace vb {
namespace {

template <class T, int PER_THREAD>
__global__ void __launch_bounds__(max_row_threads) softmax_registers_kernel(T *out, const T *in, int64_t cols,
                                                                              bool streamed) {
    using V = typename Wide<T>::type;
    __shared__ float scratch[32], max_slots[max_cluster], sum_slots[max_cluster];
    const int size = cluster_size(), rank = cluster_rank();
    if (size > 1) cluster_arrive();
    wait_for_previous_kernel();
    release_next_kernel();
    const int64_t row = blockIdx.x / size;
    const int vectors = int(cols / V::size), stride = blockDim.x * size, first = rank * blockDim.x + threadIdx.x;
    const V *source = reinterpret_cast<const V *>(in + row * cols);
    const StreamReader reader(streamed);
    V x[PER_THREAD];
#pragma unroll
    for (int v = 0; v < PER_THREAD; v++)
        if (first + v * stride < vectors) x[v] = reader.load(source + first + v * stride);

    float max = Max::identity();
#pragma unroll
    for (int v = 0; v < PER_THREAD; v++)
        if (first + v * stride < vectors)
#pragma unroll
            for (int e = 0; e < V::size; e++) max = Max::combine(max, to_float(x[v].at[e]));
    max = block_reduce<Max>(max, scratch);
    if (size > 1) cluster_wait();
    max = cluster_reduce<Max>(max, max_slots);

    // Float rows keep their exponentials; 16-bit ones compute them again rather than round them.
    float sum = 0.0f;
#pragma unroll
    for (int v = 0; v < PER_THREAD; v++)
        if (first + v * stride < vectors)
#pragma unroll
            for (int e = 0; e < V::size; e++) {
                const float y = expf(to_float(x[v].at[e]) - max);
                sum += y;
                if (sizeof(T) == 4) x[v].at[e] = from_float<T>(y);
            }
    sum = cluster_reduce<Sum>(block_reduce<Sum>(sum, scratch), sum_slots);
    const float scale = 1.0f / sum;

    V *target = reinterpret_cast<V *>(out + row * cols);
#pragma unroll
    for (int v = 0; v < PER_THREAD; v++)
        if (first + v * stride < vectors) {
#pragma unroll
            for (int e = 0; e < V::size; e++) {
                const float y = to_float(x[v].at[e]);
                x[v].at[e] = from_float<T>((sizeof(T) == 4 ? y : expf(y - max)) * scale);
            }
            target[first + v * stride] = x[v];
        }
}

// LOADS pieces of WIDTH elements a lane; `lanes` of a row are a power of two.
template <class T, int WIDTH, int LOADS>
__global__ void __launch_bounds__(ROWS_NARROW_THREADS)
    softmax_narrow_kernel(T *out, const T *in, int64_t rows, int cols, int lanes) {
    using V = Vec<T, WIDTH>;
    wait_for_previous_kernel();
    release_next_kernel();
    const int lane = threadIdx.x & (lanes - 1);
    const int64_t row = (int64_t)blockIdx.x * (ROWS_NARROW_THREADS / lanes) + (int)threadIdx.x / lanes;
    const int units = row < rows ? cols / WIDTH : 0;
    const V *const source = reinterpret_cast<const V *>(in + row * cols);
    V *const target = reinterpret_cast<V *>(out + row * cols);
    V x[LOADS];
#pragma unroll
    for (int i = 0; i < LOADS; i++)
        if (lane + i * lanes < units) x[i] = source[lane + i * lanes];
    float max = Max::identity();
#pragma unroll
    for (int i = 0; i < LOADS; i++)
        if (lane + i * lanes < units)
#pragma unroll
            for (int e = 0; e < WIDTH; e++) max = Max::combine(max, to_float(x[i].at[e]));
    for (int offset = lanes / 2; offset > 0; offset /= 2)
        max = Max::combine(max, __shfl_xor_sync(all_lanes, max, offset));
    float sum = 0.0f, y[LOADS][WIDTH];
#pragma unroll
    for (int i = 0; i < LOADS; i++)
        if (lane + i * lanes < units)
#pragma unroll
            for (int e = 0; e < WIDTH; e++) sum += y[i][e] = expf(to_float(x[i].at[e]) - max);
    for (int offset = lanes / 2; offset > 0; offset /= 2) sum += __shfl_xor_sync(all_lanes, sum, offset);
    const float scale = 1.0f / sum;
#pragma unroll
    for (int i = 0; i < LOADS; i++)
        if (lane + i * lanes < units) {
#pragma unroll
            for (int e = 0; e < WIDTH; e++) x[i].at[e] = from_float<T>(y[i][e] * scale);
            target[lane + i * lanes] = x[i];
        }
}

// The greatest element of x[0..n) and the sum of exp(x - max), in one reading; 0 for the sum of a part of -inf only, so
// that other parts of the row decide.
struct SoftmaxStats {
    float max, sum;
};
template <class T>
__device__ SoftmaxStats softmax_stats(const T *x, int64_t n, float *scratch) {
    float max = Max::identity(), sum = 0.0f;
    for (int64_t i = threadIdx.x; i < n; i += blockDim.x) {
        const float y = to_float(x[i]), greater = Max::combine(max, y);
        if (greater > max || greater != greater) {
            sum = max == Max::identity() ? 0.0f : sum * expf(max - greater);
            max = greater;
        }
        if (y != Max::identity()) sum += expf(y - max);
    }
    SoftmaxStats all;
    all.max = block_reduce<Max>(max, scratch);
    all.sum = block_reduce<Sum>(max == Max::identity() ? 0.0f : sum * expf(max - all.max), scratch);
    return all;
}

template <class T>
__device__ void softmax_apply(T *out, const T *in, int64_t n, SoftmaxStats row) {
    const float scale = 1.0f / row.sum;
    for (int64_t i = threadIdx.x; i < n; i += blockDim.x)
        out[i] = from_float<T>(expf(to_float(in[i]) - row.max) * scale);
}

template <class T>
__global__ void __launch_bounds__(looped_threads) softmax_looped_kernel(T *out, const T *in, int64_t cols) {
    __shared__ float scratch[32];
    wait_for_previous_kernel();
    release_next_kernel();
    const int64_t row = blockIdx.x;
    const SoftmaxStats stats = softmax_stats(in + row * cols, cols, scratch);
    softmax_apply(out + row * cols, in + row * cols, cols, stats);
}

template <class T>
__global__ void __launch_bounds__(looped_threads)
    softmax_reduce_kernel(SoftmaxStats *stats, const T *in, int64_t cols, int64_t chunks) {
    __shared__ float scratch[32];
    wait_for_previous_kernel();
    release_next_kernel();
    const int64_t row = blockIdx.x / chunks, start = blockIdx.x % chunks * row_chunk;
    const SoftmaxStats mine = softmax_stats(in + row * cols + start, smaller(row_chunk, cols - start), scratch);
    if (threadIdx.x == 0) stats[blockIdx.x] = mine;
}

template <class T>
__global__ void __launch_bounds__(looped_threads)
    softmax_apply_kernel(T *out, const T *in, const SoftmaxStats *stats, int64_t cols, int64_t chunks) {
    __shared__ float scratch[32];
    wait_for_previous_kernel();
    release_next_kernel();
    const int64_t row = blockIdx.x / chunks, start = blockIdx.x % chunks * row_chunk;
    stats += row * chunks;
    SoftmaxStats all;
    float max = Max::identity(), sum = 0.0f;
    for (int64_t i = threadIdx.x; i < chunks; i += blockDim.x) max = Max::combine(max, stats[i].max);
    all.max = block_reduce<Max>(max, scratch);
    for (int64_t i = threadIdx.x; i < chunks; i += blockDim.x) sum += stats[i].sum * expf(stats[i].max - all.max);
    all.sum = block_reduce<Sum>(sum, scratch);
    softmax_apply(out + row * cols + start, in + row * cols + start, smaller(row_chunk, cols - start), all);
}

} // namespace
} // namespace vb

using namespace vb;

extern "C" vb_status vb_cuda_softmax_batched(void *out, const void *in, vb_dtype type, int64_t rows, int64_t cols,
                                             vb_stream *stream) {
    const bool aligned = aligned16(out, in);
    const rows_plan plan = choose_softmax(type, rows, cols, aligned, &gpu_of(stream));
    chosen(stream, rows_kernel_info(plan.kernel), "softmax", type, "rows cols", rows, cols);
    if (plan.kernel == ROWS_NONE) return VB_UNSUPPORTED;
    return with_float_type(type, [&](auto zero) {
        using T = decltype(zero);
        T *o = (T *)out;
        const T *x = (const T *)in;
        const bool vectors = aligned && cols % Wide<T>::size == 0;
        const auto narrow = [&](void (*kernel)(T *, const T *, int64_t, int, int)) {
            const int64_t blocks = ceil_div<int64_t>(rows, plan.threads / plan.lanes);
            return launch_overlapped(stream, (unsigned)blocks, plan.threads, 0, kernel, o, x, rows, (int)cols,
                                     plan.lanes);
        };
        if (plan.kernel == ROWS_NARROW && vectors)
            return narrow(plan.per_thread == 1 ? softmax_narrow_kernel<T, Wide<T>::size, 1>
                                               : softmax_narrow_kernel<T, Wide<T>::size, 4>);
        if (plan.kernel == ROWS_NARROW)
            return narrow(plan.per_thread == 4 ? softmax_narrow_kernel<T, 1, 4> : softmax_narrow_kernel<T, 1, 16>);
        if (plan.kernel == ROWS_REGISTERS)
            return with_per_thread(plan.per_thread, [&](auto per_thread) {
                return launch_cluster(stream, plan.cluster, (unsigned)(rows * plan.cluster), plan.threads, 0,
                                      softmax_registers_kernel<T, decltype(per_thread)::value>, o, x, cols,
                                      beyond_l2(rows * cols * (int64_t)sizeof(T), stream));
            });
        if (plan.kernel == ROWS_LOOPED)
            return launch_overlapped(stream, (unsigned)rows, plan.threads, 0, softmax_looped_kernel<T>, o, x, cols);
        const int64_t blocks = rows * plan.chunks;
        void *stats;
        VB_TRY(workspace(&stats, blocks * (int64_t)sizeof(SoftmaxStats), stream));
        VB_TRY(launch_overlapped(stream, (unsigned)blocks, plan.threads, 0, softmax_reduce_kernel<T>,
                                 (SoftmaxStats *)stats, x, cols, plan.chunks));
        return launch_overlapped(stream, (unsigned)blocks, plan.threads, 0, softmax_apply_kernel<T>, o, x,
                                 (const SoftmaxStats *)stats, cols, plan.chunks);
    });
}
