// matmul_3xf16_sm90.cu: products of F32 by Hopper's 16-bit tensor cores, in any layout (matmul_sm90.cuh has the
// kernel).
//
// convert_kernel converts both operands:
//   grid     clusters of 8 blocks: first, of an operand whose columns are scaled, a cluster for each 64 columns.
//            Each block of the cluster has an eighth of the rows.
//            Up to 512 rows, each block has 64 columns to itself.
//            Then, of an operand whose rows are scaled, blocks of eight rows; more of rows of up to 512 elements, fewer
//            from 2048 elements on, down to one
//   block    256 threads, which keep up to 16384 elements in registers until the greatest magnitude is known
//   shared   the greatest magnitudes of 64 columns
//   moves    4 (m k + k n) bytes read, 2 (two parts: 4) (m k + k n) written; rows past 2048 of columns are read twice,
//            from L2
//   bound    memory

#include "gemm/gemm_sm90.cuh"
#include "gemm/matmul_sm90.cuh"
#include "gemm/scaling.cuh"

// Each row of A and column of B is scaled by a power of two that puts its largest magnitude into [2^14, 2^15).
// Its elements are then rounded to F16 numbers.
// One number has TF32's accuracy, with as many significant bits (11) at half the tensor cores' rate.
// Two numbers have float32's accuracy, 22 bits and a sign (Ootomo & Yokota 2022).
// An element 2^-29 below the largest of its row or column loses bits; an element 2^-39 below is lost.
// The loss shows only where a row and a column both span more, and their large elements meet small ones alone.
// A row or column with Inf or NaN is computed in plain float32 arithmetic, as IEEE 754 has it, slowly.

namespace vb {

#ifdef VB_WITH_SM90

namespace {

constexpr int convert_threads = 256, convert_warps = convert_threads / 32;
constexpr int convert_cluster = 8;
constexpr int strip = 64;         // columns of a cluster
constexpr int row_of_warp = 2048; // the longest row that one warp keeps in registers
constexpr int chunk = product_chunk;

// An operand, and the numbers that it is converted to.
struct Conversion {
    const float *in;
    half *out;
    float2 *scale; // [matrices][rows] where by_k, else [matrices][columns]: see ScaledOperands
    int64_t stride, batch_stride, out_stride, out_batch_stride;
    int rows, columns, matrices; // as stored
    bool by_k, vectors;          // rows run along k, and are scaled; else columns

    __host__ __device__ int strips() const { return ceil_div(columns, strip); }
    // Blocks that share a strip; of few rows, each of a cluster has a strip to itself.
    __host__ __device__ int sharing() const { return rows > 512 ? convert_cluster : 1; }
    __host__ __device__ int64_t clusters() const {
        return by_k ? 0 : ceil_div<int64_t>((int64_t)strips() * matrices * sharing(), convert_cluster);
    }
    __host__ __device__ int warps_of_row() const {
        int warps = 1;
        while (warps < convert_warps && columns > warps * row_of_warp) warps *= 2;
        return warps;
    }
    // Short rows that a warp has at once.
    __host__ __device__ int rows_of_warp() const {
        return columns <= 128 ? 8 : columns <= 256 ? 4 : columns <= 512 ? 2 : 1;
    }
    __host__ __device__ int64_t blocks() const { // beside the clusters
        return by_k ? ceil_div<int64_t>((int64_t)rows * matrices, convert_warps / warps_of_row() * rows_of_warp()) : 0;
    }
};

#ifdef VB_SM90A

// Of two parts, k is padded with zeros to whole chunks.
template <int PARTS>
VB_DEVICE int padded(int k) {
    return PARTS == 2 ? ceil_div(k, chunk) * chunk : k;
}
// Where element i of k lies; its low part is `chunk` further on.
template <int PARTS>
VB_DEVICE int64_t along_k(int i) {
    return PARTS == 2 ? i / chunk * 2 * chunk + i % chunk : i;
}

// Rows of all the operand's: ROWS of a warp, or one of WARPS warps. VECTORS: all of a row is vectors of four, so that
// one condition does for each.
template <int PARTS, bool VECTORS, int WARPS, int LONGEST = row_of_warp, int ROWS = 1>
VB_DEVICE void convert_rows(const Conversion &of, int64_t block, unsigned *scratch) {
    constexpr int threads = WARPS * 32, held = LONGEST / (32 * 4); // vectors of a thread
    const int thread = threadIdx.x % threads, group = threadIdx.x / threads;
    const int64_t first = (block * (convert_warps / WARPS) + group) * ROWS, all = (int64_t)of.rows * of.matrices;
    if (first >= all) return;
    const int64_t matrix = first / of.rows;
    const float *in[ROWS];
    half *out[ROWS];
    int64_t of_matrix = matrix;
    int at = (int)(first - matrix * of.rows);
#pragma unroll
    for (int r = 0; r < ROWS; r++) { // past the last row the last one again
        in[r] = of.in + of_matrix * of.batch_stride + at * of.stride;
        out[r] = of.out + of_matrix * of.out_batch_stride + at * of.out_stride;
        if (first + r + 1 < all && ++at == of.rows) at = 0, of_matrix++;
    }
    const auto load = [&](const float *row, int i) { // past the end the last ones again, which changes no maximum
        return VECTORS ? *reinterpret_cast<const float4 *>(row + smaller(i, of.columns - 4))
                       : load_four(row + i, of.columns - i, of.vectors);
    };
    float4 x[ROWS][held];
    unsigned most[ROWS] = {};
#pragma unroll
    for (int r = 0; r < ROWS; r++)
#pragma unroll
        for (int h = 0; h < held; h++) x[r][h] = load(in[r], (h * threads + thread) * 4);
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
#pragma unroll
        for (int h = 0; h < held; h++) most[r] = max(most[r], greatest_magnitude(x[r][h]));
        if (WARPS == convert_warps)
            for (int i = (held * threads + thread) * 4; i < of.columns; i += threads * 4)
                most[r] = max(most[r], greatest_magnitude(load(in[r], i)));
        most[r] = __reduce_max_sync(all_lanes, most[r]);
    }
    if (WARPS > 1) {
        if (thread % 32 == 0) scratch[threadIdx.x / 32] = most[0];
        group_sync(1 + group, threads);
        most[0] = __reduce_max_sync(all_lanes, scratch[group * WARPS + thread % WARPS]);
    }
    const int end = padded<PARTS>(of.columns);
    const auto store = [&](half *row, const Raise &raise, int i, float4 four) {
        if (i >= end) return;
        if (VECTORS && PARTS == 2 && i >= of.columns) four = make_float4(0, 0, 0, 0);
        const float value[4] = {four.x, four.y, four.z, four.w};
        Vec<half, 4> high, low;
#pragma unroll
        for (int e = 0; e < 4; e++) {
            high.at[e] = raise.high(value[e]);
            if (PARTS == 2) low.at[e] = raise.low(value[e], high.at[e]);
        }
        half *const to = row + along_k<PARTS>(i);
        *reinterpret_cast<Vec<half, 4> *>(to) = high;
        if (PARTS == 2) *reinterpret_cast<Vec<half, 4> *>(to + chunk) = low;
    };
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
        if (first + r >= all) break;
        if (thread == 0) of.scale[first + r] = scale_of(most[r]);
        const Raise raise(raise_of(most[r]));
#pragma unroll
        for (int h = 0; h < held; h++) store(out[r], raise, (h * threads + thread) * 4, x[r][h]);
        if (WARPS == convert_warps)
            for (int i = (held * threads + thread) * 4; i < end; i += threads * 4)
                store(out[r], raise, i, load(in[r], i));
    }
}

// Cluster `index` of the operand's: one strip, or a strip for each block; `scratch` holds zeros.
template <int PARTS, bool VECTORS>
VB_DEVICE void convert_strips(const Conversion &of, int64_t index, unsigned *scratch) {
    constexpr int held = 16, some = 8; // rows that a thread has at once
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, end = padded<PARTS>(of.rows);
    const int sharing = of.sharing();
    const unsigned rank = sharing > 1 ? sm90::cluster_rank() : 0;
    if (sharing == 1) index = index * convert_cluster + sm90::cluster_rank();
    const int64_t matrix = index / of.strips();
    if (matrix >= of.matrices) return; // whole blocks, which no other waits for
    const int column = int(index - matrix * of.strips()) * strip + lane * 2;
    const int each = ceil_div(end, sharing), first = (int)rank * each + warp,
              last = smaller(((int)rank + 1) * each, end);
    half *const out = of.out + matrix * of.out_batch_stride + column;
    const bool inside = column < of.columns, both = column + 1 < of.columns;
    // Past the edges the nearest elements again, which changes no maximum.
    const float *const in = of.in + matrix * of.batch_stride + (inside ? column : 0);
    const int last_read = larger(0, smaller(last, of.rows) - 1), second = both;
    const auto load = [&](int row) {
        const float *const at = in + smaller(row, last_read) * of.stride;
        return VECTORS ? *reinterpret_cast<const float2 *>(at) : make_float2(at[0], at[second]);
    };
    uint2 most = make_uint2(0, 0);
    const auto add = [&](float2 x) { most = make_uint2(max(most.x, magnitude(x.x)), max(most.y, magnitude(x.y))); };
    float2 x[held];
#pragma unroll
    for (int i = 0; i < held; i++) x[i] = load(first + i * convert_warps);
#pragma unroll
    for (int i = 0; i < held; i++) add(x[i]);
    for (int row = first + held * convert_warps; row < last; row += some * convert_warps) {
        float2 y[some];
#pragma unroll
        for (int i = 0; i < some; i++) y[i] = load(row + i * convert_warps);
#pragma unroll
        for (int i = 0; i < some; i++) add(y[i]);
    }
    atomicMax(&scratch[lane * 2], most.x);
    atomicMax(&scratch[lane * 2 + 1], most.y);
    if (sharing > 1) {
        sm90::cluster_sync();
        most = make_uint2(0, 0);
#pragma unroll
        for (int r = 0; r < convert_cluster; r++) {
            const unsigned remote = sm90::remote_address(&scratch[lane * 2], r);
            most.x = max(most.x, sm90::load_remote_word(remote)),
            most.y = max(most.y, sm90::load_remote_word(remote + 4));
        }
    } else {
        __syncthreads();
        most = make_uint2(scratch[lane * 2], scratch[lane * 2 + 1]);
    }
    if (rank == 0 && warp == 0) {
        float2 *const scale = of.scale + matrix * of.columns + column;
        if (inside) scale[0] = scale_of(most.x);
        if (both) scale[1] = scale_of(most.y);
    }
    const Raise raise[2] = {Raise(raise_of(most.x)), Raise(raise_of(most.y))};
    const auto store = [&](int row, float2 two) {
        if (!inside || row >= last) return;
        if (PARTS == 2 && row >= of.rows) two = make_float2(0, 0);
        const Vec<half, 2> high = {{raise[0].high(two.x), raise[1].high(two.y)}};
        half *const to = out + along_k<PARTS>(row) * of.out_stride;
        *reinterpret_cast<Vec<half, 2> *>(to) = high;
        if (PARTS == 2)
            *reinterpret_cast<Vec<half, 2> *>(to + chunk * of.out_stride) = {
                {raise[0].low(two.x, high.at[0]), raise[1].low(two.y, high.at[1])}};
    };
#pragma unroll
    for (int i = 0; i < held; i++) store(first + i * convert_warps, x[i]);
    for (int row = first + held * convert_warps; row < last; row += some * convert_warps) {
        float2 y[some];
#pragma unroll
        for (int i = 0; i < some; i++) y[i] = load(row + i * convert_warps);
#pragma unroll
        for (int i = 0; i < some; i++) store(row + i * convert_warps, y[i]);
    }
    if (sharing > 1) sm90::cluster_sync(); // others may still read this block's maxima
}

#endif

template <int PARTS>
__global__ __launch_bounds__(convert_threads, 2) void convert_kernel(VB_IN_PLACE Conversion a,
                                                                     VB_IN_PLACE Conversion b) {
#ifdef VB_SM90A
    __shared__ __align__(8) unsigned scratch[strip];
    if (threadIdx.x < strip) scratch[threadIdx.x] = 0;
    __syncthreads();
    wait_for_previous_kernel();
    release_next_kernel();
    const int64_t cluster = blockIdx.x / convert_cluster, clusters = a.clusters() + b.clusters();
    if (cluster < clusters) {
        const Conversion &of = cluster < a.clusters() ? a : b;
        const int64_t index = cluster < a.clusters() ? cluster : cluster - a.clusters();
        if (of.vectors && of.columns % 2 == 0) convert_strips<PARTS, true>(of, index, scratch);
        else convert_strips<PARTS, false>(of, index, scratch);
        return;
    }
    int64_t block = blockIdx.x - clusters * convert_cluster;
    const Conversion &of = block < a.blocks() ? a : b;
    if (block >= a.blocks()) block -= a.blocks();
    if (block >= of.blocks()) return;
    const auto rows = [&](auto vectors) {
        constexpr bool VECTORS = decltype(vectors)::value;
        switch (of.warps_of_row()) {
        case 1:
            switch (of.rows_of_warp()) {
            case 8: return convert_rows<PARTS, VECTORS, 1, 128, 8>(of, block, scratch);
            case 4: return convert_rows<PARTS, VECTORS, 1, 256, 4>(of, block, scratch);
            case 2: return convert_rows<PARTS, VECTORS, 1, 512, 2>(of, block, scratch);
            }
            return of.columns <= row_of_warp / 2 ? convert_rows<PARTS, VECTORS, 1, row_of_warp / 2>(of, block, scratch)
                                                 : convert_rows<PARTS, VECTORS, 1>(of, block, scratch);
        case 2: return convert_rows<PARTS, VECTORS, 2>(of, block, scratch);
        case 4: return convert_rows<PARTS, VECTORS, 4>(of, block, scratch);
        case 8: return convert_rows<PARTS, VECTORS, 8>(of, block, scratch);
        default: return convert_rows<PARTS, VECTORS, convert_warps>(of, block, scratch);
        }
    };
    if (of.vectors && of.columns % 4 == 0) rows(Bool<true>());
    else rows(Bool<false>());
#endif
}

constexpr int64_t align256(int64_t bytes) { return (bytes + 255) / 256 * 256; }

// Describes the conversion of an operand to numbers that begin at `memory`, and moves `memory` past them.
strided::Operand plan_operand(Conversion &c, int parts, char *&memory) {
    const int64_t k = c.by_k ? c.columns : c.rows, stored_k = parts == 2 ? ceil_div<int64_t>(k, chunk) * 2 * chunk : k;
    const int64_t rows = c.by_k ? c.rows : stored_k, columns = c.by_k ? stored_k : c.columns;
    c.out = (half *)memory;
    c.out_stride = ceil_div<int64_t>(columns, MATMUL_LINE) * MATMUL_LINE;
    c.out_batch_stride = rows * c.out_stride;
    memory += align256(c.out_batch_stride * c.matrices * 2);
    return {c.out, rows, columns, c.out_stride, c.out_batch_stride, c.matrices};
}

vb_status matmul_xf16(const vb_matmul_args &x, int parts, vb_stream *stream) {
    const bool a_shared = x.a_batch_stride == 0, b_shared = x.b_batch_stride == 0;
    Conversion a = {}, b = {};
    a.in = (const float *)x.a, a.stride = x.a_stride, a.batch_stride = x.a_batch_stride, a.by_k = !x.a_transposed;
    a.rows = (int)(a.by_k ? x.m : x.k), a.columns = (int)(a.by_k ? x.k : x.m), a.matrices = a_shared ? 1 : (int)x.batch;
    a.vectors = matmul_vectors(x.a, x.type, x.a_stride, x.a_batch_stride);
    b.in = (const float *)x.b, b.stride = x.b_stride, b.batch_stride = x.b_batch_stride, b.by_k = x.b_transposed;
    b.rows = (int)(b.by_k ? x.n : x.k), b.columns = (int)(b.by_k ? x.k : x.n), b.matrices = b_shared ? 1 : (int)x.batch;
    b.vectors = matmul_vectors(x.b, x.type, x.b_stride, x.b_batch_stride);
    const int64_t whole = a.clusters() + b.clusters() + ceil_div<int64_t>(a.blocks() + b.blocks(), convert_cluster);
    const int64_t blocks = whole * convert_cluster;

    char *memory = nullptr;
    plan_operand(a, parts, memory), plan_operand(b, parts, memory);
    const int64_t scales = (x.m * a.matrices + x.n * b.matrices) * (int64_t)sizeof(float2);
    VB_TRY(workspace((void **)&memory, (memory - (char *)nullptr) + scales, stream));
    const strided::Operand a_scaled = plan_operand(a, parts, memory), b_scaled = plan_operand(b, parts, memory);
    a.scale = (float2 *)memory;
    b.scale = a.scale + x.m * a.matrices;
    VB_TRY(launch_cluster(stream, convert_cluster, (unsigned)blocks, convert_threads, 0,
                          parts == 2 ? convert_kernel<2> : convert_kernel<1>, a, b));

    strided::Problem<float> p = {};
    strided::describe(p, x);
    p.steps = (int)ceil_div<int64_t>(a.by_k ? a_scaled.columns : a_scaled.rows, product_depth);
    p.scaled = {a.scale, b.scale, a.in, b.in, x.a_transposed ? 1 : x.a_stride, x.a_transposed ? x.a_stride : 1,
                x.b_transposed ? 1 : x.b_stride, x.b_transposed ? x.b_stride : 1, p.k};
    p.a_batch = x.a_batch_stride, p.b_batch = x.b_batch_stride;
    // The widest tiles that take no more time; narrow ones where these are too few to occupy the multiprocessors.
    const int64_t tiles = ceil_div<int64_t>(x.m, strided::tile_m) * ceil_div<int64_t>(x.n, 128) * x.batch;
    const int sms = multiprocessors(stream), width = matmul_sm90_wide(&x, sms) ? 256 : 4 * tiles > 3 * sms ? 128 : 64;
    return with_layouts(x, [&](auto a_t, auto b_t) {
        constexpr bool A_MN = decltype(a_t)::value, B_MN = !decltype(b_t)::value;
        if (parts == 2)
            return strided::launch_matmul<half, float, 128, A_MN, B_MN, 2>(a_scaled, b_scaled, VB_F16, p, stream);
        return width == 256
                   ? strided::launch_matmul<half, float, 256, A_MN, B_MN, 1>(a_scaled, b_scaled, VB_F16, p, stream)
               : width == 128
                   ? strided::launch_matmul<half, float, 128, A_MN, B_MN, 1>(a_scaled, b_scaled, VB_F16, p, stream)
                   : strided::launch_matmul<half, float, 64, A_MN, B_MN, 1>(a_scaled, b_scaled, VB_F16, p, stream);
    });
}

} // namespace

vb_status matmul_3xf16_sm90(const vb_matmul_args &x, vb_stream *stream) { return matmul_xf16(x, 2, stream); }
vb_status matmul_1xf16_sm90(const vb_matmul_args &x, vb_stream *stream) { return matmul_xf16(x, 1, stream); }

#endif // VB_WITH_SM90

} // namespace vb
