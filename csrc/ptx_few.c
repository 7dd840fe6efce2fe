/* ptx_few.c: products of packed weights with one row of x, and with a few, each by blocks of its own: linear,
 * norm_linear, linear_add, norm_swiglu and norm_qkv of a token.
 *
 * A block of eight warps rounds x to 15 bits, 32 elements a scale, in shared memory: bytes `high` and `low` with
 * x = scale (128 high + low). A lane multiplies units (ptx_packed.c) by dp4a; a warp computes R rows at a time. Its
 * first units are on their way while x is rounded. The factor of a norm is multiplied at the end. */
#include "ptx_packed.h"

enum { WARPS = 8, THREADS = 32 * WARPS, MOST_UNITS = VB_JIT_FEW_UNITS };

/* Loads the units of lanes from `step` on, of the R rows of an item: rows behind the last read the last.
 * ADDRESS sets `at` to the beginning of row r of the item. */
static const char fetch[] = VB_PTX_SOURCE(
    unroll (r : R) {
        u64 at = 0;
        ADDRESS
        u8 *row = w;
        row += at;
        u32 *words = row;
        u16 *halves = row;
        unroll (s : S) {
            u32 unit = min(step + lane + s * 32, UNITS - 1);
            load_once(code[r][s], words[unit * 4]);
            if (BITS == 8) load_once(more[r][s], words[unit * 4 + UNITS * 4]);
            if (BITS == 5) high[r][s][0] = words[unit + HIGH_AT / 4];
            if (BITS == 6) load_once(high[r][s], words[unit * 2 + HIGH_AT / 4]);
            if (SCALES == 1) scale[r][s][0] = words[unit + SCALE_AT / 4];
            else scale[r][s][0] = halves[unit + SCALE_AT / 2];
            if (SCALES > 1) scale[r][s][1] = words[unit / 8 + BLOCK_AT / 4];
        }
    }
);

/* x in shared memory: `part` gets the warps' sums of squares. */
static const char prepare[] = VB_PTX_SOURCE(
    f32 squares = 0;
    for (u32 start = thread.x; start < PADDED * 8; start += 256 * PARTS) {
        f32 all[PARTS][4] = 0, factors[PARTS][4] = 1;
        unroll (p : PARTS) {
            u32 i = start + p * 256;
            if (i < UNITS * 8) {
                load(all[p], x[i * 4]);
                if (NORM) {
                    if (norms != 0) load(factors[p], norm[i * 4]);
                }
            }
        }
        unroll (p : PARTS) {
            u32 i = start + p * 256;
            f32 v[4];
            unroll (e : 4) {
                v[e] = all[p][e];
                if (NORM) {
                    squares = fma(v[e], v[e], squares);
                    v[e] = v[e] * factors[p][e];
                }
            }
            u32 most = 0;
            unroll (e : 4) most = max(most, bits(abs(v[e])));
            unroll (e : 3) most = max(most, shuffle_xor(most, 4 >> e));
            f32 greatest = from_bits(most);
            f32 inverse = greatest > 1e-30 ? 16256.0 / greatest : 0.0;
            f32 unit_scale = greatest / 16256.0;
            u32 high_word = 0, low_word = 0;
            s32 total = 0;
            unroll (e : 4) {
                s32 q = s32(round(v[e] * inverse));
                s32 upper = q + 64 >> 7;
                total += q;
                high_word = high_word | (u32(upper) & 255) << e * 8;
                low_word = low_word | (u32(q - upper * 128) & 255) << e * 8;
            }
            f32 sixteen = f32(total) * unit_scale;
            unroll (e : 2) sixteen += shuffle_xor(sixteen, 2 >> e);
            u32 unit = i / 8, j = i % 8;
            x_words[j / 4][unit][j % 4] = high_word;
            x_words[2 + j / 4][unit][j % 4] = low_word;
            if (j == 0) x_scales[unit][0] = unit_scale;
            if (j % 4 == 0) x_scales[unit][1 + j / 4] = sixteen;
        }
    }
    if (NORM) {
        unroll (e : 5) squares += shuffle_xor(squares, 16 >> e);
        if (lane == 0) part[warp] = squares;
    }
    barrier();
    f32 factor = 1.0;
    if (NORM) {
        squares = 0;
        unroll (e : 8) squares += part[e];
        factor = rcp(sqrt(squares / f32(UNITS * 32) + eps));
    }
);

/* All items of a warp: `item` is its first, `stride` the way to the next. STORE is the work of lane 0 on the sums of
 * the item `ended`. */
static const char product[] = VB_PTX_SOURCE({
    start_next();
    f32 sum[R] = 0;
    u32 code[R][S][4], more[R][S][4], high[R][S][2], scale[R][S][2];
    u32 step = 0;
    if (item < items) {
        FETCH
    }
    wait_for_previous();
    PREPARE
    while (item < items) {
        unroll (s : S) {
            u32 unit = step + lane + s * 32;
            u32 x_high[8], x_low[8];
            f32 x_scale[4];
            load(x_scale, x_scales[unit][0]);
            unroll (h : 2) {
                u32 quad[4];
                load(quad, x_words[h][unit][0]);
                unroll (j : 4) x_high[h * 4 + j] = quad[j];
                load(quad, x_words[2 + h][unit][0]);
                unroll (j : 4) x_low[h * 4 + j] = quad[j];
            }
            unroll (r : R) {
                s32 upper[2] = 0, lower[2] = 0;
                unroll (h : 2) unroll (j : 4) {
                    u32 v = code[r][s][j];
                    if (BITS == 8 && h == 1) v = more[r][s][j];
                    if (BITS < 8) v = v >> h * 4 & 0x0f0f0f0f;
                    if (BITS == 5) v = v | (high[r][s][0] >> h * 4 + j & 0x01010101) << 4;
                    if (BITS == 6) v = v | (high[r][s][h] >> j * 2 & 0x03030303) << 4;
                    upper[h] = dp4a(v, x_high[h * 4 + j], upper[h]);
                    lower[h] = dp4a(v, x_low[h * 4 + j], lower[h]);
                }
                u32 word = scale[r][s][0];
                if (SCALES == 3) {
                    f32 d = f16_low(scale[r][s][1]);
                    unroll (h : 2) {
                        f32 product = f32(upper[h] * 128 + lower[h]) * x_scale[0] - x_scale[1 + h] * f32(ZERO);
                        sum[r] = fma(d * f32(s32(word << 24 - h * 8) >> 24), product, sum[r]);
                    }
                } else {
                    f32 product = f32((upper[0] + upper[1]) * 128 + (lower[0] + lower[1])) * x_scale[0];
                    f32 total = x_scale[1] + x_scale[2];
                    if (SCALES == 0) {
                        if (ZERO > 0) product = product - total * f32(ZERO);
                        sum[r] = fma(f16_low(word), product, sum[r]);
                    }
                    if (SCALES == 1) sum[r] = fma(f16_low(word), product, fma(f16_high(word), total, sum[r]));
                    if (SCALES == 2) {
                        u32 halves_of = scale[r][s][1];
                        f32 d = f16_low(halves_of) * f32(word & 255), least = f16_high(halves_of) * f32(word >> 8);
                        sum[r] = fma(d, product, sum[r]) - least * total;
                    }
                }
            }
        }
        step += 32 * S;
        u32 ended = item;
        bool whole = step >= UNITS;
        if (whole) {
            step = 0;
            item += stride;
        }
        if (item < items) {
            FETCH
        }
        if (whole) {
            unroll (r : R) {
                unroll (e : 5) sum[r] += shuffle_xor(sum[r], 16 >> e);
                sum[r] = sum[r] * factor;
            }
            STORE
            unroll (r : R) sum[r] = 0;
        }
    }
});

/* Rows ended * R + r of y = x W^T + bias + add. */
static const char rows[] = VB_PTX_SOURCE(
kernel ENTRY(f32 *y_ptr, f32 *x_ptr, f32 *norm, u8 *w, f32 *bias, f32 *add_ptr, u32 items, u32 rows, u32 norms,
    u32 biases, u32 adds, f32 eps) threads(256) {
    shared u32 x_words[4][PADDED][4];
    shared f32 x_scales[PADDED][4], part[8];
    u32 lane = thread.x % 32, warp = thread.x / 32, stride = blocks.x * 8, item = block.x * 8 + warp;
    f32 *x = x_ptr;
    x += block.y * (UNITS * 32);
    f32 *y = y_ptr;
    y += u64(block.y) * rows;
    f32 *add = add_ptr;
    add += u64(block.y) * rows;
    PRODUCT
});
static const char row_address[] = VB_PTX_SOURCE(at = u64(min(item * R + r, rows - 1)) * ROW_BYTES;);
static const char row_store[] = VB_PTX_SOURCE(
    if (lane == 0) {
        unroll (r : R) {
            u32 to = ended * R + r;
            if (to < rows) {
                f32 v = sum[r];
                if (biases != 0) v += bias[to];
                if (adds != 0) v += add[to];
                y[to] = v;
            }
        }
    }
);

/* y = silu(gate) up of the rows of two weights, `up_at` bytes apart. */
static const char swiglu[] = VB_PTX_SOURCE(
kernel ENTRY(f32 *y_ptr, f32 *x_ptr, f32 *norm, u8 *w, u64 up_at, u32 items, u32 norms, f32 eps) threads(256) {
    shared u32 x_words[4][PADDED][4];
    shared f32 x_scales[PADDED][4], part[8];
    u32 lane = thread.x % 32, warp = thread.x / 32, stride = blocks.x * 8, item = block.x * 8 + warp;
    f32 *x = x_ptr;
    x += block.y * (UNITS * 32);
    f32 *y = y_ptr;
    y += u64(block.y) * items;
    PRODUCT
});
static const char swiglu_address[] = VB_PTX_SOURCE(at = u64(item) * ROW_BYTES; if (r == 1) at += up_at;);
static const char swiglu_store[] = VB_PTX_SOURCE(
    if (lane == 0) y[ended] = sum[0] * rcp(1.0 + exp2(sum[0] * -1.4426950408889634)) * sum[1];
);

/* Queries, keys and values of a token. An item is two rows of a head, and a warp has one item.
 * The rows rotate with each other, or are neighbours. The first blocks compute queries and keys, the others values.
 * The weights of values may be of another type (V_...). Keys and values go to the cache, or with FRESH to rows of their
 * own.
 * k_at and v_at are the places of the other weights, counted from wq. */
static const char qkv[] = VB_PTX_SOURCE(
kernel ENTRY(f32 *q_ptr, TYPE *k_ptr, TYPE *v_ptr, f32 *x_ptr, f32 *norm, u8 *w, u64 k_at, u64 v_at, f32 *q_bias,
    f32 *k_bias, f32 *v_bias, f32 *cosines, f32 *sines, s32 *positions, s32 *sequences, u32 first_blocks, u32 seq,
    u32 q_items, u32 k_items, u32 norms, u32 biases, u32 named, u32 table_rows, u32 capacity, f32 eps) threads(256) {
    shared u32 x_words[4][PADDED][4];
    shared f32 x_scales[PADDED][4], part[8];
    u32 lane = thread.x % 32, warp = thread.x / 32, stride = blocks.x * 8, kv_heads = k_items / (DIM / 2);
    f32 *x = x_ptr;
    x += block.y * (UNITS * 32);
    u32 both = q_items + k_items;
    u32 item = block.x < first_blocks ? block.x * 8 + warp : both + (block.x - first_blocks) * 8 + warp;
    u32 which = item < q_items ? 0 : (item < both ? 1 : 2);
    u32 of = which == 0 ? item : (which == 1 ? item - q_items : item - both);
    u32 pair = of % (DIM / 2), head = of / (DIM / 2), near = pair * 2, far = pair * 2 + 1;
    bool turns = which < 2 && pair < HALF;
    if (NEOX) {
        if (turns) {
            near = pair;
            far = pair + HALF;
        }
    }
    if (block.x < first_blocks) {
        u32 items = both;
        PRODUCT
    } else {
        const BITS = V_BITS;
        const SCALES = V_SCALES;
        const ZERO = V_ZERO;
        const HIGH_AT = V_HIGH_AT;
        const SCALE_AT = V_SCALE_AT;
        const BLOCK_AT = V_BLOCK_AT;
        const ROW_BYTES = V_ROW_BYTES;
        u32 items = both + k_items;
        PRODUCT
    }
});
static const char qkv_address[] = VB_PTX_SOURCE(
    at = u64(head * DIM + (r == 0 ? near : far)) * ROW_BYTES;
    if (which == 1) at += k_at;
    if (which == 2) at += v_at;
);
static const char qkv_store[] = VB_PTX_SOURCE(
    if (lane == 0) {
        u32 from = head * DIM;
        f32 a = sum[0], b = sum[1];
        if (which == 0 && (biases & 1) != 0) {
            a += q_bias[from + near];
            b += q_bias[from + far];
        }
        if (which == 1 && (biases & 2) != 0) {
            a += k_bias[from + near];
            b += k_bias[from + far];
        }
        if (which == 2 && (biases & 4) != 0) {
            a += v_bias[from + near];
            b += v_bias[from + far];
        }
        u32 position = u32(positions[block.y]);
        if (turns) {
            f32 cosine = from_bits(0x7fc00000), sine = from_bits(0x7fc00000);
            if (position < table_rows) {
                cosine = cosines[u64(position) * HALF + pair];
                sine = sines[u64(position) * HALF + pair];
            }
            f32 turned = a * cosine - b * sine;
            b = a * sine + b * cosine;
            a = turned;
        }
        if (which == 0) {
            f32 *q = q_ptr;
            q += u64(block.y) * (q_items * 2) + from;
            q[near] = a;
            q[far] = b;
        } else {
            u32 sequence = block.y / seq;
            if (named != 0) sequence = u32(sequences[block.y / seq]);
            u64 to = u64(block.y) * (k_items * 2) + from;
            
            if (FRESH == 0) to = ((u64(sequence) * kv_heads + head) * capacity + position) * DIM;
            if (position < capacity) {
                if (which == 1) {
                    k_ptr[to + near] = a;
                    k_ptr[to + far] = b;
                } else {
                    v_ptr[to + near] = a;
                    v_ptr[to + far] = b;
                }
            }
        }
    }
);

/* ---- launches ---------------------------------------------------------------------------------------------------- */

/* The sizes of a call's kernels: R rows a warp, S units a lane at a time. */
typedef struct plan {
    vb_jit_layout layout;
    int rows, steps, parts; /* parts of x that a thread rounds, loaded together */
    int64_t padded;
} plan;

static bool plan_of(plan *p, const vb_weight *w, const float *x, const float *norm, int rows_at_once, int64_t n,
                    vb_stream *stream) {
    const int64_t most = vb_jit_of(stream)->target < 80 ? 65535 : w->rows > 4096 ? 8 : 32; /* else ptx_many.c */
    *p = (plan){.rows = rows_at_once};
    if (w->layout != VB_PACKED || !vb_jit_layout_of(&p->layout, w->type, w->cols)) return false;
    if (n > most || w->rows > INT32_MAX / 2 || p->layout.units > MOST_UNITS) return false;
    if ((uintptr_t)x % 16 || (uintptr_t)norm % 16 || (uintptr_t)w->data % 16) return false;
    for (p->steps = rows_at_once == 1 ? 6 : 2; p->steps > 1 && (p->steps - 1) * 32 >= p->layout.units; p->steps--) {}
    for (; p->steps > 0; p->steps--) {
        const int64_t together = 32 * p->steps;
        p->padded = (p->layout.units + together - 1) / together * together;
        if (p->padded <= MOST_UNITS) break;
    }
    for (p->parts = 4; p->padded / 32 % p->parts != 0; p->parts--) {}
    return p->steps > 0;
}

static int64_t blocks_of(int64_t items, vb_stream *stream) {
    const int64_t wanted = (items + WARPS - 1) / WARPS, most = 4 * (int64_t)vb_jit_of(stream)->multiprocessors;
    return wanted < most ? wanted : most;
}

#define PLAN(p) VB_JIT_LAYOUT((p).layout), {"R", (p).rows}, {"S", (p).steps}, {"PADDED", (p).padded}, \
    {"PARTS", (p).parts}
#define TEXTS(address, store) {"PRODUCT", product}, {"FETCH", fetch}, {"PREPARE", prepare}, {"ADDRESS", address}, \
    {"STORE", store}

static vb_status run_rows(const char *name, float *y, const float *x, const float *norm, float eps, bool normed,
                          const vb_weight *w, const float *bias, const float *add, int64_t n, vb_stream *stream) {
    plan p;
    if (!plan_of(&p, w, x, norm, w->rows >= 8192 ? 2 : 1, n, stream)) return VB_UNSUPPORTED;
    uint32_t count = (uint32_t)w->rows, items = (count + (uint32_t)p.rows - 1) / (uint32_t)p.rows, norms = norm != NULL;
    uint32_t biases = bias != NULL, adds = add != NULL;
    const void *data = w->data;
    const vb_jit_filling f = {.source = rows,
        .constants = {PLAN(p), {"NORM", normed}},
        .texts = {TEXTS(row_address, row_store)}};
    return vb_jit_launch(stream, name, &f, blocks_of(items, stream), n, 1, THREADS,
                         VB_JIT_PARAMETERS(&y, &x, &norm, &data, &bias, &add, &items, &count, &norms, &biases, &adds,
                                           &eps));
}

vb_status vb_jit_few(float *y, const float *x, const vb_weight *w, const float *bias, int64_t n, vb_stream *stream) {
    return run_rows("ptx_linear_few", y, x, NULL, 0, false, w, bias, NULL, n, stream);
}

vb_status vb_jit_norm_linear(float *y, const float *x, const float *norm, float eps, const vb_weight *w,
                             const float *bias, float *normed, int64_t n, vb_stream *stream) {
    (void)normed;
    return run_rows("ptx_norm_linear_few", y, x, norm, eps, true, w, bias, NULL, n, stream);
}

vb_status vb_jit_linear_add(float *sum, const float *a, const float *x, const vb_weight *w, const float *bias,
                            float *product_, int64_t n, vb_stream *stream) {
    (void)product_;
    const vb_status status = run_rows("ptx_linear_add_few", sum, x, NULL, 0, false, w, bias, a, n, stream);
    return status == VB_UNSUPPORTED ? vb_jit_many_add(sum, a, x, w, bias, n, stream) : status;
}

vb_status vb_jit_norm_swiglu(float *out, const float *x, const float *norm, float eps, const vb_weight *gate,
                             const vb_weight *up, float *normed, float *product_, int64_t n, vb_stream *stream) {
    (void)normed, (void)product_;
    plan p;
    if (up->layout != VB_PACKED || up->type != gate->type || (uintptr_t)up->data % 16) return VB_UNSUPPORTED;
    if (!plan_of(&p, gate, x, norm, 2, n, stream)) return vb_jit_many_swiglu(out, x, norm, eps, gate, up, n, stream);
    uint32_t items = (uint32_t)gate->rows, norms = norm != NULL;
    uint64_t up_at = (uintptr_t)up->data - (uintptr_t)gate->data;
    const void *data = gate->data;
    const vb_jit_filling f = {.source = swiglu,
        .constants = {PLAN(p), {"NORM", true}},
        .texts = {TEXTS(swiglu_address, swiglu_store)}};
    return vb_jit_launch(stream, "ptx_norm_swiglu_few", &f, blocks_of(items, stream), n, 1, THREADS,
                         VB_JIT_PARAMETERS(&out, &x, &norm, &data, &up_at, &items, &norms, &eps));
}

vb_status vb_jit_norm_qkv(const vb_norm_qkv_args *args, vb_stream *stream) {
    vb_norm_qkv_args a = *args;
    plan p, v;
    const int64_t n = a.batch * a.seq;
    if (a.q_v || a.k_v || a.v_v) return VB_UNSUPPORTED; /* there is no kernel of vb_fused_update either */
    if (a.ring || a.kv_type == VB_BF16 || a.q_norm || a.dim % 2) return VB_UNSUPPORTED;
    if (a.wk.type != a.wq.type || a.wk.layout != VB_PACKED) return VB_UNSUPPORTED;
    if (!plan_of(&p, &a.wq, a.x, a.norm, 2, n, stream)) return VB_UNSUPPORTED;
    if (!plan_of(&v, &a.wv, a.x, a.norm, 2, n, stream)) return VB_UNSUPPORTED;
    if ((uintptr_t)a.wk.data % 16 || a.table_rows > INT32_MAX || a.capacity > INT32_MAX) return VB_UNSUPPORTED;
    const bool fresh = a.kv_type == VB_Q8_0;
    void *k = fresh ? a.k_new : a.k, *values = fresh ? a.v_new : a.v;
    uint64_t k_at = (uintptr_t)a.wk.data - (uintptr_t)a.wq.data, v_at = (uintptr_t)a.wv.data - (uintptr_t)a.wq.data;
    uint32_t q_items = (uint32_t)(a.wq.rows / 2), k_items = (uint32_t)(a.wk.rows / 2), seq = (uint32_t)a.seq;
    uint32_t norms = a.norm != NULL, biases = (a.bq != NULL) | (a.bk != NULL) << 1 | (a.bv != NULL) << 2;
    uint32_t named = a.sequences != NULL, table_rows = (uint32_t)a.table_rows;
    uint32_t capacity = fresh ? UINT32_MAX : (uint32_t)a.capacity;
    uint32_t first_blocks = (q_items + k_items + WARPS - 1) / WARPS, v_blocks = (k_items + WARPS - 1) / WARPS;
    const vb_jit_filling f = {.source = qkv, .type = fresh ? "f32" : vb_jit_type(a.kv_type),
        .constants = {PLAN(p), {"NORM", true}, {"DIM", a.dim}, {"HALF", a.half}, {"NEOX", a.mode == VB_ROPE_NEOX},
                      {"FRESH", fresh}, {"V_BITS", v.layout.bits}, {"V_SCALES", v.layout.scales},
                      {"V_ZERO", v.layout.zero}, {"V_HIGH_AT", v.layout.high}, {"V_SCALE_AT", v.layout.scale},
                      {"V_BLOCK_AT", v.layout.block}, {"V_ROW_BYTES", v.layout.row}},
        .texts = {TEXTS(qkv_address, qkv_store)}};
    const vb_status status = vb_jit_launch(stream, "ptx_norm_qkv_few", &f, first_blocks + v_blocks, n, 1, THREADS,
        VB_JIT_PARAMETERS(&a.q, &k, &values, &a.x, &a.norm, &a.wq.data, &k_at, &v_at, &a.bq, &a.bk, &a.bv, &a.cos,
                          &a.sin, &a.positions, &a.sequences, &first_blocks, &seq, &q_items, &k_items, &norms, &biases,
                          &named, &table_rows, &capacity, &a.eps));
    if (status != VB_OK || !fresh) return status;
    return vb_jit_kv_write(&VB_ARGS(vb_kv_write_args, .k = a.k, .v = a.v, .k_in = a.k_new, .v_in = a.v_new,
                                    .positions = a.positions, .sequences = a.sequences, .batch = a.batch, .seq = a.seq,
                                    .kv_heads = a.kv_heads, .dim = a.dim, .capacity = a.capacity, .type = a.kv_type),
                           stream);
}
