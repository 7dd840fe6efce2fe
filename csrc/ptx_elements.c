/* ptx_elements.c: element-wise operations, conversions and copies of GPUs whose kernels the driver compiles. */
#include "fits.h"
#include "ptx_strided.h"

typedef enum element_op { ADD, MUL, MUL_SCALAR, SILU, GELU, GELU_TANH, SWIGLU, GELU_GLU, GELU_TANH_GLU,
    RELU_SQUARED_GLU, CLAMPED_SILU_GLU, SIGMOID, SOFT_CAP } element_op;

#define FIRST(c) "f32 p = " #c ";"
#define STEP(c) "p = p * fit " #c ";"

/* P / ln 2 of VB_ERFC_FIT for results of 16 bits: to 1.4e-5 for z up to 9.5, by interpolation at Chebyshev's points. */
#define SHORT_ERFC_FIT(FIRST, STEP)                                                                                    \
    FIRST(0.345125937)                                                                                                 \
    STEP(- 1.06828620)                                                                                                 \
    STEP(+ 0.735584901)                                                                                                \
    STEP(+ 0.340230036)                                                                                                \
    STEP(+ 1.47516537)                                                                                                 \
    STEP(- 1.82780024)

/* The formulas and coefficients are those of cpu_elementwise.c. exp(t) is 2^(n + r) with t = (n + r) ln 2.
 * ln 2 is subtracted in two parts, so that the exponential keeps its accuracy for large t. FAST subtracts one part, for
 * results of 16 bits. */
const char vb_jit_formula[] = VB_PTX_SOURCE({
    f32 result = 0;
    if (OP == 0) result = x + y;
    if (OP == 1) result = x * y;
    if (OP == 2) result = x * scalar;
    if (OP == 9) result = x < 0.0 ? 0.0 * y : x * x * y;
    if (OP == 10) {
        if (x > limit) x = limit;
        if (y < -limit) y = -limit;
        if (y > limit) y = limit;
    }
    if (EXP) {
        f32 t = -x;
        f32 fit = 1;
        if (OP == 5 || OP == 8) t = -1.59576912 * (x + 0.044715 * x * x * x);
        if (OP == 10) t = -scalar * x;
        if (OP == 12) {
            x = x * rcp(scalar);
            t = 2.0 * abs(x);
        }
        if (OP == 4 || OP == 7) {
            fit = rcp_fast(1.0 + 0.353553391 * abs(x));
        }
        if (FAST == 0 && (OP == 4 || OP == 7)) {
            ) VB_ERFC_FIT(FIRST, STEP) VB_PTX_SOURCE(
            t = p - 0.5 * x * x;
        }
        f32 e = exp2_fast(t * 1.44269504);
        if (FAST && (OP == 4 || OP == 7)) {
            ) SHORT_ERFC_FIT(FIRST, STEP) VB_PTX_SOURCE(
            e = exp2_fast(p - 0.721347520 * x * x);
        }
        if (FAST == 0) {
            e = exp2(t * 1.44269504);
            f32 whole = round(t * 1.44269504);
            f32 rest = fma(whole, -0.693359375, t);
            rest = fma(whole, 0.000212194440, rest);
            if (abs(t) <= 87.0) e = exp2(rest * 1.44269504) * exp2(whole);
        }
        if (OP == 3 || OP == 5) result = x * rcp_fast(1.0 + e);
        if (OP == 6 || OP == 8) result = x * rcp_fast(1.0 + e) * y;
        if (OP == 4) result = 0.5 * x * (x < 0.0 ? fit * e : 2.0 - fit * e);
        if (OP == 7) result = 0.5 * x * (x < 0.0 ? fit * e : 2.0 - fit * e) * y;
        if (OP == 10) result = (y + 1.0) * x * rcp_fast(1.0 + e);
        if (OP == 11) result = rcp_fast(1.0 + e);
        if (OP == 12) {
            ) VB_PTX_TANH_FIT VB_PTX_SOURCE(
            f32 far = 1.0 - 2.0 * rcp(e + 1.0);
            if (x < 0.0) far = -far;
            result = scalar * (abs(x) < 0.625 ? p * z * x + x : far);
        }
    }
    value = result;
});

/* out = formula(a, b): a block computes ROUNDS times THREADS vectors of EACH elements. All loads of a whole block come
 * first, and only the last block asks for each element whether it is there. */
static const char elements[] = VB_PTX_SOURCE(
kernel ENTRY(TYPE *out, TYPE *a, TYPE *b, f32 scalar, f32 limit, u64 n) threads(THREADS) {
    start_next();
    wait_for_previous();
    u64 first = u64(block.x) * (THREADS * EACH * ROUNDS) + thread.x * EACH;
    if (VECTORS && u64(block.x + 1) * (THREADS * EACH * ROUNDS) <= n) {
        TYPE *x_at = a;
        x_at += first;
        TYPE *y_at = b;
        y_at += first;
        TYPE *to = out;
        to += first;
        f32 from[ROUNDS][EACH], other[ROUNDS][EACH] = 0;
        unroll (r : ROUNDS) {
            load(from[r], x_at[r * (THREADS * EACH)]);
            if (PAIR) load(other[r], y_at[r * (THREADS * EACH)]);
        }
        unroll (r : ROUNDS) {
            unroll (e : EACH) {
                f32 x = from[r][e], y = other[r][e], value = 0;
                FORMULA
                from[r][e] = value;
            }
            store(to[r * (THREADS * EACH)], from[r]);
        }
    } else {
        unroll (r : ROUNDS) unroll (e : EACH) {
            u64 i = first + (r * (THREADS * EACH) + e);
            if (i < n) {
                f32 x = a[i], y = 0, value = 0;
                if (PAIR) y = b[i];
                FORMULA
                out[i] = value;
            }
        }
    }
});

static int64_t blocks_of(int64_t n) { return n > (1 << 20) * 256LL ? 1 << 20 : (n + 255) / 256; }

static vb_status run(const char *name, element_op op, void *out, const void *a, const void *b, float scalar,
    float limit, vb_dtype type, int64_t n, vb_stream *stream) {
    const bool pair = op == ADD || op == MUL || (op >= SWIGLU && op <= CLAMPED_SILU_GLU);
    const bool exponential = op >= SILU && op != RELU_SQUARED_GLU;
    const bool vectors = ((uintptr_t)out | (uintptr_t)a | (uintptr_t)b) % 16 == 0;
    const int64_t each = vectors ? 16 / vb_dtype_block_bytes(type) : 1;
    /* Exponentials of 16 bits take longer than their bytes: the second vector is on its way meanwhile. */
    enum { THREADS = 256, MANY = 1 << 18 };
    const int64_t rounds = vectors && exponential && !pair && type != VB_F32 && n >= MANY ? 2 : 1;
    const int64_t elements_of_block = each * rounds * THREADS;
    const vb_jit_filling f = {.source = elements, .type = vb_jit_type(type),
        .constants = {{"OP", op}, {"PAIR", pair}, {"EXP", exponential}, {"FAST", type != VB_F32}, {"VECTORS", vectors},
                      {"EACH", each}, {"ROUNDS", rounds}, {"THREADS", THREADS}},
        .texts = {{"FORMULA", vb_jit_formula}}};
    return vb_jit_launch(stream, name, &f, (n + elements_of_block - 1) / elements_of_block, 1, 1, THREADS,
                         VB_JIT_PARAMETERS(&out, &a, &b, &scalar, &limit, &n));
}

vb_status vb_jit_add(void *out, const void *a, const void *b, vb_dtype type, int64_t n, vb_stream *stream) {
    return run("ptx_add", ADD, out, a, b, 0, 0, type, n, stream);
}
vb_status vb_jit_mul(void *out, const void *a, const void *b, vb_dtype type, int64_t n, vb_stream *stream) {
    return run("ptx_mul", MUL, out, a, b, 0, 0, type, n, stream);
}
vb_status vb_jit_mul_scalar(void *out, const void *a, float scalar, vb_dtype type, int64_t n, vb_stream *stream) {
    return run("ptx_mul_scalar", MUL_SCALAR, out, a, a, scalar, 0, type, n, stream);
}
vb_status vb_jit_silu(void *out, const void *a, vb_dtype type, int64_t n, vb_stream *stream) {
    return run("ptx_silu", SILU, out, a, a, 0, 0, type, n, stream);
}
vb_status vb_jit_gelu(void *out, const void *a, vb_dtype type, int64_t n, vb_stream *stream) {
    return run("ptx_gelu", GELU, out, a, a, 0, 0, type, n, stream);
}
vb_status vb_jit_gelu_tanh(void *out, const void *a, vb_dtype type, int64_t n, vb_stream *stream) {
    return run("ptx_gelu_tanh", GELU_TANH, out, a, a, 0, 0, type, n, stream);
}
vb_status vb_jit_swiglu(void *out, const void *gate, const void *up, vb_dtype type, int64_t n, vb_stream *stream) {
    return run("ptx_swiglu", SWIGLU, out, gate, up, 0, 0, type, n, stream);
}
vb_status vb_jit_sigmoid(void *out, const void *a, vb_dtype type, int64_t n, vb_stream *stream) {
    return run("ptx_sigmoid", SIGMOID, out, a, a, 0, 0, type, n, stream);
}
vb_status vb_jit_soft_cap(void *out, const void *a, float cap, vb_dtype type, int64_t n, vb_stream *stream) {
    return run("ptx_soft_cap", SOFT_CAP, out, a, a, cap, 0, type, n, stream);
}
vb_status vb_jit_glu(void *out, const void *gate, const void *up, vb_activation activation, float alpha,
    float limit, vb_dtype type, int64_t n, vb_stream *stream) {
    static const element_op ops[] = {[VB_SILU] = SWIGLU, [VB_GELU] = GELU_GLU, [VB_GELU_TANH] = GELU_TANH_GLU,
                                     [VB_RELU_SQUARED] = RELU_SQUARED_GLU, [VB_CLAMPED_SILU] = CLAMPED_SILU_GLU};
    return run("ptx_glu", ops[activation], out, gate, up, alpha, limit, type, n, stream);
}

vb_status vb_jit_copy(void *out, const void *in, vb_dtype type, int64_t n, vb_stream *stream) {
    if (out == in) return VB_OK;
    return vb_jit_memcpy(out, in, n / vb_dtype_block_size(type) * vb_dtype_block_bytes(type),
        VB_DEVICE_TO_DEVICE, stream);
}

static const char convert[] = VB_PTX_SOURCE(
kernel ENTRY(TYPE *out, u8 *in, u16 *book, u64 n) threads(256) {
    u64 step = u64(blocks.x) * 256;
    for (u64 i = u64(block.x) * 256 + thread.x; i < n; i += step) {
        u8 *b = in;
        b += i / QK * BYTES;
        u32 e = u32(i % QK);
        f32 v = 0;
        DECODE
        out[i] = v;
    }
});

vb_status vb_jit_convert(void *out, vb_dtype out_type, const void *in, vb_dtype in_type, int64_t n, vb_stream *stream) {
    if (!vb_jit_type(out_type)) return VB_UNSUPPORTED;
    if (vb_jit_type(in_type)) /* floats: an expression without a step */
        return vb_jit_map(&VB_ARGS(vb_map_args, .out = {out, out_type, {1}}, .sizes = {n}, .rank = 1, .inputs = 1,
                                   .in = {{(void *)(uintptr_t)in, in_type, {1}}}),
                          stream);
    cu_address book = vb_jit_book(in_type, vb_jit_of(stream));
    const vb_jit_filling f = {.source = convert, .type = vb_jit_type(out_type), .decode = vb_jit_decode(in_type),
        .constants = {{"QK", vb_dtype_block_size(in_type)}, {"BYTES", vb_dtype_block_bytes(in_type)}}};
    return vb_jit_launch(stream, "ptx_convert", &f, blocks_of(n), 1, 1, 256, VB_JIT_PARAMETERS(&out, &in, &book, &n));
}

static const char increment[] = VB_PTX_SOURCE(
kernel ENTRY(s32 *x, u64 n) threads(256) {
    u64 i = u64(block.x) * 256 + thread.x;
    if (i < n) x[i] = x[i] + 1;
});

vb_status vb_jit_increment_i32(int32_t *x, int64_t n, vb_stream *stream) {
    const vb_jit_filling f = {.source = increment};
    return vb_jit_launch(stream, "ptx_increment_i32", &f, (n + 255) / 256, 1, 1, 256, VB_JIT_PARAMETERS(&x, &n));
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
