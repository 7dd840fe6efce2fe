// matrix.cpp: products of matrices by a warp (mma) and by four (wgmma), each of which computes its own 16 rows.
//
// Sums are computed in float, in the order of k. Hardware aligns the products of a step and cuts bits off below the
// largest one: results differ by about a unit of float's last place for each step.

#include "decode.h"
#include "floats.h"

#include <type_traits>

namespace emulator {

enum Element { ELEMENT_F16, ELEMENT_BF16, ELEMENT_TF32, ELEMENT_S8, ELEMENT_U8 };

static bool element_of(const std::string &word, Element *e) {
    if (word == "f16") *e = ELEMENT_F16;
    else if (word == "bf16") *e = ELEMENT_BF16;
    else if (word == "tf32") *e = ELEMENT_TF32;
    else if (word == "s8") *e = ELEMENT_S8;
    else if (word == "u8") *e = ELEMENT_U8;
    else return false;
    return true;
}
static int bits(Element e) { return e == ELEMENT_TF32 ? 32 : e == ELEMENT_F16 || e == ELEMENT_BF16 ? 16 : 8; }
// The elements of the words of 32 lanes, beside each other.
template <class T> static void spread(Element e, const uint32_t *words, T *to) {
    uint16_t halves[2 * lanes];
    memcpy(halves, words, sizeof halves);
    switch (e) {
    case ELEMENT_F16:
        if constexpr (std::is_same<T, float>::value) from_halves(halves, to, 2 * lanes);
        break; // no product of integers has halves
    case ELEMENT_BF16:
        for (int i = 0; i < 2 * lanes; i++) to[i] = (T)from_bf16(halves[i]);
        break;
    case ELEMENT_TF32:
        for (int i = 0; i < lanes; i++) to[i] = (T)tf32_read(words[i]);
        break;
    case ELEMENT_S8:
        for (int i = 0; i < 4 * lanes; i++) to[i] = (T)((const int8_t *)words)[i];
        break;
    case ELEMENT_U8:
        for (int i = 0; i < 4 * lanes; i++) to[i] = (T)((const uint8_t *)words)[i];
    }
}

// C's registers pair the rows g and g + 8 of lane 4 g + t, from column 2 t: those of a row and of the next column of 32
// lanes, to eight columns of eight rows and back.
template <class T> static void join_columns(const T *even, const T *odd, T *to, int row) {
    for (int g = 0; g < 8; g++, to += row)
        for (int t = 0; t < 4; t++) to[2 * t] = even[4 * g + t], to[2 * t + 1] = odd[4 * g + t];
}
template <class T> static void part_columns(const T *from, int row, T *even, T *odd) {
    for (int g = 0; g < 8; g++, from += row)
        for (int t = 0; t < 4; t++) even[4 * g + t] = from[2 * t], odd[4 * g + t] = from[2 * t + 1];
}

// Eight columns of a row.
template <class T> struct Eight { typedef T type __attribute__((vector_size(8 * sizeof(T)), may_alias)); };

// Of lane 4 g + t, register r of A holds the row g + 8 (r % 2) from k = t E + 4 E (r / 2), where E elements fill a
// register; B's holds the column g from k = t E + 4 E r.
template <class T>
static void multiply(Warp &w, const Instruction &in) {
    const std::vector<Slot> &all = *in.more; // D, A, B, C
    const int k = (int)in.number & 0xff, rows = (int)in.number >> 8;
    const Element ea = (Element)(in.target & 15), eb = (Element)(in.target >> 4);
    const int fill = 32 / bits(ea), results = rows / 4, halves = rows / 8;
    const int a_count = rows * k / (32 * fill), b_count = k / (4 * fill), group = 4 * fill;
    using Columns = typename Eight<T>::type;
    T a[16][32], flat[4 * lanes];
    alignas(Columns) T b[32][8], c[16][8];
    for (int r = 0; r < a_count; r++) {
        spread(ea, w.at<uint32_t>(all[(size_t)(results + r)]), flat);
        for (int j = 0; j < group; j += 4)
            for (int g = 0; g < 8; g++)
                memcpy(a[g + 8 * (r % halves)] + group * (r / halves) + j, flat + g * group + j, 4 * sizeof(T));
    }
    for (int r = 0; r < b_count; r++) {
        spread(eb, w.at<uint32_t>(all[(size_t)(results + a_count + r)]), flat);
        for (int first = 0; first < group; first += 4)
            for (int j = first; j < first + 4; j++)
                for (int g = 0; g < 8; g++) b[group * r + j][g] = flat[g * group + j];
    }
    const Slot *const before = all.data() + results + a_count + b_count;
    for (int r = 0; r < results; r += 2) join_columns(w.at<T>(before[r]), w.at<T>(before[r + 1]), c[4 * r], 8);
    for (int m = 0; m < rows; m++) {
        Columns sum = *(Columns *)c[m];
        for (int j = 0; j < k; j++) sum += a[m][j] * *(Columns *)b[j];
        *(Columns *)c[m] = sum;
    }
    for (int r = 0; r < results; r += 2)
        part_columns(c[4 * r], 8, w.at<T>(all[(size_t)r]), w.at<T>(all[(size_t)r + 1]));
}

// Counts bits that both have: registers hold 32 single bits of k, in the same places.
static void multiply_bits(Warp &w, const Instruction &in) {
    const std::vector<Slot> &all = *in.more; // D (4), A (4), B (2), C (4)
    uint32_t words[14][lanes];
    for (size_t r = 4; r < 14; r++) memcpy(words[r], w.at<uint32_t>(all[r]), sizeof words[r]);
    for (int r = 0; r < 4; r++)
        for (int i = 0; i < lanes; i++) {
            const int row = i / 4, column = 2 * (i % 4) + r % 2;
            uint32_t sum = words[10 + r][i];
            for (int t = 0; t < 4; t++)
                for (int step = 0; step < 2; step++)
                    sum += (uint32_t)__builtin_popcount(words[4 + 2 * step + r / 2][4 * row + t] &
                                                        words[8 + step][4 * column + t]);
            w.at<uint32_t>(all[(size_t)r])[i] = sum;
        }
}

static void build_product(Decoder &d, Instruction &in) { // mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32
    const bool by_bits = d.has("m16n8k256") && d.has("b1") && d.has("and") && d.has("popc"); // of ...s32.and.popc
    const size_t words = d.current().words.size();
    int m = 0, n = 0, k = 0;
    for (const std::string &word : d.current().words)
        if (sscanf(word.c_str(), "m%dn%dk%d", &m, &n, &k) == 3) break;
    std::vector<Slot> all;
    for (size_t i = 0; i < 4; i++) {
        const std::vector<Slot> *some = d.slots(d.operand(i), Type::U32);
        all.insert(all.end(), some->begin(), some->end());
    }
    in.more = d.list(all);
    if (by_bits) {
        in.run = multiply_bits;
        collective(in);
        return;
    }
    Element a, b;
    if (d.has("sp") || n != 8 || (m != 8 && m != 16) || !element_of(d.word(words - 3), &a) ||
        !element_of(d.word(words - 2), &b))
        d.unknown();
    const std::string &sum = d.word(words - 1);
    if (d.word(words - 4) != sum || (sum != "f32" && sum != "s32") || d.has("satfinite")) d.unknown();
    in.number = m << 8 | k;
    in.target = a | b << 4;
    in.run = sum == "f32" ? multiply<float> : multiply<int32_t>;
    collective(in);
}

// ---- wgmma ---------------------------------------------------------------------------------------------------------

// A tile in shared memory, as a descriptor says. Rows are those of M or N.
struct Tile {
    uint32_t start, leading, stride;
    int swizzle; // bytes of a row of the pattern: 128, 64, 32, or 16 without one
    bool across; // MN-major: neighbours in M or N lie beside each other

    Tile(uint64_t d, bool across)
        : start((uint32_t)(d & 0x3fff) << 4), leading((uint32_t)(d >> 16 & 0x3fff) << 4),
          stride((uint32_t)(d >> 32 & 0x3fff) << 4), across(across) {
        const int mode = (int)(d >> 62);
        swizzle = mode == 1 ? 128 : mode == 2 ? 64 : mode == 3 ? 32 : 16;
    }
    // The address of 16 bits at row `r` and `k`.
    uint32_t address(int r, int k) const {
        uint32_t at = start;
        if (!across) {
            const uint32_t bytes = (uint32_t)k * 2;
            at += (uint32_t)(r / 8) * stride + (uint32_t)(r % 8) * (uint32_t)swizzle;
            at += swizzle == 16 ? bytes / 16 * leading + bytes % 16 : bytes;
        } else {
            const int wide = swizzle / 2;
            at += (uint32_t)(r / wide) * leading + (uint32_t)(r % wide) * 2;
            at += (uint32_t)(k / 8) * stride + (uint32_t)(k % 8) * (uint32_t)swizzle;
        }
        const uint32_t mask = (uint32_t)swizzle / 16 - 1;
        return at ^ (at >> 7 & mask) << 4;
    }
};

static void warpgroup_multiply(Warp &w, const Instruction &in) {
    const int columns = (int)in.number, row = w.index % 4 * 16;
    const Element element = (Element)(in.target & 15);
    const bool a_registers = in.target & 16, a_across = in.target & 32, b_across = in.target & 64;
    const bool negate_a = in.target & 128, negate_b = in.target & 256;
    const std::vector<Slot> &all = *in.more; // D, then A where it is in registers
    const bool keep = *w.predicate(in.c) & 1;
    using Columns = Eight<float>::type;
    float a[16][16];
    alignas(Columns) float b[16][256], c[16][256];
    // Calls put(row, k, value) for 16 k of some rows: eight elements lie beside each other.
    const auto read = [&](const Tile &tile, int first, int rows, auto put) {
        for (int r = 0; r < rows; r += tile.across ? 8 : 1)
            for (int k = 0; k < 16; k += tile.across ? 1 : 8) {
                const uint16_t *const x = (const uint16_t *)w.shared(tile.address(first + r, k), 16, 0, false);
                float values[8];
                if (element == ELEMENT_F16) from_halves(x, values, 8);
                else for (int i = 0; i < 8; i++) values[i] = from_bf16(x[i]);
                for (int i = 0; i < 8; i++)
                    if (tile.across) put(r + i, k, values[i]);
                    else put(r, k + i, values[i]);
            }
    };
    if (a_registers) {
        for (int r = 0; r < 4; r++) {
            float flat[2 * lanes];
            spread(element, w.at<uint32_t>(all[(size_t)(columns / 2 + r)]), flat);
            for (int g = 0; g < 8; g++) memcpy(a[g + 8 * (r % 2)] + 8 * (r / 2), flat + 8 * g, 8 * sizeof(float));
        }
    } else {
        read(Tile(w.at<uint64_t>(in.a)[0], a_across), row, 16, [&](int m, int k, float x) { a[m][k] = x; });
    }
    read(Tile(w.at<uint64_t>(in.b)[0], b_across), 0, columns, [&](int n, int k, float x) { b[k][n] = x; });
    if (negate_a != negate_b)
        for (auto &m : a)
            for (float &x : m) x = -x;
    if (!keep) memset(c, 0, sizeof c);
    for (int r = 0; keep && r < columns / 2; r += 2)
        join_columns(w.at<float>(all[(size_t)r]), w.at<float>(all[(size_t)r + 1]), c[4 * (r % 4)] + r / 4 * 8, 256);
    for (int m = 0; m < 16; m++)
        for (int n = 0; n < columns; n += 8) {
            Columns sum = *(Columns *)(c[m] + n);
            for (int k = 0; k < 16; k++) sum += a[m][k] * *(Columns *)(b[k] + n);
            *(Columns *)(c[m] + n) = sum;
        }
    for (int r = 0; r < columns / 2; r += 2)
        part_columns(c[4 * (r % 4)] + r / 4 * 8, 256, w.at<float>(all[(size_t)r]), w.at<float>(all[(size_t)r + 1]));
}

// The same of 32 bytes of k, summed as integers; tiles in shared memory are K-major.
static void warpgroup_multiply_bytes(Warp &w, const Instruction &in) {
    constexpr int depth = 32;
    const int columns = (int)in.number, row = w.index % 4 * 16;
    const Element of_a = (Element)(in.target & 15), of_b = (Element)(in.target >> 5);
    const bool a_registers = in.target & 16;
    const std::vector<Slot> &all = *in.more; // D, then A where it is in registers
    const bool keep = *w.predicate(in.c) & 1;
    using Columns = Eight<uint32_t>::type; // sums wrap around, as those of a GPU
    uint32_t a[16][depth], flat[4 * lanes];
    alignas(Columns) uint32_t b[depth][256], c[16][256];
    // Calls put(row, k, value) for all k of some rows.
    const auto read = [&](const Tile &tile, Element e, int first, int rows, auto put) {
        for (int r = 0; r < rows; r++)
            for (int k = 0; k < depth; k += 16) {
                const uint8_t *const x = (const uint8_t *)w.shared(tile.address(first + r, k / 2), 16, 0, false);
                for (int i = 0; i < 16; i++) put(r, k + i, e == ELEMENT_S8 ? (uint32_t)(int8_t)x[i] : x[i]);
            }
    };
    if (a_registers) {
        for (int r = 0; r < 4; r++) {
            spread(of_a, w.at<uint32_t>(all[(size_t)(columns / 2 + r)]), flat);
            for (int g = 0; g < 8; g++) memcpy(a[g + 8 * (r % 2)] + 16 * (r / 2), flat + 16 * g, 16 * sizeof *flat);
        }
    } else {
        read(Tile(w.at<uint64_t>(in.a)[0], false), of_a, row, 16, [&](int m, int k, uint32_t x) { a[m][k] = x; });
    }
    read(Tile(w.at<uint64_t>(in.b)[0], false), of_b, 0, columns, [&](int n, int k, uint32_t x) { b[k][n] = x; });
    if (!keep) memset(c, 0, sizeof c);
    for (int r = 0; keep && r < columns / 2; r += 2)
        join_columns(w.at<uint32_t>(all[(size_t)r]), w.at<uint32_t>(all[(size_t)r + 1]), c[4 * (r % 4)] + r / 4 * 8,
                     256);
    for (int m = 0; m < 16; m++)
        for (int n = 0; n < columns; n += 8) {
            Columns sum = *(Columns *)(c[m] + n);
            for (int k = 0; k < depth; k++) sum += a[m][k] * *(Columns *)(b[k] + n);
            *(Columns *)(c[m] + n) = sum;
        }
    for (int r = 0; r < columns / 2; r += 2)
        part_columns(c[4 * (r % 4)] + r / 4 * 8, 256, w.at<uint32_t>(all[(size_t)r]),
                     w.at<uint32_t>(all[(size_t)r + 1]));
}

static void build_warpgroup(Decoder &d, Instruction &in) {
    if (!d.has("mma_async")) { // fence, commit_group, wait_group: products are done at once
        in.run = [](Warp &, const Instruction &) {};
        return;
    }
    // wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 d, a, b, keep, sign-a, sign-b, trans-a, trans-b
    // of integers: wgmma.mma_async.sync.aligned.m64n64k32.s32.s8.s8 d, a, b, keep
    const bool integers = d.word(5) == "s32";
    int n = 0, k = 0;
    if (sscanf(d.word(4).c_str(), "m64n%dk%d", &n, &k) != 2 || k != (integers ? 32 : 16)) d.unknown();
    Element element, other;
    if (!element_of(d.word(6), &element) || !element_of(d.word(7), &other)) d.unknown();
    if (integers ? bits(element) != 8 || bits(other) != 8 || d.has("satfinite")
                 : d.word(5) != "f32" || element != other || bits(element) != 16)
        d.unknown();
    std::vector<Slot> all = *d.slots(d.operand(0), integers ? Type::U32 : Type::F32);
    if ((int)all.size() != n / 2) d.unknown();
    const bool registers = d.operand(1).kind == Operand::VECTOR;
    if (registers) {
        const std::vector<Slot> *a = d.slots(d.operand(1), Type::U32);
        all.insert(all.end(), a->begin(), a->end());
    } else {
        in.a = d.slot(1, Type::U64);
    }
    in.more = d.list(all);
    in.b = d.slot(2, Type::U64);
    in.c = d.slot(3, Type::PRED);
    in.number = n;
    in.target = element | registers << 4;
    if (integers) {
        in.target |= other << 5;
        in.run = warpgroup_multiply_bytes;
        collective(in);
        return;
    }
    if (d.operand(4).number != 1) in.target |= 128;
    if (d.operand(5).number != 1) in.target |= 256;
    if (registers) {
        if (d.operand(6).number) in.target |= 64;
    } else {
        if (d.operand(6).number) in.target |= 32;
        if (d.operand(7).number) in.target |= 64;
    }
    in.run = warpgroup_multiply;
    collective(in);
}

static const Opcode mma("mma", build_product), wgmma("wgmma", build_warpgroup);

} // namespace emulator
