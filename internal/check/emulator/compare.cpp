// compare.cpp: instructions that make predicates of numbers, and the choice between two numbers by a predicate.

#include "builders.h"
#include "floats.h"

#include <cmath>
#include <type_traits>

namespace emulator {

enum Comparison { EQ, NE, LT, LE, GT, GE, ORDERED, UNORDERED };

template <class T, Comparison C, bool OR_UNORDERED> struct Compare {
    bool operator()(T a, T b) const {
        const bool either = std::is_floating_point<T>::value && (a != a || b != b);
        if (C == ORDERED) return !either;
        if (C == UNORDERED) return either;
        if (either) return OR_UNORDERED;
        return C == EQ ? a == b : C == NE ? a != b : C == LT ? a < b : C == LE ? a <= b : C == GT ? a > b : a >= b;
    }
};
template <class S, float (*TO)(uint16_t)> struct AsFloat { using type = S; static float get(S x) { return TO(x); } };
template <class T> struct Plain { using type = T; static T get(T x) { return x; } };

enum Combine { ALONE, WITH_AND, WITH_OR, WITH_XOR };

template <class V, class F> void compare(Warp &w, const Instruction &in) {
    using T = typename V::type;
    const T *const a = w.at<T>(in.a), *const b = w.at<T>(in.b);
    uint8_t each[lanes];
#pragma GCC ivdep
    for (int i = 0; i < lanes; i++) each[i] = F()(V::get(a[i]), V::get(b[i]));
    uint32_t result = bits_of(each), opposite = ~result;
    if (in.number != ALONE) {
        uint32_t other = *w.predicate(in.c);
        if (in.count) other = ~other;
        result = in.number == WITH_AND ? result & other : in.number == WITH_OR ? result | other : result ^ other;
        opposite = in.number == WITH_AND  ? opposite & other
                   : in.number == WITH_OR ? opposite | other
                                          : opposite ^ other;
    }
    uint32_t *const d = w.predicate(in.d);
    *d = (*d & ~w.mask) | (result & w.mask);
    if (in.more) {
        uint32_t *const q = w.predicate((*in.more)[0]);
        *q = (*q & ~w.mask) | (opposite & w.mask);
    }
}

template <class V, bool FLOAT> bool set_compare(Instruction &in, std::string how) {
    using T = decltype(V::get(typename V::type()));
    const std::map<std::string, Comparison> known = {
        {"eq", EQ}, {"ne", NE}, {"lt", LT}, {"le", LE}, {"gt", GT}, {"ge", GE},
        {"lo", LT}, {"ls", LE}, {"hi", GT}, {"hs", GE}, {"num", ORDERED}, {"nan", UNORDERED}};
    const bool or_unordered = FLOAT && how.size() == 3 && how[2] == 'u';
    if (or_unordered) how.resize(2);
    const auto found = known.find(how);
    if (found == known.end()) return false;
#define CASE(C)                                                                                                        \
    case C: in.run = FLOAT && or_unordered ? compare<V, Compare<T, C, FLOAT>> : compare<V, Compare<T, C, false>>; break;
    switch (found->second) { CASE(EQ) CASE(NE) CASE(LT) CASE(LE) CASE(GT) CASE(GE) CASE(ORDERED) CASE(UNORDERED) }
#undef CASE
    return true;
}

static void build_compare(Decoder &d, Instruction &in) {
    const Type type = d.type();
    in.d = d.slot((size_t)0, Type::PRED);
    if (!d.operand(0).parts.empty()) in.more = d.list({d.slot(d.operand(0).parts[0], Type::PRED)});
    in.a = d.slot(1, type);
    in.b = d.slot(2, type);
    in.count = 0;
    in.number = d.has("and") ? WITH_AND : d.has("or") ? WITH_OR : d.has("xor") ? WITH_XOR : ALONE;
    if (in.number != ALONE) {
        in.c = d.slot(3, Type::PRED);
        in.count = d.operand(3).negated;
    }
    if (d.has("ftz")) d.unknown();
    bool known = false;
    switch (type) {
    case Type::F32: known = set_compare<Plain<float>, true>(in, d.word(1)); break;
    case Type::F64: known = set_compare<Plain<double>, true>(in, d.word(1)); break;
    case Type::F16: known = set_compare<AsFloat<uint16_t, from_half>, true>(in, d.word(1)); break;
    case Type::BF16: known = set_compare<AsFloat<uint16_t, from_bf16>, true>(in, d.word(1)); break;
    default: of_integer(type, [&](auto t) { known = set_compare<Plain<decltype(t)>, false>(in, d.word(1)); });
    }
    if (!known) d.unknown();
}

static void build_test(Decoder &d, Instruction &in) { // testp
    in.d = d.slot((size_t)0, Type::PRED);
    in.a = d.slot(1, Type::F32);
    if (d.type() != Type::F32) d.unknown();
    in.number = d.has("finite") ? 0 : d.has("infinite") ? 1 : d.has("notanumber") ? 2 : d.has("number") ? 3 : 4;
    if (in.number == 4) d.unknown();
    in.run = [](Warp &w, const Instruction &t) {
        uint32_t result = 0;
        for (int i = 0; i < lanes; i++) {
            const float x = w.at<float>(t.a)[i];
            const bool is[] = {std::isfinite(x), std::isinf(x), x != x, x == x};
            result |= (uint32_t)is[t.number] << i;
        }
        uint32_t *const p = w.predicate(t.d);
        *p = (*p & ~w.mask) | (result & w.mask);
    };
}

template <class T> void select(Warp &w, const Instruction &in) {
    T *const d = w.at<T>(in.d);
    const T *const a = w.at<T>(in.a), *const b = w.at<T>(in.b);
    const uint32_t p = *w.predicate(in.c);
    each_lane(w.mask, [&](int i) { d[i] = p >> i & 1 ? a[i] : b[i]; });
}
static void build_select(Decoder &d, Instruction &in) {
    operands(d, in, d.type());
    in.c = d.slot(3, Type::PRED);
    switch (bytes_of(d.type())) {
    case 2: in.run = select<uint16_t>; break;
    case 8: in.run = select<uint64_t>; break;
    default: in.run = select<uint32_t>;
    }
}

static const Opcode setp("setp", build_compare), testp("testp", build_test), selp("selp", build_select);

} // namespace emulator
