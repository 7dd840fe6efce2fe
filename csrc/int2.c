/* int2.c: layouts of ternary weights on the host. vibrant.h has their definition, docs/ternary.md the pictures. */
#include <stdbool.h>
#include <string.h>

#include "int2.h"

int64_t vb_int2_row_bytes(vb_int2_layout layout, int64_t k) {
    if (k < 0 || k > INT64_MAX - 64) return 0;
    switch (layout) {
    case VB_INT2_ROWS: return (k + 3) / 4;
    case VB_INT2_INTERLEAVED: return (k + 63) / 64 * 16;
    case VB_INT2_MICROSOFT: return k % 32 == 0 ? k / 4 : 0;
    }
    return 0;
}

typedef struct place {
    int64_t byte;
    int shift;
} place;

/* Where element k of row n lies in a matrix of K elements a row. */
static place place_of(vb_int2_layout layout, int64_t n, int64_t k, int64_t K) {
    if (layout == VB_INT2_ROWS) return (place){n * ((K + 3) / 4) + k / 4, (int)(k % 4) * 2};
    if (layout == VB_INT2_INTERLEAVED)
        return (place){n * vb_int2_row_bytes(layout, K) + vb_int2_byte(k, K), vb_int2_shift(k)};
    const int64_t tile = n / 16 * 4 * K + k / 32 * 128, word = n % 16 / 8 * 64 + k % 32 / 16 * 32 + n % 8 * 4;
    const int element = (int)(k % 16);
    return (place){tile + word + element % 4, element / 4 * 2};
}

static bool has_matrix(vb_int2_layout layout, int64_t n, int64_t k) {
    int64_t bytes, elements;
    if (n < 0 || k < 0 || (layout == VB_INT2_MICROSOFT && n % 16 != 0)) return false;
    if (vb_int2_row_bytes(layout, k) == 0 && k > 0) return false;
    return !__builtin_mul_overflow(n, k, &elements) &&
           !__builtin_mul_overflow(n, vb_int2_row_bytes(layout, k) + 64, &bytes);
}

static void put(uint8_t *out, vb_int2_layout layout, int64_t n, int64_t k, int64_t K, int code) {
    const place p = place_of(layout, n, k, K);
    out[p.byte] = (uint8_t)((out[p.byte] & ~(3 << p.shift)) | code << p.shift);
}

/* The codes behind a row's last element stand for 0. */
static void clear(uint8_t *out, vb_int2_layout layout, int64_t n, int64_t k) {
    memset(out, 0x55, (size_t)(n * vb_int2_row_bytes(layout, k)));
}

vb_status vb_int2_encode(void *out, vb_int2_layout layout, const int8_t *values, int64_t n, int64_t k) {
    if (!has_matrix(layout, n, k)) return VB_INVALID_ARGUMENT;
    if (n == 0 || k == 0) return VB_OK;
    if (!out || !values) return VB_INVALID_ARGUMENT;
    const int zero = layout == VB_INT2_MICROSOFT ? 2 : 1;
    clear(out, layout, n, k);
    for (int64_t r = 0; r < n; r++)
        for (int64_t c = 0; c < k; c++) {
            const int value = values[r * k + c];
            if (value < -1 || value > 1) return VB_INVALID_ARGUMENT;
            put(out, layout, r, c, k, value + zero);
        }
    return VB_OK;
}

vb_status vb_int2_convert(void *out, vb_int2_layout out_layout, const void *in, vb_int2_layout in_layout, int64_t n,
                          int64_t k) {
    if (!has_matrix(out_layout, n, k) || !has_matrix(in_layout, n, k)) return VB_INVALID_ARGUMENT;
    if (n == 0 || k == 0) return VB_OK;
    if (!out || !in) return VB_INVALID_ARGUMENT;
    const int in_zero = in_layout == VB_INT2_MICROSOFT ? 2 : 1, out_zero = out_layout == VB_INT2_MICROSOFT ? 2 : 1;
    clear(out, out_layout, n, k);
    for (int64_t r = 0; r < n; r++)
        for (int64_t c = 0; c < k; c++) {
            const place p = place_of(in_layout, r, c, k);
            const int value = (((const uint8_t *)in)[p.byte] >> p.shift & 3) - in_zero;
            if (value < -1 || value > 1) return VB_INVALID_ARGUMENT;
            put(out, out_layout, r, c, k, value + out_zero);
        }
    return VB_OK;
}
