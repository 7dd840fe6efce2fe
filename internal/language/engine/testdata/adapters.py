#!/usr/bin/env python3
"""Makes adapters.json and the folders beside it: adapters that Hugging Face's PEFT saved, for models of variants.py.

    adapters.py          (needs torch, transformers 5 and peft)

A and B are random. Logits are by PEFT in float64, from the saved folder, with A and B beside the model's weights. The logits of the
model without an adapter are those of variants.json: so it is the model of the GGUF file.
"""
import json, pathlib, shutil, tempfile

import numpy, peft, torch, variants

ATTENTION, MLP = ["q_proj", "k_proj", "v_proj", "o_proj"], ["gate_proj", "up_proj", "down_proj"]
ADAPTERS = {  # the model, the type of A and B, and the settings of peft.LoraConfig
    "peft-all": ("llama-biases", torch.float32, dict(r=4, lora_alpha=10, target_modules=ATTENTION + MLP)),
    "peft-rooted": ("llama-biases", torch.bfloat16, dict(r=6, lora_alpha=3, use_rslora=True, target_modules=["k_proj", "down_proj"],
                                                         layers_to_transform=[1], rank_pattern={"down_proj": 2})),
    "peft-half": ("qwen3-biases", torch.float16, dict(r=3, lora_alpha=4, target_modules=["q_proj", "o_proj", "up_proj", "lm_head"])),
}

golden, before = {}, json.loads((variants.HERE / "variants.json").read_text())
for name, (base, kind, settings) in ADAPTERS.items():
    model, ids = variants.build(base)
    with torch.no_grad():
        assert numpy.abs(model.double()(ids).logits[0].numpy() - before[base]["logits"]).max() < 1e-6, base
    model = peft.get_peft_model(model.float(), peft.LoraConfig(task_type="CAUSAL_LM", **settings))
    random = torch.Generator().manual_seed(2)
    with torch.no_grad():
        for parameter in (p for n, p in model.named_parameters() if "lora_" in n):
            parameter.copy_(torch.randn(parameter.shape, generator=random) / parameter.shape[-1] ** 0.5)
            parameter.data = parameter.data.to(kind)
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        model = peft.PeftModel.from_pretrained(variants.build(base)[0].double(), folder)
        shutil.rmtree(variants.HERE / name, ignore_errors=True)
        (variants.HERE / name).mkdir()
        for file in "adapter_config.json", "adapter_model.safetensors":
            shutil.copyfile(pathlib.Path(folder) / file, variants.HERE / name / file)
    golden[name] = {"model": base, **variants.expect(model, ids)}
    print(name, sorted(f"{f.name} {f.stat().st_size}" for f in (variants.HERE / name).iterdir()))
variants.save("adapters.json", golden)
