/* cpu_communicator.c: collectives of CPU devices, which share the memory of one process. The call that names all ranks
 * computes for all of them. */
#include <stdlib.h>

#include "cpu.h"

vb_status vb_cpu_communicator_create(vb_communicator **communicator, vb_stream *const *streams, int ranks) {
    vb_communicator *c = calloc(1, sizeof *c);
    if (!c) return VB_OUT_OF_MEMORY;
    c->backend = &vb_cpu_backend;
    c->ranks = ranks;
    memcpy(c->streams, streams, (size_t)ranks * sizeof *streams);
    *communicator = c;
    return VB_OK;
}

void vb_cpu_communicator_destroy(vb_communicator *communicator) { free(communicator); }

typedef struct reduce_job {
    float *const *out;
    const float *const *in, *const *add;
    int ranks;
} reduce_job;

static void reduce_range(void *context, int worker, int64_t begin, int64_t end) {
    (void)worker;
    const reduce_job *j = context;
    for (int64_t i = begin; i < end; i++) {
        float sum = j->in[0][i];
        for (int r = 1; r < j->ranks; r++) sum += j->in[r][i];
        for (int r = 0; r < j->ranks; r++) j->out[r][i] = j->add ? sum + j->add[r][i] : sum;
    }
}

vb_status vb_cpu_all_reduce(float *const *out, const float *const *in, const float *const *add, int64_t n, int rounded,
                            vb_communicator *communicator) {
    (void)rounded;
    reduce_job job = {out, in, add, communicator->ranks};
    vb_cpu_parallel(communicator->streams[0], n, 1 << 14, reduce_range, &job);
    return VB_OK;
}

vb_status vb_cpu_all_gather(float *const *out, const float *const *in, int64_t rows, const int64_t *cols,
                            vb_communicator *communicator) {
    int64_t total = 0, first = 0;
    for (int r = 0; r < communicator->ranks; r++) total += cols[r];
    for (int from = 0; from < communicator->ranks; first += cols[from++]) {
        if (cols[from] == 0) continue;
        for (int r = 0; r < communicator->ranks; r++)
            for (int64_t row = 0; row < rows && out[r] != in[from]; row++)
                memcpy(out[r] + row * total + first, in[from] + row * cols[from], (size_t)cols[from] * sizeof(float));
    }
    return VB_OK;
}

vb_status vb_cpu_broadcast(void *const *data, int64_t words, int root, vb_communicator *communicator) {
    for (int r = 0; r < communicator->ranks; r++)
        if (data[r] != data[root]) memcpy(data[r], data[root], (size_t)words * 4);
    return VB_OK;
}

vb_status vb_cpu_send(void *out, const void *in, int64_t words, int from, int to, vb_communicator *communicator) {
    (void)from, (void)to, (void)communicator;
    memmove(out, in, (size_t)words * 4);
    return VB_OK;
}
