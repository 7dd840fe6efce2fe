package tokenizer

import (
	"context"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// TestPhrasesAreMergedAsAWhole encodes phrases word by word and as a whole, with vocabularies of random merges, of which many cross
// spaces. The letter d has no token.
func TestPhrasesAreMergedAsAWhole(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	joined, whole := 0, 0
	for range 200 {
		tok, merges := randomMerges(t, rng, "exaone-moe", 40, "a", "b", "c", "Ġ")
		p := tok.model.(*bpe)
		one, other := &encoder{t: tok, ctx: context.Background()}, &encoder{t: tok, ctx: context.Background()}
		for range 200 {
			var words []string
			for range 1 + rng.IntN(40) {
				word := make([]byte, 1+rng.IntN(1+rng.IntN(12)))
				for i := range word {
					word[i] = "aaaabbbbccccd"[rng.IntN(13)]
				}
				words = append(words, string(word))
			}
			phrase := words[0]
			for _, word := range words[1:] {
				spaces := 1
				if rng.IntN(8) == 0 {
					spaces += rng.IntN(30)
				}
				phrase += strings.Repeat(" ", spaces) + word
			}
			one.ids, other.ids = append(one.ids[:0], 3), append(other.ids[:0], 3) // a token in front belongs to another piece
			if err := one.phrase(p, phrase); err != nil {
				t.Fatal(err)
			}
			if err := other.mergePiece(p, phrase); err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(one.ids, other.ids) {
				t.Fatalf("%q with merges %q: %v, want %v", phrase, merges, one.ids, other.ids)
			}
			switch n := len(one.parts); {
			case n < len(words) && one.parts[n-1].at+mostJoined < len(phrase):
				whole++
			case n < len(words):
				joined++
			}
		}
	}
	if joined < 1000 || whole < 10 {
		t.Errorf("%d phrases had words that were joined, %d were merged as a whole: too few to tell", joined, whole)
	}
}
