// tmac_columns.cu: products with ternary weights of several columns of floats, by int8 tensor cores and clusters
// (vb_tmac_matmul, 9.0).
//
//   grid     (blocks of rows, `cluster` for each, shares of the columns). The blocks of a cluster share k. A warp takes
//            32 rows at a time
//   shared   two planes of the block's part of its columns; a float a row and column
//   moves    m k / 4 bytes of weights once a share of the columns; the columns once for each cluster, from the L2
//   bound    latency, then the weights, from 32 columns on the tensor cores
//
// A column h is rounded to 15 bits in two planes of int8, h = (254 high + low) step, with a step for each 256 elements.
// So no block waits for the greatest element of a whole column. An instruction's eight columns are the planes of four.

#include "arch/cluster.cuh"
#include "arch/streaming.cuh"
#include "ternary/choose.h"
#include "ternary/tiles.cuh"

namespace vb {
namespace {

constexpr int unit = TERNARY_TMAC_UNIT; // elements of 64 bytes of weights, which are rounded together
constexpr int units_ahead = 2;          // on their way to a warp
constexpr int most_code = 127, low_codes = 254;

// What a block has in shared memory, one behind the other.
template <int FOURS>
struct ColumnsMemory {
    static constexpr int columns = 4 * FOURS;
    int4 *codes;                    // [units][FOURS][word of a piece][lane]: a lane's four words of four codes
    int *totals;                    // [units][columns]: the sum of 254 high + low
    float *steps, *squares, *whole; // [units][columns], the same, [columns]
    float *sums;                    // [rows][columns]

    VB_DEVICE ColumnsMemory(char *memory, int units) {
        codes = reinterpret_cast<int4 *>(memory);
        totals = reinterpret_cast<int *>(codes + units * FOURS * 128);
        steps = reinterpret_cast<float *>(totals + units * columns);
        squares = steps + units * columns;
        whole = squares + units * columns;
        sums = whole + columns;
    }
};

VB_DEVICE float &part_of(float4 &v, int i) { return i == 0 ? v.x : i == 1 ? v.y : i == 2 ? v.z : v.w; }

// Rounds four columns of a unit, by a warp. A lane has eight elements of each: bytes of codes under two masks.
template <int FOURS>
VB_DEVICE void round_unit(const vb_tmac_matmul_args &a, const ColumnsMemory<FOURS> &to, int64_t first, int64_t column,
                          int u, int four) {
    const int lane = threadIdx.x % 32, piece = lane / 8, word = lane / 2 % 4, pair = lane % 2;
    const int64_t begin = first + 64 * piece + 16 * word + 2 * pair;
    const bool vectors = a.n % 4 == 0 && reinterpret_cast<uintptr_t>(a.activations) % 16 == 0;
    float4 h[8];
#pragma unroll
    for (int i = 0; i < 8; i++) {
        const int64_t k = begin + 4 * (i / 2) + i % 2;
        const float *const from = a.activations + k * a.n + column;
        h[i] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        if (k >= a.k) continue;
        if (vectors) {
            if (column < a.n) h[i] = *reinterpret_cast<const float4 *>(from);
        } else {
#pragma unroll
            for (int c = 0; c < 4; c++)
                if (column + c < a.n) part_of(h[i], c) = from[c];
        }
    }
    if (a.normed) {
        float4 squares = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
#pragma unroll
        for (int i = 0; i < 8; i++) {
            const int64_t k = begin + 4 * (i / 2) + i % 2;
            const float norm = a.norm && k < a.k ? a.norm[k] : 1.0f;
#pragma unroll
            for (int c = 0; c < 4; c++) {
                float &v = part_of(h[i], c), &s = part_of(squares, c);
                s = fmaf(v, v, s);
                v *= norm;
            }
        }
#pragma unroll
        for (int c = 0; c < 4; c++) {
            float s = part_of(squares, c);
#pragma unroll
            for (int offset = 16; offset > 0; offset /= 2) s += __shfl_xor_sync(all_lanes, s, offset);
            if (lane == 0) to.squares[u * 4 * FOURS + 4 * four + c] = s;
        }
    }
#pragma unroll
    for (int c = 0; c < 4; c++) {
        unsigned bits = 0;
#pragma unroll
        for (int i = 0; i < 8; i++) {
            const unsigned size = __float_as_uint(part_of(h[i], c)) & 0x7fffffffu; // NaN is above infinity
            bits = bits > size ? bits : size;
        }
        float most = 0.0f;
#if __CUDA_ARCH__ >= 900
        most = __uint_as_float(__reduce_max_sync(all_lanes, bits));
#endif
        const float scale = float(most_code) / Max::combine(most, 7.9e-31f);
        constexpr float round = 12582912.0f; // 1.5 times 2^23 leaves no bits below 1: the code is the lowest byte
        unsigned high[8], low[8];
        float total = 0.0f;
#pragma unroll
        for (int i = 0; i < 8; i++) {
            const float v = part_of(h[i], c), r = fmaf(v, scale, round), whole = r - round;
            const float l = fmaf(fmaf(v, scale, -whole), float(low_codes), round);
            high[i] = __float_as_uint(r), low[i] = __float_as_uint(l);
            total += fmaf(whole, float(low_codes), l - round);
        }
        const auto joined = [](const unsigned(&v)[8], int odd) {
            return __byte_perm(__byte_perm(v[odd], v[2 + odd], 0x0040), __byte_perm(v[4 + odd], v[6 + odd], 0x0040),
                               0x5410);
        };
        int2 *const at =
            reinterpret_cast<int2 *>(to.codes + ((u * FOURS + four) * 4 + word) * 32 + 8 * c + piece) + pair;
        at[0] = make_int2(joined(high, 0), joined(high, 1));
        at[8] = make_int2(joined(low, 0), joined(low, 1));
        int sum = int(total);
#if __CUDA_ARCH__ >= 900
        sum = __reduce_add_sync(all_lanes, sum);
#endif
        if (lane == 0) {
            const int i = u * 4 * FOURS + 4 * four + c;
            to.totals[i] = sum;
            to.steps[i] = scale > 0.0f ? most * (1.0f / (most_code * low_codes)) : nanf(""); // of infinite floats
        }
    }
}

// A block has `turns` times 32 rows a warp, and up to `units` units of them.
template <int FOURS>
__global__ void __launch_bounds__(TERNARY_COLUMNS_THREADS)
    tmac_columns_kernel(vb_tmac_matmul_args a, int units, int turns) {
    constexpr int columns = 4 * FOURS, most_fours = FOURS < 4 ? FOURS : 4;
    extern __shared__ __align__(16) char memory[];
    const ColumnsMemory<FOURS> own(memory, units);
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32, group = lane / 4,
              part = lane % 4, size = cluster_size(), rank = cluster_rank(), row_bytes = int((a.k + 3) / 4),
              pieces = row_bytes / 16, rows = 32 * warps * turns,
              first_unit = rank * units, here = smaller(units, (pieces + 3) / 4 - first_unit), steps = here * turns;
    const int64_t first_row = (int64_t)(blockIdx.x / size) * rows, first_column = (int64_t)blockIdx.y * columns;
    // Weights of (turn, unit), in this order.
    const char *from[4];
    int asked_unit = 0, asked_turn = 0;
    const auto begin_turn = [&] {
#pragma unroll
        for (int r = 0; r < 4; r++) {
            const int64_t row = first_row + (asked_turn * warps + warp) * 32 + 8 * r + group;
            from[r] = static_cast<const char *>(a.weights) + smaller(row, a.m - 1) * row_bytes + 64 * first_unit +
                16 * part;
        }
    };
    uint4 w[units_ahead][4];
    const auto ask = [&](uint4(&to)[4]) {
        const bool live = 4 * (first_unit + asked_unit) + part < pieces && asked_turn < turns;
#pragma unroll
        for (int r = 0; r < 4; r++)
            to[r] = live ? load_once(reinterpret_cast<const uint4 *>(from[r] + 64 * asked_unit))
                         : make_uint4(0, 0, 0, 0);
        if (++asked_unit == here) {
            asked_unit = 0;
            asked_turn++;
            begin_turn();
        }
    };
    begin_turn();
    if (!a.settled) wait_for_previous_kernel();
#pragma unroll
    for (int i = 0; i < units_ahead; i++) ask(w[i]);
    if (a.settled) wait_for_previous_kernel();
    release_next_kernel();

    for (int i = warp; i < here * FOURS; i += warps)
        round_unit<FOURS>(a, own, (int64_t)(first_unit + i / FOURS) * unit, first_column + i % FOURS * 4, i / FOURS,
                          i % FOURS);
    __syncthreads();
    if (a.normed && threadIdx.x < columns) {
        float squares = 0.0f;
        for (int u = 0; u < here; u++) squares += own.squares[u * columns + threadIdx.x];
        own.whole[threadIdx.x] = squares;
    }

    const int64_t units_a_group = a.groups > 1 ? a.k / a.groups / unit : 1;
    float all[4][FOURS] = {}; // rows 8 r + group, columns 4 f + part
    int u = 0, turn = 0;
#pragma unroll 1
    for (int step = 0; step < steps; step += units_ahead) {
#pragma unroll
        for (int i = 0; i < units_ahead; i++) {
            if (step + i >= steps) break;
            int sums[2][FOURS][4] = {};
#pragma unroll
            for (int half = 0; half < 2; half++) { // two words of each piece
                unsigned codes[4][2][4];
#pragma unroll
                for (int mask = 0; mask < 4; mask++)
#pragma unroll
                    for (int r = 0; r < 4; r++) {
                        const uint4 &piece = w[i][r];
                        codes[mask][r / 2][r % 2] = (half ? piece.z : piece.x) >> (2 * mask) & 0x03030303u;
                        codes[mask][r / 2][2 + r % 2] = (half ? piece.w : piece.y) >> (2 * mask) & 0x03030303u;
                    }
#pragma unroll
                for (int f0 = 0; f0 < FOURS; f0 += most_fours) {
                    int4 x[most_fours][2];
#pragma unroll
                    for (int f = 0; f < most_fours; f++)
#pragma unroll
                        for (int j = 0; j < 2; j++)
                            x[f][j] = own.codes[((u * FOURS + f0 + f) * 4 + 2 * half + j) * 32 + lane];
#pragma unroll
                    for (int mask = 0; mask < 4; mask++)
#pragma unroll
                        for (int f = 0; f < most_fours; f++)
#pragma unroll
                            for (int t = 0; t < 2; t++) {
                                const unsigned(&c)[4] = codes[mask][t];
                                mma_u8s8(sums[t][f0 + f], c[0], c[1], c[2], c[3], word_of(x[f][0], mask),
                                         word_of(x[f][1], mask));
                            }
                }
            }
            ask(w[i]);
            float scale[4] = {1.0f, 1.0f, 1.0f, 1.0f};
            if (a.groups > 1 && a.scales)
#pragma unroll
                for (int r = 0; r < 4; r++) {
                    const int64_t row = first_row + (turn * warps + warp) * 32 + 8 * r + group;
                    scale[r] = a.scales[smaller(row, a.m - 1) * a.groups + (first_unit + u) / units_a_group];
                }
#pragma unroll
            for (int f = 0; f < FOURS; f++) {
                const int total = own.totals[u * columns + 4 * f + part];
                const float one = own.steps[u * columns + 4 * f + part];
#pragma unroll
                for (int r = 0; r < 4; r++) {
                    const int *const s = sums[r / 2][f] + r % 2 * 2;
                    all[r][f] = fmaf(float(s[0] * low_codes + s[1] - total), one * scale[r], all[r][f]);
                }
            }
            if (++u == here) {
                u = 0;
#pragma unroll
                for (int r = 0; r < 4; r++)
#pragma unroll
                    for (int f = 0; f < FOURS; f++) {
                        own.sums[((turn * warps + warp) * 32 + 8 * r + group) * columns + 4 * f + part] = all[r][f];
                        all[r][f] = 0.0f;
                    }
                turn++;
            }
        }
    }
    if (size > 1) {
        cluster_arrive();
        cluster_wait();
    } else {
        __syncthreads();
    }
    // Each block of the cluster adds up its share of the sums, four columns a thread.
    const int fours = rows * FOURS, end = fours * (rank + 1) / size;
    const bool vectors = a.n % 4 == 0 && reinterpret_cast<uintptr_t>(a.out) % 16 == 0;
    for (int i = fours * rank / size + threadIdx.x; i < end; i += blockDim.x) {
        const int64_t row = first_row + i / FOURS, column = first_column + i % FOURS * 4;
        if (row >= a.m || column >= a.n) continue;
        float4 sum = make_float4(0.0f, 0.0f, 0.0f, 0.0f), squares = sum;
#pragma unroll 4
        for (int r = 0; r < size; r++) {
            const float4 more = read_cluster4(cluster_address(own.sums + 4 * i, r));
            sum.x += more.x, sum.y += more.y, sum.z += more.z, sum.w += more.w;
        }
        if (a.normed)
            for (int r = 0; r < size; r++) {
                const float4 more = read_cluster4(cluster_address(own.whole + i % FOURS * 4, r));
                squares.x += more.x, squares.y += more.y, squares.z += more.z, squares.w += more.w;
            }
        const float scale = a.groups == 1 && a.scales ? a.scales[row] : 1.0f;
#pragma unroll
        for (int c = 0; c < 4; c++) {
            float factor = scale;
            if (a.normed) factor *= 1.0f / sqrtf(part_of(squares, c) / float(a.k) + a.eps);
            part_of(sum, c) *= factor;
        }
        float *const out = a.out + row * a.n + column;
        if (vectors) {
            *reinterpret_cast<float4 *>(out) = sum;
        } else {
#pragma unroll
            for (int c = 0; c < 4; c++)
                if (column + c < a.n) out[c] = part_of(sum, c);
        }
    }
    if (size > 1) { // the others read this block's memory
        cluster_arrive();
        cluster_wait();
    }
}

} // namespace

vb_status tmac_columns(const vb_tmac_matmul_args &a, const ternary_columns &cut, vb_stream *stream) {
    const auto kernel = cut.fours == 1 ? tmac_columns_kernel<1>
        : cut.fours == 2               ? tmac_columns_kernel<2>
        : cut.fours == 4               ? tmac_columns_kernel<4>
                                       : tmac_columns_kernel<8>;
    const dim3 grid((unsigned)(cut.blocks * cut.cluster), (unsigned)cut.shares);
    return launch_cluster(stream, cut.cluster, grid, cut.threads, cut.shared_bytes, kernel, a, cut.units, cut.turns);
}

} // namespace vb
