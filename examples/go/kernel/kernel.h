// An operation of this program's own: out[i] = scale * in[i] + out[i]. The CUDA one returns a cudaError_t and only
// enqueues the work.
#include <stdint.h>

#ifdef __cplusplus
extern "C"
#endif
int scale_add(float *out, const float *in, float scale, int64_t n, int device, void *stream);
