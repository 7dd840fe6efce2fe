/* status.c: names of statuses and data types, the version. */
#include <stddef.h>

#include "quant.h"
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
    case VB_INVALID_ENVIRONMENT: return "VIBRANT_CUDA_CAPABILITY is no compute capability from 53 up to this GPU's";
    }
    return "unknown status";
}

typedef struct dtype_info {
    const char *name;
    int64_t elements, bytes;
} dtype_info;

static dtype_info describe(vb_dtype type) {
    switch (type) {
    case VB_F32: return (dtype_info){"F32", 1, 4};
    case VB_F16: return (dtype_info){"F16", 1, 2};
    case VB_BF16: return (dtype_info){"BF16", 1, 2};
    case VB_I32: return (dtype_info){"I32", 1, 4};
    case VB_Q4_0: return (dtype_info){"Q4_0", VB_QK, sizeof(vb_block_q4_0)};
    case VB_Q4_1: return (dtype_info){"Q4_1", VB_QK, sizeof(vb_block_q4_1)};
    case VB_Q5_0: return (dtype_info){"Q5_0", VB_QK, sizeof(vb_block_q5_0)};
    case VB_Q5_1: return (dtype_info){"Q5_1", VB_QK, sizeof(vb_block_q5_1)};
    case VB_Q8_0: return (dtype_info){"Q8_0", VB_QK, sizeof(vb_block_q8_0)};
    case VB_IQ4_NL: return (dtype_info){"IQ4_NL", VB_QK, sizeof(vb_block_iq4_nl)};
    case VB_MXFP4: return (dtype_info){"MXFP4", VB_QK, sizeof(vb_block_mxfp4)};
    case VB_Q2_K: return (dtype_info){"Q2_K", VB_QK_K, sizeof(vb_block_q2_k)};
    case VB_Q3_K: return (dtype_info){"Q3_K", VB_QK_K, sizeof(vb_block_q3_k)};
    case VB_Q4_K: return (dtype_info){"Q4_K", VB_QK_K, sizeof(vb_block_q4_k)};
    case VB_Q5_K: return (dtype_info){"Q5_K", VB_QK_K, sizeof(vb_block_q5_k)};
    case VB_Q6_K: return (dtype_info){"Q6_K", VB_QK_K, sizeof(vb_block_q6_k)};
    case VB_IQ4_XS: return (dtype_info){"IQ4_XS", VB_QK_K, sizeof(vb_block_iq4_xs)};
    case VB_TQ1_0: return (dtype_info){"TQ1_0", VB_QK_K, sizeof(vb_block_tq1_0)};
    case VB_TQ2_0: return (dtype_info){"TQ2_0", VB_QK_K, sizeof(vb_block_tq2_0)};
    }
    return (dtype_info){"unknown", 0, 0};
}

int64_t vb_dtype_block_size(vb_dtype type) { return describe(type).elements; }

int64_t vb_dtype_block_bytes(vb_dtype type) { return describe(type).bytes; }

const char *vb_dtype_string(vb_dtype type) { return describe(type).name; }
