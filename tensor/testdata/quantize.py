"""Writes quantize.bin: 2560 float32, and their blocks of Q4_0, Q8_0, Q4_K and Q6_K by ggml's quantizers in C.

    npm pack @node-llama-cpp/linux-x64@3.22.1 && tar xzf node-llama-cpp-linux-x64-3.22.1.tgz   # libggml 0.5.0, MIT
    python3 quantize.py package/bins/linux-x64/libggml-base.so
"""
import ctypes
import sys

import numpy as np

quantize = ctypes.CDLL(sys.argv[1]).ggml_quantize_chunk
quantize.restype = ctypes.c_size_t
quantize.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p] + 3 * [ctypes.c_int64] + [ctypes.c_void_p]

rng = np.random.default_rng(7)
normal = rng.standard_normal
x = np.concatenate([
    normal(512) * 0.05,
    normal(256) ** 3,  # few large values
    rng.random(256) + 3,  # no value near zero
    rng.integers(-3, 4, 256),  # ties
    (normal((32, 16)) * np.exp(rng.uniform(-12, 2, (32, 1)))).ravel(),  # scales of sub-blocks far apart, some vanish
    np.where(rng.random(256) < 0.03, normal(256), 0),  # mostly zeros
    np.zeros(128), np.full(128, -2.5),
    1e-41 * np.arange(256),  # denormal
]).astype(np.float32)
with open("quantize.bin", "wb") as f:
    f.write(x.tobytes())
    for kind, block, size in (2, 32, 18), (8, 32, 34), (12, 256, 144), (14, 256, 210):
        out = np.zeros(x.size // block * size, np.uint8)
        assert quantize(kind, x.ctypes.data, out.ctypes.data, 0, 1, x.size, None) == out.size
        f.write(out.tobytes())
