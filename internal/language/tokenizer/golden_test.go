package tokenizer

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/vibrant-ml/vibrant/internal/check/testdata"
	"github.com/vibrant-ml/vibrant/internal/language/gguf"
)

var loaded = map[string]*Tokenizer{}

// load returns the tokenizer of a golden file, which is read once.
func load(t testing.TB, elem ...string) *Tokenizer {
	t.Helper()
	path := testdata.Path(t, elem...)
	if loaded[path] == nil {
		loaded[path] = read(t, path)
	}
	return loaded[path]
}

// read returns a tokenizer of a file for a test of its own.
func read(t testing.TB, path string) *Tokenizer {
	t.Helper()
	f, err := gguf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	tok, err := FromGGUF(f, "")
	if err != nil {
		t.Fatal(err)
	}
	return tok
}

func vocab(t testing.TB, name string) *Tokenizer {
	t.Helper()
	return load(t, "vocab", "ggml-vocab-"+name+".gguf")
}

// encode is Encode without an error.
func encode(t testing.TB, tok *Tokenizer, text string, o Options) []int32 {
	t.Helper()
	ids, err := tok.Encode(t.Context(), text, o)
	if err != nil {
		t.Fatalf("%q: %v", text, err)
	}
	return ids
}

// checkIDs compares, and checks that the ids decode to the text again.
func checkIDs(t *testing.T, tok *Tokenizer, text string, o Options, want []int32) {
	t.Helper()
	got := encode(t, tok, text, o)
	if !slices.Equal(got, want) {
		t.Errorf("%q: %v, want %v", text, got, want)
	}
	if o.ParseSpecial {
		return
	}
	if m, ok := tok.model.(*bpe); ok && m.pre.nfc {
		text = nfc(text)
	}
	if back, err := tok.Decode(got); err != nil || back != strings.ReplaceAll(text, "▁", " ") && back != text {
		t.Errorf("%q decodes to %q, %v", text, back, err)
	}
}

// ggml's own vectors: texts with the ids that its tokenizers and the models' give them.
func TestGgmlVectors(t *testing.T) {
	for _, name := range []string{"qwen2", "llama-bpe", "llama-spm", "gpt-2"} {
		t.Run(name, func(t *testing.T) {
			tok := vocab(t, name)
			if w := tok.Warnings(); len(w) > 0 {
				t.Errorf("warnings: %q", w)
			}
			read := func(ext string) string {
				b, err := os.ReadFile(testdata.Path(t, "vocab", "ggml-vocab-"+name+".gguf."+ext))
				if err != nil {
					t.Fatal(err)
				}
				return string(b)
			}
			texts := strings.Split(read("inp"), "\n__ggml_vocab_test__\n")
			lines := strings.Split(strings.TrimSuffix(read("out"), "\n"), "\n")
			if len(lines) < 40 || len(texts) < len(lines) {
				t.Fatalf("%d texts and %d lines of ids", len(texts), len(lines))
			}
			for i, line := range lines {
				want := []int32{}
				for _, s := range strings.Fields(line) {
					x, err := strconv.Atoi(s)
					if err != nil {
						t.Fatal(err)
					}
					want = append(want, int32(x))
				}
				checkIDs(t, tok, texts[i], Options{}, want)
			}
		})
	}
}

// Vectors of sentencepiece, and of a reference BPE that meets all of ggml's.
func TestVectorsOfOtherEngines(t *testing.T) {
	files, err := filepath.Glob(testdata.Path(t, "tokenizers", "*.vectors.json"))
	if err != nil || len(files) < 4 {
		t.Fatalf("%d files of vectors, %v", len(files), err)
	}
	type vectors []struct {
		Text      string
		IDs       []int32
		WithBOS   []int32 `json:"ids_with_bos"`
		Special   []int32 `json:"ids_parse_special"`
		NoSpecial []int32 `json:"ids_no_special"`
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".vectors.json")
		t.Run(name, func(t *testing.T) {
			b, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			var d struct {
				Upstream, Derived, Cases, Special vectors
				Karpathy                          vectors `json:"karpathy_test_c"`
			}
			if err := json.Unmarshal(b, &d); err != nil {
				t.Fatal(err)
			}
			var tok *Tokenizer
			if name == "stories260K" {
				tok = load(t, "models", "stories260K-f32.gguf")
			} else {
				tok = vocab(t, name)
			}
			if name == "qwen2" {
				tok = withPre(tok, preQwen2) // the reference does not normalize
			}
			plain := slices.Concat(d.Upstream, d.Derived, d.Cases)
			if len(plain) < 99 {
				t.Fatalf("only %d vectors", len(plain))
			}
			for _, v := range plain {
				checkIDs(t, tok, v.Text, Options{}, v.IDs)
			}
			for _, v := range d.Special {
				checkIDs(t, tok, v.Text, Options{ParseSpecial: true}, v.Special)
				checkIDs(t, tok, v.Text, Options{}, v.NoSpecial)
			}
			for _, v := range d.Karpathy {
				checkIDs(t, tok, v.Text, Options{AddBOS: true}, v.WithBOS)
			}
		})
	}
}

// vectorsOfTwoEngines are ids by a model's original library and by llama.cpp. Where they differ the original counts.
type vectorsOfTwoEngines struct {
	Vocab string
	Cases []struct {
		Text string
		IDs  []int32
	}
	Special []struct {
		Text string
		IDs  []int32 `json:"ids_parse_special"`
	}
	Differs []struct {
		Text, Why string
		HF        []int32
	}
}

func (v *vectorsOfTwoEngines) check(t *testing.T, tok *Tokenizer) {
	t.Helper()
	if len(v.Cases)+len(v.Differs) < 200 {
		t.Fatalf("only %d texts", len(v.Cases)+len(v.Differs))
	}
	for _, c := range v.Cases {
		checkIDs(t, tok, c.Text, Options{}, c.IDs)
	}
	for _, c := range v.Special {
		checkIDs(t, tok, c.Text, Options{ParseSpecial: true}, c.IDs)
	}
	for _, c := range v.Differs {
		checkIDs(t, tok, c.Text, Options{}, c.HF)
	}
}

// withPre returns a byte-level tokenizer of the same vocabulary with another pre-tokenizer.
func withPre(tok *Tokenizer, pre *preTokenizer) *Tokenizer {
	p := *tok.model.(*bpe)
	p.pre = pre
	return &Tokenizer{model: &p, types: tok.types, blob: tok.blob, offsets: tok.offsets, byText: tok.byText, special: tok.special}
}

func readJSON(t testing.TB, into any, elem ...string) {
	t.Helper()
	b, err := os.ReadFile(testdata.Path(t, elem...))
	if err == nil {
		err = json.Unmarshal(b, into)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func TestVectorsOfTheModelsOwnLibraries(t *testing.T) {
	for _, name := range []string{"gpt-oss", "qwen35", "deepseek-v3", "tekken"} {
		t.Run(name, func(t *testing.T) {
			var v vectorsOfTwoEngines
			readJSON(t, &v, "tokenizers", "more", name+".vectors.json")
			v.check(t, load(t, "vocab", v.Vocab))
		})
	}
}

// Pre-tokenizers whose vocabulary is not at hand, by their expressions and the vocabulary of another model.
func TestVectorsOfPreTokenizers(t *testing.T) {
	var d struct {
		Vocab string
		Pre   map[string]*vectorsOfTwoEngines
	}
	readJSON(t, &d, "tokenizers", "more", "rules.json")
	tok := load(t, "vocab", d.Vocab)
	for name, v := range d.Pre {
		t.Run(name, func(t *testing.T) {
			pre, err := findPreTokenizer(name)
			if err != nil {
				t.Fatal(err)
			}
			v.check(t, withPre(tok, pre))
		})
	}
}

// The prompts of the golden runs of a real model.
func TestPromptsOfGoldenRuns(t *testing.T) {
	tok := load(t, "models", "stories260K-f32.gguf")
	b, err := os.ReadFile(testdata.Path(t, "models", "stories260K-f32.golden.json"))
	if err != nil {
		t.Fatal(err)
	}
	var d struct {
		Cases []struct {
			Prompt, Text string
			IDs          []int32
			PromptIDs    []int32 `json:"prompt_ids"`
		}
	}
	if err := json.Unmarshal(b, &d); err != nil {
		t.Fatal(err)
	}
	if len(d.Cases) == 0 {
		t.Fatal("no cases")
	}
	for _, c := range d.Cases {
		if got := encode(t, tok, c.Prompt, Options{AddBOS: true}); !slices.Equal(got, c.PromptIDs) {
			t.Errorf("%q: %v, want %v", c.Prompt, got, c.PromptIDs)
		}
		if got, err := tok.Decode(c.IDs); err != nil || strings.TrimSpace(got) != strings.TrimSpace(c.Text) {
			t.Errorf("decoded %q, want %q; %v", got, c.Text, err)
		}
	}
}

func TestRolesOfGoldenFiles(t *testing.T) {
	for _, c := range []struct {
		tok              *Tokenizer
		size             int
		bos, eos, eot    int32
		eogs             []int32
		addsBOS, addsEOS bool
	}{
		{vocab(t, "qwen2"), 151936, 151643, 151645, 151645, []int32{128247, 151643, 151645}, false, false},
		{vocab(t, "llama-bpe"), 128256, 128000, 128001, 128009, []int32{128001, 128009}, true, false},
		{vocab(t, "llama-spm"), 32000, 1, 2, none, []int32{2}, true, false},
		{vocab(t, "gpt-2"), 50257, 50256, 50256, 50256, []int32{50256}, false, false},
	} {
		tok := c.tok
		if tok.VocabSize() != c.size || tok.BOS() != c.bos || tok.EOS() != c.eos || tok.EOT() != c.eot {
			t.Errorf("size %d, BOS %d, EOS %d, EOT %d; want %+v", tok.VocabSize(), tok.BOS(), tok.EOS(), tok.EOT(), c)
		}
		if !slices.Equal(tok.EOGs(), c.eogs) {
			t.Errorf("end of generation: %v, want %v", tok.EOGs(), c.eogs)
		}
		if tok.AddsBOS() != c.addsBOS || tok.AddsEOS() != c.addsEOS {
			t.Errorf("adds BOS %v, EOS %v", tok.AddsBOS(), tok.AddsEOS())
		}
	}
}
