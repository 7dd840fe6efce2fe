/* cpu_tmac_words.c: products of ternary weights and several columns by looking up words, with AVX-512 VBMI.
 *
 * Three neighbours of a column have 27 sums, which one register holds: 32 numbers of 16 bits. A permutation of words
 * looks up such a sum for 32 rows of weights. These are 96 products, where a dot product of bytes has 64.
 *
 * Weights are laid out first: three codes of a row are a number in base three, and a word has two of these numbers.
 * Words of 32 rows lie side by side. Columns are rounded by runs of 96 elements, so that 16 bits hold a run's sum. */
#include "cpu_tmac.h"

#if VB_X86
#include <immintrin.h>

enum {
    ROWS = 32,              /* of a register */
    BLOCK_BYTES = 48,       /* of a row of weights, which are laid out at a time */
    BLOCK_WORDS = 32,       /* which have two codes of three each */
    RUN = 96,               /* elements that are rounded together */
    RUN_WORDS = RUN / 6,
    MOST_CODE = 341,        /* of which RUN are less than 2^15 */
    COLUMNS = 4,            /* at a time */
    TABLE = 32,             /* numbers of a table */
    TABLES_BYTES = 4 << 20, /* of a block of columns */
    INDEX_BYTES = 512 << 10 /* of rows that are laid out together */
};

typedef struct words_job {
    const vb_tmac_matmul_args *a;
    int64_t row_bytes, blocks, words, runs; /* of a row */
    int64_t column, columns;                /* the block of columns */
    int16_t *tables;                        /* [columns][words][2][TABLE] */
    float *scales;                          /* [columns][runs] */
    float *h;                               /* [columns][k] */
    char *scratch;                          /* of the workers: sums and codes */
    int64_t rows, worker_bytes;             /* rows that are laid out together */
} words_job;

/* ---- tables ------------------------------------------------------------------------------------------------------ */

/* The weights of place i of the code e = c0 + 3 c1 + 9 c2. */
VB_TARGET_VBMI VB_INLINE __m512i weights_of(int i) {
    int16_t w[TABLE];
    for (int e = 0; e < TABLE; e++) w[e] = (int16_t)(e < 27 ? e / (i == 0 ? 1 : i == 1 ? 3 : 9) % 3 - 1 : 0);
    return _mm512_loadu_si512(w);
}

VB_TARGET_VBMI static void fill_tables(void *context, int worker, int64_t begin, int64_t end) {
    (void)worker;
    const words_job *j = context;
    const vb_tmac_matmul_args *a = j->a;
    const __m512i first = weights_of(0), second = weights_of(1), third = weights_of(2);
    for (int64_t c = begin; c < end; c++) {
        float *const h = j->h + c * a->k;
        vb_tmac_norm(h, a);
        for (int64_t run = 0; run < j->runs; run++) {
            const int live = (int)vb_min(RUN, a->k - run * RUN);
            const float *v = h + run * RUN;
            float last[RUN];
            if (live < RUN) {
                memset(last, 0, sizeof last);
                v = memcpy(last, v, (size_t)live * 4);
            }
            /* A NaN or an infinity is in the scale; the codes are of no matter then. */
            const float greatest = vb_tmac_greatest(v, RUN);
            const float inverse = greatest > 0x1p-100f ? MOST_CODE / greatest : 0.0f;
            j->scales[c * j->runs + run] = greatest / MOST_CODE;
            int16_t q[RUN];
            for (int i = 0; i < RUN; i++)
                q[i] = (int16_t)(int32_t)(vb_float_bits(v[i] * inverse + 0x1.8p23f) - 0x4b400000u);
            const int64_t words = vb_min(RUN_WORDS, j->words - run * RUN_WORDS);
            int16_t *to = j->tables + (c * j->words + run * RUN_WORDS) * 2 * TABLE;
            for (int i = 0; i < 2 * words; i++, to += TABLE) {
                const __m512i sums = _mm512_add_epi16(
                    _mm512_add_epi16(_mm512_mullo_epi16(first, _mm512_set1_epi16(q[3 * i])),
                                     _mm512_mullo_epi16(second, _mm512_set1_epi16(q[3 * i + 1]))),
                    _mm512_mullo_epi16(third, _mm512_set1_epi16(q[3 * i + 2])));
                _mm512_store_si512(to, sums);
            }
        }
    }
}

/* ---- weights ----------------------------------------------------------------------------------------------------- */

/* Eight rows of 16-bit words: vector i has words i, 8 + i, 16 + i and 24 + i of the rows, a lane each. */
VB_TARGET_VBMI VB_INLINE void transpose8(__m512i a[8]) {
    __m512i b[8], c[8];
    _Pragma("GCC unroll 4") for (int i = 0; i < 8; i += 2) {
        b[i] = _mm512_unpacklo_epi16(a[i], a[i + 1]);
        b[i + 1] = _mm512_unpackhi_epi16(a[i], a[i + 1]);
    }
    _Pragma("GCC unroll 2") for (int i = 0; i < 8; i += 4) {
        c[i] = _mm512_unpacklo_epi32(b[i], b[i + 2]);
        c[i + 1] = _mm512_unpackhi_epi32(b[i], b[i + 2]);
        c[i + 2] = _mm512_unpacklo_epi32(b[i + 1], b[i + 3]);
        c[i + 3] = _mm512_unpackhi_epi32(b[i + 1], b[i + 3]);
    }
    _Pragma("GCC unroll 4") for (int i = 0; i < 4; i++) {
        a[2 * i] = _mm512_unpacklo_epi64(c[i], c[i + 4]);
        a[2 * i + 1] = _mm512_unpackhi_epi64(c[i], c[i + 4]);
    }
}

/* Each 6 bytes are eight codes of three, 6 bits each, which `base` takes to base three; a code of 3 becomes 2. */
typedef struct alphabet {
    uint8_t spread[64], base[64];
} alphabet;

static void fill_alphabet(alphabet *to) {
    for (int i = 0; i < 64; i++) {
        const int a = i & 3, b = i >> 2 & 3, c = i >> 4;
        to->spread[i] = (uint8_t)(i / 8 * 6 + i % 8);
        to->base[i] = (uint8_t)(a - a / 3 + 3 * (b - b / 3) + 9 * (c - c / 3));
    }
}

/* The codes of three of a row: [blocks][BLOCK_BYTES / 3 * 4]. Returns whether there is a code of 3. */
VB_TARGET_VBMI static bool read_row(uint8_t *to, const uint8_t *w, int64_t bytes, const alphabet *letters) {
    const __m512i order = _mm512_loadu_si512(letters->spread), base = _mm512_loadu_si512(letters->base);
    const __m512i shifts = _mm512_set1_epi64(0x2a241e18120c0600);
    __m512i threes = _mm512_setzero_si512();
    for (int64_t b = 0; b < bytes; b += BLOCK_BYTES, to += 64) {
        const __mmask64 live = (1ull << vb_min(BLOCK_BYTES, bytes - b)) - 1;
        const __m512i v = _mm512_maskz_loadu_epi8(live, w + b);
        _mm_prefetch((const char *)w + b + (8 << 10), _MM_HINT_T1);
        threes = _mm512_or_si512(threes, _mm512_and_si512(v, _mm512_add_epi8(v, v))); /* the upper bits count */
        const __m512i sixes = _mm512_multishift_epi64_epi8(shifts, _mm512_permutexvar_epi8(order, v));
        _mm512_store_si512(to, _mm512_permutexvar_epi8(sixes, base));
    }
    return _mm512_test_epi8_mask(threes, _mm512_set1_epi8((char)0xaa)) != 0;
}

/* A block of ROWS rows, which lie `stride` bytes apart: words[BLOCK_WORDS][ROWS]. */
VB_TARGET_VBMI static void transpose_block(uint16_t *words, const uint8_t *codes, int64_t stride) {
    __m512i part[4][8];
    for (int group = 0; group < 4; group++) {
        __m512i a[8];
        _Pragma("GCC unroll 8") for (int i = 0; i < 8; i++) a[i] = _mm512_load_si512(codes + (8 * group + i) * stride);
        transpose8(a);
        _Pragma("GCC unroll 8") for (int i = 0; i < 8; i++) part[group][i] = a[i];
    }
    _Pragma("GCC unroll 8") for (int i = 0; i < 8; i++) {
        const __m512i a = _mm512_shuffle_i32x4(part[0][i], part[1][i], 0x88);
        const __m512i b = _mm512_shuffle_i32x4(part[0][i], part[1][i], 0xdd);
        const __m512i c = _mm512_shuffle_i32x4(part[2][i], part[3][i], 0x88);
        const __m512i d = _mm512_shuffle_i32x4(part[2][i], part[3][i], 0xdd);
        _mm512_store_si512(words + i * ROWS, _mm512_shuffle_i32x4(a, c, 0x88));
        _mm512_store_si512(words + (8 + i) * ROWS, _mm512_shuffle_i32x4(b, d, 0x88));
        _mm512_store_si512(words + (16 + i) * ROWS, _mm512_shuffle_i32x4(a, c, 0xdd));
        _mm512_store_si512(words + (24 + i) * ROWS, _mm512_shuffle_i32x4(b, d, 0xdd));
    }
}

/* ---- products ---------------------------------------------------------------------------------------------------- */

/* Keeps a vector that was read in a register, in place of reading it for each use. */
VB_TARGET_VBMI VB_INLINE __m512i held(__m512i x) {
    __asm__("" : "+v"(x));
    return x;
}

/* sums[i][row] += scale of column i times what its tables say of so many words of a run, for R registers of rows.
 * Registers of rows lie `stride` words apart, columns a multiple of the others' numbers. */
VB_TARGET_VBMI VB_INLINE void look_up_run(float *sums, int64_t rows, const uint16_t *words, int64_t stride,
                                          const int16_t *tables, int64_t table_stride, const float *scales,
                                          int64_t scale_stride, int count, const int R, const int N) {
    __m512i sum[4 * COLUMNS];
    _Pragma("GCC unroll 16") for (int i = 0; i < R * N; i++) sum[i] = _mm512_setzero_si512();
    for (int word = 0; word < count; word++)
        _Pragma("GCC unroll 2") for (int half = 0; half < 2; half++) {
            __m512i codes[4]; /* in the lower 5 bits of a word: those of the upper byte are read a byte further on */
            _Pragma("GCC unroll 4") for (int r = 0; r < R; r++)
                codes[r] = held(_mm512_loadu_si512((const uint8_t *)(words + r * stride + word * ROWS) + half));
            _Pragma("GCC unroll 4") for (int i = 0; i < N; i++) {
                const __m512i table = held(_mm512_load_si512(tables + i * table_stride + (2 * word + half) * TABLE));
                _Pragma("GCC unroll 4") for (int r = 0; r < R; r++)
                    sum[r * N + i] =
                        held(_mm512_add_epi16(sum[r * N + i], _mm512_permutexvar_epi16(codes[r], table)));
            }
        }
    _Pragma("GCC unroll 4") for (int i = 0; i < N; i++) {
        const __m512 scale = _mm512_set1_ps(scales[i * scale_stride]);
        _Pragma("GCC unroll 4") for (int r = 0; r < R; r++) {
            float *const to = sums + i * rows + r * ROWS;
            const __m512 even = _mm512_cvtepi32_ps(_mm512_madd_epi16(sum[r * N + i], _mm512_set1_epi32(1)));
            const __m512 odd = _mm512_cvtepi32_ps(_mm512_madd_epi16(sum[r * N + i], _mm512_set1_epi32(1 << 16)));
            _mm512_store_ps(to, _mm512_fmadd_ps(even, scale, _mm512_load_ps(to)));
            _mm512_store_ps(to + 16, _mm512_fmadd_ps(odd, scale, _mm512_load_ps(to + 16)));
        }
    }
}

/* Where the sum of a row is: those of the even rows of a register come first. */
static inline int64_t place_of(int64_t row) { return row / ROWS * ROWS + row % 2 * (ROWS / 2) + row % ROWS / 2; }

typedef void (*look_up_function)(float *sums, int64_t rows, const uint16_t *words, int64_t stride,
                                 const int16_t *tables, int64_t table_stride, const float *scales,
                                 int64_t scale_stride, int count);
#define LOOK_UP(R, N) \
    VB_TARGET_VBMI static void look_up_##R##_##N(float *sums, int64_t rows, const uint16_t *words, int64_t stride, \
                                                 const int16_t *tables, int64_t table_stride, const float *scales, \
                                                 int64_t scale_stride, int count) { \
        look_up_run(sums, rows, words, stride, tables, table_stride, scales, scale_stride, count, R, N); \
    }
LOOK_UP(1, 1)
LOOK_UP(1, 2)
LOOK_UP(1, 4)
LOOK_UP(4, 1)
LOOK_UP(4, 2)
LOOK_UP(4, 4)

/* Adds what a code of 3 has more than one of 2: an element of x. */
static void add_threes(const words_job *j, int64_t row, int64_t column, float *sums, int64_t rows, int64_t live,
                       int columns) {
    const vb_tmac_matmul_args *a = j->a;
    for (int64_t r = 0; r < live; r++) {
        const uint8_t *w = (const uint8_t *)a->weights + (row + r) * j->row_bytes;
        for (int64_t k = 0; k < a->k; k++)
            if ((w[k / 4] >> k % 4 * 2 & 3) == 3)
                for (int c = 0; c < columns; c++) sums[c * rows + place_of(r)] += j->h[(column + c) * a->k + k];
    }
}

/* Lays out rows from `row` on, by way of `codes`, [ROWS][blocks][64]. Returns whether there is a code of 3. */
static bool lay_out(const words_job *j, uint16_t *words, uint8_t *codes, int64_t row, int64_t live,
                    const alphabet *letters) {
    const int64_t stride = j->blocks * 64;
    const uint8_t *w = (const uint8_t *)j->a->weights + row * j->row_bytes;
    bool threes = false;
    for (int64_t first = 0; first < live; first += ROWS) {
        for (int64_t r = 0; r < ROWS; r++)
            if (first + r < live)
                threes |= read_row(codes + r * stride, w + (first + r) * j->row_bytes, j->row_bytes, letters);
            else
                memset(codes + r * stride, 0, (size_t)stride);
        for (int64_t b = 0; b < j->blocks; b++, words += BLOCK_WORDS * ROWS)
            transpose_block(words, codes + b * 64, stride);
    }
    return threes;
}

/* sums[i][row] = the product of columns c to c + n - 1. */
static void columns_of_rows(const words_job *j, float *sums, const uint16_t *words, int64_t registers, int64_t c,
                            int n) {
    const int64_t stride = j->blocks * BLOCK_WORDS * ROWS, table_stride = j->words * 2 * TABLE;
    const look_up_function four = n == 4 ? look_up_4_4 : n == 2 ? look_up_4_2 : look_up_4_1;
    const look_up_function one = n == 4 ? look_up_1_4 : n == 2 ? look_up_1_2 : look_up_1_1;
    memset(sums, 0, (size_t)(n * j->rows) * 4);
    for (int64_t run = 0; run < j->runs; run++) {
        const int count = (int)vb_min(RUN_WORDS, j->words - run * RUN_WORDS);
        const int16_t *tables = j->tables + c * table_stride + run * RUN_WORDS * 2 * TABLE;
        const float *scales = j->scales + c * j->runs + run;
        const uint16_t *at = words + run * RUN_WORDS * ROWS;
        int64_t r = 0;
        for (; r + 4 <= registers; r += 4)
            four(sums + r * ROWS, j->rows, at + r * stride, stride, tables, table_stride, scales, j->runs, count);
        for (; r < registers; r++)
            one(sums + r * ROWS, j->rows, at + r * stride, stride, tables, table_stride, scales, j->runs, count);
    }
}

VB_TARGET_VBMI static void store_rows(const words_job *j, const float *sums, int64_t row, int64_t live, int64_t column,
                                      int n) {
    const vb_tmac_matmul_args *a = j->a;
    int64_t r = 0;
    for (; n == 4 && r + ROWS <= live; r += ROWS)
        for (int odd = 0; odd < 2; odd++) {
            __m512 v[4], pair[4];
            for (int i = 0; i < 4; i++) v[i] = _mm512_load_ps(sums + i * j->rows + r + odd * ROWS / 2);
            for (int i = 0; i < 2; i++) {
                pair[i] = _mm512_unpacklo_ps(v[2 * i], v[2 * i + 1]);
                pair[2 + i] = _mm512_unpackhi_ps(v[2 * i], v[2 * i + 1]);
            }
            /* a lane of v[i] is row 8 lane + 2 i + odd */
            v[0] = _mm512_castpd_ps(_mm512_unpacklo_pd(_mm512_castps_pd(pair[0]), _mm512_castps_pd(pair[1])));
            v[1] = _mm512_castpd_ps(_mm512_unpackhi_pd(_mm512_castps_pd(pair[0]), _mm512_castps_pd(pair[1])));
            v[2] = _mm512_castpd_ps(_mm512_unpacklo_pd(_mm512_castps_pd(pair[2]), _mm512_castps_pd(pair[3])));
            v[3] = _mm512_castpd_ps(_mm512_unpackhi_pd(_mm512_castps_pd(pair[2]), _mm512_castps_pd(pair[3])));
            float lanes[4][16];
            for (int i = 0; i < 4; i++) _mm512_storeu_ps(lanes[i], v[i]);
            for (int i = 0; i < 16; i++) {
                const int64_t at = row + r + 2 * i + odd;
                const __m128 scale = _mm_set1_ps(a->scales ? a->scales[at] : 1.0f);
                _mm_storeu_ps(a->out + at * a->n + column, _mm_mul_ps(_mm_loadu_ps(lanes[i % 4] + i / 4 * 4), scale));
            }
        }
    for (; r < live; r++) {
        const float scale = a->scales ? a->scales[row + r] : 1.0f;
        for (int i = 0; i < n; i++) a->out[(row + r) * a->n + column + i] = sums[i * j->rows + place_of(r)] * scale;
    }
}

static void words_range(void *context, int worker, int64_t begin, int64_t end) {
    const words_job *j = context;
    const vb_tmac_matmul_args *a = j->a;
    float *const sums = (float *)(j->scratch + worker * j->worker_bytes); /* [COLUMNS][rows] */
    uint16_t *const words = (uint16_t *)(sums + COLUMNS * j->rows);       /* [rows / ROWS][blocks][BLOCK_WORDS][ROWS] */
    uint8_t *const codes = (uint8_t *)(words + j->rows * j->blocks * BLOCK_WORDS); /* of ROWS rows */
    alphabet letters;
    fill_alphabet(&letters);
    end = vb_min(end * ROWS, a->m);
    for (int64_t row = begin * ROWS; row < end; row += j->rows) {
        const int64_t live = vb_min(j->rows, end - row), registers = (live + ROWS - 1) / ROWS;
        const bool threes = lay_out(j, words, codes, row, live, &letters);
        for (int64_t c = 0; c < j->columns;) {
            const int64_t left = j->columns - c;
            const int n = left >= 4 ? 4 : left >= 2 ? 2 : 1;
            columns_of_rows(j, sums, words, registers, c, n);
            if (threes) add_threes(j, row, c, sums, j->rows, live, n);
            store_rows(j, sums, row, live, j->column + c, n);
            c += n;
        }
    }
}

vb_status vb_cpu_tmac_words(const vb_tmac_matmul_args *args, vb_stream *stream) {
    const vb_tmac_matmul_args *a = args;
    words_job job = {.a = a, .row_bytes = (a->k + 3) / 4, .words = (a->k + 5) / 6};
    job.blocks = (job.words + BLOCK_WORDS - 1) / BLOCK_WORDS, job.runs = (job.words + RUN_WORDS - 1) / RUN_WORDS;
    const int64_t threads = vb_cpu_pool_threads(vb_cpu_device_of(stream)->pool), registers = (a->m + ROWS - 1) / ROWS;
    const int64_t index = job.blocks * BLOCK_WORDS * ROWS * 2, table = job.words * 2 * TABLE * 2;
    /* Blocks of one size, as many of them for each thread. */
    const int64_t each = vb_max((registers + threads - 1) / threads, 1), largest = index <= INDEX_BYTES / 8 ? 8 : 4;
    const int64_t turns = (each + largest - 1) / largest, block = (each + turns - 1) / turns;
    job.rows = block * ROWS, job.worker_bytes = COLUMNS * job.rows * 4 + (block + 1) * index;
    const int64_t most = vb_min(vb_max(TABLES_BYTES / table / COLUMNS, 1) * COLUMNS, a->n);
    const int64_t column_bytes = table + (job.runs + a->k) * 4;
    int64_t workers, bytes;
    if (__builtin_mul_overflow(threads, job.worker_bytes, &workers) ||
        __builtin_mul_overflow(most, column_bytes, &bytes) || __builtin_add_overflow(bytes, workers, &bytes))
        return VB_OUT_OF_MEMORY;
    job.scratch = vb_cpu_scratch(stream, bytes);
    if (!job.scratch) return VB_OUT_OF_MEMORY;
    job.tables = (int16_t *)(job.scratch + workers);
    job.scales = (float *)(job.tables + most * job.words * 2 * TABLE);
    job.h = job.scales + most * job.runs;
    for (job.column = 0; job.column < a->n; job.column += job.columns) {
        job.columns = vb_min(most, a->n - job.column);
        vb_cpu_tmac_take(job.h, a, job.column, job.columns, stream);
        vb_cpu_parallel(stream, job.columns, vb_tmac_share(a), fill_tables, &job);
        vb_cpu_parallel(stream, registers, block, words_range, &job);
    }
    return VB_OK;
}
#endif
