// decode.cpp: decodes every kernel in objects of the library, also of those that no test launches, and names the
// instructions that are not emulated.

#include "../decode.h"

#include <cstdio>
#include <fstream>
#include <sstream>

namespace emulator {
std::shared_ptr<Code> decode(std::shared_ptr<Module> module, const std::string &name);
}

int main(int count, char **files) {
    std::map<std::string, int> unknown;
    int kernels = 0;
    for (int i = 1; i < count; i++) {
        std::ifstream file(files[i]);
        std::stringstream all;
        all << file.rdbuf();
        const std::string bytes = all.str();
        // PTX is text that ends with a zero.
        for (size_t at = 0; (at = bytes.find("\n.version ", at)) != std::string::npos; at++) {
            try {
                const auto module = std::make_shared<emulator::Module>(std::string(bytes.c_str() + at));
                for (const std::string &name : module->kernels()) {
                    kernels++;
                    emulator::decode(module, name);
                }
            } catch (const emulator::Fault &f) {
                unknown[f.what()]++;
            }
        }
    }
    for (const auto &u : unknown) printf("%d modules: %s\n", u.second, u.first.c_str());
    printf("%d kernels decoded\n", kernels);
    return kernels == 0 || !unknown.empty();
}
