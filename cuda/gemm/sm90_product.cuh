// sm90_product.cuh: what Hopper's two kernels of matrix products share: the ring of stages, the main loop of the warps
// that multiply, and how they write C. gemm_sm90_kernel.cuh has more ways to cut up a product of contiguous matrices;
// matmul_sm90.cuh takes any layout, in batches.
//
// Scaled operands (C in float32): float32 matrices whose rows of A and columns of B were multiplied by powers of two
// and rounded to one F16 number, or to two. Of two, a chunk of 32 high parts is followed by the 32 low parts, along k,
// so that a stage of 64 holds both of 32 of k. Of the four partial products the three that matter are summed, small
// ones first. The tensor core truncates where float32 rounds, so its sums of a stage are added in registers.
#ifndef VB_CUDA_SM90_PRODUCT_CUH
#define VB_CUDA_SM90_PRODUCT_CUH

#include "arch/mma.cuh"
#include "arch/sm90.cuh"
#include "arch/unaligned.cuh"
#include "gemm/scaling.cuh"

#ifdef VB_WITH_SM90

namespace vb {

constexpr int product_threads = 384; // a warpgroup that copies, two that multiply
constexpr int product_depth = 64;    // elements of k in a stage, as stored
constexpr int product_chunk = product_depth / 2; // of k, of operands in two parts

// A stage of the ring: a tile of A, BM x 64, and one of B, 64 x BN.
template <int BM, int BN>
struct ProductStage {
    static constexpr int a_bytes = BM * product_depth * 2, b_bytes = product_depth * BN * 2, bytes = a_bytes + b_bytes;
    static constexpr int count = smaller(8, 224 * 1024 / bytes);
    static constexpr int shared_bytes = count * bytes + sm90::swizzle_bytes;
};

// Scaled operands of one matrix: the scales of the rows of A and the columns of B, and the elements that were scaled,
// with the distances between neighbours.
struct ScaledOperands {
    const float2 *a_scale, *b_scale;
    const float *a, *b;
    int64_t a_row, a_term, b_term, b_column;
    int k;
};

#ifdef VB_SM90A

// A stage, and the parity of its barriers' phase.
template <int STAGES>
struct StageAt {
    int stage = 0;
    unsigned phase;
    VB_DEVICE explicit StageAt(unsigned phase) : phase(phase) {}
    VB_DEVICE void advance() {
        if (++stage == STAGES) stage = 0, phase ^= 1;
    }
};

// The tile `index` of tiles_m x tiles_n, which are walked through in bands of `band` rows of tiles.
VB_DEVICE int2 tile_in_bands(int index, int tiles_m, int tiles_n, int band) {
    const int in_band = band * tiles_n, first = index / in_band * band, rows = smaller(band, tiles_m - first);
    return make_int2(first + index % in_band % rows, index % in_band / rows);
}

// The sums of 64 rows and N columns over `steps` stages from `at` on, of which this warpgroup's begin `a_offset` bytes
// into the tile of A and `b_offset` into that of B. A is stored [k][m] where A_MN, B [k][n] where B_MN.
// release(stage) tells that a warp has read a stage.
template <class T, class Stage, int N, bool A_MN, bool B_MN, bool TWO_PARTS, class Release>
VB_DEVICE void multiply_stages(float (&sum)[N / 2], StageAt<Stage::count> &at, int steps, char *ring, uint64_t *full,
                               int a_offset, int b_offset, const Release &release) {
    using Product = sm90::Wgmma<T, N, B_MN, A_MN>;
    // In the descriptor's units of 16 bytes: from one 16 of k to the next, and from high to low parts.
    constexpr int a_step = A_MN ? sm90::row_bytes : 2, b_step = B_MN ? sm90::row_bytes : 2;
    constexpr int a_low = 2 * a_step, b_low = 2 * b_step;
    float part[TWO_PARTS ? N / 2 : 1];
    if (TWO_PARTS) {
#pragma unroll
        for (int i = 0; i < N / 2; i++) sum[i] = 0;
    }
    int keep = 0, previous = -1;
    for (int step = 0; step < steps; step++) {
        char *const tiles = ring + at.stage * Stage::bytes;
        sm90::barrier_wait(&full[at.stage], at.phase);
        const uint64_t a = sm90::describe(tiles + a_offset, product_depth * sm90::row_bytes);
        const uint64_t b = sm90::describe(tiles + Stage::a_bytes + b_offset, product_depth * sm90::row_bytes);
        sm90::wgmma_fence();
        if constexpr (TWO_PARTS) {
#pragma unroll
            for (int i = 0; i < 2; i++) {
                Product::run(part, a + a_low + i * a_step, b + i * b_step, i);
                Product::run(part, a + i * a_step, b + b_low + i * b_step, 1);
            }
#pragma unroll
            for (int i = 0; i < 2; i++) Product::run(part, a + i * a_step, b + i * b_step, 1);
        } else {
#pragma unroll
            for (int i = 0; i < product_depth / 16; i++) {
                Product::run(sum, a + i * a_step, b + i * b_step, keep);
                keep = 1;
            }
        }
        sm90::wgmma_commit();
        if constexpr (TWO_PARTS) {
            sm90::wgmma_wait<0>();
            release(at.stage);
#pragma unroll
            for (int i = 0; i < N / 2; i++) sum[i] += part[i];
        } else { // these products stay in flight while the next ones are awaited
            sm90::wgmma_wait<1>();
            if (previous >= 0) release(previous);
            previous = at.stage;
        }
        at.advance();
    }
    if (!TWO_PARTS) {
        sm90::wgmma_wait<0>();
        release(previous);
    }
}

// Where sums go: C[m][n], rows `stride` elements apart. `vectors`: the stride and C are multiples of vectors of 16
// bytes, of 8 in float32.
template <class Out>
struct ProductOutput {
    Out *c;
    int64_t stride;
    int m, n;
    bool vectors;
};

// Writes a warp's 16 rows from (row, column) on of C, of 16-bit elements, rows of which begin at vectors. The four
// threads of a quad hold 2 of every 8 columns each; they exchange them so that each writes 16 bytes. VECTORS: n is a
// multiple of 8 too.
template <class Out, int N, bool VECTORS>
VB_DEVICE void store_rows(const ProductOutput<Out> &p, const float (&sum)[N / 2], int row, int column) {
    const int lane = threadIdx.x % 32, quad = lane % 4;
#pragma unroll
    for (int h = 0; h < 2; h++) {
        const int r = row + lane / 4 + 8 * h;
        Out *const c = p.c + r * p.stride;
#pragma unroll
        for (int j = 0; j < N / 8; j += 4) {
            unsigned w[4];
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const Vec<Out, 2> two = {
                    {from_float<Out>(sum[4 * (j + i) + 2 * h]), from_float<Out>(sum[4 * (j + i) + 2 * h + 1])}};
                w[i] = *reinterpret_cast<const unsigned *>(&two);
            }
            transpose_quad(w);
            const int at = column + 8 * (j + quad);
            if (r >= p.m || at >= p.n) continue;
            if (VECTORS || at + 8 <= p.n) {
                *reinterpret_cast<uint4 *>(c + at) = make_uint4(w[0], w[1], w[2], w[3]);
            } else {
#pragma unroll
                for (int e = 0; e < 8; e++)
                    if (at + e < p.n) c[at + e] = reinterpret_cast<const Out *>(&w[e / 2])[e % 2];
            }
        }
    }
}

// The same where C's rows begin anywhere. A thread has eight columns of 32 of a row; with the last of the eight before
// them it writes the 16 aligned bytes that end among its own.
template <class Out, int N>
VB_DEVICE void store_rows_unaligned(const ProductOutput<Out> &p, const float (&sum)[N / 2], int row, int column) {
    const int lane = threadIdx.x % 32, quad = lane % 4, end = smaller(p.n, column + N);
#pragma unroll
    for (int h = 0; h < 2; h++) {
        const int r = row + lane / 4 + 8 * h;
        Out *const c = p.c + r * p.stride;
        const unsigned past = (unsigned)(uintptr_t)(c + column) % 16; // bytes, of every eight columns
        unsigned last[4] = {};
#pragma unroll
        for (int j = 0; j <= N / 8; j += 4) { // at the end, what is left of the last eight
            unsigned w[4] = {}, before[4];
            if (j < N / 8) {
#pragma unroll
                for (int i = 0; i < 4; i++)
                    w[i] = pack<Out>(sum[4 * (j + i) + 2 * h], sum[4 * (j + i) + 2 * h + 1]);
                transpose_quad(w);
            }
#pragma unroll
            for (int i = 0; i < 4; i++) { // of the thread before, and of the last of them of the 32 columns before
                before[i] = __shfl_sync(all_lanes, quad == 3 ? last[i] : w[i], (quad + 3) % 4, 4);
                last[i] = w[i];
            }
            const int at = column + 8 * (j + quad) - (int)past / 2;
            if (r >= p.m || at >= end || (j == N / 8 && quad > 0)) continue;
            const uint4 own = make_uint4(w[0], w[1], w[2], w[3]);
            const uint4 eight =
                past ? bytes_from(make_uint4(before[0], before[1], before[2], before[3]), own, 16 - past) : own;
            if (at >= column && at + 8 <= end) {
                *reinterpret_cast<uint4 *>(c + at) = eight;
            } else {
                const unsigned words[4] = {eight.x, eight.y, eight.z, eight.w};
#pragma unroll
                for (int e = 0; e < 8; e++)
                    if (at + e >= column && at + e < end)
                        reinterpret_cast<unsigned short *>(c)[at + e] = (unsigned short)(words[e / 2] >> e % 2 * 16);
            }
        }
    }
}

// One element in plain float32 arithmetic, for rows and columns with Inf or NaN.
VB_DEVICE float plain_element(const ScaledOperands &of, int row, int column) {
    const float *const a = of.a + row * of.a_row, *const b = of.b + column * of.b_column;
    float sum = 0;
    for (int k = 0; k < of.k; k++) sum = fmaf(a[k * of.a_term], b[k * of.b_term], sum);
    return sum;
}

// The same as store_rows for the sums of scaled operands, whose scale is taken back. Scales of SOME columns are under
// way together: docs/experiments/2026-11-22-gemm.md.
template <int N, int SOME>
VB_DEVICE void store_rows_scaled(const ProductOutput<float> &p, const ScaledOperands &of, const float (&sum)[N / 2],
                                 int row, int column) {
    const int lane = threadIdx.x % 32, quad = lane % 4;
    float *c[2];
    float2 of_row[2];
#pragma unroll
    for (int h = 0; h < 2; h++) {
        const int r = row + lane / 4 + 8 * h;
        c[h] = p.c + r * p.stride;
        of_row[h] = r < p.m ? of.a_scale[r] : make_float2(0, 0);
    }
    bool plain = false;
#pragma unroll
    for (int j0 = 0; j0 < N / 8; j0 += SOME) {
        float2 first[SOME], second[SOME];
#pragma unroll
        for (int u = 0; u < SOME; u++) {
            const int at = column + 8 * (j0 + u) + 2 * quad;
            first[u] = at < p.n ? of.b_scale[at] : make_float2(0, 0),
            second[u] = at + 1 < p.n ? of.b_scale[at + 1] : make_float2(0, 0);
        }
#pragma unroll
        for (int u = 0; u < SOME; u++) {
            const int j = j0 + u, at = column + 8 * j + 2 * quad;
#pragma unroll
            for (int h = 0; h < 2; h++) {
                const float x = scale_back(sum[4 * j + 2 * h], of_row[h], first[u]);
                const float y = scale_back(sum[4 * j + 2 * h + 1], of_row[h], second[u]);
                plain |= x != x || y != y;
                if (row + lane / 4 + 8 * h >= p.m) continue;
                if (p.vectors && at + 2 <= p.n) {
                    *reinterpret_cast<float2 *>(c[h] + at) = make_float2(x, y);
                } else {
                    if (at < p.n) c[h][at] = x;
                    if (at + 1 < p.n) c[h][at + 1] = y;
                }
            }
        }
    }
    if (!plain) return;
#pragma unroll 1
    for (int i = 0; i < N / 2; i++) {
        const int at = column + i / 4 * 8 + 2 * quad + i % 2, h = i / 2 % 2, r = row + lane / 4 + 8 * h;
        if (r >= p.m || at >= p.n) continue;
        if (not_finite(of.a_scale[r], of.b_scale[at])) p.c[r * p.stride + at] = plain_element(of, r, at);
    }
}

#endif

} // namespace vb

#endif // VB_WITH_SM90
#endif
