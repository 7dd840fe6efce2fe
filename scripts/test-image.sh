#!/usr/bin/env bash
# test-image.sh [ROOT]: runs what the Dockerfile installs as its image does, on a machine without a container engine, without a shell,
# by a user without rights. Takes the archive in build/dist (make dist), and as its root file system a copy of the folder ROOT, or else
# the packages that distroless/base-debian12 is made of, for which it needs a Debian whose apt-get reaches them. Where a GPU is, the
# image gets its devices and the driver's libraries, as from NVIDIA's container toolkit, and answers on it too. Needs root.
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
mkdir -p "$work/packages" "$work/root"/{proc,dev,tmp,home/nonroot}
if [ $# -gt 0 ]; then
    cp -a "$1/." "$work/root" || fail "the root file system $1 cannot be copied"
else
    (cd "$work/packages" && apt-get -qq -o APT::Sandbox::User=root download $packages) || fail "apt-get does not bring $packages"
    for package in "$work"/packages/*.deb; do dpkg-deb -x "$package" "$work/root"; done
fi
scripts/install.sh --prefix "$work/root/usr/local" build/dist
chown $nonroot:$nonroot "$work/root/home/nonroot"
chmod 1777 "$work/root/tmp"
if [ -c /dev/nvidiactl ]; then
    driver=$(ldconfig -p | sed -n 's/^[[:space:]]*libcuda\.so\.1 (libc6,.* => //p' | head -n 1)
    [ -n "$driver" ] || fail "a GPU is here, but the loader knows no libcuda.so.1: install NVIDIA's driver"
    for library in "${driver%/*}"/lib{cuda.so.1,nvidia-ptxjitcompiler.so.1,nvidia-nvvm.so.4,nvidia-gpucomp.so.[0-9]*,nvidia-ml.so.1}; do
        [ ! -e "$library" ] || cp -L "$library" "$work"/root/lib/*-linux-gnu/
    done
fi

in_image() { # a command, with the mounts and the environment of a container
    unshare --mount --fork bash -ec 'root=$1; shift; mount -t proc proc "$root/proc"
        for device in /dev/nvidia*; do
            if [ -c "$device" ]; then : >"$root$device"; mount --bind "$device" "$root$device"; fi
        done
        exec "$@"' bash "$work/root" env -i PATH=/usr/sbin:/sbin HOME=/home/nonroot chroot --userspec=$nonroot:$nonroot "$work/root" "$@"
}
shells=$(find "$work/root" -path "$work/root/proc" -prune -o \( -name sh -o -name bash -o -name dash -o -name busybox \) -print)
[ -z "$shells" ] || fail "a shell is there: $shells"
in_image /usr/local/bin/vibrant version
in_image /usr/local/bin/vibrant devices -v 2>&1 | tee "$work/devices"
grep -qE "C kernels: /usr/local/.*libvibrant(_cuda)?\.so" "$work/devices" || fail "the C kernels were not found"
answer=$(in_image /usr/local/bin/vibrant ask --device cpu --temp 0 -n 16 "What is Vibrant?")
[ -n "$answer" ] || fail "no answer"
echo "test-image: $answer"
if [ -c /dev/nvidiactl ]; then
    grep -q '^cuda:0 ' "$work/devices" || fail "the image sees no GPU"
    answer=$(in_image /usr/local/bin/vibrant ask --device cuda --temp 0 -n 16 "What is Vibrant?")
    [ -n "$answer" ] || fail "no answer from the GPU"
    echo "test-image: on the GPU: $answer"
fi
