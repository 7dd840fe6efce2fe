// expert_n1.cu: expert_feed_forward of few tokens, packed weights, as two kernels (linear/packed/n1.cuh).
//
//   gate, up   gated[j] = activation(x Gate[e]^T, x Up[e]^T) for a token's choices j, e = ids[j]. An item is a row of
//              tiles of both
//   down       sum = add + [w[0] Down[ids[0]], ...] [gated[0]; gated[1]; ...]. The down projections of a token's
//              choices side by side are one matrix. An item is a row of its tiles, so the sum over choices is free
//
//   grid     n1.cuh's blocks for each token. Where rows of tiles are a little more than multiprocessors, clusters of
//            two or four share the rows of down: three rounds of parts instead of two of wholes (gpt-oss-20b)
//   moves    the weights of the chosen experts, once for each choice
//   bound    memory bandwidth. The experts are known when the kernel before has ended: gate and up are fetched after

#include "moe/moe.cuh"
#ifdef VB_HAS_PACKED_LAYOUT
#include "linear/packed/n1.cuh"
#include "rows/glu.cuh"
#include "runtime/quotient.cuh"

namespace vb {
namespace {

// A token's experts, one a lane.
struct Chosen {
    const int32_t *ids;   // [n][k]
    const float *weights; // [n][k], or null for ones
    int k, experts;
    int id;       // of the expert whose number is the lane's, in 0..experts-1
    float weight; // of this expert; NaN for an id of none
    VB_DEVICE void ask(int64_t token, int lane) {
        const int64_t at = token * k + lane;
        id = lane < k ? __ldcg(ids + at) : 0;
        weight = weights && lane < k ? __ldcg(weights + at) : 1.0f;
    }
    VB_DEVICE void check() {
        if (id >= 0 && id < experts) return;
        id = 0, weight = not_a_number();
    }
    VB_DEVICE int id_of(int choice) const { return __shfl_sync(all_lanes, id, choice); }
    VB_DEVICE float weight_of(int choice) const { return __shfl_sync(all_lanes, weight, choice); }
};

// The experts of a token, which the kernel before chooses.
struct Chooses {
    Chosen &chosen;
    int64_t token;
    VB_DEVICE void ask() const { chosen.ask(token, threadIdx.x % 32); }
    VB_DEVICE void operator()() const { chosen.check(); }
};

struct GateUpOut {
    static constexpr NoUpdate update = {};
    static constexpr bool norm = false, late = true, joined = false;
    Chosen chosen;
    const uint8_t *gate, *up;
    const float *gate_bias, *up_bias; // [experts][rows], or null
    float *out;                       // [n][k][rows]
    int64_t row_bytes;                // of a row of tiles
    int rows;                         // of an expert
    Quotient tile_rows;               // of an expert
    AnyGlu activation;
    struct Ahead {
        float bias; // of the gate in the lower lanes, of the up projection in the upper ones
    };

    VB_DEVICE const uint8_t *tiles(int item, int part) const {
        const int choice = tile_rows.of(item);
        return (part ? up : gate) +
               ((int64_t)chosen.id_of(choice) * tile_rows.by + (item - choice * tile_rows.by)) * row_bytes;
    }
    VB_DEVICE void prepare(Ahead *, int, int) const {}
    VB_DEVICE void fetch(Ahead *, int, int) const {}
    VB_DEVICE void fetch_more(Ahead *ahead, int item, int lane) const {
        const int choice = tile_rows.of(item);
        const int64_t expert = chosen.id_of(choice);
        const float *const bias = lane < 16 ? gate_bias : up_bias;
        ahead->bias = bias ? bias[expert * rows + (item - choice * tile_rows.by) * packed_rows + lane % 16] : 0.0f;
    }
    VB_DEVICE void store(const Ahead &ahead, int item, int lane, float sum) const {
        const float own = sum + ahead.bias, other = __shfl_xor_sync(all_lanes, own, 16);
        const int choice = tile_rows.of(item);
        if (lane < 16)
            out[(int64_t)choice * rows + (item - choice * tile_rows.by) * packed_rows + lane] = activation(own, other);
    }
};

struct DownOut {
    static constexpr NoUpdate update = {};
    static constexpr bool norm = false, late = false, joined = true;
    Chosen chosen;
    const uint8_t *w;
    const float *bias; // [experts][rows], or null
    const float *add;  // [n][rows], or null; may be out
    float *out;        // [n][rows]
    int rows, tile_rows, cols;    // of an expert
    Quotient row_tiles;           // of an expert
    int tile_bytes, depth;
    static constexpr int biases = 4; // of a lane at a time: the halves of a warp have every other choice
    struct Ahead {
        float addend, bias[biases];
    };

    VB_DEVICE const uint8_t *tile(int item, int tile) const {
        const int choice = row_tiles.of(tile);
        return w + (((int64_t)chosen.id_of(choice) * tile_rows + item) * row_tiles.by +
                    (tile - choice * row_tiles.by)) * tile_bytes;
    }
    VB_DEVICE float4 read(const N1Input &in, int tile, int k, bool inside) const {
        const int choice = row_tiles.of(tile), column = (tile - choice * row_tiles.by) * depth + k;
        return inside && column < cols ? *reinterpret_cast<const float4 *>(in.x + (choice * cols + column))
                                       : make_float4(0, 0, 0, 0);
    }
    template <int N>
    VB_DEVICE void weigh(float4 (&x)[N], int tile) const {
        const float weight = chosen.weight_of(row_tiles.of(tile));
#pragma unroll
        for (int i = 0; i < N; i++) x[i].x *= weight, x[i].y *= weight, x[i].z *= weight, x[i].w *= weight;
    }
    VB_DEVICE void load(Ahead *ahead, int first, int item, int lane) const { // of the choices first, first + 1, ...
#pragma unroll
        for (int i = 0; i < biases; i++) {
            const int choice = first + 2 * i + lane / 16;
            const int64_t expert = chosen.id_of(choice);
            ahead->bias[i] = choice < chosen.k ? bias[expert * rows + item * packed_rows + lane % 16] : 0.0f;
        }
    }
    VB_DEVICE void prepare(Ahead *ahead, int item, int lane) const {
        ahead->addend = add ? add[item * packed_rows + lane % 16] : 0.0f;
        if (bias) load(ahead, 0, item, lane);
    }
    VB_DEVICE void fetch(Ahead *, int, int) const {}
    VB_DEVICE void fetch_more(Ahead *ahead, int item, int lane) const {
        if (!bias) return;
        float sum = 0;
#pragma unroll 1
        for (int first = 0;;) {
#pragma unroll
            for (int i = 0; i < biases; i++)
                sum = fmaf(chosen.weight_of(first + 2 * i + lane / 16), ahead->bias[i], sum);
            first += 2 * biases;
            if (first >= chosen.k) break;
            load(ahead, first, item, lane);
        }
        ahead->addend += sum + __shfl_xor_sync(all_lanes, sum, 16);
    }
    VB_DEVICE void store(const Ahead &ahead, int item, int lane, float sum) const {
        if (lane < 16) out[item * packed_rows + lane] = sum + ahead.addend;
    }
};

template <class Block>
__global__ void __launch_bounds__(32 * n1_warps, 2) expert_gate_up_kernel(N1Input in, GateUpOut out) {
    const int64_t token = blockIdx.y;
    in.x += token * in.cols;
    out.out += token * out.chosen.k * out.rows;
    n1_product<Block, 2>(in, out, blockIdx.x, gridDim.x, Chooses{out.chosen, token});
}

template <class Block, int KSPLIT>
__global__ void __launch_bounds__(32 * n1_warps, 2) expert_down_kernel(N1Input in, DownOut out) {
#if __CUDA_ARCH__ < 900
    if constexpr (KSPLIT > 1) return __trap(); // moe_down_items
#endif
    // The experts were known before gate_up began, so that tiles are fetched while gate_up is at work.
    const int64_t token = blockIdx.y;
    out.chosen.ask(token, threadIdx.x % 32);
    out.chosen.check();
    in.x += token * out.chosen.k * out.cols, out.out += token * out.rows;
    if (out.add) out.add += token * out.rows;
    n1_product<Block, 1, KSPLIT>(in, out, blockIdx.x / KSPLIT, gridDim.x / KSPLIT);
}

template <class Block>
vb_status gate_up(const vb_expert_feed_forward_args &a, const linear_items &items, vb_stream *stream) {
    using P = Packed<Block>;
    const int tiles = (int)P::tiles_of(a.gate.cols), tile_rows = (int)linear_tile_rows(a.gate.rows);
    // patient: the tiles of down would come before those of the later items
    const N1Input in = {a.x,          nullptr,     0,            tiles, (int)a.k * tile_rows,
                        items.stages, items.chunk, items.stages, true,  (int)a.gate.cols};
    const GateUpOut out = {{a.ids, nullptr, (int)a.k, (int)a.experts, 0, 0},
                           (const uint8_t *)a.gate.data,
                           (const uint8_t *)a.up.data,
                           a.gate_bias,
                           a.up_bias,
                           a.gated,
                           (int64_t)tiles * P::tile_bytes,
                           (int)a.gate.rows,
                           Quotient(tile_rows),
                           {a.activation, a.alpha, a.limit}};
    return launch_overlapped(stream, dim3((unsigned)items.blocks, (unsigned)a.n), 32 * items.warps, items.shared_bytes,
                             expert_gate_up_kernel<Block>, in, out);
}

template <class Block>
vb_status down(const vb_expert_feed_forward_args &a, const linear_items &items, vb_stream *stream) {
    using P = Packed<Block>;
    const int tiles = (int)P::tiles_of(a.down.cols), tile_rows = (int)linear_tile_rows(a.down.rows);
    const N1Input in = {a.gated,     nullptr, 0,     (int)a.k * tiles, tile_rows, items.stages,
                        items.chunk, 0,       false, (int)a.down.cols};
    const DownOut out = {{a.ids, a.weights, (int)a.k, (int)a.experts, 0, 0},
                         (const uint8_t *)a.down.data,
                         a.down_bias,
                         a.add,
                         a.sum,
                         (int)a.down.rows,
                         tile_rows,
                         (int)a.down.cols,
                         Quotient(tiles),
                         P::tile_bytes,
                         P::depth};
    const dim3 grid((unsigned)items.blocks, (unsigned)a.n);
    if constexpr (P::depth == 128)
        if (items.ksplit == 4)
            return launch_cluster(stream, 4, grid, 32 * items.warps, items.shared_bytes, expert_down_kernel<Block, 4>,
                                  in, out);
    return items.ksplit == 2 ? launch_cluster(stream, 2, grid, 32 * items.warps, items.shared_bytes,
                                              expert_down_kernel<Block, 2>, in, out)
                             : launch_overlapped(stream, grid, 32 * items.warps, items.shared_bytes,
                                                 expert_down_kernel<Block, 1>, in, out);
}

template <bool DOWN>
vb_status product(vb_dtype type, const vb_expert_feed_forward_args &a, const linear_items &items, vb_stream *stream) {
    switch (vb_packed_as(type)) {
#define X(type, Block, ...) case type: return DOWN ? down<Block>(a, items, stream) : gate_up<Block>(a, items, stream);
        VB_PACKED_TYPES(X)
#undef X
    default: return VB_UNSUPPORTED;
    }
}

} // namespace

vb_status expert_feed_forward_n1(const vb_expert_feed_forward_args &a, const moe_choice &choice, vb_stream *stream) {
    VB_TRY(product<false>(a.gate.type, a, choice.gate_up, stream));
    return product<true>(a.down.type, a, choice.down, stream);
}

} // namespace vb
#endif
