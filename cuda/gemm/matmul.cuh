// matmul.cuh: the parts common to the matrix product kernels. vb_matmul_args explains their sizes and strides.

#ifndef VB_CUDA_MATMUL_CUH
#define VB_CUDA_MATMUL_CUH

#include "arch/mma.cuh"
#include "arch/unaligned.cuh"
#include "gemm/choose.h"
#include "runtime/common.cuh"

namespace vb {

struct TileOrder {
    int64_t row, col;
};

// The tile of this block in a grid of rows * cols tiles, below 2^31: bands of 8 rows, down each column of the band.
// Blocks that run together then read few rows of A and few columns of B, which stay in L2.
VB_DEVICE TileOrder tile_of_block(int64_t rows, int64_t cols) {
    constexpr unsigned band = 8;
    const unsigned of_band = (unsigned)(smaller<int64_t>(band, rows) * cols), first = blockIdx.x / of_band * band;
    const unsigned height = smaller(band, (unsigned)rows - first), within = blockIdx.x - first * (unsigned)cols;
    if (height == band) return {first + within % band, within / band};
    return {first + within % height, within / height};
}

// The product that blocks with the same blockIdx.y compute.
template <class T>
struct MatMulProblem {
    T *c;
    const T *a, *b;
    int64_t m, k, n, a_stride, b_stride, c_stride, a_batch_stride, b_batch_stride, c_batch_stride;
    bool a_vectors, b_vectors, c_vectors;

    explicit MatMulProblem(const vb_matmul_args &x)
        : c((T *)x.c), a((const T *)x.a), b((const T *)x.b), m(x.m), k(x.k), n(x.n), a_stride(x.a_stride),
          b_stride(x.b_stride), c_stride(x.c_stride), a_batch_stride(x.a_batch_stride),
          b_batch_stride(x.b_batch_stride), c_batch_stride(x.c_batch_stride),
          a_vectors(matmul_vectors(x.a, x.type, x.a_stride, x.a_batch_stride)),
          b_vectors(matmul_vectors(x.b, x.type, x.b_stride, x.b_batch_stride)),
          c_vectors(matmul_vectors(x.c, x.type, x.c_stride, x.c_batch_stride)) {}

    VB_DEVICE void select() {
        a += blockIdx.y * a_batch_stride;
        b += blockIdx.y * b_batch_stride;
        c += blockIdx.y * c_batch_stride;
    }
};

// Calls launch(problem, grid) for all matrices of a batch, in as many launches as a grid's height makes necessary.
template <class T, class F>
vb_status for_batches(vb_matmul_args x, int64_t tile_m, int64_t tile_n, F launch) {
    constexpr int64_t most = 65535;
    const int64_t rows = ceil_div<int64_t>(x.m, tile_m), cols = ceil_div<int64_t>(x.n, tile_n);
    for (; x.batch > 0; x.batch -= most) {
        VB_TRY(launch(MatMulProblem<T>(x), dim3((unsigned)(rows * cols), (unsigned)smaller(x.batch, most))));
        x.a = (const T *)x.a + most * x.a_batch_stride;
        x.b = (const T *)x.b + most * x.b_batch_stride;
        x.c = (T *)x.c + most * x.c_batch_stride;
    }
    return VB_OK;
}

// Calls f(A_T, B_T) with the layouts as types: whether A is stored [k][m] and B [n][k].
template <bool VALUE>
struct Bool {
    static constexpr bool value = VALUE;
};
template <class F>
vb_status with_layouts(const vb_matmul_args &x, F f) {
    if (x.a_transposed) return x.b_transposed ? f(Bool<true>(), Bool<true>()) : f(Bool<true>(), Bool<false>());
    return x.b_transposed ? f(Bool<false>(), Bool<true>()) : f(Bool<false>(), Bool<false>());
}

// ---- blocks that share the k of a tile ------------------------------------------------------------------------------

// Where the sums of such blocks go: [part][matrix][m][row] floats, rows of whole vectors.
struct KParts {
    int count; // of a tile
    float *sums;
    int64_t row, part; // floats of a row, of a part

    // Row `r` of this block's part, of a matrix of m rows.
    VB_DEVICE float *at(int64_t m, int64_t r) const {
        return sums + blockIdx.z * part + (blockIdx.y * m + r) * row;
    }
};

// Of `count` parts, whose sums take that memory.
inline KParts describe_k_parts(int count, const vb_matmul_args &x, void *sums) {
    const int64_t row = ceil_div<int64_t>(x.n, 4) * 4;
    return {count, (float *)sums, row, x.batch * x.m * row};
}
inline int64_t k_parts_bytes(int count, const vb_matmul_args &x) {
    return count == 1 ? 0 : count * describe_k_parts(count, x, nullptr).part * (int64_t)sizeof(float);
}
// Memory for `count` parts: `sums`, or where that is null the stream's workspace. Without room for it the parts stay
// together.
inline vb_status plan_k_parts(KParts *parts, int count, const vb_matmul_args &x, vb_stream *stream,
                              void *sums = nullptr) {
    *parts = describe_k_parts(count, x, sums);
    if (count == 1 || sums) return VB_OK;
    const vb_status status = workspace((void **)&parts->sums, k_parts_bytes(count, x), stream);
    if (status == VB_OUT_OF_MEMORY) parts->count = 1;
    return status == VB_OUT_OF_MEMORY ? VB_OK : status;
}

// Narrows the product of a matrix to this block's part of k, whole steps of `depth`.
template <bool A_T, bool B_T, class T>
VB_DEVICE void select_part(MatMulProblem<T> &p, const KParts &parts, int depth) {
    if (parts.count == 1) return;
    const int64_t each = ceil_div<int64_t>(ceil_div<int64_t>(p.k, depth), parts.count) * depth,
                  first = blockIdx.z * each;
    p.a += A_T ? first * p.a_stride : first;
    p.b += B_T ? first : first * p.b_stride;
    p.k = larger<int64_t>(0, smaller(each, p.k - first));
}

// Stores a warp's fragments of mma.sync, of which `row` and `column` are this thread's first.
template <class T, int R, int Q>
VB_DEVICE void store_part(const KParts &parts, const MatMulProblem<T> &p, const float (&sum)[R][Q][4], int64_t row,
                          int64_t column) {
#pragma unroll
    for (int r = 0; r < R; r++)
#pragma unroll
        for (int h = 0; h < 2; h++) {
            if (row + r * 16 + h * 8 >= p.m) continue;
            float *const to = parts.at(p.m, row + r * 16 + h * 8) + column;
#pragma unroll
            for (int q = 0; q < Q; q++)
                if (column + q * 8 < parts.row)
                    *(float2 *)(to + q * 8) = make_float2(sum[r][q][2 * h], sum[r][q][2 * h + 1]);
        }
}

VB_DEVICE void place_two(float *to, float a, float b) { *(float2 *)to = make_float2(a, b); }
template <class T>
VB_DEVICE void place_two(T *to, float a, float b) {
    *(unsigned *)to = pack<T>(a, b);
}

// Puts a warp's fragments of mma.sync into a tile in shared memory, of floats or of 16 bits. `row` and `column` are
// this thread's first.
template <class T, int WIDTH, int R, int Q>
VB_DEVICE void place_sums(T (*tile)[WIDTH], const float (&sum)[R][Q][4], int row, int column) {
#pragma unroll
    for (int r = 0; r < R; r++)
#pragma unroll
        for (int q = 0; q < Q; q++)
#pragma unroll
            for (int h = 0; h < 2; h++)
                place_two(&tile[row + r * 16 + h * 8][column + q * 8], sum[r][q][2 * h], sum[r][q][2 * h + 1]);
}

constexpr int add_threads = 256;

// C = the parts, added in their order, an element a thread. With GROUPS, threads have a share of an element's parts
// each, and their sums are added in order.
// settle(sum, matrix, row, column) is the element.
template <class T, int GROUPS, class F>
__global__ void __launch_bounds__(add_threads) add_parts_kernel(const MatMulProblem<T> p, KParts parts, F settle) {
    constexpr int elements = add_threads / GROUPS;
    __shared__ float shares[GROUPS][elements];
    wait_for_previous_kernel();
    release_next_kernel();
    const int element = threadIdx.x % elements, group = threadIdx.x / elements;
    const int64_t i = (int64_t)blockIdx.x * elements + element;
    const int each = ceil_div(parts.count, GROUPS), end = smaller(parts.count, (group + 1) * each);
    float sum = 0.0f;
    if (i < parts.part)
#pragma unroll 8
        for (int part = group * each; part < end; part++) sum += __ldcg(parts.sums + part * parts.part + i);
    if (GROUPS > 1) {
        shares[group][element] = sum;
        __syncthreads();
        if (group > 0) return;
#pragma unroll
        for (int g = 1; g < GROUPS; g++) sum += shares[g][element];
    }
    const unsigned row = (unsigned)(i / parts.row), column = (unsigned)(i - row * parts.row);
    const unsigned matrix = row / (unsigned)p.m, r = row - matrix * (unsigned)p.m;
    if (i < parts.part && column < p.n)
        p.c[matrix * p.c_batch_stride + r * p.c_stride + column] = from_float<T>(settle(sum, matrix, r, column));
}

// Enqueues that addition. More elements than this fill a GPU by themselves: groups made 69 drawn products of more than
// eight parts 1.02 to 1.25 times as long on an H200, and were up to 1.08 times as fast for fewer elements.
constexpr int64_t add_most_in_groups = 32768;
template <class T, class F>
vb_status add_parts(const vb_matmul_args &x, const KParts &parts, F settle, vb_stream *stream) {
    if (parts.count == 1) return VB_OK;
    const bool many = parts.count > 8 && parts.part < add_most_in_groups;
    return launch_overlapped(stream, (unsigned)ceil_div<int64_t>(parts.part, many ? add_threads / 8 : add_threads),
                             add_threads, 0, many ? add_parts_kernel<T, 8, F> : add_parts_kernel<T, 1, F>,
                             MatMulProblem<T>(x), parts, settle);
}
struct PlainSum {
    VB_DEVICE float operator()(float sum, int64_t, int64_t, int64_t) const { return sum; }
};

// ---- kernels: each takes the products for which choose.h names it --------------------------------------------------

vb_status matmul_3xtf32(const vb_matmul_args &x, const float *bias,
                        vb_stream *stream); // adds bias[n] to each row, unless null
vb_status matmul_3xtf32_any(const vb_matmul_args &x, vb_stream *stream);
vb_status matmul_thin(const vb_matmul_args &x, vb_stream *stream);
vb_status matmul_short(const vb_matmul_args &x, vb_stream *stream);
vb_status matmul_skinny(const vb_matmul_args &x, vb_stream *stream);
vb_status matmul_ksplit(const vb_matmul_args &x, vb_stream *stream);
// `sums`: memory for the sums of blocks that share k, or null for the stream's workspace.
vb_status matmul_mma(const vb_matmul_args &x, vb_stream *stream, void *sums = nullptr);
// By a kernel for whole vectors, whose blocks share k by so many bytes of sums.
vb_status matmul_padded(const vb_matmul_args &x,
                        vb_status (*product)(const vb_matmul_args &, vb_stream *, void *sums),
                        int64_t sums_bytes, vb_stream *stream);
vb_status matmul_tf32(const vb_matmul_args &x, vb_stream *stream);
vb_status matmul_f32(const vb_matmul_args &x, vb_stream *stream);
vb_status matmul_simt(const vb_matmul_args &x, vb_stream *stream);
vb_status run_matmul(matmul_kernel kernel, const vb_matmul_args &x, vb_stream *stream);

// Chooses and runs; *kernel is the kernel that ran.
vb_status matmul(matmul_kernel *kernel, const vb_matmul_args &x, vb_stream *stream);

} // namespace vb
#endif
