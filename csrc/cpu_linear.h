/* cpu_linear.h: products of quantized weights with activations rounded to int8, for processors with vector integers.
 *
 * Activations are rounded in groups of eight: int8 codes with one float scale. (Groups of 32, as in ggml's Q8_0, give
 * 0.55 % RMS error on Gaussian values, more than vibrant.h allows. Groups of eight give 0.41 % and cost no more: a
 * scale serves two of the 32-bit lanes that an integer dot product ends in.)
 *
 * Weights of every type are read as scale * q - min with unsigned codes q, in chunks of 256 elements with a scale and a
 * min for each 16. The signed types become unsigned by an offset, which goes into min. The second term needs only the
 * sum of 16 activations: one multiply-add for a whole vector of codes. The sums are of the rounded activations, so that
 * what rounding adds to one term it takes from the other.
 *
 * For one row of x the codes of a weight row are unpacked in registers (rows). For many rows of x, 16 or 8 weight rows
 * are unpacked and transposed, so that a vector lane is a weight row: an integer dot product then runs along the lane,
 * and scales are applied once in eight elements for all rows of the vector (panels). */
#ifndef VB_CPU_LINEAR_H
#define VB_CPU_LINEAR_H

#include "cpu.h"

enum { VB_CHUNK = 256, VB_GROUP = 8 };

/* 256 rounded activations of one row of x; eight cache lines. */
typedef struct vb_x_chunk {
    int8_t codes[VB_CHUNK];
    float scales[VB_CHUNK / VB_GROUP];
    float sums[VB_CHUNK / 16]; /* of 16 and of 32 rounded values */
    float sums32[VB_CHUNK / 32];
    float padding[8];
} vb_x_chunk;

typedef struct vb_linear_job {
    float *y;
    const float *x;
    vb_weight w;
    const float *bias; /* or NULL */
    int64_t n;
    int64_t row_bytes, chunk_bytes, block_bytes; /* of w */
    int64_t chunks;                              /* of a row, the last one padded with zeros */
    vb_x_chunk *q;     /* [chunks][n] */
    const int64_t *places; /* the rows of y, for each row of x; NULL: 0, 1, ... */
    const uint8_t *order; /* of the groups of q (vb_linear_code), or NULL */
    vb_simd simd;
    char *scratch; /* of the workers */
    int64_t worker_bytes;
} vb_linear_job;

/* Bytes that a panel needs of a worker's scratch, and how many rows of x share a panel at most. */
enum {
    VB_PANEL_ROWS_OF_X = 256,
    VB_PANEL_SCRATCH = 16 * VB_CHUNK + 2 * 16 * 16 * 4 + VB_PANEL_ROWS_OF_X * 16 * 4 + 4096
};

VB_INLINE float *vb_y_at(const vb_linear_job *j, int64_t i, int64_t r) {
    return j->y + (j->places ? j->places[i] : i) * j->w.rows + r;
}

/* vb_expert_linear of one token; and of several, whose choices are `order` by expert: those of e end at ends[e]. */
vb_status vb_cpu_linear_choices(const vb_expert_linear_args *args, vb_stream *stream);
vb_status vb_cpu_linear_experts(const vb_expert_linear_args *args, const int64_t *order, const int64_t *ends,
                                vb_stream *stream);

#if VB_X86
/* Rounds x for chunks begin..end-1 of [chunks][n]. */
void vb_cpu_linear_round(const vb_linear_job *job, int64_t begin, int64_t end);

/* How a processor multiplies weights of one type; all 0 for a type without vector code. */
typedef struct vb_linear_code {
    int lanes;          /* rows of a panel */
    size_t panel_bytes; /* a multiple of its alignment of 64 */
    /* outputs begin..end-1 for all rows of x */
    void (*rows)(const vb_linear_job *job, int64_t begin, int64_t end);
    /* The groups of x as `rows` takes them, or NULL: as they are. With g = order[i], lane i < 16 has word 2g of the
     * codes in the first 64 bytes, word 2g + 1 in the next 64, and scale g; lanes 16 to 31 follow. */
    const uint8_t *order; /* [32] */
    /* panel of rows r..r+n-1, chunk c */
    void (*panel)(void *panel, const vb_linear_job *job, int64_t r, int n, int64_t c);
    /* sums[n][lanes] += panel times n rows of x */
    void (*times)(float *sums, const void *panel, const vb_x_chunk *x, int64_t n);
} vb_linear_code;

/* Rows for AVX-512 that take x in an order of the type's; all 0 for types without. */
typedef struct vb_linear_rows {
    void (*rows)(const vb_linear_job *job, int64_t begin, int64_t end);
    const uint8_t *order;
} vb_linear_rows;

vb_linear_rows vb_cpu_linear_rows_k(vb_dtype type);

vb_linear_code vb_cpu_linear_code_avx2(vb_dtype type);
vb_linear_code vb_cpu_linear_code_avx512(vb_dtype type);

/* A core reads memory at full speed only if it asks far ahead, and its own look-ahead ends after two or three chunks.
 * So the same place of a later group of rows is fetched, the first that is at least 8 KiB on. The second level has more
 * misses under way than the first: matrices beyond the third take two thirds of the time on an EPYC.
 * Fetching past the end of the matrix does no harm. */
VB_INLINE int64_t vb_bytes_ahead(const vb_linear_job *j, int64_t rows) {
    enum { LEAST = 8 << 10 };
    const int64_t group = rows * j->row_bytes;
    return (LEAST + group - 1) / group * group;
}
VB_INLINE void vb_fetch(const char *p, int64_t bytes) {
#pragma GCC unroll 5
    for (int64_t k = 0; k < bytes; k += 64) __builtin_prefetch(p + k, 0, 2); /* to the second level */
}

/* Asks for chunk c of a weight row of the next panel. */
VB_INLINE void vb_fetch_panel(const vb_linear_job *j, int64_t row, int64_t c) {
    vb_fetch((const char *)j->w.data + row * j->row_bytes + c * j->chunk_bytes, j->chunk_bytes);
}
#endif

/* Where chunk c of weight row r lies. Types of smaller blocks may end in part of a chunk (`live` of its 16 scales
 * count); reading a whole chunk there is harmless, since the activations beyond are zero, except past the end of the
 * matrix: there the blocks are copied to `copy`. */
VB_INLINE const void *vb_chunk_at(const vb_linear_job *j, int64_t r, int64_t c, char *copy, int *live) {
    int64_t bytes = j->chunk_bytes;
    const char *row = (const char *)j->w.data + r * j->row_bytes, *at = row + c * bytes;
    int64_t left = j->row_bytes - c * bytes;
    *live = 16;
    if (left >= bytes) return at;
    *live = (int)(left / j->block_bytes) * (int)(vb_dtype_block_size(j->w.type) / 16);
    const char *end = (const char *)j->w.data + j->w.rows * j->row_bytes;
    if (end - at >= bytes) return at;
    memset(copy, 0, (size_t)bytes);
    return memcpy(copy, at, (size_t)left);
}

enum { VB_CHUNK_COPY = 272 }; /* the largest chunk of a 32-element type: eight blocks of Q8_0 */

#endif
