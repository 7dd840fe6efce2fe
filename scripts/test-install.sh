#!/usr/bin/env bash
# test-install.sh DIST: holds scripts/install.sh to what it says, with the archives of a folder.
set -euo pipefail
dist=$(cd "$1" && pwd)
work=$(mktemp -d)
server=
trap 'rm -rf "$work"; [ -z "$server" ] || kill "$server"' EXIT
unset VIBRANT_LIBRARY

refused() { # WHAT TEXT ARGUMENT...
    local what=$1 text=$2
    shift 2
    if "$dist/install.sh" "$@" >"$work/out" 2>&1 || ! grep -q -- "$text" "$work/out"; then
        echo "test-install: $what: want a refusal that says \"$text\":" >&2
        cat "$work/out" >&2
        exit 1
    fi
}

"$dist/install.sh" --prefix "$work/a b" "$dist" >"$work/out" 2>&1 || { cat "$work/out" >&2; exit 1; }
grep -qE "C kernels: $work/a b/lib/(libvibrant|vibrant/libvibrant_cuda)\.so" "$work/out" || { echo "test-install: the command does not find its library:" >&2; cat "$work/out" >&2; exit 1; }
"$work/a b/bin/vibrant" version >/dev/null
for file in man/man1/vibrant-chat.1 bash-completion/completions/vibrant zsh/site-functions/_vibrant fish/vendor_completions.d/vibrant.fish; do
    [ -s "$work/a b/share/$file" ] || { echo "test-install: share/$file is not installed" >&2; exit 1; }
done
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

# Of two toolkits' kernels those of the newest that the driver serves are linked, and of the oldest without a driver.
mkdir "$work/two"
archive=$(ls "$dist"/*.tar.gz | head -n 1)
name=$(basename "$archive" .tar.gz)
tar -xzf "$archive" -C "$work/two"
for release in 12 13; do
    mkdir -p "$work/two/$name/lib/vibrant/cuda$release"
    echo "kernels of $release" >"$work/two/$name/lib/vibrant/cuda$release/libvibrant_cuda.so"
done
ln -sfn cuda12/libvibrant_cuda.so "$work/two/$name/lib/vibrant/libvibrant_cuda.so"
tar -czf "$work/two/$name.tar.gz" -C "$work/two" "$name"
(cd "$work/two" && sha256sum "$name.tar.gz" >SHA256SUMS)
sed "s|/proc/driver/nvidia/version|$work/driver|" "$dist/install.sh" >"$work/two/install.sh"
while IFS=: read -r release driver; do
    [ -z "$driver" ] || echo "NVRM version: NVIDIA UNIX $driver" >"$work/driver"
    sh "$work/two/install.sh" --prefix "$work/of two" "$work/two" >"$work/out" 2>&1 || { cat "$work/out" >&2; exit 1; }
    grep -qx "kernels of $release" "$work/of two/lib/vibrant/libvibrant_cuda.so" ||
        { echo "test-install: driver '$driver': want the kernels of CUDA $release" >&2; exit 1; }
    grep -q "libvibrant_cuda.so: is no shared library" "$work/out" || { echo "test-install: kernels that are none are not named:" >&2; cat "$work/out" >&2; exit 1; }
done <<'END'
12:
12:x86_64 Kernel Module  535.104.05  Sat Aug 19 01:15:15 UTC 2023
13:x86_64 Kernel Module  580.65.06  Sun Jul 27 07:18:28 UTC 2025
12:Open Kernel Module for x86_64  570.86.15  Release Build  (dvs-builder@U22)  Thu Jan 23 22:36:28 UTC 2025
13:Open Kernel Module for aarch64  580.95.05  Release Build  (dvs-builder@U22)  Tue Sep 23 09:55:41 UTC 2025
END

refused "no folder" "SHA256SUMS cannot be read" --prefix "$work/none" "$work/nothing"
refused "no source" "SOURCE" --prefix "$work/none"
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
[ ! -e "$work/none" ] || { echo "test-install: a refusal left files" >&2; exit 1; }
touch "$work/file"
refused "no folder to write" "cannot be written" --prefix "$work/file/x" "$dist"
echo "test-install: installed, and refused what is not whole"
