/* ptx_many.c: products of weights with many rows of x, on tensor cores of 8.0 and later: y[n][rows] = x W^T + bias.
 *
 * A row of x is first divided by a power of two, and rounded to F16: F16 may be too small for elements of a gated
 * product. A block computes TOKENS rows of x by 128 of W, a unit of 32 along k at a time. Weights of a unit are decoded
 * to F16 in shared memory. Eight warps have TOKENS / 2 by 32 each. */
#include "ptx_packed.h"

/* The power of two that brings the greatest element of a row to 2^14 or a little more, and the row divided by it. */
static const char scale_rows[] = VB_PTX_SOURCE(
kernel ENTRY(f32 *scales, f16 *scaled, f32 *x, u32 cols) threads(256) {
    shared u32 part[8];
    f32 *row = x;
    row += u64(block.x) * cols;
    u32 most = 0;
    if (VECTORS) {
        for (u32 i = thread.x * 4; i < cols; i += 1024) {
            f32 four[4];
            load(four, row[i]);
            unroll (e : 4) most = max(most, bits(abs(four[e])));
        }
    } else {
        for (u32 i = thread.x; i < cols; i += 256) most = max(most, bits(abs(row[i])));
    }
    unroll (e : 5) most = max(most, shuffle_xor(most, 16 >> e));
    if (thread.x % 32 == 0) part[thread.x / 32] = most;
    barrier();
    unroll (e : 8) most = max(most, part[e]);
    u32 exponent = min(max(most >> 23, 15), 254);
    if (thread.x == 0) scales[block.x] = from_bits(exponent - 14 << 23);
    f32 inverse = from_bits(268 - exponent << 23);
    f16 *to = scaled;
    to += u64(block.x) * cols;
    if (VECTORS) {
        for (u32 i = thread.x * 4; i < cols; i += 1024) {
            f32 four[4];
            load(four, row[i]);
            unroll (e : 4) four[e] = four[e] * inverse;
            store(to[i], four);
        }
    } else {
        for (u32 i = thread.x; i < cols; i += 256) to[i] = row[i] * inverse;
    }
});

static const char product[] = VB_PTX_SOURCE(
kernel ENTRY(f32 *y, f16 *x, u8 *w, f32 *bias, f32 *scales, u32 rows, u32 n, u32 biases) threads(256) {
    shared u32 x_tile[2][TOKENS][20], w_tile[2][128][20];
    const parts = TOKENS / 32;
    u32 lane = thread.x % 32, warp = thread.x / 32, warp_row = warp % 4 * 32, warp_token = warp / 4 * (TOKENS / 2);
    u32 first_row = block.x * 128, first_token = block.y * TOKENS;
    u32 w_row = thread.x / 2, h = thread.x % 2;
    u8 *row = w;
    row += u64(min(first_row + w_row, rows - 1)) * ROW_BYTES;
    f32 sum[parts][4][4] = 0;
    u32 code[4], high[1] = 0, scale[2] = 0, made[8];
    for (u32 step = 0; step < UNITS + 1; step += 1) {
        if (step > 0) {
            u32 stage = step % 2;
            MAKE
            unroll (q : 2) {
                u32 quad[4];
                unroll (e : 4) quad[e] = made[q * 4 + e];
                store(w_tile[stage][w_row][h * 8 + q * 4], quad);
            }
            copy_async_wait(0);
            barrier();
        }
        if (step < UNITS) {
            u32 stage = (step + 1) % 2;
            unroll (i : (TOKENS + 63) / 64) {
                u32 item = thread.x + i * 256;
                u32 token = min(first_token + item / 4, n - 1), part = item % 4;
                u64 from = u64(token) * (UNITS * 32) + (step * 32 + part * 8);
                if (item < TOKENS * 4) copy_async(x_tile[stage][item / 4][part * 4], x[from], 1 == 1);
            }
            copy_async_commit();
            TAKE
        }
        if (step > 0) {
            u32 stage = step % 2;
            unroll (half : 2) {
                u32 a[parts][4], b[2][2][2];
                unroll (i : parts)
                    load_matrices(a[i], x_tile[stage][warp_token + i * 16 + lane % 16][half * 8 + lane / 16 * 4]);
                unroll (j : 2)
                    load_matrices(b[j], w_tile[stage][warp_row + j * 16 + lane % 8 + lane / 16 * 8]
                                              [half * 8 + lane / 8 % 2 * 4]);
                unroll (i : parts) unroll (j : 4) mma_f16(sum[i][j], a[i], b[j / 2][j % 2]);
            }
        }
    }
    unroll (j : 4) unroll (e : 2) {
        u32 to = first_row + warp_row + j * 8 + lane % 4 * 2 + e;
        if (to < rows) {
            f32 added = biases != 0 ? bias[to] : 0.0;
            unroll (i : parts) unroll (p : 2) {
                u32 token = first_token + warp_token + i * 16 + lane / 4 + p * 8;
                if (token < n) y[u64(token) * rows + to] = sum[i][j][p * 2 + e] * scales[token] + added;
            }
        }
    }
});

/* Half h of a packed unit: 16 codes. A byte c between the halves' exponent 0x64 is 1024 + c, so that one fma makes the
 * number exactly. */
static const char take_packed[] = VB_PTX_SOURCE({
    u32 *words = row;
    u16 *halves = row;
    if (BITS == 8) load(code, words[step * 4 + h * (UNITS * 4)]);
    else load(code, words[step * 4]);
    if (BITS == 5) high[0] = words[step + HIGH_AT / 4];
    if (BITS == 6) high[0] = words[step * 2 + h + HIGH_AT / 4];
    if (SCALES == 1) scale[0] = words[step + SCALE_AT / 4];
    else scale[0] = halves[step + SCALE_AT / 2];
    if (SCALES > 1) scale[1] = words[step / 8 + BLOCK_AT / 4];
});
static const char make_packed[] = VB_PTX_SOURCE({
    f32 d = f16_low(SCALES > 1 ? scale[1] : scale[0]), offset = 0;
    if (SCALES == 1) offset = f16_high(scale[0]);
    if (SCALES == 2) {
        d = d * f32(scale[0] & 255);
        offset = f16_high(scale[1]) * -f32(scale[0] >> 8);
    }
    if (SCALES == 3) d = d * f32(s32(scale[0] << 24 - h * 8) >> 24);
    u32 d_pair = pack_f16(d, d), offset_pair = pack_f16(offset, offset), one = 0x3c003c00;
    const base = 0xe400e400 + (BITS == 8 ? 128 : ZERO) * 0x10001; /* -1024 - zero */
    unroll (j : 4) {
        u32 v = code[j];
        if (BITS == 8) v = v ^ 0x80808080;
        else v = v >> h * 4 & 0x0f0f0f0f;
        if (BITS == 5) v = v | (high[0] >> h * 4 + j & 0x01010101) << 4;
        if (BITS == 6) v = v | (high[0] >> j * 2 & 0x03030303) << 4;
        made[j * 2] = fma_f16(fma_f16(permute(v, 0x64646464, 0x4140), one, base), d_pair, offset_pair);
        made[j * 2 + 1] = fma_f16(fma_f16(permute(v, 0x64646464, 0x4342), one, base), d_pair, offset_pair);
    }
});

static int tokens_of(int64_t rows, int64_t n, int multiprocessors) {
    int tokens = 128;
    while (tokens > 32 && (n <= tokens / 2 || (rows + 127) / 128 * ((n + tokens - 1) / tokens) < multiprocessors))
        tokens /= 2;
    return tokens;
}

vb_status vb_jit_many(float *y, const float *x, const vb_weight *w, const float *bias, int64_t n, vb_stream *stream) {
    vb_jit_layout l;
    const vb_jit_device *d = vb_jit_of(stream);
    if (w->layout != VB_PACKED || !vb_jit_layout_of(&l, w->type, w->cols) || w->rows > INT32_MAX) return VB_UNSUPPORTED;
    if (n > INT32_MAX || (uintptr_t)w->data % 16 || d->target < 80) return VB_UNSUPPORTED;
    const int tokens = tokens_of(w->rows, n, d->multiprocessors);
    const void *data = w->data;
    cu_address scales = ((vb_jit_stream *)stream)->row_scales;
    uint32_t cols = (uint32_t)w->cols;
    uint32_t rows = (uint32_t)w->rows, biases = bias != NULL;
    const vb_jit_filling f = {.source = product,
        .constants = {VB_JIT_LAYOUT(l), {"TOKENS", tokens}},
        .texts = {{"TAKE", take_packed}, {"MAKE", make_packed}}};
    const vb_jit_filling first = {.source = scale_rows, .constants = {{"VECTORS", (uintptr_t)x % 16 == 0}}};
    enum { SCALED_BYTES = 64 << 20 };
    int64_t most = SCALED_BYTES / 2 / w->cols / 128 * 128;
    if (most > VB_JIT_SCALED_ROWS) most = VB_JIT_SCALED_ROWS;
    if (most < 128) most = 128;
    void *scaled = NULL;
    vb_status status = vb_jit_workspace(&scaled, 2 * (n < most ? n : most) * w->cols, stream);
    if (status != VB_OK) return status;
    for (int64_t done = 0; done < n; done += most) {
        uint32_t part = (uint32_t)(n - done < most ? n - done : most);
        float *to = y + done * w->rows;
        const float *from = x + done * w->cols;
        status = vb_jit_launch(stream, "ptx_scale_rows", &first, part, 1, 1, 256,
                               VB_JIT_PARAMETERS(&scales, &scaled, &from, &cols));
        if (status != VB_OK) return status;
        status = vb_jit_launch(stream, "ptx_linear_many", &f, ((int64_t)rows + 127) / 128,
            ((int64_t)part + tokens - 1) / tokens, 1, 256,
            VB_JIT_PARAMETERS(&to, &scaled, &data, &bias, &scales, &rows, &part, &biases));
        if (status != VB_OK) return status;
    }
    return VB_OK;
}
