/* nccl_test.c: nccl.c against nccl_stub.c. Without an argument it prints what vb_nccl says. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels.h"

#define EXPECT(condition) \
    do { \
        if (!(condition)) { \
            printf("line %d: %s\n", __LINE__, #condition); \
            exit(1); \
        } \
    } while (0)

/* What nccl.c asks of a device, in host memory. */
static vb_status synchronize(vb_stream *stream) { return (void)stream, VB_OK; }
static vb_status allocate(void **memory, int64_t bytes, vb_device *device) {
    (void)device;
    *memory = malloc((size_t)bytes);
    return *memory ? VB_OK : VB_OUT_OF_MEMORY;
}
static vb_status give_back(void *memory, vb_device *device) {
    (void)device;
    free(memory);
    return VB_OK;
}
static vb_status add(void *out, const void *a, const void *b, vb_dtype type, int64_t n, vb_stream *stream) {
    (void)stream;
    EXPECT(type == VB_F32);
    for (int64_t i = 0; i < n; i++) ((float *)out)[i] = ((const float *)a)[i] + ((const float *)b)[i];
    return VB_OK;
}
vb_status vb_copy_columns(void *out, int64_t out_cols, int64_t out_first, const void *in, int64_t in_cols,
                          int64_t in_first, vb_dtype type, int64_t rows, int64_t cols, vb_stream *stream) {
    (void)stream;
    EXPECT(type == VB_F32);
    for (int64_t r = 0; r < rows; r++)
        memcpy((float *)out + r * out_cols + out_first, (const float *)in + r * in_cols + in_first, (size_t)cols * 4);
    return VB_OK;
}
vb_status vb_memcpy(void *out, const void *in, int64_t bytes, vb_copy_kind kind, vb_stream *stream) {
    (void)kind, (void)stream;
    memmove(out, in, (size_t)bytes);
    return VB_OK;
}
static const vb_backend backend = {.stream_synchronize = synchronize, .alloc = allocate, .free = give_back, .add = add};

enum { RANKS = 3 };
static char id[VB_UNIQUE_ID_BYTES];

static void *rank(void *number) {
    const int own = (int)(intptr_t)number;
    vb_device device = {&backend};
    vb_stream stream = {.device = &device, .native = &device};
    vb_communicator *c = NULL;
    EXPECT(vb_communicator_join(&c, &stream, RANKS, RANKS, id) == VB_INVALID_ARGUMENT && !c);
    vb_stream host = {.device = &device};
    EXPECT(vb_communicator_join(&c, &host, own, RANKS, id) == VB_UNSUPPORTED && !c);
    EXPECT(vb_communicator_join(&c, &stream, own, RANKS, id) == VB_OK && c);
    EXPECT(c->ranks == 1 && c->first == own && c->all == RANKS);
    const vb_backend *b = c->backend;

    enum { N = 20000 };
    static float in[RANKS][N], out[RANKS][N], more[RANKS][N];
    for (int i = 0; i < N; i++) {
        in[own][i] = (float)(i * (own + 1));
        more[own][i] = 1000;
    }
    float *const o[] = {out[own]}, *const m[] = {more[own]};
    const float *const x[] = {in[own]}, *const a[] = {more[own]};
    EXPECT(b->all_reduce(o, x, NULL, N, 1, c) == VB_OK && out[own][N - 1] == 6.f * (N - 1));
    EXPECT(b->all_reduce(o, x, a, N, 0, c) == VB_OK && out[own][7] == 1042);
    EXPECT(b->all_reduce(m, x, a, N, 0, c) == VB_OK && more[own][7] == 1042); /* in the place of what is added */
    EXPECT(b->all_reduce(m, x, a, N, 0, c) == VB_OK && more[own][N - 1] == 1000 + 12.f * (N - 1));
    EXPECT(b->all_reduce(o, x, NULL, 13, 0, c) == VB_INTERNAL);
    EXPECT(strcmp(stream.invalid_argument, "stub: internal error") == 0);

    const int64_t cols[RANKS] = {3, 0, 2};
    for (int rows = 1; rows <= 4; rows++) {
        memset(out[own], 0, sizeof out[own]);
        EXPECT(b->all_gather(o, x, rows, cols, c) == VB_OK);
        for (int r = 0; r < rows; r++)
            for (int i = 0; i < 5; i++)
                EXPECT(out[own][5 * r + i] == (i < 3 ? (float)(3 * r + i) : (float)(3 * (2 * r + i - 3))));
    }
    for (int root = 0; root < RANKS; root++) {
        int32_t words[2] = {own, own * 7};
        EXPECT(b->broadcast((void *const[]){words}, 2, root, c) == VB_OK && words[0] == root && words[1] == root * 7);
    }
    int32_t words[2] = {own, 5 + own};
    EXPECT(b->send(own == 0 ? words : NULL, own == 1 ? words : NULL, 2, 1, 0, c) == VB_OK);
    EXPECT(words[1] == (own == 0 ? 6 : 5 + own));

    if (own == 2) { /* the others are done */
        vb_communicator_abort(c);
        vb_communicator_abort(c);
        EXPECT(b->all_reduce(o, x, NULL, N, 0, c) == VB_DEVICE_LOST);
    }
    b->communicator_destroy(c);
    return NULL;
}

int main(int count, char **arguments) {
    (void)arguments;
    int usable = -1;
    const char *report = vb_nccl(&usable);
    if (count == 1) {
        printf("%d %s\n", usable, report);
        if (!usable) EXPECT(vb_unique_id(id) == VB_UNSUPPORTED);
        return 0;
    }
    EXPECT(vb_unique_id(id) == VB_OK);
    pthread_t threads[RANKS];
    for (intptr_t r = 0; r < RANKS; r++) pthread_create(&threads[r], NULL, rank, (void *)r);
    for (int r = 0; r < RANKS; r++) pthread_join(threads[r], NULL);
    puts("ok");
    return 0;
}
