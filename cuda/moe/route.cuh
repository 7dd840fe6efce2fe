// route.cuh: the k experts of a row of logits and their weights (vb_route_args), by one warp.
#ifndef VB_MOE_ROUTE_CUH
#define VB_MOE_ROUTE_CUH

#include "arch/group_sync.cuh"
#include "rows/order_key.cuh"

namespace vb {

VB_DEVICE Key greatest_key(Key key) {
#if __CUDA_ARCH__ >= 800
    const unsigned high = __reduce_max_sync(all_lanes, (unsigned)(key >> 32));
    return (Key)high << 32 | __reduce_max_sync(all_lanes, (unsigned)(key >> 32) == high ? (unsigned)key : 0);
#else
#pragma unroll
    for (int offset = 16; offset > 0; offset /= 2) key = larger(key, __shfl_xor_sync(all_lanes, key, offset));
    return key;
#endif
}

// The value that an order or a key was made of, but for -0 and the payload of NaN.
VB_DEVICE float value_of(unsigned order) {
    return __uint_as_float(order ^ (order >> 31 ? 0x80000000u : 0xffffffffu));
}
VB_DEVICE float value_of(Key key) { return value_of(unsigned(key >> 32)); }

// The score of each expert before it is divided by `sum`, as the contract's gating says.
VB_DEVICE float score_of(const vb_route_args &a, float logit, float max) {
    return a.gating == VB_GATING_SIGMOID ? 1.0f / (1.0f + expf(-logit)) : expf(logit - max);
}

// Clears the keys of all groups but the best.
VB_DEVICE void leave_groups(const vb_route_args &a, Key *keys, int lane) {
    const int groups = (int)a.groups, size = (int)a.experts / groups;
    // A lane keeps the score of each 32nd group in a bit mask of used ones: at most 1024 groups.
    unsigned used = 0;
    const auto group_score = [&](int g) {
        Key best = 0, second = 0;
        for (int e = g * size; e < (g + 1) * size; e++) {
            const Key key = keys[e];
            second = larger(second, smaller(best, key));
            best = larger(best, key);
        }
        return a.group_by_best || size == 1 ? value_of(best) : value_of(best) + value_of(second);
    };
    for (int i = 0; i < (int)a.groups_used; i++) {
        Key best = 0;
        for (int g = lane; g < groups; g += 32)
            if (!(used >> (g / 32) & 1)) best = larger(best, key_of(group_score(g), g));
        const int chosen = index_of(greatest_key(best));
        if (chosen % 32 == lane) used |= 1u << (chosen / 32);
    }
    __syncwarp();
    for (int g = lane; g < groups; g += 32)
        if (!(used >> (g / 32) & 1))
            for (int e = g * size; e < (g + 1) * size; e++) keys[e] = 0;
    __syncwarp();
}

// The greatest keys of a lane, the greatest first.
struct LaneKeys {
    static constexpr int most = 4;
    Key at[most];

    VB_DEVICE void find(const Key *keys, int experts, int lane) {
#pragma unroll
        for (int i = 0; i < most; i++) at[i] = 0;
        for (int e = lane; e < experts; e += 32) {
            Key key = keys[e];
#pragma unroll
            for (int i = 0; i < most; i++) {
                const Key lower = smaller(at[i], key);
                at[i] = larger(at[i], key), key = lower;
            }
        }
    }
    VB_DEVICE void remove_first() {
#pragma unroll
        for (int i = 0; i + 1 < most; i++) at[i] = at[i + 1];
        at[most - 1] = 0;
    }
};

// Writes ids[k] and weights[k] of the row `logits`. Of a's own pointers bias alone is read. keys is shared memory of
// the warp, [experts].
VB_DEVICE void route_row(const vb_route_args &a, int32_t *ids, float *weights, const float *logits, Key *keys,
                         int lane) {
    const int experts = (int)a.experts, k = (int)a.k;
    // Where the chosen scores are divided by their sum, the sum over all experts cancels out. The greatest logit is
    // then the first choice's, and no expert but the chosen has an exponential.
    const bool divided = a.normalized || a.gating == VB_GATING_SOFTMAX_CHOSEN, by_score = a.bias || a.groups;
    const bool shares = a.gating != VB_GATING_SIGMOID && (by_score || !divided);
    float max = Max::identity(), share = 1.0f;
    if (shares) {
        float sum = 0.0f;
        for (int e = lane; e < experts; e += 32) max = Max::combine(max, logits[e]);
        max = warp_reduce<Max>(max);
        for (int e = lane; e < experts; e += 32) sum += score_of(a, logits[e], max);
        sum = warp_reduce<Sum>(sum);
        if (a.gating == VB_GATING_SOFTMAX) share = 1.0f / sum;
    }
    for (int e = lane; e < experts; e += 32) {
        // Scores rise with logits, which have no ties that rounding made.
        float value = logits[e];
        if (by_score) value = score_of(a, value, max) * share + (a.bias ? a.bias[e] : 0.0f);
        keys[e] = key_of(value, e);
    }
    __syncwarp();
    if (a.groups > 0) leave_groups(a, keys, lane);
    // A choice is two reductions and moves of registers: all else waits until the choices are known.
    LaneKeys own;
    own.find(keys, experts, lane);
    int my_id = 0, left = LaneKeys::most; // the lane keeps the choice whose number it has
    for (int j = 0; j < k; j++) {
        const int id = index_of(greatest_key(own.at[0]));
        if (id % 32 == lane) {
            keys[id] = 0;
            own.remove_first();
            if (--left == 0 && experts > 32 * LaneKeys::most)
                own.find(keys, experts, lane), left = LaneKeys::most;
        }
        if (j == lane) my_id = id;
        if (j >= 32 && j % 32 == lane) ids[j] = id;
    }
    if (!shares && k > 0) max = logits[__shfl_sync(all_lanes, my_id, 0)];
    const auto score = [&](int id) { return score_of(a, logits[id], max) * share; };
    const float my_score = lane < k ? score(my_id) : 0.0f;
    float chosen = my_score;
    for (int j = lane + 32; j < k; j += 32) chosen += weights[j] = score(ids[j]);
    chosen = warp_reduce<Sum>(chosen);
    const float factor = divided && chosen != 0.0f ? a.scale / chosen : a.scale;
    if (lane < k) ids[lane] = my_id, weights[lane] = my_score * factor;
    for (int j = lane + 32; j < k; j += 32) weights[j] *= factor;
}

// Whether choose_few takes these arguments.
VB_DEVICE bool few_experts(const vb_route_args &a) {
    return a.experts <= 128 && a.experts % 4 == 0 && a.k <= 32 && a.groups == 0 && !a.bias;
}

struct Expert {
    int id;
    float weight;
};

// count += v > least, by two instructions.
VB_DEVICE void count_above(int &count, unsigned v, unsigned least) {
    asm("{\n"
        ".reg .pred above;\n"
        "setp.gt.u32 above, %1, %2;\n"
        "@above add.s32 %0, %0, 1;\n"
        "}" : "+r"(count) : "r"(v), "r"(least));
}

// The lanes of the warp that have the same number.
VB_DEVICE unsigned lanes_with(unsigned number) {
#if __CUDA_ARCH__ >= 700
    return __match_any_sync(all_lanes, number);
#else
    unsigned equal = 0;
#pragma unroll 1
    for (int lane = 0; lane < 32; lane++) equal |= (unsigned)(__shfl_sync(all_lanes, number, lane) == number) << lane;
    return equal;
#endif
}

// The same as route_row by a warp for each 32 experts, whose logits are there by order_of; `chosen` has room for their
// numbers. Each thread counts the experts before its own, so that no choice waits for the one before. The first warp
// returns choice j in lane j.
// The code is short and has no branches, for it comes from memory: a kernel of a step runs it once.
static __device__ __noinline__ Expert choose_few(const unsigned *orders, int *chosen, int experts, int k,
                                                 vb_gating gating, bool normalized, float scale) {
    const int e = threadIdx.x, lane = e % 32, warp = e / 32;
    const unsigned mine = e < experts ? orders[e] : 0;
    const unsigned equal = lanes_with(mine); // of which the lower ones come before
    int before[4] = {__popc(equal & ((1u << lane) - 1)), 0, 0, 0}; // in four parts, which need not wait for each other
#pragma unroll 1
    for (int first = 0; first < experts; first += 32) {
        const unsigned least = first < 32 * warp ? mine - 1 : mine; // no number has the order 0
        const uint4 *const from = reinterpret_cast<const uint4 *>(orders + first);
#pragma unroll
        for (int i = 0; i < 8; i++) {
            const uint4 v = first + 4 * i < experts ? from[i] : make_uint4(0, 0, 0, 0);
            count_above(before[0], v.x, least), count_above(before[1], v.y, least);
            count_above(before[2], v.z, least), count_above(before[3], v.w, least);
        }
    }
    const int place = before[0] + before[1] + before[2] + before[3];
    if (e < experts && place < k) chosen[place] = e;
    if (experts <= 32) __syncwarp();
    else group_sync(1, (experts + 31) / 32 * 32);
    Expert own = {0, 0};
    if (warp > 0) return own;
    const bool divided = normalized || gating == VB_GATING_SOFTMAX_CHOSEN;
    const float most = value_of(orders[chosen[0]]);
    const auto score = [&](unsigned order) {
        const float l = value_of(order);
        return gating == VB_GATING_SIGMOID ? __fdividef(1.0f, 1.0f + __expf(-l)) : __expf(l - most);
    };
    if (lane < k) own.id = chosen[lane], own.weight = score(orders[own.id]);
    float sum = own.weight;
    if (!divided && gating == VB_GATING_SOFTMAX) { // of all experts
        sum = 0;
#pragma unroll 1
        for (int i = lane; i < experts; i += 32) sum += score(orders[i]);
    }
    sum = warp_reduce<Sum>(sum);
    own.weight *= (divided || gating == VB_GATING_SOFTMAX) && sum != 0.0f ? scale / sum : scale;
    return own;
}

} // namespace vb
#endif
