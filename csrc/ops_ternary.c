/* ops_ternary.c: the operations on ternary weights. Arguments are checked here as in ops.c. */
#include "checks.h"
#include "int2.h"

#define ROWS_OF(layout, k, bytes) \
    REQUIRE((layout) == VB_INT2_ROWS || (layout) == VB_INT2_INTERLEAVED, \
            "layout: neither VB_INT2_ROWS nor VB_INT2_INTERLEAVED"); \
    REQUIRE((bytes) == vb_int2_row_bytes(layout, k), "row_bytes: not vb_int2_row_bytes of the layout and k")

vb_status vb_norm_quantize(const vb_norm_quantize_args *args, vb_stream *stream) {
    TAKE(vb_norm_quantize_args, a, args);
    int64_t size;
    REQUIRE_SIZES(&size, a.rows, a.cols);
    if (a.rows == 0) return VB_OK; /* a row without elements has a scale all the same */
    NOT_NULL(stream);
    REQUIRE(a.scales && (size == 0 || (a.codes && a.in)), "codes, scales, in: null");
    REQUIRE(!a.up || a.activation == VB_SILU || a.activation == VB_RELU_SQUARED,
            "activation: neither VB_SILU nor VB_RELU_SQUARED");
    return RUN(norm_quantize, &a, stream);
}

vb_status vb_dequantize_rows(float *out, const void *codes, const float *scales, int64_t rows, int64_t cols,
                             vb_stream *stream) {
    int64_t size;
    REQUIRE_SIZES(&size, rows, cols);
    if (size == 0) return VB_OK;
    NOT_NULL(out); NOT_NULL(codes); NOT_NULL(scales); NOT_NULL(stream);
    return RUN(dequantize_rows, out, codes, scales, rows, cols, stream);
}

vb_status vb_w2a8_gemv(const vb_w2a8_gemv_args *args, vb_stream *stream) {
    TAKE(vb_w2a8_gemv_args, a, args);
    int64_t size, inner, rows;
    REQUIRE_SIZES(&size, a.m, a.n);
    REQUIRE_SIZES(&inner, a.m, a.k);
    REQUIRE_SIZES(&rows, a.n, a.k);
    REQUIRE(a.k % 4 == 0, "k: no multiple of 4");
    REQUIRE(a.k <= VB_INT2_MOST_K, "k: more than 2^22, whose sums could pass int32");
    ROWS_OF(a.layout, a.k, a.row_bytes);
    if (size == 0) return VB_OK;
    NOT_NULL(stream);
    REQUIRE(a.out_type == VB_I32 || a.out_type == VB_F32 || a.out_type == VB_F16 || a.out_type == VB_BF16,
            "out_type: neither I32, F32, F16 nor BF16");
    REQUIRE(a.out, "out: null");
    REQUIRE(a.k == 0 || (a.weights && a.activations), "weights, activations: null");
    if (a.out_type == VB_I32)
        REQUIRE(!a.activation_scales && !a.weight_scales && !a.segment_ends && !a.bias && !a.add,
                "activation_scales, weight_scales, segment_ends, bias, add: given with out_type I32");
    REQUIRE(!a.weight_scales || a.segments > 0, "segments: none, with weight_scales");
    REQUIRE(a.segments >= 0 && a.segments <= a.n, "segments: negative, or more than rows");
    REQUIRE(!a.segment_ends || a.weight_scales, "segment_ends: without weight_scales");
    REQUIRE(a.threads == 0 || a.threads == 64 || a.threads == 128 || a.threads == 256 || a.threads == 512,
            "threads: neither 0, 64, 128, 256 nor 512");
    REQUIRE(a.lanes == 0 || a.lanes == 4 || a.lanes == 8 || a.lanes == 16 || a.lanes == 32,
            "lanes: neither 0, 4, 8, 16 nor 32");
    REQUIRE(a.tile >= 0 && a.tile <= 2, "tile: neither 0, 1 nor 2");
    return RUN(w2a8_gemv, &a, stream);
}

vb_status vb_bit_linear(const vb_bit_linear_args *args, vb_stream *stream) {
    TAKE(vb_bit_linear_args, a, args);
    const struct {
        float *out;
        const void *weights;
        const float *scales;
        int64_t n, segments;
    } matrices[] = {{a.out, a.weights, a.weight_scales, a.n, a.segments},
                    {a.out2, a.weights2, a.weight_scales2, a.n2, a.segments2},
                    {a.out3, a.weights3, a.weight_scales3, a.n3, a.segments3}};
    int64_t size, inner, rows, results = 0;
    REQUIRE_SIZES(&inner, a.m, a.k);
    REQUIRE(a.k % 4 == 0, "k: no multiple of 4");
    REQUIRE(a.k <= VB_INT2_MOST_K, "k: more than 2^22, whose sums could pass int32");
    ROWS_OF(a.layout, a.k, a.row_bytes);
    for (int j = 0; j < 3; j++) {
        REQUIRE_SIZES(&size, a.m, matrices[j].n);
        REQUIRE_SIZES(&rows, matrices[j].n, a.k);
        if (size == 0) continue;
        results += size > 0;
        REQUIRE(matrices[j].out && matrices[j].scales && (a.k == 0 || matrices[j].weights),
                "out, weights, weight_scales: null");
        REQUIRE(matrices[j].segments > 0 && matrices[j].segments <= matrices[j].n,
                "segments: none, or more than rows");
    }
    if (results == 0) return VB_OK;
    NOT_NULL(stream);
    REQUIRE(a.scales && (a.k == 0 || (a.codes && a.in)), "codes, scales, in: null");
    REQUIRE(!a.up || a.activation == VB_SILU || a.activation == VB_RELU_SQUARED,
            "activation: neither VB_SILU nor VB_RELU_SQUARED");
    RUN_OR_COMPOSE(bit_linear, &a, stream);
    vb_norm_quantize_args rounding = {
        .size = sizeof rounding, .codes = a.codes, .scales = a.scales, .in = a.in, .up = a.up, .norm = a.norm,
        .rows = a.m, .cols = a.k, .activation = a.activation, .eps = a.eps, .normed = a.normed};
    vb_status status = vb_norm_quantize(&rounding, stream);
    for (int j = 0; j < 3 && status == VB_OK; j++) {
        if (matrices[j].n == 0) continue;
        vb_w2a8_gemv_args product = {
            .size = sizeof product, .out = matrices[j].out, .weights = matrices[j].weights, .activations = a.codes,
            .activation_scales = a.scales, .weight_scales = matrices[j].scales, .add = j == 0 ? a.add : NULL,
            .m = a.m, .n = matrices[j].n, .k = a.k, .segments = matrices[j].segments, .row_bytes = a.row_bytes,
            .layout = a.layout, .out_type = VB_F32, .settled = a.settled};
        status = vb_w2a8_gemv(&product, stream);
    }
    return status;
}

vb_status vb_tmac_lut(float *lut, const float *activations, int64_t k, int64_t n, vb_stream *stream) {
    int64_t size;
    REQUIRE(k >= 0 && k <= INT64_MAX - 3, "k: negative, or too large");
    REQUIRE_SIZES(&size, n, (k + 3) / 4, 256);
    if (size == 0) return VB_OK;
    NOT_NULL(lut); NOT_NULL(activations); NOT_NULL(stream);
    return RUN(tmac_lut, lut, activations, k, n, stream);
}

vb_status vb_tmac_matmul(const vb_tmac_matmul_args *args, vb_stream *stream) {
    TAKE(vb_tmac_matmul_args, a, args);
    int64_t size, inner, weights, table, scales;
    REQUIRE_SIZES(&size, a.m, a.n);
    REQUIRE_SIZES(&inner, a.k, a.n);
    REQUIRE_SIZES(&weights, a.m, a.k);
    REQUIRE(a.k <= INT64_MAX - 3, "k: too large");
    REQUIRE(!a.lut || ELEMENTS(&table, a.n, (a.k + 3) / 4, 256), "k, n: their table is too large");
    REQUIRE(a.groups >= 1, "groups: none");
    REQUIRE(a.groups == 1 || (a.k % 4 == 0 && a.k / 4 % a.groups == 0),
            "groups: not as many equal groups of a multiple of 4 elements in k");
    REQUIRE_SIZES(&scales, a.m, a.groups);
    if (size == 0) return VB_OK;
    NOT_NULL(stream);
    REQUIRE(a.out, "out: null");
    REQUIRE(a.k == 0 || (a.weights && (a.activations || a.lut)), "weights, or activations and lut: null");
    REQUIRE(!a.lut || !a.normed, "normed: with lut, whose activations are gone");
    return RUN(tmac_matmul, &a, stream);
}
