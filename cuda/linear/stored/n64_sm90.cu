// n64_sm90.cu: y[n][rows] = x[n][cols] W^T + bias for 2 to 64 rows of x and weights stored as F16 or BF16, on Hopper.
//
// W, read once, is the left factor of wgmma, and fills its 64 rows. x, rounded to W's type, is the right factor.
// Up to 32 rows of x, four warps narrow the rows of a step into its stage. More rows, in float32, take too much of L2's
// bandwidth, so narrow_kernel narrows them before.
//
//   grid     tiles of 128 rows of W, in clusters of `ksplit` blocks, which share the columns and add their sums in
//            order
//   block    two warpgroups that multiply, one that narrows, and the warp that copies tiles of W by TMA
//   shared   a ring of up to 8 stages of 64 columns, at most 208 KiB; then the sums
//   moves    2 rows * cols bytes of W once; 4 n cols (2 where narrowed before) bytes of x from L2 for each tile of rows
//   bound    memory that holds W
//   measured docs/experiments/2026-11-22-stored-n64.md
// A block whose columns of a row of x overflow or vanish in F16 starts anew, with each row scaled by a power of two.

#include "linear/stored/narrow.cuh"

#include "arch/sm90.cuh"
#include "runtime/power_of_two.cuh"

namespace vb {

#ifdef VB_WITH_SM90

namespace {

constexpr int depth = 64, tile_rows = 128;
constexpr int multipliers = 256, narrowers = 128, threads = multipliers + narrowers + 32;
constexpr int most_ksplit = 8;

// Blocks of a cluster. Half as many blocks as multiprocessors keep the memory busy; more of them read x and add sums
// more often. Of ksplit 1 to 8, and tiles of 128 and 256 rows, these were the fastest at the sizes above.
int plan_ksplit(int64_t n, int64_t rows, int64_t cols, int multiprocessors) {
    const int64_t tiles = ceil_div<int64_t>(rows, tile_rows), steps = ceil_div<int64_t>(cols, depth);
    int ksplit = 1;
    while (ksplit < most_ksplit && tiles * ksplit < multiprocessors * 3 / 8 && steps >= 8 * (ksplit + 1)) ksplit++;
    if (n > 16 && n <= 32 && ksplit > 1 && ksplit < most_ksplit && steps >= 8 * (ksplit + 1)) ksplit++;
    return ksplit;
}

struct Problem {
    float *y; // [n][rows]
    const float *x;
    const float *bias; // null for none
    int n, rows, cols, ksplit;
    const float *inverse; // where x was narrowed before: of the scale of each row
};

template <int TOKENS>
struct Shape {
    static constexpr int w_bytes = tile_rows * sm90::row_bytes, stage_bytes = w_bytes + TOKENS * sm90::row_bytes;
    static constexpr int stages = smaller(8, (208 << 10) / stage_bytes), shared_bytes = stages * stage_bytes;
    // of eight elements of x that a narrowing thread has in a step
    static constexpr int chunks = TOKENS * 8 / narrowers;
    static constexpr int ahead = 8 / chunks;              // steps that it keeps in registers
    static constexpr int sum_stride = tile_rows + 4;
    static_assert(TOKENS * sum_stride * 4 <= shared_bytes, "the sums take the place of the ring");
};

#ifdef VB_SM90A

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
VB_DEVICE float greatest(const float4 &x) {
    return Max::combine(Max::combine(fabsf(x.x), fabsf(x.y)), Max::combine(fabsf(x.z), fabsf(x.w)));
}
VB_DEVICE float greatest(const EightFloats &x) { return Max::combine(greatest(x.first), greatest(x.second)); }
template <class T>
VB_DEVICE Vec<T, 8> narrow(const EightFloats &x, float scale) {
    return {{from_float<T>(x.first.x * scale), from_float<T>(x.first.y * scale), from_float<T>(x.first.z * scale),
             from_float<T>(x.first.w * scale), from_float<T>(x.second.x * scale), from_float<T>(x.second.y * scale),
             from_float<T>(x.second.z * scale), from_float<T>(x.second.w * scale)}};
}

// Whether plain rounding to F16 would lose more of a row of this greatest magnitude than rounding does anyway.
VB_DEVICE bool wants_scale(float most) {
    return (most > 65504.0f && most < 3.0e38f) || (most > 0.0f && most < 0.00390625f);
}

// Adds the sums that the blocks of the cluster left in their shared memory, [TOKENS][sum_stride], and writes this
// block's share of y.
template <class S>
VB_DEVICE void reduce(const Problem &p, const float *sums, int row0, unsigned rank) {
    constexpr int fours = tile_rows / 4;
    for (int i = rank * multipliers + threadIdx.x; i < p.n * fours; i += p.ksplit * multipliers) {
        const int token = i / fours, r = i % fours * 4, row = row0 + r;
        float4 y = row < p.rows && p.bias ? *reinterpret_cast<const float4 *>(p.bias + row) : make_float4(0, 0, 0, 0);
#pragma unroll 8
        for (int s = 0; s < p.ksplit; s++) {
            const float4 part = sm90::load_remote(sm90::remote_address(sums + token * S::sum_stride + r, s));
            y.x += part.x, y.y += part.y, y.z += part.z, y.w += part.w;
        }
        // rows are a multiple of 4
        if (row < p.rows) *reinterpret_cast<float4 *>(p.y + (int64_t)token * p.rows + row) = y;
    }
}

#endif

// NARROWED: x_map describes the rows that narrow_kernel wrote.
template <class T, int TOKENS, bool NARROWED>
__global__ void __launch_bounds__(threads, 1)
    n64_kernel(VB_IN_PLACE CUtensorMap map, VB_IN_PLACE CUtensorMap x_map, const Problem p) {
#ifdef VB_SM90A
    using S = Shape<TOKENS>;
    constexpr bool scaled = Scaled<T>::value && !NARROWED;
    extern __shared__ __align__(1024) char shared[];
    __shared__ uint64_t full[S::stages], empty[S::stages];
    __shared__ float inverse[TOKENS]; // of the scale of each row of x
    __shared__ uint64_t judged; // x is narrowed, and each warp that narrows has said whether it wants a scale
    __shared__ bool wants[narrowers / 32];
    const int warp = __shfl_sync(all_lanes, threadIdx.x / 32, 0), lane = threadIdx.x % 32;
    const unsigned rank = p.ksplit > 1 ? sm90::cluster_rank() : 0;
    const int row0 = blockIdx.x / p.ksplit * tile_rows, steps = ceil_div(p.cols, depth);
    const int first = steps * (int)rank / p.ksplit, last = steps * ((int)rank + 1) / p.ksplit;
    if (threadIdx.x == 0) {
        sm90::prefetch_map(&map);
        for (int s = 0; s < S::stages; s++) { // the copy and each narrowing warp arrive; each multiplying warp
            sm90::barrier_init(&full[s], NARROWED ? 1 : 1 + narrowers / 32);
            sm90::barrier_init(&empty[s], multipliers / 32);
        }
        if (scaled) sm90::barrier_init(&judged, narrowers);
        sm90::barrier_init_fence();
    }
    __syncthreads();
    const bool copies = warp == (multipliers + narrowers) / 32;
    const auto copy = [&](int step, int stage, bool of_w, bool of_x) {
        char *const to = shared + stage * S::stage_bytes;
        if (of_w) sm90::barrier_expect(&full[stage], NARROWED ? S::stage_bytes : S::w_bytes);
        if (of_w) sm90::copy_box(to, &map, &full[stage], step * depth, row0);
        if (of_x) sm90::copy_box(to + S::w_bytes, &x_map, &full[stage], step * depth, 0);
    };
    // The kernel before is narrow_kernel, which waited for all others before it let this one begin, and writes no
    // weights.
    const int early = NARROWED ? smaller(S::stages, last - first) : 0;
    if (NARROWED && copies && lane == 0)
        for (int i = 0; i < early; i++) copy(first + i, i, true, false);
    wait_for_previous_kernel();
    release_next_kernel();
    int stage = 0;
    unsigned phase = 0;
    const auto advance = [&] {
        if (++stage == S::stages) stage = 0, phase ^= 1;
    };

    // Every warp ends a pass so; true where another is to come. (No barrier of the block, which synccheck takes for
    // divergent where warps come to it in different places.)
    const auto once_more = [&](int pass) {
        if (!scaled) return false;
        sm90::barrier_wait(&judged, pass);
        bool wanted = false;
#pragma unroll
        for (int w = 0; w < narrowers / 32; w++) wanted |= wants[w];
        return wanted && pass == 0;
    };

    if (copies) {
        for (int pass = 0;; pass++) {
            if (lane == 0)
                for (int step = first; step < last; step++, advance()) {
                    sm90::barrier_wait(&empty[stage], phase ^ 1);
                    copy(step, stage, step - first >= early, NARROWED);
                }
            __syncwarp();
            if (!once_more(pass)) break;
        }
        if (p.ksplit > 1) sm90::cluster_sync(), sm90::cluster_sync();
        return;
    }

    if (warp >= multipliers / 32) {
        if (NARROWED) {
            if (p.ksplit > 1) sm90::cluster_sync(), sm90::cluster_sync();
            return;
        }
        // This thread's chunks of x: eight elements of the rows `token`, token + 16, ...
        const int chunk = threadIdx.x % 8, token = (threadIdx.x - multipliers) / 8;
        float scale[S::chunks];
#pragma unroll
        for (int i = 0; i < S::chunks; i++) scale[i] = 1.0f;
        for (int pass = 0;; pass++) {
            EightFloats ahead[S::ahead][S::chunks];
            float most[S::chunks] = {};
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
            for (int step = first; step < last; step += S::ahead) {
#pragma unroll
                for (int a = 0; a < S::ahead; a++) {
                    if (step + a >= last) break;
                    sm90::barrier_wait(&empty[stage], phase ^ 1);
                    char *const to = shared + stage * S::stage_bytes + S::w_bytes;
#pragma unroll
                    for (int i = 0; i < S::chunks; i++) { // with the swizzle of 128 bytes
                        *reinterpret_cast<Vec<T, 8> *>(to + (token + 16 * i) * sm90::row_bytes +
                                                       (chunk ^ token % 8) * 16) = narrow<T>(ahead[a][i], scale[i]);
                        if (scaled) most[i] = Max::combine(most[i], greatest(ahead[a][i]));
                    }
                    sm90::shared_writes_fence();
                    __syncwarp();
                    if (lane == 0) sm90::barrier_arrive(&full[stage]);
                    load(ahead[a], step + a + S::ahead);
                    advance();
                }
            }
            if (scaled) {
                bool wanted = false;
#pragma unroll
                for (int i = 0; i < S::chunks; i++) {
                    most[i] = warp_reduce<Max, 8>(most[i]);
                    wanted |= wants_scale(most[i]);
                    if (chunk == 0) inverse[token + 16 * i] = 1.0f / scale[i];
                }
                wanted = __any_sync(all_lanes, wanted);
                // which others may read until their end
                if (lane == 0 && pass == 0) wants[warp - multipliers / 32] = wanted;
                sm90::barrier_arrive(&judged); // each thread: racecheck does not see the order of a warp's barrier
            }
            if (!once_more(pass)) break;
#pragma unroll
            for (int i = 0; i < S::chunks; i++) scale[i] = power_of_two_scale(most[i]);
        }
        if (p.ksplit > 1) sm90::cluster_sync(), sm90::cluster_sync();
        return;
    }

    if (NARROWED && Scaled<T>::value && threadIdx.x < TOKENS)
        inverse[threadIdx.x] = threadIdx.x < p.n ? p.inverse[threadIdx.x] : 1.0f;
    float sum[TOKENS / 2];
    const int group = warp / 4;
    for (int pass = 0;; pass++) {
        int previous = -1;
        for (int step = first; step < last; step++, advance()) {
            char *const at = shared + stage * S::stage_bytes;
            sm90::barrier_wait(&full[stage], phase);
            const uint64_t w = sm90::describe(at + group * 64 * sm90::row_bytes, 0),
                           x = sm90::describe(at + S::w_bytes, 0);
            sm90::wgmma_fence();
#pragma unroll
            for (int k = 0; k < depth / 16; k++) // 16 columns are 32 bytes, two of the descriptor's units
                sm90::Wgmma<T, TOKENS, 0>::run(sum, w + 2 * k, x + 2 * k, step > first || k > 0);
            sm90::wgmma_commit();
            sm90::wgmma_wait<1>(); // these products stay in flight while the next stage is awaited
            if (previous >= 0 && lane == 0) sm90::barrier_arrive(&empty[previous]);
            previous = stage;
        }
        sm90::wgmma_wait<0>();
        if (previous >= 0 && lane == 0) sm90::barrier_arrive(&empty[previous]);
        if (!once_more(pass)) break;
    }
    // the sums take the place of stages that all have read
    if (p.ksplit > 1 || NARROWED) group_sync(1, multipliers);

    // sum[4 j + 2 h + e] is of row 64 group + 16 (warp % 4) + 8 h + lane / 4, of x's row 8 j + 2 (lane % 4) + e.
    float *const sums = reinterpret_cast<float *>(shared);
    sm90::settle(sum);
#pragma unroll
    for (int j = 0; j < TOKENS / 8; j++)
#pragma unroll
        for (int e = 0; e < 4; e++) {
            const int row = group * 64 + warp % 4 * 16 + lane / 4 + e / 2 * 8, t = 8 * j + lane % 4 * 2 + e % 2;
            const float y = Scaled<T>::value ? sum[4 * j + e] * inverse[t] : sum[4 * j + e];
            if (p.ksplit > 1) sums[t * S::sum_stride + row] = y;
            else if (t < p.n && row0 + row < p.rows)
                p.y[(int64_t)t * p.rows + row0 + row] = y + (p.bias ? p.bias[row0 + row] : 0.0f);
        }
    if (p.ksplit == 1) return;
    sm90::cluster_sync();
    reduce<S>(p, sums, row0, rank);
    sm90::cluster_sync(); // shared memory stays until no other block reads it
#endif
}

template <class T, int TOKENS>
vb_status launch_n64(const LinearArgs &a, vb_dtype type, vb_stream *stream) {
    using S = Shape<TOKENS>;
    constexpr bool narrowed = TOKENS > 32;
    const int ksplit = plan_ksplit(a.n, a.rows, a.cols, multiprocessors(stream));
    CUtensorMap map, x_map;
    VB_TRY(sm90::tensor_map(&map, a.w, type, a.cols, a.rows, a.cols, tile_rows, stream));
    Problem p = {a.y, a.x, a.bias, (int)a.n, (int)a.rows, (int)a.cols, ksplit, nullptr};
    if (narrowed) {
        NarrowRows<T> x;
        VB_TRY(narrow_rows<true>(&x, a.x, a.n, a.cols, a.cols, stream));
        p.inverse = x.inverse;
        VB_TRY(sm90::tensor_map(&x_map, x.rows, type, a.cols, a.n, a.cols, TOKENS, stream));
    } else {
        x_map = map;
    }
    return launch_cluster(stream, ksplit, (unsigned)(ceil_div(p.rows, tile_rows) * ksplit), threads, S::shared_bytes,
                          n64_kernel<T, TOKENS, narrowed>, map, x_map, p);
}

template <class T>
vb_status with_tokens(const LinearArgs &a, vb_dtype type, vb_stream *stream) {
    if (a.n <= 16) return launch_n64<T, 16>(a, type, stream);
    return a.n <= 32 ? launch_n64<T, 32>(a, type, stream) : launch_n64<T, 64>(a, type, stream);
}

} // namespace

vb_status stored_n64_sm90(const LinearArgs &a, vb_dtype type, vb_stream *stream) {
    return type == VB_F16 ? with_tokens<half>(a, type, stream) : with_tokens<bf16>(a, type, stream);
}

#endif

} // namespace vb
