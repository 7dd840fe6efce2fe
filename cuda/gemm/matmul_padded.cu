// matmul_padded.cu: C = A B of 16 bits whose rows do not begin at multiples of 16 bytes. Such an operand is copied to
// aligned rows in the workspace (runtime/pad.cuh), and a kernel for whole vectors multiplies. Rows of the copy begin
// where lines of 128 bytes do: TMA asks the L2 for two lines for a piece that lies in both.
//
//   moves    4 bytes an element of a copy, beside the product itself
//   bound    memory

#include "gemm/matmul.cuh"
#include "runtime/pad.cuh"

namespace vb {
namespace {

// An operand as it is stored.
struct Operand {
    const void **data;
    int64_t *stride, *batch_stride;
    int64_t rows, columns, matrices;

    PaddedRows padded() const {
        return {matrices, 1, rows, columns, *batch_stride, 0, *stride, ceil_div<int64_t>(columns, MATMUL_LINE)};
    }
    PadCopy copy_to(void *memory) const { return PadCopy(memory, *data, padded()); }
    // Is the copy from then on.
    void use(void *memory) const {
        *data = memory;
        *stride = padded().apart() * 8;
        *batch_stride = matrices > 1 ? rows * *stride : 0;
    }
};

} // namespace

vb_status matmul_padded(const vb_matmul_args &args,
                        vb_status (*product)(const vb_matmul_args &, vb_stream *, void *sums), int64_t sums_bytes,
                        vb_stream *stream) {
    vb_matmul_args x = args;
    const Operand a = {&x.a, &x.a_stride, &x.a_batch_stride, x.a_transposed ? x.k : x.m, x.a_transposed ? x.m : x.k,
                       x.a_batch_stride == 0 ? 1 : x.batch};
    const Operand b = {&x.b, &x.b_stride, &x.b_batch_stride, x.b_transposed ? x.n : x.k, x.b_transposed ? x.k : x.n,
                       x.b_batch_stride == 0 ? 1 : x.batch};
    const bool pad_a = !matmul_vectors(x.a, x.type, x.a_stride, x.a_batch_stride);
    const bool pad_b = !matmul_vectors(x.b, x.type, x.b_stride, x.b_batch_stride);
    const int64_t a_bytes = pad_a ? a.padded().bytes() : 0, b_bytes = pad_b ? b.padded().bytes() : 0;
    char *memory;
    VB_TRY(workspace((void **)&memory, a_bytes + b_bytes + sums_bytes, stream));
    if (pad_a && pad_b) VB_TRY(pad_rows<false>(stream, a.copy_to(memory), b.copy_to(memory + a_bytes)));
    else VB_TRY(pad_rows<false>(stream, (pad_a ? a : b).copy_to(memory)));
    if (pad_a) a.use(memory);
    if (pad_b) b.use(memory + a_bytes);
    return product(x, stream, memory + a_bytes + b_bytes);
}

} // namespace vb
