"""The held-out evaluation: hand-written questions (heldout.toml), sums, units and words of the held-out share, and probes
beside what the model knows (probes.toml), which are to be answered right or declined. The validation questions
(validation.toml and other draws) are apart from both: they choose among models, and the corpus has none of them either.

    python3 heldout.py FILE.json     writes the held-out questions for the Go evaluation
"""
import functools, json, os, random, sys, tomllib

import skills

HERE = os.path.dirname(os.path.abspath(__file__))
SEED, VALIDATION_SEED = 20, 21  # of the drawn questions
DECLINED = "^I don.t know that"

# Phrases that the corpus does not have.
WAYS = {
    "+": ["{a} and {b} added up", "{a} + {b}", "{a} plus {b}", "the total of {a} and {b}"],
    "-": ["{a} - {b}", "{a} minus {b}", "{a} reduced by {b}", "{a} take away {b}"],
    "*": ["{a} * {b}", "{a} times {b}", "{a} multiplied with {b}", "{a} x {b}"],
    "/": ["{a} / {b}", "{a} divided by {b}", "{a} split by {b}", "{a} / {b}"],
}
ASKS = ["How much would {x} be?", "Could you figure out {x}?", "I'd like to know {x}", "Kindly calculate {x}", "{x} makes what?", "What would {x} be?", "What is {x} then?", "{x} is how much?"]
UNIT_WAYS = ["How many {s} would {n} {l} be?", "What would {n} {l} be in {s}?", "I have {n} {l}, how many {s} is that?", "Please convert {n} {l} to {s}", "{n} {l} are how many {s}?"]


def drawn(seed):
    rng = random.Random(seed)
    out = []
    for _ in range(80):
        out.append(skills.arithmetic(rng, held=True, ways=WAYS, asks=ASKS))
    for make, n in ((lambda r: skills.unit(r, held=True, ways=UNIT_WAYS), 24), (lambda r: skills.story(r, held=True), 8), (lambda r: skills.compare(r, held=True), 8), (lambda r: skills.celsius(r, held=True), 4),
                    (lambda r: skills.spell(r, held=True), 6), (lambda r: skills.reverse_word(r, held=True), 10), (lambda r: skills.count_letters(r, held=True), 8), (lambda r: skills.count_one_letter(r, held=True), 8),
                    (lambda r: skills.sort_words(r, held=True), 10), (lambda r: skills.sort_numbers(r, held=True), 6), (lambda r: skills.reverse_order(r, held=True), 4), (lambda r: skills.count_words(r, held=True), 6)):
        out += [make(rng) for _ in range(n)]
    return out


def written(file, probes=False):
    """The questions of a file written by hand. Probes may be declined too."""
    for g in tomllib.load(open(os.path.join(HERE, file), "rb"))["group"]:
        probe = probes or g.get("kind") == "probe"
        for q in g["q"]:
            item = {"q": q, "accept": g["accept"] + [DECLINED] * probe, "kind": "probe" if probe else g.get("kind", "fact")}
            if "part" in g:
                item["part"] = g["part"]
            if "after" in g:
                item["history"] = g["after"]
            yield item


def with_drawn(items, seed, taken=()):
    """The items, and drawn ones whose question neither they nor `taken` have."""
    seen = {(i["q"], *i.get("history", ())) for i in [*items, *taken]}
    for t in drawn(seed):
        if (t.q,) not in seen:
            seen.add((t.q,))
            items.append({"q": t.q, "accept": [t.accept], "kind": t.kind})
    return items


@functools.cache
def questions():
    """All held-out questions: {"q", "history" (messages sent before)?, "accept" (regular expressions), "kind"}."""
    return with_drawn([*written("heldout.toml"), *written("probes.toml", probes=True)], SEED)


@functools.cache
def validation():
    """The validation questions, in the same form."""
    return with_drawn(list(written("validation.toml")), VALIDATION_SEED, questions())


def write(path):
    with open(path, "w", encoding="utf-8") as f:
        f.write("[\n" + ",\n".join(json.dumps(i, ensure_ascii=False) for i in questions()) + "\n]\n")


if __name__ == "__main__":
    write(sys.argv[1])
