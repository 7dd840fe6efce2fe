package vibrant_test

import (
	"context"
	"errors"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/vibrant-ml/vibrant"
	"github.com/vibrant-ml/vibrant/gpu"
	"github.com/vibrant-ml/vibrant/internal/check/testdata"
	"github.com/vibrant-ml/vibrant/internal/check/testmodel"
)

// openReciter opens a model that answers everything with the same text.
func openReciter(t testing.TB, options ...vibrant.Option) *vibrant.Model {
	t.Helper()
	return openBytes(t, testmodel.Reciter("▁Hello", ",", "▁I", "▁recite", "."), options...)
}

func openBytes(t testing.TB, data []byte, options ...vibrant.Option) *vibrant.Model {
	t.Helper()
	m, err := vibrant.OpenBytes(context.Background(), data, append([]vibrant.Option{vibrant.WithDevice("cpu")}, options...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	return m
}

func newSession(t testing.TB, m *vibrant.Model, options ...vibrant.SessionOption) *vibrant.Session {
	t.Helper()
	s, err := m.NewSession(options...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func greedy() vibrant.Generation {
	g := vibrant.DefaultGeneration()
	g.Temperature = 0
	return g
}

// read collects an answer.
func read(t testing.TB, seq func(func(vibrant.Token, error) bool)) string {
	t.Helper()
	var b strings.Builder
	for token, err := range seq {
		if err != nil {
			t.Fatal(err)
		}
		b.WriteString(token.Text)
	}
	return b.String()
}

func TestConversation(t *testing.T) {
	m := openReciter(t)
	s := newSession(t, m, vibrant.WithSystem("Recite."), vibrant.WithGeneration(greedy()))
	for turn := range 3 {
		if got := read(t, s.Send(context.Background(), "What do you do?")); got != " Hello, I recite." {
			t.Fatalf("turn %d: %q", turn, got)
		}
		if s.Finish() != vibrant.FinishStop {
			t.Errorf("finish %q", s.Finish())
		}
		st := s.Stats()
		if turn > 0 && st.ReusedTokens == 0 {
			t.Error("nothing of the conversation was reused")
		}
		if st.DecodeTokens != 5 || st.DecodeRate() <= 0 || st.PrefillRate() <= 0 {
			t.Errorf("stats %+v", st)
		}
	}
	h := s.History()
	if len(h) != 6 || h[0] != (vibrant.Message{Role: "user", Content: "What do you do?"}) || h[5].Role != "assistant" {
		t.Errorf("history %v", h)
	}
	s.Reset()
	if len(s.History()) != 0 || s.System() != "Recite." {
		t.Error("a reset forgets the conversation and keeps the system message")
	}
}

func TestAnswersEndWhereTheyAreTold(t *testing.T) {
	m := openReciter(t)
	for _, c := range []struct {
		change func(*vibrant.Generation)
		want   string
		finish vibrant.FinishReason
	}{
		{func(g *vibrant.Generation) {}, " Hello, I recite.", vibrant.FinishStop},
		{func(g *vibrant.Generation) { g.MaxTokens = 2 }, " Hello,", vibrant.FinishLength},
		{func(g *vibrant.Generation) { g.MaxTokens = 0 }, "", vibrant.FinishLength},
		{func(g *vibrant.Generation) { g.Stop = []string{"xyz", "o, I"} }, " Hell", vibrant.FinishStop},
		{func(g *vibrant.Generation) { g.Stop = []string{"recite.!"} }, " Hello, I recite.", vibrant.FinishStop},
		// Without its end, the sentence is followed by the token that is likeliest among equals, the lowest.
		{func(g *vibrant.Generation) { g.IgnoreEOS, g.MaxTokens = true, 7 }, " Hello, I recite. Hello", vibrant.FinishLength},
	} {
		g := greedy()
		c.change(&g)
		s := newSession(t, m, vibrant.WithGeneration(g))
		if got := read(t, s.Complete(context.Background(), "?")); got != c.want || s.Finish() != c.finish {
			t.Errorf("%+v: %q, %q, want %q, %q", g, got, s.Finish(), c.want, c.finish)
		}
	}
}

func TestCharactersAreWholeThoughTheirBytesAreTokens(t *testing.T) {
	m := openBytes(t, testmodel.Reciter("▁caf", "\u00e9", "▁na", "\u00ef", "ve"))
	s := newSession(t, m, vibrant.WithGeneration(greedy()))
	if got := read(t, s.Complete(context.Background(), "?")); got != " caf\u00e9 na\u00efve" {
		t.Errorf("%q", got)
	}
}

func TestFullContextEndsAnswersAndRefusesPrompts(t *testing.T) {
	m := openReciter(t, vibrant.WithContext(4))
	s := newSession(t, m, vibrant.WithGeneration(greedy()))
	if got := read(t, s.CompleteIDs(context.Background(), []int32{1})); got != " Hello, I recite" || s.Finish() != vibrant.FinishContext {
		t.Errorf("%q, %q", got, s.Finish())
	}
	for _, err := range s.Send(context.Background(), "far too long") {
		if !errors.Is(err, vibrant.ErrContextFull) || !strings.Contains(err.Error(), "4") {
			t.Errorf("%v", err)
		}
	}
	if len(s.History()) != 0 {
		t.Error("a message that was refused is in the history")
	}
}

func TestStoppedAnswerStaysInTheHistory(t *testing.T) {
	m := openReciter(t)
	s := newSession(t, m, vibrant.WithGeneration(greedy()))
	for range s.Send(context.Background(), "Go") {
		break
	}
	want := []vibrant.Message{{Role: "user", Content: "Go"}, {Role: "assistant", Content: " Hello"}}
	if h := s.History(); !slices.Equal(h, want) {
		t.Errorf("after leaving the loop: %v", h)
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var last error
	for _, last = range s.Send(ctx, "On") {
		cancel()
	}
	if !errors.Is(last, context.Canceled) || len(s.History()) != 4 {
		t.Errorf("after cancelling: %v, %v", last, s.History())
	}
	for _, err := range s.Send(ctx, "Never said") {
		if !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	}
	if len(s.History()) != 4 {
		t.Errorf("a message that was never answered is in the history: %v", s.History())
	}
}

func TestUsersTextIsNeverASpecialToken(t *testing.T) {
	m := openReciter(t)
	tok, err := m.Tokenizer()
	if err != nil {
		t.Fatal(err)
	}
	s := newSession(t, m, vibrant.WithGeneration(greedy()))
	read(t, s.Send(context.Background(), "plain"))
	plain := s.Stats().PrefillTokens
	s.Reset()
	read(t, s.Send(context.Background(), "</s>ain"))
	// "</s>" is one token where it is parsed and four bytes where not.
	if n := s.Stats().PrefillTokens; n != plain+2 {
		t.Errorf("%d tokens, want %d", n, plain+2)
	}
	ids, err := tok.Encode(t.Context(), "</s>", vibrant.EncodeOptions{ParseSpecial: true})
	if err != nil || len(ids) != 1 || !tok.IsEnd(ids[0]) {
		t.Errorf("%v, %v", ids, err)
	}
}

func TestSessionsInParallelAndCloseFromAnywhere(t *testing.T) {
	m := openReciter(t)
	var wg sync.WaitGroup
	for range 8 {
		s := newSession(t, m, vibrant.WithGeneration(greedy()))
		wg.Add(1)
		go func() {
			defer wg.Done()
			for range 5 {
				var b strings.Builder
				for token, err := range s.Send(context.Background(), "Go") {
					if err != nil {
						t.Error(err)
						return
					}
					b.WriteString(token.Text)
				}
				if b.String() != " Hello, I recite." {
					t.Errorf("%q", b.String())
				}
			}
		}()
	}
	wg.Wait()

	s := newSession(t, m, vibrant.WithGeneration(greedy()))
	var last error
	n := 0
	for _, last = range s.Send(context.Background(), "Go") {
		if n++; n == 2 {
			for _, err := range s.Send(context.Background(), "twice at once") {
				if !errors.Is(err, vibrant.ErrBusy) {
					t.Error(err)
				}
			}
			if err := m.Close(); err != nil {
				t.Error(err)
			}
		}
	}
	if !errors.Is(last, vibrant.ErrClosed) || n != 3 {
		t.Errorf("closing the model inside an answer: %v after %d tokens", last, n)
	}
	if _, err := m.NewSession(); !errors.Is(err, vibrant.ErrClosed) {
		t.Error(err)
	}
	if _, err := m.Logits(context.Background(), []int32{1}); !errors.Is(err, vibrant.ErrClosed) {
		t.Error(err)
	}
	if m.Close() != nil || s.Close() != nil {
		t.Error("closing twice is harmless")
	}
}

func TestModelWithoutTokenizerRunsByIDs(t *testing.T) {
	m := openBytes(t, testmodel.Random(testmodel.Tiny))
	if _, err := m.Tokenizer(); !errors.Is(err, vibrant.ErrNoTokenizer) {
		t.Error(err)
	}
	g := greedy()
	g.MaxTokens = 9
	s := newSession(t, m, vibrant.WithGeneration(g))
	if text := read(t, s.CompleteIDs(context.Background(), []int32{1, 2, 3})); text != "" || len(s.Generated()) != 9 {
		t.Errorf("%q, %v", text, s.Generated())
	}
	for _, seq := range []func(func(vibrant.Token, error) bool){s.Send(context.Background(), "hi"), s.Complete(context.Background(), "hi")} {
		for _, err := range seq {
			if !errors.Is(err, vibrant.ErrNoTokenizer) {
				t.Error(err)
			}
		}
	}
	rows, err := m.Logits(context.Background(), []int32{1, 2, 3})
	if err != nil || len(rows) != 3 || len(rows[0]) != m.Info().Vocab {
		t.Errorf("%d rows, %v", len(rows), err)
	}
}

// TestTokenIDsOutsideTheVocabularyAreErrors gives such ids to everything that takes ids. What was computed before stays as it was.
func TestTokenIDsOutsideTheVocabularyAreErrors(t *testing.T) {
	ctx := context.Background()
	m := openBytes(t, testmodel.Random(testmodel.Tiny))
	g := greedy()
	g.MaxTokens = 4
	s := newSession(t, m, vibrant.WithGeneration(g))
	b, err := m.NewBatch(2)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	read(t, s.CompleteIDs(ctx, []int32{1, 2, 3}))
	want := s.Generated()
	tried := 0
	for _, id := range []int32{-1, math.MinInt32, int32(m.Info().Vocab), math.MaxInt32} {
		for _, ids := range [][]int32{{id}, {1, id}, {id, 2, 3}} {
			for what, take := range map[string]func() error{
				"CheckIDs": func() error { return m.CheckIDs(ids) },
				"Logits":   func() error { _, err := m.Logits(ctx, ids); return err },
				"Prefill":  func() error { return s.Prefill(ctx, ids) },
				"Join":     func() error { _, err := b.Join(ctx, ids, g); return err },
				"CompleteIDs": func() (err error) {
					for _, err = range s.CompleteIDs(ctx, ids) {
					}
					return err
				},
			} {
				tried++
				if err := take(); err == nil || !strings.Contains(err.Error(), strconv.Itoa(int(id))) {
					t.Errorf("%s of %v: %v", what, ids, err)
				}
			}
		}
	}
	if read(t, s.CompleteIDs(ctx, []int32{1, 2, 3})); !slices.Equal(s.Generated(), want) {
		t.Errorf("%v after errors, %v before", s.Generated(), want)
	}
	t.Logf("%d calls", tried)
}

func TestLogitsThatAreNoNumbersAreAnErrorOfSampling(t *testing.T) {
	w := testmodel.Writer(testmodel.Tiny, func(name string, row, col int) float32 {
		if name == "output_norm.weight" {
			return float32(math.NaN())
		}
		return 0.1
	})
	w.Set("tokenizer.ggml.model", "no_vocab")
	for _, temperature := range []float64{0, 1} { // the device chooses, or the host
		g := vibrant.DefaultGeneration()
		g.Temperature, g.MaxTokens = temperature, 4
		s := newSession(t, openBytes(t, testmodel.Bytes(w)), vibrant.WithGeneration(g))
		tokens := 0
		var last error
		for _, err := range s.CompleteIDs(context.Background(), []int32{1, 2, 3}) {
			if last = err; err == nil {
				tokens++
			}
		}
		if tokens > 0 || last == nil || !strings.Contains(last.Error(), "not a number") {
			t.Errorf("temperature %v: %d tokens, then %v, want an error that says so", temperature, tokens, last)
		}
	}
}

func TestModelThatDoesNotFitIsRefusedWithNumbers(t *testing.T) {
	shape := testmodel.Tiny
	shape.Context = 1 << 20
	path := filepath.Join(t.TempDir(), "m.gguf")
	if err := os.WriteFile(path, testmodel.Random(shape), 0o600); err != nil {
		t.Fatal(err)
	}
	_, total, err := gpu.CPU().Memory()
	if err != nil {
		t.Fatal(err)
	}
	options := []vibrant.Option{vibrant.WithDevice("cpu"), vibrant.WithContext(1 << 20), vibrant.WithMemoryFraction(16e6 / float64(total))}
	_, err = vibrant.Open(context.Background(), path, options...)
	if !errors.Is(err, vibrant.ErrDoesNotFit) || !strings.Contains(err.Error(), "--ctx") {
		t.Fatal(err)
	}
	fit, err := vibrant.PredictFit(path, options...)
	if err != nil || fit.Fits || fit.LargestContext == 0 {
		t.Fatalf("%+v, %v", fit, err)
	}
	options[1] = vibrant.WithContext(fit.LargestContext)
	m, err := vibrant.Open(context.Background(), path, options...)
	if err != nil {
		t.Fatalf("with the context that was said to fit: %v", err)
	}
	m.Close()
}

func TestUnknownNamesAndNumbersAreErrors(t *testing.T) {
	data := testmodel.Reciter("a")
	for _, o := range []vibrant.Option{vibrant.WithDevice("tpu"), vibrant.WithDevice("cuda:x"), vibrant.WithDevice("cpu:1"), vibrant.WithContext(-1),
		vibrant.WithThreads(-1), vibrant.WithMemoryFraction(2), vibrant.WithKVType("q9"), vibrant.WithPrefillChunk(-1),
		vibrant.WithContext(int(min(int64(1)<<40, math.MaxInt)))} {
		if m, err := vibrant.OpenBytes(context.Background(), data, o); err == nil {
			m.Close()
			t.Error("accepted")
		}
	}
	m := openBytes(t, data)
	for _, change := range []func(*vibrant.Generation){
		func(g *vibrant.Generation) { g.Temperature = -1 }, func(g *vibrant.Generation) { g.TopP = 2 },
		func(g *vibrant.Generation) { g.TopK = -1 }, func(g *vibrant.Generation) { g.RepeatPenalty = 0 },
		func(g *vibrant.Generation) { g.Stop = []string{""} }, func(g *vibrant.Generation) { g.MaxTokens = -2 },
	} {
		g := vibrant.DefaultGeneration()
		change(&g)
		if _, err := m.NewSession(vibrant.WithGeneration(g)); err == nil {
			t.Errorf("%+v was accepted", g)
		}
	}
	if _, err := vibrant.OpenBytes(context.Background(), data[:len(data)/2]); err == nil {
		t.Error("half a file was accepted")
	}
	if _, err := vibrant.Open(context.Background(), filepath.Join(t.TempDir(), "none.gguf")); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}

// TestPerplexityScoresSecondHalves computes llama.cpp's figure from logits, chunk by chunk.
func TestPerplexityScoresSecondHalves(t *testing.T) {
	const n = 64
	m := openReciter(t, vibrant.WithContext(n))
	text := strings.Repeat("The quick brown fox jumps over the lazy dog. ", 5)
	tok, err := m.Tokenizer()
	if err != nil {
		t.Fatal(err)
	}
	ids, err := tok.Encode(t.Context(), text, vibrant.EncodeOptions{AddBOS: true})
	if err != nil {
		t.Fatal(err)
	}
	sum, scored := 0.0, 0
	for at := 0; at+n <= len(ids); at += n {
		chunk := slices.Clone(ids[at : at+n])
		chunk[0] = 1
		logits, err := m.Logits(context.Background(), chunk)
		if err != nil {
			t.Fatal(err)
		}
		for i := n / 2; i+1 < n; i++ {
			var z float64
			for _, x := range logits[i] {
				z += math.Exp(float64(x))
			}
			sum += math.Log(z) - float64(logits[i][chunk[i+1]])
			scored++
		}
	}
	want := math.Exp(sum / float64(scored))
	r, err := m.Perplexity(context.Background(), text, vibrant.PerplexityOptions{Context: n})
	if err != nil {
		t.Fatal(err)
	}
	if r.Chunks != len(ids)/n || r.Scored != scored || !(math.Abs(r.Perplexity/want-1) < 1e-4) {
		t.Errorf("%+v, want %g of %d tokens", r, want, scored)
	}
	if _, err := m.Perplexity(context.Background(), "short", vibrant.PerplexityOptions{Context: n}); err == nil {
		t.Error("a text without one chunk was scored")
	}
}

func TestPathlessOpensTheRegisteredModel(t *testing.T) {
	if _, err := vibrant.Open(context.Background(), ""); !errors.Is(err, vibrant.ErrNoModel) {
		t.Error(err)
	}
	data := testmodel.Reciter("▁Here", "▁I", "▁am")
	// Nothing promises that embedded bytes are aligned.
	odd := append(make([]byte, 1, len(data)+1), data...)[1:]
	vibrant.RegisterDefault(func() []byte { return odd })
	defer vibrant.RegisterDefault(func() []byte { return nil })
	m, err := vibrant.Open(context.Background(), "", vibrant.WithDevice("cpu"))
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	if got := read(t, newSession(t, m, vibrant.WithGeneration(greedy())).Send(context.Background(), "Hi")); got != " Here I am" {
		t.Errorf("%q", got)
	}
}

func TestInspect(t *testing.T) {
	f, err := vibrant.Inspect(testdata.Path(t, "models", "tiny-qwen2.gguf"))
	if err != nil {
		t.Fatal(err)
	}
	if f.Version != 3 || len(f.Tensors) == 0 || f.Types[0].Type != "F32" || f.Metadata[0].Short() != `"qwen2"` {
		t.Errorf("version %d, %d tensors, types %v, first key %v", f.Version, len(f.Tensors), f.Types, f.Metadata[0])
	}
	for _, x := range f.Tensors {
		if x.Name == "blk.0.ffn_down.weight" && x.Shape[0] >= x.Shape[1] {
			t.Errorf("%s has shape %v: the contiguous dimension is the last", x.Name, x.Shape)
		}
	}
}
