// norm.cu: rms_norm and add_rms_norm, arithmetic in float32.
//
//   scale_r = 1 / sqrt(mean_c(x[r][c]^2) + eps);  out[r][c] = x[r][c] * scale_r * weight[c]     (Zhang & Sennrich 2019)
//   x = in, or x = a + b rounded to the type and stored as sum. In place allowed.
//
//   registers  grid rows * cluster, block 32..1024 threads; loads of 16 or 8 bytes, 1..4 a thread; 192 bytes of shared
//              memory
//   narrow     grid rows / (256 / lanes a row), block 256; 1 or 4 vectors a lane; not with the addition
//   staged, ahead  staged.cuh, ahead.cuh; not with the addition
//   looped     grid rows, block 512; reads the row twice (once from the cache) and writes it once
//   chunked    grid rows * ceil(cols / 2048), block 512, two kernels
//   moves      2 (with the addition 4) * rows * cols * sizeof(T) bytes and the weights once, 4 FLOPs an element
//   bound      memory bandwidth; one row of a model: latency of a load, a reduction and a launch
//   measured   docs/experiments/2026-11-22-rows.md

#include "rows/ahead.cuh"
#include "rows/staged.cuh"

namespace vb {
namespace {

// weight[i..] for a vector; ones without weights.
template <class V>
VB_DEVICE void load_weights(float (&w)[V::size], const float *weight, int64_t vector) {
#pragma unroll
    for (int e = 0; e < V::size; e += 4) {
        const float4 four = weight ? reinterpret_cast<const float4 *>(weight + vector * V::size)[e / 4]
                                   : make_float4(1.0f, 1.0f, 1.0f, 1.0f);
        w[e] = four.x, w[e + 1] = four.y, w[e + 2] = four.z, w[e + 3] = four.w;
    }
}

VB_DEVICE float rms_scale(float sum_of_squares, int64_t cols, float eps) {
    return 1.0f / sqrtf(sum_of_squares / (float)cols + eps);
}

// A vector of so many bytes, of 16 by the reader.
template <class V>
VB_DEVICE V load_vector(const StreamReader &reader, const V *at, Constant<16>) {
    return reader.load(at);
}
template <class V>
VB_DEVICE V load_vector(const StreamReader &, const V *at, Constant<8>) {
    return *at;
}

// ADD: x = a + b, also stored to sum; else x = a, and b and sum are unused.
template <class T, class V, int PER_THREAD, bool ADD>
__global__ void __launch_bounds__(max_row_threads)
    rms_registers_kernel(T *sum, T *out, const T *a, const T *b, const float *weight, int64_t cols, float eps,
                         bool streamed) {
    __shared__ float scratch[32], slots[max_cluster];
    const int size = cluster_size(), rank = cluster_rank();
    if (size > 1) cluster_arrive();
    wait_for_previous_kernel();
    release_next_kernel();
    const int64_t row = blockIdx.x / size;
    const int vectors = int(cols / V::size), stride = blockDim.x * size, first = rank * blockDim.x + threadIdx.x;
    const V *source = reinterpret_cast<const V *>(a + row * cols),
            *source2 = reinterpret_cast<const V *>(b + row * cols);
    const StreamReader reader(streamed);
    constexpr Constant<(int)sizeof(V)> bytes;
    V x[PER_THREAD];
    if (ADD) {
        V y[PER_THREAD];
#pragma unroll
        for (int v = 0; v < PER_THREAD; v++)
            if (first + v * stride < vectors)
                x[v] = load_vector(reader, source + first + v * stride, bytes),
                y[v] = load_vector(reader, source2 + first + v * stride, bytes);
#pragma unroll
        for (int v = 0; v < PER_THREAD; v++)
            if (first + v * stride < vectors) {
#pragma unroll
                for (int e = 0; e < V::size; e++)
                    x[v].at[e] = from_float<T>(to_float(x[v].at[e]) + to_float(y[v].at[e]));
                reinterpret_cast<V *>(sum + row * cols)[first + v * stride] = x[v];
            }
    } else {
#pragma unroll
        for (int v = 0; v < PER_THREAD; v++)
            if (first + v * stride < vectors) x[v] = load_vector(reader, source + first + v * stride, bytes);
    }
    float squares = 0.0f;
#pragma unroll
    for (int v = 0; v < PER_THREAD; v++)
        if (first + v * stride < vectors)
#pragma unroll
            for (int e = 0; e < V::size; e++) {
                const float y = to_float(x[v].at[e]);
                squares += y * y;
            }
    squares = block_reduce<Sum>(squares, scratch);
    if (size > 1) cluster_wait();
    const float scale = rms_scale(cluster_reduce<Sum>(squares, slots), cols, eps);
#pragma unroll
    for (int v = 0; v < PER_THREAD; v++)
        if (first + v * stride < vectors) {
            float w[V::size];
            load_weights<V>(w, weight, first + v * stride);
#pragma unroll
            for (int e = 0; e < V::size; e++) x[v].at[e] = from_float<T>(to_float(x[v].at[e]) * scale * w[e]);
            reinterpret_cast<V *>(out + row * cols)[first + v * stride] = x[v];
        }
}

template <class T, class V, int LOADS>
__global__ void __launch_bounds__(ROWS_NARROW_THREADS)
    rms_narrow_kernel(T *out, const T *in, const float *weight, int64_t rows, int cols, float eps, int lanes) {
    wait_for_previous_kernel();
    release_next_kernel();
    NarrowRow<T, LOADS, V> row(in, rows, cols, lanes);
    const RowThreads threads = {row.lane, lanes, nullptr};
    float squares = 0.0f;
    row.each_element([&](int i, int e) { squares += to_float(row.x[i].at[e]) * to_float(row.x[i].at[e]); });
    const float scale = rms_scale(threads.reduce<Sum>(squares), cols, eps);
    row.each([&](int i) {
        float w[V::size];
        load_weights<V>(w, weight, row.lane + i * lanes);
#pragma unroll
        for (int e = 0; e < V::size; e++) row.x[i].at[e] = from_float<T>(to_float(row.x[i].at[e]) * scale * w[e]);
        row.store(out, i);
    });
}

struct RmsStaged {
    const float *weight;
    float eps;
    template <class T>
    VB_DEVICE void operator()(T *x, int n, const RowThreads &threads) const {
        float squares = 0.0f;
#pragma unroll 4
        for (int i = threads.lane; i < n; i += threads.lanes) squares += to_float(x[i]) * to_float(x[i]);
        const float scale = rms_scale(threads.reduce<Sum>(squares), n, eps);
#pragma unroll 4
        for (int i = threads.lane; i < n; i += threads.lanes)
            x[i] = from_float<T>(to_float(x[i]) * scale * (weight ? __ldg(weight + i) : 1.0f));
    }
};

// The sum of squares of n elements; stores a + b on the way, which may be either of them.
template <class T, bool ADD>
__device__ float rms_reduce(T *sum, const T *a, const T *b, int64_t n, float *scratch) {
    float squares = 0.0f;
    if (ADD)
        each_of_block(a, n, [&](int64_t i, float x) {
            const T both = from_float<T>(x + to_float(b[i]));
            sum[i] = both, x = to_float(both);
            squares += x * x;
        });
    else
        each_piece_of_block(a, n, [&](int64_t, const auto &y) {
#pragma unroll
            for (const float x : y) squares += x * x;
        });
    return block_reduce<Sum>(squares, scratch); // after which each thread sees all of the sums
}

template <class T>
__device__ void rms_apply(T *out, const T *x, const float *weight, int64_t n, float scale) {
    const RowParameter weights(weight, ones);
    const auto apply = [&](auto vectors) {
        map_pieces_of_block(out, x, n, [&](int64_t i, auto &y) {
            constexpr int count = sizeof(y) / sizeof(float);
            float w[count];
            weights.load<decltype(vectors)::value>(w, i);
#pragma unroll
            for (int e = 0; e < count; e++) y[e] = y[e] * scale * w[e];
        });
    };
    if (weights.has_vectors(row_head(x, n))) apply(Constant<1>());
    else apply(Constant<0>());
}

template <class T, bool ADD>
__global__ void __launch_bounds__(max_row_threads)
    rms_looped_kernel(T *sum, T *out, const T *a, const T *b, const float *weight, int64_t cols, float eps) {
    __shared__ float scratch[32];
    wait_for_previous_kernel();
    release_next_kernel();
    const int64_t start = blockIdx.x * cols;
    const float squares = rms_reduce<T, ADD>(sum + start, a + start, b + start, cols, scratch);
    // Each thread overwrites only elements that it has read itself.
    rms_apply(out + start, (ADD ? sum : a) + start, weight, cols, rms_scale(squares, cols, eps));
}

template <class T, bool ADD>
__global__ void __launch_bounds__(looped_threads)
    rms_reduce_kernel(float *squares, T *sum, const T *a, const T *b, int64_t cols, int64_t chunks) {
    __shared__ float scratch[32];
    wait_for_previous_kernel();
    release_next_kernel();
    const int64_t chunk = blockIdx.x % chunks * row_chunk, start = blockIdx.x / chunks * cols + chunk;
    const float mine = rms_reduce<T, ADD>(sum + start, a + start, b + start, smaller(row_chunk, cols - chunk), scratch);
    if (threadIdx.x == 0) squares[blockIdx.x] = mine;
}

template <class T>
__global__ void __launch_bounds__(looped_threads)
    rms_apply_kernel(T *out, const T *x, const float *weight, const float *squares, int64_t cols, int64_t chunks,
                     float eps) {
    __shared__ float scratch[32];
    wait_for_previous_kernel();
    release_next_kernel();
    const int64_t row = blockIdx.x / chunks, chunk = blockIdx.x % chunks * row_chunk, start = row * cols + chunk;
    float all = 0.0f;
    for (int64_t i = threadIdx.x; i < chunks; i += blockDim.x) all += squares[row * chunks + i];
    all = block_reduce<Sum>(all, scratch);
    rms_apply(out + start, x + start, weight ? weight + chunk : nullptr, smaller(row_chunk, cols - chunk),
              rms_scale(all, cols, eps));
}

template <bool ADD>
vb_status rms(void *sum, void *out, const void *a, const void *b, const float *weight, vb_dtype type, int64_t rows,
              int64_t cols, float eps, vb_stream *stream) {
    const vb_gpu &gpu = gpu_of(stream);
    const rows_plan plan = ADD ? choose_rows(type, rows, cols, aligned16(sum, out, a, b, weight), 512, ROWS_NORM_OF_SUM,
                                             rows_norm_width(type, cols), &gpu)
                               : choose_norm(type, rows, cols, aligned16(out, a, weight), 512, false, &gpu);
    chosen(stream, rows_kernel_info(plan.kernel), ADD ? "add_rms_norm" : "rms_norm", type, "rows cols", rows, cols);
    if (plan.kernel == ROWS_NONE) return VB_UNSUPPORTED;
    if (plan.kernel == ROWS_AHEAD)
        return norm_ahead<false>(plan, type, out, a, weight, nullptr, rows, cols, eps, stream);
    return with_float_type(type, [&](auto zero) {
        using T = decltype(zero);
        T *s = (T *)sum, *o = (T *)out;
        const T *x = (const T *)a, *y = (const T *)b;
        if (plan.kernel == ROWS_REGISTERS)
            return with_row_vectors<T>(plan, [&](auto vector) {
                using V = decltype(vector);
                return with_per_thread(plan.per_thread, [&](auto per_thread) {
                    return launch_cluster(stream, plan.cluster, (unsigned)(rows * plan.cluster), plan.threads, 0,
                                          rms_registers_kernel<T, V, decltype(per_thread)::value, ADD>, s, o, x, y,
                                          weight, cols, eps,
                                          beyond_l2((ADD ? 2 : 1) * rows * cols * (int64_t)sizeof(T), stream));
                });
            });
        if (plan.kernel == ROWS_NARROW)
            return with_row_vectors<T>(plan, [&](auto vector) {
                using V = decltype(vector);
                return launch_overlapped(stream, (unsigned)ceil_div<int64_t>(rows, plan.threads / plan.lanes),
                                         plan.threads, 0,
                                         plan.per_thread == 1 ? rms_narrow_kernel<T, V, 1> : rms_narrow_kernel<T, V, 4>,
                                         o, x, weight, rows, (int)cols, eps, plan.lanes);
            });
        if (plan.kernel == ROWS_STAGED)
            return launch_staged(plan, o, x, RmsStaged{weight, eps}, rows, cols, stream);
        if (plan.kernel == ROWS_LOOPED)
            return launch_overlapped(stream, (unsigned)rows, looped_block(plan, cols * (int64_t)sizeof(T), stream), 0,
                                     rms_looped_kernel<T, ADD>, s, o, x, y, weight, cols, eps);
        const int64_t blocks = rows * plan.chunks;
        void *squares;
        VB_TRY(workspace(&squares, blocks * (int64_t)sizeof(float), stream));
        VB_TRY(launch_overlapped(stream, (unsigned)blocks, plan.threads, 0, rms_reduce_kernel<T, ADD>, (float *)squares,
                                 s, x, y, cols, plan.chunks));
        return launch_overlapped(stream, (unsigned)blocks, plan.threads, 0, rms_apply_kernel<T>, o,
                                 (const T *)(ADD ? s : x), weight, (const float *)squares, cols, plan.chunks, eps);
    });
}

} // namespace
} // namespace vb

using namespace vb;

extern "C" {

vb_status vb_cuda_rms_norm_batched(void *out, const void *in, const float *weight, vb_dtype type, int64_t rows,
                                   int64_t cols, float eps, vb_stream *stream) {
    return rms<false>(nullptr, out, in, in, weight, type, rows, cols, eps, stream);
}

vb_status vb_cuda_add_rms_norm(void *sum, void *out, const void *a, const void *b, const float *weight, vb_dtype type,
                               int64_t rows, int64_t cols, float eps, vb_stream *stream) {
    return rms<true>(sum, out, a, b, weight, type, rows, cols, eps, stream);
}

} // extern "C"
