#!/usr/bin/env python3
"""Makes the demo model from nothing: tokenizer, training, quantization, evaluation, GGUF.

    train.py --out DIR [--steps N | --minutes M] [--from CHECKPOINT]

It takes about seven minutes on one H200. DIR gets demo.gguf, questions.json, tokenizer.json, checkpoint.npz (F16),
answers.txt and report.json. The corpus and the first weights follow from --seed; a GPU's sums do not repeat to the last
bit, so two runs differ slightly.
"""
import argparse, collections, json, multiprocessing, os, random, re, time

import numpy as np
import torch

import bpe, corpus, gguf, heldout
from model import Config, Model, Muon, rows_attention, varlen_attention

TEMPLATE = ("{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n' }}{% endfor %}"
            "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}")
START = time.time()


def log(*words):
    print(f"[{time.time() - START:6.1f}s]", *words, flush=True)


# ---- corpus -----------------------------------------------------------------------------------------------------------

def make_tokenizer(seed, size, dialogues=15000):
    rng = random.Random(seed)
    texts = []
    for _ in range(dialogues):
        for t in corpus.clean_dialogue(rng):
            texts += ["user\n" + t.q, "assistant\n" + t.a]
    return bpe.train(texts, size)


class Feed:
    """Batches 0, 1, ... of a seed, made ahead by other processes, in order. Make it before CUDA starts: it forks."""

    def __init__(self, seed, size, tok, workers):
        global make_batch

        def make_batch(i):
            return corpus.batch(seed, i, size, tok)

        self.pool = multiprocessing.get_context("fork").Pool(workers)
        self.ahead, self.next = collections.deque(), 0
        for _ in range(workers * 4):
            self.order()

    def order(self):
        self.ahead.append(self.pool.apply_async(make_batch, (self.next,)))
        self.next += 1

    def take(self):
        self.order()
        return self.ahead.popleft().get()

    def close(self):
        self.pool.terminate()


# ---- evaluation --------------------------------------------------------------------------------------------------------

@torch.no_grad()
def generate(model, tok, prompts, most=120, chunk=256):
    """Greedy answers to prompts (lists of ids), in float32, without a cache: all rows of a chunk at once."""
    device = model.embed.device
    answers, kept = [], model.attention
    model.attention = rows_attention
    for lo in range(0, len(prompts), chunk):
        rows = [list(p) for p in prompts[lo:lo + chunk]]
        starts, live = [len(r) for r in rows], list(range(len(rows)))
        for _ in range(most):
            width = max(len(rows[i]) for i in live)
            ids = torch.tensor([rows[i] + [0] * (width - len(rows[i])) for i in live], device=device)
            positions = torch.arange(width, device=device).repeat(len(live))
            bounds = torch.arange(0, len(live) * width + 1, width, device=device)
            last = torch.tensor([k * width + len(rows[i]) - 1 for k, i in enumerate(live)], device=device)
            best = model(ids.reshape(-1), positions, bounds, width)[last].argmax(-1).tolist()
            for i, b in zip(live, best):
                rows[i].append(b)
            live = [i for i in live if rows[i][-1] not in (tok.im_end, tok.end_of_text) and len(rows[i]) < model.c.context]
            if not live:
                break
        answers += [tok.decode([t for t in r[s:] if t < tok.end_of_text]) for r, s in zip(rows, starts)]
    model.attention = kept
    return answers


def evaluate(model, tok, items):
    """Asks every item, earlier messages of its conversation first; returns (right, answer) for each."""
    turn = lambda q: [tok.im_start, *tok.encode("user\n" + q), tok.im_end, *tok.encode("\n"), tok.im_start, *tok.encode("assistant\n")]
    talks = [[*i.get("history", []), i["q"]] for i in items]
    prompts, answers = [[] for _ in items], [""] * len(items)
    for step in range(max(map(len, talks))):
        at = [i for i, t in enumerate(talks) if len(t) > step]
        for i in at:
            if step:
                prompts[i] += [*tok.encode(answers[i]), tok.im_end, *tok.encode("\n")]
            prompts[i] += turn(talks[i][step])
        for i, a in zip(at, generate(model, tok, [prompts[i] for i in at])):
            answers[i] = a
    return [(any(re.search(p, a, re.I) for p in item["accept"]), a) for item, a in zip(items, answers)]


def score(model, tok, items, say=log):
    results = evaluate(model, tok, items)
    kinds = {}
    for item, (right, _) in zip(items, results):
        kinds.setdefault(item["kind"], []).append(right)
        if "part" in item:
            kinds.setdefault(f"part {item['part']} " + (item["kind"] if item["kind"] in ("unknown", "probe") else "known"), []).append(right)
    known = [r for k, rs in kinds.items() if k not in ("unknown", "probe") and not k.startswith("part ") for r in rs]
    table = {k: (sum(rs), len(rs)) for k, rs in sorted(kinds.items())}
    table["all known"] = (sum(known), len(known))
    say("  ".join(f"{k} {a}/{n} {100 * a / n:.1f}%" for k, (a, n) in table.items()))
    return table, results


# ---- export ------------------------------------------------------------------------------------------------------------

def metadata(c, tok):
    n = len(tok.bytes)
    return {
        "general.architecture": "qwen2", "general.name": "Vibrant demo", "general.description": "Answers questions about Vibrant; the model embedded in its command.",
        "general.license": "MIT OR Apache-2.0", "general.quantization_version": 2, "general.file_type": 7,
        "qwen2.context_length": c.context, "qwen2.embedding_length": c.dim, "qwen2.block_count": c.layers, "qwen2.feed_forward_length": c.ffn,
        "qwen2.attention.head_count": c.heads, "qwen2.attention.head_count_kv": c.kv_heads, "qwen2.attention.layer_norm_rms_epsilon": c.eps,
        "qwen2.rope.freq_base": c.theta, "qwen2.vocab_size": c.vocab,
        "tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "qwen2", "tokenizer.ggml.tokens": tok.token_strings(),
        "tokenizer.ggml.token_type": [1] * n + [3] * len(bpe.SPECIALS), "tokenizer.ggml.merges": tok.merge_strings(),
        "tokenizer.ggml.bos_token_id": tok.end_of_text, "tokenizer.ggml.eos_token_id": tok.im_end, "tokenizer.ggml.padding_token_id": tok.end_of_text,
        "tokenizer.ggml.add_bos_token": False, "tokenizer.chat_template": TEMPLATE,
    }


def export(model, tok, out):
    """Writes demo.gguf and puts its quantized weights into the model, so that what is scored is what is shipped."""
    path = os.path.join(out, "demo.gguf")
    gguf.write(path, metadata(model.c, tok), model.tensors())
    model.load_tensors(gguf.read(path)[1])
    return path


# ---- training ----------------------------------------------------------------------------------------------------------

def schedule(step, steps, warm=200):
    """Up in `warm` steps, then down to nothing in a straight line."""
    return min((step + 1) / warm, (steps - step) / max(steps - warm, 1))


class Guard:
    """Watches the mean loss of every 250 steps. Where it has grown to twice the best, the weights of that best are put
    back and the learning rate is halved from there on: a run that begins to diverge costs seconds, not its result."""

    def __init__(self, model, opts):
        self.model, self.opts = model, opts
        self.sum, self.best, self.kept, self.factor = 0.0, float("inf"), None, 1.0

    def see(self, step, loss):
        self.sum = self.sum + loss.detach()
        if step % 250:
            return
        mean, self.sum = float(self.sum) / 250, 0.0
        if mean < self.best:
            self.best, self.kept = mean, [p.detach().clone() for p in self.model.parameters()]
        elif not mean < 2 * self.best + 0.01:
            with torch.no_grad():
                for p, k in zip(self.model.parameters(), self.kept):
                    p.copy_(k)
            for opt, _ in self.opts:
                opt.state.clear()
            self.factor /= 2
            log(f"step {step}: loss {mean:.4f} after {self.best:.4f}: back to those weights, learning rate times {self.factor}")
        if step % 500 == 0:
            log(f"step {step} loss {mean:.4f}")


def fit(model, feed, a, watch):
    """Trains the model on the feed; returns the steps taken, the seconds they took and the last loss."""
    device = model.embed.device.type
    # Gains move slowly: they scale whole layers, and a model that is nearly right is thrown off by a few percent of that.
    # No weight decay: late in training it outweighs what is left of the gradient under Muon's steps of fixed size.
    gains = [model.norm1, model.norm2, model.norm]
    matrices = [p for p in model.parameters() if p.ndim == 3]
    rest = [model.embed, model.bq, model.bk, model.bv]
    adam = lambda params, lr: (torch.optim.AdamW(params, lr, (0.9, 0.95), weight_decay=0.0, fused=device == "cuda"), lr)
    opts = [(Muon(matrices, a.lr), a.lr), adam(rest, a.lr_rest), adam(gains, a.lr_rest / 5)]
    loss_of = model.loss
    if device == "cuda" and not a.plain:
        model.attention = varlen_attention
        loss_of = torch.compile(model.loss, dynamic=False)

    guard = Guard(model, opts)
    steps = 10 ** 9 if a.minutes else a.steps
    most_docs = a.batch // 48
    t0, t_start, step = time.time(), None, 0
    while step < steps:
        ids, targets, positions, bounds = feed.take()
        if len(bounds) > most_docs:
            raise SystemExit(f"{len(bounds) - 1} documents in a batch: more than {most_docs - 1}")
        bounds = np.concatenate([bounds, np.full(most_docs - len(bounds), a.batch, np.int32)])
        ids, targets, positions, bounds = (torch.from_numpy(x).to(device, non_blocking=True) for x in (ids, targets.astype(np.int64), positions, bounds))
        for opt, lr in opts:
            for g in opt.param_groups:
                g["lr"] = lr * guard.factor * schedule(step, steps)
        with torch.autocast(device, torch.bfloat16, enabled=device == "cuda"):
            loss = loss_of(ids, targets, positions, bounds)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(rest, 1.0)
        for opt, _ in opts:
            opt.step()
            opt.zero_grad(set_to_none=True)
        step += 1
        if step == 20:
            loss.item()
            t_start = time.time()
            log(f"first 20 steps in {t_start - t0:.1f} s, loss {loss.item():.3f}")
        if a.minutes and step == 120:
            loss.item()
            each = (time.time() - t_start) / 100
            steps = 120 + int((a.minutes * 60 - (time.time() - START)) / each)
            log(f"{each * 1000:.1f} ms a step, {a.batch / each / 1e6:.2f} M tokens a second: {steps} steps")
        guard.see(step, loss)
        if a.watch and step % a.watch == 0 and step < steps:
            watch()
    seconds = time.time() - t0
    log(f"{step} steps of {a.batch} tokens in {seconds:.0f} s")
    return step, seconds, loss.item()


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--out", required=True)
    ap.add_argument("--seed", type=int, default=1)
    ap.add_argument("--steps", type=int, default=12000)
    ap.add_argument("--minutes", type=float, default=0, help="instead of --steps: as many as fit, by the speed of the first ones")
    ap.add_argument("--batch", type=int, default=65536, help="tokens a step")
    ap.add_argument("--lr", type=float, default=0.004, help="of the matrices (Muon)")
    ap.add_argument("--lr-rest", type=float, default=0.0005, help="of embedding and biases (AdamW); gains take a fifth of it")
    ap.add_argument("--from", dest="start", help="checkpoint.npz to go on from")
    ap.add_argument("--tokenizer", help="tokenizer.json to use instead of training one")
    ap.add_argument("--workers", type=int, default=max(1, (os.cpu_count() or 2) - 1))
    ap.add_argument("--plain", action="store_true", help="neither compile nor flash attention")
    ap.add_argument("--watch", type=int, default=0, help="score every so many steps")
    ap.add_argument("--every", type=int, default=1, help="score only one in so many questions (a trial run)")
    for f, t in (("vocab", int), ("dim", int), ("layers", int), ("heads", int), ("kv_heads", int), ("ffn", int)):
        ap.add_argument("--" + f.replace("_", "-"), type=t, default=getattr(Config, f))
    a = ap.parse_args()
    os.makedirs(a.out, exist_ok=True)
    for w in corpus.check_repository():
        log("warning:", w)
    log("%d facts, %d plain questions" % corpus.check_table())
    heldout.write(os.path.join(a.out, "questions.json"))
    items = heldout.questions()[::a.every]

    tok = bpe.Tokenizer.load(a.tokenizer) if a.tokenizer else make_tokenizer(a.seed, a.vocab)
    tok.save(os.path.join(a.out, "tokenizer.json"))
    log(f"tokenizer of {tok.size}")

    feed = Feed(a.seed, a.batch, tok, a.workers)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(a.seed)
    c = Config(vocab=tok.size, dim=a.dim, layers=a.layers, heads=a.heads, kv_heads=a.kv_heads, ffn=a.ffn)
    model = Model(c).to(device)
    if a.start:
        model.load_tensors({k: v.astype(np.float32) for k, v in np.load(a.start).items()})
    log(f"{sum(p.numel() for p in model.parameters()) / 1e6:.2f} M parameters on {torch.cuda.get_device_name() if device == 'cuda' else 'the CPU'}")
    step, seconds, loss = fit(model, feed, a, lambda: score(model, tok, items[::3]))
    feed.close()

    np.savez_compressed(os.path.join(a.out, "checkpoint.npz"), **{k: v.astype(np.float16) for k, v in model.tensors().items()})
    log("float32 weights:")
    score(model, tok, items)
    path = export(model, tok, a.out)
    log(f"{path}, {os.path.getsize(path)} bytes, quantized weights:")
    table, results = score(model, tok, items)
    json.dump({"score": table, "steps": step, "batch": a.batch, "seconds": round(seconds), "loss": loss}, open(os.path.join(a.out, "report.json"), "w"))
    with open(os.path.join(a.out, "answers.txt"), "w") as f:
        for item, (right, answer) in sorted(zip(items, results), key=lambda x: x[0].get("part", 1)):
            f.write(f"{'ok ' if right else 'BAD'} [{item['kind']}] {' | '.join([*item.get('history', []), item['q']])}\n      {answer!r}\n")
    for item, (right, answer) in zip(items, results):
        if not right and "part" not in item:
            print(f"[{item['kind']}] {' | '.join([*item.get('history', []), item['q']])}  =>  {answer[:110]!r}")
    log("done")


if __name__ == "__main__":
    main()
