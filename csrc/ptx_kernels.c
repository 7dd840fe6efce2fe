/* ptx_kernels.c: kernels that vb_ptx_emit writes, each a text in the language of ptx.h: matrices, norms and attention.
 *
 * Matrices are row-major. A block is one-dimensional; vb_ptx_launch has the numbers of threads and blocks of a
 * kernel. */
#include "ptx_kernels.h"

#include "ptx.h"

/* c[m][n] = a[m][k] b[k][n], f32: a thread an output. */
const char vb_ptx_gemm_naive[] = VB_PTX_SOURCE(
kernel ENTRY(f32 *a_ptr, f32 *b_ptr, f32 *c_ptr, u32 m, u32 n, u32 k) threads(256) {
    u32 row = block.y * 16 + thread.x / 16, col = block.x * 16 + thread.x % 16;
    if (row < m && col < n) {
        f32 sum = 0;
        f32 *a = a_ptr;
        a += u64(row) * k;
        f32 *b = b_ptr;
        b += col;
        for (u32 i = 0; i < k; i += 1) {
            sum = fma(a[i], b[0], sum);
            b += n;
        }
        c_ptr[u64(row) * n + col] = sum;
    }
});

/* The same through tiles of TILE x TILE in shared memory. */
const char vb_ptx_gemm_tiled[] = VB_PTX_SOURCE(
kernel ENTRY(f32 *a_ptr, f32 *b_ptr, f32 *c_ptr, u32 m, u32 n, u32 k) threads(TILE * TILE) {
    shared f32 a_tile[TILE][TILE], b_tile[TILE][TILE];
    u32 x = thread.x % TILE, y = thread.x / TILE;
    u32 row = block.y * TILE + y, col = block.x * TILE + x;
    f32 sum = 0;
    for (u32 start = 0; start < k; start += TILE) {
        a_tile[y][x] = row < m && start + x < k ? a_ptr[u64(row) * k + (start + x)] : 0.0;
        b_tile[y][x] = start + y < k && col < n ? b_ptr[u64(start + y) * n + col] : 0.0;
        barrier();
        unroll (i : TILE) sum = fma(a_tile[y][i], b_tile[i][x], sum);
        barrier();
    }
    if (row < m && col < n) c_ptr[u64(row) * n + col] = sum;
});

/* c[m][n] = a[m][k] b[k][n] of halves, sums in f32, for 8.0 and later: a block computes 128 x 128 with eight warps of
 * 64 x 32, from a ring of three stages of 32 along k. Chunks of 16 bytes are permuted so that the reads of eight rows
 * meet no bank twice. VECTORS: rows of a and b begin at multiples of 16 bytes. */
const char vb_ptx_gemm_mma[] = VB_PTX_SOURCE(
kernel ENTRY(f16 *a_ptr, f16 *b_ptr, f32 *c_ptr, u32 m, u32 n, u32 k) threads(256) {
    shared f16 a_tile[3][128][32], b_tile[3][32][128];
    u32 lane = thread.x % 32, warp = thread.x / 32;
    u32 warp_row = warp / 4 * 64, warp_col = warp % 4 * 32;
    u32 first_row = block.y * 128, first_col = block.x * 128;
    u32 steps = (k + 31) / 32;
    u32 row = thread.x / 4, chunk = thread.x % 4, b_row = thread.x / 16, b_chunk = thread.x % 16;
    u32 place = (chunk ^ (row >> 1 & 3)) * 8, b_place = (b_chunk ^ (b_row & 7)) * 8;
    u32 b_col = first_col + b_chunk * 8;
    f16 *a = a_ptr;
    a += u64(first_row + row) * k + chunk * 8;
    f16 *b = b_ptr;
    b += u64(b_row) * n + b_col;
    u64 b_half = u64(n) * 16, b_step = u64(n) * 32;
    f32 sum[4][4][4] = 0;
    for (u32 step = 0; step < steps + 2; step += 1) {
        copy_async_wait(1);
        barrier();
        u32 filled = step % 3;
        if (step < steps) {
            u32 from = step * 32 + chunk * 8, k_row = step * 32 + b_row;
            f16 *a_next = a;
            f16 *b_next = b;
            unroll (i : 2) {
                if (VECTORS) {
                    bool inside = first_row + row + i * 64 < m && from < k;
                    copy_async(a_tile[filled][row + i * 64][place], a_next[0], inside);
                    copy_async(b_tile[filled][b_row + i * 16][b_place], b_next[0], k_row + i * 16 < k && b_col < n);
                } else {
                    unroll (e : 8) {
                        a_tile[filled][row + i * 64][place + e] =
                            first_row + row + i * 64 < m && from + e < k ? a_next[e] : 0.0;
                        b_tile[filled][b_row + i * 16][b_place + e] =
                            k_row + i * 16 < k && b_col + e < n ? b_next[e] : 0.0;
                    }
                }
                a_next += u64(k) * 64;
                b_next += b_half;
            }
            a += 32;
            b += b_step;
        }
        copy_async_commit();
        if (step >= 2) {
            u32 stage = (step - 2) % 3;
            unroll (half : 2) {
                u32 left[4][4], right[2][2][2];
                unroll (i : 4) {
                    u32 at = warp_row + i * 16 + lane % 16;
                    load_matrices(left[i], a_tile[stage][at][(half * 2 + lane / 16 ^ (at >> 1 & 3)) * 8]);
                }
                unroll (j : 2) {
                    u32 at = half * 16 + lane % 16;
                    load_matrices_transposed(right[j],
                                             b_tile[stage][at][(warp_col / 8 + j * 2 + lane / 16 ^ (at & 7)) * 8]);
                }
                unroll (i : 4) unroll (j : 4) mma_f16(sum[i][j], left[i], right[j / 2][j % 2]);
            }
        }
    }
    unroll (i : 4) unroll (j : 4) unroll (h : 2) {
        u32 to = first_row + warp_row + i * 16 + lane / 4 + h * 8;
        u32 col = first_col + warp_col + j * 8 + lane % 4 * 2;
        if (to < m) {
            f32 *c = c_ptr;
            c += u64(to) * n + col;
            f32 pair[2];
            unroll (e : 2) pair[e] = sum[i][j][h * 2 + e];
            if (VECTORS) {
                if (col < n) store(c[0], pair);
            } else {
                unroll (e : 2) if (col + e < n) c[e] = pair[e];
            }
        }
    }
});

/* The same for 7.0 and 7.5: a block computes 64 x 64 with four warps of 32 x 32, 16 along k at a time. */
const char vb_ptx_gemm_wmma[] = VB_PTX_SOURCE(
kernel ENTRY(f16 *a_ptr, f16 *b_ptr, f32 *c_ptr, u32 m, u32 n, u32 k) threads(128) {
    shared f16 a_tile[64][24], b_tile[16][72];
    shared f32 c_tile[64][68];
    u32 warp = thread.x / 32, first_row = block.y * 64, first_col = block.x * 64;
    f32 sum[2][2][8] = 0;
    for (u32 start = 0; start < k; start += 16) {
        unroll (i : 8) {
            u32 item = thread.x + i * 128;
            u32 row = item / 16, col = item % 16, b_row = item / 64, b_col = item % 64;
            a_tile[row][col] =
                first_row + row < m && start + col < k ? a_ptr[u64(first_row + row) * k + (start + col)] : 0.0;
            b_tile[b_row][b_col] =
                start + b_row < k && first_col + b_col < n ? b_ptr[u64(start + b_row) * n + (first_col + b_col)] : 0.0;
        }
        barrier();
        unroll (i : 2) {
            u32 a[8];
            wmma_load_a(a, a_tile[warp / 2 * 32 + i * 16], 24);
            unroll (j : 2) {
                u32 b[8];
                wmma_load_b(b, b_tile[0][warp % 2 * 32 + j * 16], 72);
                wmma_f16(sum[i][j], a, b);
            }
        }
        barrier();
    }
    unroll (i : 2) unroll (j : 2) wmma_store(c_tile[warp / 2 * 32 + i * 16][warp % 2 * 32 + j * 16], sum[i][j], 68);
    barrier();
    for (u32 item = thread.x; item < 4096; item += 128) {
        u32 row = item / 64, col = item % 64;
        if (first_row + row < m && first_col + col < n)
            c_ptr[u64(first_row + row) * n + (first_col + col)] = c_tile[row][col];
    }
});

/* A block a row: exp(x - max) / sum. The row stays in registers where ROUNDS of 4 elements a thread hold it, else it is
 * read three times. */
const char vb_ptx_softmax[] = VB_PTX_SOURCE(
kernel ENTRY(f32 *input, f32 *output, u32 length) threads(THREADS) {
    shared f32 part[32];
    u32 lane = thread.x % 32, warp = thread.x / 32;
    f32 *in = input;
    in += u64(block.x) * length;
    f32 *out = output;
    out += u64(block.x) * length;
    bool aligned = (u64(input) | u64(output)) % 16 == 0;
    const log2_e = 1.4426950408889634;
    f32 most = from_bits(0xff800000), sum = 0;
    f32 x[ROUNDS][4];
    if (IN_REGISTERS) {
        unroll (i : ROUNDS) {
            u32 at = (i * THREADS + thread.x) * 4;
            if (VECTORS && aligned) {
                unroll (e : 4) x[i][e] = from_bits(0xff800000);
                if (at < length) load(x[i], in[at]);
            } else {
                unroll (e : 4) x[i][e] = at + e < length ? in[at + e] : from_bits(0xff800000);
            }
            unroll (e : 4) most = max(most, x[i][e]);
        }
    } else {
        for (u32 at = thread.x; at < length; at += THREADS) most = max(most, in[at]);
    }
    unroll (i : 5) most = max(most, shuffle_xor(most, 16 >> i));
    if (lane == 0) part[warp] = most;
    barrier();
    unroll (i : THREADS / 32) most = max(most, part[i]);
    barrier();
    if (IN_REGISTERS) {
        unroll (i : ROUNDS) unroll (e : 4) {
            x[i][e] = exp2((x[i][e] - most) * log2_e);
            sum += x[i][e];
        }
    } else {
        for (u32 at = thread.x; at < length; at += THREADS) sum += exp2((in[at] - most) * log2_e);
    }
    unroll (i : 5) sum += shuffle_xor(sum, 16 >> i);
    if (lane == 0) part[warp] = sum;
    barrier();
    sum = 0;
    unroll (i : THREADS / 32) sum += part[i];
    f32 scale = rcp(sum);
    if (IN_REGISTERS) {
        unroll (i : ROUNDS) {
            u32 at = (i * THREADS + thread.x) * 4;
            unroll (e : 4) x[i][e] = x[i][e] * scale;
            if (VECTORS && aligned) {
                if (at < length) store(out[at], x[i]);
            } else {
                unroll (e : 4) if (at + e < length) out[at + e] = x[i][e];
            }
        }
    } else {
        for (u32 at = thread.x; at < length; at += THREADS) out[at] = exp2((in[at] - most) * log2_e) * scale;
    }
});

/* A block a row: (x - mean) / sqrt(variance + EPSILON) * gamma + beta; without MEAN, x / sqrt(mean of squares +
 * EPSILON) * gamma. AFFINE: gamma (and beta) are there. The row stays in registers as the softmax's does.
 * SIZES: the other parameters, of which RMSNorm has none. */
const char vb_ptx_norm[] = VB_PTX_SOURCE(
kernel ENTRY(f32 *input, f32 *output, f32 *gamma SIZES) threads(THREADS) {
    shared f32 part[32];
    u32 lane = thread.x % 32, warp = thread.x / 32;
    f32 *in = input;
    in += u64(block.x) * hidden;
    f32 *out = output;
    out += u64(block.x) * hidden;
    u64 low = u64(input) | u64(output);
    if (AFFINE) low = low | u64(gamma);
    if (AFFINE && MEAN) low = low | u64(beta);
    f32 x[ROUNDS][4];
    f32 mean = 0, square = 0;
    f32 scale = rcp(f32(hidden));
    if (IN_REGISTERS) {
        unroll (i : ROUNDS) {
            u32 at = (i * THREADS + thread.x) * 4;
            unroll (e : 4) x[i][e] = 0;
            if (VECTORS && low % 16 == 0) {
                if (at < hidden) load(x[i], in[at]);
            } else {
                unroll (e : 4) if (at + e < hidden) x[i][e] = in[at + e];
            }
        }
    }
    if (MEAN) {
        if (IN_REGISTERS) {
            unroll (i : ROUNDS) unroll (e : 4) mean += x[i][e];
        } else {
            for (u32 at = thread.x; at < hidden; at += THREADS) mean += in[at];
        }
        unroll (i : 5) mean += shuffle_xor(mean, 16 >> i);
        if (lane == 0) part[warp] = mean;
        barrier();
        mean = 0;
        unroll (i : THREADS / 32) mean += part[i];
        mean = mean * scale;
        barrier();
    }
    if (IN_REGISTERS) {
        unroll (i : ROUNDS) unroll (e : 4) {
            if (MEAN) x[i][e] = (i * THREADS + thread.x) * 4 + e < hidden ? x[i][e] - mean : 0.0;
            square = fma(x[i][e], x[i][e], square);
        }
    } else {
        for (u32 at = thread.x; at < hidden; at += THREADS) {
            f32 centred = in[at] - mean;
            square = fma(centred, centred, square);
        }
    }
    unroll (i : 5) square += shuffle_xor(square, 16 >> i);
    if (lane == 0) part[warp] = square;
    barrier();
    square = 0;
    unroll (i : THREADS / 32) square += part[i];
    f32 inverse = rcp(sqrt(fma(square, scale, EPSILON)));
    if (IN_REGISTERS) {
        unroll (i : ROUNDS) {
            u32 at = (i * THREADS + thread.x) * 4;
            unroll (e : 4) x[i][e] = x[i][e] * inverse;
            if (VECTORS && low % 16 == 0) {
                if (at < hidden) {
                    f32 factor[4], added[4];
                    if (AFFINE) load(factor, gamma[at]);
                    if (AFFINE && MEAN) load(added, beta[at]);
                    if (AFFINE) unroll (e : 4) x[i][e] = x[i][e] * factor[e];
                    if (AFFINE && MEAN) unroll (e : 4) x[i][e] += added[e];
                    store(out[at], x[i]);
                }
            } else {
                unroll (e : 4) {
                    if (at + e < hidden) {
                        if (AFFINE) x[i][e] = x[i][e] * gamma[at + e];
                        if (AFFINE && MEAN) x[i][e] += beta[at + e];
                        out[at + e] = x[i][e];
                    }
                }
            }
        }
    } else {
        for (u32 at = thread.x; at < hidden; at += THREADS) {
            f32 y = (in[at] - mean) * inverse;
            if (AFFINE) y = y * gamma[at];
            if (AFFINE && MEAN) y += beta[at];
            out[at] = y;
        }
    }
});

/* o = softmax(q k^T / sqrt(head_dim)) v for [heads][seq_len][head_dim], f32 (Dao et al. 2022, "FlashAttention"): a
 * block has four warps, a warp QUERIES queries; 32 keys and values lie in shared memory at a time. A lane scores a key,
 * then sums DIM / 32 elements of the values. */
const char vb_ptx_attention[] = VB_PTX_SOURCE(
kernel ENTRY(f32 *q, f32 *k, f32 *v, f32 *o_ptr, u32 seq_len, u32 head_dim, u32 num_heads) threads(128) {
    const width = (DIM + 31) / 32;
    shared f32 q_tile[4 * QUERIES][DIM], keys[32][DIM + 1];
    u32 lane = thread.x % 32, warp = thread.x / 32, first = block.x * (4 * QUERIES);
    u64 head = u64(block.y) * seq_len * DIM;
    f32 *q_head = q;
    q_head += head;
    f32 *k_head = k;
    k_head += head;
    f32 *v_head = v;
    v_head += head;
    f32 *o_head = o_ptr;
    o_head += head;
    for (u32 i = thread.x; i < 4 * QUERIES * DIM; i += 128) {
        u32 row = i / DIM;
        q_tile[row][i % DIM] = first + row < seq_len ? q_head[u64(first + row) * DIM + i % DIM] * SCALE : 0.0;
    }
    f32 most[QUERIES] = from_bits(0xff800000), total[QUERIES] = 0, sum[QUERIES][width] = 0;
    u32 end = CAUSAL ? min(seq_len, first + 4 * QUERIES) : seq_len;
    for (u32 start = 0; start < end; start += 32) {
        barrier();
        for (u32 i = thread.x; i < 32 * DIM; i += 128) {
            u32 row = start + i / DIM;
            keys[i / DIM][i % DIM] = row < seq_len ? k_head[u64(row) * DIM + i % DIM] : 0.0;
        }
        barrier();
        f32 score[QUERIES] = 0;
        for (u32 d = 0; d < DIM; d += 1) {
            f32 key = keys[lane][d];
            unroll (r : QUERIES) score[r] = fma(q_tile[warp * QUERIES + r][d], key, score[r]);
        }
        barrier();
        for (u32 i = thread.x; i < 32 * DIM; i += 128) {
            u32 row = start + i / DIM;
            keys[i / DIM][i % DIM] = row < seq_len ? v_head[u64(row) * DIM + i % DIM] : 0.0;
        }
        unroll (r : QUERIES) {
            u32 row = first + warp * QUERIES + r;
            bool seen = start + lane < seq_len;
            if (CAUSAL) {
                if (start + lane > row) score[r] = from_bits(0xff800000);
            }
            if (!seen) score[r] = from_bits(0xff800000);
            f32 peak = score[r];
            unroll (i : 5) peak = max(peak, shuffle_xor(peak, 16 >> i));
            peak = max(peak, most[r]);
            f32 shift = peak == from_bits(0xff800000) ? 0.0 : peak;
            f32 kept = exp2(most[r] - shift), weight = exp2(score[r] - shift);
            most[r] = peak;
            f32 added = weight;
            unroll (i : 5) added += shuffle_xor(added, 16 >> i);
            total[r] = fma(total[r], kept, added);
            score[r] = weight;
            unroll (i : width) sum[r][i] = sum[r][i] * kept;
        }
        barrier();
        unroll (key : 32) {
            unroll (r : QUERIES) {
                f32 weight = shuffle_from(score[r], key);
                unroll (i : width) {
                    if (DIM % 32 == 0 || i + 1 < width) sum[r][i] = fma(weight, keys[key][lane + i * 32], sum[r][i]);
                    else if (lane + i * 32 < DIM) sum[r][i] = fma(weight, keys[key][lane + i * 32], sum[r][i]);
                }
            }
        }
    }
    unroll (r : QUERIES) {
        u32 row = first + warp * QUERIES + r;
        if (row < seq_len) {
            f32 inverse = rcp(total[r]);
            unroll (i : width)
                if (lane + i * 32 < DIM) o_head[u64(row) * DIM + (lane + i * 32)] = sum[r][i] * inverse;
        }
    }
});

/* c[m][n] = a[m][k] b^T, b of n rows of Q4_K. 144 bytes hold 256 weights: two halves d and dmin, 12 bytes with 6-bit
 * scales and minima of eight groups of 32, 128 bytes of 4-bit codes. A weight is d * scale * code - dmin * minimum.
 * A warp computes one column of ROWS rows; a lane decodes four low and four high codes of a word. */
const char vb_ptx_gemm_q4k[] = VB_PTX_SOURCE(
kernel ENTRY(f32 *a_ptr, u8 *b_quant_ptr, f32 *c_ptr, u32 m, u32 n, u32 k) threads(128) {
    u32 lane = thread.x % 32, col = block.x * 4 + thread.x / 32, first = block.y * ROWS;
    if (col < n) {
        f32 sum[ROWS] = 0;
        u32 blocks_of_row = k / 256, pair = lane / 8, within = pair * 64 + lane % 8 * 4;
        u8 *b = b_quant_ptr;
        b += u64(col) * blocks_of_row * 144;
        for (u32 i = 0; i < blocks_of_row; i += 1) {
            u32 *words = b;
            u32 both = words[0], codes = words[4 + lane], low = pair * 2;
            f32 d = f16_low(both), least = f16_high(both);
            u32 scale0, scale1, least0, least1;
            if (low < 4) {
                scale0 = b[4 + low] & 63;
                scale1 = b[5 + low] & 63;
                least0 = b[8 + low] & 63;
                least1 = b[9 + low] & 63;
            } else {
                u32 x = b[8 + low], y = b[9 + low];
                scale0 = x & 15 | b[low] >> 6 << 4;
                scale1 = y & 15 | b[low + 1] >> 6 << 4;
                least0 = x >> 4 | b[4 + low] >> 6 << 4;
                least1 = y >> 4 | b[5 + low] >> 6 << 4;
            }
            f32 d0 = d * f32(scale0), d1 = d * f32(scale1), m0 = least * f32(least0), m1 = least * f32(least1);
            f32 w[8];
            unroll (e : 4) {
                w[e] = f32(codes >> e * 8 & 15) * d0 - m0;
                w[4 + e] = f32(codes >> e * 8 + 4 & 15) * d1 - m1;
            }
            unroll (r : ROWS) {
                if (first + r < m) {
                    f32 x[2][4];
                    load(x[0], a_ptr[u64(first + r) * k + (i * 256 + within)]);
                    load(x[1], a_ptr[u64(first + r) * k + (i * 256 + within + 32)]);
                    unroll (e : 4) {
                        sum[r] = fma(x[0][e], w[e], sum[r]);
                        sum[r] = fma(x[1][e], w[4 + e], sum[r]);
                    }
                }
            }
            b += 144;
        }
        unroll (r : ROWS) {
            unroll (i : 5) sum[r] += shuffle_xor(sum[r], 16 >> i);
            if (lane == 0 && first + r < m) c_ptr[u64(first + r) * n + col] = sum[r];
        }
    }
});
