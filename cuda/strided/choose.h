/* choose.h: which kernel computes an operation of arrays with strides. */
#ifndef VB_CUDA_STRIDED_CHOOSE_H
#define VB_CUDA_STRIDED_CHOOSE_H

#include "runtime/chooser.h"
#include "strided.h"

#define STRIDED_KERNELS(X)                                                                                             \
    X(STRIDED_CONTIGUOUS, "map_contiguous", "strided/map_contiguous.cu",                                               \
      "map of one step of floats of one type, arrays without gaps")                                                    \
    X(STRIDED_STEP_VECTORS, "map_step_vectors", "strided/map.cu",                                                      \
      "map of one step: four neighbours of each array are aligned to their size, or the same element")                 \
    X(STRIDED_STEP_ELEMENTS, "map_step_elements", "strided/map.cu", "map of one step, any other strides")              \
    X(STRIDED_PROGRAM_VECTORS, "map_program_vectors", "strided/map.cu",                                                \
      "map of more steps: values lie in registers or shared memory")                                                   \
    X(STRIDED_PROGRAM_ELEMENTS, "map_program_elements", "strided/map.cu", "map of more steps, any other strides")      \
    X(STRIDED_REDUCE_ROWS, "reduce_rows", "strided/reduce.cu",                                                         \
      "reduce where the elements of a result lie closer than results: neighbouring threads share a result")            \
    X(STRIDED_REDUCE_COLUMNS, "reduce_columns", "strided/reduce.cu",                                                   \
      "reduce where results lie closer: neighbouring threads have a result each")                                      \
    X(STRIDED_CUMSUM, "cumsum", "strided/index.cu", "cumsum")                                                          \
    X(STRIDED_SORT_TILE, "sort_tile", "strided/sort.cu", "sort of lines of up to 4096 elements, in shared memory")     \
    X(STRIDED_SORT_MERGE, "sort_merge", "strided/sort.cu", "sort of longer lines: sorted tiles are merged in pairs")   \
    X(STRIDED_INDEX, "index", "strided/index.cu", "gather, scatter, scatter-add")
VB_KERNEL_FAMILY(strided, STRIDED, STRIDED_KERNELS)

/* Whether four neighbours along the last of the joined dimensions are one access, or one element four times. */
static inline int strided_vectors(const vb_view *v, const int64_t *sizes, int rank) {
    const int bytes = vb_element_bytes(v->type);
    const int64_t last = v->strides[rank - 1];
    if (rank > 1 && sizes[rank - 1] % 4 != 0) return 0;
    if (last == 0) return 1;
    if (last != 1 || (uintptr_t)v->data % (4 * bytes) != 0) return 0;
    for (int d = 0; d < rank - 1; d++)
        if (v->strides[d] % 4 != 0) return 0;
    return 1;
}

/* Whether a step has a kernel of its own for arrays without gaps of floats of one type: operands are inputs, one at
 * least, or constants. */
static inline int strided_contiguous(const vb_map_args *a, const vb_step *step) {
    const vb_element_op op = step->op;
    const int32_t values[2] = {step->a, step->b};
    int inputs = 0;
    if (a->rank != 1 || !vb_is_float(a->out.type) || !vb_aligned16(a->out.data) || a->out.strides[0] != 1) return 0;
    if (op != VB_ELEMENT_NEG && op != VB_ELEMENT_ABS && (op < VB_ELEMENT_ADD || op > VB_ELEMENT_MAX) &&
        op < VB_ELEMENT_POW)
        return 0;
    for (int k = 0; k < vb_step_operands(op); k++) {
        if (values[k] >= a->inputs) continue;
        const vb_view *v = &a->in[values[k]];
        if (v->type != a->out.type || v->strides[0] != 1 || !vb_aligned16(v->data)) return 0;
        inputs++;
    }
    return inputs > 0;
}

/* How a reduction is divided: a block of 256 threads has `results` results, a power of two, for each of which
 * 256 / results threads take elements; `parts` blocks share the elements of a result. */
typedef struct reduce_plan {
    strided_kernel kernel;
    int results;
    int64_t blocks, parts;
} reduce_plan;

enum { REDUCE_THREADS = 256, REDUCE_PART = 4096, REDUCE_MOST_PARTS = 1024 };

static inline reduce_plan choose_strided_reduce(const vb_reduce_dims *d, const vb_gpu *gpu) {
    reduce_plan plan = {STRIDED_REDUCE_ROWS, 1, 0, 1};
    if (d->results > 1 && d->in.strides[d->kept_rank - 1] < d->within.strides[d->reduced_rank - 1]) {
        plan.kernel = STRIDED_REDUCE_COLUMNS;
        plan.results = 32;
        while (plan.results < REDUCE_THREADS && REDUCE_THREADS / plan.results > d->places) plan.results *= 2;
    } else {
        while (plan.results < REDUCE_THREADS && REDUCE_THREADS / plan.results >= 2 * d->places) plan.results *= 2;
        while (plan.results < 8 && d->results / plan.results > 4 * gpu->multiprocessors && d->places <= 1024)
            plan.results *= 2;
    }
    plan.blocks = vb_ceil_div(d->results, plan.results);
    /* More blocks a result while they do not fill the GPU and have enough elements each. */
    const int64_t wanted = vb_ceil_div(4 * (int64_t)gpu->multiprocessors, plan.blocks);
    const int64_t most = vb_ceil_div(d->places, REDUCE_PART / plan.results);
    plan.parts = wanted < most ? wanted : most;
    if (plan.parts > REDUCE_MOST_PARTS) plan.parts = REDUCE_MOST_PARTS;
    if (plan.parts < 1) plan.parts = 1;
    return plan;
}

/* How a sort is divided: a line is `tiles` tiles, or one tile holds as many lines, each padded to 2^line_log keys, as
 * 2^tile_log keys are. */
typedef struct sort_plan {
    strided_kernel kernel;
    int line_log, tile_log;
    int64_t tiles;
} sort_plan;

enum { SORT_TILE = 4096, SORT_WORKSPACE = 32 << 20 }; /* keys of 8 bytes */

static inline sort_plan choose_strided_sort(int64_t n) {
    sort_plan plan = {STRIDED_SORT_TILE, 0, 10, vb_ceil_div(n, SORT_TILE)};
    while (1 << plan.line_log < n && 1 << plan.line_log < SORT_TILE) plan.line_log++;
    if (plan.tile_log < plan.line_log) plan.tile_log = plan.line_log;
    if (plan.tiles > 1) plan.kernel = STRIDED_SORT_MERGE;
    return plan;
}

/* Dimensions are joined; `single` where at most one step computes values beside constants, which is `step`, NULL where
 * there is none. */
static inline strided_kernel choose_strided_map(const vb_map_args *a, const vb_step *step, int single) {
    if (step && strided_contiguous(a, step)) return STRIDED_CONTIGUOUS;
    int vectors = strided_vectors(&a->out, a->sizes, (int)a->rank);
    for (int i = 0; i < a->inputs; i++) vectors &= strided_vectors(&a->in[i], a->sizes, (int)a->rank);
    return single ? vectors ? STRIDED_STEP_VECTORS : STRIDED_STEP_ELEMENTS
           : vectors ? STRIDED_PROGRAM_VECTORS : STRIDED_PROGRAM_ELEMENTS;
}

#endif
