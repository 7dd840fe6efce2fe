#!/usr/bin/env python3
"""Measure the CPU's quantizers beside ggml's, one thread each, in one run, and compare their bits.

    npm pack @node-llama-cpp/linux-x64@3.22.1 && tar xzf node-llama-cpp-linux-x64-3.22.1.tgz   # libggml 0.5.0, MIT
    make lib && taskset -c 0 python3 scripts/bench_quantize.py build/lib/libvibrant.so package/bins/linux-x64/libggml-base.so

Calls alternate; a figure is the smallest of 301, of 2^16 normally distributed values. Needs numpy. Prints JSON lines.
"""
import argparse
import ctypes
import json
import platform
import time

from lazily import np

pointer, int64 = ctypes.c_void_p, ctypes.c_int64
parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("ours", help="libvibrant.so")
parser.add_argument("peer", help="libggml-base.so")
options = parser.parse_args()
ours = ctypes.CDLL(options.ours)
peer = ctypes.CDLL(options.peer).ggml_quantize_chunk
peer.restype = ctypes.c_size_t
peer.argtypes = [ctypes.c_int, pointer, pointer, int64, int64, int64, pointer]
ours.vb_convert.argtypes = [pointer, ctypes.c_int, pointer, ctypes.c_int, int64, pointer]

device, stream = pointer(), pointer()
assert ours.vb_device_open(ctypes.byref(device), 0, 0, None) == 0
assert ours.vb_stream_create(ctypes.byref(stream), device) == 0
processor = next((line.split(": ")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")), platform.machine())
n = 1 << 16
x = np.random.default_rng(1).standard_normal(n).astype(np.float32)
for name, kind, block, size in ("Q4_0", 2, 32, 18), ("Q8_0", 8, 32, 34), ("Q4_K", 12, 256, 144), ("Q6_K", 14, 256, 210):
    a, b = (np.zeros(n // block * size, np.uint8) for _ in range(2))
    best = [1e9, 1e9]
    for _ in range(301):
        t0 = time.perf_counter()
        assert ours.vb_convert(a.ctypes.data, kind, x.ctypes.data, 0, n, stream) == 0
        t1 = time.perf_counter()
        peer(kind, x.ctypes.data, b.ctypes.data, 0, 1, n, None)
        t2 = time.perf_counter()
        best = [min(best[0], t1 - t0), min(best[1], t2 - t1)]
    rates = [n * 4 / t / 1e9 for t in best]
    print(json.dumps({
        "suite": "quantize", "case": name, "ours": round(rates[0], 3), "peer": round(rates[1], 3), "unit": "GB/s of F32",
        "ratio": round(rates[0] / rates[1], 2), "roofline": None, "error": int((a != b).sum()), "device": processor + ", one thread",
        "command": "taskset -c 0 python3 scripts/bench_quantize.py build/lib/libvibrant.so libggml-base.so",
    }))
