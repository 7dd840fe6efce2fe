// map.cu: expressions of elements over arrays with strides.
//
//   grid     256 threads (fewer where many values of an expression live at once); a thread computes 16 elements of one
//            step, or 8 of an expression: groups of four neighbours, a block's groups apart; 4 single elements of any
//            strides
//   shared   4 bytes an element for each value that is used after the next step
//   moves    each input read and the output written once; a step of an expression is a read of shared memory and a
//            jump, which eight elements share
//   bound    memory bandwidth; expressions of more than about five steps by the steps
//
// A step's operand is the value of the step before (in registers), a place in shared memory, or a constant; the
// launcher decides. Arrays of 2^31 elements and more are computed in parts.

#include "strided/contiguous.cuh"
#include "strided/steps.cuh"
#include "strided/views.cuh"

namespace vb {
namespace {

constexpr int most_threads = 256;
constexpr int least_threads = 32;

// Where an operand is: a place (of an input, or in shared memory), the value before, or a constant.
constexpr int before = 64, constants = 128;

struct Step {
    unsigned char op, operand[3];
    unsigned char to; // the place in shared memory that keeps the value; `before` for none
};

struct Plan {
    View out, in[VB_MAX_INPUTS];
    Divisor sizes[VB_MAX_DIMS];
    unsigned n;
    int rank, inputs, steps, places;
    Step step[VB_MAX_STEPS];
    unsigned constant[2 * VB_MAX_STEPS];
};

// ---- kernels --------------------------------------------------------------------------------------------------------

// at[v] = the place of element i in view v, the output first.
template <int VIEWS>
VB_DEVICE void places(const Plan &p, unsigned i, int64_t *at) {
    if (p.rank == 1) {
        at[0] = i * p.out.strides[0];
#pragma unroll
        for (int v = 1; v < VIEWS; v++) at[v] = i * p.in[v - 1].strides[0];
        return;
    }
#pragma unroll
    for (int v = 0; v < VIEWS; v++) at[v] = 0;
#pragma unroll
    for (int d = VB_MAX_DIMS - 1; d >= 0; d--) {
        if (d >= p.rank) continue;
        const unsigned quotient = p.sizes[d].quotient(i), c = i - quotient * p.sizes[d].by;
        at[0] += c * p.out.strides[d];
#pragma unroll
        for (int v = 1; v < VIEWS; v++) at[v] += c * p.in[v - 1].strides[d];
        i = quotient;
    }
}

// The elements of a thread: GROUPS of four neighbours where VECTORS, else as many single elements.
template <bool SINGLE, bool VECTORS>
__global__ void __launch_bounds__(most_threads) map_kernel(const Plan p) {
    wait_for_previous_kernel();
    release_next_kernel();
    constexpr int GROUPS = !VECTORS ? 4 : SINGLE ? 4 : 2, EACH_GROUP = VECTORS ? 4 : 1, N = GROUPS * EACH_GROUP;
    constexpr int VIEWS = 1 + (SINGLE ? 3 : VB_MAX_INPUTS);
    extern __shared__ unsigned kept[]; // [place][group][thread][neighbour]
    const unsigned threads = blockDim.x, first = blockIdx.x * threads * GROUPS + threadIdx.x;
    int64_t to[GROUPS];
    const auto index = [&](int e) { return (first + e / EACH_GROUP * threads) * EACH_GROUP + e % EACH_GROUP; };

    unsigned raw[SINGLE ? 3 : VB_MAX_INPUTS][N];
#pragma unroll
    for (int g = 0; g < GROUPS; g++) {
        const unsigned i = index(g * EACH_GROUP);
        if (i >= p.n) break;
        int64_t at[VIEWS];
        places<VIEWS>(p, i, at);
        to[g] = at[0];
#pragma unroll
        for (int v = 0; v < VIEWS - 1; v++)
            if (v < p.inputs && p.in[v].data) { // none: a constant
                const View &in = p.in[v];
                load_raw<EACH_GROUP>(raw[v] + g * EACH_GROUP, in.data, in.bytes, at[1 + v], p.n - i,
                                     VECTORS && in.strides[p.rank - 1] == 0);
            }
    }
#pragma unroll
    for (int v = 0; v < VIEWS - 1; v++)
        if (v < p.inputs && p.in[v].data) {
            widen<N, EACH_GROUP>(raw[v], p.in[v].type);
            if (!SINGLE) {
#pragma unroll
                for (int e = 0; e < N; e++)
                    kept[((v * GROUPS + e / EACH_GROUP) * threads + threadIdx.x) * EACH_GROUP + e % EACH_GROUP] =
                        raw[v][e];
            }
        }

    if (SINGLE) {
        // Operands that are constants, or an input again; the others are in their places already.
        const Step &s = p.step[0];
        const auto fill = [&](unsigned *operand, int k) {
            if (s.operand[k] >= constants) {
                const unsigned value = p.constant[s.operand[k] - constants];
                EACH operand[e] = value;
            }
        };
        fill(raw[0], 0);
        fill(raw[1], 1);
        fill(raw[2], 2);
        perform<N, EACH_GROUP>(s.op, raw[0], raw[1], raw[2], index);
    } else {
        unsigned *const x = raw[0], *const y = raw[1], *const z = raw[2];
        const auto fetch = [&](unsigned *operand, int where) {
            if (where >= constants) {
                const unsigned value = p.constant[where - constants];
                EACH operand[e] = value;
            } else {
#pragma unroll
                for (int g = 0; g < GROUPS; g++)
#pragma unroll
                    for (int e = 0; e < EACH_GROUP; e++)
                        operand[g * EACH_GROUP + e] =
                            kept[((where * GROUPS + g) * threads + threadIdx.x) * EACH_GROUP + e];
            }
        };
#pragma unroll 1
        for (int step = 0; step < p.steps; step++) {
            const Step s = p.step[step];
            // The value before is in x. It is moved first to where it is taken, as x itself may be fetched.
            if (s.operand[1] == before) EACH y[e] = x[e];
            else fetch(y, s.operand[1]);
            if (s.operand[2] == before) EACH z[e] = x[e];
            else if (s.op == VB_ELEMENT_WHERE || s.op == VB_ELEMENT_RANDOM) fetch(z, s.operand[2]);
            if (s.operand[0] != before) fetch(x, s.operand[0]);
            perform<N, EACH_GROUP>(s.op, x, y, z, index);
            if (s.to != before) {
#pragma unroll
                for (int g = 0; g < GROUPS; g++)
#pragma unroll
                    for (int e = 0; e < EACH_GROUP; e++)
                        kept[((s.to * GROUPS + g) * threads + threadIdx.x) * EACH_GROUP + e] = x[g * EACH_GROUP + e];
            }
        }
    }

#pragma unroll
    for (int g = 0; g < GROUPS; g++) {
        const unsigned i = index(g * EACH_GROUP);
        if (i >= p.n) break;
        if (!VECTORS) {
            store_element(p.out.data, p.out.type, to[g], raw[0][g]);
        } else if (p.n - i >= 4) {
            store_four(p.out.data, p.out.type, to[g], raw[0] + g * EACH_GROUP);
        } else {
#pragma unroll
            for (int e = 0; e < EACH_GROUP; e++)
                if (i + e < p.n) store_element(p.out.data, p.out.type, to[g] + e, raw[0][g * EACH_GROUP + e]);
        }
    }
}

// ---- the launcher ---------------------------------------------------------------------------------------------------

// The step that takes value v last; -1 where none does.
inline int last_use(const vb_map_args *a, int v) {
    for (int s = (int)a->steps - 1; s >= 0; s--) {
        const vb_step &p = a->program[s];
        const int32_t values[3] = {p.a, p.b, p.c};
        for (int k = 0; k < vb_step_operands(p.op); k++)
            if (values[k] == v) return s;
    }
    return -1;
}

inline bool is_constant(vb_element_op op) { return op == VB_ELEMENT_CONSTANT || op == VB_ELEMENT_INTEGER; }

// Whether at most one step computes values beside constants: *found, the last, or none where input 0 is copied.
inline bool single_step(const vb_step **found, const vb_map_args *a) {
    int left = 0;
    for (int s = 0; s < a->steps; s++) left += !is_constant(a->program[s].op);
    if (a->steps > 0) *found = &a->program[a->steps - 1];
    return left == 0 || (left == 1 && !is_constant((*found)->op));
}

// The operation of a step that takes integers or floats.
inline unsigned char op_of(const vb_step &step, const unsigned char *ints) {
    const int takes = vb_step_operands(step.op);
    const int32_t values[3] = {step.a, step.b, step.c};
    const bool integers = takes > 0 && ints[values[takes - 1]] && step.op != VB_ELEMENT_WHERE &&
                          step.op != VB_ELEMENT_TO_FLOAT;
    return (unsigned char)(step.op + (integers ? of_integers : 0));
}

// A step's constant, as its index among the constants of the plan.
inline unsigned char constant_of(Plan *plan, int *made, int32_t value) {
    plan->constant[*made] = (unsigned)value;
    return (unsigned char)(constants + (*made)++);
}

// One step, or a copy: operand k is input k of the plan, or a constant.
inline void plan_single(Plan *plan, const vb_map_args *a, const vb_step *step, const unsigned char *ints) {
    Step &to = plan->step[0];
    to = Step{VB_ELEMENT_CONSTANT, {before, before, before}, before};
    plan->steps = plan->inputs = 1;
    if (!step) {
        plan->in[0] = view_of(a->in[0]);
        return;
    }
    int made = 0;
    const int32_t values[3] = {step->a, step->b, step->c};
    plan->inputs = vb_step_operands(step->op);
    to.op = op_of(*step, ints);
    for (int k = 0; k < 3; k++) {
        if (k >= plan->inputs) {
            if ((is_constant(step->op) && k == 0) || step->op == VB_ELEMENT_RANDOM)
                to.operand[k] = constant_of(plan, &made, values[k]);
        } else if (values[k] < a->inputs) {
            plan->in[k] = view_of(a->in[values[k]]);
        } else {
            to.operand[k] = constant_of(plan, &made, a->program[values[k] - a->inputs].a);
        }
    }
}

// Gives the steps their operands, and gives places to values that are used after the next step.
inline void plan_steps(Plan *plan, const vb_map_args *a, const unsigned char *ints) {
    const int inputs = (int)a->inputs, count = inputs + (int)a->steps;
    int where[VB_MAX_INPUTS + VB_MAX_STEPS], made = 0, newest = -1;
    bool taken[VB_MAX_INPUTS + VB_MAX_STEPS] = {};
    plan->places = plan->inputs = inputs;
    for (int v = 0; v < inputs; v++) {
        plan->in[v] = view_of(a->in[v]);
        where[v] = v;
        taken[v] = true;
    }
    for (int v = inputs; v < count; v++) {
        const int s = v - inputs, takes = vb_step_operands(a->program[s].op);
        const vb_step &p = a->program[s];
        const int32_t values[3] = {p.a, p.b, p.c};
        Step step = {op_of(p, ints), {before, before, before}, before};
        if (is_constant(p.op)) {
            where[v] = step.operand[0] = constant_of(plan, &made, p.a);
            if (v < count - 1) continue;
        }
        if (p.op == VB_ELEMENT_RANDOM)
            for (int k = 0; k < 3; k++) step.operand[k] = constant_of(plan, &made, values[k]);
        for (int k = 0; k < takes; k++)
            if (values[k] != newest) step.operand[k] = (unsigned char)where[values[k]];
        // Places of values that no later step takes are free again.
        for (int w = 0; w < v; w++)
            if (where[w] < before && last_use(a, w) <= s) {
                taken[where[w]] = false;
                where[w] = before;
            }
        newest = v;
        where[v] = before;
        int next = s + 1; // that computes
        while (next < a->steps && is_constant(a->program[next].op)) next++;
        if (last_use(a, v) > next) {
            int place = 0;
            while (taken[place]) place++;
            taken[place] = true;
            where[v] = place;
            step.to = (unsigned char)place;
            if (place >= plan->places) plan->places = place + 1;
        }
        plan->step[plan->steps++] = step;
    }
}

template <bool SINGLE, bool VECTORS>
vb_status launch_map(const Plan &plan, vb_stream *stream) {
    constexpr int elements = !VECTORS ? 4 : SINGLE ? 16 : 8;
    constexpr int64_t most_shared = 48 << 10;
    int threads = most_threads;
    const int64_t each = SINGLE ? 0 : (int64_t)plan.places * elements * 4;
    while (threads > least_threads && each * threads > most_shared) threads /= 2;
    const int64_t blocks = ceil_div<int64_t>(plan.n, (int64_t)threads * elements);
    return launch_overlapped(stream, (unsigned)blocks, threads, each * threads, map_kernel<SINGLE, VECTORS>, plan);
}

// Computes the elements, in parts of less than 2^31.
vb_status run_map(strided_kernel kernel, Plan plan, int64_t *sizes, vb_stream *stream) {
    int64_t n = 1;
    for (int d = 0; d < plan.rank; d++) n *= sizes[d];
    if (n > INT32_MAX) {
        int d = 0;
        while (sizes[d] == 1) d++;
        const int64_t size = sizes[d], half_size = size / 2 / 4 * 4 > 0 ? size / 2 / 4 * 4 : size / 2;
        sizes[d] = half_size;
        VB_TRY(run_map(kernel, plan, sizes, stream));
        plan.out.data += half_size * plan.out.strides[d] * vb_element_bytes(plan.out.type);
        for (int v = 0; v < plan.inputs; v++)
            plan.in[v].data += half_size * plan.in[v].strides[d] * vb_element_bytes(plan.in[v].type);
        sizes[d] = size - half_size;
        const vb_status status = run_map(kernel, plan, sizes, stream);
        sizes[d] = size;
        return status;
    }
    plan.n = (unsigned)n;
    for (int d = 0; d < plan.rank; d++) plan.sizes[d] = divisor(sizes[d]);
    switch (kernel) {
    case STRIDED_STEP_VECTORS: return launch_map<true, true>(plan, stream);
    case STRIDED_STEP_ELEMENTS: return launch_map<true, false>(plan, stream);
    case STRIDED_PROGRAM_VECTORS: return launch_map<false, true>(plan, stream);
    default: return launch_map<false, false>(plan, stream);
    }
}

} // namespace
} // namespace vb

using namespace vb;

extern "C" vb_status vb_cuda_map(const vb_map_args *args, vb_stream *stream) {
    vb_map_args a = *args;
    vb_view *views[1 + VB_MAX_INPUTS] = {&a.out};
    for (int i = 0; i < a.inputs; i++) views[1 + i] = &a.in[i];
    a.rank = vb_join_dims(a.sizes, a.rank, views, 1 + (int)a.inputs);
    unsigned char ints[VB_MAX_INPUTS + VB_MAX_STEPS];
    vb_map_kinds(ints, &a);
    const vb_step *step = nullptr;
    const bool single = single_step(&step, &a);
    const strided_kernel kernel = choose_strided_map(&a, single ? step : nullptr, single);
    chosen(stream, strided_kernel_info(kernel), "map", a.out.type, "inputs steps rank inner", a.inputs, a.steps, a.rank,
           a.sizes[a.rank - 1]);
    if (kernel == STRIDED_CONTIGUOUS) return map_contiguous(a, *step, stream);
    if (kernel == STRIDED_TRANSPOSE) return copy_transposed(a, stream);
    if (kernel == STRIDED_BYTES) return map_bytes(a, *step, stream);
    if (kernel == STRIDED_RANDOM) return map_random(a, *step, stream);
    Plan plan = {};
    plan.out = view_of(a.out);
    plan.rank = (int)a.rank;
    if (single) plan_single(&plan, &a, step, ints);
    else plan_steps(&plan, &a, ints);
    return run_map(kernel, plan, a.sizes, stream);
}
