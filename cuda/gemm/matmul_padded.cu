// matmul_padded.cu: C = A B of 16 bits whose rows do not begin at multiples of 16 bytes: such an operand is copied into
// the workspace with rows that do, and a kernel for whole vectors multiplies.
//
//   grid     of the copy: a thread for each 16 bytes of the padded matrix, matrices
//   block    256 threads
//   moves    4 bytes an element that is copied, beside what the product moves
//   bound    memory

#include "gemm/matmul.cuh"

namespace vb {
namespace {

constexpr int threads = 256;
using Piece = Vec<unsigned short, 8>;

// out[rows][per_row] of in[rows][columns], matrix by matrix; what is past a row's end nobody reads.
__global__ void __launch_bounds__(threads)
    pad_rows_kernel(Piece *out, const unsigned short *in, unsigned rows, unsigned per_row, int64_t columns,
                    int64_t stride, int64_t batch_stride) {
    wait_for_previous_kernel();
    release_next_kernel();
    const unsigned i = blockIdx.x * threads + threadIdx.x, row = i / per_row, first = (i - row * per_row) * 8;
    if (row >= rows) return;
    const unsigned short *const from = in + blockIdx.y * batch_stride + row * stride + first;
    Piece piece;
#pragma unroll
    for (int e = 0; e < 8; e++) piece.at[e] = first + e < columns ? from[e] : (unsigned short)0;
    out[(int64_t)blockIdx.y * rows * per_row + i] = piece;
}

// An operand as it is stored.
struct Operand {
    const void **data;
    int64_t *stride, *batch_stride;
    int64_t rows, columns, matrices;

    int64_t per_row() const { return ceil_div<int64_t>(columns, 8); }
    int64_t bytes() const { return matrices * rows * per_row() * (int64_t)sizeof(Piece); }

    // Copies it to `memory`, and is the copy from then on.
    vb_status pad(char *memory, vb_stream *stream) const {
        const dim3 grid((unsigned)ceil_div<int64_t>(rows * per_row(), threads), (unsigned)matrices);
        VB_TRY(launch_overlapped(stream, grid, threads, 0, pad_rows_kernel, (Piece *)memory,
                                 (const unsigned short *)*data, (unsigned)rows, (unsigned)per_row(), columns, *stride,
                                 *batch_stride));
        *data = memory;
        *stride = per_row() * 8;
        *batch_stride = matrices > 1 ? rows * *stride : 0;
        return VB_OK;
    }
};

} // namespace

vb_status matmul_padded(const vb_matmul_args &args, vb_status (*product)(const vb_matmul_args &, vb_stream *),
                        vb_stream *stream) {
    vb_matmul_args x = args;
    const Operand a = {&x.a, &x.a_stride, &x.a_batch_stride, x.a_transposed ? x.k : x.m, x.a_transposed ? x.m : x.k,
                       x.a_batch_stride == 0 ? 1 : x.batch};
    const Operand b = {&x.b, &x.b_stride, &x.b_batch_stride, x.b_transposed ? x.n : x.k, x.b_transposed ? x.k : x.n,
                       x.b_batch_stride == 0 ? 1 : x.batch};
    const bool pad_a = !matmul_vectors(x.a, x.type, x.a_stride, x.a_batch_stride);
    const bool pad_b = !matmul_vectors(x.b, x.type, x.b_stride, x.b_batch_stride);
    char *memory;
    VB_TRY(workspace((void **)&memory, (pad_a ? a.bytes() : 0) + (pad_b ? b.bytes() : 0), stream));
    if (pad_a) VB_TRY(a.pad(memory, stream));
    if (pad_b) VB_TRY(b.pad(memory + (pad_a ? a.bytes() : 0), stream));
    return product(x, stream);
}

} // namespace vb
