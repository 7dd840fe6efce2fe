// map.cuh: out[i] = f(a[i], b[i]) in float32, for F32, F16 and BF16, any n, in place allowed; and the activations
// common to several files. elementwise.cu has launch, moves and bound.

#ifndef VB_CUDA_MAP_CUH
#define VB_CUDA_MAP_CUH

#include "arch/streaming.cuh"
#include "rows/choose.h"

namespace vb {

__host__ __device__ constexpr int map_threads(int inputs) { return inputs == 1 ? 256 : 512; }

VB_DEVICE float reciprocal_fast(float x) {
    float y;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

// a / (1 + exp(-a)): for a < -87 the quotient is 0, the limit. The division is good to 2 units in the last place;
// IEEE's took longer than the memory.
VB_DEVICE float silu(float a) { return __fdividef(a, 1.0f + expf(-a)); }
struct SiluOp {
    VB_DEVICE float operator()(float a, float) const { return silu(a); }
};
// a / 2 * erfc(-a / sqrt(2)). The complementary error function is right to 1.2e-7 of itself, also where it is tiny.
// It is the Chebyshev fit of Numerical Recipes ("erfcc", Press et al., 2nd ed., 6.2): t exp(-z^2 + P(t)) with t = 1 /
// (1 + z / 2).
// Here it is in powers of two: P's coefficients times log2(e).
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

// Outputs are of the inputs' type, or a byte: whether a function is not 0.
template <class T, bool TRUTHS>
struct MapOutput {
    using type = T;
    static VB_DEVICE T of(float x) { return from_float<T>(x); }
};
template <class T>
struct MapOutput<T, true> {
    using type = unsigned char;
    static VB_DEVICE unsigned char of(float x) { return x != 0.0f; }
};

// INPUTS is 1 or 2. Without `aligned` (a pointer is not a multiple of 16 bytes) all of n is done element by element.
template <class T, bool TRUTHS, class Op, int INPUTS>
__global__ void __launch_bounds__(map_threads(INPUTS))
    map_kernel(typename MapOutput<T, TRUTHS>::type *out, const T *a, const T *b, int64_t n, bool aligned, bool streamed,
               Op op) {
    wait_for_previous_kernel();
    release_next_kernel();
    using V = typename Wide<T>::type;
    using Output = MapOutput<T, TRUTHS>;
    using W = Vec<typename Output::type, V::size>;
    const int64_t vectors = aligned ? n / V::size : 0;
    const int64_t first = (int64_t)blockIdx.x * map_threads(INPUTS) + threadIdx.x;
    if (first < vectors) {
        const StreamReader reader(streamed);
        const V x = reader.load(reinterpret_cast<const V *>(a) + first);
        V y;
        W z;
        if (INPUTS == 2) y = reader.load(reinterpret_cast<const V *>(b) + first);
#pragma unroll
        for (int e = 0; e < V::size; e++)
            z.at[e] = Output::of(op(to_float(x.at[e]), INPUTS == 2 ? to_float(y.at[e]) : 0.0f));
        reinterpret_cast<W *>(out)[first] = z;
    }
    // The rest: less than a vector, or everything.
    const int64_t stride = (int64_t)gridDim.x * map_threads(INPUTS);
    for (int64_t i = vectors * V::size + first; i < n; i += stride)
        out[i] = Output::of(op(to_float(a[i]), INPUTS == 2 ? to_float(b[i]) : 0.0f));
}

// Of inputs of a type.
template <int INPUTS, bool TRUTHS = false, class Op>
vb_status map(const char *name, void *out, const void *a, const void *b, vb_dtype type, int64_t n, Op op,
              vb_stream *stream) {
    const bool aligned = aligned16(out, a, b);
    chosen(stream, rows_kernel_info(choose_map(aligned)), name, type, "n", n);
    return with_float_type(type, [&](auto zero) {
        using T = decltype(zero);
        const int64_t blocks = ceil_div<int64_t>(n, Wide<T>::size * map_threads(INPUTS));
        return launch_overlapped(stream, (unsigned)blocks, map_threads(INPUTS), 0, map_kernel<T, TRUTHS, Op, INPUTS>,
                                 (typename MapOutput<T, TRUTHS>::type *)out, (const T *)a, (const T *)b, n, aligned,
                                 beyond_l2(INPUTS * n * (int64_t)sizeof(T), stream), op);
    });
}

} // namespace vb
#endif
