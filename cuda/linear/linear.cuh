// linear.cuh: the parts common to the files of linear layers. choose.h names the launcher for a call, and each launcher
// relies on the chooser's checks.
#ifndef VB_LINEAR_CUH
#define VB_LINEAR_CUH

#include "linear/choose_qkv.h"
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

// The change of a product with a matrix by an adapter: V [ranks][cols], U [rows][ranks]; null for none.
struct LowRank {
    const half *v, *u;
};

// The changes of an operation's products, in the order of its matrices.
struct Adapter {
    LowRank of[3];
    const float *codes; // [n][ranks], codes_stride from one row to the next; null for ones
    int64_t codes_stride;
    int ranks;
    // x V of one row as [parts][matrices][ranks] to add up, or null. Of packed_n1 and its kin.
    const float *sums = nullptr;
    int parts = 0, matrices = 0;
};
inline Adapter adapter_of(const vb_norm_qkv_args &a) {
    return {{{(const half *)a.q_v, (const half *)a.q_u},
             {(const half *)a.k_v, (const half *)a.k_u},
             {(const half *)a.v_v, (const half *)a.v_u}},
            a.codes, a.codes_stride, (int)a.ranks};
}
// Of gate and up, and of down.
inline Adapter adapter_of_gated(const vb_feed_forward_args &a) {
    return {{{(const half *)a.gate_v, (const half *)a.gate_u}, {(const half *)a.up_v, (const half *)a.up_u}},
            a.codes, a.codes_stride, (int)a.ranks};
}
inline Adapter adapter_of_down(const vb_feed_forward_args &a) {
    return {{{(const half *)a.down_v, (const half *)a.down_u}}, a.codes, a.codes_stride, (int)a.ranks};
}

// x V that packed_n1 leaves for the products that read its row next, multiplied by a norm's weights: each 16 columns'
// sums, as Adapter has them.
struct Leaves {
    const half *v[3];  // [ranks][rows], null for none
    const float *norm; // [rows], or null for ones
    float *sums;       // null: nothing is left
    int64_t rows;
    int ranks, matrices;
};

struct LinearArgs {
    float *y;          // [n][rows]
    const float *x;    // [n][cols]
    const void *w;     // rows x cols of a type, stored or packed
    const float *bias; // [rows] or null
    int64_t n, rows, cols;
};

// The work that kernels of packed weights do beside the product.
struct LinearExtra {
    bool with_norm; // multiply rms_norm(x, norm, eps) instead of x
    const float *norm;
    float eps;
    const float *add; // [n][rows] that are added to y, or null; may be y
    Adapter adapter = {}; // of packed_n1 without norm, and packed_many
    Leaves leaves = {};   // of packed_n1 without norm
};

struct SwiGLUArgs {
    float *out; // [n][gate.rows]
    const float *x, *norm;
    float eps;
    vb_weight gate, up;
    int64_t n;
    Adapter adapter = {}; // of packed_n1_swiglu and packed_many_swiglu
    // packed_n1_swiglu: V of down; x V of each 16 rows goes to down_sums [rows / 16, rounded up][ranks], or null
    const half *down = nullptr;
    float *down_sums = nullptr;
};

// ---- stored weights -------------------------------------------------------------------------------------------------

vb_status stored_n1(const LinearArgs &args, vb_dtype type, vb_stream *stream);
vb_status stored_n8(const LinearArgs &args, vb_dtype type, vb_stream *stream);
vb_status stored_n32(const LinearArgs &args, vb_dtype type, vb_stream *stream);
vb_status stored_n64_sm90(const LinearArgs &args, vb_dtype type, vb_stream *stream);
vb_status stored_many(const LinearArgs &args, vb_dtype type, vb_stream *stream);
vb_status stored_many_sm90(const LinearArgs &args, vb_dtype type, vb_stream *stream);
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

// The work that is left after these kernels (packed/place_qkv.cu).
vb_status finish_qkv(const vb_norm_qkv_args &args, linear_qkv_rest rest, vb_stream *stream);

// Where a token's operations leave x V for the next one (left_sums): feed_forward for norm_qkv, attention_linear_add
// for feed_forward. They take turns, for an operation reads what the one before has left until it ends.
enum Left { left_by_feed_forward, left_by_attention };
inline float *left_at(Left left, vb_stream *stream) {
    float *const sums = left_sums(stream);
    return sums ? sums + left * LINEAR_LEFT_SUMS : nullptr;
}
inline void take_left(Adapter *a, int matrices, int64_t cols, Left left, vb_stream *stream) {
    a->sums = left_at(left, stream), a->matrices = matrices;
    a->parts = (int)ceil_div<int64_t>(cols, VB_PACKED_ROWS);
}

// What a product of one row leaves there, and *prepared if it does: nothing without a norm, or where V is not aligned.
inline Leaves leaves_for(const half *const (&v)[3], int matrices, const float *norm, int64_t rows, int64_t ranks,
                         Left left, int *prepared, vb_stream *stream) {
    const bool any = v[0] || v[1] || v[2];
    if (!any || !norm || !prepared || ranks <= 0 || ranks % 8 || rows % 8 || !linear_leaves(rows, matrices, ranks) ||
        !aligned16((const char *)v[0], (const char *)v[1], (const char *)v[2]))
        return {};
    float *const sums = left_at(left, stream);
    if (!sums) return {};
    *prepared = 1;
    return {{v[0], v[1], v[2]}, norm, sums, rows, (int)ranks, matrices};
}

// x V of a row for `matrices` products, by a kernel of its own (packed/project_n1.cu), which takes the place of the
// operation that `left` names. Sets sums, parts and matrices. x is multiplied by norm [cols], or null for ones.
vb_status packed_project_n1(Adapter *adapter, int matrices, const float *x, const float *norm, int64_t cols, Left left,
                            vb_stream *stream);

// ---- packed weights: units ------------------------------------------------------------------------------------------

// The norm that reads a result next, and its memory: vibrant.h. None where norm or prepared is null.
struct NextNorm {
    const float *norm;
    float *normed;
    int *prepared;
};

// In the last words of the memory: whether rows passed on in F16 have exponents (HalfRows::uneven).
// The rows are those from attention_linear_add to feed_forward, from feed_forward to norm_qkv, and between its
// products.
enum HalfFlag { attended_flag, layer_flag, gated_flag, half_flags };
inline unsigned *first_half_flag(float *normed, int64_t n, int64_t cols) {
    return (unsigned *)(normed + n * cols) - half_flags;
}

// Any n. Where x is given, it takes the place of args.x: [n][cols], left by the kernel before as the operand
// (packed/many.cuh).
// All flags of next.normed are 0 then.
vb_status packed_many(const LinearArgs &args, const half *x, const LinearExtra &extra, const NextNorm &next,
                      vb_dtype type, vb_stream *stream);
vb_status packed_many_swiglu(const SwiGLUArgs &args, const linear_units &units, vb_stream *stream);
vb_status packed_many_feed_forward(const vb_feed_forward_args &args, const linear_feed_forward_choice &choice,
                                   vb_stream *stream);
vb_status packed_many_qkv(const vb_norm_qkv_args &args, const linear_qkv_choice &choice, vb_stream *stream);

// (x V) * codes for all of an adapter's products of one x: h[matrix][ranks / 8][n][4][2], in the unit of their sums and
// rounded to TF32 (packed/project.cu).
// x is [n][cols] as many.cuh has it, and V has its first v_cols columns. Where *uneven is not 0, x has exponents.
vb_status packed_project(float *h, const Adapter &adapter, const half *x, int64_t n, int64_t cols, int64_t v_cols,
                         const unsigned *uneven, const uint8_t *exponents, vb_stream *stream);
// The bytes of h; 0 for no adapter.
inline int64_t projected_bytes(const Adapter &a, int64_t n) {
    int last = 3;
    while (last > 0 && !a.of[last - 1].v) last--;
    return last * n * a.ranks * (int64_t)sizeof(float);
}

} // namespace vb
#endif
