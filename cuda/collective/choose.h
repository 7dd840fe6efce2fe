/* choose.h: which kernel runs for a collective. Pure functions; plain C. cuda/README.md has the map, choose_test.h the
 * test. */
#ifndef VB_COLLECTIVE_CHOOSE_H
#define VB_COLLECTIVE_CHOOSE_H

#include "runtime/chooser.h"

#define COLLECTIVE_KERNELS(X)                                                                                          \
    X(COLLECTIVE_REDUCE_SMALL, "all_reduce_small", "collective/exchange.cu", "all_reduce of up to 512 KiB a rank")     \
    X(COLLECTIVE_REDUCE_LARGE, "all_reduce_large", "collective/exchange.cu", "all_reduce of more, in chunks")          \
    X(COLLECTIVE_REDUCE_ROUNDED, "all_reduce_rounded", "collective/rounded.cu",                                        \
      "all_reduce of more than 128 KiB where summands may be rounded, whole vectors of 8")                             \
    X(COLLECTIVE_REDUCE_COLUMNS, "all_reduce_columns", "collective/columns.cu",                                        \
      "all_reduce of 4 MiB a rank and more before a norm, by columns of each rank, on GPUs of their own")              \
    X(COLLECTIVE_PRODUCTS_N1, "all_reduce_products_n1", "linear/packed/n1_sum.cu",                                     \
      "the sum of packed_n1 over ranks on GPUs of their own")                                                          \
    X(COLLECTIVE_GATHER_SMALL, "all_gather_small", "collective/exchange.cu", "all_gather of up to 512 KiB a rank")     \
    X(COLLECTIVE_GATHER_LARGE, "all_gather_large", "collective/exchange.cu", "all_gather of more, in chunks")
VB_KERNEL_FAMILY(collective, COLLECTIVE, COLLECTIVE_KERNELS)

/* Floats of a rank that a mailbox of flagged words holds. */
enum { COLLECTIVE_SMALL = 1 << 17 };

/* Floats of a rank beyond which rounded words are faster than flagged ones, where they are permitted. */
enum { COLLECTIVE_EXACT = 1 << 15 };

/* Floats of a rank from which a second crossing takes less time than what it spares. */
enum { COLLECTIVE_COLUMNS = 1 << 20 };

/* Floats that a letter of a single row holds. */
enum { COLLECTIVE_ROW = 1 << 15 };

/* n is the floats of a rank; rounded says that they may be rounded, and are whole vectors of 8. */
static inline collective_kernel choose_all_reduce(int64_t n, bool rounded) {
    if (rounded && n > COLLECTIVE_EXACT) return COLLECTIVE_REDUCE_ROUNDED;
    return n <= COLLECTIVE_SMALL ? COLLECTIVE_REDUCE_SMALL : COLLECTIVE_REDUCE_LARGE;
}
/* A sum of n floats in rows of cols, before a norm. apart: no two ranks share a GPU. It depends on nothing else: of one
 * prompt, all sums of rows choose alike. */
static inline collective_kernel choose_sum_of_columns(int64_t n, int64_t cols, bool apart) {
    return apart && cols % 128 == 0 && n >= COLLECTIVE_COLUMNS ? COLLECTIVE_REDUCE_COLUMNS : COLLECTIVE_NONE;
}
/* A sum of products of one row. packed_n1: each rank's kernel is packed_n1. apart: no two ranks share a GPU.
 * On a shared GPU, blocks that wait could leave no room for the blocks that they wait for. */
static inline collective_kernel choose_sum_of_products(int64_t rows, bool packed_n1, bool apart) {
    return packed_n1 && apart && rows <= COLLECTIVE_ROW ? COLLECTIVE_PRODUCTS_N1 : COLLECTIVE_NONE;
}
/* `most` is the greatest number of floats of any rank. */
static inline collective_kernel choose_all_gather(int64_t most) {
    return most <= COLLECTIVE_SMALL ? COLLECTIVE_GATHER_SMALL : COLLECTIVE_GATHER_LARGE;
}

#endif
