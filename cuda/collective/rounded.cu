// rounded.cu: all_reduce, out = in[0] + in[1] + ... + add, whose summands cross as numbers of 14 bits.
//
//   shapes   float32, n a multiple of 8, aligned to 16 bytes
//   grid     128 blocks of 512 threads, the same on every rank. A thread rounds 8 neighbours to multiples of 2^-13 of
//            the largest (RoundedWord). It sends 16 bytes to each other rank, and polls for the others' bytes. A rank
//            rounds its own summand too, so that all ranks get the same bits
//   shared   none
//   moves    over the link, each way and peer: 2 n bytes
//   bound    the link. As for small messages there is one crossing and no fence
//
// Sums of rows before a norm also leave the operand of the product after the norm (SumRows), which saves a kernel.
// all_reduce_columns has each rank sum its own columns alone, and send their operand to all (columns_of).

#include "collective/exchange.cuh"
#ifdef VB_HAS_PACKED_LAYOUT
#include "linear/packed/half_rows.cuh"
#endif

namespace vb {
namespace {

// Eight numbers with one exponent. Each number is the upper 14 bits of a half-word. The 2 lower bits of the half-words
// hold the exponent.
// In each half of 8 bytes, which arrives whole, a further bit is set.
struct RoundedWord {
  uint4 bits;

  static VB_DEVICE unsigned spread(unsigned four) {
    return (four & 3u) | (four & 12u) << 14;
  }
  static VB_DEVICE unsigned gather(unsigned word) {
    return (word & 3u) | (word >> 14 & 12u);
  }

  VB_DEVICE static RoundedWord of(const float (&x)[8]) {
    unsigned largest = 0;
#pragma unroll
    for (int i = 0; i < 8; i++)
      largest = larger(largest, __float_as_uint(x[i]) & 0x7fffffffu);
    // Numbers below 2^-113 are as good as 0. An infinity or NaN makes all eight
    // NaN.
    const unsigned exponent = larger(14u, largest >> 23);
    const float scale = __uint_as_float(
        (266u - exponent) << 23); // the largest becomes 2^12 to 2^13
    unsigned word[4];
#pragma unroll
    for (int i = 0; i < 4; i++) {
      const int low = smaller(8191, __float2int_rn(x[2 * i] * scale));
      const int high = smaller(8191, __float2int_rn(x[2 * i + 1] * scale));
      word[i] = (unsigned)high << 18 | ((unsigned)low << 2 & 0xfffcu);
    }
    return {make_uint4(word[0] | 1u, word[1] | spread(exponent & 15u),
                       word[2] | 1u, word[3] | spread(exponent >> 4))};
  }
  VB_DEVICE bool whole() const { return bits.x & bits.z & 1u; }
  // Adds the numbers.
  VB_DEVICE void add_to(float (&sum)[8]) const {
    const unsigned word[4] = {bits.x, bits.y, bits.z, bits.w};
    const unsigned exponent = gather(word[1]) | gather(word[3]) << 4;
    const float scale = __uint_as_float(
        exponent == 255u ? 0x7fffffffu : (exponent - 14u) << 23);
#pragma unroll
    for (int i = 0; i < 4; i++) {
      sum[2 * i] += scale * static_cast<float>((int)(word[i] << 16) >> 16 & ~3);
      sum[2 * i + 1] += scale * static_cast<float>((int)word[i] >> 16 & ~3);
    }
  }
};

VB_DEVICE RoundedWord rounded(const float *from) {
  const float4 a = reinterpret_cast<const float4 *>(from)[0],
               b = reinterpret_cast<const float4 *>(from)[1];
  return RoundedWord::of({a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w});
}

VB_DEVICE void store_word(uint4 *to, const uint4 &bits) {
  asm volatile("st.volatile.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(to),
               "r"(bits.x), "r"(bits.y), "r"(bits.z), "r"(bits.w)
               : "memory");
}

VB_DEVICE uint4 load_word(const uint4 *from) {
  uint4 b;
  asm volatile("ld.volatile.global.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(b.x), "=r"(b.y), "=r"(b.z), "=r"(b.w)
               : "l"(from)
               : "memory");
  return b;
}

// Takes a word out of the mailbox, where `seen` was, and leaves zeros there for
// the exchange after the next.
VB_DEVICE RoundedWord take_word(uint4 *from, const uint4 &seen) {
  RoundedWord word = {seen};
  for (Wait wait; !word.whole(); word.bits = load_word(from))
    wait.round();
  store_word(from, make_uint4(0, 0, 0, 0));
  return word;
}

VB_DEVICE uint4 *letter_of(char *box, int ranks, unsigned letter, int from) {
  return reinterpret_cast<uint4 *>(box + mail_rounded_at(ranks) +
                                   mail_rounded_counters) +
         (letter * ranks + from) * mail_rounded_words(ranks);
}

#ifdef VB_HAS_PACKED_LAYOUT
// A word of the result, by 16 lanes that have 128 columns. Whether it has an
// exponent.
VB_DEVICE bool leave_half(const SumRows &next, const float (&y)[8],
                          unsigned word) {
  const unsigned lanes = 0xffffu << (threadIdx.x & 16), lane = threadIdx.x % 16,
                 row = word / next.words, at = word - row * next.words;
  const float4 *norm = reinterpret_cast<const float4 *>(next.norm + 8 * at);
  const float4 a = norm[0], b = norm[1];
  float v[8] = {y[0] * a.x, y[1] * a.y, y[2] * a.z, y[3] * a.w,
                y[4] * b.x, y[5] * b.y, y[6] * b.z, y[7] * b.w};
  float most = 0, squares = 0;
#pragma unroll
  for (int i = 0; i < 8; i++)
    most = fmaxf(most, fabsf(v[i])), squares += y[i] * y[i];
  int exponent = 0;
  if (__any_sync(lanes, most >= half_limit)) {
#pragma unroll
    for (int o = 8; o > 0; o /= 2)
      most = fmaxf(most, __shfl_xor_sync(lanes, most, o));
    exponent = (int)half_exponent(__float_as_uint(most));
  }
  const float scale = power_of_two(-exponent);
  uint32_t two[4];
#pragma unroll
  for (int i = 0; i < 4; i++)
    two[i] =
        as_word(__floats2half2_rn(v[2 * i] * scale, v[2 * i + 1] * scale));
  // position_of: a word is one half of 16 columns
  half *to = next.x + (int64_t)row * next.words * 8 + at / 2 * 16 + at % 2 * 4;
  *reinterpret_cast<uint2 *>(to) = make_uint2(two[0], two[2]);
  *reinterpret_cast<uint2 *>(to + 8) = make_uint2(two[1], two[3]);
#pragma unroll
  for (int o = 8; o > 0; o /= 2)
    squares += __shfl_xor_sync(lanes, squares, o);
  if (lane == 0)
    next.squares[at / 16 * next.stride + row] = squares;
  if (lane < 2)
    next.exponents[(at / 16 * 2 + lane) * next.stride + row] =
        (uint8_t)exponent;
  return exponent != 0;
}

// Writes the flags of the result, by the last block to come. `ended` counts blocks, and in its upper half blocks with
// exponents.
// It is 0 between kernels.
VB_DEVICE void leave_flags(const SumRows &next, bool uneven, unsigned *ended,
                           unsigned first_word) {
  const int any = __syncthreads_or(uneven);
  if (threadIdx.x != 0)
    return;
  const unsigned one = any ? 0x10001u : 1u, all = atomicAdd(ended, one) + one;
  if ((all & 0xffffu) != gridDim.x)
    return;
  *ended = 0;
  if (first_word == 0 || all >> 16) // of a message in several parts
    *next.uneven = all >> 16;
  if (next.gated)
    *next.gated = 0;
}
#endif

template <bool NEXT>
__global__ void __launch_bounds__(exchange_threads, 2)
    all_reduce_rounded(float *out, const float *in, const float *add, int words,
                       VB_IN_PLACE SumRows next, unsigned first_word,
                       VB_IN_PLACE Mail m) {
  wait_for_previous_kernel(); // and the next one waits too: its blocks could
                              // take the room of another rank's on this device
  unsigned *counter =
      reinterpret_cast<unsigned *>(m.box[m.rank] + mail_rounded_at(m.ranks)) +
      blockIdx.x;
  const unsigned letter = *counter % 2u;
  const int threads = gridDim.x * blockDim.x,
            own = blockIdx.x * blockDim.x + threadIdx.x;
  auto send = [&](int first) {
#pragma unroll
    for (int i = first; i < first + rounded_batch * threads; i += threads) {
      if (i >= words)
        return;
      const RoundedWord word = rounded(in + 8 * (int64_t)i);
      for (int r = 0; r < m.ranks; r++)
        if (r != m.rank)
          store_word(letter_of(m.box[r], m.ranks, letter, m.rank) + i,
                     word.bits);
    }
  };
  bool uneven = false;
  send(own);
  for (int first = own; first < words; first += rounded_batch * threads) {
    send(first + rounded_batch * threads);
#pragma unroll
    for (int i = first; i < first + rounded_batch * threads; i += threads) {
      if (i >= words)
        break;
      float sum[8] = {}, more[8] = {};
      if (add) {
        const float4 *from =
                         reinterpret_cast<const float4 *>(add + 8 * (int64_t)i),
                     a = from[0], b = from[1];
        more[0] = a.x, more[1] = a.y, more[2] = a.z, more[3] = a.w;
        more[4] = b.x, more[5] = b.y, more[6] = b.z, more[7] = b.w;
      }
      for (int r = 0; r < m.ranks; r++) {
        if (r == m.rank)
          rounded(in + 8 * (int64_t)i).add_to(sum);
        else {
          uint4 *from = letter_of(m.box[m.rank], m.ranks, letter, r) + i;
          take_word(from, load_word(from)).add_to(sum);
        }
      }
      float4 *to = reinterpret_cast<float4 *>(out + 8 * (int64_t)i);
      to[0] = make_float4(sum[0] + more[0], sum[1] + more[1], sum[2] + more[2],
                          sum[3] + more[3]);
      to[1] = make_float4(sum[4] + more[4], sum[5] + more[5], sum[6] + more[6],
                          sum[7] + more[7]);
#ifdef VB_HAS_PACKED_LAYOUT
      if constexpr (NEXT) {
#pragma unroll
        for (int k = 0; k < 8; k++)
          sum[k] += more[k];
        uneven |= leave_half(next, sum, first_word + i);
      }
#endif
    }
  }
  release_next_kernel(); // the words of other ranks are here: their blocks
                         // have found room
#ifdef VB_HAS_PACKED_LAYOUT
  if constexpr (NEXT)
    leave_flags(next, uneven, counter - blockIdx.x + rounded_blocks,
                first_word);
#endif
  __syncthreads();
  if (threadIdx.x == 0)
    *counter = letter + 1u;
}

#ifdef VB_HAS_PACKED_LAYOUT
// Where the columns of a rank go, on every rank: the operand of the next product, or the sum itself (x is null).
struct ColumnsOut {
    float *out[VB_MAX_RANKS];
    half *x[VB_MAX_RANKS];
    uint8_t *exponents[VB_MAX_RANKS];
    float *squares[VB_MAX_RANKS];
};

// The groups of 128 columns that a rank sums.
struct ColumnGroups {
    int first, count;
    __host__ __device__ ColumnGroups(int groups, int rank, int ranks)
        : first(groups * rank / ranks), count(groups * (rank + 1) / ranks - first) {}
};

// Columns of a sum of rows. A unit is a group of 128 columns of a row, which 16 lanes have. A warp takes eight units at a
// time, as a rule of neighbouring rows: their squares and exponents fill a sector.
struct Columns {
    static constexpr int batch = 4; // of two units
    const float *in, *add;
    int rows, cols, first_row, lane, at;
    VB_DEVICE Columns(const float *i, const float *a, int n, int c, int f)
        : in(i), add(a), rows(n), cols(c), first_row(f), lane(threadIdx.x % 32), at(8 * (lane % 16)) {}

    // Unit j of the lane's half of the warp.
    VB_DEVICE int unit(int chunk, int j) const { return chunk * 2 * batch + 2 * j + lane / 16; }
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
                    store_word(words + unit(chunk, j) * 16 + lane % 16, RoundedWord::of(x[j]).bits);
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
        int exponent = 0; // both of unit lane % 8
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
                if (lane % 8 / 2 == j) squares = s, exponent = e;
                uneven |= group_exponent != 0;
            }
        }
        const int u = chunk * 2 * batch + lane % 8;
        if (NEXT && u < units) {
            const int group = u / rows, row = first_row + u - group * rows, number = part.first + group;
            for (int r = 0; r < m.ranks; r++) {
                if (lane < 8) to.squares[r][number * next.stride + row] = squares;
                else if (lane < 24)
                    to.exponents[r][(number * 2 + lane / 16) * next.stride + row] = (uint8_t)exponent;
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

template <bool NEXT>
__global__ void __launch_bounds__(exchange_threads)
    all_reduce_columns(const float *in, const float *add, int rows, int cols, int first_row, VB_IN_PLACE ColumnsOut to,
                       VB_IN_PLACE SumRows next, VB_IN_PLACE Mail m) {
    wait_for_previous_kernel();
    unsigned *counter = reinterpret_cast<unsigned *>(m.box[m.rank] + mail_rounded_at(m.ranks)) + blockIdx.x;
    unsigned *exchanges = reinterpret_cast<unsigned *>(m.box[m.rank] + mail_columns_at(m.ranks)) + blockIdx.x;
    const unsigned letter = *counter % 2u, exchange = *exchanges + 1u;
    const Columns columns(in, add, rows, cols, first_row);
    const int warps = gridDim.x * blockDim.x / 32, most = ceil_div(cols / 128, m.ranks) * rows;
    bool uneven = false;
    int chunk = (blockIdx.x * blockDim.x + threadIdx.x) / 32;
    columns.send(m, letter, chunk);
    for (; chunk * 2 * Columns::batch < most; chunk += warps) {
        columns.send(m, letter, chunk + warps);
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
#endif

} // namespace

// A message that is longer than a letter goes as several.
vb_status exchange_rounded(float *out, const float *in, const float *add,
                           int64_t n, const SumRows &next, const Mail &mail,
                           vb_stream *stream) {
  // of whole groups of 16 words
  const int64_t most = 8 * (mail_rounded_words(mail.ranks) / 16 * 16);
  const auto kernel =
      next.x ? all_reduce_rounded<true> : all_reduce_rounded<false>;
  for (int64_t at = 0; at < n; at += most)
    VB_TRY(launch_overlapped(stream, rounded_blocks, exchange_threads, 0,
                             kernel, out + at, in + at,
                             add ? add + at : nullptr,
                             (int)(smaller(most, n - at) / 8), next,
                             (unsigned)(at / 8), mail));
  return VB_OK;
}

#ifdef VB_HAS_PACKED_LAYOUT
vb_status exchange_sum_of_rows(float *out, const float *in,
                               const vb_sum_of_rows &rows, int rank,
                               const Mail &mail, vb_stream *stream) {
  const bool attended = rows.from == VB_AFTER_ATTENTION;
  const int64_t n = rows.n, cols = rows.cols;
  float *normed = rows.normed[rank];
  const HalfRows to =
      normed_rows(normed, n, cols, attended ? attended_flag : layer_flag);
  const SumRows next = {
      rows.norm[rank],
      to.x,
      to.exponents,
      to.uneven,
      attended ? first_half_flag(normed, n, cols) + gated_flag : nullptr,
      to.squares,
      half_stride(n),
      (unsigned)(cols / 8)};
  chosen(stream, collective_kernel_info(COLLECTIVE_REDUCE_ROUNDED),
         "all_reduce", VB_F32, "n cols ranks", n, cols, mail.ranks);
  return exchange_rounded(out, in, rows.add[rank], n * cols, next, mail,
                          stream);
}

// The columns of all ranks in messages of so many rows as a letter holds.
vb_status exchange_sum_of_columns(float *const *out, const float *in, const vb_sum_of_columns &sum, int rank,
                                  const Mail &mail, vb_stream *stream) {
    const vb_sum_of_rows &rows = sum.rows;
    const bool attended = rows.from == VB_AFTER_ATTENTION, leaves = rows.norm[0];
    const int64_t n = rows.n, cols = rows.cols;
    const HalfFlag flag = attended ? attended_flag : layer_flag;
    SumRows next = {};
    ColumnsOut to = {};
    for (int r = 0; leaves && r < mail.ranks; r++) {
        const HalfRows half = normed_rows(rows.normed[r], n, cols, flag);
        to.x[r] = half.x, to.exponents[r] = half.exponents, to.squares[r] = half.squares;
        if (r == rank)
            next = {rows.norm[r], half.x, half.exponents, half.uneven,
                    attended ? first_half_flag(rows.normed[r], n, cols) + gated_flag : nullptr, half.squares,
                    half_stride(n), (unsigned)(cols / 8)};
    }
    chosen(stream, collective_kernel_info(COLLECTIVE_REDUCE_COLUMNS), "all_reduce", VB_F32, "n cols ranks", n, cols,
           mail.ranks);
    const int64_t most = mail_rounded_words(mail.ranks) / (16 * ceil_div<int64_t>(cols / 128, mail.ranks));
    for (int64_t row = 0; row < n; row += most) {
        for (int r = 0; r < mail.ranks; r++) to.out[r] = out[r] + row * cols;
        VB_TRY(launch_overlapped(stream, rounded_blocks, exchange_threads, 0,
                                 leaves ? all_reduce_columns<true> : all_reduce_columns<false>, in + row * cols,
                                 rows.add[rank] + row * cols, (int)smaller(most, n - row), (int)cols, (int)row, to,
                                 next, mail));
    }
    return VB_OK;
}
#endif

} // namespace vb
