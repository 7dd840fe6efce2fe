/* ptx_greatest.c: argmax and top-k: the greatest number of a row, and its place. */
#include "ptx_device.h"

/* The best of the WARPS warps of a block, of keys that order as their numbers do: of equal keys the first. */
const char vb_jit_best[] = VB_PTX_SOURCE(
    unroll (round : 2) {
        unroll (s : 5) {
            u32 other = shuffle_xor(best, 16 >> s), other_at = shuffle_xor(best_at, 16 >> s);
            if (other_at != 0xffffffff && (best_at == 0xffffffff || other > best || other == best &&
                other_at < best_at)) {
                best = other;
                best_at = other_at;
            }
        }
        if (round == 0) {
            if (lane == 0) {
                keys[warp] = best;
                places[warp] = best_at;
            }
            barrier();
            best = keys[lane % WARPS];
            best_at = places[lane % WARPS];
        }
    }
);

/* The place of the greatest number, of equal ones the first, and where VALUES is 1 the number; NaN is above all. A
 * thread looks at every 1024th vector, then the block compares its threads' results. */
static const char argmax[] = VB_PTX_SOURCE(
kernel ENTRY(f32 *values, s32 *ids, f32 *input, u64 cols) threads(1024) {
    start_next();
    wait_for_previous();
    shared u32 keys[WARPS], places[WARPS];
    u32 lane = thread.x % 32, warp = thread.x / 32, n = u32(cols), best = 0, best_at = 0xffffffff;
    f32 *in = input;
    in += u64(block.x) * cols;
    for (u32 start = thread.x * EACH; start < n; start += 1024 * EACH * PARTS) {
        f32 v[PARTS][EACH];
        unroll (p : PARTS) {
            u32 at = start + p * (1024 * EACH);
            if (at < n) {
                if (EACH == 4) load(v[p], in[at]);
                else v[p][0] = in[at];
            }
        }
        unroll (p : PARTS) {
            u32 at = start + p * (1024 * EACH);
            if (at < n) {
                unroll (e : EACH) {
                    u32 word = bits(v[p][e] + 0.0);
                    u32 key = word > 0x7fffffff ? ~word : word | 0x80000000;
                    if (v[p][e] != v[p][e]) key = 0xffffffff;
                    if (best_at == 0xffffffff || key > best) {
                        best = key;
                        best_at = at + e;
                    }
                }
            }
        }
    }
    REDUCE
    if (thread.x == 0) {
        ids[block.x] = s32(best_at);
        if (VALUES) values[block.x] = in[best_at];
    }
});

static vb_status greatest(float *values, int32_t *ids, const float *in, int64_t rows, int64_t cols, vb_stream *stream) {
    const bool vectors = (uintptr_t)in % 16 == 0 && cols % 4 == 0;
    if (cols > INT32_MAX - (1 << 20)) return VB_UNSUPPORTED;
    const vb_jit_filling f = {.source = argmax,
                              .constants = {{"EACH", vectors ? 4 : 1}, {"PARTS", 4}, {"VALUES", values != NULL},
                                            {"WARPS", 32}},
                              .texts = {{"REDUCE", vb_jit_best}}};
    return vb_jit_launch(stream, "ptx_argmax", &f, rows, 1, 1, 1024, VB_JIT_PARAMETERS(&values, &ids, &in, &cols));
}

vb_status vb_jit_argmax(int32_t *out, const float *in, int64_t rows, int64_t cols, vb_stream *stream) {
    return greatest(NULL, out, in, rows, cols, stream);
}

/* Sorted tiles of a row are merged up to the k-th number (ptx_sort.c): in the order of argmax. */
vb_status vb_jit_top_k(float *values, int32_t *ids, const float *in, int64_t rows, int64_t cols, int64_t k,
    vb_stream *stream) {
    if (cols > INT32_MAX) return VB_UNSUPPORTED;
    if (k == 1) return greatest(values, ids, in, rows, cols, stream);
    return vb_jit_sort(&VB_ARGS(vb_sort_args, .values = {values, VB_F32, {k, 1}}, .indices = {ids, VB_I32, {k, 1}},
                                .in = {(void *)(uintptr_t)in, VB_F32, {cols, 1}}, .sizes = {rows, cols},
                                .out_sizes = {rows, k}, .rank = 2, .dim = 1, .descending = 1),
                       stream);
}
