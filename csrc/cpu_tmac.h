/* cpu_tmac.h: what the ways of cpu_tmac.c share. */
#ifndef VB_CPU_TMAC_H
#define VB_CPU_TMAC_H

#include <math.h>

#include "cpu.h"

/* The factor of the norm of a column whose elements lie `stride` apart. */
static inline float vb_tmac_norm_factor(const vb_tmac_matmul_args *a, const float *x, int64_t stride) {
    if (!a->normed) return 1.0f;
    double squares = 0;
    for (int64_t k = 0; k < a->k; k++) squares += (double)x[k * stride] * x[k * stride];
    return (float)(1.0 / sqrt(squares / (double)a->k + (double)a->eps));
}

/* Norms a column h[k], where that is asked for. */
static inline void vb_tmac_norm(float *h, const vb_tmac_matmul_args *a) {
    if (!a->normed) return;
    const float factor = vb_tmac_norm_factor(a, h, 1), *norm = a->norm;
    for (int64_t k = 0; k < a->k; k++) h[k] = h[k] * factor * (norm ? norm[k] : 1.0f);
}

/* The greatest absolute value of x[n]; NaN stays, since its bits are above those of an infinity. */
static inline float vb_tmac_greatest(const float *x, int64_t n) {
    int32_t most = 0;
    for (int64_t i = 0; i < n; i++) {
        const int32_t size = (int32_t)(vb_float_bits(x[i]) & 0x7fffffff);
        most = size > most ? size : most;
    }
    return vb_bits_float((uint32_t)most);
}

/* h[c][k] = columns column + c of the activations, not normed. Threads share the rows of [k][n], of which a line has
 * elements of many columns. */
void vb_cpu_tmac_take(float *h, const vb_tmac_matmul_args *a, int64_t column, int64_t columns, vb_stream *stream);

/* How many columns a thread rounds at a time: some thousand elements. */
static inline int64_t vb_tmac_share(const vb_tmac_matmul_args *a) { return vb_max(1, 4096 / vb_max(a->k, 1)); }

/* The product by int8 activations with a factor for each eight of them (cpu_tmac_scaled.c), with AVX2. Each group has
 * at least 16 bytes of a row. */
vb_status vb_cpu_tmac_scaled(const vb_tmac_matmul_args *args, vb_simd simd, vb_stream *stream);

/* The product by looking up words of 16 bits (cpu_tmac_words.c), with AVX-512 VBMI. There is one group. */
vb_status vb_cpu_tmac_words(const vb_tmac_matmul_args *args, vb_stream *stream);

#endif
