"""Writes the golden files by numpy 2.4.6 (pip install numpy)."""
import numpy as np
from numpy.lib import format as npy

x = np.arange(24, dtype=np.float32).reshape(2, 3, 4) - 7.5
y = np.array([[-2**31, -1, 5], [0, 7, 2**31 - 1]], np.int32)


def save(name, array, version=None):
    with open(name + ".npy", "wb") as f:
        npy.write_array(f, array, version=version)


save("f4", x)
save("f4_v2", x, (2, 0))
save("f4_v3", x, (3, 0))
save("f4_fortran", np.asfortranarray(x))
save("f4_big", x.astype(">f4"))
save("f4_big_fortran", np.asfortranarray(x.astype(">f4")))
save("f2", x.astype(np.float16))
save("i4", y)
save("i4_fortran", np.asfortranarray(y))
save("i1", np.arange(-4, 4, dtype=np.int8))
save("u1", np.array([0, 1, 254, 255], np.uint8))
save("b1", np.array([True, False, True]))
save("scalar", np.array(2.5, np.float32))
save("empty", np.zeros((0, 4), np.float32))
save("f8", np.array([0.1, -1e300, np.pi]))
save("f8_big", np.array([0.1, -1e300, np.pi], ">f8"))
save("i8", np.array([-2**31, 7, 2**31 - 1]))
save("i8_large", np.array([1, 2**31]))
save("i2", np.array([-2**15, 2**15 - 1], ">i2"))
save("u4", np.array([5, 2**32 - 1], np.uint32))
save("c8", np.ones(2, np.complex64))
save("text", np.array(["a", "bc"]))
save("record", np.zeros(2, [("a", "<f4"), ("b", "<i4")]))
np.savez("stored.npz", x=x, y=y, b=np.array([True, False, True]))
np.savez_compressed("compressed.npz", x=x, y=y, b=np.array([True, False, True]))
