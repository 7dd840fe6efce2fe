// cluster.cuh: clusters of blocks, which reach each other's shared memory (capability 9.0). Before it, and in launches
// without clusters, each block is a cluster of its own.

#ifndef VB_CUDA_CLUSTER_CUH
#define VB_CUDA_CLUSTER_CUH

#include "arch/barrier.cuh"
#include "runtime/common.cuh"

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

// The address of the same shared variable in block `rank` of the cluster, for messages to the block.
VB_DEVICE unsigned cluster_address(const void *variable, unsigned rank) {
    unsigned address = shared_address(variable);
#if __CUDA_ARCH__ >= 900
    asm("mapa.shared::cluster.u32 %0, %0, %1;" : "+r"(address) : "r"(rank));
#endif
    return address;
}
// What lies in another block's shared memory, by cluster_address.
VB_DEVICE float read_cluster(unsigned address) {
    float x = 0;
#if __CUDA_ARCH__ >= 900
    asm volatile("ld.shared::cluster.f32 %0, [%1];" : "=f"(x) : "r"(address) : "memory");
#endif
    return x;
}
VB_DEVICE float4 read_cluster4(unsigned address) {
    float4 x = make_float4(0, 0, 0, 0);
#if __CUDA_ARCH__ >= 900
    asm volatile("ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(x.x), "=f"(x.y), "=f"(x.z), "=f"(x.w)
                 : "r"(address)
                 : "memory");
#endif
    return x;
}

// ---- messages ------------------------------------------------------------------------------------------------------
// A block's mailbox is a barrier in its shared memory. The barrier completes when so many bytes have been sent to it.

// Called by whole warps; one lane of one warp sets it up. (The warp meets in between for the tool racecheck, which
// takes the barrier's beginning for a write by all lanes.)
VB_DEVICE void mailbox_init(uint64_t *mailbox, int bytes, bool this_lane) {
#if __CUDA_ARCH__ >= 900
    if (this_lane) barrier_init(mailbox, 1), barrier_init_fence();
    __syncwarp();
    if (this_lane) barrier_expect(mailbox, bytes);
#endif
}
// All threads of a cluster open its mailboxes, which have begun: `bytes` bytes will be sent to the block's own.
VB_DEVICE void open_mailboxes(uint64_t *mailbox, int bytes) {
    if (threadIdx.x == 0) barrier_expect(mailbox, bytes);
    __syncwarp();
    cluster_arrive();
    cluster_wait();
}
VB_DEVICE void mailbox_wait(uint64_t *mailbox) {
#if __CUDA_ARCH__ >= 900
    asm volatile("{\n"
                 ".reg .pred done;\n"
                 "again:\n"
                 "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 done, [%0], 0;\n"
                 "@!done bra again;\n"
                 "}\n" ::"r"(shared_address(mailbox))
                 : "memory");
#endif
}
// Writes to another block's shared memory, counted by its mailbox; both addresses by cluster_address.
VB_DEVICE void send4(unsigned to, unsigned mailbox, float4 x) {
#if __CUDA_ARCH__ >= 900
    asm volatile(
        "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [%0], {%2, %3, %4, %5}, [%1];" ::"r"(to),
        "r"(mailbox), "f"(x.x), "f"(x.y), "f"(x.z), "f"(x.w)
        : "memory");
#endif
}
VB_DEVICE void send2(unsigned to, unsigned mailbox, float2 x) {
#if __CUDA_ARCH__ >= 900
    asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v2.f32 [%0], {%2, %3}, [%1];" ::"r"(to),
                 "r"(mailbox), "f"(x.x), "f"(x.y)
                 : "memory");
#endif
}
VB_DEVICE void send(unsigned to, unsigned mailbox, float x) {
#if __CUDA_ARCH__ >= 900
    asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.f32 [%0], %2, [%1];" ::"r"(to),
                 "r"(mailbox), "f"(x)
                 : "memory");
#endif
}

// How many of `count` numbers block `rank` has where the blocks of a cluster share them: rank, rank + blocks and so on.
VB_DEVICE int share_of(int count, int rank, int blocks) { return (count - rank + blocks - 1) / blocks; }

} // namespace vb
#endif
