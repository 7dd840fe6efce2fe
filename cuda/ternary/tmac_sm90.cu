// tmac_sm90.cu: products with ternary weights of many columns of floats, by Hopper's int8 wgmma (vb_tmac_matmul).
//
//   grid     rounding: a block for 256 elements of 32 columns
//            product: a cluster of `split` blocks, which share k, for each tile of 64 GROUPS rows and COLUMNS columns
//   block    GROUPS warpgroups that multiply 64 rows each, and a warp that copies weights and planes by TMA into rings
//   shared   the rings, of 512 elements of weights and 128 of planes a stage; steps; the messages of the cluster
//   moves    m k / 4 bytes of weights for each tile of columns, 2 n k bytes of planes for each tile of rows, from L2
//   bound    tensor cores: two planes
//
// Weights are the left factor of wgmma, in registers: a lane makes four bytes of four codes by one table of a byte
// each. Sums of 256 elements are exact integers, which are then scaled by the steps of rounding.cuh.
// Tried and measured: docs/experiments/2026-11-29-ternary-many-columns.md.

#include "arch/box_ring.cuh"
#include "arch/cluster.cuh"
#include "arch/wgmma_bytes.cuh"
#include "ternary/rounding.cuh"

#ifdef VB_WITH_SM90

namespace vb {
namespace {

constexpr int unit = TERNARY_TMAC_UNIT, most_stages = TERNARY_WGMMA_STAGES;
constexpr int round_threads = 256, round_columns = 32;

// The columns as the product reads them. Column 16 t + 4 p + i of a tile is an instruction's columns 8 (4 t + i) + 2 p
// (high) and the next (low), so that a thread has sums of four neighbouring columns.
struct Planes {
    char *codes;            // [2 padded][units][256], in the order of operands
    float *steps, *squares; // [units][padded]
    int64_t units, padded;  // padded: columns of whole tiles
};

// Rows of 32 columns in shared memory, in units of 16 bytes: eight lanes that read rows 0, 1, 8, 9, 16, 17, 24, 25
// of a block of 32 meet in no bank.
VB_DEVICE int place_of(int row) { return 9 * row + row / 8 * 2; }
constexpr int round_places = 9 * unit + unit / 8 * 2;

__global__ void __launch_bounds__(round_threads) tmac_round_kernel(vb_tmac_matmul_args a, Planes to) {
    __shared__ float4 rows[round_places];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int64_t u = blockIdx.x, first = u * unit, column0 = (int64_t)blockIdx.y * round_columns;
    wait_for_previous_kernel();
    release_next_kernel();
    const int four = threadIdx.x % 8; // columns that the thread reads
    const int64_t live = a.n - column0 - 4 * four;
    const float *const from = a.activations + first * a.n + column0 + 4 * four;
    const bool vectors = a.n % 4 == 0 && reinterpret_cast<uintptr_t>(a.activations) % 16 == 0;
    float4 read[unit / 32];
#pragma unroll
    for (int i = 0; i < unit / 32; i++) {
        const int row = threadIdx.x / 8 + 32 * i;
        const float *const at = from + row * a.n;
        read[i] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        if (live <= 0 || first + row >= a.k) continue;
        if (vectors) {
            read[i] = *reinterpret_cast<const float4 *>(at);
        } else {
            read[i].x = at[0];
            if (live > 1) read[i].y = at[1];
            if (live > 2) read[i].z = at[2];
            if (live > 3) read[i].w = at[3];
        }
    }
#pragma unroll
    for (int i = 0; i < unit / 32; i++) rows[place_of(threadIdx.x / 8 + 32 * i) + four] = read[i];
    __syncthreads();
    // Piece, word of a piece, half of a word, and bits of a nibble.
    const auto element = [&](int i) {
        return 64 * (lane / 16 * 2 + i / 4) + 16 * (lane / 4 % 4) + 8 * (lane / 2 % 2) + 2 * (i % 4) + lane % 2;
    };
    const int64_t column = column0 + 4 * warp;
    FloatColumns<4> floats;
#pragma unroll
    for (int i = 0; i < 8; i++) {
        const float4 v = rows[place_of(element(i)) + warp];
        floats.h[i][0] = v.x, floats.h[i][1] = v.y, floats.h[i][2] = v.z, floats.h[i][3] = v.w;
    }
    float squares[4];
    if (a.normed) floats.weigh(a, first, element, squares);
    float steps[4];
#pragma unroll
    for (int c = 0; c < 4; c++) {
        const RoundedColumn rounded = floats.round(c);
        const int64_t own = column + c, row = 8 * (own / 16 * 4 + own % 4) + own % 16 / 4 * 2,
                      row_bytes = to.units * unit;
        char *const at = to.codes + row * row_bytes + first + lane % 16 * 16 + lane / 16 * 8;
        *reinterpret_cast<uint2 *>(at) = make_uint2(rounded.high[0], rounded.high[1]);
        *reinterpret_cast<uint2 *>(at + row_bytes) = make_uint2(rounded.low[0], rounded.low[1]);
        steps[c] = rounded.step;
    }
    if (lane == 0) {
        const auto store = [&](float *row, const float(&v)[4]) {
            *reinterpret_cast<float4 *>(row + u * to.padded + column) = make_float4(v[0], v[1], v[2], v[3]);
        };
        store(to.steps, steps);
        if (a.normed) store(to.squares, squares);
    }
}

struct Problem {
    vb_tmac_matmul_args a;
    Planes h;
    int split, x_stages, tiles, units; // blocks that share k, stages, tiles of rows, most units of a block
};

template <int COLUMNS, int GROUPS>
struct Shape {
    static constexpr int rows = 64 * GROUPS, multipliers = 128 * GROUPS, fours = COLUMNS / 8; // of a thread's sums
    // registers of a thread: the block begins with as many for all
    static constexpr int of_copier = COLUMNS == 128 ? 24 : 32,
                         of_multiplier = COLUMNS == 128 ? 240 : COLUMNS == 64 ? (GROUPS == 2 ? 224 : 160)
                                                                              : (GROUPS == 2 ? 104 : 112);
    // Warpgroups take turns, so that one multiplies while the others scale their sums.
    static constexpr bool turns = COLUMNS >= 64;
    static constexpr int held = COLUMNS == 64 ? 4 : 2; // words of operands
    static constexpr int w_bytes = rows * sm90::row_bytes, x_bytes = 2 * COLUMNS * sm90::row_bytes;
};

VB_DEVICE unsigned word_of(const uint4 &v, int i) { return i == 0 ? v.x : i == 1 ? v.y : i == 2 ? v.z : v.w; }

template <int COLUMNS, int GROUPS>
__global__ void __launch_bounds__(Shape<COLUMNS, GROUPS>::multipliers + 128, COLUMNS == 32 && GROUPS == 2 ? 2 : 1)
    tmac_sm90_kernel(VB_IN_PLACE CUtensorMap w_map, VB_IN_PLACE CUtensorMap x_map, const Problem p) {
#ifdef VB_SM90A
    using S = Shape<COLUMNS, GROUPS>;
    using Product = sm90::WgmmaBytes<2 * COLUMNS>;
    constexpr int multipliers = S::multipliers, fours = S::fours, helpers = 96;
    extern __shared__ __align__(1024) char shared[];
    __shared__ uint64_t full[2][most_stages], empty[2][most_stages], mailbox;
    __shared__ float factors[COLUMNS]; // of the norm
    const int warp = __shfl_sync(all_lanes, threadIdx.x / 32, 0), lane = threadIdx.x % 32;
    const int rank = p.split > 1 ? cluster_rank() : 0;
    const unsigned tile = blockIdx.x / p.split;
    const int row0 = tile % p.tiles * S::rows, column0 = tile / p.tiles * COLUMNS;
    const int all_units = (int)p.h.units, first = all_units * rank / p.split, last = all_units * (rank + 1) / p.split;
    const int mine = share_of(fours, rank, p.split); // fours of each thread's sums that this block adds up
    sm90::BoxRing w = {shared, full[0], empty[0], S::w_bytes, TERNARY_WGMMA_RUNS},
                  x = {shared + TERNARY_WGMMA_RUNS * S::w_bytes, full[1], empty[1], S::x_bytes, p.x_stages};
    float *const steps = reinterpret_cast<float *>(x.slots + p.x_stages * S::x_bytes); // [unit][COLUMNS]
    float4 *const inbox = reinterpret_cast<float4 *>(steps + p.units * COLUMNS);       // [sender][mine][multipliers]
    if (threadIdx.x == 0) {
        sm90::prefetch_map(&w_map);
        sm90::prefetch_map(&x_map);
        sm90::begin_rings(full, empty, multipliers / 32, &mailbox);
    }
    __syncthreads();
    if (p.split > 1) open_mailboxes(&mailbox, (p.split - 1) * mine * multipliers * (int)sizeof(float4));
    if (warp >= multipliers / 32) {
        sm90::registers_shrink<S::of_copier>();
        if (warp == multipliers / 32 && lane == 0) {
            int run = first / 2;
            const auto ask_w = [&](int until) { // runs of two units, at places in units of 16 bits
                while (2 * run < last && run <= until) w.ask(&w_map, run++ * unit / 4, row0);
            };
            // The kernel before is the one that rounds: weights are as its own predecessor left them.
            ask_w(first / 2 + TERNARY_WGMMA_RUNS - 1);
            wait_for_previous_kernel();
            for (int u = first; u < last; u++) {
                for (int half = 0; half < 2; half++) x.ask(&x_map, u * (unit / 2) + half * 64, 2 * column0);
                ask_w((u + 2) / 2);
            }
        }
        if (warp > multipliers / 32) { // what scales sums
            wait_for_previous_kernel();
            const int thread = threadIdx.x - multipliers - 32;
            for (int i = thread; i < (last - first) * (COLUMNS / 4); i += helpers)
                reinterpret_cast<float4 *>(steps)[i] = *reinterpret_cast<const float4 *>(
                    p.h.steps + (first + i / (COLUMNS / 4)) * p.h.padded + column0 + i % (COLUMNS / 4) * 4);
            for (int c = thread; c < COLUMNS; c += helpers) {
                float factor = 1.0f;
                if (p.a.normed) {
                    float squares = 0.0f;
                    for (int u = 0; u < all_units; u++) squares += p.h.squares[u * p.h.padded + column0 + c];
                    factor = 1.0f / sqrtf(squares / float(p.a.k) + p.a.eps);
                }
                factors[c] = factor;
            }
            group_arrive(1, multipliers + helpers);
        }
        return;
    }
    sm90::registers_grow<S::of_multiplier>();
    wait_for_previous_kernel();
    release_next_kernel();

    float all[fours][4] = {}; // of row 8 (f % 2), columns 16 (f / 2) + 4 part on
    int sum[COLUMNS];         // of a unit: high and low planes
    unsigned operands[S::held][2][4];
    const int group = lane / 4, part = lane % 4;
    const int64_t row = row0 + warp * 16 + group;
    const bool grouped = p.a.groups > 1 && p.a.scales;
    const int64_t units_a_group = p.a.groups > 1 ? p.a.k / p.a.groups / unit : 1;
    float row_scale[2] = {1.0f, 1.0f};
    if (p.a.scales && !grouped)
#pragma unroll
        for (int r = 0; r < 2; r++) row_scale[r] = p.a.scales[smaller(row + 8 * r, p.a.m - 1)];
    const char *const of_lane = shared + (warp * 16 + group) * sm90::row_bytes;
    uint4 pieces[2]; // of a unit's rows `group` and 8 more
    const auto load = [&](int u) {
        if (u == first || u % 2 == 0) w.wait_full();
        const char *const from = of_lane + w.slot * S::w_bytes + (((u % 2 * 4 + part) ^ group) * 16);
#pragma unroll
        for (int r = 0; r < 2; r++)
            pieces[r] = *reinterpret_cast<const uint4 *>(from + r * 8 * sm90::row_bytes);
        if (u % 2 == 1 || u + 1 == last) {
            __syncwarp();
            if (lane == 0) sm90::barrier_arrive(&w.empty[w.slot]);
            w.advance();
        }
    };
    const auto make = [&](int word) {
#pragma unroll
        for (int r = 0; r < 2; r++)
#pragma unroll
            for (int shift = 0; shift < 2; shift++) { // a nibble chooses a byte of the table: a code less one
                const unsigned nibbles = word_of(pieces[r], word) >> (2 * shift) & 0x33333333u;
#pragma unroll
                for (int half = 0; half < 2; half++)
                    operands[word % S::held][half][r + 2 * shift] = __byte_perm(0x020100ffu, 0, nibbles >> (16 * half));
            }
    };
    const auto make_held = [&] {
#pragma unroll
        for (int word = 0; word < (S::held == 4 ? 4 : 1); word++) make(word);
    };
    const int own_turn = warp / 4, next_turn = own_turn + 1 == GROUPS ? 0 : own_turn + 1;
    if (S::turns && next_turn == 0) group_arrive(2, 256);
    load(first);
    make_held();
    for (int u = first; u < last; u++) {
        x.wait_full();
        if (S::turns) group_sync(2 + own_turn, 256);
        int left[2]; // stages
#pragma unroll
        for (int word = 0; word < 4; word++) {
            if (word == 2) x.wait_full();
            const uint64_t right = sm90::describe(x.at(), 0) + word % 2 * 4;
            sm90::wgmma_fence();
            if (word == 0)
                Product::start(sum, operands[0][0], right);
            else
                Product::run(sum, operands[word % S::held][0], right);
            Product::run(sum, operands[word % S::held][1], right + 2);
            sm90::wgmma_commit();
            if (S::turns && word == 3 && (next_turn > 0 || u + 1 < last)) group_arrive(2 + next_turn, 256);
            if (word % 2 == 1) {
                left[word / 2] = x.slot;
                x.advance();
            }
            if (S::held == 2 && word < 3) {
                if (word > 0) sm90::wgmma_wait<1>(); // these products stay in flight while the next operands are made
                make(word + 1);
            }
        }
        if (u + 1 < last) {
            load(u + 1);
            if (S::held == 2) {
                sm90::wgmma_wait<1>();
                make(0);
            }
        }
        sm90::wgmma_wait<0>();
        sm90::settle(sum);
        if (lane < 2) sm90::barrier_arrive(&x.empty[lane == 0 ? left[0] : left[1]]);
        if (u == first) group_sync(1, multipliers + helpers);
        float scale[2] = {1.0f, 1.0f};
        if (grouped)
#pragma unroll
            for (int r = 0; r < 2; r++)
                scale[r] = p.a.scales[smaller(row + 8 * r, p.a.m - 1) * p.a.groups + u / units_a_group];
#pragma unroll
        for (int s = 0; s < COLUMNS / 16; s++) {
            const float4 four = reinterpret_cast<const float4 *>(steps + (u - first) * COLUMNS)[4 * s + part];
            const float step[4] = {four.x, four.y, four.z, four.w};
#pragma unroll
            for (int i = 0; i < 4; i++)
#pragma unroll
                for (int r = 0; r < 2; r++) {
                    const int at = 4 * (4 * s + i) + 2 * r;
                    float &to = all[2 * s + r][i];
                    to = fmaf(float(sum[at] * low_codes + sum[at + 1]), step[i] * scale[r], to);
                }
        }
        if (S::held == 4 && u + 1 < last) make_held();
    }

    const bool vectors = p.a.n % 4 == 0 && reinterpret_cast<uintptr_t>(p.a.out) % 16 == 0;
    const auto four = [&](int f) { return make_float4(all[f][0], all[f][1], all[f][2], all[f][3]); };
    const auto store = [&](int f, const float4 &v) {
        const int own = f / 2 * 16 + 4 * part;
        const int64_t r = row + f % 2 * 8, column = column0 + own;
        if (r >= p.a.m || column >= p.a.n) return;
        const float scale = row_scale[f % 2], of[4] = {v.x * (factors[own] * scale), v.y * (factors[own + 1] * scale),
                                                       v.z * (factors[own + 2] * scale),
                                                       v.w * (factors[own + 3] * scale)};
        float *const out = p.a.out + r * p.a.n + column;
        if (vectors) {
            *reinterpret_cast<float4 *>(out) = make_float4(of[0], of[1], of[2], of[3]);
        } else {
#pragma unroll
            for (int c = 0; c < 4; c++)
                if (column + c < p.a.n) out[c] = of[c];
        }
    };
    if (p.split == 1) {
#pragma unroll
        for (int f = 0; f < fours; f++) store(f, four(f));
        return;
    }
#pragma unroll
    for (int f = 0; f < fours; f++) {
        const int to = f % p.split;
        if (to == rank) continue;
        const int places = share_of(fours, to, p.split), sender = rank < to ? rank : rank - 1;
        send4(cluster_address(inbox + (sender * places + f / p.split) * multipliers + threadIdx.x, to),
              cluster_address(&mailbox, to), four(f));
    }
    mailbox_wait(&mailbox);
#pragma unroll
    for (int f = 0; f < fours; f++) {
        if (f % p.split != rank) continue;
        float4 v = four(f);
        for (int r = 0; r + 1 < p.split; r++) {
            const float4 other = inbox[(r * mine + f / p.split) * multipliers + threadIdx.x];
            v.x += other.x, v.y += other.y, v.z += other.z, v.w += other.w;
        }
        store(f, v);
    }
#endif
}

template <int COLUMNS, int GROUPS>
vb_status launch_sm90(const vb_tmac_matmul_args &a, const Planes &h, const ternary_wgmma &c, vb_stream *stream) {
    using S = Shape<COLUMNS, GROUPS>;
    CUtensorMap w_map, x_map; // of 16 bits, which two codes of planes and eight of weights fill
    const int64_t row_bytes = ceil_div<int64_t>(a.k, 4), h_bytes = h.units * unit;
    VB_TRY(sm90::tensor_map(&w_map, a.weights, VB_F16, row_bytes / 2, a.m, row_bytes / 2, S::rows, stream));
    VB_TRY(sm90::tensor_map(&x_map, h.codes, VB_F16, h_bytes / 2, 2 * h.padded, h_bytes / 2, 2 * COLUMNS, stream));
    const Problem p = {a, h, c.split, c.x_stages, (int)ceil_div<int64_t>(a.m, S::rows),
                       (int)ceil_div<int64_t>(h.units, c.split)};
    const void *parameters[] = {&w_map, &x_map, &p};
    return launch_kernel(stream, (const void *)tmac_sm90_kernel<COLUMNS, GROUPS>, dim3((unsigned)c.blocks),
                         S::multipliers + 128, c.shared_bytes, c.split, LAUNCH_OVERLAPPED | LAUNCH_BALANCED,
                         (void **)parameters);
}

} // namespace

vb_status tmac_sm90(const vb_tmac_matmul_args &a, const ternary_wgmma &c, vb_stream *stream) {
    Planes h;
    h.units = ceil_div<int64_t>(a.k, unit);
    h.padded = ceil_div<int64_t>(a.n, c.tokens) * c.tokens;
    void *memory;
    VB_TRY(workspace(&memory, h.units * h.padded * (2 * unit + 2 * (int64_t)sizeof(float)), stream));
    h.codes = static_cast<char *>(memory);
    h.steps = reinterpret_cast<float *>(h.codes + 2 * h.padded * h.units * unit);
    h.squares = h.steps + h.units * h.padded;
    const dim3 grid((unsigned)h.units, (unsigned)(h.padded / round_columns));
    VB_TRY(launch_overlapped(stream, grid, round_threads, 0, tmac_round_kernel, a, h));
    switch (c.tokens * 8 + c.groups) {
    case 32 * 8 + 2: return launch_sm90<32, 2>(a, h, c, stream);
    case 32 * 8 + 4: return launch_sm90<32, 4>(a, h, c, stream);
    case 64 * 8 + 2: return launch_sm90<64, 2>(a, h, c, stream);
    case 128 * 8 + 2: return launch_sm90<128, 2>(a, h, c, stream);
    default: return launch_sm90<64, 3>(a, h, c, stream);
    }
}

} // namespace vb

#endif
