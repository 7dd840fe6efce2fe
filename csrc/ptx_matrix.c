/* ptx_matrix.c: products of matrices and weights, and the embedding, of GPUs whose kernels the driver compiles. */
#include "ptx_packed.h"

/* c = a b for each matrix of a batch, by tiles of 64 x 64 in shared memory, 16 along k at a time; a thread computes
 * 4 x 4. Strides along rows and columns also express transposed matrices. */
static const char matmul[] = VB_PTX_SOURCE(
kernel ENTRY(TYPE *c_ptr, TYPE *a_ptr, TYPE *b_ptr, u32 m, u32 n, u32 k, u32 batch, u64 a_row, u64 a_col,
    u64 b_row, u64 b_col, u64 c_row, u64 a_next, u64 b_next, u64 c_next) threads(256) {
    shared f32 a_tile[16][65], b_tile[16][65];
    u32 x = thread.x % 16, y = thread.x / 16;
    u32 first_row = block.y * 64, first_col = block.x * 64;
    for (u32 z = block.z; z < batch; z += blocks.z) {
        TYPE *a = a_ptr;
        a += u64(z) * a_next;
        TYPE *b = b_ptr;
        b += u64(z) * b_next;
        TYPE *c = c_ptr;
        c += u64(z) * c_next;
        f32 sum[4][4] = 0;
        for (u32 start = 0; start < k; start += 16) {
            unroll (i : 4) {
                u32 item = thread.x + i * 256;
                u32 a_at = A_ROWS ? item % 16 : item / 64, row = A_ROWS ? item / 16 : item % 64;
                u32 b_at = B_ROWS ? item / 64 : item % 16, col = B_ROWS ? item % 64 : item / 16;
                a_tile[a_at][row] =
                    first_row + row < m && start + a_at < k ? a[u64(first_row + row) * a_row + u64(start + a_at)
                        * a_col] : 0.0;
                b_tile[b_at][col] =
                    first_col + col < n && start + b_at < k ? b[u64(start + b_at) * b_row + u64(first_col + col)
                        * b_col] : 0.0;
            }
            barrier();
            unroll (i : 16) {
                f32 left[4], right[4];
                unroll (j : 4) {
                    left[j] = a_tile[i][y + j * 16];
                    right[j] = b_tile[i][x + j * 16];
                }
                unroll (p : 4) unroll (q : 4) sum[p][q] = fma(left[p], right[q], sum[p][q]);
            }
            barrier();
        }
        unroll (p : 4) unroll (q : 4) {
            u32 row = first_row + y + p * 16, col = first_col + x + q * 16;
            if (row < m && col < n) c[u64(row) * c_row + col] = sum[p][q];
        }
    }
});

vb_status vb_jit_matmul_batched(const vb_matmul_args *args, vb_stream *stream) {
    const vb_matmul_args *p = args;
    if (p->m > INT32_MAX || p->n > INT32_MAX || p->k > INT32_MAX || p->batch > INT32_MAX) return VB_UNSUPPORTED;
    const vb_status status = vb_jit_product(p, stream);
    if (status != VB_UNSUPPORTED) return status;
    uint32_t m = (uint32_t)p->m, n = (uint32_t)p->n, k = (uint32_t)p->k, batch = (uint32_t)p->batch;
    int64_t a_row = p->a_transposed ? 1 : p->a_stride, a_col = p->a_transposed ? p->a_stride : 1;
    int64_t b_row = p->b_transposed ? 1 : p->b_stride, b_col = p->b_transposed ? p->b_stride : 1;
    int64_t c_row = p->c_stride, a_next = p->a_batch_stride, b_next = p->b_batch_stride, c_next = p->c_batch_stride;
    void *c = p->c;
    const void *a = p->a, *b = p->b;
    const vb_jit_filling f = {.source = matmul, .type = vb_jit_type(p->type),
        .constants = {{"A_ROWS", !p->a_transposed}, {"B_ROWS", !p->b_transposed}}};
    return vb_jit_launch(stream, "ptx_matmul", &f, ((int64_t)n + 63) / 64, ((int64_t)m + 63) / 64,
        batch < 65535 ? batch : 65535, 256,
                         VB_JIT_PARAMETERS(&c, &a, &b, &m, &n, &k, &batch, &a_row, &a_col, &b_row, &b_col,
                             &c_row, &a_next, &b_next, &c_next));
}

vb_status vb_jit_matmul_single_row(void *c, const void *a, const void *b, vb_dtype type, int64_t k, int64_t n,
    vb_stream *stream) {
    return vb_jit_matmul_batched(&VB_ARGS(vb_matmul_args, .c = c, .a = a, .b = b, .m = 1, .k = k, .n = n,
        .batch = 1, .a_stride = k,
                                          .b_stride = n, .c_stride = n, .type = type), stream);
}

/* y = x W^T + bias for ROWS rows of x at a time: a warp an output. SUM adds up its row of W with each row of x. */
static const char linear[] = VB_PTX_SOURCE(
kernel ENTRY(f32 *y, f32 *x, u8 *w, f32 *bias, u16 *book, u32 rows, u32 cols, u32 n, u32 biases) threads(128) {
    u32 lane = thread.x % 32, row = block.x * 4 + thread.x / 32, first = block.y * ROWS;
    if (row < rows) {
        f32 sum[ROWS] = 0;
        SUM
        f32 added = biases != 0 ? bias[row] : 0.0;
        unroll (r : ROWS) {
            unroll (i : 5) sum[r] += shuffle_xor(sum[r], 16 >> i);
            if (lane == 0 && first + r < n) y[u64(first + r) * rows + row] = sum[r] + added;
        }
    }
});

/* Any stored type: the lanes decode neighbouring elements. */
static const char sum_any[] = VB_PTX_SOURCE(
    u8 *base = w;
    base += u64(row) * (cols / QK) * BYTES;
    for (u32 i = lane; i < cols; i += 32) {
        u8 *b = base;
        b += u64(i / QK) * BYTES;
        u32 e = i % QK;
        f32 v = 0;
        DECODE
        unroll (r : ROWS) {
            if (first + r < n) sum[r] = fma(x[u64(first + r) * cols + i], v, sum[r]);
        }
    }
);

/* Floats in rows of whole vectors: a lane reads EACH elements, 16 bytes. */
static const char sum_floats[] = VB_PTX_SOURCE(
    TYPE *from = w;
    from += u64(row) * cols;
    for (u32 at = lane * EACH; at < cols; at += 32 * EACH) {
        f32 v[EACH];
        load_once(v, from[at]);
        unroll (r : ROWS) {
            if (first + r < n) {
                unroll (q : EACH / 4) {
                    f32 four[4];
                    load(four, x[u64(first + r) * cols + (at + q * 4)]);
                    unroll (e : 4) sum[r] = fma(four[e], v[q * 4 + e], sum[r]);
                }
            }
        }
    }
);

vb_status vb_jit_linear(float *y, const float *x, const vb_weight *w, const float *bias, int64_t n, vb_stream *stream) {
    enum { TOGETHER = 8, MOST = 65535 * TOGETHER };
    if (w->layout == VB_PACKED) {
        const vb_status status = vb_jit_few(y, x, w, bias, n, stream);
        return status == VB_UNSUPPORTED ? vb_jit_many(y, x, w, bias, n, stream) : status;
    }
    if (w->layout != VB_STORED || w->rows > INT32_MAX || w->cols > INT32_MAX) return VB_UNSUPPORTED;
    uint32_t rows = (uint32_t)w->rows, cols = (uint32_t)w->cols, biases = bias != NULL;
    const void *data = w->data;
    cu_address book = vb_jit_book(w->type, vb_jit_of(stream));
    const int together = n == 1 ? 1 : TOGETHER;
    const int64_t bytes = vb_dtype_block_bytes(w->type), each = 16 / bytes;
    const bool vectors = vb_jit_type(w->type) && cols % each == 0 && ((uintptr_t)x | (uintptr_t)data) % 16 == 0;
    vb_jit_filling f = {.source = linear, .decode = vb_jit_decode(w->type),
        .constants = {{"QK", vb_dtype_block_size(w->type)}, {"BYTES", bytes}, {"ROWS", together}},
        .texts = {{"SUM", sum_any}}};
    if (vectors)
        f = (vb_jit_filling){.source = linear, .type = vb_jit_type(w->type),
            .constants = {{"EACH", each}, {"ROWS", together}},
            .texts = {{"SUM", sum_floats}}};
    for (int64_t done = 0; done < n; done += MOST) {
        uint32_t part = (uint32_t)(n - done < MOST ? n - done : MOST);
        float *to = y + done * w->rows;
        const float *from = x ? x + done * w->cols : x;
        const vb_status status = vb_jit_launch(stream, vectors ? "ptx_linear_wide" : "ptx_linear", &f,
            ((int64_t)rows + 3) / 4, (part + together - 1) / together, 1, 128,
                                               VB_JIT_PARAMETERS(&to, &from, &data, &bias, &book, &rows, &cols,
                                                   &part, &biases));
        if (status != VB_OK) return status;
    }
    return VB_OK;
}

static const char embedding[] = VB_PTX_SOURCE(
kernel ENTRY(f32 *out, u8 *table, u16 *book, s32 *ids, u32 rows, u32 cols, u64 count) threads(256) {
    u64 i = u64(block.x) * 256 + thread.x;
    if (i < count) {
        u64 token = i / u64(cols);
        u32 col = u32(i % u64(cols)), id = u32(ids[token]);
        f32 v = from_bits(0x7fc00000);
        if (id < rows) {
            LOOK_UP
        }
        out[i] = v;
    }
});
static const char look_up_stored[] = VB_PTX_SOURCE(
    u8 *b = table;
    b += u64(id) * (cols / QK) * BYTES + u64(col / QK) * BYTES;
    u32 e = col % QK;
    DECODE
);
static const char look_up_packed[] = VB_PTX_SOURCE(
    u8 *row = table;
    row += u64(id) * ROW_BYTES;
    VALUE
);

vb_status vb_jit_embedding(float *out, const vb_weight *table, const int32_t *ids, int64_t n, vb_stream *stream) {
    if (table->rows > INT32_MAX || table->cols > INT32_MAX) return VB_UNSUPPORTED;
    uint32_t rows = (uint32_t)table->rows, cols = (uint32_t)table->cols;
    int64_t count = n * table->cols;
    const void *data = table->data;
    cu_address book = vb_jit_book(table->type, vb_jit_of(stream));
    vb_jit_layout l;
    vb_jit_filling f = {.source = embedding, .decode = vb_jit_decode(table->type),
        .constants = {{"QK", vb_dtype_block_size(table->type)}, {"BYTES", vb_dtype_block_bytes(table->type)}},
        .texts = {{"LOOK_UP", look_up_stored}}};
    if (table->layout == VB_PACKED) {
        if (!vb_jit_layout_of(&l, table->type, cols)) return VB_UNSUPPORTED;
        f = (vb_jit_filling){.source = embedding,
            .constants = {VB_JIT_LAYOUT(l)},
            .texts = {{"LOOK_UP", look_up_packed}, {"VALUE", vb_jit_packed_value}}};
    }
    return vb_jit_launch(stream, "ptx_embedding", &f, (count + 255) / 256, 1, 1, 256,
                         VB_JIT_PARAMETERS(&out, &data, &book, &ids, &rows, &cols, &count));
}
