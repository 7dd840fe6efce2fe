/* choose_test.h: the test of moe/choose.h, a part of cuda/chooser_test.c. */
#include "chooser_test.h"
#include "moe/choose.h"

MAP_FAMILY("Mixtures of experts (`moe/choose.h`)", moe, MOE)

static void test_moe(void) {
    const int64_t tokens[] = {1, 2, 16, 512, 8192}, experts[] = {1, 8, 128, 512, 8192};
    const vb_dtype types[] = {VB_F32, VB_F16, VB_BF16, VB_Q4_K, VB_MXFP4};
    for (int t = 0; t < 5; t++)
        for (int e = 0; e < 5; e++)
            for (int w = 0; w < 5; w++)
                for (int c = 0; c < gpu_count; c++) {
                    const vb_gpu gpu = gpus[c];
                    vb_expert_linear_args a = {0};
                    a.w.type = types[w], a.w.rows = 768, a.w.cols = 2048;
                    a.n = tokens[t], a.k = 8, a.experts = experts[e];
                    const moe_kernel kernel = choose_expert_linear(&a, &gpu);
                    const int tiles = kernel == MOE_EXPERT_TILES;
                    CHECK(tiles || kernel == MOE_EXPERT_ROWS, "expert_linear on %d", gpu.capability);
                    CHECK(!tiles || (types[w] != VB_F32 && gpu.capability >= (types[w] == VB_BF16 ? 80 : 75)),
                          "expert_linear of %s on %d", vb_dtype_string(types[w]), gpu.capability);
                    CHECK(!tiles || (a.n * a.k >= 2 * a.experts && a.experts <= MOE_MOST_EXPERTS),
                          "%ld tokens, %ld experts: %s", (long)a.n, (long)a.experts, moe_kernel_info(kernel).name);
                }
    CHECK(choose_expert_sum(1, 4, 2048) == MOE_SUM_VECTORS && choose_expert_sum(1, 4, 127) == MOE_SUM_ELEMENTS &&
          choose_expert_sum(0, 4, 2048) == MOE_SUM_ELEMENTS, "expert_sum");
    const int64_t most = (int64_t)INT32_MAX; /* blocks of a grid's x */
    CHECK(choose_expert_sum(1, most * MOE_SUM_THREADS, 4) == MOE_SUM_VECTORS &&
          choose_expert_sum(1, most * MOE_SUM_THREADS + 1, 4) == MOE_NONE, "expert_sum of more than a grid");
    CHECK(choose_route(most * MOE_ROUTE_ROWS) == MOE_ROUTE && choose_route(most * MOE_ROUTE_ROWS + 1) == MOE_NONE,
          "route of more rows than a grid");
    vb_expert_linear_args tall = {0};
    tall.n = tall.k = tall.experts = 1, tall.w.cols = 8, tall.w.rows = most * MOE_ROWS_BLOCK;
    CHECK(choose_expert_linear(&tall, &gpus[7]) == MOE_EXPERT_ROWS, "expert_linear of a grid's rows");
    tall.w.rows++;
    CHECK(choose_expert_linear(&tall, &gpus[7]) == MOE_NONE, "expert_linear of more rows than a grid");

    for (int t = 0; t < 5; t++)
        for (int e = 0; e < 5; e++)
            for (int c = 0; c < gpu_count; c++) {
                vb_norm_route_args a = {0};
                a.n = tokens[t], a.k = 1, a.router.rows = experts[e], a.router.cols = 2048;
                const bool few = a.n <= MOE_ROUTE_TOKENS && experts[e] <= MOE_ROUTE_EXPERTS && gpus[c].capability >= 90;
                CHECK((choose_norm_route(&a, true, &gpus[c]) == MOE_NORM_ROUTE) == few, "norm_route on %d",
                      gpus[c].capability);
                CHECK(choose_norm_route(&a, false, &gpus[c]) == MOE_COMPOSED, "norm_route of unaligned rows");
                a.router.cols = 2047;
                CHECK(choose_norm_route(&a, true, &gpus[c]) == MOE_COMPOSED, "norm_route of odd rows");
                a.router.cols = 2048, a.router.type = VB_BF16;
                CHECK(choose_norm_route(&a, true, &gpus[c]) == MOE_COMPOSED, "norm_route of a router in BF16");
            }

    const vb_dtype packed[] = {VB_Q4_K, VB_Q6_K, VB_Q8_0, VB_MXFP4};
    for (int t = 0; t < 5; t++)
        for (int e = 0; e < 4; e++)
            for (int w = 0; w < 4; w++)
                for (int g = 0; g < gpu_count; g++) {
                    const vb_gpu gpu = gpus[g];
                    vb_expert_feed_forward_args a = {0};
                    a.n = tokens[t], a.k = experts[e] < 8 ? 1 : 8, a.experts = experts[e];
                    a.gate.type = a.up.type = a.down.type = packed[w];
                    a.gate.rows = a.up.rows = a.down.cols = 768, a.gate.cols = a.up.cols = a.down.rows = 2048;
                    CHECK(choose_expert_feed_forward(&a, true, &gpu).kernel == MOE_COMPOSED, "stored experts");
                    a.gate.layout = a.up.layout = a.down.layout = VB_PACKED;
                    const moe_choice c = choose_expert_feed_forward(&a, true, &gpu);
                    CHECK(c.kernel == (a.n * a.k <= 16 || a.n * a.k < a.experts ? MOE_EXPERT_N1 : moe_many(&gpu)) ||
                              gpu.shared_bytes < 99 << 10,
                          "%ld choices of %ld experts on %d: %s", (long)(a.n * a.k), (long)a.experts, gpu.capability,
                          moe_kernel_info(c.kernel).name);
                    CHECK(c.kernel != MOE_EXPERT_N1 ||
                              (c.gate_up.shared_bytes <= gpu.shared_bytes && c.down.shared_bytes <= gpu.shared_bytes),
                          "shared memory on %d", gpu.capability);
                    CHECK(choose_expert_feed_forward(&a, false, &gpu).kernel == MOE_COMPOSED, "unaligned rows");
                    vb_expert_linear_args l = {0};
                    l.w = a.gate, l.n = a.n, l.k = a.k, l.experts = a.experts;
                    CHECK(choose_expert_linear(&l, &gpu) == moe_many(&gpu), "packed expert_linear");
                }

    /* gpt-oss-20b: a barrier for all items of a block, two blocks a multiprocessor, and one of down beside them */
    vb_expert_feed_forward_args oss = {0};
    oss.n = 1, oss.k = 4, oss.experts = 32, oss.gate.type = oss.up.type = oss.down.type = VB_MXFP4;
    oss.gate.rows = oss.gate.cols = oss.up.rows = oss.up.cols = oss.down.rows = oss.down.cols = 2880;
    oss.gate.layout = oss.up.layout = oss.down.layout = VB_PACKED;
    for (int g = 0; g < gpu_count; g++) {
        const moe_choice c = choose_expert_feed_forward(&oss, true, &gpus[g]);
        if (gpus[g].capability < 90 || c.kernel != MOE_EXPERT_N1) continue;
        CHECK(c.gate_up.chunk * c.gate_up.blocks >= 4 * 180 && c.down.chunk * c.down.blocks >= c.down.ksplit * 180,
              "chunks of %d and %d items", c.gate_up.chunk, c.down.chunk);
        if (gpus[g].capability != 90 || gpus[g].multiprocessors != 132) continue;
        CHECK(c.gate_up.blocks == 264 && c.down.blocks == 264 && c.down.ksplit == 4, "%d and %d blocks",
              c.gate_up.blocks, c.down.blocks);
        CHECK(2 * (c.gate_up.shared_bytes + 1024) + c.down.shared_bytes + 1024 <= gpus[g].shared_bytes + 1024,
              "room for a block of down");
    }
}
