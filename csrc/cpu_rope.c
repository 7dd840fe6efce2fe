/* cpu_rope.c: rotary position embedding, and storing keys and values into their cache. */
#include "checks.h"
#include "cpu.h"
#include "quant.h"

/* Whether a row's position lies outside 0..limit-1. */
static bool outside(const int32_t *positions, int64_t batch, int64_t stride, int64_t seq, int64_t limit) {
    for (int64_t b = 0; b < batch; b++)
        for (int64_t s = 0; s < seq; s++) {
            int64_t p = positions ? positions[b * stride + s] : s;
            if (p < 0 || p >= limit) return true;
        }
    return false;
}

/* ---- rotary position embedding ----------------------------------------------------------------------------------- */

VB_INLINE void rotate_body(float *y, const float *x, const float *cos, const float *sin, int64_t half,
                           vb_rope_mode mode) {
    if (mode == VB_ROPE_NEOX)
        for (int64_t i = 0; i < half; i++) {
            float u = x[i], v = x[i + half];
            y[i] = u * cos[i] - v * sin[i];
            y[i + half] = u * sin[i] + v * cos[i];
        }
    else
        for (int64_t i = 0; i < half; i++) {
            float u = x[2 * i], v = x[2 * i + 1];
            y[2 * i] = u * cos[i] - v * sin[i];
            y[2 * i + 1] = u * sin[i] + v * cos[i];
        }
}

VB_TWINS(rotate, (float *y, const float *x, const float *cos, const float *sin, int64_t half, vb_rope_mode mode),
         (y, x, cos, sin, half, mode));

typedef struct rope_job {
    const vb_rope_args *args;
    vb_simd simd;
    float *scratch; /* a row a worker, NULL for F32 */
} rope_job;

static void rope_range(void *context, int worker, int64_t begin, int64_t end) {
    const rope_job *j = context;
    const vb_rope_args *a = j->args;
    float *buffer = j->scratch ? j->scratch + worker * a->dim : NULL;
    for (int64_t r = begin; r < end; r++) {
        int64_t b = r / (a->heads * a->seq), s = r % a->seq;
        int64_t p = a->positions ? a->positions[b * a->position_stride + s] : s;
        const float *x = vb_at(a->in, a->type, r * a->dim);
        float *y = (float *)vb_at(a->out, a->type, r * a->dim);
        void *out = y;
        if (buffer) {
            vb_cpu_load(buffer, x, a->type, a->dim, j->simd);
            x = y = buffer;
        }
        rotate[j->simd](y, x, a->cos + p * a->half, a->sin + p * a->half, a->half, a->mode);
        if (y != x) memcpy(y + 2 * a->half, x + 2 * a->half, (size_t)(a->dim - 2 * a->half) * 4);
        if (buffer) vb_cpu_store(out, buffer, a->type, a->dim, j->simd);
    }
}

vb_status vb_cpu_rope(const vb_rope_args *args, vb_stream *stream) {
    vb_cpu_device *device = vb_cpu_device_of(stream);
    if (outside(args->positions, args->batch, args->position_stride, args->seq, args->table_rows))
        return vb_refuse(stream, "positions: outside 0..table_rows-1");
    rope_job job = {args, device->simd, NULL};
    if (args->type != VB_F32) {
        int64_t bytes;
        if (__builtin_mul_overflow(args->dim, 4 * (int64_t)vb_cpu_pool_threads(device->pool), &bytes))
            return VB_OUT_OF_MEMORY;
        job.scratch = vb_cpu_scratch(stream, bytes);
        if (!job.scratch) return VB_OUT_OF_MEMORY;
    }
    vb_cpu_parallel(stream, args->batch * args->heads * args->seq, vb_cpu_grain(args->dim), rope_range, &job);
    return VB_OK;
}

/* ---- key-value cache --------------------------------------------------------------------------------------------- */

static void store_cache_row(void *cache, int64_t row, const float *in, int64_t dim, vb_dtype type, vb_simd simd) {
    if (type == VB_Q8_0)
        vb_cpu_quantize_q8_0((vb_block_q8_0 *)cache + row * dim / VB_QK, in, dim);
    else
        vb_cpu_store((void *)vb_at(cache, type, row * dim), in, type, dim, simd);
}

typedef struct kv_job {
    const vb_kv_write_args *args;
    vb_simd simd;
} kv_job;

static void kv_range(void *context, int worker, int64_t begin, int64_t end) {
    (void)worker;
    const kv_job *j = context;
    const vb_kv_write_args *a = j->args;
    const int64_t values = a->value_dim ? a->value_dim : a->dim;
    for (int64_t r = begin; r < end; r++) {
        int64_t b = r / a->seq, sequence = a->sequences ? a->sequences[b] : b;
        for (int64_t h = 0; h < a->kv_heads; h++) {
            const int64_t slot = a->ring ? a->positions[r] % a->capacity : a->positions[r];
            const int64_t to = (sequence * a->kv_heads + h) * a->capacity + slot, from = r * a->kv_heads + h;
            store_cache_row(a->k, to, a->k_in + from * a->dim, a->dim, a->type, j->simd);
            if (a->v) store_cache_row(a->v, to, a->v_in + from * values, values, a->type, j->simd);
        }
    }
}

vb_status vb_cpu_kv_write(const vb_kv_write_args *args, vb_stream *stream) {
    const int64_t limit = args->ring ? INT64_MAX : args->capacity;
    if (outside(args->positions, args->batch, args->seq, args->seq, limit))
        return vb_refuse(stream, "positions: outside 0..capacity-1, or negative in a ring");
    for (int64_t b = 0; args->sequences && b < args->batch; b++)
        if (args->sequences[b] < 0) return vb_refuse(stream, "sequences: negative");
    kv_job job = {args, vb_cpu_device_of(stream)->simd};
    vb_cpu_parallel(stream, args->batch * args->seq, vb_cpu_grain(args->kv_heads * args->dim), kv_range, &job);
    return VB_OK;
}
