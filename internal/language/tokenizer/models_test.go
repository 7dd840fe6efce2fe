package tokenizer

import (
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"
)

// testdata/models.py says how Hugging Face's tokenizers and sentencepiece made the vocabularies and ids.
func TestModelsAgreeWithTheirLibraries(t *testing.T) {
	b, err := os.ReadFile("testdata/models.json")
	if err != nil {
		t.Fatal(err)
	}
	var d map[string]struct {
		Tokens, Merges []string
		Scores         []float32
		CharsMap       []byte
		Cases          []struct {
			Text string
			IDs  []int32
		}
	}
	if err := json.Unmarshal(b, &d); err != nil {
		t.Fatal(err)
	}
	for name, special := range map[string]map[string]int32{
		"wordpiece": {"padding": 0, "unknown": 1, "bos": 2, "eos": 3},
		"unigram":   {"padding": 0, "eos": 1, "unknown": 2},
		"llama":     {"unknown": 0},
		"gemma4":    {"unknown": 0},
	} {
		t.Run(name, func(t *testing.T) {
			v := d[name]
			c := Config{Model: map[string]string{"wordpiece": "bert", "unigram": "t5", "llama": "llama", "gemma4": "gemma4"}[name], Tokens: v.Tokens,
				Merges: v.Merges, Scores: v.Scores, CharsMap: v.CharsMap, Special: special, AddBOS: ptr(false),
				AddSpacePrefix: ptr(name != "llama")}
			for i, s := range v.Tokens {
				typ := Normal
				if _, ok := byteToken(s); ok {
					typ = Byte
				} else if int32(i) == special["unknown"] {
					typ = Unknown
				} else if name == "llama" && 3 <= i && i <= 6 {
					typ = UserDefined
				} else if name != "gemma4" && i <= 3 && !strings.HasPrefix(s, "▁") {
					typ = Control
				}
				c.Types = append(c.Types, typ)
			}
			tok := must(t, c)
			if len(v.Cases) < 200 {
				t.Fatalf("only %d texts", len(v.Cases))
			}
			for _, c := range v.Cases {
				if got := encode(t, tok, c.Text, Options{}); !slices.Equal(got, c.IDs) {
					t.Errorf("%q: %v, want %v", c.Text, got, c.IDs)
				}
			}
		})
	}
}
