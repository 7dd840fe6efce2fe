#!/usr/bin/env bash
# test-install.sh DIST: holds scripts/install.sh to what it says, with the archives of a folder.
set -euo pipefail
dist=$(cd "$1" && pwd)
root=$(cd "$(dirname "$0")/.." && pwd)
work=$(mktemp -d)
server=
trap 'rm -rf "$work"; [ -z "$server" ] || kill "$server"' EXIT
unset VIBRANT_LIBRARY

refused() { # WHAT TEXT ARGUMENT...
    local what=$1 text=$2
    shift 2
    if "$dist/install.sh" "$@" >"$work/out" 2>&1 || ! grep -q -- "$text" "$work/out" || [ "$(wc -l <"$work/out")" != "${lines:-1}" ]; then
        echo "test-install: $what: want a refusal in ${lines:-one} line(s) that says \"$text\":" >&2
        cat "$work/out" >&2
        exit 1
    fi
}

"$dist/install.sh" --prefix "$work/a b" "$dist" >"$work/out" 2>&1 || { cat "$work/out" >&2; exit 1; }
grep -qE "C kernels: $work/a b/lib/(libvibrant|vibrant/libvibrant_cuda)\.so" "$work/out" || { echo "test-install: the command does not find its library:" >&2; cat "$work/out" >&2; exit 1; }
"$work/a b/bin/vibrant" version >/dev/null
mkdir "$work/used"
ln "$work/a b/bin/vibrant" "$work/a b/lib/libvibrant.so.0" "$work/used/"
"$dist/install.sh" --prefix "$work/a b" "$dist" >"$work/out" 2>&1 || { cat "$work/out" >&2; exit 1; }
[ -z "$(find "$work/used" -type f -links +1)" ] || { echo "test-install: files that may be in use are written to, not replaced" >&2; exit 1; }
for file in man/man1/vibrant-chat.1 bash-completion/completions/vibrant zsh/site-functions/_vibrant fish/vendor_completions.d/vibrant.fish; do
    [ -s "$work/a b/share/$file" ] || { echo "test-install: share/$file is not installed" >&2; exit 1; }
done
# Programs in C and Python have the library by what is installed alone.
"$dist/install.sh" --prefix "$work/c" "$dist" >"$work/out" 2>&1 || { cat "$work/out" >&2; exit 1; }
if command -v pkg-config >/dev/null; then
    cc "$root/examples/c/linear.c" -o "$work/linear" $(PKG_CONFIG_PATH=$work/c/lib/pkgconfig pkg-config --cflags --libs vibrant) -lm
    LD_LIBRARY_PATH=$work/c/lib "$work/linear" >"$work/out" 2>&1 || { echo "test-install: examples/c/linear.c fails by pkg-config:" >&2; cat "$work/out" >&2; exit 1; }
    cc "$root/examples/c/linear.c" -o "$work/linear" $(PKG_CONFIG_PATH=$work/c/lib/pkgconfig pkg-config --static --cflags --libs vibrant |
        sed 's/-lvibrant/-l:libvibrant.a/')
    "$work/linear" >"$work/out" 2>&1 || { echo "test-install: examples/c/linear.c fails with libvibrant.a:" >&2; cat "$work/out" >&2; exit 1; }
fi
if command -v python3 >/dev/null; then
    cp "$root/examples/python/linear.py" "$work/"
    LD_LIBRARY_PATH=$work/c/lib python3 "$work/linear.py" >"$work/out" 2>&1 || { echo "test-install: examples/python/linear.py fails:" >&2; cat "$work/out" >&2; exit 1; }
fi
for archive in "$dist"/*.tar.gz; do # what it is made of, in the archive and beside it
    sbom=${archive%.tar.gz}.spdx.json
    if ! grep -q '"SPDX-2.3"' "$sbom" || ! grep -q github.com/spf13/cobra "$sbom" ||
        ! tar -xzOf "$archive" --wildcards '*/share/doc/vibrant/sbom.spdx.json' | cmp -s - "$sbom"; then
        echo "test-install: $sbom is not what $archive is made of" >&2
        exit 1
    fi
done
mv "$work/a b/lib" "$work/a b/moved"
# The output goes to a file: grep -q ends at the first match, and the command would die of the closed pipe.
"$work/a b/bin/vibrant" devices -v >"$work/out" 2>&1 || { echo "test-install: devices fails without a library:" >&2; cat "$work/out" >&2; exit 1; }
grep -q "C kernels: no libvibrant.so" "$work/out" || { echo "test-install: no reason without a library:" >&2; cat "$work/out" >&2; exit 1; }

serve() { # FOLDER: sets $url, where it is to be fetched from until the script ends
    [ -z "$server" ] || kill "$server"
    rm -f "$work/port"
    mkfifo "$work/port"
    python3 - "$1" "$work/port" <<'END' &
import functools, http.server, sys
class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_): pass
server = http.server.HTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=sys.argv[1]))
with open(sys.argv[2], "w") as port: print(server.server_port, file=port)
server.serve_forever()
END
    server=$!
    read -r port <"$work/port"
    url=http://127.0.0.1:$port
}

fetches=
if command -v python3 >/dev/null && { command -v curl || command -v wget; } >/dev/null; then fetches=1; fi
export no_proxy=127.0.0.1
if [ -n "$fetches" ]; then
    serve "$dist"
    "$dist/install.sh" --prefix "$work/fetched" "$url/" >"$work/out" 2>&1 || { cat "$work/out" >&2; exit 1; }
    cmp "$work/fetched/bin/vibrant" "$work/a b/bin/vibrant"
    refused "no folder at the URL" "SHA256SUMS cannot be read from $url/none" --prefix "$work/none" "$url/none"
fi

# Of two toolkits' kernels the command takes the newest that the driver serves: here drivers state a version and do nothing else.
case $(uname -m) in x86_64) here=amd64 other=aarch64 ;; *) here=arm64 other=x86_64 ;; esac
archive=$(ls "$dist"/*-linux-$here.tar.gz)
name=$(basename "$archive" .tar.gz)
mkdir "$work/driver"
while read -r driver want; do
    [ -d "$work/c/lib/vibrant/cuda12" ] && [ -d "$work/c/lib/vibrant/cuda13" ] || break
    echo "int cuDriverGetVersion(int *v) { *v = $driver; return 0; }" | cc -shared -fPIC -x c - -o "$work/driver/libcuda.so.1"
    LD_LIBRARY_PATH=$work/driver "$work/c/bin/vibrant" devices -v >"$work/out" 2>&1 || { cat "$work/out" >&2; exit 1; }
    grep -q "CUDA kernels: .*$want" "$work/out" || { echo "test-install: driver $driver: want \"$want\":" >&2; cat "$work/out" >&2; exit 1; }
done <<'END'
13000 lib/vibrant/cuda13/libvibrant_cuda.so$
12080 lib/vibrant/cuda12/libvibrant_cuda.so$
11080 cuda12/libvibrant_cuda.so: needs a driver of CUDA 12, and the driver is of CUDA 11.8: install driver 525 or newer$
END

refused "no folder" "SHA256SUMS cannot be read" --prefix "$work/none" "$work/nothing"
lines=4 refused "no source" "SOURCE" --prefix "$work/none"
mkdir "$work/changed"
cp "$dist"/* "$work/changed/"
printf x >>"$(ls "$work"/changed/*.tar.gz | head -n 1)"
refused "a changed archive" "is not the file whose checksum" --prefix "$work/none" "$work/changed"
if [ -n "$fetches" ]; then
    serve "$work/changed"
    refused "a changed archive at a URL" "is not the file whose checksum" --prefix "$work/none" "$url"
fi
sed -i '/tar.gz/d' "$work/changed/SHA256SUMS"
refused "no archive" "names no archive" --prefix "$work/none" "$work/changed"
mkdir "$work/short" # its sum is that of what is left
head -c 100000 "$archive" >"$work/short/$name.tar.gz"
(cd "$work/short" && sha256sum -b "$name.tar.gz" >SHA256SUMS)
refused "an archive that is cut short" "cannot be unpacked: " --prefix "$work/none" "$work/short"
mkdir "$work/machine"
for machine in riscv64 ppc64le; do
    printf '#!/bin/sh\ncase $1 in -s) echo Linux ;; *) echo %s ;; esac\n' $machine >"$work/machine/uname"
    chmod +x "$work/machine/uname"
    PATH=$work/machine:$PATH refused "another processor" "no archive is made for $machine; run: go install" --prefix "$work/none" "$dist"
done
sed -i "s/riscv64\|ppc64le/$other/" "$work/machine/uname"
PATH=$work/machine:$PATH refused "an archive for another processor" "names no archive for linux-" --prefix "$work/none" "$work/short"
[ ! -e "$work/none" ] || { echo "test-install: a refusal left files" >&2; exit 1; }
touch "$work/file"
refused "no folder to write" "cannot be written" --prefix "$work/file/x" "$dist"
echo "test-install: installed, and refused what is not whole"
