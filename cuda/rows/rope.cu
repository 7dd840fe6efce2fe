// rope.cu: rotary position embedding (Su et al. 2021) of [batch][heads][seq][dim].
//
//   pair (x, y) of index i < half at position p:  x' = x c - y s,  y' = x s + y c,  c = cos[p * half + i], s = sin[...]
//   interleaved: (2i, 2i+1); neox: (i, i + half); elements from 2 * half on are copied
//
//   grid     (rows of seq / rows a block, batch * heads); 256 threads, or fewer for short sequences: (vectors of a row,
//            rows), so that no index is divided: divisions took longer than the memory
//   shared   none; the tables are small and come from the cache
//   moves    2 * batch * heads * seq * dim * sizeof(T) bytes, 6 FLOPs a pair
//   bound    memory bandwidth

#include "arch/streaming.cuh"
#include "rows/choose.h"

namespace vb {
namespace {

constexpr int rope_threads = 256;

struct Rope {
    const float *cos, *sin;
    const int32_t *positions;
    int64_t position_stride, table_rows;
    int batch_heads, heads, seq, dim, half;
    bool streamed;
};

// The elements (x, y) of PAIRS pairs of a row, from pair i on.
//   one vector        where the two elements of a pair are neighbours
//   two vectors       of the first and of the second half, where they are not
//   single elements   where rows do not consist of vectors
template <class T, int PAIRS, bool NEOX, bool VECTORS>
struct Pairs {
    Vec<T, PAIRS> x, y;

    VB_DEVICE void load(const T *row, int i, int half, const StreamReader &reader) {
        using V = typename Wide<T>::type;
        if (NEOX && VECTORS) { // PAIRS is that of V
            const V first = reader.load(reinterpret_cast<const V *>(row + i)),
                    second = reader.load(reinterpret_cast<const V *>(row + half + i));
#pragma unroll
            for (int e = 0; e < PAIRS; e++) x.at[e] = first.at[e], y.at[e] = second.at[e];
        } else if (VECTORS) { // half of it
            const V both = reader.load(reinterpret_cast<const V *>(row + 2 * i));
#pragma unroll
            for (int e = 0; e < PAIRS; e++) x.at[e] = both.at[2 * e], y.at[e] = both.at[2 * e + 1];
        } else {
            x.at[0] = row[NEOX ? i : 2 * i];
            y.at[0] = row[NEOX ? half + i : 2 * i + 1];
        }
    }
    VB_DEVICE void store(T *row, int i, int half) const {
        if (NEOX && VECTORS) {
            *reinterpret_cast<Vec<T, PAIRS> *>(row + i) = x;
            *reinterpret_cast<Vec<T, PAIRS> *>(row + half + i) = y;
        } else if (VECTORS) {
            Vec<T, 2 * PAIRS> both;
#pragma unroll
            for (int e = 0; e < PAIRS; e++) both.at[2 * e] = x.at[e], both.at[2 * e + 1] = y.at[e];
            *reinterpret_cast<Vec<T, 2 * PAIRS> *>(row + 2 * i) = both;
        } else {
            row[NEOX ? i : 2 * i] = x.at[0];
            row[NEOX ? half + i : 2 * i + 1] = y.at[0];
        }
    }
};

template <class T, int PAIRS, bool NEOX, bool VECTORS>
__global__ void __launch_bounds__(rope_threads) rope_kernel(T *out, const T *in, Rope r) {
    wait_for_previous_kernel();
    release_next_kernel();
    const StreamReader reader(r.streamed);
    constexpr int copied = VECTORS ? Wide<T>::size : 1; // elements that a thread copies at a time
    const int s = blockIdx.x * blockDim.y + threadIdx.y;
    if (s >= r.seq) return;
    const int rotated = r.half / PAIRS, slots = rotated + (r.dim - 2 * r.half) / copied;
    for (int batch_head = blockIdx.y; batch_head < r.batch_heads; batch_head += gridDim.y) {
        const int64_t row = ((int64_t)batch_head * r.seq + s) * r.dim;
        const int64_t position = r.positions ? r.positions[batch_head / r.heads * r.position_stride + s] : s;
        const bool inside = position >= 0 && position < r.table_rows;
        for (int slot = threadIdx.x; slot < slots; slot += blockDim.x) {
            if (slot >= rotated) {
                using V = Vec<T, copied>;
                const int64_t at = row + 2 * r.half + (slot - rotated) * copied;
                *reinterpret_cast<V *>(out + at) = *reinterpret_cast<const V *>(in + at);
                continue;
            }
            const int i = slot * PAIRS;
            Pairs<T, PAIRS, NEOX, VECTORS> pairs;
            pairs.load(in + row, i, r.half, reader);
            using F = Vec<float, PAIRS < 4 ? PAIRS : 4>;
#pragma unroll
            for (int e = 0; e < PAIRS; e += F::size) {
                F cosine, sine;
#pragma unroll
                for (int f = 0; f < F::size; f++) cosine.at[f] = sine.at[f] = __uint_as_float(0x7fffffffu); // NaN
                if (inside) {
                    cosine = *reinterpret_cast<const F *>(r.cos + position * r.half + i + e);
                    sine = *reinterpret_cast<const F *>(r.sin + position * r.half + i + e);
                }
#pragma unroll
                for (int f = 0; f < F::size; f++) {
                    const float u = to_float(pairs.x.at[e + f]), v = to_float(pairs.y.at[e + f]);
                    pairs.x.at[e + f] = from_float<T>(u * cosine.at[f] - v * sine.at[f]);
                    pairs.y.at[e + f] = from_float<T>(u * sine.at[f] + v * cosine.at[f]);
                }
            }
            pairs.store(out + row, i, r.half);
        }
    }
}

} // namespace
} // namespace vb

using namespace vb;

extern "C" vb_status vb_cuda_rope(const vb_rope_args *args, vb_stream *stream) {
    const vb_rope_args &a = *args;
    const rows_kernel kernel = choose_rope(&a);
    chosen(stream, rows_kernel_info(kernel), "rope", a.type, "batch heads seq dim half", a.batch, a.heads, a.seq, a.dim,
           a.half);
    if (kernel == ROWS_NONE) return VB_UNSUPPORTED;
    const Rope r = {a.cos,
                    a.sin,
                    a.positions,
                    a.position_stride,
                    a.table_rows,
                    (int)(a.batch * a.heads),
                    (int)a.heads,
                    (int)a.seq,
                    (int)a.dim,
                    (int)a.half,
                    beyond_l2(bytes_of(a.type, a.batch * a.heads * a.seq * a.dim), stream)};
    return with_float_type(a.type, [&](auto zero) {
        using T = decltype(zero);
        constexpr int wide = Wide<T>::size;
        const bool neox = a.mode == VB_ROPE_NEOX;
        const int pairs = rope_pairs(&a);
        const bool vectors = kernel == ROWS_ROPE_VECTORS;
        const int64_t slots = vectors ? a.half / pairs + (a.dim - 2 * a.half) / wide : a.dim - a.half;
        const unsigned x = (unsigned)smaller<int64_t>(rope_threads, slots),
                       y = (unsigned)smaller<int64_t>(rope_threads / x, a.seq);
        const dim3 grid((unsigned)ceil_div<int64_t>(a.seq, y), (unsigned)smaller(r.batch_heads, 65535));
        const auto go = [&](void (*kernel)(T *, const T *, Rope)) {
            return launch_overlapped(stream, grid, dim3(x, y), 0, kernel, (T *)a.out, (const T *)a.in, r);
        };
        if (neox) return vectors ? go(rope_kernel<T, wide, true, true>) : go(rope_kernel<T, 1, true, false>);
        return vectors ? go(rope_kernel<T, wide / 2, false, true>) : go(rope_kernel<T, 1, false, false>);
    });
}
