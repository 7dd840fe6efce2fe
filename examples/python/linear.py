#!/usr/bin/env python3
"""A linear layer with quantized weights through libvibrant, by ctypes: no package to install, no compiler.

    make lib && python3 examples/python/linear.py [cpu|cuda]

The library is the file that VIBRANT_LIBRARY names, else that of build/lib, else what the loader finds.
"""

import ctypes
import os
import struct
import sys
from pathlib import Path

F32, Q8_0 = 0, 8  # vb_dtype
TO_DEVICE, TO_HOST = 1, 2  # vb_copy_kind
ROWS, COLS = 8, 64
P, I64 = ctypes.c_void_p, ctypes.c_int64


class Weight(ctypes.Structure):
    """vb_weight"""

    _fields_ = [("data", P), ("type", ctypes.c_int), ("layout", ctypes.c_int), ("rows", I64), ("cols", I64)]


def load():
    """Returns the library, its functions declared with what they take: ctypes takes everything for an int otherwise."""
    built = Path(__file__).resolve().parents[2] / "build/lib/libvibrant.so"
    library = ctypes.CDLL(os.environ.get("VIBRANT_LIBRARY") or (str(built) if built.exists() else "libvibrant.so.0"))
    for name, *takes in [
        ("vb_device_open", P, ctypes.c_int, ctypes.c_int, P),
        ("vb_stream_create", P, P),
        ("vb_alloc", P, I64, P),
        ("vb_memcpy", P, P, I64, ctypes.c_int, P),
        ("vb_linear", P, P, P, P, I64, P),
        ("vb_softmax", P, P, ctypes.c_int, I64, P),
        ("vb_stream_synchronize", P),
        ("vb_free", P, P),
    ]:
        getattr(library, name).argtypes = takes
    for name in ("vb_stream_destroy", "vb_device_close"):
        getattr(library, name).argtypes, getattr(library, name).restype = [P], None
    library.vb_status_string.restype = library.vb_version.restype = library.vb_cuda_library.restype = ctypes.c_char_p
    return library


def main(kind):
    vb = load()

    def check(status):
        if status != 0:
            sys.exit(f"vibrant: {vb.vb_status_string(status).decode()} ({vb.vb_cuda_library().decode()})")

    device, stream = P(), P()
    check(vb.vb_device_open(ctypes.byref(device), {"cpu": 0, "cuda": 1}[kind], 0, None))
    check(vb.vb_stream_create(ctypes.byref(stream), device))

    # Q8_0: a block of 32 elements is a half-precision scale and 32 signed bytes. Row r holds 0.5 * (r + 1).
    weights = b"".join(struct.pack("<e", 0.5) + bytes([r + 1]) * 32 for r in range(ROWS) for _ in range(COLS // 32))
    x = struct.pack(f"<{COLS}f", *[1 / COLS] * COLS)
    memory = []

    def on_device(data, size):
        p = P()
        check(vb.vb_alloc(ctypes.byref(p), size, device))
        memory.append(p)
        if data:
            check(vb.vb_memcpy(p, data, size, TO_DEVICE, stream))
        return p

    w = Weight(on_device(weights, len(weights)).value, Q8_0, 0, ROWS, COLS)
    y = on_device(None, 4 * ROWS)
    check(vb.vb_linear(y, on_device(x, len(x)), ctypes.byref(w), None, 1, stream))
    out = ctypes.create_string_buffer(4 * ROWS)
    check(vb.vb_memcpy(out, y, 4 * ROWS, TO_HOST, stream))
    check(vb.vb_stream_synchronize(stream))
    values = struct.unpack(f"<{ROWS}f", out.raw)
    for p in memory:
        check(vb.vb_free(p, device))
    vb.vb_stream_destroy(stream)
    vb.vb_device_close(device)

    print(f"libvibrant {vb.vb_version().decode()}: y =", " ".join(f"{v:.3f}" for v in values))
    # x sums to one. A device may round it: 0.5 % is what vibrant.h promises.
    return all(abs(v - 0.5 * (r + 1)) <= 0.005 * 0.5 * (r + 1) for r, v in enumerate(values))


if __name__ == "__main__":
    device_kind = sys.argv[1] if len(sys.argv) > 1 else "cpu"
    if device_kind not in ("cpu", "cuda"):
        sys.exit(f"linear.py: no kind of device: {device_kind} (cpu, cuda)")
    sys.exit(0 if main(device_kind) else "linear.py: the result is wrong")
