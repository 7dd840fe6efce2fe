/* choose_test.h: the test of rows/choose.h, a part of cuda/chooser_test.c. */
#include "chooser_test.h"
#include "rows/choose.h"

MAP_FAMILY("Elements and rows (`rows/choose.h`)", rows, ROWS)

static void check_rows(rows_plan plan, vb_dtype type, int64_t rows, int64_t cols, int aligned, const vb_gpu *gpu) {
#define CHECK_IT(condition)                                                                                            \
    CHECK(condition, "%s on %d: %s %ld x %ld, %d a thread, %d threads, cluster %d, %d lanes",                          \
          rows_kernel_info(plan.kernel).name, gpu->capability, vb_dtype_string(type), (long)rows, (long)cols,          \
          plan.per_thread, plan.threads, plan.cluster, plan.lanes)
    const int bytes = type == VB_F32 ? 4 : 2, width = plan.width,
              vectors = aligned && (width == rows_wide(type) || width * bytes == 8) && cols % width == 0;
    CHECK_IT(plan.kernel != ROWS_NONE);
    CHECK_IT(plan.threads % 32 == 0 && plan.threads >= 32 && plan.threads <= 1024);
    switch (plan.kernel) {
    case ROWS_NARROW:
        CHECK_IT(plan.lanes <= 32 && (plan.lanes & (plan.lanes - 1)) == 0);
        CHECK_IT(vectors && plan.lanes * plan.per_thread * width >= cols);
        break;
    case ROWS_NARROW_WORDS: /* the worst place of a row's start */
        CHECK_IT(plan.lanes <= 32 && (plan.lanes & (plan.lanes - 1)) == 0);
        CHECK_IT(plan.lanes * plan.per_thread * (4 / bytes) >= cols + 4 / bytes - 1);
        break;
    case ROWS_STAGED:
        CHECK_IT(plan.lanes > 32 ? plan.lanes == plan.threads && plan.rows == 1 : (plan.lanes & (plan.lanes - 1)) == 0);
        CHECK_IT(vb_ceil_div(rows, plan.rows) <= INT32_MAX);
        CHECK_IT(rows_staged_bytes(plan.rows, cols, bytes) < gpu->shared_bytes);
        break;
    case ROWS_AHEAD: {
        const int64_t all = (int64_t)plan.cluster * plan.threads * plan.per_thread;
        CHECK_IT(bytes == 2 && aligned && gpu->capability >= 80 && cols % 8 != 0);
        CHECK_IT(8 * all >= cols + 7 && 8 * (all - plan.cluster * plan.threads) <= cols);
        CHECK_IT(plan.cluster * plan.threads <= 32 * ROWS_AHEAD_WARPS && (plan.cluster == 1 || gpu->capability >= 90));
        CHECK_IT(cols * plan.chunks % 8 == 0 && plan.chunks > 0 && plan.chunks <= rows); /* rows begin alike */
        break;
    }
    case ROWS_REGISTERS:
        CHECK_IT(vectors && (plan.cluster == 1 || gpu->capability >= 90) && plan.cluster <= 16);
        CHECK_IT((int64_t)plan.cluster * plan.threads * plan.per_thread * width >= cols);
        break;
    case ROWS_CHUNKED: CHECK_IT(plan.chunks > 1 && rows * plan.chunks <= INT32_MAX); break;
    default: CHECK_IT(plan.kernel == ROWS_LOOPED && rows <= INT32_MAX);
    }
#undef CHECK_IT
}

static void test_rows(void) {
    static const vb_dtype types[] = {VB_F32, VB_F16, VB_BF16};
    CHECK(choose_top_k(9, 1) == ROWS_ARGMAX && choose_top_k(33, 2) == ROWS_TOP_K &&
              choose_top_k(4000, 1024) == ROWS_TOP_K && choose_top_k(4000, 1025) == ROWS_NONE &&
              choose_top_k(32, 8) == ROWS_TOP_K_NARROW,
          "the greatest alone, of short rows, and up to 1024");
    for (int i = 0; i < 4000; i++) {
        const vb_dtype type = types[any_of(3)];
        const int aligned = any_of(4) != 0;
        const int64_t rows = any_size(24), cols = any_of(2) ? 8 * any_size(16) : any_size(20);
        for (int g = 0; g < gpu_count; g++) {
            check_rows(choose_softmax(type, rows, cols, aligned, &gpus[g]), type, rows, cols, aligned, &gpus[g]);
            check_rows(choose_rows(type, rows, cols, aligned, 512, ROWS_NORM_OF_SUM, rows_norm_width(type, cols),
                                   &gpus[g]),
                       type, rows, cols, aligned, &gpus[g]);
            const int mean = any_of(2);
            check_rows(choose_norm(type, rows, cols, aligned, mean ? ROWS_MOST_THREADS : 512, mean, &gpus[g]), type,
                       rows, cols, aligned, &gpus[g]);
        }
        vb_rope_args r = {.out = ALIGNED,
                          .in = ALIGNED,
                          .cos = ALIGNED,
                          .sin = ALIGNED,
                          .batch = any_size(4),
                          .heads = any_size(6),
                          .seq = any_size(14),
                          .dim = any_size(8),
                          .type = type,
                          .mode = (vb_rope_mode)any_of(2)};
        r.half = any_of((int)r.dim / 2 + 1);
        const rows_kernel rope = choose_rope(&r);
        CHECK(rope == ROWS_ROPE_ELEMENTS || (rope == ROWS_ROPE_VECTORS && r.half % rope_pairs(&r) == 0 &&
                                             (r.dim - 2 * r.half) % rows_wide(type) == 0),
              "rope of %ld, %ld of them rotated", (long)r.dim, (long)r.half);
        const vb_kv_write_args kv = {.k = ALIGNED,
                                     .v = ALIGNED,
                                     .k_in = ALIGNED,
                                     .v_in = ALIGNED,
                                     .batch = any_size(6),
                                     .seq = any_size(13),
                                     .kv_heads = any_size(5),
                                     .dim = any_size(8),
                                     .capacity = 1,
                                     .type = VB_F16,
                                     .value_dim = any_size(8)};
        const rows_kernel write = choose_kv_write(&kv);
        CHECK(write == ROWS_KV_WRITE_ELEMENTS ||
                  (write == ROWS_KV_WRITE_VECTORS && kv.dim % 4 == 0 && kv.value_dim % 4 == 0),
              "kv_write of %ld", (long)kv.dim);
        vb_rope_kv_write_args both = {.q = (float *)ALIGNED, .q_in = (const float *)ALIGNED, .k = ALIGNED, .v = ALIGNED,
                                      .k_new = (float *)ALIGNED, .v_new = (const float *)ALIGNED,
                                      .cos = (const float *)ALIGNED, .sin = (const float *)ALIGNED,
                                      .batch = any_size(6), .seq = any_size(10), .heads = any_size(5),
                                      .kv_heads = any_size(4), .dim = any_size(8), .half = any_size(7),
                                      .kv_type = any_of(4) ? VB_F32 : VB_Q8_0};
        if (any_of(2)) both.dim = 2 * both.half;
        if (any_of(4) == 0) both.q_norm = both.k_norm = (const float *)ALIGNED;
        if (any_of(8) == 0) both.v_new = both.v_new + 1;
        const rows_kernel placed = choose_rope_kv_write(&both);
        CHECK(placed == ROWS_NONE || (2 * both.half == both.dim && both.kv_type != VB_Q8_0),
              "rope_kv_write of %ld of %ld", (long)both.half, (long)both.dim);
        CHECK(placed != ROWS_ROPE_KV_WRITE_VECTORS || (both.half % 4 == 0 && vb_aligned16(both.v_new)),
              "rope_kv_write of %ld by vectors", (long)both.half);
        CHECK(placed == ROWS_NONE || !both.q_norm ||
                  (placed == ROWS_ROPE_KV_WRITE_VECTORS && 32 % (both.half / 4) == 0),
              "rope_kv_write of %ld with norms", (long)both.half);
    }
    const vb_gpu *const hopper = &gpus[7];
    CHECK(choose_softmax(VB_F32, 1000000, 8, 1, hopper).kernel == ROWS_NARROW, "softmax of 8");
    CHECK(choose_softmax(VB_F32, 100000, 33, 1, hopper).kernel == ROWS_NARROW_WORDS, "softmax of 33");
    CHECK(choose_softmax(VB_F32, 4488, 183, 1, hopper).kernel == ROWS_NARROW_WORDS, "softmax of 183");
    CHECK(choose_softmax(VB_F32, 4120, 961, 1, hopper).kernel == ROWS_NARROW_WORDS, "softmax of 961");
    CHECK(choose_softmax(VB_F32, 18197, 130, 1, hopper).per_thread == 8, "softmax of 130");
    CHECK(choose_softmax(VB_BF16, 52192, 60, 1, hopper).kernel == ROWS_STAGED, "softmax of many short rows");
    CHECK(choose_softmax(VB_F32, 484, 1273, 1, hopper).kernel == ROWS_LOOPED, "softmax of a few odd rows");
    CHECK(choose_softmax(VB_F32, 1548, 1413, 1, hopper).threads == 64, "softmax of more of them");
    CHECK(choose_softmax(VB_BF16, 12001, 1501, 1, hopper).kernel == ROWS_STAGED, "softmax of 1501");
    CHECK(choose_norm(VB_F32, 3274, 28585, 1, 512, 0, hopper).kernel == ROWS_LOOPED, "norms of 28585");
    CHECK(choose_norm(VB_F32, 1411, 13211, 1, 512, 0, hopper).kernel == ROWS_STAGED, "norms of 13211");
    CHECK(choose_softmax(VB_F32, 43296, 13, 1, hopper).lanes == 2, "softmax of 13");
    CHECK(choose_softmax(VB_F16, 100, 49964, 1, hopper).kernel == ROWS_LOOPED, "softmax of long odd rows");
    CHECK(choose_softmax(VB_BF16, 2744, 38936, 1, hopper).kernel == ROWS_STAGED, "softmax of many long rows");
    CHECK(choose_norm(VB_BF16, 2240, 38296, 1, 1024, 1, hopper).kernel == ROWS_LOOPED, "norms of many long rows");
    CHECK(choose_norm(VB_F32, 3975, 25328, 1, 1024, 1, hopper).cluster == 4, "norms of many long rows of F32");
    CHECK(choose_softmax(VB_F16, 16, 49964, 1, hopper).kernel == ROWS_CHUNKED, "softmax of a few of them");
    CHECK(choose_softmax(VB_F32, 65536, 257, 1, hopper).kernel == ROWS_STAGED, "softmax of 257");
    CHECK(choose_softmax(VB_F32, 4096, 4096, 1, hopper).kernel == ROWS_REGISTERS, "softmax of 4096");
    CHECK(choose_softmax(VB_F32, 1, 151936, 1, hopper).cluster == 16, "softmax of a vocabulary");
    CHECK(choose_norm(VB_BF16, 30000, 3001, 1, 512, 0, hopper).kernel == ROWS_AHEAD, "norm of odd rows");
    CHECK(choose_norm(VB_BF16, 4120, 2476, 1, 512, 0, hopper).kernel == ROWS_REGISTERS, "norm of vectors of 8 bytes");
    CHECK(choose_softmax(VB_BF16, 4120, 2476, 1, hopper).kernel == ROWS_STAGED, "softmax has no vectors of 8 bytes");
    CHECK(choose_rows(VB_F32, 4096, 4097, 1, 512, ROWS_NORM_OF_SUM, 4, hopper).kernel == ROWS_LOOPED,
          "norm of odd rows with an addition");
    CHECK(choose_rows(VB_F32, 1, 151936, 1, 512, ROWS_SOFTMAX, 4, &gpus[4]).kernel == ROWS_CHUNKED,
          "norm of a long row before Hopper");
}
