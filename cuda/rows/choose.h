/* choose.h: which kernel computes an operation of elements or rows. */
#ifndef VB_CUDA_ROWS_CHOOSE_H
#define VB_CUDA_ROWS_CHOOSE_H

#include "runtime/chooser.h"

#define ROWS_KERNELS(X)                                                                                                \
    X(ROWS_MAP_VECTORS, "map_vectors", "rows/map.cuh", "a function of each element, aligned to 16 bytes")              \
    X(ROWS_MAP_ELEMENTS, "map_elements", "rows/map.cuh", "the same, not aligned")                                      \
    X(ROWS_COPY, "copy", "rows/elementwise.cu", "copy")                                                                \
    X(ROWS_INCREMENT, "increment", "rows/elementwise.cu", "increment_i32")                                             \
    X(ROWS_CONVERT, "convert", "rows/convert.cu", "convert, of any type")                                              \
    X(ROWS_MUL_VECTORS, "mul_rows_vectors", "rows/columns.cu", "mul_rows, rows of whole vectors of 16 bytes")          \
    X(ROWS_MUL_ELEMENTS, "mul_rows_elements", "rows/columns.cu", "mul_rows of any other row")                          \
    X(ROWS_COLUMNS_VECTORS, "copy_columns_vectors", "rows/columns.cu", "copy_columns, of whole vectors")               \
    X(ROWS_COLUMNS_ELEMENTS, "copy_columns_elements", "rows/columns.cu", "copy_columns of any others")                 \
    X(ROWS_NARROW, "rows_narrow", "rows/{softmax,norm,layer_norm}.cu",                                                 \
      "softmax and norms of many rows of up to 128 whole vectors: several rows a warp")                                \
    X(ROWS_NARROW_WORDS, "rows_narrow_words", "rows/softmax.cu",                                                       \
      "softmax of many rows of 9 to 1024 words of 4 bytes that begin anywhere: the same by words")                    \
    X(ROWS_REGISTERS, "rows_registers", "rows/{softmax,norm,layer_norm}.cu",                                           \
      "softmax, norms of rows of whole vectors, in a block's or cluster's registers")                                  \
    X(ROWS_CHUNKED, "rows_chunked", "rows/{softmax,norm,layer_norm}.cu",                                               \
      "few rows of more than 16384 elements: cut into chunks, two kernels")                                            \
    X(ROWS_STAGED, "rows_staged", "rows/staged.cuh",                                                                   \
      "softmax and norms of any rows that fit shared memory, whose block has one or several there")                    \
    X(ROWS_AHEAD, "rows_ahead", "rows/ahead.cuh",                                                                      \
      "norms of many rows of 16 bits that are no whole vectors: blocks stay, and have the next rows on their way")     \
    X(ROWS_LOOPED, "rows_looped", "rows/{softmax,norm,layer_norm}.cu",                                                 \
      "any other row: a block reads it twice")                                                                         \
    X(ROWS_ARGMAX, "argmax", "rows/topk.cu", "argmax, top_k of one")                                                   \
    X(ROWS_TOP_K_NARROW, "top_k_narrow", "rows/topk.cu", "top_k of rows of up to 32 columns: a warp a row")            \
    X(ROWS_TOP_K, "top_k", "rows/topk.cu", "top_k up to 1024")                                                         \
    X(ROWS_EMBEDDING_PACKED, "embedding_packed", "rows/embedding.cu", "rows of a packed table")                        \
    X(ROWS_EMBEDDING_ODD, "embedding_odd", "rows/embedding.cu", "floats, rows that are no multiple of 8")              \
    X(ROWS_EMBEDDING_STORED, "embedding_stored", "rows/embedding.cu", "rows of any other stored table")                \
    X(ROWS_ROPE_VECTORS, "rope_vectors", "rows/rope.cu", "rope of whole vectors of 16 bytes")                          \
    X(ROWS_ROPE_ELEMENTS, "rope_elements", "rows/rope.cu", "rope of any other row")                                    \
    X(ROWS_KV_WRITE_VECTORS, "kv_write_vectors", "rows/kv.cu", "F32, F16; heads of a multiple of 4")                   \
    X(ROWS_KV_WRITE_ELEMENTS, "kv_write_elements", "rows/kv.cu", "F32, F16; any other head")                           \
    X(ROWS_KV_WRITE_Q8, "kv_write_q8", "rows/kv.cu", "Q8_0")                                                           \
    X(ROWS_ROPE_KV_WRITE_VECTORS, "rope_kv_write_vectors", "rows/rope_kv_write.cu",                                    \
      "rope_kv_write to F32, F16, BF16, whole heads rotated, whole vectors")                                           \
    X(ROWS_ROPE_KV_WRITE_ELEMENTS, "rope_kv_write_elements", "rows/rope_kv_write.cu",                                  \
      "the same, not of vectors; heads are not normed")
VB_KERNEL_FAMILY(rows, ROWS, ROWS_KERNELS)

static inline int rows_wide(vb_dtype type) { return type == VB_F32 ? 4 : 8; } /* elements of 16 bytes */

/* ---- elements --------------------------------------------------------------------------------------------------- */

/* No memory holds so many elements that a grid would not. */
static inline rows_kernel choose_map(int aligned) { return aligned ? ROWS_MAP_VECTORS : ROWS_MAP_ELEMENTS; }
static inline rows_kernel choose_mul_rows(vb_dtype type, int aligned, int64_t cols) {
    return aligned && cols % rows_wide(type) == 0 ? ROWS_MUL_VECTORS : ROWS_MUL_ELEMENTS;
}
/* Bytes of a row of each matrix, and of the part that is copied. */
static inline rows_kernel choose_copy_columns(int aligned, int64_t out_stride, int64_t in_stride, int64_t bytes) {
    return aligned && vb_whole16(out_stride) && vb_whole16(in_stride) && vb_whole16(bytes) ? ROWS_COLUMNS_VECTORS
                                                                                           : ROWS_COLUMNS_ELEMENTS;
}
static inline rows_kernel choose_top_k(int64_t cols, int64_t k) {
    return k == 1 ? ROWS_ARGMAX : cols <= 32 ? ROWS_TOP_K_NARROW : k <= 1024 ? ROWS_TOP_K : ROWS_NONE;
}
static inline rows_kernel choose_embedding(const vb_weight *table) {
    if (table->layout == VB_PACKED) return ROWS_EMBEDDING_PACKED;
    const int floats = table->type == VB_F32 || table->type == VB_F16 || table->type == VB_BF16;
    return floats && table->cols % 8 != 0 ? ROWS_EMBEDDING_ODD : ROWS_EMBEDDING_STORED;
}

/* ---- softmax and norms ------------------------------------------------------------------------------------------ */

enum {
    ROWS_MOST_THREADS = 1024,
    ROWS_LOOPED_THREADS = 512,
    ROWS_ALONE_THREADS = 640, /* registers: a block that is no faster in several smaller ones */
    ROWS_CROWD_THREADS = 448, /* and blocks that a multiprocessor has several of */
    ROWS_MOST_CLUSTER = 16,
    ROWS_CHUNK = 2048,
    ROWS_LEAST_CHUNKED = 16384,
    ROWS_NARROW_THREADS = 256,
    ROWS_NARROW_BLOCKS = 8,   /* of such blocks that a multiprocessor holds */
    ROWS_STAGED_THREADS = 128 /* of a block with several rows */
};

typedef struct rows_plan {
    rows_kernel kernel;
    int per_thread; /* vectors: registers 1, 2, 4; ahead 3 to 5; narrow 1 or 4 of a lane, or 4 or 8 words of 4 bytes */
    int threads;    /* of a block */
    int cluster;    /* blocks that share a row */
    int lanes;      /* narrow, staged: of a row, a power of two up to 32; or staged: all of the block's threads */
    int rows;       /* staged: of a block */
    int64_t chunks; /* of a row; ahead: blocks or clusters that stay */
    int width;      /* narrow, registers: elements of a vector */
} rows_plan;

/* Elements of the vectors that norms have: of 16 bytes, or of 8 where rows of 16 bits are whole ones. */
static inline int rows_norm_width(vb_dtype type, int64_t cols) {
    return type != VB_F32 && cols % 8 == 4 ? 4 : rows_wide(type);
}

/* Shared memory of a block with so many rows. */
static inline int64_t rows_staged_bytes(int64_t rows, int64_t cols, int element_bytes) {
    return vb_ceil_div(rows * cols * element_bytes, 16) * 16 + 16;
}
/* What choose_rows is asked for. Norms of a sum are held in registers or read twice; softmax takes longer to compute.
 */
typedef enum { ROWS_SOFTMAX, ROWS_NORM, ROWS_NORM_OF_SUM } rows_operation;

/* Threads of a block that has a long row by itself: of few rows enough to fill the GPU, of many 8 to 32 elements each.
 * Of few rows of softmax a power of two, half as many as fill the GPU: 16 elements each, or more than 4. */
static inline int rows_staged_threads(vb_dtype type, int64_t rows, int64_t cols, rows_operation operation,
                                      const vb_gpu *gpu) {
    if (operation == ROWS_SOFTMAX && cols > 1024 && rows <= 32 * (int64_t)gpu->multiprocessors) {
        const double half = 512.0 * gpu->multiprocessors / (double)rows, room = half < cols / 4.0 ? half : cols / 4.0,
                     wanted = cols / 16.0 > room ? cols / 16.0 : room;
        int threads = 64;
        while (threads < (rows <= 3 * gpu->multiprocessors ? ROWS_MOST_THREADS : ROWS_MOST_THREADS / 2) &&
               1.42 * threads < wanted)
            threads *= 2;
        return threads;
    }
    const int64_t sms = gpu->multiprocessors, most = rows <= 3 * sms ? ROWS_MOST_THREADS : ROWS_MOST_THREADS / 2,
                  each = operation == ROWS_SOFTMAX ? rows <= 32 * sms ? 16 : 32
                         : rows <= 48 * sms        ? 8
                         : type == VB_F32          ? 16
                                                   : 32,
                  room = ROWS_MOST_THREADS * sms / rows, of_few = room < cols / 2 ? room : cols / 2,
                  threads = cols / each > of_few ? cols / each : of_few;
    return (int)(threads < 64 ? 64 : threads > most ? most : vb_ceil_div(threads, 32) * 32);
}
/* A row a block where rows are few or long, else a row for each group of lanes, 32 or 48 elements a lane, or 4 where
 * rows are too few to fill the GPU so, and of norms 8. Rows that do not fit leave ROWS_NONE, and many long rows of
 * which a multiprocessor does not hold `least`. */
static inline rows_plan choose_rows_staged(vb_dtype type, int64_t rows, int64_t cols, rows_operation operation,
                                           int least, const vb_gpu *gpu) {
    const int bytes = type == VB_F32 ? 4 : 2;
    const int64_t sms = gpu->multiprocessors,
                  widest = operation == ROWS_SOFTMAX ? 1536 : type == VB_F32 ? 1024 : 1280;
    rows_plan plan = {ROWS_NONE, 1, ROWS_STAGED_THREADS, 1, 1, 1, 1, 0};
    if (rows <= sms || cols > widest || (cols > 1024 && rows <= 32 * sms) || (cols > 256 && rows <= 8 * sms)) {
        plan.threads = plan.lanes = rows_staged_threads(type, rows, cols, operation, gpu);
    } else {
        const int each = operation != ROWS_SOFTMAX && cols > 160 ? 8 : type == VB_F32 ? 32 : 48;
        while (plan.lanes < 32 && plan.lanes * (2 * rows * plan.lanes < ROWS_MOST_THREADS * sms ? 4 : each) < cols)
            plan.lanes *= 2;
        plan.rows = plan.threads / plan.lanes;
    }
    const int at_once = rows > sms && plan.lanes == plan.threads ? least : 1;
    if (cols > (1 << 20) ||
        at_once * (rows_staged_bytes(plan.rows, cols, bytes) + 1024) > gpu->shared_bytes + (at_once - 1) * 1024)
        return plan;
    if (vb_ceil_div(rows, plan.rows) <= INT32_MAX) plan.kernel = ROWS_STAGED;
    return plan;
}

/* Threads of a block that reads its row twice. */
static inline int rows_looped_threads(vb_dtype type, int64_t rows, int64_t cols, const vb_gpu *gpu) {
    if (cols <= (rows <= 4 * gpu->multiprocessors ? 4096 : type == VB_F32 ? 10240 : 20480))
        return ROWS_LOOPED_THREADS / 2;
    return cols <= 20480 || rows > gpu->multiprocessors ? ROWS_LOOPED_THREADS : ROWS_MOST_THREADS;
}
/* A block a row, which reads it twice. */
static inline rows_plan rows_looped(vb_dtype type, int64_t rows, int64_t cols, const vb_gpu *gpu) {
    const int threads = rows_looped_threads(type, rows, cols, gpu);
    const rows_plan plan = {ROWS_LOOPED, 1, threads, 1, 0, 1, vb_ceil_div(cols, ROWS_CHUNK), 0};
    return plan;
}
/* What takes the place of registers of more than 512 threads where rows are many: of most such kernels a multiprocessor
 * has one block, and waits while it computes (softmax of F16 has fewer registers). Softmax of BF16 stages its rows,
 * norms of 16 bits read them twice, and others have larger clusters of smaller blocks. */
static inline rows_plan choose_rows_together(rows_plan plan, vb_dtype type, int64_t rows, int64_t cols,
                                             rows_operation operation, const vb_gpu *gpu) {
    const int norm = operation != ROWS_SOFTMAX;
    const int64_t vectors = cols / plan.width;
    if (norm && type != VB_F32)
        return vb_has_clusters(gpu) && rows >= 8 * gpu->multiprocessors ? rows_looped(type, rows, cols, gpu) : plan;
    if (!norm && rows > 2 * gpu->multiprocessors && (type == VB_BF16 || (type == VB_F32 && plan.cluster > 1))) {
        const rows_plan staged = choose_rows_staged(type, rows, cols, operation, type == VB_BF16 ? 1 : 2, gpu);
        if (staged.kernel != ROWS_NONE) return staged;
    }
    if (!vb_has_clusters(gpu) || plan.threads <= ROWS_ALONE_THREADS) return plan;
    while (plan.cluster < ROWS_MOST_CLUSTER && plan.threads > ROWS_CROWD_THREADS) {
        plan.cluster *= 2;
        plan.threads = (int)vb_ceil_div(vb_ceil_div(vb_ceil_div(vectors, plan.cluster), plan.per_thread), 32) * 32;
    }
    return plan;
}
/* Few rows that are no whole vectors: a block reads each twice sooner than it has copied it. */
static inline int rows_loop_pays(vb_dtype type, int64_t rows, int64_t cols, int norm, const vb_gpu *gpu) {
    const int64_t sms = gpu->multiprocessors;
    if (cols <= (norm ? 2048 : 1024) || rows > 4 * sms) return 0;
    if (cols <= 4096 || (norm && cols <= 8192)) return 1;
    return norm || type != VB_F32 ? rows <= sms : rows <= 2 * sms && cols <= 8192;
}

/* block_vectors: which a block has before a cluster shares them, which takes time for each reduction. `width`: elements
 * of a vector. */
static inline rows_plan choose_rows(vb_dtype type, int64_t rows, int64_t cols, int aligned, int64_t block_vectors,
                                    rows_operation operation, int width, const vb_gpu *gpu) {
    const int norm = operation != ROWS_SOFTMAX, alone = operation == ROWS_NORM_OF_SUM;
    rows_plan plan = {ROWS_NONE, 1, ROWS_LOOPED_THREADS, 1, 0, 1, 0, width};
    const int sms = gpu->multiprocessors;
    const int64_t vectors = cols / width, most_part = 4 * ROWS_MOST_THREADS;
    int64_t part = vectors;
    plan.chunks = vb_ceil_div(cols, ROWS_CHUNK);
    if (vb_has_clusters(gpu)) {
        /* More blocks a row while they do not fill the GPU and have more vectors each. */
        while (plan.cluster < ROWS_MOST_CLUSTER &&
               (part > most_part || (part > block_vectors && rows * plan.cluster * 2 <= sms))) {
            plan.cluster *= 2;
            part = vb_ceil_div(vectors, plan.cluster);
        }
    }
    if (aligned && cols % width == 0 && part <= most_part && rows <= INT32_MAX / plan.cluster) {
        /* Few rows: latency counts, so many threads. Many rows: four loads under way in each of fewer threads. */
        const int few = rows * plan.cluster <= sms;
        while (plan.per_thread < 4 && part > (int64_t)plan.per_thread * (few ? ROWS_MOST_THREADS : 32))
            plan.per_thread *= 2;
        plan.threads = (int)vb_ceil_div(vb_ceil_div(part, plan.per_thread), 32) * 32;
        plan.kernel = ROWS_REGISTERS;
        if (few || alone || rows <= sms || plan.threads <= ROWS_MOST_THREADS / 2) return plan;
        return choose_rows_together(plan, type, rows, cols, operation, gpu);
    }
    plan.cluster = 1;
    /* Before Hopper more rows come here, namely those that clusters would hold: a row for each multiprocessor keeps it
     * busy. Two kernels over chunks take longer than rows on a third of the multiprocessors. */
    const int few = (norm || type == VB_F32 ? 3 : 5) * rows < sms,
              chunked = few ? cols > (8 * rows <= sms ? ROWS_LEAST_CHUNKED / 2 : ROWS_LEAST_CHUNKED)
                            : (norm || type == VB_F32) && cols > ROWS_LEAST_CHUNKED &&
                                  rows < (vb_has_clusters(gpu) ? 2 * sms : sms);
    const int short_few = !norm && cols <= ROWS_LEAST_CHUNKED / 2;
    if (!alone && (!few || short_few) && rows_loop_pays(type, rows, cols, norm, gpu))
        return rows_looped(type, rows, cols, gpu);
    if (!alone && (!chunked || !few)) {
        /* Of long rows a multiprocessor waits while its only block computes, and softmax of F32 loses by it what a
         * second reading costs. */
        const int least = norm ? 3 : type == VB_F32 ? 1 : 2;
        const rows_plan in_shared = choose_rows_staged(type, rows, cols, operation, least, gpu);
        if (in_shared.kernel != ROWS_NONE) return in_shared;
    }
    if (rows > INT32_MAX / (chunked ? plan.chunks : 1)) return plan;
    if (!chunked) return rows_looped(type, rows, cols, gpu);
    plan.kernel = ROWS_CHUNKED;
    return plan;
}

/* Several rows a warp, or one: rows of up to 128 whole vectors, if there are more than `least`. A lane has one vector
 * of rows of up to `most_alone`, else four. */
static inline int choose_rows_narrow(rows_plan *plan, int64_t rows, int64_t cols, int aligned, int64_t least,
                                     int most_alone, int width) {
    const int64_t vectors = cols / width;
    if (!aligned || cols % width != 0 || rows <= least || vectors > 32 * 4) return 0;
    const rows_plan narrow = {ROWS_NARROW, vectors > most_alone ? 4 : 1, ROWS_NARROW_THREADS, 1, 1, 1, 1, width};
    *plan = narrow;
    while (plan->lanes * plan->per_thread < vectors) plan->lanes *= 2;
    if (vb_ceil_div(rows, ROWS_NARROW_THREADS / plan->lanes) > INT32_MAX) plan->kernel = ROWS_NONE;
    return 1;
}

/* The same by words of 4 bytes, of which the first and the last of a row may be shared with its neighbours. Many long
 * rows, of which the GPU does not hold a quarter at once, take less time in shared memory, and so do many short ones of
 * 16 bits. Times of 458 random cases, each by every way: docs/experiments/2026-11-28-drawn-rows.md. */
static inline int choose_rows_narrow_words(rows_plan *plan, vb_dtype type, int64_t rows, int64_t cols,
                                           const vb_gpu *gpu) {
    const int64_t f32 = type == VB_F32, words = f32 ? cols : cols / 2 + 1, sms = gpu->multiprocessors,
                  held = ROWS_NARROW_BLOCKS * ROWS_NARROW_THREADS / 32 * sms;
    if (rows <= sms || words <= (f32 ? 16 : 8) || words > (f32 ? 1024 : 512)) return 0;
    if (words > 512 && rows <= 4 * sms) return 0;
    if (rows > 4 * held && (words > 128 || (!f32 && words <= 32))) return 0;
    const int twice = words > 64 && words <= 128 && rows > (f32 ? 2 * held : held / 2);
    const rows_plan narrow = {ROWS_NARROW_WORDS, twice ? 8 : 4, ROWS_NARROW_THREADS, 1, 1, 1, 1, 0};
    *plan = narrow;
    while (32 * plan->per_thread < words) plan->per_thread *= 2;
    while (plan->lanes * plan->per_thread < words) plan->lanes *= 2;
    return vb_ceil_div(rows, ROWS_NARROW_THREADS / plan->lanes) <= INT32_MAX;
}

/* What a multiprocessor has: blocks, registers of a thread for each of four parts of its warps, and shared
 * memory beside what a block may have. */
enum { ROWS_BLOCKS_HELD = 24, ROWS_REGISTERS_HELD = 512, ROWS_SHARED_BESIDE = 1024 };
/* Most registers of a thread of norm_ahead_kernel that has so many vectors of a row. */
#define ROWS_AHEAD_REGISTERS(parts, mean) (!(mean) ? 72 : (parts) == 3 ? 96 : 128)
#define ROWS_AHEAD_HELD(parts, mean) (4 * (ROWS_REGISTERS_HELD / ROWS_AHEAD_REGISTERS(parts, mean))) /* warps */
#define ROWS_AHEAD_DEPTH(parts) ((parts) < 4 ? 3 : 4) /* rows in shared memory */
enum { ROWS_AHEAD_LEAST_PARTS = 3, ROWS_AHEAD_MOST_PARTS = 5 };
enum { ROWS_AHEAD_WARPS = 64, ROWS_AHEAD_CLUSTER = 8, ROWS_AHEAD_STATIC = 2112 };

/* Blocks of such a plan that a multiprocessor holds. */
static inline int64_t rows_ahead_together(const rows_plan *plan, int mean, const vb_gpu *gpu) {
    const int parts = plan->per_thread;
    const int64_t of_block = (int64_t)ROWS_AHEAD_DEPTH(parts) * parts * plan->threads * 16 + ROWS_AHEAD_STATIC,
                  by_registers = ROWS_AHEAD_HELD(parts, mean) / (plan->threads / 32),
                  by_shared = (gpu->shared_bytes + ROWS_SHARED_BESIDE) / (of_block + ROWS_SHARED_BESIDE);
    const int64_t held = by_registers < by_shared ? by_registers : by_shared;
    return held < ROWS_BLOCKS_HELD ? held : (int64_t)ROWS_BLOCKS_HELD;
}
/* So many rows from each other rows begin equally far behind a vector. */
static inline int64_t rows_apart(int64_t cols, int64_t width) {
    int64_t apart = width;
    while (apart > 1 && cols * (apart / 2) % width == 0) apart /= 2;
    return apart;
}
/* OF_ROW: vectors that take a thread as long as the rest of a row.
 * Norms of many rows of 16 bits that are no whole vectors: of the plans the one by which most of the GPU works. Counted
 * are the multiprocessors that have a block, the rounds that have a row, and the threads that have vectors. */
static inline int choose_rows_ahead(rows_plan *plan, int64_t rows, int64_t cols, int mean, const vb_gpu *gpu) {
    enum { WIDTH = 8, LEAST = 513, MOST = 1 << 17, LONG = 6000, OF_ROW = 1 };
    const int64_t vectors = (cols + 2 * WIDTH - 2) / WIDTH, apart = rows_apart(cols, WIDTH); /* of the longest row */
    const int clusters = vb_has_clusters(gpu) && cols >= LONG ? ROWS_AHEAD_CLUSTER : 1;
    double most = 0;
    if (gpu->capability < 80 || cols < LEAST || cols > MOST || rows > INT32_MAX) return 0;
    for (int cluster = 1; cluster <= clusters; cluster++)
        for (int parts = ROWS_AHEAD_LEAST_PARTS; parts <= ROWS_AHEAD_MOST_PARTS; parts++) {
            const int64_t threads = vb_ceil_div(vectors, (int64_t)cluster * parts * 32) * 32;
            rows_plan p = {ROWS_AHEAD, parts, (int)threads, cluster, 0, 1, 0, WIDTH};
            /* every vector but a thread's last is there */
            if ((parts - 1) * cluster * threads * WIDTH > cols || cluster * threads > 32 * ROWS_AHEAD_WARPS ||
                threads > 32 * ROWS_AHEAD_HELD(parts, mean))
                continue;
            const int64_t together = rows_ahead_together(&p, mean, gpu);
            int64_t held = together * vb_clusters_at_once(cluster, gpu->multiprocessors);
            held = (held < rows ? held : rows) / apart * apart;
            if (held < 1 || rows < (cluster > 1 ? 2 : 4) * held) continue;
            p.chunks = held;
            const double used = (double)(held * cluster) / (double)(together * gpu->multiprocessors),
                         last = (double)rows / (double)(vb_ceil_div(rows, held) * held),
                         full = (double)vectors / (double)(cluster * (parts + OF_ROW) * threads),
                         now = used * last * full * (together > 1 ? 1 : 0.93);
            if (now > most) most = now, *plan = p;
        }
    return most > 0;
}

/* Norms of many rows of few bytes: a block of one such row is mostly beginning and end. */
static inline rows_plan choose_norm(vb_dtype type, int64_t rows, int64_t cols, int aligned, int64_t block_vectors,
                                    int mean, const vb_gpu *gpu) {
    const int width = rows_norm_width(type, cols);
    rows_plan plan;
    if (choose_rows_narrow(&plan, rows, cols, aligned, 4 * gpu->multiprocessors, 32, width)) return plan;
    if (type != VB_F32 && aligned && cols % width != 0 && choose_rows_ahead(&plan, rows, cols, mean, gpu)) return plan;
    return choose_rows(type, rows, cols, aligned, block_vectors, ROWS_NORM, width, gpu);
}
static inline rows_plan choose_softmax(vb_dtype type, int64_t rows, int64_t cols, int aligned, const vb_gpu *gpu) {
    rows_plan plan;
    const int width = rows_wide(type);
    if (choose_rows_narrow(&plan, rows, cols, aligned, gpu->multiprocessors, 16, width)) return plan;
    if (!(aligned && cols % width == 0) && choose_rows_narrow_words(&plan, type, rows, cols, gpu)) return plan;
    return choose_rows(type, rows, cols, aligned, 512, ROWS_SOFTMAX, width, gpu);
}

/* ---- transformers ----------------------------------------------------------------------------------------------- */

/* Pairs that a thread rotates at a time where rows are whole vectors. */
static inline int rope_pairs(const vb_rope_args *a) {
    return a->mode == VB_ROPE_NEOX ? rows_wide(a->type) : rows_wide(a->type) / 2;
}
static inline rows_kernel choose_rope(const vb_rope_args *a) {
    if (a->heads > INT32_MAX || a->seq > INT32_MAX || a->dim > INT32_MAX || a->batch > INT32_MAX / a->heads)
        return ROWS_NONE;
    const int aligned = vb_aligned16(a->out) && vb_aligned16(a->in) && vb_aligned16(a->cos) && vb_aligned16(a->sin);
    return aligned && a->half % rope_pairs(a) == 0 && a->dim % rows_wide(a->type) == 0 ? ROWS_ROPE_VECTORS
                                                                                       : ROWS_ROPE_ELEMENTS;
}

/* Threads of a row, enough for the longer of key and value; value_dim is set. */
static inline int64_t kv_write_threads(const vb_kv_write_args *a, int vectors) {
    const int64_t widest = a->v && a->value_dim > a->dim ? a->value_dim : a->dim;
    return widest / (vectors ? 4 : 1);
}
static inline rows_kernel choose_kv_write(const vb_kv_write_args *a) {
    const int aligned = vb_aligned16(a->k) && vb_aligned16(a->v) && vb_aligned16(a->k_in) && vb_aligned16(a->v_in);
    const int q8 = a->type == VB_Q8_0, vectors = q8 || (aligned && a->dim % 4 == 0 && a->value_dim % 4 == 0);
    const int64_t per_row = kv_write_threads(a, vectors);
    if (per_row > INT32_MAX / 4 || vb_ceil_div(a->batch * a->seq * a->kv_heads * per_row, 256) > INT32_MAX)
        return ROWS_NONE;
    return q8 ? ROWS_KV_WRITE_Q8 : vectors ? ROWS_KV_WRITE_VECTORS : ROWS_KV_WRITE_ELEMENTS;
}

/* ROWS_NONE where the operation is composed. Heads are normed by lanes of one warp. */
static inline rows_kernel choose_rope_kv_write(const vb_rope_kv_write_args *a) {
    const int64_t groups = a->half / 4;
    const int vectors = a->half % 4 == 0 && vb_aligned16(a->q) && vb_aligned16(a->q_in) && vb_aligned16(a->k) &&
        vb_aligned16(a->v) && vb_aligned16(a->k_new) && vb_aligned16(a->v_new) && vb_aligned16(a->cos) &&
        vb_aligned16(a->sin);
    if (2 * a->half != a->dim || a->half == 0 || a->kv_type == VB_Q8_0) return ROWS_NONE;
    if (a->q_norm && (!vectors || groups > 32 || (groups & (groups - 1)))) return ROWS_NONE;
    /* the kernel's counters */
    const double items = (double)a->batch * a->seq * (a->heads + 2 * (double)a->kv_heads) * a->half;
    if (items > INT32_MAX || a->capacity > INT32_MAX || a->table_rows > INT32_MAX) return ROWS_NONE;
    return vectors ? ROWS_ROPE_KV_WRITE_VECTORS : ROWS_ROPE_KV_WRITE_ELEMENTS;
}

#endif
