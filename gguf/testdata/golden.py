"""Writes golden.gguf by gguf 0.19.0 and numpy 2.4.6 (pip install gguf numpy)."""
import numpy as np
from gguf import GGMLQuantizationType, GGUFWriter, GGUFValueType, quants

w = GGUFWriter("golden.gguf", "llama")
w.add_uint32("llama.block_count", 2)
w.add_float32("rope.scale", 0.1)
w.add_float64("epsilon", 1e-5)
w.add_bool("tied", True)
w.add_string("general.name", "Gr\u00fc\u00dfe")
w.add_int8("i8", -100)
w.add_uint64("u64", 2**64 - 1)
w.add_array("tokens", ["a", "", "\u20ac"])
w.add_array("ids", [-1, 0, 7])
w.add_key_value("flags", [True, False], GGUFValueType.ARRAY, sub_type=GGUFValueType.BOOL)
x = np.arange(128, dtype=np.float32).reshape(2, 64) - 60
w.add_tensor("plain.weight", x)
w.add_tensor("half.weight", x.astype(np.float16))
w.add_tensor("blocks.weight", quants.quantize(x, GGMLQuantizationType.Q8_0), raw_dtype=GGMLQuantizationType.Q8_0)
w.add_tensor("double", np.array([0.5, -2.0]))
w.write_header_to_file()
w.write_kv_data_to_file()
w.write_tensors_to_file()
w.close()
