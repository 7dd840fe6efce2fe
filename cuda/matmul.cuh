// matmul.cuh: what the matrix product kernels share.

#ifndef VB_CUDA_MATMUL_CUH
#define VB_CUDA_MATMUL_CUH

#include "common.cuh"

namespace vb {

struct TileOrder {
    int64_t row, col;
};

// The tile of this block in a grid of rows * cols tiles: bands of 8 rows, down each column of the band. Blocks that run
// together then read few rows of A and few columns of B, which stay in L2.
VB_DEVICE TileOrder tile_of_block(int64_t rows, int64_t cols) {
    constexpr int64_t band = 8;
    const int64_t block = blockIdx.x, first = block / (band * cols) * band;
    const int64_t height = smaller(band, rows - first), within = block - first * cols;
    return {first + within % height, within / height};
}

// 16-bit types, k and n multiples of 8, pointers of 16 bytes, capability 8.0.
vb_status matmul_mma(void *c, const void *a, const void *b, vb_dtype type, int64_t m, int64_t k, int64_t n,
                     vb_stream *stream);

// k and n multiples of 4, pointers of 16 bytes, capability 8.0.
vb_status matmul_f32(float *c, const float *a, const float *b, int64_t m, int64_t k, int64_t n, vb_stream *stream);

} // namespace vb
#endif
