// matmul_skinny.cu: C = A B where A has at most 8 rows or B at most 8 columns, in float32 arithmetic: any type, layout
// and strides, on any GPU. The `few` rows (or columns) lie in shared memory; the other operand, `many`, is read once.
//
//   by k     `many` is stored with k innermost: a warp has 4 of its rows, and lanes lie along k
//   dot      the same with one row of A or column of B: 1 to 256 threads have 1 or 4 rows, a block several matrices of
//            few rows. The lone one is read from the L1; if its elements lie apart, from shared memory. Rows that
//            begin anywhere are read by aligned vectors, beside which a thread joins two vectors of the lone one
//   across   `many` is stored with its rows innermost: lanes lie across them, and warps share k
//   lone     the same with one row of A or column of B: warps have every eighth row of k, whose vectors are read as
//            they lie, wherever rows begin
//   own      the same of many matrices of a short k: a thread has an output
//   grid     (ceil(rows / rows of a block), matrices, blocks that share k); block: 8 warps, up to 8 share a row's k
//   shared   8192 floats of the few, dot: 32 KiB at most; then sums of the warps
//   moves    `many` once, the few once a block; 2 m n k FLOPs
//   bound    memory; many small matrices: latency

#include "arch/sm90.cuh"
#include "arch/streaming.cuh"
#include "arch/unaligned.cuh"
#include "gemm/matmul.cuh"
#include "runtime/quotient.cuh"

namespace vb {
namespace {

constexpr int warps = MATMUL_SKINNY_WARPS, threads = warps * 32;

// The product as `few` rows of k times `many` rows of k.
template <class T>
struct Skinny {
    T *c;
    const T *few, *many;
    int64_t k, rows;                    // rows of `many`
    int64_t few_row, few_k, many_stride, c_few, c_many; // elements from one to the next
    int count;                          // of few rows
    bool of_rows;                       // the few are rows of A, else columns of B

    VB_DEVICE Skinny(MatMulProblem<T> p, bool a_transposed, bool b_transposed, int64_t matrix = blockIdx.y) {
        p.a += matrix * p.a_batch_stride, p.b += matrix * p.b_batch_stride, p.c += matrix * p.c_batch_stride;
        c = p.c, k = p.k, of_rows = p.m <= p.n;
        count = (int)(of_rows ? p.m : p.n), rows = of_rows ? p.n : p.m;
        few = of_rows ? p.a : p.b, many = of_rows ? p.b : p.a;
        const int64_t few_stride = of_rows ? p.a_stride : p.b_stride;
        const bool few_by_k = of_rows ? !a_transposed : b_transposed;
        few_row = few_by_k ? few_stride : 1, few_k = few_by_k ? 1 : few_stride;
        many_stride = of_rows ? p.b_stride : p.a_stride;
        c_few = of_rows ? p.c_stride : 1, c_many = of_rows ? 1 : p.c_stride;
    }
    // Keeps a sum: an element of C, or of this block's part.
    VB_DEVICE void store(const KParts &parts, int64_t c_rows, int r, int64_t row, float sum) const {
        if (r >= count || row >= rows) return;
        if (parts.count > 1) parts.at(c_rows, of_rows ? r : row)[of_rows ? row : r] = sum;
        else c[r * c_few + row * c_many] = from_float<T>(sum);
    }
};

// A piece of W elements, of which `left` are inside; zeros for the rest.
template <class T, int W>
struct Elements {
    Vec<T, W> x;

    VB_DEVICE void load_whole(const T *from) { x = load_once(reinterpret_cast<const Vec<T, W> *>(from)); }
    VB_DEVICE void load(const T *from, int64_t left) {
        if (left >= W) {
            load_whole(from);
        } else {
#pragma unroll
            for (int e = 0; e < W; e++) x.at[e] = e < left ? from[e] : from_float<T>(0.0f);
        }
    }
};

// W elements in shared memory or the L1. SHIFTED: they begin anywhere; the aligned vectors in which they lie hold an
// element of the matrix each, and so lie in pages that may be read.
template <class T, int W, bool SHIFTED>
VB_DEVICE Vec<T, W> load_near(const T *from) {
    if (!SHIFTED) return *reinterpret_cast<const Vec<T, W> *>(from);
    const unsigned shift = (unsigned)(uintptr_t)from % 16;
    const uint4 *const at = (const uint4 *)((const char *)from - shift);
    const uint4 vector = bytes_from(at[0], at[shift > 0], shift);
    return *reinterpret_cast<const Vec<T, W> *>(&vector);
}

// The sum over a warp's lanes of each of COUNT values; a lane gets the sum of value lane * COUNT / 32.
template <int COUNT>
VB_DEVICE float reduce_each(float (&value)[COUNT]) {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int offset = 16, left = COUNT; offset > 0; offset /= 2) {
        if (left > 1) {
            left /= 2;
#pragma unroll
            for (int i = 0; i < COUNT / 2; i++) {
                if (i >= left) continue;
                const float keep = lane & offset ? value[left + i] : value[i],
                            give = lane & offset ? value[i] : value[left + i];
                value[i] = keep + __shfl_xor_sync(all_lanes, give, offset);
            }
        } else {
            value[0] += __shfl_xor_sync(all_lanes, value[0], offset);
        }
    }
    return value[0];
}

// Calls keep(r, d, element) for elements at + d of R few rows, d below `padded`. Elements from `end` on are zeros, and
// so are missing rows.
// Several loads are under way at a time, of neighbours in memory by neighbouring threads.
template <int R, class T, class F>
VB_DEVICE void stage(const Skinny<T> &x, int64_t at, int end, int padded, F keep) {
    constexpr int at_once = 8;
    const bool by_k = x.few_k == 1;
    for (int first = threadIdx.x; first < R * padded; first += at_once * threads) {
        T value[at_once];
#pragma unroll
        for (int u = 0; u < at_once; u++) {
            const int i = first + u * threads, r = by_k ? i / padded : i % R, d = by_k ? i - r * padded : i / R;
            const bool inside = r < x.count && d < end;
            value[u] = inside ? x.few[r * x.few_row + (at + d) * x.few_k] : from_float<T>(0.0f);
        }
#pragma unroll
        for (int u = 0; u < at_once; u++) {
            const int i = first + u * threads, r = by_k ? i / padded : i % R, d = by_k ? i - r * padded : i / R;
            if (i < R * padded) keep(r, d, to_float(value[u]));
        }
    }
}

// R is the most few rows, W the elements of a load. Code for Hopper leaves out more than two: tiles are faster there.
template <class T, int R, int W>
__global__ void __launch_bounds__(threads, 2)
    matmul_skinny_by_k_kernel(MatMulProblem<T> p, KParts parts, int64_t k_each, int warps_k, bool a_transposed,
                              bool b_transposed) {
#ifdef VB_SM90A
    if (R > 2) return __trap();
#endif
    constexpr int rows_of_warp = MATMUL_SKINNY_ROWS, span = MATMUL_SKINNY_SPAN((int)sizeof(T), R);
    constexpr int loads = span / (32 * W);
    constexpr int chunk = MATMUL_SKINNY_FLOATS / R, sums = R * rows_of_warp;
    __shared__ __align__(16) float few[R][chunk];
    __shared__ float of_warps[warps][sums];
    const Skinny<T> x(p, a_transposed, b_transposed);
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, groups = warps / warps_k;
    const int64_t row0 = ((int64_t)blockIdx.x * groups + warp / warps_k) * rows_of_warp;
    const int64_t k0 = blockIdx.z * k_each, k1 = smaller(x.k, k0 + k_each);
    wait_for_previous_kernel();
    release_next_kernel();
    const T *from[rows_of_warp];
#pragma unroll
    for (int i = 0; i < rows_of_warp; i++) from[i] = x.many + smaller(row0 + i, x.rows - 1) * x.many_stride;
    // Elements of 16-bit vectors change places: their halves lie 128 floats apart, so that lanes read neighbours.
    const auto place = [](int at) { return W == 8 ? (at & ~255) | (at & 4) << 5 | (at & 248) >> 1 | (at & 3) : at; };

    float sum[sums] = {};
    const int64_t first = k0 + warp % warps_k * span + lane * W;
    Elements<T, W> many[rows_of_warp][loads];
    const auto load = [&](int64_t k) {
#pragma unroll
        for (int i = 0; i < rows_of_warp; i++)
#pragma unroll
            for (int u = 0; u < loads; u++) many[i][u].load(from[i] + k + u * 32 * W, k1 - k - u * 32 * W);
    };
    for (int64_t at = k0; at < k1; at += chunk) {
        load(first + (at - k0)); // on its way while the few are stored
        if (at > k0) __syncthreads();
        const int end = (int)smaller<int64_t>(chunk, k1 - at), padded = ceil_div(end, span) * span;
        stage<R>(x, at, end, padded, [&](int r, int d, float value) { few[r][place(d)] = value; });
        __syncthreads();
        for (int begin = warp % warps_k * span; begin < end; begin += warps_k * span) {
            if (begin >= warps_k * span) load(at + begin + lane * W);
#pragma unroll
            for (int u = 0; u < loads; u++) {
#pragma unroll
                for (int r = 0; r < R; r++) {
                    __align__(16) float y[W < 4 ? 4 : W];
                    const int here = begin + (u * 32 + lane) * W;
                    if (W == 1) {
                        y[0] = few[r][here];
                    } else {
#pragma unroll
                        for (int e = 0; e < W; e += 4)
                            *(float4 *)&y[e] = *(const float4 *)&few[r][place(here + e)];
                    }
#pragma unroll
                    for (int i = 0; i < rows_of_warp; i++)
#pragma unroll
                        for (int e = 0; e < W; e++)
                            sum[r * rows_of_warp + i] = fmaf(to_float(many[i][u].x.at[e]), y[e],
                                                             sum[r * rows_of_warp + i]);
                }
            }
        }
    }
    const float total = reduce_each(sum);
    if (lane % (32 / sums) == 0) of_warps[warp][lane / (32 / sums)] = total;
    __syncthreads();
    for (int i = threadIdx.x; i < groups * sums; i += threads) {
        const int group = i / sums, r = i % R, at = i / R % rows_of_warp; // neighbours of C where the few are columns
        float all = 0.0f;
        for (int w = 0; w < warps_k; w++) all += of_warps[group * warps_k + w][r * rows_of_warp + at];
        x.store(parts, p.m, r, ((int64_t)blockIdx.x * groups + group) * rows_of_warp + at, all);
    }
}

// `lanes` neighbouring threads, a power of two, have HELD rows of `many`, in loads of W elements. SHIFTED: rows begin
// anywhere, but rows W apart begin alike; a thread has such rows, and reads their aligned vectors. A block has a part
// of a matrix's rows; of TOGETHER, `together` whole ones of so many `matrices`.
template <class T, int W, int HELD, bool SHIFTED, bool TOGETHER>
__global__ void __launch_bounds__(threads, MATMUL_SKINNY_DOT_BLOCKS(HELD))
    matmul_skinny_dot_kernel(MatMulProblem<T> p, int lanes, int together, int matrices, bool one_vectors, bool staged,
                             bool a_transposed, bool b_transposed) {
    constexpr int at_once = MATMUL_SKINNY_DOT_LOADS((int)sizeof(T), HELD, !SHIFTED), apart = SHIFTED ? W : 1;
    extern __shared__ __align__(16) char dot_shared[];
    __shared__ float of_warps[HELD][warps];
    const int group = threadIdx.x / lanes, lane = threadIdx.x % lanes, warp = threadIdx.x / 32;
    const int groups = threads / lanes / (TOGETHER ? together : 1); // of a matrix
    const int nth = TOGETHER ? group / groups : 0, first = TOGETHER ? blockIdx.y * together : blockIdx.y;
    const int matrix = TOGETHER ? smaller(first + nth, matrices - 1) : first;
    const Skinny<T> x(p, a_transposed, b_transposed, matrix);
    const int64_t place = (int64_t)blockIdx.x * groups + group - nth * groups,
                  row0 = place / apart * (apart * HELD) + place % apart, row = smaller(row0, x.rows - 1);
    wait_for_previous_kernel();
    release_next_kernel();
    const T *from[HELD];
#pragma unroll
    for (int i = 0; i < HELD; i++)
        from[i] = x.many + (row + i * apart < x.rows ? row + i * apart : row) * x.many_stride;
    const T *few = x.few;
    int64_t few_k = x.few_k;
    if (staged) {
        T *const to = reinterpret_cast<T *>(dot_shared);
        const int k = (int)x.k, one_row = ceil_div(k, W) * W;
        const int64_t few_matrix = x.of_rows ? p.a_batch_stride : p.b_batch_stride;
        const T *const from_one = x.few - (matrix - first) * few_matrix;
#pragma unroll 8
        for (int i = threadIdx.x; i < (TOGETHER ? smaller(together, matrices - first) * k : k); i += threads) {
            const int at = TOGETHER ? i / k : 0, d = i - at * k;
            to[at * one_row + d] = from_one[at * few_matrix + d * x.few_k];
        }
        __syncthreads();
        few = to + (matrix - first) * one_row, few_k = 1, one_vectors = true;
    }
    float sum[HELD] = {};
    // Whole vectors lie between these.
    const int64_t late = (uintptr_t)from[0] % 16 / sizeof(T), begin = SHIFTED && late > 0 ? smaller(W - late, x.k) : 0,
                  end = begin + (x.k - begin) / W * W;
    const int64_t step = (int64_t)at_once * lanes * W;
    // Without a branch or a conversion between loads, behind which the next ones would wait. LAST: loads past the end
    // read the last vector.
    const auto multiply = [&](auto one_shifted, auto is_last, int64_t k0) {
        constexpr bool ONE_SHIFTED = decltype(one_shifted)::value, LAST = decltype(is_last)::value;
        const int last = LAST ? (int)(end - W - k0) : 0;
        Elements<T, W> many[at_once][HELD];
        Vec<T, W> one[at_once];
#pragma unroll
        for (int u = 0; u < at_once; u++) {
            const int at = LAST ? smaller(u * lanes * W, last) : u * lanes * W;
#pragma unroll
            for (int i = 0; i < HELD; i++) many[u][i].load_whole(from[i] + k0 + at);
            one[u] = load_near<T, W, ONE_SHIFTED>(few + k0 + at);
        }
#pragma unroll
        for (int u = 0; u < at_once; u++) {
            if (LAST && u * lanes * W > last) break;
#pragma unroll
            for (int e = 0; e < W; e++) {
                const float with = to_float(one[u].at[e]);
#pragma unroll
                for (int i = 0; i < HELD; i++) sum[i] = fmaf(to_float(many[u][i].x.at[e]), with, sum[i]);
            }
        }
    };
    const auto multiply_all = [&](auto one_shifted) {
        int64_t k0 = begin + lane * W;
        for (; k0 + step - (lanes - 1) * W <= end; k0 += step) multiply(one_shifted, Bool<false>(), k0);
        if (k0 < end) multiply(one_shifted, Bool<true>(), k0);
    };
    if (!SHIFTED && one_vectors) multiply_all(Bool<false>());
    else multiply_all(Bool<true>());
    // The elements before and behind them, a thread each.
#pragma unroll 4
    for (int64_t i = lane; i < begin + x.k - end; i += lanes) {
        const int64_t k = i < begin ? i : end + i - begin;
        const float with = to_float(few[k * few_k]);
#pragma unroll
        for (int i = 0; i < HELD; i++) sum[i] = fmaf(to_float(from[i][k]), with, sum[i]);
    }
#pragma unroll
    for (int i = 0; i < HELD; i++) {
        for (int offset = smaller(lanes, 32) / 2; offset > 0; offset /= 2)
            sum[i] += __shfl_xor_sync(all_lanes, sum[i], offset);
        if (lanes > 32 && threadIdx.x % 32 == 0) of_warps[i][warp] = sum[i];
    }
    if (lanes > 32) __syncthreads();
    if (lane > 0 || (TOGETHER && first + nth >= matrices)) return;
#pragma unroll
    for (int i = 0; i < HELD; i++) {
        for (int w = 1; w < lanes / 32; w++) sum[i] += of_warps[i][warp + w];
        x.store({1, nullptr, 0, 0}, p.m, 0, row0 + i * apart, sum[i]);
    }
}

// A lane has W neighbouring rows of `many`, PIECES times; groups of `lanes` share k where rows are few.
// Code for Hopper, whose chooser takes other kernels for 16 bits, leaves these out.
template <class T, int R, int W, int PIECES>
__global__ void __launch_bounds__(threads, 2)
    matmul_skinny_across_kernel(MatMulProblem<T> p, KParts parts, int64_t k_each, int lanes, bool a_transposed,
                                bool b_transposed) {
#ifdef VB_SM90A
    if (sizeof(T) == 2) return __trap();
#endif
    constexpr int chunk = MATMUL_SKINNY_FLOATS / R, own = W * PIECES, at_once = R * own > 32 ? 4 : 8;
    __shared__ __align__(16) float few[chunk][R];
    __shared__ float of_warps[warps][32 * own];
    const Skinny<T> x(p, a_transposed, b_transposed);
    const int warp = threadIdx.x / 32, lane = threadIdx.x % lanes, group = threadIdx.x % 32 / lanes;
    const int groups = 32 / lanes;
    const int64_t row0 = (int64_t)blockIdx.x * lanes * own;
    const int64_t k0 = blockIdx.z * k_each, k1 = smaller(x.k, k0 + k_each);
    wait_for_previous_kernel();
    release_next_kernel();
    const T *const from = x.many + row0 + lane * W;
    const int64_t left = x.rows - row0 - lane * W; // of the first piece
    float sum[R][own] = {};
    Elements<T, W> many[at_once][PIECES];
    const auto load = [&](int64_t k) {
#pragma unroll
        for (int u = 0; u < at_once; u++) {
            const int64_t row = k + u * warps * groups;
#pragma unroll
            for (int i = 0; i < PIECES; i++)
                many[u][i].load(from + (row < k1 ? row * x.many_stride : 0) + i * lanes * W,
                                row < k1 ? left - i * lanes * W : 0);
        }
    };
    const int mine = warp * groups + group, step = at_once * warps * groups;
    for (int64_t at = k0; at < k1; at += chunk) {
        load(at + mine);
        if (at > k0) __syncthreads();
        const int count = (int)smaller<int64_t>(chunk, k1 - at);
        stage<R>(x, at, count, count, [&](int r, int d, float value) { few[d][r] = value; });
        __syncthreads();
        for (int d = mine; d < count; d += step) {
            if (d != mine) load(at + d);
#pragma unroll
            for (int u = 0; u < at_once; u++) {
                if (d + u * warps * groups >= count) break;
                float y[R];
#pragma unroll
                for (int r = 0; r < R; r++) y[r] = few[d + u * warps * groups][r];
#pragma unroll
                for (int i = 0; i < PIECES; i++)
#pragma unroll
                    for (int e = 0; e < W; e++) {
                        const float z = to_float(many[u][i].x.at[e]);
#pragma unroll
                        for (int r = 0; r < R; r++) sum[r][i * W + e] = fmaf(y[r], z, sum[r][i * W + e]);
                    }
            }
        }
    }
#pragma unroll
    for (int r = 0; r < R; r++) {
        __syncthreads();
#pragma unroll
        for (int i = 0; i < own; i++) {
            float total = sum[r][i];
            for (int offset = lanes; offset < 32; offset *= 2) total += __shfl_xor_sync(all_lanes, total, offset);
            // Row of the block of this sum: W neighbours a lane.
            if (group == 0) of_warps[warp][i / W * lanes * W + lane * W + i % W] = total;
        }
        __syncthreads();
        for (int i = threadIdx.x; i < lanes * own; i += threads) {
            float total = 0.0f;
#pragma unroll
            for (int w = 0; w < warps; w++) total += of_warps[w][i];
            x.store(parts, p.m, r, row0 + i, total);
        }
    }
}

// One row of A or column of B times a matrix stored across k, in rows that begin anywhere. A warp has every eighth row
// of k, all of which begin alike, and loads aligned vectors of W elements; `lanes` neighbours of a warp have a row.
// Elements of a vector before the first or after the last one of its row have sums that nobody reads.
template <class T>
__global__ void __launch_bounds__(threads, MATMUL_SKINNY_LONE_BLOCKS)
    matmul_skinny_lone_kernel(MatMulProblem<T> p, KParts parts, int64_t k_each, int lanes, int columns,
                              bool a_transposed, bool b_transposed) {
    constexpr int W = Wide<T>::size, at_once = MATMUL_SKINNY_LONE_LOADS;
    static_assert(warps % W == 0, "rows of a warp begin alike");
    __shared__ float of_warps[warps][32 * W + W];
    __shared__ int late_of[warps];
    const Skinny<T> x(p, a_transposed, b_transposed);
    const int warp = threadIdx.x / 32, lane = threadIdx.x % lanes, groups = 32 / lanes;
    const int64_t column0 = (int64_t)blockIdx.x * columns, k0 = blockIdx.z * k_each, k1 = smaller(x.k, k0 + k_each);
    const int64_t first = k0 + warp + threadIdx.x % 32 / lanes * warps; // k0 is a multiple of warps
    const T *const row = x.many + smaller(first, x.k - 1) * x.many_stride + column0;
    const int late = (int)((uintptr_t)row % 16 / sizeof(T));
    // Vectors past the end of a row are not read; their lanes read the first.
    const bool inside = column0 + lane * W - late < x.rows;
    const T *from = row - late + (inside ? lane * W : 0);
    const int64_t step = groups * warps * x.many_stride;
    wait_for_previous_kernel();
    release_next_kernel();
    float sum[W] = {};
    int64_t k = first;
    const auto load = [](const T *at) { return load_once(reinterpret_cast<const Vec<T, W> *>(at)); };
    for (; k + (at_once - 1) * groups * warps < k1; k += at_once * groups * warps) {
        Vec<T, W> many[at_once];
        T one[at_once];
#pragma unroll
        for (int u = 0; u < at_once; u++, from += step) {
            many[u] = load(from);
            one[u] = x.few[(k + u * groups * warps) * x.few_k];
        }
#pragma unroll
        for (int u = 0; u < at_once; u++)
#pragma unroll
            for (int e = 0; e < W; e++) sum[e] = fmaf(to_float(many[u].at[e]), to_float(one[u]), sum[e]);
    }
    {
        Vec<T, W> many[at_once] = {};
        T one[at_once] = {};
#pragma unroll
        for (int u = 0; u < at_once; u++, from += step)
            if (k + u * groups * warps < k1) {
                many[u] = load(from);
                one[u] = x.few[(k + u * groups * warps) * x.few_k];
            }
#pragma unroll
        for (int u = 0; u < at_once; u++)
#pragma unroll
            for (int e = 0; e < W; e++) sum[e] = fmaf(to_float(many[u].at[e]), to_float(one[u]), sum[e]);
    }
#pragma unroll
    for (int e = 0; e < W; e++)
        for (int offset = lanes; offset < 32; offset *= 2) sum[e] += __shfl_xor_sync(all_lanes, sum[e], offset);
    if (threadIdx.x % 32 < lanes)
#pragma unroll
        for (int e = 0; e < W; e++) of_warps[warp][lane * W + e] = sum[e];
    if (threadIdx.x % 32 == 0) late_of[warp] = first < x.k ? late : 0;
    __syncthreads();
    for (int i = threadIdx.x; i < columns; i += threads) {
        float total = 0.0f;
#pragma unroll
        for (int w = 0; w < warps; w++) total += of_warps[w][i + late_of[w]];
        x.store(parts, p.m, 0, column0 + i, total);
    }
}

template <int COUNT>
struct Count {
    static constexpr int value = COUNT;
};

// The same where a thread has an output. Matrices follow each other, so that a block has several small ones.
template <class T>
__global__ void __launch_bounds__(threads) matmul_skinny_own_kernel(MatMulProblem<T> p, Reciprocal by_rows,
                                                                    unsigned rows, unsigned outputs,
                                                                    bool a_transposed, bool b_transposed) {
    const unsigned i = blockIdx.x * threads + threadIdx.x, matrix = by_rows.quotient(i), row = i - matrix * rows;
    const Skinny<T> x(p, a_transposed, b_transposed, matrix);
    wait_for_previous_kernel();
    release_next_kernel();
    if (i >= outputs) return;
    const T *many = x.many + row, *few = x.few;
    float sum = 0;
    // So many elements of k at once, of which `left` are in the matrix: past them the last is read again.
    const auto add = [&](auto at_once, int left) {
        constexpr int count = decltype(at_once)::value;
        T of_many[count], of_few[count];
#pragma unroll
        for (int u = 0; u < count; u++) {
            const int at = smaller(u, left - 1);
            of_many[u] = many[at * x.many_stride];
            of_few[u] = few[at * x.few_k];
        }
#pragma unroll
        for (int u = 0; u < count; u++)
            if (u < left) sum = fmaf(to_float(of_many[u]), to_float(of_few[u]), sum);
        many += count * x.many_stride, few += count * x.few_k;
    };
    int left = (int)x.k;
    for (; left >= 16; left -= 16) add(Count<16>(), 16);
    if (left >= 8) add(Count<8>(), 8), left -= 8;
    if (left > 0) add(Count<8>(), left);
    x.c[row * x.c_many] = from_float<T>(sum);
}

template <class T>
vb_status launch_own(const vb_matmul_args &x, vb_stream *stream) {
    const int64_t rows = larger(x.m, x.n), outputs = rows * x.batch;
    return launch_overlapped(stream, (unsigned)ceil_div<int64_t>(outputs, threads), threads, 0,
                             matmul_skinny_own_kernel<T>, MatMulProblem<T>(x), reciprocal_of(rows), (unsigned)rows,
                             (unsigned)outputs, x.a_transposed != 0, x.b_transposed != 0);
}

template <class T>
vb_status launch_lone(const vb_matmul_args &x, const matmul_skinny_plan &plan, vb_stream *stream) {
    const bool of_rows = x.m <= x.n;
    KParts parts;
    VB_TRY(plan_k_parts(&parts, plan.parts, x, stream));
    const int64_t each = parts.count > 1 ? plan.k_each : x.k;
    VB_TRY(for_batches<T>(x, of_rows ? x.m : plan.rows, of_rows ? plan.rows : x.n,
                          [&](const MatMulProblem<T> &p, dim3 grid) {
                              grid.z = (unsigned)parts.count;
                              return launch_overlapped(stream, grid, threads, 0, matmul_skinny_lone_kernel<T>, p, parts,
                                                       each, plan.share, plan.rows, x.a_transposed != 0,
                                                       x.b_transposed != 0);
                          }));
    return add_parts<T>(x, parts, PlainSum(), stream);
}

template <class T>
vb_status launch_dot(const vb_matmul_args &x, const matmul_skinny_plan &plan, vb_stream *stream) {
    const bool of_rows = x.m <= x.n, a_t = x.a_transposed != 0, b_t = x.b_transposed != 0;
    const void *const one = of_rows ? x.a : x.b;
    const int64_t one_batch = of_rows ? x.a_batch_stride : x.b_batch_stride;
    const bool one_vectors =
        matmul_skinny_apart(&x) == 1 && matmul_vectors(one, x.type, 0, x.batch > 1 ? one_batch : 0);
    const int64_t bytes = plan.together * matmul_skinny_one_bytes(&x);
    const bool staged = matmul_skinny_stages(&x) != 0;
    return for_batches<T>(x, of_rows ? x.m : plan.rows, of_rows ? plan.rows : x.n,
                          [&](const MatMulProblem<T> &p, dim3 grid) {
                              const int matrices = (int)grid.y;
                              grid.x = (unsigned)plan.row_blocks, grid.y = (unsigned)ceil_div(matrices, plan.together);
                              const auto launch = [&](auto kernel) {
                                  return launch_overlapped(stream, grid, threads, staged ? (int)bytes : 0, kernel, p,
                                                           plan.lanes, plan.together, matrices, one_vectors, staged,
                                                           a_t, b_t);
                              };
                              constexpr int wide = Wide<T>::size;
                              if (plan.together > 1)
                                  return plan.vectors ? launch(matmul_skinny_dot_kernel<T, wide, 1, false, true>)
                                                      : launch(matmul_skinny_dot_kernel<T, wide, 1, true, true>);
                              if (plan.held == 1)
                                  return plan.vectors ? launch(matmul_skinny_dot_kernel<T, wide, 1, false, false>)
                                                      : launch(matmul_skinny_dot_kernel<T, wide, 1, true, false>);
                              return plan.vectors ? launch(matmul_skinny_dot_kernel<T, wide, 4, false, false>)
                                                  : launch(matmul_skinny_dot_kernel<T, wide, 4, true, false>);
                          });
}

template <class T, int R>
vb_status launch_skinny(const vb_matmul_args &x, vb_stream *stream) {
    const matmul_skinny_plan plan = matmul_skinny_plan_of(&x, multiprocessors(stream));
    constexpr int wide = Wide<T>::size;
    KParts parts;
    VB_TRY(plan_k_parts(&parts, plan.parts, x, stream));
    const int64_t each = parts.count > 1 ? plan.k_each : x.k;
    const bool a_t = x.a_transposed != 0, b_t = x.b_transposed != 0;
    // The grid's x counts blocks of `many`, whichever operand these are.
    const bool of_rows = x.m <= x.n;
    VB_TRY(for_batches<T>(x, of_rows ? x.m : plan.rows, of_rows ? plan.rows : x.n,
                          [&](const MatMulProblem<T> &p, dim3 grid) {
                              grid.z = (unsigned)parts.count;
                              const auto launch = [&](auto kernel) {
                                  return launch_overlapped(stream, grid, threads, 0, kernel, p, parts, each, plan.share,
                                                           a_t, b_t);
                              };
                              if (plan.by_k)
                                  return plan.vectors ? launch(matmul_skinny_by_k_kernel<T, R, wide>)
                                                      : launch(matmul_skinny_by_k_kernel<T, R, 1>);
                              return plan.vectors ? launch(matmul_skinny_across_kernel<T, R, wide, 1>)
                                                  : launch(matmul_skinny_across_kernel<T, R, 1, 4>);
                          }));
    return add_parts<T>(x, parts, PlainSum(), stream);
}

} // namespace

vb_status matmul_skinny(const vb_matmul_args &x, vb_stream *stream) {
    const int64_t few = smaller(x.m, x.n);
    return with_float_type(x.type, [&](auto zero) {
        using T = decltype(zero);
        const matmul_skinny_plan plan = matmul_skinny_plan_of(&x, multiprocessors(stream));
        if (plan.lanes) return launch_dot<T>(x, plan, stream);
        if (plan.own) return launch_own<T>(x, stream);
        if (plan.lone) return launch_lone<T>(x, plan, stream);
        return few <= 2 ? launch_skinny<T, 2>(x, stream)
                        : few <= 4 ? launch_skinny<T, 4>(x, stream) : launch_skinny<T, 8>(x, stream);
    });
}

} // namespace vb
