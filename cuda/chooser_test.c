//go:build ignore

/* chooser_test.c: calls every chooser for every kind of GPU over thousands of shapes, without a GPU.
 *
 * It holds three things: there is a kernel wherever vibrant.h promises a result; the kernel can do the call; shapes by
 * name get the kernel that was measured for them. With --map it prints the generated part of cuda/README.md instead.
 * `make test-c` runs both; each family's part is in its folder. */
#include "chooser_test.h"

#include <string.h>

#include "adapter/choose_test.h"
#include "attention/choose_test.h"
#include "delta/choose_test.h"
#include "gemm/choose_test.h"
#include "collective/choose_test.h"
#include "moe/choose_test.h"
#include "rows/choose_test.h"
#include "strided/choose_test.h"
#include "linear/choose_test.h"
#include "ternary/choose_test.h"

const vb_gpu gpus[] = {
    {53, 1, 48 << 10, false},     {72, 8, 96 << 10, false},    {75, 68, 64 << 10, false},  {80, 108, 163 << 10, false},
    {86, 84, 99 << 10, false},    {87, 16, 163 << 10, false},  {89, 128, 99 << 10, false}, {90, 132, 227 << 10, true},
    {100, 148, 227 << 10, false}, {120, 170, 99 << 10, false},
};
const int gpu_count = sizeof gpus / sizeof *gpus;

long checks;
int failures;

static uint64_t state = 1;
static uint64_t any(void) { /* splitmix64 (Steele, Lea & Flood 2014) */
    uint64_t x = state += 0x9e3779b97f4a7c15;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
    x = (x ^ x >> 27) * 0x94d049bb133111eb;
    return x ^ x >> 31;
}
int any_of(int n) { return (int)(any() % (uint64_t)n); }
int64_t any_size(int bits) { return 1 + (int64_t)(any() % ((uint64_t)1 << any_of(bits + 1))); }

void map_family(const char *title, int count, vb_kernel (*kernel)(int)) {
    printf("\n### %s\n\n| kernel | file | for |\n|---|---|---|\n", title);
    for (int i = 1; i < count; i++) printf("| `%s` | `%s` | %s |\n", kernel(i).name, kernel(i).file, kernel(i).when);
}

int main(int argc, char **argv) {
    if (argc == 2 && strcmp(argv[1], "--map") == 0) {
        map_rows();
        map_strided();
        map_matmul();
        map_attention();
        map_linear();
        map_adapter();
        map_moe();
        map_collective();
        map_delta();
        map_ternary();
        return 0;
    }
    for (int i = 0; i < gpu_count; i++)
        CHECK(gpus[i].shared_bytes == vb_shared_bytes_of(gpus[i].capability), "%d", gpus[i].capability);
    test_rows();
    test_strided();
    test_matmul();
    test_attention();
    test_linear();
    test_adapter();
    test_moe();
    test_collective();
    test_delta();
    test_ternary();
    printf("choosers: %ld checks, %d failed\n", checks, failures);
    return failures > 0;
}
