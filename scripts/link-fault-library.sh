#!/usr/bin/env bash
# link-fault-library.sh [OUT]: links build/cuda's kernels into OUT (build/cuda/libvibrant_cuda_faults.so), a library for tests whose
# calls of the CUDA runtime fail when a test says so (internal/check/faults/cuda_faults.c). Run after compile-cuda-kernels.sh:
#   VIBRANT_FAULTS=$(mktemp) VIBRANT_LIBRARY=$PWD/build/cuda/libvibrant_cuda_faults.so go test -run RealFault ./internal/language/engine
set -euo pipefail
cd "$(dirname "$0")/.."
built=build/cuda
out=${1:-$built/libvibrant_cuda_faults.so}
[ -f $built/libvibrant_cuda.a ] || { echo "link-fault-library: $built/libvibrant_cuda.a is missing: make lib" >&2; exit 1; }
"${CC:-gcc}" -O2 -fPIC -Wall -Wextra -Werror -c internal/check/faults/cuda_faults.c -o $built/cuda_faults.o
wrap=
for name in $(sed -n 's/.*__wrap_\(cuda[A-Za-z]*\)(.*{.*/\1/p; s/^WRAP([A-Z_]*, [A-Z]*, \(cuda[A-Za-z]*\),.*/\1/p' internal/check/faults/cuda_faults.c); do
    wrap+=" -Wl,--wrap=$name"
done
"${CXX:-g++}" -shared -o "$out" -Wl,--version-script=$built/exports -Wl,--no-undefined $wrap \
    $built/*.c.o -Wl,--whole-archive $built/libvibrant_cuda.a -Wl,--no-whole-archive $built/cuda_faults.o $built/libcudart_static.a \
    -lm -ldl -lrt -lpthread
echo "$out$wrap"
