// exchange.cu: all_reduce, out = in[0] + in[1] + ... + add, and all_gather, whose rows are the ranks' side by side.
//
//   shapes   float32, any n
//   grid     64 blocks of up to 512 threads, the same on every rank. A rank sends its part to each other rank, and adds
//            the parts in the order of ranks: all ranks get the same bits
//   shared   none
//   moves    over the link, each way and peer: 8 n bytes (small), 4 n (large)
//   bound    small: one crossing (about 1.5 us over NVLink); large: the link

#include "collective/exchange.cuh"

namespace vb {
namespace {

VB_DEVICE void store_word(uint4 *p, unsigned a, unsigned b, unsigned flag) {
    asm volatile("st.volatile.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(p), "r"(a), "r"(flag), "r"(b), "r"(flag)
                 : "memory");
}
VB_DEVICE float2 poll_word(const uint4 *p, unsigned flag) {
    Wait wait;
    for (;;) {
        unsigned a, fa, b, fb;
        asm volatile("ld.volatile.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                     : "=r"(a), "=r"(fa), "=r"(b), "=r"(fb)
                     : "l"(p)
                     : "memory");
        if (fa == flag && fb == flag) return make_float2(__uint_as_float(a), __uint_as_float(b));
        wait.round();
    }
}

VB_DEVICE unsigned *counters_of(char *box) { return (unsigned *)box; }
// Where `from` tells block b of the owner how many chunks it has sent.
VB_DEVICE volatile unsigned *flag_of(char *box, int b, int from) {
    return (volatile unsigned *)(box + mail_counters) + b * VB_MAX_RANKS + from;
}
VB_DEVICE uint4 *small_letter(char *box, int ranks, int letter, int from) {
    return (uint4 *)(box + mail_counters + mail_flags + (letter * ranks + from) * mail_small);
}
VB_DEVICE float *large_letter(char *box, int ranks, int letter, int from, int block) {
    return (float *)(box + mail_counters + mail_flags + small_letters * ranks * mail_small +
                     (letter * ranks + from) * mail_large) +
           (int64_t)block * chunk_floats;
}

// Two neighbours of n floats; the second may not be there.
VB_DEVICE float2 pair(const float *in, int64_t i, int64_t n) {
    return make_float2(in[i], i + 1 < n ? in[i + 1] : 0.0f);
}

// One small exchange: the values common to its threads.
struct Small {
    int letter;
    unsigned flag; // never 0, which an unused mailbox holds
    int64_t at, step; // of the thread, in words
    VB_DEVICE explicit Small(const Mail &m) {
        const unsigned count = counters_of(m.box[m.rank])[blockIdx.x];
        letter = count % small_letters;
        flag = count | 0x80000000u;
        at = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
        step = (int64_t)gridDim.x * blockDim.x;
    }
    VB_DEVICE void send(const Mail &m, const float *in, int64_t n) const {
        for (int64_t s = at; 2 * s < n; s += step) {
            const float2 x = pair(in, 2 * s, n);
            for (int r = 0; r < m.ranks; r++)
                if (r != m.rank)
                    store_word(small_letter(m.box[r], m.ranks, letter, m.rank) + s, __float_as_uint(x.x),
                               __float_as_uint(x.y), flag);
        }
    }
    VB_DEVICE float2 receive(const Mail &m, int from, int64_t s) const {
        return poll_word(small_letter(m.box[m.rank], m.ranks, letter, from) + s, flag);
    }
    VB_DEVICE void end(const Mail &m) const {
        __syncthreads();
        if (threadIdx.x == 0) counters_of(m.box[m.rank])[blockIdx.x]++;
    }
};

__global__ void __launch_bounds__(exchange_threads)
    all_reduce_small(float *out, const float *in, const float *add, int64_t n, VB_IN_PLACE Mail m) {
    release_next_kernel(); // all blocks are on the device: it may fill its rings while this one waits
    wait_for_previous_kernel();
    const Small exchange(m);
    exchange.send(m, in, n);
    for (int64_t s = exchange.at; 2 * s < n; s += exchange.step) {
        const int64_t i = 2 * s;
        const float2 own = pair(in, i, n);
        float2 sum = m.rank == 0 ? own : exchange.receive(m, 0, s);
        for (int r = 1; r < m.ranks; r++) {
            const float2 x = r == m.rank ? own : exchange.receive(m, r, s);
            sum.x += x.x, sum.y += x.y;
        }
        out[i] = add ? sum.x + add[i] : sum.x;
        if (i + 1 < n) out[i + 1] = add ? sum.y + add[i + 1] : sum.y;
    }
    exchange.end(m);
}

// Where element i of a rank goes in the result.
VB_DEVICE int64_t place(const Parts &p, int rank, int64_t i) {
    if (i < p.cols[rank]) return p.first[rank] + i;
    const int64_t row = i / p.cols[rank];
    return row * p.row + p.first[rank] + (i - row * p.cols[rank]);
}

__global__ void __launch_bounds__(exchange_threads)
    all_gather_small(float *out, const float *in, VB_IN_PLACE Parts p, VB_IN_PLACE Mail m) {
    wait_for_previous_kernel();
    release_next_kernel();
    const Small exchange(m);
    exchange.send(m, in, p.count[m.rank]);
    for (int k = 0; k < m.ranks; k++) {
        const int r = (m.rank + k) % m.ranks; // its own first, while the others' are on their way
        for (int64_t s = exchange.at; 2 * s < p.count[r]; s += exchange.step) {
            const int64_t i = 2 * s;
            const float2 x = k == 0 ? pair(in, i, p.count[r]) : exchange.receive(m, r, s);
            out[place(p, r, i)] = x.x;
            if (i + 1 < p.count[r]) out[place(p, r, i + 1)] = x.y;
        }
    }
    exchange.end(m);
}

// A large exchange of one block: the floats from..to-1 of each rank, chunk by chunk.
struct Large {
    unsigned count; // chunks that this block has sent so far
    VB_DEVICE explicit Large(const Mail &m) : count(counters_of(m.box[m.rank])[exchange_blocks + blockIdx.x]) {}

    // Sends n floats (0: the flag alone) as chunk c of this exchange.
    VB_DEVICE void send(const Mail &m, unsigned c, const float *in, int64_t n) const {
        const int letter = (count + c) % large_letters;
        for (int r = 0; r < m.ranks; r++) {
            if (r == m.rank) continue;
            float *to = large_letter(m.box[r], m.ranks, letter, m.rank, blockIdx.x);
            int64_t done = 0;
            if ((size_t)in % 16 == 0) {
                done = n / 4 * 4;
                for (int64_t i = threadIdx.x; i < n / 4; i += blockDim.x) ((float4 *)to)[i] = ((const float4 *)in)[i];
            }
            for (int64_t i = done + threadIdx.x; i < n; i += blockDim.x) to[i] = in[i];
        }
        __syncthreads();
        if ((int)threadIdx.x < m.ranks && (int)threadIdx.x != m.rank) {
            __threadfence_system();
            *flag_of(m.box[threadIdx.x], blockIdx.x, m.rank) = count + c + 1;
        }
    }
    // Waits until every rank has sent chunk c.
    VB_DEVICE void await(const Mail &m, unsigned c) const {
        if ((int)threadIdx.x < m.ranks && (int)threadIdx.x != m.rank) {
            const volatile unsigned *flag = flag_of(m.box[m.rank], blockIdx.x, threadIdx.x);
            Wait wait;
            while ((int)(*flag - (count + c + 1)) < 0) wait.round();
            __threadfence_system();
        }
        __syncthreads();
    }
    VB_DEVICE const float *received(const Mail &m, unsigned c, int from) const {
        return large_letter(m.box[m.rank], m.ranks, (count + c) % large_letters, from, blockIdx.x);
    }
    VB_DEVICE void end(const Mail &m, unsigned chunks) const {
        __syncthreads();
        if (threadIdx.x == 0) counters_of(m.box[m.rank])[exchange_blocks + blockIdx.x] = count + chunks;
    }
};

// The share of a block in n floats, in whole vectors, and chunk c of the share.
struct Span {
    int64_t from, to;
    VB_DEVICE Span(int64_t n, int64_t c) {
        const int64_t share = ceil_div(ceil_div(n, (int64_t)gridDim.x), (int64_t)4) * 4;
        const int64_t end = smaller(n, (blockIdx.x + 1) * share);
        from = smaller(end, blockIdx.x * share + c * chunk_floats);
        to = smaller(end, from + chunk_floats);
    }
};
VB_DEVICE unsigned chunks_of(int64_t most) { // of every block alike, so that all count the same
    return (unsigned)ceil_div(ceil_div(ceil_div(most, (int64_t)gridDim.x), (int64_t)4) * 4, (int64_t)chunk_floats);
}

__global__ void __launch_bounds__(exchange_threads)
    all_reduce_large(float *out, const float *in, const float *add, int64_t n, VB_IN_PLACE Mail m) {
    wait_for_previous_kernel();
    const Large exchange(m);
    const unsigned chunks = chunks_of(n);
    const Span first(n, 0);
    exchange.send(m, 0, in + first.from, first.to - first.from);
    for (unsigned c = 0; c < chunks; c++) {
        if (c + 1 < chunks) {
            const Span next(n, c + 1);
            exchange.send(m, c + 1, in + next.from, next.to - next.from);
        }
        exchange.await(m, c);
        const Span span(n, c);
        for (int64_t i = span.from + threadIdx.x; i < span.to; i += blockDim.x) {
            float sum = m.rank == 0 ? in[i] : __ldcg(exchange.received(m, c, 0) + (i - span.from));
            for (int r = 1; r < m.ranks; r++)
                sum += r == m.rank ? in[i] : __ldcg(exchange.received(m, c, r) + (i - span.from));
            out[i] = add ? sum + add[i] : sum;
        }
    }
    exchange.end(m, chunks);
}

// Puts the elements i to i + n - 1 of a rank in their places, V of them at once. Rows are long: few elements ask for a
// division.
template <class V>
VB_DEVICE void put(float *out, const float *from, const Parts &p, int rank, int64_t i, int64_t n) {
    constexpr int width = sizeof(V) / sizeof(float);
    const int64_t cols = p.cols[rank];
    int64_t at = threadIdx.x * width, row = (i + at) / cols, col = i + at - row * cols;
    for (; at < n; at += blockDim.x * width, col += blockDim.x * width) {
        if (col >= cols) {
            const int64_t rows = col / cols;
            row += rows, col -= rows * cols;
        }
        *(V *)(out + row * p.row + p.first[rank] + col) = __ldcg((const V *)(from + at));
    }
}

__global__ void __launch_bounds__(exchange_threads)
    all_gather_large(float *out, const float *in, VB_IN_PLACE Parts p, VB_IN_PLACE Mail m) {
    wait_for_previous_kernel();
    const Large exchange(m);
    const unsigned chunks = chunks_of(p.most);
    const int64_t n = p.count[m.rank];
    const Span first(n, 0);
    exchange.send(m, 0, in + first.from, first.to - first.from);
    for (unsigned c = 0; c < chunks; c++) {
        if (c + 1 < chunks) {
            const Span next(n, c + 1);
            exchange.send(m, c + 1, in + next.from, next.to - next.from);
        }
        exchange.await(m, c);
        for (int r = 0; r < m.ranks; r++) {
            const Span span(p.count[r], c);
            const float *from = r == m.rank ? in + span.from : exchange.received(m, c, r);
            const bool vectors = ((p.cols[r] | p.first[r] | p.row) % 4 | ((size_t)out | (size_t)from) % 16) == 0;
            if (span.from == span.to) continue;
            if (vectors) put<float4>(out, from, p, r, span.from, span.to - span.from);
            else put<float>(out, from, p, r, span.from, span.to - span.from);
        }
    }
    exchange.end(m, chunks);
}

// Threads of a block of a small exchange: no more than words, so that the next kernel finds room beside it.
unsigned small_threads(int64_t n) {
    return (unsigned)smaller<int64_t>(exchange_threads, ceil_div<int64_t>(n, 2 * 32 * exchange_blocks) * 32);
}

} // namespace

vb_status exchange_sum(float *out, const float *in, const float *add, int64_t n, bool rounded, const Mail &mail,
                       vb_stream *stream) {
    const collective_kernel kernel = choose_all_reduce(n, rounded);
    chosen(stream, collective_kernel_info(kernel), "all_reduce", VB_F32, "n ranks", n, mail.ranks);
    switch (kernel) {
    case COLLECTIVE_REDUCE_SMALL:
        return launch_overlapped(stream, exchange_blocks, small_threads(n), 0, all_reduce_small, out, in, add, n, mail);
    case COLLECTIVE_REDUCE_LARGE:
        return launch_overlapped(stream, exchange_blocks, exchange_threads, 0, all_reduce_large, out, in, add, n, mail);
    case COLLECTIVE_REDUCE_ROUNDED: return exchange_rounded(out, in, add, n, {}, mail, stream);
    default: return VB_UNSUPPORTED;
    }
}

vb_status exchange_rows(float *out, const float *in, const Parts &parts, const Mail &mail, vb_stream *stream) {
    const collective_kernel kernel = choose_all_gather(parts.most);
    chosen(stream, collective_kernel_info(kernel), "all_gather", VB_F32, "most row ranks", parts.most, parts.row,
           mail.ranks);
    switch (kernel) {
    case COLLECTIVE_GATHER_SMALL:
        return launch_overlapped(stream, exchange_blocks, exchange_threads, 0, all_gather_small, out, in, parts, mail);
    case COLLECTIVE_GATHER_LARGE:
        return launch_overlapped(stream, exchange_blocks, exchange_threads, 0, all_gather_large, out, in, parts, mail);
    default: return VB_UNSUPPORTED;
    }
}

} // namespace vb
