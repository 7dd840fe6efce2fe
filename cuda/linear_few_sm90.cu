// linear_few_sm90.cu: y[n][rows] = x[n][cols] W^T + bias for 2 to 64 rows of x and weights stored as F16 or BF16, on Hopper. x is
// rounded to the type of the weights on the way, by the same kernel.
//
// W is read once and everything else is arranged around that: it is the left factor of wgmma, whose 64 rows it fills, and x the
// right one, of as many columns as there are rows of x. One warp copies tiles of W by TMA into a ring; four warps narrow the x of
// the same step into the same stage (a few KB from L2, read steps ahead into registers); two warpgroups multiply.
//
//   grid     tiles of 128 * TILES rows of W, in clusters of `splits` blocks that share the columns and add their sums through
//            distributed shared memory, in the order of the columns
//   block    two warpgroups that multiply, one that narrows, and the warp that copies
//   shared   a ring of up to 8 stages of 64 columns, at most 208 KiB; then the sums
//   moves    2 rows * cols bytes of W once; 4 n cols bytes of x from L2 for each tile of rows
//   bound    memory that holds W; from 32 rows of x on, the L2 that x comes from
//   measured H200, BF16 (F16), cuBLAS on 16-bit x in the same run: 4096 x 4096, 2 / 16 / 32 / 64 rows: 10.7, 11.9, 13.6, 16.6 us (12.3,
//            13.1, 17.2, 21.7; 12.6, 13.9, 14.1, 12.3); 4096 x 14336: 31.4, 32.5, 34.5, 38.5 us (34.5, 35.9, 40.1, 48.5; 30.5,
//            32.2, 31.8, 35.0). Narrowing by a few blocks into the workspace while the others wait, then TMA for x: 14.4 and 35.2
//            us for 16 rows, 16.4 and 38.2 for 64. Narrowing by the warps that multiply: 12.8 and 32.1, 17.3 and 40.4
//
// F16: each row of x is scaled by a power of two, found from a block's columns, so that nothing overflows or vanishes.

#include "linear.cuh"

#include "sm90.cuh"

namespace vb {

#ifdef VB_WITH_SM90

namespace {

constexpr int depth = 64;
constexpr int multipliers = 256, narrowers = 128, threads = multipliers + narrowers + 32;
constexpr int most_splits = 8;

// How a product is cut up.
struct Plan {
    int tiles; // of 64 rows of W a warpgroup: 1 or 2
    int splits;
};

// Half as many blocks as multiprocessors keep the memory busy; more of them read x and add sums more often. Of tiles 1 and 2 and
// splits 1 to 8 these were the fastest at the sizes above.
Plan plan_few(int64_t n, int64_t rows, int64_t cols, int multiprocessors) {
    const int64_t tiles = ceil_div<int64_t>(rows, 128), steps = ceil_div<int64_t>(cols, depth);
    if (tiles >= multiprocessors * 3 / 4) return {2, n > 32 && steps >= 16 ? 2 : 1};
    int splits = 1;
    while (splits < most_splits && tiles * splits < multiprocessors * 3 / 8 && steps >= 8 * (splits + 1)) splits++;
    if (n > 16 && splits > 1 && splits < most_splits && steps >= 8 * (splits + 1)) splits++;
    return {1, splits};
}

struct Problem {
    float *y; // [n][rows]
    const float *x;
    const float *bias; // null for none
    int n, rows, cols, splits;
};

template <int TOKENS, int TILES>
struct Shape {
    static constexpr int rows = 128 * TILES, w_bytes = rows * sm90::row_bytes, stage_bytes = w_bytes + TOKENS * sm90::row_bytes;
    static constexpr int stages = smaller(8, (208 << 10) / stage_bytes), shared_bytes = stages * stage_bytes;
    static constexpr int chunks = TOKENS * 8 / narrowers; // of eight elements of x that a narrowing thread has in a step
    static constexpr int ahead = 8 / chunks;              // steps that it keeps in registers
    static constexpr int sum_stride = rows + 4;
    static_assert(TOKENS * sum_stride * 4 <= shared_bytes, "the sums take the place of the ring");
};

#ifdef VB_SM90A

// 2^e that brings a row's greatest magnitude to [2^13, 2^14); 1 for zero, Inf and NaN.
VB_DEVICE float power_of_two_scale(float most) {
    if (!(most > 0.0f) || !(most < 3.0e38f)) return 1.0f;
    const int exponent = int(__float_as_uint(most) >> 23) - 127; // below -126 for a subnormal number: clamped
    return __int_as_float((smaller(larger(13 - exponent, -126), 126) + 127) << 23);
}
template <class T>
struct Scaled {
    static constexpr bool value = false;
};
template <>
struct Scaled<half> {
    static constexpr bool value = true;
};

struct EightFloats {
    float4 first, second;
};
template <class T>
VB_DEVICE Vec<T, 8> narrow(const EightFloats &x, float scale) {
    return {{from_float<T>(x.first.x * scale), from_float<T>(x.first.y * scale), from_float<T>(x.first.z * scale),
             from_float<T>(x.first.w * scale), from_float<T>(x.second.x * scale), from_float<T>(x.second.y * scale),
             from_float<T>(x.second.z * scale), from_float<T>(x.second.w * scale)}};
}

// inverse[token] = 1 / scale of the columns first..last-1 of a row of x, by the threads that multiply.
template <int TOKENS>
VB_DEVICE void find_scales(float *inverse, const Problem &p, int first, int last) {
    constexpr int lanes = multipliers / TOKENS; // that share a row
    const int token = threadIdx.x / lanes;
    float most = 0;
    if (token < p.n) {
        const float4 *const row = reinterpret_cast<const float4 *>(p.x + (int64_t)token * p.cols);
#pragma unroll 16
        for (int i = first / 4 + threadIdx.x % lanes; i < last / 4; i += lanes) {
            const float4 u = __ldg(row + i);
            most = Max::combine(Max::combine(Max::combine(most, fabsf(u.x)), Max::combine(fabsf(u.y), fabsf(u.z))), fabsf(u.w));
        }
    }
    most = warp_reduce<Max, lanes>(most);
    if (threadIdx.x % lanes == 0) inverse[token] = 1.0f / power_of_two_scale(most);
}

// Adds what the blocks of the cluster left in their shared memory, [TOKENS][sum_stride], and writes this block's share of y.
template <class S>
VB_DEVICE void reduce(const Problem &p, const float *sums, int row0, unsigned rank) {
    constexpr int fours = S::rows / 4;
    for (int i = rank * multipliers + threadIdx.x; i < p.n * fours; i += p.splits * multipliers) {
        const int token = i / fours, r = i % fours * 4, row = row0 + r;
        float4 y = row < p.rows && p.bias ? *reinterpret_cast<const float4 *>(p.bias + row) : make_float4(0, 0, 0, 0);
#pragma unroll 8
        for (int s = 0; s < p.splits; s++) {
            const float4 part = sm90::load_remote(sm90::remote_address(sums + token * S::sum_stride + r, s));
            y.x += part.x, y.y += part.y, y.z += part.z, y.w += part.w;
        }
        if (row < p.rows) *reinterpret_cast<float4 *>(p.y + (int64_t)token * p.rows + row) = y; // rows are a multiple of 4
    }
}

#endif

template <class T, int TOKENS, int TILES>
__global__ void __launch_bounds__(threads, 1) linear_few_kernel(const __grid_constant__ CUtensorMap map, const Problem p) {
#ifdef VB_SM90A
    using S = Shape<TOKENS, TILES>;
    constexpr bool scaled = Scaled<T>::value;
    extern __shared__ __align__(1024) char shared[];
    __shared__ uint64_t full[S::stages], empty[S::stages];
    __shared__ float inverse[TOKENS];
    const int warp = __shfl_sync(all_lanes, threadIdx.x / 32, 0), lane = threadIdx.x % 32;
    const unsigned rank = p.splits > 1 ? sm90::cluster_rank() : 0;
    const int row0 = blockIdx.x / p.splits * S::rows, steps = ceil_div(p.cols, depth);
    const int first = steps * (int)rank / p.splits, last = steps * ((int)rank + 1) / p.splits;
    if (threadIdx.x == 0) {
        sm90::prefetch_map(&map);
        for (int s = 0; s < S::stages; s++) { // the copy and each narrowing warp arrive; each multiplying warp
            sm90::barrier_init(&full[s], 1 + narrowers / 32);
            sm90::barrier_init(&empty[s], multipliers / 32);
        }
        sm90::barrier_init_fence();
    }
    __syncthreads();
    wait_for_previous_kernel();
    release_next_kernel();
    int stage = 0;
    unsigned phase = 0;
    const auto advance = [&] {
        if (++stage == S::stages) stage = 0, phase ^= 1;
    };

    if (warp == (multipliers + narrowers) / 32) {
        if (lane == 0)
            for (int step = first; step < last; step++, advance()) {
                sm90::barrier_wait(&empty[stage], phase ^ 1);
                sm90::barrier_expect(&full[stage], S::w_bytes);
                sm90::copy_box(shared + stage * S::stage_bytes, &map, &full[stage], step * depth, row0);
            }
        __syncwarp();
        if (p.splits > 1) sm90::cluster_sync(), sm90::cluster_sync();
        return;
    }

    if (warp >= multipliers / 32) {
        // This thread's chunks of x: eight elements of the rows `token`, token + 16, ...
        const int chunk = threadIdx.x % 8, token = (threadIdx.x - multipliers) / 8;
        EightFloats ahead[S::ahead][S::chunks];
        const auto load = [&](EightFloats(&to)[S::chunks], int step) {
#pragma unroll
            for (int i = 0; i < S::chunks; i++) {
                to[i] = EightFloats();
                const int k = step * depth + chunk * 8, t = token + 16 * i;
                if (t >= p.n || step >= last || k >= p.cols) continue;
                const float4 *const from = reinterpret_cast<const float4 *>(p.x + (int64_t)t * p.cols + k);
                to[i] = {__ldg(from), __ldg(from + 1)};
            }
        };
#pragma unroll
        for (int i = 0; i < S::ahead; i++) load(ahead[i], first + i);
        if (scaled) sm90::group_sync(1, multipliers + narrowers); // the scales are known
        float scale[S::chunks];
#pragma unroll
        for (int i = 0; i < S::chunks; i++) scale[i] = scaled ? 1.0f / inverse[token + 16 * i] : 1.0f;
        for (int step = first; step < last; step += S::ahead) {
#pragma unroll
            for (int a = 0; a < S::ahead; a++) {
                if (step + a >= last) break;
                sm90::barrier_wait(&empty[stage], phase ^ 1);
                char *const to = shared + stage * S::stage_bytes + S::w_bytes;
#pragma unroll
                for (int i = 0; i < S::chunks; i++) // with the swizzle of 128 bytes
                    *reinterpret_cast<Vec<T, 8> *>(to + (token + 16 * i) * sm90::row_bytes + (chunk ^ token % 8) * 16) =
                        narrow<T>(ahead[a][i], scale[i]);
                sm90::shared_writes_fence();
                __syncwarp();
                if (lane == 0) sm90::barrier_arrive(&full[stage]);
                load(ahead[a], step + a + S::ahead);
                advance();
            }
        }
        if (p.splits > 1) sm90::cluster_sync(), sm90::cluster_sync();
        return;
    }

    if (scaled) {
        find_scales<TOKENS>(inverse, p, first * depth, smaller(last * depth, p.cols));
        sm90::group_sync(1, multipliers + narrowers);
    }
    float sum[TILES][TOKENS / 2];
    const int group = warp / 4;
    int previous = -1;
    for (int step = first; step < last; step++, advance()) {
        char *const at = shared + stage * S::stage_bytes;
        sm90::barrier_wait(&full[stage], phase);
        const uint64_t x = sm90::describe(at + S::w_bytes, 0);
        sm90::wgmma_fence();
#pragma unroll
        for (int i = 0; i < TILES; i++) {
            const uint64_t w = sm90::describe(at + (group * TILES + i) * 64 * sm90::row_bytes, 0);
#pragma unroll
            for (int k = 0; k < depth / 16; k++) // 16 columns are 32 bytes, two of the descriptor's units
                sm90::Wgmma<T, TOKENS, 0>::run(sum[i], w + 2 * k, x + 2 * k, step > first || k > 0);
        }
        sm90::wgmma_commit();
        sm90::wgmma_wait<1>(); // these products stay in flight while the next stage is awaited
        if (previous >= 0 && lane == 0) sm90::barrier_arrive(&empty[previous]);
        previous = stage;
    }
    sm90::wgmma_wait<0>();
    if (p.splits > 1) sm90::group_sync(1, multipliers); // the sums take the place of stages that all have read

    // sum[i][4 j + 2 h + e] is of row 64 (group * TILES + i) + 16 (warp % 4) + 8 h + lane / 4, of x's row 8 j + 2 (lane % 4) + e.
    float *const sums = reinterpret_cast<float *>(shared);
#pragma unroll
    for (int i = 0; i < TILES; i++) {
        sm90::settle(sum[i]);
#pragma unroll
        for (int j = 0; j < TOKENS / 8; j++)
#pragma unroll
            for (int e = 0; e < 4; e++) {
                const int row = (group * TILES + i) * 64 + warp % 4 * 16 + lane / 4 + e / 2 * 8, t = 8 * j + lane % 4 * 2 + e % 2;
                const float y = scaled ? sum[i][4 * j + e] * inverse[t] : sum[i][4 * j + e];
                if (p.splits > 1) sums[t * S::sum_stride + row] = y;
                else if (t < p.n && row0 + row < p.rows)
                    p.y[(int64_t)t * p.rows + row0 + row] = y + (p.bias ? p.bias[row0 + row] : 0.0f);
            }
    }
    if (p.splits == 1) return;
    sm90::cluster_sync();
    reduce<S>(p, sums, row0, rank);
    sm90::cluster_sync(); // shared memory stays until no other block reads it
#endif
}

template <class T, int TOKENS, int TILES>
vb_status launch_few(const LinearArgs &a, vb_dtype type, int splits, vb_stream *stream) {
    using S = Shape<TOKENS, TILES>;
    CUtensorMap map;
    VB_TRY(sm90::tensor_map(&map, a.w, type, a.cols, a.rows, a.cols, S::rows, stream));
    const Problem p = {a.y, a.x, a.bias, (int)a.n, (int)a.rows, (int)a.cols, splits};
    return launch_cluster(stream, splits, (unsigned)(ceil_div(p.rows, S::rows) * splits), threads, S::shared_bytes,
                          linear_few_kernel<T, TOKENS, TILES>, map, p);
}

template <class T, int TOKENS>
vb_status with_tiles(const LinearArgs &a, vb_dtype type, vb_stream *stream) {
    const Plan plan = plan_few(a.n, a.rows, a.cols, multiprocessors(stream));
    return plan.tiles == 1 ? launch_few<T, TOKENS, 1>(a, type, plan.splits, stream) : launch_few<T, TOKENS, 2>(a, type, plan.splits, stream);
}

template <class T>
vb_status with_tokens(const LinearArgs &a, vb_dtype type, vb_stream *stream) {
    return a.n <= 16 ? with_tiles<T, 16>(a, type, stream) : a.n <= 32 ? with_tiles<T, 32>(a, type, stream) : with_tiles<T, 64>(a, type, stream);
}

} // namespace

vb_status linear_few_sm90(const LinearArgs &a, vb_dtype type, vb_stream *stream) {
    constexpr int64_t most = 1 << 27; // of rows, so that the grid is one of 31 bits, and of columns, so that indices are
    if (a.n < 1 || a.n > 64 || a.rows > most || a.cols > most || a.cols == 0 || a.cols % 8 || a.rows % 4 ||
        !aligned16((const char *)a.w, (const char *)a.x, (const char *)a.y, (const char *)a.bias))
        return VB_UNSUPPORTED;
    if (type == VB_F16) return with_tokens<half>(a, type, stream);
    if (type == VB_BF16) return with_tokens<bf16>(a, type, stream);
    return VB_UNSUPPORTED;
}

#else

vb_status linear_few_sm90(const LinearArgs &, vb_dtype, vb_stream *) { return VB_UNSUPPORTED; }

#endif

} // namespace vb
