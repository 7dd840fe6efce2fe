// barriers.cpp: where threads wait for each other: in a warp, a block, a cluster, and for counted bytes (mbarrier).

#include "decode.h"

namespace emulator {

void finish_bulk_copies(Warp &w, Block *block, uint32_t barrier); // bulk.cpp
void finish_all_copies(Warp &w, uint32_t mask);                   // access.cpp

// ---- of a block: bar, barrier --------------------------------------------------------------------------------------

static void open_if_complete(Block &block, NamedBarrier &b) {
    const int expected = b.expected ? b.expected : lanes * block.alive;
    if (!b.waiting && !b.expected) return;
    if (b.arrived < expected) return;
    for (Warp &w : block.warps)
        if (b.waiting >> w.index & 1) {
            w.barrier_open = true;
            w.acquire(b.clock);
        }
    const int result = b.counted << 2 | b.any << 1 | (b.all ? 1 : 0);
    b = NamedBarrier();
    b.result = result;
}

// A warp has ended: others may wait for all that are left.
void reconsider_barriers(Block &block) {
    if (!block.alive) return;
    for (NamedBarrier &b : block.barriers)
        if (!b.expected) open_if_complete(block, b);
}

static void arrive(Warp &w, const Instruction &in, bool waits) {
    const int lane = __builtin_ctz(w.mask);
    const uint32_t id = w.at<uint32_t>(in.a)[lane];
    if (id > 15) w.fail(format("there is no barrier %u", id), lane, FAULT_INSTRUCTION);
    NamedBarrier &b = w.block->barriers[id];
    const int expected = in.b.bytes ? (int)w.at<uint32_t>(in.b)[lane] : 0;
    if (expected % lanes)
        w.fail(format("barrier %u of %d threads, no multiple of a warp", id, expected), lane, FAULT_INSTRUCTION);
    if (b.arrived && b.expected != expected)
        w.fail(format("barrier %u of %d threads, where others came to one of %d", id, expected, b.expected), lane,
               FAULT_INSTRUCTION);
    b.expected = expected;
    b.arrived += lanes;
    w.release(b.clock);
    if (in.c.bytes) {
        uint32_t p = *w.predicate(in.c);
        if (in.count) p = ~p;
        b.any |= (p & w.mask) != 0;
        b.all &= (p & w.mask) == w.mask;
        b.counted += __builtin_popcount(p & w.mask);
    }
    if (waits) {
        b.waiting |= 1ull << w.index;
        w.barrier = (int)id;
        w.barrier_open = false;
    }
    open_if_complete(*w.block, b);
}

static Outcome wait_barrier(Warp &w, const Instruction &in) {
    if (w.mask != w.alive) return AGAIN; // the others have yet to come here
    if (w.barrier < 0) arrive(w, in, true);
    if (!w.barrier_open) return AGAIN;
    const int result = w.block->barriers[w.barrier].result;
    w.barrier = -1;
    if (in.number == 1) {
        each_lane(w.mask, [&](int i) { w.at<uint32_t>(in.d)[i] = (uint32_t)(result >> 2); });
    } else if (in.number) {
        uint32_t *const p = w.predicate(in.d);
        *p = result & (in.number == 2 ? 1 : 2) ? *p | w.mask : *p & ~w.mask;
    }
    return DONE;
}

static bool all_here(Warp &w, Slot members);
static Outcome wait_lanes(Warp &w, const Instruction &in) { return all_here(w, in.a) ? DONE : AGAIN; }

static Outcome wait_cluster(Warp &w, const Instruction &) {
    for (uint32_t rest = w.mask; rest; rest &= rest - 1)
        if (w.cluster_phase[__builtin_ctz(rest)] == w.block->cluster->phase) return AGAIN;
    w.acquire(w.block->cluster->passed);
    return DONE;
}

void arrive_at_cluster(Warp &w, uint32_t mask) {
    Cluster &c = *w.block->cluster;
    const uint32_t fresh = mask & ~w.cluster_arrived;
    w.cluster_arrived |= fresh;
    c.pending -= __builtin_popcount(fresh);
    w.release(c.arrived);
    each_lane(mask, [&](int i) { w.cluster_phase[i] = c.phase; });
}
void complete_cluster(Cluster &c) {
    if (c.pending || !c.alive) return;
    c.phase++;
    c.pending = c.alive;
    for (const auto &b : c.blocks)
        for (Warp &w : b->warps) w.cluster_arrived = 0;
    c.passed = c.arrived;
    c.arrived.clear();
}

static void build_barrier(Decoder &d, Instruction &in) {
    if (d.word(0) == "barrier" && d.has("cluster")) {
        if (d.has("arrive")) {
            in.run = [](Warp &w, const Instruction &) {
                if (w.mask & w.cluster_arrived)
                    w.fail("arrives twice at the cluster's barrier", __builtin_ctz(w.mask & w.cluster_arrived));
                arrive_at_cluster(w, w.mask);
                complete_cluster(*w.block->cluster);
            };
        } else {
            in.kind = WAITS;
            in.wait = wait_cluster;
        }
        return;
    }
    if (d.has("warp")) { // bar.warp.sync
        in.kind = WAITS;
        in.a = d.slot((size_t)0, Type::U32);
        in.wait = wait_lanes;
        return;
    }
    size_t first = 0;
    in.number = 0;
    if (d.has("red")) {
        in.number = d.has("popc") ? 1 : d.has("and") ? 2 : 3;
        in.d = d.slot((size_t)0, in.number == 1 ? Type::U32 : Type::PRED);
        in.c = d.slot(d.operands() - 1, Type::PRED);
        in.count = d.operand(d.operands() - 1).negated;
        first = 1;
    }
    in.a = d.slot(first, Type::U32);
    if (d.operands() - (d.has("red") ? 1 : 0) > first + 1) in.b = d.slot(first + 1, Type::U32);
    if (d.has("arrive")) {
        in.kind = WAITS; // for the other lanes of its warp
        in.wait = [](Warp &w, const Instruction &b) {
            if (w.mask != w.alive) return AGAIN;
            arrive(w, b, false);
            return DONE;
        };
    } else {
        in.kind = WAITS;
        in.wait = wait_barrier;
    }
}

// ---- mbarrier ------------------------------------------------------------------------------------------------------

// 64 bits: how many arrivals a phase has (20), how many are missing (20), bytes that are (22, with a sign), the phase (1).
struct Counted {
    int expected, pending, bytes, phase;
};
constexpr uint64_t mark = 1; // bit 63 - 1: it was initialized

static Counted unpack(uint64_t word) {
    return {(int)(word & 0xfffff), (int)(word >> 20 & 0xfffff), (int)((int64_t)(word << 2) >> 42), (int)(word >> 63)};
}
static uint64_t pack(const Counted &c) {
    return (uint64_t)c.expected | (uint64_t)c.pending << 20 | ((uint64_t)c.bytes & 0x3fffff) << 40 | mark << 62 |
           (uint64_t)c.phase << 63;
}

static void complete(Counted &c) {
    if (c.pending || c.bytes) return;
    c.pending = c.expected;
    c.phase ^= 1;
}

// An mbarrier: its word, which is no race, and what its arrivals have seen.
struct Place {
    uint64_t *word;
    Clock *clock;
};
static Place barrier_at(Warp &w, uint32_t address, int lane, bool initialize = false) {
    const uint32_t rank = address >> block_window, offset = address & ((1u << block_window) - 1);
    Block *owner = rank && rank <= w.block->cluster->blocks.size() ? w.block->cluster->blocks[rank - 1].get() : w.block;
    std::vector<Touch> aside;
    owner->touches.swap(aside);
    uint64_t *const word = (uint64_t *)w.shared(address, 8, lane, true);
    owner->touches.swap(aside);
    if (initialize) owner->counted[offset].clear();
    const auto known = owner->counted.find(offset);
    if (known == owner->counted.end()) w.fail(format("no mbarrier was initialized at %#x", offset), lane);
    return {word, &known->second};
}

// Arrivals and bytes change a barrier.
static void change(Warp &w, uint32_t address, int lane, int arrivals, int64_t bytes) {
    uint64_t *const word = barrier_at(w, address, lane).word;
    Counted c = unpack(*word);
    if (arrivals > c.pending)
        w.fail(format("%d arrivals at a barrier that expects %d more", arrivals, c.pending), lane);
    c.pending -= arrivals;
    c.bytes += (int)bytes;
    complete(c);
    *word = pack(c);
}

void complete_bytes(Warp &w, uint32_t barrier, int64_t bytes, int lane, const Clock *began) {
    if (began) join(*barrier_at(w, barrier, lane).clock, *began);
    else w.release(*barrier_at(w, barrier, lane).clock);
    change(w, barrier, lane, 0, -bytes);
}

static inline uint32_t address_of(Warp &w, const Instruction &in, int i) {
    return (in.a.bytes == 4 ? w.at<uint32_t>(in.a)[i] : (uint32_t)w.at<uint64_t>(in.a)[i]) + (uint32_t)in.number;
}

static void build_counted(Decoder &d, Instruction &in) {
    const std::string &what = d.word(1);
    if (what == "init") {
        d.address(in, d.operand(0));
        in.b = d.slot(1, Type::U32);
        in.run = [](Warp &w, const Instruction &m) {
            for (uint32_t rest = w.mask; rest; rest &= rest - 1) {
                const int i = __builtin_ctz(rest), count = (int)w.at<uint32_t>(m.b)[i];
                *barrier_at(w, address_of(w, m, i), i, true).word = pack({count, count, 0, 0});
            }
        };
    } else if (what == "inval") {
        d.address(in, d.operand(0));
        in.run = [](Warp &w, const Instruction &m) {
            for (uint32_t rest = w.mask; rest; rest &= rest - 1) {
                const int i = __builtin_ctz(rest);
                barrier_at(w, address_of(w, m, i), i);
                w.block->counted.erase(address_of(w, m, i));
            }
        };
    } else if (what == "arrive" || what == "expect_tx" || what == "complete_tx") {
        const bool returns = what == "arrive";
        const size_t first = returns ? 1 : 0;
        if (returns) in.d = d.slot((size_t)0, Type::U64);
        d.address(in, d.operand(first));
        in.target = returns ? 1 : 0; // arrivals
        const bool bytes = what != "arrive" || d.has("expect_tx");
        if (d.has("noComplete") || what == "complete_tx") d.unknown();
        if (bytes) in.b = d.slot(first + 1, Type::U32);
        else if (d.operands() > first + 1) in.c = d.slot(first + 1, Type::U32);
        in.run = [](Warp &w, const Instruction &m) {
            for (uint32_t rest = w.mask; rest; rest &= rest - 1) {
                const int i = __builtin_ctz(rest);
                const uint32_t address = address_of(w, m, i);
                if (m.d.bytes) w.at<uint64_t>(m.d)[i] = *barrier_at(w, address, i).word;
                w.release(*barrier_at(w, address, i).clock);
                const int arrivals = m.c.bytes ? (int)w.at<uint32_t>(m.c)[i] : m.target;
                change(w, address, i, arrivals, m.b.bytes ? w.at<uint32_t>(m.b)[i] : 0);
            }
        };
    } else if (what == "try_wait" || what == "test_wait") {
        in.d = d.slot((size_t)0, Type::PRED);
        d.address(in, d.operand(1));
        in.target = d.has("parity");
        in.b = d.slot(2, in.target ? Type::U32 : Type::U64);
        in.count = what == "test_wait";
        in.kind = WAITS;
        in.wait = [](Warp &w, const Instruction &m) {
            uint32_t done = 0;
            for (uint32_t rest = w.mask; rest; rest &= rest - 1) {
                const int i = __builtin_ctz(rest);
                const uint32_t address = address_of(w, m, i);
                const Place barrier = barrier_at(w, address, i);
                uint64_t *const word = barrier.word;
                const int phase = m.target ? (int)(w.at<uint32_t>(m.b)[i] & 1) : unpack(w.at<uint64_t>(m.b)[i]).phase;
                if (unpack(*word).phase == phase) finish_bulk_copies(w, w.block, address);
                if (unpack(*word).phase == phase) continue;
                done |= 1u << i;
                w.acquire(*barrier.clock);
            }
            if (!m.count && done != w.mask) return AGAIN;
            uint32_t *const p = w.predicate(m.d);
            *p = (*p & ~w.mask) | done;
            return done == w.mask ? DONE : YIELD;
        };
    } else {
        d.unknown();
    }
}

// ---- between the lanes of a warp -----------------------------------------------------------------------------------

// Whether the lanes have come that an instruction names; parts of a warp may name their own. `members` is an operand.
static bool all_here(Warp &w, Slot members) {
    const uint32_t *const named = w.at<uint32_t>(members);
    for (uint32_t rest = w.mask; rest; rest &= rest - 1) {
        const int i = __builtin_ctz(rest);
        if (!(named[i] >> i & 1)) w.fail(format("the lane is not among those of %#x that it names", named[i]), i);
        if (named[i] & w.alive & ~w.mask) return false;
    }
    return true;
}

// Calls f(mask) for the lanes of each part.
template <class F> static void each_part(Warp &w, Slot members, F f) {
    for (uint32_t rest = w.mask; rest;) {
        const uint32_t part = w.at<uint32_t>(members)[__builtin_ctz(rest)] & w.mask;
        f(part);
        rest &= ~part;
    }
}

enum Shuffle { UP, DOWN, BUTTERFLY, INDEX };

static Outcome shuffle(Warp &w, const Instruction &in) {
    if (!all_here(w, (*in.more)[0])) return AGAIN;
    uint32_t from[lanes], inside = 0;
    memcpy(from, w.at<uint32_t>(in.a), sizeof from);
    const uint32_t *const b = w.at<uint32_t>(in.b), *const c = w.at<uint32_t>(in.c);
    uint32_t *const d = w.at<uint32_t>(in.d);
    for (uint32_t rest = w.mask; rest; rest &= rest - 1) {
        const int i = __builtin_ctz(rest);
        const int by = (int)(b[i] & 31), clamp = (int)(c[i] & 31), segment = (int)(c[i] >> 8 & 31);
        const int last = (i & segment) | (clamp & ~segment);
        int j = 0;
        bool valid = false;
        switch (in.number) {
        case UP: j = i - by, valid = j >= last; break;
        case DOWN: j = i + by, valid = j <= last; break;
        case BUTTERFLY: j = i ^ by, valid = j <= last; break;
        default: j = (i & segment) | (by & ~segment & 31), valid = j <= last;
        }
        d[i] = from[valid ? j : i];
        inside |= (uint32_t)valid << i;
    }
    if (in.more->size() > 1) {
        uint32_t *const p = w.predicate((*in.more)[1]);
        *p = (*p & ~w.mask) | inside;
    }
    return DONE;
}

static void build_shuffle(Decoder &d, Instruction &in) {
    in.kind = WAITS;
    in.wait = shuffle;
    in.d = d.slot((size_t)0, Type::U32);
    in.a = d.slot(1, Type::U32);
    in.b = d.slot(2, Type::U32);
    in.c = d.slot(3, Type::U32);
    std::vector<Slot> more = {d.slot(4, Type::U32)};
    if (!d.operand(0).parts.empty()) more.push_back(d.slot(d.operand(0).parts[0], Type::PRED));
    in.more = d.list(more);
    in.number = d.has("up") ? UP : d.has("down") ? DOWN : d.has("bfly") ? BUTTERFLY : INDEX;
}

static void build_vote(Decoder &d, Instruction &in) {
    in.kind = WAITS;
    const bool ballot = d.has("ballot");
    in.d = d.slot((size_t)0, ballot ? Type::U32 : Type::PRED);
    in.a = d.slot(1, Type::PRED);
    in.count = d.operand(1).negated;
    in.b = d.slot(2, Type::U32);
    in.number = ballot ? 0 : d.has("all") ? 1 : d.has("any") ? 2 : 3;
    in.wait = [](Warp &w, const Instruction &v) {
        if (!all_here(w, v.b)) return AGAIN;
        const uint32_t p = v.count ? ~*w.predicate(v.a) : *w.predicate(v.a);
        each_part(w, v.b, [&](uint32_t mask) {
            if (v.number == 0) {
                each_lane(mask, [&](int i) { w.at<uint32_t>(v.d)[i] = p & mask; });
                return;
            }
            const bool all = (p & mask) == mask, none = !(p & mask);
            uint32_t *const o = w.predicate(v.d);
            *o = (v.number == 1 ? all : v.number == 2 ? !none : all || none) ? *o | mask : *o & ~mask;
        });
        return DONE;
    };
}

static void build_match(Decoder &d, Instruction &in) {
    in.kind = WAITS;
    in.d = d.slot((size_t)0, Type::U32);
    in.a = d.slot(1, d.type());
    in.b = d.slot(2, Type::U32);
    in.number = d.has("all");
    if (in.number && !d.operand(0).parts.empty()) in.c = d.slot(d.operand(0).parts[0], Type::PRED);
    in.wait = [](Warp &w, const Instruction &m) {
        if (!all_here(w, m.b)) return AGAIN;
        const auto value = [&](int i) { return m.a.bytes == 8 ? w.at<uint64_t>(m.a)[i] : w.at<uint32_t>(m.a)[i]; };
        each_part(w, m.b, [&](uint32_t mask) {
            uint32_t same[lanes] = {};
            bool all = true;
            for (int i = 0; i < lanes; i++) {
                if (!(mask >> i & 1)) continue;
                for (int j = 0; j < lanes; j++) same[i] |= (uint32_t)(mask >> j & 1 && value(j) == value(i)) << j;
                all &= same[i] == mask;
            }
            each_lane(mask, [&](int i) { w.at<uint32_t>(m.d)[i] = m.number ? all ? mask : 0 : same[i]; });
            if (!m.c.bytes) return;
            uint32_t *const p = w.predicate(m.c);
            *p = all ? *p | mask : *p & ~mask;
        });
        return DONE;
    };
}

static void build_reduce(Decoder &d, Instruction &in) { // redux
    in.kind = WAITS;
    in.d = d.slot((size_t)0, Type::U32);
    in.a = d.slot(1, Type::U32);
    in.b = d.slot(2, Type::U32);
    const bool is_signed = d.type() == Type::S32;
    if (d.type() == Type::F32) d.unknown();
    in.number = d.has("add")   ? 0
                : d.has("and") ? 1
                : d.has("or")  ? 2
                : d.has("xor") ? 3
                : d.has("min") ? 4 + is_signed
                               : 6 + is_signed;
    in.wait = [](Warp &w, const Instruction &r) {
        if (!all_here(w, r.b)) return AGAIN;
        each_part(w, r.b, [&](uint32_t mask) {
            const uint32_t *const a = w.at<uint32_t>(r.a);
            uint32_t x = a[__builtin_ctz(mask)];
            for (uint32_t rest = mask & (mask - 1); rest; rest &= rest - 1) {
                const uint32_t y = a[__builtin_ctz(rest)];
                switch (r.number) {
                case 0: x += y; break;
                case 1: x &= y; break;
                case 2: x |= y; break;
                case 3: x ^= y; break;
                case 4: x = y < x ? y : x; break;
                case 5: x = (int32_t)y < (int32_t)x ? y : x; break;
                case 6: x = y > x ? y : x; break;
                default: x = (int32_t)y > (int32_t)x ? y : x;
                }
            }
            each_lane(mask, [&](int i) { w.at<uint32_t>(r.d)[i] = x; });
        });
        return DONE;
    };
}

static void build_elect(Decoder &d, Instruction &in) {
    in.kind = WAITS;
    in.d = d.slot((size_t)0, Type::U32);
    in.c = d.slot(d.operand(0).parts.empty() ? d.operand(0) : d.operand(0).parts[0], Type::PRED);
    in.b = d.slot(1, Type::U32);
    in.wait = [](Warp &w, const Instruction &e) {
        if (!all_here(w, e.b)) return AGAIN;
        const uint32_t leader = w.mask & (0 - w.mask);
        each_lane(w.mask, [&](int i) { w.at<uint32_t>(e.d)[i] = (uint32_t)__builtin_ctz(leader); });
        uint32_t *const p = w.predicate(e.c);
        *p = (*p & ~w.mask) | leader;
        return DONE;
    };
}

static void build_active(Decoder &d, Instruction &in) {
    in.d = d.slot((size_t)0, Type::U32);
    in.run = [](Warp &w, const Instruction &a) { each_lane(w.mask, [&](int i) { w.at<uint32_t>(a.d)[i] = w.mask; }); };
}

static void build_sleep(Decoder &, Instruction &in) {
    in.kind = WAITS;
    in.wait = [](Warp &, const Instruction &) { return YIELD; };
}

static const Opcode bar("bar", build_barrier), barrier_("barrier", build_barrier), mbarrier("mbarrier", build_counted),
    shfl("shfl", build_shuffle), vote("vote", build_vote), match("match", build_match), redux("redux", build_reduce),
    elect("elect", build_elect), activemask("activemask", build_active), nanosleep_("nanosleep", build_sleep);

} // namespace emulator
