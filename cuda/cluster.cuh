// cluster.cuh: clusters of blocks, which reach each other's shared memory (capability 9.0). Before it, and in launches
// without clusters, each block is a cluster of its own.

#ifndef VB_CUDA_CLUSTER_CUH
#define VB_CUDA_CLUSTER_CUH

#include "common.cuh"

namespace vb {

VB_DEVICE int cluster_size() {
#if __CUDA_ARCH__ >= 900
    int size;
    asm("mov.u32 %0, %%cluster_nctaid.x;" : "=r"(size));
    return size;
#else
    return 1;
#endif
}
VB_DEVICE int cluster_rank() {
#if __CUDA_ARCH__ >= 900
    int rank;
    asm("mov.u32 %0, %%cluster_ctaid.x;" : "=r"(rank));
    return rank;
#else
    return 0;
#endif
}
VB_DEVICE void cluster_arrive() {
#if __CUDA_ARCH__ >= 900
    asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
#endif
}
VB_DEVICE void cluster_wait() {
#if __CUDA_ARCH__ >= 900
    asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
#endif
}

// The address of the same shared variable in block `rank` of the cluster, for load_remote and st.shared::cluster.
VB_DEVICE unsigned cluster_address(const void *variable, unsigned rank) {
    unsigned address = shared_address(variable);
#if __CUDA_ARCH__ >= 900
    asm("mapa.shared::cluster.u32 %0, %0, %1;" : "+r"(address) : "r"(rank));
#endif
    return address;
}
VB_DEVICE float4 load_remote4(unsigned address) {
    float4 x = {};
#if __CUDA_ARCH__ >= 900
    asm volatile("ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(x.x), "=f"(x.y), "=f"(x.z), "=f"(x.w)
                 : "r"(address));
#endif
    return x;
}
VB_DEVICE float2 load_remote2(unsigned address) {
    float2 x = {};
#if __CUDA_ARCH__ >= 900
    asm volatile("ld.shared::cluster.v2.f32 {%0, %1}, [%2];" : "=f"(x.x), "=f"(x.y) : "r"(address));
#endif
    return x;
}

} // namespace vb
#endif
