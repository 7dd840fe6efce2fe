// matmul_f32.cu: C = A B in float32 on the fp32 units, any layout, strides and sizes.
//
//   grid     (ceil(m / BM) * ceil(n / BN) in bands (matmul.cuh), matrices, blocks that share k: of up to 64 x 64
//            outputs)
//   block    a warp has 4 TM x 8 TN outputs, a thread TM x TN of them in pieces of 4 x 4
//   shared   three stages of A [16][BM + 4] and B [16][BN + 4], copied asynchronously: 74 KiB for 256 x 128. An operand
//            whose rows run along k is turned by copying single words; the padding then keeps 8 of k and 4 rows in
//            different banks
//   moves    about (1 / BM + 1 / BN) m n k * 4 bytes from L2, 2 m n k FLOPs
//   bound    fp32 units; each output is one chain of additions in the order of k
//   measured docs/experiments/2026-11-22-gemm.md

#include "gemm/matmul.cuh"

namespace vb {
namespace {

constexpr int depth = MATMUL_F32_DEPTH; // of a stage along k
constexpr int stages = 3;

template <int BM, int BN>
__host__ __device__ constexpr int stage_floats() {
    return depth * (BM + 4 + BN + 4);
}

// Copies a tile [depth][SIZE + 4] of an operand that is stored [..][k] where BY_K, else [k][..].
template <bool BY_K, int SIZE, int THREADS>
struct TileCopy {
    unsigned to;
    const float *from;
    int64_t stride;
    int k, left; // k at the tile's start; elements from this thread's first one on, along the side that is not k
    bool vectors;

    static constexpr int width = SIZE + 4;

    // `first` of `size` elements along the side that is not k.
    VB_DEVICE TileCopy(const float *tile, const float *matrix, int64_t stride, int64_t first, int64_t size,
                       bool vectors)
        : stride(stride), vectors(vectors) {
        const int thread = threadIdx.x;
        if (BY_K) { // a warp copies 8 of k from 4 rows at a time, the next one the other 8
            const int x = thread / 64 * 4 + thread % 32 / 8;
            k = thread / 32 % 2 * 8 + thread % 8;
            to = shared_address(tile) + (k * width + x) * 4;
            from = matrix + (first + x) * stride + k;
            left = (int)smaller<int64_t>(SIZE, size - first) - x;
        } else if (vectors) {
            const int x = thread % (SIZE / 4) * 4;
            k = thread / (SIZE / 4);
            to = shared_address(tile) + (k * width + x) * 4;
            from = matrix + k * stride + first + x;
            left = (int)smaller<int64_t>(SIZE, size - first) - x;
        } else {
            const int x = thread % SIZE;
            k = thread / SIZE;
            to = shared_address(tile) + (k * width + x) * 4;
            from = matrix + k * stride + first + x;
            left = (int)smaller<int64_t>(SIZE, size - first) - x;
        }
    }

    // Rows k0 .. k0 + depth - 1, of `size`, into the stage at an offset in bytes; k0 grows by depth from call to call.
    VB_DEVICE void run(unsigned offset, int64_t k0, int64_t size) {
        const unsigned at = to + offset;
        if (BY_K) {
            constexpr int apart = THREADS / depth;
            const bool inside = k0 + k < size;
#pragma unroll
            for (int i = 0; i < SIZE / apart; i++)
                copy_async_word(at + i * apart * 4, from + i * apart * stride, inside && i * apart < left);
            from += depth;
        } else if (vectors) {
            constexpr int apart = THREADS / (SIZE / 4);
            const int bytes = larger(0, smaller(16, left * 4));
#pragma unroll
            for (int i = 0; i < depth; i += apart)
                if (apart <= depth || k < depth)
                    copy_async_part(at + i * width * 4, bytes ? from + i * stride : from,
                                    k0 + k + i < size ? bytes : 0);
            from += depth * stride;
        } else {
            constexpr int apart = larger(1, THREADS / SIZE), across = larger(1, SIZE / THREADS);
#pragma unroll
            for (int i = 0; i < depth; i += apart)
#pragma unroll
                for (int j = 0; j < across; j++)
                    copy_async_word(at + (i * width + j * THREADS) * 4, from + i * stride + j * THREADS,
                                    k0 + k + i < size && j * THREADS < left);
            from += depth * stride;
        }
    }
};

template <int BM, int BN, int TM, int TN, int BLOCKS_PER_SM, bool A_T, bool B_T>
__global__ void __launch_bounds__(BM *BN / (TM * TN), BLOCKS_PER_SM)
    matmul_f32_kernel(MatMulProblem<float> p, KParts parts) {
#if __CUDA_ARCH__ >= 800
    constexpr int threads = BM * BN / (TM * TN), warps_n = BN / (8 * TN);
    extern __shared__ float4 shared[];
    float *const tiles = reinterpret_cast<float *>(shared);
    p.select();
    if (BM <= 64) select_part<A_T, B_T>(p, parts, depth);
    wait_for_previous_kernel();
    release_next_kernel();
    const TileOrder tile = tile_of_block(ceil_div<int64_t>(p.m, BM), ceil_div<int64_t>(p.n, BN));
    const int64_t m0 = tile.row * BM, n0 = tile.col * BN;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    // First row and column of the thread's first piece; the next lie 16 rows and 32 columns on.
    const int row = warp / warps_n * 4 * TM + lane / 8 * 4, col = warp % warps_n * 8 * TN + lane % 8 * 4;

    TileCopy<!A_T, BM, threads> a_copy(tiles, p.a, p.a_stride, m0, p.m, p.a_vectors);
    TileCopy<B_T, BN, threads> b_copy(tiles + depth * (BM + 4), p.b, p.b_stride, n0, p.n, p.b_vectors);
    const auto copy_stage = [&](int stage, int64_t k0) {
        const unsigned offset = unsigned(stage) * (stage_floats<BM, BN>() * 4);
        a_copy.run(offset, k0, p.k);
        b_copy.run(offset, k0, p.k);
    };
    for (int i = 0; i < stages - 1; i++) {
        if (i * depth < p.k) copy_stage(i, i * depth);
        copy_async_commit();
    }
    float x[2][TM], y[2][TN];
    const float *at = tiles; // of the stage in use
    const auto load = [&](int buffer, int d) {
#pragma unroll
        for (int i = 0; i < TM; i += 4)
            *reinterpret_cast<float4 *>(x[buffer] + i) =
                *reinterpret_cast<const float4 *>(at + d * (BM + 4) + row + i * 4);
#pragma unroll
        for (int j = 0; j < TN; j += 4)
            *reinterpret_cast<float4 *>(y[buffer] + j) =
                *reinterpret_cast<const float4 *>(at + depth * (BM + 4) + d * (BN + 4) + col + j * 8);
    };
    copy_async_wait<stages - 2>();
    __syncthreads();
    load(0, 0);
    __align__(16) float sum[TM][TN] = {};
    int stage = 0;
    for (int64_t k0 = 0; k0 < p.k; k0 += depth) {
#pragma unroll
        for (int d = 0; d < depth; d++) {
            if (d == depth - 1) { // the next stage has come, and all have left this one, before the next is read from
                copy_async_wait<stages - 2>();
                __syncthreads();
                stage = stage == stages - 1 ? 0 : stage + 1;
                at = tiles + stage * stage_floats<BM, BN>();
            }
            load((d + 1) % 2, (d + 1) % depth);
            if (d == 0) {
                const int64_t next = k0 + (stages - 1) * depth;
                if (next < p.k) copy_stage(stage == 0 ? stages - 1 : stage - 1, next);
                copy_async_commit();
            }
#pragma unroll
            for (int i = 0; i < TM; i++)
#pragma unroll
                for (int j = 0; j < TN; j++) sum[i][j] += x[d % 2][i] * y[d % 2][j];
        }
    }
    if (BM <= 64) {
        if (parts.count > 1) {
#pragma unroll
            for (int i = 0; i < TM; i++) {
                const int64_t r = m0 + row + i / 4 * 16 + i % 4;
                if (r >= p.m) continue;
#pragma unroll
                for (int j = 0; j < TN; j += 4) {
                    const int64_t q = n0 + col + j * 8;
                    if (q < p.n) *(float4 *)(parts.at(p.m, r) + q) = *(const float4 *)&sum[i][j];
                }
            }
            return;
        }
    }
#pragma unroll
    for (int i = 0; i < TM; i++) {
        const int64_t r = m0 + row + i / 4 * 16 + i % 4;
        if (r >= p.m) continue;
        float *const c = p.c + r * p.c_stride;
#pragma unroll
        for (int j = 0; j < TN; j += 4) {
            const int64_t q = n0 + col + j * 8;
            if (p.c_vectors && q + 4 <= p.n) {
                *reinterpret_cast<float4 *>(c + q) =
                    make_float4(sum[i][j], sum[i][j + 1], sum[i][j + 2], sum[i][j + 3]);
            } else {
#pragma unroll
                for (int e = 0; e < 4; e++)
                    if (q + e < p.n) c[q + e] = sum[i][j + e];
            }
        }
    }
#endif
}

// ---- turning an operand --------------------------------------------------------------------------------------------

constexpr int turn_side = MATMUL_TURN_SIDE, turn_threads = 256;

// out[columns][rows] of in[rows][columns], matrix by matrix; rows of out are `out_stride` apart.
__global__ void __launch_bounds__(turn_threads) turn_kernel(float *out, const float *in, int64_t rows, int64_t columns,
                                                            int64_t stride, int64_t batch_stride, int64_t out_stride) {
    __shared__ float tile[turn_side][turn_side + 1];
    wait_for_previous_kernel();
    release_next_kernel();
    in += blockIdx.z * batch_stride, out += blockIdx.z * columns * out_stride;
    const int64_t row0 = (int64_t)blockIdx.y * turn_side, column0 = (int64_t)blockIdx.x * turn_side;
    const int x = threadIdx.x % turn_side, y = threadIdx.x / turn_side;
#pragma unroll
    for (int i = y; i < turn_side; i += turn_threads / turn_side)
        if (row0 + i < rows && column0 + x < columns) tile[i][x] = in[(row0 + i) * stride + column0 + x];
    __syncthreads();
#pragma unroll
    for (int i = y; i < turn_side; i += turn_threads / turn_side)
        if (column0 + i < columns && row0 + x < rows) out[(column0 + i) * out_stride + row0 + x] = tile[x][i];
}

// Where both operands run along k, the smaller operand is turned first, for 8 bytes an element of it.
// Copying both by words costs a seventh of the product (docs/experiments/2026-11-22-gemm.md).
vb_status turn_smaller(vb_matmul_args &x, vb_stream *stream) {
    const bool of_b = x.m >= x.n;
    const int64_t rows = of_b ? x.n : x.m, stride = (rows + 3) / 4 * 4,
                  shared = of_b ? x.b_batch_stride : x.a_batch_stride;
    const int64_t matrices = shared == 0 ? 1 : x.batch;
    float *turned;
    VB_TRY(workspace((void **)&turned, matrices * x.k * stride * (int64_t)sizeof(float), stream));
    const dim3 grid((unsigned)ceil_div<int64_t>(x.k, turn_side), (unsigned)ceil_div<int64_t>(rows, turn_side),
                    (unsigned)matrices);
    VB_TRY(launch_overlapped(stream, grid, turn_threads, 0, turn_kernel, turned, (const float *)(of_b ? x.b : x.a),
                             rows, x.k, of_b ? x.b_stride : x.a_stride, shared, stride));
    (of_b ? x.b : x.a) = turned;
    (of_b ? x.b_stride : x.a_stride) = stride;
    (of_b ? x.b_batch_stride : x.a_batch_stride) = shared == 0 ? 0 : x.k * stride;
    (of_b ? x.b_transposed : x.a_transposed) = !of_b;
    return VB_OK;
}

template <int BM, int BN, int TM, int TN, int BLOCKS_PER_SM>
vb_status launch_f32(const vb_matmul_args &x, int count, vb_stream *stream) {
    KParts parts;
    VB_TRY(plan_k_parts(&parts, count, x, stream));
    VB_TRY(with_layouts(x, [&](auto a_t, auto b_t) {
        return for_batches<float>(x, BM, BN, [&](const MatMulProblem<float> &p, dim3 grid) {
            grid.z = (unsigned)parts.count;
            return launch_overlapped(
                stream, grid, BM * BN / (TM * TN), stages * stage_floats<BM, BN>() * 4,
                matmul_f32_kernel<BM, BN, TM, TN, BLOCKS_PER_SM, decltype(a_t)::value, decltype(b_t)::value>, p, parts);
        });
    }));
    return add_parts<float>(x, parts, PlainSum(), stream);
}

} // namespace

vb_status matmul_f32(const vb_matmul_args &args, vb_stream *stream) {
    vb_matmul_args x = args;
    bool shared_k = true; // sums of parts lie where a turned operand would
    if (matmul_f32_turns(&x)) {
        const vb_status status = turn_smaller(x, stream);
        if (status != VB_OK && status != VB_OUT_OF_MEMORY) return status; // without room both stay as they are
        shared_k = status != VB_OK;
    }
    const vb_gpu gpu = gpu_of(stream);
    const matmul_ksplit_plan plan = matmul_plan_of(MATMUL_F32, &x, &gpu);
    switch (plan.tile_m) {
    case 256: return launch_f32<256, 128, 16, 8, 1>(x, 1, stream);
    case 128: return launch_f32<128, 128, 16, 8, 2>(x, 1, stream);
    case 64: return launch_f32<64, 64, 8, 4, 3>(x, shared_k ? plan.parts : 1, stream);
    default: return launch_f32<32, 64, 4, 4, 3>(x, shared_k ? plan.parts : 1, stream);
    }
}

} // namespace vb
