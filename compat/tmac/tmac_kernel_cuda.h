/* tmac_kernel_cuda.h: the interface of EdgeLLM's CUDA library for ternary models over libvibrant, by its names:
 * programs that load libtmac_kernel_cuda.so through their language's foreign functions go on working.
 *
 * All memory is the host's. Weights are rows of (K + 3) / 4 bytes: byte k / 4, bits 2 (k % 4), code - 1; the code 3 is
 * refused. Activations are [K][N], results [M][N], scales [M]; NULL scales are ones. Functions return 0, or -1 for a
 * mistake or trouble of the device: tmac_error says what. Not for several threads at once. One set of weights, one of a
 * norm and one for int8 tensor cores are kept between calls.
 *
 * Where there is no GPU the same calls run on the CPU: tmac_backend_name says where. */
#ifndef TMAC_KERNEL_CUDA_H
#define TMAC_KERNEL_CUDA_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
#ifdef __GNUC__
#pragma GCC visibility push(default)
#endif

/* Chooses "cuda", "cpu" (vector instructions where the processor has them, see VIBRANT_SIMD), or "auto": cuda where
 * there is a GPU, else cpu. Without a call it is auto. Gives back what was loaded. */
int tmac_select_backend(const char *name);
/* What computes: "cuda: NVIDIA H200 (sm_90a)", "cpu: avx512 ...", "cpu: plain"; static. Opens the device. */
const char *tmac_backend_name(void);
/* What was wrong with the newest call that returned -1; static, "" before the first. */
const char *tmac_error(void);

int cuda_available(void); /* 1 where a GPU can be used */
int cuda_get_device_count(void);
const char *cuda_device_name(void);
/* Each may be NULL. */
int cuda_device_info(size_t *total_memory, int *sm_count, int *compute_major, int *compute_minor);
int cuda_get_compute_capability(void); /* 90 for 9.0; 0 on the CPU */
int cuda_has_int8_tensorcore(void);

/* Opens the device. The sizes are what is expected, for memory that is taken at once; calls may need more. */
int cuda_init(int max_weights_bytes, int max_activations, int max_output);
/* -1 where there are not so many GPUs. One of them computes. */
int cuda_init_multi_gpu(int num_gpus);
void cuda_cleanup(void);
void cuda_sync(void);
int cuda_init_streams(void);
void cuda_cleanup_streams(void);
void cuda_sync_streams(void);
int cuda_alloc_pinned(int max_activations, int max_output);
void cuda_free_pinned(void);

int tmac_matmul_cuda(const int8_t *weights, const float *activations, float *output, const float *scales, int M, int N,
                     int K);
int rmsnorm_cuda(float *output, const float *input, const float *weight, int batch_size, int size, float eps);
int softmax_cuda(float *output, const float *input, int batch_size, int size);

int cuda_load_weights(const int8_t *weights, const float *scales, int weight_bytes, int num_rows);
void cuda_unload_weights(void);
int cuda_weights_loaded(void);
int cuda_load_norm_weights(const float *norm_weights, int size);

/* With what was loaded. async returns before the result is there: cuda_sync_streams waits; activations and output must
 * stay until then. */
int tmac_matmul_cuda_persistent(const float *activations, float *output, int M, int N, int K);
int tmac_matmul_cuda_adaptive(const float *activations, float *output, int M, int N, int K);
int tmac_matmul_cuda_v3(const float *activations, float *output, int M, int N, int K);
int tmac_matmul_cuda_async(const float *activations, float *output, int M, int N, int K);
int rmsnorm_cuda_persistent(float *output, const float *input, int batch_size, int size, float eps);
int fused_rmsnorm_matmul_cuda(const float *input, float *output, int M, int N, int K, float eps);
int fused_rmsnorm_matmul_cuda_adaptive(const float *input, float *output, int M, int N, int K, float eps);
int fused_rmsnorm_matmul_cuda_adaptive_v2(const float *input, float *output, int M, int N, int K, float eps);
int fused_rmsnorm_matmul_cuda_fast(const float *input, float *output, int M, int N, int K, float eps);
int streaming_fused_rmsnorm_matmul_cuda(const float *input, float *output, int M, int K, float eps);

/* Activations are rounded to int8 by columns, and multiplied exactly; K is a multiple of 4. */
int cuda_load_weights_int8_tc(const int8_t *packed_weights, const float *scales, int weight_bytes, int num_rows, int K);
void cuda_unload_weights_int8_tc(void);
int cuda_weights_int8_tc_loaded(void);
int tmac_matmul_cuda_int8_tc(const float *activations, float *output, int M, int N, int K);
int streaming_fused_rmsnorm_matmul_int8_tc(const float *input, float *output, int M, int K, float eps);

#ifdef __GNUC__
#pragma GCC visibility pop
#endif
#ifdef __cplusplus
}
#endif
#endif
