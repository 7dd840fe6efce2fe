// w2a8_ring.cu: out = W x for one row of int8 activations and interleaved two-bit weights, by int8 tensor cores and
// bulk copies (vb_w2a8_gemv, 9.0). The same for a row that is rounded first, and up to three matrices (vb_bit_linear).
//
//   grid     as many blocks as are resident at once, each for neighbouring tiles of 16 rows. The warps of a block share
//            the elements of a row; a warp keeps its UNITS units of x in registers
//   shared   a ring of tiles, a sum a tile, warp and row, the codes of x where it is rounded
//   moves    n k / 4 bytes of weights, read once. Each block rounds x: it reads 4 or 8 bytes an element, from the L2
//   bound    the weights: the ring fills before the kernel before this one has ended
//
// A code counts one too many, so the sum of the activations is subtracted. All columns of an instruction are x.

#include "ternary/tiles.cuh"
#include "ternary/w2a8.cuh"

namespace vb {
namespace {

VB_DEVICE void await(uint64_t *barrier, unsigned parity) {
#if __CUDA_ARCH__ >= 900
    asm volatile("{\n"
                 ".reg .pred done;\n"
                 "again%=: mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
                 "@!done bra again%=;\n"
                 "}" ::"r"(shared_address(barrier)),
                 "r"(parity)
                 : "memory");
#endif
}

// Copies bytes to shared memory; the barrier's phase completes when they are there.
VB_DEVICE void fetch(char *to, const char *from, int bytes, uint64_t *barrier) {
#if __CUDA_ARCH__ >= 900
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)), "r"(bytes)
                 : "memory");
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
            shared_address(to)),
        "l"(from), "r"(bytes), "r"(shared_address(barrier))
        : "memory");
#endif
}

// The matrices that a row is multiplied with, one after the other.
struct RingJob {
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

template <int UNITS, bool ROUNDS, int THREADS, int BLOCKS>
__global__ void __launch_bounds__(THREADS, BLOCKS) w2a8_ring_kernel(VB_IN_PLACE RingJob job, ternary_ring ring) {
#if __CUDA_ARCH__ >= 900
    extern __shared__ __align__(128) char memory[];
    __shared__ uint64_t arrived[TERNARY_RING_STAGES], read[TERNARY_RING_STAGES];
    __shared__ int totals[TERNARY_TILE_WARPS];
    const int lane = threadIdx.x % 32, warps = blockDim.x / 32, warp = threadIdx.x / 32, group = lane / 4,
              row_bytes = int(job.matrix[0].row_bytes), tile_bytes = 16 * row_bytes, pieces = row_bytes / 16,
              k = int(job.matrix[0].k);
    const int first = int((int64_t)ring.tiles * blockIdx.x / gridDim.x),
              count = int((int64_t)ring.tiles * (blockIdx.x + 1) / gridDim.x) - first;
    char *const stages = memory;
    int *const parts = reinterpret_cast<int *>(memory + ring.stages * tile_bytes); // [count][warps][16]
    const auto matrix_of = [&](int tile) { return tile < job.ends[0] ? 0 : tile < job.ends[1] ? 1 : 2; };
    const auto row_in = [&](int matrix, int tile) {
        return (int64_t)(tile - (matrix ? job.ends[matrix - 1] : 0)) * 16;
    };
    const auto copy = [&](int tile, int stage) {
        const int matrix = matrix_of(first + tile);
        const vb_w2a8_gemv_args &a = job.matrix[matrix];
        const int64_t row = row_in(matrix, first + tile);
        fetch(stages + stage * tile_bytes, static_cast<const char *>(a.weights) + row * row_bytes,
              int(smaller<int64_t>(16, a.n - row)) * row_bytes, arrived + stage);
    };
    const bool settled = job.matrix[0].settled;
    if (!settled) wait_for_previous_kernel();
    if (threadIdx.x == 0) {
        for (int i = 0; i < ring.stages; i++) {
            asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(shared_address(arrived + i)));
            asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(read + i)), "r"(warps));
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
        for (int i = 0; i < ring.stages && i < count; i++) copy(i, i);
    }
    __syncthreads(); // the barriers are ready
    constexpr int items = ROUNDS ? 2 * UNITS : 1;
    float4 norms[items];
    if (ROUNDS) {
#pragma unroll
        for (int i = 0; i < items; i++) {
            const int at = 4 * (threadIdx.x + i * blockDim.x);
            norms[i] = job.x.normed && job.x.norm && at < k ? *reinterpret_cast<const float4 *>(job.x.norm + at)
                                                           : make_float4(1.0f, 1.0f, 1.0f, 1.0f);
        }
    }
    if (settled) wait_for_previous_kernel();
    release_next_kernel();
    const signed char *x = static_cast<const signed char *>(job.matrix[0].activations);
    float scale = 1.0f;
    if (ROUNDS) {
        __shared__ float2 scratch[32];
        signed char *const codes = reinterpret_cast<signed char *>(parts + ring.most * warps * 16);
        float4 h[items];
        float squares = 0.0f, most = 0.0f;
#pragma unroll
        for (int i = 0; i < items; i++) {
            const int at = 4 * (threadIdx.x + i * blockDim.x);
            h[i] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
            if (at >= k) continue;
            h[i] = *reinterpret_cast<const float4 *>(job.x.in + at);
            if (job.x.up) {
                const float4 u = *reinterpret_cast<const float4 *>(job.x.up + at);
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
        scale = __fdiv_rn(127.0f, Max::combine(1e-5f, all.y * factor));
#pragma unroll
        for (int i = 0; i < items; i++) {
            const int at = 4 * (threadIdx.x + i * blockDim.x);
            const char4 c = make_char4(code_of(h[i].x * factor * norms[i].x, scale),
                                       code_of(h[i].y * factor * norms[i].y, scale),
                                       code_of(h[i].z * factor * norms[i].z, scale),
                                       code_of(h[i].w * factor * norms[i].w, scale));
            if (at < 256 * UNITS * warps) *reinterpret_cast<char4 *>(codes + at) = c;
        }
        __syncthreads();
        x = codes;
    }
    int4 mine[UNITS][4];
    int2 owns[UNITS];
#pragma unroll
    for (int u = 0; u < UNITS; u++) {
        const int unit = warp * UNITS + u, p = 4 * unit + lane % 4, own = 256 * unit + 8 * lane;
        const PieceElements e = elements_of(p, pieces);
#pragma unroll
        for (int j = 0; j < 4; j++) {
            const int at = int(e.first) + j * e.step;
            mine[u][j] = p < pieces && at < k ? *reinterpret_cast<const int4 *>(x + at) : make_int4(0, 0, 0, 0);
        }
        // each lane sums an eighth of its operand: the other lanes of its column have the rest
        owns[u] = own < k ? *reinterpret_cast<const int2 *>(x + own) : make_int2(0, 0);
    }
    // The factors of the sums are asked for beside x.
    const auto ending = [&](int i) {
        const int matrix = matrix_of(first + i / 16);
        const vb_w2a8_gemv_args &a = job.matrix[matrix];
        return ending_of(a, 0, smaller(row_in(matrix, first + i / 16) + i % 16, a.n - 1));
    };
    Ending mine_ends;
    if (threadIdx.x < count * 16) mine_ends = ending(threadIdx.x);
    unsigned parity = 0;
    for (int t = 0, stage = 0; t < count; t++) {
        await(arrived + stage, parity);
        const char *const tile = stages + stage * tile_bytes + group * row_bytes;
        RowTile sums = {};
#pragma unroll
        for (int u = 0; u < UNITS; u++) {
            const int p = 4 * (warp * UNITS + u) + lane % 4;
            uint4 w = make_uint4(0, 0, 0, 0), w8 = w;
            if (p < pieces) {
                w = *reinterpret_cast<const uint4 *>(tile + 16 * p);
                w8 = *reinterpret_cast<const uint4 *>(tile + 8 * row_bytes + 16 * p);
            }
            sums.add(w, w8, mine[u]);
        }
        if (t + ring.stages < count) {
            __syncwarp();
            if (lane == 0)
                asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(read + stage)) : "memory");
            if (threadIdx.x == 0) {
                await(read + stage, parity);
                copy(t + ring.stages, stage);
            }
        }
        if (lane % 4 == 0)
#pragma unroll
            for (int half = 0; half < 2; half++)
                parts[(t * warps + warp) * 16 + 8 * half + group] = sums.sum(half, 0);
        if (++stage == ring.stages) stage = 0, parity ^= 1;
    }
    int total = 0;
#pragma unroll
    for (int u = 0; u < UNITS; u++) {
        dot4<true>(total, 0x01010101u, owns[u].x);
        dot4<true>(total, 0x01010101u, owns[u].y);
    }
#pragma unroll
    for (int offset = 16; offset > 0; offset /= 2) total += __shfl_xor_sync(all_lanes, total, offset);
    if (lane == 0) totals[warp] = total;
    __syncthreads();
    for (int i = threadIdx.x; i < count * 16; i += blockDim.x) {
        int sum = 0;
        for (int o = 0; o < warps; o++) sum += parts[(i / 16 * warps + o) * 16 + i % 16] - totals[o];
        const int matrix = matrix_of(first + i / 16);
        const vb_w2a8_gemv_args &a = job.matrix[matrix];
        const int64_t row = row_in(matrix, first + i / 16) + i % 16;
        Ending e = i == threadIdx.x ? mine_ends : ending(i);
        if (ROUNDS) e.divisor = scale;
        if (row < a.n) store_sum(a, 0, row, sum, e);
    }
#endif
}

// The registers of two blocks fit a multiprocessor, so that the next kernel's ring fills meanwhile. The longest rows
// are the exception.
template <bool ROUNDS>
vb_status launch_ring(const RingJob &job, const ternary_ring &ring, vb_stream *stream) {
    const auto kernel = ring.units == 1 ? w2a8_ring_kernel<1, ROUNDS, 512, 2>
        : ring.units == 2               ? w2a8_ring_kernel<2, ROUNDS, 320, 2>
        : ring.threads <= 288           ? w2a8_ring_kernel<3, ROUNDS, 288, 2>
                                        : w2a8_ring_kernel<3, ROUNDS, 512, 1>;
    return launch_overlapped(stream, (unsigned)ring.blocks, ring.threads, ring.shared_bytes, kernel, job, ring);
}

} // namespace

vb_status w2a8_ring(const vb_w2a8_gemv_args &a, const ternary_ring &ring, vb_stream *stream) {
    RingJob job = {};
    job.matrix[0] = a;
    for (int &end : job.ends) end = ring.tiles;
    return launch_ring<false>(job, ring, stream);
}

} // namespace vb

using namespace vb;

extern "C" vb_status vb_cuda_bit_linear(const vb_bit_linear_args *args, vb_stream *stream) {
    const vb_bit_linear_args &a = *args;
    const vb_gpu gpu = gpu_of(stream);
    const ternary_ring ring = choose_bit_linear(&a, &gpu);
    if (ring.blocks == 0) return VB_UNSUPPORTED;
    chosen(stream, ternary_kernel_info(TERNARY_BIT_LINEAR), "bit_linear", VB_F32, "m n k threads", a.m,
           a.n + a.n2 + a.n3, a.k, (int64_t)ring.threads);
    RingJob job = {};
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
    return launch_ring<true>(job, ring, stream);
}
