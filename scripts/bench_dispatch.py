#!/usr/bin/env python3
"""Measure what the host spends on an allocation from the pool and on a small operation, beside PyTorch where it is installed.

    scripts/bench_dispatch.py [--tests FOLDER] [--out docs/benchmarks/dispatch.jsonl]

Runs the Go benchmarks of packages gpu and tensor on the GPU here, or on the CPU where there is none: with `go test -tags cuda`,
or, on a machine without Go, the test binaries gpu.test and tensor.test in FOLDER (or in its folders of these names, as in a bundle
made by `make gpu-bundle`). Medians of five runs. Writes a line a case as JSON; allocations are those of the Go heap.
"""
import argparse
import pathlib
import re
import statistics
import subprocess
import sys
import time

import suites

ROOT = pathlib.Path(__file__).resolve().parent.parent
CASES = {"BenchmarkPoolHit": ("pool hit, 16 MiB", "gpu", "empty 16 MiB"), "BenchmarkBuffer": ("buffer from the pool, 16 MiB", "gpu", "empty 16 MiB"),
         "BenchmarkAdd32": ("add of 32 floats, freed", "tensor", "add"), "BenchmarkAdd32Dropped": ("add of 32 floats, left to the collector", "tensor", "add"),
         "BenchmarkAddInto32": ("add of 32 floats into a tensor", "tensor", "add into")}


def benchmarks(package, tests):
    """The output of the benchmarks of a package."""
    flags = {"bench": "^(" + "|".join(CASES) + ")$", "run": "^$", "count": "5", "benchtime": "200ms"}
    if tests:
        found = [p for p in (tests / f"{package}.test", tests / package / f"{package}.test") if p.exists()]
        if not found:
            sys.exit(f"bench_dispatch: no {package}.test in {tests}")
        command = [str(found[0].resolve())] + [f"-test.{k}={v}" for k, v in flags.items()]
    else:
        command = ["go", "test", "-tags", "cuda", f"./{package}"] + [f"-{k}={v}" for k, v in flags.items()]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"bench_dispatch: {' '.join(command)}: {done.stdout[-2000:]}{done.stderr[-2000:]}")
    return done.stdout


def peers():
    """Microseconds of the host for the same in PyTorch, {} without it or a GPU."""
    try:
        import torch
    except ImportError:
        return {}, "CPU"
    if not torch.cuda.is_available():
        return {}, "CPU"
    x = torch.zeros(32, device="cuda")
    y = torch.zeros(32, device="cuda")
    calls = {"empty 16 MiB": lambda: torch.empty(16 << 20, dtype=torch.uint8, device="cuda"), "add": lambda: torch.add(x, x),
             "add into": lambda: torch.add(x, x, out=y)}

    def microseconds(call, count=5000):
        start = time.perf_counter()
        for _ in range(count):
            call()
        taken = time.perf_counter() - start
        torch.cuda.synchronize()
        return 1e6 * taken / count

    return {name: statistics.median(microseconds(call) for _ in range(6)) for name, call in calls.items()}, torch.cuda.get_device_name()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tests", type=pathlib.Path)
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "docs/benchmarks/dispatch.jsonl")
    options = parser.parse_args()
    peer, device = peers()
    times, heap = {}, {}
    for package in ("gpu", "tensor"):
        for line in benchmarks(package, options.tests).splitlines():
            found = re.match(r"(Benchmark\w+)/(\w+?)(?:-\d+)?\s+\d+\s+([\d.]+) ns/op.*?(\d+) allocs/op", line)
            if found:
                times.setdefault(found[1], {}).setdefault(found[2], []).append(float(found[3]) / 1e3)
                heap[found[1], found[2]] = int(found[4])
    rows = []
    for name, (case, _, peer_name) in CASES.items():
        places = times.get(name, {})
        place = next((p for p in ("cuda", "cpu", "fake") if p in places), None)
        if place is None:
            sys.exit(f"bench_dispatch: {name} did not run")
        ours = statistics.median(places[place])
        theirs = peer.get(peer_name) if place == "cuda" else None
        rows.append({"suite": "dispatch", "case": case, "ours": round(ours, 3), "peer": theirs and round(theirs, 3), "unit": "us",
                     "ratio": theirs and round(theirs / ours, 2), "roofline": None, "error": None, "allocs": heap[name, place],
                     "device": f"{device}, host side" if place == "cuda" else place, "command": "scripts/bench_dispatch.py",
                     "peer_name": theirs and "PyTorch eager"})
        print(f"{case:45s} {ours:8.3f} us  {heap[name, place]} allocs" + (f"   PyTorch {theirs:.2f} us" if theirs else ""))
    suites.replace(options.out, rows)


if __name__ == "__main__":
    main()
