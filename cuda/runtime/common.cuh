// common.cuh: the parts common to all kernel files: status of CUDA errors, launches, and small device functions
// (conversions, 16-byte vectors, reductions).
//
// A .cu file holds kernels and, below them, the launchers that fill the catalogue (vb_cuda_add, ...).
// Launchers use only the declarations here, and no standard library. So NVRTC compiles the same files for GPUs whose
// toolkit is not at hand (scripts/check-jetson-kernels.sh). There a launcher is a device function without a caller,
// which instantiates its kernels.
//
// Kernels compile for sm_53 and later in C++14. __CUDA_ARCH__ inside a kernel fences instructions that a GPU lacks;
// vb::capability(stream) does so in its launcher.
#ifndef VB_CUDA_COMMON_CUH
#define VB_CUDA_COMMON_CUH

#include <cuda_fp16.h>

#include "kernels.h"
#include "runtime/chooser.h"

#ifndef __CUDACC_RTC__
#include <cuda_runtime.h>
#endif

#define VB_DEVICE __device__ __forceinline__

// Parameters that are read in place, also by an index: else each thread copies them to its stack.
#if (defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 700) || (!defined(__CUDACC_RTC__) && CUDART_VERSION < 11070)
#define VB_IN_PLACE const
#else
#define VB_IN_PLACE const __grid_constant__
#endif

// Leaves the launcher with any status but VB_OK.
#define VB_TRY(expression)                                                                                             \
    do {                                                                                                               \
        vb_status vb_try_status = (expression);                                                                        \
        if (vb_try_status != VB_OK) return vb_try_status;                                                              \
    } while (0)

namespace vb {

// ---- element types -------------------------------------------------------------------------------------------------

using half = __half;

// The upper 16 bits of a float. A type of our own: cuda_bf16.h is missing from CUDA 10.
struct bf16 {
    unsigned short bits;
};

VB_DEVICE float to_float(float x) { return x; }
VB_DEVICE float to_float(half x) { return __half2float(x); }
VB_DEVICE float to_float(bf16 x) { return __uint_as_float(unsigned(x.bits) << 16); }

// Rounds to nearest even.
template <class T>
VB_DEVICE T from_float(float x);
template <>
VB_DEVICE float from_float<float>(float x) {
    return x;
}
template <>
VB_DEVICE half from_float<half>(float x) {
    return __float2half_rn(x);
}
template <>
VB_DEVICE bf16 from_float<bf16>(float x) {
    bf16 y;
#if __CUDA_ARCH__ >= 800
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(y.bits) : "f"(x));
#else
    unsigned u = __float_as_uint(x);
    y.bits = (u & 0x7fffffffu) > 0x7f800000u ? 0x7fff : (unsigned short)((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
#endif
    return y;
}

// N elements that load and store as one access (16 bytes at most).
template <class T, int N>
struct alignas(sizeof(T) * N) Vec {
    T at[N];
    static constexpr int size = N;
};

// The widest vector of a type: 16 bytes.
template <class T>
struct Wide {
    static constexpr int size = int(16 / sizeof(T));
    using type = Vec<T, size>;
};

// ---- reductions ----------------------------------------------------------------------------------------------------

constexpr unsigned all_lanes = 0xffffffffu;

struct Sum {
    static VB_DEVICE float identity() { return 0.0f; }
    static VB_DEVICE float combine(float a, float b) { return a + b; }
};
// Propagates NaN, unlike fmaxf.
struct Max {
    static VB_DEVICE float identity() { return __uint_as_float(0xff800000u); }
    static VB_DEVICE float combine(float a, float b) {
#if __CUDA_ARCH__ >= 800
        float c;
        asm("max.NaN.f32 %0, %1, %2;" : "=f"(c) : "f"(a), "f"(b));
        return c;
#else
        return a > b || a != a ? a : b;
#endif
    }
};

// 2^x to 2 ulp, results below 2^-126 as 0: one instruction where exp2f has four.
VB_DEVICE float exp2_fast(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

// Every lane gets the result. WIDTH lanes that lie together form a group.
template <class Op, int WIDTH = 32>
VB_DEVICE float warp_reduce(float x) {
#pragma unroll
    for (int offset = WIDTH / 2; offset > 0; offset /= 2) x = Op::combine(x, __shfl_xor_sync(all_lanes, x, offset));
    return x;
}

// Every thread gets the result. `scratch` holds 32 floats of shared memory; the block is whole warps. The barrier at
// the start lets scratch be reused at once.
template <class Op>
VB_DEVICE float block_reduce(float x, float *scratch) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
    x = warp_reduce<Op>(x);
    if (warps == 1) return x;
    __syncthreads();
    if (lane == 0) scratch[warp] = x;
    __syncthreads();
    return warp_reduce<Op>(lane < warps ? scratch[lane] : Op::identity());
}

// ---- order between kernels and blocks ------------------------------------------------------------------------------

// A kernel that is launched with launch_overlapped may begin while the kernel before it is still running.
// Every thread calls this before it touches memory that another kernel writes or reads.
VB_DEVICE void wait_for_previous_kernel() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// Lets the next kernel of the stream begin (up to its own wait) as soon as all blocks have come here or ended.
VB_DEVICE void release_next_kernel() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

// True in the last block to come of `expected` blocks. That block may then read the other blocks' earlier writes to
// global memory.
// The counter is 0 before and after. Every thread of the block calls it; `flag` is shared memory.
VB_DEVICE bool last_arriver(unsigned *counter, unsigned expected, unsigned *flag) {
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) {
        const unsigned before = atomicAdd(counter, 1);
        *flag = before == expected - 1;
        if (before == expected - 1) *counter = 0;
    }
    __syncthreads();
    const bool last = *flag;
    if (last) __threadfence();
    return last;
}

// ---- asynchronous copies to shared memory --------------------------------------------------------------------------

VB_DEVICE unsigned shared_address(const void *pointer) { return (unsigned)__cvta_generic_to_shared(pointer); }

// 16 bytes from global memory to a shared address without passing through registers; zeros, and no reading, unless
// valid.
VB_DEVICE void copy_async(unsigned shared, const void *global, bool valid = true) {
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared), "l"(global), "r"(valid ? 16 : 0));
#else
    const uint4 x = valid ? *static_cast<const uint4 *>(global) : make_uint4(0, 0, 0, 0);
    asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(shared), "r"(x.x), "r"(x.y), "r"(x.z), "r"(x.w));
#endif
}
VB_DEVICE void copy_async_commit() {
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.commit_group;");
#endif
}
// Waits until at most PENDING of the committed groups are under way.
template <int PENDING>
VB_DEVICE void copy_async_wait() {
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory");
#endif
}

template <class T>
__host__ __device__ constexpr T ceil_div(T a, T b) {
    return (a + b - 1) / b;
}
template <class T>
__host__ __device__ constexpr T smaller(T a, T b) {
    return a < b ? a : b;
}
template <class T>
__host__ __device__ constexpr T larger(T a, T b) {
    return a > b ? a : b;
}

// Deduces a kernel's parameter types from the kernel alone, so that arguments convert to them.
template <class T>
struct Identity {
    using type = T;
};

// A number as a type, for generic lambdas that choose an instance: decltype(constant)::value.
template <int VALUE>
struct Constant {
    static constexpr int value = VALUE;
};

// ---- host side -----------------------------------------------------------------------------------------------------

// Counters that are 0 between kernels (see last_arriver), at the start of a stream's workspace.
constexpr int workspace_counters = 16384;
// Behind them, as many vectors of 16 bytes that are 0 between kernels too.
constexpr int workspace_slots = 32768;
// Floats that an operation leaves for the operation right after it (linear/linear.cuh).
constexpr int workspace_left = 131072;

enum LaunchFlags {
    LAUNCH_PLAIN = 0,
    LAUNCH_OVERLAPPED = 1, // the kernel calls wait_for_previous_kernel
    LAUNCH_BALANCED =
        2, // blocks of a cluster go to the least busy multiprocessors, where a multiprocessor has room for several
    LAUNCH_CACHED = 4 // overlapped, but the driver splits L1 and shared memory: the kernel reads much through L1
};

#ifndef __CUDACC_RTC__

// The status for a CUDA error; also remembers its number for vb_device_driver_error.
vb_status status_of(cudaError_t error, vb_device *device);
void note_driver_error(vb_device *device, int error);

// Makes the device and its context current on the calling thread, as each call of the CUDA runtime or driver needs.
// Launchers reach CUDA only through launch_kernel, workspace and sm90::tensor_map, which call this function.
vb_status make_current(vb_device *device);

// Properties of a GPU (runtime.cu has them): the GPU as choosers see it, the bytes of its L2 cache, and
// __CUDA_ARCH__ / 10 of the kernels, which VIBRANT_CUDA_CAPABILITY does not change.
const vb_gpu &gpu_of(vb_device *device);
inline const vb_gpu &gpu_of(vb_stream *stream) { return gpu_of(stream->device); }
int64_t l2_bytes(vb_stream *stream);
int compiled_for(vb_stream *stream);
// The counters and slots at the start of the stream's workspace.
unsigned *counters(vb_stream *stream);
inline uint4 *zero_slots(vb_stream *stream) { return (uint4 *)(counters(stream) + workspace_counters); }
// The stream's workspace_left floats, which the first call allocates (also during a capture). Null where memory is out.
float *left_sums(vb_stream *stream);
inline int64_t bytes_of(vb_dtype type, int64_t n) { return n / vb_dtype_block_size(type) * vb_dtype_block_bytes(type); }

// Scratch memory of the stream for the kernels enqueued next; any later call of a launcher may overwrite it. It is
// allocated on demand (also during a capture), grows, and is kept.
vb_status workspace(void **memory, int64_t bytes, vb_stream *stream);

// A line on stderr: the operation, its type and sizes, and the kernel. `names` are the names of the sizes, separated by
// spaces.
void trace_kernel(const char *op, const char *kernel, vb_dtype type, const char *names, const int64_t *sizes);
extern const bool tracing_kernels; // VIBRANT_TRACE=kernels

// Notes the kernel that a call takes, for vb_last_kernel and the trace. Once a call.
template <class... S>
void chosen(vb_stream *stream, const vb_kernel &kernel, const char *op, vb_dtype type, const char *names, S... sizes) {
    stream->kernel = kernel.name;
    if (!tracing_kernels) return;
    const int64_t all[] = {(int64_t)sizes...};
    trace_kernel(op, kernel.name, type, names, all);
}

// Enqueues kernel(parameters...) in clusters of `cluster` blocks (capability 9.0; 1 = none).
vb_status launch_kernel(vb_stream *stream, const void *kernel, dim3 grid, dim3 block, int64_t shared_bytes, int cluster,
                        int flags, void **parameters);

template <class... P>
vb_status launch_cluster(vb_stream *stream, int cluster, dim3 grid, dim3 block, int64_t shared_bytes,
                         void (*kernel)(P...), typename Identity<P>::type... parameters) {
    void *pointers[] = {(void *)&parameters...};
    return launch_kernel(stream, (const void *)kernel, grid, block, shared_bytes, cluster, LAUNCH_OVERLAPPED, pointers);
}

// Enqueues a kernel that follows the one before it. shared_bytes is dynamic shared memory; above 48 KiB needs
// capability 7.0, and shared_limit(stream) bounds it.
template <class... P>
vb_status launch(vb_stream *stream, dim3 grid, dim3 block, int64_t shared_bytes, void (*kernel)(P...),
                 typename Identity<P>::type... parameters) {
    void *pointers[] = {(void *)&parameters...};
    return launch_kernel(stream, (const void *)kernel, grid, block, shared_bytes, 1, LAUNCH_PLAIN, pointers);
}

// The same for a kernel whose every thread calls wait_for_previous_kernel first. On Hopper and later its start overlaps
// the end of the kernel before it (about 1 us saved).
template <class... P>
vb_status launch_overlapped(vb_stream *stream, dim3 grid, dim3 block, int64_t shared_bytes, void (*kernel)(P...),
                            typename Identity<P>::type... parameters) {
    void *pointers[] = {(void *)&parameters...};
    return launch_kernel(stream, (const void *)kernel, grid, block, shared_bytes, 1, LAUNCH_OVERLAPPED, pointers);
}

// The same for a kernel that reads the same memory again and again, for which L1 has to have room.
template <class... P>
vb_status launch_cached(vb_stream *stream, dim3 grid, dim3 block, int64_t shared_bytes, void (*kernel)(P...),
                        typename Identity<P>::type... parameters) {
    void *pointers[] = {(void *)&parameters...};
    return launch_kernel(stream, (const void *)kernel, grid, block, shared_bytes, 1, LAUNCH_OVERLAPPED | LAUNCH_CACHED,
                         pointers);
}

#else // NVRTC: the launchers below compile as device functions; taking a kernel's address instantiates it.

static __device__ vb_gpu any_gpu; // unknown to the compiler, so that every branch of a launcher is compiled
VB_DEVICE const vb_gpu &gpu_of(vb_stream *) { return any_gpu; }
VB_DEVICE const vb_gpu &gpu_of(vb_device *) { return any_gpu; }
VB_DEVICE int64_t l2_bytes(vb_stream *) { return 0; }
VB_DEVICE int compiled_for(vb_stream *) { return __CUDA_ARCH__ / 10; }
template <class... S>
VB_DEVICE void chosen(vb_stream *, const vb_kernel &, const char *, vb_dtype, const char *, S...) {}
VB_DEVICE unsigned *counters(vb_stream *) { return nullptr; }
VB_DEVICE uint4 *zero_slots(vb_stream *) { return nullptr; }
VB_DEVICE float *left_sums(vb_stream *) { return nullptr; }
VB_DEVICE int64_t bytes_of(vb_dtype, int64_t n) { return n; }
VB_DEVICE vb_status workspace(void **memory, int64_t, vb_stream *) { return *memory = nullptr, VB_OK; }
static __device__ void *volatile instantiated;
VB_DEVICE vb_status launch_kernel(vb_stream *, const void *kernel, dim3, dim3, int64_t, int, int, void **) {
    return instantiated = (void *)kernel, VB_OK;
}
template <class... P>
VB_DEVICE vb_status launch(vb_stream *, dim3, dim3, int64_t, void (*kernel)(P...), typename Identity<P>::type...) {
    return instantiated = (void *)kernel, VB_OK;
}
template <class... P>
VB_DEVICE vb_status launch_overlapped(vb_stream *, dim3, dim3, int64_t, void (*kernel)(P...),
                                      typename Identity<P>::type...) {
    return instantiated = (void *)kernel, VB_OK;
}
template <class... P>
VB_DEVICE vb_status launch_cached(vb_stream *, dim3, dim3, int64_t, void (*kernel)(P...),
                                  typename Identity<P>::type...) {
    return instantiated = (void *)kernel, VB_OK;
}
template <class... P>
VB_DEVICE vb_status launch_cluster(vb_stream *, int, dim3, dim3, int64_t, void (*kernel)(P...),
                                   typename Identity<P>::type...) {
    return instantiated = (void *)kernel, VB_OK;
}

#endif

inline int capability(vb_stream *stream) { return gpu_of(stream).capability; }
inline int multiprocessors(vb_stream *stream) { return gpu_of(stream).multiprocessors; }
inline int64_t shared_limit(vb_stream *stream) { return gpu_of(stream).shared_bytes; }

// Whether every pointer is a multiple of 16 bytes, so that the widest loads are allowed.
template <class... P>
inline bool aligned16(const P *...pointers) {
    uintptr_t bits = 0;
    const uintptr_t all[] = {(uintptr_t)pointers...};
    for (uintptr_t p : all) bits |= p;
    return bits % 16 == 0;
}

// Calls f(T()) with the element type that `type` names.
template <class F>
vb_status with_float_type(vb_dtype type, F f) {
    switch (type) {
    case VB_F32: return f(float());
    case VB_F16: return f(half());
    case VB_BF16: return f(bf16());
    default: return VB_UNSUPPORTED;
    }
}

} // namespace vb
#endif
