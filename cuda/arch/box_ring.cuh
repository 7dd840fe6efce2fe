// box_ring.cuh: a ring of boxes in shared memory, which TMA fills and warps empty (capability 9.0).

#ifndef VB_CUDA_BOX_RING_CUH
#define VB_CUDA_BOX_RING_CUH

#include "arch/sm90.cuh"

#ifdef VB_SM90A

namespace vb {
namespace sm90 {

// The slot in use, and the parity of the round. The owner initializes the barriers of the slots.
struct BoxRing {
    char *slots;
    uint64_t *full, *empty;
    int bytes, count, slot = 0;
    unsigned phase = 0;

    VB_DEVICE char *at() const { return slots + slot * bytes; }
    VB_DEVICE void advance() {
        if (++slot == count) slot = 0, phase ^= 1;
    }
    VB_DEVICE void wait_full() const { barrier_wait(&full[slot], phase); }
    // Waits until the slot is empty, and says how many bytes will fill it.
    VB_DEVICE void expect() const {
        barrier_wait(&empty[slot], phase ^ 1);
        barrier_expect(&full[slot], bytes);
    }
    // Waits until the slot is empty, and has the box copied there.
    VB_DEVICE void ask(const CUtensorMap *map, int inner, int outer) {
        expect();
        copy_box(at(), map, &full[slot], inner, outer);
        advance();
    }
};

// One thread begins the barriers of two rings, whose slots `warps` warps empty, and the block's mailbox.
template <int SLOTS>
VB_DEVICE void begin_rings(uint64_t (&full)[2][SLOTS], uint64_t (&empty)[2][SLOTS], int warps, uint64_t *mailbox) {
    for (int s = 0; s < SLOTS; s++)
        for (int r = 0; r < 2; r++) {
            barrier_init(&full[r][s], 1);
            barrier_init(&empty[r][s], warps);
        }
    barrier_init(mailbox, 1);
    barrier_init_fence();
}

} // namespace sm90
} // namespace vb

#endif
#endif
