// decode.cpp: decodes every kernel of the library, also those that no test launches, and names the
// instructions that are not emulated.

#include "../decode.h"
#include "../fatbin.h"

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
        const std::string magic((const char *)&emulator::fatbin_magic, sizeof emulator::fatbin_magic);
        for (size_t at = 0; (at = bytes.find(magic, at)) != std::string::npos; at++) {
            try {
                for (emulator::Text &text : emulator::ptx_of(bytes.data() + at)) {
                    const auto module = std::make_shared<emulator::Module>(std::move(text.ptx));
                    for (const std::string &name : module->kernels()) {
                        kernels++;
                        emulator::decode(module, name);
                    }
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
