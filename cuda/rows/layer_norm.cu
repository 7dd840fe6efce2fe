// layer_norm.cu: layer normalization, arithmetic in float32 (Ba, Kiros & Hinton 2016). In place allowed.
//   mean_r = mean_c(x[r][c]);  variance_r = mean_c((x[r][c] - mean_r)^2)
//   out[r][c] = (x[r][c] - mean_r) / sqrt(variance_r + eps) * weight[c] + bias[c];  weight, bias may be left out
// The squares are summed once the mean is known. A difference of sums of squares would be noise beside a large mean.
//
//   registers  grid rows * cluster, block 32..1024 threads; loads of 16 or 8 bytes, 1..4 a thread, held over both
//              reductions
//   narrow     grid rows / (256 / lanes a row), block 256; 1 or 4 vectors a lane
//   staged, ahead  staged.cuh, ahead.cuh
//   looped     grid rows, block 512; reads the row three times (twice from the cache) and writes it once
//   chunked    grid rows * ceil(cols / 2048), block 512, two kernels; chunks combined as Chan et al. (1979) do
//   moves      2 * rows * cols * sizeof(T) bytes and weight and bias once, 7 FLOPs an element; 576 bytes shared
//   bound      memory bandwidth; one row of a model: latency of a load, two reductions and a launch
//   measured   docs/experiments/2026-11-22-rows.md

#include "rows/ahead.cuh"
#include "rows/staged.cuh"

namespace vb {
namespace {

// parameter[i..] for a vector; `otherwise` where there is none.
template <class V>
VB_DEVICE void load_parameter(float (&p)[V::size], const float *parameter, int64_t vector, float otherwise) {
#pragma unroll
    for (int e = 0; e < V::size; e += 4) {
        const float4 four = parameter ? reinterpret_cast<const float4 *>(parameter + vector * V::size)[e / 4]
                                      : make_float4(otherwise, otherwise, otherwise, otherwise);
        p[e] = four.x, p[e + 1] = four.y, p[e + 2] = four.z, p[e + 3] = four.w;
    }
}

VB_DEVICE float norm_scale(float squares, int64_t cols, float eps) { return 1.0f / sqrtf(squares / (float)cols + eps); }

// The sum of numbers, and the squares of their differences to the mean. Two parts have equally many numbers (Chan,
// Golub & LeVeque).
struct Spread {
    float sum, squares;
    VB_DEVICE void add(Spread other, float half_inverse_count) { // 1 / (2 count) of one part
        const float apart = other.sum - sum;
        sum += other.sum;
        squares += other.squares + apart * apart * half_inverse_count;
    }
};
// The spread of a block whose threads have `count` numbers each; the number of threads is a power of two.
// One reduction takes the place of two: the mean first and squares after.
VB_DEVICE Spread block_spread(Spread x, float count, float2 *scratch) {
    const int lane = threadIdx.x % 32, warps = blockDim.x / 32;
    float half_inverse = 0.5f / count;
    const auto combine = [&](int lanes) {
        for (int offset = 1; offset < lanes; offset *= 2, half_inverse *= 0.5f)
            x.add({__shfl_xor_sync(all_lanes, x.sum, offset), __shfl_xor_sync(all_lanes, x.squares, offset)},
                  half_inverse);
    };
    combine(32);
    if (warps == 1) return x;
    if (lane == 0) scratch[threadIdx.x / 32] = make_float2(x.sum, x.squares);
    __syncthreads();
    const float2 of_warp = scratch[lane % warps];
    x = {of_warp.x, of_warp.y};
    combine(warps);
    return x;
}

template <class T, class V, int PER_THREAD>
__global__ void __launch_bounds__(max_row_threads)
    layer_norm_registers_kernel(T *out, const T *in, const float *weight, const float *bias, int64_t cols, float eps) {
    __shared__ float scratch[32], sums[max_cluster], squares_of[max_cluster];
    __shared__ float2 spreads[32];
    const int size = cluster_size(), rank = cluster_rank();
    if (size > 1) cluster_arrive();
    wait_for_previous_kernel();
    release_next_kernel();
    const int64_t row = blockIdx.x / size;
    const int vectors = int(cols / V::size), stride = blockDim.x * size, first = rank * blockDim.x + threadIdx.x;
    const V *source = reinterpret_cast<const V *>(in + row * cols);
    V x[PER_THREAD];
    float sum = 0.0f;
#pragma unroll
    for (int v = 0; v < PER_THREAD; v++)
        if (first + v * stride < vectors) x[v] = source[first + v * stride];
    // A vector a thread is the plan for few rows: nothing else hides how long parameters take to come.
    constexpr bool early = PER_THREAD == 1;
    float w[V::size], b[V::size];
    const auto load_parameters = [&](int vector) {
        load_parameter<V>(w, weight, vector, 1.0f);
        load_parameter<V>(b, bias, vector, 0.0f);
    };
    if (early && first < vectors) load_parameters(first);
#pragma unroll
    for (int v = 0; v < PER_THREAD; v++)
        if (first + v * stride < vectors)
#pragma unroll
            for (int e = 0; e < V::size; e++) sum += to_float(x[v].at[e]);
    float mean, squares = 0.0f;
    const auto add_squares = [&](float from) {
#pragma unroll
        for (int v = 0; v < PER_THREAD; v++)
            if (first + v * stride < vectors)
#pragma unroll
                for (int e = 0; e < V::size; e++) {
                    const float d = to_float(x[v].at[e]) - from;
                    squares += d * d;
                }
    };
    if (early && size == 1 && vectors == (int)blockDim.x && (blockDim.x & (blockDim.x - 1)) == 0) {
        add_squares(sum * (1.0f / V::size));
        const Spread row_spread = block_spread({sum, squares}, V::size, spreads);
        mean = row_spread.sum / (float)cols, squares = row_spread.squares;
    } else {
        sum = block_reduce<Sum>(sum, scratch);
        if (size > 1) cluster_wait();
        mean = cluster_reduce<Sum>(sum, sums) / (float)cols;
        add_squares(mean);
        squares = cluster_reduce<Sum>(block_reduce<Sum>(squares, scratch), squares_of);
    }
    const float scale = norm_scale(squares, cols, eps);
#pragma unroll
    for (int v = 0; v < PER_THREAD; v++)
        if (first + v * stride < vectors) {
            if (!early) load_parameters(first + v * stride);
#pragma unroll
            for (int e = 0; e < V::size; e++)
                x[v].at[e] = from_float<T>((to_float(x[v].at[e]) - mean) * scale * w[e] + b[e]);
            reinterpret_cast<V *>(out + row * cols)[first + v * stride] = x[v];
        }
}

// LOADS vectors a lane; `lanes` of a row are a power of two.
template <class T, class V, int LOADS>
__global__ void __launch_bounds__(ROWS_NARROW_THREADS)
    layer_norm_narrow_kernel(T *out, const T *in, const float *weight, const float *bias, int64_t rows, int cols,
                             float eps, int lanes) {
    wait_for_previous_kernel();
    release_next_kernel();
    const RowThreads threads = {(int)threadIdx.x & (lanes - 1), lanes, nullptr};
    const int64_t row = (int64_t)blockIdx.x * (ROWS_NARROW_THREADS / lanes) + (int)threadIdx.x / lanes;
    const int units = row < rows ? cols / V::size : 0, lane = threads.lane;
    const V *const source = reinterpret_cast<const V *>(in + row * cols);
    V x[LOADS];
#pragma unroll
    for (int i = 0; i < LOADS; i++)
        if (lane + i * lanes < units) x[i] = source[lane + i * lanes];
    float sum = 0.0f, squares = 0.0f;
#pragma unroll
    for (int i = 0; i < LOADS; i++)
        if (lane + i * lanes < units)
#pragma unroll
            for (int e = 0; e < V::size; e++) sum += to_float(x[i].at[e]);
    const float mean = threads.reduce<Sum>(sum) / (float)cols;
#pragma unroll
    for (int i = 0; i < LOADS; i++)
        if (lane + i * lanes < units)
#pragma unroll
            for (int e = 0; e < V::size; e++) {
                const float d = to_float(x[i].at[e]) - mean;
                squares += d * d;
            }
    const float scale = norm_scale(threads.reduce<Sum>(squares), cols, eps);
#pragma unroll
    for (int i = 0; i < LOADS; i++)
        if (lane + i * lanes < units) {
            float w[V::size], b[V::size];
            load_parameter<V>(w, weight, lane + i * lanes, 1.0f);
            load_parameter<V>(b, bias, lane + i * lanes, 0.0f);
#pragma unroll
            for (int e = 0; e < V::size; e++)
                x[i].at[e] = from_float<T>((to_float(x[i].at[e]) - mean) * scale * w[e] + b[e]);
            reinterpret_cast<V *>(out + row * cols)[lane + i * lanes] = x[i];
        }
}

struct LayerNormStaged {
    const float *weight, *bias;
    float eps;
    template <class T>
    VB_DEVICE void operator()(T *x, int n, const RowThreads &threads) const {
        float sum = 0.0f, squares = 0.0f;
#pragma unroll 4
        for (int i = threads.lane; i < n; i += threads.lanes) sum += to_float(x[i]);
        const float mean = threads.reduce<Sum>(sum) / (float)n;
#pragma unroll 4
        for (int i = threads.lane; i < n; i += threads.lanes) {
            const float d = to_float(x[i]) - mean;
            squares += d * d;
        }
        const float scale = norm_scale(threads.reduce<Sum>(squares), n, eps);
#pragma unroll 4
        for (int i = threads.lane; i < n; i += threads.lanes)
            x[i] = from_float<T>((to_float(x[i]) - mean) * scale * (weight ? __ldg(weight + i) : 1.0f) +
                                 (bias ? __ldg(bias + i) : 0.0f));
    }
};

struct Moments {
    float mean, squares; // of the differences to the mean
};

// Of n elements; every thread gets the result.
template <class T>
__device__ Moments moments(const T *x, int64_t n, float *scratch) {
    float sum = 0.0f;
    each_piece_of_block(x, n, [&](int64_t, const auto &y) {
#pragma unroll
        for (const float one : y) sum += one;
    });
    Moments m;
    m.mean = block_reduce<Sum>(sum, scratch) / (float)n;
    float squares = 0.0f;
    each_piece_of_block(x, n, [&](int64_t, const auto &y) {
#pragma unroll
        for (const float one : y) squares += (one - m.mean) * (one - m.mean);
    });
    m.squares = block_reduce<Sum>(squares, scratch);
    return m;
}

template <class T>
__device__ void layer_norm_apply(T *out, const T *x, const float *weight, const float *bias, int64_t n, float mean,
                                 float scale) {
    const RowParameter weights(weight, ones), biases(bias, zeros);
    const auto apply = [&](auto vectors) {
        map_pieces_of_block(out, x, n, [&](int64_t i, auto &y) {
            constexpr int count = sizeof(y) / sizeof(float);
            float w[count], b[count];
            weights.load<decltype(vectors)::value>(w, i);
            biases.load<decltype(vectors)::value>(b, i);
#pragma unroll
            for (int e = 0; e < count; e++) y[e] = (y[e] - mean) * scale * w[e] + b[e];
        });
    };
    const int64_t head = row_head(x, n);
    if (weights.has_vectors(head) && biases.has_vectors(head)) apply(Constant<1>());
    else apply(Constant<0>());
}

template <class T>
__global__ void __launch_bounds__(max_row_threads)
    layer_norm_looped_kernel(T *out, const T *in, const float *weight, const float *bias, int64_t cols, float eps) {
    __shared__ float scratch[32];
    wait_for_previous_kernel();
    release_next_kernel();
    const int64_t start = blockIdx.x * cols;
    const Moments m = moments(in + start, cols, scratch);
    // Each thread reads again only the elements that it will overwrite itself.
    layer_norm_apply(out + start, in + start, weight, bias, cols, m.mean, norm_scale(m.squares, cols, eps));
}

template <class T>
__global__ void __launch_bounds__(looped_threads)
    layer_norm_moments_kernel(Moments *parts, const T *in, int64_t cols, int64_t chunks) {
    __shared__ float scratch[32];
    wait_for_previous_kernel();
    release_next_kernel();
    const int64_t chunk = blockIdx.x % chunks * row_chunk, start = blockIdx.x / chunks * cols + chunk;
    const Moments m = moments(in + start, smaller(row_chunk, cols - chunk), scratch);
    if (threadIdx.x == 0) parts[blockIdx.x] = m;
}

template <class T>
__global__ void __launch_bounds__(looped_threads)
    layer_norm_apply_kernel(T *out, const T *in, const float *weight, const float *bias, const Moments *parts,
                            int64_t cols, int64_t chunks, float eps) {
    __shared__ float scratch[32];
    wait_for_previous_kernel();
    release_next_kernel();
    const int64_t row = blockIdx.x / chunks, chunk = blockIdx.x % chunks * row_chunk, start = row * cols + chunk;
    const Moments *const mine = parts + row * chunks;
    const auto length = [&](int64_t i) { return (float)smaller(row_chunk, cols - i * row_chunk); };
    float sum = 0.0f;
    for (int64_t i = threadIdx.x; i < chunks; i += blockDim.x) sum += mine[i].mean * length(i);
    const float mean = block_reduce<Sum>(sum, scratch) / (float)cols;
    float squares = 0.0f;
    for (int64_t i = threadIdx.x; i < chunks; i += blockDim.x) {
        const float d = mine[i].mean - mean;
        squares += mine[i].squares + d * d * length(i);
    }
    squares = block_reduce<Sum>(squares, scratch);
    layer_norm_apply(out + start, in + start, weight ? weight + chunk : nullptr, bias ? bias + chunk : nullptr,
                     smaller(row_chunk, cols - chunk), mean, norm_scale(squares, cols, eps));
}

} // namespace
} // namespace vb

using namespace vb;

extern "C" vb_status vb_cuda_layer_norm_batched(void *out, const void *in, const float *weight, const float *bias,
                                                vb_dtype type, int64_t rows, int64_t cols, float eps,
                                                vb_stream *stream) {
    // Each of two reductions takes time in a cluster.
    const rows_plan plan =
        choose_norm(type, rows, cols, aligned16(out, in, weight, bias), max_row_threads, true, &gpu_of(stream));
    chosen(stream, rows_kernel_info(plan.kernel), "layer_norm", type, "rows cols", rows, cols);
    if (plan.kernel == ROWS_NONE) return VB_UNSUPPORTED;
    if (plan.kernel == ROWS_AHEAD)
        return norm_ahead<true>(plan, type, out, in, weight, bias, rows, cols, eps, stream);
    return with_float_type(type, [&](auto zero) {
        using T = decltype(zero);
        T *const o = (T *)out;
        const T *const x = (const T *)in;
        if (plan.kernel == ROWS_REGISTERS)
            return with_row_vectors<T>(plan, [&](auto vector) {
                using V = decltype(vector);
                return with_per_thread(plan.per_thread, [&](auto per_thread) {
                    return launch_cluster(stream, plan.cluster, (unsigned)(rows * plan.cluster), plan.threads, 0,
                                          layer_norm_registers_kernel<T, V, decltype(per_thread)::value>, o, x, weight,
                                          bias, cols, eps);
                });
            });
        if (plan.kernel == ROWS_NARROW)
            return with_row_vectors<T>(plan, [&](auto vector) {
                using V = decltype(vector);
                return launch_overlapped(stream, (unsigned)ceil_div<int64_t>(rows, plan.threads / plan.lanes),
                                         plan.threads, 0,
                                         plan.per_thread == 1 ? layer_norm_narrow_kernel<T, V, 1>
                                                              : layer_norm_narrow_kernel<T, V, 4>,
                                         o, x, weight, bias, rows, (int)cols, eps, plan.lanes);
            });
        if (plan.kernel == ROWS_STAGED)
            return launch_staged(plan, o, x, LayerNormStaged{weight, bias, eps}, rows, cols, stream);
        if (plan.kernel == ROWS_LOOPED)
            return launch_overlapped(stream, (unsigned)rows, looped_block(plan, cols * (int64_t)sizeof(T), stream), 0,
                                     layer_norm_looped_kernel<T>, o, x, weight, bias, cols, eps);
        const int64_t blocks = rows * plan.chunks;
        void *parts;
        VB_TRY(workspace(&parts, blocks * (int64_t)sizeof(Moments), stream));
        VB_TRY(launch_overlapped(stream, (unsigned)blocks, plan.threads, 0, layer_norm_moments_kernel<T>,
                                 (Moments *)parts, x, cols, plan.chunks));
        return launch_overlapped(stream, (unsigned)blocks, plan.threads, 0, layer_norm_apply_kernel<T>, o, x, weight,
                                 bias, (const Moments *)parts, cols, plan.chunks, eps);
    });
}
