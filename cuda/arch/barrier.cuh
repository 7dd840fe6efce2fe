// barrier.cuh: barriers in shared memory (capability 9.0 and later; before it these functions do nothing). A barrier
// completes a phase when so many have arrived, and the bytes that they told it to expect.
//
//     __shared__ uint64_t barrier;
//     if (threadIdx.x == 0) barrier_init(&barrier, blockDim.x), barrier_init_fence();
//     __syncthreads();
//     barrier_arrive(&barrier);
//     barrier_wait(&barrier, 0); // the next phase has the parity 1

#ifndef VB_CUDA_BARRIER_CUH
#define VB_CUDA_BARRIER_CUH

#include "runtime/common.cuh"

namespace vb {

VB_DEVICE void barrier_init(uint64_t *barrier, int arrivals) {
#if __CUDA_ARCH__ >= 900
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)), "r"(arrivals) : "memory");
#endif
}
// Other blocks of the cluster, and copies, find what this thread has set up.
VB_DEVICE void barrier_init_fence() {
#if __CUDA_ARCH__ >= 900
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
#endif
}
VB_DEVICE void barrier_arrive(uint64_t *barrier) {
#if __CUDA_ARCH__ >= 900
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(barrier)) : "memory");
#endif
}
VB_DEVICE void barrier_expect(uint64_t *barrier, int bytes) {
#if __CUDA_ARCH__ >= 900
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)), "r"(bytes)
                 : "memory");
#endif
}
// Waits until the phase of this parity has completed.
VB_DEVICE void barrier_wait(uint64_t *barrier, unsigned parity) {
#if __CUDA_ARCH__ >= 900
    asm volatile("{\n"
                 ".reg .pred done;\n"
                 "again:\n"
                 "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
                 "@!done bra again;\n"
                 "}\n" ::"r"(shared_address(barrier)),
                 "r"(parity)
                 : "memory");
#endif
}

} // namespace vb
#endif
