// runtime.cpp: the functions of the CUDA runtime that the library calls, on devices that are emulated. Each stream has a
// thread, so that kernels of different streams and devices run beside each other.

#include "bulk.h"
#include "machine.h"
#include "ptx.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <thread>
#include <unordered_map>

#include <cuda.h>
#include <cuda_runtime_api.h>
#include <cxxabi.h>
#include <sys/mman.h>

using namespace emulator;

namespace emulator {
std::shared_ptr<Code> decode(std::shared_ptr<Module> module, const std::string &name); // decode.cpp
}

namespace {

// ---- devices -------------------------------------------------------------------------------------------------------

long setting(const char *name, long otherwise) {
    const char *const value = getenv(name);
    return value && *value ? strtol(value, nullptr, 10) : otherwise;
}
int device_total() { return (int)std::min(8l, setting("EMULATOR_DEVICES", 1)); }
int capability() { return (int)setting("EMULATOR_CAPABILITY", 90); }
constexpr int multiprocessors = 132;
size_t memory_total() { return (size_t)setting("EMULATOR_MEMORY_MIB", 8192) << 20; }

size_t shared_most(int capability) { // of a block that asks for it
    switch (capability) {
    case 75: return 64 << 10;
    case 80: case 87: return 163 << 10;
    case 86: case 89: case 120: return 99 << 10;
    default: return 227 << 10;
    }
}

struct DeviceState {
    std::atomic<int> fault{0}; // after it the device answers nothing else
    std::atomic<size_t> used{0};
    std::atomic<uint32_t> peers{0};
};
DeviceState devices[8];

thread_local int current_device = 0;
thread_local cudaError_t last_error = cudaSuccess;

cudaError_t remember(cudaError_t error) {
    if (error != cudaSuccess) last_error = error;
    return error;
}

// ---- streams -------------------------------------------------------------------------------------------------------

using Operation = std::function<void()>;
struct Node {
    Operation run;
    const void *what; // what must be the same for a graph to be updated
};

} // namespace

struct CUgraph_st {
    std::vector<Node> nodes;
};
struct CUgraphExec_st {
    std::vector<Node> nodes;
};

struct CUstream_st {
    int device;
    CUgraph_st *captured = nullptr;

    explicit CUstream_st(int device) : device(device), thread([this] { serve(); }) {}
    ~CUstream_st() {
        {
            const std::lock_guard<std::mutex> lock(mutex);
            ends = true;
        }
        changed.notify_all();
        thread.join();
    }
    void enqueue(Operation run) {
        {
            const std::lock_guard<std::mutex> lock(mutex);
            waiting.push_back(std::move(run));
        }
        changed.notify_all();
    }
    void synchronize() {
        std::unique_lock<std::mutex> lock(mutex);
        changed.wait(lock, [this] { return waiting.empty() && !busy; });
    }

  private:
    std::mutex mutex;
    std::condition_variable changed;
    std::deque<Operation> waiting;
    bool busy = false, ends = false;
    std::thread thread; // the last: it uses the others

    void serve() {
        std::unique_lock<std::mutex> lock(mutex);
        for (;;) {
            changed.wait(lock, [this] { return ends || !waiting.empty(); });
            if (waiting.empty()) return;
            const Operation run = std::move(waiting.front());
            waiting.pop_front();
            busy = true;
            lock.unlock();
            run();
            lock.lock();
            busy = false;
            changed.notify_all();
        }
    }
};

// What work of streams holds as well: an event may be destroyed while they wait.
struct EventState {
    std::mutex mutex;
    std::condition_variable changed;
    std::atomic<uint64_t> asked{0};
    uint64_t done = 0;
    std::chrono::steady_clock::time_point when;

    void mark(uint64_t number) {
        {
            const std::lock_guard<std::mutex> lock(mutex);
            done = std::max(done, number);
            when = std::chrono::steady_clock::now();
        }
        changed.notify_all();
    }
    void wait(uint64_t number) {
        std::unique_lock<std::mutex> lock(mutex);
        changed.wait(lock, [&] { return done >= number; });
    }
    bool is_done() {
        const std::lock_guard<std::mutex> lock(mutex);
        return done >= asked;
    }
};
struct CUevent_st {
    std::shared_ptr<EventState> state = std::make_shared<EventState>();
};

namespace {

std::mutex streams_mutex;
std::vector<CUstream_st *> &all_streams() {
    static auto &all = *new std::vector<CUstream_st *>;
    return all;
}
CUstream_st *new_stream(int device) {
    CUstream_st *const s = new CUstream_st(device);
    const std::lock_guard<std::mutex> lock(streams_mutex);
    all_streams().push_back(s);
    return s;
}
CUstream_st *stream_of(cudaStream_t stream) {
    if (stream) return stream;
    static CUstream_st *defaults[8];
    static std::mutex mutex;
    const std::lock_guard<std::mutex> lock(mutex);
    if (!defaults[current_device]) defaults[current_device] = new_stream(current_device);
    return defaults[current_device];
}
void synchronize_device(int device) {
    std::vector<CUstream_st *> some;
    {
        const std::lock_guard<std::mutex> lock(streams_mutex);
        for (CUstream_st *s : all_streams())
            if (s->device == device) some.push_back(s);
    }
    for (CUstream_st *s : some) s->synchronize();
}
cudaError_t fault_of(int device) { return (cudaError_t)devices[device].fault.load(); }

cudaError_t add(cudaStream_t stream, const void *what, Operation run) {
    CUstream_st *const s = stream_of(stream);
    if (const cudaError_t fault = fault_of(s->device)) return remember(fault);
    if (s->captured) s->captured->nodes.push_back({std::move(run), what});
    else s->enqueue(std::move(run));
    return cudaSuccess;
}

// ---- modules and kernels -------------------------------------------------------------------------------------------

struct Kernel {
    struct Binary *binary;
    std::string name;
    std::shared_ptr<Code> code; // once it was launched
    std::map<int, int> dynamic; // the most dynamic shared memory, by device
    bool large_clusters = false;
};
struct Binary {
    const char *data;
    std::shared_ptr<Module> module;
};
std::recursive_mutex code_mutex;
std::unordered_map<const void *, Kernel> &kernels() {
    static auto &all = *new std::unordered_map<const void *, Kernel>;
    return all;
}

struct FatHeader {
    uint32_t magic;
    uint16_t version, header_bytes;
    uint64_t bytes;
};
struct FatEntry {
    uint16_t kind, version;
    uint32_t header_bytes;
    uint64_t bytes;
    uint32_t compressed_bytes, options;
    uint16_t minor, major;
    uint32_t arch;
};

// The PTX of the newest architecture that the device runs.
std::shared_ptr<Module> module_of(Binary &b) {
    if (b.module) return b.module;
    const FatHeader *const header = (const FatHeader *)b.data;
    const char *p = b.data + header->header_bytes, *const end = p + header->bytes, *text = nullptr;
    size_t length = 0;
    uint32_t best = 0;
    while (p < end) {
        const FatEntry *const e = (const FatEntry *)p;
        if (e->kind == 1 && e->arch > best && (int)e->arch <= capability()) {
            best = e->arch;
            text = p + e->header_bytes;
            length = e->bytes; // NUL ends it before
            while (isspace((unsigned char)*text)) text++;
            if (memcmp(text, ".version", 8) != 0 && memcmp(text, "//", 2) != 0)
                throw Fault("the PTX is compressed: compile with --no-compress", cudaErrorInvalidKernelImage);
        }
        p += e->header_bytes + e->bytes;
    }
    if (!text) throw Fault("no PTX that this device runs", cudaErrorNoKernelImageForDevice);
    b.module = std::make_shared<Module>(std::string(text, strnlen(text, length)));
    return b.module;
}

Code &code_of(Kernel &k) {
    if (!k.code) k.code = decode(module_of(*k.binary), k.name);
    return *k.code;
}

cudaError_t report(const Fault &f, const std::string &kernel) {
    char *const name = abi::__cxa_demangle(kernel.c_str(), nullptr, nullptr, nullptr);
    fprintf(stderr, "emulator: %s\n  kernel %s\n", f.what(), name ? name : kernel.c_str());
    free(name);
    return (cudaError_t)f.error;
}

struct Shape {
    dim3 grid, block;
    size_t shared = 0;
    int cluster = 1;
};

cudaError_t launch(const void *function, Shape shape, void **arguments, cudaStream_t stream) {
    CUstream_st *const s = stream_of(stream);
    const std::lock_guard<std::recursive_mutex> lock(code_mutex);
    const auto found = kernels().find(function);
    if (found == kernels().end()) return remember(cudaErrorInvalidDeviceFunction);
    Kernel &k = found->second;
    auto l = std::make_shared<Launch>();
    try {
        Code &code = code_of(k);
        const Function &f = *code.function;
        if (shape.cluster == 1) shape.cluster = f.cluster;
        const uint64_t threads = (uint64_t)shape.block.x * shape.block.y * shape.block.z;
        const char *why = nullptr;
        if (threads == 0 || threads > 1024 || (f.threads && threads > (uint64_t)f.threads) || shape.block.z > 64)
            why = "threads of a block";
        if (!shape.grid.x || !shape.grid.y || !shape.grid.z || shape.grid.x > 0x7fffffff || shape.grid.y > 65535 ||
            shape.grid.z > 65535)
            why = "blocks of the grid";
        const size_t asked = k.dynamic.count(s->device) ? (size_t)k.dynamic[s->device] : 0;
        const size_t allowed = std::max<size_t>(asked, (48 << 10) - std::min<size_t>(48 << 10, (size_t)f.shared_bytes));
        if (shape.shared > allowed || shape.shared + (size_t)f.shared_bytes > shared_most(capability()))
            why = "shared memory";
        if (shape.cluster > 1 && (capability() < 90 || shape.cluster > (k.large_clusters ? 16 : 8) ||
                                  shape.grid.x % (unsigned)shape.cluster))
            why = "blocks of a cluster";
        if (why) {
            fprintf(stderr,
                    "emulator: a launch of grid (%u,%u,%u), block (%u,%u,%u), cluster %d, %zu bytes of shared memory "
                    "is refused: %s\n  kernel %s\n",
                    shape.grid.x, shape.grid.y, shape.grid.z, shape.block.x, shape.block.y, shape.block.z,
                    shape.cluster, shape.shared, why, k.name.c_str());
            return remember(cudaErrorInvalidConfiguration);
        }
        l->code = k.code.get();
        l->parameter_chunks.resize((size_t)f.parameter_bytes / sizeof(ParameterChunk) + 1);
        for (size_t i = 0; i < f.parameters.size(); i++)
            memcpy(l->parameters() + f.parameters[i].offset, arguments[i], (size_t)f.parameters[i].bytes);
        l->grid[0] = shape.grid.x, l->grid[1] = shape.grid.y, l->grid[2] = shape.grid.z;
        l->block[0] = shape.block.x, l->block[1] = shape.block.y, l->block[2] = shape.block.z;
        l->cluster = shape.cluster;
        l->dynamic_shared = (int64_t)shape.shared;
        l->device = s->device;
        l->capability = capability();
        const int64_t by_shared =
            (int64_t)(228 << 10) / std::max<int64_t>(1, (int64_t)shape.shared + f.shared_bytes + 1024);
        l->resident_blocks =
            multiprocessors * (int)std::max<int64_t>(1, std::min<int64_t>({by_shared, (int64_t)(2048 / threads), 32}));
        l->where = format("grid (%u,%u,%u) block (%u,%u,%u) cluster %d shared %zu", shape.grid.x, shape.grid.y,
                          shape.grid.z, shape.block.x, shape.block.y, shape.block.z, shape.cluster, shape.shared);
    } catch (const Fault &f) {
        return remember(report(f, k.name));
    }
    return add(stream, function, [l, &k] {
        if (devices[l->device].fault) return;
        Launch now = *l; // a graph runs it again
        if (options().trace) fprintf(stderr, "emulator: %s %s\n", now.where.c_str(), k.name.c_str());
        try {
            now.run();
        } catch (const Fault &f) {
            const cudaError_t error = report(Fault(std::string(f.what()) + "\n  " + now.where, f.error), k.name);
            if (!setting("EMULATOR_CONTINUE", 0)) devices[now.device].fault = (int)error;
        }
    });
}

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

struct Block_ {
    size_t bytes, mapped;
    int device;
};
std::mutex allocations_mutex;
std::unordered_map<void *, Block_> &allocations() {
    static auto &all = *new std::unordered_map<void *, Block_>;
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

struct Configuration {
    dim3 grid, block;
    size_t shared;
    cudaStream_t stream;
};
thread_local std::vector<Configuration> configurations;

} // namespace

// ---- what nvcc's objects call --------------------------------------------------------------------------------------

extern "C" {

void **__cudaRegisterFatBinary(void *wrapper) {
    Binary *const b = new Binary();
    memcpy(&b->data, (const char *)wrapper + 8, sizeof b->data);
    return (void **)b;
}
void __cudaRegisterFatBinaryEnd(void **) {}
void __cudaUnregisterFatBinary(void **) {}
void __cudaRegisterFunction(void **binary, const char *host, char *, const char *name, int, uint3 *, uint3 *, dim3 *,
                            dim3 *, int *) {
    const std::lock_guard<std::recursive_mutex> lock(code_mutex);
    Kernel &k = kernels()[host];
    k.binary = (Binary *)binary;
    k.name = name;
}
void __cudaRegisterVar(void **, char *, char *, const char *, int, size_t, int, int) {}
unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared, struct CUstream_st *stream) {
    configurations.push_back({grid, block, shared, stream});
    return 0;
}
cudaError_t __cudaPopCallConfiguration(dim3 *grid, dim3 *block, size_t *shared, void *stream) {
    const Configuration c = configurations.back();
    configurations.pop_back();
    *grid = c.grid, *block = c.block, *shared = c.shared;
    *(cudaStream_t *)stream = c.stream;
    return cudaSuccess;
}
cudaError_t __cudaGetKernel(cudaKernel_t *kernel, const void *host) {
    *kernel = (cudaKernel_t)host;
    return cudaSuccess;
}
cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void **arguments, size_t shared,
                               cudaStream_t stream) {
    return launch((const void *)kernel, {grid, block, shared, 1}, arguments, stream);
}

// ---- the runtime's functions ---------------------------------------------------------------------------------------

cudaError_t cudaLaunchKernel(const void *function, dim3 grid, dim3 block, void **arguments, size_t shared,
                             cudaStream_t stream) {
    return launch(function, {grid, block, shared, 1}, arguments, stream);
}
cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t *config, const void *function, void **arguments) {
    Shape shape = {config->gridDim, config->blockDim, config->dynamicSmemBytes, 1};
    for (unsigned i = 0; i < config->numAttrs; i++) {
        if (config->attrs[i].id != cudaLaunchAttributeClusterDimension) continue;
        const auto &dimension = config->attrs[i].val.clusterDim;
        if (dimension.y != 1 || dimension.z != 1) return remember(cudaErrorNotSupported); // of the emulator
        shape.cluster = (int)dimension.x;
    }
    return launch(function, shape, arguments, config->stream);
}

cudaError_t cudaFuncSetAttribute(const void *function, cudaFuncAttribute attribute, int value) {
    const std::lock_guard<std::recursive_mutex> lock(code_mutex);
    const auto found = kernels().find(function);
    if (found == kernels().end()) return remember(cudaErrorInvalidDeviceFunction);
    Kernel &k = found->second;
    try {
        if (attribute == cudaFuncAttributeMaxDynamicSharedMemorySize) {
            if ((size_t)value + (size_t)code_of(k).function->shared_bytes > shared_most(capability()))
                return remember(cudaErrorInvalidValue);
            k.dynamic[current_device] = value;
        } else if (attribute == cudaFuncAttributeNonPortableClusterSizeAllowed) {
            k.large_clusters = value != 0;
        }
    } catch (const Fault &f) {
        return remember(report(f, k.name));
    }
    return cudaSuccess;
}
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes *attributes, const void *function) {
    const std::lock_guard<std::recursive_mutex> lock(code_mutex);
    const auto found = kernels().find(function);
    if (found == kernels().end()) return remember(cudaErrorInvalidDeviceFunction);
    try {
        const Code &code = code_of(found->second);
        memset(attributes, 0, sizeof *attributes);
        attributes->ptxVersion = code.module->target;
        attributes->binaryVersion = capability();
        attributes->sharedSizeBytes = (size_t)code.function->shared_bytes;
        attributes->maxThreadsPerBlock = code.function->threads ? code.function->threads : 1024;
        attributes->numRegs = 255;
    } catch (const Fault &f) {
        return remember(report(f, found->second.name));
    }
    return cudaSuccess;
}

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
    p->multiProcessorCount = multiprocessors;
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
    if (bytes <= 64 << 20) memset(*memory, 0xff, bytes);
    {
        const std::lock_guard<std::mutex> lock(allocations_mutex);
        allocations()[*memory] = {bytes, mapped, current_device};
    }
    global_memory().add(*memory, (int64_t)bytes, current_device);
    return cudaSuccess;
}
cudaError_t cudaFree(void *memory) {
    if (!memory) return cudaSuccess;
    Block_ block;
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
    if (bytes == 0) return cudaSuccess;
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

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned) {
    if (const cudaError_t fault = fault_of(current_device)) return remember(fault);
    return *stream = new_stream(current_device), cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
    {
        const std::lock_guard<std::mutex> lock(streams_mutex);
        auto &all = all_streams();
        all.erase(std::remove(all.begin(), all.end(), stream), all.end());
    }
    stream->synchronize();
    delete stream;
    return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
    CUstream_st *const s = stream_of(stream);
    if (s->captured) return remember(cudaErrorStreamCaptureUnsupported);
    s->synchronize();
    return remember(fault_of(s->device));
}

cudaError_t cudaEventCreate(cudaEvent_t *event) {
    if (const cudaError_t fault = fault_of(current_device)) return remember(fault);
    return *event = new CUevent_st(), cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) { return delete event, cudaSuccess; }
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
    const std::shared_ptr<EventState> e = event->state;
    const uint64_t number = ++e->asked;
    const cudaError_t error = add(stream, (const void *)"record", [=] { e->mark(number); });
    if (error != cudaSuccess || stream_of(stream)->captured) e->mark(number);
    return error;
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
    event->state->wait(event->state->asked);
    return remember(fault_of(current_device));
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
    if (const cudaError_t fault = fault_of(current_device)) return remember(fault);
    return event->state->is_done() ? cudaSuccess : cudaErrorNotReady;
}
cudaError_t cudaEventElapsedTime(float *milliseconds, cudaEvent_t start, cudaEvent_t end) {
    if (!start->state->asked || !end->state->asked) return remember(cudaErrorInvalidResourceHandle);
    if (!start->state->is_done() || !end->state->is_done()) return remember(cudaErrorNotReady);
    *milliseconds = std::chrono::duration<float, std::milli>(end->state->when - start->state->when).count();
    return cudaSuccess;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
    const std::shared_ptr<EventState> e = event->state;
    const uint64_t number = e->asked;
    return add(stream, (const void *)"wait", [=] { e->wait(number); });
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
    CUstream_st *const s = stream_of(stream);
    if (s->captured) return remember(cudaErrorIllegalState);
    s->captured = new CUgraph_st();
    return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph) {
    CUstream_st *const s = stream_of(stream);
    *graph = s->captured;
    s->captured = nullptr;
    return *graph ? cudaSuccess : remember(cudaErrorIllegalState);
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t *executable, cudaGraph_t graph, unsigned long long) {
    return *executable = new CUgraphExec_st{graph->nodes}, cudaSuccess;
}
cudaError_t cudaGraphExecUpdate(cudaGraphExec_t executable, cudaGraph_t graph, cudaGraphExecUpdateResultInfo *result) {
    bool same = executable->nodes.size() == graph->nodes.size();
    for (size_t i = 0; same && i < graph->nodes.size(); i++) same = executable->nodes[i].what == graph->nodes[i].what;
    memset((void *)result, 0, sizeof *result);
    result->result = same ? cudaGraphExecUpdateSuccess : cudaGraphExecUpdateErrorTopologyChanged;
    if (!same) return remember(cudaErrorGraphExecUpdateFailure);
    executable->nodes = graph->nodes;
    return cudaSuccess;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t stream) {
    for (const Node &n : executable->nodes)
        if (const cudaError_t error = add(stream, n.what, n.run)) return error;
    return cudaSuccess;
}
cudaError_t cudaGraphUpload(cudaGraphExec_t, cudaStream_t) { return cudaSuccess; }
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable) { return delete executable, cudaSuccess; }
cudaError_t cudaGraphDestroy(cudaGraph_t graph) { return delete graph, cudaSuccess; }

cudaError_t cudaGetDriverEntryPointByVersion(const char *name, void **function, unsigned, unsigned long long,
                                             cudaDriverEntryPointQueryResult *result) {
    *function = strcmp(name, "cuTensorMapEncodeTiled") == 0 ? (void *)encode_tiled : nullptr;
    if (result) *result = *function ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
    return cudaSuccess;
}

} // extern "C"
