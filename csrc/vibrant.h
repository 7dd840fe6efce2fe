/* vibrant.h: tensor and language-model kernels for NVIDIA GPUs and CPUs.
 *
 * The library computes on memory of a *device* (the CPU, or one CUDA GPU), in the order of a *stream*. Every operation
 * is one C function: output first, inputs const, sizes, stream last. It checks its arguments, enqueues its work and
 * returns a status; it never prints (unless VIBRANT_TRACE asks), exits, or keeps a last error. The device of the stream
 * decides which kernels run, so the same calls serve both:
 *
 *     vb_device *device;  vb_stream *stream;  void *x, *y;
 *     vb_status s = vb_device_open(&device, VB_CUDA, 0, NULL);     // or VB_CPU
 *     if (s != VB_OK) { fprintf(stderr, "%s\n", vb_status_string(s)); return 1; }
 *     vb_stream_create(&stream, device);
 *     vb_alloc(&x, 4096, device);
 *     vb_alloc(&y, 4096, device);
 *     vb_memcpy(x, host, 4096, VB_HOST_TO_DEVICE, stream);
 *     vb_silu(y, x, VB_F32, 1024, stream);
 *     vb_memcpy(host, y, 4096, VB_DEVICE_TO_HOST, stream);
 *     vb_stream_synchronize(stream);                               // host now holds the result
 *     vb_free(y, device);  vb_free(x, device);  vb_stream_destroy(stream);  vb_device_close(device);
 *
 * Conventions.
 *   - Matrices are row-major and contiguous. A size of 0 is a no-op that returns VB_OK, whatever its pointers are.
 *   - Any size from 0 up works; a negative one, a null pointer, a product past 2^63 - 1 or a data type that has no
 *     meaning there is VB_INVALID_ARGUMENT; a type or size that has a meaning but no kernel on this device is
 *     VB_UNSUPPORTED. Overlap of output and input is allowed only where a comment says "in place".
 *   - Pointers must be memory of the stream's device (for the CPU any host memory), aligned to 16 bytes for float data.
 *   - Any thread may call; one stream is used by one thread at a time. Handles may be destroyed in any order (a device
 *     lives until its last stream, event and graph is gone); destroying NULL is harmless.
 *   - On the CPU a call has finished when it returns; on CUDA it is asynchronous until vb_stream_synchronize.
 *   - A struct of arguments begins with its size, so that fields can be added to its end: a caller that was compiled
 *     with an older header passes less, and what it did not know is 0. VB_ARGS sets it, and every field that is not
 *     named to 0:
 *
 *         vb_rope(&VB_ARGS(vb_rope_args, .out = y, .in = x, .type = VB_F32, .mode = VB_ROPE_NEOX), stream);
 *
 *   - "Shapes:" in a docstring, or the comment beside a field, says what memory an operation touches: [rows][cols]
 *     elements without gaps, or [rows : s][cols] where row r begins s elements after row r - 1; [a ?: b] is b where a
 *     is 0. Elements are those of the pointer's C type; behind void they are of the named type, else of `type`. Memory
 *     behind const is read, other memory written.
 *   - "Composed:" names the operations that a device without a kernel of its own runs instead, with the same result.
 *
 * This header is the one place where operations are declared: the tables of kernels, the Go catalogue, its binding and
 * the memory table of the fake device are generated from it by `go generate ./...`, which reads Shapes, Composed and
 * Short for.
 */
#ifndef VIBRANT_H
#define VIBRANT_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
#ifdef __GNUC__
#pragma GCC visibility push(default)
#endif

#define VB_VERSION_MAJOR 0
#define VB_VERSION_MINOR 1
#define VB_VERSION_PATCH 0
#define VB_TEXT_(x) #x
#define VB_TEXT(x) VB_TEXT_(x)
#define VB_VERSION VB_TEXT(VB_VERSION_MAJOR) "." VB_TEXT(VB_VERSION_MINOR) "." VB_TEXT(VB_VERSION_PATCH)

#define VB_ARGS(type, ...) ((type){.size = sizeof(type), __VA_ARGS__})

/* ---- status ---------------------------------------------------------------------------------------------------- */

typedef enum vb_status {
    VB_OK = 0,
    VB_INVALID_ARGUMENT = 1, /* the caller's mistake: null pointer, negative size, overflow, senseless type */
    VB_UNSUPPORTED = 2,      /* sensible, but this device has no kernel for it */
    VB_NOT_COMPILED = 3,     /* no kernels for that kind of device: neither linked in nor found (vb_cuda_library) */
    VB_NO_DEVICE = 4,        /* no such device, or no driver */
    VB_NO_KERNEL_IMAGE = 5,  /* the library was not built for this GPU's compute capability */
    VB_OUT_OF_MEMORY = 6,    /* of the device, or of the host for host allocations */
    VB_DEVICE_LOST = 7,      /* an illegal access or hardware fault poisoned the device: close it, nothing else works */
    VB_INTERNAL = 8,         /* a driver error with no better name: see vb_device_driver_error */
    VB_INVALID_ENVIRONMENT = 9 /* an environment variable, named by vb_status_string, has a value without meaning */
} vb_status;

/* Returns a static English description; never NULL, also for values that are no status. */
const char *vb_status_string(vb_status status);

/* "MAJOR.MINOR.PATCH" of the library that is linked. */
const char *vb_version(void);

/* ---- data types ------------------------------------------------------------------------------------------------- */

/* Values are ggml's type ids, block layouts are ggml's (see quant.h), so a tensor of a GGUF file is used as stored; U8
 * and BOOL (a byte of 0 or 1) are no types of ggml's. The tables of types, in C and Go, are generated from the
 * comments: the elements and the bytes of a block. */
typedef enum vb_dtype {
    VB_F32 = 0,      /* 1 element in 4 bytes */
    VB_F16 = 1,      /* 1 element in 2 bytes */
    VB_Q4_0 = 2,     /* 32 elements in 18 bytes */
    VB_Q4_1 = 3,     /* 32 elements in 20 bytes */
    VB_Q5_0 = 6,     /* 32 elements in 22 bytes */
    VB_Q5_1 = 7,     /* 32 elements in 24 bytes */
    VB_Q8_0 = 8,     /* 32 elements in 34 bytes */
    VB_Q2_K = 10,    /* 256 elements in 84 bytes */
    VB_Q3_K = 11,    /* 256 elements in 110 bytes */
    VB_Q4_K = 12,    /* 256 elements in 144 bytes */
    VB_Q5_K = 13,    /* 256 elements in 176 bytes */
    VB_Q6_K = 14,    /* 256 elements in 210 bytes */
    VB_IQ2_XXS = 16, /* 256 elements in 66 bytes */
    VB_IQ2_XS = 17,  /* 256 elements in 74 bytes */
    VB_IQ3_XXS = 18, /* 256 elements in 98 bytes */
    VB_IQ1_S = 19,   /* 256 elements in 50 bytes */
    VB_IQ4_NL = 20,  /* 32 elements in 18 bytes */
    VB_IQ3_S = 21,   /* 256 elements in 110 bytes */
    VB_IQ2_S = 22,   /* 256 elements in 82 bytes */
    VB_IQ4_XS = 23,  /* 256 elements in 136 bytes */
    VB_I8 = 24,      /* 1 element in 1 bytes */
    VB_I32 = 26,     /* 1 element in 4 bytes */
    VB_IQ1_M = 29,   /* 256 elements in 56 bytes */
    VB_BF16 = 30,    /* 1 element in 2 bytes */
    VB_TQ1_0 = 34,   /* 256 elements in 54 bytes */
    VB_TQ2_0 = 35,   /* 256 elements in 66 bytes */
    VB_MXFP4 = 39,   /* 32 elements in 17 bytes */
    VB_NVFP4 = 40,   /* 64 elements in 36 bytes */
    VB_Q1_0 = 41,    /* 128 elements in 18 bytes */
    VB_Q2_0 = 42,    /* 64 elements in 18 bytes */
    VB_U8 = 62,      /* 1 element in 1 bytes */
    VB_BOOL = 63     /* 1 element in 1 bytes */
} vb_dtype;

/* Elements and bytes of one block of the type (1 and the element size for plain types); 0 for an unknown type. */
int64_t vb_dtype_block_size(vb_dtype type);
int64_t vb_dtype_block_bytes(vb_dtype type);

/* "Q4_K" and the like; "unknown" for a value that is no type. */
const char *vb_dtype_string(vb_dtype type);

/* ---- devices, memory, order -------------------------------------------------------------------------------------- */

typedef struct vb_device vb_device;
typedef struct vb_stream vb_stream;
typedef struct vb_event vb_event;
typedef struct vb_graph vb_graph;

typedef enum vb_device_kind {
    VB_CPU = 0,
    VB_CUDA = 1, /* compiled kernels, linked in or found in libvibrant_cuda.so; with VIBRANT_CUDA=ptx those of VB_PTX */
    VB_PTX = 2   /* the same GPUs with kernels that the driver compiles when they are first used: nothing but the driver
                  * is needed. They are those of dense language models; other operations are VB_UNSUPPORTED */
} vb_device_kind;

typedef struct vb_device_options {
    size_t size;
    int threads; /* CPU: worker threads, at most 1024; 0 = one a core that the process may use. CUDA: ignored. */
} vb_device_options;

typedef struct vb_device_info {
    vb_device_kind kind;
    int index;
    char name[128];
    int64_t total_memory;        /* bytes of VRAM, or of host memory */
    int compute_major;           /* CUDA compute capability; 0 on the CPU */
    int compute_minor;
    int multiprocessors;         /* SMs, or threads in use on the CPU */
    int64_t l2_bytes;            /* last-level cache, 0 if unknown */
    int64_t shared_memory_bytes; /* the most a block may use; 0 on the CPU */
    char features[64];           /* what the kernels use: "avx2 fma f16c vnni", "sm_90a" */
} vb_device_info;

/* Counts devices of a kind. VB_NOT_COMPILED or VB_NO_DEVICE (with *count = 0) say why there is none. */
vb_status vb_device_count(int *count, vb_device_kind kind);

/* Where the CUDA kernels of this process are: "linked into this program", the path of a libvibrant_cuda.so, or each
 * place that was looked at and why no library was taken there. The first call that asks for a GPU looks once.
 * VIBRANT_LIBRARY names the file. Without it the places are beside the program, its lib/, ../lib/vibrant/ and ../lib/
 * from there, beside libvibrant.so and in its vibrant/, and where the loader looks. In each folder cuda13/ and cuda12/
 * come first, for kernels of these releases. A library of another version or ABI, or for a newer driver than this
 * machine has, is not taken. */
const char *vb_cuda_library(void);

/* "driver of CUDA 13.0 with 2 GPUs", or why NVIDIA's driver cannot be used here, with the remedy: for VB_NO_DEVICE of
 * VB_PTX. */
const char *vb_driver_report(void);

/* The compute capabilities that these kernels are for, such as "80_90a_PTX"; "none" where there are no kernels. */
const char *vb_cuda_architectures_in_use(void);

/* Opens device `index`; options may be NULL. The caller closes it. Likely errors: VB_NO_DEVICE, VB_NO_KERNEL_IMAGE.
 * With VIBRANT_CUDA_CAPABILITY=86 in the environment, a GPU runs the kernels of one of 8.6, within its shared memory.
 * That takes a GPU of at least 8.6, and a library that CUDA_ARCH=80 made: code for 9.0 has no kernels for others.
 * VB_INVALID_ENVIRONMENT is for a value below 53, above the GPU's capability, or below the capability of the code. */
vb_status vb_device_open(vb_device **device, vb_device_kind kind, int index, const vb_device_options *options);
void vb_device_close(vb_device *device);
vb_status vb_device_get_info(vb_device_info *info, const vb_device *device);

/* Free and total bytes as the driver (or the operating system) sees them now. */
vb_status vb_device_memory(int64_t *free_bytes, int64_t *total_bytes, vb_device *device);

/* The driver's own number of the newest error on this device (a CUresult or cudaError_t), 0 if none: for messages. */
int vb_device_driver_error(const vb_device *device);

/* Device memory, aligned to 256 bytes, contents undefined. vb_free waits for work that uses it. */
vb_status vb_alloc(void **memory, int64_t bytes, vb_device *device);
vb_status vb_free(void *memory, vb_device *device);

/* VB_OK where the device's kernels may use `bytes` bytes of memory that the library did not allocate. On a GPU they are
 * memory of that GPU, or managed memory; else VB_INVALID_ARGUMENT. A CPU cannot tell, and takes any address that is not
 * null. */
vb_status vb_memory_check(const void *memory, int64_t bytes, vb_device *device);

/* Host memory that the device copies from and to at full speed (page-locked on CUDA). */
vb_status vb_alloc_host(void **memory, int64_t bytes, vb_device *device);
vb_status vb_free_host(void *memory, vb_device *device);

vb_status vb_stream_create(vb_stream **stream, vb_device *device);

/* Where a stream's own memory on a GPU comes from: counters, and scratch memory of its kernels. The scratch grows on
 * demand within a call that needs it. `free` is for memory of `alloc`. Work enqueued before may still use the memory,
 * and so may graphs captured on the stream since it was allocated. */
typedef struct vb_allocator {
    size_t size;
    vb_status (*alloc)(void **memory, int64_t bytes, void *context);
    void (*free)(void *memory, void *context);
    void *context;
} vb_allocator;

/* vb_stream_create with an allocator, which is copied; NULL for the device's own memory, which lasts as long as the
 * stream. The CPU uses none. */
vb_status vb_stream_create_with(vb_stream **stream, vb_device *device, const vb_allocator *allocator);
void vb_stream_destroy(vb_stream *stream);
vb_status vb_stream_synchronize(vb_stream *stream);

/* *handle = the stream as the driver knows it, for kernels of the caller's: a CUstream (cudaStream_t) of the device's
 * primary context, which stays the stream's. NULL on a CPU, whose operations have ended when their calls return. */
vb_status vb_stream_handle(void **handle, vb_stream *stream);

/* The mistake in the newest call on this stream that returned VB_INVALID_ARGUMENT: the argument and the rule, as in
 * "k: more than cols"; a static string. It is "stream: null" for NULL, and "" where no call was refused since the
 * newest operation that ran. */
const char *vb_stream_invalid_argument(const vb_stream *stream);

/* The name of the kernel that the newest operation of the stream chose (of several, the one that computes the result):
 * a static string; NULL before the first and on devices that do not say. On a CPU it names the instructions of the
 * form that ran: "avx2", or "tmac_words_vbmi" where an operation has several forms. With VIBRANT_TRACE=kernels in the
 * environment when the library is loaded (a CPU: opened), each operation also writes its name and kernel to stderr, on
 * a GPU its sizes, too. */
const char *vb_last_kernel(const vb_stream *stream);

typedef enum vb_copy_kind { VB_HOST_TO_DEVICE = 1, VB_DEVICE_TO_HOST = 2, VB_DEVICE_TO_DEVICE = 3 } vb_copy_kind;

/* Copies bytes in stream order. Host memory must stay valid until the stream has passed the copy. VB_DEVICE_TO_DEVICE
 * also copies between two GPUs, in the order of a stream of either: vb_stream_wait orders the other's streams. */
vb_status vb_memcpy(void *out, const void *in, int64_t bytes, vb_copy_kind kind, vb_stream *stream);

/* Sets bytes in stream order. */
vb_status vb_memset(void *out, int value, int64_t bytes, vb_stream *stream);

vb_status vb_event_create(vb_event **event, vb_device *device);
void vb_event_destroy(vb_event *event);
vb_status vb_event_record(vb_event *event, vb_stream *stream);
vb_status vb_event_synchronize(vb_event *event);
vb_status vb_event_done(int *done, vb_event *event); /* *done = 1 once everything before the record has finished */
vb_status vb_event_elapsed(float *milliseconds, vb_event *start, vb_event *end);
/* Later work of the stream waits for the event, which may be another device's of the same kind. */
vb_status vb_stream_wait(vb_stream *stream, vb_event *event);

/* Between begin and end, work on the stream is recorded instead of run; the graph then replays it, reading the same
 * addresses. The CPU has no graphs: begin returns VB_UNSUPPORTED. Update replaces a graph's recorded work by another
 * graph's, where only parameters differ. If more differs it returns VB_UNSUPPORTED: launch the new graph instead. */
vb_status vb_graph_begin(vb_stream *stream);
vb_status vb_graph_end(vb_graph **graph, vb_stream *stream);
vb_status vb_graph_update(vb_graph *graph, const vb_graph *newer);
vb_status vb_graph_launch(vb_graph *graph, vb_stream *stream);
/* Does the work that the first launch of the graph would do before it can run. Graphs that wait for each other
 * (vb_communicator) are all prepared before one of them is launched: preparing may wait for the device. */
vb_status vb_graph_prepare(vb_graph *graph);
void vb_graph_destroy(vb_graph *graph);

/* ---- several devices ---------------------------------------------------------------------------------------------
 *
 * A communicator combines what streams of several devices of one kind compute: rank r is streams[r]. A collective is
 * one call for all ranks: it enqueues each rank's part on its stream, and arrays of pointers have one of each rank.
 * Every rank gets the same bits. GPUs exchange through each other's memory, over NVLink or PCIe, by kernels that may be
 * captured: each rank's stream in a graph of its own. No rank's part ends before all have begun, which gives three
 * rules:
 *   - Every graph that holds a collective is launched as often as those of the other ranks, after vb_graph_prepare of
 *     all.
 *   - Where several communicators share devices, one thread at a time enqueues collectives or launches such graphs, so
 *     that each device has them in the same order.
 *   - Between the launches of one collective's graphs nothing is called that may wait for a device (vb_free).
 * A rank that waits for 30 seconds ends its device with VB_DEVICE_LOST. */

#define VB_MAX_RANKS 8
typedef struct vb_communicator vb_communicator;

/* Makes a communicator of 1 to VB_MAX_RANKS streams, no stream twice, which must outlive it. On GPUs each pair of
 * devices gets access to each other's memory, and each rank some 90 MiB of its own. Likely errors: VB_UNSUPPORTED where
 * two of the GPUs have no access to each other's memory, VB_OUT_OF_MEMORY. The streams must not be capturing. */
vb_status vb_communicator_create(vb_communicator **communicator, vb_stream *const *streams, int ranks);
/* Waits for the work of the ranks. */
void vb_communicator_destroy(vb_communicator *communicator);

/* out[r][i] = in[0][i] + in[1][i] + ..., in the order of ranks, + add[r][i]. add may be NULL for none, out[r] be in[r]
 * or add[r]. Where `rounded` is 1, a device may round each in[r] to 2^-13 of the largest of its 8 neighbours (the
 * elements 8 j to 8 j + 7), so that fewer bytes cross; 0 permits no rounding. out[r], in[r], add[r]: [n]. */
vb_status vb_all_reduce(float *const *out, const float *const *in, const float *const *add, int64_t n, int rounded,
                        vb_communicator *communicator);

/* Each row of out[r] is the rows of in[0], in[1], ... one after another. out[r]: [rows][sum of cols]; in[r]:
 * [rows][cols[r]]. With cols of 0 but for one rank this is a broadcast of that rank's memory, where out[r] may be
 * in[r]; else not in place. */
vb_status vb_all_gather(float *const *out, const float *const *in, int64_t rows, const int64_t *cols,
                        vb_communicator *communicator);

/* Copies the memory of rank `root` to all others. data[r]: [words] of 4 bytes each. */
vb_status vb_broadcast(void *const *data, int64_t words, int root, vb_communicator *communicator);

/* Copies memory of rank `from` to memory of rank `to`, in the order of both streams. out: [words] of 4 bytes each, of
 * rank `to`; in: [words], of rank `from`. */
vb_status vb_send(void *out, const void *in, int64_t words, int from, int to, vb_communicator *communicator);

/* Processes, on any hosts, each with one GPU: their communicators have one stream, and arrays of pointers one element.
 * The functions above go through NVIDIA's NCCL, found at run time (libnccl.so.2, or the file that VIBRANT_NCCL names).
 * All processes call the same functions in the same order. Every rank gets the same bits; sums are in NCCL's
 * order, and `rounded` has no effect. Captured work has run once before.
 *
 * vb_nccl returns the version of NCCL, or why there is none that can be used; usable, unless NULL, becomes 1 or 0. */
const char *vb_nccl(int *usable);

#define VB_UNIQUE_ID_BYTES 128
/* Fills id, of VB_UNIQUE_ID_BYTES, by which a communicator's processes recognize each other: one process makes it, all
 * get it. VB_UNSUPPORTED where there is no NCCL. */
vb_status vb_unique_id(char *id);
/* Makes the communicator of a process, and waits until all of the ranks have called it. The stream outlives it.
 * vb_stream_invalid_argument has NCCL's text where it fails. */
vb_status vb_communicator_join(vb_communicator **communicator, vb_stream *stream, int rank, int ranks, const char *id);
/* Ends work that waits for a rank which is gone. Any thread may call it; only vb_communicator_destroy follows. */
void vb_communicator_abort(vb_communicator *communicator);

/* ---- element-wise; in place allowed; types F32, F16, BF16 -------------------------------------------------------- */

/* out[i] = a[i] + b[i]. Shapes: out, a, b [n]. */
vb_status vb_add(void *out, const void *a, const void *b, vb_dtype type, int64_t n, vb_stream *stream);
/* out[i] = a[i] * b[i]. Shapes: out, a, b [n]. */
vb_status vb_mul(void *out, const void *a, const void *b, vb_dtype type, int64_t n, vb_stream *stream);
/* out[i] = a[i] * scalar. Shapes: out, a [n]. */
vb_status vb_mul_scalar(void *out, const void *a, float scalar, vb_dtype type, int64_t n, vb_stream *stream);
/* out[i] = a[i] / (1 + exp(-a[i])). Shapes: out, a [n]. */
vb_status vb_silu(void *out, const void *a, vb_dtype type, int64_t n, vb_stream *stream);
/* out[i] = a[i] * P(X <= a[i]) with X normal: a[i] / 2 * (1 + erf(a[i] / sqrt(2))) (Hendrycks & Gimpel 2016, "Gaussian
 * Error Linear Units"), accurate relative to the result. What PyTorch calls approximate='none'. Shapes: out, a [n]. */
vb_status vb_gelu(void *out, const void *a, vb_dtype type, int64_t n, vb_stream *stream);
/* out[i] = a[i] / 2 * (1 + tanh(sqrt(2 / pi) * (a[i] + 0.044715 a[i]^3))): the same paper's approximation,
 * approximate='tanh'. Shapes: out, a [n]. */
vb_status vb_gelu_tanh(void *out, const void *a, vb_dtype type, int64_t n, vb_stream *stream);
/* out[i] = silu(gate[i]) * up[i] (Shazeer 2020, "GLU Variants Improve Transformer"). Shapes: out, gate, up [n]. */
vb_status vb_swiglu(void *out, const void *gate, const void *up, vb_dtype type, int64_t n, vb_stream *stream);
/* The gates of gated linear units (Shazeer 2020), as vb_glu applies them to g = gate[i], u = up[i]. */
typedef enum vb_activation {
    VB_SILU = 0,         /* g / (1 + exp(-g)) * u: what vb_swiglu computes */
    VB_GELU = 1,         /* vb_gelu's g * u */
    VB_GELU_TANH = 2,    /* vb_gelu_tanh's g * u (Gemma) */
    VB_RELU_SQUARED = 3, /* max(g, 0)^2 * u (So et al. 2021, "Primer"; BitNet b1.58) */
    /* g' / (1 + exp(-alpha g')) * (u' + 1), g' = min(g, limit), u' = u clamped to -limit..limit (gpt-oss) */
    VB_CLAMPED_SILU = 4
} vb_activation;
/* out[i] = activation(gate[i], up[i]). alpha and limit are read with VB_CLAMPED_SILU alone.
 * Shapes: out, gate, up [n]. */
vb_status vb_glu(void *out, const void *gate, const void *up, vb_activation activation, float alpha, float limit,
                 vb_dtype type, int64_t n, vb_stream *stream);
/* out[i] = 1 / (1 + exp(-a[i])). Shapes: out, a [n]. */
vb_status vb_sigmoid(void *out, const void *a, vb_dtype type, int64_t n, vb_stream *stream);
/* out[i] = cap * tanh(a[i] / cap), cap > 0: scores and logits held below a bound (Gemma Team 2024, "Gemma 2").
 * Shapes: out, a [n]. */
vb_status vb_soft_cap(void *out, const void *a, float cap, vb_dtype type, int64_t n, vb_stream *stream);
/* out[i] = in[i], n elements of the type (n a multiple of its block size), which may be any. Shapes: out, in [n]. */
vb_status vb_copy(void *out, const void *in, vb_dtype type, int64_t n, vb_stream *stream);
/* out[i] = in[i] in another type: any type but U8 and BOOL to F32; F32, F16 and BF16 among each other (round to nearest
 * even); F32 to Q4_0, Q8_0, Q4_K and Q6_K, on the CPU alone, as ggml's reference quantizers do, bit for bit. A value
 * that no block can hold is VB_INVALID_ARGUMENT. Quantized blocks are read as stored. Not in place.
 * Shapes: out [n] of out_type; in [n] of in_type. */
vb_status vb_convert(void *out, vb_dtype out_type, const void *in, vb_dtype in_type, int64_t n, vb_stream *stream);
/* x[i] += 1: advances positions on the device between tokens. Shapes: x [n]. */
vb_status vb_increment_i32(int32_t *x, int64_t n, vb_stream *stream);

/* ---- rows; in place allowed; types F32, F16, BF16, arithmetic in float32 ----------------------------------------- */

/* out = exp(in - max) / sum over each row; a row of -inf only gives NaN, as IEEE arithmetic does.
 * Shapes: out, in [rows][cols]. */
vb_status vb_softmax_batched(void *out, const void *in, vb_dtype type, int64_t rows, int64_t cols, vb_stream *stream);
/* Short for vb_softmax_batched with one row. */
vb_status vb_softmax(void *out, const void *in, vb_dtype type, int64_t n, vb_stream *stream);
/* out = in / sqrt(mean(in^2) + eps) * weight (Zhang & Sennrich 2019).
 * Shapes: out, in [rows][cols]; weight [cols], or NULL for ones. */
vb_status vb_rms_norm_batched(void *out, const void *in, const float *weight, vb_dtype type, int64_t rows, int64_t cols,
                              float eps, vb_stream *stream);
/* Short for vb_rms_norm_batched with one row. */
vb_status vb_rms_norm(void *out, const void *in, const float *weight, vb_dtype type, int64_t n, float eps,
                      vb_stream *stream);
/* out = (in - mean) / sqrt(variance + eps) * weight + bias (Ba, Kiros & Hinton 2016, "Layer Normalization"); the
 * variance is the mean of (in - mean)^2, summed after the mean is known, so that a large mean costs no accuracy.
 * Shapes: out, in [rows][cols]; weight, bias [cols], or NULL for none. */
vb_status vb_layer_norm_batched(void *out, const void *in, const float *weight, const float *bias, vb_dtype type,
                                int64_t rows, int64_t cols, float eps, vb_stream *stream);
/* Short for vb_layer_norm_batched with one row. */
vb_status vb_layer_norm(void *out, const void *in, const float *weight, const float *bias, vb_dtype type, int64_t n,
                        float eps, vb_stream *stream);
/* sum = a + b, out = rms_norm(sum): the residual connection and the norm that follows it. sum may be a or b.
 * Shapes: sum, out, a, b [rows][cols]; weight [cols], or NULL for ones. */
vb_status vb_add_rms_norm(void *sum, void *out, const void *a, const void *b, const float *weight, vb_dtype type,
                          int64_t rows, int64_t cols, float eps, vb_stream *stream);
/* out[r][c] = a[r][c] * factors[r]. Shapes: out, a [rows][cols]; factors [rows]. */
vb_status vb_mul_rows(void *out, const void *a, const float *factors, vb_dtype type, int64_t rows, int64_t cols,
                      vb_stream *stream);
/* out[r][out_first + c] = in[r][in_first + c] for c < cols, where out has rows of out_cols and in of in_cols elements:
 * joins and splits rows. Types F32, F16, BF16, I32; not in place. Shapes: out [rows][out_cols]; in [rows][in_cols]. */
vb_status vb_copy_columns(void *out, int64_t out_cols, int64_t out_first, const void *in, int64_t in_cols,
                          int64_t in_first, vb_dtype type, int64_t rows, int64_t cols, vb_stream *stream);
/* out[r] = index of the greatest of in[r][0..cols); the lowest index among equals; NaN counts as the greatest.
 * cols > 0. Shapes: out [rows]; in [rows][cols]. */
vb_status vb_argmax(int32_t *out, const float *in, int64_t rows, int64_t cols, vb_stream *stream);
/* The k greatest of each row, descending, lowest index first among equals; k <= cols.
 * Shapes: values, ids [rows][k]; in [rows][cols]. */
vb_status vb_top_k(float *values, int32_t *ids, const float *in, int64_t rows, int64_t cols, int64_t k,
                   vb_stream *stream);

/* ---- arrays with strides ----------------------------------------------------------------------------------------- */

#define VB_MAX_DIMS 8
#define VB_MAX_INPUTS 6
#define VB_MAX_STEPS 48

/* An array in memory: element (i0, i1, ...) lies i0 * strides[0] + i1 * strides[1] + ... elements behind data. Strides
 * are 0 or more; a stride of 0 repeats the same elements, which no output does. */
typedef struct vb_view {
    void *data;
    vb_dtype type;
    int64_t strides[VB_MAX_DIMS];
} vb_view;

/* The steps of an expression of elements. A value is a float32, or an int32 whose overflow wraps. Operands of one step
 * are of one kind, and so is its result, unless the comment says more. Comparisons give the int32 1 or 0. */
typedef enum vb_element_op {
    VB_ELEMENT_CONSTANT = 0,    /* the float32 whose bits are a */
    VB_ELEMENT_INTEGER = 1,     /* the int32 a */
    VB_ELEMENT_INDEX = 2,       /* the element's number in row-major order, an int32; at most 2^31 - 1 elements */
    VB_ELEMENT_RANDOM = 3,      /* a random float32 of Philox 4x32-10 of the key (a, b): c bits, 1 to 24, as a fraction
                                 * from 0 up to 1, or a normal number where c is 0; docs/tensor.md says which word */
    VB_ELEMENT_TO_FLOAT = 4,    /* int32 a as float32, to the nearest */
    VB_ELEMENT_TO_INTEGER = 5,  /* float32 a as int32: towards 0, held within the range, 0 for NaN */
    VB_ELEMENT_WHERE = 6,       /* b where the int32 a is not 0, else c */
    VB_ELEMENT_ADD = 7,         /* a + b */
    VB_ELEMENT_SUB = 8,         /* a - b */
    VB_ELEMENT_MUL = 9,         /* a * b */
    VB_ELEMENT_DIV = 10,        /* a / b; of integers towards 0, and 0 where b is 0 */
    VB_ELEMENT_MIN = 11,        /* the smaller, NaN if either is NaN */
    VB_ELEMENT_MAX = 12,        /* the greater, NaN if either is NaN */
    VB_ELEMENT_NEG = 13,        /* -a */
    VB_ELEMENT_ABS = 14,        /* |a| */
    VB_ELEMENT_EQ = 15,         /* a == b */
    VB_ELEMENT_NE = 16,         /* a != b */
    VB_ELEMENT_LT = 17,         /* a < b */
    VB_ELEMENT_LE = 18,         /* a <= b */
    VB_ELEMENT_AND = 19,        /* bits of integers */
    VB_ELEMENT_OR = 20,
    VB_ELEMENT_XOR = 21,
    VB_ELEMENT_SHIFT_RIGHT = 22, /* a as 32 bits without sign, by b % 32 bits */
    VB_ELEMENT_REM = 23,        /* a - a / b * b of integers, and 0 where b is 0 */
    VB_ELEMENT_POW = 24,        /* a to the power of b; of integers by products that wrap, and for b below 0 the whole
                                 * number next to it towards 0: 1 or -1 where a is such, else 0 */
    /* from here on float32 alone */
    VB_ELEMENT_EXP = 25,
    VB_ELEMENT_LOG = 26,        /* natural */
    VB_ELEMENT_SQRT = 27,
    VB_ELEMENT_RSQRT = 28,      /* 1 / sqrt(a) */
    VB_ELEMENT_SIN = 29,
    VB_ELEMENT_COS = 30,
    VB_ELEMENT_TANH = 31,
    VB_ELEMENT_SIGMOID = 32,    /* 1 / (1 + exp(-a)) */
    VB_ELEMENT_SILU = 33,       /* as vb_silu, vb_gelu and vb_gelu_tanh */
    VB_ELEMENT_GELU = 34,
    VB_ELEMENT_GELU_TANH = 35,
    VB_ELEMENT_FLOOR = 36,
    VB_ELEMENT_CEIL = 37,
    VB_ELEMENT_ROUND = 38       /* to the nearest, ties to even */
} vb_element_op;

/* A step: the operation on the values a, b and c. Value i is input i for i < inputs, else step i - inputs, which
 * comes before. Values that the operation does not take are 0. */
typedef struct vb_step {
    vb_element_op op;
    int32_t a, b, c;
} vb_step;

/* out = the last step of an expression, or input 0 where it has none, for each element; strides of 0 broadcast. An
 * input of F32, F16 or BF16 is a float32, and one of I32, I8, U8 or BOOL an int32. The result is of the kind of out:
 * floats are rounded to the nearest even, I8 and U8 keep the lowest 8 bits, BOOL is whether it is not 0. Where out
 * overlaps an input, both have the same data, type size and strides. */
typedef struct vb_map_args {
    size_t size;
    vb_view out;               /* [sizes] */
    vb_view in[VB_MAX_INPUTS]; /* [sizes], the first `inputs` of them */
    int64_t sizes[VB_MAX_DIMS];
    vb_step program[VB_MAX_STEPS];
    int64_t rank, inputs, steps;
} vb_map_args;
vb_status vb_map(const vb_map_args *args, vb_stream *stream);

/* How a reduction combines elements x: floats, and integers where the comment says so. Sums and products of integers
 * wrap. */
typedef enum vb_reduction {
    VB_REDUCTION_SUM = 0,       /* integers too */
    VB_REDUCTION_PROD = 1,      /* integers too */
    VB_REDUCTION_MAX = 2,       /* NaN where one is NaN; integers too */
    VB_REDUCTION_MIN = 3,       /* NaN where one is NaN; integers too */
    VB_REDUCTION_ARGMAX = 4,    /* the lowest number of a greatest one, NaN being the greatest; integers too */
    VB_REDUCTION_ARGMIN = 5,    /* the lowest number of a smallest one, NaN being the smallest; integers too */
    VB_REDUCTION_ANY = 6,       /* whether one is not 0; integers too */
    VB_REDUCTION_ALL = 7,       /* whether none is 0; integers too */
    VB_REDUCTION_MEAN = 8,
    VB_REDUCTION_VAR = 9,       /* the sum of (x - mean)^2, divided by their number less `parameter` */
    VB_REDUCTION_NORM = 10,     /* (the sum of |x|^p)^(1/p) for a parameter p of 1 or 2; greatest |x| for infinity */
    VB_REDUCTION_LOGSUMEXP = 11 /* log(sum(exp(x))), without overflow */
} vb_reduction;

/* out = the reduction over some dimensions of in, each bit of `reduced` one; along these out has strides of 0. Elements
 * are numbered in row-major order of the reduced dimensions, of fewer than 2^31 places for ARGMAX and ARGMIN. The
 * result is an int32 for ARGMAX to ALL and of integers, else a float32, and out of its kind as of vb_map. Not in
 * place. */
typedef struct vb_reduce_args {
    size_t size;
    vb_view out; /* [sizes] */
    vb_view in;  /* [sizes] */
    int64_t sizes[VB_MAX_DIMS];
    int64_t rank;
    int64_t reduced;
    vb_reduction reduction;
    float parameter;
} vb_reduce_args;
vb_status vb_reduce(const vb_reduce_args *args, vb_stream *stream);

/* out[r][i][c] = in[r][0][c] + ... + in[r][i][c]. Types F32, F16, BF16, and I32, which wraps. In place allowed.
 * Shapes: out, in [rows][n][cols]. */
vb_status vb_cumsum(void *out, const void *in, vb_dtype type, int64_t rows, int64_t n, int64_t cols,
                    vb_stream *stream);

/* The first k elements of each line along dimension `dim` in ascending or descending order, and their places in it. The
 * order is stable: equal elements stay as they lie. NaN is the greatest, and -0 equals 0. Lines have fewer than 2^31
 * elements. Not in place. */
typedef struct vb_sort_args {
    size_t size;
    vb_view values;  /* [out_sizes], or NULL for none; of the type of in */
    vb_view indices; /* [out_sizes], or NULL for none; I32 */
    vb_view in;      /* [sizes] */
    int64_t sizes[VB_MAX_DIMS];
    int64_t out_sizes[VB_MAX_DIMS]; /* sizes, but k along dim */
    int64_t rank, dim;
    int descending;
} vb_sort_args;
vb_status vb_sort(const vb_sort_args *args, vb_stream *stream);

/* Elements at places that are in memory: out is in with coordinate `dim` replaced by ids; where scatter, out with
 * coordinate `dim` replaced by ids becomes in, or has it added. Views of the same type size. Additions are of F32 and
 * I32, in any order. An id outside 0..places-1 gives an element of zeros, and scatters nothing (on the CPU the call
 * returns VB_INVALID_ARGUMENT instead). Of several elements of one place any may stay. Not in place. */
typedef enum vb_indexing { VB_INDEXING_GATHER = 0, VB_INDEXING_SCATTER = 1, VB_INDEXING_SCATTER_ADD = 2 } vb_indexing;
typedef struct vb_index_args {
    size_t size;
    vb_view out; /* [out_sizes] */
    vb_view in;  /* [in_sizes] */
    vb_view ids; /* [ids_sizes] */
    int64_t out_sizes[VB_MAX_DIMS];
    int64_t in_sizes[VB_MAX_DIMS];
    int64_t ids_sizes[VB_MAX_DIMS]; /* those of out where gathered, of in where scattered */
    int64_t rank, dim;
    vb_indexing indexing;
} vb_index_args;
vb_status vb_index(const vb_index_args *args, vb_stream *stream);

/* ---- matrices ---------------------------------------------------------------------------------------------------- */

/* The rounding that makes products of F32 matrices fast. The 16-bit types are multiplied exactly and summed in float32
 * anyway. */
typedef enum vb_precision {
    /* Float32 accuracy by whatever is fastest, the default: also tensor cores on split operands, where the errors are
     * no larger than those of multiplying and adding in float32. */
    VB_PRECISION_FLOAT32 = 0,
    /* Only multiplications and additions of float32 (IEEE 754), in any order of the sum. */
    VB_PRECISION_IEEE = 1,
    /* Operands may be rounded to the 11 significant bits of TF32. A permission, no obligation: a device without tensor
     * cores for it computes in float32. */
    VB_PRECISION_TF32 = 2
} vb_precision;

/* C = A B for `batch` matrices each: C[m][n], A[m][k] stored [k][m] where a_transposed, B[k][n] stored [n][k] where
 * b_transposed. Row r of a stored matrix begins `stride` elements after row r - 1 (at least its length), matrix i
 * `batch_stride` elements after matrix i - 1; a batch stride of 0 uses one A or B for all. Matrices of C must not
 * overlap each other or the operands. */
typedef struct vb_matmul_args {
    size_t size;
    void *c;       /* [batch : c_batch_stride][m : c_stride][n] */
    const void *a; /* [batch : a_batch_stride][m : a_stride][k],
                    * or [batch : a_batch_stride][k : a_stride][m] where a_transposed */
    const void *b; /* [batch : b_batch_stride][k : b_stride][n],
                    * or [batch : b_batch_stride][n : b_stride][k] where b_transposed */
    int64_t m, k, n, batch;
    int64_t a_stride, b_stride, c_stride;
    int64_t a_batch_stride, b_batch_stride, c_batch_stride;
    int a_transposed, b_transposed;
    vb_dtype type; /* of all three: F32, F16, BF16; accumulated in float32 */
    vb_precision precision;
} vb_matmul_args;
vb_status vb_matmul_batched(const vb_matmul_args *args, vb_stream *stream);
/* Short for vb_matmul_batched with one C[m][n] = A[m][k] B[k][n] without gaps, in VB_PRECISION_FLOAT32. */
vb_status vb_matmul(void *c, const void *a, const void *b, vb_dtype type, int64_t m, int64_t k, int64_t n,
                    vb_stream *stream);
/* c = a B. Shapes: c [n]; a [k]; b [k][n]. */
vb_status vb_matmul_single_row(void *c, const void *a, const void *b, vb_dtype type, int64_t k, int64_t n,
                               vb_stream *stream);

/* A weight matrix, one row an output: [rows][cols], each row whole blocks of the type (cols a multiple of its block
 * size). VB_STORED is the byte order of a GGUF file; VB_PACKED is private to the device kind, made by vb_weight_pack,
 * holds exactly the same values and is read with wider loads. */
typedef enum vb_layout { VB_STORED = 0, VB_PACKED = 1 } vb_layout;
typedef struct vb_weight {
    const void *data;
    vb_dtype type;
    vb_layout layout;
    int64_t rows; /* outputs, or vocabulary */
    int64_t cols; /* inputs */
} vb_weight;

/* *bytes = the size of the packed form, 0 where this device gains nothing from packing. w->data is not read. */
vb_status vb_weight_packed_size(int64_t *bytes, const vb_weight *w, vb_device *device);
/* Packs the stored weight w (device memory) into out (device memory, not in place).
 * Shapes: out [vb_weight_packed_size] bytes. */
vb_status vb_weight_pack(void *out, const vb_weight *w, vb_stream *stream);

/* y = x W^T + bias; W of any type of vb_dtype but integers.
 * Shapes: y [n][w->rows]; x [n][w->cols]; bias [w->rows], or NULL for none.
 * F32 weights are multiplied in float32. For the others a device may round x to int8 blocks or to 16-bit floats: the
 * relative error of y stays under 0.5 % (RMS) of exact arithmetic on the dequantized weights. */
vb_status vb_linear(float *y, const float *x, const vb_weight *w, const float *bias, int64_t n, vb_stream *stream);
/* out[i] = row ids[i] of the table, as F32. An id outside 0..rows-1 gives a row of NaN (on the CPU the call returns
 * VB_INVALID_ARGUMENT instead). Shapes: out [n][table->cols]; ids [n]. */
vb_status vb_embedding(float *out, const vb_weight *table, const int32_t *ids, int64_t n, vb_stream *stream);

/* ---- adapters ---------------------------------------------------------------------------------------------------- */

/* out = add + scale * ((x V) * codes) U^T: the update of a low-rank adapter (Hu et al. 2021, "LoRA"), whose codes may
 * be made for each row; x V is kept in no memory of the device. Sums are float32; with 16-bit types (x V) * codes is
 * rounded to them once. A code of 0 leaves its rank out, and what that rank multiplies may stay unread: several
 * adapters lie side by side along r, and a row's codes say which of them it has. With codes_stride 0 all rows share one
 * row of codes. out may be add. r <= 256. */
typedef struct vb_fused_update_args {
    size_t size;
    void *out;            /* [m][n] */
    const void *add;      /* [m][n], or NULL for zeros */
    const void *x;        /* [m][k] */
    const void *v;        /* [k][r] of weight_type, or [r][k] of weight_type where v_transposed */
    const void *codes;    /* [m : codes_stride][r], or NULL for ones */
    const void *u;        /* [n][r] of weight_type, or [r][n] of weight_type where u_transposed */
    int64_t m, k, n, r;
    int64_t codes_stride;
    float scale;
    vb_dtype type;        /* of out, add, x and codes: F32, F16, BF16 */
    vb_dtype weight_type; /* of v and u: the same, or F16 beside F32 */
    int v_transposed, u_transposed;
} vb_fused_update_args;
vb_status vb_fused_update(const vb_fused_update_args *args, vb_stream *stream);

/* ---- ternary weights ------------------------------------------------------------------------------------------------
 *
 * Weights of -1, 0 and 1 (Ma et al. 2024, "The Era of 1-bit LLMs"), two bits each: the code c stands for c - 1. The
 * code 3 is refused where weights are encoded; kernels compute it as 2. docs/ternary.md draws the layouts. */

typedef enum vb_int2_layout {
    /* Element k of a row in byte k / 4, at bit 2 (k % 4); rows of (k + 3) / 4 bytes. */
    VB_INT2_ROWS = 0,
    /* Rows of whole pieces of 16 bytes, whose words of 32 bits hold 16 elements: element e of a word at bit
     * 8 (e % 4) + 2 (e / 4). Of eight neighbouring pieces (n at a row's end), word w of piece i holds the elements from
     * 16 (i + 8 w) on (16 (i + n w)), counted from the first of these pieces. What follows the last element is 0. */
    VB_INT2_INTERLEAVED = 1,
    /* Tiles of 16 rows and 32 elements of code weight + 2, as Microsoft's BitNet stores them for its GPU kernel: for
     * vb_int2_convert alone. Rows are a multiple of 16, elements of 32. */
    VB_INT2_MICROSOFT = 2
} vb_int2_layout;

/* Bytes of a row of k elements: a matrix of n rows has n times so many. 0 where the layout has no such row. */
int64_t vb_int2_row_bytes(vb_int2_layout layout, int64_t k);

/* Encodes values[n][k] of -1, 0, 1 into out, on the host. VB_INVALID_ARGUMENT for any other value, and where the
 * layout has no such matrix. */
vb_status vb_int2_encode(void *out, vb_int2_layout layout, const int8_t *values, int64_t n, int64_t k);

/* Writes a matrix of one layout in another one, on the host, not in place; out is the same bytes again after there
 * and back. VB_INVALID_ARGUMENT where a code stands for none of -1, 0, 1, and where a layout has no such matrix. */
vb_status vb_int2_convert(void *out, vb_int2_layout out_layout, const void *in, vb_int2_layout in_layout, int64_t n,
                          int64_t k);

/* Rounds rows of h = in, or of a gated unit h = activation(in, up), perhaps normed, to int8 as BitNet's code does:
 *     h = h / sqrt(mean(h^2) + eps) * norm   where normed
 *     scales[r] = 127 / max(|h|, 1e-5);  codes = h * scales[r] to the nearest (ties to even), within -128..127
 * A row that holds NaN has a NaN scale and undefined codes. */
typedef struct vb_norm_quantize_args {
    size_t size;
    void *codes;         /* [rows][cols] of VB_I8 */
    float *scales;       /* [rows] */
    const float *in;     /* [rows][cols] */
    const float *up;     /* [rows][cols], or NULL for none */
    const float *norm;   /* [cols], or NULL for ones */
    int64_t rows, cols;
    vb_activation activation; /* with up: VB_SILU, VB_RELU_SQUARED */
    float eps;
    int normed;
} vb_norm_quantize_args;
vb_status vb_norm_quantize(const vb_norm_quantize_args *args, vb_stream *stream);

/* out[r][c] = codes[r][c] / scales[r]: the values of the codes. Shapes: out [rows][cols]; codes [rows][cols] of
 * VB_I8; scales [rows]. */
vb_status vb_dequantize_rows(float *out, const void *codes, const float *scales, int64_t rows, int64_t cols,
                             vb_stream *stream);

/* Products of m rows of int8 activations with n rows of two-bit weights: sums of k products in int32, exact (k at
 * most 2^22, so that none overflows). With out_type I32 out is the sums, and there are no scales, bias and add. Else
 *     out[i][r] = sum / activation_scales[i] * weight_scales[segment of r] + bias[r] + add[i][r]
 * Segment j are the rows from segment_ends[j - 1] (0 for the first) to segment_ends[j]; without segment_ends it is
 * r * segments / n, equal segments as in Microsoft's kernel: 1 is a scale for all rows, n one for each. k is a multiple
 * of 4. */
typedef struct vb_w2a8_gemv_args {
    size_t size;
    void *out;                      /* [m][n] of out_type */
    const void *weights;            /* [n][row_bytes] of VB_I8 */
    const void *activations;        /* [m][k] of VB_I8 */
    const float *activation_scales; /* [m], or NULL for ones */
    const float *weight_scales;     /* [segments], or NULL for ones */
    const int32_t *segment_ends;    /* [segments], or NULL for equal segments */
    const float *bias;              /* [n], or NULL for none */
    const float *add;               /* [m][n], or NULL for none; may be out */
    int64_t m, n, k, segments;
    int64_t row_bytes;              /* vb_int2_row_bytes of the layout and k */
    vb_int2_layout layout;
    vb_dtype out_type;              /* I32, F32, F16, BF16 */
    int settled;                    /* the op before does not write weights, which may be read while it still runs */
    /* How CUDA goes about it for m <= 8; 0 lets the library choose. The result is the same. */
    int64_t threads;                /* of a block: 64, 128, 256; 512 with 4 lanes */
    int64_t lanes;                  /* that share the elements of a row: 4 (int8 tensor cores), 8, 16, 32 (m <= 4) */
    int64_t tile;                   /* rows that a thread has at a time: 1, 2; with 4 lanes pairs of rows */
    int persistent;                 /* as many blocks as the GPU holds, for several tiles each, not one a tile; with 4
                                     * lanes, m = 1 and threads and tile 0 by products of single bits (9.0) */
    int without_dp4a;               /* multiply byte by byte */
    int narrow;                     /* read weights by 4 bytes instead of 16 */
} vb_w2a8_gemv_args;
vb_status vb_w2a8_gemv(const vb_w2a8_gemv_args *args, vb_stream *stream);

/* Products of m rows of h = in, or of a gated unit h = activation(in, up), perhaps normed, rounded to int8 as
 * vb_norm_quantize does, with one to three matrices of two-bit weights, each with results of its own:
 *     out[i][r] = sum / scales[i] * weight_scales[segment of r] + add[i][r]
 * as vb_w2a8_gemv has it for equal segments. n2 and n3 are 0 where there are fewer matrices. codes and scales are
 * scratch. Composed: vb_norm_quantize, vb_w2a8_gemv. */
typedef struct vb_bit_linear_args {
    size_t size;
    float *out;                  /* [m][n] */
    float *out2;                 /* [m][n2], or NULL for none */
    float *out3;                 /* [m][n3], or NULL for none */
    void *codes;                 /* [m][k] of VB_I8 */
    float *scales;               /* [m] */
    const float *in;             /* [m][k] */
    const float *up;             /* [m][k], or NULL for none */
    const float *norm;           /* [k], or NULL for ones */
    const float *add;            /* [m][n], or NULL for none; may be out */
    const void *weights;         /* [n][row_bytes] of VB_I8 */
    const void *weights2;        /* [n2][row_bytes] of VB_I8, or NULL for none */
    const void *weights3;        /* [n3][row_bytes] of VB_I8, or NULL for none */
    const float *weight_scales;  /* [segments] */
    const float *weight_scales2; /* [segments2], or NULL for none */
    const float *weight_scales3; /* [segments3], or NULL for none */
    int64_t m, n, n2, n3, k, segments, segments2, segments3;
    int64_t row_bytes;           /* vb_int2_row_bytes of the layout and k */
    vb_int2_layout layout;
    vb_activation activation;    /* with up: VB_SILU, VB_RELU_SQUARED */
    float eps;
    int normed;
    int settled; /* the op before writes neither weights nor norm, which may be read while it still runs */
} vb_bit_linear_args;
vb_status vb_bit_linear(const vb_bit_linear_args *args, vb_stream *stream);

/* The table of each four elements of a column: lut[j][g][byte] is the sum over i < 4 of activations[4 g + i][j] times
 * the weight of the code in bits 2 i of the byte (VB_INT2_ROWS); elements from k on count as 0.
 * Shapes: lut [n][(k + 3) / 4][256]; activations [k][n]. */
vb_status vb_tmac_lut(float *lut, const float *activations, int64_t k, int64_t n, vb_stream *stream);

/* out = (W * scales) h by looking up sums of four products (Wei et al. 2024, "T-MAC"): W[m][k] in VB_INT2_ROWS, h =
 * activations, or where normed each column divided by sqrt(mean of squares + eps), times norm. The elements of a row
 * lie in `groups` equal groups, of a multiple of 4 elements each unless it is one, with a scale each. With lut, a
 * table of vb_tmac_lut, activations are not read and normed is 0. Without it a device may round h: columns to 13 bits
 * and a sign at least, or runs of up to 32 to fewer, within 0.5 % (RMS over many results) as vb_linear. */
typedef struct vb_tmac_matmul_args {
    size_t size;
    float *out;               /* [m][n] */
    const void *weights;      /* [m][(k + 3) / 4] of VB_I8 */
    const float *activations; /* [k][n], or NULL for lut */
    const float *lut;         /* [n][(k + 3) / 4][256], or NULL for activations */
    const float *scales;      /* [m][groups], or NULL for ones */
    const float *norm;        /* [k], or NULL for ones */
    int64_t m, n, k, groups;
    float eps;
    int normed;
    int settled; /* the op before writes neither weights nor norm, which may be read while it still runs */
} vb_tmac_matmul_args;
vb_status vb_tmac_matmul(const vb_tmac_matmul_args *args, vb_stream *stream);

/* ---- mixtures of experts --------------------------------------------------------------------------------------------
 *
 * A router chooses k of the experts for each of n tokens; choice j of token i has the index i * k + j (Shazeer et al.
 * 2017). */

typedef enum vb_gating {
    VB_GATING_SOFTMAX = 0,        /* softmax over all experts (Qwen, DeepSeek-V2) */
    VB_GATING_SOFTMAX_CHOSEN = 1, /* softmax over the k chosen alone (gpt-oss, Granite) */
    VB_GATING_SIGMOID = 2         /* 1 / (1 + exp(-logit)) (DeepSeek-V3, GLM 4.5, Llama 4) */
} vb_gating;

/* The k experts of each row of logits with the greatest score + bias, in descending order, the lowest index first among
 * equals; NaN counts as the greatest. weights are the scores, without the bias; where `normalized`, divided by their
 * sum; times scale. With groups (neighbours, experts / groups each), only experts of the groups_used best groups are
 * chosen: a group's score is the sum of its two best, or the best where group_by_best (DeepSeek-AI 2024). experts <=
 * 1024. */
typedef struct vb_route_args {
    size_t size;
    int32_t *ids;        /* [n][k] */
    float *weights;      /* [n][k] */
    const float *logits; /* [n][experts] */
    const float *bias;   /* [experts], or NULL for none */
    int64_t n, experts, k;
    int64_t groups, groups_used; /* 0: none */
    float scale;
    vb_gating gating;
    int normalized, group_by_best;
} vb_route_args;
vb_status vb_route(const vb_route_args *args, vb_stream *stream);

/* y[i] = x[i] W[ids[i]]^T + bias[ids[i]] for the n * k choices i. A choice's row of x is its token's, or with
 * x_per_choice its own. w is the first expert's matrix as stored, the others follow it without gaps; or all packed as
 * one matrix of experts * w.rows rows, where w.rows is a multiple of 16. Types and accuracy as vb_linear. Only the
 * chosen experts are read. An id outside 0..experts-1 gives a row of NaN (on the CPU the call returns
 * VB_INVALID_ARGUMENT instead). */
typedef struct vb_expert_linear_args {
    size_t size;
    float *y;           /* [n][k][w.rows] */
    const float *x;     /* [n][w.cols], or [n][k][w.cols] where x_per_choice */
    vb_weight w;
    const float *bias;  /* [experts][w.rows], or NULL for none */
    const int32_t *ids; /* [n][k] */
    int64_t n, k, experts;
    int x_per_choice;
} vb_expert_linear_args;
vb_status vb_expert_linear(const vb_expert_linear_args *args, vb_stream *stream);

/* out[i] = add[i] + the sum over j of weights[i][j] * y[i][j]; out may be add.
 * Shapes: out [n][cols]; add [n][cols], or NULL for none; y [n][k][cols]; weights [n][k], or NULL for ones. */
vb_status vb_expert_sum(float *out, const float *add, const float *y, const float *weights, int64_t n, int64_t k,
                        int64_t cols, vb_stream *stream);

/* ---- transformers ------------------------------------------------------------------------------------------------ */

typedef enum vb_rope_mode {
    VB_ROPE_INTERLEAVED = 0, /* pairs (2i, 2i+1), as GGUF `llama` files are permuted for (Su et al. 2021) */
    VB_ROPE_NEOX = 1         /* pairs (i, i + half): GPT-NeoX, Qwen */
} vb_rope_mode;

/* Rotary position embedding of in[batch][heads][seq][dim], in place allowed. Row (b, s) has the position
 * p = positions[b * position_stride + s] (position_stride 0 shares them over the batch; positions NULL means s), and
 * pair i < half is rotated by the angle whose cosine and sine are cos[p * half + i] and sin[p * half + i]. The
 * elements from 2 * half on are copied. Positions outside 0..table_rows-1 give NaN (VB_INVALID_ARGUMENT on the CPU). */
typedef struct vb_rope_args {
    size_t size;
    void *out;                /* [batch][heads][seq][dim] */
    const void *in;           /* [batch][heads][seq][dim] */
    const float *cos, *sin;   /* [table_rows][half] */
    const int32_t *positions; /* [batch : position_stride][seq], or NULL for 0, 1, ... */
    int64_t position_stride;
    int64_t batch, heads, seq, dim, half, table_rows;
    vb_dtype type; /* of in and out: F32, F16, BF16 */
    vb_rope_mode mode;
} vb_rope_args;
vb_status vb_rope(const vb_rope_args *args, vb_stream *stream);

/* A key-value cache is k[sequence][kv_head][capacity][dim] and v likewise, in F32, F16, BF16 or Q8_0 (then dim is a
 * multiple of its 32 elements a block; d = max |x| / 127, q = x / d rounded to nearest, halves away from 0).
 * vb_kv_write stores k_in, v_in[batch][seq][kv_heads][dim] (F32): row (b, s) goes to position positions[b * seq + s] of
 * sequence sequences[b] (NULL: b). Rows whose position is outside 0..capacity-1 are skipped (VB_INVALID_ARGUMENT on the
 * CPU). With `ring` the cache holds the newest tokens: position p lies in slot p modulo capacity, and only negative
 * ones are skipped. The rows of one call must have slots of their own: seq <= capacity. v and v_in NULL: keys alone
 * (latent attention). */
typedef struct vb_kv_write_args {
    size_t size;
    void *k;                  /* [batch][kv_heads][capacity][dim],
                               * or at least [kv_heads][capacity][dim] where sequences */
    void *v;                  /* [batch][kv_heads][capacity][value_dim ?: dim],
                               * or at least [kv_heads][capacity][value_dim ?: dim] where sequences, or NULL */
    const float *k_in;        /* [batch][seq][kv_heads][dim] */
    const float *v_in;        /* [batch][seq][kv_heads][value_dim ?: dim], or NULL */
    const int32_t *positions; /* [batch][seq] */
    const int32_t *sequences; /* [batch], or NULL for 0, 1, ... */
    int64_t batch, seq, kv_heads, dim, capacity;
    vb_dtype type;     /* of the cache: F32, F16, BF16, Q8_0 */
    int64_t value_dim; /* of rows of v and v_in; 0 stands for dim */
    int ring;
} vb_kv_write_args;
vb_status vb_kv_write(const vb_kv_write_args *args, vb_stream *stream);

/* What lies between the products of a layer and its attention, for batch * seq tokens: q = rope(q_in), and rope(k_new)
 * and v_new go to the cache as vb_kv_write stores them. With q_norm and k_norm (both or neither) each head of q_in and
 * k_new is normed by these before. Positions outside the tables or the cache: as vb_rope and vb_kv_write say. q_in may
 * be q; k_new is scratch afterwards.
 * Composed: vb_rms_norm_batched, vb_rope, vb_kv_write. */
typedef struct vb_rope_kv_write_args {
    size_t size;
    float *q;                      /* [batch][seq][heads][dim] */
    void *k, *v;                   /* [batch][kv_heads][capacity][dim] of kv_type, or at least [kv_heads][capacity][dim]
                                    * where sequences */
    float *k_new;                  /* [batch][seq][kv_heads][dim] */
    const float *q_in;             /* [batch][seq][heads][dim] */
    const float *v_new;            /* [batch][seq][kv_heads][dim] */
    const float *q_norm, *k_norm;  /* [dim], or NULL for none */
    const float *cos, *sin;        /* [table_rows][half], as in vb_rope_args */
    const int32_t *positions;      /* [batch][seq] */
    const int32_t *sequences;      /* [batch], or NULL for 0, 1, ... */
    int64_t batch, seq, heads, kv_heads, dim, half, table_rows, capacity;
    float eps;
    vb_dtype kv_type; /* of the cache: F32, F16, BF16, Q8_0 */
    vb_rope_mode mode;
    int ring;         /* of the cache, as in vb_kv_write_args */
    int settled;      /* the op before writes neither positions, sequences nor tables, which may be read while it still
                       * runs */
} vb_rope_kv_write_args;
vb_status vb_rope_kv_write(const vb_rope_kv_write_args *args, vb_stream *stream);

/* out = softmax(scale * q k^T + mask) v, softmax in float32. Query row (b, h, s) lies at
 * q + b * q_batch_stride + h * q_head_stride + s * q_row_stride (elements; out alike), its head shares the key head
 * h / (heads / kv_heads), of sequence sequences[b] (NULL: b) in k, v[sequence][kv_head][kv_capacity][dim].
 * Its position is positions[b * seq + s], or offset + s where positions is NULL. Causal: it sees keys 0..position (and,
 * with window > 0, only the newest `window` of these). Not causal: it sees keys 0..kv_len-1.
 * With a 16-bit cache a device may round queries and softmax weights to the cache's type, with one of Q8_0 to F16; sums
 * are float32. With positions, kv_len is a bound of position + 1 that the host knows (at most kv_capacity), so that a
 * captured graph may be replayed while positions grow below it. On CUDA the time of one token a sequence follows the
 * positions, whatever the bound; with more, a bound far off costs time. dim and value_dim <= 576, heads a multiple of
 * kv_heads.
 *
 * What follows `settled` may be left 0. With value_dim other than dim, v is [sequence][kv_head][kv_capacity][value_dim]
 * and out [batch][seq][heads][value_dim] without gaps; with v NULL the values are the first value_dim elements of the
 * keys' rows (latent attention, DeepSeek-AI 2024). soft_cap c replaces a score s by c * tanh(s / c) before the mask
 * (Gemma 2). sinks are scores of no key, one a head, that take part in the softmax (Xiao et al. 2023; gpt-oss). With
 * chunk c a query at position p sees no key before p - p % c (Llama 4). With ring, the key of position j lies in slot j
 * modulo kv_capacity, as vb_kv_write puts it there, and kv_len may be larger; that takes causal, and window with window
 * + seq - 1 <= kv_capacity, so that no key a row sees is overwritten. */
typedef struct vb_attention_args {
    size_t size;
    void *out;                /* [batch][seq][heads][value_dim ?: dim] */
    const void *q;            /* [batch : q_batch_stride][heads : q_head_stride][seq : q_row_stride][dim] */
    const void *k;            /* [batch][kv_heads][kv_capacity][dim] of kv_type,
                               * or at least [kv_heads][kv_capacity][dim] where sequences */
    const void *v;            /* [batch][kv_heads][kv_capacity][value_dim] of kv_type, or at least
                               * [kv_heads][kv_capacity][value_dim] where sequences, or NULL */
    const int32_t *positions; /* [batch][seq], or NULL for offset, offset + 1, ... */
    const int32_t *sequences; /* [batch], or NULL for 0, 1, ... */
    int64_t batch, seq, heads, kv_heads, dim;
    int64_t q_batch_stride, q_head_stride, q_row_stride;
    int64_t kv_capacity, kv_len, offset, window;
    float scale;
    int causal;
    vb_dtype type;    /* of q and out: F32 (F16, BF16 with kv_type the same) */
    vb_dtype kv_type; /* F32, F16, BF16, Q8_0 (dim a multiple of 32; fastest where capacity is one of 8) */
    int settled;      /* the op before writes neither positions nor sequences, and no keys and values but those at the
                       * positions of these tokens: others may be read while it still runs */
    int64_t value_dim;        /* of v's rows; 0 stands for dim */
    int64_t chunk;            /* 0 for none */
    const float *sinks;       /* [heads], or NULL for none */
    float soft_cap;           /* 0 for none */
    int ring;
} vb_attention_args;
vb_status vb_attention(const vb_attention_args *args, vb_stream *stream);

/* ---- recurrences ------------------------------------------------------------------------------------------------- */

/* A recurrence carries on the state of each sequence. Without positions it does so in place. With positions a sequence
 * has `slots` states, of which the state before position p lies in slot p modulo slots; before position 0 it is zero,
 * whatever lies there. A call reads the state before the first position of its row and writes that after the last,
 * positions following each other: with two slots a token that was computed for nothing is undone by computing another
 * at its position. Sequences with a negative first position are skipped (VB_INVALID_ARGUMENT on the CPU). */

/* out = silu(convolution): out[b][s][c] = silu(sum over j < taps of weight[c][j] * u[s + j]), where u are the taps - 1
 * rows of the sequence's state, then its rows of x, all of channel c. The state then holds the newest taps - 1 of these
 * rows. taps <= 8. */
typedef struct vb_causal_conv_args {
    size_t size;
    float *out;               /* [batch][seq][channels] */
    float *state; /* [batch][slots ?: 1][taps - 1][channels], or at least [slots ?: 1][taps - 1][channels] where
                               * sequences */
    const float *x;           /* [batch][seq][channels] */
    const float *weight;      /* [channels][taps] */
    const int32_t *sequences; /* [batch], or NULL for 0, 1, ...; no sequence twice */
    int64_t batch, seq, channels, taps;
    const int32_t *positions; /* [batch][seq], or NULL for none */
    int64_t slots;            /* of a sequence; 0 stands for 1, other numbers take positions */
} vb_causal_conv_args;
vb_status vb_causal_conv(const vb_causal_conv_args *args, vb_stream *stream);

/* The gated delta rule (Yang, Kautz & Hatamizadeh 2024, "Gated Delta Networks"). Value head j of a token, with the
 * state S[key_dim][value_dim] that the tokens before it left, computes
 *     S = exp(a[j] * ln(1 + exp(alpha + dt[j]))) S
 *     S = S + k (sigmoid(beta) (v - S^T k))^T
 *     out = S^T q / sqrt(key_dim)
 * with q and k divided by sqrt(sum of squares + eps). A row of qkv holds the q of all key heads, their k, then v. Value
 * head j reads key head j % key_heads where `interleaved`, else j / (value_heads / key_heads). key_dim <= 256. */
typedef struct vb_gated_delta_args {
    size_t size;
    float *out;                /* [batch][seq][value_heads][value_dim] */
    float *state;              /* [batch][slots ?: 1][value_heads][key_dim][value_dim], or at least
                                * [slots ?: 1][value_heads][key_dim][value_dim] where sequences */
    const float *qkv;          /* [batch][seq][2 * key_heads * key_dim + value_heads * value_dim] */
    const float *alpha, *beta; /* [batch][seq][value_heads] */
    const float *a, *dt;       /* [value_heads] */
    const int32_t *sequences;  /* [batch], or NULL for 0, 1, ...; no sequence twice */
    int64_t batch, seq, key_heads, value_heads, key_dim, value_dim;
    float eps;
    int interleaved;
    const int32_t *positions;  /* [batch][seq], or NULL for none */
    int64_t slots;             /* of a sequence; 0 stands for 1, other numbers take positions */
} vb_gated_delta_args;
vb_status vb_gated_delta(const vb_gated_delta_args *args, vb_stream *stream);

/* ---- fused: the steps of a transformer's layer between its attention ------------------------------------------------
 *
 * These make a layer in three operations: vb_norm_qkv, vb_attention_linear_add (the output) and vb_feed_forward, which
 * are vb_attention and vb_linear_add, vb_norm_swiglu and vb_linear_add (down). Each equals the operations named in its
 * formula, to the accuracy of vb_linear. A device runs it as one kernel where it has one (CUDA: packed weights; one
 * that prepares x goes before where n > 4; two for vb_attention_linear_add and vb_feed_forward), else as those
 * operations, for which the caller provides memory: `normed`, `product` and the like, whose contents are undefined
 * afterwards.
 *
 * Where next_norm is the norm of the operation that reads a result next, with the same memory `normed`, a device may
 * leave there what that one multiplies: *next_prepared becomes 1 if it did, else 0, and goes to that operation as
 * `prepared`. Nothing else may have used `normed` since. For one row and an adapter that may be the products of the
 * row with the next operation's v, which next_q_v and the like name, in memory of the stream's own: no other operation
 * may have been enqueued since.
 *
 * A low-rank adapter (vb_fused_update) may change each product: where its v and u are not NULL, x W^T becomes
 *     x W^T + ((x v^T) * codes) u^T
 * before anything else happens to it, with v [ranks][W.cols] and u [W.rows][ranks] of F16, and a row of codes for each
 * token, or one for all (codes_stride 0). One kernel or two where a device has such (CUDA, packed weights: one token,
 * with up to 32 ranks, a multiple of 8, on Hopper; 17 tokens and more on Hopper), else vb_fused_update behind the
 * product. */

/* y = rms_norm(x, norm, eps) W^T + bias. Composed: vb_rms_norm_batched, vb_linear.
 * Shapes: y [n][w->rows]; x, normed [n][w->cols]; norm [w->cols], or NULL for ones; bias [w->rows], or NULL for
 * none. */
vb_status vb_norm_linear(float *y, const float *x, const float *norm, float eps, const vb_weight *w, const float *bias,
                         float *normed, int64_t n, vb_stream *stream);

/* out = swiglu(h Gate^T, h Up^T) with h = rms_norm(x, norm, eps); gate and up of one shape.
 * Composed: vb_rms_norm_batched, vb_linear, vb_swiglu.
 * Shapes: out, product [n][gate->rows]; x, normed [n][gate->cols]; norm [gate->cols], or NULL for ones. */
vb_status vb_norm_swiglu(float *out, const float *x, const float *norm, float eps, const vb_weight *gate,
                         const vb_weight *up, float *normed, float *product, int64_t n, vb_stream *stream);

/* sum = a + x W^T + bias: the product that ends a block and the residual connection. sum may be a.
 * Composed: vb_linear, vb_add. Shapes: sum, a, product [n][w->rows]; x [n][w->cols]; bias [w->rows], or NULL for
 * none. */
vb_status vb_linear_add(float *sum, const float *a, const float *x, const vb_weight *w, const float *bias,
                        float *product, int64_t n, vb_stream *stream);

/* sum = x + swiglu(h gate^T, h up^T) down^T with h = rms_norm(x, norm, eps): the block of a layer after attention, with
 * its residual connection. gate and up are of one shape, and down of that shape transposed. sum may be x.
 * Composed: vb_norm_swiglu, vb_linear_add. */
typedef struct vb_feed_forward_args {
    size_t size;
    float *sum;              /* [n][gate.cols] */
    const float *x;          /* [n][gate.cols], or NULL where prepared: sum is then without it, and next_norm promises
                              * what it does without a in vb_attention_linear_add */
    const float *norm;       /* [gate.cols], or NULL for ones */
    vb_weight gate, up, down;
    float *normed;           /* [n][gate.cols] */
    float *gated, *product;  /* [n][gate.rows] */
    int64_t n;
    float eps;
    const float *next_norm;  /* [gate.cols], that of vb_norm_qkv, or NULL for none */
    int *next_prepared;      /* set by the operation; NULL for nobody who asks */
    int prepared;            /* by vb_attention_linear_add */
    const void *gate_v, *up_v;  /* [ranks][gate.cols] of VB_F16, or NULL for none */
    const void *gate_u, *up_u;  /* [gate.rows][ranks] of VB_F16, or NULL for none */
    const void *down_v;         /* [ranks][gate.rows] of VB_F16, or NULL for none */
    const void *down_u;         /* [gate.cols][ranks] of VB_F16, or NULL for none */
    const float *codes;         /* [n : codes_stride][ranks], or NULL for ones */
    int64_t codes_stride, ranks;
    const void *next_q_v, *next_k_v, *next_v_v; /* [ranks][gate.cols] of VB_F16, or NULL for none */
} vb_feed_forward_args;
vb_status vb_feed_forward(const vb_feed_forward_args *args, vb_stream *stream);

/* The block of a layer with experts: with f(e) = activation(x gate[e]^T + gate_bias[e], x up[e]^T + up_bias[e]),
 *     sum = add + the sum over j of weights[j] * (f(ids[j]) down[ids[j]]^T + down_bias[ids[j]])
 * for each of n tokens. gate and up are of one shape, down of that shape transposed; the experts' matrices lie as those
 * of vb_expert_linear, whose rule for ids counts. sum may be add. Composed: vb_expert_linear, vb_glu, vb_expert_sum. */
typedef struct vb_expert_feed_forward_args {
    size_t size;
    float *sum;               /* [n][gate.cols] */
    const float *add;         /* [n][gate.cols], or NULL for none */
    const float *x;           /* [n][gate.cols] */
    vb_weight gate, up, down; /* of the first expert */
    const float *gate_bias;   /* [experts][gate.rows], or NULL for none */
    const float *up_bias;     /* [experts][gate.rows], or NULL for none */
    const float *down_bias;   /* [experts][gate.cols], or NULL for none */
    const int32_t *ids;       /* [n][k] */
    const float *weights;     /* [n][k], or NULL for ones */
    float *gated, *product;   /* [n][k][gate.rows] */
    float *chosen;            /* [n][k][gate.cols] */
    int64_t n, k, experts;
    vb_activation activation;
    float alpha, limit;       /* as vb_glu */
} vb_expert_feed_forward_args;
vb_status vb_expert_feed_forward(const vb_expert_feed_forward_args *args, vb_stream *stream);

/* Which experts n tokens have: normed = rms_norm(x, norm, eps), logits = normed Router^T + router_bias, and vb_route of
 * these logits, whose fields have the same names. logits is memory for this operation alone, undefined afterwards.
 * Composed: vb_rms_norm_batched, vb_linear, vb_route. */
typedef struct vb_norm_route_args {
    size_t size;
    int32_t *ids;             /* [n][k] */
    float *weights;           /* [n][k] */
    float *normed;            /* [n][router.cols] */
    float *logits;            /* [n][router.rows] */
    const float *x;           /* [n][router.cols] */
    const float *norm;        /* [router.cols], or NULL for ones */
    vb_weight router;         /* a row for each expert */
    const float *router_bias; /* [router.rows], or NULL for none */
    const float *bias;        /* [router.rows], or NULL for none */
    int64_t n, k;
    int64_t groups, groups_used; /* 0: none */
    float eps, scale;
    vb_gating gating;
    int normalized, group_by_best;
} vb_norm_route_args;
vb_status vb_norm_route(const vb_norm_route_args *args, vb_stream *stream);

/* What attention reads, for batch * seq = n tokens: with h = rms_norm(x, norm, eps), in [n][wq.cols],
 *     q = rope(h Wq^T + bq), k = rope(h Wk^T + bk), v = h Wv^T + bv,
 * q to q[n][heads][dim], k and v to the cache as vb_kv_write stores them. The rows of wq are heads * dim, those of wk
 * and wv kv_heads * dim. With q_norm and k_norm (both or neither), each head of q and k is normed by these before rope
 * (Qwen3). Positions outside the tables or the cache: as vb_rope and vb_kv_write say.
 * Composed: vb_rms_norm_batched, vb_linear, vb_rope_kv_write. */
typedef struct vb_norm_qkv_args {
    size_t size;
    float *q;                      /* [batch][seq][heads][dim] */
    void *k, *v;                   /* [batch][kv_heads][capacity][dim] of kv_type, or at least [kv_heads][capacity][dim]
                                    * where sequences */
    const float *x;                /* [batch][seq][wq.cols] */
    const float *norm;             /* [wq.cols], or NULL for ones */
    vb_weight wq, wk, wv;
    const float *bq;               /* [wq.rows], or NULL for none */
    const float *bk;               /* [wk.rows], or NULL for none */
    const float *bv;               /* [wv.rows], or NULL for none */
    const float *q_norm, *k_norm;  /* [dim], or NULL for none */
    const float *cos, *sin;        /* [table_rows][half], as in vb_rope_args */
    const int32_t *positions;      /* [batch][seq] */
    const int32_t *sequences;      /* [batch], or NULL for 0, 1, ... */
    float *normed;                 /* [batch][seq][wq.cols] */
    float *k_new, *v_new;          /* [batch][seq][kv_heads][dim] */
    int64_t batch, seq, heads, kv_heads, dim, half, table_rows, capacity;
    float eps;
    vb_dtype kv_type; /* of the cache: F32, F16, BF16, Q8_0 */
    vb_rope_mode mode;
    int prepared;     /* by vb_feed_forward */
    int ring;         /* of the cache, as in vb_kv_write_args */
    const void *q_v, *k_v, *v_v;   /* [ranks][wq.cols] of VB_F16, or NULL for none */
    const void *q_u;               /* [wq.rows][ranks] of VB_F16, or NULL for none */
    const void *k_u, *v_u;         /* [wk.rows][ranks] of VB_F16, or NULL for none */
    const float *codes;            /* [batch * seq : codes_stride][ranks], or NULL for ones */
    int64_t codes_stride, ranks;
} vb_norm_qkv_args;
vb_status vb_norm_qkv(const vb_norm_qkv_args *args, vb_stream *stream);

/* What an adapter adds to a product of n rows with a matrix; v and u NULL for nothing. */
typedef struct vb_update_args {
    size_t size;
    const void *v;      /* [ranks][cols] of VB_F16, or NULL for none */
    const void *u;      /* [rows][ranks] of VB_F16, or NULL for none */
    const float *codes; /* [n : codes_stride][ranks], or NULL for ones */
    int64_t n, rows, cols, ranks, codes_stride;
    const void *next_gate_v, *next_up_v; /* [ranks][rows] of VB_F16, or NULL for none */
} vb_update_args;

/* sum = a + attention W^T + bias for the batch * seq tokens of `attention`: what vb_attention would write to
 * attention->out, and vb_linear_add with it as x, whose product `update` changes (NULL for nothing). q is F32
 * [batch][seq][heads][dim] without gaps, out alike with rows of value_dim, and w->cols is heads * value_dim.
 * attention->out is memory for this operation alone, undefined afterwards: a device may keep the attended rows there in
 * another form (CUDA, Hopper, more than 16 rows over an F16 cache: in F16, which the product reads as it is). sum may
 * be a. next_norm is that of vb_feed_forward; without it normed and next_prepared may be NULL. Without a, next_norm
 * promises that the next vb_all_reduce or vb_all_reduce_rows of the stream's communicator takes sum, rounded, and that
 * nothing else reads it: a device may send it to the other ranks in place of writing it. *next_prepared then says that
 * vb_all_reduce_rows may prepare normed.
 * Composed: vb_attention, vb_linear_add. Shapes: sum, product [attention->batch][attention->seq][w->rows]; a, normed
 * [attention->batch][attention->seq][w->rows], or NULL; bias, next_norm [w->rows], or NULL for none. */
vb_status vb_attention_linear_add(float *sum, const float *a, const vb_attention_args *attention, const vb_weight *w,
                                  const float *bias, const vb_update_args *update, float *product,
                                  const float *next_norm, float *normed, int *next_prepared, vb_stream *stream);

/* What each rank has a part of: the output of attention, or of the feed-forward block. */
typedef enum vb_half_layer { VB_AFTER_ATTENTION, VB_AFTER_FEED_FORWARD } vb_half_layer;

/* What a sum of rows is added to, and the norm with which the operation that follows on each rank reads the result. */
typedef struct vb_sum_of_rows {
    size_t size;
    const float *add[VB_MAX_RANKS];  /* [n][cols] */
    const float *norm[VB_MAX_RANKS]; /* [cols], or NULL for none: then nothing is prepared */
    float *normed[VB_MAX_RANKS];     /* [n][cols], the memory that both operations have as `normed` */
    int64_t n, cols;
    vb_half_layer from;
    int prepared;   /* set: 1 if each rank has left in normed what the next operation multiplies, else 0 */
    int parted;     /* 1 if out may have columns of each rank alone; set: 1 if it has, and then prepared is 1 */
    int add_parted; /* 1 if add has the columns that the sum before has left to each rank */
} vb_sum_of_rows;

/* vb_all_reduce, rounded, of what vb_attention_linear_add without `a`, or vb_feed_forward without x, has left on each
 * rank. rows->prepared goes to the operation that follows as its `prepared`, if nothing used normed since. Only norms
 * and the next sum may read parted rows. This next sum has add_parted, the same communicator, n and cols, and is parted
 * again or, without `parted`, leaves all columns to every rank and prepares nothing. VB_INVALID_ARGUMENT where one of
 * the ranks promised another sum. out[r], in[r]: [n][cols]. */
vb_status vb_all_reduce_rows(float *const *out, const float *const *in, vb_sum_of_rows *rows,
                             vb_communicator *communicator);

/* What the last product of a half of a layer multiplies on each rank, and what the sum is added to. */
typedef struct vb_sum_of_products {
    size_t size;
    const float *add[VB_MAX_RANKS];  /* [n][w->rows] */
    const float *x[VB_MAX_RANKS];    /* [n][w->cols] */
    const float *bias[VB_MAX_RANKS]; /* [w->rows], or NULL for none */
    vb_weight w[VB_MAX_RANKS];       /* of as many rows */
    int64_t n;
} vb_sum_of_products;

/* out[r] = x[0] w[0]^T + bias[0] + x[1] w[1]^T + bias[1] + ..., in the order of ranks, + add[r]: vb_linear of each rank
 * into product[r], and vb_all_reduce, rounded. GPUs take one kernel a rank where n is 1, whose blocks send each result
 * as they have it. Ranks of other processes have their own w. out[r], product[r]: [n][w->rows]. */
vb_status vb_linear_all_reduce(float *const *out, float *const *product, const vb_sum_of_products *sum,
                               vb_communicator *communicator);

/* ---- PTX without nvcc -----------------------------------------------------------------------------------------------
 *
 * Writes a kernel as PTX, for programs that load kernels through the driver's API (cuModuleLoadData) and have no
 * toolkit. The texts are compiled by the library itself (csrc/ptx.h, docs/ptx.md). Matrices are row-major and without
 * gaps. */

typedef enum vb_ptx_kind {
    VB_PTX_GEMM_NAIVE = 0,       /* (a_ptr, b_ptr, c_ptr, m, n, k): c[m][n] = a[m][k] b[k][n] in F32 */
    VB_PTX_GEMM_TILED = 1,       /* the same through tiles in shared memory */
    VB_PTX_GEMM_TENSOR_CORE = 2, /* the same for a and b of F16, c of F32, summed in float32 */
    VB_PTX_SOFTMAX = 3,          /* (input, output, length): a block a row of F32 */
    VB_PTX_LAYER_NORM = 4,       /* (input, output, gamma, beta, hidden, batch): a block a row of F32. Of RMSNorm
                                    (input, output, gamma) */
    VB_PTX_ATTENTION = 5,        /* (q, k, v, o_ptr, seq_len, head_dim, num_heads): [heads][seq][dim] of F32 */
    VB_PTX_QUANTIZED_GEMM = 6,   /* (a_ptr, b_quant_ptr, c_ptr, m, n, k): c[m][n] = a[m][k] b^T, b of n rows */
    VB_PTX_GEMV = 7,             /* (y_ptr, w_ptr, x_ptr, k_dim, n_dim): y[n] = x[k] w[k][n] of F32, or w of n rows of
                                    k quantized weights */
    VB_PTX_DEQUANTIZE = 8,       /* (out_ptr, w_ptr, k_dim, n_dim): out[n][k] = w of n rows */
    VB_PTX_QUANTIZE = 9,         /* (out_ptr, in_ptr, n_dim): blocks of Q8_0; the last is filled up with 0 */
    VB_PTX_DECODE_ATTENTION = 10, /* (q_ptr, k_ptr, v_ptr, out_ptr, seq_len): q and out [heads][dim], caches
                                     [kv_heads][capacity][dim] with seq_len keys */
    VB_PTX_ADD_RMS_NORM = 11,    /* (residual_ptr, input_ptr, output_ptr, gamma_ptr): the norm of rows of a sum */
    VB_PTX_ROPE = 12,            /* (x_ptr, out_ptr, pos): [heads][dim] at one position */
    VB_PTX_SILU = 13,            /* (input_ptr, output_ptr, n) */
    VB_PTX_GELU = 14,            /* the same, by tanh */
    VB_PTX_MUL = 15,             /* (input1_ptr, input2_ptr, output_ptr, n) */
    VB_PTX_ADD = 16,             /* the same */
    VB_PTX_SWIGLU = 17,          /* (gate_ptr, up_ptr, output_ptr, n): SiLU(gate) up */
    VB_PTX_BIAS = 18,            /* (output, bias, n): output[i] = activation(output[i] + bias[i % dim]) */
    VB_PTX_CACHE_WRITE = 19,     /* (src_ptr, cache_ptr, pos, head_dim, max_len): [heads][head_dim] into the cache
                                    [heads][max_len][head_dim]; nothing from max_len on */
    VB_PTX_ARGMAX_BLOCKS = 20,   /* (input_ptr, block_max_vals, block_max_idxs, length): of each 1,024 numbers the
                                    greatest and its index; of equal ones the first, NaN above all */
    VB_PTX_ARGMAX_FINAL = 21     /* (block_max_vals, block_max_idxs, output_idx, num_blocks): the index of the greatest
                                    number */
} vb_ptx_kind;

/* A kernel for these sizes; pointers are u64, sizes u32, all else F32. All zero but for kind and sizes are the usual
 * choices. */
typedef struct vb_ptx_kernel {
    size_t size;
    vb_ptx_kind kind;
    int64_t m, n, k;          /* of products, k in whole blocks of weights; DEQUANTIZE: n rows of k; n elements */
    int64_t rows, dim;        /* softmax, norms: rows of dim elements; heads of dim elements, at most 256; of a bias */
    int64_t seq, heads;       /* ATTENTION; the others' heads */
    int tile;                 /* GEMM_TILED: 8, 16 or 32; 0 for 16 */
    int target;               /* compute capability, 90 for sm_90; 0 for 70 */
    float epsilon;            /* norms: added to the variance */
    int rms;                  /* LAYER_NORM: RMSNorm, which subtracts no mean and has no beta */
    int plain;                /* norms: without gamma and beta, whose pointers are not read */
    int causal;               /* ATTENTION: a query sees the keys up to its own position */
    vb_dtype weight;          /* of products, DEQUANTIZE: Q4_K to Q6_K, Q4_0, Q4_1, Q5_0 or Q8_0. F32, which is 0, is
                                 Q4_K but for GEMV */
    int64_t kv_heads;         /* DECODE_ATTENTION: a divisor of heads; 0 for heads */
    int64_t capacity;         /* DECODE_ATTENTION: keys that a head's cache has room for */
    float theta;              /* ROPE: its base; 0 for 10000 */
    int neox;                 /* ROPE: element i is paired with i + dim / 2, not with its neighbour */
    int activation;           /* BIAS: 0 for none, 1 for ReLU, 2 for x sigmoid(1.702 x) */
    const char *entry;        /* the entry's name; NULL for the kind's own */
} vb_ptx_kernel;

typedef struct vb_ptx_launch_size {
    int64_t grid_x, grid_y;   /* blocks */
    int threads;              /* of a block, in x; shared memory is static */
} vb_ptx_launch_size;

/* What is wrong with the parameters, a static text that names them; NULL if nothing is. */
const char *vb_ptx_invalid(const vb_ptx_kernel *kernel);
/* The name of the entry: kernel->entry, or static. */
const char *vb_ptx_name(const vb_ptx_kernel *kernel);
/* How the kernel is launched. VB_INVALID_ARGUMENT where vb_ptx_invalid names a reason. */
vb_status vb_ptx_launch(vb_ptx_launch_size *size, const vb_ptx_kernel *kernel);
/* *ptx = the text, ending in 0; the caller gives it to vb_ptx_free. VB_INVALID_ARGUMENT as before. */
vb_status vb_ptx_emit(char **ptx, const vb_ptx_kernel *kernel);
void vb_ptx_free(char *ptx);

/* ---- calls by number ------------------------------------------------------------------------------------------------
 *
 * For bindings that call C without a compiler of C, where each kind of operand would go to a register of its own
 * kind. */

/* Calls an operation with all that it needs in a struct, as csrc/calls.c (generated from this header) declares it: the
 * operation's number in 64 bits, the operands of the declaration above in its order, structs by value, then what the
 * operation sets, then the stream. VB_INVALID_ARGUMENT for a number without an operation. */
vb_status vb_call(void *frame);

/* A number that changes with every declaration of this header: a binding that knows another one must not call. */
int64_t vb_call_abi(void);

#ifdef __GNUC__
#pragma GCC visibility pop
#endif
#ifdef __cplusplus
}
#endif
#endif
