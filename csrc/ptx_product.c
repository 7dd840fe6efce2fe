/* ptx_product.c: products of matrices of 16 bits on tensor cores of 8.0 and newer, of GPUs whose kernels the driver
 * compiles. A block computes 128 x 128 with four warps of 64 x 64, from a ring of three stages of 64 along k. */
#include "ptx_packed.h"

/* A matrix lies in shared memory as in the array: ROWS rows of DEEP along k, or, transposed, DEEP rows along k of ROWS.
 * Blocks that run at the same time compute GROUP tiles of rows by as many columns, so that the L2 holds what they read.
 * Chunks of 16 bytes are permuted so that the reads of eight rows meet no bank twice. VECTORS: whole chunks are in the
 * matrix or none of their elements is, and they begin at multiples of 16 bytes. */
static const char product[] = VB_PTX_SOURCE(
kernel ENTRY(TYPE *c_ptr, TYPE *a_ptr, TYPE *b_ptr, u32 m, u32 n, u32 k, u32 batch, u64 a_stride, u64 b_stride,
    u64 c_stride, u64 a_batch, u64 b_batch, u64 c_batch) threads(THREADS, LEAST_BLOCKS) {
    const a_size = ROWS * DEEP;
    const b_size = COLS * DEEP;
    shared TYPE a_tile[STAGES][a_size / A_WIDE][A_WIDE], b_tile[STAGES][b_size / B_WIDE][B_WIDE];
    u32 lane = thread.x % 32, warp = thread.x / 32;
    u32 warp_row = warp / (COLS / WARP_COLS) * 64, warp_col = warp % (COLS / WARP_COLS) * WARP_COLS;
    u32 down = (m + (ROWS - 1)) / ROWS, group = GROUP * ((n + (COLS - 1)) / COLS), top = block.x / group * GROUP;
    u32 high = min(down - top, GROUP);
    u32 first_row = (top + block.x % group % high) * ROWS, first_col = block.x % group / high * COLS;
    u32 steps = (k + (DEEP - 1)) / DEEP;
    FIND_A
    FIND_B
    u32 a_from[4], b_from[4];
    unroll (v : 4) {
        if (A_ALONG) a_from[v] = (warp_row + lane % 16) * DEEP + (v * 2 + lane / 16 ^ (lane & 7)) * 8;
        else a_from[v] = (lane / 16 * 8 + lane % 8) * A_WIDE + (warp_row / 8 + v * 2 + lane / 8 % 2 ^ (lane & 7)) * 8;
        if (B_ALONG)
            b_from[v] = (warp_col + lane / 16 * 8 + lane % 8) * DEEP + (v * 2 + lane / 8 % 2 ^ (lane & 7)) * 8;
        else b_from[v] = lane % 16 * B_WIDE + (warp_col / 8 + v * 2 + lane / 16 ^ (lane & 7)) * 8;
    }
    for (u32 z = block.z; z < batch; z += blocks.z) {
        TYPE *a = a_ptr;
        a += u64(z) * a_batch + a_first;
        TYPE *b = b_ptr;
        b += u64(z) * b_batch + b_first;
        f32 sum[4][WARP_COLS / 8][4] = 0;
        u32 filled = 0, stage = 0;
        for (u32 step = 0; step < STAGES - 1; step += 1) {
            FILL
        }
        for (u32 done = 0; done < steps; done += 1) {
            if (VECTORS) copy_async_wait(STAGES - 2);
            barrier();
            u32 a_stage = stage * a_size, b_stage = stage * b_size;
            unroll (part : DEEP / 16) {
                u32 left[4][4], right[WARP_COLS / 16][2][2];
                unroll (i : 4) {
                    if (A_ALONG) load_matrices(left[i], a_tile[0][i * 16][a_from[part] + a_stage]);
                    else load_matrices_transposed(left[i], a_tile[0][part * 16][a_from[i] + a_stage]);
                }
                unroll (j : WARP_COLS / 16) {
                    if (B_ALONG) load_matrices(right[j], b_tile[0][j * 16][b_from[part] + b_stage]);
                    else load_matrices_transposed(right[j], b_tile[0][part * 16][b_from[j] + b_stage]);
                }
                unroll (i : 4) unroll (j : WARP_COLS / 8) MULTIPLY(sum[i][j], left[i], right[j / 2][j % 2]);
                if (part == 0) {
                    u32 step = done + (STAGES - 1);
                    FILL
                }
            }
            stage = stage + 1 == STAGES ? 0 : stage + 1;
        }
        barrier();
        TYPE *c_row = c_ptr;
        u32 row = first_row + warp_row + lane / 4, col = first_col + warp_col + lane % 4 * 2;
        c_row += u64(z) * c_batch + (u64(row) * c_stride + col);
        unroll (i : 4) unroll (h : 2) {
            TYPE *c = c_row;
            c += u64(i * 16 + h * 8) * c_stride;
            if (row + (i * 16 + h * 8) < m) {
                unroll (j : WARP_COLS / 8) {
                    u32 *pair = c;
                    if (PAIRS) {
                        if (col + j * 8 < n) pair[j * 4] = PACK(sum[i][j][h * 2], sum[i][j][h * 2 + 1]);
                    } else {
                        unroll (e : 2) if (col + (j * 8 + e) < n) c[j * 8 + e] = sum[i][j][h * 2 + e];
                    }
                }
            }
        }
    }
});

/* The next stage, if there is one. */
static const char fill[] = VB_PTX_SOURCE(
    if (step < steps) {
        FILL_A
        FILL_B
        filled = filled + 1 == STAGES ? 0 : filled + 1;
    }
    if (VECTORS) copy_async_commit();
);

/* Where a thread finds the first of the chunks that it brings, in the matrix and in a stage: of a matrix whose rows are
 * along k, and of one whose rows lie across it. */
#define FIND_ROWS(p, first) VB_PTX_SOURCE( \
    u32 p##_row = thread.x / (DEEP / 8), p##_col = thread.x % (DEEP / 8) * 8; \
    u64 p##_first = u64(first + p##_row) * p##_stride + p##_col; \
    u32 p##_to = p##_row * DEEP + (thread.x % (DEEP / 8) ^ (p##_row & 7)) * 8; \
)
#define FIND_WIDE(p, first) VB_PTX_SOURCE( \
    u32 p##_row = thread.x / (p##_size / DEEP / 8), p##_col = thread.x % (p##_size / DEEP / 8) * 8; \
    u64 p##_first = u64(p##_row) * p##_stride + (first + p##_col); \
    u32 p##_to = p##_row * (p##_size / DEEP) + (thread.x % (p##_size / DEEP / 8) ^ (p##_row & 7)) * 8; \
)
/* A stage of such a matrix. */
#define FILL_ROWS(x, first, count) VB_PTX_SOURCE({ \
    const rows = THREADS / (DEEP / 8); \
    u32 at = step * DEEP + x##_col, to = x##_to + filled * x##_size; \
    TYPE *from = x; \
    unroll (i : x##_size / DEEP / rows) { \
        if (VECTORS) { \
            copy_async(x##_tile[0][i * rows][to], from[0], first + x##_row + i * rows < count && at < k); \
        } else { \
            unroll (e : 8) x##_tile[0][i * rows][to + e] = \
                first + x##_row + i * rows < count && at + e < k ? from[e] : 0.0; \
        } \
        from += x##_stride * rows; \
    } \
    x += DEEP; \
})
#define FILL_WIDE(x, first, count) VB_PTX_SOURCE({ \
    const rows = THREADS / (x##_size / DEEP / 8); \
    u32 at = step * DEEP + x##_row, to = x##_to + filled * x##_size; \
    TYPE *from = x; \
    unroll (i : DEEP / rows) { \
        if (VECTORS) { \
            copy_async(x##_tile[0][i * rows][to], from[0], at + i * rows < k && first + x##_col < count); \
        } else { \
            unroll (e : 8) x##_tile[0][i * rows][to + e] = \
                at + i * rows < k && first + x##_col + e < count ? from[e] : 0.0; \
        } \
        from += x##_stride * rows; \
    } \
    x += x##_stride * DEEP; \
})
static const char find_a_rows[] = FIND_ROWS(a, first_row), find_a_wide[] = FIND_WIDE(a, first_row);
static const char find_b_rows[] = FIND_ROWS(b, first_col), find_b_wide[] = FIND_WIDE(b, first_col);
static const char a_rows[] = FILL_ROWS(a, first_row, m), a_wide[] = FILL_WIDE(a, first_row, m);
static const char b_rows[] = FILL_ROWS(b, first_col, n), b_wide[] = FILL_WIDE(b, first_col, n);

/* Copies matrices into memory whose rows are whole vectors: behind a row are zeros. A thread copies a vector. */
static const char widen[] = VB_PTX_SOURCE(
kernel ENTRY(u32 *out, u16 *in, u32 rows, u32 cols, u32 vectors, u32 batch, u64 stride, u64 batch_stride) threads(256) {
    u32 at = block.x * 256 + thread.x;
    if (at < rows * vectors) {
        u32 row = at / vectors, first = at % vectors * 8;
        for (u32 z = block.z; z < batch; z += blocks.z) {
            u16 *from = in;
            from += u64(z) * batch_stride + (u64(row) * stride + first);
            u32 words[4], element[8];
            unroll (e : 8) {
                element[e] = 0;
                if (first + e < cols) element[e] = from[e];
            }
            unroll (j : 4) words[j] = element[2 * j] | element[2 * j + 1] << 16;
            store(out[(u64(z) * u64(rows * vectors) + at) * 4], words);
        }
    }
});

/* A factor of a product: `rows` rows of `cols` elements. */
typedef struct factor { const void *data; int64_t rows, cols, stride, batch_stride; } factor;

static bool has_vectors(const factor *x) {
    return (uintptr_t)x->data % 16 == 0 && (x->cols | x->stride | x->batch_stride) % 8 == 0;
}
/* The bytes of a copy with whole vectors. */
static int64_t wide_bytes(const factor *x, int64_t batch) {
    return 16 * x->rows * ((x->cols + 7) / 8) * (x->batch_stride ? batch : 1);
}
static vb_status copy_widened(void *to, factor *x, int64_t batch, vb_stream *stream) {
    uint32_t rows = (uint32_t)x->rows, cols = (uint32_t)x->cols, vectors = (cols + 7) / 8;
    uint32_t copies = x->batch_stride ? (uint32_t)batch : 1;
    const void *in = x->data;
    int64_t stride = x->stride, batch_stride = x->batch_stride;
    const vb_jit_filling f = {.source = widen};
    x->data = to, x->stride = 8LL * vectors, x->cols = x->stride;
    if (batch_stride) x->batch_stride = x->rows * x->stride;
    return vb_jit_launch(stream, "ptx_product_widen", &f, (x->rows * vectors + 255) / 256, 1,
        copies < 65535 ? copies : 65535, 256,
                         VB_JIT_PARAMETERS(&to, &in, &rows, &cols, &vectors, &copies, &stride, &batch_stride));
}

vb_status vb_jit_product(const vb_matmul_args *p, vb_stream *stream) {
    enum { FIRST_TARGET = 80, LEAST_ROWS = 16, ROWS = 128, WIDE = 128, NARROW = 64, DEEP = 64, MOST_BLOCKS = 65535,
        LEAST_WIDENED = 96, MOST_WIDENED = 1 << 29 };
    if (vb_dtype_block_bytes(p->type) != 2 || vb_jit_of(stream)->target < FIRST_TARGET || p->m < LEAST_ROWS)
        return VB_UNSUPPORTED;
    uint32_t m = (uint32_t)p->m, n = (uint32_t)p->n, k = (uint32_t)p->k, batch = (uint32_t)p->batch;
    int64_t c_stride = p->c_stride, c_batch = p->c_batch_stride;
    void *c = p->c;
    factor x = {p->a, p->a_transposed ? p->k : p->m, p->a_transposed ? p->m : p->k, p->a_stride, p->a_batch_stride};
    factor y = {p->b, p->b_transposed ? p->n : p->k, p->b_transposed ? p->k : p->n, p->b_stride, p->b_batch_stride};
    bool vectors = has_vectors(&x) && has_vectors(&y);
    if (!vectors) {
        /* Worth it where each element is read several times. */
        const int64_t x_bytes = has_vectors(&x) ? 0 : wide_bytes(&x, p->batch);
        const int64_t y_bytes = has_vectors(&y) ? 0 : wide_bytes(&y, p->batch);
        void *copies = NULL;
        if (p->m >= LEAST_WIDENED && p->n >= LEAST_WIDENED && x_bytes + y_bytes <= MOST_WIDENED) {
            vb_status status = vb_jit_workspace(&copies, x_bytes + y_bytes, stream);
            if (status == VB_OK && x_bytes) status = copy_widened(copies, &x, p->batch, stream);
            if (status == VB_OK && y_bytes) status = copy_widened((char *)copies + x_bytes, &y, p->batch, stream);
            if (status != VB_OK) return status;
            vectors = true;
        }
    }
    const void *a = x.data, *b = y.data;
    int64_t a_stride = x.stride, b_stride = y.stride, a_batch = x.batch_stride, b_batch = y.batch_stride;
    /* Narrow tiles where wide ones would leave multiprocessors without one. */
    const int64_t down = (p->m + ROWS - 1) / ROWS;
    const bool narrow = down * ((p->n + WIDE - 1) / WIDE) * p->batch < vb_jit_of(stream)->multiprocessors;
    const int64_t cols = narrow ? NARROW : WIDE, threads = 128;
    const bool pairs = (uintptr_t)c % 4 == 0 && (p->n | c_stride | c_batch) % 2 == 0, half = p->type == VB_F16;
    const vb_jit_filling f = {.source = product, .type = vb_jit_type(p->type),
        .constants = {{"A_WIDE", p->a_transposed ? ROWS : DEEP}, {"B_WIDE", p->b_transposed ? DEEP : cols},
                      {"A_ALONG", !p->a_transposed}, {"B_ALONG", p->b_transposed}, {"ROWS", ROWS}, {"COLS", cols},
                      {"DEEP", DEEP}, {"WARP_COLS", cols / 2}, {"STAGES", 3}, {"THREADS", threads},
                      {"LEAST_BLOCKS", narrow ? 3 : 2}, {"GROUP", 16}, {"VECTORS", vectors}, {"PAIRS", pairs}},
        .texts = {{"FILL", fill}, {"FIND_A", p->a_transposed ? find_a_wide : find_a_rows},
                  {"FIND_B", p->b_transposed ? find_b_rows : find_b_wide},
                  {"FILL_A", p->a_transposed ? a_wide : a_rows}, {"FILL_B", p->b_transposed ? b_rows : b_wide},
                  {"MULTIPLY", half ? "mma_f16" : "mma_bf16"}, {"PACK", half ? "pack_f16" : "pack_bf16"}}};
    const int64_t tiles = down * ((p->n + cols - 1) / cols);
    return vb_jit_launch(stream, "ptx_product", &f, tiles, 1, batch < MOST_BLOCKS ? batch : MOST_BLOCKS, (int)threads,
                         VB_JIT_PARAMETERS(&c, &a, &b, &m, &n, &k, &batch, &a_stride, &b_stride, &c_stride, &a_batch,
                                           &b_batch, &c_batch));
}
