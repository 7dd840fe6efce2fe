// elementwise.cu: add, mul, mul_scalar, silu, gelu, gelu_tanh, swiglu, copy, increment.
//
// out[i] = f(a[i], b[i]) in float32, for F32, F16 and BF16; any n, in place allowed.
//   grid     one vector of 16 bytes a thread, 512 threads a block with two inputs, 256 with one
//   shared   none
//   moves    (inputs + 1) * n * sizeof(T) bytes; a few FLOPs an element (SiLU, GELU: about 20)
//   bound    memory bandwidth; below about 1 MiB the launch
//   measured H200, F32, 64 Mi elements, graph replays, us in one run:
//                                  blocks of 512   256   256 of 2 vectors   128 of 2   PyTorch 2.11
//              mul_scalar                  128.4   126.9            128.0      127.2   130.7
//              silu                        132.2   126.2            128.3      127.1   131.3
//              gelu                        133.0   126.7            128.0      127.9   130.7
//              gelu_tanh                   130.4   127.0            128.3      127.6   131.1
//              add                         183.6   184.1            184.4      183.9   187.6
//            An error function of 30 instructions instead of 20, by expf and a division, took 135

#include "arch/streaming.cuh"

namespace vb {
namespace {

constexpr int threads = 512;
__host__ __device__ constexpr int map_threads(int inputs) { return inputs == 1 ? 256 : 512; }

VB_DEVICE float reciprocal_fast(float x) {
    float y;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

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
// a / (1 + exp(-a)): for a < -87 the quotient is 0, the limit. The division is good to 2 units in the last place; IEEE's
// took longer than the memory.
VB_DEVICE float silu(float a) { return __fdividef(a, 1.0f + expf(-a)); }
struct SiluOp {
    VB_DEVICE float operator()(float a, float) const { return silu(a); }
};
// a / 2 * erfc(-a / sqrt(2)). The complementary error function to 1.2e-7 of itself, also where it is tiny, by the Chebyshev fit
// of Numerical Recipes ("erfcc", Press et al., 2nd ed., 6.2): t exp(-z^2 + P(t)) with t = 1 / (1 + z / 2); here in powers of two,
// P's coefficients times log2(e).
struct GeluOp {
    VB_DEVICE float operator()(float a, float) const {
        const float t = reciprocal_fast(1.0f + fabsf(a) * 0.353553391f);
        float p = 0.246517298f;
        p = p * t - 1.18611495f;
        p = p * t + 2.14747446f;
        p = p * t - 1.63775315f;
        p = p * t + 0.402321582f;
        p = p * t - 0.26875686f;
        p = p * t + 0.139630057f;
        p = p * t + 0.539700616f;
        p = p * t + 1.4427292f;
        p = p * t - 1.82574822f;
        const float erfc = t * exp2_fast(a * a * -0.72134752f + p);
        return 0.5f * a * (a < 0.0f ? erfc : 2.0f - erfc);
    }
};
// (1 + tanh(u)) / 2 = 1 / (1 + exp(-2u)), which keeps its relative accuracy for negative u.
struct GeluTanhOp {
    VB_DEVICE float operator()(float a, float) const {
        return a * reciprocal_fast(1.0f + exp2_fast(a * (a * a * -0.10294324f - 2.3022082f)));
    }
};
struct SwigluOp {
    VB_DEVICE float operator()(float gate, float up) const { return silu(gate) * up; }
};

// INPUTS is 1 or 2. Without `aligned` (a pointer is not a multiple of 16 bytes) all of n is done element by element.
template <class T, class Op, int INPUTS>
__global__ void __launch_bounds__(map_threads(INPUTS)) map_kernel(T *out, const T *a, const T *b, int64_t n, bool aligned, bool streamed, Op op) {
    wait_for_previous_kernel();
    release_next_kernel();
    using V = typename Wide<T>::type;
    const int64_t vectors = aligned ? n / V::size : 0;
    const int64_t first = (int64_t)blockIdx.x * map_threads(INPUTS) + threadIdx.x;
    if (first < vectors) {
        const StreamReader reader(streamed);
        V x = reader.load(reinterpret_cast<const V *>(a) + first), y;
        if (INPUTS == 2) y = reader.load(reinterpret_cast<const V *>(b) + first);
#pragma unroll
        for (int e = 0; e < V::size; e++)
            x.at[e] = from_float<T>(op(to_float(x.at[e]), INPUTS == 2 ? to_float(y.at[e]) : 0.0f));
        reinterpret_cast<V *>(out)[first] = x;
    }
    // What is left over: less than a vector, or everything.
    const int64_t stride = (int64_t)gridDim.x * map_threads(INPUTS);
    for (int64_t i = vectors * V::size + first; i < n; i += stride)
        out[i] = from_float<T>(op(to_float(a[i]), INPUTS == 2 ? to_float(b[i]) : 0.0f));
}

template <int INPUTS, class Op>
vb_status map(void *out, const void *a, const void *b, vb_dtype type, int64_t n, Op op, vb_stream *stream) {
    const bool aligned = aligned16(out, a, b);
    return with_float_type(type, [&](auto zero) {
        using T = decltype(zero);
        const int64_t blocks = ceil_div<int64_t>(n, Wide<T>::size * map_threads(INPUTS));
        if (blocks > INT32_MAX) return VB_UNSUPPORTED; // 2^41 elements: no memory holds them
        return launch_overlapped(stream, (unsigned)blocks, map_threads(INPUTS), 0, map_kernel<T, Op, INPUTS>, (T *)out, (const T *)a,
                                 (const T *)b, n, aligned, beyond_l2(INPUTS * n * (int64_t)sizeof(T), stream), op);
    });
}

// Bytes, whatever they mean; two vectors a thread, 128 threads a block.
constexpr int copy_threads = 128;
constexpr int copy_unroll = 2;

__global__ void __launch_bounds__(copy_threads) copy_kernel(char *out, const char *in, int64_t bytes, bool aligned,
                                                            bool streamed) {
    wait_for_previous_kernel();
    release_next_kernel();
    const int64_t vectors = aligned ? bytes / 16 : 0;
    const int64_t first = (int64_t)blockIdx.x * (copy_threads * copy_unroll) + threadIdx.x;
    const StreamReader reader(streamed);
    uint4 x[copy_unroll];
#pragma unroll
    for (int u = 0; u < copy_unroll; u++)
        if (first + u * copy_threads < vectors) x[u] = reader.load(reinterpret_cast<const uint4 *>(in) + first + u * copy_threads);
#pragma unroll
    for (int u = 0; u < copy_unroll; u++)
        if (first + u * copy_threads < vectors) reinterpret_cast<uint4 *>(out)[first + u * copy_threads] = x[u];
    const int64_t stride = (int64_t)gridDim.x * copy_threads;
    for (int64_t i = vectors * 16 + (int64_t)blockIdx.x * copy_threads + threadIdx.x; i < bytes; i += stride) out[i] = in[i];
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

vb_status vb_cuda_gelu(void *out, const void *a, vb_dtype type, int64_t n, vb_stream *stream) {
    return map<1>(out, a, a, type, n, GeluOp(), stream);
}

vb_status vb_cuda_gelu_tanh(void *out, const void *a, vb_dtype type, int64_t n, vb_stream *stream) {
    return map<1>(out, a, a, type, n, GeluTanhOp(), stream);
}

vb_status vb_cuda_swiglu(void *out, const void *gate, const void *up, vb_dtype type, int64_t n, vb_stream *stream) {
    return map<2>(out, gate, up, type, n, SwigluOp(), stream);
}

vb_status vb_cuda_copy(void *out, const void *in, vb_dtype type, int64_t n, vb_stream *stream) {
    const int64_t bytes = bytes_of(type, n);
    const int64_t blocks = ceil_div<int64_t>(bytes, 16 * copy_threads * copy_unroll);
    if (blocks > INT32_MAX) return VB_UNSUPPORTED;
    return launch_overlapped(stream, (unsigned)blocks, copy_threads, 0, copy_kernel, (char *)out, (const char *)in, bytes,
                             aligned16(out, in), beyond_l2(bytes, stream));
}

vb_status vb_cuda_increment_i32(int32_t *x, int64_t n, vb_stream *stream) {
    return launch_overlapped(stream, (unsigned)ceil_div<int64_t>(n, threads), threads, 0, increment_kernel, x, n);
}

} // extern "C"
