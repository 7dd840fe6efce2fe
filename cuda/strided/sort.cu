// sort.cu: the first k elements of each line of an array with strides, in order, and their places.
//
// Here are short lines; sort_radix.cu has longer lines. Elements are compared by keys of value and place
// (order_key.cuh). No two keys are equal, so that any sort is stable. Keys are sorted in descending order; for an
// ascending order their values are complemented. A key of 0 is behind all.
//   grid     a block of 256 threads sorts 1024 keys of several lines: a bitonic sort (Batcher 1968)
//   shared   8 KiB
//   moves    the elements
//   bound    the sort's steps

#include "rows/order_key.cuh"
#include "strided/sort.cuh"

namespace vb {
namespace {

constexpr int sort_threads = 256, sort_keys = 1024;
static_assert(SORT_BITONIC <= sort_keys, "a block has whole lines");

VB_DEVICE Key sort_key(unsigned x, bool of_integers, bool descending, int64_t index) {
    const Key key = of_integers ? (Key)(x ^ 0x80000000u) << 32 | (0xffffffffu - (unsigned)index)
                                : key_of(__uint_as_float(x), index);
    return descending ? key : key ^ 0xffffffff00000000ull;
}

// Writes the element of a key as number `at` of a line.
VB_DEVICE void write_sorted(const SortLines &p, int64_t line, int64_t at, Key key) {
    const int64_t index = index_of(key);
    if (p.indices.data)
        reinterpret_cast<int *>(p.indices.data)[line_place(p.indices, p, line) + at * p.indices_step] = (int)index;
    if (!p.values.data) return;
    const int64_t to = line_place(p.values, p, line) + at * p.values_step;
    const int64_t from = line_place(p.in, p, line) + index * p.in_step;
    if (p.in.bytes == 4)
        reinterpret_cast<unsigned *>(p.values.data)[to] = reinterpret_cast<const unsigned *>(p.in.data)[from];
    else if (p.in.bytes == 2)
        reinterpret_cast<unsigned short *>(p.values.data)[to] =
            reinterpret_cast<const unsigned short *>(p.in.data)[from];
    else p.values.data[to] = p.in.data[from];
}

// A line has 2^line_log keys.
__global__ void __launch_bounds__(sort_threads) sort_bitonic_kernel(const SortLines p, int line_log) {
    __shared__ Key keys[sort_keys];
    wait_for_previous_kernel();
    release_next_kernel();
    const int part = (1 << line_log) - 1;
    const int64_t first_line = (int64_t)blockIdx.x * (sort_keys >> line_log);
    const bool of_integers = p.in.type != VB_F32 && p.in.type != VB_F16 && p.in.type != VB_BF16;
    for (int i = threadIdx.x; i < sort_keys; i += sort_threads) {
        const int64_t line = first_line + (i >> line_log), at = i & part;
        keys[i] = 0;
        if (line < p.lines && at < p.n) {
            const unsigned x = load_element(p.in.data, p.in.type, line_place(p.in, p, line) + at * p.in_step);
            keys[i] = sort_key(x, of_integers, p.descending, at);
        }
    }
    for (int log_run = 1; log_run <= line_log; log_run++)
        for (int log_distance = log_run - 1; log_distance >= 0; log_distance--) {
            __syncthreads();
            for (int i = threadIdx.x; i < sort_keys / 2; i += sort_threads) {
                const int distance = 1 << log_distance;
                const int low = (i >> log_distance << (log_distance + 1)) | (i & (distance - 1)), high = low + distance;
                const Key a = keys[low], b = keys[high];
                const bool descending = ((low & part) >> log_run & 1) == 0; // of its line alone, at last all of it
                if ((a < b) == descending) keys[low] = b, keys[high] = a;
            }
        }
    __syncthreads();
    for (int i = threadIdx.x; i < sort_keys; i += sort_threads) {
        const int64_t line = first_line + (i >> line_log);
        if (line < p.lines && (i & part) < p.k) write_sorted(p, line, i & part, keys[i]);
    }
}

} // namespace
} // namespace vb

using namespace vb;

extern "C" vb_status vb_cuda_sort(const vb_sort_args *args, vb_stream *stream) {
    vb_sort_lines l;
    vb_sort_split(&l, args);
    const strided_kernel kernel = choose_strided_sort(l.n);
    chosen(stream, strided_kernel_info(kernel), "sort", l.in.type, "lines n k", l.lines, l.n, l.k);
    SortLines p = {};
    p.values_step = l.values_step, p.indices_step = l.indices_step, p.in_step = l.in_step;
    p.lines = l.lines, p.n = l.n, p.k = l.k, p.rank = l.rank, p.descending = args->descending != 0;
    for (int d = 0; d < l.rank; d++) p.sizes[d] = l.sizes[d];
    p.values = view_of(l.values), p.indices = view_of(l.indices), p.in = view_of(l.in);
    if (kernel == STRIDED_SORT_RADIX) return sort_radix(p, stream);
    if (kernel == STRIDED_SORT_BLOCK) return sort_blocks(p, stream);
    int line_log = 0;
    while (1 << line_log < p.n) line_log++;
    return launch_overlapped(stream, (unsigned)ceil_div<int64_t>(p.lines, sort_keys >> line_log), sort_threads, 0,
                             sort_bitonic_kernel, p, line_log);
}
