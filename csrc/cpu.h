/* cpu.h: the parts common to the files of the CPU backend: its handles, its worker pool, and the choice of
 * instructions.
 *
 * Each kernel with vector code has a plain C twin, and the device picks one of them when it is opened.
 * It picks the best level of the processor, or less where VIBRANT_SIMD (plain, avx2, avx512) says so.
 * No file needs compiler flags of its own: functions carry __attribute__((target)).
 * VB_TWINS makes the variants of a simple loop from one body, which the compiler vectorizes for each.
 * Where the compiler is not enough there are intrinsics.
 * Other processors, and builds with -DVB_PLAIN_ONLY, have the plain twins alone. */
#ifndef VB_CPU_H
#define VB_CPU_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "fits.h"
#include "kernels.h"

typedef enum vb_simd { VB_SIMD_PLAIN, VB_SIMD_AVX2, VB_SIMD_AVX512, VB_SIMD_LEVELS } vb_simd;

#if defined(__x86_64__) && defined(__GNUC__) && !defined(VB_PLAIN_ONLY)
#define VB_X86 1
#define VB_TARGET_AVX2 __attribute__((target("avx2,fma,f16c")))
#define VB_TARGET_AVX512 __attribute__((target("avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")))
#define VB_TARGET_VBMI \
    __attribute__((target("avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx512vbmi")))
#if defined __linux__ && __GNUC__ >= 11 && !defined __clang__
#define VB_AMX 1
#define VB_TARGET_AMX \
    __attribute__((target("avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,amx-tile,amx-int8")))
#endif
#else
#define VB_X86 0
#endif

/* Nobody reads errno or the flags of exceptions. For their sake GCC leaves most loops with a choice or a root alone. */
#if defined __GNUC__ && !defined __clang__
#pragma GCC optimize("no-trapping-math", "no-math-errno")
#endif

#define VB_INLINE static inline __attribute__((always_inline))

/* Makes `name[level]` from `name_body`, an always-inline function; params and args are its list in parentheses. */
#if VB_X86
#define VB_TWINS(name, params, args) \
    static void name##_plain params { name##_body args; } \
    VB_TARGET_AVX2 static void name##_avx2 params { name##_body args; } \
    VB_TARGET_AVX512 static void name##_avx512 params { name##_body args; } \
    static void(*const name[VB_SIMD_LEVELS]) params = {name##_plain, name##_avx2, name##_avx512}
#else
#define VB_TWINS(name, params, args) \
    static void name##_plain params { name##_body args; } \
    static void(*const name[VB_SIMD_LEVELS]) params = {name##_plain, name##_plain, name##_plain}
#endif

/* ---- handles ----------------------------------------------------------------------------------------------------- */

typedef struct vb_cpu_pool vb_cpu_pool;

typedef struct vb_cpu_device {
    vb_device base;
    _Atomic int references; /* its own handle, and one of each stream and event */
    vb_simd simd;
    bool tiles; /* of int8 (AMX), beside VB_SIMD_AVX512 */
    bool words; /* of 16 bits are looked up fast (AVX-512 VBMI), beside VB_SIMD_AVX512 */
    bool traced; /* VIBRANT_TRACE asked for kernels when the device was opened */
    vb_cpu_pool *pool;
} vb_cpu_device;

typedef struct vb_cpu_stream {
    vb_stream base;
    void *scratch;
    int64_t scratch_bytes;
} vb_cpu_stream;

static inline vb_cpu_device *vb_cpu_device_of(vb_stream *stream) { return (vb_cpu_device *)stream->device; }

/* Memory of the stream for the running kernel, aligned to 64 bytes, valid until the next call; NULL if there is
 * none. */
void *vb_cpu_scratch(vb_stream *stream, int64_t bytes);

/* ---- worker pool ------------------------------------------------------------------------------------------------- */

/* A piece of work: items begin..end-1, done by worker 0..threads-1 (0 is the caller). */
typedef void (*vb_cpu_task)(void *context, int worker, int64_t begin, int64_t end);

/* Says whether the process can still grow by some 256 MB where its address space is limited (ulimit -v). Go's runtime,
 * among others, aborts the process where it cannot grow. */
bool vb_cpu_room_to_grow(void);

/* Starts threads - 1 workers. NULL if there is no memory, or no room, for all of them. */
vb_cpu_pool *vb_cpu_pool_create(int threads);
void vb_cpu_pool_destroy(vb_cpu_pool *pool);
int vb_cpu_pool_threads(const vb_cpu_pool *pool);

/* Covers 0..n-1 once with ranges of at most `grain` items, and returns when all are done. Ranges go to whoever is free.
 * If another stream has the workers, the caller does all by itself. */
void vb_cpu_parallel(vb_stream *stream, int64_t n, int64_t grain, vb_cpu_task task, void *context);

/* Items of `work` basic steps each that are worth handing to another thread. */
static inline int64_t vb_cpu_grain(int64_t work) { return work >= 1 << 14 ? 1 : (1 << 14) / (work > 0 ? work : 1); }

/* The rows of a range of a matrix, a multiple of `step`. A range ends in weights that were fetched ahead in vain, and
 * begins with weights that were not: it is large against what is fetched ahead, up to 256 KiB, and small against the
 * whole, a quarter of a worker's part. One that is read `again` stays in the first level of the cache: 16 KiB. */
int64_t vb_cpu_matrix_grain(vb_stream *stream, int64_t rows, int64_t row_bytes, int64_t step, bool again);

/* ---- numbers ----------------------------------------------------------------------------------------------------- */

static inline float vb_bits_float(uint32_t bits) {
    float f;
    memcpy(&f, &bits, 4);
    return f;
}

static inline uint32_t vb_float_bits(float f) {
    uint32_t bits;
    memcpy(&bits, &f, 4);
    return bits;
}

/* Exact. Shifted into the fields of a float, a finite half is 2^-112 times its value, denormals included. */
static inline float vb_half_float(uint16_t h) {
    uint32_t sign = (uint32_t)(h & 0x8000) << 16, rest = (uint32_t)(h & 0x7fff) << 13;
    uint32_t finite = vb_float_bits(vb_bits_float(rest) * 0x1p112f);
    return vb_bits_float(sign | ((h & 0x7c00) == 0x7c00 ? rest | 0x7f800000 : finite));
}

/* To nearest, ties to even; NaN stays NaN, quiet, with the upper bits of its payload, as the hardware's conversion
 * does. */
static inline uint16_t vb_float_half(float f) {
    uint32_t b = vb_float_bits(f), sign = b >> 16 & 0x8000;
    b &= 0x7fffffff;
    if (b > 0x7f800000) return (uint16_t)(sign | 0x7e00 | (b >> 13 & 0x3ff));
    if (b >= 0x47800000) return (uint16_t)(sign | 0x7c00);
    if (b < 0x38800000) /* adding 0.5 leaves the half's denormal, rounded by the hardware, in the low bits */
        return (uint16_t)(sign | (vb_float_bits(vb_bits_float(b) + 0.5f) - 0x3f000000));
    b += 0xfff + (b >> 13 & 1);
    return (uint16_t)(sign | (b - 0x38000000) >> 13);
}

/* 2^(e - 128), the factor of MXFP4's doubled values; the two smallest are denormal. */
static inline float vb_exponent_float(uint8_t e) {
    return vb_bits_float(e < 2 ? (uint32_t)0x200000 << e : (uint32_t)(e - 1) << 23);
}

static inline float vb_bfloat_float(uint16_t h) { return vb_bits_float((uint32_t)h << 16); }

static inline uint16_t vb_float_bfloat(float f) {
    uint32_t b = vb_float_bits(f);
    uint32_t rounded = (b + 0x7fff + (b >> 16 & 1)) >> 16;
    return (uint16_t)((b & 0x7fffffff) > 0x7f800000 ? (b >> 16 | 0x40) : rounded);
}

/* e^x to about one unit in the last place (Cephes' polynomial), in operations that compilers vectorize; 0 and infinity
 * beyond the range, NaN for NaN. */
VB_INLINE float vb_expf(float x) {
    x = x < -104.0f ? -104.0f : x;
    x = x > 89.0f ? 89.0f : x;
    float shifted = x * 1.44269504f + 0x1.8p23f; /* its low bits are x / ln 2, rounded */
    float n = shifted - 0x1.8p23f;
    float r = x - n * 0.693359375f + n * 2.12194440e-4f;
    float p = 1.9875691500e-4f;
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * r * r + r + 1.0f;
    int32_t k = (int32_t)(vb_float_bits(shifted) - vb_float_bits(0x1.8p23f)); /* two factors: 2^k alone may overflow */
    int32_t k1 = k >> 1, k2 = k - k1;
    return p * vb_bits_float((uint32_t)(k1 + 127) << 23) * vb_bits_float((uint32_t)(k2 + 127) << 23);
}

/* tanh(x) to a few units in the last place, also near 0, where Cephes' polynomial takes over from the exponential. */
VB_INLINE float vb_tanhf(float x) {
    float z = x * x, p = -5.70498872745e-3f;
    p = p * z + 2.06390887954e-2f;
    p = p * z - 5.37397155531e-2f;
    p = p * z + 1.33314422036e-1f;
    p = p * z - 3.33332819422e-1f;
    float near = p * z * x + x, far = 1.0f - 2.0f / (vb_expf(2.0f * (x < 0 ? -x : x)) + 1.0f);
    return x > -0.625f && x < 0.625f ? near : x < 0 ? -far : far;
}

VB_INLINE float vb_siluf(float x) { return x / (1.0f + vb_expf(-x)); }

/* n elements of F32, F16 or BF16 from and to float. */
void vb_cpu_load(float *out, const void *in, vb_dtype type, int64_t n, vb_simd simd);
void vb_cpu_store(void *out, const float *in, vb_dtype type, int64_t n, vb_simd simd);

/* GELU of n floats; out may be a. */
void vb_cpu_gelu_floats(float *out, const float *a, bool with_tanh, int64_t n, vb_simd simd);

/* n elements of any type to float; n is a multiple of the block size. */
void vb_cpu_dequantize(float *out, const void *in, vb_dtype type, int64_t n, vb_simd simd);

/* n elements, a multiple of 32, to Q8_0 as ggml has it: d = max |x| / 127, q = round(x / d), halves away from 0.
 * A NaN makes all of its block NaN. */
void vb_cpu_quantize_q8_0(void *out, const float *in, int64_t n);
/* Quantizes n values, whole blocks; VB_INVALID_ARGUMENT for a value that no block can hold. */
vb_status vb_cpu_quantize(void *out, vb_dtype type, const float *in, int64_t n, vb_stream *stream);

static inline int64_t vb_min(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t vb_max(int64_t a, int64_t b) { return a > b ? a : b; }

/* Bytes of n elements of any type; n is a multiple of the block size. */
static inline int64_t vb_bytes_of(vb_dtype type, int64_t n) {
    return n / vb_dtype_block_size(type) * vb_dtype_block_bytes(type);
}

/* Address of element i of an array of a plain type. */
static inline const void *vb_at(const void *p, vb_dtype type, int64_t i) {
    return (const char *)p + i * (type == VB_F32 ? 4 : 2);
}

#endif
