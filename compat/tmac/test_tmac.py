#!/usr/bin/env python3
"""Call libtmac_kernel_cuda.so by ctypes, as another language's foreign functions would, and check every result.

    make build/lib/libtmac_kernel_cuda.so && python3 compat/tmac/test_tmac.py [LIBRARY]
"""
import ctypes
import math
import pathlib
import random
import sys

path = sys.argv[1] if len(sys.argv) > 1 else "build/lib/libtmac_kernel_cuda.so"
library = ctypes.CDLL(str(pathlib.Path(path).resolve()))
for name in ("tmac_backend_name", "tmac_error", "cuda_device_name"):
    getattr(library, name).restype = ctypes.c_char_p
eps = ctypes.c_float(1e-5)


def floats(values):
    return (ctypes.c_float * len(values))(*values)


def rms(got, want):
    return math.sqrt(sum((g - w) ** 2 for g, w in zip(got, want)) / (sum(w * w for w in want) or 1))


def check(what, condition):
    if not condition:
        sys.exit(f"test_tmac: {backend}: {what} ({library.tmac_error().decode()})")


def run():
    m, n, k = 130, 3, 256
    random.seed(1)
    weights = [[random.choice((-1, 0, 1)) for _ in range(k)] for _ in range(m)]
    x = [[random.gauss(0, 1) for _ in range(n)] for _ in range(k)]
    scales = [random.uniform(0.5, 2) for _ in range(m)]
    norm = [random.uniform(0.5, 2) for _ in range(k)]
    packed = bytearray(m * k // 4)
    for r in range(m):
        for i, w in enumerate(weights[r]):
            packed[(r * k + i) // 4] |= (w + 1) << (i % 4 * 2)
    codes = (ctypes.c_int8 * len(packed)).from_buffer(packed)
    product = lambda h: [s * sum(w * h[i][j] for i, w in enumerate(row)) for row, s in zip(weights, scales) for j in range(n)]
    want = product(x)
    factor = [1 / math.sqrt(sum(x[i][j] ** 2 for i in range(k)) / k + 1e-5) for j in range(n)]
    want_normed = product([[x[i][j] * factor[j] * norm[i] for j in range(n)] for i in range(k)])
    flat, out = floats([v for row in x for v in row]), (ctypes.c_float * (m * n))()
    sizes = (m, n, k)

    def result(what, status, expected, tolerance=0.005):
        check(what, status == 0 and rms(out, expected) <= tolerance)
        ctypes.memset(out, 0, ctypes.sizeof(out))

    check("cuda_init", library.cuda_init(len(packed), k * n, m * n) == 0)
    result("tmac_matmul_cuda", library.tmac_matmul_cuda(codes, flat, out, floats(scales), *sizes), want)
    check("weights before loading", library.cuda_weights_loaded() == 0 and library.tmac_matmul_cuda_persistent(flat, out, *sizes) == -1)
    check("cuda_load_weights", library.cuda_load_weights(codes, floats(scales), len(packed), m) == 0 and library.cuda_weights_loaded() == 1)
    result("tmac_matmul_cuda_persistent", library.tmac_matmul_cuda_persistent(flat, out, *sizes), want)
    for name in ("adaptive", "v3"):
        result(name, getattr(library, "tmac_matmul_cuda_" + name)(flat, out, *sizes), want)
    status = library.tmac_matmul_cuda_async(flat, out, *sizes)
    library.cuda_sync_streams()
    result("tmac_matmul_cuda_async", status, want)
    check("cuda_load_norm_weights", library.cuda_load_norm_weights(floats(norm), k) == 0)
    for name in ("", "_adaptive", "_adaptive_v2", "_fast"):
        result("fused_rmsnorm_matmul_cuda" + name, getattr(library, "fused_rmsnorm_matmul_cuda" + name)(flat, out, *sizes, eps), want_normed)
    column, want_column = floats([row[0] for row in x]), want_normed[::n]
    status = library.streaming_fused_rmsnorm_matmul_cuda(column, out, m, k, eps)
    check("streaming_fused_rmsnorm_matmul_cuda", status == 0 and rms(out[:m], want_column) <= 0.005)
    check("cuda_load_weights_int8_tc", library.cuda_load_weights_int8_tc(codes, floats(scales), len(packed), m, k) == 0)
    result("tmac_matmul_cuda_int8_tc", library.tmac_matmul_cuda_int8_tc(flat, out, *sizes), want, 0.02)  # activations of 8 bits
    status = library.streaming_fused_rmsnorm_matmul_int8_tc(column, out, m, k, eps)
    check("streaming_fused_rmsnorm_matmul_int8_tc", status == 0 and rms(out[:m], want_column) <= 0.02)
    library.cuda_unload_weights()
    check("cuda_unload_weights", library.cuda_weights_loaded() == 0)

    rows, cols = 4, 100
    values = [[random.gauss(0, 2) for _ in range(cols)] for _ in range(rows)]
    source, target = floats([v for row in values for v in row]), (ctypes.c_float * (rows * cols))()
    check("rmsnorm_cuda", library.rmsnorm_cuda(target, source, floats(norm[:cols]), rows, cols, eps) == 0)
    wanted = [v / math.sqrt(sum(u * u for u in row) / cols + 1e-5) * norm[i] for row in values for i, v in enumerate(row)]
    check("rmsnorm_cuda's result", rms(target, wanted) < 1e-5)
    check("softmax_cuda", library.softmax_cuda(target, source, rows, cols) == 0)
    wanted = [math.exp(v) / sum(math.exp(u) for u in row) for row in values for v in row]
    check("softmax_cuda's result", rms(target, wanted) < 1e-5)

    packed[5] = packed[5] | 3
    check("the code 3", library.tmac_matmul_cuda(codes, flat, out, None, *sizes) == -1 and b"code 3" in library.tmac_error())
    check("a size below 0", library.softmax_cuda(target, source, -1, cols) == -1)
    packed[5] &= ~3
    refused = {
        "no weights": library.tmac_matmul_cuda(None, flat, out, None, *sizes), "no activations": library.tmac_matmul_cuda(codes, None, out, None, *sizes),
        "no output": library.tmac_matmul_cuda(codes, flat, None, None, *sizes), "rows below 0": library.tmac_matmul_cuda(codes, flat, out, None, -1, n, k),
        "columns below 0": library.tmac_matmul_cuda(codes, flat, out, None, m, -1, k), "elements below 0": library.tmac_matmul_cuda(codes, flat, out, None, m, n, -1),
        "no input of a norm": library.rmsnorm_cuda(target, None, floats(norm[:cols]), rows, cols, eps), "no norm": library.rmsnorm_cuda(target, source, None, rows, cols, eps),
        "no input of softmax": library.softmax_cuda(target, None, rows, cols), "no weights to load": library.cuda_load_weights(None, None, len(packed), m),
        "no whole rows": library.cuda_load_weights(codes, None, len(packed) - 1, m), "no rows": library.cuda_load_weights(codes, None, len(packed), 0),
        "no norm to load": library.cuda_load_norm_weights(None, k), "sizes of cuda_init below 0": library.cuda_init(-1, 1, 1),
        "no multiple of 4": library.cuda_load_weights_int8_tc(codes, None, len(packed), m, k - 1), "a backend of no name": library.tmac_select_backend(None),
        "no GPUs": library.cuda_init_multi_gpu(0), "more GPUs than there are": library.cuda_init_multi_gpu(library.cuda_get_device_count() + 1),
        "another backend": library.tmac_select_backend(b"metal")}
    for what, status in refused.items():
        check(what, status == -1 and library.tmac_error())
    check("cuda_load_weights again", library.cuda_load_weights(codes, None, len(packed), m) == 0)
    check("other sizes than loaded", library.tmac_matmul_cuda_persistent(flat, out, m - 1, n, k) == -1 and library.tmac_matmul_cuda_async(flat, out, m, n, k - 4) == -1)
    check("no loaded norm of this size", library.fused_rmsnorm_matmul_cuda(flat, out, m, n, k + 4, eps) == -1)
    check("the sizes of cuda_device_info", library.cuda_device_info(None, None, None, None) == 0)
    library.cuda_cleanup()


for backend in ("cpu", "auto") + (("cuda",) if library.cuda_available() else ()):
    if library.tmac_select_backend(backend.encode()) != 0:
        sys.exit(f"test_tmac: {backend}: {library.tmac_error().decode()}")
    name = library.tmac_backend_name().decode()
    if not name.startswith("cuda: " if backend == "cuda" or library.cuda_available() and backend == "auto" else "cpu: "):
        sys.exit(f"test_tmac: {backend} took {name}")
    print(f"{backend}: {name}")
    run()
print("test_tmac: every result agrees")
