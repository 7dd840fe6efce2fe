// state.cuh: where recurrences find their states (csrc/vibrant.h, recurrences).
#pragma once

#include "runtime/common.cuh"

namespace vb {

// Indices of states. With zero nothing was computed before, and the state that lies there counts for nothing.
struct state_place {
    int64_t from, to;
    bool zero, skip;
};

// The place of batch entry b, of vb_causal_conv_args or vb_gated_delta_args.
template <typename Args>
VB_DEVICE state_place place_of(const Args &a, int64_t b) {
    const int64_t sequence = a.sequences ? a.sequences[b] : b, slots = a.slots ? a.slots : 1;
    if (!a.positions) return {sequence * slots, sequence * slots, false, false};
    const int position = a.positions[b * a.seq];
    return {sequence * slots + position % slots, sequence * slots + (position + a.seq) % slots, position == 0,
            position < 0};
}

} // namespace vb
