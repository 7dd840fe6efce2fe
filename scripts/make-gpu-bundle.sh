#!/usr/bin/env bash
# Makes build/gpu-bundle: everything that a GPU host without Go and network needs to test and measure Vibrant.
#   bin/vibrant              the command
#   lib/libvibrant_cuda.so   the CUDA kernels, which the command and the tests find at run time
#   scripts/, docs/benchmarks  measurements beside the peers, and the saved figures that they replace
#   tests/                   the test binaries of every package that can use a GPU, beside its testdata
#   data/                    golden data by other engines that these tests read, where it is present (VIBRANT_TESTDATA, else
#                            shared/data beside the repository)
#   run.sh                   runs it: see run.sh --help
# What `make gpu-bundle` runs after libvibrant_cuda.so is built. NO_LIBRARY=1 leaves the library out, for a host that has nvcc.
set -euo pipefail
cd "$(dirname "$0")/.."
out=build/gpu-bundle
rm -rf "$out"
mkdir -p "$out/tests" "$out/bin" "$out/lib"

export CGO_ENABLED=1
go build -trimpath -ldflags '-s -w' -o "$out/bin/vibrant" ./cmd/vibrant
[ -n "${NO_LIBRARY-}" ] || cp build/cuda/libvibrant_cuda.so "$out/lib/"
(cd scripts/bench_tensor && go build -trimpath -ldflags '-s -w' -o "../../$out/bin/bench_tensor" .)
mkdir -p "$out/scripts/bench_tensor" "$out/docs"
cp scripts/*.py "$out/scripts/"
cp scripts/bench_tensor/*.py "$out/scripts/bench_tensor/"
cp -r docs/benchmarks "$out/docs/"
# The packages with tests that, with these, depend on the C library (the test variants of `go list -test`).
for dir in $(go list -test -f '{{if .ForTest}}{{$d := .Dir}}{{range .Deps}}{{if eq . "github.com/vibrant-ml/vibrant/csrc"}}{{$d}}{{end}}{{end}}{{end}}' ./... | sort -u); do
    name=$(realpath --relative-to=. "$dir" | tr / -)
    test "$name" = . && name=vibrant
    mkdir -p "$out/tests/$name"
    go test -c -ldflags '-s -w' -o "$out/tests/$name/$name.test" "$dir"
    if test -d "$dir/testdata"; then cp -r "$dir/testdata" "$out/tests/$name/"; fi
done
data=${VIBRANT_TESTDATA:-../shared/data}
if test -d "$data"; then
    mkdir -p "$out/data"
    cp -r "$data"/models "$data"/quants "$data"/real "$out/data/"
    chmod -R u+w "$out/data"
fi
cp scripts/gpu-bundle-run.sh "$out/run.sh"
du -sh "$out"
