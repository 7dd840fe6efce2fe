// matmul_sm90.cuh: the matrix product kernel of Hopper's tensor cores for every layout: C = A B where A is stored
// [m][k] or [k][m] and B [k][n] or [n][k], with any row stride of whole 16-byte pieces, in batches.
// gemm_sm90_kernel.cuh has more ways to cut up a product of contiguous matrices.
//
// Blocks of three warpgroups, one an SM: the first copies tiles of A (128 x 64) and B (64 x BN), as they are stored,
// with TMA into a ring of stages; the other two multiply 64 rows each with wgmma, which reads both orders, and write C
// from registers. Blocks are persistent and take tiles in bands of rows. What is outside the matrices is TMA's business
// (zeros).
//
// PARTS = 0: C has the type of the operands. Else C is float32, and the operands are float32 ones that were scaled and
// rounded to PARTS numbers of 11 bits (see matmul_3xf16_sm90.cu). Of two parts 32 high ones are followed by 32 low ones
// along k, so that a step of 64 holds both of 32 of k; of the four partial products the three that matter are summed,
// small ones first, and each step's sum is added in registers, since the tensor core truncates where float32 rounds.
#ifndef VB_CUDA_MATMUL_SM90_CUH
#define VB_CUDA_MATMUL_SM90_CUH

#include "gemm/matmul.cuh"
#include "arch/sm90.cuh"

#ifdef VB_WITH_SM90

namespace vb {
namespace strided {

constexpr int threads = 384;
constexpr int tile_m = 128;
constexpr int depth = 64; // elements of k in a stage, as stored

template <class Out>
struct Problem {
    Out *c;
    int64_t c_stride, c_batch_stride;
    bool c_vectors, a_shared, b_shared; // shared: one matrix for all of the batch
    int m, k, n, batch, steps, group_rows;
    // Scaled operands only: the two factors that take back the scale of each row of A and column of B, [matrices][m]
    // and [matrices][n], NaN where it holds Inf or NaN; and A and B themselves, with the distances between neighbouring
    // elements.
    const float2 *a_scale, *b_scale;
    const float *a, *b;
    int64_t a_row, a_term, a_batch, b_term, b_column, b_batch;
};

template <int BN>
struct Stage {
    static constexpr int a_bytes = tile_m * depth * 2, b_bytes = depth * BN * 2, bytes = a_bytes + b_bytes;
    static constexpr int count = smaller(8, 224 * 1024 / bytes);
    static constexpr int shared_bytes = count * bytes + sm90::swizzle_bytes;
};

#ifdef VB_SM90A

// One element in plain float32 arithmetic, for rows and columns with Inf or NaN.
template <class Out>
VB_DEVICE float plain_element(const Problem<Out> &p, int z, int row, int column) {
    const float *const a = p.a + z * p.a_batch + row * p.a_row, *const b = p.b + z * p.b_batch + column * p.b_column;
    float sum = 0;
    for (int k = 0; k < p.k; k++) sum = fmaf(a[k * p.a_term], b[k * p.b_term], sum);
    return sum;
}

// Writes a warp's 16 rows from (row, column) on of C, of 16-bit elements. The four threads of a quad hold 2 of every 8
// columns each; they exchange them so that each writes 16 bytes.
template <class Out, int N>
VB_DEVICE void store_rows(const Problem<Out> &p, const float (&sum)[N / 2], int z, int row, int column) {
    const int lane = threadIdx.x % 32, quad = lane % 4;
#pragma unroll
    for (int h = 0; h < 2; h++) {
        const int r = row + lane / 4 + 8 * h;
        Out *const c = p.c + z * p.c_batch_stride + r * p.c_stride;
#pragma unroll
        for (int j = 0; j < N / 8; j += 4) {
            unsigned w[4];
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const Vec<Out, 2> two = {
                    {from_float<Out>(sum[4 * (j + i) + 2 * h]), from_float<Out>(sum[4 * (j + i) + 2 * h + 1])}};
                w[i] = *reinterpret_cast<const unsigned *>(&two);
            }
            // A transposition of 4 x 4 words over the quad, in blocks of 1, then of 2.
#pragma unroll
            for (int i = 0; i < 4; i += 2) {
                const unsigned other = __shfl_xor_sync(all_lanes, quad & 1 ? w[i] : w[i + 1], 1);
                if (quad & 1) w[i] = other;
                else w[i + 1] = other;
            }
#pragma unroll
            for (int i = 0; i < 2; i++) {
                const unsigned other = __shfl_xor_sync(all_lanes, quad & 2 ? w[i] : w[i + 2], 2);
                if (quad & 2) w[i] = other;
                else w[i + 2] = other;
            }
            const int at = column + 8 * (j + quad);
            if (r >= p.m || at >= p.n) continue;
            if (p.c_vectors && at + 8 <= p.n) {
                *reinterpret_cast<uint4 *>(c + at) = make_uint4(w[0], w[1], w[2], w[3]);
            } else {
#pragma unroll
                for (int e = 0; e < 8; e++)
                    if (at + e < p.n) c[at + e] = reinterpret_cast<const Out *>(&w[e / 2])[e % 2];
            }
        }
    }
}

// The same for the sums of scaled operands, whose scale is taken back. 2^exponent alone may not be a float, so that
// there are two factors of each, which are combined crosswise: where these leave the range of float32 the result does
// so too.
template <int N, int SOME>
VB_DEVICE void store_rows_scaled(const Problem<float> &p, const float (&sum)[N / 2], int z, int row, int column) {
    const int lane = threadIdx.x % 32, quad = lane % 4;
    const float2 *const a_scale = p.a_scale + (p.a_shared ? 0 : (int64_t)z * p.m);
    const float2 *const b_scale = p.b_scale + (p.b_shared ? 0 : (int64_t)z * p.n);
    float *c[2];
    float2 of_row[2];
#pragma unroll
    for (int h = 0; h < 2; h++) {
        const int r = row + lane / 4 + 8 * h;
        c[h] = p.c + z * p.c_batch_stride + r * p.c_stride;
        of_row[h] = r < p.m ? a_scale[r] : make_float2(0, 0);
    }
    bool plain = false;
    // Scales of SOME columns are under way together: one by one, between writes that might change them for all the
    // compiler knows, they took a quarter of TF32's 2048^3. With two parts more registers cost the product itself as
    // much (4096^3: 707 to 781 us).
#pragma unroll
    for (int j0 = 0; j0 < N / 8; j0 += SOME) {
        float2 first[SOME], second[SOME];
#pragma unroll
        for (int u = 0; u < SOME; u++) {
            const int at = column + 8 * (j0 + u) + 2 * quad;
            first[u] = at < p.n ? b_scale[at] : make_float2(0, 0),
            second[u] = at + 1 < p.n ? b_scale[at + 1] : make_float2(0, 0);
        }
#pragma unroll
        for (int u = 0; u < SOME; u++) {
            const int j = j0 + u, at = column + 8 * j + 2 * quad;
#pragma unroll
            for (int h = 0; h < 2; h++) {
                const float x = sum[4 * j + 2 * h] * (of_row[h].x * first[u].x) * (of_row[h].y * first[u].y);
                const float y = sum[4 * j + 2 * h + 1] * (of_row[h].x * second[u].x) * (of_row[h].y * second[u].y);
                plain |= x != x || y != y;
                if (row + lane / 4 + 8 * h >= p.m) continue;
                if (p.c_vectors && at + 2 <= p.n) {
                    *reinterpret_cast<float2 *>(c[h] + at) = make_float2(x, y);
                } else {
                    if (at < p.n) c[h][at] = x;
                    if (at + 1 < p.n) c[h][at + 1] = y;
                }
            }
        }
    }
    if (!plain) return;
#pragma unroll 1
    for (int i = 0; i < N / 2; i++) {
        const int at = column + i / 4 * 8 + 2 * quad + i % 2, h = i / 2 % 2, r = row + lane / 4 + 8 * h;
        if (r >= p.m || at >= p.n) continue;
        const float scale = a_scale[r].x * b_scale[at].x;
        if (scale != scale) p.c[z * p.c_batch_stride + r * p.c_stride + at] = plain_element(p, z, r, at);
    }
}

#endif

template <class T, class Out, int BN, bool A_MN, bool B_MN, int PARTS>
__global__ __launch_bounds__(threads, 1) void matmul_sm90_kernel(const __grid_constant__ CUtensorMap a_map,
                                                                 const __grid_constant__ CUtensorMap b_map,
                                                                 const Problem<Out> p) {
#ifdef VB_SM90A
    using Ring = Stage<BN>;
    extern __shared__ char shared[];
    __shared__ uint64_t full[Ring::count], empty[Ring::count];
    char *const ring =
        shared + (sm90::swizzle_bytes - shared_address(shared) % sm90::swizzle_bytes) % sm90::swizzle_bytes;
    const int group = __shfl_sync(all_lanes, threadIdx.x / 128, 0); // the compiler then knows it to be uniform
    const int tiles_m = ceil_div(p.m, tile_m), tiles_n = ceil_div(p.n, BN), tiles = tiles_m * tiles_n;

    if (threadIdx.x == 0) {
        sm90::prefetch_map(&a_map);
        sm90::prefetch_map(&b_map);
        for (int s = 0; s < Ring::count; s++) {
            sm90::barrier_init(&full[s], 1);
            sm90::barrier_init(&empty[s], 8); // one arrival a warp of the consumers
        }
        sm90::barrier_init_fence();
    }
    __syncthreads();
    wait_for_previous_kernel();
    release_next_kernel();

    // Matrix z and the corner of its tile.
    const auto corner = [&](int item, int &z, int &m0, int &n0) {
        const int tile = item % tiles, in_band = p.group_rows * tiles_n, first = tile / in_band * p.group_rows;
        const int rows = smaller(p.group_rows, tiles_m - first);
        z = item / tiles;
        m0 = (first + tile % in_band % rows) * tile_m;
        n0 = tile % in_band / rows * BN;
    };

    if (group == 0) {
        sm90::registers_shrink<40>();
        if (threadIdx.x == 0) {
            int stage = 0;
            unsigned phase = 1;
            for (int item = blockIdx.x; item < tiles * p.batch; item += gridDim.x) {
                int z, m0, n0;
                corner(item, z, m0, n0);
                const int za = p.a_shared ? 0 : z, zb = p.b_shared ? 0 : z;
                for (int step = 0; step < p.steps; step++) {
                    char *const a = ring + stage * Ring::bytes, *const b = a + Ring::a_bytes;
                    uint64_t *const barrier = &full[stage];
                    const int k = step * depth;
                    sm90::barrier_wait(&empty[stage], phase);
                    sm90::barrier_expect(barrier, Ring::bytes);
                    if (A_MN) {
#pragma unroll
                        for (int i = 0; i < tile_m / 64; i++)
                            sm90::copy_box(a + i * depth * sm90::row_bytes, &a_map, barrier, m0 + 64 * i, k, za);
                    } else {
                        sm90::copy_box(a, &a_map, barrier, k, m0, za);
                    }
                    if (B_MN) {
#pragma unroll
                        for (int i = 0; i < BN / 64; i++)
                            sm90::copy_box(b + i * depth * sm90::row_bytes, &b_map, barrier, n0 + 64 * i, k, zb);
                    } else {
                        sm90::copy_box(b, &b_map, barrier, k, n0, zb);
                    }
                    if (++stage == Ring::count) stage = 0, phase ^= 1;
                }
            }
        }
    } else {
        sm90::registers_grow<232>();
        const int consumer = group - 1, warp = threadIdx.x % 128 / 32, lane = threadIdx.x % 32;
        // In the descriptor's units of 16 bytes: from one 16 of k to the next, and from high to low parts.
        constexpr int a_step = A_MN ? 16 * sm90::row_bytes / 16 : 2, b_step = B_MN ? 16 * sm90::row_bytes / 16 : 2;
        constexpr int a_low = 2 * a_step, b_low = 2 * b_step;
        using Product = sm90::Wgmma<T, BN, B_MN, A_MN>;
        const auto release = [&](int stage) {
            if (lane == 0) sm90::barrier_arrive(&empty[stage]);
        };
        int stage = 0;
        unsigned phase = 0;
        for (int item = blockIdx.x; item < tiles * p.batch; item += gridDim.x) {
            int z, m0, n0;
            corner(item, z, m0, n0);
            float sum[BN / 2], total[PARTS == 2 ? BN / 2 : 1];
            if (PARTS == 2) {
#pragma unroll
                for (int i = 0; i < (PARTS == 2 ? BN / 2 : 1); i++) total[i] = 0;
            }
            int keep = 0, previous = -1;
            for (int step = 0; step < p.steps; step++) {
                char *const at = ring + stage * Ring::bytes;
                sm90::barrier_wait(&full[stage], phase);
                // 64 rows of A take as many bytes in either order.
                const uint64_t a = sm90::describe(at + consumer * 64 * sm90::row_bytes, depth * sm90::row_bytes);
                const uint64_t b = sm90::describe(at + Ring::a_bytes, depth * sm90::row_bytes);
                sm90::wgmma_fence();
                if (PARTS == 2) {
#pragma unroll
                    for (int i = 0; i < 2; i++) {
                        Product::run(sum, a + a_low + i * a_step, b + i * b_step, i);
                        Product::run(sum, a + i * a_step, b + b_low + i * b_step, 1);
                    }
#pragma unroll
                    for (int i = 0; i < 2; i++) Product::run(sum, a + i * a_step, b + i * b_step, 1);
                } else {
#pragma unroll
                    for (int i = 0; i < depth / 16; i++) {
                        Product::run(sum, a + i * a_step, b + i * b_step, keep);
                        keep = 1;
                    }
                }
                sm90::wgmma_commit();
                if (PARTS == 2) {
                    sm90::wgmma_wait<0>();
                    release(stage);
#pragma unroll
                    for (int i = 0; i < (PARTS == 2 ? BN / 2 : 1); i++) total[i] += sum[i];
                } else { // these products stay in flight while the next ones are awaited
                    sm90::wgmma_wait<1>();
                    if (previous >= 0) release(previous);
                    previous = stage;
                }
                if (++stage == Ring::count) stage = 0, phase ^= 1;
            }
            if (PARTS != 2) {
                sm90::wgmma_wait<0>();
                release(previous);
            }
            const int row = m0 + consumer * 64 + warp * 16;
            if constexpr (PARTS == 2) store_rows_scaled<BN, 1>(p, total, z, row, n0);
            else if constexpr (PARTS == 1) store_rows_scaled<BN, 8>(p, sum, z, row, n0);
            else store_rows<Out, BN>(p, sum, z, row, n0);
        }
    }
#endif
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
vb_status launch_matmul(const Operand &a, const Operand &b, vb_dtype type, Problem<Out> p, vb_stream *stream) {
    CUtensorMap a_map, b_map;
    if (a.map(&a_map, type, A_MN ? depth : tile_m, stream) != VB_OK ||
        b.map(&b_map, type, B_MN ? depth : BN, stream) != VB_OK)
        return VB_UNSUPPORTED; // strides that the driver does not take
    const int64_t tiles = ceil_div<int64_t>(p.m, tile_m) * ceil_div<int64_t>(p.n, BN) * p.batch;
    p.group_rows = 16;
    return launch_overlapped(stream, (unsigned)smaller<int64_t>(tiles, multiprocessors(stream)), threads,
                             Stage<BN>::shared_bytes, matmul_sm90_kernel<T, Out, BN, A_MN, B_MN, PARTS>, a_map, b_map,
                             p);
}

// Whether tiles 256 columns wide take less time than those of 128: so many waves of tiles, by their widths.
inline bool wide_tiles(const vb_matmul_args &x, vb_stream *stream) {
    const int64_t sms = multiprocessors(stream), rows = ceil_div<int64_t>(x.m, tile_m) * x.batch;
    const auto time = [&](int64_t width, int64_t work) { return ceil_div(rows * ceil_div(x.n, width), sms) * work; };
    return time(256, 20) <= time(128, 11); // two narrow tiles load more, and end twice
}

} // namespace strided
} // namespace vb

#endif // VB_WITH_SM90
#endif
