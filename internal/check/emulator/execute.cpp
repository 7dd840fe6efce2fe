// execute.cpp: runs a launch: warps until they wait, blocks one after the other. Blocks that wait for others of the grid
// stay, and further ones begin, as many as a GPU holds.

#include "machine.h"

#include "ptx.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <malloc.h>
#include <random>
#include <unistd.h>

namespace emulator {

void reconsider_barriers(Block &block);                // barriers.cpp
void arrive_at_cluster(Warp &w, uint32_t mask);
void complete_cluster(Cluster &c);
void finish_all_copies(Warp &w, uint32_t mask);        // access.cpp

// A warp did nothing, something before it had to wait, only loads of what others may store, or it is over.
enum SliceEnd { BLOCKED, MOVED, SPUN, ENDED };
constexpr int slice = 1 << 16; // instructions of a warp before others run

// ---- a warp --------------------------------------------------------------------------------------------------------

// Joins groups that are at the same place, and returns the one to run: the lowest that does not wait. -1: none.
static int choose(Warp &w) {
    std::vector<Group> &g = w.groups;
    for (size_t i = 0; i < g.size(); i++)
        for (size_t j = i + 1; j < g.size();) {
            if (g[i].place == g[j].place) {
                g[i].mask |= g[j].mask;
                g[i].waits = false;
                g.erase(g.begin() + (ptrdiff_t)j);
            } else {
                j++;
            }
        }
    int chosen = -1;
    for (size_t i = 0; i < g.size(); i++)
        if (!g[i].waits && (chosen < 0 || g[i].place < g[(size_t)chosen].place)) chosen = (int)i;
    return chosen;
}

static void end_lanes(Warp &w, uint32_t mask) {
    if (!w.copies.empty()) finish_all_copies(w, mask);
    w.alive &= ~mask;
    Cluster &c = *w.block->cluster;
    c.alive -= __builtin_popcount(mask);
    c.pending -= __builtin_popcount(mask & ~w.cluster_arrived);
    complete_cluster(c);
    if (w.alive) return;
    w.block->alive--;
    reconsider_barriers(*w.block);
}

static SliceEnd run_warp(Warp &w, uint64_t &executed) {
    const Instruction *const code = w.launch->code->instructions.data();
    for (Group &g : w.groups) g.waits = false;
    bool progressed = false, moved = false, spun = false;
    int budget = slice;
    w.spins = 0;
    for (;;) {
        const int chosen = choose(w);
        if (chosen < 0) {
            if (w.groups.empty()) return ENDED;
            if (spun) return SPUN;
            if (!moved) return progressed ? MOVED : BLOCKED;
            for (Group &g : w.groups) g.waits = false; // what they wait for may have been done
            moved = false;
            continue;
        }
        const size_t current = (size_t)chosen;
        const bool alone = w.groups.size() == 1;
        uint32_t mask = w.groups[current].mask;
        int place = w.groups[current].place, meet = -1;
        if (!alone) { // stop where a group is that may join
            for (const Group &g : w.groups)
                if (g.place > place && (meet < 0 || g.place < meet)) meet = g.place;
        }
        for (;;) {
            const Instruction &in = code[place];
            uint32_t active = mask;
            if (in.guard >= 0) {
                const uint32_t p = *(const uint32_t *)(w.base[0] + in.guard);
                active &= in.guard_negated ? ~p : p;
                if (!active) {
                    if (++place == meet) break;
                    continue;
                }
            }
            w.mask = active;
            w.place = place;
            executed++;
            if (in.kind == PLAIN) {
                in.run(w, in);
                place++;
                if (w.yield) {
                    w.yield = false;
                    w.spins = 0;
                    spun = true;
                    progressed = true;
                    w.groups[current].waits = true;
                    break;
                }
                if (place == meet) break;
                if (--budget <= 0) {
                    w.groups[current].place = place;
                    return MOVED;
                }
                continue;
            }
            if (in.kind == BRANCH) {
                moved = true;
                budget--;
                if (active == mask) {
                    place = in.target;
                    if (alone && budget > 0) continue;
                    if (budget <= 0) {
                        w.groups[current].place = place;
                        return MOVED;
                    }
                    break;
                }
                w.groups[current].mask = mask = mask & ~active;
                w.groups[current].place = ++place;
                w.groups.push_back({in.target, active, false});
                break;
            }
            if (in.kind == EXIT) {
                moved = true;
                end_lanes(w, active);
                mask &= ~active;
                place++;
                if (mask) {
                    w.groups[current].mask = mask;
                    if (place == meet) break;
                    continue;
                }
                w.groups.erase(w.groups.begin() + (ptrdiff_t)current);
                place = -1;
                break;
            }
            if (active != mask) { // those that do not wait go on
                w.groups[current].mask = active;
                w.groups[current].place = place;
                w.groups.push_back({place + 1, mask & ~active, false});
                place = -1;
                break;
            }
            const Outcome outcome = in.wait(w, in);
            if (outcome == AGAIN) {
                w.groups[current].waits = true;
                break;
            }
            progressed = moved = true;
            place++;
            if (outcome == YIELD) {
                spun = true;
                w.groups[current].waits = true;
                break;
            }
            if (place == meet) break;
        }
        if (place >= 0) w.groups[current].place = place;
    }
}

// ---- blocks --------------------------------------------------------------------------------------------------------

static uint32_t special_value(const Warp &w, const std::string &name, int lane) {
    const Block &b = *w.block;
    const Launch &l = *w.launch;
    const uint32_t thread = (uint32_t)(w.index * lanes + lane), x = l.block[0], y = l.block[1];
    const auto axis = [&](const char *prefix) {
        return name.rfind(prefix, 0) == 0 && name.size() == strlen(prefix) + 1 ? name.back() - 'x' : -1;
    };
    int a;
    if ((a = axis("%tid.")) >= 0) return a == 0 ? thread % x : a == 1 ? thread / x % y : thread / x / y;
    if ((a = axis("%ntid.")) >= 0) return l.block[a];
    if ((a = axis("%ctaid.")) >= 0) return b.id[a];
    if ((a = axis("%nctaid.")) >= 0) return l.grid[a];
    if ((a = axis("%cluster_ctaid.")) >= 0) return a == 0 ? (uint32_t)b.rank : 0;
    if ((a = axis("%cluster_nctaid.")) >= 0) return a == 0 ? (uint32_t)l.cluster : 1;
    if ((a = axis("%clusterid.")) >= 0) return a == 0 ? b.id[0] / (uint32_t)l.cluster : b.id[a];
    if ((a = axis("%nclusterid.")) >= 0) return a == 0 ? l.grid[0] / (uint32_t)l.cluster : l.grid[a];
    if (name == "%cluster_ctarank") return (uint32_t)b.rank;
    if (name == "%cluster_nctarank") return (uint32_t)l.cluster;
    if (name == "%laneid") return (uint32_t)lane;
    if (name == "%warpid") return (uint32_t)w.index;
    if (name == "%nwarpid") return 64;
    if (name == "%lanemask_eq") return 1u << lane;
    if (name == "%lanemask_lt") return (1u << lane) - 1;
    if (name == "%lanemask_le") return (2u << lane) - 1;
    if (name == "%lanemask_gt") return ~((2u << lane) - 1);
    if (name == "%lanemask_ge") return ~((1u << lane) - 1);
    if (name == "%smid") return (b.id[0] + b.id[1] * l.grid[0]) % (uint32_t)l.resident_blocks;
    if (name == "%nsmid") return 132;
    if (name == "%dynamic_smem_size") return (uint32_t)l.dynamic_shared;
    if (name == "%total_smem_size") return (uint32_t)l.shared_bytes;
    if (name == "%gridid" || name == "_") return 0;
    throw Fault("a special register that is not emulated: " + name, FAULT_INSTRUCTION);
}

// A cluster's memory is used again by the next one.
static void begin_block(Block &b, Cluster &c, int rank, uint32_t x, uint32_t y, uint32_t z) {
    Launch &l = *b.launch;
    const Code &code = *l.code;
    const int threads = (int)(l.block[0] * l.block[1] * l.block[2]), warps = (threads + lanes - 1) / lanes;
    b.cluster = &c;
    b.rank = rank;
    b.id[0] = x, b.id[1] = y, b.id[2] = z;
    b.shared_end = l.shared_bytes;
    memset(b.memory, 0xff, (size_t)b.shared_end); // not a number, for what is read before it is written
    b.registers.resize((size_t)(code.register_bytes * warps + 64));
    b.local.assign((size_t)(l.local_bytes * lanes * warps), (char)0xff);
    b.alive = warps;
    b.counted.clear();
    for (NamedBarrier &n : b.barriers) n = NamedBarrier();
    if (options().racecheck) b.touches.assign((size_t)b.shared_end, Touch());
    b.readers.clear();
    b.free_readers.clear();
    b.warps.resize((size_t)warps);
    char *const registers = b.registers.data() + (-(uintptr_t)b.registers.data() & 63);
    for (int i = 0; i < warps; i++) {
        Warp &w = b.warps[(size_t)i];
        w = Warp();
        w.base[0] = registers + i * code.register_bytes;
        w.base[1] = const_cast<char *>(code.constants.data());
        w.block = &b;
        w.launch = &l;
        w.index = i;
        const int count = std::min(lanes, threads - i * lanes);
        w.alive = count == lanes ? all_lanes : (1u << count) - 1;
        w.groups = {{0, w.alive, false}};
        w.local = b.local.data() + i * lanes * l.local_bytes;
        w.barrier = -1;
        if (options().racecheck) {
            w.clock.assign((size_t)(l.cluster * warps), 0);
            w.clock[(size_t)(rank * warps + i)] = 1;
        }
        for (uint64_t &phase : w.cluster_phase) phase = ~0ull;
        for (const auto &s : code.specials) {
            uint32_t *const lane_values = (uint32_t *)(w.base[0] + s.first);
            const bool each = s.second.rfind("%tid", 0) == 0 || s.second.rfind("%lane", 0) == 0; // lanes differ
            for (int lane = 0; lane < lanes; lane++)
                lane_values[lane] = each || lane == 0 ? special_value(w, s.second, lane) : lane_values[0];
        }
        c.alive += count;
    }
}

namespace {

// Memory of blocks stays with the process for the next launch, instead of coming from the kernel page by page.
[[maybe_unused]] const bool kept = mallopt(M_MMAP_THRESHOLD, 32 << 20) && mallopt(M_TRIM_THRESHOLD, 1 << 30);

// The clusters of a launch that run at a time.
class Schedule {
  public:
    explicit Schedule(Launch &l) : launch(l), random(options().seed) {
        const uint64_t clusters = (uint64_t)(l.grid[0] / (uint32_t)l.cluster) * l.grid[1] * l.grid[2];
        if (options().seed && clusters < 1 << 20) {
            for (uint64_t i = 0; i < clusters; i++) order.push_back((uint32_t)i);
            std::shuffle(order.begin(), order.end(), random);
        }
        count = clusters;
        most = std::max<size_t>(1, (size_t)(l.resident_blocks / l.cluster));
    }

    void run() {
        using Clock = std::chrono::steady_clock;
        Clock::time_point since = Clock::now();
        int idle = 0;
        for (;;) {
            if (resident.empty() && !begin()) return;
            bool spun = false, went = false;
            for (size_t i = 0; i < resident.size();) {
                Cluster &c = *resident[i];
                const SliceEnd end = run_cluster(c);
                if (end == BLOCKED) {
                    deadlock(c, "each warp waits for another");
                } else if (end == ENDED) {
                    spare.push_back(std::move(resident[i]));
                    resident.erase(resident.begin() + (ptrdiff_t)i);
                    went = true;
                } else {
                    spun = true;
                    i++;
                }
            }
            if (went) idle = 0;
            if (!spun || went) {
                since = Clock::now();
                continue;
            }
            if (++idle < 4) continue;
            if (begin()) { // those that are here may wait for blocks that have not begun
                idle = 0;
                continue;
            }
            if (idle > 100) usleep(50);
            if (Clock::now() - since > std::chrono::seconds(120)) deadlock(*resident[0], "blocks wait for 120 seconds");
        }
    }

    uint64_t executed = 0;

  private:
    Launch &launch;
    std::mt19937_64 random;
    std::vector<uint32_t> order;
    uint64_t next = 0, count;
    size_t most;
    std::vector<std::unique_ptr<Cluster>> resident, spare;
    std::vector<std::unique_ptr<char[]>> memory;

    bool begin() {
        if (next == count || resident.size() >= most) return false;
        const uint64_t number = order.empty() ? next : order[next];
        next++;
        std::unique_ptr<Cluster> c;
        if (!spare.empty()) {
            c = std::move(spare.back());
            spare.pop_back();
        } else {
            c = std::make_unique<Cluster>();
            const size_t each = ((size_t)launch.shared_bytes + 2047) / 1024 * 1024;
            memory.emplace_back(new char[each * (size_t)launch.cluster + 1024]);
            char *const start = memory.back().get() + (-(uintptr_t)memory.back().get() & 1023);
            for (int r = 0; r < launch.cluster; r++) {
                auto b = std::make_unique<Block>();
                b->launch = &launch;
                b->memory = start + (size_t)r * each;
                c->blocks.push_back(std::move(b));
            }
        }
        c->phase = 0;
        c->alive = 0;
        c->copies.clear();
        c->arrived.clear();
        c->passed.clear();
        const uint64_t across = launch.grid[0] / (uint32_t)launch.cluster;
        for (int r = 0; r < launch.cluster; r++)
            begin_block(*c->blocks[(size_t)r], *c, r,
                        (uint32_t)(number % across) * (uint32_t)launch.cluster + (uint32_t)r,
                        (uint32_t)(number / across % launch.grid[1]), (uint32_t)(number / across / launch.grid[1]));
        c->pending = c->alive;
        resident.push_back(std::move(c));
        return true;
    }

    // Runs each warp once or more; SPUN where one waits for memory alone, BLOCKED where all wait for each other.
    SliceEnd run_cluster(Cluster &c) {
        for (;;) {
            bool moved = false, spun = false;
            for (const auto &b : c.blocks) {
                const size_t n = b->warps.size(), first = options().seed ? random() % n : 0;
                for (size_t i = 0; i < n; i++) {
                    Warp &w = b->warps[(first + i) % n];
                    if (w.groups.empty() || (w.barrier >= 0 && !w.barrier_open)) continue;
                    const SliceEnd end = run_warp(w, executed);
                    spun |= end == SPUN;
                    moved |= end == MOVED || end == ENDED;
                }
            }
            if (c.alive == 0) return ENDED;
            if (!moved) return spun ? SPUN : BLOCKED;
        }
    }

    [[noreturn]] void deadlock(const Cluster &c, const char *why) {
        std::string text = std::string("deadlock: ") + why;
        int lines = 0;
        for (const auto &b : c.blocks)
            for (const Warp &w : b->warps)
                for (const Group &g : w.groups)
                    if (lines++ < 40)
                        text += format("\n  block (%u,%u,%u) warp %d lanes %08x at line %d: ", b->id[0], b->id[1],
                                       b->id[2], w.index, g.mask, launch.code->instructions[(size_t)g.place].line) +
                                launch.code->module->line(launch.code->instructions[(size_t)g.place].line);
        throw Fault(text);
    }
};

} // namespace

void Launch::run() {
    const Function &f = *code->function;
    const int64_t alignment = f.dynamic_alignment;
    shared_bytes = shared_start + (f.shared_bytes + alignment - 1) / alignment * alignment + dynamic_shared;
    local_bytes = (f.local_bytes + 15) / 16 * 16;
    Schedule schedule(*this);
    const auto begin = std::chrono::steady_clock::now();
    schedule.run();
    if (options().profile) {
        const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
        fprintf(stderr, "emulator: %.3f s, %.1f M instructions of warps: %s %s\n", seconds,
                (double)schedule.executed / 1e6, f.name.c_str(), where.c_str());
    }
}

} // namespace emulator
