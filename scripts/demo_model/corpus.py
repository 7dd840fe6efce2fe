"""The corpus: dialogues from the fact table (facts.toml) and the skills, as text, and as packed batches of tokens.

Everything follows from a seed: batch i of a run is the same on every machine. No text comes from elsewhere. Questions of
the held-out set are never emitted: normalized, they are looked up here and drawn again.

    python3 corpus.py [--n 20] [--seed 1]    prints dialogues
    python3 corpus.py --check                checks the fact table against the repository
"""
import argparse, functools, json, os, random, re, tomllib

import phrases as P
import skills
from skills import Turn
from unknown import ACCEPT, DECLINE, unknown

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))


def normal(text):
    """The form in which two questions count as the same: case, spaces and punctuation at word ends do not matter."""
    return " ".join(w.strip(".,;:!?'\"()").lower() for w in text.split()).strip()


# ---- facts -----------------------------------------------------------------------------------------------------------

class Fact:
    """One answer: how to ask for it, what it belongs to, and what may follow."""

    def __init__(self, kind, attr, thing, answer, names=(), carriers=(), asks=(), dos=(), noun=None, follow=()):
        self.kind, self.attr, self.thing, self.answer = kind, attr, thing, answer
        self.names, self.carriers, self.asks, self.dos = list(names), list(carriers), list(asks), list(dos)
        self.nouns, self.follow = noun or P.NOUNS["fact"], list(follow)
        self.weight = 1.0

    def ask(self, rng):
        """A question for this fact, clean, as (text, identifier): typos must keep off the identifier."""
        ways = [(self.names and self.carriers, 2), (self.asks, 1 + len(self.asks) / 5), (self.dos, 1 + len(self.dos) / 4)]
        way = rng.choices(range(3), [w if usable else 0 for usable, w in ways])[0]
        noun = rng.choice(self.nouns)
        if way == 0:
            x = rng.choice(self.names)
            return rng.choice(self.carriers).format(x=x, n=noun), x
        if way == 1:
            return rng.choice(self.asks), None
        carriers = P.HOW_WITH if self.kind in ("flag", "command", "target", "slash", "go", "c") and rng.random() < 0.35 else P.HOW
        v = rng.choice(self.dos)
        return rng.choice(carriers).format(v=v, g=gerund(v), n=noun), None


DOUBLED = {"run", "get", "set", "stop", "cut", "put", "quit", "begin", "cap", "chat", "dump", "fit", "plug", "reset"} - {"dump"}


def gerund(v):
    """'build for CUDA' -> 'building for CUDA'"""
    first, _, rest = v.partition(" ")
    if first == "not":
        return "not " + gerund(rest)
    if first in DOUBLED:
        first += first[-1]
    elif first.endswith("e") and not first.endswith("ee"):
        first = first[:-1]
    return f"{first}ing {rest}".strip()


def with_nouns(name, kind):
    return [name, name, name, f"the {name} {P.NOUNS.get(kind, P.NOUNS['command'])[0]}", f"`{name}`"]


@functools.cache
def command():
    """What the command says of itself: command.json, which go generate ./cmd/vibrant writes."""
    return json.load(open(os.path.join(HERE, "command.json"), encoding="utf-8"))


def sentence(name, text):
    """'NAME: text.' A token's name such as <|im_end|> stays text: the tokenizer takes none in a message for the token."""
    return f"{name}: {text.rstrip('.')}."


def decapitalized(text):
    return text if text[:2].isupper() else text[0].lower() + text[1:]


def flag_names(names):
    """How people name a flag: with its dashes, and by the word alone."""
    out = [x for name in names[:2] for x in with_nouns(name, "flag")] + names[2:] * 2
    return out + [f"the {n[2:]} {noun}" for n in names[:2] if len(n) > 4 for noun in P.NOUNS["flag"][:2]]


def with_values(names, example):
    """Flags as people type them, with the value of their example and like ones: '--temp 0.7', '-ctk q8_0'."""
    flags = [n for n in names if re.fullmatch("--?[a-z][a-z-]*", n)]
    value = next((m[1] for n in flags if (m := re.search(rf"(?<!\S){n} ([^-\s]\S*)", example))), None)
    if value is None:
        return []
    alike = ["f16", "q8_0", "q4_0", "f32"] if value == "f16" else [value]
    if re.fullmatch(r"\d+", value):
        alike = [value, "1", "8", "50", "100", "512", "2048"]
    elif re.fullmatch(r"\d*\.\d+", value):
        alike = [value, "0.1", "0.3", "0.8", "1.2"]
    return [f"{n} {v}" for n in dict.fromkeys(flags) for v in alike]


def flag_answer(names, help):
    """Its first meaning, then what else it means to other commands."""
    name, (first, *others) = ", ".join(names[:2]), help
    of = lambda h: " and ".join(h["commands"]) if len(h["commands"]) < 4 else "others"
    if not others:
        return sentence(f"{name} of vibrant {first['commands'][0]}" if len(first["commands"]) == 1 else name, first["text"])
    text = first["text"] if len(first["commands"]) > 3 else f"in {of(first)} {first['text']}"
    return sentence(name, "; ".join([text] + [f"in {of(h)} {h['text']}" for h in others]))


def flag_facts():
    """(names, answer) of all flags. A letter that two flags share is a flag by itself."""
    flags, letters = command()["flags"], {}
    for f in flags:
        for letter in (n for n in f["names"] if len(n) == 2):
            letters.setdefault(letter, []).append(f)
    shared = {l: fs for l, fs in letters.items() if len(fs) > 1}
    for letter, fs in shared.items():
        help = sorted((h for f in fs for h in f["help"]), key=lambda h: -len(h["commands"]))
        yield [letter], flag_answer([letter], help)
    for f in flags:
        names = [n for n in f["names"] if n not in shared]
        yield names, flag_answer(names, f["help"])


MODELS = """llama llama3.2 qwen3:8b gemma3 gemma phi4 tinyllama deepseek-r1 mixtral smollm my-model model.gguf mistral mistral-nemo qwen2.5 qwen codellama starcoder2 falcon
command-r yi vicuna orca-mini granite3.3 gpt-oss:20b olmo2 hermes3 solar zephyr llama3.1:70b phi3:mini ./llama.gguf ~/models/qwen.gguf""".split()


def number_text(x):
    return f"{x:g}" if x != int(x) else str(int(x))


@functools.cache
def facts():
    """All facts by id: 'id' for free facts, 'kind:thing:attribute' for the rest ('kind:thing' is its first one)."""
    table = tomllib.load(open(os.path.join(HERE, "facts.toml"), "rb"))
    out = {}

    def put(kind, thing, attr, answer, names, carriers, asks=(), dos=(), noun=None, follow=()):
        out[f"{kind}:{thing}:{attr}"] = Fact(kind, attr, thing, answer, names, carriers, asks, dos, noun or P.NOUNS.get({"foreign": "flag", "elsewhere": "command"}.get(kind, kind)), follow)

    lists = {"commands": " ".join(c["name"] for c in command()["commands"]), "slashes": " ".join(c["name"] for c in command()["slashes"]),
             "json": " ".join(sorted({c for f in command()["flags"] if "--json" in f["names"] for h in f["help"] for c in h["commands"]}))}
    for f in table["fact"]:
        answer = f["answer"].format(**lists) if "{" in f["answer"] else f["answer"]
        out[f["id"]] = Fact("fact", "what", f["id"], answer, f.get("what", ()), P.WHAT, f.get("ask", ()), f.get("do", ()), follow=f.get("follow", ()))
        out[f["id"]].weight = 1.5 if f.get("follow") else 1.0
    phrases = {(kind, t["name"]): t for kind in ("command", "slash", "flag", "elsewhere") for t in table[kind]}

    def use(kind, thing, what, names, said):
        """A thing that does something, with the phrases and the example that the table has for it."""
        names = names + said.get("aka", []) * 2
        put(kind, thing, "what", what, names + with_values(names, said.get("example", "")), P.WHAT_DOES * 2 + P.WHAT, said.get("ask", ()), said.get("do", ()))
        if "example" in said:
            put(kind, thing, "example", "For example: " + said["example"], names, P.EXAMPLE)

    def of_command(kind, thing, what, names):
        use(kind, thing, what, names, phrases.pop((kind, thing), {}))

    for c in command()["commands"]:
        x = c["name"]
        of_command("command", x, sentence("vibrant " + c["use"], decapitalized(c["short"])), with_nouns("vibrant " + x, "command") + [f"the {x} command", f"the command {x}"])
    for c in command()["slashes"]:
        x = c["name"]
        of_command("slash", x, c["help"] + "." if c["help"].startswith(x) else sentence(x, c["help"]), with_nouns(x, "slash"))
    for names, answer in flag_facts():
        of_command("flag", next((n for n in names if n[:2] == "--"), names[0]), answer, flag_names(names))
    for f in command()["foreign"]:
        of_command("foreign", f["names"][0], sentence(f["names"][0], "accepted, changes nothing: " + f["help"][0]["text"]), flag_names(f["names"]))
    for c in command()["elsewhere"]:
        said = phrases.pop(("elsewhere", c["name"]), {})
        whole = [f"{program} {c['name']} {model}" for program in ("vibrant", "ollama") for model in MODELS]
        use("elsewhere", c["name"], f"There is no vibrant {c['name']}; {c['help']}.", ["vibrant " + c["name"], f"the {c['name']} command", "ollama " + c["name"]] + whole,
            said | {"ask": said.get("ask", []) + whole})

    if phrases:
        raise SystemExit(f"facts.toml has phrases for what the command has not: {', '.join(x for _, x in phrases)}")
    for kind, prefix in (("target", "make "), ("go", ""), ("c", "")):
        for t in table[kind]:
            x = prefix + t["name"]
            use(kind, t["name"], t["what"], with_nouns(x, kind) + ([f"the {t['name']} target", f"the make target {t['name']}"] if prefix else []), t)
    for t in table["gpu"]:
        put("gpu", t["id"], "build", t["build"], t["names"], P.BUILD_FOR)
        put("gpu", t["id"], "cc", "", t["names"], P.CC)
        if "toolkit" in t:
            put("gpu", t["id"], "toolkit", t["toolkit"], t["names"], P.TOOLKIT)
    for t in table["format"]:
        x, b, n = t["name"], t["block"], t["bytes"]
        names = [x, x, x, x.lower(), f"the format {x}", f"the {x} format", f"the type {x}"]
        put("format", x, "what", t["what"], names, P.WHAT)
        put("format", x, "bits", f"{x} takes {number_text(n * 8 / b)} bits a weight.", names, P.BITS)
        put("format", x, "block", f"A block of {x} holds {b} weight{'s' if b > 1 else ''}.", names, P.BLOCK)
        put("format", x, "bytes", f"A block of {x} takes {n} bytes for {b} weight{'s' if b > 1 else ''}.", names, P.BYTES)
        put("format", x, "id", f"The ggml type id of {x} is {t['id']}.", names, P.TYPE_ID)
    for t in table["op"]:
        x = t["name"]
        names = [x, x, x] + t["aka"]
        put("op", x, "what", t["what"], names, P.WHAT + P.WHAT_DOES[:8])
        put("op", x, "formula", f"{x}: {t['formula']}", names, P.FORMULA)
        put("op", x, "go", f"In Go: {t['go']}", names, P.IN_GO)
        put("op", x, "c", f"In C: {t['c']}", names, P.IN_C)
    for t in table["error"]:
        x = t["name"]
        names = [x, x, "gpu." + x] + t["says"]
        put("error", x, "means", t["what"], names, P.MEANS)
        put("error", x, "fix", t["fix"], names, P.FIX)
        if "code" in t:
            put("error", x, "status", f"In C it is {t['code']}, status {t['status']}.", [x, "gpu." + x], P.STATUS)
    for t in table["term"]:
        put("term", t.get("id", t["names"][0]), "what", t["what"], t["names"], P.WHAT)
    for t in table["gpu"]:  # the answer names the GPU as it was asked for
        out[f"gpu:{t['id']}:cc"].answer = f"The compute capability is {t['cc']}."
    for f in out.values():
        if f.kind in ("format", "op", "go", "c", "error"):
            f.weight = 0.6
    return out


def find(fid):
    """The fact that an id of a follow-up names."""
    table = facts()
    if fid in table:
        return table[fid]
    for key, f in table.items():
        if key.startswith(fid + ":"):
            return f
    raise KeyError(f"facts.toml: no fact {fid!r}")


@functools.cache
def by_kind():
    """Facts by (kind, attribute), for 'and X?', and by (kind, thing), for 'and its size?'."""
    same_attr, same_thing = {}, {}
    for f in facts().values():
        if f.kind != "fact":
            same_attr.setdefault((f.kind, f.attr), []).append(f)
            same_thing.setdefault((f.kind, f.thing), []).append(f)
    return same_attr, same_thing


@functools.cache
def fact_list():
    fs = list(facts().values())
    return fs, [f.weight for f in fs]


@functools.cache
def known_words():
    """Words by which facts are asked for: no filler of a declined question may be one."""
    out = set()
    for f in facts().values():
        for text in f.names + f.asks + f.dos:
            out |= set(re.findall(r"[a-z0-9_]+", text.lower()))
    return out


# ---- noise -----------------------------------------------------------------------------------------------------------

SYNONYMS = [(re.compile(rf"\b{re.escape(w)}\b"), others) for w, others in P.SYNONYMS]


ROWS = "qwertyuiop asdfghjkl zxcvbnm"
NEIGHBOURS = {c: (ROWS[i - 1:i] + ROWS[i + 1:i + 2]).strip() for i, c in enumerate(ROWS) if c != " "}
ALIKE = [("ie", "ei"), ("ei", "ie"), ("c", "s"), ("s", "c"), ("e", "a"), ("a", "e"), ("i", "e"), ("o", "u"), ("ph", "f"), ("ck", "k"), ("th", "ht"), ("y", "i"), ("tion", "shun"), ("ll", "l"), ("tt", "t"), ("mm", "m"), ("ss", "s"), ("pp", "p")]


def typo(rng, w):
    """A word of four letters or more as it is mistyped or misheard."""
    i = rng.randrange(1, len(w) - 1)
    r = rng.randrange(8)
    if r == 0:
        return w[:i] + w[i + 1:]
    if r == 1:
        return w[:i] + w[i] + w[i:]
    if r < 4:
        return w[:i] + w[i + 1] + w[i] + w[i + 2:]
    if r == 4:
        return w[:i] + rng.choice("abcdefghijklmnopqrstuvwxyz") + w[i + 1:]
    if r == 5:
        return w[:i] + rng.choice(NEIGHBOURS.get(w[i].lower(), w[i])) + w[i + 1:]
    if r == 6:
        return w[:-1]
    alike = [(a, b) for a, b in ALIKE if a in w[1:]]
    if not alike:
        return w[:i] + w[i + 1:]
    a, b = rng.choice(alike)
    return w[0] + w[1:].replace(a, b, 1)


def noisy(rng, q, keep=None, typos=True):
    """The question as another person would type it. keep: the identifier in it, left as it is."""
    for rx, others in SYNONYMS:
        if rng.random() < 0.15 and rx.search(q):
            if keep and rx.search(keep):
                continue
            q = rx.sub(rng.choice(others), q, count=1)
    r = rng.random()
    if r < 0.14:
        opening = rng.choice(P.OPENINGS)
        q = opening + (q if rng.random() < 0.5 else q[0].lower() + q[1:])
    elif r < 0.22:
        q = q.rstrip("?.") + rng.choice(P.ENDINGS)
    elif r < 0.25:
        q = rng.choice(P.OPENINGS) + q.rstrip("?.") + rng.choice(P.ENDINGS)
    kept = set(keep.split()) if keep else ()
    if rng.random() < 0.12:
        q = clipped(q, kept)
    elif rng.random() < 0.12:
        ws = q.split()
        drop = [i for i, w in enumerate(ws) if w.lower() in P.FILLERS and w not in kept]
        for i in sorted(rng.sample(drop, min(len(drop), rng.choice((1, 1, 2, 3)))), reverse=True):
            del ws[i]
        q = " ".join(ws) or q
    if typos and rng.random() < 0.26:
        ws = q.split()
        can = [i for i, w in enumerate(ws) if len(w) > 3 and w.isalpha() and w not in kept]
        for i in rng.sample(can, min(len(can), rng.choice((1, 1, 2)))):
            ws[i] = typo(rng, ws[i])
        q = " ".join(ws)
    return cased(rng, q, keep)


def clipped(q, kept):
    """The words that carry the question, as one types them into a search."""
    ws = [w for w in q.split() if w in kept or w.lower().strip("?.,") not in P.CLIPPED]
    return " ".join(ws) if len(ws) > 1 else q


def cased(rng, q, keep=None):
    r = rng.random()
    if r < 0.36:
        q = q.lower()
    elif r < 0.38 and not keep:
        q = q.upper()
    elif r < 0.46:
        q = q[0].lower() + q[1:]
    r = rng.random()
    if r < 0.33:
        q = q.rstrip("?.!")
    elif r < 0.37:
        q = q.rstrip("?.!") + rng.choice(["?", "??", " ?", ".", "!"])
    return q.strip() or "?"


def finish(rng, turn, keep=None):
    if turn.noise:
        turn.q = lightly(rng, turn) if turn.kind in ("math", "units", "words") else noisy(rng, turn.q, keep, turn.typos)
    return turn


def lightly(rng, turn):
    """Numbers and words to work on must survive: only openings, and case where no word is at stake."""
    q = turn.q
    if rng.random() < 0.1:
        q = rng.choice(P.OPENINGS) + q
    if rng.random() < 0.06:
        q = q.rstrip("?.") + rng.choice([", please", " please", " ?", "!", ", thanks", " now"])
    if turn.kind == "words":
        return q[0].lower() + q[1:] if rng.random() < 0.3 and q[1:2].islower() else q
    if rng.random() < 0.4:
        q = q.lower()
    if rng.random() < 0.25:
        q = q.rstrip("?.")
    for plain, others in (("what is", ("whats", "wats", "waht is", "what's")), ("how much", ("hwo much", "how mcuh")), ("calculate", ("calc", "calcualte")), ("which", ("wich", "whcih")), ("please", ("pls",))):
        if rng.random() < 0.12:
            q = re.sub(rf"(?i)\b{plain}\b", rng.choice(others), q, count=1)
    return q


# ---- turns and dialogues -----------------------------------------------------------------------------------------------

def fact_turn(rng, f):
    q, keep = f.ask(rng)
    return finish(rng, Turn(q, f.answer, "fact"), keep)


def follow_turn(rng, q, f):
    return Turn(noisy(rng, q) if rng.random() < 0.5 else cased(rng, q), f.answer, "fact")


def fact_walk(rng, n):
    """Up to n turns about one thing: follow-ups of a free fact, other attributes, the same attribute of other things."""
    fs, weights = fact_list()
    f = rng.choices(fs, weights)[0]
    if rng.random() < 0.5:
        f = rng.choice([x for x in fs if x.follow])
    same_attr, same_thing = by_kind()
    turns = [fact_turn(rng, f)]
    while len(turns) < n:
        ways = []
        if f.follow:
            ways += ["follow"] * 3
        if f.kind != "fact":
            if len(same_thing[f.kind, f.thing]) > 1:
                ways += ["it"] * 2
            if f.kind in ("format", "gpu", "op", "error", "flag", "command", "target", "slash", "term", "c", "go"):
                ways += ["and"]
        if not ways:
            break
        way = rng.choice(ways)
        if way == "follow":
            q, fid = rng.choice(f.follow)
            if fid == "unknown":
                turns.append(Turn(cased(rng, q), DECLINE, "unknown", ACCEPT))
                break
            g = find(fid)
            turns.append(follow_turn(rng, q, g))
            if not g.follow and rng.random() < 0.6:
                continue  # go on with the follow-ups of the same fact
            f = g
        elif way == "it":
            g = rng.choice([x for x in same_thing[f.kind, f.thing] if x is not f and x.attr in P.IT] or [f])
            if g is f:
                break
            q = rng.choice(P.IT[g.attr])
            turns.append(follow_turn(rng, q, g))
            f = g
        else:
            g = rng.choice(same_attr[f.kind, f.attr])
            x = rng.choice(g.names)
            turns.append(Turn(cased(rng, rng.choice(P.AND).format(x=x), x), g.answer, "fact"))
            f = g
    return turns


def unknown_turn(rng):
    return finish(rng, unknown(rng, known_words()))


def one_turn(rng):
    r = rng.random()
    if r < 0.38:
        fs, weights = fact_list()
        return fact_turn(rng, rng.choices(fs, weights)[0])
    if r < 0.66:
        return finish(rng, skills.skill(rng))
    if r < 0.945:
        return unknown_turn(rng)
    return finish(rng, skills.small_talk(rng))


def segment(rng, room):
    """One turn, or a few that belong together."""
    r = rng.random()
    if room < 2 or r < 0.6:
        return [one_turn(rng)]
    if r < 0.88:
        return fact_walk(rng, min(room, rng.choice((2, 2, 3, 4, 6))))
    if r < 0.92:
        return [finish(rng, t) for t in skills.arithmetic_follow(rng)][:room]
    if r < 0.95:
        return [finish(rng, t) for t in skills.arithmetic_ellipsis(rng)][:room]
    if r < 0.97:
        return [one_turn(rng), finish(rng, Turn(rng.choice(["And you?", "Thanks!", "ok thank you", "Thank you!"]), "You are welcome.", "talk"))] if rng.random() < 0.7 else \
            [Turn(rng.choice(["What is my name?", "Do you know my name?", "who am i?"]), DECLINE, "unknown")]
    return skills.my_name(rng, [one_turn(rng) for _ in range(rng.randrange(min(room - 1, 3)))])


def dialogue(rng):
    n = rng.choices((1, 2, 3, 4, 6, 8, 11, 20, 36), (450, 160, 120, 100, 90, 50, 25, 8, 3))[0]
    turns = []
    while len(turns) < n:
        turns += segment(rng, n - len(turns))
    return turns


# ---- held-out questions ------------------------------------------------------------------------------------------------

@functools.cache
def forbidden():
    """Normalized held-out and validation questions: single ones, and (previous, question) for those with a history."""
    import heldout
    out = set()
    for item in heldout.questions() + heldout.validation():
        h = item.get("history")
        out.add((normal(h[-1]), normal(item["q"])) if h else normal(item["q"]))
    return out


def emits(turns):
    """The forms of a dialogue that the held-out set is compared with."""
    qs = [normal(t.q) for t in turns]
    return set(qs) | set(zip(qs, qs[1:]))


def clean_dialogue(rng):
    while True:
        turns = dialogue(rng)
        if not (emits(turns) & forbidden()):
            return turns


# ---- tokens ------------------------------------------------------------------------------------------------------------

def document(rng, tok):
    """One dialogue as (ids, weights): weight 1 on what the assistant says, a little on the rest of plain text."""
    if rng.random() < 0.01:  # plain text, for `vibrant complete`
        ids = tok.encode(" ".join(f.answer for f in rng.sample(fact_list()[0], 3))) + [tok.end_of_text]
        return ids, [1] * len(ids)
    ids, weight = [], []

    def add(new, w):
        ids.extend(new)
        weight.extend([w] * len(new))

    if rng.random() < 0.08:
        add([tok.im_start, *tok.encode("system\n" + rng.choice(P.SYSTEMS)), tok.im_end, *tok.encode("\n")], 0)
    for t in clean_dialogue(rng):
        add([tok.im_start, *tok.encode("user\n" + t.q), tok.im_end, *tok.encode("\n"), tok.im_start, *tok.encode("assistant\n")], 0)
        add([*tok.encode(t.a), tok.im_end], 1)
        add(tok.encode("\n"), 0)
    return ids, weight


def batch(seed, index, size, tok, longest=2048):
    """Batch `index` as numpy arrays of `size` tokens: ids, targets (-1 where nothing is learned), positions, and the
    bounds of the documents, which attention must not cross."""
    import numpy as np
    rng = random.Random(seed * 1_000_003 + index)
    ids, targets, positions = np.zeros(size, np.int32), np.full(size, -1, np.int32), np.zeros(size, np.int32)
    bounds, at = [0], 0
    while at < size:
        d, w = document(rng, tok)
        d, w = d[:longest], w[:longest]
        n = min(len(d), size - at)
        ids[at:at + n] = d[:n]
        positions[at:at + n] = np.arange(n)
        t = [d[i + 1] if w[i + 1] else -1 for i in range(min(n, len(d) - 1))]
        targets[at:at + len(t)] = t
        at += n
        bounds.append(at)
    return ids, targets, positions, np.array(bounds, np.int32)


# ---- checks ------------------------------------------------------------------------------------------------------------

def check_repository():
    """Names in the fact table that the repository does not have, as far as it can be read; returns the warnings."""
    table = tomllib.load(open(os.path.join(HERE, "facts.toml"), "rb"))
    warnings = []

    def source(*paths):
        texts = []
        for path in paths:
            full = os.path.join(ROOT, path)
            files = [os.path.join(full, f) for f in sorted(os.listdir(full))] if os.path.isdir(full) else [full] if os.path.exists(full) else []
            texts += [open(f, encoding="utf-8", errors="replace").read() for f in files if os.path.isfile(f)]
        return "\n".join(texts)

    makefile, cmd, header, gpu, tensor = source("Makefile"), source("cmd/vibrant"), source("csrc/vibrant.h"), source("gpu"), source("tensor")
    dtypes = source("dtype/types.go")
    if makefile:
        have = set(re.findall(r"^([a-z][a-z0-9-]*):", makefile, re.M))
        for names in re.findall(r"^([a-z][a-z0-9 -]*):", makefile, re.M):
            have |= set(names.split())
        warnings += [f"Makefile has no target {t['name']}" for t in table["target"] if t["name"] not in have]
    if cmd:
        warnings += [f"cmd/vibrant does not name the flag {t['name']}" for t in table["flag"] if f'"{t["name"].lstrip("-")}"' not in cmd and not re.search(rf'P\(.*"{t["name"].lstrip("-")}"', cmd)]
        warnings += [f"cmd/vibrant does not name the command {t['name']}" for t in table["command"] if not re.search(rf'"{t["name"]}[ "]', cmd)]
        warnings += [f"cmd/vibrant does not name {t['name']}" for t in table["slash"] if t["name"] not in cmd and f'"{t["name"][1:]}"' not in cmd]
    if header:
        warnings += [f"vibrant.h has no {t['name']}" for t in table["c"] if t["name"] not in header]
        for t in table["error"]:
            if "code" in t and not re.search(rf"{t['code']} = {t['status']}\b", header):
                warnings.append(f"vibrant.h does not say {t['code']} = {t['status']}")
        for t in table["format"]:
            if not re.search(rf"VB_{t['name']} = {t['id']}\b", header):
                warnings.append(f"vibrant.h does not say VB_{t['name']} = {t['id']}")
        for t in table["op"]:
            name = t["c"].split("(")[0]
            if name not in header:
                warnings.append(f"vibrant.h has no {name}")
    if dtypes:
        for t in table["format"]:
            if not re.search(rf'"{t["name"]}", {t["block"]}, {t["bytes"]}\}}', dtypes):
                warnings.append(f"dtype/types.go does not give {t['name']} blocks of {t['block']} in {t['bytes']} bytes")
    if gpu:
        warnings += [f"package gpu has no {t['name']}" for t in table["error"] if t["name"] not in gpu]
    if tensor:
        warnings += [f"package tensor has no {t['go'].split('(')[0]}" for t in table["op"] if t["go"].startswith("tensor.") and f"func {t['go'][7:].split('(')[0]}(" not in tensor]
    return warnings


def check_table():
    """Every clean question has one answer, and every follow-up a fact."""
    seen, clashes = {}, {}
    for key, f in facts().items():
        for q, fid in f.follow:
            if fid != "unknown":
                find(fid)
        nouns = f.nouns
        questions = [c.format(x=x, n=n) for x in f.names for c in f.carriers for n in nouns] + f.asks + [c.format(v=v, g=gerund(v), n=n) for v in f.dos for c in P.HOW for n in nouns[:1]]
        for q in questions:
            other = seen.setdefault(normal(q), f)
            if other.answer != f.answer:
                clashes.setdefault((other.answer, f.answer), q)
    if clashes:
        raise SystemExit("\n".join(f"facts.toml: {q!r} asks for two facts:\n  {a}\n  {b}" for (a, b), q in clashes.items()))
    return len(facts()), len(seen)


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--n", type=int, default=20)
    ap.add_argument("--seed", type=int, default=1)
    ap.add_argument("--check", action="store_true")
    a = ap.parse_args()
    n, q = check_table()
    if a.check:
        for w in check_repository():
            print("warning:", w)
        print(f"{n} facts, {q} plain questions for them, no two facts share a question")
        return
    rng = random.Random(a.seed)
    for _ in range(a.n):
        for t in clean_dialogue(rng):
            print(f"> {t.q}\n{t.a}")
        print()


if __name__ == "__main__":
    main()
