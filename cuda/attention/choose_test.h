/* choose_test.h: the test of attention/choose.h, a part of cuda/chooser_test.c. */
#include "attention/choose.h"
#include "chooser_test.h"

MAP_FAMILY("Attention (`attention/choose.h`)", attention, ATTENTION)

/* The most shared memory of attention_decode_kernel.cuh's instances. */
static int64_t decode_bytes(const vb_attention_args *a, int capability) {
    static const int most[2][3] = {{6, 3, 3}, {8, 6, 4}};
    const int q8 = a->kv_type == VB_Q8_0, f32 = a->kv_type == VB_F32, dims = attention_dims(a->dim),
              slots = most[q8][dims == 64 ? 0 : dims == 128 ? 1 : 2],
              warps = f32 ? ATTENTION_DECODE_F32_WARPS(dims) : q8 || dims == 256 ? 4 : 8;
    const int64_t slot_bytes = q8 ? 16 * (dims / 32) * 34 : 16 * dims * (f32 ? 4 : 2);
    return attention_decode_bytes(warps, slot_bytes, ATTENTION_DECODE_SLOTS(slots, capability), dims,
                                  attention_decode_tile_rows(a));
}

static void check_attention(const vb_attention_args *a, const vb_gpu *gpu) {
    const attention_kernel kernel = choose_attention(a, gpu);
#define CHECK_IT(condition) \
    CHECK(condition, "%s on %d: batch %ld seq %ld heads %ld/%ld dim %ld keys %ld of %ld, %s over %s", \
          attention_kernel_info(kernel).name, gpu->capability, (long)a->batch, (long)a->seq, (long)a->heads, \
          (long)a->kv_heads, (long)a->dim, (long)a->kv_len, (long)a->kv_capacity, vb_dtype_string(a->type), \
          vb_dtype_string(a->kv_type))
    const int q8 = a->kv_type == VB_Q8_0, tensor_cores = attention_suits_tensor_cores(a, gpu);
    const int64_t rows = attention_rows(a);
    CHECK_IT(kernel != ATTENTION_NONE);
    const int wraps = a->ring && a->kv_len > a->kv_capacity;
    switch (kernel) {
    case ATTENTION_DECODE:
    case ATTENTION_DECODE_Q8:
        CHECK_IT(attention_is_plain(a) && (!a->sinks || a->seq == 1) && q8 == (kernel == ATTENTION_DECODE_Q8));
        CHECK_IT(!q8 || a->dim == 64 || a->dim == 128 || a->dim == 256);
        /* fallthrough */
    case ATTENTION_DECODE_VARIANTS:
        CHECK_IT(tensor_cores && rows <= attention_decode_most_rows(a, gpu));
        CHECK_IT(kernel != ATTENTION_DECODE_VARIANTS || (a->type == VB_F32 && a->kv_type != VB_BF16));
        CHECK_IT(!wraps || a->kv_capacity % 16 == 0);
        CHECK_IT(decode_bytes(a, gpu->capability) <= gpu->shared_bytes);
        CHECK_IT(!q8 || a->kv_capacity * (a->dim / 32) * 34 % 16 == 0);
        break;
    case ATTENTION_DECODE_F32:
        CHECK_IT(gpu->capability >= 80 && a->kv_type == VB_F32 && a->type == VB_F32 && a->dim % 8 == 0);
        CHECK_IT(a->dim <= 256 && rows <= ATTENTION_DECODE_F32_MOST_ROWS && (!wraps || a->kv_capacity % 16 == 0));
        CHECK_IT(decode_bytes(a, gpu->capability) <= gpu->shared_bytes);
        break;
    case ATTENTION_PREFILL_SM90:
    case ATTENTION_PREFILL_Q8_SM90:
        CHECK_IT(tensor_cores && gpu->capability == 90 && a->scale > 0 && a->kv_len > 0 &&
                 q8 == (kernel == ATTENTION_PREFILL_Q8_SM90) && (!wraps || a->kv_capacity % 128 == 0));
        break;
    case ATTENTION_PREFILL:
    case ATTENTION_PREFILL_Q8: /* 96 KiB of 256 dimensions */
        CHECK_IT(tensor_cores && gpu->shared_bytes >= 96 << 10 && q8 == (kernel == ATTENTION_PREFILL_Q8) &&
                 (!q8 || a->kv_len > 0));
        break;
    case ATTENTION_F32:
        CHECK_IT(attention_is_plain(a));
        CHECK_IT(gpu->capability >= 80 && a->type == VB_F32 && a->kv_type == VB_F32 && a->kv_len > 0 && a->dim <= 256);
        CHECK_IT(attention_f32_bytes(attention_f32_dims(a->dim), attention_f32_small(attention_f32_dims(a->dim), gpu)) <
                 gpu->shared_bytes);
        /* code for Hopper has no small tiles */
        CHECK_IT(!gpu->hopper || !attention_f32_small(attention_f32_dims(a->dim), gpu));
        CHECK_IT(attention_f32_places(attention_f32_dims(a->dim), 1, gpu->shared_bytes + 1024, gpu) >=
                 gpu->multiprocessors);
        break;
    case ATTENTION_PADDED:
    case ATTENTION_PADDED_SM90: CHECK_IT(attention_is_plain(a)); break;
    case ATTENTION_PADDED_DECODE:
        CHECK_IT(attention_is_plain(a) && rows <= attention_decode_most_rows(a, gpu));
        CHECK_IT(a->type == a->kv_type && a->type != VB_F32 && !a->sequences && (!a->sinks || a->seq == 1));
        break;
    default: break;
    }
    const attention_kernel operand = choose_attention_operand(a, gpu);
    CHECK_IT(operand == ATTENTION_NONE ||
             (operand == kernel && gpu->capability >= 80 && a->kv_type == VB_F16 && a->type == VB_F32));
#undef CHECK_IT
}

static vb_attention_args attend(vb_dtype type, vb_dtype kv_type, int64_t batch, int64_t seq, int64_t heads,
                                int64_t kv_heads, int64_t dim, int64_t keys) {
    const vb_attention_args a = {.out = ALIGNED, .q = ALIGNED, .k = ALIGNED, .v = ALIGNED, .batch = batch, .seq = seq,
                                 .heads = heads, .kv_heads = kv_heads, .dim = dim, .q_batch_stride = seq * heads * dim,
                                 .q_head_stride = dim, .q_row_stride = heads * dim, .kv_capacity = keys, .kv_len = keys,
                                 .scale = 0.125f, .causal = 1, .type = type, .kv_type = kv_type};
    return a;
}

/* Blocks of attention_f32 that run at once on an RTX 30, on the same chooser's H100 and on Hopper. */
static void check_places(void) {
    static const struct {
        int capability, dims, shares;
        int64_t shared, blocks;
    } cases[] = {{86, 128, 1, 100 << 10, 1}, {86, 256, 1, 100 << 10, 1}, {86, 256, 1, 228 << 10, 2},
                 {86, 64, 1, 100 << 10, 1},  {90, 64, 1, 228 << 10, 3},  {90, 128, 1, 228 << 10, 2},
                 {90, 128, 2, 228 << 10, 1}, {90, 256, 1, 228 << 10, 1}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int g = 0; g < gpu_count; g++) {
            if (gpus[g].capability != cases[i].capability) continue;
            const int64_t places = attention_f32_places(cases[i].dims, cases[i].shares, cases[i].shared, &gpus[g]);
            CHECK(places == cases[i].blocks * gpus[g].multiprocessors, "places %d: %ld", (int)i, (long)places);
        }
}

static void check_named_attention(void) {
    static const struct {
        int capability;
        vb_dtype type, kv_type;
        int64_t seq, heads, kv_heads, dim, keys;
        attention_kernel kernel;
    } cases[] = {
        {90, VB_F32, VB_F16, 1, 16, 2, 128, 4096, ATTENTION_DECODE},
        {86, VB_F32, VB_F16, 1, 16, 2, 128, 4096, ATTENTION_DECODE},
        {90, VB_F32, VB_Q8_0, 1, 16, 2, 128, 4096, ATTENTION_DECODE_Q8},
        {90, VB_F32, VB_Q8_0, 1, 16, 2, 96, 4096, ATTENTION_DECODE_VARIANTS},
        {90, VB_F32, VB_Q8_0, 1, 16, 2, 32, 4095, ATTENTION_PREFILL_Q8_SM90},
        {90, VB_BF16, VB_BF16, 512, 32, 8, 128, 512, ATTENTION_PREFILL_SM90},
        {89, VB_BF16, VB_BF16, 512, 32, 8, 128, 512, ATTENTION_PREFILL},
        {80, VB_F32, VB_Q8_0, 512, 32, 8, 128, 512, ATTENTION_PREFILL_Q8},
        {90, VB_F32, VB_F32, 512, 32, 8, 128, 512, ATTENTION_F32},
        {86, VB_F32, VB_F32, 512, 32, 8, 200, 512, ATTENTION_F32},
        {89, VB_F32, VB_F32, 512, 32, 8, 128, 512, ATTENTION_F32},
        {90, VB_F32, VB_F32, 512, 32, 8, 201, 512, ATTENTION_F32},
        {90, VB_F32, VB_F32, 1, 32, 8, 128, 512, ATTENTION_DECODE_F32},
        {86, VB_F32, VB_F32, 4, 16, 4, 256, 512, ATTENTION_DECODE_F32},
        {90, VB_F32, VB_F32, 5, 16, 4, 128, 512, ATTENTION_DECODE_F32},
        {90, VB_F32, VB_F32, 1, 32, 8, 81, 512, ATTENTION_SIMT},
        {75, VB_F32, VB_F32, 1, 32, 8, 128, 512, ATTENTION_SIMT},
        {86, VB_F16, VB_F16, 2, 8, 8, 64, 90, ATTENTION_PREFILL},
        {86, VB_F16, VB_F16, 2, 8, 8, 128, 700, ATTENTION_DECODE},
        {86, VB_BF16, VB_BF16, 4, 8, 8, 184, 700, ATTENTION_PREFILL},
        {86, VB_BF16, VB_BF16, 4, 8, 8, 184, 2000, ATTENTION_DECODE},
        {86, VB_BF16, VB_BF16, 34, 1, 1, 208, 4020, ATTENTION_PREFILL},
        {86, VB_F16, VB_F16, 4, 72, 72, 184, 4258, ATTENTION_PREFILL},
        {86, VB_F16, VB_F16, 24, 8, 2, 132, 6940, ATTENTION_PADDED},
        {86, VB_F16, VB_F16, 4, 8, 2, 100, 6940, ATTENTION_PADDED_DECODE},
        {86, VB_F32, VB_F32, 24, 8, 8, 224, 3000, ATTENTION_F32},
        {90, VB_F16, VB_F16, 88, 12, 6, 176, 5412, ATTENTION_PREFILL},
        {90, VB_F16, VB_F16, 88, 12, 6, 180, 5412, ATTENTION_PADDED},
        {90, VB_F32, VB_F16, 88, 4, 2, 176, 5412, ATTENTION_PREFILL_SM90},
        {90, VB_F16, VB_F16, 1024, 32, 8, 128, 8192, ATTENTION_PREFILL_SM90},
        {75, VB_F32, VB_F16, 1, 16, 2, 128, 4096, ATTENTION_SIMT},
        {90, VB_F32, VB_F16, 1, 16, 2, 81, 4096, ATTENTION_SIMT},
    };
    /* layers with windows: gpt-oss-20b and Gemma 3, whose ring has room for 640 and 1536 keys */
    static const struct {
        int capability;
        vb_dtype kv_type;
        int64_t seq, heads, kv_heads, dim, capacity;
        attention_kernel kernel;
    } rings[] = {
        {90, VB_F16, 1, 64, 8, 64, 640, ATTENTION_DECODE_VARIANTS},
        {86, VB_Q8_0, 1, 8, 4, 256, 1536, ATTENTION_DECODE_VARIANTS},
        {90, VB_F16, 512, 64, 8, 64, 640, ATTENTION_PREFILL_SM90},
        {90, VB_F16, 512, 64, 8, 64, 656, ATTENTION_PREFILL},
        {90, VB_Q8_0, 512, 8, 4, 256, 1536, ATTENTION_PREFILL_Q8_SM90},
        {86, VB_F16, 512, 8, 4, 256, 1536, ATTENTION_PREFILL},
        {90, VB_F32, 1, 64, 8, 64, 640, ATTENTION_DECODE_F32},
        {90, VB_F32, 1, 64, 8, 64, 650, ATTENTION_SIMT},
    };
    for (size_t i = 0; i < sizeof rings / sizeof *rings; i++)
        for (int g = 0; g < gpu_count; g++) {
            if (gpus[g].capability != rings[i].capability) continue;
            vb_attention_args a = attend(VB_F32, rings[i].kv_type, 1, rings[i].seq, rings[i].heads, rings[i].kv_heads,
                                         rings[i].dim, rings[i].capacity);
            a.ring = 1, a.window = 128, a.kv_len = 8192;
            const attention_kernel kernel = choose_attention(&a, &gpus[g]);
            CHECK(kernel == rings[i].kernel, "ring %d: %s, want %s", (int)i, attention_kernel_info(kernel).name,
                  attention_kernel_info(rings[i].kernel).name);
        }
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int g = 0; g < gpu_count; g++) {
            if (gpus[g].capability != cases[i].capability) continue;
            const vb_attention_args a = attend(cases[i].type, cases[i].kv_type, 1, cases[i].seq, cases[i].heads,
                                               cases[i].kv_heads, cases[i].dim, cases[i].keys);
            const attention_kernel kernel = choose_attention(&a, &gpus[g]);
            CHECK(kernel == cases[i].kernel, "attention case %d: %s, want %s", (int)i,
                  attention_kernel_info(kernel).name, attention_kernel_info(cases[i].kernel).name);
        }
}

static void test_attention(void) {
    static const vb_dtype caches[] = {VB_F32, VB_F16, VB_BF16, VB_Q8_0};
    for (int i = 0; i < 4000; i++) {
        const vb_dtype cache = caches[any_of(4)], type = cache == VB_Q8_0 || any_of(2) ? VB_F32 : cache;
        const int64_t kv_heads = any_size(5), heads = kv_heads * any_size(4);
        int64_t dim = any_of(2) ? 8 * (1 + any_of(32)) : 1 + any_of(256);
        if (cache == VB_Q8_0) dim = 32 * (1 + any_of(8));
        vb_attention_args a =
            attend(type, cache, any_size(8), any_of(2) ? 1 : any_size(13), heads, kv_heads, dim, any_size(17));
        if (any_of(8) == 0) a.kv_len = any_of((int)a.kv_capacity), a.causal = 0;
        if (any_of(8) == 0) a.scale = -1;
        if (any_of(8) == 0) a.q_row_stride += any_of(16);
        if (any_of(16) == 0) a.soft_cap = 50;
        if (any_of(16) == 0) a.value_dim = 32 * (1 + any_of(18));
        if (any_of(16) == 0) a.chunk = any_size(13);
        if (any_of(16) == 0) a.sinks = ALIGNED;
        if (any_of(8) == 0) { /* a ring of which the keys came around */
            a.ring = 1, a.window = 1 + any_of((int)a.kv_capacity), a.kv_len = 3 * a.kv_capacity;
            if (any_of(2)) a.kv_capacity = 128 * vb_ceil_div(a.kv_capacity, 128);
        }
        if (any_of(8) == 0) a.q = (char *)ALIGNED + 4 * any_of(4);
        for (int g = 0; g < gpu_count; g++) check_attention(&a, &gpus[g]);
    }
    check_named_attention();
    check_places();
}
