"""Operations of arrays with strides at drawn shapes, beside PyTorch: the family `arrays` of bench_shapes.py.

An element-wise operation, a copy to another order of dimensions, a reduction over some of them, the greatest k of each row. Arrays
have three dimensions, and rows of them may have gaps.
"""
import ctypes
import itertools

from bench_dense import F32, NAME, SIZE, TORCH, Arguments, int64, pointer
from lazily import F, torch

MAX_DIMS, MAX_INPUTS, MAX_STEPS = 8, 6, 48
MAPS = {"add": 7, "mul": 9, "exp": 25, "silu": 33, "gelu": 34}  # vb_element_op
REDUCTIONS = {"sum": 0, "max": 2, "argmax": 4, "mean": 8, "var": 9, "norm": 10, "logsumexp": 11}  # vb_reduction
I32 = 26  # vb_dtype
OPERATIONS = "map", "copy", "reduce", "top_k"


class View(ctypes.Structure):  # vb_view
    _fields_ = [("data", pointer), ("type", ctypes.c_int), ("strides", int64 * MAX_DIMS)]

    def __init__(self, tensor, type, strides=None):
        super().__init__(tensor.data_ptr(), type, (int64 * MAX_DIMS)(*(strides or tensor.stride())))


class Step(ctypes.Structure):  # vb_step
    _fields_ = [(name, ctypes.c_int) for name in ("op", "a", "b", "c")]


class Map(Arguments):  # vb_map_args
    _fields_ = SIZE + [("out", View), ("in_", View * MAX_INPUTS), ("sizes", int64 * MAX_DIMS), ("program", Step * MAX_STEPS)]
    _fields_ += [(name, int64) for name in ("rank", "inputs", "steps")]


class Reduce(Arguments):  # vb_reduce_args
    _fields_ = SIZE + [("out", View), ("in_", View), ("sizes", int64 * MAX_DIMS), ("rank", int64), ("reduced", int64),
                       ("reduction", ctypes.c_int), ("parameter", ctypes.c_float)]


def draw(draw):
    r = draw.random
    kind = r.choice(("map", "copy", "copy", "reduce", "reduce", "top_k"))
    if kind == "top_k":
        cols = draw.size(1 << 17)
        return "top_k", (F32, draw.size(1 << 14), cols, min(cols, draw.size(64)))
    sizes = draw.size(4096), draw.size(4096), draw.size(4096)
    if kind == "map":
        return "map", (draw.type(), r.choice(list(MAPS)), sizes, r.choice((0, 0, 1, 8)))
    if kind == "copy":
        return "copy", (draw.type(), r.choice(list(itertools.permutations(range(3)))), sizes, r.choice((0, 0, 1, 8)))
    dims = r.choice([(0,), (1,), (2,), (0, 1), (1, 2), (0, 2), (0, 1, 2)])
    name = r.choice(list(REDUCTIONS))
    return "reduce", (draw.type(), name, dims if name != "argmax" or len(dims) in (1, 3) else dims[:1], sizes, r.choice((0, 0, 1, 8)))


def elements(sizes):
    return sizes[0] * sizes[1] * sizes[2]


def cost(operation, case):
    """Bytes that are read and written, with the gaps."""
    width = TORCH[case[0]].itemsize
    if operation == "top_k":
        _, rows, cols, k = case
        return 4 * rows * cols + 8 * rows * k
    sizes, gap = case[-2:]
    moved = {"map": 3 if case[1] in ("add", "mul") else 2, "copy": 2, "reduce": 1}[operation]
    return width * elements(sizes) // sizes[2] * (moved * sizes[2] + gap)


def describe(operation, case):
    if operation == "top_k":
        return "top_k f32 {}x{} k {}".format(*case[1:])
    kind, (sizes, gap) = case[1], case[-2:]
    what = kind if operation == "map" else "".join(map(str, kind)) if operation == "copy" else f"{kind} {','.join(map(str, case[2]))}"
    return f"{operation} {NAME[case[0]]} {what} of {'x'.join(map(str, sizes))}" + f" gap {gap}" * (gap > 0)


def make(library, pool, operation, case):
    """Our call, PyTorch's, our result, and a function of the result, float64's and the magnitude."""
    type, op = case[0], library.op
    if operation == "top_k":
        _, rows, cols, k = case
        x = pool.take(F32, rows * cols).view(rows, cols)
        values, ids = torch.empty(rows, k, device="cuda"), torch.empty(rows, k, device="cuda", dtype=torch.int32)

        def exact():
            wanted = x.topk(k, dim=-1).values.double()
            found = x.gather(1, ids.long()).double()
            return torch.stack((values.double(), found)), torch.stack((wanted, wanted)), torch.stack((wanted, wanted)).abs()

        if k == 1:
            def argmax():
                wanted = x.max(-1).values.double()
                return x.gather(1, ids.long())[:, 0].double(), wanted, wanted.abs()

            return lambda: op("argmax", ids, x, rows, cols), lambda: x.argmax(-1), ids, argmax
        return lambda: op("top_k", values, ids, x, rows, cols, k), lambda: x.topk(k, dim=-1), values, exact

    sizes, gap = case[-2:]
    row = sizes[2] + gap

    def array():
        return pool.take(type, sizes[0] * sizes[1] * row).as_strided(sizes, (sizes[1] * row, row, 1))

    if operation == "map":
        inputs = [array() for _ in range(2 if case[1] in ("add", "mul") else 1)]
        out = torch.empty(sizes, device="cuda", dtype=TORCH[type])
        function = {"add": torch.add, "mul": torch.mul, "exp": torch.exp, "silu": F.silu, "gelu": F.gelu}[case[1]]
        arguments = Map(View(out, type), (View * MAX_INPUTS)(*(View(x, type) for x in inputs)), (int64 * MAX_DIMS)(*sizes),
                        (Step * MAX_STEPS)(Step(MAPS[case[1]], 0, len(inputs) - 1, 0)), 3, len(inputs), 1)

        def exact():
            some = slice(0, min(sizes[0], max(1, (1 << 20) // (sizes[1] * sizes[2]))))
            values = function(*(x[some].double() for x in inputs))
            return out[some], values, values.abs() + inputs[0][some].double().abs()

        return lambda: op("map", ctypes.byref(arguments)), lambda: function(*inputs), out, exact
    if operation == "copy":
        x = array().permute(case[1])
        out = torch.empty(x.shape, device="cuda", dtype=TORCH[type])
        arguments = Map(View(out, type), (View * MAX_INPUTS)(View(x, type)), (int64 * MAX_DIMS)(*x.shape),
                        (Step * MAX_STEPS)(), 3, 1, 0)

        def exact():
            some = slice(0, min(x.shape[0], max(1, (1 << 20) // (x.shape[1] * x.shape[2]))))
            values = x[some].double()
            return out[some], values, values.abs()

        return lambda: op("map", ctypes.byref(arguments)), lambda: x.clone(memory_format=torch.contiguous_format), out, exact
    _, name, dims, _, _ = case
    x, all_of_it = array(), len(dims) == 3
    shape = tuple(1 if d in dims else n for d, n in enumerate(sizes))
    number = name == "argmax"
    out = torch.empty(shape, device="cuda", dtype=torch.int32 if number else TORCH[type])
    strides = tuple(0 if d in dims else s for d, s in enumerate(out.stride()))
    arguments = Reduce(View(out, I32 if number else type, strides), View(x, type), (int64 * MAX_DIMS)(*sizes), 3,
                       sum(1 << d for d in dims), REDUCTIONS[name], {"var": 1.0, "norm": 2.0}.get(name, 0.0))
    function = {"sum": lambda x: x.sum(dims, keepdim=True), "mean": lambda x: x.mean(dims, keepdim=True),
                "max": lambda x: x.amax(dims, keepdim=True), "var": lambda x: x.var(dims, keepdim=True),
                "norm": lambda x: torch.linalg.vector_norm(x, 2, dims, keepdim=True),
                "logsumexp": lambda x: x.logsumexp(dims, keepdim=True),
                "argmax": lambda x: x.argmax(keepdim=True) if all_of_it else x.argmax(dims[0], keepdim=True)}[name]

    def exact():
        if number:
            wanted = x.amax(dims, keepdim=True).double()
            found = x.reshape(-1)[out.view(-1).long()].view(shape) if all_of_it else x.gather(dims[0], out.long())
            return found, wanted, wanted.abs()
        values = function(x.double())
        count = elements(sizes) // out.numel()
        return out, values, values.abs() + (x.double().abs().sum(dims, keepdim=True) / (count if name == "mean" else 1) if name in ("sum", "mean") else 1)

    return lambda: op("reduce", ctypes.byref(arguments)), lambda: function(x), out, exact
