// nvcc -O2 -shared -Xcompiler -fPIC -o libkernel.so kernel.cu
#include "kernel.h"

static __global__ void scale_add_kernel(float *out, const float *in, float scale, int64_t n) {
    const int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] += scale * in[i];
}

int scale_add(float *out, const float *in, float scale, int64_t n, int device, void *stream) {
    const cudaError_t current = cudaSetDevice(device); // goroutines change threads, whose devices differ
    if (current != cudaSuccess || n == 0) return current;
    scale_add_kernel<<<(unsigned)((n + 255) / 256), 256, 0, (cudaStream_t)stream>>>(out, in, scale, n);
    return cudaGetLastError();
}
