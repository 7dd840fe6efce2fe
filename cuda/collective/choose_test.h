/* choose_test.h: the test of collective/choose.h, a part of cuda/chooser_test.c. */
#include "chooser_test.h"
#include "collective/choose.h"

MAP_FAMILY("Collectives (`collective/choose.h`)", collective, COLLECTIVE)

static void test_collective(void) {
    CHECK(choose_all_reduce(COLLECTIVE_SMALL, false) == COLLECTIVE_REDUCE_SMALL, "all_reduce that fits the mailbox");
    CHECK(choose_all_reduce(COLLECTIVE_SMALL + 1, false) == COLLECTIVE_REDUCE_LARGE, "all_reduce that does not");
    CHECK(choose_all_reduce(COLLECTIVE_EXACT + 8, true) == COLLECTIVE_REDUCE_ROUNDED, "all_reduce that may round");
    CHECK(choose_all_reduce(COLLECTIVE_EXACT, true) == COLLECTIVE_REDUCE_SMALL, "all_reduce of few numbers");
    CHECK(choose_sum_of_columns(COLLECTIVE_COLUMNS, 8192, true) == COLLECTIVE_REDUCE_COLUMNS, "a long prompt's sum");
    CHECK(choose_sum_of_columns(COLLECTIVE_COLUMNS - 8192, 8192, true) == COLLECTIVE_NONE, "a short prompt's sum");
    CHECK(choose_sum_of_columns(COLLECTIVE_COLUMNS, 8192 + 64, true) == COLLECTIVE_NONE, "rows of half a group");
    CHECK(choose_sum_of_columns(COLLECTIVE_COLUMNS, 8192, false) == COLLECTIVE_NONE, "sums of ranks that share a GPU");
    CHECK(choose_sum_of_products(8192, true, true) == COLLECTIVE_PRODUCTS_N1, "a product and its sum");
    CHECK(choose_sum_of_products(COLLECTIVE_ROW + 1, true, true) == COLLECTIVE_NONE, "a sum of too many rows of W");
    CHECK(choose_sum_of_products(8192, true, false) == COLLECTIVE_NONE, "ranks that share a GPU");
    CHECK(choose_all_gather(COLLECTIVE_SMALL) == COLLECTIVE_GATHER_SMALL, "all_gather that fits the mailbox");
    CHECK(choose_all_gather(COLLECTIVE_SMALL + 1) == COLLECTIVE_GATHER_LARGE, "all_gather that does not");
}
