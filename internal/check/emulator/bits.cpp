// bits.cpp: instructions of whole numbers' bits: logic, shifts, fields of bits, and the four bytes of a number.

#include "builders.h"

#include <algorithm>
#include <type_traits>

namespace emulator {

// ---- operations on values ------------------------------------------------------------------------------------------

struct And { template <class T> T operator()(T a, T b) const { return (T)(a & b); } };
struct Or { template <class T> T operator()(T a, T b) const { return (T)(a | b); } };
struct Xor { template <class T> T operator()(T a, T b) const { return (T)(a ^ b); } };
struct Not { template <class T> T operator()(T a) const { return (T)~a; } };
struct ShiftLeft {
    template <class T> T operator()(T a, uint32_t b) const { return b >= 8 * sizeof(T) ? 0 : (T)(a << b); }
};
struct ShiftRight {
    template <class T> T operator()(T a, uint32_t b) const {
        const uint32_t most = 8 * sizeof(T) - 1;
        if (std::is_signed<T>::value) return (T)(a >> (b > most ? most : b));
        return b > most ? 0 : (T)(a >> b);
    }
};
struct FunnelLeft {
    uint32_t operator()(uint32_t a, uint32_t b, uint32_t c) const {
        return (uint32_t)((((uint64_t)b << 32 | a) << (c & 31)) >> 32);
    }
};
struct FunnelRight {
    uint32_t operator()(uint32_t a, uint32_t b, uint32_t c) const {
        return (uint32_t)(((uint64_t)b << 32 | a) >> (c & 31));
    }
};
struct FunnelLeftClamp {
    uint32_t operator()(uint32_t a, uint32_t b, uint32_t c) const { return c >= 32 ? a : FunnelLeft()(a, b, c); }
};
struct FunnelRightClamp {
    uint32_t operator()(uint32_t a, uint32_t b, uint32_t c) const { return c >= 32 ? b : FunnelRight()(a, b, c); }
};
struct Permute {
    uint32_t operator()(uint32_t a, uint32_t b, uint32_t c) const {
        const uint64_t both = (uint64_t)b << 32 | a;
        uint32_t d = 0;
        for (int i = 0; i < 4; i++) {
            const uint32_t select = c >> (4 * i);
            uint32_t byte = (uint32_t)(both >> (8 * (select & 7))) & 0xff;
            if (select & 8) byte = byte & 0x80 ? 0xff : 0;
            d |= byte << (8 * i);
        }
        return d;
    }
};
struct CountOnes { template <class T> uint32_t operator()(T a) const { return (uint32_t)__builtin_popcountll(a); } };
struct LeadingZeros {
    uint32_t operator()(uint32_t a) const { return a ? (uint32_t)__builtin_clz(a) : 32; }
    uint32_t operator()(uint64_t a) const { return a ? (uint32_t)__builtin_clzll(a) : 64; }
};
struct Reverse {
    template <class T> T operator()(T a) const {
        T r = 0;
        for (size_t i = 0; i < 8 * sizeof(T); i++) r |= (T)((a >> i) & 1) << (8 * sizeof(T) - 1 - i);
        return r;
    }
};
template <bool SHIFT> struct FindHighest { // bfind: the place of the highest bit that is not the sign
    template <class T> uint32_t operator()(T a) const {
        using U = std::make_unsigned_t<T>;
        const U u = (U)(std::is_signed<T>::value && a < 0 ? ~a : a);
        if (!u) return 0xffffffffu;
        const uint32_t place = 63 - (uint32_t)__builtin_clzll(u);
        return SHIFT ? 8 * (uint32_t)sizeof(T) - 1 - place : place;
    }
};
struct BitField { // bfe
    template <class T> T operator()(T a, uint32_t from, uint32_t count) const {
        const uint32_t width = 8 * sizeof(T);
        from &= 0xff;
        count &= 0xff;
        using U = std::make_unsigned_t<T>;
        if (count == 0) return 0;
        const uint32_t last = std::min(from + count - 1, width - 1);
        const bool sign = std::is_signed<T>::value && ((U)a >> last & 1);
        U r = from >= width ? 0 : (U)((U)a >> from);
        if (count < width) r &= (((U)1 << count) - 1);
        const uint32_t got = from >= width ? 0 : std::min(count, width - from);
        if (sign && got < width) r |= (U)((uint64_t)-1 << got);
        return (T)r;
    }
};
template <bool SIGNED_A, bool SIGNED_B> struct Dot4 {
    uint32_t operator()(uint32_t a, uint32_t b, uint32_t c) const {
        for (int i = 0; i < 32; i += 8) {
            const int x = SIGNED_A ? (int8_t)(a >> i) : (int)(a >> i & 0xff),
                      y = SIGNED_B ? (int8_t)(b >> i) : (int)(b >> i & 0xff);
            c += (uint32_t)(x * y);
        }
        return c;
    }
};
template <bool SIGNED_A, bool SIGNED_B> struct Dot2 { // two halves by the lower two bytes
    uint32_t operator()(uint32_t a, uint32_t b, uint32_t c) const {
        for (int i = 0; i < 2; i++) {
            const int x = SIGNED_A ? (int16_t)(a >> 16 * i) : (int)(a >> 16 * i & 0xffff),
                      y = SIGNED_B ? (int8_t)(b >> 8 * i) : (int)(b >> 8 * i & 0xff);
            c += (uint32_t)(x * y);
        }
        return c;
    }
};

// ---- builders ------------------------------------------------------------------------------------------------------

struct NotFirst { uint32_t operator()(uint32_t a, uint32_t) const { return ~a; } };

template <class F> void build_logic(Decoder &d, Instruction &in) {
    const Type type = d.type();
    operands(d, in, type);
    if (type == Type::PRED) in.run = predicates<F>;
    else if (!of_integer(type, [&](auto t) { set_binary<decltype(t), F>(in); })) d.unknown();
}
static void build_not(Decoder &d, Instruction &in) {
    const Type type = d.type();
    operands(d, in, type);
    if (type == Type::PRED) in.run = predicates<NotFirst>;
    else if (!of_integer(type, [&](auto t) { set_unary<decltype(t), Not>(in); })) d.unknown();
}

static void build_shift_left(Decoder &d, Instruction &in) {
    operands(d, in, d.type());
    in.b = d.slot(2, Type::U32);
    of_integer(d.type(), [&](auto t) { in.run = binary<decltype(t), decltype(t), uint32_t, ShiftLeft>; });
}
static void build_shift_right(Decoder &d, Instruction &in) {
    operands(d, in, d.type());
    in.b = d.slot(2, Type::U32);
    of_integer(d.type(), [&](auto t) { in.run = binary<decltype(t), decltype(t), uint32_t, ShiftRight>; });
}
static void build_funnel(Decoder &d, Instruction &in) {
    operands(d, in, Type::U32);
    if (d.has("l")) set_ternary<uint32_t, FunnelLeft>(in);
    else set_ternary<uint32_t, FunnelRight>(in);
    if (d.has("clamp")) {
        if (d.has("l")) set_ternary<uint32_t, FunnelLeftClamp>(in);
        else set_ternary<uint32_t, FunnelRightClamp>(in);
    }
}
static void build_permute(Decoder &d, Instruction &in) {
    if (d.word(d.current().words.size() - 1) != "b32") d.unknown(); // prmt.b32.f4e and the like
    operands(d, in, Type::U32);
    set_ternary<uint32_t, Permute>(in);
}
template <class F> void build_bits(Decoder &d, Instruction &in) { // popc, clz: 32 bits of result
    const Type type = d.type();
    in.d = d.slot((size_t)0, Type::U32);
    in.a = d.slot(1, type);
    in.run = bytes_of(type) == 8 ? unary<uint32_t, uint64_t, F> : unary<uint32_t, uint32_t, F>;
}
static void build_reverse(Decoder &d, Instruction &in) {
    operands(d, in, d.type());
    of_integer(d.type(), [&](auto t) { set_unary<std::make_unsigned_t<decltype(t)>, Reverse>(in); });
}
static void build_find_highest(Decoder &d, Instruction &in) {
    in.d = d.slot((size_t)0, Type::U32);
    in.a = d.slot(1, d.type());
    of_integer(d.type(), [&](auto t) {
        in.run = d.has("shiftamt") ? unary<uint32_t, decltype(t), FindHighest<true>>
                                   : unary<uint32_t, decltype(t), FindHighest<false>>;
    });
}
static void build_bit_field(Decoder &d, Instruction &in) {
    in.d = d.slot((size_t)0, d.type());
    in.a = d.slot(1, d.type());
    in.b = d.slot(2, Type::U32);
    in.c = d.slot(3, Type::U32);
    of_integer(d.type(), [&](auto t) {
        using T = decltype(t);
        in.run = ternary<T, T, uint32_t, uint32_t, BitField>;
    });
}
template <class T> void insert_bits(Warp &w, const Instruction &in) {
    T *const d = w.at<T>(in.d);
    const T *const a = w.at<T>(in.a), *const b = w.at<T>(in.b);
    const uint32_t *const from = w.at<uint32_t>(in.c), *const count = w.at<uint32_t>((*in.more)[0]);
    constexpr uint32_t width = 8 * sizeof(T);
    each_lane(w.mask, [&](int i) {
        const uint32_t f = from[i] & 0xff, n = count[i] & 0xff;
        const T ones = n >= width ? ~(T)0 : (T)(((T)1 << n) - 1);
        d[i] = f >= width ? b[i] : (T)((b[i] & ~(T)(ones << f)) | ((a[i] & ones) << f));
    });
}
static void build_insert_bits(Decoder &d, Instruction &in) {
    operands(d, in, d.type());
    in.c = d.slot(3, Type::U32);
    in.more = d.list({d.slot(4, Type::U32)});
    in.run = bytes_of(d.type()) == 8 ? insert_bits<uint64_t> : insert_bits<uint32_t>;
}
static void build_lop3(Decoder &d, Instruction &in) {
    operands(d, in, Type::U32);
    in.number = (int64_t)d.operand(4).number;
    if (d.operands() > 5) d.unknown();
    in.run = [](Warp &w, const Instruction &i3) {
        uint32_t *const o = w.at<uint32_t>(i3.d);
        const uint32_t *const a = w.at<uint32_t>(i3.a), *const b = w.at<uint32_t>(i3.b),
                              *const c = w.at<uint32_t>(i3.c);
        const uint32_t t = (uint32_t)i3.number;
        each_lane(w.mask, [&](int i) {
            uint32_t r = 0;
            for (uint32_t k = 0; k < 8; k++)
                r |= (0 - (t >> k & 1)) & (k & 4 ? a[i] : ~a[i]) & (k & 2 ? b[i] : ~b[i]) & (k & 1 ? c[i] : ~c[i]);
            o[i] = r;
        });
    };
}
template <template <bool, bool> class Dot> void build_dot(Decoder &d, Instruction &in) {
    operands(d, in, Type::U32);
    const bool a = d.type(1) == Type::S32, b = d.type(0) == Type::S32;
    if (a) { if (b) set_ternary<uint32_t, Dot<true, true>>(in); else set_ternary<uint32_t, Dot<true, false>>(in); }
    else if (b) set_ternary<uint32_t, Dot<false, true>>(in);
    else set_ternary<uint32_t, Dot<false, false>>(in);
}
static void build_dot2(Decoder &d, Instruction &in) {
    if (!d.has("lo")) d.unknown();
    build_dot<Dot2>(d, in);
}

struct AbsoluteDifference4 {
    uint32_t operator()(uint32_t a, uint32_t b) const {
        uint32_t d = 0;
        for (int i = 0; i < 32; i += 8) {
            const int x = a >> i & 0xff, y = b >> i & 0xff;
            d |= (uint32_t)(x > y ? x - y : y - x) << i;
        }
        return d;
    }
};
static void build_difference4(Decoder &d, Instruction &in) {
    if (d.current().opcode() != "vabsdiff4.u32.u32.u32") d.unknown();
    operands(d, in, Type::U32);
    set_binary<uint32_t, AbsoluteDifference4>(in);
}

static const Opcode and_("and", build_logic<And>), or_("or", build_logic<Or>), xor_("xor", build_logic<Xor>),
    not_("not", build_not), shl("shl", build_shift_left), shr("shr", build_shift_right), shf("shf", build_funnel),
    prmt("prmt", build_permute), popc("popc", build_bits<CountOnes>), clz("clz", build_bits<LeadingZeros>),
    brev("brev", build_reverse), bfind("bfind", build_find_highest), bfe("bfe", build_bit_field),
    bfi("bfi", build_insert_bits), lop3("lop3", build_lop3), dp4a("dp4a", build_dot<Dot4>), dp2a("dp2a", build_dot2),
    vabsdiff4("vabsdiff4", build_difference4);

} // namespace emulator
