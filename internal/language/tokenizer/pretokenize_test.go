package tokenizer

import (
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/vibrant-ml/vibrant/internal/check/busy"
)

func lengths(s string, pre *preTokenizer) []int {
	got := []int{}
	(&preTokenizer{stages: pre.stages}).split(s, func(piece string) bool { got = append(got, len(piece)); return true })
	return got
}

// testdata/pretokenize.py says how Hugging Face's tokenizers made the pieces.
func TestPiecesAreThoseOfHuggingFace(t *testing.T) {
	fillClasses()
	b, err := os.ReadFile("testdata/pretokenize.json")
	if err != nil {
		t.Fatal(err)
	}
	var rows []struct {
		Text   string
		Pieces map[string][]int
	}
	if err := json.Unmarshal(b, &rows); err != nil {
		t.Fatal(err)
	}
	if len(rows) < 100 || len(rows[0].Pieces) < 13 {
		t.Fatalf("%d texts", len(rows))
	}
	tested := map[*stage]bool{}
	for _, row := range rows {
		for name, want := range row.Pieces {
			tested[&preTokenizers[name].stages[0]] = true
			if got := lengths(row.Text, preTokenizers[name]); !slices.Equal(got, want) {
				t.Errorf("%s: %q: %v, want %v", name, row.Text, got, want)
			}
		}
	}
	for name, pre := range preTokenizers {
		if !tested[&pre.stages[0]] {
			t.Errorf("no text tests %s", name)
		}
	}
}

// Whatever the text, no piece is empty and none is lost.
func TestPiecesMakeUpTheText(t *testing.T) {
	fillClasses()
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.OneOf(rapid.String(), rapid.Map(rapid.SliceOf(rapid.Byte()), func(b []byte) string { return string(b) }),
			rapid.StringMatching(`([ \n\t'a-zA-Z0-9日é!]|'s|  ){0,40}`)).Draw(t, "text")
		for name, pre := range preTokenizers {
			var b strings.Builder
			(&preTokenizer{stages: pre.stages}).split(text, func(piece string) bool {
				if piece == "" {
					t.Fatalf("%s: an empty piece", name)
				}
				b.WriteString(piece)
				return true
			})
			if b.String() != text {
				t.Fatalf("%s: %q became %q", name, text, b.String())
			}
		}
	})
}

// hostileTexts are what makes careless tokenizers take quadratic time, n bytes each or a little more.
func hostileTexts(n int) map[string]string {
	repeat := func(s string) string { return strings.Repeat(s, n/len(s)+1) }
	return map[string]string{
		"one letter":        repeat("a"),
		"capitals":          repeat("A"),
		"spaces":            repeat(" "),
		"spaces and a word": repeat(" ") + "x",
		"newlines":          repeat("\n"),
		"newline, spaces":   repeat(" \n") + repeat(" ") + "x",
		"digits":            repeat("1"),
		"quotes":            repeat("'"),
		"punctuation":       repeat("!"),
		"marks":             repeat("\u0301"),
		"Lo then capitals":  "日" + repeat("A"),
		"alternating":       repeat("日A"),
		"emoji":             repeat("🙂"),
		"controls":          repeat("\x00"),
		"no UTF-8":          repeat("\xff"),
		"half characters":   repeat("\xe6\x97"),
		"almost special":    repeat("<|im_"),
		"two letters":       repeat("ab"),
	}
}

func TestPreTokenizersTakeLinearTime(t *testing.T) {
	fillClasses()
	seen := map[*preTokenizer]bool{}
	for name, pre := range preTokenizers {
		if seen[pre] {
			continue
		}
		seen[pre] = true
		for what, text := range hostileTexts(1 << 16) {
			start := busy.Processor()
			if pre.nfc {
				text = nfc(text)
			}
			pre.split(text, func(string) bool { return true })
			// About 1 ms; quadratic time would be a minute. The bound leaves room for the race detector.
			if d := busy.Processor() - start; d > 2*time.Second {
				t.Errorf("%s, %s: %v", name, what, d)
			}
		}
	}
}
