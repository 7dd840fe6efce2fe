// steps.cuh: the steps of expressions of elements, on N elements of a thread at a time.
#ifndef VB_CUDA_STRIDED_STEPS_CUH
#define VB_CUDA_STRIDED_STEPS_CUH

#include "rows/map.cuh"

namespace vb {

// An operation of integers is the operation of floats and this bit.
constexpr int of_integers = 64;

// Calls keep code that N elements would repeat out of the kernel.
static __device__ __noinline__ float pow_call(float a, float b) { return powf(a, b); }
static __device__ __noinline__ float sin_call(float a) { return sinf(a); }
static __device__ __noinline__ float cos_call(float a) { return cosf(a); }

VB_DEVICE int divided(int a, int b) { return b == 0 ? 0 : b == -1 ? (int)(0u - (unsigned)a) : a / b; }

// Integers a to the power of b by squares, as vibrant.h says of b below 0.
static __device__ __noinline__ unsigned whole_power(int a, int b) {
    if (b < 0) {
        if (a != 1 && a != -1) return 0;
        b &= 1;
    }
    unsigned result = 1;
    for (unsigned square = (unsigned)a; b != 0; b >>= 1, square *= square)
        if (b & 1) result *= square;
    return result;
}

struct Words {
    unsigned at[4];
};

VB_DEVICE Words philox(unsigned counter, unsigned key0, unsigned key1) {
    unsigned x0 = counter, x1 = 0, x2 = 0, x3 = 0;
#pragma unroll
    for (int round = 0; round < 10; round++) {
        const unsigned high0 = __umulhi(0xD2511F53u, x0), low0 = 0xD2511F53u * x0;
        const unsigned high1 = __umulhi(0xCD9E8D57u, x2), low1 = 0xCD9E8D57u * x2;
        x0 = high1 ^ x1 ^ key0;
        x1 = low1;
        x2 = high0 ^ x3 ^ key1;
        x3 = low0;
        key0 += 0x9E3779B9u;
        key1 += 0xBB67AE85u;
    }
    return {x0, x1, x2, x3};
}

// -log(m / 2^24) of 1 <= m <= 2^24, within 2 units in the last place: the exponent, and a polynomial of log(1 + t) for
// -1/3 <= t <= 1/3 (the coefficients of CUDA's logf).
VB_DEVICE float minus_log_of_fraction(unsigned m) {
    const unsigned x = __float_as_uint((float)m), exponent = (x - 0x3f2aaaabu) & 0xff800000u;
    const float t = __uint_as_float(x - exponent) - 1.0f;
    float p = -0.130310059f;
    p = fmaf(p, t, 0.140869141f);
    p = fmaf(p, t, -0.121483512f);
    p = fmaf(p, t, 0.139814854f);
    p = fmaf(p, t, -0.166846126f);
    p = fmaf(p, t, 0.200120345f);
    p = fmaf(p, t, -0.249996200f);
    p = fmaf(p, t, 0.333331972f);
    p = fmaf(p, t, -0.5f);
    const float log_of = fmaf(p * t, t, t);
    return fmaf(24.0f - (float)((int)exponent >> 23), 0.693147182f, -log_of);
}

// The sine and the cosine of 2 pi k / 2^24, within 1e-7: polynomials of the angle from the nearest quarter (Cephes,
// sinf and cosf).
VB_DEVICE void sine_cosine_of_fraction(unsigned k, float *sine, float *cosine) {
    const unsigned quarter = (k + (1u << 21)) >> 22;
    const float x = (float)(int)(k - (quarter << 22)) * 3.74507039e-7f, z = x * x; // 2 pi / 2^24
    float s = fmaf(fmaf(-1.9515295891e-4f, z, 8.3321608736e-3f), z, -1.6666654611e-1f);
    float c = fmaf(fmaf(2.443315711809948e-5f, z, -1.388731625493765e-3f), z, 4.166664568298827e-2f);
    s = fmaf(s * z, x, x);
    c = fmaf(c * z, z, fmaf(-0.5f, z, 1.0f));
    const float a = quarter & 1 ? c : s, b = quarter & 1 ? s : c;
    *sine = __uint_as_float(__float_as_uint(a) ^ (quarter & 2) << 30);
    *cosine = __uint_as_float(__float_as_uint(b) ^ ((quarter + 1) & 2) << 30);
}

VB_DEVICE float sqrt_fast(float x) {
    float y;
    asm("sqrt.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

// The random numbers of four elements of one counter: of so many bits, or normal ones (vibrant.h).
VB_DEVICE Words random_of(Words w, unsigned bits) {
    Words x;
    if (bits > 0) {
        const float unit = __uint_as_float((127u - bits) << 23);
#pragma unroll
        for (int e = 0; e < 4; e++) x.at[e] = __float_as_uint((float)(w.at[e] >> (32 - bits)) * unit);
        return x;
    }
#pragma unroll
    for (int e = 0; e < 4; e += 2) {
        float sine, cosine;
        sine_cosine_of_fraction(w.at[e + 1] >> 8, &sine, &cosine);
        const float radius = sqrt_fast(2.0f * minus_log_of_fraction((1u << 24) - (w.at[e] >> 8)));
        x.at[e] = __float_as_uint(radius * cosine);
        x.at[e + 1] = __float_as_uint(radius * sine);
    }
    return x;
}

VB_DEVICE float smaller_or_nan(float a, float b) { return a < b || a != a ? a : b; }
VB_DEVICE float greater_or_nan(float a, float b) { return a > b || a != a ? a : b; }

#define EACH _Pragma("unroll") for (int e = 0; e < N; e++)
#define FLOATS(expression)                                                                                             \
    EACH {                                                                                                             \
        const float a = __uint_as_float(x[e]), b = __uint_as_float(y[e]);                                              \
        (void)a, (void)b;                                                                                              \
        x[e] = __float_as_uint(expression);                                                                            \
    }                                                                                                                  \
    break
#define TRUTHS(expression)                                                                                             \
    EACH {                                                                                                             \
        const float a = __uint_as_float(x[e]), b = __uint_as_float(y[e]);                                              \
        x[e] = (expression);                                                                                           \
    }                                                                                                                  \
    break
#define INTEGERS(expression)                                                                                           \
    EACH {                                                                                                             \
        const int a = (int)x[e], b = (int)y[e];                                                                        \
        (void)a, (void)b;                                                                                              \
        x[e] = (unsigned)(expression);                                                                                 \
    }                                                                                                                  \
    break
#define UNSIGNED(expression)                                                                                           \
    EACH {                                                                                                             \
        const unsigned a = x[e], b = y[e];                                                                             \
        (void)b;                                                                                                       \
        x[e] = (expression);                                                                                           \
    }                                                                                                                  \
    break

// x = op(x, y, z); index(e) is the number of element e. Each WIDTH elements are neighbours, the first a multiple of it.
template <int N, int WIDTH = 1, class Index>
VB_DEVICE void perform(int op, unsigned *x, const unsigned *y, const unsigned *z, Index index) {
    switch (op) {
    case VB_ELEMENT_INDEX: EACH x[e] = index(e); break;
    case VB_ELEMENT_RANDOM: {
        const unsigned key0 = x[0], key1 = y[0], bits = z[0];
#pragma unroll
        for (int e = 0; e < N; e += WIDTH) {
            const unsigned i = index(e);
            const Words w = random_of(philox(i / 4, key0, key1), bits);
#pragma unroll
            for (int k = 0; k < 4; k++)
                if (WIDTH == 4) x[e + k % WIDTH] = w.at[k];
                else if (i % 4 == k) x[e] = w.at[k];
        }
        break;
    }
    case VB_ELEMENT_TO_FLOAT: EACH x[e] = __float_as_uint((float)(int)x[e]); break;
    case VB_ELEMENT_TO_INTEGER: EACH x[e] = (unsigned)__float2int_rz(__uint_as_float(x[e])); break;
    case VB_ELEMENT_WHERE: EACH x[e] = x[e] ? y[e] : z[e]; break;
    case VB_ELEMENT_ADD: FLOATS(__fadd_rn(a, b));
    case VB_ELEMENT_SUB: FLOATS(__fsub_rn(a, b));
    case VB_ELEMENT_MUL: FLOATS(__fmul_rn(a, b));
    case VB_ELEMENT_DIV: FLOATS(a / b);
    case VB_ELEMENT_MIN: FLOATS(smaller_or_nan(a, b));
    case VB_ELEMENT_MAX: FLOATS(greater_or_nan(a, b));
    case VB_ELEMENT_NEG: FLOATS(-a);
    case VB_ELEMENT_ABS: FLOATS(fabsf(a));
    case VB_ELEMENT_EQ: TRUTHS(a == b);
    case VB_ELEMENT_NE: TRUTHS(a != b);
    case VB_ELEMENT_LT: TRUTHS(a < b);
    case VB_ELEMENT_LE: TRUTHS(a <= b);
    case VB_ELEMENT_POW: FLOATS(N == 1 ? powf(a, b) : pow_call(a, b));
    case VB_ELEMENT_EXP: FLOATS(expf(a));
    case VB_ELEMENT_LOG: FLOATS(logf(a));
    case VB_ELEMENT_SQRT: FLOATS(sqrtf(a));
    case VB_ELEMENT_RSQRT: FLOATS(rsqrtf(a));
    case VB_ELEMENT_SIN: FLOATS(N == 1 ? sinf(a) : sin_call(a));
    case VB_ELEMENT_COS: FLOATS(N == 1 ? cosf(a) : cos_call(a));
    case VB_ELEMENT_TANH: FLOATS(tanhf(a));
    case VB_ELEMENT_SIGMOID: FLOATS(__fdividef(1.0f, 1.0f + expf(-a)));
    case VB_ELEMENT_SILU: FLOATS(silu(a));
    case VB_ELEMENT_GELU: FLOATS(GeluOp()(a, b));
    case VB_ELEMENT_GELU_TANH: FLOATS(GeluTanhOp()(a, b));
    case VB_ELEMENT_FLOOR: FLOATS(floorf(a));
    case VB_ELEMENT_CEIL: FLOATS(ceilf(a));
    case VB_ELEMENT_ROUND: FLOATS(rintf(a));
    case VB_ELEMENT_ADD + of_integers: UNSIGNED(a + b);
    case VB_ELEMENT_SUB + of_integers: UNSIGNED(a - b);
    case VB_ELEMENT_MUL + of_integers: UNSIGNED(a * b);
    case VB_ELEMENT_DIV + of_integers: INTEGERS(divided(a, b));
    case VB_ELEMENT_REM + of_integers: INTEGERS(b == 0 || b == -1 ? 0 : a % b);
    case VB_ELEMENT_POW + of_integers: INTEGERS(whole_power(a, b));
    case VB_ELEMENT_MIN + of_integers: INTEGERS(a < b ? a : b);
    case VB_ELEMENT_MAX + of_integers: INTEGERS(a > b ? a : b);
    case VB_ELEMENT_NEG + of_integers: UNSIGNED(0u - a);
    case VB_ELEMENT_ABS + of_integers: INTEGERS(a < 0 ? 0u - (unsigned)a : (unsigned)a);
    case VB_ELEMENT_EQ + of_integers: INTEGERS(a == b);
    case VB_ELEMENT_NE + of_integers: INTEGERS(a != b);
    case VB_ELEMENT_LT + of_integers: INTEGERS(a < b);
    case VB_ELEMENT_LE + of_integers: INTEGERS(a <= b);
    case VB_ELEMENT_AND + of_integers: UNSIGNED(a & b);
    case VB_ELEMENT_OR + of_integers: UNSIGNED(a | b);
    case VB_ELEMENT_XOR + of_integers: UNSIGNED(a ^ b);
    case VB_ELEMENT_SHIFT_RIGHT + of_integers: UNSIGNED(a >> (b & 31));
    default: break; // CONSTANT: x is the constant
    }
}

#undef FLOATS
#undef TRUTHS
#undef INTEGERS
#undef UNSIGNED

} // namespace vb
#endif
