/* tmac_kernel_cuda.c: EdgeLLM's names over vibrant.h. */
#include "tmac_kernel_cuda.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "vibrant.h"

typedef struct memory {
    void *data;
    int64_t bytes;
} memory;

static struct {
    vb_device *device;
    vb_stream *stream;
    char backend[256], asked[8];
    memory activations, output, weights, scales, codes, code_scales; /* of a call */
    memory kept, kept_scales, norm, int8, int8_scales;               /* loaded */
    int64_t kept_bytes, rows, norm_size, int8_rows, int8_k;
    bool has_scales, int8_has_scales;
} state;
static const char *error = "";

static int fail(const char *why) {
    error = why;
    return -1;
}
static int failed(vb_status status) {
    const char *why = status == VB_INVALID_ARGUMENT ? vb_stream_invalid_argument(state.stream) : "";
    return fail(*why ? why : vb_status_string(status));
}
#define TRY(expression) \
    do { \
        const vb_status status_ = (expression); \
        if (status_ != VB_OK) return failed(status_); \
    } while (0)
#define CHECK(expression) \
    do { \
        if (expression) return -1; \
    } while (0)

static int open_device(void) {
    if (state.device) return 0;
    vb_status status = VB_NO_DEVICE;
    if (strcmp(state.asked, "cpu") != 0) status = vb_device_open(&state.device, VB_CUDA, 0, NULL);
    if (status != VB_OK && strcmp(state.asked, "cuda") != 0) status = vb_device_open(&state.device, VB_CPU, 0, NULL);
    if (status != VB_OK) return failed(status);
    TRY(vb_stream_create(&state.stream, state.device));
    vb_device_info info;
    TRY(vb_device_get_info(&info, state.device));
    if (info.kind == VB_CUDA)
        snprintf(state.backend, sizeof state.backend, "cuda: %s (%s)", info.name, info.features);
    else
        snprintf(state.backend, sizeof state.backend, "cpu: %s", *info.features ? info.features : "plain");
    return 0;
}

/* Room for so many bytes, whose contents are lost where it grows. */
static int room(memory *m, int64_t bytes) {
    CHECK(open_device());
    if (m->bytes >= bytes) return 0;
    TRY(vb_stream_synchronize(state.stream));
    vb_free(m->data, state.device);
    *m = (memory){0};
    TRY(vb_alloc(&m->data, bytes, state.device));
    m->bytes = bytes;
    return 0;
}
static void drop(memory *m) {
    if (state.device) vb_free(m->data, state.device);
    *m = (memory){0};
}
static int upload(memory *m, const void *from, int64_t bytes) {
    CHECK(room(m, bytes));
    TRY(vb_memcpy(m->data, from, bytes, VB_HOST_TO_DEVICE, state.stream));
    return 0;
}
static int download(void *to, const memory *m, int64_t bytes, bool wait) {
    TRY(vb_memcpy(to, m->data, bytes, VB_DEVICE_TO_HOST, state.stream));
    if (wait) TRY(vb_stream_synchronize(state.stream));
    return 0;
}

int tmac_select_backend(const char *name) {
    if (!name || (strcmp(name, "auto") != 0 && strcmp(name, "cuda") != 0 && strcmp(name, "cpu") != 0))
        return fail("backend: neither auto, cuda nor cpu");
    cuda_cleanup();
    snprintf(state.asked, sizeof state.asked, "%s", name);
    return open_device();
}
const char *tmac_backend_name(void) { return open_device() ? "none" : state.backend; }
const char *tmac_error(void) { return error; }

int cuda_get_device_count(void) {
    int count = 0;
    return vb_device_count(&count, VB_CUDA) == VB_OK ? count : 0;
}
int cuda_available(void) { return cuda_get_device_count() > 0; }

static int info_of(vb_device_info *info) {
    CHECK(open_device());
    TRY(vb_device_get_info(info, state.device));
    return 0;
}
const char *cuda_device_name(void) {
    static vb_device_info info;
    return info_of(&info) ? "none" : info.name;
}
int cuda_device_info(size_t *total_memory, int *sm_count, int *compute_major, int *compute_minor) {
    vb_device_info info;
    CHECK(info_of(&info));
    if (total_memory) *total_memory = (size_t)info.total_memory;
    if (sm_count) *sm_count = info.multiprocessors;
    if (compute_major) *compute_major = info.compute_major;
    if (compute_minor) *compute_minor = info.compute_minor;
    return 0;
}
int cuda_get_compute_capability(void) {
    vb_device_info info;
    return info_of(&info) ? 0 : info.compute_major * 10 + info.compute_minor;
}
int cuda_has_int8_tensorcore(void) { return cuda_get_compute_capability() >= 75; }

int cuda_init(int max_weights_bytes, int max_activations, int max_output) {
    if (max_weights_bytes < 0 || max_activations < 0 || max_output < 0) return fail("sizes: negative");
    CHECK(room(&state.weights, max_weights_bytes));
    CHECK(room(&state.activations, 4 * (int64_t)max_activations));
    return room(&state.output, 4 * (int64_t)max_output);
}
int cuda_init_multi_gpu(int num_gpus) {
    if (num_gpus < 1 || num_gpus > cuda_get_device_count())
        return fail("num_gpus: not between 1 and the GPUs there are");
    return open_device();
}
void cuda_cleanup(void) {
    memory *all[] = {&state.activations, &state.output, &state.weights, &state.scales,      &state.codes,
        &state.code_scales,
                     &state.kept,        &state.kept_scales, &state.norm, &state.int8, &state.int8_scales};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) drop(all[i]);
    vb_stream_destroy(state.stream);
    vb_device_close(state.device);
    memset(&state, 0, sizeof state);
}
void cuda_sync(void) {
    if (state.stream) vb_stream_synchronize(state.stream);
}
/* A stream, and page-locked memory for what passes, are the library's own. */
int cuda_init_streams(void) { return open_device(); }
void cuda_cleanup_streams(void) { cuda_sync(); }
void cuda_sync_streams(void) { cuda_sync(); }
int cuda_alloc_pinned(int max_activations, int max_output) {
    return max_activations < 0 || max_output < 0 ? fail("sizes: negative") : open_device();
}
void cuda_free_pinned(void) {}

static int check_codes(const int8_t *weights, int64_t bytes) {
    if (!weights || bytes < 0) return fail("weights: null, or a negative size");
    for (int64_t i = 0; i < bytes; i++) /* both bits of a pair */
        if (weights[i] & weights[i] >> 1 & 0x55) return fail("weights: the code 3, which stands for no weight");
    return 0;
}

/* Weights and scales are on the device. */
static int matmul(const memory *weights, const memory *scales, const memory *norm, float eps, const float *activations,
                  float *output, int M, int N, int K, bool wait) {
    if (M < 0 || N < 0 || K < 0 || !activations || !output)
        return fail("M, N, K, activations, output: negative, or null");
    CHECK(upload(&state.activations, activations, (int64_t)K * N * 4));
    CHECK(room(&state.output, (int64_t)M * N * 4));
    TRY(vb_tmac_matmul(&VB_ARGS(vb_tmac_matmul_args, .out = state.output.data, .weights = weights->data,
                                .activations = state.activations.data, .scales = scales ? scales->data : NULL,
                                .norm = norm ? norm->data : NULL, .m = M, .n = N, .k = K, .groups = 1, .eps = eps,
                                .normed = norm != NULL),
                       state.stream));
    return download(output, &state.output, (int64_t)M * N * 4, wait);
}

int tmac_matmul_cuda(const int8_t *weights, const float *activations, float *output, const float *scales, int M, int N,
                     int K) {
    if (M < 0 || K < 0) return fail("M, K: negative");
    const int64_t bytes = (int64_t)M * (((int64_t)K + 3) / 4);
    CHECK(check_codes(weights, bytes));
    CHECK(upload(&state.weights, weights, bytes));
    if (scales) CHECK(upload(&state.scales, scales, 4 * (int64_t)M));
    return matmul(&state.weights, scales ? &state.scales : NULL, NULL, 0, activations, output, M, N, K, true);
}

static int rmsnorm(float *output, const float *input, const memory *weight, int batch_size, int size, float eps) {
    if (batch_size < 0 || size < 0 || !output || !input)
        return fail("batch_size, size, output, input: negative, or null");
    const int64_t bytes = (int64_t)batch_size * size * 4;
    CHECK(upload(&state.activations, input, bytes));
    CHECK(room(&state.output, bytes));
    TRY(vb_rms_norm_batched(state.output.data, state.activations.data, weight->data, VB_F32, batch_size, size, eps,
                            state.stream));
    return download(output, &state.output, bytes, true);
}
int rmsnorm_cuda(float *output, const float *input, const float *weight, int batch_size, int size, float eps) {
    if (!weight || size < 0) return fail("weight, size: null, or negative");
    CHECK(upload(&state.scales, weight, 4 * (int64_t)size));
    return rmsnorm(output, input, &state.scales, batch_size, size, eps);
}
int rmsnorm_cuda_persistent(float *output, const float *input, int batch_size, int size, float eps) {
    if (size != state.norm_size) return fail("size: not that of the norm that was loaded");
    return rmsnorm(output, input, &state.norm, batch_size, size, eps);
}
int softmax_cuda(float *output, const float *input, int batch_size, int size) {
    if (batch_size < 0 || size < 0 || !output || !input)
        return fail("batch_size, size, output, input: negative, or null");
    const int64_t bytes = (int64_t)batch_size * size * 4;
    CHECK(upload(&state.activations, input, bytes));
    CHECK(room(&state.output, bytes));
    TRY(vb_softmax_batched(state.output.data, state.activations.data, VB_F32, batch_size, size, state.stream));
    return download(output, &state.output, bytes, true);
}

int cuda_load_weights(const int8_t *weights, const float *scales, int weight_bytes, int num_rows) {
    if (num_rows <= 0 || weight_bytes < 0 || weight_bytes % num_rows != 0)
        return fail("weight_bytes, num_rows: no whole rows");
    CHECK(check_codes(weights, weight_bytes));
    cuda_unload_weights();
    CHECK(upload(&state.kept, weights, weight_bytes));
    if (scales) CHECK(upload(&state.kept_scales, scales, 4 * (int64_t)num_rows));
    TRY(vb_stream_synchronize(state.stream));
    state.kept_bytes = weight_bytes, state.rows = num_rows, state.has_scales = scales != NULL;
    return 0;
}
void cuda_unload_weights(void) {
    cuda_sync();
    drop(&state.kept);
    drop(&state.kept_scales);
    state.kept_bytes = state.rows = 0;
}
int cuda_weights_loaded(void) { return state.rows > 0; }
int cuda_load_norm_weights(const float *norm_weights, int size) {
    if (!norm_weights || size <= 0) return fail("norm_weights, size: null, or not above 0");
    CHECK(upload(&state.norm, norm_weights, 4 * (int64_t)size));
    TRY(vb_stream_synchronize(state.stream));
    state.norm_size = size;
    return 0;
}

static int with_loaded(const float *input, float *output, int M, int N, int K, bool normed, float eps, bool wait) {
    if (M != state.rows || K < 0 || (int64_t)M * (((int64_t)K + 3) / 4) != state.kept_bytes)
        return fail("M, K: not those of the weights that were loaded");
    if (normed && K != state.norm_size) return fail("K: not the size of the norm that was loaded");
    return matmul(&state.kept, state.has_scales ? &state.kept_scales : NULL, normed ? &state.norm : NULL, eps, input,
                  output, M, N, K, wait);
}
int tmac_matmul_cuda_persistent(const float *activations, float *output, int M, int N, int K) {
    return with_loaded(activations, output, M, N, K, false, 0, true);
}
int tmac_matmul_cuda_adaptive(const float *activations, float *output, int M, int N, int K) {
    return with_loaded(activations, output, M, N, K, false, 0, true);
}
int tmac_matmul_cuda_v3(const float *activations, float *output, int M, int N, int K) {
    return with_loaded(activations, output, M, N, K, false, 0, true);
}
int tmac_matmul_cuda_async(const float *activations, float *output, int M, int N, int K) {
    return with_loaded(activations, output, M, N, K, false, 0, false);
}
int fused_rmsnorm_matmul_cuda(const float *input, float *output, int M, int N, int K, float eps) {
    return with_loaded(input, output, M, N, K, true, eps, true);
}
int fused_rmsnorm_matmul_cuda_adaptive(const float *input, float *output, int M, int N, int K, float eps) {
    return with_loaded(input, output, M, N, K, true, eps, true);
}
int fused_rmsnorm_matmul_cuda_adaptive_v2(const float *input, float *output, int M, int N, int K, float eps) {
    return with_loaded(input, output, M, N, K, true, eps, true);
}
int fused_rmsnorm_matmul_cuda_fast(const float *input, float *output, int M, int N, int K, float eps) {
    return with_loaded(input, output, M, N, K, true, eps, true);
}
int streaming_fused_rmsnorm_matmul_cuda(const float *input, float *output, int M, int K, float eps) {
    return with_loaded(input, output, M, 1, K, true, eps, true);
}

int cuda_load_weights_int8_tc(const int8_t *packed_weights, const float *scales, int weight_bytes, int num_rows,
                              int K) {
    if (num_rows <= 0 || K <= 0 || K % 4 != 0 || (int64_t)num_rows * (K / 4) != weight_bytes)
        return fail("weight_bytes, num_rows, K: no rows of K / 4 bytes, K a multiple of 4");
    if (!packed_weights) return fail("packed_weights: null");
    const int64_t bytes = num_rows * vb_int2_row_bytes(VB_INT2_INTERLEAVED, K);
    void *codes = malloc((size_t)bytes);
    if (!codes) return fail("out of memory");
    cuda_unload_weights_int8_tc();
    int result = 0;
    if (vb_int2_convert(codes, VB_INT2_INTERLEAVED, packed_weights, VB_INT2_ROWS, num_rows, K) != VB_OK)
        result = fail("packed_weights: the code 3, which stands for no weight");
    if (!result) result = upload(&state.int8, codes, bytes);
    if (!result && scales) result = upload(&state.int8_scales, scales, 4 * (int64_t)num_rows);
    if (!result && vb_stream_synchronize(state.stream) != VB_OK) result = fail("the device did not take the weights");
    free(codes);
    if (!result) state.int8_rows = num_rows, state.int8_k = K, state.int8_has_scales = scales != NULL;
    return result;
}
void cuda_unload_weights_int8_tc(void) {
    cuda_sync();
    drop(&state.int8);
    drop(&state.int8_scales);
    state.int8_rows = 0;
}
int cuda_weights_int8_tc_loaded(void) { return state.int8_rows > 0; }

/* norm is NULL for none. */
static int int8_matmul(const float *activations, float *output, int M, int N, int K, const memory *norm, float eps) {
    if (state.int8_rows == 0 || M != state.int8_rows || K != state.int8_k)
        return fail("M, K: not those of the weights that were loaded");
    if (N < 0 || !activations || !output) return fail("N, activations, output: negative, or null");
    /* The operation has a row a column of these. */
    float *rows = malloc((size_t)N * (size_t)(K > M ? K : M) * 4 + 1);
    if (!rows) return fail("out of memory");
    for (int64_t n = 0; n < N; n++)
        for (int64_t k = 0; k < K; k++) rows[n * K + k] = activations[k * N + n];
    int result = upload(&state.activations, rows, (int64_t)N * K * 4);
    if (!result) result = room(&state.codes, (int64_t)N * K);
    if (!result) result = room(&state.code_scales, (int64_t)N * 4);
    if (!result) result = room(&state.output, (int64_t)N * M * 4);
    vb_status status = VB_OK;
    if (!result)
        status = vb_norm_quantize(&VB_ARGS(vb_norm_quantize_args, .codes = state.codes.data,
                                           .scales = state.code_scales.data,
                                           .in = state.activations.data, .norm = norm ? norm->data : NULL, .rows = N,
                                           .cols = K, .eps = eps, .normed = norm != NULL),
                                  state.stream);
    if (!result && status == VB_OK)
        status = vb_w2a8_gemv(&VB_ARGS(vb_w2a8_gemv_args, .out = state.output.data, .weights = state.int8.data,
                                       .activations = state.codes.data, .activation_scales = state.code_scales.data,
                                       .weight_scales = state.int8_has_scales ? state.int8_scales.data : NULL,
                                       .segments = state.int8_has_scales ? M : 0, .m = N, .n = M, .k = K,
                                       .row_bytes = vb_int2_row_bytes(VB_INT2_INTERLEAVED, K),
                                       .layout = VB_INT2_INTERLEAVED, .out_type = VB_F32),
                              state.stream);
    if (!result && status != VB_OK) result = failed(status);
    if (!result) result = download(rows, &state.output, (int64_t)N * M * 4, true);
    if (!result)
        for (int64_t n = 0; n < N; n++)
            for (int64_t m = 0; m < M; m++) output[m * N + n] = rows[n * M + m];
    free(rows);
    return result;
}
int tmac_matmul_cuda_int8_tc(const float *activations, float *output, int M, int N, int K) {
    return int8_matmul(activations, output, M, N, K, NULL, 0);
}
int streaming_fused_rmsnorm_matmul_int8_tc(const float *input, float *output, int M, int K, float eps) {
    if (K != state.norm_size) return fail("K: not the size of the norm that was loaded");
    return int8_matmul(input, output, M, 1, K, &state.norm, eps);
}
