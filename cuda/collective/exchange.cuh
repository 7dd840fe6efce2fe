// exchange.cuh: how ranks on several GPUs exchange floats through each other's memory.
//
// All ranks may write a rank's mailbox (peer access); the rank reads its own mailbox alone. Messages are of four kinds:
//   small    words of 4 bytes beside a flag of 4, in stores of 16 bytes whose halves arrive whole. The reader polls the
//            words: one crossing and no fence (NCCL's LL protocol). Two letters take turns: in exchange e all ranks
//            have sent words of e - 1, so their kernels e - 2 have ended
//   large    a block writes a chunk, fences, and raises a flag; the same block of the reader waits for it. Four chunks
//            take turns, since a block writes chunk c + 1 before it has read c
//   rounded  words of 16 bytes: 8 rounded numbers, and a bit that is set in each half (rounded.cu). The reader polls
//            the words and writes zeros in their place, before the exchange after the next begins. Two letters take
//            turns. A product of many rows sends its words itself (SentResults), to its own rank too
//   row      words of 4 bytes beside a flag of 4, which the kernel of a product sends one at a time (n1_sum.cu)
// Flags count exchanges in device memory, so that a captured graph may be replayed. Ranks enqueue the same exchanges.
#ifndef VB_COLLECTIVE_EXCHANGE_CUH
#define VB_COLLECTIVE_EXCHANGE_CUH

#include "collective/choose.h"
#include "linear/linear.cuh"
#include "sum_of_rows.h"
#include "runtime/common.cuh"

namespace vb {

constexpr int exchange_blocks = 64, exchange_threads = 512;
constexpr int small_letters = 2, large_letters = 4;
constexpr int chunk_floats = 8192; // of a block: 64 of them fill a crossing of NVLink for longer than a flag takes

// The layout of a mailbox, in bytes. Counters are the owner's, all else is written by other ranks.
constexpr int64_t mail_counters = 2 * exchange_blocks * (int64_t)sizeof(unsigned); // of small exchanges, then of chunks
constexpr int64_t mail_flags = exchange_blocks * VB_MAX_RANKS * (int64_t)sizeof(unsigned);
constexpr int64_t mail_small = COLLECTIVE_SMALL / 2 * (int64_t)sizeof(uint4); // of a letter of a rank
constexpr int64_t mail_large = (int64_t)exchange_blocks * chunk_floats * (int64_t)sizeof(float);

constexpr int rounded_blocks = 128, rounded_batch = 2; // words that a thread sends ahead of the words it takes
constexpr int64_t mail_rounded = 64 << 20;             // of all letters
// of each block, and of blocks that have ended
constexpr int64_t mail_rounded_counters = (rounded_blocks + 32) * (int64_t)sizeof(unsigned);
// Where the counters and letters of the rounded way begin.
__host__ __device__ inline int64_t mail_rounded_at(int ranks) {
    return mail_counters + mail_flags + ranks * (small_letters * mail_small + large_letters * mail_large);
}
__host__ __device__ inline int64_t mail_rounded_words(int ranks) {
    return mail_rounded / (2 * ranks * (int64_t)sizeof(uint4));
}
// Where the counters and letters of single rows begin (n1_sum.cu): exchanges, and blocks that have ended.
constexpr int64_t mail_row_counters = 128, mail_row = COLLECTIVE_ROW * (int64_t)sizeof(uint2);
__host__ __device__ inline int64_t mail_row_at(int ranks) {
    return mail_rounded_at(ranks) + mail_rounded_counters + mail_rounded;
}
// Where the counters and flags of sums by columns begin: exchanges of each block, and which of them other ranks have
// sent (columns.cu).
__host__ __device__ inline int64_t mail_columns_at(int ranks) {
    return mail_row_at(ranks) + mail_row_counters + 2 * ranks * mail_row;
}
VB_DEVICE volatile unsigned *columns_flag(char *box, int ranks, int block, int from) {
    return (volatile unsigned *)(box + mail_columns_at(ranks)) + rounded_blocks + block * VB_MAX_RANKS + from;
}
// Behind them tickets of two exchanges in turn, for chunks to send, and what products have stored early (early.cuh).
__host__ __device__ inline unsigned *columns_tickets(char *box, int ranks) {
    return (unsigned *)(box + mail_columns_at(ranks)) + rounded_blocks * (1 + VB_MAX_RANKS);
}
inline unsigned *columns_done(char *box, int ranks) { return columns_tickets(box, ranks) + 32; }
inline int64_t mail_bytes(int ranks) {
    return mail_columns_at(ranks) + (rounded_blocks * (1 + VB_MAX_RANKS) + 64) * (int64_t)sizeof(unsigned);
}

// Ends the kernel, and the device with it, after this long without an answer: a rank has failed.
constexpr unsigned long long patience = 30ull * 1000 * 1000 * 1000; // ns

VB_DEVICE unsigned long long now() {
    unsigned long long t;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(t));
    return t;
}

// Counts the rounds of a wait that polls.
struct Wait {
    unsigned rounds = 0;
    unsigned long long since;
    VB_DEVICE void round() {
        if (rounds++ % 65536 != 65535) return;
        if (rounds == 65536) since = now();
        else if (now() - since > patience) __trap();
    }
};

// The view of one rank, for its kernels.
struct Mail {
    int rank, ranks;
    char *box[VB_MAX_RANKS]; // of each rank, as this device reaches it
};

// Floats of each rank. all_reduce: the same count for all. all_gather: cols[r] of each row, `first` floats into the row
// of the result.
struct Parts {
    int64_t count[VB_MAX_RANKS];
    int64_t cols[VB_MAX_RANKS], first[VB_MAX_RANKS];
    int64_t most, row; // floats of the rank that has most, and of a row of the result
};

// A sum of rows also leaves the operand of the product after it (HalfRows of linear/packed/many.cuh), where x is not
// null.
struct SumRows {
    const float *norm; // [cols]
    half *x;
    uint8_t *exponents;
    unsigned *uneven, *gated; // becomes whether a row has exponents; becomes 0, or null
    float *squares;
    int64_t stride; // of exponents and squares
    unsigned words; // of a row, a multiple of 16
};

// A rank's part of a collective, on its stream. rounded: as vb_all_reduce permits, and every rank's memory allows.
vb_status exchange_sum(float *out, const float *in, const float *add, int64_t n, bool rounded, const Mail &mail,
                       vb_stream *stream);
// n is a multiple of 8, in memory that is aligned to 16 bytes.
vb_status exchange_rounded(float *out, const float *in, const float *add, int64_t n, const SumRows &next,
                           const Mail &mail, vb_stream *stream);
// The same of rows, for the product behind the norm: the sum leaves its operand. rows.cols is a multiple of 128.
vb_status exchange_sum_of_rows(float *out, const float *in, const vb_sum_of_rows &rows, int rank, const Mail &mail,
                               vb_stream *stream);
// The same where each rank adds up columns of its own. cols is a multiple of 128; each rank has a GPU.
vb_status exchange_sum_of_columns(float *const *out, const float *in, const vb_sum_of_rows &rows, int rank,
                                  const Mail &mail, vb_stream *stream);
// A rank's part of a sum of products of one row: the kernel of its weight must be packed_n1.
vb_status exchange_sum_of_products(float *out, const vb_sum_of_products &sum, int rank, const linear_items &items,
                                   const Mail &mail, vb_stream *stream);
vb_status exchange_rows(float *out, const float *in, const Parts &parts, const Mail &mail, vb_stream *stream);

} // namespace vb
#endif
