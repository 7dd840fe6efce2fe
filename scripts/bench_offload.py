#!/usr/bin/env python3
"""Measure models of which a part is in RAM: ours beside llama.cpp or ik_llama.cpp, and beside the sum of the parts, in one run.

    bench_offload.py [--device cuda:0] [--gpu-layers 0.5,10] [--cpu-moe] [--stream off|auto|N] [--peer LLAMA_BENCH] [-p 512] [-n 64]
                     [--rounds 3] [--save docs/benchmarks] NAME=FILE.gguf ...
    bench_offload.py --dry NAME=FILE.gguf ...

Layers are numbers, or parts of the model's. The peer runs with the same -ngl (or --n-cpu-moe) in turn with ours, round by round; figures are
the medians. "of the parts" is the speed at which a token would take its share of the GPU's time and of the CPU's: what is less is lost
between devices. --dry needs no GPU: it has a CPU take the GPU's place, shows what would run and that it does, and saves nothing.
Cases that were measured are replaced in offload.jsonl below --save. Needs nothing but Python.
"""
import argparse, json, os, statistics, subprocess, sys

import suites

ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
ap.add_argument("models", nargs="+", metavar="NAME=FILE")
ap.add_argument("--vibrant", default="bin/vibrant")
ap.add_argument("--peer", help="path of llama-bench")
ap.add_argument("--device", default="cuda:0")
ap.add_argument("--gpu-layers", default="0.5")
ap.add_argument("--cpu-moe", action="store_true", help="the experts of all layers in RAM instead of layers")
ap.add_argument("--stream", default="off", help="--stream-prompts of ours")
ap.add_argument("-p", default="512", help="prompt tokens")
ap.add_argument("-n", type=int, default=64, help="generated tokens")
ap.add_argument("-t", type=int, default=os.cpu_count(), help="threads on the CPU")
ap.add_argument("--rounds", type=int, default=3)
ap.add_argument("--save", help="folder of the suites")
ap.add_argument("--dry", action="store_true", help="on CPUs alone")
A = ap.parse_args()
if A.dry and A.save:
    ap.error("--dry measures no GPU: there is nothing to save")
tests = [f"pp{p}" for p in A.p.split(",") if p != "0"] + ([f"tg{A.n}"] if A.n else [])


def output(command):
    p = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if p.returncode:
        sys.exit(f"bench_offload: {' '.join(command)}: exit status {p.returncode}: {p.stderr.strip()[-400:]}")
    return json.loads(p.stdout)


def ours(path, *where):
    """tokens a second by test, and the device"""
    figures = output([A.vibrant, "bench", "-m", path, "-p", A.p, "-n", str(A.n), "-r", "3", "-t", str(A.t), "--json", *where])
    return {t: next(f["ours"] for f in figures if f["case"].endswith(t)) for t in tests}, figures[0]["device"]


def peer(path, *where):
    rows = output([A.peer, "-m", path, "-p", A.p, "-n", str(A.n), "-r", "3", "-t", str(A.t), "-fa", "1", "-o", "json", *where])
    return {f"tg{r['n_gen']}" if r["n_gen"] else f"pp{r['n_prompt']}": r["avg_ts"] for r in rows}


def median(rounds):
    return {t: statistics.median(r[t] for r in rounds) for t in tests}


def count(path):
    """the layers of a file"""
    metadata = output([A.vibrant, "inspect", path, "--json"])["file"]["metadata"]
    return next(int(kv["value"]) for kv in metadata if kv["key"].endswith(".block_count"))


typed = " ".join(["scripts/bench_offload.py"] + [w.split("=")[0] + "=FILE" if w in A.models else "llama-bench" if w == A.peer else w
                                                 for w in sys.argv[1:] if w not in ("--save", A.save, "--vibrant", A.vibrant)])
lines = []
print(f"{'case':44} {'ours':>9} {'peer':>9} {'ratio':>6} {'of the parts':>13}")
for spec in A.models:
    name, _, path = spec.partition("=")
    total = count(path)
    layers = [None] if A.cpu_moe else [round(float(n) * total) if "." in n else int(n) for n in A.gpu_layers.split(",")]
    for n in layers:
        part = "experts in RAM" if n is None else f"{n} of {total} layers on the GPU"
        if A.dry:  # two CPUs have the layers in halves: there is no other way to name a share of a CPU
            flags = ["--device", "cpu,cpu", "--split", "layer"]
        else:
            flags = ["--device", A.device] + (["--cpu-moe"] if n is None else ["--gpu-layers", str(n)]) + ["--stream-prompts", A.stream]
        mine, cards, cpus, theirs, device = [], [], [], [], ""
        for _ in range(A.rounds):
            found, device = ours(path, *flags)
            mine.append(found)
            if n is not None:
                cards.append(ours(path, "--device", "cpu" if A.dry else A.device)[0])
                cpus.append(ours(path, "--device", "cpu")[0])
            if A.peer:
                theirs.append(peer(path, *(["-ngl", "99", "--n-cpu-moe", "999"] if n is None else ["-ngl", "0" if A.dry else str(n)])))
        mine, device = median(mine), "CPU alone (dry)" if A.dry else device
        for t in tests:
            other = statistics.median(r[t] for r in theirs) if theirs else None
            parts = None
            if n is not None:
                parts = mine[t] * (n / total / median(cards)[t] + (1 - n / total) / median(cpus)[t])
            cell = lambda x, form: format(x, form) if x else "-"
            print(f"{f'{name} {t}, {part}':44} {mine[t]:9.2f} {cell(other, '9.2f'):>9} {cell(other and mine[t] / other, '6.2f'):>6} {cell(parts, '13.3f'):>13}", flush=True)
            lines.append({"suite": "offload", "case": f"{name} {t}, {part}" + (f", streamed {A.stream}" if A.stream != "off" else ""),
                          "ours": round(mine[t], 2), "peer": other and round(other, 2), "unit": "tok/s", "ratio": other and round(mine[t] / other, 3),
                          "of_the_parts": parts and round(parts, 3), "roofline": None, "error": None, "device": device, "command": typed})
if A.save and lines:
    suites.replace(os.path.join(A.save, "offload.jsonl"), lines)
