// sm90_product.cuh: the parts common to Hopper's two kernels of matrix products: the ring of stages, the main loop of
// the warps that multiply, and the writing of C in float32. gemm_sm90_kernel.cuh has more ways to cut up a product of
// contiguous matrices; matmul_sm90.cuh takes any layout, in batches.
//
// Scaled operands (C in float32) are float32 matrices whose rows of A and columns of B were multiplied by powers of two
// and rounded to one F16 number, or to two. Two numbers: along k, a chunk of 32 high parts is followed by the 32 low
// parts, so that a stage of 64 holds both of 32 of k. Three of the four partial products matter and are summed, the
// smallest first. The tensor core truncates where float32 rounds, so its sums of a stage are added in registers.
#ifndef VB_CUDA_SM90_PRODUCT_CUH
#define VB_CUDA_SM90_PRODUCT_CUH

#include "arch/sm90.cuh"
#include "gemm/scaling.cuh"
#include "gemm/store_rows.cuh"

#ifdef VB_WITH_SM90

namespace vb {

constexpr int product_threads = 384; // a warpgroup that copies, two that multiply
constexpr int product_depth = 64;    // elements of k in a stage, as stored
constexpr int product_chunk = product_depth / 2; // of k, of operands in two parts

// A stage of the ring: a tile of A, BM x 64, and a tile of B, 64 x BN. Each block of a pair copies whole periods of the
// swizzle, which are eight columns. Where BN is 8 times an odd number, both copy the eight in the middle.
template <int BM, int BN>
struct ProductStage {
    static constexpr int a_bytes = BM * product_depth * 2, b_bytes = product_depth * BN * 2, bytes = a_bytes + b_bytes;
    static constexpr int b_columns = (BN + 15) / 16 * 16, b_copied = product_depth * b_columns * 2; // that are copied
    static constexpr int count = smaller(8, 224 * 1024 / bytes);
    static constexpr int shared_bytes = count * bytes + sm90::swizzle_bytes;
};

// Scaled operands of one matrix: the scales of the rows of A and the columns of B, the elements before scaling, and the
// distances between neighbours.
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

// The same of a ring that has `count` stages in this launch.
struct StageOf {
    int count, stage = 0;
    unsigned phase;
    VB_DEVICE StageOf(int count, unsigned phase) : count(count), phase(phase) {}
    VB_DEVICE void advance() {
        if (++stage == count) stage = 0, phase ^= 1;
    }
};

// Copies a stage of B: N columns from `n` on, 64 of k from `k` on. B is stored [k][n] where MN, else [n][k]. Of a PAIR
// of so many blocks, each copies its share of every box to all; `first` is the rank of the first of them in the
// cluster, `rank` is counted from there. Addresses are computed in the caller's type of integer, Rank.
template <int N, bool PAIR, bool MN, class Rank, class Hint = sm90::NoHint>
VB_DEVICE void copy_b(char *b, const CUtensorMap *map, uint64_t *barrier, int n, int k, Rank rank, Hint hint = {},
                      int blocks = 2, unsigned first = 0) {
    const int box = (MN ? product_depth : (N + 15) / 16 * 16) / (PAIR ? blocks : 1);
    const unsigned short all = (unsigned short)(((1 << blocks) - 1) << first);
    if (MN) {
#pragma unroll
        for (int i = 0; i < N / 64; i++) {
            char *const to = b + (i * product_depth + (PAIR ? rank * box : 0)) * sm90::row_bytes;
            if (PAIR) sm90::copy_box_multicast(to, map, barrier, n + 64 * i, k + rank * box, all, hint);
            else sm90::copy_box(to, map, barrier, n + 64 * i, k, hint);
        }
    } else if (PAIR) {
        const auto from = rank * (N % 16 == 0 ? box : N - box);
        sm90::copy_box_multicast(b + from * sm90::row_bytes, map, barrier, k, n + from, all, hint);
    } else {
        sm90::copy_box(b, map, barrier, k, n, hint);
    }
}

// Tells that a warp has read the stage of this barrier. Of a PAIR, all its blocks copy the stage, and all are told.
template <bool PAIR>
VB_DEVICE void release_stage(uint64_t *empty, int lane, int blocks = 2, unsigned first = 0) {
    if (PAIR) {
        if (lane < blocks) sm90::barrier_arrive_remote(empty, first + lane);
    } else if (lane == 0) {
        sm90::barrier_arrive(empty);
    }
}

// The tile `index` of tiles_m x tiles_n, which are walked through in bands of `band` rows of tiles.
VB_DEVICE int2 tile_in_bands(int index, int tiles_m, int tiles_n, int band) {
    const int in_band = band * tiles_n, first = index / in_band * band, rows = smaller(band, tiles_m - first);
    return make_int2(first + index % in_band % rows, index % in_band / rows);
}

// The sums of 64 rows and N columns over `steps` stages from `at` on. This warpgroup's operands begin `a_offset` bytes
// into the tile of A and `b_offset` bytes into the tile of B. A is stored [k][m] where A_MN, B [k][n] where B_MN. Of a
// stage's k it has DEPTH.
// release(stage) tells that a warp has read a stage.
template <class T, class Stage, int N, bool A_MN, bool B_MN, bool TWO_PARTS, int DEPTH = product_depth, class At,
          class Release>
VB_DEVICE void multiply_stages(float (&sum)[N / 2], At &at, int steps, char *ring, uint64_t *full, int a_offset,
                               int b_offset, const Release &release) {
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
            for (int i = 0; i < DEPTH / 16; i++) {
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

// One element in plain float32 arithmetic, for rows and columns with Inf or NaN.
VB_DEVICE float plain_element(const ScaledOperands &of, int row, int column) {
    const float *const a = of.a + row * of.a_row, *const b = of.b + column * of.b_column;
    float sum = 0;
    for (int k = 0; k < of.k; k++) sum = fmaf(a[k * of.a_term], b[k * of.b_term], sum);
    return sum;
}

// store_rows for the sums of scaled operands: the scales are taken back. A lane loads the scales of every 32nd column,
// all before the first store, and the others get them by shuffles: a load behind a store would wait for memory again.
// Rows may begin anywhere. Of eight columns of a row, which the four threads of a quad have, and the last of the eight
// before them, the quad writes the sector of 32 bytes that ends among its own.
template <int N>
VB_DEVICE void store_rows_scaled(const ProductOutput<float> &p, const ScaledOperands &of, const float (&sum)[N / 2],
                                 int row, int column) {
    const int lane = threadIdx.x % 32, quad = lane % 4, end = smaller(p.n, column + N);
    const bool moved = ((uintptr_t)(p.c + column) | (uintptr_t)p.stride * sizeof(float)) % MATMUL_SECTOR != 0;
    float *c[2];
    float2 of_row[2], of_column[N / 32], held[2] = {};
    float last[2] = {};
    int past[2]; // elements from the start of a sector to that of the row
    bool plain = false;
#pragma unroll
    for (int i = 0; i < N / 32; i++) {
        const int at = column + 32 * i + lane;
        of_column[i] = at < p.n ? of.b_scale[at] : make_float2(0, 0);
    }
#pragma unroll
    for (int h = 0; h < 2; h++) {
        const int r = row + lane / 4 + 8 * h;
        c[h] = p.c + r * p.stride;
        past[h] = (int)((uintptr_t)(c[h] + column) % MATMUL_SECTOR / sizeof(float));
        of_row[h] = r < p.m ? of.a_scale[r] : make_float2(0, 0);
    }
#pragma unroll
    for (int j = 0; j <= N / 8; j++) { // at the end, the rest of the last eight
        if (j == N / 8 && !moved) break;
        const int from = j % 4 * 8 + 2 * quad;
        const float2 scale = of_column[smaller(j / 4, N / 32 - 1)];
        const float2 first = make_float2(__shfl_sync(all_lanes, scale.x, from), __shfl_sync(all_lanes, scale.y, from)),
                     second = make_float2(__shfl_sync(all_lanes, scale.x, from + 1),
                                          __shfl_sync(all_lanes, scale.y, from + 1));
#pragma unroll
        for (int h = 0; h < 2; h++) {
            float2 two = make_float2(0, 0);
            if (j < N / 8) {
                two.x = scale_back(sum[4 * j + 2 * h], of_row[h], first);
                two.y = scale_back(sum[4 * j + 2 * h + 1], of_row[h], second);
                plain |= two.x != two.x || two.y != two.y;
            }
            int at = column + 8 * j + 2 * quad;
            if (moved) {
                const float before = __shfl_sync(all_lanes, quad == 3 ? last[h] : two.y, (quad + 3) % 4, 4);
                last[h] = two.y;
                if (past[h] % 2) two = make_float2(before, two.x);
                const int by = past[h] / 2; // threads
                const float2 send = quad >= 4 - by ? held[h] : two;
                held[h] = two;
                two.x = __shfl_sync(all_lanes, send.x, (quad - by) & 3, 4);
                two.y = __shfl_sync(all_lanes, send.y, (quad - by) & 3, 4);
                at -= past[h];
            }
            if (row + lane / 4 + 8 * h >= p.m) continue;
            if (at >= column && at + 1 < end) {
                *reinterpret_cast<float2 *>(c[h] + at) = two;
            } else {
                if (at >= column && at < end) c[h][at] = two.x;
                if (at + 1 >= column && at + 1 < end) c[h][at + 1] = two.y;
            }
        }
    }
    if (!__any_sync(all_lanes, plain)) return;
    __syncwarp(); // another thread may have written an element
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
