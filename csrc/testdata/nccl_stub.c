/* nccl_stub.c: a libnccl.so.2 for tests: ranks are threads of one process, streams are nothing, memory is the host's.
 * STUB_NCCL_VERSION is its version. A collective of 13 elements fails. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

typedef struct id { char bytes[128]; } id;

enum { MOST = 8 };
static struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int round, arrived;
    const void *in[MOST];
    void *out[MOST];
} meeting = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, 0, 0, {0}, {0}};

typedef struct comm { int rank, ranks; } comm;

/* All ranks wait for each other. */
static void meet(const comm *c) {
    pthread_mutex_lock(&meeting.lock);
    const int round = meeting.round;
    if (++meeting.arrived == c->ranks) {
        meeting.arrived = 0;
        meeting.round++;
        pthread_cond_broadcast(&meeting.changed);
    }
    while (meeting.round == round) pthread_cond_wait(&meeting.changed, &meeting.lock);
    pthread_mutex_unlock(&meeting.lock);
}

int ncclGetVersion(int *version) {
    const char *text = getenv("STUB_NCCL_VERSION");
    *version = text ? atoi(text) : 22805;
    return 0;
}
const char *ncclGetErrorString(int result) { return result == 3 ? "stub: internal error" : "stub: other error"; }
int ncclGetUniqueId(id *made) {
    memset(made, 42, sizeof *made);
    return 0;
}
int ncclCommInitRank(void **out, int ranks, id given, int rank) {
    if (given.bytes[0] != 42 || given.bytes[127] != 42) return 4;
    comm *c = malloc(sizeof *c);
    *c = (comm){rank, ranks};
    *out = c;
    meet(c);
    return 0;
}
int ncclCommDestroy(void *c) {
    free(c);
    return 0;
}
int ncclCommAbort(void *c) {
    free(c);
    return 0;
}
int ncclAllReduce(const void *in, void *out, size_t n, int type, int op, void *handle, void *stream) {
    comm *c = handle;
    if (n == 13) return 3;
    if (type != 7 || op != 0 || !stream) return 4;
    meeting.in[c->rank] = in;
    meet(c);
    float *sum = calloc(n, sizeof *sum);
    for (int r = 0; r < c->ranks; r++)
        for (size_t i = 0; i < n; i++) sum[i] += ((const float *)meeting.in[r])[i];
    meet(c);
    memcpy(out, sum, n * sizeof *sum);
    free(sum);
    meet(c);
    return 0;
}
int ncclBroadcast(const void *in, void *out, size_t n, int type, int root, void *handle, void *stream) {
    comm *c = handle;
    if (type != 7 && type != 2) return 4;
    if (!stream) return 4;
    if (c->rank == root) meeting.in[root] = in;
    meet(c);
    if (out != meeting.in[root]) memcpy(out, meeting.in[root], n * 4);
    meet(c);
    return 0;
}
/* Of ranks 0 and 1 alone: the other ranks do not meet them. */
static pthread_barrier_t both;
static void __attribute__((constructor)) begin(void) { pthread_barrier_init(&both, NULL, 2); }
static const void *sent;
int ncclSend(const void *in, size_t n, int type, int peer, void *c, void *stream) {
    (void)n, (void)peer, (void)c, (void)stream;
    if (type != 2) return 4;
    sent = in;
    pthread_barrier_wait(&both);
    pthread_barrier_wait(&both);
    return 0;
}
int ncclRecv(void *out, size_t n, int type, int peer, void *c, void *stream) {
    (void)peer, (void)c, (void)stream;
    if (type != 2) return 4;
    pthread_barrier_wait(&both);
    memcpy(out, sent, n * 4);
    pthread_barrier_wait(&both);
    return 0;
}
int ncclGroupStart(void) { return 0; }
int ncclGroupEnd(void) { return 0; }
