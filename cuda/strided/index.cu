// index.cu: cumulative sums, and elements whose places are in memory.
//
//   cumsum   a warp has the sums of a [n] of a row where cols is 1, in pieces of 32; else a thread has a column
//   index    gather and scatter: a thread has an element, or 16 bytes of neighbours that one id names
//   moves    each element read and written once; a gather reads the elements that ids name
//   bound    memory bandwidth; gathers and scatters by the order of the ids

#include "strided/views.cuh"

namespace vb {
namespace {

constexpr int index_threads = 256;

VB_DEVICE int sum_type(int x) { return x; }
VB_DEVICE float sum_type(float x) { return x; }
VB_DEVICE float sum_type(half x) { return to_float(x); }
VB_DEVICE float sum_type(bf16 x) { return to_float(x); }
template <class T>
VB_DEVICE T element_of(float x) {
    return from_float<T>(x);
}
template <class T>
VB_DEVICE T element_of(int x) {
    return (T)x;
}

// A warp a row of n elements.
template <class T>
__global__ void __launch_bounds__(index_threads) cumsum_row_kernel(T *out, const T *in, int64_t rows, int64_t n) {
    wait_for_previous_kernel();
    release_next_kernel();
    const int lane = threadIdx.x % 32;
    const int64_t row = (int64_t)blockIdx.x * (index_threads / 32) + threadIdx.x / 32;
    if (row >= rows) return;
    using S = decltype(sum_type(T()));
    S before = 0;
    for (int64_t i = 0; i < n; i += 32) {
        S x = i + lane < n ? sum_type(in[row * n + i + lane]) : S(0);
#pragma unroll
        for (int offset = 1; offset < 32; offset *= 2) {
            const S y = __shfl_up_sync(all_lanes, x, offset);
            if (lane >= offset) x += y;
        }
        x += before;
        if (i + lane < n) out[row * n + i + lane] = element_of<T>(x);
        before = __shfl_sync(all_lanes, x, 31);
    }
}

// A thread a column.
template <class T>
__global__ void __launch_bounds__(index_threads)
    cumsum_column_kernel(T *out, const T *in, int64_t rows, int64_t n, int64_t cols) {
    wait_for_previous_kernel();
    release_next_kernel();
    const int64_t at = (int64_t)blockIdx.x * index_threads + threadIdx.x;
    if (at >= rows * cols) return;
    const int64_t first = at / cols * n * cols + at % cols;
    decltype(sum_type(T())) sum = 0;
    for (int64_t i = 0; i < n; i++) {
        sum += sum_type(in[first + i * cols]);
        out[first + i * cols] = element_of<T>(sum);
    }
}

template <class T>
vb_status cumsum(void *out, const void *in, int64_t rows, int64_t n, int64_t cols, vb_stream *stream) {
    if (cols == 1)
        return launch_overlapped(stream, (unsigned)ceil_div<int64_t>(rows, index_threads / 32), index_threads, 0,
                                 cumsum_row_kernel<T>, (T *)out, (const T *)in, rows, n);
    return launch_overlapped(stream, (unsigned)ceil_div<int64_t>(rows * cols, index_threads), index_threads, 0,
                             cumsum_column_kernel<T>, (T *)out, (const T *)in, rows, n, cols);
}

struct IndexPlan {
    View named, other, ids; // the array that ids name, without its stride along dim; the array beside ids
    int64_t sizes[VB_MAX_DIMS], n, places, step;
    Divisor divisors[VB_MAX_DIMS]; // of sizes, for fewer than 2^31 elements
    int rank;
    vb_indexing indexing;
};

struct alignas(16) Sixteen {
    uint64_t words[2];
};

// The element that the thread's id names, null where it is outside, and the one beside the id. False behind the last.
template <class T>
VB_DEVICE bool find(T **x, T **y, const IndexPlan &p) {
    int64_t i = (int64_t)blockIdx.x * index_threads + threadIdx.x;
    if (i >= p.n) return false;
    int64_t named = 0, other = 0, at = 0;
#pragma unroll
    for (int d = VB_MAX_DIMS - 1; d >= 0; d--) {
        if (d >= p.rank) continue;
        const int64_t quotient = p.n <= INT32_MAX ? (int64_t)p.divisors[d].quotient((unsigned)i) : i / p.sizes[d];
        const int64_t c = i - quotient * p.sizes[d];
        named += c * p.named.strides[d];
        other += c * p.other.strides[d];
        at += c * p.ids.strides[d];
        i = quotient;
    }
    const int id = reinterpret_cast<const int *>(p.ids.data)[at];
    *y = reinterpret_cast<T *>(p.other.data) + other;
    *x = id >= 0 && id < p.places ? reinterpret_cast<T *>(p.named.data) + named + id * p.step : nullptr;
    return true;
}

template <class T>
__global__ void __launch_bounds__(index_threads) index_kernel(const IndexPlan p) {
    wait_for_previous_kernel();
    release_next_kernel();
    T *x, *y;
    if (!find(&x, &y, p)) return;
    if (p.indexing == VB_INDEXING_GATHER) *y = x ? *x : T();
    else if (x) *x = *y;
}

// Makes one element of 16 bytes of neighbours that one id names, where all lie so.
inline bool widen_elements(IndexPlan *p) {
    const int last = p->rank - 1, each = 16 / p->named.bytes;
    if (p->ids.strides[last] != 0 || p->sizes[last] % each != 0) return false;
    for (View *v : {&p->named, &p->other}) {
        if (v->strides[last] != 1 || (uintptr_t)v->data % 16 != 0) return false;
        for (int d = 0; d < last; d++)
            if (v->strides[d] % each != 0) return false;
    }
    if (p->step % each != 0) return false;
    for (View *v : {&p->named, &p->other})
        for (int d = 0; d < last; d++) v->strides[d] /= each;
    p->step /= each, p->sizes[last] /= each, p->n /= each;
    return true;
}

// Adds F32 or I32.
template <class T>
__global__ void __launch_bounds__(index_threads) scatter_add_kernel(const IndexPlan p) {
    wait_for_previous_kernel();
    release_next_kernel();
    T *x, *y;
    if (find(&x, &y, p) && x) atomicAdd(x, *y);
}

} // namespace
} // namespace vb

using namespace vb;

extern "C" {

vb_status vb_cuda_cumsum(void *out, const void *in, vb_dtype type, int64_t rows, int64_t n, int64_t cols,
                         vb_stream *stream) {
    chosen(stream, strided_kernel_info(STRIDED_CUMSUM), "cumsum", type, "rows n cols", rows, n, cols);
    if (type == VB_I32) return cumsum<int>(out, in, rows, n, cols, stream);
    return with_float_type(type, [&](auto zero) { return cumsum<decltype(zero)>(out, in, rows, n, cols, stream); });
}

vb_status vb_cuda_index(const vb_index_args *a, vb_stream *stream) {
    const bool gathers = a->indexing == VB_INDEXING_GATHER;
    IndexPlan p = {};
    p.named = view_of(gathers ? a->in : a->out), p.other = view_of(gathers ? a->out : a->in), p.ids = view_of(a->ids);
    p.rank = (int)a->rank, p.indexing = a->indexing, p.n = 1;
    p.places = (gathers ? a->in_sizes : a->out_sizes)[a->dim];
    for (int d = 0; d < p.rank; d++) p.n *= p.sizes[d] = a->ids_sizes[d];
    p.step = p.named.strides[a->dim];
    p.named.strides[a->dim] = 0;
    chosen(stream, strided_kernel_info(STRIDED_INDEX), "index", a->in.type, "n places", p.n, p.places);
    const bool adds = a->indexing == VB_INDEXING_SCATTER_ADD, wide = !adds && widen_elements(&p);
    const unsigned blocks = (unsigned)ceil_div<int64_t>(p.n, index_threads);
    for (int d = 0; d < p.rank; d++) p.divisors[d] = divisor(p.sizes[d]);
    if (wide) return launch_overlapped(stream, blocks, index_threads, 0, index_kernel<Sixteen>, p);
    if (adds)
        return a->in.type == VB_F32 ? launch_overlapped(stream, blocks, index_threads, 0, scatter_add_kernel<float>, p)
                                    : launch_overlapped(stream, blocks, index_threads, 0, scatter_add_kernel<int>, p);
    switch (vb_element_bytes(a->in.type)) {
    case 4: return launch_overlapped(stream, blocks, index_threads, 0, index_kernel<unsigned>, p);
    case 2: return launch_overlapped(stream, blocks, index_threads, 0, index_kernel<unsigned short>, p);
    default: return launch_overlapped(stream, blocks, index_threads, 0, index_kernel<unsigned char>, p);
    }
}

} // extern "C"
