// builders.h: what builders of instructions of a lane's registers share.
#ifndef EMULATOR_BUILDERS_H
#define EMULATOR_BUILDERS_H

#include "decode.h"

namespace emulator {

// Calls f(T()) with the C++ type of integers, or of numbers; false where the type is none.
template <class F> bool of_integer(Type type, F f) {
    switch (type) {
    case Type::U8: case Type::U16: f(uint16_t()); return true;
    case Type::S8: case Type::S16: f(int16_t()); return true;
    case Type::U32: f(uint32_t()); return true;
    case Type::S32: f(int32_t()); return true;
    case Type::U64: f(uint64_t()); return true;
    case Type::S64: f(int64_t()); return true;
    default: return false;
    }
}
template <class F> bool of_number(Type type, F f) {
    if (type == Type::F32) return f(float()), true;
    if (type == Type::F64) return f(double()), true;
    return of_integer(type, f);
}

// Where the result and up to three operands lie.
inline void operands(Decoder &d, Instruction &in, Type type) {
    in.d = d.slot((size_t)0, type);
    if (d.operands() > 1) in.a = d.slot(1, type);
    if (d.operands() > 2) in.b = d.slot(2, type);
    if (d.operands() > 3) in.c = d.slot(3, type);
}

// F for the registers of lanes, all of type T.
template <class T, class F> void set_unary(Instruction &in) { in.run = unary<T, T, F>; }
template <class T, class F> void set_binary(Instruction &in) { in.run = binary<T, T, T, F>; }
template <class T, class F> void set_ternary(Instruction &in) { in.run = ternary<T, T, T, T, F>; }

// Predicates are words of a bit a lane.
template <class F> void predicates(Warp &w, const Instruction &in) {
    uint32_t *const d = w.predicate(in.d);
    *d = (*d & ~w.mask) | (F()(*w.predicate(in.a), in.b.bytes ? *w.predicate(in.b) : 0) & w.mask);
}

} // namespace emulator
#endif
