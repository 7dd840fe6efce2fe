// arithmetic.cpp: instructions that compute a lane's registers from the same lane's registers.

#include "decode.h"
#include "floats.h"

#include <algorithm>
#include <cfenv>
#include <limits>
#include <type_traits>

namespace emulator {

// ---- operations on values ------------------------------------------------------------------------------------------

struct Add { template <class T> T operator()(T a, T b) const { return (T)(a + b); } };
struct Subtract { template <class T> T operator()(T a, T b) const { return (T)(a - b); } };
struct Multiply { template <class T> T operator()(T a, T b) const { return (T)(a * b); } };
struct And { template <class T> T operator()(T a, T b) const { return (T)(a & b); } };
struct Or { template <class T> T operator()(T a, T b) const { return (T)(a | b); } };
struct Xor { template <class T> T operator()(T a, T b) const { return (T)(a ^ b); } };
struct Not { template <class T> T operator()(T a) const { return (T)~a; } };
struct Move { template <class T> T operator()(T a) const { return a; } };
struct Negate { template <class T> T operator()(T a) const { return (T)-a; } };
struct Absolute {
    template <class T> T operator()(T a) const { return (T)(a < 0 ? -a : a); }
    float operator()(float a) const { return std::fabs(a); }
    double operator()(double a) const { return std::fabs(a); }
};
// A division by 0 gives all ones.
struct Divide {
    template <class T> T operator()(T a, T b) const {
        if constexpr (std::is_floating_point<T>::value) return a / b;
        else if (b == 0) return (T)-1;
        else if (std::is_signed<T>::value && b == (T)-1) return (T)(0 - (std::make_unsigned_t<T>)a);
        else return (T)(a / b);
    }
};
struct Remainder {
    template <class T> T operator()(T a, T b) const {
        if (b == 0) return a;
        return std::is_signed<T>::value && b == (T)-1 ? (T)0 : (T)(a % b);
    }
};
template <class T> T not_a_number() {
    return sizeof(T) == 4 ? (T)bits_as<float>(0x7fffffffu) : std::numeric_limits<T>::quiet_NaN();
}
struct Minimum {
    template <class T> T operator()(T a, T b) const {
        if constexpr (std::is_floating_point<T>::value) {
            if (a == b) return std::signbit(a) ? a : b;
            if (a != a) return b != b ? not_a_number<T>() : b;
            if (b != b) return a;
        }
        return a < b ? a : b;
    }
};
struct Maximum {
    template <class T> T operator()(T a, T b) const {
        if constexpr (std::is_floating_point<T>::value) {
            if (a == b) return std::signbit(a) ? b : a;
            if (a != a) return b != b ? not_a_number<T>() : b;
            if (b != b) return a;
        }
        return a > b ? a : b;
    }
};
template <class F> struct NaN { // min.NaN, max.NaN
    float operator()(float a, float b) const { return a != a || b != b ? not_a_number<float>() : F()(a, b); }
};
template <class F> struct Flushed { // .ftz
    float operator()(float a) const { return flush(F()(flush(a))); }
    float operator()(float a, float b) const { return flush(F()(flush(a), flush(b))); }
    float operator()(float a, float b, float c) const { return flush(F()(flush(a), flush(b), flush(c))); }
};
template <class F> struct Saturated { // .sat: 0 to 1, NaN is 0
    template <class T> static T clamp(T x) { return x > 0 ? x < 1 ? x : 1 : 0; }
    template <class T> T operator()(T a, T b) const { return clamp(F()(a, b)); }
    template <class T> T operator()(T a, T b, T c) const { return clamp(F()(a, b, c)); }
};
struct MultiplyAdd { template <class T> T operator()(T a, T b, T c) const { return (T)(a * b + c); } };
struct Fused {
    float operator()(float a, float b, float c) const { return __builtin_fmaf(a, b, c); }
    double operator()(double a, double b, double c) const { return __builtin_fma(a, b, c); }
};
struct Select { template <class T> T operator()(T a, T b, bool p) const { return p ? a : b; } };
template <class T> struct Wide;
template <> struct Wide<uint16_t> { using type = uint32_t; };
template <> struct Wide<int16_t> { using type = int32_t; };
template <> struct Wide<uint32_t> { using type = uint64_t; };
template <> struct Wide<int32_t> { using type = int64_t; };
template <> struct Wide<uint64_t> { using type = unsigned __int128; };
template <> struct Wide<int64_t> { using type = __int128; };
struct MultiplyHigh {
    template <class T> T operator()(T a, T b) const {
        return (T)(((typename Wide<T>::type)a * (typename Wide<T>::type)b) >> (8 * sizeof(T)));
    }
    template <class T> T operator()(T a, T b, T c) const { return (T)((*this)(a, b) + c); }
};
struct MultiplyWide {
    template <class T> typename Wide<T>::type operator()(T a, T b) const { return (typename Wide<T>::type)a * b; }
    template <class T, class W> W operator()(T a, T b, W c) const { return (W)((W)a * (W)b + c); }
};
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
struct Exp2 {
    float operator()(float a) const { return exp2f(a); }
    double operator()(double a) const { return exp2(a); }
};
struct Log2 { float operator()(float a) const { return log2f(a); } };
struct Reciprocal { template <class T> T operator()(T a) const { return 1 / a; } };
struct Root { template <class T> T operator()(T a) const { return std::sqrt(a); } };
struct ReciprocalRoot { template <class T> T operator()(T a) const { return (T)(1 / std::sqrt((double)a)); } };
struct Sine { float operator()(float a) const { return sinf(a); } };
struct Cosine { float operator()(float a) const { return cosf(a); } };
struct Tanh { float operator()(float a) const { return tanhf(a); } };
struct CopySign { template <class T> T operator()(T sign, T a) const { return std::copysign(a, sign); } };

// f of numbers that are computed as float and rounded: exact for a sum, difference or product of halves, as float has
// more than twice their bits; a fused product is computed as double.
template <class F> struct OfHalf {
    uint16_t operator()(uint16_t a) const { return to_half(F()(from_half(a))); }
    uint16_t operator()(uint16_t a, uint16_t b) const { return to_half(F()(from_half(a), from_half(b))); }
    uint16_t operator()(uint16_t a, uint16_t b, uint16_t c) const {
        const double exact = F()((double)from_half(a), (double)from_half(b), (double)from_half(c));
        return exact != exact ? 0x7fff : bits_as<uint16_t>((Half)round_bits(exact, 10, -14, 'n'));
    }
};
template <class F> struct OfBF16 {
    uint16_t operator()(uint16_t a) const { return to_bf16(F()(from_bf16(a))); }
    uint16_t operator()(uint16_t a, uint16_t b) const { return to_bf16(F()(from_bf16(a), from_bf16(b))); }
    uint16_t operator()(uint16_t a, uint16_t b, uint16_t c) const {
        const double exact = F()((double)from_bf16(a), (double)from_bf16(b), (double)from_bf16(c));
        return to_bf16((float)round_bits(exact, 7, -126, 'n'));
    }
};
template <class F> struct Pair { // x2
    uint32_t operator()(uint32_t a) const {
        return (uint32_t)F()((uint16_t)a) | (uint32_t)F()((uint16_t)(a >> 16)) << 16;
    }
    uint32_t operator()(uint32_t a, uint32_t b) const {
        return (uint32_t)F()((uint16_t)a, (uint16_t)b) | (uint32_t)F()((uint16_t)(a >> 16), (uint16_t)(b >> 16)) << 16;
    }
    uint32_t operator()(uint32_t a, uint32_t b, uint32_t c) const {
        return (uint32_t)F()((uint16_t)a, (uint16_t)b, (uint16_t)c) |
               (uint32_t)F()((uint16_t)(a >> 16), (uint16_t)(b >> 16), (uint16_t)(c >> 16)) << 16;
    }
};

// ---- builders ------------------------------------------------------------------------------------------------------

// Calls f(T()) with the C++ type of integers.
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

static void operands(Decoder &d, Instruction &in, Type type) {
    in.d = d.slot((size_t)0, type);
    if (d.operands() > 1) in.a = d.slot(1, type);
    if (d.operands() > 2) in.b = d.slot(2, type);
    if (d.operands() > 3) in.c = d.slot(3, type);
}

template <class T, class F> void set_unary(Instruction &in) { in.run = unary<T, T, F>; }
template <class T, class F> void set_binary(Instruction &in) { in.run = binary<T, T, T, F>; }
template <class T, class F> void set_ternary(Instruction &in) { in.run = ternary<T, T, T, T, F>; }

#define SIXTEEN_BITS(SET, F)                                                                                           \
    case Type::F16: SET<uint16_t, OfHalf<F>>(in); break;                                                               \
    case Type::BF16: SET<uint16_t, OfBF16<F>>(in); break;                                                              \
    case Type::F16X2: SET<uint32_t, Pair<OfHalf<F>>>(in); break;                                                       \
    case Type::BF16X2: SET<uint32_t, Pair<OfBF16<F>>>(in); break;

// Rounds other than to nearest, for which the processor's mode is changed: float alone.
template <int MODE, class F> __attribute__((optimize("rounding-math"))) void rounded(Warp &w, const Instruction &in) {
    float *const d = w.at<float>(in.d);
    const float *const a = w.at<float>(in.a), *const b = w.at<float>(in.b),
                       *const c = w.at<float>(in.c.bytes ? in.c : in.b);
    const int before = fegetround();
    fesetround(MODE);
    for (int i = 0; i < lanes; i++) {
        if (!(w.mask >> i & 1)) continue;
        volatile float x = a[i], y = b[i], z = c[i];
        volatile float r;
        if constexpr (std::is_same<F, Fused>::value) r = __builtin_fmaf(x, y, z);
        else r = F()((float)x, (float)y);
        d[i] = r;
    }
    fesetround(before);
}
template <class F> bool build_rounded(Decoder &d, Instruction &in) {
    if (d.has("rm")) in.run = rounded<FE_DOWNWARD, F>;
    else if (d.has("rp")) in.run = rounded<FE_UPWARD, F>;
    else if (d.has("rz")) in.run = rounded<FE_TOWARDZERO, F>;
    else return false;
    if (d.has("ftz") || d.has("sat") || d.type() != Type::F32) d.unknown();
    return true;
}

template <class F> void build_sum(Decoder &d, Instruction &in) { // add, sub
    const Type type = d.type();
    operands(d, in, type);
    if (d.has("cc")) d.unknown();
    switch (type) {
        SIXTEEN_BITS(set_binary, F)
    case Type::F32:
        if (build_rounded<F>(d, in)) break;
        in.run = d.has("ftz")   ? binary<float, float, float, Flushed<F>>
                 : d.has("sat") ? binary<float, float, float, Saturated<F>>
                                : binary<float, float, float, F>;
        break;
    default:
        if (d.has("sat") || !of_number(type, [&](auto t) { set_binary<decltype(t), F>(in); })) d.unknown();
    }
}

static void build_multiply(Decoder &d, Instruction &in) {
    const Type type = d.type();
    operands(d, in, type);
    if (d.has("wide")) {
        of_integer(type, [&](auto t) {
            using T = decltype(t);
            if constexpr (sizeof(T) < 8) in.run = binary<typename Wide<T>::type, T, T, MultiplyWide>;
        });
    } else if (d.has("hi")) {
        of_integer(type, [&](auto t) { set_binary<decltype(t), MultiplyHigh>(in); });
    } else {
        switch (type) {
            SIXTEEN_BITS(set_binary, Multiply)
        case Type::F32:
            if (build_rounded<Multiply>(d, in)) break;
            in.run = d.has("ftz")   ? binary<float, float, float, Flushed<Multiply>>
                     : d.has("sat") ? binary<float, float, float, Saturated<Multiply>>
                                    : binary<float, float, float, Multiply>;
            break;
        default: of_number(type, [&](auto t) { set_binary<decltype(t), Multiply>(in); });
        }
    }
    if (!in.run) d.unknown();
}

static void build_multiply_add(Decoder &d, Instruction &in) { // mad, fma
    const Type type = d.type();
    operands(d, in, type);
    if (d.has("wide")) {
        in.c = d.slot(3, type == Type::S32 ? Type::S64 : type == Type::U32 ? Type::U64 : Type::U32);
        of_integer(type, [&](auto t) {
            using T = decltype(t);
            if constexpr (sizeof(T) < 8)
                in.run = ternary<typename Wide<T>::type, T, T, typename Wide<T>::type, MultiplyWide>;
        });
    } else if (d.has("hi")) {
        of_integer(type, [&](auto t) { set_ternary<decltype(t), MultiplyHigh>(in); });
    } else {
        switch (type) {
            SIXTEEN_BITS(set_ternary, Fused)
        case Type::F32:
            if (build_rounded<Fused>(d, in)) break;
            in.run = d.has("ftz")   ? ternary<float, float, float, float, Flushed<Fused>>
                     : d.has("sat") ? ternary<float, float, float, float, Saturated<Fused>>
                                    : ternary<float, float, float, float, Fused>;
            break;
        case Type::F64: set_ternary<double, Fused>(in); break;
        default: of_integer(type, [&](auto t) { set_ternary<decltype(t), MultiplyAdd>(in); });
        }
        if (d.has("relu") || d.has("cc")) d.unknown();
    }
    if (!in.run) d.unknown();
}

template <class F> void build_extreme(Decoder &d, Instruction &in) { // min, max
    const Type type = d.type();
    operands(d, in, type);
    const bool nan = d.has("NaN");
    if (d.has("xorsign") || d.has("ftz") || d.operands() > 3) d.unknown();
    if (nan) {
        switch (type) {
            SIXTEEN_BITS(set_binary, NaN<F>)
        case Type::F32: in.run = binary<float, float, float, NaN<F>>; break;
        default: d.unknown();
        }
        return;
    }
    switch (type) {
        SIXTEEN_BITS(set_binary, F)
    default:
        if (!of_number(type, [&](auto t) { set_binary<decltype(t), F>(in); })) d.unknown();
    }
}

static void build_divide(Decoder &d, Instruction &in) {
    const Type type = d.type();
    operands(d, in, type);
    if (type == Type::F32 && build_rounded<Divide>(d, in)) return;
    if (type == Type::F32 && d.has("ftz")) in.run = binary<float, float, float, Flushed<Divide>>;
    else of_number(type, [&](auto t) { set_binary<decltype(t), Divide>(in); });
    if (!in.run) d.unknown();
}
static void build_remainder(Decoder &d, Instruction &in) {
    operands(d, in, d.type());
    if (!of_integer(d.type(), [&](auto t) { set_binary<decltype(t), Remainder>(in); })) d.unknown();
}

// Predicates are words of a bit a lane.
template <class F> void predicates(Warp &w, const Instruction &in) {
    uint32_t *const d = w.predicate(in.d);
    *d = (*d & ~w.mask) | (F()(*w.predicate(in.a), in.b.bytes ? *w.predicate(in.b) : 0) & w.mask);
}
struct First { uint32_t operator()(uint32_t a, uint32_t) const { return a; } };
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

template <class F> void build_sign(Decoder &d, Instruction &in) { // neg, abs
    const Type type = d.type();
    operands(d, in, type);
    switch (type) {
        SIXTEEN_BITS(set_unary, F)
    case Type::F32:
        in.run = d.has("ftz") ? unary<float, float, Flushed<F>> : unary<float, float, F>;
        break;
    default:
        if (!of_number(type, [&](auto t) { set_unary<decltype(t), F>(in); })) d.unknown();
    }
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
static void build_dot4(Decoder &d, Instruction &in) {
    operands(d, in, Type::U32);
    const bool a = d.type(1) == Type::S32, b = d.type(0) == Type::S32;
    if (a) { if (b) set_ternary<uint32_t, Dot4<true, true>>(in); else set_ternary<uint32_t, Dot4<true, false>>(in); }
    else if (b) set_ternary<uint32_t, Dot4<false, true>>(in);
    else set_ternary<uint32_t, Dot4<false, false>>(in);
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

template <class F> void build_function(Decoder &d, Instruction &in) { // ex2, rcp, sqrt, ...
    const Type type = d.type();
    operands(d, in, type);
    switch (type) {
        SIXTEEN_BITS(set_unary, F)
    case Type::F32: in.run = d.has("ftz") ? unary<float, float, Flushed<F>> : unary<float, float, F>; break;
    case Type::F64:
        if constexpr (std::is_invocable_r<double, F, double>::value) in.run = unary<double, double, F>;
        break;
    default: break;
    }
    if (!in.run || d.has("rm") || d.has("rp") || d.has("rz")) d.unknown();
}

static void build_copysign(Decoder &d, Instruction &in) {
    operands(d, in, d.type());
    if (d.type() == Type::F64) set_binary<double, CopySign>(in);
    else set_binary<float, CopySign>(in);
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

// ---- comparisons ---------------------------------------------------------------------------------------------------

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

// ---- moves ---------------------------------------------------------------------------------------------------------

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

static const Opcode add("add", build_sum<Add>), sub("sub", build_sum<Subtract>), mul("mul", build_multiply),
    mad("mad", build_multiply_add), fma_("fma", build_multiply_add), min_("min", build_extreme<Minimum>),
    max_("max", build_extreme<Maximum>), div_("div", build_divide), rem("rem", build_remainder),
    and_("and", build_logic<And>), or_("or", build_logic<Or>), xor_("xor", build_logic<Xor>), not_("not", build_not),
    neg("neg", build_sign<Negate>), abs_("abs", build_sign<Absolute>), shl("shl", build_shift_left),
    shr("shr", build_shift_right), shf("shf", build_funnel), prmt("prmt", build_permute),
    popc("popc", build_bits<CountOnes>), clz("clz", build_bits<LeadingZeros>), brev("brev", build_reverse),
    bfind("bfind", build_find_highest), bfe("bfe", build_bit_field), bfi("bfi", build_insert_bits),
    lop3("lop3", build_lop3), dp4a("dp4a", build_dot4), vabsdiff4("vabsdiff4", build_difference4),
    ex2("ex2", build_function<Exp2>), lg2("lg2", build_function<Log2>), rcp("rcp", build_function<Reciprocal>),
    sqrt_("sqrt", build_function<Root>), rsqrt("rsqrt", build_function<ReciprocalRoot>),
    sin_("sin", build_function<Sine>), cos_("cos", build_function<Cosine>), tanh_("tanh", build_function<Tanh>),
    copysign_("copysign", build_copysign), selp("selp", build_select), setp("setp", build_compare),
    testp("testp", build_test), mov("mov", build_move), createpolicy("createpolicy", build_policy);

} // namespace emulator
