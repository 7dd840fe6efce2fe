"""Writes numpy.json: what numpy makes of views, broadcasting and reductions. Run in this folder; numpy 2.4 wrote the file."""
import json
import numpy as np

x = np.arange(2 * 3 * 4, dtype=np.float32).reshape(2, 3, 4)
row = np.array([1, 10, 100, 1000], dtype=np.float32)
column = np.array([[1], [2], [3]], dtype=np.float32)
cases = {
    "transpose": x.transpose(0, 2, 1),
    "permute": x.transpose(2, 0, 1),
    "slice along": x[:, :, 1:4:2],
    "slice of transpose": x.transpose(2, 1, 0)[1:3],
    "select": x[:, 1],
    "squeeze": x[:, 1:2].squeeze(1),
    "unsqueeze": x[:, None],
    "broadcast": np.broadcast_to(column, (2, 3, 2)),
    "reshape view": x[:, :, ::2].reshape(2, 6),
    "reshape copy": x.transpose(0, 2, 1).reshape(4, 6),
    "reshape split": x.transpose(0, 2, 1)[:, ::2].reshape(2, 2, 3, 1),
    "add row": x + row,
    "add column": x + column,
    "outer": column * row,
    "sub transposed": x - np.swapaxes(np.arange(24, dtype=np.float32).reshape(2, 4, 3), 1, 2) * 3,
    "minimum nan": np.minimum(np.float32([1, np.nan, -2, np.nan]), np.float32([np.nan, 1, -3, np.nan])),
    "sum of slices": x[0, :, :2] + x[1, :, 2:],
}
nan = np.float32([[1, np.nan, 3], [np.inf, -np.inf, 2], [np.nan, 5, np.nan], [-1, -1, -1]])
cases |= {
    "sum 02": x.sum((0, 2)), "sum of transpose": x.transpose(2, 0, 1).sum(1), "mean": x.mean(-1), "prod": (x[:, :, 1:3] / 8).prod((0, 2)),
    "var": x.var((0, 2), ddof=1), "norm": np.linalg.norm(x, axis=1), "logsumexp": np.logaddexp.reduce(x, axis=2),
    "max nan": nan.max(1), "min nan": nan.min(1), "argmax nan": nan.argmax(1), "argmin nan": nan.argmin(1), "sum nan": nan.sum(0),
    "argmax ties": np.float32([[2, 7, 7], [3, 3, 3]]).argmax(1), "any": (x > 22).any((0, 1)), "all": (x < 12).all((1, 2)),
    "empty sum": np.zeros((0, 3), np.float32).sum(0), "empty prod": np.zeros((0, 3), np.float32).prod(0),
    "cumsum": x.cumsum(1), "take": x.take([2, 0, 2], axis=1), "take along": np.take_along_axis(x, np.array([[[3, 0]], [[1, 1]]]).repeat(3, 1), 2),
    "eye": np.eye(3, 4), "tril": np.tril(x, 1), "triu": np.triu(x, -1), "arange": np.arange(5) * 0.5 - 1, "one hot": np.eye(4)[[3, 0, 1]],
    "concat": np.concatenate([x, x[:, :1] * 2], 1), "stack": np.stack([row, row * 2], 1), "pad": np.pad(column, ((0, 0), (1, 2)), constant_values=9),
    "tile": np.tile(column.T, (2, 3)), "matmul transposed": x[0].T @ x[1], "matmul sliced": x[0, :, 1:3] @ x[1, :2],
    "batch transposed": x @ np.swapaxes(x, 1, 2), "batches broadcast": x[:, None] @ np.swapaxes(x, 1, 2)[None], "batch of one": x @ x[:1, 0, :, None],
    "matrix times vector": x @ row, "dot": row @ row, "row written to each": np.broadcast_to(row, (2, 3, 4)),
    "row added into each": np.broadcast_to(row * 2, (2, 3, 4)), "column written to a view": np.insert(column, [0, 1], 0, axis=1),
}
out = {}
M = float(np.finfo(np.float32).max)  # for infinity, which JSON has not; NaN is null
for name, a in cases.items():
    out[name] = {"shape": list(a.shape), "values": [None if v != v else max(-M, min(M, float(v))) for v in a.ravel()]}
with open("numpy.json", "w") as f:
    json.dump(out, f, indent=None, separators=(",", ":"))
    f.write("\n")

prints = {
    "arange": x, "fractions": np.float32([[1.5, 2.25], [-3, 100.125]]), "tenth": np.float32([0.1, 0.2, 0.30000001, 1 / 3]), "long": np.arange(2000, dtype=np.float32),
    "wide": np.arange(40, dtype=np.float32) * 1.5, "matrix": np.arange(4096, dtype=np.float32).reshape(64, 64), "int": np.arange(12, dtype=np.int32).reshape(3, 4) * -11,
    "bool": np.eye(3) > 0, "scientific": np.float32([1e-9, 1, 2.5e9]), "nan": np.float32([np.nan, 1, -np.inf]), "empty": np.zeros((0, 3), np.float32),
    "digits": np.float32([[1.658512, -1.2917449, -0.31989893], [-5.1794834, 0.3942, 2]]), "wrapped": np.arange(60, dtype=np.float32) * np.float32(0.37),
    "half": np.arange(8, dtype=np.float16) / 7, "half, scientific": np.float16([0.0001, 1 / 3, 65504]), "half, great": np.float16([[2000, 1]]),
    "million": np.float32([1e6, 5.5e3]), "number": np.float32(3).reshape(()), "small number": np.float32(1.5e-5).reshape(()),
    "all true": np.ones((1, 2), bool), "true": np.True_.reshape(()), "great number": np.float32(86586157).reshape(()), "great half": np.float16(1000).reshape(()),
    "middle": np.float32([-338075584, 1e-30]), "nested": np.arange(80, dtype=np.int32).reshape(2, 5, 8) - 1000000000,
    "scalar": np.float32(2.5).reshape(()), "small": np.float32([1e-5, 2e-5]), "ratio": np.float32([0.001, 5000]),
}
with open("numpy_prints.json", "w") as f:
    json.dump({name: str(a) for name, a in prints.items()}, f, indent=1)
    f.write("\n")
