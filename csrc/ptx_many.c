/* ptx_many.c: products of weights with many rows of x, on tensor cores of 8.0 and later: y[n][rows] = x W^T + bias,
 * plus an addend; and of gate and up with one x, silu(gate) * up.
 *
 * A row of x is first normed where that is asked for, divided by a power of two, and rounded to F16: F16 may be too
 * small for elements of a gated product. A block computes TOKENS rows of x by 128 of W, a unit of 32 along k at a time.
 * Eight warps have TOKENS / 2 by 32 each. While they multiply a unit, the weights of the next one are decoded to F16 in
 * shared memory; the codes of one more and x of two more are on their way. */
#include "ptx_packed.h"

/* A row of x, or with NORM of x * norm, divided by the power of two that brings its greatest element to 2^14 or a
 * little more. Its scale is that power, with NORM times 1 / the root of the mean square of x. */
static const char scale_rows[] = VB_PTX_SOURCE(
kernel ENTRY(f32 *scales, f16 *scaled, f32 *x, f32 *norm, u32 cols, u32 norms, f32 eps) threads(256) {
    shared u32 part[8];
    shared f32 part_squares[8];
    const step = VECTORS ? 4 : 1;
    f32 *row = x;
    row += u64(block.x) * cols;
    f16 *to = scaled;
    to += u64(block.x) * cols;
    u32 most = 0;
    f32 squares = 0;
    for (u32 i = thread.x * step; i < cols; i += 256 * step) {
        READ
        unroll (e : step) most = max(most, bits(abs(v[e])));
    }
    unroll (e : 5) most = max(most, shuffle_xor(most, 16 >> e));
    if (thread.x % 32 == 0) part[thread.x / 32] = most;
    if (NORM) {
        unroll (e : 5) squares += shuffle_xor(squares, 16 >> e);
        if (thread.x % 32 == 0) part_squares[thread.x / 32] = squares;
    }
    barrier();
    unroll (e : 8) most = max(most, part[e]);
    u32 exponent = min(max(most >> 23, 15), 254);
    f32 scale = from_bits(exponent - 14 << 23);
    if (NORM) {
        squares = 0;
        unroll (e : 8) squares += part_squares[e];
        scale = scale * rcp(sqrt(squares / f32(cols) + eps));
    }
    if (thread.x == 0) scales[block.x] = scale;
    f32 inverse = from_bits(268 - exponent << 23);
    for (u32 i = thread.x * step; i < cols; i += 256 * step) {
        READ
        unroll (e : step) v[e] = v[e] * inverse;
        if (VECTORS) store(to[i], v);
        else to[i] = v[0];
    }
});
static const char read_x[] = VB_PTX_SOURCE(
    f32 v[step];
    if (VECTORS) load(v, row[i]);
    else v[0] = row[i];
    if (NORM) {
        unroll (e : step) squares = fma(v[e], v[e], squares);
        if (norms != 0) {
            f32 factor[step];
            if (VECTORS) load(factor, norm[i]);
            else factor[0] = norm[i];
            unroll (e : step) v[e] = v[e] * factor[e];
        }
    }
);

/* A row of a tile has four chunks of 16 bytes, whose places are turned by half of the row's number, so that eight rows
 * at a chunk lie in different banks. With GATED the result is silu(add) times the product. */
static const char product[] = VB_PTX_SOURCE(
kernel ENTRY(f32 *y, f16 *x, u8 *w, f32 *bias, f32 *add, f32 *scales, u32 rows, u32 n, u32 biases, u32 adds)
    threads(256) {
    const parts = TOKENS / 32; /* sixteens of rows of x that a warp has */
    shared u32 x_tile[8][parts][16][16], w_tile[8][2][16][16];
    u32 lane = thread.x % 32, warp = thread.x / 32, warp_row = warp % 4 * 32, warp_token = warp / 4 * (TOKENS / 2);
    u32 first_row = block.x * 128, first_token = block.y * TOKENS, turn = lane / 2 % 4;
    u32 w_row = thread.x / 2, h = thread.x % 2;
    u8 *row = w;
    row += u64(min(first_row + w_row, rows - 1)) * ROW_BYTES;
    f32 sum[parts][4][4] = 0;
    u32 code[2][4], high[2][1] = 0, scale[2][2] = 0, from[(TOKENS + 63) / 64];
    unroll (i : (TOKENS + 63) / 64)
        from[i] = min(first_token + thread.x / 4 + i * 64, n - 1) * (UNITS * 32) + thread.x % 4 * 8;
    unroll (i : 3) {
        u32 ahead = i;
        COPY
    }
    unroll (set : 2) {
        u32 ahead = set;
        TAKE
    }
    {
        const set = 0;
        MAKE
    }
    for (u32 step = 0; step < UNITS; step += 2) unroll (s : 2) {
        if (step + s < UNITS) {
            u32 stage = (step + s) % 4;
            copy_async_wait(2);
            barrier();
            {
                u32 ahead = step + s + 3;
                COPY
            }
            {
                const set = s;
                u32 ahead = step + s + 2;
                TAKE
            }
            unroll (half : 2) {
                u32 a[parts][4], b[2][2][2];
                unroll (i : parts)
                    load_matrices(a[i], x_tile[stage * 2 + warp / 4][i][lane % 16][(half * 2 + lane / 16 ^ turn) * 4]);
                unroll (j : 2)
                    load_matrices(b[j], w_tile[s * 4 + warp % 4][j][lane % 8 + lane / 16 * 8]
                                              [(half * 2 + lane / 8 % 2 ^ turn) * 4]);
                unroll (i : parts) unroll (j : 4) mma_f16(sum[i][j], a[i], b[j / 2][j % 2]);
                if (half == 0) {
                    const set = 1 - s;
                    MAKE
                }
            }
        }
    }
    unroll (j : 4) unroll (e : 2) {
        u32 to = first_row + warp_row + j * 8 + lane % 4 * 2 + e;
        if (to < rows) {
            f32 added = biases != 0 ? bias[to] : 0.0;
            unroll (i : parts) unroll (p : 2) {
                u32 token = first_token + warp_token + i * 16 + lane / 4 + p * 8;
                if (token < n) {
                    u64 at = u64(token) * rows + to;
                    f32 v = sum[i][j][p * 2 + e] * scales[token] + added;
                    if (GATED) {
                        f32 gate = add[at];
                        v = gate * rcp(1.0 + exp2(gate * -1.4426950408889634)) * v;
                    } else {
                        if (adds != 0) v += add[at];
                    }
                    y[at] = v;
                }
            }
        }
    }
});
/* Fetches for the unit number `ahead`, or without one for the last: rows of x, then half h of this thread's row of
 * packed codes into register set `set`. */
static const char copy[] = VB_PTX_SOURCE(
    if (ahead < UNITS) {
        unroll (i : (TOKENS + 63) / 64) {
            u32 at = thread.x / 4 + i * 64;
            if (TOKENS >= 64 || thread.x < TOKENS * 4)
                copy_async(x_tile[ahead % 4 * 2 + at / 16 / parts][at / 16 % parts][at % 16]
                                 [(thread.x % 4 ^ at / 2 % 4) * 4], x[from[i] + ahead * 32], 1 == 1);
        }
    }
    copy_async_commit();
);
static const char take[] = VB_PTX_SOURCE({
    u32 unit = min(ahead, UNITS - 1);
    u32 *words = row;
    u16 *halves = row;
    if (BITS == 8) load(code[set], words[unit * 4 + h * (UNITS * 4)]);
    else load(code[set], words[unit * 4]);
    if (BITS == 5) high[set][0] = words[unit + HIGH_AT / 4];
    if (BITS == 6) high[set][0] = words[unit * 2 + h + HIGH_AT / 4];
    if (SCALES == 1) scale[set][0] = words[unit + SCALE_AT / 4];
    else scale[set][0] = halves[unit + SCALE_AT / 2];
    if (SCALES > 1) scale[set][1] = words[unit / 8 + BLOCK_AT / 4];
});

/* Decodes a set's 16 codes into w_tile[set]. A byte c between the halves' exponent 0x64 is 1024 + c, so that one fma
 * makes the number exactly. */
static const char make[] = VB_PTX_SOURCE({
    f32 d = f16_low(SCALES > 1 ? scale[set][1] : scale[set][0]), offset = 0;
    if (SCALES == 1) offset = f16_high(scale[set][0]);
    if (SCALES == 2) {
        d = d * f32(scale[set][0] & 255);
        offset = f16_high(scale[set][1]) * -f32(scale[set][0] >> 8);
    }
    if (SCALES == 3) d = d * f32(s32(scale[set][0] << 24 - h * 8) >> 24);
    u32 d_pair = pack_f16(d, d), offset_pair = pack_f16(offset, offset), one = 0x3c003c00;
    const base = 0xe400e400 + (BITS == 8 ? 128 : ZERO) * 0x10001; /* -1024 - zero */
    unroll (q : 2) {
        u32 made[4];
        unroll (e : 2) {
            const j = q * 2 + e;
            u32 v = code[set][j];
            if (BITS == 8) v = v ^ 0x80808080;
            else v = v >> h * 4 & 0x0f0f0f0f;
            if (BITS == 5) v = v | (high[set][0] >> h * 4 + j & 0x01010101) << 4;
            if (BITS == 6) v = v | (high[set][0] >> j * 2 & 0x03030303) << 4;
            made[e * 2] = fma_f16(fma_f16(permute(v, 0x64646464, 0x4140), one, base), d_pair, offset_pair);
            made[e * 2 + 1] = fma_f16(fma_f16(permute(v, 0x64646464, 0x4342), one, base), d_pair, offset_pair);
        }
        store(w_tile[set * 4 + w_row / 32][w_row / 16 % 2][w_row % 16][(h * 2 + q ^ w_row / 2 % 4) * 4], made);
    }
});

/* Fewer rows of x a block where three quarters of the multiprocessors would have none. */
static int tokens_of(int64_t rows, int64_t n, int multiprocessors) {
    int tokens = 128;
    while (tokens > 32 &&
           (n <= tokens / 2 || (rows + 127) / 128 * ((n + tokens - 1) / tokens) < multiprocessors * 3 / 4))
        tokens /= 2;
    return tokens;
}

/* What is multiplied, and what happens to the product. */
typedef struct many {
    const float *x, *norm, *bias, *add; /* norm, bias, add: or NULL */
    float eps;
    bool normed, gated; /* rms_norm(x); silu(add) times the product, not add plus the product */
    bool again;         /* x is the last call's */
} many;

enum { SCALED_BYTES = 64 << 20 };

static bool suits(vb_jit_layout *l, const vb_weight *w, int64_t n, vb_stream *stream) {
    return w->layout == VB_PACKED && vb_jit_layout_of(l, w->type, w->cols) && w->rows <= INT32_MAX && n <= INT32_MAX &&
           w->cols <= VB_JIT_MOST_COLS && (uintptr_t)w->data % 16 == 0 && vb_jit_of(stream)->target >= 80;
}

/* Rows of x that are scaled at a time: whole blocks, in SCALED_BYTES where one fits. */
static int64_t rows_at_once(int64_t cols) {
    int64_t most = SCALED_BYTES / 2 / cols / 128 * 128;
    if (most > VB_JIT_SCALED_ROWS) most = VB_JIT_SCALED_ROWS;
    return most < 128 ? 128 : most;
}

static vb_status multiply(float *y, many a, const vb_weight *w, int64_t n, vb_stream *stream) {
    vb_jit_layout l;
    if (!suits(&l, w, n, stream)) return VB_UNSUPPORTED;
    const int tokens = tokens_of(w->rows, n, vb_jit_of(stream)->multiprocessors);
    const bool vectors = ((uintptr_t)a.x | (uintptr_t)a.norm) % 16 == 0;
    const vb_jit_filling first = {.source = scale_rows, .constants = {{"VECTORS", vectors}, {"NORM", a.normed}},
        .texts = {{"READ", read_x}}};
    const vb_jit_filling f = {.source = product,
        .constants = {VB_JIT_LAYOUT(l), {"TOKENS", tokens}, {"GATED", a.gated}},
        .texts = {{"COPY", copy}, {"TAKE", take}, {"MAKE", make}}};
    const int64_t most = rows_at_once(w->cols);
    const void *data = w->data;
    cu_address scales = ((vb_jit_stream *)stream)->row_scales;
    uint32_t cols = (uint32_t)w->cols, rows = (uint32_t)w->rows;
    uint32_t norms = a.norm != NULL, biases = a.bias != NULL, adds = a.add != NULL;
    float eps = a.eps;
    void *scaled = NULL;
    vb_status status = vb_jit_workspace(&scaled, 2 * (n < most ? n : most) * w->cols, stream);
    for (int64_t done = 0; status == VB_OK && done < n; done += most) {
        uint32_t part = (uint32_t)(n - done < most ? n - done : most);
        float *to = y + done * w->rows;
        const float *from = a.x + done * w->cols, *add = a.add ? a.add + done * w->rows : NULL;
        if (!a.again)
            status = vb_jit_launch(stream, "ptx_scale_rows", &first, part, 1, 1, 256,
                                   VB_JIT_PARAMETERS(&scales, &scaled, &from, &a.norm, &cols, &norms, &eps));
        if (status == VB_OK)
            status = vb_jit_launch(stream, "ptx_linear_many", &f, ((int64_t)rows + 127) / 128,
                ((int64_t)part + tokens - 1) / tokens, 1, 256,
                VB_JIT_PARAMETERS(&to, &scaled, &data, &a.bias, &add, &scales, &rows, &part, &biases, &adds));
    }
    return status;
}

vb_status vb_jit_many(float *y, const float *x, const vb_weight *w, const float *bias, int64_t n, vb_stream *stream) {
    return multiply(y, (many){.x = x, .bias = bias}, w, n, stream);
}

vb_status vb_jit_many_add(float *sum, const float *a, const float *x, const vb_weight *w, const float *bias, int64_t n,
                          vb_stream *stream) {
    return multiply(sum, (many){.x = x, .bias = bias, .add = a}, w, n, stream);
}

/* The gate's products lie in `out` until those of up are known. */
vb_status vb_jit_many_swiglu(float *out, const float *x, const float *norm, float eps, const vb_weight *gate,
                             const vb_weight *up, int64_t n, vb_stream *stream) {
    vb_jit_layout l;
    if (!suits(&l, gate, n, stream) || !suits(&l, up, n, stream)) return VB_UNSUPPORTED;
    many a = {.x = x, .norm = norm, .eps = eps, .normed = true};
    vb_status status = multiply(out, a, gate, n, stream);
    a.add = out, a.gated = true, a.again = n <= rows_at_once(gate->cols);
    return status == VB_OK ? multiply(out, a, up, n, stream) : status;
}
