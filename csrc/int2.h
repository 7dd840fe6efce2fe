/* int2.h: where elements lie in VB_INT2_INTERLEAVED, for the library and its kernels. Plain C and CUDA. Not
 * installed. */
#ifndef VB_INT2_H
#define VB_INT2_H

#include "vibrant.h"

enum {
    VB_INT2_PIECE = 64,                 /* elements of 16 bytes */
    VB_INT2_RUN = 8 * VB_INT2_PIECE,    /* elements whose words are interleaved */
    VB_INT2_MOST_K = 1 << 22            /* 3 * 128 * k fits int32 */
};

/* The number of pieces in the run of element k: 8, or fewer at the end of a row of K elements. */
static inline int64_t vb_int2_run_pieces(int64_t k, int64_t K) {
    const int64_t left = (K + VB_INT2_PIECE - 1) / VB_INT2_PIECE - k / VB_INT2_RUN * 8;
    return left < 8 ? left : 8;
}

/* The byte of a row of K elements, and the bit in it, where element k lies. */
static inline int64_t vb_int2_byte(int64_t k, int64_t K) {
    const int64_t pieces = vb_int2_run_pieces(k, K), word = k % VB_INT2_RUN / 16;
    return k / VB_INT2_RUN * 128 + word % pieces * 16 + word / pieces * 4 + k % 4;
}
static inline int vb_int2_shift(int64_t k) { return (int)(k % 16 / 4 * 2); }

#endif
