/* ptx_entries.c: kernels that vb_ptx_emit writes for one token: products with quantized weights, attention over a
 * cache, element-wise operations, argmax. Each is a text in the language of ptx.h.
 *
 * DECODE is the text by which ptx_decode.c reads element e of the block at b into v: BLOCK elements in BYTES bytes. */
#include "ptx_kernels.h"

#include "ptx.h"

/* c[m][n] = a[m][k] b^T, b of n rows of blocks: a warp computes one column of ROWS rows. */
const char vb_ptx_gemm_quantized[] = VB_PTX_SOURCE(
kernel ENTRY(f32 *a_ptr, u8 *b_quant_ptr, f32 *c_ptr, u32 m, u32 n, u32 k) threads(128) {
    u32 lane = thread.x % 32, col = block.x * 4 + thread.x / 32, first = block.y * ROWS;
    if (col < n) {
        f32 sum[ROWS] = 0;
        u8 *b = b_quant_ptr;
        b += u64(col) * (k / BLOCK) * BYTES;
        for (u32 start = 0; start < k; start += BLOCK) {
            unroll (i : BLOCK / 32) {
                u32 e = i * 32 + lane;
                f32 v = 0;
                DECODE
                unroll (r : ROWS)
                    if (first + r < m) sum[r] = fma(a_ptr[u64(first + r) * k + (start + e)], v, sum[r]);
            }
            b += BYTES;
        }
        unroll (r : ROWS) {
            unroll (i : 5) sum[r] += shuffle_xor(sum[r], 16 >> i);
            if (lane == 0 && first + r < m) c_ptr[u64(first + r) * n + col] = sum[r];
        }
    }
});

/* y[n] = x[k] w[k][n], f32: a block computes 32 columns, a warp every eighth row of them. */
const char vb_ptx_gemv[] = VB_PTX_SOURCE(
kernel ENTRY(f32 *y_ptr, f32 *w_ptr, f32 *x_ptr, u32 k_dim, u32 n_dim) threads(256) {
    shared f32 part[8][32];
    u32 lane = thread.x % 32, warp = thread.x / 32, col = block.x * 32 + lane;
    f32 sum = 0;
    if (col < n_dim)
        for (u32 i = warp; i < k_dim; i += 8) sum = fma(w_ptr[u64(i) * n_dim + col], x_ptr[i], sum);
    part[warp][lane] = sum;
    barrier();
    if (warp == 0 && col < n_dim) {
        sum = 0;
        unroll (i : 8) sum += part[i][lane];
        y_ptr[col] = sum;
    }
});

/* y[n] = w x, w of n rows of blocks: a warp computes one row. */
const char vb_ptx_gemv_quantized[] = VB_PTX_SOURCE(
kernel ENTRY(f32 *y_ptr, u8 *w_ptr, f32 *x_ptr, u32 k_dim, u32 n_dim) threads(128) {
    u32 lane = thread.x % 32, row = block.x * 4 + thread.x / 32;
    if (row < n_dim) {
        f32 sum = 0;
        u8 *b = w_ptr;
        b += u64(row) * (k_dim / BLOCK) * BYTES;
        for (u32 start = 0; start < k_dim; start += BLOCK) {
            unroll (i : BLOCK / 32) {
                u32 e = i * 32 + lane;
                f32 v = 0;
                DECODE
                sum = fma(x_ptr[start + e], v, sum);
            }
            b += BYTES;
        }
        unroll (i : 5) sum += shuffle_xor(sum, 16 >> i);
        if (lane == 0) y_ptr[row] = sum;
    }
});

/* out[n][k] = w, of n rows of blocks: a thread an element, a block 256 of a row. */
const char vb_ptx_dequantize[] = VB_PTX_SOURCE(
kernel ENTRY(f32 *out_ptr, u8 *w_ptr, u32 k_dim, u32 n_dim) threads(256) {
    u32 at = block.y * 256 + thread.x;
    if (block.x < n_dim && at < k_dim) {
        u32 e = at % BLOCK;
        u8 *b = w_ptr;
        b += (u64(block.x) * (k_dim / BLOCK) + at / BLOCK) * BYTES;
        f32 v = 0;
        DECODE
        out_ptr[u64(block.x) * k_dim + at] = v;
    }
});

/* Blocks of Q8_0, the last one filled up with 0: a warp a block. */
const char vb_ptx_quantize[] = VB_PTX_SOURCE(
kernel ENTRY(u8 *out_ptr, f32 *in_ptr, u32 n_dim) threads(256) {
    u32 lane = thread.x % 32, number = block.x * 8 + thread.x / 32;
    if (number < (n_dim + 31) / 32) {
        u32 at = number * 32 + lane;
        f32 x = at < n_dim ? in_ptr[at] : 0.0;
        u8 *block_at = out_ptr;
        block_at += u64(number) * 34;
        QUANTIZE
    }
});

/* out[heads][DIM] = softmax(q k^T SCALE) v over caches [KV_HEADS][CAPACITY][DIM] with seq_len keys: a block a head, a
 * warp every fourth key (Dao et al. 2022, "FlashAttention"). Without keys the result is 0. */
const char vb_ptx_decode_attention[] = VB_PTX_SOURCE(
kernel ENTRY(f32 *q_ptr, f32 *k_ptr, f32 *v_ptr, f32 *out_ptr, u32 seq_len) threads(128) {
    const width = (DIM + 31) / 32;
    shared f32 tops[4], totals[4], sums[4][DIM];
    u32 lane = thread.x % 32, warp = thread.x / 32, head = block.x;
    u64 cache = u64(head / (HEADS / KV_HEADS)) * CAPACITY * DIM;
    f32 *k = k_ptr;
    k += cache + u64(warp) * DIM + lane;
    f32 *v = v_ptr;
    v += cache + u64(warp) * DIM + lane;
    f32 x[width] = 0, sum[width] = 0;
    unroll (i : width) if (lane + i * 32 < DIM) x[i] = q_ptr[u64(head) * DIM + (lane + i * 32)] * SCALE;
    f32 most = from_bits(0xff800000), total = 0;
    for (u32 key = warp; key < min(seq_len, CAPACITY); key += 4) {
        f32 score = 0;
        unroll (i : width) if (lane + i * 32 < DIM) score = fma(x[i], k[i * 32], score);
        unroll (i : 5) score += shuffle_xor(score, 16 >> i);
        f32 peak = max(most, score);
        f32 shift = peak == from_bits(0xff800000) ? 0.0 : peak;
        f32 kept = exp2(most - shift), weight = exp2(score - shift);
        most = peak;
        total = fma(total, kept, weight);
        unroll (i : width) if (lane + i * 32 < DIM) sum[i] = fma(weight, v[i * 32], sum[i] * kept);
        k += 4 * DIM;
        v += 4 * DIM;
    }
    if (lane == 0) {
        tops[warp] = most;
        totals[warp] = total;
    }
    unroll (i : width) if (lane + i * 32 < DIM) sums[warp][lane + i * 32] = sum[i];
    barrier();
    f32 peak = max(max(tops[0], tops[1]), max(tops[2], tops[3]));
    f32 shift = peak == from_bits(0xff800000) ? 0.0 : peak;
    total = 0;
    unroll (w : 4) total = fma(totals[w], exp2(tops[w] - shift), total);
    f32 inverse = total == 0.0 ? 0.0 : rcp(total);
    for (u32 d = thread.x; d < DIM; d += 128) {
        f32 all = 0;
        unroll (w : 4) all = fma(sums[w][d], exp2(tops[w] - shift), all);
        out_ptr[u64(head) * DIM + d] = all * inverse;
    }
});

/* output = s / sqrt(mean of squares of s + EPSILON) * gamma for s = residual + input: a block a row of DIM. AFFINE:
 * gamma is there. s stays in registers where ROUNDS of 4 elements a thread hold it, else it is summed twice. */
const char vb_ptx_add_rms_norm[] = VB_PTX_SOURCE(
kernel ENTRY(f32 *residual_ptr, f32 *input_ptr, f32 *output_ptr, f32 *gamma_ptr) threads(THREADS) {
    shared f32 part[THREADS / 32];
    u64 row = u64(block.x) * DIM;
    u64 low = u64(residual_ptr) | u64(input_ptr) | u64(output_ptr);
    if (AFFINE) low = low | u64(gamma_ptr);
    f32 x[ROUNDS][4];
    f32 square = 0;
    if (IN_REGISTERS) {
        unroll (i : ROUNDS) {
            u32 at = (i * THREADS + thread.x) * 4;
            unroll (e : 4) x[i][e] = 0;
            if (VECTORS && low % 16 == 0) {
                if (at < DIM) {
                    f32 y[4];
                    load(x[i], residual_ptr[row + at]);
                    load(y, input_ptr[row + at]);
                    unroll (e : 4) x[i][e] += y[e];
                }
            } else {
                unroll (e : 4) if (at + e < DIM) x[i][e] = residual_ptr[row + (at + e)] + input_ptr[row + (at + e)];
            }
        }
        unroll (i : ROUNDS) unroll (e : 4) square = fma(x[i][e], x[i][e], square);
    } else {
        for (u32 at = thread.x; at < DIM; at += THREADS) {
            f32 s = residual_ptr[row + at] + input_ptr[row + at];
            square = fma(s, s, square);
        }
    }
    unroll (i : 5) square += shuffle_xor(square, 16 >> i);
    if (thread.x % 32 == 0) part[thread.x / 32] = square;
    barrier();
    square = 0;
    unroll (i : THREADS / 32) square += part[i];
    f32 inverse = rcp(sqrt(square / f32(DIM) + EPSILON));
    if (IN_REGISTERS) {
        unroll (i : ROUNDS) {
            u32 at = (i * THREADS + thread.x) * 4;
            unroll (e : 4) x[i][e] = x[i][e] * inverse;
            if (VECTORS && low % 16 == 0) {
                if (at < DIM) {
                    f32 factor[4];
                    if (AFFINE) load(factor, gamma_ptr[at]);
                    if (AFFINE) unroll (e : 4) x[i][e] = x[i][e] * factor[e];
                    store(output_ptr[row + at], x[i]);
                }
            } else {
                unroll (e : 4) {
                    if (at + e < DIM) {
                        if (AFFINE) x[i][e] = x[i][e] * gamma_ptr[at + e];
                        output_ptr[row + (at + e)] = x[i][e];
                    }
                }
            }
        }
    } else {
        for (u32 at = thread.x; at < DIM; at += THREADS) {
            f32 s = (residual_ptr[row + at] + input_ptr[row + at]) * inverse;
            if (AFFINE) s = s * gamma_ptr[at];
            output_ptr[row + at] = s;
        }
    }
});

/* Turns pair i by pos * theta^(-2 i / DIM): a block a head, a thread a pair. A frequency is the part of a turn that a
 * position adds, in units of 2^-64: its product with a position loses whole turns and nothing else. FREQUENCY
 * multiplies 1 / (2 pi) by powers of theta^(-2 / DIM), one for each bit of i. */
const char vb_ptx_rope[] = VB_PTX_SOURCE(
kernel ENTRY(f32 *x_ptr, f32 *out_ptr, u32 pos) threads(128) {
    const half = DIM / 2;
    u32 i = thread.x;
    if (i < half) {
        u64 head = u64(block.x) * DIM;
        u64 first = NEOX ? head + i : head + i * 2;
        u64 second = NEOX ? first + half : first + 1;
        u64 frequency = 0x28be60db9391054a;
        FREQUENCY
        u64 turns = frequency * pos;
        f32 angle = f32(s32(u32(turns >> 32))) * 0.00000000146291807926715968;
        f32 c = cos(angle), s = sin(angle);
        f32 u = x_ptr[first], v = x_ptr[second];
        out_ptr[first] = u * c - v * s;
        out_ptr[second] = u * s + v * c;
    }
});

/* TO[i] = formula(FIRST[i], SECOND[i]), by any number of blocks: SECOND is read where PAIR says that it is there, and
 * WRAP takes its index modulo its length. FORMULA computes value of x and y. A thread has ROUNDS vectors, so that
 * enough bytes are on their way; where a pointer is not aligned or the elements end, each is moved alone. Where a grid
 * has a thread an element, one block of a group has all elements of the group, so that blocks that have nothing start
 * while it waits for memory. Its place in the group differs, so that no multiprocessor has only such blocks. */
const char vb_ptx_elements[] = VB_PTX_SOURCE(
kernel ENTRY(PARAMETERS, u32 n) threads(THREADS) {
    const scalar = 0;
    const limit = 0;
    const of_block = ROUNDS * THREADS * 4;
    u64 low = u64(TO) | u64(FIRST);
    if (PAIR) low = low | u64(SECOND);
    const turns = ROUNDS * 4;
    u64 begin = u64(block.x) * of_block;
    if (u64(blocks.x) * THREADS >= n) {
        u32 group = block.x / turns;
        u32 works = (group + 1) * turns <= blocks.x ? group % turns : 0;
        begin = block.x % turns == works ? u64(group) * of_block : u64(n);
    }
    for (u64 start = begin; start < n; start += u64(blocks.x) * of_block) {
        bool whole = start + of_block <= n && low % 16 == 0;
        f32 a[ROUNDS][4] = 0, b[ROUNDS][4] = 0;
        u64 at = start + thread.x;
        u32 first = u32(start) + thread.x * 4;
        if (VECTORS && whole) {
            unroll (r : ROUNDS) {
                load(a[r], FIRST[first + r * (THREADS * 4)]);
                if (PAIR) load(b[r], SECOND[(first + r * (THREADS * 4)) WRAP]);
            }
        } else {
            unroll (r : ROUNDS) unroll (e : 4) {
                u64 i = at + (r * 4 + e) * THREADS;
                if (i < n) {
                    a[r][e] = FIRST[i];
                    if (PAIR) b[r][e] = SECOND[u32(i) WRAP];
                }
            }
        }
        unroll (r : ROUNDS) unroll (e : 4) {
            f32 x = a[r][e], y = b[r][e], value = 0;
            FORMULA
            a[r][e] = value;
        }
        if (VECTORS && whole) {
            unroll (r : ROUNDS) store(TO[first + r * (THREADS * 4)], a[r]);
        } else {
            unroll (r : ROUNDS) unroll (e : 4) {
                u64 i = at + (r * 4 + e) * THREADS;
                if (i < n) TO[i] = a[r][e];
            }
        }
    }
});

/* FORMULA of vb_ptx_elements: the activation of a number and its bias. */
const char vb_ptx_bias[] = VB_PTX_SOURCE({
    value = x + y;
    if (ACTIVATION == 1) {
        if (value < 0.0) value = 0.0;
    }
    if (ACTIVATION == 2) value = value * rcp(1.0 + exp2(value * -2.4554670));
});

/* cache[head][pos][d] = src[head][d]: a block a head. */
const char vb_ptx_cache_write[] = VB_PTX_SOURCE(
kernel ENTRY(f32 *src_ptr, f32 *cache_ptr, u32 pos, u32 head_dim, u32 max_len) threads(256) {
    if (pos < max_len) {
        for (u32 d = thread.x; d < head_dim; d += 256)
            cache_ptr[(u64(block.x) * max_len + pos) * head_dim + d] = src_ptr[u64(block.x) * head_dim + d];
    }
});

/* The greatest of 1,024 numbers and its index, a block each: of equal ones the first, NaN above all. */
const char vb_ptx_argmax_blocks[] = VB_PTX_SOURCE(
kernel ENTRY(f32 *input_ptr, f32 *block_max_vals, u32 *block_max_idxs, u32 length) threads(256) {
    shared u32 keys[WARPS], places[WARPS];
    u32 lane = thread.x % 32, warp = thread.x / 32, best = 0, best_at = 0xffffffff;
    unroll (i : 4) {
        u32 at = block.x * 1024 + i * 256 + thread.x;
        if (at < length) {
            f32 v = input_ptr[at];
            u32 place = at;
            TAKE
        }
    }
    REDUCE
    if (thread.x == 0) {
        block_max_idxs[block.x] = best_at;
        block_max_vals[block.x] = input_ptr[best_at];
    }
});

/* The index of the greatest of the numbers that the blocks have found. */
const char vb_ptx_argmax_final[] = VB_PTX_SOURCE(
kernel ENTRY(f32 *block_max_vals, u32 *block_max_idxs, u32 *output_idx, u32 num_blocks) threads(256) {
    shared u32 keys[WARPS], places[WARPS];
    u32 lane = thread.x % 32, warp = thread.x / 32, best = 0, best_at = 0xffffffff;
    for (u32 at = thread.x; at < num_blocks; at += 256) {
        f32 v = block_max_vals[at];
        u32 place = block_max_idxs[at];
        TAKE
    }
    REDUCE
    if (thread.x == 0) output_idx[0] = best_at;
});

/* TAKE: the number v at `place` is compared with the thread's best; keys of equal order are bits of an integer. */
const char vb_ptx_argmax_take[] = VB_PTX_SOURCE({
    u32 word = bits(v + 0.0);
    u32 key = word > 0x7fffffff ? ~word : word | 0x80000000;
    if (v != v) key = 0xffffffff;
    if (best_at == 0xffffffff || key > best || key == best && place < best_at) {
        best = key;
        best_at = place;
    }
});
