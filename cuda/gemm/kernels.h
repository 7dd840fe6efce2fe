/* kernels.h: the kernels of products of matrices. In the names, gemm takes contiguous matrices and matmul any layout
 * and strides; m1 and m64 are the most rows of A; 3xtf32 and 3xf16 multiply F32 by parts of fewer bits, with float32's
 * accuracy. */
#ifndef VB_CUDA_GEMM_KERNELS_H
#define VB_CUDA_GEMM_KERNELS_H

#include "gemm/operands.h"

#define MATMUL_KERNELS(X)                                                                                              \
    X(MATMUL_M1_CLUSTER, "matmul_m1_cluster", "gemm/matmul_m1.cu",                                                     \
      "one row of A, 9.0: the blocks that share k are a cluster, one or two an SM")                                    \
    X(MATMUL_M1, "matmul_m1", "gemm/matmul_m1.cu", "one row of A, any other")                                          \
    X(MATMUL_THIN, "matmul_thin", "gemm/matmul_thin.cu", "k of at most 16, any type and layout")                       \
    X(MATMUL_SKINNY, "matmul_skinny", "gemm/matmul_skinny.cu",                                                         \
      "up to 8 rows of A or columns of B, any type and layout")                                                        \
    X(MATMUL_SHORT, "matmul_short", "gemm/matmul_short.cu", "16 bits of any layout and strides, k of at most 64, 8.0") \
    X(MATMUL_3XTF32, "matmul_3xtf32", "gemm/matmul_3xtf32.cu",                                                         \
      "F32, contiguous, 64 rows of A or at most 640^3 products, 8.0 with 196 KiB of shared memory")                    \
    X(GEMM_M64_SM90, "gemm_m64_sm90", "gemm/gemm_m64_sm90.cu",                                                         \
      "16 bits, rows of whole vectors, up to 64 rows of A or columns of B, 9.0")                                       \
    X(GEMM_SM90, "gemm_sm90", "gemm/gemm_sm90.cu", "16 bits, one product, rows of whole vectors, 9.0")                 \
    X(GEMM_3XF16_SM90, "gemm_3xf16_sm90", "gemm/gemm_3xf16_sm90.cu", "F32, contiguous, B as [k][n], 9.0")              \
    X(MATMUL_SM90, "matmul_sm90", "gemm/matmul_sm90.cu", "16 bits, any layout of whole vectors, 9.0")                  \
    X(MATMUL_3XF16_SM90, "matmul_3xf16_sm90", "gemm/matmul_3xf16_sm90.cu", "F32, any layout, large, 9.0")              \
    X(MATMUL_1XF16_SM90, "matmul_1xf16_sm90", "gemm/matmul_3xf16_sm90.cu", "F32 with TF32 permitted, large, 9.0")      \
    X(MATMUL_PADDED_SM90, "matmul_padded_sm90", "gemm/matmul_padded.cu",                                               \
      "16 bits of any other strides, copied to whole vectors for matmul_sm90, 9.0")                                    \
    X(MATMUL_PADDED_M64_SM90, "matmul_padded_m64_sm90", "gemm/matmul_padded.cu",                                       \
      "the same with up to 64 rows of A or columns of B, for gemm_m64_sm90, 9.0")                                      \
    X(MATMUL_KSPLIT, "matmul_ksplit", "gemm/matmul_ksplit.cu",                                                         \
      "16 bits of any strides, few tiles or small ones, 8.0: blocks share k")                                          \
    X(MATMUL_MMA, "matmul_mma", "gemm/matmul_mma.cu", "16 bits, any layout of whole vectors, 8.0")                     \
    X(MATMUL_PADDED_MMA, "matmul_padded_mma", "gemm/matmul_padded.cu",                                                 \
      "16 bits of any other strides, copied to whole vectors for matmul_mma, 8.0")                                     \
    X(MATMUL_3XTF32_ANY, "matmul_3xtf32_any", "gemm/matmul_3xtf32_any.cu",                                             \
      "F32 of any layout, 8.0: blocks share k")                                                                        \
    X(MATMUL_TF32, "matmul_tf32", "gemm/matmul_tf32.cu", "F32 with TF32 permitted, 8.0")                               \
    X(MATMUL_F32, "matmul_f32", "gemm/matmul_f32.cu", "F32 on fp32 units, 8.0")                                        \
    X(MATMUL_SIMT, "matmul_simt", "gemm/matmul_simt.cu",                                                               \
      "anything before 8.0; then F32 of sizes or shared memory that no other takes")
VB_KERNEL_FAMILY(matmul, MATMUL, MATMUL_KERNELS)

#endif
