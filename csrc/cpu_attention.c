/* cpu_attention.c: softmax(scale * q k^T + mask) v with a running maximum, so that no row of scores is ever stored
 * (Milakov & Gimelshein 2018; Dao et al. 2022).
 *
 * An item is one query position of one key head. The query heads that share the key head read each cached row once.
 * Keys come in tiles of 32 rows, converted to float32 into the first-level cache where the cache holds other numbers.
 * With few items (decoding) the heads of a group are split among the threads.
 * A tile ends where a ring begins anew, so that its rows always lie together. */
#include <math.h>

#include "checks.h"
#include "cpu.h"

enum { TILE = 32, LANES = 16 };

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

/* A tile's keys and values as float32; values are rows of their own, or the first elements of the keys'. */
typedef struct tile_rows {
    const float *k, *v;
    int64_t n, dim, value_dim, value_stride;
    float scale, soft_cap;
} tile_rows;

/* State of one query row: out[value_dim] is the sum of exp(score - max) v so far, and sum the sum of exponentials. */
typedef struct running {
    float max, sum;
} running;

/* Takes in n <= TILE keys. A tile whose scores are all -inf leaves the state as it is. */
VB_INLINE void tile_body(float *out, running *state, const float *q, const tile_rows *t) {
    float scores[TILE], max = state->max;
    const float *v = t->v;
    const int64_t n = t->n, dim = t->value_dim, stride = t->value_stride;
    for (int64_t j = 0; j < n; j++) scores[j] = dot_lanes(q, t->k + j * t->dim, t->dim) * t->scale;
    if (t->soft_cap > 0)
        for (int64_t j = 0; j < n; j++) scores[j] = t->soft_cap * vb_tanhf(scores[j] / t->soft_cap);
    for (int64_t j = 0; j < n; j++) {
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
            for (int l = 0; l < 2 * LANES; l++) lanes[l] += scores[j] * v[j * stride + d + l];
        for (int l = 0; l < 2 * LANES; l++) out[d + l] = lanes[l];
    }
    for (; d < dim; d++)
        for (int64_t j = 0; j < n; j++) out[d] += scores[j] * v[j * stride + d];
}

VB_TWINS(tile, (float *out, running *state, const float *q, const tile_rows *t), (out, state, q, t));

typedef struct attention_job {
    const vb_attention_args *args;
    vb_simd simd;
    int64_t together; /* query heads an item */
    int64_t value_dim;
    int64_t worker_floats;
    float *scratch; /* a worker: two tiles, and `together` rows of q and of sums */
} attention_job;

/* The divisor of a row's sum: the sum of exponentials, with a sink's exponential too. No keys give zeros.
 * Keys that are all masked to -inf give NaN, as IEEE arithmetic does, unless there is a sink. */
static float row_factor(const running *state, const float *sink, bool has_keys) {
    if (!has_keys) return 0.0f;
    if (!sink) return state->max == -INFINITY ? NAN : 1.0f / state->sum;
    const float max = state->max < *sink ? *sink : state->max, shrink = vb_expf(state->max - max);
    return shrink / (state->sum * shrink + vb_expf(*sink - max));
}

static void attention_range(void *context, int worker, int64_t begin, int64_t end) {
    const attention_job *j = context;
    const vb_attention_args *a = j->args;
    const int64_t dim = a->dim, values = j->value_dim, splits = a->heads / j->together, group = a->heads / a->kv_heads;
    float *k_tile = j->scratch + worker * j->worker_floats, *v_tile = k_tile + TILE * dim;
    float *q = v_tile + TILE * values, *sums = q + j->together * dim;
    running *state = (running *)(sums + j->together * values);
    for (int64_t item = begin; item < end; item++) {
        int64_t head = item % splits * j->together, row = item / splits, b = row / a->seq, s = row % a->seq;
        int64_t first = 0, last = a->kv_len;
        if (a->causal) {
            last = (a->positions ? a->positions[row] : a->offset + s) + 1;
            if (a->window > 0) first = vb_max(last - a->window, 0);
            if (a->chunk > 0) first = vb_max(first, (last - 1) / a->chunk * a->chunk);
        }
        int64_t sequence = a->sequences ? a->sequences[b] : b;
        int64_t base = (sequence * a->kv_heads + head / group) * a->kv_capacity;
        int64_t at = b * a->q_batch_stride + head * a->q_head_stride + s * a->q_row_stride, to = at,
                to_stride = a->q_head_stride;
        if (values != dim) to = (row * a->heads + head) * values, to_stride = values;
        for (int64_t h = 0; h < j->together; h++) {
            vb_cpu_load(q + h * dim, vb_at(a->q, a->type, at + h * a->q_head_stride), a->type, dim, j->simd);
            state[h] = (running){-INFINITY, 0};
        }
        memset(sums, 0, (size_t)(j->together * values) * 4);
        for (int64_t i = first, n; i < last; i += n) {
            const int64_t slot = a->ring ? i % a->kv_capacity : i;
            n = vb_min(TILE, last - i);
            if (a->ring) n = vb_min(n, a->kv_capacity - slot);
            tile_rows t = {.n = n, .dim = dim, .value_dim = values, .value_stride = values, .scale = a->scale,
                           .soft_cap = a->soft_cap};
            t.k = (const void *)((const char *)a->k + vb_bytes_of(a->kv_type, (base + slot) * dim));
            if (a->v) t.v = (const void *)((const char *)a->v + vb_bytes_of(a->kv_type, (base + slot) * values));
            if (a->kv_type != VB_F32) {
                vb_cpu_dequantize(k_tile, t.k, a->kv_type, n * dim, j->simd);
                t.k = k_tile;
                if (a->v) vb_cpu_dequantize(v_tile, t.v, a->kv_type, n * values, j->simd);
                t.v = v_tile;
            }
            if (!a->v) t.v = t.k, t.value_stride = dim;
            for (int64_t h = 0; h < j->together; h++) tile[j->simd](sums + h * values, state + h, q + h * dim, &t);
        }
        for (int64_t h = 0; h < j->together; h++) {
            const float factor = row_factor(state + h, a->sinks ? a->sinks + head + h : NULL, last > first);
            for (int64_t d = 0; d < values; d++) sums[h * values + d] *= factor;
            vb_cpu_store((void *)vb_at(a->out, a->type, to + h * to_stride), sums + h * values, a->type, values,
                         j->simd);
        }
    }
}

vb_status vb_cpu_attention(const vb_attention_args *args, vb_stream *stream) {
    const vb_attention_args *a = args;
    vb_cpu_device *device = vb_cpu_device_of(stream);
    /* keys of any row; kv_len may be a bound that lies far off */
    int64_t longest = a->causal && a->positions ? 1 : a->kv_len;
    for (int64_t i = 0; a->causal && a->positions && i < a->batch * a->seq; i++) {
        if (a->positions[i] < 0 || a->positions[i] >= a->kv_len)
            return vb_refuse(stream, "positions: outside 0..kv_len-1");
        longest = vb_max(longest, a->positions[i] + 1);
    }
    for (int64_t b = 0; a->sequences && b < a->batch; b++)
        if (a->sequences[b] < 0) return vb_refuse(stream, "sequences: negative");
    int threads = vb_cpu_pool_threads(device->pool);
    int64_t group = a->heads / a->kv_heads, rows = a->batch * a->seq;
    attention_job job = {
        .args = a, .simd = device->simd, .together = group, .value_dim = a->value_dim ? a->value_dim : a->dim};
    while (job.together > 1 && rows * (a->heads / job.together) < 4 * (int64_t)threads) { /* the next smaller divisor */
        job.together--;
        while (group % job.together != 0) job.together--;
    }
    job.worker_floats = (TILE + job.together) * (a->dim + job.value_dim) + 2 * job.together;
    int64_t bytes;
    if (__builtin_mul_overflow(job.worker_floats, 4 * (int64_t)threads, &bytes)) return VB_OUT_OF_MEMORY;
    job.scratch = vb_cpu_scratch(stream, bytes);
    if (!job.scratch) return VB_OUT_OF_MEMORY;
    int64_t items = rows * (a->heads / job.together);
    int64_t grain = vb_cpu_grain(job.together * a->dim * longest);
    vb_cpu_parallel(stream, items, vb_min(grain, vb_max(items / threads, 1)), attention_range, &job);
    return VB_OK;
}
