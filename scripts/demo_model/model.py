"""The model in PyTorch: Qwen2's architecture (grouped heads, q/k/v biases, rotate-half RoPE, SwiGLU, tied embeddings).

Weights of one kind are one parameter over all layers, [layers][out][in], so that the optimizer sees few tensors.
"""
import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.attention.varlen import varlen_attn


@dataclass
class Config:
    vocab: int = 2048
    dim: int = 256
    layers: int = 8
    heads: int = 4
    kv_heads: int = 2
    ffn: int = 768
    context: int = 2048
    theta: float = 10000.0
    eps: float = 1e-6

    @property
    def head_dim(self):
        return self.dim // self.heads


def rotate(x, cos, sin):
    """RoPE on [tokens][heads][head_dim]: element i is paired with i + head_dim / 2."""
    a, b = x.chunk(2, -1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)


def rows_attention(q, k, v, bounds, longest):
    """Attention inside documents, by a mask over rows of `longest` tokens: for any device. A document that crosses the
    end of a row loses sight of what came before."""
    n, h, d = q.shape
    row = min(n, longest)
    doc = torch.bucketize(torch.arange(n, device=q.device), bounds[1:], right=True).view(-1, row)
    mask = (doc[:, :, None] == doc[:, None, :]) & torch.ones(row, row, dtype=torch.bool, device=q.device).tril()
    q, k, v = (x.view(-1, row, h, d).transpose(1, 2) for x in (q, k, v))
    out = F.scaled_dot_product_attention(q, k, v, attn_mask=mask[:, None])
    return out.transpose(1, 2).reshape(n, h, d)


def varlen_attention(q, k, v, bounds, longest):
    """The same by flash attention over documents of any length (CUDA)."""
    return varlen_attn(q, k, v, bounds, bounds, longest, longest, window_size=(-1, 0))


class Lookup(torch.autograd.Function):
    """Rows of a table. Its gradient is a product with one-hot rows: adding rows up one by one would be done in any order, or
    wait for the rows of the most frequent token."""

    @staticmethod
    def forward(ctx, table, ids):
        ctx.save_for_backward(ids)
        ctx.rows = table.shape[0]
        return table[ids]

    @staticmethod
    def backward(ctx, grad):
        ids, = ctx.saved_tensors
        kind = torch.bfloat16 if grad.is_cuda else grad.dtype
        hot = (torch.arange(ctx.rows, device=grad.device)[:, None] == ids).to(kind)
        return (hot @ grad.to(kind)).to(grad.dtype), None


class Model(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.c, L, D, K, f = c, c.layers, c.dim, c.kv_heads * c.head_dim, c.ffn
        std, out_std = 0.02, 0.02 / math.sqrt(2 * c.layers)
        p = lambda *shape, s=std: nn.Parameter(torch.randn(*shape) * s)
        self.embed = p(c.vocab, D, s=0.05)
        self.wq, self.wk, self.wv, self.wo = p(L, D, D), p(L, K, D), p(L, K, D), p(L, D, D, s=out_std)
        self.gate, self.up, self.down = p(L, f, D), p(L, f, D), p(L, D, f, s=out_std)
        self.bq, self.bk, self.bv = (nn.Parameter(torch.zeros(L, n)) for n in (D, K, K))
        self.norm1, self.norm2 = nn.Parameter(torch.ones(L, D)), nn.Parameter(torch.ones(L, D))
        self.norm = nn.Parameter(torch.ones(D))
        half = c.head_dim // 2
        angles = torch.arange(c.context)[:, None].double() * c.theta ** (-torch.arange(half).double() / half)
        self.register_buffer("cos", angles.cos().float(), persistent=False)
        self.register_buffer("sin", angles.sin().float(), persistent=False)
        self.attention = rows_attention

    def forward(self, ids, positions, bounds, longest=2048):
        """ids, positions: [tokens]; bounds: where documents begin and end. Returns logits [tokens][vocab]."""
        c, n = self.c, ids.shape[0]
        x = Lookup.apply(self.embed, ids)
        cos, sin = self.cos[positions][:, None], self.sin[positions][:, None]
        layers = zip(*(w.unbind(0) for w in (self.wq, self.wk, self.wv, self.wo, self.gate, self.up, self.down, self.bq, self.bk, self.bv, self.norm1, self.norm2)))
        for wq, wk, wv, wo, gate, up, down, bq, bk, bv, norm1, norm2 in layers:
            h = F.rms_norm(x, (c.dim,), norm1, c.eps)
            q = F.linear(h, wq, bq.to(h.dtype)).view(n, c.heads, c.head_dim)
            k = F.linear(h, wk, bk.to(h.dtype)).view(n, c.kv_heads, c.head_dim)
            v = F.linear(h, wv, bv.to(h.dtype)).view(n, c.kv_heads, c.head_dim)
            kind = v.dtype
            q, k = rotate(q, cos, sin).to(kind), rotate(k, cos, sin).to(kind)
            group = c.heads // c.kv_heads
            k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
            a = self.attention(q, k, v, bounds, longest).reshape(n, c.dim)
            x = x + F.linear(a, wo)
            h = F.rms_norm(x, (c.dim,), norm2, c.eps)
            x = x + F.linear(F.silu(F.linear(h, gate)) * F.linear(h, up), down)
        return F.linear(F.rms_norm(x, (c.dim,), self.norm, c.eps), self.embed)

    def loss(self, ids, targets, positions, bounds):
        logits = self(ids, positions, bounds)
        return F.cross_entropy(logits.float(), targets, ignore_index=-1)

    NAMES = {"wq": "attn_q.weight", "wk": "attn_k.weight", "wv": "attn_v.weight", "wo": "attn_output.weight", "gate": "ffn_gate.weight", "up": "ffn_up.weight",
             "down": "ffn_down.weight", "bq": "attn_q.bias", "bk": "attn_k.bias", "bv": "attn_v.bias", "norm1": "attn_norm.weight", "norm2": "ffn_norm.weight"}

    def tensors(self):
        """The weights by their names in a GGUF file, float32 arrays."""
        get = lambda p: p.detach().float().cpu().numpy()
        out = {"token_embd.weight": get(self.embed)}
        for i in range(self.c.layers):
            for attr, name in self.NAMES.items():
                out[f"blk.{i}.{name}"] = get(getattr(self, attr))[i]
        out["output_norm.weight"] = get(self.norm)
        return out

    def load_tensors(self, tensors):
        with torch.no_grad():
            put = lambda p, x: p.copy_(torch.from_numpy(x.copy()))
            put(self.embed, tensors["token_embd.weight"])
            put(self.norm, tensors["output_norm.weight"])
            for i in range(self.c.layers):
                for attr, name in self.NAMES.items():
                    put(getattr(self, attr)[i], tensors[f"blk.{i}.{name}"])


class Muon(torch.optim.Optimizer):
    """Momentum whose matrices are made orthogonal by five Newton-Schulz steps (Jordan et al. 2024); over stacks of
    matrices [layers][out][in]."""

    def __init__(self, params, lr, momentum=0.95):
        super().__init__(params, dict(lr=lr, momentum=momentum))

    @torch.no_grad()
    def step(self):
        for g in self.param_groups:
            for p in g["params"]:
                m = self.state[p].setdefault("m", torch.zeros_like(p))
                m.lerp_(p.grad, 1 - g["momentum"])
                u = orthogonal(p.grad.lerp(m, g["momentum"]))
                p.sub_(u * (g["lr"] * max(1.0, p.shape[1] / p.shape[2]) ** 0.5))


def orthogonal(x):
    a, b, c = 3.4445, -4.7750, 2.0315
    tall = x.shape[1] > x.shape[2]
    x = (x.mT if tall else x).to(torch.bfloat16 if x.is_cuda else torch.float32)
    x = x / (x.norm(dim=(1, 2), keepdim=True) + 1e-7)
    for _ in range(5):
        s = x @ x.mT
        x = a * x + (b * s + c * s @ s) @ x
    return (x.mT if tall else x).float()
