// transpose.cu: out[z][i][j] = in[z][j][i]: a copy of matrices whose columns lie side by side.
//
//   grid     a tile of 64 x 64 elements a block of 256 threads: all tiles of all matrices, one after another
//   shared   the tile. Its rows have an odd number of words, so that a column's words lie in 32 banks
//   moves    each element read and written once, both by rows of 64
//   bound    memory bandwidth

#include "strided/contiguous.cuh"
#include "strided/choose.h"

namespace vb {
namespace {

constexpr int transpose_threads = 256, tile = 64;

struct TransposePlan {
    int64_t out_matrix, out_row, in_matrix, in_row; // strides: rows of `in` are columns of `out`
    int64_t rows, cols, row_tiles, col_tiles;       // of out
};

template <class T>
__global__ void __launch_bounds__(transpose_threads) transpose_kernel(T *out, const T *in, const TransposePlan p) {
    constexpr int padded = tile + (sizeof(T) < 4 ? 4 / (int)sizeof(T) : 1);
    __shared__ T kept[tile][padded]; // [column of out][row of out]
    wait_for_previous_kernel();
    release_next_kernel();
    const int64_t matrix = blockIdx.x / (p.row_tiles * p.col_tiles), at = blockIdx.x % (p.row_tiles * p.col_tiles);
    const int64_t row = at / p.col_tiles * tile, col = at % p.col_tiles * tile;
    const int x = threadIdx.x % tile, y = threadIdx.x / tile;
    in += matrix * p.in_matrix + row;
    out += matrix * p.out_matrix + col;
    T values[tile * tile / transpose_threads];
#pragma unroll
    for (int i = 0; i < tile * tile / transpose_threads; i++) {
        const int j = y + i * (transpose_threads / tile);
        if (row + x < p.rows && col + j < p.cols) values[i] = in[(col + j) * p.in_row + x];
    }
#pragma unroll
    for (int i = 0; i < tile * tile / transpose_threads; i++) kept[y + i * (transpose_threads / tile)][x] = values[i];
    __syncthreads();
#pragma unroll
    for (int i = 0; i < tile * tile / transpose_threads; i++) {
        const int j = y + i * (transpose_threads / tile);
        if (row + j < p.rows && col + x < p.cols) out[(row + j) * p.out_row + x] = kept[x][j];
    }
}

template <class T>
vb_status transpose(const vb_map_args &a, const TransposePlan &p, int64_t tiles, vb_stream *stream) {
    return launch_overlapped(stream, (unsigned)tiles, transpose_threads, 0, transpose_kernel<T>, (T *)a.out.data,
                             (const T *)a.in[0].data, p);
}

} // namespace

vb_status copy_transposed(const vb_map_args &a, vb_stream *stream) {
    const int rank = (int)a.rank;
    const int64_t matrices = rank == 3 ? a.sizes[0] : 1;
    TransposePlan p = {};
    p.rows = a.sizes[rank - 2], p.cols = a.sizes[rank - 1];
    p.out_row = a.out.strides[rank - 2], p.in_row = a.in[0].strides[rank - 1];
    if (rank == 3) p.out_matrix = a.out.strides[0], p.in_matrix = a.in[0].strides[0];
    p.row_tiles = ceil_div<int64_t>(p.rows, tile), p.col_tiles = ceil_div<int64_t>(p.cols, tile);
    const int64_t tiles = matrices * p.row_tiles * p.col_tiles;
    switch (vb_element_bytes(a.out.type)) {
    case 4: return transpose<unsigned>(a, p, tiles, stream);
    case 2: return transpose<unsigned short>(a, p, tiles, stream);
    default: return transpose<unsigned char>(a, p, tiles, stream);
    }
}

} // namespace vb
