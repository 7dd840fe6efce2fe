/* nccl.h: the part of NCCL's API that csrc uses, found at run time: no header and no library at build time. Not
 * installed.
 *
 * Types and numbers are those of NVIDIA's nccl.h, versions 2.18 to 2.32, whose ABI keeps them. ncclComm_t is a pointer.
 * ncclResult_t, ncclDataType_t and ncclRedOp_t are enums of the size of int. ncclUniqueId is a struct of 128 chars. */
#ifndef VB_NCCL_H
#define VB_NCCL_H

#include <stddef.h>

#include "vibrant.h"

typedef struct nccl_id { char bytes[VB_UNIQUE_ID_BYTES]; } nccl_id;

enum { NCCL_SUCCESS = 0, NCCL_INT32 = 2, NCCL_FLOAT32 = 7, NCCL_SUM = 0 };

/* X(field, name of the symbol, parameters), all of which return an ncclResult_t. Streams are cudaStream_t. */
#define VB_NCCL(X) \
    X(get_version, "ncclGetVersion", (int *version)) \
    X(get_unique_id, "ncclGetUniqueId", (nccl_id *id)) \
    X(init_rank, "ncclCommInitRank", (void **comm, int ranks, nccl_id id, int rank)) \
    X(destroy, "ncclCommDestroy", (void *comm)) \
    X(abort, "ncclCommAbort", (void *comm)) \
    X(all_reduce, "ncclAllReduce", \
      (const void *in, void *out, size_t count, int type, int op, void *comm, void *stream)) \
    X(broadcast, "ncclBroadcast", \
      (const void *in, void *out, size_t count, int type, int root, void *comm, void *stream)) \
    X(send, "ncclSend", (const void *in, size_t count, int type, int peer, void *comm, void *stream)) \
    X(receive, "ncclRecv", (void *out, size_t count, int type, int peer, void *comm, void *stream)) \
    X(group_start, "ncclGroupStart", (void)) \
    X(group_end, "ncclGroupEnd", (void))

typedef struct vb_nccl_calls {
    const char *(*error_string)(int result); /* ncclGetErrorString */
#define X(field, name, parameters) int (*field) parameters;
    VB_NCCL(X)
#undef X
} vb_nccl_calls;

#endif
