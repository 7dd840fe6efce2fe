// gemm_sm90.cu: matrix products of F16 and BF16 on Hopper's tensor cores (the kernel is in gemm_sm90_kernel.cuh).
//
// Bytes: 2 (m k + k n + m n); FLOPs 2 m n k. Bound by the tensor cores from about 1024^3, below by latency; with few
// rows (m below about 200) by the memory that holds B.

#include "gemm/gemm_sm90_kernel.cuh"
#include "gemm/matmul.cuh"
#include "gemm/wgmma_widths.cuh"

namespace vb {

#ifdef VB_WITH_SM90

namespace {

template <class T, bool A_MN, bool B_MN>
vb_status run_tile(const GemmPlan &plan, const vb_matmul_args &x, const GemmProblem<T> &p, vb_stream *stream) {
    const auto run = [&](auto bm, auto bn, auto pair) {
        return launch_gemm_sm90<T, T, bm.value, bn.value, pair.value, A_MN, B_MN>(x.a, x.a_stride, x.k, x.b,
                                                                                  x.b_stride, x.k, x.type, p, stream);
    };
    const auto split = [&](auto bm, auto bn) {
        return launch_gemm_sm90<T, T, bm.value, bn.value, true, A_MN, B_MN, false, false, true>(
            x.a, x.a_stride, x.k, x.b, x.b_stride, x.k, x.type, p, stream);
    };
    const auto in_turns = [&](auto bn) {
        return launch_gemm_sm90<T, T, 128, bn.value, true, A_MN, B_MN, false, false, false, true>(
            x.a, x.a_stride, x.k, x.b, x.b_stride, x.k, x.type, p, stream);
    };
    switch (plan.tile) {
    case TILE_128x192_TURNS: return in_turns(Constant<192>());
    case TILE_128x176_TURNS: return in_turns(Constant<176>());
    case TILE_128x192_SPLIT:
    case TILE_128x192_SPLIT_QUAD: return split(Constant<128>(), Constant<192>());
    case TILE_128x128_SPLIT:
    case TILE_128x128_SPLIT_QUAD: return split(Constant<128>(), Constant<128>());
    case TILE_64x128_SPLIT:
    case TILE_64x128_SPLIT_QUAD: return split(Constant<64>(), Constant<128>());
    case TILE_128x256_PAIR:
    case TILE_128x256_QUAD: return run(Constant<128>(), Constant<256>(), Constant<1>());
    case TILE_128x256: return run(Constant<128>(), Constant<256>(), Constant<0>());
    case TILE_128x224_PAIR: return run(Constant<128>(), Constant<224>(), Constant<1>());
    case TILE_128x208_PAIR: return run(Constant<128>(), Constant<208>(), Constant<1>());
    case TILE_128x192_PAIR:
    case TILE_128x192_QUAD: return run(Constant<128>(), Constant<192>(), Constant<1>());
    case TILE_128x160_PAIR:
    case TILE_128x160_QUAD: return run(Constant<128>(), Constant<160>(), Constant<1>());
    case TILE_128x128_PAIR:
    case TILE_128x128_QUAD:
        if constexpr (!A_MN) // those of an A stored [k][m] share no k
            if (plan.ksplit == 2)
                return launch_gemm_sm90<T, T, 128, 128, true, A_MN, B_MN, true>(x.a, x.a_stride, x.k, x.b, x.b_stride,
                                                                                x.k, x.type, p, stream);
        return run(Constant<128>(), Constant<128>(), Constant<1>());
    case TILE_128x128: return run(Constant<128>(), Constant<128>(), Constant<0>());
    case TILE_128x64: return run(Constant<128>(), Constant<64>(), Constant<0>());
    case TILE_64x256: return run(Constant<64>(), Constant<256>(), Constant<0>());
    case TILE_64x128: return run(Constant<64>(), Constant<128>(), Constant<0>());
    case TILE_64x128_PAIR:
    case TILE_64x128_QUAD: return run(Constant<64>(), Constant<128>(), Constant<1>());
    default: return VB_UNSUPPORTED;
    }
}

GemmPlan plan_of(const vb_matmul_args &x, int multiprocessors) {
    const gemm_sm90_cut cut = gemm_sm90_cut_of(&x, multiprocessors);
    if (gemm_sm90_planned(&x, &cut)) return plan_gemm(x.m, x.k, x.n, multiprocessors);
    const gemm_tile_shape tile = gemm_tile_shape_of(cut.tile);
    return {cut.tile, cut.ksplit, 2048 / (tile.rows * tile.blocks), cut.turned};
}

} // namespace

vb_status gemm_sm90(const vb_matmul_args &product, vb_stream *stream) {
    const GemmPlan plan = plan_of(product, multiprocessors(stream));
    const vb_matmul_args x = plan.turned ? gemm_sm90_turned(&product) : product;
    const auto with = [&](auto t) {
        using T = decltype(t);
        const int steps = (int)ceil_div<int64_t>(x.k, product_depth);
        GemmProblem<T> p = {};
        p.c = static_cast<T *>(x.c), p.c_stride = x.c_stride, p.m = (int)x.m, p.n = (int)x.n, p.k = (int)x.k;
        p.steps = steps, p.ksplit = smaller(plan.ksplit, steps), p.group_rows = plan.group_rows;
        p.pair = gemm_tile_shape_of(plan.tile).blocks, p.turned = plan.turned;
        return with_layouts(x, [&](auto a_t, auto b_t) {
            return run_tile<T, decltype(a_t)::value, !decltype(b_t)::value>(plan, x, p, stream);
        });
    };
    return x.type == VB_F16 ? with(half()) : with(bf16());
}

#endif

} // namespace vb
