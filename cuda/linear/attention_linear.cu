// attention_linear.cu: sum[n][rows] = a + attention(q) W^T + bias for the rows of a prompt or of many sequences.
//
// Attention leaves its result as the operand of the product, in F16: one kernel and 12 bytes an element less than by
// way of float32. Elsewhere attention and linear_add are two operations (ops_fused.c). The result is a mean of values
// of the cache, which are F16: it needs no scale to stay in range.
//
//   moves    two bytes an element of the attended rows, twice; the rest as attention_prefill*.cu and many.cu
//   measured docs/experiments/2026-11-22-packed-many.md

#include "attention/attention.cuh"
#include "linear/choose_adapted.h"
#include "linear/linear.cuh"

using namespace vb;

extern "C" vb_status vb_cuda_attention_linear_add(float *sum, const float *a, const vb_attention_args *attention,
                                                  const vb_weight *w, const float *bias,
                                                  const vb_update_args *update, float *,
                                                  const float *next_norm, float *normed, int *next_prepared,
                                                  vb_stream *stream) {
    const vb_gpu gpu = gpu_of(stream);
    const int64_t n = attention->batch * attention->seq;
    const linear_shape shape = {w->type, w->layout, n, w->rows, w->cols, false,
                                aligned16((const char *)w->data, (const char *)attention->out), true, true};
    const attention_kernel kernel = choose_attention_operand(attention, &gpu);
    const Adapter adapter = {{{(const half *)update->v, (const half *)update->u}},
                             update->codes, update->codes_stride, (int)update->ranks};
    const bool aligned = aligned16((const char *)update->v, (const char *)update->u),
               leaves = update->next_gate_v || update->next_up_v, in_f16 = kernel != ATTENTION_NONE;
    const linear_choice c = update->v || (leaves && n == 1)
                                ? choose_adapted_attention(&shape, in_f16, update->ranks, aligned, &gpu)
                                : choose_attention_linear_add(&shape, in_f16, &gpu);
    const bool items =
        c.kernel == LINEAR_PACKED_N1 || c.kernel == LINEAR_PACKED_N4 || c.kernel == LINEAR_PACKED_N32;
    if (items) VB_TRY(vb_cuda_attention(attention, stream)); // notes a kernel of its own
    chosen(stream, linear_kernel_info(c.kernel), "attention_linear_add", w->type, "n rows cols", n, w->rows, w->cols);
    if (c.kernel == LINEAR_COMPOSED) return VB_UNSUPPORTED;
    if (items) { // of few rows, with the adapter in the product
        const LinearArgs product = {sum, (const float *)attention->out, w->data, bias, n, w->rows, w->cols};
        LinearExtra extra = {false, nullptr, 0, a, adapter};
        if (c.kernel == LINEAR_PACKED_N4) return packed_n4(product, extra, known(*w).type, c.items, stream);
        if (c.kernel == LINEAR_PACKED_N32) return packed_n32(product, extra, known(*w).type, c.items, stream);
        extra.leaves = leaves_for({(const half *)update->next_gate_v, (const half *)update->next_up_v}, 2, next_norm,
                                  w->rows, update->ranks, left_by_attention, next_prepared, stream);
        return packed_n1(product, extra, known(*w).type, c.items, stream);
    }
    NextNorm next = {};
    // Of a rank's part of a sum, which has no addend, the sum prepares the rows, and clears the flags.
    const bool part = !a && next_norm && c.kernel == LINEAR_PACKED_MANY_SM90 && n <= LINEAR_MOST_TOKENS;
    if (part) *next_prepared = 1;
    if (kernel == ATTENTION_PREFILL_SM90 && !a) {
        VB_TRY(attention_prefill_operand(*attention, nullptr, stream));
    } else if (kernel == ATTENTION_PREFILL_SM90) {
        next = {next_norm, normed, next_prepared};
        VB_TRY(
            attention_prefill_operand(*attention, next_norm ? first_half_flag(normed, n, w->rows) : nullptr, stream));
    } else if (kernel == ATTENTION_PREFILL) {
        if (a) next = {next_norm, normed, next_prepared};
        VB_TRY(
            attention_prefill_halves(*attention, next.norm ? first_half_flag(normed, n, w->rows) : nullptr, stream));
    } else {
        if (a) next = {next_norm, normed, next_prepared};
        unsigned *const flags = next.norm ? first_half_flag(normed, n, w->rows) : nullptr;
        VB_TRY(kernel == ATTENTION_DECODE ? attention_decode_operand(*attention, flags, stream)
                                          : attention_decode_variants(*attention, {true, flags}, stream));
    }
    return packed_many({sum, nullptr, w->data, bias, n, w->rows, w->cols}, (const half *)attention->out,
                       {false, nullptr, 0, a, adapter}, part ? NextNorm{next_norm, normed, nullptr} : next,
                       known(*w).type, stream);
}
