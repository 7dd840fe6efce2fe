// tile_load.cuh: tiles of 16-bit operands of any alignment, which go to shared memory through registers.

#ifndef VB_CUDA_TILE_LOAD_CUH
#define VB_CUDA_TILE_LOAD_CUH

#include "arch/mma.cuh"
#include "arch/unaligned.cuh"

namespace vb {

// A tile on its way through registers, as it is stored: rows of [SIDE][DEPTH] where BY_K, else of [DEPTH][SIDE]. A row
// begins anywhere.
// A thread loads the one or two aligned vectors in which eight elements lie, and joins them when it stores them.
// Such a vector holds an element of the matrix, so that it lies in a page of memory that may be read.
template <class T, bool BY_K, int SIDE, int DEPTH, int THREADS>
struct TileLoad {
    static constexpr int columns = BY_K ? DEPTH : SIDE, chunks = columns / 8, rows_in_all = BY_K ? SIDE : DEPTH;
    // Bytes of a row in shared memory: eight rows begin in different banks.
    static constexpr int width = columns * 2 + 16, bytes = rows_in_all * width;
    static constexpr int apart = THREADS / chunks, count = rows_in_all / apart; // of a thread's rows
    static_assert(apart % 8 == 0 && rows_in_all % apart == 0, "a thread's rows begin alike");
    const char *from;
    int64_t step, advance; // bytes between a thread's rows, to the next tile; multiples of 16
    int row, column, valid = 0;
    unsigned shift, to; // `shift` bytes from a vector's start on; the same for all of the thread's rows
    uint4 low[count], high[count];

    VB_DEVICE TileLoad(const T *matrix, int64_t stride, int64_t first)
        : step(apart * stride * 2), advance(BY_K ? DEPTH * 2 : DEPTH * stride * 2), row(threadIdx.x / chunks),
          column(threadIdx.x % chunks * 8), to(row * width + column * 2) {
        place(matrix, stride, first);
    }
    // At a tile whose first row or column is `first`.
    VB_DEVICE void place(const T *matrix, int64_t stride, int64_t first) {
        from = (const char *)(matrix + (BY_K ? (first + row) * stride + column : row * stride + first + column));
        shift = (unsigned)(uintptr_t)from % 16;
        from -= shift;
    }
    // The next tile, of which so many elements along k and across lie in the matrix.
    VB_DEVICE void load(int left_k, int left_side) {
        const int rows = (BY_K ? left_side : left_k) - row;
        valid = (BY_K ? left_k : left_side) - column;
        const bool two = shift > 0 && valid > 8 - (int)shift / 2;
#pragma unroll
        for (int i = 0; i < count; i++) {
            const uint4 *const at = (const uint4 *)(from + i * step);
            low[i] = high[i] = make_uint4(0, 0, 0, 0);
            if (i * apart < rows && valid > 0) low[i] = __ldg(at);
            if (i * apart < rows && two) high[i] = __ldg(at + 1);
        }
        from += advance;
    }
    VB_DEVICE void store(char *tile) const {
#pragma unroll
        for (int i = 0; i < count; i++) {
            uint4 eight = bytes_from(low[i], high[i], shift);
            if (BY_K && valid < 8) eight = first_elements(eight, valid); // across, the rest may be anything
            *(uint4 *)(tile + to + i * apart * width) = eight;
        }
    }
};

// Adds the products of 16 elements of k, of which `step` are before them, to a warp's R x Q tiles of 16 x 8. Operands
// are stored as TileLoad does, with rows of A_WIDTH and B_WIDTH bytes; a and b are the lane's first addresses of them.
template <class T, bool A_T, bool B_T, int A_WIDTH, int B_WIDTH, int R, int Q>
VB_DEVICE void multiply_tiles(float (&sum)[R][Q][4], unsigned a, unsigned b, int step) {
#if __CUDA_ARCH__ >= 800
    unsigned x[R][4], y[Q / 2][4];
#pragma unroll
    for (int r = 0; r < R; r++) {
        if (A_T) load_matrices_transposed(x[r], a + step * 16 * A_WIDTH + r * 32);
        else load_matrices(x[r], a + step * 32 + r * 16 * A_WIDTH);
    }
#pragma unroll
    for (int q = 0; q < Q / 2; q++) {
        if (B_T) load_matrices(y[q], b + step * 32 + q * 16 * B_WIDTH);
        else load_matrices_transposed(y[q], b + step * 16 * B_WIDTH + q * 32);
    }
#pragma unroll
    for (int r = 0; r < R; r++)
#pragma unroll
        for (int q = 0; q < Q; q++) mma<T>(sum[r][q], x[r], y[q / 2][q % 2 * 2], y[q / 2][q % 2 * 2 + 1]);
#endif
}

} // namespace vb
#endif
