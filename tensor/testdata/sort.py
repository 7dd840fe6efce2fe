"""Writes sort.json: what numpy makes of sorts. Run in this folder; numpy 2.4 wrote the file. numpy sorts in ascending order alone: a
stable descending one is the ascending one of the reversed line, reversed."""
import json
import numpy as np

nan, inf = np.nan, np.inf
inputs = {
    "ties": np.float32([[2, 7, 7, 1, 2], [3, 3, 3, 3, 3], [-1, 0, -0.0, 0, -5]]),
    "nan": np.float32([[1, nan, 3, inf], [-inf, 2, nan, nan], [5, -0.0, 0.0, -nan]]),
    "cube": (np.arange(24, dtype=np.float32) * 7 % 11 - 5).reshape(2, 3, 4),
    "line": (np.arange(200, dtype=np.float32) * 37 % 101 - 50),
}


def argsort(a, dim, descending):
    if not descending:
        return a.argsort(dim, stable=True)
    return np.flip(a.shape[dim] - 1 - np.flip(a, dim).argsort(dim, stable=True), dim)


M = float(np.finfo(np.float32).max)  # for infinity, which JSON has not; NaN is null
numbers = lambda a: [None if v != v else max(-M, min(M, float(v))) for v in a.ravel()]
out = []
for name, a in inputs.items():
    for dim in range(a.ndim):
        for descending in (False, True):
            at = argsort(a, dim, descending)
            out.append({"name": name, "shape": list(a.shape), "input": numbers(a), "dim": dim, "descending": descending,
                        "values": numbers(np.take_along_axis(a, at, dim)), "indices": [int(i) for i in at.ravel()]})
with open("sort.json", "w") as f:
    json.dump(out, f, separators=(",", ":"))
    f.write("\n")
