// random.cu: random numbers of Philox 4x32-10 (Salmon et al. 2011) alone, on an array of floats without gaps.
//
//   grid     256 threads; a thread has four neighbours, the words of one counter
//   moves    the numbers, written once
//   bound    bandwidth; normal numbers by arithmetic

#include "strided/contiguous.cuh"
#include "strided/steps.cuh"

namespace vb {
namespace {

constexpr int random_threads = 256;

template <class T>
__global__ void __launch_bounds__(random_threads)
    random_kernel(T *out, unsigned n, unsigned key0, unsigned key1, unsigned bits) {
    wait_for_previous_kernel();
    release_next_kernel();
    const unsigned counter = blockIdx.x * random_threads + threadIdx.x, i = 4 * counter;
    if (i >= n) return;
    const Words x = random_of(philox(counter, key0, key1), bits);
    Vec<T, 4> y;
#pragma unroll
    for (int e = 0; e < 4; e++) y.at[e] = from_float<T>(__uint_as_float(x.at[e]));
    if (n - i >= 4) {
        *reinterpret_cast<Vec<T, 4> *>(out + i) = y;
        return;
    }
#pragma unroll
    for (int e = 0; e < 4; e++)
        if (i + e < n) out[i + e] = y.at[e];
}

} // namespace

vb_status map_random(const vb_map_args &args, const vb_step &step, vb_stream *stream) {
    const unsigned n = (unsigned)args.sizes[0];
    return with_float_type(args.out.type, [&](auto zero) {
        using T = decltype(zero);
        return launch_overlapped(stream, ceil_div(n, 4u * random_threads), random_threads, 0, random_kernel<T>,
                                 (T *)args.out.data, n, (unsigned)step.a, (unsigned)step.b, (unsigned)step.c);
    });
}

} // namespace vb
