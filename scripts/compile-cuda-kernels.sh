#!/usr/bin/env bash
# Compiles the kernels below cuda/ into build/cuda:
#
#     libvibrant_cuda.a   the CUDA objects, for the Go link (-tags cuda) and for C programs beside libvibrant
#     libcudart_static.a  NVIDIA's runtime of the same toolkit, beside it, so that a link needs one -L
#     libvibrant_cuda.so  CUDA objects, csrc's C objects and the runtime in one file that exports vb_* only, for dlopen
#
# Only files whose source, headers or flags changed are compiled again. Environment:
#
#     CUDA_ARCH  compute capabilities, such as "90", "86 89" or "all"; default: those of the GPUs in this machine, or
#                all where there is none. "all" holds machine code for 7.5 to 12.x, and PTX for GPUs yet to come.
#     CUDA_HOME  the toolkit; default: see install-cuda-toolkit.sh, which is run to find or fetch one
#     NJOBS      compilers at a time; default: one a core
#     OUT        the folder of objects and libraries; default: build/cuda
#     PROFILE=1  source lines for ncu (-lineinfo)      DEBUG=1  device debugging (-G -g)
#     PTXAS_VERBOSE=1  registers, shared memory and spills of each kernel
#     PTXAS_LEVEL  of optimization; 0 makes slow machine code in less time, where none of it is run, and launchers too. PTX is the same
#     EMULATED=too   keeps PTX beside machine code, and links libvibrant_emulated.so as well: of the same objects, but with
#                    internal/check/emulator in place of NVIDIA's runtime, for tests without a GPU
#     EMULATED=only  libvibrant_emulated.so alone, without machine code, whose making takes most of the time:
#                    in build/emulated/CUDA_ARCH; CUDA_ARCH is 90 where it is not stated
set -euo pipefail
cd "$(dirname "$0")/.."
out=${OUT:-build/cuda}

fail() {
    printf 'compile-cuda-kernels: %s\n' "$@" >&2
    exit 1
}

for tool in "${CC:-gcc}" "${CXX:-g++}" ar make; do
    command -v "$tool" >/dev/null || fail "$tool not found (Debian, Ubuntu: apt-get install build-essential)"
done
CUDA_HOME=$(scripts/install-cuda-toolkit.sh)
nvcc=$CUDA_HOME/bin/nvcc
release=$("$nvcc" --version | sed -n 's/.*release \([0-9]*\)\.\([0-9]*\).*/\1 \2/p')
read -r major minor <<<"$release"
[ -n "${minor-}" ] || fail "$nvcc does not state its version"
cudart=
for directory in lib64 lib targets/x86_64-linux/lib targets/aarch64-linux/lib targets/sbsa-linux/lib; do
    [ -e "$CUDA_HOME/$directory/libcudart_static.a" ] && cudart=$CUDA_HOME/$directory/libcudart_static.a && break
done
[ -n "$cudart" ] || fail "$CUDA_HOME holds no libcudart_static.a; scripts/install-cuda-toolkit.sh --download fetches a toolkit that does"

# ---- which GPUs ---------------------------------------------------------------------------------------------------

# Release 10.2 has no --list-gpu-code, and is what JetPack 4 brings for the Jetson Nano, TX1 and TX2.
supported=$("$nvcc" --list-gpu-code 2>/dev/null | sed -n 's/^sm_//p' | tr '\n' ' ')
[ -n "$supported" ] || supported='53 60 61 62 70 72 75'

case ${EMULATED-} in '' | too | only) ;; *) fail "EMULATED='$EMULATED' is neither too nor only" ;; esac
want=${CUDA_ARCH-}
if [ "${EMULATED-}" = only ]; then
    want=${want:-90}
    out=build/emulated/${want// /_}
elif [ -z "$want" ] && command -v nvidia-smi >/dev/null; then
    want=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | grep -E '^[0-9]+\.[0-9]+$' | tr -d . | sort -nu | tr '\n' ' ') || true
fi
want=$(sed 's/sm_//g; s/compute_//g; s/,/ /g; s/\([0-9]\)\.\([0-9]\)/\1\2/g' <<<"$want")
ptx=
case "$want" in
*[!0-9a-z\ ]*) fail "CUDA_ARCH='$CUDA_ARCH' is no list of compute capabilities such as \"86 90\"" ;;
'' | *all*)
    # 7.5 is the oldest that toolkit 13 knows. Machine code runs on later minor revisions of the same major one, but not
    # from a desktop GPU on a Jetson (8.7), so the list names what differs in speed or kind.
    want=
    for arch in 75 80 86 87 89 90 100 120; do
        [[ " $supported " == *" $arch "* ]] && want+="$arch "
    done
    ptx=75
    ;;
esac

gencode=
archs=
[ -n "${EMULATED-}" ] && ptx= # it has PTX of each architecture
for arch in $want; do
    if [[ " $supported " != *" ${arch%a} "* ]]; then
        case $arch in
        50 | 52 | 53 | 60 | 61 | 62) hint="CUDA 12.9 or older (Jetson Nano, TX1 and TX2: CUDA 10.2, JetPack 4)" ;;
        70) hint="CUDA 12.9 or older" ;;
        72) hint="CUDA 10.2 to 12.9 (Jetson Xavier: CUDA 11.4 to 12.2, JetPack 5)" ;;
        *) hint="another CUDA" ;;
        esac
        fail "compute capability $arch needs $hint; $nvcc is release $major.$minor and compiles for: $supported" \
            "set CUDA_HOME to such a toolkit, or CUDA_ARCH to a capability of that list"
    fi
    [ "$arch" = 90 ] && arch=90a # Hopper's matrix instructions exist in sm_90a only
    case ${EMULATED-} in
    only) code=compute_$arch ;;
    too) code=[sm_$arch,compute_$arch] ;;
    *) code=sm_$arch ;;
    esac
    gencode+=" -gencode arch=compute_$arch,code=$code"
    archs+="${archs:+ }$arch"
done
if [ -n "$ptx" ] && [[ " $supported " == *" $ptx "* ]]; then
    gencode+=" -gencode arch=compute_$ptx,code=compute_$ptx"
    archs+=" PTX"
fi

# ---- compile ------------------------------------------------------------------------------------------------------

# The level is of the host's code alone, launchers and choosers: at 1 they run as fast as at 3 and compile in two thirds of the time. C++14 wants
# 3, as constants of classes are variables there until they are optimized away.
standard=c++17 level=${PTXAS_LEVEL:-1}
[ "$major" -lt 11 ] && standard=c++14 level=3
nvccflags="-std=$standard -Icuda -Icsrc -Xcompiler -fPIC,-Wall,-Wextra -Wno-deprecated-gpu-targets"
case ${EMULATED-} in
only) nvccflags+=" --no-compress" ;;
too) nvccflags+=" -Xfatbin -compress-all --compress-mode=speed" ;; # LZ4: the emulator decompresses no other
*) nvccflags+=" -Xfatbin -compress-all" ;;
esac
nvccflags+=" -ccbin ${CXX:-g++}$gencode"
# The guard of a header of the C++ library: its Bessel functions and the like take a fifth of a small file's time.
nvccflags+=" -D_GLIBCXX_BITS_SPECFUN_H"
nvccflags+=" -Xcudafe --diag_suppress=177" # helpers of kernels that an older GPU leaves empty are unreferenced there
[ -n "${PROFILE-}" ] && nvccflags+=" -lineinfo"
[ -n "${DEBUG-}" ] && nvccflags+=" -G -g"
[ -n "${PTXAS_VERBOSE-}" ] && nvccflags+=" -Xptxas -v"
nvccflags+=" -c -O$level${PTXAS_LEVEL:+ -Xptxas -O$PTXAS_LEVEL}"

mkdir -p "$out"

object_of() { # by the path: names of files repeat in different folders
    local path=${1#"$out"/}
    path=${path#cuda/}
    echo "$out/${path//\//_}.o"
}

# Compiles one source unless its object is newer than all it was made from and made by the same command.
compile() {
    local source=$1 object command dependency
    object=$(object_of "$1")
    case $source in
    cuda/runtime/runtime.cu) command="$nvcc $nvccflags -DVB_CUDA_ARCHS=${archs// /_}" ;; # it reports them
    *.cu) command="$nvcc $nvccflags" ;;
    *.cpp) command="$cxx $emulatorflags -c" ;;
    esac
    if [ -f "$object" ] && [ "$(cat "$object.command" 2>/dev/null)" = "$command" ]; then
        local fresh=1
        for dependency in $(sed 's/^[^:]*://; s/\\$//' "$object.d"); do
            [ -e "$dependency" ] && [ ! "$dependency" -nt "$object" ] || fresh=
        done
        [ -n "$fresh" ] && return 0
    fi
    echo "compile $source" >&2
    rm -f "$object.command"
    $command -MMD -MF "$object.d" "$source" -o "$object" || return 1
    echo "$command" >"$object.command"
}
export -f object_of compile
# Sums and products are rounded one by one (contract); exchanges of 16 bytes are one instruction (cx16).
emulatorflags="-std=c++17 -O3 -g1 -march=native -ffp-contract=off -fPIC -Wall -Wextra -I$CUDA_HOME/include"
[ "$(uname -m)" = x86_64 ] && emulatorflags+=" -mcx16"
export out nvcc nvccflags emulatorflags archs cxx="${CXX:-g++}"

# Files that cuda/joined.txt names on lines of the same name become one.
mkdir -p "$out/joined"
alone=" $(find cuda -name "*.cu" | sort | tr '\n' ' ')"
declare -A joined=()
while read -r name files; do
    for file in $files; do
        [[ $alone == *" cuda/$file.cu "* ]] || fail "cuda/joined.txt names $file, which is not there or is named twice"
        alone=${alone/" cuda/$file.cu "/ } joined[$name]+="#include \"$file.cu\""$'\n'
    done
done < <(grep -v '^#' cuda/joined.txt)
sources=()
for name in $(printf '%s\n' "${!joined[@]}" | sort); do # the order of a library's objects
    source=$out/joined/$name.cu
    [ "$(cat "$source" 2>/dev/null)"$'\n' = "${joined[$name]}" ] || printf %s "${joined[$name]}" >"$source"
    sources+=("$source")
done

# The longest come first, so that none is left alone at the end: by the sizes of their objects.
longest=(cuda/linear/packed/{many,n1,n1_qkv,n4}.cu cuda/gemm/gemm_sm90.cu cuda/adapter/fused_update_sm90.cu
    cuda/attention/attention_decode{,_variants}.cu cuda/linear/packed/n32{,_qkv}.cu cuda/strided/reduce.cu
    cuda/linear/stored/many_sm90.cu cuda/gemm/matmul{,_3xf16}_sm90.cu)
for source in "${longest[@]}"; do
    alone=${alone/" $source "/ }
done
sources=("${longest[@]}" $alone "${sources[@]}")
c_sources=(csrc/*.c) emulator_sources=()
[ -n "${EMULATED-}" ] && emulator_sources=(internal/check/emulator/*.cpp)
printf '%s\0' "${sources[@]}" "${emulator_sources[@]}" |
    xargs -0 -n 1 -P "${NJOBS:-$(nproc)}" bash -c 'compile "$0"' || fail "a file did not compile (see above)"

# The objects of csrc are libvibrant's own.
env -u MAKEFLAGS make --no-print-directory -j "${NJOBS:-$(nproc)}" ${CC:+CC="$CC"} ${DEBUG:+CFLAGS="-O0 -g3"} c-objects >&2 ||
    fail "csrc does not compile (see above)"
for source in "${c_sources[@]}"; do
    cp -p "build/csrc/$(basename "$source" .c).o" "$(object_of "$source")"
done

objects() { # of the sources given: an object whose source is gone stays out
    local source
    for source in "$@"; do
        object_of "$source"
    done
}
# Hidden but for vb_*: the runtime inside must not meet another CUDA runtime in the same process.
echo '{ global: vb_*; local: *; };' >"$out/exports"
# C++'s library is linked in where it can be: images without a compiler have none. Fedora's is in libstdc++-static.
static=
[[ $("${CXX:-g++}" -print-file-name=libstdc++.a) == */* ]] && static="-static-libstdc++ -static-libgcc"
link() { # OUT, then what stands for NVIDIA's runtime
    "${CXX:-g++}" -shared -o "$out/$1" $static -Wl,--build-id=none -Wl,--version-script="$out/exports" -Wl,--no-undefined \
        $(objects "${sources[@]}" "${c_sources[@]}") "${@:2}" -lm -ldl -lrt -lpthread
}
if [ -n "${EMULATED-}" ]; then
    link libvibrant_emulated.so $(objects "${emulator_sources[@]}")
    echo "$out/libvibrant_emulated.so holds PTX for compute capability ${archs// /, }"
fi
[ "${EMULATED-}" = only ] && exit
cp -f "$cudart" "$out/libcudart_static.a"
rm -f "$out/libvibrant_cuda.a"
ar rcs "$out/libvibrant_cuda.a" $(objects "${sources[@]}")
link libvibrant_cuda.so "$cudart"
echo "$out/libvibrant_cuda.a and libvibrant_cuda.so hold kernels for compute capability ${archs// /, }"
