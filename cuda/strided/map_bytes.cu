// map_bytes.cu: one step of whole numbers of 8 bits, on arrays without gaps: four at a time, in the bytes of a word.
//
//   grid     256 threads; a thread has 16 neighbours of each array
//   moves    each input read and the output written once
//   bound    memory bandwidth

#include "strided/contiguous.cuh"
#include "strided/choose.h"

namespace vb {
namespace {

constexpr int bytes_threads = 256, each = 16;

struct Operand {
    const unsigned char *data; // null: the constant, in each byte
    unsigned constant;
};

struct alignas(16) SixteenBytes {
    unsigned at[each / 4];
};

VB_DEVICE SixteenBytes load_bytes(const Operand &operand, int64_t i, int64_t n) {
    SixteenBytes w;
    if (operand.data && n - i >= each) return *reinterpret_cast<const SixteenBytes *>(operand.data + i);
#pragma unroll
    for (int k = 0; k < each / 4; k++) {
        w.at[k] = operand.data ? 0 : operand.constant;
        for (int b = 0; b < 4 && operand.data; b++)
            if (i + 4 * k + b < n) w.at[k] |= (unsigned)operand.data[i + 4 * k + b] << 8 * b;
    }
    return w;
}

VB_DEVICE unsigned multiplied(unsigned a, unsigned b) {
    const unsigned even = (a & 0xff) * (b & 0xff) & 0xff, third = (a >> 16 & 0xff) * (b >> 16 & 0xff) & 0xff;
    const unsigned odd = (a >> 8 & 0xff) * (b >> 8 & 0xff) & 0xff, fourth = (a >> 24) * (b >> 24) & 0xff;
    return even | odd << 8 | third << 16 | fourth << 24;
}

#define WORDS(expression)                                                                                              \
    _Pragma("unroll") for (int k = 0; k < each / 4; k++) {                                                             \
        const unsigned a = x.at[k], b = y.at[k];                                                                       \
        (void)b;                                                                                                       \
        x.at[k] = (expression);                                                                                        \
    }                                                                                                                  \
    break

__global__ void __launch_bounds__(bytes_threads)
    map_bytes_kernel(unsigned char *out, Operand left, Operand right, int64_t n, int op, vb_dtype type) {
    wait_for_previous_kernel();
    release_next_kernel();
    const int64_t i = ((int64_t)blockIdx.x * bytes_threads + threadIdx.x) * each;
    if (i >= n) return;
    SixteenBytes x = load_bytes(left, i, n), y = load_bytes(right, i, n);
    const bool with_sign = type == VB_I8;
    if (type == VB_BOOL)
#pragma unroll
        for (int k = 0; k < each / 4; k++) x.at[k] = __vsetne4(x.at[k], 0), y.at[k] = __vsetne4(y.at[k], 0);
    switch (op) {
    case VB_ELEMENT_ADD: WORDS(__vadd4(a, b));
    case VB_ELEMENT_SUB: WORDS(__vsub4(a, b));
    case VB_ELEMENT_MUL: WORDS(multiplied(a, b));
    case VB_ELEMENT_MIN: WORDS(with_sign ? __vmins4(a, b) : __vminu4(a, b));
    case VB_ELEMENT_MAX: WORDS(with_sign ? __vmaxs4(a, b) : __vmaxu4(a, b));
    case VB_ELEMENT_NEG: WORDS(__vneg4(a));
    case VB_ELEMENT_ABS: WORDS(with_sign ? __vabs4(a) : a);
    case VB_ELEMENT_EQ: WORDS(__vseteq4(a, b));
    case VB_ELEMENT_NE: WORDS(__vsetne4(a, b));
    case VB_ELEMENT_LT: WORDS(with_sign ? __vsetlts4(a, b) : __vsetltu4(a, b));
    case VB_ELEMENT_LE: WORDS(with_sign ? __vsetles4(a, b) : __vsetleu4(a, b));
    case VB_ELEMENT_AND: WORDS(a & b);
    case VB_ELEMENT_OR: WORDS(a | b);
    default: WORDS(a ^ b);
    }
    if (n - i >= each) {
        *reinterpret_cast<SixteenBytes *>(out + i) = x;
        return;
    }
#pragma unroll
    for (int b = 0; b < each; b++)
        if (i + b < n) out[i + b] = (unsigned char)(x.at[b / 4] >> b % 4 * 8);
}

#undef WORDS

} // namespace

vb_status map_bytes(const vb_map_args &args, const vb_step &step, vb_stream *stream) {
    const int inputs = (int)args.inputs;
    const auto operand = [&](int32_t value) {
        if (value < inputs) return Operand{(const unsigned char *)args.in[value].data, 0};
        return Operand{nullptr, ((unsigned)args.program[value - inputs].a & 0xff) * 0x01010101u};
    };
    const Operand left = operand(step.a), right = vb_step_operands(step.op) > 1 ? operand(step.b) : left;
    const int64_t n = args.sizes[0];
    return launch_overlapped(stream, (unsigned)ceil_div<int64_t>(n, bytes_threads * each), bytes_threads, 0,
                             map_bytes_kernel, (unsigned char *)args.out.data, left, right, n, (int)step.op,
                             args.in[left.data ? step.a : step.b].type);
}

} // namespace vb
