/* ptx_product.c: products of matrices of 16 bits on tensor cores of 8.0 and newer, of GPUs whose kernels the driver
 * compiles. A block computes 128 x 128 with eight warps of 64 x 32, from a ring of three stages of 32 along k. */
#include "ptx_packed.h"

/* A matrix lies in shared memory as in the array: 128 rows of 32 along k, or, transposed, 32 rows along k of 128.
 * Chunks of 16 bytes are permuted so that the reads of eight rows meet no bank twice. VECTORS: whole chunks are in the
 * matrix or none of their elements is, and they begin at multiples of 16 bytes. */
static const char product[] = VB_PTX_SOURCE(
kernel ENTRY(TYPE *c_ptr, TYPE *a_ptr, TYPE *b_ptr, u32 m, u32 n, u32 k, u32 batch, u64 a_stride, u64 b_stride,
    u64 c_stride, u64 a_batch, u64 b_batch, u64 c_batch) threads(256) {
    shared TYPE a_tile[3][4096 / A_WIDE][A_WIDE], b_tile[3][4096 / B_WIDE][B_WIDE];
    u32 lane = thread.x % 32, warp = thread.x / 32;
    u32 warp_row = warp / 4 * 64, warp_col = warp % 4 * 32;
    u32 first_row = block.y * 128, first_col = block.x * 128;
    u32 steps = (k + 31) / 32;
    u32 row = thread.x / 4, chunk = thread.x % 4 * 8, row_place = (thread.x % 4 ^ (row >> 1 & 3)) * 8;
    u32 depth = thread.x / 16, wide = thread.x % 16 * 8, wide_place = (thread.x % 16 ^ (depth & 7)) * 8;
    for (u32 z = block.z; z < batch; z += blocks.z) {
        TYPE *a = a_ptr;
        a += u64(z) * a_batch;
        TYPE *b = b_ptr;
        b += u64(z) * b_batch;
        if (A_WIDE == 32) a += u64(first_row + row) * a_stride + chunk;
        else a += u64(depth) * a_stride + (first_row + wide);
        if (B_WIDE == 32) b += u64(first_col + row) * b_stride + chunk;
        else b += u64(depth) * b_stride + (first_col + wide);
        f32 sum[4][4][4] = 0;
        for (u32 step = 0; step < steps + 2; step += 1) {
            if (VECTORS) copy_async_wait(1);
            barrier();
            u32 filled = step % 3;
            if (step < steps) {
                FILL_A
                FILL_B
            }
            if (VECTORS) copy_async_commit();
            if (step >= 2) {
                u32 stage = (step - 2) % 3;
                unroll (half : 2) {
                    u32 left[4][4], right[2][2][2];
                    unroll (i : 4) {
                        u32 from = warp_row + i * 16;
                        if (A_WIDE == 32) {
                            u32 at = from + lane % 16;
                            load_matrices(left[i], a_tile[stage][at][(half * 2 + lane / 16 ^ (at >> 1 & 3)) * 8]);
                        } else {
                            u32 at = half * 16 + lane / 16 * 8 + lane % 8;
                            load_matrices_transposed(left[i],
                                                     a_tile[stage][at][(from / 8 + lane / 8 % 2 ^ (at & 7)) * 8]);
                        }
                    }
                    unroll (j : 2) {
                        u32 from = warp_col + j * 16;
                        if (B_WIDE == 32) {
                            u32 at = from + lane / 16 * 8 + lane % 8;
                            load_matrices(right[j], b_tile[stage][at][(half * 2 + lane / 8 % 2 ^ (at >> 1 & 3)) * 8]);
                        } else {
                            u32 at = half * 16 + lane % 16;
                            load_matrices_transposed(right[j],
                                                     b_tile[stage][at][(from / 8 + lane / 16 ^ (at & 7)) * 8]);
                        }
                    }
                    unroll (i : 4) unroll (j : 4) MULTIPLY(sum[i][j], left[i], right[j / 2][j % 2]);
                }
            }
        }
        unroll (i : 4) unroll (j : 4) unroll (h : 2) {
            u32 to = first_row + warp_row + i * 16 + lane / 4 + h * 8;
            u32 col = first_col + warp_col + j * 8 + lane % 4 * 2;
            if (to < m) {
                TYPE *c = c_ptr;
                c += u64(z) * c_batch + (u64(to) * c_stride + col);
                u32 *pair = c;
                if (PAIRS) {
                    if (col < n) pair[0] = PACK(sum[i][j][h * 2], sum[i][j][h * 2 + 1]);
                } else {
                    unroll (e : 2) if (col + e < n) c[e] = sum[i][j][h * 2 + e];
                }
            }
        }
    }
});

/* A stage of a matrix whose rows are along k, and of one whose rows lie across it. Each thread brings two chunks. */
#define FILL_ROWS(x, first, count) VB_PTX_SOURCE({ \
    u32 at = step * 32 + chunk; \
    TYPE *from = x; \
    unroll (i : 2) { \
        if (VECTORS) { \
            copy_async(x##_tile[filled][row + i * 64][row_place], from[0], first + row + i * 64 < count && at < k); \
        } else { \
            unroll (e : 8) x##_tile[filled][row + i * 64][row_place + e] = \
                first + row + i * 64 < count && at + e < k ? from[e] : 0.0; \
        } \
        from += x##_stride * 64; \
    } \
    x += 32; \
})
#define FILL_WIDE(x, first, count) VB_PTX_SOURCE({ \
    u32 at = step * 32 + depth; \
    TYPE *from = x; \
    unroll (i : 2) { \
        if (VECTORS) { \
            copy_async(x##_tile[filled][depth + i * 16][wide_place], from[0], \
                       at + i * 16 < k && first + wide < count); \
        } else { \
            unroll (e : 8) x##_tile[filled][depth + i * 16][wide_place + e] = \
                at + i * 16 < k && first + wide + e < count ? from[e] : 0.0; \
        } \
        from += x##_stride * 16; \
    } \
    x += x##_stride * 32; \
})
static const char a_rows[] = FILL_ROWS(a, first_row, m), a_wide[] = FILL_WIDE(a, first_row, m);
static const char b_rows[] = FILL_ROWS(b, first_col, n), b_wide[] = FILL_WIDE(b, first_col, n);

vb_status vb_jit_product(const vb_matmul_args *p, vb_stream *stream) {
    enum { FIRST_TARGET = 80, LEAST_ROWS = 16, TILE = 128, MOST_BLOCKS = 65535 };
    if (vb_dtype_block_bytes(p->type) != 2 || vb_jit_of(stream)->target < FIRST_TARGET || p->m < LEAST_ROWS ||
        p->m > (int64_t)TILE * MOST_BLOCKS)
        return VB_UNSUPPORTED;
    uint32_t m = (uint32_t)p->m, n = (uint32_t)p->n, k = (uint32_t)p->k, batch = (uint32_t)p->batch;
    int64_t a_stride = p->a_stride, b_stride = p->b_stride, c_stride = p->c_stride;
    int64_t a_batch = p->a_batch_stride, b_batch = p->b_batch_stride, c_batch = p->c_batch_stride;
    void *c = p->c;
    const void *a = p->a, *b = p->b;
    const int64_t a_row = p->a_transposed ? p->m : p->k, b_row = p->b_transposed ? p->k : p->n;
    const bool vectors = ((uintptr_t)a | (uintptr_t)b) % 16 == 0 &&
        (a_row | b_row | a_stride | b_stride | a_batch | b_batch) % 8 == 0;
    const bool pairs = (uintptr_t)c % 4 == 0 && (p->n | c_stride | c_batch) % 2 == 0, half = p->type == VB_F16;
    const vb_jit_filling f = {.source = product, .type = vb_jit_type(p->type),
        .constants = {{"A_WIDE", p->a_transposed ? TILE : 32}, {"B_WIDE", p->b_transposed ? 32 : TILE},
                      {"VECTORS", vectors}, {"PAIRS", pairs}},
        .texts = {{"FILL_A", p->a_transposed ? a_wide : a_rows}, {"FILL_B", p->b_transposed ? b_rows : b_wide},
                  {"MULTIPLY", half ? "mma_f16" : "mma_bf16"}, {"PACK", half ? "pack_f16" : "pack_bf16"}}};
    return vb_jit_launch(stream, "ptx_product", &f, ((int64_t)n + TILE - 1) / TILE, ((int64_t)m + TILE - 1) / TILE,
        batch < MOST_BLOCKS ? batch : MOST_BLOCKS, 256,
                         VB_JIT_PARAMETERS(&c, &a, &b, &m, &n, &k, &batch, &a_stride, &b_stride, &c_stride, &a_batch,
                                           &b_batch, &c_batch));
}
