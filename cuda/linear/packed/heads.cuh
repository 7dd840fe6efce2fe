// heads.cuh: what becomes of q, k and v of a prompt when their sums are there: q and k are rotated (RoPE), keys and
// values go to the cache. Products whose blocks have all sums of a head at once do it themselves (StoreHeads in
// sm90_store.cuh), for others a kernel of its own does (place_kernel in place_qkv.cu).
//
//   measured on an H200: norm_qkv of 512 rows of the 3B takes 20.8 us instead of 24.1, of the 1.5B 14.8 instead of 18.3. What counts is
//            few instructions and many loads on the way, for eight warps a multiprocessor do it at the end of all. In products of
//            units that follow each other, which hand 32 tokens of 64 rows at a time through shared memory, it cost more than the
//            kernel does: 72 and 137 instead of 67 and 132 us of 2048 and 4096 rows of the 3B
#ifndef VB_LINEAR_PREFILL_HEADS_CUH
#define VB_LINEAR_PREFILL_HEADS_CUH

#include "runtime/common.cuh"

namespace vb {

struct Heads {
    const float *cos = nullptr, *sin = nullptr;           // [table_rows][pairs]
    const int *positions = nullptr, *sequences = nullptr; // as in vb_norm_qkv_args; no positions: nothing of all this
    int64_t capacity = 0;
    int seq = 1, kv_heads = 0, table_rows = 0, pairs = 0; // pairs of a head, all of which is rotated: 32 or 64
    bool neox = false, half_cache = false;                // the cache is F16, else F32

    // A token's row of the tables and of the cache as [sequence][kv_heads][capacity][dim] at its first head, -1 where it has none. No
    // cache of 2^31 rows fits in the memory of a GPU with these kernels.
    VB_DEVICE int2 place(int token) const {
        const int b = seq == 1 ? token : token / seq, position = positions[token];
        const int sequence = sequences ? sequences[b] : b;
        const bool stored = position >= 0 && position < capacity;
        return make_int2(position < table_rows ? larger(position, -1) : -1, stored ? (int)(sequence * kv_heads * capacity + position) : -1);
    }
};

} // namespace vb
#endif
