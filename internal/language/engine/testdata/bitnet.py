#!/usr/bin/env python3
"""Makes bitnet.json: greedy ids of the tiny BitNet models by transformers.

    bitnet.py FOLDER     (needs torch, transformers 5 and gguf; FOLDER has tiny-bitnet*.gguf and their .golden.json)

Computes in float64 with the input of every projection rounded to int8 by rows, as ActQuant of transformers' BitNet does. The
logits of the prompt have to equal the golden ones of FOLDER, and the ids have to begin with the golden ones.
"""
import json, pathlib, sys

import gguf, numpy, torch, transformers as t

HERE, FOLDER, COUNT = pathlib.Path(__file__).parent, pathlib.Path(sys.argv[1]), 64
NAMES = {"attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm", "attn_sub_norm": "self_attn.attn_sub_norm",
         "ffn_sub_norm": "mlp.ffn_sub_norm", "attn_output": "self_attn.o_proj"}
NAMES |= {f"attn_{x}": f"self_attn.{x}_proj" for x in "qkv"} | {f"ffn_{x}": f"mlp.{x}_proj" for x in ("gate", "up", "down")}


def rounded(module, inputs):
    x, = inputs
    scale = 127 / x.abs().amax(-1, keepdim=True).clamp(min=1e-5)
    return (x * scale).round().clamp(-128, 127) / scale


def name_of(tensor):
    if tensor == "token_embd.weight":
        return "model.embed_tokens.weight"
    if tensor == "output_norm.weight":
        return "model.norm.weight"
    _, layer, part, _ = tensor.split(".")
    return f"model.layers.{layer}.{NAMES[part]}.weight"


def load(path):
    reader = gguf.GGUFReader(path)
    value = lambda key: reader.fields[f"bitnet-b1.58.{key}"].contents()
    values = lambda x: torch.from_numpy(gguf.dequantize(x.data, x.tensor_type).astype(numpy.float64))
    tensors = {name_of(x.name): values(x) for x in reader.tensors}
    heads = value("attention.head_count")
    config = t.BitNetConfig(
        vocab_size=tensors["model.embed_tokens.weight"].shape[0], hidden_size=value("embedding_length"),
        intermediate_size=value("feed_forward_length"), num_hidden_layers=value("block_count"), num_attention_heads=heads,
        num_key_value_heads=value("attention.head_count_kv"), rms_norm_eps=value("attention.layer_norm_rms_epsilon"),
        rope_parameters=dict(rope_type="default", rope_theta=value("rope.freq_base")), hidden_act="relu2",
        tie_word_embeddings=True, max_position_embeddings=value("context_length"), bos_token_id=1, eos_token_id=2,
        attn_implementation="eager")
    model = t.BitNetForCausalLM(config).double().eval()
    missing, unexpected = model.load_state_dict(tensors, strict=False)
    assert not unexpected and set(missing) <= {"lm_head.weight"}, (missing, unexpected)
    model.tie_weights()
    for name, module in model.named_modules():
        if name.endswith("_proj"):
            module.register_forward_pre_hook(rounded)
    return model


golden = {}
for path in sorted(FOLDER.glob("tiny-bitnet*.gguf")):
    model, old = load(path), json.loads(path.with_suffix(".golden.json").read_text())
    ids, greedy, margin = torch.tensor([old["ids"]]), [], float("inf")
    with torch.no_grad():
        logits = model(ids, use_cache=False).logits[0].numpy()
        for _ in range(COUNT):
            last = model(ids, use_cache=False).logits[0, -1]
            first, second = last.topk(2).values.tolist()
            margin = min(margin, first - second)
            greedy.append(int(last.argmax()))
            ids = torch.cat([ids, torch.tensor([greedy[-1:]])], 1)
    want = numpy.fromfile(FOLDER / old["logits"], numpy.float32).reshape(logits.shape)
    print(path.stem, "logits differ by", numpy.abs(logits - want).max(), "least margin", margin)
    assert numpy.abs(logits - want).max() < 1e-3 and greedy[:len(old["greedy"])] == old["greedy"], greedy
    golden[path.stem] = greedy
text = ",\n".join(json.dumps(n) + ": " + json.dumps(g, separators=(",", ":")) for n, g in golden.items())
(HERE / "bitnet.json").write_text("{\n" + text + "\n}\n")
