/* cpu_fused.c: a CPU gains nothing from fusing the steps of a layer, whose results stay in its caches: ops.c composes them. */
#include "kernels.h"

vb_status vb_cpu_norm_linear(float *y, const float *x, const float *norm, float eps, const vb_weight *w, const float *bias,
                             float *normed, int64_t n, vb_stream *stream) {
    (void)y, (void)x, (void)norm, (void)eps, (void)w, (void)bias, (void)normed, (void)n, (void)stream;
    return VB_UNSUPPORTED;
}

vb_status vb_cpu_norm_swiglu(float *out, const float *x, const float *norm, float eps, const vb_weight *gate,
                             const vb_weight *up, float *normed, float *product, int64_t n, vb_stream *stream) {
    (void)out, (void)x, (void)norm, (void)eps, (void)gate, (void)up, (void)normed, (void)product, (void)n, (void)stream;
    return VB_UNSUPPORTED;
}

vb_status vb_cpu_linear_add(float *sum, const float *a, const float *x, const vb_weight *w, const float *bias,
                            float *product, int64_t n, vb_stream *stream) {
    (void)sum, (void)a, (void)x, (void)w, (void)bias, (void)product, (void)n, (void)stream;
    return VB_UNSUPPORTED;
}

vb_status vb_cpu_feed_forward(const vb_feed_forward_args *args, vb_stream *stream) {
    (void)args, (void)stream;
    return VB_UNSUPPORTED;
}

vb_status vb_cpu_attention_linear_add(float *sum, const float *a, const vb_attention_args *attention, const vb_weight *w,
                                      const float *bias, float *product, const float *next_norm, float *normed, int *next_prepared,
                                      vb_stream *stream) {
    (void)sum, (void)a, (void)attention, (void)w, (void)bias, (void)product, (void)next_norm, (void)normed, (void)next_prepared, (void)stream;
    return VB_UNSUPPORTED;
}

vb_status vb_cpu_norm_qkv(const vb_norm_qkv_args *args, vb_stream *stream) {
    (void)args, (void)stream;
    return VB_UNSUPPORTED;
}
