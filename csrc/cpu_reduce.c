/* cpu_reduce.c: reductions over dimensions of strided arrays, cumulative sums, and elements at places in memory.
 *
 * Sums are float64. Where results lie closer than the elements of a result, a block of results is computed at a time,
 * so that memory is read in its order. */
#include <math.h>
#include <stdatomic.h>

#include "cpu.h"
#include "strided.h"

enum { PIECE = 256 };

/* ---- reductions -------------------------------------------------------------------------------------------------- */

/* The state of a result after the elements so far. */
typedef struct state {
    double a, b;
    int64_t i, n, at; /* integers; elements; the number of the one that is kept */
} state;

typedef struct reduce_job {
    vb_reduce_dims dims;
    vb_reduction reduction;
    float parameter;
    bool ints;
    int64_t block; /* results at a time, along the last kept dimension */
    vb_simd simd;
} reduce_job;

static state begin_state(vb_reduction r) {
    return (state){.a = r == VB_REDUCTION_PROD ? 1 : r == VB_REDUCTION_LOGSUMEXP ? -HUGE_VAL : 0,
                   .i = r == VB_REDUCTION_PROD || r == VB_REDUCTION_ALL};
}

VB_INLINE double load_one(const vb_view *v, int64_t at) {
    switch (v->type) {
    case VB_F32: return ((const float *)v->data)[at];
    case VB_F16: return vb_half_float(((const uint16_t *)v->data)[at]);
    case VB_BF16: return vb_bfloat_float(((const uint16_t *)v->data)[at]);
    case VB_I32: return ((const int32_t *)v->data)[at];
    case VB_I8: return ((const int8_t *)v->data)[at];
    case VB_U8: return ((const uint8_t *)v->data)[at];
    default: return ((const uint8_t *)v->data)[at] != 0;
    }
}

static void store_one(const vb_view *v, int64_t at, float f, int32_t i) {
    switch (v->type) {
    case VB_F32: ((float *)v->data)[at] = f; break;
    case VB_F16: ((uint16_t *)v->data)[at] = vb_float_half(f); break;
    case VB_BF16: ((uint16_t *)v->data)[at] = vb_float_bfloat(f); break;
    case VB_I32: ((int32_t *)v->data)[at] = i; break;
    case VB_BOOL: ((uint8_t *)v->data)[at] = i != 0; break;
    default: ((uint8_t *)v->data)[at] = (uint8_t)i; break;
    }
}

/* Takes n elements: all into one state where step is 0, else each into its own. Doubles hold integers exactly. */
static void take(const reduce_job *j, state *s, int64_t step, const double *x, int64_t n) {
#define TAKE_EACH(...) \
    for (int64_t k = 0; k < n; k++, s += step) { \
        s->n++; \
        __VA_ARGS__; \
    } \
    break
    switch (j->reduction) {
    case VB_REDUCTION_SUM:
    case VB_REDUCTION_MEAN:
        if (step == 0) {
            double sums[8] = {0}, sum = 0;
            int64_t whole = 0, k = 0;
            for (; k + 8 <= n; k += 8)
                for (int e = 0; e < 8; e++) sums[e] += x[k + e];
            for (; k < n; k++) sums[k % 8] += x[k];
            for (int e = 0; e < 8; e++) {
                sum += sums[e];
                if (j->ints) whole += (int64_t)sums[e];
            }
            s->a += sum, s->i += whole, s->n += n;
            break;
        }
        TAKE_EACH(s->a += x[k]; if (j->ints) s->i += (int64_t)x[k]);
    case VB_REDUCTION_PROD: TAKE_EACH(if (j->ints) s->i = (int32_t)(uint32_t)(s->i * (int64_t)x[k]); else s->a *= x[k]);
    case VB_REDUCTION_MAX:
    case VB_REDUCTION_ARGMAX:
        TAKE_EACH(if (s->n == 1 || x[k] > s->a || (x[k] != x[k] && s->a == s->a)) s->a = x[k], s->at = s->n - 1);
    case VB_REDUCTION_MIN:
    case VB_REDUCTION_ARGMIN:
        TAKE_EACH(if (s->n == 1 || x[k] < s->a || (x[k] != x[k] && s->a == s->a)) s->a = x[k], s->at = s->n - 1);
    case VB_REDUCTION_ANY: TAKE_EACH(s->i |= x[k] != 0);
    case VB_REDUCTION_ALL: TAKE_EACH(s->i &= x[k] != 0);
    case VB_REDUCTION_VAR: /* Welford's */
        TAKE_EACH(const double d = x[k] - s->a; s->a += d / (double)s->n; s->b += d * (x[k] - s->a));
    case VB_REDUCTION_NORM:
        TAKE_EACH(const double y = fabs(x[k]);
                  if (j->parameter <= 2) s->a += j->parameter == 1 ? y : y * y;
                  else if (y > s->a || y != y) s->a = y);
    case VB_REDUCTION_LOGSUMEXP:
        TAKE_EACH(if (x[k] == s->a) s->b += x[k] != -HUGE_VAL;
                  else if (x[k] > s->a) s->b = s->b * exp(s->a - x[k]) + 1, s->a = x[k];
                  else if (x[k] != -HUGE_VAL) s->b += exp(x[k] - s->a));
    }
}

/* Whether the job adds floats, as most reductions do: sums of a row or of columns then are loops of their own. */
static bool adds_floats(const reduce_job *j) {
    return !j->ints && (j->reduction == VB_REDUCTION_SUM || j->reduction == VB_REDUCTION_MEAN);
}

/* n neighbours from a place on, as they lie where they are F32, else in `room`. */
static const float *floats_at(const vb_view *v, int64_t at, int64_t n, float *room, vb_simd simd) {
    const char *const from = (const char *)v->data + at * vb_element_bytes(v->type);
    if (v->type == VB_F32) return (const float *)(const void *)from;
    vb_cpu_load(room, from, v->type, n, simd);
    return room;
}

/* Adds n elements to one sum. */
VB_INLINE void add_row_body(double *sum, const float *x, int64_t n) {
    double sums[32] = {0};
    int64_t k = 0;
    for (; k + 32 <= n; k += 32)
        for (int e = 0; e < 32; e++) sums[e] += (double)x[k + e];
    for (; k < n; k++) sums[k % 32] += (double)x[k];
    for (int half = 16; half > 0; half /= 2)
        for (int e = 0; e < half; e++) sums[e] += sums[e + half];
    *sum += sums[0];
}
VB_TWINS(add_row, (double *sum, const float *x, int64_t n), (sum, x, n));

/* Adds n elements to a sum each. */
VB_INLINE void add_columns_body(double *restrict sums, const float *restrict x, int64_t n) {
    for (int64_t k = 0; k < n; k++) sums[k] += (double)x[k];
}
VB_TWINS(add_columns, (double *sums, const float *x, int64_t n), (sums, x, n));

static void finish(const reduce_job *j, const state *s, int64_t at) {
    double f = s->a;
    int64_t i = s->i;
    switch (j->reduction) {
    case VB_REDUCTION_MEAN: f /= (double)s->n; break;
    case VB_REDUCTION_MAX:
    case VB_REDUCTION_MIN: i = j->ints ? (int64_t)s->a : 0; break;
    case VB_REDUCTION_ARGMAX:
    case VB_REDUCTION_ARGMIN: i = s->at; break;
    case VB_REDUCTION_VAR: f = s->b / fmax(0, (double)s->n - (double)j->parameter); break;
    case VB_REDUCTION_NORM: f = j->parameter == 2 ? sqrt(f) : f; break;
    case VB_REDUCTION_LOGSUMEXP: f += log(s->b); break;
    default: break;
    }
    store_one(&j->dims.out, at, (float)f, (int32_t)(uint32_t)i);
}

static void reduce_range(void *context, int worker, int64_t begin, int64_t end) {
    (void)worker;
    const reduce_job *j = context;
    const vb_reduce_dims *d = &j->dims;
    const int last_kept = d->kept_rank - 1, last = d->reduced_rank - 1;
    state states[PIECE];
    double x[PIECE];
    for (int64_t unit = begin; unit < end; unit++) {
        const int64_t per_row = (d->kept[last_kept] + j->block - 1) / j->block;
        const int64_t first = unit / per_row * d->kept[last_kept] + unit % per_row * j->block;
        const int64_t count = vb_min(j->block, d->kept[last_kept] - unit % per_row * j->block);
        const int64_t from = vb_place(&d->in, d->kept, d->kept_rank, first), step = d->in.strides[last_kept];
        for (int64_t k = 0; k < count; k++) states[k] = begin_state(j->reduction);
        if (count > 1 && step == 1 && adds_floats(j)) {
            memset(x, 0, sizeof x);
            float room[PIECE];
            for (int64_t p = 0; p < d->places; p++) {
                const int64_t at = from + vb_place(&d->within, d->reduced, d->reduced_rank, p);
                add_columns[j->simd](x, floats_at(&d->in, at, count, room, j->simd), count);
            }
            for (int64_t k = 0; k < count; k++) states[k].a = x[k], states[k].n = d->places;
        } else if (count > 1) {
            for (int64_t p = 0; p < d->places; p++) {
                const int64_t at = from + vb_place(&d->within, d->reduced, d->reduced_rank, p);
                for (int64_t k = 0; k < count; k++) x[k] = load_one(&d->in, at + k * step);
                take(j, states, 1, x, count);
            }
        } else {
            const int64_t run = d->reduced[last], along = d->within.strides[last];
            for (int64_t p = 0; p < d->places; p += run) {
                const int64_t at = from + vb_place(&d->within, d->reduced, d->reduced_rank, p);
                for (int64_t r = 0; r < run; r += PIECE) {
                    const int64_t n = vb_min(PIECE, run - r);
                    if (along == 1 && vb_is_float(d->in.type)) {
                        float room[PIECE];
                        const float *const f = floats_at(&d->in, at + r, n, room, j->simd);
                        if (adds_floats(j)) {
                            add_row[j->simd](&states[0].a, f, n);
                            states[0].n += n;
                            continue;
                        }
                        for (int64_t k = 0; k < n; k++) x[k] = (double)f[k];
                    } else {
                        for (int64_t k = 0; k < n; k++) x[k] = load_one(&d->in, at + (r + k) * along);
                    }
                    take(j, states, 0, x, n);
                }
            }
        }
        const int64_t to = vb_place(&d->out, d->kept, d->kept_rank, first);
        for (int64_t k = 0; k < count; k++) finish(j, &states[k], to + k * d->out.strides[last_kept]);
    }
}

vb_status vb_cpu_reduce(const vb_reduce_args *args, vb_stream *stream) {
    reduce_job job = {.reduction = args->reduction, .parameter = args->parameter, .ints = vb_is_integer(args->in.type),
                      .simd = vb_cpu_device_of(stream)->simd};
    vb_reduce_dims *d = &job.dims;
    vb_reduce_split(d, args);
    const int last_kept = d->kept_rank - 1;
    const bool columns = d->in.strides[last_kept] < d->within.strides[d->reduced_rank - 1];
    job.block = columns ? vb_min(PIECE, d->kept[last_kept]) : 1;
    const int64_t per_row = (d->kept[last_kept] + job.block - 1) / job.block;
    const int64_t units = d->results / d->kept[last_kept] * per_row;
    vb_cpu_parallel(stream, units, vb_cpu_grain(job.block * d->places), reduce_range, &job);
    return VB_OK;
}

/* ---- cumulative sums --------------------------------------------------------------------------------------------- */

typedef struct cumsum_job {
    void *out;
    const void *in;
    vb_dtype type;
    int64_t n, cols;
} cumsum_job;

/* An item is PIECE columns of a row. */
static void cumsum_range(void *context, int worker, int64_t begin, int64_t end) {
    (void)worker;
    const cumsum_job *j = context;
    const vb_view in = {(void *)(uintptr_t)j->in, j->type, {1}}, out = {j->out, j->type, {1}};
    const int64_t pieces = (j->cols + PIECE - 1) / PIECE;
    for (int64_t item = begin; item < end; item++) {
        const int64_t row = item / pieces, first = item % pieces * PIECE, count = vb_min(PIECE, j->cols - first);
        double sums[PIECE] = {0};
        uint32_t whole[PIECE] = {0};
        for (int64_t i = 0; i < j->n; i++) {
            const int64_t at = (row * j->n + i) * j->cols + first;
            for (int64_t c = 0; c < count; c++) {
                if (j->type == VB_I32) whole[c] += (uint32_t)((const int32_t *)j->in)[at + c];
                else sums[c] += load_one(&in, at + c);
                store_one(&out, at + c, (float)sums[c], (int32_t)whole[c]);
            }
        }
    }
}

vb_status vb_cpu_cumsum(void *out, const void *in, vb_dtype type, int64_t rows, int64_t n, int64_t cols,
                        vb_stream *stream) {
    cumsum_job job = {out, in, type, n, cols};
    const int64_t items = rows * ((cols + PIECE - 1) / PIECE);
    vb_cpu_parallel(stream, items, vb_cpu_grain(n * vb_min(cols, PIECE)), cumsum_range, &job);
    return VB_OK;
}

/* ---- elements at places in memory -------------------------------------------------------------------------------- */

typedef struct index_job {
    vb_view named, other, ids; /* strides along the dimensions of ids; named without that along dim */
    int64_t sizes[VB_MAX_DIMS], places, step;
    int rank, bytes;
    vb_indexing indexing;
    vb_dtype type;
    atomic_bool outside;
} index_job;

/* Moves n elements of neighbouring places, or adds them. */
static void index_run(const index_job *j, char *x, int64_t x_step, char *y, int64_t y_step, int64_t n) {
    const int64_t bytes = j->bytes;
    if (j->indexing == VB_INDEXING_SCATTER_ADD) {
        for (int64_t i = 0; i < n; i++) {
            if (j->type == VB_F32) ((float *)(void *)x)[i * x_step] += ((float *)(void *)y)[i * y_step];
            else ((uint32_t *)(void *)x)[i * x_step] += ((uint32_t *)(void *)y)[i * y_step];
        }
        return;
    }
    const bool gathers = j->indexing == VB_INDEXING_GATHER;
    char *const to = gathers ? y : x, *const from = gathers ? x : y;
    const int64_t to_step = bytes * (gathers ? y_step : x_step), from_step = bytes * (gathers ? x_step : y_step);
    if (n == 1 || (x_step == 1 && y_step == 1)) memcpy(to, from, (size_t)(n * bytes));
    else
        for (int64_t i = 0; i < n; i++) memcpy(to + i * to_step, from + i * from_step, (size_t)bytes);
}

/* Rows along the last dimension: one id may lead all of a row. */
static void index_range(void *context, int worker, int64_t begin, int64_t end) {
    (void)worker;
    index_job *const j = context;
    const int last = j->rank - 1;
    const int64_t n = j->sizes[last], x_step = j->named.strides[last], y_step = j->other.strides[last];
    for (; begin < end; begin++) {
        const int32_t *const ids = (const int32_t *)j->ids.data + vb_place(&j->ids, j->sizes, last, begin);
        char *const x = (char *)j->named.data + vb_place(&j->named, j->sizes, last, begin) * j->bytes;
        char *const y = (char *)j->other.data + vb_place(&j->other, j->sizes, last, begin) * j->bytes;
        const int64_t id_step = j->ids.strides[last], together = id_step == 0 ? n : 1;
        for (int64_t i = 0; i < n; i += together) {
            const int32_t id = ids[i * id_step];
            if (id < 0 || id >= j->places) atomic_store(&j->outside, true);
            else index_run(j, x + (i * x_step + id * j->step) * j->bytes, x_step, y + i * y_step * j->bytes, y_step,
                           together);
        }
    }
}

vb_status vb_cpu_index(const vb_index_args *a, vb_stream *stream) {
    const bool gathers = a->indexing == VB_INDEXING_GATHER;
    index_job j = {.named = gathers ? a->in : a->out, .other = gathers ? a->out : a->in, .ids = a->ids,
                   .places = (gathers ? a->in_sizes : a->out_sizes)[a->dim], .bytes = vb_element_bytes(a->in.type),
                   .indexing = a->indexing, .type = a->in.type};
    memcpy(j.sizes, a->ids_sizes, sizeof j.sizes);
    j.step = j.named.strides[a->dim];
    j.named.strides[a->dim] = 0;
    vb_view *const views[] = {&j.named, &j.other, &j.ids};
    j.rank = vb_join_dims(j.sizes, a->rank, views, 3);
    int64_t rows = 1;
    for (int d = 0; d + 1 < j.rank; d++) rows *= j.sizes[d];
    /* Scattered elements may share a place: one thread. */
    if (gathers) vb_cpu_parallel(stream, rows, vb_cpu_grain(j.sizes[j.rank - 1]), index_range, &j);
    else index_range(&j, 0, 0, rows);
    if (!atomic_load(&j.outside)) return VB_OK;
    stream->invalid_argument = "ids: outside of the dimension";
    return VB_INVALID_ARGUMENT;
}
