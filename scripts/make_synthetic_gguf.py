#!/usr/bin/env python3
"""Write a GGUF file with the shapes and the types of a published model, and random weights of a realistic scale.

    make_synthetic_gguf.py qwen3-30b-a3b FILE.gguf [--layers N] [--experts N] [--types NAME] [--adapter RANKS]
    make_synthetic_gguf.py qwen3-30b-a3b --active         writes no file: what a token reads of it

For measuring speed and memory, and for comparing engines on one file, where the weights cannot be had: 18 GB in half a
minute. A tensor repeats a stretch of a few thousand random blocks. The vocabulary is `no_vocab`. Needs Python alone.
`--types iq2_bn` writes ternary weights for ik_llama.cpp, which has a type of its own for them and does not read TQ2_0.
"""
import argparse, math, random, struct

MODELS = {
    # Yang et al. 2025, "Qwen3 Technical Report"; the types of llama.cpp's Q4_K_M
    "qwen3-30b-a3b": dict(arch="qwen3moe", hidden=2048, layers=48, heads=32, kv_heads=4, dim=128, vocab=151936, base=1e6, eps=1e-6,
                          experts=128, used=8, width=768, context=40960, types="q4_k_m"),
    # OpenAI 2025, "gpt-oss-120b & gpt-oss-20b Model Card"; experts in MXFP4, the others in Q8_0
    "gpt-oss-20b": dict(arch="gpt-oss", hidden=2880, layers=24, heads=64, kv_heads=8, dim=64, vocab=201088, base=150000.0, eps=1e-5,
                        experts=32, used=4, width=2880, context=131072, window=128, types="mxfp4"),
    # Dubey et al. 2024, "The Llama 3 Herd of Models"
    "llama-3-70b": dict(arch="llama", hidden=8192, layers=80, heads=64, kv_heads=8, dim=128, vocab=128256, base=5e5, eps=1e-5,
                        experts=0, width=28672, context=8192, types="q4_k_m"),
    # Yang et al. 2024, "Qwen2.5 Technical Report"
    "qwen2.5-0.5b": dict(arch="qwen2", hidden=896, layers=24, heads=14, kv_heads=2, dim=64, vocab=151936, base=1e6, eps=1e-6,
                         experts=0, width=4864, context=32768, types="q4_k_m", tied="q6_k"),
    "qwen2.5-1.5b": dict(arch="qwen2", hidden=1536, layers=28, heads=12, kv_heads=2, dim=128, vocab=151936, base=1e6, eps=1e-6,
                         experts=0, width=8960, context=32768, types="q4_k_m", tied="q6_k"),
    "qwen2.5-3b": dict(arch="qwen2", hidden=2048, layers=36, heads=16, kv_heads=2, dim=128, vocab=151936, base=1e6, eps=1e-6,
                       experts=0, width=11008, context=32768, types="q4_k_m", tied="q6_k"),
    "qwen2.5-7b": dict(arch="qwen2", hidden=3584, layers=28, heads=28, kv_heads=4, dim=128, vocab=152064, base=1e6, eps=1e-6,
                       experts=0, width=18944, context=32768, types="q4_k_m"),
    # Ma et al. 2025, "BitNet b1.58 2B4T Technical Report", and a llama of its size in BF16; the embedding is the output matrix
    "bitnet-2b-4t": dict(arch="bitnet-b1.58", hidden=2560, layers=30, heads=20, kv_heads=5, dim=128, vocab=128256, base=5e5, eps=1e-5,
                         experts=0, width=6912, context=4096, types="tq2_0", tied="f16"),
    "llama-2b-bf16": dict(arch="llama", hidden=2560, layers=30, heads=20, kv_heads=5, dim=128, vocab=128256, base=5e5, eps=1e-5,
                          experts=0, width=6912, context=4096, types="bf16", tied="bf16"),
    # the shapes and types of two small trained files, whose embedding is their vocabulary too
    "smollm2-135m": dict(arch="llama", hidden=576, layers=30, heads=9, kv_heads=3, dim=64, vocab=49152, base=1e5, eps=1e-5,
                         experts=0, width=1536, context=8192, types="q4_1", tied="q8_0"),
    "gemma3-270m": dict(arch="gemma3", hidden=640, layers=18, heads=4, kv_heads=1, dim=256, vocab=262144, base=1e6, eps=1e-6,
                        experts=0, width=2048, context=32768, window=512, types="q4_k_m", tied="q8_0"),
    # small ones of the same kinds, to see that a file opens
    "tiny-qwen3moe": dict(arch="qwen3moe", hidden=256, layers=4, heads=4, kv_heads=2, dim=64, vocab=512, base=1e6, eps=1e-6,
                          experts=8, used=2, width=256, context=4096, types="q4_k_m"),
    "tiny-qwen2": dict(arch="qwen2", hidden=512, layers=4, heads=8, kv_heads=4, dim=64, vocab=512, base=1e6, eps=1e-6,
                       experts=0, width=1024, context=4096, types="q4_k_m"),
    "tiny-bitnet": dict(arch="bitnet-b1.58", hidden=256, layers=4, heads=4, kv_heads=2, dim=64, vocab=512, base=5e5, eps=1e-5,
                        experts=0, width=512, context=4096, types="tq2_0", tied="f16"),
    "tiny-gpt-oss": dict(arch="gpt-oss", hidden=288, layers=4, heads=4, kv_heads=2, dim=64, vocab=512, base=150000.0, eps=1e-5,
                         experts=4, used=2, width=288, context=4096, window=128, types="mxfp4"),
}
STD = 0.02       # of weights
STRETCH = 8192   # different blocks of a type
F32, F16, Q4_1, Q5_0, Q8_0, Q4_K, Q6_K, BF16, TQ2_0, MXFP4, IQ2_BN, ONES = 0, 1, 3, 6, 8, 12, 14, 30, 35, 39, 135, -1
# of most matrices, of those with more bits, and the same of experts
TYPES = {"q4_k_m": (Q4_K, Q6_K, Q4_K, Q6_K), "q4_1": (Q4_1,) * 4, "mxfp4": (Q8_0, Q8_0, MXFP4, MXFP4), "tq2_0": (TQ2_0,) * 4,
         "iq2_bn": (IQ2_BN,) * 4, "bf16": (BF16,) * 4}
TIED = {"f16": F16, "q6_k": Q6_K, "bf16": BF16, "q8_0": Q8_0}  # of an embedding that is the output matrix too
BLOCK = {F32: (1, 4), ONES: (1, 4), F16: (1, 2), BF16: (1, 2), Q4_1: (32, 20), Q5_0: (32, 22), Q8_0: (32, 34), Q4_K: (256, 144),
         Q6_K: (256, 210), TQ2_0: (256, 66), MXFP4: (32, 17), IQ2_BN: (64, 16)}  # elements, bytes
ROW_HEAD = {IQ2_BN: struct.pack("<f", STD)}  # what a row begins with: its scale


def block(kind):
    """A random block, of zero mean and standard deviation STD."""
    scale = (0.5 + random.random()) * STD
    half = lambda x: struct.pack("<e", x)
    if kind == Q8_0:  # d q, q of 8 bits: 74 d
        return half(scale / 74) + random.randbytes(32)
    if kind == Q5_0:  # d (q - 16), q of 5 bits: 9.2 d
        return half(scale / 9.2) + random.randbytes(20)
    if kind == Q4_1:  # d q + m, of 4 bits: 4.6 d
        return half(scale / 4.6) + half(-7.5 * scale / 4.6) + random.randbytes(16)
    if kind == Q4_K:  # d s q - m of the same mean: 257 d
        return half(scale / 257) + half(7.5 * scale / 257) + random.randbytes(140)
    if kind == Q6_K:  # d s (q - 32), s of 8 bits: 74 * 18.5 d
        return random.randbytes(208) + half(scale / (74 * 18.5))
    if kind == F16:
        return half(random.gauss(0, STD))
    if kind == BF16:
        return struct.pack("<f", random.gauss(0, STD))[2:]
    if kind == TQ2_0:  # one scale for all of a matrix, as BitNet has it
        return bytes(sum(random.randrange(3) << (2 * i) for i in range(4)) for _ in range(64)) + half(STD)
    if kind == IQ2_BN:
        return bytes(sum(random.randrange(3) << (2 * i) for i in range(4)) for _ in range(16))
    if kind == MXFP4:  # 2^e f, f of 0 to 6 with a sign: 3.1 * 2^e
        return bytes([round(math.log2(scale / 3.1)) + 127]) + random.randbytes(16)
    return struct.pack("<f", 1.0 if kind == ONES else random.gauss(0, STD))


def tensors(m):
    """name, dimensions with the contiguous one first, type: in rows of no whole blocks of 256, 5 and 8 bits for 4 and 6"""
    for name, dims, kind in tensors_of_256(m):
        yield name, dims, {Q4_K: Q5_0, Q6_K: Q8_0}.get(kind, kind) if dims[0] % 256 else kind


def tensors_of_256(m):
    plain, better, expert, expert_better = TYPES[m["types"]]
    hidden, q, kv, experts, width = m["hidden"], m["heads"] * m["dim"], m["kv_heads"] * m["dim"], m["experts"], m["width"]
    yield "token_embd.weight", (hidden, m["vocab"]), TIED[m["tied"]] if "tied" in m else plain
    for i in range(m["layers"]):
        p, n = f"blk.{i}.", m["layers"]
        more = i < n // 8 or i >= 7 * n // 8 or (i - n // 8) % 3 == 2  # these layers of a Q4_K_M file have more bits
        yield p + "attn_norm.weight", (hidden,), ONES
        yield p + "attn_q.weight", (hidden, q), plain
        yield p + "attn_k.weight", (hidden, kv), plain
        yield p + "attn_v.weight", (hidden, kv), better if more else plain
        yield p + "attn_output.weight", (q, hidden), plain
        if m["arch"] == "qwen2":
            for name, size in ("attn_q.bias", q), ("attn_k.bias", kv), ("attn_v.bias", kv):
                yield p + name, (size,), F32
        if m["arch"] == "bitnet-b1.58":
            yield p + "attn_sub_norm.weight", (q,), ONES
            yield p + "ffn_sub_norm.weight", (width,), ONES
        if m["arch"] == "gemma3":
            yield p + "post_attention_norm.weight", (hidden,), ONES
            yield p + "post_ffw_norm.weight", (hidden,), ONES
        if m["arch"] in ("qwen3moe", "gemma3"):
            yield p + "attn_q_norm.weight", (m["dim"],), ONES
            yield p + "attn_k_norm.weight", (m["dim"],), ONES
        if m["arch"] != "gpt-oss":
            yield p + "ffn_norm.weight", (hidden,), ONES
        else:
            for name, size in ("attn_q.bias", q), ("attn_k.bias", kv), ("attn_v.bias", kv), ("attn_output.bias", hidden), ("attn_sinks.weight", m["heads"]):
                yield p + name, (size,), F32
            yield p + "post_attention_norm.weight", (hidden,), ONES
            yield p + "ffn_gate_inp.bias", (experts,), F32
            for name, size in ("gate", width), ("up", width), ("down", hidden):
                yield p + f"ffn_{name}_exps.bias", (size, experts), F32
        if not experts:
            yield p + "ffn_gate.weight", (hidden, width), plain
            yield p + "ffn_up.weight", (hidden, width), plain
            yield p + "ffn_down.weight", (width, hidden), better if more else plain
            continue
        yield p + "ffn_gate_inp.weight", (hidden, experts), F32
        yield p + "ffn_gate_exps.weight", (hidden, width, experts), expert
        yield p + "ffn_up_exps.weight", (hidden, width, experts), expert
        yield p + "ffn_down_exps.weight", (width, hidden, experts), expert_better if more else expert
    yield "output_norm.weight", (hidden,), ONES
    if "tied" not in m:
        yield "output.weight", (hidden, m["vocab"]), better


def bytes_of(dims, kind):
    elements, size = BLOCK[kind]
    return math.prod(dims) // elements * size + math.prod(dims[1:]) * len(ROW_HEAD.get(kind, b""))


def active(m):
    """Weights and bytes that a token reads, by part: of the embedding a row, of the experts those chosen."""
    parts = {}
    for name, dims, kind in tensors(m):
        part, share = "norms and biases", 1
        if name == "token_embd.weight":
            part, share = ("embedding and output", 1) if "tied" in m else ("embedding", 1 / m["vocab"])
        elif "_exps." in name:
            part, share = "experts", m["used"] / m["experts"]
        elif name == "output.weight" or "_inp." in name:
            part = "output" if name == "output.weight" else "router"
        elif len(dims) == 2:
            part = "attention" if ".attn_" in name else "feed forward"
        count, size = parts.get(part, (0, 0))
        parts[part] = count + math.prod(dims) * share, size + bytes_of(dims, kind) * share
    return parts


def adapter_tensors(m, ranks):
    """The two halves of a low-rank change of each matrix of the layers."""
    for name, dims, _ in tensors(m):
        if name.startswith("blk.") and len(dims) == 2:
            yield name + ".lora_a", (dims[0], ranks), F16
            yield name + ".lora_b", (ranks, dims[1]), F16


def text(s):
    return struct.pack("<Q", len(s)) + s.encode()


def pair(key, value):
    kind, data = (8, text(value)) if isinstance(value, str) else (4, struct.pack("<I", value)) if isinstance(value, int) else (6, struct.pack("<f", value))
    return text(key) + struct.pack("<I", kind) + data


def metadata(name, m):
    a = m["arch"] + "."
    pairs = {"general.architecture": m["arch"], "general.name": "synthetic " + name, "general.quantization_version": 2, "general.alignment": 32,
             a + "context_length": m["context"], a + "embedding_length": m["hidden"], a + "block_count": m["layers"], a + "vocab_size": m["vocab"],
             a + "feed_forward_length": m["width"], a + "attention.head_count": m["heads"], a + "attention.head_count_kv": m["kv_heads"],
             a + "attention.key_length": m["dim"], a + "attention.value_length": m["dim"], a + "rope.dimension_count": m["dim"],
             a + "attention.layer_norm_rms_epsilon": m["eps"], a + "rope.freq_base": m["base"], "tokenizer.ggml.model": "no_vocab"}
    if m["experts"]:
        pairs.update({a + "expert_count": m["experts"], a + "expert_used_count": m["used"], a + "expert_feed_forward_length": m["width"]})
    if "window" in m:
        pairs[a + "attention.sliding_window"] = m["window"]
    if m["arch"] == "gpt-oss":
        pairs.update({a + "rope.scaling.type": "yarn", a + "rope.scaling.factor": 32.0,
                      a + "rope.scaling.original_context_length": 4096})
    return pairs


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("model", choices=MODELS)
    ap.add_argument("file", nargs="?")
    ap.add_argument("--layers", type=int)
    ap.add_argument("--experts", type=int)
    ap.add_argument("--types", choices=TYPES, help="of the matrices")
    ap.add_argument("--adapter", type=int, metavar="RANKS", help="write a low-rank adapter (LoRA) of the model instead")
    ap.add_argument("--active", action="store_true", help="print what a token reads, and write no file")
    a = ap.parse_args()
    if bool(a.file) == a.active:
        ap.error("a FILE or --active, one of them")
    m = dict(MODELS[a.model])
    m["layers"], m["experts"] = a.layers or m["layers"], a.experts or m["experts"]
    m["types"] = a.types or m["types"]
    if a.active:
        parts = active(m)
        for part, (count, size) in [*parts.items(), ("together", [sum(p[i] for p in parts.values()) for i in (0, 1)])]:
            print(f"{part:20} {count / 1e6:8.1f} million weights {size / 1e9:7.3f} GB")
        return
    random.seed(1)
    pairs, infos, offset, sizes = metadata(a.model, m), b"", 0, []
    if a.adapter:
        pairs = {"general.type": "adapter", "general.architecture": m["arch"], "adapter.type": "lora", "adapter.lora.alpha": float(a.adapter)}
    for name, dims, kind in adapter_tensors(m, a.adapter) if a.adapter else tensors(m):
        if dims[0] % BLOCK[kind][0]:
            raise SystemExit(f"make_synthetic_gguf: {name}: rows of {dims[0]} are no whole blocks")
        infos += text(name) + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, max(kind, 0), offset)
        sizes.append((kind, bytes_of(dims, kind), dims[0]))
        offset += -(-sizes[-1][1] // 32) * 32
    head = b"GGUF" + struct.pack("<IQQ", 3, len(sizes), len(pairs)) + b"".join(pair(*p) for p in pairs.items()) + infos
    stretches = {kind: b"".join(block(kind) for _ in range(STRETCH)) * 4 for kind in {kind for kind, *_ in sizes}}
    with open(a.file, "wb") as f:
        f.write(head + bytes(-len(head) % 32))
        for kind, size, columns in sizes:
            stretch = memoryview(stretches[kind])
            if kind in ROW_HEAD:
                row = columns // BLOCK[kind][0] * BLOCK[kind][1]
                stretch = memoryview(b"".join(ROW_HEAD[kind] + stretch[at:at + row] for at in range(0, len(stretch) - row + 1, row)))
            for at in range(0, size, len(stretch)):
                f.write(stretch[:min(len(stretch), size - at)])
            f.write(bytes(-size % 32))
    print(f"{a.file}: {offset / 1e9:.2f} GB")


if __name__ == "__main__":
    main()
