/* ptx_packed.c: the layout VB_PACKED of GPUs whose kernels the driver compiles: the same numbers in planes, which are
 * read by 16 bytes. A unit is 32 neighbouring elements of a row, eight words v[0..7] of four codes a word. A row holds
 *   low     four bits of each code, 16 bytes a unit: v[j] and v[4 + j] share word j. Codes of 8 bits: v[0..3] of all
 *           units, then v[4..7]
 *   high    of 5 bits: 4 bytes a unit, bit 8 k + j belongs to byte k of v[j]; of 6 bits: 8 bytes a unit, word j / 4
 *   scales  HALF: d; HALF_MIN: d and m; K4: the bytes of scale and minimum; K6: the scales of 16 elements each
 *   blocks  K4, K6: d and dmin of 256 elements
 * Each plane is padded to 16 bytes. Rows follow each other. */
#include "ptx_packed.h"

static int64_t padded(int64_t bytes) { return (bytes + 15) / 16 * 16; }

bool vb_jit_layout_of(vb_jit_layout *layout, vb_dtype type, int64_t cols) {
    static const struct { vb_dtype type; int bits, scales, zero; } all[] = {
        {VB_Q4_0, 4, VB_JIT_HALF, 8},      {VB_Q4_1, 4, VB_JIT_HALF_MIN, 0}, {VB_Q5_0, 5, VB_JIT_HALF, 16},
        {VB_Q5_1, 5, VB_JIT_HALF_MIN, 0},  {VB_Q8_0, 8, VB_JIT_HALF, 0},     {VB_Q4_K, 4, VB_JIT_K4, 0},
        {VB_Q5_K, 5, VB_JIT_K4, 0},        {VB_Q6_K, 6, VB_JIT_K6, 32}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        if (all[i].type != type) continue;
        vb_jit_layout l = {.bits = all[i].bits, .scales = all[i].scales, .zero = all[i].zero, .units = cols / 32};
        const bool blocks = l.scales == VB_JIT_K4 || l.scales == VB_JIT_K6;
        l.high = l.units * (l.bits == 8 ? 32 : 16);
        l.scale = l.high + padded(l.bits == 5 ? l.units * 4 : l.bits == 6 ? l.units * 8 : 0);
        l.block = l.scale + padded(l.units * (l.scales == VB_JIT_HALF_MIN ? 4 : 2));
        l.row = l.block + (blocks ? padded(l.units / 8 * 4) : 0);
        *layout = l;
        return cols > 0 && cols % 32 == 0;
    }
    return false;
}

/* A block packs a row, a thread a unit. CODES puts the code of element e of block b into q. */
static const char pack[] = VB_PTX_SOURCE(
kernel ENTRY(u8 *out, u8 *stored, u32 units, u32 high_at, u32 scale_at, u32 block_at, u64 row_bytes) threads(128) {
    u8 *row = out;
    row += u64(block.x) * row_bytes;
    u32 *words = row;
    u16 *halves = row;
    for (u32 unit = thread.x; unit < units; unit += 128) {
        u32 from = unit * 32 % QK;
        u8 *b = stored;
        b += (u64(block.x) * (units * 32 / QK) + unit * 32 / QK) * BYTES;
        u32 high = 0, upper = 0;
        for (u32 j = 0; j < 4; j += 1) {
            u32 v[2] = 0;
            unroll (h : 2) unroll (k : 4) {
                u32 e = from + h * 16 + j * 4 + k, q = 0;
                CODES
                v[h] = v[h] | q << k * 8;
            }
            if (BITS == 8) {
                words[unit * 4 + j] = v[0];
                words[(units + unit) * 4 + j] = v[1];
            } else {
                words[unit * 4 + j] = v[0] & 0x0f0f0f0f | (v[1] & 0x0f0f0f0f) << 4;
            }
            if (BITS == 5) high = high | (v[0] >> 4 & 0x01010101) << j | (v[1] >> 4 & 0x01010101) << j + 4;
            if (BITS == 6) {
                high = high | (v[0] >> 4 & 0x03030303) << j * 2;
                upper = upper | (v[1] >> 4 & 0x03030303) << j * 2;
            }
        }
        if (BITS == 5) words[unit + high_at / 4] = high;
        if (BITS == 6) {
            words[unit * 2 + high_at / 4] = high;
            words[unit * 2 + high_at / 4 + 1] = upper;
        }
        u16 *stored_halves = b;
        if (SCALES == 0) halves[unit + scale_at / 2] = stored_halves[0];
        if (SCALES == 1) words[unit + scale_at / 4] = stored_halves[0] | stored_halves[1] << 16;
        if (SCALES == 2) {
            u32 s = from / 32, scale = 0, least = 0;
            ) VB_PTX_K4_SCALE VB_PTX_SOURCE(
            halves[unit + scale_at / 2] = scale | least << 8;
            if (s == 0) words[unit / 8 + block_at / 4] = stored_halves[0] | stored_halves[1] << 16;
        }
        if (SCALES == 3) {
            u32 s = from / 16;
            halves[unit + scale_at / 2] = b[192 + s] | b[193 + s] << 8;
            if (s == 0) words[unit / 8 + block_at / 4] = stored_halves[104];
        }
    }
});

static const char nibbles2[] = VB_PTX_SOURCE({ q = b[2 + e % 16] >> e / 16 * 4 & 15; });
static const char nibbles4[] = VB_PTX_SOURCE({ q = b[4 + e % 16] >> e / 16 * 4 & 15; });
static const char codes5_0[] = VB_PTX_SOURCE({
    q = b[6 + e % 16] >> e / 16 * 4 & 15 | (b[2 + e / 8] >> e % 8 & 1) << 4; });
static const char codes5_1[] = VB_PTX_SOURCE({
    q = b[8 + e % 16] >> e / 16 * 4 & 15 | (b[4 + e / 8] >> e % 8 & 1) << 4; });
static const char bytes2[] = VB_PTX_SOURCE({ q = b[2 + e]; });
static const char codes4_k[] = VB_PTX_SOURCE({ q = b[16 + e / 64 * 32 + e % 32] >> e / 32 % 2 * 4 & 15; });
static const char codes5_k[] = VB_PTX_SOURCE({
    q = b[48 + e / 64 * 32 + e % 32] >> e / 32 % 2 * 4 & 15 | (b[16 + e % 32] >> e / 32 & 1) << 4; });
static const char codes6_k[] = VB_PTX_SOURCE({
    u32 part = e % 128 / 32;
    q = b[e / 128 * 64 + part % 2 * 32 + e % 32] >> part / 2 * 4 & 15
        | (b[128 + e / 128 * 32 + e % 32] >> part * 2 & 3) << 4; });

static const char *codes_of(vb_dtype type) {
    switch (type) {
    case VB_Q4_0: return nibbles2;
    case VB_Q4_1: return nibbles4;
    case VB_Q5_0: return codes5_0;
    case VB_Q5_1: return codes5_1;
    case VB_Q8_0: return bytes2;
    case VB_Q4_K: return codes4_k;
    case VB_Q5_K: return codes5_k;
    default: return codes6_k;
    }
}

static const char pack_name[] = "ptx_pack";

static vb_jit_filling filling_of(const vb_jit_layout *l, vb_dtype type) {
    return (vb_jit_filling){.source = pack,
        .constants = {{"BITS", l->bits}, {"SCALES", l->scales}, {"QK", vb_dtype_block_size(type)},
                      {"BYTES", vb_dtype_block_bytes(type)}},
        .texts = {{"CODES", codes_of(type)}}};
}

/* Whoever asks for the size will pack: the kernel is loaded meanwhile. A launch of it follows a copy of the weight,
 * which would wait for it. */
vb_status vb_jit_weight_packed_size(int64_t *bytes, const vb_weight *w, vb_device *device) {
    vb_jit_device *d = (vb_jit_device *)device;
    vb_jit_layout l;
    const bool packed = vb_jit_layout_of(&l, w->type, w->cols) && w->cols <= VB_JIT_MOST_COLS;
    /* Before 8.0 only kernels of few rows of x read packed weights. */
    const bool wide = packed && l.units > VB_JIT_FEW_UNITS;
    *bytes = packed && !(wide && d->target < 80) ? w->rows * l.row : 0;
    if (*bytes > 0) {
        const vb_jit_filling f = filling_of(&l, w->type);
        vb_jit_announce(&f, pack_name, d);
    }
    return VB_OK;
}

vb_status vb_jit_weight_pack(void *out, const vb_weight *w, vb_stream *stream) {
    vb_jit_layout l;
    if (!vb_jit_layout_of(&l, w->type, w->cols)) return VB_UNSUPPORTED;
    const void *data = w->data;
    uint64_t row_bytes = (uint64_t)l.row;
    uint32_t units = (uint32_t)l.units, high = (uint32_t)l.high, scale = (uint32_t)l.scale, blocks = (uint32_t)l.block;
    const vb_jit_filling f = filling_of(&l, w->type);
    const vb_status status = vb_jit_launch(stream, pack_name, &f, w->rows, 1, 1, 128,
                         VB_JIT_PARAMETERS(&out, &data, &units, &high, &scale, &blocks, &row_bytes));
    ((vb_jit_stream *)stream)->apart = true; /* kernels read weights before they wait */
    return status;
}

const char vb_jit_packed_value[] = VB_PTX_SOURCE({
    u32 unit = col / 32, j = col % 32 / 4, k = col % 4;
    u32 at = unit * 16 + j % 4 * 4 + k;
    u32 q = 0;
    if (BITS == 8) q = row[j / 4 * (UNITS * 16) + at];
    else q = row[at] >> j / 4 * 4 & 15;
    if (BITS == 5) q = q | (row[unit * 4 + k + HIGH_AT] >> j & 1) << 4;
    if (BITS == 6) q = q | (row[unit * 8 + j / 4 * 4 + k + HIGH_AT] >> j % 4 * 2 & 3) << 4;
    f16 *halves = row;
    s8 *bytes = row;
    s32 code = s32(q) - ZERO;
    if (BITS == 8) code = s32(q << 24) >> 24;
    if (SCALES == 0) v = f32(code) * halves[unit + SCALE_AT / 2];
    if (SCALES == 1) v = f32(code) * halves[unit * 2 + SCALE_AT / 2] + halves[unit * 2 + (SCALE_AT / 2 + 1)];
    if (SCALES == 2)
        v = halves[unit / 8 * 2 + BLOCK_AT / 2] * f32(bytes[unit * 2 + SCALE_AT]) * f32(code)
            - halves[unit / 8 * 2 + (BLOCK_AT / 2 + 1)] * f32(bytes[unit * 2 + (SCALE_AT + 1)]);
    if (SCALES == 3)
        v = halves[unit / 8 * 2 + BLOCK_AT / 2] * f32(bytes[unit * 2 + j / 4 + SCALE_AT]) * f32(code);
});
