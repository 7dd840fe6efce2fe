// attention_decode.cu: attention of few query rows a key head over a 16-bit cache, on tensor cores.
//
//   grid     tiles * splits: a tile is 16 packed query rows, a split a range of keys; about two blocks an SM
//   block    4 warps; a warp takes 16 keys at a time, on its own until the end
//   shared   4 * 16 * DIMS floats of the warps' outputs (32 KiB for 128); for 256 also 16 * DIMS 16-bit queries
//   moves    the keys and values once a tile; the parts of split rows, small beside them
//   bound    memory bandwidth; short sequences by latency: one load, its products, the combination
//
// Keys and values go from memory to tensor core fragments without shared memory. The contracted index of a product may be
// permuted as long as both factors are: a lane loads 16 contiguous bytes of a key, 8 dimensions, and calls them the k
// indices that its fragment holds (queries are loaded the same way). Of values it loads 8 dimensions of the 4 keys of its
// fragment, and pairs keys by byte permutation; the output columns are permuted in turn, so that at the end a lane holds
// 16 contiguous dimensions of its two rows.

#include "attention.cuh"
#include "mma.cuh"

namespace vb {
namespace {

constexpr int warps = 4;
constexpr int threads = warps * 32;
constexpr int rows_per_tile = 16;
constexpr int keys_per_warp = 16;
constexpr int keys_per_step = warps * keys_per_warp;

// 8 elements as four registers of two; zeros unless valid.
template <class T>
VB_DEVICE uint4 load8(const T *x, bool valid) {
    return valid ? *reinterpret_cast<const uint4 *>(x) : make_uint4(0, 0, 0, 0);
}
template <class TQ, class TKV>
struct Query8 {
    static VB_DEVICE uint4 load(const TQ *x, bool valid) { return load8(x, valid); }
};
template <class TKV>
struct Query8<float, TKV> {
    static VB_DEVICE uint4 load(const float *x, bool valid) {
        const float4 a = valid ? reinterpret_cast<const float4 *>(x)[0] : make_float4(0, 0, 0, 0);
        const float4 b = valid ? reinterpret_cast<const float4 *>(x)[1] : make_float4(0, 0, 0, 0);
        return make_uint4(pack<TKV>(a.x, a.y), pack<TKV>(a.z, a.w), pack<TKV>(b.x, b.y), pack<TKV>(b.z, b.w));
    }
};

VB_DEVICE unsigned word(const uint4 &x, int i) { return i == 0 ? x.x : i == 1 ? x.y : i == 2 ? x.z : x.w; }

template <class TQ, class TKV, int DIMS>
__global__ void __launch_bounds__(threads, DIMS <= 128 ? 2 : 1)
    attention_decode_kernel(vb_attention_args a, AttentionSplits splits, int64_t tiles_per_head) {
#if __CUDA_ARCH__ >= 800
    constexpr int chunks = DIMS / 32; // of 32 dimensions: two products of k = 16 for the scores
    constexpr int blocks = DIMS / 64; // of 64 dimensions: eight products of n = 8 for the outputs
    // Up to 128 dimensions the registers hold the queries, and keys are loaded a turn ahead. Beyond, the queries lie in
    // shared memory, behind the warps' outputs, as the lanes need them: all warps have the same.
    constexpr bool roomy = DIMS <= 128;
    extern __shared__ float4 shared[];
    float *warp_out = reinterpret_cast<float *>(shared); // [warp][row][DIMS]
    __shared__ float2 warp_stats[warps][rows_per_tile];
    __shared__ int range[2];
    __shared__ unsigned flag;
    wait_for_previous_kernel();
    release_next_kernel();
    const float minus_infinity = __uint_as_float(0xff800000u);
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, c = lane % 4;
    const int64_t tile = blockIdx.x / splits.splits;
    const int split = int(blockIdx.x % splits.splits);
    const int64_t head = tile / tiles_per_head, b = head / a.kv_heads, kv_head = head % a.kv_heads;
    const int64_t group = a.heads / a.kv_heads, first_row = tile % tiles_per_head * rows_per_tile;
    const int rows = (int)smaller<int64_t>(rows_per_tile, a.seq * group - first_row), dim = (int)a.dim;
    const KeyRange all = keys_of_tile(a, b, first_row, first_row + rows, range);
    KeyRange mine;
    const int active = split_keys(&mine, all, split, splits.splits, keys_per_step);
    if (split >= active) return;

    const int64_t sequence = a.sequences ? a.sequences[b] : b;
    const int64_t cache = (sequence * a.kv_heads + kv_head) * a.kv_capacity * a.dim;
    const TKV *const k_cache = (const TKV *)a.k + cache, *const v_cache = (const TKV *)a.v + cache;
    // Keys 8j + g at dimensions 32i + 8c..
    uint4 k[2][chunks];
    const auto load_keys = [&](int base) {
#pragma unroll
        for (int j = 0; j < 2; j++)
#pragma unroll
            for (int i = 0; i < chunks; i++) {
                const int key = base + 8 * j + g, d = 32 * i + 8 * c;
                k[j][i] = load8(k_cache + (int64_t)key * dim + d, key < mine.hi && d < dim);
            }
    };
    int base = mine.lo + warp * keys_per_warp;
    if (roomy) load_keys(base);

    // Rows g and g + 8 of the queries, at the same dimensions.
    uint4 held[2][chunks];
    uint4 *const stored = reinterpret_cast<uint4 *>(warp_out + warps * rows_per_tile * DIMS) + lane;
    KeyRange seen[2];
    bool masked = false; // some row sees less than the tile's keys
#pragma unroll
    for (int h = 0; h < 2; h++) {
        const int row = g + 8 * h;
        const TQ *source = (const TQ *)a.q + (row < rows ? query_offset(a, b, kv_head, first_row + row) : 0);
#pragma unroll
        for (int i = 0; i < chunks; i++) {
            held[h][i] = Query8<TQ, TKV>::load(source + 32 * i + 8 * c, row < rows && 32 * i + 8 * c < dim);
            if (!roomy && warp == 0) stored[(2 * i + h) * 32] = held[h][i];
        }
        seen[h] = row < rows ? keys_of(a, b, (first_row + row) / group) : all;
        masked |= seen[h].lo > all.lo || seen[h].hi < all.hi;
    }
    if (!roomy) __syncthreads();
    const float scale = a.scale * log2_e;
    float max[2] = {minus_infinity, minus_infinity}, sum[2] = {0.0f, 0.0f};
    float out[blocks][8][4] = {};

    for (; base < mine.hi; base += keys_per_step) {
        // Values of keys 2c, 2c+1, 2c+8, 2c+9 at dimensions 64i + 8g..
        uint4 v[blocks][4];
        const auto load_values = [&](int i) {
#pragma unroll
            for (int j = 0; j < 4; j++) {
                const int key = base + 2 * c + (j & 1) + (j & 2) * 4, d = 64 * i + 8 * g;
                v[i][j] = load8(v_cache + (int64_t)key * dim + d, key < mine.hi && d < dim);
            }
        };
        if (roomy) {
#pragma unroll
            for (int i = 0; i < blocks; i++) load_values(i);
        } else {
            load_keys(base);
        }
        float score[2][4] = {};
#pragma unroll
        for (int i = 0; i < chunks; i++) {
            const uint4 p = roomy ? held[0][i] : stored[(2 * i) * 32], q = roomy ? held[1][i] : stored[(2 * i + 1) * 32];
            const unsigned low[4] = {p.x, q.x, p.y, q.y}, high[4] = {p.z, q.z, p.w, q.w};
#pragma unroll
            for (int j = 0; j < 2; j++) {
                mma<TKV>(score[j], low, k[j][i].x, k[j][i].y);
                mma<TKV>(score[j], high, k[j][i].z, k[j][i].w);
            }
        }
        if (roomy) load_keys(base + keys_per_step); // for the next turn; nothing is read past the end

        unsigned weights[4];
#pragma unroll
        for (int h = 0; h < 2; h++) {
            float s[4];
            float greatest = max[h];
#pragma unroll
            for (int e = 0; e < 4; e++) {
                const int key = base + 8 * (e / 2) + 2 * c + e % 2;
                s[e] = score[e / 2][2 * h + e % 2] * scale;
                if (key >= mine.hi || (masked && (key < seen[h].lo || key >= seen[h].hi))) s[e] = minus_infinity;
                greatest = Max::combine(greatest, s[e]);
            }
            greatest = Max::combine(greatest, __shfl_xor_sync(all_lanes, greatest, 1));
            greatest = Max::combine(greatest, __shfl_xor_sync(all_lanes, greatest, 2));
            const float from = greatest == minus_infinity ? 0.0f : greatest;
            const float keep = exp2f(max[h] - from);
            max[h] = greatest;
            sum[h] *= keep;
#pragma unroll
            for (int e = 0; e < 4; e++) {
                s[e] = exp2f(s[e] - from);
                sum[h] += s[e];
            }
            weights[h] = pack<TKV>(s[0], s[1]);
            weights[2 + h] = pack<TKV>(s[2], s[3]);
#pragma unroll
            for (int i = 0; i < blocks; i++)
#pragma unroll
                for (int e = 0; e < 8; e++) out[i][e][2 * h] *= keep, out[i][e][2 * h + 1] *= keep;
        }
#pragma unroll
        for (int i = 0; i < blocks; i++) {
            if (!roomy) load_values(i);
#pragma unroll
            for (int e = 0; e < 8; e++) {
                const unsigned pick = e % 2 ? 0x7632 : 0x5410; // the odd or even halves of two keys
                mma<TKV>(out[i][e], weights, __byte_perm(word(v[i][0], e / 2), word(v[i][1], e / 2), pick),
                         __byte_perm(word(v[i][2], e / 2), word(v[i][3], e / 2), pick));
            }
        }
    }

    // The warps' parts come together: each thread then sums vectors of 4 dimensions.
#pragma unroll
    for (int h = 0; h < 2; h++) {
        sum[h] = warp_reduce<Sum, 4>(sum[h]);
        const int row = g + 8 * h;
        if (c == 0) warp_stats[warp][row] = make_float2(max[h], sum[h]);
        if (row < rows)
#pragma unroll
            for (int i = 0; i < blocks; i++)
#pragma unroll
                for (int e = 0; e < 16; e += 4) { // dimensions 64i + 16c + e..
                    const int n = 2 * h + e / 8;
                    *reinterpret_cast<float4 *>(warp_out + (warp * rows_per_tile + row) * DIMS + 64 * i + 16 * c + e) =
                        make_float4(out[i][e % 8][n], out[i][e % 8 + 1][n], out[i][e % 8 + 2][n], out[i][e % 8 + 3][n]);
                }
    }
    __syncthreads();
    const int64_t slot = (tile * splits.splits + split) * rows_per_tile;
    for (int item = threadIdx.x; item < rows * (DIMS / 4); item += threads) {
        const int row = item / (DIMS / 4), d = item % (DIMS / 4) * 4;
        float block_max = minus_infinity, block_sum = 0.0f;
        float4 x = make_float4(0, 0, 0, 0);
#pragma unroll
        for (int w = 0; w < warps; w++) block_max = Max::combine(block_max, warp_stats[w][row].x);
        const float from = block_max == minus_infinity ? 0.0f : block_max;
#pragma unroll
        for (int w = 0; w < warps; w++) {
            const float weight = exp2f(warp_stats[w][row].x - from);
            const float4 part = *reinterpret_cast<const float4 *>(warp_out + (w * rows_per_tile + row) * DIMS + d);
            block_sum += warp_stats[w][row].y * weight;
            x.x += part.x * weight, x.y += part.y * weight, x.z += part.z * weight, x.w += part.w * weight;
        }
        if (active > 1) {
            *reinterpret_cast<float4 *>(splits.partial + (slot + row) * DIMS + d) = x;
            if (d == 0) splits.stats[slot + row] = make_float2(block_max, block_sum);
        } else if (d < dim) {
            const float scale = block_sum > 0.0f ? 1.0f / block_sum : block_sum;
            Vec<TQ, 4> y;
            y.at[0] = from_float<TQ>(x.x * scale), y.at[1] = from_float<TQ>(x.y * scale);
            y.at[2] = from_float<TQ>(x.z * scale), y.at[3] = from_float<TQ>(x.w * scale);
            *reinterpret_cast<Vec<TQ, 4> *>((TQ *)a.out + query_offset(a, b, kv_head, first_row + row) + d) = y;
        }
    }
    if (active > 1)
        combine_splits<TQ>(a, splits, tile, rows_per_tile, active, b, kv_head, first_row, rows, DIMS, &flag);
#endif
}

template <class TQ, class TKV, int DIMS>
vb_status launch_decode(const vb_attention_args &a, vb_stream *stream) {
    const int64_t tiles_per_head = ceil_div<int64_t>(a.seq * (a.heads / a.kv_heads), rows_per_tile);
    const int64_t tiles = tiles_per_head * a.batch * a.kv_heads;
    AttentionSplits splits;
    VB_TRY(plan_splits(&splits, tiles, rows_per_tile, DIMS, a.kv_len, keys_per_step, 2, stream));
    if (tiles > INT32_MAX / splits.splits) return VB_UNSUPPORTED;
    return launch_overlapped(stream, (unsigned)(tiles * splits.splits), threads,
                             warps * rows_per_tile * DIMS * 4 + (DIMS > 128 ? rows_per_tile * DIMS * 2 : 0),
                             attention_decode_kernel<TQ, TKV, DIMS>, a, splits, tiles_per_head);
}

template <class TQ, class TKV>
vb_status launch_decode(const vb_attention_args &a, vb_stream *stream) {
    if (a.dim <= 64) return launch_decode<TQ, TKV, 64>(a, stream);
    if (a.dim <= 128) return launch_decode<TQ, TKV, 128>(a, stream);
    return launch_decode<TQ, TKV, 256>(a, stream);
}

} // namespace

vb_status attention_decode(const vb_attention_args &a, vb_stream *stream) {
    if (a.type == VB_F32 && a.kv_type == VB_F16) return launch_decode<float, half>(a, stream);
    if (a.type == VB_F32 && a.kv_type == VB_BF16) return launch_decode<float, bf16>(a, stream);
    if (a.type == VB_F16 && a.kv_type == VB_F16) return launch_decode<half, half>(a, stream);
    if (a.type == VB_BF16 && a.kv_type == VB_BF16) return launch_decode<bf16, bf16>(a, stream);
    return VB_UNSUPPORTED;
}

} // namespace vb
