// memory.cpp: which memory a kernel may touch, and what is wrong with how it does.

#include "machine.h"
#include "ptx.h"

#include <algorithm>
#include <cstdarg>
#include <cstdlib>

namespace emulator {

std::string format(const char *text, ...) {
    char line[512];
    va_list arguments;
    va_start(arguments, text);
    vsnprintf(line, sizeof line, text, arguments);
    va_end(arguments);
    return line;
}

static bool asked(const char *name) {
    const char *const value = getenv(name);
    return value && *value && strcmp(value, "0") != 0;
}
const Options &options() {
    static const Options all = {asked("EMULATOR_RACECHECK"), asked("EMULATOR_INITCHECK"), asked("EMULATOR_TRACE"),
                                asked("EMULATOR_PROFILE"),
                                getenv("EMULATOR_SEED") ? strtoull(getenv("EMULATOR_SEED"), nullptr, 0) : 0,
                                asked("EMULATOR_LAUNCHES") ? getenv("EMULATOR_LAUNCHES") : nullptr};
    return all;
}

Memory &global_memory() {
    static Memory &memory = *new Memory; // lives as long as threads that may still use it
    return memory;
}

void Memory::add(void *start, int64_t bytes, int device) {
    const std::lock_guard<std::mutex> lock(mutex);
    Range r;
    r.from = (uint64_t)(uintptr_t)start;
    r.to = r.from + (uint64_t)bytes;
    r.device = device;
    if (options().initcheck && device >= 0) r.written = (uint8_t *)calloc((size_t)bytes, 1);
    ranges[r.from] = r;
}

bool Memory::remove(void *start) {
    const std::lock_guard<std::mutex> lock(mutex);
    const auto found = ranges.find((uint64_t)(uintptr_t)start);
    if (found == ranges.end()) return false;
    free(found->second.written);
    ranges.erase(found);
    return true;
}

bool Memory::find(uint64_t address, Range *range) {
    const std::lock_guard<std::mutex> lock(mutex);
    auto next = ranges.upper_bound(address);
    if (next == ranges.begin()) return false;
    --next;
    if (address >= next->second.to) return false;
    *range = next->second;
    return true;
}

std::string Memory::describe(uint64_t address) {
    const std::lock_guard<std::mutex> lock(mutex);
    auto next = ranges.upper_bound(address);
    std::string text;
    if (next != ranges.begin()) {
        const Range &r = std::prev(next)->second;
        text += address < r.to ? format("%llu bytes before the end of", (unsigned long long)(r.to - address))
                               : format("%llu bytes behind", (unsigned long long)(address - r.to));
        text += format(" an allocation of %llu bytes", (unsigned long long)(r.to - r.from));
    }
    if (next != ranges.end() && next->second.from - address < 1 << 20)
        text += format("%s%llu bytes before one of %llu", text.empty() ? "" : ", ",
                       (unsigned long long)(next->second.from - address),
                       (unsigned long long)(next->second.to - next->second.from));
    return text.empty() ? "far from every allocation" : text;
}

// ---- what a lane touches -------------------------------------------------------------------------------------------

void Warp::fail(const std::string &what, int lane, int error) {
    const Code &code = *launch->code;
    const int thread = index * lanes + lane;
    const int x = (int)launch->block[0], y = (int)launch->block[1];
    std::string text = what;
    text += format("\n  block (%u,%u,%u), thread (%d,%d,%d), warp %d, lane %d", block->id[0], block->id[1],
                   block->id[2], thread % x, thread / x % y, thread / x / y, index, lane);
    const int at = std::min(place, (int)code.instructions.size() - 1);
    text += "\n  " + code.module->line(code.instructions[(size_t)at].line);
    throw Fault(text, error);
}

static void check_written(Warp &w, uint8_t *written, int bytes, int lane, bool write, uint64_t address) {
    if (write) {
        memset(written, 1, (size_t)bytes);
    } else {
        for (int i = 0; i < bytes; i++)
            if (!written[i])
                w.fail(format("reads %d bytes at %#llx that were never written", bytes, (unsigned long long)address),
                       lane);
    }
}

int Warp::number() const { return block->rank * (int)block->warps.size() + index; }

void join(Clock &to, const Clock &from) {
    if (to.size() < from.size()) to.resize(from.size());
    for (size_t i = 0; i < from.size(); i++) to[i] = std::max(to[i], from[i]);
}

void Warp::release(Clock &to) {
    if (clock.empty()) return;
    join(to, clock);
    clock[(size_t)number()]++;
}

// Two warps touch a byte, one of them to write, and no barrier orders the two.
static const char *check_race(Block &owner, uint32_t offset, int bytes, bool write, bool atomic, int me,
                              const Clock &clock, int *other) {
    for (int i = 0; i < bytes; i++) {
        Touch &t = owner.touches[offset + (uint32_t)i];
        if (t.writer >= 0 && t.writer != me && !(atomic && t.atomic) && clock[(size_t)t.writer] < t.written) {
            *other = t.writer;
            return "wrote";
        }
        if (write) {
            if (t.reader >= 0 && t.reader != me && clock[(size_t)t.reader] < t.read) {
                *other = t.reader;
                return "read";
            }
            if (t.reader == -2) {
                const Clock &all = owner.readers[t.read];
                for (size_t r = 0; r < all.size(); r++)
                    if ((int)r != me && clock[r] < all[r]) {
                        *other = (int)r;
                        return "read";
                    }
                owner.free_readers.push_back(t.read);
            }
            t.writer = (int16_t)me;
            t.written = clock[(size_t)me];
            t.atomic = atomic;
            t.reader = -1;
        } else if (t.reader == -2) {
            owner.readers[t.read][(size_t)me] = clock[(size_t)me];
        } else if (t.reader < 0 || t.reader == me || clock[(size_t)t.reader] >= t.read) {
            t.reader = (int16_t)me;
            t.read = clock[(size_t)me];
        } else {
            if (owner.free_readers.empty()) {
                owner.free_readers.push_back((uint32_t)owner.readers.size());
                owner.readers.emplace_back();
            }
            const uint32_t list = owner.free_readers.back();
            owner.free_readers.pop_back();
            Clock &all = owner.readers[list];
            all.assign(clock.size(), 0);
            all[(size_t)t.reader] = t.read;
            all[(size_t)me] = clock[(size_t)me];
            t.reader = -2;
            t.read = list;
        }
    }
    return nullptr;
}

void Warp::check(Block &owner, uint32_t offset, int bytes, bool write, int by, const Clock &when, int lane) {
    int other = 0;
    const char *const did = check_race(owner, offset, bytes, write, atomic, by, when, &other);
    if (!did) return;
    const int warps = (int)block->warps.size();
    fail(format(
             "races: %s shared bytes from %#x, which warp %d of block %d of the cluster %s, and nothing orders the two",
             write ? "writes" : "reads", offset, other % warps, other / warps, did),
         lane);
}

char *Warp::find_shared(uint32_t address, int bytes, int lane, bool write, Block **owner) {
    const uint32_t rank = address >> block_window, offset = address & ((1u << block_window) - 1);
    Block *b = block;
    if (rank) {
        if (rank > block->cluster->blocks.size())
            fail(format("no block of the cluster has shared address %#x", address), lane, FAULT_ADDRESS);
        b = block->cluster->blocks[rank - 1].get();
    }
    if (offset < (uint32_t)shared_start || (int64_t)offset + bytes > b->shared_end)
        fail(format("%s %d bytes of shared memory at %#x, outside the block's [%#x, %#llx)", write ? "writes" : "reads",
                    bytes, offset, shared_start, (unsigned long long)b->shared_end),
             lane, FAULT_ADDRESS);
    if (offset & (uint32_t)(bytes - 1))
        fail(format("shared address %#x is no multiple of %d", offset, bytes), lane, FAULT_MISALIGNED);
    if (!b->touches.empty()) check(*b, offset, bytes, write, number(), clock, lane);
    if (owner) *owner = b;
    return b->memory + offset;
}

char *Warp::find_global(uint64_t address, int bytes, int lane, bool write) {
    char *const host = (char *)(uintptr_t)address;
    if (address & (uint64_t)(bytes - 1))
        fail(format("address %#llx is no multiple of %d", (unsigned long long)address, bytes), lane, FAULT_MISALIGNED);
    for (Range &r : seen) {
        if (address < r.from || address + (uint64_t)bytes > r.to) continue;
        if (r.written) check_written(*this, r.written + (address - r.from), bytes, lane, write, address);
        return host;
    }
    for (const auto &b : block->cluster->blocks) { // a generic address of shared memory
        const int64_t offset = host - b->memory;
        if (offset >= 0 && offset < 1 << block_window && offset < b->shared_end)
            return shared((uint32_t)offset | (uint32_t)(b->rank + 1) << block_window, bytes, lane, write);
    }
    if (host >= local && host + bytes <= local + lanes * launch->local_bytes) return host;
    const char *const parameters = launch->parameters();
    if (!write && host >= parameters && host + bytes <= parameters + launch->code->function->parameter_bytes)
        return host;
    Range found;
    if (!global_memory().find(address, &found) || address + (uint64_t)bytes > found.to)
        fail(format("%s %d bytes at %#llx: %s", write ? "writes" : "reads", bytes, (unsigned long long)address,
                    global_memory().describe(address).c_str()),
             lane, FAULT_ADDRESS);
    seen[next_seen++ % 4] = found;
    if (found.written) check_written(*this, found.written + (address - found.from), bytes, lane, write, address);
    return host;
}

} // namespace emulator
