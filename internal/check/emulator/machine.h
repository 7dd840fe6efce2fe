// machine.h: what runs a kernel: warps of 32 lanes, blocks with shared memory, clusters of blocks, a launch.
//
// A warp executes one instruction for all lanes of a group, the lanes that are at one place of the code. The group with
// the lowest place goes first, so that lanes which parted meet again.
#ifndef EMULATOR_MACHINE_H
#define EMULATOR_MACHINE_H

#include <atomic>
#include <cstdint>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <vector>

namespace emulator {

constexpr int lanes = 32;
constexpr uint32_t all_lanes = 0xffffffffu;
constexpr int shared_start = 1024;    // the driver keeps the first bytes of a block's shared memory
constexpr uint32_t block_window = 24; // bits of an address in a block; above, 1 + the block's rank in its cluster

// What a kernel did that a GPU would not do. `error` is a number of cudaError.
struct Fault : std::runtime_error {
    explicit Fault(const std::string &text, int error = 719) : std::runtime_error(text), error(error) {}
    int error;
};
enum {
    FAULT_IMAGE = 200, FAULT_NO_IMAGE = 209,
    FAULT_ADDRESS = 700, FAULT_INSTRUCTION = 715, FAULT_MISALIGNED = 716, FAULT_LAUNCH = 719
};

std::string format(const char *text, ...) __attribute__((format(printf, 1, 2)));

// ---- memory --------------------------------------------------------------------------------------------------------

struct Range {
    uint64_t from = 1, to = 0; // [from, to)
    int device = -1;
    uint8_t *written = nullptr; // initcheck: a byte that is not 0 for each that was written
};

// The allocations that kernels may reach.
class Memory {
  public:
    void add(void *start, int64_t bytes, int device);
    bool remove(void *start); // false where nothing starts there
    bool find(uint64_t address, Range *range);
    std::string describe(uint64_t address); // its neighbours

  private:
    std::mutex mutex;
    std::map<uint64_t, Range> ranges; // by `from`
};
Memory &global_memory();

// From the environment; README.md lists them.
struct Options {
    bool racecheck, initcheck, trace, profile;
    uint64_t seed;        // of the order of warps and blocks; 0 = as they are numbered
    const char *launches; // null, or the file that names kernels, of which none runs
};
const Options &options();

// ---- code ----------------------------------------------------------------------------------------------------------

struct Warp;
struct Instruction;
struct Statement;
struct Function;
class Module;

// Where an operand lies: in the warp's registers or among the kernel's constants, 32 lanes beside each other.
struct Slot {
    int32_t offset = 0;
    uint8_t where = 0; // 0 registers, 1 constants
    uint8_t bytes = 0; // of a lane; 0 where there is none
};

enum Kind : uint8_t { PLAIN, BRANCH, EXIT, WAITS };

// What an instruction that WAITS answers.
enum Outcome { DONE, AGAIN, YIELD }; // go on; execute it again when something has changed; go on, others first

using Run = void (*)(Warp &, const Instruction &);
using Wait = Outcome (*)(Warp &, const Instruction &);

struct Instruction {
    Run run = nullptr;
    Wait wait = nullptr;
    Slot d, a, b, c;
    int32_t guard = -1; // the predicate's offset
    bool guard_negated = false;
    Kind kind = PLAIN;
    uint8_t count = 1;  // of a vector
    uint8_t base = 0;   // what an address is relative to: see Base
    int32_t target = 0; // of a branch
    int64_t number = 0; // what is added to an address, or what the instruction says
    std::vector<Slot> *more = nullptr; // operands beyond three
    int32_t line = 0;
};

struct Code {
    std::shared_ptr<Module> module;
    std::shared_ptr<Function> function;
    std::vector<Instruction> instructions;
    std::vector<char> constants;
    std::vector<std::unique_ptr<std::vector<Slot>>> lists;
    std::vector<std::pair<int, std::string>> specials; // registers that are set when a warp begins
    int64_t register_bytes = 0;
    std::atomic<uint64_t> executed{0};
};

// ---- execution -----------------------------------------------------------------------------------------------------

struct Launch;
struct Block;
struct Cluster;

struct Group {
    int place;
    uint32_t mask;
    bool waits; // for what another group or warp does
};

// A vector clock: for each warp of the cluster, how much of what it did is known to have happened before. Empty without
// racecheck.
using Clock = std::vector<uint32_t>;
void join(Clock &to, const Clock &from);

// A copy that is under way: its bytes arrive when they are waited for.
struct AsyncCopy {
    char *to;
    const char *from;
    int bytes, valid; // the others are zeros
    int lane, group;
};

struct Warp {
    char *base[2]; // registers, constants
    uint32_t mask; // of the lanes that execute
    int place;
    Block *block;
    Launch *launch;
    int index;       // in its block
    uint32_t alive;  // lanes that have not ended
    std::vector<Group> groups;
    uint32_t carry;
    char *local;     // of lane 0; a lane has launch->local_bytes
    bool yield;      // a load that may be repeated until another warp stores
    int spins;       // how many of them, weighted, since others ran
    int barrier;     // the one that it has arrived at, or -1
    bool barrier_open;
    uint32_t cluster_arrived; // lanes, in this phase of the cluster's barrier
    uint64_t cluster_phase[lanes];
    int copy_groups[lanes]; // committed
    std::vector<AsyncCopy> copies;
    Range seen[4]; // allocations that it used last
    int next_seen;
    Clock clock;      // racecheck
    bool atomic;      // what it does to shared memory at the moment
    int number() const; // in its cluster

    // What this warp has done so far, others that acquire `to` later will have seen.
    void release(Clock &to);
    void acquire(const Clock &from) { join(clock, from); }

    template <class T>
    T *at(Slot s) { return reinterpret_cast<T *>(base[s.where] + s.offset); }
    void spin(int by) { yield = (spins += by) >= 64; }
    uint32_t *predicate(Slot s) { return at<uint32_t>(s); }

    // The host's address of what a lane reads or writes, or a Fault.
    char *global(uint64_t address, int bytes, int lane, bool write) {
        if (!(address & (uint64_t)(bytes - 1)))
            for (const Range &r : seen)
                if (address >= r.from && address + (uint64_t)bytes <= r.to && !r.written)
                    return (char *)(uintptr_t)address;
        return find_global(address, bytes, lane, write);
    }
    char *find_global(uint64_t address, int bytes, int lane, bool write);
    char *shared(uint32_t address, int bytes, int lane, bool write, Block **owner = nullptr);
    char *find_shared(uint32_t address, int bytes, int lane, bool write, Block **owner);
    // Racecheck: `by` touches bytes of shared memory, of which it knows what `when` says.
    void check(Block &owner, uint32_t offset, int bytes, bool write, int by, const Clock &when, int lane);
    [[noreturn]] void fail(const std::string &what, int lane, int error = FAULT_LAUNCH);
};

struct NamedBarrier {
    int arrived = 0, expected = 0;
    uint64_t waiting = 0; // warps
    bool any = false, all = true;
    int counted = 0;
    int result = 0; // of bar.red
    Clock clock;
};

// Racecheck: who touched a byte of shared memory last, and when by the warp's own clock (see Clock).
struct Touch {
    int16_t writer = -1, reader = -1; // warps of the cluster; reader -2: several, in Block::readers[read]
    bool atomic = false;              // the write
    uint32_t written = 0, read = 0;
};

struct Block {
    Launch *launch;
    Cluster *cluster;
    int rank; // in the cluster
    uint32_t id[3];
    char *memory; // shared
    int64_t shared_end;
    std::vector<Warp> warps;
    NamedBarrier barriers[16];
    std::map<uint32_t, Clock> counted; // where an mbarrier was initialized, and what its arrivals have seen
    int alive; // warps
    std::vector<Touch> touches; // racecheck: of each byte
    std::vector<Clock> readers;
    std::vector<uint32_t> free_readers;
    std::vector<char> registers, local;
};

inline char *Warp::shared(uint32_t address, int bytes, int lane, bool write, Block **owner) {
    if (address < (uint32_t)shared_start || (int64_t)address + bytes > block->shared_end ||
        address & (uint32_t)(bytes - 1) || !block->touches.empty())
        return find_shared(address, bytes, lane, write, owner);
    if (owner) *owner = block;
    return block->memory + address;
}

// A bulk copy that is under way; it is done when its barrier is waited for.
struct BulkCopy {
    Block *barrier_block;
    uint32_t barrier;
    int64_t bytes;
    Block *to_block;
    uint32_t to;
    uint64_t from;   // of a plain copy
    const void *map; // of a tensor copy
    int coordinates[5];
    int warp;        // racecheck: who began it, in its cluster, and when
    Clock clock;
};

struct Cluster {
    uint64_t phase = 0;
    int pending = 0; // threads that have not arrived at the cluster's barrier
    int alive = 0;   // threads
    std::vector<std::unique_ptr<Block>> blocks;
    std::deque<BulkCopy> copies;
    Clock arrived, passed; // of threads at the cluster's barrier, in this phase and the last
};

struct alignas(64) ParameterChunk { // a tensor map among parameters is aligned
    char bytes[64];
};

struct Launch {
    const Code *code;
    std::vector<ParameterChunk> parameter_chunks;
    char *parameters() { return parameter_chunks.data()->bytes; }
    uint32_t grid[3], block[3];
    int cluster = 1;
    int64_t dynamic_shared = 0;
    int device = 0, capability = 90;
    int resident_blocks = 132;
    int64_t shared_bytes, local_bytes;
    std::string where; // for messages

    void run();
};

} // namespace emulator
#endif
