// moe.cuh: the parts common to the files of mixtures of experts.
#ifndef VB_MOE_CUH
#define VB_MOE_CUH

#include "linear/linear.cuh"
#include "moe/choose.h"

namespace vb {

// Up to MOE_TILE_CHOICES sorted choices of one expert. `expert` is the number of experts for ids that name no expert.
// count 0: no tile.
struct ExpertTile {
    int expert, first, count;
};

// Choices by expert: order[choices], and the tiles that they make, moe_tile_slots of them.
struct SortedChoices {
    int *order;
    ExpertTile *tiles;
};
inline int64_t sorted_choices_bytes(int64_t choices, int64_t experts) {
    return choices * (int64_t)sizeof(int) + moe_tile_slots(choices, experts) * (int64_t)sizeof(ExpertTile);
}
// Sorts choices by expert in one kernel, into `memory` of sorted_choices_bytes.
vb_status sort_choices(SortedChoices *to, void *memory, const int32_t *ids, int64_t choices, int64_t experts,
                       vb_stream *stream);

// Packed experts (expert_n1.cu, expert_many.cu); the chooser has checked the arguments. hopper: by expert_many_sm90.cu.
vb_status expert_feed_forward_n1(const vb_expert_feed_forward_args &args, const moe_choice &choice, vb_stream *stream);
vb_status expert_feed_forward_many(const vb_expert_feed_forward_args &args, bool hopper, vb_stream *stream);
vb_status expert_linear_many(const vb_expert_linear_args &args, bool hopper, vb_stream *stream);

VB_DEVICE float not_a_number() { return __uint_as_float(0x7fc00000u); }

} // namespace vb
#endif
