#!/usr/bin/env bash
# Finds a CUDA toolkit, or installs the few parts of one that the kernels need (270 MB, no root, no driver), and prints
# the path of its root (what CUDA_HOME means) as the only line of standard output:
#
#     export CUDA_HOME=$(scripts/install-cuda-toolkit.sh)
#
# Taken in this order: $CUDA_HOME, $CUDA_PATH where it holds nvcc, the nvcc on PATH, build/cuda-toolkit of an earlier run, /usr/local/cuda, and at last
# a fresh installation of NVIDIA's pinned PyPI wheels into build/cuda-toolkit. Running it again changes nothing.
# --download skips every toolkit but build/cuda-toolkit, so that a build uses the pinned compiler. --release 12 installs CUDA 12.4 into
# build/cuda-toolkit-12: Debian's nvcc (non-free, of trixie), whose package is unpacked there alone, and NVIDIA's headers from PyPI.
set -euo pipefail

root=$(cd "$(dirname "$0")/.." && pwd)
target=$root/build/cuda-toolkit
wheels=$root/scripts/cuda-toolkit.txt # with the hash of each
versions=$(sed -n 's/^\(nvidia[^ ]*\).*/\1/p' "$wheels" | paste -sd ' ')
home=$target/site-packages/nvidia/cu13

fail() {
    printf 'install-cuda-toolkit: %s\n' "$@" >&2
    exit 1
}
found() {
    echo "$1"
    exit 0
}

install_wheels() { # LIST FOLDER
    command -v python3 >/dev/null ||
        fail "python3 not found, and it is needed to fetch the toolkit (Debian, Ubuntu: apt-get install python3 python3-pip)"
    python3 -m pip --version >/dev/null 2>&1 ||
        fail "python3 has no pip (Debian, Ubuntu: apt-get install python3-pip; elsewhere: python3 -m ensurepip --user)"
    PIP_ROOT_USER_ACTION=ignore python3 -m pip install --quiet --disable-pip-version-check --no-deps --only-binary=:all: \
        --target "$2" --require-hashes --requirement "$1" >&2 ||
        fail "pip could not install the toolkit (see above); with a toolkit of your own, set CUDA_HOME"
}

install_12() {
    local target=$root/build/cuda-toolkit-12 uri apt package
    local sum=cd5fe85aee38d108b315f408a688641478f2402622a10c677478eb7a6c4e5319
    [ "$(cat "$target/installed" 2>/dev/null)" = "$sum" ] && found "$target"
    [ "$(uname -sm)" = 'Linux x86_64' ] || fail "CUDA 12 is fetched on x86-64 Linux alone; install such a toolkit and set CUDA_HOME"
    uri=$(apt-get indextargets --format '$(REPO_URI)' 'Origin: Debian' 'Created-By: Packages' 2>/dev/null | grep -v security | head -n 1) || true
    [ -n "$uri" ] || fail "CUDA 12 comes from Debian's packages, which this system has none of; install such a toolkit and set CUDA_HOME"
    rm -rf "$target"
    mkdir -p "$target"/{apt/lists/partial,apt/cache/archives/partial,bin,nvvm/bin,include,lib64}
    echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $uri trixie non-free" >"$target/apt/sources"
    apt=(-o "Dir::Etc::SourceList=$target/apt/sources" -o Dir::Etc::SourceParts=/dev/null -o "Dir::State::Lists=$target/apt/lists"
        -o "Dir::Cache=$target/apt/cache" -o APT::Sandbox::User=root)
    echo "install-cuda-toolkit: fetching Debian's nvidia-cuda-toolkit 12.4" >&2
    apt-get "${apt[@]}" -qq update >&2 && (cd "$target/apt" && apt-get "${apt[@]}" -qq download nvidia-cuda-toolkit >&2) ||
        fail "apt-get could not fetch nvidia-cuda-toolkit of Debian trixie (see above)"
    package=$(echo "$target"/apt/nvidia-cuda-toolkit_*.deb)
    echo "$sum  $package" | sha256sum --check --quiet >&2 || fail "Debian has another nvidia-cuda-toolkit than 12.4.131~12.4.1-2 by now"
    dpkg-deb --extract "$package" "$target/apt/files"
    mv "$target/apt/files/usr/lib/nvidia-cuda-toolkit/bin/"{nvcc,crt} "$target/apt/files/usr/bin/"{cudafe++,ptxas,fatbinary,nvlink} "$target/bin/"
    mv "$target/apt/files/usr/lib/nvidia-cuda-toolkit/bin/cicc" "$target/nvvm/bin/"
    mv "$target/apt/files/usr/lib/nvidia-cuda-toolkit/libdevice" "$target/nvvm/"
    printf '%s\n' 'TOP = $(_HERE_)/..' 'NVVMIR_LIBRARY_DIR = $(TOP)/nvvm/libdevice' 'PATH += $(TOP)/nvvm/bin:$(_HERE_):' \
        'INCLUDES += "-I$(TOP)/include" $(_SPACE_)' 'LIBRARIES =+ $(_SPACE_) "-L$(TOP)/lib64"' >"$target/bin/nvcc.profile"
    install_wheels "$root/scripts/cuda-toolkit-12.txt" "$target/headers"
    install_wheels "$root/scripts/cuda-runtime-12.txt" "$target/runtime"
    cp -r "$target"/headers/nvidia/cuda_{nvcc,runtime,cccl}/include/. "$target/include/"
    mv "$target/runtime/nvidia/cuda_runtime/lib/libcudart_static.a" "$target/lib64/"
    rm -rf "$target"/{apt,headers,runtime}
    "$target/bin/nvcc" --version >/dev/null || fail "the nvcc in $target does not run on this machine"
    echo "$sum" >"$target/installed"
    found "$target"
}

download=
case "$*" in
'') ;;
--download) download=1 ;;
'--release 12') install_12 ;;
*) fail "unknown arguments '$*' (they are --download or --release 12)" ;;
esac

if [ -z "$download" ]; then
    if [ -n "${CUDA_HOME-}" ]; then
        [ -x "$CUDA_HOME/bin/nvcc" ] || fail "CUDA_HOME=$CUDA_HOME holds no bin/nvcc; unset it or correct it"
        found "$CUDA_HOME"
    fi
    if [ -x "${CUDA_PATH-}/bin/nvcc" ]; then
        found "$CUDA_PATH"
    fi
    if nvcc=$(command -v nvcc); then
        found "$(dirname "$(dirname "$(readlink -f "$nvcc")")")"
    fi
fi
# The stamp names the versions: a change of the list above installs anew, an interrupted installation leaves none.
if [ "$(cat "$target/installed" 2>/dev/null)" = "$versions" ]; then
    found "$home"
fi
if [ -z "$download" ] && [ -x /usr/local/cuda/bin/nvcc ]; then
    found /usr/local/cuda
fi

[ "$(uname -s)" = Linux ] || fail "NVIDIA publishes these wheels for Linux only; install a CUDA toolkit and set CUDA_HOME"
echo "install-cuda-toolkit: fetching $versions" >&2
rm -rf "$target"
mkdir -p "$target"
install_wheels "$wheels" "$target/site-packages"
[ -e "$home/lib64" ] || ln -s lib "$home/lib64" # where an installed toolkit has its libraries
"$home/bin/nvcc" --version >/dev/null || fail "the nvcc in $home does not run on this machine"
echo "$versions" >"$target/installed"
echo "$home"
