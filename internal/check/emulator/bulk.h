// bulk.h: tensor maps, which describe arrays to the copy engine of Hopper.
#ifndef EMULATOR_BULK_H
#define EMULATOR_BULK_H

#include <cstdint>

namespace emulator {

// What a CUtensorMap (128 bytes, opaque) holds here. Sizes and strides begin with the innermost dimension.
struct TensorMap {
    uint64_t address;
    uint64_t strides[4]; // bytes, of the dimensions but the first
    uint32_t sizes[5], box[5];
    uint8_t rank, element, swizzle; // element: bytes; swizzle: 0, or the pattern's bytes
    uint32_t mark;
};
static_assert(sizeof(TensorMap) <= 128, "a CUtensorMap");
constexpr uint32_t tensor_map_mark = 0x7e45a9;

} // namespace emulator
#endif
