"""A byte-level BPE tokenizer: training, encoding and the form in which a GGUF file holds it.

Text is cut by the pattern that `tokenizer.ggml.pre` calls qwen2 (single digits, one blank with the word after it), each
piece is taken as bytes, and the most frequent pairs are merged (Sennrich et al. 2016). Special tokens are never made
from text.
"""
import collections, json, re

# qwen2's pattern with \p{L} and \p{N} in terms of Python's re: exact for text whose numbers are decimal digits.
PIECES = re.compile(r"'(?:[sS]|[tT]|[rR][eE]|[vV][eE]|[mM]|[lL][lL]|[dD])|[^\r\n\w]?[^\W\d_]+|_[^\W\d_]+|\d| ?(?:[^\s\w]|_)+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
SPECIALS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]


def byte_names():
    """GPT-2's printable character for each byte."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    names, extra = {b: chr(b) for b in plain}, 0
    for b in range(256):
        if b not in names:
            names[b] = chr(256 + extra)
            extra += 1
    return names


class Tokenizer:
    def __init__(self, merges):
        """merges: pairs of ids in order of rank. Ids 0..255 are bytes, then the merges, then the specials."""
        self.merges = [tuple(m) for m in merges]
        self.bytes = [bytes([b]) for b in range(256)]
        self.rank = {}
        for i, (a, b) in enumerate(self.merges):
            self.rank[a, b] = 256 + i
            self.bytes.append(self.bytes[a] + self.bytes[b])
        n = len(self.bytes)
        self.end_of_text, self.im_start, self.im_end = n, n + 1, n + 2
        self.size = n + 3
        self.cache = {}

    def piece(self, text):
        ids = list(text.encode())
        while len(ids) > 1:
            best = min(zip(ids, ids[1:]), key=lambda p: self.rank.get(p, 1 << 30))
            new = self.rank.get(best)
            if new is None:
                break
            out, i = [], 0
            while i < len(ids):
                if i + 1 < len(ids) and (ids[i], ids[i + 1]) == best:
                    out.append(new)
                    i += 2
                else:
                    out.append(ids[i])
                    i += 1
            ids = out
        return ids

    def encode(self, text):
        out = []
        for p in PIECES.findall(text):
            ids = self.cache.get(p)
            if ids is None:
                ids = self.piece(p)
                if len(self.cache) < 200_000:
                    self.cache[p] = ids
            out += ids
        return out

    def decode(self, ids):
        return b"".join(self.bytes[i] if i < len(self.bytes) else SPECIALS[i - len(self.bytes)].encode() for i in ids).decode("utf-8", "replace")

    def token_strings(self):
        names = byte_names()
        return ["".join(names[b] for b in t) for t in self.bytes] + SPECIALS

    def merge_strings(self):
        t = self.token_strings()
        return [f"{t[a]} {t[b]}" for a, b in self.merges]

    def save(self, path):
        with open(path, "w") as f:
            json.dump(self.merges, f)

    @staticmethod
    def load(path):
        return Tokenizer(json.load(open(path)))

    @staticmethod
    def of_gguf(metadata):
        names = {s: i for i, s in enumerate(metadata["tokenizer.ggml.tokens"])}
        return Tokenizer([[names[p] for p in m.split(" ")] for m in metadata["tokenizer.ggml.merges"]])


def train(texts, size):
    """Learns merges until the vocabulary, specials included, has `size` tokens."""
    counts = collections.Counter()
    for t in texts:
        counts.update(PIECES.findall(t))
    words = [(list(p.encode()), n) for p, n in sorted(counts.items())]
    pairs, where = collections.Counter(), collections.defaultdict(set)
    for i, (w, n) in enumerate(words):
        for p in zip(w, w[1:]):
            pairs[p] += n
            where[p].add(i)
    merges = []
    while 256 + len(merges) + len(SPECIALS) < size:
        best = max(pairs, key=lambda p: (pairs[p], -p[0], -p[1]))
        if pairs[best] < 2:
            raise SystemExit(f"bpe: too little text for {size} tokens")
        new = 256 + len(merges)
        merges.append(best)
        for i in sorted(where.pop(best)):
            w, n = words[i]
            for p in zip(w, w[1:]):
                pairs[p] -= n
                where[p].discard(i)
            out, j = [], 0
            while j < len(w):
                if j + 1 < len(w) and (w[j], w[j + 1]) == best:
                    out.append(new)
                    j += 2
                else:
                    out.append(w[j])
                    j += 1
            words[i] = (out, n)
            for p in zip(out, out[1:]):
                pairs[p] += n
                where[p].add(i)
    return Tokenizer(merges)
