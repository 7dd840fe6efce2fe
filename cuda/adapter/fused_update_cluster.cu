// fused_update_cluster.cu: out = add + scale * ((x V) * codes) U^T of any sizes, types and alignment on tensor cores
// (vb_fused_update_args).
//
//   grid     (blocks of ROWS rows * cluster, shares of the columns); a share computes x V again
//   block    warps that share k, then the columns. A cluster's blocks share the ranks (RANKS each), then k; and all its
//            columns. Parts of x V meet in shared memory. A block without a cluster has all ranks, RANKS after RANKS
//   shared   for each warp two stages: ROWS x 32 of x and 32 x RANKS of V; then 32 x RANKS of U. x V; its sums
//   moves    x once for RANKS ranks, V and U once for each ROWS rows, from L2; out and add once
//   flops    2 m r (k + n). F32 factors are two BF16 parts each: three products
//   bound    L2, or instructions; few rows: the latency of a chain: x and V, a meeting of the blocks, U, the result
//
// Copies take the aligned 16 bytes in which a row's elements lie, wherever the row begins. The warp then moves elements
// to their places ("settle"), and splits those of F32. Warps wait for each other only where parts of x V meet.

#include "adapter/factors.cuh"
#include "adapter/launchers.cuh"
#include "arch/cluster.cuh"
#include "arch/sm90.cuh"
#include "arch/unaligned.cuh"

namespace vb {
namespace {

// A matrix as it is stored, rows `stride` elements apart.
template <class S>
struct Stored {
    const S *at;
    int64_t stride;
    bool aligned; // all rows begin at multiples of 16 bytes
};

template <class T, class W>
struct ClusterProblem {
    T *out;
    const T *add, *codes;
    Stored<T> x;
    Stored<W> v, u;
    int m, k, n, r, cluster;
    int64_t codes_stride;
    float scale;
    bool v_transposed, u_transposed, vectors; // vectors: rows of out and add are whole vectors of 16 bytes
};

template <class T, int ROWS, int RANKS>
struct ClusterShape {
    static constexpr int planes = sizeof(T) == 4 ? 2 : 1; // BF16 parts of a factor
    // Bytes of rows of `side` elements and of RANKS: eight rows begin in different banks.
    static constexpr int side = ADAPTER_SQUARE; // of a square, along k or the columns
    static constexpr int plane = side * 2, pitch = planes * plane + 16, rank_plane = RANKS * 2,
                         rank_pitch = planes * rank_plane + 16;
    static constexpr int x_bytes = ROWS * pitch,
                         stage_bytes = x_bytes + larger(side * rank_pitch, RANKS * pitch);
    static constexpr int most = (planes == 1 ? 103 : RANKS == 16 ? 100 : 180) << 10; // bytes of stages, beside x V
    static constexpr int warps = smaller(8, most / (2 * stage_bytes)), threads = 32 * warps;
    static constexpr int row_tiles = ROWS / 16;
    static constexpr int sum_bytes = ROWS * RANKS * (int)sizeof(float);
    static_assert(larger(sum_bytes, 16 * (side + 4) * 4) <= stage_bytes, "in a stage's place");
};

// The element type of the tensor cores' factors.
template <class T>
struct Factor {
    using type = T;
};
template <>
struct Factor<float> {
    using type = bf16;
};

// A warp copies TALL rows of WIDE elements, of which `rows` and `cols` exist, to rows of PITCH bytes: from the aligned
// 16 bytes on in which a row begins. Zeros stand for the rest.
template <int TALL, int WIDE, int PITCH, class S>
VB_DEVICE void copy_square(unsigned to, const S *from, int64_t stride, bool aligned, int rows, int cols) {
    constexpr int chunks = WIDE * (int)sizeof(S) / 16, at_once = 32 / chunks, passes = (TALL + at_once - 1) / at_once;
    const int lane = threadIdx.x % 32, chunk = lane % chunks;
    const char *line = (const char *)(from + lane / chunks * stride);
    const int64_t step = at_once * stride * (int)sizeof(S);
    to += lane / chunks * PITCH + 16 * chunk;
    if (aligned && rows >= TALL && cols >= WIDE) {
        line += 16 * chunk;
#pragma unroll
        for (int i = 0; i < passes; i++, line += step)
            if (TALL % at_once == 0 || lane / chunks + i * at_once < TALL) copy_async(to + i * at_once * PITCH, line);
        return;
    }
    const char *const nowhere = (const char *)from - (uintptr_t)from % 16;
    const int bytes = smaller(cols, WIDE) * (int)sizeof(S);
#pragma unroll 1
    for (int i = 0; i < passes; i++, line += step, to += at_once * PITCH) {
        const int row = lane / chunks + i * at_once;
        if (TALL % at_once && row >= TALL) break;
        const int shift = (int)((uintptr_t)line % 16), left = (row < rows ? shift + bytes : 0) - 16 * chunk;
        copy_async_part(to, left > 0 ? line - shift + 16 * chunk : nowhere, smaller(16, larger(0, left)));
        if (shift && chunk == chunks - 1)
            copy_async_part(to + 16, left > 16 ? line - shift + 16 * chunk + 16 : nowhere,
                            smaller(16, larger(0, left - 16)));
    }
}

// Moves the elements of these rows to the places where products read them. PLANES parts of 16 bits each.
template <int TALL, int WIDE, int PITCH, int PLANES, class S>
VB_DEVICE void settle_square(char *square, const S *from, int64_t stride) {
    constexpr int eights = WIDE / 8, at_once = 32 / eights;
    const int lane = threadIdx.x % 32, eighth = lane % eights;
#pragma unroll 1
    for (int i = 0; i < (TALL + at_once - 1) / at_once; i++) {
        const int row = i * at_once + lane / eights;
        const bool has = TALL % at_once == 0 || row < TALL;
        char *const line = square + row * PITCH, *const eight = line + eighth * 8 * (int)sizeof(S);
        const unsigned shift = (unsigned)((uintptr_t)(from + row * stride) % 16);
        uint4 high = make_uint4(0, 0, 0, 0), low = high;
        if (has) {
            const uint4 first = *(const uint4 *)eight, second = *(const uint4 *)(eight + 16);
            if constexpr (sizeof(S) == 2) {
                high = bytes_from(first, second, shift);
                if constexpr (PLANES == 2) {
                    const S *const x = reinterpret_cast<const S *>(&high);
                    uint4 parts;
                    split_pair(to_float(x[0]), to_float(x[1]), parts.x, low.x);
                    split_pair(to_float(x[2]), to_float(x[3]), parts.y, low.y);
                    split_pair(to_float(x[4]), to_float(x[5]), parts.z, low.z);
                    split_pair(to_float(x[6]), to_float(x[7]), parts.w, low.w);
                    high = parts;
                }
            } else {
                const uint4 third = *(const uint4 *)(eight + 32);
                const uint4 a = bytes_from(first, second, shift), b = bytes_from(second, third, shift);
                split_pair(__uint_as_float(a.x), __uint_as_float(a.y), high.x, low.x);
                split_pair(__uint_as_float(a.z), __uint_as_float(a.w), high.y, low.y);
                split_pair(__uint_as_float(b.x), __uint_as_float(b.y), high.z, low.z);
                split_pair(__uint_as_float(b.z), __uint_as_float(b.w), high.w, low.w);
            }
        }
        __syncwarp(); // the row has been read
        if (has) {
            *(uint4 *)(line + 16 * eighth) = high;
            if (PLANES == 2) *(uint4 *)(line + 2 * WIDE + 16 * eighth) = low;
        }
    }
}

// sum += the products of ROW_TILES x 16 rows and 8 TILES columns. Planes of the left factor are a_plane bytes apart.
// `across`: the right factor is stored [depth][columns], else [columns][depth].
template <class F, int PLANES, int ROW_TILES, int TILES>
VB_DEVICE void multiply(float (&sum)[ROW_TILES][TILES][4], unsigned a, int a_pitch, int a_plane, unsigned b,
                        int b_pitch, int b_plane, bool across, int depth) {
    const int lane = threadIdx.x % 32;
    a += lane % 16 * a_pitch + lane / 16 * 16;
    b += across ? lane % 16 * b_pitch + lane / 16 * 16 : (lane % 8 + lane / 16 * 8) * b_pitch + lane / 8 % 2 * 16;
    const int b_step = across ? 16 * b_pitch : 32, b_tile = across ? 32 : 16 * b_pitch;
#pragma unroll 1
    for (int k = 0; k < depth; k += 16, a += 32, b += b_step) {
        unsigned x[ROW_TILES][PLANES][4];
#pragma unroll
        for (int i = 0; i < ROW_TILES; i++)
#pragma unroll
            for (int plane = 0; plane < PLANES; plane++)
                load_matrices(x[i][plane], a + plane * a_plane + i * 16 * a_pitch);
#pragma unroll
        for (int t = 0; t < TILES; t += 2) {
            unsigned y[PLANES][4];
#pragma unroll
            for (int plane = 0; plane < PLANES; plane++) {
                const unsigned at = b + plane * b_plane + t / 2 * b_tile;
                if (across) load_matrices_transposed(y[plane], at);
                else load_matrices(y[plane], at);
            }
#pragma unroll
            for (int i = 0; i < ROW_TILES; i++)
#pragma unroll
                for (int q = 0; q < 2; q++) {
                    if (PLANES == 2) {
                        mma<F>(sum[i][t + q], x[i][PLANES - 1], y[0][2 * q], y[0][2 * q + 1]);
                        mma<F>(sum[i][t + q], x[i][0], y[PLANES - 1][2 * q], y[PLANES - 1][2 * q + 1]);
                    }
                    mma<F>(sum[i][t + q], x[i][0], y[0][2 * q], y[0][2 * q + 1]);
                }
        }
    }
}

template <int ROW_TILES, int TILES>
VB_DEVICE void clear(float (&sum)[ROW_TILES][TILES][4]) {
#pragma unroll
    for (int i = 0; i < ROW_TILES; i++)
#pragma unroll
        for (int t = 0; t < TILES; t++)
#pragma unroll
            for (int e = 0; e < 4; e++) sum[i][t][e] = 0.0f;
}

// Writes 16 ROW_TILES rows and 8 TILES columns by one warp. `place` has room for 16 rows of floats.
template <class T, class W, int ROW_TILES, int TILES>
VB_DEVICE void store(const ClusterProblem<T, W> &p, const float (&sum)[ROW_TILES][TILES][4], float *place, int row0,
                     int column0) {
    const int lane = threadIdx.x % 32, g = lane / 4, c = lane % 4;
    if (sizeof(T) == 2 && p.vectors) { // the four lanes of a row exchange their elements: 8 neighbours each
#pragma unroll
        for (int i = 0; i < ROW_TILES; i++)
#pragma unroll
            for (int half = 0; half < 2; half++)
#pragma unroll
                for (int j = 0; j < TILES; j += 4) {
                    unsigned low[4], high[4];
#pragma unroll
                    for (int t = 0; t < 4; t++)
                        low[t] = __float_as_uint(sum[i][j + t][2 * half]),
                        high[t] = __float_as_uint(sum[i][j + t][2 * half + 1]);
                    transpose_quad(low), transpose_quad(high);
                    const int row = row0 + 16 * i + 8 * half + g, n = column0 + 8 * (j + c);
                    if (row >= p.m || n >= p.n) continue;
                    const int64_t at = (int64_t)row * p.n + n;
                    Vec<T, 16 / sizeof(T)> z = {};
                    if (p.add) z = *reinterpret_cast<const decltype(z) *>(p.add + at);
#pragma unroll
                    for (int e = 0; e < z.size; e++) {
                        const float y = __uint_as_float(e % 2 ? high[e / 2] : low[e / 2]) * p.scale;
                        z.at[e] = from_float<T>(p.add ? to_float(z.at[e]) + y : y);
                    }
                    *reinterpret_cast<decltype(z) *>(p.out + at) = z;
                }
        return;
    }
    // Neighbouring lanes write neighbouring columns.
    constexpr int width = 8 * TILES + 4, columns = TILES / 4; // columns of a lane
#pragma unroll
    for (int i = 0; i < ROW_TILES; i++) {
        __syncwarp();
#pragma unroll
        for (int t = 0; t < TILES; t++)
#pragma unroll
            for (int half = 0; half < 2; half++)
                *reinterpret_cast<float2 *>(place + (8 * half + g) * width + 8 * t + 2 * c) =
                    make_float2(sum[i][t][2 * half], sum[i][t][2 * half + 1]);
        __syncwarp();
        const int rows = smaller(16, p.m - row0 - 16 * i);
        const int64_t at = (int64_t)(row0 + 16 * i) * p.n + column0 + lane;
#pragma unroll 4
        for (int row = 0; row < rows; row++) {
            const T *const add = p.add + at + (int64_t)row * p.n;
            T *const out = p.out + at + (int64_t)row * p.n;
#pragma unroll
            for (int j = 0; j < columns; j++) {
                if (column0 + lane + 32 * j >= p.n) continue;
                const float y = place[row * width + lane + 32 * j] * p.scale;
                out[32 * j] = from_float<T>(p.add ? to_float(add[32 * j]) + y : y);
            }
        }
    }
}

// Code for Hopper leaves out many rows and ranks of F32, which fused_update_f32_sm90.cu computes.
template <class T, class W, int ROWS, int RANKS>
__global__ void __launch_bounds__(ClusterShape<T, ROWS, RANKS>::threads, sizeof(T) == 2 || RANKS == 16 ? 2 : 1)
    fused_update_cluster_kernel(ClusterProblem<T, W> p) {
#if __CUDA_ARCH__ >= 900
#ifdef VB_SM90A
    if (sizeof(W) == 4 && ROWS == 32 && RANKS == 64) return __trap();
#endif
    using S = ClusterShape<T, ROWS, RANKS>;
    using F = typename Factor<T>::type;
    extern __shared__ __align__(16) char shared[];
    __shared__ int places[S::warps]; // of each warp's two, where its part of x V is
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, c = lane % 4;
    const int chunks = ceil_div(p.r, RANKS), h_plane = chunks * S::rank_plane, h_pitch = S::planes * h_plane + 16;
    char *const stages = shared + warp * 2 * S::stage_bytes, *const h = shared + S::warps * 2 * S::stage_bytes;
    float *const sums = reinterpret_cast<float *>(h + ROWS * h_pitch);
    const int rank = p.cluster > 1 ? (int)blockIdx.x % p.cluster : 0, row0 = (int)blockIdx.x / p.cluster * ROWS;
    // this warp's part: RANKS from first_chunk on, then every few squares of k; then of the columns
    const int first_chunk = p.cluster > 1 ? rank % chunks : 0, own_chunks = p.cluster > 1 ? 1 : chunks;
    const int parts = p.cluster > 1 ? p.cluster / chunks : 1, part = p.cluster > 1 ? rank / chunks : 0;
    const int first_k = (part * S::warps + warp) * S::side, step_k = parts * S::warps * S::side;
    const int first_n = (((int)blockIdx.y * p.cluster + rank) * S::warps + warp) * S::side,
              step_n = (int)gridDim.y * p.cluster * S::warps * S::side;

    struct Square {
        int chunk, at; // at: k, or the first column
        bool of_u;
    };
    const auto to_columns = [&](Square &q) {
        if (!q.of_u && q.at >= p.k) {
            q.at = first_k;
            if (++q.chunk >= first_chunk + own_chunks || first_k >= p.k) q = {0, first_n, true};
        }
    };
    const auto advance = [&](Square &q) {
        if (q.of_u) {
            if (++q.chunk == chunks) q.chunk = 0, q.at += step_n;
        } else {
            q.at += step_k;
            to_columns(q);
        }
    };
    const auto exists = [&](const Square &q) { return !q.of_u || q.at < p.n; };
    const auto weights = [&](const Square &q) { // where this square of V or U begins
        const Stored<W> &w = q.of_u ? p.u : p.v;
        const bool by_rank = q.of_u ? p.u_transposed : p.v_transposed;
        return by_rank ? w.at + (int64_t)q.chunk * RANKS * w.stride + q.at
                       : w.at + (int64_t)q.at * w.stride + q.chunk * RANKS;
    };
    const auto copy = [&](const Square &q, int slot) {
        if (exists(q)) {
            const unsigned to = shared_address(stages) + slot * S::stage_bytes;
            const int ranks = p.r - q.chunk * RANKS, others = (q.of_u ? p.n : p.k) - q.at;
            const Stored<W> &w = q.of_u ? p.u : p.v;
            if (!q.of_u)
                copy_square<ROWS, S::side, S::pitch>(to, p.x.at + row0 * p.x.stride + q.at, p.x.stride, p.x.aligned,
                                                  p.m - row0, others);
            if (q.of_u ? p.u_transposed : p.v_transposed)
                copy_square<RANKS, S::side, S::pitch>(to + S::x_bytes, weights(q), w.stride, w.aligned, ranks, others);
            else
                copy_square<S::side, RANKS, S::rank_pitch>(to + S::x_bytes, weights(q), w.stride, w.aligned, others,
                                                           ranks);
        }
        copy_async_commit();
    };
    const auto settle = [&](const Square &q, int slot) {
        char *const square = stages + slot * S::stage_bytes;
        if (!q.of_u && (S::planes == 2 || !p.x.aligned))
            settle_square<ROWS, S::side, S::pitch, S::planes>(square, p.x.at + row0 * p.x.stride + q.at, p.x.stride);
        const Stored<W> &w = q.of_u ? p.u : p.v;
        if (S::planes == 1 && w.aligned) return;
        if (q.of_u ? p.u_transposed : p.v_transposed)
            settle_square<RANKS, S::side, S::pitch, S::planes>(square + S::x_bytes, weights(q), w.stride);
        else settle_square<S::side, RANKS, S::rank_pitch, S::planes>(square + S::x_bytes, weights(q), w.stride);
    };
    const auto with_code = [&](int row, int rank0, float x) {
        if (!p.codes || row >= p.m || rank0 >= p.r) return x;
        const float code = to_float(p.codes[row * p.codes_stride + rank0]);
        return code == 0.0f ? 0.0f : x * code; // 0: whatever x V is
    };
    // h of four ranks side by side
    const auto put_h = [&](int row, int rank0, float4 x) {
        char *const at = h + row * h_pitch + rank0 * 2;
        x.x = with_code(row0 + row, rank0, x.x), x.y = with_code(row0 + row, rank0 + 1, x.y);
        x.z = with_code(row0 + row, rank0 + 2, x.z), x.w = with_code(row0 + row, rank0 + 3, x.w);
        uint2 high, low;
        if (S::planes == 2) {
            split_pair(x.x, x.y, high.x, low.x), split_pair(x.z, x.w, high.y, low.y);
            *(uint2 *)(at + h_plane) = low;
        } else {
            high = make_uint2(pack<F>(x.x, x.y), pack<F>(x.z, x.w));
        }
        *(uint2 *)at = high;
    };

    wait_for_previous_kernel();
    release_next_kernel();
    Square now = {first_chunk, first_k, false}, ahead;
    to_columns(now);
    ahead = now;
    int slot = 0;
    copy(ahead, 0);
    if (exists(ahead)) advance(ahead);
    copy(ahead, 1);
    if (exists(ahead)) advance(ahead);
    if (p.codes) { // a line each, before they are needed
        constexpr int line = 128 / (int)sizeof(T);
        const int lines = ceil_div(p.r, line);
        for (int i = threadIdx.x; i < ROWS * lines; i += S::threads)
            if (row0 + i / lines < p.m)
                asm volatile("prefetch.global.L2 [%0];" ::"l"(p.codes + (row0 + i / lines) * p.codes_stride +
                                                              i % lines * line));
    }
    // The next square is there.
    const auto await = [&] {
        copy_async_wait<1>();
        __syncwarp();
        settle(now, slot);
        __syncwarp();
    };
    // The place of this square takes another one.
    const auto refill = [&] {
        __syncwarp();
        copy(ahead, slot);
        if (exists(ahead)) advance(ahead);
        slot ^= 1;
    };
    for (int chunk = first_chunk; chunk < first_chunk + own_chunks; chunk++) {
        float sum[S::row_tiles][RANKS / 8][4];
        clear(sum);
        bool last = false; // whether this warp holds back its last place
        while (!now.of_u && now.chunk == chunk && !last) {
            await();
            const unsigned square = shared_address(stages) + slot * S::stage_bytes;
            const bool across = !p.v_transposed;
            const int pitch = across ? S::rank_pitch : S::pitch, plane = across ? S::rank_plane : S::plane;
            if constexpr (S::planes == 2) { // tensor cores truncate their sums: those of a square are rounded
                float few[S::row_tiles][RANKS / 8][4];
                clear(few);
                multiply<F, S::planes>(few, square, S::pitch, S::plane, square + S::x_bytes, pitch, plane, across,
                                       S::side);
#pragma unroll
                for (int i = 0; i < S::row_tiles; i++)
#pragma unroll
                    for (int t = 0; t < RANKS / 8; t++)
#pragma unroll
                        for (int e = 0; e < 4; e++) sum[i][t][e] += few[i][t][e];
            } else {
                multiply<F, S::planes>(sum, square, S::pitch, S::plane, square + S::x_bytes, pitch, plane, across,
                                       S::side);
            }
            advance(now);
            last = now.of_u || now.chunk != chunk;
            if (!last) refill();
        }
        __syncwarp();
        // The last warps of a block may have no square of k, and then no part of x V.
        float *const mine = reinterpret_cast<float *>(stages + slot * S::stage_bytes);
        const int warps_with_parts = smaller(S::warps, larger(0, ceil_div(p.k - part * S::warps * S::side, S::side)));
        if (last) {
#pragma unroll
            for (int i = 0; i < S::row_tiles; i++)
#pragma unroll
                for (int t = 0; t < RANKS / 8; t++)
#pragma unroll
                    for (int half = 0; half < 2; half++)
                        *reinterpret_cast<float2 *>(mine + (16 * i + 8 * half + g) * RANKS + 8 * t + 2 * c) =
                            make_float2(sum[i][t][2 * half], sum[i][t][2 * half + 1]);
        }
        if (lane == 0) places[warp] = slot;
        __syncthreads();
        for (int e = threadIdx.x; e < ROWS * RANKS / 4; e += S::threads) {
            float4 all = make_float4(0, 0, 0, 0);
            for (int w = 0; w < warps_with_parts; w++) {
                const float4 one = reinterpret_cast<const float4 *>(shared + (2 * w + places[w]) * S::stage_bytes)[e];
                all.x += one.x, all.y += one.y, all.z += one.z, all.w += one.w;
            }
            if (p.cluster > 1) reinterpret_cast<float4 *>(sums)[e] = all;
            else put_h(e / (RANKS / 4), chunk * RANKS + e % (RANKS / 4) * 4, all);
        }
        __syncthreads(); // h, and the places are free
        if (last) refill();
    }
    if (p.cluster > 1) {
        cluster_arrive();
        cluster_wait();
        const int quads = chunks * RANKS / 4;
#pragma unroll 2
        for (int e = threadIdx.x; e < ROWS * quads; e += S::threads) {
            const int row = e / quads, rank0 = e % quads * 4;
            float4 all = make_float4(0, 0, 0, 0);
            for (int i = 0; i < parts; i++) {
                const float4 there =
                    read_cluster4(cluster_address(sums + row * RANKS + rank0 % RANKS, i * chunks + rank0 / RANKS));
                all.x += there.x, all.y += there.y, all.z += there.z, all.w += there.w;
            }
            put_h(row, rank0, all);
        }
        __syncthreads();
        cluster_arrive(); // and waits at the end: no block may leave while its sums are read
    }
    float sum[S::row_tiles][S::side / 8][4];
    clear(sum);
    while (exists(now)) {
        await();
        char *const place = stages + slot * S::stage_bytes;
        const bool across = p.u_transposed;
        multiply<F, S::planes>(sum, shared_address(h) + now.chunk * S::rank_plane, h_pitch, h_plane,
                               shared_address(place) + S::x_bytes, across ? S::pitch : S::rank_pitch,
                               across ? S::plane : S::rank_plane, across, smaller(RANKS, p.r - now.chunk * RANKS));
        const int column0 = now.at;
        const bool whole = now.chunk + 1 == chunks;
        advance(now);
        if (whole) {
            store(p, sum, reinterpret_cast<float *>(place), row0, column0);
            clear(sum);
        }
        refill();
    }
    if (p.cluster > 1) cluster_wait();
#endif
}

template <class S>
Stored<S> stored(const void *at, int64_t stride) {
    return {(const S *)at, stride, (uintptr_t)at % 16 == 0 && stride * sizeof(S) % 16 == 0};
}

template <class T, class W, int ROWS, int RANKS>
vb_status launch_shape(const vb_fused_update_args &a, const adapter_plan &plan, vb_stream *stream) {
    using S = ClusterShape<T, ROWS, RANKS>;
    const int64_t chunks = ceil_div<int64_t>(a.r, RANKS);
    ClusterProblem<T, W> p;
    p.out = (T *)a.out, p.add = (const T *)a.add, p.codes = (const T *)a.codes;
    p.x = stored<T>(a.x, a.k);
    p.v = stored<W>(a.v, a.v_transposed ? a.k : a.r), p.u = stored<W>(a.u, a.u_transposed ? a.n : a.r);
    p.m = (int)a.m, p.k = (int)a.k, p.n = (int)a.n, p.r = (int)a.r, p.cluster = plan.cluster;
    p.codes_stride = a.codes_stride, p.scale = a.scale;
    p.v_transposed = a.v_transposed, p.u_transposed = a.u_transposed;
    p.vectors = aligned16(a.out, a.add) && a.n * sizeof(T) % 16 == 0;
    const int64_t h_bytes = ROWS * (S::planes * chunks * S::rank_plane + 16);
    return launch_cluster(stream, plan.cluster,
                          dim3((unsigned)(plan.row_blocks * plan.cluster), (unsigned)plan.column_blocks), S::threads,
                          S::warps * 2 * S::stage_bytes + h_bytes + S::sum_bytes,
                          fused_update_cluster_kernel<T, W, ROWS, RANKS>, p);
}

template <class T, class W>
vb_status launch_cluster_update(const vb_fused_update_args &a, const adapter_plan &plan, vb_stream *stream) {
    constexpr int most = sizeof(T) == 4 ? 32 : 16; // rows: plans of 16 bits have 16 alone
    if (plan.row_tiles == 2)
        return plan.rank_tiles == 2 ? launch_shape<T, W, most, 16>(a, plan, stream)
                                    : launch_shape<T, W, most, 64>(a, plan, stream);
    return plan.rank_tiles == 2 ? launch_shape<T, W, 16, 16>(a, plan, stream)
                                : launch_shape<T, W, 16, 64>(a, plan, stream);
}

} // namespace

vb_status fused_update_cluster(const vb_fused_update_args &a, const adapter_plan &plan, vb_stream *stream) {
    switch (a.type) {
    case VB_F16: return launch_cluster_update<half, half>(a, plan, stream);
    case VB_BF16: return launch_cluster_update<bf16, bf16>(a, plan, stream);
    default:
        return a.weight_type == VB_F32 ? launch_cluster_update<float, float>(a, plan, stream)
                                       : launch_cluster_update<float, half>(a, plan, stream);
    }
}

} // namespace vb
