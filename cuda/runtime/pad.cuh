// pad.cuh: rows of 16-bit elements that begin anywhere, copied to rows that begin at multiples of 16 bytes, and back.
// So a kernel for whole vectors serves both.
//
//   grid     blocks of each copy one after the other, a thread for each 16 bytes of a padded matrix; small matrices
//            share blocks
//   block    256 threads
//   moves    4 bytes an element
//   bound    memory

#pragma once

#include "arch/unaligned.cuh"

namespace vb {

using Piece = uint4; // eight elements

// Matrices [outer][inner] of rows of `columns` elements, of which the copy has ceil(columns / 8) pieces a row. Its rows
// lie `lines` * 128 bytes apart, or without gaps where `lines` is 0.
struct PaddedRows {
    int64_t outer, inner, rows, columns, outer_stride, inner_stride, row_stride, lines = 0;

    int64_t per_row() const { return ceil_div<int64_t>(columns, 8); }
    int64_t apart() const { return lines > 0 ? 8 * lines : per_row(); } // pieces
    int64_t pieces() const { return outer * inner * rows * apart(); }
    int64_t bytes() const { return pieces() * (int64_t)sizeof(Piece); }
};

constexpr int pad_threads = 256;
// Matrices and their copy.
struct PadCopy {
    Piece *copy;
    const void *matrix;
    PaddedRows r;
    unsigned per_row, per_matrix, apart;    // pieces that have elements; from one row to the next
    unsigned together;                      // matrices that share blocks
    unsigned blocks, groups;                // of each such group

    PadCopy(void *copy, const void *matrix, const PaddedRows &r)
        : copy((Piece *)copy), matrix(matrix), r(r), per_row((unsigned)r.per_row()),
          per_matrix((unsigned)larger<int64_t>(1, r.rows * r.per_row())), apart((unsigned)r.apart()),
          together(larger(1u, 8 * pad_threads / per_matrix)),
          blocks(ceil_div(together * per_matrix, (unsigned)pad_threads)),
          groups((unsigned)ceil_div<int64_t>(r.outer * r.inner, together)) {}
};
template <int COUNT>
struct PadCopies {
    PadCopy each[COUNT];
};

// BACK is false for matrix to copy, with zeros past a row's end, true for copy to matrix.
template <bool BACK, int COUNT>
__global__ void __launch_bounds__(pad_threads) pad_rows_kernel(const PadCopies<COUNT> copies) {
    wait_for_previous_kernel();
    release_next_kernel();
    unsigned block = blockIdx.x;
    int which = 0;
    for (; which < COUNT - 1 && block >= copies.each[which].blocks * copies.each[which].groups; which++)
        block -= copies.each[which].blocks * copies.each[which].groups;
    const PadCopy &c = copies.each[which];
    const PaddedRows &r = c.r;
    const unsigned group = block / c.blocks, of_group = (block - group * c.blocks) * pad_threads + threadIdx.x;
    const unsigned within = of_group / c.per_matrix, i = of_group - within * c.per_matrix;
    const unsigned row = i / c.per_row, first = (i - row * c.per_row) * 8, at = group * c.together + within;
    if (within >= c.together || at >= r.outer * r.inner || row >= r.rows) return;
    const int count = (int)smaller<int64_t>(8, r.columns - first);
    const unsigned outer = at / (unsigned)r.inner, inner = at - outer * (unsigned)r.inner;
    unsigned short *const from = (unsigned short *)c.matrix + outer * r.outer_stride + inner * r.inner_stride +
                                 row * r.row_stride + first;
    Piece *const to = c.copy + (at * r.rows + row) * c.apart + first / 8;
    if (BACK) {
        const Piece piece = *to;
        const unsigned words[4] = {piece.x, piece.y, piece.z, piece.w};
#pragma unroll
        for (int e = 0; e < 8; e++)
            if (e < count) from[e] = (unsigned short)(words[e / 2] >> e % 2 * 16);
    } else {
        // The one or two aligned vectors in which the elements lie. Such a vector holds at least one element, so it
        // lies in a page of memory that may be read.
        const unsigned shift = (unsigned)(uintptr_t)from % 16;
        const Piece *const vectors = (const Piece *)((const char *)from - shift), low = vectors[0];
        const Piece high = shift > 0 && count > 8 - (int)shift / 2 ? vectors[1] : low;
        const Piece eight = bytes_from(low, high, shift);
        *to = count < 8 ? first_elements(eight, count) : eight;
    }
}

template <bool BACK, class... C>
vb_status pad_rows(vb_stream *stream, const C &...copies) {
    const PadCopies<(int)sizeof...(C)> all = {{copies...}};
    unsigned blocks = 0;
    for (const PadCopy &copy : all.each) blocks += copy.blocks * copy.groups;
    return launch_overlapped(stream, blocks, pad_threads, 0, pad_rows_kernel<BACK, (int)sizeof...(C)>, all);
}

} // namespace vb
