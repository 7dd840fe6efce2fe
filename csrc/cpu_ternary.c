/* cpu_ternary.c: rounding activations to int8, and products of int8 activations with ternary weights.
 *
 * A weight row is read in vectors of 64 bytes, whose four two-bit slots are masked out in place: 64 codes 0..3 a
 * slot. The activations are laid out once a call so that the bytes of a vector meet those codes: [vector][slot][64].
 * The layout of the weights is then a matter of that order alone. A code counts one too many: sum(code * a) -
 * sum(a). */
#include <math.h>

#include "cpu.h"
#include "int2.h"

#if VB_X86
#include <immintrin.h>
#endif

/* ---- norm_quantize ----------------------------------------------------------------------------------------------- */

/* h = activation(in, up); *squares = the sum of h^2. */
VB_INLINE void gated_body(float *restrict h, float *squares, const float *in, const float *up,
                          vb_activation activation, int64_t n) {
    enum { LANES = 16 };
    float lanes[LANES] = {0};
    if (!up)
        memcpy(h, in, (size_t)n * 4);
    else if (activation == VB_SILU)
        for (int64_t i = 0; i < n; i++) h[i] = in[i] / (1.0f + vb_expf(-in[i])) * up[i];
    else
        for (int64_t i = 0; i < n; i++) {
            const float g = in[i] < 0 ? 0 : in[i]; /* NaN stays */
            h[i] = g * g * up[i];
        }
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int l = 0; l < LANES; l++) lanes[l] += h[i + l] * h[i + l];
    for (int l = 0; i < n; i++, l++) lanes[l] += h[i] * h[i];
    double sum = 0;
    for (int l = 0; l < LANES; l++) sum += lanes[l];
    *squares = (float)sum;
}
VB_TWINS(gated, (float *h, float *squares, const float *in, const float *up, vb_activation activation, int64_t n),
         (h, squares, in, up, activation, n));

VB_INLINE void scale_norm_body(float *restrict h, float factor, const float *norm, int64_t n) {
    if (norm)
        for (int64_t i = 0; i < n; i++) h[i] = h[i] * factor * norm[i];
    else
        for (int64_t i = 0; i < n; i++) h[i] *= factor;
}
VB_TWINS(scale_norm, (float *h, float factor, const float *norm, int64_t n), (h, factor, norm, n));

VB_INLINE void to_codes_body(int8_t *restrict codes, float *scale, const float *restrict h, int64_t n) {
    enum { LANES = 16 };
    float lanes[LANES];
    int32_t nan = 0;
    for (int l = 0; l < LANES; l++) lanes[l] = 1e-5f;
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int l = 0; l < LANES; l++) {
            const float a = vb_bits_float(vb_float_bits(h[i + l]) & 0x7fffffff);
            lanes[l] = a > lanes[l] ? a : lanes[l];
            nan |= a != a;
        }
    for (int l = 0; i < n; i++, l++) {
        const float a = vb_bits_float(vb_float_bits(h[i]) & 0x7fffffff);
        lanes[l] = a > lanes[l] ? a : lanes[l];
        nan |= a != a;
    }
    float most = lanes[0];
    for (int l = 1; l < LANES; l++) most = lanes[l] > most ? lanes[l] : most;
    const float s = nan ? NAN : 127.0f / most;
    *scale = s;
    /* adding 1.5 * 2^23 rounds to the nearest integer, ties to even, in the low bits */
    for (int64_t j = 0; j < n; j++) {
        const float x = nan ? 0.0f : h[j] * s;
        codes[j] = (int8_t)(int32_t)(vb_float_bits(x + 0x1.8p23f) - 0x4b400000u);
    }
}
VB_TWINS(to_codes, (int8_t *codes, float *scale, const float *h, int64_t n), (codes, scale, h, n));

typedef struct quantize_job {
    const vb_norm_quantize_args *a;
    float *h; /* [workers][cols] */
    vb_simd simd;
} quantize_job;

static void quantize_range(void *context, int worker, int64_t begin, int64_t end) {
    const quantize_job *j = context;
    const vb_norm_quantize_args *a = j->a;
    float *h = j->h + worker * a->cols;
    for (int64_t r = begin; r < end; r++) {
        float squares;
        gated[j->simd](h, &squares, a->in + r * a->cols, a->up ? a->up + r * a->cols : NULL, a->activation, a->cols);
        if (a->normed) scale_norm[j->simd](h, 1.0f / sqrtf(squares / (float)a->cols + a->eps), a->norm, a->cols);
        to_codes[j->simd]((int8_t *)a->codes + r * a->cols, a->scales + r, h, a->cols);
    }
}

vb_status vb_cpu_norm_quantize(const vb_norm_quantize_args *args, vb_stream *stream) {
    int64_t bytes;
    if (__builtin_mul_overflow(vb_cpu_pool_threads(vb_cpu_device_of(stream)->pool) * (int64_t)sizeof(float),
                               args->cols, &bytes))
        return VB_OUT_OF_MEMORY;
    quantize_job job = {args, vb_cpu_scratch(stream, bytes), vb_cpu_device_of(stream)->simd};
    if (!job.h) return VB_OUT_OF_MEMORY;
    vb_cpu_parallel(stream, args->rows, vb_cpu_grain(args->cols), quantize_range, &job);
    return VB_OK;
}

VB_INLINE void divided_body(float *restrict out, const int8_t *restrict codes, float scale, int64_t n) {
    for (int64_t i = 0; i < n; i++) out[i] = (float)codes[i] / scale;
}
VB_TWINS(divided, (float *out, const int8_t *codes, float scale, int64_t n), (out, codes, scale, n));

typedef struct dequantize_job {
    float *out;
    const int8_t *codes;
    const float *scales;
    int64_t cols;
    vb_simd simd;
} dequantize_job;

static void dequantize_range(void *context, int worker, int64_t begin, int64_t end) {
    (void)worker;
    const dequantize_job *j = context;
    for (int64_t r = begin; r < end; r++)
        divided[j->simd](j->out + r * j->cols, j->codes + r * j->cols, j->scales[r], j->cols);
}

vb_status vb_cpu_dequantize_rows(float *out, const void *codes, const float *scales, int64_t rows, int64_t cols,
                                 vb_stream *stream) {
    dequantize_job job = {out, codes, scales, cols, vb_cpu_device_of(stream)->simd};
    vb_cpu_parallel(stream, rows, vb_cpu_grain(cols), dequantize_range, &job);
    return VB_OK;
}

/* ---- w2a8_gemv --------------------------------------------------------------------------------------------------- */

/* Bytes of a vector, rows of activations that meet a vector of weights in registers, and that stay in the cache. */
enum { VECTOR = 64, TILE = 4, BLOCK = 16 };

/* sums[i] = sum(code * a) of one weight row with `n` <= TILE rows of activations, each `vectors` * 4 * VECTOR bytes. */
VB_INLINE void dots_body(int32_t *restrict sums, const uint8_t *restrict w, int64_t row_bytes,
                         const int8_t *restrict x, int64_t vectors, int n) {
    for (int i = 0; i < n; i++) sums[i] = 0;
    uint8_t last[VECTOR] = {0};
    for (int64_t v = 0; v < vectors; v++) {
        const uint8_t *at = w + v * VECTOR;
        if (v * VECTOR + VECTOR > row_bytes) at = memcpy(last, at, (size_t)(row_bytes - v * VECTOR));
        for (int i = 0; i < n; i++) {
            const int8_t *a = x + (i * vectors + v) * 4 * VECTOR;
            int32_t sum = 0;
            for (int slot = 0; slot < 4; slot++)
                for (int b = 0; b < VECTOR; b++) sum += (at[b] >> 2 * slot & 3) * a[slot * VECTOR + b];
            sums[i] += sum;
        }
    }
}

typedef void (*dots_function)(int32_t *sums, const uint8_t *w, int64_t row_bytes, const int8_t *x, int64_t vectors,
                              int n);

static void dots_plain(int32_t *sums, const uint8_t *w, int64_t row_bytes, const int8_t *x, int64_t vectors, int n) {
    dots_body(sums, w, row_bytes, x, vectors, n);
}

#if VB_X86
/* Pairs of products are at most 2 * 3 * 128 in int16, and eight of these are added before they are widened. */
#define DOTS_AVX2(N) \
    VB_TARGET_AVX2 static void dots_avx2_##N(int32_t *sums, const uint8_t *w, int64_t row_bytes, const int8_t *x, \
                                             int64_t vectors) { \
        const __m256i mask = _mm256_set1_epi8(3), ones = _mm256_set1_epi16(1); \
        __m256i sum[N]; \
        for (int i = 0; i < N; i++) sum[i] = _mm256_setzero_si256(); \
        uint8_t last[VECTOR] = {0}; \
        for (int64_t v = 0; v < vectors; v++) { \
            const uint8_t *at = w + v * VECTOR; \
            if (v * VECTOR + VECTOR > row_bytes) at = memcpy(last, at, (size_t)(row_bytes - v * VECTOR)); \
            const __m256i low = _mm256_loadu_si256((const __m256i *)at), \
                high = _mm256_loadu_si256((const __m256i *)at + 1); \
            __m256i pairs[N]; \
            for (int i = 0; i < N; i++) pairs[i] = _mm256_setzero_si256(); \
            _Pragma("GCC unroll 4") for (int slot = 0; slot < 4; slot++) { \
                const __m256i p = _mm256_and_si256(_mm256_srli_epi16(low, 2 * slot), mask), \
                              q = _mm256_and_si256(_mm256_srli_epi16(high, 2 * slot), mask); \
                for (int i = 0; i < N; i++) { \
                    const __m256i *a = (const __m256i *)(x + ((i * vectors + v) * 4 + slot) * VECTOR); \
                    pairs[i] = _mm256_add_epi16(pairs[i], _mm256_maddubs_epi16(p, _mm256_load_si256(a))); \
                    pairs[i] = _mm256_add_epi16(pairs[i], _mm256_maddubs_epi16(q, _mm256_load_si256(a + 1))); \
                } \
            } \
            for (int i = 0; i < N; i++) sum[i] = _mm256_add_epi32(sum[i], _mm256_madd_epi16(pairs[i], ones)); \
        } \
        for (int i = 0; i < N; i++) { \
            __m128i s = _mm_add_epi32(_mm256_castsi256_si128(sum[i]), _mm256_extracti128_si256(sum[i], 1)); \
            s = _mm_add_epi32(s, _mm_shuffle_epi32(s, 0x4e)); \
            s = _mm_add_epi32(s, _mm_shuffle_epi32(s, 0xb1)); \
            sums[i] = _mm_cvtsi128_si32(s); \
        } \
    }
DOTS_AVX2(1)
DOTS_AVX2(4)

#define DOTS_AVX512(N) \
    VB_TARGET_AVX512 static void dots_avx512_##N(int32_t *sums, const uint8_t *w, int64_t row_bytes, \
                                                 const int8_t *x, int64_t vectors) { \
        const __m512i mask = _mm512_set1_epi8(3); \
        __m512i sum[N], more[N]; \
        for (int i = 0; i < N; i++) sum[i] = more[i] = _mm512_setzero_si512(); \
        for (int64_t v = 0; v < vectors; v++) { \
            const int64_t left = row_bytes - v * VECTOR; \
            const __m512i codes = left >= VECTOR ? _mm512_loadu_si512(w + v * VECTOR) \
                                                 : _mm512_maskz_loadu_epi8((1ull << left) - 1, w + v * VECTOR); \
            _Pragma("GCC unroll 4") for (int slot = 0; slot < 4; slot++) { \
                const __m512i q = _mm512_and_si512(_mm512_srli_epi16(codes, 2 * slot), mask); \
                for (int i = 0; i < N; i++) { \
                    const __m512i a = _mm512_load_si512(x + ((i * vectors + v) * 4 + slot) * VECTOR); \
                    if (slot % 2) \
                        more[i] = _mm512_dpbusd_epi32(more[i], q, a); \
                    else \
                        sum[i] = _mm512_dpbusd_epi32(sum[i], q, a); \
                } \
            } \
        } \
        for (int i = 0; i < N; i++) sums[i] = _mm512_reduce_add_epi32(_mm512_add_epi32(sum[i], more[i])); \
    }
DOTS_AVX512(1)
DOTS_AVX512(4)

#define DOTS(level) \
    static void dots_##level(int32_t *sums, const uint8_t *w, int64_t row_bytes, const int8_t *x, int64_t vectors, \
                             int n) { \
        if (n == TILE) \
            dots_##level##_4(sums, w, row_bytes, x, vectors); \
        else \
            for (int i = 0; i < n; i++) \
                dots_##level##_1(sums + i, w, row_bytes, x + i * vectors * 4 * VECTOR, vectors); \
    }
DOTS(avx2)
DOTS(avx512)
static const dots_function dots[VB_SIMD_LEVELS] = {dots_plain, dots_avx2, dots_avx512};
#else
static const dots_function dots[VB_SIMD_LEVELS] = {dots_plain, dots_plain, dots_plain};
#endif

typedef struct gemv_job {
    const vb_w2a8_gemv_args *a;
    int8_t *x;       /* [m][vectors][4][VECTOR] */
    int32_t *totals; /* [m]: of the activations */
    int64_t vectors; /* of a weight row */
    vb_simd simd;
} gemv_job;

/* The first element of the four that meet bytes x..x + 3 of a weight row in a slot, where they lie as in the layout;
 * k where none do. */
static int64_t elements_at(vb_int2_layout layout, int64_t x, int slot, int64_t k) {
    const int64_t pieces = vb_int2_run_pieces(x / 128 * VB_INT2_RUN, k), piece = x % 128 / 16;
    if (layout != VB_INT2_INTERLEAVED || piece >= pieces) return k;
    return vb_min(x / 128 * VB_INT2_RUN + 16 * (piece + pieces * (x % 16 / 4)) + 4 * slot, k);
}

static void arrange_range(void *context, int worker, int64_t begin, int64_t end) {
    (void)worker;
    const gemv_job *j = context;
    const int64_t k = j->a->k;
    for (int64_t i = begin; i < end; i++) {
        const int8_t *from = (const int8_t *)j->a->activations + i * k;
        int8_t *to = j->x + i * j->vectors * 4 * VECTOR;
        int32_t total = 0;
        for (int64_t c = 0; c < k; c++) total += from[c];
        j->totals[i] = total;
        memset(to, 0, (size_t)(j->vectors * 4 * VECTOR));
        if (j->a->layout == VB_INT2_ROWS) {
            for (int64_t c = 0; c < k; c++) to[(c / 4 / VECTOR * 4 + c % 4) * VECTOR + c / 4 % VECTOR] = from[c];
            continue;
        }
        for (int64_t x = 0; x < j->a->row_bytes; x += 4)
            for (int slot = 0; slot < 4; slot++) {
                const int64_t at = elements_at(j->a->layout, x, slot, k);
                if (at < k) memcpy(to + (x / VECTOR * 4 + slot) * VECTOR + x % VECTOR, from + at, 4);
            }
    }
}

static float scale_of(const vb_w2a8_gemv_args *a, int64_t r) {
    if (!a->weight_scales) return 1.0f;
    if (!a->segment_ends) return a->weight_scales[r * a->segments / a->n];
    int64_t s = 0;
    while (s + 1 < a->segments && r >= a->segment_ends[s]) s++;
    return a->weight_scales[s];
}

static void store(const vb_w2a8_gemv_args *a, int64_t i, int64_t r, int32_t sum, float scale) {
    const int64_t at = i * a->n + r;
    if (a->out_type == VB_I32) {
        ((int32_t *)a->out)[at] = sum;
        return;
    }
    float v = (float)sum;
    if (a->activation_scales) v /= a->activation_scales[i];
    v *= scale;
    if (a->bias) v += a->bias[r];
    if (a->add) v += a->add[at];
    switch (a->out_type) {
    case VB_F16: ((uint16_t *)a->out)[at] = vb_float_half(v); break;
    case VB_BF16: ((uint16_t *)a->out)[at] = vb_float_bfloat(v); break;
    default: ((float *)a->out)[at] = v;
    }
}

static void gemv_range(void *context, int worker, int64_t begin, int64_t end) {
    (void)worker;
    const gemv_job *j = context;
    const vb_w2a8_gemv_args *a = j->a;
    for (int64_t block = 0; block < a->m; block += BLOCK)
        for (int64_t r = begin; r < end; r++) {
            const uint8_t *w = (const uint8_t *)a->weights + r * a->row_bytes;
            const float scale = scale_of(a, r);
            for (int64_t i = block; i < vb_min(block + BLOCK, a->m); i += TILE) {
                const int n = (int)vb_min(TILE, a->m - i);
                int32_t sums[TILE];
                dots[j->simd](sums, w, a->row_bytes, j->x + i * j->vectors * 4 * VECTOR, j->vectors, n);
                for (int c = 0; c < n; c++) store(a, i + c, r, sums[c] - j->totals[i + c], scale);
            }
        }
}

vb_status vb_cpu_w2a8_gemv(const vb_w2a8_gemv_args *args, vb_stream *stream) {
    gemv_job job = {.a = args, .simd = vb_cpu_device_of(stream)->simd};
    job.vectors = (args->row_bytes + VECTOR - 1) / VECTOR;
    int64_t bytes;
    if (__builtin_mul_overflow(job.vectors * 4 * VECTOR + 4, args->m, &bytes)) return VB_OUT_OF_MEMORY;
    job.x = vb_cpu_scratch(stream, bytes + 4);
    if (!job.x) return VB_OUT_OF_MEMORY;
    job.totals = (int32_t *)(job.x + args->m * job.vectors * 4 * VECTOR);
    vb_cpu_parallel(stream, args->m, vb_cpu_grain(args->k), arrange_range, &job);
    /* rows of 16 KiB: small against the whole */
    const int64_t grain = vb_max(1, vb_min(64, (16 << 10) / vb_max(args->row_bytes, 1)));
    vb_cpu_parallel(stream, args->n, grain, gemv_range, &job);
    return VB_OK;
}
