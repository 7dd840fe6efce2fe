#!/usr/bin/env bash
# Makes build/gpu-bundle: everything that a GPU host without Go, compiler or network needs to test and measure Vibrant.
#   bin/vibrant        the command, with CUDA kernels
#   tests/             the test binaries of every package that can use a GPU, beside its testdata
#   data/              golden data by other engines, where it is present (VIBRANT_TESTDATA, else shared/data beside the repository)
#   run.sh             runs it: see run.sh --help
# What `make gpu-bundle` runs, with LDFLAGS, after bin/vibrant is built.
set -euo pipefail
: "${LDFLAGS:?run make gpu-bundle}"
cd "$(dirname "$0")/.."
out=build/gpu-bundle
rm -rf "$out"
mkdir -p "$out/tests"

cp -r bin "$out/"
export CGO_ENABLED=1
# The packages with tests that, with these, depend on the CUDA kernels (the test variants of `go list -test`).
for dir in $(go list -tags cuda -test -f '{{if .ForTest}}{{$d := .Dir}}{{range .Deps}}{{if eq . "github.com/vibrant-ml/vibrant/csrc"}}{{$d}}{{end}}{{end}}{{end}}' ./... | sort -u); do
    name=$(realpath --relative-to=. "$dir" | tr / -)
    test "$name" = . && name=vibrant
    mkdir -p "$out/tests/$name"
    go test -tags cuda -c -ldflags "$LDFLAGS" -o "$out/tests/$name/$name.test" "$dir"
    if test -d "$dir/testdata"; then cp -r "$dir/testdata" "$out/tests/$name/"; fi
done
data=${VIBRANT_TESTDATA:-../shared/data}
if test -d "$data"; then cp -r "$data" "$out/data"; chmod -R u+w "$out/data"; fi
cp scripts/gpu-bundle-run.sh "$out/run.sh"
du -sh "$out"
