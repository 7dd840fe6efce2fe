/* cpu_pool.c: the worker threads of a CPU device.
 *
 * One job runs at a time. Its number is odd while it accepts workers. A worker that sees an odd number of a new job
 * enters (`active`), looks at the number once more, and takes ranges until none is left. The caller takes ranges too.
 * Then the caller makes the number even, so that no worker enters any more, and waits for the workers inside.
 * So a worker that sleeps or is not scheduled never holds up a job. A process that forked (and lost its workers) still
 * computes, and a short job costs no system call while the workers spin.
 *
 * A worker spins for a moment after each job, since a model's next operation follows within microseconds.
 * Then it sleeps on a condition variable. */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

#include "cpu.h"

enum {
    SPINS = 4000, /* some 0.1 ms of pause instructions */
    CACHE_LINE = 64,
    STACK = 512 << 10, /* of a worker: nine times what the deepest task takes; the usual 8 MB add up */
};

struct vb_cpu_pool {
    _Alignas(CACHE_LINE) atomic_uint_fast64_t job;
    _Alignas(CACHE_LINE) atomic_int active;
    _Alignas(CACHE_LINE) atomic_int_fast64_t next;
    /* of the running job, constant while it accepts workers */
    _Alignas(CACHE_LINE) vb_cpu_task task;
    void *context;
    int64_t n, grain;

    atomic_int sleepers;
    atomic_bool stop;
    pthread_mutex_t mutex; /* for sleeping */
    pthread_cond_t wake;
    pthread_mutex_t owner; /* held by the stream whose job runs */
    pid_t process;
    int workers;
    struct worker {
        pthread_t thread;
        vb_cpu_pool *pool;
        int number;
    } worker[];
};

static inline void spin(void) {
#if VB_X86
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static void take_ranges(vb_cpu_pool *pool, int worker) {
    for (;;) {
        int64_t begin = atomic_fetch_add_explicit(&pool->next, pool->grain, memory_order_relaxed);
        if (begin >= pool->n) return;
        pool->task(pool->context, worker, begin, vb_min(begin + pool->grain, pool->n));
    }
}

static bool has_work(vb_cpu_pool *pool, uint64_t done) {
    uint64_t job = atomic_load(&pool->job);
    return ((job & 1) && job != done) || atomic_load(&pool->stop);
}

static void *run_worker(void *argument) {
    struct worker *self = argument;
    vb_cpu_pool *pool = self->pool;
    uint64_t done = 0;
    while (!atomic_load(&pool->stop)) {
        for (int i = 0; i < SPINS && !has_work(pool, done); i++) spin();
        if (!has_work(pool, done)) {
            pthread_mutex_lock(&pool->mutex);
            atomic_fetch_add(&pool->sleepers, 1);
            while (!has_work(pool, done)) pthread_cond_wait(&pool->wake, &pool->mutex);
            atomic_fetch_sub(&pool->sleepers, 1);
            pthread_mutex_unlock(&pool->mutex);
        }
        uint64_t job = atomic_load(&pool->job);
        if (!(job & 1) || job == done) continue;
        atomic_fetch_add(&pool->active, 1);
        if (atomic_load(&pool->job) == job) {
            take_ranges(pool, self->number);
            done = job;
        }
        atomic_fetch_sub(&pool->active, 1);
    }
    return NULL;
}

vb_cpu_pool *vb_cpu_pool_create(int threads) {
    size_t bytes = sizeof(vb_cpu_pool) + (size_t)threads * sizeof(struct worker);
    vb_cpu_pool *pool = aligned_alloc(CACHE_LINE, (bytes + CACHE_LINE - 1) / CACHE_LINE * CACHE_LINE);
    if (!pool) return NULL;
    memset(pool, 0, bytes);
    pthread_mutex_init(&pool->mutex, NULL);
    pthread_mutex_init(&pool->owner, NULL);
    pthread_cond_init(&pool->wake, NULL);
    pool->process = getpid();
    pthread_attr_t small;
    bool all = pthread_attr_init(&small) == 0;
    if (all) {
        pthread_attr_setstacksize(&small, STACK);
        while (all && pool->workers + 1 < threads) {
            struct worker *w = &pool->worker[pool->workers];
            w->pool = pool;
            w->number = pool->workers + 1;
            all = pthread_create(&w->thread, &small, run_worker, w) == 0;
            pool->workers += all;
        }
        pthread_attr_destroy(&small);
    }
    if (all && vb_cpu_room_to_grow()) return pool;
    vb_cpu_pool_destroy(pool);
    return NULL;
}

void vb_cpu_pool_destroy(vb_cpu_pool *pool) {
    if (!pool) return;
    if (pool->process == getpid()) {
        pthread_mutex_lock(&pool->mutex);
        atomic_store(&pool->stop, true);
        pthread_cond_broadcast(&pool->wake);
        pthread_mutex_unlock(&pool->mutex);
        for (int i = 0; i < pool->workers; i++) pthread_join(pool->worker[i].thread, NULL);
        pthread_mutex_destroy(&pool->mutex);
        pthread_mutex_destroy(&pool->owner);
        pthread_cond_destroy(&pool->wake);
    }
    free(pool);
}

int vb_cpu_pool_threads(const vb_cpu_pool *pool) { return pool->workers + 1; }

int64_t vb_cpu_matrix_grain(vb_stream *stream, int64_t rows, int64_t row_bytes, int64_t step, bool again) {
    const int64_t threads = vb_cpu_pool_threads(vb_cpu_device_of(stream)->pool), bytes = vb_max(row_bytes, 1);
    const int64_t least = (16 << 10) / bytes, most = again ? least : (256 << 10) / bytes;
    const int64_t grain = vb_max(vb_min(rows / (4 * threads), most), least);
    return (vb_max(grain, 1) + step - 1) / step * step;
}

void vb_cpu_parallel(vb_stream *stream, int64_t n, int64_t grain, vb_cpu_task task, void *context) {
    vb_cpu_pool *pool = vb_cpu_device_of(stream)->pool;
    grain = vb_max(grain, 1);
    if (n <= grain || pool->workers == 0 || pthread_mutex_trylock(&pool->owner) != 0) {
        for (int64_t begin = 0; begin < n; begin += grain) task(context, 0, begin, vb_min(begin + grain, n));
        return;
    }
    pool->task = task;
    pool->context = context;
    pool->n = n;
    pool->grain = grain;
    atomic_store(&pool->next, 0);
    atomic_fetch_add(&pool->job, 1);
    if (atomic_load(&pool->sleepers) > 0) {
        pthread_mutex_lock(&pool->mutex);
        pthread_cond_broadcast(&pool->wake);
        pthread_mutex_unlock(&pool->mutex);
    }
    take_ranges(pool, 0);
    atomic_fetch_add(&pool->job, 1);
    for (int i = 0; atomic_load(&pool->active) > 0; i++) {
        if (i < SPINS)
            spin();
        else
            sched_yield();
    }
    pthread_mutex_unlock(&pool->owner);
}
