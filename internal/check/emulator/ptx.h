// ptx.h: PTX text as statements. What is written here is the syntax alone: decode.h gives the statements their meaning.
//
// Source: "PTX ISA", NVIDIA.
#ifndef EMULATOR_PTX_H
#define EMULATOR_PTX_H

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace emulator {

// A register or variable. Registers lie in a warp's register file, 32 lanes beside each other.
struct Symbol {
    enum Kind { REGISTER, PARAMETER, SHARED, LOCAL, GLOBAL, DYNAMIC_SHARED, FUNCTION } kind;
    char type;        // of a register: p (predicate), b, f; else b
    int bytes;        // of one element of the type; of a variable: of all elements
    int64_t offset;   // in the register file, or in the memory of the kind; of GLOBAL: the host's address
};

struct Operand {
    enum Kind { NONE, SYMBOL, SPECIAL, NUMBER, VECTOR, ADDRESS, LABEL, SINK } kind = NONE;
    std::string name;             // as written
    const Symbol *symbol = nullptr;
    bool negated = false;         // !%p
    bool floating = false;        // NUMBER: 0f.., 0d..
    uint64_t number = 0;          // NUMBER: its bits; ADDRESS: what is added; LABEL: the index of its instruction
    std::vector<Operand> parts;   // VECTOR; ADDRESS: the base, then the coordinates; SYMBOL: the second of d|p
};

struct Statement {
    const Symbol *guard = nullptr; // the predicate of @p
    bool guard_negated = false;
    std::vector<std::string> words; // "ld", "global", "v4", "f32"
    std::vector<Operand> operands;
    int line;                       // in the module's text
    std::vector<int> scopes;        // where labels are looked for, innermost first

    bool has(const char *word) const;
    std::string opcode() const; // the words, joined by dots
};

struct Parameter {
    std::string name;
    int64_t offset;
    int bytes;
};

struct Function {
    std::string name;
    std::vector<Parameter> parameters;
    int64_t parameter_bytes = 0;
    int64_t register_bytes = 0;
    int64_t shared_bytes = 0;  // static ones; dynamic ones follow, at a multiple of dynamic_alignment
    int dynamic_alignment = 16;
    int64_t local_bytes = 0;
    int threads = 0;           // .maxntid or .reqntid, 0 where nothing is stated
    int cluster = 1;           // .reqnctapercluster: blocks
    std::vector<Statement> statements;
    std::vector<std::shared_ptr<Symbol>> symbols; // owns what statements point to
};

// The text of one module. Functions are parsed when they are asked for.
class Module {
  public:
    explicit Module(std::string text);

    int target = 0; // compute capability, 90
    std::shared_ptr<Function> parse(const std::string &name);
    bool has(const std::string &name) const { return entries.count(name) != 0; }
    std::string line(int number) const;
    std::vector<std::string> kernels() const;
    // The memory of a global variable, or null.
    const Symbol *variable(const std::string &name) const;

  private:
    friend class Parser;
    std::string text;
    std::map<std::string, size_t> entries;   // where the text of a kernel begins, behind its name
    std::map<std::string, size_t> functions; // where that of a function begins, before its result
    std::map<std::string, std::shared_ptr<Symbol>> variables;
    std::vector<std::unique_ptr<char[]>> memory;
};

} // namespace emulator
#endif
