// decode.cpp: decodes every kernel of PTX files, and names the instructions that are not emulated.

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
        std::stringstream text;
        text << file.rdbuf();
        try {
            const auto module = std::make_shared<emulator::Module>(text.str());
            for (const std::string &name : module->kernels()) {
                kernels++;
                try {
                    emulator::decode(module, name);
                } catch (const emulator::Fault &f) {
                    unknown[f.what()]++;
                }
            }
        } catch (const emulator::Fault &f) {
            unknown[f.what()]++;
        }
    }
    for (const auto &u : unknown) printf("%d times: %s\n", u.second, u.first.c_str());
    printf("%d kernels decoded, %zu instructions unknown\n", kernels, unknown.size());
    return !unknown.empty();
}
