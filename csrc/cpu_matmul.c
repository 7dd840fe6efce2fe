/* cpu_matmul.c: C = A B in float32, of matrices stored with any strides, transposed or not.
 *
 * A thread takes a tile of C, 32 columns wide and up to 96 rows high. It copies 512 rows of these columns of B into a
 * panel (64 KiB, in the second-level cache), and runs groups of six rows of A past it. There are twelve vector
 * accumulators, so that one load of B and one broadcast of A feed six multiply-adds (Goto & van de Geijn 2008, with B's
 * role as the packed side). Copying widens 16-bit operands and turns transposed operands; A is copied as a whole
 * then. */
#include "cpu_matmul.h"

#if VB_X86
#include <immintrin.h>
#endif

enum { GROUP = 6, TILE_ROWS = 96, DEPTH = 512 };

/* ---- panel product ----------------------------------------------------------------------------------------------- */

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
VB_TARGET_AVX2 VB_INLINE void panel_rows_avx2_m(float *out, const float *a, int64_t lda, const float *panel, int m,
                                                int64_t k) {
    for (int half = 0; half < VB_PANEL; half += 16) {
        __m256 sum[GROUP][2];
#pragma GCC unroll 6
        for (int i = 0; i < m; i++) {
            sum[i][0] = _mm256_loadu_ps(out + i * VB_PANEL + half);
            sum[i][1] = _mm256_loadu_ps(out + i * VB_PANEL + half + 8);
        }
        for (int64_t p = 0; p < k; p++) {
            __m256 b0 = _mm256_load_ps(panel + p * VB_PANEL + half),
                   b1 = _mm256_load_ps(panel + p * VB_PANEL + half + 8);
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
    TARGET static void panel_rows_##level(float *out, const float *a, int64_t lda, const float *panel, int64_t m, \
                                          int64_t k) { \
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

void vb_cpu_panel_product(float *out, const float *a, int64_t lda, const float *panel, int64_t m, int64_t k,
                          vb_simd simd) {
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

/* ---- matmul ------------------------------------------------------------------------------------------------------ */

typedef struct matmul_job {
    void *c;
    const float *a; /* [m] rows of k, a_stride apart: widened and turned where they are stored otherwise */
    const void *b;
    vb_dtype type;
    vb_simd simd;
    int64_t m, k, n, a_stride, b_stride, c_stride;
    int b_transposed;
    int64_t tile_rows, tiles, worker_floats; /* tiles: of rows */
    /* a worker: a panel, a tile of sums, and columns of a transposed 16-bit B */
    float *scratch;
} matmul_job;

enum { PANEL_FLOATS = DEPTH * VB_PANEL, SUM_FLOATS = TILE_ROWS * VB_PANEL };

/* Rows p .. p + depth - 1 and columns col .. col + width - 1 of B as a panel. */
static void load_panel(const matmul_job *j, float *panel, float *columns, int64_t p, int64_t depth, int64_t col,
                       int64_t width) {
    if (!j->b_transposed) {
        for (int64_t q = 0; q < depth; q++) {
            vb_cpu_load(panel + q * VB_PANEL, vb_at(j->b, j->type, (p + q) * j->b_stride + col), j->type, width,
                        j->simd);
            for (int64_t i = width; i < VB_PANEL; i++) panel[q * VB_PANEL + i] = 0;
        }
        return;
    }
    const float *rows = vb_at(j->b, j->type, col * j->b_stride + p);
    int64_t stride = j->b_stride;
    if (j->type != VB_F32) {
        for (int64_t i = 0; i < width; i++)
            vb_cpu_load(columns + i * DEPTH, vb_at(j->b, j->type, (col + i) * j->b_stride + p), j->type, depth,
                        j->simd);
        rows = columns;
        stride = DEPTH;
    }
    vb_cpu_panel_transpose(panel, rows, stride, width, depth, j->simd);
}

static void matmul_range(void *context, int worker, int64_t begin, int64_t end) {
    const matmul_job *j = context;
    float *panel = j->scratch + (int64_t)worker * j->worker_floats, *sums = panel + PANEL_FLOATS,
          *columns = sums + SUM_FLOATS;
    for (int64_t item = begin; item < end; item++) {
        int64_t col = item / j->tiles * VB_PANEL, width = vb_min(VB_PANEL, j->n - col);
        int64_t row = item % j->tiles * j->tile_rows, height = vb_min(j->tile_rows, j->m - row);
        memset(sums, 0, (size_t)(height * VB_PANEL) * 4);
        for (int64_t p = 0; p < j->k; p += DEPTH) {
            int64_t depth = vb_min(DEPTH, j->k - p);
            load_panel(j, panel, columns, p, depth, col, width);
            vb_cpu_panel_product(sums, j->a + row * j->a_stride + p, j->a_stride, panel, height, depth, j->simd);
        }
        for (int64_t i = 0; i < height; i++)
            vb_cpu_store((void *)vb_at(j->c, j->type, (row + i) * j->c_stride + col), sums + i * VB_PANEL, j->type,
                         width, j->simd);
    }
}

typedef struct rows_job {
    float *out; /* [m][k] */
    const void *a;
    vb_dtype type;
    vb_simd simd;
    int64_t m, k, stride;
    int transposed;
} rows_job;

/* Rows of A as floats; of a transposed one a strip of 16, which is a cache line of its rows. */
static void rows_range(void *context, int worker, int64_t begin, int64_t end) {
    (void)worker;
    enum { STRIP_ROWS = 16 };
    const rows_job *j = context;
    for (int64_t i = begin; i < end; i++) {
        if (!j->transposed) {
            vb_cpu_load(j->out + i * j->k, vb_at(j->a, j->type, i * j->stride), j->type, j->k, j->simd);
            continue;
        }
        float strip[STRIP_ROWS];
        int64_t first = i * STRIP_ROWS, width = vb_min(STRIP_ROWS, j->m - first);
        for (int64_t p = 0; p < j->k; p++) {
            vb_cpu_load(strip, vb_at(j->a, j->type, p * j->stride + first), j->type, width, j->simd);
            for (int64_t r = 0; r < width; r++) j->out[(first + r) * j->k + p] = strip[r];
        }
    }
}

vb_status vb_cpu_matmul_batched(const vb_matmul_args *args, vb_stream *stream) {
    const vb_matmul_args *x = args;
    vb_cpu_device *device = vb_cpu_device_of(stream);
    int threads = vb_cpu_pool_threads(device->pool);
    int64_t panels = (x->n + VB_PANEL - 1) / VB_PANEL;
    matmul_job job = {.type = x->type, .simd = device->simd, .m = x->m, .k = x->k, .n = x->n, .a_stride = x->a_stride,
                      .b_stride = x->b_stride, .c_stride = x->c_stride, .b_transposed = x->b_transposed};
    job.tile_rows = panels >= 4 * (int64_t)threads ? TILE_ROWS : 4 * GROUP;
    job.tiles = (x->m + job.tile_rows - 1) / job.tile_rows;
    job.worker_floats = PANEL_FLOATS + SUM_FLOATS + (x->b_transposed && x->type != VB_F32 ? PANEL_FLOATS : 0);
    bool copied = x->type != VB_F32 || x->a_transposed;
    int64_t floats = job.worker_floats * threads, bytes;
    if (__builtin_mul_overflow(floats + (copied ? x->m * x->k : 0), (int64_t)4, &bytes)) return VB_OUT_OF_MEMORY;
    job.scratch = vb_cpu_scratch(stream, bytes);
    if (!job.scratch) return VB_OUT_OF_MEMORY;
    for (int64_t i = 0; i < x->batch; i++) {
        job.c = (void *)vb_at(x->c, x->type, i * x->c_batch_stride);
        job.b = x->k > 0 ? vb_at(x->b, x->type, i * x->b_batch_stride) : NULL;
        const void *a = x->k > 0 ? vb_at(x->a, x->type, i * x->a_batch_stride) : NULL;
        job.a = a;
        if (copied && (i == 0 || x->a_batch_stride > 0)) {
            rows_job rows = {job.scratch + floats, a, x->type, device->simd, x->m, x->k, x->a_stride, x->a_transposed};
            int64_t items = x->a_transposed ? (x->m + 15) / 16 : x->m;
            vb_cpu_parallel(stream, items, vb_cpu_grain(x->k * (x->a_transposed ? 16 : 1)), rows_range, &rows);
        }
        if (copied) {
            job.a = job.scratch + floats;
            job.a_stride = x->k;
        }
        vb_cpu_parallel(stream, panels * job.tiles, vb_cpu_grain(job.tile_rows * x->k * VB_PANEL / 8), matmul_range,
                        &job);
    }
    return VB_OK;
}

/* ---- one row: bound by reading B --------------------------------------------------------------------------------- */

enum { STRIP = 1024, ROWS_AT_ONCE = 4 };

VB_INLINE void add_rows_body(float *sums, const float *x, const float *b, int64_t ld, int64_t n) {
    for (int64_t j = 0; j < n; j++)
        sums[j] += (x[0] * b[j] + x[1] * b[ld + j]) + (x[2] * b[2 * ld + j] + x[3] * b[3 * ld + j]);
}

VB_TWINS(add_rows, (float *sums, const float *x, const float *b, int64_t ld, int64_t n), (sums, x, b, ld, n));

static void single_row_range(void *context, int worker, int64_t begin, int64_t end) {
    (void)worker;
    const matmul_job *j = context; /* its b_stride is n, and its A the row as stored */
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
