/* ptx_rows.c: operations on rows of GPUs whose kernels the driver compiles. LANES threads share a row, a block has
 * THREADS / LANES rows. Short rows are in registers in float32. Rows of more than a few KiB are in registers and shared
 * memory as they lie in memory (ptx_parts.c). Short rows that are no whole number of vectors go through shared memory.
 * The longest rows, and two arrays, are read again in each step. */
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

/* ---- rows in shared memory --------------------------------------------------------------------------------------- */

/* A block brings rows that are no whole vectors into `tile`, by vectors of WIDE elements, from `shift` on. It has
 * `depth` parts of `held` rows, of which the next comes while one is computed. FINISH ends the loop over parts. A
 * thread has elements from `mine` on, LANES apart, in TURNS rows one after another. */
#define BRING(part) VB_PTX_SOURCE({ \
    u64 first = place + part * held; \
    u64 origin = first * cols; \
    u32 shift = u32(origin) % WIDE; \
    u32 filled = u32(min(rows - first, held)) * end + shift, buffer = part % BUFFERS; \
    TYPE *from = INPUT; \
    from += origin - shift; \
    for (u32 at = thread.x * WIDE; at < filled; at += THREADS * WIDE) { \
        if (ASYNC) { \
            copy_async(tile[buffer][0][at], from[at], min(filled - at, WIDE) * (16 / WIDE)); \
        } else { \
            if (at >= shift && at + WIDE <= filled) { \
                u32 words[4]; \
                load(words, from[at]); \
                store(tile[buffer][0][at], words); \
            } else { \
                unroll (e : WIDE) if (at + e >= shift && at + e < filled) tile[buffer][0][at + e] = from[at + e]; \
            } \
        } \
    } \
    if (ASYNC) copy_async_commit(); \
})
static const char stage_rows[] = VB_PTX_SOURCE(
    start_next();
    wait_for_previous();
    shared f32 part[32];
    shared TYPE tile[BUFFERS][TILE][LANES];
    const groups = THREADS / LANES;
    const held = groups * TURNS;
    u32 lane = thread.x % LANES, group = thread.x / LANES, end = u32(cols);
    u64 place = u64(block.x) * (held * depth);
    u32 parts = u32(min((rows - place + (held - 1)) / held, u64(depth)));
    if (BUFFERS == 2) BRING_FIRST
    HOLD
    for (u32 number = 0; number < parts; number += 1) {
        barrier();
        if (BUFFERS == 2) {
            u32 following = number + 1;
            if (following < parts) BRING_NEXT
            else if (ASYNC) copy_async_commit();
            if (ASYNC) copy_async_wait(1);
        } else {
            BRING_THIS
            if (ASYNC) copy_async_wait(0);
        }
        u64 origin = (place + number * held) * cols;
        u32 shift = u32(origin) % WIDE, buffer = number % BUFFERS;
        u32 filled = u32(min(rows - place - number * held, held)) * end + shift;
        barrier();
);
static const char unstage_rows[] = VB_PTX_SOURCE(
        barrier();
        TYPE *back = output;
        back += origin - shift;
        for (u32 at = thread.x * WIDE; at < filled; at += THREADS * WIDE) {
            if (at >= shift && at + WIDE <= filled) {
                u32 words[4];
                load(words, tile[buffer][0][at]);
                store(back[at], words);
            } else {
                unroll (e : WIDE) if (at + e >= shift && at + e < filled) back[at + e] = tile[buffer][0][at + e];
            }
        }
    }
);
static const char bring_first[] = BRING(0), bring_next[] = BRING(following), bring_this[] = BRING(number);
/* The element number i of a thread is there where it is not the last. */
#define IF_THERE "if (i + 1 < ROUNDS || lane + i * LANES < end)"
static const char read_tile[] = VB_PTX_SOURCE(
    u32 mine = buffer * (TILE * LANES) + shift + (turn * groups + group) * end + lane;
    unroll (i : ROUNDS) {
        x[i][0] = LEAST;
        IF_THERE x[i][0] = tile[0][i][mine];
    }
);
static const char write_tile[] = VB_PTX_SOURCE(
    u32 mine = buffer * (TILE * LANES) + shift + (turn * groups + group) * end + lane;
    unroll (i : ROUNDS) IF_THERE tile[0][i][mine] = x[i][0];
);
static const char mask_tile[] = VB_PTX_SOURCE(
    unroll (i : ROUNDS) {
        f32 kept = x[i][0];
        x[i][0] = 0;
        IF_THERE x[i][0] = kept;
    }
);
/* Each row of a block meets the same parameters: they stay in registers, where these are few. */
#define HOLD(p) VB_PTX_SOURCE( \
    f32 held_##p[ROUNDS] = 0; \
    unroll (i : ROUNDS) IF_THERE held_##p[i] = p[i * LANES + lane]; \
)
#define PARAMETER_OF_TILE(w, p) VB_PTX_SOURCE({ \
    w[0] = 0; \
    IF_THERE w[0] = p##_at[i * LANES]; \
})
static const char hold_weight[] = HOLD(weight), hold_bias[] = HOLD(bias), hold_both[] = HOLD(weight) HOLD(bias);
static const char held_weight[] = "w[0] = held_weight[i];", held_bias[] = "b[0] = held_bias[i];";
static const char parameters_of_tile[] = VB_PTX_SOURCE(
    f32 *weight_at = weight;
    weight_at += lane;
    f32 *bias_at = bias;
    bias_at += lane;
);
static const char weight_of_tile[] = PARAMETER_OF_TILE(w, weight), bias_of_tile[] = PARAMETER_OF_TILE(b, bias);

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

/* Plans for rows in shared memory, which move on to registers; false where a block has no room for them. Rows of a warp
 * or less are reduced by shuffles alone. Of 16 bits, parameters are twice as many bytes as a row: a thread that keeps
 * few of them has more rows (docs/experiments/2026-11-28-ptx-norms-h200.md, 2026-11-28-ptx-ahead.md). */
static bool stage(row_plan *p, int64_t rows, int64_t cols, int64_t size, int parameters, const vb_jit_device *device) {
    enum { ELEMENTS = 16, WARP_ELEMENTS = 32, PART_BYTES = 128, MOST_TOGETHER = 1024, FEWER = 768, FEW_KEPT = 28 };
    row_plan s = {.lanes = 1, .staged = 1, .wide = 16 / size, .each = 1, .registers = 1, .turns = 1,
        .depth = 1, .buffers = 1};
    const bool shares = parameters > 0 && size == 2, spread = shares && cols > ELEMENTS;
    const int64_t elements = spread ? ELEMENTS / 2 : ELEMENTS;
    s.async = device->target >= 80;
    while (s.lanes < 32 && s.lanes * elements < cols) s.lanes *= 2;
    const bool wide = s.lanes * WARP_ELEMENTS < cols, alone = wide && parameters > 0;
    if (wide) s.lanes = alone ? 128 : 64; /* of a block of its own, or of one with four rows */
    while (s.lanes < MOST_THREADS && s.lanes * WARP_ELEMENTS < cols) s.lanes *= 2;
    s.threads = alone ? s.lanes : MOST_THREADS;
    s.rounds = (cols + s.lanes - 1) / s.lanes;
    if (s.rounds > WARP_ELEMENTS) return false;
    if (s.lanes <= 32 && s.rounds < ELEMENTS) s.turns = (spread ? 2 : 1) * ELEMENTS / s.rounds;
    s.held = shares && s.rounds <= ELEMENTS;
    if (alone && s.held) s.turns = 2;
    s.least_blocks = (s.held * s.rounds * parameters > FEW_KEPT ? FEWER : MOST_TOGETHER) / s.threads;
    const int64_t held = s.threads / s.lanes * s.turns;
    s.tile = (held * s.rounds * s.lanes + 2 * s.wide + s.lanes - 1) / s.lanes;
    const int64_t bytes = s.tile * s.lanes * size;
    if (s.async && 2 * bytes + PART_BYTES <= device->shared_bytes && rows > 2 * held * device->multiprocessors) {
        s.depth = s.held ? 4 : 2;
        s.buffers = 2;
    }
    if (s.buffers * bytes + PART_BYTES > device->shared_bytes) return false;
    *p = s;
    return true;
}

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
    const bool few = wanted > 1 && cols <= 32 * p.each * 3; /* vectors, so that a warp has them in three rounds */
    if (few) p.lanes = 32;
    const bool shares = parameters == 2 && size == 2;
    if (p.vectors && arrays == 1 && !shares && p.lanes > 8 && p.lanes <= 32 && rows > MANY * device->multiprocessors)
        p.lanes = spread_over(cols / p.each);
    const int64_t least = p.lanes > 32 || few ? WIDE_THREADS : NARROW_THREADS;
    p.threads = p.lanes > least ? p.lanes : least;
    if (few && shares) p.least_blocks = FEW_TOGETHER;
    p.rounds = (cols + p.lanes * p.each - 1) / (p.lanes * p.each);
    p.registers = p.lanes < WIDEST_THREADS || arrays * p.rounds * p.each <= WIDEST_ELEMENTS;
    if (!p.registers) {
        p.rounds = LOOP_ROUNDS;
        p.lanes = p.threads = LONG_THREADS;
    }
    p.full = p.vectors && p.registers && p.rounds <= 2 && cols == p.lanes * p.each * p.rounds;
    const bool sparse = p.vectors && shares && cols > 64 && cols < 512 &&
        p.rounds * p.lanes * p.each * 10 > 11 * cols;
    if (arrays == 1 && aligned && !vb_jit_divide(&p, rows, cols, size, parameters, device) && (!p.vectors || sparse))
        stage(&p, rows, cols, size, parameters, device);
    while (p.steps < 5 && 1 << p.steps < p.lanes) p.steps++;
    while (32 << p.warp_steps < p.lanes) p.warp_steps++;
    return p;
}

#define PLAN(p) {"LANES", (p).lanes}, {"THREADS", (p).threads}, {"STEPS", (p).steps}, \
    {"WARP_STEPS", (p).warp_steps}, {"ROUNDS", (p).rounds}, {"EACH", (p).each}, {"IN_REGISTERS", (p).registers}, \
    {"VECTORS", (p).vectors}, {"FULL", (p).full}, {"WIDE", (p).wide}, {"TURNS", (p).turns}, {"TILE", (p).tile}, \
    {"BUFFERS", (p).buffers}, {"ASYNC", (p).async}, {"PARTS", (p).parts}, {"KEPT", (p).kept}, \
    {"SHIFTED", (p).shifted}, {"LEAST_BLOCKS", (p).least_blocks}, {"ROWS", 1}, {"ROW", 0}
#define TEXTS(p) {"FIND", (p).staged ? stage_rows : find_row}, \
    {"BEGIN", (p).staged ? "" : (p).parts ? vb_jit_part_texts.begin : begin_row}, \
    {"READ", (p).parts ? vb_jit_part_texts.read : (p).staged ? read_tile : read_row}, \
    {"WRITE", (p).parts ? vb_jit_part_texts.write : (p).staged ? write_tile : write_row}, \
    {"MASK", (p).parts ? vb_jit_part_texts.mask : (p).staged ? mask_tile : mask_row}, {"SUM_UP", sum_up}, \
    {"FINISH", (p).staged ? unstage_rows : ""}, {"EACH_TURN", (p).staged ? "unroll (turn : TURNS)" : ""}, \
    {"EACH_PART", (p).parts ? "unroll (part : PARTS)" : EACH_PART}, {"IF_THERE", IF_THERE}, \
    {"BRING_FIRST", bring_first}, {"BRING_NEXT", bring_next}, {"BRING_THIS", bring_this}, \
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
    if (mean && vb_jit_norm_ahead(&status, name, out, a, weight, bias, type, rows, cols, eps, stream)) return status;
    float share = 1.0f / (float)cols;
    const row_plan p = plan_of(type, rows, cols, (uintptr_t)sums | (uintptr_t)out | (uintptr_t)a | (uintptr_t)b |
        (uintptr_t)weight | (uintptr_t)bias, sum ? 2 : 1, 1 + mean, vb_jit_of(stream));
    if (p.parts) return vb_jit_norm_in_parts(name, &p, mean, out, a, weight, bias, type, rows, cols, eps, stream);
    uint32_t depth = (uint32_t)p.depth;
    const char *const hold = weight && bias ? hold_both : weight ? hold_weight : bias ? hold_bias : "";
    const vb_jit_filling f = {.source = norm, .type = vb_jit_type(type),
        .constants = {PLAN(p), {"BRAIN", type == VB_BF16}, {"LEAST_WORD", 0}, {"MEAN", mean}, {"SUM", sum},
                      {"ROUNDED", type != VB_F32}, {"WEIGHTS", weight != NULL}, {"BIASES", bias != NULL},
                      {"QUADS", p.each < 4 ? 1 : p.each / 4}},
        .texts = {TEXTS(p), {"INPUT", sum ? "sums" : "a_ptr"}, {"LEAST", "0.0"}, {"FIRST", read_first},
                  {"SCALE", scale_row}, {"MOMENTS", moments}, {"COUNT", count_row},
                  {"HOLD", p.held ? hold : parameters_of_tile},
                  {"PARAMETER_OF_WEIGHT", p.held ? held_weight : p.staged ? weight_of_tile : parameter_of_weight},
                  {"PARAMETER_OF_BIAS", p.held ? held_bias : p.staged ? bias_of_tile : parameter_of_bias}}};
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

/* The best of the WARPS warps of a block, of keys that order as their numbers do: of equal keys the first. */
const char vb_jit_best[] = VB_PTX_SOURCE(
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
            best = keys[lane % WARPS];
            best_at = places[lane % WARPS];
        }
    }
);

/* The place of the greatest number, of equal ones the first, and where VALUES is 1 the number; NaN is above all. A
 * thread looks at every 1024th vector, then the block compares its threads' results. */
static const char argmax[] = VB_PTX_SOURCE(
kernel ENTRY(f32 *values, s32 *ids, f32 *input, u64 cols) threads(1024) {
    start_next();
    wait_for_previous();
    shared u32 keys[WARPS], places[WARPS];
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
    REDUCE
    if (thread.x == 0) {
        ids[block.x] = s32(best_at);
        if (VALUES) values[block.x] = in[best_at];
    }
});

static vb_status greatest(float *values, int32_t *ids, const float *in, int64_t rows, int64_t cols, vb_stream *stream) {
    const bool vectors = (uintptr_t)in % 16 == 0 && cols % 4 == 0;
    if (cols > INT32_MAX - (1 << 20)) return VB_UNSUPPORTED;
    const vb_jit_filling f = {.source = argmax,
                              .constants = {{"EACH", vectors ? 4 : 1}, {"PARTS", 4}, {"VALUES", values != NULL},
                                            {"WARPS", 32}},
                              .texts = {{"REDUCE", vb_jit_best}}};
    return vb_jit_launch(stream, "ptx_argmax", &f, rows, 1, 1, 1024, VB_JIT_PARAMETERS(&values, &ids, &in, &cols));
}

vb_status vb_jit_argmax(int32_t *out, const float *in, int64_t rows, int64_t cols, vb_stream *stream) {
    return greatest(NULL, out, in, rows, cols, stream);
}

/* Sorted tiles of a row are merged up to the k-th number (ptx_sort.c): in the order of argmax. */
vb_status vb_jit_top_k(float *values, int32_t *ids, const float *in, int64_t rows, int64_t cols, int64_t k,
    vb_stream *stream) {
    if (cols > INT32_MAX) return VB_UNSUPPORTED;
    if (k == 1) return greatest(values, ids, in, rows, cols, stream);
    return vb_jit_sort(&VB_ARGS(vb_sort_args, .values = {values, VB_F32, {k, 1}}, .indices = {ids, VB_I32, {k, 1}},
                                .in = {(void *)(uintptr_t)in, VB_F32, {cols, 1}}, .sizes = {rows, cols},
                                .out_sizes = {rows, k}, .rank = 2, .dim = 1, .descending = 1),
                       stream);
}
