// matmul_tf32.cu: C = A B for F32 on tensor cores, in any layout, strides and sizes. Operands are rounded to TF32 (11
// significant bits, float32's exponents), sums are float32. Capability 8.0; on Hopper matmul_sm90.cu is faster for
// large products.
//
//   grid     (ceil(m / 128) * ceil(n / 128) in bands (matmul.cuh), matrices)
//   block    8 warps, 2 x 4; a warp has 64 x 32 outputs, as 4 x 4 products of m16n8k8
//   shared   four stages of A and B, 16 along k, as they are stored: [128][16 + 4] where rows run along k, else
//            [16][128 + 8]; the padding puts the 8 x 4 elements of a fragment into different banks. 80 KiB at most
//   moves    about (1 / 128 + 1 / 128) m n k * 4 bytes from L2, 2 m n k FLOPs
//   bound    tensor cores, as far as mma.sync feeds Hopper's

#include "gemm/matmul.cuh"

namespace vb {
namespace {

constexpr int threads = 256;
constexpr int side = 128, depth = 16, stages = 4;

VB_DEVICE unsigned round_tf32(float x) {
    unsigned y = 0;
#if __CUDA_ARCH__ >= 800
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(y) : "f"(x));
#endif
    return y;
}

// c += a b (PTX ISA, "Matrix Fragments for mma.m16n8k8"). With g = lane / 4 and t = lane % 4:
//   a = {(g, t), (g+8, t), (g, t+4), (g+8, t+4)}, b = {(t, g), (t+4, g)}
//   c = {(g, 2t), (g, 2t+1), (g+8, 2t), (g+8, 2t+1)}
VB_DEVICE void mma_tf32(float (&c)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
#if __CUDA_ARCH__ >= 800
    asm volatile(
        "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#endif
}

// A tile of `depth` along k and `side` across, as it is stored: [side][depth] where BY_K, else [depth][side].
template <bool BY_K>
struct Tile {
    static constexpr int rows = BY_K ? side : depth, columns = BY_K ? depth : side, width = columns + (BY_K ? 4 : 8);
    static constexpr int floats = rows * width;
    // Where element (across, k) lies.
    static VB_DEVICE int place(int across, int k) { return BY_K ? across * width + k : k * width + across; }

    // Copies the tile at matrix[row][column] of a matrix of which left_rows rows and left_columns columns are left
    // there.
    static VB_DEVICE void copy(unsigned to, const float *matrix, int64_t stride, int64_t left_rows,
                               int64_t left_columns, bool vectors) {
        if (vectors) {
            constexpr int chunks = columns / 4, apart = threads / chunks;
            const int row = threadIdx.x / chunks, column = threadIdx.x % chunks * 4;
            const int64_t left = left_columns - column;
            const int bytes = left <= 0 ? 0 : (int)smaller<int64_t>(4, left) * 4;
#pragma unroll
            for (int i = row; i < rows; i += apart) {
                const bool inside = i < left_rows && bytes > 0;
                copy_async_part(to + (i * width + column) * 4, inside ? matrix + i * stride + column : matrix,
                                inside ? bytes : 0);
            }
        } else {
            constexpr int apart = threads / columns;
            const int row = threadIdx.x / columns, column = threadIdx.x % columns;
#pragma unroll 4
            for (int i = row; i < rows; i += apart) {
                const bool inside = i < left_rows && column < left_columns;
                copy_async_word(to + (i * width + column) * 4, inside ? matrix + i * stride + column : matrix, inside);
            }
        }
    }
};

template <bool A_T, bool B_T>
__global__ void __launch_bounds__(threads, 2) matmul_tf32_kernel(MatMulProblem<float> p) {
#if __CUDA_ARCH__ >= 800
    using A = Tile<!A_T>;
    using B = Tile<B_T>;
    constexpr int stage_floats = A::floats + B::floats;
    extern __shared__ float4 shared[];
    const float *const tiles = reinterpret_cast<const float *>(shared);
    p.select();
    wait_for_previous_kernel();
    release_next_kernel();
    const TileOrder tile = tile_of_block(ceil_div<int64_t>(p.m, side), ceil_div<int64_t>(p.n, side));
    const int64_t m0 = tile.row * side, n0 = tile.col * side;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    const int warp_m = warp / 4 * 64, warp_n = warp % 4 * 32;
    const auto copy_stage = [&](int stage, int64_t k0) {
        const unsigned to = shared_address(shared) + unsigned(stage) * (stage_floats * 4);
        if (A_T) A::copy(to, p.a + k0 * p.a_stride + m0, p.a_stride, p.k - k0, p.m - m0, p.a_vectors);
        else A::copy(to, p.a + m0 * p.a_stride + k0, p.a_stride, p.m - m0, p.k - k0, p.a_vectors);
        if (B_T) B::copy(to + A::floats * 4, p.b + n0 * p.b_stride + k0, p.b_stride, p.n - n0, p.k - k0, p.b_vectors);
        else B::copy(to + A::floats * 4, p.b + k0 * p.b_stride + n0, p.b_stride, p.k - k0, p.n - n0, p.b_vectors);
    };
    for (int i = 0; i < stages - 1; i++) {
        if (i * depth < p.k) copy_stage(i, i * depth);
        copy_async_commit();
    }
    float sum[4][4][4] = {};
    int stage = 0;
    for (int64_t k0 = 0; k0 < p.k; k0 += depth) {
        copy_async_wait<stages - 2>();
        __syncthreads();
        // The stage that all have left is the one before this.
        if (k0 + (stages - 1) * depth < p.k) copy_stage(stage == 0 ? stages - 1 : stage - 1, k0 + (stages - 1) * depth);
        copy_async_commit();
        const float *const a = tiles + stage * stage_floats, *const b = a + A::floats;
        stage = stage == stages - 1 ? 0 : stage + 1;
#pragma unroll
        for (int d = 0; d < depth; d += 8) {
            unsigned x[4][4], y[4][2];
#pragma unroll
            for (int r = 0; r < 4; r++)
#pragma unroll
                for (int e = 0; e < 4; e++)
                    x[r][e] = round_tf32(a[A::place(warp_m + r * 16 + g + e % 2 * 8, d + t + e / 2 * 4)]);
#pragma unroll
            for (int q = 0; q < 4; q++)
#pragma unroll
                for (int e = 0; e < 2; e++) y[q][e] = round_tf32(b[B::place(warp_n + q * 8 + g, d + t + e * 4)]);
#pragma unroll
            for (int r = 0; r < 4; r++)
#pragma unroll
                for (int q = 0; q < 4; q++) mma_tf32(sum[r][q], x[r], y[q]);
        }
    }
#pragma unroll
    for (int r = 0; r < 4; r++)
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const int64_t row = m0 + warp_m + r * 16 + g + 8 * h;
            if (row >= p.m) continue;
            float *const c = p.c + row * p.c_stride;
#pragma unroll
            for (int q = 0; q < 4; q++) {
                const int64_t col = n0 + warp_n + q * 8 + t * 2;
                if (p.c_vectors && col + 2 <= p.n) {
                    *reinterpret_cast<float2 *>(c + col) = make_float2(sum[r][q][2 * h], sum[r][q][2 * h + 1]);
                } else {
                    if (col < p.n) c[col] = sum[r][q][2 * h];
                    if (col + 1 < p.n) c[col + 1] = sum[r][q][2 * h + 1];
                }
            }
        }
#endif
}

} // namespace

vb_status matmul_tf32(const vb_matmul_args &x, vb_stream *stream) {
    return with_layouts(x, [&](auto a_t, auto b_t) {
        constexpr bool A_T = decltype(a_t)::value, B_T = decltype(b_t)::value;
        return for_batches<float>(x, side, side, [&](const MatMulProblem<float> &p, dim3 grid) {
            return launch_overlapped(stream, grid, threads, stages * (Tile<!A_T>::floats + Tile<B_T>::floats) * 4,
                                     matmul_tf32_kernel<A_T, B_T>, p);
        });
    });
}

} // namespace vb
