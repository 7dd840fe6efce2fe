package tokenizer

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// TestFewSymbolsMergeAsManyDo merges short texts by both ways, with vocabularies of random merges.
func TestFewSymbolsMergeAsManyDo(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	merged := 0
	for range 200 {
		tok, merges := randomMerges(t, rng, "gpt-2", 20, "a", "b", "c")
		p := tok.model.(*bpe)
		for range 100 {
			text := make([]byte, rng.IntN(fewSymbols+1))
			for i := range text {
				text[i] = "abcd"[rng.IntN(4)] // d has no token
			}
			symbols := func(merge func(m *scratch)) (list []sym) {
				var m scratch
				p.symbols(tok, &m, string(text))
				merge(&m)
				for i := int32(0); int(i) < len(m.syms) && i != none; i = m.syms[i].next {
					list = append(list, sym{start: m.syms[i].start, end: m.syms[i].end, id: m.syms[i].id})
				}
				return list
			}
			few := symbols(func(m *scratch) { m.mergeFew(tok, p, string(text)) })
			many := symbols(func(m *scratch) { m.mergeMany(tok, p, string(text)) })
			if !slices.Equal(few, many) {
				t.Fatalf("%q with merges %q: %v, want %v", text, merges, few, many)
			}
			merged += len(text) - len(few)
		}
	}
	if merged < 10000 {
		t.Errorf("only %d merges", merged)
	}
}

// randomMerges makes a tokenizer and draws its merges, at most 60 of the tokens and of what they make, in an order of their own. Tokens
// are shorter than `longest` bytes.
func randomMerges(t *testing.T, rng *rand.Rand, pre string, longest int, tokens ...string) (*Tokenizer, []string) {
	c := Config{Model: "gpt2", Pre: pre, Tokens: tokens}
	for first := len(tokens); len(c.Tokens) <= first+rng.IntN(60); {
		left, right := c.Tokens[rng.IntN(len(c.Tokens))], c.Tokens[rng.IntN(len(c.Tokens))]
		if !slices.Contains(c.Tokens, left+right) && len(left+right) < longest {
			c.Tokens, c.Merges = append(c.Tokens, left+right), append(c.Merges, left+" "+right)
		}
	}
	rng.Shuffle(len(c.Merges), func(i, j int) { c.Merges[i], c.Merges[j] = c.Merges[j], c.Merges[i] })
	tok, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	return tok, c.Merges
}
