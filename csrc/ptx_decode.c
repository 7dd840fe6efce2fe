/* ptx_decode.c: how the kernels of ptx_device.h read stored weights: element e of the block at b becomes v, as quant.h
 * defines each type. The text here takes the place of DECODE in a kernel. */
#include <stdlib.h>

#include "codebooks.h"
#include "ptx_device.h"

const char *vb_jit_type(vb_dtype type) { return type == VB_F32 ? "f32" : type == VB_F16 ? "f16"
    : type == VB_BF16 ? "bf16" : NULL; }

static const char f32_text[] = VB_PTX_SOURCE({ f32 *p = b; v = p[0]; });
static const char f16_text[] = VB_PTX_SOURCE({ f16 *p = b; v = p[0]; });
static const char bf16_text[] = VB_PTX_SOURCE({ bf16 *p = b; v = p[0]; });
static const char i32_text[] = VB_PTX_SOURCE({ s32 *p = b; v = f32(p[0]); });

static const char q4_0[] = VB_PTX_SOURCE({
    f16 *h = b;
    u32 q = b[2 + e % 16] >> e / 16 * 4 & 15;
    v = (f32(q) - 8.0) * h[0];
});
static const char q4_1[] = VB_PTX_SOURCE({
    f16 *h = b;
    u32 q = b[4 + e % 16] >> e / 16 * 4 & 15;
    v = f32(q) * h[0] + h[1];
});
static const char q5_0[] = VB_PTX_SOURCE({
    f16 *h = b;
    u32 q = b[6 + e % 16] >> e / 16 * 4 & 15 | (b[2 + e / 8] >> e % 8 & 1) << 4;
    v = (f32(q) - 16.0) * h[0];
});
static const char q5_1[] = VB_PTX_SOURCE({
    f16 *h = b;
    u32 q = b[8 + e % 16] >> e / 16 * 4 & 15 | (b[4 + e / 8] >> e % 8 & 1) << 4;
    v = f32(q) * h[0] + h[1];
});
static const char q8_0[] = VB_PTX_SOURCE({
    f16 *h = b;
    s8 *q = b;
    v = f32(q[2 + e]) * h[0];
});
static const char iq4_nl[] = VB_PTX_SOURCE({
    f16 *h = b;
    u32 q = b[2 + e % 16] >> e / 16 * 4 & 15;
    u32 four = q < 8 ? (q < 4 ? 0xbfad9881 : 0xf6eaddcf) : (q < 12 ? 0x26190d01 : 0x71594535);
    v = f32(s32(four << 24 - q % 4 * 8) >> 24) * h[0];
});
static const char mxfp4[] = VB_PTX_SOURCE({
    u32 exponent = b[0];
    f32 d = from_bits(exponent < 2 ? 0x200000 << exponent : exponent - 1 << 23);
    u32 q = b[1 + e % 16] >> e / 16 * 4 & 15;
    u32 four = (q & 7) < 4 ? 0x03020100 : 0x0c080604;
    v = f32(four >> (q & 3) * 8 & 255) * d;
    if (q > 7) v = -v;
});

static const char q2_k[] = VB_PTX_SOURCE({
    f16 *h = b;
    u32 scales = b[e / 16];
    u32 q = b[16 + e / 128 * 32 + e % 32] >> e % 128 / 32 * 2 & 3;
    v = h[40] * f32(scales & 15) * f32(q) - h[41] * f32(scales >> 4);
});
static const char q3_k[] = VB_PTX_SOURCE({
    f16 *h = b;
    u32 s = e / 16;
    u32 scale = b[96 + s % 8] >> s / 8 * 4 & 15 | (b[104 + s % 4] >> s / 4 * 2 & 3) << 4;
    u32 q = b[32 + e / 128 * 32 + e % 32] >> e % 128 / 32 * 2 & 3 | (b[e % 32] >> e / 32 & 1) << 2;
    v = h[54] * f32(s32(scale) - 32) * f32(s32(q) - 4);
});
static const char q4_k[] = VB_PTX_SOURCE({
    f16 *h = b;
    u32 s = e / 32;
    u32 scale = 0;
    u32 least = 0;
    ) VB_PTX_K4_SCALE VB_PTX_SOURCE(
    u32 q = b[16 + s / 2 * 32 + e % 32] >> s % 2 * 4 & 15;
    v = h[0] * f32(scale) * f32(q) - h[1] * f32(least);
});
static const char q5_k[] = VB_PTX_SOURCE({
    f16 *h = b;
    u32 s = e / 32;
    u32 scale = 0;
    u32 least = 0;
    ) VB_PTX_K4_SCALE VB_PTX_SOURCE(
    u32 q = b[48 + s / 2 * 32 + e % 32] >> s % 2 * 4 & 15 | (b[16 + e % 32] >> s & 1) << 4;
    v = h[0] * f32(scale) * f32(q) - h[1] * f32(least);
});
static const char q6_k[] = VB_PTX_SOURCE({
    f16 *h = b;
    s8 *scales = b;
    u32 j = e % 128 / 32;
    u32 q = b[e / 128 * 64 + j % 2 * 32 + e % 32] >> j / 2 * 4 & 15 | (
        b[128 + e / 128 * 32 + e % 32] >> j * 2 & 3) << 4;
    v = h[104] * f32(scales[192 + e / 16]) * f32(s32(q) - 32);
});
static const char iq4_xs[] = VB_PTX_SOURCE({
    f16 *h = b;
    u16 *w = b;
    u32 s = e / 32;
    u32 scale = b[4 + s / 2] >> s % 2 * 4 & 15 | (w[1] >> s * 2 & 3) << 4;
    u32 q = b[8 + s * 16 + e % 16] >> e % 32 / 16 * 4 & 15;
    u32 four = q < 8 ? (q < 4 ? 0xbfad9881 : 0xf6eaddcf) : (q < 12 ? 0x26190d01 : 0x71594535);
    v = h[0] * f32(s32(scale) - 32) * f32(s32(four << 24 - q % 4 * 8) >> 24);
});
static const char tq1_0[] = VB_PTX_SOURCE({
    f16 *h = b;
    u32 at = e % 32;
    u32 digit = e / 32;
    if (e >= 160) {
        at = 32 + e % 16;
        digit = (e - 160) / 16;
    }
    if (e >= 240) {
        at = 48 + e % 4;
        digit = (e - 240) / 4;
    }
    u32 power = digit < 2 ? (digit < 1 ? 1 : 3) : (digit < 3 ? 9 : (digit < 4 ? 27 : 81));
    v = (f32((b[at] * power & 255) * 3 >> 8) - 1.0) * h[26];
});
static const char tq2_0[] = VB_PTX_SOURCE({
    f16 *h = b;
    v = (f32(b[e / 128 * 32 + e % 32] >> e % 128 / 32 * 2 & 3) - 1.0) * h[32];
});
static const char q1_0[] = VB_PTX_SOURCE({
    f16 *h = b;
    v = h[0];
    if ((b[2 + e / 8] >> e % 8 & 1) == 0) v = -v;
});
static const char q2_0[] = VB_PTX_SOURCE({
    f16 *h = b;
    v = (f32(b[2 + e / 4] >> e % 4 * 2 & 3) - 1.0) * h[0];
});
static const char nvfp4[] = VB_PTX_SOURCE({
    u32 code = b[e / 16];
    u32 exponent = code >> 3 & 15;
    u32 mantissa = code & 7;
    f32 d = exponent == 0 ? f32(mantissa) * 0.0009765625 : f32(8 + mantissa << exponent) * 0.00048828125;
    if (code == 127) d = 0;
    u32 q = b[4 + e / 16 * 8 + e % 8] >> e % 16 / 8 * 4 & 15;
    u32 four = (q & 7) < 4 ? 0x03020100 : 0x0c080604;
    v = f32(four >> (q & 3) * 8 & 255) * d;
    if (q > 7) v = -v;
});

/* Of codebooks: 0x2b1908 holds the magnitudes of IQ2. */
static const char iq2_xxs[] = VB_PTX_SOURCE({
    f16 *h = b;
    u16 *w = b;
    u32 s = e / 32;
    u32 group = e % 32 / 8;
    u32 rest = w[3 + s * 4] | w[4 + s * 4] << 16;
    u32 signs = rest >> group * 7 & 127;
    u32 parity = signs ^ signs >> 4;
    parity = parity ^ parity >> 2;
    signs = signs | ((parity ^ parity >> 1) & 1) << 7;
    u32 entry = book[b[2 + s * 8 + group]];
    v = h[0] * (0.5 + f32(rest >> 28)) * 0.25 * f32(0x2b1908 >> (entry >> e % 8 * 2 & 3) * 8 & 255);
    if ((signs >> e % 8 & 1) == 1) v = -v;
});
static const char iq2_xs[] = VB_PTX_SOURCE({
    f16 *h = b;
    u16 *w = b;
    u32 group = e / 8;
    u32 word = w[1 + group];
    u32 signs = word >> 9;
    u32 parity = signs ^ signs >> 4;
    parity = parity ^ parity >> 2;
    signs = signs | ((parity ^ parity >> 1) & 1) << 7;
    u32 entry = book[word & 511];
    u32 scale = b[66 + group / 4] >> group / 2 % 2 * 4 & 15;
    v = h[0] * (0.5 + f32(scale)) * 0.25 * f32(0x2b1908 >> (entry >> e % 8 * 2 & 3) * 8 & 255);
    if ((signs >> e % 8 & 1) == 1) v = -v;
});
static const char iq2_s[] = VB_PTX_SOURCE({
    f16 *h = b;
    u32 group = e / 8;
    u32 entry = book[b[2 + group] | (b[66 + group / 4] >> group % 4 * 2 & 3) << 8];
    u32 scale = b[74 + group / 4] >> group / 2 % 2 * 4 & 15;
    v = h[0] * (0.5 + f32(scale)) * 0.25 * f32(0x2b1908 >> (entry >> e % 8 * 2 & 3) * 8 & 255);
    if ((b[34 + group] >> e % 8 & 1) == 1) v = -v;
});
static const char iq3_xxs[] = VB_PTX_SOURCE({
    f16 *h = b;
    u16 *w = b;
    u32 s = e / 32;
    u32 rest = w[33 + s * 2] | w[34 + s * 2] << 16;
    u32 signs = rest >> e % 32 / 8 * 7 & 127;
    u32 parity = signs ^ signs >> 4;
    parity = parity ^ parity >> 2;
    signs = signs | ((parity ^ parity >> 1) & 1) << 7;
    u32 code = book[b[2 + e / 4]] >> e % 4 * 3 & 7;
    v = h[0] * (0.5 + f32(rest >> 28)) * 0.5 * f32(code < 7 ? 4 + code * 8 : 62);
    if ((signs >> e % 8 & 1) == 1) v = -v;
});
static const char iq3_s[] = VB_PTX_SOURCE({
    f16 *h = b;
    u32 group = e / 4;
    u32 code = book[b[2 + group] | (b[66 + group / 8] >> group % 8 & 1) << 8] >> e % 4 * 3 & 7;
    u32 scale = b[106 + e / 64] >> e / 32 % 2 * 4 & 15;
    v = h[0] * f32(2 * scale + 1) * f32(2 * code + 1);
    if ((b[74 + e / 8] >> e % 8 & 1) == 1) v = -v;
});
static const char iq1_s[] = VB_PTX_SOURCE({
    f16 *h = b;
    u16 *w = b;
    u32 group = e / 8;
    u32 rest = w[17 + group / 4];
    u32 entry = book[b[2 + group] | (rest >> group % 4 * 3 & 7) << 8];
    f32 delta = rest > 32767 ? -0.125 : 0.125;
    v = h[0] * f32(2 * (rest >> 12 & 7) + 1) * (f32(entry >> e % 8 * 2 & 3) - 1.0 + delta);
});
static const char iq1_m[] = VB_PTX_SOURCE({
    u16 *w = b;
    u32 group = e / 8;
    u32 nibble = b[32 + group / 2] >> group % 2 * 4 & 15;
    u32 scale = w[24 + group / 8] >> group / 2 % 4 * 3 & 7;
    u32 d = w[24] >> 12 | w[25] >> 12 << 4 | w[26] >> 12 << 8 | w[27] >> 12 << 12;
    u32 entry = book[b[group] | (nibble & 7) << 8];
    f32 delta = nibble > 7 ? -0.125 : 0.125;
    v = f16_low(d) * f32(2 * scale + 1) * (f32(entry >> e % 8 * 2 & 3) - 1.0 + delta);
});

const char *vb_jit_decode(vb_dtype type) {
    switch (type) {
    case VB_F32: return f32_text;
    case VB_F16: return f16_text;
    case VB_BF16: return bf16_text;
    case VB_I32: return i32_text;
    case VB_Q4_0: return q4_0;
    case VB_Q4_1: return q4_1;
    case VB_Q5_0: return q5_0;
    case VB_Q5_1: return q5_1;
    case VB_Q8_0: return q8_0;
    case VB_Q2_K: return q2_k;
    case VB_Q3_K: return q3_k;
    case VB_Q4_K: return q4_k;
    case VB_Q5_K: return q5_k;
    case VB_Q6_K: return q6_k;
    case VB_IQ2_XXS: return iq2_xxs;
    case VB_IQ2_XS: return iq2_xs;
    case VB_IQ2_S: return iq2_s;
    case VB_IQ3_XXS: return iq3_xxs;
    case VB_IQ3_S: return iq3_s;
    case VB_IQ1_S: return iq1_s;
    case VB_IQ1_M: return iq1_m;
    case VB_IQ4_NL: return iq4_nl;
    case VB_IQ4_XS: return iq4_xs;
    case VB_TQ1_0: return tq1_0;
    case VB_TQ2_0: return tq2_0;
    case VB_MXFP4: return mxfp4;
    case VB_NVFP4: return nvfp4;
    case VB_Q1_0: return q1_0;
    case VB_Q2_0: return q2_0;
    default: return NULL; /* VB_I8 is no weight */
    }
}

/* ---- codebooks in the GPU's memory ------------------------------------------------------------------------------- */

static const struct books {
    uint16_t iq2_xxs[256], iq2_xs[512], iq2_s[1024], iq3_xxs[256], iq3_s[512], iq1[2048];
} books = {{VB_CODEBOOK_IQ2_XXS}, {VB_CODEBOOK_IQ2_XS}, {VB_CODEBOOK_IQ2_S}, {VB_CODEBOOK_IQ3_XXS},
    {VB_CODEBOOK_IQ3_S}, {VB_CODEBOOK_IQ1}};

vb_status vb_jit_load_books(vb_jit_device *device) {
    vb_status status = vb_jit_status(device->driver->alloc(&device->books, sizeof books), device);
    return status == VB_OK ? vb_jit_status(device->driver->copy_to_device(device->books, &books, sizeof books),
        device) : status;
}

cu_address vb_jit_book(vb_dtype type, const vb_jit_device *device) {
    switch (type) {
    case VB_IQ2_XS: return device->books + offsetof(struct books, iq2_xs);
    case VB_IQ2_S: return device->books + offsetof(struct books, iq2_s);
    case VB_IQ3_XXS: return device->books + offsetof(struct books, iq3_xxs);
    case VB_IQ3_S: return device->books + offsetof(struct books, iq3_s);
    case VB_IQ1_S:
    case VB_IQ1_M: return device->books + offsetof(struct books, iq1);
    default: return device->books; /* IQ2_XXS, and types that read none */
    }
}
