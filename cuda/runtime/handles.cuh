// handles.cuh: the structs behind the handles of devices, streams, events and graphs. Files of kernels do without them:
// the standard headers here would be parsed again for each.
#ifndef VB_CUDA_HANDLES_CUH
#define VB_CUDA_HANDLES_CUH

#include "runtime/early.cuh"
#include "runtime/common.cuh"

#include <atomic>
#include <vector>

namespace vb {

struct Device : vb_device {
    int index;
    std::atomic<int> references; // the handle, and each stream, event and graph
    std::atomic<int> driver_error;
    cudaDeviceProp properties; // as VIBRANT_CUDA_CAPABILITY lowers them
    vb_gpu gpu;     // as choosers see it
    int binary;     // of the machine code in use, 90
    int ptx;        // that it was compiled from: differs where the driver compiled it
};

struct Stream : vb_stream {
    cudaStream_t handle;
    unsigned *counters; // workspace_counters zeros, then the zeros of workspace_slots
    float *left;        // workspace_left floats, or null as long as no operation left any
    char *scratch;      // contents undefined between kernels
    int64_t scratch_bytes;
    vb_allocator memory;          // where counters, left and scratch come from
    std::vector<void *> outgrown; // memory that a stream without an allocator does not use any more
    EarlyResults early;
    SentResults sent;
};

struct Event : vb_event {
    cudaEvent_t handle;
};

struct Graph : vb_graph {
    cudaGraph_t recorded;
    cudaGraphExec_t executable; // made at the first launch
};

inline Device *device_of(vb_device *device) { return static_cast<Device *>(device); }
inline Stream *stream_of(vb_stream *stream) { return static_cast<Stream *>(stream); }

// Forgets results that products have sent for a sum which did not follow (early.cuh).
vb_status clear_sent(Communicator *communicator);

// Lets a device reach the memory of the GPU with the number `peer`. VB_UNSUPPORTED where it cannot.
vb_status enable_access(vb_device *device, int peer);

} // namespace vb
#endif
