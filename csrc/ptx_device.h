/* ptx_device.h: GPUs whose kernels are texts in the language of ptx.h, compiled when they are first launched. Not
 * installed.
 *
 * A kernel is launched by its text, whose gaps are filled first. TYPE and OTHER become types of elements.
 * DECODE becomes the text that decodes an element of a stored weight, and other capitals become numbers.
 * Each filling is a module of its own. */
#ifndef VB_PTX_DEVICE_H
#define VB_PTX_DEVICE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "driver.h"
#include "kernels.h"
#include "ptx.h"

/* Texts that several kernels have in them: tanh(x) is p * z * x + x for abs(x) < 0.625; the scale and the minimum of
 * the 32 elements number s of a block b of Q4_K or Q5_K. */
#define VB_PTX_TANH_FIT VB_PTX_SOURCE( \
    f32 z = x * x; \
    f32 p = -0.00570498872745; \
    p = p * z + 0.0206390887954; \
    p = p * z - 0.0537397155531; \
    p = p * z + 0.133314422036; \
    p = p * z - 0.333332819422;)
#define VB_PTX_K4_SCALE VB_PTX_SOURCE( \
    if (s < 4) { \
        scale = b[4 + s] & 63; \
        least = b[8 + s] & 63; \
    } else { \
        scale = b[8 + s] & 15 | b[s] >> 6 << 4; \
        least = b[8 + s] >> 4 | b[4 + s] >> 6 << 4; \
    })

enum { VB_JIT_CONSTANTS = 28, VB_JIT_TEXTS = 36, VB_JIT_BUCKETS = 64, VB_JIT_SCALED_ROWS = 16384 };

/* The fillings of a text's gaps. Unused fields are 0. */
typedef struct vb_jit_filling {
    const char *source;
    const char *written; /* a text of the caller's own in place of `source`, told from others by what it says */
    const char *type, *other, *decode;
    struct { const char *name; int64_t value; } constants[VB_JIT_CONSTANTS]; /* up to a NULL name */
    struct { const char *name, *text; } texts[VB_JIT_TEXTS]; /* up to a NULL name; they may name each other */
} vb_jit_filling;

typedef struct vb_jit_kernel {
    struct vb_jit_kernel *next, *queued; /* of its bucket; of those to load */
    vb_jit_filling filling;
    const char *name;
    char *text;           /* filled */
    unsigned char *bytes; /* of each parameter */
    int parameters;
    enum { VB_JIT_NEW, VB_JIT_LOADING, VB_JIT_LOADED, VB_JIT_FAILED } state;
    vb_status status; /* of the loading */
    void *module, *function;
    int shared_bytes; /* that each launch gives */
    int clusters; /* of its blocks that the GPU holds at once, 0 where nobody asked */
    bool waits; /* for the kernel before it by itself, so that it may begin while that runs */
} vb_jit_kernel;

typedef struct vb_jit_device {
    struct vb_device base;
    const vb_driver *driver;
    atomic_int references;
    _Atomic int driver_error;
    atomic_bool lost; /* its context answers nothing but the same error */
    int index, handle; /* the driver's number of it */
    int major, minor, multiprocessors, shared_bytes, target, driver_version; /* shared memory of a block */
    char name[128];
    void *context;
    cu_address books; /* codebooks.h, as vb_jit_book says */
    pthread_mutex_t mutex; /* of all below, and of what its streams keep */
    pthread_cond_t loaded; /* a kernel is loaded or failed, or a loader ended */
    vb_jit_kernel *kernels[VB_JIT_BUCKETS];
    vb_jit_kernel *oldest, *newest; /* of those to load */
    int loaders;                    /* threads that load */
    struct vb_jit_stream *streams;
    struct vb_jit_locked *locked; /* the CPU backend's memory that the driver locked */
} vb_jit_device;

typedef struct vb_jit_stream {
    struct vb_stream base;
    struct vb_jit_stream *next; /* of the device */
    void *handle;
    cu_address row_scales; /* VB_JIT_SCALED_ROWS floats for a product with many rows of x */
    vb_allocator memory;   /* what the scratch comes from */
    void *scratch;
    int64_t scratch_bytes;
    struct vb_jit_outgrown { struct vb_jit_outgrown *next; cu_address memory; } *outgrown; /* without an allocator */
    bool apart; /* the next kernel may not begin before the newest ends */
    struct vb_jit_kept *kept, *last_kept; /* launches that wait for their kernels (ptx_launch.c) */
    vb_status failure;                    /* of one of them */
} vb_jit_stream;

static inline vb_jit_device *vb_jit_of(vb_stream *stream) { return (vb_jit_device *)stream->device; }

vb_status vb_jit_status(cu_result result, vb_jit_device *device);

/* Memory that the next operation of the stream may use, too. */
vb_status vb_jit_workspace(void **memory, int64_t bytes, vb_stream *stream);

/* Loads a kernel: out of the cache on disk, or compiled by the driver (ptx_modules.c). */
vb_status vb_jit_load(vb_jit_kernel *kernel, vb_jit_device *device);

/* Begins to load the kernel of a filled text, which a launch will want. */
void vb_jit_announce(const vb_jit_filling *filling, const char *name, vb_jit_device *device);

/* Whether a filled text has a kernel on the device. Waits for it. */
vb_status vb_jit_compiles(const vb_jit_filling *filling, const char *name, vb_jit_device *device);

/* How many clusters of so many blocks of a filled text the device holds at once, 0 where it has no kernel. Groups of
 * multiprocessors differ from GPU to GPU, so that only the driver knows. Waits for the kernel. */
int64_t vb_jit_clusters(const vb_jit_filling *filling, const char *name, int64_t blocks, int threads,
    vb_jit_device *device);

/* The GPUs that these kernels run on, and why the last one was refused: a GPU older than they, or the driver's message
 * on a kernel. A line. */
const char *vb_jit_refusal(void);
void vb_jit_refuse(const vb_jit_device *device);
void vb_jit_unload(vb_jit_device *device);

/* Enqueues a filled text. `parameters` are the addresses of the kernel's, in order. The launch may be kept until the
 * kernel is loaded: a kernel that fails is an error of a later call (ptx_launch.c). */
vb_status vb_jit_launch(vb_stream *stream, const char *name, const vb_jit_filling *filling, int64_t x, int64_t y,
    int64_t z, int threads, void **parameters);

#define VB_JIT_PARAMETERS(...) ((void *[]){__VA_ARGS__})

/* Launches what a stream, or each stream of a device, has kept, and waits for its kernels. The device's context is
 * current afterwards. A kernel that fails is an error of the next call with its stream alone. */
vb_status vb_jit_settle(vb_stream *stream);
void vb_jit_settle_all(vb_jit_device *device);

/* ptx_prompt.c: attention where there are many queries; VB_UNSUPPORTED where another kernel is to compute it. The text
 * that caps a score (ptx_transformer.c). */
vb_status vb_jit_attention_of_prompt(const vb_attention_args *args, vb_stream *stream);
extern const char vb_jit_cap[];

/* "f32", "f16", "bf16": how a kernel names elements of a type. */
const char *vb_jit_type(vb_dtype type);

/* The text that decodes element e of the block b of a stored type into v, and the address of the codebook for it
 * (ptx_decode.c). */
const char *vb_jit_decode(vb_dtype type);
cu_address vb_jit_book(vb_dtype type, const vb_jit_device *device);
vb_status vb_jit_load_books(vb_jit_device *device);

/* Texts that kernels share: of ptx_greatest.c, and of ptx_transformer.c. */
extern const char vb_jit_best[], vb_jit_quantize[];

#endif
