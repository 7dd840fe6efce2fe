/* choose.h: which kernel runs for ternary weights, and how. Pure functions; plain C. cuda/README.md has the map,
 * choose_test.h the test. */
#ifndef VB_TERNARY_CHOOSE_H
#define VB_TERNARY_CHOOSE_H

#include "int2.h"
#include "runtime/chooser.h"

#define TERNARY_KERNELS(X)                                                                                             \
    X(TERNARY_GEMV, "w2a8_gemv", "ternary/w2a8_gemv.cu", "w2a8_gemv of up to 4 rows, interleaved weights")             \
    X(TERNARY_WORDS, "w2a8_words", "ternary/w2a8_any.cu", \
      "w2a8_gemv by words of 4 bytes: other layouts, narrow reads") \
    X(TERNARY_BYTES, "w2a8_bytes", "ternary/w2a8_any.cu", "w2a8_gemv by bytes: rows, or activations, not aligned")     \
    X(TERNARY_MMA_16, "w2a8_mma_16", "ternary/w2a8_mma.cu", "w2a8_gemv of 5 to 16 rows, int8 tensor cores (7.5)")      \
    X(TERNARY_MMA_MANY, "w2a8_mma_many", "ternary/w2a8_mma.cu", "w2a8_gemv of more rows (7.5)")                        \
    X(TERNARY_QUANTIZE, "norm_quantize", "ternary/quantize.cu", "norm_quantize of rows that fit registers")            \
    X(TERNARY_QUANTIZE_WIDE, "norm_quantize_wide", "ternary/quantize.cu", "norm_quantize of wider rows")               \
    X(TERNARY_DEQUANTIZE, "dequantize_rows", "ternary/quantize.cu", "dequantize_rows")                                 \
    X(TERNARY_LUT, "tmac_lut", "ternary/tmac.cu", "tmac_lut")                                                          \
    X(TERNARY_TMAC, "tmac_matmul", "ternary/tmac.cu", "tmac_matmul, tables built in shared memory")                    \
    X(TERNARY_TMAC_TABLE, "tmac_matmul_table", "ternary/tmac.cu", "tmac_matmul with a table that is given")
VB_KERNEL_FAMILY(ternary, TERNARY, TERNARY_KERNELS)

enum { TERNARY_FEW = 4, TERNARY_QUANTIZE_THREADS = 512, TERNARY_QUANTIZE_ITEMS = 16 };

typedef struct ternary_choice {
    ternary_kernel kernel;
    int threads, lanes, tile; /* of TERNARY_GEMV */
    int64_t blocks;           /* of TERNARY_GEMV */
} ternary_choice;

static inline ternary_choice choose_w2a8_gemv(const vb_w2a8_gemv_args *a, const vb_gpu *gpu) {
    ternary_choice c = {TERNARY_NONE, 0, 0, 0, 0};
    const int words = vb_aligned16(a->activations) && (uintptr_t)a->weights % 4 == 0 && a->row_bytes % 4 == 0 &&
        a->k % 16 == 0;
    const int pieces = words && vb_aligned16(a->weights) && a->layout == VB_INT2_INTERLEAVED;
    if (vb_ceil_div(a->n, 4) > INT32_MAX || a->m > INT32_MAX) return c;
    if (pieces && a->m > TERNARY_FEW && gpu->capability >= 75) {
        c.kernel = a->m <= 16 ? TERNARY_MMA_16 : TERNARY_MMA_MANY;
        return c;
    }
    if (!pieces || a->narrow) {
        c.kernel = words ? TERNARY_WORDS : TERNARY_BYTES;
        return c;
    }
    c.kernel = TERNARY_GEMV;
    c.threads = a->threads ? (int)a->threads : 128;
    /* As few lanes a row as leave every multiprocessor 512 threads: then the reads in flight cover the memory's
     * latency. */
    const int64_t wanted = (int64_t)gpu->multiprocessors * 512;
    c.lanes = a->lanes ? (int)a->lanes : a->n * 8 >= wanted ? 8 : a->n * 16 >= wanted ? 16 : 32;
    if (c.lanes == 8 && a->k > 1 << 21) c.lanes = 16; /* or a lane's sum of 64 times a code would pass int32 */
    c.tile = a->tile ? (int)a->tile : a->n * c.lanes >= 4 * wanted ? 2 : 1;
    if (a->without_dp4a) c.lanes = 32, c.tile = 1;
    const int64_t rows = (int64_t)c.threads / c.lanes * c.tile,
        resident = (int64_t)gpu->multiprocessors * (1024 / c.threads);
    c.blocks = vb_ceil_div(a->n, rows);
    if (a->persistent && c.blocks > resident) c.blocks = resident;
    return c;
}

static inline ternary_kernel choose_norm_quantize(int64_t rows, int64_t cols) {
    if (rows > INT32_MAX) return TERNARY_NONE;
    return cols <= TERNARY_QUANTIZE_THREADS * TERNARY_QUANTIZE_ITEMS ? TERNARY_QUANTIZE : TERNARY_QUANTIZE_WIDE;
}

/* Bytes of a row whose tables are in shared memory, and rows that look there. */
enum { TERNARY_SLICE = 32, TERNARY_SLICE_ROWS = 1024 };

/* Slices of a row of so many bytes: each lies in one group. */
static inline int64_t tmac_group_bytes(const vb_tmac_matmul_args *a) {
    const int64_t bytes = vb_ceil_div(vb_ceil_div(a->k, 4), a->groups);
    return bytes > 0 ? bytes : 1;
}
static inline int64_t tmac_slices(const vb_tmac_matmul_args *a) {
    return a->k == 0 ? 0 : vb_ceil_div(tmac_group_bytes(a), TERNARY_SLICE) * a->groups;
}
static inline ternary_kernel choose_tmac_matmul(const vb_tmac_matmul_args *a) {
    if (a->n > 65535 || tmac_slices(a) > 65535 || vb_ceil_div(a->m, TERNARY_SLICE_ROWS) > INT32_MAX)
        return TERNARY_NONE;
    return a->lut ? TERNARY_TMAC_TABLE : TERNARY_TMAC;
}

#endif
