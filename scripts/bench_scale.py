#!/usr/bin/env python3
"""Measure models on several GPUs against one.

    bench_scale.py [--devices cuda:0,cuda:1]... [--split tensor|layer] [-p 512,2048] [-n 128] [--parallel 64] [--save docs/benchmarks] NAME=FILE.gguf ...

Suite scale: `vibrant bench` on each --devices against the first GPU of the first; the ratio is the speedup. Cases that were measured are replaced in
scale.jsonl below --save. (bench_offload.py measures a GPU beside RAM.) Needs nothing but Python.
"""
import argparse, json, os, subprocess, sys

import suites

ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
ap.add_argument("models", nargs="+", metavar="NAME=FILE")
ap.add_argument("--vibrant", default="bin/vibrant")
ap.add_argument("--devices", action="append", help="GPUs that share a model, may be repeated (default cuda:0,cuda:1)")
ap.add_argument("--split", default="tensor", choices=["tensor", "layer"])
ap.add_argument("-p", default="512,2048", help="prompt tokens")
ap.add_argument("-n", type=int, default=128, help="generated tokens")
ap.add_argument("-r", type=int, default=3, help="repetitions")
ap.add_argument("--parallel", default="", help="also so many sequences together")
ap.add_argument("--save", help="folder of the suites")
A = ap.parse_args()
lists = A.devices or ["cuda:0,cuda:1"]


def bench(path, *more):
    """tokens a second by test, and the device"""
    command = [A.vibrant, "bench", "-m", path, "-r", str(A.r), "--json", *more]
    p = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if p.returncode:
        print(f"bench_scale: {' '.join(command)}: exit status {p.returncode}: {p.stderr.strip()[-400:]}", file=sys.stderr)
        return {}, ""
    figures = json.loads(p.stdout)
    name = lambda f: f"x {f['n_parallel']}" if f["n_parallel"] > 1 else f"tg{f['n_gen']}" if f["n_gen"] else f"pp{f['n_prompt']}"
    return {name(f): f["ours"] for f in figures}, figures[0]["device"]


def measure(path, *where):
    found, device = bench(path, "-p", A.p, "-n", str(A.n), *where)
    if A.parallel:
        batch, device = bench(path, "-p", "64", "-n", "64", "--parallel", A.parallel, *where)
        found.update(batch)
    return found, device


typed = " ".join(["scripts/bench_scale.py"] + [w if "=" not in w else w.split("=")[0] + "=FILE" for w in sys.argv[1:] if w not in ("--save", A.save, "--vibrant", A.vibrant)])
lines = []


def line(case, ours, peer, device):
    lines.append({"suite": "scale", "case": case, "ours": round(ours, 2), "peer": round(peer, 2), "unit": "tok/s", "ratio": round(ours / peer, 3),
                  "roofline": None, "error": None, "device": device, "command": typed})
    print(json.dumps(lines[-1]), flush=True)


for spec in A.models:
    name, _, path = spec.partition("=")
    one, device = measure(path, "--device", lists[0].split(",")[0])
    for devices in lists:
        some, _ = measure(path, "--device", devices, "--split", A.split)
        for test in [t for t in one if t in some]:
            line(f"{name} {test}, {devices.count(',') + 1} GPUs{', layers' if A.split == 'layer' else ''}", some[test], one[test], device)
        if A.save:
            suites.replace(os.path.join(A.save, "scale.jsonl"), lines)
