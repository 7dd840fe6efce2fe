// fused_update_tiled.cu: out = add + scale * ((x V) * codes) U^T for F16 and BF16 of many rows and more than 32 ranks,
// on tensor cores fed from shared memory (vb_fused_update_args).
//
//   grid     (blocks of ROWS rows, shares of the columns); a share computes x V again
//   block    8 warps, ROWS / 32 of them along the rows; the warps along the other side share the ranks, then 128
//            columns
//   shared   three stages of x [ROWS][64] and V [64][RANKS]; then, in their place, x V in 16 bits [ROWS][RANKS] and
//            four stages of U [128][64], all swizzled: 72 to 144 KiB
//   moves    x, out and add once a share; V and U once for each block of rows, from L2
//   flops    2 m r (k + n)
//   bound    tensor cores, as far as mma.sync feeds Hopper's, or memory

#include "adapter/launchers.cuh"
#include "arch/mma.cuh"
#include "arch/sm90.cuh"

namespace vb {
namespace {

constexpr int threads = 256, depth = 64, columns = 128;
constexpr int stages = ADAPTER_TILED_STAGES, stages_of_u = ADAPTER_TILED_STAGES_OF_U, u_bytes = columns * depth * 2;

template <class T>
struct TiledProblem {
    T *out;
    const T *add, *x, *codes, *v, *u;
    int m, k, n, r;
    int64_t codes_stride;
    float scale;
};

// Copies a tile of TALL rows of WIDE elements, swizzled; zeros where there is no row or column. place(row) is where it
// lies.
template <int TALL, int WIDE, class T, class Place>
VB_DEVICE void copy_tile(unsigned to, const T *from, int64_t stride, int rows, int cols, Place place) {
    constexpr int chunks = WIDE / 8;
#pragma unroll
    for (int i = 0; i < TALL * chunks / threads; i++) {
        const int e = threadIdx.x + i * threads, row = e / chunks, chunk = e % chunks;
        const bool valid = row < rows && chunk * 8 < cols;
        copy_async(to + swizzled(place(row), chunk, chunks), valid ? from + row * stride + chunk * 8 : from, valid);
    }
}

struct AsItIs {
    VB_DEVICE int operator()(int row) const { return row; }
};
// A lane has neighbouring columns of the result from rows of U that lie 8 apart among 32.
struct Spread {
    VB_DEVICE int operator()(int row) const { return row & ~31 | (row & 6) << 2 | (row & 24) >> 2 | (row & 1); }
};

// Code for Hopper, whose chooser takes fused_update_sm90.cu, leaves it out.
template <class T, int ROWS, int RANKS, bool V_TRANSPOSED>
__global__ void __launch_bounds__(threads, RANKS <= 64 ? 2 : 1) fused_update_tiled_kernel(TiledProblem<T> p) {
#if __CUDA_ARCH__ >= 800 && !defined(VB_SM90A)
    extern __shared__ __align__(1024) uint4 shared[];
    constexpr int warps_m = ROWS / 32, warps_n = 8 / warps_m;
    constexpr int x_bytes = ROWS * depth * 2, stage_bytes = x_bytes + depth * RANKS * 2;
    constexpr int own_ranks = RANKS / warps_n, own_columns = columns / warps_n;
    constexpr int v_chunks = V_TRANSPOSED ? 8 : RANKS / 8, h_chunks = RANKS / 8;
    wait_for_previous_kernel();
    release_next_kernel();
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, c = lane % 4;
    const int warp_m = warp / warps_n * 32, row0 = (int)blockIdx.x * ROWS;
    const int eight = lane % 8, second = lane / 8 % 2, third = lane / 16; // see matmul_mma.cu
    const unsigned base = shared_address(shared);

    const auto copy_stage = [&](int step) {
        const unsigned to = base + step % stages * stage_bytes;
        const int k = step * depth;
        copy_tile<ROWS, depth>(to, p.x + (int64_t)row0 * p.k + k, p.k, p.m - row0, p.k - k, AsItIs());
        if (V_TRANSPOSED) copy_tile<RANKS, depth>(to + x_bytes, p.v + k, p.k, p.r, p.k - k, AsItIs());
        else copy_tile<depth, RANKS>(to + x_bytes, p.v + (int64_t)k * p.r, p.r, p.k - k, p.r, AsItIs());
    };
    const int steps = ceil_div(p.k, depth);
    for (int i = 0; i < stages - 1; i++) {
        if (i < steps) copy_stage(i);
        copy_async_commit();
    }
    const int warp_rank = warp % warps_n * own_ranks;
    const int a_at = swizzled(warp_m + eight + second * 8, third, 8);
    const int v_at = x_bytes + (V_TRANSPOSED ? swizzled(warp_rank + eight + third * 8, second, 8)
                                             : swizzled(eight + second * 8, warp_rank / 8 + third, v_chunks));
    float h[2][own_ranks / 8][4] = {};
    for (int step = 0; step < steps; step++) {
        copy_async_wait<stages - 2>();
        __syncthreads();
        if (step + stages - 1 < steps) copy_stage(step + stages - 1);
        copy_async_commit();
        const unsigned stage = base + step % stages * stage_bytes;
#pragma unroll
        for (int i = 0; i < depth / 16; i++) {
            unsigned x[2][4];
#pragma unroll
            for (int half = 0; half < 2; half++) load_matrices(x[half], ((stage + a_at) ^ 32 * i) + half * 16 * 128);
#pragma unroll
            for (int q = 0; q < own_ranks / 16; q++) {
                unsigned y[4];
                if (V_TRANSPOSED) load_matrices(y, ((stage + v_at) ^ 32 * i) + q * 16 * 128);
                else load_matrices_transposed(y, ((stage + v_at) ^ 32 * q) + i * 16 * v_chunks * 16);
#pragma unroll
                for (int half = 0; half < 2; half++) {
                    mma<T>(h[half][2 * q], x[half], y[0], y[1]);
                    mma<T>(h[half][2 * q + 1], x[half], y[2], y[3]);
                }
            }
        }
    }
    copy_async_wait<0>();
    __syncthreads(); // the stages are free

    const unsigned u_base = base + ROWS * RANKS * 2;
    const int rank_steps = ceil_div(p.r, depth), tiles = ceil_div(p.n, columns);
    const int first_tile = (int)blockIdx.y, tiles_apart = (int)gridDim.y;
    const int work = first_tile < tiles ? ceil_div(tiles - first_tile, tiles_apart) * rank_steps : 0;
    const auto copy_u = [&](int step) {
        const int n = (first_tile + step / rank_steps * tiles_apart) * columns, rank = step % rank_steps * depth;
        copy_tile<columns, depth>(u_base + step % stages_of_u * u_bytes, p.u + (int64_t)n * p.r + rank, p.r, p.n - n,
                                  p.r - rank, Spread());
    };
    for (int i = 0; i < stages_of_u - 1; i++) {
        if (i < work) copy_u(i);
        copy_async_commit();
    }
    char *const kept = reinterpret_cast<char *>(shared);
#pragma unroll
    for (int half = 0; half < 2; half++)
#pragma unroll
        for (int top = 0; top < 2; top++) {
            const int local = warp_m + half * 16 + top * 8 + g, row = row0 + local;
#pragma unroll
            for (int t = 0; t < own_ranks / 8; t++) {
                const int rank = warp_rank + 8 * t + 2 * c;
                float low = h[half][t][2 * top], high = h[half][t][2 * top + 1];
                if (p.codes && row < p.m && rank < p.r) {
                    const Vec<T, 2> codes = *reinterpret_cast<const Vec<T, 2> *>(p.codes + row * p.codes_stride + rank);
                    const float first = to_float(codes.at[0]), other = to_float(codes.at[1]);
                    low = first == 0.0f ? 0.0f : low * first; // 0: whatever x V is
                    high = other == 0.0f ? 0.0f : high * other;
                }
                char *const at = kept + swizzled(local, rank / 8, h_chunks) + rank % 8 * 2;
                *reinterpret_cast<unsigned *>(at) = pack<T>(low, high);
            }
        }

    const int warp_n = warp % warps_n * own_columns;
    const int h_at = swizzled(warp_m + eight + second * 8, third, h_chunks);
    const int u_at = swizzled(warp_n + eight + third * 8, second, 8);
    float sum[2][own_columns / 8][4];
    for (int step = 0; step < work; step++) {
        copy_async_wait<stages_of_u - 2>();
        __syncthreads();
        if (step + stages_of_u - 1 < work) copy_u(step + stages_of_u - 1);
        copy_async_commit();
        const unsigned stage = u_base + step % stages_of_u * u_bytes;
        const int rank_step = step % rank_steps;
        if (rank_step == 0) {
#pragma unroll
            for (int half = 0; half < 2; half++)
#pragma unroll
                for (int t = 0; t < own_columns / 8; t++)
#pragma unroll
                    for (int e = 0; e < 4; e++) sum[half][t][e] = 0.0f;
        }
#pragma unroll
        for (int i = 0; i < depth / 16; i++) {
            unsigned x[2][4];
#pragma unroll
            for (int half = 0; half < 2; half++)
                load_matrices(x[half], ((base + h_at) ^ 32 * i) + rank_step * 128 + half * 16 * h_chunks * 16);
#pragma unroll
            for (int q = 0; q < own_columns / 16; q++) {
                unsigned y[4];
                load_matrices(y, ((stage + u_at) ^ 32 * i) + q * 16 * 128);
#pragma unroll
                for (int half = 0; half < 2; half++) {
                    mma<T>(sum[half][2 * q], x[half], y[0], y[1]);
                    mma<T>(sum[half][2 * q + 1], x[half], y[2], y[3]);
                }
            }
        }
        if (rank_step != rank_steps - 1) continue;
        // Of 32 columns a lane has 8 side by side: two of each of four tiles.
        const int n0 = (first_tile + step / rank_steps * tiles_apart) * columns + warp_n + 8 * c;
#pragma unroll
        for (int half = 0; half < 2; half++)
#pragma unroll
            for (int top = 0; top < 2; top++) {
                const int row = row0 + warp_m + half * 16 + top * 8 + g;
#pragma unroll
                for (int run = 0; run < own_columns / 32; run++) {
                    const int n = n0 + 32 * run;
                    if (row >= p.m || n >= p.n) continue;
                    const int64_t at = (int64_t)row * p.n + n;
                    Vec<T, 8> z = {};
                    if (p.add) z = *reinterpret_cast<const Vec<T, 8> *>(p.add + at);
#pragma unroll
                    for (int e = 0; e < 8; e++) {
                        const float product = sum[half][4 * run + e / 2][2 * top + e % 2] * p.scale;
                        z.at[e] = from_float<T>(p.add ? to_float(z.at[e]) + product : product);
                    }
                    *reinterpret_cast<Vec<T, 8> *>(p.out + at) = z;
                }
            }
    }
#else
    __trap();
#endif
}

template <class T, int ROWS, int RANKS, bool V_TRANSPOSED>
vb_status launch_shape(const TiledProblem<T> &p, const adapter_plan &plan, vb_stream *stream) {
    return launch_overlapped(stream, dim3((unsigned)plan.row_blocks, (unsigned)plan.column_blocks), threads,
                             adapter_tiled_bytes(ROWS, RANKS),
                             fused_update_tiled_kernel<T, ROWS, RANKS, V_TRANSPOSED>, p);
}

template <class T, bool V_TRANSPOSED>
vb_status launch_tiled(const vb_fused_update_args &a, const adapter_plan &plan, vb_stream *stream) {
    TiledProblem<T> p;
    p.out = (T *)a.out, p.add = (const T *)a.add, p.x = (const T *)a.x, p.codes = (const T *)a.codes;
    p.v = (const T *)a.v, p.u = (const T *)a.u;
    p.m = (int)a.m, p.k = (int)a.k, p.n = (int)a.n, p.r = (int)a.r, p.codes_stride = a.codes_stride, p.scale = a.scale;
    if (plan.rank_tiles == 8)
        return plan.row_tiles == 4 ? launch_shape<T, 64, 64, V_TRANSPOSED>(p, plan, stream)
                                   : launch_shape<T, 128, 64, V_TRANSPOSED>(p, plan, stream);
    return plan.rank_tiles == 16 ? launch_shape<T, 128, 128, V_TRANSPOSED>(p, plan, stream)
                                 : launch_shape<T, 128, 256, V_TRANSPOSED>(p, plan, stream);
}

} // namespace

vb_status fused_update_tiled(const vb_fused_update_args &a, const adapter_plan &plan, vb_stream *stream) {
    if (a.type == VB_F16)
        return a.v_transposed ? launch_tiled<half, true>(a, plan, stream) : launch_tiled<half, false>(a, plan, stream);
    return a.v_transposed ? launch_tiled<bf16, true>(a, plan, stream) : launch_tiled<bf16, false>(a, plan, stream);
}

} // namespace vb
