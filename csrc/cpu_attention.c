/* cpu_attention.c: softmax(scale * q k^T + mask) v with a running maximum, so that no row of scores is ever stored
 * (Milakov & Gimelshein 2018; Dao et al. 2022).
 *
 * An item is one query position of one key head: the query heads that share it (7 in a Qwen2 0.5B, 4 in a Llama 3) read
 * each cached row once. Keys come in tiles of 32 rows, converted to float32 into the first-level cache where the cache
 * holds other numbers. With few items (decoding) the heads of a group are split among the threads. */
#include <math.h>

#include "cpu.h"

enum { TILE = 32, LANES = 16, MAX_DIM = 256 };

VB_INLINE float dot_lanes(const float *a, const float *b, int64_t n) {
    float lanes[LANES] = {0};
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int l = 0; l < LANES; l++) lanes[l] += a[i + l] * b[i + l];
    for (int l = 0; i < n; i++, l++) lanes[l] += a[i] * b[i];
    float s[8];
    for (int l = 0; l < 8; l++) s[l] = lanes[l] + lanes[l + 8];
    return ((s[0] + s[4]) + (s[2] + s[6])) + ((s[1] + s[5]) + (s[3] + s[7]));
}

/* State of one query row: out[dim] is the sum of exp(score - max) v so far, sum that of the exponentials. */
typedef struct running {
    float max, sum;
} running;

/* Takes in n <= TILE keys. A tile whose scores are all -inf leaves the state as it is. */
VB_INLINE void tile_body(float *out, running *state, const float *q, const float *k, const float *v, int64_t n, int64_t dim,
                         float scale) {
    float scores[TILE], max = state->max;
    for (int64_t j = 0; j < n; j++) {
        scores[j] = dot_lanes(q, k + j * dim, dim) * scale;
        max = scores[j] > max || scores[j] != scores[j] ? scores[j] : max; /* NaN stays */
    }
    if (max == -INFINITY) return;
    for (int64_t j = n; j < TILE; j++) scores[j] = -INFINITY;
    float sum = 0, shrink = vb_expf(state->max - max);
    for (int j = 0; j < TILE; j++) scores[j] = vb_expf(scores[j] - max);
    for (int j = 0; j < TILE; j++) sum += scores[j];
    if (shrink != 1.0f)
        for (int64_t d = 0; d < dim; d++) out[d] *= shrink;
    state->sum = state->sum * shrink + sum;
    state->max = max;
    int64_t d = 0;
    for (; d + 2 * LANES <= dim; d += 2 * LANES) { /* a strip of the output stays in registers */
        float lanes[2 * LANES];
        for (int l = 0; l < 2 * LANES; l++) lanes[l] = out[d + l];
        for (int64_t j = 0; j < n; j++)
            for (int l = 0; l < 2 * LANES; l++) lanes[l] += scores[j] * v[j * dim + d + l];
        for (int l = 0; l < 2 * LANES; l++) out[d + l] = lanes[l];
    }
    for (; d < dim; d++)
        for (int64_t j = 0; j < n; j++) out[d] += scores[j] * v[j * dim + d];
}

VB_TWINS(tile, (float *out, running *state, const float *q, const float *k, const float *v, int64_t n, int64_t dim, float scale),
         (out, state, q, k, v, n, dim, scale));

typedef struct attention_job {
    const vb_attention_args *args;
    vb_simd simd;
    int64_t together; /* query heads an item */
    int64_t worker_floats;
    float *scratch; /* a worker: two tiles, and `together` rows of q and of sums */
} attention_job;

static void attention_range(void *context, int worker, int64_t begin, int64_t end) {
    const attention_job *j = context;
    const vb_attention_args *a = j->args;
    int64_t dim = a->dim, splits = a->heads / j->together, group = a->heads / a->kv_heads;
    float *k_tile = j->scratch + worker * j->worker_floats, *v_tile = k_tile + TILE * dim;
    float *q = v_tile + TILE * dim, *sums = q + j->together * dim;
    running *state = (running *)(sums + j->together * dim);
    for (int64_t item = begin; item < end; item++) {
        int64_t head = item % splits * j->together, row = item / splits, b = row / a->seq, s = row % a->seq;
        int64_t first = 0, last = a->kv_len;
        if (a->causal) {
            last = (a->positions ? a->positions[row] : a->offset + s) + 1;
            if (a->window > 0) first = vb_max(last - a->window, 0);
        }
        int64_t sequence = a->sequences ? a->sequences[b] : b;
        int64_t base = (sequence * a->kv_heads + head / group) * a->kv_capacity;
        int64_t at = b * a->q_batch_stride + head * a->q_head_stride + s * a->q_row_stride;
        for (int64_t h = 0; h < j->together; h++) {
            vb_cpu_load(q + h * dim, vb_at(a->q, a->type, at + h * a->q_head_stride), a->type, dim, j->simd);
            state[h] = (running){-INFINITY, 0};
        }
        memset(sums, 0, (size_t)(j->together * dim) * 4);
        for (int64_t i = first; i < last; i += TILE) {
            int64_t n = vb_min(TILE, last - i);
            int64_t at_key = vb_bytes_of(a->kv_type, (base + i) * dim);
            const float *k = (const void *)((const char *)a->k + at_key), *v = (const void *)((const char *)a->v + at_key);
            if (a->kv_type != VB_F32) {
                vb_cpu_dequantize(k_tile, k, a->kv_type, n * dim, j->simd);
                vb_cpu_dequantize(v_tile, v, a->kv_type, n * dim, j->simd);
                k = k_tile;
                v = v_tile;
            }
            for (int64_t h = 0; h < j->together; h++)
                tile[j->simd](sums + h * dim, state + h, q + h * dim, k, v, n, dim, a->scale);
        }
        for (int64_t h = 0; h < j->together; h++) {
            /* No keys give zeros; keys that are all masked to -inf give NaN, as IEEE arithmetic does. */
            float inverse = last > first ? 1.0f / state[h].sum : 0.0f;
            if (last > first && state[h].max == -INFINITY) inverse = NAN;
            for (int64_t d = 0; d < dim; d++) sums[h * dim + d] *= inverse;
            vb_cpu_store((void *)vb_at(a->out, a->type, at + h * a->q_head_stride), sums + h * dim, a->type, dim, j->simd);
        }
    }
}

vb_status vb_cpu_attention(const vb_attention_args *args, vb_stream *stream) {
    const vb_attention_args *a = args;
    vb_cpu_device *device = vb_cpu_device_of(stream);
    int64_t longest = a->causal && a->positions ? 1 : a->kv_len; /* keys of any row; kv_len may be a bound that lies far off */
    for (int64_t i = 0; a->causal && a->positions && i < a->batch * a->seq; i++) {
        if (a->positions[i] < 0 || a->positions[i] >= a->kv_len) return VB_INVALID_ARGUMENT;
        longest = vb_max(longest, a->positions[i] + 1);
    }
    for (int64_t b = 0; a->sequences && b < a->batch; b++)
        if (a->sequences[b] < 0) return VB_INVALID_ARGUMENT;
    int threads = vb_cpu_pool_threads(device->pool);
    int64_t group = a->heads / a->kv_heads, rows = a->batch * a->seq;
    attention_job job = {.args = a, .simd = device->simd, .together = group};
    while (job.together > 1 && rows * (a->heads / job.together) < 4 * (int64_t)threads) { /* the next smaller divisor */
        job.together--;
        while (group % job.together != 0) job.together--;
    }
    job.worker_floats = (2 * TILE + 2 * job.together) * a->dim + 2 * job.together;
    int64_t bytes;
    if (__builtin_mul_overflow(job.worker_floats, 4 * (int64_t)threads, &bytes)) return VB_OUT_OF_MEMORY;
    job.scratch = vb_cpu_scratch(stream, bytes);
    if (!job.scratch) return VB_OUT_OF_MEMORY;
    int64_t items = rows * (a->heads / job.together);
    int64_t grain = vb_cpu_grain(job.together * a->dim * longest);
    vb_cpu_parallel(stream, items, vb_min(grain, vb_max(items / threads, 1)), attention_range, &job);
    return VB_OK;
}
