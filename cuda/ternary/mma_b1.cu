// mma_b1.cu: out = W x for one row of activations and two-bit weights, by products of single bits (9.0): vb_w2a8_gemv
// of interleaved weights; the same for a row that is rounded first (vb_bit_linear); floats in two bytes
// (vb_tmac_matmul).
//
//   grid     one or two blocks a multiprocessor, each for neighbouring tiles of 16 rows. The warps of a block share
//            the elements of a row: a warp has two units of 64 bytes
//   shared   the tiles but the first, which is in registers; a sum a tile, warp and row; the bytes of x where rounded
//   moves    n k / 4 bytes of weights, read once. Each block rounds x: it reads 4 or 8 bytes an element, from the L2
//   bound    latency up to some megabytes, then the weights: all are asked for before the kernel before has ended
//
// A code is its bits b0 + 2 b1, and x is its bits by the powers of two, of which the last is negative.
// An instruction counts where bits of 128 codes of 16 rows meet the eight bit planes of x, which are its columns.
// Weights are not unpacked: a plane holds x at the places of b0, and shifted by one at the places of b1.
// A code counts one too many, so the sum of the planes is subtracted.

#include "arch/streaming.cuh"
#include "ternary/w2a8.cuh"

namespace vb {
namespace {

// sums += the bits that a and x share: 16 rows of a, 256 bits of k, 8 columns of x.
VB_DEVICE void count_bits(int (&sums)[4], unsigned a0, unsigned a1, unsigned a2, unsigned a3, unsigned x0,
                          unsigned x1) {
#if __CUDA_ARCH__ >= 900
    asm volatile("mma.sync.aligned.m16n8k256.row.col.s32.b1.b1.s32.and.popc "
                 "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+r"(sums[0]), "+r"(sums[1]), "+r"(sums[2]), "+r"(sums[3])
                 : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(x0), "r"(x1));
#endif
}

// Bit `plane` of 16 elements at the places of their codes' lower bits in a word.
VB_DEVICE unsigned plane_of(const int4 &x, int plane) {
    const unsigned ones = 0x01010101u;
    unsigned bits = unsigned(x.w) >> plane & ones;
    bits = bits << 2 | (unsigned(x.z) >> plane & ones);
    bits = bits << 2 | (unsigned(x.y) >> plane & ones);
    return bits << 2 | (unsigned(x.x) >> plane & ones);
}

// The matrices that a row is multiplied with, one after the other.
struct BitsJob {
    vb_w2a8_gemv_args matrix[3]; // k, row_bytes and settled of the first hold for all
    int ends[3];                 // behind the tiles of each
    vb_norm_quantize_args x;     // the row that is rounded
};

// The sum of squares and the greatest of all threads.
VB_DEVICE float2 sum_and_most(float squares, float most, float2 *scratch) {
    const int lane = threadIdx.x % 32, warps = blockDim.x / 32;
#pragma unroll
    for (int offset = 16; offset > 0; offset /= 2) {
        squares += __shfl_xor_sync(all_lanes, squares, offset);
        most = Max::combine(most, __shfl_xor_sync(all_lanes, most, offset));
    }
    if (lane == 0) scratch[threadIdx.x / 32] = make_float2(squares, most);
    __syncthreads();
    float2 all = scratch[0];
    for (int w = 1; w < warps; w++) all.x += scratch[w].x, all.y = Max::combine(all.y, scratch[w].y);
    return all;
}

constexpr int units = TERNARY_BITS_UNITS;

// What x is: its codes, floats that are rounded to a byte, and floats that are rounded to two (MOST_SHORT at most).
enum Source { CODES, ROUNDED, SHORTS };
constexpr int MOST_SHORT = 127 * 256 + 127;

template <Source SOURCE>
__global__ void __launch_bounds__(SOURCE == SHORTS ? TERNARY_BITS_THREADS_TMAC : TERNARY_BITS_THREADS)
    bits_kernel(VB_IN_PLACE BitsJob job, ternary_bits cut) {
#if __CUDA_ARCH__ >= 900
    extern __shared__ __align__(128) uint4 memory[];
    const int lane = threadIdx.x % 32, warps = blockDim.x / 32, warp = threadIdx.x / 32, group = lane / 4,
              row_bytes = int(job.matrix[0].row_bytes), pieces = row_bytes / 16, k = int(job.matrix[0].k);
    const int first = int((int64_t)cut.tiles * blockIdx.x / gridDim.x),
              count = int((int64_t)cut.tiles * (blockIdx.x + 1) / gridDim.x) - first;
    // What a lane reads of the tiles in shared memory, it has copied there itself: [tile][warp][unit][half][lane].
    uint4 *const mine = memory + warp * units * 2 * 32 + lane;
    const int tile_size = warps * units * 2 * 32;
    int *const parts = reinterpret_cast<int *>(memory + (cut.most - 1) * tile_size); // [count][warps][16]
    const auto matrix_of = [&](int tile) { return tile < job.ends[0] ? 0 : tile < job.ends[1] ? 1 : 2; };
    const auto row_in = [&](int matrix, int tile) {
        return (int64_t)(tile - (matrix ? job.ends[matrix - 1] : 0)) * 16;
    };
    // Calls take(unit, half, where the piece is, whether there is one) for the pieces of a tile that are this lane's.
    const auto pieces_of = [&](int tile, auto take) {
        const int matrix = matrix_of(first + tile);
        const vb_w2a8_gemv_args &a = job.matrix[matrix];
        const int64_t row = row_in(matrix, first + tile) + group;
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const char *const from =
                static_cast<const char *>(a.weights) + smaller(row + 8 * half, a.n - 1) * row_bytes;
#pragma unroll
            for (int u = 0; u < units; u++) {
                const int p = 4 * (warp * units + u) + lane % 4;
                take(u, half, from + 16 * p, p < pieces);
            }
        }
    };
    const bool settled = job.matrix[0].settled;
    if (!settled) wait_for_previous_kernel();
    uint4 w[units][2];
    pieces_of(0, [&](int u, int half, const char *from, bool any) {
        w[u][half] = any ? load_once(reinterpret_cast<const uint4 *>(from)) : make_uint4(0, 0, 0, 0);
    });
    for (int t = 1; t < count; t++)
        pieces_of(t, [&](int u, int half, const char *from, bool any) {
            copy_async(shared_address(mine + (t - 1) * tile_size + (2 * u + half) * 32), any ? from : nullptr, any);
        });
    copy_async_commit();
    constexpr bool rounds = SOURCE != CODES;
    constexpr int items = rounds ? 2 * units : 1, bytes = SOURCE == SHORTS ? 2 : 1;
    // Four elements of x, whose codes lie side by side. A word of VB_INT2_ROWS has them four apart.
    const auto elements = [](const float *from, int at) {
        if (SOURCE != SHORTS) return *reinterpret_cast<const float4 *>(from + at);
        from += at / 16 * 16 + at % 16 / 4;
        return make_float4(from[0], from[4], from[8], from[12]);
    };
    float4 norms[items];
    if (rounds) {
#pragma unroll
        for (int i = 0; i < items; i++) {
            const int at = 4 * (threadIdx.x + i * blockDim.x);
            norms[i] = job.x.normed && job.x.norm && at < k ? elements(job.x.norm, at)
                                                           : make_float4(1.0f, 1.0f, 1.0f, 1.0f);
        }
    }
    if (settled) wait_for_previous_kernel();
    release_next_kernel();
    const signed char *x = static_cast<const signed char *>(job.matrix[0].activations);
    float scale = 1.0f;
    const int x_bytes = 256 * units * warps;
    if (rounds) {
        __shared__ float2 scratch[32];
        signed char *const codes = reinterpret_cast<signed char *>(parts + cut.most * warps * 16); // [bytes][x_bytes]
        float4 h[items];
        float squares = 0.0f, most = 0.0f;
#pragma unroll
        for (int i = 0; i < items; i++) {
            const int at = 4 * (threadIdx.x + i * blockDim.x);
            h[i] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
            if (at >= k) continue;
            h[i] = elements(job.x.in, at);
            if (SOURCE == ROUNDED && job.x.up) {
                const float4 u = elements(job.x.up, at);
                const vb_activation f = job.x.activation;
                h[i] = make_float4(gated_unit(f, h[i].x, u.x), gated_unit(f, h[i].y, u.y), gated_unit(f, h[i].z, u.z),
                                   gated_unit(f, h[i].w, u.w));
            }
        }
#pragma unroll
        for (int i = 0; i < items; i++) {
            const float v[4] = {h[i].x, h[i].y, h[i].z, h[i].w},
                        n[4] = {norms[i].x, norms[i].y, norms[i].z, norms[i].w};
#pragma unroll
            for (int j = 0; j < 4; j++) {
                squares = fmaf(v[j], v[j], squares);
                most = Max::combine(most, fabsf(v[j] * n[j]));
            }
        }
        const float2 all = sum_and_most(squares, most, scratch);
        const float factor = job.x.normed ? 1.0f / sqrtf(all.x / float(k) + job.x.eps) : 1.0f;
        scale = SOURCE == SHORTS ? __fdiv_rn(float(MOST_SHORT), Max::combine(0x1p-100f, all.y * factor))
                                 : __fdiv_rn(127.0f, Max::combine(1e-5f, all.y * factor));
#pragma unroll
        for (int i = 0; i < items; i++) {
            const int at = 4 * (threadIdx.x + i * blockDim.x);
            if (at >= x_bytes) continue;
            const float v[4] = {h[i].x * factor * norms[i].x, h[i].y * factor * norms[i].y,
                                h[i].z * factor * norms[i].z, h[i].w * factor * norms[i].w};
            if (SOURCE == SHORTS) { // x = 256 high + low
                unsigned high = 0, low = 0;
#pragma unroll
                for (int j = 0; j < 4; j++) {
                    const int q = __float2int_rn(v[j] * scale);
                    low |= unsigned(q & 255) << (8 * j), high |= unsigned((q + 128) >> 8 & 255) << (8 * j);
                }
                *reinterpret_cast<unsigned *>(codes + at) = low;
                *reinterpret_cast<unsigned *>(codes + x_bytes + at) = high;
            } else {
                *reinterpret_cast<char4 *>(codes + at) =
                    make_char4(code_of(v[0], scale), code_of(v[1], scale), code_of(v[2], scale), code_of(v[3], scale));
            }
        }
        __syncthreads();
        x = codes;
    }
    int4 v[bytes][units][4];
#pragma unroll
    for (int u = 0; u < units; u++) {
        const int p = 4 * (warp * units + u) + lane % 4;
        const PieceElements e = SOURCE == SHORTS ? PieceElements{64 * p, 16} : elements_of(p, pieces);
#pragma unroll
        for (int j = 0; j < 4; j++) {
            const int at = int(e.first) + j * e.step;
#pragma unroll
            for (int b = 0; b < bytes; b++)
                v[b][u][j] = p < pieces && at < k ? *reinterpret_cast<const int4 *>(x + b * x_bytes + at)
                                                  : make_int4(0, 0, 0, 0);
        }
    }
    // The factors of the sums are asked for beside x.
    const auto ending = [&](int i) {
        const int matrix = matrix_of(first + i / 16);
        const vb_w2a8_gemv_args &a = job.matrix[matrix];
        return ending_of(a, 0, smaller(row_in(matrix, first + i / 16) + i % 16, a.n - 1));
    };
    Ending mine_ends;
    if (threadIdx.x < count * 16) mine_ends = ending(threadIdx.x);
    unsigned planes[bytes][units][4];
    int ones[bytes][4] = {};
#pragma unroll
    for (int b = 0; b < bytes; b++)
#pragma unroll
        for (int u = 0; u < units; u++) {
            const unsigned every = 0x55555555u; // the code 1 everywhere
#pragma unroll
            for (int j = 0; j < 4; j++) planes[b][u][j] = plane_of(v[b][u][j], group);
            count_bits(ones[b], every, every, every, every, planes[b][u][0], planes[b][u][1]);
            count_bits(ones[b], every, every, every, every, planes[b][u][2], planes[b][u][3]);
        }
    // A lane has the columns 2 (lane % 4) and 1 more.
    const int even = 1 << 2 * (lane % 4), odd = lane % 4 == 3 ? -128 : 2 * even;
    copy_async_wait<0>();
    for (int t = 0; t < count; t++) {
        if (t > 0)
#pragma unroll
            for (int u = 0; u < units; u++)
#pragma unroll
                for (int half = 0; half < 2; half++) w[u][half] = mine[(t - 1) * tile_size + (2 * u + half) * 32];
        int lower[bytes][4] = {}, upper[bytes][4] = {};
#pragma unroll
        for (int u = 0; u < units; u++)
#pragma unroll
            for (int b = 0; b < bytes; b++) {
                const uint4 &r = w[u][0], &r8 = w[u][1];
                const unsigned(&x)[4] = planes[b][u];
                count_bits(lower[b], r.x, r8.x, r.y, r8.y, x[0], x[1]);
                count_bits(upper[b], r.x, r8.x, r.y, r8.y, x[0] << 1, x[1] << 1);
                count_bits(lower[b], r.z, r8.z, r.w, r8.w, x[2], x[3]);
                count_bits(upper[b], r.z, r8.z, r.w, r8.w, x[2] << 1, x[3] << 1);
            }
#pragma unroll
        for (int half = 0; half < 2; half++) {
            int sum = 0;
#pragma unroll
            for (int b = 0; b < bytes; b++)
#pragma unroll
                for (int c = 0; c < 2; c++) {
                    const int i = 2 * half + c, bits = lower[b][i] + 2 * upper[b][i] - ones[b][i];
                    sum += bits * ((c ? odd : even) << 8 * b);
                }
            sum += __shfl_xor_sync(all_lanes, sum, 1);
            sum += __shfl_xor_sync(all_lanes, sum, 2);
            if (lane % 4 == 0) parts[(t * warps + warp) * 16 + 8 * half + group] = sum;
        }
    }
    __syncthreads();
    for (int i = threadIdx.x; i < count * 16; i += blockDim.x) {
        int sum = 0;
        for (int o = 0; o < warps; o++) sum += parts[(i / 16 * warps + o) * 16 + i % 16];
        const int matrix = matrix_of(first + i / 16);
        const vb_w2a8_gemv_args &a = job.matrix[matrix];
        const int64_t row = row_in(matrix, first + i / 16) + i % 16;
        Ending e = i == threadIdx.x ? mine_ends : ending(i);
        if (rounds) e.divisor = scale;
        if (row < a.n) store_sum(a, 0, row, sum, e);
    }
#endif
}

template <Source SOURCE>
vb_status launch_bits(const BitsJob &job, const ternary_bits &cut, vb_stream *stream) {
    return launch_overlapped(stream, (unsigned)cut.blocks, cut.threads, cut.shared_bytes, bits_kernel<SOURCE>, job,
                             cut);
}

} // namespace

vb_status w2a8_bits(const vb_w2a8_gemv_args &a, const ternary_bits &cut, vb_stream *stream) {
    BitsJob job = {};
    job.matrix[0] = a;
    for (int &end : job.ends) end = cut.tiles;
    return launch_bits<CODES>(job, cut, stream);
}

vb_status tmac_bits(const vb_tmac_matmul_args &a, const ternary_bits &cut, vb_stream *stream) {
    BitsJob job = {};
    vb_w2a8_gemv_args &m = job.matrix[0];
    m.out = a.out, m.weights = a.weights, m.weight_scales = a.scales, m.n = m.segments = a.m, m.m = 1, m.k = a.k;
    m.row_bytes = a.k / 4, m.out_type = VB_F32, m.settled = a.settled;
    for (int &end : job.ends) end = cut.tiles;
    job.x.in = a.activations, job.x.norm = a.norm, job.x.eps = a.eps, job.x.normed = a.normed;
    return launch_bits<SHORTS>(job, cut, stream);
}

} // namespace vb

using namespace vb;

extern "C" vb_status vb_cuda_bit_linear(const vb_bit_linear_args *args, vb_stream *stream) {
    const vb_bit_linear_args &a = *args;
    const vb_gpu gpu = gpu_of(stream);
    const ternary_bits cut = choose_bit_linear(&a, &gpu);
    if (cut.blocks == 0) return VB_UNSUPPORTED;
    chosen(stream, ternary_kernel_info(TERNARY_BIT_LINEAR), "bit_linear", VB_F32, "m n k threads", a.m,
           a.n + a.n2 + a.n3, a.k, (int64_t)cut.threads);
    BitsJob job = {};
    float *const outs[3] = {a.out, a.out2, a.out3};
    const void *const weights[3] = {a.weights, a.weights2, a.weights3};
    const float *const scales[3] = {a.weight_scales, a.weight_scales2, a.weight_scales3};
    const int64_t rows[3] = {a.n, a.n2, a.n3}, segments[3] = {a.segments, a.segments2, a.segments3};
    int tiles = 0;
    for (int j = 0; j < 3; j++) {
        vb_w2a8_gemv_args &m = job.matrix[j];
        m.out = outs[j], m.weights = weights[j], m.weight_scales = scales[j], m.n = rows[j], m.segments = segments[j];
        m.m = 1, m.k = a.k, m.row_bytes = a.row_bytes, m.out_type = VB_F32, m.settled = a.settled;
        job.ends[j] = tiles += int(ceil_div<int64_t>(rows[j], 16));
    }
    job.matrix[0].add = a.add;
    job.x.in = a.in, job.x.up = a.up, job.x.norm = a.norm, job.x.activation = a.activation, job.x.eps = a.eps;
    job.x.normed = a.normed;
    return launch_bits<ROUNDED>(job, cut, stream);
}
