/* choose_test.h: the test of strided/choose.h, a part of cuda/chooser_test.c. */
#include "chooser_test.h"
#include "strided/choose.h"

MAP_FAMILY("Arrays with strides (`strided/choose.h`)", strided, STRIDED)

static void test_strided(void) {
    static const vb_dtype types[] = {VB_F32, VB_F16, VB_BF16, VB_I32, VB_I8, VB_U8, VB_BOOL};
    const vb_step add = {VB_ELEMENT_ADD, 0, 1, 0}, less = {VB_ELEMENT_LT, 0, 1, 0};
    for (int i = 0; i < 4000; i++) {
        const int64_t rows = any_size(12), cols = any_size(12), off = any_of(2) ? 0 : any_of(64);
        vb_map_args a = {.rank = 2, .sizes = {rows, cols}, .inputs = 2};
        a.out = (vb_view){ALIGNED, types[any_of(7)], {cols, 1}};
        a.in[0] = (vb_view){(char *)ALIGNED + off, types[any_of(7)], {any_of(2) ? cols : 1, 1}};
        a.in[1] = (vb_view){ALIGNED, types[any_of(7)], {0, any_of(2)}};
        vb_view *const views[] = {&a.out, &a.in[0], &a.in[1]};
        a.rank = vb_join_dims(a.sizes, a.rank, views, 3);
        const strided_kernel kernel = choose_strided_map(&a, i % 2 ? &add : NULL, i % 2);
        CHECK(kernel != STRIDED_NONE, "%ld x %ld", (long)rows, (long)cols);
        if (kernel != STRIDED_STEP_VECTORS && kernel != STRIDED_PROGRAM_VECTORS) continue;
        CHECK(off % (4 * vb_element_bytes(a.in[0].type)) == 0, "%ld x %ld from %ld", (long)rows, (long)cols, (long)off);
        CHECK(a.rank == 1 || a.sizes[a.rank - 1] % 4 == 0, "%ld x %ld", (long)rows, (long)cols);
    }
    for (int i = 0; i < 4000; i++) {
        const int64_t sizes[] = {any_size(20), any_size(20), any_size(8)};
        vb_reduce_args r = {.rank = 3, .sizes = {sizes[0], sizes[1], sizes[2]}, .reduced = any_of(8)};
        r.in = (vb_view){ALIGNED, VB_F32, {sizes[1] * sizes[2], sizes[2], 1}};
        r.out = (vb_view){ALIGNED, VB_F32, {0}};
        vb_reduce_dims d;
        vb_reduce_split(&d, &r);
        for (int g = 0; g < gpu_count; g++) {
            const reduce_plan plan = choose_strided_reduce(&d, &gpus[g]);
            CHECK(plan.results >= 1 && plan.results <= REDUCE_THREADS && plan.parts >= 1 &&
                      plan.parts <= REDUCE_MOST_PARTS &&
                      plan.blocks * plan.results * (plan.kernel == STRIDED_REDUCE_COLUMNS ? plan.width : 1) >=
                          d.results &&
                      (plan.width == 1 || (plan.kernel == STRIDED_REDUCE_COLUMNS ? d.results : d.places) % 4 == 0) &&
                      (plan.parts == 1 || plan.parts <= d.places),
                  "%ld results of %ld places: %d, %ld parts", (long)d.results, (long)d.places, plan.results,
                  (long)plan.parts);
        }
    }
    CHECK(choose_strided_sort(1) == STRIDED_SORT_BITONIC && choose_strided_sort(512) == STRIDED_SORT_BITONIC, "short");
    CHECK(choose_strided_sort(513) == STRIDED_SORT_BLOCK && choose_strided_sort(4096) == STRIDED_SORT_BLOCK, "a block");
    CHECK(choose_strided_sort(4097) == STRIDED_SORT_RADIX && choose_strided_sort(INT32_MAX) == STRIDED_SORT_RADIX,
          "long lines");
    vb_map_args a = {.rank = 1, .sizes = {1 << 26}, .inputs = 2, .out = {ALIGNED, VB_F32, {1}}};
    a.in[0] = a.in[1] = a.out;
    CHECK(choose_strided_map(&a, &add, 1) == STRIDED_CONTIGUOUS, "add");
    CHECK(choose_strided_map(&a, &less, 1) == STRIDED_STEP_VECTORS, "a comparison as floats");
    const vb_step random = {VB_ELEMENT_RANDOM, 1, 2, 24};
    CHECK(choose_strided_map(&a, &random, 1) == STRIDED_RANDOM, "random numbers");
    a.out.type = VB_BOOL;
    CHECK(choose_strided_map(&a, &less, 1) == STRIDED_CONTIGUOUS, "a comparison");
    a.out.type = VB_F32;
    CHECK(choose_strided_map(&a, NULL, 0) == STRIDED_PROGRAM_VECTORS, "an expression");
    const vb_step equal = {VB_ELEMENT_EQ, 0, 2, 0};
    for (int t = 3; t < 7; t++) {
        vb_map_args b = {.rank = 1, .sizes = {1 << 26}, .inputs = 2, .out = {ALIGNED, types[t], {1}}};
        b.in[0] = b.in[1] = b.out;
        const bool bytes = types[t] == VB_I8 || types[t] == VB_U8;
        CHECK((choose_strided_map(&b, &add, 1) == STRIDED_BYTES) == bytes, "add of type %d", types[t]);
        b.out.type = VB_BOOL;
        b.program[0] = (vb_step){VB_ELEMENT_INTEGER, 127, 0, 0};
        CHECK((choose_strided_map(&b, &equal, 1) == STRIDED_BYTES) == bytes, "comparison of type %d", types[t]);
        b.program[0].a = 256;
        CHECK(choose_strided_map(&b, &equal, 1) == STRIDED_STEP_VECTORS, "a constant beyond type %d", types[t]);
    }
    vb_map_args t = {.rank = 2, .sizes = {4096, 4096}, .inputs = 1, .out = {ALIGNED, VB_F32, {4096, 1}}};
    t.in[0] = (vb_view){ALIGNED, VB_F32, {1, 4096}};
    CHECK(choose_strided_map(&t, NULL, 1) == STRIDED_TRANSPOSE, "a transposed copy");
    t.in[0].type = VB_F16;
    CHECK(choose_strided_map(&t, NULL, 1) == STRIDED_STEP_ELEMENTS, "a transposed conversion");
    a.in[1].type = VB_F16;
    CHECK(choose_strided_map(&a, &add, 1) == STRIDED_STEP_VECTORS, "two types");
}
