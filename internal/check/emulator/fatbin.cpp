// fatbin.cpp: finds PTX in a fat binary: a header, then an entry for the machine code or the PTX of each architecture.
// NVIDIA does not document the layout; its fields were read off objects of CUDA 12 and 13.

#include "fatbin.h"
#include "machine.h"

#include <algorithm>
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
    to.reserve(uncompressed);
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
        // Both may overlap: the last `distance` bytes repeat.
        for (size_t left = copied, part; left; left -= part)
            part = std::min(left, distance), to.append(to, to.size() - distance, part);
    }
    if (to.size() != uncompressed) damaged();
    return to;
}

// Calls f with each entry of PTX and its bytes.
template <class F> void each_ptx(const char *fatbin, F f) {
    Header header;
    memcpy(&header, fatbin, sizeof header);
    const char *at = fatbin + header.bytes, *const end = at + header.entry_bytes;
    while (at < end) {
        Entry e;
        memcpy(&e, at, sizeof e);
        if (e.kind == PTX) f(e, at + e.header_bytes);
        at += e.header_bytes + e.bytes;
    }
}

std::string text_of(const Entry &e, const char *data) {
    if (e.flags & ZSTD) throw Fault("the PTX is compressed with zstd: compile with EMULATED=too", FAULT_IMAGE);
    std::string text = e.flags & LZ4 ? decompress((const uint8_t *)data, e.compressed_bytes, e.uncompressed_bytes)
                                     : std::string(data, e.bytes);
    text.resize(strnlen(text.data(), text.size())); // NUL ends it before
    return text;
}

} // namespace

std::vector<Text> ptx_of(const char *fatbin) {
    std::vector<Text> all;
    each_ptx(fatbin, [&](const Entry &e, const char *data) { all.push_back({e.arch, text_of(e, data)}); });
    return all;
}

std::string newest_ptx(const char *fatbin, int capability) {
    Entry best{};
    const char *data = nullptr;
    each_ptx(fatbin, [&](const Entry &e, const char *its) {
        if (e.arch > best.arch && (int)e.arch <= capability) best = e, data = its;
    });
    if (!data) throw Fault("no PTX that this device runs", FAULT_NO_IMAGE);
    return text_of(best, data);
}

} // namespace emulator
