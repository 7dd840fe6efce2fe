// streaming.cuh: reads that are not repeated.
//
// StreamReader is for arrays that are larger than the L2 cache, in kernels that write as much as they read.
// Its reads ask the L2 to keep their lines longest (evict_last), though no kernel reads the lines again.
// So written lines make room first, and the memory turns between reading and writing less often.
// Smaller arrays are read as usual, so as not to drive other arrays out of the cache.
// Measured: docs/experiments/2026-11-22-rows.md.

#ifndef VB_CUDA_STREAMING_CUH
#define VB_CUDA_STREAMING_CUH

#include "runtime/common.cuh"

namespace vb {

inline bool beyond_l2(int64_t bytes, vb_stream *stream) { return bytes > l2_bytes(stream); }

// 16 bytes that no thread writes while the kernel runs, and that are read once: they need no place in the L1 cache.
template <class V>
VB_DEVICE V load_once(const V *at) {
#if __CUDA_ARCH__ >= 700
    union Bits {
        uint4 words;
        V vector;
        VB_DEVICE Bits() {}
    } bits;
    if (sizeof(V) == 16) {
        asm volatile("ld.global.nc.L1::no_allocate.v4.b32 {%0, %1, %2, %3}, [%4];"
                     : "=r"(bits.words.x), "=r"(bits.words.y), "=r"(bits.words.z), "=r"(bits.words.w)
                     : "l"(at));
        return bits.vector;
    }
#endif
    return *at; // of another size, or on an older GPU
}

class StreamReader {
    uint64_t policy;

  public:
    VB_DEVICE explicit StreamReader(bool beyond_l2) : policy(0) {
#if __CUDA_ARCH__ >= 800
        uint64_t normal;
        asm("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(policy));
        asm("createpolicy.fractional.L2::evict_normal.b64 %0, 1.0;" : "=l"(normal));
        if (!beyond_l2) policy = normal;
#else
        (void)beyond_l2;
#endif
    }
    // V is 16 bytes. May be a place that this kernel writes later.
    template <class V>
    VB_DEVICE V load(const V *at) const {
        static_assert(sizeof(V) == 16, "");
        union Bits {
            uint4 words;
            V vector;
            VB_DEVICE Bits() {}
        } bits;
#if __CUDA_ARCH__ >= 800
        asm volatile("ld.global.L2::cache_hint.v4.b32 {%0, %1, %2, %3}, [%4], %5;"
                     : "=r"(bits.words.x), "=r"(bits.words.y), "=r"(bits.words.z), "=r"(bits.words.w)
                     : "l"(at), "l"(policy));
#else
        bits.words = *reinterpret_cast<const uint4 *>(at);
#endif
        return bits.vector;
    }
};

} // namespace vb
#endif
