// move.cpp: mov, which also joins registers to a wider one and parts one, and reads addresses and special registers.

#include "builders.h"

#include <ctime>

namespace emulator {

struct Move { template <class T> T operator()(T a) const { return a; } };
struct First { uint32_t operator()(uint32_t a, uint32_t) const { return a; } };

template <class Whole, class Part> void join(Warp &w, const Instruction &in) {
    Whole *const d = w.at<Whole>(in.d);
    each_lane(w.mask, [&](int i) {
        Whole all = 0;
        for (size_t k = 0; k < in.more->size(); k++)
            all |= (Whole)w.at<Part>((*in.more)[k])[i] << (8 * sizeof(Part) * k);
        d[i] = all;
    });
}
template <class Whole, class Part> void part(Warp &w, const Instruction &in) {
    const Whole *const a = w.at<Whole>(in.a);
    for (size_t k = 0; k < in.more->size(); k++) // the source may not be among the parts
        each_lane(w.mask, [&](int i) { w.at<Part>((*in.more)[k])[i] = (Part)(a[i] >> (8 * sizeof(Part) * k)); });
}

// A word of 128 bits lies as 32 lower halves, then 32 upper ones.
static Slot upper(Slot s) {
    s.offset += 256;
    return s;
}

static void build_move(Decoder &d, Instruction &in) {
    const Type type = d.type();
    const Operand &to = d.operand(0), &from = d.operand(1);
    if (type == Type::B128) {
        in.run = [](Warp &w, const Instruction &m) {
            uint64_t *const low = w.at<uint64_t>(m.d), *const high = w.at<uint64_t>((*m.more)[0]);
            const uint64_t *const a = w.at<uint64_t>(m.a), *const b = w.at<uint64_t>(m.b);
            each_lane(w.mask, [&](int i) { low[i] = a[i], high[i] = b[i]; });
        };
        const auto halves = [&](const Operand &o, Slot &low, Slot &high) {
            if (o.kind == Operand::VECTOR) {
                low = d.slot(o.parts.at(0), Type::U64);
                high = d.slot(o.parts.at(1), Type::U64);
            } else {
                low = d.slot(o, Type::B128);
                high = upper(low);
            }
        };
        Slot high;
        halves(to, in.d, high);
        halves(from, in.a, in.b);
        in.more = d.list({high});
        return;
    }
    const int bytes = bytes_of(type);
    if (from.kind == Operand::VECTOR) {
        in.d = d.slot(to, type);
        in.more = d.slots(from, bytes / (int)from.parts.size() == 2 ? Type::U16 : Type::U32);
        if (bytes == 8 && from.parts.size() == 2) in.run = join<uint64_t, uint32_t>;
        else if (bytes == 8 && from.parts.size() == 4) in.run = join<uint64_t, uint16_t>;
        else if (bytes == 4 && from.parts.size() == 2) in.run = join<uint32_t, uint16_t>;
        else d.unknown();
        return;
    }
    if (to.kind == Operand::VECTOR) {
        in.a = d.slot(from, type);
        in.more = d.slots(to, bytes / (int)to.parts.size() == 2 ? Type::U16 : Type::U32);
        if (bytes == 8 && to.parts.size() == 2) in.run = part<uint64_t, uint32_t>;
        else if (bytes == 8 && to.parts.size() == 4) in.run = part<uint64_t, uint16_t>;
        else if (bytes == 4 && to.parts.size() == 2) in.run = part<uint32_t, uint16_t>;
        else d.unknown();
        return;
    }
    in.d = d.slot(to, type);
    if (type == Type::PRED) {
        in.a = d.slot(from, type);
        in.run = predicates<First>;
        return;
    }
    if (from.kind == Operand::SYMBOL && from.symbol->kind == Symbol::PARAMETER) {
        in.number = from.symbol->offset;
        in.run = [](Warp &w, const Instruction &m) {
            uint64_t *const o = w.at<uint64_t>(m.d);
            const uint64_t address = (uint64_t)(uintptr_t)w.launch->parameters() + (uint64_t)m.number;
            each_lane(w.mask, [&](int i) { o[i] = address; });
        };
        return;
    }
    if (from.kind == Operand::SPECIAL &&
        (from.name.rfind("%globaltimer", 0) == 0 || from.name.rfind("%clock", 0) == 0)) {
        in.number = bytes;
        in.run = [](Warp &w, const Instruction &m) {
            timespec now;
            clock_gettime(CLOCK_MONOTONIC, &now);
            const uint64_t time = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
            each_lane(w.mask, [&](int i) {
                if (m.number == 8) w.at<uint64_t>(m.d)[i] = time;
                else w.at<uint32_t>(m.d)[i] = (uint32_t)time;
            });
        };
        return;
    }
    in.a = d.slot(from, type);
    if (from.kind == Operand::SPECIAL && bytes == 8) {
        in.run = [](Warp &w, const Instruction &m) {
            each_lane(w.mask, [&](int i) { w.at<uint64_t>(m.d)[i] = w.at<uint32_t>(m.a)[i]; });
        };
        return;
    }
    if (bytes == 8) set_unary<uint64_t, Move>(in);
    else if (bytes == 4) set_unary<uint32_t, Move>(in);
    else set_unary<uint16_t, Move>(in);
}

static void build_policy(Decoder &d, Instruction &in) { // createpolicy: a hint, which nothing here reads
    in.d = d.slot((size_t)0, Type::U64);
    in.a = d.constant(0, 8);
    set_unary<uint64_t, Move>(in);
}

static const Opcode mov("mov", build_move), createpolicy("createpolicy", build_policy);

} // namespace emulator
