#!/usr/bin/env python3
"""Measure the kernels that `vibrant ptx` writes under the names of older systems beside a copy of as many bytes, on a GPU.

    bench_ptx_entries.py [--only TEXT ...] [--library FILE] [--save docs/benchmarks]

Kernels are written by vb_ptx_emit for sm_80 and loaded through the driver's API. Operands rotate over more than the L2 holds; figures are
medians of replays in turn with the copy. Products are held to the weights that the dequantizing entry makes, of which that of Q8_0 is
checked; other entries to float64. Prints a row an entry and replaces the measured cases in ptx.jsonl below --save. Exit status 1 where a value is wrong.
examples/c/ptx.c has the products of matrices, the norms and attention of whole prompts. Needs PyTorch.
"""
import argparse
import ctypes
import math
import pathlib
import sys

import suites
from bench_dense import alternate, torch_graph
from lazily import F, torch

KINDS = {name: i for i, name in enumerate("gemm_naive gemm_tiled gemm_tensor_core softmax layer_norm attention quantized_gemm gemv dequantize "
                                          "quantize decode_attention add_rms_norm rope silu gelu mul add swiglu bias cache_write "
                                          "argmax_blocks argmax_final".split())}
WEIGHTS = {"q4_0": (2, 32, 18), "q4_1": (3, 32, 20), "q5_0": (6, 32, 22), "q8_0": (8, 32, 34),  # number in ggml, elements, bytes
           "q4k": (12, 256, 144), "q5k": (13, 256, 176), "q6k": (14, 256, 210)}
HEADS, KV_HEADS, DIM, CAPACITY, KEYS = 32, 8, 128, 4096, 2001
ROWS, COLS = 16384, 4096
TOLERANCE = 2e-5  # sums of float32 in any order, exp2 and rsqrt to 2 ulp, a float32 angle below 100
M, N = 64 << 20, 11008  # elements; rows of weights


class Kernel(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("kind", ctypes.c_int)] + [
        (name, ctypes.c_int64) for name in "m n k rows dim seq heads".split()] + [
        ("tile", ctypes.c_int), ("target", ctypes.c_int), ("epsilon", ctypes.c_float), ("rms", ctypes.c_int), ("plain", ctypes.c_int),
        ("causal", ctypes.c_int), ("weight", ctypes.c_int), ("kv_heads", ctypes.c_int64), ("capacity", ctypes.c_int64),
        ("theta", ctypes.c_float), ("neox", ctypes.c_int), ("activation", ctypes.c_int), ("entry", ctypes.c_char_p)]


class Size(ctypes.Structure):
    _fields_ = [("grid_x", ctypes.c_int64), ("grid_y", ctypes.c_int64), ("threads", ctypes.c_int)]


class Driver:
    def __init__(self, library):
        self.driver, self.library = ctypes.CDLL("libcuda.so.1"), ctypes.CDLL(str(library.resolve()))
        self.library.vb_ptx_invalid.restype = ctypes.c_char_p

    def must(self, status, what):
        if status:
            sys.exit(f"bench_ptx_entries: {what}: driver error {status}")

    def load(self, entry, threads=0, **fields):
        """Returns a function that enqueues the entry with its parameters: tensors and numbers of 32 bits. By the grid that the library says,
        or by one of so many threads."""
        k = Kernel(size=ctypes.sizeof(Kernel), kind=KINDS[fields.pop("kind")], target=80, entry=entry.encode(), **fields)
        text, size, module, function = ctypes.c_void_p(), Size(), ctypes.c_void_p(), ctypes.c_void_p()
        if self.library.vb_ptx_emit(ctypes.byref(text), ctypes.byref(k)) or self.library.vb_ptx_launch(ctypes.byref(size), ctypes.byref(k)):
            sys.exit(f"bench_ptx_entries: {entry}: {self.library.vb_ptx_invalid(ctypes.byref(k))}")
        self.must(self.driver.cuModuleLoadData(ctypes.byref(module), text), f"load {entry}")
        self.must(self.driver.cuModuleGetFunction(ctypes.byref(function), module, entry.encode()), f"find {entry}")
        self.library.vb_ptx_free(text)
        grid_x = -(-threads // size.threads) if threads else size.grid_x

        def launch(*parameters):
            held = [ctypes.c_uint64(p.data_ptr()) if isinstance(p, torch.Tensor) else ctypes.c_uint32(p) for p in parameters]
            addresses = (ctypes.c_void_p * len(held))(*(ctypes.addressof(h) for h in held))
            stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
            self.must(self.driver.cuLaunchKernel(function, grid_x, size.grid_y, 1, size.threads, 1, 1, 0, stream, addresses, None), entry)

        return launch


def random(*shape):
    return torch.randn(*shape, device="cuda")


def zeros(*shape, type=None):
    return torch.zeros(*shape, device="cuda", dtype=type or torch.float32)


def blocks(weight, n, k):
    """Random weights whose scales are small numbers of 16 bits."""
    number, elements, nbytes = WEIGHTS[weight]
    b = torch.randint(256, (n * k // elements, nbytes), device="cuda", dtype=torch.uint8)
    for at in {"q4_1": (0, 2), "q4k": (0, 2), "q5k": (0, 2), "q6k": (208,)}.get(weight, (0,)):
        b[:, at + 1] = 0x10 + b[:, at + 1] % 8
    return b


def norm(x, gamma):
    x = x.double()
    return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-6) * gamma


def eights(w):
    """Blocks of Q8_0: a scale of 16 bits, then 32 codes."""
    return w[:, :2].contiguous().view(torch.float16).double() * w[:, 2:].view(torch.int8)


def rotated(x, pos):
    pairs = x.double().view(HEADS * 1024, DIM // 2, 2)
    angle = pos * 10000.0 ** (-torch.arange(0, DIM, 2, device="cuda", dtype=torch.float64) / DIM)
    u, v = pairs[..., 0], pairs[..., 1]
    return torch.stack((u * angle.cos() - v * angle.sin(), u * angle.sin() + v * angle.cos()), -1).view(-1)


def attended(q, k, v):
    q, k, v = q.double().view(KV_HEADS, HEADS // KV_HEADS, DIM), k[:, :KEYS].double(), v[:, :KEYS].double()
    return (torch.softmax(q @ k.mT / math.sqrt(DIM), -1) @ v).view(-1)


def entries(driver):
    """Yields name, label, bytes that a call moves, a function that makes operands, one that launches, and one that returns the
    result, what it should be, and the size of its terms."""
    x = lambda: (random(M), random(M), zeros(M))
    for threads, label in ((0, f"{M}"), (M, f"{M}, a thread an element")):
        for name, kind, exact in (("elementwise_mul", "mul", lambda a, b: a * b), ("residual_add", "add", lambda a, b: a + b),
                                  ("fused_swiglu", "swiglu", lambda a, b: F.silu(a) * b)):
            f = driver.load(name, threads, kind=kind, n=M)
            yield name, label, 12 * M, x, lambda a, b, out, f=f: f(a, b, out, M), lambda a, b, out, e=exact: (out, e(a.double(), b.double()), a.abs() + b.abs())
        for name, exact in (("silu", F.silu), ("gelu", lambda a: F.gelu(a, approximate="tanh"))):
            f = driver.load(name, threads, kind=name, n=M)
            yield name, label, 8 * M, lambda: (random(M), zeros(M)), lambda a, out, f=f: f(a, out, M), lambda a, out, e=exact: (out, e(a.double()), a.abs())
        f = driver.load("bias_activation", threads, kind="bias", n=M, dim=COLS, activation=1)
        yield ("bias_activation", label, 8 * M, lambda: (lambda a: (a, a.clone(), random(COLS)))(random(M)), lambda a, _, bias, f=f: f(a, bias, M),
               lambda a, was, bias: (a, F.relu(was.view(-1, COLS).double() + bias).view(-1), was.abs() + 1))
    f = driver.load("fused_residual_rmsnorm", kind="add_rms_norm", rows=ROWS, dim=COLS, epsilon=1e-6)
    yield ("fused_residual_rmsnorm", f"{ROWS}x{COLS}", 12 * ROWS * COLS, lambda: (random(ROWS, COLS), random(ROWS, COLS), zeros(ROWS, COLS), random(COLS)),
           lambda r, a, out, gamma: f(r, a, out, gamma), lambda r, a, out, gamma: (out, norm(r + a, gamma), torch.ones_like(out)))
    K = COLS
    for name in ("gemv_warp_reduce", "gemv_coalesced"):
        f = driver.load(name, kind="gemv", k=K, n=N)
        yield (name, f"1x{K}x{N}", 4 * K * N, lambda: (zeros(N), random(K, N), random(K)), lambda y, w, a, f=f: f(y, w, a, K, N),
               lambda y, w, a: (y, a.double() @ w.double(), a.double().abs() @ w.double().abs()))
    for weight, (number, elements, nbytes) in WEIGHTS.items():
        name = {"q8_0": "q8_dequant"}.get(weight, f"{weight}_dequant_to_f32")
        decode = driver.load(name, kind="dequantize", k=K, n=N, weight=number)
        stored = N * K // elements * nbytes
        yield (name, f"{N}x{K}", stored + 4 * N * K, lambda w=weight: (zeros(N, K), blocks(w, N, K)), lambda out, w, f=decode: f(out, w, K, N),
               (lambda out, w: (out.view(-1, 32), eights(w), out.view(-1, 32).abs())) if weight == "q8_0" else None)

        def product(y, w, a, decode=decode):
            whole = zeros(N, K)
            decode(whole, w, K, N)
            return y, a.view(-1, K).double() @ whole.double().T, a.view(-1, K).double().abs() @ whole.double().abs().T

        name = f"{weight}_gemv_warp_reduce"
        f = driver.load(name, kind="gemv", k=K, n=N, weight=number)
        yield (name, f"1x{K}x{N}", stored, lambda w=weight: (zeros(1, N), blocks(w, N, K), random(K)), lambda y, w, a, f=f: f(y, w, a, K, N), product)
        name = f"{weight}_gemm_ggml"
        f = driver.load(name, kind="quantized_gemm", m=8, k=K, n=N, weight=number)
        yield (name, f"8x{K}x{N}", stored, lambda w=weight: (zeros(8, N), blocks(w, N, K), random(8, K)), lambda y, w, a, f=f: f(a, w, y, 8, N, K), product)
    f = driver.load("q8_quantize", kind="quantize", n=M)

    def quantized(out, a):  # half a step, and the scale's rounding, are the tolerance
        a = a.view(-1, 32).double()
        return eights(out.view(-1, 34)), a, a.abs().amax(1, keepdim=True) * (0.6 / 127 / TOLERANCE)

    yield "q8_quantize", f"{M}", 4 * M + M // 32 * 34, lambda: (zeros(M // 32 * 34, type=torch.uint8), random(M)), lambda out, a: f(out, a, M), quantized
    attention = driver.load("incremental_attention", kind="decode_attention", heads=HEADS, kv_heads=KV_HEADS, dim=DIM, capacity=CAPACITY)
    yield ("incremental_attention", f"{HEADS}/{KV_HEADS}x{DIM}, {KEYS} keys", 8 * KV_HEADS * KEYS * DIM,
           lambda: (random(HEADS * DIM), random(KV_HEADS, CAPACITY, DIM), random(KV_HEADS, CAPACITY, DIM), zeros(HEADS * DIM)),
           lambda q, k, v, out: attention(q, k, v, out, KEYS), lambda q, k, v, out: (out, attended(q, k, v), torch.ones_like(out)))
    heads = HEADS * 1024
    rope = driver.load("rope", kind="rope", heads=heads, dim=DIM)
    yield ("rope", f"{heads}x{DIM}", 8 * heads * DIM, lambda: (random(heads * DIM), zeros(heads * DIM)), lambda a, out: rope(a, out, 77),
           lambda a, out: (out, rotated(a, 77), a.abs() + 1))
    write = driver.load("kv_cache_scatter", kind="cache_write", heads=heads, dim=DIM)
    yield ("kv_cache_scatter", f"{heads}x{DIM}", 8 * heads * DIM, lambda: (random(heads, DIM), zeros(heads, 4, DIM)),
           lambda a, cache: write(a, cache, 3, DIM, 4), lambda a, cache: (cache[:, 3], a.double(), a.abs()))
    several, last = driver.load("argmax_block_reduce", kind="argmax_blocks", n=M), driver.load("argmax_final_reduce", kind="argmax_final", n=M // 1024)
    parts = lambda: (random(M), zeros(M // 1024), zeros(M // 1024, type=torch.int32), zeros(1, type=torch.int32))

    def both(a, values, places, id):
        several(a, values, places, M)
        last(values, places, id, M // 1024)

    yield "argmax_block_reduce and argmax_final_reduce", f"{M}", 4 * M, parts, both, lambda a, v, p, id: (id, a.argmax().view(1).double(), id + 1)


def wrong(got, want, size):
    return ((got.double() - want).abs() / (size.double() + 1e-6)).max().item()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    root = pathlib.Path(__file__).resolve().parent.parent
    parser.add_argument("--only", nargs="*", default=[], metavar="TEXT", help="entries whose name holds one of these texts")
    parser.add_argument("--library", type=pathlib.Path, default=root / "build/lib/libvibrant.so", help="or libvibrant_cuda.so")
    parser.add_argument("--replays", type=int, default=7)
    parser.add_argument("--save", type=pathlib.Path, help="folder of the suites")
    options = parser.parse_args()
    if not torch.cuda.is_available():
        sys.exit("bench_ptx_entries: PyTorch finds no CUDA device here")
    if not options.library.exists():
        sys.exit(f"bench_ptx_entries: {options.library} is missing: make lib makes it")
    torch.manual_seed(7)
    torch.zeros(1, device="cuda")  # makes the context
    properties = torch.cuda.get_device_properties(0)
    lines, bad = [], []
    print(f"{'entry':54} {'us':>9} {'copy us':>9}   % of a copy")
    for name, label, moved, make, launch, check in entries(Driver(options.library)):
        if options.only and not any(text in name for text in options.only):
            continue
        copies = max(2, math.ceil(3 * properties.L2_cache_size / moved))
        sets = [make() for _ in range(copies)]
        launch(*sets[0])
        torch.cuda.synchronize()
        error = check and wrong(*check(*sets[0]))
        source = [torch.empty(-(-moved // 2) + 15 & ~15, device="cuda", dtype=torch.uint8) for _ in range(copies)]
        target = [torch.empty_like(s) for s in source]
        ours, peer = alternate([torch_graph([lambda s=s: launch(*s) for s in sets]),
                                torch_graph([lambda t=t, s=s: t.copy_(s) for t, s in zip(target, source)])], options.replays)
        del sets, source, target
        if error is not None and not error <= TOLERANCE:
            bad.append(name)
        print(f"{name + ' ' + label:54} {ours:9.2f} {peer:9.2f}   {100 * peer / ours:.1f}{f', WRONG: {error:.1e}' if name in bad else ''}", flush=True)
        lines.append({"suite": "ptx", "case": f"{name}/{label}", "ours": round(ours, 2), "peer": round(peer, 2), "unit": "us",
                      "ratio": round(peer / ours, 3), "roofline": round(100 * peer / ours, 1), "error": error,
                      "device": f"{properties.name}, {properties.multi_processor_count} SMs", "command": "scripts/bench_ptx_entries.py, peer: a copy"})
    if options.save:
        suites.replace(options.save / "ptx.jsonl", lines)
    sys.exit(f"bench_ptx_entries: wrong: {', '.join(bad)}" if bad else 0)


if __name__ == "__main__":
    main()
