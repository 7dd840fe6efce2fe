"""Hands arrays of numpy, and of PyTorch where it is installed, to a library in Go, and takes its arrays, without copies.

    go build -buildmode=c-shared -o libnormalize.so ./examples/go/dlpack
    python3 examples/python/dlpack.py libnormalize.so
"""
import ctypes
import gc
import sys

import numpy as np

api = ctypes.pythonapi
api.PyCapsule_GetName.restype = ctypes.c_char_p
api.PyCapsule_GetName.argtypes = [ctypes.py_object]
api.PyCapsule_GetPointer.restype = ctypes.c_void_p
api.PyCapsule_GetPointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
api.PyCapsule_SetName.argtypes = [ctypes.py_object, ctypes.c_char_p]
api.PyCapsule_New.restype = ctypes.py_object
api.PyCapsule_New.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]

VERSIONED, PLAIN = b"dltensor_versioned", b"dltensor"  # names of capsules, which must outlive them
USED = {VERSIONED: b"used_dltensor_versioned", PLAIN: b"used_dltensor"}


class Given:
    """What the library gives, for from_dlpack of others, which calls the deleter of what it takes."""

    def __init__(self, managed, name):
        self.managed, self.name = managed, name

    def __dlpack__(self, **options):
        return api.PyCapsule_New(self.managed, self.name, None)

    def __dlpack_device__(self):
        return (1, 0)


def normalize(library, array, wanted=VERSIONED):
    try:
        capsule = array.__dlpack__(max_version=(1, 0))
    except TypeError:  # of a library from before version 1
        capsule = array.__dlpack__()
    name = api.PyCapsule_GetName(capsule)
    managed = library.normalize(api.PyCapsule_GetPointer(capsule, name), int(name == VERSIONED), int(wanted == VERSIONED))
    if not managed:
        raise ValueError("the library refused the array")
    api.PyCapsule_SetName(capsule, USED[name])  # the library has called its deleter
    return Given(managed, wanted)


def main():
    library = ctypes.CDLL(sys.argv[1])
    library.normalize.restype = ctypes.c_void_p
    library.normalize.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_int]

    whole = np.arange(24, dtype=np.float32).reshape(4, 6) ** 2
    before = whole.copy()
    references = sys.getrefcount(whole)
    matrix = whole.T[1:6:2]  # a view with strides
    result = np.from_dlpack(normalize(library, matrix))
    want = before.T[1:6:2]
    want = (want - want.mean(1, keepdims=True)) / want.std(1, keepdims=True)
    assert np.allclose(result, want, atol=1e-6), result
    assert (whole.T[1:6:2] == before.T[1:6:2] + 1).all() and (whole.T[::2] == before.T[::2]).all(), whole
    del matrix
    gc.collect()
    assert sys.getrefcount(whole) == references, "the array is still held"
    print("numpy", np.asarray(result).shape)
    for wrong in (np.arange(4.0), np.arange(6, dtype=np.float32)[::-1].reshape(2, 3)):
        try:
            normalize(library, wrong)
        except ValueError:
            continue
        raise AssertionError("taken: %r" % wrong)

    try:
        import torch
    except ImportError:
        return
    a = torch.arange(12, dtype=torch.float32).reshape(3, 4)
    b = torch.from_dlpack(normalize(library, a, PLAIN))  # torch 2.8 takes no versioned one
    c = torch.arange(12, dtype=torch.float32).reshape(3, 4)
    assert torch.allclose(b, (c - c.mean(1, True)) / c.std(1, unbiased=False, keepdim=True)) and torch.equal(a, c + 1)
    print("torch", tuple(b.shape))


if __name__ == "__main__":
    main()
