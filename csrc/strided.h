/* strided.h: the parts common to operations of arrays with strides: the kinds of values of an expression, and
 * dimensions that can be joined. C99, C++14 and NVRTC. Not installed. */
#ifndef VB_STRIDED_H
#define VB_STRIDED_H

#include "vibrant.h"

static inline int vb_is_float(vb_dtype type) { return type == VB_F32 || type == VB_F16 || type == VB_BF16; }
/* int32 in expressions */
static inline int vb_is_integer(vb_dtype type) {
    return type == VB_I32 || type == VB_I8 || type == VB_U8 || type == VB_BOOL;
}
static inline int vb_element_bytes(vb_dtype type) {
    return type == VB_F32 || type == VB_I32 ? 4 : type == VB_F16 || type == VB_BF16 ? 2 : 1;
}

/* How many values a step takes, first in a, then b, then c. */
static inline int vb_step_operands(vb_element_op op) {
    switch (op) {
    case VB_ELEMENT_CONSTANT:
    case VB_ELEMENT_INTEGER:
    case VB_ELEMENT_INDEX:
    case VB_ELEMENT_RANDOM: return 0;
    case VB_ELEMENT_WHERE: return 3;
    case VB_ELEMENT_NEG:
    case VB_ELEMENT_ABS:
    case VB_ELEMENT_TO_FLOAT:
    case VB_ELEMENT_TO_INTEGER: return 1;
    default: return op <= VB_ELEMENT_POW ? 2 : 1;
    }
}

/* ints[i] = whether value i of the expression is an integer. Returns whether the expression is right.
 * In a right expression every step takes earlier values of its kinds, and the last value is of the kind of out. */
static inline int vb_map_kinds(unsigned char ints[VB_MAX_INPUTS + VB_MAX_STEPS], const vb_map_args *a) {
    int count = 0;
    for (; count < a->inputs; count++) ints[count] = (unsigned char)vb_is_integer(a->in[count].type);
    for (int s = 0; s < a->steps; s++, count++) {
        const vb_element_op op = a->program[s].op;
        const int32_t values[3] = {a->program[s].a, a->program[s].b, a->program[s].c};
        const int takes = vb_step_operands(op);
        if (op < VB_ELEMENT_CONSTANT || op > VB_ELEMENT_ROUND) return 0;
        for (int v = 0; v < takes; v++)
            if (values[v] < 0 || values[v] >= count) return 0;
        const int kind = takes ? ints[values[takes - 1]] : op == VB_ELEMENT_INTEGER || op == VB_ELEMENT_INDEX;
        if (takes >= 2 && ints[values[takes - 2]] != kind) return 0;
        int result = kind;
        switch (op) {
        case VB_ELEMENT_RANDOM:
            if (values[2] < 0 || values[2] > 24) return 0;
            break;
        case VB_ELEMENT_TO_FLOAT:
        case VB_ELEMENT_TO_INTEGER:
            if (kind != (op == VB_ELEMENT_TO_FLOAT)) return 0;
            result = !kind;
            break;
        case VB_ELEMENT_WHERE:
            if (!ints[values[0]]) return 0;
            break;
        case VB_ELEMENT_EQ:
        case VB_ELEMENT_NE:
        case VB_ELEMENT_LT:
        case VB_ELEMENT_LE: result = 1; break;
        case VB_ELEMENT_AND:
        case VB_ELEMENT_OR:
        case VB_ELEMENT_XOR:
        case VB_ELEMENT_SHIFT_RIGHT:
        case VB_ELEMENT_REM:
            if (!kind) return 0;
            break;
        default:
            if (op > VB_ELEMENT_POW && kind) return 0;
        }
        ints[count] = (unsigned char)result;
    }
    return count > 0 && ints[count - 1] == vb_is_integer(a->out.type);
}

/* Joins neighbouring dimensions that have no gap between them in each of `count` views, and drops dimensions of one
 * place.
 * The order of elements stays. Returns the new rank, 1 at least. */
static inline int vb_join_dims(int64_t sizes[VB_MAX_DIMS], int64_t rank, vb_view *const *views, int count) {
    int joined = 0;
    for (int d = 0; d < rank; d++) {
        if (sizes[d] == 1) continue;
        int one = joined > 0;
        for (int v = 0; v < count && one; v++)
            one = views[v]->strides[joined - 1] == views[v]->strides[d] * sizes[d];
        const int to = one ? joined - 1 : joined++;
        sizes[to] = one ? sizes[to] * sizes[d] : sizes[d];
        for (int v = 0; v < count; v++) views[v]->strides[to] = views[v]->strides[d];
    }
    if (joined == 0) {
        sizes[0] = 1;
        for (int v = 0; v < count; v++) views[v]->strides[0] = 1;
        joined = 1;
    }
    return joined;
}

/* The dimensions of a reduction, the kept and the reduced ones, each joined where there is no gap. */
typedef struct vb_reduce_dims {
    int64_t kept[VB_MAX_DIMS], reduced[VB_MAX_DIMS]; /* places */
    vb_view out, in; /* strides along the kept dimensions */
    vb_view within;  /* in, with strides along the reduced dimensions */
    int kept_rank, reduced_rank;
    int64_t results, places;
} vb_reduce_dims;

static inline void vb_reduce_split(vb_reduce_dims *s, const vb_reduce_args *a) {
    int kept = 0, reduced = 0;
    s->out = a->out, s->in = s->within = a->in;
    s->results = s->places = 1;
    for (int d = 0; d < a->rank; d++) {
        if (a->reduced >> d & 1) {
            s->places *= s->reduced[reduced] = a->sizes[d];
            s->within.strides[reduced++] = a->in.strides[d];
        } else {
            s->results *= s->kept[kept] = a->sizes[d];
            s->out.strides[kept] = a->out.strides[d];
            s->in.strides[kept++] = a->in.strides[d];
        }
    }
    vb_view *const two[] = {&s->out, &s->in}, *const one[] = {&s->within};
    s->kept_rank = vb_join_dims(s->kept, kept, two, 2);
    s->reduced_rank = vb_join_dims(s->reduced, reduced, one, 1);
}

/* The lines of a sort: the views without the sorted dimension, and the steps along it. */
typedef struct vb_sort_lines {
    int64_t sizes[VB_MAX_DIMS], lines, n, k;
    vb_view values, indices, in;
    int64_t values_step, indices_step, in_step;
    int rank;
} vb_sort_lines;

static inline void vb_sort_split(vb_sort_lines *s, const vb_sort_args *a) {
    vb_view *const views[] = {&s->values, &s->indices, &s->in};
    int64_t *const steps[] = {&s->values_step, &s->indices_step, &s->in_step};
    s->values = a->values, s->indices = a->indices, s->in = a->in;
    s->n = a->sizes[a->dim], s->k = a->out_sizes[a->dim], s->lines = 1;
    for (int v = 0; v < 3; v++) {
        *steps[v] = views[v]->strides[a->dim];
        for (int d = (int)a->dim; d + 1 < a->rank; d++) views[v]->strides[d] = views[v]->strides[d + 1];
    }
    for (int d = 0, to = 0; d < a->rank; d++) {
        if (d == a->dim) continue;
        s->lines *= s->sizes[to++] = a->sizes[d];
    }
    s->rank = vb_join_dims(s->sizes, a->rank - 1, views, 3);
}

/* The place of element i, in elements behind the data. */
static inline int64_t vb_place(const vb_view *v, const int64_t *sizes, int rank, int64_t i) {
    int64_t place = 0;
    for (int d = rank - 1; d >= 0; d--) {
        place += i % sizes[d] * v->strides[d];
        i /= sizes[d];
    }
    return place;
}

#endif
