// communicator.cu: communicators of GPUs of one process: peer access, mailboxes, and one call for all ranks.

#include "collective/exchange.cuh"
#include "runtime/handles.cuh"

#include <atomic>
#include <cstdint>
#include <new>

namespace vb {

struct Communicator : vb_communicator {
    Mail mail[VB_MAX_RANKS]; // of each rank
    bool abandoned = false;  // results that products have sent wait for no sum
};

// Pairs that were enabled are remembered, as the runtime does not tell. A second call would be an error, harmless but
// in the report of every tool that watches calls.
vb_status enable_access(vb_device *device, int to) {
    enum { REMEMBERED = 64 };
    static std::atomic<uint64_t> enabled[REMEMBERED]; // of each GPU, a bit a peer
    const int from = device_of(device)->index;
    if (from == to) return VB_OK;
    const bool remembers = from < REMEMBERED && to < REMEMBERED;
    if (remembers && enabled[from] >> to & 1) return VB_OK;
    int possible = 0;
    VB_TRY(status_of(cudaDeviceCanAccessPeer(&possible, from, to), device));
    if (!possible) return VB_UNSUPPORTED;
    VB_TRY(make_current(device));
    const cudaError_t error = cudaDeviceEnablePeerAccess(to, 0);
    if (error == cudaErrorPeerAccessAlreadyEnabled) // by the program, or by another thread at this moment
        cudaGetLastError();
    else
        VB_TRY(status_of(error, device));
    if (remembers) enabled[from] |= uint64_t{1} << to;
    return VB_OK;
}

// Gives a rank its mailbox, of zeros.
static vb_status make_mailbox(char **box, vb_stream *stream, int ranks) {
    VB_TRY(make_current(stream->device));
    VB_TRY(status_of(cudaMalloc((void **)box, (size_t)mail_bytes(ranks)), stream->device));
    VB_TRY(status_of(cudaMemsetAsync(*box, 0, (size_t)mail_bytes(ranks), stream_of(stream)->handle), stream->device));
    return status_of(cudaStreamSynchronize(stream_of(stream)->handle), stream->device);
}

static vb_status connect(Communicator *c) {
    for (int r = 0; r < c->ranks; r++)
        for (int other = 0; other < c->ranks; other++)
            VB_TRY(enable_access(c->streams[r]->device, device_of(c->streams[other]->device)->index));
    char *boxes[VB_MAX_RANKS] = {};
    vb_status status = VB_OK;
    for (int r = 0; r < c->ranks && status == VB_OK; r++) status = make_mailbox(&boxes[r], c->streams[r], c->ranks);
    for (int r = 0; r < c->ranks; r++) {
        c->mail[r] = Mail{r, c->ranks, {}};
        for (int other = 0; other < c->ranks; other++) c->mail[r].box[other] = boxes[other];
    }
    return status;
}

// Whether no two ranks share a GPU.
static bool apart(const Communicator *c) {
    for (int r = 0; r < c->ranks; r++)
        for (int other = 0; other < r; other++)
            if (device_of(c->streams[other]->device)->index == device_of(c->streams[r]->device)->index) return false;
    return true;
}

// Clears all that products have sent. Results that a sum was to take are lost.
vb_status clear_sent(Communicator *c) {
    for (int r = 0; r < c->ranks; r++) {
        VB_TRY(make_current(c->streams[r]->device));
        VB_TRY(status_of(cudaStreamSynchronize(stream_of(c->streams[r])->handle), c->streams[r]->device));
    }
    for (int r = 0; r < c->ranks; r++) {
        VB_TRY(make_current(c->streams[r]->device));
        char *const letters = c->mail[r].box[r] + mail_rounded_at(c->ranks) + mail_rounded_counters;
        VB_TRY(status_of(cudaMemsetAsync(letters, 0, (size_t)mail_rounded, stream_of(c->streams[r])->handle),
                         c->streams[r]->device));
        VB_TRY(status_of(cudaStreamSynchronize(stream_of(c->streams[r])->handle), c->streams[r]->device));
        stream_of(c->streams[r])->sent.y = nullptr;
    }
    c->abandoned = false;
    return VB_OK;
}

// Has a sum of n numbers find the words of its own products alone, of those ranks that have sent them. rounded: it
// takes words.
static vb_status take_sent(Communicator *c, const float *const *in, int64_t n, bool rounded) {
    bool others = c->abandoned, own = false;
    for (int r = 0; r < c->ranks; r++) {
        const SentResults &sent = stream_of(c->streams[r])->sent;
        if (sent.y && sent.y == in[r] && sent.n == n) own = true;
        else others |= sent.y != nullptr;
    }
    if (!others && (rounded || !own)) return VB_OK;
    VB_TRY(clear_sent(c));
    return own ? VB_INVALID_ARGUMENT : VB_OK;
}

static vb_status sum_of_columns(float *const *out, const float *const *in, vb_sum_of_rows *sum, Communicator *c) {
    const vb_sum_of_rows &rows = *sum;
    bool aligned = true;
    for (int r = 0; r < c->ranks; r++)
        aligned = aligned && aligned16((const char *)out[r], (const char *)in[r]) &&
                  aligned16((const char *)rows.add[r], (const char *)rows.norm[r]) && aligned16(rows.normed[r]);
    if (!aligned || choose_sum_of_columns(rows.n * rows.cols, rows.cols, apart(c)) == COLLECTIVE_NONE)
        return VB_UNSUPPORTED;
    VB_TRY(take_sent(c, in, rows.n * rows.cols, false));
    for (int r = 0; r < c->ranks; r++)
        VB_TRY(exchange_sum_of_columns(out, in[r], rows, r, c->mail[r], c->streams[r]));
    sum->parted = sum->prepared = rows.norm[0] != nullptr;
    return VB_OK;
}

static vb_status sum_of_products(float *const *out, const vb_sum_of_products &sum, Communicator *c) {
    linear_items items[VB_MAX_RANKS];
    bool packed_n1 = true;
    for (int r = 0; r < c->ranks; r++) {
        const vb_weight w = known(sum.w[r]);
        const bool inputs = aligned16((const char *)w.data, (const char *)sum.x[r]);
        const linear_shape shape = {w.type, w.layout, 1, w.rows, w.cols, false, inputs, true, true};
        const vb_gpu gpu = gpu_of(c->streams[r]);
        const linear_choice choice = choose_linear_sum(&shape, &gpu);
        packed_n1 = packed_n1 && inputs && choice.kernel == LINEAR_PACKED_N1;
        items[r] = choice.items;
    }
    if (choose_sum_of_products(sum.w[0].rows, packed_n1, apart(c)) == COLLECTIVE_NONE) return VB_UNSUPPORTED;
    for (int r = 0; r < c->ranks; r++)
        VB_TRY(exchange_sum_of_products(out[r], sum, r, items[r], c->mail[r], c->streams[r]));
    return VB_OK;
}

} // namespace vb

using namespace vb;

extern "C" {

void vb_cuda_communicator_destroy(vb_communicator *communicator) {
    Communicator *c = static_cast<Communicator *>(communicator);
    for (int r = 0; r < c->ranks; r++) // a mailbox is written by the others' work
        if (make_current(c->streams[r]->device) == VB_OK) cudaStreamSynchronize(stream_of(c->streams[r])->handle);
    for (int r = 0; r < c->ranks; r++) {
        char *const box = c->mail[r].box[r];
        EarlyResults &early = stream_of(c->streams[r])->early;
        if (box && early.done == columns_done(box, c->ranks)) early = {};
        SentResults &sent = stream_of(c->streams[r])->sent;
        if (sent.communicator == c) sent = {};
        if (box && make_current(c->streams[r]->device) == VB_OK) cudaFree(box);
    }
    cudaGetLastError();
    delete c;
}

vb_status vb_cuda_communicator_create(vb_communicator **out, vb_stream *const *streams, int ranks) {
    Communicator *c = new (std::nothrow) Communicator();
    if (!c) return VB_OUT_OF_MEMORY;
    c->backend = &vb_cuda_backend;
    c->ranks = ranks;
    for (int r = 0; r < ranks; r++) c->streams[r] = streams[r];
    const vb_status status = connect(c);
    if (status != VB_OK) {
        vb_cuda_communicator_destroy(c);
        return status;
    }
    if (apart(c))
        for (int r = 0; r < ranks; r++)
            stream_of(streams[r])->early = {columns_done(c->mail[r].box[r], ranks), r, ranks, 0, nullptr, 0, 0, 0, 0},
            stream_of(streams[r])->sent = {&c->mail[r], c, &c->abandoned, nullptr, 0};
    *out = c;
    return VB_OK;
}

vb_status vb_cuda_all_reduce(float *const *out, const float *const *in, const float *const *add, int64_t n,
                             int rounded, vb_communicator *communicator) {
    Communicator *c = static_cast<Communicator *>(communicator);
    if (rounded == VB_SUM_OF_PRODUCTS) return sum_of_products(out, *VB_STRUCT_OF(vb_sum_of_products, add, add), c);
    if (rounded == VB_SUM_OF_COLUMNS) return sum_of_columns(out, in, VB_STRUCT_OF(vb_sum_of_rows, add, add), c);
    bool vectors = n % 8 == 0;
    for (int r = 0; r < c->ranks; r++)
        vectors = vectors && ((size_t)out[r] | (size_t)in[r] | (size_t)(add ? add[r] : nullptr)) % 16 == 0;
    VB_TRY(take_sent(c, in, n, rounded && vectors && choose_all_reduce(n, true) == COLLECTIVE_REDUCE_ROUNDED));
    if (rounded == VB_ROUNDED_ROWS && vectors) {
        vb_sum_of_rows *rows = VB_STRUCT_OF(vb_sum_of_rows, add, add);
        bool fits = rows->cols % 128 == 0 && choose_all_reduce(n, true) == COLLECTIVE_REDUCE_ROUNDED;
        for (int r = 0; r < c->ranks; r++)
            fits = fits && aligned16(rows->norm[r]) && aligned16(rows->normed[r]);
        for (int r = 0; fits && r < c->ranks; r++)
            VB_TRY(exchange_sum_of_rows(out[r], in[r], *rows, r, c->mail[r], c->streams[r]));
        rows->prepared = fits;
        if (fits) return VB_OK;
    }
    for (int r = 0; r < c->ranks; r++)
        VB_TRY(exchange_sum(out[r], in[r], add ? add[r] : nullptr, n, rounded && vectors, c->mail[r], c->streams[r]));
    return VB_OK;
}

vb_status vb_cuda_all_gather(float *const *out, const float *const *in, int64_t rows, const int64_t *cols,
                             vb_communicator *communicator) {
    Communicator *c = static_cast<Communicator *>(communicator);
    Parts parts = {};
    for (int r = 0; r < c->ranks; r++) {
        parts.cols[r] = cols[r];
        parts.count[r] = rows * cols[r];
        parts.first[r] = parts.row;
        parts.row += cols[r];
        parts.most = larger(parts.most, parts.count[r]);
    }
    for (int r = 0; r < c->ranks; r++) VB_TRY(exchange_rows(out[r], in[r], parts, c->mail[r], c->streams[r]));
    return VB_OK;
}

// The words of one rank; the other ranks have none.
vb_status vb_cuda_broadcast(void *const *data, int64_t words, int root, vb_communicator *communicator) {
    const float *in[VB_MAX_RANKS] = {};
    int64_t cols[VB_MAX_RANKS] = {};
    in[root] = (const float *)data[root];
    cols[root] = words;
    return vb_cuda_all_gather((float *const *)data, in, 1, cols, communicator);
}

// A copy on the receiver's stream, after all earlier work and before all later work of both streams.
vb_status vb_cuda_send(void *out, const void *in, int64_t words, int from, int to, vb_communicator *communicator) {
    vb_stream *source = communicator->streams[from], *target = communicator->streams[to];
    if (from == to) return vb_cuda_memcpy(out, in, 4 * words, VB_DEVICE_TO_DEVICE, target);
    vb_event *before = nullptr, *after = nullptr;
    vb_status status = vb_cuda_event_create(&before, source->device);
    if (status == VB_OK) status = vb_cuda_event_create(&after, target->device);
    if (status == VB_OK) status = vb_cuda_event_record(before, source);
    if (status == VB_OK) status = vb_cuda_stream_wait(target, before);
    if (status == VB_OK) status = vb_cuda_memcpy(out, in, 4 * words, VB_DEVICE_TO_DEVICE, target);
    if (status == VB_OK) status = vb_cuda_event_record(after, target);
    if (status == VB_OK) status = vb_cuda_stream_wait(source, after);
    if (before) vb_cuda_event_destroy(before);
    if (after) vb_cuda_event_destroy(after);
    return status;
}

} // extern "C"
