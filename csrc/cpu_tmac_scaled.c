/* cpu_tmac_scaled.c: products with ternary weights by int8 activations, for processors with AVX2 or AVX-512 and
 * without int8 tiles.
 *
 * A column is rounded to int8 by runs of eight elements, each with a scale: 0.4 % of Gaussian values (RMS). Several
 * columns with AVX-512 have runs of sixteen: 0.47 %. Elements that a norm's weights have spread would lose 0.54 % so,
 * and have runs of eight. A scale is a whole number of the column's unit, at most MOST_FACTOR. So it is applied where
 * sums of 16 bits are widened, by the multiply-add that widens them (vb_cpu_code_products, vb_cpu_code_scaled_panel).
 */
#include "cpu_codes.h"
#include "cpu_tmac.h"

#if VB_X86
#include <immintrin.h>

enum { MOST_CODE = 127, MOST_FACTOR = VB_CODES_FACTOR, RUN = VB_CODES_RUN, LONG = VB_CODES_LONG_RUN };
enum { LINES = 64 };
/* Of a vector; bytes of a row of codes up to which a first-level cache has eight columns and their factors, with AVX2,
 * or a column alone, with AVX-512. */
enum { FACTORS = VB_CODES_X / RUN, NEAR = 640, ONE_NEAR = 5376 };

/* Bytes between codes and factors: where factors of a long column follow at once, Zen 4 reads both at half the rate. */
enum { APART = 4096 + 64 };

typedef struct scaled_job {
    const vb_tmac_matmul_args *a;
    int64_t row_bytes, group_bytes, piece_bytes;
    int64_t pieces_a_group, pieces;   /* a group is cut where sums, or columns in the first cache, would not fit */
    int64_t row_of_x, row_of_factors; /* elements of a column in a piece */
    int8_t *x;                        /* [pieces][n][row_of_x], of vb_codes_place_of */
    int16_t *factors;                 /* [pieces][n][row_of_factors], likewise, or of vb_codes_run_place */
    float *totals;    /* [pieces][n]: of the rounded activations, in units */
    float *units;     /* [n] */
    float *h;         /* [n][k] */
    char *scratch;    /* of the workers: factors and codes of a column */
    int64_t worker_bytes;
    bool products;  /* with AVX-512, of several columns or groups */
    bool long_runs; /* of these */
    bool even_odd;  /* with AVX-512, of one column and group, whose rows are not short */
    vb_simd simd;
} scaled_job;

typedef struct piece {
    int64_t group, first, bytes; /* of a weight row */
} piece;

static piece piece_at(const scaled_job *j, int64_t p) {
    /* A division takes longer than the end of a tile. */
    const int64_t group = j->pieces_a_group == 1 ? p : p / j->pieces_a_group;
    const int64_t first = group * j->group_bytes + (p - group * j->pieces_a_group) * j->piece_bytes;
    const int64_t end = vb_min((group + 1) * j->group_bytes, j->row_bytes);
    return (piece){group, first, vb_max(vb_min(j->piece_bytes, end - first), 0)};
}

/* The greatest of each of eight vectors, in their order. */
VB_TARGET_AVX2 static inline __m256 greatest_of_eight(const __m256 v[8]) {
    __m256 pairs[4], fours[2];
    for (int i = 0; i < 4; i++)
        pairs[i] = _mm256_max_ps(_mm256_shuffle_ps(v[2 * i], v[2 * i + 1], 0x44),
                                 _mm256_shuffle_ps(v[2 * i], v[2 * i + 1], 0xee));
    for (int i = 0; i < 2; i++)
        fours[i] = _mm256_max_ps(_mm256_shuffle_ps(pairs[2 * i], pairs[2 * i + 1], 0x88),
                                 _mm256_shuffle_ps(pairs[2 * i], pairs[2 * i + 1], 0xdd));
    return _mm256_max_ps(_mm256_permute2f128_ps(fours[0], fours[1], 0x20),
                         _mm256_permute2f128_ps(fours[0], fours[1], 0x31));
}

/* Run r of eight: neighbours, or the even or odd ones of sixteen, of which 4 to 7 and 8 to 11 change places. */
VB_TARGET_AVX2 VB_INLINE __m256 run_of(const float *h, int r, const bool even_odd) {
    if (!even_odd) return _mm256_loadu_ps(h + r * RUN);
    const __m256 first = _mm256_loadu_ps(h + r / 2 * 2 * RUN), last = _mm256_loadu_ps(h + r / 2 * 2 * RUN + RUN);
    return r % 2 ? _mm256_shuffle_ps(first, last, 0xdd) : _mm256_shuffle_ps(first, last, 0x88);
}

/* Rounds eight runs in units: their codes, their factors, and total += the products of both. */
VB_TARGET_AVX2 VB_INLINE __m256i round_eight(int8_t *codes, int16_t *factors, const float *h, float in_units,
                                             __m256i total, const bool even_odd) {
    const __m256 magnitude = _mm256_castsi256_ps(_mm256_set1_epi32(0x7fffffff)), units = _mm256_set1_ps(in_units);
    const __m256i in_order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    const __m256i elements = _mm256_setr_epi8(0, 8, 1, 9, 4, 12, 5, 13, 2, 10, 3, 11, 6, 14, 7, 15, 0, 8, 1, 9, 4, 12,
                                              5, 13, 2, 10, 3, 11, 6, 14, 7, 15);
    __m256 v[8];
    for (int r = 0; r < 8; r++) v[r] = _mm256_and_ps(run_of(h, r, even_odd), magnitude);
    /* A NaN or an infinity is in the unit; codes are of no matter then. */
    const __m256 least = _mm256_mul_ps(_mm256_mul_ps(greatest_of_eight(v), units), _mm256_set1_ps(1.0f / MOST_CODE));
    const __m256 factor = _mm256_min_ps(_mm256_max_ps(_mm256_ceil_ps(least), _mm256_set1_ps(1)),
                                        _mm256_set1_ps(MOST_FACTOR));
    const __m256 inverse = _mm256_div_ps(units, factor);
    const __m256i whole = _mm256_cvtps_epi32(factor);
    const __m128i four[2] = {_mm256_castsi256_si128(whole), _mm256_extracti128_si256(whole, 1)};
    _mm_storeu_si128((__m128i *)factors, _mm_packs_epi32(four[0], four[1]));
    for (int half = 0; half < 2; half++) {
        __m256i q[4];
        for (int r = 0; r < 4; r++) {
            const int run = 4 * half + r;
            const __m256 scale = _mm256_permutevar8x32_ps(inverse, _mm256_set1_epi32(run));
            q[r] = _mm256_cvtps_epi32(_mm256_mul_ps(run_of(h, run, even_odd), scale));
        }
        const __m256i mixed = _mm256_packs_epi16(_mm256_packs_epi32(q[0], q[1]), _mm256_packs_epi32(q[2], q[3]));
        const __m256i bytes = _mm256_permutevar8x32_epi32(mixed, in_order);
        const __m256i sums =
            _mm256_sad_epu8(_mm256_xor_si256(bytes, _mm256_set1_epi8(-128)), _mm256_setzero_si256());
        _mm256_storeu_si256((__m256i *)(codes + 4 * half * RUN),
                            even_odd ? _mm256_shuffle_epi8(bytes, elements) : bytes);
        total = _mm256_add_epi64(total, _mm256_mul_epi32(_mm256_sub_epi64(sums, _mm256_set1_epi64x(128 * RUN)),
                                                         _mm256_cvtepi32_epi64(four[half])));
    }
    return total;
}

/* Runs of eight of k elements: each sixteen have two, whatever the elements are that runs take of these. */
static inline int64_t runs_of(int64_t k) { return (k + LONG - 1) / LONG * 2; }

/* Rounds k values, at most of one piece, in units: codes[k], a factor for each run, and the sum of their products. */
VB_TARGET_AVX2 VB_INLINE float round_runs(int8_t *codes, int16_t *factors, const float *h, int64_t k, float unit,
                                          const bool even_odd) {
    const float in_units = unit > 0 ? 1.0f / unit : 0.0f;
    __m256i totals = _mm256_setzero_si256();
    int64_t i = 0, lanes[4], total = 0;
    for (; i + 8 * RUN <= k; i += 8 * RUN)
        totals = round_eight(codes + i, factors + i / RUN, h + i, in_units, totals, even_odd);
    if (i < k) {
        float last[8 * RUN] = {0};
        int8_t last_codes[8 * RUN];
        int16_t last_factors[8];
        memcpy(last, h + i, (size_t)(k - i) * 4);
        totals = round_eight(last_codes, last_factors, last, in_units, totals, even_odd);
        memcpy(codes + i, last_codes, (size_t)(k - i));
        memcpy(factors + i / RUN, last_factors, (size_t)runs_of(k - i) * 2);
    }
    _mm256_storeu_si256((__m256i *)lanes, totals);
    for (int lane = 0; lane < 4; lane++) total += lanes[lane];
    return (float)total;
}

/* The greatest of each of sixteen vectors, in their order. */
VB_TARGET_AVX512 static inline __m512 greatest_of_sixteen(const __m512 v[16]) {
    __m512 a[8], b[4], c[2];
    for (int i = 0; i < 8; i++)
        a[i] = _mm512_max_ps(_mm512_unpacklo_ps(v[2 * i], v[2 * i + 1]), _mm512_unpackhi_ps(v[2 * i], v[2 * i + 1]));
    for (int i = 0; i < 4; i++)
        b[i] = _mm512_max_ps(_mm512_shuffle_ps(a[2 * i], a[2 * i + 1], 0x44),
                             _mm512_shuffle_ps(a[2 * i], a[2 * i + 1], 0xee));
    for (int i = 0; i < 2; i++)
        c[i] = _mm512_max_ps(_mm512_shuffle_f32x4(b[2 * i], b[2 * i + 1], 0x88),
                             _mm512_shuffle_f32x4(b[2 * i], b[2 * i + 1], 0xdd));
    return _mm512_max_ps(_mm512_shuffle_f32x4(c[0], c[1], 0x88), _mm512_shuffle_f32x4(c[0], c[1], 0xdd));
}

/* Rounds sixteen long runs in units, as round_eight does. */
VB_TARGET_AVX512 static inline __m512i round_sixteen(int8_t *codes, int16_t *factors, const float *h, float in_units,
                                                     __m512i total) {
    const __m512 units = _mm512_set1_ps(in_units);
    __m512 v[16];
    for (int r = 0; r < 16; r++) v[r] = _mm512_abs_ps(_mm512_loadu_ps(h + r * LONG));
    const __m512 least = _mm512_mul_ps(_mm512_mul_ps(greatest_of_sixteen(v), units), _mm512_set1_ps(1.0f / MOST_CODE));
    const __m512 up = _mm512_roundscale_ps(least, _MM_FROUND_TO_POS_INF | _MM_FROUND_NO_EXC);
    const __m512 factor = _mm512_min_ps(_mm512_max_ps(up, _mm512_set1_ps(1)), _mm512_set1_ps(MOST_FACTOR));
    const __m512 inverse = _mm512_div_ps(units, factor);
    const __m512i whole = _mm512_cvtps_epi32(factor);
    _mm256_storeu_si256((__m256i *)factors, _mm512_cvtepi32_epi16(whole));
    for (int r = 0; r < 16; r++) {
        const __m512 scale = _mm512_permutexvar_ps(_mm512_set1_epi32(r), inverse);
        const __m512i q = _mm512_cvtps_epi32(_mm512_mul_ps(_mm512_loadu_ps(h + r * LONG), scale));
        _mm_storeu_si128((__m128i *)(codes + r * LONG), _mm512_cvtsepi32_epi8(q));
    }
    for (int r = 0; r < 16; r += 4) { /* a run has four numbers of 32 bits, of four codes each */
        const __m512i place = _mm512_setr_epi32(r, r, r, r, r + 1, r + 1, r + 1, r + 1, r + 2, r + 2, r + 2, r + 2,
                                                r + 3, r + 3, r + 3, r + 3);
        const __m512i sums = _mm512_dpbusd_epi32(_mm512_setzero_si512(), _mm512_set1_epi8(1),
                                                 _mm512_loadu_si512(codes + r * LONG));
        total = _mm512_add_epi32(total, _mm512_mullo_epi32(sums, _mm512_permutexvar_epi32(place, whole)));
    }
    return total;
}

/* round_runs of long runs: a sum of int32 has up to 4 times 4 * 128 * 4096 of a vector. */
VB_TARGET_AVX512 static float round_long_runs(int8_t *codes, int16_t *factors, const float *h, int64_t k, float unit) {
    enum { MANY = 16 * LONG };
    const float in_units = unit > 0 ? 1.0f / unit : 0.0f;
    __m512i totals = _mm512_setzero_si512();
    int64_t i = 0;
    for (; i + MANY <= k; i += MANY) totals = round_sixteen(codes + i, factors + i / LONG, h + i, in_units, totals);
    if (i < k) {
        float last[MANY] = {0};
        int8_t last_codes[MANY];
        int16_t last_factors[16];
        memcpy(last, h + i, (size_t)(k - i) * 4);
        totals = round_sixteen(last_codes, last_factors, last, in_units, totals);
        memcpy(codes + i, last_codes, (size_t)(k - i));
        memcpy(factors + i / LONG, last_factors, (size_t)((k - i + LONG - 1) / LONG) * 2);
    }
    const __m512i low = _mm512_cvtepi32_epi64(_mm512_castsi512_si256(totals));
    const __m512i high = _mm512_cvtepi32_epi64(_mm512_extracti64x4_epi64(totals, 1));
    return (float)_mm512_reduce_add_epi64(_mm512_add_epi64(low, high));
}

/* Puts the factors of so many runs of eight where vb_codes_run_place says, those of even elements four times themselves
 * where that is asked for. */
VB_TARGET_AVX2 static void place_factors(int16_t *to, const int16_t *factors, int64_t runs, bool fourfold) {
    const __m128i order = _mm_setr_epi8(0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15);
    const __m128i even = _mm_set1_epi16(fourfold ? 4 : 1), odd = _mm_set1_epi16(1);
    for (int64_t r = 0; r < runs; r += 8) {
        int16_t last[8] = {0};
        const int16_t *const from = runs - r >= 8 ? factors + r : memcpy(last, factors + r, (size_t)(runs - r) * 2);
        const __m128i v = _mm_shuffle_epi8(_mm_loadu_si128((const __m128i *)from), order);
        _mm_storeu_si128((__m128i *)(to + r), _mm_mullo_epi16(v, _mm_unpacklo_epi64(even, odd)));
    }
}

VB_TARGET_AVX2 static void round_range(void *context, int worker, int64_t begin, int64_t end) {
    const scaled_job *j = context;
    const vb_tmac_matmul_args *a = j->a;
    int16_t *factors = (int16_t *)(j->scratch + worker * j->worker_bytes);
    int8_t *codes = (int8_t *)(factors + runs_of(a->k));
    const int64_t vectors = j->row_of_x / VB_CODES_X;
    for (int64_t column = begin; column < end; column++) {
        float *const h = j->h + column * a->k;
        vb_tmac_norm(h, a);
        const float most = vb_tmac_greatest(h, a->k), unit = most / (MOST_CODE * MOST_FACTOR);
        j->units[column] = unit;
        for (int64_t p = 0; p < j->pieces; p++) {
            const piece u = piece_at(j, p);
            const int64_t at = p * a->n + column, first = 4 * u.first, k = vb_max(vb_min(4 * u.bytes, a->k - first), 0);
            const vb_codes_place place = vb_codes_place_of(column, a->n, vectors, j->simd);
            int8_t *x = j->x + (p * a->n * vectors + place.first) * VB_CODES_X;
            int16_t *f = j->factors + (p * a->n * vectors + place.first) * FACTORS;
            for (int64_t v = k / VB_CODES_X; v < vectors; v++) memset(x + v * place.step * VB_CODES_X, 0, VB_CODES_X);
            const float of = most > 0x1p-100f ? unit : 0.0f;
            const bool apart = j->products || j->even_odd;
            j->totals[at] = j->long_runs ? round_long_runs(codes, factors, h + first, k, of)
                            : apart      ? round_runs(codes, factors, h + first, k, of, true)
                                         : round_runs(codes, factors, h + first, k, of, false);
            vb_codes_arrange(x, place.step, codes, k, j->simd);
            if (apart) {
                f = j->factors + at * j->row_of_factors;
                memset(f, 0, (size_t)j->row_of_factors * sizeof *f);
                const int64_t all = (k + LONG - 1) / LONG;
                if (j->long_runs)
                    for (int64_t r = 0; r < all; r += VB_CODES_AGAIN)
                        for (int again = 0; again <= VB_CODES_AGAIN; again += VB_CODES_AGAIN)
                            memcpy(f + vb_codes_run_place(r, true) + again, factors + r,
                                   (size_t)vb_min(VB_CODES_AGAIN, all - r) * sizeof *f);
                else
                    place_factors(f, factors, runs_of(k), j->even_odd);
                continue;
            }
            for (int64_t v = 0; v < vectors; v++) memset(f + v * place.step * FACTORS, 0, FACTORS * sizeof *f);
            const int64_t runs = (k + RUN - 1) / RUN;
            for (int64_t r = 0; r < runs; r += FACTORS)
                memcpy(f + r * place.step, factors + r, (size_t)vb_min(FACTORS, runs - r) * sizeof *f);
        }
    }
}

/* Rows of a panel times N columns with AVX-512: all rows meet a piece before the next one. */
VB_TARGET_AVX512 VB_INLINE void products_panel(const scaled_job *j, int64_t row, int rows, int64_t column,
                                               const int N) {
    enum { ALL = VB_CODES_PANEL_ROWS * VB_CODES_LONG_N };
    const vb_tmac_matmul_args *a = j->a;
    float products[ALL] = {0}, sums[ALL + VB_CODES_PAST];
    for (int64_t p = 0; p < j->pieces; p++) {
        const piece u = piece_at(j, p);
        const int64_t at = p * a->n + column;
        vb_cpu_code_products(sums, (const uint8_t *)a->weights + row * j->row_bytes + u.first, j->row_bytes, u.bytes,
                             rows, j->x + at * j->row_of_x, j->row_of_x, j->factors + at * j->row_of_factors,
                             j->row_of_factors, j->long_runs, N);
        for (int r = 0; r < rows; r++) {
            const float scale = a->scales ? a->scales[(row + r) * a->groups + u.group] : 1.0f;
            for (int c = 0; c < N; c++) products[r * N + c] += (sums[r * N + c] - j->totals[at + c]) * scale;
        }
    }
    for (int r = 0; r < rows; r++)
        for (int c = 0; c < N; c++)
            a->out[(row + r) * a->n + column + c] = products[r * N + c] * j->units[column + c];
}

VB_TARGET_AVX512 static void products_range(void *context, int worker, int64_t begin, int64_t end) {
    (void)worker;
    const scaled_job *j = context;
    for (int64_t row = begin; row < end; row += VB_CODES_PANEL_ROWS) {
        const int rows = (int)vb_min(VB_CODES_PANEL_ROWS, end - row);
        int64_t parts = (j->a->n + VB_CODES_LONG_N - 1) / VB_CODES_LONG_N, columns;
        for (int64_t column = 0; column < j->a->n; column += columns, parts--)
            switch (columns = (j->a->n - column + parts - 1) / parts) {
            case 4: products_panel(j, row, rows, column, 4); break;
            case 3: products_panel(j, row, rows, column, 3); break;
            case 2: products_panel(j, row, rows, column, 2); break;
            default: products_panel(j, row, rows, column, 1);
            }
    }
}

/* The same with AVX2. */
VB_TARGET_AVX2 VB_INLINE void panel(const scaled_job *j, int64_t row, int rows, int64_t column, const int N) {
    const vb_tmac_matmul_args *a = j->a;
    float products[VB_CODES_PANEL_ROWS * 8] = {0}, sums[VB_CODES_PANEL_ROWS * 8];
    for (int64_t p = 0; p < j->pieces; p++) {
        const piece u = piece_at(j, p);
        const int64_t at = p * a->n + column, vector = at * (j->row_of_x / VB_CODES_X);
        vb_cpu_code_scaled_panel(sums, (const uint8_t *)a->weights + row * j->row_bytes + u.first, j->row_bytes,
                                 u.bytes, rows, j->x + vector * VB_CODES_X, j->factors + vector * FACTORS, N);
        for (int r = 0; r < rows; r++) {
            const float scale = a->scales ? a->scales[(row + r) * a->groups + u.group] : 1.0f;
            for (int c = 0; c < N; c++) products[r * N + c] += (sums[r * N + c] - j->totals[at + c]) * scale;
        }
    }
    for (int r = 0; r < rows; r++)
        for (int c = 0; c < N; c++)
            a->out[(row + r) * a->n + column + c] = products[r * N + c] * j->units[column + c];
}

VB_TARGET_AVX2 static void panels_range(void *context, int worker, int64_t begin, int64_t end) {
    (void)worker;
    const scaled_job *j = context;
    for (int64_t row = begin; row < end; row += VB_CODES_PANEL_ROWS) {
        const int rows = (int)vb_min(VB_CODES_PANEL_ROWS, end - row);
        int columns;
        for (int64_t column = 0; column < j->a->n; column += columns)
            switch (columns = vb_codes_group(j->a->n - column)) {
            case 8: panel(j, row, rows, column, 8); break;
            case 4: panel(j, row, rows, column, 4); break;
            case 3: panel(j, row, rows, column, 3); break;
            case 2: panel(j, row, rows, column, 2); break;
            default: panel(j, row, rows, column, 1);
            }
    }
}

/* One column and one group, whose pieces lie one behind the other. */
static void lines_range(void *context, int worker, int64_t begin, int64_t end) {
    (void)worker;
    const scaled_job *j = context;
    const vb_tmac_matmul_args *a = j->a;
    float total = 0;
    for (int64_t p = 0; p < j->pieces; p++) total += j->totals[p];
    for (int64_t row = begin; row < end; row += LINES) {
        const int rows = (int)vb_min(LINES, end - row);
        float sums[LINES];
        (j->even_odd ? vb_cpu_code_even_odd_lines : vb_cpu_code_scaled_lines)(
            sums, (const uint8_t *)a->weights + row * j->row_bytes, j->row_bytes, j->row_bytes, rows, j->x, j->factors);
        for (int r = 0; r < rows; r++)
            a->out[row + r] = (sums[r] - total) * (a->scales ? a->scales[row + r] : 1.0f) * j->units[0];
    }
}

vb_status vb_cpu_tmac_scaled(const vb_tmac_matmul_args *args, vb_simd simd, vb_stream *stream) {
    const vb_tmac_matmul_args *a = args;
    scaled_job job = {.a = a, .row_bytes = (a->k + 3) / 4, .simd = simd};
    job.group_bytes = (job.row_bytes + a->groups - 1) / a->groups;
    job.products = job.simd == VB_SIMD_AVX512 && (a->n > 1 || a->groups > 1);
    job.long_runs = job.products && !(a->normed && a->norm);
    job.even_odd = job.simd == VB_SIMD_AVX512 && !job.products && job.row_bytes > VB_CODES_SHORT;
    job.piece_bytes = VB_CODES_PIECE;
    if (job.products) {
        const int64_t parts = (a->n + VB_CODES_LONG_N - 1) / VB_CODES_LONG_N, together = (a->n + parts - 1) / parts;
        job.piece_bytes = vb_codes_panel_bytes(job.group_bytes, vb_min(ONE_NEAR / together, VB_CODES_PIECE));
    } else if (a->n > 1)
        job.piece_bytes = vb_codes_panel_bytes(job.group_bytes, a->n >= 8 ? NEAR : VB_CODES_PIECE);
    job.pieces_a_group = (job.group_bytes + job.piece_bytes - 1) / job.piece_bytes;
    job.pieces = job.pieces_a_group * a->groups;
    job.row_of_x = vb_codes_vectors(vb_min(job.group_bytes, job.piece_bytes)) * VB_CODES_X;
    job.row_of_factors = job.row_of_x / RUN;
    const int64_t threads = vb_cpu_pool_threads(vb_cpu_device_of(stream)->pool);
    int64_t rows, x, workers, elements, bytes;
    if (__builtin_mul_overflow(job.pieces, a->n, &rows) ||
        __builtin_mul_overflow(rows, job.row_of_x + 2 * job.row_of_factors + 4, &x) ||
        __builtin_mul_overflow(a->k, 2, &job.worker_bytes) || job.worker_bytes > INT64_MAX - 128)
        return VB_OUT_OF_MEMORY;
    job.worker_bytes = (job.worker_bytes + 127) / 64 * 64;
    if (__builtin_mul_overflow(threads, job.worker_bytes, &workers) || __builtin_add_overflow(x, workers, &bytes) ||
        __builtin_mul_overflow(a->n * a->k, 4, &elements) || __builtin_add_overflow(bytes, elements, &bytes) ||
        __builtin_add_overflow(bytes, 4 * a->n + APART, &bytes))
        return VB_OUT_OF_MEMORY;
    job.scratch = vb_cpu_scratch(stream, bytes);
    if (!job.scratch) return VB_OUT_OF_MEMORY;
    job.x = (int8_t *)job.scratch + workers;
    job.factors = (int16_t *)(job.x + rows * job.row_of_x + APART);
    job.totals = (float *)(job.factors + rows * job.row_of_factors);
    job.units = job.totals + rows;
    job.h = job.units + a->n;
    vb_cpu_tmac_take(job.h, a, 0, a->n, stream);
    vb_cpu_parallel(stream, a->n, vb_tmac_share(a), round_range, &job);
    const int64_t grain = vb_cpu_matrix_grain(stream, a->m, job.row_bytes, VB_CODES_ROWS, false);
    const vb_cpu_task range = job.products ? products_range : a->n == 1 && a->groups == 1 ? lines_range : panels_range;
    vb_cpu_parallel(stream, a->m, grain, range, &job);
    return VB_OK;
}
#endif
