/* choose_test.h: the test of gemm/choose.h, a part of cuda/chooser_test.c. */
#include "chooser_test.h"
#include "gemm/choose.h"

MAP_FAMILY("Products of matrices (`gemm/choose.h`)", matmul, MATMUL)

static vb_matmul_args product(vb_dtype type, int64_t m, int64_t k, int64_t n) {
    const vb_matmul_args x = {.c = ALIGNED,
                              .a = ALIGNED,
                              .b = ALIGNED,
                              .m = m,
                              .k = k,
                              .n = n,
                              .batch = 1,
                              .a_stride = k,
                              .b_stride = n,
                              .c_stride = n,
                              .type = type};
    return x;
}

/* The conditions that kernels rely on. */
static void check_matmul(const vb_matmul_args *x, const vb_gpu *gpu) {
    const matmul_kernel kernel = choose_matmul(x, gpu, 1), roomless = choose_matmul(x, gpu, 0);
#define CHECK_IT(condition)                                                                                            \
    CHECK(condition, "%s on %d: %s m %ld k %ld n %ld batch %ld strides %ld %ld %ld transposed %d %d precision %d",     \
          matmul_kernel_info(kernel).name, gpu->capability, vb_dtype_string(x->type), (long)x->m, (long)x->k,          \
          (long)x->n, (long)x->batch, (long)x->a_stride, (long)x->b_stride, (long)x->c_stride, x->a_transposed,        \
          x->b_transposed, x->precision)
    const int f32 = x->type == VB_F32, hopper = gpu->capability == 90, ampere = gpu->capability >= 80;
    const int aligned = vb_aligned16(x->a) && vb_aligned16(x->b) && vb_aligned16(x->c);
    CHECK_IT(kernel != MATMUL_NONE && roomless != MATMUL_NONE);
    CHECK_IT(roomless == kernel || kernel == GEMM_3XF16_SM90 || kernel == MATMUL_3XF16_SM90 ||
             kernel == MATMUL_1XF16_SM90 || kernel == MATMUL_PADDED_SM90 || kernel == MATMUL_PADDED_M64_SM90 ||
             kernel == MATMUL_PADDED_MMA);
    switch (kernel) {
    case MATMUL_THIN: CHECK_IT(x->k <= 16); break;
    case MATMUL_SHORT: CHECK_IT(ampere && !f32 && x->k > 0 && x->k <= 64); break;
    case MATMUL_SKINNY: /* code for Hopper has no kernel of 16 bits across rows, and along k none of more than two */
        CHECK_IT(x->k > 0 && (x->m <= 8 || x->n <= 8));
        if (ampere) {
            const matmul_skinny_plan plan = matmul_skinny_plan_of(x, gpu->multiprocessors);
            CHECK_IT(plan.by_k ? x->m <= 2 || x->n <= 2 : f32 || plan.lone);
        }
        break;
    case MATMUL_3XTF32:
        CHECK_IT(ampere && f32 && x->precision != VB_PRECISION_IEEE && matmul_contiguous(x) && aligned &&
                 x->k % 4 == 0 && x->n % 4 == 0);
        CHECK_IT(gpu->shared_bytes >=
                 matmul_3xtf32_bytes(matmul_3xtf32_eights(x->m), matmul_3xtf32_abreast(x->n), x->b_transposed));
        break;
    case GEMM_M64_SM90:
        CHECK_IT(hopper && !f32 && matmul_operand_vectors(x) && x->batch <= 65535 && x->k > 0 &&
                 (x->m <= 64 || x->n <= 64));
        break;
    case GEMM_SM90:
        CHECK_IT(hopper && !f32 && matmul_operand_vectors(x) && x->batch == 1 && aligned &&
                 x->c_stride % 8 == 0 && x->n % 8 == 0 && x->k > 0);
        break;
    case GEMM_3XF16_SM90:
        CHECK_IT(hopper && f32 && x->precision == VB_PRECISION_FLOAT32 && matmul_contiguous(x) && !x->b_transposed &&
                 aligned && x->k > 0);
        break;
    case MATMUL_SM90: CHECK_IT(hopper && !f32 && matmul_operand_vectors(x) && x->k > 0); break;
    case MATMUL_3XF16_SM90: CHECK_IT(hopper && f32 && x->precision == VB_PRECISION_FLOAT32 && x->k > 0); break;
    case MATMUL_1XF16_SM90: CHECK_IT(hopper && f32 && x->precision == VB_PRECISION_TF32 && x->k > 0); break;
    case MATMUL_PADDED_SM90: CHECK_IT(hopper && !f32 && x->k > 0 && !matmul_operand_vectors(x)); break;
    case MATMUL_PADDED_M64_SM90:
        CHECK_IT(hopper && !f32 && x->k > 0 && !matmul_operand_vectors(x) && x->batch <= 65535 &&
                 (x->m <= 64 || x->n <= 64));
        break;
    case MATMUL_PADDED_MMA:
        CHECK_IT(ampere && !f32 && x->k > 0 && !matmul_operand_vectors(x) && gpu->shared_bytes >= 96 << 10);
        break;
    case MATMUL_KSPLIT: CHECK_IT(ampere && !f32); break;
    case MATMUL_MMA: CHECK_IT(ampere && !f32 && matmul_operand_vectors(x) && gpu->shared_bytes >= 96 << 10); break;
    case MATMUL_3XTF32_ANY:
        CHECK_IT(ampere && f32 && x->precision != VB_PRECISION_IEEE && gpu->shared_bytes >= 72 << 10);
        break;
    case MATMUL_TF32:
        CHECK_IT(ampere && f32 && x->precision == VB_PRECISION_TF32 && gpu->shared_bytes >= 80 << 10);
        break;
    case MATMUL_F32: CHECK_IT(ampere && f32 && gpu->shared_bytes >= 74 << 10); break;
    case MATMUL_SIMT: CHECK_IT(!ampere || f32); break; /* code for Hopper has no kernel of 16 bits */
    default: CHECK_IT(0 && "no kernel of several rows");
    }
#undef CHECK_IT
}

static void check_named_matmul(void) {
    static const struct {
        int capability;
        vb_dtype type;
        int64_t m, k, n;
        matmul_kernel kernel;
    } cases[] = {
        {90, VB_BF16, 4096, 4096, 4096, GEMM_SM90},   {90, VB_BF16, 16, 4096, 14336, GEMM_M64_SM90},
        {90, VB_BF16, 64, 4096, 4096, GEMM_SM90},     {90, VB_BF16, 64, 4096, 14336, GEMM_M64_SM90},
        {90, VB_F32, 4096, 4096, 4096, GEMM_3XF16_SM90}, {90, VB_F32, 64, 2048, 11008, MATMUL_3XTF32},
        {90, VB_F32, 36, 5822, 1936, MATMUL_3XTF32_ANY}, {90, VB_F32, 1021, 5672, 1200, GEMM_3XF16_SM90},
        {90, VB_F32, 2287, 5861, 8, MATMUL_3XTF32_ANY}, {90, VB_F32, 457, 2861, 84, MATMUL_3XTF32_ANY},
        {80, VB_F32, 4096, 4096, 4096, MATMUL_3XTF32_ANY},   {86, VB_BF16, 4096, 4096, 4096, MATMUL_MMA},
        {100, VB_F32, 64, 2048, 11008, MATMUL_3XTF32}, {120, VB_F32, 64, 2048, 11008, MATMUL_3XTF32_ANY},
        {90, VB_BF16, 4096, 4098, 4096, MATMUL_PADDED_SM90}, {90, VB_BF16, 5, 13690, 24, MATMUL_KSPLIT},
        {90, VB_BF16, 3624, 12144, 26, MATMUL_PADDED_M64_SM90},
        {86, VB_BF16, 65, 7127, 42, MATMUL_KSPLIT}, {80, VB_F32, 5000, 3, 3000, MATMUL_THIN},
        {90, VB_F16, 4576, 2992, 8, GEMM_M64_SM90}, {90, VB_F16, 7175, 2672, 32, GEMM_M64_SM90},
        {90, VB_F16, 10585, 8, 232, MATMUL_SHORT}, {86, VB_BF16, 1880, 28, 9472, MATMUL_SHORT},
        {86, VB_BF16, 208, 7160, 1, MATMUL_SKINNY},   {86, VB_BF16, 128, 2488, 1688, MATMUL_MMA},
        {75, VB_F16, 4096, 4096, 4096, MATMUL_SIMT},  {53, VB_F32, 16, 17, 16, MATMUL_SIMT},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int g = 0; g < gpu_count; g++) {
            if (gpus[g].capability != cases[i].capability) continue;
            const vb_matmul_args x = product(cases[i].type, cases[i].m, cases[i].k, cases[i].n);
            const matmul_kernel kernel = choose_matmul(&x, &gpus[g], 1);
            CHECK(kernel == cases[i].kernel, "%d: %ld x %ld x %ld: %s, want %s", cases[i].capability, (long)x.m,
                  (long)x.k, (long)x.n, matmul_kernel_info(kernel).name, matmul_kernel_info(cases[i].kernel).name);
        }
    const vb_gpu *const hopper = &gpus[7];
    CHECK(choose_matmul_m1(ALIGNED, VB_F32, 4096, 4096, hopper) == MATMUL_M1_CLUSTER, "one row on Hopper");
    CHECK(choose_matmul_m1(ALIGNED, VB_F32, 4096, 4095, hopper) == MATMUL_NONE, "one row of odd columns");
    CHECK(matmul_m1_cluster(14336, 4096, 4, hopper).ksplit == 2, "one row of a tile of which 32 clusters do not fit");
}

/* Blocks that meet fill a round at most, and few tiles of a last round are shared by them alone. */
static void check_meeting(void) {
    for (int i = 0; i < 4000; i++) {
        vb_matmul_args x = product(VB_F16, any_size(14), any_size(14), any_size(14));
        x.batch = any_of(2) ? 1 : any_size(8);
        const matmul_sm90_plan plan = matmul_sm90_plan_of(&x, 132);
        const int64_t whole = matmul_sm90_whole(&x, &plan, 132), shared = matmul_sm90_units(&x, &plan) - whole;
        CHECK(!plan.meet || (plan.parts > 1 && plan.parts <= MATMUL_SM90_MOST_MEETING && shared > 0 &&
                             shared * plan.parts * plan.pair <= 132 && whole * plan.pair % 132 == 0),
              "%ld x %ld x %ld, batch %ld: %d parts of %ld tiles", (long)x.m, (long)x.k, (long)x.n, (long)x.batch,
              plan.parts, (long)shared);
        CHECK(plan.blocks == 1 || (plan.blocks == 2 && plan.tile_n == 128 && plan.pair == 1 && plan.parts == 1 &&
                                   matmul_sm90_tiles(&x, 128) > 132),
              "%ld x %ld x %ld, batch %ld: blocks", (long)x.m, (long)x.k, (long)x.n, (long)x.batch);
        CHECK(plan.parts == 1 || x.k >= plan.parts * 4 * 64, "%d parts of k %ld", plan.parts, (long)x.k);
    }
    const vb_matmul_args x = product(VB_F16, 344, 4800, 11704);
    const matmul_sm90_plan plan = matmul_sm90_plan_of(&x, 132);
    CHECK(plan.meet && plan.tile_n == 256 && matmul_sm90_whole(&x, &plan, 132) == 132, "a last round of 6 tiles");
}

/* Cuts that gemm_sm90 has kernels for, on any number of multiprocessors. */
static void check_cuts(void) {
    for (int t = 0; t < GEMM_TILES; t++) {
        const gemm_tile_shape tile = gemm_tile_shape_of(t);
        const int by_eights = t >= TILE_128x224_PAIR; /* of B a pair copies halves, which are whole eights */
        CHECK((tile.rows == 128 || tile.rows == 64) && tile.columns % (by_eights ? 8 : 32) == 0 &&
                  tile.columns <= (gemm_tile_turns(t) ? 192 : 256) && /* two sums of 64 rows in registers */
                  (tile.blocks == 1 || tile.blocks == 2 || (tile.blocks == 4 && tile.columns % 32 == 0)),
              "tile %d", t);
    }
    const gemm_tile_shape named = gemm_tile_shape_of(TILE_128x192_PAIR), turns = gemm_tile_shape_of(TILE_128x176_TURNS),
                          last = gemm_tile_shape_of(TILE_128x144_PAIR);
    const gemm_tile_shape quad = gemm_tile_shape_of(TILE_64x128_QUAD), split = gemm_tile_shape_of(TILE_128x192_SPLIT),
                          split_quad = gemm_tile_shape_of(TILE_64x128_SPLIT_QUAD);
    CHECK(named.columns == 192 && named.blocks == 2 && last.columns == 144 && last.blocks == 2 && quad.rows == 64 &&
              turns.columns == 176 && turns.blocks == 2 && gemm_tile_turns(TILE_128x192_TURNS) &&
              gemm_tile_turns(TILE_128x144_TURNS) && !gemm_tile_turns(TILE_128x208_PAIR) &&
              !gemm_tile_turns(TILE_128x240_PAIR) &&
              quad.columns == 128 && quad.blocks == 4 && split.rows == 128 && split.columns == 192 &&
              split.blocks == 2 && split_quad.rows == 64 && split_quad.blocks == 4 &&
              gemm_tile_splits(TILE_128x192_SPLIT) && gemm_tile_splits(TILE_64x128_SPLIT_QUAD) &&
              !gemm_tile_splits(TILE_64x128_QUAD) && !gemm_tile_splits(TILE_128x240_PAIR),
          "tiles by their names");
    for (int i = 0; i < 4000; i++) {
        vb_matmul_args x = product(VB_BF16, any_size(15), any_size(15), any_size(15));
        x.a_transposed = any_of(2), x.b_transposed = any_of(2);
        const int sms = any_of(4) == 0 ? 132 : 1 + any_of(64);
        const gemm_sm90_cut cut = gemm_sm90_cut_of(&x, sms);
        const vb_matmul_args turned = gemm_sm90_turned(&x), back = gemm_sm90_turned(&turned),
                             *const y = cut.turned ? &turned : &x;
        CHECK(turned.m == x.n && turned.n == x.m && turned.a == x.b && turned.b_stride == x.a_stride &&
                  turned.a_transposed == !x.b_transposed && turned.b_transposed == !x.a_transposed &&
                  memcmp(&back, &x, sizeof x) == 0,
              "a product turned twice");
        const gemm_tile_shape tile = gemm_tile_shape_of(cut.tile);
        const int64_t blocks = (int64_t)cut.ksplit * tile.blocks, all = gemm_tile_count(tile, y->m, y->n) * blocks;
        const int splits = gemm_tile_splits(cut.tile),
                  meets = cut.tile == TILE_128x128_PAIR && cut.ksplit == 2 && !x.a_transposed && all <= sms,
                  clusters = blocks <= GEMM_SM90_MOST_KSPLIT && all <= (splits ? 1 : 2) * sms;
        CHECK(cut.time > 0 && cut.tile < GEMM_SM90_TILES &&
                  (!cut.turned || (splits && x.m < x.n && x.m <= GEMM_SM90_MOST_TURNED)) &&
                  (!splits || (all <= sms && (cut.turned || cut.ksplit > 1))) &&
                  (!gemm_tile_turns(cut.tile) || (cut.ksplit == 1 && all > sms / 2 * 2)) &&
                  (cut.ksplit == 1 || ((meets || (clusters && (splits || tile.blocks == 1))) &&
                                       vb_ceil_div(x.k, 64) >= 2 * cut.ksplit)),
              "%ld x %ld x %ld on %d: tile %d, %d share k, turned %d", (long)x.m, (long)x.k, (long)x.n, sms, cut.tile,
              cut.ksplit, cut.turned);
    }
    vb_matmul_args few = product(VB_BF16, 147, 8336, 3360);
    few.b_transposed = 1;
    const gemm_sm90_cut cut = gemm_sm90_cut_of(&few, 132);
    CHECK(cut.turned && cut.ksplit > 1, "147 rows: pairs copy A for each other and share k");
}

/* The smaller operand is turned where both run along k and are large, in the matrices and rows that a grid has. */
static void check_turns(void) {
    const struct {
        int64_t m, n, batch;
        int a_transposed, b_transposed, turns;
    } cases[] = {{4096, 4096, 1, 0, 1, 1},  {128, 1536, 1, 0, 1, 1},      {1536, 128, 1, 0, 1, 1},
                 {127, 4096, 1, 0, 1, 0},   {1535, 1535, 1, 0, 1, 0},     {4096, 4096, 1, 0, 0, 0},
                 {4096, 4096, 1, 1, 1, 0},  {128, 1536, 65536, 0, 1, 0},  {128, 1536, 65535, 0, 1, 1},
                 {65535 * 64, 65535 * 64 + 1, 1, 0, 1, 1}, {65535 * 64 + 1, 65535 * 64 + 1, 1, 0, 1, 0}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        vb_matmul_args x = {0};
        x.type = VB_F32, x.m = cases[i].m, x.n = cases[i].n, x.k = 64, x.batch = cases[i].batch;
        x.a_transposed = cases[i].a_transposed, x.b_transposed = cases[i].b_transposed;
        x.a_batch_stride = x.m * x.k, x.b_batch_stride = x.n * x.k;
        CHECK(matmul_f32_turns(&x) == cases[i].turns, "%ldx%ldx%ld", (long)x.batch, (long)x.m, (long)x.n);
    }
}

static void test_matmul(void) {
    check_turns();
    check_meeting();
    check_cuts();
    static const vb_dtype types[] = {VB_F32, VB_F16, VB_BF16};
    for (int i = 0; i < 4000; i++) {
        vb_matmul_args x = product(types[any_of(3)], any_size(20), any_of(50) ? any_size(16) : 0, any_size(20));
        x.precision = (vb_precision)any_of(3);
        if (any_of(2)) x.m = x.m > 8 ? x.m / 8 * 8 : x.m, x.k = x.k / 8 * 8, x.n = x.n > 8 ? x.n / 8 * 8 : x.n;
        x.a_stride = x.k, x.b_stride = x.c_stride = x.n;
        if (any_of(3) == 0) { /* any layout, with gaps */
            x.batch = any_size(12);
            x.a_transposed = any_of(2), x.b_transposed = any_of(2);
            const int64_t gap = any_of(2) ? 8 * any_size(4) : any_size(4) - 1;
            x.a_stride = (x.a_transposed ? x.m : x.k) + gap, x.b_stride = (x.b_transposed ? x.k : x.n) + gap,
            x.c_stride = x.n + gap;
            x.a_batch_stride = x.a_stride * (x.a_transposed ? x.k : x.m);
            x.b_batch_stride = any_of(2) ? 0 : x.b_stride * (x.b_transposed ? x.n : x.k);
            x.c_batch_stride = x.c_stride * x.m;
        }
        if (any_of(4) == 0) x.a = (char *)ALIGNED + matmul_element_bytes(x.type) * any_of(8);
        if (any_of(4) == 0) x.b = (char *)ALIGNED + matmul_element_bytes(x.type) * any_of(8);
        if (any_of(4) == 0) x.c = (char *)ALIGNED + matmul_element_bytes(x.type) * any_of(8);
        for (int g = 0; g < gpu_count; g++) {
            check_matmul(&x, &gpus[g]);
            const matmul_kernel row = choose_matmul_m1(x.b, x.type, x.k, x.n, &gpus[g]);
            const int width = matmul_m1_width(x.b, x.type, x.n),
                      others = gpus[g].capability >= 80 && (width == 1 || x.n < MATMUL_M1_LEAST_COLUMNS);
            CHECK(row == MATMUL_M1_CLUSTER || (row == MATMUL_NONE) == others, "one row: k %ld n %ld", (long)x.k,
                  (long)x.n);
            if (row != MATMUL_M1_CLUSTER) continue;
            const matmul_m1_plan one = matmul_m1_cluster(x.k, x.n, width, &gpus[g]);
            CHECK(gpus[g].capability == 90 && width > 1 && one.ksplit <= MATMUL_M1_MOST_KSPLIT &&
                      (one.lanes == 8 || one.lanes == 16 || one.lanes == 32) &&
                      vb_ceil_div(x.n, one.lanes * width) * one.ksplit <= 2 * gpus[g].multiprocessors,
                  "one row in clusters on %d: k %ld n %ld", gpus[g].capability, (long)x.k, (long)x.n);
        }
    }
    check_named_matmul();
}
