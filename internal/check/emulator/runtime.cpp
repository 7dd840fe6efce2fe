// runtime.cpp: devices and memory of the CUDA runtime, as far as the library calls its functions: streams.cpp and
// launch.cpp have the rest.

#include "bulk.h"
#include "runtime.h"

#include <cstdio>
#include <unordered_map>

#include <cuda.h>
#include <sys/mman.h>

using namespace emulator;

// ---- devices -------------------------------------------------------------------------------------------------------

namespace emulator {

long setting(const char *name, long otherwise) {
    const char *const value = getenv(name);
    return value && *value ? strtol(value, nullptr, 10) : otherwise;
}
static int device_total() { return (int)std::min(8l, setting("EMULATOR_DEVICES", 1)); }
int capability() { return (int)setting("EMULATOR_CAPABILITY", 90); }
static size_t memory_total() { return (size_t)setting("EMULATOR_MEMORY_MIB", 8192) << 20; }

size_t shared_most(int capability) {
    switch (capability) {
    case 75: return 64 << 10;
    case 80: case 87: return 163 << 10;
    case 86: case 89: case 120: return 99 << 10;
    default: return 227 << 10;
    }
}

int multiprocessors() {
    static const int all = (int)setting("EMULATOR_MULTIPROCESSORS", 132);
    return all;
}

DeviceState devices[8];

thread_local int current_device = 0;
static thread_local cudaError_t last_error = cudaSuccess;

cudaError_t remember(cudaError_t error) {
    if (error != cudaSuccess) last_error = error;
    return error;
}

} // namespace emulator

namespace {

// ---- memory --------------------------------------------------------------------------------------------------------

std::mutex host_mutex;
std::map<uint64_t, uint64_t> &host_memory() { // pinned: from, to
    static auto &all = *new std::map<uint64_t, uint64_t>;
    return all;
}
bool is_pinned(const void *p) {
    const std::lock_guard<std::mutex> lock(host_mutex);
    auto next = host_memory().upper_bound((uint64_t)(uintptr_t)p);
    return next != host_memory().begin() && (uint64_t)(uintptr_t)p < std::prev(next)->second;
}

struct Allocation {
    size_t bytes, mapped;
    int device;
};
std::mutex allocations_mutex;
std::unordered_map<void *, Allocation> &allocations() {
    static auto &all = *new std::unordered_map<void *, Allocation>;
    return all;
}

// Whether bytes of a copy lie in one allocation; host memory is the caller's affair.
bool fits(const void *p, size_t bytes, bool *device, Range *range) {
    *device = global_memory().find((uint64_t)(uintptr_t)p, range) && range->device >= 0;
    return !*device || (uint64_t)(uintptr_t)p + bytes <= range->to;
}

void copy(void *to, const void *from, size_t bytes) {
    memmove(to, from, bytes);
    if (!options().initcheck) return;
    Range a, b;
    if (!global_memory().find((uint64_t)(uintptr_t)to, &a) || !a.written) return;
    uint8_t *const written = a.written + ((uint64_t)(uintptr_t)to - a.from);
    if (global_memory().find((uint64_t)(uintptr_t)from, &b) && b.written)
        memmove(written, b.written + ((uint64_t)(uintptr_t)from - b.from), bytes);
    else memset(written, 1, bytes);
}

CUresult encode_tiled(CUtensorMap *map, CUtensorMapDataType type, cuuint32_t rank, void *address,
                      const cuuint64_t *sizes, const cuuint64_t *strides, const cuuint32_t *box,
                      const cuuint32_t *steps, CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle,
                      CUtensorMapL2promotion, CUtensorMapFloatOOBfill fill) {
    TensorMap m = {};
    switch (type) {
    case CU_TENSOR_MAP_DATA_TYPE_UINT8: m.element = 1; break;
    case CU_TENSOR_MAP_DATA_TYPE_UINT16:
    case CU_TENSOR_MAP_DATA_TYPE_FLOAT16:
    case CU_TENSOR_MAP_DATA_TYPE_BFLOAT16: m.element = 2; break;
    case CU_TENSOR_MAP_DATA_TYPE_UINT32:
    case CU_TENSOR_MAP_DATA_TYPE_INT32:
    case CU_TENSOR_MAP_DATA_TYPE_FLOAT32:
    case CU_TENSOR_MAP_DATA_TYPE_TFLOAT32: m.element = 4; break;
    default: return CUDA_ERROR_NOT_SUPPORTED;
    }
    const int pattern = swizzle == CU_TENSOR_MAP_SWIZZLE_NONE  ? 0
                        : swizzle == CU_TENSOR_MAP_SWIZZLE_32B ? 32
                        : swizzle == CU_TENSOR_MAP_SWIZZLE_64B ? 64
                        : swizzle == CU_TENSOR_MAP_SWIZZLE_128B ? 128 : -1;
    if (interleave != CU_TENSOR_MAP_INTERLEAVE_NONE || fill != CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE || pattern < 0)
        return CUDA_ERROR_NOT_SUPPORTED;
    if (rank < 1 || rank > 5 || (uintptr_t)address % 16 || (uintptr_t)map % 64) return CUDA_ERROR_INVALID_VALUE;
    const uint64_t row = (uint64_t)box[0] * m.element;
    if (row % 16 || (pattern && row > (uint64_t)pattern)) return CUDA_ERROR_INVALID_VALUE;
    for (cuuint32_t i = 0; i < rank; i++) {
        if (box[i] == 0 || box[i] > 256 || sizes[i] == 0 || sizes[i] > 1ull << 32 || steps[i] != 1)
            return CUDA_ERROR_INVALID_VALUE;
        if (i > 0 && (strides[i - 1] % 16 || strides[i - 1] >= 1ull << 40)) return CUDA_ERROR_INVALID_VALUE;
        m.sizes[i] = (uint32_t)std::min<uint64_t>(sizes[i], 0xffffffffu);
        m.box[i] = box[i];
        if (i > 0) m.strides[i - 1] = strides[i - 1];
    }
    m.address = (uint64_t)(uintptr_t)address;
    m.rank = (uint8_t)rank;
    m.swizzle = (uint8_t)pattern;
    m.mark = tensor_map_mark;
    memset((void *)map, 0, sizeof *map);
    memcpy((void *)map, &m, sizeof m);
    return CUDA_SUCCESS;
}

} // namespace

// ---- the runtime's functions ---------------------------------------------------------------------------------------

extern "C" {

cudaError_t cudaGetLastError(void) {
    const cudaError_t error = last_error;
    last_error = cudaSuccess;
    return error;
}
const char *cudaGetErrorString(cudaError_t) { return "an error of the emulated device"; }

cudaError_t cudaGetDeviceCount(int *count) { return *count = device_total(), cudaSuccess; }
cudaError_t cudaSetDevice(int device) {
    if (device < 0 || device >= device_total()) return remember(cudaErrorInvalidDevice);
    current_device = device;
    return cudaSuccess;
}
cudaError_t cudaGetDevice(int *device) { return *device = current_device, cudaSuccess; }
cudaError_t cudaGetDeviceProperties(cudaDeviceProp *p, int device) {
    if (device < 0 || device >= device_total()) return remember(cudaErrorInvalidDevice);
    memset((void *)p, 0, sizeof *p);
    snprintf(p->name, sizeof p->name, "emulated");
    p->major = capability() / 10;
    p->minor = capability() % 10;
    p->totalGlobalMem = memory_total();
    p->multiProcessorCount = multiprocessors();
    p->sharedMemPerBlock = 48 << 10;
    p->sharedMemPerBlockOptin = shared_most(capability());
    p->sharedMemPerMultiprocessor = shared_most(capability()) + 1024;
    p->l2CacheSize = 50 << 20;
    p->warpSize = 32;
    p->maxThreadsPerBlock = 1024;
    p->maxThreadsPerMultiProcessor = 2048;
    return cudaSuccess;
}
cudaError_t cudaDeviceCanAccessPeer(int *can, int device, int peer) { return *can = device != peer, cudaSuccess; }
cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned) {
    const uint32_t bit = 1u << peer;
    return devices[current_device].peers.fetch_or(bit) & bit ? remember(cudaErrorPeerAccessAlreadyEnabled)
                                                             : cudaSuccess;
}
cudaError_t cudaDeviceSynchronize(void) {
    synchronize_device(current_device);
    return remember(fault_of(current_device));
}
cudaError_t cudaDeviceReset(void) { // forgets a fault; memory and streams stay
    synchronize_device(current_device);
    devices[current_device].fault = 0;
    return cudaSuccess;
}
cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total) {
    if (const cudaError_t fault = fault_of(current_device)) return remember(fault);
    *total = memory_total();
    *free_bytes = *total - std::min(*total, devices[current_device].used.load());
    return cudaSuccess;
}

// Memory that nobody has written is all ones: not a number, and no index.
cudaError_t cudaMalloc(void **memory, size_t bytes) {
    *memory = nullptr;
    if (const cudaError_t fault = fault_of(current_device)) return remember(fault);
    if (bytes == 0) return cudaSuccess;
    constexpr size_t page = 4096;
    if (bytes > memory_total()) return remember(cudaErrorMemoryAllocation);
    const size_t mapped = (bytes + page - 1) / page * page + 2 * page;
    DeviceState &d = devices[current_device];
    if (d.used.fetch_add(bytes) + bytes > memory_total()) {
        d.used -= bytes;
        return remember(cudaErrorMemoryAllocation);
    }
    void *const all = mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (all == MAP_FAILED) {
        d.used -= bytes;
        return remember(cudaErrorMemoryAllocation);
    }
    *memory = (char *)all + page;
    if (bytes <= 64 << 20 && !options().launches) memset(*memory, 0xff, bytes);
    {
        const std::lock_guard<std::mutex> lock(allocations_mutex);
        allocations()[*memory] = {bytes, mapped, current_device};
    }
    global_memory().add(*memory, (int64_t)bytes, current_device);
    return cudaSuccess;
}
cudaError_t cudaFree(void *memory) {
    if (!memory) return cudaSuccess;
    Allocation block;
    {
        const std::lock_guard<std::mutex> lock(allocations_mutex);
        const auto found = allocations().find(memory);
        if (found == allocations().end()) return remember(cudaErrorInvalidValue);
        block = found->second;
        allocations().erase(found);
    }
    synchronize_device(block.device);
    global_memory().remove(memory);
    munmap((char *)memory - 4096, block.mapped);
    devices[block.device].used -= block.bytes;
    return remember(fault_of(block.device));
}
cudaError_t cudaHostAlloc(void **memory, size_t bytes, unsigned) {
    if (const cudaError_t fault = fault_of(current_device)) return remember(fault);
    *memory = nullptr;
    if (bytes > memory_total() || posix_memalign(memory, 4096, std::max<size_t>(bytes, 1)))
        return remember(cudaErrorMemoryAllocation);
    const std::lock_guard<std::mutex> lock(host_mutex);
    host_memory()[(uint64_t)(uintptr_t)*memory] = (uint64_t)(uintptr_t)*memory + bytes;
    return cudaSuccess;
}
cudaError_t cudaFreeHost(void *memory) {
    synchronize_device(current_device);
    {
        const std::lock_guard<std::mutex> lock(host_mutex);
        if (!host_memory().erase((uint64_t)(uintptr_t)memory)) return remember(cudaErrorInvalidValue);
    }
    free(memory);
    return cudaSuccess;
}
cudaError_t cudaPointerGetAttributes(cudaPointerAttributes *a, const void *p) {
    memset((void *)a, 0, sizeof *a);
    Range range;
    if (global_memory().find((uint64_t)(uintptr_t)p, &range) && range.device >= 0) {
        a->type = cudaMemoryTypeDevice;
        a->device = range.device;
        a->devicePointer = const_cast<void *>(p);
    } else {
        a->type = is_pinned(p) ? cudaMemoryTypeHost : cudaMemoryTypeUnregistered;
    }
    return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, cudaMemcpyKind, cudaStream_t stream) {
    if (bytes == 0 || options().launches) return cudaSuccess;
    bool to_device, from_device;
    Range range;
    if (!fits(to, bytes, &to_device, &range) || !fits(from, bytes, &from_device, &range))
        return remember(cudaErrorInvalidValue);
    CUstream_st *const s = stream_of(stream);
    const bool staged = !from_device && !is_pinned(from) && !s->captured;
    std::shared_ptr<std::vector<char>> stage;
    if (staged) stage = std::make_shared<std::vector<char>>((const char *)from, (const char *)from + bytes);
    const cudaError_t error =
        add(stream, (const void *)"copy", [=] { copy(to, staged ? stage->data() : from, bytes); });
    if (error == cudaSuccess && !to_device && !is_pinned(to) && !s->captured) {
        s->synchronize();
        return remember(fault_of(s->device));
    }
    return error;
}
cudaError_t cudaMemsetAsync(void *to, int value, size_t bytes, cudaStream_t stream) {
    if (options().launches) return cudaSuccess;
    bool device;
    Range range;
    if (!fits(to, bytes, &device, &range) || (bytes && !device)) return remember(cudaErrorInvalidValue);
    return add(stream, (const void *)"set", [=] {
        memset(to, value, bytes);
        Range r;
        if (options().initcheck && bytes && global_memory().find((uint64_t)(uintptr_t)to, &r) && r.written)
            memset(r.written + ((uint64_t)(uintptr_t)to - r.from), 1, bytes);
    });
}

cudaError_t cudaGetDriverEntryPointByVersion(const char *name, void **function, unsigned, unsigned long long,
                                             cudaDriverEntryPointQueryResult *result) {
    *function = strcmp(name, "cuTensorMapEncodeTiled") == 0 ? (void *)encode_tiled : nullptr;
    if (result) *result = *function ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
    return cudaSuccess;
}

} // extern "C"
