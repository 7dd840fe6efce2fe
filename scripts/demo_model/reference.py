"""A plain forward pass of a qwen2 GGUF file in numpy float64: what the engine's logits are compared with.

    reference.py demo.gguf --golden golden.json     greedy answers to held-out questions, for tests of the engine
    reference.py demo.gguf "What is Vibrant?"       answers one question
"""
import argparse, json

import numpy as np

import bpe, gguf, heldout


class Reference:
    def __init__(self, path):
        self.meta, tensors = gguf.read(path)
        self.w = {k: v.astype(np.float64) for k, v in tensors.items()}
        m = lambda k: self.meta["qwen2." + k]
        self.dim, self.layers, self.heads, self.kv = m("embedding_length"), m("block_count"), m("attention.head_count"), m("attention.head_count_kv")
        self.eps, self.theta = m("attention.layer_norm_rms_epsilon"), m("rope.freq_base")

    def norm(self, x, w):
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + self.eps) * w

    def logits(self, ids, past=None):
        """Float64 logits [n][vocab], row i after past and ids[0..i]. past has each layer's keys and values of what came before."""
        past = {} if past is None else past
        w, n, d = self.w, len(ids), self.dim // self.heads
        half, before = d // 2, len(past[0][0]) if past else 0
        angle = (before + np.arange(n))[:, None] * self.theta ** (-np.arange(half) / half)
        cos, sin = np.cos(angle)[:, None], np.sin(angle)[:, None]

        def rope(x):
            a, b = x[..., :half], x[..., half:]
            return np.concatenate([a * cos - b * sin, b * cos + a * sin], -1)

        x = w["token_embd.weight"][ids]
        mask = np.triu(np.full((n, before + n), -np.inf), before + 1)
        for i in range(self.layers):
            t = lambda name: w[f"blk.{i}.{name}"]
            h = self.norm(x, t("attn_norm.weight"))
            q, k, v = ((h @ t(f"attn_{c}.weight").T + t(f"attn_{c}.bias")).reshape(n, -1, d) for c in "qkv")
            q, k = rope(q), rope(k)
            if i in past:
                k, v = np.concatenate([past[i][0], k]), np.concatenate([past[i][1], v])
            past[i] = k, v
            out = np.empty((n, self.heads, d))
            for j in range(self.heads):
                g = j // (self.heads // self.kv)
                s = q[:, j] @ k[:, g].T / np.sqrt(d) + mask
                p = np.exp(s - s.max(-1, keepdims=True))
                out[:, j] = p / p.sum(-1, keepdims=True) @ v[:, g]
            x = x + out.reshape(n, -1) @ t("attn_output.weight").T
            h = self.norm(x, t("ffn_norm.weight"))
            gate = h @ t("ffn_gate.weight").T
            x = x + (gate / (1 + np.exp(-gate)) * (h @ t("ffn_up.weight").T)) @ t("ffn_down.weight").T
        return self.norm(x, w["output_norm.weight"]) @ w.get("output.weight", w["token_embd.weight"]).T

    def tokenizer(self):
        return bpe.Tokenizer.of_gguf(self.meta)

    def greedy(self, ids, most, stop):
        """Greedy continuation: its ids, the smallest lead that a chosen token had over the second, the first logits."""
        out, lead, first, past = [], np.inf, None, {}
        while len(out) < most:
            row = self.logits(out[-1:] or ids, past)[-1]
            first = row if first is None else first
            second, best = np.partition(row, -2)[-2:]
            lead = min(lead, best - second)
            out.append(int(row.argmax()))
            if out[-1] == stop:
                break
        return out, float(lead), first


# The least lead of a golden answer's tokens: a closer call depends on how an engine rounds activations, and says nothing about
# its kernels. (The logits of the engine's int8 products are off by 0.02 RMS.)
CLEAR = 0.05


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("model")
    ap.add_argument("question", nargs="?")
    ap.add_argument("--golden", metavar="FILE", help="write the answers to --count of the held-out questions")
    ap.add_argument("--count", type=int, default=300)
    a = ap.parse_args()
    ref = Reference(a.model)
    tok = ref.tokenizer()

    def answer(question):
        ids = [tok.im_start, *tok.encode("user\n" + question), tok.im_end, *tok.encode("\n"), tok.im_start, *tok.encode("assistant\n")]
        return ids, *ref.greedy(ids, 120, tok.im_end)

    if a.question:
        _, out, lead, _ = answer(a.question)
        print(f"{tok.decode([t for t in out if t != tok.im_end])}   (smallest lead {lead:.3f})")
    if a.golden:
        alone = [i["q"] for i in heldout.questions() if "history" not in i]
        cases, used = [], set()
        for k in range(a.count):
            at = k * len(alone) // a.count
            while True:
                q = alone[at % len(alone)]
                at += 1
                if q in used:
                    continue
                used.add(q)
                ids, out, lead, first = answer(q)
                if lead >= CLEAR:
                    break
                print(f"passed over, for a token leads by {lead:.4f} only: {q}")
            cases.append({"q": q, "prompt_ids": ids, "ids": out, "least_lead": round(lead, 4), "first_logits": [round(float(x), 4) for x in first[:16]]})
        with open(a.golden, "w") as f:
            f.write("[\n" + ",\n".join(json.dumps(c, ensure_ascii=False) for c in cases) + "\n]\n")
        print(f"{len(cases)} answers, {sum(len(c['ids']) for c in cases)} tokens")


if __name__ == "__main__":
    main()
