/* ptx_strided.c: reductions, cumulative sums, gathers and scatters of GPUs whose kernels the driver compiles, on arrays
 * with strides. The text of a kernel is written for the type and the number of dimensions of its arrays. */
#include "ptx_strided.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- texts ------------------------------------------------------------------------------------------------------- */

void vb_jit_say(vb_jit_text *t, const char *format, ...) {
    for (;;) {
        va_list list;
        va_start(list, format);
        const int n = t->failed ? 0 : vsnprintf(t->data + t->used, t->room - t->used, format, list);
        va_end(list);
        if (t->failed) return;
        if (n >= 0 && t->used + (size_t)n < t->room) {
            t->used += (size_t)n;
            return;
        }
        char *data = realloc(t->data, 2 * t->room + 4096);
        if (!data) {
            free(t->data);
            *t = (vb_jit_text){.failed = true};
            return;
        }
        t->data = data;
        t->room = 2 * t->room + 4096;
    }
}

bool vb_jit_neighbours(const vb_view *v, const int64_t *sizes, int rank, int width) {
    if (rank > 1 && sizes[rank - 1] % width != 0) return false;
    if (v->strides[rank - 1] == 0) return true;
    if (v->strides[rank - 1] != 1 || (uintptr_t)v->data % ((uintptr_t)width * (uintptr_t)vb_element_bytes(v->type)))
        return false;
    for (int d = 0; d < rank - 1; d++)
        if (v->strides[d] % width != 0) return false;
    return true;
}

/* The type of the pointer to elements, and the texts that read and write an element. */
static const char *pointer_of(vb_dtype type) {
    switch (type) {
    case VB_F16: return "f16";
    case VB_BF16: return "bf16";
    case VB_F32: return "f32";
    case VB_I32: return "s32";
    case VB_I8: return "s8";
    default: return "u8";
    }
}
static const char *read_of(vb_dtype type) {
    return type == VB_U8 ? "s32(%s)" : type == VB_BOOL ? "s32(%s != 0)" : "%s";
}
static const char *written_of(vb_dtype type) {
    return type == VB_U8 ? "u32(%s)" : type == VB_BOOL ? "u32(%s != 0)" : "%s";
}

/* Appends a format with one %s, which is the text of one element. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
#pragma GCC diagnostic ignored "-Wformat-security"
static void say_element(vb_jit_text *t, const char *format, const char *element, int number) {
    char named[48], text[96];
    snprintf(named, sizeof named, element, number);
    snprintf(text, sizeof text, format, named);
    vb_jit_say(t, "%s", text);
}
#pragma GCC diagnostic pop

void vb_jit_say_load(vb_jit_text *t, int k, const vb_view *v, int width, bool repeated) {
    const bool floats = vb_is_float(v->type);
    const int bytes = vb_element_bytes(v->type);
    vb_jit_say(t, "%s x%d[W] = 0;\n{ %s *p%d = data%d;\np%d += at%d;\n", floats ? "f32" : "s32", k,
               pointer_of(v->type), k, k, k, k);
    if (width == 1 || repeated) {
        vb_jit_say(t, "%s one = ", floats ? "f32" : "s32");
        say_element(t, read_of(v->type), "p%d[0]", k);
        vb_jit_say(t, ";\nunroll (e : W) x%d[e] = one; }\n", k);
        return;
    }
    vb_jit_say(t, "if (here == W) {\n");
    if (bytes > 1) {
        vb_jit_say(t, "load(x%d, p%d[0]);\n", k, k);
    } else {
        vb_jit_say(t, "u32 *q = p%d;\nu32 w[W / 4];\n", k);
        vb_jit_say(t, width == 4 ? "w[0] = q[0];\n" : "load(w, q[0]);\n");
        vb_jit_say(t, v->type == VB_I8 ? "unroll (e : W) x%d[e] = s32(w[e / 4] << 24 - e %% 4 * 8) >> 24;\n"
                      : v->type == VB_U8 ? "unroll (e : W) x%d[e] = s32(w[e / 4] >> e %% 4 * 8 & 255);\n"
                      : "unroll (e : W) x%d[e] = s32((w[e / 4] >> e %% 4 * 8 & 255) != 0);\n", k);
    }
    vb_jit_say(t, "} else {\nunroll (e : W) if (e < here) x%d[e] = ", k);
    say_element(t, read_of(v->type), "p%d[e]", k);
    vb_jit_say(t, ";\n} }\n");
}

void vb_jit_say_store(vb_jit_text *t, int k, const vb_view *v, int width) {
    const int bytes = vb_element_bytes(v->type);
    vb_jit_say(t, "{ %s *p%d = data%d;\np%d += at%d;\n", pointer_of(v->type), k, k, k, k);
    if (width > 1) {
        vb_jit_say(t, "if (here == W) {\n");
        if (bytes > 1) {
            vb_jit_say(t, "store(p%d[0], x%d);\n", k, k);
        } else {
            vb_jit_say(t, "u32 *q = p%d;\nu32 w[W / 4] = 0;\nunroll (e : W) w[e / 4] = w[e / 4] | ", k);
            vb_jit_say(t, v->type == VB_BOOL ? "u32(x%d[e] != 0)" : "(u32(x%d[e]) & 255)", k);
            vb_jit_say(t, " << e %% 4 * 8;\n");
            vb_jit_say(t, width == 4 ? "q[0] = w[0];\n" : "store(q[0], w);\n");
        }
        vb_jit_say(t, "} else {\n");
    }
    vb_jit_say(t, "unroll (e : W) if (e < here) p%d[e] = ", k);
    say_element(t, written_of(v->type), "x%d[e]", k);
    vb_jit_say(t, width > 1 ? ";\n} }\n" : ";\n}\n");
}

/* The place of element `number` (u64) along the dimensions, in elements, is added to at. */
static void say_place(vb_jit_text *t, const char *number, const char *at, const char *sizes, const char *strides,
                      int rank) {
    if (rank == 1) {
        vb_jit_say(t, "%s += u64(%s) * %s0;\n", at, number, strides);
        return;
    }
    vb_jit_say(t, "{ u64 rest = u64(%s), next = 0;\n", number);
    for (int d = rank - 1; d > 0; d--) {
        vb_jit_say(t, "if (rest < 0x100000000) next = u64(u32(rest) / u32(%s%d)); else next = rest / %s%d;\n", sizes, d,
                   sizes, d);
        vb_jit_say(t, "%s += (rest - next * %s%d) * %s%d;\nrest = next;\n", at, sizes, d, strides, d);
    }
    vb_jit_say(t, "%s += rest * %s0; }\n", at, strides);
}

static void say_parameters(vb_jit_text *t, const char *name, int rank, int first) {
    for (int d = first; d < rank; d++) vb_jit_say(t, ", u64 %s%d", name, d);
}

/* ---- reductions -------------------------------------------------------------------------------------------------- */

/* A state is a, b (f32) and i (s32); REDUCTION is vibrant.h's number. INTS: elements are integers, and a has the bits
 * of the greatest or smallest. `number` is the element's number. */
static const char none[] = VB_PTX_SOURCE(
    a = 0;
    b = 0;
    i = 0;
    if (REDUCTION == 1) {
        a = 1.0;
        i = 1;
    }
    if (REDUCTION == 7) i = 1;
    if (REDUCTION == 4 || REDUCTION == 5) i = 0x7fffffff;
    if (REDUCTION == 11) a = from_bits(0xff800000);
);
/* Puts the element, or the best of another state, before the best so far: `better`. */
static const char compare[] = VB_PTX_SOURCE(
    bool better = b == 0.0;
    if (INTS) {
        s32 best = s32(bits(a)), other = s32(bits(x));
        bool first = REDUCTION % 2 == 0 ? other > best : other < best;
        better = better || first || NAMED != 0 && other == best && number < i;
    } else {
        bool first = REDUCTION % 2 == 0 ? x > a : x < a;
        bool nan = x != x && a == a, same = x == a || x != x && a != a;
        better = better || first || nan || NAMED != 0 && same && number < i;
    }
    if (better) {
        a = x;
        b = 1.0;
        i = number;
    }
);
/* Adds many * exp(x). */
static const char add_exponential[] = VB_PTX_SOURCE(
    if (many != 0.0 && x != from_bits(0xff800000)) {
        const log2_e = 1.4426950408889634;
        if (x == a) {
            b += many;
        } else {
            if (x > a) {
                b = b * exp2((a - x) * log2_e) + many;
                a = x;
            } else {
                b += exp2((x - a) * log2_e) * many;
            }
        }
    }
);
static const char take_one[] = VB_PTX_SOURCE({
    bool set = INTS ? bits(x) != 0 : x != 0.0;
    if (REDUCTION == 0 || REDUCTION == 8) {
        if (INTS) i += s32(bits(x));
        else a += x;
    }
    if (REDUCTION == 1) {
        if (INTS) i = i * s32(bits(x));
        else a = a * x;
    }
    if (REDUCTION >= 2 && REDUCTION <= 5) {
        COMPARE
    }
    if (REDUCTION == 6) i = i | s32(set);
    if (REDUCTION == 7) i = i & s32(set);
    if (REDUCTION == 9) {
        i += 1;
        f32 d = x - a;
        a += d * rcp_fast(f32(i));
        b = fma(d, x - a, b);
    }
    if (REDUCTION == 10) {
        if (POWER == 2) a = fma(x, x, a);
        if (POWER == 1) a += abs(x);
        if (POWER == 0 && a == a) {
            if (x != x) a = x;
            else a = max(a, abs(x));
        }
    }
    if (REDUCTION == 11) {
        f32 many = 1.0;
        ADD_EXPONENTIAL
    }
});
/* Merges the state oa, ob, oi. */
static const char merge[] = VB_PTX_SOURCE({
    if (REDUCTION == 0 || REDUCTION == 8 || REDUCTION == 10 && POWER != 0) {
        a += oa;
        i += oi;
    }
    if (REDUCTION == 1) {
        a = a * oa;
        i = i * oi;
    }
    if (REDUCTION >= 2 && REDUCTION <= 5) {
        if (ob != 0.0) {
            f32 x = oa;
            s32 number = oi;
            COMPARE
        }
    }
    if (REDUCTION == 6) i = i | oi;
    if (REDUCTION == 7) i = i & oi;
    if (REDUCTION == 9) {
        if (oi != 0) {
            f32 n = f32(i) + f32(oi), d = oa - a;
            f32 share = f32(oi) / n;
            b += ob + d * d * f32(i) * share;
            a += d * share;
            i += oi;
        }
    }
    if (REDUCTION == 10 && POWER == 0) {
        if (a == a) {
            if (oa != oa) a = oa;
            else a = max(a, oa);
        }
    }
    if (REDUCTION == 11) {
        if (ob != ob) {
            b = ob;
        } else {
            f32 x = oa, many = ob;
            ADD_EXPONENTIAL
        }
    }
});
/* Merges the states of LANES neighbouring threads, 32 or the block's 256: the first has the whole. */
static const char join_threads[] = VB_PTX_SOURCE(
    unroll (s : 5) {
        f32 oa = shuffle_xor(a, 16 >> s), ob = shuffle_xor(b, 16 >> s);
        s32 oi = shuffle_xor(i, 16 >> s);
        MERGE
    }
    if (LANES > 32) {
        shared f32 sa[8], sb[8];
        shared s32 si[8];
        if (thread.x % 32 == 0) {
            sa[thread.x / 32] = a;
            sb[thread.x / 32] = b;
            si[thread.x / 32] = i;
        }
        barrier();
        if (thread.x == 0) {
            for (u32 s = 1; s < 8; s += 1) {
                f32 oa = sa[s], ob = sb[s];
                s32 oi = si[s];
                MERGE
            }
        }
    }
);
/* The result of a state: s32 or f32, as INTEGER says, in x0. */
static const char conclude[] = VB_PTX_SOURCE(
    if (INTEGER) {
        if (REDUCTION == 2 || REDUCTION == 3) x0[0] = s32(bits(a));
        else x0[0] = i;
    } else {
        x0[0] = a;
        if (REDUCTION == 8) x0[0] = a / f32(places);
        if (REDUCTION == 9) x0[0] = b / max(0.0, f32(places) - parameter);
        if (REDUCTION == 10 && POWER == 2) x0[0] = sqrt(a);
        if (REDUCTION == 11) x0[0] = fma(log2(b), 0.693147181, a);
    }
);

typedef enum reduce_form { BY_THREADS, BY_COLUMNS, OF_STATES } reduce_form;

/* The kernel. BY_THREADS: LANES threads share a part of a result. BY_COLUMNS: neighbouring threads have neighbouring
 * results, of which they take a part each. OF_STATES: a block merges the parts of a result. */
static void write_reduce(vb_jit_text *t, const vb_reduce_dims *d, reduce_form form, int width) {
    vb_jit_say(t, "kernel ENTRY(u8 *data0, u8 *data1, f32 *states, u64 results, u64 places, u64 parts, f32 parameter");
    say_parameters(t, "kept", d->kept_rank, 1);
    say_parameters(t, "out", d->kept_rank, 0);
    say_parameters(t, "in", d->kept_rank, 0);
    say_parameters(t, "size", d->reduced_rank, 1);
    say_parameters(t, "within", d->reduced_rank, 0);
    vb_jit_say(t, ") threads(256) {\nf32 a = 0, b = 0;\ns32 i = 0;\nNONE\n");
    if (form == BY_COLUMNS) vb_jit_say(t, "u64 result = u64(block.x) * 256 + thread.x, part = u64(block.y);\n");
    else vb_jit_say(t, "u64 result = u64(block.x) * (256 / LANES) + thread.x / LANES, part = u64(block.y);\n");
    vb_jit_say(t, "bool has = result < results;\nif (has) {\n");
    if (form == OF_STATES) {
        vb_jit_say(t, "s32 *numbers = states;\nfor (u64 at = u64(thread.x); at < parts; at += 256) {\n"
                      "u64 from = (result * parts + at) * 3;\n"
                      "f32 oa = states[from], ob = states[from + 1];\ns32 oi = numbers[from + 2];\nMERGE\n}\n");
    } else {
        vb_jit_say(t, "u64 first = 0;\n");
        say_place(t, "result", "first", "kept", "in", d->kept_rank);
        vb_jit_say(t, "const W = %d;\n", width);
        if (form == BY_COLUMNS) vb_jit_say(t, "const ROUNDS = 4;\nu64 step = parts;\nu64 at = part;\n");
        else vb_jit_say(t, "const ROUNDS = W > 1 ? 2 : 4;\nu64 step = parts * (LANES * W);\n"
                           "u64 at = (part * LANES + thread.x %% LANES) * W;\n");
        vb_jit_say(t, "while (at < places) {\nf32 all[ROUNDS][W] = 0;\nunroll (u : ROUNDS) {\n"
                      "u64 number = at + step * u, at1 = first;\nif (number < places) {\nu32 here = W;\n");
        say_place(t, "number", "at1", "size", "within", d->reduced_rank);
        vb_jit_say_load(t, 1, &d->in, width, false);
        vb_jit_say(t, vb_is_float(d->in.type) ? "unroll (e : W) all[u][e] = x1[e];\n"
                                              : "unroll (e : W) all[u][e] = from_bits(u32(x1[e]));\n");
        vb_jit_say(t, "}\n}\nunroll (u : ROUNDS) unroll (e : W) {\nif (at + step * u < places) {\n"
                      "f32 x = all[u][e];\ns32 number = s32(u32(at + step * u)) + e;\nTAKE_ONE\n}\n}\n"
                      "at += step * ROUNDS;\n}\n");
    }
    vb_jit_say(t, "}\n%s", form == BY_COLUMNS ? "" : "JOIN_THREADS\nhas = has && thread.x % LANES == 0;\n");
    vb_jit_say(t, "if (has) {\nif (%s) {\ns32 *numbers = states;\nu64 to = (result * parts + part) * 3;\n"
                  "states[to] = a;\nstates[to + 1] = b;\nnumbers[to + 2] = i;\n} else {\n",
               form == OF_STATES ? "parts == 0" : "parts > 1");
    vb_jit_say(t, "const W = 1;\nu32 here = 1;\n%s x0[1] = 0;\nCONCLUDE\nu64 at0 = 0;\n",
               vb_is_float(d->out.type) ? "f32" : "s32");
    say_place(t, "result", "at0", "kept", "out", d->kept_rank);
    vb_jit_say_store(t, 0, &d->out, 1);
    vb_jit_say(t, "}\n}\n}\n");
}

static vb_status run_reduce(const vb_reduce_args *args, vb_reduce_dims *d, reduce_form form, int width, int64_t lanes,
                            int64_t blocks, int64_t parts, void *states, vb_stream *stream) {
    void *parameters[7 + 5 * VB_MAX_DIMS];
    int made = 0;
    float parameter = args->parameter;
    void *const first[] = {&d->out.data, &d->in.data, &states, &d->results, &d->places, &parts, &parameter};
    for (; made < 7; made++) parameters[made] = first[made];
    for (int k = 1; k < d->kept_rank; k++) parameters[made++] = &d->kept[k];
    for (int k = 0; k < d->kept_rank; k++) parameters[made++] = &d->out.strides[k];
    for (int k = 0; k < d->kept_rank; k++) parameters[made++] = &d->in.strides[k];
    for (int k = 1; k < d->reduced_rank; k++) parameters[made++] = &d->reduced[k];
    for (int k = 0; k < d->reduced_rank; k++) parameters[made++] = &d->within.strides[k];
    vb_jit_text t = {0};
    write_reduce(&t, d, form, width);
    if (!t.data) return VB_OUT_OF_MEMORY;
    const vb_reduction r = args->reduction;
    const vb_jit_filling f = {.source = "", .written = t.data,
        .constants = {{"REDUCTION", r}, {"INTS", vb_is_integer(d->in.type)}, {"LANES", lanes},
                      {"INTEGER", vb_is_integer(d->out.type)},
                      {"NAMED", r == VB_REDUCTION_ARGMAX || r == VB_REDUCTION_ARGMIN},
                      {"POWER", parameter == 2 ? 2 : parameter == 1 ? 1 : 0}},
        .texts = {{"NONE", none}, {"COMPARE", compare}, {"ADD_EXPONENTIAL", add_exponential}, {"TAKE_ONE", take_one},
                  {"MERGE", merge}, {"JOIN_THREADS", join_threads}, {"CONCLUDE", conclude}}};
    const vb_status status = vb_jit_launch(stream, "ptx_reduce", &f, blocks, form == OF_STATES ? 1 : parts, 1, 256,
                                           parameters);
    free(t.data);
    return status;
}

vb_status vb_jit_reduce(const vb_reduce_args *args, vb_stream *stream) {
    enum { PART = 4096, MOST_PARTS = 1024, STATE_BYTES = 12 };
    vb_reduce_dims d;
    vb_reduce_split(&d, args);
    const int64_t multiprocessors = vb_jit_of(stream)->multiprocessors;
    const bool columns = d.results >= 32 && d.in.strides[d.kept_rank - 1] < d.within.strides[d.reduced_rank - 1];
    const int64_t lanes = !columns && d.places > 1024 ? 256 : 32;
    int width = columns || d.reduced_rank > 1 ? 1 : 16 / vb_element_bytes(d.in.type);
    while (width > 1 && (!vb_jit_neighbours(&d.within, d.reduced, 1, width) || d.within.strides[0] == 0 ||
                         d.places % width != 0))
        width = width > 4 ? width / 2 : 1;
    for (int k = 0; k < d.kept_rank && d.results > 1; k++)
        while (width > 1 && d.in.strides[k] % width != 0) width = width > 4 ? width / 2 : 1;
    const int64_t each = columns ? 256 : 256 / lanes, blocks = (d.results + each - 1) / each;
    int64_t parts = (4 * multiprocessors + blocks - 1) / blocks, most = d.places / (columns ? 64 : PART);
    if (parts > most) parts = most;
    if (parts > MOST_PARTS) parts = MOST_PARTS;
    if (parts < 1) parts = 1;
    void *states = NULL;
    vb_status status = parts > 1 ? vb_jit_workspace(&states, d.results * parts * STATE_BYTES, stream) : VB_OK;
    if (status != VB_OK) return status;
    status = run_reduce(args, &d, columns ? BY_COLUMNS : BY_THREADS, width, lanes, blocks, parts, states, stream);
    if (status != VB_OK || parts == 1) return status;
    return run_reduce(args, &d, OF_STATES, 1, 256, d.results, parts, states, stream);
}

/* ---- cumulative sums --------------------------------------------------------------------------------------------- */

/* A block a row of n elements, a tile of 256 at a time; or with COLUMNS a thread a column. */
static const char cumsum[] = VB_PTX_SOURCE(
kernel ENTRY(TYPE *out, TYPE *in, u64 rows, u64 n, u64 cols) threads(256) {
    shared OTHER sums[8];
    OTHER before = 0;
    if (COLUMNS) {
        u64 at = u64(block.x) * 256 + thread.x;
        if (at < rows * cols) {
            u64 to = at / cols * n * cols + at % cols;
            for (u64 i = 0; i < n; i += 1) {
                before += in[to];
                out[to] = before;
                to += cols;
            }
        }
    } else {
        u32 lane = thread.x % 32, warp = thread.x / 32;
        u64 row = u64(block.x) * n;
        for (u64 start = 0; start < n; start += 256) {
            u64 at = start + thread.x;
            OTHER x = 0;
            if (at < n) x = in[row + at];
            unroll (s : 5) {
                OTHER y = shuffle_from(x, lane - (1 << s) & 31);
                if (lane >= 1 << s) x += y;
            }
            if (lane == 31) sums[warp] = x;
            barrier();
            unroll (w : 8) if (w < warp) x += sums[w];
            x += before;
            unroll (w : 8) before += sums[w];
            if (at < n) out[row + at] = x;
            barrier();
        }
    }
});

vb_status vb_jit_cumsum(void *out, const void *in, vb_dtype type, int64_t rows, int64_t n, int64_t cols,
                        vb_stream *stream) {
    const vb_jit_filling f = {.source = cumsum, .type = pointer_of(type), .other = type == VB_I32 ? "s32" : "f32",
                              .constants = {{"COLUMNS", cols > 1}}};
    return vb_jit_launch(stream, "ptx_cumsum", &f, cols > 1 ? (rows * cols + 255) / 256 : rows, 1, 1, 256,
                         VB_JIT_PARAMETERS(&out, &in, &rows, &n, &cols));
}

/* ---- gathers and scatters ---------------------------------------------------------------------------------------- */

/* A thread an element beside the ids: `named` is where the id leads. Elements of the same type move as bits. */
static void write_index(vb_jit_text *t, const vb_index_args *a, int rank) {
    const int bytes = vb_element_bytes(a->in.type);
    const char *const type = a->indexing == VB_INDEXING_SCATTER_ADD ? pointer_of(a->in.type)
                             : bytes == 4 ? "u32" : bytes == 2 ? "u16" : "u8";
    vb_jit_say(t, "kernel ENTRY(%s *named, %s *other, s32 *ids, u64 count, u64 places, u64 step", type, type);
    say_parameters(t, "size", rank, 1);
    say_parameters(t, "to", rank, 0);
    say_parameters(t, "from", rank, 0);
    say_parameters(t, "id", rank, 0);
    vb_jit_say(t, ") threads(256) {\nu64 i = u64(block.x) * 256 + thread.x;\nif (i < count) {\n"
                  "u64 x = 0, y = 0, z = 0;\n");
    say_place(t, "i", "x", "size", "to", rank);
    say_place(t, "i", "y", "size", "from", rank);
    say_place(t, "i", "z", "size", "id", rank);
    vb_jit_say(t, "u32 id = u32(ids[z]);\nbool inside = u64(id) < places && id < 0x80000000;\n"
                  "if (inside) x += u64(id) * step;\n");
    if (a->indexing == VB_INDEXING_GATHER)
        vb_jit_say(t, "u32 value = 0;\nif (inside) value = named[x];\nother[y] = value;\n");
    else if (a->indexing == VB_INDEXING_SCATTER)
        vb_jit_say(t, "if (inside) named[x] = other[y];\n");
    else
        vb_jit_say(t, "if (inside) atomic_add(named[x], other[y]);\n");
    vb_jit_say(t, "}\n}\n");
}

vb_status vb_jit_index(const vb_index_args *args, vb_stream *stream) {
    vb_index_args a = *args;
    const bool gathers = a.indexing == VB_INDEXING_GATHER;
    const int rank = (int)a.rank;
    vb_view named = gathers ? a.in : a.out, other = gathers ? a.out : a.in;
    int64_t count = 1, places = (gathers ? a.in_sizes : a.out_sizes)[a.dim], step = named.strides[a.dim];
    named.strides[a.dim] = 0;
    for (int d = 0; d < rank; d++) count *= a.ids_sizes[d];
    void *parameters[6 + 4 * VB_MAX_DIMS] = {&named.data, &other.data, &a.ids.data, &count, &places, &step};
    int made = 6;
    for (int d = 1; d < rank; d++) parameters[made++] = &a.ids_sizes[d];
    for (int d = 0; d < rank; d++) parameters[made++] = &named.strides[d];
    for (int d = 0; d < rank; d++) parameters[made++] = &other.strides[d];
    for (int d = 0; d < rank; d++) parameters[made++] = &a.ids.strides[d];
    vb_jit_text t = {0};
    write_index(&t, &a, rank);
    if (!t.data) return VB_OUT_OF_MEMORY;
    const vb_jit_filling f = {.source = "", .written = t.data};
    const vb_status status = vb_jit_launch(stream, "ptx_index", &f, (count + 255) / 256, 1, 1, 256, parameters);
    free(t.data);
    return status;
}
