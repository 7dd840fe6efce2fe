/* formats.h: the packed layout of each weight format, by numbers. packed.cuh explains them for a tile's bytes.
 * Plain C, for the chooser and its test; kernels read the same numbers.
 *
 *   bits     of a code
 *   zero     the code of the value 0, where no minimum is subtracted
 *   codes    numbers, or places in a table of bytes. Where zero is 0, both are signed; codes of 8 bits are signed
 *            A table is the type's, or VB_CODES_TABLE: each tile holds the table, so that types may share the layout
 *   scales   how a tile keeps the factors that turn codes into values
 *
 * A type whose values fit another type's packed layout takes that layout: a line of VB_PACKED_AS, and its conversion in
 * pack.cu. It costs no kernel, and has the bytes of the other type.
 *
 * A format is added by a line here and its code() in quant.cuh. Scales of a new kind take code in packed.cuh and in the
 * four tiles that multiply: n1_tile.cuh, n4_tile.cuh, n32_tile.cuh, many.cuh. */
#ifndef VB_LINEAR_FORMATS_H
#define VB_LINEAR_FORMATS_H

#include "quant.h"
#include "vibrant.h"

#ifdef __cplusplus
#define VB_CONSTANT_FN constexpr
#else
#include <stdbool.h>
#define VB_CONSTANT_FN static inline
#endif

typedef enum vb_packed_codes { VB_CODES_NUMBERS, VB_CODES_IQ4NL, VB_CODES_MXFP4, VB_CODES_TABLE } vb_packed_codes;

typedef enum vb_packed_scales {
    VB_SCALES_HALF,     /* a half for 32 elements */
    VB_SCALES_BF16,     /* the upper half of a float for 32 elements: a power of two that a half may not hold */
    VB_SCALES_HALF_MIN, /* two halves for 32 elements: the scale, and what is added */
    VB_SCALES_K2,       /* of 256: halves d and dmin, sixteen scales and minima of four bits (a byte each) */
    VB_SCALES_K4,       /* of 256: halves d and dmin, eight scales and minima of six bits (vb_k4_scale) */
    VB_SCALES_K6,       /* of 256: a half d, sixteen scales of eight bits */
    VB_SCALES_E4M3      /* of 256: sixteen scales that are 8-bit floats without a sign (vb_ue4m3) */
} vb_packed_scales;

/* X(type, block, bits, zero, codes, scales) for every type that has a packed layout. */
#define VB_PACKED_TYPES(X)                                                                                             \
    X(VB_Q2_K, vb_block_q2_k, 2, 0, VB_CODES_NUMBERS, VB_SCALES_K2)                                                    \
    X(VB_Q3_K, vb_block_q3_k, 4, 4, VB_CODES_NUMBERS, VB_SCALES_K6)                                                    \
    X(VB_Q4_K, vb_block_q4_k, 4, 0, VB_CODES_NUMBERS, VB_SCALES_K4)                                                    \
    X(VB_Q5_K, vb_block_q5_k, 5, 0, VB_CODES_NUMBERS, VB_SCALES_K4)                                                    \
    X(VB_Q6_K, vb_block_q6_k, 6, 32, VB_CODES_NUMBERS, VB_SCALES_K6)                                                   \
    X(VB_IQ2_S, vb_block_iq2_s, 4, 43, VB_CODES_TABLE, VB_SCALES_K6)                                                   \
    X(VB_Q8_0, vb_block_q8_0, 8, 0, VB_CODES_NUMBERS, VB_SCALES_HALF)                                                  \
    X(VB_Q5_0, vb_block_q5_0, 5, 16, VB_CODES_NUMBERS, VB_SCALES_HALF)                                                 \
    X(VB_Q4_0, vb_block_q4_0, 4, 8, VB_CODES_NUMBERS, VB_SCALES_HALF)                                                  \
    X(VB_Q4_1, vb_block_q4_1, 4, 0, VB_CODES_NUMBERS, VB_SCALES_HALF_MIN)                                              \
    X(VB_Q5_1, vb_block_q5_1, 5, 0, VB_CODES_NUMBERS, VB_SCALES_HALF_MIN)                                              \
    X(VB_IQ4_NL, vb_block_iq4_nl, 4, 0, VB_CODES_IQ4NL, VB_SCALES_HALF)                                                \
    X(VB_MXFP4, vb_block_mxfp4, 4, 0, VB_CODES_MXFP4, VB_SCALES_BF16)                                                  \
    X(VB_NVFP4, vb_block_nvfp4, 4, 0, VB_CODES_MXFP4, VB_SCALES_E4M3)

/* X(type, block, layout's type, layout's block). Values are the same, with two exceptions.
 * IQ4_XS: the scale times the block's is rounded to a half, by at most 2^-12 of normal halves.
 * IQ1, IQ2 and IQ3_XXS: halves and eighths of d lose digits where they are no normal halves. */
#define VB_PACKED_AS(X)                                                                                                \
    X(VB_IQ4_XS, vb_block_iq4_xs, VB_IQ4_NL, vb_block_iq4_nl)                                                          \
    X(VB_IQ2_XXS, vb_block_iq2_xxs, VB_IQ2_S, vb_block_iq2_s)                                                          \
    X(VB_IQ2_XS, vb_block_iq2_xs, VB_IQ2_S, vb_block_iq2_s)                                                            \
    X(VB_IQ3_S, vb_block_iq3_s, VB_IQ2_S, vb_block_iq2_s)                                                              \
    X(VB_IQ3_XXS, vb_block_iq3_xxs, VB_IQ2_S, vb_block_iq2_s)                                                          \
    X(VB_IQ1_S, vb_block_iq1_s, VB_IQ2_S, vb_block_iq2_s)                                                              \
    X(VB_IQ1_M, vb_block_iq1_m, VB_IQ2_S, vb_block_iq2_s)                                                              \
    X(VB_TQ1_0, vb_block_tq1_0, VB_Q4_0, vb_block_q4_0)                                                                \
    X(VB_TQ2_0, vb_block_tq2_0, VB_Q4_0, vb_block_q4_0)                                                                \
    X(VB_Q1_0, vb_block_q1_0, VB_Q4_0, vb_block_q4_0)                                                                  \
    X(VB_Q2_0, vb_block_q2_0, VB_Q4_0, vb_block_q4_0)

/* The type whose kernels multiply packed weights of a type. */
VB_CONSTANT_FN vb_dtype vb_packed_as(vb_dtype type) {
    switch (type) {
#define X(type, block, layout, layout_block) case type: return layout;
        VB_PACKED_AS(X)
#undef X
    default: return type;
    }
}

enum { VB_PACKED_ROWS = 16 }; /* of a tile */

typedef struct vb_packed_format {
    int bits, zero;
    vb_packed_codes codes;
    vb_packed_scales scales;
    int depth;       /* columns of a tile; 0: the type has no packed layout */
    int code_bytes;  /* of a tile */
    int scale_bytes; /* of a tile: what stands row by row */
    int more_bytes;  /* of a tile: the halves behind those, d of VB_SCALES_K6, d and dmin of VB_SCALES_K2 or what is
                        added */
    int table_bytes; /* of a tile, behind these: of VB_CODES_TABLE */
    int tile_bytes;
} vb_packed_format;

VB_CONSTANT_FN vb_packed_format vb_packed_format_of_numbers(int bits, int zero, vb_packed_codes codes,
                                                            vb_packed_scales scales) {
    const bool small = scales == VB_SCALES_HALF || scales == VB_SCALES_BF16 || scales == VB_SCALES_HALF_MIN;
    const int depth = small ? 128 : 256;
    const int code_bytes = VB_PACKED_ROWS * depth * bits / 8;
    const int scale_bytes = VB_PACKED_ROWS * (small ? depth / VB_QK * 2 : 16);
    const int more_bytes = scales == VB_SCALES_K6         ? VB_PACKED_ROWS * 2
                           : scales == VB_SCALES_K2       ? VB_PACKED_ROWS * 4
                           : scales == VB_SCALES_HALF_MIN ? scale_bytes
                                                          : 0;
    const int table_bytes = codes == VB_CODES_TABLE ? 16 : 0;
    const vb_packed_format format = {bits,       zero,       codes,       scales,
                                     depth,      code_bytes, scale_bytes, more_bytes,
                                     table_bytes, code_bytes + scale_bytes + more_bytes + table_bytes};
    return format;
}

VB_CONSTANT_FN vb_packed_format vb_packed_format_of(vb_dtype type) {
    switch (vb_packed_as(type)) {
#define X(type, block, bits, zero, codes, scales) \
    case type: return vb_packed_format_of_numbers(bits, zero, codes, scales);
        VB_PACKED_TYPES(X)
#undef X
    default: break;
    }
    const vb_packed_format none = {0, 0, VB_CODES_NUMBERS, VB_SCALES_HALF, 0, 0, 0, 0, 0, 0};
    return none;
}

/* The sums of x that packed/n1_tile.cuh keeps for a lane's scales of a tile; all bytes of a tile's x. */
VB_CONSTANT_FN int vb_n1_sum_bytes(const vb_packed_format f) {
    if (f.scales == VB_SCALES_K2) return 16;
    if (f.scales == VB_SCALES_K4 || f.scales == VB_SCALES_HALF_MIN) return 8;
    return !f.zero ? 0 : f.scales == VB_SCALES_K6 ? 32 : 8;
}
VB_CONSTANT_FN int vb_n1_tile_bytes(const vb_packed_format f) {
    return 36 * (f.depth == 128 ? 8 : 16) + 4 * vb_n1_sum_bytes(f) + 16;
}

/* The same of packed/n4_tile.cuh. */
VB_CONSTANT_FN int vb_n4_sum_bytes(const vb_packed_format f) {
    if (f.scales == VB_SCALES_K2 || f.scales == VB_SCALES_K6) return 16;
    if (f.scales == VB_SCALES_K4) return 8;
    return f.zero || f.scales == VB_SCALES_HALF_MIN ? 4 : 0;
}
VB_CONSTANT_FN int vb_n4_tile_bytes(const vb_packed_format f) { return 8 * f.depth + 16 * vb_n4_sum_bytes(f) + 16; }

#endif
