// runtime.h: what files of the CUDA runtime share: devices, and streams with their work.
#ifndef EMULATOR_RUNTIME_H
#define EMULATOR_RUNTIME_H

#include "machine.h"

#include <algorithm>
#include <condition_variable>
#include <cstdlib>
#include <functional>
#include <thread>

#include <cuda_runtime_api.h>

namespace emulator {

// ---- devices: runtime.cpp ------------------------------------------------------------------------------------------

// The number that a variable of the environment holds.
long setting(const char *name, long otherwise);
int capability();                   // of every device: 90
size_t shared_most(int capability); // bytes of shared memory of a block that asks for it
int multiprocessors();              // 132

struct DeviceState {
    std::atomic<int> fault{0}; // after it the device answers nothing else
    std::atomic<size_t> used{0};
    std::atomic<uint32_t> peers{0};
};
extern DeviceState devices[8];
extern thread_local int current_device;

inline cudaError_t fault_of(int device) { return (cudaError_t)devices[device].fault.load(); }
// Keeps an error for cudaGetLastError, and returns it.
cudaError_t remember(cudaError_t error);

// ---- streams: streams.cpp ------------------------------------------------------------------------------------------

using Operation = std::function<void()>;
struct Node {
    Operation run;
    const void *what; // what must be the same for a graph to be updated
};

} // namespace emulator

struct CUgraph_st {
    std::vector<emulator::Node> nodes;
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
    void enqueue(emulator::Operation run) {
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
    std::deque<emulator::Operation> waiting;
    bool busy = false, ends = false;
    std::thread thread; // the last: it uses the others

    void serve() {
        std::unique_lock<std::mutex> lock(mutex);
        for (;;) {
            changed.wait(lock, [this] { return ends || !waiting.empty(); });
            if (waiting.empty()) return;
            const emulator::Operation run = std::move(waiting.front());
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

namespace emulator {

CUstream_st *stream_of(cudaStream_t stream); // null: the current device's own
void synchronize_device(int device);
// Has a stream do work, or its captured graph hold the work. `what` is equal for work that an update of a graph may
// replace.
cudaError_t add(cudaStream_t stream, const void *what, Operation run);

} // namespace emulator
#endif
