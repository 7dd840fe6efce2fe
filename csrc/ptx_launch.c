/* ptx_launch.c: kernels are loaded by threads, and launches wait for them in the order of their stream.
 *
 * The driver compiles on many threads at once, so a launch never waits (docs/experiments/2026-11-24-ptx-start.md).
 * Where its kernel is not loaded yet, the launch is kept, and so are those after it. Whatever else touches the stream
 * calls vb_jit_settle first, which waits for the kernels and launches what was kept. */
#include "ptx_strided.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MOST_LOADERS = 16, MOST_PARAMETERS = 256 };

/* A launch whose kernel is not loaded, or that comes after one. */
struct vb_jit_kept {
    struct vb_jit_kept *next;
    vb_jit_kernel *kernel;
    cu_launch how;
    bool apart;
    uint64_t values[]; /* of the parameters: each begins a word */
};

/* ---- finding kernels --------------------------------------------------------------------------------------------- */

/* FNV-1a of 64 bits, word by word. */
static uint64_t mix(uint64_t h, uint64_t word) { return (h ^ word) * UINT64_C(0x100000001b3); }
static uint64_t mix_address(uint64_t h, const void *address) { return mix(h, (uint64_t)(uintptr_t)address); }

static uint64_t hash_of(const vb_jit_filling *f) {
    uint64_t h = mix_address(UINT64_C(0xcbf29ce484222325), f->source);
    for (const char *c = f->written; c && *c; c++) h = mix(h, (unsigned char)*c);
    h = mix_address(mix_address(mix_address(h, f->type), f->other), f->decode);
    for (int i = 0; i < VB_JIT_CONSTANTS && f->constants[i].name; i++) h = mix(h, (uint64_t)f->constants[i].value);
    for (int i = 0; i < VB_JIT_TEXTS && f->texts[i].name; i++) h = mix_address(h, f->texts[i].text);
    return h;
}

static bool same(const vb_jit_filling *a, const vb_jit_filling *b) {
    if (!a->written != !b->written || (a->written && strcmp(a->written, b->written) != 0)) return false;
    if (a->source != b->source || a->type != b->type || a->other != b->other || a->decode != b->decode) return false;
    for (int i = 0; i < VB_JIT_CONSTANTS; i++)
        if (a->constants[i].name != b->constants[i].name || a->constants[i].value != b->constants[i].value)
            return false;
    for (int i = 0; i < VB_JIT_TEXTS; i++)
        if (a->texts[i].name != b->texts[i].name || a->texts[i].text != b->texts[i].text) return false;
    return true;
}

/* Notes where the parameters of a text begin and how many bytes each has: pointers and u64 eight, all others four. */
static bool read_parameters(vb_jit_kernel *k) {
    static const char head[] = "kernel ENTRY(";
    const char *at = strstr(k->text, head);
    if (!at) return false;
    at += sizeof head - 1;
    k->bytes = calloc(MOST_PARAMETERS, 1);
    for (bool more = k->bytes != NULL; more && *at != ')'; k->parameters++) {
        while (*at == ' ' || *at == '\n') at++;
        const size_t length = strcspn(at, ",)");
        if (!at[length] || k->parameters == MOST_PARAMETERS) return false;
        k->bytes[k->parameters] = memchr(at, '*', length) || strncmp(at, "u64", 3) == 0 ? 8 : 4;
        more = at[length] == ',';
        at += length + more;
    }
    return k->bytes != NULL;
}

static void free_kernel(vb_jit_kernel *k) {
    free(k->text);
    free(k->bytes);
    free((void *)(uintptr_t)k->filling.written);
    free(k);
}

static vb_jit_kernel *new_kernel(const vb_jit_filling *f, const char *name) {
    vb_jit_kernel *k = calloc(1, sizeof *k);
    vb_jit_text text = {0};
    if (!k) return NULL;
    k->filling = *f;
    k->filling.written = f->written ? strdup(f->written) : NULL;
    k->name = name;
    const bool filled = vb_jit_fill(&text, f->written ? f->written : f->source, f);
    k->text = text.data;
    if (filled && !f->written == !k->filling.written && read_parameters(k)) return k;
    free_kernel(k);
    return NULL;
}

/* ---- loading them ------------------------------------------------------------------------------------------------ */

/* Loads the oldest kernel that nobody loads yet. The device's mutex is held, but for the loading. */
static void load_oldest(vb_jit_device *d) {
    vb_jit_kernel *k = d->oldest;
    d->oldest = k->queued;
    if (!d->oldest) d->newest = NULL;
    pthread_mutex_unlock(&d->mutex);
    const vb_status status = vb_jit_load(k, d);
    pthread_mutex_lock(&d->mutex);
    if (status != VB_OK && k->module) d->driver->module_unload(k->module), k->module = NULL;
    k->status = status;
    k->state = status == VB_OK ? VB_JIT_LOADED : VB_JIT_FAILED;
    pthread_cond_broadcast(&d->loaded);
}

static void *run_loader(void *device) {
    vb_jit_device *d = device;
    pthread_mutex_lock(&d->mutex);
    while (d->oldest) load_oldest(d);
    d->loaders--;
    pthread_cond_broadcast(&d->loaded);
    pthread_mutex_unlock(&d->mutex);
    return NULL;
}

/* Starts a thread that loads kernels. It takes no signals, which belong to the program's threads. */
static bool start_loader(vb_jit_device *d) {
    pthread_attr_t detached;
    pthread_t thread;
    sigset_t all, before;
    if (pthread_attr_init(&detached) != 0) return false;
    pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    const bool started = pthread_create(&thread, &detached, run_loader, d) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&detached);
    d->loaders += started;
    return started;
}

static int most_loaders(void) {
    const long processors = sysconf(_SC_NPROCESSORS_ONLN);
    return processors < 1 ? 1 : processors > MOST_LOADERS ? MOST_LOADERS : (int)processors;
}

/* The kernel of a filling, which is loading or loaded. One that failed is loaded again. The mutex is held. */
static vb_jit_kernel *find(const vb_jit_filling *f, const char *name, vb_jit_device *d) {
    const uint64_t h = hash_of(f);
    vb_jit_kernel **bucket = &d->kernels[(h ^ h >> 32) % VB_JIT_BUCKETS], *k;
    for (k = *bucket; k && !same(&k->filling, f); k = k->next) {}
    if (!k) {
        if (!(k = new_kernel(f, name))) return NULL;
        k->next = *bucket;
        *bucket = k;
    }
    if (k->state == VB_JIT_NEW || k->state == VB_JIT_FAILED) {
        k->state = VB_JIT_LOADING;
        k->queued = NULL;
        if (d->newest) d->newest->queued = k;
        else d->oldest = k;
        d->newest = k;
        if (d->loaders < most_loaders()) start_loader(d);
        if (d->loaders == 0) load_oldest(d); /* the system has no thread to give: here */
    }
    return k;
}

void vb_jit_announce(const vb_jit_filling *f, const char *name, vb_jit_device *d) {
    pthread_mutex_lock(&d->mutex);
    find(f, name, d);
    pthread_mutex_unlock(&d->mutex);
}

vb_status vb_jit_compiles(const vb_jit_filling *f, const char *name, vb_jit_device *d) {
    pthread_mutex_lock(&d->mutex);
    const vb_jit_kernel *k = find(f, name, d);
    while (k && k->state == VB_JIT_LOADING) pthread_cond_wait(&d->loaded, &d->mutex);
    const vb_status status = k ? k->status : VB_OUT_OF_MEMORY;
    pthread_mutex_unlock(&d->mutex);
    return status;
}

int64_t vb_jit_clusters(const vb_jit_filling *f, const char *name, int64_t blocks, int threads, vb_jit_device *d) {
    if (vb_jit_compiles(f, name, d) != VB_OK || d->driver->set_current(d->context) != 0) return 0;
    cu_launch_attribute cluster = {.which = CU_CLUSTER, .value.blocks = {(unsigned)blocks, 1, 1}};
    pthread_mutex_lock(&d->mutex);
    vb_jit_kernel *k = find(f, name, d);
    if (k && k->state == VB_JIT_LOADED && k->clusters == 0) {
        const cu_launch how = {.grid = {(unsigned)(blocks * d->multiprocessors), 1, 1},
                               .block = {(unsigned)threads, 1, 1}, .shared_bytes = (unsigned)k->shared_bytes,
                               .attributes = &cluster, .attribute_count = 1};
        if (d->driver->clusters(&k->clusters, k->function, &how) != 0) k->clusters = 0;
    }
    const int64_t clusters = k ? k->clusters : 0;
    pthread_mutex_unlock(&d->mutex);
    return clusters;
}

void vb_jit_unload(vb_jit_device *d) {
    pthread_mutex_lock(&d->mutex);
    while (d->loaders > 0) pthread_cond_wait(&d->loaded, &d->mutex);
    pthread_mutex_unlock(&d->mutex);
    for (int i = 0; i < VB_JIT_BUCKETS; i++)
        for (vb_jit_kernel *k = d->kernels[i], *next; k; k = next) {
            next = k->next;
            if (k->module) d->driver->module_unload(k->module);
            free_kernel(k);
        }
}

/* ---- launching --------------------------------------------------------------------------------------------------- */

static vb_status launch_now(vb_jit_device *d, const vb_jit_kernel *kernel, cu_launch how, bool apart,
                            void **parameters) {
    enum { GRAPHS_OVERLAP = 12030 }; /* of older drivers they do not */
    cu_launch_attribute overlapped = {.which = CU_OVERLAPPED, .value.number = 1};
    how.attributes = &overlapped;
    how.shared_bytes = (unsigned)kernel->shared_bytes;
    how.attribute_count = kernel->waits && !apart && d->driver_version >= GRAPHS_OVERLAP;
    return vb_jit_status(d->driver->launch(&how, kernel->function, parameters, NULL), d);
}

static vb_status launch_kept(vb_jit_device *d, struct vb_jit_kept *l) {
    void *parameters[MOST_PARAMETERS];
    if (l->kernel->state == VB_JIT_FAILED) return l->kernel->status;
    for (int i = 0; i < l->kernel->parameters; i++) parameters[i] = &l->values[i];
    return launch_now(d, l->kernel, l->how, l->apart, parameters);
}

static void drop_kept(vb_jit_stream *s) {
    for (struct vb_jit_kept *l = s->kept, *next; l; l = next) {
        next = l->next;
        free(l);
    }
    s->kept = s->last_kept = NULL;
}

/* Launches what a stream has kept, as far as kernels are loaded. After a failure what is left is dropped, for it reads
 * what the failed kernel would have written. The mutex is held. */
static void launch_loaded(vb_jit_device *d, vb_jit_stream *s) {
    while (s->kept && s->kept->kernel->state != VB_JIT_LOADING) {
        struct vb_jit_kept *l = s->kept;
        s->failure = launch_kept(d, l);
        if (s->failure != VB_OK) {
            drop_kept(s);
            return;
        }
        s->kept = l->next;
        free(l);
    }
}

/* The failure of a launch that was kept, which is told once. The mutex is held. */
static vb_status take_failure(vb_jit_stream *s) {
    const vb_status failure = s->failure;
    s->failure = VB_OK;
    return failure;
}

vb_status vb_jit_settle(vb_stream *stream) {
    vb_jit_device *d = vb_jit_of(stream);
    vb_jit_stream *s = (vb_jit_stream *)stream;
    vb_status status = vb_jit_status(d->driver->set_current(d->context), d);
    pthread_mutex_lock(&d->mutex);
    if (status != VB_OK) drop_kept(s);
    for (launch_loaded(d, s); s->kept; launch_loaded(d, s)) pthread_cond_wait(&d->loaded, &d->mutex);
    const vb_status failure = take_failure(s);
    pthread_mutex_unlock(&d->mutex);
    return status != VB_OK ? status : failure;
}

/* Streams may be destroyed while this waits, so it begins anew then. */
void vb_jit_settle_all(vb_jit_device *d) {
    if (vb_jit_status(d->driver->set_current(d->context), d) != VB_OK) return;
    pthread_mutex_lock(&d->mutex);
    for (vb_jit_stream *s = d->streams; s;) {
        launch_loaded(d, s);
        if (s->kept) {
            pthread_cond_wait(&d->loaded, &d->mutex);
            s = d->streams;
        } else {
            s = s->next;
        }
    }
    pthread_mutex_unlock(&d->mutex);
}

static vb_status keep(vb_jit_stream *s, vb_jit_kernel *k, const cu_launch *how, void **parameters) {
    struct vb_jit_kept *l = calloc(1, sizeof *l + (size_t)k->parameters * sizeof *l->values);
    if (!l) return VB_OUT_OF_MEMORY;
    l->kernel = k;
    l->how = *how;
    l->apart = s->apart;
    for (int i = 0; i < k->parameters; i++) memcpy(&l->values[i], parameters[i], k->bytes[i]);
    if (s->kept) s->last_kept->next = l;
    else s->kept = l;
    s->last_kept = l;
    return VB_OK;
}

vb_status vb_jit_launch(vb_stream *stream, const char *name, const vb_jit_filling *filling, int64_t x, int64_t y,
    int64_t z, int threads, void **parameters) {
    vb_jit_device *d = vb_jit_of(stream);
    vb_jit_stream *s = (vb_jit_stream *)stream;
    if (x > INT32_MAX || y > 65535 || z > 65535) return VB_UNSUPPORTED;
    vb_status status = vb_jit_status(d->driver->set_current(d->context), d);
    if (status != VB_OK) return status;
    const cu_launch how = {.grid = {(unsigned)x, (unsigned)y, (unsigned)z}, .block = {(unsigned)threads, 1, 1},
                           .stream = s->handle};
    stream->kernel = name;
    pthread_mutex_lock(&d->mutex);
    launch_loaded(d, s);
    status = take_failure(s);
    vb_jit_kernel *k = status == VB_OK ? find(filling, name, d) : NULL;
    if (status == VB_OK && !k) status = VB_OUT_OF_MEMORY;
    const bool now = k && !s->kept && k->state == VB_JIT_LOADED;
    if (k && !now) status = keep(s, k, &how, parameters);
    pthread_mutex_unlock(&d->mutex);
    if (now) status = launch_now(d, k, how, s->apart, parameters);
    s->apart = false;
    return status;
}
