/* status.c: names of statuses and data types, the version. */
#include <stddef.h>

#include "operations.h"
#include "vibrant.h"

const char *vb_version(void) { return VB_VERSION; }

const char *vb_status_string(vb_status status) {
    switch (status) {
    case VB_OK: return "ok";
    case VB_INVALID_ARGUMENT: return "invalid argument";
    case VB_UNSUPPORTED: return "not supported by this device";
    case VB_NOT_COMPILED: return "no kernels for this kind of device: neither linked in nor found";
    case VB_NO_DEVICE: return "no such device, or no driver";
    case VB_NO_KERNEL_IMAGE: return "no kernels for this GPU in this build of the library";
    case VB_OUT_OF_MEMORY: return "out of memory";
    case VB_DEVICE_LOST: return "device lost after an illegal access or a hardware fault";
    case VB_INTERNAL: return "driver error";
    case VB_INVALID_ENVIRONMENT:
        return "VIBRANT_CUDA_CAPABILITY is no compute capability from 53 up to this GPU's, or is below 90 where the "
               "kernels are compiled for Hopper (CUDA_ARCH=80 makes others), or VIBRANT_CUDA is neither ptx nor "
               "library, or VIBRANT_SIMD is none of plain, avx2, avx512 and amx";
    }
    return "unknown status";
}

typedef struct dtype_info {
    const char *name;
    int64_t elements, bytes;
} dtype_info;

static dtype_info describe(vb_dtype type) {
    switch (type) {
#define X(name, elements, bytes) \
    case VB_##name: return (dtype_info){#name, elements, bytes};
        VB_DTYPES(X)
#undef X
    }
    return (dtype_info){"unknown", 0, 0};
}

int64_t vb_dtype_block_size(vb_dtype type) { return describe(type).elements; }

int64_t vb_dtype_block_bytes(vb_dtype type) { return describe(type).bytes; }

const char *vb_dtype_string(vb_dtype type) { return describe(type).name; }
