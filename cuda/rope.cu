// rope.cu: rotary position embedding (Su et al. 2021) of [batch][heads][seq][dim].
//
//   pair (x, y) of index i < half at position p:  x' = x c - y s,  y' = x s + y c,  c = cos[p * half + i], s = sin[...]
//   interleaved: (2i, 2i+1); neox: (i, i + half); elements from 2 * half on are copied
//
//   grid     256 threads; a thread takes the WIDTH pairs of index i.. of one row, so a row is half / WIDTH threads
//   shared   none; the tables are small and come from the cache
//   moves    2 * batch * heads * seq * dim * sizeof(T) bytes, 6 FLOPs a pair; bound by memory bandwidth
//   measured H200, F32, graph replays, [4][32][2048][128]: NEOX 66 us (4.1 TB/s), interleaved 70 us

#include "common.cuh"

namespace vb {
namespace {

constexpr int threads = 256;

struct Rope {
    const float *cos, *sin;
    const int32_t *positions;
    int64_t position_stride, rows, table_rows;
    int heads, seq, dim, half;
};

// WIDTH pairs a thread: 16 bytes of each half of a row, or 1.
template <class T, int WIDTH, bool NEOX>
__global__ void __launch_bounds__(threads) rope_kernel(T *out, const T *in, Rope r) {
    wait_for_previous_kernel();
    release_next_kernel();
    const int rotated = r.half / WIDTH;                                 // threads of a row that rotate
    const int per_row = rotated + (r.dim - 2 * r.half) / WIDTH;         // and those that copy
    const int64_t index = (int64_t)blockIdx.x * threads + threadIdx.x;
    const int64_t row = index / per_row;
    if (row >= r.rows) return;
    const int slot = int(index - row * per_row);
    using V = Vec<T, WIDTH>;
    const T *x = in + row * r.dim;
    T *y = out + row * r.dim;
    if (slot >= rotated) {
        const int at = 2 * r.half + (slot - rotated) * WIDTH;
        *reinterpret_cast<V *>(y + at) = *reinterpret_cast<const V *>(x + at);
        return;
    }
    const int64_t batch_head = row / r.seq;
    const int64_t s = row - batch_head * r.seq;
    const int64_t position = r.positions ? r.positions[batch_head / r.heads * r.position_stride + s] : s;
    const int i = slot * WIDTH;
    float c[WIDTH], n[WIDTH];
    if (position >= 0 && position < r.table_rows) {
        using F = Vec<float, WIDTH < 4 ? WIDTH : 4>;
#pragma unroll
        for (int e = 0; e < WIDTH; e += F::size) {
            const F cosine = *reinterpret_cast<const F *>(r.cos + position * r.half + i + e);
            const F sine = *reinterpret_cast<const F *>(r.sin + position * r.half + i + e);
#pragma unroll
            for (int f = 0; f < F::size; f++) c[e + f] = cosine.at[f], n[e + f] = sine.at[f];
        }
    } else {
#pragma unroll
        for (int e = 0; e < WIDTH; e++) c[e] = n[e] = __uint_as_float(0x7fffffffu); // NaN
    }
    // The two vectors that hold the pairs: (a[e], b[e]) are a pair, or (first[2e], first[2e+1]) through both in turn.
    V *const first_out = reinterpret_cast<V *>(NEOX ? y + i : y + 2 * i);
    V *const second_out = reinterpret_cast<V *>(NEOX ? y + r.half + i : y + 2 * i + WIDTH);
    const V a = *reinterpret_cast<const V *>(NEOX ? x + i : x + 2 * i);
    const V b = *reinterpret_cast<const V *>(NEOX ? x + r.half + i : x + 2 * i + WIDTH);
    T flat[2 * WIDTH];
#pragma unroll
    for (int e = 0; e < WIDTH; e++) flat[e] = a.at[e], flat[WIDTH + e] = b.at[e];
#pragma unroll
    for (int e = 0; e < WIDTH; e++) {
        const int low = NEOX ? e : 2 * e, high = NEOX ? WIDTH + e : 2 * e + 1;
        const float u = to_float(flat[low]), v = to_float(flat[high]);
        flat[low] = from_float<T>(u * c[e] - v * n[e]);
        flat[high] = from_float<T>(u * n[e] + v * c[e]);
    }
    V p, q;
#pragma unroll
    for (int e = 0; e < WIDTH; e++) p.at[e] = flat[e], q.at[e] = flat[WIDTH + e];
    *first_out = p;
    *second_out = q;
}

} // namespace
} // namespace vb

using namespace vb;

extern "C" vb_status vb_cuda_rope(const vb_rope_args *args, vb_stream *stream) {
    const vb_rope_args &a = *args;
    if (a.heads > INT32_MAX || a.seq > INT32_MAX || a.dim > INT32_MAX) return VB_UNSUPPORTED;
    const Rope r = {a.cos,     a.sin,          a.positions,  a.position_stride, a.batch * a.heads * a.seq,
                    a.table_rows, (int)a.heads, (int)a.seq, (int)a.dim, (int)a.half};
    return with_float_type(a.type, [&](auto zero) {
        using T = decltype(zero);
        constexpr int wide = Wide<T>::size;
        const bool vectors = aligned16(a.out, a.in, a.cos, a.sin) && a.half % wide == 0 && a.dim % wide == 0;
        const int64_t width = vectors ? wide : 1;
        const int64_t blocks = ceil_div<int64_t>(r.rows * ((a.dim - a.half) / width), threads);
        if (blocks > 0x7fffffff) return VB_UNSUPPORTED;
        const auto go = [&](void (*kernel)(T *, const T *, Rope)) {
            return launch_overlapped(stream, (unsigned)blocks, threads, 0, kernel, (T *)a.out, (const T *)a.in, r);
        };
        if (a.mode == VB_ROPE_NEOX) return vectors ? go(rope_kernel<T, wide, true>) : go(rope_kernel<T, 1, true>);
        return vectors ? go(rope_kernel<T, wide, false>) : go(rope_kernel<T, 1, false>);
    });
}
