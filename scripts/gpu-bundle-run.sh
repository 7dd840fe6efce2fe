#!/usr/bin/env bash
# run.sh [test|soak|sanitize|memcheck|racecheck|initcheck|synccheck|bench|ops] [NAME...]: runs a bundle made by `make gpu-bundle` on this GPU host.
#   test       every test binary (or those named), on every backend of the build and the GPU (the default)
#   soak       what the tests sample, at length: VIBRANT_DRAWS random shapes (200000) on the GPU, many threads, sessions and loads
#   sanitize   each kernel of the table of operations under compute-sanitizer's four tools, as scripts/sanitize.py --help says
#   memcheck   the test binaries named under this tool, or every case of the table; likewise racecheck, initcheck and synccheck
#   bench      the suites beside their peers, as scripts/bench_all.py --help says; figures go to docs/benchmarks
#   ops        the table of operations against the roofline of this GPU
# Exit status 1 if anything failed.
set -u
cd "$(dirname "$0")"
export VIBRANT_TESTDATA="${VIBRANT_TESTDATA:-$PWD/data}" VIBRANT_LIBRARY="${VIBRANT_LIBRARY:-$PWD/lib/libvibrant_cuda.so}" CI=true
what=${1:-test}
shift || true
fail=0

run() { # NAME COMMAND...: in the folder of the test binary, where its testdata lies
    local name=$1
    shift
    echo "== $name"
    (cd "tests/$name" && "$@") || { echo "FAILED $name"; fail=1; }
}

case $what in
test)
    for t in ${*:-$(ls tests)}; do run "$t" "./$t.test" -test.timeout 9m; done
    ;;
soak)
    export VIBRANT_DRAWS="${VIBRANT_DRAWS:-200000}"
    run tensor ./tensor.test -test.v -test.timeout 1h -test.run 'RandomDraws.*/^cuda$'
    run tensor ./tensor.test -test.v -test.timeout 1h -test.run 'MoreElements|OpsOnThreads|GoroutinesCompute|TwoDevices|EveryCycle|DroppedTensors/cuda'
    run vibrant ./vibrant.test -test.v -test.timeout 1h -test.count 5 -test.run '(SameTime|SameSeed|AgainAndAgain|SessionsTake).*/cuda'
    run vibrant ./vibrant.test -test.v -test.timeout 1h -chats 100s -test.run 'ChatsLeaveNothing/cuda'
    ;;
sanitize)
    run tensor python3 ../../scripts/sanitize.py "$@"
    ;;
memcheck | racecheck | initcheck | synccheck)
    for t in "$@"; do
        run "$t" compute-sanitizer --tool "$what" --error-exitcode 9 "./$t.test" -test.short -test.run cuda -test.timeout 9m
    done
    [ $# = 0 ] && run tensor python3 ../../scripts/sanitize.py --every "$what"
    ;;
bench)
    python3 scripts/bench_all.py "$@" || fail=1
    ;;
ops)
    bin/vibrant bench --ops "${1:-.}" --device cuda || fail=1
    ;;
*)
    sed -n '2,9s/^# //p' "$0"
    exit 2
    ;;
esac
exit $fail
