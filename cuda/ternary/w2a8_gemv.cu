// w2a8_gemv.cu: out = W x for up to four rows of int8 activations and interleaved two-bit weights (vb_w2a8_gemv).
//
//   grid     LANES lanes share the 16-byte pieces of TILE rows; a block has 128 threads; one tile a group of lanes, or
//            as many blocks as are resident, each for several tiles
//   shared   none: rows share activations through the L1 cache
//   moves    n k / 4 bytes of weights, read once
//   bound    the weights from some megabytes on, below by latency: the first pieces are on their way before the kernel
//            before this one has ended
//
// Codes stay in their places: a word under four masks is four times four codes, worth 1, 4, 16 and 64 each.
// Each mask has a sum of its own, which is divided at the end (exact).
// A code counts one too many, so the sum of the activations is subtracted.

#include "arch/streaming.cuh"
#include "ternary/w2a8.cuh"

namespace vb {
namespace {

template <int M, int TILE>
struct Sums {
    int slots[TILE][M][4], totals[M];
};

// Four words of weights of TILE rows with 64 elements of M rows of x.
template <int M, int TILE, bool DP4A>
VB_DEVICE void add_piece(Sums<M, TILE> &sums, const uint4 (&w)[TILE], const signed char *x, const PieceElements &e,
                         int64_t k) {
#pragma unroll
    for (int m = 0; m < M; m++) {
#pragma unroll
        for (int j = 0; j < 4; j++) {
            const int64_t at = e.first + j * e.step;
            const int4 v = at < k ? *reinterpret_cast<const int4 *>(x + m * k + at) : make_int4(0, 0, 0, 0);
            const int parts[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
            for (int s = 0; s < 4; s++) {
                dot4<DP4A>(sums.totals[m], 0x01010101u, parts[s]);
#pragma unroll
                for (int t = 0; t < TILE; t++) {
                    const unsigned word = j == 0 ? w[t].x : j == 1 ? w[t].y : j == 2 ? w[t].z : w[t].w;
                    dot4<DP4A>(sums.slots[t][m][s], word & (0x03030303u << (2 * s)), parts[s]);
                }
            }
        }
    }
}

template <int M, int LANES, int TILE, bool DP4A>
__global__ void __launch_bounds__(256) w2a8_gemv_kernel(vb_w2a8_gemv_args a, int64_t row0) {
    // pieces of a row that a lane asks for at once, and as many again meanwhile
    constexpr int depth = TILE == 1 ? 4 : 2;
    const int lane = threadIdx.x % LANES, pieces = int(a.row_bytes / 16);
    const int64_t groups = (int64_t)gridDim.x * blockDim.x / LANES;
    const signed char *const x = static_cast<const signed char *>(a.activations) + row0 * a.k;
    bool waited = false;
    if (!a.settled) {
        wait_for_previous_kernel();
        release_next_kernel();
        waited = true;
    }
    // A warp stays together: the first of its groups decides.
    const int64_t of_warp = ((int64_t)blockIdx.x * blockDim.x + (threadIdx.x & ~31)) / LANES;
    for (int64_t g = of_warp; g * TILE < a.n; g += groups) {
        const int64_t first = (g + threadIdx.x % 32 / LANES) * TILE;
        const uint4 *rows[TILE];
#pragma unroll
        for (int t = 0; t < TILE; t++)
            rows[t] = row_of(a, first + t);
        uint4 now[depth][TILE], next[depth][TILE];
        const auto load = [&](uint4(&to)[depth][TILE], int base) {
#pragma unroll
            for (int d = 0; d < depth; d++) {
                const int p = base + d * LANES + lane;
#pragma unroll
                for (int t = 0; t < TILE; t++) to[d][t] = p < pieces ? load_once(rows[t] + p) : make_uint4(0, 0, 0, 0);
            }
        };
        load(now, 0);
        load(next, depth * LANES);
        if (!waited) {
            wait_for_previous_kernel();
            release_next_kernel();
            waited = true;
        }
        Sums<M, TILE> sums = {};
        for (int base = 0; base < pieces; base += depth * LANES) {
#pragma unroll
            for (int d = 0; d < depth; d++) {
                const int p = base + d * LANES + lane;
                if (p < pieces) add_piece<M, TILE, DP4A>(sums, now[d], x, elements_of(p, pieces), a.k);
            }
#pragma unroll
            for (int d = 0; d < depth; d++)
#pragma unroll
                for (int t = 0; t < TILE; t++) now[d][t] = next[d][t];
            if (base + 2 * depth * LANES < pieces) load(next, base + 2 * depth * LANES);
        }
#pragma unroll
        for (int t = 0; t < TILE; t++)
#pragma unroll
            for (int m = 0; m < M; m++) {
                const int(&s)[4] = sums.slots[t][m];
                int sum = s[0] + (s[1] >> 2) + (s[2] >> 4) + (s[3] >> 6) - sums.totals[m];
#pragma unroll
                for (int offset = LANES / 2; offset > 0; offset /= 2) sum += __shfl_xor_sync(all_lanes, sum, offset);
                if (lane == 0 && first + t < a.n) store_sum(a, row0 + m, first + t, sum);
            }
    }
    if (!waited) wait_for_previous_kernel();
}

template <int M, int LANES, int TILE, bool DP4A>
vb_status launch_gemv(const vb_w2a8_gemv_args &a, const ternary_choice &c, int64_t row0, vb_stream *stream) {
    return launch_overlapped(stream, (unsigned)c.blocks, c.threads, 0, w2a8_gemv_kernel<M, LANES, TILE, DP4A>, a, row0);
}

template <int M>
vb_status gemv(const vb_w2a8_gemv_args &a, const ternary_choice &c, int64_t row0, vb_stream *stream) {
    if (a.without_dp4a) return launch_gemv<M, 32, 1, false>(a, c, row0, stream);
    switch (c.lanes * 4 + c.tile) {
    case 8 * 4 + 1: return launch_gemv<M, 8, 1, true>(a, c, row0, stream);
    case 8 * 4 + 2: return launch_gemv<M, 8, 2, true>(a, c, row0, stream);
    case 16 * 4 + 1: return launch_gemv<M, 16, 1, true>(a, c, row0, stream);
    case 16 * 4 + 2: return launch_gemv<M, 16, 2, true>(a, c, row0, stream);
    case 32 * 4 + 1: return launch_gemv<M, 32, 1, true>(a, c, row0, stream);
    case 32 * 4 + 2: return launch_gemv<M, 32, 2, true>(a, c, row0, stream);
    default: return VB_UNSUPPORTED;
    }
}

} // namespace
} // namespace vb

using namespace vb;

extern "C" vb_status vb_cuda_w2a8_gemv(const vb_w2a8_gemv_args *args, vb_stream *stream) {
    const vb_w2a8_gemv_args &a = *args;
    const vb_gpu gpu = gpu_of(stream);
    const ternary_choice c = choose_w2a8_gemv(&a, &gpu);
    chosen(stream, ternary_kernel_info(c.kernel), "w2a8_gemv", a.out_type, "m n k threads lanes tile", a.m, a.n, a.k,
           (int64_t)c.threads, (int64_t)c.lanes, (int64_t)c.tile);
    switch (c.kernel) {
    case TERNARY_BITS: return w2a8_bits(a, c.bits, stream);
    case TERNARY_TILES: return w2a8_tiles(a, c, stream);
    case TERNARY_WORDS: return w2a8_any(a, true, stream);
    case TERNARY_BYTES: return w2a8_any(a, false, stream);
    case TERNARY_WGMMA: return w2a8_sm90(a, c.wgmma, stream);
    case TERNARY_MMA_16:
    case TERNARY_MMA_32:
    case TERNARY_MMA_64: return w2a8_mma(a, c.kernel, stream);
    case TERNARY_GEMV: break;
    default: return VB_UNSUPPORTED;
    }
    for (int64_t row = 0; row < a.m;) {
        if (a.m - row >= 4) {
            VB_TRY(gemv<4>(a, c, row, stream));
            row += 4;
        } else if (a.m - row >= 2) {
            VB_TRY(gemv<2>(a, c, row, stream));
            row += 2;
        } else {
            VB_TRY(gemv<1>(a, c, row, stream));
            row++;
        }
    }
    return VB_OK;
}
