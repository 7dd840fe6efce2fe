// softmax.cu: out[r][c] = exp(in[r][c] - max_r) / sum_r, in place allowed; arithmetic in float32.
//
//   narrow     grid rows / (256 / lanes a row), block 256; 1 or 4 vectors a lane, or 4 to 32 words of rows that
//              begin anywhere
//   registers  grid rows * cluster, block 32..1024 threads; 16-byte loads, 1..4 a thread; 384 bytes of shared memory
//   staged     staged.cuh
//   looped     grid rows, block 512; reads the row twice (once from the cache) and writes it once
//   chunked    grid rows * ceil(cols / 2048), block 512, two kernels
//   moves      2 * rows * cols * sizeof(T) bytes, about 10 FLOPs an element
//   bound      memory bandwidth; one short row: latency of a load, two reductions and a launch
//   measured   docs/experiments/2026-11-22-rows.md

#include "rows/staged.cuh"

namespace vb {
namespace {

// exp(x - max); of 16 bits with an error of 2^-20, which the rounding of results hides.
template <class T>
VB_DEVICE float exponential(float x, float max) {
    return sizeof(T) == 4 ? expf(x - max) : exp2_fast((x - max) * 1.4426950408889634f);
}

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
                const float y = exponential<T>(to_float(x[v].at[e]), max);
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
                x[v].at[e] = from_float<T>((sizeof(T) == 4 ? y : exponential<T>(y, max)) * scale);
            }
            target[first + v * stride] = x[v];
        }
}

template <class T, int LOADS>
__global__ void __launch_bounds__(ROWS_NARROW_THREADS)
    softmax_narrow_kernel(T *out, const T *in, int64_t rows, int cols, int lanes) {
    wait_for_previous_kernel();
    release_next_kernel();
    NarrowRow<T, LOADS> row(in, rows, cols, lanes);
    float max = Max::identity(), sum = 0.0f, y[LOADS][Wide<T>::size];
    row.each_element([&](int i, int e) { max = Max::combine(max, to_float(row.x[i].at[e])); });
    max = lanes_reduce<Max>(max, lanes);
    row.each_element([&](int i, int e) { sum += y[i][e] = exponential<T>(to_float(row.x[i].at[e]), max); });
    const float scale = 1.0f / lanes_reduce<Sum>(sum, lanes);
    row.each([&](int i) {
#pragma unroll
        for (int e = 0; e < Wide<T>::size; e++) row.x[i].at[e] = from_float<T>(y[i][e] * scale);
        row.store(out, i);
    });
}

// Rows that begin anywhere, by words of 4 bytes. Elements of a word that are not the row's count as -inf, and are not
// written.
template <class T, int LOADS>
__global__ void __launch_bounds__(ROWS_NARROW_THREADS)
    softmax_narrow_words_kernel(T *out, const T *in, int64_t rows, int cols, int lanes) {
    constexpr int W = 4 / sizeof(T);
    using Word = Vec<T, W>;
    wait_for_previous_kernel();
    release_next_kernel();
    const int shift = __ffs(lanes) - 1, lane = threadIdx.x & (lanes - 1);
    const int64_t row = (int64_t)blockIdx.x * (ROWS_NARROW_THREADS >> shift) + (threadIdx.x >> shift);
    const int n = row < rows ? cols : -W; // no word of a missing row
    in += row * cols, out += row * cols;
    const int late = W == 1 ? 0 : (int)((uintptr_t)in / sizeof(T) % W); // of the row's start in its first word
    const bool whole = (uintptr_t)out % 4 == (uintptr_t)in % 4;
    // Element e of word i of the lane, in the row. No lane has words i from `units` on: each four of them are asked
    // for that, since a branch takes as long as several words.
    const auto at = [&](int i, int e) { return (lane + i * lanes) * W + e - late; };
    const int units = (ceil_div(cols + W - 1, W) + lanes - 1) >> shift;
    const auto empty = [&](int i) { return i % 4 == 0 && i > 0 && i >= units; };
    Word x[LOADS];
#pragma unroll
    for (int i = 0; i < LOADS; i++) {
        if (empty(i)) break;
        if (at(i, 0) < n) x[i] = *reinterpret_cast<const Word *>(in + at(i, 0));
    }
    float y[LOADS][W], max = Max::identity(), sum = 0.0f;
#pragma unroll
    for (int i = 0; i < LOADS; i++) {
        if (empty(i)) break;
#pragma unroll
        for (int e = 0; e < W; e++) {
            y[i][e] = at(i, e) >= 0 && at(i, e) < n ? to_float(x[i].at[e]) : Max::identity();
            max = Max::combine(max, y[i][e]);
        }
    }
    max = lanes_reduce<Max>(max, lanes);
#pragma unroll
    for (int i = 0; i < LOADS; i++) {
        if (empty(i)) break;
#pragma unroll
        for (int e = 0; e < W; e++) sum += y[i][e] = exponential<T>(y[i][e], max);
    }
    const float scale = 1.0f / lanes_reduce<Sum>(sum, lanes);
#pragma unroll
    for (int i = 0; i < LOADS; i++) {
        if (empty(i)) break;
        Word x;
#pragma unroll
        for (int e = 0; e < W; e++) x.at[e] = from_float<T>(y[i][e] * scale);
        if (whole && at(i, 0) >= 0 && at(i, W - 1) < n) {
            *reinterpret_cast<Word *>(out + at(i, 0)) = x;
        } else {
#pragma unroll
            for (int e = 0; e < W; e++)
                if (at(i, e) >= 0 && at(i, e) < n) out[at(i, e)] = x.at[e];
        }
    }
}

// Elements of 16 bits are read and written in pairs at multiples of 4 bytes, those at the ends of a row alone.
struct SoftmaxStaged {
    VB_DEVICE void operator()(float *x, int n, const RowThreads &threads) const {
        float max = Max::identity(), sum = 0.0f;
#pragma unroll 4
        for (int i = threads.lane; i < n; i += threads.lanes) max = Max::combine(max, x[i]);
        max = threads.reduce<Max>(max);
#pragma unroll 4
        for (int i = threads.lane; i < n; i += threads.lanes) sum += x[i] = exponential<float>(x[i], max);
        const float scale = 1.0f / threads.reduce<Sum>(sum);
#pragma unroll 4
        for (int i = threads.lane; i < n; i += threads.lanes) x[i] *= scale;
    }
    template <class T>
    VB_DEVICE void operator()(T *x, int n, const RowThreads &threads) const {
        const int before = n > 0 ? (int)((uintptr_t)x / sizeof(T) % 2) : 0, count = (n - before) / 2;
        Vec<T, 2> *const pairs = reinterpret_cast<Vec<T, 2> *>(x + before);
        // The first lane has the ends, which are -inf where there are none.
        const bool has_first = threads.lane == 0 && before > 0, has_last = threads.lane == 0 && (n - before) % 2 > 0;
        const float first = has_first ? to_float(x[0]) : Max::identity(),
                    last = has_last ? to_float(x[n - 1]) : Max::identity();
        float max = Max::combine(first, last);
#pragma unroll 4
        for (int i = threads.lane; i < count; i += threads.lanes)
            max = Max::combine(max, Max::combine(to_float(pairs[i].at[0]), to_float(pairs[i].at[1])));
        max = threads.reduce<Max>(max);
        // Exponentials are computed again rather than rounded.
        float sum = exponential<T>(first, max) + exponential<T>(last, max);
#pragma unroll 4
        for (int i = threads.lane; i < count; i += threads.lanes)
            sum += exponential<T>(to_float(pairs[i].at[0]), max) + exponential<T>(to_float(pairs[i].at[1]), max);
        const float scale = 1.0f / threads.reduce<Sum>(sum);
#pragma unroll 4
        for (int i = threads.lane; i < count; i += threads.lanes) {
            const Vec<T, 2> two = pairs[i];
            pairs[i] = {{from_float<T>(exponential<T>(to_float(two.at[0]), max) * scale),
                         from_float<T>(exponential<T>(to_float(two.at[1]), max) * scale)}};
        }
        if (has_first) x[0] = from_float<T>(exponential<T>(first, max) * scale);
        if (has_last) x[n - 1] = from_float<T>(exponential<T>(last, max) * scale);
    }
};

// The greatest element of x[0..n) and the sum of exp(x - max), in one reading: a thread's sum is scaled anew where it
// meets a greater element. The sum of a part of -inf only is 0, so that other parts of the row decide.
struct SoftmaxStats {
    float max, sum;
};
template <class T>
__device__ SoftmaxStats softmax_stats(const T *x, int64_t n, float *scratch) {
    float max = Max::identity(), sum = 0.0f;
    each_piece_of_block(x, n, [&](int64_t, const auto &y) {
        float most = max;
#pragma unroll
        for (const float one : y) most = Max::combine(most, one);
        if (most == Max::identity()) return;
        sum *= expf(max - most);
#pragma unroll
        for (const float one : y) sum += expf(one - most);
        max = most;
    });
    const float all = block_reduce<Max>(max, scratch);
    if (max != Max::identity()) sum *= expf(max - all);
    return {all, block_reduce<Sum>(sum, scratch)};
}

template <class T>
__device__ void softmax_apply(T *out, const T *in, int64_t n, SoftmaxStats row) {
    const float scale = 1.0f / row.sum;
    map_pieces_of_block(out, in, n, [&](int64_t, auto &y) {
#pragma unroll
        for (float &one : y) one = expf(one - row.max) * scale;
    });
}

template <class T>
__global__ void __launch_bounds__(max_row_threads) softmax_looped_kernel(T *out, const T *in, int64_t cols) {
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
    const T *const from = in + row * cols + start;
    T *const to = out + row * cols + start;
    const int n = (int)smaller(row_chunk, cols - start);
    constexpr int each = (int)row_chunk / looped_threads; // elements of a thread, under way while stats are added
    T x[each];
#pragma unroll
    for (int u = 0; u < each; u++)
        if ((int)threadIdx.x + u * looped_threads < n) x[u] = from[threadIdx.x + u * looped_threads];
    float max = Max::identity(), sum = 0.0f;
    for (int64_t i = threadIdx.x; i < chunks; i += blockDim.x) max = Max::combine(max, stats[i].max);
    max = block_reduce<Max>(max, scratch);
    for (int64_t i = threadIdx.x; i < chunks; i += blockDim.x) sum += stats[i].sum * expf(stats[i].max - max);
    const float scale = 1.0f / block_reduce<Sum>(sum, scratch);
#pragma unroll
    for (int u = 0; u < each; u++)
        if ((int)threadIdx.x + u * looped_threads < n)
            to[threadIdx.x + u * looped_threads] = from_float<T>(expf(to_float(x[u]) - max) * scale);
}

} // namespace
} // namespace vb

using namespace vb;

extern "C" vb_status vb_cuda_softmax_batched(void *out, const void *in, vb_dtype type, int64_t rows, int64_t cols,
                                             vb_stream *stream) {
    const rows_plan plan = choose_softmax(type, rows, cols, aligned16(out, in), &gpu_of(stream));
    chosen(stream, rows_kernel_info(plan.kernel), "softmax", type, "rows cols", rows, cols);
    if (plan.kernel == ROWS_NONE) return VB_UNSUPPORTED;
    return with_float_type(type, [&](auto zero) {
        using T = decltype(zero);
        T *o = (T *)out;
        const T *x = (const T *)in;
        if (plan.kernel == ROWS_NARROW)
            return launch_overlapped(
                stream, (unsigned)ceil_div<int64_t>(rows, plan.threads / plan.lanes), plan.threads, 0,
                plan.per_thread == 1 ? softmax_narrow_kernel<T, 1> : softmax_narrow_kernel<T, 4>, o, x, rows, (int)cols,
                plan.lanes);
        constexpr int most_words = sizeof(T) == 4 ? 32 : 16; // of a lane
        if (plan.kernel == ROWS_NARROW_WORDS)
            return launch_overlapped(
                stream, (unsigned)ceil_div<int64_t>(rows, plan.threads / plan.lanes), plan.threads, 0,
                plan.per_thread == 4    ? softmax_narrow_words_kernel<T, 4>
                : plan.per_thread == 8  ? softmax_narrow_words_kernel<T, 8>
                : plan.per_thread == 16 ? softmax_narrow_words_kernel<T, 16>
                                        : softmax_narrow_words_kernel<T, most_words>,
                o, x, rows, (int)cols, plan.lanes);
        if (plan.kernel == ROWS_STAGED) return launch_staged(plan, o, x, SoftmaxStaged(), rows, cols, stream);
        if (plan.kernel == ROWS_REGISTERS)
            return with_per_thread(plan.per_thread, [&](auto per_thread) {
                return launch_cluster(stream, plan.cluster, (unsigned)(rows * plan.cluster), plan.threads, 0,
                                      softmax_registers_kernel<T, decltype(per_thread)::value>, o, x, cols,
                                      beyond_l2(rows * cols * (int64_t)sizeof(T), stream));
            });
        if (plan.kernel == ROWS_LOOPED)
            return launch_overlapped(stream, (unsigned)rows, looped_block(plan, cols * (int64_t)sizeof(T), stream), 0,
                                     softmax_looped_kernel<T>, o, x, cols);
        const int64_t blocks = rows * plan.chunks;
        void *stats;
        VB_TRY(workspace(&stats, blocks * (int64_t)sizeof(SoftmaxStats), stream));
        VB_TRY(launch_overlapped(stream, (unsigned)blocks, plan.threads, 0, softmax_reduce_kernel<T>,
                                 (SoftmaxStats *)stats, x, cols, plan.chunks));
        return launch_overlapped(stream, (unsigned)blocks, plan.threads, 0, softmax_apply_kernel<T>, o, x,
                                 (const SoftmaxStats *)stats, cols, plan.chunks);
    });
}
