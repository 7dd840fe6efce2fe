/* ptx_ahead.c: norms by blocks that stay, for GPUs of 9.0 and newer: layer norms of 16-bit rows that are no whole
 * number of vectors, or of which other kernels leave threads idle, and long rows of both norms. A thread copies vectors
 * that it computes into shared memory, DEPTH rows ahead, so that no other thread waits for them. It keeps weight and
 * bias of its columns in registers for all rows of its block, which begin equally far behind a vector. A row is summed
 * before the row ahead of it is written: until its sums are wanted, all warps have told them. The BLOCKS blocks of a
 * cluster share a long row, whose weight and bias one multiprocessor could not keep. */
#include "ptx_rows.h"

#include <math.h>

/* Of sums: a warp that tells those of row k has heard row k - 2, so that all have read those of row k - 4. */
enum { SLOTS = 4 };

/* Vector number (part * BLOCKS + rank) * LANES + lane of a row is a thread's. In the parts that are WHOLE no vector is
 * asked for. */
static const char ahead[] = VB_PTX_SOURCE(
kernel ENTRY(TYPE *output, TYPE *input, f32 *weight, f32 *bias, u64 cols, u32 rows, u32 step, f32 eps, f32 share)
    threads(LANES, LEAST_BLOCKS) CLUSTER {
    start_next();
    wait_for_previous();
    const stride = BLOCKS * LANES * EACH;
    const size = PARTS * LANES * EACH;
    shared TYPE ring[DEPTH][PARTS][LANES * EACH];
    shared f32 records[SLOTS][RECORDS][2];
    shared u64 told[SLOTS];
    u32 lane = thread.x, rank = 0, row = block.x;
    if (BLOCKS > 1) {
        rank = cluster_rank();
        row = block.x / BLOCKS;
    }
    if (lane == 0) {
        unroll (s : SLOTS) {
            barrier_init(told[s], BLOCKS > 1 ? 1 : LANES);
            if (BLOCKS > 1) barrier_expect(told[s], RECORDS * 8);
        }
    }
    if (BLOCKS > 1) cluster_barrier();
    else barrier();
    u64 start = u64(row) * cols;
    u32 shift = 0;
    if (SHIFTED) shift = u32(start) % EACH;
    u32 length = u32(cols) + shift, first = (rank * LANES + lane) * EACH;
    TYPE *in = input;
    in += start - shift + first;
    TYPE *to = output;
    to += start - shift + first;
    u64 jump = u64(step) * cols;
    u32 mine = (rows - row + step - 1) / step, coming = 0, into = lane * EACH;
    unroll (d : DEPTH) BRING
    into = lane * EACH;
    u32 from = into;
    KEEP_WEIGHT
    KEEP_BIAS
    COUNT
    for (u32 k = 0; k <= mine; k += 1) {
        copy_async_wait(DEPTH - 2);
        if (k < mine) {
            SUMS
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
                    unroll (e : EACH) x[e] = RESULT;
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
    if (BLOCKS > 1) cluster_barrier();
});
static const char whole[] = "(part >= SHIFTED && part + 1 < PARTS)";
/* A parameter of a thread's columns. What a vector has outside of the row meets any number. */
#define KEEP_WHOLE(w, p) VB_PTX_SOURCE( \
    f32 w[PARTS][EACH]; \
    unroll (part : PARTS) unroll (q : EACH / 4) { \
        f32 v[4]; \
        u32 at = min(first + (part * stride + q * 4), u32(cols) - 4); \
        load_fixed(v, p[at]); \
        unroll (e : 4) w[part][q * 4 + e] = v[e]; \
    } \
)
#define KEEP_SHIFTED(w, p) VB_PTX_SOURCE( \
    f32 w[PARTS][EACH]; \
    unroll (by : 4) if ((0 - shift & 3) == by) { \
        unroll (part : PARTS) { \
            f32 v[EACH / 4 + 1][4]; \
            unroll (q : EACH / 4 + 1) { \
                u32 at = min(first + (part * stride + q * 4) - shift - by, (u32(cols) - 1) / 4 * 4); \
                load_fixed(v[q], p[at]); \
            } \
            unroll (e : EACH) w[part][e] = v[(e + by) / 4][(e + by) % 4]; \
        } \
    } \
)
static const char weight_whole[] = KEEP_WHOLE(w, weight), weight_shifted[] = KEEP_SHIFTED(w, weight);
static const char bias_whole[] = KEEP_WHOLE(b, bias), bias_shifted[] = KEEP_SHIFTED(b, bias);
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
    u32 have = 0;
    unroll (part : PARTS) {
        u32 at = first + part * stride;
        if (at < length) have += min(at + EACH, length) - max(at, shift);
    }
    f32 count = f32(have), of_thread = 0, of_warp = f32(have);
    if (have > 0) of_thread = rcp(count);
    unroll (i : 5) of_warp += shuffle_xor(of_warp, 1 << i);
    f32 each_of_warp = rcp(max(of_warp, 1.0));
    f32 of_record[READS];
    unroll (p : READS) {
        u32 number = p * 32 + lane % 32, counted = 0;
        unroll (part : PARTS) {
            u32 at = part * stride + number * (32 * EACH);
            if (number < RECORDS && at < length) counted += min(at + 32 * EACH, length) - max(at, shift);
        }
        of_record[p] = f32(counted);
    }
);
/* A warp's record of row k, told to all blocks of the cluster. Every lane arrives where there is one block: it has read
 * the record of row k - 2, which that of row k + 2 is written over. */
static const char tell[] = VB_PTX_SOURCE(
    u32 place = k % SLOTS;
    if (BLOCKS > 1) {
        if (lane % 32 < BLOCKS)
            store_in_rank(records[place][rank * (LANES / 32) + lane / 32], record, told[place], lane % 32);
    } else {
        if (lane % 32 == 0) store(records[place][lane / 32], record);
        barrier_arrive(told[place]);
    }
);
/* All warps' records of row k - 1. */
static const char hear[] = VB_PTX_SOURCE(
    f32 read[READS][2] = 0;
    u32 known = (k - 1) % SLOTS;
    barrier_wait(told[known], (k - 1) / SLOTS & 1);
    if (BLOCKS > 1 && lane == 0) barrier_expect(told[known], RECORDS * 8);
    unroll (p : READS) {
        u32 number = p * 32 + lane % 32;
        if (number < RECORDS) load(read[p], records[known][number]);
    }
);
/* A thread's vector of a part, of which elements outside of the row are 0. */
static const char take[] = VB_PTX_SOURCE(
    load(x, ring[0][part][from]);
    FIRST
    if (WHOLE == 0) {
        if (at < shift || at + EACH > length)
            unroll (e : EACH) if (at + e < shift || at + e >= length) x[e] = 0;
    }
);

/* ---- layer norm: a record is the mean of a warp's elements and the squares of distances from it ------------------ */

/* A thread takes its elements less its first one, so that what it subtracts of the squares is small (Chan et al. 1979,
 * "Updating formulae"). */
static const char less_first[] = VB_PTX_SOURCE(
    if (part == 0) base = x[EACH - 1];
    unroll (e : EACH) x[e] = x[e] - base;
);
static const char moments[] = VB_PTX_SOURCE({
    f32 base = 0, sum = 0, squares = 0, record[2];
    unroll (part : PARTS) {
        u32 at = first + part * stride;
        f32 x[EACH];
        if (part + 1 < PARTS || at < length) {
            TAKE
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
    TELL
});
static const char merge_moments[] = VB_PTX_SOURCE(
    HEAR
    f32 of_row = 0, spread = 0;
    unroll (p : READS) of_row = fma(read[p][0], of_record[p], of_row);
    unroll (i : 5) of_row += shuffle_xor(of_row, 1 << i);
    of_row = of_row * share;
    unroll (p : READS) {
        f32 apart = read[p][0] - of_row;
        spread += fma(apart * apart, of_record[p], read[p][1]);
    }
    unroll (i : 5) spread += shuffle_xor(spread, 1 << i);
    f32 inverse = rsqrt(fma(spread, share, eps)), behind = 0.0 - of_row * inverse;
);
static const char normed[] = "fma(fma(x[e], inverse, behind), w[part][e], b[part][e])";

/* ---- RMS norm: a record is the squares of a warp's elements ------------------------------------------------------ */

static const char squares[] = VB_PTX_SOURCE({
    f32 sum = 0, record[2] = 0;
    unroll (part : PARTS) {
        u32 at = first + part * stride;
        f32 x[EACH];
        if (part + 1 < PARTS || at < length) {
            TAKE
            unroll (e : EACH) sum = fma(x[e], x[e], sum);
        }
    }
    unroll (i : 5) sum += shuffle_xor(sum, 1 << i);
    record[0] = sum;
    TELL
});
static const char merge_squares[] = VB_PTX_SOURCE(
    HEAR
    f32 sum = 0;
    unroll (p : READS) sum += read[p][0];
    unroll (i : 5) sum += shuffle_xor(sum, 1 << i);
    f32 inverse = rsqrt(fma(sum, share, eps));
);
static const char scaled[] = "x[e] * inverse * w[part][e]";

/* What an operation fills the kernel with: the layer norm, else the RMS norm. */
static const struct operation {
    const char *first, *count, *sums, *merge, *result;
} operations[] = {
    [true] = {less_first, count_elements, moments, merge_moments, normed},
    [false] = {"", "", squares, merge_squares, scaled}};

typedef struct plan { int64_t blocks, parts, lanes, depth, together; } plan;

enum { WARP = 32, VECTOR = 16, REGISTERS = 65536, THREADS = 2048 };

/* Bytes of shared memory of a block and of its barriers, with what the GPU keeps for itself. */
static int64_t shared_of(const plan *p) {
    enum { OF_BLOCK = 1 << 10 };
    return p->depth * p->parts * p->lanes * VECTOR + SLOTS * (p->blocks * p->lanes / WARP + 1) * 8 + VECTOR + OF_BLOCK;
}

/* Blocks that a multiprocessor holds of threads with so many vectors each. */
static int64_t together_of(const plan *p, const vb_jit_device *device) {
    enum { OF_PART = 20, OTHERS = 40, FIVE = 5, OF_FIVE = 128 };
    const int64_t registers = p->parts == FIVE ? OF_FIVE : OF_PART * p->parts + OTHERS;
    const int64_t most[] = {REGISTERS / (p->lanes * registers), THREADS / p->lanes,
        device->shared_bytes / shared_of(p)};
    int64_t least = most[0];
    for (int i = 1; i < 3; i++) least = most[i] < least ? most[i] : least;
    return least;
}

/* A warp where it holds the row; else three vectors a thread where these leave a multiprocessor four blocks, two or
 * three where they leave it three, the fewest that leave it two, or four. Times of an H200 chose them
 * (docs/experiments/2026-11-28-ptx-ahead.md, 2026-11-28-ptx-short.md). */
static plan plan_of(int64_t cols, int64_t each, const vb_jit_device *device) {
    enum { OF_WARP = 12 };
    static const struct { int64_t wanted, least, most, depth; } all[] = {
        {4, 3, 3, 3}, {3, 2, 3, 3}, {2, 2, 6, 3}, {1, 4, 4, 4}};
    const int64_t vectors = (cols + 2 * each - 2) / each; /* of the row that begins farthest behind one */
    if (vectors <= WARP * 7) {
        const int64_t parts = (vectors + WARP - 1) / WARP;
        return (plan){.blocks = 1, .parts = parts, .lanes = WARP, .depth = 3, .together = OF_WARP};
    }
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        for (int64_t parts = all[i].least; parts <= all[i].most; parts++) {
            plan p = {.blocks = 1, .parts = parts, .depth = all[i].depth};
            p.lanes = (vectors + p.parts * WARP - 1) / (p.parts * WARP) * WARP;
            p.together = together_of(&p, device);
            const bool there = (p.parts - 1) * p.lanes * each <= cols; /* all vectors but a thread's last */
            if (there && p.together >= all[i].wanted) return p;
        }
    return (plan){0};
}

/* So many rows from each other rows begin equally far behind a vector. */
static int64_t rows_apart(int64_t cols, int64_t each) {
    int64_t apart = each;
    while (apart > 1 && cols * (apart / 2) % each == 0) apart /= 2;
    return apart;
}

/* How much of a GPU works where clusters share rows by a plan: the part of its multiprocessors that have a block, of
 * all rounds of clusters that have a row, and of the threads that have vectors. A GPU places clusters of more than two
 * in groups of some 16 multiprocessors. The factors are a fit to times of an H200: blocks that share a multiprocessor
 * wait at different times (docs/experiments/2026-11-28-ptx-long.md). */
static double worth(const plan *p, int64_t rows, int64_t vectors, int64_t apart, int parameters,
    int64_t multiprocessors) {
    enum { OF_GROUP = 16, MOST_TOGETHER = 4, FEW_PARTS = 3 };
    static const double placed = 0.94, of_together[MOST_TOGETHER + 1] = {0, 0.85, 1, 1.03, 1}, pair = 0.9, few = 0.9;
    int64_t held = multiprocessors / 2 * p->together;
    if (p->blocks > 2) {
        const int64_t of_group = OF_GROUP * p->together / p->blocks;
        held = (int64_t)((double)(of_group * multiprocessors) * placed / OF_GROUP);
    }
    if (held > rows) held = rows;
    held = held < apart ? apart : held / apart * apart;
    const double used = (double)(held * p->blocks) / (double)(p->together * multiprocessors);
    const double last = (double)rows / (double)((rows + held - 1) / held * held);
    const double full = (double)vectors / (double)(p->blocks * p->parts * p->lanes);
    return used * last * sqrt(full) * of_together[p->together] * (p->blocks == 2 ? pair : 1) *
           (parameters > 1 && p->parts <= FEW_PARTS ? few : 1);
}

/* How a cluster shares a long row. */
static plan shared_plan(int64_t rows, int64_t cols, int64_t each, int parameters, const vb_jit_device *device) {
    enum { MOST_BLOCKS = 8, MOST_PARTS = 5, MOST_TOGETHER = 4, DEPTH = 4, LEAST_THREADS = 256, MOST_THREADS = 1024,
        OTHERS = 56 };
    const int64_t vectors = (cols + (cols % each ? 2 * each - 2 : 0)) / each, apart = rows_apart(cols, each);
    const int64_t of_part = each * parameters; /* registers */
    plan best = {0};
    double most = 0;
    for (int64_t blocks = 2; blocks <= MOST_BLOCKS; blocks++)
        for (int64_t together = 1; together <= MOST_TOGETHER; together++)
            for (int64_t parts = 2; parts <= MOST_PARTS; parts++) {
                plan p = {.blocks = blocks, .parts = parts, .depth = DEPTH, .together = together};
                p.lanes = (vectors + blocks * parts * WARP - 1) / (blocks * parts * WARP) * WARP;
                const int64_t threads = p.lanes * together;
                if ((parts - 1) * blocks * p.lanes * each > cols || threads * (of_part * parts + OTHERS) > REGISTERS ||
                    threads < LEAST_THREADS || threads > MOST_THREADS ||
                    together * shared_of(&p) > device->shared_bytes)
                    continue;
                const double now = worth(&p, rows, vectors, apart, parameters, device->multiprocessors);
                if (now > most) most = now, best = p;
            }
    return best;
}

bool vb_jit_norm_ahead(vb_status *status, const char *name, bool mean, void *out, const void *in,
    const float *weight, const float *bias, vb_dtype type, int64_t rows, int64_t cols, float eps, vb_stream *stream) {
    /* Columns of layer norms, and what both norms have at least where clusters share rows; rows of a block, and of a
     * cluster; the driver that knows clusters. */
    enum { LEAST = 2049, MOST = 11699, LEAST_OF_WARP = 1025, MOST_OF_WARP = 1330, LEAST_WHOLE = 3073, MOST_WHOLE = 4300,
        LONG_WHOLE = 20001, LONG_OTHER = 20000, LONG_OTHER_WHOLE = 28001, LONG_F32 = 20000, LONG_OTHER_F32 = 50000,
        LONGEST = 1 << 17, ROWS = 4, ROWS_OF_CLUSTER = 2, CLUSTERS = 12010 };
    const struct operation *o = operations + mean;
    vb_jit_device *device = vb_jit_of(stream);
    const bool aligned = ((uintptr_t)out | (uintptr_t)in | (uintptr_t)weight | (uintptr_t)bias) % 16 == 0;
    const int64_t each = VECTOR / vb_dtype_block_bytes(type);
    const bool shifted = cols % each != 0, of_warp = shifted && cols >= LEAST_OF_WARP && cols <= MOST_OF_WARP;
    const bool middle = mean && type != VB_F32 && (of_warp || (shifted ? cols >= LEAST && cols <= MOST
        : cols >= LEAST_WHOLE && cols <= MOST_WHOLE));
    const int64_t least_long = type == VB_F32 ? (mean ? LONG_F32 : LONG_OTHER_F32)
        : mean ? (shifted ? MOST + 1 : LONG_WHOLE) : (shifted ? LONG_OTHER : LONG_OTHER_WHOLE);
    const bool longer = cols >= least_long && cols <= LONGEST && device->driver_version >= CLUSTERS;
    if (device->target < 90 || !weight || (mean && !bias) || !aligned || rows > INT32_MAX || (!middle && !longer))
        return false;
    const plan p = longer ? shared_plan(rows, cols, each, 1 + mean, device) : plan_of(cols, each, device);
    if (p.together == 0) return false;
    float share = 1.0f / (float)cols;
    const int64_t records = p.blocks * p.lanes / WARP, apart = rows_apart(cols, each);
    const vb_jit_filling f = {.source = ahead, .type = vb_jit_type(type),
        .constants = {{"LANES", p.lanes}, {"BLOCKS", p.blocks}, {"RECORDS", records},
                      {"READS", (records + WARP - 1) / WARP}, {"EACH", each}, {"PARTS", p.parts}, {"SHIFTED", shifted},
                      {"DEPTH", p.depth}, {"SLOTS", SLOTS}, {"LEAST_BLOCKS", p.together}},
        .texts = {{"CLUSTER", longer ? "cluster(BLOCKS)" : ""},
                  {"KEEP_WEIGHT", shifted ? weight_shifted : weight_whole},
                  {"KEEP_BIAS", !mean ? "" : shifted ? bias_shifted : bias_whole}, {"WHOLE", whole},
                  {"BRING", bring}, {"COUNT", o->count}, {"SUMS", o->sums}, {"MERGE", o->merge}, {"TAKE", take},
                  {"FIRST", o->first}, {"TELL", tell}, {"HEAR", hear}, {"RESULT", o->result}}};
    int64_t groups = device->multiprocessors * p.together, least = ROWS * groups;
    if (longer) {
        groups = vb_jit_clusters(&f, name, p.blocks, (int)p.lanes, device) / apart * apart;
        least = ROWS_OF_CLUSTER * groups;
    } else {
        groups = groups < apart ? apart : groups / apart * apart;
    }
    if (groups == 0 || rows < groups || rows < least) return false;
    uint32_t count = (uint32_t)rows, step = (uint32_t)groups;
    *status = vb_jit_launch(stream, name, &f, groups * p.blocks, 1, 1, (int)p.lanes,
                            VB_JIT_PARAMETERS(&out, &in, &weight, &bias, &cols, &count, &step, &eps, &share));
    return true;
}
