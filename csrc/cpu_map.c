/* cpu_map.c: expressions of elements over arrays with strides.
 *
 * A thread computes a piece of elements at a time, step by step. So the compiler vectorizes each step's loop, and
 * values stay in the first-level cache. Values of 32 bits that lie in memory without gaps are used in place. */
#include <math.h>

#include "cpu.h"
#include "strided.h"

enum { PIECE = 256, MOST_VALUES = VB_MAX_INPUTS + VB_MAX_STEPS };

typedef union values {
    float f[PIECE];
    int32_t i[PIECE];
} values;

typedef struct map_job {
    vb_map_args args;
    unsigned char ints[MOST_VALUES];
    vb_simd simd;
} map_job;

/* ---- a run of elements along the last dimension ------------------------------------------------------------------ */

#define EACH for (int64_t i = 0; i < n; i++)

/* Bytes without gaps. Signed ones of type I8; of BOOL whether they are not 0. */
VB_INLINE void load_bytes_body(int32_t *restrict x, const void *from, vb_dtype type, int64_t n) {
    const int8_t *const s = from;
    const uint8_t *const u = from;
    if (type == VB_I8) EACH x[i] = s[i];
    else if (type == VB_U8) EACH x[i] = u[i];
    else EACH x[i] = u[i] != 0;
}
VB_TWINS(load_bytes, (int32_t *x, const void *from, vb_dtype type, int64_t n), (x, from, type, n));

VB_INLINE void store_bytes_body(void *to, const int32_t *restrict x, vb_dtype type, int64_t n) {
    uint8_t *restrict const u = to;
    if (type == VB_BOOL) EACH u[i] = x[i] != 0;
    else EACH u[i] = (uint8_t)x[i];
}
VB_TWINS(store_bytes, (void *to, const int32_t *x, vb_dtype type, int64_t n), (to, x, type, n));

static void load_run(values *to, int64_t at, const vb_view *v, const char *from, int64_t stride, int64_t n,
                     vb_simd simd) {
    float *const f = to->f + at;
    int32_t *const x = to->i + at;
    if (stride == 0 && n > 1) {
        load_run(to, at, v, from, 0, 1, simd);
        for (int64_t i = 1; i < n; i++) x[i] = x[0];
        return;
    }
    switch (v->type) {
    case VB_F32:
    case VB_I32:
        if (stride == 1) memcpy(x, from, (size_t)n * 4);
        else EACH x[i] = ((const int32_t *)from)[i * stride];
        break;
    case VB_F16:
        if (stride == 1) vb_cpu_load(f, from, VB_F16, n, simd);
        else EACH f[i] = vb_half_float(((const uint16_t *)from)[i * stride]);
        break;
    case VB_BF16:
        if (stride == 1) vb_cpu_load(f, from, VB_BF16, n, simd);
        else EACH f[i] = vb_bfloat_float(((const uint16_t *)from)[i * stride]);
        break;
    case VB_I8:
    case VB_U8:
    case VB_BOOL:
        if (stride == 1) load_bytes[simd](x, from, v->type, n);
        else if (v->type == VB_I8) EACH x[i] = ((const int8_t *)from)[i * stride];
        else if (v->type == VB_U8) EACH x[i] = ((const uint8_t *)from)[i * stride];
        else EACH x[i] = ((const uint8_t *)from)[i * stride] != 0;
        break;
    default: break;
    }
}

static void store_run(const vb_view *v, char *to, int64_t stride, const values *from, int64_t at, int64_t n,
                      vb_simd simd) {
    const float *const f = from->f + at;
    const int32_t *const x = from->i + at;
    switch (v->type) {
    case VB_F32:
    case VB_I32:
        if (stride == 1) memcpy(to, x, (size_t)n * 4);
        else EACH((int32_t *)to)[i * stride] = x[i];
        break;
    case VB_F16:
        if (stride == 1) vb_cpu_store(to, f, VB_F16, n, simd);
        else EACH((uint16_t *)to)[i * stride] = vb_float_half(f[i]);
        break;
    case VB_BF16:
        if (stride == 1) vb_cpu_store(to, f, VB_BF16, n, simd);
        else EACH((uint16_t *)to)[i * stride] = vb_float_bfloat(f[i]);
        break;
    default:
        if (stride == 1) store_bytes[simd](to, x, v->type, n);
        else if (v->type == VB_BOOL) EACH((uint8_t *)to)[i * stride] = x[i] != 0;
        else EACH((uint8_t *)to)[i * stride] = (uint8_t)x[i];
        break;
    }
}

/* Cuts n elements from number `first` on into runs along the last dimension, and loads or stores each. */
static void runs(const map_job *j, const vb_view *v, int64_t first, int64_t n, values *x, bool store) {
    const int last = (int)j->args.rank - 1;
    const int64_t *const sizes = j->args.sizes, bytes = vb_element_bytes(v->type);
    for (int64_t done = 0; done < n;) {
        int64_t rest = first + done, place = 0, inner = rest % sizes[last], run = vb_min(n - done, sizes[last] - inner);
        for (int d = last; d >= 0; d--) {
            place += rest % sizes[d] * v->strides[d];
            rest /= sizes[d];
        }
        char *const p = (char *)v->data + place * bytes;
        if (store) store_run(v, p, v->strides[last], x, done, run, j->simd);
        else load_run(x, done, v, p, v->strides[last], run, j->simd);
        done += run;
    }
}

/* Where n elements from number `first` on lie, if they are 32 bits each and lie without gaps; else null. */
static char *without_gaps(const map_job *j, const vb_view *v, int64_t first, int64_t n) {
    const int last = (int)j->args.rank - 1;
    const int64_t *const sizes = j->args.sizes;
    if (v->strides[last] != 1 || vb_element_bytes(v->type) != 4 || sizes[last] - first % sizes[last] < n) return NULL;
    return (char *)v->data + 4 * vb_place(v, sizes, last + 1, first);
}

/* ---- steps ------------------------------------------------------------------------------------------------------- */

/* The words of n counters from `counter` on. */
VB_INLINE void philox(uint32_t (*words)[PIECE / 4 + 1], uint32_t counter, uint32_t key0, uint32_t key1, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        uint32_t x0 = counter + (uint32_t)i, x1 = 0, x2 = 0, x3 = 0, k0 = key0, k1 = key1;
        for (int round = 0; round < 10; round++) {
            const uint64_t p0 = (uint64_t)0xD2511F53u * x0, p1 = (uint64_t)0xCD9E8D57u * x2;
            x0 = (uint32_t)(p1 >> 32) ^ x1 ^ k0;
            x1 = (uint32_t)p1;
            x2 = (uint32_t)(p0 >> 32) ^ x3 ^ k1;
            x3 = (uint32_t)p0;
            k0 += 0x9E3779B9u;
            k1 += 0xBB67AE85u;
        }
        words[0][i] = x0, words[1][i] = x1, words[2][i] = x2, words[3][i] = x3;
    }
}

/* ln(x 2^-down) of a normal x above 0: of the mantissa in [sqrt(1/2), sqrt(2)) by the polynomial of Cephes' logf. */
VB_INLINE float log_normal(float x, float down) {
    const uint32_t bits = vb_float_bits(x) - 0x3f3504f3u;
    const float m = vb_bits_float((bits & 0x007fffffu) + 0x3f3504f3u) - 1.0f, e = (float)((int32_t)bits >> 23) - down;
    const float z = m * m;
    float p = 7.0376836292e-2f;
    p = p * m - 1.1514610310e-1f;
    p = p * m + 1.1676998740e-1f;
    p = p * m - 1.2420140846e-1f;
    p = p * m + 1.4249322787e-1f;
    p = p * m - 1.6668057665e-1f;
    p = p * m + 2.0000714765e-1f;
    p = p * m - 2.4999993993e-1f;
    p = p * m + 3.3333331174e-1f;
    return m + (m * z * p - 0.5f * z + e * -2.12194440e-4f) + e * 0.693359375f;
}

/* ln x of any x, as logf's. */
VB_INLINE float log_of(float x) {
    const bool small = x < 0x1p-126f;
    float y = log_normal(small ? x * 0x1p23f : x, small ? 23.0f : 0.0f);
    y = x == 0 ? -HUGE_VALF : y;
    y = x < HUGE_VALF ? y : x;
    return x < 0 ? NAN : y;
}

/* Polynomials of Cephes for |t| up to pi / 4. */
VB_INLINE float sine_near_0(float t) {
    const float z = t * t;
    return ((-1.9515295891e-4f * z + 8.3321608736e-3f) * z - 1.6666654611e-1f) * z * t + t;
}
VB_INLINE float cosine_near_0(float t) {
    const float z = t * t;
    return ((2.443315711809948e-5f * z - 1.388731625493765e-3f) * z + 4.166664568298827e-2f) * z * z - 0.5f * z + 1.0f;
}

/* The sine of x + quarters pi / 2 for |x| up to MOST_ANGLE. Cephes' three parts of pi / 2, whose products with the
 * number of quarters are exact there but for the last, leave what is near 0. */
#define MOST_ANGLE 8192.0f
VB_INLINE float sine_of(float x, uint32_t quarters) {
    const float shifted = x * 0.636619772f + 0x1.8p23f, n = shifted - 0x1.8p23f;
    const float t = x - n * 1.5703125f - n * 4.837512969970703125e-4f - n * 7.54978995489188216e-8f;
    const uint32_t quarter = vb_float_bits(shifted) + quarters;
    const float y = quarter & 1 ? cosine_near_0(t) : sine_near_0(t);
    return quarter & 2 ? -y : y;
}

VB_INLINE bool all_angles_within(const float *a, int64_t n) {
    int outside = 0; /* NaN too */
    for (int64_t i = 0; i < n; i++) outside |= !(fabsf(a[i]) <= MOST_ANGLE);
    return !outside;
}

/* a^b for normal a above 0 and finite b: 2^(b log2 a), whose exponent needs more bits than a float has. log2 of the
 * mantissa m is 2 / ln 2 atanh((m - 1) / (m + 1)), by its series. */
VB_INLINE float power_of(float a, float b) {
    const uint32_t bits = vb_float_bits(a) - 0x3f3504f3u;
    const double m = (double)vb_bits_float((bits & 0x007fffffu) + 0x3f3504f3u), t = (m - 1) / (m + 1), z = t * t;
    double p = 1.0 / 13;
    p = p * z + 1.0 / 11;
    p = p * z + 1.0 / 9;
    p = p * z + 1.0 / 7;
    p = p * z + 1.0 / 5;
    p = p * z + 1.0 / 3;
    double e = (double)b * ((double)((int32_t)bits >> 23) + 2.8853900817779268 * (t + t * z * p));
    e = e < -160 ? -160 : e; /* 0 and infinity */
    e = e > 160 ? 160 : e;
    const double n = e + 0x1.8p52 - 0x1.8p52;
    const int32_t n1 = (int32_t)n >> 1, n2 = (int32_t)n - n1; /* two factors: 2^n alone may overflow */
    return vb_expf((float)((e - n) * 0.69314718055994531)) * vb_bits_float((uint32_t)(n1 + 127) << 23) *
           vb_bits_float((uint32_t)(n2 + 127) << 23);
}

/* Two normal numbers of words u and v, as vibrant.h says. */
VB_INLINE void box_muller(float *first, float *second, uint32_t u, uint32_t v) {
    const float radius = sqrtf(-2.0f * log_normal((float)((1u << 24) - (u >> 8)) * 0x1p-24f, 0));
    const uint32_t turn = (v >> 8) + (1u << 21); /* an eighth more: in the upper bits the quarter that is nearest */
    const float t = (float)((int32_t)(turn & 0x3fffffu) - (1 << 21)) * (6.283185307f * 0x1p-24f);
    const float sine = sine_near_0(t), cosine = cosine_near_0(t);
    const uint32_t quarter = turn >> 22 & 3;
    const float c = quarter & 1 ? -sine : cosine, s = quarter & 1 ? cosine : sine;
    *first = radius * (quarter & 2 ? -c : c);
    *second = radius * (quarter & 2 ? -s : s);
}

VB_INLINE void random_floats(float *f, int64_t first, int64_t n, const vb_step *s) {
    uint32_t words[4][PIECE / 4 + 1];
    float numbers[4][PIECE / 4 + 1];
    const int64_t counter = first / 4, counters = (first + n - 1) / 4 - counter + 1;
    philox(words, (uint32_t)counter, (uint32_t)s->a, (uint32_t)s->b, counters);
    for (int w = 0; w < 4; w += 2)
        for (int64_t i = 0; i < counters; i++) {
            const uint32_t u = words[w][i], v = words[w + 1][i];
            if (s->c == 0) {
                box_muller(&numbers[w][i], &numbers[w + 1][i], u, v);
            } else {
                const float unit = 1.0f / (float)(1 << s->c);
                numbers[w][i] = (float)(u >> (32 - s->c)) * unit;
                numbers[w + 1][i] = (float)(v >> (32 - s->c)) * unit;
            }
        }
    EACH f[i] = numbers[(first + i) % 4][(first + i) / 4 - counter];
}

VB_INLINE int32_t truncated(float x) {
    return x != x ? 0 : x >= 0x1p31f ? INT32_MAX : x <= -0x1p31f ? INT32_MIN : (int32_t)x;
}
VB_INLINE int32_t divided(int32_t a, int32_t b) { return b == 0 ? 0 : b == -1 ? (int32_t)-(uint32_t)a : a / b; }

/* The arguments of a step: values of whole pieces. */
typedef struct operands {
    const float *af, *bf, *cf;
    const int32_t *ai, *bi, *ci;
} operands;

/* powf of n pairs: those that power_of takes, or whose sign is that of a product of b factors a, and others. */
VB_INLINE void powers(float *f, const float *a, const float *b, int64_t n) {
    float y[PIECE];
    int special = 0;
    EACH y[i] = power_of(fabsf(a[i]), b[i]);
    EACH {
        const int32_t whole = (int32_t)(fabsf(b[i]) < 0x1p24f ? b[i] : 0);
        const uint32_t odd = (uint32_t)whole << 31;
        y[i] = vb_bits_float(vb_float_bits(y[i]) ^ (vb_float_bits(a[i]) & odd));
    }
#define ORDINARY(i) \
    ((fabsf(a[i]) >= 0x1p-126f) & (fabsf(a[i]) < HUGE_VALF) & (fabsf(b[i]) < 0x1p24f))
    EACH y[i] = (a[i] < 0) & (b[i] != rintf(b[i])) ? NAN : y[i];
    EACH special |= !ORDINARY(i);
    if (special) EACH if (!ORDINARY(i)) y[i] = powf(a[i], b[i]);
#undef ORDINARY
    memcpy(f, y, (size_t)n * 4);
}

/* Integers a to the power of b by squares, for all n at once: as many as the longest exponent has bits. A negative
 * exponent leaves its last bit, the sign of a result of -1, and of other numbers than 1 and -1 nothing. */
VB_INLINE void whole_powers(int32_t *x, const int32_t *a, const int32_t *b, int64_t n) {
    uint32_t square[PIECE], left[PIECE], result[PIECE], any = 0;
    EACH {
        const uint32_t base = (uint32_t)a[i], one = base + 1 <= 2 && base != 0; /* 1 or -1 */
        square[i] = b[i] >= 0 || one ? base : 0;
        left[i] = b[i] >= 0 ? (uint32_t)b[i] : (uint32_t)b[i] & 1;
        result[i] = b[i] >= 0 || one;
        any |= left[i];
    }
    for (; any; any >>= 1) EACH {
        result[i] *= left[i] & 1 ? square[i] : 1;
        square[i] *= square[i];
        left[i] >>= 1;
    }
    EACH x[i] = (int32_t)result[i];
}

#define FLOATS(expression) \
    do { \
        const float *const a = o->af, *const b = o->bf; \
        (void)a, (void)b; \
        EACH f[i] = (expression); \
    } while (0)
#define INTEGERS(expression) \
    do { \
        const int32_t *const a = o->ai, *const b = o->bi; \
        (void)a, (void)b; \
        EACH x[i] = (expression); \
    } while (0)
#define BOTH(floats, integers) \
    if (ints) INTEGERS(integers); \
    else FLOATS(floats)
#define COMPARE(operator) \
    if (ints) EACH x[i] = o->ai[i] operator o->bi[i]; \
    else EACH x[i] = o->af[i] operator o->bf[i]

VB_INLINE void step_body(const vb_step *s, bool ints, void *out, const operands *o, int64_t first, int64_t n) {
    float *const f = out;
    int32_t *const x = out;
    switch (s->op) {
    case VB_ELEMENT_CONSTANT:
    case VB_ELEMENT_INTEGER: EACH x[i] = s->a; break;
    case VB_ELEMENT_INDEX: EACH x[i] = (int32_t)(first + i); break;
    case VB_ELEMENT_RANDOM: random_floats(f, first, n, s); break;
    case VB_ELEMENT_TO_FLOAT: EACH f[i] = (float)o->ai[i]; break;
    case VB_ELEMENT_TO_INTEGER: EACH x[i] = truncated(o->af[i]); break;
    case VB_ELEMENT_WHERE: 
        EACH {
            const int32_t yes = o->bi[i], no = o->ci[i]; /* read both: no branch */
            x[i] = o->ai[i] ? yes : no;
        }
        break;
    case VB_ELEMENT_ADD: BOTH(a[i] + b[i], (int32_t)((uint32_t)a[i] + (uint32_t)b[i])); break;
    case VB_ELEMENT_SUB: BOTH(a[i] - b[i], (int32_t)((uint32_t)a[i] - (uint32_t)b[i])); break;
    case VB_ELEMENT_MUL: BOTH(a[i] * b[i], (int32_t)((uint32_t)a[i] * (uint32_t)b[i])); break;
    case VB_ELEMENT_DIV: BOTH(a[i] / b[i], divided(a[i], b[i])); break;
    case VB_ELEMENT_MIN: BOTH(a[i] < b[i] || a[i] != a[i] ? a[i] : b[i], a[i] < b[i] ? a[i] : b[i]); break;
    case VB_ELEMENT_MAX: BOTH(a[i] > b[i] || a[i] != a[i] ? a[i] : b[i], a[i] > b[i] ? a[i] : b[i]); break;
    case VB_ELEMENT_NEG: BOTH(-a[i], (int32_t)-(uint32_t)a[i]); break;
    case VB_ELEMENT_ABS: BOTH(fabsf(a[i]), a[i] < 0 ? (int32_t)-(uint32_t)a[i] : a[i]); break;
    case VB_ELEMENT_EQ: COMPARE(==); break;
    case VB_ELEMENT_NE: COMPARE(!=); break;
    case VB_ELEMENT_LT: COMPARE(<); break;
    case VB_ELEMENT_LE: COMPARE(<=); break;
    case VB_ELEMENT_AND: INTEGERS(a[i] & b[i]); break;
    case VB_ELEMENT_OR: INTEGERS(a[i] | b[i]); break;
    case VB_ELEMENT_XOR: INTEGERS(a[i] ^ b[i]); break;
    case VB_ELEMENT_SHIFT_RIGHT: INTEGERS((int32_t)((uint32_t)a[i] >> (b[i] & 31))); break;
    case VB_ELEMENT_REM: INTEGERS(b[i] == 0 || b[i] == -1 ? 0 : a[i] % b[i]); break;
    case VB_ELEMENT_POW:
        if (ints) whole_powers(x, o->ai, o->bi, n);
        else powers(f, o->af, o->bf, n);
        break;
    case VB_ELEMENT_EXP: FLOATS(vb_expf(a[i])); break;
    case VB_ELEMENT_LOG: FLOATS(log_of(a[i])); break;
    case VB_ELEMENT_SQRT: FLOATS(sqrtf(a[i])); break;
    case VB_ELEMENT_RSQRT: FLOATS(1.0f / sqrtf(a[i])); break;
    case VB_ELEMENT_SIN:
        if (all_angles_within(o->af, n)) FLOATS(a[i] == 0 ? a[i] : sine_of(a[i], 0)); /* -0 for -0 */
        else FLOATS(sinf(a[i]));
        break;
    case VB_ELEMENT_COS:
        if (all_angles_within(o->af, n)) FLOATS(sine_of(a[i], 1));
        else FLOATS(cosf(a[i]));
        break;
    case VB_ELEMENT_TANH: FLOATS(vb_tanhf(a[i])); break;
    case VB_ELEMENT_SIGMOID: FLOATS(1.0f / (1.0f + vb_expf(-a[i]))); break;
    case VB_ELEMENT_SILU: FLOATS(vb_siluf(a[i])); break;
    case VB_ELEMENT_GELU:
    case VB_ELEMENT_GELU_TANH: break; /* cpu_gelu.c */
    case VB_ELEMENT_FLOOR: FLOATS(floorf(a[i])); break;
    case VB_ELEMENT_CEIL: FLOATS(ceilf(a[i])); break;
    case VB_ELEMENT_ROUND: FLOATS(rintf(a[i])); break;
    }
}

VB_TWINS(step, (const vb_step *s, bool ints, void *out, const operands *o, int64_t first, int64_t n),
         (s, ints, out, o, first, n));

static const void *value_of(const void *const *at, int32_t index, int count) {
    return index >= 0 && index < count ? at[index] : NULL; /* a number of the step itself is no value */
}

static void map_range(void *context, int worker, int64_t begin, int64_t end) {
    (void)worker;
    const map_job *j = context;
    const vb_map_args *a = &j->args;
    const int inputs = (int)a->inputs, steps = (int)a->steps;
    const int64_t start = begin;
    values x[MOST_VALUES];
    const void *at[MOST_VALUES];
    for (; begin < end; begin += PIECE) {
        const int64_t n = vb_min(PIECE, end - begin);
        char *const direct = without_gaps(j, &a->out, begin, n);
        for (int i = 0; i < inputs; i++) {
            at[i] = without_gaps(j, &a->in[i], begin, n);
            if (at[i]) continue;
            runs(j, &a->in[i], begin, n, &x[i], false);
            at[i] = &x[i];
        }
        for (int s = 0; s < steps; s++) {
            const vb_step *p = &a->program[s];
            const int count = inputs + s, kind = p->op == VB_ELEMENT_WHERE ? p->b : p->a;
            void *out = direct && s == steps - 1 ? direct : (char *)&x[count];
            at[count] = out;
            const bool constant = p->op == VB_ELEMENT_CONSTANT || p->op == VB_ELEMENT_INTEGER;
            if (constant && s < steps - 1 && begin != start) continue; /* it is there since the first piece */
            const void *va = value_of(at, p->a, count), *vb = value_of(at, p->b, count);
            const void *vc = value_of(at, p->c, count);
            const operands o = {va, vb, vc, va, vb, vc};
            if (p->op == VB_ELEMENT_GELU || p->op == VB_ELEMENT_GELU_TANH)
                vb_cpu_gelu_floats(out, va, p->op == VB_ELEMENT_GELU_TANH, n, j->simd);
            else step[j->simd](p, vb_step_operands(p->op) > 0 && j->ints[kind], out, &o, begin, n);
        }
        if (steps == 0 && direct) {
            if (at[0] != direct) memmove(direct, at[0], (size_t)n * 4);
        } else if (!direct) {
            if (steps == 0 && at[0] != &x[0]) memcpy(&x[0], at[0], (size_t)n * 4);
            runs(j, &a->out, begin, n, &x[inputs + steps - 1], true);
        }
    }
}

/* ---- one step of bytes ------------------------------------------------------------------------------------------- */

/* Whether an expression is one step of bytes of one type without gaps, I8 or U8, or of the bits of BOOL, beside
 * constants of the type. */
static bool is_step_of_bytes(const vb_map_args *a) {
    if (a->rank != 1 || a->inputs == 0 || a->steps == 0 || a->out.strides[0] != 1) return false;
    const vb_dtype type = a->in[0].type;
    const vb_element_op op = a->program[a->steps - 1].op;
    const bool compares = op >= VB_ELEMENT_EQ && op <= VB_ELEMENT_LE;
    const bool bits = op >= VB_ELEMENT_AND && op <= VB_ELEMENT_XOR;
    const bool sums = op >= VB_ELEMENT_ADD && op <= VB_ELEMENT_MAX && op != VB_ELEMENT_DIV;
    if (vb_element_bytes(type) != 1 || a->out.type != (compares ? VB_BOOL : type)) return false;
    if (!bits && (type == VB_BOOL || !(compares || sums))) return false;
    for (int i = 0; i < a->inputs; i++)
        if (a->in[i].type != type || a->in[i].strides[0] != 1) return false;
    for (int s = 0; s + 1 < a->steps; s++) {
        const int32_t c = a->program[s].a;
        if (a->program[s].op != VB_ELEMENT_INTEGER) return false;
        if (c < (type == VB_I8 ? -128 : 0) || c > (type == VB_I8 ? 127 : type == VB_U8 ? 255 : 1)) return false;
    }
    return true;
}

#define BYTES(expression) \
    EACH { \
        const uint8_t x = truths ? a[i] != 0 : a[i], y = truths ? b[i] != 0 : b[i]; \
        out[i] = (uint8_t)(expression); \
    } \
    break

VB_INLINE void byte_step_body(vb_element_op op, vb_dtype type, uint8_t *out, const uint8_t *a, const uint8_t *b,
                              int64_t n) {
    const bool truths = type == VB_BOOL;
    const uint8_t sign = type == VB_I8 ? 0x80 : 0; /* turned around, signed numbers are in the order of unsigned ones */
    switch (op) {
    case VB_ELEMENT_ADD: BYTES(x + y);
    case VB_ELEMENT_SUB: BYTES(x - y);
    case VB_ELEMENT_MUL: BYTES(x * y);
    case VB_ELEMENT_MIN: BYTES((x ^ sign) < (y ^ sign) ? x : y);
    case VB_ELEMENT_MAX: BYTES((x ^ sign) > (y ^ sign) ? x : y);
    case VB_ELEMENT_EQ: BYTES(x == y);
    case VB_ELEMENT_NE: BYTES(x != y);
    case VB_ELEMENT_LT: BYTES((x ^ sign) < (y ^ sign));
    case VB_ELEMENT_LE: BYTES((x ^ sign) <= (y ^ sign));
    case VB_ELEMENT_AND: BYTES(x & y);
    case VB_ELEMENT_OR: BYTES(x | y);
    default: BYTES(x ^ y);
    }
}
VB_TWINS(byte_step,
         (vb_element_op op, vb_dtype type, uint8_t *out, const uint8_t *a, const uint8_t *b, int64_t n),
         (op, type, out, a, b, n));

static void bytes_range(void *context, int worker, int64_t begin, int64_t end) {
    (void)worker;
    const map_job *j = context;
    const vb_map_args *a = &j->args;
    const vb_step *const last = &a->program[a->steps - 1];
    const int32_t operand[2] = {last->a, last->b};
    uint8_t constants[2][PIECE];
    const uint8_t *at[2];
    bool constant = false;
    for (int v = 0; v < 2; v++) {
        if (operand[v] < a->inputs) {
            at[v] = (const uint8_t *)a->in[operand[v]].data + begin;
            continue;
        }
        at[v] = memset(constants[v], a->program[operand[v] - a->inputs].a, PIECE);
        constant = true;
    }
    uint8_t *out = (uint8_t *)a->out.data + begin;
    for (int64_t n; begin < end; begin += n, out += n) {
        n = constant ? vb_min(PIECE, end - begin) : end - begin;
        byte_step[j->simd](last->op, a->in[0].type, out, at[0], at[1], n);
        for (int v = 0; v < 2; v++)
            if (operand[v] < a->inputs) at[v] += n;
    }
}

/* ---- copies of transposed arrays --------------------------------------------------------------------------------- */

enum { TILE = 16 };

/* The dimension along which elements of the operand are neighbours, where the job copies elements of 32 bits that are
 * neighbours along the last one in the result; -1 where there is none, or it is the last one too. */
static int transposed(const map_job *j) {
    const vb_map_args *a = &j->args;
    const int last = (int)a->rank - 1;
    const vb_view *in = &a->in[0];
    if (a->steps > 0 || a->inputs != 1 || in->type != a->out.type) return -1; /* another type is a conversion */
    if (vb_element_bytes(in->type) != 4 || in->strides[last] == 1) return -1;
    for (int d = 0; d < last && a->out.strides[last] == 1; d++)
        if (in->strides[d] == 1) return d;
    return -1;
}

/* Copies tiles, of which an item is a row along the last dimension: both sides use whole lines of memory. */
static void transpose_range(void *context, int worker, int64_t begin, int64_t end) {
    (void)worker;
    const map_job *j = context;
    const vb_map_args *a = &j->args;
    const int last = (int)a->rank - 1, d = transposed(j);
    const int64_t rows = a->sizes[d], cols = a->sizes[last], bands = (rows + TILE - 1) / TILE;
    int64_t sizes[VB_MAX_DIMS];
    memcpy(sizes, a->sizes, sizeof sizes);
    sizes[d] = bands;
    vb_view in = a->in[0], out = a->out;
    const int64_t across = in.strides[last], down = out.strides[d];
    in.strides[d] *= TILE, out.strides[d] *= TILE;
    for (; begin < end; begin++) {
        int64_t band = begin;
        for (int k = last - 1; k > d; k--) band /= sizes[k];
        const int64_t high = vb_min(TILE, rows - band % bands * TILE);
        const int32_t *const from = (const int32_t *)in.data + vb_place(&in, sizes, last, begin);
        int32_t *const to = (int32_t *)out.data + vb_place(&out, sizes, last, begin);
        for (int64_t c = 0; c < cols; c += TILE) {
            const int64_t wide = vb_min(TILE, cols - c);
            int32_t tile[TILE][TILE];
            for (int64_t x = 0; x < wide; x++)
                for (int64_t y = 0; y < high; y++) tile[y][x] = from[(c + x) * across + y];
            for (int64_t y = 0; y < high; y++) memcpy(to + y * down + c, tile[y], (size_t)wide * 4);
        }
    }
}

vb_status vb_cpu_map(const vb_map_args *args, vb_stream *stream) {
    map_job job = {.args = *args, .simd = vb_cpu_device_of(stream)->simd};
    vb_view *views[1 + VB_MAX_INPUTS] = {&job.args.out};
    for (int i = 0; i < args->inputs; i++) views[1 + i] = &job.args.in[i];
    job.args.rank = vb_join_dims(job.args.sizes, args->rank, views, 1 + (int)args->inputs);
    vb_map_kinds(job.ints, &job.args);
    int64_t n = 1;
    for (int d = 0; d < job.args.rank; d++) n *= job.args.sizes[d];
    const int d = transposed(&job);
    if (d >= 0 && n > 0) {
        const int64_t cols = job.args.sizes[job.args.rank - 1], rows = job.args.sizes[d];
        const int64_t items = n / cols / rows * ((rows + TILE - 1) / TILE);
        vb_cpu_parallel(stream, items, vb_cpu_grain(TILE * cols), transpose_range, &job);
        return VB_OK;
    }
    vb_cpu_parallel(stream, n, 1 << 14, is_step_of_bytes(&job.args) ? bytes_range : map_range, &job);
    return VB_OK;
}
