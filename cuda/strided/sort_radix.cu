// sort_radix.cu: sort by digits of 8 bits, the least significant first. A stable order by each digit in turn is a
// stable order of the whole (Knuth 5.2.5). An element moves as its own bits; a digit is of the bits in unsigned order.
//
//   rank     a thread has ITEMS elements, a warp neighbours of a line. A lane finds the lanes of its digit by eight
//            votes (Ashkiani et al. 2016), a warp counts in shared memory
//   block    a line of up to 4096 elements: 256 threads, elements stay in registers and shared memory (33 KiB)
//   passes   a longer line: a kernel counts the digits of all passes, and a kernel makes each pass. A block of 512
//            threads ranks a tile of 8192 elements (34 KiB), adds the counts of the tiles before, and writes runs of
//            equal digits (decoupled look-back, Merrill & Garland 2016; in sorts, Adinets & Merrill 2022)
//   moves    each element and its place read and written once a pass, elements read once more to be counted
//   bound    bandwidth for long lines, the votes for lines of a block

#include "strided/sort.cuh"

namespace vb {
namespace {

constexpr int digits = 256, block_threads = 256, pass_threads = 512, pass_items = SORT_TILE / pass_threads;
constexpr int most_passes = 4;

// How the bits of an element, at the top of 32, become an unsigned number whose order is that of the sort.
struct Order {
    unsigned infinity; // of floats: their infinity at the top of 32 bits
    unsigned flip; // of integers: the sign
    unsigned complement; // all ones for a descending order

    // NaN is greatest, and -0 equal to 0.
    template <bool FLOATS>
    VB_DEVICE unsigned of(unsigned x) const {
        unsigned y = x ^ flip;
        if (FLOATS) {
            y = x ^ ((unsigned)((int)x >> 31) | 0x80000000u);
            if (x == 0x80000000u) y = x;
            if ((x & 0x7fffffffu) > infinity) y = 0xffffffffu;
        }
        return y ^ complement;
    }
};

inline Order order_of(const SortLines &p) {
    const vb_dtype type = p.in.type;
    const bool has_sign = type == VB_I32 || type == VB_I8;
    return {type == VB_F16 ? 0x7c000000u : 0x7f800000u, has_sign ? 0x80000000u : 0, p.descending ? 0xffffffffu : 0};
}

VB_DEVICE unsigned load_top(const View &v, int64_t at) {
    if (v.bytes == 4) return reinterpret_cast<const unsigned *>(v.data)[at];
    if (v.bytes == 2) return (unsigned)reinterpret_cast<const unsigned short *>(v.data)[at] << 16;
    const unsigned x = reinterpret_cast<const unsigned char *>(v.data)[at];
    return (v.type == VB_BOOL ? x != 0 : x) << 24;
}

VB_DEVICE void store_top(const View &v, int64_t at, unsigned x) {
    if (v.bytes == 4) reinterpret_cast<unsigned *>(v.data)[at] = x;
    else if (v.bytes == 2) reinterpret_cast<unsigned short *>(v.data)[at] = (unsigned short)(x >> 16);
    else reinterpret_cast<unsigned char *>(v.data)[at] = (unsigned char)(x >> 24);
}

// The lanes whose digit is the same.
VB_DEVICE unsigned same_digit(unsigned digit) {
    unsigned same = all_lanes;
#pragma unroll
    for (int bit = 0; bit < 8; bit++) {
        const bool one = digit >> bit & 1;
        const unsigned ones = __ballot_sync(all_lanes, one);
        same &= one ? ones : ~ones;
    }
    return same;
}

// The exclusive sum of x over the first 256 threads. All threads call it; `scratch` holds 8 words.
VB_DEVICE unsigned sum_before(unsigned x, unsigned *scratch) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    unsigned sum = x;
#pragma unroll
    for (int offset = 1; offset < 32; offset *= 2) {
        const unsigned y = __shfl_up_sync(all_lanes, sum, offset);
        if (lane >= offset) sum += y;
    }
    if (lane == 31 && warp < digits / 32) scratch[warp] = sum;
    __syncthreads();
    sum -= x;
#pragma unroll
    for (int w = 0; w < digits / 32; w++)
        if (w < warp) sum += scratch[w];
    __syncthreads();
    return sum;
}

// Shared memory of a block that ranks elements.
template <int THREADS>
struct Counts {
    unsigned of[THREADS / 32][digits]; // of each warp: elements of a digit, then the rank of the next one
    unsigned scratch[digits / 32];
};

// Calls ranked(i, rank) for each element i of a thread, with its rank among the block's by digit(i); equal digits by
// warp, i and lane. The thread of a digit, one of the first 256, calls counted(how many the block has) before, and gets
// the rank of the first.
template <int THREADS, int ITEMS, class Digit, class Counted, class Ranked>
VB_DEVICE unsigned rank_digits(Counts<THREADS> &counts, Digit digit, Counted counted, Ranked ranked) {
    const int tid = threadIdx.x, warp = tid / 32, lane = tid % 32;
    unsigned *const mine = counts.of[warp];
#pragma unroll
    for (int d = 0; d < digits; d += 32) mine[d + lane] = 0;
    __syncwarp();
#pragma unroll
    for (int i = 0; i < ITEMS; i++) atomicAdd(mine + digit(i), 1);
    __syncthreads();
    unsigned of_warp[THREADS / 32], count = 0;
    if (tid < digits) {
#pragma unroll
        for (int w = 0; w < THREADS / 32; w++) count += of_warp[w] = counts.of[w][tid];
        counted(count);
    }
    const unsigned first = sum_before(count, counts.scratch);
    if (tid < digits) {
        unsigned next = first;
#pragma unroll
        for (int w = 0; w < THREADS / 32; w++) {
            counts.of[w][tid] = next;
            next += of_warp[w];
        }
    }
    __syncthreads();
#pragma unroll
    for (int i = 0; i < ITEMS; i++) {
        const unsigned d = digit(i), same = same_digit(d), before = __popc(same & ((1u << lane) - 1));
        const unsigned next = mine[d];
        __syncwarp();
        if (before == 0) mine[d] = next + __popc(same);
        __syncwarp();
        ranked(i, next + before);
    }
    return first;
}

// ---- lines of a block -----------------------------------------------------------------------------------------------

template <bool FLOATS, int ITEMS>
__global__ void __launch_bounds__(block_threads, 4) sort_block_kernel(const SortLines p, const Order order) {
    __shared__ unsigned elements[block_threads * ITEMS];
    __shared__ unsigned short places[block_threads * ITEMS];
    __shared__ Counts<block_threads> counts;
    wait_for_previous_kernel();
    release_next_kernel();
    const int first = threadIdx.x / 32 * 32 * ITEMS + threadIdx.x % 32;
    const unsigned n = (unsigned)p.n;
    const int64_t from = line_place(p.in, p, blockIdx.x);
    unsigned x[ITEMS];
    unsigned place[ITEMS]; // the rank is above it
#pragma unroll
    for (int i = 0; i < ITEMS; i++) {
        place[i] = first + 32 * i;
        x[i] = place[i] < n ? load_top(p.in, from + place[i] * p.in_step) : 0;
    }
    for (int shift = 32 - 8 * p.in.bytes; shift < 32; shift += 8) {
        rank_digits<block_threads, ITEMS>(
            counts,
            [&](int i) { return place[i] < n ? order.of<FLOATS>(x[i]) >> shift & 255 : 255; }, // others stay behind
            [](unsigned) {}, [&](int i, unsigned rank) { place[i] |= rank << 16; });
#pragma unroll
        for (int i = 0; i < ITEMS; i++) {
            elements[place[i] >> 16] = x[i];
            places[place[i] >> 16] = (unsigned short)place[i];
        }
        __syncthreads();
#pragma unroll
        for (int i = 0; i < ITEMS; i++) {
            x[i] = elements[first + 32 * i];
            place[i] = places[first + 32 * i];
        }
    }
    const int64_t values = p.values.data ? line_place(p.values, p, blockIdx.x) : 0;
    const int64_t indices = p.indices.data ? line_place(p.indices, p, blockIdx.x) : 0;
#pragma unroll
    for (int i = 0; i < ITEMS; i++) {
        const int64_t at = first + 32 * i;
        if (at >= p.k) continue;
        if (p.values.data) store_top(p.values, values + at * p.values_step, x[i]);
        if (p.indices.data) reinterpret_cast<int *>(p.indices.data)[indices + at * p.indices_step] = place[i];
    }
}

template <bool FLOATS>
vb_status sort_blocks(const SortLines &p, vb_stream *stream) {
    const auto kernel = p.n <= 4 * block_threads   ? sort_block_kernel<FLOATS, 4>
                        : p.n <= 8 * block_threads ? sort_block_kernel<FLOATS, 8>
                                                   : sort_block_kernel<FLOATS, SORT_BLOCK / block_threads>;
    return launch_overlapped(stream, (unsigned)p.lines, block_threads, 0, kernel, p, order_of(p));
}

// ---- passes over memory ---------------------------------------------------------------------------------------------

struct Passes {
    SortLines lines;
    Order order;
    int64_t first, tiles; // the first line, and tiles of a line
    int count;
    unsigned *tickets;    // [pass]: the tile of the block that comes next
    unsigned *counts;     // [line][pass][digit]
    unsigned *tile_counts; // [pass][line][tile][digit]: see look_back
    unsigned cleared;     // words of these three, which lie behind each other
};

// What a pass reads and writes, [line][n] each; null for the arrays of the caller.
struct Moves {
    const unsigned *from, *from_places;
    unsigned *to, *to_places;
};

__global__ void __launch_bounds__(pass_threads) clear_kernel(unsigned *words, int64_t n) {
    wait_for_previous_kernel();
    release_next_kernel();
    const int64_t i = (int64_t)blockIdx.x * pass_threads + threadIdx.x;
    if (i < n) words[i] = 0;
}

// Counts the digits of all passes. A block a tile.
template <bool FLOATS>
__global__ void __launch_bounds__(pass_threads, 2) count_kernel(const Passes p) {
    __shared__ unsigned counts[most_passes * digits];
    wait_for_previous_kernel();
    release_next_kernel();
    for (int i = threadIdx.x; i < most_passes * digits; i += pass_threads) counts[i] = 0;
    __syncthreads();
    const int64_t line = blockIdx.x / p.tiles, first = blockIdx.x % p.tiles * SORT_TILE;
    const int64_t from = line_place(p.lines.in, p.lines, p.first + line);
    unsigned x[pass_items];
#pragma unroll
    for (int i = 0; i < pass_items; i++) {
        const int64_t at = first + i * pass_threads + threadIdx.x;
        x[i] = at < p.lines.n ? load_top(p.lines.in, from + at * p.lines.in_step) : 0;
    }
#pragma unroll
    for (int i = 0; i < pass_items; i++) {
        if (first + i * pass_threads + threadIdx.x >= p.lines.n) break;
        const unsigned y = p.order.of<FLOATS>(x[i]);
        for (int pass = 0; pass < p.count; pass++)
            atomicAdd(counts + pass * digits + (y >> (32 - 8 * (p.count - pass)) & 255), 1);
    }
    __syncthreads();
    for (int i = threadIdx.x; i < p.count * digits; i += pass_threads)
        if (counts[i] > 0) atomicAdd(p.counts + line * p.count * digits + i, counts[i]);
}

// How many elements of a digit the tiles before have. A tile's word is 0 until the tile is counted; then 1 more than
// its count; then, with the highest bit, the sum of its own count and of all before.
constexpr unsigned is_sum = 0x80000000u;

VB_DEVICE unsigned look_back(const volatile unsigned *words, int64_t tile) {
    constexpr int width = 16;
    unsigned sum = 0;
    while (tile > 0) {
        unsigned word[width];
#pragma unroll
        for (int u = 0; u < width; u++) word[u] = u < tile ? words[(tile - 1 - u) * digits] : 0;
        bool counted = true; // so far
#pragma unroll
        for (int u = 0; u < width; u++) {
            counted = counted && word[u] != 0;
            if (!counted) continue;
            if (word[u] & is_sum) return sum + (word[u] & ~is_sum);
            sum += word[u] - 1;
            tile--;
        }
    }
    return sum;
}

template <bool FLOATS>
__global__ void __launch_bounds__(pass_threads, 2) sort_pass_kernel(const Passes p, const Moves m, int pass) {
    __shared__ union {
        Counts<pass_threads> counts;
        unsigned elements[SORT_TILE];
    } shared;
    __shared__ unsigned starts[digits]; // where rank 0 of the tile would lie, if it were of the digit
    __shared__ unsigned scratch[digits / 32], ticket;
    wait_for_previous_kernel();
    release_next_kernel();
    const int tid = threadIdx.x, first = tid / 32 * 32 * pass_items + tid % 32;
    if (tid == 0) ticket = atomicAdd(p.tickets + pass, 1);
    __syncthreads();
    // The tiles before have their blocks already, so that look_back ends.
    const int64_t line = ticket / (unsigned)p.tiles, tile = ticket % (unsigned)p.tiles;
    const int64_t begin = tile * SORT_TILE, n = p.lines.n;
    const int count = (int)smaller<int64_t>(SORT_TILE, n - begin);
    const int shift = 32 - 8 * (p.count - pass);
    unsigned x[pass_items];
    unsigned ranks[pass_items / 2] = {}; // two ranks of 16 bits each
    const auto rank_of = [&](int i) { return ranks[i / 2] >> i % 2 * 16 & 0xffff; };
    if (m.from) {
#pragma unroll
        for (int i = 0; i < pass_items; i++)
            x[i] = first + 32 * i < count ? m.from[line * n + begin + first + 32 * i] : 0;
    } else {
        const int64_t from = line_place(p.lines.in, p.lines, p.first + line) + begin * p.lines.in_step;
#pragma unroll
        for (int i = 0; i < pass_items; i++)
            x[i] = first + 32 * i < count ? load_top(p.lines.in, from + (first + 32 * i) * p.lines.in_step) : 0;
    }
    const auto digit_of = [&](unsigned element) { return p.order.of<FLOATS>(element) >> shift & 255; };
    volatile unsigned *const words = p.tile_counts + ((pass * p.lines.lines + line) * p.tiles) * digits + tid;
    unsigned own = 0;
    const unsigned first_rank = rank_digits<pass_threads, pass_items>(
        shared.counts, [&](int i) { return first + 32 * i < count ? digit_of(x[i]) : 255; }, // others stay behind
        [&](unsigned elements) {
            own = elements;
            if (tile > 0) words[tile * digits] = elements + 1;
            else words[0] = elements | is_sum;
        },
        [&](int i, unsigned rank) { ranks[i / 2] |= rank << i % 2 * 16; });
    __syncthreads();
#pragma unroll
    for (int i = 0; i < pass_items; i++) shared.elements[rank_of(i)] = x[i];
    const unsigned *const of_line = p.counts + (line * p.count + pass) * digits;
    const unsigned start = sum_before(tid < digits ? of_line[tid] : 0, scratch);
    if (tid < digits) {
        const unsigned before = look_back(words, tile);
        if (tile > 0) words[tile * digits] = (before + own) | is_sum;
        starts[tid] = start + before - first_rank;
    }
    __syncthreads();

    const int64_t values = p.lines.values.data ? line_place(p.lines.values, p.lines, p.first + line) : 0;
    unsigned to[pass_items];
#pragma unroll
    for (int i = 0; i < pass_items; i++) {
        const int at = tid + i * pass_threads;
        const unsigned element = shared.elements[at];
        to[i] = starts[digit_of(element)] + at;
        if (at >= count) continue;
        if (m.to) m.to[line * n + to[i]] = element;
        else if (p.lines.values.data && to[i] < p.lines.k)
            store_top(p.lines.values, values + to[i] * p.lines.values_step, element);
    }
    if (!p.lines.indices.data) return;
    __syncthreads();
#pragma unroll
    for (int i = 0; i < pass_items; i++) {
        const int64_t at = begin + first + 32 * i;
        if (first + 32 * i >= count) continue;
        shared.elements[rank_of(i)] = m.from_places ? m.from_places[line * n + at] : (unsigned)at;
    }
    __syncthreads();
    const int64_t indices = line_place(p.lines.indices, p.lines, p.first + line);
#pragma unroll
    for (int i = 0; i < pass_items; i++) {
        const int at = tid + i * pass_threads;
        if (at >= count) continue;
        if (m.to_places) m.to_places[line * n + to[i]] = shared.elements[at];
        else if (to[i] < p.lines.k)
            reinterpret_cast<unsigned *>(p.lines.indices.data)[indices + to[i] * p.lines.indices_step] =
                shared.elements[at];
    }
}

template <bool FLOATS>
vb_status sort_passes(Passes p, unsigned *arrays, vb_stream *stream) {
    const int64_t size = p.lines.lines * p.lines.n;
    const unsigned grid = (unsigned)(p.lines.lines * p.tiles);
    VB_TRY(launch_overlapped(stream, ceil_div(p.cleared, (unsigned)pass_threads), pass_threads, 0, clear_kernel,
                             p.tickets, p.cleared));
    VB_TRY(launch_overlapped(stream, grid, pass_threads, 0, count_kernel<FLOATS>, p));
    for (int pass = 0; pass < p.count; pass++) {
        unsigned *const from = arrays + pass % 2 * 2 * size, *const to = arrays + (1 - pass % 2) * 2 * size;
        const bool last = pass == p.count - 1;
        const Moves m = {pass > 0 ? from : nullptr, pass > 0 ? from + size : nullptr, last ? nullptr : to,
                         last ? nullptr : to + size};
        VB_TRY(launch_overlapped(stream, grid, pass_threads, 0, sort_pass_kernel<FLOATS>, p, m, pass));
    }
    return VB_OK;
}

} // namespace

vb_status sort_blocks(const SortLines &lines, vb_stream *stream) {
    return vb_is_float(lines.in.type) ? sort_blocks<true>(lines, stream) : sort_blocks<false>(lines, stream);
}

vb_status sort_radix(const SortLines &lines, vb_stream *stream) {
    Passes p = {};
    p.lines = lines, p.order = order_of(lines), p.count = lines.in.bytes;
    p.tiles = ceil_div<int64_t>(lines.n, SORT_TILE);
    const int64_t slice = larger<int64_t>(1, SORT_SLICE / lines.n);
    for (; p.first < lines.lines; p.first += slice) {
        p.lines.lines = smaller(slice, lines.lines - p.first);
        const int64_t counts = p.lines.lines * p.count * digits, tile_counts = counts * p.tiles;
        const int64_t arrays = p.count > 1 ? 4 * p.lines.lines * lines.n : 0;
        void *memory;
        VB_TRY(workspace(&memory, (most_passes + counts + tile_counts + arrays) * (int64_t)sizeof(unsigned), stream));
        p.tickets = (unsigned *)memory, p.counts = p.tickets + most_passes, p.tile_counts = p.counts + counts;
        p.cleared = (unsigned)(most_passes + counts + tile_counts);
        unsigned *const a = p.tile_counts + tile_counts;
        VB_TRY(vb_is_float(lines.in.type) ? sort_passes<true>(p, a, stream) : sort_passes<false>(p, a, stream));
    }
    return VB_OK;
}

} // namespace vb
