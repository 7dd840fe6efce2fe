/* choose_test.h: the test of ternary/choose.h, a part of cuda/chooser_test.c. */
#include "chooser_test.h"
#include "ternary/choose.h"

MAP_FAMILY("Ternary weights (`ternary/choose.h`)", ternary, TERNARY)

static vb_w2a8_gemv_args w2a8_of(int64_t m, int64_t n, int64_t k) {
    vb_w2a8_gemv_args a = {0};
    a.m = m, a.n = n, a.k = k, a.layout = VB_INT2_INTERLEAVED, a.row_bytes = vb_ceil_div(k, 64) * 16;
    a.weights = a.activations = ALIGNED;
    return a;
}

static void test_ternary(void) {
    for (int g = 0; g < gpu_count; g++) {
        const vb_gpu *gpu = &gpus[g];
        for (int i = 0; i < 5000; i++) {
            vb_w2a8_gemv_args a = w2a8_of(any_size(8), any_size(16), 4 * any_size(18));
            if (any_of(2)) a.k = vb_ceil_div(a.k, 16) * 16, a.row_bytes = vb_ceil_div(a.k, 64) * 16;
            if (any_of(3) == 0) a.layout = VB_INT2_ROWS, a.row_bytes = a.k / 4;
            if (any_of(4) == 0) a.activations = (const char *)ALIGNED + 1;
            a.persistent = any_of(2), a.tile = any_of(3), a.without_dp4a = any_of(4) == 0;
            const ternary_choice c = choose_w2a8_gemv(&a, gpu);
            const char *name = ternary_kernel_info(c.kernel).name;
            CHECK(c.kernel != TERNARY_NONE, "%ld %ld %ld", (long)a.m, (long)a.n, (long)a.k);
            const bool mma = c.kernel == TERNARY_MMA_16 || c.kernel == TERNARY_MMA_MANY;
            CHECK(!mma || (gpu->capability >= 75 && a.m > TERNARY_FEW), "%s on %d", name, gpu->capability);
            CHECK(c.kernel == TERNARY_BYTES || (a.k % 16 == 0 && vb_aligned16(a.activations)), "%s of %ld", name,
                  (long)a.k);
            CHECK(c.kernel == TERNARY_WORDS || c.kernel == TERNARY_BYTES || a.layout == VB_INT2_INTERLEAVED,
                  "%s of rows", name);
            if (c.kernel != TERNARY_GEMV) continue;
            const int64_t rows = c.blocks * (c.threads / c.lanes) * c.tile;
            CHECK(a.persistent || rows >= a.n, "%ld rows of %ld", (long)rows, (long)a.n);
            CHECK(a.k / 4 / c.lanes < INT32_MAX / (192 * 128), "%ld products by %d lanes", (long)a.k, c.lanes);
        }
    }
    vb_w2a8_gemv_args a = w2a8_of(1, 20480, 3200);
    CHECK(choose_w2a8_gemv(&a, &gpus[7]).lanes == 8, "20480 x 3200 on an H200");
    a = w2a8_of(1, 2560, 2560);
    CHECK(choose_w2a8_gemv(&a, &gpus[7]).lanes == 32, "2560 x 2560 on an H200");
    vb_tmac_matmul_args t = {0};
    t.m = 40, t.n = 1, t.k = 512, t.groups = 4;
    CHECK(tmac_slices(&t) == 4 && choose_tmac_matmul(&t) == TERNARY_TMAC, "a slice a group");
}
