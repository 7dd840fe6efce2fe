"""The held-out evaluation: hand-written questions (heldout.toml), sums, units and words of the held-out share, and probes
beside what the model knows (probes.toml), which are to be answered right or declined.

    python3 heldout.py FILE.json     writes the questions for the Go evaluation
"""
import functools, json, os, random, sys, tomllib

import skills

HERE = os.path.dirname(os.path.abspath(__file__))
SEED = 20  # of the drawn questions
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


def drawn():
    rng = random.Random(SEED)
    out = []
    for _ in range(80):
        out.append(skills.arithmetic(rng, held=True, ways=WAYS, asks=ASKS))
    for make, n in ((lambda r: skills.unit(r, held=True, ways=UNIT_WAYS), 24), (lambda r: skills.story(r, held=True), 8), (lambda r: skills.compare(r, held=True), 8), (lambda r: skills.celsius(r, held=True), 4),
                    (lambda r: skills.spell(r, held=True), 6), (lambda r: skills.reverse_word(r, held=True), 10), (lambda r: skills.count_letters(r, held=True), 8), (lambda r: skills.count_one_letter(r, held=True), 8),
                    (lambda r: skills.sort_words(r, held=True), 10), (lambda r: skills.sort_numbers(r, held=True), 6), (lambda r: skills.reverse_order(r, held=True), 4), (lambda r: skills.count_words(r, held=True), 6)):
        out += [make(rng) for _ in range(n)]
    return out


@functools.cache
def questions():
    """All held-out questions: {"q", "history" (messages sent before)?, "accept" (regular expressions), "kind"}."""
    items = []
    for g in tomllib.load(open(os.path.join(HERE, "heldout.toml"), "rb"))["group"]:
        for q in g["q"]:
            item = {"q": q, "accept": g["accept"], "kind": g.get("kind", "fact")}
            if "part" in g:
                item["part"] = g["part"]
            if "after" in g:
                item["history"] = g["after"]
            items.append(item)
    for g in tomllib.load(open(os.path.join(HERE, "probes.toml"), "rb"))["group"]:
        items += [{"q": q, "accept": g["accept"] + [DECLINED], "kind": "probe"} | ({"part": g["part"]} if "part" in g else {}) for q in g["q"]]
    seen = {(i["q"], *i.get("history", ())) for i in items}
    for t in drawn():
        if (t.q,) not in seen:
            seen.add((t.q,))
            items.append({"q": t.q, "accept": [t.accept], "kind": t.kind})
    return items


def write(path):
    with open(path, "w", encoding="utf-8") as f:
        f.write("[\n" + ",\n".join(json.dumps(i, ensure_ascii=False) for i in questions()) + "\n]\n")


if __name__ == "__main__":
    write(sys.argv[1])
