#!/usr/bin/env bash
# Compiles the kernels for GPUs before Hopper, to see that they compile: without a GPU, without the host's code around them, and for boards
# that toolkit 13 no longer knows. One capability is compiled for each way that kernels tell them apart: 5.3 (Jetson Nano, TX1) and 7.2
# (Xavier) by NVRTC 12.6, in C++14; 7.5 and 8.0 by NVRTC 13.0, in C++17. NVRTC comes from pinned PyPI wheels. It takes 0.3 s less of a
# processor for each file and capability than nvcc. Each file below cuda/ but those of runtime/ goes through; common.cuh says how launchers
# take part. What is compiled is not kept, and so not optimized either, which would take twenty times as long.
#
#     scripts/check-jetson-kernels.sh [FILE.cu ...]
set -euo pipefail
cd "$(dirname "$0")/.."
wheels=scripts/nvrtc.txt # with the hash of each
versions=$(sed -n 's/^\(nvidia[^ ]*\).*/\1/p' "$wheels" | paste -sd ' ')
target=build/nvrtc

command -v python3 >/dev/null || {
    echo "check-jetson-kernels: python3 not found (Debian, Ubuntu: apt-get install python3 python3-pip)" >&2
    exit 1
}
if [ "$(cat "$target/installed" 2>/dev/null)" != "$versions" ]; then
    rm -rf "$target"
    PIP_ROOT_USER_ACTION=ignore python3 -m pip install --quiet --disable-pip-version-check --no-deps \
        --only-binary=:all: --target "$target" --require-hashes --requirement "$wheels" >&2 || {
        echo "check-jetson-kernels: pip could not install $versions" >&2
        exit 1
    }
    echo "$versions" >"$target/installed"
fi

python3 - "$@" <<'PYTHON'
import ctypes
import glob
import os
import sys
from concurrent.futures import ThreadPoolExecutor

wheels = "build/nvrtc/nvidia/"
ctypes.CDLL(wheels + "cu13/lib/libnvrtc-builtins.so.13.0")  # which is not looked for beside the library
old, new = (ctypes.CDLL(wheels + path) for path in ("cuda_nvrtc/lib/libnvrtc.so.12", "cu13/lib/libnvrtc.so.13"))
compilers = {53: (old, "-std=c++14"), 72: (old, "-std=c++14"), 75: (new, "-std=c++17"), 80: (new, "-std=c++17")}

# NVRTC knows no headers of the system.
stdint = b"".join(b"typedef %s %s_t;\n" % pair for pair in [
    (b"signed char", b"int8"), (b"unsigned char", b"uint8"), (b"short", b"int16"), (b"unsigned short", b"uint16"),
    (b"int", b"int32"), (b"unsigned", b"uint32"), (b"long", b"int64"), (b"unsigned long", b"uint64"),
    (b"unsigned long", b"uintptr")]) + b"#define INT32_MAX 2147483647\n#define INT32_MIN (-2147483647 - 1)\n"
type_traits = b"""
namespace std {
template <bool B, class T, class F> struct conditional { using type = T; };
template <class T, class F> struct conditional<false, T, F> { using type = F; };
template <bool B, class T, class F> using conditional_t = typename conditional<B, T, F>::type;
template <class A, class B> constexpr bool is_same_v = false;
template <class A> constexpr bool is_same_v<A, A> = true;
template <class A, class B> struct is_same { static constexpr bool value = is_same_v<A, B>; };
template <class T> struct decay { using type = T; };
template <class T> struct decay<const T> { using type = T; };
template <class T> struct decay<T &> : decay<T> {};
template <class T> using decay_t = typename decay<T>::type;
}
"""
system_headers = {b"stdint.h": stdint, b"stddef.h": b"typedef unsigned long size_t;\n", b"stdlib.h": b"",
                  b"type_traits": type_traits}


def text(get_size, get, program):
    size = ctypes.c_size_t()
    get_size(program, ctypes.byref(size))
    buffer = ctypes.create_string_buffer(size.value)
    get(program, buffer)
    return buffer.value.decode()


def compile(path, capability):
    """Returns the bytes of machine code, or the compiler's messages."""
    (nvrtc, standard), program = compilers[capability], ctypes.c_void_p()
    source, count = texts.get(path) or open(path, "rb").read(), len(system_headers)
    nvrtc.nvrtcCreateProgram(ctypes.byref(program), source, path.encode(), count,
                             (ctypes.c_char_p * count)(*system_headers.values()), (ctypes.c_char_p * count)(*system_headers))
    options = ["-arch=sm_%d" % capability, standard, "-default-device", "-Icuda", "-Icsrc", "-w", "--Ofast-compile=max",
               "-I" + wheels + "cuda_runtime/include", "-I" + wheels + "cuda_cccl/include"]
    status = nvrtc.nvrtcCompileProgram(program, len(options), (ctypes.c_char_p * len(options))(*[o.encode() for o in options]))
    if status == 0:
        size = ctypes.c_size_t()
        nvrtc.nvrtcGetCUBINSize(program, ctypes.byref(size))
        result = size.value
    else:
        result = text(nvrtc.nvrtcGetProgramLogSize, nvrtc.nvrtcGetProgramLog, program)
    nvrtc.nvrtcDestroyProgram(ctypes.byref(program))
    return result


paths, texts = sys.argv[1:], {}  # the text of files that are joined, by the name of all
if not paths:
    alone = set(glob.glob("cuda/**/*.cu", recursive=True)) - set(glob.glob("cuda/runtime/*.cu"))
    for line in open("cuda/joined.txt"):
        name, *files = line.split()
        for path in alone.intersection("cuda/%s.cu" % file for file in files):
            texts[name] = texts.get(name, b"") + b'#include "%s"\n' % path[len("cuda/"):].encode()
            alone.remove(path)
    paths = [*sorted(alone), *texts]
jobs = [(path, capability) for path in paths for capability in compilers]
failed = False
with ThreadPoolExecutor(os.cpu_count()) as pool:
    for (path, capability), result in zip(jobs, pool.map(compile, *zip(*jobs))):
        if isinstance(result, int):
            print(f"{path} for sm_{capability}: {result} bytes")
        else:
            failed = True
            print(f"{path} does not compile for sm_{capability}:\n{result[:4000]}")
sys.exit(failed)
PYTHON
