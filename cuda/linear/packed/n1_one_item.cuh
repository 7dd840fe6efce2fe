// n1_one_item.cuh: the product of n1.cuh with an adapter's update, where each block, or each cluster, has one item.
//
// Kernels start cold: an instruction comes from L2 behind the weights, and straight code is fetched ahead. So no warp
// jumps over another's work, and the warps do not meet for the adapter. Each warp adds up its part of the sums V x that
// the kernel before has left, or multiplies its tile of x by V. The tensor cores multiply the result by the item's rows
// of U, and a warp's sums begin with the product: adding up the warps adds the update up. Lanes need not be added up
// before, for lane (g, t) has the ranks 2t and 2t + 1 of column g of operand B, and all columns of a row are added.
// V x is two TF32 numbers, U is F16: the product is float32's to about 1e-6. EIGHT ranks take no loop over ranks.
//   grid     a block, or a cluster of KSPLIT blocks, for each item; up to 8 warps of at most 128 registers
//   shared   as n1.cuh, less V x
//   moves    the weights, U and V once; x and the sums V x once a block
//   measured docs/experiments/2026-11-23-adapters-in-a-layer.md
#ifndef VB_LINEAR_N1_ONE_ITEM_CUH
#define VB_LINEAR_N1_ONE_ITEM_CUH

#include "linear/packed/n1.cuh"

namespace vb {

// Eight ranks of U for 16 rows of each part as operand A, by lane (g, t): the ranks 2t, 2t + 1 of the rows g and g + 8.
template <int PARTS>
struct N1Fragment {
    uint32_t rows[PARTS][2];

    template <class Out>
    VB_DEVICE void load(const Out &out, int item, int group, int lane) {
        const int m = out.matrix(item, 0), g = lane / 4, t = lane % 4;
        const half *const u = out.update.u_of(m);
#pragma unroll
        for (int i = 0; i < 2 * PARTS; i++) {
            const int row = out.row(item, 8 * i + g);
            const half *const from = u + (int64_t)row * 8 * out.update.groups + 8 * group + 2 * t;
            rows[i / 2][i % 2] = u && row < out.rows_of(m) ? __ldg(reinterpret_cast<const uint32_t *>(from)) : 0;
        }
    }
    // sum[2 * part], sum[2 * part + 1] += this lane's share of the rows g and g + 8 times x, of the ranks 2t, 2t + 1.
    VB_DEVICE void multiply(float (&sum)[2 * PARTS], float2 x) const {
        const auto high = [](float f) { return __float_as_uint(f) & 0xffffe000u; };
        const auto low = [&](float f) { return __float_as_uint(f - __uint_as_float(high(f))); };
#pragma unroll
        for (int p = 0; p < PARTS; p++) {
            const float2 a = __half22float2(*reinterpret_cast<const __half2 *>(&rows[p][0])),
                         b = __half22float2(*reinterpret_cast<const __half2 *>(&rows[p][1]));
            const uint32_t words[4] = {__float_as_uint(a.x), __float_as_uint(b.x), __float_as_uint(a.y),
                                       __float_as_uint(b.y)};
            float c[4] = {};
            mma_16x8x8_tf32(c, words, low(x.x), low(x.y));
            mma_16x8x8_tf32(c, words, high(x.x), high(x.y));
            sum[2 * p] += c[0] + c[1], sum[2 * p + 1] += c[2] + c[3];
        }
    }
};

// Out and in are n1_product's; all rows of an item are of one matrix. Where KSPLIT is 1 a warp has one tile of each
// part, and x V is there for products of a norm alone. Where it is 2 a warp has at most 8 loads of x a lane.
// EIGHT: there are no more ranks, and no code for them: a warp would jump over it, and wait for what is behind.
template <class Block, int PARTS, int KSPLIT, bool EIGHT, class Out>
VB_DEVICE void n1_one_item(const N1Input &in, const Out &out, int item) {
#if defined(VB_HAS_MMA) && __CUDA_ARCH__ >= 900
    static_assert(!Out::joined && !Out::late && (KSPLIT == 1 || !Out::norm), "of these alone");
    using P = Packed<Block>;
    using V = N1Tile<Block>;
    constexpr int quads = P::depth / 128, results = 16 * PARTS, most = KSPLIT == 1 ? 1 : 8 / quads;
    constexpr bool itself = !Out::norm && KSPLIT == 1; // multiplies x by V
    constexpr int early = KSPLIT == 1 ? 2 : 6;         // sums of V x that a lane asks for with x
    extern __shared__ __align__(128) uint8_t shared[];
    const int lane = threadIdx.x % 32, warp = __shfl_sync(all_lanes, threadIdx.x / 32, 0), warps = blockDim.x / 32;
    const int g = lane / 4, t = lane % 4;
    const int rank = KSPLIT > 1 ? blockIdx.x % KSPLIT : 0, begin = in.tiles * rank / KSPLIT;
    const int tiles = in.tiles * (rank + 1) / KSPLIT - begin, stages = KSPLIT == 1 ? PARTS : in.stages;
    uint8_t *const activations = shared + warps * stages * P::tile_bytes; // tile j of warp w: slot j * warps + w
    const int slots = KSPLIT == 1 ? warps : ceil_div(ceil_div(in.tiles, KSPLIT), warps) * warps;
    float *const partial = reinterpret_cast<float *>(activations + slots * V::bytes); // [n1_warps][results]
    float *const squares = partial + n1_warps * results;                              // [n1_warps]
    float *const inbox = squares + n1_warps; // [KSPLIT - 1][results]
    uint64_t *const mailbox = reinterpret_cast<uint64_t *>(inbox + (KSPLIT - 1) * results);
    uint64_t *const barriers = mailbox + 1; // [warps][stages]

    // What does not depend on the kernel before, the adapter's first: it would come behind the weights.
    const auto &update = out.update;
    const int matrix = out.matrix(item, 0);
    N1Fragment<PARTS> u;
    u.load(out, item, 0, lane);
    EightRanks<quads> v;
    const auto load_v = [&](int group) {
        v.load(update.v[0] + (int64_t)8 * group * in.cols, in.cols, (int64_t)warp * P::depth, update.v[0], lane);
    };
    if constexpr (itself) load_v(0);
    // The sums of the parts `from`, from + 8 * warps, ... below `to`, of the ranks 2t and 2t + 1.
    const int to = update.parts * (rank + 1) / KSPLIT, from = update.parts * rank / KSPLIT + 8 * warp + g;
    const float *const sums = update.sums + matrix * update.groups * 8 + 2 * t;
    const auto part = [&](int group, int i) {
        const int at = from + i * 8 * warps;
        return !itself && at < to ? *reinterpret_cast<const float2 *>(sums + at * update.stride + 8 * group)
                                  : make_float2(0, 0);
    };
    typename Out::Ahead ahead = {};
    if (warp == 0) out.prepare(&ahead, item, lane);

    TileRing<P::tile_bytes, true> ring;
    ring.start(shared + warp * stages * P::tile_bytes, barriers + warp * stages, stages, lane);
    const uint8_t *row[PARTS];
#pragma unroll
    for (int p = 0; p < PARTS; p++) row[p] = out.tiles(item, p) + (begin + warp) * P::tile_bytes;
    const int own = PARTS * (KSPLIT == 1 ? 1 : ceil_div(tiles - warp, warps)); // tiles of the warp, its parts in turn
    const auto address = [&](int i) {
        return (PARTS > 1 && i % PARTS ? row[PARTS - 1] : row[0]) + i / PARTS * warps * P::tile_bytes;
    };
#pragma unroll(KSPLIT == 1 ? PARTS : 1)
    for (int i = 0; i < stages; i++) ring.fetch(i, address(i), i < own, lane);
    if constexpr (KSPLIT > 1) {
        mailbox_init(mailbox, (KSPLIT - 1) * results * (int)sizeof(float), rank == 0 && warp == 0 && lane == 0);
        cluster_arrive();
    }
    int offsets[4];
#pragma unroll
    for (int c = 0; c < 4; c++) offsets[c] = V::operand_offset(lane, c);
    // Elements of the warp's tile i: 4 of each 128 a lane.
    const auto load = [&](float4 (&e)[quads], const float *x, int i) {
        const int k = warp + i * warps, first = (begin + k) * P::depth + 4 * lane;
#pragma unroll
        for (int q = 0; q < quads; q++)
            e[q] = (KSPLIT == 1 || k < tiles) && (!P::ragged || first + 128 * q < in.cols)
                       ? *reinterpret_cast<const float4 *>(x + first + 128 * q)
                       : make_float4(0, 0, 0, 0);
    };
    float4 norm[quads];
#pragma unroll
    for (int q = 0; q < quads; q++) norm[q] = make_float4(1, 1, 1, 1);
    if (Out::norm && in.norm) load(norm, in.norm, 0);
    // Where x and V x lie is found before the wait: the compiler would find it behind. It does so where there is no
    // norm, whose kernels are as fast.
    const auto found = [](const float *at) {
        asm volatile("" : "+l"(at));
        __builtin_assume(__isGlobal(at));
        return at;
    };
    const float *x_at = in.x + (begin + warp) * P::depth + 4 * lane, *parts_at[early];
    if constexpr (Out::norm) {
        x_at = found(x_at);
#pragma unroll
        for (int i = 0; i < early; i++) parts_at[i] = found(sums + (from + i * 8 * warps) * update.stride);
    }
    if constexpr (KSPLIT > 1) cluster_wait(); // the mailbox stands
    wait_for_previous_kernel();

    float4 x[most][quads];
    float2 parts[early], code;
    if constexpr (Out::norm) {
#pragma unroll
        for (int q = 0; q < quads; q++)
            x[0][q] = !P::ragged || (begin + warp) * P::depth + 4 * lane + 128 * q < in.cols
                          ? *reinterpret_cast<const float4 *>(x_at + 128 * q)
                          : make_float4(0, 0, 0, 0);
#pragma unroll
        for (int i = 0; i < early; i++)
            parts[i] = from + i * 8 * warps < to ? *reinterpret_cast<const float2 *>(parts_at[i]) : make_float2(0, 0);
    } else {
#pragma unroll
        for (int i = 0; i < most; i++) load(x[i], in.x, i);
#pragma unroll
        for (int i = 0; i < early; i++) parts[i] = part(0, i);
    }
    const auto load_code = [&](int group) {
        code = update.codes ? make_float2(update.codes[8 * group + 2 * t], update.codes[8 * group + 2 * t + 1])
                            : make_float2(1, 1);
    };
    load_code(0);
    out.fetch(&ahead, item, lane);
    release_next_kernel(); // not before x is on its way
    if constexpr (Out::norm) {
        float square = 0;
#pragma unroll
        for (int q = 0; q < quads; q++) {
            float4 &e = x[0][q];
            square = fmaf(e.x, e.x, fmaf(e.y, e.y, fmaf(e.z, e.z, fmaf(e.w, e.w, square))));
            e.x *= norm[q].x, e.y *= norm[q].y, e.z *= norm[q].z, e.w *= norm[q].w;
        }
        square = warp_reduce<Sum>(square);
        if (lane == 0) squares[warp] = square;
    }
    float2 eight = {}; // this lane's share of V x
    const auto multiply_v = [&] {
        float sum[8];
        v.multiply(sum, x[0]);
        share_sums<4>(sum, 2, lane);
        eight = make_float2(sum[0], sum[1]);
    };
    if constexpr (itself) multiply_v();
    uint8_t *slot = activations + warp * V::bytes;
#pragma unroll 1
    for (int i = 0; i < most && (KSPLIT == 1 || i < own / PARTS); i++, slot += warps * V::bytes) {
        V::quantize(slot, x[0], lane);
#pragma unroll
        for (int next = 1; next < most; next++) // the next tile moves to place 0
#pragma unroll
            for (int q = 0; q < quads; q++) x[next - 1][q] = x[next][q];
    }
    out.fetch_more(&ahead, item, lane);

    float sum[2 * PARTS] = {}; // of the rows g, g + 8 of each part
#pragma unroll 1
    for (int group = 0;;) {
        if constexpr (!itself) {
            eight = parts[0];
#pragma unroll
            for (int i = 1; i < early; i++) eight.x += parts[i].x, eight.y += parts[i].y;
#pragma unroll 1
            for (int i = early; from - g + i * 8 * warps < to; i++) { // all lanes alike
                const float2 more = part(group, i);
                eight.x += more.x, eight.y += more.y;
            }
        }
        __syncwarp(); // x as bytes is there; and all lanes are, for the tensor cores
        u.multiply(sum, make_float2(coded(eight.x, code.x), coded(eight.y, code.y)));
        if (EIGHT || ++group == update.groups) break;
        u.load(out, item, group, lane), load_code(group);
        if constexpr (itself) load_v(group), multiply_v();
#pragma unroll
        for (int i = 0; i < early; i++) parts[i] = part(group, i);
    }
    const uint4 by = P::summand_words();
    const uint8_t *from_slot = activations + warp * V::bytes;
#pragma unroll 1
    for (int i = 0; i < own; from_slot += warps * V::bytes) {
        N1Operand<Block> operand;
        operand.load(from_slot, offsets, lane);
#pragma unroll 1
        for (int p = 0; p < PARTS; p++, i++) { // the next part's sums move to place 0
            N1Weights<Block> weights;
            weights.load(ring.wait(), lane);
            ring.refill(address(i + stages), KSPLIT > 1 && i + stages < own, lane);
            weights.multiply(sum, operand, by, lane);
            const float first = sum[0], second = sum[1];
            sum[0] = sum[2 * PARTS - 2], sum[1] = sum[2 * PARTS - 1];
            sum[2 * PARTS - 2] = first, sum[2 * PARTS - 1] = second;
        }
    }
    n1_store_sums<PARTS>(partial + warp * results, sum, lane);
    __syncthreads();
    if (warp != 0) return;

    float total = 0;
#pragma unroll
    for (int i = 0; i < n1_warps * results / 32; i++)
        if (32 * i + lane < warps * results) total += partial[32 * i + lane];
    if (PARTS == 1) total += __shfl_xor_sync(all_lanes, total, 16);
    if constexpr (Out::norm) {
        float mean = 0;
#pragma unroll
        for (int w = 0; w < n1_warps; w++)
            if (w < warps) mean += squares[w];
        total *= rsqrtf(mean / static_cast<float>(P::ragged ? in.cols : tiles * P::depth) + in.eps);
    }
    if constexpr (KSPLIT > 1) {
        if (rank != 0) {
            if (lane < results)
                send(cluster_address(inbox + (rank - 1) * results + lane, 0), cluster_address(mailbox, 0), total);
            return;
        }
        mailbox_wait(mailbox);
#pragma unroll
        for (int r = 1; r < KSPLIT; r++) total += inbox[(r - 1) * results + lane % results];
    }
    out.store(ahead, item, lane, total);
#endif
}

} // namespace vb
#endif
