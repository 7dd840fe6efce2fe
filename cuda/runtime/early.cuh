// early.cuh: how the sum of a product over ranks sends results while the product still computes others (columns.cu).
//
// A product of many rows computes its own rank's columns last (many.cu), and counts the units before them as they are
// stored. In the last round of units some multiprocessors have none: there blocks of the sum begin to send.
#ifndef VB_RUNTIME_EARLY_CUH
#define VB_RUNTIME_EARLY_CUH

#include "runtime/common.cuh"

namespace vb {

// The groups of 128 columns that a rank sums.
struct ColumnGroups {
    int first, count;
    __host__ __device__ ColumnGroups(int groups, int rank, int ranks)
        : first(groups * rank / ranks), count(groups * (rank + 1) / ranks - first) {}
};

// Of a stream whose communicator sums by columns.
struct EarlyResults {
    unsigned *done = nullptr; // what products have counted in all, on the device; null where no communicator sums so
    int rank = 0, ranks = 1;
    unsigned expected = 0;    // the count where other ranks' columns of all products so far are stored
    const float *y = nullptr; // [n][cols] of the newest product that counts
    int64_t n = 0, cols = 0;
    int64_t enqueued = 0, product = 0; // kernels, graphs and copies of the stream so far; up to that product

    bool newest(const float *sum, int64_t rows, int64_t columns) const {
        return y == sum && n == rows && cols == columns && product == enqueued;
    }
};

struct Communicator; // runtime/communicator.cu
struct Mail;         // collective/exchange.cuh

// Of a stream: results of a product that went to all ranks, in place of y, for the sum that follows
// (collective/rounded.cu).
struct SentResults {
    const Mail *mail = nullptr; // null where no communicator takes such
    Communicator *communicator = nullptr;
    bool *abandoned = nullptr; // the communicator's: a sum did not follow, and nothing is sent until all is cleared
    const float *y = nullptr;  // the place of what was sent and not yet summed, or null
    int64_t n = 0;             // numbers of it
};

// null while the stream's work is captured: the counts of a graph would not go on.
#ifndef __CUDACC_RTC__
EarlyResults *early_results(vb_stream *stream);
SentResults &sent_results(vb_stream *stream);
#else
VB_DEVICE EarlyResults *early_results(vb_stream *) { return nullptr; }
static __device__ SentResults no_sent_results;
VB_DEVICE SentResults &sent_results(vb_stream *) { return no_sent_results; }
#endif

} // namespace vb
#endif
