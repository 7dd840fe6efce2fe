// convert.cu: out[i] = in[i] in another type: any weight type to F32; F32, F16 and BF16 among each other.
//
//   grid     256 threads a block, eight elements a thread (a multiple of every scale's reach); grid-stride
//   moves    n elements read and written once; bound by bytes for the plain types, by the byte loads of the codes else
//            (a conversion happens at load or in a test, never in a token's path)

#include "linear/quant.cuh"
#include "rows/choose.h"

namespace vb {
namespace {

VB_DEVICE void store8(float *out, const float v[8]) {
    reinterpret_cast<float4 *>(out)[0] = make_float4(v[0], v[1], v[2], v[3]);
    reinterpret_cast<float4 *>(out)[1] = make_float4(v[4], v[5], v[6], v[7]);
}
template <class T>
VB_DEVICE void store8(T *out, const float v[8]) {
    Vec<T, 8> t;
#pragma unroll
    for (int i = 0; i < 8; i++) t.at[i] = from_float<T>(v[i]);
    *reinterpret_cast<Vec<T, 8> *>(out) = t;
}

// The rest of n after the last whole eight: plain types only. The rest is all of n where a pointer is not aligned.
template <class Block, class Out>
VB_DEVICE void convert_rest(Out *, const Block *, int64_t, int64_t) {}
template <class In, class Out>
VB_DEVICE void convert_plain(Out *out, const In *in, int64_t from, int64_t n) {
    for (int64_t i = from + (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += (int64_t)gridDim.x * blockDim.x)
        out[i] = from_float<Out>(to_float(in[i]));
}
template <class Out>
VB_DEVICE void convert_rest(Out *out, const float *in, int64_t from, int64_t n) {
    convert_plain(out, in, from, n);
}
template <class Out>
VB_DEVICE void convert_rest(Out *out, const half *in, int64_t from, int64_t n) {
    convert_plain(out, in, from, n);
}
template <class Out>
VB_DEVICE void convert_rest(Out *out, const bf16 *in, int64_t from, int64_t n) {
    convert_plain(out, in, from, n);
}

template <class Block, class Out>
__global__ void __launch_bounds__(256) convert_kernel(Out *out, const Block *in, int64_t n, int64_t by_eight) {
    wait_for_previous_kernel();
    release_next_kernel();
    for (int64_t i = 8 * ((int64_t)blockIdx.x * blockDim.x + threadIdx.x); i < by_eight;
         i += 8 * (int64_t)gridDim.x * blockDim.x) {
        float v[8];
        dequantize8(v, in, i);
        store8(out + i, v);
    }
    convert_rest(out, in, by_eight, n);
}

template <class Block, class Out>
vb_status convert(void *out, const void *in, int64_t n, vb_stream *stream) {
    const bool aligned = BlockSize<Block>::value > 1 ? aligned16(out) : aligned16(out, in);
    if (!aligned && BlockSize<Block>::value > 1) return VB_INVALID_ARGUMENT;
    const int64_t blocks = smaller<int64_t>(ceil_div<int64_t>(n, 8 * 256), 1 << 20);
    return launch_overlapped(stream, (unsigned)blocks, 256, 0, convert_kernel<Block, Out>, (Out *)out,
                             (const Block *)in, n, aligned ? n / 8 * 8 : 0);
}

template <class In>
vb_status convert_plain_type(void *out, vb_dtype out_type, const void *in, int64_t n, vb_stream *stream) {
    switch (out_type) {
    case VB_F32: return convert<In, float>(out, in, n, stream);
    case VB_F16: return convert<In, half>(out, in, n, stream);
    case VB_BF16: return convert<In, bf16>(out, in, n, stream);
    default: return VB_UNSUPPORTED;
    }
}

} // namespace
} // namespace vb

using namespace vb;

extern "C" vb_status vb_cuda_convert(void *out, vb_dtype out_type, const void *in, vb_dtype in_type, int64_t n,
                                     vb_stream *stream) {
    chosen(stream, rows_kernel_info(ROWS_CONVERT), "convert", in_type, "n", n);
    switch (in_type) {
    case VB_F32: return convert_plain_type<float>(out, out_type, in, n, stream);
    case VB_F16: return convert_plain_type<half>(out, out_type, in, n, stream);
    case VB_BF16: return convert_plain_type<bf16>(out, out_type, in, n, stream);
    default: break;
    }
    switch (in_type) {
#define X(type, Block) case type: return convert<Block, float>(out, in, n, stream);
        VB_WEIGHT_TYPES(X)
#undef X
    default: return VB_UNSUPPORTED;
    }
}
