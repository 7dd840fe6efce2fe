/* cpu_quantize.c: float32 to blocks of Q4_0, Q8_0, Q4_K and Q6_K, as quant.h defines them. Codes and scales equal
 * ggml's reference quantizers bit for bit: every product and sum is rounded by itself, in ggml's order.
 *
 * The K-types search. A sub-block is tried with several steps. Each trial rounds the values to codes, and fits scale
 * and offset to these codes by weighted least squares. The trial with the smallest weighted error stays. Sub-blocks are
 * the lanes of vectors: each lane adds its values in ggml's order. */
#include <math.h>
#include <stdatomic.h>

#include "cpu.h"
#include "quant.h"

#ifdef __clang__
#pragma STDC FP_CONTRACT OFF /* gcc does not contract in -std=c11 */
#endif

#define LARGEST 1e9f /* no block holds more, and below it the sums of the searches stay finite */
#define TINY 1e-15f  /* ggml's GROUP_MAX_EPS: scales below it make a block of zeros */

/* To nearest, ties to even, of |x| < 2^22: added to 1.5 * 2^23, x leaves its integer in the low bits. Infinity and NaN,
 * of blocks of denormal values, give some integer, the same on every processor. */
VB_INLINE int32_t nearest(float x) {
    return (int32_t)(vb_float_bits(x + 12582912.0f) & 0x7fffff) - 0x400000;
}

VB_INLINE int32_t clamp(int32_t x, int32_t low, int32_t high) { return x < low ? low : x > high ? high : x; }

/* An infinite scale: of values that are too large for it. */
VB_INLINE bool infinite(vb_half h) { return (h & 0x7c00) == 0x7c00; }

/* The bits of |x|, which are in the order of magnitudes; NaN's are above infinity's. */
VB_INLINE int32_t magnitude(float x) { return (int32_t)(vb_float_bits(x) & 0x7fffffff); }

/* The largest of n values. */
VB_INLINE int32_t largest(const float *x, int n) {
    int32_t most = 0;
    for (int i = 0; i < n; i++) most = magnitude(x[i]) > most ? magnitude(x[i]) : most;
    return most;
}

VB_INLINE bool block_q4_0(vb_block_q4_0 *b, const float *x) {
    const int32_t most = largest(x, 32);
    int at = 0;
    while (magnitude(x[at]) != most) at++;
    const float d = x[at] / -8, inverse = d != 0 ? 1.0f / d : 0;
    b->d = vb_float_half(d);
    uint8_t q[32];
    for (int i = 0; i < 32; i++) {
        float v = x[i] * inverse + 8.5f; /* 0.5 up to 16.5; infinite or NaN where d is denormal */
        v = (v > 0) & (v < 17) ? v : 0;
        q[i] = (uint8_t)clamp((int32_t)v, 0, 15);
    }
    for (int i = 0; i < 16; i++) b->qs[i] = (uint8_t)(q[i] | q[i + 16] << 4);
    return !infinite(b->d);
}

/* To the nearest integer, halves away from 0, as roundf, in operations that compilers vectorize; 0 from 128 on and for
 * NaN, which come of blocks of denormal values. */
VB_INLINE int32_t half_away(float x) {
    x += x < 0 ? -0x1.fffffep-2f : 0x1.fffffep-2f;
    return (int32_t)(magnitude(x) < magnitude(128) ? x : 0);
}

VB_INLINE void block_q8_0(vb_block_q8_0 *b, const float *x) {
    const float d = vb_bits_float((uint32_t)largest(x, 32)) / 127.0f, inverse = d != 0 ? 1.0f / d : 0.0f;
    b->d = vb_float_half(d);
    for (int i = 0; i < 32; i++) b->qs[i] = (int8_t)half_away(x[i] * inverse);
}

/* ---- Q4_K: lane s of [32][8] is sub-block s ---------------------------------------------------------------------- */

/* A loop over lanes is one vector operation; gcc would unroll the loop before it sees the vector. */
#if defined(__GNUC__) && !defined(__clang__)
#define LANES(n) _Pragma("GCC unroll 1") for (int s = 0; s < n; s++)
#else
#define LANES(n) for (int s = 0; s < n; s++)
#endif

/* Codes of one step: nearest(inverse * (x - min)) in 0..15. */
VB_INLINE void codes_of(int32_t q[32][8], float x[32][8], const float *inverse, const float *min) {
    for (int i = 0; i < 32; i++)
        LANES(8) q[i][s] = clamp(nearest(inverse[s] * (x[i][s] - min[s])), 0, 15);
}

/* The weighted errors of codes. */
VB_INLINE void errors_of(float *error, int32_t q[32][8], float x[32][8], float weights[32][8], const float *scale,
                         const float *min) {
    LANES(8) error[s] = 0;
    for (int i = 0; i < 32; i++)
        LANES(8) {
            const float diff = scale[s] * (float)q[i][s] + min[s] - x[i][s];
            error[s] += weights[i][s] * (diff * diff);
        }
}

/* Finds codes 0..15 of the sub-blocks, whose values are scale * code - offset, offset >= 0. */
VB_INLINE void fit_offsets(int32_t q[32][8], float *scale, float *offset, float x[32][8], float weights[32][8]) {
    float min[8], max[8], low[8], high[8], sum_w[8], sum_x[8], inverse[8], best[8];
    LANES(8) {
        min[s] = max[s] = x[0][s];
        sum_w[s] = weights[0][s];
        sum_x[s] = weights[0][s] * x[0][s];
    }
    for (int i = 1; i < 32; i++)
        LANES(8) {
            min[s] = x[i][s] < min[s] ? x[i][s] : min[s];
            max[s] = x[i][s] > max[s] ? x[i][s] : max[s];
            sum_w[s] += weights[i][s];
            sum_x[s] += weights[i][s] * x[i][s];
        }
    LANES(8) {
        min[s] = min[s] > 0 ? 0 : min[s];
        low[s] = min[s], high[s] = max[s];
        inverse[s] = 15 / (max[s] - min[s]);
        scale[s] = 1 / inverse[s];
    }
    codes_of(q, x, inverse, min);
    errors_of(best, q, x, weights, scale, min);
    for (int step = 0; step <= 20; step++) {
        int32_t trial[32][8], better[8];
        float sum_q[8] = {0}, sum_qq[8] = {0}, sum_qx[8] = {0}, trial_scale[8], trial_min[8], error[8], determinant[8];
        const float range = -1.0f + 0.1f * (float)step + 15;
        LANES(8) inverse[s] = range / (max[s] - min[s]); /* of the best minimum so far */
        codes_of(trial, x, inverse, min);
        for (int i = 0; i < 32; i++)
            LANES(8) {
                const float code = (float)trial[i][s], wq = weights[i][s] * code;
                sum_q[s] += wq;
                sum_qq[s] += wq * code;
                sum_qx[s] += wq * x[i][s];
            }
        LANES(8) {
            determinant[s] = sum_w[s] * sum_qq[s] - sum_q[s] * sum_q[s];
            const float by_both = (sum_w[s] * sum_qx[s] - sum_x[s] * sum_q[s]) / determinant[s];
            const float least = (sum_qq[s] * sum_x[s] - sum_q[s] * sum_qx[s]) / determinant[s];
            const float alone = sum_qx[s] / sum_qq[s];
            trial_scale[s] = least > 0 ? alone : by_both;
            trial_min[s] = least > 0 ? 0 : least;
        }
        errors_of(error, trial, x, weights, trial_scale, trial_min);
        LANES(8) {
            better[s] = (determinant[s] > 0) & (error[s] < best[s]);
            best[s] = better[s] ? error[s] : best[s];
            scale[s] = better[s] ? trial_scale[s] : scale[s];
            min[s] = better[s] ? trial_min[s] : min[s];
        }
        for (int i = 0; i < 32; i++)
            LANES(8) q[i][s] = better[s] ? trial[i][s] : q[i][s];
    }
    LANES(8) {
        offset[s] = -min[s];
        if (low[s] != high[s]) continue;
        offset[s] = -low[s]; /* all values are alike, and negative or 0 */
        scale[s] = 0;
        for (int i = 0; i < 32; i++) q[i][s] = 0;
    }
}

VB_INLINE bool block_q4_k(vb_block_q4_k *b, const float *values) {
    int32_t q[32][8];
    float x[32][8], weights[32][8], squares[8] = {0}, scales[8], offsets[8], max_scale = 0, max_offset = 0;
    for (int i = 0; i < 32; i++)
        LANES(8) x[i][s] = values[32 * s + i];
    for (int i = 0; i < 32; i++)
        LANES(8) squares[s] += x[i][s] * x[i][s];
    LANES(8) squares[s] = sqrtf(squares[s] / 32);
    for (int i = 0; i < 32; i++)
        LANES(8) weights[i][s] = squares[s] + fabsf(x[i][s]);
    fit_offsets(q, scales, offsets, x, weights);
    LANES(8) {
        max_scale = scales[s] > max_scale ? scales[s] : max_scale;
        max_offset = offsets[s] > max_offset ? offsets[s] : max_offset;
    }
    const float by_scale = max_scale > 0 ? 63.0f / max_scale : 0, by_offset = max_offset > 0 ? 63.0f / max_offset : 0;
    memset(b->scales, 0, sizeof b->scales);
    LANES(8) {
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
    float d[8], min[8];
    LANES(8) {
        int scale, offset;
        vb_k4_scale(b->scales, s, &scale, &offset);
        d[s] = vb_half_float(b->d) * (float)scale, min[s] = vb_half_float(b->dmin) * (float)offset;
    }
    for (int i = 0; i < 32; i++)
        LANES(8) { /* where d is 0, the codes of the search stay */
            const int32_t code = clamp(nearest((x[i][s] + min[s]) / d[s]), 0, 15);
            q[i][s] = d[s] != 0 ? code : q[i][s];
        }
    for (int s = 0; s < 8; s += 2)
        for (int i = 0; i < 32; i++) b->qs[16 * s + i] = (uint8_t)(q[i][s] | q[i][s + 1] << 4);
    return !infinite(b->d) && !infinite(b->dmin);
}

/* ---- Q6_K: lane s of [16][16] is sub-block s --------------------------------------------------------------------- */

/* Finds codes 0..63 of the sub-blocks, whose values are scale * (code - 32); their weights are their squares. */
VB_INLINE void fit_scales(int32_t q[16][16], float *scale, float x[16][16]) {
    float most[16] = {0}, max[16] = {0}, best[16] = {0};
    for (int i = 0; i < 16; i++)
        LANES(16) {
            const float a = fabsf(x[i][s]);
            max[s] = a > most[s] ? x[i][s] : max[s];
            most[s] = a > most[s] ? a : most[s];
        }
    for (int trial = 0; trial < 19; trial++) {
        const int step = trial == 0 ? 0 : trial <= 9 ? trial - 10 : trial - 9; /* 0, -9..-1, 1..9 */
        int32_t codes[16][16], better[16];
        float inverse[16], sum_qx[16] = {0}, sum_qq[16] = {0};
        LANES(16) inverse[s] = -(32 + 0.1f * (float)step) / max[s];
        for (int i = 0; i < 16; i++)
            LANES(16) {
                const float w = x[i][s] * x[i][s];
                codes[i][s] = clamp(nearest(inverse[s] * x[i][s]), -32, 31);
                sum_qx[s] += w * x[i][s] * (float)codes[i][s];
                sum_qq[s] += w * (float)codes[i][s] * (float)codes[i][s];
            }
        LANES(16) {
            const float fitted = sum_qx[s] / sum_qq[s], fit = sum_qq[s] != 0 ? fitted : 0;
            better[s] = (trial == 0) | ((sum_qq[s] > 0) & (sum_qx[s] * sum_qx[s] > best[s] * sum_qq[s]));
            scale[s] = better[s] ? fit : scale[s];
            best[s] = better[s] ? fit * sum_qx[s] : best[s];
        }
        for (int i = 0; i < 16; i++)
            LANES(16) q[i][s] = better[s] ? codes[i][s] + 32 : q[i][s];
    }
    for (int i = 0; i < 16; i++)
        LANES(16) q[i][s] = most[s] < TINY ? 0 : q[i][s];
    LANES(16) scale[s] = most[s] < TINY ? 0 : scale[s];
}

VB_INLINE bool block_q6_k(vb_block_q6_k *b, const float *values) {
    int32_t q[16][16] = {{0}};
    float x[16][16], scales[16] = {0}, d[16], most = 0, max = 0;
    for (int i = 0; i < 16; i++)
        LANES(16) x[i][s] = values[16 * s + i];
    fit_scales(q, scales, x);
    LANES(16) if (fabsf(scales[s]) > most) most = fabsf(scales[s]), max = scales[s];
    memset(b, 0, sizeof *b);
    if (most < TINY) return true;
    const float inverse = -128.0f / max;
    b->d = vb_float_half(1 / inverse);
    LANES(16) {
        const int32_t scale = nearest(inverse * scales[s]);
        b->scales[s] = (int8_t)(scale < 127 ? scale : 127);
        d[s] = vb_half_float(b->d) * (float)b->scales[s];
    }
    uint8_t codes[256];
    for (int i = 0; i < 16; i++)
        LANES(16) { /* where d is 0, the codes of the search stay */
            const int32_t code = clamp(nearest(x[i][s] / d[s]), -32, 31) + 32;
            codes[16 * s + i] = (uint8_t)(d[s] != 0 ? code : q[i][s]);
        }
    for (int half = 0; half < 2; half++)
        for (int l = 0; l < 32; l++) {
            const uint8_t *v = codes + 128 * half + l;
            b->ql[64 * half + l] = (uint8_t)((v[0] & 15) | (v[64] & 15) << 4);
            b->ql[64 * half + 32 + l] = (uint8_t)((v[32] & 15) | (v[96] & 15) << 4);
            b->qh[32 * half + l] = (uint8_t)(v[0] >> 4 | v[32] >> 4 << 2 | v[64] >> 4 << 4 | v[96] >> 4 << 6);
        }
    return !infinite(b->d);
}

/* Quantizes n values; false where a value is infinite or NaN, or too large for the half-precision scale of its
 * block. */
VB_INLINE bool quantize_body(void *out, vb_dtype type, const float *x, int64_t n) {
    bool good = true;
    for (int64_t i = 0; i < n; i += 32) good &= largest(x + i, 32) <= magnitude(LARGEST);
    if (!good) return false;
    switch (type) {
    case VB_Q4_0:
        for (int64_t i = 0; i < n / 32; i++) good &= block_q4_0((vb_block_q4_0 *)out + i, x + 32 * i);
        return good;
    case VB_Q8_0:
        for (int64_t i = 0; i < n / 32; i++) {
            block_q8_0((vb_block_q8_0 *)out + i, x + 32 * i);
            good &= !infinite(((vb_block_q8_0 *)out)[i].d);
        }
        return good;
    case VB_Q4_K:
        for (int64_t i = 0; i < n / 256; i++) good &= block_q4_k((vb_block_q4_k *)out + i, x + 256 * i);
        return good;
    default: /* VB_Q6_K: ops.c lets no other pass */
        for (int64_t i = 0; i < n / 256; i++) good &= block_q6_k((vb_block_q6_k *)out + i, x + 256 * i);
        return good;
    }
}

void vb_cpu_quantize_q8_0(void *out, const float *in, int64_t n) {
    for (int64_t i = 0; i < n / VB_QK; i++) block_q8_0((vb_block_q8_0 *)out + i, in + VB_QK * i);
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
