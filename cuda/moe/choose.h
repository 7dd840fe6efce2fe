/* choose.h: which kernel runs for a mixture of experts. Pure functions; plain C. cuda/README.md has the map,
 * choose_test.h the test. */
#ifndef VB_MOE_CHOOSE_H
#define VB_MOE_CHOOSE_H

#include "runtime/chooser.h"

#define MOE_KERNELS(X) \
    X(MOE_ROUTE, "route", "moe/route.cu", "route: a warp a token") \
    X(MOE_EXPERT_ROWS, "expert_rows", "moe/expert_linear.cu", \
      "expert_linear: fewer than two choices an expert (decode), F32 weights, GPUs before 7.5 (BF16: 8.0)") \
    X(MOE_EXPERT_TILES, "expert_tiles", "moe/expert_linear.cu", \
      "expert_linear: choices sorted by expert, tensor cores") \
    X(MOE_SUM_VECTORS, "expert_sum_vectors", "moe/expert_sum.cu", "expert_sum, rows of whole vectors of 16 bytes") \
    X(MOE_SUM_ELEMENTS, "expert_sum_elements", "moe/expert_sum.cu", "expert_sum of any other row")
VB_KERNEL_FAMILY(moe, MOE, MOE_KERNELS)

enum { MOE_TILE_ROWS = 128, MOE_TILE_CHOICES = 64, MOE_MOST_EXPERTS = 4096 };

/* Tiles that there may be of so many choices: each expert's last is part. The experts' NaN rows, of ids of none, are
 * one more. */
static inline int64_t moe_tile_slots(int64_t choices, int64_t experts) {
    return vb_ceil_div(choices, MOE_TILE_CHOICES) + (choices < experts + 1 ? choices : experts + 1);
}

/* With fewer choices an expert has about one, whose rows are read once anyhow. */
static inline moe_kernel choose_expert_linear(const vb_expert_linear_args *a, const vb_gpu *gpu) {
    const int64_t choices = a->n * a->k;
    const int many = choices > 16 && choices >= 2 * a->experts;
    const int tensor_cores = a->w.type != VB_F32 && gpu->capability >= (a->w.type == VB_BF16 ? 80 : 75);
    const int fits =
        a->experts <= MOE_MOST_EXPERTS && choices <= INT32_MAX / 2 && moe_tile_slots(choices, a->experts) <= 65535;
    return many && tensor_cores && fits ? MOE_EXPERT_TILES : MOE_EXPERT_ROWS;
}
static inline moe_kernel choose_expert_sum(int aligned, int64_t cols) {
    return aligned && cols % 4 == 0 ? MOE_SUM_VECTORS : MOE_SUM_ELEMENTS;
}

#endif
