// matmul_scaled_sm90.cu: products of F32 by Hopper's 16-bit tensor cores, in any layout (the kernel is in matmul_sm90.cuh).
//
// Each row of A and column of B is scaled by a power of two that puts its largest magnitude into [2^14, 2^15), and its elements
// are rounded to F16 numbers: one for TF32 accuracy, which has as many significant bits (11) at half the tensor cores' rate; two,
// to 22 bits and a sign, for float32 accuracy (Ootomo & Yokota 2022). An element 2^-29 below the largest of its row or column
// loses bits, one 2^-39 below is lost: that shows only where a row and a column both span more and their large elements meet small
// ones alone. A row or column with Inf or NaN is computed in plain float32 arithmetic, as IEEE 754 has it, slowly.
//
// largest_kernel, convert_kernel:
//   grid     tiles of 64 x 128 of A, then of B, as they are stored
//   block    256 threads, each 4 columns of every 8th row
//   shared   the maxima of 8 rows of 128 columns
//   moves    4 (m k + k n) bytes read each; 2 (two parts: 4) (m k + k n) written by the second
//   bound    memory

#include "matmul_scaled_sm90.cuh"

#include "matmul_sm90.cuh"

namespace vb {

#ifdef VB_WITH_SM90

namespace {

constexpr int convert_threads = 256;
constexpr int tile_rows = 64, tile_columns = 128;
constexpr int rows_apart = convert_threads / 32, rows_each = tile_rows / rows_apart;
constexpr int chunk = strided::depth / 2; // of k: so many high parts, then as many low ones

// An operand and what it becomes.
struct Conversion {
    const float *in;
    half *out;
    unsigned *largest; // bits of magnitudes: [matrices][rows] where by_k, else [matrices][columns]
    float2 *scale;     // of the same: see strided::Problem
    int64_t stride, batch_stride, out_stride, out_batch_stride;
    int rows, columns, matrices; // as stored
    bool by_k, vectors;          // rows run along k

    __host__ __device__ int tiles_across() const { return ceil_div(columns, tile_columns); }
    __host__ __device__ int64_t tiles() const { return (int64_t)ceil_div(rows, tile_rows) * tiles_across(); }
    __host__ __device__ int64_t blocks() const { return tiles() * matrices; }
};

#ifdef VB_SM90A

// The block's tile in one of the two operands.
struct Place {
    const Conversion &of;
    int64_t matrix;
    int row, column; // of this thread's first four elements

    VB_DEVICE Place(const Conversion &a, const Conversion &b) : of(blockIdx.x < a.blocks() ? a : b) {
        const int64_t block = blockIdx.x < a.blocks() ? blockIdx.x : blockIdx.x - a.blocks();
        const int tile = int(block % of.tiles());
        matrix = block / of.tiles();
        row = tile / of.tiles_across() * tile_rows + threadIdx.x / 32;
        column = tile % of.tiles_across() * tile_columns + threadIdx.x % 32 * 4;
    }
    VB_DEVICE void load(float4 (&x)[rows_each]) const {
        const float *const in = of.in + matrix * of.batch_stride;
#pragma unroll
        for (int i = 0; i < rows_each; i++) {
            const int r = row + i * rows_apart, left = of.columns - column;
            x[i] = make_float4(0, 0, 0, 0);
            if (r >= of.rows) continue;
            const float *const at = in + r * of.stride + column;
            if (of.vectors && left >= 4) {
                x[i] = *reinterpret_cast<const float4 *>(at);
            } else {
                if (left > 0) x[i].x = at[0];
                if (left > 1) x[i].y = at[1];
                if (left > 2) x[i].z = at[2];
                if (left > 3) x[i].w = at[3];
            }
        }
    }
};

constexpr unsigned infinity_bits = 0x7f800000u;

// By how much to raise the exponent so that a magnitude with these bits lands in [2^14, 2^15): -113..163.
VB_DEVICE int raise_of(unsigned bits) {
    if (bits == 0 || bits >= infinity_bits) return 0;
    return 14 - (bits >> 23 ? int(bits >> 23) - 127 : -118 - __clz(bits)); // subnormals: leading zeros count
}
// 2^exponent for -126..127.
VB_DEVICE float power_of_two(int exponent) { return __int_as_float((exponent + 127) << 23); }

// The factors that take a scale back.
VB_DEVICE float2 scale_of(unsigned largest) {
    if (largest >= infinity_bits) return make_float2(__int_as_float(0x7fffffff), 1.0f);
    const int raised = raise_of(largest);
    return make_float2(power_of_two(-(raised / 2)), power_of_two(-(raised - raised / 2)));
}

VB_DEVICE unsigned magnitude(float x) { return __float_as_uint(x) & 0x7fffffffu; }

// x * 2^raised, rounded to a high part and, of what is left, a low one. Two factors, since 2^raised alone may not be a float.
struct Raise {
    float first, second;
    Raise() = default;
    VB_DEVICE explicit Raise(unsigned largest) {
        const int raised = raise_of(largest);
        first = power_of_two(raised / 2);
        second = power_of_two(raised - raised / 2);
    }
    VB_DEVICE half high(float x) const { return __float2half_rn(x * first * second); }
    VB_DEVICE half low(float x, half high) const { return __float2half_rn(x * first * second - __half2float(high)); }
};

#endif

__global__ __launch_bounds__(convert_threads) void largest_kernel(const __grid_constant__ Conversion a, const __grid_constant__ Conversion b) {
#ifdef VB_SM90A
    __shared__ unsigned most[rows_apart][tile_columns];
    const Place place(a, b);
    float4 x[rows_each];
    place.load(x);
    const int lane = threadIdx.x % 32;
    if (place.of.by_k) {
#pragma unroll
        for (int i = 0; i < rows_each; i++) {
            const int row = place.row + i * rows_apart;
            const unsigned largest = __reduce_max_sync(all_lanes, max(max(magnitude(x[i].x), magnitude(x[i].y)),
                                                                       max(magnitude(x[i].z), magnitude(x[i].w))));
            if (lane == 0 && row < place.of.rows) atomicMax(&place.of.largest[place.matrix * place.of.rows + row], largest);
        }
        return;
    }
    uint4 four = make_uint4(0, 0, 0, 0);
#pragma unroll
    for (int i = 0; i < rows_each; i++) {
        four.x = max(four.x, magnitude(x[i].x)), four.y = max(four.y, magnitude(x[i].y));
        four.z = max(four.z, magnitude(x[i].z)), four.w = max(four.w, magnitude(x[i].w));
    }
    *reinterpret_cast<uint4 *>(&most[threadIdx.x / 32][lane * 4]) = four;
    __syncthreads();
    const int column = place.column - lane * 4 + threadIdx.x;
    if (threadIdx.x >= tile_columns || column >= place.of.columns) return;
    unsigned largest = 0;
#pragma unroll
    for (int i = 0; i < rows_apart; i++) largest = max(largest, most[i][threadIdx.x]);
    atomicMax(&place.of.largest[place.matrix * place.of.columns + column], largest);
#endif
}

template <int PARTS>
__global__ __launch_bounds__(convert_threads) void convert_kernel(const __grid_constant__ Conversion a, const __grid_constant__ Conversion b) {
#ifdef VB_SM90A
    wait_for_previous_kernel();
    release_next_kernel();
    const Place place(a, b);
    const Conversion &of = place.of;
    float4 x[rows_each];
    place.load(x);
    // Of two parts, k is padded with zeros to whole chunks.
    const auto padded = [](int size) { return PARTS == 2 ? ceil_div(size, chunk) * chunk : size; };
    const auto along_k = [](int k) { return PARTS == 2 ? k / chunk * 2 * chunk + k % chunk : k; };
    const int rows = of.by_k ? of.rows : padded(of.rows), columns = of.by_k ? padded(of.columns) : of.columns;
    if (place.column >= columns) return;
    const unsigned *const largest = of.largest + place.matrix * (of.by_k ? of.rows : of.columns);
    float2 *const scale = of.scale + place.matrix * (of.by_k ? of.rows : of.columns);
    Raise raise[4];
    if (!of.by_k)
#pragma unroll
        for (int e = 0; e < 4; e++) {
            const bool inside = place.column + e < of.columns;
            const unsigned bits = inside ? largest[place.column + e] : 0;
            raise[e] = Raise(bits);
            if (inside && place.row == 0) scale[place.column + e] = scale_of(bits);
        }
#pragma unroll
    for (int i = 0; i < rows_each; i++) {
        const int row = place.row + i * rows_apart;
        if (row >= rows) continue;
        if (of.by_k) {
            raise[0] = raise[1] = raise[2] = raise[3] = Raise(largest[row]);
            if (place.column == 0) scale[row] = scale_of(largest[row]);
        }
        const float value[4] = {x[i].x, x[i].y, x[i].z, x[i].w};
        Vec<half, 4> high, low;
#pragma unroll
        for (int e = 0; e < 4; e++) {
            high.at[e] = raise[e].high(value[e]);
            low.at[e] = raise[e].low(value[e], high.at[e]);
        }
        half *const to = of.out + place.matrix * of.out_batch_stride +
                         (of.by_k ? row * of.out_stride + along_k(place.column) : along_k(row) * of.out_stride + place.column);
        *reinterpret_cast<Vec<half, 4> *>(to) = high;
        if (PARTS == 2) *reinterpret_cast<Vec<half, 4> *>(to + (of.by_k ? chunk : chunk * of.out_stride)) = low;
    }
#endif
}

constexpr int64_t align256(int64_t bytes) { return (bytes + 255) / 256 * 256; }

// Describes the conversion of an operand and what it becomes, which begins at `memory`; that moves past it.
strided::Operand plan_operand(Conversion &c, int parts, char *&memory) {
    const int64_t k = c.by_k ? c.columns : c.rows, stored_k = parts == 2 ? ceil_div<int64_t>(k, chunk) * 2 * chunk : k;
    const int64_t rows = c.by_k ? c.rows : stored_k, columns = c.by_k ? stored_k : c.columns;
    c.out = (half *)memory;
    c.out_stride = (columns + 7) / 8 * 8;
    c.out_batch_stride = rows * c.out_stride;
    memory += align256(c.out_batch_stride * c.matrices * 2);
    return {c.out, rows, columns, c.out_stride, c.out_batch_stride, c.matrices};
}

} // namespace

vb_status matmul_scaled_sm90(const vb_matmul_args &x, vb_stream *stream) {
    const bool tf32 = x.precision == VB_PRECISION_TF32;
    const double work = (double)x.m * x.n * x.k * x.batch;
    // What the kernels on plain operands take as long for.
    if (!strided::sizes_fit(x) || x.m < 32 || x.n < 32 || x.k < 128 || work < (tf32 ? 4e8 : 6e7)) return VB_UNSUPPORTED;
    const int parts = tf32 ? 1 : 2;
    const bool a_shared = x.a_batch_stride == 0, b_shared = x.b_batch_stride == 0;
    Conversion a = {}, b = {};
    a.in = (const float *)x.a, a.stride = x.a_stride, a.batch_stride = x.a_batch_stride, a.by_k = !x.a_transposed;
    a.rows = (int)(a.by_k ? x.m : x.k), a.columns = (int)(a.by_k ? x.k : x.m), a.matrices = a_shared ? 1 : (int)x.batch;
    a.vectors = rows_of_vectors<float>(x.a, x.a_stride, x.a_batch_stride);
    b.in = (const float *)x.b, b.stride = x.b_stride, b.batch_stride = x.b_batch_stride, b.by_k = x.b_transposed;
    b.rows = (int)(b.by_k ? x.n : x.k), b.columns = (int)(b.by_k ? x.k : x.n), b.matrices = b_shared ? 1 : (int)x.batch;
    b.vectors = rows_of_vectors<float>(x.b, x.b_stride, x.b_batch_stride);
    if (a.blocks() + b.blocks() > INT32_MAX) return VB_UNSUPPORTED;

    const int64_t sides = x.m * a.matrices + x.n * b.matrices, largest_bytes = align256(sides * 4);
    char *memory = nullptr;
    plan_operand(a, parts, memory), plan_operand(b, parts, memory);
    if (workspace((void **)&memory, (memory - (char *)nullptr) + largest_bytes + sides * (int64_t)sizeof(float2), stream) != VB_OK) return VB_UNSUPPORTED;
    const strided::Operand a_scaled = plan_operand(a, parts, memory), b_scaled = plan_operand(b, parts, memory);
    a.largest = (unsigned *)memory;
    b.largest = a.largest + x.m * a.matrices;
    a.scale = (float2 *)(memory + largest_bytes);
    b.scale = a.scale + x.m * a.matrices;

    const unsigned blocks = (unsigned)(a.blocks() + b.blocks());
    VB_TRY(vb_cuda_memset(memory, 0, largest_bytes, stream));
    VB_TRY(launch(stream, blocks, convert_threads, 0, largest_kernel, a, b));
    VB_TRY(launch_overlapped(stream, blocks, convert_threads, 0, parts == 2 ? convert_kernel<2> : convert_kernel<1>, a, b));

    strided::Problem<float> p = {};
    p.c = (float *)x.c, p.c_stride = x.c_stride, p.c_batch_stride = x.c_batch_stride;
    p.c_vectors = rows_of_vectors<float>(x.c, x.c_stride, x.c_batch_stride);
    p.a_shared = a_shared, p.b_shared = b_shared;
    p.m = (int)x.m, p.k = (int)x.k, p.n = (int)x.n, p.batch = (int)x.batch;
    p.steps = (int)ceil_div<int64_t>(a.by_k ? a_scaled.columns : a_scaled.rows, strided::depth);
    p.a_scale = a.scale, p.b_scale = b.scale;
    p.a = a.in, p.b = b.in;
    p.a_row = x.a_transposed ? 1 : x.a_stride, p.a_term = x.a_transposed ? x.a_stride : 1, p.a_batch = x.a_batch_stride;
    p.b_term = x.b_transposed ? 1 : x.b_stride, p.b_column = x.b_transposed ? x.b_stride : 1, p.b_batch = x.b_batch_stride;
    const bool wide = tf32 && strided::wide_tiles(x, stream);
    return with_layouts(x, [&](auto a_t, auto b_t) {
        constexpr bool A_MN = decltype(a_t)::value, B_MN = !decltype(b_t)::value;
        if (!tf32) return strided::launch_matmul<half, float, 128, A_MN, B_MN, 2>(a_scaled, b_scaled, VB_F16, p, stream);
        return wide ? strided::launch_matmul<half, float, 256, A_MN, B_MN, 1>(a_scaled, b_scaled, VB_F16, p, stream)
                    : strided::launch_matmul<half, float, 128, A_MN, B_MN, 1>(a_scaled, b_scaled, VB_F16, p, stream);
    });
}

#endif // VB_WITH_SM90

} // namespace vb
