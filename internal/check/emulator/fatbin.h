// fatbin.h: the PTX in a fat binary, which nvcc puts into each object.
#ifndef EMULATOR_FATBIN_H
#define EMULATOR_FATBIN_H

#include <cstdint>
#include <string>
#include <vector>

namespace emulator {

constexpr uint32_t fatbin_magic = 0xba55ed50; // of the first four bytes

// PTX as text, and the compute capability that it needs: 90.
struct Text {
    uint32_t capability;
    std::string ptx;
};

// All PTX of a fat binary. Throws a Fault where the PTX is compressed in another way than by LZ4.
std::vector<Text> ptx_of(const char *fatbin);

// The PTX for the newest compute capability up to the one given. Throws a Fault where there is none.
std::string newest_ptx(const char *fatbin, int capability);

} // namespace emulator
#endif
