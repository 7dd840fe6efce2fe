/* ptx_norms.c: norms of rows that stay with a block in parts (ptx_parts.c). Where a block has two rows, they share what
 * it reads of weight and bias: of rows of 16 bits these are four times as many bytes as a row. The two are APART rows
 * from each other, so that they begin equally far behind a vector. */
#include "ptx_rows.h"

/* The first `paired` blocks have two rows. Others have one, which they compute twice where ROWS is 2. */
static const char norm[] = VB_PTX_SOURCE(
kernel ENTRY(TYPE *output, TYPE *input, f32 *weight, f32 *bias, u64 cols, u32 paired, f32 eps, f32 share)
    threads(LANES, LEAST_BLOCKS) {
    start_next();
    wait_for_previous();
    shared f32 sums[2][ROWS][32];
    u32 lane = thread.x, row = block.x;
    u64 apart = 0;
    if (ROWS > 1) {
        if (row < paired) {
            row = row / APART * (2 * APART) + row % APART;
            apart = cols * APART;
        } else {
            row = row + paired;
        }
    }
    u64 start = u64(row) * cols;
    FIND_PARTS
    unroll (r : ROWS) {
        OPERANDS
        BRING
    }
    if (ASYNC && PARTS > KEPT) copy_async_commit();
    unroll (r : ROWS) {
        OPERANDS
        EDGES
    }
    f32 mean[ROWS] = 0, sum[ROWS] = 0, squares[ROWS] = 0, x[1][EACH];
    if (MEAN) MOMENTS
    else SQUARES
    f32 inverse[ROWS];
    unroll (r : ROWS) inverse[r] = rsqrt(fma(squares[r], share, eps));
    EACH_SHIFT unroll (part : PARTS) {
        u32 from = part * (LANES * EACH) + lane * EACH - shift - by, last = (u32(cols) - 1) / 4 * 4;
        WEIGHT
        BIAS
        unroll (r : ROWS) {
            READ
            if (MEAN) unroll (e : EACH) x[0][e] = x[0][e] - mean[r];
            unroll (e : EACH) x[0][e] = x[0][e] * inverse[r];
            if (WEIGHTS) unroll (e : EACH) x[0][e] = x[0][e] * weights[e / 4][e % 4];
            if (BIASES) unroll (e : EACH) x[0][e] = x[0][e] + biases[e / 4][e % 4];
            OPERANDS
            WRITE
        }
    }
});
static const char operands[] = VB_PTX_SOURCE(
    TYPE *in = input;
    in += start - shift;
    TYPE *to = output;
    to += start - shift;
    if (r > 0) {
        in += apart;
        to += apart;
    }
);
/* Each row's sum of v over the block. No two sums use the same shared memory: one barrier is enough. */
#define SUM_UP(v, number) VB_PTX_SOURCE( \
    unroll (r : ROWS) unroll (i : 5) v[r] += shuffle_xor(v[r], 1 << i); \
    if (lane % 32 == 0) unroll (r : ROWS) sums[number][r][lane / 32] = v[r]; \
    barrier(); \
    unroll (r : ROWS) { \
        v[r] = sums[number][r][lane % (LANES / 32)]; \
        unroll (i : WARP_STEPS) v[r] += shuffle_xor(v[r], 1 << i); \
    } \
)
/* The mean and the squares of distances from it, of rows that are read once. A thread takes its elements less its first
 * one, so that what it subtracts of the squares is small (Chan et al. 1979, "Updating formulae"). */
static const char moments[] = "{" VB_PTX_SOURCE(
    f32 base[ROWS];
    unroll (part : PARTS) unroll (r : ROWS) {
        READ
        if (part == 0) base[r] = x[0][EACH - 1];
        unroll (e : EACH) x[0][e] = x[0][e] - base[r];
        MASK
        unroll (e : EACH) {
            sum[r] += x[0][e];
            squares[r] = fma(x[0][e], x[0][e], squares[r]);
        }
    }
    u32 have = 0;
    unroll (part : PARTS) {
        u32 at = (part * LANES + lane) * EACH;
        if (at < length) have += min(at + EACH, length) - max(at, shift);
    }
    f32 count = f32(have), share_of_thread = rcp(count);
    f32 average[ROWS];
    unroll (r : ROWS) {
        average[r] = sum[r] * share_of_thread;
        squares[r] = squares[r] - sum[r] * average[r];
        sum[r] = fma(base[r], count, sum[r]);
    }
) SUM_UP(sum, 0) VB_PTX_SOURCE(
    unroll (r : ROWS) {
        mean[r] = sum[r] * share;
        f32 distance = base[r] - mean[r] + average[r];
        squares[r] = fma(distance * distance, count, squares[r]);
    }
) SUM_UP(squares, 1) "}";
static const char squares[] = "{" VB_PTX_SOURCE(
    unroll (part : PARTS) unroll (r : ROWS) {
        READ
        unroll (e : EACH) squares[r] = fma(x[0][e], x[0][e], squares[r]);
    }
) SUM_UP(squares, 0) "}";
/* The elements of a parameter that a shifted vector meets are those of three aligned vectors, or of two of F32. What a
 * vector outside of the row has is not written, so that it may be the last one's: a condition would keep later loads
 * waiting. */
#define SHIFTED_PARAMETER(w, p) VB_PTX_SOURCE( \
    f32 w[EACH / 4 + 1][4]; \
    unroll (q : EACH / 4 + 1) { \
        u32 at = from + q * 4; \
        if (part == 0 || part + 2 >= PARTS) at = min(at, last); \
        load_fixed(w[q], p[at]); \
    } \
    if ((by & 1) != 0) unroll (e : EACH + 2) w[e / 4][e % 4] = w[(e + 1) / 4][(e + 1) % 4]; \
    if ((by & 2) != 0) unroll (e : EACH) w[e / 4][e % 4] = w[(e + 2) / 4][(e + 2) % 4]; \
)
#define PARAMETER(w, p) VB_PTX_SOURCE( \
    f32 w[EACH / 4][4]; \
    unroll (q : EACH / 4) { \
        u32 at = from + q * 4; \
        if (part + 1 >= PARTS) at = min(at, last); \
        load_fixed(w[q], p[at]); \
    } \
)
static const char shifted_weight[] = SHIFTED_PARAMETER(weights, weight), whole_weight[] = PARAMETER(weights, weight);
static const char shifted_bias[] = SHIFTED_PARAMETER(biases, bias), whole_bias[] = PARAMETER(biases, bias);
/* The constant `by` is how far a shifted vector is behind an aligned one: what is done to a part is compiled for
 * each. */
static const char each_shift[] = "unroll (by : 4) if ((0 - shift & 3) == by)", no_shift[] = "unroll (by : 1)";

vb_status vb_jit_norm_in_parts(const char *name, const row_plan *p, bool mean, void *out, const void *in,
    const float *weight, const float *bias, vb_dtype type, int64_t rows, int64_t cols, float eps, vb_stream *stream) {
    float share = 1.0f / (float)cols;
    const int64_t apart = p->shifted ? p->each : 1, pairs = p->rows > 1 ? rows / (2 * apart) * apart : 0;
    uint32_t paired = (uint32_t)pairs;
    const vb_jit_filling f = {.source = norm, .type = vb_jit_type(type),
        .constants = {{"LANES", p->lanes}, {"WARP_STEPS", p->warp_steps}, {"EACH", p->each}, {"ASYNC", p->async},
                      {"PARTS", p->parts}, {"KEPT", p->kept}, {"SHIFTED", p->shifted},
                      {"LEAST_BLOCKS", p->least_blocks}, {"ROWS", p->rows}, {"APART", apart},
                      {"BRAIN", type == VB_BF16}, {"LEAST_WORD", 0}, {"MEAN", mean},
                      {"WEIGHTS", weight != NULL}, {"BIASES", bias != NULL}},
        .texts = {VB_JIT_PART_TEXTS(*p), {"READ", vb_jit_part_texts.read}, {"WRITE", vb_jit_part_texts.write},
                  {"MASK", vb_jit_part_texts.mask}, {"ROW", "r"}, {"OPERANDS", operands}, {"MOMENTS", moments},
                  {"SQUARES", squares}, {"EACH_SHIFT", p->shifted ? each_shift : no_shift},
                  {"WEIGHT", !weight ? "" : p->shifted ? shifted_weight : whole_weight},
                  {"BIAS", !bias ? "" : p->shifted ? shifted_bias : whole_bias}}};
    return vb_jit_launch(stream, name, &f, rows - pairs, 1, 1, (int)p->lanes,
                         VB_JIT_PARAMETERS(&out, &in, &weight, &bias, &cols, &paired, &eps, &share));
}
