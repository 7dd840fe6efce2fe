// matmul_3xtf32.cu: C[m][n] = A[m][k] B + bias in F32 with float32 accuracy, for few rows of A (or few of all), on
// tensor cores. B is stored [k][n] or, as the weights of a linear layer, [n][k].
//
//   grid     (tiles of 8 * MT rows of A by 64 * WN columns of B, ksplit), one block an SM; B stored [n][k]: 32 * WN
//            columns
//   block    8 warps, WN side by side; the next WN take the next 16 of k ([n][k]: 32), and so on
//   shared   a ring of up to 6 steps of 16 (32) * 8 / WN of k, at most 224 KiB; then the sums of the block's warps
//   moves    4 (k n) bytes once (from L2 for each further tile of rows), 2 m n k FLOPs
//   bound    the memory that holds B to 16 rows, 3 * 2 m n k FLOPs of mma.sync from 64
//   measured docs/experiments/2026-11-22-gemm.md
// Nothing is transposed: the product is C^T = B^T A^T. A fragment may have any columns and any k common to both
// operands.
// Lane (g = lane / 4, t = lane % 4) multiplies k = 4 t .. 4 t + 3 of B by the same k of row g of A. Its columns of B
// are 4 g .. 4 g + 3 (of [n][k]: g, g + 8, ...). A warp copies its part of B for itself alone.

#include "gemm/matmul.cuh"
#include "gemm/tf32_parts.cuh"

namespace vb {
namespace {

constexpr int warps = 8;
constexpr int threads = warps * 32;
constexpr int b_vectors = 8; // that a lane has of B in a step

// A warp's part of B in a step: rows of 128 bytes in either layout.
template <bool B_T>
struct Piece {
    static constexpr int depth = B_T ? 32 : 16, columns = B_T ? 32 : 64;
    static constexpr int fragments = columns / 16;
};

// The ring: a step holds B [warp][b_vectors][lane], then A [16 of k][MT][lane], all vectors of 16 bytes.
template <int MT, int WN, bool B_T>
struct Ring {
    static constexpr int depth = Piece<B_T>::depth, warp_columns = Piece<B_T>::columns;
    static constexpr int warps_k = warps / WN, step_depth = depth * warps_k;
    static constexpr int columns = warp_columns * WN, rows = 8 * MT;
    static constexpr int stride = columns + 4; // of the sums: rows in different banks
    static constexpr int step_vectors = b_vectors * threads + step_depth / 16 * MT * 32;
    static constexpr int steps = smaller(6, 224 * 1024 / (step_vectors * 16));
    static constexpr int bytes = steps * step_vectors * 16;
    static_assert(rows * stride * 4 <= bytes, "the sums take the place of the ring");
};

// Fragments of B^T of k = 4 t + 2 s and the next. Of [k][n], fragment q has the columns 32 (q / 2) + 4 g + 2 (q % 2)
// and the next.
VB_DEVICE void split_fragments(unsigned (&high)[4][4], unsigned (&low)[4][4], const float4 *b, int s) {
#pragma unroll
    for (int side = 0; side < 2; side++) {
        const float4 rows[2] = {b[(4 * side + 2 * s) * 32], b[(4 * side + 2 * s + 1) * 32]};
#pragma unroll
        for (int r = 0; r < 2; r++) {
            split_tf32(rows[r].x, high[2 * side][2 * r], low[2 * side][2 * r]);
            split_tf32(rows[r].y, high[2 * side][2 * r + 1], low[2 * side][2 * r + 1]);
            split_tf32(rows[r].z, high[2 * side + 1][2 * r], low[2 * side + 1][2 * r]);
            split_tf32(rows[r].w, high[2 * side + 1][2 * r + 1], low[2 * side + 1][2 * r + 1]);
        }
    }
}
// Of [n][k], the columns 16 q + g and 16 q + g + 8.
VB_DEVICE void split_fragments(unsigned (&high)[2][4], unsigned (&low)[2][4], const float4 *b, int s) {
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const float4 four = b[i * 32];
        const int q = i / 2, r = i % 2;
        split_tf32(s ? four.z : four.x, high[q][r], low[q][r]);
        split_tf32(s ? four.w : four.y, high[q][2 + r], low[q][2 + r]);
    }
}

// One step of a warp; sum[i] is of the rows 8 i .. 8 i + 7 of A. `b` and `a` are this lane's vectors of the step; of
// [n][k], b is for the first 16 of k, and `b_next` for the second.
template <int MT, int Q>
VB_DEVICE void multiply(float (&sum)[MT][Q][4], const float4 *b, const float4 *b_next, const float4 *a) {
#pragma unroll
    for (int step = 0; step < 8 / Q; step++) {
        const int s = step % 2, half = step / 2;
        unsigned high[Q][4], low[Q][4];
        split_fragments(high, low, half ? b_next : b, s);
#pragma unroll
        for (int i = 0; i < MT; i++) {
            const float2 two = reinterpret_cast<const float2 *>(a + (half * MT + i) * 32)[s];
            unsigned high0, low0, high1, low1;
            split_tf32(two.x, high0, low0);
            split_tf32(two.y, high1, low1);
            float part[Q][4] = {};
#pragma unroll
            for (int q = 0; q < Q; q++) mma_tf32(part[q], low[q], high0, high1);
#pragma unroll
            for (int q = 0; q < Q; q++) mma_tf32(part[q], high[q], low0, low1);
#pragma unroll
            for (int q = 0; q < Q; q++) mma_tf32(part[q], high[q], high0, high1);
#pragma unroll
            for (int q = 0; q < Q; q++)
#pragma unroll
                for (int e = 0; e < 4; e++) sum[i][q][e] += part[q][e];
        }
    }
}

// An element once more, in float32 arithmetic.
template <bool B_T>
__device__ __noinline__ float plain_element(const float *a, const float *b, int k, int n, int row, int column) {
    float sum = 0.0f;
    for (int i = 0; i < k; i++)
        sum = fmaf(a[(int64_t)row * k + i], b[B_T ? (int64_t)column * k + i : (int64_t)i * n + column], sum);
    return sum;
}

// The results of a block: C. The operands are here too, as a sum that is not finite is computed from them again.
template <bool B_T>
struct Result {
    float *c;
    const float *a, *b, *bias;
    int m, k, n;

    VB_DEVICE void write_four(int row, int column, float4 x) const {
        const auto settle = [&](float sum, int at) {
            return finite_sum(sum) ? sum * lowered : plain_element<B_T>(a, b, k, n, row, at);
        };
        x = make_float4(settle(x.x, column), settle(x.y, column + 1), settle(x.z, column + 2), settle(x.w, column + 3));
        if (bias) x.x += bias[column], x.y += bias[column + 1], x.z += bias[column + 2], x.w += bias[column + 3];
        *reinterpret_cast<float4 *>(c + (int64_t)row * n + column) = x;
    }
};

// The place of the vector of lane (g, t) of B in a warp's memory. The eight lanes of a row copy it together, so that
// its 128 bytes are one request to the L2.
// Four requests of 32 bytes, lane by lane, halved the bandwidth. Lanes read their vectors lane by lane.
// Both ways are without bank conflicts.
VB_DEVICE int swizzled_slot(int g, int t) { return 8 * t + (g ^ (2 * t)); }
// Of [n][k], of the first or second 16 of k: the two of a row lie in different banks.
VB_DEVICE int swizzled_slot(int g, int t, int half) { return 4 * (g ^ half) + t; }

template <int MT, int WN, bool B_T>
__global__ void __launch_bounds__(threads, 1)
    matmul_3xtf32_kernel(const Result<B_T> result, int steps_each, float *partial) {
    using R = Ring<MT, WN, B_T>;
    const float *const a = result.a, *const b = result.b;
    const int m = result.m, k = result.k, n = result.n;
    extern __shared__ __align__(16) char shared[];
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    const int warp_n = warp % WN, warp_k = warp / WN;
    float4 *const ring = reinterpret_cast<float4 *>(shared), *const b_ring = ring + warp * b_vectors * 32;
    float4 *const a_ring = ring + b_vectors * threads;
    const int tiles_n = ceil_div(n, R::columns);
    const int m0 = blockIdx.x / tiles_n * R::rows, n0 = blockIdx.x % tiles_n * R::columns;
    const int steps = smaller(steps_each, ceil_div(k, R::step_depth) - (int)blockIdx.y * steps_each);

    // This lane's next copies. Of B, 16 bytes of the rows 4 (lane / 8) .. + 3 of its warp, and again 32 columns on.
    // Of [n][k], 16 bytes of the rows lane / 8, and again 4, 8, ... rows on.
    const int k0 = blockIdx.y * steps_each * R::step_depth;
    int b_k = k0 + warp_k * R::depth + (B_T ? lane % 8 : lane / 8) * 4;
    const int column = n0 + warp_n * R::warp_columns + (B_T ? lane / 8 : lane % 8 * 4);
    const float *b_at = b + (B_T ? (int64_t)column * k + b_k : (int64_t)b_k * n + column);
    const int half = lane % 8 / 4;
    const unsigned b_to = shared_address(
        b_ring + (B_T ? half * (4 * 32) + swizzled_slot(lane / 8, lane % 4, half) : swizzled_slot(lane % 8, lane / 8)));
    // of A, which the warps side by side share, 16 bytes of a row of step_depth.
    constexpr int row_vectors = R::step_depth / 4, rows_at_once = threads / row_vectors;
    const int a_column = threadIdx.x % row_vectors, a_row = threadIdx.x / row_vectors;
    int a_k = k0 + a_column * 4;
    const float *a_at = a + (int64_t)(m0 + a_row) * k + a_k;
    const unsigned a_to = shared_address(a_ring + a_column / 4 * (MT * 32) + a_row * 4 + a_column % 4);
    wait_for_previous_kernel();
    release_next_kernel();

    int loaded = 0, load_slot = 0;
    const auto load = [&] { // k and n are multiples of 4
        if (loaded++ < steps) {
            const unsigned slot_bytes = load_slot * R::step_vectors * 16;
#pragma unroll
            for (int j = 0; j < b_vectors; j++) {
                const int row = j % 4, further = j / 4 * 32;
                if (B_T)
                    copy_async(b_to + slot_bytes + j * 16 * 16, b_at + (int64_t)(4 * j) * k,
                               b_k < k && column + 4 * j < n);
                else
                    copy_async(b_to + slot_bytes + j * 32 * 16, b_at + (int64_t)row * n + further,
                               b_k < k && column + further < n);
            }
#pragma unroll
            for (int i = 0; i < ceil_div(R::rows, rows_at_once); i++) {
                const int row = a_row + i * rows_at_once;
                if (R::rows % rows_at_once == 0 || row < R::rows)
                    copy_async(a_to + slot_bytes + i * rows_at_once * 4 * 16, a_at + (int64_t)(i * rows_at_once) * k,
                               a_k < k && m0 + row < m);
            }
            b_k += R::step_depth;
            a_k += R::step_depth;
            a_at += R::step_depth;
            b_at += B_T ? R::step_depth : (int64_t)R::step_depth * n;
            if (++load_slot == R::steps) load_slot = 0;
        }
        copy_async_commit();
    };
#pragma unroll
    for (int i = 0; i < R::steps - 1; i++) load();

    float sum[MT][Piece<B_T>::fragments][4] = {};
    int slot = 0;
    for (int step = 0; step < steps; step++) {
        copy_async_wait<R::steps - 2>();
        __syncthreads(); // all have copied this step, and read the one that is overwritten now
        load();
        const int at = slot * R::step_vectors;
        multiply(sum, b_ring + at + (B_T ? lane : swizzled_slot(g, t)), b_ring + at + 4 * 32 + swizzled_slot(g, t, 1),
                 a_ring + at + warp_k * (R::depth / 16 * MT * 32) + lane);
        if (++slot == R::steps) slot = 0;
    }
    copy_async_wait<0>();

    // The warps that share columns add up, one after the other: the same order each time.
    float *const sums = reinterpret_cast<float *>(shared);
    for (int turn = 0; turn < R::warps_k; turn++) {
        __syncthreads();
        if (turn != warp_k) continue;
#pragma unroll
        for (int i = 0; i < MT; i++)
#pragma unroll
            for (int h = 0; h < 2; h++) { // row 8 i + 2 t + h of A
                float *const row = sums + (8 * i + 2 * t + h) * R::stride + warp_n * R::warp_columns;
                if (B_T) {
#pragma unroll
                    for (int q = 0; q < 2; q++)
#pragma unroll
                        for (int r = 0; r < 2; r++) {
                            float *const to = row + 16 * q + 8 * r + g;
                            *to = sum[i][q][2 * r + h] + (turn > 0 ? *to : 0.0f);
                        }
                } else {
#pragma unroll
                    for (int q = 0; q < Piece<B_T>::fragments; q += 2) {
                        float4 *const to = reinterpret_cast<float4 *>(row + 16 * q + 4 * g);
                        float4 x = make_float4(sum[i][q][h], sum[i][q][2 + h], sum[i][q + 1][h], sum[i][q + 1][2 + h]);
                        if (turn > 0) {
                            const float4 y = *to;
                            x.x += y.x, x.y += y.y, x.z += y.z, x.w += y.w;
                        }
                        *to = x;
                    }
                }
            }
    }
    __syncthreads();
    const int rows = smaller(R::rows, m - m0), columns = smaller(R::columns, n - n0);
    constexpr int fours = R::columns / 4;
    for (int i = threadIdx.x; i < rows * fours; i += threads) {
        const int row = m0 + i / fours, first = i % fours * 4;
        if (first >= columns) continue;
        const float4 x = *reinterpret_cast<const float4 *>(sums + i / fours * R::stride + first);
        if (gridDim.y == 1) result.write_four(row, n0 + first, x);
        else *reinterpret_cast<float4 *>(partial + ((int64_t)blockIdx.y * m + row) * n + n0 + first) = x;
    }
}

// Adds up the sums of the blocks that share k, [ksplit][m][n], in order; four columns a thread. It is a kernel of its
// own.
// The last blocks of the tiles would be too few for it: it would take a third of the time of 64 rows.
template <bool B_T>
__global__ void __launch_bounds__(threads)
    add_ksplit_kernel(const Result<B_T> result, int ksplit, const float *partial) {
    wait_for_previous_kernel();
    release_next_kernel();
    const int64_t at = ((int64_t)blockIdx.x * threads + threadIdx.x) * 4, size = (int64_t)result.m * result.n;
    if (at >= size) return;
    float4 x = *reinterpret_cast<const float4 *>(partial + at);
#pragma unroll 8
    for (int s = 1; s < ksplit; s++) {
        const float4 y = *reinterpret_cast<const float4 *>(partial + s * size + at);
        x.x += y.x, x.y += y.y, x.z += y.z, x.w += y.w;
    }
    result.write_four((int)(at / result.n), (int)(at % result.n), x);
}

template <int MT, int WN, bool B_T>
vb_status launch_3xtf32(const vb_matmul_args &x, const float *bias, vb_stream *stream) {
    using R = Ring<MT, WN, B_T>;
    const int64_t tiles = ceil_div<int64_t>(x.m, R::rows) * ceil_div<int64_t>(x.n, R::columns),
                  at_once = multiprocessors(stream);
    const int64_t steps = ceil_div<int64_t>(x.k, R::step_depth);
    // As many blocks a tile as keep every multiprocessor equally long at work.
    int64_t ksplit = 1, least = 0;
    for (int64_t s = 1; s <= smaller<int64_t>(steps, 16); s++) {
        const int64_t time = ceil_div(tiles * s, at_once) * (ceil_div(steps, s) + 4); // 4: to begin and to end a block
        if (least == 0 || time < least) least = time, ksplit = s;
    }
    const int64_t each = ceil_div(steps, ksplit);
    ksplit = ceil_div(steps, each);
    void *partial = nullptr;
    if (ksplit > 1) VB_TRY(workspace(&partial, ksplit * x.m * x.n * (int64_t)sizeof(float), stream));
    const Result<B_T> result = {(float *)x.c, (const float *)x.a, (const float *)x.b, bias, (int)x.m, (int)x.k,
                                (int)x.n};
    VB_TRY(launch_overlapped(stream, dim3((unsigned)tiles, (unsigned)ksplit), threads, R::bytes,
                             matmul_3xtf32_kernel<MT, WN, B_T>, result, (int)each, (float *)partial));
    if (ksplit == 1) return VB_OK;
    return launch_overlapped(stream, (unsigned)ceil_div<int64_t>(x.m * x.n, 4 * threads), threads, 0,
                             add_ksplit_kernel<B_T>, result, (int)ksplit, (const float *)partial);
}

template <int WN, bool B_T>
vb_status with_rows(const vb_matmul_args &x, const float *bias, vb_stream *stream) {
    switch (matmul_3xtf32_eights(x.m)) {
    case 1: return launch_3xtf32<1, WN, B_T>(x, bias, stream);
    case 2: return launch_3xtf32<2, WN, B_T>(x, bias, stream);
    case 4: return launch_3xtf32<4, WN, B_T>(x, bias, stream);
    default: return launch_3xtf32<8, WN, B_T>(x, bias, stream);
    }
}

template <bool B_T>
vb_status with_columns(const vb_matmul_args &x, const float *bias, vb_stream *stream) {
    return matmul_3xtf32_abreast(x.n) == 4 ? with_rows<4, B_T>(x, bias, stream) : with_rows<2, B_T>(x, bias, stream);
}

} // namespace

vb_status matmul_3xtf32(const vb_matmul_args &x, const float *bias, vb_stream *stream) {
    return x.b_transposed ? with_columns<true>(x, bias, stream) : with_columns<false>(x, bias, stream);
}

} // namespace vb
