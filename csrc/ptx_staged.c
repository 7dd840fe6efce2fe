/* ptx_staged.c: rows that go through shared memory: short ones that are no whole number of vectors, or that leave
 * threads of a warp without one. A block moves them by vectors, and has them in registers in float32 to compute. */
#include "ptx_rows.h"

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
static const char parameters_of_tile[] = VB_PTX_SOURCE(
    f32 *weight_at = weight;
    weight_at += lane;
    f32 *bias_at = bias;
    bias_at += lane;
);

const struct vb_jit_staged_texts vb_jit_staged_texts = {
    .find = stage_rows, .finish = unstage_rows, .read = read_tile, .write = write_tile, .mask = mask_tile,
    .bring_first = BRING(0), .bring_next = BRING(following), .bring_this = BRING(number), .if_there = IF_THERE,
    .hold_weight = HOLD(weight), .hold_bias = HOLD(bias), .hold_both = HOLD(weight) HOLD(bias),
    .held_weight = "w[0] = held_weight[i];", .held_bias = "b[0] = held_bias[i];", .parameters = parameters_of_tile,
    .weight = PARAMETER_OF_TILE(w, weight), .bias = PARAMETER_OF_TILE(b, bias)};

/* Plans for rows in shared memory, which move on to registers; false where a block has no room for them. Rows of a warp
 * or less are reduced by shuffles alone. Of 16 bits, parameters are twice as many bytes as a row: a thread that keeps
 * few of them has more rows (docs/experiments/2026-11-28-ptx-norms-h200.md, 2026-11-28-ptx-ahead.md). */
bool vb_jit_stage(row_plan *p, int64_t rows, int64_t cols, int64_t size, int parameters, const vb_jit_device *device) {
    enum { ELEMENTS = 16, SPREAD_ELEMENTS = 14, WARP_ELEMENTS = 32, PART_BYTES = 128, MOST_THREADS = 256,
        FEW_THREADS = 128, MOST_TOGETHER = 1024, FEWER = 768, FEW_KEPT = 28, OF_TURNS = 20 };
    row_plan s = {.lanes = 1, .staged = 1, .wide = 16 / size, .each = 1, .registers = 1, .turns = 1,
        .depth = 1, .buffers = 1};
    const bool shares = parameters > 0 && size == 2, spread = shares && cols > ELEMENTS;
    const int64_t elements = spread ? SPREAD_ELEMENTS : ELEMENTS;
    s.async = device->target >= 80;
    while (s.lanes < 32 && s.lanes * elements < cols) s.lanes *= 2;
    if (shares && s.lanes * ELEMENTS < cols) s.lanes = 64;
    const bool wide = s.lanes * (shares ? ELEMENTS : WARP_ELEMENTS) < cols;
    if (wide) s.lanes = parameters > 0 ? 128 : 64;
    while (s.lanes < MOST_THREADS && s.lanes * WARP_ELEMENTS < cols) s.lanes *= 2;
    s.threads = spread && s.lanes >= 32 ? FEW_THREADS : MOST_THREADS;
    if (wide && parameters > 0) s.threads = s.lanes; /* a block of its own */
    s.rounds = (cols + s.lanes - 1) / s.lanes;
    if (s.rounds > WARP_ELEMENTS) return false;
    s.held = shares && s.rounds <= ELEMENTS;
    if (spread && s.held) s.turns = s.rounds > OF_TURNS / 2 ? 2 : OF_TURNS / s.rounds;
    else if (!spread && s.lanes <= 32 && s.rounds < ELEMENTS) s.turns = ELEMENTS / s.rounds;
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
