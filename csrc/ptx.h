/* ptx.h: a small language for kernels and its compiler to PTX, for programs without nvcc. Not installed.
 *
 * A kernel is written as a restricted C: docs/ptx.md has the language and a kernel read line by line. The compiler
 * makes one pass. It reads the body of an `unroll` loop again for each iteration, so that the counter is a constant and
 * arrays of registers have constant indices. Source: "Parallel Thread Execution ISA", version 8.0 (NVIDIA). */
#ifndef VB_PTX_H
#define VB_PTX_H

#include <stdbool.h>
#include <stddef.h>

/* Turns the text of a kernel into a string: C comments vanish, macros are not expanded. */
#define VB_PTX_SOURCE(...) #__VA_ARGS__

/* A name that stands for a number in a kernel's text. */
typedef struct vb_ptx_constant {
    const char *name;
    double value;
    bool is_float;
} vb_ptx_constant;

/* Shared memory that a kernel declares itself. One with more says so in a line that begins so and ends with the bytes:
 * the launch gives them. */
enum { VB_PTX_STATIC_SHARED = 48 << 10 };
#define VB_PTX_SHARED_BYTES ".extern .shared .align 16 .b8 shared_base[]; // bytes: "

/* Compiles the kernels of `source` for compute capability `target` (75 for 7.5). `constants` ends with a NULL name.
 * `entry` is the entry's name where the source names it `ENTRY`. Returns PTX, or NULL with the mistake in `error`.
 * The caller frees the PTX. */
char *vb_ptx_compile(const char *source, const char *entry, const vb_ptx_constant *constants, int target, char *error,
                     size_t error_size);

#endif
