/* ptx_words.h: the state of the compiler of ptx.h while it reads, and how a text becomes words. Part of
 * ptx_compile.c. */
#ifndef VB_PTX_WORDS_H
#define VB_PTX_WORDS_H

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
    /* VARIABLE: may be a constant; REGISTERS: the first of them; SHARED: integer is the offset in bytes */
    value value;
    int dims, size[MAX_DIMS];
    bool assignable;
} name;

typedef struct word {
    enum { END, IDENTIFIER, INTEGER, REAL, SIGN } what;
    char text[NAME];
    int64_t integer;
    double real;
} word;

typedef struct buffer {
    char *data;
    size_t length, capacity;
} buffer;

typedef struct compiler {
    const char *at; /* behind `word` */
    const char *start_of_word;
    word word;
    buffer body;
    name names[MAX_NAMES];
    int name_count;
    int registers[6]; /* of each kind up to F32 */
    int halves, labels, target;
    int version; /* of PTX, 80 for 8.0: of the newest instruction */
    int shared_bytes, outside_bytes; /* of the kernel; of the kernel whose launch says how many it has */
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

static void append(compiler *c, buffer *t, const char *format, va_list list) {
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

/* ---- words ------------------------------------------------------------------------------------------------------- */

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
        static const char *const signs[] = {
            "<<=", ">>=", "&&", "||", "==", "!=", "<=", ">=", "<<", ">>", "+=", "-=", "*=", "|=", "&=", "^="};
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

#endif
