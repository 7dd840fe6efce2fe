// sm90_stage.cuh: how many_sm90.cuh and n32_sm90.cu multiply a stage of x in shared memory. S describes the stage:
// boxes of 64 columns of S::tokens rows.
#ifndef VB_LINEAR_SM90_STAGE_CUH
#define VB_LINEAR_SM90_STAGE_CUH

#include "linear/packed/many.cuh"
#include "arch/sm90.cuh"

#ifdef VB_SM90A

namespace vb {

// Instructions whose operands are made together, while the instructions before them are at work.
// A batch is as long as can be, a whole stage. But a tile has at least two batches, which take turns with the
// registers.
template <class S, class Block>
constexpr int batch_of = smaller(S::columns / 16, Packed<Block>::depth / 32);

// Adds the products of the stage at `operand` and its part of a tile of weights. Calls arrived() before it reads the
// stage, and finished() when nothing reads the one before it any more.
template <class S, class Block, template <class> class Tile, class Arrived, class Finished>
VB_DEVICE void multiply_stage(float (&c)[S::tokens / 2], uint32_t (&a)[2][batch_of<S, Block>][4],
                              const Tile<Block> &work, int part, uint64_t operand, const Arrived &arrived,
                              const Finished &finished) {
    constexpr int size = batch_of<S, Block>, batches = S::columns / 16 / size;
    static_assert(Packed<Block>::depth / 16 / size % 2 == 0,
                  "the last batch of a tile and the first of the next one have registers of their own");
#pragma unroll
    for (int b = 0; b < batches; b++) {
        const int batch = part * batches + b;
        uint32_t(&now)[size][4] = a[batch % 2];
#pragma unroll
        for (int j = 0; j < size; j++) work.fragment(now[j], batch * size + j);
        if (b == 0) arrived();
        sm90::wgmma_fence();
#pragma unroll
        for (int j = 0; j < size; j++) { // 16 columns, 32 bytes each; a box has four of them
            const int at = b * size + j;
            const uint64_t x = operand + (at / 4 * S::box_bytes + at % 4 * 32) / 16;
            using Instruction = sm90::WgmmaRegisters<half, S::tokens, 0>;
            if constexpr (Tile<Block>::starts_anew) Instruction::run(c, now[j], x, part > 0 || at > 0);
            else Instruction::run(c, now[j], x);
        }
        sm90::wgmma_commit();
        constexpr bool ends = Tile<Block>::starts_anew && Packed<Block>::depth == S::columns;
        if (ends && b == batches - 1) sm90::wgmma_wait<0>();
        else sm90::wgmma_wait<1>();
        if (b == 0) finished();
    }
}

// Multiplies rows of x in a stage whose groups of columns from first_group on have exponents of their own.
// Afterwards the exponents are the row's: row nth * THREADS + thread has exponents[nth].
template <class S, int THREADS, int ROWS>
VB_DEVICE void even_out(const Product &p, uint8_t *stage, int first_group, int64_t token0, const int (&exponents)[ROWS],
                        int thread) {
    static_assert(half_group == sm90::tile_width, "a box has one group of columns");
#pragma unroll 1
    for (int nth = 0; nth < ROWS; nth++) {
        const int row = nth * THREADS + thread;
        if (row >= S::tokens || token0 + row >= p.n) break;
#pragma unroll 1
        for (int box = 0; box < S::boxes && (first_group + box) * half_group < p.cols; box++) {
            const int exponent =
                p.from.exponents[(first_group + box) * half_stride(p.n) + token0 + row] - exponents[nth];
            if (exponent == 0) continue;
            const __half2 factor = splat(power_of_two(larger(exponent, -30)));
            uint4 *const at = reinterpret_cast<uint4 *>(stage + box * S::box_bytes + row * sm90::row_bytes);
#pragma unroll 1
            for (int i = 0; i < sm90::row_bytes / 16; i++) {
                uint4 &v = at[(i + thread) % (sm90::row_bytes / 16)]; // in different banks
                const uint4 old = v;
                v = make_uint4(as_word(__hmul2(as_half2(old.x), factor)), as_word(__hmul2(as_half2(old.y), factor)),
                               as_word(__hmul2(as_half2(old.z), factor)), as_word(__hmul2(as_half2(old.w), factor)));
            }
        }
    }
}

} // namespace vb

#endif
#endif
