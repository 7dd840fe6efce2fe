// topk.cu: argmax and top_k of F32 rows.
//
// Elements are compared by keys (order_key.cuh), which makes the order of comparisons indifferent.

#include "rows/choose.h"
#include "rows/order_key.cuh"

namespace vb {
namespace {

// ---- argmax --------------------------------------------------------------------------------------------------------

// The greatest element of a row: its index, and where `values` is given the element too, which is top_k of k = 1.
//   grid     (chunks, rows): about two blocks an SM; the last block of a row to finish reduces the chunks' keys
//   block    256; 16-byte loads where rows are whole vectors
//   moves    rows * cols * 4 bytes
//   bound    their bandwidth, one row of a vocabulary latency
//   measured docs/experiments/2026-11-22-rows.md
constexpr int argmax_threads = 256;

__global__ void __launch_bounds__(argmax_threads)
    argmax_kernel(float *values, int32_t *ids, const float *in, int64_t cols, int64_t chunk, bool vectors, Key *partial,
                  unsigned *counters) {
    __shared__ Key best_of_warp[argmax_threads / 32];
    __shared__ unsigned flag;
    wait_for_previous_kernel();
    release_next_kernel();
    const int64_t row = blockIdx.y;
    const float *x = in + row * cols;
    const int64_t start = blockIdx.x * chunk, end = smaller(start + chunk, cols); // chunk is a multiple of 4
    Key best = 0;
    if (vectors) {
#pragma unroll 4
        for (int64_t i = start + threadIdx.x * 4; i < end; i += argmax_threads * 4) {
            const float4 four = *reinterpret_cast<const float4 *>(x + i);
            best = larger(larger(best, key_of(four.x, i)), key_of(four.y, i + 1));
            best = larger(larger(best, key_of(four.z, i + 2)), key_of(four.w, i + 3));
        }
    } else {
#pragma unroll 4
        for (int64_t i = start + threadIdx.x; i < end; i += argmax_threads) best = larger(best, key_of(x[i], i));
    }
    // Reduces over the block; thread 0 gets the result.
    const auto reduce = [&](Key key) {
        for (int offset = 16; offset > 0; offset /= 2) key = larger(key, __shfl_xor_sync(all_lanes, key, offset));
        __syncthreads();
        if (threadIdx.x % 32 == 0) best_of_warp[threadIdx.x / 32] = key;
        __syncthreads();
        for (int w = 0; w < argmax_threads / 32; w++) key = larger(key, best_of_warp[w]);
        return key;
    };
    best = reduce(best);
    if (gridDim.x > 1) {
        if (threadIdx.x == 0) partial[row * gridDim.x + blockIdx.x] = best;
        if (!last_arriver(counters + row, gridDim.x, &flag)) return;
        best = 0;
        for (unsigned i = threadIdx.x; i < gridDim.x; i += argmax_threads)
            best = larger(best, __ldcg(partial + row * gridDim.x + i));
        best = reduce(best);
    }
    if (threadIdx.x == 0) {
        const int32_t id = index_of(best);
        ids[row] = id;
        if (values) values[row] = x[id];
    }
}

// ---- top_k ---------------------------------------------------------------------------------------------------------

// A tournament: each block takes a tile of 4096 keys and keeps its k greatest, sorted. The winners are the next round's
// keys, until one tile is left.
// Of 151936 elements, k <= 107 needs two rounds.
//
// A thread holds 16 keys. The k-th greatest of the threads' greatest keys is a lower bound of the tile's k-th greatest.
// At most 16 k keys reach it (about k + k^2 / 512 of random keys): only these are sorted. For k > 256 all are.
//   grid     (tiles, rows), block 256, static shared memory 32 KiB; bitonic sorts
//   moves    rows * cols * 4 bytes and the winners
//   bound    the latency of the sorts' steps
//   measured docs/experiments/2026-11-22-rows.md
constexpr int top_threads = 256;
constexpr int held_keys = 16;
constexpr int tile = top_threads * held_keys;

// The block's keys, one a thread, in descending order; `exchange` is top_threads keys of shared memory.
VB_DEVICE Key sort_threads(Key key, Key *exchange) {
    const int t = threadIdx.x;
    for (int run = 2; run <= top_threads; run *= 2)
        for (int distance = run / 2; distance > 0; distance /= 2) {
            Key other;
            if (distance < 32) {
                other = __shfl_xor_sync(all_lanes, key, distance);
            } else {
                __syncthreads();
                exchange[t] = key;
                __syncthreads();
                other = exchange[t ^ distance];
            }
            const bool greater = ((t & run) == 0) == ((t & distance) == 0); // keep the greater of the two
            key = greater ? larger(key, other) : smaller(key, other);
        }
    return key;
}

// Sorts keys[0..2^log_size) in shared memory, descending. Whole block; a barrier before, one after.
VB_DEVICE void sort_shared(Key *keys, int log_size) {
    for (int log_run = 1; log_run <= log_size; log_run++)
        for (int log_distance = log_run - 1; log_distance >= 0; log_distance--) {
            __syncthreads();
            for (int i = threadIdx.x; i < 1 << (log_size - 1); i += top_threads) {
                const int distance = 1 << log_distance;
                const int low = (i >> log_distance << (log_distance + 1)) | (i & (distance - 1)), high = low + distance;
                const Key a = keys[low], b = keys[high];
                const bool descending = (low >> log_run & 1) == 0;
                if ((a < b) == descending) keys[low] = b, keys[high] = a;
            }
        }
    __syncthreads();
}

// A warp has a row, a lane an element: rows of up to 32 columns.
constexpr int narrow_rows = top_threads / 32;

__global__ void __launch_bounds__(top_threads)
    top_k_narrow_kernel(float *values, int32_t *ids, const float *in, int64_t rows, int cols, int k) {
    wait_for_previous_kernel();
    release_next_kernel();
    const int64_t row = (int64_t)blockIdx.x * narrow_rows + (int)threadIdx.x / 32;
    const int lane = threadIdx.x % 32;
    if (row >= rows) return; // all of the warp
    Key key = lane < cols ? key_of(in[row * cols + lane], lane) : 0;
#pragma unroll
    for (int run = 2; run <= 32; run *= 2)
#pragma unroll
        for (int distance = run / 2; distance > 0; distance /= 2) {
            const Key other = __shfl_xor_sync(all_lanes, key, distance);
            const bool greater = ((lane & run) == 0) == ((lane & distance) == 0);
            key = greater ? larger(key, other) : smaller(key, other);
        }
    if (lane >= k) return;
    const int32_t id = index_of(key);
    ids[row * k + lane] = id;
    values[row * k + lane] = in[row * cols + id];
}

// FIRST: keys come from `in`; else from `keys`. LAST: results go to values and ids (one tile a row); else to `winners`.
template <bool FIRST, bool LAST>
__global__ void __launch_bounds__(top_threads) top_k_kernel(float *values, int32_t *ids, Key *winners, const float *in,
                                                            const Key *keys, int64_t cols, int64_t n, int k) {
    __shared__ Key chosen[tile];
    __shared__ Key bound;
    __shared__ int count;
    wait_for_previous_kernel();
    release_next_kernel();
    const int64_t row = blockIdx.y, start = (int64_t)blockIdx.x * tile;
    Key mine[held_keys], greatest = 0; // 0 is below every element's key
#pragma unroll
    for (int i = 0; i < held_keys; i++) {
        const int64_t at = start + i * top_threads + threadIdx.x;
        mine[i] = at >= n ? 0 : FIRST ? key_of(in[row * cols + at], at) : keys[row * n + at];
    }
#pragma unroll
    for (int i = 0; i < held_keys; i++) greatest = larger(greatest, mine[i]);
    if (threadIdx.x == 0) count = 0, bound = 1;
    if (k <= top_threads) {
        greatest = sort_threads(greatest, chosen);
        if ((int)threadIdx.x == k - 1) bound = larger<Key>(greatest, 1);
    }
    __syncthreads();
#pragma unroll
    for (int i = 0; i < held_keys; i++)
        if (mine[i] >= bound) chosen[atomicAdd(&count, 1)] = mine[i]; // in any order: the sort restores one
    __syncthreads();
    const int have = count;
    int log_size = 1;
    while (1 << log_size < larger(have, k)) log_size++;
    for (int i = have + threadIdx.x; i < 1 << log_size; i += top_threads) chosen[i] = 0;
    sort_shared(chosen, log_size);
    for (int i = threadIdx.x; i < k; i += top_threads) {
        const Key key = chosen[i];
        if (LAST) {
            const int32_t id = index_of(key);
            ids[row * k + i] = id;
            values[row * k + i] = in[row * cols + id];
        } else {
            winners[(row * gridDim.x + blockIdx.x) * k + i] = key; // 0 where the tile held fewer than k
        }
    }
}

} // namespace
} // namespace vb

using namespace vb;

extern "C" {

static vb_status greatest(float *values, int32_t *ids, const float *in, int64_t rows, int64_t cols, vb_stream *stream) {
    const bool vectors = aligned16(in) && cols % 4 == 0;
    // Rows in slices, since the grid's y and the counters are limited.
    const int64_t slice = smaller<int64_t>(workspace_counters, 65535);
    for (int64_t first = 0; first < rows; first += slice) {
        const int64_t count = smaller(slice, rows - first);
        int64_t chunks = larger<int64_t>(1, 2 * multiprocessors(stream) / count);
        const int64_t chunk = ceil_div<int64_t>(larger<int64_t>(ceil_div(cols, chunks), 1024), 4) * 4;
        chunks = ceil_div(cols, chunk);
        void *partial;
        VB_TRY(workspace(&partial, count * chunks * (int64_t)sizeof(Key), stream));
        VB_TRY(launch_overlapped(stream, dim3((unsigned)chunks, (unsigned)count), argmax_threads, 0, argmax_kernel,
                                 values ? values + first : nullptr, ids + first, in + first * cols, cols, chunk,
                                 vectors, (Key *)partial, counters(stream)));
    }
    return VB_OK;
}

vb_status vb_cuda_argmax(int32_t *out, const float *in, int64_t rows, int64_t cols, vb_stream *stream) {
    chosen(stream, rows_kernel_info(ROWS_ARGMAX), "argmax", VB_F32, "rows cols", rows, cols);
    return greatest(nullptr, out, in, rows, cols, stream);
}

vb_status vb_cuda_top_k(float *values, int32_t *ids, const float *in, int64_t rows, int64_t cols, int64_t k,
                        vb_stream *stream) {
    const rows_kernel kernel = choose_top_k(cols, k);
    chosen(stream, rows_kernel_info(kernel), "top_k", VB_F32, "rows cols k", rows, cols, k);
    if (kernel == ROWS_NONE) return VB_UNSUPPORTED;
    if (kernel == ROWS_ARGMAX) return greatest(values, ids, in, rows, cols, stream);
    if (kernel == ROWS_TOP_K_NARROW)
        return launch_overlapped(stream, (unsigned)ceil_div<int64_t>(rows, narrow_rows), top_threads, 0,
                                 top_k_narrow_kernel, values, ids, in, rows, (int)cols, (int)k);
    const int64_t slice = 8192; // rows of one launch
    for (int64_t first = 0; first < rows; first += slice) {
        const int64_t count = smaller(slice, rows - first);
        const float *x = in + first * cols;
        float *v = values + first * k;
        int32_t *id = ids + first * k;
        const int64_t tiles = ceil_div<int64_t>(cols, tile);
        const unsigned y = (unsigned)count;
        const int top = (int)k;
        if (tiles == 1) {
            VB_TRY(launch_overlapped(stream, dim3(1, y), top_threads, 0, top_k_kernel<true, true>, v, id,
                                     (Key *)nullptr, x, (const Key *)nullptr, cols, cols, top));
            continue;
        }
        // Two halves of the workspace in turn: a round reads one and writes the other.
        const int64_t half_size = count * tiles * k;
        void *memory;
        VB_TRY(workspace(&memory, 2 * half_size * (int64_t)sizeof(Key), stream));
        Key *from = (Key *)memory, *to = from + half_size;
        VB_TRY(launch_overlapped(stream, dim3((unsigned)tiles, y), top_threads, 0, top_k_kernel<true, false>, v, id,
                                 from, x, (const Key *)nullptr, cols, cols, top));
        for (int64_t n = tiles * k;;) {
            const int64_t left = ceil_div<int64_t>(n, tile);
            if (left == 1) {
                VB_TRY(launch_overlapped(stream, dim3(1, y), top_threads, 0, top_k_kernel<false, true>, v, id,
                                         (Key *)nullptr, x, (const Key *)from, cols, n, top));
                break;
            }
            VB_TRY(launch_overlapped(stream, dim3((unsigned)left, y), top_threads, 0, top_k_kernel<false, false>, v, id,
                                     to, x, (const Key *)from, cols, n, top));
            Key *const swap = from;
            from = to;
            to = swap;
            n = left * k;
        }
    }
    return VB_OK;
}

} // extern "C"
