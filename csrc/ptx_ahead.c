/* ptx_ahead.c: layer norms of 16 bits whose rows are no whole number of vectors, by blocks that stay, for GPUs of 9.0
 * and newer. A thread copies the vectors that it computes into shared memory, DEPTH rows ahead, so that no other thread
 * waits for them. It keeps weight and bias of its columns in registers for all rows of its block, which begin equally
 * far behind a vector. A row is summed before the row ahead of it is written: until its sums are wanted, all warps have
 * told them. */
#include "ptx_rows.h"

enum { SLOTS = 4 }; /* of sums on their way: who tells row k has those of row k - 3, so all have read those of k - 4 */

/* Vector number part * LANES + lane of a row is a thread's. In the parts that are WHOLE no vector is asked for. */
static const char ahead[] = VB_PTX_SOURCE(
kernel ENTRY(TYPE *output, TYPE *input, f32 *weight, f32 *bias, u64 cols, u32 rows, u32 step, f32 eps, f32 share)
    threads(LANES, LEAST_BLOCKS) {
    start_next();
    wait_for_previous();
    const stride = LANES * EACH;
    const size = PARTS * LANES * EACH;
    shared TYPE ring[DEPTH][PARTS][LANES * EACH];
    shared f32 records[SLOTS][WARPS][2];
    shared u64 told[SLOTS];
    u32 lane = thread.x;
    if (lane == 0) unroll (s : SLOTS) barrier_init(told[s], WARPS);
    barrier();
    u64 start = u64(block.x) * cols;
    u32 shift = u32(start) % EACH, length = u32(cols) + shift, first = lane * EACH;
    TYPE *in = input;
    in += start - shift + first;
    TYPE *to = output;
    to += start - shift + first;
    u64 jump = u64(step) * cols;
    f32 w[PARTS][EACH], b[PARTS][EACH];
    unroll (part : PARTS) unroll (e : EACH) {
        u32 column = min(max(first + (part * stride + e), shift) - shift, u32(cols) - 1);
        w[part][e] = weight[column];
        b[part][e] = bias[column];
    }
    COUNT
    u32 mine = (rows - block.x + step - 1) / step, coming = 0, into = first;
    unroll (d : DEPTH) BRING
    into = first;
    u32 from = into;
    for (u32 k = 0; k <= mine; k += 1) {
        copy_async_wait(DEPTH - 2);
        if (k < mine) {
            MOMENTS
            from += size;
            if (from >= DEPTH * size) from = from - DEPTH * size;
        }
        if (k > 0) {
            MERGE
            unroll (part : PARTS) {
                u32 at = first + part * stride;
                f32 x[EACH];
                if (WHOLE || at < length) {
                    load(x, ring[0][part][into]);
                    unroll (e : EACH) x[e] = fma(fma(x[e], inverse, behind), w[part][e], b[part][e]);
                    if (WHOLE || at >= shift && at + EACH <= length) {
                        store(to[part * stride], x);
                    } else {
                        unroll (e : EACH) if (at + e >= shift && at + e < length) to[part * stride + e] = x[e];
                    }
                }
            }
            to += jump;
            BRING
        }
    }
    copy_async_wait(0);
});
static const char whole[] = "(part > 0 && part + 1 < PARTS)";
/* The next row's vectors, and where the one after it goes. What a vector has behind the row is zeros. */
static const char bring[] = VB_PTX_SOURCE({
    if (coming < mine) {
        unroll (part : PARTS) {
            if (part + 1 < PARTS) {
                copy_async(ring[0][part][into], in[part * stride], 16);
            } else {
                u32 at = first + part * stride;
                if (at < length)
                    copy_async(ring[0][part][into], in[part * stride], min(length - at, EACH) * (16 / EACH));
            }
        }
    }
    copy_async_commit();
    coming += 1;
    in += jump;
    into += size;
    if (into >= DEPTH * size) into = into - DEPTH * size;
});

/* How many elements a thread and its warp have, and each warp whose number is the thread's in its own. */
static const char count_elements[] = VB_PTX_SOURCE(
    u32 have = 0, others = 0;
    unroll (part : PARTS) {
        u32 at = first + part * stride, other = part * stride + lane % 32 * (32 * EACH);
        if (at < length) have += min(at + EACH, length) - max(at, shift);
        if (lane % 32 < WARPS && other < length) others += min(other + 32 * EACH, length) - max(other, shift);
    }
    f32 count = f32(have), of_thread = 0, of_warp = f32(have), of_record = f32(others);
    if (have > 0) of_thread = rcp(count);
    unroll (i : 5) of_warp += shuffle_xor(of_warp, 1 << i);
    f32 each_of_warp = rcp(max(of_warp, 1.0));
);
/* The mean of a warp's elements and the squares of distances from it, told to the block. A thread takes its elements
 * less its first one, so that what it subtracts of the squares is small (Chan et al. 1979, "Updating formulae"). */
static const char moments[] = VB_PTX_SOURCE({
    f32 base = 0, sum = 0, squares = 0, record[2];
    unroll (part : PARTS) {
        u32 at = first + part * stride;
        f32 x[EACH];
        if (part + 1 < PARTS || at < length) {
            load(x, ring[0][part][from]);
            if (part == 0) base = x[EACH - 1];
            unroll (e : EACH) x[e] = x[e] - base;
            if (WHOLE == 0) {
                if (at < shift || at + EACH > length)
                    unroll (e : EACH) if (at + e < shift || at + e >= length) x[e] = 0;
            }
            unroll (e : EACH) {
                sum += x[e];
                squares = fma(x[e], x[e], squares);
            }
        }
    }
    f32 average = sum * of_thread;
    squares = squares - sum * average;
    f32 mean = fma(base, count, sum);
    unroll (i : 5) mean += shuffle_xor(mean, 1 << i);
    mean = mean * each_of_warp;
    f32 distance = base - mean + average;
    squares = fma(distance * distance, count, squares);
    unroll (i : 5) squares += shuffle_xor(squares, 1 << i);
    record[0] = mean;
    record[1] = squares;
    if (lane % 32 == 0) {
        store(records[k % SLOTS][lane / 32], record);
        barrier_arrive(told[k % SLOTS]);
    }
});
static const char merge[] = VB_PTX_SOURCE(
    f32 read[2] = 0;
    barrier_wait(told[(k - 1) % SLOTS], (k - 1) / SLOTS & 1);
    if (lane % 32 < WARPS) load(read, records[(k - 1) % SLOTS][lane % 32]);
    f32 of_row = read[0] * of_record;
    unroll (i : 5) of_row += shuffle_xor(of_row, 1 << i);
    of_row = of_row * share;
    f32 apart = read[0] - of_row, spread = fma(apart * apart, of_record, read[1]);
    unroll (i : 5) spread += shuffle_xor(spread, 1 << i);
    f32 inverse = rsqrt(fma(spread, share, eps)), behind = 0.0 - of_row * inverse;
);

typedef struct plan { int64_t parts, lanes, depth, together; } plan;

/* Blocks that a multiprocessor holds of threads with so many vectors each. */
static int64_t together_of(const plan *p, const vb_jit_device *device) {
    enum { REGISTERS = 65536, THREADS = 2048, VECTOR = 16, OF_BLOCK = 1 << 10, OF_PART = 22, OTHERS = 31 };
    const int64_t registers = (OF_PART * p->parts + OTHERS + 7) / 8 * 8;
    const int64_t sums = SLOTS * (p->lanes / 32 + 1) * 8 + VECTOR;
    const int64_t most[] = {REGISTERS / (p->lanes * registers), THREADS / p->lanes,
        device->shared_bytes / (p->depth * p->parts * p->lanes * VECTOR + sums + OF_BLOCK)};
    int64_t least = most[0];
    for (int i = 1; i < 3; i++) least = most[i] < least ? most[i] : least;
    return least;
}

/* Two or three vectors a thread where these leave a multiprocessor three blocks, else the fewest that leave it two,
 * else four. Times of an H200 chose them (docs/experiments/2026-11-28-ptx-ahead.md). */
static plan plan_of(int64_t cols, const vb_jit_device *device) {
    enum { EACH = 8, WARP = 32, FEW = 3, MOST = 6, ALONE = 4 };
    const int64_t vectors = (cols + 2 * EACH - 2) / EACH; /* of the row that begins farthest behind one */
    for (int64_t wanted = 3; wanted >= 1; wanted--) {
        for (int64_t parts = 2; parts <= (wanted == 3 ? FEW : MOST); parts++) {
            plan p = {.parts = wanted > 1 ? parts : ALONE, .depth = wanted > 1 ? 3 : 4};
            p.lanes = (vectors + p.parts * WARP - 1) / (p.parts * WARP) * WARP;
            p.together = together_of(&p, device);
            const bool there = (p.parts - 1) * p.lanes * EACH <= cols; /* all vectors but a thread's last */
            if (there && p.together >= wanted) return p;
        }
    }
    return (plan){0};
}

bool vb_jit_norm_ahead(vb_status *status, const char *name, void *out, const void *in, const float *weight,
    const float *bias, vb_dtype type, int64_t rows, int64_t cols, float eps, vb_stream *stream) {
    enum { EACH = 8, LEAST = 2049, MOST = 13312, ROWS = 4 }; /* columns; rows of a block */
    const vb_jit_device *device = vb_jit_of(stream);
    const bool aligned = ((uintptr_t)out | (uintptr_t)in) % 16 == 0;
    if (device->target < 90 || type == VB_F32 || !weight || !bias || !aligned || cols % EACH == 0 || cols < LEAST ||
        cols > MOST || rows > INT32_MAX)
        return false;
    const plan p = plan_of(cols, device);
    int64_t apart = EACH; /* so many rows from each other rows begin equally far behind a vector */
    while (cols * (apart / 2) % EACH == 0) apart /= 2;
    const int64_t room = device->multiprocessors * p.together, blocks = room < apart ? apart : room / apart * apart;
    if (room == 0 || rows < blocks || rows < ROWS * room) return false;
    uint32_t count = (uint32_t)rows, step = (uint32_t)blocks;
    float share = 1.0f / (float)cols;
    const vb_jit_filling f = {.source = ahead, .type = vb_jit_type(type),
        .constants = {{"LANES", p.lanes}, {"WARPS", p.lanes / 32}, {"EACH", EACH}, {"PARTS", p.parts},
                      {"DEPTH", p.depth}, {"SLOTS", SLOTS}, {"LEAST_BLOCKS", p.together}},
        .texts = {{"WHOLE", whole}, {"BRING", bring}, {"COUNT", count_elements}, {"MOMENTS", moments},
                  {"MERGE", merge}}};
    *status = vb_jit_launch(stream, name, &f, blocks, 1, 1, (int)p.lanes,
                            VB_JIT_PARAMETERS(&out, &in, &weight, &bias, &cols, &count, &step, &eps, &share));
    return true;
}
