#!/usr/bin/env bash
# stub-toolkits.sh FOLDER: writes toolkits of CUDA 12 and 13 that compile no kernel, and prints their roots. Their objects are empty but that
# of cuda/runtime/runtime.cu, which describes a library that sees no GPU. With them make-dist.sh's way with two toolkits is tested:
#
#     DIST_CUDA="$(scripts/stub-toolkits.sh build/dist-stubs)" scripts/make-dist.sh
set -euo pipefail
cd "$(dirname "$0")/.."
for release in 12.4 13.0; do
    root=$PWD/$1/$release
    mkdir -p "$root/bin" "$root/lib64"
    rm -f "$root/lib64/libcudart_static.a"
    ar rcs "$root/lib64/libcudart_static.a"
    cc -fPIC -c -x c /dev/null -o "$root/empty.o"
    cc -fPIC -Icsrc -c -x c - -o "$root/described.o" <<END
#include "library.h"
static vb_status count(int *n) { *n = 0; return VB_NO_DEVICE; }
static vb_status open_device(vb_device **d, int i, const vb_device_options *o) { (void)i, (void)o; *d = NULL; return VB_NO_DEVICE; }
static const vb_backend none = {.device_count = count, .device_open = open_device};
static const char *architectures(void) { return "none"; }
const vb_library vb_library_of_cuda = {sizeof(vb_library), VB_ABI, sizeof(vb_backend), VB_VERSION, architectures, &none, ${release%.*}000};
END
    cat >"$root/bin/nvcc" <<'END'
#!/bin/bash
# nvcc --version | --list-gpu-code | ... -MF FILE SOURCE -o OBJECT
root=$(dirname "$(dirname "$0")")
case $* in
--version) echo "release ${root##*/}, V${root##*/}.0" ;;
--list-gpu-code) echo sm_90 ;;
*)
    object=${!#} source=${@: -3:1} made=$root/empty.o
    [ "$source" != cuda/runtime/runtime.cu ] || made=$root/described.o
    echo "$object: $source" >"$object.d"
    cp "$made" "$object" ;;
esac
END
    chmod +x "$root/bin/nvcc"
    printf '%s ' "$root"
done
