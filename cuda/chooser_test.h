/* chooser_test.h: the parts common to the tests of the families' choosers (cuda/chooser_test.c). */
#ifndef VB_CUDA_CHOOSER_TEST_H
#define VB_CUDA_CHOOSER_TEST_H

#include <stdio.h>

#include "runtime/chooser.h"

/* A GPU on sale for each capability that kernels compile for. */
extern const vb_gpu gpus[];
extern const int gpu_count;

/* A multiple of 16 bytes that is no address of anything: choosers look at pointers and never read them. */
#define ALIGNED ((void *)0x7f0000000000)

extern long checks;
extern int failures;

/* Counts a check. The first few failures are printed with the shape, in printf's manner. */
#define CHECK(condition, ...)                                                                                          \
    do {                                                                                                               \
        checks++;                                                                                                      \
        if (!(condition) && failures++ < 20) {                                                                         \
            fprintf(stderr, "%s:%d: %s: ", __FILE__, __LINE__, #condition);                                            \
            fprintf(stderr, __VA_ARGS__);                                                                              \
            fputc('\n', stderr);                                                                                       \
        }                                                                                                              \
    } while (0)

/* A number of 1 .. 2^bits, as likely of any magnitude; the same numbers each time. */
int64_t any_size(int bits);
/* 0 .. n - 1 */
int any_of(int n);

/* One table of the map. */
void map_family(const char *title, int count, vb_kernel (*kernel)(int));
#define MAP_FAMILY(title, family, FAMILY)                                                                              \
    static vb_kernel family##_at(int i) { return family##_kernel_info((family##_kernel)i); }                           \
    static void map_##family(void) { map_family(title, FAMILY##_COUNT, family##_at); }

#endif
