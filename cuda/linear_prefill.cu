// linear_prefill.cu: y[n][rows] = x[n][cols] W^T + bias for many rows of x, W in the packed layout, on 16-bit tensor cores, with
// the RMS norm before it and an addition or SwiGLU after it: linear, norm_linear, linear_add, norm_swiglu and the products of
// norm_qkv of a prompt.
//
// Weights go from global memory into registers, are dequantized there and are operand A at once (linear_prefill.cuh). x is
// operand B: converted once a call, into the stream's workspace, to F16, each row scaled by a power of two so that nothing
// overflows. Rounding x and W to 11 bits costs about 0.04 % of y.
//
//   unit     128 rows of W x TOKENS rows of x (64 or 128), or one of the splits of its columns, where whole ones would leave
//            multiprocessors idle at the end; the last of these to come adds the sums of all, in the order of the columns
//   grid     a unit a block; on Hopper a block a multiprocessor, which takes a unit after the other: x of the next one is
//            fetched while results are stored
//   threads  8 warps of 16 rows of W each; on Hopper four more, one of which fetches x
//   shared   stages of TOKENS x 128 of x: 16 or 32 KiB each; with SwiGLU 16 or 32 KiB to exchange sums
//   bound    tensor cores; for few tokens the dequantization (about 550 instructions a tile and warp)
//   measured on an H200 with the conversion of x, operands from memory, n = 64 and 512: norm_swiglu of 2 x 11008 x 2048 Q4_K 24 and
//            99 us (465 TFLOP/s), linear_add of 2048 x 11008 Q6_K 22.5 and 63.5 us (364), of 2048 x 2048 Q4_K 12.9 and 24.2 us

#include "linear.cuh"
#ifdef VB_HAS_PACKED_LAYOUT
#include "linear_prefill.cuh"
#include "sm90.cuh"

namespace vb {
namespace {

constexpr int stage_depth = 128, block_warps = 8, block_threads = 32 * block_warps; // that multiply

// ---- x --------------------------------------------------------------------------------------------------------------------

// x in F16, [n][cols], the columns of each 16 in the order of element_at. One block a row. With NORM, of rms_norm(x): the row is
// multiplied by norm[cols] here, and its 1 / rms goes into inverse.
template <bool NORM>
__global__ void __launch_bounds__(256)
    convert_x_kernel(half *out, float *inverse, const float *x, const float *norm, float eps, int64_t cols) {
    wait_for_previous_kernel();
    release_next_kernel();
    __shared__ float scratch[32];
    float squares = 0;
    constexpr int held = 3; // 16 elements each, in registers
    x += blockIdx.x * cols, out += blockIdx.x * cols;
    float v[held][16], most = 0;
    const auto read = [&](float(&to)[16], int64_t k) {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const float4 u = *reinterpret_cast<const float4 *>(x + k + 4 * i);
            to[4 * i] = u.x, to[4 * i + 1] = u.y, to[4 * i + 2] = u.z, to[4 * i + 3] = u.w;
        }
    };
    const auto weigh = [&](float(&of)[16], int64_t k) {
        if (NORM && norm)
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const float4 u = *reinterpret_cast<const float4 *>(norm + k + 4 * i);
                of[4 * i] *= u.x, of[4 * i + 1] *= u.y, of[4 * i + 2] *= u.z, of[4 * i + 3] *= u.w;
            }
    };
    const auto take = [&](float(&of)[16], int64_t k) {
        if (NORM)
#pragma unroll
            for (int i = 0; i < 16; i++) squares = fmaf(of[i], of[i], squares);
        weigh(of, k);
#pragma unroll
        for (int i = 0; i < 16; i++) most = Max::combine(most, fabsf(of[i]));
    };
    const int64_t step = 16 * 256, first = 16 * threadIdx.x;
#pragma unroll
    for (int h = 0; h < held; h++)
        if (first + h * step < cols) read(v[h], first + h * step), take(v[h], first + h * step);
    for (int64_t k = first + held * step; k < cols; k += step) {
        float u[16];
        read(u, k), take(u, k);
    }
    const float scale = power_of_two_scale(block_reduce<Max>(most, scratch));
    if (NORM) squares = block_reduce<Sum>(squares, scratch);
    if (threadIdx.x == 0)
        inverse[blockIdx.x] = (NORM ? 1.0f / sqrtf(squares / (float)cols + eps) : 1.0f) / (scale * prefill_unit);
    const auto write = [&](const float(&from)[16], int64_t k) {
#pragma unroll
        for (int h = 0; h < 2; h++) {
            Vec<half, 8> t;
#pragma unroll
            for (int i = 0; i < 8; i++) t.at[i] = __float2half_rn(from[element_at(8 * h + i)] * scale);
            *reinterpret_cast<Vec<half, 8> *>(out + k + 8 * h) = t;
        }
    };
#pragma unroll
    for (int h = 0; h < held; h++)
        if (first + h * step < cols) write(v[h], first + h * step);
    for (int64_t k = first + held * step; k < cols; k += step) {
        float u[16];
        read(u, k), weigh(u, k), write(u, k);
    }
}

// ---- results ----------------------------------------------------------------------------------------------------------------

struct Matrix {
    const uint8_t *w;
    float *y;          // [n][rows]
    const float *bias; // [rows] or null
    int64_t rows;
    int tile_rows;
};

// Up to three matrices by the same x, their rows of tiles one after the other, or with SwiGLU of gate and up in turn: then each
// warp with an odd number has the up projection of what the one before it has the gate of.
struct Product {
    Matrix matrices[3];
    int tile_rows;        // of all
    const float *add;     // [n][rows] that are added to y of the first, or null; may be y
    const float *inverse; // [n]
    float *partial;    // [split units][splits][TOKENS / 8][threads] of four sums
    unsigned *arrived; // a counter for each split unit, 0 between kernels
    int64_t n;
    int k_tiles, token_blocks, whole, splits, units; // units: `whole` ones, then `splits` for each of the others

    // Which matrix a row of tiles belongs to; tile_row becomes the one there.
    template <bool SWIGLU>
    VB_DEVICE const Matrix &find(int &tile_row) const {
        if (SWIGLU) {
            const int m = tile_row & 1;
            tile_row >>= 1;
            return matrices[m];
        }
        int m = 0;
        while (m < 2 && tile_row >= matrices[m].tile_rows) tile_row -= matrices[m].tile_rows, m++;
        return matrices[m];
    }
    template <bool SWIGLU>
    VB_DEVICE const uint8_t *tiles(int tile_row, int64_t row_bytes) const { // past the end: results that are not stored
        tile_row = smaller(tile_row, tile_rows - 1);
        const Matrix &m = find<SWIGLU>(tile_row);
        return m.w + tile_row * row_bytes;
    }
};

// What a block computes at a time.
struct Unit {
    int rows, tokens, k0, k1; // the block of rows of W and of rows of x; tiles of columns
    int split, splits, nth;   // which split of how many, of which split unit

    VB_DEVICE Unit(const Product &p, int unit) {
        nth = unit < p.whole ? -1 : (unit - p.whole) / p.splits;
        splits = nth < 0 ? 1 : p.splits;
        split = nth < 0 ? 0 : unit - p.whole - nth * p.splits;
        const int block = nth < 0 ? unit : p.whole + nth;
        rows = block / p.token_blocks, tokens = block - rows * p.token_blocks;
        k0 = p.k_tiles * split / splits, k1 = p.k_tiles * (split + 1) / splits;
    }
};

VB_DEVICE void multipliers_sync() { asm volatile("bar.sync 1, %0;" ::"n"(block_threads) : "memory"); }

// 1 / scale of the block's rows of x, read early: at the end of a block every load would have to be waited for. Followed by
// multipliers_sync before store_results.
template <int TOKENS>
VB_DEVICE void load_inverse(float *inverse, const Product &r, int64_t token0) {
    if (threadIdx.x < TOKENS) inverse[threadIdx.x] = token0 + threadIdx.x < r.n ? r.inverse[token0 + threadIdx.x] : 0.0f;
}

// What one warp has: the rows g, g + 8 of a row of tiles, tokens token0 + 8 j + 2 t, + 1.
template <int TOKENS>
VB_DEVICE void store_sums(const Product &r, const float (&c)[TOKENS / 2], const float *inverse, int tile_row, int64_t token0) {
    const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    const Matrix &m = r.find<false>(tile_row);
    const int64_t row0 = (int64_t)tile_row * packed_rows + g;
    const int tokens = (int)smaller<int64_t>(TOKENS, r.n - token0);
    const bool inside[2] = {row0 < m.rows, row0 + 8 < m.rows};
    const float b[2] = {m.bias && inside[0] ? m.bias[row0] : 0.0f, m.bias && inside[1] ? m.bias[row0 + 8] : 0.0f};
    const auto place = [&](int i) { return (token0 + 2 * t + i / 4 * 8 + (i & 1)) * m.rows + row0 + (i & 2) * 4; };
    const auto exists = [&](int i) { return i / 4 * 8 + 2 * t + (i & 1) < tokens && inside[(i & 2) / 2]; };
    constexpr int batch = 16; // loads on the way together: y may be what is added, so that stores hold up later loads
#pragma unroll
    for (int first = 0; first < TOKENS / 2; first += batch) {
        float added[batch];
#pragma unroll
        for (int i = 0; i < batch; i++) added[i] = r.add && exists(first + i) ? r.add[place(first + i)] : 0.0f;
#pragma unroll
        for (int i = 0; i < batch; i++) {
            const float scale = inverse[(first + i) / 4 * 8 + 2 * t + (i & 1)];
            if (exists(first + i)) m.y[place(first + i)] = fmaf(c[first + i], scale, b[(i & 2) / 2] + added[i]);
        }
    }
}

// silu(gate) * up of what two warps have: each computes half of the tokens. exchange is 8 * TOKENS KiB / 32 of shared memory.
template <int TOKENS>
VB_DEVICE void store_swiglu(const Product &r, const float (&c)[TOKENS / 2], const float *inverse, float *exchange, int tile_row,
                            int64_t token0) {
    constexpr int part = TOKENS / 4; // sums of half of the tokens
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, t = lane % 4;
    const bool up = tile_row & 1; // has the up projection, and finishes the second half of the tokens
    const Matrix &m = r.find<true>(tile_row);
#pragma unroll
    for (int i = 0; i < part; i++) exchange[(warp * part + i) * 32 + lane] = up ? c[i] : c[part + i];
    multipliers_sync();
    const int first = up ? TOKENS / 2 : 0;
    const int tokens = (int)smaller<int64_t>(TOKENS, r.n - token0);
    const int64_t row0 = (int64_t)tile_row * packed_rows + g;
    float *const y = r.matrices[0].y;
#pragma unroll
    for (int j = 0; j < part / 4; j++) {
        const int token = first + 8 * j + 2 * t;
        const float2 scale = *reinterpret_cast<const float2 *>(inverse + token);
#pragma unroll
        for (int e = 0; e < 4; e++) {
            const float other = exchange[((warp ^ 1) * part + 4 * j + e) * 32 + lane], own = up ? c[part + 4 * j + e] : c[4 * j + e];
            const float s = e & 1 ? scale.y : scale.x, gate = (up ? other : own) * s, product = (up ? own : other) * s;
            const int64_t row = row0 + e / 2 * 8;
            if (token + (e & 1) < tokens && row < m.rows)
                y[(token0 + token + (e & 1)) * m.rows + row] = swiglu(gate, product);
        }
    }
}

// The same at the end of a unit, with splits once all of them have come.
template <int TOKENS, bool SWIGLU>
VB_DEVICE void store_results(const Product &r, const Unit &unit, const float (&c)[TOKENS / 2], const float *inverse, float *exchange) {
    const int tile_row = unit.rows * block_warps + threadIdx.x / 32;
    const int64_t token0 = (int64_t)unit.tokens * TOKENS;
    const auto store = [&](const float(&sums)[TOKENS / 2]) {
        if constexpr (SWIGLU) store_swiglu<TOKENS>(r, sums, inverse, exchange, tile_row, token0);
        else store_sums<TOKENS>(r, sums, inverse, tile_row, token0);
    };
    const int splits = unit.splits;
    if (splits == 1) return store(c);
    __shared__ bool last;
    float4 *const sums = reinterpret_cast<float4 *>(r.partial) + (int64_t)unit.nth * splits * (TOKENS / 8 * block_threads) + threadIdx.x;
    const auto place = [&](int split, int j) { return sums + (split * (TOKENS / 8) + j) * block_threads; };
#pragma unroll
    for (int j = 0; j < TOKENS / 8; j++) __stcg(place(unit.split, j), make_float4(c[4 * j], c[4 * j + 1], c[4 * j + 2], c[4 * j + 3]));
    multipliers_sync();
    if (threadIdx.x == 0) { // releases what all threads have written, acquires what the other blocks have
        unsigned before = 0;
#if __CUDA_ARCH__ >= 700
        asm volatile("atom.acq_rel.gpu.global.add.u32 %0, [%1], 1;" : "=r"(before) : "l"(r.arrived + unit.nth) : "memory");
#endif
        last = before == (unsigned)splits - 1;
        if (last) r.arrived[unit.nth] = 0;
    }
    multipliers_sync();
    if (!last) return;
    float total[TOKENS / 2] = {};
#pragma unroll 2
    for (int split = 0; split < splits; split++)
#pragma unroll
        for (int j = 0; j < TOKENS / 8; j++) {
            const float4 v = __ldcg(place(split, j));
            total[4 * j] += v.x, total[4 * j + 1] += v.y, total[4 * j + 2] += v.z, total[4 * j + 3] += v.w;
        }
    store(total);
}

#ifdef VB_WITH_SM90

// ---- Hopper -----------------------------------------------------------------------------------------------------------------

constexpr int wgmma_threads = block_threads + 128; // registers change hands by four warps

template <int TOKENS, bool SWIGLU>
struct WgmmaShape {
    static constexpr int box_bytes = TOKENS * sm90::row_bytes, stage_bytes = 2 * box_bytes; // two boxes of 64 columns
    static constexpr int stages = 4;
    static constexpr int exchange = stages * stage_bytes, barriers = exchange + (SWIGLU ? TOKENS * 256 : 0); // where they begin
    static constexpr int shared = barriers + 2 * stages * 8;
};

template <class Block, int TOKENS, bool SWIGLU>
__global__ void __launch_bounds__(wgmma_threads, 1)
    wgmma_kernel(const __grid_constant__ CUtensorMap x, const __grid_constant__ Product product) {
#ifdef VB_SM90A
    using P = Packed<Block>;
    using S = WgmmaShape<TOKENS, SWIGLU>;
    extern __shared__ __align__(1024) uint8_t shared[];
    uint64_t *full = reinterpret_cast<uint64_t *>(shared + S::barriers), *empty = full + S::stages;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    constexpr int stages_a_tile = P::depth / stage_depth;

    LaneTile<Block> next;
    const uint8_t *tile = nullptr;
    const auto begin = [&](const Unit &unit) { // fetches the first tile of weights
        tile = product.tiles<SWIGLU>(unit.rows * block_warps + warp, (int64_t)product.k_tiles * P::tile_bytes) + (int64_t)unit.k0 * P::tile_bytes;
        next.template load<true>(tile, lane);
    };
    if (warp < block_warps) begin(Unit(product, blockIdx.x));
    if (threadIdx.x == 0) {
        sm90::prefetch_map(&x);
        for (int s = 0; s < S::stages; s++) sm90::barrier_init(full + s, 1), sm90::barrier_init(empty + s, block_warps);
        sm90::barrier_init_fence();
    }
    __syncthreads();
    wait_for_previous_kernel();
    release_next_kernel();

    int i = 0; // stage of x
    if (warp >= block_warps) { // one of these fetches x
        sm90::registers_shrink<24>();
        if (warp > block_warps || lane != 0) return;
        for (int u = blockIdx.x; u < product.units; u += gridDim.x) {
            const Unit unit(product, u);
            for (int k = unit.k0 * stages_a_tile; k < unit.k1 * stages_a_tile; k++, i++) {
                const int s = i % S::stages;
                sm90::barrier_wait(empty + s, (i / S::stages & 1) ^ 1);
                sm90::barrier_expect(full + s, S::stage_bytes);
#pragma unroll
                for (int half = 0; half < 2; half++)
                    sm90::copy_box(shared + s * S::stage_bytes + half * S::box_bytes, &x, full + s, k * stage_depth + half * sm90::tile_width,
                                   unit.tokens * TOKENS);
            }
        }
        return;
    }
    sm90::registers_grow<240>();
    __shared__ __align__(8) float inverses[2][TOKENS];
    int buffer = 0;
    for (int u = blockIdx.x; u < product.units; u += gridDim.x, buffer ^= 1) {
        const Unit unit(product, u);
        float *const inverse = inverses[buffer];
        load_inverse<TOKENS>(inverse, product, (int64_t)unit.tokens * TOKENS);
        float c[TOKENS / 2] = {};
        uint32_t a[2][4][4];
        const int first = i;
        for (int k = unit.k0; k < unit.k1; k++) {
            PrefillTile<Block> work;
            work.unpack(next);
            tile += P::tile_bytes;
            if (k + 1 < unit.k1) next.template load<true>(tile, lane);
#pragma unroll
            for (int part = 0; part < stages_a_tile; part++, i++) {
                const int s = i % S::stages;
                const uint64_t operand = sm90::describe(shared + s * S::stage_bytes, 0);
#pragma unroll
                for (int b = 0; b < 2; b++) { // batches of four instructions, one at work while the other is prepared
#pragma unroll
                    for (int j = 0; j < 4; j++) work.fragment(a[b][j], part * 8 + b * 4 + j);
                    if (b == 0) sm90::barrier_wait(full + s, i / S::stages & 1);
                    sm90::wgmma_fence();
#pragma unroll
                    for (int j = 0; j < 4; j++)
                        sm90::WgmmaRegisters<half, TOKENS, 0>::run(c, a[b][j], operand + (b * S::box_bytes + j * 32) / 16); // a box has 64 columns, an instruction 16
                    sm90::wgmma_commit();
                    sm90::wgmma_wait<1>();
                    if (b == 0 && i > first && lane == 0) sm90::barrier_arrive(empty + (i - 1) % S::stages); // done with
                }
            }
        }
        sm90::wgmma_wait<0>();
        if (i > first && lane == 0) sm90::barrier_arrive(empty + (i - 1) % S::stages);
        if (u + (int)gridDim.x < product.units) begin(Unit(product, u + gridDim.x));
        multipliers_sync();
        store_results<TOKENS, SWIGLU>(product, unit, c, inverse, reinterpret_cast<float *>(shared + S::exchange));
    }
#endif
}

#endif // VB_WITH_SM90

// ---- before and after Hopper --------------------------------------------------------------------------------------------------

constexpr int mma_tokens = 64;

template <class Block, bool SWIGLU>
__global__ void __launch_bounds__(32 * block_warps)
    mma_kernel(const half *x, const __grid_constant__ Product product) {
#ifdef VB_HAS_MMA
    using P = Packed<Block>;
    constexpr int stage_halves = mma_tokens * stage_depth, chunks = stage_halves / 8 / (32 * block_warps);
    __shared__ __align__(16) half stage[2][stage_halves]; // [k / 8][token][k % 8]
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    constexpr int stages_a_tile = P::depth / stage_depth;
    const Unit unit(product, blockIdx.x);
    const int k0 = unit.k0, k1 = unit.k1, k_tiles = product.k_tiles, tile_row = unit.rows * block_warps + warp;
    const uint8_t *tile = product.tiles<SWIGLU>(tile_row, (int64_t)k_tiles * P::tile_bytes) + (int64_t)k0 * P::tile_bytes;
    LaneTile<Block> next;
    if (k0 < k1) next.template load<true>(tile, lane);
    wait_for_previous_kernel();
    release_next_kernel();
    const int64_t token0 = (int64_t)unit.tokens * mma_tokens, cols = (int64_t)k_tiles * P::depth;
    const int count = (k1 - k0) * stages_a_tile;
    auto fetch = [&](int i) {
        if (i < count)
#pragma unroll
            for (int j = 0; j < chunks; j++) { // four neighbours of 8 rows a warp
                const int at = threadIdx.x + j * block_threads, k8 = at / 256 * 4 + at % 4, token = at / 4 % mma_tokens;
                const bool valid = token0 + token < product.n;
                copy_async(shared_address(&stage[i & 1][(k8 * mma_tokens + token) * 8]),
                           x + (valid ? token0 + token : 0) * cols + (k0 * stages_a_tile + i) * stage_depth + 8 * k8, valid);
            }
        copy_async_commit();
    };
    __shared__ __align__(8) float inverse[mma_tokens];
    load_inverse<mma_tokens>(inverse, product, token0);
    float c[mma_tokens / 2] = {};
    int i = 0;
    fetch(0);
    for (int k = k0; k < k1; k++) {
        PrefillTile<Block> work;
        work.unpack(next);
        tile += P::tile_bytes;
        if (k + 1 < k1) next.template load<true>(tile, lane);
#pragma unroll
        for (int part = 0; part < stages_a_tile; part++, i++) {
            fetch(i + 1);
            copy_async_wait<1>();
            __syncthreads();
#pragma unroll
            for (int j = 0; j < 8; j++) {
                uint32_t a[4];
                work.fragment(a, part * 8 + j);
                const half *b = &stage[i & 1][j * 16 * mma_tokens + g * 8 + 2 * t];
#pragma unroll
                for (int q = 0; q < mma_tokens / 8; q++)
                    mma_16x8x16(c + 4 * q, a, *reinterpret_cast<const uint32_t *>(b + q * 64),
                                *reinterpret_cast<const uint32_t *>(b + q * 64 + 8 * mma_tokens), half());
            }
            __syncthreads();
        }
    }
    store_results<mma_tokens, SWIGLU>(product, unit, c, inverse, reinterpret_cast<float *>(stage));
#endif
}

// ---- launch -------------------------------------------------------------------------------------------------------------------

constexpr int64_t most_tokens = 4096; // in one go: bounds the workspace (two bytes an element of x)

// How a product is cut up: rows of x a unit; whole units, and splits of each of the others.
struct PrefillPlan {
    int tokens, row_blocks, token_blocks, whole, splits;

    int units() const { return whole + (row_blocks * token_blocks - whole) * splits; }
    int64_t partial_bytes() const {
        return splits > 1 ? (int64_t)(row_blocks * token_blocks - whole) * splits * packed_rows * block_warps * tokens * 4 : 0;
    }
};

PrefillPlan plan_prefill(int64_t n, int64_t rows, int64_t cols, int64_t k_tiles, bool wide, int multiprocessors) {
    PrefillPlan best = {};
    double least = 0;
    for (int tokens = 64; tokens <= (wide ? 128 : 64); tokens *= 2) {
        const int row_blocks = (int)ceil_div<int64_t>(rows, packed_rows * block_warps), token_blocks = (int)ceil_div<int64_t>(n, tokens);
        const int blocks = row_blocks * token_blocks, rest = blocks % multiprocessors;
        // In units of 128 columns of 128 tokens: the start and the end of a unit cost about three.
        const double stages = (double)cols / stage_depth * (tokens == 64 ? 0.7 : 1);
        for (int splits = 1; splits <= smaller<int64_t>(8, k_tiles); splits++) {
            if (splits > 1 && rest > workspace_counters) break;
            const int waves = ceil_div(rest * splits, multiprocessors);
            const double tail = waves * (stages * (double)ceil_div<int64_t>(k_tiles, splits) / k_tiles + 3 + (splits > 1 ? 2 + 0.25 * splits : 0));
            const double time = blocks / multiprocessors * (stages + 3) + tail;
            if (least == 0 || time < least) best = {tokens, row_blocks, token_blocks, splits > 1 ? blocks - rest : blocks, splits}, least = time;
        }
    }
    return best;
}

// x of a call: where it lies, in F16, in the stream's workspace, which also has room for sums of the splits of products of up to
// `rows` rows with `cols` columns.
struct PrefillX {
    half *x;
    float *inverse, *partial;
    int64_t n, cols;
};

bool has_wgmma(vb_stream *stream) {
#ifdef VB_WITH_SM90
    return device_of(stream->device)->binary == 90 && capability(stream) == 90;
#else
    (void)stream;
    return false;
#endif
}

// `rows` of whole tiles, of all matrices.
template <class Block>
PrefillPlan plan_of(int64_t n, int64_t rows, int64_t cols, vb_stream *stream) {
    return plan_prefill(n, rows, cols, cols / Packed<Block>::depth, has_wgmma(stream), multiprocessors(stream));
}

vb_status convert_x(PrefillX *to, const float *x, const LinearExtra &extra, int64_t n, int64_t cols, int64_t partial, vb_stream *stream) {
    const int64_t x_bytes = n * cols * (int64_t)sizeof(half), scale_bytes = ceil_div<int64_t>(n, 64) * 256;
    void *scratch;
    VB_TRY(workspace(&scratch, x_bytes + scale_bytes + partial, stream));
    float *inverse = (float *)((char *)scratch + x_bytes);
    *to = {(half *)scratch, inverse, inverse + scale_bytes / 4, n, cols};
    return launch_overlapped(stream, (unsigned)n, 256, 0, extra.with_norm ? convert_x_kernel<true> : convert_x_kernel<false>, to->x, inverse,
                             x, extra.norm, extra.eps, cols);
}

// For any type.
int64_t largest_partial(int64_t n, int64_t rows, int64_t cols, vb_stream *stream) {
    return larger(plan_of<vb_block_q4_k>(n, rows, cols, stream).partial_bytes(),
                  plan_of<vb_block_q8_0>(n, rows, cols, stream).partial_bytes());
}

template <class Block>
Matrix matrix_of(const vb_weight &w, float *y, const float *bias) {
    return {(const uint8_t *)w.data, y, bias, w.rows, (int)ceil_div<int64_t>(w.rows, packed_rows)};
}

// The products of x with up to three matrices of one type.
template <class Block, bool SWIGLU>
vb_status multiply(const PrefillX &x, Product product, vb_stream *stream) {
    using P = Packed<Block>;
    for (const Matrix &m : product.matrices) product.tile_rows += m.tile_rows;
    product.inverse = x.inverse, product.partial = x.partial, product.arrived = counters(stream), product.n = x.n;
    const int64_t rows = (int64_t)product.tile_rows * P::rows;
    const PrefillPlan plan = plan_of<Block>(x.n, rows, x.cols, stream);
    product.k_tiles = (int)(x.cols / P::depth), product.token_blocks = plan.token_blocks, product.whole = plan.whole;
    product.splits = plan.splits, product.units = plan.units();
    if (!has_wgmma(stream)) return launch_overlapped(stream, product.units, block_threads, 0, mma_kernel<Block, SWIGLU>, x.x, product);
#ifdef VB_WITH_SM90
    CUtensorMap map;
    VB_TRY(sm90::tensor_map(&map, x.x, VB_F16, x.cols, x.n, x.cols, plan.tokens, stream));
    const unsigned blocks = (unsigned)smaller(product.units, multiprocessors(stream));
    return plan.tokens == 64 ? launch_overlapped(stream, blocks, wgmma_threads, WgmmaShape<64, SWIGLU>::shared, wgmma_kernel<Block, 64, SWIGLU>, map, product)
                             : launch_overlapped(stream, blocks, wgmma_threads, WgmmaShape<128, SWIGLU>::shared, wgmma_kernel<Block, 128, SWIGLU>, map, product);
#else
    return VB_UNSUPPORTED;
#endif
}

template <class Block>
vb_status prefill(const LinearArgs &a, const LinearExtra &extra, vb_stream *stream) {
    const vb_weight w = {a.w, VB_Q4_K, VB_PACKED, a.rows, a.cols}; // its type is Block's
    for (int64_t first = 0; first < a.n; first += most_tokens) {
        const int64_t n = smaller(most_tokens, a.n - first), rows = ceil_div<int64_t>(a.rows, packed_rows) * packed_rows;
        PrefillX x;
        VB_TRY(convert_x(&x, a.x + first * a.cols, extra, n, a.cols, plan_of<Block>(n, rows, a.cols, stream).partial_bytes(), stream));
        Product product = {{matrix_of<Block>(w, a.y + first * a.rows, a.bias)}};
        product.add = extra.add ? extra.add + first * a.rows : nullptr;
        VB_TRY((multiply<Block, false>(x, product, stream)));
    }
    return VB_OK;
}

// Gate and up as one product.
template <class Block>
vb_status prefill_swiglu(float *out, const float *x, const LinearExtra &norm, const vb_weight &gate, const vb_weight &up, int64_t n,
                         vb_stream *stream) {
    const int64_t rows = 2 * ceil_div<int64_t>(gate.rows, packed_rows) * packed_rows;
    PrefillX input;
    VB_TRY(convert_x(&input, x, norm, n, gate.cols, plan_of<Block>(n, rows, gate.cols, stream).partial_bytes(), stream));
    return multiply<Block, true>(input, {{matrix_of<Block>(gate, out, nullptr), matrix_of<Block>(up, out, nullptr)}}, stream);
}

// Queries, new keys and new values; those of another type than the queries' come from a second product.
template <class Block>
vb_status prefill_qkv(const vb_norm_qkv_args &a, vb_stream *stream) {
    const int64_t n = a.batch * a.seq;
    const bool same = a.wv.type == a.wq.type;
    const auto rows_of = [](const vb_weight &w) { return ceil_div<int64_t>(w.rows, packed_rows) * packed_rows; };
    const int64_t rows = rows_of(a.wq) + rows_of(a.wk) + (same ? rows_of(a.wv) : 0);
    int64_t partial = plan_of<Block>(n, rows, a.wq.cols, stream).partial_bytes();
    PrefillX x;
    const auto values = [&](auto block) {
        using V = decltype(block);
        return multiply<V, false>(x, {{matrix_of<V>(a.wv, a.v_new, a.bv)}}, stream);
    };
    if (!same) partial = larger(partial, largest_partial(n, rows_of(a.wv), a.wq.cols, stream));
    VB_TRY(convert_x(&x, a.x, {true, a.norm, a.eps, nullptr}, n, a.wq.cols, partial, stream));
    Product product = {{matrix_of<Block>(a.wq, a.q, a.bq), matrix_of<Block>(a.wk, a.k_new, a.bk)}};
    if (same) product.matrices[2] = matrix_of<Block>(a.wv, a.v_new, a.bv);
    VB_TRY((multiply<Block, false>(x, product, stream)));
    if (same) return VB_OK;
    switch (a.wv.type) {
#define X(type, V) case type: return values(V());
        VB_PACKED_TYPES(X)
#undef X
    default: return VB_UNSUPPORTED;
    }
}

} // namespace

vb_status linear_prefill(const LinearArgs &a, const LinearExtra &extra, vb_dtype type, vb_stream *stream) {
    switch (type) {
#define X(type, Block) case type: return prefill<Block>(a, extra, stream);
        VB_PACKED_TYPES(X)
#undef X
    default: return VB_UNSUPPORTED;
    }
}

vb_status prefill_norm_qkv(const vb_norm_qkv_args &a, vb_stream *stream) {
    if (a.batch * a.seq > most_tokens || a.wk.type != a.wq.type) return VB_UNSUPPORTED;
    vb_status status = VB_UNSUPPORTED;
    switch (a.wq.type) {
#define X(type, Block) case type: status = prefill_qkv<Block>(a, stream); break;
        VB_PACKED_TYPES(X)
#undef X
    default: break;
    }
    return status;
}

vb_status prefill_norm_swiglu(float *out, const float *x, const LinearExtra &norm, const vb_weight &gate, const vb_weight &up, int64_t n,
                              vb_stream *stream) {
    if (n > most_tokens) return VB_UNSUPPORTED;
    switch (gate.type) {
#define X(type, Block) case type: return prefill_swiglu<Block>(out, x, norm, gate, up, n, stream);
        VB_PACKED_TYPES(X)
#undef X
    default: return VB_UNSUPPORTED;
    }
}

} // namespace vb

#else

namespace vb {
vb_status linear_prefill(const LinearArgs &, const LinearExtra &, vb_dtype, vb_stream *) { return VB_UNSUPPORTED; }
} // namespace vb

#endif
