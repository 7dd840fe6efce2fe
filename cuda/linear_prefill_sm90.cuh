// linear_prefill_sm90.cuh: the kernel of linear_prefill.cu on Hopper.
//
// Eight warps dequantize 16 rows of W each into registers, operand A of wgmma; a ninth fetches x, operand B, into a ring of stages of
// 64 or 128 columns. The operands of a batch of instructions are made while the one before is at work.
//
// Of 256 tokens the blocks are in pairs, at neighbouring rows of W, each of which fetches half of x for both.
//
//   shared   four stages of 16 or 32 KiB; with SwiGLU 16 to 64 KiB to exchange sums
//   measured on an H200, norm_swiglu of 512 rows, 2 x 11008 x 2048 Q4_K: 93 us with 256 tokens a unit (three rounds of units, of
//            which 2.6 are used), 99 with 128. Batches of four instructions of 128 tokens and of one of 256; with one and two it
//            takes 105 and 100. What it does not wait for: without dequantizing at all it takes 91, without multiplying 62, and with
//            four warps that dequantize into shared memory beside eight that multiply from there 94
#ifndef VB_LINEAR_PREFILL_SM90_CUH
#define VB_LINEAR_PREFILL_SM90_CUH

#include "linear_prefill.cuh"
#include "sm90.cuh"

#ifdef VB_WITH_SM90

namespace vb {

constexpr int wgmma_threads = prefill_threads + 128; // registers change hands by four warps

template <int TOKENS, bool SWIGLU>
struct WgmmaShape {
    static constexpr int pair = TOKENS == 256 ? 2 : 1;
    static constexpr int boxes = TOKENS == 256 ? 1 : 2, columns = boxes * sm90::tile_width; // of x in a stage
    static constexpr int box_bytes = TOKENS * sm90::row_bytes, stage_bytes = boxes * box_bytes, stages = 4;
    static constexpr int batch = TOKENS == 256 ? 1 : 4; // instructions
    static constexpr int exchange = stages * stage_bytes, barriers = exchange + (SWIGLU ? TOKENS * 256 : 0); // where they begin
    static constexpr int shared = barriers + 2 * stages * 8;
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
    write_halves(p.to.x + token * p.matrices[0].rows + col / 16 * 16, v, half_unit * power_of_two(-exponent));
    const float squares = warp_reduce<Sum>(y.x * y.x + y.y * y.y + y.z * y.z + y.w * y.w);
    const int64_t stride = half_stride(p.n);
    if (lane == 0) p.to.squares[unit.rows * stride + token] = squares;
    if (lane < 2) p.to.exponents[(2 * unit.rows + lane) * stride + token] = (uint8_t)exponent;
}

// Stores what a block has whose only unit this is, or a cluster that shares its columns: the sums go through shared memory, `sums`,
// where those of all blocks are added in their order, so that a warp writes 128 neighbours. Each block has its share of the tokens.
template <int TOKENS>
VB_DEVICE void store_lone(const Product &p, const Unit &unit, const float (&c)[TOKENS / 2], const float *inverse, float *sums, int rank) {
    constexpr int width = prefill_rows + 4; // rows of eight lanes and tokens of four are in different banks
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
#pragma unroll
    for (int i = 0; i < TOKENS / 2; i++)
        sums[(i / 4 * 8 + lane % 4 * 2 + (i & 1)) * width + warp * packed_rows + lane / 4 + (i & 2) * 4] = c[i];
    if (p.cluster > 1) sm90::cluster_sync();
    else multipliers_sync();
    int tile_row = unit.rows * prefill_warps + lane / 4;
    if (tile_row >= p.tile_rows) return;
    const Matrix &m = p.find<false>(tile_row);
    const int64_t row = (int64_t)tile_row * packed_rows + lane % 4 * 4, token0 = (int64_t)unit.tokens * TOKENS;
    const int end = (int)smaller<int64_t>(TOKENS * (rank + 1) / p.cluster, p.n - token0), here = (int)smaller<int64_t>(4, m.rows - row);
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
    for (int first = TOKENS * rank / p.cluster + warp; first < end; first += together * prefill_warps) {
        float4 added[together] = {};
#pragma unroll
        for (int i = 0; i < together; i++) {
            const int token = first + i * prefill_warps;
            if (p.add && whole && token < end) added[i] = *reinterpret_cast<const float4 *>(p.add + (token0 + token) * m.rows + row);
        }
#pragma unroll
        for (int i = 0; i < together; i++) {
            const int token = first + i * prefill_warps;
            if (token >= end) break;
            float4 sum = {};
            for (int block = 0; block < p.cluster; block++) {
                const float *const at = sums + token * width + 4 * lane;
                const float4 v = p.cluster > 1 ? sm90::load_remote(sm90::remote_address(at, block)) : *reinterpret_cast<const float4 *>(at);
                sum.x += v.x, sum.y += v.y, sum.z += v.z, sum.w += v.w;
            }
            const float scale = inverse[token];
            const float4 y = {fmaf(sum.x, scale, bias.x + added[i].x), fmaf(sum.y, scale, bias.y + added[i].y),
                              fmaf(sum.z, scale, bias.z + added[i].z), fmaf(sum.w, scale, bias.w + added[i].w)};
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

// SwiGLU of a unit, in F16, to p.to: by way of shared memory, `exchange`, so that eight threads write a token's 128 bytes.
template <int TOKENS>
VB_DEVICE void store_gated(const Product &p, const Unit &unit, float (&c)[TOKENS / 2], const float *inverse, float *exchange) {
    constexpr int part = TOKENS / 4, stride = 2 * half_group + 16; // bytes of a token: rows of eight are in different banks
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const bool up = warp & 1;
    const int first = up ? TOKENS / 2 : 0;
    const int64_t token0 = (int64_t)unit.tokens * TOKENS;
    combine_swiglu<TOKENS>(c, inverse, exchange, up);
    float most = 0;
#pragma unroll
    for (int i = 0; i < part; i++) most = fmaxf(most, fabsf(c[i]));
    unsigned exponent = 0;
    const auto token_of = [&](int i) { return first + i / 4 * 8 + lane % 4 * 2 + (i & 1); };
    if (multipliers_any(most >= half_limit)) {
        __shared__ unsigned largest[TOKENS]; // bits of a float
        const auto exponent_of = [&](int token) { return half_exponent(largest[token]); };
        if (threadIdx.x < TOKENS) largest[threadIdx.x] = 0;
        multipliers_sync();
#pragma unroll
        for (int i = 0; i < part; i++) atomicMax(largest + token_of(i), __float_as_uint(fabsf(c[i])));
        multipliers_sync();
#pragma unroll
        for (int i = 0; i < part; i++) c[i] *= power_of_two(-(int)exponent_of(token_of(i)));
        if (threadIdx.x < TOKENS) exponent = exponent_of(threadIdx.x);
        if (threadIdx.x == 0) *p.to.uneven = 1;
    }
    uint8_t *const tile = reinterpret_cast<uint8_t *>(exchange);
    uint8_t *const place = tile + (first + lane / 16 * 8 + lane % 8) * stride + warp / 2 * 32 + lane / 8 % 2 * 16;
#pragma unroll
    for (int j = 0; j < part; j += 8) {
        const auto pair = [&](int i) { return as_word(__floats2half2_rn(c[j + i] * half_unit, c[j + i + 1] * half_unit)); };
        sm90::store_transposed(place + j / 4 * 8 * stride, pair(0), pair(2), pair(4), pair(6));
    }
    multipliers_sync();
    const int tokens = (int)smaller<int64_t>(TOKENS, p.n - token0);
    const int64_t cols = p.matrices[0].rows;
    half *const to = p.to.x + token0 * cols + (int64_t)unit.rows * half_group;
#pragma unroll
    for (int i = 0; i < TOKENS * 8 / prefill_threads; i++) {
        const int at = i * prefill_threads + threadIdx.x, token = at / 8, chunk = at % 8;
        const uint4 *const from = reinterpret_cast<const uint4 *>(tile + token * stride + chunk / 2 * 32);
        const uint4 a = from[0], b = from[1]; // elements 0..7 and 8..15 of 16
        if (token < tokens)
            *reinterpret_cast<uint4 *>(to + token * cols + chunk * 8) = chunk % 2 ? make_uint4(a.y, a.w, b.y, b.w) : make_uint4(a.x, a.z, b.x, b.z);
    }
    if (threadIdx.x < tokens) p.to.exponents[unit.rows * half_stride(p.n) + token0 + threadIdx.x] = (uint8_t)exponent;
}

// Sums of columns with the exponents of group `from`, as of columns with those of `to`; of none where it is negative.
template <int TOKENS>
VB_DEVICE void change_exponents(const Product &p, float (&c)[TOKENS / 2], int from, int to, int64_t token0) {
    const int64_t stride = half_stride(p.n);
    const int t = threadIdx.x % 4;
#pragma unroll
    for (int j = 0; j < TOKENS / 8; j++) {
        const int64_t token = token0 + 8 * j + 2 * t;
        if (token >= p.n) break;
        const uint8_t *const at = p.from.exponents + token;
        const uchar2 a = *reinterpret_cast<const uchar2 *>(at + from * stride);
        const uchar2 b = to < 0 ? make_uchar2(0, 0) : *reinterpret_cast<const uchar2 *>(at + to * stride);
        const float x = power_of_two(a.x - b.x), y = power_of_two(a.y - b.y);
        c[4 * j] *= x, c[4 * j + 1] *= y, c[4 * j + 2] *= x, c[4 * j + 3] *= y;
    }
}

#endif

template <class Block, int TOKENS, bool SWIGLU>
__global__ void __launch_bounds__(wgmma_threads, 1)
    wgmma_kernel(const __grid_constant__ CUtensorMap x, const __grid_constant__ Product product) {
#ifdef VB_SM90A
    using P = Packed<Block>;
    using S = WgmmaShape<TOKENS, SWIGLU>;
    constexpr bool PAIR = S::pair == 2;
    extern __shared__ __align__(1024) uint8_t shared[];
    uint64_t *full = reinterpret_cast<uint64_t *>(shared + S::barriers), *empty = full + S::stages;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, cluster = PAIR ? 2 : larger(product.cluster, 1);
    const int rank = cluster > 1 ? sm90::cluster_rank() : 0, first_unit = blockIdx.x / cluster, step = gridDim.x / cluster;
    constexpr int stages_a_tile = P::depth / S::columns, batches = S::columns / 16 / S::batch; // of a stage

    LaneTile<Block> next;
    const uint8_t *tile = nullptr;
    const auto begin = [&](const Unit &unit) { // fetches the first tile of weights
        tile = first_tile<Block, SWIGLU>(product, unit, warp);
        next.template load<true>(tile, lane);
    };
    if (warp < prefill_warps) begin(Unit::of<S::pair>(product, first_unit, rank));
    if (threadIdx.x == 0) {
        sm90::prefetch_map(&x);
        for (int s = 0; s < S::stages; s++) sm90::barrier_init(full + s, 1), sm90::barrier_init(empty + s, S::pair * prefill_warps);
        sm90::barrier_init_fence();
    }
    if (PAIR) sm90::cluster_sync();
    else __syncthreads();
    if (!product.beside) wait_for_previous_kernel();
    release_next_kernel();

    int i = 0; // stage
    if (warp >= prefill_warps) { // one of these fetches x
        sm90::registers_shrink<24>();
        if (warp == prefill_warps && lane == 0)
            for (int u = first_unit; u < product.units; u += step) {
                const Unit unit = Unit::of<S::pair>(product, u, rank);
                for (int k = unit.k0 * stages_a_tile; k < unit.k1 * stages_a_tile; k++, i++) {
                    const int s = i % S::stages;
                    sm90::barrier_wait(empty + s, (i / S::stages & 1) ^ 1);
                    sm90::barrier_expect(full + s, S::stage_bytes);
#pragma unroll
                    for (int box = 0; box < S::boxes; box++) {
                        uint8_t *const to = shared + s * S::stage_bytes + box * S::box_bytes;
                        const int column = k * S::columns + box * sm90::tile_width, token = unit.tokens * TOKENS;
                        if (PAIR)
                            sm90::copy_box_multicast(to + rank * (S::box_bytes / 2), &x, full + s, column, token + rank * (TOKENS / 2), 3);
                        else sm90::copy_box(to, &x, full + s, column, token);
                    }
                }
            }
        __syncwarp();
        if (!PAIR && cluster > 1) sm90::cluster_sync(); // in store_lone
        if (cluster > 1) sm90::cluster_sync();
        return;
    }
    sm90::registers_grow<240>();
    const auto release = [&](int stage) {
        if (PAIR) {
            if (lane < 2) sm90::barrier_arrive_remote(empty + stage, lane);
        } else if (lane == 0) {
            sm90::barrier_arrive(empty + stage);
        }
    };
    __shared__ __align__(8) float inverses[2][TOKENS];
    int buffer = 0;
    const bool uneven = !SWIGLU && product.from.x && *product.from.uneven; // hardly ever
    constexpr int groups_a_tile = P::depth / half_group;
    for (int u = first_unit; u < product.units; u += step, buffer ^= 1) {
        const Unit unit = Unit::of<S::pair>(product, u, rank);
        const int64_t token0 = (int64_t)unit.tokens * TOKENS;
        load_inverse<TOKENS>(inverses[buffer], product, token0, product.k_tiles * P::depth / prefill_rows);
        float c[TOKENS / 2] = {};
        uint32_t a[2][S::batch][4];
        const int first = i;
        for (int k = unit.k0; k < unit.k1; k++) {
            PrefillTile<Block> work;
            work.unpack(next);
            tile += P::tile_bytes;
            if (k + 1 < unit.k1) next.template load<true>(tile, lane);
#pragma unroll
            for (int part = 0; part < stages_a_tile; part++, i++) {
                const int s = i % S::stages;
                const uint64_t operand = sm90::describe(shared + s * S::stage_bytes, 0);
#pragma unroll
                for (int b = 0; b < batches; b++) { // one at work while the next one is prepared
                    if (const int word = (part * batches + b) * S::batch; !SWIGLU && word % 4 == 0 && uneven) {
                        const int group = k * groups_a_tile + word / 4;
                        if (group > unit.k0 * groups_a_tile) {
                            sm90::wgmma_wait<0>();
                            sm90::settle(c);
                            change_exponents<TOKENS>(product, c, group - 1, group, token0);
                        }
                    }
                    uint32_t(&now)[S::batch][4] = a[(part * batches + b) % 2];
#pragma unroll
                    for (int j = 0; j < S::batch; j++) work.fragment(now[j], (part * batches + b) * S::batch + j);
                    if (b == 0) sm90::barrier_wait(full + s, i / S::stages & 1);
                    sm90::wgmma_fence();
#pragma unroll
                    for (int j = 0; j < S::batch; j++) { // 16 columns, 32 bytes each; a box has four of them
                        const int at = b * S::batch + j;
                        sm90::WgmmaRegisters<half, TOKENS, 0>::run(c, now[j], operand + (at / 4 * S::box_bytes + at % 4 * 32) / 16);
                    }
                    sm90::wgmma_commit();
                    sm90::wgmma_wait<1>();
                    if (b == 0 && i > first) release((i - 1) % S::stages); // done with
                }
            }
        }
        sm90::wgmma_wait<0>();
        if (i > first) release((i - 1) % S::stages);
        if (uneven && i > first) change_exponents<TOKENS>(product, c, unit.k1 * groups_a_tile - 1, -1, token0);
        if (u + step < product.units) begin(Unit::of<S::pair>(product, u + step, rank));
        multipliers_sync();
        if constexpr (!PAIR && !SWIGLU)
            if (product.cluster > 0) {
                store_lone<TOKENS>(product, unit, c, inverses[buffer], reinterpret_cast<float *>(shared), rank);
                break;
            }
        if (!add_splits<TOKENS>(product, unit, c)) continue;
        const int tile_row = unit.rows * prefill_warps + warp;
        if constexpr (SWIGLU) {
            float *const exchange = reinterpret_cast<float *>(shared + S::exchange);
            if (product.to.x) store_gated<TOKENS>(product, unit, c, inverses[buffer], exchange);
            else store_swiglu<TOKENS>(product, c, inverses[buffer], exchange, tile_row, token0);
        } else store_sums<TOKENS>(product, c, inverses[buffer], tile_row, lane / 4, token0);
    }
    if (cluster > 1) sm90::cluster_sync(); // others may still send to this block, or read its sums
    if (product.beside) wait_for_previous_kernel();
#endif
}

} // namespace vb

#endif // VB_WITH_SM90
#endif
