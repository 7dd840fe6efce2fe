// mma_b1.cu: out = W x for one row of activations and two-bit weights, by products of single bits (9.0): vb_w2a8_gemv
// of interleaved weights; the same for a row that is rounded first (vb_bit_linear); floats in two bytes
// (vb_tmac_matmul).
//
//   grid     one to a few blocks a multiprocessor, each for tiles of 16 rows. The warps of a block share the elements
//            of a row: a warp has one or two units of 64 bytes
//   shared   a ring of tiles; a sum a tile, warp, row and lane of four; the bytes of x where rounded
//   moves    n k / 4 bytes of weights, read once. Each block rounds x: it reads 4 or 8 bytes an element, from the L2
//   bound    instructions up to some megabytes, then the weights, which are asked for while the kernel before runs
//
// A code is its bits b0 + 2 b1, and x is its bits by the powers of two, of which the last is negative.
// An instruction counts where bits of 128 codes of 16 rows meet eight columns of bits of x.
// Weights are not unpacked: a column holds a bit plane of x at the places of b0, and shifted by one at those of b1.
// With floats a column holds two planes: b0 times bit i, and b1 times bit i - 1, count the same power of two.
// A code counts one too many, so the sum of the planes is subtracted.

#include "arch/streaming.cuh"
#include "ternary/w2a8.cuh"

namespace vb {
namespace {

// What x is: its codes, floats that are rounded to a byte, and floats that are rounded to 14 bits.
enum Source { CODES, ROUNDED, SHORTS };
constexpr int MOST_SHORT = 8191;

// A matrix that the row is multiplied with.
struct BitsMatrix {
    void *out;
    const void *weights;
    const float *scales;
    int n, segments, end; // behind its tiles and those of the matrices before it
};

// The matrices, one after the other. Short: a kernel waits for each line of its parameters before the first use.
// A block has `tiles` tiles, each of the first `more` blocks one more; `most` is the greater number. They lie as far
// apart as there are blocks, so that all blocks read neighbouring memory. `ahead` are asked for before the wait.
template <int MATRICES>
struct BitsJob {
    BitsMatrix matrix[MATRICES];
    int k, row_bytes, tiles, more, most, ahead;
    const void *x;               // codes or floats
    const float *add;            // to the first matrix
    const float *x_scale, *bias; // of codes
    const int32_t *segment_ends;
    const float *up, *norm; // of floats
    float eps;
    signed char out_type, activation, normed, settled;

    VB_DEVICE int matrix_of(int tile) const {
        int j = 0;
        while (j + 1 < MATRICES && tile >= matrix[j].end) j++;
        return j;
    }
    VB_DEVICE int row_in(int j, int tile) const { return (tile - (j ? matrix[j - 1].end : 0)) * 16; }
    // What the results of a matrix depend on.
    VB_DEVICE vb_w2a8_gemv_args results_of(int j) const {
        vb_w2a8_gemv_args a;
        a.out = matrix[j].out, a.n = matrix[j].n, a.out_type = vb_dtype(out_type), a.activation_scales = x_scale;
        a.weight_scales = matrix[j].scales, a.segments = matrix[j].segments, a.segment_ends = segment_ends;
        a.bias = bias, a.add = j == 0 ? add : nullptr;
        return a;
    }
};

// sums = start + the bits that a and x share: 16 rows of a, 256 bits of k, 8 columns of x.
VB_DEVICE void count_bits(int (&sums)[4], const unsigned (&a)[4], unsigned x0, unsigned x1, const int (&start)[4]) {
#if __CUDA_ARCH__ >= 900
    asm("mma.sync.aligned.m16n8k256.row.col.s32.b1.b1.s32.and.popc "
        "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%10,%11,%12,%13};"
        : "=r"(sums[0]), "=r"(sums[1]), "=r"(sums[2]), "=r"(sums[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(x0), "r"(x1), "r"(start[0]), "r"(start[1]), "r"(start[2]),
          "r"(start[3]));
#endif
}

// The bits of `mask` of 16 elements, turned to the right, at the places of their codes in a word.
VB_DEVICE unsigned column_of(const int4 &x, int right, unsigned mask) {
    const unsigned all = mask * 0x01010101u;
    const auto turned = [](int word, int by) { return __funnelshift_r(unsigned(word), unsigned(word), by); };
    return (turned(x.x, right) & all) | (turned(x.y, right - 2) & all << 2) | (turned(x.z, right - 4) & all << 4) |
        (turned(x.w, right - 6) & all << 6);
}

// Columns of floats, which have two bytes. From their lowest place on these hold bits 7 to 0, and bits 12, 13, 12, 11
// to 7, so that bit i - 1 lies behind bit i. Column c of the first byte counts 2^(7 - c). Columns of the second byte
// count -2^14 (bit 13 with b1), -2^13 (bit 13 with b0), 2^12, ... 2^8, and 2^13 (bit 12 with b1).
struct ShortColumn {
    int right;
    unsigned mask; // 1: with b0, 2: with b1
};
VB_DEVICE ShortColumn short_column(int byte, int c) {
    if (byte == 0) return {c, c == 7 ? 1u : 3u};
    return {c == 7 ? -1 : c, c == 0 || c == 7 ? 2u : c == 1 ? 1u : 3u};
}

// Two pieces of 16 bytes of 16 rows, as the first operand of count_bits. The address is of a row of a piece.
VB_DEVICE void read_rows(unsigned (&words)[4], unsigned address) {
#if __CUDA_ARCH__ >= 900
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
                 : "r"(address)
                 : "memory");
#endif
}

// 16 bytes of shared memory, which are read here and not before: registers are few.
VB_DEVICE int4 read_now(const void *at) {
    int4 v;
    asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "r"(shared_address(at))
                 : "memory");
    return v;
}

// The sum of squares, where it is wanted, and the greatest of a warp, which is not negative.
VB_DEVICE float2 sum_and_most(float squares, float most, bool wanted) {
    if (wanted)
#pragma unroll
        for (int offset = 16; offset > 0; offset /= 2) squares += __shfl_xor_sync(all_lanes, squares, offset);
#if __CUDA_ARCH__ >= 900
    most = __uint_as_float(__reduce_max_sync(all_lanes, __float_as_uint(most)));
#endif
    return make_float2(squares, most);
}

// Where byte `at` of the codes of x lies in shared memory: four lanes read 128 bytes apart.
VB_DEVICE int padded(int at) { return at + at / 128 * 16; }

// The floats of x that a thread rounds, four by four, with their factors.
template <Source SOURCE, int MATRICES, int UNITS>
struct Rounding {
    static constexpr int items = 2 * UNITS;
    const BitsJob<MATRICES> &job;
    float4 norms[items], h[items];

    // Where item i begins: in SHORTS among the elements of the thread's own warp.
    VB_DEVICE static int place_of(int i) {
        if (SOURCE == SHORTS) return 4 * (threadIdx.x / 32 * 64 * UNITS + threadIdx.x % 32) + 128 * i;
        return 4 * (threadIdx.x + i * blockDim.x);
    }
    // Four elements of item i, whose codes lie side by side. A word of VB_INT2_ROWS has them four apart.
    VB_DEVICE static float4 elements(const float *from, int i) {
        if (SOURCE != SHORTS) return *reinterpret_cast<const float4 *>(from + place_of(i));
        const unsigned first = place_of(0); // whole words lie between two items
        from += first / 16 * 16 + first % 16 / 4;
        return make_float4(from[128 * i], from[128 * i + 4], from[128 * i + 8], from[128 * i + 12]);
    }
    VB_DEVICE void read_norm() {
#pragma unroll
        for (int i = 0; i < items; i++) {
            const int at = place_of(i);
            norms[i] = job.normed && job.norm && at < job.k ? elements(job.norm, i)
                                                            : make_float4(1.0f, 1.0f, 1.0f, 1.0f);
        }
    }
    // Returns the sum of squares and the greatest product with a factor, of a warp.
    VB_DEVICE float2 read() {
#pragma unroll
        for (int i = 0; i < items; i++) {
            const int at = place_of(i);
            h[i] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
            if (at >= job.k) continue;
            h[i] = elements(static_cast<const float *>(job.x), i);
            if (SOURCE == ROUNDED && job.up) {
                const float4 u = elements(job.up, i);
                const vb_activation f = vb_activation(job.activation);
                h[i] = make_float4(gated_unit(f, h[i].x, u.x), gated_unit(f, h[i].y, u.y), gated_unit(f, h[i].z, u.z),
                                   gated_unit(f, h[i].w, u.w));
            }
        }
        float squares = 0.0f, most = 0.0f;
#pragma unroll
        for (int i = 0; i < items; i++) {
            const float v[4] = {h[i].x, h[i].y, h[i].z, h[i].w},
                        n[4] = {norms[i].x, norms[i].y, norms[i].z, norms[i].w};
#pragma unroll
            for (int j = 0; j < 4; j++) {
                if (SOURCE != SHORTS || job.normed) squares = fmaf(v[j], v[j], squares);
                most = Max::combine(most, fabsf(v[j] * n[j]));
            }
        }
        return sum_and_most(squares, most, job.normed);
    }
    // Writes the codes of h * factor * norms: in SHORTS [2][x_bytes], the bytes of ShortColumn.
    VB_DEVICE void write(signed char *codes, int x_bytes, float factor, float scale) const {
#pragma unroll
        for (int i = 0; i < items; i++) {
            const int at = place_of(i);
            if (SOURCE != SHORTS && at >= x_bytes) continue;
            const float v[4] = {h[i].x * factor * norms[i].x, h[i].y * factor * norms[i].y,
                                h[i].z * factor * norms[i].z, h[i].w * factor * norms[i].w};
            if (SOURCE == SHORTS) {
                unsigned q[4]; // rounded, in the lower 16 bits: 1.5 times 2^23 leaves no bits below 1
#pragma unroll
                for (int j = 0; j < 4; j++) q[j] = __float_as_uint(fmaf(v[j], scale, 12582912.0f));
                const auto joined = [&](int place) { // bytes of the same place in the four, the last before
                    return __byte_perm(__byte_perm(q[3], q[2], place), __byte_perm(q[1], q[0], place), 0x5410);
                };
                const unsigned low = joined(0x0040), above = joined(0x0051);
                const unsigned high = __brev((above & 0x3f3f3f3fu) << 1 | (low >> 7 & 0x01010101u));
                *reinterpret_cast<unsigned *>(codes + at) = __brev(low);
                *reinterpret_cast<unsigned *>(codes + x_bytes + at) = high | (high >> 2 & 0x01010101u);
            } else {
                *reinterpret_cast<char4 *>(codes + padded(at)) =
                    make_char4(code_of(v[0], scale), code_of(v[1], scale), code_of(v[2], scale), code_of(v[3], scale));
            }
        }
    }
};

// SHORTS has a scale a warp, for its elements of x, so that the warps need not wait for the greatest of all.
// TOGETHER tiles are multiplied at a time. THREADS and BLOCKS bound the registers.
template <Source SOURCE, int MATRICES, int UNITS, int STAGES, int TOGETHER, int THREADS, int BLOCKS>
__global__ void __launch_bounds__(THREADS, BLOCKS)
    bits_kernel(VB_IN_PLACE BitsJob<MATRICES> job) {
#if __CUDA_ARCH__ >= 900
    extern __shared__ __align__(128) char memory[];
    __shared__ float2 scratch[32]; // of each warp: sum of squares, greatest
    __shared__ float steps[32];    // of each warp: what 1 stands for in SHORTS
    constexpr bool rounds = SOURCE != CODES;
    constexpr int bytes = SOURCE == SHORTS ? 2 : 1;
    const int lane = threadIdx.x % 32, warps = blockDim.x / 32, warp = threadIdx.x / 32, group = lane / 4,
              word = lane % 4;
    const int row_bytes = job.row_bytes, pieces = row_bytes / 16, k = job.k, x_bytes = 256 * UNITS * warps;
    const int first = blockIdx.x, step = gridDim.x, count = job.tiles + (first < job.more);
    const int stage_bytes = warps * UNITS * 1024;
    int *const parts = reinterpret_cast<int *>(memory + smaller(job.most, STAGES) * stage_bytes);
    signed char *const codes = reinterpret_cast<signed char *>(parts + job.most * warps * 64);
    // [STAGES][warps][half][row][piece of the warp]. Pieces are turned by rows: eight rows of a piece meet in no bank.
    // A copy of a warp takes 64 or 128 neighbouring bytes of each row: whole lines, where there are two units.
    constexpr int across = 4 * UNITS, down = 32 / across;
    const int row = lane / across, piece = lane % across;
    const auto turned = [](int row, int piece) {
        return (row * across + (piece ^ row % 8 / (3 - UNITS))) * 16;
    };
    const unsigned own = shared_address(memory) + warp * UNITS * 1024,
                   from = own + turned(lane / 8 % 2 * 8 + lane % 8, lane / 16);
    unsigned to = own + turned(row, piece);
    const int own_piece = across * warp + piece;
    int rows_from = own_piece < pieces ? row : INT32_MAX; // the first row of a thread, of none behind the last piece
    constexpr bool beside = STAGES == TERNARY_BITS_STAGES && BLOCKS == 2; // registers for a block of the next kernel
    if (SOURCE == CODES && !beside) asm volatile("" : "+r"(to), "+r"(rows_from)); // kept, not found anew for each tile
    // Asks for tile t, which lies in stage t % STAGES, `at` bytes behind the first.
    const auto fetch = [&](int t, int at) {
        if (t < count) {
            const int tile = first + t * step, j = job.matrix_of(tile), r = job.row_in(j, tile);
            int rows = own_piece < pieces ? job.matrix[j].n - r - row : 0;
            if (SOURCE == CODES) rows = job.matrix[j].n - r - rows_from;
            const char *const w = static_cast<const char *>(job.matrix[j].weights) + (int64_t)(r + row) * row_bytes +
                16 * own_piece;
#pragma unroll
            for (int i = 0; i < 16; i += down) // of two units each other time the rows are 4 to 7, or 12 to 15
                copy_async((UNITS == 2 ? to ^ i % 8 * 16 : to) + at + i * across * 16, w + (int64_t)i * row_bytes,
                           i < rows);
        }
        copy_async_commit();
    };

    if (!job.settled) wait_for_previous_kernel();
    const int ahead = rounds ? STAGES : job.ahead;
#pragma unroll 1
    for (int t = 0; t < ahead; t++) fetch(t, t * stage_bytes);
    Rounding<SOURCE, MATRICES, UNITS> rounding{job, {}, {}};
    if (rounds) rounding.read_norm();
    // Where the codes of a lane lie in x, and how many words. Behind the wait all warps run at once.
    int places[UNITS], words[UNITS];
    if (SOURCE == CODES)
#pragma unroll
        for (int u = 0; u < UNITS; u++) {
            const int p = 4 * (warp * UNITS + u);
            const PieceElements e = elements_of(p, pieces);
            places[u] = int(e.first) + word * e.step, words[u] = smaller(pieces - p, (k - places[u]) / 16);
            asm volatile("" : "+r"(places[u]), "+r"(words[u]));
        }
    if (job.settled) wait_for_previous_kernel();
    release_next_kernel();

    float scale = 1.0f, factor = 1.0f;
    if (rounds) {
        float2 all = rounding.read();
        if (lane == 0) scratch[warp] = all;
        if (SOURCE == ROUNDED) {
            __syncthreads();
            all = scratch[0];
            for (int w = 1; w < warps; w++) all.x += scratch[w].x, all.y = Max::combine(all.y, scratch[w].y);
            if (job.normed) factor = 1.0f / sqrtf(all.x / float(k) + job.eps);
            scale = __fdiv_rn(127.0f, Max::combine(1e-5f, all.y * factor));
        } else {
            const float most = Max::combine(0x1p-100f, all.y);
            scale = __fdividef(MOST_SHORT * 0x1p-8f, most * 0x1p-8f); // which is 0 for divisors beyond 2^126
            if (lane == 0) steps[warp] = scale > 0.0f ? most * (1.0f / MOST_SHORT) : nanf(""); // of infinite floats
        }
        rounding.write(codes, x_bytes, factor, scale);
        if (SOURCE == ROUNDED)
            __syncthreads();
        else
            __syncwarp();
    }
    int4 v[UNITS][4];
    const char *const x = static_cast<const char *>(job.x);
    if (SOURCE == CODES)
#pragma unroll
        for (int u = 0; u < UNITS; u++)
#pragma unroll
            for (int q = 0; q < 4; q++)
                v[u][q] = q < words[u] ? reinterpret_cast<const int4 *>(x + places[u])[q] : make_int4(0, 0, 0, 0);
    if (SOURCE == ROUNDED)
#pragma unroll
        for (int u = 0; u < UNITS; u++) {
            const int p = 4 * (warp * UNITS + u);
            const PieceElements e = elements_of(p, pieces);
            const int at = int(e.first) + word * e.step, here = smaller(pieces - p, (k - at) / 16);
#pragma unroll
            for (int q = 0; q < 4; q++)
                v[u][q] = q < here ? *reinterpret_cast<const int4 *>(codes + padded(at + 16 * q))
                                   : make_int4(0, 0, 0, 0);
        }
#pragma unroll 1
    for (int t = ahead; t < STAGES; t++) fetch(t, t * stage_bytes);
    // The factors of the sums are asked for beside x.
    const auto ending = [&](int i) {
        const int tile = first + i / 16 * step, j = job.matrix_of(tile), row = job.row_in(j, tile) + i % 16;
        return ending_of(job.results_of(j), 0, smaller(row, job.matrix[j].n - 1));
    };
    Ending mine;
    if (threadIdx.x < count * 16) mine = ending(threadIdx.x);
    unsigned columns[bytes][UNITS][4];
    int minus[bytes][4]; // a code counts one too many
    int none[4] = {};
#pragma unroll
    for (int b = 0; b < bytes; b++) {
        int ones[4] = {};
        const ShortColumn column = SOURCE == SHORTS ? short_column(b, group) : ShortColumn{group, 1u};
#pragma unroll
        for (int u = 0; u < UNITS; u++) {
            const unsigned every[4] = {0x55555555u, 0x55555555u, 0x55555555u, 0x55555555u}; // the code 1
#pragma unroll
            for (int j = 0; j < 4; j++) {
                if (SOURCE == SHORTS)
                    v[u][j] = read_now(codes + b * x_bytes + 64 * (4 * (warp * UNITS + u) + j) + 16 * word);
                columns[b][u][j] = column_of(v[u][j], column.right, column.mask);
            }
            count_bits(ones, every, columns[b][u][0], columns[b][u][1], ones);
            count_bits(ones, every, columns[b][u][2], columns[b][u][3], ones);
        }
        minus[b][0] = minus[b][2] = -ones[0], minus[b][1] = minus[b][3] = -ones[1];
    }
    // A lane has the columns c = 2 (lane % 4) and c + 1. Its sums count in units of 2^c, or 2^(6 - c) in SHORTS.
    const int next = word == 3 ? -2 : 2;
    const int high = word == 0 ? -256 : 256, high_next = word == 0 ? -128 : word == 3 ? 8192 : 128;
    // Sums begin with minus the sum of x. In SHORTS, where registers are few, one number is added behind the products.
    const int less = 2 * minus[0][0] + minus[0][1] + high * minus[bytes - 1][0] + high_next * minus[bytes - 1][1];
    int *part = parts + warp * 64 + (SOURCE == SHORTS ? lane ^ 3 : lane); // [most][warps][half][group][lane % 4]
    const auto multiply = [&](const unsigned(&w)[UNITS][2][4], int *to) {
        int first_sums[4], second_sums[4];
#pragma unroll
        for (int u = 0; u < UNITS; u++) {
            const unsigned(&p)[4] = columns[0][u], (&q)[4] = columns[bytes - 1][u];
            const auto second = [&](int j) { return SOURCE == SHORTS ? q[j] : p[j] << 1; };
            count_bits(first_sums, w[u][0], p[0], p[1], u ? first_sums : SOURCE == SHORTS ? none : minus[0]);
            count_bits(second_sums, w[u][0], second(0), second(1), u ? second_sums : none);
            count_bits(first_sums, w[u][1], p[2], p[3], first_sums);
            count_bits(second_sums, w[u][1], second(2), second(3), second_sums);
        }
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const int *const a = first_sums + 2 * half, *const b = second_sums + 2 * half;
            to[32 * half] = SOURCE == SHORTS ? 2 * a[0] + a[1] + high * b[0] + high_next * b[1] + less
                                             : (a[0] + 2 * b[0]) + next * (a[1] + 2 * b[1]);
        }
    };
    int stage = 0;
#pragma unroll 1
    for (int t = 0; t < count; t += TOGETHER) {
        copy_async_wait<STAGES - TOGETHER>();
        __syncwarp();
        unsigned w[TOGETHER][UNITS][2][4];
        int at[TOGETHER];
#pragma unroll
        for (int i = 0; i < TOGETHER; i++) {
            at[i] = stage;
            if (i > 0 && t + i >= count) at[i] = at[i - 1]; // once more
            stage += stage_bytes;
            if (stage == STAGES * stage_bytes) stage = 0;
#pragma unroll
            for (int u = 0; u < UNITS; u++)
#pragma unroll
                for (int pair = 0; pair < 2; pair++) read_rows(w[i][u][pair], (from + at[i]) ^ (u * 64 + pair * 32));
        }
#pragma unroll
        for (int i = 0; i < TOGETHER; i++) {
            const bool again = i > 0 && t + i >= count;
            multiply(w[i], again ? part - warps * 64 : part);
            if (!again) part += warps * 64;
        }
        __syncwarp(); // all lanes have read what the copies overwrite
#pragma unroll
        for (int i = 0; i < TOGETHER; i++) fetch(t + i + STAGES, at[i]);
    }
    __syncthreads();
    if (SOURCE == SHORTS && job.normed) {
        float squares = 0.0f;
        for (int w = 0; w < warps; w++) squares += scratch[w].x;
        factor = 1.0f / sqrtf(squares / float(k) + job.eps);
    }
    for (int i = threadIdx.x; i < count * 16; i += blockDim.x) {
        const int tile = first + i / 16 * step, j = job.matrix_of(tile), row = job.row_in(j, tile) + i % 16;
        const int4 *const part = reinterpret_cast<const int4 *>(parts) + i / 16 * warps * 16 + i % 16;
        Ending e = i == threadIdx.x ? mine : ending(i);
        int sum = 0;
        float total = 0.0f;
#pragma unroll 4
        for (int w = 0; w < warps; w++) {
            const int4 v = part[16 * w];
            const int of = v.x + 4 * v.y + 16 * v.z + 64 * v.w;
            if (SOURCE == SHORTS)
                total = fmaf(float(of), steps[w], total);
            else
                sum += of;
        }
        if (row >= job.matrix[j].n) continue;
        if (rounds) e.divisor = scale;
        if (SOURCE == SHORTS)
            static_cast<float *>(job.matrix[j].out)[row] = total * factor * e.factor;
        else
            store_sum(job.results_of(j), 0, row, sum, e);
    }
#endif
}


template <Source SOURCE, int MATRICES>
vb_status launch_bits(BitsJob<MATRICES> &job, const ternary_bits &cut, vb_stream *stream) {
    job.tiles = int(cut.tiles / cut.blocks), job.more = int(cut.tiles % cut.blocks), job.most = cut.most;
    job.ahead = cut.ahead;
    const auto with = [&](auto units, auto stages, auto together, auto threads, auto blocks) {
        return launch_overlapped(stream, (unsigned)cut.blocks, cut.threads, cut.shared_bytes,
                                 bits_kernel<SOURCE, MATRICES, decltype(units)::value, decltype(stages)::value,
                                             decltype(together)::value, decltype(threads)::value,
                                             decltype(blocks)::value>,
                                 job);
    };
    constexpr bool shorts = SOURCE == SHORTS;
    const Constant<1> one;
    const Constant<2> two;
    const Constant<shorts ? 1 : 2> units;
    const Constant<TERNARY_BITS_THREADS> threads;
    const Constant<shorts ? TERNARY_BITS_THREADS : TERNARY_BITS_THREADS_SHORT_ROWS> few_threads;
    // Of codes alone: for others the chooser leaves no room beside.
    const Constant<SOURCE == CODES ? int(TERNARY_BITS_THREADS_BESIDE) : int(TERNARY_BITS_THREADS)> beside_threads;
    const Constant<SOURCE == CODES ? 2 : 1> beside;
    const Constant<TERNARY_BITS_STAGES_FEW> few;
    if (cut.stages == TERNARY_BITS_STAGES_SHORT_ROWS)
        return with(units, Constant<TERNARY_BITS_STAGES_SHORT_ROWS>(), units, few_threads, units);
    if (cut.beside) return with(units, Constant<TERNARY_BITS_STAGES>(), one, beside_threads, beside);
    if (SOURCE == CODES && cut.threads <= TERNARY_BITS_THREADS_SHORT_ROWS) {
        // Two blocks and, where they find room, two of the next kernel.
        const Constant<SOURCE == CODES ? int(TERNARY_BITS_THREADS_SHORT_ROWS) : int(TERNARY_BITS_THREADS)> pairs;
        const Constant<SOURCE == CODES ? 4 : 1> four;
        const Constant<SOURCE == CODES ? int(TERNARY_BITS_STAGES_PAIRS) : int(TERNARY_BITS_STAGES)> fewer;
        if (cut.stages == TERNARY_BITS_STAGES) return with(units, Constant<TERNARY_BITS_STAGES>(), one, pairs, four);
        if (cut.stages == TERNARY_BITS_STAGES_PAIRS) return with(units, fewer, one, pairs, four);
    }
    if (cut.stages == TERNARY_BITS_STAGES) return with(units, Constant<TERNARY_BITS_STAGES>(), one, threads, one);
    if (shorts ? cut.units == 2 : cut.threads <= TERNARY_BITS_THREADS_SHORT_ROWS)
        return with(two, few, one, Constant<shorts ? TERNARY_BITS_THREADS_SHORTS : TERNARY_BITS_THREADS_SHORT_ROWS>(),
                    Constant<shorts ? 1 : 4>());
    return with(units, few, one, threads, one);
}

} // namespace

vb_status w2a8_bits(const vb_w2a8_gemv_args &a, const ternary_bits &cut, vb_stream *stream) {
    BitsJob<1> job = {};
    job.matrix[0] = {a.out, a.weights, a.weight_scales, int(a.n), int(a.segments), cut.tiles};
    job.k = int(a.k), job.row_bytes = int(a.row_bytes), job.x = a.activations, job.add = a.add;
    job.x_scale = a.activation_scales, job.bias = a.bias, job.segment_ends = a.segment_ends;
    job.out_type = (signed char)a.out_type, job.settled = a.settled != 0;
    return launch_bits<CODES>(job, cut, stream);
}

vb_status tmac_bits(const vb_tmac_matmul_args &a, const ternary_bits &cut, vb_stream *stream) {
    BitsJob<1> job = {};
    job.matrix[0] = {a.out, a.weights, a.scales, int(a.m), int(a.m), cut.tiles};
    job.k = int(a.k), job.row_bytes = int(a.k / 4), job.x = a.activations, job.norm = a.norm, job.eps = a.eps;
    job.out_type = VB_F32, job.normed = a.normed != 0, job.settled = a.settled != 0;
    return launch_bits<SHORTS>(job, cut, stream);
}

} // namespace vb

using namespace vb;

extern "C" vb_status vb_cuda_bit_linear(const vb_bit_linear_args *args, vb_stream *stream) {
    const vb_bit_linear_args &a = *args;
    const vb_gpu gpu = gpu_of(stream);
    const ternary_bits cut = choose_bit_linear(&a, &gpu);
    if (cut.blocks == 0) return VB_UNSUPPORTED;
    chosen(stream, ternary_kernel_info(TERNARY_BIT_LINEAR), "bit_linear", VB_F32, "m n k threads", a.m,
           a.n + a.n2 + a.n3, a.k, (int64_t)cut.threads);
    BitsJob<3> job = {};
    const int ends = int(ceil_div<int64_t>(a.n, 16)), ends2 = ends + int(ceil_div<int64_t>(a.n2, 16));
    job.matrix[0] = {a.out, a.weights, a.weight_scales, int(a.n), int(a.segments), ends};
    job.matrix[1] = {a.out2, a.weights2, a.weight_scales2, int(a.n2), int(a.segments2), ends2};
    job.matrix[2] = {a.out3, a.weights3, a.weight_scales3, int(a.n3), int(a.segments3), cut.tiles};
    job.k = int(a.k), job.row_bytes = int(a.row_bytes), job.x = a.in, job.up = a.up, job.norm = a.norm, job.eps = a.eps;
    job.add = a.add, job.out_type = VB_F32, job.activation = (signed char)a.activation, job.normed = a.normed != 0;
    job.settled = a.settled != 0;
    return launch_bits<ROUNDED>(job, cut, stream);
}
