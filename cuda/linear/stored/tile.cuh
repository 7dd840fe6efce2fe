// tile.cuh: the product of a block where W is stored: 128 rows of W by 64 rows of x, on tensor cores of 16-bit floats.
// Weights are dequantized to T on their way into shared memory. 8 warps compute 32 x 32 each. While a piece of 32
// columns is multiplied, the next piece is on its way from memory.
#ifndef VB_LINEAR_STORED_TILE_CUH
#define VB_LINEAR_STORED_TILE_CUH

#include "arch/tensor_core.cuh"

namespace vb {
namespace {

// no bank conflicts
constexpr int tile_rows = 128, tile_tokens = 64, tile_depth = 32, tile_stride = tile_depth + 8;

template <class T>
using TileRows = T[2][tile_rows][tile_stride];
template <class T>
using TileTokens = T[2][tile_tokens][tile_stride];

// acc = W x of the tile at row0 and token0. read_w(v, row, k) puts eight elements from column k on of a row of W into
// v[8], which holds zeros; read_x(v, token, k) likewise into a vector.
template <class T, class Token, class ReadW, class ReadX>
VB_DEVICE void multiply_tile(float (&acc)[2][4][4], TileRows<T> &ws, TileTokens<T> &xs, int64_t row0, Token token0,
                             int64_t cols, ReadW read_w, ReadX read_x) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, t = lane % 4;
    const int warp_row = warp % 4 * 32, warp_token = warp / 4 * 32;
    const int k8 = threadIdx.x % 4 * 8, r = threadIdx.x / 4; // this thread's eights: rows r and r + 64 of W, r of x
    Vec<T, 8> w8[2], x8;
    auto fetch = [&](int64_t k0) {
#pragma unroll
        for (int i = 0; i < 2; i++) {
            float v[8] = {};
            read_w(v, row0 + r + 64 * i, k0 + k8);
#pragma unroll
            for (int e = 0; e < 8; e++) w8[i].at[e] = from_float<T>(v[e]);
        }
        x8 = Vec<T, 8>();
        read_x(x8, token0 + r, k0 + k8);
    };
    fetch(0);
    int buffer = 0;
    for (int64_t k0 = 0; k0 < cols; k0 += tile_depth, buffer ^= 1) {
        *reinterpret_cast<Vec<T, 8> *>(&ws[buffer][r][k8]) = w8[0];
        *reinterpret_cast<Vec<T, 8> *>(&ws[buffer][r + 64][k8]) = w8[1];
        *reinterpret_cast<Vec<T, 8> *>(&xs[buffer][r][k8]) = x8;
        __syncthreads();
        if (k0 + tile_depth < cols) fetch(k0 + tile_depth);
#pragma unroll
        for (int k = 0; k < tile_depth; k += 16) {
            uint32_t a[2][4];
#pragma unroll
            for (int i = 0; i < 2; i++)
#pragma unroll
                for (int j = 0; j < 4; j++)
                    a[i][j] = *reinterpret_cast<const uint32_t *>(
                        &ws[buffer][warp_row + 16 * i + g + 8 * (j & 1)][k + 2 * t + 8 * (j >> 1)]);
#pragma unroll
            for (int j = 0; j < 4; j++) {
                const T *b = &xs[buffer][warp_token + 8 * j + g][k + 2 * t];
                const uint32_t b0 = *reinterpret_cast<const uint32_t *>(b);
                const uint32_t b1 = *reinterpret_cast<const uint32_t *>(b + 8);
#pragma unroll
                for (int i = 0; i < 2; i++) mma_16x8x16(acc[i][j], a[i], b0, b1, T());
            }
        }
    }
}

// Calls f(row, token, sum) with each sum of this thread.
template <class Token, class F>
VB_DEVICE void each_sum(const float (&acc)[2][4][4], int64_t row0, Token token0, F f) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, t = lane % 4;
    const int warp_row = warp % 4 * 32, warp_token = warp / 4 * 32;
#pragma unroll
    for (int i = 0; i < 2; i++)
#pragma unroll
        for (int j = 0; j < 4; j++)
#pragma unroll
            for (int e = 0; e < 4; e++)
                f(row0 + warp_row + 16 * i + g + 8 * (e >> 1), token0 + warp_token + 8 * j + 2 * t + (e & 1),
                  acc[i][j][e]);
}

} // namespace
} // namespace vb
#endif
