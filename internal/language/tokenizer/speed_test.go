//go:build unix

package tokenizer

import (
	"strings"
	"syscall"
	"testing"
	"time"
)

// cpuTime returns what the process has computed, however busy the machine is.
func cpuTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

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
	} {
		tok := load(t, "vocab", c.vocab+".gguf")
		text := strings.Repeat(c.unit, 50_000_000/len(c.unit))
		start := cpuTime()
		n := len(encode(t, tok, text, Options{ParseSpecial: true}))
		took := cpuTime() - start
		t.Logf("%s, %s: %d tokens in %.2f s of a core, %.0f MB/s", c.vocab, c.name, n, took.Seconds(), float64(len(text))/1e6/took.Seconds())
		if took > c.most {
			t.Errorf("%s, %s: %v", c.vocab, c.name, took)
		}
	}
}
