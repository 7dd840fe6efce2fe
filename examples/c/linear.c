/* linear.c: a quantized linear layer, softmax and top-k through libvibrant, on the CPU or, where the library was built
 * with it, on a CUDA device.
 *
 *   make lib && gcc -std=c11 -Icsrc examples/c/linear.c build/lib/libvibrant.a -lm -pthread -o build/linear \
 *     && build/linear
 *   build/linear cuda        # with libvibrant_cuda linked; otherwise it says that CUDA is not compiled in
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "vibrant.h"

#define CHECK(call) \
    do { \
        vb_status status_ = (call); \
        if (status_ != VB_OK) { \
            fprintf(stderr, "%s: %s\n", #call, vb_status_string(status_)); \
            exit(1); \
        } \
    } while (0)

enum { ROWS = 8, COLS = 64, BEST = 3, BLOCKS = COLS / 32, BLOCK_BYTES = 34 };

/* Writes row r of a Q8_0 matrix: every element is 0.5 * (r + 1). A block is a half-precision scale and 32 signed
 * bytes. */
static void write_row(unsigned char *row, int r) {
    for (int b = 0; b < BLOCKS; b++, row += BLOCK_BYTES) {
        row[0] = 0x00; /* 0x3800 is 0.5 */
        row[1] = 0x38;
        memset(row + 2, r + 1, 32);
    }
}

int main(int argc, char **argv) {
    vb_device_kind kind = argc > 1 && strcmp(argv[1], "cuda") == 0 ? VB_CUDA : VB_CPU;
    vb_device *device;
    vb_stream *stream;
    CHECK(vb_device_open(&device, kind, 0, NULL));
    CHECK(vb_stream_create(&stream, device));
    vb_device_info info;
    CHECK(vb_device_get_info(&info, device));
    printf("libvibrant %s on %s (%s)\n", vb_version(), info.name, info.features);

    unsigned char weights[ROWS * BLOCKS * BLOCK_BYTES];
    for (int r = 0; r < ROWS; r++) write_row(weights + r * BLOCKS * BLOCK_BYTES, r);
    float x[COLS];
    for (int i = 0; i < COLS; i++) x[i] = 1.0f / COLS;

    void *w_memory, *x_memory, *y_memory, *values_memory, *ids_memory;
    CHECK(vb_alloc(&w_memory, sizeof weights, device));
    CHECK(vb_alloc(&x_memory, sizeof x, device));
    CHECK(vb_alloc(&y_memory, ROWS * sizeof(float), device));
    CHECK(vb_alloc(&values_memory, BEST * sizeof(float), device));
    CHECK(vb_alloc(&ids_memory, BEST * sizeof(int32_t), device));
    CHECK(vb_memcpy(w_memory, weights, sizeof weights, VB_HOST_TO_DEVICE, stream));
    CHECK(vb_memcpy(x_memory, x, sizeof x, VB_HOST_TO_DEVICE, stream));

    /* y[r] = 0.5 * (r + 1), since x sums to one */
    vb_weight w = {w_memory, VB_Q8_0, VB_STORED, ROWS, COLS};
    CHECK(vb_linear(y_memory, x_memory, &w, NULL, 1, stream));
    CHECK(vb_softmax(y_memory, y_memory, VB_F32, ROWS, stream));
    CHECK(vb_top_k(values_memory, ids_memory, y_memory, 1, ROWS, BEST, stream));

    float values[BEST];
    int32_t ids[BEST];
    CHECK(vb_memcpy(values, values_memory, sizeof values, VB_DEVICE_TO_HOST, stream));
    CHECK(vb_memcpy(ids, ids_memory, sizeof ids, VB_DEVICE_TO_HOST, stream));
    CHECK(vb_stream_synchronize(stream));
    for (int i = 0; i < BEST; i++) printf("output %d has probability %.4f\n", (int)ids[i], values[i]);

    void *memory[] = {w_memory, x_memory, y_memory, values_memory, ids_memory};
    for (size_t i = 0; i < sizeof memory / sizeof *memory; i++) CHECK(vb_free(memory[i], device));
    vb_stream_destroy(stream);
    vb_device_close(device);
    /* softmax of 0.5, 1.0, .., 4.0: the last output leads with 1 - e^-0.5 (nearly) */
    return ids[0] == ROWS - 1 && values[0] > 0.39f && values[0] < 0.41f ? 0 : 1;
}
