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
grep -q "C kernels: $work/a b/lib/libvibrant.so" "$work/out" || { echo "test-install: the command does not find its library:" >&2; cat "$work/out" >&2; exit 1; }
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
