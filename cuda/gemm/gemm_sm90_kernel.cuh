// gemm_sm90_kernel.cuh: the matrix product kernel of Hopper's tensor cores, C[m][n] = sum_k A[m][k] B[k][n], rows with
// or without gaps.
//
//   grid    persistent blocks, one an SM, which take tiles in bands of group_rows rows of tiles
//   block   three warpgroups. The first copies tiles of A (BM x 64) and B (64 x BN) with TMA into a ring of stages. The
//           others multiply 64 rows each with wgmma (half the columns each where BM is 64), and write C from registers
//   pairs   two blocks of a cluster, or four, at tiles one above the other load a share of B's tile each and multicast
//           it to all: two thirds of the traffic from L2 of two. A stage is free once consumers of all have read it
//   ksplit  where tiles are too few for the SMs, the blocks of a cluster share the k of a tile. They add partial sums
//           through distributed shared memory, in the order of their ranks, so that results do not vary. Two pairs that
//           share k meet in memory, where the last to come adds up: a cluster of four would not find room everywhere
//   turns   each consumer has whole tiles, of 128 rows, and one multiplies while the other stores
//   split   pairs or quads of one cluster share k. Where A has few rows the turned product is computed: tiles' rows are
//           columns of C, so that a pair reads B once, and copies A's tile for each other
// TMA reads zeros outside the matrices, and writes nothing there.
#ifndef VB_CUDA_GEMM_SM90_KERNEL_CUH
#define VB_CUDA_GEMM_SM90_KERNEL_CUH

#include "gemm/gemm_sm90.cuh"
#include "gemm/sm90_product.cuh"

#ifdef VB_WITH_SM90

// Where C is wider than the operands, these are scaled operands in two parts (sm90_product.cuh).
// Or they are the operands of a linear layer: rows of x, multiplied by a power of two each, and weights.

namespace vb {

template <class Out>
struct GemmProblem {
    Out *c;
    int64_t c_stride;
    int m, n, k;
    int steps; // stages along k
    int ksplit, group_rows;
    int pair = 2; // blocks that copy B for each other, of a kernel of pairs: 2, or 4 of 16-bit products
    int turned;   // of SPLIT kernels: whether C is written turned, C[n][m] with rows of c_stride
    int a_rows; // that are copied of a tile of A: fewer than BM where the matrix has no more; nobody reads the rest
    ScaledOperands scaled; // operands in two parts only
    const float *inverse, *bias; // linear layers only: 1 / scale of each row; the bias of a column, or null
    // Pairs that share k only: the place where their blocks meet, float[tile of a block][thread of the
    // consumers][sums].
    // The counters count the blocks there.
    float *meeting;
    unsigned *arrived;
};

#ifdef VB_SM90A

// Keeps a warp's sums of 16 rows from (row, column) on in shared memory, float[..][width]. Where `turned`, rows and
// columns change places. A width of 8 more than a multiple of 32, or of 4 more where turned, puts the rows of the
// fragments into different banks.
template <int N>
VB_DEVICE void keep_fragments(float *tile, int width, bool turned, const float (&sum)[N / 2], int row, int column) {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int j = 0; j < N / 8; j++)
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const int i = 4 * j + 2 * h, r = row + lane / 4 + 8 * h, c = column + 8 * j + lane % 4 * 2;
            if (turned) tile[c * width + r] = sum[i], tile[(c + 1) * width + r] = sum[i + 1];
            else *reinterpret_cast<float2 *>(tile + r * width + c) = make_float2(sum[i], sum[i + 1]);
        }
}

// Adds the partial sums of blocks of the cluster in shared memory, float[ROWS][width], and writes a share of C[m][n]
// from (m0, n0) on. The first of p.ksplit blocks has the rank first_rank, and each is `apart` from the one before; this
// block is number `share`.
template <int ROWS, int COLUMNS, bool TWO_PARTS, bool LINEAR, class Out>
VB_DEVICE void reduce_tile(const GemmProblem<Out> &p, const float *tile, int width, int m, int n, int m0, int n0,
                           int share, unsigned first_rank = 0, unsigned apart = 1) {
    constexpr int each = 4; // vectors of 4 columns that a thread has under way: latency takes the time
    const int stride = p.ksplit * 256, vectors = smaller(ROWS, m - m0) * (COLUMNS / 4);
    for (int first = share * 256 + threadIdx.x - 128; first < vectors; first += each * stride) {
        float x[each][4] = {};
        unsigned at[each];
#pragma unroll
        for (int u = 0; u < each; u++) {
            const int i = smaller(first + u * stride, vectors - 1);
            at[u] = i / (COLUMNS / 4) * width + i % (COLUMNS / 4) * 4;
        }
#pragma unroll 4
        for (int s = 0; s < p.ksplit; s++) {
            const unsigned remote = sm90::remote_address(tile, first_rank + s * apart);
#pragma unroll
            for (int u = 0; u < each; u++) {
                const float4 part = sm90::load_remote(remote + at[u] * 4);
                x[u][0] += part.x, x[u][1] += part.y, x[u][2] += part.z, x[u][3] += part.w;
            }
        }
#pragma unroll
        for (int u = 0; u < each; u++) {
            const int i = first + u * stride, row = m0 + i / (COLUMNS / 4), column = n0 + i % (COLUMNS / 4) * 4;
            if (i >= vectors || column >= n) continue;
            Vec<Out, 4> out;
#pragma unroll
            for (int e = 0; e < 4; e++) {
                if (TWO_PARTS && column + e < n) {
                    const float2 of_row = p.scaled.a_scale[row], of_column = p.scaled.b_scale[column + e];
                    x[u][e] = not_finite(of_row, of_column) ? plain_element(p.scaled, row, column + e)
                                                            : scale_back(x[u][e], of_row, of_column);
                }
                if (LINEAR && column + e < n)
                    x[u][e] = fmaf(x[u][e], p.inverse[row], p.bias ? p.bias[column + e] : 0.0f);
                out.at[e] = from_float<Out>(x[u][e]);
            }
            Out *const c = p.c + row * p.c_stride + column;
            if (n % 4 == 0) {
                *reinterpret_cast<Vec<Out, 4> *>(c) = out;
            } else {
#pragma unroll
                for (int e = 0; e < 4; e++)
                    if (column + e < n) c[e] = out.at[e];
            }
        }
    }
}

// Two blocks with sums of the same tile meet. The first to come gets false; the second adds the sums of the first.
template <class Out, int N>
VB_DEVICE bool meet_other(const GemmProblem<Out> &p, float (&sum)[N], int tile, int half_of_k) {
    __shared__ unsigned before;
    const int thread = threadIdx.x - 128;
    const auto place = [&](int of, int i) {
        return reinterpret_cast<float4 *>(p.meeting) + ((int64_t)(2 * tile + of) * (N / 4) + i) * 256 + thread;
    };
#pragma unroll
    for (int i = 0; i < N / 4; i++)
        *place(half_of_k, i) = make_float4(sum[4 * i], sum[4 * i + 1], sum[4 * i + 2], sum[4 * i + 3]);
    __threadfence();
    group_sync(1, 256);
    if (thread == 0) {
        before = atomicAdd(p.arrived + tile, 1);
        if (before == 1) p.arrived[tile] = 0;
    }
    group_sync(1, 256);
    if (before == 0) return false;
    __threadfence();
#pragma unroll
    for (int i = 0; i < N / 4; i++) {
        const float4 x = __ldcg(place(1 - half_of_k, i));
        sum[4 * i] += x.x, sum[4 * i + 1] += x.y, sum[4 * i + 2] += x.z, sum[4 * i + 3] += x.w;
    }
    return true;
}

// Writes a warp's 16 rows from (row, column) on of the results of a linear layer. Where C is whole vectors, neighbours
// exchange pairs: a lane then has four columns, and a quad writes 64 bytes of a row at once. Eight columns alone, the
// last of an odd number of eights, are written as pairs.
template <int N>
VB_DEVICE void store_rows_linear(const GemmProblem<float> &p, const float (&sum)[N / 2], int row, int column) {
    const int lane = threadIdx.x % 32;
    const bool odd = lane % 2, vectors = p.n % 4 == 0 && ((uintptr_t)p.c | (uintptr_t)p.bias) % 16 == 0;
    row += lane / 4;
    const float inverse[2] = {row < p.m ? p.inverse[row] : 0.0f, row + 8 < p.m ? p.inverse[row + 8] : 0.0f};
    if (vectors) {
#pragma unroll
        for (int j = 0; j < N / 8; j += 2) {
            if (j + 1 == N / 8) {
                const int at = column + 8 * j + lane % 4 * 2;
                float2 bias = make_float2(0, 0);
                if (p.bias && at < p.n) bias = *reinterpret_cast<const float2 *>(p.bias + at);
#pragma unroll
                for (int h = 0; h < 2; h++)
                    if (row + 8 * h < p.m && at < p.n)
                        *reinterpret_cast<float2 *>(p.c + (row + 8 * h) * p.c_stride + at) =
                            make_float2(fmaf(sum[4 * j + 2 * h], inverse[h], bias.x),
                                        fmaf(sum[4 * j + 2 * h + 1], inverse[h], bias.y));
                break;
            }
            const int at = column + 8 * (j + odd) + lane % 4 / 2 * 4;
            float4 bias = make_float4(0, 0, 0, 0);
            if (p.bias && at < p.n) bias = *reinterpret_cast<const float4 *>(p.bias + at);
#pragma unroll
            for (int h = 0; h < 2; h++) {
                const float2 first = make_float2(sum[4 * j + 2 * h], sum[4 * j + 2 * h + 1]),
                             second = make_float2(sum[4 * j + 4 + 2 * h], sum[4 * j + 5 + 2 * h]);
                const float2 sent = odd ? first : second,
                             got = make_float2(__shfl_xor_sync(all_lanes, sent.x, 1),
                                               __shfl_xor_sync(all_lanes, sent.y, 1)),
                             left = odd ? got : first, right = odd ? second : got;
                if (row + 8 * h >= p.m || at >= p.n) continue;
                *reinterpret_cast<float4 *>(p.c + (row + 8 * h) * p.c_stride + at) =
                    make_float4(fmaf(left.x, inverse[h], bias.x), fmaf(left.y, inverse[h], bias.y),
                                fmaf(right.x, inverse[h], bias.z), fmaf(right.y, inverse[h], bias.w));
            }
        }
        return;
    }
    column += lane % 4 * 2;
#pragma unroll
    for (int j = 0; j < N / 8; j++) {
        const int at = column + 8 * j;
        const float first = p.bias && at < p.n ? p.bias[at] : 0.0f,
                    second = p.bias && at + 1 < p.n ? p.bias[at + 1] : 0.0f;
#pragma unroll
        for (int h = 0; h < 2; h++) {
            if (row + 8 * h >= p.m) continue;
            float *const c = p.c + (row + 8 * h) * p.c_stride + at;
            const float x = fmaf(sum[4 * j + 2 * h], inverse[h], first),
                        y = fmaf(sum[4 * j + 2 * h + 1], inverse[h], second);
            if (p.n % 2 == 0 && at < p.n) {
                *reinterpret_cast<float2 *>(c) = make_float2(x, y);
            } else {
                if (at < p.n) c[0] = x;
                if (at + 1 < p.n) c[1] = y;
            }
        }
    }
}

// A consumer's sums of 128 rows and N columns over `steps` stages from `at` on, as multiply_stages adds them up. Calls
// begun() when the last products are under way.
template <class T, class Stage, int N, bool A_MN, bool B_MN, class At, class Release, class Begun>
VB_DEVICE void multiply_whole_tile(float (&sums)[2][N / 2], At &at, int steps, char *ring, uint64_t *full,
                                   const Release &release, const Begun &begun) {
    using Product = sm90::Wgmma<T, N, B_MN, A_MN>;
    constexpr int a_step = A_MN ? sm90::row_bytes : 2, b_step = B_MN ? sm90::row_bytes : 2; // to the next 16 of k
    int keep = 0, previous = -1;
    for (int step = 0; step < steps; step++) {
        char *const tiles = ring + at.stage * Stage::bytes;
        sm90::barrier_wait(&full[at.stage], at.phase);
        const uint64_t a = sm90::describe(tiles, product_depth * sm90::row_bytes),
                       b = sm90::describe(tiles + Stage::a_bytes, product_depth * sm90::row_bytes);
        sm90::wgmma_fence();
#pragma unroll
        for (int i = 0; i < product_depth / 16; i++) {
            Product::run(sums[0], a + a_step * i, b + b_step * i, keep);
            Product::run(sums[1], a + 64 * sm90::row_bytes / 16 + a_step * i, b + b_step * i, keep);
            keep = 1;
        }
        sm90::wgmma_commit();
        if (step == steps - 1) begun();
        sm90::wgmma_wait<1>();
        if (previous >= 0) release(previous);
        previous = at.stage;
        at.advance();
    }
    sm90::wgmma_wait<0>();
    release(previous);
}

#endif

// Columns of B in a stage: whole boxes of 64 where B is stored [k][n]. Of tiles of 160 nobody reads the last 32.
template <int BN, bool B_MN>
constexpr int held_columns = B_MN ? (BN + 63) / 64 * 64 : BN;

// T is the type of the tiles, Out of C; where they differ, the operands are in two parts, or a LINEAR layer's. A is
// stored [k][m] where A_MN, else [m][k], and B [k][n] where B_MN, else [n][k]. MEET: two pairs share the k of their
// tiles, in memory; SPLIT: pairs of a cluster do, or one computes the turned product. TURNS: the consumers have tiles
// of their own.
template <class T, class Out, int BM, int BN, bool PAIR, bool A_MN, bool B_MN, bool MEET, bool LINEAR, bool SPLIT,
          bool TURNS>
__global__ __launch_bounds__(product_threads, 1) void gemm_sm90_kernel(VB_IN_PLACE CUtensorMap a_map,
                                                                       VB_IN_PLACE CUtensorMap b_map,
                                                                       const GemmProblem<Out> p) {
#ifdef VB_SM90A
    constexpr int held = held_columns<BN, B_MN>;
    using Stage = ProductStage<BM, held>;
    constexpr bool TWO_PARTS = sizeof(Out) > sizeof(T) && !LINEAR;
    constexpr int N = BM == 128 ? BN : BN / 2; // columns of a consumer
    const int pair = !PAIR ? 1 : TWO_PARTS || LINEAR || MEET ? 2 : p.pair;
    extern __shared__ char shared[];
    __shared__ uint64_t full[Stage::count], empty[Stage::count], turn[TURNS ? 2 : 1];
    char *const ring =
        shared + (sm90::swizzle_bytes - shared_address(shared) % sm90::swizzle_bytes) % sm90::swizzle_bytes;
    const int group = __shfl_sync(all_lanes, threadIdx.x / 128, 0); // the compiler then knows it to be uniform
    static_assert(!TURNS || (PAIR && BM == 128 && !TWO_PARTS && !MEET && !SPLIT), "pairs of whole tiles");
    static_assert(!SPLIT || (PAIR && !MEET && sizeof(Out) == sizeof(T)), "pairs of 16-bit products");
    const int cluster = SPLIT ? pair * p.ksplit : PAIR ? pair : p.ksplit;
    // Of a cluster that is split, so many blocks one after the other are a pair or a quad; these share k.
    const unsigned in_cluster = cluster > 1 ? sm90::cluster_rank() : 0, part = SPLIT ? in_cluster / pair : 0,
                   first_rank = part * pair, rank = in_cluster - first_rank;
    const int tiles_m = ceil_div(p.m, BM * pair), tiles_n = ceil_div(p.n, BN);

    if (threadIdx.x == 0) {
        sm90::prefetch_map(&a_map);
        sm90::prefetch_map(&b_map);
        for (int s = 0; s < Stage::count; s++) {
            sm90::barrier_init(&full[s], 1);
            sm90::barrier_init(&empty[s], (TURNS ? 4 : 8) * pair); // one arrival a warp of a stage's consumers
        }
        if (TURNS) sm90::barrier_init(&turn[0], 4), sm90::barrier_init(&turn[1], 4);
        sm90::barrier_init_fence();
    }
    if (PAIR) sm90::cluster_sync();
    else __syncthreads();
    const int apart = MEET ? 2 * cluster : cluster; // blocks of a tile, or of a pair of them
    const int first_tile = blockIdx.x / apart, tile_step = gridDim.x / apart, half_of_k = MEET ? blockIdx.x / 2 % 2 : 0;
    const int of_k = MEET ? half_of_k : SPLIT ? (int)part : PAIR ? 0 : (int)rank;
    const int parts = MEET ? 2 : PAIR && !SPLIT ? 1 : p.ksplit;
    const int first_step = p.steps * of_k / parts, last_step = p.steps * (of_k + 1) / parts;
    const auto corner = [&](int tile, int &m0, int &n0) {
        const int2 at = tile_in_bands(tile, tiles_m, tiles_n, p.group_rows);
        m0 = (at.x * pair + (PAIR ? rank : 0)) * BM;
        n0 = at.y * BN;
    };

    if (!LINEAR || group > 0) wait_for_previous_kernel();
    release_next_kernel();

    if (group == 0) {
        sm90::registers_shrink<40>();
        if (threadIdx.x == 0) {
            const auto expect = [&](uint64_t *barrier) {
                sm90::barrier_expect(barrier, p.a_rows * sm90::row_bytes + Stage::b_copied);
            };
            StageAt<Stage::count> at(1);
            // Stages whose weights are on their way before the rows of x are there: the kernel that converts x begins
            // once all before it have ended.
            int begun = 0;
            if (LINEAR) {
                int m0, n0;
                corner(first_tile, m0, n0);
                for (; begun < smaller(Stage::count, last_step - first_step); begun++) {
                    expect(&full[begun]);
                    copy_b<held, PAIR, B_MN>(ring + begun * Stage::bytes + Stage::a_bytes, &b_map, &full[begun], n0,
                                           (first_step + begun) * product_depth, rank);
                }
                wait_for_previous_kernel();
            }
            for (int tile = first_tile; tile < tiles_m * tiles_n; tile += tile_step) {
                int m0, n0;
                corner(tile, m0, n0);
                for (int step = first_step; step < last_step; step++) {
                    char *const a = ring + at.stage * Stage::bytes, *const b = a + Stage::a_bytes;
                    uint64_t *const barrier = &full[at.stage];
                    const int k = step * product_depth;
                    const bool has_b = begun > 0;
                    if (has_b) begun--;
                    else sm90::barrier_wait(&empty[at.stage], at.phase), expect(barrier);
                    if (A_MN) {
#pragma unroll
                        for (int i = 0; i < BM / 64; i++)
                            if (i == 0 || p.a_rows > 64)
                                sm90::copy_box(a + i * product_depth * sm90::row_bytes, &a_map, barrier, m0 + 64 * i,
                                               k);
                    } else {
                        sm90::copy_box(a, &a_map, barrier, k, m0);
                    }
                    if (!has_b)
                        copy_b<held, PAIR, B_MN>(b, &b_map, barrier, n0, k, rank, sm90::NoHint(), pair, first_rank);
                    at.advance();
                }
            }
        }
        __syncwarp();
        if ((SPLIT || !PAIR) && p.ksplit > 1) sm90::cluster_sync();
    } else if constexpr (TURNS) {
        sm90::registers_grow<232>();
        const int consumer = group - 1, warp = threadIdx.x % 128 / 32, lane = threadIdx.x % 32;
        StageAt<Stage::count> at(0);
        const auto skip_tile = [&] { // the other consumer's
            const int to = at.stage + p.steps, rounds = to / Stage::count;
            at.stage = to - rounds * Stage::count, at.phase ^= rounds & 1;
        };
        float sums[2][BN / 2];
        if (consumer == 1) skip_tile();
        int nth = 0;
        for (int tile = first_tile + consumer * tile_step; tile < tiles_m * tiles_n; tile += 2 * tile_step, nth++) {
            int m0, n0;
            corner(tile, m0, n0);
            // The first tile waits for nobody.
            if (consumer == 1 || nth > 0) sm90::barrier_wait(&turn[consumer], (nth - 1 + consumer) & 1);
            multiply_whole_tile<T, Stage, BN, A_MN, B_MN>(
                sums, at, p.steps, ring, full,
                [&](int stage) { release_stage<PAIR>(&empty[stage], lane, pair, first_rank); },
                [&] {
                    if (lane == 0) sm90::barrier_arrive(&turn[1 - consumer]);
                });
            skip_tile();
#pragma unroll
            for (int i = 0; i < 2; i++) {
                const int row = m0 + 64 * i + warp * 16;
                if constexpr (LINEAR) store_rows_linear<BN>(p, sums[i], row, n0);
                else store_rows<Out, BN, true>({p.c, p.c_stride, p.m, p.n, true}, sums[i], row, n0);
            }
        }
    } else {
        sm90::registers_grow<232>();
        const int consumer = group - 1, warp = threadIdx.x % 128 / 32, lane = threadIdx.x % 32;
        constexpr int a_offset = BM == 128 ? 64 * sm90::row_bytes : 0;
        constexpr int b_offset = BM == 128 ? 0 : B_MN ? N / 64 * product_depth * sm90::row_bytes : N * sm90::row_bytes;
        const auto release = [&](int stage) { release_stage<PAIR>(&empty[stage], lane, pair, first_rank); };
        StageAt<Stage::count> at(0);
        for (int tile = first_tile; tile < tiles_m * tiles_n; tile += tile_step) {
            int m0, n0;
            corner(tile, m0, n0);
            float sum[N / 2];
            multiply_stages<T, Stage, N, A_MN, B_MN, TWO_PARTS>(sum, at, last_step - first_step, ring, full,
                                                                 consumer * a_offset, consumer * b_offset, release);

            const int row = (BM == 128 ? consumer * 64 : 0) + warp * 16, column = BM == 128 ? 0 : consumer * N;
            if constexpr (SPLIT) { // a cluster has one tile
                const int width = p.turned ? BM + 4 : BN + 8;
                float *const partial = (float *)ring;
                group_sync(1, 256); // both consumers have read the last stage
                keep_fragments<N>(partial, width, p.turned, sum, row, column);
                if (p.ksplit > 1) sm90::cluster_sync();
                else group_sync(1, 256);
                if (p.turned)
                    reduce_tile<BN, BM, false, false>(p, partial, width, p.n, p.m, n0, m0, part, rank, pair);
                else
                    reduce_tile<BM, BN, false, false>(p, partial, width, p.m, p.n, m0, n0, part, rank, pair);
                break;
            }
            if (!PAIR && p.ksplit > 1) {
                constexpr int width = BN + 8;
                float *const partial = (float *)ring;
                group_sync(1, 256); // both consumers have read the last stage
                keep_fragments<N>(partial, width, false, sum, row, column);
                sm90::cluster_sync();
                reduce_tile<BM, BN, TWO_PARTS, LINEAR>(p, partial, width, p.m, p.n, m0, n0, rank);
                continue;
            }
            if constexpr (MEET)
                if (!meet_other(p, sum, first_tile * 2 + rank, half_of_k)) continue;
            // 16-bit C is whole vectors, float32 C whole pairs where n is even.
            const ProductOutput<Out> c = {p.c, p.c_stride, p.m, p.n, p.n % 2 == 0};
            if constexpr (LINEAR) store_rows_linear<N>(p, sum, m0 + row, n0 + column);
            else if constexpr (TWO_PARTS) store_rows_scaled<N>(c, p.scaled, sum, m0 + row, n0 + column);
            else store_rows<Out, N, true>(c, sum, m0 + row, n0 + column);
        }
    }
    // A block's shared memory stays until no other block of the cluster reads it or arrives at its barriers.
    if (cluster > 1) sm90::cluster_sync();
#endif
}

// Enqueues the product of two operands that the maps describe.
template <class T, class Out, int BM, int BN, bool PAIR, bool A_MN, bool B_MN, bool MEET = false, bool LINEAR = false,
          bool SPLIT = false, bool TURNS = false>
vb_status launch_gemm_sm90(const void *a, int64_t a_stride, int64_t a_depth, const void *b, int64_t b_stride,
                           int64_t b_depth, vb_dtype type, GemmProblem<Out> p, vb_stream *stream) {
    using Stage = ProductStage<BM, held_columns<BN, B_MN>>;
    const int pair = PAIR ? p.pair : 1;
    CUtensorMap a_map, b_map;
    p.a_rows = smaller(BM, A_MN ? ceil_div(p.m, 64) * 64 : ceil_div(p.m, 8) * 8);
    if (A_MN) VB_TRY(sm90::tensor_map(&a_map, a, type, p.m, a_depth, a_stride, product_depth, stream));
    else VB_TRY(sm90::tensor_map(&a_map, a, type, a_depth, p.m, a_stride, p.a_rows, stream));
    if (B_MN)
        VB_TRY(sm90::tensor_map(&b_map, b, type, p.n, b_depth, b_stride, product_depth / pair, stream));
    else
        VB_TRY(sm90::tensor_map(&b_map, b, type, b_depth, p.n, b_stride, Stage::b_columns / pair, stream));
    const int64_t tiles = ceil_div<int64_t>(p.m, BM * pair) * ceil_div<int64_t>(p.n, BN);
    const int cluster = SPLIT ? pair * p.ksplit : PAIR ? pair : p.ksplit;
    const int blocks = MEET ? 4 : cluster; // of a tile, or of a pair of them
    if (MEET) { // of few tiles: gemm_sm90_cut_of, plan_linear. A layer has its memory.
        if (!LINEAR) VB_TRY(workspace((void **)&p.meeting, gemm_meeting_bytes(p.m, p.n), stream));
        p.arrived = counters(stream);
    }
    const int64_t most = MEET || SPLIT || p.ksplit > 1 ? tiles : vb_clusters_at_once(cluster, multiprocessors(stream));
    return launch_cluster(stream, cluster, (unsigned)(smaller(tiles, most) * blocks), product_threads,
                          Stage::shared_bytes,
                          gemm_sm90_kernel<T, Out, BM, BN, PAIR, A_MN, B_MN, MEET, LINEAR, SPLIT, TURNS>, a_map, b_map,
                          p);
}

} // namespace vb

#endif // VB_WITH_SM90
#endif
