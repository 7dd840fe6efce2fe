/* device.c: devices, memory, streams, events and graphs: arguments are checked, then the device's backend is called. */
#include <stdlib.h>
#include <string.h>

#include "checks.h"
#include "driver.h"
#include "library.h"
#include "ptx_device.h"
#include "sum_of_rows.h"

static vb_status find_backend(const vb_backend **backend, vb_device_kind kind) {
    switch (kind) {
    case VB_CPU: *backend = &vb_cpu_backend; return VB_OK;
    case VB_CUDA: {
        const char *named = getenv("VIBRANT_CUDA"), *wanted = named && *named ? named : NULL;
        if (wanted && strcmp(wanted, "ptx") == 0) return find_backend(backend, VB_PTX);
        if (wanted && strcmp(wanted, "library") != 0) return VB_INVALID_ENVIRONMENT;
        const vb_library *library = vb_cuda_library_in_use();
        if (!library && !wanted && !vb_cuda_library_refused()) return find_backend(backend, VB_PTX);
        if (!library) return VB_NOT_COMPILED;
        *backend = library->cuda;
        return VB_OK;
    }
    case VB_PTX:
        if (!vb_driver_in_use()) return VB_NO_DEVICE;
        *backend = &vb_ptx_backend;
        return VB_OK;
    }
    return VB_INVALID_ARGUMENT;
}

#define CHECK(condition) \
    do { \
        if (!(condition)) return VB_INVALID_ARGUMENT; \
    } while (0)

const char *vb_cuda_architectures_in_use(void) {
    const vb_library *library = vb_cuda_library_in_use();
    if (library && !vb_cuda_asked("ptx")) return library->architectures();
    return vb_driver_in_use() ? vb_jit_refusal() : "none";
}

vb_status vb_device_count(int *count, vb_device_kind kind) {
    CHECK(count);
    *count = 0;
    const vb_backend *backend = NULL;
    vb_status s = find_backend(&backend, kind);
    return s == VB_OK ? backend->device_count(count) : s;
}

vb_status vb_device_open(vb_device **device, vb_device_kind kind, int index, const vb_device_options *options) {
    CHECK(device);
    *device = NULL;
    vb_device_options known = VB_ARGS(vb_device_options, .threads = 0);
    CHECK(index >= 0 && (!options || take(&known, sizeof known, options)) && known.threads >= 0);
    const vb_backend *backend = NULL;
    vb_status s = find_backend(&backend, kind);
    return s == VB_OK ? backend->device_open(device, index, &known) : s;
}

void vb_device_close(vb_device *device) {
    if (device) device->backend->device_close(device);
}

vb_status vb_device_get_info(vb_device_info *info, const vb_device *device) {
    CHECK(info && device);
    return device->backend->device_get_info(info, device);
}

vb_status vb_device_memory(int64_t *free_bytes, int64_t *total_bytes, vb_device *device) {
    CHECK(free_bytes && total_bytes && device);
    return device->backend->device_memory(free_bytes, total_bytes, device);
}

int vb_device_driver_error(const vb_device *device) {
    return device ? device->backend->device_driver_error(device) : 0;
}

vb_status vb_alloc(void **memory, int64_t bytes, vb_device *device) {
    CHECK(memory);
    *memory = NULL;
    CHECK(bytes >= 0 && device);
    return device->backend->alloc(memory, bytes, device);
}

vb_status vb_free(void *memory, vb_device *device) {
    if (!memory) return VB_OK;
    CHECK(device);
    return device->backend->free(memory, device);
}

vb_status vb_memory_check(const void *memory, int64_t bytes, vb_device *device) {
    CHECK(bytes >= 0 && device);
    if (bytes == 0) return VB_OK;
    CHECK(memory);
    return device->backend->memory_check(memory, bytes, device);
}

vb_status vb_alloc_host(void **memory, int64_t bytes, vb_device *device) {
    CHECK(memory);
    *memory = NULL;
    CHECK(bytes >= 0 && device);
    return device->backend->alloc_host(memory, bytes, device);
}

vb_status vb_free_host(void *memory, vb_device *device) {
    if (!memory) return VB_OK;
    CHECK(device);
    return device->backend->free_host(memory, device);
}

vb_status vb_stream_create(vb_stream **stream, vb_device *device) {
    return vb_stream_create_with(stream, device, NULL);
}

vb_status vb_stream_create_with(vb_stream **stream, vb_device *device, const vb_allocator *allocator) {
    CHECK(stream);
    *stream = NULL;
    vb_allocator known;
    CHECK(device);
    if (!allocator) return device->backend->stream_create_with(stream, device, NULL);
    CHECK(take(&known, sizeof known, allocator) && known.alloc && known.free);
    return device->backend->stream_create_with(stream, device, &known);
}

void vb_stream_destroy(vb_stream *stream) {
    if (stream) stream->device->backend->stream_destroy(stream);
}

vb_status vb_stream_synchronize(vb_stream *stream) {
    CHECK(stream);
    return stream->device->backend->stream_synchronize(stream);
}

vb_status vb_stream_handle(void **handle, vb_stream *stream) {
    CHECK(handle);
    *handle = NULL;
    CHECK(stream);
    return stream->device->backend->stream_handle(handle, stream);
}

const char *vb_stream_invalid_argument(const vb_stream *stream) {
    if (!stream) return "stream: null";
    return stream->invalid_argument ? stream->invalid_argument : "";
}

const char *vb_last_kernel(const vb_stream *stream) { return stream ? stream->kernel : NULL; }

vb_status vb_memcpy(void *out, const void *in, int64_t bytes, vb_copy_kind kind, vb_stream *stream) {
    REQUIRE(bytes >= 0, "bytes: negative");
    if (bytes == 0) return VB_OK;
    NOT_NULL(out); NOT_NULL(in); NOT_NULL(stream);
    REQUIRE(kind >= VB_HOST_TO_DEVICE && kind <= VB_DEVICE_TO_DEVICE, "kind: none of vb_copy_kind");
    stream->invalid_argument = NULL;
    return stream->device->backend->memcpy(out, in, bytes, kind, stream);
}

vb_status vb_memset(void *out, int value, int64_t bytes, vb_stream *stream) {
    REQUIRE(bytes >= 0, "bytes: negative");
    if (bytes == 0) return VB_OK;
    NOT_NULL(out); NOT_NULL(stream);
    stream->invalid_argument = NULL;
    return stream->device->backend->memset(out, value, bytes, stream);
}

vb_status vb_event_create(vb_event **event, vb_device *device) {
    CHECK(event);
    *event = NULL;
    CHECK(device);
    return device->backend->event_create(event, device);
}

void vb_event_destroy(vb_event *event) {
    if (event) event->device->backend->event_destroy(event);
}

/* Events are recorded on, and graphs work with, streams of the device that made them only. */

vb_status vb_event_record(vb_event *event, vb_stream *stream) {
    CHECK(event && stream && event->device == stream->device);
    return event->device->backend->event_record(event, stream);
}

vb_status vb_event_synchronize(vb_event *event) {
    CHECK(event);
    return event->device->backend->event_synchronize(event);
}

vb_status vb_event_done(int *done, vb_event *event) {
    CHECK(done && event);
    return event->device->backend->event_done(done, event);
}

vb_status vb_event_elapsed(float *milliseconds, vb_event *start, vb_event *end) {
    CHECK(milliseconds && start && end && start->device == end->device);
    return start->device->backend->event_elapsed(milliseconds, start, end);
}

vb_status vb_stream_wait(vb_stream *stream, vb_event *event) {
    CHECK(stream && event && stream->device->backend == event->device->backend);
    return stream->device->backend->stream_wait(stream, event);
}

vb_status vb_graph_begin(vb_stream *stream) {
    CHECK(stream);
    return stream->device->backend->graph_begin(stream);
}

vb_status vb_graph_end(vb_graph **graph, vb_stream *stream) {
    CHECK(graph);
    *graph = NULL;
    CHECK(stream);
    return stream->device->backend->graph_end(graph, stream);
}

vb_status vb_graph_update(vb_graph *graph, const vb_graph *newer) {
    CHECK(graph && newer && graph->device == newer->device);
    return graph->device->backend->graph_update(graph, newer);
}

vb_status vb_graph_launch(vb_graph *graph, vb_stream *stream) {
    CHECK(graph && stream && graph->device == stream->device);
    return graph->device->backend->graph_launch(graph, stream);
}

vb_status vb_graph_prepare(vb_graph *graph) {
    CHECK(graph);
    return graph->device->backend->graph_prepare(graph);
}

void vb_graph_destroy(vb_graph *graph) {
    if (graph) graph->device->backend->graph_destroy(graph);
}

vb_status vb_communicator_create(vb_communicator **communicator, vb_stream *const *streams, int ranks) {
    CHECK(communicator);
    *communicator = NULL;
    CHECK(streams && ranks >= 1 && ranks <= VB_MAX_RANKS);
    for (int i = 0; i < ranks; i++) {
        CHECK(streams[i] && streams[i]->device->backend == streams[0]->device->backend);
        for (int j = 0; j < i; j++) CHECK(streams[i] != streams[j]);
    }
    vb_status s = streams[0]->device->backend->communicator_create(communicator, streams, ranks);
    if (s == VB_OK) (*communicator)->all = ranks;
    return s;
}

void vb_communicator_destroy(vb_communicator *communicator) {
    if (communicator) communicator->backend->communicator_destroy(communicator);
}

vb_status vb_all_reduce(float *const *out, const float *const *in, const float *const *add, int64_t n, int rounded,
                        vb_communicator *communicator) {
    CHECK(communicator && n >= 0 && (rounded == 0 || rounded == 1));
    if (n == 0) return VB_OK;
    CHECK(n <= INT64_MAX / 8 && out && in);
    for (int i = 0; i < communicator->ranks; i++) CHECK(out[i] && in[i] && (!add || add[i]));
    return communicator->backend->all_reduce(out, in, add, n, rounded, communicator);
}

vb_status vb_all_reduce_rows(float *const *out, const float *const *in, vb_sum_of_rows *rows,
                             vb_communicator *communicator) {
    int64_t size;
    vb_sum_of_rows known;
    CHECK(communicator && rows && take(&known, sizeof known, rows));
    CHECK(rows->size >= offsetof(vb_sum_of_rows, prepared) + sizeof rows->prepared); /* it is written below */
    CHECK(known.n >= 0 && known.cols >= 0);
    CHECK(!__builtin_mul_overflow(known.n, known.cols, &size) && size <= INT64_MAX / 8);
    CHECK(known.from == VB_AFTER_ATTENTION || known.from == VB_AFTER_FEED_FORWARD);
    const bool may_part = known.parted, add_parted = known.add_parted; /* where they are asked for they have room */
    rows->prepared = known.prepared = known.parted = 0;
    if (may_part) rows->parted = 0;
    if (size == 0) return VB_OK;
    CHECK(out && in);
    for (int i = 0; i < communicator->ranks; i++) {
        CHECK(out[i] && in[i] && known.add[i]);
        CHECK(!known.norm[0] || (known.norm[i] && known.normed[i]));
    }
    if (add_parted && !may_part) known.norm[0] = NULL;
    const vb_library *library = vb_cuda_library_in_use();
    vb_status s = VB_UNSUPPORTED;
    if ((may_part || add_parted) && library && communicator->backend == library->cuda)
        s = library->cuda->all_reduce(out, in, known.add, size, VB_SUM_OF_COLUMNS, communicator);
    if (s == VB_UNSUPPORTED && !add_parted)
        s = communicator->backend->all_reduce(out, in, known.add, size, known.norm[0] ? VB_ROUNDED_ROWS : 1,
                                              communicator);
    rows->prepared = known.prepared;
    if (may_part) rows->parted = known.parted;
    return s;
}

vb_status vb_linear_all_reduce(float *const *out, float *const *product, const vb_sum_of_products *sum,
                               vb_communicator *communicator) {
    int64_t size;
    vb_sum_of_products known;
    CHECK(communicator && sum && take(&known, sizeof known, sum) && known.n >= 0 && known.w[0].rows >= 0);
    CHECK(!__builtin_mul_overflow(known.n, known.w[0].rows, &size) && size <= INT64_MAX / 8);
    if (size == 0) return VB_OK;
    CHECK(out && product);
    for (int i = 0; i < communicator->ranks; i++)
        CHECK(out[i] && product[i] && known.add[i] && known.x[i] && known.w[i].data &&
              known.w[i].rows == known.w[0].rows);
    const vb_library *library = vb_cuda_library_in_use();
    const float *const *in = (const float *const *)product;
    if (known.n == 1 && library && communicator->backend == library->cuda) {
        const vb_status s = library->cuda->all_reduce(out, in, known.add, size, VB_SUM_OF_PRODUCTS, communicator);
        if (s != VB_UNSUPPORTED) return s;
    }
    for (int i = 0; i < communicator->ranks; i++) {
        const vb_status s =
            vb_linear(product[i], known.x[i], &known.w[i], known.bias[i], known.n, communicator->streams[i]);
        if (s != VB_OK) return s;
    }
    return communicator->backend->all_reduce(out, in, known.add, size, 1, communicator);
}

vb_status vb_all_gather(float *const *out, const float *const *in, int64_t rows, const int64_t *cols,
                        vb_communicator *communicator) {
    CHECK(communicator && rows >= 0 && cols);
    int64_t total = 0, count;
    for (int i = 0; i < communicator->all; i++) {
        CHECK(cols[i] >= 0 && !__builtin_add_overflow(total, cols[i], &total));
    }
    CHECK(!__builtin_mul_overflow(rows, total, &count) && count <= INT64_MAX / 8);
    if (count == 0) return VB_OK;
    CHECK(out && in);
    for (int i = 0; i < communicator->ranks; i++) CHECK(out[i] && (in[i] || cols[communicator->first + i] == 0));
    return communicator->backend->all_gather(out, in, rows, cols, communicator);
}

vb_status vb_broadcast(void *const *data, int64_t words, int root, vb_communicator *communicator) {
    CHECK(communicator && words >= 0 && words <= INT64_MAX / 8 && root >= 0 && root < communicator->all);
    if (words == 0) return VB_OK;
    CHECK(data);
    for (int i = 0; i < communicator->ranks; i++) CHECK(data[i]);
    return communicator->backend->broadcast(data, words, root, communicator);
}

vb_status vb_send(void *out, const void *in, int64_t words, int from, int to, vb_communicator *communicator) {
    CHECK(communicator && words >= 0 && words <= INT64_MAX / 8);
    CHECK(from >= 0 && from < communicator->all && to >= 0 && to < communicator->all);
    if (words == 0) return VB_OK;
    const int first = communicator->first, end = first + communicator->ranks;
    CHECK((out || to < first || to >= end) && (in || from < first || from >= end));
    return communicator->backend->send(out, in, words, from, to, communicator);
}
