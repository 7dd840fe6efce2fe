// w2a8_sm90.cu: out = X W^T for more than 16 rows of int8 activations, by Hopper's int8 wgmma (vb_w2a8_gemv).
//
//   grid     a cluster of `ksplit` blocks for each tile of 64 GROUPS rows of W and TOKENS rows of X
//   block    GROUPS warpgroups that multiply 64 rows of W each, and a warp that copies W and X by TMA, each into a ring
//   shared   the rings, of 512 elements of W and 128 of X a stage, and the messages of the cluster
//   moves    n k / 4 bytes of weights for each tile of X, m k bytes of X for each tile of W, from L2
//   bound    many rows: tensor cores, and the making of operands; few: latency
//
// W is the left factor of wgmma, in registers: a lane makes four bytes of the codes that four lanes share.
// X is the right factor. Where tiles are few, the blocks of a cluster share k, and each adds up eight rows of X from
// the others' messages.
// Tried and measured: docs/experiments/2026-11-29-w2a8-wgmma.md.

#include "arch/box_ring.cuh"
#include "arch/cluster.cuh"
#include "arch/wgmma_bytes.cuh"
#include "ternary/w2a8.cuh"

#ifdef VB_WITH_SM90

namespace vb {
namespace {

// elements of a stage of X; stages of X for one of W
constexpr int depth = TERNARY_WGMMA_DEPTH, steps_of_run = VB_INT2_RUN / depth, most_stages = TERNARY_WGMMA_STAGES;

struct Problem {
    vb_w2a8_gemv_args a;
    int ksplit, w_stages, x_stages, tiles; // blocks that share k, stages, tiles of W
};

template <int TOKENS, int GROUPS>
struct Shape {
    static constexpr int rows = 64 * GROUPS, multipliers = 128 * GROUPS, eights = TOKENS / 8;
    // registers of a thread: the block begins with as many for all
    static constexpr int of_copier = 32, of_multiplier = GROUPS == 2 ? 104 : GROUPS == 3 ? 160 : 112;
    static constexpr int w_bytes = rows * sm90::row_bytes, x_bytes = TOKENS * sm90::row_bytes;
};

#ifdef VB_SM90A

// The weights of codes 0 to 3, less one, in four bytes.
VB_DEVICE unsigned weights_of(unsigned word, int shift) {
    return ((word >> shift & 0x03030303u) + 0x7f7f7f7fu) ^ 0x80808080u;
}

#endif

template <int TOKENS, int GROUPS>
__global__ void __launch_bounds__(Shape<TOKENS, GROUPS>::multipliers + 128, GROUPS == 2 ? 2 : 1)
    w2a8_sm90_kernel(VB_IN_PLACE CUtensorMap w_map, VB_IN_PLACE CUtensorMap x_map, const Problem p) {
#ifdef VB_SM90A
    using S = Shape<TOKENS, GROUPS>;
    constexpr int eights = S::eights, multipliers = S::multipliers;
    extern __shared__ __align__(1024) char shared[];
    __shared__ uint64_t full[2][most_stages], empty[2][most_stages], mailbox;
    // Where the words lie in a row's run of 512 elements: of whole runs, and of the last.
    __shared__ int4 words[2][steps_of_run * depth / 64];
    const int warp = __shfl_sync(all_lanes, threadIdx.x / 32, 0), lane = threadIdx.x % 32;
    const int rank = p.ksplit > 1 ? cluster_rank() : 0;
    const unsigned tile = blockIdx.x / p.ksplit;
    const int row0 = tile % p.tiles * S::rows, token0 = tile / p.tiles * TOKENS;
    const int steps = (int)ceil_div<int64_t>(p.a.k, depth), pieces = (int)(p.a.row_bytes / 16);
    const int first = steps * rank / p.ksplit, last = steps * (rank + 1) / p.ksplit;
    const int mine = share_of(eights, rank, p.ksplit); // eights of rows of X that this block adds up
    sm90::BoxRing w = {shared, full[0], empty[0], S::w_bytes, p.w_stages},
                  x = {shared + p.w_stages * S::w_bytes, full[1], empty[1], S::x_bytes, p.x_stages};
    float4 *const inbox = reinterpret_cast<float4 *>(x.slots + p.x_stages * S::x_bytes); // [sender][mine][multipliers]
    if (threadIdx.x == 0) {
        sm90::prefetch_map(&w_map);
        sm90::prefetch_map(&x_map);
        sm90::begin_rings(full, empty, multipliers / 32, &mailbox);
    }
    if (threadIdx.x < 64) {
        const int of = threadIdx.x / 32, in_run = of == 0 ? 8 : larger(1, pieces % 8);
        reinterpret_cast<int *>(words[of])[lane] = lane % in_run * 16 + (lane / in_run & 3) * 4;
    }
    __syncthreads();
    if (p.ksplit > 1) open_mailboxes(&mailbox, (p.ksplit - 1) * mine * multipliers * (int)sizeof(float4));
    if (warp >= multipliers / 32) {
        sm90::registers_shrink<S::of_copier>();
        if (!p.a.settled) wait_for_previous_kernel();
        if (warp == multipliers / 32 && lane == 0) {
            int run = first / steps_of_run;
            const auto ask_w = [&](int step) { // the run of the step
                while (run < ceil_div(last, steps_of_run) && run <= step / steps_of_run)
                    w.ask(&w_map, run++ * (VB_INT2_RUN / 8), row0); // in units of 16 bits
            };
            ask_w((first / steps_of_run + p.w_stages) * steps_of_run - 1);
            if (p.a.settled) wait_for_previous_kernel();
            for (int step = first; step < last; step++) {
                x.ask(&x_map, step * (depth / 2), token0);
                // A run of W is asked for when the ring of X holds the step before it.
                ask_w(step + 1);
            }
        }
        return;
    }
    sm90::registers_grow<S::of_multiplier>();
    wait_for_previous_kernel();
    release_next_kernel();

    int sum[TOKENS / 2];
#pragma unroll
    for (int i = 0; i < TOKENS / 2; i++) sum[i] = 0;
    unsigned a[2][depth / 64][4];
    const int g = lane / 4, shift = lane % 4 * 2;
    const unsigned of_lane = shared_address(shared) + (warp * 16 + g) * sm90::row_bytes + g * 16;
    int previous = -1;
    for (int step = first; step < last; step++) {
        if (step == first || step % steps_of_run == 0) w.wait_full();
        const unsigned rows = of_lane + w.slot * S::w_bytes;
        const int4 *const at = &words[step / steps_of_run == pieces / 8][step % steps_of_run * (depth / 64)];
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const int4 four = at[half];
            const int places[4] = {four.x, four.y, four.z, four.w};
#pragma unroll
            for (int i = 0; i < 4; i++) { // behind the last element X is zero, and words may be any
                unsigned upper, lower;
                asm volatile("ld.shared.u32 %0, [%1];" : "=r"(upper) : "r"(rows ^ places[i]) : "memory");
                asm volatile("ld.shared.u32 %0, [%1 + %2];"
                             : "=r"(lower)
                             : "r"(rows ^ places[i]), "n"(8 * sm90::row_bytes)
                             : "memory");
                a[half][i / 2][i % 2 * 2] = weights_of(upper, shift);
                a[half][i / 2][i % 2 * 2 + 1] = weights_of(lower, shift);
            }
            if (half == 0) x.wait_full();
            const uint64_t right = sm90::describe(x.at(), 0) + 4 * half;
            sm90::wgmma_fence();
#pragma unroll
            for (int i = 0; i < depth / 64; i++) sm90::WgmmaBytes<TOKENS>::run(sum, a[half][i], right + 2 * i);
            sm90::wgmma_commit();
            sm90::wgmma_wait<1>(); // these products stay in flight while the next operands are made
            if (half == 0 && previous >= 0 && lane == 0) sm90::barrier_arrive(&x.empty[previous]);
        }
        if (step % steps_of_run == steps_of_run - 1) {
            __syncwarp();
            if (lane == 0) sm90::barrier_arrive(&w.empty[w.slot]);
            w.advance();
        }
        previous = x.slot;
        x.advance();
    }
    sm90::wgmma_wait<0>();
    sm90::settle(sum);

    const int64_t row = row0 + warp * 16 + g;
    const Ending of_row[2] = {ending_of_row(p.a, smaller(row, p.a.n - 1)),
                              ending_of_row(p.a, smaller(row + 8, p.a.n - 1))};
    const auto store = [&](int j, int4 v) {
        const int sums[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const int64_t token = token0 + 8 * j + lane % 4 * 2 + i % 2, r = row + i / 2 * 8;
            if (token < p.a.m && r < p.a.n)
                store_sum(p.a, token, r, sums[i], ending_of_token(p.a, of_row[i / 2], token, r));
        }
    };
    const auto eight = [&](int j) { return make_int4(sum[4 * j], sum[4 * j + 1], sum[4 * j + 2], sum[4 * j + 3]); };
    if (p.ksplit == 1) {
#pragma unroll
        for (int j = 0; j < eights; j++) store(j, eight(j));
        return;
    }
#pragma unroll
    for (int j = 0; j < eights; j++) {
        const int to = j % p.ksplit;
        if (to == rank) continue;
        const int places = share_of(eights, to, p.ksplit), sender = rank < to ? rank : rank - 1;
        const int4 v = eight(j);
        send4(cluster_address(inbox + (sender * places + j / p.ksplit) * multipliers + threadIdx.x, to),
              cluster_address(&mailbox, to),
              make_float4(__int_as_float(v.x), __int_as_float(v.y), __int_as_float(v.z), __int_as_float(v.w)));
    }
    if (mine == 0) return;
    mailbox_wait(&mailbox);
#pragma unroll
    for (int j = 0; j < eights; j++) {
        if (j % p.ksplit != rank) continue;
        int4 v = eight(j);
        for (int r = 0; r + 1 < p.ksplit; r++) {
            const int4 part =
                reinterpret_cast<const int4 *>(inbox)[(r * mine + j / p.ksplit) * multipliers + threadIdx.x];
            v.x += part.x, v.y += part.y, v.z += part.z, v.w += part.w;
        }
        store(j, v);
    }
#endif
}

template <int TOKENS, int GROUPS>
vb_status launch_sm90(const vb_w2a8_gemv_args &a, const ternary_wgmma &c, vb_stream *stream) {
    using S = Shape<TOKENS, GROUPS>;
    CUtensorMap w_map, x_map; // of 16 bits, which two codes of activations and eight of weights fill
    VB_TRY(sm90::tensor_map(&w_map, a.weights, VB_F16, a.row_bytes / 2, a.n, a.row_bytes / 2, S::rows, stream));
    VB_TRY(sm90::tensor_map(&x_map, a.activations, VB_F16, a.k / 2, a.m, a.k / 2, TOKENS, stream));
    const Problem p = {a, c.split, TERNARY_WGMMA_RUNS, c.x_stages, (int)ceil_div<int64_t>(a.n, S::rows)};
    const void *parameters[] = {&w_map, &x_map, &p};
    return launch_kernel(stream, (const void *)w2a8_sm90_kernel<TOKENS, GROUPS>, dim3((unsigned)c.blocks),
                         S::multipliers + 128, c.shared_bytes, c.split, LAUNCH_OVERLAPPED | LAUNCH_BALANCED,
                         (void **)parameters);
}

} // namespace

vb_status w2a8_sm90(const vb_w2a8_gemv_args &a, const ternary_wgmma &c, vb_stream *stream) {
    switch (c.tokens * 8 + c.groups) {
    case 64 * 8 + 2: return launch_sm90<64, 2>(a, c, stream);
    case 64 * 8 + 4: return launch_sm90<64, 4>(a, c, stream);
    case 128 * 8 + 3: return launch_sm90<128, 3>(a, c, stream);
    default: return launch_sm90<128, 4>(a, c, stream);
    }
}

} // namespace vb

#endif
