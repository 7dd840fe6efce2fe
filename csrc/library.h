/* library.h: the description of libvibrant_cuda.so for a program that finds it at run time. Not installed. */
#ifndef VB_LIBRARY_H
#define VB_LIBRARY_H

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Raise it whenever a struct of vibrant.h or kernels.h changes its meaning and not its size. */
#define VB_ABI 5

typedef struct vb_library {
    int64_t size;                        /* of this struct: a longer one is a newer one */
    int64_t abi;                         /* VB_ABI */
    int64_t table_bytes;                 /* sizeof(vb_backend): differs where an operation is missing */
    const char *version;                 /* vb_version() */
    const char *(*architectures)(void);  /* "80_90a_PTX" */
    const vb_backend *cuda;
    int64_t driver;                      /* the oldest CUDA whose driver serves these kernels: 12000, 13000 */
} vb_library;

/* The description in libvibrant_cuda.a. The function's address is NULL where the link has no such archive. */
const vb_library *vb_linked_library(void);

/* The library of CUDA kernels that this program uses: linked in, or found by the first call. NULL where there is
 * none. */
const vb_library *vb_cuda_library_in_use(void);

/* Whether VIBRANT_CUDA asks for these kernels: "ptx" or "library". */
static inline bool vb_cuda_asked(const char *kernels) {
    const char *named = getenv("VIBRANT_CUDA");
    return named && strcmp(named, kernels) == 0;
}

/* Whether VIBRANT_LIBRARY names a library of CUDA kernels that was not taken: then nothing else serves GPUs. */
int vb_cuda_library_refused(void);

#ifdef __cplusplus
}
#endif

#endif
