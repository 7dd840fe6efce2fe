#!/usr/bin/env python3
"""Writes models.json: small vocabularies of the kinds WordPiece, Unigram, SentencePiece's BPE and Gemma 4's, trained on the
text below, and the ids of texts by Hugging Face's tokenizers (pip install tokenizers==0.23.3) and sentencepiece (0.2.3). Tokens are
spelled as a GGUF file spells them. Run it in this folder to make the file anew."""
import base64
import io
import json
import random
import tempfile

import sentencepiece
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers

CORPUS = """The quick brown fox jumps over the lazy dog. She sells sea shells by the sea shore, and the shells she sells are
surely seashells. Ünïcode façade naïve café résumé coöperate. Привет мир, как дела? Это простой пример текста. 我们在北京学习中文，
天气很好。日本語のテキストです。 한국어 문장입니다. 1234 567 89 0.5 $3.50 (see [note 7]) don't won't it's they're "quoted" text -- with
dashes; semi-colons: and more! What? unbelievable unaffordable walking walked walks talker talking reading reader.""".split("\n")

PARTS = [
    "the", " ", "  ", "The", "SHELLS", "walking", "unaffordables", "café", "cafe\u0301", "naïve", "İstanbul", "ΣΑΣ", "ß", "ﬁ", "①", "Ａｂ", "１",
    "Привет", "мир", "北京", "中文", "日本語", "テキスト", "한국어", "한", "\u1112\u1161\u11ab", ".", ",", "!", "don't", "$3.50", "[CLS]", "_", "^", "`", "。", "—",
    "\n", "\t", "\r\n", "\u00a0", "\u3000", "\u200b", "\u200d", "\x00", "\x07", "\ufffd", "🦙", "☃", "☃☃", "▁", "\u0301", "क्षत्रिय", "ไทย", "x" * 101, "x" * 100,
    "\U0002B820", "\U0002B920", "㐀", "\ue000", "\xad", "\u2028", "12345", "sea", "shore", "q", "Z",
    "\x0b", "\x1c", "\x85", "\u0378", "\u2060", "\U0010ffff", "\u180e",  # controls, formats, and what is unassigned
]


def texts(seed):
    random.seed(seed)
    some = [*CORPUS, "", " ", "  ", " the", "the ", "▁the", *PARTS]
    return some + ["".join(random.choice(PARTS) + random.choice(["", "", " "]) for _ in range(random.randint(2, 9))) for _ in range(150)]


def wordpiece():
    t = Tokenizer(models.WordPiece(unk_token="[UNK]", max_input_chars_per_word=100))
    t.normalizer = normalizers.BertNormalizer(lowercase=True)
    t.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    t.train_from_iterator(CORPUS, trainers.WordPieceTrainer(vocab_size=400, special_tokens=["[PAD]", "[UNK]", "[CLS]", "[SEP]"], show_progress=False))
    vocab = sorted(t.get_vocab(), key=t.get_vocab().get)
    spelled = [v if v in ("[PAD]", "[UNK]", "[CLS]", "[SEP]") else v[2:] if v.startswith("##") else "▁" + v for v in vocab]
    t = Tokenizer.from_str(json.dumps({**json.loads(t.to_str()), "added_tokens": []}))
    return {"tokens": spelled, "cases": [{"text": s, "ids": t.encode(s).ids} for s in texts(1)]}


def unigram():
    rules = {"①": "1", "ﬁ": "fi", "\u00a0": " ", "\u3000": " ", "\t": " ", "\n": " ", "\u200b": "", "e\u0301": "é", "☃☃": "snow", "１": "1", "ß": "SS"}
    with tempfile.NamedTemporaryFile("w", suffix=".tsv") as f:
        for a, b in rules.items():
            f.write(" ".join(f"{ord(c):X}" for c in a) + "\t" + " ".join(f"{ord(c):X}" for c in b) + "\n")
        f.flush()
        out = io.BytesIO()
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(CORPUS), model_writer=out, vocab_size=146, model_type="unigram", normalization_rule_tsv=f.name,
            pad_id=0, eos_id=1, unk_id=2, bos_id=-1, character_coverage=0.98, num_threads=1)
    p = sentencepiece.SentencePieceProcessor(model_proto=out.getvalue())
    n = p.get_piece_size()
    from sentencepiece import sentencepiece_model_pb2
    m = sentencepiece_model_pb2.ModelProto.FromString(out.getvalue())
    return {
        "tokens": [p.id_to_piece(i) for i in range(n)], "scores": [p.get_score(i) for i in range(n)],
        "charsmap": base64.b64encode(m.normalizer_spec.precompiled_charsmap).decode(),
        "cases": [{"text": s, "ids": p.encode(s)} for s in texts(2)],
    }


def llama():
    out = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(CORPUS), model_writer=out, vocab_size=450, model_type="bpe", byte_fallback=True,
        add_dummy_prefix=False, remove_extra_whitespaces=False, normalization_rule_name="identity", character_coverage=0.98,
        user_defined_symbols=["▁▁", "▁▁▁▁", "\n\n", "<b>"], num_threads=1)
    p = sentencepiece.SentencePieceProcessor(model_proto=out.getvalue())
    n = p.get_piece_size()
    return {
        "tokens": [p.id_to_piece(i) for i in range(n)], "scores": [p.get_score(i) for i in range(n)],
        "cases": [{"text": s, "ids": p.encode(s)} for s in texts(4) + ["a    b", "     <b>   ", " a\n\n\n  b", "▁▁ ▁"]],
    }


def gemma4():
    t = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    t.normalizer = normalizers.Replace(" ", "▁")
    trainer = trainers.BpeTrainer(vocab_size=420, special_tokens=["<unk>"] + [f"<0x{b:02X}>" for b in range(256)], show_progress=False)
    t.train_from_iterator([s[:40] for s in CORPUS], trainer)
    t.pre_tokenizer = None
    d = json.loads(t.to_str())
    vocab = sorted(t.get_vocab(), key=t.get_vocab().get)
    t = Tokenizer.from_str(json.dumps({**d, "added_tokens": []}))
    return {
        "tokens": vocab, "merges": [" ".join(m) for m in d["model"]["merges"]],
        "cases": [{"text": s, "ids": t.encode(s).ids} for s in texts(3)],
    }


with open("models.json", "w", encoding="utf-8") as f:
    json.dump({"wordpiece": wordpiece(), "unigram": unigram(), "llama": llama(), "gemma4": gemma4()}, f, ensure_ascii=False, separators=(",", ":"))
    f.write("\n")
