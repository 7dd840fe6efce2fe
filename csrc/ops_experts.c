/* ops_experts.c: the operations of mixtures of experts. Arguments are checked here as in ops.c. */
#include "checks.h"

/* *size = the logits, 0 where there is nothing to do. */
static vb_status check_route(int64_t *size, const vb_route_args *a, vb_stream *stream) {
    REQUIRE(ELEMENTS(size, a->n, a->experts), "n, experts: negative, or their product is too large");
    REQUIRE(a->k >= 0 && a->k <= a->experts, "k: negative, or more than experts");
    REQUIRE(a->groups >= 0 && (a->groups == 0 || a->experts % a->groups == 0),
            "groups: negative, or no equal parts of experts");
    REQUIRE(a->groups == 0 || (a->groups_used > 0 && a->groups_used <= a->groups), "groups_used: not in 1..groups");
    REQUIRE(a->groups == 0 || a->k <= a->experts / a->groups * a->groups_used,
            "k: more than the experts of groups_used groups");
    if (a->k == 0) *size = 0;
    if (*size == 0) return VB_OK;
    NOT_NULL(stream);
    REQUIRE(a->gating >= VB_GATING_SOFTMAX && a->gating <= VB_GATING_SIGMOID, "gating: none of vb_gating");
    REQUIRE(a->ids && a->weights && a->logits, "ids, weights, logits: null");
    return VB_OK;
}

vb_status vb_route(const vb_route_args *args, vb_stream *stream) {
    TAKE(vb_route_args, a, args);
    int64_t size;
    const vb_status status = check_route(&size, &a, stream);
    if (status != VB_OK || size == 0) return status;
    return a.experts > 1024 ? VB_UNSUPPORTED : RUN(route, &a, stream);
}

/* Experts that are packed as one matrix begin at whole tiles of rows. */
static bool whole_experts(const vb_weight *w) { return w->layout == VB_STORED || w->rows % 16 == 0; }

vb_status vb_expert_linear(const vb_expert_linear_args *args, vb_stream *stream) {
    TAKE(vb_expert_linear_args, a, args);
    int64_t size, weights, inner;
    REQUIRE_WEIGHT(&a.w, "w");
    REQUIRE(ELEMENTS(&size, a.n, a.k, a.w.rows) && ELEMENTS(&inner, a.n, a.k, a.w.cols),
            "n, k: negative, or their product is too large");
    REQUIRE(ELEMENTS(&weights, a.experts, a.w.rows, a.w.cols), "experts: negative, or too large");
    REQUIRE(whole_experts(&a.w), "w: packed, and its rows no multiple of 16");
    if (size == 0) return VB_OK;
    NOT_NULL(stream);
    REQUIRE(a.y && a.ids, "y, ids: null");
    REQUIRE(inner == 0 || a.x, "x: null");
    REQUIRE(weights == 0 || a.w.data, "w.data: null");
    return RUN(expert_linear, &a, stream);
}

vb_status vb_expert_sum(float *out, const float *add, const float *y, const float *weights, int64_t n, int64_t k,
                        int64_t cols, vb_stream *stream) {
    int64_t size, inner;
    REQUIRE_SIZES(&size, n, cols);
    REQUIRE_SIZES(&inner, n, k, cols);
    if (size == 0) return VB_OK;
    NOT_NULL(out); NOT_NULL(stream);
    REQUIRE(k == 0 || y, "y: null");
    return RUN(expert_sum, out, add, y, weights, n, k, cols, stream);
}

vb_status vb_expert_feed_forward(const vb_expert_feed_forward_args *args, vb_stream *stream) {
    TAKE(vb_expert_feed_forward_args, a, args);
    int64_t size, inner, outer, weights;
    REQUIRE_WEIGHT(&a.gate, "gate");
    REQUIRE_WEIGHT(&a.up, "up");
    REQUIRE_WEIGHT(&a.down, "down");
    REQUIRE(a.gate.rows == a.up.rows && a.gate.cols == a.up.cols, "up: not of gate's shape");
    REQUIRE(a.down.rows == a.gate.cols && a.down.cols == a.gate.rows, "down: not of gate's shape transposed");
    REQUIRE(whole_experts(&a.gate) && whole_experts(&a.up) && whole_experts(&a.down),
            "gate, up, down: packed, and rows no multiple of 16");
    REQUIRE(ELEMENTS(&size, a.n, a.gate.cols) && ELEMENTS(&inner, a.n, a.k, a.gate.rows) &&
                ELEMENTS(&outer, a.n, a.k, a.gate.cols),
            "n, k: negative, or their product is too large");
    REQUIRE(ELEMENTS(&weights, a.experts, a.gate.rows, a.gate.cols), "experts: negative, or too large");
    REQUIRE(a.activation >= VB_SILU && a.activation <= VB_CLAMPED_SILU, "activation: none of vb_activation");
    REQUIRE(a.activation != VB_CLAMPED_SILU || a.limit >= 0, "limit: negative, or no number");
    if (size == 0) return VB_OK;
    NOT_NULL(stream);
    REQUIRE(a.sum && a.x, "sum, x: null");
    REQUIRE(a.k == 0 || (a.ids && a.chosen), "ids, chosen: null");
    REQUIRE(inner == 0 || (a.gated && a.product), "gated, product: null");
    REQUIRE(weights == 0 || (a.gate.data && a.up.data && a.down.data), "gate, up, down: null data");
    RUN_OR_COMPOSE(expert_feed_forward, &a, stream);
    vb_expert_linear_args by = {sizeof by, a.gated, a.x, a.gate, a.gate_bias, a.ids, a.n, a.k, a.experts, 0};
    vb_status status = vb_expert_linear(&by, stream);
    by.y = a.product, by.w = a.up, by.bias = a.up_bias;
    if (status == VB_OK) status = vb_expert_linear(&by, stream);
    if (status == VB_OK)
        status = vb_glu(a.gated, a.gated, a.product, a.activation, a.alpha, a.limit, VB_F32, inner, stream);
    by.y = a.chosen, by.x = a.gated, by.w = a.down, by.bias = a.down_bias, by.x_per_choice = 1;
    if (status == VB_OK) status = vb_expert_linear(&by, stream);
    return status == VB_OK ? vb_expert_sum(a.sum, a.add, a.chosen, a.weights, a.n, a.k, a.gate.cols, stream) : status;
}

vb_status vb_norm_route(const vb_norm_route_args *args, vb_stream *stream) {
    TAKE(vb_norm_route_args, a, args);
    const vb_route_args route = {sizeof route, a.ids, a.weights, a.logits, a.bias, a.n, a.router.rows, a.k, a.groups,
                                 a.groups_used, a.scale, a.gating, a.normalized, a.group_by_best};
    int64_t size, rows;
    REQUIRE_WEIGHT(&a.router, "router");
    REQUIRE(ELEMENTS(&rows, a.n, a.router.cols), "n: negative, or its product with router.cols is too large");
    const vb_status checked = check_route(&size, &route, stream);
    if (checked != VB_OK || a.n == 0) return checked;
    NOT_NULL(stream);
    REQUIRE(rows == 0 || (a.x && a.normed), "x, normed: null");
    REQUIRE(rows == 0 || a.router.rows == 0 || a.router.data, "router.data: null");
    RUN_OR_COMPOSE(norm_route, &a, stream);
    vb_status status = vb_rms_norm_batched(a.normed, a.x, a.norm, VB_F32, a.n, a.router.cols, a.eps, stream);
    if (status == VB_OK && size > 0)
        status = vb_linear(a.logits, a.normed, &a.router, a.router_bias, a.n, stream);
    return status == VB_OK ? vb_route(&route, stream) : status;
}
