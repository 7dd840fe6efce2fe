package tokenizer

import (
	"flag"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

var roundTrips = flag.Int("roundtrips", 20_000, "texts that TestTextsSurviveRoundTrips encodes and decodes")

// A million: go test -run RoundTrips ./internal/language/tokenizer -v -roundtrips 1000000
func TestTextsSurviveRoundTrips(t *testing.T) {
	var toks []*Tokenizer
	for _, name := range slices.Sorted(maps.Keys(preTokenizers)) {
		c := bytesVocab("a b", "Ġ a", "Ġ Ġ", "' s", "e r", "Ã ©", "1 2")
		c.Pre = name
		c.add("<user>", UserDefined)
		c.add("<|im_end|>", Control)
		toks = append(toks, must(t, c))
	}
	s := spmVocab("a", "▁", "▁a", "aa", "é", "the", "▁the")
	s.add("<user>", UserDefined)
	toks = append(toks, must(t, s))
	s.Model, s.Merges = "gemma4", []string{"▁ a", "a a"}
	toks = append(toks, must(t, s))
	parts := append(strings.Split("a b the 'S 'll <user> <|im_end|> é e\u0301 日本 ABc 123456 \r\n \t !? <| 🙂 \xff \xe6\x97 \x00 ™ ſ", " "), " ", "  ", "\n")
	random := rand.New(rand.NewPCG(1, 2))
	for n := range *roundTrips {
		var b strings.Builder
		for range random.IntN(12) {
			if random.IntN(4) == 0 {
				b.WriteRune(rune(random.IntN(0x3000)))
			} else {
				b.WriteString(parts[random.IntN(len(parts))])
			}
		}
		text := b.String()
		tok := toks[n%len(toks)]
		ids, err := tok.Encode(t.Context(), text, Options{AddBOS: true, AddEOS: true})
		if err != nil {
			t.Fatalf("%q: %v", text, err)
		}
		want := strings.ReplaceAll(text, "▁", " ")
		if p, ok := tok.model.(*bpe); ok {
			if want = text; p.pre.nfc {
				want = normalizedBetween(text, "<user>")
			}
		}
		var got []byte
		for _, id := range ids {
			if !tok.isOrdinary(id) {
				if id != tok.BOS() && id != tok.EOS() {
					t.Fatalf("%q: a text became the control token %d", text, id)
				}
				continue
			}
			got = append(got, tok.text(id)...)
		}
		if tok.prefixesSpace() {
			parts := strings.Split(want, "<user>")
			for i := range parts {
				if parts[i] != "" {
					parts[i] = " " + parts[i]
				}
			}
			want = strings.Join(parts, "<user>")
		}
		if string(got) != want {
			t.Fatalf("%q became %q", text, got)
		}
	}
	t.Logf("%d round trips", *roundTrips)
}

// normalizedBetween returns the text in normal form C, each part between two tokens by itself.
func normalizedBetween(text, token string) string {
	parts := strings.Split(text, token)
	for i := range parts {
		parts[i] = nfc(parts[i])
	}
	return strings.Join(parts, token)
}

func FuzzEncode(f *testing.F) {
	c := bytesVocab("a b", "Ġ a", "Ġ Ġ", "' s")
	c.add("<user>", UserDefined)
	c.add("<|im_end|>", Control)
	var toks []*Tokenizer
	for _, name := range slices.Sorted(maps.Keys(preTokenizers)) {
		c.Pre = name
		toks = append(toks, must(f, c))
	}
	s := spmVocab("a", "▁", "▁a", "aa")
	s.add("<user>", UserDefined)
	toks = append(toks, must(f, s))
	for _, text := range []string{"", "ab <user>it's\r\n", "<|im_end|>", "\xff\xc3", "1234 日本ABc", "  \n\t x"} {
		for which := range toks {
			f.Add(text, byte(which))
		}
	}
	f.Fuzz(func(t *testing.T, text string, which byte) {
		if len(text) > 512 { // long texts have tests of their own, and would be most of what a fuzzer does
			return
		}
		tok := toks[int(which)%len(toks)]
		for _, o := range []Options{{}, {AddBOS: true, AddEOS: true, ParseSpecial: true}} {
			ids, err := tok.Encode(t.Context(), text, o)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := tok.Decode(ids); err != nil {
				t.Fatal(err)
			}
		}
	})
}
