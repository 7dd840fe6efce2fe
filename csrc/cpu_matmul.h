/* cpu_matmul.h: the float32 inner product of cpu_matmul.c, which linear layers use too. */
#ifndef VB_CPU_MATMUL_H
#define VB_CPU_MATMUL_H

#include "cpu.h"

/* A panel is a [k][VB_PANEL] float matrix, contiguous and aligned to 64 bytes. */
enum { VB_PANEL = 32 };

/* out[m][VB_PANEL] += a[m][k] panel[k][VB_PANEL]; rows of a are lda floats apart. */
void vb_cpu_panel_product(float *out, const float *a, int64_t lda, const float *panel, int64_t m, int64_t k,
                          vb_simd simd);

/* Makes a panel from n <= VB_PANEL rows of k floats (ld apart), as its columns; the rest become zeros. */
void vb_cpu_panel_transpose(float *panel, const float *rows, int64_t ld, int64_t n, int64_t k, vb_simd simd);

#endif
