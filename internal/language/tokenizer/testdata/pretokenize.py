#!/usr/bin/env python3
"""Writes pretokenize.json: texts with the pieces that Hugging Face's tokenizers (pip install tokenizers==0.23.3) cuts
them into by the models' own expressions, as lengths in bytes. Run it in this folder to make the file anew."""
import json
import random

from tokenizers import Regex
from tokenizers.pre_tokenizers import ByteLevel, Digits, Punctuation, Sequence, Split

CONTRACTION = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
REST = r"|\s*[\r\n]+|\s+(?!\S)|\s+"
GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
U, V = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"

DEEPSEEK = r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*" + REST


def cl100k(digits, word=r"\p{L}"):
    return CONTRACTION + rf"|[^\r\n\p{{L}}\p{{N}}]?[{word}]+|\p{{N}}{digits}| ?[^\s{word}\p{{N}}]+[\r\n]*" + REST


def o200k(digits, tail):
    first = r"[^\r\n\p{L}\p{N}]?"
    return f"{first}{U}*{V}+{tail}|{first}{U}+{V}*{tail}" + rf"|\p{{N}}{digits}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*" + REST


EXPRESSIONS = {
    "gpt-2": [GPT2],
    "starcoder": [r"\p{N}", GPT2],
    "qwen2": [cl100k("")],
    "qwen35": [cl100k("", r"\p{L}\p{M}")],
    "llama-bpe": [cl100k("{1,3}")],
    "gpt-4o": [o200k("{1,3}", CONTRACTION + "?")],
    "tekken": [o200k("", "")],
    "deepseek-v3": [
        r"\p{N}{1,3}",
        "[一-龥぀-ゟ゠-ヿ]+",
        DEEPSEEK,
    ],
    "deepseek-coder": [r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", "[一-龥ࠀ-一가-\ud7ff]+", r"\p{N}"],
    "falcon": [Punctuation("contiguous"), ByteLevel(add_prefix_space=False), Digits(), "[0-9][0-9][0-9]"],  # digits of bytes
    "default": [r"[\p{P}$+<=>^~|]+", GPT2, r"\p{N}+", "[0-9][0-9][0-9]"],
    "bloom": [r" ?[^(\s|.,!?…。，、।۔،)]+"],
    "minicpm5": [r"\p{N}{1,3}", cl100k("+")],
    "ufakzeka": [cl100k("").removeprefix(CONTRACTION + "|")],
    "laguna": [r"[^\n]+|[\n]+", cl100k("")],
    "seed-coder": [CONTRACTION + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}\r\n]+" + REST],
    "bailingmoe": [r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+"],
    "exaone-moe": [CONTRACTION + r"|[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]|\s+(?!\S)|\s+"],
    "jais-2": [CONTRACTION + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|"
               + "|".join(rf"\s{{{n}}}(?!\S)" for n in (512, 256, 128, 64, 32, 16, 8, 4)) + r"|\s{1,2}(?!\S)|\s{1}"],
    "kimi-k2": [r"\p{Han}+|" + o200k("{1,3}", CONTRACTION + "?").replace("[\\r\\n/]*", "[\\r\\n]*")
                .replace(U, f"[{U}&&[^\\p{{Han}}]]").replace(V, f"[{V}&&[^\\p{{Han}}]]")],
    "youtu": [
        "[가-힣ㄱ-ㆎ]+|[！…“”‘’—：；，、-〿︰-﹏]+|[ㄅ-ㄯ]+|[一-龥぀-ゟ゠-ヿ]+",
        o200k("", CONTRACTION + "?"),
    ],
    "tiny_aya": [r"\d{1,3}(?=(?:\d{3})*\b)", o200k("{1,3}", CONTRACTION + "?")],
    "deepseek-llm": [
        r"[\r\n]",
        r"\s?[\p{Lu}\p{Ll}\p{Lt}&&[^\x{560}-\x{588}\x{10c7}-\x{10ff}\x{1c80}-\x{1c88}\x{2d00}-\x{2d2d}\x{a790}-\x{ab68}"
        r"\x{10570}-\x{105bc}\x{16e40}-\x{16e7f}\x{1d400}-\x{1df2a}]]+",  # the list of its letters, as categories
        r"\s?[!-/:-~！-／：-～‘-‟　-。]+", r"\s+$", "[一-龥ࠀ-一가-\ud7ff]+", r"\p{N}",
    ],
    "afmoe": [
        r"\p{N}{1,3}(?=(?:\p{N}{3})*(?!\p{N}))",
        "[一-鿿㐀-䶿豈-\ufaff぀-ゟ゠-ヿ･-ﾟ⼀-⿟เ-๿຀-໿ក-៿က-႟ꩠ-ꩿꧠ-꧿가-힯ᄀ-ᇿ]+",
        DEEPSEEK,
    ],
    "spark2_5": [r"\p{N}{1,3}", "[一-龥぀-ゟ゠-ヿ]+", DEEPSEEK.replace(r"+[\r\n]*|\s*[\r\n]+", r"+|[\r\n]"), r"\p{N}"],
    "viking": [r" ?[^(\s|.,!?…。，、।۔،)]+", r"\p{N}"],
}

PARTS = [
    *"aZÉéßſ日本ーア한ǅʰΣжאا_-.,!?'\"()/\\$+<>^~|`@#…。،۔€019²½Ⅷ٣①", "\u0301", "\u0308", "ा", "क", "’", "😀", "👨\u200d👩", "\ufe0f",
    " ", " ", "  ", "\t", "\n", "\n\n", "\r", "\r\n", "\x0b", "\x85", "\xa0", "\u2003", "\u3000", "\u2028", "\x00", "\x7f",
    "\xad", "\u200b", "\ufffd", "\ue000", "\U0001F9AA", "\U00020000", "𝒜", "'s", "'LL", "'Re", "'d", "Hello", " World", "IT'S",
    "don't", "12345", "ABCdef", "K", "1234567", "12_", "٣٤٥٦", "가나", "：；", "ㄅㄆ", "〇々", "a b c", "      ", " " * 700, "\t\t\t", "ա", "ა", "Ა",
]


def main():
    random.seed(20)
    splitters = {n: Sequence([Split(Regex(e), "isolated") if isinstance(e, str) else e for e in es]) for n, es in EXPRESSIONS.items()}
    texts = ["Hello  World's 12345 日本ABCdef\n\n x… /\r\n\t y"]
    for _ in range(160):
        parts = random.sample(PARTS, random.randint(2, 12))
        texts.append("".join(random.choice(parts) for _ in range(random.randint(2, 14))))
    rows = []
    for text in texts:
        pieces = {n: [len(p if n == "falcon" else p.encode()) for p, _ in s.pre_tokenize_str(text)] for n, s in splitters.items()}
        assert all(sum(p) == len(text.encode()) for p in pieces.values())
        rows.append(json.dumps({"text": text, "pieces": pieces}, separators=(",", ":")))
    with open("pretokenize.json", "w", encoding="utf-8") as f:
        f.write("[\n" + ",\n".join(rows) + "\n]\n")


main()
