/* ptx_values.h: values in registers and memory, and the instructions that compute and move them. Part of
 * ptx_compile.c. */
#ifndef VB_PTX_VALUES_H
#define VB_PTX_VALUES_H

#include "ptx_words.h"

/* ---- values ------------------------------------------------------------------------------------------------------ */

static value integer(int64_t x) { return (value){.kind = U32, .form = CONSTANT, .integer = x}; }
static value real(double x) { return (value){.kind = F32, .form = CONSTANT, .real = x}; }

static value fresh(compiler *c, kind k) {
    const kind file = k == S32 ? U32 : k;
    return (value){.kind = k, .form = REGISTER, .reg = c->registers[file]++};
}

typedef struct operand {
    char text[96];
} operand;

/* A value as PTX writes it. */
static operand op(compiler *c, value v) {
    operand o;
    static const char prefix[] = {[BOOL] = 'p', [U32] = 'r', [S32] = 'r', [U64] = 'd', [F32] = 'f'};
    if (v.form == CONSTANT && v.kind == F32) {
        const float single = (float)v.real;
        uint32_t bits;
        memcpy(&bits, &single, sizeof bits);
        snprintf(o.text, sizeof o.text, "0f%08X", bits);
    } else if (v.form == CONSTANT && v.kind != BOOL) {
        snprintf(o.text, sizeof o.text, "%lld",
                 (long long)(v.kind == U32 && v.integer >= 0 ? (int64_t)(uint32_t)v.integer : v.integer));
    } else if (v.form == CONSTANT) {
        fail(c, "a condition that is known must be tested by if");
    } else {
        snprintf(o.text, sizeof o.text, "%%%c%d", v.form == POINTER ? (v.shared ? 'r' : 'd') : prefix[v.kind], v.reg);
    }
    return o;
}

#define OP(v) op(c, v).text

/* The same value of another kind, where that loses nothing that the reader of a kernel would not see. */
static value as(compiler *c, value v, kind k) {
    if (v.kind == k || (v.form == POINTER)) return v;
    if (v.form == CONSTANT && v.kind != F32) {
        if (k == F32) return real((double)v.integer);
        if (k != BOOL) return v.kind = k, v;
    }
    if (k == U64 && v.kind == U32) {
        const value wide = fresh(c, U64);
        return emit(c, "cvt.u64.u32 %s, %s", OP(wide), OP(v)), wide;
    }
    fail(c, "%s where %s is wanted", kinds[v.kind].name, kinds[k].name);
}

static value in_register(compiler *c, value v) {
    if (v.form != CONSTANT) return v;
    const value r = fresh(c, v.kind);
    return emit(c, "mov.%s %s, %s", kinds[v.kind].move, OP(r), OP(v)), r;
}

/* The kind in which two operands meet. */
static kind common(compiler *c, value a, value b) {
    if (a.kind == b.kind) return a.kind;
    if (a.form == CONSTANT && a.kind != F32) return b.kind;
    if (b.form == CONSTANT && b.kind != F32) return a.kind;
    if ((a.kind == U64 && b.kind == U32) || (a.kind == U32 && b.kind == U64)) return U64;
    fail(c, "%s and %s do not mix: convert one", kinds[a.kind].name, kinds[b.kind].name);
}

/* A number other than 0 that is known now is a condition, too. */
static value truth(compiler *c, value v, const char *what) {
    if (v.form == CONSTANT && v.kind != F32) return (value){.kind = BOOL, .form = CONSTANT, .integer = v.integer != 0};
    if (v.kind != BOOL || v.form != REGISTER) fail(c, "%s wants a condition", what);
    return v;
}

static value converted(compiler *c, value v, kind k) {
    if (v.form == CONSTANT) {
        if (k == F32) return v.kind == F32 ? v : real((double)v.integer);
        return (value){.kind = k, .form = CONSTANT, .integer = v.kind == F32 ? (int64_t)v.real : v.integer};
    }
    if (v.kind == k) return v;
    if ((v.kind == U32 && k == S32) || (v.kind == S32 && k == U32)) return v.kind = k, v;
    const value r = fresh(c, k);
    if (k == F32)
        emit(c, "cvt.rn.f32.%s %s, %s", kinds[v.kind].move, OP(r), OP(v));
    else if (v.kind == F32)
        emit(c, "cvt.rzi.%s.f32 %s, %s", kinds[k].move, OP(r), OP(v));
    else if (v.kind == BOOL)
        emit(c, "selp.%s %s, 1, 0, %s", kinds[k].move, OP(r), OP(v));
    else
        emit(c, "cvt.%s.%s %s, %s", kinds[k].move, kinds[v.kind].move, OP(r), OP(v));
    return r;
}

static value integer_of(compiler *c, value v, const char *what) {
    if (v.form != CONSTANT || v.kind == F32) fail(c, "%s is not known when the kernel is compiled", what);
    return v;
}

static value fold(compiler *c, const char *sign, value a, value b, kind k) {
    if (k == F32) {
        const double x = as(c, a, F32).real, y = as(c, b, F32).real;
        switch (sign[0]) {
        case '+': return real(x + y);
        case '-': return real(x - y);
        case '*': return real(x * y);
        case '/': return real(x / y);
        }
        fail(c, "%s of two numbers", sign);
    }
    const int64_t x = a.integer, y = b.integer;
    int64_t z = 0;
    bool truth = false;
    if (!strcmp(sign, "+")) z = x + y;
    else if (!strcmp(sign, "-")) z = x - y;
    else if (!strcmp(sign, "*")) z = x * y;
    else if ((!strcmp(sign, "/") || !strcmp(sign, "%")) && y == 0) fail(c, "division by 0");
    else if (!strcmp(sign, "/")) z = x / y;
    else if (!strcmp(sign, "%")) z = x % y;
    else if (!strcmp(sign, "<<")) z = x << y;
    else if (!strcmp(sign, ">>")) z = x >> y;
    else if (!strcmp(sign, "&")) z = x & y;
    else if (!strcmp(sign, "|")) z = x | y;
    else if (!strcmp(sign, "^")) z = x ^ y;
    else {
        truth = true;
        if (!strcmp(sign, "==")) z = x == y;
        else if (!strcmp(sign, "!=")) z = x != y;
        else if (!strcmp(sign, "<")) z = x < y;
        else if (!strcmp(sign, ">")) z = x > y;
        else if (!strcmp(sign, "<=")) z = x <= y;
        else if (!strcmp(sign, ">=")) z = x >= y;
        else if (!strcmp(sign, "&&")) z = x && y;
        else z = x || y;
    }
    return (value){.kind = truth ? BOOL : k, .form = CONSTANT, .integer = z};
}

static value binary(compiler *c, const char *sign, value a, value b) {
    if (!strcmp(sign, "&&") || !strcmp(sign, "||")) {
        const bool all = sign[0] == '&';
        a = truth(c, a, sign), b = truth(c, b, sign);
        if (a.form == CONSTANT) return (a.integer != 0) == all ? b : a;
        if (b.form == CONSTANT) return (b.integer != 0) == all ? a : b;
        const value r = fresh(c, BOOL);
        return emit(c, "%s.pred %s, %s, %s", all ? "and" : "or", OP(r), OP(a), OP(b)), r;
    }
    if (a.form == POINTER || b.form == POINTER) fail(c, "addresses have no %s: index them", sign);
    const kind k = common(c, a, b);
    if (a.form == CONSTANT && b.form == CONSTANT) return fold(c, sign, a, b, k);
    const bool divides = !strcmp(sign, "/") || !strcmp(sign, "%");
    if (divides && (k == U32 || k == U64) && b.form == CONSTANT && b.integer > 0 && !(b.integer & (b.integer - 1))) {
        int64_t power = 0; /* whose division the driver may compute in floats */
        while (b.integer >> power > 1) power++;
        return sign[0] == '/' ? binary(c, ">>", a, integer(power)) : binary(c, "&", a, integer(b.integer - 1));
    }
    static const struct { const char *sign, *name, *f32;
    } table[] = {
        {"+", "add", "add"},          {"-", "sub", "sub"},          {"*", "mul.lo", "mul"},
        {"/", "div", "div.rn"},       {"%", "rem", NULL},           {"<<", "shl", NULL},
        {">>", "shr", NULL},          {"&", "and", NULL},           {"|", "or", NULL},
        {"^", "xor", NULL},           {"==", "setp.eq", "setp.eq"}, {"!=", "setp.ne", "setp.neu"},
        {"<", "setp.lt", "setp.lt"},  {">", "setp.gt", "setp.gt"},  {"<=", "setp.le", "setp.le"},
        {">=", "setp.ge", "setp.ge"},
    };
    const bool shift = !strcmp(sign, "<<") || !strcmp(sign, ">>"), bits = shift || strchr("&|^", sign[0]);
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        if (strcmp(sign, table[i].sign)) continue;
        const char *instruction = k == F32 ? table[i].f32 : table[i].name;
        if (!instruction || k == BOOL) fail(c, "%s has no %s", kinds[k].name, sign);
        const value x = as(c, a, k), y = shift ? as(c, b, U32) : as(c, b, k);
        const value r = fresh(c, strncmp(instruction, "setp", 4) == 0 ? BOOL : k);
        const char *suffix = kinds[k].move;
        if (bits && strcmp(sign, ">>")) suffix = k == U64 ? "b64" : "b32";
        emit(c, "%s.%s %s, %s, %s", instruction, suffix, OP(r), OP(x), OP(y));
        return r;
    }
    fail(c, "unknown operator %s", sign);
}

static void move(compiler *c, value to, value from) {
    const value v = as(c, from, to.kind);
    emit(c, "mov.%s %s, %s", to.form == POINTER ? (to.shared ? "u32" : "u64") : kinds[to.kind].move, OP(to), OP(v));
}

/* ---- names and memory -------------------------------------------------------------------------------------------- */

static name *find(compiler *c, const char *text) {
    for (int i = c->name_count - 1; i >= 0; i--)
        if (!strcmp(c->names[i].text, text)) return &c->names[i];
    return NULL;
}

static name *declare(compiler *c, const char *text) {
    if (c->name_count == MAX_NAMES) fail(c, "more than %d names", MAX_NAMES);
    name *n = &c->names[c->name_count++];
    *n = (name){.what = VARIABLE};
    memcpy(n->text, text, NAME);
    return n;
}

static value expression(compiler *c);

static int64_t constant(compiler *c, const char *what) { return integer_of(c, expression(c), what).integer; }

static value index_of(compiler *c) {
    expect(c, "[");
    const value v = expression(c);
    expect(c, "]");
    return v;
}

/* [i][j]... of an array: the number of the element, less `known`, the part of it that constant indices make.
 * `left` is how many dimensions were not given. */
static value element(compiler *c, const name *n, int *left, int64_t *known) {
    value at = integer(0);
    int given = 0;
    *known = 0;
    for (; given < n->dims && is(c, "["); given++) {
        int64_t stride = 1;
        for (int i = given + 1; i < n->dims; i++) stride *= n->size[i];
        const value i = index_of(c);
        if (i.form == CONSTANT) {
            *known += i.integer * stride;
            continue;
        }
        const value part = stride == 1 ? i : binary(c, "*", i, integer(stride));
        at = at.form == CONSTANT ? part : binary(c, "+", at, part);
    }
    *left = n->dims - given;
    return at;
}

/* The element of a register array that its indices name: with *count elements from there on. */
static value register_element(compiler *c, const name *n, int *count) {
    int left;
    int64_t known;
    const value at = element(c, n, &left, &known);
    integer_of(c, at, "the index of an array of registers");
    *count = 1;
    int total = 1;
    for (int i = 0; i < n->dims; i++) total *= n->size[i];
    for (int i = n->dims - left; i < n->dims; i++) *count *= n->size[i];
    if (known < 0 || known + *count > total) fail(c, "index %lld of %s", (long long)known, n->text);
    value v = n->value;
    v.reg += (int)known;
    return v;
}

/* An address in memory as an instruction writes it, without brackets. */
typedef struct address {
    char text[128];
    kind kind;
    bool shared;
} address;

static address address_of(compiler *c, value base, int64_t offset, value index) {
    address a = {.kind = base.kind, .shared = base.shared};
    const int bytes = kinds[base.kind].bytes;
    if (index.form == CONSTANT) {
        offset += index.integer * bytes;
    } else if (base.shared) {
        value moved = fresh(c, U32);
        if (index.kind == U64) fail(c, "shared memory is indexed by 32 bits");
        value start = fresh(c, U32);
        emit(c, "mov.u32 %s, shared_base", OP(start));
        emit(c, "mad.lo.u32 %s, %s, %d, %s", OP(moved), OP(index), bytes, OP(start));
        base = moved;
        base.form = POINTER, base.shared = true;
    } else {
        value moved = fresh(c, U64);
        if (index.kind == U64)
            emit(c, "mad.lo.u64 %s, %s, %d, %s", OP(moved), OP(index), bytes, OP(base));
        else
            emit(c, "mad.wide.%s %s, %s, %d, %s", kinds[index.kind].move, OP(moved), OP(index), bytes, OP(base));
        moved.form = POINTER;
        base = moved;
    }
    if (base.form == POINTER)
        snprintf(a.text, sizeof a.text, "%s+%lld", OP(base), (long long)offset);
    else
        snprintf(a.text, sizeof a.text, "shared_base+%lld", (long long)offset);
    return a;
}

/* The address that a name with its indices has: of a pointer p[i], of a shared array s[i][j]. */
static address place_of(compiler *c, const name *n) {
    if (n->what == SHARED) {
        int left;
        int64_t known;
        const value at = element(c, n, &left, &known);
        return address_of(c, (value){.kind = n->value.kind, .form = REGISTER, .shared = true},
                          n->value.integer + known * kinds[n->value.kind].bytes, at);
    }
    if (n->what != VARIABLE || n->value.form != POINTER) fail(c, "%s is no memory", n->text);
    return address_of(c, n->value, 0, is(c, "[") ? index_of(c) : integer(0));
}

static const char *space(address a) { return a.shared ? "shared" : "global"; }

static value load(compiler *c, address a) {
    const bool half = a.kind == F16 || a.kind == BF16, small = a.kind == U8 || a.kind == U16;
    const value r = fresh(c, half ? F32 : a.kind == S8 ? S32 : small ? U32 : a.kind);
    if (a.kind == F16) {
        const int h = c->halves++;
        emit(c, "ld.%s.b16 %%h%d, [%s]", space(a), h, a.text);
        emit(c, "cvt.f32.f16 %s, %%h%d", OP(r), h);
    } else if (a.kind == BF16) {
        const value bits = fresh(c, U32);
        emit(c, "ld.%s.u16 %s, [%s]", space(a), OP(bits), a.text);
        emit(c, "shl.b32 %s, %s, 16", OP(bits), OP(bits));
        emit(c, "mov.b32 %s, %s", OP(r), OP(bits));
    } else {
        emit(c, "ld.%s.%s %s, [%s]", space(a), kinds[a.kind].move, OP(r), a.text);
    }
    return r;
}

/* The 16 bits of an f32 as BF16: to nearest even; NaN stays NaN. */
static value bf16_bits(compiler *c, value f) {
    if (c->target >= 80) { /* with a second number, 0, in the high half */
        const value pair = fresh(c, U32);
        return emit(c, "cvt.rn.bf16x2.f32 %s, 0f00000000, %s", OP(pair), OP(f)), pair;
    }
    const value bits = fresh(c, U32), odd = fresh(c, U32), nan = fresh(c, BOOL);
    emit(c, "mov.b32 %s, %s", OP(bits), OP(f));
    emit(c, "bfe.u32 %s, %s, 16, 1", OP(odd), OP(bits));
    emit(c, "add.u32 %s, %s, 32767", OP(odd), OP(odd));
    emit(c, "add.u32 %s, %s, %s", OP(bits), OP(bits), OP(odd));
    emit(c, "shr.u32 %s, %s, 16", OP(bits), OP(bits));
    emit(c, "testp.notanumber.f32 %s, %s", OP(nan), OP(f));
    emit(c, "selp.b32 %s, 32767, %s, %s", OP(bits), OP(bits), OP(nan));
    return bits;
}

static void store(compiler *c, address a, value v) {
    if (a.kind == F16) {
        const int h = c->halves++;
        emit(c, "cvt.rn.f16.f32 %%h%d, %s", h, OP(in_register(c, as(c, v, F32))));
        emit(c, "st.%s.b16 [%s], %%h%d", space(a), a.text, h);
    } else if (a.kind == BF16) {
        const value bits = bf16_bits(c, in_register(c, as(c, v, F32)));
        emit(c, "st.%s.u16 [%s], %s", space(a), a.text, OP(bits));
    } else {
        const kind k = a.kind == S8 ? S32 : a.kind == U8 || a.kind == U16 ? U32 : a.kind;
        emit(c, "st.%s.%s [%s], %s", space(a), kinds[a.kind].move, a.text, OP(in_register(c, as(c, v, k))));
    }
}

#endif
