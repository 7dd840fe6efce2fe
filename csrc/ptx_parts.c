/* ptx_parts.c: rows that stay with a block while it computes them, in registers and shared memory, as they lie in
 * memory: numbers of 16 bits take half the registers of float32. */
#include "ptx_rows.h"

/* A row is PARTS vectors a thread, of which KEPT stay in registers as they lie in memory, and the others in shared
 * memory. SHIFTED: a row begins `shift` elements behind the vector that holds the first. Elements of the first and the
 * last vector are asked for then. In the parts that are WHOLE no vector is asked for. */
static const char find_parts[] = VB_PTX_SOURCE(
    u32 shift = 0;
    if (SHIFTED) shift = u32(start) % EACH;
    u32 length = u32(cols) + shift;
    u32 kept[ROWS * KEPT][4];
    REST
);
static const char begin_parts[] = VB_PTX_SOURCE(
    FIND_PARTS
    TYPE *in = INPUT;
    in += start - shift;
    TYPE *to = output;
    to += start - shift;
    BRING
    if (ASYNC && PARTS > KEPT) copy_async_commit();
    EDGES
);
/* The parts of row number ROW of a block. */
static const char bring_parts[] = VB_PTX_SOURCE(
    unroll (part : PARTS) {
        const first = part * (LANES * EACH);
        if (WHOLE) {
            LOAD_VECTOR
        } else {
            if (first + lane * EACH >= shift && first + (lane + 1) * EACH <= length) {
                LOAD_VECTOR
            } else {
                if (part < KEPT) {
                    unroll (j : 4) kept[ROW * KEPT + part][j] = LEAST_WORD;
                } else {
                    u32 words[4] = LEAST_WORD;
                    store(rest[ROW * (PARTS - KEPT) + part - KEPT][lane * 4], words);
                }
            }
        }
    }
);
static const char edges[] = VB_PTX_SOURCE(
    if (SHIFTED) {
        FIRST_EDGE
        if (PARTS > 2) SECOND_EDGE
        LAST_EDGE
    }
);
static const char rest[] = VB_PTX_SOURCE(shared u32 rest[ROWS * (PARTS - KEPT)][LANES * 4];);
static const char whole[] = "part + 1 + SHIFTED < PARTS && part >= SHIFTED";
static const char load_vector[] = VB_PTX_SOURCE(
    if (part < KEPT) {
        load(kept[ROW * KEPT + part], in[first + lane * EACH]);
    } else {
        if (ASYNC) {
            copy_async(rest[ROW * (PARTS - KEPT) + part - KEPT][lane * 4], in[first + lane * EACH], 16);
        } else {
            u32 words[4];
            load(words, in[first + lane * EACH]);
            store(rest[ROW * (PARTS - KEPT) + part - KEPT][lane * 4], words);
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
        if (part < KEPT) unroll (j : 4) kept[ROW * KEPT + part][j] = words[j]; \
        else store(rest[ROW * (PARTS - KEPT) + part - KEPT][lane * 4], words); \
    } \
})

static const char read_part[] = VB_PTX_SOURCE(
    const first = part * (LANES * EACH);
    u32 words[4];
    if (part < KEPT) {
        unroll (j : 4) words[j] = kept[ROW * KEPT + part][j];
    } else {
        if (ASYNC && ROW == 0 && part == KEPT) copy_async_wait(0);
        load(words, rest[ROW * (PARTS - KEPT) + part - KEPT][lane * 4]);
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
static const char write_part[] = VB_PTX_SOURCE({
    u32 at = first + lane * EACH;
    if (WHOLE || at >= shift && at + EACH <= length) {
        store(to[at], x[0]);
    } else {
        if (SHIFTED) unroll (e : EACH) if (at + e >= shift && at + e < length) to[at + e] = x[0][e];
    }
});
static const char mask_part[] = VB_PTX_SOURCE(
    if (part == 0 && SHIFTED || part + 1 + SHIFTED >= PARTS) {
        unroll (e : EACH) {
            u32 at = first + lane * EACH + e;
            if (at < shift || at >= length) x[0][e] = 0;
        }
    }
);
const struct vb_jit_part_texts vb_jit_part_texts = {
    .begin = begin_parts, .find = find_parts, .bring = bring_parts, .edges = edges, .load_vector = load_vector,
    .first_edge = LOAD_EDGE(0), .second_edge = LOAD_EDGE(PARTS - 2), .last_edge = LOAD_EDGE(PARTS - 1), .rest = rest,
    .whole = whole, .read = read_part, .write = write_part, .mask = mask_part};

/* How rows of so many bytes are divided: more parts in registers leave fewer to shared memory, and fewer registers to
 * parameters that are on their way. Times of an H100 chose them (docs/experiments/2026-11-27-plain-build.md). */
typedef struct width { int64_t threads, blocks, kept, rows; } width;

/* Bytes of rows: what a warp has in registers at once, of which whole vectors are not divided, of rows that are,
 * and of RMS norms of 16 bits that are, where they are no whole vectors. */
enum { OF_WARP = 3 << 9, LEAST = 7 << 9, LEAST_SQUARES = 2560 };

/* Of two rows a block: most percent of threads with a vector in the last part, too, less what a width loses. */
static width pair_of(int64_t bytes, int64_t longest) {
    static const struct { width w; int64_t loss; } all[] = {
        {{256, 3, 4, 2}, 0}, {{512, 2, 2, 2}, 4}, {{128, 6, 4, 2}, 9}};
    width best = all[0].w;
    int64_t most = 0;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        const int64_t part = all[i].w.threads * 16, parts = (longest + part - 1) / part;
        const int64_t used = 100 * bytes / (parts * part) - all[i].loss;
        if (used > most && parts <= 8) most = used, best = all[i].w;
    }
    return best;
}

/* Rows of 16 bits, one a block, of `from` to `to` bytes that times of an H200 gave other widths than those of width_of:
 * most of them no whole number of vectors, `whole` any (docs/experiments/2026-11-29-ptx-entries.md). */
static width timed_width_of(int64_t bytes, bool shifted, int parameters) {
    static const struct { int parameters; bool whole; int64_t from, to; width w; } all[] = {
        {0, false, 13313, 27647, {256, 4, 4, 1}}, {0, true, 27648, 33792, {256, 4, 4, 1}},
        {0, true, 49153, 65536, {512, 2, 4, 1}},  {1, false, 2560, 3059, {64, 12, 8, 1}},
        {1, false, 3060, 3700, {32, 20, 8, 1}},   {1, false, 3701, 5199, {64, 12, 8, 1}},
        {1, false, 13313, 17408, {128, 6, 8, 1}}, {1, false, 17409, 20480, {256, 4, 4, 1}},
        {1, false, 32769, 36864, {256, 3, 8, 1}}, {1, false, 36865, 40960, {512, 2, 8, 1}}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (parameters == all[i].parameters && (shifted || all[i].whole) && bytes >= all[i].from && bytes <= all[i].to)
            return all[i].w;
    return (width){0};
}

static width width_of(int64_t bytes, int64_t size, bool shifted, int parameters, bool pairs) {
    if (pairs && bytes < LEAST) return (width){32, bytes <= 2 << 10 ? 20 : 16, 8, 2};
    if (pairs && bytes <= (shifted ? 4080 : 6 << 10)) return (width){128, 6, 4, 2};
    if (pairs && bytes <= 28 << 10) return pair_of(bytes, bytes + 14 * shifted);
    if (pairs) return bytes <= 64 << 10 ? (width){512, 2, 2, 2} : (width){1024, 1, 2, 2};
    const width timed = size == 2 ? timed_width_of(bytes, shifted, parameters) : (width){0};
    if (timed.threads) return timed;
    if (bytes <= 13 << 10) return (width){128, 6, 8, 1};
    if (bytes <= 32 << 10) return (width){256, 3, 8, 1};
    if (bytes <= 64 << 10) return (width){512, 2, shifted ? 4 : 8, 1};
    if (bytes > 128 << 10) return (width){1024, 1, 6, 1};
    if (shifted && parameters == 1) return (width){1024, 1, 4, 1};
    return (width){512, 2, parameters == 2 ? 6 : 3, 1};
}

/* Plans for rows in parts, `pairs` for two rows a block; false where a block has no room for them. */
static bool divide(row_plan *p, int64_t cols, int64_t size, int parameters, bool pairs, const vb_jit_device *device) {
    enum { VECTOR = 16, MOST_PARTS = 16, PART_BYTES = 128 };
    row_plan d = {.each = VECTOR / size, .vectors = 1, .turns = 1, .depth = 1, .rounds = 1};
    d.shifted = cols % d.each != 0;
    const width w = width_of(cols * size, size, d.shifted, parameters, pairs);
    const int64_t longest = cols + (d.shifted ? d.each - 1 : 0);
    d.lanes = d.threads = w.threads;
    d.least_blocks = w.blocks;
    d.rows = w.rows;
    d.parts = (longest + w.threads * d.each - 1) / (w.threads * d.each);
    d.kept = d.parts < w.kept ? d.parts : w.kept;
    d.async = device->target >= 80;
    const int64_t shared = d.rows * ((d.parts - d.kept) * w.threads * VECTOR + 2 * PART_BYTES);
    if (d.parts > MOST_PARTS || shared > device->shared_bytes) return false;
    *p = d;
    return true;
}

/* Layer norms of 16 bits read 8 bytes of parameters an element, which two rows share where there are enough rows for
 * almost two rounds of blocks; so do the longest of other norms. Odd layer norms of up to 5 KiB go through shared
 * memory (ptx_rows.c). Times of an H100 and an H200 chose them
 * (docs/experiments/2026-11-28-ptx-norms.md, 2026-11-28-ptx-norms-h200.md). */
bool vb_jit_divide(row_plan *p, int64_t rows, int64_t cols, int64_t size, int parameters, const vb_jit_device *device) {
    const int64_t bytes = cols * size;
    const bool shifted = bytes % 16 != 0, longest = parameters == 1 && bytes > 64 << 10;
    const bool of_warp = parameters > 0 && size == 2 && !shifted && bytes > OF_WARP && bytes < LEAST;
    const bool staged = parameters == 2 && size == 2 && shifted && bytes < 5 << 10;
    const bool odd_squares = parameters == 1 && size == 2 && shifted && bytes >= LEAST_SQUARES;
    if (!of_warp && !odd_squares && (bytes < LEAST || staged)) return false;
    const bool shares = of_warp || (size == 2 && (parameters == 2 || longest));
    const width two = width_of(bytes, size, shifted, parameters, true);
    const bool pairs = shares && rows * 10 >= 17 * two.blocks * two.rows * device->multiprocessors;
    return (pairs && divide(p, cols, size, parameters, true, device)) ||
           (!of_warp && divide(p, cols, size, parameters, false, device));
}
