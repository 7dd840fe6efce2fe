#!/usr/bin/env bash
# Compiles the kernels for Jetson boards whose GPUs toolkit 13 no longer knows (sm_53: Nano, TX1; sm_72: Xavier) with
# NVRTC 12.6 from pinned PyPI wheels, without a GPU and without an old toolkit: so that the sources stay compilable there.
# Each file below cuda/ but those of runtime/ goes through, in C++14; common.cuh says how launchers take part. What is compiled is
# not kept, and so not optimized either, which would take twenty times as long.
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
nvrtc = ctypes.CDLL(glob.glob(wheels + "cuda_nvrtc/lib/libnvrtc.so.*")[0])
# NVRTC knows no system headers.
stdint = b"".join(b"typedef %s %s_t;\n" % pair for pair in [
    (b"signed char", b"int8"), (b"unsigned char", b"uint8"), (b"short", b"int16"), (b"unsigned short", b"uint16"),
    (b"int", b"int32"), (b"unsigned", b"uint32"), (b"long", b"int64"), (b"unsigned long", b"uint64"),
    (b"unsigned long", b"uintptr")]) + b"#define INT32_MAX 2147483647\n#define INT32_MIN (-2147483647 - 1)\n"
stddef = b"typedef unsigned long size_t;\n"


def text(get_size, get, program):
    size = ctypes.c_size_t()
    get_size(program, ctypes.byref(size))
    buffer = ctypes.create_string_buffer(size.value)
    get(program, buffer)
    return buffer.value.decode()


def compile(path, arch):
    """Returns the bytes of machine code, or the compiler's messages."""
    program = ctypes.c_void_p()
    source = open(path, "rb").read()
    headers, names = (ctypes.c_char_p * 2)(stdint, stddef), (ctypes.c_char_p * 2)(b"stdint.h", b"stddef.h")
    nvrtc.nvrtcCreateProgram(ctypes.byref(program), source, path.encode(), 2, headers, names)
    options = ["-arch=sm_%d" % arch, "-std=c++14", "-default-device", "-Icuda", "-Icsrc", "-w", "--Ofast-compile=max",
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


paths = sys.argv[1:] or sorted(set(glob.glob("cuda/**/*.cu", recursive=True)) - set(glob.glob("cuda/runtime/*.cu")))
jobs = [(path, arch) for path in paths for arch in (53, 72)]
failed = False
with ThreadPoolExecutor(os.cpu_count()) as pool:
    for (path, arch), result in zip(jobs, pool.map(compile, *zip(*jobs))):
        if isinstance(result, int):
            print(f"{path} for sm_{arch}: {result} bytes")
        else:
            failed = True
            print(f"{path} does not compile for sm_{arch}:\n{result[:4000]}")
sys.exit(failed)
PYTHON
