/* choose_test.h: the test of linear/choose.h, a part of cuda/chooser_test.c. */
#include "chooser_test.h"
#include "linear/choose_adapted.h"
#include "linear/choose_groups.h"

MAP_FAMILY("Linear layers (`linear/choose.h`)", linear, LINEAR)

static const vb_dtype linear_types[] = {VB_F32, VB_F16, VB_BF16, VB_Q4_0, VB_Q4_1, VB_Q5_0, VB_Q5_1, VB_Q8_0, VB_Q2_K,
                                        VB_Q3_K, VB_Q4_K, VB_Q5_K, VB_Q6_K, VB_IQ4_NL, VB_IQ4_XS, VB_TQ1_0, VB_TQ2_0,
                                        VB_MXFP4};
enum { LINEAR_TYPES = sizeof linear_types / sizeof *linear_types };

static bool is_packable(const vb_gpu *gpu, vb_dtype type, int64_t rows, int64_t cols) {
    return linear_packed_bytes(gpu, type, rows, cols) > 0;
}

/* Items: some of each GPU's, in its shared memory, in warps that exist. */
static void check_items(const linear_items *p, int most_warps, const char *what, const vb_gpu *gpu, int64_t n,
                        int64_t rows, int64_t cols) {
#define CHECK_ITEMS(condition)                                                                                         \
    CHECK(condition, "%s on %d: n %ld rows %ld cols %ld", what, gpu->capability, (long)n, (long)rows, (long)cols)
    CHECK_ITEMS(p->blocks > 0 && p->blocks % p->ksplit == 0);
    CHECK_ITEMS(p->shared_bytes > 0 && p->shared_bytes <= gpu->shared_bytes);
    CHECK_ITEMS(p->warps > 0 && p->warps <= most_warps && p->chunk > 0);
    CHECK_ITEMS(gpu->capability >= 80 ? p->stages > 0 : p->stages >= LINEAR_RING_STAGES);
    CHECK_ITEMS(gpu->capability >= 90 || p->stages <= LINEAR_RING_MOST);
    CHECK_ITEMS(p->ksplit == 1 || gpu->capability >= (n == 1 ? 80 : 90));
}

/* Units: all rows of W and of x, and no more blocks of a cluster than run at once. */
static void check_units(const linear_units *u, const vb_gpu *gpu, int64_t n, int64_t rows, int64_t cols) {
#define CHECK_UNITS(condition) \
    CHECK(condition, "units of %d on %d: n %ld rows %ld cols %ld", u->tokens, gpu->capability, (long)n, (long)rows, \
          (long)cols)
    const bool wide = u->kernel != LINEAR_PACKED_MANY;
    CHECK_UNITS(u->kernel == LINEAR_PACKED_MANY || u->kernel == LINEAR_PACKED_MANY_SM90 ||
                u->kernel == LINEAR_PACKED_N32_SM90);
    CHECK_UNITS(wide == linear_has_wgmma(gpu) && (!wide || (u->kernel == LINEAR_PACKED_N32_SM90) == (n <= LINEAR_N32)));
    CHECK_UNITS((int64_t)u->row_blocks * u->pair * LINEAR_UNIT_ROWS >= rows &&
                (int64_t)u->token_blocks * u->tokens >= n);
    CHECK_UNITS(wide || (u->tokens == LINEAR_MANY_TOKENS && u->pair == 1 && u->cluster == 0));
    CHECK_UNITS(u->whole <= u->row_blocks * u->token_blocks && u->ksplit >= 1 && u->ksplit <= 8);
    CHECK_UNITS(u->ksplit == 1 || (u->row_blocks * u->token_blocks - u->whole) * u->pair <= LINEAR_SHARED_UNITS);
    /* A spread unit lies in the tiles of at most so many blocks, and a block has some of each of two units at most. */
    const int spread_units = u->row_blocks * u->token_blocks - u->whole;
    CHECK_UNITS(u->spread == 0 || (u->tokens == 64 && u->token_blocks == 1 && u->pair == 1 && u->cluster == 0 &&
                                   u->ksplit == 1 && u->spread >= 2 && u->spread <= LINEAR_MOST_SPREAD &&
                                   u->whole % u->multiprocessors == 0 && spread_units > 0 &&
                                   spread_units < u->multiprocessors));
    CHECK_UNITS(u->cluster <= 8 && (u->cluster == 0 || (u->pair == 1 && (u->ksplit == 1 || u->cluster == 1))));
    CHECK_UNITS(linear_unit_blocks(u) >= 1 && linear_partial_bytes(u) >= 0);
}

/* The conditions that each kernel relies on, of linear, norm_linear and linear_add. */
static void check_linear(const linear_shape *s, const linear_choice *c, const vb_gpu *gpu) {
#define CHECK_LINEAR(condition) \
    CHECK(condition, "%s on %d: %s layout %d n %ld rows %ld cols %ld", linear_kernel_info(c->kernel).name, \
          gpu->capability, vb_dtype_string(s->type), s->layout, (long)s->n, (long)s->rows, (long)s->cols)
    const bool f32 = s->type == VB_F32, plain = s->type == VB_F16 || s->type == VB_BF16,
               stored = s->layout == VB_STORED;
    const vb_packed_format f = vb_packed_format_of(s->type);
    const int64_t tokens = s->n < LINEAR_MOST_TOKENS ? s->n : LINEAR_MOST_TOKENS;
    switch (c->kernel) {
    case LINEAR_STORED_N1:
        CHECK_LINEAR(stored && (f32 || plain) && s->n == 1 && s->cols % (f32 ? 4 : 8) == 0 && s->inputs_aligned);
        break;
    case LINEAR_STORED_N8: /* code for Hopper has no kernel of several rows of x by 16 bits */
        CHECK_LINEAR(stored && (!gpu->hopper || s->n == 1 || !plain));
        break;
    case LINEAR_STORED_N32:
        CHECK_LINEAR(stored && plain && s->n > 1 && s->n <= 32 && s->cols % 64 == 0 &&
                     gpu->capability >= (s->type == VB_BF16 ? 80 : 75));
        break;
    case LINEAR_STORED_N64_SM90:
        CHECK_LINEAR(stored && plain && s->n <= 64 && s->cols % 8 == 0 && s->rows % 4 == 0 && linear_has_wgmma(gpu));
        CHECK_LINEAR(s->inputs_aligned && s->output_aligned && s->bias_aligned && s->rows <= 1 << 27 &&
                     s->cols <= 1 << 27);
        break;
    case LINEAR_STORED_MANY_SM90:
        CHECK_LINEAR(stored && s->n > 1 && s->cols % 8 == 0 && s->inputs_aligned && s->output_aligned &&
                     gpu->capability == 90 && (s->type == VB_F16 || s->type == VB_BF16));
        break;
    case LINEAR_STORED_PADDED_SM90:
        CHECK_LINEAR(stored && s->n > 1 && (s->cols % 8 != 0 || !s->inputs_aligned) && s->output_aligned &&
                     gpu->capability == 90 && (s->type == VB_F16 || s->type == VB_BF16));
        break;
    case LINEAR_STORED_MANY: CHECK_LINEAR(stored && !f32 && gpu->capability >= (s->type == VB_BF16 ? 80 : 75)); break;
    case LINEAR_F32_3XTF32:
        CHECK_LINEAR(stored && f32 && gpu->capability >= 80 && s->cols % 4 == 0 && s->rows % 4 == 0 &&
                     s->inputs_aligned && s->output_aligned);
        break;
    case LINEAR_F32_MATMUL: CHECK_LINEAR(stored && f32 && gpu->capability == 90); break;
    case LINEAR_F32_TILES: CHECK_LINEAR(stored && f32); break;
    case LINEAR_PACKED_N1:
        CHECK_LINEAR(!stored && s->n == 1 && (c->items.ksplit == 1 || (!s->norm && c->items.parts == 2)));
        check_items(&c->items, LINEAR_WARPS, "n1", gpu, s->n, s->rows, s->cols);
        break;
    case LINEAR_PACKED_N4:
        CHECK_LINEAR(!stored && s->n <= LINEAR_N4 && (c->items.ksplit == 1 || (!s->norm && c->items.parts == 2)));
        check_items(&c->items, LINEAR_WARPS, "n4", gpu, s->n, s->rows, s->cols);
        break;
    case LINEAR_PACKED_N32:
        CHECK_LINEAR(!stored && s->n <= c->items.tokens && c->items.tokens <= linear_most_by_items(gpu));
        check_items(&c->items, linear_n32_warps(c->items.tokens, c->items.parts), "n32", gpu, s->n, s->rows, s->cols);
        break;
    case LINEAR_PACKED_N32_SM90:
    case LINEAR_PACKED_MANY:
    case LINEAR_PACKED_MANY_SM90:
        CHECK_LINEAR(!stored && c->kernel == c->units.kernel);
        check_units(&c->units, gpu, tokens, s->rows, s->cols);
        break;
    default: CHECK_LINEAR(0 && "no kernel");
    }
    CHECK_LINEAR(stored || (f.depth > 0 && gpu->capability >= 75 &&
                            linear_row_tiles(f, s->cols) * f.depth - s->cols <= s->cols));
}

static void check_swiglu(const linear_shape *s, const vb_gpu *gpu) {
    const linear_choice chosen = choose_norm_swiglu(s, s->type, s->layout, gpu), *c = &chosen;
    switch (c->kernel) {
    case LINEAR_COMPOSED:
        CHECK_LINEAR(s->layout == VB_STORED || !s->inputs_aligned || s->n == 1 || s->n > LINEAR_MOST_TOKENS);
        break;
    case LINEAR_N1_SWIGLU:
    case LINEAR_N4_SWIGLU:
        CHECK_LINEAR(s->n <= (c->kernel == LINEAR_N1_SWIGLU ? 1 : LINEAR_N4) && c->items.parts == 2 &&
                     c->items.ksplit == 1);
        check_items(&c->items, LINEAR_WARPS, "swiglu", gpu, s->n, s->rows, s->cols);
        /* a block of one row of x finds room beside one of the kernel before */
        CHECK_LINEAR(s->n > 1 || gpu->capability < 90 || gpu->shared_bytes < 227 << 10 || c->items.stages == 1 ||
                     c->items.shared_bytes + LINEAR_SHORT_SHARED + 2048 <= gpu->shared_bytes + 1024);
        break;
    case LINEAR_N32_SWIGLU:
        CHECK_LINEAR(s->n <= c->items.tokens && c->items.tokens <= linear_most_by_items(gpu) && c->items.parts == 2);
        check_items(&c->items, linear_n32_warps(c->items.tokens, 2), "swiglu", gpu, s->n, s->rows, s->cols);
        break;
    default:
        CHECK_LINEAR(c->kernel == c->units.kernel);
        CHECK_LINEAR(c->units.ksplit == 1 || !linear_has_wgmma(gpu) || s->n <= LINEAR_N32);
        CHECK_LINEAR(c->units.cluster == 0 || c->kernel == LINEAR_PACKED_N32_SM90);
        check_units(&c->units, gpu, s->n, 2 * s->rows, s->cols);
    }
    const vb_layout down = is_packable(gpu, s->type, s->cols, s->rows) ? s->layout : VB_STORED;
    const linear_feed_forward_choice ff = choose_feed_forward(s, s->type, s->layout, s->type, down, gpu);
    if (ff.kernel == LINEAR_COMPOSED) return;
    CHECK_LINEAR(gpu->capability >= 80 && s->n > (linear_has_wgmma(gpu) ? LINEAR_N32_HOPPER : LINEAR_FEW_UNITS) &&
                 s->n <= LINEAR_MOST_TOKENS && s->rows % LINEAR_HALF_GROUP == 0);
    check_units(&ff.gate_up, gpu, s->n, 2 * s->rows, s->cols);
    check_units(&ff.down, gpu, s->n, s->cols, s->rows);
}

static void check_qkv(const linear_qkv_shape *s, const vb_gpu *gpu) {
    const linear_qkv_choice c = choose_norm_qkv(s, gpu);
    const int64_t q_rows = s->heads * s->dim, kv_rows = s->kv_heads * s->dim;
#define CHECK_QKV(condition) \
    CHECK(condition, "%s on %d: n %ld cols %ld heads %ld %ld dim %ld half %ld types %s %s", \
          linear_kernel_info(c.kernel).name, gpu->capability, (long)s->n, (long)s->cols, (long)s->heads, \
          (long)s->kv_heads, (long)s->dim, (long)s->half, vb_dtype_string(s->q_type), vb_dtype_string(s->v_type))
    switch (c.kernel) {
    case LINEAR_COMPOSED: return;
    case LINEAR_N1_QKV:
        CHECK_QKV(s->n == 1 && c.apart == !linear_qkv_mixture(s->q_type, s->v_type));
        /* fall through */
    case LINEAR_N4_QKV:
        CHECK_QKV(s->n <= LINEAR_N4);
        check_items(&c.qk, LINEAR_WARPS, "qk", gpu, s->n, q_rows, s->cols);
        check_items(&c.v, LINEAR_WARPS, "v", gpu, s->n, kv_rows, s->cols);
        /* a block for each item of heads, none of which waits for room */
        CHECK_QKV(c.qk.blocks <= gpu->multiprocessors || gpu->shared_bytes < 227 << 10 || c.qk.stages == 1 ||
                  2 * (c.qk.shared_bytes + 1024) <= gpu->shared_bytes + 1024);
        break;
    case LINEAR_N32_QKV:
        CHECK_QKV(s->n <= c.qk.tokens && c.qk.tokens <= linear_most_by_items(gpu) && c.qk.warps == c.v.warps);
        check_items(&c.qk, linear_n32_warps(c.qk.tokens, 2), "qk", gpu, s->n, q_rows, s->cols);
        check_items(&c.v, linear_n32_warps(c.v.tokens, 2), "v", gpu, s->n, kv_rows, s->cols);
        break;
    default:
        CHECK_QKV(c.kernel == c.qk_units.kernel);
        check_units(&c.qk_units, gpu, s->n, q_rows + kv_rows, s->cols);
        if (s->q_type != s->v_type) check_units(&c.v_units, gpu, s->n, kv_rows, s->cols);
        CHECK_QKV(!c.placed || (linear_places_heads(s) && c.qk_units.cluster > 0 && c.rest == LINEAR_QKV_NOTHING));
        CHECK_QKV(c.placed || c.rest == LINEAR_QKV_PLACE || c.rest == LINEAR_QKV_ROTATE);
        return;
    }
    if (c.normed) {
        const int64_t head_items = s->dim / 32, blocks = c.qk.blocks + c.v.blocks;
        CHECK_QKV(c.kernel == LINEAR_N1_QKV && gpu->capability >= 90 && s->norms && !s->adapted && !c.raw &&
                  c.rest == LINEAR_QKV_NOTHING && s->kv_type != VB_Q8_0);
        CHECK_QKV(c.qk.blocks == head_items * (s->heads + s->kv_heads) && c.v.blocks == head_items * s->kv_heads);
        CHECK_QKV(blocks <= 2 * gpu->multiprocessors && blocks % head_items == 0 && 8 % head_items == 0);
        CHECK_QKV(2 * linear_max(c.qk.shared_bytes, c.v.shared_bytes) <= gpu->shared_bytes);
        return;
    }
    CHECK_QKV(s->dim % (2 * VB_PACKED_ROWS) == 0 && c.raw == (s->norms || 2 * s->half != s->dim));
    CHECK_QKV(c.rest != LINEAR_QKV_PLACE || (s->kv_type != VB_Q8_0 && 2 * s->half == s->dim));
    const bool pairs = c.kernel == LINEAR_N1_QKV && gpu->capability >= 90 && s->dim % 64 == 0 && c.qk.blocks % 2 == 0 &&
                       c.v.blocks % 2 == 0; /* which make blocks of Q8_0 */
    CHECK_QKV(c.raw                      ? c.rest >= LINEAR_QKV_PLACE
              : s->kv_type != VB_Q8_0    ? c.rest == LINEAR_QKV_NOTHING
              : c.rest == LINEAR_QKV_NOTHING ? pairs
                                         : c.rest == LINEAR_QKV_WRITE);
}

/* The products of Qwen2.5-3B, Q4_K with Q6_K for v and down, on an H200 and an RTX 4090 (whose 99 KiB hold less). */
static void check_named_linear(void) {
    static const int64_t rows_of_x[] = {1, 2, 4, 8, 16, 32, 64, 512, 2048};
    enum { N = sizeof rows_of_x / sizeof *rows_of_x };
#define FEW(op) LINEAR_N1_##op, LINEAR_N4_##op, LINEAR_N4_##op, LINEAR_N32_##op, LINEAR_PACKED_N32_SM90
#define MANY3(suffix) LINEAR_PACKED_MANY##suffix, LINEAR_PACKED_MANY##suffix, LINEAR_PACKED_MANY##suffix
#define ROWS LINEAR_PACKED_N1, LINEAR_PACKED_N4, LINEAR_PACKED_N4, LINEAR_PACKED_N32
    static const struct {
        linear_kernel out[N], down[N], swiglu[N], qkv[N];
    } want[2] = {{{ROWS, LINEAR_PACKED_N32_SM90, LINEAR_PACKED_N32_SM90, MANY3(_SM90)},
                  {ROWS, LINEAR_PACKED_N32_SM90, LINEAR_PACKED_N32_SM90, MANY3(_SM90)},
                  {FEW(SWIGLU), LINEAR_PACKED_N32_SM90, MANY3(_SM90)},
                  {FEW(QKV), LINEAR_PACKED_N32_SM90, MANY3(_SM90)}},
                 {{ROWS, LINEAR_PACKED_N32, LINEAR_PACKED_N32, MANY3()},
                  {LINEAR_PACKED_N1, LINEAR_PACKED_N32, LINEAR_PACKED_N32, LINEAR_PACKED_N32, LINEAR_PACKED_N32,
                   LINEAR_PACKED_MANY, MANY3()},
                  {LINEAR_N1_SWIGLU, LINEAR_N32_SWIGLU, LINEAR_N32_SWIGLU, LINEAR_N32_SWIGLU, LINEAR_N32_SWIGLU,
                   LINEAR_PACKED_MANY, MANY3()},
                  {LINEAR_N1_QKV, LINEAR_N32_QKV, LINEAR_N32_QKV, LINEAR_N32_QKV, LINEAR_PACKED_MANY,
                   LINEAR_PACKED_MANY, MANY3()}}};
    const vb_gpu cards[2] = {{90, 132, 227 << 10, true}, {89, 128, 99 << 10, false}};
    for (int card = 0; card < 2; card++)
        for (int i = 0; i < N; i++) {
            const vb_gpu *const gpu = &cards[card];
            const int64_t n = rows_of_x[i];
            const linear_shape out = {VB_Q4_K, VB_PACKED, n, 2048, 2048, false, true, true, true};
            const linear_shape gate = {VB_Q4_K, VB_PACKED, n, 11008, 2048, true, true, true, true};
            const linear_shape down = {VB_Q6_K, VB_PACKED, n, 2048, 11008, false, true, true, true};
            const linear_qkv_shape heads = {VB_Q4_K, VB_Q4_K, VB_Q6_K, VB_PACKED, VB_PACKED, VB_PACKED, n, 2048, 16, 2,
                                            128, 64, 32768, VB_F16, false, true, true, false};
            const linear_qkv_choice c = choose_norm_qkv(&heads, gpu);
            const linear_kernel many = card > 0 || n <= 8 ? LINEAR_COMPOSED
                                       : n <= 32          ? LINEAR_PACKED_N32_SM90
                                                          : LINEAR_PACKED_MANY_SM90;
#define CHECK_NAMED(got, want) \
    CHECK((got) == (want), "n %ld on %d: %s, want %s", (long)n, gpu->capability, linear_kernel_info(got).name, \
          linear_kernel_info(want).name)
            CHECK_NAMED(choose_linear(&out, gpu).kernel, want[card].out[i]);
            CHECK_NAMED(choose_fused_linear(&out, gpu).kernel, want[card].out[i]);
            CHECK_NAMED(choose_fused_linear(&down, gpu).kernel, want[card].down[i]);
            CHECK_NAMED(choose_norm_swiglu(&gate, VB_Q4_K, VB_PACKED, gpu).kernel, want[card].swiglu[i]);
            CHECK_NAMED(c.kernel, want[card].qkv[i]);
            const linear_units units = choose_norm_swiglu(&gate, VB_Q4_K, VB_PACKED, gpu).units;
            CHECK(units.kernel != LINEAR_PACKED_N32_SM90 || (units.whole == 132 && units.ksplit == 3),
                  "n %ld: %d units of gate and up whole, %d shares of the others", (long)n, units.whole, units.ksplit);
            CHECK_NAMED(choose_feed_forward(&gate, VB_Q4_K, VB_PACKED, VB_Q6_K, VB_PACKED, gpu).kernel,
                        card > 0 && n > 64 ? LINEAR_PACKED_MANY : many);
            CHECK_NAMED(choose_attention_linear_add(&out, true, gpu).kernel,
                        card > 0 && n > 32 ? LINEAR_PACKED_MANY : many);
            CHECK(c.placed == (card == 0 && n >= 16 && n <= 512), "n %ld on %d: heads placed %d", (long)n,
                  gpu->capability, c.placed);
        }
}

/* With an adapter's update the kernels are those of the plain operations, where they add it; else it is composed. */
static void check_adapted(const linear_shape *s, const vb_gpu *gpu) {
    const int64_t ranks[] = {4, 8, 16, 64, 8192};
    const bool hopper = linear_has_wgmma(gpu);
    linear_shape down = *s;
    down.rows = s->cols, down.cols = s->rows, down.norm = false;
    for (int r = 0; r < 5; r++)
        for (int aligned = 0; aligned < 2; aligned++) {
            const bool units = hopper && aligned && ranks[r] % 8 == 0 && ranks[r] <= LINEAR_ADAPTED_RANKS;
            const linear_feed_forward_choice ff = choose_adapted_feed_forward(s, s->type, s->layout, s->type, s->layout,
                                                                              ranks[r], aligned, gpu);
            CHECK(ff.kernel == LINEAR_COMPOSED || units, "feed_forward with %ld ranks on %d", (long)ranks[r],
                  gpu->capability);
            const linear_choice a = choose_adapted_attention(s, true, ranks[r], aligned, gpu);
            CHECK(a.kernel == LINEAR_COMPOSED || (s->n == 1 ? a.kernel == LINEAR_PACKED_N1 && aligned : units),
                  "attention_linear_add of %ld rows with %ld ranks on %d: %s", (long)s->n, (long)ranks[r],
                  gpu->capability, linear_kernel_info(a.kernel).name);
            if (s->n != 1) continue;
            const linear_items_choice t =
                choose_adapted_items(s, s->type, s->layout, &down, ranks[r], aligned, true, gpu);
            CHECK(t.gate_up.kernel == LINEAR_COMPOSED ||
                      (aligned && t.gate_up.kernel == LINEAR_N1_SWIGLU && t.down.kernel == LINEAR_PACKED_N1),
                  "feed_forward of a token with %ld ranks on %d", (long)ranks[r], gpu->capability);
            CHECK(choose_adapted_items(s, s->type, s->layout, &down, ranks[r], true, false, gpu).gate_up.kernel ==
                      LINEAR_COMPOSED,
                  "a token's down with unaligned U on %d", gpu->capability);
        }
}
/* One item a block or cluster: blocks enough, a tile for each warp, and of x no more than a warp's registers hold. */
static void check_one_item(const linear_shape *s, const vb_gpu *gpu) {
    const vb_packed_format f = vb_packed_format_of(s->type);
    linear_shape add = *s;
    add.norm = false;
    const linear_choice c = choose_adapted_linear(&add, 8, true, gpu);
    const linear_items *const p = &c.items;
    if (c.kernel != LINEAR_PACKED_N1 || !linear_n1_one_item(f, s->rows, s->cols, p)) return;
    const int64_t tiles = linear_row_tiles(f, s->cols), least = tiles / p->ksplit; /* of a block */
    CHECK(gpu->capability >= 90 && (int64_t)p->blocks / p->ksplit * p->parts >= linear_tile_rows(s->rows) &&
              least >= p->warps && (p->ksplit == 1 ? tiles == p->warps && p->parts == 1 : p->ksplit == 2) &&
              p->stages >= p->parts &&
              vb_ceil_div(tiles, p->ksplit * p->warps) * f.depth <= 1024,
          "an item a block of %ld rows of %ld columns on %d", (long)s->rows, (long)s->cols, gpu->capability);
}
/* Groups of warps fit into a block's threads and shared memory, and take all items. */
static void check_groups(const linear_shape *s, const vb_gpu *gpu, const linear_items *block) {
    const vb_packed_format f = vb_packed_format_of(s->type);
    const int64_t tiles = linear_row_tiles(f, s->cols), items = vb_ceil_div(linear_tile_rows(s->rows), block->parts);
    linear_items p = *block;
    const int groups = linear_groups(gpu, f, s->n, tiles, items, &p), pairs = s->n == 1 ? 1 : (int)(s->n + 1) / 2;
    CHECK(groups == 1 || (gpu->capability >= 90 && p.ksplit == 1 &&
                          p.warps * groups <= linear_grouped_warps(f, s->n, tiles) && groups <= 15 &&
                          p.blocks == block->blocks && p.stages >= p.parts && p.chunk >= 1 &&
                          p.chunk * pairs <= p.warps && (s->n == 1 || p.stages % p.parts == 0) &&
                          groups * linear_group_bytes(f, s->n, tiles, &p) <= p.shared_bytes &&
                          p.shared_bytes == block->shared_bytes && items > (int64_t)p.blocks * (groups - 1)),
          "%d groups of %d warps at %ld x %ld x %ld on %d", groups, p.warps, (long)s->n, (long)s->cols, (long)s->rows,
          gpu->capability);
}
/* A block's warps with rows of tiles of their own fit beside a block of the next kernel, and take all rows. */
static void check_own_rows(const linear_shape *s, const vb_gpu *gpu, const linear_items *block) {
    const vb_packed_format f = vb_packed_format_of(s->type);
    const int64_t tiles = linear_row_tiles(f, s->cols), tile_rows = linear_tile_rows(s->rows);
    const linear_own_rows p = linear_n1_own_rows(gpu, f, tiles, tile_rows, block);
    CHECK(!p.blocks || (gpu->capability >= 90 && p.stages >= 1 && p.blocks == block->blocks &&
                        p.shared_bytes == block->shared_bytes &&
                        linear_own_rows_shared(f, tiles, &p) <= p.shared_bytes && p.share >= 1 &&
                        p.warps % p.share == 0 && (p.share - 1) * vb_ceil_div(tiles, p.share) < tiles &&
                        (int64_t)p.rounds * p.blocks * (p.warps / p.share) >= tile_rows),
          "%d warps with rows of their own at %ld x %ld on %d", p.warps, (long)s->cols, (long)s->rows,
          gpu->capability);
}
static void check_groups_of_shapes(void) {
    const vb_gpu gpu = {90, 132, 227 << 10, true};
    const struct {
        vb_dtype type;
        int64_t n, rows, cols;
        int groups;
    } products[] = {{VB_Q8_0, 1, 49152, 576, 2},   {VB_Q5_1, 1, 39120, 576, 2},   {VB_Q6_K, 1, 22016, 1024, 1},
                    {VB_Q5_0, 1, 19568, 1152, 2},  {VB_Q6_K, 1, 151936, 2048, 1}, {VB_Q8_0, 1, 151936, 896, 1},
                    {VB_MXFP4, 2, 39120, 576, 3},  {VB_NVFP4, 4, 39120, 576, 3},  {VB_Q4_K, 2, 22016, 1024, 1},
                    {VB_NVFP4, 2, 19568, 1152, 2}, {VB_Q4_0, 2, 44000, 1024, 2},  {VB_Q8_0, 2, 44000, 1088, 2}};
    for (int i = 0; i < 12; i++) {
        const linear_shape s = {products[i].type, VB_PACKED, products[i].n, products[i].rows, products[i].cols, false,
                                true, true, true};
        linear_choice c = choose_linear(&s, &gpu);
        const vb_packed_format f = vb_packed_format_of(s.type);
        const int groups = linear_groups(&gpu, f, s.n, linear_row_tiles(f, s.cols),
                                         vb_ceil_div(linear_tile_rows(s.rows), c.items.parts), &c.items);
        CHECK(c.kernel == (s.n == 1 ? LINEAR_PACKED_N1 : LINEAR_PACKED_N4) && groups == products[i].groups,
              "%d groups at %ld x %ld x %ld", groups, (long)s.n, (long)s.cols, (long)s.rows);
    }
    const struct {
        vb_dtype type;
        int64_t rows, cols;
        int share; /* warps of a row of tiles, 0: those of a block */
    } rows[] = {{VB_Q8_0, 49152, 576, 0},  {VB_NVFP4, 39136, 576, 1},  {VB_Q4_K, 22016, 1024, 1},
                {VB_Q4_0, 19568, 1152, 1}, {VB_Q4_K, 151936, 2048, 0}, {VB_IQ4_NL, 35216, 640, 1},
                {VB_NVFP4, 1536, 576, 0},  {VB_Q4_K, 11008, 2048, 2},  {VB_Q4_0, 151936, 896, 0},
                {VB_IQ4_NL, 11008, 2048, 2}};
    for (int i = 0; i < 10; i++) {
        const linear_shape s = {rows[i].type, VB_PACKED, 1, rows[i].rows, rows[i].cols, false, true, true, true};
        const linear_choice c = choose_linear(&s, &gpu);
        const vb_packed_format f = vb_packed_format_of(s.type);
        const linear_own_rows p =
            linear_n1_own_rows(&gpu, f, linear_row_tiles(f, s.cols), linear_tile_rows(s.rows), &c.items);
        CHECK(c.kernel == LINEAR_PACKED_N1 && (p.blocks ? p.share : 0) == rows[i].share,
              "%d warps a row of tiles at %ld x %ld", p.share, (long)s.cols, (long)s.rows);
    }
}

/* Rows of 2,048 columns by two rows of x: who shares them. */
static void check_halves_of_shapes(void) {
    const vb_gpu gpu = {90, 132, 227 << 10, true};
    const struct {
        vb_dtype type;
        int64_t n, rows, cols;
        bool norm;
        int ksplit;
    } products[] = {{VB_Q4_0, 2, 11008, 2048, false, 2}, {VB_MXFP4, 4, 11008, 2048, false, 2},
                    {VB_Q4_0, 2, 11008, 2048, true, 1},  {VB_Q4_K, 2, 11008, 2048, false, 1},
                    {VB_Q4_K, 2, 9728, 2560, false, 2},  {VB_Q8_0, 2, 11008, 2048, false, 1},
                    {VB_Q4_0, 2, 4096, 2048, false, 1},  {VB_Q4_0, 2, 151936, 2048, false, 1}};
    for (int i = 0; i < 8; i++) {
        const linear_shape s = {products[i].type, VB_PACKED, products[i].n, products[i].rows, products[i].cols,
                                products[i].norm, true, true, true};
        const linear_choice c = choose_linear(&s, &gpu);
        CHECK(c.kernel == LINEAR_PACKED_N4 && c.items.ksplit == products[i].ksplit, "%d parts at %ld x %ld x %ld",
              c.items.ksplit, (long)s.n, (long)s.cols, (long)s.rows);
    }
}

/* A vocabulary of 5 to 8 rows of x takes units on Hopper. */
static void check_vocabulary(void) {
    const vb_gpu cards[2] = {{90, 132, 227 << 10, true}, {89, 128, 99 << 10, false}};
    for (int card = 0; card < 2; card++)
        for (int64_t n = 4; n <= 8; n++) {
            const vb_gpu *const gpu = &cards[card];
            const linear_shape s = {VB_Q6_K, VB_PACKED, n, n % 2 ? 32000 : 151936, 2048, true, true, true, true};
            const linear_kernel units = card == 0 ? LINEAR_PACKED_N32_SM90 : LINEAR_PACKED_N32,
                                want = n == 4 && card == 0 ? LINEAR_PACKED_N4 : units;
            CHECK_NAMED(choose_fused_linear(&s, gpu).kernel, want);
        }
}

/* The same of a model's shapes: of Llama 3B on Hopper and on an RTX 40. */
static void check_adapted_shapes(void) {
    const vb_gpu cards[2] = {{90, 132, 227 << 10, true}, {89, 128, 99 << 10, false}};
    const int64_t rows_of_x[] = {1, 2, 3, 4, 8, 9, 512};
    for (int card = 0; card < 2; card++)
        for (int i = 0; i < 7; i++) {
            const vb_gpu *const gpu = &cards[card];
            const int64_t n = rows_of_x[i];
            const linear_shape out = {VB_Q4_K, VB_PACKED, n, 2048, 2048, false, true, true, true};
            const linear_shape gate = {VB_Q4_K, VB_PACKED, n, 11008, 2048, true, true, true, true};
            const linear_shape down = {VB_Q6_K, VB_PACKED, n, 2048, 11008, false, true, true, true};
            const linear_kernel many = n <= 32 ? LINEAR_PACKED_N32_SM90 : LINEAR_PACKED_MANY_SM90;
            const linear_kernel few = n == 1 ? LINEAR_PACKED_N1 : n == 2 ? LINEAR_PACKED_N4 : LINEAR_PACKED_N32;
            linear_kernel want[3] = {n <= 8 ? few : many, n <= 8 ? few : LINEAR_COMPOSED,
                                     n == 1   ? LINEAR_N1_SWIGLU
                                     : n == 2 ? LINEAR_N4_SWIGLU
                                     : n <= 8 ? LINEAR_N32_SWIGLU
                                              : many};
            if (card > 0) want[0] = want[1] = want[2] = LINEAR_COMPOSED; /* only Hopper's kernels add updates */
            CHECK_NAMED(choose_adapted_attention(&out, true, 8, true, gpu).kernel, want[0]);
            CHECK_NAMED(choose_adapted_attention(&out, false, 8, true, gpu).kernel, want[1]);
            CHECK_NAMED(
                n <= 8
                    ? choose_adapted_items(&gate, VB_Q4_K, VB_PACKED, &down, 8, true, true, gpu).gate_up.kernel
                    : choose_adapted_feed_forward(&gate, VB_Q4_K, VB_PACKED, VB_Q6_K, VB_PACKED, 8, true, gpu).kernel,
                want[2]);
        }
    const struct {
        vb_dtype type;
        int64_t rows, cols;
        bool one;
    } products[] = {{VB_Q5_0, 896, 896, true},    {VB_Q5_0, 896, 4864, true},   {VB_Q4_K, 2048, 2048, true},
                    {VB_Q6_K, 2048, 11008, true}, {VB_Q4_K, 3584, 3584, false}, {VB_Q6_K, 3584, 18944, false}};
    for (int i = 0; i < 6; i++) { /* attention's and down's of Qwen2.5 0.5B, 3B and 7B */
        const int64_t rows = products[i].rows, cols = products[i].cols;
        const linear_shape s = {products[i].type, VB_PACKED, 1, rows, cols, false, true, true, true};
        const linear_choice c = choose_adapted_linear(&s, 8, true, &cards[0]);
        CHECK(linear_n1_one_item(vb_packed_format_of(s.type), rows, cols, &c.items) == products[i].one,
              "an item a block of %ld rows of %ld columns", (long)rows, (long)cols);
    }
}

static void test_linear(void) {
    static const int64_t sizes[] = {64, 128, 512, 576, 640, 896, 1152, 1536, 2048, 2880, 3584, 4096, 4864, 8192, 8960,
                                    11008, 18944, 32768, 65536, 151936};
    enum { SIZES = sizeof sizes / sizeof *sizes };
    for (int i = 0; i < 3000; i++) {
        const vb_dtype type = linear_types[any_of(LINEAR_TYPES)];
        const int64_t block = vb_dtype_block_size(type);
        const int64_t n = any_of(3) ? 1 + any_of(40) : any_size(13),
                      rows = any_of(2) ? sizes[any_of(SIZES)] : any_size(18);
        int64_t cols = any_of(2) ? sizes[any_of(SIZES)] : any_size(18);
        cols = vb_ceil_div(cols, block) * block;
        for (int g = 0; g < gpu_count; g++) {
            const vb_gpu *const gpu = &gpus[g];
            linear_shape s = {type, VB_STORED, n, rows, cols, false, any_of(8) > 0, any_of(8) > 0, any_of(8) > 0};
            linear_choice c = choose_linear(&s, gpu);
            check_linear(&s, &c, gpu);
            CHECK(choose_fused_linear(&s, gpu).kernel == LINEAR_COMPOSED, "stored weights have no fused kernels: %s",
                  vb_dtype_string(type));
            check_swiglu(&s, gpu);
            if (!is_packable(gpu, type, rows, cols)) continue;
            s.layout = VB_PACKED;
            c = choose_linear(&s, gpu);
            check_linear(&s, &c, gpu);
            if (c.kernel == LINEAR_PACKED_N1) check_own_rows(&s, gpu, &c.items);
            const linear_choice sum = choose_linear_sum(&s, gpu);
            check_linear(&s, &sum, gpu);
            CHECK(sum.kernel == c.kernel && sum.items.shared_bytes <= c.items.shared_bytes,
                  "a sum of %ld x %ld on %d takes %s", (long)rows, (long)cols, gpu->capability,
                  linear_kernel_info(sum.kernel).name);
            if (c.kernel == LINEAR_PACKED_N1 || c.kernel == LINEAR_PACKED_N4) check_groups(&s, gpu, &c.items);
            s.norm = any_of(2);
            c = choose_fused_linear(&s, gpu);
            if (s.inputs_aligned) check_linear(&s, &c, gpu);
            else CHECK(c.kernel == LINEAR_COMPOSED, "unaligned rows on %d", gpu->capability);
            s.norm = true;
            check_swiglu(&s, gpu);
            check_adapted(&s, gpu);
            if (s.n == 1) check_one_item(&s, gpu);
            const int64_t dim = 16 * (1 + any_of(16)), kv_heads = 1 + any_of(16), heads = kv_heads * (1 + any_of(8));
            const vb_dtype kv_types[] = {VB_F16, VB_F32, VB_Q8_0}, v_type = linear_types[any_of(LINEAR_TYPES)];
            const linear_qkv_shape qkv = {type, type, is_packable(gpu, v_type, kv_heads * dim, cols) ? v_type : type,
                                          VB_PACKED, VB_PACKED, VB_PACKED, n, cols, heads, kv_heads, dim,
                                          any_of(4) ? dim / 2 : dim / 4, 4096, kv_types[any_of(3)], any_of(3) == 0,
                                          any_of(8) > 0, any_of(8) > 0, any_of(3) == 0};
            check_qkv(&qkv, gpu);
        }
    }
    check_named_linear();
    check_adapted_shapes();
    check_vocabulary();
    check_groups_of_shapes();
    check_halves_of_shapes();
    for (int g = 0; g < gpu_count; g++) /* hidden sizes of models */
        for (int64_t hidden = 64; hidden <= 2880; hidden += 64)
            CHECK(is_packable(&gpus[g], VB_Q4_1, hidden, hidden) == (gpus[g].capability >= 75), "%ld on %d",
                  (long)hidden, gpus[g].capability);
}
