// matmul.cu: the entry of C = A B, which launches the kernel that choose.h names. vibrant.h has the formula.

#include "gemm/gemm_sm90.cuh"
#include "gemm/matmul.cuh"

namespace vb {

vb_status run_matmul(matmul_kernel kernel, const vb_matmul_args &x, vb_stream *stream) {
    switch (kernel) {
    case MATMUL_THIN: return matmul_thin(x, stream);
    case MATMUL_SKINNY: return matmul_skinny(x, stream);
    case MATMUL_SHORT: return matmul_short(x, stream);
    case MATMUL_3XTF32: return matmul_3xtf32(x, nullptr, stream);
    case GEMM_M64_SM90: return gemm_m64_sm90(x, stream);
    case GEMM_SM90: return gemm_sm90(x, stream);
    case GEMM_3XF16_SM90: return gemm_3xf16_sm90(x, stream);
    case MATMUL_SM90: return matmul_sm90(x, stream);
    case MATMUL_PADDED_SM90: {
        const int sms = multiprocessors(stream);
        const matmul_sm90_plan plan = matmul_sm90_plan_of(&x, sms);
        return matmul_padded(x, matmul_sm90,
                             plan.meet ? matmul_sm90_meeting_bytes(&x, &plan, sms) : k_parts_bytes(plan.parts, x),
                             stream);
    }
    case MATMUL_PADDED_M64_SM90:
        return matmul_padded(x, [](const vb_matmul_args &copies, vb_stream *on, void *) {
            return gemm_m64_sm90(copies, on);
        }, 0, stream);
    case MATMUL_3XF16_SM90: return matmul_3xf16_sm90(x, stream);
    case MATMUL_1XF16_SM90: return matmul_1xf16_sm90(x, stream);
    case MATMUL_KSPLIT: return matmul_ksplit(x, stream);
    case MATMUL_MMA: return matmul_mma(x, stream);
    case MATMUL_PADDED_MMA: {
        const vb_gpu gpu = gpu_of(stream);
        return matmul_padded(x, matmul_mma, k_parts_bytes(matmul_plan_of(MATMUL_MMA, &x, &gpu).parts, x), stream);
    }
    case MATMUL_3XTF32_ANY: return matmul_3xtf32_any(x, stream);
    case MATMUL_TF32: return matmul_tf32(x, stream);
    case MATMUL_F32: return matmul_f32(x, stream);
    case MATMUL_SIMT: return matmul_simt(x, stream);
    default: return VB_UNSUPPORTED;
    }
}

vb_status matmul(matmul_kernel *kernel, const vb_matmul_args &x, vb_stream *stream) {
    vb_gpu gpu = gpu_of(stream);
    *kernel = choose_matmul(&x, &gpu, true);
    const vb_status status = run_matmul(*kernel, x, stream);
    if (status != VB_OUT_OF_MEMORY) return status;
    // No room for copies of operands, or for the sums of blocks that share k: Hopper's kernels want it most.
    if (gpu.capability == 90) gpu.capability = 89;
    *kernel = choose_matmul(&x, &gpu, false);
    return run_matmul(*kernel, x, stream);
}

} // namespace vb

using namespace vb;

extern "C" vb_status vb_cuda_matmul_batched(const vb_matmul_args *args, vb_stream *stream) {
    const vb_matmul_args &x = *args;
    matmul_kernel kernel;
    const vb_status status = matmul(&kernel, x, stream);
    chosen(stream, matmul_kernel_info(kernel), "matmul", x.type, "m k n batch a_transposed b_transposed", x.m, x.k, x.n,
           x.batch, x.a_transposed, x.b_transposed);
    return status;
}
