/* cpu_adapter.c: the update of a low-rank adapter: out = add + scale * ((x V) * codes) U^T. A worker takes a few rows
 * at a time, for which it reads V and U once; their product with V stays on its stack. */
#include "cpu.h"

enum { RANKS = 256, ROWS = 4, PIECE = 512 };

/* sums[r] += the products of a and row r of b, which begin `stride` apart, over n elements. */
VB_INLINE void dots_body(float *sums, int64_t sums_apart, const float *rows, int64_t apart, int64_t count,
                         const float *b, int64_t n) {
    for (int64_t r = 0; r < count; r++) {
        const float *a = rows + r * apart;
        float lanes[16] = {0}, rest = 0;
        int64_t i = 0;
        for (; i + 16 <= n; i += 16)
            for (int l = 0; l < 16; l++) lanes[l] += a[i + l] * b[i + l];
        for (; i < n; i++) rest += a[i] * b[i];
        for (int l = 0; l < 16; l++) rest += lanes[l];
        sums[r * sums_apart] += rest;
    }
}

VB_TWINS(dots,
         (float *sums, int64_t sums_apart, const float *rows, int64_t apart, int64_t count, const float *b, int64_t n),
         (sums, sums_apart, rows, apart, count, b, n));

VB_INLINE void add_scaled_body(float *out, const float *y, float factor, int64_t n) {
    for (int64_t i = 0; i < n; i++) out[i] += factor * y[i];
}

VB_TWINS(add_scaled, (float *out, const float *y, float factor, int64_t n), (out, y, factor, n));

/* Elements of a matrix of weights as floats, in `buffer` where they are not floats already. */
static const float *floats(float *buffer, const void *from, vb_dtype type, int64_t at, int64_t n, vb_simd simd) {
    if (type == VB_F32) return (const float *)from + at;
    vb_cpu_load(buffer, vb_at(from, type, at), type, n, simd);
    return buffer;
}

typedef struct update_job {
    const vb_fused_update_args *a;
    vb_simd simd;
} update_job;

/* h[rows][RANKS] += x V for the columns first.. of x, n of them. */
static void project(float *h, const float *x, int64_t rows, int64_t first, int64_t n, const update_job *j) {
    const vb_fused_update_args *a = j->a;
    float buffer[PIECE];
    if (a->v_transposed) {
        for (int64_t r = 0; r < a->r; r++)
            dots[j->simd](h + r, RANKS, x, PIECE, rows,
                          floats(buffer, a->v, a->weight_type, r * a->k + first, n, j->simd), n);
        return;
    }
    for (int64_t c = 0; c < n; c++) {
        const float *v = floats(buffer, a->v, a->weight_type, (first + c) * a->r, a->r, j->simd);
        for (int64_t row = 0; row < rows; row++) add_scaled[j->simd](h + row * RANKS, v, x[row * PIECE + c], a->r);
    }
}

/* y[rows][PIECE] += h U^T for the columns first.. of U^T, n of them. */
static void expand(float *y, const float *h, int64_t rows, int64_t first, int64_t n, const update_job *j) {
    const vb_fused_update_args *a = j->a;
    float buffer[PIECE];
    if (!a->u_transposed) {
        for (int64_t c = 0; c < n; c++)
            dots[j->simd](y + c, PIECE, h, RANKS, rows,
                          floats(buffer, a->u, a->weight_type, (first + c) * a->r, a->r, j->simd), a->r);
        return;
    }
    for (int64_t r = 0; r < a->r; r++) {
        const float *u = floats(buffer, a->u, a->weight_type, r * a->n + first, n, j->simd);
        for (int64_t row = 0; row < rows; row++) add_scaled[j->simd](y + row * PIECE, u, h[row * RANKS + r], n);
    }
}

static void update_range(void *context, int worker, int64_t begin, int64_t end) {
    (void)worker;
    const update_job *j = context;
    const vb_fused_update_args *a = j->a;
    for (int64_t top = begin * ROWS; top < vb_min(end * ROWS, a->m); top += ROWS) {
        const int64_t rows = vb_min(ROWS, a->m - top);
        float h[ROWS * RANKS] = {0}, piece[ROWS * PIECE], codes[RANKS];
        for (int64_t first = 0; first < a->k; first += PIECE) {
            const int64_t n = vb_min(PIECE, a->k - first);
            for (int64_t row = 0; row < rows; row++)
                vb_cpu_load(piece + row * PIECE, vb_at(a->x, a->type, (top + row) * a->k + first), a->type, n, j->simd);
            project(h, piece, rows, first, n, j);
        }
        for (int64_t row = 0; row < rows; row++) {
            const float *code =
                a->codes ? floats(codes, a->codes, a->type, (top + row) * a->codes_stride, a->r, j->simd) : NULL;
            for (int64_t r = 0; r < a->r; r++) { /* whatever x V is where a code is 0 */
                const float factor = code ? code[r] : 1.0f;
                h[row * RANKS + r] = factor == 0 ? 0 : h[row * RANKS + r] * factor * a->scale;
            }
        }
        for (int64_t first = 0; first < a->n; first += PIECE) {
            const int64_t n = vb_min(PIECE, a->n - first);
            for (int64_t row = 0; row < rows; row++) {
                if (a->add)
                    vb_cpu_load(piece + row * PIECE, vb_at(a->add, a->type, (top + row) * a->n + first), a->type, n,
                                j->simd);
                else
                    memset(piece + row * PIECE, 0, (size_t)n * sizeof *piece);
            }
            expand(piece, h, rows, first, n, j);
            for (int64_t row = 0; row < rows; row++)
                vb_cpu_store((void *)vb_at(a->out, a->type, (top + row) * a->n + first), piece + row * PIECE, a->type,
                             n, j->simd);
        }
    }
}

vb_status vb_cpu_fused_update(const vb_fused_update_args *args, vb_stream *stream) {
    update_job job = {args, vb_cpu_device_of(stream)->simd};
    const int64_t work = ROWS * args->r * (args->k + args->n);
    vb_cpu_parallel(stream, (args->m + ROWS - 1) / ROWS, vb_cpu_grain(work), update_range, &job);
    return VB_OK;
}
