// linear.cuh: what the files of the linear layers share. linear.cu chooses among the launchers declared here.
#ifndef VB_LINEAR_CUH
#define VB_LINEAR_CUH

#include "linear/quant.cuh"

// The packed layout and its kernels need C++17, which CUDA 10 (for GPUs without tensor cores) does not know.
#if __cplusplus >= 201703L
#define VB_HAS_PACKED_LAYOUT 1
#endif

namespace vb {

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

// Stored F32, F16 or BF16 weights in rows of whole vectors, n = 1 (linear_row.cu).
vb_status linear_row(const LinearArgs &args, vb_dtype type, vb_stream *stream);

// Packed weights, n = 1, capability 7.5 and up; VB_UNSUPPORTED where x does not fit in shared memory (linear_vector.cu).
vb_status linear_vector(const LinearArgs &args, const LinearExtra &extra, vb_dtype type, vb_stream *stream);

// The norm that reads a result next, and its memory: vibrant.h. None where norm or prepared is null.
struct NextNorm {
    const float *norm;
    float *normed;
    int *prepared;
};

// In the last words of that memory, whether rows that a layer's products pass on in F16 have exponents (HalfRows::uneven): what
// attention_linear_add leaves for feed_forward, what that leaves for norm_qkv, and what is between its products.
enum HalfFlag { attended_flag, layer_flag, gated_flag, half_flags };
inline unsigned *first_half_flag(float *normed, int64_t n, int64_t cols) { return (unsigned *)(normed + n * cols) - half_flags; }

// The rows of x that linear_packed takes in one pass over the weights; on Hopper fewer, for linear_step.cu is faster from there on.
constexpr int packed_batch = 32, packed_batch_hopper = 16;
bool has_wgmma(vb_stream *stream); // whether the products of linear_prefill.cu are Hopper's
inline int most_packed(vb_stream *stream) { return has_wgmma(stream) ? packed_batch_hopper : packed_batch; }

// Packed weights, n <= most_packed, capability 7.5 and up; VB_UNSUPPORTED for more, or where sums do not fit in shared memory
// (linear_packed.cu).
vb_status linear_packed(const LinearArgs &args, const LinearExtra &extra, vb_dtype type, vb_stream *stream);

// norm_qkv and norm_swiglu for such weights and n (packed_qkv.cu, packed_swiglu.cu).
vb_status packed_norm_qkv(const vb_norm_qkv_args &args, vb_stream *stream);
vb_status packed_norm_swiglu(float *out, const float *x, const float *norm, float eps, const vb_weight &gate, const vb_weight &up,
                             int64_t n, vb_stream *stream);

// Packed weights, any n, capability 7.5 and up (linear_prefill.cu). norm_swiglu and the products of norm_qkv: n up to 4096, all weights
// packed.
vb_status linear_prefill(const LinearArgs &args, const LinearExtra &extra, vb_dtype type, vb_stream *stream);
// The same of x[n][cols] that the kernel before has left as the operand (linear_prefill.cuh), in place of args.x; all flags of
// next.normed are 0.
vb_status linear_prefill_operand(const LinearArgs &args, const half *x, const LinearExtra &extra, const NextNorm &next, vb_dtype type,
                                 vb_stream *stream);
vb_status prefill_norm_swiglu(float *out, const float *x, const LinearExtra &norm, const vb_weight &gate, const vb_weight &up, int64_t n,
                              vb_stream *stream);
// n above most_packed, all weights packed, on Hopper; else VB_UNSUPPORTED.
vb_status prefill_feed_forward(const vb_feed_forward_args &args, vb_stream *stream);
// *placed becomes whether that is all of norm_qkv, or the products are in q, k_new and v_new.
vb_status prefill_norm_qkv(const vb_norm_qkv_args &args, bool *placed, vb_stream *stream);

// The one of these that is fastest for n (linear.cu).
vb_status linear_of_packed(const LinearArgs &args, const LinearExtra &extra, vb_dtype type, vb_stream *stream);

// Stored weights of any type but F32, any n, on tensor cores of 16-bit floats; capability 7.5 and up, 8.0 for BF16
// (linear_gemm.cu).
vb_status linear_gemm(const LinearArgs &args, vb_dtype type, vb_stream *stream);

// Stored F16 or BF16 weights, 2 to 64 rows of x; Hopper (linear_few_sm90.cu).
vb_status linear_few_sm90(const LinearArgs &args, vb_dtype type, vb_stream *stream);

} // namespace vb
#endif
