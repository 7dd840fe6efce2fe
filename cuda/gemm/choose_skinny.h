/* choose_skinny.h: the plan of matmul_skinny.cu, a product with up to 8 rows of A or columns of B, and its time. */
#ifndef VB_CUDA_GEMM_CHOOSE_SKINNY_H
#define VB_CUDA_GEMM_CHOOSE_SKINNY_H

#include "gemm/operands.h"

/* Floats of shared memory, warps of a block, rows of a warp; elements of k that a warp reads at a time. */
enum { MATMUL_SKINNY_FLOATS = 8192, MATMUL_SKINNY_WARPS = 8, MATMUL_SKINNY_ROWS = 4, MATMUL_SKINNY_MOST = 8 };
/* Of a lone row or column: rows of the matrix that a thread reads at a time, blocks a multiprocessor; bytes of the lone
 * one that a block may hold in shared memory. */
enum { MATMUL_SKINNY_LONE_LOADS = 8, MATMUL_SKINNY_LONE_BLOCKS = 3, MATMUL_SKINNY_STAGED = 32 << 10 };
#define MATMUL_SKINNY_SPAN(element_bytes, few) ((few) <= 2 ? 1024 / (element_bytes) : 512 / (element_bytes))

/* `many` is the operand that is not of few rows or columns. */
typedef struct matmul_skinny_plan {
    int by_k, vectors; /* k is innermost in `many`; it is read by vectors */
    int share;         /* by_k: warps that share k; else lanes that lie across its rows */
    int rows, parts;   /* of a block; blocks that share k */
    int64_t blocks, steps, k_each; /* without sharing; of a block, of whose k each has so many */
    int lanes, held;   /* one row or column by k: threads of a row, rows that these have at a time; else 0 */
    int lone;          /* one row or column, not by k */
} matmul_skinny_plan;
/* Of threads with 1 or 4 rows: loads of each row under way, for want of registers; blocks a multiprocessor. */
#define MATMUL_SKINNY_DOT_LOADS(element_bytes, held, vectors)                                                          \
    ((element_bytes) == 2 && ((held) > 1 || !(vectors)) ? 2 : 4)
#define MATMUL_SKINNY_DOT_BLOCKS(held) ((held) == 1 ? 4 : 2)
/* Elements from one of the lone row or column to the next. */
static inline int64_t matmul_skinny_apart(const vb_matmul_args *x) {
    if (x->m <= x->n) return x->a_transposed ? x->a_stride : 1;
    return x->b_transposed ? 1 : x->b_stride;
}
/* Rows of `many` times the one row or column, by the threads for which a product waits least. Returns microseconds. */
static inline double matmul_skinny_plan_dot(matmul_skinny_plan *plan, const vb_matmul_args *x, int multiprocessors) {
    const int bytes = matmul_element_bytes(x->type);
    const int64_t rows = x->m < x->n ? x->n : x->m, width = 16 / bytes;
    double least = 0;
    for (int held = 1; held <= 4; held *= 4)
        for (int lanes = 1; lanes <= 32 * MATMUL_SKINNY_WARPS; lanes *= 2) {
            const int64_t of_block = 32 * MATMUL_SKINNY_WARPS / lanes * held,
                          blocks = vb_ceil_div(rows, of_block) * x->batch,
                          loads = MATMUL_SKINNY_DOT_LOADS(bytes, held, plan->vectors),
                          steps = vb_ceil_div(x->k, loads * lanes * width),
                          places = MATMUL_SKINNY_DOT_BLOCKS(held) * multiprocessors;
            const double time = (double)vb_ceil_div(blocks, places) * (1.8 + 0.9 * (double)steps);
            if (least > 0 && time >= least) continue;
            least = time;
            plan->lanes = lanes, plan->held = held, plan->rows = (int)of_block;
            plan->blocks = blocks, plan->steps = steps;
        }
    return least;
}
/* As many blocks share k as a GPU holds, each of which reads its rows in one step at least. Where rows of the matrix
 * begin anywhere, their vectors lie up to a vector apart. */
static inline void matmul_skinny_plan_lone(matmul_skinny_plan *plan, const vb_matmul_args *x, int multiprocessors) {
    const int64_t columns = x->m <= x->n ? x->n : x->m, width = 16 / matmul_element_bytes(x->type),
                  late = plan->vectors ? 0 : width - 1;
    plan->lone = 1, plan->share = 32;
    while (plan->share > 1 && plan->share / 2 * width >= columns + late) plan->share /= 2;
    plan->rows = (int)(plan->share * width - late);
    plan->blocks = vb_ceil_div(columns, plan->rows) * x->batch;
    const int64_t step = 32 / plan->share * MATMUL_SKINNY_WARPS * MATMUL_SKINNY_LONE_LOADS,
                  wanted = MATMUL_SKINNY_LONE_BLOCKS * multiprocessors / plan->blocks, most = x->k / step,
                  parts = wanted < most ? wanted : most;
    if (parts > 1) {
        plan->k_each = vb_ceil_div(vb_ceil_div(x->k, parts < 64 ? parts : 64), step) * step;
        plan->parts = (int)vb_ceil_div(x->k, plan->k_each);
    }
    plan->steps = vb_ceil_div(plan->k_each, step);
}
static inline matmul_skinny_plan matmul_skinny_plan_of(const vb_matmul_args *x, int multiprocessors) {
    const int of_rows = x->m <= x->n, bytes = matmul_element_bytes(x->type);
    const int64_t few = of_rows ? x->m : x->n, rows = of_rows ? x->n : x->m, most = few <= 2 ? 2 : few <= 4 ? 4 : 8;
    const int64_t chunk = MATMUL_SKINNY_FLOATS / most, span = MATMUL_SKINNY_SPAN(bytes, most);
    matmul_skinny_plan plan = {0, 0, 1, 0, 1, 0, 0, x->k, 0, 0, 0};
    plan.by_k = of_rows ? x->b_transposed != 0 : !x->a_transposed;
    plan.vectors = of_rows ? matmul_vectors(x->b, x->type, x->b_stride, x->b_batch_stride)
                           : matmul_vectors(x->a, x->type, x->a_stride, x->a_batch_stride);
    /* Elements of the one that lie far apart take up to 5 times as long: each block reads all of them. */
    const int64_t apart = matmul_skinny_apart(x);
    if (plan.by_k && few == 1 && (apart <= 2 || x->k * bytes <= MATMUL_SKINNY_STAGED)) {
        matmul_skinny_plan_dot(&plan, x, multiprocessors);
        return plan;
    }
    if (!plan.by_k && few == 1) {
        matmul_skinny_plan_lone(&plan, x, multiprocessors);
        return plan;
    }
    int64_t step; /* of k, of a block */
    if (plan.by_k) {
        for (;; plan.share *= 2) {
            plan.rows = MATMUL_SKINNY_WARPS / plan.share * MATMUL_SKINNY_ROWS;
            plan.blocks = vb_ceil_div(rows, plan.rows) * x->batch;
            step = plan.share * span;
            if (plan.share == MATMUL_SKINNY_WARPS || step >= x->k || 2 * step > chunk ||
                plan.blocks >= 4 * multiprocessors)
                break;
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
    const int64_t wanted = 3 * multiprocessors / plan.blocks, least = plan.steps / 4,
                  parts = wanted < least ? wanted : least;
    if (parts > 1) {
        plan.k_each = vb_ceil_div(vb_ceil_div(x->k, parts < 64 ? parts : 64), 64) * 64;
        plan.parts = (int)vb_ceil_div(x->k, plan.k_each);
        plan.steps = vb_ceil_div(plan.k_each, step);
    }
    return plan;
}
static inline double matmul_skinny_plan_time(const matmul_skinny_plan plan, const vb_matmul_args *x,
                                             const vb_gpu *gpu) {
    const int64_t few = x->m < x->n ? x->m : x->n, most = few <= 2 ? 2 : few <= 4 ? 4 : 8,
                  copies = vb_ceil_div(most * plan.k_each, 8 * 32 * MATMUL_SKINNY_WARPS); /* of the few, 8 a thread */
    if (plan.lanes) {
        matmul_skinny_plan dot = plan;
        /* Rows that begin anywhere are read by two loads a vector, and short rows by few threads at a time. */
        const double waited = matmul_skinny_plan_dot(&dot, x, gpu->multiprocessors),
                     longest = plan.vectors ? 2.8e6 : x->type == VB_F32 ? 1.7e6 : 1.0e6,
                     of_row = 0.35e6 + 1e3 * (double)x->k * matmul_element_bytes(x->type),
                     rate = of_row < longest ? of_row : longest,
                     moved = (double)x->m * x->k * x->n * x->batch * matmul_element_bytes(x->type) / rate;
        return 1.5 + (moved > waited ? moved : waited);
    }
    if (plan.lone) {
        const double taken = (double)plan.blocks * plan.parts / (MATMUL_SKINNY_LONE_BLOCKS * gpu->multiprocessors),
                     waited = (taken > 1 ? taken : 1) * (1.2 + 1.2 * (double)plan.steps),
                     moved = (double)x->m * x->k * x->n * x->batch * matmul_element_bytes(x->type) / 2.4e6;
        return 2.2 + (plan.share < 8 ? 2 : 0) + (moved > waited ? moved : waited) + (plan.parts > 1 ? 3 : 0);
    }
    const double taken = (double)plan.blocks * plan.parts / (2.0 * gpu->multiprocessors),
                 step = x->type == VB_F32 ? plan.by_k ? 2.7 : most == 8 ? 4.5 : 2.5 : 4.0,
                 latency = (taken > 1 ? taken : 1) * (step * (double)plan.steps + (double)copies - 1),
                 elements = (double)x->m * x->k + (double)x->k * x->n + (double)x->m * x->n,
                 memory = elements * x->batch * matmul_element_bytes(x->type) / (x->type == VB_F32 ? 1.6e6 : 0.7e6);
    return 1.5 + (latency > memory ? latency : memory) + (plan.parts > 1 ? 3 : 0);
}
/* Before Hopper 67 runs took another part of it. */
static inline double matmul_skinny_time(const vb_matmul_args *x, const vb_gpu *gpu) {
    const matmul_skinny_plan plan = matmul_skinny_plan_of(x, gpu->multiprocessors);
    const double time = matmul_skinny_plan_time(plan, x, gpu);
    if (vb_begins_early(gpu) || plan.lanes) return time;
    return time * (plan.lone ? 0.75 : x->m > 2 && x->n > 2 ? 1.4 : 0.9);
}
static inline int matmul_skinny_suits(const vb_matmul_args *x) {
    return x->m > 0 && x->n > 0 && x->k > 0 && (x->m <= MATMUL_SKINNY_MOST || x->n <= MATMUL_SKINNY_MOST) &&
           (x->m > x->n ? x->m : x->n) < (int64_t)1 << 31;
}

#endif
