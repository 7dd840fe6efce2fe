#!/usr/bin/env python3
"""Measure whole models, ours beside a peer, on the same GGUF files in one run.

    bench_models.py --device cuda|cpu [--peer LLAMA_BENCH] [--rounds 3] [-p 512,...] [-n 128] [-d 8192,...] [--suite moe]
                    [--out docs/benchmarks] NAME=FILE.gguf[,PEERS.gguf] ...
    bench_models.py --suite fused_update --lora FILE [--lora FILE ...] [--parallel 4,16] NAME=FILE.gguf ...
    bench_models.py --suite ptx --ptx NAME=FILE.gguf ...

Ours is `bin/vibrant bench`, the peer any llama-bench (of ik_llama.cpp or llama.cpp), which is run in turn with ours, round by
round, so that a drifting machine moves both; figures are the medians of the rounds. Without --peer the ratios are empty.
Prints one table and replaces the measured cases in decode.jsonl and prefill.jsonl (cpu.jsonl on the CPU) below --out, with
--suite in that one. make_synthetic_gguf.py writes files of published shapes.
With --lora, ours has these adapters, and ours without them is the peer; with --parallel, also so many sequences in a batch are
measured, which have one of several adapters each. -p '' and -n 0 leave prompts and single sequences out.
With --ptx, ours has the kernels in PTX, and ours with the compiled ones is the peer.
PEERS.gguf is the same model in a type that the peer has, where it lacks ours (bitnet-2b-4t, --types iq2_bn).
With --peer vibrant, ours computes both files: one model beside another (bitnet-2b-4t beside llama-2b-bf16).
Needs nothing but Python. NAME is the case, such as "qwen2.5-3b q4_k_m".
"""
import argparse, json, os, statistics, subprocess, sys

import suites

ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
ap.add_argument("models", nargs="+", metavar="NAME=FILE[,PEERS]")
ap.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
ap.add_argument("--peer", help="path of llama-bench, or vibrant: ours with PEERS.gguf")
ap.add_argument("--vibrant", default="bin/vibrant")
ap.add_argument("--rounds", type=int, default=3)
ap.add_argument("-r", type=int, default=3, help="repetitions in a round, of which each program takes the mean")
ap.add_argument("--peer-options", default="", help="more options of llama-bench, for example '-rtr 1'")
ap.add_argument("-p", default="512", help="prompt tokens, for example 512,2048")
ap.add_argument("-n", type=int, default=128, help="generated tokens")
ap.add_argument("-d", default="", help="also decode after so many tokens in the cache, for example 8192,32768")
ap.add_argument("--lora", action="append", default=[], metavar="FILE[:SCALE]", help="an adapter of ours; the peer is ours without")
ap.add_argument("--parallel", default="", help="also generate in batches of so many sequences, for example 4,16 (with --suite)")
ap.add_argument("--ptx", action="store_true", help="the kernels in PTX; the peer is ours with the compiled ones")
ap.add_argument("-t", type=int, default=os.cpu_count(), help="threads on the CPU")
ap.add_argument("--suite", help="the suite of all figures, such as moe")
ap.add_argument("--out", default="docs/benchmarks")
A = ap.parse_args()


depths = [int(d) for d in A.d.split(",") if d]
prompts = [int(p) for p in A.p.split(",") if p]
tests = [("prefill", f"pp{p}", f" pp{p}" if p != 512 else "") for p in prompts]
if A.n:
    tests += [("decode", f"tg{A.n}", "")] + [("decode", f"tg{A.n} @ d{d}", f" d{d}") for d in depths]
alone = len(tests)  # these are of a single sequence
tests += [("decode", f"tg64 @ d64 x {n}", "") for n in A.parallel.split(",") if n]
if A.peer and (A.lora or A.parallel) or A.parallel and not A.suite:
    ap.error("--lora and --parallel have no other peer than ours, and --parallel wants --suite")
if A.ptx and (A.peer or A.lora or not A.suite):
    ap.error("--ptx has no other peer than ours, and wants --suite")


def output(args, **environment):
    p = subprocess.run(args, env=os.environ | environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if p.returncode:
        sys.exit(f"bench_models: {' '.join(args)}: exit status {p.returncode}: {p.stderr.strip()[-400:]}")
    return json.loads(p.stdout)


def ours(path, adapters, **environment):
    """the figures of each test, as the command prints them"""
    common = [A.vibrant, "bench", "-m", path, "-r", str(A.r), "--json", "--device", A.device, "-t", str(A.t)]
    common += [word for adapter in adapters for word in ("--lora", adapter)]
    figures = output(common + ["-p", A.p or "0", "-n", str(A.n), "-d", ",".join(map(str, [0] + depths))], **environment) if alone else []
    if A.parallel:
        figures += output(common + ["-p", "64", "-n", "64", "--parallel", A.parallel], **environment)
    return [next(f for f in figures if f["case"].endswith(test)) for _, test, _ in tests]


def peer(path):
    """tokens a second of each test"""
    if A.lora:
        return [f["ours"] for f in ours(path, [])]
    if A.ptx:
        return [f["ours"] for f in ours(path, [], VIBRANT_CUDA="library")]
    if A.peer == "vibrant":
        return [f["ours"] for f in ours(path, [])]
    rows = output([A.peer, "-m", path, "-p", A.p, "-n", str(A.n), "-r", str(A.r), "-ngl", "99" if A.device == "cuda" else "0", "-fa", "1",
                   "-ub", "2048" if A.device == "cuda" else "512", "-t", str(A.t), "-o", "json"] + A.peer_options.split() + [word for d in depths for word in ("-gp", f"{d},{A.n}")])
    pick = lambda prompt, gen: next(r["avg_ts"] for r in rows if r["n_prompt"] == prompt and r["n_gen"] == gen)
    return [pick(p, 0) for p in prompts] + [pick(0, A.n)] + [pick(d, A.n) for d in depths]


def save(suite, lines):
    suites.replace(os.path.join(A.out, suite + ".jsonl"), lines)


found = {"decode": [], "prefill": []}
compared = A.peer or A.lora or A.ptx
mode = {"VIBRANT_CUDA": "ptx"} if A.ptx else {}
against = " --ptx" * A.ptx + "".join(f" --lora {os.path.basename(a)}" for a in A.lora) + (" --peer vibrant" if A.peer == "vibrant" else " --peer llama-bench" * bool(A.peer))
against += f" --parallel {A.parallel}" * bool(A.parallel)
capability = os.environ.get("VIBRANT_CUDA_CAPABILITY")
taken_as = f", capability taken as {capability[:-1]}.{capability[-1]}" if capability and A.device == "cuda" else ""
print(f"{'model':24} {'test':14} {'ours':>10} {'peer':>10} {'ratio':>7} {'roofline':>9}")
for spec in A.models:
    name, _, paths = spec.partition("=")
    path, _, peers = paths.partition(",")
    rounds = []
    for r in range(A.rounds):
        rounds.append((ours(path, A.lora, **mode), peer(peers or path) if compared else None))
    for i, (suite, test, suffix) in enumerate(tests):
        mine = [o[i] for o, _ in rounds]
        value = statistics.median(f["ours"] for f in mine)
        theirs = statistics.median(p[i] for _, p in rounds) if compared else None
        roofline = statistics.median(f["roofline"] for f in mine) if mine[0]["roofline"] is not None else None
        case = f"{name} {test}" if A.device == "cpu" or A.suite or A.n != 128 else name + suffix
        found[suite].append({"suite": A.suite or ("cpu" if A.device == "cpu" else suite), "case": case, "ours": round(value, 2), "peer": theirs and round(theirs, 2),
                             "unit": "tok/s", "ratio": theirs and round(value / theirs, 3), "roofline": roofline and round(roofline, 1), "error": None,
                             "device": mine[0]["device"] + taken_as, "command": f"scripts/bench_models.py --device {A.device} -p {A.p or 0} -n {A.n}{' -d ' + A.d if depths else ''}{' --suite ' + A.suite if A.suite else ''} --rounds {A.rounds} -r {A.r}{' -t ' + str(A.t) if A.device == 'cpu' else ''}{against}{' --peer-options ' + repr(A.peer_options) if A.peer_options else ''}"})
        cell = lambda x, form: format(x, form) if x is not None else "-"
        print(f"{name:24} {test:14} {value:10.1f} {cell(theirs, '10.1f'):>10} {cell(theirs and value / theirs, '7.2f'):>7} {cell(roofline, '8.1f'):>8} %", flush=True)
if A.suite or A.device == "cpu":
    save(A.suite or "cpu", found["prefill"] + found["decode"])
else:
    for suite, lines in found.items():
        save(suite, lines)
