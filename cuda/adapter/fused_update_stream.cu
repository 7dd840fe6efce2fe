// fused_update_stream.cu: out = add + scale * ((x V) * codes) U^T for F16 and BF16 of 8 or 16 ranks, V [k][r] and U
// [n][r], on tensor cores (vb_fused_update_args).
//
//   grid     stream: blocks of 32, 64 or 128 rows. short: (blocks of 16 rows, shares of the columns), each of which
//            computes x V again
//   block    8 warps, which share k; the parts of x V meet in shared memory. Then each warp has every eighth 32 columns
//   shared   stream: stages of x [ROWS][128] and V [128][8 RANKS]: 60 to 180 KiB. short: sums alone
//   moves    x, out and add once; V and U once for each block of rows, from L2
//   flops    2 m r (k + n)
//   bound    memory. short: the time between the ends of two kernels, so a warp asks for all of its x at once
//
// Blocks begin at different places of k and of the columns. Else rows of a power of two bytes meet in one channel.

#include "adapter/launchers.cuh"
#include "arch/mma.cuh"
#include "arch/streaming.cuh"

namespace vb {
namespace {

constexpr int threads = 256, warps = 8, depth = 128, chunks = depth / 8;

template <class T>
struct StreamProblem {
    T *out;
    const T *add, *x, *v, *codes, *u;
    int m, k, n, r;
    int64_t codes_stride;
    float scale;
    bool beyond_l2; // x and out are more than the L2 holds
};

// c += a b for k of 8.
VB_DEVICE void mma_k8(float (&c)[4], unsigned a0, unsigned a1, unsigned b, half) {
#if __CUDA_ARCH__ >= 800
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%2,%3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a0), "r"(a1), "r"(b));
#endif
}
VB_DEVICE void mma_k8(float (&c)[4], unsigned a0, unsigned a1, unsigned b, bf16) {
#if __CUDA_ARCH__ >= 800
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%2,%3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a0), "r"(a1), "r"(b));
#endif
}
VB_DEVICE unsigned load_word(const void *at, bool valid) {
    return valid ? __ldg(static_cast<const unsigned *>(at)) : 0u;
}
// 16 bytes that are read once.
VB_DEVICE uint4 stream_words(const void *at, bool valid) {
    uint4 x = make_uint4(0, 0, 0, 0);
    if (valid)
        asm volatile("ld.global.nc.L1::no_allocate.L2::128B.v4.u32 {%0, %1, %2, %3}, [%4];"
                     : "=r"(x.x), "=r"(x.y), "=r"(x.z), "=r"(x.w)
                     : "l"(at));
    return x;
}

// How the L2 keeps x: where x and the result are more than it holds, x makes room first, for it is read once.
VB_DEVICE uint64_t policy_of_x(bool beyond_l2) {
    uint64_t policy = 0;
#if __CUDA_ARCH__ >= 800
    uint64_t normal;
    asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
    asm("createpolicy.fractional.L2::evict_normal.b64 %0, 1.0;" : "=l"(normal));
    if (!beyond_l2) policy = normal;
#endif
    return policy;
}
// copy_async by a policy of the L2.
VB_DEVICE void copy_async_kept(unsigned shared, const void *global, bool valid, uint64_t policy) {
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.cg.shared.global.L2::cache_hint [%0], [%1], 16, %2, %3;" ::"r"(shared), "l"(global),
                 "r"(valid ? 16 : 0), "l"(policy));
#endif
}

// A lane's part of U for 32 columns. Product `which` has the columns 8 (g / 2) + 2 which + g % 2.
// So the lane ends up with columns 8 c to 8 c + 7.
template <int RANKS>
struct Columns {
    unsigned at[4][RANKS];
};
template <class T, int RANKS>
VB_DEVICE void load_columns(Columns<RANKS> &u, const StreamProblem<T> &p, int n0, int g, int c) {
#pragma unroll
    for (int which = 0; which < 4; which++)
#pragma unroll
        for (int t = 0; t < RANKS; t++) {
            const int col = n0 + g / 2 * 8 + 2 * which + g % 2, rank = 8 * t + 2 * c;
            u.at[which][t] = load_word(p.u + (int64_t)col * p.r + rank, col < p.n);
        }
}

// What is added to a lane's part of 32 columns. Behind a store each load would wait for memory again. Of 128 rows
// nothing is (choose.h).
template <class T, int TILES>
struct Addends {
    static constexpr bool any = TILES < 8;
    uint4 at[any ? TILES : 1][2]; // eight elements each
    VB_DEVICE void load(const StreamProblem<T> &p, int row0, int n0, int g, int c) {
        if (!p.add) return;
#pragma unroll
        for (int i = 0; i < (any ? TILES : 0); i++)
#pragma unroll
            for (int half = 0; half < 2; half++) {
                const int64_t row = row0 + 16 * i + 8 * half + g;
                const int n = n0 + 8 * c;
                at[i][half] = make_uint4(0, 0, 0, 0);
                if (row < p.m && n < p.n) at[i][half] = *reinterpret_cast<const uint4 *>(p.add + row * p.n + n);
            }
    }
};

// Writes 32 columns of TILES tiles of 16 rows. h [16 TILES][8 RANKS + 8]
template <class T, int TILES, int RANKS>
VB_DEVICE void write_columns(const StreamProblem<T> &p, const T *h, int row0, int n0, const Columns<RANKS> &u,
                             const Addends<T, TILES> &added, int g, int c) {
    constexpr int width = 8 * RANKS + 8;
    const int n = n0 + 8 * c;
#pragma unroll
    for (int i = 0; i < TILES; i++) {
        float y[4][4] = {};
        const unsigned *const low = reinterpret_cast<const unsigned *>(h + (16 * i + g) * width + 2 * c);
        const unsigned *const high = reinterpret_cast<const unsigned *>(h + (16 * i + 8 + g) * width + 2 * c);
        if constexpr (RANKS == 1) {
#pragma unroll
            for (int which = 0; which < 4; which++) mma_k8(y[which], low[0], high[0], u.at[which][0], T());
        } else {
            const unsigned a[4] = {low[0], high[0], low[4], high[4]};
#pragma unroll
            for (int which = 0; which < 4; which++) mma<T>(y[which], a, u.at[which][0], u.at[which][1]);
        }
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const int64_t row = row0 + 16 * i + 8 * half + g, at = row * p.n + n;
            if (row >= p.m || n >= p.n) continue;
            Vec<T, 8> z;
            constexpr bool any = Addends<T, TILES>::any;
            if (any) z = *reinterpret_cast<const Vec<T, 8> *>(&added.at[any ? i : 0][half]);
#pragma unroll
            for (int e = 0; e < 8; e++) {
                const float product = y[e / 2][2 * half + e % 2] * p.scale;
                z.at[e] = from_float<T>(any && p.add ? to_float(z.at[e]) + product : product);
            }
            *reinterpret_cast<Vec<T, 8> *>(p.out + at) = z;
        }
    }
}

// The codes of this thread's elements of x V, which are threads apart.
template <class T, int ROWS, int RANKS>
struct Codes {
    static constexpr int ranks = 8 * RANKS, count = (ROWS * ranks + threads - 1) / threads;
    float at[count];
    VB_DEVICE void load(const StreamProblem<T> &p, int row0) {
#pragma unroll
        for (int i = 0; i < count; i++) {
            const int e = threadIdx.x + i * threads, row = row0 + e / ranks, rank = e % ranks;
            const bool inside = e < ROWS * ranks && row < p.m;
            at[i] = !inside ? 0.0f : p.codes ? to_float(p.codes[row * p.codes_stride + rank]) : 1.0f;
        }
    }
    // h [ROWS][ranks + 8] = codes * the sum of parts [PARTS][ROWS][ranks]
    template <int PARTS>
    VB_DEVICE void apply(T *h, const float *parts) const {
#pragma unroll
        for (int i = 0; i < count; i++) {
            const int e = threadIdx.x + i * threads;
            if (e >= ROWS * ranks) break;
            float sum = 0;
#pragma unroll
            for (int w = 0; w < PARTS; w++) sum += parts[w * ROWS * ranks + e];
            // A code of 0 gives 0, whatever x V is.
            h[e / ranks * (ranks + 8) + e % ranks] = from_float<T>(at[i] == 0.0f ? 0.0f : sum * at[i]);
        }
    }
};

template <int ROWS, int RANKS>
struct StreamShape {
    static constexpr int ranks = 8 * RANKS, x_bytes = ROWS * depth * 2, stage_bytes = x_bytes + depth * ranks * 2;
    static constexpr int stages = ROWS >= 64 && RANKS == 2 ? 5 : 6, bytes = stages * stage_bytes;
    static constexpr int tiles = ROWS / 16, parts = warps / tiles, own = depth / parts;
    static_assert(parts * ROWS * ranks * 4 + ROWS * (ranks + 8) * 2 <= bytes, "sums take the place of stages");
};

template <class T, int ROWS, int RANKS>
__global__ void __launch_bounds__(threads, ROWS == 128 ? 1 : ROWS == 64 ? 2 : 3)
    fused_update_stream_kernel(StreamProblem<T> p) {
#if __CUDA_ARCH__ >= 800
    using S = StreamShape<ROWS, RANKS>;
    extern __shared__ __align__(1024) uint4 shared[];
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, c = lane % 4;
    const int row0 = (int)blockIdx.x * ROWS, tile = warp / S::parts, part = warp % S::parts;
    const unsigned base = shared_address(shared);
    wait_for_previous_kernel();
    release_next_kernel();
    const int steps = ceil_div(p.k, depth), turn = (int)(blockIdx.x * 5 % steps);
    const uint64_t policy = policy_of_x(p.beyond_l2);
    const auto copy_stage = [&](int at) {
        const unsigned to = base + at % S::stages * S::stage_bytes;
        const int step = at + turn >= steps ? at + turn - steps : at + turn;
#pragma unroll
        for (int i = 0; i < ROWS * chunks / threads; i++) {
            const int e = threadIdx.x + i * threads, row = e / chunks, chunk = e % chunks, k = step * depth + chunk * 8;
            const bool valid = row0 + row < p.m && k < p.k;
            copy_async_kept(to + swizzled(row, chunk, chunks), valid ? p.x + (int64_t)(row0 + row) * p.k + k : p.x,
                            valid, policy);
        }
        constexpr int pieces = depth * RANKS; // tiles of 8 ranks lie one behind the other
        const int e = threadIdx.x, k = e / RANKS, t = e % RANKS;
        if (pieces >= threads || e < pieces) {
            const bool valid = step * depth + k < p.k;
            copy_async(to + S::x_bytes + (t * depth + k) * 16,
                       valid ? p.v + (int64_t)(step * depth + k) * p.r + t * 8 : p.v, valid);
        }
    };
    for (int i = 0; i < S::stages - 1; i++) {
        if (i < steps) copy_stage(i);
        copy_async_commit();
    }
    const int rounds = ceil_div(p.n, 32 * warps), first = (int)(blockIdx.x * 3 % rounds);
    Columns<RANKS> u;
    load_columns(u, p, (first * warps + warp) * 32, g, c);
    Addends<T, S::tiles> added;
    Codes<T, ROWS, RANKS> codes;
    codes.load(p, row0);
    float sum[RANKS][4] = {};
    for (int step = 0; step < steps; step++) {
        copy_async_wait<S::stages - 2>();
        __syncthreads();
        if (step + S::stages - 1 < steps) copy_stage(step + S::stages - 1);
        copy_async_commit();
        const unsigned stage = base + step % S::stages * S::stage_bytes;
#pragma unroll
        for (int i = 0; i < S::own; i += 32) {
            const int k = part * S::own + i;
            unsigned x[2][4];
#pragma unroll
            for (int q = 0; q < 2; q++)
                load_matrices(x[q], stage + swizzled(tile * 16 + lane % 16, k / 8 + 2 * q + lane / 16, chunks));
#pragma unroll
            for (int t = 0; t < RANKS; t++) {
                unsigned v[4];
                load_matrices_transposed(v, stage + S::x_bytes + (t * depth + k + lane) * 16);
                mma<T>(sum[t], x[0], v[0], v[1]);
                mma<T>(sum[t], x[1], v[2], v[3]);
            }
        }
    }
    copy_async_wait<0>();
    added.load(p, row0, (first * warps + warp) * 32, g, c);
    __syncthreads(); // the stages are free
    float *const parts = reinterpret_cast<float *>(shared);
    T *const h = reinterpret_cast<T *>(parts + S::parts * ROWS * S::ranks);
#pragma unroll
    for (int t = 0; t < RANKS; t++)
#pragma unroll
        for (int half = 0; half < 2; half++)
            *reinterpret_cast<float2 *>(parts + (part * ROWS + tile * 16 + 8 * half + g) * S::ranks + 8 * t + 2 * c) =
                make_float2(sum[t][2 * half], sum[t][2 * half + 1]);
    __syncthreads();
    codes.template apply<S::parts>(h, parts);
    __syncthreads();
    for (int i = 0; i < rounds; i++) {
        const int now = i + first >= rounds ? i + first - rounds : i + first, after = now + 1 == rounds ? 0 : now + 1;
        Columns<RANKS> next;
        load_columns(next, p, (after * warps + warp) * 32, g, c);
        Addends<T, S::tiles> then;
        then.load(p, row0, (after * warps + warp) * 32, g, c);
        write_columns<T, S::tiles, RANKS>(p, h, row0, (now * warps + warp) * 32, u, added, g, c);
        u = next, added = then;
    }
#endif
}

// For k of at most 3 steps of 32 a warp, and 8 ranks: x goes to registers at once. A lane's 16 bytes of x are halves of
// two products.
// The order of k in V follows the order in x.
template <class T>
__global__ void __launch_bounds__(threads, 2) fused_update_short_kernel(StreamProblem<T> p) {
#if __CUDA_ARCH__ >= 800
    constexpr int steps = ADAPTER_SHORT_DEPTH / 32 / warps;
    __shared__ float parts[warps * 16 * 8];
    __shared__ __align__(4) T h[16 * 16]; // read two at a time
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, c = lane % 4;
    const int row0 = (int)blockIdx.x * 16, share = (int)blockIdx.y * warps + warp, shares = (int)gridDim.y * warps;
    wait_for_previous_kernel();
    release_next_kernel();
    uint4 x[steps][2];
    unsigned v[steps][4];
#pragma unroll
    for (int s = 0; s < steps; s++) {
        const int k = (s * warps + warp) * 32;
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const int row = row0 + 8 * half + g;
            const bool valid = row < p.m && k + 8 * c < p.k;
            x[s][half] = stream_words(valid ? p.x + (int64_t)row * p.k + k + 8 * c : p.x, valid);
        }
#pragma unroll
        for (int q = 0; q < 4; q++) {
            const int at = k + g / 2 * 8 + 2 * q + g % 2;
            v[s][q] = load_word(p.v + (int64_t)at * p.r + 2 * c, at < p.k);
        }
    }
    Columns<1> u;
    load_columns(u, p, share * 32, g, c);
    Addends<T, 1> added;
    added.load(p, row0, share * 32, g, c);
    Codes<T, 16, 1> codes;
    codes.load(p, row0);
    float sum[4] = {};
#pragma unroll
    for (int s = 0; s < steps; s++) {
#pragma unroll
        for (int q = 0; q < 4; q++) v[s][q] = transposed(v[s][q]);
        const unsigned first[4] = {x[s][0].x, x[s][1].x, x[s][0].y, x[s][1].y};
        const unsigned second[4] = {x[s][0].z, x[s][1].z, x[s][0].w, x[s][1].w};
        mma<T>(sum, first, v[s][0], v[s][1]);
        mma<T>(sum, second, v[s][2], v[s][3]);
    }
#pragma unroll
    for (int half = 0; half < 2; half++)
        *reinterpret_cast<float2 *>(parts + (warp * 16 + 8 * half + g) * 8 + 2 * c) =
            make_float2(sum[2 * half], sum[2 * half + 1]);
    __syncthreads();
    codes.template apply<warps>(h, parts);
    __syncthreads();
    for (int n0 = share * 32; n0 < p.n; n0 += shares * 32) {
        Columns<1> next;
        load_columns(next, p, n0 + shares * 32, g, c);
        Addends<T, 1> then;
        then.load(p, row0, n0 + shares * 32, g, c);
        write_columns<T, 1, 1>(p, h, row0, n0, u, added, g, c);
        u = next, added = then;
    }
#endif
}

template <class T, int ROWS, int RANKS>
vb_status launch_shape(const StreamProblem<T> &p, const adapter_plan &plan, vb_stream *stream) {
    static_assert(StreamShape<ROWS, RANKS>::bytes <= (ROWS == 128 ? ADAPTER_STREAM_ALL : ADAPTER_STREAM_BYTES),
                  "choose.h says how much there is");
    return launch_overlapped(stream, (unsigned)plan.row_blocks, threads, StreamShape<ROWS, RANKS>::bytes,
                             fused_update_stream_kernel<T, ROWS, RANKS>, p);
}

template <class T>
vb_status launch_stream(const vb_fused_update_args &a, const adapter_plan &plan, vb_stream *stream) {
    StreamProblem<T> p;
    p.out = (T *)a.out, p.add = (const T *)a.add, p.x = (const T *)a.x, p.codes = (const T *)a.codes;
    p.v = (const T *)a.v, p.u = (const T *)a.u;
    p.m = (int)a.m, p.k = (int)a.k, p.n = (int)a.n, p.r = (int)a.r, p.codes_stride = a.codes_stride, p.scale = a.scale;
    p.beyond_l2 = beyond_l2(a.m * (a.k + a.n) * (int64_t)sizeof(T), stream);
    if (plan.kernel == ADAPTER_SHORT)
        return launch_overlapped(stream, dim3((unsigned)plan.row_blocks, (unsigned)plan.column_blocks), threads, 0,
                                 fused_update_short_kernel<T>, p);
    if (plan.row_tiles == 8) return launch_shape<T, 128, 2>(p, plan, stream);
    if (plan.row_tiles == 4)
        return plan.rank_tiles == 1 ? launch_shape<T, 64, 1>(p, plan, stream) : launch_shape<T, 64, 2>(p, plan, stream);
    return plan.rank_tiles == 1 ? launch_shape<T, 32, 1>(p, plan, stream) : launch_shape<T, 32, 2>(p, plan, stream);
}

} // namespace

vb_status fused_update_stream(const vb_fused_update_args &a, const adapter_plan &plan, vb_stream *stream) {
    return a.type == VB_F16 ? launch_stream<half>(a, plan, stream) : launch_stream<bf16>(a, plan, stream);
}

} // namespace vb
