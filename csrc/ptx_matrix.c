/* ptx_matrix.c: products of matrices and weights, and the embedding, of GPUs whose kernels the driver compiles. */
#include "ptx_device.h"

/* c = a b for each matrix of a batch, by tiles of 64 x 64 in shared memory, 16 along k at a time; a thread computes 4 x
 * 4. Strides along rows and columns say what is transposed. */
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
    uint32_t m = (uint32_t)p->m, n = (uint32_t)p->n, k = (uint32_t)p->k, batch = (uint32_t)p->batch;
    int64_t a_row = p->a_transposed ? 1 : p->a_stride, a_col = p->a_transposed ? p->a_stride : 1;
    int64_t b_row = p->b_transposed ? 1 : p->b_stride, b_col = p->b_transposed ? p->b_stride : 1;
    int64_t c_row = p->c_stride, a_next = p->a_batch_stride, b_next = p->b_batch_stride, c_next = p->c_batch_stride;
    void *c = p->c;
    const void *a = p->a, *b = p->b;
    const vb_jit_filling f = {matmul, vb_jit_type(p->type), NULL, NULL, {{"A_ROWS", !p->a_transposed}, {"B_ROWS",
        !p->b_transposed}}};
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

/* y = x W^T + bias for ROWS rows of x at a time: a warp an output, whose lanes decode neighbouring elements of the row
 * of W. */
static const char linear[] = VB_PTX_SOURCE(
kernel ENTRY(f32 *y, f32 *x, u8 *w, f32 *bias, u16 *book, u32 rows, u32 cols, u32 n, u32 biases) threads(128) {
    u32 lane = thread.x % 32, row = block.x * 4 + thread.x / 32, first = block.y * ROWS;
    if (row < rows) {
        f32 sum[ROWS] = 0;
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
        f32 added = biases != 0 ? bias[row] : 0.0;
        unroll (r : ROWS) {
            unroll (i : 5) sum[r] += shuffle_xor(sum[r], 16 >> i);
            if (lane == 0 && first + r < n) y[u64(first + r) * rows + row] = sum[r] + added;
        }
    }
});

/* The same for types that most files have, by wider reads. Q4_K: a lane decodes four low and four high codes of a word,
 * as ptx_kernels.c explains. */
static const char linear_q4_k[] = VB_PTX_SOURCE(
kernel ENTRY(f32 *y, f32 *x, u8 *w, f32 *bias, u16 *book, u32 rows, u32 cols, u32 n, u32 biases) threads(128) {
    u32 lane = thread.x % 32, row = block.x * 4 + thread.x / 32, first = block.y * ROWS;
    if (row < rows) {
        f32 sum[ROWS] = 0;
        u32 pair = lane / 8, within = pair * 64 + lane % 8 * 4, low = pair * 2;
        u8 *b = w;
        b += u64(row) * (cols / 256) * 144;
        for (u32 start = 0; start < cols; start += 256) {
            u32 *words = b;
            u32 both = words[0], codes = words[4 + lane];
            f32 d = f16_low(both), least = f16_high(both);
            u32 scale0, scale1, least0, least1;
            if (low < 4) {
                scale0 = b[4 + low] & 63;
                scale1 = b[5 + low] & 63;
                least0 = b[8 + low] & 63;
                least1 = b[9 + low] & 63;
            } else {
                u32 left = b[8 + low], right = b[9 + low];
                scale0 = left & 15 | b[low] >> 6 << 4;
                scale1 = right & 15 | b[low + 1] >> 6 << 4;
                least0 = left >> 4 | b[4 + low] >> 6 << 4;
                least1 = right >> 4 | b[5 + low] >> 6 << 4;
            }
            f32 d0 = d * f32(scale0), d1 = d * f32(scale1), m0 = least * f32(least0), m1 = least * f32(least1);
            f32 v[8];
            unroll (e : 4) {
                v[e] = f32(codes >> e * 8 & 15) * d0 - m0;
                v[4 + e] = f32(codes >> e * 8 + 4 & 15) * d1 - m1;
            }
            unroll (r : ROWS) {
                if (first + r < n) {
                    f32 from[2][4];
                    load(from[0], x[u64(first + r) * cols + (start + within)]);
                    load(from[1], x[u64(first + r) * cols + (start + within + 32)]);
                    unroll (e : 4) {
                        sum[r] = fma(from[0][e], v[e], sum[r]);
                        sum[r] = fma(from[1][e], v[4 + e], sum[r]);
                    }
                }
            }
            b += 144;
        }
        f32 added = biases != 0 ? bias[row] : 0.0;
        unroll (r : ROWS) {
            unroll (i : 5) sum[r] += shuffle_xor(sum[r], 16 >> i);
            if (lane == 0 && first + r < n) y[u64(first + r) * rows + row] = sum[r] + added;
        }
    }
});

/* Q6_K: of each half of a block, a lane decodes the elements lane, lane + 32, lane + 64 and lane + 96, which share
 * three bytes. */
static const char linear_q6_k[] = VB_PTX_SOURCE(
kernel ENTRY(f32 *y, f32 *x, u8 *w, f32 *bias, u16 *book, u32 rows, u32 cols, u32 n, u32 biases) threads(128) {
    u32 lane = thread.x % 32, row = block.x * 4 + thread.x / 32, first = block.y * ROWS;
    if (row < rows) {
        f32 sum[ROWS] = 0;
        u8 *b = w;
        b += u64(row) * (cols / 256) * 210;
        for (u32 start = 0; start < cols; start += 256) {
            f16 *h = b;
            s8 *scales = b;
            f32 d = h[104];
            f32 v[8];
            unroll (part : 2) {
                u32 near = b[part * 64 + lane], far = b[part * 64 + 32 + lane], high = b[128 + part * 32 + lane];
                u32 codes[4];
                codes[0] = near & 15 | (high & 3) << 4;
                codes[1] = far & 15 | (high >> 2 & 3) << 4;
                codes[2] = near >> 4 | (high >> 4 & 3) << 4;
                codes[3] = far >> 4 | (high >> 6 & 3) << 4;
                unroll (j : 4) v[part * 4 + j] = d * f32(scales[192 + part * 8 + j * 2 + lane / 16])
                    * f32(s32(codes[j]) - 32);
            }
            unroll (r : ROWS) {
                if (first + r < n) {
                    f32 *from = x;
                    from += u64(first + r) * cols + (start + lane);
                    unroll (e : 8) sum[r] = fma(from[e * 32], v[e], sum[r]);
                }
            }
            b += 210;
        }
        f32 added = biases != 0 ? bias[row] : 0.0;
        unroll (r : ROWS) {
            unroll (i : 5) sum[r] += shuffle_xor(sum[r], 16 >> i);
            if (lane == 0 && first + r < n) y[u64(first + r) * rows + row] = sum[r] + added;
        }
    }
});

/* Q8_0: eight lanes read a block, four elements each. */
static const char linear_q8_0[] = VB_PTX_SOURCE(
kernel ENTRY(f32 *y, f32 *x, u8 *w, f32 *bias, u16 *book, u32 rows, u32 cols, u32 n, u32 biases) threads(128) {
    u32 lane = thread.x % 32, row = block.x * 4 + thread.x / 32, first = block.y * ROWS;
    if (row < rows) {
        f32 sum[ROWS] = 0;
        u8 *base = w;
        base += u64(row) * (cols / 32) * 34;
        for (u32 at = lane * 4; at < cols; at += 128) {
            u8 *b = base;
            b += u64(at / 32) * 34;
            f16 *h = b;
            u16 *codes = b;
            f32 d = h[0];
            u32 low = codes[1 + at % 32 / 2], high = codes[2 + at % 32 / 2];
            u32 four = low | high << 16;
            f32 v[4];
            unroll (e : 4) v[e] = d * f32(s32(four << 24 - e * 8) >> 24);
            unroll (r : ROWS) {
                if (first + r < n) {
                    f32 from[4];
                    load(from, x[u64(first + r) * cols + at]);
                    unroll (e : 4) sum[r] = fma(from[e], v[e], sum[r]);
                }
            }
        }
        f32 added = biases != 0 ? bias[row] : 0.0;
        unroll (r : ROWS) {
            unroll (i : 5) sum[r] += shuffle_xor(sum[r], 16 >> i);
            if (lane == 0 && first + r < n) y[u64(first + r) * rows + row] = sum[r] + added;
        }
    }
});

/* F16, rows of a multiple of four elements: a lane reads four. */
static const char linear_f16[] = VB_PTX_SOURCE(
kernel ENTRY(f32 *y, f32 *x, u8 *w, f32 *bias, u16 *book, u32 rows, u32 cols, u32 n, u32 biases) threads(128) {
    u32 lane = thread.x % 32, row = block.x * 4 + thread.x / 32, first = block.y * ROWS;
    if (row < rows) {
        f32 sum[ROWS] = 0;
        u32 *words = w;
        words += u64(row) * (cols / 2);
        for (u32 at = lane * 4; at < cols; at += 128) {
            u32 two[2];
            load(two, words[at / 2]);
            f32 v[4];
            v[0] = f16_low(two[0]);
            v[1] = f16_high(two[0]);
            v[2] = f16_low(two[1]);
            v[3] = f16_high(two[1]);
            unroll (r : ROWS) {
                if (first + r < n) {
                    f32 from[4];
                    load(from, x[u64(first + r) * cols + at]);
                    unroll (e : 4) sum[r] = fma(from[e], v[e], sum[r]);
                }
            }
        }
        f32 added = biases != 0 ? bias[row] : 0.0;
        unroll (r : ROWS) {
            unroll (i : 5) sum[r] += shuffle_xor(sum[r], 16 >> i);
            if (lane == 0 && first + r < n) y[u64(first + r) * rows + row] = sum[r] + added;
        }
    }
});

/* The text for a weight and x: wide reads need their alignment. */
static const char *linear_of(const vb_weight *w, const float *x) {
    const bool vectors = (uintptr_t)x % 16 == 0;
    switch (w->type) {
    case VB_Q4_K: return vectors && (uintptr_t)w->data % 4 == 0 ? linear_q4_k : linear;
    case VB_Q6_K: return linear_q6_k;
    case VB_Q8_0: return vectors ? linear_q8_0 : linear;
    case VB_F16: return vectors && (uintptr_t)w->data % 8 == 0 && w->cols % 4 == 0 ? linear_f16 : linear;
    default: return linear;
    }
}

vb_status vb_jit_weight_packed_size(int64_t *bytes, const vb_weight *w, vb_device *device) {
    (void)w;
    (void)device;
    *bytes = 0; /* kernels read weights as they are stored */
    return VB_OK;
}

vb_status vb_jit_linear(float *y, const float *x, const vb_weight *w, const float *bias, int64_t n, vb_stream *stream) {
    enum { TOGETHER = 8, MOST = 65535 * TOGETHER };
    if (w->layout != VB_STORED || w->rows > INT32_MAX || w->cols > INT32_MAX) return VB_UNSUPPORTED;
    uint32_t rows = (uint32_t)w->rows, cols = (uint32_t)w->cols, biases = bias != NULL;
    const void *data = w->data;
    cu_address book = vb_jit_book(w->type, vb_jit_of(stream));
    const int together = n == 1 ? 1 : TOGETHER;
    const vb_jit_filling f = {linear_of(w, x), NULL, NULL, vb_jit_decode(w->type),
                              {{"QK", vb_dtype_block_size(w->type)}, {"BYTES", vb_dtype_block_bytes(w->type)},
                                  {"ROWS", together}}};
    for (int64_t done = 0; done < n; done += MOST) {
        uint32_t part = (uint32_t)(n - done < MOST ? n - done : MOST);
        float *to = y + done * w->rows;
        const float *from = x ? x + done * w->cols : x;
        const vb_status status = vb_jit_launch(stream, f.source == linear ? "ptx_linear" : "ptx_linear_wide", &f,
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
            u8 *b = table;
            b += u64(id) * (cols / QK) * BYTES + u64(col / QK) * BYTES;
            u32 e = col % QK;
            DECODE
        }
        out[i] = v;
    }
});

vb_status vb_jit_embedding(float *out, const vb_weight *table, const int32_t *ids, int64_t n, vb_stream *stream) {
    if (table->layout != VB_STORED || table->rows > INT32_MAX || table->cols > INT32_MAX) return VB_UNSUPPORTED;
    uint32_t rows = (uint32_t)table->rows, cols = (uint32_t)table->cols;
    int64_t count = n * table->cols;
    const void *data = table->data;
    cu_address book = vb_jit_book(table->type, vb_jit_of(stream));
    const vb_jit_filling f = {embedding, NULL, NULL, vb_jit_decode(table->type),
                              {{"QK", vb_dtype_block_size(table->type)}, {"BYTES", vb_dtype_block_bytes(table->type)}}};
    return vb_jit_launch(stream, "ptx_embedding", &f, (count + 255) / 256, 1, 1, 256,
                         VB_JIT_PARAMETERS(&out, &data, &book, &ids, &rows, &cols, &count));
}
