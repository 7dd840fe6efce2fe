//go:build unix

package tokenizer

import (
	"encoding/json"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/vibrant-ml/vibrant/internal/check/testdata"
	"github.com/vibrant-ml/vibrant/internal/language/gguf"
)

// prose is about a megabyte of ordinary English text, made of the longer golden texts.
func prose(t testing.TB) string {
	b, err := os.ReadFile(testdata.Path(t, "tokenizers", "qwen2.vectors.json"))
	if err != nil {
		t.Fatal(err)
	}
	var d struct{ Derived []struct{ Text string } }
	if err := json.Unmarshal(b, &d); err != nil {
		t.Fatal(err)
	}
	var s strings.Builder
	for _, v := range d.Derived {
		if len(v.Text) > 200 && strings.Count(v.Text, " ") > len(v.Text)/10 {
			s.WriteString(v.Text)
			s.WriteString("\n\n")
		}
	}
	if s.Len() < 1000 {
		t.Fatal("the golden texts hold no prose")
	}
	return strings.Repeat(s.String(), 1<<20/s.Len()+1)
}

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
		{"qwen2", "prose", prose(t), 5 * time.Second},
		{"llama-bpe", "prose", prose(t), 5 * time.Second},
		{"llama-spm", "prose", prose(t), 5 * time.Second},
		{"qwen2", "one letter", "a", 5 * time.Second},
		{"llama-spm", "one letter", "a", 5 * time.Second},
		{"gpt-2", "spaces", " ", 5 * time.Second},
	} {
		tok := vocab(t, c.vocab)
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

func BenchmarkEncode(b *testing.B) {
	text := prose(b)
	for _, name := range []string{"qwen2", "llama-bpe", "llama-spm", "gpt-2"} {
		tok := vocab(b, name)
		for _, c := range []struct{ name, text string }{
			{"prose", text},
			{"one_letter", strings.Repeat("a", 1<<20)},
			{"spaces", strings.Repeat(" ", 1<<20)},
			{"chinese", strings.Repeat("我们在北京学习中文，天气很好。", 1<<20/45)},
		} {
			b.Run(name+"/"+c.name, func(b *testing.B) {
				b.SetBytes(int64(len(c.text)))
				b.ReportAllocs()
				start := cpuTime()
				for b.Loop() {
					encode(b, tok, c.text, Options{ParseSpecial: true})
				}
				b.ReportMetric(float64(b.N*len(c.text))/1e6/(cpuTime()-start).Seconds(), "MB/cpu-s")
			})
		}
	}
}

func BenchmarkDecode(b *testing.B) {
	tok := vocab(b, "qwen2")
	text := prose(b)
	ids := encode(b, tok, text, Options{})
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		if _, err := tok.Decode(ids); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkFromGGUF(b *testing.B) {
	for _, name := range []string{"qwen2", "llama-bpe", "llama-spm"} {
		b.Run(name, func(b *testing.B) {
			f, err := gguf.Open(testdata.Path(b, "vocab", "ggml-vocab-"+name+".gguf"))
			if err != nil {
				b.Fatal(err)
			}
			defer f.Close()
			for b.Loop() {
				if _, err := FromGGUF(f, ""); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
