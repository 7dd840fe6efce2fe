// many_mma.cuh: the kernel of many.cu before and after Hopper, on mma.sync.
//
// A warp multiplies 16 or 32 rows of W by 64 rows of x. With 32, each operand B that is read from shared memory serves
// two instructions, and mma.sync needs operands faster than shared memory has them. Units have 64 rows of x.
// From 8.0 on copies are asynchronous: x two stages ahead, packed tiles one k of a tile.
//
//   shared   three stages of x [TOKENS][64], swizzled: 24 KiB; the packed tiles of 128 rows: at most 34 KiB
//   threads  8 warps of 16 rows of W by 64 rows of x; for more rows of x, 4 warps of 32 by 64, twice a multiprocessor
#ifndef VB_LINEAR_MANY_MMA_CUH
#define VB_LINEAR_MANY_MMA_CUH

#include "arch/mma.cuh"
#include "arch/sm90.cuh"
#include "linear/packed/many.cuh"
#include "linear/packed/mma_store.cuh"

namespace vb {

// TILES rows of tiles a warp, each by 64 rows of x.
template <class Block, int TOKENS, int TILES>
struct MmaShape {
    using P = Packed<Block>;
    static constexpr int warps = unit_warps / TILES * (TOKENS / 64), threads = 32 * warps;
    static constexpr bool narrow = TOKENS == 64 && TILES == 2; // two blocks fit a multiprocessor with 100 KiB
    static constexpr int depth = 64, stages = narrow && P::tile_bytes > 2816 ? 2 : 3, stage_bytes = TOKENS * depth * 2;
    static constexpr int tile_stages = P::depth / depth >= 4 ? 1 : 2; // of weights
    // where they begin
    static constexpr int weights = stages * stage_bytes, inverse = weights + tile_stages * unit_warps * P::tile_bytes;
    static constexpr int exponents = inverse + TOKENS * (int)sizeof(float);
    static constexpr int shared = exponents + TOKENS * (int)sizeof(int);
    static_assert(TOKENS == LINEAR_MANY_TOKENS && shared <= 64 << 10, "what the chooser plans with");
    static constexpr int blocks = TOKENS > 64 || (P::table && P::sixteens) ? 1 : 2; // a multiprocessor, by registers
};

// A unit of a product. Code for Hopper, whose chooser takes many_sm90.cuh, leaves it out.
template <class Block, int TOKENS, int TILES, bool SWIGLU>
VB_DEVICE void mma_product(const half *x, const Product &product, int index) {
#if defined(VB_HAS_MMA) && !defined(VB_SM90A)
    using P = Packed<Block>;
    using S = MmaShape<Block, TOKENS, TILES>;
    constexpr int tiles = TILES, across = TOKENS / 64, stages_a_tile = P::depth / S::depth, chunks = S::depth / 8;
    constexpr int rows_a_turn = S::threads / chunks; // of x that the block copies with one instruction
    extern __shared__ __align__(1024) uint8_t shared[];
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4;
    // where the warp's part begins: four warps have all 128 rows of 64 tokens, where tiles are two
    const int of_rows = warp % (S::warps / across) * tiles, of_tokens = warp / (S::warps / across) * 64;
    const Unit unit = Unit::of(product, index, 0);
    const int k0 = unit.k0, k1 = unit.k1, count = (k1 - k0) * stages_a_tile;
    const int64_t token0 = (int64_t)unit.tokens * TOKENS, cols = product.cols;
    const unsigned base = shared_address(shared);

    // What this warp fetches next of each of its tiles, and this thread of each of its rows of x: pointers that move,
    // since their computation would take as many instructions as two products. Past the last row of x it is the last.
    const uint8_t *tile[unit_warps / S::warps];
#pragma unroll
    for (int w = 0; w < unit_warps / S::warps; w++)
        tile[w] = first_tile<Block, SWIGLU>(product, unit, w * S::warps + warp) + 16 * lane;
    const auto fetch_tiles = [&](int k) {
        if (k >= k1) return;
        const unsigned to = base + S::weights + ((k - k0) % S::tile_stages * unit_warps + warp) * P::tile_bytes;
#pragma unroll
        for (int w = 0; w < unit_warps / S::warps; w++) {
#pragma unroll
            for (int i = 0; i < P::tile_bytes; i += 512)
                if (i + 16 * lane < P::tile_bytes)
                    copy_async(to + w * S::warps * P::tile_bytes + i + 16 * lane, tile[w] + i);
            tile[w] += P::tile_bytes;
        }
    };
    const int row = threadIdx.x / chunks, chunk = threadIdx.x % chunks;
    const half *x_row[TOKENS / rows_a_turn];
#pragma unroll
    for (int j = 0; j < TOKENS / rows_a_turn; j++)
        x_row[j] = x + smaller<int64_t>(token0 + row + j * rows_a_turn, product.n - 1) * cols +
                   (int64_t)k0 * P::depth + 8 * chunk;
    const unsigned x_to = base + swizzled(row, chunk, chunks);
    const auto fetch_x = [&](int i, int stage) {
        if (i >= count) return;
        const bool exists = !P::ragged || k0 * P::depth + i * S::depth < cols;
#pragma unroll
        for (int j = 0; j < TOKENS / rows_a_turn; j++) {
            copy_async(x_to + stage * S::stage_bytes + j * rows_a_turn * chunks * 16, exists ? x_row[j] : x, exists);
            x_row[j] += S::depth;
        }
    };

#pragma unroll
    for (int i = 0; i < S::tile_stages; i++) fetch_tiles(k0 + i);
    wait_for_previous_kernel();
    release_next_kernel();
#pragma unroll
    for (int i = 0; i < S::stages - 1; i++) fetch_x(i, i), copy_async_commit();
    float *const inverse = reinterpret_cast<float *>(shared + S::inverse);
    int *const exponents = reinterpret_cast<int *>(shared + S::exponents); // the greatest of each row of x
    const bool uneven = product.uneven();
    load_inverse<TOKENS>(inverse, product, token0, uneven, threadIdx.x, S::threads);
    if (uneven) {
        for (int at = threadIdx.x; at < TOKENS && token0 + at < product.n; at += S::threads)
            exponents[at] = row_exponent(product, token0 + at);
        __syncthreads();
    }
    // Waits for stage i, and gives what this thread has copied of it the exponents of rows.
    const auto arrive = [&](int i, int stage) {
        copy_async_wait<S::stages - 2>();
        if (uneven && i < count && (k0 * stages_a_tile + i) * half_group < cols) {
            const uint8_t *const of_group =
                product.from.exponents + (k0 * stages_a_tile + i) * half_stride(product.n) + token0;
#pragma unroll 1
            for (int at = row; at < TOKENS && token0 + at < product.n; at += rows_a_turn) {
                const __half2 factor = splat(power_of_two(larger(of_group[at] - exponents[at], -30)));
                uint4 &v = *reinterpret_cast<uint4 *>(shared + stage * S::stage_bytes + swizzled(at, chunk, chunks));
                v = make_uint4(as_word(__hmul2(as_half2(v.x), factor)), as_word(__hmul2(as_half2(v.y), factor)),
                               as_word(__hmul2(as_half2(v.z), factor)), as_word(__hmul2(as_half2(v.w), factor)));
            }
        }
        __syncthreads();
    };

    // The lane's row of four 8x8 matrices: of 16 rows of x, both eights of a fragment's k.
    const unsigned b_at = base + swizzled(of_tokens + lane / 16 * 8 + lane % 8, lane / 8 % 2, chunks);
    constexpr int steps = P::depth / 16; // of a tile
    ManyTile<Block> work[tiles];
    uint32_t a[2][tiles][4]; // made while the products before them are at work
    const auto make = [&](int k, int step) {
#pragma unroll
        for (int r = 0; r < tiles; r++) {
            if (step == 0) {
                LaneTile<Block> packed;
                packed.template load<false>(
                    shared + S::weights + ((k - k0) % S::tile_stages * unit_warps + of_rows + r) * P::tile_bytes, lane);
                work[r].unpack(packed);
            }
            work[r].fragment(a[step % 2][r], step);
        }
    };
    float c[tiles * 32] = {};
    int i = 0, stage = 0;
    arrive(0, 0);
    make(k0, 0);
    for (int k = k0; k < k1; k++) {
#pragma unroll
        for (int part = 0; part < stages_a_tile; part++, i++) {
            fetch_x(i + S::stages - 1, stage == 0 ? S::stages - 1 : stage - 1);
            if (part == 1) fetch_tiles(k + S::tile_stages); // every warp has unpacked the tiles of k
            copy_async_commit();
            const unsigned b_stage = b_at + stage * S::stage_bytes;
#pragma unroll
            for (int j = 0; j < S::depth / 16; j++) {
                const int step = part * (S::depth / 16) + j;
#pragma unroll
                for (int q = 0; q < 4; q++) {
                    unsigned b[4];
                    load_matrices(b, (b_stage ^ 32 * j) + q * 16 * chunks * 16);
#pragma unroll
                    for (int r = 0; r < tiles; r++) {
                        mma_16x8x16(c + 32 * r + 8 * q, a[step % 2][r], b[0], b[1], half());
                        mma_16x8x16(c + 32 * r + 8 * q + 4, a[step % 2][r], b[2], b[3], half());
                    }
                    if (q == 0) make(k + 1, (step + 1) % steps); // past the last tile anything
                }
            }
            stage = stage == S::stages - 1 ? 0 : stage + 1;
            arrive(i + 1, stage);
        }
    }
    if (!add_shares<TOKENS, S::threads>(product, unit, c)) return;
    const int tile_row = unit.rows * unit_warps + of_rows;
    const int64_t first_token = token0 + of_tokens;
    const auto sums = [&](int r) -> float(&)[32] { return *reinterpret_cast<float(*)[32]>(c + 32 * r); };
    const float *const scales = inverse + of_tokens;
    if constexpr (SWIGLU && tiles == 1) {
        store_swiglu<TOKENS>(product, sums(0), scales, reinterpret_cast<float *>(shared), tile_row, token0);
    } else {
        GroupRows &rows = reinterpret_cast<GroupRows *>(shared)[group_of_thread()];
        if constexpr (SWIGLU) {
            if (product.to.x)
                store_gated_halves(product, unit, sums(0), sums(1), scales, first_token, rows);
            else store_gated<64>(product, sums(0), sums(1), scales, tile_row, first_token);
        } else {
#pragma unroll
            for (int r = 0; r < tiles; r++) store_sums<64>(product, sums(r), scales, tile_row + r, g, first_token);
            if constexpr (tiles == 2)
                if (product.to.x) store_normed(product, unit, *reinterpret_cast<float(*)[2][32]>(c), first_token, rows);
        }
    }
#endif
}

template <class Block, int TOKENS, int TILES, bool SWIGLU>
__global__ void __launch_bounds__(MmaShape<Block, TOKENS, TILES>::threads, MmaShape<Block, TOKENS, TILES>::blocks)
    mma_kernel(const half *x, VB_IN_PLACE Product product) {
    mma_product<Block, TOKENS, TILES, SWIGLU>(x, product, blockIdx.x);
}

// Two products of the same rows of x, by weights of types A and B.
template <class A, class B, int TOKENS, int TILES>
__global__ void __launch_bounds__(MmaShape<A, TOKENS, TILES>::threads, MmaShape<A, TOKENS, TILES>::blocks)
    mma_two_kernel(const half *x, VB_IN_PLACE Product first, VB_IN_PLACE Product second) {
    if ((int)blockIdx.x < first.units) mma_product<A, TOKENS, TILES, false>(x, first, blockIdx.x);
    else mma_product<B, TOKENS, TILES, false>(x, second, (int)blockIdx.x - first.units);
}

} // namespace vb
#endif
