/* contract.c: the promises of vibrant.h about errors and handles, as a program that fails where one is broken.
 *
 *   make lib && gcc -std=c11 -D_GNU_SOURCE -Icsrc examples/c/contract.c build/lib/libvibrant.a -lm -pthread \
 *     -o build/contract && build/contract
 */
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "vibrant.h"

static int failures;

#define EXPECT(condition) \
    do { \
        if (!(condition)) { \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition); \
            failures++; \
        } \
    } while (0)

static void test_names(void) {
    EXPECT(strcmp(vb_version(), "0.1.0") == 0);
    for (int s = -1; s < 20; s++) EXPECT(vb_status_string((vb_status)s) && *vb_status_string((vb_status)s));
    EXPECT(strcmp(vb_dtype_string(VB_Q4_K), "Q4_K") == 0 && strcmp(vb_dtype_string((vb_dtype)99), "unknown") == 0);
    EXPECT(vb_dtype_block_size(VB_Q6_K) == 256 && vb_dtype_block_bytes(VB_Q6_K) == 210);
    EXPECT(vb_dtype_block_size((vb_dtype)4) == 0 && vb_dtype_block_bytes((vb_dtype)-1) == 0);
}

static void test_devices(void) {
    int count = -1;
    EXPECT(vb_device_count(&count, VB_CPU) == VB_OK && count == 1);
    EXPECT(vb_device_count(NULL, VB_CPU) == VB_INVALID_ARGUMENT);
    EXPECT(vb_device_count(&count, (vb_device_kind)7) == VB_INVALID_ARGUMENT);
    vb_device *device = (vb_device *)&count;
    EXPECT(vb_device_open(&device, VB_CPU, 1, NULL) == VB_NO_DEVICE && !device);
    EXPECT(vb_device_open(&device, VB_CPU, -1, NULL) == VB_INVALID_ARGUMENT && !device);
    EXPECT(vb_device_open(NULL, VB_CPU, 0, NULL) == VB_INVALID_ARGUMENT);
    EXPECT(vb_device_open(&device, VB_CPU, 0, &VB_ARGS(vb_device_options, .threads = -1)) == VB_INVALID_ARGUMENT);
    EXPECT(vb_device_open(&device, VB_CPU, 0, &(vb_device_options){.threads = 1}) == VB_INVALID_ARGUMENT && !device);
    vb_status cuda = vb_device_open(&device, VB_CUDA, 1000, NULL);
    EXPECT((cuda == VB_NOT_COMPILED || cuda == VB_NO_DEVICE) && !device);
}

static void test_ptx(void) {
    vb_ptx_kernel kernel = VB_ARGS(vb_ptx_kernel, .kind = VB_PTX_SOFTMAX, .rows = 2, .dim = 3, .causal = 1);
    vb_ptx_launch_size launch;
    char *ptx;
    kernel.size = offsetof(vb_ptx_kernel, causal); /* an older caller's */
    EXPECT(!vb_ptx_invalid(&kernel) && strcmp(vb_ptx_name(&kernel), "softmax_warp_shuffle") == 0);
    EXPECT(vb_ptx_launch(&launch, &kernel) == VB_OK && launch.grid_x == 2);
    EXPECT(vb_ptx_emit(&ptx, &kernel) == VB_OK);
    vb_ptx_free(ptx);
    kernel.size = 0;
    EXPECT(strcmp(vb_ptx_invalid(&kernel), "kernel->size: not sizeof(vb_ptx_kernel)") == 0);
    EXPECT(strcmp(vb_ptx_name(&kernel), "") == 0 && vb_ptx_launch(&launch, &kernel) == VB_INVALID_ARGUMENT);
    EXPECT(vb_ptx_emit(&ptx, &kernel) == VB_INVALID_ARGUMENT && !ptx);
}

static void test_communicators(vb_device *device) {
    vb_stream *streams[2] = {NULL, NULL};
    vb_communicator *c = (vb_communicator *)device;
    EXPECT(vb_stream_create(&streams[0], device) == VB_OK);
    EXPECT(vb_communicator_create(&c, streams, 2) == VB_INVALID_ARGUMENT && !c); /* a stream is NULL */
    EXPECT(vb_stream_create(&streams[1], device) == VB_OK);
    EXPECT(vb_communicator_create(&c, (vb_stream *[]){streams[0], streams[0]}, 2) == VB_INVALID_ARGUMENT && !c);
    EXPECT(vb_communicator_create(&c, streams, 0) == VB_INVALID_ARGUMENT);
    EXPECT(vb_communicator_create(NULL, streams, 2) == VB_INVALID_ARGUMENT);
    EXPECT(vb_communicator_create(&c, streams, 2) == VB_OK);
    float a[] = {1, 2, 3}, b[] = {10, 20, 30}, more[] = {100, 200, 300}, joined[2][6];
    float *const both[] = {a, b};
    EXPECT(vb_all_reduce(both, (const float *const *)both, (const float *[]){more, more}, 3, 0, c) == VB_OK);
    EXPECT(a[0] == 111 && a[2] == 333 && b[0] == 111 && b[2] == 333);
    EXPECT(vb_all_reduce(both, NULL, NULL, 3, 0, c) == VB_INVALID_ARGUMENT);
    EXPECT(vb_all_reduce(both, (const float *const *)both, NULL, 3, 2, c) == VB_INVALID_ARGUMENT);
    EXPECT(vb_all_reduce(NULL, NULL, NULL, 0, 1, c) == VB_OK);
    EXPECT(vb_all_gather((float *[]){joined[0], joined[1]}, (const float *[]){a, b}, 1, (int64_t[]){1, 3}, c) == VB_OK);
    EXPECT(joined[0][0] == a[0] && joined[1][1] == b[0] && joined[1][3] == b[2]);
    EXPECT(vb_all_gather(NULL, NULL, 1, (int64_t[]){1, -1}, c) == VB_INVALID_ARGUMENT);
    EXPECT(vb_broadcast((void *[]){a, more}, 3, 1, c) == VB_OK && a[0] == 100 && a[2] == 300);
    EXPECT(vb_broadcast((void *[]){a, more}, 3, 2, c) == VB_INVALID_ARGUMENT);
    EXPECT(vb_broadcast((void *[]){a, NULL}, 3, 0, c) == VB_INVALID_ARGUMENT);
    EXPECT(vb_send(b, a, 2, 0, 1, c) == VB_OK && b[0] == 100 && b[1] == 200 && b[2] == 333);
    EXPECT(vb_send(b, NULL, 2, 0, 1, c) == VB_INVALID_ARGUMENT && vb_send(b, a, 2, 0, 2, c) == VB_INVALID_ARGUMENT);
    EXPECT(vb_send(b, a, -1, 0, 1, c) == VB_INVALID_ARGUMENT && vb_send(NULL, NULL, 0, 0, 1, c) == VB_OK);
    for (int i = 0; i < 3; i++) a[i] = 1, b[i] = 10, more[i] = 100 * (i + 1);
    vb_sum_of_rows rows = VB_ARGS(vb_sum_of_rows, .add = {more, more}, .norm = {more, more},
                                  .normed = {joined[0], joined[1]}, .n = 1, .cols = 3, .prepared = 1);
    EXPECT(vb_all_reduce_rows(both, (const float *const *)both, &rows, c) == VB_OK);
    EXPECT(a[0] == 111 && b[2] == 311 && rows.prepared == 0);
    a[0] = 1, b[0] = 10, rows.norm[0] = NULL, rows.parted = 1; /* a CPU leaves all columns to every rank */
    EXPECT(vb_all_reduce_rows(both, (const float *const *)both, &rows, c) == VB_OK);
    EXPECT(a[0] == 111 && b[0] == 111 && rows.prepared == 0 && rows.parted == 0);
    rows.norm[0] = rows.norm[1], rows.normed[1] = NULL;
    EXPECT(vb_all_reduce_rows(both, (const float *const *)both, &rows, c) == VB_INVALID_ARGUMENT);
    rows.normed[1] = joined[1], rows.add_parted = 1; /* and has left none to add to */
    EXPECT(vb_all_reduce_rows(both, (const float *const *)both, &rows, c) == VB_UNSUPPORTED);
    rows.size = offsetof(vb_sum_of_rows, prepared); /* what it says has nowhere to go */
    EXPECT(vb_all_reduce_rows(both, (const float *const *)both, &rows, c) == VB_INVALID_ARGUMENT);
    rows.size = 0;
    EXPECT(vb_all_reduce_rows(both, (const float *const *)both, &rows, c) == VB_INVALID_ARGUMENT);
    const float two = 2;
    const vb_weight w = {.data = &two, .type = VB_F32, .rows = 1, .cols = 1};
    vb_sum_of_products sum =
        VB_ARGS(vb_sum_of_products, .add = {more, more}, .x = {more, more + 1}, .w = {w, w}, .n = 1);
    EXPECT(vb_linear_all_reduce(both, (float *[]){joined[0], joined[1]}, &sum, c) == VB_OK);
    EXPECT(a[0] == 700 && b[0] == 700);
    sum.size = sizeof sum + 1;
    EXPECT(vb_linear_all_reduce(both, (float *[]){joined[0], joined[1]}, &sum, c) == VB_INVALID_ARGUMENT);
    vb_communicator_destroy(c);
    vb_communicator_destroy(NULL);
    vb_stream_destroy(streams[0]);
    vb_stream_destroy(streams[1]);
}

static void test_null(vb_device *device, vb_stream *stream) {
    void *memory = device;
    float ms;
    int done;
    vb_event *event = NULL;
    vb_graph *graph = NULL;
    int64_t bytes;
    EXPECT(vb_alloc(&memory, -1, device) == VB_INVALID_ARGUMENT && !memory);
    EXPECT(vb_alloc(&memory, 1, NULL) == VB_INVALID_ARGUMENT);
    EXPECT(vb_alloc(NULL, 1, device) == VB_INVALID_ARGUMENT);
    EXPECT(vb_alloc(&memory, INT64_MAX, device) == VB_OUT_OF_MEMORY && !memory);
    EXPECT(vb_free(NULL, device) == VB_OK && vb_free(NULL, NULL) == VB_OK && vb_free_host(NULL, NULL) == VB_OK);
    vb_device_close(NULL);
    vb_stream_destroy(NULL);
    vb_event_destroy(NULL);
    vb_graph_destroy(NULL);
    EXPECT(vb_stream_create(NULL, device) == VB_INVALID_ARGUMENT &&
           vb_event_create(&event, NULL) == VB_INVALID_ARGUMENT);
    EXPECT(vb_stream_synchronize(NULL) == VB_INVALID_ARGUMENT && vb_event_done(&done, NULL) == VB_INVALID_ARGUMENT);
    EXPECT(vb_event_create(&event, device) == VB_OK);
    EXPECT(vb_event_elapsed(&ms, event, event) == VB_INVALID_ARGUMENT); /* not recorded */
    EXPECT(vb_event_record(event, NULL) == VB_INVALID_ARGUMENT && vb_event_record(event, stream) == VB_OK);
    EXPECT(vb_event_elapsed(&ms, event, event) == VB_OK && ms == 0);
    vb_event_destroy(event);
    EXPECT(vb_graph_begin(stream) == VB_UNSUPPORTED && vb_graph_end(&graph, stream) == VB_UNSUPPORTED && !graph);
    EXPECT(vb_graph_launch(NULL, stream) == VB_INVALID_ARGUMENT && vb_graph_prepare(NULL) == VB_INVALID_ARGUMENT);
    EXPECT(vb_device_driver_error(NULL) == 0 && vb_device_get_info(NULL, device) == VB_INVALID_ARGUMENT);
    EXPECT(vb_device_memory(&bytes, NULL, device) == VB_INVALID_ARGUMENT);

    float x[4] = {1, 2, 3, 4};
    EXPECT(vb_add(x, x, x, VB_F32, 4, NULL) == VB_INVALID_ARGUMENT);
    EXPECT(vb_add(NULL, NULL, NULL, VB_F32, 0, NULL) == VB_OK);
    EXPECT(vb_memcpy(x, x, 4, (vb_copy_kind)0, stream) == VB_INVALID_ARGUMENT);
    EXPECT(vb_rope(NULL, stream) == VB_INVALID_ARGUMENT && vb_kv_write(NULL, stream) == VB_INVALID_ARGUMENT);
    EXPECT(vb_attention(NULL, stream) == VB_INVALID_ARGUMENT &&
           vb_linear(x, x, NULL, NULL, 1, stream) == VB_INVALID_ARGUMENT);
    vb_weight w = {x, VB_F32, (vb_layout)7, 2, 2};
    EXPECT(vb_linear(x, x, &w, NULL, 1, stream) == VB_INVALID_ARGUMENT);
    w.layout = VB_PACKED;
    EXPECT(vb_weight_packed_size(&bytes, &w, device) == VB_INVALID_ARGUMENT);
    EXPECT(vb_weight_pack(x, &w, stream) == VB_INVALID_ARGUMENT);
    w.rows = INT64_MAX;
    EXPECT(vb_embedding(x, &w, (int32_t[]){0}, 1, stream) == VB_INVALID_ARGUMENT);
}

/* Arguments of another length, and what a refused call says of itself. */
static void test_arguments(vb_stream *stream) {
    float x[8] = {1, 2, 3, 4, 5, 6, 7, 8}, y[8];
    struct { vb_matmul_args known; int newer[4]; } later = {
        .known = {.c = y, .a = x, .b = x, .m = 2, .k = 2, .n = 2, .batch = 1, .a_stride = 2, .b_stride = 2,
                  .c_stride = 2, .type = VB_F32}};
    vb_matmul_args *args = &later.known;
    for (size_t size = 0; size < sizeof(size_t); size++) {
        args->size = size;
        EXPECT(vb_matmul_batched(args, stream) == VB_INVALID_ARGUMENT);
    }
    args->size = SIZE_MAX;
    EXPECT(vb_matmul_batched(args, stream) == VB_INVALID_ARGUMENT);
    EXPECT(strcmp(vb_stream_invalid_argument(stream), "args->size: not sizeof(vb_matmul_args)") == 0);
    args->size = offsetof(vb_matmul_args, precision); /* an older caller's: the field is 0 */
    args->precision = (vb_precision)77;
    EXPECT(vb_matmul_batched(args, stream) == VB_OK && y[0] == 7 && y[3] == 22);
    EXPECT(*vb_stream_invalid_argument(stream) == 0);
    args->precision = VB_PRECISION_FLOAT32;
    args->size = sizeof later; /* a newer caller's, whose new fields are not used, then used */
    EXPECT(vb_matmul_batched(args, stream) == VB_OK);
    later.newer[3] = 1;
    EXPECT(vb_matmul_batched(args, stream) == VB_INVALID_ARGUMENT);
    EXPECT(vb_matmul_batched(&VB_ARGS(vb_matmul_args, .m = 2, .k = 0, .n = 2, .batch = 2, .c = y, .c_stride = 2,
                                      .c_batch_stride = 4, .a_stride = -3),
                             stream) == VB_INVALID_ARGUMENT);
    EXPECT(strcmp(vb_stream_invalid_argument(stream), "a_stride, a_batch_stride: negative") == 0);
    EXPECT(vb_matmul_batched(
               &VB_ARGS(vb_matmul_args, .m = 2, .k = 0, .n = 2, .batch = 2, .c = y, .c_stride = 2, .c_batch_stride = 4),
               stream) == VB_OK &&
           y[0] == 0 && y[7] == 0);
    EXPECT(vb_matmul_batched(&VB_ARGS(vb_matmul_args, .m = 1, .k = 1, .n = 2, .batch = 2, .c = y, .a = x, .b = x,
                                      .c_stride = 2, .a_stride = 1, .b_stride = 2),
                             stream) == VB_INVALID_ARGUMENT);
    EXPECT(strcmp(vb_stream_invalid_argument(stream), "c_batch_stride: matrices of c overlap each other") == 0);
    EXPECT(vb_matmul(x, x, y, VB_F32, 2, 2, 2, stream) == VB_INVALID_ARGUMENT);
    EXPECT(strcmp(vb_stream_invalid_argument(stream), "c: overlaps a") == 0);
    EXPECT(vb_top_k(x, (int32_t *)y, x, 1, 4, 5, stream) == VB_INVALID_ARGUMENT);
    EXPECT(strcmp(vb_stream_invalid_argument(stream), "k: negative, or more than cols") == 0);
    EXPECT(vb_copy_columns(y, INT64_MIN, 2, x, 4, 0, VB_F32, 1, 3, stream) == VB_INVALID_ARGUMENT);
    EXPECT(vb_copy_columns(y, 4, 0, x, INT64_MIN, 2, VB_F32, 1, 3, stream) == VB_INVALID_ARGUMENT);
    EXPECT(vb_int2_convert(y, VB_INT2_ROWS, x, VB_INT2_ROWS, 8, INT64_C(1) << 61) == VB_INVALID_ARGUMENT);
    EXPECT(vb_tmac_matmul(&VB_ARGS(vb_tmac_matmul_args, .m = 1, .n = 1, .k = 4, .groups = INT64_MAX), stream) ==
           VB_INVALID_ARGUMENT);
    vb_weight w = {x, VB_F32, VB_STORED, 2, 2};
    EXPECT(vb_embedding(y, &w, (int32_t[]){2}, 1, stream) == VB_INVALID_ARGUMENT);
    EXPECT(strcmp(vb_stream_invalid_argument(stream), "ids: outside 0..rows-1") == 0);
    EXPECT(strcmp(vb_stream_invalid_argument(NULL), "stream: null") == 0);
}

/* A child process has the device but none of its threads: it computes all the same, and closes without waiting. */
static void test_fork(vb_device *device, vb_stream *stream) {
    enum { N = 1 << 20 };
    static float x[N];
    pid_t child = fork();
    for (int i = 0; i < N; i++) x[i] = 2;
    int wrong = vb_mul(x, x, x, VB_F32, N, stream) != VB_OK;
    for (int i = 0; i < N; i++) wrong |= x[i] != 4;
    if (child == 0) {
        vb_stream_destroy(stream);
        vb_device_close(device);
        _exit(wrong);
    }
    int status = 1;
    EXPECT(!wrong && child > 0 && waitpid(child, &status, 0) == child && status == 0);
}

int main(void) {
    vb_device *device;
    vb_stream *stream;
    test_names();
    test_devices();
    test_ptx();
    if (vb_device_open(&device, VB_CPU, 0, &VB_ARGS(vb_device_options, .threads = 3)) != VB_OK ||
        vb_stream_create(&stream, device) != VB_OK)
        return 1;
    test_communicators(device);
    test_null(device, stream);
    test_arguments(stream);
    test_fork(device, stream);
    vb_device_close(device); /* before its stream: the device lives until that is gone */
    float x = 3;
    EXPECT(vb_mul(&x, &x, &x, VB_F32, 1, stream) == VB_OK && x == 9);
    vb_stream_destroy(stream);
    if (failures == 0) puts("ok");
    return failures != 0;
}
