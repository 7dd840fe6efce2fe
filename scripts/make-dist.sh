#!/usr/bin/env bash
# Makes build/dist: an archive for each processor, with checksums, from which scripts/install.sh installs.
#
#     bin/vibrant                    the command, built without cgo: it finds the libraries below and runs without them too
#     lib/libvibrant.so.0, .a        C kernels, where a compiler for the processor is
#     lib/vibrant/cudaN/*.so         CUDA kernels of toolkit N (12, 13): the newest that the driver serves is taken when a GPU is asked for
#     include, lib/pkgconfig, share  header, pkg-config, man pages, completion, licences, and what the command is made of (SPDX 2.3)
#
# The same source and compilers make the same bytes; CUDA kernels do in a folder of the same path, of which nvcc puts a sum into names.
# Environment:
#     DIST_ARCH   processors (default "amd64 arm64")
#     DIST_CUDA   what makes the CUDA kernels in the archive of this machine's processor: roots of toolkits, such as "/usr/local/cuda-12.9
#                 /usr/local/cuda-13.0"; "12" and "13", toolkits that scripts/install-cuda-toolkit.sh brings; "built", build/cuda as it
#                 is; "none" (the default)
#     DIST_CHECK=1  an archive to be tested, in build/dist-checked: its command keeps the paths of this machine, and so shares its packages
#                   with other builds
#     CC_amd64, CC_arm64   compilers (default: cc here, x86_64-linux-gnu-gcc and aarch64-linux-gnu-gcc across)
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD out=$PWD/build/dist trim=-trimpath
[ -z "${DIST_CHECK-}" ] || out+=-checked trim=
version=$(sed -n 's/^#define VB_VERSION_[A-Z]* \([0-9]*\)$/\1/p' csrc/vibrant.h | paste -sd. -)
export SOURCE_DATE_EPOCH="${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || echo 0)}"
export CGO_ENABLED=0 LC_ALL=C TZ=UTC
umask 022
here=$(go env GOHOSTARCH)

fail() {
    printf 'make-dist: %s\n' "$@" >&2
    exit 1
}

compiler() { # of a processor, or nothing
    local named=CC_$1 cc
    if [ -n "${!named-}" ]; then
        command -v "${!named}" >/dev/null || fail "$named=${!named} is no compiler"
        echo "${!named}"
        return
    fi
    cc=cc
    [ "$1" = "$here" ] || case $1 in amd64) cc=x86_64-linux-gnu-gcc ;; arm64) cc=aarch64-linux-gnu-gcc ;; esac
    ! command -v "$cc" >/dev/null || echo "$cc"
}

libraries() { # PROCESSOR FOLDER
    local cc from=build/csrc objects=()
    cc=$(compiler "$1")
    if [ -z "$cc" ]; then
        echo "make-dist: no C compiler for $1: its archive computes in pure Go (Debian: apt-get install gcc-aarch64-linux-gnu)" >&2
        return
    fi
    [ "$1" = "$here" ] || from=build/dist-$1
    env -u MAKEFLAGS make --no-print-directory -j "$(nproc)" COUT="$from" CC="$cc" CFLAGS='-O3 -g1' c-objects >&2 ||
        fail "$cc does not compile csrc for $1 (see above)"
    for source in csrc/*.c; do
        objects+=("$from/$(basename "$source" .c).o")
    done
    "$cc" -shared -Wl,--strip-debug -Wl,--build-id=none -Wl,-soname,libvibrant.so.0 -o "$2/lib/libvibrant.so.0" "${objects[@]}" -lm -pthread -ldl
    ln -s libvibrant.so.0 "$2/lib/libvibrant.so"
    ar rcsD "$2/lib/libvibrant.a" "${objects[@]}"
    "$("$cc" -print-prog-name=strip)" --strip-debug --enable-deterministic-archives "$2/lib/libvibrant.a"
    sed -e 's|@PREFIX@|${pcfiledir}/../..|' -e "s|@VERSION@|$version|" scripts/vibrant.pc.in >"$2/lib/pkgconfig/vibrant.pc"
}

cuda() { # FOLDER: kernels of each toolkit, in folders where csrc/library.c looks for them
    local toolkit release needed built
    [ "${DIST_CUDA:-none}" != none ] || return 0
    for toolkit in $DIST_CUDA; do
        built=
        case $toolkit in
        built) built=build/cuda toolkit=$(scripts/install-cuda-toolkit.sh) ;;
        12) toolkit=$(scripts/install-cuda-toolkit.sh --release 12) ;;
        13) toolkit=$(scripts/install-cuda-toolkit.sh --download) ;;
        *) [ -x "$toolkit/bin/nvcc" ] || fail "DIST_CUDA: $toolkit holds no bin/nvcc: name roots of toolkits, 12, 13, built or none" ;;
        esac
        release=$("$toolkit/bin/nvcc" --version | sed -n 's/.*release \([0-9]*\)\..*/\1/p')
        grep -q "/cuda$release\"" csrc/library.c || fail "$toolkit is of CUDA $release, whose kernels no program looks for: name toolkits of CUDA 12 and 13"
        [ ! -e "$1/lib/vibrant/cuda$release" ] || fail "DIST_CUDA names two toolkits of CUDA $release: the archive holds one"
        if [ -z "$built" ]; then
            built=build/dist-cuda$release
            OUT=$built CUDA_HOME=$toolkit CUDA_ARCH=${CUDA_ARCH:-all} scripts/compile-cuda-kernels.sh >&2
        fi
        [ -f $built/libvibrant_cuda.so ] || fail "DIST_CUDA=built: build/cuda/libvibrant_cuda.so is missing: run make lib-cuda"
        needed=$(readelf -d $built/libvibrant_cuda.so | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' | grep -Ev '^(lib(c|m|dl|rt|pthread)\.so|ld-linux)' || true)
        [ -z "$needed" ] || fail "libvibrant_cuda.so needs ${needed//$'\n'/ }, which not every machine has: install libstdc++.a and compile it again"
        mkdir -p "$1/lib/vibrant/cuda$release"
        # nvcc names its temporary files in the symbols, by the number of its process.
        install -m 755 -s $built/libvibrant_cuda.so "$1/lib/vibrant/cuda$release/"
    done
}

licenses() { # PROCESSOR FOLDER: of Go and of each module in the command
    mkdir -p "$2/share/doc/vibrant/licenses/go"
    install -m 644 "$(go env GOROOT)/LICENSE" "$2/share/doc/vibrant/licenses/go/"
    GOARCH=$1 go list -deps -f '{{with .Module}}{{if not .Main}}{{.Path}} {{.Dir}}{{end}}{{end}}' ./cmd/vibrant | sort -u |
        while read -r module dir; do
            mkdir -p "$2/share/doc/vibrant/licenses/$module"
            find "$dir" -maxdepth 1 -type f \( -iname 'LICENSE*' -o -iname 'COPYING*' -o -iname 'NOTICE*' \) \
                -exec install -m 644 {} "$2/share/doc/vibrant/licenses/$module/" \;
            [ -n "$(ls "$2/share/doc/vibrant/licenses/$module")" ] || fail "$module has no licence in $dir"
        done
    install -m 644 LICENSE LICENSE-MIT LICENSE-APACHE README.md CHANGELOG.md "$2/share/doc/vibrant/"
}

rm -rf "$out"
mkdir -p "$out"
GOARCH=$here go build $trim -buildvcs=false -o build/dist-tools/vibrant ./cmd/vibrant # writes man pages, also for the other processor
GOARCH=$here go build $trim -buildvcs=false -o build/dist-tools/sbom ./scripts/sbom
for arch in ${DIST_ARCH:-amd64 arm64}; do
    case $arch in amd64 | arm64) ;; *) fail "DIST_ARCH: no archive is made for '$arch' (amd64, arm64)" ;; esac
    name=vibrant-$version-linux-$arch
    tree=build/$name
    rm -rf "$tree"
    mkdir -p "$tree"/{bin,include,lib/vibrant,lib/pkgconfig,share/man/man1,share/bash-completion/completions,share/zsh/site-functions,share/fish/vendor_completions.d}
    GOOS=linux GOARCH=$arch go build $trim -buildvcs=false -ldflags '-s -w -buildid=' -o "$tree/bin/vibrant" ./cmd/vibrant
    libraries "$arch" "$tree"
    toolkits=
    if [ "$arch" = "$here" ]; then
        cuda "$tree"
        toolkits=$(find "$tree/lib/vibrant" -name 'cuda*' -type d -printf '%f ' | sort)
    fi
    install -m 644 csrc/vibrant.h "$tree/include/"
    licenses "$arch" "$tree"
    build/dist-tools/vibrant docs man "$tree/share/man/man1"
    build/dist-tools/vibrant completion bash >"$tree/share/bash-completion/completions/vibrant"
    build/dist-tools/vibrant completion zsh >"$tree/share/zsh/site-functions/_vibrant"
    build/dist-tools/vibrant completion fish >"$tree/share/fish/vendor_completions.d/vibrant.fish"
    build/dist-tools/sbom --version "$version" --toolkits "$toolkits" "$tree/bin/vibrant" >"$tree/share/doc/vibrant/sbom.spdx.json"
    cp "$tree/share/doc/vibrant/sbom.spdx.json" "$out/$name.spdx.json"
    tar --sort=name --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner --format=gnu -C build -cf - "$name" | gzip -9n >"$out/$name.tar.gz"
done
cp scripts/install.sh "$out/"
(cd "$out" && sha256sum -- *.tar.gz *.json install.sh >SHA256SUMS)
cat "$out/SHA256SUMS"
