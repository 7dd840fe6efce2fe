// runtime.cu: devices, memory, streams, events and graphs of the CUDA backend, and its table for csrc/ops.c.
//
// CUDA's current device belongs to a thread and goroutines change threads, so each call sets it anew (30 ns):
// make_current. The runtime is linked statically and finds the driver by itself: a machine without one gives
// VB_NO_DEVICE, no link error.

#include "driver.h"
#include "library.h"
#include "runtime/handles.cuh"
#include "trace.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <new>
#include <utility>

#ifndef VB_CUDA_ARCHS
#define VB_CUDA_ARCHS unknown
#endif
#define VB_STRING_OF(x) #x
#define VB_STRING(x) VB_STRING_OF(x)

namespace vb {

constexpr int64_t zero_bytes =
    workspace_counters * (int64_t)sizeof(unsigned) + workspace_slots * (int64_t)sizeof(uint4);
constexpr int64_t scratch_step = 64 << 10;

const vb_gpu &gpu_of(vb_device *device) { return device_of(device)->gpu; }
int64_t shared_of_multiprocessor(vb_stream *stream) {
    return (int64_t)device_of(stream->device)->properties.sharedMemPerMultiprocessor;
}
int64_t l2_bytes(vb_stream *stream) { return device_of(stream->device)->properties.l2CacheSize; }
int compiled_for(vb_stream *stream) { return device_of(stream->device)->ptx; }
unsigned *counters(vb_stream *stream) { return stream_of(stream)->counters; }

EarlyResults *early_results(vb_stream *stream) {
    Stream *const s = stream_of(stream);
    cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
    const bool free = s->early.done && cudaStreamIsCapturing(s->handle, &capture) == cudaSuccess &&
                      capture == cudaStreamCaptureStatusNone;
    return free ? &s->early : nullptr;
}

SentResults &sent_results(vb_stream *stream) { return stream_of(stream)->sent; }

void note_driver_error(vb_device *device, int error) {
    if (device) device_of(device)->driver_error = error;
}

vb_status status_of(cudaError_t error, vb_device *device) {
    if (error == cudaSuccess) return VB_OK;
    note_driver_error(device, (int)error);
    cudaGetLastError(); // so that nobody else's check finds it
    switch (error) {
    case cudaErrorMemoryAllocation: return VB_OUT_OF_MEMORY;
    case cudaErrorNoKernelImageForDevice:
    case cudaErrorInvalidKernelImage:
    case cudaErrorInvalidDeviceFunction:
#if CUDART_VERSION >= 11000
    case cudaErrorUnsupportedPtxVersion:
#endif
        return VB_NO_KERNEL_IMAGE;
    case cudaErrorNoDevice:
    case cudaErrorInvalidDevice:
    case cudaErrorInsufficientDriver:
    case cudaErrorInitializationError:
        return VB_NO_DEVICE;
    // After these the context answers nothing but the same error.
    case cudaErrorIllegalAddress:
    case cudaErrorMisalignedAddress:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorIllegalInstruction:
    case cudaErrorHardwareStackError:
    case cudaErrorLaunchFailure:
    case cudaErrorLaunchTimeout:
    case cudaErrorAssert:
    case cudaErrorECCUncorrectable:
    case cudaErrorNvlinkUncorrectable:
    case cudaErrorCudartUnloading:
        return VB_DEVICE_LOST;
    case cudaErrorNotSupported: return VB_UNSUPPORTED;
    default: return VB_INTERNAL;
    }
}

vb_status make_current(vb_device *device) { return status_of(cudaSetDevice(device_of(device)->index), device); }

static void release(vb_device *device) {
    if (--device_of(device)->references == 0) delete device_of(device);
}

const bool tracing_kernels = vb_trace_asks("kernels");

void trace_kernel(const char *op, const char *kernel, vb_dtype type, const char *names, const int64_t *sizes) {
    char line[256];
    int used = snprintf(line, sizeof line, "%s %s", op, vb_dtype_string(type));
    for (; *names && used < (int)sizeof line; sizes++) {
        const int length = (int)strcspn(names, " ");
        used += snprintf(line + used, sizeof line - used, " %.*s=%lld", length, names, (long long)*sizes);
        names += length;
        names += strspn(names, " ");
    }
    fprintf(stderr, "vibrant: %s: %s\n", line, kernel); // one write: lines of several streams do not mix
}

// Evaluates to the status of a CUDA call.
#define VB_CUDA(call, device) vb::status_of((call), (device))

// Sets the attributes for a kernel's launches, once a kernel and device. The limit of dynamic shared memory only grows.
// Else threads that launch one kernel with different sizes would undo each other's limits.
// Kernels that overlap ask for one split of L1 and shared memory. An SM changes its split only when it is idle, which
// keeps neighbours in a stream apart.
static vb_status prepare_kernel(const void *kernel, int64_t bytes, bool overlapped, vb_device *device) {
    struct Set {
        int64_t bytes;
        bool carveout;
    };
    static std::mutex mutex;
    static std::map<std::pair<const void *, int>, Set> prepared; // by kernel and index of the device
    const std::lock_guard<std::mutex> lock(mutex);
    Set &set = prepared[{kernel, device_of(device)->index}];
    if (bytes > set.bytes) {
        VB_TRY(VB_CUDA(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes), device));
        set.bytes = bytes;
    }
    if (overlapped && !set.carveout) {
        VB_TRY(VB_CUDA(cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout,
                                            cudaSharedmemCarveoutMaxShared),
                       device));
        set.carveout = true;
    }
    return VB_OK;
}

vb_status launch_kernel(vb_stream *stream, const void *kernel, dim3 grid, dim3 block, int64_t shared_bytes, int cluster,
                        int flags, void **parameters) {
    stream_of(stream)->early.enqueued++;
    VB_TRY(make_current(stream->device));
    // 48 KiB of static and dynamic shared memory need no asking. Kernels with dynamic shared memory have 16 KiB of
    // static at most.
    const bool overlapped = flags & LAUNCH_OVERLAPPED && capability(stream) >= 90;
    if (shared_bytes > 32 << 10 || overlapped)
        VB_TRY(prepare_kernel(kernel, shared_bytes > 32 << 10 ? shared_bytes : 0,
                              overlapped && !(flags & LAUNCH_CACHED), stream->device));
    cudaStream_t handle = stream_of(stream)->handle;
#if CUDART_VERSION >= 12030
    if (capability(stream) >= 90 && (cluster > 1 || flags != LAUNCH_PLAIN)) {
        if (cluster > 8)
            VB_TRY(VB_CUDA(cudaFuncSetAttribute(kernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1),
                           stream->device));
        cudaLaunchAttribute attributes[3];
        cudaLaunchConfig_t config = {};
        config.gridDim = grid;
        config.blockDim = block;
        config.dynamicSmemBytes = (size_t)shared_bytes;
        config.stream = handle;
        config.attrs = attributes;
        if (flags & LAUNCH_OVERLAPPED) {
            attributes[config.numAttrs].id = cudaLaunchAttributeProgrammaticStreamSerialization;
            attributes[config.numAttrs++].val.programmaticStreamSerializationAllowed = 1;
        }
        if (cluster > 1) {
            attributes[config.numAttrs].id = cudaLaunchAttributeClusterDimension;
            attributes[config.numAttrs].val.clusterDim.x = (unsigned)cluster;
            attributes[config.numAttrs].val.clusterDim.y = 1;
            attributes[config.numAttrs++].val.clusterDim.z = 1;
            if (flags & LAUNCH_BALANCED) {
                attributes[config.numAttrs].id = cudaLaunchAttributeClusterSchedulingPolicyPreference;
                attributes[config.numAttrs++].val.clusterSchedulingPolicyPreference =
                    cudaClusterSchedulingPolicyLoadBalancing;
            }
        }
        return VB_CUDA(cudaLaunchKernelExC(&config, kernel, parameters), stream->device);
    }
#endif
    (void)flags;
    if (cluster > 1) return VB_INTERNAL; // choosers name clusters for 9.0 alone
    return VB_CUDA(cudaLaunchKernel(kernel, grid, block, parameters, (size_t)shared_bytes, handle), stream->device);
}

vb_status workspace(void **memory, int64_t bytes, vb_stream *stream) {
    Stream *s = stream_of(stream);
    *memory = nullptr;
    if (bytes > s->scratch_bytes) {
        // Growing frees the old memory, which waits for the device. So the size grows by an eighth at least.
        const int64_t wanted = larger(bytes, s->scratch_bytes + s->scratch_bytes / 8);
        const int64_t size = ceil_div(wanted, scratch_step) * scratch_step;
        void *grown = nullptr;
        VB_TRY(s->memory.alloc(&grown, size, s->memory.context));
        if (s->scratch) s->memory.free(s->scratch, s->memory.context);
        s->scratch = (char *)grown;
        s->scratch_bytes = size;
    }
    *memory = s->scratch;
    return VB_OK;
}

// The memory of streams that were given no allocator. Outgrown memory stays until the end, for captured graphs may use
// it.
static vb_status own_alloc(void **memory, int64_t bytes, void *stream) {
    vb_device *device = static_cast<Stream *>(stream)->device;
    *memory = nullptr;
    VB_TRY(make_current(device));
    return VB_CUDA(cudaMalloc(memory, (size_t)bytes), device);
}
static void own_free(void *memory, void *stream) { static_cast<Stream *>(stream)->outgrown.push_back(memory); }

float *left_sums(vb_stream *stream) {
    Stream *s = stream_of(stream);
    void *left = nullptr;
    if (!s->left && s->memory.alloc(&left, workspace_left * (int64_t)sizeof(float), s->memory.context) == VB_OK)
        s->left = (float *)left;
    return s->left;
}

// Gives back the memory of a stream whose work has finished.
static void dismantle(Stream *s) {
    if (s->scratch) s->memory.free(s->scratch, s->memory.context);
    if (s->left) s->memory.free(s->left, s->memory.context);
    if (s->counters) s->memory.free(s->counters, s->memory.context);
    if (make_current(s->device) == VB_OK) {
        if (s->handle) cudaStreamDestroy(s->handle);
        for (void *memory : s->outgrown) cudaFree(memory);
        cudaGetLastError();
    }
    delete s;
}

// Only asks whether this build has machine code (or PTX) for the device; never runs.
static __global__ void probe_kernel() {}

static vb_status device_count(int *count) {
    *count = 0;
    const cudaError_t error = cudaGetDeviceCount(count);
    vb_trace_phase("GPUs counted");
    if (error != cudaSuccess) {
        *count = 0;
        cudaGetLastError();
        return VB_NO_DEVICE;
    }
    return *count > 0 ? VB_OK : VB_NO_DEVICE;
}

// Makes a GPU look as VIBRANT_CUDA_CAPABILITY asks: 86 stands for capability 8.6.
static vb_status limit_capability(cudaDeviceProp *card) {
    const char *const wanted = getenv("VIBRANT_CUDA_CAPABILITY");
    if (!wanted || !*wanted) return VB_OK;
    char *end;
    const long capability = strtol(wanted, &end, 10);
    if (*end || capability < 53 || capability > card->major * 10 + card->minor) return VB_INVALID_ENVIRONMENT;
    card->major = (int)capability / 10;
    card->minor = (int)capability % 10;
    card->sharedMemPerBlockOptin = smaller(card->sharedMemPerBlockOptin, (size_t)vb_shared_bytes_of((int)capability));
    return VB_OK;
}

// The GPU as choosers see it. Kernels are fenced by the architecture that they were compiled for, be it by the driver.
static vb_gpu describe_gpu(const cudaDeviceProp &card, int compiled_for) {
#if CUDART_VERSION >= 12030
    constexpr int newest = INT32_MAX;
#else
    constexpr int newest = 89; // launches in clusters, and TMA of Hopper's kernels, came with toolkit 12.3
#endif
    const int capability = smaller(card.major * 10 + card.minor, smaller(compiled_for, newest));
    return {capability, card.multiProcessorCount, (int64_t)card.sharedMemPerBlockOptin,
            newest > 90 && compiled_for == 90};
}

// Whether the process has opened more than one GPU: else a copy need not ask which GPU it reads.
static std::atomic<bool> several_opened;

static void note_opened(int index) {
    static std::atomic<int> first{-1};
    int opened = -1;
    if (!first.compare_exchange_strong(opened, index) && opened != index) several_opened = true;
}

static vb_status device_open(vb_device **out, int index, const vb_device_options *) {
    *out = nullptr;
    int count;
    VB_TRY(device_count(&count));
    if (index < 0 || index >= count) return VB_NO_DEVICE;
    Device *device = new (std::nothrow) Device();
    if (!device) return VB_OUT_OF_MEMORY;
    device->backend = &vb_cuda_backend;
    device->index = index;
    device->references = 1;
    vb_status status = VB_CUDA(cudaSetDevice(index), device);
    vb_trace_phase("context made");
    if (status == VB_OK) status = VB_CUDA(cudaGetDeviceProperties(&device->properties, index), device);
    vb_trace_phase("properties read");
    if (status == VB_OK) status = limit_capability(&device->properties);
    cudaFuncAttributes attributes = {};
    if (status == VB_OK) status = VB_CUDA(cudaFuncGetAttributes(&attributes, (const void *)probe_kernel), device);
    vb_trace_phase("first kernel loaded");
    if (status == VB_OK) device->gpu = describe_gpu(device->properties, attributes.ptxVersion);
    // Code for Hopper leaves out the kernels that choosers never take there.
    if (status == VB_OK && device->gpu.hopper && device->gpu.capability < 90) status = VB_INVALID_ENVIRONMENT;
    if (status != VB_OK) {
        delete device;
        return status;
    }
    device->binary = attributes.binaryVersion;
    device->ptx = attributes.ptxVersion;
    note_opened(index);
    *out = device;
    return VB_OK;
}

} // namespace vb

using namespace vb;

extern "C" {

// The compute capabilities in this library, such as "75_80_90a_PTX": for the message of VB_NO_KERNEL_IMAGE.
const char *vb_cuda_architectures(void);
const char *vb_cuda_architectures(void) { return VB_STRING(VB_CUDA_ARCHS); }

void vb_cuda_device_close(vb_device *device) { release(device); }

vb_status vb_cuda_device_get_info(vb_device_info *info, const vb_device *device) {
    const Device *d = static_cast<const Device *>(device);
    memset(info, 0, sizeof *info);
    info->kind = VB_CUDA;
    info->index = d->index;
    snprintf(info->name, sizeof info->name, "%.127s", d->properties.name);
    info->total_memory = (int64_t)d->properties.totalGlobalMem;
    info->compute_major = d->properties.major;
    info->compute_minor = d->properties.minor;
    info->multiprocessors = d->properties.multiProcessorCount;
    info->l2_bytes = d->properties.l2CacheSize;
    info->shared_memory_bytes = (int64_t)d->properties.sharedMemPerBlockOptin;
    // Machine code of another major revision means that the driver compiled the PTX.
    if (d->ptx / 10 != d->binary / 10)
        snprintf(info->features, sizeof info->features, "sm_%d from compute_%d", d->binary, d->ptx);
    else
        snprintf(info->features, sizeof info->features, "sm_%d%s", d->binary, d->binary == 90 ? "a" : "");
    return VB_OK;
}

vb_status vb_cuda_device_memory(int64_t *free_bytes, int64_t *total_bytes, vb_device *device) {
    size_t free_size = 0, total_size = 0;
    VB_TRY(make_current(device));
    VB_TRY(VB_CUDA(cudaMemGetInfo(&free_size, &total_size), device));
    *free_bytes = (int64_t)free_size;
    *total_bytes = (int64_t)total_size;
    return VB_OK;
}

int vb_cuda_device_driver_error(const vb_device *device) { return static_cast<const Device *>(device)->driver_error; }

vb_status vb_cuda_alloc(void **memory, int64_t bytes, vb_device *device) {
    *memory = nullptr;
    VB_TRY(make_current(device));
    return VB_CUDA(cudaMalloc(memory, (size_t)bytes), device);
}

// cudaFree waits for all work of the device, as the contract asks.
vb_status vb_cuda_free(void *memory, vb_device *device) {
    VB_TRY(make_current(device));
    return VB_CUDA(cudaFree(memory), device);
}

// The driver knows the bounds of allocations; where none is found by name, the runtime tells the device alone.
vb_status vb_cuda_memory_check(const void *memory, int64_t bytes, vb_device *device) {
    VB_TRY(make_current(device));
    const int index = device_of(device)->index;
    if (const vb_driver *driver = vb_driver_in_use())
        return vb_driver_owns(driver, index, memory, bytes) ? VB_OK : VB_INVALID_ARGUMENT;
    for (const char *p : {(const char *)memory, (const char *)memory + bytes - 1}) {
        cudaPointerAttributes attributes;
        const cudaError_t error = cudaPointerGetAttributes(&attributes, p);
        if (error != cudaSuccess) return cudaGetLastError(), VB_INVALID_ARGUMENT;
        const bool own = attributes.type == cudaMemoryTypeDevice && attributes.device == index;
        if (!own && attributes.type != cudaMemoryTypeManaged) return VB_INVALID_ARGUMENT;
    }
    return VB_OK;
}

vb_status vb_cuda_alloc_host(void **memory, int64_t bytes, vb_device *device) {
    *memory = nullptr;
    VB_TRY(make_current(device));
    const vb_status status = VB_CUDA(cudaHostAlloc(memory, (size_t)bytes, cudaHostAllocPortable), device);
    return status == VB_INTERNAL ? VB_OUT_OF_MEMORY : status;
}

vb_status vb_cuda_free_host(void *memory, vb_device *device) {
    VB_TRY(make_current(device));
    return VB_CUDA(cudaFreeHost(memory), device);
}

vb_status vb_cuda_stream_create_with(vb_stream **out, vb_device *device, const vb_allocator *allocator) {
    *out = nullptr;
    VB_TRY(make_current(device));
    Stream *s = new (std::nothrow) Stream();
    if (!s) return VB_OUT_OF_MEMORY;
    s->device = device;
    s->memory = allocator ? *allocator : vb_allocator{sizeof s->memory, own_alloc, own_free, s};
    void *zeros = nullptr;
    vb_status status = VB_CUDA(cudaStreamCreateWithFlags(&s->handle, cudaStreamNonBlocking), device);
    if (status == VB_OK) status = s->memory.alloc(&zeros, zero_bytes, s->memory.context);
    s->counters = (unsigned *)zeros;
    if (status == VB_OK) status = make_current(device); // an allocator may have opened another
    if (status == VB_OK) status = VB_CUDA(cudaMemsetAsync(zeros, 0, zero_bytes, s->handle), device);
    if (status != VB_OK) {
        dismantle(s);
        return status;
    }
    ++device_of(device)->references;
    s->native = s->handle;
    *out = s;
    return VB_OK;
}

void vb_cuda_stream_destroy(vb_stream *stream) {
    Stream *s = stream_of(stream);
    vb_device *device = s->device;
    if (make_current(device) == VB_OK && cudaStreamSynchronize(s->handle) != cudaSuccess) cudaGetLastError();
    dismantle(s);
    release(device);
}

vb_status vb_cuda_stream_handle(void **handle, vb_stream *stream) {
    *handle = stream_of(stream)->handle;
    return VB_OK;
}

vb_status vb_cuda_stream_synchronize(vb_stream *stream) {
    VB_TRY(make_current(stream->device));
    return VB_CUDA(cudaStreamSynchronize(stream_of(stream)->handle), stream->device);
}

vb_status vb_cuda_memcpy(void *out, const void *in, int64_t bytes, vb_copy_kind kind, vb_stream *stream) {
    stream_of(stream)->early.enqueued++;
    VB_TRY(make_current(stream->device));
    const cudaMemcpyKind direction = kind == VB_HOST_TO_DEVICE   ? cudaMemcpyHostToDevice
                                     : kind == VB_DEVICE_TO_HOST ? cudaMemcpyDeviceToHost
                                                                 : cudaMemcpyDefault; // finds out which devices
    cudaPointerAttributes source;
    if (kind == VB_DEVICE_TO_DEVICE && several_opened && cudaPointerGetAttributes(&source, in) == cudaSuccess &&
        source.type == cudaMemoryTypeDevice && source.device != device_of(stream->device)->index)
        enable_access(stream->device, source.device); // else the copy goes through the host, which is slower
    return VB_CUDA(cudaMemcpyAsync(out, in, (size_t)bytes, direction, stream_of(stream)->handle), stream->device);
}

vb_status vb_cuda_memset(void *out, int value, int64_t bytes, vb_stream *stream) {
    stream_of(stream)->early.enqueued++;
    VB_TRY(make_current(stream->device));
    return VB_CUDA(cudaMemsetAsync(out, value, (size_t)bytes, stream_of(stream)->handle), stream->device);
}

vb_status vb_cuda_event_create(vb_event **out, vb_device *device) {
    *out = nullptr;
    VB_TRY(make_current(device));
    Event *e = new (std::nothrow) Event();
    if (!e) return VB_OUT_OF_MEMORY;
    e->device = device;
    const vb_status status = VB_CUDA(cudaEventCreate(&e->handle), device);
    if (status != VB_OK) {
        delete e;
        return status;
    }
    ++device_of(device)->references;
    *out = e;
    return VB_OK;
}

void vb_cuda_event_destroy(vb_event *event) {
    Event *e = static_cast<Event *>(event);
    if (make_current(e->device) == VB_OK && cudaEventDestroy(e->handle) != cudaSuccess) cudaGetLastError();
    release(e->device);
    delete e;
}

vb_status vb_cuda_event_record(vb_event *event, vb_stream *stream) {
    VB_TRY(make_current(stream->device));
    return VB_CUDA(cudaEventRecord(static_cast<Event *>(event)->handle, stream_of(stream)->handle), stream->device);
}

vb_status vb_cuda_event_synchronize(vb_event *event) {
    VB_TRY(make_current(event->device));
    return VB_CUDA(cudaEventSynchronize(static_cast<Event *>(event)->handle), event->device);
}

vb_status vb_cuda_event_done(int *done, vb_event *event) {
    *done = 0;
    VB_TRY(make_current(event->device));
    const cudaError_t error = cudaEventQuery(static_cast<Event *>(event)->handle);
    if (error == cudaErrorNotReady) {
        cudaGetLastError();
        return VB_OK;
    }
    *done = error == cudaSuccess;
    return VB_CUDA(error, event->device);
}

vb_status vb_cuda_event_elapsed(float *milliseconds, vb_event *start, vb_event *end) {
    VB_TRY(make_current(end->device));
    return VB_CUDA(cudaEventElapsedTime(milliseconds, static_cast<Event *>(start)->handle,
                                        static_cast<Event *>(end)->handle),
                   end->device);
}

vb_status vb_cuda_stream_wait(vb_stream *stream, vb_event *event) {
    VB_TRY(make_current(stream->device));
    return VB_CUDA(cudaStreamWaitEvent(stream_of(stream)->handle, static_cast<Event *>(event)->handle, 0),
                   stream->device);
}

// Relaxed: other threads (and this one) may allocate memory meanwhile.
vb_status vb_cuda_graph_begin(vb_stream *stream) {
    VB_TRY(make_current(stream->device));
    return VB_CUDA(cudaStreamBeginCapture(stream_of(stream)->handle, cudaStreamCaptureModeRelaxed), stream->device);
}

vb_status vb_cuda_graph_end(vb_graph **out, vb_stream *stream) {
    *out = nullptr;
    VB_TRY(make_current(stream->device));
    cudaGraph_t recorded = nullptr;
    VB_TRY(VB_CUDA(cudaStreamEndCapture(stream_of(stream)->handle, &recorded), stream->device));
    Graph *g = new (std::nothrow) Graph();
    if (!g) {
        cudaGraphDestroy(recorded);
        return VB_OUT_OF_MEMORY;
    }
    g->device = stream->device;
    g->recorded = recorded;
    ++device_of(g->device)->references;
    *out = g;
    return VB_OK;
}

static vb_status instantiate(Graph *g) {
    if (g->executable) return VB_OK;
#if CUDART_VERSION >= 12000
    return VB_CUDA(cudaGraphInstantiate(&g->executable, g->recorded, 0), g->device);
#else
    return VB_CUDA(cudaGraphInstantiate(&g->executable, g->recorded, nullptr, nullptr, 0), g->device);
#endif
}

vb_status vb_cuda_graph_update(vb_graph *graph, const vb_graph *newer) {
    Graph *g = static_cast<Graph *>(graph);
    VB_TRY(make_current(g->device));
    VB_TRY(instantiate(g));
    const cudaGraph_t recorded = static_cast<const Graph *>(newer)->recorded;
#if CUDART_VERSION >= 12000
    cudaGraphExecUpdateResultInfo result;
    const cudaError_t error = cudaGraphExecUpdate(g->executable, recorded, &result);
#else
    cudaGraphNode_t node;
    cudaGraphExecUpdateResult result;
    const cudaError_t error = cudaGraphExecUpdate(g->executable, recorded, &node, &result);
#endif
    const vb_status status = VB_CUDA(error, g->device);
    return error == cudaErrorGraphExecUpdateFailure ? VB_UNSUPPORTED : status;
}

vb_status vb_cuda_graph_launch(vb_graph *graph, vb_stream *stream) {
    Graph *g = static_cast<Graph *>(graph);
    stream_of(stream)->early.enqueued++;
    if (stream_of(stream)->sent.y) VB_TRY(clear_sent(stream_of(stream)->sent.communicator));
    VB_TRY(make_current(g->device));
    VB_TRY(instantiate(g));
    return VB_CUDA(cudaGraphLaunch(g->executable, stream_of(stream)->handle), g->device);
}

vb_status vb_cuda_graph_prepare(vb_graph *graph) {
    Graph *g = static_cast<Graph *>(graph);
    VB_TRY(make_current(g->device));
    VB_TRY(instantiate(g));
    VB_TRY(VB_CUDA(cudaGraphUpload(g->executable, nullptr), g->device));
    return VB_CUDA(cudaStreamSynchronize(nullptr), g->device);
}

void vb_cuda_graph_destroy(vb_graph *graph) {
    Graph *g = static_cast<Graph *>(graph);
    if (make_current(g->device) == VB_OK) {
        if (g->executable) cudaGraphExecDestroy(g->executable);
        cudaGraphDestroy(g->recorded);
        cudaGetLastError();
    }
    release(g->device);
    delete g;
}

/* The operations of VB_COMPOSED that have kernels here; ops.c composes the others. */
#define VB_FUSED(X) \
    X(bit_linear) X(rope_kv_write) X(norm_linear) \
    X(norm_swiglu) X(linear_add) X(feed_forward) X(expert_feed_forward) X(norm_route) X(norm_qkv) \
    X(attention_linear_add)

static constexpr vb_backend make_backend() {
    vb_backend backend = {};
    backend.device_count = device_count;
    backend.device_open = device_open;
#define X(op) backend.op = vb_cuda_##op;
    VB_RUNTIME(X) VB_KERNELS(X) VB_FUSED(X)
#undef X
    return backend;
}

const vb_backend vb_cuda_backend = make_backend();

// Found by this name in libvibrant_cuda.so, and by the function where libvibrant_cuda.a is linked in: csrc/library.c.
extern const vb_library vb_library_of_cuda;
// From CUDA 11 on, the drivers of a major release serve its minor releases.
static const int64_t oldest_driver = CUDART_VERSION < 11000 ? CUDART_VERSION : CUDART_VERSION / 1000 * 1000;
const vb_library vb_library_of_cuda = {sizeof(vb_library), VB_ABI, sizeof(vb_backend), VB_VERSION,
                                       vb_cuda_architectures, &vb_cuda_backend, oldest_driver};
const vb_library *vb_linked_library(void) { return &vb_library_of_cuda; }

} // extern "C"
