/* cpu_moe.c: mixtures of experts: the router, products with the chosen experts alone, and their weighted sum. */
#include <math.h>
#include <stdlib.h>

#include "cpu_linear.h"

/* ---- route ------------------------------------------------------------------------------------------------------- */

enum { MOST_EXPERTS = 1024 };

/* NaN above all. */
static inline bool greater(float a, float b) { return a > b || (a != a && b == b); }

/* The index of the greatest value that is not taken, the lowest among equals; the value is taken from then on. */
static int64_t take_best(const float *values, bool *taken, int64_t n) {
    int64_t best = -1;
    for (int64_t i = 0; i < n; i++)
        if (!taken[i] && (best < 0 || greater(values[i], values[best]))) best = i;
    taken[best] = true;
    return best;
}

/* Marks the experts of all groups but the best as taken. */
static void leave_groups(const vb_route_args *a, const float *values, bool *taken) {
    float scores[MOST_EXPERTS];
    bool used[MOST_EXPERTS] = {false};
    const int64_t size = a->experts / a->groups;
    for (int64_t g = 0; g < a->groups; g++) {
        const float *of_group = values + g * size;
        const int64_t first = take_best(of_group, taken + g * size, size);
        scores[g] = of_group[first];
        if (!a->group_by_best && size > 1) scores[g] += of_group[take_best(of_group, taken + g * size, size)];
    }
    for (int64_t i = 0; i < a->groups_used; i++) take_best(scores, used, a->groups);
    for (int64_t e = 0; e < a->experts; e++) taken[e] = !used[e / size];
}

static void route_row(const vb_route_args *a, int64_t row) {
    float scores[MOST_EXPERTS], values[MOST_EXPERTS];
    bool taken[MOST_EXPERTS] = {false};
    const float *logits = a->logits + row * a->experts;
    float max = logits[0], sum = 0;
    for (int64_t e = 1; e < a->experts; e++) max = greater(logits[e], max) ? logits[e] : max;
    for (int64_t e = 0; e < a->experts; e++) {
        scores[e] = a->gating == VB_GATING_SIGMOID ? 1.0f / (1.0f + vb_expf(-logits[e])) : vb_expf(logits[e] - max);
        sum += scores[e];
    }
    for (int64_t e = 0; e < a->experts; e++) {
        if (a->gating == VB_GATING_SOFTMAX) scores[e] /= sum;
        /* Scores rise with logits, which have no ties that rounding made. */
        values[e] = a->bias || a->groups ? scores[e] + (a->bias ? a->bias[e] : 0) : logits[e];
    }
    if (a->groups > 0) leave_groups(a, values, taken);
    int32_t *ids = a->ids + row * a->k;
    float *weights = a->weights + row * a->k, chosen = 0;
    for (int64_t j = 0; j < a->k; j++) {
        ids[j] = (int32_t)take_best(values, taken, a->experts);
        weights[j] = scores[ids[j]];
        chosen += weights[j];
    }
    const bool divided = a->normalized || a->gating == VB_GATING_SOFTMAX_CHOSEN;
    const float factor = divided && chosen != 0 ? a->scale / chosen : a->scale;
    for (int64_t j = 0; j < a->k; j++) weights[j] *= factor;
}

static void route_range(void *context, int worker, int64_t begin, int64_t end) {
    (void)worker;
    for (int64_t row = begin; row < end; row++) route_row(context, row);
}

vb_status vb_cpu_route(const vb_route_args *args, vb_stream *stream) {
    vb_cpu_parallel(stream, args->n, vb_cpu_grain(args->experts * (args->k + 8)), route_range, (void *)args);
    return VB_OK;
}

/* ---- expert_linear ----------------------------------------------------------------------------------------------- */

vb_status vb_cpu_expert_linear(const vb_expert_linear_args *args, vb_stream *stream) {
    const vb_expert_linear_args *a = args;
    const int64_t choices = a->n * a->k;
    for (int64_t i = 0; i < choices; i++)
        if (a->ids[i] < 0 || a->ids[i] >= a->experts) return VB_INVALID_ARGUMENT;
    if (a->n == 1) return vb_cpu_linear_choices(a, stream);
    /* A counting sort: the choices of expert e end up at order[ends[e - 1]..ends[e]). */
    int64_t *ends = calloc((size_t)a->experts + (size_t)choices, sizeof *ends), *order = ends + a->experts;
    if (!ends) return VB_OUT_OF_MEMORY;
    for (int64_t i = 0; i < choices; i++) ends[a->ids[i]]++;
    for (int64_t e = 0, end = 0; e < a->experts; e++) {
        const int64_t begin = end;
        end += ends[e];
        ends[e] = begin;
    }
    for (int64_t i = 0; i < choices; i++) order[ends[a->ids[i]]++] = i;
    const vb_status status = vb_cpu_linear_experts(a, order, ends, stream);
    free(ends);
    return status;
}

/* ---- expert_sum -------------------------------------------------------------------------------------------------- */

VB_INLINE void add_scaled_body(float *out, const float *y, float weight, int64_t n) {
    for (int64_t i = 0; i < n; i++) out[i] += weight * y[i];
}

VB_TWINS(add_scaled, (float *out, const float *y, float weight, int64_t n), (out, y, weight, n));

typedef struct sum_job {
    float *out;
    const float *add, *y, *weights;
    int64_t k, cols;
    vb_simd simd;
} sum_job;

static void sum_range(void *context, int worker, int64_t begin, int64_t end) {
    (void)worker;
    const sum_job *s = context;
    for (int64_t row = begin; row < end; row++) {
        float *out = s->out + row * s->cols;
        if (!s->add)
            memset(out, 0, (size_t)s->cols * 4);
        else if (s->add != s->out)
            memcpy(out, s->add + row * s->cols, (size_t)s->cols * 4);
        for (int64_t i = row * s->k; i < (row + 1) * s->k; i++)
            add_scaled[s->simd](out, s->y + i * s->cols, s->weights ? s->weights[i] : 1.0f, s->cols);
    }
}

vb_status vb_cpu_expert_sum(float *out, const float *add, const float *y, const float *weights, int64_t n, int64_t k,
                            int64_t cols, vb_stream *stream) {
    sum_job job = {out, add, y, weights, k, cols, vb_cpu_device_of(stream)->simd};
    vb_cpu_parallel(stream, n, vb_cpu_grain(cols * (k + 1)), sum_range, &job);
    return VB_OK;
}
