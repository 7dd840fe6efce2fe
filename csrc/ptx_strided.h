/* ptx_strided.h: texts of kernels that are written for a call, on arrays with strides. Not installed. */
#ifndef VB_PTX_STRIDED_H
#define VB_PTX_STRIDED_H

#include "ptx_device.h"
#include "strided.h"

/* A text that grows; NULL after memory ran out. */
typedef struct vb_jit_text {
    char *data;
    size_t used, room;
    bool failed;
} vb_jit_text;

void vb_jit_say(vb_jit_text *t, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Puts a text with the texts that it names in their places (ptx_modules.c). False where they name themselves, or memory
 * ran out. */
bool vb_jit_fill(vb_jit_text *out, const char *text, const vb_jit_filling *filling);

/* The text that reads x[number][W] at at[number] elements behind data[number]: `here` elements, of W, are there.
 * `repeated`: one element W times. Floats become f32, integers s32. */
void vb_jit_say_load(vb_jit_text *t, int number, const vb_view *v, int width, bool repeated);
void vb_jit_say_store(vb_jit_text *t, int number, const vb_view *v, int width);

/* Whether `width` neighbours along the last dimension are one access, aligned to its size, or one element. */
bool vb_jit_neighbours(const vb_view *v, const int64_t *sizes, int rank, int width);

/* ptx_elements.c: the result of OP for x and y, in `value`. */
enum { VB_JIT_ADD = 0, VB_JIT_MUL = 1, VB_JIT_SILU = 3, VB_JIT_GELU = 4, VB_JIT_GELU_TANH = 5, VB_JIT_SWIGLU = 6,
    VB_JIT_SIGMOID = 11, VB_JIT_SOFT_CAP = 12 };
extern const char vb_jit_formula[];

#endif
