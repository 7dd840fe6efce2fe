// code_rows.cuh: the codes of the rows g and g + 8 of a packed tile, as operand A of integer tensor cores, for the one
// row of x of n1_tile.cuh and the up to four of n4_tile.cuh.
#ifndef VB_LINEAR_CODE_ROWS_CUH
#define VB_LINEAR_CODE_ROWS_CUH

#include "arch/tensor_core.cuh"
#include "linear/packed/packed.cuh"

namespace vb {

template <class Block>
struct CodeRows {
    using P = Packed<Block>;
    uint32_t rows[2][P::summands][P::values];

    // words: of the one row, then of the other. `by`: the tile's table, or the type's summand_words.
    VB_DEVICE CodeRows(const uint32_t *words, const uint4 &by) {
#pragma unroll
        for (int r = 0; r < 2; r++) P::unpack_summands(rows[r], words + r * P::words, by);
    }
    // c += the products of the value word a with x. The summands of a scale of E4M3 are 32 columns: x meets both.
    VB_DEVICE void multiply_word(int (&c)[4], int a, uint32_t b) const {
        if constexpr (P::e4m3 && P::summands == 2) {
            mma_16x8x32<P::is_signed>(c, rows[0][0][a], rows[1][0][a], rows[0][1][a], rows[1][1][a], b, b);
        } else {
#pragma unroll
            for (int i = 0; i < P::summands; i++) mma_16x8x16<P::is_signed>(c, rows[0][i][a], rows[1][i][a], b);
        }
    }
    // The same of the value words a and a + 1.
    VB_DEVICE void multiply_words(int (&c)[4], int a, uint32_t b0, uint32_t b1) const {
#pragma unroll
        for (int i = 0; i < P::summands; i++)
            mma_16x8x32<P::is_signed>(c, rows[0][i][a], rows[1][i][a], rows[0][i][a + 1], rows[1][i][a + 1], b0, b1);
    }
};

} // namespace vb
#endif
