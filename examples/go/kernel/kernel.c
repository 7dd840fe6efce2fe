#include "kernel.h"

int scale_add(float *out, const float *in, float scale, int64_t n, int device, void *stream) {
    (void)device, (void)stream;
    for (int64_t i = 0; i < n; i++) out[i] += scale * in[i];
    return 0;
}
