// store_rows.cuh: how fragments of matrix instructions go to rows of C in 16-bit elements, 16 bytes at a time.

#ifndef VB_CUDA_STORE_ROWS_CUH
#define VB_CUDA_STORE_ROWS_CUH

#include "arch/mma.cuh"
#include "arch/unaligned.cuh"

namespace vb {

// Where sums go: C[m][n], rows `stride` elements apart. `vectors`: the stride and C are multiples of vectors of 16
// bytes, of 8 in float32.
template <class Out>
struct ProductOutput {
    Out *c;
    int64_t stride;
    int m, n;
    bool vectors;
};

// Writes a warp's 16 rows from (row, column) on of C, of 16-bit elements, rows of which begin at vectors. The four
// threads of a quad hold 2 of every 8 columns each; they exchange them so that each writes 16 bytes. VECTORS: n is a
// multiple of 8 too.
template <class Out, int N, bool VECTORS>
VB_DEVICE void store_rows(const ProductOutput<Out> &p, const float (&sum)[N / 2], int row, int column) {
    const int lane = threadIdx.x % 32, quad = lane % 4;
#pragma unroll
    for (int h = 0; h < 2; h++) {
        const int r = row + lane / 4 + 8 * h;
        Out *const c = p.c + r * p.stride;
#pragma unroll
        for (int j = 0; j < N / 8; j += 4) {
            unsigned w[4];
#pragma unroll
            for (int i = 0; i < 4; i++) {
                if (j + i >= N / 8) { // of a width that is no multiple of 32
                    w[i] = 0;
                    continue;
                }
                const Vec<Out, 2> two = {
                    {from_float<Out>(sum[4 * (j + i) + 2 * h]), from_float<Out>(sum[4 * (j + i) + 2 * h + 1])}};
                w[i] = *reinterpret_cast<const unsigned *>(&two);
            }
            transpose_quad(w);
            const int at = column + 8 * (j + quad);
            if (r >= p.m || at >= p.n || j + quad >= N / 8) continue;
            if (VECTORS || at + 8 <= p.n) {
                *reinterpret_cast<uint4 *>(c + at) = make_uint4(w[0], w[1], w[2], w[3]);
            } else {
#pragma unroll
                for (int e = 0; e < 8; e++)
                    if (at + e < p.n) c[at + e] = reinterpret_cast<const Out *>(&w[e / 2])[e % 2];
            }
        }
    }
}

// Writes the sums themselves to rows of floats, in pairs; n is even.
template <int N>
VB_DEVICE void store_rows_of_part(const ProductOutput<float> &p, const float (&sum)[N / 2], int row, int column) {
    const int lane = threadIdx.x % 32, quad = lane % 4;
#pragma unroll
    for (int h = 0; h < 2; h++) {
        const int r = row + lane / 4 + 8 * h;
        float *const c = p.c + r * p.stride;
#pragma unroll
        for (int j = 0; j < N / 8; j++) {
            const int at = column + 8 * j + 2 * quad;
            if (r < p.m && at < p.n)
                *reinterpret_cast<float2 *>(c + at) = make_float2(sum[4 * j + 2 * h], sum[4 * j + 2 * h + 1]);
        }
    }
}

// The same as store_rows where C's rows begin anywhere. A thread has eight columns of 32 of a row; with the last of the
// eight before them it has the 16 aligned bytes that end among its own. Where these begin in the middle of a sector,
// it writes those of the thread before, so that two threads write a whole sector.
template <class Out, int N>
VB_DEVICE void store_rows_unaligned(const ProductOutput<Out> &p, const float (&sum)[N / 2], int row, int column) {
    const int lane = threadIdx.x % 32, quad = lane % 4, end = smaller(p.n, column + N);
#pragma unroll
    for (int h = 0; h < 2; h++) {
        const int r = row + lane / 4 + 8 * h;
        Out *const c = p.c + r * p.stride;
        const unsigned past = (unsigned)(uintptr_t)(c + column) % 16; // bytes, of every eight columns
        const int by = (unsigned)(uintptr_t)(c + column) % 32 / 16;   // threads
        unsigned last[4] = {}, held[4] = {};
#pragma unroll
        for (int j = 0; j <= N / 8; j += 4) { // at the end, the rest of the last eight
            unsigned w[4] = {}, before[4];
            if (j < N / 8) {
#pragma unroll
                for (int i = 0; i < 4; i++)
                    w[i] = pack<Out>(sum[4 * (j + i) + 2 * h], sum[4 * (j + i) + 2 * h + 1]);
                transpose_quad(w);
            }
#pragma unroll
            for (int i = 0; i < 4; i++) { // of the thread before, and of the last of them of the 32 columns before
                before[i] = __shfl_sync(all_lanes, quad == 3 ? last[i] : w[i], (quad + 3) % 4, 4);
                last[i] = w[i];
            }
            const uint4 own = make_uint4(w[0], w[1], w[2], w[3]);
            const uint4 eight =
                past ? bytes_from(make_uint4(before[0], before[1], before[2], before[3]), own, 16 - past) : own;
            unsigned words[4] = {eight.x, eight.y, eight.z, eight.w};
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const unsigned other = __shfl_sync(all_lanes, quad == 3 ? held[i] : words[i], (quad + 3) % 4, 4);
                held[i] = words[i];
                if (by) words[i] = other;
            }
            const int at = column + 8 * (j + quad - by) - (int)past / 2;
            if (r >= p.m || at >= end || (j == N / 8 && quad > by)) continue;
            if (at >= column && at + 8 <= end) {
                *reinterpret_cast<uint4 *>(c + at) = make_uint4(words[0], words[1], words[2], words[3]);
            } else {
#pragma unroll
                for (int e = 0; e < 8; e++)
                    if (at + e >= column && at + e < end)
                        reinterpret_cast<unsigned short *>(c)[at + e] = (unsigned short)(words[e / 2] >> e % 2 * 16);
            }
        }
    }
}

// Writes a tile of up to COLUMNS columns in 16-bit elements that the block's threads see, by words of 4 bytes. Rows of
// C begin anywhere: where a row begins between two words, its first and last elements are written alone.
// at(row, column) is an element in float32.
template <class T, int COLUMNS, int THREADS, class F>
VB_DEVICE void store_tile(T *c, int64_t stride, int rows, int columns, const F &at) {
    constexpr int across = COLUMNS / 2, apart = THREADS / across; // a thread has every few rows of the same columns
    static_assert(THREADS % across == 0, "whole rows");
    const int q = threadIdx.x % across * 2;
    T *to = c + threadIdx.x / across * stride;
#pragma unroll 4
    for (int r = threadIdx.x / across; r < rows; r += apart, to += apart * stride) {
        const int first = q - (int)((uintptr_t)to / sizeof(T) % 2); // of the word; -1 where half of it is the row's
        if (first >= 0 && first + 1 < columns) {
            *reinterpret_cast<unsigned *>(to + first) = pack<T>(at(r, first), at(r, first + 1));
        } else if (first < columns) {
            const int one = larger(first, 0);
            to[one] = from_float<T>(at(r, one));
        }
        if (q == 0 && first < 0 && columns == COLUMNS) to[COLUMNS - 1] = from_float<T>(at(r, COLUMNS - 1));
    }
}

} // namespace vb
#endif
