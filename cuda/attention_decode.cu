// attention_decode.cu: attention of few query rows a key head over a 16-bit cache, on tensor cores.
//
//   grid     tiles * parts * cluster: a tile is 16 packed query rows, a block has a range of its keys; about a block an SM
//   block    8 warps (4 for 256 dimensions); a warp takes 16 keys at a time, on its own until the end
//   cluster  on Hopper up to 16 blocks of a tile, which come together through each other's shared memory; parts come
//            together by way of the workspace
//   shared   8 * 16 * DIMS floats of the warps' outputs (64 KiB for 128); for 256 also 16 * DIMS 16-bit queries
//   moves    the keys and values once a tile; the parts of split rows, small beside them
//   bound    memory bandwidth; short sequences by latency: one load, its products, the combination
//   measured H200, BF16, 32/8 heads of 128, graph replays: 5.1, 7.5, 12.1, 38.9 us for 128, 1024, 4096, 32768 keys;
//            PyTorch 2.11 SDPA 4.2, 7.6, 11.6, 37.7 in the same run
//
// Keys and values go from memory to tensor core fragments without shared memory. The contracted index of a product may be
// permuted as long as both factors are: a lane loads 16 contiguous bytes of a key, 8 dimensions, and calls them the k
// indices that its fragment holds (queries are loaded the same way). Of values it loads 8 dimensions of the 4 keys of its
// fragment, and pairs keys by byte permutation; the output columns are permuted in turn, so that at the end a lane holds
// 16 contiguous dimensions of its two rows.

#include "attention.cuh"
#include "cluster.cuh"
#include "mma.cuh"

namespace vb {
namespace {

constexpr int rows_per_tile = 16;
constexpr int keys_per_warp = 16;
__host__ __device__ constexpr int warps_for(int dims) { return dims <= 128 ? 8 : 4; }

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

// The union of the keys of the at most 16 tokens of a tile, by each warp for itself.
VB_DEVICE KeyRange keys_of_few(const AttentionShape &a, unsigned b, unsigned first_token, unsigned last_token) {
    const KeyRange mine = keys_of(a, b, smaller(first_token + threadIdx.x % 32, last_token));
    int lo = mine.lo, hi = mine.hi;
#pragma unroll
    for (int offset = 16; offset > 0; offset /= 2) {
        lo = smaller(lo, __shfl_xor_sync(all_lanes, lo, offset));
        hi = larger(hi, __shfl_xor_sync(all_lanes, hi, offset));
    }
    return {smaller(lo, hi), hi};
}

// What some keys of a row add up to, relative to their greatest score, and the sum of two such.
struct RowPart {
    float max, sum;
    float4 out;
};
VB_DEVICE void add_part(RowPart *all, float max, float sum, float4 out) {
    const float greatest = Max::combine(all->max, max), from = greatest == Max::identity() ? 0.0f : greatest;
    const float keep = exp2_fast(all->max - from), weight = exp2_fast(max - from);
    all->max = greatest;
    all->sum = all->sum * keep + sum * weight;
    all->out.x = all->out.x * keep + out.x * weight, all->out.y = all->out.y * keep + out.y * weight;
    all->out.z = all->out.z * keep + out.z * weight, all->out.w = all->out.w * keep + out.w * weight;
}

template <class TQ, class TKV, int DIMS>
__global__ void __launch_bounds__(warps_for(DIMS) * 32, 1)
    attention_decode_kernel(AttentionShape a, AttentionSplits splits) {
#if __CUDA_ARCH__ >= 800
    constexpr int warps = warps_for(DIMS), threads = warps * 32, keys_per_step = warps * keys_per_warp;
    constexpr int chunks = DIMS / 32; // of 32 dimensions: two products of k = 16 for the scores
    constexpr int blocks = DIMS / 64; // of 64 dimensions: eight products of n = 8 for the outputs
    // Up to 128 dimensions the registers hold the queries, and keys are loaded a turn ahead. Beyond, the queries lie in
    // shared memory, behind the warps' outputs, as the lanes need them: all warps have the same.
    constexpr bool roomy = DIMS <= 128;
    extern __shared__ float4 shared[];
    float *warp_out = reinterpret_cast<float *>(shared); // [warp][row][DIMS]
    __shared__ __align__(8) float2 warp_stats[warps][rows_per_tile];
    __shared__ unsigned flag;
    const int cluster = cluster_size(), rank = cluster_rank();
    if (cluster > 1) cluster_arrive();
    wait_for_previous_kernel();
    release_next_kernel();
    const float minus_infinity = __uint_as_float(0xff800000u);
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, c = lane % 4;
    const unsigned tile_part = blockIdx.x / (unsigned)cluster, tile = tile_part / splits.splits;
    const unsigned head = tile / a.tiles, b = head / (unsigned)a.kv_heads, kv_head = head - b * (unsigned)a.kv_heads;
    const unsigned first_row = (tile - head * a.tiles) * rows_per_tile;
    const int part = int(tile_part - tile * splits.splits), dim = (int)a.dim;
    const int rows = (int)smaller<unsigned>(rows_per_tile, a.rows - first_row);
    const KeyRange all = keys_of_few(a, b, first_row / a.group, (first_row + rows - 1) / a.group);
    KeyRange mine;
    const int active = ceil_div(split_keys(&mine, all, part * cluster + rank, splits.splits * cluster, keys_per_step), cluster);
    if (cluster > 1) cluster_wait();
    if (part >= active) return; // the whole cluster

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
        seen[h] = row < rows ? keys_of(a, b, (first_row + row) / a.group) : all;
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
        float score[2][4] = {}, second[2][4] = {}; // two sums of products each: half the chain of dependent ones
#pragma unroll
        for (int i = 0; i < chunks; i++) {
            const uint4 p = roomy ? held[0][i] : stored[(2 * i) * 32], q = roomy ? held[1][i] : stored[(2 * i + 1) * 32];
            const unsigned low[4] = {p.x, q.x, p.y, q.y}, high[4] = {p.z, q.z, p.w, q.w};
#pragma unroll
            for (int j = 0; j < 2; j++) {
                mma<TKV>(score[j], low, k[j][i].x, k[j][i].y);
                mma<TKV>(second[j], high, k[j][i].z, k[j][i].w);
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
                s[e] = (score[e / 2][2 * h + e % 2] + second[e / 2][2 * h + e % 2]) * scale;
                if (key >= mine.hi || (masked && (key < seen[h].lo || key >= seen[h].hi))) s[e] = minus_infinity;
                greatest = Max::combine(greatest, s[e]);
            }
            greatest = Max::combine(greatest, __shfl_xor_sync(all_lanes, greatest, 1));
            greatest = Max::combine(greatest, __shfl_xor_sync(all_lanes, greatest, 2));
            const float from = greatest == minus_infinity ? 0.0f : greatest;
            const float keep = exp2_fast(max[h] - from);
            max[h] = greatest;
            sum[h] *= keep;
#pragma unroll
            for (int e = 0; e < 4; e++) {
                s[e] = exp2_fast(s[e] - from);
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
    // Then the blocks of the cluster: the warps' sum of a row replaces the first warp's part.
    const auto out_of_warp = [&](int w, int row, int d) { return warp_out + (w * rows_per_tile + row) * DIMS + d; };
    if (cluster > 1) {
        RowPart mine_of_item[rows_per_tile * (DIMS / 4) / threads];
        const auto of_row = [&](int n) { return (n * threads + (int)threadIdx.x) / (DIMS / 4); };
        const auto of_dim = [&](int n) { return (n * threads + (int)threadIdx.x) % (DIMS / 4) * 4; };
#pragma unroll
        for (int n = 0; n < rows_per_tile * (DIMS / 4) / threads; n++) {
            const int row = of_row(n), d = of_dim(n);
            if (row >= rows) break;
            RowPart all_warps = {minus_infinity, 0.0f, make_float4(0, 0, 0, 0)};
#pragma unroll
            for (int w = 0; w < warps; w++)
                add_part(&all_warps, warp_stats[w][row].x, warp_stats[w][row].y,
                         *reinterpret_cast<const float4 *>(out_of_warp(w, row, d)));
            mine_of_item[n] = all_warps;
        }
        __syncthreads();
#pragma unroll
        for (int n = 0; n < rows_per_tile * (DIMS / 4) / threads; n++) {
            const int row = of_row(n), d = of_dim(n);
            if (row >= rows) break;
            *reinterpret_cast<float4 *>(out_of_warp(0, row, d)) = mine_of_item[n].out;
            if (d == 0) warp_stats[0][row] = make_float2(mine_of_item[n].max, mine_of_item[n].sum);
        }
        cluster_arrive();
        cluster_wait();
    }
    const int64_t slot = ((int64_t)tile * splits.splits + part) * rows_per_tile;
    for (int item = rank * threads + threadIdx.x; item < rows * (DIMS / 4); item += cluster * threads) {
        const int row = item / (DIMS / 4), d = item % (DIMS / 4) * 4;
        RowPart x = {minus_infinity, 0.0f, make_float4(0, 0, 0, 0)};
        if (cluster > 1) {
#pragma unroll 4
            for (int r = 0; r < cluster; r++) {
                const float2 stats = load_remote2(cluster_address(&warp_stats[0][row], r));
                add_part(&x, stats.x, stats.y, load_remote4(cluster_address(out_of_warp(0, row, d), r)));
            }
        } else {
#pragma unroll
            for (int w = 0; w < warps; w++)
                add_part(&x, warp_stats[w][row].x, warp_stats[w][row].y,
                         *reinterpret_cast<const float4 *>(out_of_warp(w, row, d)));
        }
        if (active > 1) {
            *reinterpret_cast<float4 *>(splits.partial + (slot + row) * DIMS + d) = x.out;
            if (d == 0) splits.stats[slot + row] = make_float2(x.max, x.sum);
        } else if (d < dim) {
            const float scale = x.sum > 0.0f ? 1.0f / x.sum : x.sum; // no key: zeros; NaN stays
            Vec<TQ, 4> y;
            y.at[0] = from_float<TQ>(x.out.x * scale), y.at[1] = from_float<TQ>(x.out.y * scale);
            y.at[2] = from_float<TQ>(x.out.z * scale), y.at[3] = from_float<TQ>(x.out.w * scale);
            *reinterpret_cast<Vec<TQ, 4> *>((TQ *)a.out + query_offset(a, b, kv_head, first_row + row) + d) = y;
        }
    }
    if (cluster > 1) cluster_arrive(); // a block's shared memory must outlive the others' reading
    if (active > 1)
        combine_splits<TQ>(a, splits, tile, rows_per_tile, active, active * cluster, b, kv_head, first_row, rows, DIMS, &flag);
    if (cluster > 1) cluster_wait();
#endif
}

template <class TQ, class TKV, int DIMS>
vb_status launch_decode(const vb_attention_args &a, vb_stream *stream) {
    constexpr int threads = warps_for(DIMS) * 32, keys_per_step = warps_for(DIMS) * keys_per_warp;
    const AttentionShape shape = shape_of(a, rows_per_tile);
    const int64_t tiles = shape.tiles * a.batch * a.kv_heads, steps = ceil_div<int64_t>(a.kv_len, keys_per_step);
    const int sms = multiprocessors(stream);
    // A cluster has up to 8 blocks, up to 16 where clusters are few (16 SMs that reach each other are not always free).
    // Where two steps a block do not suffice, parts over all SMs are faster than whole clusters.
    int cluster = 1;
    if (capability(stream) >= 90)
        while (cluster < steps && tiles * cluster * 2 <= sms && (cluster < 8 || (cluster < 16 && tiles * 4 * cluster <= sms)))
            cluster *= 2;
    if (steps > 2 * cluster) cluster = 1;
    AttentionSplits splits;
    VB_TRY(plan_splits(&splits, tiles, rows_per_tile, DIMS, cluster > 1 ? 1 : steps, sms, stream));
    if (tiles > INT32_MAX / splits.splits / cluster) return VB_UNSUPPORTED;
    return launch_cluster(stream, cluster, (unsigned)(tiles * splits.splits * cluster), threads,
                          warps_for(DIMS) * rows_per_tile * DIMS * 4 + (DIMS > 128 ? rows_per_tile * DIMS * 2 : 0),
                          attention_decode_kernel<TQ, TKV, DIMS>, shape, splits);
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
