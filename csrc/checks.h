/* checks.h: how operations refuse arguments. A refused call leaves the argument's name and the rule it broke with its
 * stream, as a static string: vb_stream_invalid_argument. Not installed. */
#ifndef VB_CHECKS_H
#define VB_CHECKS_H

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#include "kernels.h"
#include "strided.h"

static inline vb_status vb_refuse(vb_stream *stream, const char *rule) {
    if (stream) stream->invalid_argument = rule;
    return VB_INVALID_ARGUMENT;
}

/* `rule` is a literal that names the argument: "eps: negative". */
#define REQUIRE(condition, rule) \
    do { \
        if (!(condition)) return vb_refuse(stream, rule); \
    } while (0)

#define NOT_NULL(pointer) REQUIRE(pointer, #pointer ": null")

/* *count = the product of n sizes, 0 if a size is 0. False if a size is negative.
 * Also false if a tensor of so many elements of up to four bytes would have more than 2^63 - 1 bytes. */
static inline bool elements(int64_t *count, int n, const int64_t *sizes) {
    int64_t product = 1;
    bool empty = false;
    for (int i = 0; i < n; i++) {
        if (sizes[i] < 0) return false;
        empty |= sizes[i] == 0;
    }
    *count = 0;
    if (empty) return true;
    for (int i = 0; i < n; i++)
        if (__builtin_mul_overflow(product, sizes[i], &product)) return false;
    *count = product;
    return product <= INT64_MAX / 4;
}

#define ELEMENTS(count, ...) \
    elements(count, (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), (const int64_t[]){__VA_ARGS__})

#define REQUIRE_SIZES(count, ...) REQUIRE(ELEMENTS(count, __VA_ARGS__), #__VA_ARGS__ ": negative, or too large")

/* Copies arguments of the size that their caller knew; fields that the caller did not know become 0.
 * False for a size that no caller can mean. Also false where the caller knew fields that this library does not, and set
 * them. */
static inline bool take(void *copy, size_t size, const void *args) {
    enum { MOST = 4096 }; /* far above any struct here: a size that was never set is likely larger */
    size_t given;
    memcpy(&given, args, sizeof given);
    if (given < sizeof given || given > MOST || given % sizeof(int) != 0) return false;
    for (size_t i = size; i < given; i++)
        if (((const char *)args)[i]) return false;
    memset(copy, 0, size);
    memcpy(copy, args, given < size ? given : size);
    return true;
}

/* Declares `name`, the complete arguments of a call. */
#define TAKE(type, name, args) \
    type name; \
    REQUIRE(args, #args ": null"); \
    REQUIRE(take(&name, sizeof name, args), #args "->size: not sizeof(" #type ")")

/* Calls the device's kernel. A kernel that refuses a value only it can see, as the ids on a CPU, gives the reason
 * itself. */
#define RUN(op, ...) \
    (stream->invalid_argument = stream->kernel = NULL, \
     ran(#op, stream, stream->device->backend->op ? stream->device->backend->op(__VA_ARGS__) : VB_UNSUPPORTED))

/* Notes the form of a CPU's kernel that ran, for vb_last_kernel and the trace: the instructions that it may use, where
 * it has not noted its name itself. Kernels of GPUs note theirs when they are launched. */
void vb_cpu_ran(const char *op, vb_stream *stream);
static inline vb_status ran(const char *op, vb_stream *stream, vb_status status) {
    if (status == VB_OK && stream->device->backend == &vb_cpu_backend) vb_cpu_ran(op, stream);
    return status;
}

/* Runs the device's kernel of an operation of VB_COMPOSED and returns; goes on where the device has none for these
 * arguments. */
#define RUN_OR_COMPOSE(op, ...) \
    do { \
        const vb_status ran_ = stream->device->backend->op ? RUN(op, __VA_ARGS__) : VB_UNSUPPORTED; \
        if (ran_ != VB_UNSUPPORTED) return ran_; \
    } while (0)

enum { MOST_RANKS = 256 }; /* of an adapter */

#define ROPE_MODES "mode: neither VB_ROPE_INTERLEAVED nor VB_ROPE_NEOX"
#define CACHES "neither F32, F16, BF16, nor Q8_0 with a dim of whole blocks"

/* Of a key-value cache: blocks of Q8_0 lie along a head. */
static inline bool is_cache(vb_dtype type, int64_t dim) {
    return vb_is_float(type) || (type == VB_Q8_0 && dim % vb_dtype_block_size(type) == 0);
}

/* *size = the elements of q. Without positions, causal rows must lie below kv_len: offset + seq <= kv_len (ops.c). */
vb_status vb_check_attention(int64_t *size, const vb_attention_args *a, vb_stream *stream);

/* The shape, type and layout of a weight make sense; its data is not looked at. `name` is a literal. */
#define REQUIRE_WEIGHT(w, name) \
    do { \
        int64_t count_; \
        REQUIRE(w, name ": null"); \
        REQUIRE(!vb_is_integer((w)->type) && vb_dtype_block_size((w)->type) > 0, \
                name "->type: none of a weight"); \
        REQUIRE((w)->layout == VB_STORED || (w)->layout == VB_PACKED, \
                name "->layout: neither VB_STORED nor VB_PACKED"); \
        REQUIRE(ELEMENTS(&count_, (w)->rows, (w)->cols), \
                name "->rows, cols: negative, or their product is too large"); \
        REQUIRE((w)->cols % vb_dtype_block_size((w)->type) == 0, name "->cols: no multiple of the type's block size"); \
    } while (0)

#endif
