// tmac_columns.cu: products with ternary weights of up to 16 columns of floats, by int8 tensor cores and clusters
// (vb_tmac_matmul, 9.0).
//
//   grid     (blocks of rows, `cluster` for each, shares of the columns). The blocks of a cluster share k. A warp takes
//            32 rows at a time
//   shared   up to eight columns a block: weights on their way. Two planes of the block's part of its columns; a float
//            a row and column
//   moves    m k / 4 bytes of weights once a share of the columns; the columns once for each cluster, from the L2
//   bound    latency, then the weights
//
// Columns are rounded by rounding.cuh. An instruction's eight columns are the planes of four.

#include "arch/cluster.cuh"
#include "arch/streaming.cuh"
#include "arch/unaligned.cuh"
#include "ternary/rounding.cuh"
#include "ternary/tiles.cuh"

namespace vb {
namespace {

constexpr int unit = TERNARY_TMAC_UNIT; // elements of 64 bytes of weights, which are rounded together

// What a block has in shared memory, one behind the other.
template <int FOURS>
struct ColumnsMemory {
    static constexpr int columns = 4 * FOURS;
    int4 *codes;            // [units][FOURS][word of a piece][lane]: a lane's four words of four codes
    int *totals;            // [units][columns]: the sum of 256 high + low
    float *steps, *squares; // [units][columns]
    float *whole_squares;   // [cluster][columns]: from each block
    float *sums;            // [cluster][parts][own rows][columns]: of the rows that this block adds up

    VB_DEVICE ColumnsMemory(char *memory, int units) {
        codes = reinterpret_cast<int4 *>(memory);
        totals = reinterpret_cast<int *>(codes + units * FOURS * 128);
        steps = reinterpret_cast<float *>(totals + units * columns);
        squares = steps + units * columns;
        whole_squares = squares + units * columns;
        sums = whole_squares + TERNARY_COLUMNS_CLUSTER * columns;
    }
};

VB_DEVICE float &part_of(float4 &v, int i) { return i == 0 ? v.x : i == 1 ? v.y : i == 2 ? v.z : v.w; }

// Columns of a unit, which a warp rounds: one where a block has four columns, else four. A lane has eight elements of
// each: four bytes of codes under two masks. Columns that do not exist have any codes.
template <int FOURS>
struct Rounding {
    static constexpr int count = FOURS == 1 ? 1 : 4, columns = 4 * FOURS;
    FloatColumns<count> floats;

    VB_DEVICE static int element(int i) {
        const int lane = threadIdx.x % 32;
        return 16 * (lane / 4 + 8 * (i / 4)) + 4 * (i % 4) + lane % 4;
    }
    // From element `first` and column `column` on.
    VB_DEVICE void read(const vb_tmac_matmul_args &a, int64_t first, int64_t column) {
        floats.read(a, first, column, element);
    }
    // Of unit u of the block and its columns from `own` on.
    VB_DEVICE void write(const vb_tmac_matmul_args &a, const ColumnsMemory<FOURS> &to, int64_t first, int u, int own) {
        const int lane = threadIdx.x % 32;
        if (a.normed) {
            float squares[count];
            floats.weigh(a, first, element, squares);
#pragma unroll
            for (int c = 0; c < count; c++)
                if (lane == 0) to.squares[u * columns + own + c] = squares[c];
        }
#pragma unroll
        for (int c = 0; c < count; c++) {
            const RoundedColumn rounded = floats.round(c);
            const int four = (own + c) / 4, plane = (own + c) % 4 * 2;
#pragma unroll
            for (int j = 0; j < 2; j++) {
                const int word = lane / 4 + 8 * j;
                unsigned *const at = reinterpret_cast<unsigned *>(to.codes + ((u * FOURS + four) * 4 + word % 4) * 32 +
                                                                  4 * plane + word / 4) + lane % 4;
                at[0] = rounded.high[j];
                at[16] = rounded.low[j];
            }
            int sum = rounded.total;
#if __CUDA_ARCH__ >= 900
            sum = __reduce_add_sync(all_lanes, sum);
#endif
            if (lane == 0) {
                const int i = u * columns + own + c;
                to.totals[i] = sum;
                to.steps[i] = rounded.step;
            }
        }
    }
};

// Lane p of four has column p of rows 0 to 3, and gets the four columns of row p.
VB_DEVICE float4 columns_of_row(float4 v, int p) {
    const auto swap = [&](float &a, float &b, int with) { // the lane's b and the other lane's a
        const float other = __shfl_xor_sync(all_lanes, p & with ? a : b, with);
        (p & with ? a : b) = other;
    };
    swap(v.x, v.y, 1), swap(v.z, v.w, 1);
    swap(v.x, v.z, 2), swap(v.y, v.w, 2);
    return v;
}

// `parts` warps share the units of the block for the same rows. A block has `turns` times 32 rows for them.
template <int FOURS>
__global__ void __launch_bounds__(TERNARY_COLUMNS_THREADS, FOURS < 4 ? 2 : 1)
    tmac_columns_kernel(vb_tmac_matmul_args a, int units, int all_parts, int turns) {
    constexpr int columns = 4 * FOURS, rounded = Rounding<FOURS>::count;
    constexpr bool few = FOURS == 1; // columns
    constexpr bool staged = FOURS <= TERNARY_COLUMNS_STAGED_FOURS; // weights wait in shared memory
    constexpr int units_ahead = staged ? TERNARY_COLUMNS_STAGED : TERNARY_COLUMNS_AHEAD;
    constexpr int units_held = staged ? 1 : units_ahead; // in registers
    constexpr int together = few ? 2 : 1;
    constexpr int sets = FOURS < 4 ? 4 / FOURS : 1; // of sums: an instruction waits for the one before with the same
    const int parts = few ? all_parts : 1;
    __shared__ __align__(8) uint64_t mailbox;
    extern __shared__ __align__(16) char memory[];
    const ColumnsMemory<FOURS> own(memory + (staged ? blockDim.x * 64 * units_ahead : 0), units);
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32, group = lane / 4,
              part = lane % 4, size = cluster_size(), rank = cluster_rank(), row_bytes = int((a.k + 3) / 4),
              pieces = row_bytes / 16, all_units = (pieces + 3) / 4, row_warps = warps / parts,
              rows = 32 * row_warps * turns, first_unit = all_units * rank / size,
              here = all_units * (rank + 1) / size - first_unit, own_part = warp % parts, row_warp = warp / parts,
              steps = (here - own_part + parts - 1) / parts * turns;
    const int64_t first_row = (int64_t)(blockIdx.x / size) * rows, first_column = (int64_t)blockIdx.y * columns;
    // Each block of the cluster adds up its share of the rows.
    const int share = (rows + size - 1) / size, own_rows = larger(0, smaller(share, rows - rank * share));
    if (warp == 0)
        mailbox_init(&mailbox, size * columns * 4 * (own_rows * parts + (a.normed ? 1 : 0)), lane == 0);
    cluster_arrive();
    // Weights of (turn, unit), in this order.
    const char *const weights = static_cast<const char *>(a.weights) + first_row * row_bytes + 64 * first_unit;
    int from[4], asked_unit = own_part, asked_turn = 0;
    const auto begin_turn = [&] {
#pragma unroll
        for (int r = 0; r < 4; r++) {
            const int row = (asked_turn * row_warps + row_warp) * 32 + 8 * r + group;
            from[r] = int(smaller<int64_t>(row, a.m - 1 - first_row)) * row_bytes + 16 * part;
        }
    };
    // Each lane copies the pieces that it multiplies by, so that it waits for no other.
    uint4 *const ring = reinterpret_cast<uint4 *>(memory) + warp * units_ahead * 128 + lane;
    uint4 w[units_held][4];
    const auto ask = [&](int slot) {
        if (!staged || asked_turn < turns) {
            const bool live = 4 * (first_unit + asked_unit) + part < pieces && asked_turn < turns;
#pragma unroll
            for (int r = 0; r < 4; r++) {
                const char *const at = weights + from[r] + 64 * asked_unit;
                if (staged)
                    copy_async_part(shared_address(ring + (4 * slot + r) * 32), live ? at : weights, live ? 16 : 0);
                else
                    w[slot % units_held][r] =
                        live ? load_once(reinterpret_cast<const uint4 *>(at)) : make_uint4(0, 0, 0, 0);
            }
            asked_unit += parts;
            if (asked_unit >= here) {
                asked_unit = own_part;
                asked_turn++;
                begin_turn();
            }
        }
        if (staged) copy_async_commit();
    };
    begin_turn();
    if (!a.settled) wait_for_previous_kernel();
#pragma unroll
    for (int i = 0; i < units_ahead; i++) ask(i);
    if (a.settled) wait_for_previous_kernel();
    release_next_kernel();

    // A warp asks for the columns that it rounds next before it rounds those that it has.
    const int live_columns = int(smaller<int64_t>(columns, a.n - first_column)),
              tasks_a_unit = (live_columns + rounded - 1) / rounded, tasks = here * tasks_a_unit;
    for (int task = warp; task < tasks; task += together * warps) {
        Rounding<FOURS> rounding[together];
#pragma unroll
        for (int i = 0; i < together; i++) {
            const int t = task + i * warps, u = t / tasks_a_unit;
            if (t < tasks)
                rounding[i].read(a, (int64_t)(first_unit + u) * unit, first_column + t % tasks_a_unit * rounded);
        }
#pragma unroll
        for (int i = 0; i < together; i++) {
            const int t = task + i * warps, u = t / tasks_a_unit;
            if (t < tasks)
                rounding[i].write(a, own, (int64_t)(first_unit + u) * unit, u, t % tasks_a_unit * rounded);
        }
    }
    __syncthreads();
    const bool messages = size > 1;
    cluster_wait(); // the others' mailboxes are there
    for (int i = threadIdx.x; i < (a.normed ? columns * (messages ? size : 1) : 0); i += blockDim.x) {
        const int column = i % columns, to = i / columns;
        float squares = 0.0f;
        for (int u = 0; u < here; u++) squares += own.squares[u * columns + column];
        if (messages)
            send(cluster_address(own.whole_squares + rank * columns + column, to), cluster_address(&mailbox, to),
                 squares);
        else
            own.whole_squares[column] = squares;
    }

    const int64_t units_a_group = a.groups > 1 ? a.k / a.groups / unit : 1;
    float all[4][FOURS] = {}; // rows 8 r + group, columns 4 f + part
    int u = own_part, turn = 0, oldest = 0;
#pragma unroll 1
    for (int step = 0; step < steps; step += units_held) {
#pragma unroll
        for (int i = 0; i < units_held; i++) {
            if (step + i >= steps) break;
            if (staged) {
                copy_async_wait<units_ahead - 1>();
#pragma unroll
                for (int r = 0; r < 4; r++) w[i][r] = ring[(4 * oldest + r) * 32];
            }
            int sums[sets][2][FOURS][4] = {};
#pragma unroll
            for (int half = 0; half < 2; half++) { // two words of each piece
                unsigned codes[4][2][4];           // those of set s are worth 4^s times as much
#pragma unroll
                for (int mask = 0; mask < 4; mask++)
#pragma unroll
                    for (int r = 0; r < 4; r++) {
                        const uint4 &piece = w[i][r];
                        const int set = mask % sets, down = 2 * (mask - set);
                        const unsigned bits = 0x03030303u << (2 * set);
                        codes[mask][r / 2][r % 2] = (half ? piece.z : piece.x) >> down & bits;
                        codes[mask][r / 2][2 + r % 2] = (half ? piece.w : piece.y) >> down & bits;
                    }
                int4 x[FOURS][2];
#pragma unroll
                for (int f = 0; f < FOURS; f++)
#pragma unroll
                    for (int j = 0; j < 2; j++) x[f][j] = own.codes[((u * FOURS + f) * 4 + 2 * half + j) * 32 + lane];
#pragma unroll
                for (int mask = 0; mask < 4; mask++)
#pragma unroll
                    for (int f = 0; f < FOURS; f++)
#pragma unroll
                        for (int t = 0; t < 2; t++) {
                            const unsigned(&c)[4] = codes[mask][t];
                            mma_u8s8(sums[mask % sets][t][f], c[0], c[1], c[2], c[3], word_of(x[f][0], mask),
                                     word_of(x[f][1], mask));
                        }
            }
            ask(staged ? oldest : i);
            oldest = oldest + 1 == units_ahead ? 0 : oldest + 1;
            float scale[4] = {1.0f, 1.0f, 1.0f, 1.0f};
            if (a.groups > 1 && a.scales)
#pragma unroll
                for (int r = 0; r < 4; r++) {
                    const int64_t row = first_row + (turn * row_warps + row_warp) * 32 + 8 * r + group;
                    scale[r] = a.scales[smaller(row, a.m - 1) * a.groups + (first_unit + u) / units_a_group];
                }
            constexpr int worth = 1 << 2 * (sets - 1); // of the sums of all sets: below 2^31, with codes of 3 as well
#pragma unroll
            for (int f = 0; f < FOURS; f++) {
                const int total = own.totals[u * columns + 4 * f + part] * worth;
                const float one = own.steps[u * columns + 4 * f + part] * (1.0f / worth);
#pragma unroll
                for (int r = 0; r < 4; r++) {
                    int high = 0, low = 0;
#pragma unroll
                    for (int set = 0; set < sets; set++)
                        high = 4 * high + sums[set][r / 2][f][r % 2 * 2],
                        low = 4 * low + sums[set][r / 2][f][r % 2 * 2 + 1];
                    all[r][f] = fmaf(float(high * low_codes + low - total), one * scale[r], all[r][f]);
                }
            }
            u += parts;
            if (u >= here) {
                u = own_part;
                const int row = (turn * row_warps + row_warp) * 32 + 8 * part + group, to = row / share,
                          slot = ((rank * parts + own_part) * share + row - to * share) * columns;
                const unsigned at = cluster_address(own.sums + slot, to), box = cluster_address(&mailbox, to);
#pragma unroll
                for (int f = 0; f < FOURS; f++) {
                    const float4 mine = columns_of_row(make_float4(all[0][f], all[1][f], all[2][f], all[3][f]), part);
                    if (messages)
                        send4(at + 16 * f, box, mine);
                    else
                        *reinterpret_cast<float4 *>(own.sums + slot + 4 * f) = mine;
#pragma unroll
                    for (int r = 0; r < 4; r++) all[r][f] = 0.0f;
                }
                turn++;
            }
        }
    }
    if (messages)
        mailbox_wait(&mailbox);
    else
        __syncthreads();
    const bool vectors = a.n % 4 == 0 && reinterpret_cast<uintptr_t>(a.out) % 16 == 0;
    for (int i = threadIdx.x; i < own_rows * FOURS; i += blockDim.x) {
        const int64_t row = first_row + rank * share + i / FOURS, column = first_column + i % FOURS * 4;
        if (row >= a.m || column >= a.n) continue;
        float4 sum = make_float4(0.0f, 0.0f, 0.0f, 0.0f), squares = sum;
        const auto add = [](float4 &to, const float *from) {
            const float4 more = *reinterpret_cast<const float4 *>(from);
            to.x += more.x, to.y += more.y, to.z += more.z, to.w += more.w;
        };
#pragma unroll 4
        for (int r = 0; r < size * parts; r++)
            add(sum, own.sums + r * share * columns + 4 * i);
        if (a.normed)
            for (int r = 0; r < size; r++)
                add(squares, own.whole_squares + r * columns + i % FOURS * 4);
        const float scale = a.groups == 1 && a.scales ? a.scales[row] : 1.0f;
#pragma unroll
        for (int c = 0; c < 4; c++) {
            float factor = scale;
            if (a.normed) factor *= 1.0f / sqrtf(part_of(squares, c) / float(a.k) + a.eps);
            part_of(sum, c) *= factor;
        }
        float *const out = a.out + row * a.n + column;
        if (vectors) {
            *reinterpret_cast<float4 *>(out) = sum;
        } else {
#pragma unroll
            for (int c = 0; c < 4; c++)
                if (column + c < a.n) out[c] = part_of(sum, c);
        }
    }
}

} // namespace

vb_status tmac_columns(const vb_tmac_matmul_args &a, const ternary_columns &cut, vb_stream *stream) {
    const auto kernel = cut.fours == 1 ? tmac_columns_kernel<1>
        : cut.fours == 2               ? tmac_columns_kernel<2>
                                       : tmac_columns_kernel<4>;
    const dim3 grid((unsigned)(cut.blocks * cut.cluster), (unsigned)cut.shares);
    return launch_cluster(stream, cut.cluster, grid, cut.threads, cut.shared_bytes, kernel, a, cut.units, cut.parts,
                          cut.turns);
}

} // namespace vb
