#!/usr/bin/env python3
"""Measure linear layers of every weight format on a GPU, and hold each to the time of Q4_K in the same run.

    bench_formats.py [--vibrant bin/vibrant] [--device cuda:0] [--only TEXT] [--rows N ...] [--out docs/benchmarks]

1, 2, 8, 32 and 512 rows of x times 2048 x 11008, then hidden sizes that are no multiple of 256, by `vibrant bench --ops`. A row of
Q4_K is whole blocks of 256 columns: beside such a size stands Q4_K of as many rows and the least multiple of 256 columns. The gate
is 1.25 times the time of Q4_K, 1.6 times for IQ1, IQ2 and IQ3, in proportion to bytes where a format has more of them. Prints the
cases above the gate, and replaces all cases in formats.jsonl. Exit status 1 where a case is above the gate.
"""
import argparse
import json
import pathlib
import re
import shlex
import subprocess
import sys

import suites

ROWS = (1, 2, 8, 32, 512)  # of x
SIZES = ((576, 39136), (640, 35216), (896, 25152), (1152, 19568), (2880, 7824))  # columns and rows of W: 22.5 million elements
BLOCKS_OF_32 = "Q4_0|Q4_1|Q5_0|Q5_1|Q8_0|IQ4_NL|MXFP4|NVFP4|Q2_0"
BYTES = {"F32": 4, "F16": 2, "BF16": 2, "Q8_0": 34 / 32, "Q6_K": 210 / 256, "Q5_1": 24 / 32, "Q5_0": 22 / 32, "Q5_K": 176 / 256,
         "Q4_1": 20 / 32, "Q4_K": 144 / 256}  # an element; the others have no more than Q4_K

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--vibrant", default="bin/vibrant")
parser.add_argument("--device", default="cuda:0")
parser.add_argument("--only", default="", metavar="TEXT", help="sizes as in 2048x11008 that have the text")
parser.add_argument("--rows", type=int, nargs="*", default=ROWS, choices=ROWS, help="of x")
parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("docs/benchmarks"), help="folder of formats.jsonl")
options = parser.parse_args()
command = shlex.join(["python3", "scripts/bench_formats.py", *sys.argv[1:]])


def bench(pattern, *more):
    done = subprocess.run([options.vibrant, "bench", "--ops", pattern, *more, "--device", options.device, "--jsonl"],
                          stdout=subprocess.PIPE, text=True, check=True)
    return [json.loads(line) | {"suite": "formats", "command": command} for line in done.stdout.splitlines()]


def of_sizes(formats, sizes):
    dims = [word for size in sorted(sizes) for word in ("--dims", ",".join(map(str, size)))]
    return bench(f"^Linear/qwen2.5-3b_ffn_up_1x2048x11008_({formats})_packed$", *dims) if sizes else []


lines = []
if options.only in "2048x11008":
    lines += bench(f"^Linear/qwen2.5-3b_(ffn_up|prefill)_({'|'.join(map(str, options.rows))})x2048x11008_.*_packed$")
sizes = [(n, cols, rows) for cols, rows in SIZES for n in options.rows if options.only in f"{cols}x{rows}"]
lines += of_sizes(f"{BLOCKS_OF_32}|F16|BF16", sizes) + of_sizes("Q4_K", {(n, -cols // 256 * -256, rows) for n, cols, rows in sizes})
suites.replace(options.out / "formats.jsonl", lines)

times = {}
for line in lines:
    n, cols, rows, format = re.search(r"_(\d+)x(\d+)x(\d+)_(\w+)_packed$", line["case"]).groups()
    times[int(n), int(cols), int(rows), format] = line["ours"]
above = []
for (n, cols, rows, format), ours in times.items():
    q4_k = times[n, -cols // 256 * -256, rows, "Q4_K"]
    gate = (1.6 if re.match("IQ[123]", format) else 1.25) * max(1, BYTES.get(format, 0) / BYTES["Q4_K"])
    if not ours <= gate * q4_k:
        above.append(f"{n}x{cols}x{rows} {format}: {ours:.2f} us, {ours / q4_k:.3f} of Q4_K's {q4_k:.2f}, gate {gate:.2f}")
print(*above, f"{len(lines)} cases, {len(above)} above the gate", sep="\n")
sys.exit(bool(above))
