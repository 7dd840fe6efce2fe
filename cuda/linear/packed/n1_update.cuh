// n1_update.cuh: an adapter's U ((V x) * codes) for the sums of n1.cuh, within the same kernel, for V [ranks][cols] and
// U [rows][ranks] of F16.
//
// The kernel that makes x leaves V x as the sums over each 16 columns (N1Leaves). Each block of the next kernel reads
// these sums together with x and adds them up (N1Projection). So no block waits for another, V is read once, and a
// block reads 8 sums of 4 bytes for each 16 elements of x. Sums of the warps meet in shared memory, at the barrier at
// which the sums of an item meet. The first rows of V and U are fetched before the kernel before has ended.
//
// Attention leaves no sums, so each block of the output's product multiplies x by V itself: a warp a tile of x, which
// the warp has in registers, by eight rows of V at a time. For any other kernel project_n1.cu leaves the sums.
//   moves    U and V once; the sums once a block, or V where there are none, from L2
//   shared   32 bytes a warp and eight ranks of a matrix
//   measured docs/experiments/2026-11-23-adapters-in-a-layer.md
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
    // The lane's part of the products with a tile of x.
    VB_DEVICE void multiply(float (&sum)[8], const float4 (&x)[QUADS]) const {
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
    }
};

// Adds up the sums of N lanes that differ in the bits below `offset` * 2: they keep half of the sums in turns, and
// sum[0..7 / N] are then the lane's.
template <int N>
VB_DEVICE void share_sums(float (&sum)[8], int offset, int lane) {
#pragma unroll
    for (int keep = 4; keep >= 8 / N; keep /= 2, offset /= 2)
#pragma unroll
        for (int r = 0; r < 4; r++) {
            if (r >= keep) continue;
            const bool upper = lane & offset;
            const float other = __shfl_xor_sync(all_lanes, upper ? sum[r] : sum[r + keep], offset);
            sum[r] = (upper ? sum[r + keep] : sum[r]) + other;
        }
}

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
    const float *sums;       // V x as [parts][stride] to add up, 8 groups of each matrix; or null
    int parts, stride;
    int rounds;              // in which a block's threads read eights of ranks of its parts

    // The fields of one matrix; an index would have the parameters copied to memory.
    VB_DEVICE const half *v_of(int m) const { return m ? v[1] : v[0]; }
    VB_DEVICE const half *u_of(int m) const { return m ? u[1] : u[0]; }
};

// Of `count` matrices from `first` on, for blocks of so many warps, `ksplit` of which share the columns.
template <int MATRICES>
N1Update<MATRICES> n1_update(const Adapter &a, int first, int count, int warps, int ksplit = 1) {
    N1Update<MATRICES> u = {{}, {}, a.codes, a.ranks / 8, a.sums ? a.sums + first * a.ranks : nullptr,
                            a.parts, a.matrices * a.ranks, ceil_div(2 * ceil_div(a.parts, ksplit), 32 * warps)};
    for (int m = 0; m < count; m++) u.v[m] = a.of[first + m].v, u.u[m] = a.of[first + m].u;
    return u;
}

// V x of a block: what its warps have of it, in `shared` as [matrix][group][LINEAR_WARPS][8].
// ITSELF: the block multiplies x by V where there are no sums; of one matrix.
template <int QUADS, int MATRICES, bool ITSELF>
struct N1Projection {
    const N1Update<MATRICES> &u;
    float *shared;
    int first, passes; // the first matrix of the block's items; eights of ranks of all of these
    int warp, warps, begin, tiles, lane; // of `tiles` from `begin` on the warp has warp, warp + warps, ...
    int64_t cols;
    int from, to; // the block adds up these parts of u.sums: a thread four ranks of every so many parts
    EightRanks<QUADS> v;
    static constexpr int early = 3; // fours of a thread that are asked for with x
    const float4 *at[early];        // or null
    float4 part[early];

    VB_DEVICE float *sums_of(int pass) const {
        return shared + ((first * u.groups + pass) * LINEAR_WARPS + warp) * 8;
    }
    // Items of the matrices from `first` to `last` are the block's. Before the wait for the kernel before.
    // The sums of missing warps are zeros, as are those of a matrix without V.
    VB_DEVICE void start(int last) {
        passes = u.groups * (MATRICES == 2 ? 2 : last - first + 1);
#pragma unroll 1
        for (int w = u.sums ? warp + warps : warp; w < LINEAR_WARPS; w += warps)
            for (int pass = 0; pass < passes; pass++)
                if (lane < 8) sums_of(pass)[(w - warp) * 8 + lane] = 0;
        if (u.sums) {
            int pass = 0, nth = 0;
#pragma unroll
            for (int i = 0; i < early; i++) {
                at[i] = pass < passes ? part_at(pass, nth) : nullptr;
                if (++nth == u.rounds) nth = 0, pass++;
            }
            return;
        }
        if constexpr (ITSELF) {
            if (!u.v[0]) passes = 0;
            if (passes) fetch(0, warp);
            __syncwarp(); // the sums are zeros
        }
    }
    VB_DEVICE void fetch(int pass, int tile) {
        v.load(u.v[0] + 8 * pass * cols, cols, (int64_t)(begin + tile) * (128 * QUADS), tile < tiles, lane);
    }
    // Tiles come in the warp's order.
    VB_DEVICE void multiply(const float4 (&x)[QUADS], int tile) {
        if (u.sums) return;
#pragma unroll 1
        for (int pass = 0; pass < passes; pass++) {
            float sum[8];
            v.multiply(sum, x);
            share_sums<8>(sum, 16, lane);
            sum[0] += __shfl_xor_sync(all_lanes, sum[0], 1);
            sum[0] += __shfl_xor_sync(all_lanes, sum[0], 2);
            if (lane % 4 == 0) sums_of(pass)[lane / 4] += sum[0];
            if (pass + 1 < passes) fetch(pass + 1, tile);
            else if (tile + warps < tiles) fetch(0, tile + warps);
        }
    }

    VB_DEVICE const float4 *part_at(int pass, int nth) const {
        const int part = from + (nth * 32 * warps + 32 * warp + lane) / 2;
        return part < to ? reinterpret_cast<const float4 *>(u.sums + part * u.stride + (first * u.groups + pass) * 8) +
                               lane % 2
                         : nullptr;
    }
    VB_DEVICE static float4 read(const float4 *p) { return p ? *p : make_float4(0, 0, 0, 0); }
    VB_DEVICE void fetch_parts() {
        if (!u.sums) return;
#pragma unroll
        for (int i = 0; i < early; i++) part[i] = read(at[i]);
    }
    VB_DEVICE void add_parts() {
        if (!u.sums) return;
        int nth_of_all = 0;
#pragma unroll 1
        for (int pass = 0; pass < passes; pass++) {
            float4 sum = make_float4(0, 0, 0, 0);
#pragma unroll 1
            for (int nth = 0; nth < u.rounds; nth++, nth_of_all++) {
                const float4 p = nth_of_all == 0   ? part[0]
                                 : nth_of_all == 1 ? part[1]
                                 : nth_of_all == 2 ? part[2]
                                                   : read(part_at(pass, nth));
                sum.x += p.x, sum.y += p.y, sum.z += p.z, sum.w += p.w;
            }
            const bool second = lane & 16, odd = lane & 8; // the two ranks, and the one of them, that a lane keeps
            const float a = __shfl_xor_sync(all_lanes, second ? sum.x : sum.z, 16),
                        b = __shfl_xor_sync(all_lanes, second ? sum.y : sum.w, 16);
            const float low = (second ? sum.z : sum.x) + a, high = (second ? sum.w : sum.y) + b;
            float one = (odd ? high : low) + __shfl_xor_sync(all_lanes, odd ? low : high, 8);
            one += __shfl_xor_sync(all_lanes, one, 4);
            one += __shfl_xor_sync(all_lanes, one, 2);
            if (lane % 8 < 2) sums_of(pass)[4 * (lane % 2) + lane / 8] = one;
        }
    }
};

// Eight ranks of U for the lane's row of an item.
template <class Out>
VB_DEVICE uint4 load_update(const Out &out, int item, int group, int lane) {
    const int m = out.matrix(item, lane), row = out.row(item, lane);
    const half *const u = out.update.u_of(m);
    return u && row < out.rows_of(m)
               ? __ldg(reinterpret_cast<const uint4 *>(u) + (int64_t)row * out.update.groups + group)
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
VB_DEVICE float update_of(const Out &out, int item, const float *shared, uint4 u, float code, int lane) {
    const auto &a = out.update;
    const int own = out.matrix(item, lane); // the same for 16 lanes
    const float *from = shared + own * a.groups * LINEAR_WARPS * 8 + lane % 16;
    float sum = 0;
#pragma unroll 1
    for (int group = 0;;) {
        float h = 0;
#pragma unroll
        for (int i = 0; i < LINEAR_WARPS / 2; i++) h += from[16 * i];
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
        if (++group == a.groups) return sum;
        from += LINEAR_WARPS * 8, u = load_update(out, item, group, lane), code = load_code(a, group, lane);
    }
}

// V x that a product leaves for the next kernel, whose x the product's rows are: the sums over each 16 rows,
// [16s of rows][matrices][8 groups]. The matrices of the next kernel are at most MATRICES.
template <int MATRICES>
struct N1Leaves {
    const half *v[MATRICES]; // [8 groups][rows], null for none
    const float *norm;       // [rows] that x is multiplied by, or null for ones
    float *sums;             // or null: nothing is left
    int rows, groups, matrices;

    // A warp's part of V for ROWS rows and eight ranks: rank lane / 4, the rows ROWS / 4 * (lane % 4)..
    template <int ROWS>
    struct Ahead {
        uint32_t v[MATRICES][ROWS / 8];
        float norm; // of row lane % ROWS
    };
    template <int ROWS>
    VB_DEVICE void load(uint32_t (&to)[ROWS / 8], int matrix, int group, int first, int lane) const {
        using Words = Vec<uint32_t, ROWS / 8>;
        const int row = first + ROWS / 4 * (lane % 4);
        const half *of = v[0]; // an index would have the parameters copied to memory
#pragma unroll
        for (int m = 1; m < MATRICES; m++)
            if (m == matrix) of = v[m];
        Words words = {};
        if (of && row < rows)
            words = *reinterpret_cast<const Words *>(of + (int64_t)(8 * group + lane / 4) * rows + row);
#pragma unroll
        for (int i = 0; i < ROWS / 8; i++) to[i] = words.at[i];
    }
    template <int ROWS>
    VB_DEVICE void prepare(Ahead<ROWS> *ahead, int first, int lane) const {
        if (!sums) return;
#pragma unroll
        for (int m = 0; m < MATRICES; m++) load<ROWS>(ahead->v[m], m, 0, first, lane);
        ahead->norm = norm && first + lane % ROWS < rows ? norm[first + lane % ROWS] : 1.0f;
    }
    // Lane has x of row first + lane % ROWS, for all lanes. EIGHT: there are no more ranks.
    template <int ROWS, bool EIGHT = false>
    VB_DEVICE void leave(const Ahead<ROWS> &ahead, int first, float x, int lane) const {
        if (!sums) return;
        x = first + lane % ROWS < rows ? x * ahead.norm : 0.0f;
        float of_row[ROWS / 4];
#pragma unroll
        for (int i = 0; i < ROWS / 4; i++) of_row[i] = __shfl_sync(all_lanes, x, ROWS / 4 * (lane % 4) + i);
        const int part = first / packed_rows + (ROWS == 16 ? 0 : lane % 4 / 2);
        const bool stores = lane % (64 / ROWS) == 0 && part * packed_rows < rows;
        float *const to = sums + part * matrices * groups * 8 + lane / 4;
        const auto leave_eight = [&](const uint32_t (&words)[ROWS / 8], int at) {
            float sum = 0;
#pragma unroll
            for (int i = 0; i < ROWS / 8; i++) {
                const float2 two = __half22float2(*reinterpret_cast<const __half2 *>(&words[i]));
                sum = fmaf(of_row[2 * i], two.x, fmaf(of_row[2 * i + 1], two.y, sum));
            }
            sum += __shfl_xor_sync(all_lanes, sum, 1);
            if (ROWS == 16) sum += __shfl_xor_sync(all_lanes, sum, 2);
            if (stores) to[8 * at] = sum;
        };
#pragma unroll
        for (int m = 0; m < MATRICES; m++)
            if (m < matrices) leave_eight(ahead.v[m], m * groups);
        if constexpr (!EIGHT) {
            if (groups == 1) return;
#pragma unroll 1
            for (int m = 0; m < matrices; m++)
#pragma unroll 1
                for (int group = 1; group < groups; group++) {
                    uint32_t words[ROWS / 8];
                    load<ROWS>(words, m, group, first, lane);
                    leave_eight(words, m * groups + group);
                }
        }
    }
};

} // namespace vb
#endif
