/* cpu_elementwise.c: operations on elements, and conversion between the plain types.
 *
 * Elements are computed in float32; 16-bit types pass through a small buffer that stays in the first-level cache. All
 * of these are bound by memory from a few thousand elements on. */
#include "cpu.h"

#if VB_X86
#include <immintrin.h>
#endif

/* ---- conversion -------------------------------------------------------------------------------------------------- */

VB_INLINE void load_plain_types_body(float *restrict out, const void *in, vb_dtype type, int64_t n) {
    const uint16_t *h = in;
    if (type == VB_F32)
        memcpy(out, in, (size_t)n * 4);
    else if (type == VB_BF16)
        for (int64_t i = 0; i < n; i++) out[i] = vb_bfloat_float(h[i]);
    else
        for (int64_t i = 0; i < n; i++) out[i] = vb_half_float(h[i]);
}

VB_INLINE void store_plain_types_body(void *out, const float *restrict in, vb_dtype type, int64_t n) {
    uint16_t *h = out;
    if (type == VB_F32)
        memcpy(out, in, (size_t)n * 4);
    else if (type == VB_BF16)
        for (int64_t i = 0; i < n; i++) h[i] = vb_float_bfloat(in[i]);
    else
        for (int64_t i = 0; i < n; i++) h[i] = vb_float_half(in[i]);
}

VB_TWINS(load_plain_types, (float *out, const void *in, vb_dtype type, int64_t n), (out, in, type, n));
VB_TWINS(store_plain_types, (void *out, const float *in, vb_dtype type, int64_t n), (out, in, type, n));

#if VB_X86
VB_TARGET_AVX2 static void load_f16_f16c(float *out, const uint16_t *in, int64_t n) {
    int64_t i = 0;
    for (; i + 8 <= n; i += 8) _mm256_storeu_ps(out + i, _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(in + i))));
    for (; i < n; i++) out[i] = vb_half_float(in[i]);
}

VB_TARGET_AVX2 static void store_f16_f16c(uint16_t *out, const float *in, int64_t n) {
    int64_t i = 0;
    for (; i + 8 <= n; i += 8)
        _mm_storeu_si128((__m128i *)(out + i), _mm256_cvtps_ph(_mm256_loadu_ps(in + i), _MM_FROUND_TO_NEAREST_INT));
    for (; i < n; i++) out[i] = vb_float_half(in[i]);
}
#endif

void vb_cpu_load(float *out, const void *in, vb_dtype type, int64_t n, vb_simd simd) {
#if VB_X86
    if (type == VB_F16 && simd >= VB_SIMD_AVX2) {
        load_f16_f16c(out, in, n);
        return;
    }
#endif
    load_plain_types[simd](out, in, type, n);
}

void vb_cpu_store(void *out, const float *in, vb_dtype type, int64_t n, vb_simd simd) {
#if VB_X86
    if (type == VB_F16 && simd >= VB_SIMD_AVX2) {
        store_f16_f16c(out, in, n);
        return;
    }
#endif
    store_plain_types[simd](out, in, type, n);
}

/* ---- element-wise ------------------------------------------------------------------------------------------------ */

typedef enum element_op {
    ADD, MUL, MUL_SCALAR, SILU, SIGMOID, SOFT_CAP, GELU, GELU_TANH,
    SWIGLU, GELU_GLU, GELU_TANH_GLU, RELU_SQUARED_GLU, CLAMPED_SILU_GLU /* in the order of vb_activation */
} element_op;

VB_INLINE float clamped_silu_glu(float gate, float up, float alpha, float limit) {
    /* NaN stays */
    float g = gate > limit ? limit : gate, low = up < -limit ? -limit : up, u = low > limit ? limit : low;
    return (u + 1.0f) * g / (1.0f + vb_expf(-alpha * g));
}

VB_INLINE void elements_body(element_op op, float *out, const float *a, const float *b, float scalar, float limit,
                             int64_t n) {
    switch (op) {
    case ADD:
        for (int64_t i = 0; i < n; i++) out[i] = a[i] + b[i];
        break;
    case MUL:
        for (int64_t i = 0; i < n; i++) out[i] = a[i] * b[i];
        break;
    case MUL_SCALAR:
        for (int64_t i = 0; i < n; i++) out[i] = a[i] * scalar;
        break;
    case SILU:
        for (int64_t i = 0; i < n; i++) out[i] = vb_siluf(a[i]);
        break;
    case SWIGLU:
        for (int64_t i = 0; i < n; i++) out[i] = vb_siluf(a[i]) * b[i];
        break;
    case RELU_SQUARED_GLU:
        for (int64_t i = 0; i < n; i++) out[i] = (a[i] < 0 ? 0 : a[i] * a[i]) * b[i];
        break;
    case CLAMPED_SILU_GLU:
        for (int64_t i = 0; i < n; i++) out[i] = clamped_silu_glu(a[i], b[i], scalar, limit);
        break;
    case SIGMOID:
        for (int64_t i = 0; i < n; i++) out[i] = 1.0f / (1.0f + vb_expf(-a[i]));
        break;
    case SOFT_CAP:
        for (int64_t i = 0; i < n; i++) out[i] = scalar * vb_tanhf(a[i] / scalar);
        break;
    case GELU:
    case GELU_TANH:
    case GELU_GLU:
    case GELU_TANH_GLU: break; /* floats_of */
    }
}

VB_TWINS(elements, (element_op op, float *out, const float *a, const float *b, float scalar, float limit, int64_t n),
         (op, out, a, b, scalar, limit, n));

typedef struct element_job {
    element_op op;
    void *out;
    const void *a, *b;
    float scalar, limit;
    vb_dtype type;
    vb_simd simd;
} element_job;

enum { PIECE = 512 };

/* The operation on floats, of which b may be null. */
static void floats_of(const element_job *j, float *out, const float *a, const float *b, int64_t n) {
    const bool with_tanh = j->op == GELU_TANH || j->op == GELU_TANH_GLU;
    if (j->op == GELU || j->op == GELU_TANH) {
        vb_cpu_gelu_floats(out, a, with_tanh, n, j->simd);
    } else if (j->op == GELU_GLU || j->op == GELU_TANH_GLU) {
        float gate[PIECE]; /* out may be b */
        for (int64_t i = 0; i < n; i += PIECE) {
            const int64_t some = vb_min(PIECE, n - i);
            vb_cpu_gelu_floats(gate, a + i, with_tanh, some, j->simd);
            elements[j->simd](MUL, out + i, gate, b + i, 0, 0, some);
        }
    } else {
        elements[j->simd](j->op, out, a, b, j->scalar, j->limit, n);
    }
}

static void element_range(void *context, int worker, int64_t begin, int64_t end) {
    (void)worker;
    const element_job *j = context;
    if (j->type == VB_F32) {
        const float *b = j->b;
        floats_of(j, (float *)j->out + begin, (const float *)j->a + begin, b ? b + begin : NULL, end - begin);
        return;
    }
    float a[PIECE], b[PIECE];
    for (; begin < end; begin += PIECE) {
        int64_t n = vb_min(PIECE, end - begin);
        vb_cpu_load(a, vb_at(j->a, j->type, begin), j->type, n, j->simd);
        if (j->b) vb_cpu_load(b, vb_at(j->b, j->type, begin), j->type, n, j->simd);
        floats_of(j, a, a, b, n);
        vb_cpu_store((void *)vb_at(j->out, j->type, begin), a, j->type, n, j->simd);
    }
}

static vb_status run(element_job job, int64_t n, vb_stream *stream) {
    job.simd = vb_cpu_device_of(stream)->simd;
    vb_cpu_parallel(stream, n, 1 << 14, element_range, &job);
    return VB_OK;
}

vb_status vb_cpu_add(void *out, const void *a, const void *b, vb_dtype type, int64_t n, vb_stream *stream) {
    return run((element_job){.op = ADD, .out = out, .a = a, .b = b, .type = type}, n, stream);
}

vb_status vb_cpu_mul(void *out, const void *a, const void *b, vb_dtype type, int64_t n, vb_stream *stream) {
    return run((element_job){.op = MUL, .out = out, .a = a, .b = b, .type = type}, n, stream);
}

vb_status vb_cpu_mul_scalar(void *out, const void *a, float scalar, vb_dtype type, int64_t n, vb_stream *stream) {
    return run((element_job){.op = MUL_SCALAR, .out = out, .a = a, .scalar = scalar, .type = type}, n, stream);
}

vb_status vb_cpu_silu(void *out, const void *a, vb_dtype type, int64_t n, vb_stream *stream) {
    return run((element_job){.op = SILU, .out = out, .a = a, .type = type}, n, stream);
}

vb_status vb_cpu_gelu(void *out, const void *a, vb_dtype type, int64_t n, vb_stream *stream) {
    return run((element_job){.op = GELU, .out = out, .a = a, .type = type}, n, stream);
}

vb_status vb_cpu_gelu_tanh(void *out, const void *a, vb_dtype type, int64_t n, vb_stream *stream) {
    return run((element_job){.op = GELU_TANH, .out = out, .a = a, .type = type}, n, stream);
}

vb_status vb_cpu_swiglu(void *out, const void *gate, const void *up, vb_dtype type, int64_t n, vb_stream *stream) {
    return run((element_job){.op = SWIGLU, .out = out, .a = gate, .b = up, .type = type}, n, stream);
}

vb_status vb_cpu_glu(void *out, const void *gate, const void *up, vb_activation activation, float alpha, float limit,
                     vb_dtype type, int64_t n, vb_stream *stream) {
    const element_op op = (element_op)(SWIGLU + (int)activation);
    return run((element_job){.op = op, .out = out, .a = gate, .b = up, .scalar = alpha, .limit = limit, .type = type},
               n, stream);
}

vb_status vb_cpu_sigmoid(void *out, const void *a, vb_dtype type, int64_t n, vb_stream *stream) {
    return run((element_job){.op = SIGMOID, .out = out, .a = a, .type = type}, n, stream);
}

vb_status vb_cpu_soft_cap(void *out, const void *a, float cap, vb_dtype type, int64_t n, vb_stream *stream) {
    return run((element_job){.op = SOFT_CAP, .out = out, .a = a, .scalar = cap, .type = type}, n, stream);
}

vb_status vb_cpu_copy(void *out, const void *in, vb_dtype type, int64_t n, vb_stream *stream) {
    return vb_cpu_memcpy(out, in, vb_bytes_of(type, n), VB_DEVICE_TO_DEVICE, stream);
}

typedef struct convert_job {
    void *out;
    const void *in;
    vb_dtype out_type, in_type;
    vb_simd simd;
} convert_job;

enum { CONVERT_PIECE = 512 }; /* a multiple of every block size, as are the ranges */

static void convert_range(void *context, int worker, int64_t begin, int64_t end) {
    (void)worker;
    const convert_job *j = context;
    float buffer[CONVERT_PIECE];
    for (int64_t i = begin; i < end; i += CONVERT_PIECE) {
        int64_t n = vb_min(CONVERT_PIECE, end - i);
        const void *in = (const char *)j->in + vb_bytes_of(j->in_type, i);
        void *out = (void *)vb_at(j->out, j->out_type, i);
        vb_cpu_dequantize(j->out_type == VB_F32 ? out : buffer, in, j->in_type, n, j->simd);
        if (j->out_type != VB_F32) vb_cpu_store(out, buffer, j->out_type, n, j->simd);
    }
}

vb_status vb_cpu_convert(void *out, vb_dtype out_type, const void *in, vb_dtype in_type, int64_t n, vb_stream *stream) {
    if (vb_dtype_block_size(out_type) > 1) return vb_cpu_quantize(out, out_type, in, n, stream);
    convert_job job = {out, in, out_type, in_type, vb_cpu_device_of(stream)->simd};
    vb_cpu_parallel(stream, n, 1 << 14, convert_range, &job);
    return VB_OK;
}

vb_status vb_cpu_increment_i32(int32_t *x, int64_t n, vb_stream *stream) {
    (void)stream;
    for (int64_t i = 0; i < n; i++) x[i] = (int32_t)((uint32_t)x[i] + 1);
    return VB_OK;
}
