// embedding.cu: out[i] = row ids[i] of a table of any weight type, stored or packed, as float32 [n][cols].
//
//   grid     one block a row, 256 threads, eight elements a thread at a time
//   moves    n rows of the table, n * cols * 4 bytes written
//   bound    latency at decode (the id, then the row), bytes written at prefill

#include "linear/linear.cuh"
#include "rows/choose.h"
#ifdef VB_HAS_PACKED_LAYOUT
#include "linear/packed/packed.cuh"
#endif

namespace vb {
namespace {

template <class Block>
struct StoredTable {
    const Block *data;
    int64_t cols;
    VB_DEVICE void read8(float out[8], int64_t row, int64_t k) const {
        dequantize8(out, data + row * (cols / BlockSize<Block>::value), k);
    }
};

// Rows that do not start at 16 bytes.
template <class T>
struct OddTable {
    const T *data;
    int64_t cols;
    VB_DEVICE void read8(float out[8], int64_t row, int64_t k) const {
        for (int i = 0; i < 8; i++) out[i] = k + i < cols ? to_float(data[row * cols + k + i]) : 0.0f;
    }
};

template <class Table>
__global__ void __launch_bounds__(256) embedding_kernel(float *out, Table table, const int32_t *ids, int64_t rows,
                                                        int64_t cols) {
    wait_for_previous_kernel();
    release_next_kernel();
    const int64_t id = ids[blockIdx.x];
    out += blockIdx.x * cols;
    for (int64_t k = 8 * threadIdx.x; k < cols; k += 8 * blockDim.x) {
        float v[8];
        if (id >= 0 && id < rows) table.read8(v, id, k);
        else
            for (int i = 0; i < 8; i++) v[i] = __int_as_float(0x7fffffff);
        if (cols % 4 == 0 && k + 8 <= cols) {
            reinterpret_cast<float4 *>(out + k)[0] = make_float4(v[0], v[1], v[2], v[3]);
            reinterpret_cast<float4 *>(out + k)[1] = make_float4(v[4], v[5], v[6], v[7]);
        } else
            for (int i = 0; i < 8 && k + i < cols; i++) out[k + i] = v[i];
    }
}

template <class Table>
vb_status embed(float *out, Table table, const vb_weight *w, const int32_t *ids, int64_t n, vb_stream *stream) {
    return launch_overlapped(stream, (unsigned)n, 256, 0, embedding_kernel<Table>, out, table, ids, w->rows, w->cols);
}

#ifdef VB_HAS_PACKED_LAYOUT
template <class Block>
struct PackedTable {
    const void *data;
    int64_t cols;
    VB_DEVICE void read8(float out[8], int64_t row, int64_t k) const {
        dequantize8_packed<Block>(out, data, row, k, cols);
    }
};

vb_status embed_packed(float *out, const vb_weight *w, const int32_t *ids, int64_t n, vb_stream *stream) {
    switch (vb_packed_as(w->type)) {
#define X(type, Block, ...) case type: return embed(out, PackedTable<Block>{w->data, w->cols}, w, ids, n, stream);
        VB_PACKED_TYPES(X)
#undef X
    default: return VB_UNSUPPORTED;
    }
}
#endif

template <class Block>
vb_status embed_stored(float *out, const vb_weight *w, const int32_t *ids, int64_t n, vb_stream *stream) {
    return embed(out, StoredTable<Block>{(const Block *)w->data, w->cols}, w, ids, n, stream);
}
template <class T>
vb_status embed_odd(float *out, const vb_weight *w, const int32_t *ids, int64_t n, vb_stream *stream) {
    return embed(out, OddTable<T>{(const T *)w->data, w->cols}, w, ids, n, stream);
}

} // namespace
} // namespace vb

using namespace vb;

extern "C" vb_status vb_cuda_embedding(float *out, const vb_weight *table, const int32_t *ids, int64_t n,
                                       vb_stream *stream) {
    const rows_kernel kernel = choose_embedding(table);
    chosen(stream, rows_kernel_info(kernel), "embedding", table->type, "n cols", n, table->cols);
#ifdef VB_HAS_PACKED_LAYOUT
    if (kernel == ROWS_EMBEDDING_PACKED) return embed_packed(out, table, ids, n, stream);
#endif
    if (kernel == ROWS_EMBEDDING_ODD)
        return with_float_type(table->type,
                               [&](auto zero) { return embed_odd<decltype(zero)>(out, table, ids, n, stream); });
    switch (table->type) {
#define X(type, Block) case type: return embed_stored<Block>(out, table, ids, n, stream);
        VB_WEIGHT_TYPES(X)
#undef X
    default: return VB_UNSUPPORTED;
    }
}
