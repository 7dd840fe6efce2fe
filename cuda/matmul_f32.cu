// matmul_f32.cu: C[m][n] = A[m][k] B[k][n] in float32 on the fp32 units, for rows of whole 16-byte vectors.
//
//   grid     ceil(m / BM) * ceil(n / BN) in bands (matmul.cuh)
//   block    256 threads; a thread has TM x TN outputs: rows 4 apart, columns in pieces of 4 that lie 32 apart; a warp is
//            4 x 8 threads
//   shared   three stages of A [BM][16 + 4] and B [16][BN], copied asynchronously: 84 KiB for 256 x 128. The padding puts
//            the four rows that a warp reads at once into different banks
//   moves    about (1 / BM + 1 / BN) m n k * 4 bytes from L2, 2 m n k FLOPs
//   bound    fp32 units; each output is one chain of additions in the order of k
//   measured H200, graph replays: 17, 61, 402, 3188 us for cubes of 512, 1024, 2048, 4096; cuBLAS 13, 61, 340, 2681 us

#include "matmul.cuh"

namespace vb {
namespace {

constexpr int threads = 256;
constexpr int depth = 16; // of a stage along k
constexpr int stages = 3;
constexpr int a_stride = depth + 4;

template <int BM, int BN>
__host__ __device__ constexpr int stage_floats() {
    return BM * a_stride + depth * BN;
}

template <int BM, int BN, int TM, int TN, int BLOCKS_PER_SM>
__global__ void __launch_bounds__(threads, BLOCKS_PER_SM)
    matmul_f32_kernel(float *c, const float *a, const float *b, int64_t m, int64_t k, int64_t n) {
    static_assert((BM / TM) * (BN / TN) == threads, "a thread has TM x TN outputs");
    constexpr int warps_n = BN / (8 * TN), b_chunks = BN / 4;
    extern __shared__ float4 shared[];
    float *const tiles = reinterpret_cast<float *>(shared);
    wait_for_previous_kernel();
    release_next_kernel();
    const TileOrder tile = tile_of_block(ceil_div<int64_t>(m, BM), ceil_div<int64_t>(n, BN));
    const int64_t m0 = tile.row * BM, n0 = tile.col * BN;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int row = warp / warps_n * 4 * TM + lane / 8, col = warp % warps_n * 8 * TN + lane % 8 * 4;

    // A thread copies 16 bytes of every a_apart-th row of A's tile and of every b_apart-th of B's.
    constexpr int a_apart = threads / (depth / 4), b_apart = threads / b_chunks;
    const int a_row = threadIdx.x / (depth / 4), a_col = threadIdx.x % (depth / 4) * 4;
    const int b_row = threadIdx.x / b_chunks, b_col = threadIdx.x % b_chunks * 4;
    const unsigned a_to = shared_address(shared) + (a_row * a_stride + a_col) * 4;
    const unsigned b_to = shared_address(shared) + (BM * a_stride + b_row * BN + b_col) * 4;
    const float *const a_from = a + (m0 + a_row) * k + a_col, *const b_from = b + b_row * n + n0 + b_col;
    const int a_rows = (int)smaller<int64_t>(BM, m - m0) - a_row;
    const bool b_valid = n0 + b_col < n;
    const auto copy_stage = [&](int stage, int64_t k0) {
        const unsigned offset = unsigned(stage) * (stage_floats<BM, BN>() * 4);
        const bool a_valid = k0 + a_col < k;
#pragma unroll
        for (int i = 0; i < BM; i += a_apart)
            if (a_apart <= BM || a_row < BM)
                copy_async(a_to + offset + i * a_stride * 4, a_from + k0 + i * k, a_valid && i < a_rows);
#pragma unroll
        for (int i = 0; i < depth; i += b_apart)
            copy_async(b_to + offset + i * BN * 4, b_from + (k0 + i) * n, b_valid && k0 + i + b_row < k);
    };

    for (int i = 0; i < stages - 1; i++) {
        if (i * depth < k) copy_stage(i, i * depth);
        copy_async_commit();
    }
    float sum[TM][TN] = {};
    int stage = 0;
    for (int64_t k0 = 0; k0 < k; k0 += depth) {
        copy_async_wait<stages - 2>();
        __syncthreads();
        // The stage that all have left is the one before this.
        if (k0 + (stages - 1) * depth < k) copy_stage(stage == 0 ? stages - 1 : stage - 1, k0 + (stages - 1) * depth);
        copy_async_commit();
        const float *const a_tile = tiles + stage * stage_floats<BM, BN>() + row * a_stride;
        const float *const b_tile = tiles + stage * stage_floats<BM, BN>() + BM * a_stride + col;
        stage = stage == stages - 1 ? 0 : stage + 1;
#pragma unroll
        for (int d = 0; d < depth; d += 4) {
            float x[TM][4];
#pragma unroll
            for (int i = 0; i < TM; i++)
                *reinterpret_cast<float4 *>(x[i]) = *reinterpret_cast<const float4 *>(a_tile + 4 * i * a_stride + d);
#pragma unroll
            for (int e = 0; e < 4; e++) {
                float y[TN];
#pragma unroll
                for (int j = 0; j < TN; j += 4)
                    *reinterpret_cast<float4 *>(y + j) = *reinterpret_cast<const float4 *>(b_tile + (d + e) * BN + j * 8);
#pragma unroll
                for (int i = 0; i < TM; i++)
#pragma unroll
                    for (int j = 0; j < TN; j++) sum[i][j] += x[i][e] * y[j];
            }
        }
    }
#pragma unroll
    for (int i = 0; i < TM; i++) {
        const int64_t r = m0 + row + 4 * i;
        if (r >= m) continue;
#pragma unroll
        for (int j = 0; j < TN; j += 4) {
            const int64_t q = n0 + col + j * 8;
            if (q < n)
                *reinterpret_cast<float4 *>(c + r * n + q) = make_float4(sum[i][j], sum[i][j + 1], sum[i][j + 2], sum[i][j + 3]);
        }
    }
}

template <int BM, int BN, int TM, int TN, int BLOCKS_PER_SM>
vb_status launch_f32(float *c, const float *a, const float *b, int64_t m, int64_t k, int64_t n, vb_stream *stream) {
    const int64_t rows = ceil_div<int64_t>(m, BM), cols = ceil_div<int64_t>(n, BN);
    if (rows > INT32_MAX / cols) return VB_UNSUPPORTED;
    return launch_overlapped(stream, (unsigned)(rows * cols), threads, stages * stage_floats<BM, BN>() * 4,
                             matmul_f32_kernel<BM, BN, TM, TN, BLOCKS_PER_SM>, c, a, b, m, k, n);
}

} // namespace

// The largest tile of which there are about as many as multiprocessors: 43 TFLOP/s at 4096^3 on an H200, 40 with 128 x 128.
vb_status matmul_f32(float *c, const float *a, const float *b, int64_t m, int64_t k, int64_t n, vb_stream *stream) {
    const auto tiles = [&](int64_t size_m, int64_t size_n) { return ceil_div(m, size_m) * ceil_div(n, size_n); };
    const int64_t enough = multiprocessors(stream) * 7 / 8;
    if (tiles(256, 128) >= enough) return launch_f32<256, 128, 16, 8, 1>(c, a, b, m, k, n, stream);
    if (tiles(128, 64) >= enough) return launch_f32<128, 64, 8, 4, 2>(c, a, b, m, k, n, stream);
    return launch_f32<32, 64, 2, 4, 3>(c, a, b, m, k, n, stream);
}

} // namespace vb
