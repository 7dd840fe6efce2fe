#!/usr/bin/env python3
"""Measure products of int8 activations and two-bit weights beside Microsoft's BitNet kernel and cuBLAS in bf16.

    make lib && python3 scripts/bench_w2a8.py --microsoft BitNet/gpu/bitnet_kernels [--ways] [--out FILE.jsonl]
    python3 scripts/bench_w2a8.py --many 17 64 512 [--random 8] [--out FILE.jsonl]
    python3 scripts/bench_w2a8.py --tmac [--gpu] [--columns 1 128 512] [--out FILE.jsonl]

--microsoft is the folder with bitnet_kernels.cu, which is compiled into a temporary folder. Every side runs as a graph of calls
whose weights rotate over more memory than the L2 holds, and replays alternate: a figure is the median replay divided by the
calls in it, at least 100, since a graph's start takes as long as a call or two. Results are compared first: ours with integers
exactly, Microsoft's with ours. --ways measures every way of computing (block, lanes, tile, grid, loads, dp4a) for each shape.
--random N draws so many more shapes. --many measures products of so many rows of activations beside cuBLAS in bf16. --tmac measures vb_tmac_matmul instead, which takes float activations, beside W2A8 on the
GPU, alone and behind vb_norm_quantize of the floats, and beside itself on the CPU (--gpu leaves these out): with one thread and
with all, weights from memory there too, for each number of columns. --out
writes a line a shape and peer; the roofline is the time of reading the weights at the rate of a copy measured in the same run.
"""
import argparse
import ctypes
import os
import pathlib
import random
import shlex
import statistics
import subprocess
import sys
import tempfile
import time

import suites
from bench_dense import SIZE, BF16, F32, Arguments, Library, alternate, int64, pointer, torch_graph
from lazily import torch

VB_CPU, I32, INTERLEAVED = 0, 26, 1
SHAPES = [(2560, 2560), (3840, 2560), (13824, 2560), (2560, 6912), (3200, 3200), (4800, 3200), (3200, 10240), (20480, 3200)]
MORE = [(1024, 4096), (4096, 16384), (8192, 32768)]  # those of no fixed kernel of Microsoft's


class W2A8(Arguments):  # vb_w2a8_gemv_args
    _fields_ = SIZE + [(name, pointer) for name in (
        "out", "weights", "activations", "activation_scales", "weight_scales", "segment_ends", "bias", "add")]
    _fields_ += [(name, int64) for name in ("m", "n", "k", "segments", "row_bytes")]
    _fields_ += [(name, ctypes.c_int) for name in ("layout", "out_type", "settled")]
    _fields_ += [(name, int64) for name in ("threads", "lanes", "tile")]
    _fields_ += [(name, ctypes.c_int) for name in ("persistent", "without_dp4a", "narrow")]


INT8_TOPS = 1979  # of an H200, by its data sheet


def calls_of(call, weights, least=100):
    """At least so many calls, which take the weights in turn."""
    return [lambda w=w: call(w) for w in weights * -(-least // len(weights))]


def interleaved(codes):
    """codes [n][k] of 0..3 as vb_int2_layout's VB_INT2_INTERLEAVED."""
    n, k = codes.shape
    at = torch.arange(k, device=codes.device)
    pieces, word = torch.clamp((k + 63) // 64 - at // 512 * 8, max=8), at % 512 // 16
    byte = at // 512 * 128 + word % pieces * 16 + word // pieces * 4 + at % 4
    out = torch.zeros((n, (k + 63) // 64 * 16), dtype=torch.int32, device=codes.device)
    out.index_add_(1, byte, codes.int() << (at % 16 // 4 * 2).int())
    return out.to(torch.uint8)


def microsoft(codes):
    """The same weights, of code + 1, in tiles of 16 x 32."""
    n, k = codes.shape
    row, at = torch.meshgrid(torch.arange(n, device=codes.device), torch.arange(k, device=codes.device), indexing="ij")
    byte = row // 16 * 4 * k + at // 32 * 128 + row % 16 // 8 * 64 + at % 32 // 16 * 32 + row % 8 * 4 + at % 4
    out = torch.zeros(n * k // 4, dtype=torch.int32, device=codes.device)
    out.index_add_(0, byte.flatten(), ((codes.int() + 1) << (at % 16 // 4 * 2).int()).flatten())
    return out.to(torch.uint8)


class NormQuantize(Arguments):  # vb_norm_quantize_args
    _fields_ = SIZE + [(name, pointer) for name in ("codes", "scales", "activations", "up", "norm")]
    _fields_ += [("rows", int64), ("cols", int64), ("activation", ctypes.c_int), ("eps", ctypes.c_float), ("normed", ctypes.c_int)]


class TMAC(Arguments):  # vb_tmac_matmul_args
    _fields_ = SIZE + [(name, pointer) for name in ("out", "weights", "activations", "lut", "scales", "norm")]
    _fields_ += [(name, int64) for name in ("m", "n", "k", "groups")]
    _fields_ += [("eps", ctypes.c_float), ("normed", ctypes.c_int), ("settled", ctypes.c_int)]


def gemv(library, shape, w, to, x, kind, scales=None, **way):
    """Enqueues W2A8 of shape (m, n, k); scales: of the activations, and the one of the weights."""
    m, n, k = shape
    a = W2A8(m=m, n=n, k=k, segments=1 if scales else 0, row_bytes=w.shape[1], layout=INTERLEAVED, out_type=kind, settled=1, **way)
    a.out, a.weights, a.activations = to.data_ptr(), w.data_ptr(), x.data_ptr()
    if scales:
        a.activation_scales, a.weight_scales = (s.data_ptr() for s in scales)
    library.call("vb_w2a8_gemv", ctypes.byref(a), library.stream)


def cpu_times(library, memory, n, k, columns, threads, rounds=9):
    """Microseconds of table look-up on the CPU, with weights from all of memory."""
    device, stream, options = pointer(), pointer(), (ctypes.c_int64 * 2)(16, threads)  # vb_device_options
    library.call("vb_device_open", ctypes.byref(device), VB_CPU, 0, options)
    library.call("vb_stream_create", ctypes.byref(stream), device)
    size = n * k // 4
    weights = memory[:memory.numel() // size * size].view(-1, size)
    x, out, scales = torch.randn(k, columns), torch.empty(n, columns), torch.ones(n)
    times = []
    for i in range(rounds + 3):
        a = TMAC(m=n, n=columns, k=k, groups=1)
        a.out, a.weights, a.activations, a.scales = out.data_ptr(), weights[i % len(weights)].data_ptr(), x.data_ptr(), scales.data_ptr()
        start = time.perf_counter()
        library.call("vb_tmac_matmul", ctypes.byref(a), stream)
        library.call("vb_stream_synchronize", stream)
        times.append((time.perf_counter() - start) * 1e6)
    library.functions.vb_stream_destroy(stream)
    library.functions.vb_device_close(device)
    return statistics.median(times[3:])


def tmac(library, shapes, columns, gpu, replays, device, command):
    rows, cores = [], os.cpu_count()
    memory = None if gpu else torch.randint(0, 255, (512 << 20,), dtype=torch.uint8)  # more than the CPU's caches
    print(f"{'n x k':>14} {'columns':>7} {'error':>8} {'T-MAC us':>9}  peers, us and by T-MAC's")
    for n, k, m in [(n, k, m) for m in columns for n, k in shapes]:
        torch.manual_seed(n + k)
        codes = torch.randint(0, 3, (n, k), device="cuda", dtype=torch.uint8)
        x, scales = torch.randn(k, m, device="cuda"), torch.rand(n, device="cuda")
        exact = ((codes.double() - 1) @ x.double()) * scales.double()[:, None]
        packed = (codes.view(n, k // 4, 4).int() << torch.tensor([0, 2, 4, 6], device="cuda", dtype=torch.int32)).sum(2).to(torch.uint8)
        copies = max(2, -(-(160 << 20) // packed.numel()))
        weights, wide = [packed.clone() for _ in range(copies)], interleaved(codes)
        wide = [wide.clone() for _ in range(copies)]
        codes8 = torch.randint(-127, 128, (m, k), device="cuda", dtype=torch.int8)
        out, sums = torch.empty(n, m, device="cuda"), torch.empty(m, n, device="cuda")
        s, ws = torch.full((m,), 31.5, device="cuda"), torch.tensor([0.75], device="cuda")
        x_rows, s_rows = x.t().contiguous(), torch.empty(m, device="cuda")

        def look_up(w):
            a = TMAC(m=n, n=m, k=k, groups=1, settled=1)
            a.out, a.weights, a.activations, a.scales = out.data_ptr(), w.data_ptr(), x.data_ptr(), scales.data_ptr()
            library.call("vb_tmac_matmul", ctypes.byref(a), library.stream)

        def w2a8(w):
            gemv(library, (m, n, k), w, sums, codes8, F32, (s, ws))

        def rounded(w):
            a = NormQuantize(rows=m, cols=k)
            a.codes, a.scales, a.activations = codes8.data_ptr(), s_rows.data_ptr(), x_rows.data_ptr()
            library.call("vb_norm_quantize", ctypes.byref(a), library.stream)
            w2a8(w)

        torch.cuda.synchronize()
        look_up(weights[0])
        library.synchronize()
        kernel = library.kernel()
        error = ((out.double() - exact).pow(2).mean() / exact.pow(2).mean()).sqrt().item()
        assert error < 0.005, f"{n} x {k}, {m} columns: error {error}"
        least = 100 if m <= 16 else 10
        ours, *times = alternate([library.graph(calls_of(call, w, least)) for call, w in ((look_up, weights), (w2a8, wide), (rounded, wide))], replays)
        library.release()
        peers = ["W2A8", "NormQuantize and W2A8"]
        if not gpu:
            times += [cpu_times(library, memory, n, k, m, cores), cpu_times(library, memory, n, k, m, 1, rounds=9 if m <= 16 else 3)]
            peers += [f"the CPU, {cores} threads", "the CPU, one thread"]
        print(f"{n:>6} x {k:<5} {m:7} {error:8.1e} {ours:9.2f} ", ", ".join(f"{what} {us:.2f} {us / ours:.2f}" for what, us in zip(peers, times)), kernel, flush=True)
        case = f"{n}x{k}" + (f" n={m}" if m > 1 else "") + " on CUDA"
        rows += [dict(suite="tmac", case=f"{case} beside {what}", ours=round(ours, 3), peer=round(us, 3), unit="us", ratio=round(us / ours, 3),
                      roofline=None, error=float(f"{error:.2g}"), device=device, command=command) for what, us in zip(peers, times)]
    return rows


def many(library, shapes, rows_of_x, replays, device, command):
    """Products of many rows of activations beside cuBLAS in bf16; the roofline is that of the card's int8 products."""
    rows = []
    print(f"{'rows x n x k':>20} {'ours us':>8} {'bf16':>8} {'ratio':>6} {'TOP/s':>6}  kernel")
    for m, n, k in [(m, n, k) for m in rows_of_x for n, k in shapes]:
        torch.manual_seed(m + n + k)
        codes = torch.randint(0, 3, (n, k), device="cuda", dtype=torch.uint8)
        x = torch.randint(-127, 128, (m, k), device="cuda", dtype=torch.int8)
        exact = (x.float() @ (codes.float() - 1).t()).int()  # sums stay below 2^24
        packed = interleaved(codes)
        weights = [packed.clone() for _ in range(max(2, -(-(160 << 20) // packed.numel())))]
        out, sums = torch.empty((m, n), device="cuda", dtype=torch.bfloat16), torch.empty((m, n), device="cuda", dtype=torch.int32)
        s, ws = torch.full((m,), 31.5, device="cuda"), torch.tensor([0.75], device="cuda")

        def product(w):
            gemv(library, (m, n, k), w, out, x, BF16, (s, ws))

        torch.cuda.synchronize()
        gemv(library, (m, n, k), weights[0], sums, x, I32)
        product(weights[0])
        library.synchronize()
        kernel = library.kernel()
        assert torch.equal(sums, exact), f"{m} x {n} x {k}: sums differ"
        assert torch.equal(out, (exact.float() / s[:, None] * ws).bfloat16()), f"{m} x {n} x {k}: scaled results differ"
        dense = [torch.randn((n, k), device="cuda", dtype=torch.bfloat16) for _ in range(max(2, -(-(160 << 20) // (2 * n * k))))]
        xb, yb, least = x.bfloat16(), torch.empty_like(out), 20 if m < 256 else 6
        ours, bf16 = alternate([library.graph(calls_of(product, weights, least)),
                                torch_graph(calls_of(lambda w: torch.mm(xb, w.T, out=yb), dense, least))], replays)
        library.release()
        print(f"{f'{m} x {n} x {k}':>20} {ours:8.2f} {bf16:8.2f} {bf16 / ours:6.2f} {2e-6 * m * n * k / ours:6.0f}  {kernel}", flush=True)
        rows.append(dict(suite="w2a8", case=f"{n}x{k} m={m} beside cuBLAS bf16", ours=round(ours, 3), peer=round(bf16, 3), unit="us", ratio=round(bf16 / ours, 3),
                         roofline=round(2e-4 * m * n * k / INT8_TOPS / ours, 1), error=0, device=device, command=command))
    return rows


def build(folder):
    target = pathlib.Path(tempfile.mkdtemp()) / "libmicrosoft.so"
    subprocess.run(["nvcc", "-O3", "-std=c++17", "-shared", "-Xcompiler", "-fPIC", "-gencode", "arch=compute_90,code=sm_90",
                    "-o", str(target), str(pathlib.Path(folder) / "bitnet_kernels.cu")], check=True)
    return ctypes.CDLL(str(target))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--microsoft", help="folder with bitnet_kernels.cu")
    parser.add_argument("--ways", action="store_true")
    parser.add_argument("--tmac", action="store_true")
    parser.add_argument("--gpu", action="store_true", help="--tmac without the CPU")
    parser.add_argument("--columns", type=int, nargs="+", default=[1], help="of --tmac")
    parser.add_argument("--many", type=int, nargs="+", help="rows of activations")
    parser.add_argument("--random", type=int, default=0)
    parser.add_argument("--library", type=pathlib.Path, default=pathlib.Path("build/cuda/libvibrant_cuda.so"))
    parser.add_argument("--replays", type=int, default=20)
    parser.add_argument("--out", type=pathlib.Path)
    args = parser.parse_args()
    library, peer = Library(args.library), build(args.microsoft) if args.microsoft else None
    rows = []
    device, command = torch.cuda.get_device_name(), "python3 scripts/bench_w2a8.py " + " ".join(
        "FOLDER" if before == "--microsoft" else shlex.quote(word) for before, word in zip(sys.argv, sys.argv[1:]))
    draw = random.Random(7)
    drawn = [(draw.randrange(100, 12000), 64 * draw.randrange(4, 160)) for _ in range(args.random)]
    if args.many or args.tmac:
        rows = (many(library, SHAPES + drawn, args.many, args.replays, device, command) if args.many else
                tmac(library, SHAPES + drawn, args.columns, args.gpu, args.replays, device, command))
        if args.out:
            suites.replace(args.out, rows)
        return
    source, target = (torch.zeros(256 << 20, device="cuda", dtype=torch.uint8) for _ in range(2))
    copy_rate = 2 * source.numel() / alternate([torch_graph([lambda: target.copy_(source)] * 4)], args.replays)[0]  # bytes a us
    del source, target
    print(f"{'n x k':>14} {'ours us':>8} {'GB/s':>6} {'theirs':>7} {'ratio':>6} {'bf16':>7} {'ratio':>6} {'roofline':>8}  best way")
    for n, k in SHAPES + MORE + drawn:
        torch.manual_seed(n + k)
        codes = torch.randint(0, 3, (n, k), device="cuda", dtype=torch.uint8)
        x = torch.randint(-127, 128, (1, k), device="cuda", dtype=torch.int8)
        s, ws = torch.tensor([[31.5]], device="cuda"), torch.tensor([0.75], device="cuda")
        exact = ((codes.double() - 1) @ x.double().T).long().flatten()
        ours_weights = interleaved(codes)
        copies = max(2, -(-(160 << 20) // ours_weights.numel()))
        ours_weights = [ours_weights.clone() for _ in range(copies)]
        out, sums = torch.empty((1, n), device="cuda", dtype=torch.bfloat16), torch.empty((1, n), device="cuda", dtype=torch.int32)

        def product(w, **way):
            gemv(library, (1, n, k), w, out, x, BF16, (s, ws), **way)

        torch.cuda.synchronize()
        gemv(library, (1, n, k), ours_weights[0], sums, x, I32)
        product(ours_weights[0])
        library.synchronize()
        assert torch.equal(sums.flatten().long(), exact), f"{n} x {k}: sums differ"
        assert torch.equal(out.flatten(), (exact.float() / s.flatten() * ws).bfloat16()), f"{n} x {k}: scaled results differ"
        replays = [library.graph(calls_of(product, ours_weights))]
        if peer and (n, k) in SHAPES:
            their_weights = [microsoft(codes)] + [torch.randint(0, 255, (n * k // 4,), device="cuda", dtype=torch.uint8) for _ in range(copies - 1)]
            theirs, s16, ws16 = torch.zeros_like(out), s.bfloat16(), ws.bfloat16().repeat(6)

            def call(w):
                peer.bitlinear_int8xint2(pointer(x.data_ptr()), pointer(w.data_ptr()), pointer(theirs.data_ptr()), pointer(s16.data_ptr()),
                                         pointer(ws16.data_ptr()), 1, n, k, pointer(torch.cuda.current_stream().cuda_stream))

            call(their_weights[0])
            torch.cuda.synchronize()
            off = (theirs.float() - out.float()).abs().max().item()
            if off > 0:
                print(f"{n} x {k}: Microsoft's result is off by up to {off:g}")
            replays.append(torch_graph(calls_of(call, their_weights)))
        dense = [torch.randn((n, k), device="cuda", dtype=torch.bfloat16) for _ in range(max(2, -(-(256 << 20) // (2 * n * k))))]
        xb, yb = x.bfloat16(), torch.empty((1, n), device="cuda", dtype=torch.bfloat16)
        replays.append(torch_graph(calls_of(lambda w: torch.mm(xb, w.T, out=yb), dense)))
        times = alternate(replays, args.replays)
        ours, bf16 = times[0], times[-1]
        theirs_us = times[1] if len(times) == 3 else float("nan")
        best, best_us, roofline = "", ours, n * k / 4 / copy_rate / ours
        if args.ways:
            ways = [(threads, lanes, tile, persistent) for threads in (64, 128, 256, 512) for lanes in (4, 8, 16, 32) for tile in (1, 2)
                    for persistent in (0, 1) if (threads < 512 or lanes == 4) and (lanes > 4 or not persistent)] + [(0, 4, 0, 1)]
            for threads, lanes, tile, persistent in ways:
                way = dict(threads=threads, lanes=lanes, tile=tile, persistent=persistent)
                us = alternate([library.graph(calls_of(lambda w: product(w, **way), ours_weights))], 5)[0]
                if us < best_us:
                    best, best_us = f"{threads} {lanes} {tile} {persistent}: {us:.2f}", us
            for way in (dict(without_dp4a=1), dict(narrow=1)):
                us = alternate([library.graph(calls_of(lambda w: product(w, **way), ours_weights))], 5)[0]
                best += f"  {next(iter(way))}: {us:.2f}"
        print(f"{n:>6} x {k:<5} {ours:8.2f} {n * k / 4 / ours / 1e3:6.0f} {theirs_us:7.2f} {theirs_us / ours:6.2f} {bf16:7.2f} {bf16 / ours:6.2f} {100 * roofline:7.1f}%  {best}", flush=True)
        for peer_name, us in ("Microsoft's kernel", theirs_us), ("cuBLAS bf16", bf16):
            if us == us:
                rows.append(dict(suite="w2a8", case=f"{n}x{k} beside {peer_name}", ours=round(ours, 3), peer=round(us, 3), unit="us", ratio=round(us / ours, 3),
                                 roofline=round(100 * roofline, 1), error=0, device=device, command=command))
        del dense, ours_weights
    if args.out:
        suites.replace(args.out, rows)


if __name__ == "__main__":
    main()
