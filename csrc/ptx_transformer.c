/* ptx_transformer.c: rotary embedding, the cache and attention of GPUs whose kernels the driver compiles. */
#include "ptx_device.h"

/* A thread a pair, or an element behind the pairs, of rows[batch][heads][seq]. */
static const char rope[] = VB_PTX_SOURCE(
kernel ENTRY(TYPE *out, TYPE *in, f32 *cosines, f32 *sines, s32 *positions, u64 position_stride, u64 heads,
    u64 seq, u64 dim, u64 half, u64 table_rows, u64 count, u32 given) threads(256) {
    u64 i = u64(block.x) * 256 + thread.x;
    if (i < count) {
        u64 units = dim - half, row = i / units, unit = i % units, s = row % seq;
        u64 p = s;
        if (given != 0) {
            u32 position = u32(positions[row / (heads * seq) * position_stride + s]);
            p = u64(position);
        }
        u64 from = row * dim;
        if (unit < half) {
            u64 first = NEOX ? from + unit : from + unit * 2;
            u64 second = NEOX ? first + half : first + 1;
            f32 u = in[first], v = in[second];
            f32 c = from_bits(0x7fc00000), d = from_bits(0x7fc00000);
            if (p < table_rows) {
                c = cosines[p * half + unit];
                d = sines[p * half + unit];
            }
            out[first] = u * c - v * d;
            out[second] = u * d + v * c;
        } else {
            u64 at = from + half + unit;
            out[at] = in[at];
        }
    }
});

vb_status vb_jit_rope(const vb_rope_args *args, vb_stream *stream) {
    vb_rope_args a = *args;
    uint32_t given = a.positions != NULL;
    int64_t count = a.batch * a.heads * a.seq * (a.dim - a.half);
    const vb_jit_filling f = {.source = rope, .type = vb_jit_type(a.type),
        .constants = {{"NEOX", a.mode == VB_ROPE_NEOX}}};
    return vb_jit_launch(stream, "ptx_rope", &f, (count + 255) / 256, 1, 1, 256,
                         VB_JIT_PARAMETERS(&a.out, &a.in, &a.cos, &a.sin, &a.positions, &a.position_stride,
                             &a.heads, &a.seq, &a.dim, &a.half,
                                           &a.table_rows, &count, &given));
}

/* A warp writes the elements x of its lanes as a block of Q8_0 to block_at, as vibrant.h says. */
const char vb_jit_quantize[] = VB_PTX_SOURCE({
    f32 most = abs(x);
    u32 nan = x != x ? 1 : 0;
    unroll (s : 5) {
        most = max(most, shuffle_xor(most, 16 >> s));
        nan = nan | shuffle_xor(nan, 16 >> s);
    }
    if (nan != 0) most = from_bits(0x7fc00000);
    f32 d = most / 127.0;
    f32 q = d != 0.0 ? x * (1.0 / d) : 0.0;
    f32 whole = floor(abs(q) + 0.5);
    if (q < 0.0) whole = -whole;
    if (q != q) whole = 0.0;
    f16 *scale = block_at;
    s8 *codes = block_at;
    if (lane == 0) scale[0] = d;
    codes[2 + lane] = s32(whole);
});

/* A warp stores 32 neighbouring elements of a row [batch][seq][kv_heads][dim]; they are a block of Q8_0. */
static const char kv_write[] = VB_PTX_SOURCE(
kernel ENTRY(u8 *cache, f32 *in, s32 *positions, s32 *sequences, u64 seq, u64 heads, u64 dim, u64 capacity,
    u64 warps, u32 given, u32 ring) threads(128) {
    u32 lane = thread.x % 32;
    u64 i = u64(block.x) * 4 + thread.x / 32;
    if (i < warps) {
        u64 parts = (dim + 31) / 32;
        u64 part = i % parts, row = i / parts;
        u64 head = row % heads, token = row / heads;
        u64 batch = token / seq;
        u32 position = u32(positions[token]);
        u64 slot = u64(position), sequence = batch;
        if (given != 0) {
            u32 named = u32(sequences[batch]);
            sequence = u64(named);
        }
        bool valid = position < 0x80000000;
        if (ring != 0) slot = slot % capacity;
        if (valid && slot < capacity) {
            u64 to = ((sequence * heads + head) * capacity + slot) * dim, col = part * 32 + lane;
            if (QUANTIZED) {
                f32 x = in[row * dim + col];
                u8 *block_at = cache;
                block_at += (to / 32 + part) * 34;
                QUANTIZE
            } else {
                TYPE *out = cache;
                if (col < dim) out[to + col] = in[row * dim + col];
            }
        }
    }
});

static vb_status write(void *cache, const float *in, int64_t dim, const vb_kv_write_args *a, vb_stream *stream) {
    int64_t seq = a->seq, heads = a->kv_heads, capacity = a->capacity, warps = a->batch * seq * heads * ((
        dim + 31) / 32);
    const int32_t *positions = a->positions, *sequences = a->sequences;
    uint32_t given = sequences != NULL, ring = a->ring != 0;
    const bool quantized = a->type == VB_Q8_0;
    const vb_jit_filling f = {.source = kv_write, .type = quantized ? "f32" : vb_jit_type(a->type),
        .constants = {{"QUANTIZED", quantized}}, .texts = {{"QUANTIZE", vb_jit_quantize}}};
    if (warps == 0 || capacity == 0) return VB_OK;
    return vb_jit_launch(stream, "ptx_kv_write", &f, (warps + 3) / 4, 1, 1, 128,
                         VB_JIT_PARAMETERS(&cache, &in, &positions, &sequences, &seq, &heads, &dim, &capacity,
                             &warps, &given, &ring));
}

vb_status vb_jit_kv_write(const vb_kv_write_args *args, vb_stream *stream) {
    const vb_status status = write(args->k, args->k_in, args->dim, args, stream);
    if (status != VB_OK || !args->v) return status;
    return write(args->v, args->v_in, args->value_dim ? args->value_dim : args->dim, args, stream);
}

/* A block a query: its WARPS warps take TAKEN keys at a time each, and their results are joined at the end (Dao et al.
 * 2022). DIM and VALUES are the sizes of the arrays. KEYS is the text by which a warp takes keys: `here` keys from
 * `start` on. */
static const char attention[] = VB_PTX_SOURCE(
kernel ENTRY(TYPE *out, TYPE *q_ptr, u8 *k_ptr, u8 *v_ptr, s32 *positions, s32 *sequences, f32 *sinks, u64 seq,
    u64 heads, u64 group, u64 q_batch, u64 q_head, u64 q_row, u64 capacity, u64 length, u64 offset, u64 window,
    u64 chunk, u32 placed, u32 named, u32 sunk, u32 causal, u32 ring, f32 scale, f32 soft_cap) threads(WARPS * 32) {
    const width = (VALUES + 31) / 32;
    const log2_e = 1.4426950408889634;
    shared f32 query[DIM], tops[WARPS], totals[WARPS], sums[WARPS][VALUES];
    start_next();
    wait_for_previous();
    u32 lane = thread.x % 32, warp = thread.x / 32;
    u64 head = u64(block.x) % heads, token = u64(block.x) / heads;
    u64 batch = token / seq, s = token % seq;
    u64 first = 0, last = length;
    if (causal != 0) {
        last = offset + s + 1;
        if (placed != 0) {
            s32 position = positions[token] + 1;
            last = position > 0 ? u64(u32(position)) : u64(0);
        }
        last = min(last, length);
        if (window != 0 && last > window) first = last - window;
        if (chunk != 0 && last > 0) first = max(first, (last - 1) / chunk * chunk);
    }
    u64 sequence = batch;
    if (named != 0) {
        u32 name = u32(sequences[batch]);
        sequence = u64(name);
    }
    u64 cached = (sequence * (heads / group) + head / group) * capacity;
    TYPE *q = q_ptr;
    q += batch * q_batch + head * q_head + s * q_row;
    for (u32 i = thread.x; i < DIM; i += WARPS * 32) query[i] = q[i];
    barrier();
    f32 most = from_bits(0xff800000), total = 0;
    BEFORE
    for (u64 start = first + u64(warp) * TAKEN; start < last; start += WARPS * TAKEN) {
        u64 left = last - start;
        u32 here = left < TAKEN ? u32(left) : TAKEN;
        KEYS
    }
    if (lane == 0) {
        tops[warp] = most;
        totals[warp] = total;
    }
    AFTER
    barrier();
    f32 top = from_bits(0xff800000), sink = 0;
    if (sunk != 0) {
        sink = sinks[head] * log2_e;
        top = sink;
    }
    unroll (i : WARPS) top = max(top, tops[i]);
    f32 base = top == from_bits(0xff800000) ? 0.0 : top;
    f32 all = 0, parts[WARPS] = 0;
    unroll (i : WARPS) {
        parts[i] = exp2(tops[i] - base);
        all = fma(totals[i], parts[i], all);
    }
    if (sunk != 0) all += exp2(sink - base);
    f32 factor = rcp(all);
    TYPE *to = out;
    if (SAME) to += batch * q_batch + head * q_head + s * q_row;
    else to += u64(block.x) * VALUES;
    for (u32 i = thread.x; i < VALUES; i += WARPS * 32) {
        f32 result = 0;
        unroll (w : WARPS) result = fma(sums[w][i], parts[w], result);
        result = result * factor;
        if (first >= last) result = 0;
        to[i] = result;
    }
});

/* The capped score. */
const char vb_jit_cap[] = VB_PTX_SOURCE(
    if (CAPPED) {
        f32 x = score / soft_cap;
        ) VB_PTX_TANH_FIT VB_PTX_SOURCE(
        f32 far = 1.0 - 2.0 * rcp(exp2(2.0 * abs(x) * log2_e) + 1.0);
        if (x < 0.0) far = -far;
        score = soft_cap * (abs(x) < 0.625 ? p * z * x + x : far);
    }
);

/* Any cache: a lane scores a key, then sums every 32nd element of the values. */
static const char any_before[] = VB_PTX_SOURCE(f32 sum[width] = 0;);
static const char any_keys[] = VB_PTX_SOURCE(
    u64 slot = start + lane;
    if (ring != 0) slot = slot % capacity;
    f32 score = from_bits(0xff800000);
    if (lane < here) {
        u8 *row = k_ptr;
        row += (cached + slot) * K_BYTES;
        f32 product = 0;
        for (u32 i = 0; i < DIM; i += 1) {
            u8 *b = row;
            b += i / QK * BYTES;
            u32 e = i % QK;
            f32 v = 0;
            DECODE
            product = fma(query[i], v, product);
        }
        score = product * scale;
        CAP
        score = score * log2_e;
    }
    f32 peak = score;
    unroll (i : 5) peak = max(peak, shuffle_xor(peak, 16 >> i));
    peak = max(peak, most);
    f32 shift = peak == from_bits(0xff800000) ? 0.0 : peak;
    f32 kept = exp2(most - shift), weight = exp2(score - shift);
    most = peak;
    f32 added = weight;
    unroll (i : 5) added += shuffle_xor(added, 16 >> i);
    total = fma(total, kept, added);
    unroll (i : width) sum[i] = sum[i] * kept;
    for (u32 j = 0; j < here; j += 1) {
        f32 share = shuffle_from(weight, j);
        u64 at = start + j;
        if (ring != 0) at = at % capacity;
        u8 *row = v_ptr;
        row += (cached + at) * V_BYTES;
        unroll (i : width) {
            u32 col = lane + i * 32;
            if (col < VALUES) {
                u8 *b = row;
                b += col / QK * BYTES;
                u32 e = col % QK;
                f32 v = 0;
                DECODE
                sum[i] = fma(share, v, sum[i]);
            }
        }
    }
);
static const char any_after[] = VB_PTX_SOURCE(
    unroll (i : width) {
        if (lane + i * 32 < VALUES) sums[warp][lane + i * 32] = sum[i];
    }
);

/* A cache of F16 or F32, keys and values of the same size in whole vectors: LANES lanes share a key, each reads EACH
 * elements of it in 16 bytes; four rounds of 32 / LANES keys are on their way at a time. */
static const char vector_before[] = VB_PTX_SOURCE(
    u32 column = min(lane % LANES * EACH, DIM - EACH), inside = lane / LANES;
    bool real = lane % LANES * EACH < DIM;
    f32 mine[EACH], sum[EACH] = 0;
    unroll (e : EACH) mine[e] = real ? query[column + e] : 0.0;
);
static const char vector_keys[] = VB_PTX_SOURCE(
    u32 keys[4][4], values[4][4];
    unroll (j : 4) {
        u64 slot = start + min(j * (32 / LANES) + inside, here - 1);
        if (ring != 0) slot = slot % capacity;
        u64 at = (cached + slot) * K_BYTES + column * EACH_BYTES;
        u8 *key = k_ptr;
        key += at;
        u32 *key_words = key;
        load(keys[j], key_words[0]);
        u8 *value = v_ptr;
        value += at;
        u32 *value_words = value;
        load(values[j], value_words[0]);
    }
    f32 scores[4];
    f32 peak = most;
    unroll (j : 4) {
        f32 product = 0;
        unroll (e : 4) {
            if (EACH == 8) {
                product = fma(f16_low(keys[j][e]), mine[e * 2 % EACH], product);
                product = fma(f16_high(keys[j][e]), mine[(e * 2 + 1) % EACH], product);
            } else {
                product = fma(from_bits(keys[j][e]), mine[e], product);
            }
        }
        unroll (k : SHUFFLES) product += shuffle_xor(product, LANES / 2 >> k);
        f32 score = product * scale;
        CAP
        score = score * log2_e;
        if (j * (32 / LANES) + inside >= here) score = from_bits(0xff800000);
        scores[j] = score;
        peak = max(peak, score);
    }
    unroll (k : 5 - SHUFFLES) peak = max(peak, shuffle_xor(peak, 16 >> k));
    f32 shift = peak == from_bits(0xff800000) ? 0.0 : peak;
    f32 kept = exp2(most - shift), added = 0;
    most = peak;
    unroll (e : EACH) sum[e] = sum[e] * kept;
    unroll (j : 4) {
        f32 share = exp2(scores[j] - shift);
        added += share;
        if (j * (32 / LANES) + inside < here) {
            unroll (e : 4) {
                if (EACH == 8) {
                    sum[e * 2 % EACH] = fma(f16_low(values[j][e]), share, sum[e * 2 % EACH]);
                    sum[(e * 2 + 1) % EACH] = fma(f16_high(values[j][e]), share, sum[(e * 2 + 1) % EACH]);
                } else {
                    sum[e] = fma(from_bits(values[j][e]), share, sum[e]);
                }
            }
        }
    }
    unroll (k : 5 - SHUFFLES) added += shuffle_xor(added, 16 >> k);
    total = fma(total, kept, added);
);
static const char vector_after[] = VB_PTX_SOURCE(
    unroll (e : EACH) {
        unroll (k : 5 - SHUFFLES) sum[e] += shuffle_xor(sum[e], 16 >> k);
        if (real && inside == 0) sums[warp][column + e] = sum[e];
    }
);

vb_status vb_jit_attention(const vb_attention_args *args, vb_stream *stream) {
    const vb_status of_prompt = vb_jit_attention_of_prompt(args, stream);
    if (of_prompt != VB_UNSUPPORTED) return of_prompt;
    vb_attention_args a = *args;
    const int64_t values = a.value_dim ? a.value_dim : a.dim, block = vb_dtype_block_size(a.kv_type),
        bytes = vb_dtype_block_bytes(a.kv_type);
    const void *v = a.v ? a.v : a.k;
    int64_t group = a.heads / a.kv_heads;
    uint32_t placed = a.positions != NULL, named = a.sequences != NULL, sunk = a.sinks != NULL,
        causal = a.causal != 0, ring = a.ring != 0;
    const int64_t each = a.kv_type == VB_F16 ? 8 : 4;
    int64_t lanes = 4, shuffles = 2;
    while (lanes < 32 && lanes * each < a.dim) lanes *= 2, shuffles++;
    const bool vectors = (a.kv_type == VB_F16 || a.kv_type == VB_F32) && a.dim % each == 0 && lanes * each >= a.dim
        && values == a.dim && (uintptr_t)a.k % 16 == 0 && (uintptr_t)v % 16 == 0;
    const int warps = vectors && a.kv_len > 64 && a.batch * a.seq * a.heads <= vb_jit_of(stream)->multiprocessors
        ? 16 : 8;
    vb_jit_filling f = {.source = attention, .type = vb_jit_type(a.type), .decode = vb_jit_decode(a.kv_type),
        .constants = {{"DIM", a.dim}, {"VALUES", values}, {"QK", block}, {"BYTES", bytes},
                      {"K_BYTES", a.dim / block * bytes}, {"V_BYTES", (a.v ? values : a.dim) / block * bytes},
                      {"SAME", values == a.dim}, {"WARPS", warps}, {"TAKEN", 32}, {"CAPPED", a.soft_cap > 0}},
        .texts = {{"BEFORE", any_before}, {"KEYS", any_keys}, {"AFTER", any_after}, {"CAP", vb_jit_cap}}};
    if (vectors)
        f = (vb_jit_filling){.source = attention, .type = vb_jit_type(a.type),
            .constants = {{"DIM", a.dim}, {"VALUES", values}, {"K_BYTES", a.dim * bytes},
                          {"V_BYTES", a.dim * bytes}, {"SAME", true}, {"WARPS", warps}, {"TAKEN", 128 / lanes},
                          {"CAPPED", a.soft_cap > 0}, {"LANES", lanes}, {"EACH", each}, {"EACH_BYTES", bytes},
                          {"SHUFFLES", shuffles}},
            .texts = {{"BEFORE", vector_before}, {"KEYS", vector_keys}, {"AFTER", vector_after}, {"CAP", vb_jit_cap}}};
    return vb_jit_launch(stream, "ptx_attention", &f, a.batch * a.seq * a.heads, 1, 1, warps * 32,
                         VB_JIT_PARAMETERS(&a.out, &a.q, &a.k, &v, &a.positions, &a.sequences, &a.sinks, &a.seq,
                             &a.heads, &group, &a.q_batch_stride, &a.q_head_stride, &a.q_row_stride, &a.kv_capacity,
                             &a.kv_len, &a.offset, &a.window, &a.chunk, &placed, &named, &sunk, &causal, &ring,
                             &a.scale, &a.soft_cap));
}
