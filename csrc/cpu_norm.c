/* cpu_norm.c: operations on rows: softmax, RMS norm, layer norm, argmax, top-k.
 *
 * Sums run in sixteen float lanes, which the compiler turns into vectors. Every few thousand elements the lanes are
 * emptied into a double, so that a row of a whole vocabulary loses no accuracy. */
#include <math.h>

#include "cpu.h"

enum { LANES = 16, RUN = 2048 };

VB_INLINE float lanes_sum(const float *lanes) {
    float s[8];
    for (int i = 0; i < 8; i++) s[i] = lanes[i] + lanes[i + 8];
    return ((s[0] + s[4]) + (s[2] + s[6])) + ((s[1] + s[5]) + (s[3] + s[7]));
}

/* ---- softmax ----------------------------------------------------------------------------------------------------- */

/* A NaN is no maximum, but its exponential and so the sum are NaN, which reaches every element. */
VB_INLINE void softmax_body(float *y, const float *x, int64_t n) {
    float top[LANES];
    for (int l = 0; l < LANES; l++) top[l] = -INFINITY;
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int l = 0; l < LANES; l++) top[l] = x[i + l] > top[l] ? x[i + l] : top[l];
    for (; i < n; i++) top[0] = x[i] > top[0] ? x[i] : top[0];
    float max = top[0];
    for (int l = 1; l < LANES; l++) max = top[l] > max ? top[l] : max;

    double sum = 0;
    for (i = 0; i < n;) {
        int64_t end = vb_min(i + RUN, n);
        float lanes[LANES] = {0};
        for (; i + LANES <= end; i += LANES)
            for (int l = 0; l < LANES; l++) {
                float e = vb_expf(x[i + l] - max);
                y[i + l] = e;
                lanes[l] += e;
            }
        for (; i < end; i++) lanes[0] += y[i] = vb_expf(x[i] - max);
        sum += lanes_sum(lanes);
    }
    float scale = (float)(1 / sum);
    for (i = 0; i < n; i++) y[i] *= scale;
}

VB_TWINS(softmax, (float *y, const float *x, int64_t n), (y, x, n));

/* ---- RMS norm ---------------------------------------------------------------------------------------------------- */

VB_INLINE void rms_norm_body(float *y, const float *x, const float *weight, int64_t n, float eps) {
    double sum = 0;
    for (int64_t i = 0; i < n;) {
        int64_t end = vb_min(i + RUN, n);
        float lanes[LANES] = {0};
        for (; i + LANES <= end; i += LANES)
            for (int l = 0; l < LANES; l++) lanes[l] += x[i + l] * x[i + l];
        for (; i < end; i++) lanes[0] += x[i] * x[i];
        sum += lanes_sum(lanes);
    }
    float scale = (float)(1 / sqrt(sum / (double)n + eps));
    if (weight)
        for (int64_t i = 0; i < n; i++) y[i] = x[i] * scale * weight[i];
    else
        for (int64_t i = 0; i < n; i++) y[i] = x[i] * scale;
}

VB_TWINS(rms_norm, (float *y, const float *x, const float *weight, int64_t n, float eps), (y, x, weight, n, eps));

/* ---- layer norm -------------------------------------------------------------------------------------------------- */

/* Of the differences to `from`; with from = 0 the plain sum. */
VB_INLINE double sum_of(const float *x, int64_t n, float from, bool squared) {
    double sum = 0;
    for (int64_t i = 0; i < n;) {
        int64_t end = vb_min(i + RUN, n);
        float lanes[LANES] = {0};
        for (; i + LANES <= end; i += LANES)
            for (int l = 0; l < LANES; l++) {
                float d = x[i + l] - from;
                lanes[l] += squared ? d * d : d;
            }
        for (; i < end; i++) {
            float d = x[i] - from;
            lanes[0] += squared ? d * d : d;
        }
        sum += lanes_sum(lanes);
    }
    return sum;
}

VB_INLINE void layer_norm_body(float *y, const float *x, const float *weight, const float *bias, int64_t n, float eps) {
    float mean = (float)(sum_of(x, n, 0, false) / (double)n);
    /* The differences to the mean still sum to the part that rounding the mean left out. */
    double rest = sum_of(x, n, mean, false) / (double)n;
    float scale = (float)(1 / sqrt(sum_of(x, n, mean, true) / (double)n - rest * rest + eps)), shift = (float)rest;
    for (int64_t i = 0; i < n; i++) y[i] = (x[i] - mean - shift) * scale;
    if (weight)
        for (int64_t i = 0; i < n; i++) y[i] *= weight[i];
    if (bias)
        for (int64_t i = 0; i < n; i++) y[i] += bias[i];
}

VB_TWINS(layer_norm, (float *y, const float *x, const float *weight, const float *bias, int64_t n, float eps),
         (y, x, weight, bias, n, eps));

VB_INLINE void add_body(float *y, const float *a, const float *b, int64_t n) {
    for (int64_t i = 0; i < n; i++) y[i] = a[i] + b[i];
}

VB_TWINS(add, (float *y, const float *a, const float *b, int64_t n), (y, a, b, n));

/* ---- rows of any float type -------------------------------------------------------------------------------------- */

typedef struct row_job {
    void *sum, *out;
    const void *a, *b; /* b: add_rms_norm only */
    const float *weight, *bias;
    enum { SOFTMAX, RMS_NORM, LAYER_NORM } op;
    vb_dtype type;
    vb_simd simd;
    int64_t cols;
    float eps;
    float *scratch; /* per worker two rows of cols, NULL for F32 */
} row_job;

static const float *row_in(const row_job *j, const void *p, int64_t row, float *buffer) {
    const void *at = vb_at(p, j->type, row * j->cols);
    if (j->type == VB_F32) return at;
    vb_cpu_load(buffer, at, j->type, j->cols, j->simd);
    return buffer;
}

static float *row_out(const row_job *j, void *p, int64_t row, float *buffer) {
    return j->type == VB_F32 ? (float *)p + row * j->cols : buffer;
}

static void row_done(const row_job *j, void *p, int64_t row, const float *values) {
    if (j->type != VB_F32) vb_cpu_store((void *)vb_at(p, j->type, row * j->cols), values, j->type, j->cols, j->simd);
}

static void row_range(void *context, int worker, int64_t begin, int64_t end) {
    const row_job *j = context;
    float *buffer = j->scratch ? j->scratch + 2 * worker * j->cols : NULL, *second = buffer ? buffer + j->cols : NULL;
    for (int64_t r = begin; r < end; r++) {
        const float *x = row_in(j, j->a, r, buffer);
        if (j->b) {
            float *sum = row_out(j, j->sum, r, buffer);
            add[j->simd](sum, x, row_in(j, j->b, r, second), j->cols);
            row_done(j, j->sum, r, sum);
            x = row_in(j, j->sum, r, buffer); /* as stored: what readers of the sum see is what is normalized */
        }
        float *y = row_out(j, j->out, r, buffer);
        switch (j->op) {
        case SOFTMAX: softmax[j->simd](y, x, j->cols); break;
        case RMS_NORM: rms_norm[j->simd](y, x, j->weight, j->cols, j->eps); break;
        case LAYER_NORM: layer_norm[j->simd](y, x, j->weight, j->bias, j->cols, j->eps); break;
        }
        row_done(j, j->out, r, y);
    }
}

static vb_status run(row_job job, int64_t rows, vb_stream *stream) {
    vb_cpu_device *device = vb_cpu_device_of(stream);
    job.simd = device->simd;
    if (job.type != VB_F32) {
        int64_t bytes;
        if (__builtin_mul_overflow(job.cols, 8 * (int64_t)vb_cpu_pool_threads(device->pool), &bytes))
            return VB_OUT_OF_MEMORY;
        job.scratch = vb_cpu_scratch(stream, bytes);
        if (!job.scratch) return VB_OUT_OF_MEMORY;
    }
    vb_cpu_parallel(stream, rows, vb_cpu_grain(job.cols), row_range, &job);
    return VB_OK;
}

vb_status vb_cpu_softmax_batched(void *out, const void *in, vb_dtype type, int64_t rows, int64_t cols,
                                 vb_stream *stream) {
    return run((row_job){.out = out, .a = in, .type = type, .cols = cols, .op = SOFTMAX}, rows, stream);
}

vb_status vb_cpu_rms_norm_batched(void *out, const void *in, const float *weight, vb_dtype type, int64_t rows,
                                  int64_t cols, float eps, vb_stream *stream) {
    row_job job = {.out = out, .a = in, .weight = weight, .op = RMS_NORM, .type = type, .cols = cols, .eps = eps};
    return run(job, rows, stream);
}

vb_status vb_cpu_layer_norm_batched(void *out, const void *in, const float *weight, const float *bias, vb_dtype type,
                                    int64_t rows, int64_t cols, float eps, vb_stream *stream) {
    row_job job = {
        .out = out, .a = in, .weight = weight, .bias = bias, .op = LAYER_NORM, .type = type, .cols = cols, .eps = eps};
    return run(job, rows, stream);
}

vb_status vb_cpu_add_rms_norm(void *sum, void *out, const void *a, const void *b, const float *weight, vb_dtype type,
                              int64_t rows, int64_t cols, float eps, vb_stream *stream) {
    row_job job = {.sum = sum, .out = out, .a = a, .b = b, .weight = weight, .op = RMS_NORM, .type = type, .cols = cols,
                   .eps = eps};
    return run(job, rows, stream);
}

/* ---- the greatest ------------------------------------------------------------------------------------------------ */

/* Integers in the order of the contract: by value, NaN above all, both zeros equal. */
VB_INLINE int32_t rank(float f) {
    int32_t bits = (int32_t)vb_float_bits(f), magnitude = bits & 0x7fffffff;
    int32_t value = bits < 0 ? -magnitude : magnitude;
    return magnitude > 0x7f800000 ? INT32_MAX : value;
}

/* The greatest rank first (a loop of vectors), then its first place. */
VB_INLINE void argmax_body(int32_t *out, const float *x, int64_t n) {
    int32_t lanes[LANES], best = INT32_MIN;
    for (int l = 0; l < LANES; l++) lanes[l] = INT32_MIN;
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int l = 0; l < LANES; l++) {
            int32_t r = rank(x[i + l]);
            lanes[l] = r > lanes[l] ? r : lanes[l];
        }
    for (int l = 0; i < n; i++, l++) lanes[l] = rank(x[i]) > lanes[l] ? rank(x[i]) : lanes[l];
    for (int l = 0; l < LANES; l++) best = lanes[l] > best ? lanes[l] : best;
    i = 0;
    while (rank(x[i]) != best) i++;
    *out = (int32_t)i;
}

VB_TWINS(argmax, (int32_t *out, const float *x, int64_t n), (out, x, n));

/* The order of a top-k: a comes after b. */
static inline bool worse(const float *x, int32_t a, int32_t b) {
    int32_t ra = rank(x[a]), rb = rank(x[b]);
    return ra < rb || (ra == rb && a > b);
}

/* Restores the heap of n ids below i: no parent is better than its children. */
static void sift(int32_t *heap, int64_t n, int64_t i, const float *x) {
    for (int64_t child; (child = 2 * i + 1) < n; i = child) {
        if (child + 1 < n && worse(x, heap[child + 1], heap[child])) child++;
        if (!worse(x, heap[child], heap[i])) return;
        int32_t swap = heap[i];
        heap[i] = heap[child];
        heap[child] = swap;
    }
}

/* ids serves as a heap of the k best so far, the worst on top, and is sorted in place at the end. */
static void top_k(float *values, int32_t *ids, const float *x, int64_t n, int64_t k) {
    for (int64_t i = 0; i < k; i++) ids[i] = (int32_t)i;
    for (int64_t i = k / 2 - 1; i >= 0; i--) sift(ids, k, i, x);
    int32_t bar = rank(x[ids[0]]);
    for (int64_t i = k; i < n; i++) {
        if (rank(x[i]) <= bar) continue; /* equal ones come later in the row */
        ids[0] = (int32_t)i;
        sift(ids, k, 0, x);
        bar = rank(x[ids[0]]);
    }
    for (int64_t left = k - 1; left > 0; left--) {
        int32_t worst = ids[0];
        ids[0] = ids[left];
        ids[left] = worst;
        sift(ids, left, 0, x);
    }
    for (int64_t i = 0; i < k; i++) values[i] = x[ids[i]];
}

typedef struct greatest_job {
    float *values; /* NULL for argmax */
    int32_t *ids;
    const float *in;
    int64_t cols, k;
    vb_simd simd;
} greatest_job;

static void greatest_range(void *context, int worker, int64_t begin, int64_t end) {
    (void)worker;
    const greatest_job *j = context;
    for (int64_t r = begin; r < end; r++) {
        const float *row = j->in + r * j->cols;
        if (j->k > 1) {
            top_k(j->values + r * j->k, j->ids + r * j->k, row, j->cols, j->k);
            continue;
        }
        argmax[j->simd](j->ids + r, row, j->cols);
        if (j->values) j->values[r] = row[j->ids[r]];
    }
}

vb_status vb_cpu_argmax(int32_t *out, const float *in, int64_t rows, int64_t cols, vb_stream *stream) {
    greatest_job job = {.ids = out, .in = in, .cols = cols, .k = 1, .simd = vb_cpu_device_of(stream)->simd};
    vb_cpu_parallel(stream, rows, vb_cpu_grain(cols), greatest_range, &job);
    return VB_OK;
}

vb_status vb_cpu_top_k(float *values, int32_t *ids, const float *in, int64_t rows, int64_t cols, int64_t k,
                       vb_stream *stream) {
    greatest_job job = {.values = values, .ids = ids, .in = in, .cols = cols, .k = k,
                        .simd = vb_cpu_device_of(stream)->simd};
    vb_cpu_parallel(stream, rows, vb_cpu_grain(cols), greatest_range, &job);
    return VB_OK;
}
