#include "decode.h"

#include <cmath>

namespace emulator {

static std::map<std::string, Builder> &builders() {
    static std::map<std::string, Builder> all;
    return all;
}

Opcode::Opcode(const char *word, Builder builder) { builders()[word] = builder; }

Type type_of(const std::string &w) {
    static const std::map<std::string, Type> types = {
        {"pred", Type::PRED}, {"u8", Type::U8},   {"u16", Type::U16},   {"u32", Type::U32},   {"u64", Type::U64},
        {"s8", Type::S8},     {"s16", Type::S16}, {"s32", Type::S32},   {"s64", Type::S64},   {"b8", Type::U8},
        {"b16", Type::U16},   {"b32", Type::U32}, {"b64", Type::U64},   {"b128", Type::B128}, {"f16", Type::F16},
        {"f16x2", Type::F16X2}, {"bf16", Type::BF16}, {"bf16x2", Type::BF16X2}, {"f32", Type::F32}, {"f64", Type::F64},
        {"tf32", Type::U32},  {"u16x2", Type::U32}, {"s16x2", Type::U32}};
    const auto found = types.find(w);
    return found == types.end() ? Type::NONE : found->second;
}

int bytes_of(Type type) {
    switch (type) {
    case Type::U8: case Type::S8: return 1;
    case Type::U16: case Type::S16: case Type::F16: case Type::BF16: return 2;
    case Type::U64: case Type::S64: case Type::F64: return 8;
    case Type::B128: return 16;
    default: return 4;
    }
}

Type Decoder::type() const { return type(0); }

Type Decoder::type(size_t last) const {
    for (size_t i = statement->words.size(); i-- > 1;) {
        const Type t = type_of(statement->words[i]);
        if (t != Type::NONE && last-- == 0) return t;
    }
    unknown();
}

void Decoder::unknown() const {
    throw Fault("an instruction that is not emulated: " + code.module->line(statement->line), FAULT_INSTRUCTION);
}

Slot Decoder::constant(uint64_t bits, int bytes) {
    auto &known = constants[{bits, bytes}];
    if (!known.bytes) {
        known = {(int32_t)code.constants.size(), 1, (uint8_t)bytes};
        code.constants.resize(code.constants.size() + (size_t)(lanes * bytes + 63) / 64 * 64);
        for (int i = 0; i < lanes; i++)
            memcpy(&code.constants[(size_t)(known.offset + i * bytes)], &bits, (size_t)std::min(bytes, 8));
    }
    return known;
}

Slot Decoder::special(const std::string &name) {
    auto &known = specials[name];
    if (!known.bytes) {
        known = {(int32_t)code.register_bytes, 0, 4};
        code.register_bytes += name == "_" ? 512 : 256;
        code.specials.push_back({known.offset, name});
    }
    return known;
}

Slot Decoder::slot(const Operand &o, Type type) {
    switch (o.kind) {
    case Operand::SYMBOL: {
        const Symbol &s = *o.symbol;
        if (s.kind == Symbol::REGISTER) return {(int32_t)s.offset, 0, (uint8_t)s.bytes};
        if (s.kind == Symbol::PARAMETER) unknown(); // mov knows it
        return constant((uint64_t)s.offset + o.number, bytes_of(type));
    }
    case Operand::SPECIAL: {
        if (o.name == "%warpsize" || o.name == "WARP_SZ") return constant(lanes, 4);
        return special(o.name);
    }
    case Operand::NUMBER: {
        uint64_t bits = o.number;
        if (type == Type::PRED) return constant(bits ? ~0ull : 0, 4);
        if (o.floating && o.name == "double" && type == Type::F32) {
            double wide;
            memcpy(&wide, &bits, 8);
            const float narrow = (float)wide;
            uint32_t word;
            memcpy(&word, &narrow, 4);
            bits = word;
        } else if (o.floating && o.name != "double" && type == Type::F64) {
            float narrow;
            memcpy(&narrow, &bits, 4);
            const double wide = narrow;
            memcpy(&bits, &wide, 8);
        } else if (!o.floating && (type == Type::F32 || type == Type::F64)) {
            unknown();
        }
        return constant(bits, std::max(bytes_of(type), 2));
    }
    case Operand::SINK: { // what is written is never read
        Slot s = special("_");
        s.bytes = (uint8_t)std::max(bytes_of(type), 2);
        return s;
    }
    case Operand::LABEL:
        if (o.name == "WARP_SZ") return constant(lanes, 4);
        [[fallthrough]];
    default: unknown();
    }
}

std::vector<Slot> *Decoder::list(std::vector<Slot> slots) {
    code.lists.push_back(std::make_unique<std::vector<Slot>>(std::move(slots)));
    return code.lists.back().get();
}

std::vector<Slot> *Decoder::slots(const Operand &vector, Type type) {
    std::vector<Slot> all;
    if (vector.kind != Operand::VECTOR) all.push_back(slot(vector, type));
    for (const Operand &part : vector.parts) all.push_back(slot(part, type));
    return list(std::move(all));
}

void Decoder::address(Instruction &in, const Operand &o) {
    if (o.kind != Operand::ADDRESS || o.parts.empty()) unknown();
    const Operand &base = o.parts[0];
    in.number = (int64_t)o.number;
    if (base.kind == Operand::NUMBER) {
        in.a = constant(0, 8);
        in.number += (int64_t)base.number;
    } else if (base.kind == Operand::SYMBOL && base.symbol->kind == Symbol::REGISTER) {
        in.a = slot(base, Type::U64);
    } else if (base.kind == Operand::SYMBOL) {
        in.a = constant(0, 8);
        in.number += base.symbol->offset;
        if (base.symbol->kind == Symbol::PARAMETER) in.base = BASE_PARAMETERS;
    } else {
        unknown();
    }
}

static void build_branch(Decoder &d, Instruction &in) {
    in.kind = BRANCH;
    in.target = (int)d.operand(0).number;
}
static void build_exit(Decoder &, Instruction &in) { in.kind = EXIT; }
static void build_nothing(Decoder &, Instruction &in) { in.run = [](Warp &, const Instruction &) {}; }
static void build_trap(Decoder &, Instruction &in) {
    in.run = [](Warp &w, const Instruction &) { w.fail("the kernel trapped", __builtin_ctz(w.mask)); };
}
static const Opcode branch("bra", build_branch), ret("ret", build_exit), exit_("exit", build_exit),
    trap("trap", build_trap);
// What concerns time, caches or the order of weak memory alone.
static const Opcode fence("fence", build_nothing), membar("membar", build_nothing), prefetch("prefetch", build_nothing),
    prefetchu("prefetchu", build_nothing), registers("setmaxnreg", build_nothing),
    nothing("griddepcontrol", build_nothing), wgmma_none("applypriority", build_nothing),
    discard("discard", build_nothing);

void collective(Instruction &in) {
    in.kind = WAITS;
    in.wait = [](Warp &w, const Instruction &c) {
        if (w.mask != w.alive) return AGAIN;
        if (w.mask != all_lanes) w.fail("needs a whole warp, of which lanes have ended", __builtin_ctz(~w.mask));
        c.run(w, c);
        return DONE;
    };
}

void Decoder::decode() {
    code.register_bytes = function.register_bytes;
    code.instructions.reserve(function.statements.size() + 1);
    for (const Statement &s : function.statements) {
        statement = &s;
        Instruction in;
        in.line = s.line;
        if (s.guard) {
            in.guard = (int32_t)s.guard->offset;
            in.guard_negated = s.guard_negated;
        }
        const auto builder = builders().find(s.words[0].substr(0, s.words[0].find("::")));
        if (builder == builders().end()) unknown();
        try {
            builder->second(*this, in);
        } catch (const std::out_of_range &) {
            unknown();
        }
        code.instructions.push_back(in);
    }
    Instruction end;
    end.kind = EXIT;
    code.instructions.push_back(end);
}

std::shared_ptr<Code> decode(std::shared_ptr<Module> module, const std::string &name) {
    if (!module->has(name)) throw Fault("the module has no kernel " + name, 98);
    auto code = std::make_shared<Code>();
    code->module = module;
    code->function = module->parse(name);
    Decoder(*code, *code->function).decode();
    return code;
}

} // namespace emulator
