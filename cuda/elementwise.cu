// elementwise.cu: add, mul, mul_scalar, silu, swiglu, copy, increment.
//
// out[i] = f(a[i], b[i]) in float32, for F32, F16 and BF16; any n, in place allowed.
//   grid     256 threads a block; a thread takes UNROLL vectors of 16 bytes, 256 vectors apart, so that each load of a
//            warp is 512 contiguous bytes and UNROLL (or twice that) loads are under way. One vector a thread where
//            the GPU would not be full otherwise.
//   shared   none
//   moves    (inputs + 1) * n * sizeof(T) bytes; a few FLOPs an element (SiLU: about 20)
//   bound    memory bandwidth; below about 1 MiB the launch

#include "common.cuh"

namespace vb {
namespace {

constexpr int threads = 256;

struct AddOp {
    VB_DEVICE float operator()(float a, float b) const { return a + b; }
};
struct MulOp {
    VB_DEVICE float operator()(float a, float b) const { return a * b; }
};
struct MulScalarOp {
    float scalar;
    VB_DEVICE float operator()(float a, float) const { return a * scalar; }
};
// a / (1 + exp(-a)): for a < -88 the exponential is inf and the quotient -0, the limit.
VB_DEVICE float silu(float a) { return a / (1.0f + expf(-a)); }
struct SiluOp {
    VB_DEVICE float operator()(float a, float) const { return silu(a); }
};
struct SwigluOp {
    VB_DEVICE float operator()(float gate, float up) const { return silu(gate) * up; }
};

// INPUTS is 1 or 2. Without `aligned` (a pointer is not a multiple of 16 bytes) all of n is done element by element.
template <class T, class Op, int INPUTS, int UNROLL>
__global__ void __launch_bounds__(threads) map_kernel(T *out, const T *a, const T *b, int64_t n, bool aligned, Op op) {
    wait_for_previous_kernel();
    release_next_kernel();
    using V = typename Wide<T>::type;
    const int64_t vectors = aligned ? n / V::size : 0;
    const int64_t first = (int64_t)blockIdx.x * (threads * UNROLL) + threadIdx.x;
    V x[UNROLL], y[UNROLL];
#pragma unroll
    for (int u = 0; u < UNROLL; u++) {
        const int64_t i = first + u * threads;
        if (i < vectors) {
            x[u] = reinterpret_cast<const V *>(a)[i];
            if (INPUTS == 2) y[u] = reinterpret_cast<const V *>(b)[i];
        }
    }
#pragma unroll
    for (int u = 0; u < UNROLL; u++) {
        const int64_t i = first + u * threads;
        if (i < vectors) {
#pragma unroll
            for (int e = 0; e < V::size; e++)
                x[u].at[e] = from_float<T>(op(to_float(x[u].at[e]), INPUTS == 2 ? to_float(y[u].at[e]) : 0.0f));
            reinterpret_cast<V *>(out)[i] = x[u];
        }
    }
    // What is left over: less than a vector, or everything.
    const int64_t stride = (int64_t)gridDim.x * threads;
    for (int64_t i = vectors * V::size + (int64_t)blockIdx.x * threads + threadIdx.x; i < n; i += stride)
        out[i] = from_float<T>(op(to_float(a[i]), INPUTS == 2 ? to_float(b[i]) : 0.0f));
}

// Blocks for n elements, at most 2^31 - 1 (the kernel's remainder loop is what a larger n would need: 2^43 elements).
template <class T>
int64_t map_blocks(int64_t n, int unroll) {
    return ceil_div<int64_t>(ceil_div<int64_t>(n, Wide<T>::size), threads * unroll);
}

template <int INPUTS, class Op>
vb_status map(void *out, const void *a, const void *b, vb_dtype type, int64_t n, Op op, vb_stream *stream) {
    const bool aligned = aligned16(out, a, b);
    return with_float_type(type, [&](auto zero) {
        using T = decltype(zero);
        constexpr int unroll = 2; // four were 3 % slower with one input on an H200
        T *o = (T *)out;
        const T *x = (const T *)a, *y = (const T *)b;
        if (map_blocks<T>(n, 1) <= 16 * multiprocessors(stream))
            return launch_overlapped(stream, (unsigned)map_blocks<T>(n, 1), threads, 0, map_kernel<T, Op, INPUTS, 1>, o, x,
                                     y, n, aligned, op);
        return launch_overlapped(stream, (unsigned)map_blocks<T>(n, unroll), threads, 0,
                                 map_kernel<T, Op, INPUTS, unroll>, o, x, y, n, aligned, op);
    });
}

// Bytes, whatever they mean.
template <int UNROLL>
__global__ void __launch_bounds__(threads) copy_kernel(char *out, const char *in, int64_t bytes, bool aligned) {
    wait_for_previous_kernel();
    release_next_kernel();
    const int64_t vectors = aligned ? bytes / 16 : 0;
    const int64_t first = (int64_t)blockIdx.x * (threads * UNROLL) + threadIdx.x;
    uint4 x[UNROLL];
#pragma unroll
    for (int u = 0; u < UNROLL; u++)
        if (first + u * threads < vectors) x[u] = reinterpret_cast<const uint4 *>(in)[first + u * threads];
#pragma unroll
    for (int u = 0; u < UNROLL; u++)
        if (first + u * threads < vectors) reinterpret_cast<uint4 *>(out)[first + u * threads] = x[u];
    const int64_t stride = (int64_t)gridDim.x * threads;
    for (int64_t i = vectors * 16 + (int64_t)blockIdx.x * threads + threadIdx.x; i < bytes; i += stride) out[i] = in[i];
}

__global__ void __launch_bounds__(threads) increment_kernel(int32_t *x, int64_t n) {
    wait_for_previous_kernel();
    release_next_kernel();
    const int64_t i = (int64_t)blockIdx.x * threads + threadIdx.x;
    if (i < n) x[i]++;
}

} // namespace
} // namespace vb

using namespace vb;

extern "C" {

vb_status vb_cuda_add(void *out, const void *a, const void *b, vb_dtype type, int64_t n, vb_stream *stream) {
    return map<2>(out, a, b, type, n, AddOp(), stream);
}

vb_status vb_cuda_mul(void *out, const void *a, const void *b, vb_dtype type, int64_t n, vb_stream *stream) {
    return map<2>(out, a, b, type, n, MulOp(), stream);
}

vb_status vb_cuda_mul_scalar(void *out, const void *a, float scalar, vb_dtype type, int64_t n, vb_stream *stream) {
    return map<1>(out, a, a, type, n, MulScalarOp{scalar}, stream);
}

vb_status vb_cuda_silu(void *out, const void *a, vb_dtype type, int64_t n, vb_stream *stream) {
    return map<1>(out, a, a, type, n, SiluOp(), stream);
}

vb_status vb_cuda_swiglu(void *out, const void *gate, const void *up, vb_dtype type, int64_t n, vb_stream *stream) {
    return map<2>(out, gate, up, type, n, SwigluOp(), stream);
}

vb_status vb_cuda_copy(void *out, const void *in, vb_dtype type, int64_t n, vb_stream *stream) {
    const int64_t bytes = bytes_of(type, n);
    const bool aligned = aligned16(out, in);
    const int64_t blocks = ceil_div<int64_t>(bytes, 16 * threads);
    if (blocks <= 16 * multiprocessors(stream))
        return launch_overlapped(stream, (unsigned)blocks, threads, 0, copy_kernel<1>, (char *)out, (const char *)in, bytes,
                                 aligned);
    return launch_overlapped(stream, (unsigned)ceil_div<int64_t>(blocks, 2), threads, 0, copy_kernel<2>, (char *)out,
                             (const char *)in, bytes, aligned);
}

vb_status vb_cuda_increment_i32(int32_t *x, int64_t n, vb_stream *stream) {
    return launch_overlapped(stream, (unsigned)ceil_div<int64_t>(n, threads), threads, 0, increment_kernel, x, n);
}

} // extern "C"
