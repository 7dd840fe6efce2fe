// matmul_mma.cu: C[m][n] = A[m][k] B[k][n] for F16 and BF16 on tensor cores, accumulated in float32.
//
//   grid     ceil(m / 128) * ceil(n / 128) in bands (matmul.cuh)
//   block    8 warps, 2 x 4; a warp has 64 x 32 outputs, as 4 x 4 products of m16n8k16
//   shared   three stages of A [128][64] and B [64][128], swizzled: 96 KiB; two stages are on their way while one is used
//   moves    about (1 / 128 + 1 / 128) m n k * 2 bytes from L2, 2 m n k FLOPs
//   bound    tensor cores, as far as mma.sync feeds Hopper's
//   measured H200, BF16, graph replays: 338 TFLOP/s at 2048^3 and 4096^3, 0.45 of cuBLAS

#include "matmul.cuh"
#include "mma.cuh"

namespace vb {
namespace {

constexpr int threads = 256;
constexpr int tile_m = 128, tile_n = 128, depth = 64, stages = 3;
constexpr int a_bytes = tile_m * depth * 2, b_bytes = tile_n * depth * 2, stage_bytes = a_bytes + b_bytes;
constexpr int a_chunks = depth / 8, b_chunks = tile_n / 8; // of 16 bytes in a row

template <class T>
__global__ void __launch_bounds__(threads, 2)
    matmul_mma_kernel(T *c, const T *a, const T *b, int64_t m, int64_t k, int64_t n) {
#if __CUDA_ARCH__ >= 800
    extern __shared__ __align__(1024) uint4 shared[];
    wait_for_previous_kernel();
    release_next_kernel();
    const TileOrder tile = tile_of_block(ceil_div<int64_t>(m, tile_m), ceil_div<int64_t>(n, tile_n));
    const int64_t m0 = tile.row * tile_m, n0 = tile.col * tile_n;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int warp_m = warp / 4 * 64, warp_n = warp % 4 * 32;
    const unsigned base = shared_address(shared);

    // A thread copies one chunk of every 32nd row of A and of every 16th row of B.
    const int a_row = threadIdx.x / a_chunks, a_chunk = threadIdx.x % a_chunks;
    const int b_row = threadIdx.x / b_chunks, b_chunk = threadIdx.x % b_chunks;
    constexpr int a_apart = threads / a_chunks, b_apart = threads / b_chunks;
    const unsigned a_to = base + swizzled(a_row, a_chunk, a_chunks), b_to = base + a_bytes + swizzled(b_row, b_chunk, b_chunks);
    const T *const a_from = a + (m0 + a_row) * k + a_chunk * 8, *const b_from = b + b_row * n + n0 + b_chunk * 8;
    const int a_rows = (int)smaller<int64_t>(tile_m, m - m0) - a_row;
    const bool b_valid = n0 + b_chunk * 8 < n;
    const auto copy_stage = [&](int64_t step) {
        const int64_t k0 = step * depth;
        const unsigned to = unsigned(step % stages) * stage_bytes;
        const bool a_valid = k0 + a_chunk * 8 < k;
#pragma unroll
        for (int i = 0; i < tile_m / a_apart; i++)
            copy_async(a_to + to + i * a_apart * a_chunks * 16, a_from + k0 + i * a_apart * k, a_valid && i * a_apart < a_rows);
#pragma unroll
        for (int i = 0; i < depth / b_apart; i++)
            copy_async(b_to + to + i * b_apart * b_chunks * 16, b_from + (k0 + i * b_apart) * n,
                       b_valid && k0 + i * b_apart + b_row < k);
    };

    const int64_t steps = ceil_div<int64_t>(k, depth);
    for (int i = 0; i < stages - 1; i++) {
        if (i < steps) copy_stage(i);
        copy_async_commit();
    }
    // Chunk 2i + x of a row is chunk x with bits 5.. of the address flipped by i (see mma.cuh and attention_prefill.cu).
    const unsigned a_at = base + swizzled(warp_m + lane % 16, lane / 16, a_chunks);
    const unsigned b_at = base + a_bytes + swizzled(lane % 16, warp_n / 8 + lane / 16, b_chunks);
    float sum[4][4][4] = {};
    for (int64_t step = 0; step < steps; step++) {
        copy_async_wait<stages - 2>();
        __syncthreads();
        if (step + stages - 1 < steps) copy_stage(step + stages - 1);
        copy_async_commit();
        const unsigned stage = unsigned(step % stages) * stage_bytes;
#pragma unroll
        for (int i = 0; i < depth / 16; i++) {
            unsigned x[4][4], y[2][4];
#pragma unroll
            for (int r = 0; r < 4; r++) load_matrices(x[r], ((a_at + stage) ^ 32 * i) + r * 16 * a_chunks * 16);
#pragma unroll
            for (int q = 0; q < 2; q++) load_matrices_transposed(y[q], ((b_at + stage) ^ 32 * q) + i * 16 * b_chunks * 16);
#pragma unroll
            for (int r = 0; r < 4; r++)
#pragma unroll
                for (int q = 0; q < 4; q++) mma<T>(sum[r][q], x[r], y[q / 2][q % 2 * 2], y[q / 2][q % 2 * 2 + 1]);
        }
    }
#pragma unroll
    for (int r = 0; r < 4; r++)
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const int64_t row = m0 + warp_m + r * 16 + lane / 4 + 8 * h;
            if (row >= m) continue;
#pragma unroll
            for (int q = 0; q < 4; q++) {
                const int64_t col = n0 + warp_n + q * 8 + lane % 4 * 2;
                Vec<T, 2> two;
                two.at[0] = from_float<T>(sum[r][q][2 * h]), two.at[1] = from_float<T>(sum[r][q][2 * h + 1]);
                if (col < n) *reinterpret_cast<Vec<T, 2> *>(c + row * n + col) = two;
            }
        }
#endif
}

template <class T>
vb_status launch_mma(void *c, const void *a, const void *b, int64_t m, int64_t k, int64_t n, vb_stream *stream) {
    const int64_t rows = ceil_div<int64_t>(m, tile_m), cols = ceil_div<int64_t>(n, tile_n);
    if (rows > INT32_MAX / cols) return VB_UNSUPPORTED;
    return launch_overlapped(stream, (unsigned)(rows * cols), threads, stages * stage_bytes, matmul_mma_kernel<T>, (T *)c,
                             (const T *)a, (const T *)b, m, k, n);
}

} // namespace

vb_status matmul_mma(void *c, const void *a, const void *b, vb_dtype type, int64_t m, int64_t k, int64_t n,
                     vb_stream *stream) {
    if (type == VB_F16) return launch_mma<half>(c, a, b, m, k, n, stream);
    if (type == VB_BF16) return launch_mma<bf16>(c, a, b, m, k, n, stream);
    return VB_UNSUPPORTED;
}

} // namespace vb
