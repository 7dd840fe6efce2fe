#!/usr/bin/env bash
# Runs what the Dockerfile installs as its image does, on a machine without a container engine: in a root file system of the packages
# that distroless/base-debian12 is made of, without a shell, by a user without rights. Takes the archive in build/dist (make dist).
# Needs root, and a Debian whose apt-get reaches its packages.
set -euo pipefail
cd "$(dirname "$0")/.."
packages="base-files ca-certificates libc6 libssl3 netbase tzdata"
image=gcr.io/distroless/base-debian12:nonroot
nonroot=65532

fail() {
    printf 'test-image: %s\n' "$@" >&2
    exit 1
}
[ "$(id -u)" = 0 ] || fail "another root file system takes root"
grep -qx "FROM $image" Dockerfile || fail "the Dockerfile's image is not $image: name its packages here"
ls build/dist/*.tar.gz >/dev/null 2>&1 || fail "build/dist holds no archive: run make dist"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
chmod 755 "$work"
mkdir -p "$work/packages" "$work/root"/{proc,tmp,home/nonroot}
(cd "$work/packages" && apt-get -qq -o APT::Sandbox::User=root download $packages) || fail "apt-get does not bring $packages"
for package in "$work"/packages/*.deb; do dpkg-deb -x "$package" "$work/root"; done
scripts/install.sh --prefix "$work/root/usr/local" build/dist
chown $nonroot:$nonroot "$work/root/home/nonroot"
chmod 1777 "$work/root/tmp"

in_image() { # a command, with the mounts and the environment of a container
    unshare --mount --fork sh -c 'mount -t proc proc "$1/proc" && shift && exec "$@"' sh "$work/root" \
        env -i PATH=/usr/sbin:/sbin HOME=/home/nonroot chroot --userspec=$nonroot:$nonroot "$work/root" "$@"
}
shells=$(find "$work/root" -path "$work/root/proc" -prune -o \( -name sh -o -name bash -o -name dash -o -name busybox \) -print)
[ -z "$shells" ] || fail "a shell is there: $shells"
in_image /usr/local/bin/vibrant version
in_image /usr/local/bin/vibrant devices -v 2>&1 | tee "$work/devices"
grep -qE "C kernels: /usr/local/.*libvibrant(_cuda)?\.so" "$work/devices" || fail "the C kernels were not found"
answer=$(in_image /usr/local/bin/vibrant ask --device cpu --temp 0 -n 16 "What is Vibrant?")
[ -n "$answer" ] || fail "no answer"
echo "test-image: $answer"
