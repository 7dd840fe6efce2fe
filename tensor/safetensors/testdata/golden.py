"""Writes the golden files by safetensors 0.8.0, numpy 2.4.6 and ml_dtypes 0.6.0 (pip install safetensors numpy ml_dtypes)."""
import json
import os

import ml_dtypes
import numpy as np
from safetensors.numpy import save_file

rng = np.random.default_rng(11)
floats = rng.standard_normal((3, 5)).astype(np.float32)
save_file({
    "f32": floats, "f16": floats.astype(np.float16), "bf16": floats.astype(ml_dtypes.bfloat16),
    "i32": np.array([[-2**31, -1], [0, 2**31 - 1]], np.int32), "i8": np.arange(-4, 4, dtype=np.int8).reshape(2, 2, 2),
    "u8": np.array([0, 1, 254, 255], np.uint8), "bool": np.array([True, False, True]),
    "scalar": np.array(2.5, np.float32), "empty": np.zeros((0, 4), np.float32), 'quote " \\ \n <&> \u00e9\u2028': np.ones(1, np.uint8),
}, "stored.safetensors", {"format": "np"})
save_file({
    "f64": np.array([0.1, -1e300, np.pi]), "i64": np.array([-2**31, 7, 2**31 - 1], np.int64), "large": np.array([1, 2**31], np.int64),
    "i16": np.array([-2**15, 2**15 - 1], np.int16), "u16": np.array([0, 2**16 - 1], np.uint16), "u32": np.array([5, 2**32 - 1], np.uint32),
    "u64": np.array([2**64 - 1, 3], np.uint64), "f8": np.ones(2, ml_dtypes.float8_e4m3fn),
}, "other.safetensors")
os.makedirs("sharded", exist_ok=True)
parts = {"model-00001-of-00002.safetensors": {"a": floats, "b": floats[0]}, "model-00002-of-00002.safetensors": {"c": floats[1:]}}
for file, tensors in parts.items():
    save_file(tensors, os.path.join("sharded", file), {"format": "pt"})
index = {"metadata": {"total_size": 120}, "weight_map": {name: file for file, tensors in parts.items() for name in tensors}}
with open("sharded/model.safetensors.index.json", "w") as f:
    json.dump(index, f, indent=2)
with open("stored.json", "w") as f:  # the floats as numpy prints them, exactly
    json.dump([float(v) for v in floats.ravel()], f)
