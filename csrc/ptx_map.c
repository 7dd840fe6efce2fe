/* ptx_map.c: expressions of elements on GPUs whose kernels the driver compiles. The text of a kernel is written here
 * for each expression, and for the layouts of its arrays. Numbers in it are parameters: other numbers compile nothing.
 *
 * A thread computes W neighbours along the last dimension: as many as 16 bytes of the widest type hold where all
 * arrays allow, else one. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ptx_strided.h"

/* ---- steps ------------------------------------------------------------------------------------------------------- */

/* The text of a step of one or two floats: `result` of x and y. The coefficients are those of Cephes. */
static const char exponential[] = VB_PTX_SOURCE(
    f32 whole = round(x * 1.44269504);
    f32 rest = fma(whole, -0.693359375, x);
    rest = fma(whole, 0.000212194440, rest);
    result = exp2(rest * 1.44269504) * exp2(whole);
    if (abs(x) > 87.0) result = exp2(x * 1.44269504);
);
static const char logarithm[] = VB_PTX_SOURCE(
    u32 word = bits(x);
    f32 shift = 0;
    if (x < 1.17549435e-38) {
        word = bits(x * 8388608.0);
        shift = -23.0;
    }
    word = word - 0x3f3504f3;
    f32 m = from_bits((word & 0x7fffff) + 0x3f3504f3) - 1.0;
    f32 e = f32(s32(word) >> 23) + shift;
    f32 z = m * m;
    f32 p = fma(m, 7.0376836292e-2, -1.1514610310e-1);
    p = fma(p, m, 1.1676998740e-1);
    p = fma(p, m, -1.2420140846e-1);
    p = fma(p, m, 1.4249322787e-1);
    p = fma(p, m, -1.6668057665e-1);
    p = fma(p, m, 2.0000714765e-1);
    p = fma(p, m, -2.4999993993e-1);
    p = fma(p, m, 3.3333331174e-1);
    result = m + (m * z * p - 0.5 * z + e * -2.12194440e-4) + e * 0.693359375;
    if (x == 0.0) result = from_bits(0xff800000);
    if (x < 0.0) result = from_bits(0x7fc00000);
    if (x != x || x == from_bits(0x7f800000)) result = x;
);
/* ln |x| as a sum of two numbers by atanh, times y, and the exponential of it: N. Juffa's method. Exponents beyond 1e10
 * make 0 or infinity of any x but 1, as 1e10 does; their product would overflow. */
static const char power[] = VB_PTX_SOURCE(
    f32 inf = from_bits(0x7f800000), base = abs(x), shift = 0;
    u32 word = bits(base);
    if (base < 1.17549435e-38) {
        word = bits(base * 8388608.0);
        shift = -23.0;
    }
    word = word - 0x3f3504f3;
    f32 m = from_bits((word & 0x7fffff) + 0x3f3504f3);
    f32 e = f32(s32(word) >> 23) + shift;
    f32 p = m + 1.0;
    m = m - 1.0;
    f32 r = rcp(p);
    f32 high = m * r;
    f32 t = fma(high, -2.0, m);
    f32 s = fma(high, -m, t);
    f32 low = r * s;
    s = high * high;
    f32 a = fma(s, 0.1293334961, 0.1419928074);
    a = fma(a, s, 0.2000148296);
    a = fma(a, s, 0.3333332539);
    t = fma(high, low + low, fma(high, high, -s));
    p = s * high;
    t = fma(s, low, fma(t, high, fma(s, high, -p)));
    s = fma(a, p, fma(a, t, low));
    r = 2.0 * high;
    t = fma(0.693147182, e, r);
    p = fma(-0.693147182, e, t);
    s = fma(-1.90465421e-9, e, fma(2.0, s, r - p));
    f32 log_high = t + s;
    f32 log_low = (t - log_high) + s;
    f32 times = min(max(y, -10000000000.0), 10000000000.0);
    f32 top = log_high * times;
    f32 rest = fma(log_low, times, fma(log_high, times, -top));
    f32 sum = top + rest;
    rest = (top - sum) + rest;
    f32 held = min(max(sum, -200.0), 200.0);
    f32 whole = round(held * 1.44269504);
    f32 f = fma(whole, -0.693359375, held);
    f = fma(whole, 0.000212194440, f);
    f32 half = floor(whole * 0.5);
    result = exp2(f * 1.44269504) * exp2(half) * exp2(whole - half);
    if (result < inf) result = fma(result, rest, result);
    bool integer = floor(y) == y;
    bool odd = integer && floor(y * 0.5) * 2.0 != y && abs(y) < 16777216.0;
    if (base == 0.0) result = y < 0.0 ? inf : 0.0;
    if (base == inf) result = y < 0.0 ? 0.0 : inf;
    if (abs(y) == inf) {
        bool up = base > 1.0 && y > 0.0 || base < 1.0 && y < 0.0;
        result = up ? inf : 0.0;
        if (base == 1.0) result = 1.0;
    }
    if (x < 0.0 && !integer && base < inf && abs(y) < inf) result = from_bits(0x7fc00000);
    if (odd && bits(x) > 0x7fffffff) result = -result;
    if (x != x || y != y) result = from_bits(0x7fc00000);
    if (y == 0.0 || x == 1.0) result = 1.0;
);
/* Of integers, by squares. */
static const char whole_power[] = VB_PTX_SOURCE(
    u32 square = u32(x), left = u32(y);
    result = 1;
    if (y < 0) {
        left = left & 1;
        if (x != 1 && x != -1) result = 0;
    }
    for (; left != 0; left = left >> 1) {
        if ((left & 1) != 0) result = s32(u32(result) * square);
        square = square * square;
    }
);
/* TURN is 0 for the sine, 1 for the cosine. Far from 0 the quarter of a turn comes of 2 / pi to 224 bits (Payne &
 * Hanek 1983). */
static const char sine[] = VB_PTX_SOURCE(
    f32 quarters = round(x * 0.636619747);
    f32 t = fma(quarters, -1.57079601, x);
    t = fma(quarters, -3.13916473e-07, t);
    t = fma(quarters, -5.39030253e-15, t);
    u32 quarter = u32(s32(min(max(quarters, -2147483000.0), 2147483000.0)));
    if (abs(x) > 48039.0) {
        u32 word = bits(abs(x));
        u64 mantissa = u64(word << 8 | 0x80000000);
        u32 e = (word >> 23) - 126;
        u32 first = e >> 5;
        u32 left = e & 31;
        u32 parts[4] = 0;
        unroll (i : 4) {
            u32 which = first + i;
            if (which == 1) parts[i] = 0x28be60db;
            if (which == 2) parts[i] = 0x9391054a;
            if (which == 3) parts[i] = 0x7f09d5f4;
            if (which == 4) parts[i] = 0x7d4d3770;
            if (which == 5) parts[i] = 0x36d8a566;
            if (which == 6) parts[i] = 0x4f10e410;
            if (which == 7) parts[i] = 0x7f9458ea;
        }
        if (left > 0) unroll (i : 3) parts[i] = parts[i] << left | parts[i + 1] >> 32 - left;
        u64 product = mantissa * u64(parts[2]) >> 32;
        product = product + mantissa * u64(parts[1]);
        product = product + (mantissa * u64(parts[0]) << 32);
        quarter = u32(product >> 62);
        product = product & 0x3fffffffffffffff;
        bool near = product >= 0x2000000000000000;
        if (near) {
            quarter += 1;
            product = 0x4000000000000000 - product;
        }
        t = f32(product) * 3.4061215800e-19;
        if (near) t = -t;
        if (x < 0.0) {
            quarter = 0 - quarter;
            t = -t;
        }
        if (abs(x) == from_bits(0x7f800000)) t = from_bits(0x7fc00000);
    }
    quarter += TURN;
    f32 z = t * t;
    f32 odd = fma(fma(fma(z, -1.9515295891e-4, 8.3321608736e-3), z, -1.6666654611e-1) * z, t, t);
    f32 even = fma(fma(fma(z, 2.443315711809948e-5, -1.388731625493765e-3), z, 4.166664568298827e-2) * z, z,
                   fma(z, -0.5, 1.0));
    result = (quarter & 1) != 0 ? even : odd;
    if ((quarter & 2) != 0) result = -result;
    if (x != x) result = x;
);
/* WHICH is the operation of ptx_elements.c. */
static const char activation[] = VB_PTX_SOURCE(
    const OP = WHICH;
    const EXP = 1;
    f32 scalar = 1.0, limit = 0, value = 0;
    FORMULA
    result = value;
);

/* Random numbers of the counters of W elements, of key0 and key1: as vibrant.h says. */
static const char random_numbers[] = VB_PTX_SOURCE(
    unroll (g : (W + 3) / 4) {
        u32 px = (i + g * 4) >> 2, py = 0, pz = 0, pw = 0, k0 = key0, k1 = key1;
        unroll (round : 10) {
            u64 low = u64(px) * 0xd2511f53, high = u64(pz) * 0xcd9e8d57;
            px = u32(high >> 32) ^ py ^ k0;
            py = u32(high);
            pz = u32(low >> 32) ^ pw ^ k1;
            pw = u32(low);
            k0 += 0x9e3779b9;
            k1 += 0xbb67ae85;
        }
        u32 words[4];
        f32 numbers[4];
        words[0] = px;
        words[1] = py;
        words[2] = pz;
        words[3] = pw;
        if (BITS > 0) {
            unroll (e : 4) numbers[e] = f32(words[e] >> 32 - BITS) * (1.0 / (1 << BITS));
        } else {
            unroll (h : 2) {
                f32 radius = 0, odd = 0, even = 0;
                {
                    f32 x = f32(0x1000000 - (words[h * 2] >> 8)) * 5.9604644775390625e-8, result = 0;
                    LOGARITHM
                    radius = sqrt(result * -2.0);
                }
                {
                    f32 x = f32(words[h * 2 + 1] >> 8) * 3.7450704e-7, result = 0;
                    { const TURN = 1; SINE }
                    even = result;
                    { const TURN = 0; SINE }
                    odd = result;
                }
                numbers[h * 2] = radius * even;
                numbers[h * 2 + 1] = radius * odd;
            }
        }
        if (W > 1) unroll (e : 4) drawn[(g * 4 + e) % W] = numbers[e];
        else unroll (e : 4) if ((i & 3) == e) drawn[0] = numbers[e];
    }
);

/* ---- the text of an expression ----------------------------------------------------------------------------------- */

static bool is_constant(vb_element_op op) { return op == VB_ELEMENT_CONSTANT || op == VB_ELEMENT_INTEGER; }

typedef struct writer {
    vb_jit_text text;
    const vb_map_args *args;
    unsigned char ints[VB_MAX_INPUTS + VB_MAX_STEPS];
    uint32_t constants[2 * VB_MAX_STEPS];
    int made[VB_MAX_INPUTS + VB_MAX_STEPS]; /* the parameter of a value that is a constant */
    int count;
} writer;

typedef struct spelled { char text[32]; } spelled;

/* Value v for element e of a thread. */
static spelled value_of(const writer *w, int v) {
    spelled s;
    const int inputs = (int)w->args->inputs;
    const vb_element_op op = v < inputs ? VB_ELEMENT_WHERE : w->args->program[v - inputs].op;
    if (v < inputs) snprintf(s.text, sizeof s.text, "x%d[e]", v + 1);
    else if (op == VB_ELEMENT_CONSTANT) snprintf(s.text, sizeof s.text, "from_bits(c%d)", w->made[v]);
    else if (op == VB_ELEMENT_INTEGER) snprintf(s.text, sizeof s.text, "s32(c%d)", w->made[v]);
    else snprintf(s.text, sizeof s.text, op == VB_ELEMENT_RANDOM ? "v%d[e]" : "v%d", v);
    return s;
}

/* One step of element e, value v. */
static void write_step(writer *w, int v, const vb_step *step) {
    const bool ints = vb_step_operands(step->op) > 0 && w->ints[vb_step_operands(step->op) == 3 ? step->b : step->a];
    const char *const kind = w->ints[v] ? "s32" : "f32";
    const spelled sa = vb_step_operands(step->op) > 0 ? value_of(w, step->a) : (spelled){""};
    const spelled sb = vb_step_operands(step->op) > 1 ? value_of(w, step->b) : (spelled){""};
    const spelled sc = vb_step_operands(step->op) > 2 ? value_of(w, step->c) : (spelled){""};
    const char *const a = sa.text, *const b = sb.text, *const c = sc.text, *body = NULL;
    vb_jit_text *const t = &w->text;
    int which = 0;
#define SAY(...) vb_jit_say(t, __VA_ARGS__)
    switch (step->op) {
    case VB_ELEMENT_CONSTANT:
    case VB_ELEMENT_INTEGER:
    case VB_ELEMENT_RANDOM: return; /* as value_of says */
    case VB_ELEMENT_INDEX: SAY("s32 v%d = s32(i + e);\n", v); return;
    case VB_ELEMENT_TO_FLOAT: SAY("f32 v%d = f32(%s);\n", v, a); return;
    case VB_ELEMENT_TO_INTEGER: SAY("s32 v%d = s32(%s);\n", v, a); return;
    case VB_ELEMENT_WHERE: SAY("%s v%d = %s;\nif (%s != 0) v%d = %s;\n", kind, v, c, a, v, b); return;
    case VB_ELEMENT_ADD: SAY(ints ? "s32 v%d = %s + %s;\n" : "f32 v%d = add_rn(%s, %s);\n", v, a, b); return;
    case VB_ELEMENT_SUB: SAY(ints ? "s32 v%d = %s - %s;\n" : "f32 v%d = add_rn(%s, -(%s));\n", v, a, b); return;
    case VB_ELEMENT_MUL: SAY(ints ? "s32 v%d = %s * %s;\n" : "f32 v%d = mul_rn(%s, %s);\n", v, a, b); return;
    case VB_ELEMENT_DIV:
        if (ints)
            SAY("s32 v%d = 0;\nif (%s == -1) v%d = -(%s);\nelse if (%s != 0) v%d = %s / %s;\n", v, b, v, a, b, v, a, b);
        else SAY("f32 v%d = %s / %s;\n", v, a, b);
        return;
    case VB_ELEMENT_REM:
        SAY("s32 v%d = 0;\nif (%s != 0 && %s != -1) v%d = %s %% %s;\n", v, b, b, v, a, b);
        return;
    case VB_ELEMENT_MIN:
    case VB_ELEMENT_MAX:
        SAY("%s v%d = %s;\n", kind, v, b);
        if (ints) SAY("if (%s %s %s) v%d = %s;\n", a, step->op == VB_ELEMENT_MIN ? "<" : ">", b, v, a);
        else SAY("if (%s %s %s || %s != %s) v%d = %s;\n", a, step->op == VB_ELEMENT_MIN ? "<" : ">", b, a, a, v, a);
        return;
    case VB_ELEMENT_NEG: SAY("%s v%d = -(%s);\n", kind, v, a); return;
    case VB_ELEMENT_ABS:
        if (ints) SAY("s32 v%d = %s;\nif (v%d < 0) v%d = -v%d;\n", v, a, v, v, v);
        else SAY("f32 v%d = abs(%s);\n", v, a);
        return;
    case VB_ELEMENT_EQ: SAY("s32 v%d = s32(%s == %s);\n", v, a, b); return;
    case VB_ELEMENT_NE: SAY("s32 v%d = s32(%s != %s);\n", v, a, b); return;
    case VB_ELEMENT_LT: SAY("s32 v%d = s32(%s < %s);\n", v, a, b); return;
    case VB_ELEMENT_LE: SAY("s32 v%d = s32(%s <= %s);\n", v, a, b); return;
    case VB_ELEMENT_AND: SAY("s32 v%d = %s & %s;\n", v, a, b); return;
    case VB_ELEMENT_OR: SAY("s32 v%d = %s | %s;\n", v, a, b); return;
    case VB_ELEMENT_XOR: SAY("s32 v%d = %s ^ %s;\n", v, a, b); return;
    case VB_ELEMENT_SHIFT_RIGHT: SAY("s32 v%d = s32(u32(%s) >> (u32(%s) & 31));\n", v, a, b); return;
    case VB_ELEMENT_SQRT: SAY("f32 v%d = sqrt(%s);\n", v, a); return;
    case VB_ELEMENT_RSQRT: SAY("f32 v%d = rcp(sqrt(%s));\n", v, a); return;
    case VB_ELEMENT_FLOOR: SAY("f32 v%d = floor(%s);\n", v, a); return;
    case VB_ELEMENT_CEIL: SAY("f32 v%d = -floor(-(%s));\n", v, a); return;
    case VB_ELEMENT_ROUND: SAY("f32 v%d = round(%s);\n", v, a); return;
    case VB_ELEMENT_POW:
        if (ints) {
            SAY("s32 v%d = 0;\n{ s32 x = %s, y = %s, result = 0;\nWHOLE_POWER\nv%d = result; }\n", v, a, b, v);
            return;
        }
        body = "POWER";
        break;
    case VB_ELEMENT_EXP: body = "EXPONENTIAL"; break;
    case VB_ELEMENT_LOG: body = "LOGARITHM"; break;
    case VB_ELEMENT_SIN: body = "const TURN = 0; SINE"; break;
    case VB_ELEMENT_COS: body = "const TURN = 1; SINE"; break;
    case VB_ELEMENT_TANH: which = VB_JIT_SOFT_CAP; break;
    case VB_ELEMENT_SIGMOID: which = VB_JIT_SIGMOID; break;
    case VB_ELEMENT_SILU: which = VB_JIT_SILU; break;
    case VB_ELEMENT_GELU: which = VB_JIT_GELU; break;
    case VB_ELEMENT_GELU_TANH: which = VB_JIT_GELU_TANH; break;
    }
    SAY("f32 v%d = 0;\n{ f32 x = %s, y = %s, result = 0;\n", v, a, *b ? b : "0.0");
    if (body) SAY("%s\n", body);
    else SAY("const WHICH = %d; ACTIVATION\n", which);
    SAY("v%d = result; }\n", v);
#undef SAY
}

/* The kernel. Parameters are the addresses of out and of each input, the number of elements, sizes but the first,
 * strides, and constants. */
static void write_kernel(writer *w, int width) {
    const vb_map_args *a = w->args;
    const int inputs = (int)a->inputs, steps = (int)a->steps, rank = (int)a->rank;
    vb_jit_text *const t = &w->text;
    vb_jit_say(t, "kernel ENTRY(");
    for (int v = 0; v <= inputs; v++) vb_jit_say(t, "u8 *data%d, ", v);
    vb_jit_say(t, "u32 count");
    for (int d = 1; d < rank; d++) vb_jit_say(t, ", u32 size%d", d);
    for (int v = 0; v <= inputs; v++)
        for (int d = 0; d < rank; d++) vb_jit_say(t, ", u64 step%d_%d", v, d);
    for (int c = 0; c < w->count; c++) vb_jit_say(t, ", u32 c%d", c);
    vb_jit_say(t, ") threads(256) {\nconst W = %d;\nu32 i = (block.x * 256 + thread.x) * W;\nif (i < count) {\n"
                  "u32 rest = i, place = 0, here = min(count - i, W);\n", width);
    for (int v = 0; v <= inputs; v++) vb_jit_say(t, "u64 at%d = 0;\n", v);
    for (int d = rank - 1; d >= 0; d--) {
        if (d > 0) vb_jit_say(t, "place = rest %% size%d;\nrest = rest / size%d;\n", d, d);
        for (int v = 0; v <= inputs; v++)
            vb_jit_say(t, "at%d += u64(%s) * step%d_%d;\n", v, d > 0 ? "place" : "rest", v, d);
    }
    for (int v = 0; v < inputs; v++) vb_jit_say_load(t, v + 1, &a->in[v], width, a->in[v].strides[rank - 1] == 0);
    for (int s = 0; s < steps; s++) {
        const int v = inputs + s;
        if (a->program[s].op != VB_ELEMENT_RANDOM) continue;
        vb_jit_say(t, "f32 v%d[W] = 0;\n{ f32 drawn[W] = 0;\nu32 key0 = c%d, key1 = c%d;\nconst BITS = %d;\nRANDOM\n"
                      "unroll (e : W) v%d[e] = drawn[e]; }\n",
                   v, w->made[v], w->made[v] + 1, a->program[s].c, v);
    }
    vb_jit_say(t, "%s x0[W] = 0;\nunroll (e : W) {\n", vb_is_integer(a->out.type) ? "s32" : "f32");
    for (int s = 0; s < steps; s++)
        write_step(w, inputs + s, &a->program[s]);
    vb_jit_say(t, "x0[e] = %s;\n}\n", value_of(w, inputs + steps - 1).text);
    vb_jit_say_store(t, 0, &a->out, width);
    vb_jit_say(t, "}\n}\n");
}

/* ---- launches ---------------------------------------------------------------------------------------------------- */

static vb_status run(const writer *w, int width, vb_stream *stream) {
    vb_map_args a = *w->args;
    const int inputs = (int)a.inputs, rank = (int)a.rank;
    int64_t n = 1;
    for (int d = 0; d < rank; d++) n *= a.sizes[d];
    if (n > INT32_MAX) { /* in parts of whole vectors */
        int d = 0;
        while (a.sizes[d] == 1) d++;
        const int64_t size = a.sizes[d], half = size / 32 > 0 ? size / 32 * 16 : size / 2;
        writer part = *w;
        part.args = &a;
        a.sizes[d] = half;
        const vb_status status = run(&part, width, stream);
        if (status != VB_OK) return status;
        a.sizes[d] = size - half;
        a.out.data = (char *)a.out.data + half * a.out.strides[d] * vb_element_bytes(a.out.type);
        for (int v = 0; v < inputs; v++)
            a.in[v].data = (char *)a.in[v].data + half * a.in[v].strides[d] * vb_element_bytes(a.in[v].type);
        return run(&part, width, stream);
    }
    void *parameters[2 + VB_MAX_INPUTS + VB_MAX_DIMS * (2 + VB_MAX_INPUTS) + 2 * VB_MAX_STEPS];
    uint32_t count = (uint32_t)n, sizes[VB_MAX_DIMS];
    int made = 0;
    parameters[made++] = &a.out.data;
    for (int v = 0; v < inputs; v++) parameters[made++] = &a.in[v].data;
    parameters[made++] = &count;
    for (int d = 1; d < rank; d++) {
        sizes[d] = (uint32_t)a.sizes[d];
        parameters[made++] = &sizes[d];
    }
    for (int d = 0; d < rank; d++) parameters[made++] = &a.out.strides[d];
    for (int v = 0; v < inputs; v++)
        for (int d = 0; d < rank; d++) parameters[made++] = &a.in[v].strides[d];
    for (int c = 0; c < w->count; c++) parameters[made++] = (void *)&w->constants[c];
    const vb_jit_filling f = {.source = "", .written = w->text.data,
        .texts = {{"POWER", power}, {"WHOLE_POWER", whole_power}, {"EXPONENTIAL", exponential},
                  {"LOGARITHM", logarithm}, {"SINE", sine}, {"ACTIVATION", activation}, {"FORMULA", vb_jit_formula},
                  {"RANDOM", random_numbers}},
        .constants = {{"FAST", 0}}};
    const int64_t each = 256 * (int64_t)width;
    return vb_jit_launch(stream, "ptx_map", &f, (n + each - 1) / each, 1, 1, 256, parameters);
}

vb_status vb_jit_map(const vb_map_args *args, vb_stream *stream) {
    vb_map_args a = *args;
    vb_view *views[1 + VB_MAX_INPUTS] = {&a.out};
    for (int i = 0; i < a.inputs; i++) views[1 + i] = &a.in[i];
    a.rank = vb_join_dims(a.sizes, a.rank, views, 1 + (int)a.inputs);
    writer w = {.args = &a};
    vb_map_kinds(w.ints, &a);
    for (int s = 0; s < a.steps; s++) {
        const vb_step *p = &a.program[s];
        w.made[a.inputs + s] = w.count;
        if (is_constant(p->op)) w.constants[w.count++] = (uint32_t)p->a;
        if (p->op == VB_ELEMENT_RANDOM) {
            w.constants[w.count++] = (uint32_t)p->a;
            w.constants[w.count++] = (uint32_t)p->b;
        }
    }
    int widest = 1;
    for (int v = 0; v <= a.inputs; v++)
        if (vb_element_bytes(views[v]->type) > widest) widest = vb_element_bytes(views[v]->type);
    int width = 16 / widest;
    for (int v = 0; v <= a.inputs; v++)
        while (width > 1 && !vb_jit_neighbours(views[v], a.sizes, (int)a.rank, width))
            width = width > 4 ? width / 2 : 1;
    write_kernel(&w, width);
    const vb_status status = w.text.data ? run(&w, width, stream) : VB_OUT_OF_MEMORY;
    free(w.text.data);
    return status;
}
