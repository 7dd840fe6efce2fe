// fused_update_sm90.cu: out = add + scale * ((x V) * codes) U^T for F16 and BF16 of many rows, on Hopper's tensor cores
// (vb_fused_update_args).
//
//   grid     a block for ROWS (128, or 64) rows. Where these blocks leave multiprocessors free, a cluster shares the
//            rows: each block has a part of k, then of n. Else two blocks at neighbouring rows each fetch half of V, U.
//            blockIdx.y: shares of n, where few rows and a long n leave room for more clusters
//   block    a warpgroup copies; two warpgroups multiply 64 rows each, or half of k and of the columns of the same rows
//   shared   a ring of stages: ROWS x 64 of x and 64 x RANKS of V; then 128 rows of U by 64 or 128 ranks. The sums
//   moves    x, out and add once; V and U once a cluster, from L2. x V stays in registers, as the next left factor
//   flops    2 m r (k + n)
//   bound    memory up to about 180 ranks, tensor cores above
//
// Of many ranks one warpgroup stores a tile of the result while the other multiplies. Of 256 a warp leaves 16 rows of a
// tile in shared memory, for bulk copies. Blocks begin at different places of k and n: else rows of a power of two
// bytes meet in one channel. Rows that are no whole vectors, and U [r][n], are copied to the workspace first.

#include "adapter/factors.cuh"
#include "adapter/launchers.cuh"
#include "arch/cluster.cuh"
#include "arch/unaligned.cuh"
#include "gemm/sm90_product.cuh"
#include "runtime/pad.cuh"

namespace vb {

#ifdef VB_WITH_SM90

namespace {

constexpr int columns = 128; // of a tile of the result

template <class T>
struct UpdateSm90 {
    T *out;
    const T *add, *codes;
    int m, k, n, r;
    int64_t codes_stride;
    float scale;
    int cluster; // blocks that share rows; 1: pairs share V and U, or nobody
    bool codes_in_boxes, codes_in_pairs; // how codes are read: by boxes, else two side by side, else alone
    bool vectors;                        // rows of out and add are whole vectors of 16 bytes
    bool v_kmajor;                       // V is stored [r][k], else [k][r]
};

// Eight elements of a row, of which `count` exist.
template <class T>
VB_DEVICE Vec<T, 8> load_eight(const T *from, bool vectors, int count) {
    Vec<T, 8> x = {};
    if (vectors) return *reinterpret_cast<const Vec<T, 8> *>(from);
#pragma unroll
    for (int e = 0; e < 8; e++)
        if (e < count) x.at[e] = from[e];
    return x;
}
// Elements of a vector from `begin` to `end` alone.
template <class T>
VB_DEVICE void store_some(T *to, const uint4 &eight, int begin, int end) {
    const Vec<T, 8> x = *reinterpret_cast<const Vec<T, 8> *>(&eight);
#pragma unroll
    for (int e = 0; e < 8; e++)
        if (e >= begin && e < end) to[e] = x.at[e];
}

// Stores what the four lanes of a row have of a tile, eight neighbours each time, where a row begins anywhere: as the
// aligned vectors in which the elements lie. `last` keeps the last lane's eight for the next call.
template <class T>
VB_DEVICE void store_shifted(T *row, bool exists, int column, int columns_left, const uint4 &eight, uint4 &last,
                             bool first_of_tile, bool last_of_tile) {
    const int quad = threadIdx.x % 4, shift = (int)((uintptr_t)(row + column) % 16) / (int)sizeof(T);
    const auto from_lane = [](const uint4 &x, int lane) {
        return make_uint4(__shfl_sync(all_lanes, x.x, lane, 4), __shfl_sync(all_lanes, x.y, lane, 4),
                          __shfl_sync(all_lanes, x.z, lane, 4), __shfl_sync(all_lanes, x.w, lane, 4));
    };
    const uint4 neighbour = from_lane(eight, (quad + 3) % 4), before = quad == 0 ? last : neighbour;
    last = from_lane(eight, 3);
    if (!exists) return;
    const uint4 vector = shift == 0 ? eight : bytes_from(before, eight, 16 - shift * (int)sizeof(T));
    const int begin = first_of_tile && quad == 0 ? shift : 0, end = smaller(8, columns_left + shift);
    if (begin == 0 && end == 8) *reinterpret_cast<uint4 *>(row + column - shift) = vector;
    else store_some(row + column - shift, vector, begin, end);
    if (last_of_tile && quad == 3) store_some(row + column, eight, 8 - shift, columns_left);
}

template <int RANKS, int ROWS>
struct UpdateStage : ProductStage<ROWS, RANKS> {
    using Base = ProductStage<ROWS, RANKS>;
    static constexpr int box_bytes = columns * sm90::row_bytes;                   // 128 rows of U by 64 ranks
    static constexpr int boxes = smaller(RANKS / 64, Base::bytes / box_bytes) >= 2 ? 2 : 1; // of a stage
    static constexpr int steps = RANKS / 64 / boxes;                              // stages of a tile of the result
    // The sums of two warpgroups that meet: behind the ring where there is room, else in its stages.
    static constexpr int sum_bytes = 256 * RANKS / 2 * (int)sizeof(float);
    static constexpr bool sums_apart = RANKS == 64;
    static constexpr int ring_bytes = Base::count * Base::bytes;
    // Boxes of 16 rows by 64 columns of the result, two for each warp that multiplies: where there is room.
    static constexpr bool stores_boxes = RANKS == 256;
    static constexpr int result_box = 16 * sm90::row_bytes, result_bytes = stores_boxes ? 8 * 2 * result_box : 0;
    static constexpr int shared_bytes = Base::shared_bytes + (sums_apart ? sum_bytes : 0) + result_bytes;
    // Codes of 128 rows come through the ring too, between V and U, where registers have no room for them before.
    static constexpr int codes_box = ROWS * sm90::row_bytes, code_boxes = 2, code_stages = RANKS == 256 ? 2 : 0;
    static_assert(sums_apart || sum_bytes <= ring_bytes, "in the ring");
};

#ifdef VB_SM90A

// Four 8 x 8 matrices of 16 bits as rows of 16 bytes. Lanes 8 i..8 i + 7 give the addresses of matrix i.
VB_DEVICE void store_matrices(char *row, const unsigned (&words)[4]) {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(shared_address(row)),
                 "r"(words[0]), "r"(words[1]), "r"(words[2]), "r"(words[3])
                 : "memory");
}
// Copies a box of a matrix from shared memory, what lies outside the matrix left out.
VB_DEVICE void store_box(const CUtensorMap *map, const char *shared, int inner, int outer, sm90::Hint hint) {
    asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group.L2::cache_hint [%0, {%2, %3}], [%1], %4;" ::"l"(
                     (uint64_t)map),
                 "r"(shared_address(shared)), "r"(inner), "r"(outer), "l"(hint.policy)
                 : "memory");
}
VB_DEVICE void stores_commit() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
// Waits until this thread's boxes have been read, but for the last one.
VB_DEVICE void stores_read_but_one() { asm volatile("cp.async.bulk.wait_group.read 1;" ::: "memory"); }
// Waits until they are stored.
VB_DEVICE void stores_wait() { asm volatile("cp.async.bulk.wait_group 0;" ::: "memory"); }
// Holds bulk copies that follow the next barrier until this thread's loads from any block's shared memory are done.
VB_DEVICE void loads_of_cluster_fence() { asm volatile("fence.proxy.async.shared::cluster;" ::: "memory"); }

#endif

template <class T, int RANKS, int ROWS, bool PAIR>
__global__ void __launch_bounds__(product_threads, 1)
    fused_update_sm90_kernel(VB_IN_PLACE CUtensorMap x_map, VB_IN_PLACE CUtensorMap v_map,
                             VB_IN_PLACE CUtensorMap u_map, VB_IN_PLACE CUtensorMap out_map,
                             VB_IN_PLACE CUtensorMap codes_map, const UpdateSm90<T> p) {
#ifdef VB_SM90A
    using Stage = UpdateStage<RANKS, ROWS>;
    constexpr int pair = PAIR ? 2 : 1, halves = 128 / ROWS; // of k and of the columns, for the warpgroups
    constexpr bool in_turn = RANKS >= 128; // a tile takes longer to multiply than to store
    constexpr bool hints = RANKS == 256;   // to the L2
    extern __shared__ char shared[];
    __shared__ uint64_t full[Stage::count], empty[Stage::count];
    char *const ring =
        shared + (sm90::swizzle_bytes - shared_address(shared) % sm90::swizzle_bytes) % sm90::swizzle_bytes;
    const int group = __shfl_sync(all_lanes, threadIdx.x / 128, 0);
    const int cluster = PAIR ? 2 : p.cluster, rank = cluster > 1 ? (int)sm90::cluster_rank() : 0;
    if (threadIdx.x == 0) {
        sm90::prefetch_map(&x_map), sm90::prefetch_map(&v_map), sm90::prefetch_map(&u_map);
        for (int s = 0; s < Stage::count; s++)
            sm90::barrier_init(&full[s], 1), sm90::barrier_init(&empty[s], 8 * pair);
        sm90::barrier_init_fence();
    }
    if (cluster > 1) sm90::cluster_sync();
    else __syncthreads();
    const int shares = PAIR ? 1 : p.cluster, share = PAIR ? 0 : rank;
    const int row0 = (PAIR ? (int)blockIdx.x : (int)blockIdx.x / p.cluster) * ROWS, turn = (int)blockIdx.x / cluster;
    const int all_steps = ceil_div(p.k, product_depth), first_step = all_steps * share / shares,
              steps = all_steps * (share + 1) / shares - first_step;
    const int parts = shares * (int)gridDim.y, part = shares * (int)blockIdx.y + share; // of n
    const int all_tiles = ceil_div(p.n, columns), first_tile = (int)((int64_t)all_tiles * part / parts),
              tiles = (int)((int64_t)all_tiles * (part + 1) / parts) - first_tile;
    const bool meets = !PAIR && p.cluster > 1; // sums of x V of several blocks
    wait_for_previous_kernel();
    release_next_kernel();

    if (group == 0) {
        sm90::registers_shrink<40>();
        const bool copies = threadIdx.x == 0;
        using Hint = typename std::conditional<hints, sm90::Hint, sm90::NoHint>::type;
        Hint first, last;
        if constexpr (hints) first = sm90::leaves_first(), last = sm90::leaves_last();
        StageAt<Stage::count> at(1);
        if (copies)
            for (int step = 0; step < steps; step++, at.advance()) {
                char *const x = ring + at.stage * Stage::bytes, *const v = x + Stage::a_bytes;
                uint64_t *const barrier = &full[at.stage];
                const int k = step_in_turn(first_step, steps, step, turn) * product_depth;
                sm90::barrier_wait(&empty[at.stage], at.phase);
                sm90::barrier_expect(barrier, Stage::bytes);
                sm90::copy_box(x, &x_map, barrier, k, row0, first);
                if (p.v_kmajor) copy_b<RANKS, PAIR, false>(v, &v_map, barrier, 0, k, rank, last);
                else copy_b<RANKS, PAIR, true>(v, &v_map, barrier, 0, k, rank, last);
            }
        __syncwarp();
        if (meets) {
            cluster_arrive();
            cluster_wait();
            cluster_arrive();
            if (!Stage::sums_apart) cluster_wait(), sm90::cluster_sync(); // the sums have been read
        }
        if (copies && p.codes_in_boxes)
            for (int i = 0; i < Stage::code_stages; i++, at.advance()) {
                char *const to = ring + at.stage * Stage::bytes;
                sm90::barrier_wait(&empty[at.stage], at.phase);
                sm90::barrier_expect(&full[at.stage], Stage::code_boxes * Stage::codes_box);
#pragma unroll
                for (int box = 0; box < Stage::code_boxes; box++)
                    sm90::copy_box(to + box * Stage::codes_box, &codes_map, &full[at.stage],
                                   (i * Stage::code_boxes + box) * 64, row0);
            }
        if (copies)
            for (int step = 0; step < tiles * Stage::steps; step++, at.advance()) {
                char *const to = ring + at.stage * Stage::bytes;
                uint64_t *const barrier = &full[at.stage];
                const int n = step_in_turn(first_tile, tiles, step / Stage::steps, turn) * columns,
                          r = step % Stage::steps * Stage::boxes * 64;
                sm90::barrier_wait(&empty[at.stage], at.phase);
                sm90::barrier_expect(barrier, Stage::boxes * Stage::box_bytes);
#pragma unroll
                for (int i = 0; i < Stage::boxes; i++)
                    copy_b<columns, PAIR, false>(to + i * Stage::box_bytes, &u_map, barrier, n, r + 64 * i, rank, last);
            }
        __syncwarp();
        if (meets && Stage::sums_apart) cluster_wait();
    } else {
        sm90::registers_grow<232>();
        const int consumer = group - 1, warp = threadIdx.x % 128 / 32, lane = threadIdx.x % 32, quad = lane % 4;
        const auto release = [&](int stage) { release_stage<PAIR>(&empty[stage], lane); };
        StageAt<Stage::count> at(0);
        unsigned h[RANKS / 16][4]; // the left factor of the second product
        const int row = row0 + (halves == 1 ? consumer * 64 : 0) + warp * 16 + lane / 4;
        {
            constexpr bool early = RANKS <= 128; // codes are fetched before the product, where registers are left
            Vec<T, 2> codes[RANKS / 8][2];
            const auto load_codes = [&] {
#pragma unroll
                for (int j = 0; j < RANKS / 8; j++)
#pragma unroll
                    for (int half = 0; half < 2; half++) {
                        const int of = row + 8 * half, rank0 = 8 * j + 2 * quad;
                        if (of >= p.m || rank0 >= p.r) continue;
                        const T *const from = p.codes + of * p.codes_stride + rank0;
                        if (p.codes_in_pairs) codes[j][half] = *reinterpret_cast<const Vec<T, 2> *>(from);
                        else codes[j][half] = {{from[0], rank0 + 1 < p.r ? from[1] : T()}};
                    }
            };
            if (early && p.codes) load_codes();
            float sum[RANKS / 2];
#pragma unroll
            for (int i = 0; i < RANKS / 2; i++) sum[i] = 0; // so that both loops have them in the same registers
            sm90::settle(sum);
            constexpr int depth = product_depth / halves;
            const int x_part = consumer * (halves == 1 ? 64 * sm90::row_bytes : 2 * depth);
            if (p.v_kmajor)
                multiply_stages<T, Stage, RANKS, false, false, false, depth>(
                    sum, at, steps, ring, full, x_part, halves == 1 ? 0 : consumer * 2 * depth, release);
            else
                multiply_stages<T, Stage, RANKS, false, true, false, depth>(
                    sum, at, steps, ring, full, x_part, halves == 1 ? 0 : consumer * sm90::row_bytes * depth, release);
            sm90::settle(sum);
            if (meets || halves > 1) { // sums of both warpgroups at the same rows and of all blocks, in their order
                const int thread = (int)threadIdx.x - 128, first = halves > 1 ? thread % 128 : thread;
                float4 *const sums = reinterpret_cast<float4 *>(ring + (Stage::sums_apart ? Stage::ring_bytes : 0));
                const bool exists = row - lane / 4 < p.m;
                if (!Stage::sums_apart) group_sync(1, 256); // both have read the last stage
                if (exists)
#pragma unroll
                    for (int i = 0; i < RANKS / 8; i++)
                        sums[256 * i + thread] =
                            make_float4(sum[4 * i], sum[4 * i + 1], sum[4 * i + 2], sum[4 * i + 3]);
                const auto add_up = [&](int i, int blocks, auto load) {
                    float4 all = make_float4(0, 0, 0, 0);
#pragma unroll 8
                    for (int s = 0; s < blocks * halves; s++) {
                        const float4 part = load(sums + 256 * i + first + 128 * (s % halves), s / halves);
                        all.x += part.x, all.y += part.y, all.z += part.z, all.w += part.w;
                    }
                    return all;
                };
                const auto take = [&](int i, float4 all) {
                    sum[4 * i] = all.x, sum[4 * i + 1] = all.y, sum[4 * i + 2] = all.z, sum[4 * i + 3] = all.w;
                };
                if (meets) { // each warpgroup adds up every so many, and takes the others' from where they are
                    const auto there = [&](const float4 *from, int block) {
                        return sm90::load_remote(sm90::remote_address(from, block));
                    };
                    const int owners = shares * halves;
                    sm90::cluster_sync();
                    if (exists)
#pragma unroll 1
                        for (int i = share * halves + (halves > 1 ? consumer : 0); i < RANKS / 8; i += owners)
                            sums[256 * i + first] = add_up(i, shares, there);
                    sm90::cluster_sync();
                    if (exists)
#pragma unroll
                        for (int i = 0; i < RANKS / 8; i++)
                            take(i, there(sums + 256 * i + first, i % owners / halves));
                } else {
                    group_sync(1, 256);
#pragma unroll
                    for (int i = 0; i < RANKS / 8; i++)
                        take(i, add_up(i, 1, [](const float4 *from, int) { return *from; }));
                }
                if (!Stage::sums_apart) {
                    loads_of_cluster_fence();
                    sm90::cluster_sync();
                }
            }
            const auto apply = [&](int j, int half, bool exist, Vec<T, 2> two) {
                float &low = sum[4 * j + 2 * half], &high = sum[4 * j + 2 * half + 1];
                if (exist) {
                    const float first = to_float(two.at[0]), second = to_float(two.at[1]);
                    low = first == 0.0f ? 0.0f : low * first; // 0: whatever x V is
                    high = second == 0.0f ? 0.0f : high * second;
                }
                h[j / 2][j % 2 * 2 + half] = pack<T>(low, high);
            };
            if (Stage::code_stages > 0 && p.codes_in_boxes) {
                constexpr int eights = Stage::code_boxes * 8; // of ranks, of a stage
                const int local = row - row0;
#pragma unroll
                for (int i = 0; i < Stage::code_stages; i++, at.advance()) {
                    sm90::barrier_wait(&full[at.stage], at.phase);
#pragma unroll
                    for (int j = 0; j < eights; j++)
#pragma unroll
                        for (int half = 0; half < 2; half++) {
                            const char *const there = ring + at.stage * Stage::bytes + j / 8 * Stage::codes_box +
                                                      (local + 8 * half) * sm90::row_bytes +
                                                      ((j % 8) ^ (local % 8)) * 16 + quad * 4;
                            apply(i * eights + j, half, true, *reinterpret_cast<const Vec<T, 2> *>(there));
                        }
                    __syncwarp();
                    release(at.stage);
                }
            } else {
                if (!early && p.codes) load_codes();
#pragma unroll
                for (int j = 0; j < RANKS / 8; j++)
#pragma unroll
                    for (int half = 0; half < 2; half++)
                        apply(j, half, p.codes && row + 8 * half < p.m && 8 * j + 2 * quad < p.r, codes[j][half]);
            }
        }
        constexpr int width = columns / halves; // of a warpgroup's part of a tile
        const int column0 = halves == 1 ? 0 : consumer * width;
        if (in_turn && consumer == 1) group_arrive(2, 256);
        for (int nth = 0; nth < tiles; nth++) {
            constexpr bool zeros = RANKS < 256; // else the first product begins the sums
            float sum[width / 2];
            if (zeros) {
#pragma unroll
                for (int i = 0; i < width / 2; i++) sum[i] = 0;
                sm90::settle(sum);
            }
            if (in_turn) group_sync(2 + consumer, 256);
#pragma unroll
            for (int step = 0; step < Stage::steps; step++) {
                sm90::barrier_wait(&full[at.stage], at.phase);
                const uint64_t u = sm90::describe(ring + at.stage * Stage::bytes + column0 * sm90::row_bytes, 0);
                sm90::wgmma_fence();
#pragma unroll
                for (int i = 0; i < 4 * Stage::boxes; i++) {
                    using Product = sm90::WgmmaRegisters<T, width, 0>;
                    const uint64_t at_i = u + (i / 4 * Stage::box_bytes + i % 4 * 32) / 16;
                    if constexpr (zeros) Product::run(sum, h[step * 4 * Stage::boxes + i], at_i);
                    else Product::run(sum, h[step * 4 * Stage::boxes + i], at_i, step + i > 0);
                }
                sm90::wgmma_commit();
                if (step + 1 < Stage::steps) at.advance();
            }
            if (in_turn && (consumer == 0 || nth + 1 < tiles)) group_arrive(3 - consumer, 256);
            // what is added comes while the products run: behind a store each load would wait for memory again
            const int tile = step_in_turn(first_tile, tiles, nth, turn);
            Vec<T, 8> added[2][width / 32] = {};
            if (p.add)
#pragma unroll
                for (int half = 0; half < 2; half++)
#pragma unroll
                    for (int j = 0; j < width / 8; j += 4) {
                        const int of = row + 8 * half, n = tile * columns + column0 + 8 * (j + quad);
                        if (of < p.m && n < p.n)
                            added[half][j / 4] = load_eight(p.add + (int64_t)of * p.n + n, p.vectors, p.n - n);
                    }
            static_assert(Stage::steps <= 2, "stages of a tile");
            if (Stage::steps == 2) {
                sm90::wgmma_wait<1>();
                release((at.stage + Stage::count - 1) % Stage::count);
            }
            sm90::wgmma_wait<0>();
            release(at.stage);
            at.advance();
            sm90::settle(sum);
            if constexpr (Stage::stores_boxes) {
                static_assert(width == 128, "two boxes, of which one may still be read");
                if (!p.add && p.vectors) {
                    char *const boxes = ring + Stage::ring_bytes + (consumer * 4 + warp) * 2 * Stage::result_box;
#pragma unroll
                    for (int i = 0; i < width / 64; i++) {
                        char *const box = boxes + i * Stage::result_box;
                        if (lane == 0) stores_read_but_one(); // this box, of the tile before
                        __syncwarp();
#pragma unroll
                        for (int j = 8 * i; j < 8 * i + 8; j += 2) { // 16 columns
                            unsigned words[4];
#pragma unroll
                            for (int e = 0; e < 4; e++)
                                words[e] = pack<T>(sum[4 * j + 2 * e] * p.scale, sum[4 * j + 2 * e + 1] * p.scale);
                            store_matrices(
                                box + lane % 16 * sm90::row_bytes + ((j % 8 + lane / 16) ^ lane % 8) * 16, words);
                        }
                        sm90::shared_writes_fence();
                        __syncwarp();
                        if (lane == 0) {
                            store_box(&out_map, box, tile * columns + 64 * i, row0 + consumer * 64 + warp * 16,
                                      sm90::leaves_first());
                            stores_commit();
                        }
                    }
                    continue;
                }
            }
            // The four lanes of a row exchange their elements, so that each lane has 8 neighbours.
#pragma unroll
            for (int half = 0; half < 2; half++) {
                uint4 last = make_uint4(0, 0, 0, 0);
#pragma unroll
                for (int j = 0; j < width / 8; j += 4) {
                    const int of = row + 8 * half, n = tile * columns + column0 + 8 * (j + quad);
                    const bool exists = of < p.m && n < p.n;
                    const int64_t place = (int64_t)of * p.n + n;
                    uint4 words;
                    if (p.add) { // rounded once: the sums go around in float32
                        unsigned low[4], high[4];
#pragma unroll
                        for (int i = 0; i < 4; i++)
                            low[i] = __float_as_uint(sum[4 * (j + i) + 2 * half]),
                            high[i] = __float_as_uint(sum[4 * (j + i) + 2 * half + 1]);
                        transpose_quad(low), transpose_quad(high);
                        Vec<T, 8> z = added[half][j / 4];
#pragma unroll
                        for (int i = 0; i < 4; i++) {
                            z.at[2 * i] = from_float<T>(to_float(z.at[2 * i]) + __uint_as_float(low[i]) * p.scale);
                            z.at[2 * i + 1] =
                                from_float<T>(to_float(z.at[2 * i + 1]) + __uint_as_float(high[i]) * p.scale);
                        }
                        words = *reinterpret_cast<const uint4 *>(&z);
                    } else {
                        unsigned w[4];
#pragma unroll
                        for (int i = 0; i < 4; i++)
                            w[i] = pack<T>(sum[4 * (j + i) + 2 * half] * p.scale,
                                           sum[4 * (j + i) + 2 * half + 1] * p.scale);
                        transpose_quad(w);
                        words = make_uint4(w[0], w[1], w[2], w[3]);
                    }
                    if (p.vectors) {
                        if (exists) *reinterpret_cast<uint4 *>(p.out + place) = words;
                    } else {
                        store_shifted(p.out + (int64_t)of * p.n, of < p.m, n, p.n - n, words, last, j == 0,
                                      j + 4 == width / 8);
                    }
                }
            }
        }
    }
    if (Stage::stores_boxes) stores_wait();
    if (cluster > 1) sm90::cluster_sync(); // the other block may still copy to this one, or read its sums
#endif
}

// A factor whose rows are whole vectors: as it is, or copied.
struct Factor {
    const void *at;
    int64_t stride;
};
struct Factors {
    Factor x, v, u;
};

template <class T, int RANKS, int ROWS>
vb_status launch_sm90(const vb_fused_update_args &a, const adapter_plan &plan, const Factors &f, vb_stream *stream) {
    constexpr bool always_pairs = RANKS == 64 && ROWS == 128; // adapter_sm90_plan: of more than half of the GPU
    const bool pairs = plan.cluster == 1 && plan.row_blocks > 1;
    const bool in_boxes =
        RANKS == 256 && a.codes && a.codes_stride > 0 && a.codes_stride % 8 == 0 && aligned16(a.codes);
    const bool in_pairs = a.r % 2 == 0 && a.codes_stride % 2 == 0 && (uintptr_t)a.codes % 4 == 0;
    const bool vectors = a.n % 8 == 0 && aligned16(a.out, a.add);
    const UpdateSm90<T> p = {(T *)a.out, (const T *)a.add, (const T *)a.codes, (int)a.m, (int)a.k, (int)a.n, (int)a.r,
                             a.codes_stride, a.scale, plan.cluster, in_boxes, in_pairs, vectors, a.v_transposed != 0};
    CUtensorMap x, v, u, out = {}, codes = {};
    VB_TRY(sm90::tensor_map(&x, f.x.at, a.type, a.k, a.m, f.x.stride, ROWS, stream));
    if (p.v_kmajor) VB_TRY(sm90::tensor_map(&v, f.v.at, a.type, a.k, a.r, f.v.stride, RANKS / (pairs ? 2 : 1), stream));
    else VB_TRY(sm90::tensor_map(&v, f.v.at, a.type, a.r, a.k, f.v.stride, product_depth / (pairs ? 2 : 1), stream));
    VB_TRY(sm90::tensor_map(&u, f.u.at, a.type, a.r, a.n, f.u.stride, columns / (pairs ? 2 : 1), stream));
    if (vectors) VB_TRY(sm90::tensor_map(&out, a.out, a.type, a.n, a.m, a.n, 16, stream));
    if (in_boxes) VB_TRY(sm90::tensor_map(&codes, a.codes, a.type, a.r, a.m, a.codes_stride, ROWS, stream));
    const int64_t blocks = pairs ? ceil_div<int64_t>(plan.row_blocks, 2) * 2 : plan.row_blocks * plan.cluster;
    const dim3 grid((unsigned)blocks, (unsigned)plan.column_blocks);
    return launch_cluster(stream, pairs ? 2 : plan.cluster, grid, product_threads,
                          UpdateStage<RANKS, ROWS>::shared_bytes,
                          pairs ? fused_update_sm90_kernel<T, RANKS, ROWS, true>
                                : fused_update_sm90_kernel<T, RANKS, ROWS, always_pairs>,
                          x, v, u, out, codes, p);
}

template <class T>
vb_status launch_sm90(const vb_fused_update_args &a, const adapter_plan &plan, const Factors &f, vb_stream *stream) {
    if (plan.row_tiles == 4) return launch_sm90<T, 64, 64>(a, plan, f, stream);
    return plan.rank_tiles == 8    ? launch_sm90<T, 64, 128>(a, plan, f, stream)
           : plan.rank_tiles == 16 ? launch_sm90<T, 128, 128>(a, plan, f, stream)
                                   : launch_sm90<T, 256, 128>(a, plan, f, stream);
}

// U [r][n] as rows of whole vectors [n][eights * 8]: a thread has eight ranks of a column.
__global__ void __launch_bounds__(256) turn_kernel(uint4 *to, const unsigned short *u, int n, int r, int eights) {
    wait_for_previous_kernel();
    release_next_kernel();
    const int column = (int)blockIdx.x * 256 + threadIdx.x, first = (int)blockIdx.y * 8;
    if (column >= n) return;
    unsigned words[4] = {};
#pragma unroll
    for (int e = 0; e < 8; e++)
        if (first + e < r) words[e / 2] |= (unsigned)u[(int64_t)(first + e) * n + column] << e % 2 * 16;
    to[(int64_t)column * eights + blockIdx.y] = make_uint4(words[0], words[1], words[2], words[3]);
}

// Copies factors whose rows are no whole vectors, or U that is transposed, to the workspace.
vb_status copy_factors(Factors *f, const vb_fused_update_args &a, vb_stream *stream) {
    struct {
        Factor *factor;
        int64_t rows;
    } const of[] = {{&f->x, a.m}, {&f->v, a.v_transposed ? a.r : a.k}, {&f->u, a.n}};
    PaddedRows rows[3];
    int64_t bytes = 0, padded = 0;
    for (int i = 0; i < 3; i++) {
        const int64_t columns = of[i].factor->stride;
        const bool whole = columns % 8 == 0 && aligned16(of[i].factor->at), turns = i == 2 && a.u_transposed;
        rows[i] = {1, 1, whole && !turns ? 0 : of[i].rows, columns, 0, 0, columns};
        bytes += rows[i].bytes();
        if (!turns) padded += rows[i].bytes();
    }
    if (bytes == 0) return VB_OK;
    char *memory;
    VB_TRY(workspace((void **)&memory, bytes, stream));
    const void *const from[] = {f->x.at, f->v.at, f->u.at};
    void *to[3];
    for (int i = 0; i < 3; i++) {
        to[i] = memory;
        memory += rows[i].bytes();
        if (rows[i].rows > 0) of[i].factor->at = to[i], of[i].factor->stride = rows[i].per_row() * 8;
    }
    if (a.u_transposed) {
        const int eights = (int)rows[2].per_row();
        VB_TRY(launch_overlapped(stream, dim3((unsigned)ceil_div<int64_t>(a.n, 256), (unsigned)eights), 256, 0,
                                 turn_kernel, (uint4 *)to[2], (const unsigned short *)a.u, (int)a.n, (int)a.r, eights));
        rows[2].rows = 0;
    }
    if (padded == 0) return VB_OK;
    return pad_rows<false>(stream, PadCopy(to[0], from[0], rows[0]), PadCopy(to[1], from[1], rows[1]),
                           PadCopy(to[2], from[2], rows[2]));
}

} // namespace

vb_status fused_update_sm90(const vb_fused_update_args &a, const adapter_plan &plan, vb_stream *stream) {
    Factors f = {{a.x, a.k}, {a.v, a.v_transposed ? a.k : a.r}, {a.u, a.r}};
    VB_TRY(copy_factors(&f, a, stream));
    return a.type == VB_F16 ? launch_sm90<half>(a, plan, f, stream) : launch_sm90<bf16>(a, plan, f, stream);
}

#endif

} // namespace vb
