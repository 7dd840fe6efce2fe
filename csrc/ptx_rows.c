/* ptx_rows.c: operations on rows of GPUs whose kernels the driver compiles: a block a row. A row of up to MOST_ROUNDS
 * vectors a thread stays in registers. */
#include "ptx_device.h"

enum { MOST_THREADS = 256, MOST_ROUNDS = 8 };

/* Row `in` in x[ROUNDS][EACH]; elements behind the end are LEAST. */
static const char read_row[] = VB_PTX_SOURCE(
    unroll (i : ROUNDS) {
        u64 at = u64((i * THREADS + thread.x) * EACH);
        unroll (e : EACH) x[i][e] = LEAST;
        if (VECTORS) {
            if (at < cols) load(x[i], in[at]);
        } else {
            unroll (e : EACH) if (at + e < cols) x[i][e] = in[at + e];
        }
    }
);
static const char write_row[] = VB_PTX_SOURCE(
    unroll (i : ROUNDS) {
        u64 at = u64((i * THREADS + thread.x) * EACH);
        if (VECTORS) {
            if (at < cols) store(to[at], x[i]);
        } else {
            unroll (e : EACH) if (at + e < cols) to[at + e] = x[i][e];
        }
    }
);
/* The sum of `sum` over the block. */
static const char sum_up[] = VB_PTX_SOURCE(
    unroll (i : 5) sum += shuffle_xor(sum, 16 >> i);
    if (THREADS > 32) {
        if (lane == 0) part[warp] = sum;
        barrier();
        sum = 0;
        unroll (i : THREADS / 32) sum += part[i];
        barrier();
    }
);

static const char softmax[] = VB_PTX_SOURCE(
kernel ENTRY(TYPE *output, TYPE *input, u64 cols) threads(THREADS) {
    shared f32 part[8];
    u32 lane = thread.x % 32, warp = thread.x / 32;
    TYPE *in = input;
    in += u64(block.x) * cols;
    TYPE *to = output;
    to += u64(block.x) * cols;
    const log2_e = 1.4426950408889634;
    f32 most = from_bits(0xff800000), sum = 0;
    f32 x[ROUNDS][EACH];
    if (IN_REGISTERS) {
        READ
        unroll (i : ROUNDS) unroll (e : EACH) most = max(most, x[i][e]);
    } else {
        for (u64 i = u64(thread.x); i < cols; i += THREADS) most = max(most, in[i]);
    }
    unroll (i : 5) most = max(most, shuffle_xor(most, 16 >> i));
    if (THREADS > 32) {
        if (lane == 0) part[warp] = most;
        barrier();
        unroll (i : THREADS / 32) most = max(most, part[i]);
        barrier();
    }
    if (IN_REGISTERS) {
        unroll (i : ROUNDS) unroll (e : EACH) {
            x[i][e] = exp2((x[i][e] - most) * log2_e);
            sum += x[i][e];
        }
    } else {
        for (u64 i = u64(thread.x); i < cols; i += THREADS) sum += exp2((in[i] - most) * log2_e);
    }
    SUM_UP
    f32 scale = rcp(sum);
    if (IN_REGISTERS) {
        unroll (i : ROUNDS) unroll (e : EACH) x[i][e] = x[i][e] * scale;
        WRITE
    } else {
        for (u64 i = u64(thread.x); i < cols; i += THREADS) to[i] = exp2((in[i] - most) * log2_e) * scale;
    }
});

/* How a block takes a row: as much of it in registers as ROUNDS vectors a thread. */
typedef struct row_plan {
    int64_t threads, rounds, each, registers, vectors;
} row_plan;

static row_plan plan_of(vb_dtype type, int64_t cols, uintptr_t addresses) {
    row_plan p = {.threads = 32, .each = 16 / vb_dtype_block_bytes(type)};
    while (p.threads < MOST_THREADS && p.threads * p.each < cols) p.threads *= 2;
    p.rounds = (cols + p.threads * p.each - 1) / (p.threads * p.each);
    p.registers = p.rounds <= MOST_ROUNDS;
    if (!p.registers) p.rounds = 1;
    p.vectors = addresses % 16 == 0 && cols % p.each == 0;
    return p;
}

#define PLAN(p) {"THREADS", (p).threads}, {"ROUNDS", (p).rounds}, {"EACH", (p).each}, {"IN_REGISTERS", (p).registers}, \
    {"VECTORS", (p).vectors}
#define TEXTS {"READ", read_row}, {"WRITE", write_row}, {"SUM_UP", sum_up}

vb_status vb_jit_softmax_batched(void *out, const void *in, vb_dtype type, int64_t rows, int64_t cols,
    vb_stream *stream) {
    const row_plan p = plan_of(type, cols, (uintptr_t)out | (uintptr_t)in);
    const vb_jit_filling f = {.source = softmax, .type = vb_jit_type(type), .constants = {PLAN(p)},
        .texts = {TEXTS, {"LEAST", "from_bits(0xff800000)"}}};
    return vb_jit_launch(stream, "ptx_softmax", &f, rows, 1, 1, (int)p.threads, VB_JIT_PARAMETERS(&out, &in, &cols));
}

/* MEAN: the layer norm, whose variance is summed after the mean is known. SUM: the row is a + b, stored first. */
static const char norm[] = VB_PTX_SOURCE(
kernel ENTRY(TYPE *sums, TYPE *output, TYPE *a_ptr, TYPE *b_ptr, f32 *weight, f32 *bias, u64 cols, f32 eps,
    u32 weights, u32 biases) threads(THREADS) {
    shared f32 part[8];
    u32 lane = thread.x % 32, warp = thread.x / 32;
    u64 row = u64(block.x) * cols;
    f32 x[ROUNDS][EACH];
    if (SUM) {
        TYPE *a = a_ptr;
        a += row;
        TYPE *b = b_ptr;
        b += row;
        TYPE *to = sums;
        to += row;
        if (IN_REGISTERS) {
            f32 y[ROUNDS][EACH];
            TYPE *in = b_ptr;
            in += row;
            READ
            unroll (i : ROUNDS) unroll (e : EACH) y[i][e] = x[i][e];
            FIRST
            unroll (i : ROUNDS) unroll (e : EACH) x[i][e] = x[i][e] + y[i][e];
            WRITE
        } else {
            for (u64 i = u64(thread.x); i < cols; i += THREADS) to[i] = a[i] + b[i];
        }
    }
    TYPE *in = SUM ? sums : a_ptr;
    in += row;
    if (IN_REGISTERS && (SUM == 0 || ROUNDED)) {
        READ
    }
    f32 mean = 0, sum = 0;
    f32 count = f32(cols);
    if (MEAN) {
        if (IN_REGISTERS) unroll (i : ROUNDS) unroll (e : EACH) sum += x[i][e];
        else for (u64 i = u64(thread.x); i < cols; i += THREADS) sum += in[i];
        SUM_UP
        mean = sum / count;
        sum = 0;
    }
    if (IN_REGISTERS) {
        unroll (i : ROUNDS) unroll (e : EACH) {
            if (MEAN) {
                x[i][e] = x[i][e] - mean;
                if (u64((i * THREADS + thread.x) * EACH + e) >= cols) x[i][e] = 0;
            }
            sum = fma(x[i][e], x[i][e], sum);
        }
    } else {
        for (u64 i = u64(thread.x); i < cols; i += THREADS) {
            f32 centred = in[i] - mean;
            sum = fma(centred, centred, sum);
        }
    }
    SUM_UP
    f32 inverse = rcp(sqrt(sum / count + eps));
    TYPE *to = output;
    to += row;
    if (IN_REGISTERS) {
        unroll (i : ROUNDS) {
            u64 at = u64((i * THREADS + thread.x) * EACH);
            unroll (e : EACH) x[i][e] = x[i][e] * inverse;
            if (weights != 0) {
                FACTORS
            }
            if (biases != 0) unroll (e : EACH) if (at + e < cols) x[i][e] += bias[at + e];
        }
        WRITE
    } else {
        for (u64 i = u64(thread.x); i < cols; i += THREADS) {
            f32 y = (in[i] - mean) * inverse;
            if (weights != 0) y = y * weight[i];
            if (biases != 0) y += bias[i];
            to[i] = y;
        }
    }
});
/* The second summand of SUM. */
static const char read_first[] = VB_PTX_SOURCE({
    TYPE *in = a_ptr;
    in += row;
    READ
});
static const char multiply_row[] = VB_PTX_SOURCE(
    if (VECTORS) {
        if (at < cols) {
            unroll (q : EACH / 4) {
                f32 four[4];
                load(four, weight[at + q * 4]);
                unroll (e : 4) x[i][q * 4 + e] = x[i][q * 4 + e] * four[e];
            }
        }
    } else {
        unroll (e : EACH) if (at + e < cols) x[i][e] = x[i][e] * weight[at + e];
    }
);

static vb_status run_norm(const char *name, bool mean, bool sum, void *sums, void *out, const void *a,
    const void *b, const float *weight, const float *bias, vb_dtype type, int64_t rows, int64_t cols, float eps,
    vb_stream *stream) {
    uint32_t weights = weight != NULL, biases = bias != NULL;
    const row_plan p = plan_of(type, cols, (uintptr_t)sums | (uintptr_t)out | (uintptr_t)a | (uintptr_t)b |
        (uintptr_t)weight);
    const vb_jit_filling f = {.source = norm, .type = vb_jit_type(type),
        .constants = {PLAN(p), {"MEAN", mean}, {"SUM", sum}, {"ROUNDED", type != VB_F32}},
        .texts = {TEXTS, {"LEAST", "0.0"}, {"FIRST", read_first}, {"FACTORS", multiply_row}}};
    return vb_jit_launch(stream, name, &f, rows, 1, 1, (int)p.threads,
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
    const vb_jit_filling f = {.source = mul_rows, .type = vb_jit_type(type)};
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
    const vb_jit_filling f = {.source = copy_columns, .type = vb_dtype_block_bytes(type) == 4 ? "u32" : "u16"};
    return vb_jit_launch(stream, "ptx_copy_columns", &f, rows, 1, 1, 256,
                         VB_JIT_PARAMETERS(&out, &in, &out_cols, &out_first, &in_cols, &in_first, &cols));
}

/* The k best of a row, one after another. A number is ordered by its bits, negative numbers the other way round, NaN
 * above all; equal numbers by their index. Each round looks for the best behind the last round's. */
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
            values[to] = in[best_at];
        }
        last = best;
        last_at = best_at;
    }
});

/* In the order of top_k: a thread looks at every 1024th vector, then the block compares its threads' results. */
static const char argmax[] = VB_PTX_SOURCE(
kernel ENTRY(s32 *ids, f32 *input, u64 cols) threads(1024) {
    start_next();
    wait_for_previous();
    shared u32 keys[32], places[32];
    u32 lane = thread.x % 32, warp = thread.x / 32, n = u32(cols), best = 0, best_at = 0xffffffff;
    f32 *in = input;
    in += u64(block.x) * cols;
    for (u32 start = thread.x * EACH; start < n; start += 1024 * EACH * PARTS) {
        f32 v[PARTS][EACH];
        unroll (p : PARTS) {
            u32 at = start + p * (1024 * EACH);
            if (at < n) {
                if (EACH == 4) load(v[p], in[at]);
                else v[p][0] = in[at];
            }
        }
        unroll (p : PARTS) {
            u32 at = start + p * (1024 * EACH);
            if (at < n) {
                unroll (e : EACH) {
                    u32 word = bits(v[p][e] + 0.0);
                    u32 key = word > 0x7fffffff ? ~word : word | 0x80000000;
                    if (v[p][e] != v[p][e]) key = 0xffffffff;
                    if (best_at == 0xffffffff || key > best) {
                        best = key;
                        best_at = at + e;
                    }
                }
            }
        }
    }
    unroll (round : 2) {
        unroll (s : 5) {
            u32 other = shuffle_xor(best, 16 >> s), other_at = shuffle_xor(best_at, 16 >> s);
            if (other_at != 0xffffffff && (best_at == 0xffffffff || other > best || other == best &&
                other_at < best_at)) {
                best = other;
                best_at = other_at;
            }
        }
        if (round == 0) {
            if (lane == 0) {
                keys[warp] = best;
                places[warp] = best_at;
            }
            barrier();
            best = keys[lane];
            best_at = places[lane];
        }
    }
    if (thread.x == 0) ids[block.x] = s32(best_at);
});

vb_status vb_jit_argmax(int32_t *out, const float *in, int64_t rows, int64_t cols, vb_stream *stream) {
    const bool vectors = (uintptr_t)in % 16 == 0 && cols % 4 == 0;
    if (cols > INT32_MAX - (1 << 20)) return VB_UNSUPPORTED;
    const vb_jit_filling f = {.source = argmax, .constants = {{"EACH", vectors ? 4 : 1}, {"PARTS", 4}}};
    return vb_jit_launch(stream, "ptx_argmax", &f, rows, 1, 1, 1024, VB_JIT_PARAMETERS(&out, &in, &cols));
}

vb_status vb_jit_top_k(float *values, int32_t *ids, const float *in, int64_t rows, int64_t cols, int64_t k,
    vb_stream *stream) {
    if (cols > UINT32_MAX - 1) return VB_UNSUPPORTED;
    uint32_t count = (uint32_t)k;
    const vb_jit_filling f = {.source = top_k};
    return vb_jit_launch(stream, "ptx_top_k", &f, rows, 1, 1, 256,
                         VB_JIT_PARAMETERS(&values, &ids, &in, &cols, &count));
}
