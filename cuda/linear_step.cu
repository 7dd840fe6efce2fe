// linear_step.cu: the products of linear_prefill.cu for up to 32 rows of x on Hopper: a step of so many sequences.
//
// The arithmetic is a prompt's: weights are dequantized into registers, operand A of wgmma, once for up to 32 rows of x, and x, operand B,
// is read by four warps at a time. What differs is that a step waits for memory and instructions: each warp has a ring of tiles of weights in
// shared memory, filled before the kernel before has ended, and two blocks fit on a multiprocessor, of this kernel or of this one and the
// next.
//
// The columns of few rows of W are shared by the blocks of a cluster, each of which finishes its share of the rows of x.
//
//   grid     a block for 128 rows of W, or a cluster
//   threads  8 warps of 16 rows of W each, one that fetches x
//   shared   32 KiB of x, then of sums; rings of 66 to 79 KiB
//   moves    the weights once; x once a block, from L2
//   bound    a warp's instructions, 490 a tile of Q4_K, of which it issues one in five to six cycles: the next one needs the one before, or
//            waits for wgmma; a multiprocessor that has two units of norm_swiglu takes 24 us where the mean of 1.3 would take 16
//   measured H200, n = 32, with the conversion of x, weights from memory: norm_swiglu of 2 x 11008 x 2048 Q4_K 23 us, linear_add of
//            2048 x 11008 Q6_K 21, of 2048 x 2048 Q4_K 7.5, feed_forward of these sizes 40, without those conversions. 32 sequences of the 3B
//            13,960 tokens/s, 14.7 times one, 12,090 by packed_product.cuh. n = 17 takes as long; n = 16 by packed_product.cuh 21, 13, 5.2
//   slower   16 warps a block, every second tile for either half of them: down 26 us, for no block of the next kernel fits beside one
//            clusters of two for norm_swiglu: 24 us, 13,200 tokens/s
//            64 rows of x: 29, 26, 10, 64 sequences 21,900 tokens/s; by linear_prefill_sm90.cuh 23,200

#include "linear.cuh"
#ifdef VB_HAS_PACKED_LAYOUT
#include "linear_prefill_store.cuh"
#include "linear_step.cuh"
#include "linear_vector.cuh"

namespace vb {

#ifdef VB_WITH_SM90

namespace {

constexpr int step_threads = prefill_threads + 32;

// The shared memory of a block.
template <class Block>
struct StepShape {
    using P = Packed<Block>;
    static constexpr int boxes = 2, columns = boxes * sm90::tile_width; // of x in a stage
    static constexpr int box_bytes = step_tokens * sm90::row_bytes, stage_bytes = boxes * box_bytes, x_stages = 4;
    static constexpr int rings = x_stages * stage_bytes; // where they begin
    static constexpr int most = 112 << 10;               // of which a multiprocessor has room for two
    static constexpr int stages = smaller(6, (most - 1024 - rings) / (prefill_warps * (P::tile_bytes + 8)));
    static constexpr int inverse = rings + prefill_warps * stages * P::tile_bytes, barriers = inverse + step_tokens * 4;
    static constexpr int shared = barriers + (2 * x_stages + prefill_warps * stages) * 8;
    static_assert(stages >= 2 && shared <= most, "two blocks");
    static constexpr int batch = 2; // instructions
};

#ifdef VB_SM90A

constexpr int step_width = prefill_rows + 4; // of sums of a token: rows of eight lanes and tokens of four are in different banks

// The sum of four neighbours in all blocks of a cluster.
VB_DEVICE float4 sum_of_cluster(const float *at, int cluster) {
    if (cluster == 1) return *reinterpret_cast<const float4 *>(at);
    float4 part[8] = {};
#pragma unroll
    for (int block = 0; block < 8; block++)
        if (block < cluster) part[block] = sm90::load_remote(sm90::remote_address(at, block));
    float4 sum = part[0];
#pragma unroll
    for (int block = 1; block < 8; block++) sum.x += part[block].x, sum.y += part[block].y, sum.z += part[block].z, sum.w += part[block].w;
    return sum;
}

// 1 / scale of the rows of x, by a warp.
VB_DEVICE void load_scale(float *inverse, const Product &p, int cols) {
    const int token = threadIdx.x % 32;
    static_assert(step_tokens == 32, "one a lane");
    float scale = 0;
    if (token < p.n && p.inverse) {
        scale = p.inverse[token];
    } else if (token < p.n) {
        scale = 1 / prefill_unit;
        if (p.from.squares) {
            const int parts = cols / prefill_rows;
            float sum = 0;
#pragma unroll 8
            for (int i = 0; i < parts; i++) sum += p.from.squares[i * half_stride(p.n) + token];
            scale /= sqrtf(sum / (float)cols + p.eps);
        }
    }
    inverse[token] = scale;
}

// Sums of columns with the exponents of group `from`, as of columns with those of `to`; of none where it is negative.
VB_DEVICE void change_exponents(const Product &p, float (&c)[step_tokens / 2], int from, int to) {
    const int64_t stride = half_stride(p.n);
    const int t = threadIdx.x % 4;
#pragma unroll
    for (int j = 0; j < step_tokens / 8; j++) {
        const int64_t token = 8 * j + 2 * t;
        if (token >= p.n) break;
        const uint8_t *const at = p.from.exponents + token;
        const uchar2 a = *reinterpret_cast<const uchar2 *>(at + from * stride);
        const uchar2 b = to < 0 ? make_uchar2(0, 0) : *reinterpret_cast<const uchar2 *>(at + to * stride);
        const float x = power_of_two(a.x - b.x), y = power_of_two(a.y - b.y);
        c[4 * j] *= x, c[4 * j + 1] *= y, c[4 * j + 2] *= x, c[4 * j + 3] *= y;
    }
}

// Sums, bias and what is added: a warp writes 128 neighbours of a token.
VB_DEVICE void finish_rows(const Product &p, const Unit &unit, const float *sums, const float *inverse, int cluster, int rank) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    int tile_row = unit.rows * prefill_warps + lane / 4;
    if (tile_row >= p.tile_rows) return;
    const Matrix &m = p.find<false>(tile_row);
    const FourRows rows(m, (int64_t)tile_row * packed_rows + lane % 4 * 4, p.add);
    const float4 bias = m.bias ? rows.load(m.bias, 0) : float4();
    const float4 norm = p.to.x && p.to_norm ? *reinterpret_cast<const float4 *>(p.to_norm + rows.row) : make_float4(1, 1, 1, 1);
    const int end = (int)smaller<int64_t>(step_tokens * (rank + 1) / cluster, p.n);
    for (int token = step_tokens * rank / cluster + warp; token < end; token += prefill_warps) {
        const float4 added = p.add ? rows.load(p.add, token) : float4();
        const float4 sum = sum_of_cluster(sums + token * step_width + 4 * lane, cluster);
        const float scale = inverse[token];
        const float4 y = {fmaf(sum.x, scale, bias.x + added.x), fmaf(sum.y, scale, bias.y + added.y), fmaf(sum.z, scale, bias.z + added.z),
                          fmaf(sum.w, scale, bias.w + added.w)};
        if (p.to.x) store_half(p, unit, y, norm, rows.row, token);
        rows.store(y, token);
    }
}

// silu(gate) * up: a warp writes the 64 neighbours of two tokens. Even warps have gate, odd ones up.
VB_DEVICE void finish_swiglu(const Product &p, const Unit &unit, const float *sums, const float *inverse, int cluster, int rank) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, four = lane % 16;
    const int64_t row = (int64_t)unit.rows * half_group + 4 * four, cols = p.matrices[0].rows;
    const FourRows rows(p.matrices[0], row, nullptr);
    const int end = (int)smaller<int64_t>(step_tokens * (rank + 1) / cluster, p.n);
    for (int first = step_tokens * rank / cluster + 2 * warp; first < end; first += 2 * prefill_warps) {
        const int token = first + lane / 16;
        const bool exists = token < end && row < cols;
        const float *const at = sums + smaller(token, step_tokens - 1) * step_width + four / 4 * 2 * packed_rows + four % 4 * 4;
        const float4 gate = sum_of_cluster(at, cluster), up = sum_of_cluster(at + packed_rows, cluster);
        const float scale = inverse[smaller(token, step_tokens - 1)];
        float4 y = {swiglu(gate.x * scale, up.x * scale), swiglu(gate.y * scale, up.y * scale), swiglu(gate.z * scale, up.z * scale),
                    swiglu(gate.w * scale, up.w * scale)};
        if (!p.to.x) {
            if (exists) rows.store(y, token);
            continue;
        }
        const float most = fmaxf(fmaxf(fabsf(y.x), fabsf(y.y)), fmaxf(fabsf(y.z), fabsf(y.w)));
        int exponent = 0;
        if (__any_sync(all_lanes, exists && most >= half_limit)) {
            exponent = (int)half_exponent(__float_as_uint(warp_reduce<Max, 16>(most)));
            if (exists && four == 0 && exponent > 0) *p.to.uneven = 1;
        }
        if (exists && four == 0) p.to.exponents[unit.rows * half_stride(p.n) + token] = (uint8_t)exponent;
        write_halves(p.to.x + token * cols + row / 16 * 16, y, power_of_two(-exponent), exists);
    }
}

#endif

template <class Block, bool SWIGLU>
__global__ void __launch_bounds__(step_threads, 2)
    step_kernel(const __grid_constant__ CUtensorMap x, const __grid_constant__ Product product) {
#ifdef VB_SM90A
    using P = Packed<Block>;
    using S = StepShape<Block>;
    extern __shared__ __align__(1024) uint8_t shared[];
    uint64_t *full = reinterpret_cast<uint64_t *>(shared + S::barriers), *empty = full + S::x_stages, *arrived = empty + S::x_stages;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, cluster = product.cluster;
    const int rank = cluster > 1 ? sm90::cluster_rank() : 0;
    const Unit unit = Unit::of(product, blockIdx.x / cluster, rank);
    const int count = unit.k1 - unit.k0;
    constexpr int stages_a_tile = P::depth / S::columns, batches = S::columns / 16 / S::batch; // of a stage

    TileRing<P::tile_bytes> ring;
    const uint8_t *tile = nullptr;
    if (warp < prefill_warps) {
        ring.start(shared + S::rings + warp * S::stages * P::tile_bytes, arrived + warp * S::stages, S::stages, lane);
        tile = first_tile<Block, SWIGLU>(product, unit, warp);
        for (int s = 0; s < S::stages; s++, tile += P::tile_bytes) ring.fetch(s, tile, s < count, lane);
    } else if (lane == 0) {
        sm90::prefetch_map(&x);
        for (int s = 0; s < S::x_stages; s++) sm90::barrier_init(full + s, 1), sm90::barrier_init(empty + s, prefill_warps);
        sm90::barrier_init_fence();
    }
    __syncthreads();
    if (!product.beside) wait_for_previous_kernel();
    release_next_kernel();

    int stage = 0;
    unsigned phase = 0;
    const auto advance = [&] {
        if (++stage == S::x_stages) stage = 0, phase ^= 1;
    };
    if (warp == prefill_warps) {
        if (lane == 0)
            for (int k = unit.k0 * stages_a_tile; k < unit.k1 * stages_a_tile; k++, advance()) {
                sm90::barrier_wait(empty + stage, phase ^ 1);
                sm90::barrier_expect(full + stage, S::stage_bytes);
#pragma unroll
                for (int box = 0; box < S::boxes; box++)
                    sm90::copy_box(shared + stage * S::stage_bytes + box * S::box_bytes, &x, full + stage,
                                   k * S::columns + box * sm90::tile_width, 0);
            }
        __syncwarp();
        if (cluster > 1) sm90::cluster_sync(), sm90::cluster_sync();
        if (product.beside) wait_for_previous_kernel();
        return;
    }

    const auto meet = [] { sm90::group_sync<1, prefill_threads>(); };
    float *const inverse = reinterpret_cast<float *>(shared + S::inverse);
    if (warp == 0) load_scale(inverse, product, product.k_tiles * P::depth);
    const bool uneven = product.from.x && *product.from.uneven; // hardly ever
    constexpr int groups_a_tile = P::depth / half_group, words_a_group = half_group / 16;
    float c[step_tokens / 2] = {};
    sm90::settle(c); // zeros are in their registers
    uint32_t a[2][S::batch][4];
    int before = -1; // the stage that was read before
    for (int k = 0; k < count; k++) {
        LaneTile<Block> stored;
        stored.template load<false>(ring.wait(), lane);
        ring.refill(tile, k + S::stages < count, lane);
        tile += P::tile_bytes;
        PrefillTile<Block> work;
        work.unpack(stored);
#pragma unroll
        for (int part = 0; part < stages_a_tile; part++) {
            // The descriptor's lower half, the same for all lanes: made once, in few registers.
            const unsigned low = __shfl_sync(all_lanes, (unsigned)sm90::describe(shared + stage * S::stage_bytes, 0), 0);
            const uint64_t operand = (uint64_t)(unsigned)(sm90::describe(shared, 0) >> 32) << 32 | low;
#pragma unroll
            for (int b = 0; b < batches; b++) { // one at work while the next one is prepared
                if (const int word = (part * batches + b) * S::batch; word % words_a_group == 0 && uneven) {
                    const int columns = (unit.k0 + k) * groups_a_tile + word / words_a_group;
                    if (columns > unit.k0 * groups_a_tile) {
                        sm90::wgmma_wait<0>();
                        sm90::settle(c);
                        change_exponents(product, c, columns - 1, columns);
                    }
                }
                uint32_t(&now)[S::batch][4] = a[(part * batches + b) % 2];
#pragma unroll
                for (int j = 0; j < S::batch; j++) work.fragment(now[j], (part * batches + b) * S::batch + j);
                if (b == 0) sm90::barrier_wait(full + stage, phase);
                sm90::wgmma_fence();
#pragma unroll
                for (int j = 0; j < S::batch; j++) { // 16 columns, 32 bytes each; a box has four of them
                    const int at = b * S::batch + j;
                    sm90::WgmmaRegisters<half, step_tokens, 0>::run(c, now[j], operand + (at / 4 * S::box_bytes + at % 4 * 32) / 16);
                }
                sm90::wgmma_commit();
                sm90::wgmma_wait<1>();
                if (b == 0 && before >= 0 && lane == 0) sm90::barrier_arrive(empty + before);
            }
            before = stage;
            advance();
        }
    }
    sm90::wgmma_wait<0>();
    sm90::settle(c);
    if (uneven) change_exponents(product, c, unit.k1 * groups_a_tile - 1, -1);

    float *const sums = reinterpret_cast<float *>(shared);
    meet(); // all have read what is in place of the sums
#pragma unroll
    for (int i = 0; i < step_tokens / 2; i++)
        sums[(i / 4 * 8 + lane % 4 * 2 + (i & 1)) * step_width + warp * packed_rows + lane / 4 + (i & 2) * 4] = c[i];
    if (cluster > 1) sm90::cluster_sync();
    else meet();
    if constexpr (SWIGLU) finish_swiglu(product, unit, sums, inverse, cluster, rank);
    else finish_rows(product, unit, sums, inverse, cluster, rank);
    if (cluster > 1) sm90::cluster_sync(); // others may still read this block's sums
    if (product.beside) wait_for_previous_kernel();
#endif
}

} // namespace

int step_cluster(int64_t rows, int64_t k_tiles, int multiprocessors) {
    const int64_t units = ceil_div<int64_t>(rows, prefill_rows);
    int cluster = 1;
    while (cluster < 8 && 2 * cluster <= k_tiles && 2 * cluster * units <= multiprocessors * 5 / 4) cluster *= 2;
    return cluster;
}

template <class Block, bool SWIGLU>
vb_status step_product(const half *x, int64_t cols, const Product &product, vb_stream *stream) {
    CUtensorMap map;
    VB_TRY(sm90::tensor_map(&map, x, VB_F16, cols, product.n, cols, step_tokens, stream));
    return launch_cluster(stream, product.cluster, product.units * product.cluster, step_threads, StepShape<Block>::shared,
                          step_kernel<Block, SWIGLU>, map, product);
}

#else

int step_cluster(int64_t, int64_t, int) { return 1; }
template <class Block, bool SWIGLU>
vb_status step_product(const half *, int64_t, const Product &, vb_stream *) { return VB_UNSUPPORTED; }

#endif

#define X(type, Block)                                                                                        \
    template vb_status step_product<Block, false>(const half *, int64_t, const Product &, vb_stream *);         \
    template vb_status step_product<Block, true>(const half *, int64_t, const Product &, vb_stream *);
VB_PACKED_TYPES(X)
#undef X

} // namespace vb
#endif
