package tokenizer

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

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
				for b.Loop() {
					encode(b, tok, c.text, Options{ParseSpecial: true})
				}
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
