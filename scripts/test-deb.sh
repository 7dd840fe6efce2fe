#!/usr/bin/env bash
# Installs the Debian package of this machine's processor that build/dist holds (make deb) into a root file system of its own, by dpkg
# with the packages that it depends on, runs what it installs, and removes it. Needs root, and a Debian whose apt-get reaches its packages.
set -euo pipefail
cd "$(dirname "$0")/.."

fail() {
    printf 'test-deb: %s\n' "$@" >&2
    exit 1
}
[ "$(id -u)" = 0 ] || fail "another root file system takes root"
arch=$(dpkg --print-architecture)
package=$(ls build/dist/*_"$arch".deb 2>/dev/null) || fail "build/dist holds no package for $arch: run make deb"
needed=$(dpkg-deb -f "$package" Depends)
[[ $needed =~ ^libc6\ \(\>=\ 2\.[0-9]+\)$ ]] || fail "it depends on '$needed', and not on the C library with a version"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
chmod 755 "$work"
mkdir -p "$work/packages" "$work/root"/{tmp,root,var/lib/dpkg/info,var/lib/dpkg/updates}
# What the command needs, and what dpkg itself does.
(cd "$work/packages" && apt-get -qq -o APT::Sandbox::User=root download base-files bash coreutils dash debianutils diffutils dpkg findutils grep \
    libacl1 libattr1 libbz2-1.0 libc-bin libc6 libgmp10 liblzma5 libmd0 libpcre2-8-0 libselinux1 libtinfo6 libzstd1 sed tar zlib1g) ||
    fail "apt-get does not bring the packages of a root file system"
for file in "$work"/packages/*.deb; do dpkg-deb -x "$file" "$work/root"; done
printf 'Package: libc6\nStatus: install ok installed\nMaintainer: Debian\nArchitecture: %s\nVersion: %s\nDescription: the C library\n\n' "$arch" \
    "$(dpkg-deb -f "$work"/packages/libc6_*.deb Version)" >"$work/root/var/lib/dpkg/status"
cp "$package" "$work/root/tmp/vibrant.deb"
in_root() { env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root chroot "$work/root" "$@"; }
in_root dpkg -i /tmp/vibrant.deb >"$work/out" 2>&1 || { cat "$work/out" >&2; fail "dpkg does not install it"; }
in_root dpkg -V vibrant || fail "files differ from the package's sums"
in_root vibrant devices -v >"$work/out" 2>&1 || { cat "$work/out" >&2; fail "devices fails"; }
grep -qE "^C kernels: (.*/)?libvibrant(_cuda)?\.so" "$work/out" || { cat "$work/out" >&2; fail "the C kernels were not found"; }
answer=$(in_root vibrant ask --device cpu --temp 0 -n 16 "What is Vibrant?")
[ -n "$answer" ] || fail "no answer"
in_root dpkg -r vibrant >/dev/null 2>&1 || fail "dpkg does not remove it"
left=$(find "$work/root/usr" -iname '*vibrant*')
[ -z "$left" ] || fail "removed, and left: $left"
echo "test-deb: $answer"
