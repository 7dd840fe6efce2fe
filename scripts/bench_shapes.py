#!/usr/bin/env python3
"""Measure kernels at shapes that nobody tuned for, beside PyTorch, in one run on one NVIDIA GPU.

    make lib && python3 scripts/bench_shapes.py --seeds 7,8 [--rows 400] [--family matmul ...] [--out docs/benchmarks/shapes.jsonl]
    make lib && python3 scripts/bench_shapes.py --seeds 7 --check 20000

Draws products, batched products, row operations and attention: sizes log-uniform from 1 to 16 Ki, 40 % of them multiples of 8,
and types, layouts, strides, heads and dims at random. For each seed prints the rows by ratio (PyTorch's time divided by ours), the
slowest first, with the kernel that ran, then one line of figures, and holds them to the gate: no row below 0.7, at most 3 % below
0.9, a geometric mean of 1.3. A row counts where either side takes 5 us or more. Exit status 1 where the gate is missed.

Rows are saved as they are measured, and those below 0.9 printed. Ctrl-C, SIGTERM (as from `timeout`) and --limit stop the run, which
then prints the figures of the rows that it has; a seed that lacks rows does not pass.

With --portable, as for a GPU without Hopper's instructions, the gate is 0.6, 5 %, 1.0, and the peer has none of them either: its
attention is FlashAttention-2 or the plain path, and where a product is faster by a kernel that has them the fastest of cuBLASLt's
earlier kernels takes its place (cublaslt.py). "pytorch" is then what PyTorch took, and a line has the figures beside that.

Two families are not drawn otherwise. --family linear: layers of weights in 16 bits; 1 to 64, 512 or 2,048 rows of x. Ours gets and
gives F32; PyTorch's x and results have 16 bits. --family arrays: element-wise operations, copies to another order of dimensions,
reductions and the greatest k of rows (drawn_arrays.py).

--check compares values with float64 instead, at smaller sizes, and counts what is wrong; one in eight products in F32 has a
subnormal factor. --case TEXT runs rows by their names.
"""
import argparse
import collections
import ctypes
import math
import pathlib
import random
import shlex
import signal
import sys
import time

import drawn_arrays
import suites
from bench_dense import BF16, F16, F32, NAME, TORCH, Attention, Library, MatMul, Unsupported, Weight, alternate, torch_graph
from cublaslt import Products, kernels, uses_hopper
from lazily import F, torch

STARTED = time.monotonic()
FAMILIES = {"matmul": 0.4, "batched": 0.2, "rows": 0.2, "attention": 0.2, "linear": 0, "arrays": 0}  # of the draws
SHORTEST = 5.0  # us
LONG, LONG_REPLAYS = 5000.0, 3  # us of calls whose medians need fewer replays, and how many
MOST_BYTES, MOST_PRODUCTS = 1 << 30, 1 << 39


class Draw:
    """Sizes and choices at random."""

    def __init__(self, seed, largest):
        self.random = random.Random(seed)
        self.largest = largest

    def size(self, largest=None):
        """Log-uniform from 1; two of five are multiples of 8."""
        n = round(math.exp(self.random.uniform(0, math.log(largest or self.largest))))
        return max(8, n // 8 * 8) if self.random.random() < 0.4 else n

    def stride(self, length):
        """Of rows of that length: without a gap, or with one."""
        return length + self.random.choice((0, 0, 0, 1, 3, 8, 24))

    def type(self):
        return self.random.choice((F32, F16, BF16))

    def case(self, family):
        r = self.random
        if family in ("matmul", "batched"):
            batch = self.size(1024) + 1 if family == "batched" else 1
            m, k, n = (self.size(self.largest if batch == 1 else 1024) for _ in range(3))
            layout = r.choice(("nn", "nt", "tn", "tt"))
            strides = self.stride(m if layout[0] == "t" else k), self.stride(k if layout[1] == "t" else n), self.stride(n)
            return "matmul", (self.type(), batch, m, k, n, layout, strides)
        if family == "rows":
            return r.choice(("softmax", "rms_norm", "layer_norm")), (self.type(), self.size(1 << 17), self.size(1 << 16))
        if family == "arrays":
            return drawn_arrays.draw(self)
        if family == "linear":
            k, n = (max(self.size(), self.size()) for _ in range(2))
            return "linear", (r.choice((F16, BF16)), r.choice((self.size(64), 512, 2048)), k, n)
        group = r.choice((1, 1, 2, 4, 7, 8))
        dim = r.choice((64, 128, 8 * r.randint(1, 32), r.randint(8, 256)))
        keys = self.size()
        causal = r.random() < 0.5
        queries = keys if causal else min(keys, self.size(r.choice((4, self.largest))))
        return "attention", (self.type(), self.size(16), self.size(16), group, queries, keys, dim, causal)


def cost(operation, sizes):
    """Bytes and multiplications of a case."""
    if operation == "matmul":
        type, batch, m, k, n, _, strides = sizes
        return TORCH[type].itemsize * batch * (m * k + k * n + m * n), batch * m * k * n
    if operation == "attention":
        type, batch, kv_heads, group, queries, keys, dim, causal = sizes
        heads = kv_heads * group
        products = 2 * batch * heads * queries * keys * dim
        # Scores in float32 are what PyTorch's plain path keeps, and what the check against float64 does.
        return max(2 * TORCH[type].itemsize * batch * dim * (heads * queries + kv_heads * keys), 4 * batch * heads * queries * keys), products
    if operation == "linear":
        type, m, k, n = sizes
        return TORCH[type].itemsize * k * n + 4 * m * (k + n), m * k * n
    if operation in drawn_arrays.OPERATIONS:
        return drawn_arrays.cost(operation, sizes), 0
    type, rows, cols = sizes
    return 2 * TORCH[type].itemsize * rows * cols, 0


def largest(operation, sizes):
    """Bytes of a product's larger operand with the gaps between its rows, 0 of other cases."""
    if operation != "matmul":
        return 0
    type, batch, m, k, n, layout, (a_stride, b_stride, _) = sizes
    return TORCH[type].itemsize * batch * max((k if layout[0] == "t" else m) * a_stride, (n if layout[1] == "t" else k) * b_stride)


def describe(operation, sizes):
    if operation == "matmul":
        type, batch, m, k, n, layout, strides = sizes
        return f"matmul {NAME[type]} {layout} " + f"{batch}x " * (batch > 1) + f"{m}x{k}x{n} strides " + ",".join(map(str, strides))
    if operation == "attention":
        type, batch, kv_heads, group, queries, keys, dim, causal = sizes
        return (f"attention {NAME[type]} batch {batch} heads {kv_heads * group}/{kv_heads} queries {queries} keys {keys} dim {dim}"
                + " causal" * causal)
    if operation == "linear":
        type, m, k, n = sizes
        return f"linear {NAME[type]} {m}x{k}x{n}"
    if operation in drawn_arrays.OPERATIONS:
        return drawn_arrays.describe(operation, sizes)
    type, rows, cols = sizes
    return f"{operation} {NAME[type]} {rows}x{cols}"


class Pool:
    """Random numbers, made once, of which cases take pieces one after the other, so that the L2 holds none of them."""

    def __init__(self, nbytes, seed):
        generator = torch.Generator("cuda").manual_seed(seed)
        values = torch.randn(nbytes // 4, device="cuda", generator=generator)
        self.values = {F32: values, F16: values[: nbytes // 8].half(), BF16: values[: nbytes // 8].bfloat16()}
        self.at = 0

    def take(self, type, elements):
        """A piece aligned to 256 bytes."""
        values = self.values[type]
        if elements > len(values):
            raise ValueError(f"{elements} elements")
        if self.at + elements > len(values):
            self.at = 0
        piece = values[self.at : self.at + elements]
        self.at += (elements + 127) // 128 * 128
        return piece


class Case:
    """A case with `copies` sets of inputs and places of results: self.ours and self.peer are lists of calls. A product's A is
    multiplied by `scale`."""

    def __init__(self, library, pool, operation, sizes, copies, scale=1.0):
        self.library, self.sizes, self.scale = library, sizes, scale
        self.type = sizes[0]
        # Kept whole: calls know addresses alone.
        kind = ("row" if operation in ("softmax", "rms_norm", "layer_norm") else
                "array" if operation in drawn_arrays.OPERATIONS else operation)
        self.sets = sets = [getattr(self, "make_" + kind)(pool, operation) for _ in range(copies)]
        self.ours, self.peer = [s[0] for s in sets], [s[1] for s in sets]
        self.result, self.exact = sets[0][2], sets[0][3]
        self.products = [s[4] for s in sets if len(s) > 4]  # arguments of the peer's

    def make_matmul(self, pool, _):
        type, batch, m, k, n, layout, (a_stride, b_stride, c_stride) = self.sizes
        op, a_scale = self.library.op, self.scale  # calls that knew the case would keep its memory until Python looks for cycles

        def operand(rows, stride, scale=1.0):
            values = pool.take(type, batch * rows * stride)
            if scale != 1.0:
                values = values * scale
                torch.cuda.synchronize()  # the library's stream does not wait for PyTorch's
            return values.as_strided((batch, rows, stride), (rows * stride, stride, 1))

        a_rows, b_rows = (k if layout[0] == "t" else m), (n if layout[1] == "t" else k)
        a, b = operand(a_rows, a_stride, a_scale), operand(b_rows, b_stride)
        c, peer_c = (torch.empty(batch, m, c_stride, device="cuda", dtype=TORCH[type]) for _ in range(2))
        arguments, peer_arguments = (
            MatMul(to.data_ptr(), a.data_ptr(), b.data_ptr(), m, k, n, batch, a_stride, b_stride, c_stride,
                   a_rows * a_stride, b_rows * b_stride, m * c_stride, layout[0] == "t", layout[1] == "t", type, 0)
            for to in (c, peer_c))
        x = a[:, :, :m].mT if layout[0] == "t" else a[:, :, :k]
        y = b[:, :, :k].mT if layout[1] == "t" else b[:, :, :n]
        out, ours_out = peer_c[:, :, :n], c[:, :, :n]

        def peer():
            torch.mm(x[0], y[0], out=out[0]) if batch == 1 else torch.bmm(x, y, out=out)

        def exact():
            rows = torch.randint(m, (min(m, 16),), device="cuda")
            left, right = x[:, rows][:4].double(), y[:4].double()
            return ours_out[:4, rows], left @ right, left.abs() @ right.abs() + (k * SUBNORMAL / 2e-6 if a_scale != 1.0 else 0)

        return lambda: op("matmul_batched", ctypes.byref(arguments)), peer, ours_out, exact, peer_arguments

    def portable_peers(self, earlier):
        """Lists of calls that stand for the peer's, if its own use Hopper's instructions: each by an algorithm that does not."""
        if self.type == F32 or not self.products or not uses_hopper(kernels(self.peer[0])):
            return []
        return [[lambda x=x, multiply=multiply: multiply(x) for x in self.products]
                for multiply in earlier.portable(self.products[:6], TORCH[self.type], 4)]

    def make_row(self, pool, operation):
        type, rows, cols = self.sizes
        x, out = pool.take(type, rows * cols).view(rows, cols), torch.empty(rows, cols, device="cuda", dtype=TORCH[type])
        weight, bias = pool.take(F32, cols), pool.take(F32, cols)
        peer_weight, peer_bias = weight.to(TORCH[type]), bias.to(TORCH[type])
        t, eps = ctypes.c_int(type), ctypes.c_float(1e-5)
        op = self.library.op
        ours, function = {
            "softmax": (lambda: op("softmax_batched", out, x, t, rows, cols), lambda x, w, b: F.softmax(x, -1)),
            "rms_norm": (lambda: op("rms_norm_batched", out, x, weight, t, rows, cols, eps),
                         lambda x, w, b: F.rms_norm(x, (cols,), w, 1e-5)),
            "layer_norm": (lambda: op("layer_norm_batched", out, x, weight, bias, t, rows, cols, eps),
                           lambda x, w, b: F.layer_norm(x, (cols,), w, b, 1e-5)),
        }[operation]

        def exact():
            some = torch.randint(rows, (min(rows, 64),), device="cuda")
            values = function(x[some].double(), weight.double(), bias.double())
            return out[some], values, values.abs() + (0 if operation == "softmax" else 1 + weight.abs().double() + bias.abs().double())

        return ours, lambda: function(x, peer_weight, peer_bias), out, exact

    def make_array(self, pool, operation):
        return drawn_arrays.make(self.library, pool, operation, self.sizes)

    def make_linear(self, pool, _):
        type, m, k, n = self.sizes
        x, w, y = pool.take(F32, m * k).view(m, k), pool.take(type, n * k).view(n, k), torch.empty(m, n, device="cuda")
        narrow, weight = x.to(TORCH[type]), Weight(w.data_ptr(), type, 0, n, k)
        op = self.library.op

        def exact():
            some = torch.randint(n, (min(n, 256),), device="cuda")
            left, right = x.double(), w[some].mT.double()
            return y[:, some], left @ right, left.abs() @ right.abs()

        return lambda: op("linear", y, x, ctypes.byref(weight), None, m), lambda: F.linear(narrow, w), y, exact

    def make_attention(self, pool, _):
        type, batch, kv_heads, group, queries, keys, dim, causal = self.sizes
        heads = kv_heads * group
        q = pool.take(type, batch * heads * queries * dim).view(batch, heads, queries, dim)
        k, v = (pool.take(type, batch * kv_heads * keys * dim).view(batch, kv_heads, keys, dim) for _ in range(2))
        out = torch.empty_like(q)
        arguments = Attention(out.data_ptr(), q.data_ptr(), k.data_ptr(), v.data_ptr(), None, None, batch, queries, heads, kv_heads,
                              dim, heads * queries * dim, queries * dim, dim, keys, keys, keys - queries, 0, dim**-0.5,
                              int(causal), type, type, 0)

        def exact():
            rows = torch.randint(queries, (min(queries, 16),), device="cuda")
            left = q[:1, :, rows].double()
            scores = left @ k[:1].double().repeat_interleave(group, 1).mT * dim**-0.5
            if causal:
                scores.masked_fill_(torch.arange(keys, device="cuda") > rows[:, None] + keys - queries, float("-inf"))
            values = v[:1].double().repeat_interleave(group, 1)
            weights = scores.softmax(-1)
            return out[:1, :, rows], weights @ values, weights @ values.abs()

        op = self.library.op
        return (lambda: op("attention", ctypes.byref(arguments)),
                lambda: F.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=group > 1), out, exact)


# The step of subnormal numbers, to which each product is rounded, and what makes normal numbers subnormal.
SUBNORMAL, TINY = 2.0**-149, 2.0**-130
# The most that a result may differ, of its magnitudes' sum and of itself, and the least: halves below 2^-14 are 2^-24 apart.
TOLERANCE = {F32: (1e-5, 1e-5, 0), F16: (2e-3, 2**-10, 2**-25), BF16: (1e-2, 2**-8, 0)}


def wrong(type, values, exact, magnitude, operation):
    """How far values are outside the tolerance, 0 for none."""
    of_sum, of_itself, least = TOLERANCE[type]
    if operation == "matmul":
        of_sum = 1e-6 if type != F32 else 2e-6  # 16-bit factors are exact: the sum is in float32, the result rounded once
    if operation == "linear":
        of_sum = 2**-11 if type == F16 else 2**-8  # x is rounded to the weights' type
    allowed = of_sum * magnitude + of_itself * exact.abs() + least
    excess = (values.double() - exact).abs() / allowed.clamp_min(1e-300)
    finite = torch.isfinite(values).all()
    return 0.0 if finite and not (excess > 1).any() else float("inf") if not finite else float(excess.max())


class Stopped(Exception):
    """The time is over, or a signal said so."""


def check(options, library, pool, seed):
    draw, count = Draw(seed, 2048), collections.Counter()
    families = options.family or [f for f in FAMILIES if FAMILIES[f]]
    begin, last, stopped = time.monotonic(), 0.0, False
    try:
        for i in range(options.check):
            options.in_time()
            operation, sizes = draw.case(draw.random.choice(families))
            nbytes, products = cost(operation, sizes)
            if nbytes > 1 << 26 or products > 1 << 32:
                count["too large"] += 1
                continue
            subnormal = operation == "matmul" and sizes[0] == F32 and i % 8 == 0
            case = Case(library, pool, operation, sizes, 1, TINY if subnormal else 1.0)
            try:
                case.ours[0]()
                library.synchronize()
            except Unsupported:
                count["without a kernel"] += 1
                print(f"no kernel: {describe(operation, sizes)}")
                continue
            except RuntimeError as error:
                count["failed"] += 1
                print(f"{error}: {describe(operation, sizes)}")
                continue
            excess = wrong(sizes[0], *case.exact(), operation)
            count["wrong" if excess else "right"] += 1
            if excess:
                what = describe(operation, sizes) + " of subnormal numbers" * subnormal
                print(f"wrong, {excess:.3g} times the tolerance: {what} ({library.kernel()})", flush=True)
            if sys.stderr.isatty() and time.monotonic() - last > 1:
                last = time.monotonic()
                print(f"\r{i + 1} of {options.check}", end="", file=sys.stderr)
    except Stopped:
        stopped = True
    print(f"seed {seed}: " + ", ".join(f"{n} {what}" for what, n in count.items()) + f" in {time.monotonic() - begin:.0f} s", flush=True)
    return count["wrong"] + count["failed"] + count["without a kernel"] == 0, stopped


class Rows(list):
    """The rows of a seed, each saved as it comes."""

    def __init__(self, options, seed):
        super().__init__()
        self.out, self.seed = options.out, seed

    def add(self, row):
        self.append(row)
        if self.out and len(self) == 1:
            suites.replace(self.out, [row], lambda row: row.get("seed"))  # those of an earlier run leave
        elif self.out:
            suites.append(self.out, row)
        if row["ratio"] < 0.9:
            self.show(row)

    def show(self, row):
        print(f"{row['ratio']:6.2f} {row['ours'] or 0:10.1f} {row['peer'] or 0:10.1f}  {row['case']}  {row['kernel']}", flush=True)

    def finish(self, most):
        """Sorts them, also where they are saved, and shows those that are slower than PyTorch."""
        self.sort(key=lambda row: row["ratio"])
        if self.out and self:
            suites.replace(self.out, self, lambda row: row.get("seed"))
        print("the slowest:")
        for row in [row for row in self if row["ratio"] < 1][:most]:
            self.show(row)


def medians(replays, count):
    """Medians of the replays, taken in turn; None where all are far too short for a row."""
    for _ in range(2):
        first = [replay() for replay in replays]
    if max(first) < 0.8 * SHORTEST:
        return None
    return alternate(replays, min(count, LONG_REPLAYS) if max(first) > LONG else count, first=0)


class Measurement:
    def __init__(self, options, library, pool):
        self.options, self.library, self.pool = options, library, pool
        properties = torch.cuda.get_device_properties(0)
        self.l2 = properties.L2_cache_size
        self.device = f"{properties.name}, {properties.multi_processor_count} SMs" + options.portable * ", capability taken as 8.6"
        self.command = shlex.join(["python3", *sys.argv])
        self.earlier = Products() if options.portable else None
        self.choosing = 0.0  # seconds in cuBLASLt's algorithms

    def row(self, operation, sizes, name, nbytes, products, seed):
        """The row of a case, or None."""
        library, options = self.library, self.options
        case = Case(library, self.pool, operation, sizes, max(1, min(12, 2 * self.l2 // nbytes)))
        try:
            case.peer[0]()
            torch.cuda.synchronize()
        except RuntimeError as error:  # such as memory for scores
            print(f"  {name}: PyTorch: {str(error).splitlines()[0][:90]}", file=sys.stderr)
            torch.cuda.synchronize()  # an error of a kernel is raised again: nothing can be measured after it
            return None
        calls = max(1, 6 // len(case.ours)) if nbytes < 1 << 26 and products < 1 << 34 else 1
        try:
            case.ours[0]()
            library.synchronize()
            excess = wrong(sizes[0], *case.exact(), operation)
            kernel = library.kernel()
            replay = library.graph(case.ours * calls)
        except (Unsupported, RuntimeError) as error:
            return {"case": name, "ratio": 0.0, "ours": None, "peer": None, "kernel": str(error), "seed": seed}
        try:
            times = medians([replay, torch_graph(case.peer * calls, apart=True)], options.replays)
            if times is None or max(times) < SHORTEST:
                return None
            ours, peer = times
            begin = time.monotonic()
            pytorch, others = peer, case.portable_peers(self.earlier) if options.portable and peer < ours else []
            if others:
                ours, *times = alternate([replay, *(torch_graph(calls_of * calls) for calls_of in others)], options.replays)
                peer = min(times)
            self.choosing += time.monotonic() - begin
        except RuntimeError as error:  # an illegal access: nothing can be measured after it
            sys.exit(f"bench_shapes: {name} ({kernel}): {error}")
        finally:
            library.release()
        suite = ("portable" if options.portable else "linear" if operation == "linear" else
                 "arrays" if operation in drawn_arrays.OPERATIONS else "shapes")
        return {"suite": suite, "case": name, "ours": round(ours, 2), "peer": round(peer, 2),
                "unit": "us", "ratio": round(peer / ours, 3), "error": excess, "kernel": kernel, "seed": seed,
                "device": self.device, "command": self.command, **({"pytorch": round(pytorch, 2)} if others else {})}

    def draw(self, rows, seed):
        """Adds the rows of a seed."""
        options, draw = self.options, Draw(seed, 16384)
        families = {f: FAMILIES[f] or 1 for f in options.family} if options.family else FAMILIES
        for _ in range(20 * options.rows):
            options.in_time()
            operation, sizes = draw.case(draw.random.choices(list(families), families.values())[0])
            nbytes, products = cost(operation, sizes)
            name = describe(operation, sizes)
            if max(nbytes, largest(operation, sizes)) > MOST_BYTES or products > MOST_PRODUCTS or not all(text in name for text in options.case):
                continue
            if 4 * nbytes < 1 << 20 and products < 1 << 24:
                continue  # a launch and little else on either side
            row = self.row(operation, sizes, name, nbytes, products, seed)
            if row:
                rows.add(row)
                if sys.stderr.isatty():
                    print(f"\r{len(rows)} of {options.rows}", end="", file=sys.stderr)
            if len(rows) == options.rows:
                return

    def seed(self, seed):
        """Whether a seed's rows pass, and whether the run was stopped."""
        options, rows, stopped, begin, self.choosing = self.options, Rows(self.options, seed), False, time.monotonic(), 0.0
        try:
            self.draw(rows, seed)
        except Stopped:
            stopped = True
        rows.finish(options.show)
        least, share, mean = (0.6, 0.05, 1.0) if options.portable else (0.7, 0.03, 1.3)

        def figures(ratios):
            slow, slower = (sum(ratio < bound for ratio in ratios) for bound in (least, 0.9))
            geometric = math.exp(sum(math.log(max(ratio, 1e-3)) for ratio in ratios) / max(1, len(ratios)))
            passed = not slow and slower <= share * len(ratios) and geometric >= mean
            return passed, (f"{slow} below {least}, {slower} below 0.9 ({100 * slower / max(1, len(ratios)):.1f} %), "
                            f"geometric mean {geometric:.2f}")

        wrong_rows = sum(row.get("error", 1) != 0 for row in rows)
        by_family = collections.defaultdict(list)
        for row in rows:
            by_family[row["case"].split(" ")[0]].append(math.log(max(row["ratio"], 1e-3)))
        for family, logs in by_family.items():
            print(f"{family}: {len(logs)} rows, geometric mean {math.exp(sum(logs) / len(logs)):.2f}")
        if options.portable:
            with_hopper = [row["pytorch"] / row["ours"] if "pytorch" in row else row["ratio"] for row in rows]
            print(f"beside PyTorch with Hopper's instructions: {figures(with_hopper)[1]}")
        passed, text = figures([row["ratio"] for row in rows])
        print(f"seed {seed}: {len(rows)} rows" + f" of {options.rows}, stopped" * stopped + f", {text}, {wrong_rows} wrong; "
              f"{time.monotonic() - begin:.1f} s" + f", {self.choosing:.1f} of them for cuBLASLt's earlier kernels" * options.portable, flush=True)
        return passed and not wrong_rows and not stopped, stopped


def main():
    root = pathlib.Path(__file__).resolve().parent.parent
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", "--seeds", dest="seeds", required=True, metavar="N,...",
                        type=lambda text: [int(seed) for seed in text.split(",")], help="one or several, measured in turn")
    parser.add_argument("--rows", type=int, default=400)
    parser.add_argument("--family", nargs="*", choices=list(FAMILIES))
    parser.add_argument("--case", nargs="*", default=[], help="only cases whose name holds all of these texts")
    parser.add_argument("--check", type=int, metavar="N", help="compare the values of N cases with float64")
    parser.add_argument("--portable", action="store_true", help="hold the rows to the gate for VIBRANT_CUDA_CAPABILITY=86")
    parser.add_argument("--library", type=pathlib.Path, default=root / "build/cuda/libvibrant_cuda.so")
    parser.add_argument("--out", type=pathlib.Path, help="write the rows as JSON lines; those of other seeds stay")
    parser.add_argument("--replays", type=int, default=7)
    parser.add_argument("--show", type=int, default=60, help="how many of the slower rows are printed")
    parser.add_argument("--limit", type=float, help="stop after so many seconds")
    options = parser.parse_args()
    if not torch.cuda.is_available():
        sys.exit("bench_shapes: PyTorch finds no CUDA device here")
    if not options.library.exists():
        sys.exit(f"bench_shapes: {options.library} is missing: run scripts/compile-cuda-kernels.sh")
    options.signal = None

    def stop(number, _):
        options.signal = number

    def in_time():
        if options.signal or (options.limit and time.monotonic() - STARTED > options.limit):
            raise Stopped

    options.in_time = in_time
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cuda.enable_cudnn_sdp(not options.portable)
    torch.manual_seed(options.seeds[0])
    library, pool = Library(options.library), Pool(4 * MOST_BYTES, options.seeds[0])  # 16-bit elements: an eighth of the bytes
    measurement = None if options.check else Measurement(options, library, pool)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop)
    print(f"started after {time.monotonic() - STARTED:.1f} s", flush=True)
    passed = []
    for seed in options.seeds:
        this, stopped = check(options, library, pool, seed) if options.check else measurement.seed(seed)
        passed.append(this)
        if stopped:
            break
    left = options.seeds[len(passed):]
    if left:
        print("stopped before seeds " + ", ".join(map(str, left)))
    sys.exit(0 if all(passed) and not left else 1)


if __name__ == "__main__":
    main()
