#!/usr/bin/env python3
"""Makes the demo model from nothing: tokenizer, training, quantization, evaluation, GGUF.

    train.py --out DIR [--steps N | --minutes M] [--seeds 1 2 3] [--from CHECKPOINT]

It takes about seven minutes on one H200. DIR gets demo.gguf, questions.json, tokenizer.json, checkpoint-SEED.npz
(F16), answers.txt and report.json. Several --seeds train models of other first weights side by side, on the same batches. The
model that is right most often on the validation questions is written; the held-out questions are asked of it alone.

The corpus follows from --corpus-seed and the first weights from --seeds. Equal arguments do not give equal weights: two
trainings on one H200 differed after 100 steps. The last line of the training prints the weights' checksum.
"""
import argparse, collections, json, multiprocessing, os, random, re, shutil, time, zlib

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # what deterministic sums ask of cuBLAS, before CUDA starts

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
    """Asks all items and prints the right ones by kind; returns the table and evaluate's results."""
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


def write_answers(path, items, results):
    with open(path, "w") as f:
        for item, (right, answer) in sorted(zip(items, results), key=lambda x: x[0].get("part", 1)):
            f.write(f"{'ok ' if right else 'BAD'} [{item['kind']}] {' | '.join([*item.get('history', []), item['q']])}\n      {answer!r}\n")


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


def export(model, tok, path):
    """Writes the GGUF file and puts its quantized weights into the model, so that what is scored is what is shipped."""
    gguf.write(path, metadata(model.c, tok), model.tensors())
    model.load_tensors(gguf.read(path)[1])


# ---- training ----------------------------------------------------------------------------------------------------------

WARM = 200  # steps


def schedule(step, left):
    """The share of the learning rates: up in WARM steps, then down to nothing in a straight line with what is left."""
    return min((step + 1) / WARM, left)


class Guard:
    """Watches the mean loss of every 250 steps. Where it has grown to twice the best, the weights of that best are put
    back and the learning rate is halved from there on: a run that begins to diverge costs seconds, not its result."""

    def __init__(self, name, model, opts):
        self.name, self.model, self.opts = name, model, opts
        self.sum, self.best, self.kept, self.factor, self.mean = 0.0, float("inf"), None, 1.0, float("nan")

    def see(self, step, loss):
        self.sum = self.sum + loss
        if step == 1:
            self.mean = loss.item()
        if step % 250:
            return
        mean = self.mean = float(self.sum) / 250
        self.sum = 0.0
        if mean < self.best:
            self.best, self.kept = mean, [p.detach().clone() for p in self.model.parameters()]
        elif not mean < 2 * self.best + 0.01:
            with torch.no_grad():
                for p, k in zip(self.model.parameters(), self.kept):
                    p.copy_(k)
                for opt, _ in self.opts:
                    for state in opt.state.values():
                        for t in state.values():
                            t.zero_()  # in place: a captured step reads these very tensors
            self.factor /= 2
            log(f"step {step}, seed {self.name}: loss {mean:.4f} after {self.best:.4f}: back to those weights, learning rate times {self.factor}")


class Run:
    """One model in training: its optimizers, its guard and its loss."""

    def __init__(self, seed, config, device, a):
        torch.manual_seed(seed)
        self.seed, self.model = seed, Model(config).to(device)
        if a.start:
            self.model.load_tensors({k: v.astype(np.float32) for k, v in np.load(a.start).items()})
        m, cuda = self.model, device == "cuda"
        # Gains move slowly: they scale whole layers, and a model that is nearly right is thrown off by a few percent of that.
        # No weight decay: late in training it outweighs what is left of the gradient under Muon's steps of fixed size.
        gains = [m.norm1, m.norm2, m.norm]
        matrices = [p for p in m.parameters() if p.ndim == 3]
        self.rest = [m.embed, m.bq, m.bk, m.bv]
        rate = lambda lr: torch.tensor(lr, device=device)  # read by each step, a captured one too
        adam = lambda params, lr: (torch.optim.AdamW(params, rate(lr), (0.9, 0.95), weight_decay=0.0, fused=cuda, capturable=cuda), lr)
        self.opts = [(Muon(matrices, rate(a.lr)), a.lr), adam(self.rest, a.lr_rest), adam(gains, a.lr_rest / 5)]
        self.loss_of = m.loss
        if cuda and not a.plain:
            m.attention = varlen_attention
            self.loss_of = torch.compile(m.loss, dynamic=False)
        self.guard = Guard(seed, m, self.opts)
        self.eager_steps = 3 if cuda and not (a.plain or a.eager) else float("inf")  # before the step is captured as a CUDA graph
        self.graph = None

    def step(self, batch, rate):
        """One step on a batch at that share of the learning rates; returns the loss, still on the device, until the next step.
        The fourth step on a GPU is captured as a graph and replayed from then on: a step is some thousand small kernels."""
        for opt, lr in self.opts:
            for g in opt.param_groups:
                g["lr"].fill_(lr * self.guard.factor * rate)
        if self.eager_steps:
            self.eager_steps -= 1
            return self.compute(batch)
        if not self.graph:
            self.batch, self.graph = [x.clone() for x in batch], torch.cuda.CUDAGraph()
            with torch.cuda.graph(self.graph, stream=torch.cuda.current_stream()):
                self.loss = self.compute(self.batch)
        for mine, x in zip(self.batch, batch):
            mine.copy_(x)
        self.graph.replay()
        return self.loss

    def compute(self, batch):
        device = self.model.embed.device.type
        for opt, _ in self.opts:
            opt.zero_grad(set_to_none=True)
        with torch.autocast(device, torch.bfloat16, enabled=device == "cuda"):
            loss = self.loss_of(*batch)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.rest, 1.0)
        for opt, _ in self.opts:
            opt.step()
        return loss.detach()

    def checksum(self):
        """CRC-32 of the weights: equal where two trainings gave the same model to the last bit."""
        crc = 0
        for t in self.model.tensors().values():
            crc = zlib.crc32(np.ascontiguousarray(t).tobytes(), crc)
        return f"{crc:08x}"


def fit(runs, feed, a, watch):
    """Trains the models on the feed, each on every batch; returns the steps taken and the seconds they took."""
    device = runs[0].model.embed.device
    most_docs = a.batch // 90  # each costs the attention kernels empty blocks; a batch of 65536 tokens was seen to have 600
    t0, step, waited = time.time(), 0, 0.0
    end = START + a.minutes * 60

    def left():
        return (end - time.time()) / (end - t0) if a.minutes else (a.steps - step) / max(a.steps - WARM, 1)

    while (share := left()) > 0:
        t = time.time()
        ids, targets, positions, bounds = feed.take()
        waited += time.time() - t
        if len(bounds) > most_docs:
            raise SystemExit(f"{len(bounds) - 1} documents in a batch: more than {most_docs - 1}")
        bounds = np.concatenate([bounds, np.full(most_docs - len(bounds), a.batch, np.int32)])
        batch = [torch.from_numpy(x) for x in (ids, targets.astype(np.int64), positions, bounds)]
        if device.type == "cuda":  # pinned, the copy does not wait for the step before it
            batch = [x.pin_memory().to(device, non_blocking=True) for x in batch]
        losses = [r.step(batch, schedule(step, share)) for r in runs]
        step += 1
        if step == 20:
            log(f"first 20 steps in {time.time() - t0:.1f} s, loss {' '.join(f'{x.item():.3f}' for x in losses)}")
        for r, loss in zip(runs, losses):
            r.guard.see(step, loss)
        if step % 500 == 0:
            log(f"step {step}, {100 * min(left(), 1):.0f} % left, loss {' '.join(f'{r.guard.mean:.4f}' for r in runs)}")
        if a.watch and step % a.watch == 0:
            watch()
    seconds = time.time() - t0
    log(f"{step} steps of {a.batch} tokens in {seconds:.0f} s, of which {waited:.0f} s were waiting for batches")
    for r in runs:
        log(f"seed {r.seed}: loss {r.guard.mean:.4f}, weights {r.checksum()}")
    return step, seconds


def best(runs, tok, items, out):
    """Writes each model as demo-SEED.gguf. Returns the run of the one that, quantized, is right on most of the validation
    questions, of equals the one of the smallest loss, and how many each has right."""
    right = []
    for r in runs:
        export(r.model, tok, os.path.join(out, f"demo-{r.seed}.gguf"))
        log(f"seed {r.seed} on the validation questions:")
        _, results = score(r.model, tok, items)
        write_answers(os.path.join(out, f"validation-{r.seed}.txt"), items, results)
        right.append(sum(ok for ok, _ in results))
    chosen = max(zip(right, runs), key=lambda x: (x[0], -x[1].guard.mean))[1]
    log(f"seed {chosen.seed} is the best of validation: {max(right)} of {len(items)} right")
    return chosen, right


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--out", required=True)
    ap.add_argument("--seeds", type=int, nargs="+", default=[1], help="of the first weights: a model each, of which the best is written")
    ap.add_argument("--corpus-seed", type=int, default=1, help="of the corpus and the tokenizer")
    ap.add_argument("--steps", type=int, default=12000)
    ap.add_argument("--minutes", type=float, default=0, help="instead of --steps: train until so long after the start; two such runs differ")
    ap.add_argument("--batch", type=int, default=65536, help="tokens a step")
    ap.add_argument("--lr", type=float, default=0.004, help="of the matrices (Muon)")
    ap.add_argument("--lr-rest", type=float, default=0.0005, help="of embedding and biases (AdamW); gains take a fifth of it")
    ap.add_argument("--from", dest="start", help="checkpoint.npz to go on from")
    ap.add_argument("--tokenizer", help="tokenizer.json to use instead of training one")
    ap.add_argument("--workers", type=int, default=max(1, (os.cpu_count() or 2) - 1))
    ap.add_argument("--plain", action="store_true", help="neither compile, flash attention nor a graph")
    ap.add_argument("--eager", action="store_true", help="no graph")
    ap.add_argument("--any-order", action="store_true", help="let the GPU sum in any order: faster, and no two runs are the same")
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
    items, validation = heldout.questions()[::a.every], heldout.validation()[::a.every]

    tok = bpe.Tokenizer.load(a.tokenizer) if a.tokenizer else make_tokenizer(a.corpus_seed, a.vocab)
    tok.save(os.path.join(a.out, "tokenizer.json"))
    log(f"tokenizer of {tok.size}")

    feed = Feed(a.corpus_seed, a.batch, tok, a.workers)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.use_deterministic_algorithms(not a.any_order)
    torch.utils.deterministic.fill_uninitialized_memory = False
    c = Config(vocab=tok.size, dim=a.dim, layers=a.layers, heads=a.heads, kv_heads=a.kv_heads, ffn=a.ffn)
    runs = [Run(seed, c, device, a) for seed in a.seeds]
    log(f"{len(runs)} of {sum(p.numel() for p in runs[0].model.parameters()) / 1e6:.2f} M parameters on {torch.cuda.get_device_name() if device == 'cuda' else 'the CPU'}")
    watch = lambda: [score(r.model, tok, validation) for r in runs]
    if device == "cuda":
        with torch.cuda.stream(torch.cuda.Stream()):  # the default stream cannot be captured
            step, seconds = fit(runs, feed, a, watch)
        torch.cuda.synchronize()
    else:
        step, seconds = fit(runs, feed, a, watch)
    feed.close()

    for r in runs:
        np.savez_compressed(os.path.join(a.out, f"checkpoint-{r.seed}.npz"), **{k: v.astype(np.float16) for k, v in r.model.tensors().items()})
    chosen, right = best(runs, tok, validation, a.out)
    path = os.path.join(a.out, "demo.gguf")
    shutil.copyfile(os.path.join(a.out, f"demo-{chosen.seed}.gguf"), path)
    log(f"{path}, {os.path.getsize(path)} bytes, on the held-out questions:")
    table, results = score(chosen.model, tok, items)
    report = {"score": table, "steps": step, "batch": a.batch, "seconds": round(seconds), "corpus_seed": a.corpus_seed, "seed": chosen.seed,
              "validation": {r.seed: n for r, n in zip(runs, right)}, "validation_questions": len(validation), "loss": {r.seed: r.guard.mean for r in runs}}
    json.dump(report, open(os.path.join(a.out, "report.json"), "w"))
    write_answers(os.path.join(a.out, "answers.txt"), items, results)
    log("done")


if __name__ == "__main__":
    main()
