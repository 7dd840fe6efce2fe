package tokenizer

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/vibrant-ml/vibrant/internal/check/busy"
	"github.com/vibrant-ml/vibrant/internal/check/testdata"
)

// Run it with -v for the figures.
func TestFiftyMegabytesTakeSeconds(t *testing.T) {
	if testing.Short() {
		t.Skip("takes some seconds")
	}
	for _, c := range []struct {
		vocab, name, unit string
		most              time.Duration // of a core; three times what was measured, and below the 5 s that are promised
	}{
		{"ggml-vocab-qwen2", "prose", prose(t), 5 * time.Second},
		{"ggml-vocab-llama-bpe", "prose", prose(t), 5 * time.Second},
		{"ggml-vocab-llama-spm", "prose", prose(t), 5 * time.Second},
		{"vocab-gpt-oss", "prose", prose(t), 5 * time.Second},
		{"vocab-qwen35", "prose", prose(t), 5 * time.Second},
		{"vocab-deepseek-v3", "prose", prose(t), 5 * time.Second},
		{"vocab-tekken", "prose", prose(t), 5 * time.Second},
		{"ggml-vocab-qwen2", "one letter", "a", 5 * time.Second},
		{"ggml-vocab-llama-spm", "one letter", "a", 5 * time.Second},
		{"ggml-vocab-gpt-2", "spaces", " ", 5 * time.Second},
		{"ggml-vocab-qwen2", "marks", "\u0301", 5 * time.Second},
		{"ggml-vocab-qwen2", "digits", "1", 5 * time.Second},
	} {
		tok := load(t, "vocab", c.vocab+".gguf")
		text := strings.Repeat(c.unit, 50_000_000/len(c.unit))
		start := busy.Processor()
		n := len(encode(t, tok, text, Options{ParseSpecial: true}))
		took := busy.Processor() - start
		t.Logf("%s, %s: %d tokens in %.2f s of a core, %.0f MB/s", c.vocab, c.name, n, took.Seconds(), float64(len(text))/1e6/took.Seconds())
		if took > c.most {
			t.Errorf("%s, %s: %v", c.vocab, c.name, took)
		}
	}
}

// TestEveryRuleIsFast encodes prose, this package's own code, Chinese with Korean, and runs of spaces by each pre-tokenizer with Qwen 2's
// vocabulary. Run it with -v for the figures.
func TestEveryRuleIsFast(t *testing.T) {
	if testing.Short() {
		t.Skip("takes some seconds")
	}
	tok := read(t, testdata.Path(t, "vocab", "ggml-vocab-qwen2.gguf")) // whose rule is changed
	var code strings.Builder
	files, err := filepath.Glob("*.go")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, name := range files {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		code.Write(b)
	}
	texts := []struct {
		name, text string
		bytes      int
	}{
		{"prose", prose(t), 2_000_000},
		{"code", code.String(), 2_000_000},
		{"Chinese and Korean", "我们在北京学习中文，天气很好。\n한국어 문장은 띄어쓰기가 있습니다. ", 500_000},
		{"spaces", "    \t\t\n\n   x  \r\n        ", 500_000},
	}
	names := map[*preTokenizer][]string{}
	for _, name := range slices.Sorted(maps.Keys(preTokenizers)) {
		names[preTokenizers[name]] = append(names[preTokenizers[name]], name)
	}
	for _, same := range names {
		tok.model.(*bpe).pre = preTokenizers[same[0]]
		const least = 10.0 // 50 MB in 5 s
		row := strings.Join(same, ", ")
		for _, c := range texts {
			text := strings.Repeat(c.text, c.bytes/len(c.text)+1)
			tok.encoders = sync.Pool{} // no piece is known
			start := busy.Processor()
			encode(t, tok, text, Options{})
			rate := float64(len(text)) / 1e6 / (busy.Processor() - start).Seconds()
			row += fmt.Sprintf(" | %.0f", rate)
			if rate < least {
				t.Errorf("%s: %.1f MB of %s a second of a core", same[0], rate, c.name)
			}
		}
		t.Logf("| %s |", row)
	}
}
