// bulk.cpp: copies by Hopper's copy engine (TMA). A copy into shared memory is done when a thread waits for its
// barrier: what reads the destination without waiting sees what was there before. A box is stored at once.

#include "bulk.h"

#include "decode.h"

namespace emulator {

void complete_bytes(Warp &w, uint32_t barrier, int64_t bytes, int lane, const Clock *began);

constexpr uint32_t window = (1u << block_window) - 1;

static void write_shared(Warp &w, const BulkCopy &c, uint32_t address, const char *from, int bytes) {
    if (!c.to_block->touches.empty()) w.check(*c.to_block, address, bytes, true, c.warp, c.clock, 0);
    memcpy(c.to_block->memory + address, from, (size_t)bytes);
}

static void copy_box(Warp &w, const BulkCopy &c) {
    const TensorMap &map = *(const TensorMap *)c.map;
    uint32_t at[5] = {};
    uint32_t address = c.to;
    const int rank = map.rank, element = map.element;
    const int row = (int)map.box[0] * element;
    const char zeros[16] = {};
    uint64_t rows = 1;
    for (int d = 1; d < rank; d++) rows *= map.box[d];
    for (uint64_t r = 0; r < rows; r++) {
        bool inside = true;
        uint64_t from = map.address;
        for (int d = 1; d < rank; d++) {
            const int64_t place = (int64_t)c.coordinates[d] + at[d];
            inside &= place >= 0 && place < (int64_t)map.sizes[d];
            from += (uint64_t)place * map.strides[d - 1];
        }
        for (int i = 0; i < row; i += 16) { // a box's rows are whole pieces of 16 bytes
            char piece[16];
            const int64_t first = (int64_t)c.coordinates[0] + i / element;
            if (inside && first >= 0 && first + 16 / element <= (int64_t)map.sizes[0]) {
                memcpy(piece, w.global(from + (uint64_t)(first * element), 16, 0, false), 16);
            } else
            for (int e = 0; e < 16; e += element) {
                const int64_t place = (int64_t)c.coordinates[0] + (i + e) / element;
                const bool here = inside && place >= 0 && place < (int64_t)map.sizes[0];
                memcpy(piece + e,
                       here ? w.global(from + (uint64_t)place * (uint64_t)element, element, 0, false) : zeros,
                       (size_t)element);
            }
            uint32_t to = address + (uint32_t)i;
            if (map.swizzle) to ^= (to >> 7 & (map.swizzle / 16u - 1)) << 4;
            write_shared(w, c, to, piece, 16);
        }
        address += (uint32_t)row;
        for (int d = 1; d < rank && ++at[d] == map.box[d]; d++) at[d] = 0;
    }
}

void finish_bulk_copies(Warp &w, Block *block, uint32_t barrier) {
    Cluster &cluster = *block->cluster;
    if (barrier >> block_window) {
        block = cluster.blocks[(barrier >> block_window) - 1].get();
        barrier &= window;
    }
    for (size_t i = 0; i < cluster.copies.size();) {
        const BulkCopy &c = cluster.copies[i];
        if (c.barrier_block != block || c.barrier != barrier) {
            i++;
            continue;
        }
        const BulkCopy now = c;
        cluster.copies.erase(cluster.copies.begin() + (ptrdiff_t)i);
        if (now.map) copy_box(w, now);
        else write_shared(w, now, now.to, w.global(now.from, 1, 0, false), (int)now.bytes);
        complete_bytes(w, barrier | (uint32_t)(block->rank + 1) << block_window, now.bytes, 0, &now.clock);
    }
}

// Puts a copy among those under way, for each block of the mask, or for the one that the address names.
static void enqueue(Warp &w, BulkCopy c, uint32_t to, uint32_t barrier, int blocks, int lane) {
    Cluster &cluster = *w.block->cluster;
    c.warp = w.number();
    c.clock = w.clock;
    const auto block_at = [&](uint32_t address) {
        return address >> block_window ? cluster.blocks.at((address >> block_window) - 1).get() : w.block;
    };
    for (uint32_t rank = 0; rank < cluster.blocks.size(); rank++) {
        if (blocks >= 0 && !(blocks >> rank & 1)) continue;
        c.to_block = blocks >= 0 ? cluster.blocks[rank].get() : block_at(to);
        c.barrier_block = blocks >= 0 ? c.to_block : block_at(barrier);
        c.to = to & window;
        c.barrier = barrier & window;
        if (c.to < (uint32_t)shared_start || (int64_t)c.to + c.bytes > c.to_block->shared_end)
            w.fail(format("a bulk copy of %lld bytes to shared address %#x, outside the block's memory",
                          (long long)c.bytes, c.to),
                   lane, FAULT_ADDRESS);
        cluster.copies.push_back(c);
        if (blocks < 0) break;
    }
    if (blocks >> cluster.blocks.size() > 0)
        w.fail(format("a copy to blocks %#x of a cluster of %zu", blocks, cluster.blocks.size()), lane);
}

static const TensorMap &tensor_map_at(Warp &w, uint64_t address, int rank, int lane) {
    if (address & 63) w.fail("a tensor map that is not aligned to 64 bytes", lane, FAULT_MISALIGNED);
    for (int k = 0; k < 128; k += 16) w.global(address + (uint64_t)k, 16, lane, false);
    const TensorMap &map = *(const TensorMap *)(uintptr_t)address;
    if (map.mark != tensor_map_mark || map.rank != rank) w.fail(format("no tensor map of %d dimensions", rank), lane);
    return map;
}

// [map, {column, row}], [from]: a box of a matrix; what lies outside the matrix is left out.
static void build_bulk_store(Decoder &d, Instruction &in) {
    if (!d.has("tensor") || !d.has("2d") || d.operand(0).parts.size() != 2) d.unknown();
    Instruction map;
    d.address(map, d.operand(0));
    d.address(in, d.operand(1));
    std::vector<Slot> more = {map.a};
    for (const Operand &o : d.operand(0).parts[1].parts) more.push_back(d.slot(o, Type::U32));
    in.more = d.list(more);
    in.run = [](Warp &w, const Instruction &t) {
        for (uint32_t rest = w.mask; rest; rest &= rest - 1) {
            const int i = __builtin_ctz(rest);
            const TensorMap &map = tensor_map_at(w, w.at<uint64_t>((*t.more)[0])[i], 2, i);
            const uint32_t from = w.at<uint32_t>(t.a)[i];
            const int row_bytes = (int)map.box[0] * map.element;
            if (from & 127 || from < (uint32_t)shared_start ||
                (int64_t)from + row_bytes * (int64_t)map.box[1] > w.block->shared_end)
                w.fail(format("a box stored from shared address %#x", from), i, FAULT_ADDRESS);
            for (int row = 0; row < (int)map.box[1]; row++)
                for (int e = 0; e < (int)map.box[0]; e++) {
                    const int64_t column = (int64_t)(int)w.at<uint32_t>((*t.more)[1])[i] + e,
                                  at = (int64_t)(int)w.at<uint32_t>((*t.more)[2])[i] + row;
                    if (column < 0 || column >= (int64_t)map.sizes[0] || at < 0 || at >= (int64_t)map.sizes[1])
                        continue;
                    uint32_t place = from + (uint32_t)(row * row_bytes + e * map.element);
                    if (map.swizzle) place ^= (place >> 7 & (map.swizzle / 16u - 1)) << 4;
                    memcpy(w.global(map.address + (uint64_t)at * map.strides[0] + (uint64_t)(column * map.element),
                                    map.element, i, true),
                           w.block->memory + place, map.element);
                }
        }
    };
}

void build_bulk_copy(Decoder &d, Instruction &in) {
    if (d.has("commit_group") || d.has("wait_group")) { // of stores, which are done
        in.run = [](Warp &, const Instruction &) {};
        return;
    }
    if (d.has("bulk_group")) return build_bulk_store(d, in);
    if (!d.has("shared::cluster") || !d.has("global") || !d.has("mbarrier::complete_tx::bytes")) d.unknown();
    Instruction other;
    d.address(in, d.operand(0)); // shared
    d.address(other, d.operand(1));
    std::vector<Slot> more = {other.a};
    const int64_t from = other.number;
    if (in.number || from) d.unknown();
    if (d.has("tensor")) {
        // [to], [map, {coordinates}], [barrier], blocks
        if (d.has("im2col") || d.operand(1).parts.size() != 2) d.unknown();
        Instruction barrier;
        d.address(barrier, d.operand(2));
        more.push_back(barrier.a);
        in.count = (uint8_t)d.operand(1).parts[1].parts.size();
        for (const Operand &o : d.operand(1).parts[1].parts) more.push_back(d.slot(o, Type::U32));
        if (d.has("multicast::cluster")) in.c = d.slot(3, Type::U16);
        in.more = d.list(more);
        in.run = [](Warp &w, const Instruction &t) {
            for (uint32_t rest = w.mask; rest; rest &= rest - 1) {
                const int i = __builtin_ctz(rest);
                const TensorMap &map = tensor_map_at(w, w.at<uint64_t>((*t.more)[0])[i], t.count, i);
                BulkCopy c = {};
                c.map = &map;
                c.bytes = map.element;
                for (int k = 0; k < map.rank; k++) {
                    c.bytes *= map.box[k];
                    c.coordinates[k] = (int)w.at<uint32_t>((*t.more)[(size_t)(2 + k)])[i];
                }
                const uint32_t to = w.at<uint32_t>(t.a)[i];
                if (to & 127)
                    w.fail(format("a tensor copy to shared address %#x, no multiple of 128", to), i, FAULT_MISALIGNED);
                enqueue(w, c, to, w.at<uint32_t>((*t.more)[1])[i], t.c.bytes ? w.at<uint16_t>(t.c)[i] : -1, i);
            }
        };
        return;
    }
    // [to], [from], bytes, [barrier]
    if (d.has("multicast::cluster")) d.unknown();
    in.b = d.slot(2, Type::U32);
    Instruction barrier;
    d.address(barrier, d.operand(3));
    more.push_back(barrier.a);
    in.more = d.list(more);
    in.run = [](Warp &w, const Instruction &t) {
        for (uint32_t rest = w.mask; rest; rest &= rest - 1) {
            const int i = __builtin_ctz(rest);
            BulkCopy c = {};
            c.from = w.at<uint64_t>((*t.more)[0])[i];
            c.bytes = w.at<uint32_t>(t.b)[i];
            const uint32_t to = w.at<uint32_t>(t.a)[i];
            if ((c.from | (uint64_t)c.bytes | to) & 15)
                w.fail(format("a bulk copy of %lld bytes from %#llx to %#x: all are multiples of 16",
                              (long long)c.bytes, (unsigned long long)c.from, to),
                       i, FAULT_MISALIGNED);
            for (int64_t k = 0; k < c.bytes; k += 16) w.global(c.from + (uint64_t)k, 16, i, false);
            enqueue(w, c, to, w.at<uint32_t>((*t.more)[1])[i], -1, i);
        }
    };
}

} // namespace emulator
