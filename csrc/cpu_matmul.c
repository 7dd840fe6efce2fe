/* cpu_matmul.c: C = A B in float32.
 *
 * A thread takes a tile of C, 32 columns wide and up to 96 rows high. It copies 512 rows of these columns of B into a
 * panel (64 KiB, in the second-level cache) and runs groups of six rows of A past it: twelve vector accumulators, so that
 * one load of B and one broadcast of A feed six multiply-adds (Goto & van de Geijn 2008, with B's role as the packed
 * side). 16-bit operands are widened while they are copied. */
#include "cpu_matmul.h"

#if VB_X86
#include <immintrin.h>
#endif

enum { GROUP = 6, TILE_ROWS = 96, DEPTH = 512 };

/* ---- panel product -------------------------------------------------------------------------------------------------------- */

static void panel_rows_plain(float *out, const float *a, int64_t lda, const float *panel, int64_t m, int64_t k) {
    for (int64_t i = 0; i < m; i++) {
        float sums[VB_PANEL];
        memcpy(sums, out + i * VB_PANEL, sizeof sums);
        for (int64_t p = 0; p < k; p++) {
            float x = a[i * lda + p];
            for (int j = 0; j < VB_PANEL; j++) sums[j] += x * panel[p * VB_PANEL + j];
        }
        memcpy(out + i * VB_PANEL, sums, sizeof sums);
    }
}

#if VB_X86
/* m is a constant in each call, so that the sums are registers. */
VB_TARGET_AVX2 VB_INLINE void panel_rows_avx2_m(float *out, const float *a, int64_t lda, const float *panel, int m, int64_t k) {
    for (int half = 0; half < VB_PANEL; half += 16) {
        __m256 sum[GROUP][2];
#pragma GCC unroll 6
        for (int i = 0; i < m; i++) {
            sum[i][0] = _mm256_loadu_ps(out + i * VB_PANEL + half);
            sum[i][1] = _mm256_loadu_ps(out + i * VB_PANEL + half + 8);
        }
        for (int64_t p = 0; p < k; p++) {
            __m256 b0 = _mm256_load_ps(panel + p * VB_PANEL + half), b1 = _mm256_load_ps(panel + p * VB_PANEL + half + 8);
#pragma GCC unroll 6
            for (int i = 0; i < m; i++) {
                __m256 x = _mm256_broadcast_ss(a + i * lda + p);
                sum[i][0] = _mm256_fmadd_ps(x, b0, sum[i][0]);
                sum[i][1] = _mm256_fmadd_ps(x, b1, sum[i][1]);
            }
        }
#pragma GCC unroll 6
        for (int i = 0; i < m; i++) {
            _mm256_storeu_ps(out + i * VB_PANEL + half, sum[i][0]);
            _mm256_storeu_ps(out + i * VB_PANEL + half + 8, sum[i][1]);
        }
    }
}

VB_TARGET_AVX512 VB_INLINE void panel_rows_avx512_m(float *out, const float *a, int64_t lda, const float *panel, int m,
                                                    int64_t k) {
    __m512 sum[GROUP][2];
#pragma GCC unroll 6
    for (int i = 0; i < m; i++) {
        sum[i][0] = _mm512_loadu_ps(out + i * VB_PANEL);
        sum[i][1] = _mm512_loadu_ps(out + i * VB_PANEL + 16);
    }
    for (int64_t p = 0; p < k; p++) {
        __m512 b0 = _mm512_load_ps(panel + p * VB_PANEL), b1 = _mm512_load_ps(panel + p * VB_PANEL + 16);
#pragma GCC unroll 6
        for (int i = 0; i < m; i++) {
            __m512 x = _mm512_set1_ps(a[i * lda + p]);
            sum[i][0] = _mm512_fmadd_ps(x, b0, sum[i][0]);
            sum[i][1] = _mm512_fmadd_ps(x, b1, sum[i][1]);
        }
    }
#pragma GCC unroll 6
    for (int i = 0; i < m; i++) {
        _mm512_storeu_ps(out + i * VB_PANEL, sum[i][0]);
        _mm512_storeu_ps(out + i * VB_PANEL + 16, sum[i][1]);
    }
}

#define PANEL_ROWS(level, TARGET) \
    TARGET static void panel_rows_##level(float *out, const float *a, int64_t lda, const float *panel, int64_t m, int64_t k) { \
        for (; m >= GROUP; m -= GROUP, out += GROUP * VB_PANEL, a += GROUP * lda) \
            panel_rows_##level##_m(out, a, lda, panel, GROUP, k); \
        switch (m) { \
        case 5: panel_rows_##level##_m(out, a, lda, panel, 5, k); break; \
        case 4: panel_rows_##level##_m(out, a, lda, panel, 4, k); break; \
        case 3: panel_rows_##level##_m(out, a, lda, panel, 3, k); break; \
        case 2: panel_rows_##level##_m(out, a, lda, panel, 2, k); break; \
        case 1: panel_rows_##level##_m(out, a, lda, panel, 1, k); break; \
        } \
    }
PANEL_ROWS(avx2, VB_TARGET_AVX2)
PANEL_ROWS(avx512, VB_TARGET_AVX512)
#endif

void vb_cpu_panel_product(float *out, const float *a, int64_t lda, const float *panel, int64_t m, int64_t k, vb_simd simd) {
    switch (simd) {
#if VB_X86
    case VB_SIMD_AVX512: panel_rows_avx512(out, a, lda, panel, m, k); return;
    case VB_SIMD_AVX2: panel_rows_avx2(out, a, lda, panel, m, k); return;
#endif
    default: panel_rows_plain(out, a, lda, panel, m, k);
    }
}

/* Strips of 16 columns of the source: each is a cache line of every row. */
VB_INLINE void transpose_body(float *panel, const float *rows, int64_t ld, int64_t n, int64_t k) {
    enum { STRIP = 16 };
    for (int64_t p = 0; p < k; p += STRIP) {
        int64_t width = vb_min(STRIP, k - p);
        for (int64_t j = 0; j < n; j++)
            for (int64_t q = 0; q < width; q++) panel[(p + q) * VB_PANEL + j] = rows[j * ld + p + q];
        for (int64_t j = n; j < VB_PANEL; j++)
            for (int64_t q = 0; q < width; q++) panel[(p + q) * VB_PANEL + j] = 0;
    }
}

VB_TWINS(transpose, (float *panel, const float *rows, int64_t ld, int64_t n, int64_t k), (panel, rows, ld, n, k));

void vb_cpu_panel_transpose(float *panel, const float *rows, int64_t ld, int64_t n, int64_t k, vb_simd simd) {
    transpose[simd](panel, rows, ld, n, k);
}

/* ---- matmul ------------------------------------------------------------------------------------------------------------------ */

typedef struct matmul_job {
    void *c;
    const float *a; /* widened where the type is not F32 */
    const void *b;
    vb_dtype type;
    vb_simd simd;
    int64_t m, k, n, tile_rows, tiles; /* tiles: of rows */
    float *scratch;                    /* a worker: a panel and a tile of sums */
} matmul_job;

enum { WORKER_FLOATS = DEPTH * VB_PANEL + TILE_ROWS * VB_PANEL };

static void matmul_range(void *context, int worker, int64_t begin, int64_t end) {
    const matmul_job *j = context;
    float *panel = j->scratch + (int64_t)worker * WORKER_FLOATS, *sums = panel + DEPTH * VB_PANEL;
    for (int64_t item = begin; item < end; item++) {
        int64_t col = item / j->tiles * VB_PANEL, width = vb_min(VB_PANEL, j->n - col);
        int64_t row = item % j->tiles * j->tile_rows, height = vb_min(j->tile_rows, j->m - row);
        memset(sums, 0, (size_t)(height * VB_PANEL) * 4);
        for (int64_t p = 0; p < j->k; p += DEPTH) {
            int64_t depth = vb_min(DEPTH, j->k - p);
            for (int64_t q = 0; q < depth; q++) {
                vb_cpu_load(panel + q * VB_PANEL, vb_at(j->b, j->type, (p + q) * j->n + col), j->type, width, j->simd);
                for (int64_t i = width; i < VB_PANEL; i++) panel[q * VB_PANEL + i] = 0;
            }
            vb_cpu_panel_product(sums, j->a + row * j->k + p, j->k, panel, height, depth, j->simd);
        }
        for (int64_t i = 0; i < height; i++)
            vb_cpu_store((void *)vb_at(j->c, j->type, (row + i) * j->n + col), sums + i * VB_PANEL, j->type, width, j->simd);
    }
}

vb_status vb_cpu_matmul(void *c, const void *a, const void *b, vb_dtype type, int64_t m, int64_t k, int64_t n,
                        vb_stream *stream) {
    if (m == 1) return vb_cpu_matmul_single_row(c, a, b, type, k, n, stream);
    vb_cpu_device *device = vb_cpu_device_of(stream);
    int threads = vb_cpu_pool_threads(device->pool);
    int64_t panels = (n + VB_PANEL - 1) / VB_PANEL;
    matmul_job job = {.c = c, .a = a, .b = b, .type = type, .simd = device->simd, .m = m, .k = k, .n = n};
    job.tile_rows = panels >= 4 * (int64_t)threads ? TILE_ROWS : 4 * GROUP;
    job.tiles = (m + job.tile_rows - 1) / job.tile_rows;
    int64_t floats = WORKER_FLOATS * (int64_t)threads, wide = type == VB_F32 ? 0 : m * k;
    if (floats + wide > INT64_MAX / 4) return VB_OUT_OF_MEMORY;
    job.scratch = vb_cpu_scratch(stream, (floats + wide) * 4);
    if (!job.scratch) return VB_OUT_OF_MEMORY;
    if (wide > 0) {
        vb_status s = vb_cpu_convert(job.scratch + floats, VB_F32, a, type, wide, stream);
        if (s != VB_OK) return s;
        job.a = job.scratch + floats;
    }
    vb_cpu_parallel(stream, panels * job.tiles, 1, matmul_range, &job);
    return VB_OK;
}

/* ---- one row: bound by reading B --------------------------------------------------------------------------------------------- */

enum { STRIP = 1024, ROWS_AT_ONCE = 4 };

VB_INLINE void add_rows_body(float *sums, const float *x, const float *b, int64_t ld, int64_t n) {
    for (int64_t j = 0; j < n; j++)
        sums[j] += (x[0] * b[j] + x[1] * b[ld + j]) + (x[2] * b[2 * ld + j] + x[3] * b[3 * ld + j]);
}

VB_TWINS(add_rows, (float *sums, const float *x, const float *b, int64_t ld, int64_t n), (sums, x, b, ld, n));

static void single_row_range(void *context, int worker, int64_t begin, int64_t end) {
    (void)worker;
    const matmul_job *j = context;
    float sums[STRIP], wide[ROWS_AT_ONCE * STRIP], x[ROWS_AT_ONCE];
    for (int64_t col = begin; col < end; col += STRIP) {
        int64_t n = vb_min(STRIP, end - col);
        memset(sums, 0, (size_t)n * 4);
        for (int64_t p = 0; p < j->k; p += ROWS_AT_ONCE) {
            int64_t rows = vb_min(ROWS_AT_ONCE, j->k - p), ld = j->n;
            const float *b = vb_at(j->b, j->type, p * j->n + col);
            vb_cpu_load(x, vb_at(j->a, j->type, p), j->type, rows, j->simd);
            if (j->type != VB_F32 || rows < ROWS_AT_ONCE) {
                for (int64_t q = 0; q < rows; q++)
                    vb_cpu_load(wide + q * n, vb_at(j->b, j->type, (p + q) * j->n + col), j->type, n, j->simd);
                for (int64_t q = rows; q < ROWS_AT_ONCE; q++) {
                    x[q] = 0;
                    memset(wide + q * n, 0, (size_t)n * 4);
                }
                b = wide;
                ld = n;
            }
            add_rows[j->simd](sums, x, b, ld, n);
        }
        vb_cpu_store((void *)vb_at(j->c, j->type, col), sums, j->type, n, j->simd);
    }
}

vb_status vb_cpu_matmul_single_row(void *c, const void *a, const void *b, vb_dtype type, int64_t k, int64_t n,
                                   vb_stream *stream) {
    vb_cpu_device *device = vb_cpu_device_of(stream);
    matmul_job job = {.c = c, .a = a, .b = b, .type = type, .simd = device->simd, .k = k, .n = n};
    int64_t share = (n / (2 * vb_cpu_pool_threads(device->pool)) + 63) / 64 * 64;
    vb_cpu_parallel(stream, n, vb_min(vb_max(share, 64), STRIP), single_row_range, &job);
    return VB_OK;
}
