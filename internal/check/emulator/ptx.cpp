#include "ptx.h"

#include "machine.h"

#include <algorithm>
#include <cstring>

namespace emulator {

bool Statement::has(const char *word) const { return std::find(words.begin(), words.end(), word) != words.end(); }

std::string Statement::opcode() const {
    std::string all;
    for (const std::string &word : words) all += (all.empty() ? "" : ".") + word;
    return all;
}

static bool is_name(char c) { return isalnum((unsigned char)c) || c == '_' || c == '$' || c == '%'; }

static int64_t round_up(int64_t x, int64_t to) { return (x + to - 1) / to * to; }

// Bytes of an element of a type such as "u32"; of a predicate 4.
static int type_bytes(const std::string &type) {
    if (type == "pred") return 4;
    const size_t digits = type.find_first_of("0123456789");
    if (digits == std::string::npos) throw Fault("a type that is not known: ." + type);
    int bytes = atoi(type.c_str() + digits) / 8;
    if (type.find('x', digits) != std::string::npos) bytes *= atoi(type.c_str() + type.find('x', digits) + 1);
    return bytes;
}

// Reads declarations and the body of a kernel.
class Parser {
  public:
    Parser(Module &module, size_t at) : module(module), text(module.text), at(at) {}

    size_t position() const { return at; }
    bool ended() { return space(), at >= text.size(); }
    char next() { return space(), at < text.size() ? text[at] : '\0'; }

    bool take(const char *what) {
        space();
        const size_t n = strlen(what);
        if (text.compare(at, n, what)) return false;
        if (is_name(what[n - 1]) && at + n < text.size() && is_name(text[at + n])) return false;
        at += n;
        return true;
    }
    void expect(const char *what) {
        if (!take(what)) throw Fault(std::string("PTX: '") + what + "' expected in: " + module.line(line()));
    }
    std::string name() {
        space();
        const size_t from = at;
        while (at < text.size() && is_name(text[at])) at++;
        if (from == at) throw Fault("PTX: a name expected in: " + module.line(line()));
        return text.substr(from, at - from);
    }
    std::string rest_of_line() {
        const size_t from = at;
        while (at < text.size() && text[at] != '\n') at++;
        return text.substr(from, at - from);
    }
    std::string until(char end) {
        const size_t from = at;
        while (at < text.size() && text[at] != end) at++;
        const std::string found = text.substr(from, at - from);
        at++;
        return found;
    }
    void skip_body() {
        int depth = 0;
        do {
            at = text.find_first_of("{}", at);
            depth += text[at++] == '{' ? 1 : -1;
        } while (depth > 0);
    }
    int line() {
        if (at < counted) counted = 0, lines = 1;
        lines += (int)std::count(text.begin() + (ptrdiff_t)counted, text.begin() + (ptrdiff_t)at, '\n');
        counted = at;
        return lines;
    }

    // ".align 16 .b8 name[64] = {...}" behind its state space; `place` gives it memory.
    struct Declared {
        std::string name;
        int alignment, bytes, element;
        bool unsized;
        std::vector<std::pair<uint64_t, std::string>> values; // a number, or what is the address of a variable
    };
    Declared declaration() {
        Declared d = {};
        while (next() == '.') {
            at++;
            const std::string word = name();
            if (word == "align") d.alignment = (int)number().number;
            else if (word == "attribute") until(')');
            else if (word == "ptr" || word == "global" || word == "const" || word == "shared" || word == "generic")
                continue;
            else if (word == "v2" || word == "v4") d.element = -atoi(word.c_str() + 1);
            else d.element = type_bytes(word) * (d.element < 0 ? -d.element : 1);
        }
        d.name = name();
        int64_t count = 1;
        while (take("[")) {
            if (take("]")) {
                d.unsized = true;
                count = 0;
                break;
            }
            count *= (int64_t)number().number;
            expect("]");
        }
        d.bytes = (int)(count * d.element);
        d.alignment = std::max(d.alignment, d.element);
        if (take("=")) values(d);
        return d;
    }

    Operand number() {
        space();
        Operand o;
        o.kind = Operand::NUMBER;
        const bool minus = at < text.size() && text[at] == '-';
        if (minus) at++;
        const std::string digits = name();
        if (digits.size() > 2 && digits[0] == '0' && strchr("fFdD", digits[1])) {
            o.floating = true;
            o.number = std::stoull(digits.substr(2), nullptr, 16);
            if (strchr("dD", digits[1])) o.name = "double";
            return o;
        }
        if (digits.find_first_of("xX") == std::string::npos && at < text.size() && text[at] == '.') {
            at++;
            const double value = std::stod(digits + "." + name());
            o.floating = true;
            o.name = "double";
            const double signed_value = minus ? -value : value;
            memcpy(&o.number, &signed_value, 8);
            return o;
        }
        o.number = std::stoull(digits, nullptr, 0);
        if (minus) o.number = -o.number;
        return o;
    }

    void parameters(Function &f) {
        expect("(");
        while (!take(")")) {
            expect(".param");
            const Declared d = declaration();
            f.parameter_bytes = round_up(f.parameter_bytes, d.alignment);
            add(f, d.name, {Symbol::PARAMETER, 'b', d.bytes, f.parameter_bytes});
            f.parameters.push_back({d.name, f.parameter_bytes, d.bytes});
            f.parameter_bytes += d.bytes;
            take(",");
        }
    }

    void body(Function &f);

  private:
    Module &module;
    const std::string &text;
    size_t at;
    size_t counted = 0;
    int lines = 1;
    // Scopes of braces: names of registers and labels belong to one. Scope 0 has the parameters.
    std::vector<int> open = {0};
    std::vector<std::map<std::string, const Symbol *>> names = std::vector<std::map<std::string, const Symbol *>>(1);
    std::vector<std::map<std::string, int>> labels = std::vector<std::map<std::string, int>>(1);

    void space() {
        while (at < text.size()) {
            if (isspace((unsigned char)text[at])) at++;
            else if (text.compare(at, 2, "//") == 0) rest_of_line();
            else if (text.compare(at, 2, "/*") == 0) at = text.find("*/", at) + 2;
            else break;
        }
    }
    const Symbol *add(Function &f, const std::string &name, Symbol symbol) {
        f.symbols.push_back(std::make_shared<Symbol>(symbol));
        return names[(size_t)open.back()][name] = f.symbols.back().get();
    }
    const Symbol *find(const std::string &name) {
        for (size_t i = open.size(); i-- > 0;) {
            const auto &scope = names[(size_t)open[i]];
            const auto found = scope.find(name);
            if (found != scope.end()) return found->second;
        }
        return nullptr;
    }
    void values(Declared &d) {
        if (take("{")) {
            while (!take("}")) {
                values(d);
                take(",");
            }
        } else if (isdigit((unsigned char)next()) || next() == '-') {
            d.values.push_back({number().number, ""});
        } else {
            std::string variable = name();
            if (variable == "generic") {
                expect("(");
                variable = name();
                expect(")");
            }
            d.values.push_back({take("+") ? number().number : 0, variable});
        }
    }
    void registers(Function &f);
    void directive(Function &f);
    void shared(Function &f, const Declared &d);
    Operand operand(Function &f);
    void statement(Function &f);
    void statements(Function &f);
    void call(Function &f);
    int calls = 0; // that are being parsed
};
static const char end_of_call[] = "(end of call)";

// .reg .b32 %r<10>, a, b;
void Parser::registers(Function &f) {
    expect(".");
    const std::string type = name();
    const int bytes = type_bytes(type);
    const char kind = type == "pred" ? 'p' : type[0] == 'f' && bytes >= 4 ? 'f' : 'b';
    const int64_t lanes = kind == 'p' ? 64 : bytes == 1 ? 64 : 32 * (int64_t)bytes; // bytes lie in 16 bits
    do {
        const std::string base = name();
        int count = -1;
        if (take("<")) {
            count = (int)number().number;
            expect(">");
        }
        for (int i = 0; i < std::max(count, 1); i++) {
            add(f, count < 0 ? base : base + std::to_string(i),
                {Symbol::REGISTER, kind, std::max(bytes, 2), f.register_bytes});
            f.register_bytes += round_up(lanes, 64);
        }
    } while (take(","));
    expect(";");
}

void Parser::shared(Function &f, const Declared &d) {
    if (d.unsized) {
        f.dynamic_alignment = std::max(f.dynamic_alignment, d.alignment);
        add(f, d.name, {Symbol::DYNAMIC_SHARED, 'b', 0, 0});
        return;
    }
    f.shared_bytes = round_up(f.shared_bytes, d.alignment);
    add(f, d.name, {Symbol::SHARED, 'b', d.bytes, shared_start + f.shared_bytes});
    f.shared_bytes += d.bytes;
}

void Parser::directive(Function &f) {
    at++;
    const std::string word = name();
    if (word == "reg") {
        registers(f);
    } else if (word == "shared") {
        shared(f, declaration());
        expect(";");
    } else if (word == "local" || word == "param") { // parameters of a call lie in local memory
        const Declared d = declaration();
        f.local_bytes = round_up(f.local_bytes, std::max(d.alignment, 16));
        add(f, d.name, {Symbol::LOCAL, 'b', d.bytes, f.local_bytes});
        f.local_bytes += d.bytes;
        expect(";");
    } else if (word == "pragma") {
        until(';');
    } else if (word == "loc") {
        rest_of_line();
    } else {
        throw Fault("PTX: a directive that is not known: ." + word);
    }
}

Operand Parser::operand(Function &f) {
    Operand o;
    const char c = next();
    if (c == '!') {
        at++;
        o = operand(f);
        o.negated = true;
        return o;
    }
    if (c == '{' || c == '[') {
        at++;
        o.kind = c == '{' ? Operand::VECTOR : Operand::ADDRESS;
        const char end[2] = {c == '{' ? '}' : ']', 0};
        while (!take(end)) {
            o.parts.push_back(operand(f));
            if (next() == '+') {
                at++;
                o.number += number().number;
            } else if (next() == '-') {
                at++;
                o.number -= number().number;
            }
            take(",");
        }
        return o;
    }
    if (isdigit((unsigned char)c) || c == '-') return number();
    o.name = name();
    if (o.name == "_") {
        o.kind = Operand::SINK;
        return o;
    }
    if (const Symbol *s = find(o.name)) {
        o.kind = Operand::SYMBOL;
        o.symbol = s;
        if (take("|")) o.parts.push_back(operand(f));
        return o;
    }
    const auto variable = module.variables.find(o.name);
    if (variable != module.variables.end()) {
        o.kind = Operand::SYMBOL;
        o.symbol = variable->second.get();
        return o;
    }
    if (o.name[0] == '%') {
        o.kind = Operand::SPECIAL;
        if (at < text.size() && text[at] == '.') {
            at++;
            o.name += "." + name();
        }
        return o;
    }
    o.kind = Operand::LABEL;
    return o;
}

void Parser::statement(Function &f) {
    Statement s;
    if (take("@")) {
        s.guard_negated = take("!");
        const std::string guard = name();
        s.guard = find(guard);
        if (!s.guard) throw Fault("PTX: a predicate that is not declared: " + guard);
    }
    std::string word = name();
    if (next() == ':' && text.compare(at, 2, "::") != 0) {
        at++;
        labels[(size_t)open.back()][word] = (int)f.statements.size();
        return;
    }
    s.line = line();
    for (;;) {
        while (text.compare(at, 2, "::") == 0) {
            at += 2;
            word += "::" + name();
        }
        s.words.push_back(word);
        if (at >= text.size() || text[at] != '.') break;
        at++;
        word = name();
    }
    if (s.words[0] == "call") {
        if (s.guard) throw Fault("PTX: a call under a predicate: " + module.line(s.line));
        return call(f);
    }
    while (!take(";")) {
        s.operands.push_back(operand(f));
        take(",");
    }
    if (s.words[0] == "ret" && calls > 0) {
        s.words = {"bra"};
        Operand end;
        end.kind = Operand::LABEL;
        end.name = end_of_call;
        s.operands = {end};
    }
    s.scopes.assign(open.rbegin(), open.rend());
    f.statements.push_back(std::move(s));
}

// Statements up to the brace that closes them.
void Parser::statements(Function &f) {
    for (size_t depth = 1; depth > 0;) {
        if (take("{")) {
            open.push_back((int)names.size());
            names.emplace_back();
            labels.emplace_back();
            depth++;
        } else if (take("}")) {
            if (--depth > 0) open.pop_back();
        } else if (next() == '.') {
            directive(f);
        } else {
            statement(f);
        }
    }
}

// call (result), name, (a, b); the function's statements take its place, and the caller's variables that of parameters.
void Parser::call(Function &f) {
    const auto variables = [&] {
        std::vector<std::string> all;
        if (take("("))
            while (!take(")")) {
                all.push_back(name());
                take(",");
            }
        return all;
    };
    std::vector<std::string> given = variables();
    take(",");
    const std::string callee = name();
    const auto found = module.functions.find(callee);
    if (take(",")) {
        const std::vector<std::string> arguments = variables();
        given.insert(given.end(), arguments.begin(), arguments.end());
    }
    until(';');
    if (found == module.functions.end() || calls > 8) {
        Statement s;
        s.words = {"trap"}; // vprintf, __assertfail
        s.line = line();
        f.statements.push_back(s);
        return;
    }
    std::map<std::string, const Symbol *> bound;
    const size_t back = at;
    at = found->second;
    size_t i = 0;
    const auto bind = [&] {
        if (!take("(")) return;
        while (!take(")")) {
            expect(".param");
            const Declared d = declaration();
            bound[d.name] = find(given.at(i++));
            take(",");
        }
    };
    bind();
    name();
    bind();
    while (!take("{")) at++; // .noinline and the like
    open.push_back((int)names.size());
    names.push_back(bound);
    labels.emplace_back();
    const int scope = open.back();
    calls++;
    statements(f);
    calls--;
    labels[(size_t)scope][end_of_call] = (int)f.statements.size();
    open.pop_back();
    at = back;
}

void Parser::body(Function &f) {
    for (const auto &v : module.variables)
        if (v.second->kind == Symbol::SHARED && v.second->offset < 0) { // of the file: laid out in each kernel
            const int alignment = (int)-v.second->offset;
            f.shared_bytes = round_up(f.shared_bytes, alignment);
            add(f, v.first, {Symbol::SHARED, 'b', v.second->bytes, shared_start + f.shared_bytes});
            f.shared_bytes += v.second->bytes;
        } else if (v.second->kind == Symbol::DYNAMIC_SHARED) {
            f.dynamic_alignment = std::max(f.dynamic_alignment, (int)-v.second->offset);
            add(f, v.first, {Symbol::DYNAMIC_SHARED, 'b', 0, 0});
        }
    while (!take("{")) {
        expect(".");
        const std::string word = name();
        const std::string count = rest_of_line();
        int product = 1;
        for (const char *p = count.c_str(); *p;) {
            if (isdigit((unsigned char)*p)) product *= (int)strtol(p, (char **)&p, 10);
            else p++;
        }
        if (word == "maxntid" || word == "reqntid") f.threads = product;
        if (word == "reqnctapercluster") f.cluster = product;
    }
    statements(f);
    const int64_t dynamic = shared_start + round_up(f.shared_bytes, f.dynamic_alignment);
    for (const auto &s : f.symbols)
        if (s->kind == Symbol::DYNAMIC_SHARED) s->offset = dynamic;
    for (Statement &s : f.statements)
        for (Operand &o : s.operands) {
            if (o.kind != Operand::LABEL) continue;
            for (size_t i = 0; i < s.scopes.size(); i++) {
                const auto &scope = labels[(size_t)s.scopes[i]];
                const auto found = scope.find(o.name);
                if (found == scope.end()) continue;
                o.number = (uint64_t)found->second;
                o.symbol = nullptr;
                o.negated = true; // found
                break;
            }
            if (!o.negated && s.words[0] == "bra") throw Fault("PTX: a label that is not there: " + o.name);
        }
}

Module::Module(std::string given) : text(std::move(given)) {
    Parser p(*this, 0);
    while (!p.ended()) {
        if (p.take(".version") || p.take(".address_size") || p.take(".file")) {
            p.rest_of_line();
        } else if (p.take(".target")) {
            const std::string target_line = p.rest_of_line();
            const size_t digits = target_line.find("sm_");
            target = digits == std::string::npos ? 0 : atoi(target_line.c_str() + digits + 3);
        } else if (p.take(".visible") || p.take(".weak") || p.take(".common")) {
        } else if (p.take(".extern")) {
        } else if (p.take(".section")) {
            p.until('}');
        } else if (p.take(".entry")) {
            const std::string name = p.name();
            entries[name] = p.position();
            p.skip_body(); // parsed when it is launched
        } else if (p.take(".func")) {
            const size_t start = p.position();
            if (p.take("(")) p.until(')');
            const std::string name = p.name();
            const size_t end = text.find_first_of("{;", p.position());
            if (text[end] == '{') {
                functions[name] = start;
                p.skip_body();
            } else {
                p.until(';'); // declared, as vprintf is
            }
        } else if (p.take(".shared")) {
            const Parser::Declared d = p.declaration();
            p.expect(";");
            const Symbol::Kind kind = d.unsized ? Symbol::DYNAMIC_SHARED : Symbol::SHARED;
            variables[d.name] = std::make_shared<Symbol>(Symbol{kind, 'b', d.bytes, -d.alignment});
        } else if (p.take(".global") || p.take(".const")) {
            const Parser::Declared d = p.declaration();
            p.expect(";");
            const size_t size = (size_t)std::max(d.bytes, 1);
            memory.emplace_back(new char[size + 256]());
            char *const start = memory.back().get() + (-(uintptr_t)memory.back().get() & 255);
            variables[d.name] =
                std::make_shared<Symbol>(Symbol{Symbol::GLOBAL, 'b', d.bytes, (int64_t)(uintptr_t)start});
            size_t i = 0;
            for (const auto &value : d.values) {
                uint64_t bits = value.first;
                if (!value.second.empty()) {
                    const Symbol *other = variable(value.second);
                    if (!other) throw Fault("PTX: an initial value that is not known: " + value.second);
                    bits += (uint64_t)other->offset;
                }
                memcpy(start + i, &bits, (size_t)d.element);
                i += (size_t)d.element;
            }
            global_memory().add(start, (int64_t)size, -1);
        } else {
            throw Fault("PTX: not understood: " + line(p.line()));
        }
    }
}

std::shared_ptr<Function> Module::parse(const std::string &name) {
    auto f = std::make_shared<Function>();
    f->name = name;
    Parser p(*this, entries.at(name));
    p.parameters(*f);
    p.body(*f);
    return f;
}

const Symbol *Module::variable(const std::string &name) const {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.get();
}

std::vector<std::string> Module::kernels() const {
    std::vector<std::string> all;
    for (const auto &entry : entries) all.push_back(entry.first);
    return all;
}

std::string Module::line(int number) const {
    size_t at = 0;
    for (int i = 1; i < number && at != std::string::npos; i++) {
        at = text.find('\n', at);
        if (at != std::string::npos) at++;
    }
    if (at == std::string::npos) return "";
    return text.substr(at, text.find('\n', at) - at);
}

} // namespace emulator
