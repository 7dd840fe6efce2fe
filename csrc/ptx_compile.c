/* ptx_compile.c: the compiler of ptx.h: expressions, statements, kernels. Words and values lie in headers of their
 * own. */
#include "ptx_values.h"

/* ---- functions in expressions ------------------------------------------------------------------------------------ */

static value comma(compiler *c, kind k) {
    expect(c, ",");
    return in_register(c, as(c, expression(c), k));
}

/* Functions of one f32. */
static const struct { const char *name, *instruction; } of_float[] = {
    {"exp2", "ex2.approx"}, {"exp2_fast", "ex2.approx.ftz"}, {"log2", "lg2.approx"}, {"rsqrt", "rsqrt.approx"},
    {"sqrt", "sqrt.rn"},
    {"rcp", "rcp.rn"}, {"rcp_fast", "rcp.approx.ftz"}, {"abs", "abs"}, {"floor", "cvt.rmi.f32"},
    {"round", "cvt.rni.f32"},
    {"cos", "cos.approx"}, {"sin", "sin.approx"}};

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
        emit(c, "%s.%s %s, %s, %s, %s", k == F32 ? "fma.rn" : "mad.lo", kinds[k].move, OP(*out), OP(as(c, x, k)),
             OP(as(c, y, k)), OP(as(c, z, k)));
    } else if (!strcmp(f, "add_rn") || !strcmp(f, "mul_rn")) { /* of f32, which the driver joins with no other */
        const value x = in_register(c, as(c, expression(c), F32)), y = comma(c, F32);
        *out = fresh(c, F32);
        emit(c, "%.3s.rn.f32 %s, %s, %s", f, OP(*out), OP(x), OP(y));
    } else if (!strcmp(f, "multiply_high")) { /* the upper 64 bits of a product of u64 */
        const value x = in_register(c, as(c, expression(c), U64)), y = comma(c, U64);
        *out = fresh(c, U64);
        emit(c, "mul.hi.u64 %s, %s, %s", OP(*out), OP(x), OP(y));
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
    } else if (!strcmp(f, "pack_bf16")) { /* the same as BF16, for 8.0 and later */
        const value x = in_register(c, as(c, expression(c), F32)), y = comma(c, F32);
        *out = fresh(c, U32);
        emit(c, "cvt.rn.bf16x2.f32 %s, %s, %s", OP(*out), OP(y), OP(x));
    } else if (!strcmp(f, "permute")) { /* bytes of x (0..3) and y (4..7): nibble i of the selector names byte i */
        const value x = in_register(c, as(c, expression(c), U32)), y = comma(c, U32), which = comma(c, U32);
        *out = fresh(c, U32);
        emit(c, "prmt.b32 %s, %s, %s, %s", OP(*out), OP(x), OP(y), OP(which));
    } else if (!strcmp(f, "fma_f16")) { /* a b + c of two halves in a word */
        const value x = in_register(c, as(c, expression(c), U32)), y = comma(c, U32), z = comma(c, U32);
        *out = fresh(c, U32);
        emit(c, "fma.rn.f16x2 %s, %s, %s, %s", OP(*out), OP(x), OP(y), OP(z));
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
        if (v.form == POINTER && !v.shared && k == U64) return (value){.kind = U64, .form = REGISTER, .reg = v.reg};
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
        if (!strcmp(text, "cluster_rank")) v = fresh(c, U32), emit(c, "mov.u32 %s, %%cluster_ctarank", OP(v));
        else if (!call(c, text, &v)) fail(c, "unknown function %s", text);
        expect(c, ")");
        return v;
    }
    const name *n = find(c, text);
    if (!n) {
        for (const vb_ptx_constant *known = c->constants; known && known->name; known++)
            if (!strcmp(known->name, text))
                return known->is_float ? real(known->value) : integer((int64_t)known->value);
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
    static const char *const levels[][5] = {
        {"||"},       {"&&"},     {"|"},          {"^"}, {"&"}, {"==", "!="}, {"<", ">", "<=", ">="},
        {"<<", ">>"}, {"+", "-"}, {"*", "/", "%"}};
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

/* Only the chosen arm is computed, so that p ? a[i] : 0 does not read outside. */
static value expression(compiler *c) {
    const value first = binary_of(c, 0);
    if (!take(c, "?")) return first;
    const value condition = truth(c, first, "?");
    if (condition.form == CONSTANT) { /* both arms are read, one is kept */
        const buffer before = c->body;
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

#include "ptx_instructions.h"

/* ---- statements -------------------------------------------------------------------------------------------------- */

static void statement(compiler *c);

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
        if (n->dims == MAX_DIMS || size < 1 || size > 1 << 20 || *total > (1 << 20) / size)
            fail(c, "size of %s", n->text);
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

/* ---- kernels ----------------------------------------------------------------------------------------------------- */

static void put(compiler *c, buffer *t, const char *format, ...) {
    va_list list;
    va_start(list, format);
    append(c, t, format, list);
    va_end(list);
}

/* kernel NAME(type *p, type n, ...) threads(N) { ... }, or threads(N, blocks that a multiprocessor has room for), then
 * cluster(N) where so many neighbouring blocks read each other's shared memory */
static void kernel(compiler *c, buffer *out) {
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
        if (take(c, ","))
            put(c, out, ".minnctapersm %lld\n", (long long)constant(c, "the blocks of a multiprocessor"));
        expect(c, ")");
    }
    if (take(c, "cluster")) {
        expect(c, "(");
        put(c, out, ".reqnctapercluster %lld, 1, 1\n", (long long)constant(c, "the number of blocks"));
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
    if (c->shared_bytes > VB_PTX_STATIC_SHARED)
        c->outside_bytes = c->shared_bytes;
    else if (c->shared_bytes > 0)
        put(c, out, "\t.shared .align 16 .b8 shared_base[%d];\n", c->shared_bytes);
    put(c, out, "\n%s}\n", c->body.data);
}

char *vb_ptx_compile(const char *source, const char *entry, const vb_ptx_constant *constants, int target, char *error,
                     size_t error_size) {
    compiler *c = calloc(1, sizeof *c);
    buffer *out = calloc(1, sizeof *out), *kernels = calloc(1, sizeof *kernels);
    char *result = NULL;
    if (error_size > 0) error[0] = 0;
    if (c && out && kernels) {
        *c = (compiler){.at = source,
                        .entry = entry,
                        .constants = constants,
                        .target = target,
                        .version = target >= 120 ? 87 : target >= 100 ? 86 : 80, /* that came with the target */
                        .error = error,
                        .error_size = error_size};
        if (setjmp(c->failed) == 0) {
            next(c);
            while (c->word.what != END) kernel(c, kernels);
            put(c, out, ".version %d.%d\n.target sm_%d\n.address_size 64\n", c->version / 10, c->version % 10, target);
            if (c->outside_bytes > 0) put(c, out, VB_PTX_SHARED_BYTES "%d\n", c->outside_bytes);
            put(c, out, "%s", kernels->data ? kernels->data : "");
            result = out->data;
            out->data = NULL;
        }
        free(out->data);
        free(kernels->data);
        free(c->body.data);
    } else {
        snprintf(error, error_size, "out of memory");
    }
    free(kernels);
    free(out);
    free(c);
    return result;
}
