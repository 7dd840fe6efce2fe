package tokenizer

import (
	"bytes"
	"encoding/binary"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vibrant-ml/vibrant/internal/check/busy"
)

// models are the kinds of tokenizers.
var models = []string{"gpt2", "llama", "gemma4", "bert", "t5"}

// FuzzTokenizer makes tokenizers of what a file may hold: texts of tokens between zero bytes, types and scores, merges, a map of
// characters, roles. It wants a short error, or ids of the vocabulary, within a memory that follows the text, which decode again.
func FuzzTokenizer(f *testing.F) {
	for which := range models {
		f.Add(byte(which), byte(3), "<unk>\x00<s>\x00</s>\x00a\x00b\x00ab\x00▁\x00▁a\x00<0x41>\x00##b\x00Ġ\x00Ġa",
			[]byte("\x02\x03\x03\x01\x01\x01\x01\x01\x06\x01"),
			"a b\x00Ġ a", []byte("\x04\x00\x00\x00\x00\x00\x00\x00ab\x00c\x00"), byte(0x7f), "ab a <s>A\xff é")
	}
	pres := slices.Sorted(maps.Keys(preTokenizers))
	f.Fuzz(func(t *testing.T, which, pre byte, tokens string, types []byte, merges string, charsMap []byte, flags byte, text string) {
		if len(text) > 512 || len(tokens) > 1<<14 || len(merges) > 1<<14 {
			return
		}
		c := Config{Model: models[int(which)%len(models)], Pre: pres[int(pre)%len(pres)], Tokens: strings.Split(tokens, "\x00"),
			CharsMap: charsMap, KeepExtraSpaces: flags&1 != 0, AddBOS: ptr(flags&2 != 0), AddEOS: ptr(flags&4 != 0),
			AddSpacePrefix: ptr(flags&8 != 0), Special: map[string]int32{}}
		if merges != "" {
			c.Merges = strings.Split(merges, "\x00")
		}
		if flags&16 != 0 {
			for i := range c.Tokens {
				x := Normal
				if i < len(types) {
					x = Type(types[i] % 8)
				}
				c.Types = append(c.Types, x)
			}
		}
		if flags&32 != 0 {
			for i := range c.Tokens { // some are infinite, or no numbers
				c.Scores = append(c.Scores, math.Float32frombits(uint32(i)*0x9e3779b9^uint32(len(types))))
			}
		}
		if flags&64 != 0 {
			for i, role := range []string{"bos", "eos", "eot", "unknown", "padding"} {
				c.Special[role] = int32((i + len(types)) % (len(c.Tokens) + 1))
			}
		}
		tok, err := New(c)
		if err != nil {
			if len(err.Error()) > 1000 {
				t.Fatalf("%.2000s", err)
			}
			return
		}
		for _, o := range []Options{{}, {AddBOS: true, AddEOS: true, ParseSpecial: true}} {
			ids, err := tok.Encode(t.Context(), text, o)
			if err != nil {
				if len(err.Error()) > 1000 {
					t.Fatalf("%.2000s", err)
				}
				continue
			}
			if len(ids) > 64*len(text)+1100 {
				t.Fatalf("%d ids for %d bytes", len(ids), len(text))
			}
			for _, id := range ids {
				if id < 0 || int(id) >= len(c.Tokens) {
					t.Fatalf("id %d of %d tokens", id, len(c.Tokens))
				}
			}
			if _, err := tok.Decode(ids); err != nil {
				t.Fatal(err)
			}
			decoder := tok.NewDecoder()
			for _, id := range ids {
				decoder.Next(id)
			}
		}
	})
}

// TestMapsOfCharactersThatMakeLongTextsAreRefused has a map of 100 kB with which each character would become 100 kB.
func TestMapsOfCharactersThatMakeLongTextsAreRefused(t *testing.T) {
	units := make([]uint32, 512)
	units[0] = 256 << 10                // children from 256 on
	units[256^'a'] = 'a' | 1<<8 | 1<<10 // an entry ends: its value is one place on
	units[256^'a'^1] = 1 << 31          // the text from 0 on
	var b bytes.Buffer
	binary.Write(&b, binary.LittleEndian, uint32(4*len(units)))
	binary.Write(&b, binary.LittleEndian, units)
	short := append(bytes.Clone(b.Bytes()), "bcd\x00"...)
	long := append(b.Bytes(), bytes.Repeat([]byte("b"), 100_000)...)
	c := Config{Model: "t5", Tokens: []string{"<pad>", "</s>", "<unk>", "b", "c", "d"}, CharsMap: short}
	if ids, err := must(t, c).Encode(t.Context(), "a", Options{}); err != nil || !slices.Equal(ids, []int32{2, 3, 4, 5}) {
		t.Fatal(ids, err)
	}
	c.CharsMap = long
	_, err := must(t, c).Encode(t.Context(), strings.Repeat("a", 100_000), Options{})
	if err == nil || !strings.Contains(err.Error(), "precompiled_charsmap") {
		t.Fatal(err)
	}
}

// TestOverlongTokensOfUnigramTakeLinearTime has a token of 100 kB, which begins at each byte of a text as long.
func TestOverlongTokensOfUnigramTakeLinearTime(t *testing.T) {
	c := Config{Model: "t5", Tokens: []string{"<pad>", "</s>", "<unk>", "a", strings.Repeat("a", 100_000), strings.Repeat("a", 512)}}
	tok := must(t, c)
	if w := strings.Join(tok.Warnings(), "\n"); !strings.Contains(w, "token 4 of 100000 bytes is not looked for") {
		t.Errorf("warnings %q", w)
	}
	start := busy.Processor()
	ids, err := tok.Encode(t.Context(), strings.Repeat("a", 99_999), Options{})
	took := busy.Processor() - start
	t.Logf("%d ids in %v", len(ids), took)
	if err != nil || !slices.Contains(ids, 5) || took > 5*time.Second { // 45 s without the limit
		t.Errorf("%d ids in %v, %v", len(ids), took, err)
	}
}
