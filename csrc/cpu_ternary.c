/* cpu_ternary.c: rounding activations to int8, and products of int8 activations with ternary weights.
 *
 * Activations are laid out once a call so that they meet the codes of a row as these lie (cpu_codes.h). The layout of
 * the weights is then a matter of that order alone. A code counts one too many: sum(code * a) - sum(a). */
#include <math.h>

#include "cpu_codes.h"
#include "int2.h"

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
    int32_t bits = 0; /* of the greatest absolute value, or of a NaN, which are above those of an infinity */
    for (int64_t i = 0; i < n; i++) {
        const int32_t size = (int32_t)(vb_float_bits(h[i]) & 0x7fffffff);
        bits = size > bits ? size : bits;
    }
    const float greatest = vb_bits_float((uint32_t)bits);
    if (greatest != greatest) {
        *scale = NAN;
        memset(codes, 0, (size_t)n);
        return;
    }
    const float s = *scale = 127.0f / (greatest > 1e-5f ? greatest : 1e-5f);
    /* adding 1.5 * 2^23 rounds to the nearest integer, ties to even, in the low bits */
    for (int64_t i = 0; i < n; i++)
        codes[i] = (int8_t)(int32_t)(vb_float_bits(h[i] * s + 0x1.8p23f) - 0x4b400000u);
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

/* Rows of activations that stay in the cache. */
enum { BLOCK = 16 };

typedef struct gemv_job {
    const vb_w2a8_gemv_args *a;
    int8_t *x;       /* [m][vectors][VB_CODES_X], of vb_codes_place_of */
    int8_t *tiles;   /* the same as tiles, NULL for none */
    int32_t *totals; /* [m]: of the activations */
    int64_t vectors; /* of a weight row */
    vb_simd simd;
} gemv_job;

/* Words of codes lie in pieces of 16 bytes, whose words are interleaved over a run (int2.h). */
static void arrange_interleaved(int8_t *to, int64_t step, const int8_t *from, int64_t k) {
    for (int64_t first = 0; first < k; first += VB_INT2_RUN) {
        const int64_t pieces = vb_int2_run_pieces(first, k);
        for (int64_t word = 0; word < 4 * pieces; word++) {
            const int64_t at = first + 16 * word, x = first / 4 + word % pieces * 16 + word / pieces * 4;
            int8_t *slots = to + x / VB_CODES_VECTOR * step * VB_CODES_X + x % VB_CODES_VECTOR;
            for (int slot = 0; slot < 4 && at + 4 * slot < k; slot++)
                memcpy(slots + slot * VB_CODES_VECTOR, from + at + 4 * slot, 4);
        }
    }
}

static void arrange_range(void *context, int worker, int64_t begin, int64_t end) {
    (void)worker;
    const gemv_job *j = context;
    const int64_t k = j->a->k;
    for (int64_t i = begin; i < end; i++) {
        const int8_t *from = (const int8_t *)j->a->activations + i * k;
        const vb_codes_place place = vb_codes_place_of(i, j->a->m, j->vectors, j->simd);
        int8_t *to = j->x + place.first * VB_CODES_X;
        int32_t total = 0;
        for (int64_t c = 0; c < k; c++) total += from[c];
        j->totals[i] = total;
        for (int64_t v = 0; v < j->vectors; v++) memset(to + v * place.step * VB_CODES_X, 0, VB_CODES_X);
        if (j->a->layout == VB_INT2_INTERLEAVED)
            arrange_interleaved(to, place.step, from, k);
        else
            vb_codes_arrange(to, place.step, from, k, j->simd);
    }
}

static float scale_of(const vb_w2a8_gemv_args *a, int64_t r) {
    if (!a->weight_scales) return 1.0f;
    if (a->segments == 1) return a->weight_scales[0];
    if (!a->segment_ends) return a->weight_scales[r * a->segments / a->n];
    int64_t s = 0;
    while (s + 1 < a->segments && r >= a->segment_ends[s]) s++;
    return a->weight_scales[s];
}

/* Results r to r + FOUR - 1, of which `live` are there, of row i of the activations: their sums and scales. */
enum { FOUR = 4 };
static void store_four(const vb_w2a8_gemv_args *a, int64_t i, int64_t r, int live, const int32_t sums[FOUR],
                       const float scales[FOUR]) {
    const int64_t at = i * a->n + r;
    if (a->out_type == VB_I32) {
        memcpy((int32_t *)a->out + at, sums, (size_t)live * 4);
        return;
    }
    float v[FOUR];
    for (int c = 0; c < FOUR; c++) v[c] = (float)sums[c];
    if (a->activation_scales)
        for (int c = 0; c < FOUR; c++) v[c] /= a->activation_scales[i];
    for (int c = 0; c < FOUR; c++) v[c] *= scales[c];
    if (a->bias)
        for (int c = 0; c < live; c++) v[c] += a->bias[r + c];
    if (a->add)
        for (int c = 0; c < live; c++) v[c] += a->add[at + c];
    if (a->out_type == VB_F32)
        memcpy((float *)a->out + at, v, (size_t)live * 4);
    else
        for (int c = 0; c < live; c++)
            ((uint16_t *)a->out)[at + c] = a->out_type == VB_F16 ? vb_float_half(v[c]) : vb_float_bfloat(v[c]);
}

/* Results of `rows` rows of weights from r on. Their sums lie `stride` apart, of which `total` is one too many. */
static void store(const vb_w2a8_gemv_args *a, int64_t i, int64_t r, int rows, const int32_t *sums, int stride,
                  int32_t total, const float *scales) {
    int c = 0;
    for (; c + FOUR <= rows; c += FOUR, sums += FOUR * stride) {
        const int32_t four[FOUR] = {sums[0] - total, sums[stride] - total, sums[2 * stride] - total,
                                    sums[3 * stride] - total};
        store_four(a, i, r + c, FOUR, four, scales + c);
    }
    if (c == rows) return;
    int32_t last[FOUR] = {0};
    float last_scales[FOUR] = {0};
    for (int b = 0; c + b < rows; b++) last[b] = sums[b * stride] - total, last_scales[b] = scales[c + b];
    store_four(a, i, r + c, rows - c, last, last_scales);
}

static void to_tiles_range(void *context, int worker, int64_t begin, int64_t end) {
    (void)worker;
    const gemv_job *j = context;
    const int64_t row = j->vectors * VB_CODES_X;
    for (int64_t t = begin; t < end; t++) {
        const int64_t at = t * VB_CODES_TILE_SIZE;
        vb_codes_to_tiles(j->tiles + at * row, j->x + at * row, row, (int)vb_min(VB_CODES_TILE_SIZE, j->a->m - at));
    }
}

static void gemv_tiles_range(void *context, int worker, int64_t begin, int64_t end) {
    (void)worker;
    const gemv_job *j = context;
    const vb_w2a8_gemv_args *a = j->a;
    for (int64_t i = 0; i < a->m; i += VB_CODES_MOST)
        for (int64_t r = begin; r < end; r += VB_CODES_TILE_SIZE) {
            const int rows = (int)vb_min(VB_CODES_TILE_SIZE, end - r), n = (int)vb_min(VB_CODES_MOST, a->m - i);
            int32_t sums[VB_CODES_TILE_SIZE][VB_CODES_MOST];
            vb_cpu_code_tiles(sums, (const uint8_t *)a->weights + r * a->row_bytes, a->row_bytes, a->row_bytes, rows,
                              j->tiles + i * j->vectors * VB_CODES_X, n);
            float scales[VB_CODES_TILE_SIZE];
            for (int c = 0; c < rows; c++) scales[c] = scale_of(a, r + c);
            for (int t = 0; t < n; t++)
                store(a, i + t, r, rows, &sums[0][t], VB_CODES_MOST, j->totals[i + t], scales);
        }
}

static void gemv_range(void *context, int worker, int64_t begin, int64_t end) {
    (void)worker;
    const gemv_job *j = context;
    const vb_w2a8_gemv_args *a = j->a;
    for (int64_t block = 0; block < a->m; block += BLOCK)
        for (int64_t r = begin; r < end; r += VB_CODES_ROWS) {
            const int rows = (int)vb_min(VB_CODES_ROWS, end - r);
            float scales[VB_CODES_ROWS];
            for (int c = 0; c < rows; c++) scales[c] = scale_of(a, r + c);
            for (int64_t i = block; i < vb_min(block + BLOCK, a->m); i += VB_CODES_TILE) {
                const int n = (int)vb_min(VB_CODES_TILE, a->m - i);
                int32_t sums[VB_CODES_ROWS][VB_CODES_TILE];
                vb_cpu_code_sums(sums, (const uint8_t *)a->weights + r * a->row_bytes, a->row_bytes, a->row_bytes, rows,
                                 j->x + i * j->vectors * VB_CODES_X, n, j->simd);
                for (int t = 0; t < n; t++)
                    store(a, i + t, r, rows, &sums[0][t], VB_CODES_TILE, j->totals[i + t], scales);
            }
        }
}

#if VB_X86
/* The same with AVX2: a group of rows of activations at a time, as much of them as stays in the first cache. */
static void panels_range(void *context, int worker, int64_t begin, int64_t end) {
    enum { ROWS = VB_CODES_PANEL_ROWS, NEAR = 896 }; /* bytes of a row of codes that eight of them meet */
    (void)worker;
    const gemv_job *j = context;
    const vb_w2a8_gemv_args *a = j->a;
    const int64_t bytes = vb_codes_panel_bytes(a->row_bytes, a->m < 8 ? vb_max(a->row_bytes, 1) : NEAR);
    for (int64_t r = begin; r < end; r += ROWS) {
        const int rows = (int)vb_min(ROWS, end - r);
        float scales[ROWS];
        for (int c = 0; c < rows; c++) scales[c] = scale_of(a, r + c);
        int n;
        for (int64_t i = 0; i < a->m; i += n) {
            n = vb_codes_group(a->m - i);
            int32_t all[ROWS * VB_CODES_TILE] = {0}, sums[ROWS * VB_CODES_TILE];
            for (int64_t b = 0; b < a->row_bytes; b += bytes) {
                vb_cpu_code_panel(sums, (const uint8_t *)a->weights + r * a->row_bytes + b, a->row_bytes,
                                  vb_min(bytes, a->row_bytes - b), rows,
                                  j->x + (i * j->vectors + b / VB_CODES_VECTOR * n) * VB_CODES_X, n);
                for (int s = 0; s < rows * n; s++) all[s] += sums[s];
            }
            for (int t = 0; t < n; t++) store(a, i + t, r, rows, all + t, n, j->totals[i + t], scales);
        }
    }
}
#endif

static void lines_range(void *context, int worker, int64_t begin, int64_t end) {
    enum { LINES = 64 };
    (void)worker;
    const gemv_job *j = context;
    const vb_w2a8_gemv_args *a = j->a;
    for (int64_t row = begin; row < end; row += LINES) {
        const int rows = (int)vb_min(LINES, end - row);
        int32_t sums[LINES];
        vb_cpu_code_lines(sums, (const uint8_t *)a->weights + row * a->row_bytes, a->row_bytes, a->row_bytes, rows,
                          j->x, j->simd);
        float scales[LINES];
        for (int r = 0; r < rows; r++) scales[r] = scale_of(a, row + r);
        store(a, 0, row, rows, sums, 1, j->totals[0], scales);
    }
}

vb_status vb_cpu_w2a8_gemv(const vb_w2a8_gemv_args *args, vb_stream *stream) {
    const vb_cpu_device *device = vb_cpu_device_of(stream);
    gemv_job job = {.a = args, .simd = device->simd};
    job.vectors = vb_codes_vectors(args->row_bytes);
    const bool tiled = device->tiles && args->m >= VB_CODES_LEAST && args->k > 0;
    static const char *const names[VB_SIMD_LEVELS] = {"w2a8_plain", "w2a8_avx2", "w2a8_avx512"};
    stream->kernel = tiled ? "w2a8_amx" : names[device->simd];
    const int64_t row = job.vectors * VB_CODES_X, tiles = tiled ? vb_codes_whole(args->m) : 0;
    int64_t rows, bytes;
    if (__builtin_add_overflow(args->m, tiles, &rows) || __builtin_mul_overflow(row + 4, rows, &bytes))
        return VB_OUT_OF_MEMORY;
    job.x = vb_cpu_scratch(stream, bytes + 4);
    if (!job.x) return VB_OUT_OF_MEMORY;
    if (tiled) job.tiles = job.x + args->m * row;
    job.totals = (int32_t *)(job.x + rows * row);
    vb_cpu_parallel(stream, args->m, vb_cpu_grain(args->k), arrange_range, &job);
    const int step = tiled ? VB_CODES_TILE_SIZE : VB_CODES_ROWS;
    if (tiled) vb_cpu_parallel(stream, tiles / VB_CODES_TILE_SIZE, 1, to_tiles_range, &job);
    vb_cpu_task range = tiled ? gemv_tiles_range : args->m == 1 ? lines_range : gemv_range;
    bool again = args->m > BLOCK;
#if VB_X86
    if (device->simd == VB_SIMD_AVX2 && args->m > 1) range = panels_range, again = false;
#endif
    const int64_t grain = vb_cpu_matrix_grain(stream, args->n, args->row_bytes, step, again);
    vb_cpu_parallel(stream, args->n, grain, range, &job);
    return VB_OK;
}
