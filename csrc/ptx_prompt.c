/* ptx_prompt.c: attention of prompts over a cache of F16, on tensor cores of 8.0 and newer (Dao et al. 2022).
 *
 * A block of four warps has 64 queries of a head, which are rounded to F16 in registers; 64 keys and values at a time
 * lie in shared memory. A warp has 16 queries: rows lane / 4 and 8 more of each product. */
#include "ptx_device.h"

enum { THREADS = 128, QUERIES = 64, MOST_DIM = 128 };

static const char prompt[] = VB_PTX_SOURCE(
kernel ENTRY(TYPE *out, TYPE *q_ptr, f16 *k, f16 *v, s32 *positions, s32 *sequences, f32 *sinks, u64 seq,
    u64 heads, u64 group, u64 q_batch, u64 q_head, u64 q_row, u64 capacity, u64 length, u64 offset, u64 window,
    u64 chunk, u32 placed, u32 named, u32 sunk, u32 causal, u32 ring, f32 scale, f32 soft_cap) threads(128) {
    const log2_e = 1.4426950408889634;
    const parts = DIM / 16;
    shared u32 keys[64][DIM / 2 + 4], values[64][DIM / 2 + 4];
    shared u32 begins[4], ends[4];
    start_next();
    wait_for_previous();
    u32 lane = thread.x % 32, warp = thread.x / 32, infinity = 0xff800000;
    u64 tiles = (seq + 63) / 64;
    u64 tile = u64(block.x) % tiles, head = u64(block.x) / tiles % heads, batch = u64(block.x) / tiles / heads;
    u64 at = batch * q_batch + head * q_head;
    u64 sequence = batch;
    if (named != 0) {
        u32 name = u32(sequences[batch]);
        sequence = u64(name);
    }
    u64 cached = (sequence * (heads / group) + head / group) * capacity;

    u32 a[parts][4], first[2] = 0, last[2] = 0;
    unroll (r : 2) {
        u64 s = min(tile * 64 + u64(warp * 16 + lane / 4 + r * 8), seq - 1);
        TYPE *q = q_ptr;
        q += at + s * q_row;
        unroll (i : parts) unroll (h : 2) {
            u32 col = i * 16 + h * 8 + lane % 4 * 2;
            a[i][h * 2 + r] = pack_f16(q[col] * scale, q[col + 1] * scale);
        }
        u64 begin = 0, end = length;
        if (causal != 0) {
            end = offset + s + 1;
            if (placed != 0) {
                s32 position = positions[batch * seq + s] + 1;
                end = position > 0 ? u64(u32(position)) : u64(0);
            }
            end = min(end, length);
            if (window != 0 && end > window) begin = end - window;
            if (chunk != 0 && end > 0) begin = max(begin, (end - 1) / chunk * chunk);
        }
        first[r] = u32(begin);
        last[r] = u32(end);
    }
    u32 begin = min(first[0], first[1]), end = max(last[0], last[1]);
    unroll (i : 5) {
        begin = min(begin, shuffle_xor(begin, 16 >> i));
        end = max(end, shuffle_xor(end, 16 >> i));
    }
    if (lane == 0) {
        begins[warp] = begin;
        ends[warp] = end;
    }
    barrier();
    unroll (w : 4) {
        begin = min(begin, begins[w]);
        end = max(end, ends[w]);
    }

    f32 sum[parts * 2][4] = 0, most[2] = from_bits(infinity), total[2] = 0;
    for (u32 start = begin / 64 * 64; start < end; start += 64) {
        barrier();
        unroll (i : parts) {
            u32 item = thread.x + i * 128;
            u32 row = item / (DIM / 8), col = item % (DIM / 8);
            u64 slot = u64(min(start + row, end - 1));
            if (ring != 0) slot = slot % capacity;
            u64 from = (cached + slot) * DIM + col * 8;
            copy_async(keys[row][col * 4], k[from], start + row < end);
            copy_async(values[row][col * 4], v[from], start + row < end);
        }
        copy_async_commit();
        copy_async_wait(0);
        barrier();
        f32 score_of[8][4] = 0;
        unroll (i : parts) unroll (j : 4) {
            u32 b[2][2];
            load_matrices(b, keys[j * 16 + lane % 8 + lane / 16 * 8][i * 8 + lane / 8 % 2 * 4]);
            mma_f16(score_of[j * 2], a[i], b[0]);
            mma_f16(score_of[j * 2 + 1], a[i], b[1]);
        }
        unroll (r : 2) {
            f32 peak = most[r];
            unroll (n : 8) unroll (e : 2) {
                f32 score = score_of[n][r * 2 + e];
                CAP
                score = score * log2_e;
                u32 key = start + n * 8 + lane % 4 * 2 + e;
                if (key < first[r] || key >= last[r]) score = from_bits(infinity);
                score_of[n][r * 2 + e] = score;
                peak = max(peak, score);
            }
            unroll (i : 2) peak = max(peak, shuffle_xor(peak, 2 >> i));
            f32 shift = peak == from_bits(infinity) ? 0.0 : peak;
            f32 kept = exp2(most[r] - shift), added = 0;
            most[r] = peak;
            unroll (n : 8) unroll (e : 2) {
                f32 weight = exp2(score_of[n][r * 2 + e] - shift);
                score_of[n][r * 2 + e] = weight;
                added += weight;
            }
            total[r] = fma(total[r], kept, added);
            unroll (n : parts * 2) unroll (e : 2) sum[n][r * 2 + e] = sum[n][r * 2 + e] * kept;
        }
        unroll (j : 4) {
            u32 weights[4];
            unroll (h : 2) unroll (r : 2)
                weights[h * 2 + r] = pack_f16(score_of[j * 2 + h][r * 2], score_of[j * 2 + h][r * 2 + 1]);
            unroll (n : parts) {
                u32 b[2][2];
                load_matrices_transposed(b, values[j * 16 + lane % 16][n * 8 + lane / 16 * 4]);
                mma_f16(sum[n * 2], weights, b[0]);
                mma_f16(sum[n * 2 + 1], weights, b[1]);
            }
        }
    }

    unroll (r : 2) {
        u64 s = tile * 64 + u64(warp * 16 + lane / 4 + r * 8);
        f32 all = total[r], top = most[r], sink = 0;
        unroll (i : 2) all += shuffle_xor(all, 2 >> i);
        if (sunk != 0) {
            sink = sinks[head] * log2_e;
            top = max(top, sink);
        }
        f32 base = top == from_bits(infinity) ? 0.0 : top;
        f32 factor = exp2(most[r] - base);
        all = all * factor;
        if (sunk != 0) all += exp2(sink - base);
        factor = factor * rcp(all);
        if (first[r] >= last[r]) factor = 0;
        if (s < seq) {
            TYPE *to = out;
            to += at + s * q_row;
            unroll (n : parts * 2) unroll (e : 2) to[n * 8 + lane % 4 * 2 + e] = sum[n][r * 2 + e] * factor;
        }
    }
});

vb_status vb_jit_attention_of_prompt(const vb_attention_args *args, vb_stream *stream) {
    vb_attention_args a = *args;
    const void *v = a.v ? a.v : a.k;
    int64_t group = a.heads / a.kv_heads, tiles = (a.seq + QUERIES - 1) / QUERIES;
    uint32_t placed = a.positions != NULL, named = a.sequences != NULL, sunk = a.sinks != NULL,
        causal = a.causal != 0, ring = a.ring != 0;
    if (vb_jit_of(stream)->target < 80 || a.kv_type != VB_F16 || a.seq < QUERIES / 4) return VB_UNSUPPORTED;
    if (a.dim % 16 || a.dim > MOST_DIM || (a.value_dim && a.value_dim != a.dim)) return VB_UNSUPPORTED;
    if (a.kv_len > INT32_MAX - QUERIES || ((uintptr_t)a.k | (uintptr_t)v) % 16) return VB_UNSUPPORTED;
    const vb_jit_filling f = {.source = prompt, .type = vb_jit_type(a.type),
        .constants = {{"DIM", a.dim}, {"CAPPED", a.soft_cap > 0}}, .texts = {{"CAP", vb_jit_cap}}};
    return vb_jit_launch(stream, "ptx_attention_prompt", &f, a.batch * a.heads * tiles, 1, 1, THREADS,
                         VB_JIT_PARAMETERS(&a.out, &a.q, &a.k, &v, &a.positions, &a.sequences, &a.sinks, &a.seq,
                             &a.heads, &group, &a.q_batch_stride, &a.q_head_stride, &a.q_row_stride, &a.kv_capacity,
                             &a.kv_len, &a.offset, &a.window, &a.chunk, &placed, &named, &sunk, &causal, &ring,
                             &a.scale, &a.soft_cap));
}
