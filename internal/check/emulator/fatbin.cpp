// fatbin.cpp: finds PTX in a fat binary: a header, then an entry for the machine code or the PTX of each architecture.
// NVIDIA does not document the layout; its fields were read off objects of CUDA 12 and 13.

#include "fatbin.h"
#include "machine.h"

#include <cctype>
#include <cstring>

namespace emulator {
namespace {

struct Header {
    uint32_t magic;
    uint16_t version, bytes; // of the header
    uint64_t entry_bytes;    // of all entries
};
enum Kind : uint16_t { PTX = 1 };
enum Flags : uint64_t { LZ4 = 0x2000, ZSTD = 0x8000 };
struct Entry {
    Kind kind;
    uint16_t version;
    uint32_t header_bytes;
    uint64_t bytes; // behind the header
    uint32_t compressed_bytes, options;
    uint16_t minor, major;
    uint32_t arch, name_at, name_bytes;
    uint64_t flags, unused, uncompressed_bytes;
};
static_assert(sizeof(Entry) == 64, "as nvcc lays it out");

[[noreturn]] void damaged() { throw Fault("the compressed PTX is damaged", FAULT_IMAGE); }

// LZ4's block format (lz4_Block_format.md of github.com/lz4/lz4): literals, then a copy of earlier bytes, and so on.
std::string decompress(const uint8_t *from, size_t bytes, size_t uncompressed) {
    const uint8_t *const end = from + bytes;
    std::string to;
    const auto length = [&](size_t n) { // a nibble, continued in bytes where it is 15
        uint8_t more = 255;
        if (n == 15)
            for (; more == 255; n += more = *from++)
                if (from == end) damaged();
        return n;
    };
    while (from < end) {
        const uint8_t token = *from++;
        const size_t literals = length(token >> 4);
        if (literals > (size_t)(end - from) || to.size() + literals > uncompressed) damaged();
        to.append((const char *)from, literals);
        from += literals;
        if (from == end) break; // the last sequence has literals alone
        if (end - from < 2) damaged();
        const size_t distance = from[0] | from[1] << 8;
        from += 2;
        const size_t copied = length(token & 15) + 4;
        if (distance == 0 || distance > to.size() || to.size() + copied > uncompressed) damaged();
        for (size_t i = 0; i < copied; i++) to += to[to.size() - distance]; // both may overlap
    }
    if (to.size() != uncompressed) damaged();
    return to;
}

} // namespace

std::vector<Text> ptx_of(const char *fatbin) {
    Header header;
    memcpy(&header, fatbin, sizeof header);
    std::vector<Text> all;
    const char *at = fatbin + header.bytes, *const end = at + header.entry_bytes;
    while (at < end) {
        Entry e;
        memcpy(&e, at, sizeof e);
        const char *const data = at + e.header_bytes;
        at = data + e.bytes;
        if (e.kind != PTX) continue;
        if (e.flags & ZSTD)
            throw Fault("the PTX is compressed with zstd: compile with EMULATED=too", FAULT_IMAGE);
        std::string text = e.flags & LZ4 ? decompress((const uint8_t *)data, e.compressed_bytes, e.uncompressed_bytes)
                                         : std::string(data, e.bytes);
        text.resize(strnlen(text.data(), text.size())); // NUL ends it before
        all.push_back({e.arch, std::move(text)});
    }
    return all;
}

std::string newest_ptx(const char *fatbin, int capability) {
    Text best = {0, ""};
    for (Text &t : ptx_of(fatbin))
        if (t.capability > best.capability && (int)t.capability <= capability) best = std::move(t);
    if (!best.capability) throw Fault("no PTX that this device runs", FAULT_NO_IMAGE);
    return best.ptx;
}

} // namespace emulator
