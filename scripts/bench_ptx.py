#!/usr/bin/env python3
"""Measure the kernels in PTX that memory bounds beside a copy of as many bytes, and products beside PyTorch's, on a GPU.

    bench_ptx.py [--draws 60] [--seed 7 ...] [--only TEXT ...] [--library FILE] [--save docs/benchmarks]

Softmax, norms, GELU and SiLU at fixed shapes, then at --draws random ones a seed: rows of 1 to 64 Ki columns, log-uniform, 16 to
64 Mi elements; products of 16-bit matrices at fixed shapes. Calls the vb_* functions of a library with VIBRANT_CUDA=ptx. Both
sides are graphs whose arrays rotate over more than the L2 holds, replayed in turn; figures are medians. Prints a row a case,
the percent of the other's speed and whether values agree with float64, and replaces the measured cases in ptx.jsonl below
--save. Exit status 1 where a value is wrong, or where a case but a product is below 85 percent of a copy. Needs PyTorch.
"""
import argparse
import ctypes
import math
import os
import pathlib
import shlex
import sys

os.environ["VIBRANT_CUDA"] = "ptx"  # before the library opens a device
import suites
from bench_dense import BF16, F16, F32, TORCH, Library, alternate, torch_graph
from bench_shapes import Case, Draw, Pool, describe, wrong
from lazily import F, torch

ROWS = ("softmax", "layer_norm", "rms_norm")
ELEMENTS = ("gelu", "silu")  # also names of PyTorch
FIXED = [(op, (t, (64 << 20) // cols, cols)) for op in ROWS for t in (F32, F16, BF16) for cols in (8, 64, 768, 2048, 4096, 8192)]
FIXED += [(op, (t, 1, 64 << 20)) for op in ELEMENTS for t in (F32, F16, BF16)]
PRODUCTS = [(type, batch, m, k, n, layout, (m if layout[0] == "t" else k, k if layout[1] == "t" else n, n))
            for type in (F16, BF16) for batch, m, k, n, layout in ((1, 4096, 4096, 4096, "nn"), (1, 4096, 4096, 4096, "nt"),
                (1, 4096, 4096, 4096, "tn"), (1, 8192, 8192, 8192, "nn"), (64, 512, 512, 512, "nn"), (1, 2001, 1999, 2003, "nn"))]
LEAST = 85  # percent of a copy


def draws(seed, count):
    draw = Draw(seed, 1 << 16)
    for _ in range(count):
        op, type = draw.random.choice(ROWS + ELEMENTS), draw.type()
        elements = draw.random.randint(16 << 20, 64 << 20)
        cols = draw.size() if op in ROWS else elements
        yield op, (type, elements // cols, cols)


class Elements:
    """GELU and SiLU, as bench_shapes.Case has the row operations."""

    def __init__(self, library, pool, op, sizes, copies):
        type, _, n = sizes
        self.outs = [torch.empty(n, device="cuda", dtype=TORCH[type]) for _ in range(copies)]
        ins = [pool.take(type, n) for _ in range(copies)]
        t = ctypes.c_int(type)
        self.ours = [lambda out=out, x=x: library.op(op, out, x, t, n) for out, x in zip(self.outs, ins)]
        self.result = self.outs[0]

        def exact():
            some = torch.randint(n, (1 << 16,), device="cuda")
            values = getattr(F, op)(ins[0][some].double())
            return self.outs[0][some], values, values.abs()

        self.exact = exact


def product(library, pool, sizes, replays, rest):
    type, batch, m, k, n = sizes[:5]
    case = Case(library, pool, "matmul", sizes, 2)
    replay = library.graph(case.ours)
    excess = wrong(type, *case.exact(), "matmul")
    ours, peer = alternate([replay, torch_graph(case.peer)], replays)
    library.release()
    name = describe("matmul", sizes)
    print(f"{name:34} {ours:9.2f} {peer:9.2f}   {100 * peer / ours:.1f}, {2e-6 * batch * m * k * n / ours:.0f} TFLOP/s"
          + (f", WRONG: {excess:.3g} times the tolerance" if excess else ""), flush=True)
    return {"suite": "ptx", "case": name, "ours": round(ours, 2), "peer": round(peer, 2), "unit": "us",
            "ratio": round(peer / ours, 3), "roofline": None, "error": excess, **rest}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    root = pathlib.Path(__file__).resolve().parent.parent
    parser.add_argument("--draws", type=int, default=60)
    parser.add_argument("--seed", type=int, nargs="+", default=[7], help="of the draws; the first one also of the values")
    parser.add_argument("--only", nargs="*", default=[], metavar="TEXT", help="cases whose name holds one of these texts")
    parser.add_argument("--library", type=pathlib.Path, default=root / "build/lib/libvibrant.so", help="or libvibrant_cuda.so")
    parser.add_argument("--replays", type=int, default=7)
    parser.add_argument("--save", type=pathlib.Path, help="folder of the suites")
    options = parser.parse_args()
    if not torch.cuda.is_available():
        sys.exit("bench_ptx: PyTorch finds no CUDA device here")
    if not options.library.exists():
        sys.exit(f"bench_ptx: {options.library} is missing: make lib makes it")
    torch.manual_seed(options.seed[0])
    library, pool = Library(options.library), Pool(2 << 30, options.seed[0])
    properties = torch.cuda.get_device_properties(0)
    device = f"{properties.name}, {properties.multi_processor_count} SMs"
    command = shlex.join(["scripts/bench_ptx.py", "--draws", str(options.draws), "--seed", *map(str, options.seed)])
    lines, missed = [], []
    cases = [("matmul", sizes, None) for sizes in PRODUCTS] + [(*case, None) for case in FIXED]
    cases += [(*case, seed) for seed in options.seed for case in draws(seed, options.draws)]
    print(f"{'case':34} {'us':>9} {'peer us':>9}   % of it: PyTorch's product, or a copy")
    for op, sizes, seed in cases:
        name = describe(op, sizes)
        if options.only and not any(text in name for text in options.only):
            continue
        if op == "matmul":
            lines.append(product(library, pool, sizes, options.replays, {"device": device, "command": command + ", peer: PyTorch"}))
            if lines[-1]["error"]:
                missed.append(name)
            continue
        type, rows, cols = sizes
        nbytes = 2 * TORCH[type].itemsize * rows * cols
        copies = max(2, math.ceil(4 * properties.L2_cache_size / nbytes))
        case = (Elements if op in ELEMENTS else Case)(library, pool, op, sizes, copies)
        whole = -(-rows * cols >> 20) << 20  # elements: copies of odd sizes take a quarter longer
        source = [pool.take(type, whole) for _ in range(copies)]
        target = [torch.empty_like(x) for x in source]
        replay = library.graph(case.ours)
        excess = wrong(type, *case.exact(), op)
        ours, peer = alternate([replay, torch_graph([lambda y=y, x=x: y.copy_(x) for y, x in zip(target, source)])], options.replays)
        library.release()
        peer *= rows * cols / whole
        percent = 100 * peer / ours
        note = ", below the gate" if percent < LEAST else ""
        if excess:
            note += f", WRONG: {excess:.3g} times the tolerance"
        if note:
            missed.append(name)
        print(f"{name:34} {ours:9.2f} {peer:9.2f}   {percent:.1f}{note}", flush=True)
        lines.append({"suite": "ptx", "case": name, "ours": round(ours, 2), "peer": round(peer, 2), "unit": "us",
                      "ratio": round(peer / ours, 3), "roofline": round(percent, 1), "error": excess, "seed": seed, "device": device,
                      "command": command + ", peer: a copy"})
    print(f"{len(lines)} cases, {len(missed)} missed: {', '.join(missed)}" if missed else f"{len(lines)} cases, all within the gate")
    if options.save:
        suites.replace(options.save / "ptx.jsonl", lines)
    sys.exit(bool(missed))


if __name__ == "__main__":
    main()
