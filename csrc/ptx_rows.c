/* ptx_rows.c: softmax and norms of GPUs whose kernels the driver compiles. LANES threads share a row, a block has
 * THREADS / LANES rows. Short rows are in registers in float32, for which those that are no whole number of vectors go
 * through shared memory (ptx_staged.c). Rows of more than a few KiB are in registers and shared memory as they lie in
 * memory (ptx_parts.c). The longest rows, and two arrays, are read again in each step. */
#include "ptx_rows.h"

/* Rows of all blocks that are read again should stay in the L2: so LONG_THREADS, of which a multiprocessor has few
 * blocks. */
enum { MOST_THREADS = 256, MOST_ROUNDS = 8, WIDEST_THREADS = 512, WIDEST_ELEMENTS = 64, LONG_THREADS = 1024,
    LOOP_ROUNDS = 2 };

/* The row of a thread; rows behind the last compute the last and write nothing. */
static const char find_row[] = VB_PTX_SOURCE(
    start_next();
    wait_for_previous();
    shared f32 part[32];
    u32 lane = thread.x % LANES, group = thread.x / LANES;
    u64 place = u64(block.x) * (THREADS / LANES) + group;
    u64 start = min(place, rows - 1) * cols, end = cols;
    bool writes = place < rows;
);
static const char begin_row[] = VB_PTX_SOURCE(
    TYPE *in = INPUT;
    in += start;
    TYPE *to = output;
    to += start;
);
/* ROUNDS vectors a thread of the row `in` in x[ROUNDS][EACH], from ORIGIN on; elements outside of it are LEAST. */
static const char read_row[] = VB_PTX_SOURCE(
    unroll (i : ROUNDS) {
        if (VECTORS) {
            INDEX at = ORIGIN + (i * LANES + lane) * EACH;
            if (FULL) {
                load(x[i], in[at]);
            } else {
                unroll (e : EACH) x[i][e] = LEAST;
                if (u64(at) < end) load(x[i], in[at]);
            }
        } else {
            unroll (e : EACH) {
                INDEX at = ORIGIN + (i * EACH + e) * LANES + lane;
                x[i][e] = LEAST;
                if (u64(at) < end) x[i][e] = in[at];
            }
        }
    }
);
static const char write_row[] = VB_PTX_SOURCE(
    if (writes) {
        unroll (i : ROUNDS) {
            if (VECTORS) {
                INDEX at = ORIGIN + (i * LANES + lane) * EACH;
                if (FULL) {
                    store(to[at], x[i]);
                } else {
                    if (u64(at) < end) store(to[at], x[i]);
                }
            } else {
                unroll (e : EACH) {
                    INDEX at = ORIGIN + (i * EACH + e) * LANES + lane;
                    if (u64(at) < end) to[at] = x[i][e];
                }
            }
        }
    }
);
/* Elements outside of the row become 0 again after something was subtracted from them. */
static const char mask_row[] = VB_PTX_SOURCE(
    if (FULL == 0) {
        unroll (i : ROUNDS) {
            if (VECTORS) {
                INDEX at = ORIGIN + (i * LANES + lane) * EACH;
                if (u64(at) >= end) unroll (e : EACH) x[i][e] = 0;
            } else {
                unroll (e : EACH) {
                    INDEX at = ORIGIN + (i * EACH + e) * LANES + lane;
                    if (u64(at) >= end) x[i][e] = 0;
                }
            }
        }
    }
);
/* The steps through a row that is not in registers. */
#define EACH_PART "for (u64 first = 0; first < end; first += ROUNDS * LANES * EACH)"

/* The sum of `sum` over a row's threads. */
static const char sum_up[] = VB_PTX_SOURCE(
    unroll (i : STEPS) sum += shuffle_xor(sum, 1 << i);
    if (LANES > 32) {
        if (lane % 32 == 0) part[thread.x / 32] = sum;
        barrier();
        sum = part[group * (LANES / 32) + lane % (LANES / 32)];
        unroll (i : WARP_STEPS) sum += shuffle_xor(sum, 1 << i);
        barrier();
    }
);

/* ---- rows of one column ------------------------------------------------------------------------------------------ */

/* A thread has a vector of rows. */
static const char single[] = VB_PTX_SOURCE(
kernel ENTRY(TYPE *output, TYPE *input, f32 *weight, f32 *bias, u64 rows, f32 eps) threads(256) {
    start_next();
    wait_for_previous();
    f32 w = 1, b = 0, x[EACH];
    if (WEIGHTS) w = weight[0];
    if (BIASES) b = bias[0];
    u64 first = u64(block.x) * (256 * EACH) + thread.x * EACH;
    if (EACH > 1 && first + EACH <= rows) {
        load(x, input[first]);
        unroll (e : EACH) x[e] = RESULT;
        store(output[first], x);
    } else {
        unroll (e : EACH) {
            if (first + e < rows) {
                x[e] = input[first + e];
                output[first + e] = RESULT;
            }
        }
    }
});

/* What is infinite or NaN gives NaN, as in longer rows. */
static const char single_power[] = "x[e] - x[e] + 1.0", single_mean[] = "(x[e] - x[e]) * rsqrt(eps) * w + b";
static const char single_square[] = "x[e] * rsqrt(fma(x[e], x[e], eps)) * w + b";

static vb_status run_single(const char *name, const char *result, void *out, const void *in, const float *weight,
    const float *bias, vb_dtype type, int64_t rows, float eps, vb_stream *stream) {
    const int64_t each = ((uintptr_t)out | (uintptr_t)in) % 16 ? 1 : 16 / vb_dtype_block_bytes(type);
    const vb_jit_filling f = {.source = single, .type = vb_jit_type(type),
        .constants = {{"EACH", each}, {"WEIGHTS", weight != NULL}, {"BIASES", bias != NULL}},
        .texts = {{"RESULT", result}}};
    return vb_jit_launch(stream, name, &f, (rows + 256 * each - 1) / (256 * each), 1, 1, 256,
                         VB_JIT_PARAMETERS(&out, &in, &weight, &bias, &rows, &eps));
}

/* ---- softmax and norms ------------------------------------------------------------------------------------------ */

static const char softmax[] = VB_PTX_SOURCE(
kernel ENTRY(TYPE *output, TYPE *input, u64 rows, u64 cols, u32 depth) threads(THREADS, LEAST_BLOCKS) {
    FIND
    const log2_e = 1.4426950408889634;
    EACH_TURN {
    BEGIN
    f32 most = from_bits(0xff800000), sum = 0;
    f32 x[ROUNDS][EACH];
    if (IN_REGISTERS) {
        READ
        unroll (i : ROUNDS) unroll (e : EACH) most = max(most, x[i][e]);
    } else {
        most = from_bits(0xff7fffff);
        EACH_PART {
            READ
            f32 before = most;
            unroll (i : ROUNDS) unroll (e : EACH) most = max(most, x[i][e]);
            sum = sum * exp2_fast((before - most) * log2_e);
            unroll (i : ROUNDS) unroll (e : EACH) sum += exp2_fast((x[i][e] - most) * log2_e);
        }
    }
    f32 own = most;
    unroll (i : STEPS) most = max(most, shuffle_xor(most, 1 << i));
    if (LANES > 32) {
        if (lane % 32 == 0) part[thread.x / 32] = most;
        barrier();
        most = part[group * (LANES / 32) + lane % (LANES / 32)];
        unroll (i : WARP_STEPS) most = max(most, shuffle_xor(most, 1 << i));
        barrier();
    }
    if (IN_REGISTERS) {
        unroll (i : ROUNDS) unroll (e : EACH) {
            x[i][e] = exp2_fast((x[i][e] - most) * log2_e);
            sum += x[i][e];
        }
    } else {
        sum = sum * exp2_fast((own - most) * log2_e);
    }
    SUM_UP
    f32 scale = rcp_fast(sum);
    if (IN_REGISTERS) {
        unroll (i : ROUNDS) unroll (e : EACH) x[i][e] = x[i][e] * scale;
        WRITE
    } else {
        EACH_PART {
            READ
            unroll (i : ROUNDS) unroll (e : EACH) x[i][e] = exp2_fast((x[i][e] - most) * log2_e) * scale;
            WRITE
        }
    }
    }
    FINISH
});

/* The threads of a warp or less that leave the fewest places without a vector in up to three rounds: of equal numbers
 * the most. */
static int64_t spread_over(int64_t vectors) {
    enum { WARP = 32, LEAST = 4, MOST = 3 };
    int64_t best = WARP;
    for (int64_t lanes = WARP; lanes >= LEAST; lanes /= 2) {
        const int64_t rounds = (vectors + lanes - 1) / lanes, now = (vectors + best - 1) / best;
        if (rounds <= MOST && rounds * lanes < now * best) best = lanes;
    }
    return best;
}

/* Of many rows, those wider than a warp's vectors have two vectors a thread: one has too little to do between
 * reductions, and more take registers (docs/experiments/2026-11-24-ptx-rows.md). `arrays` are in registers at once. */
static row_plan plan_of(vb_dtype type, int64_t rows, int64_t cols, uintptr_t addresses, int arrays,
    int parameters, const vb_jit_device *device) {
    enum { MANY = 32, MANY_ROWS = 4096, NARROW_THREADS = 256, WIDE_THREADS = 128, FEW_TOGETHER = 8 };
    const int64_t size = vb_dtype_block_bytes(type);
    const bool aligned = addresses % 16 == 0;
    row_plan p = {.lanes = 1, .least_blocks = 1, .each = 16 / size, .turns = 1, .depth = 1};
    const int64_t wanted = rows > MANY_ROWS && cols > 32 * p.each ? 2 : 1;
    p.vectors = aligned && cols % p.each == 0;
    while (p.lanes < MOST_THREADS && p.lanes * p.each * wanted < cols) p.lanes *= 2;
    if (p.lanes * p.each * MOST_ROUNDS < cols) p.lanes = WIDEST_THREADS;
    const int64_t vectors = (cols + p.each - 1) / p.each;
    bool few = wanted > 1 && vectors <= 32 * 3; /* so that a warp has them in three rounds */
    if (p.vectors && arrays == 1 && wanted > 1 && vectors > 128 && vectors <= 64 * 3) {
        few = vectors <= 32 * 5;
        p.lanes = 64, p.least_blocks = 4;
    }
    if (few) p.lanes = 32;
    const bool shares = parameters == 2 && size == 2;
    if (p.vectors && arrays == 1 && !shares && p.lanes > 8 && p.lanes <= 32 && rows > MANY * device->multiprocessors)
        p.lanes = spread_over(cols / p.each);
    const int64_t least = p.lanes > 32 || few ? WIDE_THREADS : NARROW_THREADS;
    p.threads = p.lanes > least ? p.lanes : least;
    if (few && shares && vectors <= 32 * 3) p.least_blocks = FEW_TOGETHER;
    p.rounds = (cols + p.lanes * p.each - 1) / (p.lanes * p.each);
    p.registers = p.lanes < WIDEST_THREADS || arrays * p.rounds * p.each <= WIDEST_ELEMENTS;
    if (!p.registers) {
        p.rounds = LOOP_ROUNDS;
        p.lanes = p.threads = LONG_THREADS;
    }
    p.full = p.vectors && p.registers && p.rounds <= 2 && cols == p.lanes * p.each * p.rounds;
    const bool five = parameters == 0 && size == 2 && vectors == 5; /* of eight lanes three would have none */
    const bool sparse = p.vectors && (five || (shares && cols >= 24 && cols < 512 && cols != 32 && cols != 64));
    if (arrays == 1 && aligned && !vb_jit_divide(&p, rows, cols, size, parameters, device) && (!p.vectors || sparse))
        vb_jit_stage(&p, rows, cols, size, parameters, device);
    while (p.steps < 5 && 1 << p.steps < p.lanes) p.steps++;
    while (32 << p.warp_steps < p.lanes) p.warp_steps++;
    return p;
}

#define PLAN(p) {"LANES", (p).lanes}, {"THREADS", (p).threads}, {"STEPS", (p).steps}, \
    {"WARP_STEPS", (p).warp_steps}, {"ROUNDS", (p).rounds}, {"EACH", (p).each}, {"IN_REGISTERS", (p).registers}, \
    {"VECTORS", (p).vectors}, {"FULL", (p).full}, {"WIDE", (p).wide}, {"TURNS", (p).turns}, {"TILE", (p).tile}, \
    {"BUFFERS", (p).buffers}, {"ASYNC", (p).async}, {"PARTS", (p).parts}, {"KEPT", (p).kept}, \
    {"SHIFTED", (p).shifted}, {"LEAST_BLOCKS", (p).least_blocks}, {"ROWS", 1}, {"ROW", 0}
#define OF_PLACE(p, text, otherwise) \
    ((p).parts ? vb_jit_part_texts.text : (p).staged ? vb_jit_staged_texts.text : (otherwise))
#define TEXTS(p) {"FIND", (p).staged ? vb_jit_staged_texts.find : find_row}, \
    {"BEGIN", (p).staged ? "" : (p).parts ? vb_jit_part_texts.begin : begin_row}, \
    {"READ", OF_PLACE(p, read, read_row)}, {"WRITE", OF_PLACE(p, write, write_row)}, \
    {"MASK", OF_PLACE(p, mask, mask_row)}, {"SUM_UP", sum_up}, \
    {"FINISH", (p).staged ? vb_jit_staged_texts.finish : ""}, \
    {"EACH_TURN", (p).staged ? "unroll (turn : TURNS)" : ""}, \
    {"EACH_PART", (p).parts ? "unroll (part : PARTS)" : EACH_PART}, VB_JIT_STAGED_TEXTS, \
    {"INDEX", (p).registers || (p).parts ? "u32" : "u64"}, {"ORIGIN", (p).registers ? "0" : "first"}, \
    VB_JIT_PART_TEXTS(p)
#define BLOCKS(p, rows) \
    (((rows) * (p).lanes + (p).threads * (p).turns * (p).depth - 1) / ((p).threads * (p).turns * (p).depth))

vb_status vb_jit_softmax_batched(void *out, const void *in, vb_dtype type, int64_t rows, int64_t cols,
    vb_stream *stream) {
    if (cols == 1) return run_single("ptx_softmax_single", single_power, out, in, NULL, NULL, type, rows, 0, stream);
    const row_plan p = plan_of(type, rows, cols, (uintptr_t)out | (uintptr_t)in, 1, 0, vb_jit_of(stream));
    const int64_t least = type == VB_F32 ? 0xff800000 : type == VB_F16 ? 0xfc00fc00 : 0xff80ff80; /* -inf */
    uint32_t depth = (uint32_t)p.depth;
    const vb_jit_filling f = {.source = softmax, .type = vb_jit_type(type),
        .constants = {PLAN(p), {"BRAIN", type == VB_BF16}, {"LEAST_WORD", least}},
        .texts = {TEXTS(p), {"INPUT", "input"}, {"HOLD", ""}, {"LEAST", "from_bits(0xff800000)"}}};
    return vb_jit_launch(stream, "ptx_softmax", &f, BLOCKS(p, rows), 1, 1, (int)p.threads,
                         VB_JIT_PARAMETERS(&out, &in, &rows, &cols, &depth));
}

/* MEAN: the layer norm, whose variance is summed after the mean is known. SUM: the row is a + b, stored first. */
static const char norm[] = VB_PTX_SOURCE(
kernel ENTRY(TYPE *sums, TYPE *output, TYPE *a_ptr, TYPE *b_ptr, f32 *weight, f32 *bias, u64 rows, u64 cols, f32 eps,
    f32 share, u32 depth) threads(THREADS, LEAST_BLOCKS) {
    FIND
    EACH_TURN {
    f32 x[ROUNDS][EACH];
    if (SUM) {
        TYPE *to = sums;
        to += start;
        f32 y[ROUNDS][EACH];
        TYPE *in = b_ptr;
        in += start;
        if (IN_REGISTERS) {
            READ
            unroll (i : ROUNDS) unroll (e : EACH) y[i][e] = x[i][e];
            FIRST
            unroll (i : ROUNDS) unroll (e : EACH) x[i][e] = x[i][e] + y[i][e];
            WRITE
        } else {
            EACH_PART {
                READ
                unroll (i : ROUNDS) unroll (e : EACH) y[i][e] = x[i][e];
                FIRST
                unroll (i : ROUNDS) unroll (e : EACH) x[i][e] = x[i][e] + y[i][e];
                WRITE
            }
        }
    }
    BEGIN
    if (IN_REGISTERS && (SUM == 0 || ROUNDED)) {
        READ
    }
    f32 mean = 0, sum = 0;
    if (IN_REGISTERS) {
        if (MEAN) {
            unroll (i : ROUNDS) unroll (e : EACH) sum += x[i][e];
            SUM_UP
            mean = sum * share;
            sum = 0;
            unroll (i : ROUNDS) unroll (e : EACH) x[i][e] = x[i][e] - mean;
            MASK
        }
        unroll (i : ROUNDS) unroll (e : EACH) sum = fma(x[i][e], x[i][e], sum);
    } else {
        if (MEAN) {
            MOMENTS
        } else {
            EACH_PART {
                READ
                unroll (i : ROUNDS) unroll (e : EACH) sum = fma(x[i][e], x[i][e], sum);
            }
        }
    }
    SUM_UP
    f32 inverse = rsqrt(fma(sum, share, eps));
    if (IN_REGISTERS) {
        SCALE
        WRITE
    } else {
        EACH_PART {
            READ
            if (MEAN) unroll (i : ROUNDS) unroll (e : EACH) x[i][e] = x[i][e] - mean;
            SCALE
            WRITE
        }
    }
    }
    FINISH
});
/* The mean, and in `sum` the squares of distances from it, of a row that is read once. A thread takes its elements less
 * its first one, so that what it subtracts of the squares is small (Chan et al. 1979, "Updating formulae"). */
static const char moments[] = VB_PTX_SOURCE(
    f32 base = 0, squares = 0;
    EACH_PART {
        READ
        if (first == 0) base = x[0][EACH - 1];
        unroll (i : ROUNDS) unroll (e : EACH) x[i][e] = x[i][e] - base;
        MASK
        unroll (i : ROUNDS) unroll (e : EACH) {
            sum += x[i][e];
            squares = fma(x[i][e], x[i][e], squares);
        }
    }
    COUNT
    f32 average = sum * rcp(count);
    squares = squares - sum * average;
    sum = fma(base, count, sum);
    SUM_UP
    mean = sum * share;
    f32 distance = base - mean + average;
    sum = fma(distance * distance, count, squares);
);
static const char count_row[] = VB_PTX_SOURCE(
    const each = VECTORS ? EACH : 1;
    f32 count = f32(((u64(end) / each - 1 - lane) / LANES + 1) * each);
);
/* x times the inverse and the weight, plus the bias. */
static const char scale_row[] = VB_PTX_SOURCE(
    unroll (i : ROUNDS) {
        unroll (e : EACH) x[i][e] = x[i][e] * inverse;
        unroll (q : QUADS) {
            f32 w[EACH / QUADS], b[EACH / QUADS];
            if (WEIGHTS) PARAMETER_OF_WEIGHT
            if (BIASES) PARAMETER_OF_BIAS
            unroll (e : EACH / QUADS) {
                if (WEIGHTS && BIASES) {
                    x[i][q * 4 + e] = fma(x[i][q * 4 + e], w[e], b[e]);
                } else {
                    if (WEIGHTS) x[i][q * 4 + e] = x[i][q * 4 + e] * w[e];
                    if (BIASES) x[i][q * 4 + e] += b[e];
                }
            }
        }
    }
);
/* The second summand of SUM. */
static const char read_first[] = VB_PTX_SOURCE({
    TYPE *in = a_ptr;
    in += start;
    READ
});
/* The elements of a parameter that vector part q of x[i] meets. */
#define PARAMETER(w, p) VB_PTX_SOURCE({ \
    if (VECTORS) { \
        INDEX at = ORIGIN + (i * LANES + lane) * EACH + q * 4; \
        if (FULL) { \
            load(w, p[at]); \
        } else { \
            unroll (e : EACH / QUADS) w[e] = 0; \
            if (u64(at) < end) load(w, p[at]); \
        } \
    } else { \
        unroll (e : EACH / QUADS) { \
            INDEX at = ORIGIN + (i * EACH + (q * 4 + e)) * LANES + lane; \
            w[e] = 0; \
            if (u64(at) < end) w[e] = p[at]; \
        } \
    } \
})
static const char parameter_of_weight[] = PARAMETER(w, weight), parameter_of_bias[] = PARAMETER(b, bias);

static vb_status run_norm(const char *name, bool mean, bool sum, void *sums, void *out, const void *a,
    const void *b, const float *weight, const float *bias, vb_dtype type, int64_t rows, int64_t cols, float eps,
    vb_stream *stream) {
    if (cols == 1 && !sum)
        return run_single(mean ? "ptx_layer_norm_single" : "ptx_rms_norm_single", mean ? single_mean : single_square,
            out, a, weight, bias, type, rows, eps, stream);
    vb_status status;
    if (!sum && vb_jit_norm_ahead(&status, name, mean, out, a, weight, bias, type, rows, cols, eps, stream))
        return status;
    float share = 1.0f / (float)cols;
    const row_plan p = plan_of(type, rows, cols, (uintptr_t)sums | (uintptr_t)out | (uintptr_t)a | (uintptr_t)b |
        (uintptr_t)weight | (uintptr_t)bias, sum ? 2 : 1, 1 + mean, vb_jit_of(stream));
    if (p.parts) return vb_jit_norm_in_parts(name, &p, mean, out, a, weight, bias, type, rows, cols, eps, stream);
    uint32_t depth = (uint32_t)p.depth;
    const struct vb_jit_staged_texts *const t = &vb_jit_staged_texts;
    const char *const hold = weight && bias ? t->hold_both : weight ? t->hold_weight : bias ? t->hold_bias : "";
    const vb_jit_filling f = {.source = norm, .type = vb_jit_type(type),
        .constants = {PLAN(p), {"BRAIN", type == VB_BF16}, {"LEAST_WORD", 0}, {"MEAN", mean}, {"SUM", sum},
                      {"ROUNDED", type != VB_F32}, {"WEIGHTS", weight != NULL}, {"BIASES", bias != NULL},
                      {"QUADS", p.each < 4 ? 1 : p.each / 4}},
        .texts = {TEXTS(p), {"INPUT", sum ? "sums" : "a_ptr"}, {"LEAST", "0.0"}, {"FIRST", read_first},
                  {"SCALE", scale_row}, {"MOMENTS", moments}, {"COUNT", count_row},
                  {"HOLD", p.held ? hold : t->parameters},
                  {"PARAMETER_OF_WEIGHT", p.held ? t->held_weight : p.staged ? t->weight : parameter_of_weight},
                  {"PARAMETER_OF_BIAS", p.held ? t->held_bias : p.staged ? t->bias : parameter_of_bias}}};
    return vb_jit_launch(stream, name, &f, BLOCKS(p, rows), 1, 1, (int)p.threads,
                         VB_JIT_PARAMETERS(&sums, &out, &a, &b, &weight, &bias, &rows, &cols, &eps, &share, &depth));
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
