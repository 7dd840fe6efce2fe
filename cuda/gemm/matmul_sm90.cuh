// matmul_sm90.cuh: the matrix product kernel of Hopper's tensor cores for every layout: C = A B in batches, A stored
// [m][k] or [k][m], B [k][n] or [n][k], with any row stride of whole 16-byte pieces.
// gemm_sm90_kernel.cuh has more ways to cut up a product of contiguous matrices.
//
//   grid   persistent blocks, one an SM, which take tiles in bands of rows. Of narrow tiles of 16 bits two, so that one
//          multiplies while the other stores
//   block  a warpgroup, of narrow tiles of 16 bits a warp, copies tiles of A (128 x 64) and B (64 x BN) with TMA into a
//          ring of stages, as they are stored. Two warpgroups multiply 64 rows each with wgmma, which reads both
//          orders, and write C from registers
//   pairs  two blocks of a cluster at tiles one above the other copy half of B's tile each, for both
//   parts  where tiles are few, or those of the last round, several blocks have a part of k of each. The last of up to
//          four adds the sums of the others in the order of k; else add_parts (matmul.cuh) adds them
//
// TMA reads zeros outside the matrices. PARTS = 0: C has the type of the operands. Else C is float32, and the operands
// are scaled operands in so many parts (sm90_product.cuh).
#ifndef VB_CUDA_MATMUL_SM90_CUH
#define VB_CUDA_MATMUL_SM90_CUH

#include "gemm/matmul.cuh"
#include "gemm/sm90_product.cuh"

#ifdef VB_WITH_SM90

namespace vb {
namespace strided {

constexpr int tile_m = MATMUL_SM90_TILE_M;

// Blocks that may share a multiprocessor. One warp copies in these, after those that multiply.
template <int BN, int PARTS>
constexpr int most_blocks = BN == 128 && PARTS == 0 ? 2 : 1;
template <int BN, int PARTS>
constexpr int block_threads = most_blocks<BN, PARTS> > 1 ? 256 + 32 : product_threads;

template <class Out>
struct Problem {
    Out *c;
    int64_t c_stride, c_batch_stride;
    bool c_vectors, a_shared, b_shared; // shared: one matrix for all of the batch
    int m, k, n, batch, steps, group_rows;
    int pair;     // blocks of a cluster: 1 or 2
    int stages;   // of a block's ring
    KParts parts; // of k
    int whole;    // tiles, or pairs of them, that have one block each
    // Where blocks with parts of a tile meet: float[shared tile of a block][part][thread of the consumers][sums], and
    // counters of the blocks there. Else null.
    float *meeting;
    unsigned *arrived;
    ScaledOperands scaled; // of the first matrices of the batch, where operands are scaled
    int64_t a_batch, b_batch;
};

#ifdef VB_SM90A

// The scaled operands of matrix z.
template <class Out>
VB_DEVICE ScaledOperands scaled_of(const Problem<Out> &p, int z) {
    ScaledOperands of = p.scaled;
    of.a_scale += p.a_shared ? 0 : (int64_t)z * p.m, of.b_scale += p.b_shared ? 0 : (int64_t)z * p.n;
    of.a += z * p.a_batch, of.b += z * p.b_batch;
    return of;
}

// Blocks with the sums of `count` parts of a tile meet. The last to come gets true and all sums, the others false.
template <int N>
VB_DEVICE bool meet_others(float *meeting, unsigned *arrived, float (&sum)[N], int tile, int part, int count) {
    __shared__ unsigned before;
    const int thread = threadIdx.x % 256;
    float4 *const places = reinterpret_cast<float4 *>(meeting) + (int64_t)tile * count * (N / 4) * 256 + thread;
#pragma unroll
    for (int i = 0; i < N / 4; i++)
        places[(part * (N / 4) + i) * 256] = make_float4(sum[4 * i], sum[4 * i + 1], sum[4 * i + 2], sum[4 * i + 3]);
    __threadfence();
    group_sync(1, 256);
    if (thread == 0) {
        before = atomicAdd(arrived + tile, 1);
        if ((int)before == count - 1) arrived[tile] = 0;
    }
    group_sync(1, 256);
    if ((int)before < count - 1) return false;
    __threadfence();
#pragma unroll
    for (int i = 0; i < N; i++) sum[i] = 0;
#pragma unroll 1 // for want of registers
    for (int p = 0; p < count; p++)
#pragma unroll
        for (int i = 0; i < N / 4; i++) {
            const float4 x = __ldcg(places + (p * (N / 4) + i) * 256);
            sum[4 * i] += x.x, sum[4 * i + 1] += x.y, sum[4 * i + 2] += x.z, sum[4 * i + 3] += x.w;
        }
    return true;
}

#endif

template <class T, class Out, int BN, bool A_MN, bool B_MN, int PARTS>
__global__ void __launch_bounds__(block_threads<BN, PARTS>, most_blocks<BN, PARTS>)
    matmul_sm90_kernel(VB_IN_PLACE CUtensorMap a_map, VB_IN_PLACE CUtensorMap b_map, const Problem<Out> p) {
#ifdef VB_SM90A
    using Ring = ProductStage<tile_m, BN>;
    constexpr bool shares = most_blocks<BN, PARTS> > 1;
    constexpr int copies = shares ? 2 : 0; // the group whose first thread copies
    extern __shared__ char shared[];
    __shared__ uint64_t full[Ring::count], empty[Ring::count];
    char *const ring =
        shared + (sm90::swizzle_bytes - shared_address(shared) % sm90::swizzle_bytes) % sm90::swizzle_bytes;
    const int group = __shfl_sync(all_lanes, threadIdx.x / 128, 0); // the compiler then knows it to be uniform
    const bool pair = p.pair > 1;
    const unsigned rank = pair ? sm90::cluster_rank() : 0;
    // A pair counts as one tile of twice the rows.
    const int tiles_m = ceil_div(p.m, tile_m * p.pair), tiles_n = ceil_div(p.n, BN), tiles = tiles_m * tiles_n;
    const int first_item = blockIdx.x / p.pair, item_step = gridDim.x / p.pair;
    const int shared_tiles = tiles * p.batch - p.whole, items = p.whole + shared_tiles * p.parts.count;

    if (threadIdx.x == 0) {
        sm90::prefetch_map(&a_map);
        sm90::prefetch_map(&b_map);
        for (int s = 0; s < p.stages; s++) {
            sm90::barrier_init(&full[s], 1);
            sm90::barrier_init(&empty[s], 8 * p.pair); // one arrival a warp of the consumers
        }
        sm90::barrier_init_fence();
    }
    if (pair) sm90::cluster_sync();
    else __syncthreads();
    wait_for_previous_kernel();
    release_next_kernel();

    // Matrix z, the corner of its tile, the part of k (of so many) and the steps of the part; the tile's number.
    struct Item {
        int z, m0, n0, part, parts, first, end, tile;
    };
    const auto item_at = [&](int index) {
        const int parts = index < p.whole ? 1 : p.parts.count,
                  part = index < p.whole ? 0 : (index - p.whole) / shared_tiles,
                  tile = index - part * shared_tiles;
        const int2 at = tile_in_bands(tile % tiles, tiles_m, tiles_n, p.group_rows);
        return Item{tile / tiles,
                    (at.x * p.pair + (int)rank) * tile_m,
                    at.y * BN,
                    part,
                    parts,
                    (int)((int64_t)p.steps * part / parts),
                    (int)((int64_t)p.steps * (part + 1) / parts),
                    tile};
    };

    if (group == copies) {
        if (!shares) sm90::registers_shrink<40>();
        if (threadIdx.x % 128 == 0) {
            StageOf at(p.stages, 1);
            for (int index = first_item; index < items; index += item_step) {
                const Item item = item_at(index);
                const int za = p.a_shared ? 0 : item.z, zb = p.b_shared ? 0 : item.z;
                for (int step = item.first; step < item.end; step++) {
                    char *const a = ring + at.stage * Ring::bytes, *const b = a + Ring::a_bytes;
                    uint64_t *const barrier = &full[at.stage];
                    const int k = step * product_depth;
                    sm90::barrier_wait(&empty[at.stage], at.phase);
                    sm90::barrier_expect(barrier, Ring::bytes);
                    if (A_MN) {
#pragma unroll
                        for (int i = 0; i < tile_m / 64; i++)
                            sm90::copy_box(a + i * product_depth * sm90::row_bytes, &a_map, barrier, item.m0 + 64 * i,
                                           k, za);
                    } else {
                        sm90::copy_box(a, &a_map, barrier, k, item.m0, za);
                    }
                    // Of a pair, each block copies half of the rows of every box of B.
                    const auto copy_b = [&](char *to, int inner, int outer) {
                        if (!pair) return sm90::copy_box(to, &b_map, barrier, inner, outer, zb);
                        const int skipped = (int)rank * (B_MN ? product_depth : BN) / 2;
                        sm90::copy_box_multicast(to + skipped * sm90::row_bytes, &b_map, barrier, inner,
                                                 outer + skipped, zb, 3);
                    };
                    if (B_MN) {
#pragma unroll 1 // for want of registers
                        for (int i = 0; i < BN / 64; i++)
                            copy_b(b + i * product_depth * sm90::row_bytes, item.n0 + 64 * i, k);
                    } else {
                        copy_b(b, k, item.n0);
                    }
                    at.advance();
                }
            }
        }
    } else {
        if (!shares) sm90::registers_grow<232>();
        const int consumer = shares ? group : group - 1, warp = threadIdx.x % 128 / 32, lane = threadIdx.x % 32;
        const auto release = [&](int stage) {
            if (pair) release_stage<true>(&empty[stage], lane);
            else release_stage<false>(&empty[stage], lane);
        };
        StageOf at(p.stages, 0);
        for (int index = first_item; index < items; index += item_step) {
            const Item item = item_at(index);
            float sum[BN / 2];
            // 64 rows of A take as many bytes in either order.
            multiply_stages<T, Ring, BN, A_MN, B_MN, PARTS == 2>(sum, at, item.end - item.first, ring, full,
                                                                 consumer * 64 * sm90::row_bytes, 0, release);
            if constexpr (PARTS == 0)
                if (item.parts > 1 && p.meeting &&
                    !meet_others(p.meeting, p.arrived, sum, (item.tile - p.whole) * p.pair + (int)rank, item.part,
                                 item.parts))
                    continue;
            const int row = item.m0 + consumer * 64 + warp * 16;
            const ProductOutput<Out> c = {p.c + item.z * p.c_batch_stride, p.c_stride, p.m, p.n, p.c_vectors};
            if constexpr (PARTS > 0) {
                store_rows_scaled<BN>(c, scaled_of(p, item.z), sum, row, item.n0);
            } else if (item.parts > 1 && !p.meeting) {
                float *const sums = p.parts.sums + item.part * p.parts.part + (int64_t)item.z * p.m * p.parts.row;
                store_rows_of_part<BN>({sums, p.parts.row, p.m, (int)p.parts.row, true}, sum, row, item.n0);
            } else if (p.c_vectors) {
                store_rows<Out, BN, false>(c, sum, row, item.n0);
            } else {
                store_rows_unaligned<Out, BN>(c, sum, row, item.n0);
            }
        }
    }
    // A block's shared memory stays until no other block of the pair copies into it or arrives at its barriers.
    if (pair) sm90::cluster_sync();
#endif
}

// The arguments of a problem.
template <class Out>
void describe(Problem<Out> &p, const vb_matmul_args &x) {
    p.c = (Out *)x.c, p.c_stride = x.c_stride, p.c_batch_stride = x.c_batch_stride;
    p.c_vectors = matmul_vectors(x.c, x.type, x.c_stride, x.c_batch_stride);
    p.a_shared = x.a_batch_stride == 0, p.b_shared = x.b_batch_stride == 0;
    p.m = (int)x.m, p.k = (int)x.k, p.n = (int)x.n, p.batch = (int)x.batch;
    p.pair = 1, p.parts = describe_k_parts(1, x, nullptr), p.whole = 0, p.meeting = nullptr;
}

// An operand as TMA copies it: `rows` of `columns` elements of 16 bits, `stride` apart, in `matrices` of them.
struct Operand {
    const void *data;
    int64_t rows, columns, stride, batch_stride, matrices;

    vb_status map(CUtensorMap *map, vb_dtype type, int box, vb_stream *stream) const {
        const int64_t batch = matrices > 1 ? batch_stride : stride;
        return sm90::tensor_map<3>(map, data, type, {columns, rows, matrices}, {stride, batch}, box, stream);
    }
};

// Enqueues the product.
template <class T, class Out, int BN, bool A_MN, bool B_MN, int PARTS>
vb_status launch_matmul(const Operand &a, const Operand &b, vb_dtype type, Problem<Out> p, vb_stream *stream,
                        int blocks = 1) {
    using Ring = ProductStage<tile_m, BN>;
    CUtensorMap a_map, b_map;
    VB_TRY(a.map(&a_map, type, A_MN ? product_depth : tile_m, stream));
    VB_TRY(b.map(&b_map, type, (B_MN ? product_depth : BN) / p.pair, stream));
    const int64_t tiles = ceil_div<int64_t>(p.m, tile_m * p.pair) * ceil_div<int64_t>(p.n, BN),
                  items = p.whole + (tiles * p.batch - p.whole) * p.parts.count;
    p.group_rows = 16 / p.pair, p.stages = Ring::count / blocks;
    return launch_cluster(stream, p.pair,
                          (unsigned)smaller<int64_t>(items, multiprocessors(stream) * blocks / p.pair) * p.pair,
                          block_threads<BN, PARTS>, p.stages * Ring::bytes + sm90::swizzle_bytes,
                          matmul_sm90_kernel<T, Out, BN, A_MN, B_MN, PARTS>, a_map, b_map, p);
}

} // namespace strided
} // namespace vb

#endif // VB_WITH_SM90
#endif
