// attention_linear.cu: sum[n][rows] = a + attention(q) W^T + bias for the rows of a prompt or of many sequences.
// Attention leaves what it attends as the operand of the product, in F16, where it would write float32 that a kernel of
// its own then converts: 5 us and 12 bytes an element less. Elsewhere attention and linear_add are two operations
// (ops.c).
//
//   moves    two bytes an element of the attended rows, twice; the rest as attention_prefill_sm90.cu and many.cu
//   measured docs/experiments/2026-11-22-packed-many.md
//
// What is attended is a mean of values of the cache, which are F16: it needs no scale to stay in range.

#include "attention/attention.cuh"
#include "linear/linear.cuh"

using namespace vb;

extern "C" vb_status vb_cuda_attention_linear_add(float *sum, const float *a, const vb_attention_args *attention,
                                                  const vb_weight *w, const float *bias, float *,
                                                  const float *next_norm, float *normed, int *next_prepared,
                                                  vb_stream *stream) {
    const vb_gpu gpu = gpu_of(stream);
    const int64_t n = attention->batch * attention->seq;
    const linear_shape shape = {w->type, w->layout, n, w->rows, w->cols, false, true, true, true};
    const attention_kernel kernel = choose_attention_operand(attention, &gpu);
    const linear_choice c = choose_attention_linear_add(&shape, kernel != ATTENTION_NONE, &gpu);
    chosen(stream, linear_kernel_info(c.kernel), "attention_linear_add", w->type, "n rows cols", n, w->rows, w->cols);
#ifdef VB_HAS_PACKED_LAYOUT
    if (c.kernel == LINEAR_COMPOSED) return VB_UNSUPPORTED;
    NextNorm next = {};
    if (kernel == ATTENTION_PREFILL_SM90) {
        next = {next_norm, normed, next_prepared};
        VB_TRY(
            attention_prefill_operand(*attention, next_norm ? first_half_flag(normed, n, w->rows) : nullptr, stream));
    } else { // clears no flags: feed_forward prepares its own x
        VB_TRY(attention_decode_operand(*attention, stream));
    }
    return packed_many({sum, nullptr, w->data, bias, n, w->rows, w->cols}, (const half *)attention->out,
                       {false, nullptr, 0, a}, next, known(*w).type, stream);
#else
    return VB_UNSUPPORTED;
#endif
}
