// access.cpp: loads, stores, atomic operations and copies of single lanes.

#include "decode.h"
#include "floats.h"

namespace emulator {

enum Space { GENERIC, SHARED, LOCAL, PARAMETER };

// The address that a lane's operand says.
static inline uint64_t lane_address(Warp &w, const Instruction &in, int i) {
    const uint64_t base = in.a.bytes == 4 ? w.at<uint32_t>(in.a)[i] : w.at<uint64_t>(in.a)[i];
    return base + (uint64_t)in.number;
}

template <int SPACE>
static inline char *place(Warp &w, const Instruction &in, int i, int bytes, bool write) {
    const uint64_t address = lane_address(w, in, i);
    if (SPACE == SHARED) return w.shared((uint32_t)address, bytes, i, write);
    if (SPACE == LOCAL) {
        if (address + (uint64_t)bytes > (uint64_t)w.launch->local_bytes)
            w.fail("an address outside local memory", i, FAULT_ADDRESS);
        return w.local + i * w.launch->local_bytes + address;
    }
    if (SPACE == PARAMETER && in.base == BASE_PARAMETERS) return w.launch->parameters() + address;
    return w.global(address, bytes, i, write);
}

static Space space_of(const Decoder &d) {
    for (const std::string &word : d.current().words) {
        if (word.rfind("shared", 0) == 0) return SHARED;
        if (word == "local") return LOCAL;
        if (word.rfind("param", 0) == 0) return PARAMETER;
    }
    return GENERIC;
}

static int vector_of(const Decoder &d) { return d.has("v2") ? 2 : d.has("v4") ? 4 : d.has("v8") ? 8 : 1; }

// Whether another warp may store what a load waits for.
static bool may_spin(const Decoder &d) {
    return d.has("volatile") || d.has("acquire") || d.has("relaxed") || d.has("mmio");
}

// A vector is read and written at once (volatile): who writes 16 bytes at once is not seen halfway.
template <int BYTES> struct Bytes { typedef char type __attribute__((vector_size(BYTES), may_alias)); };
template <> struct Bytes<1> { typedef char type; };

template <class M, class R, int SPACE, int COUNT>
static void load(Warp &w, const Instruction &in) {
    R *to[COUNT];
    if (COUNT == 1) to[0] = w.at<R>(in.d);
    else for (size_t v = 0; v < COUNT; v++) to[v] = w.at<R>((*in.more)[v]);
    using Whole = typename Bytes<sizeof(M) * COUNT <= 32 ? sizeof(M) * COUNT : 32>::type;
    for (uint32_t rest = w.mask; rest; rest &= rest - 1) {
        const int i = __builtin_ctz(rest);
        const char *const from = place<SPACE>(w, in, i, (int)sizeof(M) * COUNT, false);
        M values[COUNT];
        const Whole whole = *reinterpret_cast<const volatile Whole *>(from);
        memcpy(values, &whole, sizeof values);
        for (int v = 0; v < COUNT; v++) to[v][i] = (R)values[v];
    }
    if (in.count) w.spin(16);
}

template <class M, class R, int SPACE, int COUNT>
static void store(Warp &w, const Instruction &in) {
    const R *from[COUNT];
    if (COUNT == 1) from[0] = w.at<R>(in.d);
    else for (size_t v = 0; v < COUNT; v++) from[v] = w.at<R>((*in.more)[v]);
    using Whole = typename Bytes<sizeof(M) * COUNT <= 32 ? sizeof(M) * COUNT : 32>::type;
    for (uint32_t rest = w.mask; rest; rest &= rest - 1) {
        const int i = __builtin_ctz(rest);
        char *const to = place<SPACE>(w, in, i, (int)sizeof(M) * COUNT, true);
        M values[COUNT];
        for (int v = 0; v < COUNT; v++) values[v] = (M)from[v][i];
        Whole whole;
        memcpy(&whole, values, sizeof whole);
        *reinterpret_cast<volatile Whole *>(to) = whole;
    }
}

template <class M, class R, int SPACE, bool STORE>
static Run access_count(int count) {
    switch (count) {
    case 1: return STORE ? store<M, R, SPACE, 1> : load<M, R, SPACE, 1>;
    case 2: return STORE ? store<M, R, SPACE, 2> : load<M, R, SPACE, 2>;
    case 4: return STORE ? store<M, R, SPACE, 4> : load<M, R, SPACE, 4>;
    default: return nullptr;
    }
}
template <class M, int SPACE, bool STORE>
static Run access_register(int bytes, int count) {
    using U16 = typename std::conditional<std::is_signed<M>::value, int16_t, uint16_t>::type;
    using U32 = typename std::conditional<std::is_signed<M>::value, int32_t, uint32_t>::type;
    using U64 = typename std::conditional<std::is_signed<M>::value, int64_t, uint64_t>::type;
    if (bytes < (int)sizeof(M)) return nullptr;
    switch (bytes) {
    case 2: return access_count<M, U16, SPACE, STORE>(count);
    case 4: return access_count<M, U32, SPACE, STORE>(count);
    case 8: return access_count<M, U64, SPACE, STORE>(count);
    default: return nullptr;
    }
}
template <int SPACE, bool STORE>
static Run access_type(Type type, int bytes, int count) {
    switch (type) {
    case Type::U8: return access_register<uint8_t, SPACE, STORE>(bytes, count);
    case Type::S8: return access_register<int8_t, SPACE, STORE>(bytes, count);
    case Type::S16: return access_register<int16_t, SPACE, STORE>(bytes, count);
    case Type::S32: return access_register<int32_t, SPACE, STORE>(bytes, count);
    default:
        switch (bytes_of(type)) {
        case 2: return access_register<uint16_t, SPACE, STORE>(bytes, count);
        case 8: return access_register<uint64_t, SPACE, STORE>(bytes, count);
        default: return access_register<uint32_t, SPACE, STORE>(bytes, count);
        }
    }
}

template <bool STORE>
static void build_access(Decoder &d, Instruction &in) {
    const Type type = d.type();
    const int count = vector_of(d);
    d.address(in, d.operand(STORE ? 0 : 1));
    const Operand &values = d.operand(STORE ? 1 : 0);
    if (count > 1) {
        in.more = d.slots(values, type);
        in.d = (*in.more)[0];
        for (const Slot &s : *in.more) if (s.bytes != in.d.bytes) d.unknown();
    } else {
        in.d = d.slot(values.kind == Operand::VECTOR ? values.parts.at(0) : values, type);
    }
    in.count = may_spin(d);
    const Operand &base = d.operand(STORE ? 0 : 1).parts[0];
    const bool of_call = base.kind == Operand::SYMBOL && base.symbol->kind == Symbol::LOCAL; // its parameter
    switch (of_call ? LOCAL : space_of(d)) {
    case GENERIC: in.run = access_type<GENERIC, STORE>(type, in.d.bytes, count); break;
    case SHARED: in.run = access_type<SHARED, STORE>(type, in.d.bytes, count); break;
    case LOCAL: in.run = access_type<LOCAL, STORE>(type, in.d.bytes, count); break;
    case PARAMETER:
        if (!STORE) in.run = access_type<PARAMETER, false>(type, in.d.bytes, count);
        break;
    }
    if (!in.run) d.unknown();
}

// st.async [address], value, [barrier]: the barrier counts the bytes.
void complete_bytes(Warp &w, uint32_t barrier, int64_t bytes, int lane, const Clock *began); // barriers.cpp

static void build_store(Decoder &d, Instruction &in) {
    if (!d.has("async")) return build_access<true>(d, in);
    const int count = vector_of(d);
    const Type type = d.type();
    if (bytes_of(type) != 4) d.unknown();
    d.address(in, d.operand(0));
    in.count = (uint8_t)count;
    in.more = d.slots(d.operand(1), type);
    in.b = d.slot(d.operand(2).parts.at(0), Type::U32);
    in.run = [](Warp &w, const Instruction &s) {
        for (uint32_t rest = w.mask; rest; rest &= rest - 1) {
            const int i = __builtin_ctz(rest);
            uint32_t *const to = (uint32_t *)place<SHARED>(w, s, i, 4 * s.count, true);
            for (int v = 0; v < s.count; v++) to[v] = w.at<uint32_t>((*s.more)[(size_t)v])[i];
            complete_bytes(w, w.at<uint32_t>(s.b)[i], 4 * s.count, i, nullptr);
        }
    };
}

// ---- addresses -----------------------------------------------------------------------------------------------------

static void build_cvta(Decoder &d, Instruction &in) {
    const Type type = d.type();
    in.d = d.slot((size_t)0, type);
    const Operand &from = d.operand(1);
    const bool to = d.has("to");
    in.number = 0;
    if (from.kind == Operand::SYMBOL && from.symbol->kind == Symbol::PARAMETER) d.unknown();
    in.a = d.slot(1, type);
    if (type != Type::U64) d.unknown();
    switch (space_of(d)) {
    case SHARED:
        if (to) {
            in.run = [](Warp &w, const Instruction &c) {
                uint64_t *const o = w.at<uint64_t>(c.d);
                const uint64_t *const a = w.at<uint64_t>(c.a);
                for (uint32_t rest = w.mask; rest; rest &= rest - 1) {
                    const int i = __builtin_ctz(rest);
                    o[i] = a[i] - (uint64_t)(uintptr_t)w.block->memory;
                    for (const auto &b : w.block->cluster->blocks)
                        if (b.get() != w.block && a[i] - (uint64_t)(uintptr_t)b->memory < (uint64_t)b->shared_end)
                            o[i] = (a[i] - (uint64_t)(uintptr_t)b->memory) | (uint64_t)(b->rank + 1) << block_window;
                }
            };
        } else {
            in.run = [](Warp &w, const Instruction &c) {
                uint64_t *const o = w.at<uint64_t>(c.d);
                const uint64_t *const a = w.at<uint64_t>(c.a);
                for (uint32_t rest = w.mask; rest; rest &= rest - 1) {
                    const int i = __builtin_ctz(rest);
                    const uint64_t rank = a[i] >> block_window;
                    Block &b = rank && rank <= w.block->cluster->blocks.size() ? *w.block->cluster->blocks[rank - 1]
                                                                               : *w.block;
                    o[i] = (uint64_t)(uintptr_t)b.memory + (a[i] & ((1u << block_window) - 1));
                }
            };
        }
        return;
    case LOCAL:
        in.number = to ? -1 : 1;
        in.run = [](Warp &w, const Instruction &c) {
            uint64_t *const o = w.at<uint64_t>(c.d);
            const uint64_t *const a = w.at<uint64_t>(c.a);
            each_lane(w.mask, [&](int i) {
                o[i] = a[i] +
                       (uint64_t)(c.number * (int64_t)((uintptr_t)w.local + (uintptr_t)(i * w.launch->local_bytes)));
            });
        };
        return;
    default: // global memory, constants and parameters have generic addresses
        in.run = [](Warp &w, const Instruction &c) {
            uint64_t *const o = w.at<uint64_t>(c.d);
            const uint64_t *const a = w.at<uint64_t>(c.a);
            each_lane(w.mask, [&](int i) { o[i] = a[i]; });
        };
    }
}

static void build_mapa(Decoder &d, Instruction &in) { // the same place in another block of the cluster
    if (d.type() != Type::U32) d.unknown();
    in.d = d.slot((size_t)0, Type::U32);
    in.a = d.slot(1, Type::U32);
    in.b = d.slot(2, Type::U32);
    in.run = [](Warp &w, const Instruction &m) {
        for (uint32_t rest = w.mask; rest; rest &= rest - 1) {
            const int i = __builtin_ctz(rest);
            const uint32_t rank = w.at<uint32_t>(m.b)[i];
            if (rank >= w.block->cluster->blocks.size())
                w.fail(format("mapa: the cluster has no block %u", rank), i, FAULT_INSTRUCTION);
            w.at<uint32_t>(m.d)[i] = (w.at<uint32_t>(m.a)[i] & ((1u << block_window) - 1)) | (rank + 1) << block_window;
        }
    };
}

// ---- atomic operations ---------------------------------------------------------------------------------------------

template <class T, class F>
static T atomically(char *at, F f) {
    T *const p = (T *)at;
    T before = __atomic_load_n(p, __ATOMIC_SEQ_CST);
    while (!__atomic_compare_exchange_n(p, &before, f(before), false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) {}
    return before;
}

enum Change {
    ADD,
    EXCHANGE,
    MIN,
    MAX,
    AND,
    OR,
    XOR,
    SWAP,
    INC,
    DEC,
    ADD_FLOAT,
    ADD_DOUBLE,
    ADD_HALF2,
    ADD_HALF,
    ADD_BF16_2,
    ADD_BF16,
    MIN_SIGNED,
    MAX_SIGNED
};

static uint32_t add_pair(uint32_t a, uint32_t b, float (*get)(uint16_t), uint16_t (*put)(float)) {
    const uint32_t low = put(get((uint16_t)a) + get((uint16_t)b)),
                   high = put(get((uint16_t)(a >> 16)) + get((uint16_t)(b >> 16)));
    return low | high << 16;
}

template <class T>
static T changed(int change, T before, T b, T c) {
    using S = std::make_signed_t<T>;
    switch (change) {
    case ADD: return (T)(before + b);
    case EXCHANGE: return b;
    case MIN: return before < b ? before : b;
    case MAX: return before > b ? before : b;
    case MIN_SIGNED: return (S)before < (S)b ? before : b;
    case MAX_SIGNED: return (S)before > (S)b ? before : b;
    case AND: return before & b;
    case OR: return before | b;
    case XOR: return before ^ b;
    case SWAP: return before == b ? c : before;
    case INC: return before >= b ? 0 : (T)(before + 1);
    case DEC: return before == 0 || before > b ? b : (T)(before - 1);
    default: break;
    }
    if constexpr (sizeof(T) == 4) {
        if (change == ADD_FLOAT) return bits_as<uint32_t>(bits_as<float>(before) + bits_as<float>(b));
        if (change == ADD_HALF2) return add_pair(before, b, from_half, to_half);
        if (change == ADD_BF16_2) return add_pair(before, b, from_bf16, to_bf16);
    }
    if constexpr (sizeof(T) == 2) {
        if (change == ADD_HALF) return to_half(from_half(before) + from_half(b));
        if (change == ADD_BF16) return to_bf16(from_bf16(before) + from_bf16(b));
    }
    if constexpr (sizeof(T) == 8)
        if (change == ADD_DOUBLE) return bits_as<uint64_t>(bits_as<double>(before) + bits_as<double>(b));
    return before;
}

template <class T, int SPACE>
static void atomic(Warp &w, const Instruction &in) {
    for (uint32_t rest = w.mask; rest; rest &= rest - 1) {
        const int i = __builtin_ctz(rest);
        if (SPACE != SHARED) place<SPACE>(w, in, i, sizeof(T), false);
        w.atomic = true;
        char *const at = place<SPACE>(w, in, i, sizeof(T), true);
        w.atomic = false;
        const T b = w.at<T>(in.b)[i], c = in.c.bytes ? w.at<T>(in.c)[i] : T();
        const T before = atomically<T>(at, [&](T x) { return changed<T>(in.target, x, b, c); });
        if (in.d.bytes) w.at<T>(in.d)[i] = before;
    }
    w.spin(1);
}

// 16 bytes: a lock stands for the instruction, which no other access of these bytes may tear.
static void exchange_128(Warp &w, const Instruction &in) {
    for (uint32_t rest = w.mask; rest; rest &= rest - 1) {
        const int i = __builtin_ctz(rest);
        unsigned __int128 *const at = (unsigned __int128 *)place<GENERIC>(w, in, i, 16, false);
        place<GENERIC>(w, in, i, 16, true);
        const auto get = [&](Slot s) {
            return (unsigned __int128)(w.at<uint64_t>(s) + lanes)[i] << 64 | w.at<uint64_t>(s)[i];
        };
        const unsigned __int128 b = get(in.b);
        unsigned __int128 before = *at;
        if (in.target == SWAP) {
            before = __sync_val_compare_and_swap(at, b, get(in.c));
        } else {
            for (unsigned __int128 now; (now = __sync_val_compare_and_swap(at, before, b)) != before;) before = now;
        }
        w.at<uint64_t>(in.d)[i] = (uint64_t)before;
        (w.at<uint64_t>(in.d) + lanes)[i] = (uint64_t)(before >> 64);
    }
    w.spin(1);
}

template <bool RETURNS>
static void build_atomic(Decoder &d, Instruction &in) {
    if (d.has("async")) d.unknown();
    const Type type = d.type();
    const size_t address = RETURNS ? 1 : 0;
    if (RETURNS) in.d = d.slot((size_t)0, type);
    d.address(in, d.operand(address));
    in.b = d.slot(address + 1, type);
    if (d.has("cas")) in.c = d.slot(address + 2, type);
    const bool is_signed = type == Type::S32 || type == Type::S64;
    int change = d.has("exch")  ? EXCHANGE
                 : d.has("cas") ? SWAP
                 : d.has("min") ? (is_signed ? MIN_SIGNED : MIN)
                 : d.has("max") ? (is_signed ? MAX_SIGNED : MAX)
                 : d.has("and") ? AND
                 : d.has("or")  ? OR
                 : d.has("xor") ? XOR
                 : d.has("inc") ? INC
                 : d.has("dec") ? DEC
                                : ADD;
    if (change == ADD && !d.has("add")) d.unknown();
    if (change == ADD) {
        switch (type) {
        case Type::F32: change = ADD_FLOAT; break;
        case Type::F64: change = ADD_DOUBLE; break;
        case Type::F16X2: change = ADD_HALF2; break;
        case Type::BF16X2: change = ADD_BF16_2; break;
        case Type::F16: change = ADD_HALF; break;
        case Type::BF16: change = ADD_BF16; break;
        default: break;
        }
    }
    in.target = change;
    const bool shared = space_of(d) == SHARED;
    switch (bytes_of(type)) {
    case 2: in.run = shared ? atomic<uint16_t, SHARED> : atomic<uint16_t, GENERIC>; break;
    case 4: in.run = shared ? atomic<uint32_t, SHARED> : atomic<uint32_t, GENERIC>; break;
    case 8: in.run = shared ? atomic<uint64_t, SHARED> : atomic<uint64_t, GENERIC>; break;
    default:
        if (shared || (change != EXCHANGE && change != SWAP)) d.unknown();
        in.run = exchange_128;
    }
}

// ---- copies that lanes wait for ------------------------------------------------------------------------------------

static void finish_copies(Warp &w, uint32_t mask, int pending) {
    size_t kept = 0;
    for (AsyncCopy &c : w.copies) {
        if (mask >> c.lane & 1 && c.group + pending < w.copy_groups[c.lane]) {
            memcpy(c.to, c.from, (size_t)c.valid);
            memset(c.to + c.valid, 0, (size_t)(c.bytes - c.valid));
        } else {
            w.copies[kept++] = c;
        }
    }
    w.copies.resize(kept);
}

void finish_all_copies(Warp &w, uint32_t mask) { finish_copies(w, mask, -1); }

void build_bulk_copy(Decoder &d, Instruction &in); // bulk.cpp

static void build_copy(Decoder &d, Instruction &in) { // cp
    if (d.has("bulk")) return build_bulk_copy(d, in);
    if (d.has("commit_group")) {
        in.run = [](Warp &w, const Instruction &) { each_lane(w.mask, [&](int i) { w.copy_groups[i]++; }); };
    } else if (d.has("wait_group")) {
        in.number = (int64_t)d.operand(0).number;
        in.run = [](Warp &w, const Instruction &c) { finish_copies(w, w.mask, (int)c.number); };
    } else if (d.has("wait_all")) {
        in.run = [](Warp &w, const Instruction &) { finish_all_copies(w, w.mask); };
    } else if (d.has("cg") || d.has("ca")) {
        d.address(in, d.operand(0));
        Instruction from;
        d.address(from, d.operand(1));
        in.b = from.a;
        in.target = (int)from.number;
        in.count = (uint8_t)d.operand(2).number;
        // Behind the size: the bytes that are read, or a predicate that asks for zeros; a cache hint comes last.
        const size_t operands = d.operands() - (d.has("L2::cache_hint") ? 1 : 0);
        if (operands > 3) {
            if (d.operand(3).kind == Operand::SYMBOL && d.operand(3).symbol->type == 'p') d.unknown();
            in.c = d.slot(3, Type::U32);
        }
        in.run = [](Warp &w, const Instruction &c) {
            for (uint32_t rest = w.mask; rest; rest &= rest - 1) {
                const int i = __builtin_ctz(rest), bytes = c.count;
                const int valid = c.c.bytes ? (int)w.at<uint32_t>(c.c)[i] : bytes;
                if (valid > bytes) w.fail(format("cp.async reads %d of %d bytes", valid, bytes), i, FAULT_INSTRUCTION);
                char *const to = place<SHARED>(w, c, i, bytes, true);
                const uint64_t from = w.at<uint64_t>(c.b)[i] + (uint64_t)(int64_t)c.target;
                if (from & (uint64_t)(bytes - 1))
                    w.fail(format("cp.async from %#llx, no multiple of %d", (unsigned long long)from, bytes), i,
                           FAULT_MISALIGNED);
                const char *source = nullptr;
                if (valid == bytes) source = w.global(from, bytes, i, false);
                else for (int k = valid; k-- > 0;) source = w.global(from + (uint64_t)k, 1, i, false);
                w.copies.push_back({to, source, bytes, valid, i, w.copy_groups[i]});
            }
        };
    } else {
        d.unknown();
    }
}

// ---- tiles ---------------------------------------------------------------------------------------------------------

// Eight rows of 16 bytes, whose addresses lanes 8 m..8 m + 7 give, are matrix m.
template <bool STORE>
static void build_matrix(Decoder &d, Instruction &in) {
    const size_t address = STORE ? 0 : 1;
    in.count = d.has("x4") ? 4 : d.has("x2") ? 2 : 1;
    if (!d.has("m8n8") || !d.has("b16")) d.unknown();
    in.target = d.has("trans");
    d.address(in, d.operand(address));
    in.more = d.slots(d.operand(1 - address), Type::U32);
    in.run = [](Warp &w, const Instruction &m) {
        for (int k = 0; k < m.count; k++) {
            uint32_t *const r = w.at<uint32_t>((*m.more)[(size_t)k]);
            uint16_t tile[8][8];
            char *rows[8];
            for (int row = 0; row < 8; row++) rows[row] = place<SHARED>(w, m, 8 * k + row, 16, STORE);
            if (!STORE)
                for (int row = 0; row < 8; row++) memcpy(tile[row], rows[row], 16);
            for (int i = 0; i < lanes; i++)
                for (int h = 0; h < 2; h++) {
                    uint16_t &element = m.target ? tile[2 * (i % 4) + h][i / 4] : tile[i / 4][2 * (i % 4) + h];
                    if (STORE) element = (uint16_t)(r[i] >> (16 * h));
                    else r[i] = h ? (r[i] & 0xffff) | (uint32_t)element << 16 : element;
                }
            if (STORE)
                for (int row = 0; row < 8; row++) memcpy(rows[row], tile[row], 16);
        }
    };
    collective(in);
}

static void build_move_matrix(Decoder &d, Instruction &in) {
    in.d = d.slot((size_t)0, Type::U32);
    in.a = d.slot(1, Type::U32);
    in.run = [](Warp &w, const Instruction &m) {
        uint16_t tile[8][8];
        const uint32_t *const a = w.at<uint32_t>(m.a);
        for (int i = 0; i < lanes; i++)
            for (int h = 0; h < 2; h++) tile[i / 4][2 * (i % 4) + h] = (uint16_t)(a[i] >> (16 * h));
        uint32_t *const o = w.at<uint32_t>(m.d);
        for (int i = 0; i < lanes; i++) o[i] = tile[2 * (i % 4)][i / 4] | (uint32_t)tile[2 * (i % 4) + 1][i / 4] << 16;
    };
    collective(in);
}

static const Opcode ld("ld", build_access<false>), ldu("ldu", build_access<false>), st("st", build_store),
    cvta("cvta", build_cvta), mapa("mapa", build_mapa), atom("atom", build_atomic<true>),
    red("red", build_atomic<false>), cp("cp", build_copy), ldmatrix("ldmatrix", build_matrix<false>),
    stmatrix("stmatrix", build_matrix<true>), movmatrix("movmatrix", build_move_matrix);

} // namespace emulator
