/* cpu_tmac.h: what the ways of cpu_tmac.c share. */
#ifndef VB_CPU_TMAC_H
#define VB_CPU_TMAC_H

#include <math.h>

#include "cpu.h"

/* The factor of the norm of column j. */
static inline float vb_tmac_norm_factor(const vb_tmac_matmul_args *a, int64_t j) {
    if (!a->normed) return 1.0f;
    double squares = 0;
    for (int64_t k = 0; k < a->k; k++) squares += (double)a->activations[k * a->n + j] * a->activations[k * a->n + j];
    return (float)(1.0 / sqrt(squares / (double)a->k + (double)a->eps));
}

/* Column j of the activations, normed: h[k]. Returns the greatest absolute value; NaN stays, since its bits are above
 * those of an infinity. */
static inline float vb_tmac_column(float *h, const vb_tmac_matmul_args *a, int64_t j) {
    const float factor = vb_tmac_norm_factor(a, j), *norm = a->normed ? a->norm : NULL;
    int32_t most = 0;
    if (a->n == 1)
        memcpy(h, a->activations, (size_t)a->k * 4);
    else
        for (int64_t k = 0; k < a->k; k++) h[k] = a->activations[k * a->n + j];
    for (int64_t k = 0; k < a->k && a->normed; k++) h[k] = h[k] * factor * (norm ? norm[k] : 1.0f);
    for (int64_t k = 0; k < a->k; k++) {
        const int32_t size = (int32_t)(vb_float_bits(h[k]) & 0x7fffffff);
        most = size > most ? size : most;
    }
    return vb_bits_float((uint32_t)most);
}

/* The product by int8 activations with a factor for each eight of them (cpu_tmac_scaled.c), with AVX2. Each group has
 * at least 16 bytes of a row. */
vb_status vb_cpu_tmac_scaled(const vb_tmac_matmul_args *args, vb_stream *stream);

#endif
