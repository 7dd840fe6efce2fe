// streams.cpp: streams, events and graphs of the CUDA runtime. Each stream has a thread, so that kernels of different
// streams and devices run beside each other.

#include "runtime.h"

#include <chrono>

using namespace emulator;

struct CUgraphExec_st {
    std::vector<Node> nodes;
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
    const int device = current_device;
    std::shared_ptr<EventState> state = std::make_shared<EventState>();
};

namespace emulator {
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

} // namespace

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
cudaError_t add(cudaStream_t stream, const void *what, Operation run) {
    CUstream_st *const s = stream_of(stream);
    if (const cudaError_t fault = fault_of(s->device)) return remember(fault);
    if (s->captured) s->captured->nodes.push_back({std::move(run), what});
    else s->enqueue(std::move(run));
    return cudaSuccess;
}

} // namespace emulator

extern "C" {

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
    if (event->device != stream_of(stream)->device) return remember(cudaErrorInvalidResourceHandle);
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
cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus *status) {
    *status = stream_of(stream)->captured ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
    return cudaSuccess;
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

} // extern "C"
