#!/usr/bin/env python3
"""Writes unicode.json: what Hugging Face's tokenizers (pip install tokenizers==0.23.3) take each character for.
"classes": how many characters have a property, and the CRC-32 of their numbers in four bytes each.
"nfc", "bert": texts with rare marks and signs, and what the normalizers make of them. Run it in this folder."""
import json
import random
import struct
import unicodedata
import zlib

from tokenizers import Regex, normalizers, pre_tokenizers

ALL = [chr(c) for c in range(0x110000) if not 0xD800 <= c <= 0xDFFF]
PROPERTIES = {
    "letter": r"\p{L}", "number": r"\p{N}", "mark": r"\p{M}", "punct": r"\p{P}", "symbol": r"\p{S}", "space": r"\s",
    "upper": r"[\p{Lu}\p{Lt}]", "lower": r"\p{Ll}", "han": r"\p{Han}", "decimal": r"\d", "word": r"\w",
}


def members(expression):
    text = "".join(ALL)
    rest = pre_tokenizers.Split(Regex(expression), "removed").pre_tokenize_str(text)
    return sorted(set(ALL) - set("".join(piece for piece, _ in rest)))


def nfc():
    random.seed(1)
    nfc, nfd = normalizers.NFC(), normalizers.NFD()
    whole = [c for c in ALL if nfd.normalize_str(c) != c and not "가" <= c <= "힣"] + [*"가각힣"]
    parts = [p for c in whole for p in nfd.normalize_str(c)]
    marks = [c for c in ALL if unicodedata.combining(c)]
    for _ in range(300):
        text = "".join(random.choice(random.choice([whole, marks, parts, marks])) for _ in range(random.randint(2, 12)))
        yield [text, nfc.normalize_str(text)]


def bert():
    normalizer, cut = normalizers.BertNormalizer(lowercase=True), pre_tokenizers.BertPreTokenizer()
    for c in [*"\u061d\u07fd\u0890\u08ca\u09fd\u166d\u1734\u180f\u1885\u1abf\u1b7d\u2e43\ua82c\ua9bd\uf900\ufa10\ufa1f\ufad9",
              *"\U00010f55\U000110cd\U000111c9\U00011938\U00013430\U0001e08f\U0002f800\u0130\u0344\u1e9e\u212a"]:
        yield ["a" + c + "b", [p for p, _ in cut.pre_tokenize_str(normalizer.normalize_str("a" + c + "b"))]]


classes = {}
for name, expression in PROPERTIES.items():
    found = members(expression)
    classes[name] = [len(found), zlib.crc32(b"".join(struct.pack("<I", ord(c)) for c in found))]
with open("unicode.json", "w", encoding="utf-8") as f:
    json.dump({"classes": classes, "nfc": list(nfc()), "bert": list(bert())}, f, separators=(",", ":"))
    f.write("\n")
