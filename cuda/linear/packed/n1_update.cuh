// n1_update.cuh: an adapter's U ((V x) * codes) for the sums of n1.cuh, within the same kernel, for V [ranks][cols] and
// U [rows][ranks] of F16.
//
// Every block needs V x, and no block has time for all of it. So the warps of the first blocks multiply the tiles of x
// in their registers by 8 rows of V, fetched before the kernel before has ended. A block sends the 8 sums of its warps
// to all blocks as letters in global memory. A warp that finishes an item adds up the letters of all parts of x, and
// multiplies by its rows of U. A block computes letters that do not come itself: no kernel waits for a block that may
// not run.
//   letter   a float, and above it the number of the launch: both arrive together, and nothing has to be cleared. Eight
//            copies, each for every eighth block: requests of all blocks for one letter would come one after the other
//   number   blocks add 1024 together to a counter, each when it has read it: the same for all blocks, and another
//            number in the next launch. Eight counters of equal numbers
//   moves    V and U once; 64 bytes of letters for 8 ranks, 8 tiles of x and an item, from L2
//   measured docs/experiments/2026-11-23-adapters-in-a-layer.md
#ifndef VB_LINEAR_N1_UPDATE_CUH
#define VB_LINEAR_N1_UPDATE_CUH

#include "linear/linear.cuh"
#include "linear/packed/packed.cuh"

namespace vb {

struct NoUpdate {
    static constexpr bool active = false;
};

// The update of a block's items. MATRICES: 2 for gate and up, or q and k, whose items the same blocks have.
struct N1Update {
    static constexpr bool active = true;
    const half *v[2], *u[2]; // of each matrix, null where nothing is added to it
    const float *codes;      // [8 groups], or null for ones
    uint64_t *launches;      // the counters
    uint64_t *letters;       // [copies][letter_stride], of which these are [matrix][groups][parts of x][8]
    int matrices, groups;    // of 8 ranks

    // The fields of one matrix; an index would have the parameters copied to memory.
    VB_DEVICE const half *v_of(int m) const { return m ? v[1] : v[0]; }
    VB_DEVICE const half *u_of(int m) const { return m ? u[1] : u[0]; }
};

constexpr int letter_copies = 8, counter_stride = 32, letter_stride = LINEAR_LETTERS; // counters in lines of their own
static_assert(letter_copies * (counter_stride + letter_stride) == workspace_letters, "what a stream has");

// Of `count` matrices from `first` on; their letters lie so many behind the letters of others.
inline N1Update n1_update(const Adapter &a, int first, int count, int64_t letters_before, vb_stream *stream) {
    uint64_t *const launches = letters(stream), *const all = launches + letter_copies * counter_stride;
    N1Update u = {{}, {}, a.codes, launches, all + letters_before, count, a.ranks / 8};
    for (int m = 0; m < count; m++) u.v[m] = a.of[first + m].v, u.u[m] = a.of[first + m].u;
    return u;
}

constexpr unsigned launch_step = 1024; // more than a grid has blocks

VB_DEVICE uint64_t load_letter(const uint64_t *at) {
    uint64_t letter = 0;
#if __CUDA_ARCH__ >= 700
    asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(letter) : "l"(at) : "memory");
#endif
    return letter;
}
VB_DEVICE void store_letter(uint64_t *at, uint64_t letter) {
#if __CUDA_ARCH__ >= 700
    asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" ::"l"(at), "l"(letter) : "memory");
#endif
}

VB_DEVICE int own_copy() { return (int)blockIdx.x % letter_copies; }

// The number of this launch, not 0 before the counter has run around.
VB_DEVICE unsigned number_of_launch(const uint64_t *launches) {
    return (unsigned)(load_letter(launches + own_copy() * counter_stride) / launch_step) + 1;
}
// By one thread of each block, once all threads of the block have the number.
VB_DEVICE void count_launch(uint64_t *launches) {
    const auto add = [&](int copy, uint64_t share) {
#if __CUDA_ARCH__ >= 700
        asm volatile("red.relaxed.gpu.global.add.u64 [%0], %1;" ::"l"(launches + copy * counter_stride), "l"(share)
                     : "memory");
#endif
    };
    const int copy = own_copy(), others = ((int)gridDim.x - 1 - copy) / letter_copies; // blocks of the copy but one
    add(copy, (int)blockIdx.x == copy ? launch_step - others : 1);
    if (blockIdx.x == 0)
        for (int c = (int)gridDim.x; c < letter_copies; c++) add(c, launch_step); // that no block has
}

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

VB_DEVICE float coded(float sum, float code) { return code == 0.0f ? 0.0f : sum * code; } // 0: whatever V x is

// A block's share of V x: the tiles of its warps at a time (a part of x), by eight ranks. The parts are dealt to the
// blocks in order.
// Within a part come the matrices, and within a matrix the groups of ranks.
template <int QUADS>
struct N1Part {
    EightRanks<QUADS> v;
    float sum = 0;
    int tile, letter, rank; // this warp's of the block's tiles, -1 for none; where the letters go, -1 for nowhere

    // Before the wait for the kernel before. Of `tiles` from `begin` on the warp has warp, warp + warps, ...; `first`
    // of `parts` parts of x is the block's first.
    VB_DEVICE void begin(const N1Update &u, int index, int warp, int warps, int begin, int tiles, int first, int rounds,
                         int parts, int64_t cols, int lane) {
        const int of_part = u.matrices * u.groups, nth = index / of_part, part = index - nth * of_part,
                  matrix = part / u.groups, group = part - matrix * u.groups;
        const half *const rows = u.v_of(matrix);
        const bool has = nth < rounds && rows;
        tile = warp + nth * warps;
        if (!has || tile >= tiles) tile = -1;
        letter = has ? (part * parts + first + nth) * 8 : -1;
        rank = 8 * group + lane % 8;
        v.load(rows + 8 * group * cols, cols, (int64_t)(begin + tile) * (128 * QUADS), tile >= 0, lane);
    }
    // By all warps of the block, which have multiplied their tiles.
    VB_DEVICE void send(const N1Update &u, unsigned launch, int warp, int warps, int lane) const {
        __shared__ float sums[LINEAR_WARPS][8];
        if (letter < 0) return;
        if (lane % 4 == 0) sums[warp][lane / 4] = sum;
        __syncthreads();
        if (warp > 0) return;
        float all = 0;
        for (int w = 0; w < warps; w++) all += sums[w][lane % 8];
        all = coded(all, u.codes ? u.codes[rank] : 1.0f);
        for (int copy = lane / 8; copy < letter_copies; copy += 4)
            store_letter(u.letters + copy * letter_stride + letter + lane % 8,
                         (uint64_t)launch << 32 | __float_as_uint(all));
    }
};

// Has L2 fetch the rows of U for the warp that finishes an item.
template <class Out>
VB_DEVICE void fetch_update(const Out &out, int item, int lane) {
#if __CUDA_ARCH__ >= 900
    const int m = out.matrix(item, lane), row = out.row(item, lane);
    const half *const u = out.update.u_of(m);
    if (u && row < out.rows_of(m))
        asm volatile("prefetch.global.L2 [%0];" ::"l"(u + (int64_t)row * 8 * out.update.groups));
#endif
}

// V x of eight ranks: lane has rank lane % 8. `part(p)` has the lane compute rank lane / 4 of part p itself.
template <class Part>
VB_DEVICE float read_letters(const uint64_t *from, int parts, unsigned launch, int lane, const Part &part) {
    constexpr int most_looks = 64; // some 30 microseconds
    float sum = 0;
    for (int first = 0; first < parts; first += 4) {
        const int own = first + lane / 8;
        uint64_t letter = (uint64_t)launch << 32;
        bool missing = true;
        for (int look = 0; missing && look < most_looks; look++) {
            if (own < parts) letter = load_letter(from + own * 8 + lane % 8);
            missing = __any_sync(all_lanes, (unsigned)(letter >> 32) != launch);
        }
        if (!missing) {
            sum += __uint_as_float((unsigned)letter);
            continue;
        }
#pragma unroll 1
        for (int p = first; p < smaller(parts, first + 4); p++) {
            const float here = __shfl_sync(all_lanes, part(p), lane % 8 * 4);
            if (p == own) sum += here;
        }
    }
    sum += __shfl_xor_sync(all_lanes, sum, 8);
    return sum + __shfl_xor_sync(all_lanes, sum, 16);
}

// The update for the sum of the lane's row of an item. `part(matrix, group, p)` is the part of read_letters.
template <class Out, class Part>
VB_DEVICE float update_of(const Out &out, int item, int parts, unsigned launch, int lane, const Part &part) {
    const N1Update &a = out.update;
    const int own = out.matrix(item, lane), row = out.row(item, lane);
    float sum = 0;
#pragma unroll
    for (int m = 0; m < Out::matrices; m++) {
        if (!a.v[m] || !__any_sync(all_lanes, own == m)) continue;
#pragma unroll 1
        for (int group = 0; group < a.groups; group++) {
            const bool exists = own == m && row < out.rows_of(m);
            const uint4 u = exists ? __ldg(reinterpret_cast<const uint4 *>(
                                         a.u[m] + ((int64_t)row * a.groups + group) * 8))
                                   : make_uint4(0, 0, 0, 0);
            const float h = read_letters(a.letters + own_copy() * letter_stride + (m * a.groups + group) * parts * 8,
                                         parts, launch, lane, [&](int p) { return part(m, group, p); });
            const uint32_t words[4] = {u.x, u.y, u.z, u.w};
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const float2 two = __half22float2(*reinterpret_cast<const __half2 *>(&words[i]));
                sum = fmaf(__shfl_sync(all_lanes, h, 2 * i), two.x, sum);
                sum = fmaf(__shfl_sync(all_lanes, h, 2 * i + 1), two.y, sum);
            }
        }
    }
    return sum;
}

} // namespace vb
#endif
