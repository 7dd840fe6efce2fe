package tokenizer

import (
	"slices"
	"testing"
)

func TestSegmentsEncodeAsOneTextWithoutUsersSpecialTokens(t *testing.T) {
	for _, name := range []string{"ggml-vocab-qwen2.gguf", "ggml-vocab-llama-bpe.gguf", "ggml-vocab-llama-spm.gguf"} {
		tok := load(t, "vocab", name)
		end, err := tok.TokenText(tok.EOS())
		if err != nil {
			t.Fatal(err)
		}
		e := string(end)
		for _, c := range []struct {
			segments []Segment
			same     string // the text that encodes alike with special tokens parsed
			specials int    // how often EOS is in it
		}{
			{nil, "", 0},
			{[]Segment{{"Hello wor", true}, {"ld, how", false}, {" are you?", true}}, "Hello world, how are you?", 0},
			{[]Segment{{"[INST] ", true}, {"Hi", false}, {" [/INST]", true}}, "[INST] Hi [/INST]", 0},
			{[]Segment{{"Hello" + e, true}, {"ld", false}, {e, true}}, "Hello" + e + "ld" + e, 2},
		} {
			ids, err := tok.EncodeSegments(t.Context(), c.segments, Options{})
			if err != nil {
				t.Fatal(err)
			}
			want, err := tok.Encode(t.Context(), c.same, Options{ParseSpecial: true})
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(ids, want) || count(ids, tok.EOS()) != c.specials {
				t.Errorf("%s: %+v: %v, want %v with %d EOS", name, c.segments, ids, want, c.specials)
			}
		}
		for _, s := range [][]Segment{
			{{"a", true}, {e, false}, {"b", true}},
			{{e[:2], true}, {e[2:], false}},
			{{e[:2], false}, {e[2:], true}},
			{{e[:1], true}, {e[1:2], false}, {e[2:], true}},
		} {
			ids, err := tok.EncodeSegments(t.Context(), s, Options{})
			if err != nil || count(ids, tok.EOS()) != 0 {
				t.Errorf("%s: %+v: %v, %v: a message made a control token", name, s, ids, err)
			}
		}
	}
}

func count(ids []int32, id int32) (n int) {
	for _, x := range ids {
		if x == id {
			n++
		}
	}
	return n
}
