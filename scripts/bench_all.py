#!/usr/bin/env python3
"""Measure all suites that this machine can measure, in order of use, and save them.

    bench_all.py [--list] [--minutes 25] [--llama-bench FILE] [--microsoft FOLDER] [--library86 FILE] [SUITE ...]

Runs from the root of the repository or of a bundle made by `make gpu-bundle`. A step is a command that saves its figures in
docs/benchmarks, or prints them as lines of JSON, which are saved here: cases that were measured are replaced. Models are written once
into --work. A step is left out, with the reason, where its peer is not given, where the machine has too few GPUs, or where the time
that is left is less than it takes. Prints a line a step while it runs and a table at the end; the logs are in --work. Exit status 1
where a step failed. Needs Python; the suites with PyTorch as their peer need that, too.
"""
import argparse
import json
import os
import pathlib
import shlex
import subprocess
import sys
import time

import suites

HERE = pathlib.Path(__file__).resolve().parent
ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
ap.add_argument("suites", nargs="*", metavar="SUITE", help="these alone")
ap.add_argument("--list", action="store_true", help="print the steps and end")
ap.add_argument("--minutes", type=float, default=1e9, help="begin no step that would end later")
ap.add_argument("--work", type=pathlib.Path, default=pathlib.Path("build/bench"), help="folder of models and logs")
ap.add_argument("--out", type=pathlib.Path, default=pathlib.Path("docs/benchmarks"), help="folder of the suites")
ap.add_argument("--vibrant", default="bin/vibrant")
ap.add_argument("--library", default="build/cuda/libvibrant_cuda.so" if os.path.exists("build/cuda/libvibrant_cuda.so") else "lib/libvibrant_cuda.so")
ap.add_argument("--library86", help="a library compiled with CUDA_ARCH=80 alone, which is run as a GPU of capability 8.6")
ap.add_argument("--llama-bench", help="program of ik_llama.cpp or llama.cpp")
ap.add_argument("--microsoft", help="folder with bitnet_kernels.cu of Microsoft's BitNet")
ap.add_argument("--seed", type=int, default=int(time.strftime("%j")), help="of the shapes that are drawn")
A = ap.parse_args()

PEER = "--peer {llama_bench}" if A.llama_bench else ""
QWEN = ("qwen2.5-0.5b", "qwen2.5-1.5b", "qwen2.5-3b", "qwen2.5-7b")

ADAPTER, ADAPTED = "'{model:qwen2.5-3b --adapter 8}'", "'qwen2.5-3b q4_k_m, adapter of 8 ranks={model:qwen2.5-3b}'"

# a bundle has these compiled
TESTS = "--tests tests" if os.path.isdir("tests") else ""
TENSOR = os.path.abspath("bin/bench_tensor") if os.path.exists("bin/bench_tensor") else "go run ."


def script(name, arguments):
    return f"{{python}} {HERE / name} {arguments}"


def models(*names, types="q4_k_m"):
    return " ".join(f"'{name} {types}={{model:{name}}}'" for name in names)


def ops(suite, pattern):
    """The command prints JSON, and the suite's name is not the one that it prints."""
    return suite, 1, f"{{vibrant}} bench --ops '{pattern}' --jsonl --device cuda:0", ""


# suite, minutes on an H200, command, what it needs: an option, "2 GPUs" or nothing
STEPS = [
    ("decode prefill", 3, script("bench_models.py", f"--device cuda {PEER} --rounds 3 -p 512,2048 -n 128 --vibrant {{vibrant}} --out {{out}} " + models(*QWEN)), ""),
    ("batch", 1, "{vibrant} bench -m {model:qwen2.5-3b} --parallel 1,2,4,8,16,32,64 -p 128 -n 128 -r 3 --device cuda:0 --jsonl", ""),
    ("shapes", 3, script("bench_shapes.py", "--seed {seed} --library {library} --out {out}/shapes.jsonl"), ""),
    ("shapes", 1, script("bench_shapes.py", "--seed {seed} --library {library} --check 20000"), ""),
    ops("ops", "^Linear/qwen2.5-3b.*packed$"),
    ops("formats", "^Linear/qwen2.5-3b_(ffn_up|prefill)_(1|2|8|32|512)x.*_packed$"),
    ("moe", 3, script("bench_models.py", f"--device cuda {PEER} --suite moe -p 512,2048 -n 128 --vibrant {{vibrant}} --out {{out}} " + models("qwen3-30b-a3b") + " " + models("gpt-oss-20b", types="mxfp4")), ""),
    ("alone", 1, script("bench_models.py", "--device cuda --suite alone --rounds 2 -p 512 -n 128 --vibrant {vibrant} --out {out} " + models(*QWEN)), ""),
    ("small", 1, script("bench_models.py", "--device cuda --suite small -p 512 -n 256 --parallel 16 --vibrant {vibrant} --out {out} " + models("smollm2-135m", types="q4_1") + " " + models("gemma3-270m")), ""),
    ("dense layouts", 3, script("bench_dense.py", "--library {library} --out {out}/dense.jsonl"), ""),
    ("fused_update", 1, script("bench_adapter.py", "--library {library} --save"), ""),
    ("fused_update", 1, script("bench_models.py", "--device cuda --suite fused_update --vibrant {vibrant} --out {out} --lora " + ADAPTER + " --parallel 4,16 " + ADAPTED), ""),
    ("fused_update", 1, script("bench_models.py", "--device cuda --suite fused_update --vibrant {vibrant} --out {out} -p '' -n 0" + 4 * (" --lora " + ADAPTER) + " --parallel 4,16 " + ADAPTED.replace("adapter", "4 adapters")), ""),
    ("w2a8", 2, script("bench_w2a8.py", "--library {library} --microsoft {microsoft} --out {out}/w2a8.jsonl"), "microsoft"),
    ("ternary", 1, script("bench_models.py", "--device cuda --suite ternary -p 512 --vibrant {vibrant} --out {out} bitnet-2b-4t={model:bitnet-2b-4t} llama-2b-bf16={model:llama-2b-bf16}"), ""),
    ("offload", 2, script("bench_offload.py", f"{PEER} --vibrant {{vibrant}} --save {{out}} " + models("qwen2.5-3b")), ""),
    ("offload", 2, script("bench_offload.py", f"{PEER} --cpu-moe --vibrant {{vibrant}} --save {{out}} " + models("qwen3-30b-a3b")), ""),
    ("start", 1, script("bench_start.py", "--vibrant {vibrant} --save {out} " + models(QWEN[0], QWEN[2])), ""),
    ("scale", 2, script("bench_scale.py", "--parallel 64 --vibrant {vibrant} --save {out} " + models("qwen2.5-7b")), "2 GPUs"),
    ("scale", 3, script("bench_scale.py", "--vibrant {vibrant} --save {out} 'llama-3-70b 20 layers q4_k_m={model:llama-3-70b --layers 20}'"), "2 GPUs"),
    ("tensor", 3, f"cd {HERE}/bench_tensor && {TENSOR} -device cuda -python {{python}}", ""),
    ("dispatch", 1, script("bench_dispatch.py", TESTS + " --out {out}/dispatch.jsonl"), ""),
    ("portable", 4, "VIBRANT_CUDA_CAPABILITY=86 " + script("bench_shapes.py", "--seed {seed} --portable --library {library86} --out {out}/portable.jsonl"), "library86"),
    ("portable", 1, "VIBRANT_LIBRARY={library86} VIBRANT_CUDA_CAPABILITY=86 " + script("bench_models.py", "--device cuda --suite portable -p 512 --vibrant {vibrant} --out {out} " + models(*QWEN[2:])), "library86"),
    ("ptx", 1, script("bench_models.py", "--device cuda --suite ptx --ptx -p 512 --vibrant {vibrant} --out {out} " + models(QWEN[0], QWEN[2])), ""),
    ("ptx", 1, script("bench_ptx.py", "--seed {seed} --library {library} --save {out}"), ""),
]


def gpus():
    try:
        return subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True).stdout.count("GPU ")
    except FileNotFoundError:
        return 0


def lacks(need):
    if not need:
        return None
    if need == "2 GPUs":
        return None if gpus() >= 2 else "fewer than 2 GPUs"
    return None if getattr(A, need) else f"--{need} is not given"


def model(arguments):
    """Returns the file of a synthetic model, which is written where it is not yet."""
    path = A.work / (arguments.replace(" --", "-").replace(" ", "-") + ".gguf")
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        name, *more = arguments.split()
        partial = path.with_suffix(".partial")
        subprocess.run([sys.executable, HERE / "make_synthetic_gguf.py", name, partial, *more], check=True, stdout=sys.stderr)
        partial.rename(path)
    return str(path)


def filled(command):
    values = {"{python}": sys.executable, "{vibrant}": A.vibrant, "{library}": A.library, "{library86}": A.library86, "{out}": str(A.out), "{seed}": str(A.seed),
              "{llama_bench}": A.llama_bench, "{microsoft}": A.microsoft}
    for key, value in values.items():
        command = command.replace(key, shlex.quote(value or ""))
    while "{model:" in command:
        start = command.index("{model:")
        end = command.index("}", start)
        command = command[:start] + model(command[start + 7:end]) + command[end + 1:]
    return command


def save(suite, printed):
    """Replaces the cases that a command printed as lines of JSON."""
    found = []
    for line in printed.splitlines():
        if line.startswith("{") and '"case"' in line:
            found.append({**json.loads(line), "suite": suite})
    if found:
        suites.replace(A.out / f"{suite}.jsonl", found, lambda line: (line["case"], line["device"], line.get("peer_name")))
    return len(found)


def run(suite, command, log):
    started = time.monotonic()
    try:
        command = filled(command)
    except (OSError, subprocess.CalledProcessError) as error:  # a disk that is full, say
        return f"FAILED: its model: {error}", time.monotonic() - started
    with open(log, "w") as errors:
        done = subprocess.run(command, shell=True, stdout=subprocess.PIPE, stderr=errors, text=True, stdin=subprocess.DEVNULL)
    with open(log, "a") as file:
        file.write(done.stdout)
    saved = save(suite, done.stdout) if done.returncode == 0 else 0
    state = f"{saved} cases" if saved else "done"
    return (state if done.returncode == 0 else f"FAILED ({done.returncode}): {log}"), time.monotonic() - started


def main():
    known = {suite for names, *_ in STEPS for suite in names.split()}
    for suite in A.suites:
        if suite not in known:
            sys.exit(f"bench_all: there is no suite {suite}: {' '.join(sorted(known))}")
    steps = [step for step in STEPS if not A.suites or set(A.suites) & set(step[0].split())]
    if A.list:
        for suite, minutes, command, need in steps:
            print(f"{suite} ({minutes} min{', ' + need if need else ''}): {command}")
        return 0
    A.work.mkdir(parents=True, exist_ok=True)
    A.out.mkdir(parents=True, exist_ok=True)
    end, failed, table = time.monotonic() + 60 * A.minutes, False, []
    for i, (suite, minutes, command, need) in enumerate(steps):
        left = (end - time.monotonic()) / 60
        why = lacks(need) or (f"{left:.1f} min are left of {minutes}" if left < minutes else None)
        seconds = 0.0
        if why:
            state = "left out: " + why
        else:
            print(f"bench_all: {suite}, about {minutes} min", file=sys.stderr, flush=True)
            state, seconds = run(suite, command, A.work / f"{i:02}-{suite.split()[0]}.log")
            failed |= state.startswith("FAILED")
        table.append((suite, f"{seconds:.0f} s", state))
    for suite, seconds, state in table:
        print(f"{suite:16} {seconds:>7}  {state}")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
