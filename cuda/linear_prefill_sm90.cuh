// linear_prefill_sm90.cuh: the kernel of linear_prefill.cu on Hopper.
//
// Eight warps dequantize 16 rows of W each into registers, operand A of wgmma; a ninth fetches x, operand B, into a ring of stages of
// 64 or 128 columns. The operands of a batch of instructions are made while the one before is at work. With SwiGLU a warp has eight
// rows of gate and the same of up, in a lane's two rows, so that a lane has both sums of a result.
//
// Three more warps read what scales the sums. Where x has exponents (HalfRows), which is hardly ever, these also multiply what has been
// fetched before it is used, so that a row has one exponent; the loop that multiplies knows nothing of it.
//
// The two groups of four warps multiply by the same x and finish their rows by themselves: results go through shared memory, so many
// tokens at a time, and a warp writes whole lines.
//
// Blocks may be in pairs, at neighbouring rows of W, each of which fetches half of x for both.
//
//   shared   stages of 16 to 32 KiB, 200 KiB in all; 18 KiB for results
//   measured on an H200, norm_swiglu of 512 rows, 2 x 11008 x 2048 Q4_K: 84 us with 256 tokens a unit (three
//            rounds of units, of which 2.6 are used), 83 with 176 (four); without storing 73 and 75. A group that stays two to four
//            stages behind the other gains nothing, nor do weights that L2 is told of four tiles ahead, nor columns that begin at another
//            place in each pair
#ifndef VB_LINEAR_PREFILL_SM90_CUH
#define VB_LINEAR_PREFILL_SM90_CUH

#include "linear_prefill.cuh"
#include "sm90.cuh"

#ifdef VB_WITH_SM90

namespace vb {

constexpr int wgmma_threads = prefill_threads + 128; // registers change hands by four warps
constexpr int both_groups = unit_groups + 1;         // a barrier beside those of a group each
constexpr int helpers = 96;                          // threads beside those that multiply and the warp that fetches

// What a group has of a unit goes to memory by way of shared memory, so many tokens at a time, in rows that are padded to lie in
// different banks.
constexpr int sums_at_once = 32, sums_width = 64 + 4;                           // of 64 rows, as floats
constexpr int gated_at_once = 64, gated_width = 32 + 4, gated_bytes = 2 * 32 + 16; // of 32 rows, as floats or F16
constexpr int staging_bytes = larger(4 * sums_at_once * sums_width, 4 * gated_at_once * gated_width);

template <int TOKENS>
struct WgmmaShape {
    static constexpr int boxes = TOKENS > 128 ? 1 : 2, columns = boxes * sm90::tile_width; // of x in a stage
    static constexpr int box_bytes = TOKENS * sm90::row_bytes, stage_bytes = boxes * box_bytes, stages = (200 << 10) / stage_bytes;
    static constexpr int batch = TOKENS == 256 ? 1 : TOKENS == 176 ? 2 : 4; // instructions
    static constexpr int staging = stages * stage_bytes, inverse = staging + unit_groups * staging_bytes; // where they begin
    static constexpr int places = inverse + TOKENS * 4, barriers = places + TOKENS * 8;
    static constexpr int shared = barriers + (3 * stages + 2) * 8;
};

#ifdef VB_SM90A

// Four neighbours of a row of y from column `col` on, and with those of the other lanes 128, to p.to.
VB_DEVICE void store_half(const Product &p, const Unit &unit, const float4 &y, const float4 &norm, int64_t col, int64_t token) {
    const int lane = threadIdx.x % 32;
    const float4 v = {y.x * norm.x, y.y * norm.y, y.z * norm.z, y.w * norm.w};
    const float most = fmaxf(fmaxf(fabsf(v.x), fabsf(v.y)), fmaxf(fabsf(v.z), fabsf(v.w)));
    int exponent = 0;
    if (__any_sync(all_lanes, most >= half_limit)) {
        exponent = (int)half_exponent(__float_as_uint(warp_reduce<Max>(most)));
        if (lane == 0) *p.to.uneven = 1;
    }
    write_halves(p.to.x + token * p.matrices[0].rows + col / 16 * 16, v, power_of_two(-exponent));
    const float squares = warp_reduce<Sum>(y.x * y.x + y.y * y.y + y.z * y.z + y.w * y.w);
    const int64_t stride = half_stride(p.n);
    if (lane == 0) p.to.squares[unit.rows * stride + token] = squares;
    if (lane < 2) p.to.exponents[(2 * unit.rows + lane) * stride + token] = (uint8_t)exponent;
}

// Calls add(i, load) for i < COUNT of each block of a cluster in its order, where load(address, T()) reads what that block has in
// shared memory: COUNT loads are on the way, as one after the other would be waited for.
template <int COUNT, class F>
VB_DEVICE void add_sums(const Product &p, const F &add) {
    if (p.cluster == 1) {
#pragma unroll
        for (int i = 0; i < COUNT; i++) add(i, [](const float *at, auto like) { return *reinterpret_cast<const decltype(like) *>(at); });
        return;
    }
    for (int block = 0; block < p.cluster; block++) {
        const auto remote = [&](const float *at, auto like) { return sm90::load_remote(sm90::remote_address(at, block), like); };
#pragma unroll
        for (int i = 0; i < COUNT; i++) add(i, remote);
    }
}

constexpr int sum_width = prefill_rows + 4; // in store_lone: rows of eight lanes and tokens of four are in different banks

// The sums of heads, of all blocks of a cluster: a warp has 128 rows of a token, one head or two, and a lane two pairs of a head, which
// it rotates, in two neighbours each of which begin at `first` and `second`.
template <int TOKENS>
struct StoreHeads {
    static constexpr int together = 4; // tokens whose loads are on the way
    const Product &p;
    const int2 *const places;
    const int lane = threadIdx.x % 32, lanes = p.heads.pairs / 2, nth = lane & (lanes - 1), head = lane / lanes * 2 * p.heads.pairs;
    const int first = head + (p.heads.neox ? 2 : 4) * nth, second = first + (p.heads.neox ? p.heads.pairs : 2);
    const int begin, end; // tokens of this warp, every eighth
    bool exists, rotated;
    int64_t rows, from; // where the lane's rows are in that of a token, and those of a head in the cache
    float *y;
    void *cache;
    float2 bias[2] = {};
    float2 cosine[together], sine[together];

    VB_DEVICE StoreHeads(const Product &p, const Unit &unit, const int2 *places, int begin, int end)
        : p(p), places(places), begin(begin), end(end) {
        int tile_row = unit.rows * prefill_warps + head / packed_rows;
        exists = tile_row < p.tile_rows;
        if (!exists) tile_row = 0;
        const Matrix &m = p.find<false>(tile_row);
        const int64_t row = (int64_t)tile_row * packed_rows, token0 = (int64_t)unit.tokens * TOKENS;
        const int a = first - head, b = second - head;
        if (m.bias) bias[0] = {m.bias[row + a], m.bias[row + a + 1]}, bias[1] = {m.bias[row + b], m.bias[row + b + 1]};
        rotated = m.rotated, rows = m.rows, y = m.y + token0 * rows + row + a, cache = m.cache, from = row * p.heads.capacity + a;
#pragma unroll
        for (int i = 0; i < together; i++) fetch(i, begin + i * prefill_warps);
    }
    VB_DEVICE int2 place(int token) const { return places[smaller(token, end - 1)]; }
    VB_DEVICE void fetch(int i, int token) {
        const int64_t at = (int64_t)larger(place(token).x, 0) * p.heads.pairs + 2 * nth;
        cosine[i] = *reinterpret_cast<const float2 *>(p.heads.cos + at), sine[i] = *reinterpret_cast<const float2 *>(p.heads.sin + at);
    }
    template <class T>
    static VB_DEVICE void write(T *to, int second, const float2 &u, const float2 &v) {
        using Two = Vec<T, 2>;
        *reinterpret_cast<Two *>(to) = {from_float<T>(u.x), from_float<T>(u.y)};
        *reinterpret_cast<Two *>(to + second) = {from_float<T>(v.x), from_float<T>(v.y)};
    }
    VB_DEVICE void put(int i, int token, float2 u, float2 v) const {
        const int2 at = place(token);
        const bool neox = p.heads.neox;
        if (rotated) {
            const float nan = __uint_as_float(0x7fffffffu);
            const float2 c = {at.x < 0 ? nan : cosine[i].x, at.x < 0 ? nan : cosine[i].y}, s = sine[i];
            const float2 x = {u.x, neox ? u.y : v.x}, z = {neox ? v.x : u.y, v.y}; // of each pair
            const float2 a = {x.x * c.x - z.x * s.x, x.y * c.y - z.y * s.y}, b = {x.x * s.x + z.x * c.x, x.y * s.y + z.y * c.y};
            u = {a.x, neox ? a.y : b.x}, v = {neox ? b.x : a.y, b.y};
        }
        const int further = second - first;
        if (!cache) write(y + token * rows, further, u, v);
        else if (at.y < 0) return;
        else if (p.heads.half_cache) write(static_cast<half *>(cache) + ((int64_t)at.y * (2 * p.heads.pairs) + from), further, u, v);
        else write(static_cast<float *>(cache) + ((int64_t)at.y * (2 * p.heads.pairs) + from), further, u, v);
    }
    VB_DEVICE void run(const float *sums, const float *inverse) {
        for (int token0 = begin; token0 < end; token0 += together * prefill_warps) {
            float2 u[together] = {}, v[together] = {};
            add_sums<together>(p, [&](int i, const auto &load) {
                const float *const at = sums + smaller(token0 + i * prefill_warps, end - 1) * sum_width;
                const float2 x = load(at + first, float2()), z = load(at + second, float2());
                u[i].x += x.x, u[i].y += x.y, v[i].x += z.x, v[i].y += z.y;
            });
#pragma unroll
            for (int i = 0; i < together; i++) {
                const int token = token0 + i * prefill_warps;
                const float scale = inverse[smaller(token, end - 1)];
                u[i] = {fmaf(u[i].x, scale, bias[0].x), fmaf(u[i].y, scale, bias[0].y)};
                v[i] = {fmaf(v[i].x, scale, bias[1].x), fmaf(v[i].y, scale, bias[1].y)};
                if (exists && token < end) put(i, token, u[i], v[i]);
                fetch(i, token + together * prefill_warps);
            }
        }
    }
};

// Stores what a block has whose only unit this is, or a cluster that shares its columns: the sums go through shared memory, `sums`,
// where those of all blocks are added in their order, so that a warp writes 128 neighbours. Each block has its share of the tokens.
template <int TOKENS>
VB_DEVICE void store_lone(const Product &p, const Unit &unit, const float (&c)[TOKENS / 2], const float *inverse, const int2 *places,
                          float *sums, int rank) {
    sm90::group_sync(both_groups, prefill_threads); // all have read what is in place of the sums
    constexpr int width = sum_width;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, begin = TOKENS * rank / p.cluster + warp;
    const int64_t token0 = (int64_t)unit.tokens * TOKENS;
    const int end = (int)smaller<int64_t>(TOKENS * (rank + 1) / p.cluster, p.n - token0);
    const auto exchange = [&] {
#pragma unroll
        for (int i = 0; i < TOKENS / 2; i++)
            sums[(i / 4 * 8 + lane % 4 * 2 + (i & 1)) * width + warp * packed_rows + lane / 4 + (i & 2) * 4] = c[i];
        if (p.cluster > 1) sm90::cluster_sync();
        else sm90::group_sync(both_groups, prefill_threads);
    };
    if (p.heads.positions) {
        StoreHeads<TOKENS> heads(p, unit, places, begin, end);
        exchange();
        heads.run(sums, inverse);
        return;
    }
    exchange();
    int tile_row = unit.rows * prefill_warps + lane / 4;
    if (tile_row >= p.tile_rows) return;
    const Matrix &m = p.find<false>(tile_row);
    const int64_t row = (int64_t)tile_row * packed_rows + lane % 4 * 4;
    const int here = (int)smaller<int64_t>(4, m.rows - row);
    const bool whole = m.rows % 4 == 0 && here == 4 && ((uintptr_t)m.y | (uintptr_t)p.add) % 16 == 0;
    float4 bias = {};
    if (m.bias) {
        if (here > 0) bias.x = m.bias[row];
        if (here > 1) bias.y = m.bias[row + 1];
        if (here > 2) bias.z = m.bias[row + 2];
        if (here > 3) bias.w = m.bias[row + 3];
    }
    const float4 norm = p.to.x && p.to_norm ? *reinterpret_cast<const float4 *>(p.to_norm + row) : make_float4(1, 1, 1, 1);
    constexpr int together = 4; // loads on the way
    for (int first = begin; first < end; first += together * prefill_warps) {
        float4 added[together] = {};
#pragma unroll
        for (int i = 0; i < together; i++) {
            const int token = first + i * prefill_warps;
            if (p.add && whole && token < end) added[i] = *reinterpret_cast<const float4 *>(p.add + (token0 + token) * m.rows + row);
        }
        float4 sum[together] = {};
        add_sums<together>(p, [&](int i, const auto &load) {
            const float4 v = load(sums + smaller(first + i * prefill_warps, end - 1) * width + 4 * lane, float4());
            sum[i].x += v.x, sum[i].y += v.y, sum[i].z += v.z, sum[i].w += v.w;
        });
#pragma unroll
        for (int i = 0; i < together; i++) {
            const int token = first + i * prefill_warps;
            if (token >= end) break;
            const float scale = inverse[token];
            const float4 y = {fmaf(sum[i].x, scale, bias.x + added[i].x), fmaf(sum[i].y, scale, bias.y + added[i].y),
                              fmaf(sum[i].z, scale, bias.z + added[i].z), fmaf(sum[i].w, scale, bias.w + added[i].w)};
            if (p.to.x) store_half(p, unit, y, norm, row, token0 + token);
            float *const to = m.y + (token0 + token) * m.rows + row;
            if (whole) {
                *reinterpret_cast<float4 *>(to) = y;
            } else {
                const float *const also = p.add ? p.add + (to - m.y) : nullptr;
                if (here > 0) to[0] = y.x + (also ? also[0] : 0);
                if (here > 1) to[1] = y.y + (also ? also[1] : 0);
                if (here > 2) to[2] = y.z + (also ? also[2] : 0);
                if (here > 3) to[3] = y.w + (also ? also[3] : 0);
            }
        }
    }
}

// Stored words FIRST.. of a lane, those of one row, by the widest loads.
template <class Block, int FIRST>
VB_DEVICE void load_words(uint32_t *words, const uint8_t *tile, int lane) {
    using P = Packed<Block>;
    constexpr int end = FIRST + P::words;
#pragma unroll
    for (int i = FIRST; i < end; i++) {
        const int four = i / 4 * 4, two = i / 2 * 2;
        const uint8_t *const at = tile + P::word_offset(lane, i);
        uint32_t *const to = words + i - FIRST;
        if (four >= FIRST && four + 4 <= end && four < 4 * P::quads) {
            if (i > four) continue;
            const uint4 v = load_once(reinterpret_cast<const uint4 *>(at));
            to[0] = v.x, to[1] = v.y, to[2] = v.z, to[3] = v.w;
        } else if (two >= FIRST && two + 2 <= end) {
            if (i > two) continue;
            const uint2 v = __ldg(reinterpret_cast<const uint2 *>(at));
            to[0] = v.x, to[1] = v.y;
        } else {
            to[0] = __ldg(reinterpret_cast<const uint32_t *>(at));
        }
    }
}

// Row g + 8 * half of a tile of gate and the same of the tile of up, in the places of a tile's rows g and g + 8: so that the lane has
// both sums that SwiGLU wants.
template <class Block>
VB_DEVICE void load_gate_and_up(LaneTile<Block> &to, const uint8_t *gate, int64_t up, int half, int lane) {
    using P = Packed<Block>;
    const int row = lane / 4 + 8 * half;
#pragma unroll
    for (int r = 0; r < 2; r++) {
        const uint8_t *const tile = r ? gate + up : gate, *const scales = tile + P::code_bytes;
        if constexpr (P::words % 4 == 0) load_words<Block, 0>(to.words + r * P::words, tile + half * (P::words / 4 * 512), lane);
        else if (half) load_words<Block, P::words>(to.words + r * P::words, tile, lane);
        else load_words<Block, 0>(to.words + r * P::words, tile, lane);
        if constexpr (P::small) {
            const uint2 v = load_once(reinterpret_cast<const uint2 *>(scales) + row);
            if (r) to.scales[0].z = v.x, to.scales[0].w = v.y;
            else to.scales[0].x = v.x, to.scales[0].y = v.y;
        } else {
            to.scales[r] = load_once(reinterpret_cast<const uint4 *>(scales) + row);
        }
        if constexpr (P::k6) to.d[r] = __ldg(reinterpret_cast<const unsigned short *>(scales + P::scale_bytes) + row);
    }
}

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

// Sums of a group: sixteen threads write the 64 neighbours of a token.
template <int TOKENS>
VB_DEVICE void store_sums_staged(const Product &p, const Unit &unit, const float (&c)[TOKENS / 2], const float *inverse, float *staging) {
    constexpr int step = group_threads / 16, each = sums_at_once / step;
    const int thread = threadIdx.x % group_threads, lane = thread % 32, warp = thread / 32, fourth = thread % 16;
    const int64_t token0 = (int64_t)unit.tokens * TOKENS;
    const int tokens = (int)smaller<int64_t>(TOKENS, p.n - token0);
    int tile_row = unit.rows * prefill_warps + group_of_thread() * 4 + fourth / 4;
    const bool exists = tile_row < p.tile_rows;
    if (!exists) tile_row = 0;
    const Matrix &m = p.find<false>(tile_row);
    const FourRows rows(m, exists ? (int64_t)tile_row * packed_rows + fourth % 4 * 4 : m.rows, p.add);
    const float4 bias = m.bias ? rows.load(m.bias, 0) : float4();
#pragma unroll
    for (int first = 0; first < TOKENS; first += sums_at_once) {
        if (first >= tokens) break;
        float4 added[each];
#pragma unroll
        for (int i = 0; i < each; i++) {
            const int token = first + i * step + thread / 16;
            added[i] = p.add && token < tokens ? rows.load(p.add, token0 + token) : float4();
        }
        if (first > 0) group_sync(); // all have read those before
#pragma unroll
        for (int i = 0; i < 2 * sums_at_once / 4; i++)
            if (2 * first / 4 + i < TOKENS / 2)
                staging[(i / 4 * 8 + lane % 4 * 2 + (i & 1)) * sums_width + warp * packed_rows + lane / 4 + (i & 2) * 4] = c[first / 2 + i];
        group_sync();
#pragma unroll
        for (int i = 0; i < each; i++) {
            const int at = i * step + thread / 16, token = first + at;
            const float4 sum = *reinterpret_cast<const float4 *>(staging + at * sums_width + 4 * fourth);
            if (token >= tokens) continue;
            const float scale = inverse[token];
            rows.store({fmaf(sum.x, scale, bias.x + added[i].x), fmaf(sum.y, scale, bias.y + added[i].y),
                        fmaf(sum.z, scale, bias.z + added[i].z), fmaf(sum.w, scale, bias.w + added[i].w)},
                       token0 + token);
        }
    }
}

// silu(gate) * up of a lane, which has both of a row: tokens 8 j + 2 t and the next one in c[4 j] and c[4 j + 1].
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
    const FourRows rows(p.matrices[0], ((int64_t)unit.rows * unit_groups + group_of_thread()) * 32 + thread % 8 * 4, nullptr);
#pragma unroll
    for (int first = 0; first < TOKENS; first += gated_at_once) {
        if (first >= tokens) break;
        if (first > 0) group_sync(); // all have read those before
#pragma unroll
        for (int j = 0; j < gated_at_once / 8; j++)
            if (first / 8 + j < TOKENS / 8) {
                float *const to = staging + (8 * j + lane % 4 * 2) * gated_width + warp * 8 + lane / 4;
                to[0] = c[first / 2 + 4 * j], to[gated_width] = c[first / 2 + 4 * j + 1];
            }
        group_sync();
#pragma unroll
        for (int i = 0; i < gated_at_once; i += group_threads / 8) {
            const int at = i + thread / 8;
            const float4 y = *reinterpret_cast<const float4 *>(staging + at * gated_width + thread % 8 * 4);
            if (first + at < tokens) rows.store(y, token0 + first + at);
        }
    }
}

// Whether it holds for any thread of both groups; all of them meet.
VB_DEVICE bool both_any(bool holds) {
    unsigned any;
    asm volatile("{\n"
                 ".reg .pred in, out;\n"
                 "setp.ne.u32 in, %1, 0;\n"
                 "barrier.cta.red.or.pred out, %2, %3, in;\n"
                 "selp.u32 %0, 1, 0, out;\n"
                 "}\n"
                 : "=r"(any)
                 : "r"((unsigned)holds), "n"(both_groups), "n"(prefill_threads)
                 : "memory");
    return any;
}

// The same to p.to, in F16: four threads write a token's 64 bytes. `largest` is shared by both groups.
template <int TOKENS>
VB_DEVICE void store_gated(const Product &p, const Unit &unit, float (&c)[TOKENS / 2], uint8_t *staging, unsigned (&largest)[TOKENS]) {
    const int thread = threadIdx.x % group_threads, lane = thread % 32, warp = thread / 32;
    const int64_t token0 = (int64_t)unit.tokens * TOKENS, cols = p.matrices[0].rows;
    const int tokens = (int)smaller<int64_t>(TOKENS, p.n - token0);
    if ((int64_t)unit.rows * half_group >= cols) return; // past the last rows
    float most = 0;
#pragma unroll
    for (int j = 0; j < TOKENS / 8; j++) most = fmaxf(most, fmaxf(fabsf(c[4 * j]), fabsf(c[4 * j + 1])));
    unsigned exponent = 0;
    if (both_any(most >= half_limit)) {
        const auto exponent_of = [&](int token) { return half_exponent(largest[token]); }; // of bits of a float
        const auto token_of = [&](int i) { return i / 2 * 8 + lane % 4 * 2 + i % 2; };
        if (threadIdx.x < TOKENS) largest[threadIdx.x] = 0;
        sm90::group_sync(both_groups, prefill_threads);
#pragma unroll
        for (int i = 0; i < TOKENS / 4; i++) atomicMax(largest + token_of(i), __float_as_uint(fabsf(c[i / 2 * 4 + i % 2])));
        sm90::group_sync(both_groups, prefill_threads);
#pragma unroll
        for (int i = 0; i < TOKENS / 4; i++) c[i / 2 * 4 + i % 2] *= power_of_two(-(int)exponent_of(token_of(i)));
        if (threadIdx.x < TOKENS) exponent = exponent_of(threadIdx.x);
        if (threadIdx.x == 0) *p.to.uneven = 1;
    }
    if (threadIdx.x < tokens) p.to.exponents[unit.rows * half_stride(p.n) + token0 + threadIdx.x] = (uint8_t)exponent;
    half *const to = p.to.x + token0 * cols + ((int64_t)unit.rows * unit_groups + group_of_thread()) * 32;
#pragma unroll
    for (int first = 0; first < TOKENS; first += gated_at_once) {
        if (first >= tokens) break;
        if (first > 0) group_sync(); // all have read those before
#pragma unroll
        for (int j = 0; j < gated_at_once / 8; j += 4) {
            const auto pair = [&](int i) {
                const int at = first / 8 + j + i < TOKENS / 8 ? first / 2 + 4 * (j + i) : 0; // past the last tokens anything
                return as_word(__floats2half2_rn(c[at], c[at + 1]));
            };
            sm90::store_transposed(staging + (8 * j + lane) * gated_bytes + warp * 16, pair(0), pair(1), pair(2), pair(3));
        }
        group_sync();
#pragma unroll
        for (int i = 0; i < gated_at_once; i += group_threads / 4) {
            const int at = i + thread / 4, token = first + at, chunk = thread % 4;
            const uint4 *const from = reinterpret_cast<const uint4 *>(staging + at * gated_bytes + chunk / 2 * 32);
            const uint4 a = from[0], b = from[1]; // elements 0..7 and 8..15 of 16
            if (token < tokens)
                *reinterpret_cast<uint4 *>(to + token * cols + chunk * 8) = chunk % 2 ? make_uint4(a.y, a.w, b.y, b.w) : make_uint4(a.x, a.z, b.x, b.z);
        }
    }
}

// Multiplies rows of x in a stage, whose groups of columns from first_group on have exponents of their own, so that these are the
// row's: that of row nth * helpers + thread in exponents[nth].
template <int TOKENS, int ROWS>
VB_DEVICE void even_out(const Product &p, uint8_t *stage, int first_group, int64_t token0, const int (&exponents)[ROWS], int thread) {
    using S = WgmmaShape<TOKENS>;
    static_assert(half_group == sm90::tile_width, "a box has one group of columns");
#pragma unroll
    for (int nth = 0; nth < ROWS; nth++) {
        const int row = nth * helpers + thread;
        if (row >= TOKENS || token0 + row >= p.n) break;
#pragma unroll
        for (int box = 0; box < S::boxes; box++) {
            const int exponent = p.from.exponents[(first_group + box) * half_stride(p.n) + token0 + row] - exponents[nth];
            if (exponent == 0) continue;
            const __half2 factor = splat(power_of_two(larger(exponent, -30)));
            uint4 *const at = reinterpret_cast<uint4 *>(stage + box * S::box_bytes + row * sm90::row_bytes);
#pragma unroll 1
            for (int i = 0; i < sm90::row_bytes / 16; i++) {
                uint4 &v = at[(i + thread) % (sm90::row_bytes / 16)]; // in different banks
                const uint4 old = v;
                v = make_uint4(as_word(__hmul2(as_half2(old.x), factor)), as_word(__hmul2(as_half2(old.y), factor)),
                               as_word(__hmul2(as_half2(old.z), factor)), as_word(__hmul2(as_half2(old.w), factor)));
            }
        }
    }
}

#endif

template <class Block, int TOKENS, bool SWIGLU>
__global__ void __launch_bounds__(wgmma_threads, 1)
    wgmma_kernel(const __grid_constant__ CUtensorMap x, const __grid_constant__ Product product) {
#ifdef VB_SM90A
    using P = Packed<Block>;
    using S = WgmmaShape<TOKENS>;
    extern __shared__ __align__(1024) uint8_t shared[];
    uint64_t *const full = reinterpret_cast<uint64_t *>(shared + S::barriers), *const empty = full + S::stages, *const raw = empty + S::stages;
    uint64_t *const inverse_known = raw + S::stages, *const inverse_read = inverse_known + 1;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, pair = product.pair, cluster = larger(pair, product.cluster);
    const int rank = cluster > 1 ? sm90::cluster_rank() : 0, first_unit = blockIdx.x / cluster, step = gridDim.x / cluster;
    constexpr int stages_a_tile = P::depth / S::columns, batches = S::columns / 16 / S::batch; // of a stage

    LaneTile<Block> next;
    const uint8_t *tile = nullptr;
    const int64_t up = SWIGLU ? product.matrices[1].w - product.matrices[0].w : 0;
    // With SwiGLU a warp has half of the rows of a tile of gate and of the same of up, otherwise those of a tile.
    const auto tile_row_of = [&](const Unit &unit) { return (unit.rows * prefill_warps + warp) / (SWIGLU ? 2 : 1); };
    const auto load = [&] {
        if constexpr (SWIGLU) load_gate_and_up<Block>(next, tile, up, warp % 2, lane);
        else next.template load<true>(tile, lane);
    };
    const auto begin = [&](const Unit &unit) { // fetches the first tile of weights
        if constexpr (SWIGLU)
            tile = product.matrices[0].w +
                   ((int64_t)smaller(tile_row_of(unit), product.matrices[0].tile_rows - 1) * product.k_tiles + unit.k0) * P::tile_bytes;
        else tile = first_tile<Block, false>(product, unit, warp);
        load();
    };
    if (warp < prefill_warps) begin(Unit::of(product, first_unit, rank));
    if (threadIdx.x == 0) {
        sm90::prefetch_map(&x);
        for (int s = 0; s < S::stages; s++)
            sm90::barrier_init(full + s, 1), sm90::barrier_init(empty + s, pair * prefill_warps), sm90::barrier_init(raw + s, 1);
        sm90::barrier_init(inverse_known, helpers / 32), sm90::barrier_init(inverse_read, prefill_warps);
        sm90::barrier_init_fence();
    }
    if (pair > 1) sm90::cluster_sync();
    else __syncthreads();
    if (!product.beside) wait_for_previous_kernel();
    release_next_kernel();

    int stage = 0;
    unsigned phase = 0;
    const auto advance = [&] {
        if (++stage == S::stages) stage = 0, phase ^= 1;
    };
    float *const inverse = reinterpret_cast<float *>(shared + S::inverse);
    int2 *const places = reinterpret_cast<int2 *>(shared + S::places);
    // What a unit finds in `inverse` comes with every unit, or with the first one for all.
    const auto comes = [&](int u) { return u == first_unit || !product.same_tokens; };
    const auto inverse_phase = [&](int u) { return (u - first_unit) / step & 1; };
    if (warp >= prefill_warps) {
        sm90::registers_shrink<24>();
        const bool uneven = product.from.x && *product.from.uneven; // hardly ever: then it goes on from raw to full once it is even
        uint64_t *const fetched = uneven ? raw : full;
        if (warp == prefill_warps && lane == 0) // fetches x
            for (int u = first_unit; u < product.units; u += step) {
                const Unit unit = Unit::of(product, u, rank);
                const int token = unit.tokens * TOKENS;
                for (int k = unit.k0 * stages_a_tile; k < unit.k1 * stages_a_tile; k++, advance()) {
                    sm90::barrier_wait(empty + stage, phase ^ 1);
                    sm90::barrier_expect(fetched + stage, S::stage_bytes);
#pragma unroll
                    for (int box = 0; box < S::boxes; box++) {
                        uint8_t *const to = shared + stage * S::stage_bytes + box * S::box_bytes;
                        const int column = k * S::columns + box * sm90::tile_width;
                        if (pair > 1)
                            sm90::copy_box_multicast(to + rank * (S::box_bytes / 2), &x, fetched + stage, column, token + rank * (TOKENS / 2), 3);
                        else sm90::copy_box(to, &x, fetched + stage, column, token);
                    }
                }
            }
        if (warp > prefill_warps) { // prepare what scales the sums, and x where it is uneven
            const int thread = threadIdx.x - prefill_threads - 32, cols = product.k_tiles * P::depth;
            for (int u = first_unit; u < product.units && (comes(u) || uneven); u += step) {
                const Unit unit = Unit::of(product, u, rank);
                const int64_t token0 = (int64_t)unit.tokens * TOKENS;
                if (comes(u)) {
                    sm90::barrier_wait(inverse_read, inverse_phase(u) ^ 1);
                    load_inverse<TOKENS>(inverse, product, token0, cols, uneven, thread, helpers);
                    if constexpr (TOKENS < 256 && !SWIGLU)
                        if (product.heads.positions)
                            for (int at = thread; at < TOKENS && token0 + at < product.n; at += helpers)
                                places[at] = product.heads.place((int)token0 + at);
                    __syncwarp();
                    if (lane == 0) sm90::barrier_arrive(inverse_known);
                }
                if (!uneven) continue;
                int exponents[ceil_div(TOKENS, helpers)];
#pragma unroll
                for (int i = 0; i < ceil_div(TOKENS, helpers); i++) {
                    const int64_t token = token0 + i * helpers + thread;
                    exponents[i] = token < product.n ? row_exponent(product, token, cols) : 0;
                }
                for (int k = unit.k0 * stages_a_tile; k < unit.k1 * stages_a_tile; k++, advance()) {
                    sm90::barrier_wait(raw + stage, phase);
                    even_out<TOKENS>(product, shared + stage * S::stage_bytes, k * S::boxes, token0, exponents, thread);
                    sm90::shared_writes_fence();
                    sm90::group_sync(both_groups + 1, helpers);
                    if (thread == 0) sm90::barrier_arrive(full + stage);
                }
            }
        }
        __syncwarp();
        if (product.cluster > 1) sm90::cluster_sync(); // in store_lone
        if (cluster > 1) sm90::cluster_sync();
        return;
    }
    sm90::registers_grow<240>();
    const int group = group_of_thread();
    const auto before = [&] { return stage == 0 ? S::stages - 1 : stage - 1; };
    const auto release = [&](int at) { // of each block of a pair
        if (lane < pair) sm90::barrier_arrive_remote(empty + at, pair > 1 ? lane : rank);
    };
    uint8_t *const staging = shared + S::staging + group * staging_bytes;
    for (int u = first_unit; u < product.units; u += step) {
        const Unit unit = Unit::of(product, u, rank);
        float c[TOKENS / 2] = {};
        uint32_t a[2][S::batch][4];
        for (int k = unit.k0; k < unit.k1; k++) {
            PrefillTile<Block> work;
            work.unpack(next);
            tile += P::tile_bytes;
            if (k + 1 < unit.k1) load();
#pragma unroll
            for (int part = 0; part < stages_a_tile; part++) {
                const uint64_t operand = sm90::describe(shared + stage * S::stage_bytes, 0);
#pragma unroll
                for (int b = 0; b < batches; b++) { // one at work while the next one is prepared
                    uint32_t(&now)[S::batch][4] = a[(part * batches + b) % 2];
#pragma unroll
                    for (int j = 0; j < S::batch; j++) work.fragment(now[j], (part * batches + b) * S::batch + j);
                    if (b == 0) sm90::barrier_wait(full + stage, phase);
                    sm90::wgmma_fence();
#pragma unroll
                    for (int j = 0; j < S::batch; j++) { // 16 columns, 32 bytes each; a box has four of them
                        const int at = b * S::batch + j;
                        sm90::WgmmaRegisters<half, TOKENS, 0>::run(c, now[j], operand + (at / 4 * S::box_bytes + at % 4 * 32) / 16);
                    }
                    sm90::wgmma_commit();
                    sm90::wgmma_wait<1>();
                    if (b == 0 && (part > 0 || k > unit.k0)) release(before());
                }
                advance();
            }
        }
        sm90::wgmma_wait<0>();
        release(before());
        if (u + step < product.units) begin(Unit::of(product, u + step, rank));
        if (comes(u)) sm90::barrier_wait(inverse_known, inverse_phase(u));
        if constexpr (TOKENS < 256 && !SWIGLU)
            if (product.cluster > 0) {
                store_lone<TOKENS>(product, unit, c, inverse, places, reinterpret_cast<float *>(shared), rank);
                break;
            }
        if (!add_splits<TOKENS>(product, unit, c)) {
            if (lane == 0 && !product.same_tokens) sm90::barrier_arrive(inverse_read);
            continue;
        }
        if constexpr (SWIGLU) {
            combine_gate_and_up<TOKENS>(c, inverse);
            __shared__ unsigned largest[TOKENS];
            if (product.to.x) store_gated<TOKENS>(product, unit, c, staging, largest);
            else store_swiglu_rows<TOKENS>(product, unit, c, reinterpret_cast<float *>(staging));
        } else store_sums_staged<TOKENS>(product, unit, c, inverse, reinterpret_cast<float *>(staging));
        __syncwarp();
        if (lane == 0 && !product.same_tokens) sm90::barrier_arrive(inverse_read);
        group_sync(); // all have read what the next unit replaces
    }
    if (cluster > 1) sm90::cluster_sync(); // others may still send to this block, or read its sums
    if (product.beside) wait_for_previous_kernel();
#endif
}

} // namespace vb

#endif // VB_WITH_SM90
#endif
