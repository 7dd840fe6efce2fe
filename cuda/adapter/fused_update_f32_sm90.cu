// fused_update_f32_sm90.cu: out = add + scale * ((x V) * codes) U^T for F32 on Hopper's tensor cores
// (vb_fused_update_args).
//
//   parts    a factor is a BF16 number and the BF16 rest; of four products three matter. A small kernel splits V and U
//            into the workspace once, as [r][k] and [n][r]: of each 32 elements the high parts, then the low parts
//   grid     a block for ROWS rows, 128, or 64 of more than 128 ranks. A cluster shares the rows: each block has a part
//            of k, then of n
//   block    a warpgroup copies; two multiply 64 rows each, or half of the ranks and columns of the same rows
//   shared   a ring of stages: ROWS x 32 of x and 32 x RANKS of V; then boxes of 128 rows of U by 32 ranks.
//            Sums of x V that meet, and in their place (x V) * codes in two parts
//   moves    x, out and add once; V and U once for each ROWS rows, from L2
//   flops    6 m r (k + n)
//   bound    memory up to about 60 ranks, tensor cores above
//
// Warps split x in registers, while the products of the step before run. Rows of x may begin anywhere.

#include "adapter/factors.cuh"
#include "adapter/launchers.cuh"
#include "arch/cluster.cuh"
#include "arch/unaligned.cuh"
#include "gemm/sm90_product.cuh"

namespace vb {

#ifdef VB_WITH_SM90

namespace {

constexpr int chunk = product_chunk; // elements that a row of 128 bytes holds: 32 of F32, or of both parts
constexpr int columns = 128;         // of a tile of the result

struct UpdateF32 {
    float *out;
    const float *add, *codes, *x;
    int m, k, n, r, cluster;
    int64_t codes_stride;
    float scale;
    bool pairs; // rows of out and add are whole pairs
};

// ALIGNED: rows of x are whole vectors of 16 bytes. Else a row of a stage has the aligned vectors in which the row's
// elements lie.
template <int RANKS, bool ALIGNED>
struct UpdateF32Stage {
    static constexpr int rows = RANKS > 128 ? 64 : 128, halves = 128 / rows;
    static constexpr int own_ranks = RANKS / halves;                    // of a warpgroup
    static constexpr int x_vectors = ALIGNED ? 8 : 9, x_pitch = ALIGNED ? 8 : 12; // of a row; in vectors
    static constexpr int x_bytes = rows * x_pitch * 16, bytes = x_bytes + RANKS * sm90::row_bytes;
    static constexpr int box_bytes = columns * sm90::row_bytes, boxes = bytes / box_bytes; // of U, of a stage
    static constexpr int h_bytes = rows * RANKS * (int)sizeof(float);   // sums that meet, or both parts of h
    static constexpr int count = smaller(8, (226 * 1024 - h_bytes - sm90::swizzle_bytes) / bytes);
    static constexpr int shared_bytes = count * bytes + h_bytes + sm90::swizzle_bytes;
};

// A matrix to split: `rows` rows of `columns` elements, and what becomes of it: rows of whole chunks.
// `permuted`: of 16 elements those that a lane loads side by side are where the instruction has them in one lane.
struct Splitting {
    uint4 *to;
    const float *from;
    int64_t row_stride, column_stride;
    int rows, columns, eights; // eights: of a row of the result, before it is split
    bool permuted;
};
struct Splittings {
    Splitting each[2];
    unsigned blocks; // of the first
};

__global__ void __launch_bounds__(256) split_kernel(const Splittings all) {
    wait_for_previous_kernel();
    release_next_kernel();
    const bool second = blockIdx.x >= all.blocks;
    const Splitting s = second ? all.each[1] : all.each[0];
    const unsigned i = (blockIdx.x - (second ? all.blocks : 0)) * 256 + threadIdx.x;
    const bool along = s.row_stride == 1; // neighbouring threads read neighbouring elements
    const int row = (int)(along ? i % s.rows : i / s.eights), eight = (int)(along ? i / s.rows : i % s.eights);
    if (row >= s.rows || eight >= s.eights) return;
    float x[8];
#pragma unroll
    for (int e = 0; e < 8; e++) {
        const int at = s.permuted ? eight / 2 * 16 + e / 2 * 4 + eight % 2 * 2 + e % 2 : eight * 8 + e;
        x[e] = at < s.columns ? s.from[row * s.row_stride + at * s.column_stride] : 0.0f;
    }
    unsigned high[4], low[4];
#pragma unroll
    for (int e = 0; e < 4; e++) split_pair(x[2 * e], x[2 * e + 1], high[e], low[e]);
    uint4 *const to = s.to + ((int64_t)row * (s.eights / 4) + eight / 4) * 8 + eight % 4;
    to[0] = make_uint4(high[0], high[1], high[2], high[3]);
    to[4] = make_uint4(low[0], low[1], low[2], low[3]);
}

#ifdef VB_SM90A

// Where vector `nth` of a row of x is: those of two neighbouring rows lie in different banks.
template <class Stage>
VB_DEVICE int place_of_x(int row, int nth) {
    return (row * Stage::x_pitch + (Stage::x_pitch == 8 ? nth ^ row % 2 * 4 : nth)) * 16;
}

// How many elements behind a multiple of 16 bytes a row of x begins.
VB_DEVICE int shift_of_x(const UpdateF32 &p, int row) {
    return ((unsigned)((uintptr_t)p.x / 4) + (unsigned)row * p.k) % 4;
}

// A warpgroup copies those of 32 columns from k on that exist; zeros stand for missing columns. Missing rows are left.
template <class Stage>
VB_DEVICE void copy_x(char *to, const UpdateF32 &p, int row0, int k, int thread) {
    const int rows = smaller(Stage::rows, p.m - row0);
    const float *const nowhere = p.x - (uintptr_t)p.x / 4 % 4;
#pragma unroll 3
    for (int i = thread; i < rows * Stage::x_vectors; i += 128) {
        const int row = i / Stage::x_vectors, nth = i % Stage::x_vectors;
        const float *const line = p.x + (int64_t)(row0 + row) * p.k;
        const int at = k + 4 * nth - (Stage::x_pitch == 8 ? 0 : shift_of_x(p, row0 + row));
        const int bytes = smaller(4, larger(0, p.k - at)) * 4;
        copy_async_part(shared_address(to + place_of_x<Stage>(row, nth)), bytes ? line + at : nowhere, bytes);
    }
}

// Four neighbouring columns of a row.
template <class Stage>
VB_DEVICE float4 four_of_x(const char *x, int row, int nth, int shift) {
    const float4 a = *(const float4 *)(x + place_of_x<Stage>(row, nth));
    if (Stage::x_pitch == 8) return a;
    const float4 b = *(const float4 *)(x + place_of_x<Stage>(row, nth + 1));
    const bool one = shift & 1, two = shift & 2;
    const float c[6] = {one ? a.y : a.x, one ? a.z : a.y, one ? a.w : a.z,
                        one ? b.x : a.w, one ? b.y : b.x, one ? b.z : b.y};
    return make_float4(two ? c[2] : c[0], two ? c[3] : c[1], two ? c[4] : c[2], two ? c[5] : c[3]);
}

#endif

template <int RANKS, bool ALIGNED>
__global__ void __launch_bounds__(product_threads, 1)
    fused_update_f32_sm90_kernel(VB_IN_PLACE CUtensorMap v_map, VB_IN_PLACE CUtensorMap u_map,
                                 const UpdateF32 p) {
#ifdef VB_SM90A
    using Stage = UpdateF32Stage<RANKS, ALIGNED>;
    constexpr int ROWS = Stage::rows, N = Stage::own_ranks, width = columns / Stage::halves;
    extern __shared__ char shared[];
    __shared__ uint64_t x_full[Stage::count], full[Stage::count], empty[Stage::count];
    char *const ring =
        shared + (sm90::swizzle_bytes - shared_address(shared) % sm90::swizzle_bytes) % sm90::swizzle_bytes;
    char *const h = ring + Stage::count * Stage::bytes; // [chunks of ranks][ROWS], or sums
    const int group = __shfl_sync(all_lanes, threadIdx.x / 128, 0), warp = threadIdx.x % 128 / 32,
              lane = threadIdx.x % 32;
    if (threadIdx.x == 0) {
        sm90::prefetch_map(&v_map), sm90::prefetch_map(&u_map);
        for (int s = 0; s < Stage::count; s++)
            sm90::barrier_init(&x_full[s], 128), sm90::barrier_init(&full[s], 1), sm90::barrier_init(&empty[s], 256);
        sm90::barrier_init_fence();
    }
    __syncthreads();
    const bool meets = p.cluster > 1;
    const int share = meets ? (int)sm90::cluster_rank() : 0, turn = (int)blockIdx.x / p.cluster, row0 = turn * ROWS;
    const auto of_share = [&](int all, int which, int shares) { return (int)((int64_t)all * which / shares); };
    const int all_steps = ceil_div(p.k, chunk), first_step = of_share(all_steps, share, p.cluster),
              steps = of_share(all_steps, share + 1, p.cluster) - first_step;
    const int parts = p.cluster * (int)gridDim.y, part = p.cluster * (int)blockIdx.y + share; // of n
    const int all_tiles = ceil_div(p.n, columns), first_tile = of_share(all_tiles, part, parts),
              tiles = of_share(all_tiles, part + 1, parts) - first_tile;
    const int boxes = ceil_div(p.r, chunk); // of U, of a tile
    wait_for_previous_kernel();
    release_next_kernel();

    if (group == 0) {
        sm90::registers_shrink<40>();
        StageAt<Stage::count> at(1), arrived(0);
        constexpr int ahead = Stage::count / 2; // stages of x that are under way behind the newest
        const auto arrive = [&] { // each thread that has copied, as each that has read: racecheck sees no warp's order
            sm90::barrier_arrive(&x_full[arrived.stage]);
            arrived.advance();
        };
        for (int step = 0; step < steps; step++, at.advance()) {
            char *const x = ring + at.stage * Stage::bytes;
            const int k = step_in_turn(first_step, steps, step, turn) * chunk;
            sm90::barrier_wait(&empty[at.stage], at.phase);
            if (threadIdx.x == 0) {
                sm90::barrier_expect(&full[at.stage], RANKS * sm90::row_bytes);
                sm90::copy_box(x + Stage::x_bytes, &v_map, &full[at.stage], 2 * k, 0);
            }
            __syncwarp();
            copy_x<Stage>(x, p, row0, k, threadIdx.x);
            copy_async_commit();
            if (step >= ahead) {
                copy_async_wait<ahead>();
                arrive();
            }
        }
        copy_async_wait<0>();
        sm90::shared_writes_fence(); // U comes where x was
        group_sync(2, 128);
        for (int step = larger(0, steps - ahead); step < steps; step++) arrive();
        if (meets) {
            for (int i = 0; i < 2; i++) cluster_arrive(), cluster_wait();
            cluster_arrive();
        }
        if (threadIdx.x == 0)
            for (int i = 0, all = tiles * boxes; i < all; i++) {
                const int n = step_in_turn(first_tile, tiles, i / boxes, turn) * columns, place = i % Stage::boxes;
                if (place == 0) {
                    sm90::barrier_wait(&empty[at.stage], at.phase);
                    sm90::shared_writes_fence(); // behind loads of x
                    sm90::barrier_expect(&full[at.stage], smaller(Stage::boxes, all - i) * Stage::box_bytes);
                }
                sm90::copy_box(ring + at.stage * Stage::bytes + place * Stage::box_bytes, &u_map, &full[at.stage],
                               i % boxes * product_depth, n);
                if (place == Stage::boxes - 1) at.advance();
            }
        __syncwarp();
        if (meets) cluster_wait();
        return;
    }
    sm90::registers_grow<232>();
    const int consumer = group - 1, thread = (int)threadIdx.x - 128, quad = lane % 4;
    const int rows_from = Stage::halves == 1 ? consumer * 64 : 0, rank_from = Stage::halves == 1 ? 0 : consumer * N;
    const int local = rows_from + warp * 16 + lane / 4; // this lane's first row of the block's
    const auto release = [&](int stage) { sm90::barrier_arrive(&empty[stage]); };
    StageAt<Stage::count> at(0);
    {
        float sum[N / 2] = {}, part[N / 2] = {}; // the tensor core truncates where float32 rounds: few steps a part
        unsigned high[2][2][4], low[2][2][4];    // of two steps: 16 of k by 16 of k
        const int shift[2] = {shift_of_x(p, row0 + local), shift_of_x(p, row0 + local + 8)};
        int previous = -1;
        const auto settle_part = [&](bool add) {
            sm90::wgmma_wait<0>();
            if (previous >= 0) release(previous);
            sm90::settle(part);
            if (add) {
#pragma unroll
                for (int i = 0; i < N / 2; i++) sum[i] += part[i], part[i] = 0;
            }
        };
        const auto multiply = [&](unsigned (&a)[2][4], unsigned (&rest)[2][4], bool add) {
            const char *const x = ring + at.stage * Stage::bytes;
            sm90::barrier_wait(&x_full[at.stage], at.phase);
#pragma unroll
            for (int s = 0; s < 2; s++)
#pragma unroll
                for (int half = 0; half < 2; half++) {
                    const float4 four = four_of_x<Stage>(x, local + 8 * half, 4 * s + quad, shift[half]);
                    split_pair(four.x, four.y, a[s][half], rest[s][half]);
                    split_pair(four.z, four.w, a[s][half + 2], rest[s][half + 2]);
                }
            sm90::barrier_wait(&full[at.stage], at.phase);
            settle_part(add);
            const uint64_t v = sm90::describe(x + Stage::x_bytes + rank_from * sm90::row_bytes, 0);
            sm90::settle(a), sm90::settle(rest), sm90::settle(part);
            sm90::wgmma_fence();
#pragma unroll
            for (int s = 0; s < 2; s++) {
                sm90::WgmmaRegisters<bf16, N, 0>::run(part, rest[s], v + 2 * s);
                sm90::WgmmaRegisters<bf16, N, 0>::run(part, a[s], v + 4 + 2 * s);
            }
#pragma unroll
            for (int s = 0; s < 2; s++) sm90::WgmmaRegisters<bf16, N, 0>::run(part, a[s], v + 2 * s);
            sm90::wgmma_commit();
            previous = at.stage;
            at.advance();
        };
        for (int step = 0; step < steps; step += 2) {
            multiply(high[0], low[0], step % 4 == 0);
            if (step + 1 < steps) multiply(high[1], low[1], false);
        }
        settle_part(true);
        float codes[N / 8][2][2]; // all on the way at once, before anything is stored
#pragma unroll
        for (int j = 0; j < N / 8; j++)
#pragma unroll
            for (int half = 0; half < 2; half++)
#pragma unroll
                for (int e = 0; e < 2; e++) {
                    const int row = row0 + local + 8 * half, rank = rank_from + 8 * j + 2 * quad + e;
                    codes[j][half][e] =
                        p.codes && row < p.m && rank < p.r ? p.codes[row * p.codes_stride + rank] : 1.0f;
                }
        if (meets) { // each block adds up every so many sums of all blocks, in their order, and takes the others'
            float4 *const sums = reinterpret_cast<float4 *>(h) + thread;
            const bool exists = row0 + rows_from + warp * 16 < p.m;
            const auto there = [&](int i, int block) {
                return sm90::load_remote(sm90::remote_address(sums + 256 * i, block));
            };
            if (exists)
#pragma unroll
                for (int i = 0; i < N / 8; i++)
                    sums[256 * i] = make_float4(sum[4 * i], sum[4 * i + 1], sum[4 * i + 2], sum[4 * i + 3]);
            sm90::cluster_sync();
            if (exists)
#pragma unroll 1
                for (int i = share; i < N / 8; i += p.cluster) {
                    float4 all = make_float4(0, 0, 0, 0);
#pragma unroll 8
                    for (int block = 0; block < p.cluster; block++) {
                        const float4 one = there(i, block);
                        all.x += one.x, all.y += one.y, all.z += one.z, all.w += one.w;
                    }
                    sums[256 * i] = all;
                }
            sm90::cluster_sync();
            if (exists)
#pragma unroll
                for (int i = 0; i < N / 8; i++) {
                    const float4 all = there(i, i % p.cluster);
                    sum[4 * i] = all.x, sum[4 * i + 1] = all.y, sum[4 * i + 2] = all.z, sum[4 * i + 3] = all.w;
                }
            sm90::cluster_sync(); // the sums have been read
        }
#pragma unroll
        for (int j = 0; j < N / 8; j++)
#pragma unroll
            for (int half = 0; half < 2; half++) {
                const int at_row = local + 8 * half, rank = rank_from + 8 * j + 2 * quad;
                float two[2];
#pragma unroll
                for (int e = 0; e < 2; e++) { // 0: whatever x V is
                    const float code = codes[j][half][e];
                    two[e] = code == 0.0f ? 0.0f : sum[4 * j + 2 * half + e] * code;
                }
                char *const line = h + (rank / chunk * ROWS + at_row) * sm90::row_bytes + quad * 4;
                split_pair(two[0], two[1], *(unsigned *)(line + (j % 4 ^ at_row % 8) * 16),
                           *(unsigned *)(line + ((4 + j % 4) ^ at_row % 8) * 16));
            }
        sm90::shared_writes_fence();
        group_sync(1, 256); // h
    }
    const int column_from = Stage::halves == 1 ? 0 : consumer * width;
    int place = 0; // of the next box of U in its stage
    for (int nth = 0; nth < tiles; nth++) {
        float sum[width / 2];
        using Product = sm90::Wgmma<bf16, width, 0>;
        int previous = -1;
#pragma unroll 1
        for (int box = 0; box < boxes; box++) {
            sm90::barrier_wait(&full[at.stage], at.phase);
            const uint64_t a = sm90::describe(h + (box * ROWS + rows_from) * sm90::row_bytes, 0);
            const uint64_t u = sm90::describe(ring + at.stage * Stage::bytes + place * Stage::box_bytes +
                                                  column_from * sm90::row_bytes, 0);
            sm90::wgmma_fence();
#pragma unroll
            for (int s = 0; s < 2; s++) {
                Product::run(sum, a + 4 + 2 * s, u + 2 * s, s > 0 || box > 0);
                Product::run(sum, a + 2 * s, u + 4 + 2 * s, 1);
            }
#pragma unroll
            for (int s = 0; s < 2; s++) Product::run(sum, a + 2 * s, u + 2 * s, 1);
            sm90::wgmma_commit();
            sm90::wgmma_wait<1>();
            if (previous >= 0) release(previous), previous = -1;
            if (++place == Stage::boxes) {
                previous = at.stage, place = 0;
                at.advance();
            }
        }
        // what is added comes while the products run: behind a store each load would wait for memory again
        const int column = step_in_turn(first_tile, tiles, nth, turn) * columns + column_from + 2 * quad;
        const int64_t line = (int64_t)(row0 + local) * p.n + column;
        const auto left = [&](int half, int j) { // elements of a pair that exist
            return row0 + local + 8 * half < p.m ? p.n - column - 8 * j : 0;
        };
        float2 before[2][width / 8] = {};
        if (p.add)
#pragma unroll
            for (int half = 0; half < 2; half++)
#pragma unroll
                for (int j = 0; j < width / 8; j++) {
                    const float *const add = p.add + line + 8 * half * (int64_t)p.n + 8 * j;
                    if (left(half, j) <= 0) continue;
                    if (p.pairs) before[half][j] = *(const float2 *)add;
                    else before[half][j] = make_float2(add[0], left(half, j) > 1 ? add[1] : 0.0f);
                }
        sm90::wgmma_wait<0>();
        if (previous >= 0) release(previous);
        sm90::settle(sum);
#pragma unroll
        for (int half = 0; half < 2; half++)
#pragma unroll
            for (int j = 0; j < width / 8; j++) {
                float *const out = p.out + line + 8 * half * (int64_t)p.n + 8 * j;
                const float2 two = make_float2(before[half][j].x + sum[4 * j + 2 * half] * p.scale,
                                               before[half][j].y + sum[4 * j + 2 * half + 1] * p.scale);
                if (left(half, j) <= 0) continue;
                if (p.pairs) {
                    *(float2 *)out = two;
                } else {
                    out[0] = two.x;
                    if (left(half, j) > 1) out[1] = two.y;
                }
            }
    }
#endif
}

Splitting splitting(void *to, const void *from, int64_t rows, int64_t columns, bool transposed, bool permuted) {
    return {(uint4 *)to, (const float *)from, transposed ? 1 : columns, transposed ? rows : 1, (int)rows, (int)columns,
            (int)ceil_div<int64_t>(columns, chunk) * 4, permuted};
}

vb_status split(const vb_fused_update_args &a, void *v, void *u, vb_stream *stream) {
    Splittings all = {{splitting(v, a.v, a.r, a.k, !a.v_transposed, true),
                       splitting(u, a.u, a.n, a.r, a.u_transposed, false)},
                      0};
    int64_t blocks[2];
    for (int i = 0; i < 2; i++) blocks[i] = ceil_div<int64_t>((int64_t)all.each[i].rows * all.each[i].eights, 256);
    all.blocks = (unsigned)blocks[0];
    return launch_overlapped(stream, (unsigned)(blocks[0] + blocks[1]), 256, 0, split_kernel, all);
}

template <int RANKS, bool ALIGNED>
vb_status launch(const vb_fused_update_args &a, const adapter_plan &plan, const void *v, const void *u,
                 vb_stream *stream) {
    const bool pairs = a.n % 2 == 0 && ((uintptr_t)a.out | (uintptr_t)a.add) % 8 == 0;
    const UpdateF32 p = {(float *)a.out, (const float *)a.add, (const float *)a.codes, (const float *)a.x,
                         (int)a.m, (int)a.k, (int)a.n, (int)a.r, plan.cluster, a.codes_stride, a.scale, pairs};
    const int64_t k = ceil_div<int64_t>(a.k, chunk) * product_depth, r = ceil_div<int64_t>(a.r, chunk) * product_depth;
    CUtensorMap v_map, u_map;
    VB_TRY(sm90::tensor_map(&v_map, v, VB_BF16, k, a.r, k, RANKS, stream));
    VB_TRY(sm90::tensor_map(&u_map, u, VB_BF16, r, a.n, r, columns, stream));
    const dim3 grid((unsigned)(plan.row_blocks * plan.cluster), (unsigned)plan.column_blocks);
    return launch_cluster(stream, plan.cluster, grid, product_threads,
                          UpdateF32Stage<RANKS, ALIGNED>::shared_bytes, fused_update_f32_sm90_kernel<RANKS, ALIGNED>,
                          v_map, u_map, p);
}
template <int RANKS>
vb_status launch(const vb_fused_update_args &a, const adapter_plan &plan, const void *v, const void *u,
                 vb_stream *stream) {
    return a.k % 4 == 0 && aligned16(a.x) ? launch<RANKS, true>(a, plan, v, u, stream)
                                          : launch<RANKS, false>(a, plan, v, u, stream);
}

} // namespace

vb_status fused_update_f32_sm90(const vb_fused_update_args &a, const adapter_plan &plan, vb_stream *stream) {
    const int64_t v_bytes = a.r * ceil_div<int64_t>(a.k, chunk) * sm90::row_bytes,
                  u_bytes = a.n * ceil_div<int64_t>(a.r, chunk) * sm90::row_bytes;
    char *memory;
    VB_TRY(workspace((void **)&memory, v_bytes + u_bytes, stream));
    char *const u = memory + v_bytes;
    VB_TRY(split(a, memory, u, stream));
    return plan.rank_tiles == 8    ? launch<64>(a, plan, memory, u, stream)
           : plan.rank_tiles == 16 ? launch<128>(a, plan, memory, u, stream)
                                   : launch<256>(a, plan, memory, u, stream);
}

#endif

} // namespace vb
