"""Times PyTorch's operations on a GPU for gpu.go: a line "CASE MICROSECONDS" each, the median of nine replays of a graph of three calls."""
import statistics

import torch

N, SETS = 64 << 20, 3
torch.manual_seed(1)
dev = "cuda"


class Set:
    def __init__(self):
        self.x, self.y = torch.randn(N, device=dev), torch.randn(N, device=dev)
        self.p = self.y.abs()
        self.xb, self.yb, self.xh = self.x.bfloat16(), self.y.bfloat16(), self.x.half()
        self.xi, self.yi = self.x.view(torch.int32), self.y.view(torch.int32)
        self.x8, self.y8 = (torch.randint(-128, 128, (N,), device=dev, dtype=torch.int8) for _ in range(2))
        self.xu = self.x8.view(torch.uint8)
        self.m, self.rows = self.x.view(8192, 8192), self.x.view(-1, 4096)
        self.row, self.column = torch.randn(1, 8192, device=dev), torch.randn(8192, 1, device=dev)
        self.weight = torch.randn(4096, device=dev)


sets = [Set() for _ in range(SETS)]
picked = torch.randint(0, N // 4096, (1 << 16,), device=dev)
edge = torch.randn(4096, 4096, device=dev).bfloat16()
F = torch.nn.functional
cases = {
    "copy F32": lambda t: t.x.clone(),
    "add F32": lambda t: t.x + t.y,
    "add BF16": lambda t: t.xb + t.yb,
    "add I32": lambda t: t.xi + t.yi,
    "add I8": lambda t: t.x8 + t.y8,
    "add row F32": lambda t: t.m + t.row,
    "add column F32": lambda t: t.m + t.column,
    "mul scalar F32": lambda t: t.x * 3,
    "exp F32": lambda t: t.x.exp(),
    "sin F32": lambda t: t.x.sin(),
    "pow F32": lambda t: t.p.pow(t.y),
    "gelu BF16": lambda t: F.gelu(t.xb),
    "silu F16": lambda t: F.silu(t.xh),
    "swiglu F32": lambda t: F.silu(t.x) * t.y,
    "swiglu BF16": lambda t: F.silu(t.xb) * t.yb,
    "less F32": lambda t: t.x < t.y,
    "F32 to BF16": lambda t: t.x.bfloat16(),
    "U8 to F32": lambda t: t.xu.float(),
    "tanh(x*y+x) F32": lambda t: torch.tanh(t.x * t.y + t.x),
    "copy of transposed F32": lambda t: t.m.T.contiguous(),
    "concat F32": lambda t: torch.cat([t.x, t.y]),
    "rand F32": lambda t: torch.rand(N, device=dev),
    "randn F32": lambda t: torch.randn(N, device=dev),
    "sum F32": lambda t: t.x.sum(),
    "sum of rows F32": lambda t: t.m.sum(1),
    "sum of columns F32": lambda t: t.m.sum(0),
    "argmax of rows F32": lambda t: t.m.argmax(1),
    "variance of rows F32": lambda t: t.m.var(1),
    "cumsum of rows F32": lambda t: t.rows.cumsum(1),
    "softmax F32": lambda t: t.rows.softmax(1),
    "rms norm F32": lambda t: F.rms_norm(t.rows, (4096,), t.weight, 1e-6),
    "layer norm F32": lambda t: F.layer_norm(t.rows, (4096,), t.weight, t.weight, 1e-6),
    "select 65536 rows F32": lambda t: t.rows.index_select(0, picked),
    "sort 1048576 F32": lambda t: t.x[: 1 << 20].sort(stable=True),
    "sort of rows 4096x4096 F32": lambda t: t.rows[:4096].sort(dim=1, stable=True),
    "top 50 of 128 x 131072 F32": lambda t: t.x[: 1 << 24].view(128, 1 << 17).topk(50, dim=1),
    "matmul 4096 BF16": lambda t: edge @ edge,
}


def replayed(call):
    for t in sets:
        call(t)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for t in sets:
            call(t)
    times = []
    for _ in range(10):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        graph.replay()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end) * 1e3 / SETS)
    return statistics.median(times[1:])


for name, f in cases.items():
    try:
        print(f"{name}\t{replayed(f):.1f}", flush=True)
    except RuntimeError as e:  # what a graph cannot hold
        torch.cuda.synchronize()
        print(f"{name}: {e}".splitlines()[0], file=__import__("sys").stderr, flush=True)
