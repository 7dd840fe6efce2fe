// sort.cu: the first k elements of each line of an array with strides, in order, and their places.
//
// Elements are compared by keys of value and place (order_key.cuh). No two keys are equal, so that any sort is stable.
// Keys are sorted in descending order; for an ascending order their values are complemented. A key of 0 is behind all.
//   tile     a block sorts up to 4096 keys in shared memory, of several short lines or of a part of a line: a bitonic
//            sort (Batcher 1968)
//   merge    for longer lines: two sorted runs become a run. A block makes 4096 keys, from the parts of both runs that
//            merge path finds (Green, McColl & Bader 2012). Keys after the first k are not merged
//   block    256 threads, 32 KiB of shared memory
//   moves    the elements, and 16 bytes a key and round of merging
//   bound    the sorts' steps, then bandwidth

#include "rows/order_key.cuh"
#include "strided/views.cuh"

namespace vb {
namespace {

constexpr int sort_threads = 256;

struct SortPlan {
    View values, indices, in; // strides along the dimensions of the lines
    int64_t sizes[VB_MAX_DIMS], values_step, indices_step, in_step;
    int64_t first, lines, n, k, tiles; // lines first..lines-1; tiles of a line
    int rank, line_log, tile_log; // a tile has 2^tile_log keys, a line of one tile at most 2^line_log
    bool descending;
    Key *keys; // [lines - first][tiles << tile_log], where a line has several tiles
};

VB_DEVICE int64_t line_place(const View &v, const SortPlan &p, int64_t line) {
    int64_t place = 0;
    for (int d = p.rank - 1; d >= 0; d--) {
        const int64_t quotient = line / p.sizes[d];
        place += (line - quotient * p.sizes[d]) * v.strides[d];
        line = quotient;
    }
    return place;
}

VB_DEVICE Key sort_key(unsigned x, bool of_integers, bool descending, int64_t index) {
    const Key key = of_integers ? (Key)(x ^ 0x80000000u) << 32 | (0xffffffffu - (unsigned)index)
                                : key_of(__uint_as_float(x), index);
    return descending ? key : key ^ 0xffffffff00000000ull;
}

// Writes the element of a key as number `at` of a line.
VB_DEVICE void write_sorted(const SortPlan &p, int64_t line, int64_t at, Key key) {
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

// A block a tile: of several lines where they are short, or number blockIdx.x % tiles of a line.
__global__ void __launch_bounds__(sort_threads) sort_tile_kernel(const SortPlan p) {
    __shared__ Key keys[SORT_TILE];
    wait_for_previous_kernel();
    release_next_kernel();
    const int size = 1 << p.tile_log, part = (1 << p.line_log) - 1;
    const int64_t tile = blockIdx.x % p.tiles;
    const int64_t first_line = p.first + ((int64_t)(blockIdx.x / p.tiles) << (p.tile_log - p.line_log));
    const bool of_integers = p.in.type != VB_F32 && p.in.type != VB_F16 && p.in.type != VB_BF16;
    for (int i = threadIdx.x; i < size; i += sort_threads) {
        const int64_t line = first_line + (i >> p.line_log), at = tile * size + (i & part);
        keys[i] = 0;
        if (line < p.lines && at < p.n) {
            const unsigned x = load_element(p.in.data, p.in.type, line_place(p.in, p, line) + at * p.in_step);
            keys[i] = sort_key(x, of_integers, p.descending, at);
        }
    }
    for (int log_run = 1; log_run <= p.line_log; log_run++)
        for (int log_distance = log_run - 1; log_distance >= 0; log_distance--) {
            __syncthreads();
            for (int i = threadIdx.x; i < size / 2; i += sort_threads) {
                const int distance = 1 << log_distance;
                const int low = (i >> log_distance << (log_distance + 1)) | (i & (distance - 1)), high = low + distance;
                const Key a = keys[low], b = keys[high];
                const bool descending = ((low & part) >> log_run & 1) == 0; // of its line alone, at last all of it
                if ((a < b) == descending) keys[low] = b, keys[high] = a;
            }
        }
    __syncthreads();
    for (int i = threadIdx.x; i < size; i += sort_threads) {
        const int64_t line = first_line + (i >> p.line_log);
        if (p.tiles > 1) p.keys[((line - p.first) * p.tiles + tile) * size + i] = keys[i];
        else if (line < p.lines && (i & part) < p.k) write_sorted(p, line, i & part, keys[i]);
    }
}

// How many of the first `count` keys of two merged runs are of a.
VB_DEVICE int64_t merge_path(const Key *a, int64_t a_size, const Key *b, int64_t b_size, int64_t count) {
    int64_t low = larger<int64_t>(0, count - b_size), high = smaller(count, a_size);
    while (low < high) {
        const int64_t middle = (low + high) / 2;
        if (a[middle] > b[count - 1 - middle]) low = middle + 1;
        else high = middle;
    }
    return low;
}

// How many of the keys, in descending order, are greater.
VB_DEVICE int greater_keys(const Key *keys, int size, Key key) {
    int low = 0, high = size;
    while (low < high) {
        const int middle = (low + high) / 2;
        if (keys[middle] > key) low = middle + 1;
        else high = middle;
    }
    return low;
}

// Merges runs of `run` keys, of which the first k count, in pairs of `blocks` blocks each. LAST: to the results.
template <bool LAST>
__global__ void __launch_bounds__(sort_threads)
    sort_merge_kernel(const SortPlan p, Key *to, const Key *from, int64_t run, int64_t pairs, int64_t blocks) {
    __shared__ Key keys[SORT_TILE];
    __shared__ int64_t bounds[2];
    wait_for_previous_kernel();
    release_next_kernel();
    const int64_t line = blockIdx.x / (pairs * blocks), pair = blockIdx.x / blocks % pairs;
    const int64_t line_size = p.tiles * SORT_TILE, start = pair * 2 * run;
    const int64_t a_size = smaller(smaller(run, line_size - start), p.k);
    const int64_t b_size = smaller(smaller(run, larger<int64_t>(0, line_size - start - run)), p.k);
    const int64_t begin = blockIdx.x % blocks * SORT_TILE;
    const int64_t end = smaller(smaller(begin + SORT_TILE, a_size + b_size), p.k);
    if (begin >= end) return;
    const Key *const a = from + line * line_size + start, *const b = a + run;
    if (threadIdx.x < 2) bounds[threadIdx.x] = merge_path(a, a_size, b, b_size, threadIdx.x == 0 ? begin : end);
    __syncthreads();
    const int64_t a_first = bounds[0], b_first = begin - a_first;
    const int a_count = (int)(bounds[1] - a_first), count = (int)(end - begin);
    for (int i = threadIdx.x; i < count; i += sort_threads)
        keys[i] = i < a_count ? a[a_first + i] : b[b_first + i - a_count];
    __syncthreads();
    for (int i = threadIdx.x; i < count; i += sort_threads) {
        const Key key = keys[i];
        const int other = i < a_count ? greater_keys(keys + a_count, count - a_count, key)
                                      : greater_keys(keys, a_count, key) - a_count;
        if (LAST) write_sorted(p, p.first + line, begin + i + other, key);
        else to[line * line_size + start + begin + i + other] = key;
    }
}

} // namespace
} // namespace vb

using namespace vb;

extern "C" vb_status vb_cuda_sort(const vb_sort_args *args, vb_stream *stream) {
    vb_sort_lines l;
    vb_sort_split(&l, args);
    const sort_plan plan = choose_strided_sort(l.n);
    chosen(stream, strided_kernel_info(plan.kernel), "sort", l.in.type, "lines n k", l.lines, l.n, l.k);
    SortPlan p = {};
    p.values_step = l.values_step, p.indices_step = l.indices_step, p.in_step = l.in_step;
    p.n = l.n, p.k = l.k, p.tiles = plan.tiles, p.rank = l.rank;
    p.line_log = plan.line_log, p.tile_log = plan.tile_log, p.descending = args->descending != 0;
    p.lines = l.lines;
    for (int d = 0; d < l.rank; d++) p.sizes[d] = l.sizes[d];
    p.values = view_of(l.values), p.indices = view_of(l.indices), p.in = view_of(l.in);
    if (plan.kernel == STRIDED_SORT_TILE)
        return launch_overlapped(stream, (unsigned)ceil_div<int64_t>(l.lines, 1 << (plan.tile_log - plan.line_log)),
                                 sort_threads, 0, sort_tile_kernel, p);
    // Slices of lines bound the workspace. A round reads one half of it and writes the other.
    const int64_t line_size = plan.tiles * SORT_TILE;
    const int64_t slice = larger<int64_t>(1, SORT_WORKSPACE / (2 * line_size));
    for (; p.first < l.lines; p.first += slice) {
        p.lines = smaller(p.first + slice, l.lines);
        const int64_t lines = p.lines - p.first;
        void *memory;
        VB_TRY(workspace(&memory, 2 * lines * line_size * (int64_t)sizeof(Key), stream));
        p.keys = (Key *)memory;
        VB_TRY(launch_overlapped(stream, (unsigned)(lines * plan.tiles), sort_threads, 0, sort_tile_kernel, p));
        Key *from = p.keys, *to = from + lines * line_size;
        for (int64_t run = SORT_TILE; run < line_size; run *= 2) {
            const int64_t pairs = ceil_div<int64_t>(line_size, 2 * run);
            const int64_t blocks = ceil_div<int64_t>(smaller(smaller(2 * run, line_size), l.k), SORT_TILE);
            const unsigned grid = (unsigned)(lines * pairs * blocks);
            VB_TRY(launch_overlapped(stream, grid, sort_threads, 0,
                                     pairs == 1 ? sort_merge_kernel<true> : sort_merge_kernel<false>, p, to,
                                     (const Key *)from, run, pairs, blocks));
            Key *const swap = from;
            from = to;
            to = swap;
        }
    }
    return VB_OK;
}
