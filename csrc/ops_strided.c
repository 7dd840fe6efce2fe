/* ops_strided.c: the operations of arrays with strides: their arguments are checked here, then the device's kernel is
 * called, as in ops.c. */
#include "strided.h"

#include <math.h>

#include "checks.h"

/* The view has data of a plain type, and strides of 0 or more; an output repeats no element. */
static bool view_is_sound(const vb_view *v, const int64_t *sizes, int64_t rank, bool written) {
    if (!v->data || !(vb_is_float(v->type) || vb_is_integer(v->type))) return false;
    int64_t last = 0, along;
    for (int d = 0; d < rank; d++) {
        if (v->strides[d] < 0 || (written && v->strides[d] == 0 && sizes[d] > 1)) return false;
        if (__builtin_mul_overflow(v->strides[d], sizes[d] - 1, &along) || __builtin_add_overflow(last, along, &last))
            return false;
    }
    return last <= INT64_MAX / 4;
}

#define REQUIRE_SHAPE(count, sizes, rank) \
    REQUIRE((rank) >= 0 && (rank) <= VB_MAX_DIMS, #rank ": negative, or more than VB_MAX_DIMS"); \
    REQUIRE(elements(&count, (int)(rank), sizes), #sizes ": negative, or their product is too large")

#define REQUIRE_VIEW(view, sizes, rank, written) \
    REQUIRE(view_is_sound(&(view), sizes, rank, written), \
            #view ": null, of a type without elements of its own, or of strides that no array has")

vb_status vb_map(const vb_map_args *args, vb_stream *stream) {
    TAKE(vb_map_args, a, args);
    int64_t count;
    REQUIRE_SHAPE(count, a.sizes, a.rank);
    REQUIRE(a.inputs >= 0 && a.inputs <= VB_MAX_INPUTS, "inputs: negative, or more than VB_MAX_INPUTS");
    REQUIRE(a.steps >= 0 && a.steps <= VB_MAX_STEPS, "steps: negative, or more than VB_MAX_STEPS");
    REQUIRE(a.steps > 0 || a.inputs == 1, "steps: none, with other than one input");
    if (count == 0) return VB_OK;
    NOT_NULL(stream);
    REQUIRE_VIEW(a.out, a.sizes, a.rank, true);
    for (int i = 0; i < a.inputs; i++) REQUIRE_VIEW(a.in[i], a.sizes, a.rank, false);
    unsigned char ints[VB_MAX_INPUTS + VB_MAX_STEPS];
    REQUIRE(vb_map_kinds(ints, &a), "program: a step takes no such values, or the last is not of the kind of out");
    for (int s = 0; s < a.steps; s++)
        REQUIRE((a.program[s].op != VB_ELEMENT_INDEX && a.program[s].op != VB_ELEMENT_RANDOM) || count <= INT32_MAX,
                "program: INDEX or RANDOM of more than 2^31 - 1 elements");
    return RUN(map, &a, stream);
}

vb_status vb_reduce(const vb_reduce_args *args, vb_stream *stream) {
    TAKE(vb_reduce_args, a, args);
    int64_t count, places = 1;
    REQUIRE_SHAPE(count, a.sizes, a.rank);
    REQUIRE(a.reduced >= 0 && a.reduced < (int64_t)1 << a.rank, "reduced: a bit of no dimension");
    REQUIRE(a.reduction >= VB_REDUCTION_SUM && a.reduction <= VB_REDUCTION_LOGSUMEXP,
            "reduction: none of vb_reduction");
    if (count == 0) return VB_OK;
    NOT_NULL(stream);
    int64_t kept[VB_MAX_DIMS];
    for (int d = 0; d < a.rank; d++) {
        const bool reduced = a.reduced >> d & 1;
        REQUIRE(!reduced || a.out.strides[d] == 0, "out.strides: not 0 along a reduced dimension");
        kept[d] = reduced ? 1 : a.sizes[d];
        if (reduced) places *= a.sizes[d];
    }
    REQUIRE_VIEW(a.out, kept, a.rank, true);
    REQUIRE_VIEW(a.in, a.sizes, a.rank, false);
    REQUIRE(a.reduction < VB_REDUCTION_MEAN || vb_is_float(a.in.type), "in.type: no floats, as the reduction takes");
    const bool places_named = a.reduction == VB_REDUCTION_ARGMAX || a.reduction == VB_REDUCTION_ARGMIN;
    const bool integer = vb_is_integer(a.in.type) ||
                         (a.reduction >= VB_REDUCTION_ARGMAX && a.reduction <= VB_REDUCTION_ALL);
    REQUIRE(vb_is_integer(a.out.type) == integer, "out.type: not of the kind of the result");
    REQUIRE(!places_named || places <= INT32_MAX, "sizes: 2^31 places or more that are numbered");
    REQUIRE(a.reduction != VB_REDUCTION_NORM || a.parameter == 1 || a.parameter == 2 || a.parameter == HUGE_VALF,
            "parameter: neither 1, 2 nor infinity");
    return RUN(reduce, &a, stream);
}

vb_status vb_cumsum(void *out, const void *in, vb_dtype type, int64_t rows, int64_t n, int64_t cols,
                    vb_stream *stream) {
    int64_t count;
    REQUIRE_SIZES(&count, rows, n, cols);
    if (count == 0) return VB_OK;
    NOT_NULL(stream);
    REQUIRE(vb_is_float(type) || type == VB_I32, "type: neither F32, F16, BF16 nor I32");
    NOT_NULL(out); NOT_NULL(in);
    return RUN(cumsum, out, in, type, rows, n, cols, stream);
}

vb_status vb_sort(const vb_sort_args *args, vb_stream *stream) {
    TAKE(vb_sort_args, a, args);
    int64_t count, written;
    REQUIRE_SHAPE(count, a.sizes, a.rank);
    REQUIRE(elements(&written, (int)a.rank, a.out_sizes), "out_sizes: negative, or their product is too large");
    REQUIRE(a.dim >= 0 && a.dim < a.rank, "dim: no dimension");
    for (int d = 0; d < a.rank; d++)
        REQUIRE(d == a.dim ? a.out_sizes[d] <= a.sizes[d] : a.out_sizes[d] == a.sizes[d],
                "out_sizes: more than sizes along dim, or others beside it");
    REQUIRE(a.values.data || a.indices.data || written == 0, "values, indices: both null");
    if (written == 0) return VB_OK;
    NOT_NULL(stream);
    REQUIRE(a.sizes[a.dim] <= INT32_MAX, "sizes: a line of 2^31 elements or more");
    REQUIRE_VIEW(a.in, a.sizes, a.rank, false);
    if (a.values.data) {
        REQUIRE_VIEW(a.values, a.out_sizes, a.rank, true);
        REQUIRE(a.values.type == a.in.type, "values.type: not in.type");
    }
    if (a.indices.data) {
        REQUIRE_VIEW(a.indices, a.out_sizes, a.rank, true);
        REQUIRE(a.indices.type == VB_I32, "indices.type: not I32");
    }
    return RUN(sort, &a, stream);
}

vb_status vb_index(const vb_index_args *args, vb_stream *stream) {
    TAKE(vb_index_args, a, args);
    int64_t count, other;
    REQUIRE_SHAPE(count, a.ids_sizes, a.rank);
    REQUIRE(elements(&other, (int)a.rank, a.out_sizes), "out_sizes: negative, or their product is too large");
    REQUIRE(elements(&other, (int)a.rank, a.in_sizes), "in_sizes: negative, or their product is too large");
    REQUIRE(a.indexing >= VB_INDEXING_GATHER && a.indexing <= VB_INDEXING_SCATTER_ADD, "indexing: none of vb_indexing");
    REQUIRE(a.dim >= 0 && a.dim < a.rank, "dim: no dimension");
    const bool gathers = a.indexing == VB_INDEXING_GATHER;
    for (int d = 0; d < a.rank; d++) {
        REQUIRE((gathers ? a.out_sizes : a.in_sizes)[d] == a.ids_sizes[d], "ids_sizes: not those of out, or of in");
        REQUIRE(d == a.dim || a.out_sizes[d] == a.in_sizes[d], "in_sizes: others than out_sizes beside dim");
    }
    if (count == 0) return VB_OK;
    NOT_NULL(stream);
    const bool empty = (gathers ? a.in_sizes : a.out_sizes)[a.dim] == 0; /* every id is outside */
    REQUIRE(!empty, "ids: outside of a dimension of no places");
    REQUIRE_VIEW(a.out, a.out_sizes, a.rank, true);
    REQUIRE_VIEW(a.in, a.in_sizes, a.rank, false);
    REQUIRE_VIEW(a.ids, a.ids_sizes, a.rank, false);
    REQUIRE(a.ids.type == VB_I32, "ids.type: not I32");
    REQUIRE(a.in.type == a.out.type, "in.type: not out.type");
    REQUIRE(a.indexing != VB_INDEXING_SCATTER_ADD || a.in.type == VB_F32 || a.in.type == VB_I32,
            "in.type: neither F32 nor I32, which are added");
    return RUN(index, &a, stream);
}
