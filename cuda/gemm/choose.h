/* choose.h: which kernel computes a product of matrices. */
#ifndef VB_CUDA_GEMM_CHOOSE_H
#define VB_CUDA_GEMM_CHOOSE_H

#include "gemm/choose_m1.h"
#include "gemm/choose_short.h"
#include "gemm/choose_skinny.h"
#include "gemm/choose_sm90.h"

/* ---- F32 in TF32 parts ------------------------------------------------------------------------------------------ */

/* The instance of matmul_3xtf32.cu: eights of rows a tile, warps side by side. */
static inline int matmul_3xtf32_eights(int64_t m) { return m <= 8 ? 1 : m <= 16 ? 2 : m <= 32 || m > 64 ? 4 : 8; }
static inline int matmul_3xtf32_abreast(int64_t n) { return n > 2048 ? 4 : 2; }
/* Its shared memory. */
static inline int64_t matmul_3xtf32_bytes(int eights, int abreast, int b_transposed) {
    const int64_t depth = (b_transposed ? 32 : 16) * (8 / abreast), step = (8 * 256 + depth / 16 * eights * 32) * 16;
    const int64_t steps = (224 << 10) / step;
    return (steps < 6 ? steps : 6) * step;
}
/* Whether it computes the product well: of a shorter k matmul_3xtf32_any takes 0.4 to 0.9 of its time, and so it does
 * of more rows where tiles take more than half of the multiprocessors (docs/experiments/2026-11-28-product-tail.md).
 * Larger products repay the passes of gemm_3xf16_sm90.cu. */
enum { MATMUL_3XTF32_LEAST_K = 512 };
static inline int matmul_3xtf32_suits(const vb_matmul_args *x, const vb_gpu *gpu) {
    const int64_t tiles = vb_ceil_div(x->m, 32) * vb_ceil_div(x->n, 64 * matmul_3xtf32_abreast(x->n));
    const int few = x->m <= 64 ? x->n >= 128
                               : x->n > 32 && 2 * tiles <= gpu->multiprocessors &&
                                     (double)x->m * x->k * x->n <= 640.0 * 640 * 640;
    return gpu->capability >= 80 && x->type == VB_F32 && x->precision != VB_PRECISION_IEEE && few &&
           x->k >= MATMUL_3XTF32_LEAST_K && matmul_contiguous(x) && matmul_sizes_below(x, (1 << 30) + 1) &&
           x->k % 4 == 0 && x->n % 4 == 0 && vb_aligned16(x->a) && vb_aligned16(x->b) && vb_aligned16(x->c) &&
           matmul_3xtf32_bytes(matmul_3xtf32_eights(x->m), matmul_3xtf32_abreast(x->n), x->b_transposed) <=
               gpu->shared_bytes;
}

/* ---- what each kernel suits ------------------------------------------------------------------------------------- */

/* Of 17 to 64 rows or columns and a short k matmul_f32 takes 0.86 of its time by the plan
 * (docs/experiments/2026-11-28-product-tail.md); of others the time on tensor cores is the surer one. */
static inline int matmul_3xtf32_any_suits(const vb_matmul_args *x, const vb_gpu *gpu) {
    const int64_t few = x->m < x->n ? x->m : x->n;
    const int lone = vb_begins_early(gpu) && x->batch == 1 && x->k > 8 && x->k <= 128 && few > 16 && few <= 64;
    return x->precision != VB_PRECISION_IEEE && x->k > 0 && vb_tiles_fit(x->m, 16, x->n, 16) &&
           (lone ? 1.2 : vb_begins_early(gpu) ? 0.92 : 0.95) * matmul_tf32_time(x, gpu) < matmul_f32_time(x, gpu);
}
/* F32 operands have to be split first, which few rows do not repay. Kernels that take as long need no memory for it. */
static inline int matmul_3xf16_suits(const vb_matmul_args *x, const vb_gpu *gpu) {
    const double time = matmul_3xf16_time(x, gpu);
    return matmul_xf16_suits(x) && (x->precision == VB_PRECISION_TF32 ||
                                    (time < matmul_f32_time(x, gpu) && time < matmul_tf32_time(x, gpu)));
}
/* Whether matmul_thin takes it, and in less time than tiles on tensor cores. */
static inline int matmul_thin_suits(const vb_matmul_args *x, const vb_gpu *gpu) {
    if (x->k > 16 || !vb_tiles_fit(x->m, 16, x->n, 8)) return 0;
    if (gpu->capability < 80 || x->k == 0) return 1;
    if ((x->m == 1 || x->n == 1) && matmul_skinny_suits(x) &&
        0.9 * matmul_skinny_time(x, gpu) < matmul_thin_time(x, gpu))
        return 0;
    /* Before Hopper its own is the surest of these times. */
    const double time = (vb_begins_early(gpu) ? 1 : 0.9) * matmul_thin_time(x, gpu);
    if (x->type != VB_F32) return time < matmul_ksplit_time(x, gpu) && time < matmul_vectors_time(x, gpu);
    if (x->precision == VB_PRECISION_IEEE) return time < matmul_f32_time(x, gpu);
    return time < matmul_tf32_time(x, gpu) && (x->k <= 8 || time < matmul_f32_time(x, gpu));
}
/* Whether matmul_short takes it, and in less time than other kernels of tiles. */
static inline int matmul_short_suits(const vb_matmul_args *x, const vb_gpu *gpu) {
    if (gpu->capability < 80 || x->type == VB_F32 || x->k <= 0 || x->k > MATMUL_SHORT_MOST_K || x->m <= 16 ||
        x->n <= 16 || !vb_tiles_fit(x->m, 16, x->n, 16))
        return 0;
    const double time = matmul_short_time(x, gpu);
    if (gemm_m64_takes(x, gpu) && gemm_m64_time(x, gpu) < time) return 0;
    const int large = gpu->capability == 90 && x->k > 16 && time > 30 && gemm_sm90_takes(x);
    if (large && gemm_sm90_cut_of(x, gpu->multiprocessors).time < time) return 0;
    /* Where C is most of the work, two blocks of matmul_sm90 a multiprocessor take less than their time says. */
    const int sm90 = gpu->capability == 90 && x->k > 16 && x->m >= 128 && x->n >= 256 && matmul_operand_vectors(x);
    const double vectors = sm90 ? 0.8 : 1;
    return (x->k > 16 || time < matmul_thin_time(x, gpu)) &&
           time < (vb_begins_early(gpu) ? 1.05 : 1) * matmul_ksplit_time(x, gpu) &&
           time < vectors * matmul_vectors_time(x, gpu);
}
static inline int matmul_ksplit_suits(const vb_matmul_args *x, const vb_gpu *gpu) {
    return gpu->capability >= 80 && x->type != VB_F32 && x->m > 0 && x->n > 0 &&
           vb_tiles_fit(x->m, 16, x->n, 16) &&
           (x->k == 0 ||
            matmul_ksplit_time(x, gpu) < (vb_begins_early(gpu) ? 0.95 : 1) * matmul_vectors_time(x, gpu));
}

/* Whether operands repay copies with rows of whole vectors: tensor cores then do the work of fp32 units. */
static inline int matmul_padded_suits(const vb_matmul_args *x) {
    const double work = (double)x->m * x->n * x->k * x->batch;
    const int64_t most = INT32_MAX / 2; /* pieces of 8 elements of a matrix, counted in 32 bits */
    return x->type != VB_F32 && matmul_sizes_below(x, 1 << 28) && x->batch <= 65535 &&
           (x->k >= 512 || work >= 128.0 * 128 * 128) && x->m * vb_ceil_div(x->k, 8) < most &&
           x->k * vb_ceil_div(x->m, 8) < most && x->n * vb_ceil_div(x->k, 8) < most &&
           x->k * vb_ceil_div(x->n, 8) < most;
}

/* The same for gemm_m64_sm90, and its time. */
static inline double matmul_padded_m64_time(const vb_matmul_args *x, const vb_gpu *gpu) {
    return gemm_m64_time(x, gpu) + matmul_copies_time(x) + 0.45;
}
static inline int matmul_padded_m64_suits(const vb_matmul_args *x, const vb_gpu *gpu) {
    return !matmul_operand_vectors(x) && gemm_m64_fits(x, gpu) && matmul_padded_suits(x) &&
           gemm_m64_pays(x, matmul_padded_m64_time(x, gpu), gpu);
}

/* Whether matmul_skinny takes less time than kernels of tiles, which are up to four times as fast as lanes along k of
 * more than two rows. */
static inline int matmul_skinny_pays(const vb_matmul_args *x, const vb_gpu *gpu) {
    const double time = matmul_skinny_time(x, gpu);
    if (gpu->capability < 80) return 1;
    const matmul_skinny_plan plan = matmul_skinny_plan_of(x, gpu->multiprocessors);
    if (plan.by_k ? x->m > 2 && x->n > 2 : x->type != VB_F32 && !plan.lone) return 0;
    /* Its own is the surest of these times, but for lone ones of batches. */
    const double sure = vb_begins_early(gpu) && !(plan.lone && x->batch > 1) ? 0.87 : 1;
    if (x->type == VB_F32) return sure * time < matmul_f32_time(x, gpu) && sure * time < matmul_tf32_time(x, gpu);
    if (gpu->capability == 90 && matmul_contiguous(x) && x->k % 8 == 0 && x->n % 8 == 0 && x->m <= x->n) return 0;
    if (gemm_m64_takes(x, gpu)) return 0;
    if (matmul_padded_m64_suits(x, gpu) && 1.2 * matmul_padded_m64_time(x, gpu) < time) return 0;
    return sure * time < matmul_ksplit_time(x, gpu) && time < matmul_vectors_time(x, gpu);
}

/* Few tiles do not repay the conversion, unless k is short, nor do few columns of a tile. */
static inline int gemm_3xf16_pays(const vb_matmul_args *x, const vb_gpu *gpu) {
    const int64_t tiles = vb_ceil_div(x->m, 128) * vb_ceil_div(x->n, 128);
    if (5 * tiles >= gpu->multiprocessors && x->n >= 256 && x->m > 64) return 1;
    return (x->n >= 256 && x->m > 64 ? 0.6 : 1.0) * matmul_3xf16_time(x, gpu) < matmul_tf32_time(x, gpu);
}

/* Few tiles of a long k are shared by more blocks than a cluster has, small ones by matmul_ksplit. Of the longest,
 * whose last tile of rows is not filled, clusters took up to 1.5 times as long as blocks that share k in memory. */
enum { GEMM_SM90_LONG_K = 9000 };
static inline int gemm_sm90_pays(const vb_matmul_args *x, const vb_gpu *gpu) {
    if (x->m <= 16 || x->n <= 16) return 0;
    if (!gemm_sm90_whole(x)) {
        const double time = 1.05 * gemm_sm90_cut_of(x, gpu->multiprocessors).time;
        if (time < matmul_vectors_time(x, gpu) && time < matmul_ksplit_time(x, gpu) &&
            time < matmul_plan_of(MATMUL_MMA, x, gpu).time)
            return 1;
    }
    if (x->a_transposed) return 0;
    const int large = matmul_contiguous(x) && (double)x->m * x->k * x->n >= 64e6,
              parts = matmul_sm90_plan_of(x, gpu->multiprocessors).parts;
    if (x->k >= GEMM_SM90_LONG_K && parts > 2 && x->m % MATMUL_SM90_TILE_M != 0) return 0;
    return large || (parts < 4 && 0.9 * matmul_vectors_time(x, gpu) < matmul_ksplit_time(x, gpu));
}

/* Small products end sooner in small tiles. */
static inline int matmul_mma_pays(const vb_matmul_args *x, const vb_gpu *gpu) {
    if (x->type == VB_F32 || x->k < 8 || !matmul_operand_vectors(x) || !vb_tiles_fit(x->m, 64, x->n, 64)) return 0;
    const double time = matmul_plan_of(MATMUL_MMA, x, gpu).time;
    return time < 0.93 * matmul_ksplit_time(x, gpu) && time < 0.93 * matmul_vectors_time(x, gpu);
}

static inline matmul_kernel choose_matmul_sm90(const vb_matmul_args *x, const vb_gpu *gpu, int room) {
    const int f32 = x->type == VB_F32;
    if (!matmul_sm90_fits(x)) return MATMUL_NONE;
    if (gemm_m64_takes(x, gpu)) return GEMM_M64_SM90;
    if (gemm_sm90_takes(x) && gemm_sm90_pays(x, gpu)) return GEMM_SM90;
    if (f32 && room && matmul_contiguous(x) && gemm_3xf16_suits(x) && gemm_3xf16_pays(x, gpu)) return GEMM_3XF16_SM90;
    if (matmul_mma_pays(x, gpu)) return MATMUL_MMA;
    if (room && matmul_padded_m64_suits(x, gpu)) return MATMUL_PADDED_M64_SM90;
    if (matmul_ksplit_suits(x, gpu)) return MATMUL_KSPLIT;
    if (!f32 && matmul_operand_vectors(x)) return matmul_sizes_below(x, 1 << 28) ? MATMUL_SM90 : MATMUL_NONE;
    if (!f32) return room && matmul_padded_suits(x) ? MATMUL_PADDED_SM90 : MATMUL_NONE;
    if (!room || !matmul_3xf16_suits(x, gpu)) return MATMUL_NONE;
    return x->precision == VB_PRECISION_TF32 ? MATMUL_1XF16_SM90 : MATMUL_3XF16_SM90;
}

/* ---- any product ------------------------------------------------------------------------------------------------ */

/* `room`: whether there is memory for copies of the operands. */
static inline matmul_kernel choose_matmul(const vb_matmul_args *x, const vb_gpu *gpu, int room) {
    const int ampere = gpu->capability >= 80, f32 = x->type == VB_F32;
    if (matmul_short_suits(x, gpu)) return MATMUL_SHORT;
    if (matmul_thin_suits(x, gpu)) return MATMUL_THIN;
    const int skinny = matmul_skinny_suits(x) && matmul_skinny_pays(x, gpu);
    if (skinny && x->n < x->m) return MATMUL_SKINNY;
    if (matmul_3xtf32_suits(x, gpu)) return MATMUL_3XTF32;
    if (skinny) return MATMUL_SKINNY;
    if (gpu->capability == 90) {
        const matmul_kernel kernel = choose_matmul_sm90(x, gpu, room);
        if (kernel != MATMUL_NONE) return kernel;
    }
    if (ampere && f32) {
        if (x->precision == VB_PRECISION_TF32 && vb_tiles_fit(x->m, 128, x->n, 128)) return MATMUL_TF32;
        if (matmul_3xtf32_any_suits(x, gpu)) return MATMUL_3XTF32_ANY;
        if (vb_tiles_fit(x->m, 32, x->n, 64)) return MATMUL_F32;
    }
    if (!vb_tiles_fit(x->m, 64, x->n, 64)) return MATMUL_NONE;
    if (!ampere || f32) return MATMUL_SIMT;
    /* Code for Hopper has no matmul_mma: what matmul_sm90 refuses are sizes of 2^28. */
    if (gpu->capability == 90 || matmul_ksplit_suits(x, gpu)) return MATMUL_KSPLIT;
    if (matmul_operand_vectors(x)) return MATMUL_MMA;
    return room && matmul_padded_suits(x) ? MATMUL_PADDED_MMA : MATMUL_KSPLIT;
}

#endif
