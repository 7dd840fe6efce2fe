/* ptx_rows.c: operations on rows of GPUs whose kernels the driver compiles: a block of 256 threads a row. */
#include "ptx_device.h"

static const char softmax[] = VB_PTX_SOURCE(
kernel ENTRY(TYPE *output, TYPE *input, u64 cols) threads(256) {
    shared f32 part[8];
    u32 lane = thread.x % 32, warp = thread.x / 32;
    TYPE *in = input;
    in += u64(block.x) * cols;
    TYPE *out = output;
    out += u64(block.x) * cols;
    const log2_e = 1.4426950408889634;
    f32 most = from_bits(0xff800000), sum = 0;
    for (u64 i = u64(thread.x); i < cols; i += 256) most = max(most, in[i]);
    unroll (i : 5) most = max(most, shuffle_xor(most, 16 >> i));
    if (lane == 0) part[warp] = most;
    barrier();
    unroll (i : 8) most = max(most, part[i]);
    barrier();
    for (u64 i = u64(thread.x); i < cols; i += 256) sum += exp2((in[i] - most) * log2_e);
    unroll (i : 5) sum += shuffle_xor(sum, 16 >> i);
    if (lane == 0) part[warp] = sum;
    barrier();
    sum = 0;
    unroll (i : 8) sum += part[i];
    f32 scale = rcp(sum);
    for (u64 i = u64(thread.x); i < cols; i += 256) out[i] = exp2((in[i] - most) * log2_e) * scale;
});

vb_status vb_jit_softmax_batched(void *out, const void *in, vb_dtype type, int64_t rows, int64_t cols,
    vb_stream *stream) {
    const vb_jit_filling f = {softmax, vb_jit_type(type), NULL, NULL, {{NULL, 0}}};
    return vb_jit_launch(stream, "ptx_softmax", &f, rows, 1, 1, 256, VB_JIT_PARAMETERS(&out, &in, &cols));
}

/* MEAN: the layer norm, whose variance is summed after the mean is known. SUM: the row is a + b, stored first. */
static const char norm[] = VB_PTX_SOURCE(
kernel ENTRY(TYPE *sums, TYPE *output, TYPE *a_ptr, TYPE *b_ptr, f32 *weight, f32 *bias, u64 cols, f32 eps,
    u32 weights, u32 biases) threads(256) {
    shared f32 part[8];
    u32 lane = thread.x % 32, warp = thread.x / 32;
    u64 row = u64(block.x) * cols;
    TYPE *in = a_ptr;
    in += row;
    TYPE *out = output;
    out += row;
    if (SUM) {
        TYPE *sum = sums;
        sum += row;
        TYPE *b = b_ptr;
        b += row;
        for (u64 i = u64(thread.x); i < cols; i += 256) sum[i] = in[i] + b[i];
    }
    TYPE *x = SUM ? sums : a_ptr;
    x += row;
    f32 mean = 0, square = 0;
    f32 count = f32(cols);
    if (MEAN) {
        for (u64 i = u64(thread.x); i < cols; i += 256) mean += x[i];
        unroll (i : 5) mean += shuffle_xor(mean, 16 >> i);
        if (lane == 0) part[warp] = mean;
        barrier();
        mean = 0;
        unroll (i : 8) mean += part[i];
        mean = mean / count;
        barrier();
    }
    for (u64 i = u64(thread.x); i < cols; i += 256) {
        f32 centred = x[i] - mean;
        square = fma(centred, centred, square);
    }
    unroll (i : 5) square += shuffle_xor(square, 16 >> i);
    if (lane == 0) part[warp] = square;
    barrier();
    square = 0;
    unroll (i : 8) square += part[i];
    f32 inverse = rcp(sqrt(square / count + eps));
    for (u64 i = u64(thread.x); i < cols; i += 256) {
        f32 y = (x[i] - mean) * inverse;
        if (weights != 0) y = y * weight[i];
        if (biases != 0) y += bias[i];
        out[i] = y;
    }
});

static vb_status run_norm(const char *name, bool mean, bool sum, void *sums, void *out, const void *a,
    const void *b, const float *weight,
                          const float *bias, vb_dtype type, int64_t rows, int64_t cols, float eps, vb_stream *stream) {
    uint32_t weights = weight != NULL, biases = bias != NULL;
    const vb_jit_filling f = {norm, vb_jit_type(type), NULL, NULL, {{"MEAN", mean}, {"SUM", sum}}};
    return vb_jit_launch(stream, name, &f, rows, 1, 1, 256,
                         VB_JIT_PARAMETERS(&sums, &out, &a, &b, &weight, &bias, &cols, &eps, &weights, &biases));
}

vb_status vb_jit_rms_norm_batched(void *out, const void *in, const float *weight, vb_dtype type, int64_t rows,
    int64_t cols, float eps, vb_stream *stream) {
    return run_norm("ptx_rms_norm", false, false, out, out, in, in, weight, NULL, type, rows, cols, eps, stream);
}

vb_status vb_jit_layer_norm_batched(void *out, const void *in, const float *weight, const float *bias,
    vb_dtype type, int64_t rows, int64_t cols, float eps, vb_stream *stream) {
    return run_norm("ptx_layer_norm", true, false, out, out, in, in, weight, bias, type, rows, cols, eps, stream);
}

vb_status vb_jit_add_rms_norm(void *sum, void *out, const void *a, const void *b, const float *weight,
    vb_dtype type, int64_t rows, int64_t cols, float eps, vb_stream *stream) {
    return run_norm("ptx_add_rms_norm", false, true, sum, out, a, b, weight, NULL, type, rows, cols, eps, stream);
}

static const char mul_rows[] = VB_PTX_SOURCE(
kernel ENTRY(TYPE *out, TYPE *a, f32 *factors, u64 cols) threads(256) {
    u64 row = u64(block.x) * cols;
    f32 factor = factors[block.x];
    for (u64 i = u64(thread.x); i < cols; i += 256) out[row + i] = a[row + i] * factor;
});

vb_status vb_jit_mul_rows(void *out, const void *a, const float *factors, vb_dtype type, int64_t rows,
    int64_t cols, vb_stream *stream) {
    const vb_jit_filling f = {mul_rows, vb_jit_type(type), NULL, NULL, {{NULL, 0}}};
    return vb_jit_launch(stream, "ptx_mul_rows", &f, rows, 1, 1, 256, VB_JIT_PARAMETERS(&out, &a, &factors, &cols));
}

/* Elements are copied as bits. */
static const char copy_columns[] = VB_PTX_SOURCE(
kernel ENTRY(TYPE *out, TYPE *in, u64 out_cols, u64 out_first, u64 in_cols, u64 in_first, u64 cols) threads(256) {
    u64 to = u64(block.x) * out_cols + out_first, from = u64(block.x) * in_cols + in_first;
    for (u64 i = u64(thread.x); i < cols; i += 256) out[to + i] = in[from + i];
});

vb_status vb_jit_copy_columns(void *out, int64_t out_cols, int64_t out_first, const void *in, int64_t in_cols,
    int64_t in_first, vb_dtype type, int64_t rows, int64_t cols, vb_stream *stream) {
    const vb_jit_filling f = {copy_columns, vb_dtype_block_bytes(type) == 4 ? "u32" : "u16", NULL, NULL, {{NULL, 0}}};
    return vb_jit_launch(stream, "ptx_copy_columns", &f, rows, 1, 1, 256,
                         VB_JIT_PARAMETERS(&out, &in, &out_cols, &out_first, &in_cols, &in_first, &cols));
}

/* The k best of a row, one after another: a number is ordered by its bits, negative ones the other way round, NaN above
 * all; equal ones by their index. Each round looks for the best of those behind the one before. */
static const char top_k[] = VB_PTX_SOURCE(
kernel ENTRY(f32 *values, s32 *ids, f32 *input, u64 cols, u32 k) threads(256) {
    shared u32 keys[8], places[8];
    u32 lane = thread.x % 32, warp = thread.x / 32, n = u32(cols);
    f32 *in = input;
    in += u64(block.x) * cols;
    u32 last = 0xffffffff, last_at = 0;
    for (u32 round = 0; round < k; round += 1) {
        u32 best = 0, best_at = 0xffffffff;
        for (u32 i = thread.x; i < n; i += 256) {
            f32 x = in[i] + 0.0;
            u32 word = bits(x);
            u32 key = word > 0x7fffffff ? ~word : word | 0x80000000;
            if (x != x) key = 0xffffffff;
            bool behind = round == 0 || key < last || key == last && i > last_at;
            bool better = best_at == 0xffffffff || key > best;
            if (behind && better) {
                best = key;
                best_at = i;
            }
        }
        unroll (s : 5) {
            u32 other = shuffle_xor(best, 16 >> s), other_at = shuffle_xor(best_at, 16 >> s);
            if (other_at != 0xffffffff && (best_at == 0xffffffff || other > best || other == best &&
                other_at < best_at)) {
                best = other;
                best_at = other_at;
            }
        }
        if (lane == 0) {
            keys[warp] = best;
            places[warp] = best_at;
        }
        barrier();
        unroll (s : 8) {
            u32 other = keys[s], other_at = places[s];
            if (other_at != 0xffffffff && (best_at == 0xffffffff || other > best || other == best &&
                other_at < best_at)) {
                best = other;
                best_at = other_at;
            }
        }
        barrier();
        if (thread.x == 0) {
            u64 to = u64(block.x) * k + round;
            ids[to] = s32(best_at);
            if (VALUES) values[to] = in[best_at];
        }
        last = best;
        last_at = best_at;
    }
});

static vb_status best(const char *name, float *values, int32_t *ids, const float *in, int64_t rows, int64_t cols,
    int64_t k, vb_stream *stream) {
    if (cols > UINT32_MAX - 1) return VB_UNSUPPORTED;
    uint32_t count = (uint32_t)k;
    const vb_jit_filling f = {top_k, NULL, NULL, NULL, {{"VALUES", values != NULL}}};
    return vb_jit_launch(stream, name, &f, rows, 1, 1, 256, VB_JIT_PARAMETERS(&values, &ids, &in, &cols, &count));
}

vb_status vb_jit_argmax(int32_t *out, const float *in, int64_t rows, int64_t cols, vb_stream *stream) {
    return best("ptx_argmax", NULL, out, in, rows, cols, 1, stream);
}

vb_status vb_jit_top_k(float *values, int32_t *ids, const float *in, int64_t rows, int64_t cols, int64_t k,
    vb_stream *stream) {
    return best("ptx_top_k", values, ids, in, rows, cols, k, stream);
}
