/* driver.h: the part of NVIDIA's driver API that csrc uses, found at run time: no header and no library of a toolkit.
 * Not installed.
 *
 * Types and numbers are those of cuda.h, whose ABI does not change. Source: "CUDA Driver API", NVIDIA. */
#ifndef VB_DRIVER_H
#define VB_DRIVER_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef int cu_result; /* 0: success */
typedef uint64_t cu_address;

enum {
    CU_OUT_OF_MEMORY = 2, CU_NO_DEVICE = 100, CU_INVALID_DEVICE = 101, CU_INVALID_IMAGE = 200,
        CU_NO_BINARY = 209, CU_INVALID_PTX = 218,
    CU_UNSUPPORTED_PTX = 222, CU_NOT_READY = 600, CU_ILLEGAL_ADDRESS = 700, CU_LAUNCH_TIMEOUT = 702, CU_ASSERT = 710,
    CU_FIRST_FAULT = 714, CU_LAST_FAULT = 719, CU_UNCORRECTABLE = 214, CU_UPDATE_FAILURE = 910, CU_NOT_SUPPORTED = 801
};

/* X(field, name of the symbol, parameters) */
#define VB_DRIVER(X) \
    X(init, "cuInit", (unsigned)) \
    X(driver_version, "cuDriverGetVersion", (int *)) \
    X(device_count, "cuDeviceGetCount", (int *)) \
    X(device_get, "cuDeviceGet", (int *, int)) \
    X(device_name, "cuDeviceGetName", (char *, int, int)) \
    X(device_attribute, "cuDeviceGetAttribute", (int *, int, int)) \
    X(device_bytes, "cuDeviceTotalMem_v2", (size_t *, int)) \
    X(retain, "cuDevicePrimaryCtxRetain", (void **, int)) \
    X(release, "cuDevicePrimaryCtxRelease_v2", (int)) \
    X(set_current, "cuCtxSetCurrent", (void *)) \
    X(memory, "cuMemGetInfo_v2", (size_t *, size_t *)) \
    X(pointer_attribute, "cuPointerGetAttribute", (void *, int, cu_address)) \
    X(alloc, "cuMemAlloc_v2", (cu_address *, size_t)) \
    X(free, "cuMemFree_v2", (cu_address)) \
    X(alloc_host, "cuMemHostAlloc", (void **, size_t, unsigned)) \
    X(free_host, "cuMemFreeHost", (void *)) \
    X(lock_host, "cuMemHostRegister_v2", (void *, size_t, unsigned)) \
    X(unlock_host, "cuMemHostUnregister", (void *)) \
    X(copy_to_device, "cuMemcpyHtoD_v2", (cu_address, const void *, size_t)) \
    X(copy_to_device_async, "cuMemcpyHtoDAsync_v2", (cu_address, const void *, size_t, void *)) \
    X(copy_to_host_async, "cuMemcpyDtoHAsync_v2", (void *, cu_address, size_t, void *)) \
    X(copy_on_device_async, "cuMemcpyDtoDAsync_v2", (cu_address, cu_address, size_t, void *)) \
    X(set_async, "cuMemsetD8Async", (cu_address, unsigned char, size_t, void *)) \
    X(stream_create, "cuStreamCreate", (void **, unsigned)) \
    X(stream_destroy, "cuStreamDestroy_v2", (void *)) \
    X(stream_synchronize, "cuStreamSynchronize", (void *)) \
    X(stream_wait, "cuStreamWaitEvent", (void *, void *, unsigned)) \
    X(event_create, "cuEventCreate", (void **, unsigned)) \
    X(event_destroy, "cuEventDestroy_v2", (void *)) \
    X(event_record, "cuEventRecord", (void *, void *)) \
    X(event_synchronize, "cuEventSynchronize", (void *)) \
    X(event_query, "cuEventQuery", (void *)) \
    X(event_elapsed, "cuEventElapsedTime", (float *, void *, void *)) \
    X(capture_begin, "cuStreamBeginCapture_v2", (void *, int)) \
    X(capture_end, "cuStreamEndCapture", (void *, void **)) \
    X(graph_instantiate, "cuGraphInstantiateWithFlags", (void **, void *, unsigned long long)) \
    X(graph_update, "cuGraphExecUpdate_v2", (void *, void *, void *)) \
    X(graph_launch, "cuGraphLaunch", (void *, void *)) \
    X(graph_exec_destroy, "cuGraphExecDestroy", (void *)) \
    X(graph_destroy, "cuGraphDestroy", (void *)) \
    X(link_create, "cuLinkCreate_v2", (unsigned, int *, void **, void **)) \
    X(link_add, "cuLinkAddData_v2", (void *, int, void *, size_t, const char *, unsigned, int *, void **)) \
    X(link_complete, "cuLinkComplete", (void *, void **, size_t *)) \
    X(link_destroy, "cuLinkDestroy", (void *)) \
    X(module_load, "cuModuleLoadData", (void **, const void *)) \
    X(module_unload, "cuModuleUnload", (void *)) \
    X(module_function, "cuModuleGetFunction", (void **, void *, const char *)) \
    X(function_attribute, "cuFuncSetAttribute", (void *, int, int)) \
    X(launch, "cuLaunchKernelEx", (const cu_launch *, void *, void **, void **)) \
    X(clusters, "cuOccupancyMaxActiveClusters", (int *, void *, const cu_launch *))

/* CUlaunchConfig, with CUlaunchAttribute. */
typedef struct cu_launch_attribute {
    int which; /* CU_OVERLAPPED: the kernel may begin while the one before it runs; CU_CLUSTER: its blocks a cluster */
    char padding[4];
    union { char size[64]; int number; unsigned blocks[3]; } value;
} cu_launch_attribute;
typedef struct cu_launch {
    unsigned grid[3], block[3], shared_bytes;
    void *stream;
    cu_launch_attribute *attributes;
    unsigned attribute_count;
} cu_launch;
enum { CU_CLUSTER = 4, CU_OVERLAPPED = 6 };

typedef struct vb_driver {
#define X(field, name, parameters) cu_result(*field) parameters;
    VB_DRIVER(X)
#undef X
} vb_driver;

/* The newest CUDA that the driver serves, 12040 for 12.4; 0 without a driver. The driver is not initialized. */
int vb_driver_version(void);

/* The driver, found and initialized by the first call. NULL where there is no driver of CUDA 12 or newer: see
 * vb_driver_report (vibrant.h). */
const vb_driver *vb_driver_in_use(void);

/* Whether kernels of the GPU of this number may use the bytes: memory of its own, or managed. A context is current. */
int vb_driver_owns(const vb_driver *in_use, int device, const void *memory, int64_t bytes);

#ifdef __cplusplus
}
#endif
#endif
