"""Times PyTorch's operations on the CPU for main.go: a line "CASE MICROSECONDS" each, the minimum of many runs."""
import time

import torch

torch.set_num_threads(1)
x, y = torch.randn(1024, 1024), torch.randn(1024, 1024)
a, b = torch.randn(512, 512), torch.randn(512, 512)
line = torch.randn(1 << 20)
bytes_, truths, positive = x.to(torch.int32).to(torch.uint8), x > y, x.abs()
cases = {
    "add 1024x1024": lambda: x + y,
    "exp 1024x1024": lambda: torch.exp(x),
    "sin 1024x1024": lambda: torch.sin(x),
    "log 1024x1024": lambda: torch.log(positive),
    "tanh 1024x1024": lambda: torch.tanh(x),
    "pow 1024x1024": lambda: torch.pow(positive, y),
    "gelu 1024x1024": lambda: torch.nn.functional.gelu(x),
    "add u8 1024x1024": lambda: bytes_ + bytes_,
    "and 1024x1024": lambda: truths & truths,
    "less 1024x1024": lambda: x < y,
    "where 1024x1024": lambda: torch.where(truths, x, y),
    "max of rows 1024x1024": lambda: x.amax(1),
    "max of columns 1024x1024": lambda: x.amax(0),
    "argmax of rows 1024x1024": lambda: x.argmax(1),
    "logsumexp of rows 1024x1024": lambda: x.logsumexp(1),
    "var of rows 1024x1024": lambda: x.var(1),
    "cumsum of rows 1024x1024": lambda: x.cumsum(1),
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
