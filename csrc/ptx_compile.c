/* ptx_compile.c: the compiler of ptx.h, in the order in which it reads: words, values, expressions, statements, kernels. */
#include "ptx.h"

#include <ctype.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef enum kind { VOID, BOOL, U32, S32, U64, F32, U8, S8, U16, F16, BF16 } kind; /* from U8 on: in memory only */

static const struct {
    const char *name, *move; /* in the language; the suffix of PTX */
    int bytes;
} kinds[] = {
    [VOID] = {"void", "", 0},   [BOOL] = {"bool", "pred", 0}, [U32] = {"u32", "u32", 4}, [S32] = {"s32", "s32", 4},
    [U64] = {"u64", "u64", 8},  [F32] = {"f32", "f32", 4},    [U8] = {"u8", "u8", 1},    [S8] = {"s8", "s8", 1},
    [U16] = {"u16", "u16", 2},  [F16] = {"f16", "b16", 2},    [BF16] = {"bf16", "b16", 2},
};

/* A number that is known now, a register, or the address of elements of a kind. */
typedef struct value {
    kind kind;
    enum { CONSTANT, REGISTER, POINTER } form;
    int64_t integer;
    double real;
    int reg;
    bool shared; /* of an address: in shared memory */
} value;

enum { MAX_DIMS = 4, MAX_NAMES = 256, NAME = 48 };

typedef struct name {
    char text[NAME];
    enum { VARIABLE, REGISTERS, SHARED } what;
    value value;      /* VARIABLE: may be a constant; REGISTERS: the first of them; SHARED: integer is the offset in bytes */
    int dims, size[MAX_DIMS];
    bool assignable;
} name;

typedef struct word {
    enum { END, IDENTIFIER, INTEGER, REAL, SIGN } what;
    char text[NAME];
    int64_t integer;
    double real;
} word;

typedef struct text {
    char *data;
    size_t length, capacity;
} text;

typedef struct compiler {
    const char *at; /* behind `word` */
    const char *start_of_word;
    word word;
    text body;
    name names[MAX_NAMES];
    int name_count;
    int registers[6]; /* of each kind up to F32 */
    int halves, labels, target;
    int shared_bytes;
    const char *entry;
    const vb_ptx_constant *constants;
    char *error;
    size_t error_size;
    jmp_buf failed;
} compiler;

static _Noreturn void fail(compiler *c, const char *format, ...) {
    va_list list;
    va_start(list, format);
    const int n = snprintf(c->error, c->error_size, "near \"%.20s\": ", c->start_of_word ? c->start_of_word : "");
    if (n >= 0 && (size_t)n < c->error_size) vsnprintf(c->error + n, c->error_size - (size_t)n, format, list);
    va_end(list);
    longjmp(c->failed, 1);
}

static void append(compiler *c, text *t, const char *format, va_list list) {
    va_list again;
    va_copy(again, list);
    const int n = vsnprintf(NULL, 0, format, list);
    if (t->length + (size_t)n + 1 > t->capacity) {
        const size_t capacity = 2 * (t->length + (size_t)n) + 4096;
        char *data = realloc(t->data, capacity);
        if (!data) {
            va_end(again);
            fail(c, "out of memory");
        }
        t->data = data;
        t->capacity = capacity;
    }
    vsnprintf(t->data + t->length, t->capacity - t->length, format, again);
    va_end(again);
    t->length += (size_t)n;
}

/* One instruction or label of the body. */
static void emit(compiler *c, const char *format, ...) {
    char line[768];
    va_list list;
    va_start(list, format);
    snprintf(line, sizeof line, format[0] == '$' ? "%s:\n" : "\t%s;\n", format);
    append(c, &c->body, line, list);
    va_end(list);
}

/* ---- words ------------------------------------------------------------------------------------------------------------ */

static void next(compiler *c) {
    word *w = &c->word;
    while (isspace((unsigned char)*c->at)) c->at++;
    c->start_of_word = c->at;
    *w = (word){.what = END};
    if (!*c->at) return;
    size_t n = 0;
    if (isalpha((unsigned char)*c->at) || *c->at == '_') {
        w->what = IDENTIFIER;
        while (isalnum((unsigned char)c->at[n]) || c->at[n] == '_') n++;
    } else if (isdigit((unsigned char)*c->at)) {
        char *end;
        w->what = INTEGER;
        w->integer = (int64_t)strtoull(c->at, &end, 0);
        if (*end == '.' || ((*end == 'e' || *end == 'E') && c->at[1] != 'x')) {
            w->what = REAL;
            w->real = strtod(c->at, &end);
        }
        c->at = end;
        return;
    } else {
        static const char *const signs[] = {"<<=", ">>=", "&&", "||", "==", "!=", "<=", ">=", "<<", ">>", "+=", "-=", "*=", "|=", "&=", "^="};
        w->what = SIGN;
        n = 1;
        for (size_t i = 0; i < sizeof signs / sizeof *signs; i++)
            if (strncmp(c->at, signs[i], strlen(signs[i])) == 0) {
                n = strlen(signs[i]);
                break;
            }
    }
    if (n >= NAME) fail(c, "a name of %zu characters is too long", n);
    memcpy(w->text, c->at, n);
    c->at += n;
}

static bool is(const compiler *c, const char *text) { return strcmp(c->word.text, text) == 0; }

static bool take(compiler *c, const char *text) {
    if (!is(c, text)) return false;
    next(c);
    return true;
}

static void expect(compiler *c, const char *text) {
    if (!take(c, text)) fail(c, "want %s", text);
}

static void identifier(compiler *c, char *text) {
    if (c->word.what != IDENTIFIER) fail(c, "want a name");
    memcpy(text, c->word.text, NAME);
    next(c);
}

/* Where reading can go on again later. */
typedef struct place {
    const char *at, *start_of_word;
    word word;
} place;

static place here(const compiler *c) { return (place){c->at, c->start_of_word, c->word}; }

static void go(compiler *c, place p) { c->at = p.at, c->start_of_word = p.start_of_word, c->word = p.word; }

/* Skips a statement: up to its semicolon, or a block. */
static void skip_statement(compiler *c) {
    int depth = 0;
    for (;; next(c)) {
        if (c->word.what == END) fail(c, "the text ends within a statement");
        depth += is(c, "{") || is(c, "(") || is(c, "[");
        depth -= is(c, "}") || is(c, ")") || is(c, "]");
        if (depth == 0 && (is(c, ";") || is(c, "}"))) break;
    }
    next(c);
}

static bool kind_of_word(const compiler *c, kind *k) {
    for (*k = BOOL; *k <= BF16; ++*k)
        if (c->word.what == IDENTIFIER && is(c, kinds[*k].name)) return true;
    return false;
}

/* ---- values ------------------------------------------------------------------------------------------------------------ */

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
        snprintf(o.text, sizeof o.text, "%lld", (long long)(v.kind == U32 && v.integer >= 0 ? (int64_t)(uint32_t)v.integer : v.integer));
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
    static const struct { const char *sign, *name, *f32; } table[] = {
        {"+", "add", "add"}, {"-", "sub", "sub"}, {"*", "mul.lo", "mul"}, {"/", "div", "div.rn"}, {"%", "rem", NULL},
        {"<<", "shl", NULL}, {">>", "shr", NULL}, {"&", "and", NULL}, {"|", "or", NULL}, {"^", "xor", NULL},
        {"==", "setp.eq", "setp.eq"}, {"!=", "setp.ne", "setp.neu"}, {"<", "setp.lt", "setp.lt"}, {">", "setp.gt", "setp.gt"},
        {"<=", "setp.le", "setp.le"}, {">=", "setp.ge", "setp.ge"},
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

/* ---- names and memory ---------------------------------------------------------------------------------------------------- */

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

/* [i][j]... of an array: the number of the element; `left` is how many dimensions were not given. */
static value element(compiler *c, const name *n, int *left) {
    value at = integer(0);
    int given = 0;
    while (given < n->dims && is(c, "[")) {
        const value i = index_of(c);
        at = binary(c, "+", binary(c, "*", at, integer(n->size[given])), i);
        given++;
    }
    *left = n->dims - given;
    for (int i = given; i < n->dims; i++) at = binary(c, "*", at, integer(n->size[i]));
    return at;
}

/* The element of a register array that its indices name: with *count elements from there on. */
static value register_element(compiler *c, const name *n, int *count) {
    int left;
    const value at = integer_of(c, element(c, n, &left), "the index of an array of registers");
    *count = 1;
    int total = 1;
    for (int i = 0; i < n->dims; i++) total *= n->size[i];
    for (int i = n->dims - left; i < n->dims; i++) *count *= n->size[i];
    if (at.integer < 0 || at.integer + *count > total) fail(c, "index %lld of %s", (long long)at.integer, n->text);
    value v = n->value;
    v.reg += (int)at.integer;
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
        const value at = element(c, n, &left);
        return address_of(c, (value){.kind = n->value.kind, .form = REGISTER, .shared = true}, n->value.integer, at);
    }
    if (n->what != VARIABLE || n->value.form != POINTER) fail(c, "%s is no memory", n->text);
    return address_of(c, n->value, 0, is(c, "[") ? index_of(c) : integer(0));
}

static const char *space(address a) { return a.shared ? "shared" : "global"; }

static value load(compiler *c, address a) {
    const value r = fresh(c, a.kind == F16 || a.kind == BF16 ? F32 : a.kind == S8 ? S32 : a.kind == U8 || a.kind == U16 ? U32 : a.kind);
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

static void store(compiler *c, address a, value v) {
    if (a.kind == F16) {
        const int h = c->halves++;
        emit(c, "cvt.rn.f16.f32 %%h%d, %s", h, OP(in_register(c, as(c, v, F32))));
        emit(c, "st.%s.b16 [%s], %%h%d", space(a), a.text, h);
    } else if (a.kind == BF16) { /* to nearest even; NaN stays NaN */
        const value bits = fresh(c, U32), odd = fresh(c, U32), nan = fresh(c, BOOL), f = in_register(c, as(c, v, F32));
        emit(c, "mov.b32 %s, %s", OP(bits), OP(f));
        emit(c, "bfe.u32 %s, %s, 16, 1", OP(odd), OP(bits));
        emit(c, "add.u32 %s, %s, 32767", OP(odd), OP(odd));
        emit(c, "add.u32 %s, %s, %s", OP(bits), OP(bits), OP(odd));
        emit(c, "shr.u32 %s, %s, 16", OP(bits), OP(bits));
        emit(c, "testp.notanumber.f32 %s, %s", OP(nan), OP(f));
        emit(c, "selp.b32 %s, 32767, %s, %s", OP(bits), OP(bits), OP(nan));
        emit(c, "st.%s.u16 [%s], %s", space(a), a.text, OP(bits));
    } else {
        const kind k = a.kind == S8 ? S32 : a.kind == U8 || a.kind == U16 ? U32 : a.kind;
        emit(c, "st.%s.%s [%s], %s", space(a), kinds[a.kind].move, a.text, OP(in_register(c, as(c, v, k))));
    }
}

/* ---- functions in expressions --------------------------------------------------------------------------------------------- */

static value comma(compiler *c, kind k) {
    expect(c, ",");
    return in_register(c, as(c, expression(c), k));
}

/* Functions of one f32. */
static const struct { const char *name, *instruction; } of_float[] = {
    {"exp2", "ex2.approx"}, {"log2", "lg2.approx"}, {"rsqrt", "rsqrt.approx"}, {"sqrt", "sqrt.rn"}, {"rcp", "rcp.rn"}, {"abs", "abs"},
    {"floor", "cvt.rmi.f32"}, {"round", "cvt.rni.f32"}, {"cos", "cos.approx"}, {"sin", "sin.approx"}};

static bool call(compiler *c, const char *f, value *out) {
    for (size_t i = 0; i < sizeof of_float / sizeof *of_float; i++) {
        if (strcmp(f, of_float[i].name)) continue;
        const value x = in_register(c, as(c, expression(c), F32));
        *out = fresh(c, F32);
        emit(c, "%s.f32 %s, %s", of_float[i].instruction, OP(*out), OP(x));
        return true;
    }
    if (!strcmp(f, "min") || !strcmp(f, "max")) {
        const value x = expression(c);
        expect(c, ",");
        const value y = expression(c);
        const kind k = common(c, x, y);
        if (x.form == CONSTANT && y.form == CONSTANT && k != F32) {
            *out = (x.integer < y.integer) == (f[1] == 'i') ? x : y;
            return true;
        }
        *out = fresh(c, k);
        emit(c, "%s.%s %s, %s, %s", f, kinds[k].move, OP(*out), OP(as(c, x, k)), OP(as(c, y, k)));
    } else if (!strcmp(f, "fma")) { /* a b + c of f32, rounded once; of integers */
        const value x = expression(c);
        expect(c, ",");
        const value y = expression(c);
        expect(c, ",");
        const value z = expression(c);
        const kind k = common(c, common(c, x, y) == x.kind ? x : y, z);
        *out = fresh(c, k);
        emit(c, "%s.%s %s, %s, %s, %s", k == F32 ? "fma.rn" : "mad.lo", kinds[k].move, OP(*out), OP(as(c, x, k)), OP(as(c, y, k)), OP(as(c, z, k)));
    } else if (!strcmp(f, "shuffle_xor")) { /* the value of the lane whose number differs in these bits */
        const value x = in_register(c, expression(c));
        expect(c, ",");
        const value lanes = as(c, expression(c), U32);
        *out = fresh(c, x.kind);
        emit(c, "shfl.sync.bfly.b32 %s, %s, %s, 31, -1", OP(*out), OP(x), OP(lanes));
    } else if (!strcmp(f, "shuffle_from")) { /* the value of a lane */
        const value x = in_register(c, expression(c));
        expect(c, ",");
        const value lane = as(c, expression(c), U32);
        *out = fresh(c, x.kind);
        emit(c, "shfl.sync.idx.b32 %s, %s, %s, 31, -1", OP(*out), OP(x), OP(lane));
    } else if (!strcmp(f, "dp4a")) { /* four products of signed bytes added to c */
        const value x = in_register(c, expression(c)), y = comma(c, x.kind), z = comma(c, S32);
        *out = fresh(c, S32);
        emit(c, "dp4a.s32.s32 %s, %s, %s, %s", OP(*out), OP(x), OP(y), OP(z));
    } else if (!strcmp(f, "f16_low") || !strcmp(f, "f16_high")) { /* of two halves in a word */
        const value x = in_register(c, as(c, expression(c), U32));
        const int h = c->halves;
        c->halves += 2;
        *out = fresh(c, F32);
        emit(c, "mov.b32 {%%h%d, %%h%d}, %s", h, h + 1, OP(x));
        emit(c, "cvt.f32.f16 %s, %%h%d", OP(*out), f[4] == 'l' ? h : h + 1);
    } else if (!strcmp(f, "pack_f16")) { /* two f32 as halves in a word, the first in the low bits */
        const value x = in_register(c, as(c, expression(c), F32)), y = comma(c, F32);
        const int h = c->halves;
        c->halves += 2;
        *out = fresh(c, U32);
        emit(c, "cvt.rn.f16.f32 %%h%d, %s", h, OP(x));
        emit(c, "cvt.rn.f16.f32 %%h%d, %s", h + 1, OP(y));
        emit(c, "mov.b32 %s, {%%h%d, %%h%d}", OP(*out), h, h + 1);
    } else if (!strcmp(f, "bits") || !strcmp(f, "from_bits")) { /* the 32 bits of an f32, and back */
        const bool back = f[0] == 'f';
        const value x = in_register(c, as(c, expression(c), back ? U32 : F32));
        *out = fresh(c, back ? F32 : U32);
        emit(c, "mov.b32 %s, %s", OP(*out), OP(x));
    } else {
        return false;
    }
    return true;
}

static const struct { const char *text, *reg; } special[] = {
    {"thread", "tid"}, {"block", "ctaid"}, {"threads", "ntid"}, {"blocks", "nctaid"}};

static value primary(compiler *c) {
    if (c->word.what == INTEGER) {
        const value v = integer(c->word.integer);
        return next(c), v;
    }
    if (c->word.what == REAL) {
        const value v = real(c->word.real);
        return next(c), v;
    }
    if (take(c, "(")) {
        const value v = expression(c);
        expect(c, ")");
        return v;
    }
    kind k;
    if (kind_of_word(c, &k)) { /* u32(x) */
        next(c);
        if (k > F32) fail(c, "%s lives in memory only", kinds[k].name);
        expect(c, "(");
        const value v = expression(c);
        expect(c, ")");
        return converted(c, v, k);
    }
    char text[NAME];
    identifier(c, text);
    for (size_t i = 0; i < sizeof special / sizeof *special; i++) {
        if (strcmp(text, special[i].text) || !is(c, ".")) continue;
        next(c);
        char axis[NAME];
        identifier(c, axis);
        if (strlen(axis) != 1 || !strchr("xyz", axis[0])) fail(c, "%s has x, y and z", text);
        const value r = fresh(c, U32);
        emit(c, "mov.u32 %s, %%%s.%c", OP(r), special[i].reg, axis[0]);
        return r;
    }
    if (take(c, "(")) {
        value v;
        if (!call(c, text, &v)) fail(c, "unknown function %s", text);
        expect(c, ")");
        return v;
    }
    const name *n = find(c, text);
    if (!n) {
        for (const vb_ptx_constant *k = c->constants; k && k->name; k++)
            if (!strcmp(k->name, text)) return k->is_float ? real(k->value) : integer((int64_t)k->value);
        fail(c, "unknown name %s", text);
    }
    if (n->what == REGISTERS) {
        int count;
        const value v = register_element(c, n, &count);
        if (count != 1) fail(c, "%s is an array", text);
        return v;
    }
    if (n->what == VARIABLE && (n->value.form != POINTER || !is(c, "["))) return n->value;
    return load(c, place_of(c, n));
}

static value unary(compiler *c) {
    if (take(c, "-")) {
        const value v = unary(c);
        if (v.form == CONSTANT && v.kind == F32) return real(-v.real);
        if (v.form == CONSTANT) return integer(-v.integer);
        if (v.kind != F32 && v.kind != S32) fail(c, "- of %s", kinds[v.kind].name);
        const value r = fresh(c, v.kind);
        return emit(c, "neg.%s %s, %s", kinds[v.kind].move, OP(r), OP(v)), r;
    }
    if (take(c, "!")) {
        const value v = truth(c, unary(c), "!");
        if (v.form == CONSTANT) return (value){.kind = BOOL, .form = CONSTANT, .integer = !v.integer};
        const value r = fresh(c, BOOL);
        return emit(c, "not.pred %s, %s", OP(r), OP(v)), r;
    }
    if (take(c, "~")) {
        const value v = unary(c);
        if (v.form == CONSTANT) return integer(~v.integer);
        const value r = fresh(c, v.kind);
        return emit(c, "not.%s %s, %s", v.kind == U64 ? "b64" : "b32", OP(r), OP(v)), r;
    }
    return primary(c);
}

static value binary_of(compiler *c, int level) {
    static const char *const levels[][5] = {{"||"}, {"&&"}, {"|"}, {"^"}, {"&"}, {"==", "!="}, {"<", ">", "<=", ">="}, {"<<", ">>"}, {"+", "-"}, {"*", "/", "%"}};
    if (level == (int)(sizeof levels / sizeof *levels)) return unary(c);
    value v = binary_of(c, level + 1);
    for (;;) {
        const char *sign = NULL;
        for (int i = 0; i < 5 && levels[level][i]; i++)
            if (c->word.what == SIGN && is(c, levels[level][i])) sign = levels[level][i];
        if (!sign) return v;
        next(c);
        v = binary(c, sign, v, binary_of(c, level + 1));
    }
}

/* Only the arm that is chosen is computed, so that p ? a[i] : 0 does not read outside. */
static value expression(compiler *c) {
    const value first = binary_of(c, 0);
    if (!take(c, "?")) return first;
    const value condition = truth(c, first, "?");
    if (condition.form == CONSTANT) { /* both arms are read, one is kept */
        const text before = c->body;
        const value yes = expression(c);
        if (!condition.integer) c->body.length = before.length;
        const size_t after = c->body.length;
        expect(c, ":");
        const value no = expression(c);
        if (condition.integer) c->body.length = after;
        return condition.integer ? yes : no;
    }
    const int other = c->labels, end = c->labels + 1;
    c->labels += 2;
    emit(c, "@!%s bra $L%d", OP(condition), other);
    const value yes = in_register(c, expression(c)), result = fresh(c, yes.kind);
    move(c, result, yes);
    emit(c, "bra $L%d", end);
    emit(c, "$L%d", other);
    expect(c, ":");
    move(c, result, expression(c));
    emit(c, "$L%d", end);
    return result;
}

/* ---- statements ----------------------------------------------------------------------------------------------------------- */

static void statement(compiler *c);

/* count registers of an array, as an argument of an instruction. */
static value registers(compiler *c, int count, kind k) {
    char text[NAME];
    identifier(c, text);
    const name *n = find(c, text);
    int have;
    if (!n || n->what != REGISTERS) fail(c, "%s is no array of registers", text);
    const value v = register_element(c, n, &have);
    if (have != count || v.kind != k) fail(c, "want %d registers of %s in %s", count, kinds[k].name, text);
    return v;
}

static operand list_of(compiler *c, value first, int count) {
    operand o;
    size_t used = 0;
    char text[sizeof o.text] = "";
    for (int i = 0; i < count && used < sizeof text; i++, first.reg++)
        used += (size_t)snprintf(text + used, sizeof text - used, "%s%s", i > 0 ? ", " : "", OP(first));
    if (used >= sizeof text) fail(c, "too many registers");
    memcpy(o.text, text, sizeof text);
    return o;
}

#define LIST(v, count) list_of(c, v, count).text

static address memory(compiler *c) {
    char text[NAME];
    identifier(c, text);
    const name *n = find(c, text);
    if (!n) fail(c, "unknown name %s", text);
    return place_of(c, n);
}

/* An array of registers from or to memory as one access of 8 or 16 bytes. */
static void vector(compiler *c, bool loads) {
    char text[NAME];
    address a;
    if (!loads) a = memory(c), expect(c, ",");
    identifier(c, text);
    const name *n = find(c, text);
    int count;
    if (!n || n->what != REGISTERS) fail(c, "%s is no array of registers", text);
    const value v = register_element(c, n, &count);
    if (loads) expect(c, ","), a = memory(c);
    if (count != 2 && count != 4) fail(c, "%s has %d elements: want 2 or 4", text, count);
    if (kinds[a.kind].bytes != 4 || kinds[v.kind].bytes != 4) fail(c, "vectors are of 4-byte elements");
    if (loads)
        emit(c, "ld.%s.v%d.b32 {%s}, [%s]", space(a), count, LIST(v, count), a.text);
    else
        emit(c, "st.%s.v%d.b32 [%s], {%s}", space(a), count, a.text, LIST(v, count));
}

static bool instruction(compiler *c, const char *f) {
    if (!strcmp(f, "barrier")) {
        emit(c, "bar.sync 0");
    } else if (!strcmp(f, "load")) {
        vector(c, true);
    } else if (!strcmp(f, "store")) {
        vector(c, false);
    } else if (!strcmp(f, "mma_f16")) { /* d[4] += a[16][16] b[16][8] of halves, d in f32 */
        const value d = registers(c, 4, F32);
        expect(c, ",");
        const value a = registers(c, 4, U32);
        expect(c, ",");
        const value b = registers(c, 2, U32);
        const operand dl = list_of(c, d, 4), al = list_of(c, a, 4), bl = list_of(c, b, 2);
        emit(c, "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%s}, {%s}, {%s}, {%s}", dl.text, al.text, bl.text, dl.text);
    } else if (!strcmp(f, "wmma_load_a") || !strcmp(f, "wmma_load_b")) { /* 16 x 16 of halves, rows of so many elements */
        const value r = registers(c, 8, U32);
        expect(c, ",");
        const address a = memory(c);
        expect(c, ",");
        const int64_t row = constant(c, "the length of a row");
        emit(c, "wmma.load.%c.sync.aligned.row.m16n16k16.shared.f16 {%s}, [%s], %lld", f[10], LIST(r, 8), a.text, (long long)row);
    } else if (!strcmp(f, "wmma_f16")) { /* d[16][16] += a b, d in f32 */
        const value d = registers(c, 8, F32);
        expect(c, ",");
        const value a = registers(c, 8, U32);
        expect(c, ",");
        const value b = registers(c, 8, U32);
        const operand dl = list_of(c, d, 8), al = list_of(c, a, 8), bl = list_of(c, b, 8);
        emit(c, "wmma.mma.sync.aligned.row.row.m16n16k16.f32.f32 {%s}, {%s}, {%s}, {%s}", dl.text, al.text, bl.text, dl.text);
    } else if (!strcmp(f, "wmma_store")) {
        const address a = memory(c);
        expect(c, ",");
        const value d = registers(c, 8, F32);
        expect(c, ",");
        const int64_t row = constant(c, "the length of a row");
        emit(c, "wmma.store.d.sync.aligned.row.m16n16k16.shared.f32 [%s], {%s}, %lld", a.text, LIST(d, 8), (long long)row);
    } else if (!strcmp(f, "load_matrices") || !strcmp(f, "load_matrices_transposed")) { /* four 8 x 8 of halves */
        const value r = registers(c, 4, U32);
        expect(c, ",");
        const address a = memory(c);
        emit(c, "ldmatrix.sync.aligned.m8n8.x4.%sshared.b16 {%s}, [%s]", strlen(f) > 13 ? "trans." : "", LIST(r, 4), a.text);
    } else if (!strcmp(f, "copy_async")) { /* 16 bytes from global to shared memory, zeros where the condition fails */
        const address to = memory(c);
        expect(c, ",");
        const address from = memory(c);
        expect(c, ",");
        const value valid = expression(c);
        value bytes = integer(16);
        if (valid.form != CONSTANT) {
            bytes = fresh(c, U32);
            emit(c, "selp.u32 %s, 16, 0, %s", OP(bytes), OP(valid));
        }
        emit(c, "cp.async.cg.shared.global [%s], [%s], 16, %s", to.text, from.text, OP(bytes));
    } else if (!strcmp(f, "copy_async_commit")) {
        emit(c, "cp.async.commit_group");
    } else if (!strcmp(f, "copy_async_wait")) {
        emit(c, "cp.async.wait_group %lld", (long long)constant(c, "the number of groups"));
    } else {
        return false;
    }
    return true;
}

/* NAME op= expression, or an element of memory or registers. */
static void assignment(compiler *c) {
    char text[NAME];
    identifier(c, text);
    if (take(c, "(")) {
        if (!instruction(c, text)) fail(c, "unknown instruction %s", text);
        expect(c, ")");
        return;
    }
    name *n = find(c, text);
    if (!n) fail(c, "unknown name %s", text);
    const bool in_memory = n->what == SHARED || (n->what == VARIABLE && n->value.form == POINTER && is(c, "["));
    address a = {.text = ""};
    value to = n->value;
    int count = 1;
    if (in_memory)
        a = place_of(c, n);
    else if (n->what == REGISTERS)
        to = register_element(c, n, &count);
    else if (!n->assignable)
        fail(c, "%s is constant", text);
    if (count != 1) fail(c, "%s is an array", text);
    char sign[NAME];
    memcpy(sign, c->word.text, NAME);
    const size_t length = strlen(sign);
    if (c->word.what != SIGN || length == 0 || sign[length - 1] != '=') fail(c, "want =");
    next(c);
    value v;
    if (to.form == POINTER && !in_memory) { /* p += n: moved by n elements */
        if (strcmp(sign, "+=")) fail(c, "an address is moved by += only");
        const address moved = address_of(c, to, 0, expression(c));
        if (moved.shared) fail(c, "addresses of shared memory do not move");
        emit(c, "add.u64 %s, %.*s, %s", OP(to), (int)strcspn(moved.text, "+"), moved.text, strchr(moved.text, '+') + 1);
        return;
    }
    if (length > 1) {
        sign[length - 1] = 0;
        v = binary(c, sign, in_memory ? load(c, a) : to, expression(c));
    } else {
        v = expression(c);
    }
    if (in_memory)
        store(c, a, v);
    else
        move(c, to, v);
}

static void dimensions(compiler *c, name *n, int *total) {
    *total = 1;
    while (is(c, "[")) {
        const int64_t size = integer_of(c, index_of(c), "the size of an array").integer;
        if (n->dims == MAX_DIMS || size < 1 || size > 1 << 20 || *total > (1 << 20) / size) fail(c, "size of %s", n->text);
        n->size[n->dims++] = (int)size;
        *total *= (int)size;
    }
}

static void shared_arrays(compiler *c) {
    kind k;
    if (!kind_of_word(c, &k) || k == BOOL) fail(c, "want a type");
    next(c);
    do {
        char text[NAME];
        identifier(c, text);
        name n = {.what = SHARED, .value = {.kind = k, .shared = true}};
        int total;
        memcpy(n.text, text, NAME);
        dimensions(c, &n, &total);
        n.value.integer = c->shared_bytes;
        c->shared_bytes += (total * kinds[k].bytes + 15) / 16 * 16;
        *declare(c, text) = n;
    } while (take(c, ","));
}

static void declaration(compiler *c, kind k) {
    next(c);
    do {
        char text[NAME];
        const bool pointer = take(c, "*");
        identifier(c, text);
        name n = {.what = VARIABLE, .assignable = true};
        memcpy(n.text, text, NAME);
        if (pointer) { /* another view of memory: f16 *p = q; */
            expect(c, "=");
            const value from = expression(c);
            if (from.form != POINTER) fail(c, "%s wants an address", text);
            n.value = fresh(c, U64);
            n.value.form = POINTER, n.value.kind = k;
            emit(c, "mov.u64 %s, %s", OP(n.value), OP(from));
        } else if (k > F32) {
            fail(c, "%s lives in memory only", kinds[k].name);
        } else if (is(c, "[")) {
            int total;
            n.what = REGISTERS;
            dimensions(c, &n, &total);
            n.value = fresh(c, k);
            c->registers[k == S32 ? U32 : k] += total - 1;
            if (take(c, "=")) { /* all elements alike */
                const value v = expression(c);
                value each = n.value;
                for (int i = 0; i < total; i++, each.reg++) move(c, each, v);
            }
        } else {
            n.value = fresh(c, k);
            if (take(c, "=")) {
                const value v = expression(c);
                move(c, n.value, v);
            }
        }
        *declare(c, text) = n;
    } while (take(c, ","));
}

static void simple(compiler *c) {
    kind k;
    if (kind_of_word(c, &k))
        declaration(c, k);
    else
        assignment(c);
}

static void unroll(compiler *c) {
    char text[NAME];
    expect(c, "(");
    identifier(c, text);
    expect(c, ":");
    const int64_t times = constant(c, "the number of iterations");
    expect(c, ")");
    if (times < 0 || times > 4096) fail(c, "%lld iterations", (long long)times);
    const place body = here(c);
    const int names = c->name_count;
    for (int64_t i = 0; i < times; i++) {
        go(c, body);
        declare(c, text)->value = integer(i);
        statement(c);
        c->name_count = names;
    }
    if (times == 0) skip_statement(c);
}

static void loop(compiler *c, bool counted) {
    const int names = c->name_count, start = c->labels, end = c->labels + 1;
    c->labels += 2;
    expect(c, "(");
    if (counted) {
        if (!is(c, ";")) simple(c);
        expect(c, ";");
    }
    emit(c, "$L%d", start);
    const value condition = expression(c);
    if (condition.kind != BOOL || condition.form == CONSTANT) fail(c, "a loop wants a condition");
    emit(c, "@!%s bra $L%d", OP(condition), end);
    place step = {0};
    if (counted) {
        expect(c, ";");
        step = here(c);
        int depth = 0;
        for (; depth > 0 || !is(c, ")"); next(c)) {
            if (c->word.what == END) fail(c, "the text ends within a loop");
            depth += is(c, "("), depth -= is(c, ")");
        }
    }
    expect(c, ")");
    statement(c);
    const place after = here(c);
    if (counted) go(c, step), assignment(c);
    go(c, after);
    emit(c, "bra $L%d", start);
    emit(c, "$L%d", end);
    c->name_count = names;
}

static void choice(compiler *c) {
    expect(c, "(");
    const value condition = truth(c, expression(c), "if");
    expect(c, ")");
    if (condition.form == CONSTANT) { /* decided now: the other branch is not compiled */
        if (condition.integer) statement(c);
        else skip_statement(c);
        if (take(c, "else")) {
            if (condition.integer) skip_statement(c);
            else statement(c);
        }
        return;
    }
    const int other = c->labels, end = c->labels + 1;
    c->labels += 2;
    emit(c, "@!%s bra $L%d", OP(condition), other);
    statement(c);
    if (take(c, "else")) {
        emit(c, "bra $L%d", end);
        emit(c, "$L%d", other);
        statement(c);
        emit(c, "$L%d", end);
    } else {
        emit(c, "$L%d", other);
    }
}

static void statement(compiler *c) {
    if (take(c, "{")) {
        const int names = c->name_count;
        while (!take(c, "}")) statement(c);
        c->name_count = names;
    } else if (take(c, "unroll")) {
        unroll(c);
    } else if (take(c, "for")) {
        loop(c, true);
    } else if (take(c, "while")) {
        loop(c, false);
    } else if (take(c, "if")) {
        choice(c);
    } else if (take(c, "return")) {
        emit(c, "ret");
        expect(c, ";");
    } else if (take(c, "shared")) {
        shared_arrays(c);
        expect(c, ";");
    } else if (take(c, "const")) {
        char text[NAME];
        identifier(c, text);
        expect(c, "=");
        const value v = expression(c);
        if (v.form != CONSTANT) fail(c, "%s is not known when the kernel is compiled", text);
        declare(c, text)->value = v;
        expect(c, ";");
    } else {
        if (c->word.what == END) fail(c, "the text ends within a block");
        simple(c);
        expect(c, ";");
    }
}

/* ---- kernels ---------------------------------------------------------------------------------------------------------------- */

static void put(compiler *c, text *t, const char *format, ...) {
    va_list list;
    va_start(list, format);
    append(c, t, format, list);
    va_end(list);
}

/* kernel NAME(type *p, type n, ...) threads(N) { ... } */
static void kernel(compiler *c, text *out) {
    char entry[NAME];
    expect(c, "kernel");
    identifier(c, entry);
    c->body.length = 0;
    memset(c->registers, 0, sizeof c->registers);
    c->halves = c->labels = c->shared_bytes = c->name_count = 0;
    put(c, out, "\n.visible .entry %s(", strcmp(entry, "ENTRY") ? entry : c->entry);
    expect(c, "(");
    for (int i = 0; !take(c, ")"); i++) {
        kind k;
        char text[NAME];
        if (i > 0) expect(c, ",");
        if (!kind_of_word(c, &k) || k == BOOL) fail(c, "want a type");
        next(c);
        const bool pointer = take(c, "*");
        identifier(c, text);
        if (!pointer && k > F32) fail(c, "%s lives in memory only", kinds[k].name);
        const value r = fresh(c, pointer ? U64 : k);
        const char *type = pointer ? "u64" : kinds[k].move;
        put(c, out, "%s\n\t.param .%s %s", i > 0 ? "," : "", type, text);
        emit(c, "ld.param.%s %s, [%s]", type, OP(r), text);
        name *n = declare(c, text);
        n->value = r;
        n->assignable = true;
        if (pointer) {
            emit(c, "cvta.to.global.u64 %s, %s", OP(r), OP(r));
            n->value.form = POINTER;
            n->value.kind = k;
        }
    }
    put(c, out, "\n)\n");
    if (take(c, "threads")) {
        expect(c, "(");
        put(c, out, ".maxntid %lld, 1, 1\n", (long long)constant(c, "the number of threads"));
        expect(c, ")");
    }
    if (!is(c, "{")) fail(c, "want the body of a kernel");
    statement(c);
    emit(c, "ret");
    put(c, out, "{\n");
    static const struct { kind kind; const char *type; char prefix; } files[] = {
        {BOOL, "pred", 'p'}, {U32, "b32", 'r'}, {U64, "b64", 'd'}, {F32, "f32", 'f'}};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        if (c->registers[files[i].kind] > 0)
            put(c, out, "\t.reg .%s %%%c<%d>;\n", files[i].type, files[i].prefix, c->registers[files[i].kind]);
    if (c->halves > 0) put(c, out, "\t.reg .b16 %%h<%d>;\n", c->halves);
    if (c->shared_bytes > 0) put(c, out, "\t.shared .align 16 .b8 shared_base[%d];\n", c->shared_bytes);
    put(c, out, "\n%s}\n", c->body.data);
}

char *vb_ptx_compile(const char *source, const char *entry, const vb_ptx_constant *constants, int target, char *error,
                     size_t error_size) {
    compiler *c = calloc(1, sizeof *c);
    text *out = calloc(1, sizeof *out);
    char *result = NULL;
    if (error_size > 0) error[0] = 0;
    if (c && out) {
        *c = (compiler){.at = source, .entry = entry, .constants = constants, .target = target, .error = error, .error_size = error_size};
        if (setjmp(c->failed) == 0) {
            /* 10.0 and 12.0 came with PTX 8.6 and 8.7. */
            put(c, out, ".version %s\n.target sm_%d\n.address_size 64\n", target >= 120 ? "8.7" : target >= 100 ? "8.6" : "8.0", target);
            next(c);
            while (c->word.what != END) kernel(c, out);
            result = out->data;
            out->data = NULL;
        }
        free(out->data);
        free(c->body.data);
    } else {
        snprintf(error, error_size, "out of memory");
    }
    free(out);
    free(c);
    return result;
}
