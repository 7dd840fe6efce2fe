// reduce.cu: reductions over dimensions of strided arrays.
//
//   grid     (results, parts of a result); a block of 256 threads has some results, a thread takes every so-manieth
//            element of one, four at a time; or four neighbours, of one result or of four, four times at a time
//   shared   the states of the threads, which are merged in a tree
//   moves    each element read once; with several parts a state of 12 bytes a part, merged by a second kernel
//   bound    memory bandwidth
//
// States are float32: sums of a thread's elements, merged as a tree. Variances are merged as Chan, Golub & LeVeque
// (1983) do.

#include "strided/views.cuh"

namespace vb {
namespace {

struct State {
    float a, b;
    int i; // an integer result, a number, or how many elements
};

struct ReducePlan {
    View out, in, within; // strides along the kept dimensions, and of in along the reduced ones
    Divisor kept[VB_MAX_DIMS], reduced[VB_MAX_DIMS];
    int kept_rank, reduced_rank, results_log;
    int64_t results, places;
    bool columns;
    unsigned not_zero; // VB_REDUCTION_ANY, ALL: bits of which an element but 0 and -0 has some
    float parameter, divisor;
    State *states; // [part][result] where there are several parts
};

constexpr int no_number = 0x7fffffff;

VB_DEVICE bool before_it(float x, float best, bool greatest) {
    return (greatest ? x > best : x < best) || (x != x && best == best);
}

// The arithmetic of a reduction; INTS where elements are integers.
template <int R, bool INTS>
struct Reducer {
    static constexpr bool greatest = R == VB_REDUCTION_MAX || R == VB_REDUCTION_ARGMAX;
    static constexpr bool named = R == VB_REDUCTION_ARGMAX || R == VB_REDUCTION_ARGMIN;
    static constexpr bool ordered = named || R == VB_REDUCTION_MAX || R == VB_REDUCTION_MIN;

    static VB_DEVICE State none() {
        if (R == VB_REDUCTION_PROD) return {1.0f, 0.0f, 1};
        if (R == VB_REDUCTION_ALL) return {0.0f, 0.0f, -1};
        if (R == VB_REDUCTION_LOGSUMEXP) return {__int_as_float(0xff800000), 0.0f, 0};
        if (ordered) return {0.0f, 0.0f, named ? no_number : 0}; // b is whether there is an element
        return {0.0f, 0.0f, 0};
    }

    static VB_DEVICE bool better(const State &s, float x, int i, int number) {
        if (s.b == 0.0f) return true;
        if (INTS) {
            const int best = __float_as_int(s.a);
            return (greatest ? i > best : i < best) || (named && i == best && number < s.i);
        }
        return before_it(x, s.a, greatest) ||
               (named && (x == s.a || (x != x && s.a != s.a)) && number < s.i);
    }

    static VB_DEVICE void take(State &s, unsigned bits, int number, float parameter, unsigned not_zero) {
        const float x = __uint_as_float(bits);
        const int i = (int)bits;
        if (R == VB_REDUCTION_SUM) {
            if (INTS) s.i += i;
            else s.a += x;
        } else if (R == VB_REDUCTION_PROD) {
            if (INTS) s.i = (int)((unsigned)s.i * bits);
            else s.a *= x;
        } else if (ordered) {
            if (better(s, x, i, number)) s = {x, 1.0f, number};
        } else if (R == VB_REDUCTION_ANY) {
            s.i |= (int)(bits & not_zero);
        } else if (R == VB_REDUCTION_ALL) {
            s.i = (int)smaller((unsigned)s.i, bits & not_zero);
        } else if (R == VB_REDUCTION_VAR) {
            s.i++;
            const float d = x - s.a;
            s.a += __fdividef(d, (float)s.i);
            s.b += d * (x - s.a);
        } else if (R == VB_REDUCTION_NORM) {
            if (parameter == 2.0f) s.a += x * x;
            else if (parameter == 1.0f) s.a += fabsf(x);
            else s.a = Max::combine(s.a, fabsf(x));
        } else if (R == VB_REDUCTION_LOGSUMEXP) {
            take_exp(s, x, 1.0f);
        }
    }

    // Adds exp(x) * many.
    static VB_DEVICE void take_exp(State &s, float x, float many) {
        if (many == 0.0f || x == __int_as_float(0xff800000)) return;
        if (x == s.a) {
            s.b += many;
        } else if (x > s.a) {
            s.b = s.b * expf(s.a - x) + many;
            s.a = x;
        } else {
            s.b += expf(x - s.a) * many; // NaN stays
        }
    }

    static VB_DEVICE void merge(State &s, const State &o, float parameter) {
        if (R == VB_REDUCTION_SUM) {
            s.a += o.a, s.i += o.i;
        } else if (R == VB_REDUCTION_PROD) {
            s.a *= o.a, s.i = (int)((unsigned)s.i * (unsigned)o.i);
        } else if (ordered) {
            if (o.b != 0.0f && better(s, o.a, __float_as_int(o.a), o.i)) s = o;
        } else if (R == VB_REDUCTION_ANY) {
            s.i |= o.i;
        } else if (R == VB_REDUCTION_ALL) {
            s.i = (int)smaller((unsigned)s.i, (unsigned)o.i);
        } else if (R == VB_REDUCTION_VAR) {
            if (o.i == 0) return;
            const float n = (float)s.i + (float)o.i, d = o.a - s.a, share = (float)o.i / n;
            s.a += d * share;
            s.b += o.b + d * d * (float)s.i * share;
            s.i += o.i;
        } else if (R == VB_REDUCTION_NORM) {
            if (parameter > 2.0f) s.a = Max::combine(s.a, o.a);
            else s.a += o.a;
        } else if (R == VB_REDUCTION_LOGSUMEXP) {
            if (o.b != o.b) s.b = o.b;
            else take_exp(s, o.a, o.b);
        }
    }

    static VB_DEVICE unsigned result(const State &s, float parameter, float divisor) {
        if (R == VB_REDUCTION_ANY || R == VB_REDUCTION_ALL) return s.i != 0;
        if (named || (INTS && !ordered)) return (unsigned)s.i;
        if (R == VB_REDUCTION_SUM) return __float_as_uint(s.a / divisor);
        if (R == VB_REDUCTION_VAR) return __float_as_uint(s.b / divisor);
        if (R == VB_REDUCTION_NORM) return __float_as_uint(parameter == 2.0f ? sqrtf(s.a) : s.a);
        if (R == VB_REDUCTION_LOGSUMEXP) return __float_as_uint(s.a + logf(s.b));
        return __float_as_uint(s.a);
    }
};

VB_DEVICE int64_t place_of(const View &v, const Divisor *sizes, int rank, int64_t i) {
    if (rank == 1) return i * v.strides[0];
    int64_t place = 0;
#pragma unroll
    for (int d = VB_MAX_DIMS - 1; d >= 0; d--) {
        if (d >= rank) continue;
        const int64_t quotient = i <= 0x7fffffff ? (int64_t)sizes[d].quotient((unsigned)i) : i / sizes[d].by;
        place += (i - quotient * sizes[d].by) * v.strides[d];
        i = quotient;
    }
    return place;
}

// Merges the states of the threads of each result of a block; the first thread of a result has it.
template <class Op>
VB_DEVICE void merge_block(State &s, State *shared, int results, bool columns, float parameter) {
    const int tid = threadIdx.x, workers = REDUCE_THREADS / results;
    const int worker = columns ? tid / results : tid % workers, step = columns ? results : 1;
    shared[tid] = s;
    __syncthreads();
    for (int half = workers / 2; half > 0; half /= 2) {
        if (worker < half) {
            Op::merge(s, shared[tid + half * step], parameter);
            shared[tid] = s;
        }
        __syncthreads();
    }
}

// One access of a thread reads WITHIN neighbours of one result, or an element each of ACROSS neighbouring results: 4 or
// 1.
template <int R, bool INTS, int WITHIN, int ACROSS>
__global__ void __launch_bounds__(REDUCE_THREADS) reduce_kernel(const ReducePlan p) {
    using Op = Reducer<R, INTS>;
    wait_for_previous_kernel();
    release_next_kernel();
    __shared__ State shared[REDUCE_THREADS];
    constexpr int unroll = 4, width = WITHIN * ACROSS;
    const int results = 1 << p.results_log, workers = REDUCE_THREADS >> p.results_log, tid = threadIdx.x;
    const int mine = p.columns ? tid & (results - 1) : tid / workers;
    const int worker = p.columns ? tid >> p.results_log : tid % workers;
    const int64_t first = ((int64_t)blockIdx.x * results + mine) * ACROSS;
    State s[ACROSS];
#pragma unroll
    for (int e = 0; e < ACROSS; e++) s[e] = Op::none();
    if (first < p.results) {
        const char *const data = p.in.data + place_of(p.in, p.kept, p.kept_rank, first) * p.in.bytes;
        const int64_t step = (int64_t)workers * gridDim.y * WITHIN;
        for (int64_t i = ((int64_t)blockIdx.y * workers + worker) * WITHIN; i < p.places; i += unroll * step) {
            unsigned x[unroll * width];
#pragma unroll
            for (int u = 0; u < unroll; u++) {
                const int64_t number = i + u * step;
                if (number < p.places)
                    load_raw<width>(x + u * width, data, p.in.bytes,
                                    WITHIN > 1 ? number : place_of(p.within, p.reduced, p.reduced_rank, number), width,
                                    false);
            }
            widen<unroll * width, width>(x, p.in.type);
#pragma unroll
            for (int u = 0; u < unroll; u++)
#pragma unroll
                for (int e = 0; e < width; e++)
                    if (i + u * step < p.places)
                        Op::take(s[e % ACROSS], x[u * width + e], (int)(i + u * step) + e / ACROSS, p.parameter,
                                 p.not_zero);
        }
    }
#pragma unroll 1
    for (int e = 0; e < ACROSS; e++) { // the next result moves to place 0
        merge_block<Op>(s[0], shared, results, p.columns, p.parameter);
        const int64_t result = first + e;
        if (worker == 0 && result < p.results) {
            if (gridDim.y > 1) p.states[blockIdx.y * p.results + result] = s[0];
            else store_element(p.out.data, p.out.type, place_of(p.out, p.kept, p.kept_rank, result),
                               Op::result(s[0], p.parameter, p.divisor));
        }
#pragma unroll
        for (int next = 1; next < ACROSS; next++) s[next - 1] = s[next];
    }
}

// Merges the parts of `results` results a block. Neighbouring threads have a result each, which the threads `results`
// apart share.
template <int R, bool INTS>
__global__ void __launch_bounds__(REDUCE_THREADS) merge_kernel(const ReducePlan p, int parts, int results) {
    using Op = Reducer<R, INTS>;
    wait_for_previous_kernel();
    release_next_kernel();
    __shared__ State shared[REDUCE_THREADS];
    const int worker = threadIdx.x / results;
    const int64_t result = (int64_t)blockIdx.x * results + threadIdx.x % results;
    State s = Op::none();
    if (result < p.results)
        for (int part = worker; part < parts; part += REDUCE_THREADS / results)
            Op::merge(s, p.states[part * p.results + result], p.parameter);
    merge_block<Op>(s, shared, results, true, p.parameter);
    if (worker == 0 && result < p.results)
        store_element(p.out.data, p.out.type, place_of(p.out, p.kept, p.kept_rank, result),
                      Op::result(s, p.parameter, p.divisor));
}

template <int R, bool INTS>
vb_status reduce(ReducePlan p, const reduce_plan &plan, vb_stream *stream) {
    void *states = nullptr;
    if (plan.parts > 1) VB_TRY(workspace(&states, p.results * plan.parts * (int64_t)sizeof(State), stream));
    p.states = (State *)states;
    const auto kernel = plan.width == 1 ? reduce_kernel<R, INTS, 1, 1>
                        : p.columns ? reduce_kernel<R, INTS, 1, 4> : reduce_kernel<R, INTS, 4, 1>;
    const dim3 grid((unsigned)plan.blocks, (unsigned)plan.parts);
    VB_TRY(launch_overlapped(stream, grid, REDUCE_THREADS, 0, kernel, p));
    if (plan.parts == 1) return VB_OK;
    int results = REDUCE_THREADS; // of a block of merge_kernel
    while (results > 1 && REDUCE_THREADS / results < plan.parts) results /= 2;
    return launch_overlapped(stream, (unsigned)ceil_div<int64_t>(p.results, results), REDUCE_THREADS, 0,
                             merge_kernel<R, INTS>, p, (int)plan.parts, results);
}

} // namespace
} // namespace vb

using namespace vb;

extern "C" vb_status vb_cuda_reduce(const vb_reduce_args *args, vb_stream *stream) {
    vb_reduce_dims dims;
    vb_reduce_split(&dims, args);
    const reduce_plan plan = choose_strided_reduce(&dims, &gpu_of(stream));
    chosen(stream, strided_kernel_info(plan.kernel), "reduce", args->in.type, "results places parts", dims.results,
           dims.places, plan.parts);
    ReducePlan p = {};
    p.out = view_of(dims.out), p.in = view_of(dims.in), p.within = view_of(dims.within);
    for (int d = 0; d < dims.kept_rank; d++) p.kept[d] = divisor(dims.kept[d]);
    for (int d = 0; d < dims.reduced_rank; d++) p.reduced[d] = divisor(dims.reduced[d]);
    p.kept_rank = dims.kept_rank, p.reduced_rank = dims.reduced_rank;
    p.results = dims.results, p.places = dims.places;
    p.columns = plan.kernel == STRIDED_REDUCE_COLUMNS;
    p.parameter = args->parameter;
    while (1 << p.results_log < plan.results) p.results_log++;
    const bool ints = vb_is_integer(args->in.type);
    p.not_zero = ints ? 0xffffffffu : 0x7fffffffu;
    p.divisor = args->reduction == VB_REDUCTION_MEAN  ? (float)p.places
                : args->reduction == VB_REDUCTION_VAR ? fmaxf(0.0f, (float)p.places - p.parameter)
                                                      : 1.0f;
#define ONE(R)                                                                                                         \
    case R: return reduce<R, false>(p, plan, stream);
#define BOTH(R)                                                                                                        \
    case R: return ints ? reduce<R, true>(p, plan, stream) : reduce<R, false>(p, plan, stream);
    switch (args->reduction) {
    case VB_REDUCTION_MEAN: return reduce<VB_REDUCTION_SUM, false>(p, plan, stream);
        BOTH(VB_REDUCTION_SUM)
        BOTH(VB_REDUCTION_PROD)
        BOTH(VB_REDUCTION_MAX)
        BOTH(VB_REDUCTION_MIN)
        BOTH(VB_REDUCTION_ARGMAX)
        BOTH(VB_REDUCTION_ARGMIN)
        ONE(VB_REDUCTION_ANY)
        ONE(VB_REDUCTION_ALL)
        ONE(VB_REDUCTION_VAR)
        ONE(VB_REDUCTION_NORM)
        ONE(VB_REDUCTION_LOGSUMEXP)
    default: return VB_UNSUPPORTED;
    }
}
