// decode.h: statements become instructions: a function for all lanes, and where its operands lie.
#ifndef EMULATOR_DECODE_H
#define EMULATOR_DECODE_H

#include "machine.h"
#include "ptx.h"

namespace emulator {

// What the address of a load or store is relative to.
enum Base : uint8_t { BASE_NONE, BASE_PARAMETERS };

enum class Type : uint8_t {
    PRED, U8, U16, U32, U64, S8, S16, S32, S64, F16, F16X2, BF16, BF16X2, F32, F64, B128, NONE
};
Type type_of(const std::string &word); // NONE where the word is no type
int bytes_of(Type type);

// Decodes the statements of one kernel.
class Decoder {
  public:
    Decoder(Code &code, const Function &function) : code(code), function(function) {}
    void decode();

    // The slot of an operand that is read, or written. `type` is that of immediate numbers.
    Slot slot(const Operand &operand, Type type);
    Slot slot(size_t operand, Type type) { return slot(current().operands.at(operand), type); }
    Slot constant(uint64_t bits, int bytes);
    std::vector<Slot> *slots(const Operand &vector, Type type);
    std::vector<Slot> *list(std::vector<Slot> slots);
    // Sets a, base and number from an address.
    void address(Instruction &in, const Operand &operand);

    const Statement &current() const { return *statement; }
    const std::string &word(size_t i) const { return statement->words.at(i); }
    const Operand &operand(size_t i) const { return statement->operands.at(i); }
    size_t operands() const { return statement->operands.size(); }
    bool has(const char *w) const { return statement->has(w); }
    Type type() const;           // the last word that is one
    Type type(size_t last) const; // the last but so many
    [[noreturn]] void unknown() const;

  private:
    Code &code;
    const Function &function;
    const Statement *statement = nullptr;
    std::map<std::pair<uint64_t, int>, Slot> constants;
    std::map<std::string, Slot> specials;
    Slot special(const std::string &name);
};

using Builder = void (*)(Decoder &, Instruction &);

// Says how statements that begin with a word are decoded: static const Opcode add("add", build_add);
struct Opcode {
    Opcode(const char *word, Builder builder);
};

// An instruction that a whole warp executes together: it waits for lanes that have yet to come.
void collective(Instruction &in);

// Calls f(i) for each lane of the mask; where all are active in a loop that compilers turn into vectors.
template <class F>
inline __attribute__((always_inline)) void each_lane(uint32_t mask, F f) {
    if (mask == all_lanes) {
#pragma GCC ivdep
        for (int i = 0; i < lanes; i++) f(i);
    } else {
        for (uint32_t rest = mask; rest; rest &= rest - 1) f(__builtin_ctz(rest));
    }
}

template <class D, class A, class F>
void unary(Warp &w, const Instruction &in) {
    D *const d = w.at<D>(in.d);
    const A *const a = w.at<A>(in.a);
    each_lane(w.mask, [&](int i) { d[i] = F()(a[i]); });
}
template <class D, class A, class B, class F>
void binary(Warp &w, const Instruction &in) {
    D *const d = w.at<D>(in.d);
    const A *const a = w.at<A>(in.a);
    const B *const b = w.at<B>(in.b);
    each_lane(w.mask, [&](int i) { d[i] = F()(a[i], b[i]); });
}
template <class D, class A, class B, class C, class F>
void ternary(Warp &w, const Instruction &in) {
    D *const d = w.at<D>(in.d);
    const A *const a = w.at<A>(in.a);
    const B *const b = w.at<B>(in.b);
    const C *const c = w.at<C>(in.c);
    each_lane(w.mask, [&](int i) { d[i] = F()(a[i], b[i], c[i]); });
}

// The bits of 32 bytes that are 0 or 1.
inline uint32_t bits_of(const uint8_t *bytes) {
    uint32_t bits = 0;
    for (int i = 0; i < 4; i++) {
        uint64_t eight;
        memcpy(&eight, bytes + 8 * i, 8);
        bits |= (uint32_t)((eight * 0x0102040810204080ull) >> 56) << (8 * i);
    }
    return bits;
}

} // namespace emulator
#endif
