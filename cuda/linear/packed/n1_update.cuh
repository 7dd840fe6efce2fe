// n1_update.cuh: an adapter's U ((V x) * codes) for the sums of n1.cuh, within the same kernel, for V [ranks][cols] and
// U [rows][ranks] of F16.
//
// Each block multiplies x by V of its own matrices, so that no block waits for another. A warp multiplies a tile of x,
// which it has in registers, by eight rows of V at a time. The first rows of V and U are fetched before the kernel
// before has ended. Sums of the warps meet in shared memory, at the barrier at which the sums of an item meet.
//   moves    V once a block, U once, from L2: 16 bytes an element of x, and a row, for 8 ranks
//   shared   32 bytes a warp and eight ranks of a matrix
//   measured docs/experiments/2026-11-23-adapters-in-a-layer.md
//
// For down, V has five times as many columns. So norm_swiglu, which has these elements of x in registers, leaves V x as
// the sums of its items (n1_swiglu.cu), and the blocks add them up.
#ifndef VB_LINEAR_N1_UPDATE_CUH
#define VB_LINEAR_N1_UPDATE_CUH

#include "linear/linear.cuh"
#include "linear/packed/packed.cuh"

namespace vb {

VB_DEVICE float coded(float sum, float code) { return code == 0.0f ? 0.0f : sum * code; } // 0: whatever V x is

// Four elements of 128 i + 4 lane.. of a tile and eight ranks, for each of the QUADS i.
template <int QUADS>
struct EightRanks {
    uint2 at[8][QUADS];

    // Rows of `cols` elements; the elements from `cols` on are zeros.
    VB_DEVICE void load(const half *v, int64_t cols, int64_t first, bool exists, int lane) {
#pragma unroll
        for (int r = 0; r < 8; r++)
#pragma unroll
            for (int i = 0; i < QUADS; i++) {
                const int64_t k = first + 128 * i + 4 * lane;
                at[r][i] = exists && k < cols ? __ldg(reinterpret_cast<const uint2 *>(v + r * cols + k))
                                              : make_uint2(0, 0);
            }
    }
    // The product of rank lane / 4 with a tile of x.
    VB_DEVICE float times(const float4 (&x)[QUADS], int lane) const {
        float sum[8];
#pragma unroll
        for (int r = 0; r < 8; r++) {
            sum[r] = 0;
#pragma unroll
            for (int i = 0; i < QUADS; i++) {
                const float2 a = __half22float2(*reinterpret_cast<const __half2 *>(&at[r][i].x)),
                             b = __half22float2(*reinterpret_cast<const __half2 *>(&at[r][i].y));
                sum[r] = fmaf(x[i].x, a.x, fmaf(x[i].y, a.y, fmaf(x[i].z, b.x, fmaf(x[i].w, b.y, sum[r]))));
            }
        }
        // Lanes keep half of their sums in turns, until each has one rank.
#pragma unroll
        for (int keep = 4, offset = 16; keep > 0; keep /= 2, offset /= 2)
#pragma unroll
            for (int r = 0; r < 4; r++) {
                if (r >= keep) continue;
                const bool upper = lane & offset;
                const float other = __shfl_xor_sync(all_lanes, upper ? sum[r] : sum[r + keep], offset);
                sum[r] = (upper ? sum[r + keep] : sum[r]) + other;
            }
        sum[0] += __shfl_xor_sync(all_lanes, sum[0], 1);
        return sum[0] + __shfl_xor_sync(all_lanes, sum[0], 2);
    }
};

struct NoUpdate {
    static constexpr bool active = false;
    static constexpr int item_matrices = 1;
};

// The update of a block's items. MATRICES: of one item, whose half warps have the rows of each. A block may have items
// of two matrices.
template <int MATRICES>
struct N1Update {
    static constexpr bool active = true;
    static constexpr int item_matrices = MATRICES;
    const half *v[2], *u[2]; // of each matrix, null where nothing is added to it
    const float *codes;      // [8 groups], or null for ones
    int groups;              // of 8 ranks
    const float *sums;       // V x as [parts][8 groups] to add up, or null; of a single matrix
    int parts;

    // The fields of one matrix; an index would have the parameters copied to memory.
    VB_DEVICE const half *v_of(int m) const { return m ? v[1] : v[0]; }
    VB_DEVICE const half *u_of(int m) const { return m ? u[1] : u[0]; }
};

// Of `count` matrices from `first` on.
template <int MATRICES>
N1Update<MATRICES> n1_update(const Adapter &a, int first, int count) {
    N1Update<MATRICES> u = {{}, {}, a.codes, a.ranks / 8, a.sums, a.parts};
    for (int m = 0; m < count; m++) u.v[m] = a.of[first + m].v, u.u[m] = a.of[first + m].u;
    return u;
}

// V x of a block: what its warps have of it, in `shared` as [matrix][group][LINEAR_WARPS][8].
template <int QUADS, int MATRICES>
struct N1Projection {
    const N1Update<MATRICES> &u;
    float *shared;
    int first, passes; // the first matrix of the block's items; turns of eight ranks of MATRICES matrices
    int warp, warps, begin, tiles, lane; // of `tiles` from `begin` on the warp has warp, warp + warps, ...
    int64_t cols;
    EightRanks<QUADS> v[MATRICES];
    static constexpr int early = 3;
    float4 part[early]; // of u.sums

    VB_DEVICE float *sums_of(int matrix, int group) const {
        return shared + ((matrix * u.groups + group) * LINEAR_WARPS + warp) * 8;
    }
    // Items of the matrices from `first` to `last` are the block's. Before the wait for the kernel before.
    VB_DEVICE void start(int last) {
        passes = u.groups * (MATRICES == 2 ? 1 : last - first + 1);
        if (u.sums) return;
        for (int i = 0; i < MATRICES * passes; i++) // the lanes that add to the sums
            if (lane % 4 == 0) shared[((first * u.groups + i) * LINEAR_WARPS + warp) * 8 + lane / 4] = 0;
        fetch(0, warp);
    }
    VB_DEVICE void fetch(int pass, int tile) {
        const int next = MATRICES == 2 ? 0 : pass / u.groups, group = pass - next * u.groups;
#pragma unroll
        for (int m = 0; m < MATRICES; m++) {
            const half *const rows = u.v_of(first + next + m);
            v[m].load(rows + 8 * group * cols, cols, (int64_t)(begin + tile) * (128 * QUADS), rows && tile < tiles,
                      lane);
        }
    }
    // Tiles come in the warp's order.
    VB_DEVICE void multiply(const float4 (&x)[QUADS], int tile) {
        if (u.sums) return;
#pragma unroll 1
        for (int pass = 0; pass < passes; pass++) {
            const int next = MATRICES == 2 ? 0 : pass / u.groups, group = pass - next * u.groups;
#pragma unroll
            for (int m = 0; m < MATRICES; m++) {
                const float sum = v[m].times(x, lane);
                if (lane % 4 == 0) sums_of(first + next + m, group)[lane / 4] += sum;
            }
            if (pass + 1 < passes) fetch(pass + 1, tile);
            else if (tile + warps < tiles) fetch(0, tile + warps);
        }
    }

    // Of u.sums the block adds up parts `from` to `to`: a thread four ranks of every so many parts.
    VB_DEVICE float4 read_part(int from, int to, int group, int nth) const {
        const int at = from + (nth * 32 * warps + 32 * warp + lane) / 2;
        return at < to ? reinterpret_cast<const float4 *>(u.sums)[2 * (at * u.groups + group) + lane % 2]
                       : make_float4(0, 0, 0, 0);
    }
    VB_DEVICE void fetch_parts(int from, int to) {
        if (!u.sums) return;
#pragma unroll
        for (int i = 0; i < early; i++) part[i] = read_part(from, to, 0, i);
    }
    VB_DEVICE void add_parts(int from, int to) {
        if (!u.sums) return;
        const int rounds = ceil_div(2 * (to - from), 32 * warps);
#pragma unroll 1
        for (int group = 0; group < u.groups; group++) {
            float4 sum = make_float4(0, 0, 0, 0);
            const auto add = [&](const float4 &p) { sum.x += p.x, sum.y += p.y, sum.z += p.z, sum.w += p.w; };
#pragma unroll
            for (int i = 0; i < early; i++) add(group == 0 ? part[i] : read_part(from, to, group, i));
            for (int i = early; i < rounds; i++) add(read_part(from, to, group, i));
            const bool second = lane & 16, odd = lane & 8; // the two ranks, and the one of them, that a lane keeps
            const float a = __shfl_xor_sync(all_lanes, second ? sum.x : sum.z, 16),
                        b = __shfl_xor_sync(all_lanes, second ? sum.y : sum.w, 16);
            const float low = (second ? sum.z : sum.x) + a, high = (second ? sum.w : sum.y) + b;
            float one = (odd ? high : low) + __shfl_xor_sync(all_lanes, odd ? low : high, 8);
            one += __shfl_xor_sync(all_lanes, one, 4);
            one += __shfl_xor_sync(all_lanes, one, 2);
            if (lane % 8 < 2) sums_of(0, group)[4 * (lane % 2) + lane / 8] = one;
        }
    }
};

// Eight ranks of U for the lane's row of an item.
template <class Out>
VB_DEVICE uint4 load_update(const Out &out, int item, int group, int lane) {
    const int m = out.matrix(item, lane), row = out.row(item, lane);
    const half *const u = out.update.u_of(m);
    return u && row < out.rows_of(m)
               ? __ldg(reinterpret_cast<const uint4 *>(u + ((int64_t)row * out.update.groups + group) * 8))
               : make_uint4(0, 0, 0, 0);
}

// The code of rank lane % 8 of a group.
template <class Update>
VB_DEVICE float load_code(const Update &update, int group, int lane) {
    return update.codes ? update.codes[8 * group + lane % 8] : 1.0f;
}

// The update for the sum of the lane's row of an item, once the block's warps have met. `u` and `code` are of the first
// eight ranks.
template <class Out>
VB_DEVICE float update_of(const Out &out, int item, const float *shared, int warps, uint4 u, float code, int lane) {
    const auto &a = out.update;
    const int own = out.matrix(item, lane); // the same for 16 lanes
    if (!__any_sync(all_lanes, a.v_of(own) != nullptr)) return 0.0f;
    float sum = 0;
#pragma unroll 1
    for (int group = 0; group < a.groups; group++) {
        if (group > 0) u = load_update(out, item, group, lane), code = load_code(a, group, lane);
        const float *const from = shared + (own * a.groups + group) * LINEAR_WARPS * 8 + lane % 8;
        float h = 0;
#pragma unroll
        for (int i = 0; i < LINEAR_WARPS / 2; i++) {
            const int w = lane / 8 % 2 + 2 * i;
            if (w < warps) h += from[8 * w];
        }
        h += __shfl_xor_sync(all_lanes, h, 8);
        h = coded(h, code);
        const uint32_t words[4] = {u.x, u.y, u.z, u.w};
        float odd = 0;
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const float2 two = __half22float2(*reinterpret_cast<const __half2 *>(&words[i]));
            sum = fmaf(__shfl_sync(all_lanes, h, (lane & 16) + 2 * i), two.x, sum);
            odd = fmaf(__shfl_sync(all_lanes, h, (lane & 16) + 2 * i + 1), two.y, odd);
        }
        sum += odd;
    }
    return a.v_of(own) ? sum : 0.0f;
}

} // namespace vb
#endif
