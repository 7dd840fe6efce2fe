/* cpu_quantize.c: float32 to blocks of Q4_0, Q8_0, Q4_K and Q6_K, as quant.h defines them. The codes and scales are
 * those of ggml's reference quantizers, bit for bit: every product and sum is rounded by itself, in ggml's order.
 *
 * The K-types search. A sub-block is tried with several steps; each trial rounds the values to codes, fits scale and
 * offset to these codes by weighted least squares, and the trial with the smallest weighted error stays. */
#include <math.h>
#include <stdatomic.h>

#include "cpu.h"
#include "quant.h"

#ifdef __clang__
#pragma STDC FP_CONTRACT OFF /* gcc does not contract in -std=c11 */
#endif

#define LARGEST 1e9f /* no block holds more, and below it the sums of the searches stay finite */
#define TINY 1e-15f /* ggml's GROUP_MAX_EPS: scales below it make a block of zeros */

/* To nearest, ties to even, of |x| < 2^22: added to 1.5 * 2^23, x leaves its integer in the low bits. Infinity and NaN,
 * of blocks of denormal values, give some integer, the same on every processor. */
VB_INLINE int32_t nearest(float x) {
    return (int32_t)(vb_float_bits(x + 12582912.0f) & 0x7fffff) - 0x400000;
}

VB_INLINE int32_t clamp(int32_t x, int32_t low, int32_t high) { return x < low ? low : x > high ? high : x; }

/* An infinite scale: of values that are too large for it. */
VB_INLINE bool infinite(vb_half h) { return (h & 0x7c00) == 0x7c00; }

VB_INLINE bool block_q4_0(vb_block_q4_0 *b, const float *x) {
    float most = 0, max = 0;
    for (int i = 0; i < 32; i++)
        if (fabsf(x[i]) > most) most = fabsf(x[i]), max = x[i];
    const float d = max / -8, inverse = d != 0 ? 1.0f / d : 0;
    b->d = vb_float_half(d);
    uint8_t q[32];
    for (int i = 0; i < 32; i++) {
        const float v = x[i] * inverse + 8.5f; /* 0.5 up to 16.5; infinite or NaN where d is denormal */
        q[i] = v < 17 ? (uint8_t)clamp((int32_t)v, 0, 15) : 0;
    }
    for (int i = 0; i < 16; i++) b->qs[i] = (uint8_t)(q[i] | q[i + 16] << 4);
    return !infinite(b->d);
}

void vb_cpu_quantize_q8_0(void *out, const float *in, int64_t n) {
    for (vb_block_q8_0 *b = out; n > 0; n -= VB_QK, in += VB_QK, b++) {
        float greatest = 0;
        for (int i = 0; i < VB_QK; i++) {
            float size = fabsf(in[i]);
            greatest = size > greatest || size != size ? size : greatest; /* NaN stays */
        }
        float d = greatest / 127.0f, inverse = d != 0 ? 1.0f / d : 0.0f;
        b->d = vb_float_half(d);
        for (int i = 0; i < VB_QK; i++) {
            float q = roundf(in[i] * inverse);
            b->qs[i] = fabsf(q) <= 127 ? (int8_t)q : 0; /* NaN, or infinite where d is denormal */
        }
    }
}

/* Codes of 32 values for one step: nearest(inverse * (x - min)) in 0..15. */
VB_INLINE void codes_of(int32_t *q, const float *x, float inverse, float min) {
    for (int i = 0; i < 32; i++) q[i] = clamp(nearest(inverse * (x[i] - min)), 0, 15);
}

/* The weighted error of 32 codes. */
VB_INLINE float error_of(const int32_t *q, const float *x, const float *weights, float scale, float min) {
    float part[32], error = 0;
    for (int i = 0; i < 32; i++) {
        const float diff = scale * (float)q[i] + min - x[i];
        part[i] = weights[i] * (diff * diff);
    }
    for (int i = 0; i < 32; i++) error += part[i];
    return error;
}

/* Finds codes 0..15 of 32 values, which are scale * code - *offset, *offset >= 0. Returns the scale. */
VB_INLINE float fit_offset(int32_t *q, float *offset, const float *x, const float *weights) {
    float min = x[0], max = x[0], sum_w = weights[0], sum_x = weights[0] * x[0];
    for (int i = 1; i < 32; i++) {
        min = x[i] < min ? x[i] : min;
        max = x[i] > max ? x[i] : max;
        sum_w += weights[i];
        sum_x += weights[i] * x[i];
    }
    if (min > 0) min = 0;
    if (max == min) {
        memset(q, 0, 32 * sizeof *q);
        *offset = -min;
        return 0;
    }
    float inverse = 15 / (max - min), scale = 1 / inverse;
    codes_of(q, x, inverse, min);
    float best = error_of(q, x, weights, scale, min);
    for (int step = 0; step <= 20; step++) {
        int32_t trial[32];
        float wq[32], wqq[32], wqx[32], sum_q = 0, sum_qq = 0, sum_qx = 0;
        inverse = (-1.0f + 0.1f * (float)step + 15) / (max - min); /* of the best minimum so far */
        codes_of(trial, x, inverse, min);
        for (int i = 0; i < 32; i++) {
            wq[i] = weights[i] * (float)trial[i];
            wqq[i] = wq[i] * (float)trial[i];
            wqx[i] = wq[i] * x[i];
        }
        for (int i = 0; i < 32; i++) {
            sum_q += wq[i];
            sum_qq += wqq[i];
            sum_qx += wqx[i];
        }
        const float determinant = sum_w * sum_qq - sum_q * sum_q;
        if (!(determinant > 0)) continue;
        float this_scale = (sum_w * sum_qx - sum_x * sum_q) / determinant;
        float this_min = (sum_qq * sum_x - sum_q * sum_qx) / determinant;
        if (this_min > 0) {
            this_min = 0;
            this_scale = sum_qx / sum_qq;
        }
        const float error = error_of(trial, x, weights, this_scale, this_min);
        if (error < best) {
            memcpy(q, trial, sizeof trial);
            best = error, scale = this_scale, min = this_min;
        }
    }
    *offset = -min;
    return scale;
}

VB_INLINE bool block_q4_k(vb_block_q4_k *b, const float *x) {
    int32_t q[256];
    float scales[8], offsets[8], max_scale = 0, max_offset = 0;
    for (int s = 0; s < 8; s++) {
        const float *v = x + 32 * s;
        float weights[32], squares = 0;
        for (int i = 0; i < 32; i++) squares += v[i] * v[i];
        const float mean = sqrtf(squares / 32);
        for (int i = 0; i < 32; i++) weights[i] = mean + fabsf(v[i]);
        scales[s] = fit_offset(q + 32 * s, &offsets[s], v, weights);
        max_scale = scales[s] > max_scale ? scales[s] : max_scale;
        max_offset = offsets[s] > max_offset ? offsets[s] : max_offset;
    }
    const float by_scale = max_scale > 0 ? 63.0f / max_scale : 0, by_offset = max_offset > 0 ? 63.0f / max_offset : 0;
    memset(b->scales, 0, sizeof b->scales);
    for (int s = 0; s < 8; s++) {
        int32_t scale = nearest(by_scale * scales[s]) & 255, offset = nearest(by_offset * offsets[s]) & 255;
        scale = scale < 63 ? scale : 63;
        offset = offset < 63 ? offset : 63;
        if (s < 4) {
            b->scales[s] = (uint8_t)scale;
            b->scales[s + 4] = (uint8_t)offset;
        } else {
            b->scales[s + 4] = (uint8_t)((scale & 15) | (offset & 15) << 4);
            b->scales[s - 4] |= (uint8_t)(scale >> 4 << 6);
            b->scales[s] |= (uint8_t)(offset >> 4 << 6);
        }
    }
    b->d = vb_float_half(max_scale / 63.0f);
    b->dmin = vb_float_half(max_offset / 63.0f);
    for (int s = 0; s < 8; s++) {
        int scale, offset;
        vb_k4_scale(b->scales, s, &scale, &offset);
        const float d = vb_half_float(b->d) * (float)scale, min = vb_half_float(b->dmin) * (float)offset;
        if (d == 0) continue; /* the codes of the search stay */
        for (int i = 0; i < 32; i++) q[32 * s + i] = clamp(nearest((x[32 * s + i] + min) / d), 0, 15);
    }
    for (int s = 0; s < 8; s += 2)
        for (int i = 0; i < 32; i++) b->qs[16 * s + i] = (uint8_t)(q[32 * s + i] | q[32 * s + 32 + i] << 4);
    return !infinite(b->d) && !infinite(b->dmin);
}

/* Finds codes 0..63 of 16 values, which are scale * (code - 32); their weights are their squares. Returns the scale. */
VB_INLINE float fit_scale(int32_t *codes, const float *x) {
    float most = 0, max = 0;
    for (int i = 0; i < 16; i++)
        if (fabsf(x[i]) > most) most = fabsf(x[i]), max = x[i];
    memset(codes, 0, 16 * sizeof *codes);
    if (most < TINY) return 0;
    float scale = 0, best = 0;
    for (int trial = 0; trial < 19; trial++) {
        const int step = trial == 0 ? 0 : trial <= 9 ? trial - 10 : trial - 9; /* 0, -9..-1, 1..9 */
        const float inverse = -(32 + 0.1f * (float)step) / max;
        int32_t q[16];
        float wqx[16], wqq[16], sum_qx = 0, sum_qq = 0;
        for (int i = 0; i < 16; i++) {
            const float w = x[i] * x[i];
            q[i] = clamp(nearest(inverse * x[i]), -32, 31);
            wqx[i] = w * x[i] * (float)q[i];
            wqq[i] = w * (float)q[i] * (float)q[i];
        }
        for (int i = 0; i < 16; i++) sum_qx += wqx[i], sum_qq += wqq[i];
        if (trial > 0 && !(sum_qq > 0 && sum_qx * sum_qx > best * sum_qq)) continue;
        scale = sum_qq != 0 ? sum_qx / sum_qq : 0;
        best = scale * sum_qx;
        for (int i = 0; i < 16; i++) codes[i] = q[i] + 32;
    }
    return scale;
}

VB_INLINE bool block_q6_k(vb_block_q6_k *b, const float *x) {
    int32_t q[256];
    float scales[16], most = 0, max = 0;
    for (int s = 0; s < 16; s++) {
        scales[s] = fit_scale(q + 16 * s, x + 16 * s);
        if (fabsf(scales[s]) > most) most = fabsf(scales[s]), max = scales[s];
    }
    memset(b, 0, sizeof *b);
    if (most < TINY) return true;
    const float inverse = -128.0f / max;
    b->d = vb_float_half(1 / inverse);
    for (int s = 0; s < 16; s++) {
        const int32_t scale = nearest(inverse * scales[s]);
        b->scales[s] = (int8_t)(scale < 127 ? scale : 127);
        const float d = vb_half_float(b->d) * (float)b->scales[s];
        if (d == 0) continue; /* the codes of the search stay */
        for (int i = 0; i < 16; i++) q[16 * s + i] = clamp(nearest(x[16 * s + i] / d), -32, 31) + 32;
    }
    for (int half = 0; half < 2; half++) {
        for (int l = 0; l < 32; l++) {
            const int32_t *v = q + 128 * half + l;
            b->ql[64 * half + l] = (uint8_t)((v[0] & 15) | (v[64] & 15) << 4);
            b->ql[64 * half + 32 + l] = (uint8_t)((v[32] & 15) | (v[96] & 15) << 4);
            b->qh[32 * half + l] = (uint8_t)(v[0] >> 4 | v[32] >> 4 << 2 | v[64] >> 4 << 4 | v[96] >> 4 << 6);
        }
    }
    return !infinite(b->d);
}

/* Quantizes n values; false where one is infinite or NaN, or too large for the half-precision scale of its block. */
VB_INLINE bool quantize_body(void *out, vb_dtype type, const float *x, int64_t n) {
    bool good = true;
    for (int64_t i = 0; i < n; i++) good &= fabsf(x[i]) <= LARGEST;
    if (!good) return false;
    switch (type) {
    case VB_Q4_0:
        for (int64_t i = 0; i < n / 32; i++) good &= block_q4_0((vb_block_q4_0 *)out + i, x + 32 * i);
        return good;
    case VB_Q8_0:
        vb_cpu_quantize_q8_0(out, x, n);
        for (int64_t i = 0; i < n / 32; i++) good &= !infinite(((vb_block_q8_0 *)out)[i].d);
        return good;
    case VB_Q4_K:
        for (int64_t i = 0; i < n / 256; i++) good &= block_q4_k((vb_block_q4_k *)out + i, x + 256 * i);
        return good;
    default: /* VB_Q6_K: ops.c lets no other pass */
        for (int64_t i = 0; i < n / 256; i++) good &= block_q6_k((vb_block_q6_k *)out + i, x + 256 * i);
        return good;
    }
}

static bool quantize_plain(void *out, vb_dtype type, const float *x, int64_t n) {
    return quantize_body(out, type, x, n);
}
#if VB_X86
VB_TARGET_AVX2 static bool quantize_avx2(void *out, vb_dtype type, const float *x, int64_t n) {
    return quantize_body(out, type, x, n);
}
VB_TARGET_AVX512 static bool quantize_avx512(void *out, vb_dtype type, const float *x, int64_t n) {
    return quantize_body(out, type, x, n);
}
#else
#define quantize_avx2 quantize_plain
#define quantize_avx512 quantize_plain
#endif

typedef struct quantize_job {
    void *out;
    const float *in;
    vb_dtype type;
    vb_simd simd;
    atomic_bool bad;
} quantize_job;

static void quantize_range(void *context, int worker, int64_t begin, int64_t end) {
    (void)worker;
    static bool (*const quantize[VB_SIMD_LEVELS])(void *, vb_dtype, const float *, int64_t) = {
        quantize_plain, quantize_avx2, quantize_avx512};
    quantize_job *j = context;
    void *out = (char *)j->out + vb_bytes_of(j->type, begin);
    if (!quantize[j->simd](out, j->type, j->in + begin, end - begin)) atomic_store(&j->bad, true);
}

vb_status vb_cpu_quantize(void *out, vb_dtype type, const float *in, int64_t n, vb_stream *stream) {
    quantize_job job = {.out = out, .in = in, .type = type, .simd = vb_cpu_device_of(stream)->simd};
    vb_cpu_parallel(stream, n, 1 << 11, quantize_range, &job);
    if (!atomic_load(&job.bad)) return VB_OK;
    stream->invalid_argument = "in: a value is infinite, NaN, or too large for the scale of its block";
    return VB_INVALID_ARGUMENT;
}
