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
            vb_w2a8_gemv_args a = w2a8_of(any_size(12), any_size(16), 4 * any_size(18));
            if (any_of(2)) a.k = vb_ceil_div(a.k, 16) * 16, a.row_bytes = vb_ceil_div(a.k, 64) * 16;
            if (any_of(3) == 0) a.layout = VB_INT2_ROWS, a.row_bytes = a.k / 4;
            if (any_of(4) == 0) a.activations = (const char *)ALIGNED + 1;
            a.persistent = any_of(4) == 0, a.tile = any_of(3), a.without_dp4a = any_of(4) == 0;
            const ternary_choice c = choose_w2a8_gemv(&a, gpu);
            const char *name = ternary_kernel_info(c.kernel).name;
            CHECK(c.kernel != TERNARY_NONE, "%ld %ld %ld", (long)a.m, (long)a.n, (long)a.k);
            if (c.kernel == TERNARY_TILES) {
                CHECK(gpu->capability >= 80 && a.m <= 8 && a.k <= TERNARY_TILE_DEPTH, "%s on %d", name,
                      gpu->capability);
                CHECK(c.threads >= 64 && c.threads <= 32 * TERNARY_TILE_WARPS && c.tile <= (a.m == 1 ? 2 : 1),
                      "%d threads, %d tiles", c.threads, c.tile);
                CHECK(c.blocks * 16 * c.tile >= a.n, "%ld blocks of %d tiles", (long)c.blocks, c.tile);
                CHECK(a.k / 4 / (c.threads / 32) < INT32_MAX / (192 * 128), "%ld products by a warp", (long)a.k);
            }
            if (c.kernel == TERNARY_WGMMA) {
                const ternary_wgmma *w = &c.wgmma;
                CHECK(gpu->hopper && gpu->capability >= 90 && a.m > 16 && a.k > 0, "%s of %ld rows", name, (long)a.m);
                CHECK(w->blocks == vb_ceil_div(a.m, w->tokens) * vb_ceil_div(a.n, 64 * w->groups) * w->split,
                      "%ld blocks", (long)w->blocks);
                CHECK(w->split <= vb_ceil_div(a.k, TERNARY_WGMMA_DEPTH), "%d blocks share %ld", w->split, (long)a.k);
                CHECK(w->x_stages >= 3 && w->x_stages <= TERNARY_WGMMA_STAGES, "%d stages", w->x_stages);
                CHECK(w->each * (w->shared_bytes + 2048) <= gpu->shared_bytes + 1024, "%ld bytes",
                      (long)w->shared_bytes);
            }
            CHECK(c.kernel != TERNARY_MMA_64 || !gpu->hopper, "%s on Hopper", name);
            if (c.kernel == TERNARY_BITS) CHECK(gpu->hopper && a.m == 1, "%s of %ld rows", name, (long)a.m);
            vb_bit_linear_args b = {0};
            b.m = 1, b.n = a.n, b.n2 = any_size(12), b.n3 = any_size(12), b.k = a.k, b.layout = a.layout;
            b.row_bytes = a.row_bytes, b.in = b.norm = (const float *)ALIGNED, b.weights = ALIGNED;
            const ternary_bits rounded = choose_bit_linear(&b, gpu);
            CHECK(rounded.blocks == 0 || gpu->hopper, "bit_linear on %d", gpu->capability);
            CHECK(rounded.blocks == 0 || rounded.tiles * (int64_t)16 >= b.n + b.n2 + b.n3, "%d tiles", rounded.tiles);
            const ternary_bits cuts[2] = {c.bits, rounded};
            for (int j = 0; j < 2; j++) {
                const ternary_bits *t = &cuts[j];
                if (t->blocks == 0) continue;
                CHECK(a.k % 16 == 0 && t->threads <= TERNARY_BITS_THREADS &&
                          t->threads / 32 * t->units * 64 >= a.row_bytes, "%d threads", t->threads);
                CHECK((int64_t)t->most * t->blocks >= t->tiles && t->blocks <= t->tiles, "%d tiles, %ld blocks",
                      t->tiles, (long)t->blocks);
                CHECK(j > 0 || (int64_t)t->tiles * 16 >= a.n, "%d tiles", t->tiles);
                CHECK(t->shared_bytes <= gpu->shared_bytes, "%ld bytes", (long)t->shared_bytes);
                CHECK(t->stages == TERNARY_BITS_STAGES || t->stages == TERNARY_BITS_STAGES_FEW ||
                          ((t->stages == TERNARY_BITS_STAGES_SHORT_ROWS ||
                            (j == 0 && t->stages == TERNARY_BITS_STAGES_PAIRS)) &&
                           t->threads <= TERNARY_BITS_THREADS_SHORT_ROWS),
                      "%d stages, %d threads", t->stages, t->threads);
                CHECK(t->ahead >= 1 && t->ahead <= t->stages, "%d of %d tiles ahead", t->ahead, t->stages);
                CHECK(t->units == 2, "%d units", t->units);
                CHECK(!t->beside || (j == 0 && t->threads <= TERNARY_BITS_THREADS_BESIDE &&
                                     t->stages == TERNARY_BITS_STAGES),
                      "%d threads, %d stages beside the next kernel", t->threads, t->stages);
            }
            const bool mma = c.kernel >= TERNARY_MMA_16 && c.kernel <= TERNARY_MMA_64;
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
    ternary_choice c = choose_w2a8_gemv(&a, &gpus[7]);
    CHECK(c.kernel == TERNARY_BITS, "20480 x 3200 on an H200");
    const struct {
        int64_t n, k;
        int stages, ahead;
    } pairs[] = {{9450, 2880, TERNARY_BITS_STAGES, 2},
                 {16384, 4096, TERNARY_BITS_STAGES_PAIRS, 3},
                 {17533, 3840, TERNARY_BITS_STAGES_PAIRS, 3},
                 {20480, 3200, TERNARY_BITS_STAGES_PAIRS, 3},
                 {27962, 2432, TERNARY_BITS_STAGES, 3}};
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        vb_w2a8_gemv_args of_pairs = w2a8_of(1, pairs[i].n, pairs[i].k);
        c = choose_w2a8_gemv(&of_pairs, &gpus[7]);
        CHECK(c.blocks == 2 * gpus[7].multiprocessors && c.bits.stages == pairs[i].stages &&
                  c.bits.ahead == pairs[i].ahead && ternary_bits_fit(c.bits.shared_bytes, &gpus[7]) >= 2,
              "%ld x %ld: %d stages, %d ahead", (long)pairs[i].n, (long)pairs[i].k, c.bits.stages, c.bits.ahead);
    }
    vb_w2a8_gemv_args fewer = w2a8_of(1, 13824, 2560);
    c = choose_w2a8_gemv(&fewer, &gpus[7]);
    CHECK(c.blocks == 2 * gpus[7].multiprocessors && c.bits.ahead == c.bits.most / 2, "%d of %d tiles ahead",
          c.bits.ahead, c.bits.most);
    const struct {
        int64_t n, k;
        int beside;
    } long_rows[] = {{2653, 8704, 1}, {2560, 9216, 1}, {2653, 8192, 0},
                     {2653, 9280, 0}, {1024, 8704, 0}, {4225, 8704, 0}};
    for (size_t i = 0; i < sizeof long_rows / sizeof *long_rows; i++) {
        fewer = w2a8_of(1, long_rows[i].n, long_rows[i].k);
        CHECK(choose_w2a8_gemv(&fewer, &gpus[7]).bits.beside == long_rows[i].beside, "%ld x %ld",
              (long)long_rows[i].n, (long)long_rows[i].k);
    }
    a.lanes = 4;
    CHECK(choose_w2a8_gemv(&a, &gpus[7]).kernel == TERNARY_BITS, "20480 x 3200 with 4 lanes");
    a.threads = 128;
    CHECK(choose_w2a8_gemv(&a, &gpus[7]).kernel == TERNARY_TILES, "20480 x 3200 with 4 lanes and 128 threads");
    a.threads = 0;
    a.lanes = 8;
    CHECK(choose_w2a8_gemv(&a, &gpus[7]).kernel == TERNARY_GEMV, "20480 x 3200 with 8 lanes");
    a = w2a8_of(1, 8192, 16384);
    CHECK(choose_w2a8_gemv(&a, &gpus[7]).kernel == TERNARY_BITS, "8192 x 16384");
    a = w2a8_of(1, 8192, 16448);
    c = choose_w2a8_gemv(&a, &gpus[7]);
    CHECK(c.kernel == TERNARY_GEMV && c.lanes == 32 && c.tile == 2 && c.blocks == 1024, "8192 x 16448");
    CHECK(choose_w2a8_gemv(&a, &gpus[4]).kernel == TERNARY_TILES, "8192 x 16448 before Hopper");
    a.n = 2048;
    c = choose_w2a8_gemv(&a, &gpus[7]);
    CHECK(c.kernel == TERNARY_GEMV && c.lanes == 32 && c.tile == 1 && c.blocks == 256, "2048 x 16448");
    const struct {
        int64_t m;
        ternary_kernel before, on_hopper;
    } kinds[] = {{8, TERNARY_TILES, TERNARY_TILES},    {9, TERNARY_MMA_16, TERNARY_MMA_16},
                 {16, TERNARY_MMA_16, TERNARY_MMA_16}, {17, TERNARY_MMA_32, TERNARY_MMA_32},
                 {32, TERNARY_MMA_32, TERNARY_MMA_32}, {33, TERNARY_MMA_64, TERNARY_WGMMA},
                 {2048, TERNARY_MMA_64, TERNARY_WGMMA}};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        vb_w2a8_gemv_args several = w2a8_of(kinds[i].m, 2560, 2560);
        CHECK(choose_w2a8_gemv(&several, &gpus[4]).kernel == kinds[i].before, "%ld rows", (long)kinds[i].m);
        CHECK(choose_w2a8_gemv(&several, &gpus[7]).kernel == kinds[i].on_hopper, "%ld rows", (long)kinds[i].m);
    }
    const struct {
        int64_t m, n, k;
        int tokens, groups, split;
    } cuts[] = {{512, 20480, 3200, 128, 4, 1}, {64, 2560, 2560, 64, 2, 5}, {17, 6912, 2560, 64, 2, 4}};
    for (size_t i = 0; i < sizeof cuts / sizeof *cuts; i++) {
        vb_w2a8_gemv_args many = w2a8_of(cuts[i].m, cuts[i].n, cuts[i].k);
        const ternary_wgmma w = choose_w2a8_gemv(&many, &gpus[7]).wgmma;
        CHECK(w.tokens == cuts[i].tokens && w.groups == cuts[i].groups && w.split == cuts[i].split,
              "%ld x %ld x %ld: %d rows, %d warpgroups, %d blocks", (long)cuts[i].m, (long)cuts[i].n,
              (long)cuts[i].k, w.tokens, w.groups, w.split);
    }
    vb_bit_linear_args b = {0};
    b.m = 1, b.n = 2560, b.n2 = b.n3 = 640, b.k = 2560, b.layout = VB_INT2_INTERLEAVED, b.row_bytes = 640;
    b.in = (const float *)ALIGNED, b.weights = b.weights2 = b.weights3 = ALIGNED;
    CHECK(choose_bit_linear(&b, &gpus[7]).tiles == 240, "3840 x 2560 in three matrices on an H200");
    b.m = 2;
    CHECK(choose_bit_linear(&b, &gpus[7]).blocks == 0, "two rows are composed");
    vb_tmac_matmul_args t = {0};
    t.m = 40, t.n = 1, t.k = 512, t.groups = 4, t.weights = ALIGNED;
    const vb_gpu *const hopper = &gpus[7], *const ampere = &gpus[4];
    CHECK(tmac_slices(&t) == 4 && choose_tmac_matmul(&t, hopper).kernel == TERNARY_TMAC, "a slice a group");
    t.groups = 2;
    CHECK(choose_tmac_matmul(&t, hopper).kernel == TERNARY_TMAC_COLUMNS, "a unit a group");
    CHECK(choose_tmac_matmul(&t, ampere).kernel == TERNARY_TMAC_TILES, "before Hopper");
    CHECK(choose_tmac_matmul(&t, &gpus[0]).kernel == TERNARY_TMAC, "no tensor cores");
    t.lut = (const float *)ALIGNED;
    CHECK(choose_tmac_matmul(&t, hopper).kernel == TERNARY_TMAC_TABLE, "a table that is given");
    t.n = 512;
    CHECK(choose_tmac_matmul(&t, hopper).kernel == TERNARY_TMAC_TABLE, "a table of many columns that is given");
    t.lut = NULL, t.groups = 1, t.n = 1;
    ternary_tmac tmac = choose_tmac_matmul(&t, hopper);
    CHECK(tmac.kernel == TERNARY_TMAC_BITS && tmac.bits.blocks > 0, "a column");
    t.k = 2560;
    tmac = choose_tmac_matmul(&t, hopper);
    CHECK(tmac.kernel == TERNARY_TMAC_BITS && tmac.bits.units == 1 &&
              tmac.bits.stages == TERNARY_BITS_STAGES_SHORT_ROWS,
          "short rows");
    t.k = 512 * 28;
    tmac = choose_tmac_matmul(&t, hopper);
    CHECK(tmac.kernel == TERNARY_TMAC_BITS && tmac.bits.units == 2, "28 warps");
    t.k = 512 * 29;
    CHECK(choose_tmac_matmul(&t, hopper).kernel == TERNARY_TMAC_COLUMNS, "29 warps");
    t.k = 500;
    CHECK(choose_tmac_matmul(&t, hopper).kernel == TERNARY_TMAC, "rows of 125 bytes");
    const struct {
        int64_t m, n, k;
        int columns, groups, split; /* 0: tmac_columns */
    } many[] = {{20480, 512, 3200, 128, 2, 1}, {2560, 512, 2560, 64, 3, 1}, {2560, 32, 2560, 32, 2, 4},
                {4800, 16, 3200, 0, 0, 0},     {300, 24, 640, 0, 0, 0},     {300, 65, 640, 32, 2, 3},
                {2560, 32, 6912, 32, 2, 4}};
    for (size_t i = 0; i < sizeof many / sizeof *many; i++) {
        t.m = many[i].m, t.n = many[i].n, t.k = many[i].k;
        tmac = choose_tmac_matmul(&t, hopper);
        const ternary_wgmma *const w = &tmac.many;
        CHECK(many[i].columns == 0 ? tmac.kernel == TERNARY_TMAC_COLUMNS
                                   : tmac.kernel == TERNARY_TMAC_WGMMA && w->tokens == many[i].columns &&
                      w->groups == many[i].groups && w->split == many[i].split,
              "%ld x %ld, %ld columns: %s of %d columns, %d warpgroups, %d blocks", (long)t.m, (long)t.k, (long)t.n,
              ternary_kernel_info(tmac.kernel).name, w->tokens, w->groups, w->split);
    }
    long of_columns = 0, of_wgmma = 0;
    for (int i = 0; i < 20000; i++) {
        t.m = any_size(16), t.n = any_size(10), t.k = 64 * any_size(9), t.groups = 1;
        tmac = choose_tmac_matmul(&t, hopper);
        const int64_t units = vb_ceil_div(t.k, TERNARY_TMAC_UNIT);
        if (tmac.kernel == TERNARY_TMAC_WGMMA) {
            const ternary_wgmma *const w = &tmac.many;
            const int64_t tiles = vb_ceil_div(t.m, 64 * w->groups) * vb_ceil_div(t.n, w->tokens);
            CHECK(w->split <= units && w->split <= w->tokens / 8, "%d blocks share %ld units of %d", w->split,
                  (long)units, w->tokens);
            CHECK(w->split > 0 ? w->blocks == tiles * w->split
                               : w->blocks <= tiles * units && w->blocks <= hopper->multiprocessors,
                  "%ld blocks, %d share k", (long)w->blocks, w->split);
            CHECK(w->blocks <= INT32_MAX && w->x_stages >= 3 && w->shared_bytes <= hopper->shared_bytes - 1024,
                  "%ld blocks, %ld bytes", (long)w->blocks, (long)w->shared_bytes);
            of_wgmma++;
        }
        if (tmac.kernel != TERNARY_TMAC_COLUMNS) continue;
        of_columns++;
        const ternary_columns *const c = &tmac.columns;
        CHECK(c->cluster >= 1 && c->cluster <= TERNARY_COLUMNS_CLUSTER, "%d blocks a cluster", c->cluster);
        CHECK(c->cluster * (int64_t)c->parts <= units && c->cluster * (int64_t)c->units >= units,
              "%d blocks of %d parts of %d units of %ld", c->cluster, c->parts, c->units, (long)units);
        CHECK(c->fours == 1 || c->parts == 1, "%d parts of %d times four columns", c->parts, c->fours);
        CHECK(4 * c->fours * c->shares >= t.n && c->shares <= 65535, "%ld shares", (long)c->shares);
        CHECK(c->blocks * c->threads / c->parts * c->turns >= t.m && c->threads <= TERNARY_COLUMNS_THREADS,
              "%ld blocks", (long)c->blocks);
        CHECK(c->blocks * c->cluster <= INT32_MAX && c->shared_bytes <= hopper->shared_bytes - 1024, "%ld bytes",
              (long)c->shared_bytes);
    }
    CHECK(of_columns > 1000 && of_wgmma > 1000, "%ld and %ld products", of_columns, of_wgmma);
}
