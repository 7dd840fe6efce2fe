#!/usr/bin/env python3
"""Measure the update of an adapter beside PyTorch, eager and compiled, in one run on one NVIDIA GPU.

    make lib && python3 scripts/bench_adapter.py [--only TEXT] [--no-compile] [--save]

Calls vb_fused_update of libvibrant_cuda.so. All sides run as graphs of several calls whose inputs rotate over more memory than
the L2 holds, and their replays alternate. Eager PyTorch is what a program without a kernel of its own runs:
torch.matmul, mul, torch.matmul, mul. Prints a row a case: microseconds of ours, eager and compiled; their ratios to ours;
percent of the roofline (bytes at the rate of a device copy of 2 GiB, or FLOPs at that of a bf16 product of 8192), and of
PyTorch's negation of x into out, which is a copy of this size; and the error of ours against float64, relative to RMS. --save
keeps these, beside eager, in docs/benchmarks/fused_update.jsonl, where bench_models.py --lora keeps whole models.
"""
import argparse
import ctypes
import json
import pathlib
import statistics
import sys

import torch

from bench_dense import BF16, F16, F32, NAME, SIZE, TORCH, Arguments, Library, alternate, int64, pointer, torch_graph

CASES = [(F16, 128, 768, 768, 8), (F16, 4096, 768, 768, 8), (F16, 16384, 768, 768, 8), (F16, 16384, 4096, 4096, 16),
         (BF16, 16384, 4096, 4096, 16), (F32, 4096, 768, 768, 8), (F16, 1, 4096, 4096, 16), (F16, 16, 4096, 4096, 16),
         (F16, 4096, 4096, 4096, 64), (F16, 16384, 4096, 4096, 256)]


class Update(Arguments):  # vb_fused_update_args
    _fields_ = SIZE + [(name, pointer) for name in ("out", "add", "x", "v", "codes", "u")]
    _fields_ += [(name, int64) for name in ("m", "k", "n", "r", "codes_stride")] + [("scale", ctypes.c_float)]
    _fields_ += [(name, ctypes.c_int) for name in ("type", "weight_type", "v_transposed", "u_transposed")]


def update(x, v, codes, u):
    return ((x @ v) * codes) @ u.T * 0.75


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", default="")
    parser.add_argument("--no-compile", action="store_true")
    parser.add_argument("--library", type=pathlib.Path, default=pathlib.Path("build/cuda/libvibrant_cuda.so"))
    parser.add_argument("--save", action="store_true")
    options = parser.parse_args()
    torch.manual_seed(7)
    library = Library(options.library)
    cache = torch.cuda.get_device_properties(0).L2_cache_size

    big = [torch.empty(1 << 28, device="cuda") for _ in range(2)]
    copy_rate = 8 * big[0].numel() / alternate([torch_graph([lambda: torch.neg(big[1], out=big[0])] * 3)], 7)[0]  # bytes a microsecond
    del big
    square = [torch.randn(8192, 8192, dtype=torch.bfloat16, device="cuda") for _ in range(3)]
    matrix_rate = 2 * 8192**3 / statistics.median(torch_graph([lambda: torch.matmul(square[0], square[1], out=square[2])])()
                                                  for _ in range(5))
    del square
    print(f"copy {copy_rate / 1e6:.2f} TB/s, bf16 {matrix_rate / 1e6:.0f} TFLOP/s")
    rows = []
    for dtype, m, k, n, r in CASES:
        name = f"{NAME[dtype]} {m}x{k}x{n} r{r}"
        if options.only not in name:
            continue
        kind = TORCH[dtype]
        moved = (m * (k + n) + (k + n) * r + m * r) * kind.itemsize
        sets = []
        for _ in range(max(2, min(32, 4 * cache // moved + 1))):
            x, codes = torch.randn(m, k, device="cuda").to(kind), torch.randn(m, r, device="cuda").to(kind)
            v, u = (torch.randn(k, r, device="cuda") / k**0.5).to(kind), (torch.randn(n, r, device="cuda") * 0.1).to(kind)
            sets.append((x, v, codes, u, torch.empty(m, n, device="cuda", dtype=kind)))

        def ours(one):
            x, v, codes, u, out = one
            args = Update(out=out.data_ptr(), x=x.data_ptr(), v=v.data_ptr(), codes=codes.data_ptr(), u=u.data_ptr(), m=m, k=k, n=n,
                          r=r, codes_stride=r, scale=0.75, type=dtype, weight_type=dtype)
            library.call("vb_fused_update", ctypes.byref(args), library.stream)

        torch.cuda.synchronize()
        ours(sets[0])
        library.synchronize()
        kernel = library.kernel()
        x, v, codes, u, out = sets[0]
        some = slice(0, min(m, 512))
        exact = update(x[some].double(), v.double(), codes[some].double(), u.double())
        error = ((out[some].double() - exact).square().mean().sqrt() / exact.square().mean().sqrt()).item()
        peers = [torch_graph([lambda s=s: update(*s[:4]) for s in sets])]
        if not options.no_compile:
            try:
                torch.compiler.reset()  # more shapes of one function than it keeps would run eagerly
                compiled = torch.compile(update, dynamic=False)
                peers.append(torch_graph([lambda s=s: compiled(*s[:4]) for s in sets]))
            except Exception as problem:  # a compiler that is missing must not lose the rest
                print(f"{name}: torch.compile: {str(problem)[:80]}", file=sys.stderr)
        copy = torch_graph([lambda s=s: torch.neg(s[0], out=s[4]) for s in sets])  # k is n in all cases
        times = alternate([library.graph([lambda s=s: ours(s) for s in sets]), copy] + peers, 15)
        copied = times.pop(1)
        floor = max(moved / copy_rate, 2 * m * r * (k + n) / matrix_rate)
        row = {"suite": "fused_update", "case": name, "ours": round(times[0], 2), "peer": round(times[1], 2), "unit": "us",
               "ratio": round(times[1] / times[0], 3), "roofline": round(100 * floor / times[0], 1), "error": error,
               "device": torch.cuda.get_device_name(), "command": "python3 scripts/bench_adapter.py --save", "kernel": kernel,
               "compiled": round(times[2], 2) if len(times) > 2 else None, "copy": round(copied, 2)}
        rows.append(row)
        compiled_text = f"{times[2]:8.1f} {times[2] / times[0]:5.2f}x" if len(times) > 2 else ""
        print(f"{name:28s} {times[0]:8.1f} us  eager {times[1]:8.1f} {times[1] / times[0]:5.2f}x  compiled {compiled_text}  "
              f"{row['roofline']:5.1f} %  {100 * copied / times[0]:5.1f} % of a copy  error {error:.1e}  {kernel}", flush=True)
    if options.save:
        saved = pathlib.Path(__file__).resolve().parents[1] / "docs/benchmarks/fused_update.jsonl"
        measured = {(row["case"], row["device"]) for row in rows}
        kept = [row for row in map(json.loads, saved.read_text().splitlines()) if (row["case"], row["device"]) not in measured]
        saved.write_text("".join(json.dumps(row) + "\n" for row in kept + rows))


if __name__ == "__main__":
    main()
