// attention_prefill_sm90.cu: attention of many query rows over a 16-bit cache on Hopper (FlashAttention-3, Shah et al.
// 2024).
//
//   grid     one block an SM, which takes tiles of 128 packed query rows from a counter, tiles with the most keys first
//   block    three warpgroups: a warp of the first copies keys, values and 16-bit queries by TMA, the other two take up
//            to 64 rows each, of whole groups of heads. SHARED_ROWS, where all tiles of 64 rows run at once: both take
//            the same rows and every second block of keys, and exchange sums of half of the columns in the end
//   shared   queries [128][DIMS], of two tiles for up to 128 dimensions, then rings of keys and of values [KEYS][DIMS],
//            16-bit, swizzled: 192 KiB for 128 dimensions (two stages of 128 keys) and 256, 160 for 64 (four stages)
//            SHARED_ROWS: queries [64][DIMS], four stages of 64 keys, sums; 180 KiB for 128 dimensions, 156 for 64
//   moves    queries and outputs once, keys and values once a tile (mostly from L2); 4 FLOPs a query element and key
//   bound    tensor cores. Exponentials take half of their time, hidden by the next keys' products and by turns
//   measured docs/experiments/2026-11-22-attention.md

#include "attention/attention.cuh"
#include "linear/linear.cuh"
#include "arch/mma.cuh"
#include "arch/sm90.cuh"
#include "arch/unaligned.cuh"

// Scores and outputs are wgmma accumulators. The scores, rounded to 16 bits in pairs, are the left factor of the
// product with the values without leaving their registers. Exponentials are hidden twice.
// First, a warpgroup's products with the next keys run during its softmax. Second, the warpgroups take turns at
// starting products.
// The softmax is online. Its running maximum follows a row's scores only when they exceed it by a factor of 2^8.
// 16-bit weights and float32 sums bear the factor, and outputs are then seldom rescaled.

namespace vb {

#ifdef VB_WITH_SM90

namespace {

constexpr int rows_per_group = 64; // query rows of a warpgroup
constexpr int consumers = 2;
constexpr int threads = 128 * (consumers + 1);
enum Barrier { TURN = 1, OWN = TURN + consumers }; // named barriers: one of each a consumer

// The consumers take 64 rows each of a tile. SHARED_ROWS: both take the same rows, and every second block of keys.
template <int DIMS, bool SHARED_ROWS>
struct PrefillTile {
    static constexpr int rows = SHARED_ROWS ? rows_per_group : rows_per_group * consumers;
    static constexpr int keys = DIMS == 64 || (DIMS == 128 && !SHARED_ROWS) ? 128 : 64;
    static_assert(ATTENTION_PREFILL_SM90_KEYS % keys == 0, "a ring has a whole number of blocks");
    static constexpr int stages = keys * DIMS <= 8192 ? 4 : 2;
    static constexpr int query_bytes = rows * DIMS * 2, tile_bytes = keys * DIMS * 2;
    // The next tile's queries are copied once the last product with this tile's is done, or to a second place.
    static constexpr int query_tiles = !SHARED_ROWS && DIMS <= 128 ? 2 : 1;
    static constexpr int exchange_vectors = DIMS / 16 + 1; // half of a thread's outputs, and its rows' maxima and sums
    static constexpr int exchange_bytes = SHARED_ROWS ? consumers * exchange_vectors * 128 * 16 : 0;
    static constexpr int shared_bytes = sm90::swizzle_bytes + query_tiles * query_bytes + 2 * stages * tile_bytes +
                                        exchange_bytes;
};

// The type of outputs that become an operand of a product with packed weights. The halves of each 16 columns lie in the
// order of linear/packed/many.cuh.
struct Operand {
    half bits;
};

// Key heads of all sequences.
struct Heads {
    unsigned all;
    Reciprocal by_all, by_kv_heads;
};

#ifdef VB_SM90A

// The keys of a tile, and the block's next tile.
struct Job {
    int lo, hi;
    unsigned next;
};

struct TileOf {
    unsigned b, kv_head, first_row;
    VB_DEVICE TileOf(const AttentionShape &a, unsigned tile, Heads heads, unsigned tile_rows) {
        const unsigned from_last = heads.by_all.quotient(tile), head = tile - from_last * heads.all;
        b = heads.by_kv_heads.quotient(head);
        kv_head = head - b * (unsigned)a.kv_heads;
        first_row = (a.tiles - 1 - from_last) * tile_rows;
    }
};

// A position in a ring of stages, and the parity of its barriers' phase.
template <int STAGES>
struct RingPosition {
    static_assert((STAGES & (STAGES - 1)) == 0, "the count wraps around");
    unsigned count = 0;
    VB_DEVICE int stage() const { return count % STAGES; }
    VB_DEVICE unsigned phase() const { return count / STAGES & 1; }
    VB_DEVICE void advance(unsigned by = 1) { count += by; }
};

// The union of the keys of tokens first..last, in every lane of the warp.
VB_DEVICE KeyRange keys_of_tokens(const AttentionShape &a, unsigned b, unsigned first, unsigned last) {
    int lo = INT32_MAX, hi = 0;
    for (unsigned s = first + threadIdx.x % 32; s <= last; s += 32) {
        const KeyRange keys = keys_of(a, b, s);
        lo = smaller(lo, keys.lo);
        hi = larger(hi, keys.hi);
    }
#pragma unroll
    for (int offset = 16; offset > 0; offset /= 2) {
        lo = smaller(lo, __shfl_xor_sync(all_lanes, lo, offset));
        hi = larger(hi, __shfl_xor_sync(all_lanes, hi, offset));
    }
    return {smaller(lo, hi), hi};
}

// Writes a row of which this thread holds out[4 * j + {0, 1}] of columns 8 * j + 2 * quad + {0, 1}; all lanes of the
// quad call. Neighbours exchange, so that each lane writes 16 bytes.
template <int DIMS>
VB_DEVICE void store_row(float *target, const float (&out)[DIMS / 2], int h, float norm, int dim, bool valid) {
    const int quad = threadIdx.x % 4;
    const bool odd = quad & 1;
#pragma unroll
    for (int j = 0; j < DIMS / 8; j += 2) {
        float own[2], other[2];
#pragma unroll
        for (int e = 0; e < 2; e++) {
            const float x = out[4 * j + 2 * h + e] * norm, y = out[4 * j + 4 + 2 * h + e] * norm;
            own[e] = odd ? y : x;
            other[e] = __shfl_xor_sync(all_lanes, odd ? x : y, 1);
        }
        const int at = 8 * (j + odd) + quad / 2 * 4;
        if (valid && at < dim)
            *reinterpret_cast<float4 *>(target + at) =
                odd ? make_float4(other[0], other[1], own[0], own[1]) : make_float4(own[0], own[1], other[0], other[1]);
    }
}
// The pairs of quads 0 and 2 lie together, and the pairs of quads 1 and 3: of 32 columns each lane writes a half of 16.
template <int DIMS>
VB_DEVICE void store_row(Operand *target, const float (&out)[DIMS / 2], int h, float norm, int dim, bool valid) {
    const int quad = threadIdx.x % 4, second = quad / 2;
#pragma unroll
    for (int j = 0; j < DIMS / 8; j += 4) {
        unsigned w[4];
#pragma unroll
        for (int i = 0; i < 4; i++)
            w[i] = pack<half>(out[4 * (j + i) + 2 * h] * norm, out[4 * (j + i) + 2 * h + 1] * norm);
        unsigned own[2], other[2];
#pragma unroll
        for (int i = 0; i < 2; i++) {
            own[i] = second ? w[2 + i] : w[i];
            other[i] = __shfl_xor_sync(all_lanes, second ? w[i] : w[2 + i], 2);
        }
        const int at = 8 * j + second * 16 + quad % 2 * 8;
        if (valid && at < dim)
            *reinterpret_cast<uint4 *>(target + at) = second ? make_uint4(other[0], own[0], other[1], own[1])
                                                             : make_uint4(own[0], other[0], own[1], other[1]);
    }
}
// 16-bit: the quad transposes its words, so that each lane writes 16 bytes.
template <int DIMS, class TQ>
VB_DEVICE void store_row(TQ *target, const float (&out)[DIMS / 2], int h, float norm, int dim, bool valid) {
    const int quad = threadIdx.x % 4;
#pragma unroll
    for (int j = 0; j < DIMS / 8; j += 4) {
        unsigned w[4];
#pragma unroll
        for (int i = 0; i < 4; i++)
            w[i] = pack<TQ>(out[4 * (j + i) + 2 * h] * norm, out[4 * (j + i) + 2 * h + 1] * norm);
        transpose_quad(w);
        const int at = 8 * (j + quad);
        if (valid && at < dim) *reinterpret_cast<uint4 *>(target + at) = make_uint4(w[0], w[1], w[2], w[3]);
    }
}

#endif // VB_SM90A

// tickets[0] counts the tiles taken, tickets[1] the blocks that are done; both are 0 between kernels. A consumer takes
// `own_rows` rows. Where `tokens` is not 0, they are boxes of q_map of so many tokens, else threads copy queries.
template <class TQ, class TO, class TKV, int DIMS, bool SHARED_ROWS>
__global__ void __launch_bounds__(threads, 1)
    attention_prefill_sm90_kernel(VB_IN_PLACE CUtensorMap q_map, VB_IN_PLACE CUtensorMap k_map,
                                  VB_IN_PLACE CUtensorMap v_map, const AttentionShape a, int own_rows,
                                  int tokens, const Heads heads, unsigned *tickets, unsigned *flags) {
#ifdef VB_SM90A
    using Tile = PrefillTile<DIMS, SHARED_ROWS>;
    // of a stage: one a warp
    constexpr int KEYS = Tile::keys, stages = Tile::stages, releases = SHARED_ROWS ? 4 : 4 * consumers;
    using Ring = RingPosition<stages>;
    extern __shared__ char shared[];
    __shared__ uint64_t k_full[stages], k_empty[stages], v_full[stages], v_empty[stages], job_full[2], job_empty[2];
    using QueryRing = RingPosition<Tile::query_tiles>;
    const bool boxes = sizeof(TQ) == 2 && tokens > 0;
    const unsigned tile_rows = SHARED_ROWS ? own_rows : own_rows * consumers;
    __shared__ uint64_t q_full[Tile::query_tiles], q_empty[Tile::query_tiles];
    __shared__ uint64_t exchanged; // completes once a tile: the sums of both consumers can be read
    __shared__ Job jobs[2];
    char *const q_tile =
        shared + (sm90::swizzle_bytes - shared_address(shared) % sm90::swizzle_bytes) % sm90::swizzle_bytes;
    char *const k_ring = q_tile + Tile::query_tiles * Tile::query_bytes;
    char *const v_ring = k_ring + stages * Tile::tile_bytes;
    const int group = __shfl_sync(all_lanes, threadIdx.x / 128, 0); // the compiler then knows it to be uniform
    const int lane = threadIdx.x % 32;
    const unsigned tiles = a.tiles * heads.all;

    if (threadIdx.x == 0) {
        if (boxes) sm90::prefetch_map(&q_map);
        sm90::prefetch_map(&k_map);
        sm90::prefetch_map(&v_map);
        for (int s = 0; s < stages; s++) {
            sm90::barrier_init(&k_full[s], 1);
            sm90::barrier_init(&v_full[s], 1);
            sm90::barrier_init(&k_empty[s], releases);
            sm90::barrier_init(&v_empty[s], releases);
        }
        for (int s = 0; s < 2; s++) {
            sm90::barrier_init(&job_full[s], 1);
            sm90::barrier_init(&job_empty[s], 4 * consumers);
        }
        for (int s = 0; s < Tile::query_tiles; s++) {
            sm90::barrier_init(&q_full[s], 1);
            sm90::barrier_init(&q_empty[s], 4 * consumers);
        }
        sm90::barrier_init(&exchanged, 128 * consumers);
        sm90::barrier_init_fence();
    }
    __syncthreads();
    wait_for_previous_kernel();
    release_next_kernel();
    if (flags && blockIdx.x == 0 && threadIdx.x < half_flags) flags[threadIdx.x] = 0;

    if (group == 0) {
        sm90::registers_shrink<40>();
        if (threadIdx.x < 32) {
            Ring k_at, v_at;
            RingPosition<2> job_at;
            QueryRing q_at;
            for (unsigned tile = blockIdx.x; tile < tiles; job_at.advance()) {
                unsigned next = tiles;
                if (lane == 0 && gridDim.x < tiles) next = gridDim.x + atomicAdd(tickets, 1);
                const TileOf place(a, tile, heads, tile_rows);
                const unsigned end = smaller(place.first_row + tile_rows, a.rows);
                const KeyRange all = keys_of_tokens(a, place.b, token_of(a, place.first_row), token_of(a, end - 1));
                const int outer = int((a.sequences ? a.sequences[place.b] : place.b) * a.kv_heads + place.kv_head);
                if (lane == 0) {
                    sm90::barrier_wait(&job_empty[job_at.stage()], job_at.phase() ^ 1);
                    jobs[job_at.stage()] = {all.lo, all.hi, next};
                    sm90::barrier_arrive(&job_full[job_at.stage()]);
                    const auto load = [&](char *ring, Ring &at, uint64_t *full, uint64_t *empty, const CUtensorMap *map,
                                          int block) {
                        char *const to = ring + at.stage() * Tile::tile_bytes;
                        // a ring has a whole number of blocks
                        const int row = a.ring ? (int)((unsigned)(block * KEYS) % (unsigned)a.kv_capacity)
                                               : block * KEYS;
                        sm90::barrier_wait(&empty[at.stage()], at.phase() ^ 1);
                        sm90::barrier_expect(&full[at.stage()], Tile::tile_bytes);
#pragma unroll
                        for (int i = 0; i < DIMS / 64; i++)
                            sm90::copy_box(to + i * KEYS * sm90::row_bytes, map, &full[at.stage()], 64 * i, row,
                                           outer);
                        at.advance();
                    };
                    const auto load_queries = [&] {
                        if (!boxes) return;
                        constexpr int parts = Tile::rows / rows_per_group;
                        char *const to = q_tile + q_at.stage() * Tile::query_bytes;
                        sm90::barrier_wait(&q_empty[q_at.stage()], q_at.phase() ^ 1);
                        sm90::barrier_expect(&q_full[q_at.stage()], parts * DIMS * own_rows * 2);
#pragma unroll
                        for (int i = 0; i < parts * (DIMS / 64); i++)
                            sm90::copy_box(to + i * rows_per_group * sm90::row_bytes, &q_map, &q_full[q_at.stage()],
                                           {i % (DIMS / 64) * 64, 0,
                                            int(token_of(a, place.first_row)) + i / (DIMS / 64) * tokens,
                                            (int)place.kv_head, (int)place.b});
                        q_at.advance();
                    };
                    // From the last keys to the first, as the consumers need them.
                    const int first = all.lo / KEYS, last = all.hi > all.lo ? (all.hi - 1) / KEYS : first - 1;
                    for (int block = last; block >= first; block--) {
                        load(k_ring, k_at, k_full, k_empty, &k_map, block);
                        if (block < last) load(v_ring, v_at, v_full, v_empty, &v_map, block + 1);
                        else load_queries();
                    }
                    if (last < first) load_queries();
                    if (last >= first) load(v_ring, v_at, v_full, v_empty, &v_map, first);
                }
                tile = __shfl_sync(all_lanes, next, 0);
            }
            if (lane == 0 && gridDim.x < tiles && atomicAdd(tickets + 1, 1) == gridDim.x - 1)
                tickets[0] = 0, tickets[1] = 0;
        }
    } else {
        sm90::registers_grow<232>();
        using Scores = sm90::Wgmma<TKV, KEYS, 0>;
        using Outputs = sm90::WgmmaRegisters<TKV, DIMS, 1>;
        const int consumer = group - 1, warp = threadIdx.x % 128 / 32, g = lane / 4, c = lane % 4;
        const float minus_infinity = __uint_as_float(0xff800000u), cap = a.soft_cap * log2_e;
        const float scale = cap > 0.0f ? 1.0f : a.scale * log2_e; // capped scores are scaled before
        constexpr int writers = SHARED_ROWS ? 128 * consumers : 128; // of the same queries
        const int writer = SHARED_ROWS ? consumer * 128 + threadIdx.x % 128 : threadIdx.x % 128;
        const auto writers_sync = [&] {
            if (SHARED_ROWS) group_sync<TURN, writers>();
            else group_sync(OWN + consumer, writers);
        };
        char *const queries = q_tile + (SHARED_ROWS ? 0 : consumer * rows_per_group * DIMS * 2);
        const auto release = [&](uint64_t *empty) {
            if (lane == 0) sm90::barrier_arrive(empty);
        };
        // the first turn belongs to the first warpgroup
        if (!SHARED_ROWS && consumer == consumers - 1) group_arrive(TURN, 256);
        Ring k_at, v_at;
        RingPosition<2> job_at;
        for (unsigned tile = blockIdx.x; tile < tiles; job_at.advance()) {
            const TileOf place(a, tile, heads, tile_rows);
            const unsigned first_row = place.first_row + (SHARED_ROWS ? 0 : consumer * own_rows);
            const int rows = smaller((int)a.rows - (int)first_row, own_rows), dim = (int)a.dim; // may be negative

            constexpr int chunks = DIMS / 8, copies = rows_per_group * chunks / writers;
            const QueryRing q_at{job_at.count};
            const uint64_t q_operand = sm90::describe(queries + q_at.stage() * Tile::query_bytes, 0);
            if (!boxes) { // while the tile's keys are looked for
                uint4 query[copies];
#pragma unroll
                for (int i = 0; i < copies; i++) {
                    const int item = i * writers + writer, row = item / chunks, d = item % chunks * 8;
                    const int64_t from = query_offset(a, place.b, place.kv_head, first_row + row) + d;
                    query[i] = row < rows && d < dim ? pack_eight<TKV>((const TQ *)a.q + from) : make_uint4(0, 0, 0, 0);
                }
                writers_sync(); // the products with the queries before are done
#pragma unroll
                for (int i = 0; i < copies; i++) {
                    const int item = i * writers + writer, row = item / chunks, chunk = item % chunks;
                    *reinterpret_cast<uint4 *>(queries + q_at.stage() * Tile::query_bytes +
                                               chunk / 8 * rows_per_group * sm90::row_bytes +
                                               swizzled(row, chunk % 8, 8)) = query[i];
                }
                sm90::shared_writes_fence();
                writers_sync();
            }

            KeyRange seen[2]; // of rows g and g + 8 of the warp
#pragma unroll
            for (int h = 0; h < 2; h++) {
                const int row = warp * 16 + g + 8 * h;
                if (a.causal && row < rows) seen[h] = keys_of(a, place.b, token_of(a, first_row + row));
            }
            sm90::barrier_wait(&job_full[job_at.stage()], job_at.phase());
            const Job job = jobs[job_at.stage()];
            __syncwarp();
            release(&job_empty[job_at.stage()]);
            tile = job.next;
            KeyRange common = {job.lo, job.hi}; // the keys that all 16 rows of the warp see
#pragma unroll
            for (int h = 0; h < 2; h++) {
                if (!a.causal || warp * 16 + g + 8 * h >= rows) seen[h] = {job.lo, job.hi};
                common = {larger(common.lo, seen[h].lo), smaller(common.hi, seen[h].hi)};
            }
            if (a.causal) {
#pragma unroll
                for (int offset = 16; offset > 0; offset /= 2) {
                    common.lo = larger(common.lo, __shfl_xor_sync(all_lanes, common.lo, offset));
                    common.hi = smaller(common.hi, __shfl_xor_sync(all_lanes, common.hi, offset));
                }
            }

            float score[KEYS / 2], out[DIMS / 2];
            unsigned weights[KEYS / 16][4];
            float max[2] = {minus_infinity, minus_infinity}, sum[2] = {0.0f, 0.0f}, keep[2];
#pragma unroll
            for (int i = 0; i < DIMS / 2; i++) out[i] = 0.0f;

            const auto multiply_keys = [&] {
                const uint64_t k = sm90::describe(k_ring + k_at.stage() * Tile::tile_bytes, 0);
                // In the descriptor's units of 16 bytes: 16 dimensions are 2, a block of 64 dimensions all of its rows.
#pragma unroll
                for (int i = 0; i < DIMS / 16; i++)
                    Scores::run(score, q_operand + i / 4 * (rows_per_group * sm90::row_bytes / 16) + i % 4 * 2,
                                k + i / 4 * (KEYS * sm90::row_bytes / 16) + i % 4 * 2, i > 0);
                sm90::wgmma_commit();
            };
            const auto multiply_values = [&] {
                const uint64_t v = sm90::describe(v_ring + v_at.stage() * Tile::tile_bytes, KEYS * sm90::row_bytes);
#pragma unroll
                for (int i = 0; i < KEYS / 16; i++) Outputs::run(out, weights[i], v + i * 16 * sm90::row_bytes / 16);
                sm90::wgmma_commit();
            };
            // Scores of a block of keys become weights; the sums so far shrink by keep[].
            const auto soften = [&](int base) {
                if (cap > 0.0f) {
#pragma unroll
                    for (int i = 0; i < KEYS / 2; i++) score[i] = capped(score[i] * (a.scale * log2_e), cap);
                }
                if (base < common.lo || base + KEYS > common.hi) {
#pragma unroll
                    for (int i = 0; i < KEYS / 2; i++) {
                        const int key = base + i / 4 * 8 + 2 * c + i % 2, h = i / 2 % 2;
                        if (key < seen[h].lo || key >= seen[h].hi) score[i] = minus_infinity;
                    }
                }
#pragma unroll
                for (int h = 0; h < 2; h++) {
                    float greatest = minus_infinity;
#pragma unroll
                    for (int i = 2 * h; i < KEYS / 2; i += 4)
                        greatest = Max::combine(greatest, Max::combine(score[i], score[i + 1]));
                    greatest = Max::combine(greatest, __shfl_xor_sync(all_lanes, greatest, 1));
                    greatest = Max::combine(greatest, __shfl_xor_sync(all_lanes, greatest, 2)) * scale;
                    keep[h] = 1.0f;
                    if (!(greatest <= max[h] + 8.0f)) { // NaN too
                        keep[h] = exp2_fast(max[h] - greatest);
                        max[h] = greatest;
                    }
                    const float from = max[h] == minus_infinity ? 0.0f : max[h];
                    float part = 0.0f;
#pragma unroll
                    for (int i = 2 * h; i < KEYS / 2; i += 4) {
                        score[i] = exp2_fast(fmaf(score[i], scale, -from));
                        score[i + 1] = exp2_fast(fmaf(score[i + 1], scale, -from));
                        part += score[i] + score[i + 1];
                    }
                    sum[h] = sum[h] * keep[h] + part;
                }
            };
            const auto pack_weights = [&] {
#pragma unroll
                for (int i = 0; i < KEYS / 16; i++)
#pragma unroll
                    for (int j = 0; j < 4; j++)
                        weights[i][j] = pack<TKV>(score[8 * i + 2 * j], score[8 * i + 2 * j + 1]);
            };

            const int first = job.lo / KEYS, last = job.hi > job.lo ? (job.hi - 1) / KEYS : first - 1;
            constexpr int step = SHARED_ROWS ? consumers : 1;
            const Ring end{k_at.count + (last - first + 1)};
            int block = last;
            if (SHARED_ROWS) block -= consumer, k_at.advance(consumer), v_at.advance(consumer);
            // After the last product with the queries.
            const auto release_queries = [&] {
                if (boxes && block - step < first) release(&q_empty[q_at.stage()]);
            };
            if (boxes) sm90::barrier_wait(&q_full[q_at.stage()], q_at.phase());
            if (block < first) release_queries();
            if (block >= first) {
                sm90::barrier_wait(&k_full[k_at.stage()], k_at.phase());
                sm90::wgmma_fence();
                multiply_keys();
                sm90::wgmma_wait<0>();
                sm90::settle(score);
                release(&k_empty[k_at.stage()]);
                release_queries();
                k_at.advance(step);
                soften(block * KEYS);
                pack_weights();
                // Rows that no query of the tile sees may hold anything, even NaN, which a weight of 0 does not cancel.
                // Without positions all rows below kv_len are values, and the rows beyond are zeros.
                // Both consumers write the zeros of a block that they share: its readers see zeros before and after.
                const int valid = job.hi - block * KEYS;
                if (a.positions && valid < KEYS && job.hi < a.kv_len) {
                    sm90::barrier_wait(&v_full[v_at.stage()], v_at.phase());
                    char *const v = v_ring + v_at.stage() * Tile::tile_bytes;
                    for (int item = threadIdx.x % 128; item < (KEYS - valid) * chunks; item += 128) {
                        const int row = valid + item / chunks, chunk = item % chunks;
                        *reinterpret_cast<uint4 *>(v + (chunk / 8 * KEYS + row) * sm90::row_bytes + chunk % 8 * 16) =
                            make_uint4(0, 0, 0, 0);
                    }
                    sm90::shared_writes_fence();
                    group_sync(OWN + consumer, 128);
                }
                while ((block -= step) >= first) {
                    sm90::barrier_wait(&k_full[k_at.stage()], k_at.phase());
                    if (!SHARED_ROWS) group_sync(TURN + consumer, 256);
                    sm90::wgmma_fence();
                    multiply_keys();
                    sm90::barrier_wait(&v_full[v_at.stage()], v_at.phase());
                    multiply_values();
                    if (!SHARED_ROWS) group_arrive(TURN + (consumer + 1) % consumers, 256);
                    sm90::wgmma_wait<1>();
                    sm90::settle(score);
                    release(&k_empty[k_at.stage()]);
                    release_queries();
                    k_at.advance(step);
                    soften(block * KEYS);
                    sm90::wgmma_wait<0>();
                    sm90::settle(out);
                    sm90::settle(weights);
                    release(&v_empty[v_at.stage()]);
                    v_at.advance(step);
                    if (__any_sync(all_lanes, keep[0] != 1.0f || keep[1] != 1.0f)) {
#pragma unroll
                        for (int i = 0; i < DIMS / 2; i++) out[i] *= keep[i / 2 % 2];
                    }
                    pack_weights();
                }
                sm90::barrier_wait(&v_full[v_at.stage()], v_at.phase());
                sm90::wgmma_fence();
                multiply_values();
                sm90::wgmma_wait<0>();
                sm90::settle(out);
                release(&v_empty[v_at.stage()]);
                v_at.advance(step);
            }
            k_at = v_at = end;
            const auto target = [&](int h) {
                const int row = warp * 16 + g + 8 * h;
                return (TO *)a.out + (row < rows ? query_offset(a, place.b, place.kv_head, first_row + row) : 0);
            };
            const auto valid = [&](int h) { return warp * 16 + g + 8 * h < rows; };
            // no key: zeros; NaN stays
            const auto norm_of = [](float total) { return total > 0.0f ? 1.0f / total : total; };
            const auto with_sink_of = [&](int h, float max, float total) {
                const int row = warp * 16 + g + 8 * h;
                return row < rows ? total_of(a, place.kv_head, first_row + row, max, total) : total;
            };
            float total[2];
#pragma unroll
            for (int h = 0; h < 2; h++) total[h] = warp_reduce<Sum, 4>(sum[h]);
            // Each gets the other's half of the columns that it writes. A block has one tile, so that no other sums
            // follow. (An mbarrier: racecheck does not see the order that bar.sync gives here.)
            if constexpr (SHARED_ROWS) {
                constexpr int part = DIMS / 4;
                float4 *const exchange =
                    reinterpret_cast<float4 *>(v_ring + stages * Tile::tile_bytes) + threadIdx.x % 128;
                const auto slot = [&](int from, int i) { return exchange + (from * Tile::exchange_vectors + i) * 128; };
                *slot(consumer, part / 4) = make_float4(max[0], max[1], total[0], total[1]);
#pragma unroll
                for (int i = 0; i < part; i += 4)
                    *slot(consumer, i / 4) =
                        consumer ? make_float4(out[i], out[i + 1], out[i + 2], out[i + 3])
                                 : make_float4(out[part + i], out[part + i + 1], out[part + i + 2], out[part + i + 3]);
                sm90::barrier_arrive(&exchanged);
                sm90::barrier_wait(&exchanged, job_at.count & 1);
                const float4 stats = *slot(1 - consumer, part / 4);
                float own[2], other[2], mine[part];
#pragma unroll
                for (int h = 0; h < 2; h++) {
                    const float their_max = h ? stats.y : stats.x, greatest = Max::combine(max[h], their_max);
                    const float from = greatest == minus_infinity ? 0.0f : greatest;
                    own[h] = exp2_fast(max[h] - from), other[h] = exp2_fast(their_max - from);
                    total[h] = with_sink_of(h, greatest, total[h] * own[h] + (h ? stats.w : stats.z) * other[h]);
                }
#pragma unroll
                for (int i = 0; i < part; i += 4) {
                    const float4 v = *slot(1 - consumer, i / 4);
                    const float theirs[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
                    for (int e = 0; e < 4; e++)
                        mine[i + e] =
                            (consumer ? out[part + i + e] : out[i + e]) * own[e / 2] + theirs[e] * other[e / 2];
                }
                const int column = consumer * (DIMS / 2);
#pragma unroll
                for (int h = 0; h < 2; h++)
                    store_row<DIMS / 2>(target(h) + column, mine, h, norm_of(total[h]), dim - column, valid(h));
            } else {
#pragma unroll
                for (int h = 0; h < 2; h++)
                    store_row<DIMS>(target(h), out, h, norm_of(with_sink_of(h, max[h], total[h])), dim, valid(h));
            }
        }
    }
#endif
}

// Tokens whose queries, of all heads of a group, are copied as a box to a consumer's 64 rows. 0: copied by threads,
// where queries are converted, or whole groups leave more than four of 64 rows empty.
template <class TQ>
int tokens_of_box(const vb_attention_args &a) {
    const int64_t group = a.heads / a.kv_heads, tokens = rows_per_group / group;
    return sizeof(TQ) == 2 && tokens * group >= rows_per_group - 4 ? (int)tokens : 0;
}
template <class TQ>
int rows_of_group(const vb_attention_args &a) {
    const int tokens = tokens_of_box<TQ>(a);
    return tokens > 0 ? tokens * (int)(a.heads / a.kv_heads) : rows_per_group;
}

template <class TQ, class TO, class TKV, int DIMS, bool SHARED_ROWS>
vb_status launch_prefill(const vb_attention_args &a, vb_stream *stream, unsigned *flags = nullptr) {
    using Tile = PrefillTile<DIMS, SHARED_ROWS>;
    const int tokens = tokens_of_box<TQ>(a), own_rows = rows_of_group<TQ>(a);
    const AttentionShape shape = shape_of(a, Tile::rows / rows_per_group * own_rows);
    const int64_t all_heads = a.batch * a.kv_heads;
    const Heads heads = {(unsigned)all_heads, reciprocal_of(all_heads), reciprocal_of(a.kv_heads)};
    // Rows from kv_len on read as zeros. The sequences that there are only the device may know.
    const int64_t sizes[3] = {a.dim, smaller(a.kv_len, a.kv_capacity), a.sequences ? INT32_MAX : all_heads},
                  strides[2] = {a.dim, a.kv_capacity * a.dim};
    CUtensorMap q_map = {}, k_map, v_map;
    if (tokens > 0) {
        const int64_t group = a.heads / a.kv_heads, queries[5] = {a.dim, group, a.seq, a.kv_heads, a.batch};
        // Of one of them, the distance to the next may be anything.
        const int64_t apart[4] = {group > 1 ? a.q_head_stride : a.dim, a.seq > 1 ? a.q_row_stride : a.dim,
                                  a.kv_heads > 1 ? group * a.q_head_stride : a.dim,
                                  a.batch > 1 ? a.q_batch_stride : a.dim};
        VB_TRY(sm90::tensor_map<5>(&q_map, a.q, a.type, queries, apart, (int)group, stream, tokens));
    }
    VB_TRY(sm90::tensor_map(&k_map, a.k, a.kv_type, sizes, strides, Tile::keys, stream));
    VB_TRY(sm90::tensor_map(&v_map, a.v, a.kv_type, sizes, strides, Tile::keys, stream));
    return launch_overlapped(stream, smaller(shape.tiles * heads.all, (unsigned)multiprocessors(stream)), threads,
                             Tile::shared_bytes, attention_prefill_sm90_kernel<TQ, TO, TKV, DIMS, SHARED_ROWS>, q_map,
                             k_map, v_map, shape, own_rows, tokens, heads, counters(stream), flags);
}

// Where tiles of half as many rows can all run at once, the wait is half as long: half of the keys each.
template <class TQ, class TO, class TKV, int DIMS>
vb_status launch_prefill(const vb_attention_args &a, vb_stream *stream, unsigned *flags = nullptr) {
    if constexpr (DIMS <= 128) { // the exchanged sums find no room beside larger tiles
        const int64_t tiles = shape_of(a, rows_of_group<TQ>(a)).tiles * a.batch * a.kv_heads;
        if (tiles <= multiprocessors(stream)) return launch_prefill<TQ, TO, TKV, DIMS, true>(a, stream, flags);
    }
    return launch_prefill<TQ, TO, TKV, DIMS, false>(a, stream, flags);
}

template <class TQ, class TKV, class TO = TQ>
vb_status launch_prefill(const vb_attention_args &a, vb_stream *stream, unsigned *flags = nullptr) {
    if (a.dim <= 64) return launch_prefill<TQ, TO, TKV, 64>(a, stream, flags);
    if (a.dim <= 128) return launch_prefill<TQ, TO, TKV, 128>(a, stream, flags);
    return launch_prefill<TQ, TO, TKV, 256>(a, stream, flags);
}

} // namespace

vb_status attention_prefill_sm90(const vb_attention_args &a, vb_stream *stream) {
    if (a.type == VB_F32 && a.kv_type == VB_F16) return launch_prefill<float, half>(a, stream);
    if (a.type == VB_F32 && a.kv_type == VB_BF16) return launch_prefill<float, bf16>(a, stream);
    if (a.type == VB_F16 && a.kv_type == VB_F16) return launch_prefill<half, half>(a, stream);
    return launch_prefill<bf16, bf16>(a, stream);
}

vb_status attention_prefill_operand(const vb_attention_args &a, unsigned *flags, vb_stream *stream) {
    return launch_prefill<float, half, Operand>(a, stream, flags);
}

#endif

} // namespace vb
