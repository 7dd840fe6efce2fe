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

/* What is known of up to PIECE results so far, of as many elements each. Elements are float64, integers too, which are
 * exact so; their sums and products are in `i`. */
typedef struct states {
    double a[PIECE], b[PIECE];
    int64_t i[PIECE], at[PIECE]; /* at: the number of the element that is kept */
    int64_t n;
} states;

typedef struct reduce_job {
    vb_reduce_dims dims;
    vb_reduction reduction;
    float parameter;
    bool ints;
    int64_t block; /* results at a time, along the last kept dimension */
    vb_simd simd;
} reduce_job;

static void begin_states(states *s, vb_reduction r, int64_t count) {
    for (int64_t k = 0; k < count; k++) {
        s->a[k] = r == VB_REDUCTION_PROD ? 1
                  : r == VB_REDUCTION_MAX || r == VB_REDUCTION_ARGMAX || r == VB_REDUCTION_LOGSUMEXP ? -HUGE_VAL
                  : r == VB_REDUCTION_MIN || r == VB_REDUCTION_ARGMIN ? HUGE_VAL : 0;
        s->b[k] = 0, s->at[k] = 0;
        s->i[k] = r == VB_REDUCTION_PROD || r == VB_REDUCTION_ALL;
    }
    s->n = 0;
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

#define EACH for (int64_t k = 0; k < n; k++)

/* n elements from a place on, `step` apart. */
VB_INLINE void load_body(double *restrict x, const vb_view *v, int64_t at, int64_t step, int64_t n) {
    if (step == 1 && v->type == VB_F32) {
        const float *const f = (const float *)v->data + at;
        EACH x[k] = (double)f[k];
    } else if (step == 1 && v->type == VB_I32) {
        const int32_t *const i = (const int32_t *)v->data + at;
        EACH x[k] = i[k];
    } else if (step == 1 && v->type == VB_U8) {
        const uint8_t *const u = (const uint8_t *)v->data + at;
        EACH x[k] = u[k];
    } else if (step == 1 && v->type == VB_BOOL) {
        const uint8_t *const u = (const uint8_t *)v->data + at;
        EACH x[k] = u[k] != 0;
    } else {
        EACH x[k] = load_one(v, at + k * step);
    }
}
VB_TWINS(load, (double *x, const vb_view *v, int64_t at, int64_t step, int64_t n), (x, v, at, step, n));

/* load of a job's elements; those of 16 bits through float32. */
static void load_piece(const reduce_job *j, double *x, int64_t at, int64_t step, int64_t n) {
    const vb_view *v = &j->dims.in;
    float room[PIECE];
    const vb_view floats = {room, VB_F32, {1}};
    if (step == 1 && (v->type == VB_F16 || v->type == VB_BF16)) {
        vb_cpu_load(room, (const uint16_t *)v->data + at, v->type, n, j->simd);
        v = &floats, at = 0;
    }
    load[j->simd](x, v, at, step, n);
}

/* Whether the job adds floats, as most reductions do, or compares them. Neighbours then have loops of their own. */
static bool takes_floats(const reduce_job *j) {
    return vb_is_float(j->dims.in.type) &&
           (j->reduction == VB_REDUCTION_SUM || j->reduction == VB_REDUCTION_MEAN || j->reduction == VB_REDUCTION_MAX ||
            j->reduction == VB_REDUCTION_MIN || j->reduction == VB_REDUCTION_LOGSUMEXP);
}
static bool adds_floats(const reduce_job *j) {
    return j->dims.in.type == VB_F32 && (j->reduction == VB_REDUCTION_SUM || j->reduction == VB_REDUCTION_MEAN);
}

/* Whether x takes the place of a greatest value a: NaN is the greatest. */
#define ABOVE(x, a) (((x) > (a)) | (((x) != (x)) & ((a) == (a))))
#define BELOW(x, a) (((x) < (a)) | (((x) != (x)) & ((a) == (a))))

/* Lanes of a row of n floats: element k is y of lane k % LANES. */
enum { LANES = 32 };
#define EACH_LANE(statement) \
    do { \
        int64_t k = 0; \
        for (; k + LANES <= n; k += LANES) \
            for (int e = 0; e < LANES; e++) { \
                const float y = x[k + e]; \
                statement; \
            } \
        for (int e = 0; k < n; k++, e++) { \
            const float y = x[k]; \
            statement; \
        } \
    } while (0)

VB_INLINE double sum_of_lanes(double *lanes) {
    for (int half = LANES / 2; half > 0; half /= 2)
        for (int e = 0; e < half; e++) lanes[e] += lanes[e + half];
    return lanes[0];
}

/* The greatest of sign times each element, NaN where one is. */
VB_INLINE double most_of(const float *x, float sign, int64_t n) {
    float most[LANES];
    uint32_t nan[LANES] = {0};
    for (int e = 0; e < LANES; e++) most[e] = -HUGE_VALF;
    EACH_LANE(most[e] = sign * y > most[e] ? sign * y : most[e]; nan[e] |= y != y);
    for (int e = 1; e < LANES; e++) {
        most[0] = most[e] > most[0] ? most[e] : most[0];
        nan[0] |= nan[e];
    }
    return nan[0] ? (double)NAN : (double)most[0];
}

/* Takes n floats of one result. */
VB_INLINE void take_floats_body(vb_reduction reduction, states *s, const float *x, int64_t n) {
    double sums[LANES] = {0};
    s->n += n;
    if (reduction == VB_REDUCTION_SUM || reduction == VB_REDUCTION_MEAN) {
        EACH_LANE(sums[e] += (double)y);
        s->a[0] += sum_of_lanes(sums);
    } else if (reduction == VB_REDUCTION_MIN) {
        const double least = -most_of(x, -1, n);
        s->a[0] = BELOW(least, s->a[0]) ? least : s->a[0];
    } else {
        const double found = most_of(x, 1, n), most = ABOVE(found, s->a[0]) ? found : s->a[0];
        if (reduction == VB_REDUCTION_LOGSUMEXP) {
            const double down = s->a[0] == most ? 0 : s->a[0] - most;
            const float top = (float)most;
            if (most > -HUGE_VAL && most < HUGE_VAL) EACH_LANE(sums[e] += (double)vb_expf(y - top));
            else if (most == HUGE_VAL) sums[0] = 1;
            s->b[0] = s->b[0] * (double)vb_expf((float)down) + sum_of_lanes(sums);
        }
        s->a[0] = most;
    }
}
VB_TWINS(take_floats, (vb_reduction reduction, states *s, const float *x, int64_t n), (reduction, s, x, n));

/* Adds n elements to a sum each. */
VB_INLINE void add_columns_body(double *restrict sums, const float *restrict x, int64_t n) {
    for (int64_t k = 0; k < n; k++) sums[k] += (double)x[k];
}
VB_TWINS(add_columns, (double *sums, const float *x, int64_t n), (sums, x, n));

/* Keeps the greatest, or the least, of n floats and n elements. */
VB_INLINE void most_columns_body(bool greatest, float *restrict kept, const float *restrict x, int64_t n) {
    if (greatest) EACH kept[k] = ABOVE(x[k], kept[k]) ? x[k] : kept[k];
    else EACH kept[k] = BELOW(x[k], kept[k]) ? x[k] : kept[k];
}
VB_TWINS(most_columns, (bool greatest, float *kept, const float *x, int64_t n), (greatest, kept, x, n));

/* Takes one element more of each of n results. */
VB_INLINE void take_each_body(vb_reduction reduction, float parameter, bool ints, states *restrict s,
                              const double *restrict x, int64_t n) {
    const double count = (double)++s->n;
    switch (reduction) {
    case VB_REDUCTION_SUM:
    case VB_REDUCTION_MEAN:
        if (ints) EACH s->i[k] += (int64_t)x[k];
        else EACH s->a[k] += x[k];
        break;
    case VB_REDUCTION_PROD:
        if (ints) EACH s->i[k] = (int32_t)((uint32_t)s->i[k] * (uint32_t)(int32_t)x[k]);
        else EACH s->a[k] *= x[k];
        break;
    case VB_REDUCTION_MAX: EACH s->a[k] = ABOVE(x[k], s->a[k]) ? x[k] : s->a[k]; break;
    case VB_REDUCTION_MIN: EACH s->a[k] = BELOW(x[k], s->a[k]) ? x[k] : s->a[k]; break;
    case VB_REDUCTION_ARGMAX:
        EACH s->at[k] = ABOVE(x[k], s->a[k]) ? s->n - 1 : s->at[k];
        EACH s->a[k] = ABOVE(x[k], s->a[k]) ? x[k] : s->a[k];
        break;
    case VB_REDUCTION_ARGMIN:
        EACH s->at[k] = BELOW(x[k], s->a[k]) ? s->n - 1 : s->at[k];
        EACH s->a[k] = BELOW(x[k], s->a[k]) ? x[k] : s->a[k];
        break;
    case VB_REDUCTION_ANY: EACH s->i[k] |= x[k] != 0; break;
    case VB_REDUCTION_ALL: EACH s->i[k] &= x[k] != 0; break;
    case VB_REDUCTION_VAR: /* Welford's */
        EACH {
            const double d = x[k] - s->a[k], mean = s->a[k] + d / count;
            s->b[k] += d * (x[k] - mean);
            s->a[k] = mean;
        }
        break;
    case VB_REDUCTION_NORM:
        if (parameter == 1) EACH s->a[k] += fabs(x[k]);
        else if (parameter == 2) EACH s->a[k] += x[k] * x[k];
        else EACH s->a[k] = ABOVE(fabs(x[k]), s->a[k]) ? fabs(x[k]) : s->a[k];
        break;
    case VB_REDUCTION_LOGSUMEXP: /* b exp(a); the difference of equal infinities is 0 here */
        EACH {
            const double most = ABOVE(x[k], s->a[k]) ? x[k] : s->a[k];
            const double down = s->a[k] == most ? 0 : s->a[k] - most, under = x[k] == most ? 0 : x[k] - most;
            s->b[k] = s->b[k] * (double)vb_expf((float)down) + (double)vb_expf((float)under);
            s->a[k] = most;
        }
        break;
    }
}
VB_TWINS(take_each, (vb_reduction r, float p, bool ints, states *s, const double *x, int64_t n), (r, p, ints, s, x, n));

/* The expression of what a lane has, `a`, and of each LANES-th element, `y`; COMBINE then makes one of all lanes. */
#define LANED(first, expression) \
    do { \
        double lanes[LANES]; \
        for (int e = 0; e < LANES; e++) lanes[e] = (first); \
        for (int64_t k = 0; k < n; k += LANES) \
            for (int e = 0; e < LANES; e++) { \
                const double a = lanes[e], y = x[k + e]; \
                lanes[e] = (expression); \
            } \
        total = lanes[0]; \
        for (int e = 1; e < LANES; e++) { \
            const double a = total, y = lanes[e]; \
            total = COMBINE; \
        } \
    } while (0)

/* Takes n elements of one result. x has room behind them, up to a multiple of LANES. */
VB_INLINE void take_row_body(vb_reduction reduction, float parameter, bool ints, states *s, double *x, int64_t n) {
    const int64_t count = n, before = s->n;
    double total = 0, *const kept = s->a;
    const bool greatest = reduction == VB_REDUCTION_MAX || reduction == VB_REDUCTION_ARGMAX ||
                          reduction == VB_REDUCTION_LOGSUMEXP;
    const double idle = reduction == VB_REDUCTION_PROD || reduction == VB_REDUCTION_ALL ? 1
                        : greatest ? -HUGE_VAL
                        : reduction == VB_REDUCTION_MIN || reduction == VB_REDUCTION_ARGMIN ? HUGE_VAL : 0;
    for (; n % LANES; n++) x[n] = idle;
    s->n += count;
    switch (reduction) {
    case VB_REDUCTION_PROD:
        if (ints) {
            for (int64_t k = 0; k < count; k++)
                s->i[0] = (int32_t)((uint32_t)s->i[0] * (uint32_t)(int32_t)x[k]);
            break;
        }
#define COMBINE a * y
        LANED(1, a * y);
#undef COMBINE
        kept[0] *= total;
        break;
    case VB_REDUCTION_MAX:
    case VB_REDUCTION_ARGMAX:
    case VB_REDUCTION_LOGSUMEXP:
#define COMBINE (ABOVE(y, a) ? y : a)
        LANED(-HUGE_VAL, COMBINE);
        if (reduction == VB_REDUCTION_LOGSUMEXP) {
            const double most = ABOVE(total, kept[0]) ? total : kept[0];
            const double down = kept[0] == most ? 0 : kept[0] - most;
            double sum = 0;
#undef COMBINE
#define COMBINE a + y
            if (most > -HUGE_VAL && most < HUGE_VAL) {
                LANED(0, a + (double)vb_expf((float)(y - most)));
                sum = total;
            }
            s->b[0] = s->b[0] * (double)vb_expf((float)down) + (most == HUGE_VAL ? 1 : sum);
            kept[0] = most;
            break;
        }
        if (reduction == VB_REDUCTION_ARGMAX && ABOVE(total, kept[0]))
            for (int64_t k = 0; k < count; k++)
                if (x[k] == total || (x[k] != x[k])) {
                    s->at[0] = before + k;
                    break;
                }
        kept[0] = ABOVE(total, kept[0]) ? total : kept[0];
        break;
#undef COMBINE
    case VB_REDUCTION_MIN:
    case VB_REDUCTION_ARGMIN:
#define COMBINE (BELOW(y, a) ? y : a)
        LANED(HUGE_VAL, COMBINE);
        if (reduction == VB_REDUCTION_ARGMIN && BELOW(total, kept[0]))
            for (int64_t k = 0; k < count; k++)
                if (x[k] == total || (x[k] != x[k])) {
                    s->at[0] = before + k;
                    break;
                }
        kept[0] = BELOW(total, kept[0]) ? total : kept[0];
        break;
#undef COMBINE
#define COMBINE a + y
    case VB_REDUCTION_ANY:
    case VB_REDUCTION_ALL:
        LANED(0, a + (y != 0));
        if (reduction == VB_REDUCTION_ANY) s->i[0] |= total > 0;
        else s->i[0] &= total == (double)n;
        break;
    case VB_REDUCTION_VAR: { /* the pieces' means and squares as one: Chan, Golub & LeVeque 1979 */
        LANED(0, a + y);
        const double mean = total / (double)count, d = mean - kept[0], all = (double)s->n;
        for (int64_t k = count; k < n; k++) x[k] = mean;
        LANED(0, a + (y - mean) * (y - mean));
        s->b[0] += total + d * d * (double)before * (double)count / all;
        kept[0] += d * (double)count / all;
        break;
    }
    case VB_REDUCTION_NORM:
        if (parameter == 1) LANED(0, a + fabs(y));
        else if (parameter == 2) LANED(0, a + y * y);
        if (parameter <= 2) {
            kept[0] += total;
            break;
        }
#undef COMBINE
#define COMBINE (ABOVE(fabs(y), a) ? fabs(y) : a)
        LANED(0, COMBINE);
        kept[0] = ABOVE(total, kept[0]) ? total : kept[0];
        break;
#undef COMBINE
    default: /* sums */
#define COMBINE a + y
        LANED(0, a + y);
        if (ints) s->i[0] += (int64_t)total;
        else kept[0] += total;
#undef COMBINE
    }
}
VB_TWINS(take_row, (vb_reduction r, float p, bool ints, states *s, double *x, int64_t n), (r, p, ints, s, x, n));

static void finish(const reduce_job *j, const states *s, int64_t k, int64_t at) {
    double f = s->a[k];
    int64_t i = s->i[k];
    switch (j->reduction) {
    case VB_REDUCTION_MEAN: f /= (double)s->n; break;
    case VB_REDUCTION_MAX:
    case VB_REDUCTION_MIN: i = j->ints ? (int64_t)f : 0; break;
    case VB_REDUCTION_ARGMAX:
    case VB_REDUCTION_ARGMIN: i = s->at[k]; break;
    case VB_REDUCTION_VAR: f = s->b[k] / fmax(0, (double)s->n - (double)j->parameter); break;
    case VB_REDUCTION_NORM: f = j->parameter == 2 ? sqrt(f) : f; break;
    case VB_REDUCTION_LOGSUMEXP: f += log(s->b[k]); break;
    default: break;
    }
    store_one(&j->dims.out, at, (float)f, (int32_t)(uint32_t)i);
}

static void reduce_range(void *context, int worker, int64_t begin, int64_t end) {
    (void)worker;
    const reduce_job *j = context;
    const vb_reduce_dims *d = &j->dims;
    const int last_kept = d->kept_rank - 1, last = d->reduced_rank - 1;
    const int64_t per_row = (d->kept[last_kept] + j->block - 1) / j->block;
    states s;
    double x[PIECE];
    float most[PIECE];
    const bool greatest = j->reduction == VB_REDUCTION_MAX;
    const bool compares = d->in.type == VB_F32 && (greatest || j->reduction == VB_REDUCTION_MIN);
    for (int64_t unit = begin; unit < end; unit++) {
        const int64_t first = unit / per_row * d->kept[last_kept] + unit % per_row * j->block;
        const int64_t count = vb_min(j->block, d->kept[last_kept] - unit % per_row * j->block);
        const int64_t from = vb_place(&d->in, d->kept, d->kept_rank, first), step = d->in.strides[last_kept];
        begin_states(&s, j->reduction, count);
        if (count > 1) {
            for (int64_t k = 0; k < count; k++) most[k] = (float)s.a[k];
            for (int64_t p = 0; p < d->places; p++) {
                const int64_t at = from + vb_place(&d->within, d->reduced, d->reduced_rank, p);
                if (step == 1 && adds_floats(j)) {
                    add_columns[j->simd](s.a, (const float *)d->in.data + at, count);
                    s.n++;
                    continue;
                }
                if (step == 1 && compares) {
                    most_columns[j->simd](greatest, most, (const float *)d->in.data + at, count);
                    continue;
                }
                load_piece(j, x, at, step, count);
                take_each[j->simd](j->reduction, j->parameter, j->ints, &s, x, count);
            }
            for (int64_t k = 0; k < count && step == 1 && compares; k++) s.a[k] = (double)most[k];
        } else {
            const int64_t run = d->reduced[last], along = d->within.strides[last];
            for (int64_t p = 0; p < d->places; p += run) {
                const int64_t at = from + vb_place(&d->within, d->reduced, d->reduced_rank, p);
                const bool floats = along == 1 && takes_floats(j);
                if (floats && d->in.type == VB_F32) {
                    take_floats[j->simd](j->reduction, &s, (const float *)d->in.data + at, run);
                    continue;
                }
                for (int64_t r = 0; r < run; r += PIECE) {
                    const int64_t n = vb_min(PIECE, run - r);
                    if (floats) {
                        float room[PIECE];
                        vb_cpu_load(room, (const uint16_t *)d->in.data + at + r, d->in.type, n, j->simd);
                        take_floats[j->simd](j->reduction, &s, room, n);
                        continue;
                    }
                    load_piece(j, x, at + r * along, along, n);
                    take_row[j->simd](j->reduction, j->parameter, j->ints, &s, x, n);
                }
            }
        }
        const int64_t to = vb_place(&d->out, d->kept, d->kept_rank, first);
        for (int64_t k = 0; k < count; k++) finish(j, &s, k, to + k * d->out.strides[last_kept]);
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
        if (j->cols == 1 && j->type == VB_F32) {
            const float *const from = (const float *)j->in + row * j->n;
            float *const to = (float *)j->out + row * j->n;
            double sum = 0;
            for (int64_t i = 0; i < j->n; i++) to[i] = (float)(sum += (double)from[i]);
            continue;
        }
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
        if (together == 1 && j->bytes == 4 && j->indexing == VB_INDEXING_GATHER) {
            bool outside = false;
            for (int64_t i = 0; i < n; i++) {
                const int32_t id = ids[i * id_step];
                if (id < 0 || id >= j->places) outside = true;
                else ((int32_t *)(void *)y)[i * y_step] = ((const int32_t *)(void *)x)[i * x_step + id * j->step];
            }
            if (outside) atomic_store(&j->outside, true);
            continue;
        }
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
