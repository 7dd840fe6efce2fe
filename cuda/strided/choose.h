/* choose.h: which kernel computes an operation of arrays with strides. */
#ifndef VB_CUDA_STRIDED_CHOOSE_H
#define VB_CUDA_STRIDED_CHOOSE_H

#include "runtime/chooser.h"
#include "strided.h"

#define STRIDED_KERNELS(X)                                                                                             \
    X(STRIDED_CONTIGUOUS, "map_contiguous", "strided/map_contiguous.cu",                                               \
      "map of one step of floats of one type, or of their comparison, arrays without gaps")                            \
    X(STRIDED_BYTES, "map_bytes", "strided/map_bytes.cu",                                                              \
      "map of one step of whole numbers of 8 bits of one type, arrays without gaps")                                   \
    X(STRIDED_STEP_VECTORS, "map_step_vectors", "strided/map.cu",                                                      \
      "map of one step: four neighbours of each array are aligned to their size, or the same element")                 \
    X(STRIDED_STEP_ELEMENTS, "map_step_elements", "strided/map.cu", "map of one step, any other strides")              \
    X(STRIDED_PROGRAM_VECTORS, "map_program_vectors", "strided/map.cu",                                                \
      "map of more steps: values lie in registers or shared memory")                                                   \
    X(STRIDED_PROGRAM_ELEMENTS, "map_program_elements", "strided/map.cu", "map of more steps, any other strides")      \
    X(STRIDED_RANDOM, "map_random", "strided/random.cu", "map of random numbers alone to floats without gaps")         \
    X(STRIDED_TRANSPOSE, "copy_transposed", "strided/transpose.cu",                                                    \
      "copy of matrices whose columns lie side by side, through tiles in shared memory")                               \
    X(STRIDED_REDUCE_ROWS, "reduce_rows", "strided/reduce.cu",                                                         \
      "reduce where the elements of a result lie closer than results: neighbouring threads share a result")            \
    X(STRIDED_REDUCE_COLUMNS, "reduce_columns", "strided/reduce.cu",                                                   \
      "reduce where results lie closer: neighbouring threads have a result each")                                      \
    X(STRIDED_CUMSUM, "cumsum", "strided/index.cu", "cumsum")                                                          \
    X(STRIDED_SORT_BITONIC, "sort_bitonic", "strided/sort.cu",                                                         \
      "sort of lines of up to 512 elements, of which a block has several")                                             \
    X(STRIDED_SORT_BLOCK, "sort_block", "strided/sort_radix.cu",                                                       \
      "sort of lines of up to 4096 elements: a block sorts a line by its digits")                                      \
    X(STRIDED_SORT_RADIX, "sort_radix", "strided/sort_radix.cu",                                                       \
      "sort of longer lines by their digits: a pass over memory a digit")                                              \
    X(STRIDED_INDEX, "index", "strided/index.cu", "gather, scatter, scatter-add")
VB_KERNEL_FAMILY(strided, STRIDED, STRIDED_KERNELS)

/* Whether steps along dimensions are of four elements each, and four neighbours along the last lie side by side,
 * aligned to their size. */
static inline int strided_multiples(const vb_view *v, int rank) {
    for (int d = 0; d < rank; d++)
        if (v->strides[d] % 4 != 0) return 0;
    return 1;
}
static inline int strided_by_four(const vb_view *v, int rank) {
    return v->strides[rank - 1] == 1 && (uintptr_t)v->data % (4 * vb_element_bytes(v->type)) == 0 &&
           strided_multiples(v, rank - 1);
}

/* Whether four neighbours along the last of the joined dimensions are one access, or one element four times. */
static inline int strided_vectors(const vb_view *v, const int64_t *sizes, int rank) {
    if (rank > 1 && sizes[rank - 1] % 4 != 0) return 0;
    return v->strides[rank - 1] == 0 || strided_by_four(v, rank);
}

/* Whether a step has a kernel of its own for contiguous arrays of floats of one type; of BOOL where it compares them.
 * Operands are inputs, at least one, or constants. */
static inline int strided_contiguous(const vb_map_args *a, const vb_step *step) {
    const vb_element_op op = step->op;
    const int32_t values[2] = {step->a, step->b};
    const int compares = op >= VB_ELEMENT_EQ && op <= VB_ELEMENT_LE;
    const vb_dtype type = compares && a->inputs > 0 ? a->in[0].type : a->out.type;
    int inputs = 0;
    if (a->rank != 1 || !vb_is_float(type) || !vb_aligned16(a->out.data) || a->out.strides[0] != 1) return 0;
    if (compares ? a->out.type != VB_BOOL
                 : op != VB_ELEMENT_NEG && op != VB_ELEMENT_ABS && (op < VB_ELEMENT_ADD || op > VB_ELEMENT_MAX) &&
                       op < VB_ELEMENT_POW)
        return 0;
    for (int k = 0; k < vb_step_operands(op); k++) {
        if (values[k] >= a->inputs) continue;
        const vb_view *v = &a->in[values[k]];
        if (v->type != type || v->strides[0] != 1 || !vb_aligned16(v->data)) return 0;
        inputs++;
    }
    return inputs > 0;
}

/* Whether a step computes whole numbers of 8 bits of one type, without gaps: sums, comparisons and bits of I8 or U8,
 * or bits of BOOL. Constants are of the type. */
static inline int strided_bytes(const vb_map_args *a, const vb_step *step) {
    const vb_element_op op = step->op;
    const int compares = op >= VB_ELEMENT_EQ && op <= VB_ELEMENT_LE;
    const int bits = op >= VB_ELEMENT_AND && op <= VB_ELEMENT_XOR;
    const int32_t values[2] = {step->a, step->b};
    int inputs = 0;
    if (a->rank != 1 || a->out.strides[0] != 1 || !vb_aligned16(a->out.data)) return 0;
    if (!compares && !bits && (op < VB_ELEMENT_ADD || op > VB_ELEMENT_ABS || op == VB_ELEMENT_DIV)) return 0;
    for (int k = 0; k < vb_step_operands(op); k++) {
        const vb_dtype type = a->in[0].type;
        if (values[k] >= a->inputs) {
            const int32_t c = a->program[values[k] - a->inputs].a;
            const int32_t least = type == VB_I8 ? -128 : 0, most = type == VB_I8 ? 127 : type == VB_U8 ? 255 : 1;
            if (c < least || c > most) return 0;
            continue;
        }
        const vb_view *v = &a->in[values[k]];
        if (v->type != type || !vb_is_integer(type) || type == VB_I32 || (type == VB_BOOL && !bits)) return 0;
        if (a->out.type != (compares ? VB_BOOL : type) || v->strides[0] != 1 || !vb_aligned16(v->data)) return 0;
        inputs++;
    }
    return inputs > 0;
}

/* Whether an array of floats without gaps is filled with random numbers. */
static inline int strided_random(const vb_map_args *a, const vb_step *step) {
    return step->op == VB_ELEMENT_RANDOM && a->rank == 1 && vb_is_float(a->out.type) && vb_aligned16(a->out.data) &&
           a->out.strides[0] == 1 && a->sizes[0] <= INT32_MAX;
}

/* Whether elements are copied as they are from columns to rows, of one matrix, or of several one stride apart. */
static inline int strided_transposes(const vb_map_args *a) {
    const int rank = (int)a->rank;
    if (a->steps != 0 || a->in[0].type != a->out.type || rank < 2 || rank > 3) return 0;
    return a->out.strides[rank - 1] == 1 && a->in[0].strides[rank - 2] == 1 && a->in[0].strides[rank - 1] > 1 &&
           a->sizes[rank - 1] >= 8 && a->sizes[rank - 2] >= 8;
}

/* How a reduction is divided. A block of 256 threads has `results` results, a power of two.
 * So 256 / results threads take elements of a result, and `parts` blocks share the elements of a result.
 * A thread reads `width` neighbours at once, 4 or 1: by columns, of as many results. */
typedef struct reduce_plan {
    strided_kernel kernel;
    int results, width;
    int64_t blocks, parts;
} reduce_plan;

enum { REDUCE_THREADS = 256, REDUCE_PART = 4096, REDUCE_MOST_PARTS = 1024 };

static inline reduce_plan choose_strided_reduce(const vb_reduce_dims *d, const vb_gpu *gpu) {
    reduce_plan plan = {STRIDED_REDUCE_ROWS, 1, 1, 0, 1};
    if (d->results > 1 && d->in.strides[d->kept_rank - 1] < d->within.strides[d->reduced_rank - 1]) {
        plan.kernel = STRIDED_REDUCE_COLUMNS;
        if (d->kept[d->kept_rank - 1] % 4 == 0 && strided_by_four(&d->in, d->kept_rank) &&
            strided_multiples(&d->within, d->reduced_rank))
            plan.width = 4;
        const int64_t groups = vb_ceil_div(d->results, plan.width), fill = 1024 * (int64_t)gpu->multiprocessors;
        plan.results = 32;
        while (plan.results > 1 && plan.results / 2 >= groups) plan.results /= 2;
        while (plan.results < REDUCE_THREADS && REDUCE_THREADS / plan.results > d->places) plan.results *= 2;
        /* fewer threads a result, down to one, while they still fill the GPU */
        while (plan.results < REDUCE_THREADS && d->places <= 256 &&
               groups * (REDUCE_THREADS / plan.results / 2) >= fill)
            plan.results *= 2;
    } else {
        if (d->reduced_rank == 1 && d->places % 4 == 0 && strided_by_four(&d->within, 1) &&
            (d->results == 1 || strided_multiples(&d->in, d->kept_rank)))
            plan.width = 4;
        while (plan.results < REDUCE_THREADS && REDUCE_THREADS / plan.results >= 2 * (d->places / plan.width))
            plan.results *= 2;
        while (plan.results < 8 && d->results / plan.results > 4 * gpu->multiprocessors && d->places <= 1024)
            plan.results *= 2;
        /* of many short ones a thread has eight accesses */
        while (plan.results < REDUCE_THREADS && d->places <= 64 * plan.width &&
               REDUCE_THREADS / plan.results > vb_ceil_div(d->places, 8 * plan.width) &&
               d->results / plan.results > 16 * gpu->multiprocessors)
            plan.results *= 2;
    }
    plan.blocks = vb_ceil_div(d->results, plan.results * (plan.kernel == STRIDED_REDUCE_COLUMNS ? plan.width : 1));
    /* More blocks a result while they all run at once, four on a multiprocessor, and have enough elements each. */
    const int64_t wanted = 4 * (int64_t)gpu->multiprocessors / plan.blocks;
    const int64_t most = vb_ceil_div(d->places, REDUCE_PART / plan.results);
    plan.parts = wanted < most ? wanted : most;
    if (plan.parts > REDUCE_MOST_PARTS) plan.parts = REDUCE_MOST_PARTS;
    if (plan.parts < 1) plan.parts = 1;
    return plan;
}

/* The longest lines of sort_bitonic and sort_block, the elements of a tile of sort_radix, and how many elements of
 * several lines sort_radix sorts at once: 16 bytes of workspace each. */
enum { SORT_BITONIC = 512, SORT_BLOCK = 4096, SORT_TILE = 8192, SORT_SLICE = 16 << 20 };

static inline strided_kernel choose_strided_sort(int64_t n) {
    return n <= SORT_BITONIC ? STRIDED_SORT_BITONIC : n <= SORT_BLOCK ? STRIDED_SORT_BLOCK : STRIDED_SORT_RADIX;
}

/* Dimensions are joined; `single` where at most one step computes values beside constants, which is `step`, NULL where
 * there is none. */
static inline strided_kernel choose_strided_map(const vb_map_args *a, const vb_step *step, int single) {
    if (step && strided_contiguous(a, step)) return STRIDED_CONTIGUOUS;
    if (step && strided_bytes(a, step)) return STRIDED_BYTES;
    if (step && strided_random(a, step)) return STRIDED_RANDOM;
    if (strided_transposes(a)) return STRIDED_TRANSPOSE;
    int vectors = strided_vectors(&a->out, a->sizes, (int)a->rank);
    for (int i = 0; i < a->inputs; i++) vectors &= strided_vectors(&a->in[i], a->sizes, (int)a->rank);
    return single ? vectors ? STRIDED_STEP_VECTORS : STRIDED_STEP_ELEMENTS
           : vectors ? STRIDED_PROGRAM_VECTORS : STRIDED_PROGRAM_ELEMENTS;
}

#endif
