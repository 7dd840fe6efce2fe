// attention_decode.cu: attention of few query rows a key head over a 16-bit cache, on tensor cores. On Hopper it takes the
// batches of sequences of different lengths; attention_decode_sm90.cu the rest.
//
//   grid     a tile is 16 packed query rows, a block has some of its keys. Short sequences: tiles * cluster blocks. Long ones:
//            about two blocks an SM; in batches each has equally many keys, of whichever tiles (attention_decode.cuh)
//   block    4 warps; a warp takes 16 keys at a time, on its own until the end
//   cluster  on Hopper up to 16 blocks, which send each other their parts; parts of long sequences come together by way of
//            the workspace, added up by the block that is done last
//   shared   4 * 16 * DIMS floats of the warps' outputs (32 KiB for 128), and what the cluster sends
//   moves    the keys and values once a tile; the parts of split rows, small beside them
//   bound    latency of dependent instructions: by the clock, four warps an SM take about 2000 cycles a step
//   measured H200, F32 over F16, 16/2 heads of 128, graph replays: 51 us for 64 sequences of 50 to 8000 keys, 2.6 TB/s
//
// Keys and values go from memory to tensor core fragments without shared memory. The contracted index of a product may be
// permuted as long as both factors are: a lane loads 16 contiguous bytes of a key, 8 dimensions, and calls them the k
// indices that its fragment holds (queries are loaded the same way). Of values it loads 8 dimensions of the 4 keys of its
// fragment, and pairs keys by byte permutation; the output columns are permuted in turn, so that at the end a lane holds
// 16 contiguous dimensions of its two rows.
//
// While the kernel before this one still runs, a block asks for its keys and values to come into the L2. That reads nothing,
// so it needs no order: what is written later is written to the L2.

#include "attention_decode.cuh"
#include "mma.cuh"

namespace vb {
namespace {

constexpr int rows_per_tile = 16;
constexpr int keys_per_warp = 16;
constexpr int warps = keys_per_step / keys_per_warp;
constexpr int threads = warps * 32;

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

// What the blocks of a cluster send each other: a row's 4 dimensions are summed up by one of them.
template <int DIMS>
struct Inbox {
    static constexpr int items = rows_per_tile * (DIMS / 4);
    float4 out[items]; // [sender][item of the block]
    float2 stats[items];
};

template <class TQ, class TKV, int DIMS>
__global__ void __launch_bounds__(threads, 2) attention_decode_kernel(AttentionShape a, DecodeSplits splits) {
#if __CUDA_ARCH__ >= 800
    constexpr int chunks = DIMS / 32; // of 32 dimensions: two products of k = 16 for the scores
    constexpr int blocks = DIMS / 64; // of 64 dimensions: eight products of n = 8 for the outputs
    // Up to 128 dimensions the registers hold the queries, and keys and values are loaded a turn ahead. Beyond, the queries
    // lie in shared memory, behind the warps' outputs, as the lanes need them: all warps have the same.
    constexpr bool roomy = DIMS <= 128;
    constexpr int out_stride = DIMS + 4; // rows in different banks
    extern __shared__ float4 shared[];
    float *const warp_out = reinterpret_cast<float *>(shared); // [warp][row][out_stride]
    uint4 *const stored_queries = reinterpret_cast<uint4 *>(warp_out + warps * rows_per_tile * out_stride);
    Inbox<DIMS> *const inbox = reinterpret_cast<Inbox<DIMS> *>(stored_queries + (roomy ? 0 : rows_per_tile * DIMS / 8));
    __shared__ __align__(8) float2 warp_stats[warps][rows_per_tile];
    __shared__ uint64_t mailbox;
    __shared__ unsigned flag;
    const float minus_infinity = __uint_as_float(0xff800000u);
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, c = lane % 4, dim = (int)a.dim;

    // Before the kernel before this one has ended: whatever follows from the arguments alone.
    const bool planned = splits.sharing == PLANNED;
    const int cluster = splits.sharing == BY_CLUSTER ? (int)gridDim.x : 1;
    Part part = planned ? Part() : part_in_turns<rows_per_tile>(a);
    const int items = part.rows * (DIMS / 4), each = planned ? items : items / cluster; // 16 divides items
    if (cluster > 1) {
        if (threadIdx.x == 0) mailbox_init(&mailbox, items * (int)sizeof(float4) + items * (int)sizeof(float2));
        cluster_arrive();
    }
    const auto cache_of = [&](const void *cache) {
        const int64_t sequence = a.sequences ? a.sequences[part.b] : part.b;
        return (const TKV *)cache + (sequence * a.kv_heads + part.kv_head) * a.kv_capacity * a.dim;
    };
    if (splits.prefetch) {
        const int key = part.first + (int)threadIdx.x * part.stride;
        const int bytes = smaller(keys_per_step, part.end - key) * dim * (int)sizeof(TKV);
        if (threadIdx.x < 4 && bytes > 0) {
            prefetch_to_l2(cache_of(a.k) + (int64_t)key * dim, bytes);
            prefetch_to_l2(cache_of(a.v) + (int64_t)key * dim, bytes);
        }
    }
    if (cluster > 1) cluster_wait(); // the others have begun, and their mailboxes stand
    wait_for_previous_kernel();
    release_next_kernel();

    // The keys that are seen depend on positions; without a window a block may begin to load before it knows them. What lies
    // past them up to kv_len may be anything.
    KeyRange all = {0, (int)a.kv_len};
    if (planned) {
        if (!plan_part<rows_per_tile>(&part, a, splits.slots)) return;
        all.hi = part.end;
    } else if (a.window > 0) {
        all = keys_of_few(a, part.b, part.first_row, part.rows);
        part.first += all.lo;
    }
    const int rows = part.rows;
    const TKV *const k_cache = cache_of(a.k), *const v_cache = cache_of(a.v);

    // Keys 8j + g at dimensions 32i + 8c..
    uint4 k[2][chunks];
    const auto load_keys = [&](int base) {
#pragma unroll
        for (int j = 0; j < 2; j++)
#pragma unroll
            for (int i = 0; i < chunks; i++) {
                const int key = base + 8 * j + g, d = 32 * i + 8 * c;
                k[j][i] = load8(k_cache + (int64_t)key * dim + d, key < all.hi && d < dim);
            }
    };
    // Values of keys 2c, 2c+1, 2c+8, 2c+9 at dimensions 64i + 8g..
    uint4 v[blocks][4];
    const auto load_values = [&](int base, int i) {
#pragma unroll
        for (int j = 0; j < 4; j++) {
            const int key = base + 2 * c + (j & 1) + (j & 2) * 4, d = 64 * i + 8 * g;
            v[i][j] = load8(v_cache + (int64_t)key * dim + d, key < all.hi && d < dim);
        }
    };
    int base = part.first + warp * keys_per_warp;
    if (roomy) {
        load_keys(base);
#pragma unroll
        for (int i = 0; i < blocks; i++) load_values(base, i);
    }

    // Rows g and g + 8 of the queries, at the same dimensions.
    uint4 held[2][chunks];
    uint4 *const stored = stored_queries + lane;
#pragma unroll
    for (int h = 0; h < 2; h++) {
        const int row = g + 8 * h;
        const TQ *source = (const TQ *)a.q + (row < rows ? query_offset(a, part.b, part.kv_head, part.first_row + row) : 0);
#pragma unroll
        for (int i = 0; i < chunks; i++) {
            held[h][i] = Query8<TQ, TKV>::load(source + 32 * i + 8 * c, row < rows && 32 * i + 8 * c < dim);
            if (!roomy && warp == 0) stored[(2 * i + h) * 32] = held[h][i];
        }
    }
    if (!roomy) __syncthreads();
    if (!planned && a.window == 0) all = keys_of_few(a, part.b, part.first_row, part.rows);
    KeyRange seen[2] = {all, all};
    const bool masked = a.seq > 1; // some row may see less than the tile
    if (masked)
#pragma unroll
        for (int h = 0; h < 2; h++)
            if (g + 8 * h < rows) seen[h] = keys_of(a, part.b, token_of(a, part.first_row + g + 8 * h));
    const float scale = a.scale * log2_e;
    float max[2] = {minus_infinity, minus_infinity}, sum[2] = {0.0f, 0.0f};
    float out[blocks][8][4] = {};

    for (; base < all.hi; base += part.stride) {
        if (!roomy) load_keys(base);
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
        if (roomy) load_keys(base + part.stride); // for the next turn; nothing is read past the end

        unsigned weights[4];
#pragma unroll
        for (int h = 0; h < 2; h++) {
            float s[4];
            float greatest = max[h];
#pragma unroll
            for (int e = 0; e < 4; e++) {
                const int key = base + 8 * (e / 2) + 2 * c + e % 2;
                s[e] = (score[e / 2][2 * h + e % 2] + second[e / 2][2 * h + e % 2]) * scale;
                if (key >= all.hi || (masked && (key < seen[h].lo || key >= seen[h].hi))) s[e] = minus_infinity;
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
            if (!roomy) load_values(base, i);
            if (base + keys_per_warp > all.hi) // a weight of 0 does not cancel NaN
#pragma unroll
                for (int j = 0; j < 4; j++)
                    if (base + 2 * c + (j & 1) + (j & 2) * 4 >= all.hi) v[i][j] = make_uint4(0, 0, 0, 0);
#pragma unroll
            for (int e = 0; e < 8; e++) {
                const unsigned pick = e % 2 ? 0x7632 : 0x5410; // the odd or even halves of two keys
                mma<TKV>(out[i][e], weights, __byte_perm(word(v[i][0], e / 2), word(v[i][1], e / 2), pick),
                         __byte_perm(word(v[i][2], e / 2), word(v[i][3], e / 2), pick));
            }
            if (roomy) load_values(base + part.stride, i);
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
                    *reinterpret_cast<float4 *>(warp_out + (warp * rows_per_tile + row) * out_stride + 64 * i + 16 * c + e) =
                        make_float4(out[i][e % 8][n], out[i][e % 8 + 1][n], out[i][e % 8 + 2][n], out[i][e % 8 + 3][n]);
                }
    }
    __syncthreads();
    const auto sum_of_warps = [&](int row, int d) {
        return add_parts<warps>(warps, [&](int w) {
            const float2 stats = warp_stats[w][row];
            return RowPart{stats.x, stats.y,
                           *reinterpret_cast<const float4 *>(warp_out + (w * rows_per_tile + row) * out_stride + d)};
        });
    };
    if (cluster > 1) {
        const int rank = cluster_rank();
        for (int item = threadIdx.x; item < items; item += threads) {
            const RowPart x = sum_of_warps(item / (DIMS / 4), item % (DIMS / 4) * 4);
            const int to = item / each, at = rank * each + item - to * each;
            const unsigned box = cluster_address(&mailbox, to);
            send4(cluster_address(&inbox->out[at], to), box, x.out);
            send2(cluster_address(&inbox->stats[at], to), box, make_float2(x.max, x.sum));
        }
        mailbox_wait(&mailbox);
        for (int item = threadIdx.x; item < each; item += threads)
            store_part<TQ>(a, part, (rank * each + item) / (DIMS / 4), (rank * each + item) % (DIMS / 4) * 4,
                           add_parts<16>(cluster, [&](int r) {
                               const float2 stats = inbox->stats[r * each + item];
                               return RowPart{stats.x, stats.y, inbox->out[r * each + item]};
                           }));
        return;
    }
    const int everything = rows * (DIMS / 4); // of the plan's tile
    const int64_t number = planned ? blockIdx.x : part.first_block + (int)blockIdx.x;
    for (int item = threadIdx.x; item < everything; item += threads) {
        const int row = item / (DIMS / 4), d = item % (DIMS / 4) * 4;
        const RowPart x = sum_of_warps(row, d);
        if (part.parts > 1) {
            const int64_t slot = number * rows_per_tile + row;
            *reinterpret_cast<float4 *>(splits.partial + slot * DIMS + d) = x.out;
            if (d == 0) splits.stats[slot] = make_float2(x.max, x.sum);
        } else {
            store_part<TQ>(a, part, row, d, x);
        }
    }
    if (part.parts > 1) combine_parts<rows_per_tile, DIMS, TQ>(a, splits, part, &flag);
#endif
}

template <class TQ, class TKV, int DIMS>
vb_status launch_decode(const vb_attention_args &a, vb_stream *stream) {
    const AttentionShape shape = shape_of(a, rows_per_tile);
    DecodeSplits splits;
    dim3 grid;
    int cluster;
    VB_TRY(plan_decode(&splits, &grid, &cluster, shape, rows_per_tile, DIMS, 16, 2 * multiprocessors(stream), stream));
    const int64_t shared_bytes = warps * rows_per_tile * (DIMS + 4) * 4 + (DIMS > 128 ? rows_per_tile * DIMS * 2 : 0) +
                                 (cluster > 1 ? (int64_t)sizeof(Inbox<DIMS>) : 0);
    return launch_cluster(stream, cluster, grid, threads, shared_bytes, attention_decode_kernel<TQ, TKV, DIMS>, shape, splits);
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
