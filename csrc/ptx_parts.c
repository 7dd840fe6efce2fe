/* ptx_parts.c: rows that stay with a block while it computes them, in registers and shared memory, as they lie in
 * memory: numbers of 16 bits take half the registers of float32. */
#include "ptx_rows.h"

/* A row is PARTS vectors a thread, of which KEPT stay in registers as they lie in memory, and the others in shared
 * memory. SHIFTED: a row begins `shift` elements behind the vector that holds the first. Elements of the first and the
 * last vector are asked for then. In the parts that are WHOLE no vector is asked for. */
static const char begin_parts[] = VB_PTX_SOURCE(
    u32 shift = 0;
    if (SHIFTED) shift = u32(start) % EACH;
    u32 length = u32(cols) + shift;
    TYPE *in = INPUT;
    in += start - shift;
    TYPE *to = output;
    to += start - shift;
    u32 kept[KEPT][4];
    REST
    unroll (part : PARTS) {
        const first = part * (LANES * EACH);
        if (WHOLE) {
            LOAD_VECTOR
        } else {
            if (first + lane * EACH >= shift && first + (lane + 1) * EACH <= length) {
                LOAD_VECTOR
            } else {
                if (part < KEPT) {
                    unroll (j : 4) kept[part][j] = LEAST_WORD;
                } else {
                    u32 words[4] = LEAST_WORD;
                    store(rest[part - KEPT][lane * 4], words);
                }
            }
        }
    }
    if (ASYNC && PARTS > KEPT) copy_async_commit();
    if (SHIFTED) {
        FIRST_EDGE
        if (PARTS > 2) SECOND_EDGE
        LAST_EDGE
    }
);
static const char rest[] = VB_PTX_SOURCE(shared u32 rest[PARTS - KEPT][LANES * 4];);
static const char whole[] = "part + 1 + SHIFTED < PARTS && part >= SHIFTED";
static const char load_vector[] = VB_PTX_SOURCE(
    if (part < KEPT) {
        load(kept[part], in[first + lane * EACH]);
    } else {
        if (ASYNC) {
            copy_async(rest[part - KEPT][lane * 4], in[first + lane * EACH], 16);
        } else {
            u32 words[4];
            load(words, in[first + lane * EACH]);
            store(rest[part - KEPT][lane * 4], words);
        }
    }
);
/* The elements of a vector that is not whole. */
#define LOAD_EDGE(number) VB_PTX_SOURCE({ \
    const part = number; \
    u32 at = part * (LANES * EACH) + lane * EACH; \
    if (at < length && (at < shift || at + EACH > length)) { \
        u32 words[4]; \
        unroll (j : 4) { \
            if (EACH == 4) { \
                u32 *raw = in; \
                words[j] = LEAST_WORD; \
                if (at + j >= shift && at + j < length) words[j] = raw[at + j]; \
            } else { \
                u16 *raw = in; \
                u32 low = LEAST_WORD & 0xffff, high = low; \
                if (at + 2 * j >= shift && at + 2 * j < length) low = raw[at + 2 * j]; \
                if (at + (2 * j + 1) >= shift && at + (2 * j + 1) < length) high = raw[at + (2 * j + 1)]; \
                words[j] = low | high << 16; \
            } \
        } \
        if (part < KEPT) unroll (j : 4) kept[part][j] = words[j]; \
        else store(rest[part - KEPT][lane * 4], words); \
    } \
})

static const char read_part[] = VB_PTX_SOURCE(
    const first = part * (LANES * EACH);
    u32 words[4];
    if (part < KEPT) {
        unroll (j : 4) words[j] = kept[part][j];
    } else {
        if (ASYNC && part == KEPT) copy_async_wait(0);
        load(words, rest[part - KEPT][lane * 4]);
    }
    unroll (j : 4) {
        if (EACH == 4) {
            x[0][j] = from_bits(words[j]);
        } else {
            if (BRAIN) {
                x[0][2 * j] = from_bits(words[j] << 16);
                x[0][2 * j + 1] = from_bits(words[j] & 0xffff0000);
            } else {
                x[0][2 * j] = f16_low(words[j]);
                x[0][2 * j + 1] = f16_high(words[j]);
            }
        }
    }
);
static const char write_part[] = VB_PTX_SOURCE(
    if (writes) {
        u32 at = first + lane * EACH;
        if (WHOLE || at >= shift && at + EACH <= length) {
            store(to[at], x[0]);
        } else {
            if (SHIFTED) unroll (e : EACH) if (at + e >= shift && at + e < length) to[at + e] = x[0][e];
        }
    }
);
static const char mask_part[] = VB_PTX_SOURCE(
    if (part == 0 && SHIFTED || part + 1 + SHIFTED >= PARTS) {
        unroll (e : EACH) {
            u32 at = first + lane * EACH + e;
            if (at < shift || at >= length) x[0][e] = 0;
        }
    }
);
/* The elements of a thread. */
static const char count_parts[] = VB_PTX_SOURCE(
    u32 have = 0;
    unroll (part : PARTS) {
        u32 at = (part * LANES + lane) * EACH;
        if (at < length) have += min(at + EACH, length) - max(at, shift);
    }
    f32 count = f32(have);
);
/* The elements of a parameter that a shifted vector meets are those of three aligned vectors, or of two of F32. What a
 * vector outside of the row has is not written, so that it may be the last one's: a condition would keep later loads
 * waiting. */
#define PARAMETER_OF_SHIFTED(p, how) VB_PTX_SOURCE({ \
    f32 w[EACH / 4 + 1][4]; \
    unroll (q : EACH / 4 + 1) { \
        u32 at = from + q * 4; \
        if (part == 0 || part + 2 >= PARTS) at = min(at, last); \
        load_fixed(w[q], p[at]); \
    } \
    if ((by & 1) != 0) unroll (e : EACH + 2) w[e / 4][e % 4] = w[(e + 1) / 4][(e + 1) % 4]; \
    if ((by & 2) != 0) unroll (e : EACH) w[e / 4][e % 4] = w[(e + 2) / 4][(e + 2) % 4]; \
    unroll (e : EACH) x[0][e] = how; \
})
/* x times the inverse and the weight, plus the bias; the constant `by` is how far a shifted vector is behind an aligned
 * one: what is done to a part is compiled for each. */
static const char each_shift[] = "unroll (by : 4) if ((0 - shift & 3) == by)", no_shift[] = "unroll (by : 1)";
static const char scale_part[] = VB_PTX_SOURCE(
    u32 from = first + lane * EACH - shift - by, last = (u32(cols) - 1) / 4 * 4;
    unroll (e : EACH) x[0][e] = x[0][e] * inverse;
    if (WEIGHTS) BY_WEIGHT
    if (BIASES) PLUS_BIAS
);
#define PARAMETER_OF_VECTOR(p, how) VB_PTX_SOURCE({ \
    f32 w[EACH / 4][4]; \
    unroll (q : EACH / 4) { \
        if (part + 1 < PARTS) { \
            load_fixed(w[q], p[from + q * 4]); \
        } else { \
            unroll (e : 4) w[q][e] = 0; \
            if (from < length) load_fixed(w[q], p[from + q * 4]); \
        } \
    } \
    unroll (e : EACH) x[0][e] = how; \
})

const struct vb_jit_part_texts vb_jit_part_texts = {
    .begin = begin_parts, .load_vector = load_vector, .first_edge = LOAD_EDGE(0), .second_edge = LOAD_EDGE(PARTS - 2),
    .last_edge = LOAD_EDGE(PARTS - 1), .rest = rest, .whole = whole, .read = read_part, .write = write_part,
    .mask = mask_part, .count = count_parts, .scale = scale_part,
    .each_shift = each_shift, .no_shift = no_shift, .weight = PARAMETER_OF_VECTOR(weight, x[0][e] * w[e / 4][e % 4]),
    .bias = PARAMETER_OF_VECTOR(bias, x[0][e] + w[e / 4][e % 4]),
    .shifted_weight = PARAMETER_OF_SHIFTED(weight, x[0][e] * w[e / 4][e % 4]),
    .shifted_bias = PARAMETER_OF_SHIFTED(bias, x[0][e] + w[e / 4][e % 4])};

/* How rows of so many bytes are divided: more parts in registers leave fewer to shared memory, and fewer registers to
 * parameters that are on their way. Times of an H100 chose them (docs/experiments/2026-11-27-plain-build.md). */
typedef struct width { int64_t threads, blocks, kept; } width;
static width width_of(int64_t bytes, bool shifted, int parameters) {
    if (bytes <= 13 << 10) return (width){128, 6, 8};
    if (bytes <= 32 << 10) return (width){256, 3, 8};
    if (bytes <= 64 << 10) return (width){512, 2, shifted ? 4 : 8};
    if (bytes > 128 << 10) return (width){1024, 1, 6};
    if (shifted && parameters == 1) return (width){1024, 1, 4};
    return (width){512, 2, parameters == 2 ? 6 : 3};
}

/* Layer norms of 16 bits, which read 8 bytes of parameters an element, go through shared memory (ptx_rows.c) longer
 * than others where rows are no whole vectors. */
bool vb_jit_divide(row_plan *p, int64_t cols, int64_t size, int parameters, const vb_jit_device *device) {
    enum { VECTOR = 16, MOST_PARTS = 16, PART_BYTES = 128, LEAST = 7 << 9, LEAST_STAGED = 7 << 10 };
    const int64_t each = VECTOR / size, bytes = cols * size;
    row_plan d = {.each = each, .vectors = 1, .turns = 1, .depth = 1, .rounds = 1, .shifted = cols % each != 0};
    if (bytes < (d.shifted && parameters == 2 && size == 2 ? LEAST_STAGED : LEAST)) return false;
    const width w = width_of(bytes, d.shifted, parameters);
    const int64_t longest = cols + (d.shifted ? each - 1 : 0);
    d.lanes = d.threads = w.threads;
    d.least_blocks = w.blocks;
    d.parts = (longest + w.threads * each - 1) / (w.threads * each);
    d.kept = d.parts < w.kept ? d.parts : w.kept;
    d.async = device->target >= 80;
    const int64_t shared = (d.parts - d.kept) * w.threads * VECTOR + PART_BYTES;
    if (d.parts > MOST_PARTS || shared > device->shared_bytes) return false;
    *p = d;
    return true;
}
