package tokenizer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/vibrant-ml/vibrant/internal/check/busy"
	"github.com/vibrant-ml/vibrant/internal/language/gguf"
)

func ptr[T any](v T) *T { return &v }

// bytesVocab returns a gpt2 configuration with the 256 bytes as tokens 0 to 255, and further tokens and merges.
func bytesVocab(merges ...string) Config {
	c := Config{Model: "gpt2", Pre: "gpt-2", Merges: merges}
	for _, r := range byteChars {
		c.Tokens = append(c.Tokens, string(r))
		c.Types = append(c.Types, Normal)
	}
	for _, m := range merges {
		c.add(strings.Replace(m, " ", "", 1), Normal)
	}
	return c
}

// spmVocab returns a llama configuration: <unk> <s> </s>, the bytes, and then the tokens with falling scores.
func spmVocab(tokens ...string) Config {
	c := Config{Model: "llama", Tokens: []string{"<unk>", "<s>", "</s>"}, Types: []Type{Unknown, Control, Control}}
	for b := range 256 {
		c.add(fmt.Sprintf("<0x%02X>", b), Byte)
	}
	for _, s := range tokens {
		c.add(s, Normal)
	}
	for i := range c.Tokens {
		c.Scores = append(c.Scores, float32(-i))
	}
	return c
}

func (c *Config) add(text string, typ Type) int32 {
	c.Tokens = append(c.Tokens, text)
	c.Types = append(c.Types, typ)
	if c.Scores != nil {
		c.Scores = append(c.Scores, 0)
	}
	return int32(len(c.Tokens) - 1)
}

func must(t testing.TB, c Config) *Tokenizer {
	t.Helper()
	tok, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	return tok
}

func TestUserDefinedTokensAreCutOutFirstAndControlTokensOnlyWhenAsked(t *testing.T) {
	c := bytesVocab("a b")
	ab, user, longer, control := int32(256), c.add("<x>", UserDefined), c.add("<x>>", UserDefined), c.add("<end>", Control)
	unk := c.add("<unk>", Unknown)
	tok := must(t, c)
	for _, v := range []struct {
		text         string
		plain, parse []int32
	}{
		{"", []int32{}, []int32{}},
		{"ab", []int32{ab}, []int32{ab}},
		{"a<x>b", []int32{'a', user, 'b'}, []int32{'a', user, 'b'}},
		{"<x>><x>", []int32{longer, user}, []int32{longer, user}},
		{"<x", []int32{'<', 'x'}, []int32{'<', 'x'}},
		{"a<end>", []int32{'a', '<', 'e', 'n', 'd', '>'}, []int32{'a', control}},
		{"<unk>b", []int32{'<', 'u', 'n', 'k', '>', 'b'}, []int32{unk, 'b'}},
		{"<e<x>nd>", []int32{'<', 'e', user, 'n', 'd', '>'}, []int32{'<', 'e', user, 'n', 'd', '>'}},
	} {
		if got := encode(t, tok, v.text, Options{}); !slices.Equal(got, v.plain) {
			t.Errorf("%q: %v, want %v", v.text, got, v.plain)
		}
		if got := encode(t, tok, v.text, Options{ParseSpecial: true}); !slices.Equal(got, v.parse) {
			t.Errorf("%q parsed: %v, want %v", v.text, got, v.parse)
		}
	}
}

// Text of a user must not become a control token by merging either.
func TestMergesDoNotMakeControlTokens(t *testing.T) {
	c := spmVocab("<", "/", "s", ">", "</", "s>")
	c.AddSpacePrefix = ptr(false)
	tok := must(t, c)
	got := encode(t, tok, "</s>", Options{})
	if slices.Contains(got, tok.EOS()) || len(got) != 2 {
		t.Errorf("%v", got)
	}
	if got := encode(t, tok, "<0x41>", Options{}); slices.Contains(got, 3+0x41) {
		t.Errorf("the text of a byte's token became the byte: %v", got)
	}

	b := bytesVocab("< e", "<e >")
	b.Types[257] = Control
	tok = must(t, b)
	if got := encode(t, tok, "<e>", Options{}); slices.Contains(got, 257) {
		t.Errorf("%v", got)
	}
	if w := tok.Warnings(); len(w) != 1 || !strings.Contains(w[0], "1 of 2 merges") {
		t.Errorf("warnings %q", w)
	}
}

func TestBOSAndEOSAreAddedWhereTheModelAsks(t *testing.T) {
	yes, no := ptr(true), ptr(false)
	for _, v := range []struct {
		name           string
		model, pre     string
		addBOS, addEOS *bool
		want           string // B, E around x
	}{
		{"gpt-2", "gpt2", "gpt-2", nil, nil, "x"},
		{"llama-bpe", "gpt2", "llama-bpe", nil, nil, "Bx"},
		{"llama-bpe without", "gpt2", "llama-bpe", no, nil, "x"},
		{"qwen2 with", "gpt2", "qwen2", yes, yes, "BxE"},
		{"spm", "llama", "", nil, nil, "Bx"},
		{"spm with both", "llama", "", nil, yes, "BxE"},
		{"spm without", "llama", "", no, no, "x"},
	} {
		c := bytesVocab()
		if v.model == "llama" {
			c = spmVocab("x")
			c.AddSpacePrefix = no
		}
		c.Pre, c.AddBOS, c.AddEOS = v.pre, v.addBOS, v.addEOS
		bos, eos := c.add("<B>", Control), c.add("<E>", Control)
		c.Special = map[string]int32{"bos": bos, "eos": eos}
		tok := must(t, c)
		spell := func(text string, o Options) string {
			o.ParseSpecial = true
			var s strings.Builder
			for _, id := range encode(t, tok, text, o) {
				b, _ := tok.TokenText(id)
				s.Write(bytes.Trim(b, "<>"))
			}
			return s.String()
		}
		both := Options{AddBOS: true, AddEOS: true}
		if got := spell("x", both); got != v.want {
			t.Errorf("%s: %s, want %s", v.name, got, v.want)
		}
		if got := spell("x", Options{}); got != "x" {
			t.Errorf("%s: %s without options", v.name, got)
		}
		if got := spell("<B>x<E>", both); got != "BxE" {
			t.Errorf("%s: %s where the text has both already", v.name, got)
		}
		if got := spell("", both); got != strings.Replace(v.want, "x", "", 1) {
			t.Errorf("%s: %s of no text", v.name, got)
		}
	}
}

func TestSpacePrefixFollowsSpecialTokens(t *testing.T) {
	c := spmVocab("x", "▁", "▁x")
	x, space, spaceX := int32(259), int32(260), int32(261)
	end := c.add("<end>", Control)
	tok := must(t, c)
	if got := encode(t, tok, "x x<end>x", Options{ParseSpecial: true}); !slices.Equal(got, []int32{spaceX, spaceX, end, spaceX}) {
		t.Errorf("%v", got)
	}
	if s, _ := tok.Decode([]int32{1, spaceX, spaceX}); s != "x x" {
		t.Errorf("decoded %q", s)
	}
	c.AddSpacePrefix = ptr(false)
	tok = must(t, c)
	if got := encode(t, tok, "x  x", Options{}); !slices.Equal(got, []int32{x, space, spaceX}) {
		t.Errorf("%v", got)
	}
	if s, _ := tok.Decode([]int32{spaceX}); s != " x" {
		t.Errorf("decoded %q", s)
	}
}

func TestCharactersWithoutTokenBecomeBytesOrUnknown(t *testing.T) {
	c := spmVocab("a")
	c.AddSpacePrefix = ptr(false)
	tok := must(t, c)
	if got := encode(t, tok, "aé\xff", Options{}); !slices.Equal(got, []int32{259, 3 + 0xc3, 3 + 0xa9, 3 + 0xff}) {
		t.Errorf("%v", got)
	}
	if s, _ := tok.Decode(encode(t, tok, "aé\xff", Options{})); s != "aé\ufffd" {
		t.Errorf("decoded %q", s)
	}

	few := Config{Model: "llama", Tokens: []string{"<unk>", "<s>", "</s>", "a"}, Types: []Type{Unknown, Control, Control, Normal}, AddSpacePrefix: ptr(false)}
	tok = must(t, few)
	if got := encode(t, tok, "aé", Options{}); !slices.Equal(got, []int32{3, 0, 0}) {
		t.Errorf("%v", got)
	}
	few.Special = map[string]int32{"unknown": -1}
	few.Tokens, few.Types = few.Tokens[3:], few.Types[3:]
	few.Model, few.Pre = "gpt2", "gpt-2"
	tok = must(t, few)
	if got := encode(t, tok, "éaé", Options{}); !slices.Equal(got, []int32{0}) {
		t.Errorf("bytes without a token are not dropped: %v", got)
	}
}

func TestOverlongSpecialTokensAreNotLookedFor(t *testing.T) {
	c := bytesVocab()
	c.add(strings.Repeat("a", maxSpecial+1)+"b", UserDefined)
	longest := c.add(strings.Repeat("a", maxSpecial), UserDefined)
	tok := must(t, c)
	if w := tok.Warnings(); len(w) != 1 || !strings.Contains(w[0], "256 of 514 bytes") {
		t.Errorf("warnings %q", w)
	}
	if got := encode(t, tok, strings.Repeat("a", maxSpecial+1)+"b", Options{}); !slices.Equal(got, []int32{longest, 'a', 'b'}) {
		t.Errorf("%v", got)
	}
}

func TestEndOfGenerationIsKnownByRoleAndByText(t *testing.T) {
	for _, v := range []struct {
		name    string
		control []string
		special map[string]int32 // from 256 on: the tokens of control
		eogs    []int32
		eot     int32
	}{
		{"chatml", []string{"<|im_start|>", "<|im_end|>", "<|endoftext|>"}, nil, []int32{257, 258}, 257},
		{"llama 3", []string{"<|end_of_text|>", "<|eot_id|>", "<|eom_id|>", "<|start|>"}, nil, []int32{256, 257, 258}, 257},
		{"by role", []string{"<a>", "<b>", "<c>", "<d>"}, map[string]int32{"eos": 256, "eot": 257, "eom": 258}, []int32{256, 257, 258}, 257},
		{"fill in the middle", []string{"<|fim_pad|>", "<|file_sep|>", "<|repo_name|>", "<|fim_middle|>"}, nil, []int32{256, 257, 258}, none},
		{"harmony", []string{"<|return|>", "<|call|>", "<|end|>"}, nil, []int32{256, 257}, 258},
		{"gemma", []string{"<end_of_turn>", "</s>", "<eos>"}, nil, []int32{256, 257, 258}, 256},
		{"tool response", []string{"<|tool_response>", "</s>"}, nil, []int32{256}, none},
		{"nothing", nil, nil, []int32{}, none},
	} {
		c := bytesVocab()
		for _, s := range v.control {
			c.add(s, Control)
		}
		c.Special = v.special
		tok := must(t, c)
		if !slices.Equal(tok.EOGs(), v.eogs) || tok.EOT() != v.eot {
			t.Errorf("%s: %v and %d, want %v and %d", v.name, tok.EOGs(), tok.EOT(), v.eogs, v.eot)
		}
		for _, id := range v.eogs {
			if !tok.IsEOG(id) || !tok.IsSpecial(id) {
				t.Errorf("%s: %d", v.name, id)
			}
		}
		if tok.IsEOG(none) || tok.IsEOG('a') || tok.IsSpecial('a') || tok.IsSpecial(9999) || tok.IsEOG(9999) {
			t.Errorf("%s: ordinary or absent ids count as special", v.name)
		}
	}
}

func TestTokensThatLookLikeControlTokensBecomeOnesUnlessMerged(t *testing.T) {
	c := bytesVocab("< /", "</ s", "</s >")
	c.add("<|im_end|>", Normal)
	tok := must(t, c)
	s, im := int32(258), int32(259)
	if !tok.IsEOG(s) || tok.IsSpecial(s) || !tok.IsEOG(im) || !tok.IsSpecial(im) {
		t.Errorf("</s>: %v %v, <|im_end|>: %v %v", tok.IsEOG(s), tok.IsSpecial(s), tok.IsEOG(im), tok.IsSpecial(im))
	}
	if w := tok.Warnings(); len(w) != 1 || !strings.Contains(w[0], "<|im_end|>") {
		t.Errorf("warnings %q", w)
	}
	if got := encode(t, tok, "<|im_end|>", Options{ParseSpecial: true}); !slices.Equal(got, []int32{im}) {
		t.Errorf("%v", got)
	}
}

func TestPreTokenizerThatIsNotSupported(t *testing.T) {
	c := bytesVocab()
	for pre, warns := range map[string]int{"": 1, "qwen2": 0, "smollm": 0, "default": 0} {
		c.Pre = pre
		if w := must(t, c).Warnings(); len(w) != warns {
			t.Errorf("%q: warnings %q", pre, w)
		}
	}
	c.Pre = "no-such-thing"
	if _, err := New(c); !errors.Is(err, ErrUnknownPreTokenizer) || !strings.Contains(err.Error(), `"no-such-thing"`) {
		t.Errorf("error %v", err)
	}
}

// Command R's "™" outside of GPT-2's alphabet, at a lower id than the one that text becomes.
func TestTokensSpelledOutsideTheAlphabetAreNoTexts(t *testing.T) {
	c := bytesVocab()
	odd, eot := c.add("™", Normal), c.add("<｜end▁of▁sentence｜>", Normal)
	c.Merges = []string{"â Ħ", "âĦ ¢"}
	c.add("âĦ", Normal)
	whole := c.add("âĦ¢", Normal)
	for _, pre := range []string{"command-r", "llama-bpe"} {
		c.Pre = pre
		tok := must(t, c)
		if got := encode(t, tok, "™", Options{}); !slices.Equal(got, []int32{whole}) {
			t.Errorf("%s: %v", pre, got)
		}
		if s, err := tok.Decode([]int32{odd}); s != "™" || err != nil {
			t.Errorf("%q, %v", s, err)
		}
		if !tok.IsEOG(eot) {
			t.Error("the end is not known by its name")
		}
	}
}

func TestTextIsNormalizedWhereTheModelDoes(t *testing.T) {
	for pre, want := range map[string][]int32{
		"qwen2": {0xc3, 0xa9}, "qwen35": {0xc3, 0xa9}, "command-r": {0xc3, 0xa9}, "mpt": {0xc3, 0xa9}, "olmo": {0xc3, 0xa9},
		"llama-bpe": {'e', 0xcc, 0x81}, "gpt-4o": {'e', 0xcc, 0x81}, "smollm": {'e', 0xcc, 0x81},
	} {
		c := bytesVocab()
		c.Pre = pre
		if got := encode(t, must(t, c), "e\u0301", Options{}); !slices.Equal(got, want) {
			t.Errorf("%s: %v", pre, got)
		}
	}
}

func TestEncodingStopsWithItsContext(t *testing.T) {
	text := strings.Repeat("a", 20<<20)
	for name, tok := range map[string]*Tokenizer{"gpt2": must(t, bytesVocab("a a", "aa aa")), "llama": must(t, spmVocab("a", "aa"))} {
		var start time.Duration
		if _, err := tok.Encode(busy.AtLook(10, func() { start = busy.Processor() }), text, Options{}); !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v", name, err)
		}
		// A window of the text takes some microseconds. The whole text takes seconds, and looks at the context hundreds of times.
		if d := busy.Processor() - start; d > time.Second {
			t.Errorf("%s: stopped after %v of a processor", name, d)
		}
	}
}

// Long pieces are merged in windows; the result is that of merging them at once.
func TestWindowsOfLongPiecesChangeNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		texts := []string{"a", "b"}
		var merges []string
		for range rapid.IntRange(1, 20).Draw(t, "merges") {
			l, r := rapid.SampledFrom(texts).Draw(t, "left"), rapid.SampledFrom(texts).Draw(t, "right")
			merges = append(merges, l+" "+r)
			texts = append(texts, l+r)
		}
		tok, err := New(bytesVocab(rapid.Permutation(merges).Draw(t, "order")...))
		if err != nil {
			t.Fatal(err)
		}
		unit := rapid.StringMatching(`[ab]{1,12}`).Draw(t, "unit")
		piece := strings.Repeat(unit, 200/len(unit)) + rapid.StringMatching(`[ab]{0,90}`).Draw(t, "tail")
		at := func(size int) ([]int32, bool) {
			e := &encoder{t: tok, ctx: context.Background()}
			ok, err := e.mergeWindows(tok.model.(*bpe), piece, size)
			if err != nil {
				t.Fatal(err)
			}
			return e.ids, ok
		}
		want, _ := at(len(piece))
		for _, size := range []int{8, 16, 32, 64} {
			if got, ok := at(size); ok && !slices.Equal(got, want) {
				t.Fatalf("windows of %d, %q by %q: %v, want %v", size, piece, merges, got, want)
			}
		}
	})
}

func TestBadConfigurationsAreErrors(t *testing.T) {
	for name, v := range map[string]struct {
		change func(c *Config)
		want   string
	}{
		"model":      {func(c *Config) { c.Model = "rwkv" }, `"rwkv" is not supported`},
		"types":      {func(c *Config) { c.Types = c.Types[1:] }, "255 types for 256 tokens"},
		"scores":     {func(c *Config) { c.Scores = make([]float32, 1) }, "1 scores for 256 tokens"},
		"merge":      {func(c *Config) { c.Merges = []string{"ab"} }, `merge 0, "ab", is not a pair`},
		"half merge": {func(c *Config) { c.Merges = []string{"ab "} }, "is not a pair"},
		"no merge":   {func(c *Config) { c.Merges = []string{""} }, "is not a pair"},
	} {
		c := bytesVocab()
		v.change(&c)
		if _, err := New(c); err == nil || !strings.Contains(err.Error(), v.want) {
			t.Errorf("%s: error %v, want %q", name, err, v.want)
		}
	}
	if _, err := New(Config{Model: "gpt2"}); !errors.Is(err, ErrNoVocab) {
		t.Errorf("no tokens: %v", err)
	}
	c := bytesVocab("a b")
	c.Special = map[string]int32{"bos": 9999, "eos": -5}
	c.AddBOS, c.AddEOS = ptr(true), ptr(true)
	c.add("a", Normal)
	c.add("", Normal)
	tok := must(t, c)
	if w := tok.Warnings(); len(w) != 5 || tok.AddsBOS() || tok.AddsEOS() || tok.BOS() != none {
		t.Errorf("warnings %q", w)
	}
}

func TestIDsOutOfRangeAreErrors(t *testing.T) {
	tok := must(t, bytesVocab())
	for _, id := range []int32{-1, 256, math.MaxInt32, math.MinInt32} {
		_, err1 := tok.Decode([]int32{id})
		_, err2 := tok.TokenText(id)
		_, err3 := tok.NewDecoder().Next(id)
		for _, err := range []error{err1, err2, err3} {
			if !errors.Is(err, ErrOutOfRange) || !strings.Contains(err.Error(), fmt.Sprint(id)) {
				t.Errorf("%d: %v", id, err)
			}
		}
		if tok.TokenType(id) != Undefined {
			t.Errorf("%d has a type", id)
		}
	}
}

func TestFromGGUF(t *testing.T) {
	file := func(set func(w *gguf.Writer)) *gguf.File {
		w := &gguf.Writer{}
		set(w)
		var b bytes.Buffer
		if _, err := w.WriteTo(&b); err != nil {
			t.Fatal(err)
		}
		f, err := gguf.FromBytes(b.Bytes())
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	for _, model := range []string{"no_vocab", "none", ""} {
		f := file(func(w *gguf.Writer) {
			if model != "" {
				w.Set("tokenizer.ggml.model", model)
			}
		})
		if _, err := FromGGUF(f, ""); !errors.Is(err, ErrNoVocab) {
			t.Errorf("model %q: %v", model, err)
		}
	}
	for key, value := range map[string]any{
		"tokenizer.ggml.model": uint32(1), "tokenizer.ggml.pre": true, "tokenizer.ggml.tokens": "x",
		"tokenizer.ggml.merges": []int32{1}, "tokenizer.ggml.token_type": []string{"x"}, "tokenizer.ggml.scores": []string{},
		"tokenizer.ggml.bos_token_id": "x", "tokenizer.ggml.add_bos_token": uint32(1),
	} {
		f := file(func(w *gguf.Writer) {
			for k, v := range map[string]any{
				"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "qwen2", "tokenizer.ggml.tokens": []string{"a"},
				"tokenizer.ggml.merges": []string{},
			} {
				if k != key {
					w.Set(k, v)
				}
			}
			w.Set(key, value)
		})
		if _, err := FromGGUF(f, ""); err == nil || !strings.Contains(err.Error(), key) {
			t.Errorf("%s of a wrong type: %v", key, err)
		}
	}
	tok, err := FromGGUF(file(func(w *gguf.Writer) {
		w.Set("tokenizer.ggml.model", "llama")
		w.Set("tokenizer.ggml.tokens", []string{"<unk>", "<s>", "</s>", "<0x41>", "▁b", "<pad>"})
		w.Set("tokenizer.ggml.token_type", []int32{2, 3, 3, 6, 1, 77})
		w.Set("tokenizer.ggml.padding_token_id", uint32(5))
		w.Set("tokenizer.ggml.add_eos_token", true)
	}), "")
	if err != nil {
		t.Fatal(err)
	}
	if tok.BOS() != 1 || tok.EOS() != 2 || tok.UNK() != 0 || tok.PAD() != 5 || tok.EOM() != none || !tok.AddsEOS() || tok.TokenType(5) != Undefined {
		t.Errorf("BOS %d, EOS %d, UNK %d, PAD %d, EOM %d, type of 5 %d", tok.BOS(), tok.EOS(), tok.UNK(), tok.PAD(), tok.EOM(), tok.TokenType(5))
	}
	if id, ok := tok.ID(" b"); id != 4 || !ok {
		t.Errorf("ID: %d %v", id, ok)
	}
	if b, _ := tok.TokenText(3); string(b) != "A" {
		t.Errorf("text of a byte's token: %q", b)
	}
}

func TestEmptyTokensTakeLittleMemory(t *testing.T) {
	const n = 1 << 20
	w := &gguf.Writer{}
	w.Set("tokenizer.ggml.model", "gpt2")
	w.Set("tokenizer.ggml.pre", "qwen2")
	w.Set("tokenizer.ggml.tokens", make([]string, n))
	w.Set("tokenizer.ggml.merges", []string{})
	var b bytes.Buffer
	if _, err := w.WriteTo(&b); err != nil {
		t.Fatal(err)
	}
	f, err := gguf.FromBytes(b.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	tok, err := FromGGUF(f, "")
	if err != nil {
		t.Fatal(err)
	}
	runtime.ReadMemStats(&after)
	// A token takes 16 bytes while it is read, and 8 afterwards, of 8 in the file.
	ratio := float64(after.TotalAlloc-before.TotalAlloc) / float64(b.Len())
	if ratio > 4 {
		t.Errorf("%d empty tokens took %.1f times the file", tok.VocabSize(), ratio)
	}
	t.Logf("%d empty tokens: %.1f times the file", tok.VocabSize(), ratio)
}

// naive merges by looking at all neighbours again after each merge, as the algorithm is defined.
func naive(c Config, tok *Tokenizer, piece string) []int32 {
	ids := []int32{}
	for _, b := range []byte(piece) {
		ids = append(ids, tok.model.(*bpe).bytes[b])
	}
	rank := map[[2]string]int{}
	for i, m := range c.Merges {
		l, r, _ := strings.Cut(m, " ")
		if _, dup := rank[[2]string{l, r}]; !dup {
			rank[[2]string{l, r}] = i
		}
	}
	for {
		best, at := len(c.Merges), -1
		for i := range len(ids) - 1 {
			if x, ok := rank[[2]string{tok.text(ids[i]), tok.text(ids[i+1])}]; ok && x < best {
				best, at = x, i
			}
		}
		if at < 0 {
			return ids
		}
		ids[at], _ = tok.ID(tok.text(ids[at]) + tok.text(ids[at+1]))
		ids = slices.Delete(ids, at+1, at+2)
	}
}

func TestMergingIsThatOfTheDefinition(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		// Merges in any order, also ones that use what later ones make.
		texts := []string{"a", "b", "c"}
		var merges []string
		for range rapid.IntRange(0, 25).Draw(t, "merges") {
			l, r := rapid.SampledFrom(texts).Draw(t, "left"), rapid.SampledFrom(texts).Draw(t, "right")
			merges = append(merges, l+" "+r)
			texts = append(texts, l+r)
		}
		merges = rapid.Permutation(merges).Draw(t, "order")
		c := bytesVocab(merges...)
		tok, err := New(c)
		if err != nil {
			t.Fatal(err)
		}
		for range 3 {
			piece := rapid.StringMatching(`[abc]{1,60}`).Draw(t, "piece")
			want := naive(c, tok, piece)
			for range 2 { // the second time from what was remembered
				if got, err := tok.Encode(t.Context(), piece, Options{}); err != nil || !slices.Equal(got, want) {
					t.Fatalf("%q by %q: %v, want %v; %v", piece, merges, got, want, err)
				}
			}
		}
	})
}

// Cutting SentencePiece's text into words changes nothing.
func TestWordsOfSentencePieceAreIndependent(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tokens := rapid.SliceOfDistinct(rapid.StringMatching(`▁{0,3}[ab]{0,4}`).Filter(func(s string) bool { return s != "" }), rapid.ID[string]).Draw(t, "tokens")
		c := spmVocab(tokens...)
		for i := range c.Scores {
			c.Scores[i] = float32(rapid.IntRange(-4, 4).Draw(t, "score"))
		}
		tok, err := New(c)
		if err != nil {
			t.Fatal(err)
		}
		text := rapid.StringMatching(`[ab ▁é]{0,40}`).Draw(t, "text")
		p := tok.model.(*spm)
		if !p.words {
			t.Fatalf("%q cannot be cut", tokens)
		}
		got, err1 := tok.Encode(t.Context(), text, Options{})
		p.words = false
		tok.encoders = sync.Pool{} // forgets the words
		want, err2 := tok.Encode(t.Context(), text, Options{})
		if err1 != nil || err2 != nil || !slices.Equal(got, want) {
			t.Fatalf("%q: %v, want %v; %v, %v", text, got, want, err1, err2)
		}
		if back, err := tok.Decode(got); err != nil || back != strings.ReplaceAll(text, "▁", " ") {
			t.Fatalf("%q decodes to %q, %v", text, back, err)
		}
	})
	if must(t, spmVocab("a▁b")).model.(*spm).words {
		t.Error("a token spans two words")
	}
}

func TestScoresOrderMerges(t *testing.T) {
	scores := []float32{float32(math.Inf(1)), 1e30, 1, 1e-40, 0, -1e-40, -1, -1e30, float32(math.Inf(-1))}
	for i := 1; i < len(scores); i++ {
		if rankOfScore(scores[i-1]) >= rankOfScore(scores[i]) {
			t.Errorf("%v does not come before %v", scores[i-1], scores[i])
		}
	}
	if rankOfScore(0) != rankOfScore(float32(math.Copysign(0, -1))) {
		t.Error("0 and -0 differ")
	}
}

func TestAnyBytesSurviveBPE(t *testing.T) {
	tok := must(t, bytesVocab("a b", "Ã ©", "Ġ a"))
	rapid.Check(t, func(t *rapid.T) {
		text := string(rapid.SliceOf(rapid.OneOf(rapid.Byte(), rapid.SampledFrom([]byte("ab \n\xc3\xa9")))).Draw(t, "text"))
		ids, err := tok.Encode(t.Context(), text, Options{AddBOS: true, AddEOS: true, ParseSpecial: true})
		if err != nil {
			t.Fatal(err)
		}
		var b []byte
		for _, id := range ids {
			x, err := tok.TokenText(id)
			if err != nil {
				t.Fatal(err)
			}
			b = append(b, x...)
		}
		if string(b) != text {
			t.Fatalf("%q became %q", text, b)
		}
	})
}

func TestHostileTextsTakeLinearTime(t *testing.T) {
	for name, tok := range map[string]*Tokenizer{"qwen2": vocab(t, "qwen2"), "llama-spm": vocab(t, "llama-spm")} {
		for what, text := range hostileTexts(1 << 16) {
			start := busy.Processor()
			ids := encode(t, tok, text, Options{ParseSpecial: true})
			// About 20 ms; quadratic time would be a minute. The bound leaves room for the race detector.
			if d := busy.Processor() - start; d > 5*time.Second {
				t.Errorf("%s, %s: %v for %d tokens", name, what, d, len(ids))
			}
		}
	}
}

func TestOneTokenizerServesManyGoroutines(t *testing.T) {
	tok := vocab(t, "qwen2")
	text := prose(t)[:20000]
	want := encode(t, tok, text, Options{})
	var wg sync.WaitGroup
	for range 8 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			got, err := tok.Encode(t.Context(), text, Options{})
			back, err2 := tok.Decode(got)
			if err != nil || err2 != nil || !slices.Equal(got, want) || back != text {
				t.Errorf("%v, %v: other ids", err, err2)
			}
		}()
	}
	wg.Wait()
}
