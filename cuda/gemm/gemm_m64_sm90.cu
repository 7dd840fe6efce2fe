// gemm_m64_sm90.cu: products of up to 64 rows of F16 or BF16 with a matrix that is read once, on Hopper:
// y[m][n] = x[m][k] W, W stored [k][n] or [n][k], x stored [m][k] or [k][m]. Of up to 64 columns of B and more rows of
// A, x is B turned, W is A turned, and y is written turned.
//
// W, in either order, is the left factor of wgmma, and fills its 64 rows. x is the right factor: a column for each row
// of x. Where tiles are few, the blocks of a cluster share k, and each adds up eight rows of x from the others'
// messages.
//
//   grid     (tiles of 128 columns of y, in clusters of `ksplit` blocks; matrices)
//   block    two warpgroups that multiply, a warp that copies W by TMA and a warp that copies x, each into a ring
//   shared   the rings, of stages of 64 of k, and the messages of the cluster. They are about half of an SM's, so that
//            the next kernel's blocks are there, with their barriers and maps, when this kernel ends
//   moves    2 k n bytes once; 2 m k bytes for each tile from L2
//   bound    memory that holds W
//   measured docs/experiments/2026-11-22-gemm.md

#include "arch/box_ring.cuh"
#include "arch/cluster.cuh"
#include "gemm/gemm_sm90.cuh"
#include "arch/mma.cuh"
#include "arch/sm90.cuh"

namespace vb {

#ifdef VB_WITH_SM90

namespace {

constexpr int depth = GEMM_M64_DEPTH, tile_rows = GEMM_M64_TILE; // of W: columns of y
constexpr int multipliers = 256, threads = multipliers + 64;
constexpr int most_stages = 12;
constexpr int w_bytes = tile_rows * sm90::row_bytes;

template <class T>
struct Problem {
    T *y;
    int64_t y_stride, y_batch_stride; // between rows (of a turned y, columns), between matrices
    bool x_shared, w_shared;          // one matrix for all of the batch
    bool turned;      // a column of y is a row of C
    bool pairs;       // two elements of a row of C are written at once
    int m, n, k, ksplit, w_stages, x_stages;
};

#ifdef VB_SM90A

// Writes sums of a thread: of columns g and g + 8 of y, rows 8 j + 2 c and + 1; exchanged with others where y is not
// turned, so that it has neighbours in C.
template <class T>
VB_DEVICE void store(const Problem<T> &p, float4 v, int j, int column, int lane) {
    const int g = lane / 4, c = lane % 4;
    T *const matrix = p.y + blockIdx.y * p.y_batch_stride;
    const auto store_two = [&](T *to, unsigned two, int inside) {
        if (p.pairs && inside >= 2) {
            *reinterpret_cast<unsigned *>(to) = two;
        } else {
            if (inside >= 1) to[0] = reinterpret_cast<const T *>(&two)[0];
            if (inside >= 2) to[1] = reinterpret_cast<const T *>(&two)[1];
        }
    };
    if (p.turned) {
        const int left = p.m - 8 * j - 2 * c;
        T *const y = matrix + (column + g) * p.y_stride + 8 * j + 2 * c;
        if (column + g < p.n) store_two(y, pack<T>(v.x, v.y), left);
        if (column + g + 8 < p.n) store_two(y + 8 * p.y_stride, pack<T>(v.z, v.w), left);
        return;
    }
    const unsigned low = transposed(pack<T>(v.x, v.y)), high = transposed(pack<T>(v.z, v.w));
    T *const y = matrix + (8 * j + g) * p.y_stride + column + 2 * c;
    if (8 * j + g >= p.m) return;
    const int left = p.n - column - 2 * c;
    store_two(y, low, left);
    store_two(y + 8, high, left - 8);
}

#endif

// Bytes of a stage of x: of x stored [k][m] whole rows of 64.
template <int TOKENS, bool X_MN>
constexpr int x_bytes_of = (X_MN ? tile_rows / 2 : TOKENS) * sm90::row_bytes;

template <class T, int TOKENS, bool W_MN, bool X_MN>
__global__ void __launch_bounds__(threads, 2)
    gemm_m64_kernel(VB_IN_PLACE CUtensorMap w_map, VB_IN_PLACE CUtensorMap x_map,
                    const Problem<T> p) {
#ifdef VB_SM90A
    constexpr int eights = TOKENS / 8, x_bytes = x_bytes_of<TOKENS, X_MN>;
    extern __shared__ __align__(1024) char shared[];
    __shared__ uint64_t full[2][most_stages], empty[2][most_stages], mailbox;
    const int warp = __shfl_sync(all_lanes, threadIdx.x / 32, 0), lane = threadIdx.x % 32;
    const int rank = p.ksplit > 1 ? cluster_rank() : 0;
    const int z = blockIdx.y, row0 = blockIdx.x / p.ksplit * tile_rows, steps = ceil_div(p.k, depth);
    const int first = steps * rank / p.ksplit, last = steps * (rank + 1) / p.ksplit;
    const int mine = share_of(eights, rank, p.ksplit); // eights of rows of x that this block adds up
    sm90::BoxRing w = {shared, full[0], empty[0], w_bytes, p.w_stages},
                  x = {shared + p.w_stages * w_bytes, full[1], empty[1], x_bytes, p.x_stages};
    float4 *const inbox = reinterpret_cast<float4 *>(x.slots + p.x_stages * x_bytes); // [sender][mine][multipliers]
    if (threadIdx.x == 0) {
        sm90::prefetch_map(&w_map);
        sm90::prefetch_map(&x_map);
        sm90::begin_rings(full, empty, multipliers / 32, &mailbox);
    }
    __syncthreads();
    const int copier = warp - multipliers / 32; // 0: of W, 1: of x
    if (p.ksplit > 1) open_mailboxes(&mailbox, (p.ksplit - 1) * mine * multipliers * (int)sizeof(float4));
    wait_for_previous_kernel();
    release_next_kernel();
    if (copier == 0) {
        if (lane == 0)
            for (int step = first; step < last; step++, w.advance()) {
                const int k = step * depth;
                w.expect();
                sm90::copy_box(w.at(), &w_map, &w.full[w.slot], W_MN ? row0 : k, W_MN ? k : row0, p.w_shared ? 0 : z);
                if (W_MN)
                    sm90::copy_box(w.at() + w_bytes / 2, &w_map, &w.full[w.slot], row0 + 64, k, p.w_shared ? 0 : z);
            }
        return;
    }
    if (copier == 1) {
        if (lane == 0)
            for (int step = first; step < last; step++, x.advance()) {
                x.expect();
                sm90::copy_box(x.at(), &x_map, &x.full[x.slot], X_MN ? 0 : step * depth, X_MN ? step * depth : 0,
                               p.x_shared ? 0 : z);
            }
        return;
    }

    float sum[TOKENS / 2];
    const int group = warp / 4;
    int previous_w = -1, previous_x = -1;
    for (int step = first; step < last; step++) {
        w.wait_full();
        x.wait_full();
        const uint64_t left = sm90::describe(w.at() + group * (w_bytes / 2), w_bytes / 2),
                       right = sm90::describe(x.at(), 0);
        constexpr int w_step = W_MN ? 16 * sm90::row_bytes / 16 : 2; // 16 of k, in the descriptor's units
        constexpr int x_step = X_MN ? 16 * sm90::row_bytes / 16 : 2;
        sm90::wgmma_fence();
#pragma unroll
        for (int i = 0; i < depth / 16; i++)
            sm90::Wgmma<T, TOKENS, X_MN, W_MN>::run(sum, left + w_step * i, right + x_step * i, step > first || i > 0);
        sm90::wgmma_commit();
        sm90::wgmma_wait<1>(); // these products stay in flight while the next stage is awaited
        if (previous_w >= 0 && lane == 0) {
            sm90::barrier_arrive(&w.empty[previous_w]);
            sm90::barrier_arrive(&x.empty[previous_x]);
        }
        previous_w = w.slot, previous_x = x.slot;
        w.advance(), x.advance();
    }
    sm90::wgmma_wait<0>();
    sm90::settle(sum);

    const int row = row0 + group * 64 + warp % 4 * 16;
    const auto eight = [&](int j) { return make_float4(sum[4 * j], sum[4 * j + 1], sum[4 * j + 2], sum[4 * j + 3]); };
    if (p.ksplit == 1) {
#pragma unroll
        for (int j = 0; j < eights; j++) store(p, eight(j), j, row, lane);
        return;
    }
#pragma unroll
    for (int j = 0; j < eights; j++) {
        const int to = j % p.ksplit;
        if (to == rank) continue;
        const int places = share_of(eights, to, p.ksplit), sender = rank < to ? rank : rank - 1;
        send4(cluster_address(inbox + (sender * places + j / p.ksplit) * multipliers + threadIdx.x, to),
              cluster_address(&mailbox, to), eight(j));
    }
    if (mine == 0) return;
    mailbox_wait(&mailbox);
#pragma unroll
    for (int j = 0; j < eights; j++) {
        if (j % p.ksplit != rank) continue;
        float4 v = make_float4(0, 0, 0, 0);
        for (int r = 0; r < p.ksplit; r++) { // in the order of k
            const float4 part = r == rank
                                    ? eight(j)
                                    : inbox[((r < rank ? r : r - 1) * mine + j / p.ksplit) * multipliers + threadIdx.x];
            v.x += part.x, v.y += part.y, v.z += part.z, v.w += part.w;
        }
        store(p, v, j, row, lane);
    }
#endif
}

// The product as the kernel has it, of up to 64 rows of x.
struct Operand {
    const void *data;
    int64_t stride, batch_stride;
    bool mn; // k is not innermost

    // As TMA copies it, of so many rows or columns beside k.
    vb_status map(CUtensorMap *map, const vb_matmul_args &a, int64_t others, int box, vb_stream *stream) const {
        const int64_t matrices = batch_stride ? a.batch : 1;
        return sm90::tensor_map<3>(map, data, a.type, {mn ? others : a.k, mn ? a.k : others, matrices},
                                   {stride, matrices > 1 ? batch_stride : stride}, mn ? depth : box, stream);
    }
};
struct Operands {
    Operand x, w;
    int64_t m, n;
    bool turned;
};
Operands operands_of(const vb_matmul_args &a) {
    const Operand of_a = {a.a, a.a_stride, a.a_batch_stride, a.a_transposed != 0},
                  of_b = {a.b, a.b_stride, a.b_batch_stride, !a.b_transposed};
    if (gemm_m64_turned(&a)) return {of_b, of_a, a.n, a.m, true};
    return {of_a, of_b, a.m, a.n, false};
}

template <class T, int TOKENS, bool W_MN, bool X_MN>
vb_status launch_m64(const vb_matmul_args &a, const Operands &of, vb_stream *stream) {
    const int64_t m = of.m, k = a.k, n = of.n;
    CUtensorMap w_map, x_map;
    VB_TRY(of.w.map(&w_map, a, n, tile_rows, stream));
    VB_TRY(of.x.map(&x_map, a, m, TOKENS, stream));
    constexpr int x_bytes = x_bytes_of<TOKENS, X_MN>, room = 112 << 10; // of 227 KiB of an SM, with static memory
    const int ksplit = gemm_m64_ksplit(m, n, k, a.batch, multiprocessors(stream));
    const int inbox = (ksplit - 1) * ceil_div(TOKENS / 8, ksplit) * multipliers * (int)sizeof(float4);
    const int x_stages = TOKENS == 64 || X_MN ? 4 : 6,
              w_stages = smaller(most_stages, (room - inbox - x_stages * x_bytes) / w_bytes);
    const bool pairs = (uintptr_t)a.c % 4 == 0 && a.c_stride % 2 == 0 && a.c_batch_stride % 2 == 0;
    const Problem<T> p = {(T *)a.c, a.c_stride, a.c_batch_stride, of.x.batch_stride == 0, of.w.batch_stride == 0,
                          of.turned, pairs, (int)m, (int)n, (int)k, ksplit, w_stages, x_stages};
    const void *parameters[] = {&w_map, &x_map, &p};
    return launch_kernel(stream, (const void *)gemm_m64_kernel<T, TOKENS, W_MN, X_MN>,
                         dim3((unsigned)(ceil_div<int64_t>(n, tile_rows) * ksplit), (unsigned)a.batch), threads,
                         w_stages * w_bytes + x_stages * x_bytes + inbox, ksplit, LAUNCH_OVERLAPPED | LAUNCH_BALANCED,
                         (void **)parameters);
}

} // namespace

vb_status gemm_m64_sm90(const vb_matmul_args &x, vb_stream *stream) {
    const Operands of = operands_of(x);
    const auto with_layout = [&](auto tokens, auto t) {
        using T = decltype(t);
        if (of.x.mn)
            return of.w.mn ? launch_m64<T, tokens.value, true, true>(x, of, stream)
                           : launch_m64<T, tokens.value, false, true>(x, of, stream);
        return of.w.mn ? launch_m64<T, tokens.value, true, false>(x, of, stream)
                       : launch_m64<T, tokens.value, false, false>(x, of, stream);
    };
    const auto with_type = [&](auto tokens) {
        return x.type == VB_F16 ? with_layout(tokens, half()) : with_layout(tokens, bf16());
    };
    return of.m <= 16   ? with_type(Constant<16>())
           : of.m <= 32 ? with_type(Constant<32>())
                        : with_type(Constant<64>());
}

#endif

} // namespace vb
