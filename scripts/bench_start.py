#!/usr/bin/env python3
"""Measure how long a start takes: from the process to the first token of a short prompt, and what its phases take.

    bench_start.py [--device cuda] [--backends library,ptx] [--rounds 5] [--phases] [--save docs/benchmarks] NAME=FILE.gguf ...

Times are those of this process: from the start of the command to the line of VIBRANT_TRACE=start, and to its end, which waits for the
driver to end the GPU's context. Backends take turns, round by round; figures are medians. "cold" is the first start of the PTX backend
with an empty VIBRANT_CACHE and an empty cache of the driver's own, "warm" are those after it. `devices` is measured beside the models.
Each is held to the least that any process needs here: loading the driver, cuInit and an empty primary context by the driver's calls
alone, as `peer`; `roofline` is that time's share of ours in percent.
Cases that were measured are replaced in start.jsonl below --save. Needs nothing but Python.
"""
import argparse, json, os, statistics, subprocess, sys, tempfile, time

import suites

ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
ap.add_argument("models", nargs="+", metavar="NAME=FILE")
ap.add_argument("--vibrant", default="bin/vibrant")
ap.add_argument("--device", default="cuda")
ap.add_argument("--backends", default="library,ptx", help="values of VIBRANT_CUDA")
ap.add_argument("--rounds", type=int, default=5)
ap.add_argument("--tokens", type=int, default=16, help="of the prompt")
ap.add_argument("--phases", action="store_true", help="show each phase's end")
ap.add_argument("--save", help="folder of the suites")
A = ap.parse_args()

FIRST = "first token chosen"
EMPTY = """import ctypes, time
times = [time.monotonic()]
driver, context = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p()
times.append(time.monotonic())
status = driver.cuInit(0)
times.append(time.monotonic())
status = status or driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0)
times.append(time.monotonic())
print(*[1e3 * (end - begin) for begin, end in zip(times, times[1:])] if status == 0 else "")
"""
STEPS = ("the driver's library loaded", "cuInit", "an empty primary context")


def empty_context():
    """milliseconds of each step to an empty context of the first GPU, as `vibrant` has it made; None without a driver"""
    p = subprocess.run([sys.executable, "-c", EMPTY], env=os.environ | {"CUDA_DEVICE_MAX_CONNECTIONS": "1"}, capture_output=True, text=True)
    return [float(ms) for ms in p.stdout.split()] or None if p.returncode == 0 else None


def start(arguments, backend, cache):
    """milliseconds from the start of a command to the end of each phase, and to the end of the process"""
    environment = os.environ | {"VIBRANT_TRACE": "start", "VIBRANT_CUDA": backend, "VIBRANT_CACHE": cache,
                                "CUDA_CACHE_PATH": os.path.join(cache, "driver")}
    began, phases, said = time.monotonic(), {}, []
    p = subprocess.Popen([A.vibrant, *arguments], env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    for line in p.stderr:
        now = 1e3 * (time.monotonic() - began)
        said.append(line.strip())
        if line.startswith("vibrant: start: "):
            phases.setdefault(line.strip().split(" ms: ", 1)[1], now)
    if p.wait():
        sys.exit(f"bench_start: {' '.join(arguments)}: exit status {p.returncode}: {' | '.join(said[-3:])}")
    return phases | {"process ended": 1e3 * (time.monotonic() - began)}


commands = {"devices": (["devices"], "process ended")}
for spec in A.models:
    name, _, path = spec.partition("=")
    ids = ",".join(str(i + 1) for i in range(A.tokens))
    commands[name] = (["complete", "-m", path, "--ids", ids, "-n", "1", "--device", A.device], FIRST)

typed = " ".join(["scripts/bench_start.py"] + [w.split("=")[0] + "=FILE" if w in A.models else w
                                               for w in sys.argv[1:] if w not in ("--save", A.save, "--vibrant", A.vibrant)])
info = subprocess.run([A.vibrant, "devices", "--json"], capture_output=True, text=True)
device = next((d["name"] for d in json.loads(info.stdout or "[]") if d["id"].startswith(A.device)), A.device)
measured, cold, empty = {}, {}, []
with tempfile.TemporaryDirectory() as folder:
    for turn in range(A.rounds + 1):
        empty.append(empty_context() if A.device.startswith("cuda") else None)
        for name, (arguments, until) in commands.items():
            for backend in A.backends.split(","):
                found = start(arguments, backend, os.path.join(folder, name.replace("/", "_")))
                if turn:
                    measured.setdefault((name, backend), []).append(found)
                elif backend == "ptx":
                    cold[name] = found
lines = []
empty = [steps for steps in empty[1:] if steps]
least = statistics.median(map(sum, empty)) if empty else None
print(f"{'case':52} {'ms':>8} {'to the end':>11}" + (f" {'above an empty context':>24}" if least else ""))
if least:
    print(f"{'the driver alone':52} {least:8.1f}")
    for step, name in enumerate(STEPS):
        print(f"    {statistics.median(e[step] for e in empty):8.1f} {name}")
for name, (_, until) in commands.items():
    cases = [(f"{name}, {b}" + (", warm" if b == "ptx" else ""), measured[name, b]) for b in A.backends.split(",")]
    if name in cold:
        cases.append((f"{name}, ptx, cold", [cold[name]]))
    for case, runs in cases:
        if any(until not in r for r in runs):
            sys.exit(f"bench_start: {case}: no line says \"{until}\"")
        value, end = (statistics.median(r[key] for r in runs) for key in (until, "process ended"))
        print(f"{case:52} {value:8.1f} {end:11.1f}" + (f" {value - least:24.1f}" if least else ""))
        if A.phases:
            for phase in runs[0]:
                print(f"    {statistics.median(r.get(phase, 0) for r in runs):8.1f} {phase}")
        lines.append({"suite": "start", "case": case, "ours": round(value, 1), "peer": least and round(least, 1), "unit": "ms",
                      "ratio": least and round(least / value, 3), "roofline": least and round(100 * least / value, 1), "error": None,
                      "device": device, "command": typed + ", peer: an empty context" * bool(least)})
if A.save:
    suites.replace(os.path.join(A.save, "start.jsonl"), lines)
