/* cpu_columns.c: a factor for each row, and columns copied between matrices. Both are bound by memory. */
#include "cpu.h"

/* ---- mul_rows ---------------------------------------------------------------------------------------------------- */

VB_INLINE void scale_body(float *out, const float *a, float factor, int64_t n) {
    for (int64_t i = 0; i < n; i++) out[i] = a[i] * factor;
}

VB_TWINS(scale, (float *out, const float *a, float factor, int64_t n), (out, a, factor, n));

typedef struct mul_rows_job {
    void *out;
    const void *a;
    const float *s;
    int64_t cols;
    vb_dtype type;
    vb_simd simd;
} mul_rows_job;

static void mul_rows_range(void *context, int worker, int64_t begin, int64_t end) {
    (void)worker;
    enum { PIECE = 512 };
    const mul_rows_job *j = context;
    float buffer[PIECE];
    for (int64_t r = begin; r < end; r++)
        for (int64_t c = 0; c < j->cols; c += PIECE) {
            int64_t n = vb_min(PIECE, j->cols - c), at = r * j->cols + c;
            vb_cpu_load(buffer, vb_at(j->a, j->type, at), j->type, n, j->simd);
            scale[j->simd](buffer, buffer, j->s[r], n);
            vb_cpu_store((void *)vb_at(j->out, j->type, at), buffer, j->type, n, j->simd);
        }
}

vb_status vb_cpu_mul_rows(void *out, const void *a, const float *s, vb_dtype type, int64_t rows, int64_t cols,
                          vb_stream *stream) {
    mul_rows_job job = {out, a, s, cols, type, vb_cpu_device_of(stream)->simd};
    vb_cpu_parallel(stream, rows, vb_cpu_grain(cols), mul_rows_range, &job);
    return VB_OK;
}

/* ---- copy_columns ------------------------------------------------------------------------------------------------ */

typedef struct copy_columns_job {
    char *out;
    const char *in;
    int64_t out_stride, in_stride, bytes; /* of a row */
} copy_columns_job;

static void copy_columns_range(void *context, int worker, int64_t begin, int64_t end) {
    (void)worker;
    const copy_columns_job *j = context;
    for (int64_t r = begin; r < end; r++)
        memcpy(j->out + r * j->out_stride, j->in + r * j->in_stride, (size_t)j->bytes);
}

vb_status vb_cpu_copy_columns(void *out, int64_t out_cols, int64_t out_first, const void *in, int64_t in_cols,
                              int64_t in_first, vb_dtype type, int64_t rows, int64_t cols, vb_stream *stream) {
    const int64_t size = vb_dtype_block_bytes(type);
    copy_columns_job job = {(char *)out + out_first * size, (const char *)in + in_first * size, out_cols * size,
                            in_cols * size, cols * size};
    vb_cpu_parallel(stream, rows, vb_cpu_grain(cols), copy_columns_range, &job);
    return VB_OK;
}
