// fused_update.cuh: out = add + scale * ((x V) * codes) U^T on tensor cores, x of F16, BF16, F32
// (vb_fused_update_args).
//
//   grid     (blocks of rows * cluster, shares of the columns). A block (split) or a warp (rows) has ROWS tiles of 16
//            rows
//   block    8 warps, or 4 where ROWS * RANKS > 8
//            split: warps take turns at steps of k, then at 32 columns. Sums of a cluster's warps meet in shared memory
//            rows:  each warp has rows of its own, and nothing is shared
//   shared   split: the sums of each warp, [16 ROWS][8 RANKS + 8] floats
//   moves    x, out and add once; V and U once for each block of rows, mostly from L2; x V stays in registers
//   flops    2 m r (k + n). F32 factors (x, V, U) are two TF32 parts each
//   bound    memory up to about 32 ranks; above, how fast fragments of V and U come from L1
//
// No operand passes through shared memory. A lane loads 16 bytes of x along k, which are parts of two products.
// The fragments of V and U follow the order of x. The instruction movmatrix turns fragments that lie across it.

#ifndef VB_CUDA_FUSED_UPDATE_CUH
#define VB_CUDA_FUSED_UPDATE_CUH

#include "adapter/choose.h"
#include "arch/cluster.cuh"
#include "arch/mma.cuh"
#include "arch/sm90.cuh"

namespace vb {
namespace {

template <class T, class W>
struct UpdateProblem {
    T *out;
    const T *add, *x, *codes;
    const W *v, *u;
    int m, k, n, r;
    int64_t codes_stride;
    float scale;
    bool v_transposed, u_transposed;
    bool rows; // a warp has rows of its own
    bool look; // at the codes first, for ranks that no row has
};

VB_DEVICE unsigned load_word(const void *at, bool valid) {
    return valid ? __ldg(static_cast<const unsigned *>(at)) : 0u;
}
VB_DEVICE uint4 load_words(const void *at, bool valid) {
    return valid ? __ldg(static_cast<const uint4 *>(at)) : make_uint4(0, 0, 0, 0);
}

// Asks for the line that an address lies in, ahead of its use.
VB_DEVICE void fetch_to_l2(const void *at, bool valid) {
    if (valid) asm volatile("prefetch.global.L2 [%0];" ::"l"(at));
}

// ---- 16-bit operands ------------------------------------------------------------------------------------------------
// m16n8k16. A step is 32 of k. Lane (g, c) holds x[g][8c..8c+7]. Word 2s + h of the lane is half h of product s.
// So element 8h + 2c + e of product s is k = 8c + 4s + 2h + e.

template <class T, class W>
struct Fragments {
    static constexpr int step = 32, tiles = 2; // rank tiles that a product of the second phase takes
    struct X {
        uint4 at[2]; // rows g, g + 8
    };
    struct V {
        unsigned at[2][2]; // [product][half]
    };
    struct H {
        unsigned at[4];
    };

    static VB_DEVICE uint4 load_x(const T *row, int k, bool valid) { return load_words(row + k, valid); }
    static VB_DEVICE V load_v(const UpdateProblem<T, W> &p, int k0, int rank0, bool present, int g, int c) {
        V v;
        if (p.v_transposed) {
            const int k = k0 + 8 * c, rank = rank0 + g;
            const uint4 words = load_words(p.v + (int64_t)rank * p.k + k, present && rank < p.r && k < p.k);
            v.at[0][0] = words.x, v.at[0][1] = words.y, v.at[1][0] = words.z, v.at[1][1] = words.w;
            return v;
        }
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const int k = k0 + g / 2 * 8 + 2 * i + g % 2, rank = rank0 + 2 * c;
            v.at[i / 2][i % 2] = transposed(load_word(p.v + (int64_t)k * p.r + rank, present && k < p.k && rank < p.r));
        }
        return v;
    }
    static VB_DEVICE void project(float (&sum)[4], const X &x, const V &v) {
        const unsigned first[4] = {x.at[0].x, x.at[1].x, x.at[0].y, x.at[1].y};
        const unsigned second[4] = {x.at[0].z, x.at[1].z, x.at[0].w, x.at[1].w};
        mma<T>(sum, first, v.at[0][0], v.at[0][1]);
        mma<T>(sum, second, v.at[1][0], v.at[1][1]);
    }

    template <int RANKS>
    static VB_DEVICE H make_h(const float (&sum)[RANKS][4], int tile) {
        H h = {{pack<T>(sum[tile][0], sum[tile][1]), pack<T>(sum[tile][2], sum[tile][3]), 0u, 0u}};
        if (RANKS > 1) {
            const int next = RANKS > 1 ? tile + 1 : tile;
            h.at[2] = pack<T>(sum[next][0], sum[next][1]), h.at[3] = pack<T>(sum[next][2], sum[next][3]);
        }
        return h;
    }
    // Adds 8 of the 32 columns from n0 on. Lane g has the fragment of column g / 2 * 8 + 2 * which + g % 2.
    struct U {
        unsigned at[2];
    };
    static VB_DEVICE U load_u(const UpdateProblem<T, W> &p, int n0, int which, int rank0, bool present, int g, int c) {
        U u;
#pragma unroll
        for (int half = 0; half < 2; half++) {
            if (p.u_transposed) {
                const int rank = rank0 + 8 * half + g, n = n0 + 8 * c + 2 * which;
                u.at[half] = transposed(load_word(p.u + (int64_t)rank * p.n + n, present && rank < p.r && n < p.n));
            } else {
                const int rank = rank0 + 8 * half + 2 * c, n = n0 + g / 2 * 8 + 2 * which + g % 2;
                u.at[half] = load_word(p.u + (int64_t)n * p.r + rank, present && rank < p.r && n < p.n);
            }
        }
        return u;
    }
    static VB_DEVICE void expand(float (&sum)[4], const H &h, const U &u) { mma<T>(sum, h.at, u.at[0], u.at[1]); }
};

// ---- F32 operands ---------------------------------------------------------------------------------------------------
// m16n8k8 of TF32. x is two parts; V and U are two parts too where they are F32. Three products are summed, the
// smallest first.
// A step is 16 of k. Lane (g, c) holds x[g][4c..4c+3]. Product s takes elements 2s and 2s + 1 as its k = c and c + 4.

VB_DEVICE unsigned to_tf32(float x) {
    unsigned bits = 0;
#if __CUDA_ARCH__ >= 800
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(x));
#endif
    return bits;
}
struct Split {
    unsigned high, low;
};
VB_DEVICE Split split(float x) {
    const unsigned high = to_tf32(x);
    return {high, to_tf32(x - __uint_as_float(high))};
}
VB_DEVICE void mma_tf32(float (&c)[4], unsigned a0, unsigned a1, unsigned a2, unsigned a3, unsigned b0, unsigned b1) {
#if __CUDA_ARCH__ >= 800
    asm volatile(
        "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
#endif
}
// WHOLE: b has no more than TF32's bits.
template <bool WHOLE>
VB_DEVICE void mma_split(float (&c)[4], float a0, float a1, float a2, float a3, float b0, float b1) {
    const Split x0 = split(a0), x1 = split(a1), x2 = split(a2), x3 = split(a3), y0 = split(b0), y1 = split(b1);
    mma_tf32(c, x0.low, x1.low, x2.low, x3.low, y0.high, y1.high);
    if (!WHOLE) mma_tf32(c, x0.high, x1.high, x2.high, x3.high, y0.low, y1.low);
    mma_tf32(c, x0.high, x1.high, x2.high, x3.high, y0.high, y1.high);
}

template <class W>
struct Fragments<float, W> {
    static constexpr int step = 16, tiles = 1;
    static constexpr bool whole = sizeof(W) == 2;
    struct X {
        uint4 at[2];
    };
    struct V {
        float at[4];
    };
    struct H {
        float at[4];
    };
    struct U {
        float at[2];
    };

    static VB_DEVICE uint4 load_x(const float *row, int k, bool valid) { return load_words(row + k, valid); }
    static VB_DEVICE V load_v(const UpdateProblem<float, W> &p, int k0, int rank0, bool present, int g, int c) {
        const int k = k0 + 4 * c, rank = rank0 + g;
        const bool valid = present && rank < p.r && k < p.k;
        V v = {};
        if (p.v_transposed) {
            Vec<W, 4> four = {};
            if (valid) four = *reinterpret_cast<const Vec<W, 4> *>(p.v + (int64_t)rank * p.k + k);
#pragma unroll
            for (int i = 0; i < 4; i++) v.at[i] = to_float(four.at[i]);
            return v;
        }
        const W *const from = p.v + (valid ? (int64_t)k * p.r + rank : 0);
        W four[4] = {};
#pragma unroll
        for (int i = 0; i < 4; i++)
            if (valid) four[i] = from[i * p.r];
#pragma unroll
        for (int i = 0; i < 4; i++) v.at[i] = to_float(four[i]);
        return v;
    }
    static VB_DEVICE void project(float (&sum)[4], const X &x, const V &v) {
        mma_split<whole>(sum, __uint_as_float(x.at[0].x), __uint_as_float(x.at[1].x), __uint_as_float(x.at[0].y),
                         __uint_as_float(x.at[1].y), v.at[0], v.at[1]);
        mma_split<whole>(sum, __uint_as_float(x.at[0].z), __uint_as_float(x.at[1].z), __uint_as_float(x.at[0].w),
                         __uint_as_float(x.at[1].w), v.at[2], v.at[3]);
    }

    // Rank 2c of a tile is k = c of the product, rank 2c + 1 is k = c + 4.
    template <int RANKS>
    static VB_DEVICE H make_h(const float (&sum)[RANKS][4], int tile) {
        return {{sum[tile][0], sum[tile][2], sum[tile][1], sum[tile][3]}};
    }
    static VB_DEVICE U load_u(const UpdateProblem<float, W> &p, int n0, int which, int rank0, bool present, int g,
                              int c) {
        const int rank = rank0 + 2 * c, n = n0 + g / 2 * 8 + 2 * which + g % 2;
        const bool valid = present && rank < p.r && n < p.n;
        Vec<W, 2> two = {};
        if (p.u_transposed) {
            const W *const from = p.u + (valid ? (int64_t)rank * p.n + n : 0);
            if (valid) two.at[0] = from[0], two.at[1] = from[p.n];
        } else if (valid) {
            two = *reinterpret_cast<const Vec<W, 2> *>(p.u + (int64_t)n * p.r + rank);
        }
        return {{to_float(two.at[0]), to_float(two.at[1])}};
    }
    static VB_DEVICE void expand(float (&sum)[4], const H &h, const U &u) {
        mma_split<whole>(sum, h.at[0], h.at[1], h.at[2], h.at[3], u.at[0], u.at[1]);
    }
};

// ---- the kernel -----------------------------------------------------------------------------------------------------

// The tiles of 8 ranks with a code other than 0 in any of these rows, a bit each. Every lane gets the result.
template <class T, class W>
VB_DEVICE unsigned tiles_with_codes(const UpdateProblem<T, W> &p, int row0, int rows, int lane) {
    if (!p.look) return ~0u;
    unsigned found = 0;
    const int last = p.codes_stride ? smaller(rows, p.m - row0) : 1;
    for (int i = 0; i < last; i++)
        for (int j = lane; j < p.r; j += 32)
            if (to_float(p.codes[(row0 + i) * p.codes_stride + j]) != 0.0f) found |= 1u << (j / 8);
#pragma unroll
    for (int offset = 16; offset > 0; offset /= 2) found |= __shfl_xor_sync(all_lanes, found, offset);
    return found;
}

// Replaces each warp's sums by the totals over all warps of the cluster.
template <int ROWS, int RANKS, int WARPS>
VB_DEVICE void meet(float (&sum)[ROWS][RANKS][4], float *shared, int warp, int lane) {
    constexpr int width = 8 * RANKS + (RANKS > 1 ? 8 : 0), size = 16 * ROWS * width, threads = 32 * WARPS;
    const int g = lane / 4, c = lane % 4;
    float *const mine = shared + warp * size + g * width + 2 * c;
#pragma unroll
    for (int i = 0; i < ROWS; i++)
#pragma unroll
        for (int t = 0; t < RANKS; t++)
#pragma unroll
            for (int half = 0; half < 2; half++)
                *reinterpret_cast<float2 *>(mine + (16 * i + 8 * half) * width + 8 * t) =
                    make_float2(sum[i][t][2 * half], sum[i][t][2 * half + 1]);
    __syncthreads();
    const int blocks = cluster_size();
    float *const total = blocks > 1 ? shared + size : shared;
    for (int e = threadIdx.x; e < size; e += threads) {
        float all = 0;
#pragma unroll
        for (int w = 0; w < WARPS; w++) all += shared[w * size + e];
        shared[e] = all;
    }
    if (blocks > 1) {
        cluster_arrive();
        cluster_wait();
        for (int e = threadIdx.x; e < size; e += threads) {
            float all = 0;
            for (int b = 0; b < blocks; b++) all += read_cluster(cluster_address(shared + e, b));
            total[e] = all;
        }
        cluster_arrive(); // and waits at the end: no block may leave while its sums are read
    }
    __syncthreads();
    const float *const from = total + g * width + 2 * c;
#pragma unroll
    for (int i = 0; i < ROWS; i++)
#pragma unroll
        for (int t = 0; t < RANKS; t++)
#pragma unroll
            for (int half = 0; half < 2; half++) {
                const float2 two = *reinterpret_cast<const float2 *>(from + (16 * i + 8 * half) * width + 8 * t);
                sum[i][t][2 * half] = two.x, sum[i][t][2 * half + 1] = two.y;
            }
}

// Code for Hopper leaves out more than 32 ranks of 16 bits and more than 16 of F32, which clusters compute there.
template <class T, class W, int ROWS, int RANKS>
__global__ void __launch_bounds__(ROWS *RANKS <= 8 ? 256 : 128,
                                  (sizeof(T) == 2 ? ROWS * RANKS <= 8 : ROWS == 1 && RANKS <= 2) ? 2 : 1)
    fused_update_tiles(UpdateProblem<T, W> p) {
#if __CUDA_ARCH__ >= 800
#ifdef VB_SM90A
    if (sizeof(T) == sizeof(W) && RANKS > (sizeof(T) == 2 ? 4 : 2)) return __trap();
#endif
    using F = Fragments<T, W>;
    constexpr int warps = ROWS * RANKS <= 8 ? 8 : 4, unroll = ROWS >= 4 ? 1 : RANKS > 8 ? 2 : 4 / ROWS;
    constexpr int products = (RANKS + F::tiles - 1) / F::tiles; // of the second phase
    extern __shared__ float shared[];
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, c = lane % 4;
    const int blocks = cluster_size(), block = (int)blockIdx.x / blocks;
    const int row0 = (p.rows ? block * warps + warp : block) * 16 * ROWS;
    const int worker = p.rows ? 0 : cluster_rank() * warps + warp, workers = p.rows ? 1 : blocks * warps;
    const int share = (int)blockIdx.y * workers + worker, shares = (int)gridDim.y * workers;
    { // the warp's first reads of V, and its late reads of U and the codes
        const int64_t k = (int64_t)worker * F::step, n = (int64_t)share * ADAPTER_COLUMNS;
        fetch_to_l2(p.v_transposed ? p.v + (int64_t)lane * p.k + k : p.v + (k + lane) * p.r,
                    p.v_transposed ? lane < p.r && k < p.k : k + lane < p.k);
        fetch_to_l2(p.u_transposed ? p.u + (int64_t)lane * p.n + n : p.u + (n + lane) * p.r,
                    p.u_transposed ? lane < p.r && n < p.n : n + lane < p.n);
        fetch_to_l2(p.codes + (row0 + lane) * p.codes_stride, p.codes && row0 + lane < p.m);
    }
    wait_for_previous_kernel();
    release_next_kernel();
    const unsigned present = tiles_with_codes(p, row0, 16 * ROWS, lane);
    // Where registers are left, codes and U of the first columns are fetched before the warps meet, and U of the next
    // columns before the results are stored.
    constexpr bool early = ROWS * RANKS <= 2;
    Vec<T, 2> code[ROWS][2][RANKS];
    const auto load_codes = [&] {
#pragma unroll
        for (int i = 0; i < ROWS; i++)
#pragma unroll
            for (int half = 0; half < 2; half++) {
                const int row = row0 + 16 * i + 8 * half + g;
                const T *const codes = p.codes + (row < p.m ? row : 0) * p.codes_stride;
#pragma unroll
                for (int t = 0; t < RANKS; t++)
                    if (8 * t + 2 * c < p.r)
                        code[i][half][t] = *reinterpret_cast<const Vec<T, 2> *>(codes + 8 * t + 2 * c);
            }
    };
    typename F::U u[early ? products : 1][4];
    const auto load_columns = [&](int64_t n0, int q) {
        constexpr unsigned both = F::tiles == 2 ? 3u : 1u;
#pragma unroll
        for (int which = 0; which < 4; which++)
            u[early ? q : 0][which] =
                F::load_u(p, (int)n0, which, q * F::tiles * 8, present >> (q * F::tiles) & both, g, c);
    };
    const int64_t first_column = (int64_t)share * ADAPTER_COLUMNS;
    if (early) {
        if (p.codes) load_codes();
#pragma unroll
        for (int q = 0; q < products; q++) load_columns(first_column, q);
    }

    float sum[ROWS][RANKS][4] = {};
    if (present) {
        const T *rows[ROWS][2];
        bool valid[ROWS][2];
#pragma unroll
        for (int i = 0; i < ROWS; i++)
#pragma unroll
            for (int half = 0; half < 2; half++) {
                const int row = row0 + 16 * i + 8 * half + g;
                valid[i][half] = row < p.m;
                rows[i][half] = p.x + (int64_t)(row < p.m ? row : 0) * p.k;
            }
        constexpr int lane_elements = F::step / 4;
        for (int k0 = worker * F::step; k0 < p.k; k0 += workers * F::step * unroll) {
            typename F::X x[unroll][ROWS];
#pragma unroll
            for (int s = 0; s < unroll; s++)
#pragma unroll
                for (int i = 0; i < ROWS; i++)
#pragma unroll
                    for (int half = 0; half < 2; half++) {
                        const int k = k0 + s * workers * F::step + lane_elements * c;
                        x[s][i].at[half] = F::load_x(rows[i][half], k, valid[i][half] && k < p.k);
                    }
#pragma unroll
            for (int s = 0; s < unroll; s++) {
                const int k = k0 + s * workers * F::step;
#pragma unroll
                for (int t = 0; t < RANKS; t++) { // without branches, so that loads of several steps are under way
                    const typename F::V v = F::load_v(p, k, 8 * t, present >> t & 1, g, c);
#pragma unroll
                    for (int i = 0; i < ROWS; i++) F::project(sum[i][t], x[s][i], v);
                }
            }
        }
    }
    if (!p.rows) meet<ROWS, RANKS, warps>(sum, shared, warp, lane);
    if (p.codes) {
        if (!early) load_codes();
#pragma unroll
        for (int i = 0; i < ROWS; i++)
#pragma unroll
            for (int half = 0; half < 2; half++)
#pragma unroll
                for (int t = 0; t < RANKS; t++) {
                    if (8 * t + 2 * c >= p.r) continue;
#pragma unroll
                    for (int e = 0; e < 2; e++) {
                        const float of = to_float(code[i][half][t].at[e]); // 0: whatever x V is
                        sum[i][t][2 * half + e] = of == 0.0f ? 0.0f : sum[i][t][2 * half + e] * of;
                    }
                }
    }
    typename F::H h[ROWS][products];
#pragma unroll
    for (int i = 0; i < ROWS; i++)
#pragma unroll
        for (int q = 0; q < products; q++) h[i][q] = F::template make_h<RANKS>(sum[i], q * F::tiles);

    if (present || p.add != p.out) {
        for (int64_t n0 = first_column; n0 < p.n; n0 += (int64_t)shares * ADAPTER_COLUMNS) {
            float y[ROWS][4][4] = {};
#pragma unroll
            for (int q = 0; q < products; q++) {
                if (!early) load_columns(n0, q);
#pragma unroll
                for (int which = 0; which < 4; which++)
#pragma unroll
                    for (int i = 0; i < ROWS; i++) F::expand(y[i][which], h[i][q], u[early ? q : 0][which]);
            }
            if (early)
#pragma unroll
                for (int q = 0; q < products; q++) load_columns(n0 + (int64_t)shares * ADAPTER_COLUMNS, q);
            // A lane has 8 columns side by side of two rows of each tile.
            using V = Vec<T, 16 / sizeof(T)>;
            constexpr int vectors = 8 / V::size;
            const int64_t n = n0 + 8 * c;
#pragma unroll
            for (int i = 0; i < ROWS; i++)
#pragma unroll
                for (int half = 0; half < 2; half++) {
                    const int64_t row = row0 + 16 * i + 8 * half + g;
                    if (row >= p.m || n >= p.n) continue;
#pragma unroll
                    for (int piece = 0; piece < vectors; piece++) {
                        const int64_t at = row * p.n + n + piece * V::size;
                        V z = {};
                        if (p.add) z = *reinterpret_cast<const V *>(p.add + at);
#pragma unroll
                        for (int e = 0; e < V::size; e++) {
                            const int col = piece * V::size + e;
                            const float product = y[i][col / 2][2 * half + col % 2] * p.scale;
                            z.at[e] = from_float<T>(p.add ? to_float(z.at[e]) + product : product);
                        }
                        *reinterpret_cast<V *>(p.out + at) = z;
                    }
                }
        }
    }
    if (blocks > 1 && !p.rows) cluster_wait();
#endif
}

template <class T, class W, int ROWS, int RANKS>
vb_status launch_update_tiles(const vb_fused_update_args &a, const adapter_plan &plan, vb_stream *stream) {
    constexpr int width = 8 * RANKS + (RANKS > 1 ? 8 : 0), warps = ROWS * RANKS <= 8 ? 8 : 4;
    const bool rows = plan.kernel == ADAPTER_ROWS;
    UpdateProblem<T, W> p;
    p.out = (T *)a.out, p.add = (const T *)a.add, p.x = (const T *)a.x, p.codes = (const T *)a.codes;
    p.v = (const W *)a.v, p.u = (const W *)a.u;
    p.m = (int)a.m, p.k = (int)a.k, p.n = (int)a.n, p.r = (int)a.r;
    p.codes_stride = a.codes_stride, p.scale = a.scale;
    p.v_transposed = a.v_transposed, p.u_transposed = a.u_transposed;
    p.rows = rows, p.look = a.codes && a.type == VB_F32 && RANKS > 1;
    return launch_cluster(stream, plan.cluster,
                          dim3((unsigned)(plan.row_blocks * plan.cluster), (unsigned)plan.column_blocks), 32 * warps,
                          rows ? 0 : warps * 16 * ROWS * width * 4, fused_update_tiles<T, W, ROWS, RANKS>, p);
}

template <class T, class W>
vb_status update_tiles(const vb_fused_update_args &a, const adapter_plan &plan, vb_stream *stream) {
    constexpr int most = sizeof(T) == 2 ? 4 : 2, most_of_four = most / 2; // row tiles, as choose_fused_update has it
    switch (plan.rank_tiles) {
    case 1:
        return plan.row_tiles == 4   ? launch_update_tiles<T, W, most, 1>(a, plan, stream)
               : plan.row_tiles == 2 ? launch_update_tiles<T, W, 2, 1>(a, plan, stream)
                                     : launch_update_tiles<T, W, 1, 1>(a, plan, stream);
    case 2:
        return plan.row_tiles == 4   ? launch_update_tiles<T, W, most, 2>(a, plan, stream)
               : plan.row_tiles == 2 ? launch_update_tiles<T, W, 2, 2>(a, plan, stream)
                                     : launch_update_tiles<T, W, 1, 2>(a, plan, stream);
    case 4:
        return plan.row_tiles == 2 ? launch_update_tiles<T, W, most_of_four, 4>(a, plan, stream)
                                   : launch_update_tiles<T, W, 1, 4>(a, plan, stream);
    case 8: return launch_update_tiles<T, W, 1, 8>(a, plan, stream);
    case 16: return launch_update_tiles<T, W, 1, 16>(a, plan, stream);
    default: return launch_update_tiles<T, W, 1, 32>(a, plan, stream);
    }
}

} // namespace
} // namespace vb
#endif
