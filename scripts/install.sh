#!/bin/sh
# install.sh [--prefix DIR] SOURCE: installs Vibrant from the archives that `make dist` makes, after their checksums were compared.
#   SOURCE   a folder with SHA256SUMS and the archives, or the URL of such a folder
#   DIR      where bin/, lib/, include/ and share/ go; default: /usr/local for root, else ~/.local
# Nothing below DIR is touched before the archive is whole and checked.
set -eu

fail() {
    echo "install.sh: $1" >&2
    exit 1
}
usage() {
    sed -n '2,5s/^# //p' "$0" >&2
    exit 2
}

prefix= source=
while [ $# -gt 0 ]; do
    case $1 in
    --prefix) [ $# -gt 1 ] || usage; prefix=$2; shift ;;
    --prefix=*) prefix=${1#--prefix=} ;;
    -*) usage ;;
    *) [ -z "$source" ] || usage; source=$1 ;;
    esac
    shift
done
[ -n "$source" ] || usage
if [ -z "$prefix" ]; then
    if [ "$(id -u)" = 0 ]; then prefix=/usr/local; else prefix=${HOME:?}/.local; fi
fi

[ "$(uname -s)" = Linux ] || fail "the archives are for Linux; on $(uname -s) run: go install github.com/vibrant-ml/vibrant/cmd/vibrant@latest"
case $(uname -m) in
x86_64 | amd64) arch=amd64 ;;
aarch64 | arm64) arch=arm64 ;;
*) fail "no archive is made for $(uname -m); run: go install github.com/vibrant-ml/vibrant/cmd/vibrant@latest" ;;
esac
command -v sha256sum >/dev/null || fail "sha256sum is missing (Debian: apt-get install coreutils)"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT INT TERM

get() { # NAME: from the source into $work
    case $source in
    http://* | https://*)
        if command -v curl >/dev/null; then
            curl -fsSL --retry 3 -o "$work/$1" "${source%/}/$1"
        elif command -v wget >/dev/null; then
            wget -nv -O "$work/$1" "${source%/}/$1"
        else
            fail "neither curl nor wget is here to fetch ${source%/}/$1"
        fi ;;
    *) cp "$source/$1" "$work/$1" ;;
    esac 2>"$work/error" || fail "$1 cannot be read from $source: $(tail -n 1 "$work/error")"
}

get SHA256SUMS
name=$(sed -n "s/^[0-9a-f]\{64\} [ *]\(vibrant-[^/]*-linux-$arch\.tar\.gz\)\$/\1/p" "$work/SHA256SUMS" | tail -n 1)
[ -n "$name" ] || fail "SHA256SUMS of $source names no archive for linux-$arch"
get "$name"
(cd "$work" && grep -F "$name" SHA256SUMS | sha256sum -c - >/dev/null 2>&1) ||
    fail "$name is not the file whose checksum SHA256SUMS states: fetch it again"
tar -xzf "$work/$name" -C "$work" 2>"$work/error" || fail "$name cannot be unpacked: $(tail -n 1 "$work/error")"
tree=$work/${name%.tar.gz}
[ -x "$tree/bin/vibrant" ] || fail "$name holds no bin/vibrant"

mkdir -p "$prefix" 2>/dev/null && [ -w "$prefix" ] || fail "$prefix cannot be written: choose another one by --prefix, or run as root"
# Files of an earlier installation may be in use: they are replaced, not written to.
(cd "$tree" && find bin lib include share ! -type d) | while read -r file; do rm -f "$prefix/$file"; done
for folder in bin lib include share; do
    mkdir -p "$prefix/$folder"
    cp -RP "$tree/$folder/." "$prefix/$folder/"
done

echo "installed ${name%.tar.gz} in $prefix"
"$prefix/bin/vibrant" devices -v || fail "$prefix/bin/vibrant does not run here: it needs glibc; run: CGO_ENABLED=0 go install -tags nodlopen github.com/vibrant-ml/vibrant/cmd/vibrant@latest"
case :$PATH: in *":$prefix/bin:"*) ;; *) echo "add it to the path: export PATH=\"$prefix/bin:\$PATH\"" ;; esac
