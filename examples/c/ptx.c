/* ptx.c: kernels without nvcc: writes kernels of matrices, norms and attention as PTX. Where a driver and a GPU are, it
 * loads them through the driver's API, runs them, compares with float64 and prints their speed.
 *
 *     cc -Icsrc examples/c/ptx.c build/lib/libvibrant.a -lm -ldl -pthread -o ptx && ./ptx
 *
 * `./ptx --save FILE` writes the speed of each beside the naive product's, or the CPU's kernels, as lines of JSON.
 */
#include <dlfcn.h>
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "vibrant.h"

/* ---- the part of the driver's API that is used: types as cuda.h has them ----------------------------------------- */

typedef uint64_t address;
static int (*cuInit)(unsigned), (*cuDeviceGet)(int *, int), (*cuDeviceGetAttribute)(int *, int, int);
static int (*cuDeviceGetName)(char *, int, int), (*cuMemcpyDtoDAsync)(address, address, size_t, void *);
static int (*cuDevicePrimaryCtxRetain)(void **, int), (*cuCtxSetCurrent)(void *), (*cuCtxSynchronize)(void);
static int (*cuMemAlloc)(address *, size_t), (*cuMemFree)(address);
static int (*cuMemcpyHtoD)(address, const void *, size_t), (*cuMemcpyDtoH)(void *, address, size_t);
static int (*cuModuleLoadData)(void **, const void *), (*cuModuleUnload)(void *);
static int (*cuModuleGetFunction)(void **, void *, const char *);
static int (*cuLaunchKernel)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *,
                             void **, void **);
static int (*cuEventCreate)(void **, unsigned), (*cuEventRecord)(void *, void *),
    (*cuEventElapsedTime)(float *, void *, void *);

static int load_driver(void) {
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    if (!driver) return 0;
    const struct { void *place; const char *name; } all[] = {
        {&cuInit, "cuInit"}, {&cuDeviceGetName, "cuDeviceGetName"}, {&cuMemcpyDtoDAsync, "cuMemcpyDtoDAsync_v2"},
        {&cuDeviceGet, "cuDeviceGet"}, {&cuDeviceGetAttribute, "cuDeviceGetAttribute"},
        {&cuDevicePrimaryCtxRetain, "cuDevicePrimaryCtxRetain"}, {&cuCtxSetCurrent, "cuCtxSetCurrent"},
        {&cuCtxSynchronize, "cuCtxSynchronize"}, {&cuMemAlloc, "cuMemAlloc_v2"}, {&cuMemFree, "cuMemFree_v2"},
        {&cuMemcpyHtoD, "cuMemcpyHtoD_v2"}, {&cuMemcpyDtoH, "cuMemcpyDtoH_v2"}, {&cuModuleLoadData, "cuModuleLoadData"},
        {&cuModuleUnload, "cuModuleUnload"}, {&cuModuleGetFunction, "cuModuleGetFunction"},
        {&cuLaunchKernel, "cuLaunchKernel"}, {&cuEventCreate, "cuEventCreate"}, {&cuEventRecord, "cuEventRecord"},
        {&cuEventElapsedTime, "cuEventElapsedTime"}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        void *f = dlsym(driver, all[i].name);
        if (!f) return 0;
        memcpy(all[i].place, &f, sizeof f);
    }
    return 1;
}

static void must(int result, const char *what) {
    if (result == 0) return;
    fprintf(stderr, "ptx: %s: driver error %d\n", what, result);
    exit(1);
}

/* ---- operands and references ------------------------------------------------------------------------------------- */

static uint32_t seed = 1;
static float random_float(void) { /* about -1 to 1 */
    seed = seed * 1664525u + 1013904223u;
    return (float)(int32_t)seed / 2147483648.0f;
}

static uint16_t half_of(float x) { /* of small normal numbers, truncated */
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    const int exponent = (int)(u >> 23 & 255) - 112;
    return (uint16_t)(u >> 16 & 0x8000) | (exponent <= 0 ? 0 : (uint16_t)(exponent << 10 | (u >> 13 & 1023)));
}

static float float_of(uint16_t h) {
    const float m = (float)(h & 1023) / 1024, sign = h & 0x8000 ? -1.0f : 1.0f;
    const int e = h >> 10 & 31;
    return sign * (e ? ldexpf(1 + m, e - 15) : ldexpf(m, -14));
}

/* The weights of a block of Q4_K: see ggml's layout in csrc/quant.h. */
static void decode_q4k(float *w, const uint8_t *b) {
    const float d = float_of((uint16_t)(b[0] | b[1] << 8)), least = float_of((uint16_t)(b[2] | b[3] << 8));
    for (int g = 0; g < 8; g++) {
        const uint8_t *s = b + 4;
        const int scale = g < 4 ? s[g] & 63 : (s[g + 4] & 15) | s[g - 4] >> 6 << 4;
        const int minimum = g < 4 ? s[g + 4] & 63 : s[g + 4] >> 4 | s[g] >> 6 << 4;
        for (int i = 0; i < 32; i++) {
            const uint8_t q = b[16 + g / 2 * 32 + i];
            w[g * 32 + i] = d * (float)scale * (float)(g % 2 ? q >> 4 : q & 15) - least * (float)minimum;
        }
    }
}

typedef struct problem {
    vb_ptx_kernel kernel;
    const char *label; /* of what --save writes */
    size_t in_bytes[3], out_count; /* operands and f32 results */
    void *in[3];
    double flops, bytes;
} problem;

/* The result at index i in float64, and the size of its terms. */
static double reference(const problem *p, size_t i, double *size) {
    const vb_ptx_kernel *k = &p->kernel;
    const float *a = p->in[0], *b = p->in[1], *c = p->in[2];
    double sum = 0;
    *size = 0;
    switch (k->kind) {
    case VB_PTX_GEMM_NAIVE:
    case VB_PTX_GEMM_TILED:
    case VB_PTX_GEMM_TENSOR_CORE:
    case VB_PTX_QUANTIZED_GEMM: {
        const size_t row = i / (size_t)k->n, col = i % (size_t)k->n, depth = (size_t)k->k, n = (size_t)k->n;
        float w[256];
        for (size_t j = 0; j < depth; j++) {
            double x = k->kind == VB_PTX_GEMM_TENSOR_CORE ? float_of(((uint16_t *)p->in[0])[row * depth + j])
                                                          : a[row * depth + j],
                   y;
            if (k->kind == VB_PTX_QUANTIZED_GEMM) {
                if (j % 256 == 0) decode_q4k(w, (uint8_t *)p->in[1] + (col * depth + j) / 256 * 144);
                y = w[j % 256];
            } else {
                y = k->kind == VB_PTX_GEMM_TENSOR_CORE ? float_of(((uint16_t *)p->in[1])[j * n + col]) : b[j * n + col];
            }
            sum += x * y, *size += fabs(x * y);
        }
        return sum;
    }
    case VB_PTX_SOFTMAX: {
        const size_t n = (size_t)k->dim;
        const float *row = a + i / n * n;
        double most = row[0];
        for (size_t j = 0; j < n; j++) most = fmax(most, row[j]);
        for (size_t j = 0; j < n; j++) sum += exp(row[j] - most);
        return *size = exp(row[i % n] - most) / sum;
    }
    case VB_PTX_LAYER_NORM: {
        const size_t n = (size_t)k->dim;
        const float *row = a + i / n * n;
        double mean = 0;
        for (size_t j = 0; j < n && !k->rms; j++) mean += row[j] / (double)n;
        for (size_t j = 0; j < n; j++) sum += (row[j] - mean) * (row[j] - mean) / (double)n;
        *size = 1;
        return (row[i % n] - mean) / sqrt(sum + k->epsilon) * (k->plain ? 1 : b[i % n]) +
               (k->plain || k->rms ? 0 : c[i % n]);
    }
    case VB_PTX_ATTENTION: {
        const size_t n = (size_t)k->dim, seq = (size_t)k->seq, head = i / n / seq, row = i / n % seq;
        const size_t keys = k->causal ? row + 1 : seq;
        double total = 0, most = -INFINITY;
        double *score = malloc(keys * sizeof *score);
        for (size_t j = 0; j < keys; j++) {
            score[j] = 0;
            for (size_t d = 0; d < n; d++)
                score[j] += (double)a[(head * seq + row) * n + d] * b[(head * seq + j) * n + d];
            score[j] /= sqrt((double)n);
            most = fmax(most, score[j]);
        }
        for (size_t j = 0; j < keys; j++)
            total += exp(score[j] - most), sum += exp(score[j] - most) * c[(head * seq + j) * n + i % n];
        free(score);
        *size = 1;
        return sum / total;
    }
    default: return NAN; /* main has no such problem */
    }
}

static void fill(problem *p) {
    const vb_ptx_kernel *k = &p->kernel;
    const size_t m = (size_t)k->m, n = (size_t)k->n, depth = (size_t)k->k, rows = (size_t)k->rows, dim = (size_t)k->dim;
    const size_t heads = (size_t)(k->heads * k->seq) * dim;
    int halves = 0;
    switch (k->kind) {
    case VB_PTX_GEMM_TENSOR_CORE:
        halves = 1;
        /* fallthrough */
    case VB_PTX_GEMM_NAIVE:
    case VB_PTX_GEMM_TILED:
        p->in_bytes[0] = m * depth * (halves ? 2 : 4), p->in_bytes[1] = depth * n * (halves ? 2 : 4),
        p->out_count = m * n;
        p->flops = 2.0 * (double)m * (double)n * (double)depth;
        break;
    case VB_PTX_QUANTIZED_GEMM:
        p->in_bytes[0] = m * depth * 4, p->in_bytes[1] = n * depth / 256 * 144, p->out_count = m * n;
        p->bytes = (double)p->in_bytes[1];
        break;
    case VB_PTX_SOFTMAX:
    case VB_PTX_LAYER_NORM:
        p->in_bytes[0] = rows * dim * 4, p->out_count = rows * dim;
        if (k->kind == VB_PTX_LAYER_NORM) p->in_bytes[1] = p->in_bytes[2] = dim * 4;
        p->bytes = 8.0 * (double)(rows * dim);
        break;
    case VB_PTX_ATTENTION:
        for (int i = 0; i < 3; i++) p->in_bytes[i] = heads * 4;
        p->out_count = heads;
        p->flops = 4.0 * (double)heads * (double)k->seq / (k->causal ? 2 : 1);
        break;
    default: break;
    }
    for (int i = 0; i < 3; i++) {
        p->in[i] = malloc(p->in_bytes[i] + 1);
        for (size_t j = 0; j < p->in_bytes[i] / (halves ? 2 : 4); j++) {
            if (halves) ((uint16_t *)p->in[i])[j] = half_of(random_float());
            else ((float *)p->in[i])[j] = random_float();
        }
    }
    if (k->kind == VB_PTX_QUANTIZED_GEMM)
        for (size_t block = 0; block < n * depth / 256; block++) {
            uint8_t *b = (uint8_t *)p->in[1] + block * 144;
            for (int j = 4; j < 144; j++) b[j] = (uint8_t)(random_float() * 128 + 128);
            const uint16_t d = half_of(0.001f + 0.0005f * random_float()), least = half_of(0.005f);
            b[0] = (uint8_t)d, b[1] = (uint8_t)(d >> 8), b[2] = (uint8_t)least, b[3] = (uint8_t)(least >> 8);
        }
}

/* Loads and runs a kernel; returns its greatest error relative to the size of its terms at up to 2,000 places. */
static double run(problem *p, const char *ptx, float *microseconds) {
    const vb_ptx_kernel *k = &p->kernel;
    void *module, *function, *start, *end;
    address in[3] = {0}, out;
    must(cuModuleLoadData(&module, ptx), "load the module");
    must(cuModuleGetFunction(&function, module, vb_ptx_name(k)), "find the entry");
    for (int i = 0; i < 3; i++) {
        must(cuMemAlloc(&in[i], p->in_bytes[i] + 16), "allocate");
        must(cuMemcpyHtoD(in[i], p->in[i], p->in_bytes[i]), "copy to the GPU");
    }
    float *result = malloc(p->out_count * 4);
    memset(result, 0xff, p->out_count * 4); /* NaN: what the kernel leaves out is seen */
    must(cuMemAlloc(&out, p->out_count * 4), "allocate");
    must(cuMemcpyHtoD(out, result, p->out_count * 4), "copy to the GPU");
    uint32_t m = (uint32_t)k->m, n = (uint32_t)k->n, depth = (uint32_t)k->k, rows = (uint32_t)k->rows,
             dim = (uint32_t)k->dim;
    uint32_t seq = (uint32_t)k->seq, heads = (uint32_t)k->heads;
    void *product[] = {&in[0], &in[1], &out, &m, &n, &depth}, *softmax[] = {&in[0], &out, &dim};
    void *norm[] = {&in[0], &out, &in[1], &in[2], &dim, &rows}, /* RMSNorm takes the first three */
         *attention[] = {&in[0], &in[1], &in[2], &out, &seq, &dim, &heads};
    void **parameters = k->kind == VB_PTX_SOFTMAX      ? softmax
                        : k->kind == VB_PTX_LAYER_NORM ? norm
                        : k->kind == VB_PTX_ATTENTION  ? attention
                                                       : product;
    vb_ptx_launch_size size;
    if (vb_ptx_launch(&size, k) != VB_OK) exit(1);
    must(cuEventCreate(&start, 0) || cuEventCreate(&end, 0), "make events");
    *microseconds = INFINITY;
    for (int i = 0; i < 10; i++) {
        float ms;
        must(cuEventRecord(start, NULL), "record");
        must(cuLaunchKernel(function, (unsigned)size.grid_x, (unsigned)size.grid_y, 1, (unsigned)size.threads, 1, 1, 0,
                            NULL, parameters, NULL),
             "launch");
        must(cuEventRecord(end, NULL), "record");
        must(cuCtxSynchronize(), "run");
        must(cuEventElapsedTime(&ms, start, end), "time");
        *microseconds = fminf(*microseconds, ms * 1000);
    }
    must(cuMemcpyDtoH(result, out, p->out_count * 4), "copy from the GPU");
    double worst = 0;
    const size_t step = p->out_count / 2000 | 1;
    for (size_t i = 0; i < p->out_count; i++) {
        if (result[i] != result[i]) return NAN;
        if (i % step != 0) continue;
        double terms;
        const double want = reference(p, i, &terms), error = fabs(result[i] - want) / (terms + 1e-30);
        worst = error > worst ? error : worst;
    }
    for (int i = 0; i < 3; i++) cuMemFree(in[i]);
    cuMemFree(out);
    cuModuleUnload(module);
    free(result);
    return worst;
}

/* ---- the same on the CPU ----------------------------------------------------------------------------------------- */

static vb_status run_on_cpu(const problem *p, float *out, vb_stream *stream) {
    const vb_ptx_kernel *k = &p->kernel;
    const float *a = p->in[0], *b = p->in[1];
    const vb_weight w = {.data = p->in[1], .type = VB_Q4_K, .layout = VB_STORED, .rows = k->n, .cols = k->k};
    switch (k->kind) {
    case VB_PTX_SOFTMAX: return vb_softmax_batched(out, a, VB_F32, k->rows, k->dim, stream);
    case VB_PTX_LAYER_NORM:
        if (k->rms) return vb_rms_norm_batched(out, a, b, VB_F32, k->rows, k->dim, k->epsilon, stream);
        return vb_layer_norm_batched(out, a, b, p->in[2], VB_F32, k->rows, k->dim, k->epsilon, stream);
    case VB_PTX_ATTENTION:
        return vb_attention(&VB_ARGS(vb_attention_args, .out = out, .q = a, .k = b, .v = p->in[2], .batch = 1,
                                     .seq = k->seq, .heads = k->heads, .kv_heads = k->heads, .dim = k->dim,
                                     .q_batch_stride = k->heads * k->seq * k->dim, .q_head_stride = k->seq * k->dim,
                                     .q_row_stride = k->dim, .kv_capacity = k->seq, .kv_len = k->seq,
                                     .scale = 1 / sqrtf((float)k->dim), .causal = k->causal, .type = VB_F32,
                                     .kv_type = VB_F32), stream);
    case VB_PTX_QUANTIZED_GEMM: return vb_linear(out, a, &w, NULL, k->m, stream);
    default: return vb_matmul(out, a, b, VB_F32, k->m, k->k, k->n, stream);
    }
}

/* Microseconds of our own kernels with all cores, the better of two runs. */
static double time_on_cpu(const problem *p) {
    vb_device *device;
    vb_stream *stream;
    float *out = malloc(p->out_count * 4);
    double best = INFINITY;
    if (vb_device_open(&device, VB_CPU, 0, NULL) != VB_OK || vb_stream_create(&stream, device) != VB_OK) exit(1);
    for (int i = 0; i < 2; i++) {
        struct timespec start, end;
        clock_gettime(CLOCK_MONOTONIC, &start);
        const vb_status status = run_on_cpu(p, out, stream);
        clock_gettime(CLOCK_MONOTONIC, &end);
        if (status != VB_OK) {
            fprintf(stderr, "ptx: %s on the CPU: %s\n", vb_ptx_name(&p->kernel), vb_status_string(status));
            exit(1);
        }
        best = fmin(best, 1e6 * (double)(end.tv_sec - start.tv_sec) + 1e-3 * (double)(end.tv_nsec - start.tv_nsec));
    }
    vb_stream_destroy(stream);
    vb_device_close(device);
    free(out);
    return best;
}

/* GB/s that a copy on the GPU reads and writes. */
static double copy_bandwidth(void) {
    const size_t bytes = (size_t)1 << 29;
    address from, to;
    void *start, *end;
    float best = INFINITY, ms;
    must(cuMemAlloc(&from, bytes) || cuMemAlloc(&to, bytes), "allocate");
    must(cuEventCreate(&start, 0) || cuEventCreate(&end, 0), "make events");
    for (int i = 0; i < 10; i++) {
        must(cuEventRecord(start, NULL) || cuMemcpyDtoDAsync(to, from, bytes, NULL) || cuEventRecord(end, NULL) ||
                 cuCtxSynchronize() || cuEventElapsedTime(&ms, start, end), "copy");
        best = fminf(best, ms);
    }
    cuMemFree(from);
    cuMemFree(to);
    return 2.0 * (double)bytes / best / 1e6;
}

/* A line of JSON: `peer` is the naive product's time where there is one, else the CPU's. */
static void save(FILE *file, const problem *p, double ours, double naive, double error, double copy, const char *gpu) {
    const double peer = naive > 0 ? naive : time_on_cpu(p);
    fprintf(file, "{\"suite\":\"ptx\",\"case\":\"%s/%s\",\"ours\":%.2f,\"peer\":%.2f,\"unit\":\"us\",\"ratio\":%.2f,"
                  "\"roofline\":", vb_ptx_name(&p->kernel), p->label, ours, peer, peer / ours);
    if (p->bytes > 0) fprintf(file, "%.1f", 100 * p->bytes / ours / 1e3 / copy);
    else fprintf(file, "null");
    fprintf(file, ",\"error\":%.1e,\"device\":\"%s\",\"command\":\"examples/c/ptx.c --save, peer: %s\"}\n", error, gpu,
            naive > 0 ? "gemm_naive" : "the CPU's kernels");
}

int main(int argc, char **argv) {
    FILE *file = argc == 3 && strcmp(argv[1], "--save") == 0 ? fopen(argv[2], "w") : NULL;
    if (argc > 1 && !file) {
        fprintf(stderr, "ptx: usage: ptx [--save FILE], where FILE can be written\n");
        return 2;
    }
    char gpu_name[128] = "";
    double naive = 0, copy = 0;
    static problem problems[] = {
        {.kernel = {.kind = VB_PTX_GEMM_NAIVE, .m = 127, .n = 255, .k = 77}},
        {.kernel = {.kind = VB_PTX_GEMM_NAIVE, .m = 4096, .n = 4096, .k = 4096}, .label = "4096x4096x4096"},
        {.kernel = {.kind = VB_PTX_GEMM_TILED, .m = 127, .n = 255, .k = 77, .tile = 8}},
        {.kernel = {.kind = VB_PTX_GEMM_TILED, .m = 1, .n = 1, .k = 1}},
        {.kernel = {.kind = VB_PTX_GEMM_TILED, .m = 4096, .n = 4096, .k = 4096, .tile = 32}, .label = "4096x4096x4096"},
        {.kernel = {.kind = VB_PTX_GEMM_TENSOR_CORE, .m = 129, .n = 200, .k = 72}},
        {.kernel = {.kind = VB_PTX_GEMM_TENSOR_CORE, .m = 127, .n = 255, .k = 77}},
        {.kernel = {.kind = VB_PTX_GEMM_TENSOR_CORE, .m = 127, .n = 255, .k = 77, .target = 75}},
        {.kernel = {.kind = VB_PTX_GEMM_TENSOR_CORE, .m = 4096, .n = 4096, .k = 4096}, .label = "4096x4096x4096"},
        {.kernel = {.kind = VB_PTX_SOFTMAX, .rows = 3, .dim = 1}},
        {.kernel = {.kind = VB_PTX_SOFTMAX, .rows = 5, .dim = 1001}},
        {.kernel = {.kind = VB_PTX_SOFTMAX, .rows = 3, .dim = 20481}},
        {.kernel = {.kind = VB_PTX_SOFTMAX, .rows = 16384, .dim = 4096}, .label = "16384x4096"},
        {.kernel = {.kind = VB_PTX_LAYER_NORM, .rows = 5, .dim = 1001, .epsilon = 1e-5f}},
        {.kernel = {.kind = VB_PTX_LAYER_NORM, .rows = 3, .dim = 20481, .epsilon = 1e-5f, .plain = 1}},
        {.kernel = {.kind = VB_PTX_LAYER_NORM, .rows = 3, .dim = 897, .epsilon = 1e-6f, .rms = 1}},
        {.kernel = {.kind = VB_PTX_LAYER_NORM, .rows = 16384, .dim = 4096, .epsilon = 1e-6f, .rms = 1},
         .label = "16384x4096"},
        {.kernel = {.kind = VB_PTX_LAYER_NORM, .rows = 16384, .dim = 4096, .epsilon = 1e-5f}, .label = "16384x4096"},
        {.kernel = {.kind = VB_PTX_ATTENTION, .seq = 77, .heads = 3, .dim = 80}},
        {.kernel = {.kind = VB_PTX_ATTENTION, .seq = 129, .heads = 2, .dim = 64, .causal = 1}},
        {.kernel = {.kind = VB_PTX_ATTENTION, .seq = 1, .heads = 1, .dim = 256, .causal = 1}},
        {.kernel = {.kind = VB_PTX_ATTENTION, .seq = 1024, .heads = 32, .dim = 128, .causal = 1},
         .label = "1024x32x128"},
        {.kernel = {.kind = VB_PTX_QUANTIZED_GEMM, .m = 3, .n = 77, .k = 256}},
        {.kernel = {.kind = VB_PTX_QUANTIZED_GEMM, .m = 11, .n = 5, .k = 768}},
        {.kernel = {.kind = VB_PTX_QUANTIZED_GEMM, .m = 1, .n = 11008, .k = 2048}, .label = "1x11008x2048"},
    };
    int major = 0, minor = 0, gpu = 0, device = 0;
    void *context;
    if (load_driver() && cuInit(0) == 0 && cuDeviceGet(&device, 0) == 0) {
        gpu = 1;
        must(cuDeviceGetAttribute(&major, 75, device) || cuDeviceGetAttribute(&minor, 76, device),
             "read the compute capability");
        must(cuDeviceGetName(gpu_name, (int)sizeof gpu_name, device), "read its name");
        must(cuDevicePrimaryCtxRetain(&context, device) || cuCtxSetCurrent(context), "open the GPU");
        copy = copy_bandwidth();
        printf("a copy moves %.0f GB/s\n", copy);
    } else {
        puts("no driver or no GPU: the kernels are written, and not run");
    }
    int failed = 0;
    for (size_t i = 0; i < sizeof problems / sizeof *problems; i++) {
        problem *p = &problems[i];
        vb_ptx_kernel *k = &p->kernel;
        k->size = sizeof *k;
        if (k->target == 0) k->target = gpu && major >= 8 ? 80 : 75;
        char *ptx;
        if (vb_ptx_emit(&ptx, k) != VB_OK) {
            fprintf(stderr, "ptx: %s: %s\n", vb_ptx_name(k), vb_ptx_invalid(k) ? vb_ptx_invalid(k) : "was not written");
            return 1;
        }
        if (gpu) {
            float us;
            fill(p);
            /* Sums of float32 in any order; halves are exact; exp2 and rsqrt to 2 ulp. */
            const double error = run(p, ptx, &us), tolerance = 2e-5;
            printf("%-22s sm_%d  m %5lld n %5lld k %5lld rows %5lld dim %5lld  error %.1e  %9.1f us  %6.1f TFLOP/s  "
                   "%6.0f GB/s%s\n",
                   vb_ptx_name(k), k->target, (long long)k->m, (long long)k->n, (long long)k->k,
                   (long long)(k->rows + k->seq), (long long)k->dim, error, us, p->flops / us / 1e6,
                   p->bytes / us / 1e3, error <= tolerance ? "" : "  WRONG");
            failed |= !(error <= tolerance);
            const bool product = k->kind == VB_PTX_GEMM_TILED || k->kind == VB_PTX_GEMM_TENSOR_CORE;
            if (file && p->label) save(file, p, us, product ? naive : 0, error, copy, gpu_name);
            if (p->label && k->kind == VB_PTX_GEMM_NAIVE) naive = us;
            for (int j = 0; j < 3; j++) free(p->in[j]);
        } else {
            printf("%-22s sm_%d  %zu bytes of PTX\n", vb_ptx_name(k), k->target, strlen(ptx));
        }
        vb_ptx_free(ptx);
    }
    if (file && fclose(file) != 0) return perror(argv[2]), 1;
    return failed;
}
