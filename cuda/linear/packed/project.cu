// project.cu: h = (x V) * codes for the adapter of a prompt's product: few columns, which the product multiplies by U
// and adds to its sums (add_update in many.cuh).
//
//   grid     a block for 8 rows of x; its 16 warps share the columns, 32 at a time
//   x        F16 as many.cuh has it, operand B of mma.m16n8k16. Lane (g, t) loads eight columns of row g, which lie in
//            two places (position_of)
//   V        operand A, 8 ranks of two groups: the same columns of rank g of both. The first are loaded before the wait
//   moves    x once; V once a block, from L2
//   flops    2 n cols ranks of each matrix
//   bound    latency: some 3 us

#include "linear/linear.cuh"
#ifdef VB_HAS_PACKED_LAYOUT
#include "linear/packed/many.cuh"

namespace vb {
namespace {

constexpr int project_rows = 8, block_warps = 16;

struct Projection {
    float *h;
    const half *x;
    const half *v[3];
    const float *codes;
    int64_t codes_stride, n;
    int cols, v_cols, groups; // groups of 8 ranks of a matrix
    int count;                // of all matrices
    const unsigned *uneven;
    const uint8_t *exponents;
};

// Columns k + 8 t.. of a row of V, or zeros.
VB_DEVICE uint4 load_v(const half *row, int k, int cols, int t) {
    return row && k + 8 * t < cols ? __ldg(reinterpret_cast<const uint4 *>(row + k + 8 * t)) : make_uint4(0, 0, 0, 0);
}
// The same columns of x, or zeros: in the order of V.
VB_DEVICE uint4 load_x(const half *row, int k, int cols, int t) {
    if (k >= cols) return make_uint4(0, 0, 0, 0);
    const uint2 *const at = reinterpret_cast<const uint2 *>(row + k + 16 * (t / 2) + 4 * (t % 2));
    const uint2 first = at[0], second = at[2];
    return make_uint4(first.x, second.x, first.y, second.y);
}

// PAIRS: of groups of ranks, of all matrices.
template <int PAIRS>
__global__ void __launch_bounds__(32 * block_warps) project_kernel(Projection p) {
#if __CUDA_ARCH__ >= 800
    extern __shared__ float parts[]; // [project_warps][16 * PAIRS][width]
    constexpr int width = project_rows + 1, each = 16 * PAIRS * width;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    const int64_t row0 = (int64_t)blockIdx.x * project_rows, row = smaller<int64_t>(row0 + g, p.n - 1);
    const half *v[PAIRS][2]; // the lane's rows of V
#pragma unroll
    for (int i = 0; i < 2 * PAIRS; i++) {
        const int matrix = i / p.groups, group = i - matrix * p.groups;
        // an index would have the parameters copied to memory
        const half *const of = i >= p.count ? nullptr : matrix == 0 ? p.v[0] : matrix == 1 ? p.v[1] : p.v[2];
        v[i / 2][i % 2] = of ? of + (int64_t)(8 * group + g) * p.v_cols : nullptr;
    }
    constexpr int together = PAIRS == 1 ? 6 : PAIRS == 2 ? 4 : 1; // loads on the way
    uint4 a[together][PAIRS][2], b[together];
    const half *const x = p.x + row * p.cols;
    const auto load_all_v = [&](int k0) {
#pragma unroll
        for (int s = 0; s < together; s++)
#pragma unroll
            for (int i = 0; i < 2 * PAIRS; i++)
                a[s][i / 2][i % 2] = load_v(v[i / 2][i % 2], k0 + 32 * block_warps * s, p.v_cols, t);
    };
    const auto load_all_x = [&](int k0) {
#pragma unroll
        for (int s = 0; s < together; s++) b[s] = load_x(x, k0 + 32 * block_warps * s, p.cols, t);
    };
    load_all_v(32 * warp);
    wait_for_previous_kernel();
    release_next_kernel();
    load_all_x(32 * warp);
    const bool uneven = p.uneven && *p.uneven;
    int most = 0; // exponent of the row
    if (uneven)
        for (int group = 0; group < p.cols / half_group; group++)
            most = larger<int>(most, p.exponents[group * half_stride(p.n) + row]);
    float c[PAIRS][4] = {};
    for (int k0 = 32 * warp; k0 < p.cols; k0 += 32 * block_warps * together) {
        if (k0 != 32 * warp) load_all_x(k0), load_all_v(k0);
#pragma unroll
        for (int s = 0; s < together; s++) {
            const int k = k0 + 32 * block_warps * s;
            if (uneven && k < p.cols) {
                const int exponent = p.exponents[k / half_group * half_stride(p.n) + row] - most;
                const __half2 factor = splat(power_of_two(larger(exponent, -30)));
                const auto times = [&](uint32_t two) { return as_word(__hmul2(as_half2(two), factor)); };
                b[s] = make_uint4(times(b[s].x), times(b[s].y), times(b[s].z), times(b[s].w));
            }
#pragma unroll
            for (int i = 0; i < PAIRS; i++) {
                const uint4 &first = a[s][i][0], &second = a[s][i][1];
                const uint32_t low[4] = {first.x, second.x, first.y, second.y},
                               high[4] = {first.z, second.z, first.w, second.w};
                mma_16x8x16(c[i], low, b[s].x, b[s].y, half());
                mma_16x8x16(c[i], high, b[s].z, b[s].w, half());
            }
        }
    }
#pragma unroll
    for (int i = 0; i < PAIRS; i++)
#pragma unroll
        for (int e = 0; e < 4; e++) parts[warp * each + (16 * i + g + 8 * (e / 2)) * width + 2 * t + e % 2] = c[i][e];
    __syncthreads();
    for (int at = threadIdx.x; at < 8 * p.count * project_rows; at += 32 * block_warps) {
        const int rank = at % 8, token = at / 8 % project_rows, group = at / (8 * project_rows);
        if (row0 + token >= p.n) continue;
        float sum = 0;
#pragma unroll
        for (int w = 0; w < block_warps; w++) sum += parts[w * each + (8 * group + rank) * width + token];
        const float code = p.codes ? p.codes[(row0 + token) * p.codes_stride + group % p.groups * 8 + rank] : 1.0f;
        sum = code == 0.0f ? 0.0f : sum * code * half_unit; // 0: whatever x V is
        unsigned bits;
        asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(sum));
        p.h[(group * p.n + row0 + token) * 8 + rank % 4 * 2 + rank / 4] = __uint_as_float(bits);
    }
#endif
}

} // namespace

vb_status packed_project(float *h, const Adapter &a, const half *x, int64_t n, int64_t cols, int64_t v_cols,
                         const unsigned *uneven, const uint8_t *exponents, vb_stream *stream) {
    const int groups = a.ranks / 8,
              count = (int)(projected_bytes(a, n) / (n * 8 * (int64_t)sizeof(float)));
    const Projection p = {h, x, {a.of[0].v, a.of[1].v, a.of[2].v}, a.codes, a.codes_stride, n, (int)cols, (int)v_cols,
                          groups, count, uneven, exponents};
    const int pairs = count <= 2 ? 1 : count <= 4 ? 2 : 6, bytes = block_warps * 16 * pairs * (project_rows + 1) * 4;
    const auto kernel = pairs == 1 ? project_kernel<1> : pairs == 2 ? project_kernel<2> : project_kernel<6>;
    return launch_overlapped(stream, (unsigned)ceil_div<int64_t>(n, project_rows), 32 * block_warps, bytes, kernel,
                             p);
}

} // namespace vb
#endif
