#!/usr/bin/env python3
"""Measure the update of an adapter beside PyTorch, eager and compiled, in one run on one NVIDIA GPU.

    make lib && python3 scripts/bench_adapter.py [--only TEXT] [--no-compile] [--save]
    make lib && python3 scripts/bench_adapter.py --seed 7 [--draws 100] [--save]        # shapes drawn at random, beside eager

Calls vb_fused_update of libvibrant_cuda.so. All sides run as graphs of several calls whose inputs rotate over more memory than
the L2 holds, and their replays alternate. Eager PyTorch is what a program without a kernel of its own runs:
torch.matmul, mul, torch.matmul, mul. Prints a row a case: microseconds of ours, eager and compiled; their ratios to ours;
percent of the roofline (bytes at the rate of a device copy of 2 GiB, or FLOPs at that of a bf16 product of 8192), and of
PyTorch's negation of x into out, where k is n: a copy of this size; and the error of ours against float64, relative to RMS. Of 256
ranks also percent of the rate of cuBLAS's fastest product that multiplies as often, of those in PRODUCTS. --save keeps these, beside
eager, in docs/benchmarks/fused_update.jsonl, where bench_models.py --lora keeps whole models.
Drawn shapes end with the number of results that are wrong, of ratios below 0.9, and the geometric mean.
"""
import argparse
import ctypes
import dataclasses
import math
import pathlib
import random
import statistics
import sys

import suites
from bench_dense import BF16, F16, F32, NAME, SIZE, TORCH, Arguments, Library, alternate, int64, pointer, torch_graph
from lazily import torch

TOLERANCE = {F16: 1e-3, BF16: 1e-2, F32: 1e-5}  # RMS of the error relative to RMS of the result


@dataclasses.dataclass
class Case:
    type: int
    m: int
    k: int
    n: int
    r: int
    codes: bool = True
    add: bool = False  # out += the update
    v_transposed: bool = False
    u_transposed: bool = False

    def __str__(self):
        options = ["no codes"] * (not self.codes) + ["+="] * self.add + ["V [r][k]"] * self.v_transposed + ["U [r][n]"] * self.u_transposed
        return " ".join([f"{NAME[self.type]} {self.m}x{self.k}x{self.n} r{self.r}", *options])


CASES = [Case(F16, 128, 768, 768, 8), Case(F16, 4096, 768, 768, 8), Case(F16, 16384, 768, 768, 8), Case(F16, 16384, 4096, 4096, 16),
         Case(BF16, 16384, 4096, 4096, 16), Case(F32, 4096, 768, 768, 8), Case(F16, 1, 4096, 4096, 16), Case(F16, 16, 4096, 4096, 16),
         Case(F16, 4096, 4096, 4096, 64), Case(F16, 16384, 4096, 4096, 256)]
PRODUCTS = [(2048, 8192), (4096, 2048), (4096, 4096), (2048, 4096), (2048, 2048)]  # n and k; m follows from the multiplications


def draw(seed, count):
    """Log-uniform sizes. Half of k and n are multiples of 64, as those of models are; the others are any."""
    rng = random.Random(seed)

    def size(least, most, multiple=1):
        drawn = round(2 ** rng.uniform(math.log2(least), math.log2(most)))
        return max(multiple, drawn // multiple * multiple)

    for _ in range(count):
        multiple = rng.choice([1, 64])
        yield Case(rng.choice([F16, BF16, F32]), size(1, 16384), size(64, 16384, multiple), size(64, 16384, multiple), size(1, 256),
                   *(rng.random() < share for share in (0.5, 0.5, 0.25, 0.25)))


class Update(Arguments):  # vb_fused_update_args
    _fields_ = SIZE + [(name, pointer) for name in ("out", "add", "x", "v", "codes", "u")]
    _fields_ += [(name, int64) for name in ("m", "k", "n", "r", "codes_stride")] + [("scale", ctypes.c_float)]
    _fields_ += [(name, ctypes.c_int) for name in ("type", "weight_type", "v_transposed", "u_transposed")]


def update(x, v, codes, u):
    return ((x @ v) * codes) @ u.T * 0.75


def update_without_codes(x, v, u):
    return (x @ v) @ u.T * 0.75


class Bench:
    def __init__(self, options):
        self.options, self.library = options, Library(options.library)
        self.cache = torch.cuda.get_device_properties(0).L2_cache_size
        big = [torch.empty(1 << 28, device="cuda") for _ in range(2)]
        self.copy_rate = 8 * big[0].numel() / alternate([torch_graph([lambda: torch.neg(big[1], out=big[0])] * 3)], 7)[0]  # bytes a us
        square = [torch.randn(8192, 8192, dtype=torch.bfloat16, device="cuda") for _ in range(3)]
        self.matrix_rate = 2 * 8192**3 / statistics.median(torch_graph([lambda: torch.matmul(square[0], square[1], out=square[2])])()
                                                           for _ in range(5))
        print(f"copy {self.copy_rate / 1e6:.2f} TB/s, bf16 {self.matrix_rate / 1e6:.0f} TFLOP/s")

    def operands(self, case):
        kind = TORCH[case.type]

        def normal(rows, cols, scale=1.0, transposed=False):
            x = (torch.randn(rows, cols, device="cuda") * scale).to(kind)
            return x.T.contiguous().T if transposed else x

        return (normal(case.m, case.k), normal(case.k, case.r, case.k**-0.5, case.v_transposed),
                normal(case.m, case.r) if case.codes else None, normal(case.n, case.r, 0.1, case.u_transposed),
                normal(case.m, case.n))

    def ours(self, case, x, v, codes, u, out):
        args = Update(out=out.data_ptr(), add=out.data_ptr() if case.add else None, x=x.data_ptr(), v=v.data_ptr(),
                      codes=codes.data_ptr() if case.codes else None, u=u.data_ptr(), m=case.m, k=case.k, n=case.n, r=case.r,
                      codes_stride=case.r, scale=0.75, type=case.type, weight_type=case.type, v_transposed=case.v_transposed,
                      u_transposed=case.u_transposed)
        self.library.call("vb_fused_update", ctypes.byref(args), self.library.stream)

    def error(self, case, operands):
        """Of some rows, the first and the last among them, against float64."""
        x, v, codes, u, out = operands
        rows = torch.unique(torch.linspace(0, case.m - 1, min(case.m, 512), device="cuda").round().long())
        exact = out[rows].double() if case.add else 0.0
        torch.cuda.synchronize()
        self.ours(case, *operands)
        self.library.synchronize()
        h = x[rows].double() @ v.double()
        exact = exact + (h * codes[rows].double() if case.codes else h) @ u.double().T * 0.75
        return ((out[rows].double() - exact).square().mean().sqrt() / exact.square().mean().sqrt()).item()

    def products(self, case):
        """Graphs of cuBLAS's products that multiply as often as the case, and their FLOPs."""
        for n, k in PRODUCTS:
            m = case.m * case.r * (case.k + case.n) // (n * k)
            a, b, c = (torch.randn(*shape, device="cuda").to(TORCH[case.type]) for shape in ((m, k), (k, n), (m, n)))
            yield torch_graph([lambda a=a, b=b, c=c: torch.matmul(a, b, out=c)] * 2), 2 * m * n * k

    def measure(self, case, compile=False):
        size = TORCH[case.type].itemsize
        moved = (case.m * (case.k + case.n * (2 if case.add else 1)) + (case.k + case.n) * case.r + case.m * case.r * case.codes) * size
        sets = [self.operands(case) for _ in range(max(2, min(32, 4 * self.cache // moved + 1)))]
        error = self.error(case, sets[0])
        kernel = self.library.kernel()

        def peer(function, x, v, codes, u, out):
            y = function(x, v, codes, u) if case.codes else update_without_codes(x, v, u)
            return out.add_(y) if case.add else y

        torch.cuda.synchronize()
        peers = [torch_graph([lambda s=s: peer(update, *s) for s in sets])]
        if compile:
            try:
                torch.compiler.reset()  # more shapes of one function than it keeps would run eagerly
                compiled = torch.compile(update, dynamic=False)
                peers.append(torch_graph([lambda s=s: peer(compiled, *s) for s in sets]))
            except Exception as problem:  # a compiler that is missing must not lose the rest
                print(f"{case}: torch.compile: {str(problem)[:80]}", file=sys.stderr)
        copies = [torch_graph([lambda s=s: torch.neg(s[0], out=s[4]) for s in sets])] if case.k == case.n else []
        products = list(self.products(case)) if case.r == 256 and self.options.seed is None else []
        times = alternate([self.library.graph([lambda s=s: self.ours(case, *s) for s in sets])] + copies +
                          [graph for graph, _ in products] + peers, self.options.replays)
        self.library.release()
        copied = times.pop(1) if copies else None
        flops = 2 * case.m * case.r * (case.k + case.n)
        product = max((of / times.pop(1) for _, of in products), default=None)  # FLOPs a us
        floor = max(moved / self.copy_rate, flops / self.matrix_rate)
        row = {"suite": "fused_update", "case": str(case), "ours": round(times[0], 2), "peer": round(times[1], 2), "unit": "us",
               "ratio": round(times[1] / times[0], 3), "roofline": round(100 * floor / times[0], 1), "error": error,
               "device": torch.cuda.get_device_name(), "command": "python3 scripts/bench_adapter.py --save", "kernel": kernel,
               "compiled": round(times[2], 2) if len(times) > 2 else None, "copy": round(copied, 2) if copies else None}
        if product:
            row["of_product"] = round(100 * flops / times[0] / product, 1)
        if self.options.seed is not None:
            row["command"] = f"python3 scripts/bench_adapter.py --seed {self.options.seed} --draws {self.options.draws} --save"
        compiled_text = f"compiled {times[2]:8.1f} {times[2] / times[0]:5.2f}x  " if len(times) > 2 else ""
        copy_text = f"{100 * copied / times[0]:5.1f} % of a copy  " if copies else ""
        copy_text += f"{row['of_product']:5.1f} % of a product  " if product else ""
        print(f"{row['case']:28s} {times[0]:8.1f} us  eager {times[1]:8.1f} {times[1] / times[0]:5.2f}x  {compiled_text}"
              f"{row['roofline']:5.1f} %  {copy_text}error {error:.1e}  {kernel}{'' if error <= TOLERANCE[case.type] else '  WRONG'}",
              flush=True)
        return row, error <= TOLERANCE[case.type]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", default="")
    parser.add_argument("--no-compile", action="store_true")
    parser.add_argument("--library", type=pathlib.Path, default=pathlib.Path("build/cuda/libvibrant_cuda.so"))
    parser.add_argument("--seed", type=int, help="of shapes that are drawn, in place of the listed ones")
    parser.add_argument("--draws", type=int, default=100)
    parser.add_argument("--replays", type=int, default=15)
    parser.add_argument("--save", action="store_true")
    options = parser.parse_args()
    torch.manual_seed(7)
    bench = Bench(options)
    drawn = options.seed is not None
    cases = [case for case in (draw(options.seed, options.draws) if drawn else CASES) if options.only in str(case)]
    results = [bench.measure(case, compile=not drawn and not options.no_compile) for case in cases]
    rows = [row for row, _ in results]
    if options.save:
        suites.replace(pathlib.Path(__file__).resolve().parents[1] / "docs/benchmarks/fused_update.jsonl", rows)
    wrong = [row["case"] for row, right in results if not right]
    if drawn and rows:
        print(f"seed {options.seed}: {len(rows)} shapes, {len(wrong)} wrong, {sum(row['ratio'] < 0.9 for row in rows)} below 0.9, "
              f"geometric mean {statistics.geometric_mean(row['ratio'] for row in rows):.2f}")
    sys.exit(f"wrong: {', '.join(wrong)}" if wrong else 0)


if __name__ == "__main__":
    main()
