#!/usr/bin/env python3
"""Makes variants.json and the models beside it: tiny models of shapes that no released small model has.

    variants.py          (needs torch, transformers 5, and llama.cpp's converter: modules conversion and gguf)

Weights are random. Logits are by transformers in float64. They are the first ones of every id, and the greedy ids follow.
"""
import json, pathlib, tempfile

import numpy, torch, transformers as t

HERE, VOCAB = pathlib.Path(__file__).parent, 32
SHAPE = dict(vocab_size=VOCAB, hidden_size=18, intermediate_size=12, num_hidden_layers=2, num_attention_heads=6,
             num_key_value_heads=2, max_position_embeddings=128, bos_token_id=1, eos_token_id=2, pad_token_id=0)
HEADS = dict(SHAPE, head_dim=6)
YARN = dict(rope_type="yarn", factor=4.0, original_max_position_embeddings=8, rope_theta=1e4)
LATENT = dict(SHAPE, num_key_value_heads=6, moe_intermediate_size=8, kv_lora_rank=12, q_lora_rank=8, qk_nope_head_dim=6,
              qk_rope_head_dim=4, v_head_dim=10, n_routed_experts=6, num_experts_per_tok=2, n_shared_experts=1,
              first_k_dense_replace=1, n_group=1, topk_group=1, routed_scaling_factor=1.8)
PARTIAL = dict(rope_type="default", rope_theta=1e4, partial_rotary_factor=0.5)
MODELS = {
    "llama-biases": t.LlamaConfig(**HEADS, attention_bias=True, mlp_bias=True),
    "llama-yarn-magnitude": t.LlamaConfig(**HEADS, rope_parameters=dict(YARN, attention_factor=1.7)),
    "mixtral": t.MixtralConfig(**HEADS, num_local_experts=5, num_experts_per_tok=3, sliding_window=None),
    "qwen3-biases": t.Qwen3Config(**HEADS, attention_bias=True),
    "llama4-two-experts": t.Llama4TextConfig(**HEADS, intermediate_size_mlp=12, num_local_experts=3, num_experts_per_tok=2,
                                             interleave_moe_layer_step=2),
    "glm-4.7-flash": t.Glm4MoeLiteConfig(**LATENT),
    "stablelm-side-by-side": t.StableLmConfig(**dict(SHAPE, hidden_size=24), use_parallel_residual=True, rope_parameters=PARTIAL),
}


def fill(model):
    """Random values for every parameter and the biases of routers."""
    random = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for name, p in [*model.named_parameters(), *(b for b in model.named_buffers() if "correction_bias" in b[0])]:
            r = torch.randn(p.shape, generator=random)
            if "norm" in name and name.endswith("weight"):
                p.copy_(1 + 0.2 * r)
            elif p.ndim == 1:
                p.copy_(0.2 * r)
            else:
                p.copy_(r * (0.7 if "embed" in name else 1.3 / p.shape[-1] ** 0.5))
    return torch.randint(3, VOCAB, (1, 20), generator=random)


def convert(folder, out):
    import gguf
    from conversion import ModelBase, get_model_class

    def set_vocab(self):
        self.gguf_writer.add_tokenizer_model("none")
    made = get_model_class(json.loads((folder / "config.json").read_text())["architectures"][0])
    for c in made.__mro__:
        if issubclass(c, ModelBase):
            c.set_vocab = set_vocab
    with torch.inference_mode():
        made(folder, gguf.LlamaFileType.ALL_F32, out, eager=True, model_name="variant").write()


def build(name):
    """A model of MODELS with its random values, and ids."""
    config = MODELS[name]
    config._attn_implementation = config._experts_implementation = "eager"
    kind = t.Llama4ForCausalLM if isinstance(config, t.Llama4TextConfig) else t.AutoModelForCausalLM.from_config
    torch.set_default_dtype(torch.float32)
    model = kind(config).eval()
    return model, fill(model)


def expect(model, ids):
    """Golden data of a model: its logits of the ids in float64, and the greedy ids that follow."""
    model, greedy = model.double(), []
    with torch.no_grad():
        logits, all_ids = model(ids, use_cache=False).logits[0].numpy(), ids
        for _ in range(16):
            greedy.append(int(model(all_ids, use_cache=False).logits[0, -1].argmax()))
            all_ids = torch.cat([all_ids, torch.tensor([greedy[-1:]])], 1)
    print("logits' deviation", numpy.std(logits))
    return {"ids": ids[0].tolist(), "greedy": greedy, "logits": [[float(f"{x:.6f}") for x in row] for row in logits]}


def save(file, golden):
    text = ",\n".join(json.dumps(n) + ": " + json.dumps(g, separators=(",", ":")) for n, g in golden.items())
    (HERE / file).write_text("{\n" + text + "\n}\n")


def main():
    golden = {}
    for name in MODELS:
        model, ids = build(name)
        with tempfile.TemporaryDirectory() as folder:
            model.save_pretrained(folder)
            convert(pathlib.Path(folder), HERE / f"{name}.gguf")
        golden[name] = expect(model, ids)
        print(name, (HERE / f"{name}.gguf").stat().st_size, "bytes")
    save("variants.json", golden)


if __name__ == "__main__":
    main()
