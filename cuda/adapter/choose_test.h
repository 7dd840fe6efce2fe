/* choose_test.h: the test of adapter/choose.h, a part of cuda/chooser_test.c. */
#include "adapter/choose.h"
#include "chooser_test.h"

MAP_FAMILY("Adapters (`adapter/choose.h`)", adapter, ADAPTER)

static vb_fused_update_args update_of(vb_dtype type, int64_t m, int64_t k, int64_t n, int64_t r) {
    const vb_fused_update_args a = {.out = ALIGNED,
                                    .add = ALIGNED,
                                    .x = ALIGNED,
                                    .v = ALIGNED,
                                    .codes = ALIGNED,
                                    .u = ALIGNED,
                                    .m = m,
                                    .k = k,
                                    .n = n,
                                    .r = r,
                                    .codes_stride = r,
                                    .type = type,
                                    .weight_type = type};
    return a;
}

/* Of kernels whose clusters share rows: each block has a tile of 128 columns at least, and all are at work at once. */
static void check_column_shares(const adapter_plan *p, int64_t n, int64_t multiprocessors) {
    CHECK(p->column_blocks == 1 || (p->column_blocks * p->cluster <= vb_ceil_div(n, 128) &&
                                    p->row_blocks * p->cluster * p->column_blocks <= multiprocessors),
          "%ld shares of %ld columns", (long)p->column_blocks, (long)n);
}

static void test_adapter(void) {
    const vb_dtype types[] = {VB_F32, VB_F16, VB_BF16};
    for (int i = 0; i < 20000; i++) {
        const vb_gpu gpu = gpus[any_of(gpu_count)];
        vb_fused_update_args a = update_of(types[any_of(3)], any_size(20), any_size(14), any_size(14), 1 + any_of(256));
        if (a.type == VB_F32 && any_of(2)) a.weight_type = VB_F16;
        if (any_of(2))
            a.k = vb_ceil_div(a.k, 8) * 8, a.n = vb_ceil_div(a.n, 8) * 8, a.r = vb_ceil_div(a.r, 2) * 2,
            a.codes_stride = a.r;
        if (any_of(4) == 0) a.r = a.codes_stride = 8 * (1 + any_of(2));
        a.v_transposed = any_of(2), a.u_transposed = any_of(2);
        const adapter_plan p = choose_fused_update(&a, &gpu);
        if (p.kernel == ADAPTER_TILED) {
            const int rows = p.row_tiles, ranks = p.rank_tiles;
            CHECK(gpu.capability >= 80 && a.type != VB_F32 && a.r % 8 == 0 && !a.u_transposed && 8 * ranks >= a.r,
                  "%ld ranks", (long)a.r);
            CHECK(p.row_blocks * 16 * rows >= a.m && p.column_blocks >= 1 && p.cluster == 1, "%ld rows", (long)a.m);
            CHECK(rows == 8 || (rows == 4 && ranks == 8), "%d x %d tiles", rows, ranks);
            CHECK(adapter_tiled_bytes(16 * rows, 8 * ranks) <= gpu.shared_bytes, "%d x %d tiles", rows, ranks);
            continue;
        }
        if (p.kernel == ADAPTER_CLUSTER) {
            const int64_t ranks = 8 * p.rank_tiles, parts = vb_ceil_div(a.r, ranks), rows = 16 * p.row_tiles;
            CHECK(gpu.capability >= 90 && a.k > 0 && (ranks == 16 || ranks == 64) && p.row_tiles <= 2, "%ld ranks",
                  (long)a.r);
            CHECK(p.row_blocks * rows >= a.m && (p.row_blocks - 1) * rows < a.m, "%ld rows by %ld", (long)a.m,
                  (long)rows);
            CHECK(p.cluster == 1 || (gpu.capability >= 90 && p.cluster <= 8 && p.cluster % parts == 0),
                  "cluster of %d for %ld parts", p.cluster, (long)parts);
            CHECK(p.column_blocks >= 1 && p.column_blocks <= 65535, "%ld shares", (long)p.column_blocks);
            CHECK(!gpu.hopper || a.weight_type != VB_F32 || p.row_tiles == 1 || ranks == 16,
                  "code for Hopper has no %ld ranks by %ld rows", (long)ranks, (long)rows);
            continue;
        }
        if (p.kernel == ADAPTER_SM90) {
            const int64_t steps = vb_ceil_div(a.k, 64);
            CHECK(gpu.capability == 90 && a.type != VB_F32 && 8 * p.rank_tiles >= a.r && a.k > 0,
                  "%ld ranks", (long)a.r);
            CHECK(p.row_tiles == 8 || (p.row_tiles == 4 && p.rank_tiles == 8), "%d row tiles", p.row_tiles);
            CHECK(p.row_tiles == 4 || p.rank_tiles > 8 || (p.cluster == 1 && p.row_blocks > 1),
                  "%ld blocks in clusters of %d are no pairs", (long)p.row_blocks, p.cluster);
            CHECK(p.row_blocks * 16 * p.row_tiles >= a.m && p.cluster <= 8 &&
                      (p.cluster == 1 || steps >= 2 * p.cluster),
                  "cluster of %d for k of %ld", p.cluster, (long)a.k);
            check_column_shares(&p, a.n, gpu.multiprocessors);
            continue;
        }
        if (p.kernel == ADAPTER_F32_SM90) {
            const int64_t rows = 16 * p.row_tiles, most = p.cluster == 1 ? INT32_MAX : gpu.multiprocessors;
            CHECK(gpu.capability == 90 && a.type == VB_F32 && a.weight_type == VB_F32 && 8 * p.rank_tiles >= a.r &&
                      a.k > 0,
                  "%ld ranks", (long)a.r);
            CHECK(p.rank_tiles == 32 ? p.row_tiles == 4 : p.row_tiles == 8, "%d row tiles", p.row_tiles);
            CHECK(p.row_blocks * rows >= a.m && p.cluster <= 8 && p.row_blocks * p.cluster <= most,
                  "%ld clusters of %d", (long)p.row_blocks, p.cluster);
            check_column_shares(&p, a.n, gpu.multiprocessors);
            continue;
        }
        if (p.kernel == ADAPTER_STREAM || p.kernel == ADAPTER_SHORT) {
            const int64_t rows = 16 * p.row_tiles;
            CHECK(gpu.capability >= 80 && a.type != VB_F32 && !a.v_transposed && !a.u_transposed, "%d", gpu.capability);
            CHECK(a.k % 8 == 0 && a.n % 8 == 0 && 8 * p.rank_tiles == a.r && p.rank_tiles <= 2, "%ld ranks", (long)a.r);
            CHECK(p.row_blocks * rows >= a.m && (p.row_blocks - 1) * rows < a.m, "%ld rows by %ld", (long)a.m,
                  (long)rows);
            if (p.kernel == ADAPTER_STREAM)
                CHECK(p.row_tiles == 8 ? a.r == 16 && !a.add && gpu.shared_bytes >= ADAPTER_STREAM_ALL
                                       : (p.row_tiles == 2 || p.row_tiles == 4) &&
                                             gpu.shared_bytes >= ADAPTER_STREAM_BYTES,
                      "%d tiles", p.row_tiles);
            else CHECK(a.k <= ADAPTER_SHORT_DEPTH && p.row_tiles == 1 && a.r == 8, "k of %ld", (long)a.k);
            continue;
        }
        const int64_t rows = p.kernel == ADAPTER_ANY ? 4 : 16 * p.row_tiles * (p.kernel == ADAPTER_ROWS ? p.warps : 1);
        CHECK(p.kernel != ADAPTER_NONE, "%ld x %ld x %ld, %ld ranks", (long)a.m, (long)a.k, (long)a.n, (long)a.r);
        CHECK(p.row_blocks * rows >= a.m && (p.row_blocks - 1) * rows < a.m, "%ld rows by %ld", (long)a.m, (long)rows);
        CHECK(p.column_blocks >= 1 && p.column_blocks <= 65535 && p.row_blocks * p.cluster <= INT32_MAX,
              "grid of %ld x %ld", (long)p.row_blocks, (long)p.column_blocks);
        if (p.kernel == ADAPTER_ANY) continue;
        const int64_t width = 8 * p.rank_tiles + 8;
        CHECK(gpu.capability >= 80 && a.r % 2 == 0 && a.n % 8 == 0, "tiles on %d", gpu.capability);
        CHECK(8 * p.rank_tiles >= a.r && p.rank_tiles <= ADAPTER_MOST_TILES, "%d tiles of %ld ranks", p.rank_tiles,
              (long)a.r);
        CHECK(p.warps == adapter_warps(p.row_tiles, p.rank_tiles), "%d warps", p.warps);
        CHECK(4 * p.warps * 16 * p.row_tiles * width <= gpu.shared_bytes, "%d warps of %d x %d tiles", p.warps,
              p.row_tiles, p.rank_tiles);
        CHECK(p.cluster == 1 || (gpu.capability >= 90 && gpu.capability < 120), "clusters on %d", gpu.capability);
        CHECK(!gpu.hopper || a.type != a.weight_type || p.rank_tiles <= (a.type == VB_F32 ? 2 : 4),
              "code for Hopper has no %ld ranks", (long)a.r);
        CHECK(p.kernel == ADAPTER_SPLIT || p.cluster * p.row_tiles == 1, "rows of their own in a cluster of %d",
              p.cluster);
        CHECK(p.row_tiles == 1 || p.row_tiles * p.rank_tiles <= (a.type == VB_F32 ? 4 : 8), "%d x %d tiles",
              p.row_tiles, p.rank_tiles);
    }
    const vb_gpu h200 = {90, 132, 227 << 10, true};
    vb_fused_update_args a = update_of(VB_F16, 16384, 4096, 4096, 16);
    adapter_plan p = choose_fused_update(&a, &h200);
    CHECK(p.kernel == ADAPTER_STREAM && p.row_tiles == 4, "16384 rows: %d tiles", p.row_tiles);
    a.add = NULL;
    p = choose_fused_update(&a, &h200);
    CHECK(p.kernel == ADAPTER_STREAM && p.row_tiles == 8, "16384 rows without addends: %d tiles", p.row_tiles);
    a = update_of(VB_BF16, 4096, 768, 768, 8);
    p = choose_fused_update(&a, &h200);
    CHECK(p.kernel == ADAPTER_STREAM && p.row_tiles == 2, "4096 rows: %d tiles", p.row_tiles);
    a.m = 128;
    p = choose_fused_update(&a, &h200);
    CHECK(p.kernel == ADAPTER_SHORT && p.column_blocks == 2, "128 rows: %s", adapter_kernel_info(p.kernel).name);
    a = update_of(VB_F16, 16384, 4096, 4096, 16);
    a.m = 1;
    p = choose_fused_update(&a, &h200);
    CHECK(p.kernel == ADAPTER_SPLIT && p.row_tiles == 1 && p.cluster == 8, "1 row: %d tiles, cluster of %d",
          p.row_tiles, p.cluster);
    a.m = 16384, a.r = 256, a.codes_stride = 256;
    p = choose_fused_update(&a, &h200);
    CHECK(p.kernel == ADAPTER_SM90 && p.rank_tiles == 32 && p.cluster == 1, "256 ranks: %s",
          adapter_kernel_info(p.kernel).name);
    a.m = 4096, a.r = 64, a.codes_stride = 64;
    p = choose_fused_update(&a, &h200);
    CHECK(p.kernel == ADAPTER_SM90 && p.row_tiles == 4 && p.row_blocks * p.cluster == 128, "64 ranks: %ld blocks",
          (long)(p.row_blocks * p.cluster));
    a.m = 16384, a.r = 256, a.codes_stride = 256;
    a.type = a.weight_type = VB_F32;
    p = choose_fused_update(&a, &h200);
    CHECK(p.kernel == ADAPTER_F32_SM90 && p.row_tiles == 4, "256 ranks of F32: %s", adapter_kernel_info(p.kernel).name);
    a = update_of(VB_F32, 5600, 3072, 4416, 8);
    p = choose_fused_update(&a, &h200);
    CHECK(p.kernel == ADAPTER_F32_SM90, "8 ranks of F32: %s", adapter_kernel_info(p.kernel).name);
    a = update_of(VB_F16, 16384, 4095, 4095, 64);
    p = choose_fused_update(&a, &h200);
    CHECK(p.kernel == ADAPTER_SM90, "odd rows: %s", adapter_kernel_info(p.kernel).name);
    a.m = 10;
    p = choose_fused_update(&a, &h200);
    CHECK(p.kernel == ADAPTER_SM90 && p.cluster == 8, "10 odd rows of a long k: cluster of %d", p.cluster);
    a = update_of(VB_F16, 200, 4400, 15680, 204);
    p = adapter_sm90_plan(&a, &h200);
    CHECK(p.cluster == 8 && p.row_blocks == 2 && p.column_blocks == 7, "200 rows of many columns: %ld shares",
          (long)p.column_blocks);
    a = update_of(VB_F16, 10, 1000, 4095, 64);
    p = choose_fused_update(&a, &h200);
    CHECK(p.kernel == ADAPTER_SM90 && p.cluster == 1 && p.column_blocks > 1, "a short k of 10 rows: cluster of %d",
          p.cluster);
    a.r = 16;
    p = choose_fused_update(&a, &h200);
    CHECK(p.kernel == ADAPTER_CLUSTER && p.cluster == 4 && p.column_blocks > 1, "10 odd rows: cluster of %d",
          p.cluster);
    a = update_of(VB_F16, 1200, 8640, 384, 3);
    p = choose_fused_update(&a, &h200);
    CHECK(p.kernel == ADAPTER_SM90 && p.cluster > 1, "3 ranks of a long k: %s", adapter_kernel_info(p.kernel).name);
}
