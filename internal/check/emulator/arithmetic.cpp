// arithmetic.cpp: instructions that compute numbers: sums, products, quotients, extremes, functions.

#include "builders.h"
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
        return exact != exact ? 0x7fff : bits_as<uint16_t>((Half)exact);
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

static const Opcode add("add", build_sum<Add>), sub("sub", build_sum<Subtract>), mul("mul", build_multiply),
    mad("mad", build_multiply_add), fma_("fma", build_multiply_add), min_("min", build_extreme<Minimum>),
    max_("max", build_extreme<Maximum>), div_("div", build_divide), rem("rem", build_remainder),
    neg("neg", build_sign<Negate>), abs_("abs", build_sign<Absolute>), ex2("ex2", build_function<Exp2>),
    lg2("lg2", build_function<Log2>), rcp("rcp", build_function<Reciprocal>), sqrt_("sqrt", build_function<Root>),
    rsqrt("rsqrt", build_function<ReciprocalRoot>), sin_("sin", build_function<Sine>),
    cos_("cos", build_function<Cosine>), tanh_("tanh", build_function<Tanh>), copysign_("copysign", build_copysign);

} // namespace emulator
