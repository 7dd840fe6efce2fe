/* cpu_codes_amx.c: two-bit codes by tiles of int8 activations, and the layout of these tiles (cpu_codes.h). */
#include "cpu_codes_simd.h"

void vb_codes_to_tiles(int8_t *to, const int8_t *x, int64_t row_of_x, int n) {
    enum { SIDE = VB_CODES_TILE_SIZE };
    for (int64_t at = 0; at < row_of_x; at += VECTOR, to += SIDE * VECTOR)
        for (int quad = 0; quad < SIDE; quad++)
            for (int i = 0; i < SIDE; i++)
                if (i < n)
                    memcpy(to + (quad * SIDE + i) * 4, x + i * row_of_x + at + 4 * quad, 4);
                else
                    memset(to + (quad * SIDE + i) * 4, 0, 4);
}

#ifdef VB_AMX
/* Tiles 0 to 3 are sums, 4 codes, 5 and 6 activations. The codes of the next vector are unpacked while the tiles of
 * this one are multiplied. */
VB_TARGET_AMX void vb_cpu_code_tiles(int32_t sums[VB_CODES_TILE_SIZE][VB_CODES_MOST], const uint8_t *w, int64_t stride,
                                     int64_t bytes, int rows, const int8_t *tiles, int n) {
    enum { SIDE = VB_CODES_TILE_SIZE, TILE = SIDE * VECTOR };
    static const struct {
        uint8_t palette, start, reserved[14];
        uint16_t row_bytes[16];
        uint8_t rows[16];
    } shape = {1, 0, {0}, {64, 64, 64, 64, 64, 64, 64}, {16, 16, 16, 16, 16, 16, 16}};
    uint8_t codes[2][4][TILE] __attribute__((aligned(64)));
    const __m512i mask = _mm512_set1_epi8(3);
    const int64_t vectors = vb_codes_vectors(bytes), block = vectors * 4 * TILE;
    const int blocks = (int)(vb_codes_whole(n) / SIDE);
    _tile_loadconfig(&shape);
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    if (rows < SIDE) memset(codes, 0, sizeof codes);
    for (int64_t v = -1; v < vectors; v++) {
        if (v + 1 < vectors) {
            const int64_t b = (v + 1) * VECTOR;
            const __mmask64 live = bytes - b >= VECTOR ? ~0ull : (1ull << (bytes - b)) - 1;
            uint8_t(*to)[TILE] = codes[(v + 1) & 1];
            for (int r = 0; r < rows; r++) {
                const __m512i c = _mm512_maskz_loadu_epi8(live, w + r * stride + b);
                _mm_prefetch((const char *)w + AHEAD_LONG + SIDE * b + r * VECTOR, _MM_HINT_T1);
                _mm512_store_si512(to[0] + r * VECTOR, _mm512_and_si512(c, mask));
                _mm512_store_si512(to[1] + r * VECTOR, _mm512_and_si512(_mm512_srli_epi16(c, 2), mask));
                _mm512_store_si512(to[2] + r * VECTOR, _mm512_and_si512(_mm512_srli_epi16(c, 4), mask));
                _mm512_store_si512(to[3] + r * VECTOR, _mm512_and_si512(_mm512_srli_epi16(c, 6), mask));
            }
        }
        if (v < 0) continue;
        for (int slot = 0; slot < 4; slot++) {
            const int8_t *x = tiles + (v * 4 + slot) * TILE;
            _tile_loadd(4, codes[v & 1][slot], VECTOR);
            _tile_loadd(5, x, VECTOR);
            _tile_dpbusd(0, 4, 5);
            if (blocks < 2) continue;
            _tile_loadd(6, x + block, VECTOR);
            _tile_dpbusd(1, 4, 6);
            if (blocks < 3) continue;
            _tile_loadd(5, x + 2 * block, VECTOR);
            _tile_dpbusd(2, 4, 5);
            if (blocks < 4) continue;
            _tile_loadd(6, x + 3 * block, VECTOR);
            _tile_dpbusd(3, 4, 6);
        }
    }
    _tile_stored(0, sums[0], sizeof sums[0]);
    if (blocks > 1) _tile_stored(1, sums[0] + SIDE, sizeof sums[0]);
    if (blocks > 2) _tile_stored(2, sums[0] + 2 * SIDE, sizeof sums[0]);
    if (blocks > 3) _tile_stored(3, sums[0] + 3 * SIDE, sizeof sums[0]);
    _tile_release();
}
#else
void vb_cpu_code_tiles(int32_t sums[VB_CODES_TILE_SIZE][VB_CODES_MOST], const uint8_t *w, int64_t stride, int64_t bytes,
                       int rows, const int8_t *tiles, int n) { /* no device has tiles */
    (void)sums, (void)w, (void)stride, (void)bytes, (void)rows, (void)tiles, (void)n;
}
#endif
