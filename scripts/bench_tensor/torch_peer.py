"""Times PyTorch's operations on the CPU for main.go: a line "CASE MICROSECONDS" each, the minimum of many runs."""
import time

import torch

torch.set_num_threads(1)
x, y = torch.randn(1024, 1024), torch.randn(1024, 1024)
a, b = torch.randn(512, 512), torch.randn(512, 512)
line = torch.randn(1 << 20)
cases = {
    "add 1024x1024": lambda: x + y,
    "exp 1024x1024": lambda: torch.exp(x),
    "sum 1024x1024": lambda: x.sum(),
    "sum of rows 1024x1024": lambda: x.sum(1),
    "sum of columns 1024x1024": lambda: x.sum(0),
    "softmax 1024x1024": lambda: torch.softmax(x, 1),
    "matmul 512x512x512": lambda: a @ b,
    "argsort 1048576": lambda: line.argsort(dim=0, stable=True),
    "sort of rows 1024x1024": lambda: x.sort(dim=1, stable=True),
}
for name, f in cases.items():
    best, end = float("inf"), time.perf_counter() + 1
    while time.perf_counter() < end:
        start = time.process_time()
        f()
        best = min(best, time.process_time() - start)
    print(f"{name}\t{best * 1e6:.1f}", flush=True)
