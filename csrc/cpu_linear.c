/* cpu_linear.c: y = x W^T + bias with weights as a model file stores them, and looking up rows of such a matrix.
 *
 * Quantized weights meet activations rounded to int8 where the processor has vector code for the type (cpu_linear.h).
 * Otherwise the weights are widened to float32: for a few rows of x in registers where they have 16 bits, else a weight
 * row at a time into the cache; for many rows 32 weight rows become a panel for the kernel of cpu_matmul.c. */
#include "checks.h"
#include "cpu_linear.h"
#include "cpu_matmul.h"

#if VB_X86
#include <immintrin.h>
#endif

/* Rows of x from which panels pay; elements and rows at a time. */
enum { PANEL_ROWS = 8, PIECE = 1024, DEPTH = 512 };

VB_INLINE void dot_body(double *sum, const float *a, const float *b, int64_t n) {
    enum { LANES = 32 };
    float lanes[LANES] = {0};
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int l = 0; l < LANES; l++) lanes[l] += a[i + l] * b[i + l];
    for (int l = 0; i < n; i++, l++) lanes[l] += a[i] * b[i];
    float s[8];
    for (int l = 0; l < 8; l++) s[l] = (lanes[l] + lanes[l + 8]) + (lanes[l + 16] + lanes[l + 24]);
    *sum += ((s[0] + s[4]) + (s[2] + s[6])) + ((s[1] + s[5]) + (s[3] + s[7]));
}

VB_TWINS(dot, (double *sum, const float *a, const float *b, int64_t n), (sum, a, b, n));

/* Elements p.. of weight row r as float: in place for F32, else widened into the buffer; n a multiple of the block
 * size. */
static const float *weights(const vb_linear_job *j, int64_t r, int64_t p, int64_t n, float *buffer) {
    const char *at = (const char *)j->w.data + r * j->row_bytes + vb_bytes_of(j->w.type, p);
    if (j->w.type == VB_F32) return (const float *)at;
    vb_cpu_dequantize(buffer, at, j->w.type, n, j->simd);
    return buffer;
}

#if VB_X86
/* ---- rows of 16-bit weights, widened in registers -----------------------------------------------------------------
 *
 * Eight sums hide the time of an addition. A core reads memory at full speed only if the second level of its cache is
 * asked for weights ahead. Asking past the end of the matrix does no harm. */
enum { AHEAD = 1 << 10, SUMS = 8 };

VB_TARGET_AVX2 VB_INLINE __m256 wide_avx2(const uint16_t *w, const bool halves) {
    const __m128i bits = _mm_loadu_si128((const __m128i *)w);
    if (halves) return _mm256_cvtph_ps(bits);
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
}

VB_TARGET_AVX512 VB_INLINE __m512 wide_avx512(__m256i bits, const bool halves) {
    if (halves) return _mm512_cvtph_ps(bits);
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16));
}

VB_TARGET_AVX2 VB_INLINE void dot16_avx2(double *sum, const uint16_t *w, const float *x, int64_t n, const bool halves) {
    __m256 s[SUMS];
    _Pragma("GCC unroll 8") for (int j = 0; j < SUMS; j++) s[j] = _mm256_setzero_ps();
    int64_t i = 0;
    for (; i + 8 * SUMS <= n; i += 8 * SUMS)
        _Pragma("GCC unroll 8") for (int j = 0; j < SUMS; j++) {
            const uint16_t *at = w + i + 8 * j;
            if (j % 4 == 0) _mm_prefetch((const char *)at + AHEAD, _MM_HINT_T1);
            s[j] = _mm256_fmadd_ps(_mm256_loadu_ps(x + i + 8 * j), wide_avx2(at, halves), s[j]);
        }
    for (; i + 8 <= n; i += 8) s[0] = _mm256_fmadd_ps(_mm256_loadu_ps(x + i), wide_avx2(w + i, halves), s[0]);
    if (i < n) {
        uint16_t weights[8] = {0};
        float last[8] = {0};
        memcpy(weights, w + i, (size_t)(n - i) * 2);
        memcpy(last, x + i, (size_t)(n - i) * 4);
        s[1] = _mm256_fmadd_ps(_mm256_loadu_ps(last), wide_avx2(weights, halves), s[1]);
    }
    _Pragma("GCC unroll 8") for (int half = SUMS / 2; half > 0; half /= 2)
        _Pragma("GCC unroll 8") for (int j = 0; j < half; j++) s[j] = _mm256_add_ps(s[j], s[j + half]);
    float lanes[8];
    _mm256_storeu_ps(lanes, s[0]);
    *sum += ((lanes[0] + lanes[4]) + (lanes[2] + lanes[6])) + ((lanes[1] + lanes[5]) + (lanes[3] + lanes[7]));
}

VB_TARGET_AVX512 VB_INLINE void dot16_avx512(double *sum, const uint16_t *w, const float *x, int64_t n,
                                             const bool halves) {
    __m512 s[SUMS];
    _Pragma("GCC unroll 8") for (int j = 0; j < SUMS; j++) s[j] = _mm512_setzero_ps();
    int64_t i = 0;
    for (; i + 16 * SUMS <= n; i += 16 * SUMS)
        _Pragma("GCC unroll 8") for (int j = 0; j < SUMS; j++) {
            const uint16_t *at = w + i + 16 * j;
            if (j % 2 == 0) _mm_prefetch((const char *)at + AHEAD, _MM_HINT_T1);
            s[j] = _mm512_fmadd_ps(_mm512_loadu_ps(x + i + 16 * j),
                                   wide_avx512(_mm256_loadu_si256((const __m256i *)at), halves), s[j]);
        }
    for (; i < n; i += 16) {
        const __mmask16 live = n - i < 16 ? (__mmask16)((1 << (n - i)) - 1) : (__mmask16)~0;
        s[0] = _mm512_fmadd_ps(_mm512_maskz_loadu_ps(live, x + i),
                               wide_avx512(_mm256_maskz_loadu_epi16(live, w + i), halves), s[0]);
    }
    _Pragma("GCC unroll 8") for (int half = SUMS / 2; half > 0; half /= 2)
        _Pragma("GCC unroll 8") for (int j = 0; j < half; j++) s[j] = _mm512_add_ps(s[j], s[j + half]);
    *sum += _mm512_reduce_add_ps(s[0]);
}

typedef void (*dot16)(double *sum, const uint16_t *w, const float *x, int64_t n);
#define DOT16(level, LEVEL, type, halves) \
    LEVEL static void dot16_##level##_##type(double *sum, const uint16_t *w, const float *x, int64_t n) { \
        dot16_##level(sum, w, x, n, halves); \
    }
DOT16(avx2, VB_TARGET_AVX2, f16, true)
DOT16(avx2, VB_TARGET_AVX2, bf16, false)
DOT16(avx512, VB_TARGET_AVX512, f16, true)
DOT16(avx512, VB_TARGET_AVX512, bf16, false)

/* The product that adds to *sum, NULL where weights are widened in memory. */
static dot16 dot16_of(const vb_linear_job *j) {
    if (j->simd == VB_SIMD_PLAIN || (j->w.type != VB_F16 && j->w.type != VB_BF16)) return NULL;
    if (j->simd == VB_SIMD_AVX512) return j->w.type == VB_F16 ? dot16_avx512_f16 : dot16_avx512_bf16;
    return j->w.type == VB_F16 ? dot16_avx2_f16 : dot16_avx2_bf16;
}

/* As float_rows: a lane adds as many elements in float32 before the sums of all lanes meet in double. */
static void rows16(const vb_linear_job *j, dot16 product, int64_t first, int64_t n, int64_t begin, int64_t end) {
    const int64_t cols = j->w.cols, piece = j->simd == VB_SIMD_AVX512 ? 4 * PIECE : 2 * PIECE;
    for (int64_t r = begin; r < end; r++)
        for (int64_t i = first; i < first + n; i++) {
            double sum = 0;
            for (int64_t p = 0; p < cols; p += piece)
                product(&sum, (const uint16_t *)j->w.data + r * cols + p, j->x + i * cols + p, vb_min(piece, cols - p));
            *vb_y_at(j, i, r) = (float)(sum + (j->bias ? j->bias[r] : 0));
        }
}
#endif

/* Rows first..first+n-1 of x, at most PANEL_ROWS. */
static void float_rows(const vb_linear_job *j, int64_t first, int64_t n, int64_t begin, int64_t end) {
#if VB_X86
    const dot16 product = dot16_of(j);
    if (product) {
        rows16(j, product, first, n, begin, end);
        return;
    }
#endif
    const float *x = j->x + first * j->w.cols;
    float buffer[PIECE];
    for (int64_t r = begin; r < end; r++) {
        double sums[PANEL_ROWS] = {0};
        for (int64_t p = 0; p < j->w.cols; p += PIECE) {
            int64_t piece = vb_min(PIECE, j->w.cols - p);
            const float *w = weights(j, r, p, piece, buffer);
            for (int64_t i = 0; i < n; i++) dot[j->simd](&sums[i], w, x + i * j->w.cols + p, piece);
        }
        for (int64_t i = 0; i < n; i++) *vb_y_at(j, first + i, r) = (float)(sums[i] + (j->bias ? j->bias[r] : 0));
    }
}

/* A worker's scratch: a panel of DEPTH rows, and sums for a run of rows of x. */
enum { RUN = 96, PANEL_BYTES = (DEPTH * VB_PANEL + VB_PANEL * DEPTH + RUN * VB_PANEL) * 4 };

static void float_panels(const vb_linear_job *j, char *scratch, int64_t begin, int64_t end) {
    float *panel = (float *)scratch, *rows = panel + DEPTH * VB_PANEL, *sums = rows + VB_PANEL * DEPTH;
    for (int64_t r = begin; r < end; r += VB_PANEL) {
        int64_t width = vb_min(VB_PANEL, end - r);
        for (int64_t i = 0; i < j->n; i += RUN) {
            int64_t height = vb_min(RUN, j->n - i);
            memset(sums, 0, (size_t)(height * VB_PANEL) * 4);
            for (int64_t p = 0; p < j->w.cols; p += DEPTH) {
                int64_t depth = vb_min(DEPTH, j->w.cols - p);
                for (int64_t q = 0; q < width; q++) {
                    const float *w = weights(j, r + q, p, depth, rows + q * DEPTH);
                    if (w != rows + q * DEPTH) memcpy(rows + q * DEPTH, w, (size_t)depth * 4);
                }
                vb_cpu_panel_transpose(panel, rows, DEPTH, width, depth, j->simd);
                vb_cpu_panel_product(sums, j->x + i * j->w.cols + p, j->w.cols, panel, height, depth, j->simd);
            }
            for (int64_t q = 0; q < height; q++)
                for (int64_t c = 0; c < width; c++)
                    *vb_y_at(j, i + q, r + c) = sums[q * VB_PANEL + c] + (j->bias ? j->bias[r + c] : 0);
        }
    }
}

/* Says whether products are dots, whose 32 lanes are summed in double, and not of panels, whose sums run along a row:
 * of few rows, and of short ones, as small models keep exact products. */
static bool by_dots(const vb_linear_job *j) { return j->n < PANEL_ROWS || j->w.cols <= VB_CHUNK; }

static void float_range(void *context, int worker, int64_t begin, int64_t end) {
    const vb_linear_job *j = context;
    if (!by_dots(j))
        float_panels(j, j->scratch + worker * j->worker_bytes, begin, end);
    else
        for (int64_t i = 0; i < j->n; i += PANEL_ROWS) float_rows(j, i, vb_min(PANEL_ROWS, j->n - i), begin, end);
}

static vb_status float_linear(vb_linear_job *job, vb_stream *stream) {
    if (by_dots(job)) {
        const int64_t grain = job->n < PANEL_ROWS ? vb_cpu_matrix_grain(stream, job->w.rows, job->row_bytes, 1, false)
                                                  : vb_cpu_grain(job->w.cols * job->n);
        vb_cpu_parallel(stream, job->w.rows, grain, float_range, job);
        return VB_OK;
    }
    job->worker_bytes = PANEL_BYTES;
    job->scratch = vb_cpu_scratch(stream, job->worker_bytes * vb_cpu_pool_threads(vb_cpu_device_of(stream)->pool));
    if (!job->scratch) return VB_OUT_OF_MEMORY;
    vb_cpu_parallel(stream, job->w.rows, VB_PANEL, float_range, job);
    return VB_OK;
}

#if VB_X86
/* ---- quantized weights with vector integers (cpu_linear.h) ------------------------------------------------------- */

/* Rows of x from which panels of 16 (8) rows pay. */
enum { INT8_PANEL_ROWS = 4 };

static vb_linear_code code_of(const vb_linear_job *j) {
    return (j->simd == VB_SIMD_AVX512 ? vb_cpu_linear_code_avx512 : vb_cpu_linear_code_avx2)(j->w.type);
}

static void round_range(void *context, int worker, int64_t begin, int64_t end) {
    (void)worker;
    vb_cpu_linear_round(context, begin, end);
}

static void int8_panels(const vb_linear_job *j, const vb_linear_code *code, char *scratch, int64_t begin, int64_t end) {
    float *sums = (float *)(scratch + code->panel_bytes);
    for (int64_t r = begin; r < end; r += code->lanes) {
        int width = (int)vb_min(code->lanes, end - r);
        for (int64_t i = 0; i < j->n; i += VB_PANEL_ROWS_OF_X) {
            int64_t n = vb_min(VB_PANEL_ROWS_OF_X, j->n - i);
            memset(sums, 0, (size_t)n * code->lanes * sizeof(float));
            for (int64_t c = 0; c < j->chunks; c++) {
                code->panel(scratch, j, r, width, c);
                code->times(sums, scratch, j->q + c * j->n + i, n);
            }
            for (int64_t k = 0; k < n; k++) {
                float *y = vb_y_at(j, i + k, r);
                for (int t = 0; t < width; t++) y[t] = sums[k * code->lanes + t] + (j->bias ? j->bias[r + t] : 0);
            }
        }
    }
}

static void int8_range(void *context, int worker, int64_t begin, int64_t end) {
    const vb_linear_job *j = context;
    const vb_linear_code code = code_of(j);
    if (j->n < INT8_PANEL_ROWS)
        code.rows(j, begin, end);
    else
        int8_panels(j, &code, j->scratch + worker * j->worker_bytes, begin, end);
}

/* Makes room for x_rows rounded rows of x. */
static bool int8_prepare(vb_linear_job *job, int64_t x_rows, vb_stream *stream) {
    int64_t threads = vb_cpu_pool_threads(vb_cpu_device_of(stream)->pool), chunks, bytes;
    job->block_bytes = vb_dtype_block_bytes(job->w.type);
    job->chunk_bytes = vb_bytes_of(job->w.type, VB_CHUNK);
    job->chunks = (job->w.cols + VB_CHUNK - 1) / VB_CHUNK;
    if (job->n < INT8_PANEL_ROWS) job->order = code_of(job).order;
    job->worker_bytes = VB_PANEL_SCRATCH;
    if (__builtin_mul_overflow(job->chunks, x_rows, &chunks)) return false;
    if (__builtin_mul_overflow(chunks, (int64_t)sizeof(vb_x_chunk), &bytes)) return false;
    if (__builtin_add_overflow(bytes, threads * job->worker_bytes, &bytes)) return false;
    job->scratch = vb_cpu_scratch(stream, bytes);
    if (!job->scratch) return false;
    job->q = (vb_x_chunk *)(job->scratch + threads * job->worker_bytes);
    return true;
}

/* How many weight rows a worker takes at a time, of `rows` in all. It asks for a panel ahead, and of the last panel in
 * vain: four panels, or less where that would leave workers idle. */
static int64_t int8_grain(const vb_linear_job *job, int64_t rows, vb_stream *stream) {
    enum { PANEL = 16, MOST = 4 * PANEL };
    if (job->n < INT8_PANEL_ROWS) return vb_cpu_matrix_grain(stream, rows, job->row_bytes, PANEL, false);
    const int64_t share = rows / (8 * vb_cpu_pool_threads(vb_cpu_device_of(stream)->pool));
    return vb_max(PANEL, vb_min(MOST, share / PANEL * PANEL));
}

static vb_status int8_linear(vb_linear_job *job, vb_stream *stream) {
    if (!int8_prepare(job, job->n, stream)) return VB_OUT_OF_MEMORY;
    vb_cpu_parallel(stream, job->chunks * job->n, 32, round_range, job);

    vb_cpu_parallel(stream, job->w.rows, int8_grain(job, job->w.rows, stream), int8_range, job);
    return VB_OK;
}
#endif

static vb_linear_job new_job(float *y, const float *x, const vb_weight *w, const float *bias, int64_t n,
                             vb_stream *stream) {
    return (vb_linear_job){.y = y, .x = x, .w = *w, .bias = bias, .n = n, .simd = vb_cpu_device_of(stream)->simd,
                           .row_bytes = vb_bytes_of(w->type, w->cols)};
}

#if VB_X86
/* Rows of up to a chunk would be rounded, and padded to one, for little speed: small models keep exact products. */
static bool by_int8(const vb_linear_job *j) {
    return j->w.cols > VB_CHUNK && j->simd >= VB_SIMD_AVX2 && vb_cpu_linear_code_avx2(j->w.type).rows;
}
#endif

vb_status vb_cpu_linear(float *y, const float *x, const vb_weight *w, const float *bias, int64_t n, vb_stream *stream) {
    if (w->layout != VB_STORED) return VB_UNSUPPORTED;
    vb_linear_job job = new_job(y, x, w, bias, n, stream);
#if VB_X86
    if (by_int8(&job)) return int8_linear(&job, stream);
#endif
    return float_linear(&job, stream);
}

/* ---- one row of x for each of several experts --------------------------------------------------------------------
 *
 * The products of all experts are one job: where each is a job, all threads wait for the last one of each. */

typedef struct choices_job {
    vb_linear_job job; /* of the first choice and expert 0 */
    const vb_expert_linear_args *args;
    vb_cpu_task rows;
} choices_job;

static vb_linear_job choice(const choices_job *c, int64_t i) {
    const int64_t expert = c->args->ids[i], of_x = c->args->x_per_choice ? i : 0;
    vb_linear_job j = c->job;
    j.w.data = (const char *)j.w.data + expert * j.w.rows * j.row_bytes;
    if (j.bias) j.bias += expert * j.w.rows;
    if (j.q) j.q += of_x * j.chunks;
    j.x += of_x * j.w.cols;
    j.y += i * j.w.rows;
    return j;
}

static void choices_range(void *context, int worker, int64_t begin, int64_t end) {
    const choices_job *c = context;
    const int64_t rows = c->job.w.rows;
    for (int64_t r = begin, n; r < end; r += n) {
        vb_linear_job j = choice(c, r / rows);
        n = vb_min(rows - r % rows, end - r);
        c->rows(&j, worker, r % rows, r % rows + n);
    }
}

#if VB_X86
static void choices_round(void *context, int worker, int64_t begin, int64_t end) {
    (void)worker;
    const choices_job *c = context;
    for (int64_t k = begin; k < end; k++) {
        const vb_linear_job j = choice(c, k / c->job.chunks);
        vb_cpu_linear_round(&j, k % c->job.chunks, k % c->job.chunks + 1);
    }
}
#endif

vb_status vb_cpu_linear_choices(const vb_expert_linear_args *a, vb_stream *stream) {
    if (a->w.layout != VB_STORED) return VB_UNSUPPORTED;
    choices_job c = {new_job(a->y, a->x, &a->w, a->bias, 1, stream), a, float_range};
#if VB_X86
    if (by_int8(&c.job)) {
        const int64_t x_rows = a->x_per_choice ? a->k : 1;
        if (!int8_prepare(&c.job, x_rows, stream)) return VB_OUT_OF_MEMORY;
        vb_cpu_parallel(stream, x_rows * c.job.chunks, 32, choices_round, &c);
        c.rows = int8_range;
    }
#endif
    const int64_t rows = a->k * a->w.rows;
    vb_cpu_parallel(stream, rows, vb_cpu_matrix_grain(stream, rows, c.job.row_bytes, 16, false), choices_range, &c);
    return VB_OK;
}

/* ---- several rows of x for each of many experts -------------------------------------------------------------------
 *
 * Also one job. A unit is UNIT rows of an expert for all choices of this expert. */

enum { TOGETHER = 4096, UNIT = 64 }; /* choices that are rounded, or gathered, at a time, where no expert has more */

typedef struct experts_job {
    vb_linear_job job; /* of expert 0; x or q are of the choices from `first` on */
    const vb_expert_linear_args *args;
    const int64_t *order, *ends;
    const int64_t *active; /* experts that have choices */
    int64_t first;
    float *gathered; /* x, where it is not rounded */
    vb_cpu_task rows;
} experts_job;

static int64_t first_choice(const int64_t *ends, int64_t expert) { return expert > 0 ? ends[expert - 1] : 0; }

static vb_linear_job job_of_expert(const experts_job *c, int64_t e) {
    const int64_t first = first_choice(c->ends, e);
    vb_linear_job j = c->job;
    j.n = c->ends[e] - first, j.places = c->order + first;
    j.w.data = (const char *)j.w.data + e * j.w.rows * j.row_bytes;
    if (j.bias) j.bias += e * j.w.rows;
    if (j.q) j.q += (first - c->first) * j.chunks;
    j.x = c->gathered ? c->gathered + (first - c->first) * j.w.cols : NULL;
#if VB_X86
    j.order = j.q && j.n < INT8_PANEL_ROWS ? code_of(&j).order : NULL;
#endif
    return j;
}

static const float *x_of_choice(const experts_job *c, int64_t i) {
    return c->args->x + c->order[i] / (c->args->x_per_choice ? 1 : c->args->k) * c->job.w.cols;
}

static void experts_range(void *context, int worker, int64_t begin, int64_t end) {
    const experts_job *c = context;
    const int64_t rows = c->job.w.rows, units = (rows + UNIT - 1) / UNIT;
    for (int64_t u = begin; u < end; u++) {
        vb_linear_job j = job_of_expert(c, c->active[u / units]);
        c->rows(&j, worker, u % units * UNIT, vb_min(u % units * UNIT + UNIT, rows));
    }
}

static void experts_gather(void *context, int worker, int64_t begin, int64_t end) {
    (void)worker;
    const experts_job *c = context;
    for (int64_t i = begin; i < end; i++)
        memcpy(c->gathered + i * c->job.w.cols, x_of_choice(c, c->first + i), (size_t)c->job.w.cols * 4);
}

#if VB_X86
static void experts_round(void *context, int worker, int64_t begin, int64_t end) {
    (void)worker;
    const experts_job *c = context;
    for (int64_t k = begin; k < end; k++) {
        const int64_t i = c->first + k / c->job.chunks, chunk = k % c->job.chunks, e = c->args->ids[c->order[i]];
        vb_linear_job j = job_of_expert(c, e);
        j.x = x_of_choice(c, i);
        j.q += chunk * j.n + i - first_choice(c->ends, e) - chunk; /* as of one row of x */
        j.n = 1;
        vb_cpu_linear_round(&j, chunk, chunk + 1);
    }
}
#endif

/* Multiplies `experts` of them that have `choices`. */
static vb_status multiply_experts(experts_job *c, int64_t experts, int64_t choices, vb_stream *stream) {
#if VB_X86
    if (by_int8(&c->job)) {
        if (!int8_prepare(&c->job, choices, stream)) return VB_OUT_OF_MEMORY;
        vb_cpu_parallel(stream, choices * c->job.chunks, 32, experts_round, c);
        c->rows = int8_range;
    }
#endif
    if (!c->job.q) {
        const int64_t bytes = PANEL_BYTES * vb_cpu_pool_threads(vb_cpu_device_of(stream)->pool);
        c->job.worker_bytes = PANEL_BYTES;
        c->job.scratch = vb_cpu_scratch(stream, bytes + choices * c->job.w.cols * 4);
        if (!c->job.scratch) return VB_OUT_OF_MEMORY;
        c->gathered = (float *)(c->job.scratch + bytes);
        vb_cpu_parallel(stream, choices, vb_cpu_grain(c->job.w.cols), experts_gather, c);
    }
    vb_cpu_parallel(stream, experts * ((c->job.w.rows + UNIT - 1) / UNIT), 1, experts_range, c);
    return VB_OK;
}

vb_status vb_cpu_linear_experts(const vb_expert_linear_args *a, const int64_t *order, const int64_t *ends,
                                vb_stream *stream) {
    if (a->w.layout != VB_STORED) return VB_UNSUPPORTED;
    int64_t *active = malloc((size_t)a->experts * sizeof *active), count = 0;
    if (!active) return VB_OUT_OF_MEMORY;
    for (int64_t e = 0; e < a->experts; e++)
        if (ends[e] > first_choice(ends, e)) active[count++] = e;
    experts_job c = {new_job(a->y, NULL, &a->w, a->bias, 1, stream), a, order, ends, active, 0, NULL, float_range};
    vb_status status = VB_OK;
    for (int64_t i = 0, end; i < count && status == VB_OK; i = end) {
        c.active = active + i, c.first = first_choice(ends, active[i]);
        for (end = i + 1; end < count && ends[active[end]] - c.first <= TOGETHER;) end++;
        status = multiply_experts(&c, end - i, ends[active[end - 1]] - c.first, stream);
    }
    free(active);
    return status;
}

vb_status vb_cpu_weight_packed_size(int64_t *bytes, const vb_weight *w, vb_device *device) {
    (void)w;
    (void)device;
    *bytes = 0; /* the stored form is read at the speed of memory, and a panel is made faster than it is used */
    return VB_OK;
}

vb_status vb_cpu_weight_pack(void *out, const vb_weight *w, vb_stream *stream) {
    (void)out;
    (void)w;
    (void)stream;
    return VB_UNSUPPORTED;
}

/* ---- embedding --------------------------------------------------------------------------------------------------- */

typedef struct embedding_job {
    float *out;
    const vb_weight *table;
    const int32_t *ids;
    vb_simd simd;
} embedding_job;

static void embedding_range(void *context, int worker, int64_t begin, int64_t end) {
    (void)worker;
    const embedding_job *j = context;
    int64_t cols = j->table->cols;
    vb_dtype type = j->table->type;
    int64_t row_bytes = vb_bytes_of(type, cols);
    for (int64_t i = begin; i < end; i++)
        vb_cpu_dequantize(j->out + i * cols, (const char *)j->table->data + j->ids[i] * row_bytes, type, cols, j->simd);
}

vb_status vb_cpu_embedding(float *out, const vb_weight *table, const int32_t *ids, int64_t n, vb_stream *stream) {
    if (table->layout != VB_STORED) return VB_UNSUPPORTED;
    for (int64_t i = 0; i < n; i++)
        if (ids[i] < 0 || ids[i] >= table->rows) return vb_refuse(stream, "ids: outside 0..rows-1");
    embedding_job job = {out, table, ids, vb_cpu_device_of(stream)->simd};
    vb_cpu_parallel(stream, n, vb_cpu_grain(table->cols), embedding_range, &job);
    return VB_OK;
}
