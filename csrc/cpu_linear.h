/* cpu_linear.h: products of quantized weights with activations rounded to int8, for processors with vector integers.
 *
 * Activations. x is rounded in groups of eight: int8 codes with one float scale. (Groups of 32, as in ggml's Q8_0, give
 * 0.55 % RMS error on Gaussian values, more than vibrant.h allows; groups of eight give 0.41 %, and with one scale for
 * two 32-bit lanes of a dot product they cost nothing extra.) Beside them lie the sums of each 16 rounded values: a
 * weight is scale * q - min with unsigned q, so the second term costs one multiply-add in 16 elements.
 *
 * Rows are padded with zeros to whole K-blocks of 256. */
#ifndef VB_CPU_LINEAR_H
#define VB_CPU_LINEAR_H

#include "cpu.h"

enum { VB_X_GROUP = 8, VB_X_SUM = 16 };

typedef struct vb_activations {
    int8_t *codes;  /* [n][stride] */
    float *scales;  /* [n][stride / 8] */
    float *sums;    /* [n][stride / 16] */
    int64_t stride; /* cols rounded up to a multiple of 256 */
} vb_activations;

typedef struct vb_linear_job {
    float *y;
    const float *x;
    vb_weight w;
    const float *bias; /* or NULL */
    int64_t n;
    int64_t row_bytes; /* of w */
    vb_simd simd;
    vb_activations q;
    char *scratch; /* of the workers */
    int64_t worker_bytes;
} vb_linear_job;

#if VB_X86
/* Whether there is vector code for the type. */
bool vb_cpu_linear_has_avx2(vb_dtype type);
bool vb_cpu_linear_has_avx512(vb_dtype type);

/* Rounds rows begin..end-1 of x. */
void vb_cpu_linear_round_avx2(const vb_linear_job *job, int64_t begin, int64_t end);

/* Computes outputs begin..end-1, for all rows of x: one by one, or by panels of rows (more work before the first). */
void vb_cpu_linear_rows_avx2(const vb_linear_job *job, int64_t begin, int64_t end);
void vb_cpu_linear_rows_avx512(const vb_linear_job *job, int64_t begin, int64_t end);
void vb_cpu_linear_panels_avx2(const vb_linear_job *job, char *scratch, int64_t begin, int64_t end);
void vb_cpu_linear_panels_avx512(const vb_linear_job *job, char *scratch, int64_t begin, int64_t end);
#endif

#endif
