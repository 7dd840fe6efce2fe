/* cpu_sort.c: lines of strided arrays in order.
 *
 * An element becomes a key of 64 bits: its value above its place. The value is mapped to 32 bits of the same order.
 * No two keys are equal, so that the order of the keys is the stable order. Many keys are sorted by their digits (radix
 * sort, the least significant first), few by insertion. The first k of many are kept in a buffer while the line is
 * read. */
#include "cpu.h"
#include "strided.h"

enum { FEW = 48, DIGIT = 11, BINS = 1 << DIGIT, MOST_CHUNKS = 64, LONG_LINE = 1 << 16 };

typedef struct sort_job {
    vb_sort_lines lines;
    bool descending;
    uint64_t *scratch; /* 2 * capacity keys a worker */
    int64_t capacity;
} sort_job;

/* ---- keys -------------------------------------------------------------------------------------------------------- */

static inline uint32_t float_order(float f) {
    if (f != f) return UINT32_MAX;
    const uint32_t bits = f == 0 ? 0 : vb_float_bits(f);
    return bits ^ ((uint32_t)((int32_t)bits >> 31) | 0x80000000);
}

/* The keys of places first..first+n-1 of a line, which begins at element `from`. */
static void make_keys(uint64_t *keys, const sort_job *j, int64_t from, int64_t first, int64_t n) {
    const vb_view *const in = &j->lines.in;
    const int64_t step = j->lines.in_step;
    const uint32_t flip = j->descending ? UINT32_MAX : 0;
#define KEYS(T, order) \
    { \
        const T *const p = (const T *)in->data + from + first * step; \
        for (int64_t i = 0; i < n; i++) { \
            const T x = p[i * step]; \
            keys[i] = (uint64_t)((order) ^ flip) << 32 | (uint32_t)(first + i); \
        } \
        break; \
    }
    switch (in->type) {
    case VB_F32: KEYS(float, float_order(x))
    case VB_F16: KEYS(uint16_t, float_order(vb_half_float(x)))
    case VB_BF16: KEYS(uint16_t, float_order(vb_bfloat_float(x)))
    case VB_I32: KEYS(int32_t, (uint32_t)x ^ 0x80000000)
    case VB_I8: KEYS(int8_t, (uint32_t)(x + 128))
    case VB_U8: KEYS(uint8_t, (uint32_t)x)
    default: KEYS(uint8_t, (uint32_t)(x != 0))
    }
#undef KEYS
}

static void write_line(const sort_job *j, int64_t line, const uint64_t *keys, int64_t first, int64_t n) {
    const vb_sort_lines *l = &j->lines;
    if (l->indices.data) {
        int32_t *const p = (int32_t *)l->indices.data + vb_place(&l->indices, l->sizes, l->rank, line);
        for (int64_t i = 0; i < n; i++) p[(first + i) * l->indices_step] = (int32_t)(uint32_t)keys[i];
    }
    if (!l->values.data) return;
    const int64_t to = vb_place(&l->values, l->sizes, l->rank, line) + first * l->values_step;
    const int64_t from = vb_place(&l->in, l->sizes, l->rank, line);
#define COPY(T) \
    for (int64_t i = 0; i < n; i++) \
        ((T *)l->values.data)[to + i * l->values_step] = ((const T *)l->in.data)[from + (uint32_t)keys[i] * l->in_step]
    switch (vb_element_bytes(l->in.type)) {
    case 4: COPY(uint32_t); break;
    case 2: COPY(uint16_t); break;
    default: COPY(uint8_t); break;
    }
#undef COPY
}

/* ---- one line by one worker -------------------------------------------------------------------------------------- */

/* Counts the digits, makes the counts places, and moves the keys there. */
static void count_digits(uint32_t *counts, const uint64_t *keys, int64_t n, int shift) {
    memset(counts, 0, BINS * sizeof *counts);
    for (int64_t i = 0; i < n; i++) counts[keys[i] >> shift & (BINS - 1)]++;
}

/* counts[c][digit] becomes where chunk c has its next key of the digit. False where all keys have one digit. */
static bool place_digits(uint32_t (*counts)[BINS], int64_t chunks, int64_t n) {
    uint32_t place = 0;
    for (int b = 0; b < BINS; b++) {
        uint32_t all = place;
        for (int64_t c = 0; c < chunks; c++) {
            const uint32_t count = counts[c][b];
            counts[c][b] = place;
            place += count;
        }
        if ((int64_t)(place - all) == n) return false;
    }
    return true;
}

static void move_keys(uint64_t *to, uint32_t *places, const uint64_t *keys, int64_t n, int shift) {
    for (int64_t i = 0; i < n; i++) to[places[keys[i] >> shift & (BINS - 1)]++] = keys[i];
}

/* Returns the sorted keys: `keys`, or `other` of as many. Keys of one upper half are in order of the lower half. */
static uint64_t *sort_keys(uint64_t *keys, uint64_t *other, int64_t n) {
    if (n <= FEW) {
        for (int64_t i = 1; i < n; i++) {
            const uint64_t key = keys[i];
            int64_t at = i;
            for (; at > 0 && keys[at - 1] > key; at--) keys[at] = keys[at - 1];
            keys[at] = key;
        }
        return keys;
    }
    uint32_t counts[1][BINS];
    for (int shift = 32; shift < 64; shift += DIGIT) {
        count_digits(counts[0], keys, n, shift);
        if (!place_digits(counts, 1, n)) continue;
        move_keys(other, counts[0], keys, n, shift);
        uint64_t *const swap = keys;
        keys = other, other = swap;
    }
    return keys;
}

/* The first k keys of a line of which k is a small part. `held` keys are sorted each time that the buffer is full.
 * After that only keys before the k-th matter. */
static uint64_t *first_keys(uint64_t *keys, uint64_t *other, const sort_job *j, int64_t from) {
    enum { PIECE = 256 };
    const int64_t n = j->lines.n, k = j->lines.k;
    uint64_t piece[PIECE], bar = UINT64_MAX;
    int64_t held = 0;
    for (int64_t first = 0; first < n; first += PIECE) {
        const int64_t count = vb_min(PIECE, n - first);
        make_keys(piece, j, from, first, count);
        for (int64_t i = 0; i < count; i++) {
            if (piece[i] >= bar) continue;
            keys[held++] = piece[i];
            if (held < j->capacity) continue;
            uint64_t *const sorted = sort_keys(keys, other, held);
            if (sorted == other) other = keys, keys = sorted;
            held = k;
            bar = keys[k - 1];
        }
    }
    return sort_keys(keys, other, held);
}

static void sort_range(void *context, int worker, int64_t begin, int64_t end) {
    const sort_job *j = context;
    const vb_sort_lines *l = &j->lines;
    uint64_t *const keys = j->scratch + worker * 2 * j->capacity, *const other = keys + j->capacity;
    for (int64_t line = begin; line < end; line++) {
        const int64_t from = vb_place(&l->in, l->sizes, l->rank, line);
        const uint64_t *sorted;
        if (j->capacity < l->n) {
            sorted = first_keys(keys, other, j, from);
        } else {
            make_keys(keys, j, from, 0, l->n);
            sorted = sort_keys(keys, other, l->n);
        }
        write_line(j, line, sorted, 0, l->k);
    }
}

/* ---- one line by all workers ------------------------------------------------------------------------------------- */

typedef struct long_job {
    const sort_job *job;
    int64_t line, from, chunks, chunk; /* keys of a chunk */
    uint64_t *keys, *other;
    uint32_t (*counts)[BINS];
    int shift;
    enum { MAKE, COUNT, MOVE, WRITE } step;
} long_job;

static void long_range(void *context, int worker, int64_t begin, int64_t end) {
    (void)worker;
    const long_job *j = context;
    for (int64_t c = begin; c < end; c++) {
        const int64_t last = j->step == WRITE ? j->job->lines.k : j->job->lines.n;
        const int64_t first = c * j->chunk, n = vb_min(j->chunk, last - first);
        if (n <= 0 && j->step != COUNT) continue;
        switch (j->step) {
        case MAKE: make_keys(j->keys + first, j->job, j->from, first, n); break;
        case COUNT: count_digits(j->counts[c], j->keys + first, n, j->shift); break;
        case MOVE: move_keys(j->other, j->counts[c], j->keys + first, n, j->shift); break;
        case WRITE: write_line(j->job, j->line, j->keys + first, first, n); break;
        }
    }
}

static void sort_long_line(const sort_job *job, int64_t line, int64_t chunks, vb_stream *stream) {
    const vb_sort_lines *l = &job->lines;
    long_job j = {.job = job, .line = line, .chunks = chunks, .chunk = (l->n + chunks - 1) / chunks};
    j.from = vb_place(&l->in, l->sizes, l->rank, line);
    j.keys = job->scratch, j.other = j.keys + l->n;
    j.counts = (uint32_t(*)[BINS])(void *)(j.other + l->n);
    j.step = MAKE;
    vb_cpu_parallel(stream, chunks, 1, long_range, &j);
    for (j.shift = 32; j.shift < 64; j.shift += DIGIT) {
        j.step = COUNT;
        vb_cpu_parallel(stream, chunks, 1, long_range, &j);
        if (!place_digits(j.counts, chunks, l->n)) continue;
        j.step = MOVE;
        vb_cpu_parallel(stream, chunks, 1, long_range, &j);
        uint64_t *const swap = j.keys;
        j.keys = j.other, j.other = swap;
    }
    j.step = WRITE;
    vb_cpu_parallel(stream, chunks, 1, long_range, &j);
}

vb_status vb_cpu_sort(const vb_sort_args *args, vb_stream *stream) {
    sort_job job = {.descending = args->descending};
    vb_sort_lines *const l = &job.lines;
    vb_sort_split(l, args);
    const int64_t threads = vb_cpu_pool_threads(vb_cpu_device_of(stream)->pool);
    const bool few = l->k <= l->n / 16;
    job.capacity = few ? vb_min(l->n, vb_max(4 * l->k, 1024)) : l->n;
    const bool split = !few && l->n >= LONG_LINE;
    const int64_t chunks = vb_min(threads, MOST_CHUNKS);
    const int64_t bytes = split ? 16 * l->n + chunks * (int64_t)sizeof(uint32_t[BINS]) : threads * 16 * job.capacity;
    job.scratch = vb_cpu_scratch(stream, bytes);
    if (!job.scratch) return VB_OUT_OF_MEMORY;
    if (split) {
        for (int64_t line = 0; line < l->lines; line++) sort_long_line(&job, line, chunks, stream);
    } else {
        vb_cpu_parallel(stream, l->lines, vb_cpu_grain(l->n * 8), sort_range, &job);
    }
    return VB_OK;
}
