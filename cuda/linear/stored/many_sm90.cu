// many_sm90.cu: y = x W^T + bias for many rows of x and weights of F16 or BF16 on Hopper: Hopper's product of matrices
// (gemm/gemm_sm90_kernel.cuh), whose sums stay in float32.
//
//   moves    4 n cols bytes of x, 2 n cols of narrowed rows twice, 2 rows cols of W, 4 n rows of y
//   bound    the tensor cores
//
// x is narrowed first: to F16, each row scaled by a power of two, or to BF16. Rows of W that are no whole vectors are
// copied to rows that are (6 rows cols bytes), with zeros behind them.

#include "gemm/gemm_sm90_kernel.cuh"
#include "gemm/wgmma_widths.cuh"
#include "linear/stored/narrow.cuh"
#include "runtime/pad.cuh"

namespace vb {

#ifdef VB_WITH_SM90

namespace {

template <class T>
vb_status product(const LinearArgs &a, vb_dtype type, vb_stream *stream) {
    const PaddedRows padded = {1, 1, a.rows, a.cols, 0, 0, a.cols};
    const bool pads = a.cols % 8 != 0 || !aligned16((const T *)a.w);
    const int64_t cols = padded.per_row() * 8, w_bytes = pads ? padded.bytes() : 0;
    char *memory;
    const GemmPlan plan = plan_linear(a.n, cols, a.rows, multiprocessors(stream));
    const bool meet = plan.tile == TILE_128x128_PAIR && plan.ksplit > 1; // pairs that share k
    const int64_t x_bytes = ceil_div<int64_t>(narrow_bytes<T>(a.n, cols), 16) * 16,
                  meeting = meet ? gemm_meeting_bytes(a.n, a.rows) : 0;
    VB_TRY(workspace((void **)&memory, w_bytes + x_bytes + meeting, stream));
    if (pads) VB_TRY(pad_rows<false>(stream, PadCopy(memory, a.w, padded)));
    const void *const w = pads ? memory : a.w;
    NarrowRows<T> x;
    VB_TRY(narrow_rows(&x, memory + w_bytes, a.x, a.n, a.cols, cols, stream));
    GemmProblem<float> p = {};
    p.c = a.y, p.c_stride = a.rows, p.m = (int)a.n, p.n = (int)a.rows, p.k = (int)cols;
    p.steps = ceil_div(p.k, product_depth), p.group_rows = plan.group_rows;
    p.inverse = x.inverse, p.bias = a.bias, p.ksplit = 1;
    if (meet) {
        p.ksplit = plan.ksplit, p.meeting = (float *)(memory + w_bytes + x_bytes);
        return launch_gemm_sm90<T, float, 128, 128, true, false, false, true, true>(x.rows, cols, cols, w, cols, cols,
                                                                                    type, p, stream);
    }
    const auto run = [&](auto bn, auto pair) {
        p.ksplit = pair.value ? 1 : smaller(plan.ksplit, p.steps);
        return launch_gemm_sm90<T, float, 128, bn.value, pair.value, false, false, false, true>(
            x.rows, cols, cols, w, cols, cols, type, p, stream);
    };
    const auto in_turns = [&](auto bn) {
        return launch_gemm_sm90<T, float, 128, bn.value, true, false, false, false, true, false, true>(
            x.rows, cols, cols, w, cols, cols, type, p, stream);
    };
    switch (plan.tile) {
    case TILE_128x256_PAIR: return run(Constant<256>(), Constant<1>());
    case TILE_128x240_PAIR: return run(Constant<240>(), Constant<1>());
    case TILE_128x224_PAIR: return run(Constant<224>(), Constant<1>());
    case TILE_128x208_PAIR: return run(Constant<208>(), Constant<1>());
    case TILE_128x192_PAIR: return run(Constant<192>(), Constant<1>());
    case TILE_128x176_PAIR: return run(Constant<176>(), Constant<1>());
    case TILE_128x168_PAIR: return run(Constant<168>(), Constant<1>());
    case TILE_128x160_PAIR: return run(Constant<160>(), Constant<1>());
    case TILE_128x144_PAIR: return run(Constant<144>(), Constant<1>());
    case TILE_128x128_PAIR: return run(Constant<128>(), Constant<1>());
    case TILE_128x192_TURNS: return in_turns(Constant<192>());
    case TILE_128x168_TURNS: return in_turns(Constant<168>());
    case TILE_128x144_TURNS: return in_turns(Constant<144>());
    case TILE_128x256: return run(Constant<256>(), Constant<0>());
    case TILE_128x64: return run(Constant<64>(), Constant<0>());
    default: return run(Constant<128>(), Constant<0>());
    }
}

} // namespace

vb_status stored_many_sm90(const LinearArgs &a, vb_dtype type, vb_stream *stream) {
    return type == VB_F16 ? product<half>(a, type, stream) : product<bf16>(a, type, stream);
}

#endif

} // namespace vb
