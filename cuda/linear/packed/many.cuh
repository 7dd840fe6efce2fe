// many.cuh: operand A of the 16-bit tensor-core instructions, made in registers from packed weights.
//
// A value word of the packed layout (packed.cuh) holds the codes of four neighbours k = 16 v + 4 t + (0..3) of a row.
// The instruction for the 16 elements of v takes positions 2t, 2t + 1 and 8 + 2t, 9 + 2t from lane t. Any order of k
// will do if x has the same order. So x is laid out with its elements permuted (position_of), and a value word becomes
// the lane's two registers as it is: no shuffles, no shared memory for weights.
//
// Values are multiplied by 64 on the way to F16, so that products of small scales stay normal numbers. |w| must stay
// below 1023, and values below 2^-20 lose digits: both limits lie far outside of trained weights.
#ifndef VB_LINEAR_MANY_CUH
#define VB_LINEAR_MANY_CUH

#include "linear/packed/heads.cuh"
#include "linear/packed/packed.cuh"
#include "arch/group_sync.cuh"
#include "arch/tensor_core.cuh"
#include "runtime/quotient.cuh"

namespace vb {

constexpr float half_unit = 64.0f;

// Where element e of 16 stands in an instruction's k.
__host__ __device__ constexpr int position_of(int e) { return e / 4 * 2 + e / 2 % 2 * 8 + e % 2; }

VB_DEVICE __half2 as_half2(uint32_t v) { return *reinterpret_cast<__half2 *>(&v); }
VB_DEVICE uint32_t as_word(__half2 v) { return *reinterpret_cast<uint32_t *>(&v); }

// Writes four neighbours from 4 * (lane % 4) on of 16, times scale, to their places, where `to_memory`.
// Lanes exchange elements, so that each lane has four halves in a row.
VB_DEVICE void write_halves(half *sixteen, const float4 &from, float scale, bool to_memory = true) {
    const int t = threadIdx.x % 4, odd = t & 1;
    const uint32_t low = as_word(__floats2half2_rn(from.x * scale, from.y * scale));
    const uint32_t high = as_word(__floats2half2_rn(from.z * scale, from.w * scale));
    const uint32_t other = __shfl_xor_sync(all_lanes, odd ? low : high, 1);
    if (to_memory)
        *reinterpret_cast<uint2 *>(sixteen + position_of(4 * (t - odd) + 2 * odd)) =
            odd ? make_uint2(other, high) : make_uint2(low, other);
}

VB_DEVICE __half2 splat(float v) { return __half2half2(__float2half_rn(v)); }

// A LaneTile, unpacked: value words as bytes, and the scales in a form that costs little to apply.
template <class Block>
struct ManyTile {
    using P = Packed<Block>;
    uint32_t v[2][P::values]; // floats: the upper bytes of halves
    // small: four halves, and four addends, times 64; k4: sc[0..3], sc[4..7], min[0..3], min[4..7]; k2; k6 + 128; e4m3
    uint32_t scales[2][P::small && !P::mins ? 2 : 4];
    static constexpr bool starts_anew = false; // its sums are added to those of the tiles before
    __half2 d[2]; // k4: {d, -dmin}; k2: {d, -dmin / 16}; k6: d of both rows; all times 64

    VB_DEVICE void unpack(const LaneTile<Block> &w) {
        if constexpr (!P::floats) unpack_rows_raised(v, w);
        else
#pragma unroll
            for (int r = 0; r < 2; r++)
#pragma unroll
                for (int i = 0; i < P::words; i++) {
                    const uint32_t word = w.words[r * P::words + i];
                    v[r][i] = P::half_bytes(word, ~word), v[r][i + P::words] = P::half_bytes(word >> 16, ~(word >> 16));
                }
        if constexpr (P::small) {
            const auto halves = [](uint32_t two) { // of powers, values beyond halves are far outside of trained weights
                __half2 v = as_half2(two);
                if constexpr (P::powers)
                    v = __floats2half2_rn(P::scale_of_bits(two & 0xffff), P::scale_of_bits(two >> 16));
                return as_word(__hmul2(v, splat(half_unit)));
            };
            scales[0][0] = halves(w.scales[0].x), scales[0][1] = halves(w.scales[0].y);
            scales[1][0] = halves(w.scales[0].z), scales[1][1] = halves(w.scales[0].w);
            if constexpr (P::mins) {
                scales[0][2] = halves(w.scales[1].x), scales[0][3] = halves(w.scales[1].y);
                scales[1][2] = halves(w.scales[1].z), scales[1][3] = halves(w.scales[1].w);
            }
        } else if constexpr (P::k4) {
#pragma unroll
            for (int r = 0; r < 2; r++) {
                const uint4 s = w.scales[r];
                k4_scales(scales[r], s);
                d[r] = __hmul2(as_half2(s.x), __floats2half2_rn(half_unit, -half_unit));
            }
        } else if constexpr (P::k2 || P::e4m3) {
#pragma unroll
            for (int r = 0; r < 2; r++) {
                const uint4 s = w.scales[r];
                scales[r][0] = s.x, scales[r][1] = s.y, scales[r][2] = s.z, scales[r][3] = s.w;
                if constexpr (P::k2)
                    d[r] = __hmul2(as_half2(w.d[r]), __floats2half2_rn(half_unit, -half_unit / 16));
            }
        } else {
#pragma unroll
            for (int r = 0; r < 2; r++) {
                const uint4 s = w.scales[r]; // q6_scale_byte: word h, byte p is the scale of 4 p + h; + 128
                scales[r][0] = s.x ^ 0x80808080, scales[r][1] = s.y ^ 0x80808080;
                scales[r][2] = s.z ^ 0x80808080, scales[r][3] = s.w ^ 0x80808080;
            }
            d[0] = d[1] = __hmul2(as_half2(w.d[0] | w.d[1] << 16), splat(half_unit));
        }
    }

    // a[0..3] = operand A for value word i, which is a constant after unrolling.
    VB_DEVICE void fragment(uint32_t a[4], int i) const {
        __half2 scale[2], offset[2];
        if constexpr (P::small) {
#pragma unroll
            for (int r = 0; r < 2; r++) {
                const auto of_group = [&](uint32_t two) {
                    return i & 2 ? __high2half2(as_half2(two)) : __low2half2(as_half2(two));
                };
                scale[r] = of_group(scales[r][i >> 2]);
                if constexpr (P::mins) offset[r] = of_group(scales[r][2 + (i >> 2)]);
            }
        } else if constexpr (P::k4) {
            const int s = i >> 1; // of 8
#pragma unroll
            for (int r = 0; r < 2; r++) {
                const uint32_t bytes =
                    __byte_perm(scales[r][s >> 2], scales[r][2 + (s >> 2)], 0x0400 + (s & 3) * 0x0101);
                const __half2 both =
                    __hmul2(__hsub2(as_half2((bytes & 0x00ff00ff) | 0x64006400), splat(1024.0f)), d[r]);
                scale[r] = __low2half2(both), offset[r] = __high2half2(both);
            }
        } else if constexpr (P::k2) {
#pragma unroll
            for (int r = 0; r < 2; r++) { // the scale, and 16 times the minimum
                const uint32_t bytes = __byte_perm(scales[r][i & 3], 0, 0x4040 + (i >> 2) * 0x0101);
                const __half2 both =
                    __hmul2(__hsub2(as_half2((bytes & 0x00f0000f) | 0x64006400), splat(1024.0f)), d[r]);
                scale[r] = __low2half2(both), offset[r] = __high2half2(both);
            }
        } else {
            const uint32_t bytes = __byte_perm(scales[0][i & 3], scales[1][i & 3], 0x0400 + (i >> 2) * 0x0101);
            __half2 both;
            // as halves the floats of 8 bits are 2^-7 times their value
            if constexpr (P::e4m3) both = __hmul2(as_half2((bytes & 0x007f007f) << 7), splat(128 * half_unit));
            else both = __hmul2(__hsub2(as_half2((bytes & 0x00ff00ff) | 0x64006400), splat(1152.0f)), d[0]);
            scale[0] = __low2half2(both), scale[1] = __high2half2(both);
        }
        constexpr float zero = 1024 + (P::is_signed ? 128 : P::zero);
        const auto two = [](uint32_t bytes, int h) { // bytes 0, 1 or 2, 3, as 1024 + code
            if constexpr (P::floats) return as_half2(__byte_perm(bytes, 0, h ? 0x3424 : 0x1404));
            else return __hsub2(as_half2(__byte_perm(bytes, 0x64646464, h ? 0x4342 : 0x4140)), splat(zero));
        };
#pragma unroll
        for (int r = 0; r < 2; r++)
#pragma unroll
            for (int h = 0; h < 2; h++) {
                const __half2 q = two(v[r][i], h);
                constexpr bool offsets = P::k2 || P::k4 || P::mins;
                a[2 * h + r] = as_word(offsets ? __hfma2(q, scale[r], offset[r]) : __hmul2(q, scale[r]));
            }
    }
};

// ---- the product, for all architectures -----------------------------------------------------------------------------

constexpr int unit_warps = 8, unit_threads = 32 * unit_warps; // that multiply, each 16 rows of W
constexpr int unit_rows = packed_rows * unit_warps;              // of a unit

struct Matrix {
    const uint8_t *w;
    float *y;          // [n][rows]
    const float *bias; // [rows] or null
    int64_t rows;
    int tile_rows;
    const half *u = nullptr; // [rows][8 * groups of the product] of an adapter, or null
    int first_group = 0;     // of Product::h
    void *cache = nullptr; // where rows go instead of y, and whether they are rotated: where the product places heads
    bool rotated = false;
};

// Rows [n][cols] between two products, in F16, in the order of position_of. A value too great for F16 is divided by a
// power of two.
// The power is common to a token and half_group columns: `exponents`[cols / half_group][half_stride(n)]. `uneven` is 0
// if all exponents are.
// Rows that a norm's weights multiply also have sums of squares over each unit_rows columns, by which the norm divides:
// `squares`[cols / unit_rows][half_stride(n)].
struct HalfRows {
    half *x;
    uint8_t *exponents;
    unsigned *uneven;
    float *squares;
};
constexpr int half_group = unit_rows / 2; // SwiGLU's results in a unit
constexpr float half_limit = 32768; // half of F16's range; below 2^-14 digits are lost

__host__ __device__ constexpr int64_t half_stride(int64_t n) { return (n + 63) / 64 * 64; }

// The exponent for a group, from the bits of its largest value: values divided by 2 to this power are below half_limit.
VB_DEVICE unsigned half_exponent(unsigned bits) { return (unsigned)larger<int>((int)(bits >> 23) - 141, 0); }

// Up to three matrices by the same x, their rows of tiles one after the other. With SwiGLU gate and up come in turn:
// warp 2 i has rows of the gate, and warp 2 i + 1 the same rows of the up projection.
struct Product {
    Matrix matrices[3];
    int tile_rows = 0;        // of all
    const float *add = nullptr;     // [n][rows] that are added to y of the first, or null; may be y
    // [n], or null: then x is as it is, or divided by the root of its mean square + eps where `from` has squares
    const float *inverse = nullptr;
    float eps = 0;
    HalfRows from = {};        // x, where another product wrote it
    HalfRows to = {};          // where SwiGLU's results go instead of y; else, where not null, y too, multiplied by
    const float *to_norm = nullptr; // [rows], or null for ones
    float *partial = nullptr;       // [shared units][ksplit][TOKENS / 8][threads] of four sums
    unsigned *arrived = nullptr;    // a counter for each shared unit, 0 between kernels
    int64_t n = 0;
    int cols = 0; // of x in memory: the last tile may lack some, which are zeros
    // units: `whole` ones, then `ksplit` shares for each of the others, or their tiles spread
    int k_tiles = 0, whole = 0, units = 0;
    Quotient token_blocks{1}, ksplit{1};
    // > 0: the tiles of the units after whole ones are spread over all blocks, of which so many share a unit at most
    int spread = 0;
    bool same_tokens = false; // all units of a block are of the same rows of x
    bool beside = false; // runs beside the kernel before it, whose results it does not read, and ends after it
    // blocks that share the columns of a unit and have no other; 0 where a block takes a unit after the other
    int cluster = 0;
    Quotient shares{1}; // that a unit without shares of `ksplit` has: the cluster, or 1
    int pair = 1;    // blocks of a cluster at neighbouring rows of W, 1 or 2
    Heads heads = {}; // where cluster > 0
    bool gated = false; // gate and up, for SwiGLU: of n32_sm90.cu, whose kernel is the same for all products
    // Of an adapter (project.cu): (x V) * codes, by the unit of the sums. [groups of 8 ranks][n][4][2], of ranks t and
    // t + 4; null for none. Groups of a matrix.
    const float *h = nullptr;
    int groups = 0;
    bool late = false; // the kernel before makes h alone, and is waited for when h is read
    bool part = false; // y is a rank's part of a sum of rows, which follows

    // Whether rows of x have exponents, which is hardly ever.
    VB_DEVICE unsigned uneven() const { return from.x ? *from.uneven : 0; }

    // Which matrix a row of tiles belongs to; tile_row becomes the one there.
    template <bool SWIGLU>
    VB_DEVICE const Matrix &find(int &tile_row) const {
        if (SWIGLU) {
            const int m = tile_row & 1;
            tile_row >>= 1;
            return matrices[m];
        }
        int m = 0;
        while (m < 2 && tile_row >= matrices[m].tile_rows) tile_row -= matrices[m].tile_rows, m++;
        return matrices[m];
    }
};

// The work of a block at a time.
struct Unit {
    int rows, tokens, k0, k1; // the block of rows of W and of rows of x; tiles of columns
    int share, ksplit, nth;   // which share of k of how many, of which shared unit

    // The rank of a block in its cluster: a pair, or the blocks that share the columns.
    static VB_DEVICE Unit of(const Product &p, int unit, int rank) {
        Unit u;
        u.nth = unit < p.whole ? -1 : p.ksplit.of(unit - p.whole);
        const Quotient &by = u.nth < 0 ? p.shares : p.ksplit;
        u.ksplit = by.by;
        u.share = u.nth < 0 ? p.cluster > 0 ? rank : 0 : unit - p.whole - u.nth * p.ksplit.by;
        const int block = u.nth < 0 ? unit : p.whole + u.nth;
        u.rows = p.token_blocks.of(block), u.tokens = block - u.rows * p.token_blocks.by;
        if (p.pair > 1) u.rows = u.rows * 2 + rank, u.nth = u.nth * 2 + rank;
        u.k0 = by.of(p.k_tiles * u.share), u.k1 = by.of(p.k_tiles * (u.share + 1));
        return u;
    }
};

// Where the tiles begin that this warp multiplies in a unit; past the last rows of W any, for results that are not
// stored.
template <class Block, bool SWIGLU>
VB_DEVICE const uint8_t *first_tile(const Product &p, const Unit &unit, int warp) {
    int tile_row = smaller(unit.rows * unit_warps + warp, p.tile_rows - 1);
    const Matrix &m = p.find<SWIGLU>(tile_row);
    return m.w + ((int64_t)tile_row * p.k_tiles + unit.k0) * Packed<Block>::tile_bytes;
}

// Four warps, which compute 64 rows of a unit and finish them by themselves: on Hopper a warpgroup.
constexpr int group_threads = 128, unit_groups = unit_threads / group_threads;
VB_DEVICE int group_of_thread() { return threadIdx.x / group_threads; }
VB_DEVICE void groups_sync() { group_sync<unit_groups + 1, unit_threads>(); } // of both groups
VB_DEVICE void group_sync() { group_sync(1 + group_of_thread(), group_threads); }

// Whether it holds for any of the THREADS that meet at a barrier; all of them get the answer.
template <int THREADS>
VB_DEVICE bool any_at(int barrier, bool holds) {
    unsigned any;
    asm volatile("{\n"
                 ".reg .pred in, out;\n"
                 "setp.ne.u32 in, %1, 0;\n"
                 "barrier.cta.red.or.pred out, %2, %3, in;\n"
                 "selp.u32 %0, 1, 0, out;\n"
                 "}\n"
                 : "=r"(any)
                 : "r"((unsigned)holds), "r"(barrier), "n"(THREADS)
                 : "memory");
    return any;
}

// The largest exponent of a row of x.
VB_DEVICE int row_exponent(const Product &p, int64_t token) {
    int most = 0;
#pragma unroll 1
    for (int group = 0; group < p.cols / half_group; group++)
        most = larger<int>(most, p.from.exponents[group * half_stride(p.n) + token]);
    return most;
}

// 1 / scale of the unit's rows of x, read early by `threads` threads: a load at the end would be waited for.
template <int TOKENS>
VB_DEVICE void load_inverse(float *inverse, const Product &p, int64_t token0, bool uneven, int thread,
                            int threads) {
    const int parts = p.cols / unit_rows;
#pragma unroll 1
    for (int at = thread; at < TOKENS; at += threads) {
        const int64_t token = token0 + at;
        float scale = 1 / half_unit;
        if (token >= p.n) {
            scale = 0;
        } else if (p.inverse) {
            scale = p.inverse[token];
        } else if (p.from.squares) {
            const float *part = p.from.squares + token;
            float sum = 0;
#pragma unroll 4
            for (int i = 0; i < parts; i++, part += half_stride(p.n)) sum += *part;
            scale /= sqrtf(sum / (float)p.cols + p.eps);
        }
        if (uneven && token < p.n) scale *= power_of_two(row_exponent(p, token));
        inverse[at] = scale;
    }
}

// For a share of a unit: whether this group is the last share to come, and has the sums of all in c. BOTH: both groups
// of a block come together.
template <int TOKENS, int THREADS = unit_threads, bool BOTH = false>
VB_DEVICE bool add_shares(const Product &p, const Unit &unit, float (&c)[TOKENS * unit_rows / THREADS]) {
    constexpr int fours = TOKENS * unit_rows / THREADS / 4; // of a thread
    const int ksplit = unit.ksplit;
    if (ksplit == 1) return true;
    __shared__ bool lasts[unit_groups];
    const int group = BOTH ? 0 : group_of_thread();
    bool &last = lasts[group];
    unsigned *const arrived = p.arrived + unit.nth * unit_groups + group;
    float4 *const sums = reinterpret_cast<float4 *>(p.partial) +
                         (int64_t)unit.nth * (BOTH && p.spread ? p.spread : ksplit) * (fours * THREADS) + threadIdx.x;
    const auto sync = [] {
        if constexpr (BOTH) groups_sync();
        else group_sync();
    };
    const auto of_share = [&](int share) { return sums + share * (fours * THREADS); };
    float4 *const own = of_share(unit.share);
#pragma unroll
    for (int j = 0; j < fours; j++)
        __stcg(own + j * THREADS, make_float4(c[4 * j], c[4 * j + 1], c[4 * j + 2], c[4 * j + 3]));
    sync();
    // releases all threads' writes, acquires the other blocks' writes
    if (threadIdx.x % (BOTH ? unit_threads : group_threads) == 0) {
        unsigned before = 0;
#if __CUDA_ARCH__ >= 700
        asm volatile("atom.acq_rel.gpu.global.add.u32 %0, [%1], 1;" : "=r"(before) : "l"(arrived) : "memory");
#endif
        last = before == (unsigned)ksplit - 1;
        if (last) *arrived = 0;
    }
    sync();
    if (!last) return false;
    // The sum of two is the same in any order: this group's sums need not be read again. More are added in order.
    const int first = ksplit == 2 ? unit.share ^ 1 : 0, end = ksplit == 2 ? first + 1 : ksplit;
    if (ksplit > 2)
#pragma unroll
        for (int i = 0; i < 4 * fours; i++) c[i] = 0;
#pragma unroll 1
    for (int share = first; share < end; share++) {
        const float4 *const from = of_share(share);
#pragma unroll
        for (int j = 0; j < fours; j++) {
            const float4 v = __ldcg(from + j * THREADS);
            c[4 * j] += v.x, c[4 * j + 1] += v.y, c[4 * j + 2] += v.z, c[4 * j + 3] += v.w;
        }
    }
    return true;
}

// A matrix's part for the lanes of a warp: a row in the fragment of U.
struct UpdateRow {
    const Matrix *matrix;
    int64_t row; // may lie behind the last
};

// Adds (x V) * codes U^T to the sums of a warp, for the tokens token0 + 8 j + 2 t, + 1. A lane has two rows.
// Row `first` is in c[4 j], c[4 j + 1] and row `second` in the other elements. APART: the rows are of two matrices,
// whose products follow each other. In TF32: U fits it, and h is rounded to it.
template <int TOKENS, bool APART>
VB_DEVICE void add_update(const Product &p, float (&c)[TOKENS / 2], const UpdateRow &first, const UpdateRow &second,
                          int64_t token0) {
#if __CUDA_ARCH__ >= 800
    const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    const int last = (int)smaller<int64_t>(TOKENS, p.n - token0) - 1; // of the rows of x
    const auto u_of = [&](const UpdateRow &of, int group, int rank) {
        const bool exists = of.matrix->u && of.row < of.matrix->rows;
        return exists ? __float_as_uint(__half2float(of.matrix->u[(of.row * p.groups + group) * 8 + rank])) : 0u;
    };
#pragma unroll 1
    for (int turn = 0; turn < (APART ? 2 : 1) * p.groups; turn++) {
        const int part = APART ? turn & 1 : 0, group = APART ? turn / 2 : turn;
        const UpdateRow &of = part ? second : first;
        if (!of.matrix->u) continue;
        const bool upper = !APART || part == 0, lower = !APART || part == 1;
        const unsigned u[4] = {upper ? u_of(first, group, t) : 0u, lower ? u_of(second, group, t) : 0u,
                               upper ? u_of(first, group, t + 4) : 0u, lower ? u_of(second, group, t + 4) : 0u};
        const float *const h = p.h + ((of.matrix->first_group + group) * p.n + token0) * 8 + 2 * t;
        constexpr int batch = TOKENS > 176 ? 8 : 16; // loads on the way together
#pragma unroll
        for (int j0 = 0; j0 < TOKENS / 8; j0 += batch) {
            float2 b[batch];
#pragma unroll
            for (int j = 0; j < batch; j++) {
                if (j0 + j >= TOKENS / 8) continue;
                b[j] = *reinterpret_cast<const float2 *>(h + smaller(8 * (j0 + j) + g, last) * 8);
            }
#pragma unroll
            for (int j = 0; j < batch; j++)
                if (j0 + j < TOKENS / 8)
                    mma_16x8x8_tf32(c + 4 * (j0 + j), u, __float_as_uint(b[j].x), __float_as_uint(b[j].y));
        }
    }
#endif
}

// The results of one warp: two rows of a row of tiles, row and row + 8, tokens token0 + 8 j + 2 t, + 1. c becomes them.
template <int TOKENS>
VB_DEVICE void store_sums(const Product &r, float (&c)[TOKENS / 2], const float *inverse, int tile_row, int row,
                          int64_t token0) {
    const int t = threadIdx.x % 4;
    const Matrix &m = r.find<false>(tile_row);
    const int64_t row0 = (int64_t)tile_row * packed_rows + row;
    const int tokens = (int)smaller<int64_t>(TOKENS, r.n - token0);
    const bool inside[2] = {row0 < m.rows, row0 + 8 < m.rows};
    const float b[2] = {m.bias && inside[0] ? m.bias[row0] : 0.0f, m.bias && inside[1] ? m.bias[row0 + 8] : 0.0f};
    const auto place = [&](int i) { return (token0 + 2 * t + i / 4 * 8 + (i & 1)) * m.rows + row0 + (i & 2) * 4; };
    const auto exists = [&](int i) { return i / 4 * 8 + 2 * t + (i & 1) < tokens && inside[(i & 2) / 2]; };
    constexpr int batch = 16; // loads on the way together: y may be the addend, so that stores hold up later loads
#pragma unroll
    for (int first = 0; first < TOKENS / 2; first += batch) {
        float added[batch];
#pragma unroll
        for (int i = 0; i < batch; i++) added[i] = r.add && exists(first + i) ? r.add[place(first + i)] : 0.0f;
#pragma unroll
        for (int i = 0; i < batch; i++) {
            const float scale = inverse[(first + i) / 4 * 8 + 2 * t + (i & 1)];
            float &y = c[first + i];
            y = fmaf(y, scale, b[(i & 2) / 2] + added[i]);
            if (exists(first + i)) m.y[place(first + i)] = y;
        }
    }
}

// silu(gate) * up of the results of two warps, into the first half of c. Each warp computes half of the tokens, the
// warp with the up projection the second half. exchange is 8 * TOKENS KiB / 32 of shared memory.
template <int TOKENS>
VB_DEVICE void combine_swiglu(float (&c)[TOKENS / 2], const float *inverse, float *exchange, bool up) {
    constexpr int part = TOKENS / 4; // sums of half of the tokens
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, t = lane % 4;
#pragma unroll
    for (int i = 0; i < part; i++) exchange[(warp * part + i) * 32 + lane] = up ? c[i] : c[part + i];
    group_sync();
#pragma unroll
    for (int j = 0; j < part / 4; j++) {
        const float2 scale = *reinterpret_cast<const float2 *>(inverse + (up ? TOKENS / 2 : 0) + 8 * j + 2 * t);
#pragma unroll
        for (int e = 0; e < 4; e++) {
            const float other = exchange[((warp ^ 1) * part + 4 * j + e) * 32 + lane],
                        own = up ? c[part + 4 * j + e] : c[4 * j + e];
            const float s = e & 1 ? scale.y : scale.x;
            c[4 * j + e] = swiglu((up ? other : own) * s, (up ? own : other) * s);
        }
    }
}

template <int TOKENS>
VB_DEVICE void store_swiglu(const Product &r, float (&c)[TOKENS / 2], const float *inverse, float *exchange,
                            int tile_row, int64_t token0) {
    const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    const bool up = tile_row & 1;
    const Matrix &m = r.find<true>(tile_row);
    combine_swiglu<TOKENS>(c, inverse, exchange, up);
    const int first = up ? TOKENS / 2 : 0, tokens = (int)smaller<int64_t>(TOKENS, r.n - token0);
    const int64_t row0 = (int64_t)tile_row * packed_rows + g;
#pragma unroll
    for (int i = 0; i < TOKENS / 4; i++) {
        const int token = first + i / 4 * 8 + 2 * t + (i & 1);
        const int64_t row = row0 + (i & 2) * 4;
        if (token < tokens && row < m.rows) r.matrices[0].y[(token0 + token) * m.rows + row] = c[i];
    }
}


// silu(gate) * up where a lane has both: of row of tiles `tile_row`, a gate's, and the next.
template <int TOKENS>
VB_DEVICE void store_gated(const Product &r, const float (&gate)[TOKENS / 2], const float (&up)[TOKENS / 2],
                           const float *inverse, int tile_row, int64_t token0) {
    const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    const Matrix &m = r.find<true>(tile_row);
    const int tokens = (int)smaller<int64_t>(TOKENS, r.n - token0);
    const int64_t row0 = (int64_t)tile_row * packed_rows + g;
#pragma unroll
    for (int i = 0; i < TOKENS / 2; i++) {
        const int token = i / 4 * 8 + 2 * t + (i & 1);
        const int64_t row = row0 + (i & 2) * 4;
        const float scale = inverse[token];
        if (token < tokens && row < m.rows)
            m.y[(token0 + token) * m.rows + row] = swiglu(gate[i] * scale, up[i] * scale);
    }
}

} // namespace vb
#endif
