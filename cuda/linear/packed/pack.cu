// pack.cu: stored weights to the packed layout, at load.
//
//   grid     one block a tile, a thread gathers the bits of a stored word that Packed::unpack will spread
//   moves    the weights once in, once out
//   bound    the byte loads of the codes: about 10 ms a GB

#include "linear/linear.cuh"
#ifdef VB_HAS_PACKED_LAYOUT
#include "linear/packed/packed.cuh"

namespace vb {
namespace {

// The scale of 32 elements from k on, in 16 bits.
template <class Block>
VB_DEVICE vb_half scale_bits(const Block &block, int) { return block.d; }
VB_DEVICE vb_half scale_bits(const vb_block_iq4_xs &block, int k) { // rounded: it has up to 17 digits
    const half scale = __float2half_rn(half_bits(block.d) * (float)vb_iq4_xs_scale(&block, k / VB_QK));
    return *reinterpret_cast<const vb_half *>(&scale);
}
// the upper half of a float: 2^(e - 128), which has no other digits
VB_DEVICE vb_half scale_bits(const vb_block_mxfp4 &block, int) {
    float scale, offset;
    scale_of(block, 0, &scale, &offset);
    return (vb_half)(__float_as_uint(scale) >> 16);
}

// d of a block of 256, as K6 keeps it: scales and codes are multiples of it.
template <class Block>
VB_DEVICE vb_half block_d(const Block &block) { return block.d; }
VB_DEVICE uint32_t block_d(const vb_block_q2_k &block) { return block.d | (uint32_t)block.dmin << 16; }
VB_DEVICE vb_half part_of(float d) {
    const half part = __float2half_rn(d);
    return *reinterpret_cast<const vb_half *>(&part);
}
VB_DEVICE vb_half block_d(const vb_block_iq2_xxs &block) { return part_of(half_bits(block.d) / 8); }
VB_DEVICE vb_half block_d(const vb_block_iq2_xs &block) { return part_of(half_bits(block.d) / 8); }
VB_DEVICE vb_half block_d(const vb_block_iq2_s &block) { return part_of(half_bits(block.d) / 8); }
VB_DEVICE vb_half block_d(const vb_block_iq3_xxs &block) { return part_of(half_bits(block.d) / 2); }
VB_DEVICE vb_half block_d(const vb_block_iq1_s &block) { return part_of(half_bits(block.d) / 8); }
VB_DEVICE vb_half block_d(const vb_block_iq1_m &block) {
    const uint8_t *const s = block.scales;
    return part_of(half_bits(s[1] >> 4 | (s[3] >> 4) << 4 | (s[5] >> 4) << 8 | (s[7] >> 4) << 12) / 8);
}

// The 16 bytes to keep of a block of 256: d, dmin and scales of K4, the scales of K2 and K6.
template <class Block>
VB_DEVICE uint8_t scale_byte(const Block &block, int i) { return reinterpret_cast<const uint8_t *>(&block)[i]; }
VB_DEVICE uint8_t scale_byte(const vb_block_q6_k &block, int i) { return (uint8_t)block.scales[i]; }
VB_DEVICE uint8_t scale_byte(const vb_block_q3_k &block, int i) { return (uint8_t)vb_q3_k_scale(block.scales, i); }

VB_DEVICE uint8_t scale_byte(const vb_block_q2_k &block, int i) { return block.scales[i]; }
VB_DEVICE uint8_t scale_byte(const vb_block_nvfp4 &block, int i) { // what vb_ue4m3 reads as 0 becomes 0
    const uint8_t scale = block.d[i & 3] & 0x7f;
    return block.d[i & 3] == 0x7f ? 0 : scale;
}
template <class Block>
VB_DEVICE uint8_t iq2_scale_byte(const Block &block, int i) {
    return (uint8_t)(2 * (block.scales[i >> 1] >> (4 * (i & 1)) & 15) + 1);
}
VB_DEVICE uint8_t scale_byte(const vb_block_iq2_s &block, int i) { return iq2_scale_byte(block, i); }
VB_DEVICE uint8_t scale_byte(const vb_block_iq2_xs &block, int i) { return iq2_scale_byte(block, i); }
VB_DEVICE uint8_t scale_byte(const vb_block_iq2_xxs &block, int i) {
    return (uint8_t)(2 * (word_at(block.qs + 4 * (i >> 1) + 2) >> 28) + 1);
}
VB_DEVICE uint8_t scale_byte(const vb_block_iq3_s &block, int i) {
    return (uint8_t)(2 * (block.scales[i >> 2] >> (4 * (i >> 1 & 1)) & 15) + 1);
}
VB_DEVICE uint8_t scale_byte(const vb_block_iq3_xxs &block, int i) {
    return (uint8_t)(2 * (word_at(block.rest + 4 * (i >> 1)) >> 28) + 1);
}
VB_DEVICE uint8_t scale_byte(const vb_block_iq1_s &block, int i) {
    return (uint8_t)(2 * (block.qh[i >> 1] >> 12 & 7) + 1);
}
VB_DEVICE uint8_t scale_byte(const vb_block_iq1_m &block, int i) {
    const uint8_t *const s = block.scales + 2 * (i >> 2);
    return (uint8_t)(2 * ((s[0] | s[1] << 8) >> (3 * (i & 3)) & 7) + 1);
}

// The values of a type whose tiles hold a table, in units of the scale that block_d and scale_byte make.
struct TileValues {
    int8_t of[16];
};
template <class Block>
__host__ __device__ constexpr TileValues tile_values() {
    if (std::is_same_v<Block, vb_block_iq1_s> || std::is_same_v<Block, vb_block_iq1_m>) // 0 or 8, plus or minus 1
        return {{1, 7, 9, 0, 0, 0, 0, 0, -1, -7, -9}};
    if (std::is_same_v<Block, vb_block_iq3_s>)
        return {{1, 3, 5, 7, 9, 11, 13, 15, -1, -3, -5, -7, -9, -11, -13, -15}};
    if (std::is_same_v<Block, vb_block_iq3_xxs>)
        return {{2, 6, 10, 14, 18, 22, 26, 31, -2, -6, -10, -14, -18, -22, -26, -31}};
    return {{8, 25, 43, 0, 0, 0, 0, 0, -8, -25, -43}}; // IQ2
}

// The code of a multiple of a layout's unit, or its place in the table of the tile.
template <class Layout, class Block>
VB_DEVICE int place_of(float multiple) {
    using P = Packed<Layout>;
    if constexpr (P::own_table) {
        constexpr TileValues values = tile_values<Block>();
        constexpr uint64_t places = table_of(values.of, P::zero).places();
        int nearest = 0; // it is the multiple, unless d lost digits
        float least = 256;
#pragma unroll
        for (int c = 0; c < 16; c++) {
            const float distance = fabsf(multiple - (float)values.of[c]);
            if (distance < least) least = distance, nearest = c;
        }
        return (int)(places >> (4 * nearest)) & 15;
    } else {
        return P::zero + __float2int_rn(multiple);
    }
}
// The code of element k in a layout: as the block has it, or the value in units of its scale.
template <class Layout, class Block>
VB_DEVICE int code_in(const Block &block, int k) { return code(block, k); }
#define X(Block, Layout) \
    template <> \
    VB_DEVICE int code_in<Layout, Block>(const Block &block, int k) { \
        float values[8], unit; \
        dequantize8(values, &block, k & ~7); \
        if constexpr (Packed<Layout>::sixteens) unit = half_bits(block_d(block)) * scale_byte(block, k >> 4); \
        else unit = half_bits(scale_bits(block, k)); \
        return place_of<Layout, Block>(unit != 0.0f ? values[k & 7] / unit : 0.0f); \
    }
X(vb_block_iq2_xxs, vb_block_iq2_s)
X(vb_block_iq2_xs, vb_block_iq2_s)
X(vb_block_iq2_s, vb_block_iq2_s)
X(vb_block_iq3_s, vb_block_iq2_s)
X(vb_block_iq3_xxs, vb_block_iq2_s)
X(vb_block_iq1_s, vb_block_iq2_s)
X(vb_block_iq1_m, vb_block_iq2_s)
X(vb_block_tq1_0, vb_block_q4_0)
X(vb_block_tq2_0, vb_block_q4_0)
X(vb_block_q1_0, vb_block_q4_0)
X(vb_block_q2_0, vb_block_q4_0)
#undef X

// Blocks of a type to the layout of the same or another type (VB_PACKED_AS).
template <class Layout, class Block>
__global__ void __launch_bounds__(256) pack_kernel(uint8_t *out, const Block *in, int64_t rows, int64_t cols) {
    wait_for_previous_kernel(); // and no release: products of packed weights read them before they wait
    using P = Packed<Layout>;
    constexpr int size = BlockSize<Block>::value;
    const int64_t tiles_a_row = P::tiles_of(cols);
    const int64_t row0 = blockIdx.x / tiles_a_row * P::rows, col0 = blockIdx.x % tiles_a_row * P::depth;
    uint8_t *tile = out + blockIdx.x * (int64_t)P::tile_bytes, *scales = tile + P::code_bytes;
    const auto exists = [&](int row, int k) { return row0 + row < rows && col0 + k < cols; };
    auto block = [&](int row, int k) -> const Block & { return in[(row0 + row) * (cols / size) + (col0 + k) / size]; };

    for (int i = threadIdx.x; i < P::code_bytes / 4; i += blockDim.x) {
        const int lane = i % 32, word = i / 32, lower = word >= P::words;
        const int row = lane / 4 + 8 * lower, t = lane % 4;
        uint32_t packed = 0;
        if (row0 + row < rows)
            for (int b = 0; b < 4; b++) {
                auto value = [&](int v, int byte) {
                    const int k = 16 * v + 4 * t + byte;
                    return exists(row, k) ? code_in<Layout>(block(row, k), int((col0 + k) % size)) : 0;
                };
                packed |= P::pack_byte(word - lower * P::words, b, value) << (8 * b);
            }
        *reinterpret_cast<uint32_t *>(tile + P::word_offset(lane, word)) = packed;
    }
    for (int row = threadIdx.x; row < P::rows; row += blockDim.x) {
        if constexpr (P::small) {
            constexpr int count = P::depth / VB_QK;
            for (int j = 0; j < count; j++) {
                const bool found = exists(row, VB_QK * j);
                reinterpret_cast<vb_half *>(scales)[count * row + j] =
                    found ? scale_bits(block(row, VB_QK * j), int((col0 + VB_QK * j) % size)) : 0;
                if constexpr (P::mins)
                    reinterpret_cast<vb_half *>(scales + P::scale_bytes)[count * row + j] =
                        found ? block(row, VB_QK * j).m : 0;
            }
        } else {
            for (int j = 0; j < 16; j++)
                scales[16 * row + (P::sixteens ? P::q6_scale_byte(j) : j)] =
                    exists(row, 16 * j) ? scale_byte(block(row, 16 * j), j) : 0;
            if constexpr (P::k2 || P::k6) {
                auto *const d = reinterpret_cast<typename P::RowScale *>(scales + P::scale_bytes);
                d[row] = exists(row, 0) ? block_d(block(row, 0)) : 0;
            }
        }
    }
    if constexpr (P::own_table) {
        constexpr LookUp t = table_of(tile_values<Block>().of, P::zero);
        if (threadIdx.x == 0)
            *reinterpret_cast<uint4 *>(tile + P::table_at) =
                make_uint4(t.word(false, false), t.word(true, false), t.word(false, true), t.word(true, true));
    }
}

template <class Layout, class Block>
vb_status pack(void *out, const vb_weight *w, vb_stream *stream) {
    using P = Packed<Layout>;
    const int64_t tiles = ceil_div<int64_t>(w->rows, P::rows) * P::tiles_of(w->cols);
    return launch_overlapped(stream, (unsigned)tiles, 256, 0, pack_kernel<Layout, Block>, (uint8_t *)out,
                             (const Block *)w->data, w->rows, w->cols);
}

} // namespace
} // namespace vb

using namespace vb;

extern "C" {

vb_status vb_cuda_weight_packed_size(int64_t *bytes, const vb_weight *w, vb_device *device) {
    *bytes = linear_packed_bytes(&gpu_of(device), w->type, w->rows, w->cols);
    return VB_OK;
}

vb_status vb_cuda_weight_pack(void *out, const vb_weight *w, vb_stream *stream) {
    const vb_gpu gpu = gpu_of(stream);
    if (linear_packed_bytes(&gpu, w->type, w->rows, w->cols) == 0) return VB_UNSUPPORTED;
    switch (w->type) {
#define X(type, Block, ...) case type: return pack<Block, Block>(out, w, stream);
        VB_PACKED_TYPES(X)
#undef X
#define X(type, Block, layout, Layout) case type: return pack<Layout, Block>(out, w, stream);
        VB_PACKED_AS(X)
#undef X
    default: return VB_UNSUPPORTED;
    }
}

} // extern "C"

#endif
