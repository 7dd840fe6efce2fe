/* cpu_delta.c: the two parts of gated delta nets: a causal convolution and the gated delta rule. Both carry on a state.
 *
 * An item of the convolution is some channels of a sequence; an item of the delta rule is a value head of a sequence.
 * Items share nothing, and within an item tokens follow each other. Loops run along channels and values, which lie
 * together. */
#include <math.h>

#include "cpu.h"

/* Says whether a sequence, or its first position, is negative. */
static bool negative(const int32_t *sequences, const int32_t *positions, int64_t batch, int64_t seq) {
    for (int64_t b = 0; b < batch; b++)
        if ((sequences && sequences[b] < 0) || (positions && positions[b * seq] < 0)) return true;
    return false;
}

/* Where the state of batch entry b is read and written, as indices of states. */
typedef struct state_place {
    int64_t from, to;
    bool zero; /* nothing was computed yet */
} state_place;

static state_place place_of(const int32_t *sequences, const int32_t *positions, int64_t slots, int64_t seq, int64_t b) {
    const int64_t sequence = sequences ? sequences[b] : b, n = slots ? slots : 1;
    if (!positions) return (state_place){sequence * n, sequence * n, false};
    const int64_t position = positions[b * seq];
    return (state_place){sequence * n + position % n, sequence * n + (position + seq) % n, position == 0};
}

/* ---- causal_conv ------------------------------------------------------------------------------------------------- */

enum { CHANNELS = 64, MOST_TAPS = 8 }; /* of an item */

/* One token: rows[j] are the inputs of tap j. */
VB_INLINE void conv_body(float *out, const float *const *rows, const float *weight, int64_t taps, int64_t n) {
    float sums[CHANNELS] = {0};
    for (int64_t j = 0; j < taps; j++)
        for (int64_t c = 0; c < n; c++) sums[c] += weight[c * taps + j] * rows[j][c];
    for (int64_t c = 0; c < n; c++) out[c] = sums[c] / (1.0f + vb_expf(-sums[c]));
}

VB_TWINS(conv, (float *out, const float *const *rows, const float *weight, int64_t taps, int64_t n),
         (out, rows, weight, taps, n));

typedef struct conv_job {
    const vb_causal_conv_args *args;
    vb_simd simd;
    int64_t pieces; /* of the channels */
} conv_job;

static void conv_range(void *context, int worker, int64_t begin, int64_t end) {
    (void)worker;
    const conv_job *job = context;
    const vb_causal_conv_args *a = job->args;
    const int64_t kept = a->taps - 1, channels = a->channels;
    for (int64_t item = begin; item < end; item++) {
        const int64_t b = item / job->pieces, first = item % job->pieces * CHANNELS,
                      n = vb_min(CHANNELS, channels - first);
        const state_place place = place_of(a->sequences, a->positions, a->slots, a->seq, b);
        const float *const from = a->state + place.from * kept * channels + first;
        float *const state = a->state + place.to * kept * channels + first;
        float before[MOST_TAPS][CHANNELS] = {{0}};
        for (int64_t j = 0; j < kept && !place.zero; j++) memcpy(before[j], from + j * channels, (size_t)n * 4);
        const float *x = a->x + b * a->seq * channels + first;
        for (int64_t s = 0; s < a->seq; s++) {
            const float *rows[MOST_TAPS];
            for (int64_t j = 0; j < a->taps; j++)
                rows[j] = s + j < kept ? before[s + j] : x + (s + j - kept) * channels;
            conv[job->simd](a->out + (b * a->seq + s) * channels + first, rows, a->weight + first * a->taps, a->taps,
                            n);
        }
        for (int64_t j = 0; j < kept; j++) {
            const float *row = a->seq + j < kept ? before[a->seq + j] : x + (a->seq + j - kept) * channels;
            memcpy(state + j * channels, row, (size_t)n * 4);
        }
    }
}

vb_status vb_cpu_causal_conv(const vb_causal_conv_args *args, vb_stream *stream) {
    if (negative(args->sequences, args->positions, args->batch, args->seq)) return VB_INVALID_ARGUMENT;
    conv_job job = {args, vb_cpu_device_of(stream)->simd, (args->channels + CHANNELS - 1) / CHANNELS};
    vb_cpu_parallel(stream, args->batch * job.pieces, vb_cpu_grain(args->seq * args->taps * CHANNELS), conv_range,
                    &job);
    return VB_OK;
}

/* ---- gated_delta ------------------------------------------------------------------------------------------------- */

enum { VALUES = 64, MOST_KEY_DIM = 256 }; /* values that are computed together */

/* One token: values 0..n-1 of a state S, read at `from`, whose rows are `stride` apart. The new state S' = decay S +
 * k d gives S'^T q = decay S^T q + (k q) d: k q may be almost 0, so it comes with the accuracy of a double. */
VB_INLINE void delta_body(float *out, float *state, const float *from, int64_t stride, const float *q, const float *k,
                          float kq, const float *v, float decay, float beta, int64_t key_dim, int64_t n) {
    float delta[VALUES] = {0}, sums[VALUES] = {0};
    for (int64_t i = 0; i < key_dim; i++)
        for (int64_t d = 0; d < n; d++) {
            delta[d] += k[i] * from[i * stride + d];
            sums[d] += q[i] * from[i * stride + d];
        }
    for (int64_t d = 0; d < n; d++) delta[d] = beta * (v[d] - decay * delta[d]);
    for (int64_t i = 0; i < key_dim; i++)
        for (int64_t d = 0; d < n; d++) state[i * stride + d] = decay * from[i * stride + d] + k[i] * delta[d];
    for (int64_t d = 0; d < n; d++) out[d] = decay * sums[d] + kq * delta[d];
}

VB_TWINS(delta,
         (float *out, float *state, const float *from, int64_t stride, const float *q, const float *k, float kq,
          const float *v, float decay, float beta, int64_t key_dim, int64_t n),
         (out, state, from, stride, q, k, kq, v, decay, beta, key_dim, n));

/* out = in * scale / sqrt(sum of squares + eps); returns the factor */
static double normalize(float *out, const float *in, int64_t n, float eps, double scale) {
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += (double)in[i] * in[i];
    const double factor = scale / sqrt(sum + eps);
    for (int64_t i = 0; i < n; i++) out[i] = (float)(in[i] * factor);
    return factor;
}

static double dot(const float *a, const float *b, int64_t n) {
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += (double)a[i] * b[i];
    return sum;
}

typedef struct delta_job {
    const vb_gated_delta_args *args;
    vb_simd simd;
} delta_job;

static void delta_range(void *context, int worker, int64_t begin, int64_t end) {
    (void)worker;
    const delta_job *job = context;
    const vb_gated_delta_args *a = job->args;
    const int64_t dk = a->key_dim, dv = a->value_dim, keys = a->key_heads * dk, width = 2 * keys + a->value_heads * dv;
    float q[MOST_KEY_DIM], k[MOST_KEY_DIM];
    for (int64_t item = begin; item < end; item++) {
        const int64_t b = item / a->value_heads, head = item % a->value_heads;
        const int64_t key_head = a->interleaved ? head % a->key_heads : head / (a->value_heads / a->key_heads);
        const state_place place = place_of(a->sequences, a->positions, a->slots, a->seq, b);
        const float *from = a->state + (place.from * a->value_heads + head) * dk * dv;
        float *state = a->state + (place.to * a->value_heads + head) * dk * dv;
        if (place.zero) from = memset(state, 0, (size_t)(dk * dv) * 4);
        for (int64_t token = b * a->seq; token < (b + 1) * a->seq; token++) {
            const float *row = a->qkv + token * width, *v = row + 2 * keys + head * dv;
            const double x = (double)a->alpha[token * a->value_heads + head] + a->dt[head],
                         softplus = x > 30 ? x : log1p(exp(x));
            const float decay = (float)exp(a->a[head] * softplus);
            const float beta = (float)(1 / (1 + exp(-(double)a->beta[token * a->value_heads + head])));
            const float *query = row + key_head * dk, *key = query + keys;
            const double factor = normalize(q, query, dk, a->eps, 1 / sqrt((double)dk)) *
                                  normalize(k, key, dk, a->eps, 1);
            const float kq = (float)(dot(query, key, dk) * factor);
            float *out = a->out + (token * a->value_heads + head) * dv;
            for (int64_t d = 0; d < dv; d += VALUES)
                delta[job->simd](out + d, state + d, from + d, dv, q, k, kq, v + d, decay, beta, dk,
                                 vb_min(VALUES, dv - d));
            from = state;
        }
    }
}

vb_status vb_cpu_gated_delta(const vb_gated_delta_args *args, vb_stream *stream) {
    if (negative(args->sequences, args->positions, args->batch, args->seq)) return VB_INVALID_ARGUMENT;
    delta_job job = {args, vb_cpu_device_of(stream)->simd};
    const int64_t work = args->seq * args->key_dim * args->value_dim;
    vb_cpu_parallel(stream, args->batch * args->value_heads, vb_cpu_grain(work), delta_range, &job);
    return VB_OK;
}
