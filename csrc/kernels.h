/* kernels.h: the catalogue of kernels inside the library, which a kind of device fills in. Not installed.
 *
 * VB_KERNELS and VB_COMPOSED (operations.h, generated from vibrant.h) name every operation once. From them come the
 * prototypes of each device's kernels (vb_cpu_add, vb_cuda_add, ...: same signature as vb_add), and the table through
 * which ops.c calls them. ops.c has checked the arguments, and a kernel may rely on its checks: no null pointer, no
 * negative or overflowing size, nothing to do for an empty size, types that make sense. A kernel returns VB_UNSUPPORTED
 * for a call that it does not implement. Where a kernel of VB_COMPOSED is absent from a table, or returns
 * VB_UNSUPPORTED, ops.c runs the operations that vibrant.h names instead. */
#ifndef VB_KERNELS_H
#define VB_KERNELS_H

#include "operations.h"
#include "vibrant.h"

/* Everything that a device does besides kernels; the same rule of names. */
#define VB_RUNTIME(X) \
    X(device_close) X(device_get_info) X(device_memory) X(device_driver_error) \
    X(alloc) X(free) X(memory_check) X(alloc_host) X(free_host) X(weight_packed_size) \
    X(stream_create_with) X(stream_destroy) X(stream_synchronize) X(stream_handle) X(memcpy) X(memset) \
    X(event_create) X(event_destroy) X(event_record) X(event_synchronize) X(event_done) X(event_elapsed) \
    X(stream_wait) X(graph_begin) X(graph_end) X(graph_update) X(graph_launch) X(graph_prepare) \
    X(graph_destroy) X(communicator_create) X(communicator_destroy) X(all_reduce) X(all_gather) \
    X(broadcast) X(send)

#ifdef __cplusplus
extern "C" {
#define VB_TYPEOF(x) decltype(x)
#else
#define VB_TYPEOF(x) __typeof__(x)
#endif

typedef struct vb_backend {
    vb_status (*device_count)(int *count);
    vb_status (*device_open)(vb_device **device, int index, const vb_device_options *options);
#define X(op) VB_TYPEOF(vb_##op) *op;
    VB_RUNTIME(X) VB_KERNELS(X) VB_COMPOSED(X)
#undef X
} vb_backend;

/* Each kind of device begins its own structs with these, so that a handle leads to its kernels. */
struct vb_device {
    const vb_backend *backend;
};
struct vb_stream {
    vb_device *device;
    const char *invalid_argument; /* why the newest refused operation was, a static string; NULL after one that ran */
    const char *kernel; /* that its newest operation chose, a static string; NULL where the device does not say */
    void *native;       /* the driver's stream; NULL where there is none */
};
struct vb_event {
    vb_device *device;
};
struct vb_graph {
    vb_device *device;
};
struct vb_communicator {
    const vb_backend *backend;
    int ranks; /* of this process: arrays of pointers have one of each */
    int first; /* the number of the first of them */
    int all;   /* with those of other processes: arrays of sizes have one of each */
    vb_stream *streams[VB_MAX_RANKS];
};

#define X(op) VB_TYPEOF(vb_##op) vb_cpu_##op, vb_cuda_##op, vb_jit_##op;
VB_RUNTIME(X)
VB_KERNELS(X)
VB_COMPOSED(X)
#undef X

extern const vb_backend vb_cpu_backend;
extern const vb_backend vb_ptx_backend;  /* GPUs whose kernels are compiled by the driver: ptx_device.h */
extern const vb_backend vb_cuda_backend; /* in libvibrant_cuda: library.h */

#ifdef __cplusplus
}
#endif
#endif
