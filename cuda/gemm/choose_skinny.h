/* choose_skinny.h: the plan of matmul_skinny.cu, a product with up to 8 rows of A or columns of B, and its time. */
#ifndef VB_CUDA_GEMM_CHOOSE_SKINNY_H
#define VB_CUDA_GEMM_CHOOSE_SKINNY_H

#include "gemm/operands.h"

/* Floats of shared memory, warps of a block, rows of a warp; elements of k that a warp reads at a time. */
enum { MATMUL_SKINNY_FLOATS = 8192, MATMUL_SKINNY_WARPS = 8, MATMUL_SKINNY_ROWS = 4, MATMUL_SKINNY_MOST = 8 };
/* Of a lone row or column: rows of the matrix that a thread reads at a time, blocks a multiprocessor; bytes of the lone
 * one that a block may hold in shared memory, and of all blocks of a multiprocessor. */
enum {
    MATMUL_SKINNY_LONE_LOADS = 8,
    MATMUL_SKINNY_LONE_BLOCKS = 3,
    MATMUL_SKINNY_LONE_PARTS = 64,
    MATMUL_SKINNY_STAGED = 32 << 10,
    MATMUL_SKINNY_SHARED = 160 << 10
};
#define MATMUL_SKINNY_SPAN(element_bytes, few) ((few) <= 2 ? 1024 / (element_bytes) : 512 / (element_bytes))

/* `many` is the operand that is not of few rows or columns. */
typedef struct matmul_skinny_plan {
    int by_k, vectors; /* k is innermost in `many`; it is read by vectors */
    int share;         /* by_k: warps that share k; else lanes that lie across its rows */
    int rows, parts;   /* of a block; blocks that share k */
    int64_t blocks, steps, k_each; /* without sharing; of a block, of whose k each has so many */
    int lanes, held;   /* one row or column by k: threads of a row, rows that these have at a time; else 0 */
    int64_t row_blocks; /* of a matrix */
    int together;      /* matrices of a block: more than one where they have few rows, of which threads have one each */
    int lone;          /* one row or column, not by k */
    int own;           /* the same of many matrices of a short k: a thread has an output */
} matmul_skinny_plan;
/* Of threads with 1 or 4 rows: loads of each row under way, for want of registers; blocks a multiprocessor. */
#define MATMUL_SKINNY_DOT_LOADS(element_bytes, held, vectors)                                                          \
    (((element_bytes) == 2) + ((held) > 1) + !(vectors) >= 2 ? 2 : 4)
#define MATMUL_SKINNY_DOT_BLOCKS(held) ((held) == 1 ? 4 : 2)
/* Elements from one of the lone row or column to the next. */
static inline int64_t matmul_skinny_apart(const vb_matmul_args *x) {
    if (x->m <= x->n) return x->a_transposed ? x->a_stride : 1;
    return x->b_transposed ? 1 : x->b_stride;
}
/* Bytes of the lone one's whole vectors in shared memory. */
static inline int64_t matmul_skinny_one_bytes(const vb_matmul_args *x) {
    return vb_ceil_div(x->k * matmul_element_bytes(x->type), 16) * 16;
}
/* Whether each block copies the lone one to shared memory, since its elements lie apart. */
static inline int matmul_skinny_stages(const vb_matmul_args *x) { return matmul_skinny_apart(x) > 1; }
/* Microseconds of many matrices by such threads: a fit to 2,000 runs of 170 batches on an H200, by 0.19 of their
 * logarithm, whose choices take 1.06 times the fastest threads (before, 1.08). `each`: blocks a multiprocessor. */
static inline double matmul_skinny_dots_time(int held, int64_t loads, int64_t copies, double each, double taken,
                                             double copied, double megabytes, int64_t piece) {
    const double rounds = taken > 1 ? taken : 1,
                 waited = rounds * (0.244 * (double)loads * (held > 1 ? 2.9 : 1) + 0.334 * (double)copies) +
                          0.55 * taken + 0.313 * each + 0.236 * copied,
                 moved = megabytes / 8.94 * (1 + 150 / (double)piece);
    return 1.9 + (waited > moved ? waited + 0.76 * moved : moved + 0.76 * waited);
}
/* Rows of `many` times the one row or column, by the threads for which a product waits least. Blocks that copy the lone
 * one read a sector an element from the L2; short pieces of rows waste a part of their sectors; a multiprocessor begins
 * blocks one after the other. Returns microseconds: a fit to 2,500 runs of 216 products on an H200, by 0.22 of their
 * logarithm, whose choices take 1.06 times the fastest threads (docs/experiments/2026-11-28-shapes.md). */
static inline double matmul_skinny_plan_dot(matmul_skinny_plan *plan, const vb_matmul_args *x, int multiprocessors) {
    const int bytes = matmul_element_bytes(x->type);
    const int64_t rows = x->m < x->n ? x->n : x->m, width = 16 / bytes, one_bytes = matmul_skinny_one_bytes(x),
                  apart = matmul_skinny_apart(x) * bytes, row_bytes = x->k * bytes;
    const int stages = matmul_skinny_stages(x);
    const double copied = stages ? 1e-6 * (double)x->k * (apart < 32 ? apart : 32) : 0; /* of a block and matrix */
    const double megabytes = 1e-6 * (double)rows * x->k * x->batch * bytes;
    double least = 0;
    for (int held = 1; held <= 4; held *= 4)
        for (int lanes = 1; lanes <= 32 * MATMUL_SKINNY_WARPS; lanes *= 2) {
            const int64_t of_block = 32 * MATMUL_SKINNY_WARPS / lanes * held;
            int64_t together = 1;
            while (held == 1 && 2 * together * rows <= of_block && together < x->batch &&
                   (!stages || 2 * together * one_bytes <= MATMUL_SKINNY_STAGED))
                together *= 2;
            const int64_t alike = plan->vectors || held == 1 ? held : width * held,
                          row_blocks = vb_ceil_div(vb_ceil_div(rows, alike) * alike, of_block),
                          blocks = row_blocks * vb_ceil_div(x->batch, together),
                          loads = vb_ceil_div(x->k, lanes * width),
                          steps = vb_ceil_div(loads, MATMUL_SKINNY_DOT_LOADS(bytes, held, plan->vectors)),
                          most = MATMUL_SKINNY_DOT_BLOCKS(held),
                          room = stages ? MATMUL_SKINNY_SHARED / (together * one_bytes) : most,
                          at_once = room < most ? room : most, piece = lanes * 16 < row_bytes ? lanes * 16 : row_bytes;
            const int64_t copies = stages ? vb_ceil_div(together * x->k, 8 * 32 * MATMUL_SKINNY_WARPS) : 0;
            const double each = (double)blocks / multiprocessors, taken = each / (double)at_once,
                         of_loads = (0.28 * (double)steps + 0.09 * (double)loads) * (held > 1 ? 3 : 1),
                         waited = (taken > 1 ? taken : 1) * (0.2 + of_loads + 0.21 * (double)copies) + 0.455 * each +
                                  0.068 * (double)(blocks * together) * copied,
                         moved = megabytes / (plan->vectors ? 9.7 : 9.1) * (1 + 173 / (double)piece),
                         one = 1.9 + (waited > moved ? waited : moved) + 0.146 * megabytes,
                         time = x->batch == 1 ? one
                                              : matmul_skinny_dots_time(held, loads, copies, each, taken,
                                                                        (double)(blocks * together) * copied, megabytes,
                                                                        piece);
            if (least > 0 && time >= least) continue;
            least = time;
            plan->lanes = lanes, plan->held = held, plan->together = (int)together;
            plan->rows = (int)(of_block / together);
            plan->blocks = blocks, plan->row_blocks = row_blocks, plan->steps = steps;
        }
    return least;
}
/* A lone row or column across k, with `share` lanes across the matrix's rows. As many blocks share k as a GPU holds,
 * up to `most`, each of which reads its rows in one step at least. Where rows of the matrix begin anywhere, their
 * vectors lie up to a vector apart. Returns microseconds. */
static inline double matmul_skinny_plan_share(matmul_skinny_plan *plan, int share, int most, const vb_matmul_args *x,
                                              int multiprocessors) {
    const int64_t columns = x->m <= x->n ? x->n : x->m, width = 16 / matmul_element_bytes(x->type),
                  late = plan->vectors ? 0 : width - 1;
    plan->lone = 1, plan->share = share, plan->rows = (int)(share * width - late);
    plan->blocks = vb_ceil_div(columns, plan->rows) * x->batch;
    plan->parts = 1, plan->k_each = x->k;
    const int64_t step = 32 / share * MATMUL_SKINNY_WARPS * MATMUL_SKINNY_LONE_LOADS,
                  wanted = MATMUL_SKINNY_LONE_BLOCKS * multiprocessors / plan->blocks, whole = x->k / step,
                  parts = wanted < whole ? wanted : whole;
    if (parts > 1 && most > 1) {
        plan->k_each = vb_ceil_div(vb_ceil_div(x->k, parts < most ? parts : most), step) * step;
        plan->parts = (int)vb_ceil_div(x->k, plan->k_each);
    }
    plan->steps = vb_ceil_div(plan->k_each, step);
    const int f32 = x->type == VB_F32, bytes = matmul_element_bytes(x->type);
    const int64_t piece = (columns < plan->rows ? columns : plan->rows) * bytes, all = plan->blocks * plan->parts;
    const double taken = (double)all / (MATMUL_SKINNY_LONE_BLOCKS * multiprocessors),
                 latency = f32 ? 0.5 + (0.65 + 0.62 / share) * (double)plan->steps
                               : 0.7 + (0.64 + 1.17 / share) * (double)plan->steps,
                 waited = (taken > 1 ? taken : 1) * latency,
                 megabytes = 1e-6 * (double)x->m * x->k * x->n * x->batch * bytes,
                 moved = megabytes / 3.5 * (1 + (f32 ? 62 : 112) / (double)piece),
                 alone = megabytes / (0.034 * (double)(all < multiprocessors ? all : multiprocessors)),
                 least = moved > alone ? moved : alone; /* a multiprocessor alone moves 34 GB/s */
    if (x->batch > 1) { /* a fit to 690 runs of 118 batches on an H200, by 0.15 */
        const double of_share = 1.0 / share, of_step = f32 ? 0.4 + 0.38 * of_share : 0.53 + 0.68 * of_share,
                     blocks = (f32 ? 1.16 : 2.07) * taken + (taken > 1 ? taken : 1) * of_step * (double)plan->steps,
                     read = megabytes / (f32 ? 3.87 : 3.6) * (1 + 57 / (double)piece),
                     memory = read > alone ? read : alone, hidden = f32 ? 0.37 : 0.48;
        return (f32 ? 2.32 : 3.2) + (blocks > memory ? blocks + hidden * memory : memory + hidden * blocks) +
               (plan->parts > 1 ? 1.1 : 0);
    }
    return (f32 ? 1.9 : 3.0) + (least > waited ? least : waited) + 0.023 * megabytes + (plan->parts > 1 ? 1.1 : 0);
}
/* The same by the fastest share. Lanes that lie beside a row read what the others read, and leave shorter parts of k:
 * more blocks share it. A fit to 1,500 runs of 163 products on an H200, by 0.21 of their logarithm, whose choices take
 * 1.04 times the fastest share (docs/experiments/2026-11-28-shapes.md). */
static inline double matmul_skinny_plan_lone(matmul_skinny_plan *plan, const vb_matmul_args *x, int multiprocessors) {
    const int64_t columns = x->m <= x->n ? x->n : x->m, width = 16 / matmul_element_bytes(x->type),
                  late = plan->vectors ? 0 : width - 1;
    matmul_skinny_plan other = *plan;
    double least = 0;
    for (int share = 32; share * width > late; share /= 2) {
        if (share > 1 && share / 4 * width >= columns + late) continue; /* nearly all lanes beside the row */
        for (int most = 1; most <= MATMUL_SKINNY_LONE_PARTS; most *= MATMUL_SKINNY_LONE_PARTS) {
            const double time = matmul_skinny_plan_share(&other, share, most, x, multiprocessors);
            if (least == 0 || time < least) *plan = other, least = time;
        }
    }
    return least;
}
/* Where a thread has an output of a lone row or column across k, of many matrices of a short k: the warps that share k
 * would have next to nothing to do. Of more than 16 elements of k a thread waits for the next ones. A fit to 120
 * products, by 0.11 (F32) and 0.19 of their logarithm. */
enum { MATMUL_SKINNY_OWN_K = 48, MATMUL_SKINNY_OWN_STEP = 8 };
static inline double matmul_skinny_own_time(const vb_matmul_args *x) {
    const int bytes = matmul_element_bytes(x->type), f32 = x->type == VB_F32,
              far = x->m > x->n && x->c_stride * bytes >= 32; /* outputs, in sectors of their own */
    const double outputs = 1e-6 * (double)x->m * x->n * x->batch,
                 waits = 0.5 * (double)vb_ceil_div(x->k, MATMUL_SKINNY_OWN_STEP) - 1;
    return (f32 ? 2.6 : 1.9) + outputs * ((f32 ? 10.3 : 7.2) + 5 * far) +
           (f32 ? 0.226 : 0.346) * bytes * outputs * (double)x->k + (waits > 0 ? (f32 ? 2.2 : 1.5) * waits : 0);
}
static inline int matmul_skinny_owns(const vb_matmul_args *x, double lone) {
    return x->k <= MATMUL_SKINNY_OWN_K && x->batch > 1 && (double)x->m * x->n * x->batch < (double)(1 << 30) &&
           matmul_skinny_own_time(x) < lone;
}
static inline matmul_skinny_plan matmul_skinny_plan_of(const vb_matmul_args *x, int multiprocessors) {
    const int of_rows = x->m <= x->n, bytes = matmul_element_bytes(x->type);
    const int64_t few = of_rows ? x->m : x->n, rows = of_rows ? x->n : x->m, most = few <= 2 ? 2 : few <= 4 ? 4 : 8;
    const int64_t chunk = MATMUL_SKINNY_FLOATS / most, span = MATMUL_SKINNY_SPAN(bytes, most);
    matmul_skinny_plan plan = {0, 0, 1, 0, 1, 0, 0, x->k, 0, 0, 0, 1, 0, 0};
    plan.by_k = of_rows ? x->b_transposed != 0 : !x->a_transposed;
    plan.vectors = of_rows ? matmul_vectors(x->b, x->type, x->b_stride, x->b_batch_stride)
                           : matmul_vectors(x->a, x->type, x->a_stride, x->a_batch_stride);
    /* Elements of the one that lie far apart take up to 5 times as long: each block reads all of them. */
    const int64_t apart = matmul_skinny_apart(x);
    if (plan.by_k && few == 1 && (apart == 1 || x->k * bytes <= MATMUL_SKINNY_STAGED)) {
        matmul_skinny_plan_dot(&plan, x, multiprocessors);
        return plan;
    }
    if (!plan.by_k && few == 1) {
        plan.own = matmul_skinny_owns(x, matmul_skinny_plan_lone(&plan, x, multiprocessors));
        return plan;
    }
    int64_t step; /* of k, of a block */
    if (plan.by_k) {
        for (;; plan.share *= 2) {
            plan.rows = MATMUL_SKINNY_WARPS / plan.share * MATMUL_SKINNY_ROWS;
            plan.blocks = vb_ceil_div(rows, plan.rows) * x->batch;
            step = plan.share * span;
            /* Each block copies the few: more blocks than multiprocessors take longer by it. */
            const int idle = plan.rows >= 2 * rows || (apart == 1 && plan.blocks < multiprocessors);
            if (plan.share == MATMUL_SKINNY_WARPS || step >= x->k || 2 * step > chunk || !idle) break;
        }
    } else {
        const int own = plan.vectors ? 16 / bytes : 4, at_once = most * own > 32 ? 4 : 8;
        plan.share = 32;
        while (plan.share > 4 && plan.share / 2 * own >= rows) plan.share /= 2;
        plan.rows = plan.share * own;
        plan.blocks = vb_ceil_div(rows, plan.rows) * x->batch;
        step = MATMUL_SKINNY_WARPS * (32 / plan.share) * at_once;
    }
    plan.steps = vb_ceil_div(x->k, step);
    const int64_t wanted = 3 * multiprocessors / plan.blocks, least = plan.by_k ? x->k / 512 : plan.steps / 4,
                  parts = wanted < least ? wanted : least;
    if (parts > 1) {
        plan.k_each = vb_ceil_div(vb_ceil_div(x->k, parts < 64 ? parts : 64), 64) * 64;
        plan.parts = (int)vb_ceil_div(x->k, plan.k_each);
        plan.steps = vb_ceil_div(plan.k_each, step);
    }
    return plan;
}
/* F32 of 2 to 8 rows or columns across k: steps of k, a part of one as a part, and the addition of what the lanes and
 * warps of a block have, which takes longer the more rows. A fit to 101 products on an H200, by 0.22 of their
 * logarithm; 84 before Hopper are off by 0.28. */
static inline double matmul_skinny_across_time(const matmul_skinny_plan *plan, const vb_matmul_args *x,
                                               int multiprocessors) {
    const int64_t few = x->m < x->n ? x->m : x->n, most = few <= 2 ? 2 : few <= 4 ? 4 : 8,
                  copies = vb_ceil_div(most * plan->k_each, 8 * 32 * MATMUL_SKINNY_WARPS);
    const double taken = (double)plan->blocks * plan->parts / (2.0 * multiprocessors),
                 steps = (double)plan->k_each / (MATMUL_SKINNY_WARPS * (32 / plan->share) * 8),
                 add = (most == 8 ? 6.0 : 3.0) * (double)few / (double)most,
                 alone = (most == 8 ? 1.5 : 1.0) * steps + add,
                 crowded = taken * ((most == 8 ? 2 : 3) * steps + add),
                 elements = (double)x->m * x->k + (double)x->k * x->n + (double)x->m * x->n,
                 memory = 1.75e-6 * elements * x->batch, waited = alone > crowded ? alone : crowded;
    return 1.5 + (waited > memory ? waited : memory) +
           0.8 * (double)(copies - 1) * (taken > 1 ? taken : 1) + (plan->parts > 1);
}
/* Whether that is its time. */
static inline int matmul_skinny_across(const matmul_skinny_plan *plan, const vb_matmul_args *x) {
    return x->type == VB_F32 && !plan->by_k && !plan->lone;
}
static inline double matmul_skinny_plan_time(const matmul_skinny_plan plan, const vb_matmul_args *x,
                                             const vb_gpu *gpu) {
    const int64_t few = x->m < x->n ? x->m : x->n, most = few <= 2 ? 2 : few <= 4 ? 4 : 8,
                  copies = vb_ceil_div(most * plan.k_each, 8 * 32 * MATMUL_SKINNY_WARPS); /* of the few, 8 a thread */
    matmul_skinny_plan one = plan;
    if (few == 1 && plan.lanes) return matmul_skinny_plan_dot(&one, x, gpu->multiprocessors);
    if (few == 1 && plan.lone) return matmul_skinny_plan_lone(&one, x, gpu->multiprocessors);
    if (matmul_skinny_across(&plan, x)) return matmul_skinny_across_time(&plan, x, gpu->multiprocessors);
    const double taken = (double)plan.blocks * plan.parts / (2.0 * gpu->multiprocessors),
                 step = x->type == VB_F32 ? 2.7 : 4.0,
                 latency = (taken > 1 ? taken : 1) * (step * (double)plan.steps + (double)copies - 1),
                 elements = (double)x->m * x->k + (double)x->k * x->n + (double)x->m * x->n,
                 rate = x->type != VB_F32 ? 0.7e6 : 2.4e6,
                 memory = elements * x->batch * matmul_element_bytes(x->type) / rate;
    return 1.5 + (latency > memory ? latency : memory) + (plan.parts == 1 ? 0 : plan.by_k ? 1.5 : 3);
}
/* Of one row or column tiles take longer than their times say. Before Hopper other products took another part. */
static inline double matmul_skinny_time(const vb_matmul_args *x, const vb_gpu *gpu) {
    const matmul_skinny_plan plan = matmul_skinny_plan_of(x, gpu->multiprocessors);
    if (plan.own) return matmul_skinny_own_time(x);
    const double time = matmul_skinny_plan_time(plan, x, gpu);
    if (plan.lanes || plan.lone) return (x->batch == 1 || !vb_begins_early(gpu) ? 0.93 : plan.lone ? 1 : 1.05) * time;
    if (matmul_skinny_across(&plan, x)) return 1.25 * time; /* tiles' times are surer */
    if (vb_begins_early(gpu)) return time;
    return time * (x->m > 2 && x->n > 2 ? 1.4 : 0.9);
}
static inline int matmul_skinny_suits(const vb_matmul_args *x) {
    return x->m > 0 && x->n > 0 && x->k > 0 && (x->m <= MATMUL_SKINNY_MOST || x->n <= MATMUL_SKINNY_MOST) &&
           (x->m > x->n ? x->m : x->n) < (int64_t)1 << 31;
}

#endif
