#!/usr/bin/env python3
"""Measure the dense kernels beside PyTorch and cuBLAS, in one run on one NVIDIA GPU.

    make lib && python3 scripts/bench_dense.py [--only TEXT ...] [--out docs/benchmarks/dense.jsonl]

Calls the public vb_* functions of libvibrant_cuda.so. Needs PyTorch with CUDA. Both sides run as graphs of several calls
whose inputs rotate over more memory than the L2 holds; replays of ours and the peer's alternate, and a figure is the
median replay by device events, divided by the calls in it.

Prints one row a case: microseconds of ours and of the peer, ratio (peer / ours: above 1 is faster than the peer), percent of
the roofline (the time that moving the bytes, or multiplying, takes at the rates measured in the same run: a device copy, and
a bf16 product of 8192 by cuBLAS; for f32 products the three bf16-like products that a split one needs), and the error of
both: RMS of the difference to float64, relative to RMS of the values. Writes the rows as JSON lines.
"""
import argparse
import ctypes
import pathlib
import shlex
import statistics
import sys

import suites
from lazily import F, torch

VB_CUDA, VB_UNSUPPORTED = 1, 2
F32, F16, BF16 = 0, 1, 30  # vb_dtype
NAME = {F32: "f32", F16: "f16", BF16: "bf16"}
pointer, int64 = ctypes.c_void_p, ctypes.c_int64


class Types(dict):
    """PyTorch's types by those of vb_dtype."""

    def __missing__(self, type):
        self[type] = {F32: torch.float32, F16: torch.float16, BF16: torch.bfloat16}[type]
        return self[type]


TORCH = Types()


class Arguments(ctypes.Structure):
    """A struct of arguments, which begins with its size: a library that knows more fields takes the rest for 0."""

    def __init__(self, *values, **named):
        super().__init__(ctypes.sizeof(self), *values, **named)


SIZE = [("size", ctypes.c_size_t)]


class Rope(Arguments):  # vb_rope_args
    _fields_ = SIZE + [(name, pointer) for name in ("out", "in_", "cos", "sin", "positions")]
    _fields_ += [(name, int64) for name in ("position_stride", "batch", "heads", "seq", "dim", "half", "table_rows")]
    _fields_ += [("type", ctypes.c_int), ("mode", ctypes.c_int)]


class MatMul(Arguments):  # vb_matmul_args
    _fields_ = SIZE + [(name, pointer) for name in ("c", "a", "b")]
    _fields_ += [(name, int64) for name in ("m", "k", "n", "batch", "a_stride", "b_stride", "c_stride", "a_batch_stride",
                                            "b_batch_stride", "c_batch_stride")]
    _fields_ += [(name, ctypes.c_int) for name in ("a_transposed", "b_transposed", "type", "precision")]


class Attention(Arguments):  # vb_attention_args
    _fields_ = SIZE + [(name, pointer) for name in ("out", "q", "k", "v", "positions", "sequences")]
    _fields_ += [(name, int64) for name in (
        "batch", "seq", "heads", "kv_heads", "dim", "q_batch_stride", "q_head_stride", "q_row_stride",
        "kv_capacity", "kv_len", "offset", "window")]
    _fields_ += [("scale", ctypes.c_float), ("causal", ctypes.c_int), ("type", ctypes.c_int), ("kv_type", ctypes.c_int),
                ("settled", ctypes.c_int)]


class Unsupported(Exception):
    """The library has no kernel for this."""


class Library:
    def __init__(self, path):
        self.functions = ctypes.CDLL(str(path.resolve()))
        self.functions.vb_status_string.restype = self.functions.vb_last_kernel.restype = ctypes.c_char_p
        self.device, self.stream = pointer(), pointer()
        self.held = []  # graphs and events
        self.call("vb_device_open", ctypes.byref(self.device), VB_CUDA, 0, None)
        self.call("vb_stream_create", ctypes.byref(self.stream), self.device)

    def call(self, name, *arguments):
        status = getattr(self.functions, name)(*arguments)
        if status == VB_UNSUPPORTED:
            raise Unsupported(name)
        if status != 0:
            raise RuntimeError(f"{name}: {self.functions.vb_status_string(status).decode()}")

    def op(self, name, *arguments):
        """Enqueues vb_NAME on the stream; tensors become pointers and ints int64, except enums given as c_int."""
        converted = [pointer(x.data_ptr()) if isinstance(x, torch.Tensor) else int64(x) if isinstance(x, int) else x
                     for x in arguments]
        self.call("vb_" + name, *converted, self.stream)

    def synchronize(self):
        self.call("vb_stream_synchronize", self.stream)

    def kernel(self):
        """The kernel that the newest operation chose."""
        return (self.functions.vb_last_kernel(self.stream) or b"").decode()

    def release(self):
        """Gives back the graphs made so far."""
        for destroy, handle in self.held:
            getattr(self.functions, destroy)(handle)
        self.held = []

    def graph(self, calls):
        """Returns a function that replays the calls and returns the microseconds of one."""
        for call in calls:  # a first run outside the graph: workspaces grow, modules load
            call()
        self.synchronize()
        graph, start, end = pointer(), pointer(), pointer()
        self.call("vb_graph_begin", self.stream)
        for call in calls:
            call()
        self.call("vb_graph_end", ctypes.byref(graph), self.stream)
        for event in (start, end):
            self.call("vb_event_create", ctypes.byref(event), self.device)
        elapsed = ctypes.c_float()
        self.held += [("vb_graph_destroy", graph), ("vb_event_destroy", start), ("vb_event_destroy", end)]

        def replay():
            self.call("vb_event_record", start, self.stream)
            self.call("vb_graph_launch", graph, self.stream)
            self.call("vb_event_record", end, self.stream)
            self.synchronize()
            self.call("vb_event_elapsed", ctypes.byref(elapsed), start, end)
            return elapsed.value * 1e3 / len(calls)

        return replay


class Captures:
    """Captures graphs of PyTorch's calls. torch.cuda.graph gives all cached memory back before each, which takes longer than to
    capture and time short calls; here all graphs have theirs from one pool, until half of the GPU's memory is reserved."""

    def __init__(self):
        self.stream = self.pool = self.keeper = None

    def __call__(self, calls, apart=False, **kept):
        """apart: the results of the calls have places of their own. Else a call may write where the one before it did."""
        if self.keeper is None or torch.cuda.memory_reserved() > torch.cuda.get_device_properties(0).total_memory // 2:
            self.stream = self.stream or torch.cuda.Stream()
            self.keeper = None
            torch.cuda.empty_cache()
            self.pool = torch.cuda.graph_pool_handle()
            self.keeper = self.capture([lambda: torch.zeros(1, device="cuda")], self.pool)  # a pool ends with its last graph
        return self.capture(calls, self.pool, apart, **kept)

    def capture(self, calls, pool, apart=False, **kept):
        graph = torch.cuda.CUDAGraph(**kept)
        torch.cuda.synchronize()
        with torch.cuda.stream(self.stream):
            graph.capture_begin(pool=pool)
            try:
                results = []
                for call in calls:
                    result = call()
                    if apart:
                        results.append(result)
                    del result
            finally:
                graph.capture_end()
        return graph


capture = Captures()


def torch_graph(calls, apart=False):
    for call in calls[:2]:
        call()
    graph = capture(calls, apart)
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)

    def replay():
        start.record()
        graph.replay()
        end.record()
        torch.cuda.synchronize()
        return start.elapsed_time(end) * 1e3 / len(calls)

    return replay


def alternate(replays, count, first=2):
    """Medians of `count` replays of each, taken in turn after `first` ones that warm up."""
    times = [[] for _ in replays]
    for turn in range(count + first):
        for i, replay in enumerate(replays):
            microseconds = replay()
            if turn >= first:
                times[i].append(microseconds)
    return [statistics.median(t) for t in times]


class Bench:
    def __init__(self, options):
        self.library = Library(options.library)
        self.options = options
        self.rows = []
        if not options.only:
            options.out.unlink(missing_ok=True)  # cases that are measured no longer leave with it
        properties = torch.cuda.get_device_properties(0)
        self.l2 = properties.L2_cache_size
        self.device = f"{properties.name}, {properties.multi_processor_count} SMs"
        self.command = shlex.join(["python3", "scripts/bench_dense.py", *(["--only", *options.only] if options.only else [])])
        torch.manual_seed(7)
        n = 64 << 20
        source, target = (torch.randn(4, n, device="cuda") for _ in range(2))
        copies = [lambda i=i: target[i].copy_(source[i]) for i in range(4)]
        self.bandwidth = 8 * n / alternate([torch_graph(copies)], 9)[0] / 1e6
        del source, target, copies
        a, b = (torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16) for _ in range(2))
        self.rate = 2 * 8192**3 / alternate([torch_graph([lambda: torch.mm(a, b)])], 5)[0] / 1e6
        print(f"{self.device}; PyTorch {torch.__version__}, CUDA {torch.version.cuda}; copy {self.bandwidth:.2f} TB/s, "
              f"bf16 {self.rate:.0f} TFLOP/s")
        print(f"{'case':44s} {'ours us':>10s} {'peer us':>10s} {'ratio':>6s} {'roof %':>6s}   error, the peer's    peer")

    def wanted(self, case):
        return not self.options.only or any(text in case for text in self.options.only)

    def copies(self, nbytes):
        """How many sets of inputs of so many bytes are rotated."""
        return max(2, min(48, 4 * self.l2 // max(nbytes, 1) + 1))

    def compiled(self, function):
        return None if self.options.no_compile else torch.compile(function, dynamic=False)

    def measure(self, case, inputs, ours, peers, reference, nbytes, flops=0):
        """inputs: sets of arguments. ours(*set) enqueues and returns the output; peers: {name: function(*set)}, the
        fastest counts; reference(*set) returns (sample of an output, the same in float64)."""
        library, repeat = self.library, max(1, 24 // len(inputs)) if nbytes < 64 << 20 and flops < 2e11 else 1
        timed, errors = {}, {}
        for name, peer in peers.items():
            if peer is None:
                continue
            try:
                errors[name] = relative(*reference(peer(*inputs[0]), *inputs[0]))
                timed[name] = torch_graph([lambda s=s: peer(*s) for s in inputs] * repeat)
            except Exception as error:  # such as no compiler for torch.compile: the other peers stay
                print(f"  {case}: {name} failed: {str(error).splitlines()[0][:100]}", file=sys.stderr)
        try:
            torch.cuda.synchronize()
            out = ours(*inputs[0])
            library.synchronize()
            sample, exact = reference(out, *inputs[0])
            error = relative(sample, exact)
            replay = library.graph([lambda s=s: ours(*s) for s in inputs] * repeat)
        except Unsupported:
            replay, error = None, None
        times = alternate(([replay] if replay else []) + list(timed.values()), self.options.replays)
        microseconds = times.pop(0) if replay else None
        name = min(timed, key=lambda name: times[list(timed).index(name)])
        peer = times[list(timed).index(name)]
        floor = max(nbytes / self.bandwidth / 1e6, flops / self.rate / 1e6)
        row = {"suite": "dense", "case": case, "ours": microseconds and round(microseconds, 3), "peer": round(peer, 3),
               "unit": "us", "ratio": microseconds and round(peer / microseconds, 3),
               "roofline": microseconds and round(100 * floor / microseconds, 1), "error": error,
               "device": self.device, "command": self.command, "peer_name": name, "peer_error": errors[name]}
        self.rows.append(row)
        suites.replace(self.options.out, [row], lambda row: row["case"])
        if replay:
            print(f"{case:44s} {microseconds:10.2f} {peer:10.2f} {peer / microseconds:6.2f} {row['roofline']:6.1f}   "
                  f"{error:.1e}  {errors[name]:.1e}   {name}", flush=True)
        else:
            print(f"{case:44s} {'no kernel':>10s} {peer:10.2f} {'':6s} {'':6s}   {'':7s}  {errors[name]:.1e}   {name}", flush=True)


def relative(values, exact):
    difference = (values.double() - exact).norm()
    return float(difference / exact.norm())


def random(*shape, type=F32):
    return torch.randn(*shape, device="cuda").to(TORCH[type])


def gemm(bench, type, m, k, n, weights=False):
    """vb_matmul. weights: B is stored [n][k], as those of a layer."""
    case = f"gemm {NAME[type]} {m}" if m == k == n else f"gemm {NAME[type]} {m}x{k}x{n}"
    case += " of weights" * weights
    if not bench.wanted(case):
        return
    size = TORCH[type].itemsize
    c, peer_c = (torch.empty(m, n, device="cuda", dtype=TORCH[type]) for _ in range(2))
    inputs = [(random(m, k, type=type), random(*((n, k) if weights else (k, n)), type=type))
              for _ in range(min(bench.copies(size * (m * k + k * n)), 1 if m * k * n > 2e11 else 48))]

    def ours(a, b):
        if weights:
            arguments = MatMul(c.data_ptr(), a.data_ptr(), b.data_ptr(), m, k, n, 1, k, k, n, b_transposed=1, type=type)
            bench.library.op("matmul_batched", ctypes.byref(arguments))
        else:
            bench.library.op("matmul", c, a, b, ctypes.c_int(type), m, k, n)
        return c

    def logical(b):
        return b.mT if weights else b

    def reference(out, a, b):
        rows = slice(0, min(m, 256))
        return out[rows], a[rows].double() @ logical(b).double()

    bench.measure(case, inputs, ours, {"cuBLAS": lambda a, b: torch.mm(a, logical(b), out=peer_c)}, reference,
                  size * (m * k + k * n + m * n), 2 * m * n * k * (3 if type == F32 else 1))


def gemv(bench, type, k, n):
    case = f"gemv {NAME[type]} {k}x{n}"
    if not bench.wanted(case):
        return
    size = TORCH[type].itemsize
    c, peer_c = (torch.empty(1, n, device="cuda", dtype=TORCH[type]) for _ in range(2))
    inputs = [(random(1, k, type=type), random(k, n, type=type)) for _ in range(bench.copies(size * k * n))]

    def ours(a, b):
        bench.library.op("matmul_single_row", c, a, b, ctypes.c_int(type), k, n)
        return c

    bench.measure(case, inputs, ours, {"cuBLAS": lambda a, b: torch.mm(a, b, out=peer_c)},
                  lambda out, a, b: (out, a.double() @ b.double()), size * (k * n + k + n))


class Weight(ctypes.Structure):  # vb_weight
    _fields_ = [("data", pointer), ("type", ctypes.c_int), ("layout", ctypes.c_int), ("rows", int64), ("cols", int64)]


def linear(bench, type, m, k, n, same_work=False):
    """vb_linear, whose weights are stored [n][k], F32 in and out; the peer's input and output are of the weights' type.
    same_work: the peer gets and gives F32 too, by a conversion of its input and cuBLAS's output in F32."""
    case = f"linear {NAME[type]} {m}x{k}x{n}" + " f32 peer" * same_work
    if not bench.wanted(case):
        return
    size = TORCH[type].itemsize
    y = torch.empty(m, n, device="cuda")
    inputs = [(random(m, k), random(n, k, type=type)) for _ in range(bench.copies(size * k * n))]
    narrowed = {x.data_ptr(): x.to(TORCH[type]) for x, _ in inputs}

    def ours(x, w):
        weight = Weight(w.data_ptr(), type, 0, n, k)
        bench.library.op("linear", y, x, ctypes.byref(weight), None, m)
        return y

    def peer(x, w):
        if not same_work:
            return torch.mm(narrowed[x.data_ptr()], w.mT)
        return torch.mm(x.to(TORCH[type]), w.mT, out_dtype=torch.float32)

    bench.measure(case, inputs, ours, {"cuBLAS with conversions" if same_work else "cuBLAS": peer},
                  lambda out, x, w: (out, x.double() @ w.mT.double()), size * k * n + 4 * m * (k + n),
                  2 * m * n * k * (3 if type == F32 else 1))


PRECISIONS = ("float32", "ieee", "tf32")  # vb_precision


def values(kind, *shape, type=F32):
    """Normal; or magnitudes log-uniform over 2^-30 to 2^30; else normal (matmul makes halves of them cancel)."""
    x = torch.randn(*shape, device="cuda")
    if kind == "log-uniform":
        x = torch.sign(x) * torch.exp2(torch.rand(*shape, device="cuda") * 60 - 30)
    return x.to(TORCH[type])


def matmul(bench, type, size, layout="nn", batch=1, precision="float32", kind="normal"):
    """vb_matmul_batched on cubes: layouts by BLAS's letters, t for a transposed operand."""
    case = f"matmul {layout} {NAME[type]}" + f" {precision}" * (precision != "float32") + f" {kind}" * (kind != "normal")
    case += f" {batch}x{size}" if batch > 1 else f" {size}"
    if not bench.wanted(case):
        return
    c, peer_c = (torch.empty(batch, size, size, device="cuda", dtype=TORCH[type]) for _ in range(2))
    nbytes = batch * size**2 * TORCH[type].itemsize

    def operands():
        a, b = (values(kind, batch, size, size, type=type) for _ in range(2))
        if kind == "cancelling":  # the second half of k undoes the first but for a thousandth
            half = size // 2
            a[:, :, half:] = -a[:, :, :half]
            b[:, half:] = b[:, :half] * (1 + 1e-3 * torch.randn_like(b[:, :half]))
        return tuple(x.mT.contiguous() if t == "t" else x for x, t in zip((a, b), layout))

    def logical(a, b):
        return (x.mT if t == "t" else x for x, t in zip((a, b), layout))

    def ours(a, b):
        arguments = MatMul(c.data_ptr(), a.data_ptr(), b.data_ptr(), size, size, size, batch, size, size, size, *[size**2] * 3,
                           layout[0] == "t", layout[1] == "t", type, PRECISIONS.index(precision))
        bench.library.op("matmul_batched", ctypes.byref(arguments))
        return c

    def peer(a, b):
        torch.backends.cuda.matmul.allow_tf32 = precision == "tf32"
        x, y = logical(a, b)
        out = torch.mm(x[0], y[0], out=peer_c[0]) if batch == 1 else torch.bmm(x, y, out=peer_c)
        torch.backends.cuda.matmul.allow_tf32 = False
        return out.view(batch, size, size)

    def reference(out, a, b):
        x, y = logical(a[:1], b[:1])
        return out[0, :256], x[0, :256].double() @ y[0].double()

    inputs = [operands() for _ in range(min(bench.copies(2 * nbytes), 1 if batch * size**3 > 2e11 else 8))]
    rate = {"float32": 3, "ieee": 12, "tf32": 2}[precision] if type == F32 else 1  # of bf16's, by units and their number
    bench.measure(case, inputs, ours, {"cuBLAS": peer}, reference, 3 * nbytes, 2 * batch * size**3 * rate)


def rows(bench, operation, m, n):
    case = f"{operation} f32 {m}x{n}"
    if not bench.wanted(case):
        return
    out, weight = torch.empty(m, n, device="cuda"), random(n)
    inputs = [(random(m, n),) for _ in range(bench.copies(8 * m * n))]
    if operation == "softmax":
        def ours(x):
            bench.library.op("softmax_batched", out, x, ctypes.c_int(F32), m, n)
            return out
        def function(x):
            return F.softmax(x, -1)
    elif operation == "layer_norm":
        bias = random(n)
        def ours(x):
            bench.library.op("layer_norm_batched", out, x, weight, bias, ctypes.c_int(F32), m, n, ctypes.c_float(1e-5))
            return out
        def function(x):
            return F.layer_norm(x, (n,), weight.to(x.dtype), bias.to(x.dtype), 1e-5)
    else:
        def ours(x):
            bench.library.op("rms_norm_batched", out, x, weight, ctypes.c_int(F32), m, n, ctypes.c_float(1e-6))
            return out
        def function(x):
            return F.rms_norm(x, (n,), weight.to(x.dtype), 1e-6)
    bench.measure(case, inputs, ours, {"eager": function, "torch.compile": bench.compiled(function)},
                  lambda out, x: (out[:64], function(x[:64].double())), 8 * m * n)


def elementwise(bench, operation, n=64 << 20):
    case = f"{operation} f32 {n >> 20}Mi"
    if not bench.wanted(case):
        return
    f32 = ctypes.c_int(F32)
    other, out = random(n), torch.empty(n, device="cuda")  # one output for both: where it lies changes the time by 1 or 2 %
    op, aten = bench.library.op, torch.ops.aten
    tensors, ours, peers = {
        "copy": (2, lambda x: op("copy", out, x, f32, n), {"eager": lambda x: out.copy_(x)}),
        "add": (3, lambda x: op("add", out, x, other, f32, n), {"eager": lambda x: torch.add(x, other, out=out)}),
        "mul": (3, lambda x: op("mul", out, x, other, f32, n), {"eager": lambda x: torch.mul(x, other, out=out)}),
        "mul_scalar": (2, lambda x: op("mul_scalar", out, x, ctypes.c_float(1.7), f32, n),
                       {"eager": lambda x: torch.mul(x, 1.7, out=out)}),
        "silu": (2, lambda x: op("silu", out, x, f32, n), {"eager": lambda x: aten.silu.out(x, out=out)}),
        "gelu": (2, lambda x: op("gelu", out, x, f32, n), {"eager": lambda x: aten.gelu.out(x, out=out)}),
        "gelu_tanh": (2, lambda x: op("gelu_tanh", out, x, f32, n), {"eager": lambda x: aten.gelu.out(x, approximate="tanh", out=out)}),
        "swiglu": (3, lambda x: op("swiglu", out, x, other, f32, n),
                   {"eager": lambda x: F.silu(x) * other, "torch.compile": bench.compiled(lambda x: F.silu(x) * other)}),
    }[operation]
    exact = {"copy": lambda x, y: x, "add": lambda x, y: x + y, "mul": lambda x, y: x * y,
             "mul_scalar": lambda x, y: x * float(torch.tensor(1.7)), "silu": lambda x, y: F.silu(x),
             "gelu": lambda x, y: F.gelu(x), "gelu_tanh": lambda x, y: F.gelu(x, approximate="tanh"),
             "swiglu": lambda x, y: F.silu(x) * y}[operation]

    def run(x):
        ours(x)
        return out

    part = slice(0, 1 << 20)
    bench.measure(case, [(random(n),) for _ in range(2)], run, peers,
                  lambda out, x: (out[part], exact(x[part].double(), other[part].double())), 4 * tensors * n)


def rope(bench, batch=4, heads=32, seq=2048, dim=128):
    case = f"rope f32 {batch}x{heads}x{seq}x{dim}"
    if not bench.wanted(case):
        return
    cos, sin = random(seq, dim // 2), random(seq, dim // 2)
    out = torch.empty(batch, heads, seq, dim, device="cuda")

    def ours(x):
        arguments = Rope(out.data_ptr(), x.data_ptr(), cos.data_ptr(), sin.data_ptr(), None, 0, batch, heads, seq, dim,
                         dim // 2, seq, F32, 0)
        bench.library.op("rope", ctypes.byref(arguments))
        return out

    def function(x, cos=cos, sin=sin):
        even, odd = x[..., 0::2], x[..., 1::2]
        return torch.stack((even * cos - odd * sin, even * sin + odd * cos), -1).flatten(-2)

    bench.measure(case, [(random(batch, heads, seq, dim),) for _ in range(3)], ours,
                  {"eager": function, "torch.compile": bench.compiled(function)},
                  lambda out, x: (out[:1, :4], function(x[:1, :4].double(), cos.double(), sin.double())),
                  8 * batch * heads * seq * dim)


def attention(bench, seq, causal, heads=32, kv_heads=8, dim=128):
    """Causal: a prompt of seq tokens. Else one token that sees a cache of seq."""
    case = f"attention {'causal' if causal else 'decode'} bf16 {seq}"
    if not bench.wanted(case):
        return
    queries = seq if causal else 1
    out = torch.empty(1, heads, queries, dim, device="cuda", dtype=torch.bfloat16)
    inputs = [(random(1, heads, queries, dim, type=BF16), random(1, kv_heads, seq, dim, type=BF16),
               random(1, kv_heads, seq, dim, type=BF16)) for _ in range(bench.copies(4 * kv_heads * seq * dim))]

    def ours(q, k, v):
        arguments = Attention(out.data_ptr(), q.data_ptr(), k.data_ptr(), v.data_ptr(), None, None, 1, queries, heads,
                              kv_heads, dim, heads * queries * dim, queries * dim, dim, seq, seq, seq - queries, 0,
                              dim**-0.5, int(causal), BF16, BF16, int(not causal))
        bench.library.op("attention", ctypes.byref(arguments))
        return out

    def reference(out, q, k, v):
        last = min(queries, 64)
        group = heads // kv_heads
        scores = q[:, :, -last:].double() @ k.double().repeat_interleave(group, 1).transpose(-1, -2) * dim**-0.5
        if causal:
            position = torch.arange(queries - last, queries, device="cuda")[:, None]
            scores.masked_fill_(torch.arange(seq, device="cuda")[None] > position, float("-inf"))
        return out[:, :, -last:], scores.softmax(-1) @ v.double().repeat_interleave(group, 1)

    flops = 4 * heads * seq * queries * dim / (2 if causal else 1)
    bench.measure(case, inputs, ours,
                  {"SDPA": lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=True)},
                  reference, 2 * dim * (2 * heads * queries + 2 * kv_heads * seq), flops)


def main():
    root = pathlib.Path(__file__).resolve().parent.parent
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--library", type=pathlib.Path, default=root / "build/cuda/libvibrant_cuda.so")
    parser.add_argument("--only", nargs="*", default=[], help="only cases whose name holds one of these texts")
    parser.add_argument("--out", type=pathlib.Path, default=root / "docs/benchmarks/dense.jsonl")
    parser.add_argument("--replays", type=int, default=9)
    parser.add_argument("--no-compile", action="store_true", help="leave torch.compile out of the peers")
    options = parser.parse_args()
    if not torch.cuda.is_available():
        sys.exit("bench_dense: PyTorch finds no CUDA device here")
    if not options.library.exists():
        sys.exit(f"bench_dense: {options.library} is missing: run scripts/compile-cuda-kernels.sh")
    torch.backends.cuda.matmul.allow_tf32 = False
    bench = Bench(options)

    cases = [(gemm, F32, n, n, n) for n in (512, 1024, 2048, 4096, 8192)]
    cases += [(gemm, BF16, n, n, n) for n in (1024, 2048, 4096, 8192)] + [(gemm, F16, 4096, 4096, 4096)]
    cases += [(gemm, BF16, m, k, n) for k, n in ((2048, 11008), (4096, 4096), (4096, 14336), (14336, 4096))
              for m in (16, 64, 256, 1024, 4096)]
    cases += [(gemm, F32, m, k, n) for k, n in ((2048, 11008), (4096, 4096), (4096, 14336), (14336, 4096)) for m in (4, 16, 32, 64, 128)]
    cases += [(gemv, type, k, n) for type in (F32, BF16, F16) for k, n in ((4096, 4096), (4096, 14336), (14336, 4096))]
    cases += [(linear, type, m, 4096, n) for type in (F32, BF16, F16) for n in (4096, 14336) for m in (1, 16, 64)]
    cases += [(linear, type, m, k, n, *f32) for type in (BF16, F16) for k, n in ((2048, 11008), (11008, 2048), (4096, 14336))
              for m in (512, 2048) for f32 in ((), (True,))]
    cases += [(gemm, type, m, k, n, *weights) for type in (BF16, F16) for k, n in ((2048, 11008), (11008, 2048))
              for m in (512, 2048) for weights in ((), (True,))]
    cases += [(matmul, F32, n, "nn", 1, "ieee") for n in (1024, 2048, 4096)]
    cases += [(matmul, F32, n, "nn", 1, "tf32") for n in (1024, 2048, 4096, 8192)]
    cases += [(matmul, F32, 4096, layout, 1, precision) for layout in ("nt", "tn", "tt") for precision in PRECISIONS]
    cases += [(matmul, BF16, n, layout) for layout in ("nt", "tn", "tt") for n in (2048, 4096)]
    cases += [(matmul, type, 512, layout, 64) for type in (F32, BF16) for layout in ("nn", "nt")]
    cases += [(matmul, F32, 2048, "nn", 1, precision, kind) for kind in ("log-uniform", "cancelling") for precision in PRECISIONS]
    cases += [(rows, "softmax", *shape) for shape in ((4096, 4096), (65536, 2048), (32, 151936), (1, 151936))]
    cases += [(rows, "rms_norm", *shape) for shape in ((4096, 4096), (65536, 2048), (1, 4096), (1, 151936))]
    cases += [(rows, "layer_norm", *shape) for shape in ((4096, 4096), (65536, 2048), (1, 4096), (1, 151936))]
    cases += [(elementwise, name) for name in ("gelu", "gelu_tanh", "copy", "add", "mul", "mul_scalar", "silu", "swiglu")]
    cases += [(rope,)]
    cases += [(attention, seq, True) for seq in (512, 2048, 8192, 32768)]
    cases += [(attention, seq, False) for seq in (1024, 4096, 32768)]
    for function, *arguments in dict.fromkeys(cases):
        function(bench, *arguments)

    missing = [row for row in bench.rows if row["ours"] is None]
    slower = [row for row in bench.rows if row["ours"] and row["ratio"] < 1]
    print(f"{len(bench.rows)} rows to {options.out}; slower than the peer: {len(slower)}; without a kernel: {len(missing)}")


if __name__ == "__main__":
    main()
