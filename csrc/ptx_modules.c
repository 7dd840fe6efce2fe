/* ptx_modules.c: from the text of a kernel to a function that the driver launches, by ptx_launch.c.
 *
 * The driver's compiler makes machine code of PTX, once a machine. The code is kept in VIBRANT_CACHE, else
 * XDG_CACHE_HOME/vibrant/ptx or ~/.cache/vibrant/ptx, under a name made of PTX, GPU and driver. A file that is not
 * whole is written anew. VIBRANT_TRACE=ptx prints the driver's messages and the time to stderr. */
#include "ptx_strided.h"
#include "trace.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* FNV-1a of 64 bits. */
static uint64_t hash(uint64_t h, const void *data, size_t n) {
    const unsigned char *bytes = data;
    for (size_t i = 0; i < n; i++) h = (h ^ bytes[i]) * UINT64_C(0x100000001b3);
    return h;
}
static const uint64_t basis = UINT64_C(0xcbf29ce484222325);

static void trace(const char *what, const char *text) {
    if (vb_trace_asks("ptx")) fprintf(stderr, "vibrant: %s: %s\n", what, text);
}

/* ---- filling texts ----------------------------------------------------------------------------------------------- */

static bool in_word(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

static const char *text_of(const vb_jit_filling *f, const char *word, size_t length) {
    const struct { const char *name, *text; } all[] = {{"TYPE", f->type}, {"OTHER", f->other}, {"DECODE", f->decode}};
#define NAMED(x) ((x) && strlen(x) == length && memcmp(x, word, length) == 0)
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (all[i].text && NAMED(all[i].name)) return all[i].text;
    for (int i = 0; i < VB_JIT_TEXTS && f->texts[i].name; i++)
        if (NAMED(f->texts[i].name)) return f->texts[i].text;
#undef NAMED
    return NULL;
}

/* Puts a text with the texts that it names in their places. `depth` ends texts that name themselves. */
static bool fill(vb_jit_text *out, const char *text, const vb_jit_filling *f, int depth) {
    const char *from = text;
    for (const char *at = text; *at;) {
        size_t length = 1;
        const char *other = NULL;
        if (in_word(*at)) {
            while (in_word(at[length])) length++;
            other = text_of(f, at, length);
        }
        if (other) {
            vb_jit_say(out, "%.*s", (int)(at - from), from);
            if (depth == 0 || !fill(out, other, f, depth - 1)) return false;
            from = at + length;
        }
        at += length;
    }
    vb_jit_say(out, "%s", from);
    return !out->failed;
}

bool vb_jit_fill(vb_jit_text *out, const char *text, const vb_jit_filling *f) {
    enum { DEPTH = 4 };
    return fill(out, text, f, DEPTH);
}

static char *compile(const vb_jit_kernel *k, int target) {
    const vb_jit_filling *f = &k->filling;
    vb_ptx_constant constants[VB_JIT_CONSTANTS + 1] = {{NULL, 0, false}};
    for (int i = 0; i < VB_JIT_CONSTANTS && f->constants[i].name; i++)
        constants[i] = (vb_ptx_constant){f->constants[i].name, (double)f->constants[i].value, false};
    char error[256] = "";
    char *ptx = vb_ptx_compile(k->text, "kernel", constants, target, error, sizeof error);
    if (!ptx) trace("the text of a kernel is wrong", error);
    return ptx;
}

/* ---- machine code on disk ---------------------------------------------------------------------------------------- */

typedef struct header {
    char magic[8];
    uint64_t bytes, sum; /* of what follows */
} header;

static const char magic[8] = "vb-ptx1";

/* Makes each folder of a path that ends in a file's name. */
static bool make_folders(char *path) {
    for (char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = 0;
        const int made = mkdir(path, 0700), why = errno;
        *slash = '/';
        if (made != 0 && why != EEXIST) return false;
    }
    return true;
}

static bool cache_path(char *path, size_t size, const char *ptx, const vb_jit_device *d) {
    const char *named = getenv("VIBRANT_CACHE"), *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    const int version = d->driver_version;
    uint64_t h = hash(basis, ptx, strlen(ptx));
    h = hash(h, d->name, strlen(d->name));
    h = hash(h, &version, sizeof version);
    h = hash(h, (int[]){d->major, d->minor}, 2 * sizeof(int));
    const bool own = named && *named, shared = cache && *cache;
    const char *base = own ? named : shared ? cache : home;
    const char *below = own ? "" : shared ? "/vibrant/ptx" : "/.cache/vibrant/ptx";
    if (!base || !*base) return false;
    const int n = snprintf(path, size, "%s%s/%016llx.cubin", base, below, (unsigned long long)h);
    return n > 0 && (size_t)n < size;
}

/* The code of a file, or NULL where there is none or it is not whole; the caller frees it. */
static void *read_code(const char *path) {
    FILE *file = fopen(path, "rb");
    if (!file) return NULL;
    header head;
    void *code = NULL;
    if (fread(&head, sizeof head, 1, file) == 1 && memcmp(head.magic, magic, sizeof magic) == 0
        && head.bytes > 0 && head.bytes < (64u << 20)) {
        code = malloc(head.bytes);
        if (code && (fread(code, 1, head.bytes, file) != head.bytes || hash(basis, code, head.bytes) != head.sum)) {
            free(code);
            code = NULL;
        }
    }
    fclose(file);
    return code;
}

/* A process that looks meanwhile sees the old file or the new one. That there is no room is no error: the code is
 * compiled again. */
static void write_code(char *path, const void *code, size_t bytes) {
    char temporary[4200];
    const header head = {.bytes = bytes, .sum = hash(basis, code, bytes), .magic = "vb-ptx1"};
    if (!make_folders(path)) return;
    snprintf(temporary, sizeof temporary, "%s.%ld", path, (long)getpid());
    FILE *file = fopen(temporary, "wb");
    if (!file) return;
    const bool whole = fwrite(&head, sizeof head, 1, file) == 1 && fwrite(code, 1, bytes, file) == bytes;
    if (fclose(file) != 0 || !whole || rename(temporary, path) != 0) remove(temporary);
}

/* ---- modules ----------------------------------------------------------------------------------------------------- */

static pthread_mutex_t refusal_mutex = PTHREAD_MUTEX_INITIALIZER;
static const char runs_on[] = "7.0 and newer";
static char refusal[512];

/* Keeps the log of the driver's compiler as one line, for vb_jit_refusal. */
static void refuse(const char *log, int target, cu_result result) {
    char line[400];
    size_t n = 0;
    for (; *log && n + 1 < sizeof line; log++) {
        const bool gap = *log == '\n' || *log == ' ';
        if (!gap || (n > 0 && line[n - 1] != ' ')) line[n++] = gap ? ' ' : *log;
    }
    line[n] = 0;
    trace("the driver refuses a kernel", n > 0 ? line : "without a reason");
    pthread_mutex_lock(&refusal_mutex);
    snprintf(refusal, sizeof refusal, "%s (a newer driver may help: this one refuses a kernel for sm_%d, error %d: %s)",
             runs_on, target, result, n > 0 ? line : "without a reason");
    pthread_mutex_unlock(&refusal_mutex);
}

void vb_jit_refuse(const vb_jit_device *d) {
    pthread_mutex_lock(&refusal_mutex);
    snprintf(refusal, sizeof refusal,
        "%s (this GPU is of %d.%d: make lib-cuda CUDA_ARCH=%d%d, with a toolkit that knows it, makes a library for it)",
        runs_on, d->major, d->minor, d->major, d->minor);
    pthread_mutex_unlock(&refusal_mutex);
}

const char *vb_jit_refusal(void) {
    pthread_mutex_lock(&refusal_mutex);
    const char *text = refusal[0] ? refusal : runs_on;
    pthread_mutex_unlock(&refusal_mutex);
    return text;
}

/* Has the driver compile PTX, and keeps the code. */
static vb_status assemble(void **module, const char *ptx, char *path, vb_jit_device *d) {
    enum { ERROR_LOG = 5, ERROR_LOG_BYTES = 6, FROM_PTX = 1 };
    char log[4096] = "";
    int options[] = {ERROR_LOG, ERROR_LOG_BYTES};
    void *values[] = {log, (void *)(uintptr_t)sizeof log}, *link = NULL, *code = NULL;
    size_t bytes = 0;
    cu_result result = d->driver->link_create(2, options, values, &link);
    if (result == 0)
        result = d->driver->link_add(link, FROM_PTX, (void *)(uintptr_t)ptx, strlen(ptx) + 1, "kernel", 0, NULL, NULL);
    if (result == 0) result = d->driver->link_complete(link, &code, &bytes);
    if (result == 0) result = d->driver->module_load(module, code);
    if (result == 0 && path) write_code(path, code, bytes);
    if (result != 0) refuse(log, d->target, result);
    if (link) d->driver->link_destroy(link);
    return vb_jit_status(result, d);
}

static double milliseconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return 1e3 * (double)t.tv_sec + 1e-6 * (double)t.tv_nsec;
}

vb_status vb_jit_load(vb_jit_kernel *k, vb_jit_device *d) {
    enum { MOST_SHARED_BYTES = 8 }; /* CUfunction_attribute */
    const double start = milliseconds();
    char took[96];
    char path[4096], *at = NULL;
    vb_status status = vb_jit_status(d->driver->set_current(d->context), d);
    if (status != VB_OK) return status;
    char *ptx = compile(k, d->target);
    if (!ptx) return VB_INTERNAL;
    k->waits = strstr(ptx, "griddepcontrol.wait") != NULL;
    const char *shared = strstr(ptx, VB_PTX_SHARED_BYTES);
    k->shared_bytes = shared ? atoi(shared + strlen(VB_PTX_SHARED_BYTES)) : 0;
    if (cache_path(path, sizeof path, ptx, d)) at = path;
    void *code = at ? read_code(at) : NULL;
    if (!code || d->driver->module_load(&k->module, code) != 0) status = assemble(&k->module, ptx, at, d);
    if (status == VB_OK) status = vb_jit_status(d->driver->module_function(&k->function, k->module, "kernel"), d);
    if (status == VB_OK && k->shared_bytes > 0)
        status = vb_jit_status(d->driver->function_attribute(k->function, MOST_SHARED_BYTES, k->shared_bytes), d);
    snprintf(took, sizeof took, "%s in %.1f ms", k->name, milliseconds() - start);
    trace(status != VB_OK ? "no kernel" : code ? "read from the cache" : "compiled", took);
    free(code);
    free(ptx);
    return status;
}
