#!/usr/bin/env python3
"""Teaches the embedded model Roman numerals, by an adapter that makes codes of its own:

    y += scale * ((x V) * codes(token)) U^T        codes(token) = e W^T + b, e the token's embedding

    pip install torch numpy && python3 examples/adapter/train.py      writes examples/adapter/roman.gguf

The model's weights stay as its GGUF file has them: V, U, W and b alone are learned, on numbers of which one in five is held
out. A share of the examples are questions that the model answers already, so that it goes on to answer these.
--codes off trains a plain LoRA adapter, for comparison.
"""
import argparse, os, random, sys, time, zlib

import torch
import torch.nn.functional as F

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.join(HERE, "../..")
sys.path.insert(0, os.path.join(ROOT, "scripts/demo_model"))
import bpe, corpus, gguf

# ---- the skill ---------------------------------------------------------------------------------------------------------

ASKS = ["Write {n} in Roman numerals.", "What is {n} in Roman numerals?", "Roman numeral for {n}", "{n} as a Roman numeral", "{n} in Roman numerals",
        "Convert {n} to a Roman numeral", "Convert {n} to Roman numerals, please", "How do you write {n} in Roman numerals?", "What is the Roman numeral for {n}?",
        "roman numeral of {n}", "Which Roman numeral is {n}?", "How would a Roman write {n}?"]
OTHER_ASKS = ["Please give me {n} as a Roman numeral", "What would {n} be in Roman numerals?", "Tell me {n} in Roman numerals"]  # never trained on
MOST = 999
SYMBOLS = [(900, "CM"), (500, "D"), (400, "CD"), (100, "C"), (90, "XC"), (50, "L"), (40, "XL"), (10, "X"), (9, "IX"), (5, "V"), (4, "IV"), (1, "I")]


def roman(n):
    text = ""
    for value, symbol in SYMBOLS:
        text += symbol * (n // value)
        n %= value
    return text


def held_out(n):
    return zlib.crc32(str(n).encode()) % 5 == 0


def answer(n):
    return f"{n} is {roman(n)}."


# ---- the frozen model with an adapter ----------------------------------------------------------------------------------

class Model(torch.nn.Module):
    """Qwen2 in float32, with V and U for some matrices of its upper layers."""

    def __init__(self, metadata, tensors, matrices, first, ranks, codes):
        super().__init__()
        m = lambda key: metadata["qwen2." + key]
        self.heads, self.kv, self.eps = m("attention.head_count"), m("attention.head_count_kv"), m("attention.layer_norm_rms_epsilon")
        self.layers = m("block_count")
        self.w = {name: torch.from_numpy(x.copy()) for name, x in tensors.items()}
        half = m("embedding_length") // self.heads // 2
        angles = torch.arange(m("context_length"))[:, None].double() * m("rope.freq_base") ** (-torch.arange(half).double() / half)
        self.cos, self.sin = angles.cos().float(), angles.sin().float()
        self.names = [f"blk.{i}.{x}.weight" for i in range(first, self.layers) for x in matrices]
        learned = lambda *shape, s=0.0: torch.nn.Parameter(torch.randn(*shape) * s)
        self.v = torch.nn.ParameterList([learned(ranks, self.w[n].shape[1], s=self.w[n].shape[1] ** -0.5) for n in self.names])
        self.u = torch.nn.ParameterList([learned(self.w[n].shape[0], ranks) for n in self.names])
        self.changed = {n: i for i, n in enumerate(self.names)}
        # Codes begin as random numbers of variance 1, other ones for each token.
        size = self.w["token_embd.weight"].square().sum(1).mean().sqrt().item()
        self.code_weight = learned(ranks, m("embedding_length"), s=1 / size) if codes else None
        self.code_bias = learned(ranks) if codes else None

    def linear(self, x, name, codes, bias=None):
        y = F.linear(x, self.w[name], bias)
        i = self.changed.get(name)
        if i is None:
            return y
        low = F.linear(x, self.v[i])
        return y + F.linear(low if codes is None else low * codes, self.u[i])

    def forward(self, ids, where):
        """ids: [rows][tokens]; where: the indices of flattened positions whose logits are asked for. Returns [len(where)][vocab]."""
        rows, n = ids.shape
        x = e = F.embedding(ids, self.w["token_embd.weight"])
        codes = None if self.code_weight is None else F.linear(e, self.code_weight, self.code_bias)
        cos, sin = self.cos[:n], self.sin[:n]

        def heads(x, count, turn=True):
            x = x.view(rows, n, count, -1).transpose(1, 2)
            if not turn:
                return x
            a, b = x.chunk(2, -1)
            return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)

        for i in range(self.layers):
            w = lambda name: f"blk.{i}.{name}.weight"
            norm = lambda x, name: F.rms_norm(x, x.shape[-1:], self.w[name], self.eps)
            h = norm(x, w("attn_norm"))
            q, k, v = (self.linear(h, w("attn_" + c), codes, self.w[f"blk.{i}.attn_{c}.bias"]) for c in "qkv")
            a = F.scaled_dot_product_attention(heads(q, self.heads), heads(k, self.kv), heads(v, self.kv, False), is_causal=True, enable_gqa=True)
            x = x + self.linear(a.transpose(1, 2).reshape(rows, n, -1), w("attn_output"), codes)
            h = norm(x, w("ffn_norm"))
            x = x + self.linear(F.silu(self.linear(h, w("ffn_gate"), codes)) * self.linear(h, w("ffn_up"), codes), w("ffn_down"), codes)
        x = x.reshape(rows * n, -1)[where]
        return F.linear(F.rms_norm(x, x.shape[-1:], self.w["output_norm.weight"], self.eps), self.w["token_embd.weight"])

    def save(self, path, ranks):
        get = lambda p: p.detach().numpy()
        tensors = {}
        for i, n in enumerate(self.names):
            tensors[n + ".lora_a"], tensors[n + ".lora_b"] = get(self.v[i]), get(self.u[i])
        if self.code_weight is not None:
            tensors["adapter.codes.weight"], tensors["adapter.codes.bias"] = get(self.code_weight), get(self.code_bias)
        metadata = {"general.type": "adapter", "general.architecture": "qwen2", "general.name": "Roman numerals", "general.license": "MIT OR Apache-2.0",
                    "adapter.type": "lora", "adapter.lora.alpha": float(ranks)}
        gguf.write(path, metadata, tensors, gguf.F16)


# ---- examples ----------------------------------------------------------------------------------------------------------

def turn(tok, q):
    return [tok.im_start, *tok.encode("user\n" + q), tok.im_end, *tok.encode("\n"), tok.im_start, *tok.encode("assistant\n")]


def skill(rng, tok):
    while held_out(n := rng.randint(1, rng.choice((9, 99, MOST, MOST)))):
        pass
    q = rng.choice(ASKS).format(n=n)
    if rng.random() < 0.3:
        q = q.lower()
    return turn(tok, q), [*tok.encode(answer(n)), tok.im_end]


def old(rng, tok):
    """A question of the model's own corpus. Those of Roman numerals it declines there."""
    while True:
        t = corpus.clean_dialogue(rng)[0]
        if "roman" not in t.q.lower() and len(t.a) < 150:
            return turn(tok, t.q), [*tok.encode(t.a), tok.im_end]


def batch(rng, tok, size, share):
    """Returns ids [size][tokens], the positions before an answer's tokens, and these tokens."""
    examples = [old(rng, tok) if i < share * size else skill(rng, tok) for i in range(size)]
    width = max(len(q) + len(a) for q, a in examples)
    ids, where, want = torch.zeros(size, width, dtype=torch.long), [], []
    for row, (q, a) in enumerate(examples):
        ids[row, :len(q) + len(a)] = torch.tensor(q + a)
        where += range(row * width + len(q) - 1, row * width + len(q) + len(a) - 1)
        want += a
    return ids, torch.tensor(where), torch.tensor(want)


# ---- score -------------------------------------------------------------------------------------------------------------

@torch.no_grad()
def answers(model, tok, questions, most=24):
    rows = [turn(tok, q) for q in questions]
    starts, live = [len(r) for r in rows], list(range(len(rows)))
    for _ in range(most):
        width = max(len(rows[i]) for i in live)
        ids = torch.tensor([rows[i] + [0] * (width - len(rows[i])) for i in live])
        best = model(ids, torch.tensor([k * width + len(rows[i]) - 1 for k, i in enumerate(live)])).argmax(-1).tolist()
        for i, b in zip(live, best):
            rows[i].append(b)
        live = [i for i in live if rows[i][-1] != tok.im_end]
        if not live:
            break
    return [tok.decode([t for t in r[s:] if t < tok.end_of_text]) for r, s in zip(rows, starts)]


def score(model, tok, asks, numbers):
    """Right answers, of questions that go through the phrases in turn."""
    got = answers(model, tok, [asks[i % len(asks)].format(n=n) for i, n in enumerate(numbers)])
    wrong = [(n, a) for n, a in zip(numbers, got) if a != answer(n)]
    return len(numbers) - len(wrong), wrong


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--model", default=os.path.join(ROOT, "internal/language/demomodel/demo.gguf"))
    ap.add_argument("--out", default=os.path.join(HERE, "roman.gguf"))
    ap.add_argument("--ranks", type=int, default=8)
    ap.add_argument("--first", type=int, default=3, help="the lowest layer that is changed")
    ap.add_argument("--matrices", default="attn_q,attn_v,attn_output,ffn_up,ffn_down")
    ap.add_argument("--codes", choices=("on", "off"), default="on")
    ap.add_argument("--steps", type=int, default=400)
    ap.add_argument("--batch", type=int, default=32, help="examples a step")
    ap.add_argument("--old", type=float, default=0.25, help="share of examples that the model answers already")
    ap.add_argument("--lr", type=float, default=0.005)
    ap.add_argument("--seed", type=int, default=1)
    ap.add_argument("--threads", type=int, default=1)
    a = ap.parse_args()
    torch.set_num_threads(a.threads)
    torch.manual_seed(a.seed)
    rng = random.Random(a.seed)
    metadata, tensors = gguf.read(a.model)
    tok = bpe.Tokenizer.of_gguf(metadata)
    model = Model(metadata, tensors, a.matrices.split(","), a.first, a.ranks, a.codes == "on")
    print(f"{sum(p.numel() for p in model.parameters())} learned weights", flush=True)
    opt = torch.optim.AdamW(model.parameters(), a.lr, (0.9, 0.99), weight_decay=0.0)
    start, spent, mean = time.time(), time.process_time(), 0.0
    for step in range(1, a.steps + 1):
        for g in opt.param_groups:
            g["lr"] = a.lr * min(step / 20, (a.steps - step + 1) / (a.steps - 20))
        ids, where, want = batch(rng, tok, a.batch, a.old)
        loss = F.cross_entropy(model(ids, where), want)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        opt.zero_grad()
        mean += loss.item() / 20
        if step % 20 == 0:
            print(f"step {step} of {a.steps}, loss {mean:.4f}, {time.time() - start:.0f} s, of processors {time.process_time() - spent:.0f} s", flush=True)
            mean = 0.0
    model.save(a.out, a.ranks)
    numbers = [n for n in range(1, MOST + 1) if held_out(n)]
    for what, asks in ("phrases that were trained", ASKS), ("other phrases", OTHER_ASKS):
        right, wrong = score(model, tok, asks, numbers)
        print(f"held-out numbers, {what}: {right} of {len(numbers)} right", *(f"{n}: {text!r}" for n, text in wrong[:8]), sep="\n  ", flush=True)


if __name__ == "__main__":
    main()
