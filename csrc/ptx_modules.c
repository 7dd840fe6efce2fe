/* ptx_modules.c: from the text of a kernel to a function that the driver launches. PTX becomes machine code by the
 * driver's compiler, once a machine: the code is kept in VIBRANT_CACHE, else XDG_CACHE_HOME/vibrant/ptx or
 * ~/.cache/vibrant/ptx, under a name made of PTX, GPU and driver. A file that is not whole is written anew.
 * VIBRANT_TRACE=ptx says on stderr what the driver said. */
#include "ptx_device.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* FNV-1a of 64 bits. */
static uint64_t hash(uint64_t h, const void *data, size_t n) {
    const unsigned char *bytes = data;
    for (size_t i = 0; i < n; i++) h = (h ^ bytes[i]) * UINT64_C(0x100000001b3);
    return h;
}
static const uint64_t basis = UINT64_C(0xcbf29ce484222325);

static void trace(const char *what, const char *text) {
    const char *value = getenv("VIBRANT_TRACE");
    if (value && strcmp(value, "ptx") == 0) fprintf(stderr, "vibrant: %s: %s\n", what, text);
}

/* ---- filling texts ----------------------------------------------------------------------------------------------- */

static bool in_word(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

/* Puts the types and the decoder into a text; the caller frees it. */
static char *fill(const vb_jit_filling *f) {
    const struct { const char *name, *text; } all[] = {{"TYPE", f->type}, {"OTHER", f->other}, {"DECODE", f->decode}};
    size_t capacity = 2 * strlen(f->source) + 4096 + (f->decode ? 4 * strlen(f->decode) : 0), used = 0;
    char *out = malloc(capacity);
    for (const char *at = f->source; out && *at;) {
        const char *put = at;
        size_t length = 1, given;
        if (in_word(*at)) {
            while (in_word(at[length])) length++;
            given = length;
            for (size_t i = 0; i < sizeof all / sizeof *all; i++)
                if (all[i].text && strlen(all[i].name) == length && memcmp(at, all[i].name, length) == 0)
                    put = all[i].text, given = strlen(put);
        } else {
            given = length;
        }
        if (used + given + 1 > capacity) { /* no text has so many places */
            free(out);
            return NULL;
        }
        memcpy(out + used, put, given);
        used += given;
        at += length;
    }
    if (out) out[used] = 0;
    return out;
}

static char *compile(const vb_jit_filling *f, int target) {
    vb_ptx_constant constants[VB_JIT_CONSTANTS + 1] = {{NULL, 0, false}};
    for (int i = 0; i < VB_JIT_CONSTANTS && f->constants[i].name; i++)
        constants[i] = (vb_ptx_constant){f->constants[i].name, (double)f->constants[i].value, false};
    char *source = fill(f), error[256] = "out of memory";
    char *ptx = source ? vb_ptx_compile(source, "kernel", constants, target, error, sizeof error) : NULL;
    if (!ptx) trace("the text of a kernel is wrong", error);
    free(source);
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
    int version = 0;
    if (d->driver->driver_version(&version) != 0) return false;
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
    if (result != 0) trace("the driver refuses a kernel", log[0] ? log : "without a reason");
    if (link) d->driver->link_destroy(link);
    return vb_jit_status(result, d);
}

static vb_status load(vb_jit_kernel *k, vb_jit_device *d) {
    char path[4096], *at = NULL;
    char *ptx = compile(&k->filling, d->target);
    if (!ptx) return VB_INTERNAL;
    if (cache_path(path, sizeof path, ptx, d)) at = path;
    void *code = at ? read_code(at) : NULL;
    vb_status status = VB_OK;
    if (!code || d->driver->module_load(&k->module, code) != 0) status = assemble(&k->module, ptx, at, d);
    if (status == VB_OK) status = vb_jit_status(d->driver->module_function(&k->function, k->module, "kernel"), d);
    free(code);
    free(ptx);
    return status;
}

static bool same(const vb_jit_filling *a, const vb_jit_filling *b) {
    if (a->source != b->source || a->type != b->type || a->other != b->other || a->decode != b->decode) return false;
    for (int i = 0; i < VB_JIT_CONSTANTS; i++)
        if (a->constants[i].name != b->constants[i].name || a->constants[i].value != b->constants[i].value)
            return false;
    return true;
}

vb_status vb_jit_function(void **function, const vb_jit_filling *f, const char *name, vb_jit_device *d) {
    uint64_t h = hash(basis, &f->source, sizeof f->source);
    h = hash(hash(hash(h, &f->type, sizeof f->type), &f->other, sizeof f->other), &f->decode, sizeof f->decode);
    for (int i = 0; i < VB_JIT_CONSTANTS && f->constants[i].name; i++)
        h = hash(h, &f->constants[i].value, sizeof f->constants[i].value);
    vb_jit_kernel **bucket = &d->kernels[(h ^ h >> 32) % VB_JIT_BUCKETS], *k;
    pthread_mutex_lock(&d->mutex);
    for (k = *bucket; k && !same(&k->filling, f); k = k->next) {}
    vb_status status = VB_OK;
    if (!k) {
        k = calloc(1, sizeof *k);
        if (k) k->filling = *f;
        status = k ? load(k, d) : VB_OUT_OF_MEMORY;
        if (status == VB_OK) {
            k->next = *bucket;
            *bucket = k;
        } else {
            if (k && k->module) d->driver->module_unload(k->module);
            free(k);
            trace("no kernel", name);
        }
    }
    if (status == VB_OK) *function = k->function;
    pthread_mutex_unlock(&d->mutex);
    return status;
}

void vb_jit_unload(vb_jit_device *d) {
    for (int i = 0; i < VB_JIT_BUCKETS; i++)
        for (vb_jit_kernel *k = d->kernels[i], *next; k; k = next) {
            next = k->next;
            d->driver->module_unload(k->module);
            free(k);
        }
}

vb_status vb_jit_launch(vb_stream *stream, const char *name, const vb_jit_filling *filling, int64_t x, int64_t y,
    int64_t z, int threads, void **parameters) {
    vb_jit_device *d = vb_jit_of(stream);
    void *function = NULL;
    if (x > INT32_MAX || y > 65535 || z > 65535) return VB_UNSUPPORTED;
    vb_status status = vb_jit_status(d->driver->set_current(d->context), d);
    if (status == VB_OK) status = vb_jit_function(&function, filling, name, d);
    if (status != VB_OK) return status;
    stream->kernel = name;
    return vb_jit_status(d->driver->launch(function, (unsigned)x, (unsigned)y, (unsigned)z, (unsigned)threads, 1, 1, 0,
                                           ((vb_jit_stream *)stream)->handle, parameters, NULL), d);
}
