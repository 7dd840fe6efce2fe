// convert.cpp: cvt, between any two types.

#include "decode.h"
#include "floats.h"

#include <limits>

namespace emulator {

// A lane's operand as the type says, from a register that may be wider.
static uint64_t read_bits(Warp &w, Slot s, int lane) {
    switch (s.bytes) {
    case 2: return w.at<uint16_t>(s)[lane];
    case 8: return w.at<uint64_t>(s)[lane];
    default: return w.at<uint32_t>(s)[lane];
    }
}
static void write_bits(Warp &w, Slot s, int lane, uint64_t bits) {
    switch (s.bytes) {
    case 2: w.at<uint16_t>(s)[lane] = (uint16_t)bits; break;
    case 8: w.at<uint64_t>(s)[lane] = bits; break;
    default: w.at<uint32_t>(s)[lane] = (uint32_t)bits;
    }
}

static bool is_signed(Type t) { return t == Type::S8 || t == Type::S16 || t == Type::S32 || t == Type::S64; }
static bool is_float(Type t) { return t == Type::F16 || t == Type::BF16 || t == Type::F32 || t == Type::F64; }

struct Conversion {
    Type to, from;
    char mode;  // of rounding: n z m p a, or 0
    bool whole; // to a whole number: .rni and the like
    bool saturate, ftz, relu;
};
static_assert(sizeof(Conversion) <= 8, "it is the instruction's number");

static int64_t signed_value(Type t, uint64_t bits) {
    switch (t) {
    case Type::S8: return (int8_t)bits;
    case Type::U8: return (uint8_t)bits;
    case Type::S16: return (int16_t)bits;
    case Type::U16: return (uint16_t)bits;
    case Type::S32: return (int32_t)bits;
    case Type::U32: return (uint32_t)bits;
    default: return (int64_t)bits;
    }
}
static double float_value(Type t, uint64_t bits) {
    switch (t) {
    case Type::F16: return from_half((uint16_t)bits);
    case Type::BF16: return from_bf16((uint16_t)bits);
    case Type::F32: return bits_as<float>((uint32_t)bits);
    default: return bits_as<double>(bits);
    }
}
static double to_whole(double x, char mode) {
    switch (mode) {
    case 'z': return std::trunc(x);
    case 'm': return std::floor(x);
    case 'p': return std::ceil(x);
    default: return std::nearbyint(x);
    }
}
// Overflow becomes infinite, or the largest number where rounding goes towards 0.
static uint64_t float_bits(Type t, double x, char mode, bool saturate_finite) {
    const bool down = mode == 'z' || (mode == 'm' && x > 0) || (mode == 'p' && x < 0) || saturate_finite;
    switch (t) {
    case Type::F16: {
        const double r = round_bits(x, 10, -14, mode);
        if (std::fabs(r) > 65504 && std::isfinite(r))
            return (std::signbit(r) ? 0x8000u : 0) | (down ? 0x7bffu : 0x7c00u);
        return r != r ? 0x7fff : bits_as<uint16_t>((Half)r);
    }
    case Type::BF16: {
        const double r = round_bits(x, 7, -126, mode);
        if (std::fabs(r) > 3.4e38 && std::isfinite(r))
            return (std::signbit(r) ? 0x8000u : 0) | (down ? 0x7f7fu : 0x7f80u);
        return to_bf16((float)r);
    }
    case Type::F32: {
        const double r = round_bits(x, 23, -126, mode);
        if (std::fabs(r) > 3.4028234663852886e38 && std::isfinite(r))
            return (std::signbit(r) ? 0x80000000u : 0) | (down ? 0x7f7fffffu : 0x7f800000u);
        return r != r ? 0x7fffffffu : bits_as<uint32_t>((float)r);
    }
    default: return bits_as<uint64_t>(x);
    }
}

static uint64_t convert(const Conversion &c, uint64_t bits) {
    if (!is_float(c.from)) {
        const int64_t value = signed_value(c.from, bits);
        const bool huge = c.from == Type::U64 && value < 0;
        if (is_float(c.to)) {
            if (c.to == Type::F32 && c.mode == 'n')
                return bits_as<uint32_t>(c.from == Type::U64 ? (float)(uint64_t)value : (float)value);
            return float_bits(c.to, huge ? (double)(uint64_t)value : (double)value, c.mode, false);
        }
        if (!c.saturate) return (uint64_t)value;
        const int width = 8 * bytes_of(c.to);
        if (is_signed(c.to)) {
            const int64_t most = (int64_t)(~0ull >> (65 - width)), least = -most - 1;
            return (uint64_t)(huge || value > most ? most : value < least ? least : value);
        }
        const uint64_t most = ~0ull >> (64 - width);
        return value < 0 && !huge ? 0 : (uint64_t)value > most ? most : (uint64_t)value;
    }
    double x = float_value(c.from, bits);
    if (c.ftz && c.from == Type::F32) x = flush((float)x);
    if (is_float(c.to)) {
        if (c.whole) x = to_whole(x, c.mode);
        if (c.saturate) x = x > 0 ? x < 1 ? x : 1 : 0;
        if (c.relu && x <= 0) x = 0;
        uint64_t result = float_bits(c.to, x, c.whole ? 'n' : c.mode, false);
        if (c.ftz && c.to == Type::F32) result = bits_as<uint32_t>(flush(bits_as<float>((uint32_t)result)));
        return result;
    }
    const int width = 8 * bytes_of(c.to);
    if (x != x) return width == 64 ? 1ull << 63 : 0;
    x = to_whole(x, c.mode);
    if (is_signed(c.to)) {
        const double limit = std::ldexp(1.0, width - 1);
        const int64_t most = (int64_t)(~0ull >> (65 - width));
        return (uint64_t)(x >= limit ? most : x < -limit ? -most - 1 : (int64_t)x);
    }
    if (x <= 0) return 0;
    return x >= std::ldexp(1.0, width) ? ~0ull >> (64 - width) : (uint64_t)x;
}

static void convert_any(Warp &w, const Instruction &in) {
    Conversion c;
    memcpy(&c, &in.number, sizeof c);
    const int width = 8 * bytes_of(c.to);
    for (int i = 0; i < lanes; i++) {
        if (!(w.mask >> i & 1)) continue;
        uint64_t r = convert(c, read_bits(w, in.a, i));
        if (width < 64) { // a wider register has the sign, or zeros
            r &= ~0ull >> (64 - width);
            if (is_signed(c.to)) r = (uint64_t)((int64_t)(r << (64 - width)) >> (64 - width));
        }
        write_bits(w, in.d, i, r);
    }
}

// What kernels do most, in loops that become vectors.
template <class T> struct To { template <class A> T operator()(A a) const { return (T)a; } };
struct HalfToFloat { float operator()(uint16_t a) const { return from_half(a); } };
struct FloatToHalf { uint16_t operator()(float a) const { return to_half(a); } };
struct FloatToBF16 { uint16_t operator()(float a) const { return to_bf16(a); } };
struct BF16ToFloat { float operator()(uint16_t a) const { return from_bf16(a); } };
template <class F> struct TwoFloats {
    uint32_t operator()(float a, float b) const { return (uint32_t)F()(a) << 16 | F()(b); }
};
template <bool E5M2> struct FloatsToFP8 {
    uint16_t operator()(float a, float b) const { return (uint16_t)(to_fp8(a, E5M2) << 8 | to_fp8(b, E5M2)); }
};
template <bool E5M2> struct FP8ToHalves {
    uint32_t operator()(uint16_t a) const {
        return (uint32_t)to_half(from_fp8((uint8_t)(a >> 8), E5M2)) << 16 | to_half(from_fp8((uint8_t)a, E5M2));
    }
};
// To nearest, away from 0: 13 bits fall away.
struct FloatToTF32 {
    uint32_t operator()(uint32_t u) const { return (u & 0x7f800000) == 0x7f800000 ? u : (u + 0x1000) & 0xffffe000u; }
};

static Run common(const Conversion &c, Slot d, Slot a) {
    if (c.saturate || c.ftz || c.whole || c.relu) return nullptr;
    if (c.from == Type::F16 && c.to == Type::F32 && a.bytes == 2) return unary<float, uint16_t, HalfToFloat>;
    if (c.from == Type::BF16 && c.to == Type::F32 && a.bytes == 2) return unary<float, uint16_t, BF16ToFloat>;
    if (c.from == Type::F32 && c.mode == 'n' && d.bytes == 2) {
        if (c.to == Type::F16) return unary<uint16_t, float, FloatToHalf>;
        if (c.to == Type::BF16) return unary<uint16_t, float, FloatToBF16>;
    }
    if (c.mode == 'n' && c.to == Type::F32 && a.bytes == 4) {
        if (c.from == Type::S32) return unary<float, int32_t, To<float>>;
        if (c.from == Type::U32) return unary<float, uint32_t, To<float>>;
    }
    if (is_float(c.from) || is_float(c.to)) return nullptr;
    const int to = bytes_of(c.to), from = bytes_of(c.from);
    if (d.bytes == 8 && a.bytes == 4 && to == 8 && from == 4)
        return c.from == Type::S32 ? unary<int64_t, int32_t, To<int64_t>> : unary<uint64_t, uint32_t, To<uint64_t>>;
    if (d.bytes == 4 && a.bytes == 8 && to == 4) return unary<uint32_t, uint64_t, To<uint32_t>>;
    if (d.bytes == 4 && a.bytes == 2 && to == 4 && from == 2)
        return c.from == Type::S16 ? unary<int32_t, int16_t, To<int32_t>> : unary<uint32_t, uint16_t, To<uint32_t>>;
    if (d.bytes == 2 && a.bytes == 4 && to == 2) return unary<uint16_t, uint32_t, To<uint16_t>>;
    return nullptr;
}

static void build_convert(Decoder &d, Instruction &in) {
    const std::string to = d.word(d.current().words.size() - 2), from = d.word(d.current().words.size() - 1);
    if (d.has("pack")) d.unknown();
    if (to == "f16x2" && from == "f32" && d.operands() == 3 && !d.has("relu") && d.has("rn")) {
        in.d = d.slot((size_t)0, Type::U32);
        in.a = d.slot(1, Type::F32);
        in.b = d.slot(2, Type::F32);
        in.run = binary<uint32_t, float, float, TwoFloats<FloatToHalf>>;
        return;
    }
    if (to == "bf16x2" && from == "f32" && d.operands() == 3 && !d.has("relu") && d.has("rn")) {
        in.d = d.slot((size_t)0, Type::U32);
        in.a = d.slot(1, Type::F32);
        in.b = d.slot(2, Type::F32);
        in.run = binary<uint32_t, float, float, TwoFloats<FloatToBF16>>;
        return;
    }
    if ((to == "e4m3x2" || to == "e5m2x2") && from == "f32") {
        in.d = d.slot((size_t)0, Type::U16);
        in.a = d.slot(1, Type::F32);
        in.b = d.slot(2, Type::F32);
        in.run = to == "e4m3x2" ? binary<uint16_t, float, float, FloatsToFP8<false>>
                                : binary<uint16_t, float, float, FloatsToFP8<true>>;
        return;
    }
    if (to == "f16x2" && (from == "e4m3x2" || from == "e5m2x2")) {
        in.d = d.slot((size_t)0, Type::U32);
        in.a = d.slot(1, Type::U16);
        in.run = from == "e4m3x2" ? unary<uint32_t, uint16_t, FP8ToHalves<false>>
                                  : unary<uint32_t, uint16_t, FP8ToHalves<true>>;
        return;
    }
    if (to == "tf32") {
        if (!d.has("rna") || d.has("satfinite")) d.unknown();
        in.d = d.slot((size_t)0, Type::U32);
        in.a = d.slot(1, Type::U32);
        in.run = unary<uint32_t, uint32_t, FloatToTF32>;
        return;
    }
    Conversion c = {};
    c.to = type_of(to);
    c.from = type_of(from);
    if (c.to == Type::NONE || c.from == Type::NONE || c.to == Type::F16X2 || c.to == Type::BF16X2 || d.operands() != 2)
        d.unknown();
    for (size_t i = 1; i + 2 < d.current().words.size(); i++) {
        const std::string &w = d.word(i);
        if (w == "sat") c.saturate = true;
        else if (w == "ftz") c.ftz = true;
        else if (w == "relu") c.relu = true;
        else if (w == "rn" || w == "rz" || w == "rm" || w == "rp" || w == "rna") c.mode = w == "rna" ? 'a' : w[1];
        else if (w == "rni" || w == "rzi" || w == "rmi" || w == "rpi") c.mode = w[1], c.whole = true;
        else d.unknown();
    }
    if (!c.mode) c.mode = 'n';
    in.d = d.slot((size_t)0, c.to);
    in.a = d.slot(1, c.from);
    in.run = common(c, in.d, in.a);
    if (in.run) return;
    in.run = convert_any;
    memcpy(&in.number, &c, sizeof c);
}

static const Opcode cvt("cvt", build_convert);

} // namespace emulator
