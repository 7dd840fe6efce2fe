// launch.cpp: kernels that programs register with the CUDA runtime, and their launches.

#include "fatbin.h"
#include "ptx.h"
#include "runtime.h"

#include <cstdio>
#include <unordered_map>

#include <cxxabi.h>

using namespace emulator;

namespace emulator {
std::shared_ptr<Code> decode(std::shared_ptr<Module> module, const std::string &name); // decode.cpp
}

namespace {

struct Kernel {
    struct Binary *binary;
    std::string name;
    std::shared_ptr<Code> code; // once it was launched
    std::map<int, int> dynamic; // the most dynamic shared memory, by device
    bool recorded = false;
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

std::shared_ptr<Module> module_of(Binary &b) {
    if (!b.module) b.module = std::make_shared<Module>(newest_ptx(b.data, capability()));
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

// Whether a kernel's code for the device is left out: its first instruction ends it.
bool is_empty(const Kernel &k, const std::string &ptx) {
    const size_t at = ptx.find(".entry " + k.name + "("), from = at == std::string::npos ? at : ptx.find("{", at);
    const size_t end = from == std::string::npos ? from : ptx.find(';', from);
    if (end == std::string::npos) return false;
    const size_t begin = ptx.find_last_of(" \t\n", end) + 1;
    const std::string word = ptx.substr(begin, end - begin);
    return word == "ret" || word == "exit" || word == "trap";
}

void note(FILE *file, const char *what, const Kernel &k) {
    char *const name = abi::__cxa_demangle(k.name.c_str(), nullptr, nullptr, nullptr);
    fprintf(file, "%s\t%s\t%s\n", what, k.name.c_str(), name ? name : "");
    free(name);
}

// Notes, once, every kernel that is registered, "empty" or "full" as its code for the device is, and "absent" where there is none;
// and "launched" those that were.
void record(Kernel &launched) {
    static FILE *const file = [] {
        FILE *const f = fopen(options().launches, "a");
        if (!f) fprintf(stderr, "emulator: EMULATOR_LAUNCHES: %s cannot be written\n", options().launches), abort();
        std::map<Binary *, std::string> ptx;
        for (const auto &each : kernels()) {
            const Kernel &k = each.second;
            std::string &text = ptx[k.binary];
            try {
                if (text.empty()) text = newest_ptx(k.binary->data, capability());
            } catch (const Fault &) { // the library has code for later GPUs alone
            }
            note(f, text.empty() ? "absent" : is_empty(k, text) ? "empty" : "full", k);
        }
        return f;
    }();
    if (launched.recorded) return;
    launched.recorded = true;
    note(file, "launched", launched);
    fflush(file);
}

struct Shape {
    dim3 grid, block;
    size_t shared = 0;
    int cluster = 1;
};

cudaError_t launch(const void *function, Shape shape, void **arguments, cudaStream_t stream) {
    CUstream_st *const s = stream_of(stream);
    if (s->device != current_device) return remember(cudaErrorInvalidResourceHandle);
    const std::lock_guard<std::recursive_mutex> lock(code_mutex);
    const auto found = kernels().find(function);
    if (found == kernels().end()) return remember(cudaErrorInvalidDeviceFunction);
    Kernel &k = found->second;
    if (options().launches) return record(k), cudaSuccess;
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
            multiprocessors() * (int)std::max<int64_t>(1, std::min<int64_t>({by_shared, (int64_t)(2048 / threads), 32}));
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
// Of managed variables, which no kernel has: host code that is not optimized names it all the same.
char __cudaInitModule(void **) { return 0; }
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
    if (options().launches) return cudaSuccess;
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
    memset(attributes, 0, sizeof *attributes);
    attributes->ptxVersion = attributes->binaryVersion = capability();
    if (options().launches) return cudaSuccess;
    try {
        const Code &code = code_of(found->second);
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

} // extern "C"
