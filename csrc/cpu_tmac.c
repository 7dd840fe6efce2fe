/* cpu_tmac.c: products with ternary weights by looking up sums (Wei et al. 2024, "T-MAC").
 *
 * With int8 tiles (AMX) nothing is looked up: columns are rounded to 16 bits, whose upper and lower bytes are rows of
 * activations for cpu_codes.h. Two columns and fewer than TILES_LEAST, and all of processors with AVX2 and without
 * tiles, are rounded to 8 bits by runs (cpu_tmac_scaled.c). WORDS_COLUMNS and more are looked up by words where a
 * processor does so fast (cpu_tmac_words.c). Groups of less than 64 elements are looked up here.
 *
 * Otherwise activations are rounded to 10 bits by runs of up to 32 elements. Two neighbours have a table of their 16
 * sums, of 16 bits: in two tables of bytes, so that a byte shuffle looks up the low or high byte of as many rows as a
 * vector has. The rows' bytes are transposed 8 x 8 for it. Sums of a run fit 16 bits: 16 * 2 * 2 * 511 < 2^15.
 *
 * With the caller's table of floats, sums of four elements are looked up in that, a byte of weights at a time. */
#include <math.h>

#include "cpu_codes.h"
#include "cpu_tmac.h"
#include "int2.h"

#if VB_X86
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

enum { RUN_BYTES = 8, CHUNK = 8, MOST_ROWS = 64, MOST_CODE = 511, PAIR_BYTES = 32 };
enum { WORDS_COLUMNS = 8, TILES_LEAST = 5 };
enum { RUN_TABLE = 2 * RUN_BYTES * PAIR_BYTES };

/* ---- the table of floats ----------------------------------------------------------------------------------------- */

static void fill_table(float *table, const float x[4]) {
    table[0] = -(x[0] + x[1] + x[2] + x[3]);
    for (int i = 0; i < 4; i++) {
        const int step = 1 << 2 * i;
        for (int c = 1; c < 4; c++)
            for (int e = 0; e < step; e++) table[c * step + e] = table[e] + (float)c * x[i];
    }
}

typedef struct lut_job {
    float *lut;
    const float *x;
    int64_t k, n;
} lut_job;

static void lut_range(void *context, int worker, int64_t begin, int64_t end) {
    (void)worker;
    const lut_job *j = context;
    const int64_t tables = (j->k + 3) / 4;
    for (int64_t at = begin; at < end; at++) {
        const int64_t column = at / tables, first = at % tables * 4;
        float x[4];
        for (int i = 0; i < 4; i++) x[i] = first + i < j->k ? j->x[(first + i) * j->n + column] : 0;
        fill_table(j->lut + at * 256, x);
    }
}

vb_status vb_cpu_tmac_lut(float *lut, const float *activations, int64_t k, int64_t n, vb_stream *stream) {
    lut_job job = {lut, activations, k, n};
    vb_cpu_parallel(stream, n * ((k + 3) / 4), 64, lut_range, &job);
    return VB_OK;
}

/* ---- products ---------------------------------------------------------------------------------------------------- */

/* Elements that are rounded together: bytes first..first + bytes - 1 of each weight row. */
typedef struct run {
    int64_t first, group;
    int bytes, ends_group;
} run;

typedef struct matmul_job {
    const vb_tmac_matmul_args *a;
    int64_t row_bytes, group_bytes, runs_a_group, runs;
    float *scales;   /* [n][runs]: of the rounded activations */
    uint8_t *tables; /* [n][runs][RUN_TABLE] */
    char *scratch;   /* of the workers */
    int64_t worker_bytes;
    vb_simd simd;
} matmul_job;

static run run_at(const matmul_job *j, int64_t r) {
    const int64_t group = r / j->runs_a_group, in_group = r % j->runs_a_group,
        first = group * j->group_bytes + in_group * RUN_BYTES;
    const int64_t end = vb_min((group + 1) * j->group_bytes, j->row_bytes);
    return (run){first, group, (int)vb_min(RUN_BYTES, end - first), in_group == j->runs_a_group - 1};
}

/* The tables of a column. */
static void round_range(void *context, int worker, int64_t begin, int64_t end) {
    (void)worker;
    const matmul_job *j = context;
    const vb_tmac_matmul_args *a = j->a;
    for (int64_t column = begin; column < end; column++) {
        const float factor = vb_tmac_norm_factor(a, a->activations + column, a->n);
        for (int64_t r = 0; r < j->runs; r++) {
            const run u = run_at(j, r);
            float x[4 * RUN_BYTES] = {0}, most = 0;
            for (int i = 0; i < 4 * u.bytes; i++) {
                const int64_t k = 4 * u.first + i;
                if (k >= a->k) break;
                x[i] = a->activations[k * a->n + column] * factor;
                if (a->normed && a->norm) x[i] *= a->norm[k];
                most = !(fabsf(x[i]) <= most) ? fabsf(x[i]) : most; /* NaN stays */
            }
            const float scale = most / MOST_CODE;
            const float inverse = most > 0 && scale > 0 ? 1.0f / scale : 0.0f;
            j->scales[column * j->runs + r] = scale;
            uint8_t *table = j->tables + (column * j->runs + r) * RUN_TABLE;
            for (int p = 0; p < 2 * RUN_BYTES; p++) {
                /* A NaN or an infinity is in the scale; its code is of no matter. */
                const float f0 = x[2 * p] * inverse, f1 = x[2 * p + 1] * inverse;
                const int a0 = f0 == f0 ? (int)lrintf(f0) : 0, a1 = f1 == f1 ? (int)lrintf(f1) : 0;
                for (int code = 0; code < 16; code++) {
                    const int sum = a0 * ((code & 3) - 1) + a1 * ((code >> 2) - 1);
                    table[p * PAIR_BYTES + code] = (uint8_t)sum;
                    table[p * PAIR_BYTES + 16 + code] = (uint8_t)((unsigned)sum >> 8);
                }
            }
        }
    }
}

/* Byte i of word j becomes byte j of word i (Warren 2002, "Hacker's Delight", 7-3). */
static inline void transpose8(uint64_t w[8]) {
    for (int s = 0; s < 3; s++) {
        static const uint64_t masks[3] = {0x00ff00ff00ff00ff, 0x0000ffff0000ffff, 0x00000000ffffffff};
        const int step = 1 << s, shift = 8 << s;
        for (int i = 0; i < 8; i++) {
            if (i & step) continue;
            const uint64_t t = (w[i] >> shift ^ w[i + step]) & masks[s];
            w[i] ^= t << shift;
            w[i + step] ^= t;
        }
    }
}

/* columns[byte][rows] of a run of so many weight rows; missing rows are 0. */
static void transpose(uint8_t *columns, const uint8_t *w, int64_t row_bytes, int bytes, int rows, int64_t live) {
    for (int r = 0; r < rows; r += 8) {
        uint64_t words[8] = {0};
        for (int i = 0; i < 8 && r + i < live; i++) memcpy(&words[i], w + (r + i) * row_bytes, (size_t)bytes);
        transpose8(words);
        for (int i = 0; i < 8; i++) memcpy(columns + i * rows + r, &words[i], 8);
    }
}

/* sums[] += scale * what a run's tables say of `rows` rows; sums are in the order of place_of. */
typedef void (*look_up_function)(float *sums, const uint8_t *columns, const uint8_t *tables, int bytes, float scale);
typedef struct look_up {
    int rows;
    look_up_function run;
    const char *name;
} look_up;

static inline void shuffle16(uint8_t *out, const uint8_t *table, const uint8_t *index) {
#ifdef __aarch64__
    vst1q_u8(out, vqtbl1q_u8(vld1q_u8(table), vld1q_u8(index)));
#else
    for (int i = 0; i < 16; i++) out[i] = table[index[i]];
#endif
}

static void look_up_plain(float *sums, const uint8_t *columns, const uint8_t *tables, int bytes, float scale) {
    int16_t acc[16] = {0};
    for (int b = 0; b < bytes; b++)
        for (int half = 0; half < 2; half++) {
            uint8_t index[16], low[16], high[16];
            for (int i = 0; i < 16; i++) index[i] = columns[b * 16 + i] >> 4 * half & 15;
            shuffle16(low, tables + (2 * b + half) * PAIR_BYTES, index);
            shuffle16(high, tables + (2 * b + half) * PAIR_BYTES + 16, index);
            for (int i = 0; i < 16; i++) acc[i] = (int16_t)(acc[i] + (int16_t)(uint16_t)(low[i] | high[i] << 8));
        }
    for (int i = 0; i < 16; i++) sums[i] += scale * (float)acc[i];
}

#if VB_X86
VB_TARGET_AVX2 static inline void add_avx2(float *sums, __m128i x, __m256 scale) {
    _mm256_storeu_ps(sums, _mm256_fmadd_ps(_mm256_cvtepi32_ps(_mm256_cvtepi16_epi32(x)), scale, _mm256_loadu_ps(sums)));
}

VB_TARGET_AVX2 static void look_up_avx2(float *sums, const uint8_t *columns, const uint8_t *tables, int bytes,
                                        float scale) {
    const __m256i mask = _mm256_set1_epi8(15);
    __m256i first = _mm256_setzero_si256(), second = first; /* rows 0-7 and 16-23, 8-15 and 24-31 */
    for (int b = 0; b < bytes; b++) {
        const __m256i codes = _mm256_loadu_si256((const __m256i *)(columns + b * 32));
        for (int half = 0; half < 2; half++) {
            const __m128i *t = (const __m128i *)(tables + (2 * b + half) * PAIR_BYTES);
            const __m256i index = _mm256_and_si256(half ? _mm256_srli_epi16(codes, 4) : codes, mask);
            const __m256i low = _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(_mm_loadu_si128(t)), index);
            const __m256i high = _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(_mm_loadu_si128(t + 1)), index);
            first = _mm256_add_epi16(first, _mm256_unpacklo_epi8(low, high));
            second = _mm256_add_epi16(second, _mm256_unpackhi_epi8(low, high));
        }
    }
    const __m256 s = _mm256_set1_ps(scale);
    add_avx2(sums, _mm256_castsi256_si128(first), s);
    add_avx2(sums + 8, _mm256_castsi256_si128(second), s);
    add_avx2(sums + 16, _mm256_extracti128_si256(first, 1), s);
    add_avx2(sums + 24, _mm256_extracti128_si256(second, 1), s);
}

VB_TARGET_AVX512 static inline void add_avx512(float *sums, __m256i x, __m512 scale) {
    _mm512_storeu_ps(sums, _mm512_fmadd_ps(_mm512_cvtepi32_ps(_mm512_cvtepi16_epi32(x)), scale, _mm512_loadu_ps(sums)));
}

VB_TARGET_AVX512 static void look_up_avx512(float *sums, const uint8_t *columns, const uint8_t *tables, int bytes,
                                            float scale) {
    const __m512i mask = _mm512_set1_epi8(15);
    __m512i first = _mm512_setzero_si512(), second = first; /* the first and second eight of each 16 rows */
    for (int b = 0; b < bytes; b++) {
        const __m512i codes = _mm512_loadu_si512(columns + b * 64);
        for (int half = 0; half < 2; half++) {
            const __m128i *t = (const __m128i *)(tables + (2 * b + half) * PAIR_BYTES);
            const __m512i index = _mm512_and_si512(half ? _mm512_srli_epi16(codes, 4) : codes, mask);
            const __m512i low = _mm512_shuffle_epi8(_mm512_broadcast_i32x4(_mm_loadu_si128(t)), index);
            const __m512i high = _mm512_shuffle_epi8(_mm512_broadcast_i32x4(_mm_loadu_si128(t + 1)), index);
            first = _mm512_add_epi16(first, _mm512_unpacklo_epi8(low, high));
            second = _mm512_add_epi16(second, _mm512_unpackhi_epi8(low, high));
        }
    }
    const __m512 s = _mm512_set1_ps(scale);
    add_avx512(sums, _mm512_castsi512_si256(first), s);
    add_avx512(sums + 16, _mm512_extracti64x4_epi64(first, 1), s);
    add_avx512(sums + 32, _mm512_castsi512_si256(second), s);
    add_avx512(sums + 48, _mm512_extracti64x4_epi64(second, 1), s);
}

static const look_up look_ups[VB_SIMD_LEVELS] = {{16, look_up_plain, "tmac_shuffle_plain"},
                                                 {32, look_up_avx2, "tmac_shuffle_avx2"},
                                                 {64, look_up_avx512, "tmac_shuffle_avx512"}};
#elif defined(__aarch64__)
static const look_up look_ups[VB_SIMD_LEVELS] = {{16, look_up_plain, "tmac_shuffle_neon"}};
#else
static const look_up look_ups[VB_SIMD_LEVELS] = {{16, look_up_plain, "tmac_shuffle_plain"}};
#endif

/* Where the sum of a row is: 64 rows come in eights, the even ones first. */
static inline int place_of(int rows, int r) { return rows == 64 ? (r / 8 % 2) * 32 + r / 16 * 8 + r % 8 : r; }

#if VB_X86
/* transpose of eight whole runs: neighbours in pairs, fours and eights. */
VB_TARGET_AVX2 static inline void transpose8_avx2(uint8_t *columns, const uint8_t *w, int64_t row_bytes, int rows) {
    const __m128i pairs = _mm_setr_epi8(0, 8, 1, 9, 2, 10, 3, 11, 4, 12, 5, 13, 6, 14, 7, 15);
    __m128i two[4], four[4];
    for (int i = 0; i < 4; i++) {
        const __m128i low = _mm_loadl_epi64((const __m128i *)(w + 2 * i * row_bytes));
        const __m128i high = _mm_loadl_epi64((const __m128i *)(w + (2 * i + 1) * row_bytes));
        two[i] = _mm_shuffle_epi8(_mm_unpacklo_epi64(low, high), pairs);
    }
    for (int i = 0; i < 2; i++) {
        four[i] = _mm_unpacklo_epi16(two[2 * i], two[2 * i + 1]);
        four[2 + i] = _mm_unpackhi_epi16(two[2 * i], two[2 * i + 1]);
    }
    for (int i = 0; i < 2; i++) {
        const __m128i low = _mm_unpacklo_epi32(four[2 * i], four[2 * i + 1]);
        const __m128i high = _mm_unpackhi_epi32(four[2 * i], four[2 * i + 1]);
        _mm_storel_epi64((__m128i *)(columns + 4 * i * rows), low);
        _mm_storeh_pd((double *)(columns + (4 * i + 1) * rows), _mm_castsi128_pd(low));
        _mm_storel_epi64((__m128i *)(columns + (4 * i + 2) * rows), high);
        _mm_storeh_pd((double *)(columns + (4 * i + 3) * rows), _mm_castsi128_pd(high));
    }
}
VB_TARGET_AVX2 static void transpose_avx2(uint8_t *columns, const uint8_t *w, int64_t row_bytes, int rows) {
    for (int r = 0; r < rows; r += 8) transpose8_avx2(columns + r, w + r * row_bytes, row_bytes, rows);
}
#endif

static void shuffle_range(void *context, int worker, int64_t begin, int64_t end) {
    const matmul_job *j = context;
    const vb_tmac_matmul_args *a = j->a;
    const look_up code = look_ups[j->simd];
    /* [n][rows] each */
    float *sums = (float *)(j->scratch + worker * j->worker_bytes), *totals = sums + a->n * MOST_ROWS;
    uint8_t columns[CHUNK][RUN_BYTES * MOST_ROWS];
    for (int64_t row = begin; row < end; row += code.rows) {
        const int64_t live = vb_min(code.rows, end - row);
        const uint8_t *w = (const uint8_t *)a->weights + row * j->row_bytes;
        memset(sums, 0, (size_t)(2 * a->n * MOST_ROWS) * 4);
        for (int64_t first = 0; first < j->runs; first += CHUNK) {
            const int64_t count = vb_min(CHUNK, j->runs - first);
            for (int64_t r = 0; r < count; r++) {
                const run u = run_at(j, first + r);
#if VB_X86
                if (j->simd >= VB_SIMD_AVX2 && u.bytes == RUN_BYTES && live == code.rows) {
                    transpose_avx2(columns[r], w + u.first, j->row_bytes, code.rows);
                    continue;
                }
#endif
                transpose(columns[r], w + u.first, j->row_bytes, u.bytes, code.rows, live);
            }
            for (int64_t c = 0; c < a->n; c++)
                for (int64_t r = 0; r < count; r++) {
                    const run u = run_at(j, first + r);
                    const int64_t at = c * j->runs + first + r;
                    code.run(sums + c * MOST_ROWS, columns[r], j->tables + at * RUN_TABLE, u.bytes, j->scales[at]);
                    if (!u.ends_group) continue;
                    for (int i = 0; i < live; i++) {
                        float *sum = &sums[c * MOST_ROWS + place_of(code.rows, i)];
                        const float scale = a->scales ? a->scales[(row + i) * a->groups + u.group] : 1.0f;
                        totals[c * MOST_ROWS + i] += *sum * scale;
                        *sum = 0;
                    }
                }
        }
        for (int i = 0; i < live; i++)
            for (int64_t c = 0; c < a->n; c++) a->out[(row + i) * a->n + c] = totals[c * MOST_ROWS + i];
    }
}

static void table_range(void *context, int worker, int64_t begin, int64_t end) {
    (void)worker;
    const matmul_job *j = context;
    const vb_tmac_matmul_args *a = j->a;
    for (int64_t row = begin; row < end; row++) {
        const uint8_t *w = (const uint8_t *)a->weights + row * j->row_bytes;
        for (int64_t c = 0; c < a->n; c++) {
            const float *lut = a->lut + c * j->row_bytes * 256;
            float total = 0;
            for (int64_t g = 0; g < a->groups; g++) {
                const int64_t to = vb_min((g + 1) * j->group_bytes, j->row_bytes);
                double sum = 0;
                for (int64_t b = g * j->group_bytes; b < to; b++) sum += lut[b * 256 + w[b]];
                total += (float)sum * (a->scales ? a->scales[row * a->groups + g] : 1.0f);
            }
            a->out[row * a->n + c] = total;
        }
    }
}

/* ---- columns ----------------------------------------------------------------------------------------------------- */

typedef struct take_job {
    float *h;
    const float *x; /* of the first column */
    int64_t k, n, columns, readable; /* numbers from x on */
} take_job;

/* Rows begin to end - 1 of the activations; so many of these at a time stay in a cache. */
static void take_range(void *context, int worker, int64_t begin, int64_t end) {
    enum { NEAR = 64 };
    (void)worker;
    const take_job j = *(const take_job *)context;
    for (int64_t near = begin; near < end; near += NEAR) {
        const int64_t behind = vb_min(near + NEAR, end);
        int64_t c = 0;
#if VB_X86
        while (c < j.columns) { /* the last four where fewer are left; fewer columns are read with what follows them */
            c = vb_max(vb_min(c, j.columns - 4), 0);
            const int live = (int)vb_min(j.columns, 4);
            int64_t k = near;
            for (; k + 4 <= behind && (k + 3) * j.n + c + 4 <= j.readable; k += 4) {
                __m128 row[4];
                for (int i = 0; i < 4; i++) row[i] = _mm_loadu_ps(j.x + (k + i) * j.n + c);
                _MM_TRANSPOSE4_PS(row[0], row[1], row[2], row[3]);
                for (int i = 0; i < live; i++) _mm_storeu_ps(j.h + (c + i) * j.k + k, row[i]);
            }
            for (; k < behind; k++)
                for (int i = 0; i < live; i++) j.h[(c + i) * j.k + k] = j.x[k * j.n + c + i];
            c += live;
        }
#endif
        for (; c < j.columns; c++)
            for (int64_t k = near; k < behind; k++) j.h[c * j.k + k] = j.x[k * j.n + c];
    }
}

void vb_cpu_tmac_take(float *h, const vb_tmac_matmul_args *a, int64_t column, int64_t columns, vb_stream *stream) {
    enum { LEAST = 4096 }; /* elements of a thread */
    if (a->n == 1) {
        memcpy(h, a->activations, (size_t)a->k * 4);
        return;
    }
    take_job job = {h, a->activations + column, a->k, a->n, columns, a->k * a->n - column};
    const int64_t threads = vb_cpu_pool_threads(vb_cpu_device_of(stream)->pool);
    vb_cpu_parallel(stream, a->k, vb_max((a->k + threads - 1) / threads, LEAST / vb_max(columns, 1)), take_range, &job);
}

/* ---- dot products of bytes --------------------------------------------------------------------------------------- */

enum { MOST_SHORT = 127 * 256 + 127 };

typedef struct bytes_job {
    const vb_tmac_matmul_args *a;
    int64_t row_bytes, group_bytes, row_of_x;
    int8_t *x;       /* [groups][n][upper, lower][row_of_x] */
    int8_t *tiles;   /* [groups] of the rows of a group as tiles, NULL for none */
    int32_t *totals; /* [groups][n][upper, lower] */
    float *factors;  /* [n]: what one of the rounded activations stands for */
    float *h;        /* [n][k] */
    int8_t *scratch; /* of the workers: the bytes of a column */
    int64_t worker_bytes;
    vb_simd simd;
} bytes_job;

VB_INLINE void split_body(int8_t *restrict upper, int8_t *restrict lower, const float *restrict h, float inverse,
                          int64_t n) {
    /* adding 1.5 * 2^23 rounds to the nearest integer in the low bits */
    for (int64_t i = 0; i < n; i++) {
        const int32_t v = (int32_t)(vb_float_bits(h[i] * inverse + 0x1.8p23f) - 0x4b400000u);
        upper[i] = (int8_t)((v + 128) >> 8);
        lower[i] = (int8_t)v;
    }
}
VB_TWINS(split, (int8_t *upper, int8_t *lower, const float *h, float inverse, int64_t n),
         (upper, lower, h, inverse, n));

static void arrange_group(const bytes_job *j, int8_t *x, int32_t *total, const int8_t *from, int64_t k) {
    int32_t sum = 0;
    for (int64_t i = 0; i < k; i++) sum += from[i];
    *total = sum;
    memset(x, 0, (size_t)j->row_of_x);
    vb_codes_arrange(x, 1, from, k, j->simd);
}

static void split_range(void *context, int worker, int64_t begin, int64_t end) {
    const bytes_job *j = context;
    const vb_tmac_matmul_args *a = j->a;
    int8_t *upper = j->scratch + worker * j->worker_bytes, *lower = upper + a->k;
    for (int64_t column = begin; column < end; column++) {
        float *const h = j->h + column * a->k;
        vb_tmac_norm(h, a);
        const float most = vb_tmac_greatest(h, a->k);
        /* A NaN or an infinity is in the factor; the codes are of no matter then. */
        j->factors[column] = most / MOST_SHORT;
        split[j->simd](upper, lower, h, most > 0x1p-100f ? MOST_SHORT / most : 0.0f, a->k);
        for (int64_t g = 0; g < a->groups; g++) {
            const int64_t first = 4 * g * j->group_bytes, k = vb_min(4 * j->group_bytes, a->k - first);
            const int64_t at = 2 * (g * a->n + column);
            arrange_group(j, j->x + at * j->row_of_x, j->totals + at, upper + first, k);
            arrange_group(j, j->x + (at + 1) * j->row_of_x, j->totals + at + 1, lower + first, k);
        }
    }
}

/* Up to VB_CODES_ROWS rows times the only column. */
static void bytes_tile(const bytes_job *j, int64_t row, int rows) {
    const vb_tmac_matmul_args *a = j->a;
    float products[VB_CODES_ROWS] = {0};
    for (int64_t g = 0; g < a->groups; g++) {
        const int64_t first = g * j->group_bytes;
        const int32_t *total = j->totals + 2 * g;
        int32_t sums[VB_CODES_ROWS][VB_CODES_TILE];
        vb_cpu_code_sums(sums, (const uint8_t *)a->weights + row * j->row_bytes + first, j->row_bytes,
                         vb_min(j->group_bytes, j->row_bytes - first), rows, j->x + 2 * g * j->row_of_x, 2, j->simd);
        for (int r = 0; r < rows; r++) {
            const int64_t upper = sums[r][0] - total[0], lower = sums[r][1] - total[1];
            products[r] += (float)(upper * 256 + lower) * (a->scales ? a->scales[(row + r) * a->groups + g] : 1.0f);
        }
    }
    for (int r = 0; r < rows; r++) a->out[row + r] = products[r] * j->factors[0];
}

static void bytes_range(void *context, int worker, int64_t begin, int64_t end) {
    (void)worker;
    for (int64_t row = begin; row < end; row += VB_CODES_ROWS)
        bytes_tile(context, row, (int)vb_min(VB_CODES_ROWS, end - row));
}

static void to_tiles_range(void *context, int worker, int64_t begin, int64_t end) {
    (void)worker;
    const bytes_job *j = context;
    const int64_t rows = 2 * j->a->n, whole = vb_codes_whole(rows), a_group = whole / VB_CODES_TILE_SIZE;
    for (int64_t t = begin; t < end; t++) {
        const int64_t group = t / a_group, at = t % a_group * VB_CODES_TILE_SIZE;
        vb_codes_to_tiles(j->tiles + (group * whole + at) * j->row_of_x, j->x + (group * rows + at) * j->row_of_x,
                          j->row_of_x, (int)vb_min(VB_CODES_TILE_SIZE, rows - at));
    }
}

static void tiles_range(void *context, int worker, int64_t begin, int64_t end) {
    enum { MOST = VB_CODES_MOST / 2 };
    (void)worker;
    const bytes_job *j = context;
    const vb_tmac_matmul_args *a = j->a;
    const int64_t whole = vb_codes_whole(2 * a->n);
    for (int64_t column = 0; column < a->n; column += MOST)
        for (int64_t row = begin; row < end; row += VB_CODES_TILE_SIZE) {
            const int rows = (int)vb_min(VB_CODES_TILE_SIZE, end - row), columns = (int)vb_min(MOST, a->n - column);
            float products[VB_CODES_TILE_SIZE][MOST] = {{0}};
            for (int64_t g = 0; g < a->groups; g++) {
                const int64_t first = g * j->group_bytes;
                int32_t sums[VB_CODES_TILE_SIZE][VB_CODES_MOST];
                vb_cpu_code_tiles(sums, (const uint8_t *)a->weights + row * j->row_bytes + first, j->row_bytes,
                                  vb_min(j->group_bytes, j->row_bytes - first), rows,
                                  j->tiles + (g * whole + 2 * column) * j->row_of_x, 2 * columns);
                const int32_t *total = j->totals + 2 * (g * a->n + column);
                for (int r = 0; r < rows; r++) {
                    const float scale = a->scales ? a->scales[(row + r) * a->groups + g] : 1.0f;
                    for (int c = 0; c < columns; c++) {
                        const int64_t upper = sums[r][2 * c] - total[2 * c];
                        const int64_t lower = sums[r][2 * c + 1] - total[2 * c + 1];
                        products[r][c] += (float)(upper * 256 + lower) * scale;
                    }
                }
            }
            for (int r = 0; r < rows; r++)
                for (int c = 0; c < columns; c++)
                    a->out[(row + r) * a->n + column + c] = products[r][c] * j->factors[column + c];
        }
}

static vb_status bytes_matmul(bytes_job *job, vb_stream *stream) {
    const vb_tmac_matmul_args *a = job->a;
    const vb_cpu_device *device = vb_cpu_device_of(stream);
    const int64_t threads = vb_cpu_pool_threads(device->pool);
    const bool tiled = device->tiles && a->n > 1;
    stream->kernel = tiled ? "tmac_bytes_amx" : "tmac_bytes_avx512";
    job->row_of_x = vb_codes_vectors(job->group_bytes) * VB_CODES_X;
    int64_t pairs, tiles, rows, x, workers, elements, bytes;
    if (__builtin_mul_overflow(a->groups, 2 * a->n, &pairs) ||
        __builtin_mul_overflow(a->groups, tiled ? vb_codes_whole(2 * a->n) : 0, &tiles) ||
        __builtin_add_overflow(pairs, tiles, &rows) || __builtin_mul_overflow(rows, job->row_of_x + 4, &x) ||
        __builtin_mul_overflow(a->k, 2, &job->worker_bytes) || job->worker_bytes > INT64_MAX - 64)
        return VB_OUT_OF_MEMORY;
    job->worker_bytes = (job->worker_bytes + 63) / 64 * 64;
    if (__builtin_mul_overflow(threads, job->worker_bytes, &workers) || __builtin_add_overflow(x, workers, &bytes) ||
        __builtin_mul_overflow(a->n * a->k, 4, &elements) || __builtin_add_overflow(bytes, elements, &bytes) ||
        __builtin_add_overflow(bytes, 4 * a->n, &bytes))
        return VB_OUT_OF_MEMORY;
    job->scratch = vb_cpu_scratch(stream, bytes);
    if (!job->scratch) return VB_OUT_OF_MEMORY;
    job->x = job->scratch + workers;
    if (tiled) job->tiles = job->x + pairs * job->row_of_x;
    job->totals = (int32_t *)(job->x + rows * job->row_of_x);
    job->factors = (float *)(job->totals + pairs);
    job->h = job->factors + a->n;
    vb_cpu_tmac_take(job->h, a, 0, a->n, stream);
    vb_cpu_parallel(stream, a->n, vb_tmac_share(a), split_range, job);
    const int step = tiled ? VB_CODES_TILE_SIZE : VB_CODES_ROWS;
    if (tiled) vb_cpu_parallel(stream, tiles / VB_CODES_TILE_SIZE, 1, to_tiles_range, job);
    const int64_t grain = vb_cpu_matrix_grain(stream, a->m, job->row_bytes, step, a->n > VB_CODES_TILE);
    vb_cpu_parallel(stream, a->m, grain, tiled ? tiles_range : bytes_range, job);
    return VB_OK;
}

vb_status vb_cpu_tmac_matmul(const vb_tmac_matmul_args *args, vb_stream *stream) {
    matmul_job job = {.a = args, .row_bytes = (args->k + 3) / 4, .simd = vb_cpu_device_of(stream)->simd};
    job.group_bytes = vb_max(1, (job.row_bytes + args->groups - 1) / args->groups);
    if (args->lut) {
        stream->kernel = "tmac_table";
        vb_cpu_parallel(stream, args->m, vb_cpu_grain(job.row_bytes * args->n), table_range, &job);
        return VB_OK;
    }
#if VB_X86
    const vb_cpu_device *device = vb_cpu_device_of(stream);
    if (device->words && !device->tiles && args->groups == 1 && args->k > 0 && args->n >= WORDS_COLUMNS) {
        stream->kernel = "tmac_words_vbmi";
        return vb_cpu_tmac_words(args, stream);
    }
    const bool scaled = job.simd != VB_SIMD_PLAIN && (!device->tiles || (args->n > 1 && args->n < TILES_LEAST));
    if (scaled && args->k > 0 && job.group_bytes >= 16) {
        stream->kernel = job.simd == VB_SIMD_AVX512 ? "tmac_scaled_avx512" : "tmac_scaled_avx2";
        return vb_cpu_tmac_scaled(args, job.simd, stream);
    }
#endif
    if (job.simd == VB_SIMD_AVX512 && args->k > 0 && job.group_bytes >= 16 && job.group_bytes <= VB_INT2_MOST_K / 4)
        return bytes_matmul(&(bytes_job){.a = args, .row_bytes = job.row_bytes, .group_bytes = job.group_bytes,
                                         .simd = job.simd}, stream);
    stream->kernel = look_ups[job.simd].name;
    job.runs_a_group = (job.group_bytes + RUN_BYTES - 1) / RUN_BYTES;
    job.runs = args->k == 0 ? 0 : job.runs_a_group * args->groups;
    const int64_t threads = vb_cpu_pool_threads(vb_cpu_device_of(stream)->pool);
    int64_t tables, sums, bytes;
    if (__builtin_mul_overflow(args->n, job.runs * (RUN_TABLE + 4), &tables) ||
        __builtin_mul_overflow(args->n, 2 * MOST_ROWS * 4, &job.worker_bytes) ||
        __builtin_mul_overflow(threads, job.worker_bytes, &sums) || __builtin_add_overflow(tables, sums, &bytes))
        return VB_OUT_OF_MEMORY;
    job.scratch = vb_cpu_scratch(stream, bytes);
    if (!job.scratch) return VB_OUT_OF_MEMORY;
    job.tables = (uint8_t *)job.scratch + sums;
    job.scales = (float *)(job.tables + args->n * job.runs * RUN_TABLE);
    vb_cpu_parallel(stream, args->n, 1, round_range, &job);
    vb_cpu_parallel(stream, args->m, MOST_ROWS, shuffle_range, &job);
    return VB_OK;
}
