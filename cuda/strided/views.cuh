// views.cuh: arrays with strides in kernels: where an element lies, and elements as 32 bits.
#ifndef VB_CUDA_STRIDED_VIEWS_CUH
#define VB_CUDA_STRIDED_VIEWS_CUH

#include "runtime/common.cuh"
#include "strided/choose.h"

namespace vb {

// Quotients by a number that is known at launch (Granlund & Montgomery 1994), of numbers below 2^31.
struct Divisor {
    unsigned by, magic, shift;
    VB_DEVICE unsigned quotient(unsigned n) const { return (__umulhi(n, magic) + n) >> shift; }
};
#ifndef __CUDACC_RTC__
inline Divisor divisor(int64_t by) {
    Divisor d = {(unsigned)by, 0, 0};
    while (((int64_t)1 << d.shift) < by) d.shift++;
    d.magic = (unsigned)((((uint64_t)1 << 32) * (((uint64_t)1 << d.shift) - (uint64_t)by)) / (uint64_t)by + 1);
    return d;
}
#else
VB_DEVICE Divisor divisor(int64_t) { return Divisor(); }
#endif

struct View {
    char *data;
    vb_dtype type;
    int bytes; // of an element
    int64_t strides[VB_MAX_DIMS]; // elements
};

inline View view_of(const vb_view &v) {
    View w = {(char *)v.data, v.type, vb_element_bytes(v.type), {}};
    for (int d = 0; d < VB_MAX_DIMS; d++) w.strides[d] = v.strides[d];
    return w;
}

// Elements as 32 bits: floats as float32, integers as int32.
VB_DEVICE unsigned load_element(const char *data, vb_dtype type, int64_t at) {
    switch (type) {
    case VB_F32:
    case VB_I32: return reinterpret_cast<const unsigned *>(data)[at];
    case VB_F16: return __float_as_uint(to_float(reinterpret_cast<const half *>(data)[at]));
    case VB_BF16: return __float_as_uint(to_float(reinterpret_cast<const bf16 *>(data)[at]));
    case VB_I8: return (unsigned)(int)reinterpret_cast<const signed char *>(data)[at];
    case VB_U8: return reinterpret_cast<const unsigned char *>(data)[at];
    default: return reinterpret_cast<const unsigned char *>(data)[at] != 0;
    }
}

VB_DEVICE void store_element(char *data, vb_dtype type, int64_t at, unsigned x) {
    switch (type) {
    case VB_F32:
    case VB_I32: reinterpret_cast<unsigned *>(data)[at] = x; break;
    case VB_F16: reinterpret_cast<half *>(data)[at] = from_float<half>(__uint_as_float(x)); break;
    case VB_BF16: reinterpret_cast<bf16 *>(data)[at] = from_float<bf16>(__uint_as_float(x)); break;
    case VB_BOOL: reinterpret_cast<unsigned char *>(data)[at] = x != 0; break;
    default: reinterpret_cast<unsigned char *>(data)[at] = (unsigned char)x;
    }
}

// Elements are loaded as they are, several at a time, and widened to 32 bits each when all loads are under way.
// WIDTH neighbours (4, aligned to their size, or 1) are loaded, of which the first `count` exist. A `repeated` element
// fills all places.
template <int WIDTH>
VB_DEVICE void load_raw(unsigned *x, const char *data, int bytes, int64_t at, unsigned count, bool repeated) {
    if (bytes == 4) {
        const unsigned *const p = reinterpret_cast<const unsigned *>(data) + at;
        if (WIDTH == 4 && !repeated && count >= 4) {
            const uint4 w = *reinterpret_cast<const uint4 *>(p);
            x[0] = w.x, x[1] = w.y, x[2] = w.z, x[WIDTH - 1] = w.w;
            return;
        }
#pragma unroll
        for (int e = 0; e < WIDTH; e++) x[e] = e < count ? p[repeated ? 0 : e] : 0;
    } else if (bytes == 2) {
        const unsigned short *const p = reinterpret_cast<const unsigned short *>(data) + at;
        if (WIDTH == 4 && !repeated && count >= 4) {
            const uint2 w = *reinterpret_cast<const uint2 *>(p);
            x[0] = w.x, x[1] = w.y;
            return;
        }
        unsigned w[4] = {p[0], 0, 0, 0};
#pragma unroll
        for (int e = 1; e < WIDTH; e++) w[e] = e < count ? repeated ? w[0] : p[e] : 0;
        x[0] = w[0] | w[1] << 16;
        if (WIDTH == 4) x[1] = w[2] | w[3] << 16;
    } else {
        const unsigned char *const p = reinterpret_cast<const unsigned char *>(data) + at;
        if (WIDTH == 4 && !repeated && count >= 4) {
            x[0] = *reinterpret_cast<const unsigned *>(p);
            return;
        }
        unsigned w[4] = {p[0], 0, 0, 0};
#pragma unroll
        for (int e = 1; e < WIDTH; e++) w[e] = e < count ? repeated ? w[0] : p[e] : 0;
        x[0] = w[0] | w[1] << 8 | w[2] << 16 | w[3] << 24;
    }
}

VB_DEVICE unsigned float_bits(unsigned h, bool of_bf16) {
    if (of_bf16) return h << 16;
    return __float_as_uint(to_float(__ushort_as_half((unsigned short)h)));
}

// Widens N elements, WIDTH of which were loaded together: floats to float32, integers to int32.
template <int N, int WIDTH>
VB_DEVICE void widen(unsigned *x, vb_dtype type) {
    if (type == VB_F32 || type == VB_I32) return;
    const bool of_bf16 = type == VB_BF16;
#pragma unroll
    for (int g = 0; g < N; g += WIDTH) {
        unsigned *const y = x + g;
        if (type == VB_F16 || of_bf16) {
            const unsigned low = y[0], high = WIDTH == 4 ? y[1 % WIDTH] : 0;
            y[0] = float_bits(low & 0xffff, of_bf16);
            if (WIDTH == 4) {
                y[1 % WIDTH] = float_bits(low >> 16, of_bf16);
                y[2 % WIDTH] = float_bits(high & 0xffff, of_bf16);
                y[3 % WIDTH] = float_bits(high >> 16, of_bf16);
            }
        } else {
            const unsigned all = y[0];
#pragma unroll
            for (int e = 0; e < WIDTH; e++) {
                const unsigned byte = all >> 8 * e & 0xff;
                y[e] = type == VB_I8 ? (unsigned)(int)(signed char)byte : type == VB_BOOL ? byte != 0 : byte;
            }
        }
    }
}

// Four neighbours that are aligned to their size.
VB_DEVICE void store_four(char *data, vb_dtype type, int64_t at, const unsigned *x) {
    switch (type) {
    case VB_F32:
    case VB_I32: *reinterpret_cast<uint4 *>(data + 4 * at) = make_uint4(x[0], x[1], x[2], x[3]); break;
    case VB_F16: {
        Vec<half, 4> w;
#pragma unroll
        for (int e = 0; e < 4; e++) w.at[e] = from_float<half>(__uint_as_float(x[e]));
        *reinterpret_cast<Vec<half, 4> *>(data + 2 * at) = w;
        break;
    }
    case VB_BF16: {
        Vec<bf16, 4> w;
#pragma unroll
        for (int e = 0; e < 4; e++) w.at[e] = from_float<bf16>(__uint_as_float(x[e]));
        *reinterpret_cast<Vec<bf16, 4> *>(data + 2 * at) = w;
        break;
    }
    default: {
        uchar4 w = make_uchar4((unsigned char)x[0], (unsigned char)x[1], (unsigned char)x[2], (unsigned char)x[3]);
        if (type == VB_BOOL) w = make_uchar4(x[0] != 0, x[1] != 0, x[2] != 0, x[3] != 0);
        *reinterpret_cast<uchar4 *>(data + at) = w;
    }
    }
}

} // namespace vb
#endif
