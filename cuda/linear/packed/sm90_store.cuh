// sm90_store.cuh: how the results of many_sm90.cuh and n32_sm90.cu leave the registers: through shared memory, so many
// tokens at a time, so that a warp writes whole lines. They are float32, and F16 for another product (HalfRows).
#ifndef VB_LINEAR_SM90_STORE_CUH
#define VB_LINEAR_SM90_STORE_CUH

#include "collective/rounded.cuh"
#include "linear/packed/many.cuh"
#include "arch/sm90.cuh"

#ifdef VB_WITH_SM90

namespace vb {

constexpr int both_groups = unit_groups + 1; // a barrier beside the barriers of one group each

// Moves a group's part of a unit to memory by way of shared memory, so many tokens at a time. Rows are padded to lie in
// different banks.
constexpr int sums_at_once = 32, sums_width = 64 + 4;                           // of 64 rows, as floats
constexpr int gated_at_once = 64, gated_width = 32 + 4, gated_bytes = 2 * 32 + 16; // of 32 rows, as floats or F16
constexpr int staging_bytes = larger(4 * sums_at_once * sums_width, 4 * gated_at_once * gated_width);

#ifdef VB_SM90A

// Reduces COUNT numbers of each lane, in the order of warp_reduce. Of the lanes 32 / COUNT have the result of number
// lane / (32 / COUNT).
template <class Op, int COUNT>
VB_DEVICE float reduce_each(float (&v)[COUNT]) {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int offset = 16, count = COUNT / 2; count > 0; offset /= 2, count /= 2)
#pragma unroll
        for (int i = 0; i < COUNT / 2; i++) {
            if (i >= count) break;
            const bool upper = lane & offset; // which half this lane keeps
            const float kept = upper ? v[i + count] : v[i];
            v[i] = Op::combine(kept, __shfl_xor_sync(all_lanes, upper ? v[i] : v[i + count], offset));
        }
    return warp_reduce<Op, 32 / COUNT>(v[0]);
}

// Writes y, of each of COUNT tokens the four neighbours from column `col` on, and with the other lanes' 128, to p.to:
// of the tokens from `token` on, `step` apart and below `end`.
template <int COUNT>
VB_DEVICE void store_halves(const Product &p, const Unit &unit, const float4 (&y)[COUNT], const float4 &norm,
                            int64_t col, int64_t token, int step, int64_t end) {
    constexpr int lanes = 32 / COUNT; // that share a token in the end
    const int lane = threadIdx.x % 32, nth = lane / lanes;
    float4 v[COUNT];
    float most[COUNT], squares[COUNT], factor[COUNT];
    bool large = false;
#pragma unroll
    for (int i = 0; i < COUNT; i++) {
        v[i] = {y[i].x * norm.x, y[i].y * norm.y, y[i].z * norm.z, y[i].w * norm.w};
        most[i] = fmaxf(fmaxf(fabsf(v[i].x), fabsf(v[i].y)), fmaxf(fabsf(v[i].z), fabsf(v[i].w)));
        squares[i] = y[i].x * y[i].x + y[i].y * y[i].y + y[i].z * y[i].z + y[i].w * y[i].w;
        factor[i] = 1, large |= most[i] >= half_limit;
    }
    int exponent = 0; // of token `nth`
    if (__any_sync(all_lanes, large)) {
        exponent = (int)half_exponent(__float_as_uint(reduce_each<Max>(most)));
        if (exponent > 0) *p.to.uneven = 1;
#pragma unroll
        for (int i = 0; i < COUNT; i++)
            factor[i] = power_of_two(-__shfl_sync(all_lanes, exponent, i * lanes));
    }
#pragma unroll
    for (int i = 0; i < COUNT; i++)
        write_halves(p.to.x + (token + i * step) * p.matrices[0].rows + col / 16 * 16, v[i], factor[i],
                     token + i * step < end);
    const float sum = reduce_each<Sum>(squares);
    const int64_t stride = half_stride(p.n), own = token + nth * step;
    if (own < end && lane % lanes == 0) p.to.squares[unit.rows * stride + own] = sum;
    if (own < end && lane % lanes < 2)
        p.to.exponents[(2 * unit.rows + lane % lanes) * stride + own] = (uint8_t)exponent;
}

// Calls add(i, load) for i < COUNT of each block of a cluster in its order. load(address, T()) reads the block's shared
// memory.
// COUNT loads are on the way together, as single loads would be waited for.
template <int COUNT, class F>
VB_DEVICE void add_sums(const Product &p, const F &add) {
    if (p.cluster == 1) {
#pragma unroll
        for (int i = 0; i < COUNT; i++)
            add(i, [](const float *at, auto like) { return *reinterpret_cast<const decltype(like) *>(at); });
        return;
    }
#pragma unroll 1
    for (int block = 0; block < p.cluster; block++) {
        const auto remote = [&](const float *at, auto like) {
            return sm90::load_remote(sm90::remote_address(at, block), like);
        };
#pragma unroll
        for (int i = 0; i < COUNT; i++) add(i, remote);
    }
}

// The sum of neighbours in all blocks of a cluster of up to eight, whose loads are on the way together.
template <class T>
VB_DEVICE T sum_of_cluster(const float *at, int cluster) {
    constexpr int count = sizeof(T) / sizeof(float);
    if (cluster == 1) return *reinterpret_cast<const T *>(at);
    T part[8] = {};
#pragma unroll
    for (int block = 0; block < 8; block++)
        if (block < cluster) part[block] = sm90::load_remote(sm90::remote_address(at, block), T());
    float(&sum)[count] = reinterpret_cast<float(&)[count]>(part[0]);
#pragma unroll
    for (int block = 1; block < 8; block++)
#pragma unroll
        for (int i = 0; i < count; i++) sum[i] += reinterpret_cast<const float(&)[count]>(part[block])[i];
    return part[0];
}

// Tokens of a warp whose loads are on the way: at most the tokens of a warp where a cluster of four shares them.
template <int TOKENS>
constexpr int tokens_together = larger(smaller(TOKENS / unit_warps / 4, 4), 1);

// Writes the sums of all warps of a block to shared memory, the sums of a token together.
constexpr int sum_width = unit_rows + 4; // rows of eight lanes and tokens of four are in different banks
template <int TOKENS>
VB_DEVICE void share_sums(float *sums, const float (&c)[TOKENS / 2], int warp, int lane) {
#pragma unroll
    for (int i = 0; i < TOKENS / 2; i++)
        sums[(i / 4 * 8 + lane % 4 * 2 + (i & 1)) * sum_width + warp * packed_rows + lane / 4 + (i & 2) * 4] = c[i];
}

// The sums of heads, of all blocks of a cluster. A warp has 128 rows of a token, one head or two.
// A lane rotates two pairs of a head, in two neighbours each, which begin at `first` and `second`.
template <int TOKENS>
struct StoreHeads {
    static constexpr int together = tokens_together<TOKENS>;
    const Product &p;
    const int2 *const places;
    const int lane = threadIdx.x % 32, lanes = p.heads.pairs / 2, nth = lane & (lanes - 1),
              head = lane / lanes * 2 * p.heads.pairs;
    const int first = head + (p.heads.neox ? 2 : 4) * nth, second = first + (p.heads.neox ? p.heads.pairs : 2);
    const int begin, end; // tokens of this warp, every eighth
    bool exists, rotated;
    int64_t rows, from; // the places of the lane's rows in a token's row, and of a head's rows in the cache
    float *y;
    void *cache;
    float2 bias[2] = {};
    float2 cosine[together], sine[together];

    VB_DEVICE StoreHeads(const Product &p, const Unit &unit, const int2 *places, int begin, int end)
        : p(p), places(places), begin(begin), end(end) {
        int tile_row = unit.rows * unit_warps + head / packed_rows;
        exists = tile_row < p.tile_rows;
        if (!exists) tile_row = 0;
        const Matrix &m = p.find<false>(tile_row);
        const int64_t row = (int64_t)tile_row * packed_rows, token0 = (int64_t)unit.tokens * TOKENS;
        const int a = first - head, b = second - head;
        if (m.bias) bias[0] = {m.bias[row + a], m.bias[row + a + 1]}, bias[1] = {m.bias[row + b], m.bias[row + b + 1]};
        rotated = m.rotated, rows = m.rows, y = m.y + token0 * rows + row + a, cache = m.cache,
        from = row * p.heads.capacity + a;
#pragma unroll
        for (int i = 0; i < together; i++) fetch(i, begin + i * unit_warps);
    }
    VB_DEVICE int2 place(int token) const { return places[smaller(token, end - 1)]; }
    VB_DEVICE void fetch(int i, int token) {
        const int64_t at = (int64_t)larger(place(token).x, 0) * p.heads.pairs + 2 * nth;
        cosine[i] = *reinterpret_cast<const float2 *>(p.heads.cos + at),
        sine[i] = *reinterpret_cast<const float2 *>(p.heads.sin + at);
    }
    template <class T>
    static VB_DEVICE void write(T *to, int second, const float2 &u, const float2 &v) {
        using Two = Vec<T, 2>;
        *reinterpret_cast<Two *>(to) = {from_float<T>(u.x), from_float<T>(u.y)};
        *reinterpret_cast<Two *>(to + second) = {from_float<T>(v.x), from_float<T>(v.y)};
    }
    VB_DEVICE void put(int token, float2 u, float2 v) const {
        const int2 at = place(token);
        const bool neox = p.heads.neox;
        if (rotated) {
            const float nan = __uint_as_float(0x7fffffffu);
            const float2 c = {at.x < 0 ? nan : cosine[0].x, at.x < 0 ? nan : cosine[0].y}, s = sine[0];
            const float2 x = {u.x, neox ? u.y : v.x}, z = {neox ? v.x : u.y, v.y}; // of each pair
            const float2 a = {x.x * c.x - z.x * s.x, x.y * c.y - z.y * s.y},
                         b = {x.x * s.x + z.x * c.x, x.y * s.y + z.y * c.y};
            u = {a.x, neox ? a.y : b.x}, v = {neox ? b.x : a.y, b.y};
        }
        const int further = second - first;
        if (!cache) write(y + token * rows, further, u, v);
        else if (at.y < 0) return;
        else if (p.heads.half_cache)
            write(static_cast<half *>(cache) + ((int64_t)at.y * (2 * p.heads.pairs) + from), further, u, v);
        else write(static_cast<float *>(cache) + ((int64_t)at.y * (2 * p.heads.pairs) + from), further, u, v);
    }
    VB_DEVICE void run(const float *sums, const float *inverse) {
#pragma unroll 1
        for (int token0 = begin; token0 < end; token0 += together * unit_warps) {
            float2 u[together] = {}, v[together] = {};
            if constexpr (together == 1) {
                const float *const at = sums + token0 * sum_width;
                u[0] = sum_of_cluster<float2>(at + first, p.cluster);
                v[0] = sum_of_cluster<float2>(at + second, p.cluster);
            } else
                add_sums<together>(p, [&](int i, const auto &load) {
                    const float *const at = sums + smaller(token0 + i * unit_warps, end - 1) * sum_width;
                    const float2 x = load(at + first, float2()), z = load(at + second, float2());
                    u[i].x += x.x, u[i].y += x.y, v[i].x += z.x, v[i].y += z.y;
                });
#pragma unroll
            for (int i = 0; i < together; i++) {
                const int token = token0 + i * unit_warps;
                const float scale = inverse[smaller(token, end - 1)];
                u[i] = {fmaf(u[i].x, scale, bias[0].x), fmaf(u[i].y, scale, bias[0].y)};
                v[i] = {fmaf(v[i].x, scale, bias[1].x), fmaf(v[i].y, scale, bias[1].y)};
            }
#pragma unroll 1
            for (int i = 0; i < together; i++) { // the next token moves to place 0
                const int token = token0 + i * unit_warps;
                if (exists && token < end) put(token, u[0], v[0]);
#pragma unroll
                for (int next = 1; next < together; next++)
                    u[next - 1] = u[next], v[next - 1] = v[next], cosine[next - 1] = cosine[next],
                    sine[next - 1] = sine[next];
            }
#pragma unroll
            for (int i = 0; i < together; i++) fetch(i, token0 + (together + i) * unit_warps);
        }
    }
};

// Four rows of W at a token, which one thread writes.
struct FourRows {
    const Matrix &m;
    int64_t row;
    int here; // of them
    bool whole;

    VB_DEVICE FourRows(const Matrix &m, int64_t row, const float *add)
        : m(m), row(row), here((int)smaller<int64_t>(4, m.rows - row)),
          whole(m.rows % 4 == 0 && here == 4 && ((uintptr_t)m.y | (uintptr_t)m.bias | (uintptr_t)add) % 16 == 0) {}

    VB_DEVICE float4 load(const float *from, int64_t token) const {
        const float *const at = from + token * m.rows + row;
        if (whole) return *reinterpret_cast<const float4 *>(at);
        return {here > 0 ? at[0] : 0, here > 1 ? at[1] : 0, here > 2 ? at[2] : 0, here > 3 ? at[3] : 0};
    }
    VB_DEVICE void store(float4 y, int64_t token) const {
        float *const at = m.y + token * m.rows + row;
        if (whole) *reinterpret_cast<float4 *>(at) = y;
        else {
            if (here > 0) at[0] = y.x;
            if (here > 1) at[1] = y.y;
            if (here > 2) at[2] = y.z;
            if (here > 3) at[3] = y.w;
        }
    }
};

// Four sums times a scale, plus bias and addend.
VB_DEVICE float4 finish(const float4 &sum, float scale, const float4 &bias, const float4 &added) {
    return {fmaf(sum.x, scale, bias.x + added.x), fmaf(sum.y, scale, bias.y + added.y),
            fmaf(sum.z, scale, bias.z + added.z), fmaf(sum.w, scale, bias.w + added.w)};
}

// The four neighbours that a lane finishes among the 128 rows of its warp's unit and token. They lie in row tile_row of
// tiles of m.
struct FourResults {
    const Product &p;
    const Unit &unit;
    const FourRows rows;
    const float4 bias, norm;

    VB_DEVICE FourResults(const Product &p, const Unit &unit, const Matrix &m, int tile_row, int lane)
        : p(p), unit(unit), rows(m, (int64_t)tile_row * packed_rows + lane % 4 * 4, p.add),
          bias(m.bias ? rows.load(m.bias, 0) : float4()),
          norm(p.to.x && p.to_norm ? *reinterpret_cast<const float4 *>(p.to_norm + rows.row)
                                   : make_float4(1, 1, 1, 1)) {}

    // Of tokens from `token` on, `step` apart and below `end`. `sums` become results.
    template <int COUNT>
    VB_DEVICE void store(float4 (&sums)[COUNT], const float *scales, const float4 (&added)[COUNT], int64_t token,
                         int step, int64_t end) const {
#pragma unroll
        for (int i = 0; i < COUNT; i++) {
            const bool exists = token + i * step < end;
            sums[i] = exists ? finish(sums[i], scales[i * step], bias, added[i]) : float4();
            if (exists) rows.store(sums[i], token + i * step);
        }
        if (p.to.x) store_halves(p, unit, sums, norm, rows.row, token, step, end);
    }
};

// Sends results to all ranks, this one too, in the words that their sum waits for (collective/rounded.cu).
struct Sender {
    const Mail &mail; // without ranks: results stay here
    const unsigned letter;

    VB_DEVICE explicit Sender(const Mail &m)
        : mail(m), letter(m.ranks > 0 ? *(const volatile unsigned *)rounded_counters(m) % 2u : 0u) {}
    // Of COUNT tokens the four neighbours from `row` on of each lane, of a row of so many `rows`.
    template <int COUNT>
    VB_DEVICE void send(const float4 (&y)[COUNT], int64_t rows, int64_t row, int64_t token, int step,
                        int64_t end) const {
#pragma unroll
        for (int i = 0; i < COUNT; i++) {
            if (token + i * step >= end) break;
            const unsigned own = RoundedWord::magnitude(y[i]);
            const unsigned largest = larger(own, __shfl_xor_sync(all_lanes, own, 1));
            const uint2 half = RoundedWord::half_of(y[i], largest, row & 4);
            const int64_t at = ((token + i * step) * rows + row) / 4;
            for (int k = 1; k <= mail.ranks; k++) {
                const int to = mail.rank + k < mail.ranks ? mail.rank + k : mail.rank + k - mail.ranks;
                uint2 *const words = reinterpret_cast<uint2 *>(letter_of(mail.box[to], mail.ranks, letter, mail.rank));
                asm volatile("st.volatile.global.v2.u32 [%0], {%1, %2};" ::"l"(words + at), "r"(half.x), "r"(half.y)
                             : "memory");
            }
        }
    }
};

// Stores the results of a block with one unit, or of a cluster that shares the unit's columns; or sends them, to the
// ranks of `mail`. The sums go through shared memory, `sums`.
// There the sums of all blocks are added in order, so that a warp writes 128 neighbours. Each block has its share of
// the tokens.
template <int TOKENS>
VB_DEVICE void store_lone(const Product &p, const Unit &unit, const float (&c)[TOKENS / 2], const float *inverse,
                          const int2 *places, float *sums, int rank, const Mail &mail) {
    group_sync(both_groups, unit_threads); // all have read the memory of the sums
    const Sender sender(mail);
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, begin = p.shares.of(TOKENS * rank) + warp;
    const int64_t token0 = (int64_t)unit.tokens * TOKENS;
    const int end = (int)smaller<int64_t>(p.shares.of(TOKENS * (rank + 1)), p.n - token0);
    const auto exchange = [&] {
        share_sums<TOKENS>(sums, c, warp, lane);
        if (p.cluster > 1) sm90::cluster_sync();
        else group_sync(both_groups, unit_threads);
    };
    if (p.heads.positions) {
        StoreHeads<TOKENS> heads(p, unit, places, begin, end);
        exchange();
        heads.run(sums, inverse);
        return;
    }
    exchange();
    int tile_row = unit.rows * unit_warps + lane / 4;
    if (tile_row >= p.tile_rows) return;
    const Matrix &m = p.find<false>(tile_row);
    const FourResults results(p, unit, m, tile_row, lane);
    constexpr int together = tokens_together<TOKENS>;
#pragma unroll 1
    for (int first = begin; first < end; first += together * unit_warps) {
        float4 added[together] = {};
#pragma unroll
        for (int i = 0; i < together; i++) {
            const int token = first + i * unit_warps;
            if (p.add && token < end) added[i] = results.rows.load(p.add, token0 + token);
        }
        float4 sum[together] = {};
        add_sums<together>(p, [&](int i, const auto &load) {
            const float4 v = load(sums + smaller(first + i * unit_warps, end - 1) * sum_width + 4 * lane, float4());
            sum[i].x += v.x, sum[i].y += v.y, sum[i].z += v.z, sum[i].w += v.w;
        });
        if (mail.ranks > 0) {
#pragma unroll
            for (int i = 0; i < together; i++)
                if (first + i * unit_warps < end)
                    sum[i] = finish(sum[i], inverse[first + i * unit_warps], results.bias, added[i]);
            sender.send(sum, m.rows, results.rows.row, token0 + first, unit_warps, token0 + end);
        } else results.store(sum, inverse + first, added, token0 + first, unit_warps, token0 + end);
    }
}

// Sums of a group: sixteen threads write the 64 neighbours of a token.
template <int TOKENS>
VB_DEVICE void store_sums_staged(const Product &p, const Unit &unit, const float (&c)[TOKENS / 2], const float *inverse,
                                 float *staging) {
    constexpr int step = group_threads / 16, each = sums_at_once / step;
    const int thread = threadIdx.x % group_threads, lane = thread % 32, warp = thread / 32, fourth = thread % 16;
    const int64_t token0 = (int64_t)unit.tokens * TOKENS;
    const int tokens = (int)smaller<int64_t>(TOKENS, p.n - token0);
    int tile_row = unit.rows * unit_warps + group_of_thread() * 4 + fourth / 4;
    const bool exists = tile_row < p.tile_rows;
    if (!exists) tile_row = 0;
    const Matrix &m = p.find<false>(tile_row);
    const FourRows rows(m, exists ? (int64_t)tile_row * packed_rows + fourth % 4 * 4 : m.rows, p.add);
    const float4 bias = m.bias ? rows.load(m.bias, 0) : float4();
#pragma unroll 1 // the code is long, and most of it the same for all of them
    for (int first = 0; first < tokens; first += sums_at_once) {
        float4 added[each];
#pragma unroll
        for (int i = 0; i < each; i++) {
            const int token = first + i * step + thread / 16;
            added[i] = p.add && token < tokens ? rows.load(p.add, token0 + token) : float4();
        }
        if (first > 0) group_sync(); // all have read the tokens before
#pragma unroll
        for (int part = 0; part < TOKENS; part += sums_at_once)
            if (part == first)
#pragma unroll
                for (int i = 0; i < 2 * sums_at_once / 4; i++)
                    if (2 * part / 4 + i < TOKENS / 2)
                        staging[(i / 4 * 8 + lane % 4 * 2 + (i & 1)) * sums_width + warp * packed_rows + lane / 4 +
                                (i & 2) * 4] = c[part / 2 + i];
        group_sync();
#pragma unroll
        for (int i = 0; i < each; i++) {
            const int at = i * step + thread / 16, token = first + at;
            const float4 sum = *reinterpret_cast<const float4 *>(staging + at * sums_width + 4 * fourth);
            if (token >= tokens) continue;
            rows.store(finish(sum, inverse[token], bias, added[i]), token0 + token);
        }
    }
}

// silu(gate) * up of a lane, which has both of a row: tokens 8 j + 2 t and 8 j + 2 t + 1 in c[4 j] and c[4 j + 1].
template <int TOKENS>
VB_DEVICE void combine_gate_and_up(float (&c)[TOKENS / 2], const float *inverse) {
#pragma unroll
    for (int j = 0; j < TOKENS / 8; j++) {
        const float2 scale = *reinterpret_cast<const float2 *>(inverse + 8 * j + threadIdx.x % 4 * 2);
        c[4 * j] = swiglu(c[4 * j] * scale.x, c[4 * j + 2] * scale.x);
        c[4 * j + 1] = swiglu(c[4 * j + 1] * scale.y, c[4 * j + 3] * scale.y);
    }
}

// These, of a group: eight threads write the 32 neighbours of a token.
template <int TOKENS>
VB_DEVICE void store_swiglu_rows(const Product &p, const Unit &unit, const float (&c)[TOKENS / 2], float *staging) {
    const int thread = threadIdx.x % group_threads, lane = thread % 32, warp = thread / 32;
    const int64_t token0 = (int64_t)unit.tokens * TOKENS;
    const int tokens = (int)smaller<int64_t>(TOKENS, p.n - token0);
    const FourRows rows(p.matrices[0], ((int64_t)unit.rows * unit_groups + group_of_thread()) * 32 + thread % 8 * 4,
                        nullptr);
#pragma unroll 1 // as in store_sums_staged
    for (int first = 0; first < tokens; first += gated_at_once) {
        if (first > 0) group_sync(); // all have read the tokens before
#pragma unroll
        for (int part = 0; part < TOKENS; part += gated_at_once)
            if (part == first)
#pragma unroll
                for (int j = 0; j < gated_at_once / 8; j++)
                    if (part / 8 + j < TOKENS / 8) {
                        float *const to = staging + (8 * j + lane % 4 * 2) * gated_width + warp * 8 + lane / 4;
                        to[0] = c[part / 2 + 4 * j], to[gated_width] = c[part / 2 + 4 * j + 1];
                    }
        group_sync();
#pragma unroll 1
        for (int i = 0; i < gated_at_once; i += group_threads / 8) {
            const int at = i + thread / 8;
            const float4 y = *reinterpret_cast<const float4 *>(staging + at * gated_width + thread % 8 * 4);
            if (first + at < tokens) rows.store(y, token0 + first + at);
        }
    }
}

// The same to p.to, in F16: four threads write a token's 64 bytes. `largest` is shared by both groups.
template <int TOKENS>
VB_DEVICE void store_gated(const Product &p, const Unit &unit, float (&c)[TOKENS / 2], uint8_t *staging,
                           unsigned (&largest)[TOKENS]) {
    const int thread = threadIdx.x % group_threads, lane = thread % 32, warp = thread / 32;
    const int64_t token0 = (int64_t)unit.tokens * TOKENS, cols = p.matrices[0].rows;
    const int tokens = (int)smaller<int64_t>(TOKENS, p.n - token0);
    if ((int64_t)unit.rows * half_group >= cols) return; // past the last rows
    float most = 0;
#pragma unroll
    for (int j = 0; j < TOKENS / 8; j++) most = fmaxf(most, fmaxf(fabsf(c[4 * j]), fabsf(c[4 * j + 1])));
    unsigned exponent = 0;
    if (any_at<unit_threads>(both_groups, most >= half_limit)) {
        const auto token_of = [&](int i) { return i / 2 * 8 + lane % 4 * 2 + i % 2; };
        if (threadIdx.x < TOKENS) largest[threadIdx.x] = 0;
        group_sync(both_groups, unit_threads);
#pragma unroll
        for (int i = 0; i < TOKENS / 4; i++)
            atomicMax(largest + token_of(i), __float_as_uint(fabsf(c[i / 2 * 4 + i % 2])));
        group_sync(both_groups, unit_threads);
        if (threadIdx.x < TOKENS) { // bits of a float become those of the factor
            exponent = half_exponent(largest[threadIdx.x]);
            largest[threadIdx.x] = __float_as_uint(power_of_two(-(int)exponent));
        }
        group_sync(both_groups, unit_threads);
#pragma unroll
        for (int j = 0; j < TOKENS / 8; j++) {
            const float2 factor = *reinterpret_cast<const float2 *>(largest + token_of(2 * j));
            c[4 * j] *= factor.x, c[4 * j + 1] *= factor.y;
        }
        if (threadIdx.x == 0) *p.to.uneven = 1;
    }
    if (threadIdx.x < tokens) p.to.exponents[unit.rows * half_stride(p.n) + token0 + threadIdx.x] = (uint8_t)exponent;
    half *const to = p.to.x + token0 * cols + ((int64_t)unit.rows * unit_groups + group_of_thread()) * 32;
#pragma unroll
    for (int first = 0; first < TOKENS; first += gated_at_once) {
        if (first >= tokens) break;
        if (first > 0) group_sync(); // all have read the tokens before
#pragma unroll
        for (int j = 0; j < gated_at_once / 8; j += 4) {
            const auto pair = [&](int i) {
                // past the last tokens anything
                const int at = first / 8 + j + i < TOKENS / 8 ? first / 2 + 4 * (j + i) : 0;
                return as_word(__floats2half2_rn(c[at], c[at + 1]));
            };
            sm90::store_transposed(staging + (8 * j + lane) * gated_bytes + warp * 16, pair(0), pair(1), pair(2),
                                   pair(3));
        }
        group_sync();
#pragma unroll
        for (int i = 0; i < gated_at_once; i += group_threads / 4) {
            const int at = i + thread / 4, token = first + at, chunk = thread % 4;
            const uint4 *const from = reinterpret_cast<const uint4 *>(staging + at * gated_bytes + chunk / 2 * 32);
            const uint4 a = from[0], b = from[1]; // elements 0..7 and 8..15 of 16
            if (token < tokens)
                *reinterpret_cast<uint4 *>(to + token * cols + chunk * 8) =
                    chunk % 2 ? make_uint4(a.y, a.w, b.y, b.w) : make_uint4(a.x, a.z, b.x, b.z);
        }
    }
}

#endif

} // namespace vb

#endif // VB_WITH_SM90
#endif
