/* cpu_tmac.h: what the ways of cpu_tmac.c share. */
#ifndef VB_CPU_TMAC_H
#define VB_CPU_TMAC_H

#include <math.h>

#include "cpu.h"

#if VB_X86
#include <immintrin.h>
#endif

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

enum { VB_TMAC_TAKEN = 4 }; /* columns that are taken at a time */

/* h[c][k] = columns column + c of the activations, normed. So many rows of these at a time stay in a cache. */
static inline void vb_tmac_take(float *h, const vb_tmac_matmul_args *a, int64_t column, int64_t columns) {
    enum { NEAR = 64 };
    const float *const x = a->activations + column;
    if (a->n == 1)
        memcpy(h, x, (size_t)a->k * 4);
    else
        for (int64_t near = 0; near < a->k; near += NEAR) {
            const int64_t behind = vb_min(near + NEAR, a->k);
            int64_t c = 0;
#if VB_X86
            for (; c + 4 <= columns; c += 4) {
                int64_t k = near;
                for (; k + 4 <= behind; k += 4) {
                    __m128 row[4];
                    for (int i = 0; i < 4; i++) row[i] = _mm_loadu_ps(x + (k + i) * a->n + c);
                    _MM_TRANSPOSE4_PS(row[0], row[1], row[2], row[3]);
                    for (int i = 0; i < 4; i++) _mm_storeu_ps(h + (c + i) * a->k + k, row[i]);
                }
                for (; k < behind; k++)
                    for (int i = 0; i < 4; i++) h[(c + i) * a->k + k] = x[k * a->n + c + i];
            }
#endif
            for (int64_t k = near; k < behind; k++)
                for (int64_t i = c; i < columns; i++) h[i * a->k + k] = x[k * a->n + i];
        }
    for (int64_t c = 0; c < columns; c++) vb_tmac_norm(h + c * a->k, a);
}

/* How many columns a thread takes at a time: some thousand elements, and no more than its part of all. */
static inline int64_t vb_tmac_share(const vb_tmac_matmul_args *a, int64_t threads) {
    return vb_max(vb_min(VB_TMAC_TAKEN, (a->n + threads - 1) / threads), 4096 / vb_max(a->k, 1));
}

/* The product by int8 activations with a factor for each eight of them (cpu_tmac_scaled.c), with AVX2. Each group has
 * at least 16 bytes of a row. */
vb_status vb_cpu_tmac_scaled(const vb_tmac_matmul_args *args, vb_stream *stream);

/* The product by looking up words of 16 bits (cpu_tmac_words.c), with AVX-512 VBMI. There is one group. */
vb_status vb_cpu_tmac_words(const vb_tmac_matmul_args *args, vb_stream *stream);

#endif
