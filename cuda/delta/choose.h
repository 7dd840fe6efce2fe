/* choose.h: which kernel runs for a gated delta net. Pure functions; plain C. cuda/README.md has the map, choose_test.h
 * the test. */
#ifndef VB_DELTA_CHOOSE_H
#define VB_DELTA_CHOOSE_H

#include "runtime/chooser.h"

#define DELTA_KERNELS(X)                                                                                               \
    X(DELTA_CONV, "causal_conv", "delta/causal_conv.cu", "causal_conv: runs of 16 tokens")                             \
    X(DELTA_KEYS_64, "gated_delta_64", "delta/gated_delta.cu", "gated_delta, keys of up to 64")                        \
    X(DELTA_KEYS_128, "gated_delta_128", "delta/gated_delta.cu", "gated_delta, keys of up to 128")                     \
    X(DELTA_KEYS_256, "gated_delta_256", "delta/gated_delta.cu", "gated_delta, keys of up to 256")
VB_KERNEL_FAMILY(delta, DELTA, DELTA_KERNELS)

enum { DELTA_RUN = 16, DELTA_COLUMNS = 32 };

/* Where a grid holds the runs and the sequences. */
static inline delta_kernel choose_causal_conv(int64_t batch, int64_t seq, int64_t channels) {
    return batch <= 65535 && vb_ceil_div(seq, DELTA_RUN) <= 65535 && channels <= INT32_MAX ? DELTA_CONV : DELTA_NONE;
}
static inline delta_kernel choose_gated_delta(const vb_gated_delta_args *a) {
    if (a->batch > 65535 || vb_ceil_div(a->value_dim, DELTA_COLUMNS) > 65535 || a->value_heads > INT32_MAX)
        return DELTA_NONE;
    return a->key_dim <= 64 ? DELTA_KEYS_64 : a->key_dim <= 128 ? DELTA_KEYS_128 : DELTA_KEYS_256;
}

#endif
