// mixture.cuh: the types of weights of the kernels of n1_qkv.cu. A kernel of two types computes q, k and v of a mixture
// of them, or all of one of them: code of each type stands in few kernels.
#ifndef VB_LINEAR_MIXTURE_CUH
#define VB_LINEAR_MIXTURE_CUH

#include "linear/linear.cuh"
#include "linear/packed/packed.cuh"

namespace vb {

// The kernel of a type of q and k: the first blocks have weights of type A, the others of type B. `second`: q and k are
// of B. Types that mix with no other have a kernel of their own (linear_qkv_mixture).
template <class FIRST, class SECOND, bool IS_SECOND>
struct TwoTypes {
    using A = FIRST;
    using B = SECOND;
    static constexpr bool second = IS_SECOND;
};
template <class Block>
struct MixtureOf : TwoTypes<Block, Block, false> {};
template <>
struct MixtureOf<vb_block_q4_k> : TwoTypes<vb_block_q4_k, vb_block_q6_k, false> {};
template <>
struct MixtureOf<vb_block_q5_k> : TwoTypes<vb_block_q5_k, vb_block_q6_k, false> {};
template <>
struct MixtureOf<vb_block_q6_k> : TwoTypes<vb_block_q4_k, vb_block_q6_k, true> {};
template <>
struct MixtureOf<vb_block_q5_0> : TwoTypes<vb_block_q5_0, vb_block_q8_0, false> {};
template <>
struct MixtureOf<vb_block_q8_0> : TwoTypes<vb_block_q5_0, vb_block_q8_0, true> {};

// Which of the types A and B of a kernel q and k are of, and v.
template <class FIRST, class SECOND>
struct Mixture {
    using A = FIRST;
    using B = SECOND;
    static_assert(Packed<A>::depth == Packed<B>::depth, "one tiling of x");
    bool qk_second, v_second;

    int first_blocks(int qk, int v) const { return qk_second ? 0 : v_second ? qk : qk + v; }
    static int tile_bytes(bool second) { return second ? Packed<B>::tile_bytes : Packed<A>::tile_bytes; }
    static int64_t tiles_of(int64_t cols) { return Packed<A>::tiles_of(cols); }
    int64_t row_bytes(int64_t cols) const { return tiles_of(cols) * tile_bytes(qk_second); }
    int64_t v_row_bytes(int64_t cols) const { return tiles_of(cols) * tile_bytes(v_second); }
};

// Of q, k and v, or of v of the other type.
template <class Block>
Mixture<typename MixtureOf<Block>::A, typename MixtureOf<Block>::B> mixture_of(bool v_differs = false) {
    return {MixtureOf<Block>::second, MixtureOf<Block>::second || v_differs};
}

// Calls f(mixture) for q and k of type qk and v of type v: the same, or a mixture of linear_qkv_mixture.
template <class F>
vb_status with_mixture(vb_dtype qk, vb_dtype v, F f) {
    switch (qk) {
#define X(type, Block, ...) case type: return f(mixture_of<Block>(v != qk));
        VB_PACKED_TYPES(X)
#undef X
    default: return VB_UNSUPPORTED;
    }
}

// Calls f(block) with the type of a block's weights, by its number and that of the blocks of type A.
template <class A, class B, class F>
VB_DEVICE void with_type_of_block(int first_blocks, F f) {
    if (std::is_same<A, B>::value || (int)blockIdx.x < first_blocks) f(A());
    else f(B());
}

} // namespace vb
#endif
