// heads.cuh: the work on q, k and v of a prompt after the products. q and k are rotated (RoPE), keys and values go to
// the cache. A product whose blocks have all sums of a head at once does the work itself (StoreHeads in
// sm90_store.cuh). For other products a kernel of its own does it (rows/rope_kv_write.cu).
// measured docs/experiments/2026-11-22-packed-many.md
#ifndef VB_LINEAR_HEADS_CUH
#define VB_LINEAR_HEADS_CUH

#include "rows/cache_slot.cuh"

namespace vb {

struct Heads {
    const float *cos = nullptr, *sin = nullptr;           // [table_rows][pairs]
    const int *positions = nullptr, *sequences = nullptr; // as in vb_norm_qkv_args; no positions: nothing of all this
    int64_t capacity = 0;
    int seq = 1, kv_heads = 0, table_rows = 0, pairs = 0; // pairs of a head, all of which is rotated: 32 or 64
    bool neox = false, half_cache = false;                // the cache is F16, else F32
    bool ring = false;                                    // as in vb_kv_write_args

    // A token's row of the tables, and its row of the cache as [sequence][kv_heads][capacity][dim] at the first head.
    // -1 stands for no row. A cache of 2^31 rows does not fit in the memory of a GPU with these kernels.
    VB_DEVICE int2 place(int token) const {
        const int b = seq == 1 ? token : token / seq, position = positions[token];
        const int sequence = sequences ? sequences[b] : b;
        const int slot = cache_slot(capacity, ring, position);
        return make_int2(position < table_rows ? larger(position, -1) : -1,
                         slot >= 0 ? (int)(sequence * kv_heads * capacity + slot) : -1);
    }
};

} // namespace vb
#endif
