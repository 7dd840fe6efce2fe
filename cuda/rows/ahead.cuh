// ahead.cuh: the plan `ahead` of rows.cuh, for norms of many rows of 16 bits that begin anywhere. Blocks stay. A thread
// copies the aligned vectors that it computes into shared memory, some rows ahead, so that no other thread waits for
// them. It keeps weight and bias of its columns in registers, as all rows of its block begin equally far behind a
// vector. A row is summed before the row ahead of it is written: all warps have told their sums until they are wanted.
// Blocks of a cluster share a long row.
//
//   grid     the blocks or clusters that the GPU holds at once
//   block    32 to 1024 threads, PARTS vectors of a row each
//   shared   ROWS_AHEAD_DEPTH rows and 2112 bytes
//   moves    2 * rows * cols * sizeof(T) bytes, and weight and bias once a block
//   bound    memory bandwidth; short rows: instructions
//   measured docs/experiments/2026-11-29-odd-norms.md

#ifndef VB_CUDA_ROWS_AHEAD_CUH
#define VB_CUDA_ROWS_AHEAD_CUH

#include "arch/mma.cuh"
#include "rows/rows.cuh"

namespace vb {

constexpr int ahead_width = 8; // elements of a vector
// Of sums: a warp that tells those of row k has heard row k - 2, so that all have read those of row k - 4.
constexpr int ahead_slots = 4;

// Most threads of a block: such that it has no more registers than choose.h counts.
template <int PARTS, bool MEAN>
constexpr int ahead_threads = smaller<int>(ROWS_MOST_THREADS, 32 * ROWS_AHEAD_HELD(PARTS, MEAN));

// `bytes` of a vector, and zeros behind them.
VB_DEVICE void ahead_copy(unsigned shared, const void *global, int bytes) {
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared), "l"(global), "r"(bytes));
#else
    uint4 x = make_uint4(0, 0, 0, 0);
    if (bytes == 16) x = *static_cast<const uint4 *>(global);
    else
        for (int i = 0; 2 * i < bytes; i++)
            (&x.x)[i / 2] |= (unsigned)static_cast<const unsigned short *>(global)[i] << i % 2 * 16;
    asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(shared), "r"(x.x), "r"(x.y), "r"(x.z), "r"(x.w));
#endif
}
// Stores a vector. The compiler would store four words, as the other branch stores parts of them.
VB_DEVICE void ahead_store(void *to, unsigned a, unsigned b, unsigned c, unsigned d) {
    asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(a), "r"(b), "r"(c), "r"(d) : "memory");
}
// Fills the elements of a vector before number `from`, or from number `to` on.
VB_DEVICE void ahead_fill_front(uint4 &v, int from, unsigned filling) {
    unsigned *const words = &v.x;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const unsigned mask = __funnelshift_lc(0, 0xffffffffu, larger(16 * from - 32 * i, 0));
        words[i] = (words[i] & mask) | (filling & ~mask);
    }
}
VB_DEVICE void ahead_fill_back(uint4 &v, int to, unsigned filling) {
    unsigned *const words = &v.x;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const unsigned mask = __funnelshift_rc(0xffffffffu, 0, larger(32 * (i + 1) - 16 * to, 0));
        words[i] = (words[i] & mask) | (filling & ~mask);
    }
}
// Waits for what all warps have told of a row.
VB_DEVICE void ahead_meet(uint64_t *told, unsigned parity, bool cluster) {
#if __CUDA_ARCH__ >= 900
    if (!cluster) return barrier_wait(told, parity);
    asm volatile("{\n"
                 ".reg .pred done;\n"
                 "again:\n"
                 "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 done, [%0], %1;\n"
                 "@!done bra again;\n"
                 "}\n" ::"r"(shared_address(told)),
                 "r"(parity)
                 : "memory");
#else
    __syncthreads();
#endif
}
// Four elements of a parameter from `at` on, of which the row has `cols`; elsewhere any number.
VB_DEVICE float4 ahead_four(const float *parameter, int at, int cols) {
    if (at >= 0 && at + 4 <= cols) return __ldg(reinterpret_cast<const float4 *>(parameter + at));
    float four[4] = {0.0f, 0.0f, 0.0f, 0.0f};
#pragma unroll
    for (int e = 0; e < 4; e++)
        if (at + e >= 0 && at + e < cols) four[e] = __ldg(parameter + at + e);
    return make_float4(four[0], four[1], four[2], four[3]);
}
// The elements of a parameter that the vector from column `at` on meets, which begins anywhere.
VB_DEVICE void ahead_parameter(float (&p)[ahead_width], const float *parameter, int at, int cols, float otherwise) {
    if (!parameter) {
#pragma unroll
        for (float &one : p) one = otherwise;
        return;
    }
    const int by = at & 3;
    float v[ahead_width + 4];
#pragma unroll
    for (int q = 0; q < ahead_width + 4; q += 4) {
        const float4 four = ahead_four(parameter, at - by + q, cols);
        v[q] = four.x, v[q + 1] = four.y, v[q + 2] = four.z, v[q + 3] = four.w;
    }
#pragma unroll
    for (int e = 0; e < ahead_width + 2; e++) v[e] = by & 1 ? v[e + 1] : v[e];
#pragma unroll
    for (int e = 0; e < ahead_width; e++) p[e] = by & 2 ? v[e + 2] : v[e];
}

// MEAN: the layer norm. Vector number (part * blocks + rank) * blockDim.x + threadIdx.x of a row is a thread's. Rows
// of a block are `step` from each other, and begin equally far behind a vector.
template <class T, int PARTS, bool MEAN>
__global__ void __launch_bounds__(ahead_threads<PARTS, MEAN>)
    norm_ahead_kernel(T *out, const T *in, const float *weight, const float *bias, int cols, int rows, int step,
                      float eps) {
    constexpr int width = ahead_width, depth = ROWS_AHEAD_DEPTH(PARTS), slots = ahead_slots;
    using V = Vec<T, width>;
    extern __shared__ uint4 ring[];
    __shared__ float2 records[slots][ROWS_AHEAD_WARPS];
    __shared__ uint64_t told[slots];
    const int lanes = blockDim.x, blocks = cluster_size(), rank = cluster_rank(), lane = threadIdx.x, warp = lane / 32,
              warps = lanes / 32 * blocks, stride = blocks * lanes * width, first = (rank * lanes + lane) * width;
    wait_for_previous_kernel();
    release_next_kernel();
    if (lane == 0) {
        for (int s = 0; s < slots; s++) {
            barrier_init(&told[s], blocks > 1 ? 1 : lanes);
            if (blocks > 1) barrier_expect(&told[s], warps * (int)sizeof(float2));
        }
        barrier_init_fence();
    }
    if (blocks > 1) cluster_arrive(), cluster_wait();
    else __syncthreads();
    const int row = blockIdx.x / blocks, mine = (rows - row + step - 1) / step,
              shift = int((unsigned)row * (unsigned)cols % width), length = cols + shift;
    const int64_t jump = (int64_t)step * cols, start = (int64_t)row * cols - shift + first;
    const T *source = in + start;
    T *to = out + start;
    // In these parts no vector of a row is asked for.
    const auto whole = [&](int part) { return part > 0 && part + 1 < PARTS; };
    int coming = 0, into = 0; // the next row to ask for, and its place in the ring
    const auto bring = [&] {
        if (coming < mine)
#pragma unroll
            for (int part = 0; part < PARTS; part++) {
                const int at = first + part * stride;
                if (part + 1 < PARTS || at < length)
                    ahead_copy(shared_address(ring + (into * PARTS + part) * lanes + lane), source + part * stride,
                               part + 1 < PARTS ? 16 : 2 * smaller(length - at, width));
            }
        copy_async_commit();
        coming++, source += jump;
        into = into + 1 == depth ? 0 : into + 1;
    };
    for (int d = 0; d < depth; d++) bring();
    const auto vector_of = [&](int place, int part) { return ring[(place * PARTS + part) * lanes + lane]; };
    const auto warp_sum = [](float x) { return lanes_reduce<Sum>(x, 32); };
    float w[PARTS][width], b[PARTS][width];
#pragma unroll
    for (int part = 0; part < PARTS; part++) {
        ahead_parameter(w[part], weight, first + part * stride - shift, cols, 1.0f);
        if (MEAN) ahead_parameter(b[part], bias, first + part * stride - shift, cols, 0.0f);
    }
    // How many elements a thread, its warp, and the warps that it reads the sums of have.
    constexpr int reads = ROWS_AHEAD_WARPS / 32;
    float count = 0.0f, of_thread = 0.0f, of_warp = 0.0f, of_record[reads];
    if (MEAN) {
        const auto have = [&](int from, int elements) {
            int n = 0;
#pragma unroll
            for (int part = 0; part < PARTS; part++) {
                const int at = from + part * stride;
                if (at < length) n += smaller(at + elements, length) - larger(at, shift);
            }
            return (float)n;
        };
        count = have(first, width);
        of_thread = count > 0.0f ? 1.0f / count : 0.0f;
        of_warp = 1.0f / larger(have((rank * lanes + warp * 32) * width, 32 * width), 1.0f);
#pragma unroll
        for (int r = 0; r < reads; r++) {
            const int number = r * 32 + lane % 32;
            of_record[r] = number < warps ? have(number * 32 * width, 32 * width) : 0.0f;
        }
    }
    int from = 0; // place in the ring of the row that is summed; the row before it is written
    const float share = 1.0f / (float)cols;
    for (int k = 0; k <= mine; k++) {
        copy_async_wait<depth - 2>();
        if (k < mine) {
            unsigned filling = 0; // what stands for elements outside of the row: two that add nothing
            float base = 0.0f, sum = 0.0f, squares = 0.0f;
#pragma unroll
            for (int part = 0; part < PARTS; part++) {
                const int at = first + part * stride;
                if (part + 1 < PARTS || at < length) {
                    uint4 v = vector_of(from, part);
                    // A thread takes its elements less one of them, so that what it subtracts of the squares is small.
                    if (MEAN && part == 0) {
                        filling = __byte_perm(v.x, v.w, at < shift ? 0x7676 : 0x1010);
                        base = to_float(reinterpret_cast<const Vec<T, 2> &>(filling).at[0]);
                    }
                    if (part == 0) ahead_fill_front(v, shift - at, filling);
                    if (part + 1 == PARTS) ahead_fill_back(v, length - at, filling);
#pragma unroll
                    for (int e = 0; e < width; e++) {
                        const float x = to_float(reinterpret_cast<const V &>(v).at[e]), y = MEAN ? x - base : x;
                        sum += y, squares += y * y;
                    }
                }
            }
            float2 record = make_float2(0.0f, 0.0f);
            if (MEAN) {
                const float average = sum * of_thread;
                squares -= sum * average;
                record.x = warp_sum(base * count + sum) * of_warp;
                const float apart = base - record.x + average;
                record.y = warp_sum(squares + apart * apart * count);
            } else {
                record.x = warp_sum(squares);
            }
            const int slot = k % slots;
            if (blocks > 1) {
                if (lane % 32 < blocks)
                    send2(cluster_address(&records[slot][rank * (lanes / 32) + warp], lane % 32),
                          cluster_address(&told[slot], lane % 32), record);
            } else {
                if (lane % 32 == 0) records[slot][warp] = record;
                barrier_arrive(&told[slot]); // every lane: it has read row k - 2, which row k + 2 is written over
            }
        }
        const int place = from == 0 ? depth - 1 : from - 1; // of the row that is written
        from = from + 1 == depth ? 0 : from + 1;
        if (k > 0) {
            const int slot = (k - 1) % slots;
            ahead_meet(&told[slot], (k - 1) / slots & 1, blocks > 1);
            if (blocks > 1 && lane == 0) barrier_expect(&told[slot], warps * (int)sizeof(float2));
            float2 read[reads];
#pragma unroll
            for (int r = 0; r < reads; r++)
                read[r] = r * 32 + lane % 32 < warps ? records[slot][r * 32 + lane % 32] : make_float2(0.0f, 0.0f);
            float mean = 0.0f, squares = 0.0f;
            if (MEAN) {
#pragma unroll
                for (int r = 0; r < reads; r++) mean += read[r].x * of_record[r];
                mean = warp_sum(mean) * share;
#pragma unroll
                for (int r = 0; r < reads; r++)
                    squares += read[r].y + (read[r].x - mean) * (read[r].x - mean) * of_record[r];
            } else {
#pragma unroll
                for (int r = 0; r < reads; r++) squares += read[r].x;
            }
            const float inverse = rsqrtf(warp_sum(squares) * share + eps), behind = -mean * inverse;
#pragma unroll
            for (int part = 0; part < PARTS; part++) {
                const int at = first + part * stride;
                if (part + 1 == PARTS && at >= length) continue;
                const uint4 v = vector_of(place, part);
                float x[width];
#pragma unroll
                for (int e = 0; e < width; e++) {
                    x[e] = to_float(reinterpret_cast<const V &>(v).at[e]) * inverse;
                    x[e] = MEAN ? (x[e] + behind) * w[part][e] + b[part][e] : x[e] * w[part][e];
                }
                if (whole(part) || (at >= shift && at + width <= length)) {
                    ahead_store(to + part * stride, pack<T>(x[0], x[1]), pack<T>(x[2], x[3]), pack<T>(x[4], x[5]),
                                pack<T>(x[6], x[7]));
                } else {
#pragma unroll
                    for (int e = 0; e < width; e++)
                        if (at + e >= shift && at + e < length) to[part * stride + e] = from_float<T>(x[e]);
                }
            }
            to += jump;
            bring();
        }
    }
    copy_async_wait<0>();
    if (blocks > 1) cluster_arrive(), cluster_wait(); // no block ends while others tell it their sums
}

// Blocks or clusters that stay: plan.chunks. Of 16 bits alone.
template <bool MEAN, class T>
vb_status launch_ahead(const rows_plan &plan, T *out, const T *in, const float *weight, const float *bias, int64_t rows,
                       int64_t cols, float eps, vb_stream *stream) {
    const auto launch = [&](auto parts) {
        constexpr int PARTS = decltype(parts)::value;
        return launch_cluster(stream, plan.cluster, (unsigned)(plan.chunks * plan.cluster), plan.threads,
                              ROWS_AHEAD_DEPTH(PARTS) * PARTS * plan.threads * 16, norm_ahead_kernel<T, PARTS, MEAN>,
                              out, in, weight, bias, (int)cols, (int)rows, (int)plan.chunks, eps);
    };
    switch (plan.per_thread) {
    case 3: return launch(Constant<3>());
    case 4: return launch(Constant<4>());
    default: return launch(Constant<5>());
    }
}
template <bool MEAN>
vb_status norm_ahead(const rows_plan &plan, vb_dtype type, void *out, const void *in, const float *weight,
                     const float *bias, int64_t rows, int64_t cols, float eps, vb_stream *stream) {
    if (type == VB_F16)
        return launch_ahead<MEAN>(plan, (half *)out, (const half *)in, weight, bias, rows, cols, eps, stream);
    return launch_ahead<MEAN>(plan, (bf16 *)out, (const bf16 *)in, weight, bias, rows, cols, eps, stream);
}

} // namespace vb
#endif
