// columns.cu: all_reduce of rows before a norm, out = in[0] + in[1] + ... + add, where a rank adds up its own columns.
//
//   shapes   float32 [rows][cols], cols a multiple of 128, a GPU a rank. A rank has whole groups of 128 columns
//   grid     128 blocks of 512 threads, the same on every rank. A rank sends its summands of the others' columns in
//            words of 14 bits (rounded.cuh), the first of them while the product before still computes its own columns
//            (runtime/early.cuh). It adds up its own columns, and sends their operand for the product behind the norm
//            to all ranks (SumRows), or the sum itself where no norm follows
//   shared   none
//   moves    over the link, each way: 4 (ranks - 1) / ranks bytes an element; memory: 13 bytes an element on two ranks
//   bound    the link, with two crossings
//
// The residual stream stays in parts: the next sum adds to the same columns. A rank writes into another rank's memory
// what follows from a word of that rank, whose earlier kernels have ended then.

#include "collective/rounded.cuh"
#include "runtime/early.cuh"
#ifdef VB_HAS_PACKED_LAYOUT

namespace vb {
namespace {

// Where the columns of a rank go, on every rank: the operand of the next product, or the sum itself (x is null).
struct ColumnsOut {
    float *out[VB_MAX_RANKS];
    half *x[VB_MAX_RANKS];
    uint8_t *exponents[VB_MAX_RANKS];
    float *squares[VB_MAX_RANKS];
};

// Columns of a sum of rows. A unit is a group of 128 columns of a row, which 16 lanes have. A warp takes eight units at
// a time, as a rule of neighbouring rows: their squares and exponents fill a sector.
struct Columns {
    static constexpr int batch = 4, chunk_units = 2 * batch; // a unit of each half of a warp at once
    const float *in, *add;
    int rows, cols, first_row, lane, at;
    VB_DEVICE Columns(const float *i, const float *a, int n, int c, int f)
        : in(i), add(a), rows(n), cols(c), first_row(f), lane(threadIdx.x % 32), at(8 * (lane % 16)) {}

    // Unit j of the lane's half of the warp.
    VB_DEVICE int unit(int chunk, int j) const { return chunk * chunk_units + 2 * j + lane / 16; }
    VB_DEVICE int64_t place(const ColumnGroups &part, int unit) const {
        const int group = unit / rows;
        return (int64_t)(unit - group * rows) * cols + (part.first + group) * 128 + at;
    }
    static VB_DEVICE void load(float (&x)[8], const float *from) {
        const float4 a = reinterpret_cast<const float4 *>(from)[0], b = reinterpret_cast<const float4 *>(from)[1];
        x[0] = a.x, x[1] = a.y, x[2] = a.z, x[3] = a.w, x[4] = b.x, x[5] = b.y, x[6] = b.z, x[7] = b.w;
    }

    VB_DEVICE void send(const Mail &m, unsigned letter, int chunk) const {
        for (int k = 1; k < m.ranks; k++) {
            const int to = m.rank + k < m.ranks ? m.rank + k : m.rank + k - m.ranks;
            const ColumnGroups part(cols / 128, to, m.ranks);
            uint4 *words = letter_of(m.box[to], m.ranks, letter, m.rank);
            float x[batch][8];
#pragma unroll
            for (int j = 0; j < batch; j++)
                if (unit(chunk, j) < part.count * rows) load(x[j], in + place(part, unit(chunk, j)));
#pragma unroll
            for (int j = 0; j < batch; j++)
                if (unit(chunk, j) < part.count * rows)
                    store_word(words + unit(chunk, j) * 16 + lane % 16,
                               RoundedWord::of(make_float4(x[j][0], x[j][1], x[j][2], x[j][3]),
                                               make_float4(x[j][4], x[j][5], x[j][6], x[j][7]))
                                   .bits);
        }
    }

    // Adds up a chunk of this rank's own columns, in the order of ranks. Whether a row has an exponent.
    template <bool NEXT>
    VB_DEVICE bool receive(const Mail &m, unsigned letter, int chunk, const ColumnsOut &to, const SumRows &next) const {
        const ColumnGroups part(cols / 128, m.rank, m.ranks);
        const int units = part.count * rows;
        float own[batch][8], more[batch][8], sum[batch][8] = {};
#pragma unroll
        for (int j = 0; j < batch; j++)
            if (unit(chunk, j) < units) {
                const int64_t i = place(part, unit(chunk, j));
                load(own[j], in + i), load(more[j], add + i);
            }
        for (int r = 0; r < m.ranks; r++) {
            uint4 *words = letter_of(m.box[m.rank], m.ranks, letter, r) + lane % 16;
            uint4 word[batch];
            if (r != m.rank) // all loads are under way before the first is looked at
#pragma unroll
                for (int j = 0; j < batch; j++)
                    if (unit(chunk, j) < units) word[j] = load_word(words + unit(chunk, j) * 16);
#pragma unroll
            for (int j = 0; j < batch; j++) {
                if (unit(chunk, j) >= units) continue;
                if (r != m.rank) {
                    take_word(words + unit(chunk, j) * 16, word[j]).add_to(sum[j]);
                } else {
#pragma unroll
                    for (int i = 0; i < 8; i++) sum[j][i] += own[j][i];
                }
            }
        }
        bool uneven = false;
        float squares = 0;
        int exponent = 0; // both of unit lane % chunk_units
#pragma unroll
        for (int j = 0; j < batch; j++) {
            const bool active = unit(chunk, j) < units;
            float group_squares = 0;
            int group_exponent = 0;
            if (active) {
                const int64_t i = place(part, unit(chunk, j));
#pragma unroll
                for (int k = 0; k < 8; k++) sum[j][k] += more[j][k];
                const float4 a = make_float4(sum[j][0], sum[j][1], sum[j][2], sum[j][3]),
                             b = make_float4(sum[j][4], sum[j][5], sum[j][6], sum[j][7]);
                for (int r = NEXT ? m.rank : 0; r < (NEXT ? m.rank + 1 : m.ranks); r++) {
                    float4 *out = reinterpret_cast<float4 *>(to.out[r] + i);
                    out[0] = a, out[1] = b;
                }
                if constexpr (NEXT) leave(m, to, next, sum[j], i, &group_squares, &group_exponent);
            }
            if constexpr (NEXT) {
                const float s = __shfl_sync(~0u, group_squares, lane % 2 * 16);
                const int e = __shfl_sync(~0u, group_exponent, lane % 2 * 16);
                if (lane % chunk_units / 2 == j) squares = s, exponent = e;
                uneven |= group_exponent != 0;
            }
        }
        const int u = chunk * chunk_units + lane % chunk_units;
        if (NEXT && u < units) {
            const int group = u / rows, row = first_row + u - group * rows, number = part.first + group;
            for (int r = 0; r < m.ranks; r++) {
                if (lane < chunk_units) to.squares[r][number * next.stride + row] = squares;
                else if (lane < 3 * chunk_units)
                    to.exponents[r][(number * 2 + lane / chunk_units - 1) * next.stride + row] = (uint8_t)exponent;
            }
        }
        return uneven;
    }

    // Sends 8 columns of the operand, which lie at element i of these rows, to all ranks.
    VB_DEVICE void leave(const Mail &m, const ColumnsOut &to, const SumRows &next, const float (&y)[8], int64_t i,
                         float *squares, int *exponent) const {
        const unsigned lanes = 0xffffu << (lane & 16);
        float norm[8], v[8], most = 0, sum = 0;
        load(norm, next.norm + i % cols);
#pragma unroll
        for (int k = 0; k < 8; k++) v[k] = y[k] * norm[k], most = fmaxf(most, fabsf(v[k])), sum += y[k] * y[k];
        int e = 0;
        if (__any_sync(lanes, most >= half_limit)) {
#pragma unroll
            for (int o = 8; o > 0; o /= 2) most = fmaxf(most, __shfl_xor_sync(lanes, most, o));
            e = (int)half_exponent(__float_as_uint(most));
        }
        const float scale = power_of_two(-e);
        uint32_t two[4];
#pragma unroll
        for (int k = 0; k < 4; k++) two[k] = as_word(__floats2half2_rn(v[2 * k] * scale, v[2 * k + 1] * scale));
        // position_of: of 16 columns the even lane has the first 16 bytes, the odd lane the others
        const bool odd = lane & 1;
        const uint32_t a = __shfl_xor_sync(lanes, odd ? two[0] : two[1], 1),
                       b = __shfl_xor_sync(lanes, odd ? two[2] : two[3], 1);
        const uint4 bytes = odd ? make_uint4(a, b, two[1], two[3]) : make_uint4(two[0], two[2], a, b);
        for (int r = 0; r < m.ranks; r++)
            *reinterpret_cast<uint4 *>(to.x[r] + (int64_t)first_row * cols + i) = bytes;
#pragma unroll
        for (int o = 8; o > 0; o /= 2) sum += __shfl_xor_sync(lanes, sum, o);
        *squares = sum, *exponent = e;
    }
};

// done: what products have counted, or null; `expected`: the count where other ranks' columns are there (early.cuh).
template <bool NEXT>
__global__ void __launch_bounds__(exchange_threads)
    all_reduce_columns(const float *in, const float *add, int rows, int cols, int first_row, const unsigned *done,
                       unsigned expected, VB_IN_PLACE ColumnsOut to, VB_IN_PLACE SumRows next, VB_IN_PLACE Mail m) {
    if (done) {
        const volatile unsigned *const count = done;
        Wait wait;
        while (threadIdx.x % 32 == 0 && (int)(*count - expected) < 0) wait.round();
        __syncwarp();
        __threadfence();
    } else wait_for_previous_kernel();
    unsigned *counter = reinterpret_cast<unsigned *>(m.box[m.rank] + mail_rounded_at(m.ranks)) + blockIdx.x;
    unsigned *exchanges = reinterpret_cast<unsigned *>(m.box[m.rank] + mail_columns_at(m.ranks)) + blockIdx.x;
    const unsigned letter = *counter % 2u, exchange = *exchanges + 1u;
    const Columns columns(in, add, rows, cols, first_row);
    const int warps = gridDim.x * blockDim.x / 32, most = ceil_div(cols / 128, m.ranks) * rows;
    bool uneven = false;
    unsigned *const tickets = columns_tickets(m.box[m.rank], m.ranks);
    int chunk = (blockIdx.x * blockDim.x + threadIdx.x) / 32;
    if (done) { // blocks that are there early send more
        for (;;) {
            const int next_chunk =
                __shfl_sync(~0u, columns.lane == 0 ? (int)atomicAdd(tickets + exchange % 2, 1u) : 0, 0);
            if (next_chunk * Columns::chunk_units >= most) break;
            columns.send(m, letter, next_chunk);
        }
        wait_for_previous_kernel();
    } else columns.send(m, letter, chunk);
    if (blockIdx.x == 0 && threadIdx.x == 0) tickets[(exchange + 1) % 2] = 0; // the exchange before has ended
    for (; chunk * Columns::chunk_units < most; chunk += warps) {
        if (!done) columns.send(m, letter, chunk + warps);
        uneven |= columns.receive<NEXT>(m, letter, chunk, to, next);
    }
    release_next_kernel();
    // A block has ended where the same block of every rank has sent all.
    const unsigned any = __syncthreads_or(uneven);
    if ((int)threadIdx.x < m.ranks && (int)threadIdx.x != m.rank) {
        __threadfence_system();
        *columns_flag(m.box[threadIdx.x], m.ranks, blockIdx.x, m.rank) = exchange << 1 | any;
        const volatile unsigned *flag = columns_flag(m.box[m.rank], m.ranks, blockIdx.x, threadIdx.x);
        Wait wait;
        unsigned found;
        while (((found = *flag) ^ exchange << 1) > 1u) wait.round();
        __threadfence_system();
        uneven |= found & 1u;
    }
    if constexpr (NEXT) leave_flags(next, uneven, counter - blockIdx.x + rounded_blocks, first_row);
    __syncthreads();
    if (threadIdx.x == 0) *counter = letter + 1u, *exchanges = exchange;
}

} // namespace

// The columns of all ranks in messages of so many rows as a letter holds.
vb_status exchange_sum_of_columns(float *const *out, const float *in, const vb_sum_of_rows &rows, int rank,
                                  const Mail &mail, vb_stream *stream) {
    const bool leaves = rows.norm[0];
    const int64_t n = rows.n, cols = rows.cols;
    ColumnsOut to = {};
    for (int r = 0; leaves && r < mail.ranks; r++) {
        const SumRows there = next_rows(rows, r);
        to.x[r] = there.x, to.exponents[r] = there.exponents, to.squares[r] = there.squares;
    }
    const SumRows next = leaves ? next_rows(rows, rank) : SumRows();
    chosen(stream, collective_kernel_info(COLLECTIVE_REDUCE_COLUMNS), "all_reduce", VB_F32, "n cols ranks", n, cols,
           mail.ranks);
    const int64_t most = mail_rounded_words(mail.ranks) / (16 * ceil_div<int64_t>(cols / 128, mail.ranks));
    EarlyResults *const early = early_results(stream);
    const bool begun = early && n <= most && early->newest(in, n, cols);
    for (int64_t row = 0; row < n; row += most) {
        for (int r = 0; r < mail.ranks; r++) to.out[r] = out[r] + row * cols;
        VB_TRY(launch_overlapped(stream, rounded_blocks, exchange_threads, 0,
                                 leaves ? all_reduce_columns<true> : all_reduce_columns<false>, in + row * cols,
                                 rows.add[rank] + row * cols, (int)smaller(most, n - row), (int)cols, (int)row,
                                 begun ? early->done : nullptr, begun ? early->expected : 0u, to, next, mail));
    }
    return VB_OK;
}

} // namespace vb
#endif
