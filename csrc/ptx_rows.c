/* ptx_rows.c: operations on rows of GPUs whose kernels the driver compiles. LANES threads share a row, a block has
 * THREADS / LANES rows. A row of up to MOST_ROUNDS vectors a thread stays in registers. */
#include "ptx_device.h"

enum { MOST_THREADS = 256, MOST_ROUNDS = 8 };

/* The row of a thread; rows behind the last compute the last and write nothing. */
static const char find_row[] = VB_PTX_SOURCE(
    start_next();
    wait_for_previous();
    shared f32 part[8];
    u32 lane = thread.x % LANES, group = thread.x / LANES;
    u64 place = u64(block.x) * (THREADS / LANES) + group;
    u64 row = min(place, rows - 1) * cols;
    bool writes = place < rows;
);
/* Row `in` in x[ROUNDS][EACH]; elements behind the end are LEAST. */
static const char read_row[] = VB_PTX_SOURCE(
    unroll (i : ROUNDS) {
        if (VECTORS) {
            u32 at = (i * LANES + lane) * EACH;
            if (FULL) {
                load(x[i], in[at]);
            } else {
                unroll (e : EACH) x[i][e] = LEAST;
                if (u64(at) < cols) load(x[i], in[at]);
            }
        } else {
            unroll (e : EACH) {
                u32 at = (i * EACH + e) * LANES + lane;
                x[i][e] = LEAST;
                if (u64(at) < cols) x[i][e] = in[at];
            }
        }
    }
);
static const char write_row[] = VB_PTX_SOURCE(
    if (writes) {
        unroll (i : ROUNDS) {
            if (VECTORS) {
                u32 at = (i * LANES + lane) * EACH;
                if (FULL) {
                    store(to[at], x[i]);
                } else {
                    if (u64(at) < cols) store(to[at], x[i]);
                }
            } else {
                unroll (e : EACH) {
                    u32 at = (i * EACH + e) * LANES + lane;
                    if (u64(at) < cols) to[at] = x[i][e];
                }
            }
        }
    }
);
/* The sum of `sum` over a row's threads. */
static const char sum_up[] = VB_PTX_SOURCE(
    unroll (i : STEPS) sum += shuffle_xor(sum, 1 << i);
    if (LANES > 32) {
        if (lane % 32 == 0) part[thread.x / 32] = sum;
        barrier();
        sum = 0;
        unroll (i : LANES / 32) sum += part[group * (LANES / 32) + i];
        barrier();
    }
);

static const char softmax[] = VB_PTX_SOURCE(
kernel ENTRY(TYPE *output, TYPE *input, u64 rows, u64 cols) threads(THREADS) {
    FIND
    TYPE *in = input;
    in += row;
    TYPE *to = output;
    to += row;
    const log2_e = 1.4426950408889634;
    f32 most = from_bits(0xff800000), sum = 0;
    f32 x[ROUNDS][EACH];
    if (IN_REGISTERS) {
        READ
        unroll (i : ROUNDS) unroll (e : EACH) most = max(most, x[i][e]);
    } else {
        for (u64 i = u64(lane); i < cols; i += LANES) most = max(most, in[i]);
    }
    unroll (i : STEPS) most = max(most, shuffle_xor(most, 1 << i));
    if (LANES > 32) {
        if (lane % 32 == 0) part[thread.x / 32] = most;
        barrier();
        unroll (i : LANES / 32) most = max(most, part[group * (LANES / 32) + i]);
        barrier();
    }
    if (IN_REGISTERS) {
        unroll (i : ROUNDS) unroll (e : EACH) {
            x[i][e] = exp2_fast((x[i][e] - most) * log2_e);
            sum += x[i][e];
        }
    } else {
        for (u64 i = u64(lane); i < cols; i += LANES) sum += exp2((in[i] - most) * log2_e);
    }
    SUM_UP
    f32 scale = rcp_fast(sum);
    if (IN_REGISTERS) {
        unroll (i : ROUNDS) unroll (e : EACH) x[i][e] = x[i][e] * scale;
        WRITE
    } else {
        for (u64 i = u64(lane); i < cols; i += LANES) to[i] = exp2((in[i] - most) * log2_e) * scale;
    }
});

/* How the threads of a block share rows. FULL: every vector of every thread is there, and none is asked for it. Of more
 * than two rounds such a kernel has 80 registers in place of 58, and fewer blocks at a time. */
typedef struct row_plan {
    int64_t lanes, threads, steps, rounds, each, registers, vectors, full;
} row_plan;

/* Of many rows, those wider than a warp's vectors have two vectors a thread: one has too little to do between
 * reductions, and more take registers (docs/experiments/2026-11-24-ptx-rows.md). */
static row_plan plan_of(vb_dtype type, int64_t rows, int64_t cols, uintptr_t addresses) {
    enum { MANY_ROWS = 4096, NARROW_THREADS = 256, WIDE_THREADS = 128 };
    row_plan p = {.lanes = 1, .each = 16 / vb_dtype_block_bytes(type)};
    const int64_t wanted = rows > MANY_ROWS && cols > 32 * p.each ? 2 : 1;
    while (p.lanes < MOST_THREADS && p.lanes * p.each * wanted < cols) p.lanes *= 2;
    const int64_t least = p.lanes > 32 ? WIDE_THREADS : NARROW_THREADS;
    p.threads = p.lanes > least ? p.lanes : least;
    while (p.steps < 5 && 1 << p.steps < p.lanes) p.steps++;
    p.rounds = (cols + p.lanes * p.each - 1) / (p.lanes * p.each);
    p.registers = p.rounds <= MOST_ROUNDS;
    if (!p.registers) p.rounds = 1;
    p.vectors = addresses % 16 == 0 && cols % p.each == 0;
    p.full = p.vectors && p.registers && p.rounds <= 2 && cols == p.lanes * p.each * p.rounds;
    return p;
}

#define PLAN(p) {"LANES", (p).lanes}, {"THREADS", (p).threads}, {"STEPS", (p).steps}, {"ROUNDS", (p).rounds}, \
    {"EACH", (p).each}, {"IN_REGISTERS", (p).registers}, {"VECTORS", (p).vectors}, {"FULL", (p).full}
#define TEXTS {"FIND", find_row}, {"READ", read_row}, {"WRITE", write_row}, {"SUM_UP", sum_up}
#define BLOCKS(p, rows) (((rows) * (p).lanes + (p).threads - 1) / (p).threads)

vb_status vb_jit_softmax_batched(void *out, const void *in, vb_dtype type, int64_t rows, int64_t cols,
    vb_stream *stream) {
    const row_plan p = plan_of(type, rows, cols, (uintptr_t)out | (uintptr_t)in);
    const vb_jit_filling f = {.source = softmax, .type = vb_jit_type(type), .constants = {PLAN(p)},
        .texts = {TEXTS, {"LEAST", "from_bits(0xff800000)"}}};
    return vb_jit_launch(stream, "ptx_softmax", &f, BLOCKS(p, rows), 1, 1, (int)p.threads,
                         VB_JIT_PARAMETERS(&out, &in, &rows, &cols));
}

/* MEAN: the layer norm, whose variance is summed after the mean is known. SUM: the row is a + b, stored first. */
static const char norm[] = VB_PTX_SOURCE(
kernel ENTRY(TYPE *sums, TYPE *output, TYPE *a_ptr, TYPE *b_ptr, f32 *weight, f32 *bias, u64 rows, u64 cols, f32 eps,
    f32 share, u32 weights, u32 biases) threads(THREADS) {
    FIND
    f32 x[ROUNDS][EACH];
    if (SUM) {
        TYPE *a = a_ptr;
        a += row;
        TYPE *b = b_ptr;
        b += row;
        TYPE *to = sums;
        to += row;
        if (IN_REGISTERS) {
            f32 y[ROUNDS][EACH];
            TYPE *in = b_ptr;
            in += row;
            READ
            unroll (i : ROUNDS) unroll (e : EACH) y[i][e] = x[i][e];
            FIRST
            unroll (i : ROUNDS) unroll (e : EACH) x[i][e] = x[i][e] + y[i][e];
            WRITE
        } else {
            for (u64 i = u64(lane); i < cols; i += LANES) to[i] = a[i] + b[i];
        }
    }
    TYPE *in = SUM ? sums : a_ptr;
    in += row;
    if (IN_REGISTERS && (SUM == 0 || ROUNDED)) {
        READ
    }
    f32 mean = 0, sum = 0;
    if (MEAN) {
        if (IN_REGISTERS) unroll (i : ROUNDS) unroll (e : EACH) sum += x[i][e];
        else for (u64 i = u64(lane); i < cols; i += LANES) sum += in[i];
        SUM_UP
        mean = sum * share;
        sum = 0;
    }
    if (IN_REGISTERS) {
        unroll (i : ROUNDS) {
            if (MEAN) {
                unroll (e : EACH) x[i][e] = x[i][e] - mean;
                if (FULL == 0) {
                    if (VECTORS) {
                        if (u64((i * LANES + lane) * EACH) >= cols) unroll (e : EACH) x[i][e] = 0;
                    } else {
                        unroll (e : EACH) if (u64((i * EACH + e) * LANES + lane) >= cols) x[i][e] = 0;
                    }
                }
            }
            unroll (e : EACH) sum = fma(x[i][e], x[i][e], sum);
        }
    } else {
        for (u64 i = u64(lane); i < cols; i += LANES) {
            f32 centred = in[i] - mean;
            sum = fma(centred, centred, sum);
        }
    }
    SUM_UP
    f32 inverse = rsqrt(fma(sum, share, eps));
    TYPE *to = output;
    to += row;
    if (IN_REGISTERS) {
        unroll (i : ROUNDS) {
            unroll (e : EACH) x[i][e] = x[i][e] * inverse;
            if (weights != 0) {
                unroll (q : QUADS) {
                    f32 w[EACH / QUADS];
                    PARAMETER_OF_WEIGHT
                    unroll (e : EACH / QUADS) x[i][q * 4 + e] = x[i][q * 4 + e] * w[e];
                }
            }
            if (biases != 0) {
                unroll (q : QUADS) {
                    f32 w[EACH / QUADS];
                    PARAMETER_OF_BIAS
                    unroll (e : EACH / QUADS) x[i][q * 4 + e] += w[e];
                }
            }
        }
        WRITE
    } else {
        for (u64 i = u64(lane); i < cols; i += LANES) {
            f32 y = (in[i] - mean) * inverse;
            if (weights != 0) y = y * weight[i];
            if (biases != 0) y += bias[i];
            to[i] = y;
        }
    }
});
/* The second summand of SUM. */
static const char read_first[] = VB_PTX_SOURCE({
    TYPE *in = a_ptr;
    in += row;
    READ
});
/* The elements of a parameter that vector part q of x[i] meets, in w. */
#define PARAMETER(p) VB_PTX_SOURCE( \
    if (VECTORS) { \
        if (FULL) { \
            load(w, p[(i * LANES + lane) * EACH + q * 4]); \
        } else { \
            if (u64((i * LANES + lane) * EACH) < cols) load(w, p[(i * LANES + lane) * EACH + q * 4]); \
        } \
    } else { \
        unroll (e : EACH / QUADS) { \
            u32 at = (i * EACH + (q * 4 + e)) * LANES + lane; \
            w[e] = 0; \
            if (u64(at) < cols) w[e] = p[at]; \
        } \
    } \
)
static const char parameter_of_weight[] = PARAMETER(weight), parameter_of_bias[] = PARAMETER(bias);

static vb_status run_norm(const char *name, bool mean, bool sum, void *sums, void *out, const void *a,
    const void *b, const float *weight, const float *bias, vb_dtype type, int64_t rows, int64_t cols, float eps,
    vb_stream *stream) {
    uint32_t weights = weight != NULL, biases = bias != NULL;
    float share = 1.0f / (float)cols;
    const row_plan p = plan_of(type, rows, cols, (uintptr_t)sums | (uintptr_t)out | (uintptr_t)a | (uintptr_t)b |
        (uintptr_t)weight | (uintptr_t)bias);
    const vb_jit_filling f = {.source = norm, .type = vb_jit_type(type),
        .constants = {PLAN(p), {"MEAN", mean}, {"SUM", sum}, {"ROUNDED", type != VB_F32}, {"QUADS", p.each / 4}},
        .texts = {TEXTS, {"LEAST", "0.0"}, {"FIRST", read_first}, {"PARAMETER_OF_WEIGHT", parameter_of_weight},
                  {"PARAMETER_OF_BIAS", parameter_of_bias}}};
    return vb_jit_launch(stream, name, &f, BLOCKS(p, rows), 1, 1, (int)p.threads,
                         VB_JIT_PARAMETERS(&sums, &out, &a, &b, &weight, &bias, &rows, &cols, &eps, &share, &weights,
                                           &biases));
}

vb_status vb_jit_rms_norm_batched(void *out, const void *in, const float *weight, vb_dtype type, int64_t rows,
    int64_t cols, float eps, vb_stream *stream) {
    return run_norm("ptx_rms_norm", false, false, out, out, in, in, weight, NULL, type, rows, cols, eps, stream);
}

vb_status vb_jit_layer_norm_batched(void *out, const void *in, const float *weight, const float *bias,
    vb_dtype type, int64_t rows, int64_t cols, float eps, vb_stream *stream) {
    return run_norm("ptx_layer_norm", true, false, out, out, in, in, weight, bias, type, rows, cols, eps, stream);
}

vb_status vb_jit_add_rms_norm(void *sum, void *out, const void *a, const void *b, const float *weight,
    vb_dtype type, int64_t rows, int64_t cols, float eps, vb_stream *stream) {
    return run_norm("ptx_add_rms_norm", false, true, sum, out, a, b, weight, NULL, type, rows, cols, eps, stream);
}

static const char mul_rows[] = VB_PTX_SOURCE(
kernel ENTRY(TYPE *out, TYPE *a, f32 *factors, u64 cols) threads(256) {
    u64 row = u64(block.x) * cols;
    f32 factor = factors[block.x];
    for (u64 i = u64(thread.x); i < cols; i += 256) out[row + i] = a[row + i] * factor;
});

vb_status vb_jit_mul_rows(void *out, const void *a, const float *factors, vb_dtype type, int64_t rows,
    int64_t cols, vb_stream *stream) {
    const vb_jit_filling f = {.source = mul_rows, .type = vb_jit_type(type)};
    return vb_jit_launch(stream, "ptx_mul_rows", &f, rows, 1, 1, 256, VB_JIT_PARAMETERS(&out, &a, &factors, &cols));
}

/* Elements are copied as bits. */
static const char copy_columns[] = VB_PTX_SOURCE(
kernel ENTRY(TYPE *out, TYPE *in, u64 out_cols, u64 out_first, u64 in_cols, u64 in_first, u64 cols) threads(256) {
    u64 to = u64(block.x) * out_cols + out_first, from = u64(block.x) * in_cols + in_first;
    for (u64 i = u64(thread.x); i < cols; i += 256) out[to + i] = in[from + i];
});

vb_status vb_jit_copy_columns(void *out, int64_t out_cols, int64_t out_first, const void *in, int64_t in_cols,
    int64_t in_first, vb_dtype type, int64_t rows, int64_t cols, vb_stream *stream) {
    const vb_jit_filling f = {.source = copy_columns, .type = vb_dtype_block_bytes(type) == 4 ? "u32" : "u16"};
    return vb_jit_launch(stream, "ptx_copy_columns", &f, rows, 1, 1, 256,
                         VB_JIT_PARAMETERS(&out, &in, &out_cols, &out_first, &in_cols, &in_first, &cols));
}

/* The greatest number, of equal ones the first; NaN is above all. A thread looks at every 1024th vector, then the block
 * compares its threads' results. */
static const char argmax[] = VB_PTX_SOURCE(
kernel ENTRY(s32 *ids, f32 *input, u64 cols) threads(1024) {
    start_next();
    wait_for_previous();
    shared u32 keys[32], places[32];
    u32 lane = thread.x % 32, warp = thread.x / 32, n = u32(cols), best = 0, best_at = 0xffffffff;
    f32 *in = input;
    in += u64(block.x) * cols;
    for (u32 start = thread.x * EACH; start < n; start += 1024 * EACH * PARTS) {
        f32 v[PARTS][EACH];
        unroll (p : PARTS) {
            u32 at = start + p * (1024 * EACH);
            if (at < n) {
                if (EACH == 4) load(v[p], in[at]);
                else v[p][0] = in[at];
            }
        }
        unroll (p : PARTS) {
            u32 at = start + p * (1024 * EACH);
            if (at < n) {
                unroll (e : EACH) {
                    u32 word = bits(v[p][e] + 0.0);
                    u32 key = word > 0x7fffffff ? ~word : word | 0x80000000;
                    if (v[p][e] != v[p][e]) key = 0xffffffff;
                    if (best_at == 0xffffffff || key > best) {
                        best = key;
                        best_at = at + e;
                    }
                }
            }
        }
    }
    unroll (round : 2) {
        unroll (s : 5) {
            u32 other = shuffle_xor(best, 16 >> s), other_at = shuffle_xor(best_at, 16 >> s);
            if (other_at != 0xffffffff && (best_at == 0xffffffff || other > best || other == best &&
                other_at < best_at)) {
                best = other;
                best_at = other_at;
            }
        }
        if (round == 0) {
            if (lane == 0) {
                keys[warp] = best;
                places[warp] = best_at;
            }
            barrier();
            best = keys[lane];
            best_at = places[lane];
        }
    }
    if (thread.x == 0) ids[block.x] = s32(best_at);
});

vb_status vb_jit_argmax(int32_t *out, const float *in, int64_t rows, int64_t cols, vb_stream *stream) {
    const bool vectors = (uintptr_t)in % 16 == 0 && cols % 4 == 0;
    if (cols > INT32_MAX - (1 << 20)) return VB_UNSUPPORTED;
    const vb_jit_filling f = {.source = argmax, .constants = {{"EACH", vectors ? 4 : 1}, {"PARTS", 4}}};
    return vb_jit_launch(stream, "ptx_argmax", &f, rows, 1, 1, 1024, VB_JIT_PARAMETERS(&out, &in, &cols));
}

/* Sorted tiles of a row are merged up to the k-th number (ptx_sort.c): in the order of argmax. */
vb_status vb_jit_top_k(float *values, int32_t *ids, const float *in, int64_t rows, int64_t cols, int64_t k,
    vb_stream *stream) {
    if (cols > INT32_MAX) return VB_UNSUPPORTED;
    return vb_jit_sort(&VB_ARGS(vb_sort_args, .values = {values, VB_F32, {k, 1}}, .indices = {ids, VB_I32, {k, 1}},
                                .in = {(void *)(uintptr_t)in, VB_F32, {cols, 1}}, .sizes = {rows, cols},
                                .out_sizes = {rows, k}, .rank = 2, .dim = 1, .descending = 1),
                       stream);
}
