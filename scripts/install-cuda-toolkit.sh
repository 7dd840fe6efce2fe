#!/usr/bin/env bash
# Finds a CUDA toolkit, or installs the few parts of one that the kernels need (270 MB, no root, no driver), and prints
# the path of its root (what CUDA_HOME means) as the only line of standard output:
#
#     export CUDA_HOME=$(scripts/install-cuda-toolkit.sh)
#
# Taken in this order: $CUDA_HOME, $CUDA_PATH where it holds nvcc, the nvcc on PATH, build/cuda-toolkit of an earlier run, /usr/local/cuda, and at last
# a fresh installation of NVIDIA's pinned PyPI wheels into build/cuda-toolkit. Running it again changes nothing.
# --download skips every toolkit but build/cuda-toolkit, so that a build uses the pinned compiler.
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

download=
case ${1-} in
'') ;;
--download) download=1 ;;
*) fail "unknown argument '$1' (the only one is --download)" ;;
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
command -v python3 >/dev/null ||
    fail "python3 not found, and it is needed to fetch the toolkit (Debian, Ubuntu: apt-get install python3 python3-pip)"
python3 -m pip --version >/dev/null 2>&1 ||
    fail "python3 has no pip (Debian, Ubuntu: apt-get install python3-pip; elsewhere: python3 -m ensurepip --user)"

echo "install-cuda-toolkit: fetching $versions" >&2
rm -rf "$target"
mkdir -p "$target"
PIP_ROOT_USER_ACTION=ignore python3 -m pip install --quiet --disable-pip-version-check --no-deps --only-binary=:all: \
    --target "$target/site-packages" --require-hashes --requirement "$wheels" >&2 ||
    fail "pip could not install the toolkit (see above); with a toolkit of your own, set CUDA_HOME"
[ -e "$home/lib64" ] || ln -s lib "$home/lib64" # where an installed toolkit has its libraries
"$home/bin/nvcc" --version >/dev/null || fail "the nvcc in $home does not run on this machine"
echo "$versions" >"$target/installed"
echo "$home"
