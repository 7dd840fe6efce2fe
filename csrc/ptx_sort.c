/* ptx_sort.c: the first k elements of each line of an array, in order, on GPUs whose kernels the driver compiles. The
 * algorithm merges sorted tiles. Keys of 64 bits have the value's bits above the complement of its place, so that no
 * two are equal. A block sorts a tile of keys in shared memory, of several short lines or a part of a line (Batcher
 * 1968). Tiles of a line are merged in pairs, by parts that merge path finds (Green, McColl & Bader 2012). */
#include <stdlib.h>

#include "ptx_strided.h"

enum { TILE = 4096, WORKSPACE = 32 << 20 }; /* keys */

/* Element `index` of a line as `key`; x1[0] has its bits. */
static const char make_key[] = VB_PTX_SOURCE({
    u32 word = 0;
    if (FLOATS) {
        word = bits(x1[0]);
        if (x1[0] == 0.0) word = 0;
        word = word > 0x7fffffff ? ~word : word ^ 0x80000000;
        if (x1[0] != x1[0]) word = 0xffffffff;
    } else {
        word = u32(x1[0]) ^ 0x80000000;
    }
    if (DESCENDING == 0) word = ~word;
    key = u64(word) << 32 | u64(0xffffffff - index);
});

/* A block a tile: of several lines where they are short, or number block.x % tiles of a line. Each line has `part` + 1
 * places in it. */
static const char tile_head[] = VB_PTX_SOURCE(
    const W = 1;
    const SIZE = 1 << TILE_LOG;
    const PART = (1 << LINE_LOG) - 1;
    shared u64 keys[SIZE];
    u32 here = 1;
    u64 tile = u64(block.x) % tiles, first_line = first + (u64(block.x) / tiles << TILE_LOG - LINE_LOG);
    for (u32 i = thread.x; i < SIZE; i += 256) {
        u64 line = first_line + (i >> LINE_LOG), at = tile * SIZE + (i & PART), key = 0;
        if (line < lines && at < n) {
            u32 index = u32(at);
            u64 at1 = at * in_step;
            LINE_OF_IN
            MAKE_KEY
        }
        keys[i] = key;
    }
    for (u32 run = 1; run <= LINE_LOG; run += 1) {
        for (u32 distance = run; distance > 0; distance -= 1) {
            barrier();
            for (u32 i = thread.x; i < SIZE / 2; i += 256) {
                u32 step = 1 << distance - 1;
                u32 low = (i >> distance - 1 << distance) | (i & step - 1);
                u64 x = keys[low], y = keys[low + step];
                u32 upwards = (low & PART) >> run & 1;
                bool exchange = upwards == 0 && x < y || upwards != 0 && x > y;
                if (exchange) {
                    keys[low] = y;
                    keys[low + step] = x;
                }
            }
        }
    }
    barrier();
    for (u32 i = thread.x; i < SIZE; i += 256) {
        u64 line = first_line + (i >> LINE_LOG), key = keys[i];
        if (MANY) {
            to[((line - first) * tiles + tile) * SIZE + i] = key;
        } else {
            u64 at = u64(i & PART);
            if (line < lines && at < k) {
                WRITE_SORTED
            }
        }
    }
);

/* Merges runs of `run` keys, of which the first k count, in pairs of `parts` blocks each. LAST: to the results. */
static const char merge_head[] = VB_PTX_SOURCE(
    const W = 1;
    const SIZE = 4096;
    shared u64 keys[SIZE], bounds[2];
    u32 here = 1;
    u64 number = u64(block.x) / (pairs * parts), pair = u64(block.x) / parts % pairs;
    u64 line_size = tiles * SIZE, start = pair * 2 * run, line = first + number;
    u64 a_size = min(min(run, line_size - start), k), b_size = 0;
    if (line_size > start + run) b_size = min(min(run, line_size - start - run), k);
    u64 begin = u64(block.x) % parts * SIZE;
    u64 end = min(min(begin + SIZE, a_size + b_size), k);
    if (begin < end) {
        u64 *a = from;
        a += number * line_size + start;
        u64 *b = a;
        b += run;
        if (thread.x < 2) {
            u64 count = thread.x == 0 ? begin : end;
            u64 low = count > b_size ? count - b_size : 0, high = min(count, a_size);
            while (low < high) {
                u64 middle = (low + high) >> 1;
                if (a[middle] > b[count - 1 - middle]) low = middle + 1;
                else high = middle;
            }
            bounds[thread.x] = low;
        }
        barrier();
        u64 a_first = bounds[0];
        u64 b_first = begin - a_first;
        u32 a_count = u32(bounds[1] - a_first), count = u32(end - begin);
        for (u32 i = thread.x; i < count; i += 256) {
            u64 key = 0;
            if (i < a_count) key = a[a_first + i];
            else key = b[b_first + (i - a_count)];
            keys[i] = key;
        }
        barrier();
        for (u32 i = thread.x; i < count; i += 256) {
            u64 key = keys[i];
            u32 base = i < a_count ? a_count : 0, low = 0;
            u32 high = i < a_count ? count - a_count : a_count;
            while (low < high) {
                u32 middle = (low + high) / 2;
                if (keys[base + middle] > key) low = middle + 1;
                else high = middle;
            }
            u32 place = i < a_count ? i + low : i - a_count + low;
            if (LAST) {
                u64 at = begin + place;
                WRITE_SORTED
            } else {
                to[number * line_size + start + begin + place] = key;
            }
        }
    }
);

/* The place of a line in a view is added to `at`. */
static void say_line(vb_jit_text *t, int view, const char *at, int rank) {
    vb_jit_say(t, "{ u64 rest = line, next = 0;\n");
    for (int d = rank - 1; d > 0; d--)
        vb_jit_say(t, "next = rest / size%d;\n%s += (rest - next * size%d) * line%d_%d;\nrest = next;\n",
                   d, at, d, view, d);
    vb_jit_say(t, "%s += rest * line%d_0; }\n", at, view);
}

typedef struct sorting {
    vb_sort_lines l;
    int64_t first, lines, tiles, run, pairs, parts;
    void *from, *to;
    bool descending;
    int line_log, tile_log;
} sorting;

static vb_status launch(sorting *s, const char *head, bool many, bool last, int64_t blocks, vb_stream *stream) {
    vb_sort_lines *const l = &s->l;
    vb_view *const views[] = {&l->values, &l->in, &l->indices};
    vb_jit_text t = {0}, line = {0}, writes = {0};
    say_line(&line, 1, "at1", l->rank);
    vb_jit_say_load(&line, 1, &l->in, 1, false);
    vb_jit_say(&writes, "u32 index = 0xffffffff - u32(key);\n");
    if (l->indices.data) {
        vb_jit_say(&writes, "{ u64 at2 = at * indices_step;\n");
        say_line(&writes, 2, "at2", l->rank);
        vb_jit_say(&writes, "s32 x2[1];\nx2[0] = s32(index);\n");
        vb_jit_say_store(&writes, 2, &l->indices, 1);
        vb_jit_say(&writes, "}\n");
    }
    if (l->values.data) {
        vb_jit_say(&writes, "{ u64 at0 = at * values_step, at1 = u64(index) * in_step;\n");
        say_line(&writes, 0, "at0", l->rank);
        say_line(&writes, 1, "at1", l->rank);
        vb_jit_say_load(&writes, 1, &l->in, 1, false);
        vb_jit_say(&writes, "%s x0[1];\nx0[0] = x1[0];\n", vb_is_float(l->in.type) ? "f32" : "s32");
        vb_jit_say_store(&writes, 0, &l->values, 1);
        vb_jit_say(&writes, "}\n");
    }
    vb_jit_say(&t, "kernel ENTRY(u8 *data0, u8 *data1, u8 *data2, u64 *to, u64 *from, u64 first, u64 lines, u64 n, "
                   "u64 k, u64 tiles, u64 run, u64 pairs, u64 parts, u64 values_step, u64 in_step, u64 indices_step");
    for (int d = 1; d < l->rank; d++) vb_jit_say(&t, ", u64 size%d", d);
    for (int v = 0; v < 3; v++)
        for (int d = 0; d < l->rank; d++) vb_jit_say(&t, ", u64 line%d_%d", v, d);
    vb_jit_say(&t, ") threads(256) {\nHEAD\n}\n");
    void *parameters[16 + 4 * VB_MAX_DIMS] = {&l->values.data, &l->in.data, &l->indices.data, &s->to, &s->from,
        &s->first, &s->lines, &l->n, &l->k, &s->tiles, &s->run, &s->pairs, &s->parts, &l->values_step, &l->in_step,
        &l->indices_step};
    int made = 16;
    for (int d = 1; d < l->rank; d++) parameters[made++] = &l->sizes[d];
    for (int v = 0; v < 3; v++)
        for (int d = 0; d < l->rank; d++) parameters[made++] = &views[v]->strides[d];
    vb_status status = VB_OUT_OF_MEMORY;
    if (t.data && line.data && writes.data) {
        /* The texts of lines are part of the kernel's, by which it is found again. */
        vb_jit_text all = {0};
        const vb_jit_filling inner = {.texts = {{"HEAD", head}, {"MAKE_KEY", make_key}, {"LINE_OF_IN", line.data},
                                                {"WRITE_SORTED", writes.data}}};
        if (vb_jit_fill(&all, t.data, &inner)) {
            const vb_jit_filling f = {.source = "", .written = all.data,
                .constants = {{"FLOATS", vb_is_float(l->in.type)}, {"DESCENDING", s->descending},
                              {"LINE_LOG", s->line_log}, {"TILE_LOG", s->tile_log}, {"MANY", many}, {"LAST", last}}};
            const char *const name = head == tile_head ? "ptx_sort_tile" : "ptx_sort_merge";
            status = vb_jit_launch(stream, name, &f, blocks, 1, 1, 256, parameters);
        }
        free(all.data);
    }
    free(t.data), free(line.data), free(writes.data);
    return status;
}

vb_status vb_jit_sort(const vb_sort_args *args, vb_stream *stream) {
    sorting s = {.descending = args->descending != 0};
    vb_sort_split(&s.l, args);
    s.lines = s.l.lines;
    s.tiles = (s.l.n + TILE - 1) / TILE;
    while (1 << s.line_log < s.l.n && 1 << s.line_log < TILE) s.line_log++;
    s.tile_log = s.line_log > 10 ? s.line_log : 10;
    if (s.tiles == 1) {
        const int64_t together = (int64_t)1 << (s.tile_log - s.line_log);
        return launch(&s, tile_head, false, false, (s.lines + together - 1) / together, stream);
    }
    /* Slices of lines bound the workspace. A round reads one half of it and writes the other. */
    const int64_t line_size = s.tiles * TILE, slice = WORKSPACE / (2 * line_size) > 1 ? WORKSPACE / (2 * line_size) : 1;
    for (int64_t first = 0; first < s.l.lines; first += slice) {
        const int64_t count = s.l.lines - first < slice ? s.l.lines - first : slice;
        void *memory = NULL;
        vb_status status = vb_jit_workspace(&memory, 2 * count * line_size * 8, stream);
        if (status != VB_OK) return status;
        s.first = first, s.lines = first + count, s.run = 0;
        s.to = memory, s.from = (char *)memory + count * line_size * 8;
        status = launch(&s, tile_head, true, false, count * s.tiles, stream);
        for (s.run = TILE; status == VB_OK && s.run < line_size; s.run *= 2) {
            void *const swap = s.from;
            s.from = s.to, s.to = swap;
            const int64_t both = 2 * s.run < line_size ? 2 * s.run : line_size, counts = both < s.l.k ? both : s.l.k;
            s.pairs = (line_size + 2 * s.run - 1) / (2 * s.run);
            s.parts = (counts + TILE - 1) / TILE;
            status = launch(&s, merge_head, false, s.pairs == 1, count * s.pairs * s.parts, stream);
        }
        if (status != VB_OK) return status;
    }
    return VB_OK;
}
