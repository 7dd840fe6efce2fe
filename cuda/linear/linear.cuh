// linear.cuh: what the files of linear layers share. choose.h says which of the launchers below runs; each relies on
// what is checked there.
#ifndef VB_LINEAR_CUH
#define VB_LINEAR_CUH

#include "linear/choose.h"
#include "linear/quant.cuh"

// The packed layout and its kernels need C++17, which CUDA 10 (for GPUs without tensor cores) does not know.
#if __cplusplus >= 201703L
#define VB_HAS_PACKED_LAYOUT 1
#endif

namespace vb {

// A weight by the type whose kernels multiply it.
inline vb_weight known(vb_weight w) {
    if (w.layout == VB_PACKED) w.type = vb_packed_as(w.type);
    return w;
}

struct LinearArgs {
    float *y;          // [n][rows]
    const float *x;    // [n][cols]
    const void *w;     // rows x cols of a type, stored or packed
    const float *bias; // [rows] or null
    int64_t n, rows, cols;
};

// What may be done in the same kernel with packed weights.
struct LinearExtra {
    bool with_norm; // multiply rms_norm(x, norm, eps) instead of x
    const float *norm;
    float eps;
    const float *add; // [n][rows] that are added to y, or null; may be y
};

struct SwiGLUArgs {
    float *out; // [n][gate.rows]
    const float *x, *norm;
    float eps;
    vb_weight gate, up;
    int64_t n;
};

// ---- stored weights -------------------------------------------------------------------------------------------------

vb_status stored_n1(const LinearArgs &args, vb_dtype type, vb_stream *stream);
vb_status stored_n8(const LinearArgs &args, vb_dtype type, vb_stream *stream);
vb_status stored_n32(const LinearArgs &args, vb_dtype type, vb_stream *stream);
vb_status stored_n64_sm90(const LinearArgs &args, vb_dtype type, vb_stream *stream);
vb_status stored_many(const LinearArgs &args, vb_dtype type, vb_stream *stream);
vb_status f32_3xtf32(const LinearArgs &args, vb_stream *stream);
vb_status f32_matmul(const LinearArgs &args, vb_stream *stream);
vb_status f32_tiles(const LinearArgs &args, vb_stream *stream);

// ---- packed weights: items ------------------------------------------------------------------------------------------

vb_status packed_n1(const LinearArgs &args, const LinearExtra &extra, vb_dtype type, const linear_items &items,
                    vb_stream *stream);
vb_status packed_n4(const LinearArgs &args, const LinearExtra &extra, vb_dtype type, const linear_items &items,
                    vb_stream *stream);
vb_status packed_n32(const LinearArgs &args, const LinearExtra &extra, vb_dtype type, const linear_items &items,
                     vb_stream *stream);
vb_status packed_n1_swiglu(const SwiGLUArgs &args, const linear_items &items, vb_stream *stream);
vb_status packed_n4_swiglu(const SwiGLUArgs &args, const linear_items &items, vb_stream *stream);
vb_status packed_n32_swiglu(const SwiGLUArgs &args, const linear_items &items, vb_stream *stream);
vb_status packed_n1_qkv(const vb_norm_qkv_args &args, const linear_qkv_choice &choice, vb_stream *stream);
vb_status packed_n4_qkv(const vb_norm_qkv_args &args, const linear_qkv_choice &choice, vb_stream *stream);
vb_status packed_n32_qkv(const vb_norm_qkv_args &args, const linear_qkv_choice &choice, vb_stream *stream);

// What these leave undone (packed/place_qkv.cu).
vb_status finish_qkv(const vb_norm_qkv_args &args, linear_qkv_rest rest, vb_stream *stream);

// ---- packed weights: units ------------------------------------------------------------------------------------------

// The norm that reads a result next, and its memory: vibrant.h. None where norm or prepared is null.
struct NextNorm {
    const float *norm;
    float *normed;
    int *prepared;
};

// In the last words of that memory, whether rows that a layer's products pass on in F16 have exponents
// (HalfRows::uneven): what attention_linear_add leaves for feed_forward, what that leaves for norm_qkv, and what is
// between its products.
enum HalfFlag { attended_flag, layer_flag, gated_flag, half_flags };
inline unsigned *first_half_flag(float *normed, int64_t n, int64_t cols) {
    return (unsigned *)(normed + n * cols) - half_flags;
}

// Any n. Where x is given, [n][cols] that the kernel before has left as the operand (packed/many.cuh), it takes the
// place of args.x; all flags of next.normed are 0 then.
vb_status packed_many(const LinearArgs &args, const half *x, const LinearExtra &extra, const NextNorm &next,
                      vb_dtype type, vb_stream *stream);
vb_status packed_many_swiglu(const SwiGLUArgs &args, const linear_units &units, vb_stream *stream);
vb_status packed_many_feed_forward(const vb_feed_forward_args &args, const linear_feed_forward_choice &choice,
                                   vb_stream *stream);
vb_status packed_many_qkv(const vb_norm_qkv_args &args, const linear_qkv_choice &choice, vb_stream *stream);

} // namespace vb
#endif
