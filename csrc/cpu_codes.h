/* cpu_codes.h: exact sums of two-bit codes times int8 activations, which W2A8 and table look-up share.
 *
 * A row of codes is read in vectors of 64 bytes. Its four two-bit slots are masked out in place: 64 codes 0..3 a slot.
 * Activations are laid out once a call so that they meet the codes: [vector][slot][64], zeros where no code lies. */
#ifndef VB_CPU_CODES_H
#define VB_CPU_CODES_H

#include "cpu.h"

enum {
    VB_CODES_VECTOR = 64,             /* bytes */
    VB_CODES_X = 4 * VB_CODES_VECTOR, /* activations that meet a vector */
    VB_CODES_ROWS = 4,                /* rows of codes at a time */
    VB_CODES_TILE = 8,                /* rows of activations at a time */
    VB_CODES_SHORT = 1 << 10          /* bytes of a row of codes: four of these are fetched into the first cache */
};

static inline int64_t vb_codes_vectors(int64_t bytes) { return (bytes + VB_CODES_VECTOR - 1) / VB_CODES_VECTOR; }

/* Lays out k activations for a row of VB_INT2_ROWS, vectors a `step` of vectors apart; `to` is zeros before. */
void vb_codes_arrange(int8_t *to, int64_t step, const int8_t *from, int64_t k, vb_simd simd);

/* sums[r][i] = the sum of code * x over `bytes` bytes of row r of codes and row i of x. Row r begins at w + r * stride,
 * row i at x + i * vectors * VB_CODES_X, aligned to 64 bytes. rows <= VB_CODES_ROWS, n <= VB_CODES_TILE. */
void vb_cpu_code_sums(int32_t sums[VB_CODES_ROWS][VB_CODES_TILE], const uint8_t *w, int64_t stride, int64_t bytes,
                      int rows, const int8_t *x, int n, vb_simd simd);

/* sums[r] of one row of x, as vb_cpu_code_sums has them, for any number of rows of codes. */
void vb_cpu_code_lines(int32_t *sums, const uint8_t *w, int64_t stride, int64_t bytes, int rows, const int8_t *x,
                       vb_simd simd);

/* ---- panels (AVX2) -----------------------------------------------------------------------------------------------
 *
 * Rows of activations come in groups of 8, 4, 3, 2 or 1, whose vectors alternate. Rows of codes meet a group one after
 * the other, as many bytes of them as leave the group in the first cache. */
enum { VB_CODES_PANEL_ROWS = 64 };
/* The bytes of a row of codes, at most `most`, that a group meets at a time: equal parts of the row. */
static inline int64_t vb_codes_panel_bytes(int64_t bytes, int64_t most) {
    const int64_t parts = vb_max((bytes + most - 1) / most, 1);
    return vb_codes_vectors((bytes + parts - 1) / parts) * VB_CODES_VECTOR;
}

/* The rows of activations of the group that begins where so many are left. */
static inline int vb_codes_group(int64_t left) { return left >= 8 ? 8 : left >= 4 ? 4 : (int)left; }

/* Where the vectors of row i of n lie: the first one, and how far apart, in vectors. */
typedef struct vb_codes_place {
    int64_t first, step;
} vb_codes_place;
static inline vb_codes_place vb_codes_place_of(int64_t i, int64_t n, int64_t vectors, vb_simd simd) {
    if (simd != VB_SIMD_AVX2) return (vb_codes_place){i * vectors, 1};
    int64_t group = i / 8 * 8;
    while (i >= group + vb_codes_group(n - group)) group += vb_codes_group(n - group);
    return (vb_codes_place){group * vectors + i - group, vb_codes_group(n - group)};
}

/* sums[r][i] as vb_cpu_code_sums has it, of a group of n rows of x. */
void vb_cpu_code_panel(int32_t *sums, const uint8_t *w, int64_t stride, int64_t bytes, int rows, const int8_t *x,
                       int n);

/* ---- with factors (AVX2, AVX-512) ---------------------------------------------------------------------------------
 *
 * Each run of activations has a factor of up to VB_CODES_FACTOR: a run has eight, and a long run, for several columns
 * with AVX-512, sixteen neighbours. A run has eight neighbours with AVX2; with AVX-512 the even or the odd ones of
 * sixteen, whose codes lie in two slots. A call takes up to VB_CODES_PIECE bytes of a row: 32 vectors, of which a sum
 * of int32 has 128 runs of 8 * 3 * 128 * 4096, or 64 long ones. */
enum { VB_CODES_RUN = 8, VB_CODES_LONG_RUN = 16, VB_CODES_FACTOR = 4096, VB_CODES_PIECE = 32 * VB_CODES_VECTOR };

/* Where the factor of run r lies with AVX-512, as packing leaves the sums: those of two rows of codes alternate by
 * fours, so that a long run has its factor VB_CODES_AGAIN further on, too; or those of even and odd elements. Run 2 i
 * has the even ones of sixteen elements, and run 2 i + 1 the odd ones. */
enum { VB_CODES_AGAIN = 4 };
static inline int64_t vb_codes_run_place(int64_t r, bool long_runs) {
    if (long_runs) return r / 4 * 8 + r % 4;
    return r / 8 * 8 + r % 2 * 4 + r % 8 / 2;
}

/* sums[r][i] = the sum of code * x * factor of `rows` rows of codes and n <= VB_CODES_LONG_N rows of x; up to
 * VB_CODES_PAST numbers behind these are written, too. Row i of x begins at x + i * row_of_x, aligned to 64 bytes, the
 * factors of its runs at factors + i * row_of_factors, of whole vectors. With AVX-512. */
enum { VB_CODES_LONG_N = 4, VB_CODES_PAST = 8 };
void vb_cpu_code_products(float *sums, const uint8_t *w, int64_t stride, int64_t bytes, int rows, const int8_t *x,
                          int64_t row_of_x, const int16_t *factors, int64_t row_of_factors, bool long_runs, int n);

/* The same of a group of n rows of x with runs of eight, whose factors alternate as their vectors do, with AVX2. */
void vb_cpu_code_scaled_panel(float *sums, const uint8_t *w, int64_t stride, int64_t bytes, int rows, const int8_t *x,
                              const int16_t *factors, int n);

/* sums[r] of one row of x with factors, for any number of rows of codes of any size: with AVX2; and with AVX-512, where
 * the factors of even elements are four times themselves. */
void vb_cpu_code_even_odd_lines(float *sums, const uint8_t *w, int64_t stride, int64_t bytes, int rows, const int8_t *x,
                                const int16_t *factors);
void vb_cpu_code_scaled_lines(float *sums, const uint8_t *w, int64_t stride, int64_t bytes, int rows, const int8_t *x,
                              const int16_t *factors);

/* ---- tiles of int8 (AMX), where a device's `tiles` is set ---------------------------------------------------------
 *
 * Sixteen rows of codes meet sixteen rows of activations in an instruction, which pays from VB_CODES_LEAST rows of
 * activations on. */
enum { VB_CODES_TILE_SIZE = 16, VB_CODES_MOST = 4 * VB_CODES_TILE_SIZE, VB_CODES_LEAST = 5 };

/* Rows of activations in whole tiles. */
static inline int64_t vb_codes_whole(int64_t n) {
    return (n + VB_CODES_TILE_SIZE - 1) / VB_CODES_TILE_SIZE * VB_CODES_TILE_SIZE;
}

/* Lays out n rows of x, at most 16, of `row_of_x` bytes each, as 16 row_of_x bytes of tiles, aligned to 64 bytes. */
void vb_codes_to_tiles(int8_t *to, const int8_t *x, int64_t row_of_x, int n);

/* sums[r][i] as vb_cpu_code_sums has it, of up to 16 rows of codes and n <= VB_CODES_MOST rows of x as tiles. */
void vb_cpu_code_tiles(int32_t sums[VB_CODES_TILE_SIZE][VB_CODES_MOST], const uint8_t *w, int64_t stride, int64_t bytes,
                       int rows, const int8_t *tiles, int n);

#endif
