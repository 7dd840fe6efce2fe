/* libcuda.c: a libcuda.so.1 for tests without a GPU: memory is the host's, and a launch interprets the PTX of the
 * kernel, a thread after another up to the next barrier or shuffle. It knows what csrc/ptx_compile.c writes for
 * operations; anything else, an access outside what was allocated, and a barrier that not all reach, end the process
 * with a line that says which.
 *
 *     cc -O2 -shared -fPIC -o libcuda.so.1 csrc/testdata/libcuda.c -lm && LD_LIBRARY_PATH=. VIBRANT_CUDA=ptx ...
 *
 * VIBRANT_TEST_PTX=DIR also writes each text into a file there; VIBRANT_TEST_CAPABILITY=90 is a GPU of 9.0, not 8.0.
 * VIBRANT_TEST_TOGETHER=2: but for the first, a compilation waits for another one. VIBRANT_TEST_REFUSES=TEXT: PTX with
 * this text in it is refused. */
#ifndef _GNU_SOURCE
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#endif
#include <math.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef uint64_t word;

enum { REGISTERS = 16384, PARAMETERS = 256, WARP = 32, MOST_THREADS = 1024, MOST_SHARED = 100 << 10, MOST_CLUSTER = 8 };

static _Noreturn void die(const char *format, ...) {
    va_list list;
    va_start(list, format);
    fputs("libcuda of the tests: ", stderr);
    vfprintf(stderr, format, list);
    fputc('\n', stderr);
    va_end(list);
    abort();
}

/* ---- memory: what is allocated, so that stray accesses are found ------------------------------------------------- */

typedef struct area { char *at; size_t bytes; } area;
static area *areas;
static int area_count, area_room;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

static int first_above(const char *p) {
    int low = 0, high = area_count;
    while (low < high) {
        const int middle = (low + high) / 2;
        if (areas[middle].at <= p) low = middle + 1;
        else high = middle;
    }
    return low;
}

static void remember(char *at, size_t bytes) {
    if (area_count == area_room) areas = realloc(areas, (size_t)(area_room = 2 * area_room + 64) * sizeof *areas);
    const int place = first_above(at);
    memmove(areas + place + 1, areas + place, (size_t)(area_count++ - place) * sizeof *areas);
    areas[place] = (area){at, bytes};
}

static void forget(char *at) {
    const int place = first_above(at) - 1;
    if (place < 0 || areas[place].at != at) die("free of %p, which was not allocated", (void *)at);
    memmove(areas + place, areas + place + 1, (size_t)(--area_count - place) * sizeof *areas);
}

static char *global(word address, size_t bytes, const char *line) {
    static __thread area last;
    char *p = (char *)(uintptr_t)address;
    if (p >= last.at && p + bytes <= last.at + last.bytes) return p;
    const int place = first_above(p) - 1;
    if (place < 0 || p + bytes > areas[place].at + areas[place].bytes)
        die("%zu bytes at %p lie in no memory of the device: %s", bytes, (void *)p, line);
    last = areas[place];
    return p;
}

/* ---- reading PTX ------------------------------------------------------------------------------------------------- */

typedef enum opcode {
    MOV, ADD, SUB, MUL, HIGH, DIV, REM, SHL, SHR, AND, OR, XOR, NEG, NOT, FMA, WIDE, MIN, MAX, ABS, EX2, LG2, RSQRT,
        SQRT, RCP, FLOOR, ROUND, SIN, COS,
    CVT, SELP, SETP, LD, ST, LDPARAM, PACK, UNPACK, BFE, ISNAN, DP4A, PRMT, FMA2, PAIR, RED, COPY, BFLY, IDX,
        MATRICES, MMA, WLOAD, WMMA, WSTORE, BAR, BRA,
        RET, SPECIAL, INIT, ARRIVE, TRYWAIT, RANK, MAPA, TELL, CLUSTER
} opcode;
typedef enum type { U32, S32, U64, F32, PRED, F16, U16, U8, S8, NONE } type;
typedef enum relation { EQ, NE, LT, GT, LE, GE } relation;

typedef struct operand { int reg; word value; } operand; /* reg < 0: the value */
typedef struct instruction {
    opcode op;
    type type, from;
    relation relation;
    int guard, count, shared; /* guard: the predicate register that must be false, -1 for none */
    int dst[24];
    operand src[4];
    int64_t offset, other_offset;
    int target;
    const char *line;
} instruction;

typedef struct program {
    char *text;
    instruction *code;
    int length, registers, shared_bytes, most_shared_bytes, outside, parameters; /* outside: a launch says how many */
    int cluster; /* blocks that share a cluster, 0 for none */
    char entry[64], names[PARAMETERS][64];
    type types[PARAMETERS];
} program;

typedef struct reader { program *p; int base[5], labels[1 << 16], max[5]; } reader;

static const char files[] = "prdfh";

static int reg_of(reader *r, const char *text) { /* "%r12" */
    const char *file = strchr(files, text[1]);
    if (text[0] != '%' || !file || !*file) return -1;
    const int number = atoi(text + 2);
    return r->base[file - files] + number;
}

static operand operand_of(reader *r, const char *text) {
    if (text[0] == '%') {
        const int reg = reg_of(r, text);
        if (reg < 0) die("register %s", text);
        return (operand){reg, 0};
    }
    if (!strcmp(text, "shared_base")) return (operand){-1, 0};
    if (!strncmp(text, "0f", 2)) return (operand){-1, strtoull(text + 2, NULL, 16)};
    return (operand){-1, (word)strtoll(text, NULL, 0)};
}

static type type_of(const char *t) {
    static const struct { const char *name; type type; } all[] = {{"u32", U32}, {"b32", U32}, {"s32", S32},
        {"u64", U64}, {"b64", U64}, {"f32", F32},
        {"pred", PRED}, {"f16", F16}, {"b16", F16}, {"u16", U16}, {"u8", U8}, {"s8", S8}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (!strcmp(t, all[i].name)) return all[i].type;
    return NONE;
}

static size_t size_of(type t) { return t == U64 ? 8 : t == U32 || t == S32 || t == F32 ? 4 : t == U8 || t == S8
    ? 1 : 2; }

/* One line without its semicolon: NAME.PART.PART operand, operand. */
static void read_line(reader *r, char *line) {
    program *p = r->p;
    instruction in = {.guard = -1, .line = strdup(line), .type = NONE, .from = NONE};
    if (line[0] == '@') {
        if (line[1] != '!') die("guard: %s", line);
        char *end = strchr(line, ' ');
        *end = 0;
        in.guard = reg_of(r, line + 2);
        line = end + 1;
    }
    char *rest = strchr(line, ' '), *parts[10], *operands[32];
    int n = 0, count = 0, braces = 0;
    if (rest) *rest++ = 0;
    for (char *save, *part = strtok_r(line, ".", &save); part && n < 10; part = strtok_r(NULL, ".", &save))
        parts[n++] = part;
    for (char *save, *o = rest ? strtok_r(rest, ",", &save) : NULL; o && count < 32; o = strtok_r(NULL, ",", &save)) {
        while (*o == ' ' || *o == '{' || *o == '[') braces |= *o == '{' ? 1 << count : 0, o++;
        o[strcspn(o, " }]")] = 0;
        operands[count++] = o;
    }
    const char *name = n > 0 ? parts[0] : "";
    in.type = n > 1 ? type_of(parts[n - 1]) : NONE;
#define REG(i) reg_of(r, operands[i])
#define SRC(i) operand_of(r, operands[i])
    if (!strcmp(name, "griddepcontrol")) return; /* kernels run one after another */
    if (!strcmp(name, "cp") && strcmp(parts[2], "cg")) return; /* copies are done at once */
    if (!strcmp(name, "mbarrier")) {
        const int state = strcmp(parts[1], "init") ? 1 : 0; /* operands before the address */
        char *plus = strchr(operands[state], '+');
        if (plus) *plus = 0, in.offset = atoll(plus + 1);
        in.op = !state ? INIT : !strcmp(parts[1], "arrive") ? ARRIVE : TRYWAIT;
        in.shared = 1, in.src[0] = SRC(state);
        if (state) in.dst[0] = REG(0);
        in.src[1] = count > state + 1 ? SRC(state + 1) : (operand){-1, 0};
    } else if (!strcmp(name, "barrier")) { /* of a cluster: who arrives waits at once */
        if (!strcmp(parts[2], "arrive")) return;
        in.op = CLUSTER, in.type = U32;
    } else if (!strcmp(name, "mapa")) {
        in.op = MAPA, in.dst[0] = REG(0), in.src[0] = SRC(1), in.src[1] = SRC(2);
    } else if (!strcmp(name, "st") && !strcmp(parts[1], "async")) { /* two words for another block, and its barrier */
        in.op = TELL, in.type = U32, in.src[0] = SRC(0), in.src[1] = SRC(3), in.dst[0] = REG(1), in.dst[1] = REG(2);
    } else if (!strcmp(name, "ret")) in.op = RET;
    else if (!strcmp(name, "bar")) in.op = BAR;
    else if (!strcmp(name, "bra")) in.op = BRA, in.target = atoi(operands[0] + 2);
    else if (!strcmp(name, "cvta")) in.op = MOV, in.dst[0] = REG(0), in.src[0] = SRC(1);
    else if ((!strcmp(name, "ld") && strcmp(parts[1], "param")) || !strcmp(name, "st")) {
        const int load = name[0] == 'l';
        in.op = load ? LD : ST;
        in.shared = !strcmp(parts[1], "shared");
        in.count = 1;
        for (int i = 2; i < n; i++)
            if (parts[i][0] == 'v' && strlen(parts[i]) == 2) in.count = parts[i][1] - '0';
        char *address = operands[load ? count - 1 : 0], *plus = strchr(address, '+');
        if (plus) *plus = 0, in.offset = atoll(plus + 1);
        in.src[0] = operand_of(r, address);
        for (int i = 0; i < in.count; i++) {
            if (load) in.dst[i] = REG(i);
            else in.src[1] = SRC(1), in.dst[i] = REG(1 + i);
        }
        if (!load && in.count == 1 && in.src[1].reg < 0) in.dst[0] = -1;
    } else if (!strcmp(name, "ld")) {
        in.op = LDPARAM, in.dst[0] = REG(0);
        for (in.target = 0; in.target < p->parameters && strcmp(p->names[in.target], operands[1]);) in.target++;
        if (in.target == p->parameters) die("parameter %s", operands[1]);
    } else if (!strcmp(name, "mov") && braces == 1) { in.op = UNPACK, in.dst[0] = REG(0), in.dst[1] = REG(1),
        in.src[0] = SRC(2);
    } else if (!strcmp(name, "mov") && braces) { in.op = PACK, in.dst[0] = REG(0), in.src[0] = SRC(1),
        in.src[1] = SRC(2);
    } else if (!strcmp(name, "mov") && !strcmp(operands[1], "%cluster_ctarank")) {
        in.op = RANK, in.dst[0] = REG(0);
    } else if (!strcmp(name, "mov") && operands[1][0] == '%' && strchr(operands[1], '.')) {
        static const char *const names[] = {"%tid", "%ctaid", "%ntid", "%nctaid"};
        in.op = SPECIAL, in.dst[0] = REG(0);
        for (int i = 0; i < 4; i++)
            if (!strncmp(operands[1], names[i], strlen(names[i])) && operands[1][strlen(names[i])] == '.')
                in.target = i * 3 + operands[1][strlen(names[i]) + 1] - 'x';
    } else if (!strcmp(name, "setp")) {
        static const char *const names[] = {"eq", "ne", "lt", "gt", "le", "ge"};
        in.op = SETP, in.dst[0] = REG(0), in.src[0] = SRC(1), in.src[1] = SRC(2), in.relation = (relation)6;
        for (int i = 0; i < 6; i++)
            if (!strncmp(parts[1], names[i], 2)) in.relation = (relation)i;
        if (in.relation == (relation)6) die("%s", in.line);
    } else if (!strcmp(name, "ldmatrix")) { /* x4 */
        char *plus = strchr(operands[4], '+');
        if (plus) *plus = 0, in.offset = atoll(plus + 1);
        in.op = MATRICES, in.shared = 1, in.src[0] = SRC(4), in.relation = strcmp(parts[5], "trans") ? EQ : NE;
        for (int i = 0; i < 4; i++) in.dst[i] = REG(i);
    } else if (!strcmp(name, "mma")) { /* m16n8k16: d, a, b, c = d */
        in.op = MMA, in.from = !strcmp(parts[n - 2], "f16") ? F16 : U16;
        for (int i = 0; i < 14; i++) in.dst[i] = REG(i);
    } else if (!strcmp(name, "wmma")) { /* a matrix is 8 registers of each lane; d, a, b, c = d */
        in.op = parts[1][0] == 'l' ? WLOAD : parts[1][0] == 's' ? WSTORE : WMMA, in.shared = 1;
        const int address = in.op == WLOAD ? 8 : 0, first = in.op == WSTORE ? 1 : 0;
        for (int i = 0; i < (in.op == WMMA ? 24 : 8); i++) in.dst[i] = REG(first + i);
        if (in.op != WMMA) {
            char *plus = strchr(operands[address], '+');
            if (plus) *plus = 0, in.offset = atoll(plus + 1);
            in.src[0] = SRC(address), in.count = atoi(operands[count - 1]);
        }
    } else if (!strcmp(name, "prmt") || (!strcmp(name, "fma") && !strcmp(parts[n - 1], "f16x2"))) {
        in.op = name[0] == 'p' ? PRMT : FMA2, in.type = U32, in.dst[0] = REG(0);
        for (int k = 1; k < 4; k++) in.src[k - 1] = SRC(k);
    } else if (!strcmp(name, "shfl")) {
        in.op = parts[2][0] == 'b' ? BFLY : IDX, in.dst[0] = REG(0), in.src[0] = SRC(1), in.src[1] = SRC(2);
    } else if (!strcmp(name, "cvt") && count == 3) { /* two floats in a word, the second in the low bits */
        in.op = PAIR, in.from = !strcmp(parts[2], "f16x2") ? F16 : U16, in.type = U32, in.dst[0] = REG(0);
        in.src[0] = SRC(2), in.src[1] = SRC(1);
    } else if (!strcmp(name, "cp")) { /* 16 bytes to shared memory, of which so many are read */
        char *plus = strchr(operands[0], '+'), *other = strchr(operands[1], '+');
        if (plus) *plus = 0, in.offset = atoll(plus + 1);
        if (other) *other = 0, in.other_offset = atoll(other + 1);
        in.op = COPY, in.type = U32, in.shared = 1;
        in.src[0] = SRC(0), in.src[1] = SRC(1), in.src[2] = SRC(3);
    } else if (!strcmp(name, "red")) {
        in.op = RED, in.shared = !strcmp(parts[1], "shared");
        char *plus = strchr(operands[0], '+');
        if (plus) *plus = 0, in.offset = atoll(plus + 1);
        in.src[0] = SRC(0), in.src[1] = SRC(1);
    } else if (!strcmp(name, "cvt")) {
        in.op = !strcmp(parts[1], "rmi") ? FLOOR : !strcmp(parts[1], "rni") ? ROUND : CVT;
        in.from = in.type, in.type = type_of(parts[n - 2]), in.dst[0] = REG(0), in.src[0] = SRC(1);
    } else if (!strcmp(name, "testp")) in.op = ISNAN, in.dst[0] = REG(0), in.src[0] = SRC(1);
    else {
        static const struct { const char *name; opcode op; } all[] = {{"mov", MOV}, {"add", ADD}, {"sub", SUB},
            {"mul", MUL}, {"div", DIV},
            {"rem", REM}, {"shl", SHL}, {"shr", SHR}, {"and", AND}, {"or", OR}, {"xor", XOR}, {"neg", NEG},
                {"not", NOT}, {"fma", FMA}, {"mad", FMA},
            {"min", MIN}, {"max", MAX}, {"abs", ABS}, {"ex2", EX2}, {"lg2", LG2}, {"rsqrt", RSQRT}, {"sqrt",
                SQRT}, {"rcp", RCP}, {"sin", SIN},
            {"cos", COS}, {"selp", SELP}, {"bfe", BFE}, {"dp4a", DP4A}};
        size_t i = 0;
        while (i < sizeof all / sizeof *all && strcmp(all[i].name, name)) i++;
        if (i == sizeof all / sizeof *all || count < 2) die("unknown instruction: %s", in.line);
        in.op = all[i].op;
        if (in.op == FMA && !strcmp(parts[1], "wide")) in.op = WIDE;
        if (in.op == MUL && !strcmp(parts[1], "hi")) in.op = HIGH;
        in.dst[0] = REG(0);
        for (int k = 1; k < count && k < 5; k++) in.src[k - 1] = SRC(k);
    }
    if (in.type == NONE && in.op != RET && in.op != BAR && in.op != BRA && in.op != ISNAN) die("type of: %s", in.line);
    p->code[p->length++] = in;
}

static program *parse(const char *text) {
    program *p = calloc(1, sizeof *p);
    reader r = {.p = p};
    p->text = strdup(text);
    int lines = 0;
    for (const char *c = text; *c; c++) lines += *c == '\n';
    p->code = calloc((size_t)lines + 1, sizeof *p->code);
    for (char *save, *line = strtok_r(p->text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
        char kind[16], name[64], file;
        int size;
        while (*line == '\t') line++;
        if (sscanf(line, ".visible .entry %63[a-zA-Z0-9_]", p->entry) == 1) continue;
        if (sscanf(line, ".param .%15s %63[a-zA-Z0-9_]", kind, name) == 2) {
            p->types[p->parameters] = type_of(kind);
            strcpy(p->names[p->parameters++], name);
        } else if (sscanf(line, ".reg .%15s %%%c<%d>", kind, &file, &size) == 3) {
            r.base[strchr(files, file) - files] = p->registers;
            p->registers += size;
        } else if (sscanf(line, ".shared .align 16 .b8 shared_base[%d]", &size) == 1) {
            p->shared_bytes = size;
        } else if (sscanf(line, ".reqnctapercluster %d", &p->cluster) == 1) {
            continue;
        } else if (!strncmp(line, ".extern .shared ", 16)) {
            p->outside = 1;
        } else if (line[0] == '$') {
            r.labels[atoi(line + 2)] = p->length;
        } else if (line[0] == '@' || (line[0] >= 'a' && line[0] <= 'z')) {
            line[strcspn(line, ";")] = 0;
            read_line(&r, line);
        }
    }
    for (int i = 0; i < p->length; i++)
        if (p->code[i].op == BRA) p->code[i].target = r.labels[p->code[i].target];
    if (p->registers > REGISTERS) die("%d registers", p->registers);
    return p;
}

/* ---- running ----------------------------------------------------------------------------------------------------- */

static float f(word w) { float x; const uint32_t u = (uint32_t)w; memcpy(&x, &u, 4); return x; }
static word bits(float x) { uint32_t u; memcpy(&u, &x, 4); return u; }

/* WAITS_ALL: for the cluster. A block's rank is its number in the cluster, whose blocks lie one behind the other. */
typedef struct thread { int pc; enum { RUNS, SHUFFLES, WAITS, WAITS_ALL, POLLS, DONE } state; word *r; } thread;
typedef struct block { program *p; word special[12]; char *shared; void **parameters; int rank, blocks; } block;

/* A barrier in shared memory: who is to arrive yet in this phase, and in each, and the bytes that are to come. */
typedef struct phase { uint32_t pending : 12, count : 12, odd : 8; int32_t bytes; } phase;
enum { RANK_SHIFT = 24 }; /* where an address of the shared memory of block number n has n + 1 */
static word steps; /* of all threads */

static word value(const thread *t, operand o) { return o.reg < 0 ? o.value : t->r[o.reg]; }

static word load(const char *p, type t) {
    switch (t) {
    case U64: { word x; memcpy(&x, p, 8); return x; }
    case U8: return *(const uint8_t *)p;
    case S8: return (uint32_t)*(const int8_t *)p;
    case U16: case F16: { uint16_t x; memcpy(&x, p, 2); return x; }
    default: { uint32_t x; memcpy(&x, p, 4); return x; }
    }
}

static word arithmetic(const instruction *in, word a, word b, word c) {
    if (in->type == F32) {
        const float x = f(a), y = f(b);
        switch (in->op) {
        case ADD: return bits(x + y);
        case SUB: return bits(x - y);
        case MUL: return bits(x * y);
        case DIV: return bits(x / y);
        case FMA: return bits(fmaf(x, y, f(c)));
        case MIN: return bits(fminf(x, y));
        case MAX: return bits(fmaxf(x, y));
        case NEG: return bits(-x);
        case ABS: return bits(fabsf(x));
        case EX2: return bits((float)exp2((double)x));
        case LG2: return bits(log2f(x));
        case RSQRT: return bits(1 / sqrtf(x));
        case SQRT: return bits(sqrtf(x));
        case RCP: return bits(1 / x);
        case SIN: return bits(sinf(x));
        case COS: return bits(cosf(x));
        default: die("%s", in->line);
        }
    }
    if (in->type == PRED) return in->op == AND ? a & b : in->op == OR ? a | b : in->op == NOT ? !a : (die("%s",
        in->line), 0);
    const int wide = in->type == U64, sign = in->type == S32;
    word x = wide ? a : (uint32_t)a, y = wide ? b : (uint32_t)b, z = 0;
    const int32_t sx = (int32_t)a, sy = (int32_t)b;
    switch (in->op) {
    case ADD: z = x + y; break;
    case SUB: z = x - y; break;
    case MUL: z = x * y; break;
    case HIGH: z = (word)((unsigned __int128)x * y >> 64); break; /* of 64 bits */
    case FMA: z = x * y + c; break;
    case DIV: if (!y) die("division by 0: %s", in->line); z = sign ? (word)(int64_t)(sx / sy) : x / y; break;
    case REM: if (!y) die("division by 0: %s", in->line); z = sign ? (word)(int64_t)(sx % sy) : x % y; break;
    case SHL: z = (uint32_t)b > (wide ? 63 : 31) ? 0 : x << (uint32_t)b; break;
    case SHR: z = sign ? (word)(int64_t)(sx >> ((uint32_t)b > 31 ? 31 : b)) : (uint32_t)b > (wide ? 63 : 31)
        ? 0 : x >> (uint32_t)b; break;
    case AND: z = x & y; break;
    case OR: z = x | y; break;
    case XOR: z = x ^ y; break;
    case NEG: z = -x; break;
    case NOT: z = ~x; break;
    case MIN: z = sign ? (word)(sx < sy ? a : b) : x < y ? x : y; break;
    case MAX: z = sign ? (word)(sx > sy ? a : b) : x > y ? x : y; break;
    case DP4A:
        z = c;
        for (int i = 0; i < 32; i += 8) z += (word)(int64_t)((int8_t)(a >> i) * (int8_t)(b >> i));
        break;
    case BFE: z = x >> y & ((1u << c) - 1); break;
    default: die("%s", in->line);
    }
    return wide ? z : (uint32_t)z;
}

static word convert(const instruction *in, word a) {
    if (in->type == F32 && in->from == F16) { _Float16 h; const uint16_t u = (uint16_t)a; memcpy(&h, &u, 2);
        return bits((float)h); }
    if (in->type == F16) { const _Float16 h = (_Float16)f(a); uint16_t u; memcpy(&u, &h, 2); return u; }
    if (in->type == F32) return bits(in->from == S32 ? (float)(int32_t)a : in->from == U32 ? (float)(uint32_t)a
        : (float)a);
    if (in->from == F32) {
        const float x = f(a);
        if (isnan(x)) return 0;
        if (in->type == S32) return (uint32_t)(x >= 2147483648.0f ? INT32_MAX : x < -2147483648.0f ? INT32_MIN
            : (int32_t)x);
        return in->type == U32 ? (x < 0 ? 0 : x >= 4294967296.0f ? UINT32_MAX : (uint32_t)x) : x < 0 ? 0 : (word)x;
    }
    if (in->from == S32 && in->type == U64) return (word)(int64_t)(int32_t)a;
    return in->type == U64 ? (in->from == U64 ? a : (uint32_t)a) : (uint32_t)a;
}

static int compare(const instruction *in, word a, word b) {
#define COMPARE(x, y) (in->relation == EQ ? (x) == (y) : in->relation == NE ? (x) != (y) : in->relation == LT \
    ? (x) < (y) : \
                       in->relation == GT ? (x) > (y) : in->relation == LE ? (x) <= (y) : (x) >= (y))
    if (in->type == F32) return COMPARE(f(a), f(b));
    if (in->type == S32) return COMPARE((int32_t)a, (int32_t)b);
    if (in->type == U64) return COMPARE(a, b);
    return COMPARE((uint32_t)a, (uint32_t)b);
}

static float half_of(word w) { _Float16 h; const uint16_t u = (uint16_t)w; memcpy(&h, &u, 2); return (float)h; }
static word half_bits(float x) { const _Float16 h = (_Float16)x; uint16_t u; memcpy(&u, &h, 2); return u; }

static word bfloat_bits(float x) {
    const word w = bits(x);
    return isnan(x) ? 0x7fff : (w + 0x7fff + (w >> 16 & 1)) >> 16;
}

static word permute(word x, word y, word which) {
    const word all = (x & UINT32_MAX) | y << 32;
    word z = 0;
    for (int i = 0; i < 4; i++) z |= (all >> 8 * (which >> 4 * i & 7) & 255) << 8 * i;
    return z;
}

static word fma_pair(word x, word y, word z) {
    word out = 0;
    for (int i = 0; i < 32; i += 16)
        out |= half_bits(fmaf(half_of(x >> i), half_of(y >> i), half_of(z >> i))) << i;
    return out;
}

static char *place(const block *b, const thread *t, const instruction *in, size_t bytes) {
    const word at = value(t, in->src[0]) + (word)in->offset;
    if (at % bytes) die("address %llx of %zu bytes: %s", (unsigned long long)at, bytes, in->line);
    /* What nothing writes may be read up to the end of an aligned vector: a GPU's memory comes in larger pieces. */
    if (!in->shared) return global(at, bytes == 16 && strstr(in->line, ".nc.") ? 1 : bytes, in->line);
    if ((uint32_t)at >> RANK_SHIFT) die("shared address of another block: %s", in->line);
    if ((uint32_t)at + bytes > (size_t)b->p->shared_bytes) die("shared address %u: %s", (uint32_t)at, in->line);
    return b->shared + (uint32_t)at;
}

/* What another block of the cluster has at an address that mapa gave. */
static char *place_of_rank(const block *b, word at, size_t bytes, const char *line) {
    const int rank = (int)((uint32_t)at >> RANK_SHIFT) - 1;
    const uint32_t offset = (uint32_t)at & ((1u << RANK_SHIFT) - 1);
    if (rank < 0 || rank >= b->blocks || offset % bytes || offset + bytes > (size_t)b->p->shared_bytes)
        die("address %x of a cluster: %s", (uint32_t)at, line);
    return b[rank - b->rank].shared + offset;
}

/* Counts what arrives at a barrier: threads, and bytes, of which some may come before they are expected. */
static void arrive(char *place, unsigned threads, int bytes) {
    phase now;
    memcpy(&now, place, sizeof now);
    now.pending -= threads & 0xfff;
    now.bytes += bytes;
    if (now.pending == 0 && now.bytes == 0) now.pending = now.count, now.odd ^= 1u;
    memcpy(place, &now, sizeof now);
}

/* Runs a thread up to where it needs others. */
static void run(const block *b, thread *t, int number) {
    for (;;) {
        const instruction *in = &b->p->code[t->pc];
        if (t->pc >= b->p->length) die("a kernel without an end");
        steps++;
        if (in->guard >= 0 && t->r[in->guard]) { t->pc++; continue; }
        const word x = value(t, in->src[0]);
        switch (in->op) {
        case RET: t->state = DONE; return;
        case BAR: t->state = WAITS; return;
        case INIT: {
            const phase fresh = {.pending = value(t, in->src[1]) & 0xfff, .count = value(t, in->src[1]) & 0xfff};
            memcpy(place(b, t, in, 8), &fresh, sizeof fresh);
            break;
        }
        case ARRIVE: arrive(place(b, t, in, 8), 1, (int)value(t, in->src[1])); break;
        case CLUSTER: t->state = WAITS_ALL; return;
        case RANK: t->r[in->dst[0]] = (word)b->rank; break;
        case MAPA: t->r[in->dst[0]] = x | (value(t, in->src[1]) + 1) << RANK_SHIFT; break;
        case TELL: {
            char *to = place_of_rank(b, x, 8, in->line);
            const uint32_t pair[2] = {(uint32_t)t->r[in->dst[0]], (uint32_t)t->r[in->dst[1]]};
            memcpy(to, pair, 8);
            arrive(place_of_rank(b, value(t, in->src[1]), 8, in->line), 0, -8);
            break;
        }
        case TRYWAIT: {
            phase now;
            memcpy(&now, place(b, t, in, 8), sizeof now);
            if (now.odd == value(t, in->src[1])) { t->state = POLLS, steps--; return; }
            t->r[in->dst[0]] = 1;
            break;
        }
        case BFLY: case IDX: case MATRICES: case MMA: case WLOAD: case WMMA: case WSTORE: t->state = SHUFFLES; return;
        case BRA: t->pc = in->target; continue;
        case MOV: t->r[in->dst[0]] = in->type == U64 || in->type == PRED ? x : (uint32_t)x; break;
        case SPECIAL: t->r[in->dst[0]] = in->target == 0 ? (word)number : b->special[in->target]; break;
        case LDPARAM: memcpy(&t->r[in->dst[0]], b->parameters[in->target], size_of(in->type)); break;
        case SETP: t->r[in->dst[0]] = (word)compare(in, x, value(t, in->src[1])); break;
        case SELP: t->r[in->dst[0]] = value(t, in->src[2]) ? x : value(t, in->src[1]); break;
        case CVT: t->r[in->dst[0]] = convert(in, x); break;
        case FLOOR: t->r[in->dst[0]] = bits(floorf(f(x))); break;
        case ROUND: t->r[in->dst[0]] = bits(rintf(f(x))); break;
        case ISNAN: t->r[in->dst[0]] = isnan(f(x)) != 0; break;
        case PRMT: t->r[in->dst[0]] = permute(x, value(t, in->src[1]), value(t, in->src[2])); break;
        case FMA2: t->r[in->dst[0]] = fma_pair(x, value(t, in->src[1]), value(t, in->src[2])); break;
        case PAIR:
            t->r[in->dst[0]] = in->from == F16 ? half_bits(f(x)) | half_bits(f(value(t, in->src[1]))) << 16
                                               : bfloat_bits(f(x)) | bfloat_bits(f(value(t, in->src[1]))) << 16;
            break;
        case RED: {
            char *p = place(b, t, in, 4);
            const word sum = in->type == F32 ? bits(f(load(p, U32)) + f(value(t, in->src[1])))
                                             : load(p, U32) + value(t, in->src[1]);
            memcpy(p, &sum, 4);
            break;
        }
        case COPY: {
            char *to = place(b, t, in, 16);
            const size_t bytes = (size_t)(uint32_t)value(t, in->src[2]);
            const word from = value(t, in->src[1]) + (word)in->other_offset;
            if (from % 16) die("address %llx of 16 bytes: %s", (unsigned long long)from, in->line);
            memset(to, 0, 16);
            if (bytes) memcpy(to, global(from, bytes, in->line), bytes);
            break;
        }
        case PACK: t->r[in->dst[0]] = (x & 0xffff) | (value(t, in->src[1]) & 0xffff) << 16; break;
        case UNPACK: t->r[in->dst[0]] = x & 0xffff, t->r[in->dst[1]] = x >> 16 & 0xffff; break;
        case WIDE: t->r[in->dst[0]] = value(t, in->src[2]) + (in->type == S32 ? (word)((int64_t)(int32_t)x * (
            int64_t)(int32_t)value(t, in->src[1]))
                                                                             : (word)(uint32_t)x * (
                                                                                 uint32_t)value(t, in->src[1])); break;
        case LD: {
            const size_t bytes = size_of(in->type);
            const char *p = place(b, t, in, bytes * (size_t)in->count);
            for (int i = 0; i < in->count; i++) t->r[in->dst[i]] = load(p + (size_t)i * bytes, in->type);
            break;
        }
        case ST: {
            const size_t bytes = size_of(in->type);
            char *p = place(b, t, in, bytes * (size_t)in->count);
            for (int i = 0; i < in->count; i++) {
                const word v = in->dst[i] < 0 ? in->src[1].value : t->r[in->dst[i]];
                memcpy(p + (size_t)i * bytes, &v, bytes);
            }
            break;
        }
        default: t->r[in->dst[0]] = arithmetic(in, x, value(t, in->src[1]), value(t, in->src[2]));
        }
        t->pc++;
    }
}

/* Four 8 x 8 of halves: lane i names row i % 8 of matrix i / 8; of each, lane i gets two neighbours of row i / 4. */
static void load_matrices(const block *b, thread *warp, const instruction *in) {
    const char *rows[WARP];
    for (int i = 0; i < WARP; i++) rows[i] = place(b, &warp[i], in, 16);
    for (int i = 0; i < WARP; i++)
        for (int m = 0; m < 4; m++) {
            word both = 0;
            for (int e = 0; e < 2; e++) {
                const int near = i % 4 * 2 + e, far = i / 4;
                const int row = in->relation == EQ ? far : near, col = in->relation == EQ ? near : far;
                both |= load(rows[m * 8 + row] + 2 * col, F16) << 16 * e;
            }
            warp[i].r[in->dst[m]] = both;
        }
}

/* Element e of the two of 16 bits in a word. */
static float element(const instruction *in, word pair, int e) {
    return in->from == F16 ? half_of(pair >> 16 * e) : f(pair >> 16 * e << 16);
}

/* d[16][8] += a[16][16] b[16][8]. */
static void multiply(thread *warp, const instruction *in) {
    float a[16][16], b[16][8];
    for (int i = 0; i < WARP; i++)
        for (int e = 0; e < 2; e++) {
            for (int r = 0; r < 4; r++)
                a[i / 4 + r % 2 * 8][i % 4 * 2 + e + r / 2 * 8] = element(in, warp[i].r[in->dst[4 + r]], e);
            for (int r = 0; r < 2; r++) b[i % 4 * 2 + e + r * 8][i / 4] = element(in, warp[i].r[in->dst[8 + r]], e);
        }
    for (int i = 0; i < WARP; i++)
        for (int r = 0; r < 4; r++) {
            const int row = i / 4 + r / 2 * 8, col = i % 4 * 2 + r % 2;
            double sum = f(warp[i].r[in->dst[10 + r]]);
            for (int k = 0; k < 16; k++) sum += (double)a[row][k] * b[k][col];
            warp[i].r[in->dst[r]] = bits((float)sum);
        }
}

/* 16 x 16 elements: lane i has 8 of them in the order of rows, as f32 or as halves, two a word. A GPU's lanes have
 * others. */
static void move_tile(const block *b, thread *warp, const instruction *in) {
    const size_t bytes = size_of(in->type);
    for (int i = 0; i < WARP; i++) {
        const thread *t = &warp[i];
        const word start = value(t, in->src[0]) + (word)in->offset;
        for (int e = 0; e < 8; e++) {
            const int row = (i * 8 + e) / 16, col = (i * 8 + e) % 16;
            const word at = start + bytes * (word)(row * in->count + col);
            if (at % bytes || (uint32_t)at + bytes > (size_t)b->p->shared_bytes)
                die("shared address %u: %s", (uint32_t)at, in->line);
            char *p = b->shared + (uint32_t)at;
            if (in->op == WSTORE) memcpy(p, &t->r[in->dst[e]], bytes);
            else if (e % 2 == 0) t->r[in->dst[e / 2]] = load(p, F16);
            else t->r[in->dst[e / 2]] |= load(p, F16) << 16;
        }
    }
}

static void multiply_tiles(thread *warp, const instruction *in) {
    float d[256];
    for (int i = 0; i < 256; i++) {
        double sum = f(warp[i / 8].r[in->dst[i % 8]]);
        for (int k = 0; k < 16; k++) {
            const int left = i / 16 * 16 + k, right = k * 16 + i % 16;
            sum += (double)half_of(warp[left / 8].r[in->dst[8 + left % 8 / 2]] >> left % 2 * 16) *
                   (double)half_of(warp[right / 8].r[in->dst[16 + right % 8 / 2]] >> right % 2 * 16);
        }
        d[i] = (float)sum;
    }
    for (int i = 0; i < 256; i++) warp[i / 8].r[in->dst[i % 8]] = bits(d[i]);
}

/* All lanes of a warp that are not done stand at the same shuffle. */
static void shuffle(const block *b, thread *warp, int lanes) {
    word all[WARP], got[WARP];
    const instruction *in = NULL;
    for (int i = 0; i < lanes; i++) {
        const instruction *its = &b->p->code[warp[i].pc];
        if (warp[i].state != SHUFFLES || (in && its != in)) die("not all lanes reach: %s", its->line);
        in = its;
        all[i] = value(&warp[i], in->src[0]);
    }
    if (in->op >= MATRICES && in->op <= WSTORE) {
        if (lanes != WARP) die("%d lanes: %s", lanes, in->line);
        if (in->op == MMA) multiply(warp, in);
        else if (in->op == MATRICES) load_matrices(b, warp, in);
        else if (in->op == WMMA) multiply_tiles(warp, in);
        else move_tile(b, warp, in);
        for (int i = 0; i < lanes; i++) warp[i].pc++, warp[i].state = RUNS;
        return;
    }
    for (int i = 0; i < lanes; i++) {
        const int from = (in->op == BFLY ? i ^ (int)value(&warp[i], in->src[1]) : (int)value(&warp[i],
            in->src[1])) & 31;
        got[i] = from < lanes ? all[from] : all[i];
    }
    for (int i = 0; i < lanes; i++) warp[i].r[in->dst[0]] = got[i], warp[i].pc++, warp[i].state = RUNS;
}

/* The threads of a block, or of all blocks of a cluster, of `count` threads each. A thread that asks a barrier in
 * shared memory in vain asks again when the others have gone as far as they come. */
static void run_blocks(const block *b, thread *threads, int count) {
    const int all = b->blocks * count;
    for (;;) {
        const word before = steps;
        int waiting = 0, done = 0, released = 0;
        for (int number = 0; number < b->blocks; number++) {
            thread *const own = threads + number * count;
            int here = 0;
            for (int first = 0; first < count; first += WARP) {
                const int lanes = count - first < WARP ? count - first : WARP;
                for (;;) {
                    int shuffles = 0, polls = 0;
                    for (int i = first; i < first + lanes; i++) {
                        if (own[i].state == POLLS) own[i].state = RUNS;
                        if (own[i].state == RUNS) run(b + number, &own[i], i);
                        shuffles += own[i].state == SHUFFLES;
                        polls += own[i].state == POLLS;
                    }
                    if (!shuffles || polls) break;
                    shuffle(b + number, own + first, lanes);
                }
                for (int i = first; i < first + lanes; i++) here += own[i].state == WAITS,
                    waiting += own[i].state == WAITS_ALL, done += own[i].state == DONE;
            }
            if (here == count) {
                released = 1;
                for (int i = 0; i < count; i++) own[i].state = RUNS, own[i].pc++;
            }
        }
        if (done == all) return;
        if (waiting == all) {
            released = 1;
            for (int i = 0; i < all; i++) threads[i].state = RUNS, threads[i].pc++;
        }
        if (!released && steps == before) die("a barrier that not all of %d threads reach", all);
    }
}

struct launch { unsigned grid[3], block[3], shared; void *stream, *attributes; unsigned count; };

int cuLaunchKernelEx(const struct launch *how, void *function, void **parameters, void **extra) {
    const unsigned x = how->grid[0], y = how->grid[1], z = how->grid[2], bx = how->block[0];
    (void)extra;
    if (how->block[1] != 1 || how->block[2] != 1 || bx > MOST_THREADS || !x || !y || !z || y > 65535 || z > 65535)
        return 1;
    program *p = function;
    const unsigned blocks = p->cluster ? (unsigned)p->cluster : 1;
    if (how->shared && (!p->outside || how->shared > (unsigned)p->most_shared_bytes)) return 1;
    if (blocks > MOST_CLUSTER || x % blocks) return 1;
    pthread_mutex_lock(&mutex);
    if (p->outside) p->shared_bytes = (int)how->shared;
    block cluster[MOST_CLUSTER];
    const size_t shared = (size_t)p->shared_bytes, count = (size_t)blocks * bx, held = (size_t)p->registers;
    char *memory = calloc(blocks, shared + 1);
    thread *threads = calloc(count, sizeof *threads);
    word *registers = malloc(count * held * sizeof *registers);
    for (unsigned k = 0; k < z; k++)
        for (unsigned j = 0; j < y; j++)
            for (unsigned i = 0; i < x; i += blocks) {
                for (unsigned n = 0; n < blocks; n++)
                    cluster[n] = (block){.p = p, .parameters = parameters, .rank = (int)n, .blocks = (int)blocks,
                        .shared = memory + n * (shared + 1), .special = {[3] = i + n, j, k, bx, 1, 1, x, y, z}};
                memset(registers, 0xa5, count * held * sizeof *registers);
                memset(memory, 0xa5, blocks * (shared + 1));
                for (size_t t = 0; t < count; t++) threads[t] = (thread){0, RUNS, registers + t * held};
                run_blocks(cluster, threads, (int)bx);
            }
    free(registers);
    free(threads);
    free(memory);
    pthread_mutex_unlock(&mutex);
    return 0;
}

int cuLaunchKernel(void *function, unsigned x, unsigned y, unsigned z, unsigned bx, unsigned by, unsigned bz,
                   unsigned shared, void *stream, void **parameters, void **extra) {
    const struct launch how = {{x, y, z}, {bx, by, bz}, shared, stream, NULL, 0};
    return cuLaunchKernelEx(&how, function, parameters, extra);
}

/* So many that groups of eight have one to spare, as on a GPU. */
int cuOccupancyMaxActiveClusters(int *n, void *function, const struct launch *how) {
    (void)function; (void)how;
    *n = 9;
    return 0;
}

/* ---- the rest of the driver -------------------------------------------------------------------------------------- */

int cuInit(unsigned flags) { (void)flags; return 0; }
int cuDriverGetVersion(int *v) { *v = 12080; return 0; }
int cuDeviceGetCount(int *n) { *n = 1; return 0; }
int cuDeviceGet(int *d, int i) { *d = i; return 0; }
int cuDeviceGetName(char *name, int n, int d) { (void)d; snprintf(name, (size_t)n, "interpreter of PTX"); return 0; }
int cuDeviceGetAttribute(int *v, int what, int d) {
    const char *named = getenv("VIBRANT_TEST_CAPABILITY");
    const int capability = named ? atoi(named) : 80;
    (void)d;
    *v = what == 75 ? capability / 10 : what == 76 ? capability % 10 : what == 16 ? 1 : MOST_SHARED;
    return 0;
}
int cuDeviceTotalMem_v2(size_t *n, int d) { (void)d; *n = (size_t)4 << 30; return 0; }
int cuDevicePrimaryCtxRetain(void **c, int d) { (void)d; *c = &mutex; return 0; }
int cuDevicePrimaryCtxRelease_v2(int d) { (void)d; return 0; }
int cuCtxSetCurrent(void *c) { return c ? 0 : 201; }
int cuCtxSynchronize(void) { return 0; }
int cuMemGetInfo_v2(size_t *a, size_t *b) { *a = *b = (size_t)4 << 30; return 0; }
int cuMemAlloc_v2(word *p, size_t n) {
    if (n == 0 || n > (size_t)4 << 30) return n ? 2 : 1;
    char *memory = aligned_alloc(256, (n + 255) / 256 * 256);
    if (!memory) return 2;
    pthread_mutex_lock(&mutex);
    remember(memory, n);
    pthread_mutex_unlock(&mutex);
    *p = (word)(uintptr_t)memory;
    return 0;
}
int cuMemFree_v2(word p) {
    pthread_mutex_lock(&mutex);
    forget((char *)(uintptr_t)p);
    pthread_mutex_unlock(&mutex);
    free((void *)(uintptr_t)p);
    return 0;
}
int cuPointerGetAttribute(void *out, int attribute, word p) {
    pthread_mutex_lock(&mutex);
    const int place = first_above((char *)(uintptr_t)p) - 1;
    const area found = place >= 0 ? areas[place] : (area){0, 0};
    pthread_mutex_unlock(&mutex);
    if (!found.at || (char *)(uintptr_t)p >= found.at + found.bytes) return 1;
    if (attribute == 8 || attribute == 9) *(int *)out = 0; /* not managed; of device 0 */
    else *(word *)out = attribute == 11 ? (word)(uintptr_t)found.at : found.bytes;
    return 0;
}
int cuMemHostAlloc(void **p, size_t n, unsigned flags) { (void)flags; *p = malloc(n); return *p ? 0 : 2; }
int cuMemFreeHost(void *p) { free(p); return 0; }
int cuMemHostRegister_v2(void *p, size_t n, unsigned flags) { (void)p; (void)n; (void)flags; return 0; }
int cuMemHostUnregister(void *p) { (void)p; return 0; }
int cuMemcpyHtoD_v2(word to, const void *from, size_t n) { memmove((void *)(uintptr_t)to, from, n); return 0; }
int cuMemcpyDtoH_v2(void *to, word from, size_t n) { memmove(to, (void *)(uintptr_t)from, n); return 0; }
int cuMemcpyHtoDAsync_v2(word to, const void *from, size_t n, void *s) { (void)s; return cuMemcpyHtoD_v2(to, from, n); }
int cuMemcpyDtoHAsync_v2(void *to, word from, size_t n, void *s) { (void)s; memmove(to, (void *)(uintptr_t)from,
    n); return 0; }
int cuMemcpyDtoDAsync_v2(word to, word from, size_t n, void *s) { (void)s; return cuMemcpyHtoD_v2(to,
    (void *)(uintptr_t)from, n); }
int cuMemsetD8Async(word p, unsigned char v, size_t n, void *s) { (void)s; memset((void *)(uintptr_t)p, v, n);
    return 0; }
int cuStreamCreate(void **s, unsigned flags) { (void)flags; *s = malloc(1); return 0; }
int cuStreamDestroy_v2(void *s) { free(s); return 0; }
int cuStreamSynchronize(void *s) { (void)s; return 0; }
int cuStreamWaitEvent(void *s, void *e, unsigned flags) { (void)s; (void)e; (void)flags; return 0; }
int cuEventCreate(void **e, unsigned flags) { (void)flags; *e = malloc(1); return 0; }
int cuEventDestroy_v2(void *e) { free(e); return 0; }
int cuEventRecord(void *e, void *s) { (void)e; (void)s; return 0; }
int cuEventSynchronize(void *e) { (void)e; return 0; }
int cuEventQuery(void *e) { (void)e; return 0; }
int cuEventElapsedTime(float *ms, void *a, void *b) { (void)a; (void)b; *ms = 0.5f; return 0; }
int cuStreamBeginCapture_v2(void *s, int mode) { (void)s; (void)mode; return 801; }
int cuStreamEndCapture(void *s, void **g) { (void)s; (void)g; return 801; }
int cuGraphInstantiateWithFlags(void **e, void *g, unsigned long long flags) { (void)e; (void)g; (void)flags;
    return 801; }
int cuGraphExecUpdate_v2(void *e, void *g, void *info) { (void)e; (void)g; (void)info; return 801; }
int cuGraphLaunch(void *e, void *s) { (void)e; (void)s; return 801; }
int cuGraphExecDestroy(void *e) { (void)e; return 0; }
int cuGraphDestroy(void *g) { (void)g; return 0; }

int cuLinkCreate_v2(unsigned n, int *options, void **values, void **link) {
    (void)n; (void)options; (void)values;
    *link = calloc(1, sizeof(char *));
    return 0;
}
int cuLinkAddData_v2(void *link, int kind, void *data, size_t n, const char *name, unsigned options, int *o, void **v) {
    (void)n; (void)name; (void)options; (void)o; (void)v;
    const char *dir = getenv("VIBRANT_TEST_PTX");
    if (kind != 1) return 1;
    *(char **)link = strdup(data);
    if (dir) {
        static int count;
        char path[512];
        snprintf(path, sizeof path, "%s/%06d.ptx", dir, __atomic_fetch_add(&count, 1, __ATOMIC_RELAXED));
        FILE *file = fopen(path, "w");
        if (!file) die("cannot write %s", path);
        fputs(data, file);
        fclose(file);
    }
    return 0;
}
static void wait_for_others(int count) {
    static pthread_cond_t more = PTHREAD_COND_INITIALIZER;
    static int begun;
    struct timespec end;
    clock_gettime(CLOCK_REALTIME, &end);
    end.tv_sec += 20;
    pthread_mutex_lock(&mutex);
    begun++;
    pthread_cond_broadcast(&more);
    while (begun > 1 && begun <= count) /* the first opens the device */
        if (pthread_cond_timedwait(&more, &mutex, &end)) die("%d kernels compile at once, not %d", begun - 1, count);
    pthread_mutex_unlock(&mutex);
}
int cuLinkComplete(void *link, void **code, size_t *n) {
    const char *together = getenv("VIBRANT_TEST_TOGETHER"), *refused = getenv("VIBRANT_TEST_REFUSES");
    if (together) wait_for_others(atoi(together));
    if (refused && strstr(*(char **)link, refused)) return 218;
    *code = *(char **)link;
    *n = strlen(*code) + 1;
    return 0;
}
int cuLinkDestroy(void *link) { free(*(char **)link); free(link); return 0; }
int cuModuleLoadData(void **m, const void *code) {
    if (strncmp(code, ".version", 8)) return 200;
    *m = parse(code);
    return 0;
}
int cuModuleUnload(void *m) { (void)m; return 0; } /* small, and the process is a test */
int cuFuncSetAttribute(void *f_, int what, int value) {
    if (what != 8 || value > MOST_SHARED) return 1;
    ((program *)f_)->most_shared_bytes = value;
    return 0;
}
int cuModuleGetFunction(void **f_, void *m, const char *name) {
    *f_ = m;
    return strcmp(name, ((program *)m)->entry) ? 500 : 0;
}
