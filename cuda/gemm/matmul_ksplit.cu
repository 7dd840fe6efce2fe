// matmul_ksplit.cu: C = A B for F16 and BF16 on tensor cores, accumulated in float32: any layout, strides and
// alignment, and blocks that share the k of a tile where there are few tiles.
//
//   grid     (ceil(m / 64) * ceil(n / 64) in bands (matmul.cuh), matrices, blocks that share k)
//   block    4 warps, 2 x 2; a warp has 32 x 32 outputs, as 2 x 4 products of m16n8k16
//   shared   two stages of A [64][32] and B [32][64], or as they are stored if transposed, through registers by pairs
//            of elements; then C [64][64] in float32, whose rows are written whole: 20 KiB
//   moves    about (1 / 64 + 1 / 64) m n k * 2 bytes from L2, 2 m n k FLOPs; 8 bytes an output and block that shares k
//   bound    loads of single elements: a step takes 2.4 us with pairs, 5.2 without, four blocks a multiprocessor
//   measured docs/experiments/2026-11-22-shapes.md

#include "arch/mma.cuh"
#include "gemm/matmul.cuh"

namespace vb {
namespace {

constexpr int side = MATMUL_KSPLIT_SIDE, depth = MATMUL_KSPLIT_DEPTH, threads = 128;
constexpr int result_width = side + 4;

// A tile of `depth` along k and `side` across on its way through registers, as it is stored: [side][depth] where BY_K,
// else [depth][side]. A thread has eight pairs of neighbours of a row.
template <class T, bool BY_K>
struct TileLoad {
    // of a row; rows of a thread's pairs
    static constexpr int pairs = (BY_K ? depth : side) / 2, apart = threads / pairs;
    static constexpr int width = pairs * 4 + 16;                                     // bytes of a row in shared memory
    static constexpr int bytes = (BY_K ? side : depth) * width, count = side * depth / 2 / threads;
    const unsigned short *from;
    int64_t step; // elements between a thread's rows
    int64_t advance;
    int row, column;
    bool whole; // pairs are aligned to 4 bytes
    unsigned next[count];

    VB_DEVICE TileLoad(const T *matrix, int64_t stride, int64_t first, bool whole)
        : step(apart * stride), advance(BY_K ? depth : depth * stride), row(threadIdx.x / pairs),
          column(threadIdx.x % pairs * 2), whole(whole) {
        from =
            (const unsigned short *)matrix + (BY_K ? (first + row) * stride + column : row * stride + first + column);
    }
    // The next tile; what is left of k and of the other side, from the tile's corner on.
    VB_DEVICE void load(int64_t left_k, int64_t left_side) {
        const int rows = (int)smaller<int64_t>(BY_K ? left_side : left_k, side) - row;
        const int left = (int)smaller<int64_t>(BY_K ? left_k : left_side, side) - column;
#pragma unroll
        for (int i = 0; i < count; i++) {
            const unsigned short *const at = from + i * step;
            const bool inside = i * apart < rows;
            if (whole && left > 1) {
                next[i] = inside ? *(const unsigned *)at : 0;
            } else {
                const unsigned low = inside && left > 0 ? at[0] : 0, high = inside && left > 1 ? at[1] : 0;
                next[i] = low | high << 16;
            }
        }
        from += advance;
    }
    VB_DEVICE void store(char *tile) const {
#pragma unroll
        for (int i = 0; i < count; i++) *(unsigned *)(tile + (row + i * apart) * width + column * 2) = next[i];
    }
};

template <class T, bool A_T, bool B_T>
__global__ void __launch_bounds__(threads, 4)
    matmul_ksplit_kernel(MatMulProblem<T> p, KParts parts, bool a_whole, bool b_whole, bool c_whole) {
#if __CUDA_ARCH__ >= 800
    using LoadA = TileLoad<T, !A_T>;
    using LoadB = TileLoad<T, B_T>;
    constexpr int stage_bytes = LoadA::bytes + LoadB::bytes, result_bytes = side * result_width * 4;
    __shared__ __align__(16) char shared[2 * stage_bytes > result_bytes ? 2 * stage_bytes : result_bytes];
    __shared__ unsigned flag;
    p.select();
    select_part<A_T, B_T>(p, parts, depth);
    wait_for_previous_kernel();
    release_next_kernel();
    const TileOrder tile = tile_of_block(ceil_div<int64_t>(p.m, side), ceil_div<int64_t>(p.n, side));
    const int64_t m0 = tile.row * side, n0 = tile.col * side;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int warp_m = warp / 2 * 32, warp_n = warp % 2 * 32;
    LoadA a(p.a, p.a_stride, m0, a_whole);
    LoadB b(p.b, p.b_stride, n0, b_whole);
    const auto load = [&](int64_t k) { a.load(p.k - k, p.m - m0), b.load(p.k - k, p.n - n0); };
    const auto store = [&](int stage) {
        a.store(shared + stage * stage_bytes), b.store(shared + stage * stage_bytes + LoadA::bytes);
    };
    // The lane's bits that choose among four 8x8 matrices: the next 8 rows of a fragment, the next 8 of k.
    const int eight = lane % 8, second = lane / 8 % 2, third = lane / 16;
    const unsigned base = shared_address(shared);
    const unsigned a_at = base + (A_T ? (eight + third * 8) * LoadA::width + (warp_m + second * 8) * 2
                                      : (warp_m + eight + second * 8) * LoadA::width + third * 16);
    const unsigned b_at = base + LoadA::bytes + (B_T ? (warp_n + eight + third * 8) * LoadB::width + second * 16
                                                     : (eight + second * 8) * LoadB::width + (warp_n + third * 8) * 2);
    __align__(16) float sum[2][4][4] = {};
    if (p.k > 0) {
        load(0);
        store(0);
    }
    __syncthreads();
    int stage = 0;
    for (int64_t k = 0; k < p.k; k += depth) {
        const bool more = k + depth < p.k;
        if (more) load(k + depth);
#pragma unroll
        for (int i = 0; i < depth / 16; i++) {
            unsigned x[2][4], y[2][4];
#pragma unroll
            for (int r = 0; r < 2; r++) {
                const unsigned at = a_at + stage * stage_bytes;
                if (A_T) load_matrices_transposed(x[r], at + i * 16 * LoadA::width + r * 32);
                else load_matrices(x[r], at + i * 32 + r * 16 * LoadA::width);
            }
#pragma unroll
            for (int q = 0; q < 2; q++) {
                const unsigned at = b_at + stage * stage_bytes;
                if (B_T) load_matrices(y[q], at + i * 32 + q * 16 * LoadB::width);
                else load_matrices_transposed(y[q], at + i * 16 * LoadB::width + q * 32);
            }
#pragma unroll
            for (int r = 0; r < 2; r++)
#pragma unroll
                for (int q = 0; q < 4; q++) mma<T>(sum[r][q], x[r], y[q / 2][q % 2 * 2], y[q / 2][q % 2 * 2 + 1]);
        }
        stage ^= 1;
        if (more) store(stage);
        __syncthreads();
    }
    const int row = warp_m + lane / 4, column = warp_n + lane % 4 * 2; // of the thread's first two sums
    const auto inside = [&](int i) { return m0 + row + i / 4 * 16 < p.m && n0 + column + i % 4 * 8 < p.n; };
    if (!sum_parts(*(float4(*)[8])sum, parts, inside, &flag)) return;

    float(*const result)[result_width] = (float(*)[result_width])shared;
#pragma unroll
    for (int r = 0; r < 2; r++)
#pragma unroll
        for (int q = 0; q < 4; q++)
#pragma unroll
            for (int h = 0; h < 2; h++)
                *(float2 *)&result[row + r * 16 + h * 8][column + q * 8] =
                    make_float2(sum[r][q][2 * h], sum[r][q][2 * h + 1]);
    __syncthreads();
    const int rows = (int)smaller<int64_t>(side, p.m - m0), columns = (int)smaller<int64_t>(side, p.n - n0);
    for (int r = warp; r < rows; r += threads / 32) {
        T *const c = p.c + (m0 + r) * p.c_stride + n0;
        if (c_whole && 2 * lane + 1 < columns) {
            const float2 two = *(const float2 *)&result[r][2 * lane];
            *(unsigned *)(c + 2 * lane) = pack<T>(two.x, two.y);
        } else if (c_whole) {
            if (2 * lane < columns) c[2 * lane] = from_float<T>(result[r][2 * lane]);
        } else {
            if (lane < columns) c[lane] = from_float<T>(result[r][lane]);
            if (lane + 32 < columns) c[lane + 32] = from_float<T>(result[r][lane + 32]);
        }
    }
#endif
}

template <class T>
vb_status launch_ksplit(const vb_matmul_args &x, vb_stream *stream) {
    KParts parts;
    VB_TRY(
        plan_k_parts(&parts, matmul_ksplit(&x, multiprocessors(stream)), matmul_ksplit_tiles(&x), 8 * threads, stream));
    return with_layouts(x, [&](auto a_t, auto b_t) {
        return for_batches<T>(x, side, side, [&](const MatMulProblem<T> &p, dim3 grid) {
            grid.z = (unsigned)parts.count;
            return launch_overlapped(stream, grid, threads, 0,
                                     matmul_ksplit_kernel<T, decltype(a_t)::value, decltype(b_t)::value>, p, parts,
                                     matmul_pairs(x.a, x.a_stride, x.a_batch_stride),
                                     matmul_pairs(x.b, x.b_stride, x.b_batch_stride),
                                     matmul_pairs(x.c, x.c_stride, x.c_batch_stride));
        });
    });
}

} // namespace

vb_status matmul_ksplit(const vb_matmul_args &x, vb_stream *stream) {
    return x.type == VB_F16 ? launch_ksplit<half>(x, stream) : launch_ksplit<bf16>(x, stream);
}

} // namespace vb
