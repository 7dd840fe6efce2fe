// kernels.cu: kernels whose results are known, and kernels with faults that the emulator has to name. It runs the
// emulator alone: make test-emulated builds and runs it.

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <set>
#include <string>
#include <unistd.h>
#include <vector>

#include <cuda_fp16.h>
#include <cuda_runtime.h>

static int failures = 0;

static void check(bool right, const char *what) {
    if (right) return;
    static std::set<std::string> said;
    failures++;
    if (said.insert(what).second) printf("wrong: %s\n", what);
}

// ---- kernels with known results ------------------------------------------------------------------------------------

// Lanes part by a loop of different lengths, and meet for a sum over the warp.
__global__ void diverge(int *out) {
    int steps = 0;
    for (int i = threadIdx.x % 7; i > 0; i--) steps += i % 2 ? 1 : 3;
    for (int o = 16; o > 0; o /= 2) steps += __shfl_xor_sync(0xffffffffu, steps, o);
    out[threadIdx.x] = steps + (int)__popc(__ballot_sync(0xffffffffu, threadIdx.x % 3 == 0));
}
static int diverged() {
    int sum = 0;
    for (int t = 0; t < 32; t++)
        for (int i = t % 7; i > 0; i--) sum += i % 2 ? 1 : 3;
    return sum + 11;
}

// The sum of a block through shared memory, and of blocks by an atomic operation; the last block doubles it.
__global__ void sum(unsigned *total, unsigned *arrived, int n) {
    extern __shared__ unsigned part[];
    const int at = blockIdx.x * blockDim.x + threadIdx.x;
    part[threadIdx.x] = at < n ? at : 0;
    for (int half = blockDim.x / 2; half > 0; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half) part[threadIdx.x] += part[threadIdx.x + half];
    }
    if (threadIdx.x == 0) {
        atomicAdd(total, part[0]);
        __threadfence();
        if (atomicAdd(arrived, 1) == gridDim.x - 1) *total *= 2;
    }
}

// Blocks that wait for each other through global memory.
__global__ void meet(volatile unsigned *arrived, unsigned *out) {
    if (threadIdx.x == 0) {
        atomicAdd((unsigned *)arrived, 1);
        while (*arrived < gridDim.x) {}
    }
    __syncthreads();
    out[blockIdx.x * blockDim.x + threadIdx.x] = *arrived;
}

struct Table {
    int64_t at[5];
};
__constant__ float halves[4] = {0.5f, 1.5f, 2.5f, -3.5f};
__device__ __noinline__ float twice(float x) { return x * 2 + halves[0]; }

// Parameters by value and by an index, an array of local memory, constants, a call, and conversions.
__global__ void numbers(float *out, const __grid_constant__ Table table, int pick) {
    float local[8];
    for (int i = 0; i < 8; i++) local[(i * 3 + pick) % 8] = (float)i;
    out[0] = (float)table.at[pick] + local[pick];
    out[1] = twice(halves[pick]);
    out[2] = __half2float(__float2half_rn(2049.0f));          // a tie, to even: 2048
    out[3] = (float)__float2int_rn(halves[1] + halves[2]);    // 4
    out[4] = (float)__float2int_rz(halves[3]);                // -3
    out[5] = (float)(unsigned char)__float2uint_rz(300.0f);   // 44
    out[6] = __fmaf_rn(1.0f + 0x1p-23f, 1.0f - 0x1p-23f, -1); // -2^-46: rounded once
    out[7] = __fdiv_rd(1.0f, 3.0f) < __fdiv_ru(1.0f, 3.0f) ? 1.0f : 0.0f;
    out[8] = (float)(int)__dp4a(0x01ff0203, 0x04050607, 10);   // 10 + 21 + 12 - 5 + 4
    out[9] = (float)__byte_perm(0x33221100, 0x77665544, 0x7531) / 0x77553311;
    out[10] = fminf(NAN, 3.0f);
    out[11] = (float)(__funnelshift_l(0x80000000u, 1u, 1) + __brev(2u) / 0x40000000u + __clz(1) +
                      __ffs(8)); // 3 + 1 + 31 + 4
    out[12] = (float)(-7 / 2 * 10 + -7 % 3);                   // -31
    const half2 pair = __hfma2(__floats2half2_rn(2, 3), __floats2half2_rn(4, 5), __floats2half2_rn(1, 1));
    out[13] = __low2float(pair) * 100 + __high2float(pair);    // 916
    out[14] = (float)__dp2a_lo(-65535, 0x050203fe, pick);       // 1 * -2 - 1 * 3 + 2
}

__global__ void product(float *out, const half *a, const half *b) {
    unsigned ra[4], rb[2];
    float c[4] = {1, 1, 1, 1};
    const int lane = threadIdx.x, g = lane / 4, t = lane % 4;
    for (int i = 0; i < 4; i++) ra[i] = *(const unsigned *)(a + (g + 8 * (i % 2)) * 16 + 2 * t + 8 * (i / 2));
    for (int i = 0; i < 2; i++) {
        const half low = b[(2 * t + 8 * i) * 8 + g], high = b[(2 * t + 8 * i + 1) * 8 + g];
        rb[i] = (unsigned)__half_as_ushort(high) << 16 | __half_as_ushort(low);
    }
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(ra[0]), "r"(ra[1]), "r"(ra[2]), "r"(ra[3]), "r"(rb[0]), "r"(rb[1]));
    for (int i = 0; i < 4; i++) out[(g + 8 * (i / 2)) * 8 + 2 * t + i % 2] = c[i];
}

__device__ unsigned shared_address(const void *p) { return (unsigned)__cvta_generic_to_shared(p); }

// A block of the cluster writes into the next one's shared memory, and bytes arrive that a barrier counts.
__global__ void __cluster_dims__(4, 1, 1) cluster(int *out, const int *in) {
    __shared__ alignas(128) int box[32], copied[32];
    __shared__ uint64_t barrier;
    unsigned rank, remote;
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    const unsigned counted = shared_address(&barrier);
    if (threadIdx.x == 0) asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(counted) : "memory");
    asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;"
                 : "=r"(remote)
                 : "r"(shared_address(box + threadIdx.x)), "r"((rank + 1) % 4));
    asm volatile("st.shared::cluster.u32 [%0], %1;" ::"r"(remote), "r"(rank * 100 + threadIdx.x) : "memory");
    if (threadIdx.x == 0) {
        asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], 128;" ::"r"(counted) : "memory");
        asm volatile(
            "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], 128, [%2];" ::"r"(
                shared_address(copied)),
            "l"(in), "r"(counted)
            : "memory");
    }
    asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
    asm volatile("{\n.reg .pred done;\nagain:\n"
                 "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], 0;\n@!done bra again;\n}\n" ::"r"(counted)
                 : "memory");
    out[blockIdx.x * 32 + threadIdx.x] = box[threadIdx.x] + 1000 * copied[threadIdx.x];
}

// ---- kernels with faults -------------------------------------------------------------------------------------------

__global__ void outside(int *out) { out[threadIdx.x] = 1; }
__global__ void misaligned(char *out) { *(int *)(out + 2) = 1; }
__global__ void outside_shared(int *out) {
    extern __shared__ int some[];
    some[threadIdx.x] = 1;
    out[threadIdx.x] = some[threadIdx.x];
}
__global__ void stuck() {
    if (threadIdx.x < 32) asm volatile("bar.sync 1, 64;");
}
__global__ void races(int *out) {
    __shared__ volatile int cell;
    if (threadIdx.x == 0) cell = 1;
    out[threadIdx.x] = cell;
}
__global__ void unwritten(int *out, const int *in) { out[threadIdx.x] = in[threadIdx.x]; }
__global__ void no_wait(int *out, const int *in) { // of its own copy: what was in shared memory before
    __shared__ alignas(16) int cells[4];
    for (int &c : cells) c = -5;
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;\ncp.async.commit_group;" ::"r"(shared_address(cells)),
                 "l"(in)
                 : "memory");
    out[0] = cells[0];
    asm volatile("cp.async.wait_group 0;" ::: "memory");
    out[1] = cells[0];
}

// What a launch says on stderr.
static std::string said(const std::function<void()> &launch) {
    char name[] = "/tmp/emulator-XXXXXX";
    const int file = mkstemp(name), before = dup(2);
    dup2(file, 2);
    launch();
    const cudaError_t error = cudaDeviceSynchronize();
    dup2(before, 2);
    std::string text(65536, 0);
    text.resize((size_t)pread(file, &text[0], text.size(), 0));
    close(file);
    close(before);
    unlink(name);
    cudaDeviceReset();
    return error == cudaSuccess ? "" : text;
}

template <class T>
static T *device(size_t n, const T *from = nullptr) {
    T *memory;
    cudaMalloc((void **)&memory, n * sizeof(T));
    if (from) cudaMemcpyAsync(memory, from, n * sizeof(T), cudaMemcpyHostToDevice, nullptr);
    else cudaMemsetAsync(memory, 0, n * sizeof(T), nullptr);
    return memory;
}
template <class T>
static std::vector<T> host(const T *memory, size_t n) {
    std::vector<T> values(n);
    if (cudaMemcpyAsync(values.data(), memory, n * sizeof(T), cudaMemcpyDeviceToHost, nullptr) != cudaSuccess)
        check(false, "copy to the host");
    return values;
}

static void results() {
    int *const ints = device<int>(4096);
    diverge<<<1, 64>>>(ints);
    for (int i = 0; i < 32; i++) check(host(ints, 64)[(size_t)i] == diverged(), "lanes that part and meet");

    unsigned *const words = device<unsigned>(4096);
    sum<<<7, 128, 512>>>(words, words + 1, 800);
    check(host(words, 1)[0] == 800 * 799, "sums of blocks");
    cudaMemsetAsync(words, 0, 4, nullptr);
    meet<<<40, 64>>>(words, words + 64);
    for (unsigned x : host(words + 64, 40 * 64)) check(x == 40, "blocks that wait for each other");

    float *const floats = device<float>(4096);
    const Table table = {{10, 20, 30, 40, 50}};
    numbers<<<1, 1>>>(floats, table, 2);
    const float want[] = {30, 5.5f, 2048, 4, -3, 44, -0x1p-46f, 1, 42, 1, 3, 39, -31, 916, -3};
    const std::vector<float> got = host(floats, 15);
    for (size_t i = 0; i < 15; i++) {
        float w = want[i];
        if (i == 0) {
            float local[8];
            for (int k = 0; k < 8; k++) local[(k * 3 + 2) % 8] = (float)k;
            w += local[2];
        }
        if (got[i] != w) printf("number %zu is %.9g, not %.9g\n", i, got[i], w);
        check(got[i] == w, "numbers");
    }

    std::vector<half> a(256), b(128);
    for (size_t i = 0; i < 256; i++) a[i] = __float2half((float)(i * 7 % 13) - 6);
    for (size_t i = 0; i < 128; i++) b[i] = __float2half((float)(i * 5 % 11) - 5);
    product<<<1, 32>>>(floats, device(256, a.data()), device(128, b.data()));
    const std::vector<float> c = host(floats, 128);
    for (size_t m = 0; m < 16; m++)
        for (size_t n = 0; n < 8; n++) {
            float x = 1;
            for (size_t k = 0; k < 16; k++) x += __half2float(a[m * 16 + k]) * __half2float(b[k * 8 + n]);
            check(c[m * 8 + n] == x, "a product of matrices");
        }

    std::vector<int> in(32);
    for (int i = 0; i < 32; i++) in[(size_t)i] = i + 1;
    cluster<<<8, 32>>>(ints, device(32, in.data()));
    const std::vector<int> boxes = host(ints, 256);
    for (int i = 0; i < 256; i++)
        check(boxes[(size_t)i] == (i / 32 + 3) % 4 * 100 + i % 32 + 1000 * (i % 32 + 1), "clusters and counted bytes");

    no_wait<<<1, 1>>>(ints, device(32, in.data()));
    check(host(ints, 2)[0] == -5 && host(ints, 2)[1] == 1, "a copy arrives when it is waited for");

    cudaStream_t stream;
    cudaGraph_t graph;
    cudaGraphExec_t replay;
    cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
    cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed);
    sum<<<1, 128, 512, stream>>>(words + 8, words + 9, 100);
    cudaStreamEndCapture(stream, &graph);
    cudaGraphInstantiate(&replay, graph, 0);
    cudaMemsetAsync(words + 8, 0, 8, stream);
    cudaGraphLaunch(replay, stream);
    cudaStreamSynchronize(stream);
    check(host(words + 8, 1)[0] == 100 * 99, "a graph is replayed");

    cudaEvent_t event;
    cudaSetDevice(1);
    cudaEventCreate(&event);
    check(cudaEventRecord(event, stream) == cudaErrorInvalidResourceHandle, "an event of another device is refused");
    cudaGetLastError();
    diverge<<<1, 64, 0, stream>>>(ints);
    check(cudaGetLastError() == cudaErrorInvalidResourceHandle, "a launch to another device's stream is refused");
    cudaSetDevice(0);
}

static void faults() {
    const auto finds = [](const char *what, const std::function<void()> &launch) {
        const std::string text = said(launch);
        if (text.find(what) == std::string::npos) printf("not found: %s\nsaid: %s\n", what, text.c_str());
        check(text.find(what) != std::string::npos, "a fault");
    };
    int *const ints = device<int>(40);
    finds("0 bytes behind an allocation of 160 bytes", [&] { outside<<<1, 64>>>(ints); });
    finds("is no multiple of 4", [&] { misaligned<<<1, 1>>>((char *)ints); });
    finds("outside the block's", [&] { outside_shared<<<1, 32, 64>>>(ints); });
    finds("deadlock", [&] { stuck<<<1, 64>>>(); });
    check(said([&] { races<<<1, 32>>>(ints); }).empty(), "one warp does not race");
    finds("races", [&] { races<<<1, 40>>>(ints); });
    int *fresh;
    cudaMalloc((void **)&fresh, 128);
    finds("never written", [&] { unwritten<<<1, 1>>>(ints, fresh); });
    check(said([&] { unwritten<<<1, 40>>>(ints, device<int>(40)); }).empty(), "what is written is read");
}

int main() {
    setenv("EMULATOR_RACECHECK", "1", 1);
    setenv("EMULATOR_INITCHECK", "1", 1);
    setenv("EMULATOR_DEVICES", "2", 1);
    results();
    faults();
    printf("%s\n", failures ? "the emulator is wrong" : "the emulator's own test passed");
    return failures != 0;
}
