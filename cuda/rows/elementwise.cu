// elementwise.cu: add, mul, mul_scalar, silu, gelu, gelu_tanh, swiglu, sigmoid, soft_cap, copy, increment.
//
// out[i] = f(a[i], b[i]) in float32, for F32, F16 and BF16; any n, in place allowed.
//   grid     one vector of 16 bytes a thread, 512 threads a block with two inputs, 256 with one
//   shared   none
//   moves    (inputs + 1) * n * sizeof(T) bytes; a few FLOPs an element (SiLU, GELU: about 20)
//   bound    memory bandwidth; below about 1 MiB the launch
//   measured docs/experiments/2026-11-22-rows.md

#include "rows/map.cuh"

namespace vb {
namespace {

constexpr int increment_threads = 512;

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
struct SigmoidOp {
    VB_DEVICE float operator()(float a, float) const { return __fdividef(1.0f, 1.0f + expf(-a)); }
};
struct SoftCapOp {
    float cap;
    VB_DEVICE float operator()(float a, float) const { return cap * tanhf(a / cap); }
};

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
        if (first + u * copy_threads < vectors)
            x[u] = reader.load(reinterpret_cast<const uint4 *>(in) + first + u * copy_threads);
#pragma unroll
    for (int u = 0; u < copy_unroll; u++)
        if (first + u * copy_threads < vectors) reinterpret_cast<uint4 *>(out)[first + u * copy_threads] = x[u];
    const int64_t stride = (int64_t)gridDim.x * copy_threads;
    for (int64_t i = vectors * 16 + (int64_t)blockIdx.x * copy_threads + threadIdx.x; i < bytes; i += stride)
        out[i] = in[i];
}

__global__ void __launch_bounds__(increment_threads) increment_kernel(int32_t *x, int64_t n) {
    wait_for_previous_kernel();
    release_next_kernel();
    const int64_t i = (int64_t)blockIdx.x * increment_threads + threadIdx.x;
    if (i < n) x[i]++;
}

} // namespace
} // namespace vb

using namespace vb;

extern "C" {

vb_status vb_cuda_add(void *out, const void *a, const void *b, vb_dtype type, int64_t n, vb_stream *stream) {
    return map<2>("add", out, a, b, type, n, AddOp(), stream);
}

vb_status vb_cuda_mul(void *out, const void *a, const void *b, vb_dtype type, int64_t n, vb_stream *stream) {
    return map<2>("mul", out, a, b, type, n, MulOp(), stream);
}

vb_status vb_cuda_mul_scalar(void *out, const void *a, float scalar, vb_dtype type, int64_t n, vb_stream *stream) {
    return map<1>("mul_scalar", out, a, a, type, n, MulScalarOp{scalar}, stream);
}

vb_status vb_cuda_silu(void *out, const void *a, vb_dtype type, int64_t n, vb_stream *stream) {
    return map<1>("silu", out, a, a, type, n, SiluOp(), stream);
}

vb_status vb_cuda_gelu(void *out, const void *a, vb_dtype type, int64_t n, vb_stream *stream) {
    return map<1>("gelu", out, a, a, type, n, GeluOp(), stream);
}

vb_status vb_cuda_gelu_tanh(void *out, const void *a, vb_dtype type, int64_t n, vb_stream *stream) {
    return map<1>("gelu_tanh", out, a, a, type, n, GeluTanhOp(), stream);
}

vb_status vb_cuda_swiglu(void *out, const void *gate, const void *up, vb_dtype type, int64_t n, vb_stream *stream) {
    return map<2>("swiglu", out, gate, up, type, n, SwigluOp(), stream);
}

vb_status vb_cuda_sigmoid(void *out, const void *a, vb_dtype type, int64_t n, vb_stream *stream) {
    return map<1>("sigmoid", out, a, a, type, n, SigmoidOp(), stream);
}

vb_status vb_cuda_soft_cap(void *out, const void *a, float cap, vb_dtype type, int64_t n, vb_stream *stream) {
    return map<1>("soft_cap", out, a, a, type, n, SoftCapOp{cap}, stream);
}

vb_status vb_cuda_copy(void *out, const void *in, vb_dtype type, int64_t n, vb_stream *stream) {
    const int64_t bytes = bytes_of(type, n);
    const int64_t blocks = ceil_div<int64_t>(bytes, 16 * copy_threads * copy_unroll);
    chosen(stream, rows_kernel_info(ROWS_COPY), "copy", type, "n", n);
    return launch_overlapped(stream, (unsigned)blocks, copy_threads, 0, copy_kernel, (char *)out, (const char *)in,
                             bytes, aligned16(out, in), beyond_l2(bytes, stream));
}

vb_status vb_cuda_increment_i32(int32_t *x, int64_t n, vb_stream *stream) {
    chosen(stream, rows_kernel_info(ROWS_INCREMENT), "increment_i32", VB_I32, "n", n);
    return launch_overlapped(stream, (unsigned)ceil_div<int64_t>(n, increment_threads), increment_threads, 0,
                             increment_kernel, x, n);
}

} // extern "C"
