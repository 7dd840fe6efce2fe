// w2a8_ring.cu: out = W x for one row of int8 activations and interleaved two-bit weights, by int8 tensor cores and
// bulk copies (vb_w2a8_gemv, 9.0).
//
//   grid     as many blocks as are resident at once, each for neighbouring tiles of 16 rows, whose elements its warps
//            share out: a warp keeps its UNITS units of x in registers
//   shared   a ring of tiles, a sum a tile, warp and row
//   moves    n k / 4 bytes of weights, read once; bound by them: the ring fills before the kernel before this one has
//            ended
//
// A code counts one too many, hence less the sum of the activations. All columns of an instruction are x.

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

template <int UNITS>
__global__ void __launch_bounds__(32 * TERNARY_TILE_WARPS) w2a8_ring_kernel(vb_w2a8_gemv_args a, ternary_ring ring) {
#if __CUDA_ARCH__ >= 900
    extern __shared__ __align__(128) char memory[];
    __shared__ uint64_t arrived[TERNARY_RING_STAGES], read[TERNARY_RING_STAGES];
    __shared__ int totals[TERNARY_TILE_WARPS];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32, group = lane / 4,
        row_bytes = int(a.row_bytes), tile_bytes = 16 * row_bytes, pieces = row_bytes / 16;
    const int64_t first = (int64_t)ring.tiles * blockIdx.x / gridDim.x;
    const int count = int((int64_t)ring.tiles * (blockIdx.x + 1) / gridDim.x - first);
    char *const stages = memory;
    int *const parts = reinterpret_cast<int *>(memory + ring.stages * tile_bytes); // [count][warps][16]
    const auto copy = [&](int tile, int stage) {
        const int64_t rows = smaller<int64_t>(16, a.n - (first + tile) * 16);
        fetch(stages + stage * tile_bytes, static_cast<const char *>(a.weights) + (first + tile) * tile_bytes,
              int(rows) * row_bytes, arrived + stage);
    };
    if (!a.settled) wait_for_previous_kernel();
    if (threadIdx.x == 0) {
        for (int i = 0; i < ring.stages; i++) {
            asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(shared_address(arrived + i)));
            asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(read + i)), "r"(warps));
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
        for (int i = 0; i < ring.stages && i < count; i++) copy(i, i);
    }
    if (a.settled) wait_for_previous_kernel();
    release_next_kernel();
    const signed char *const x = static_cast<const signed char *>(a.activations);
    int4 mine[UNITS][4];
    int total = 0;
#pragma unroll
    for (int u = 0; u < UNITS; u++) {
        const int unit = warp * UNITS + u, p = 4 * unit + lane % 4, own = 256 * unit + 8 * lane;
        const PieceElements e = elements_of(p, pieces);
#pragma unroll
        for (int j = 0; j < 4; j++) {
            const int64_t at = e.first + j * e.step;
            mine[u][j] = p < pieces && at < a.k ? *reinterpret_cast<const int4 *>(x + at) : make_int4(0, 0, 0, 0);
        }
        if (own < a.k) { // each lane an eighth of what it multiplies: the other lanes of its column have the rest
            const int2 v = *reinterpret_cast<const int2 *>(x + own);
            dot4<true>(total, 0x01010101u, v.x);
            dot4<true>(total, 0x01010101u, v.y);
        }
    }
#pragma unroll
    for (int offset = 16; offset > 0; offset /= 2) total += __shfl_xor_sync(all_lanes, total, offset);
    if (lane == 0) totals[warp] = total;
    __syncthreads(); // the barriers are ready
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
    __syncthreads();
    for (int i = threadIdx.x; i < count * 16; i += blockDim.x) {
        int sum = 0;
        for (int o = 0; o < warps; o++) sum += parts[(i / 16 * warps + o) * 16 + i % 16] - totals[o];
        const int64_t row = first * 16 + i;
        if (row < a.n) store_sum(a, 0, row, sum);
    }
#endif
}

} // namespace

vb_status w2a8_ring(const vb_w2a8_gemv_args &a, const ternary_ring &ring, vb_stream *stream) {
    const auto kernel = ring.units == 1 ? w2a8_ring_kernel<1> : w2a8_ring_kernel<TERNARY_RING_UNITS>;
    return launch_overlapped(stream, (unsigned)ring.blocks, ring.threads, ring.shared_bytes, kernel, a, ring);
}

} // namespace vb
