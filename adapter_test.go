package vibrant_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/vibrant-ml/vibrant"
	"github.com/vibrant-ml/vibrant/internal/check/testmodel"
)

var recited = []string{"▁Hello", ",", "▁I", "▁recite", "."}

// skipper writes an adapter with which the reciter leaves out words.
func skipper(t testing.TB) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "skipper.gguf")
	if err := os.WriteFile(path, testmodel.ReciterAdapter(len(recited)), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

const recitedText, skippedText = " Hello, I recite.", " Hello I."

func TestAdaptersChangeBetweenTurns(t *testing.T) {
	m := openReciter(t)
	a, err := m.LoadAdapter(t.Context(), skipper(t))
	if err != nil {
		t.Fatal(err)
	}
	s := newSession(t, m, vibrant.WithGeneration(greedy()))
	for turn, c := range []struct {
		active []vibrant.ActiveAdapter
		want   string
	}{{nil, recitedText}, {[]vibrant.ActiveAdapter{a.At(1)}, skippedText}, {[]vibrant.ActiveAdapter{a.At(0.1)}, recitedText}, {nil, recitedText}} {
		if err := s.SetAdapters(c.active...); err != nil {
			t.Fatal(err)
		}
		if got := read(t, s.Send(t.Context(), "Hi")); got != c.want {
			t.Errorf("turn %d: %q, want %q", turn, got, c.want)
		}
	}
	if err := s.SetAdapters(a.At(float32(math.NaN()))); err == nil {
		t.Error("a scale that is no number was taken")
	}
	if err := newSession(t, openReciter(t)).SetAdapters(a.At(1)); !errors.Is(err, vibrant.ErrAdapter) {
		t.Errorf("an adapter of another model: %v", err)
	}
}

// TestCodesMadeAtRunTimeDecideTokenByToken has an adapter act for one of the tokens that it would change.
func TestCodesMadeAtRunTimeDecideTokenByToken(t *testing.T) {
	m := openReciter(t, vibrant.WithAdapter(skipper(t), 1))
	s, a := newSession(t, m, vibrant.WithGeneration(greedy())), m.Adapters()[0].Adapter
	asked := 0
	const hello = 3 + 256 // the first word of the reciter's vocabulary
	onHello := func(ids []int32, codes [][]float32) {
		for i, id := range ids {
			asked++
			if id != hello {
				clear(codes[i])
			}
		}
	}
	if err := s.SetCodes(a, onHello); err != nil {
		t.Fatal(err)
	}
	if got, want := read(t, s.Send(t.Context(), "Hi")), " Hello I recite."; got != want || asked == 0 {
		t.Errorf("%q after %d codes, want %q", got, asked, want)
	}
	if err := s.SetCodes(a, nil); err != nil {
		t.Fatal(err)
	}
	if got := read(t, s.Send(t.Context(), "Hi")); got != skippedText {
		t.Errorf("without a source: %q", got)
	}
	if err := s.SetAdapters(); err != nil {
		t.Fatal(err)
	}
	if err := s.SetCodes(a, onHello); !errors.Is(err, vibrant.ErrAdapter) {
		t.Errorf("codes of an adapter that is not active: %v", err)
	}
}

func TestAnswersOfABatchHaveTheirAdapters(t *testing.T) {
	m := openReciter(t, vibrant.WithAdapter(skipper(t), 1))
	b, err := m.NewBatch(3)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	want := map[*vibrant.Answer]string{}
	for i := range 3 {
		var active []vibrant.ActiveAdapter
		text := recitedText
		if i != 1 {
			active, text = m.Adapters(), skippedText
		}
		if err := b.SetAdapters(active...); err != nil {
			t.Fatal(err)
		}
		a, err := b.Send(t.Context(), []vibrant.Message{{Role: "user", Content: "Hi"}}, greedy())
		if err != nil {
			t.Fatal(err)
		}
		want[a] = text
	}
	for b.Len() > 0 {
		if _, err := b.Step(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	for a, text := range want {
		if a.Text() != text {
			t.Errorf("%q, want %q", a.Text(), text)
		}
	}
}

// TestCodesOfABatchDecideForTheAnswersThatHaveThem has one of two answers with the same adapter ask for codes.
func TestCodesOfABatchDecideForTheAnswersThatHaveThem(t *testing.T) {
	m := openReciter(t, vibrant.WithAdapter(skipper(t), 1))
	b, err := m.NewBatch(2)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	send := func() *vibrant.Answer {
		a, err := b.Send(t.Context(), []vibrant.Message{{Role: "user", Content: "Hi"}}, greedy())
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	never := func(_ []int32, codes [][]float32) {
		for _, row := range codes {
			clear(row)
		}
	}
	if err := b.SetCodes(m.Adapters()[0].Adapter, never); err != nil {
		t.Fatal(err)
	}
	want := map[*vibrant.Answer]string{send(): recitedText}
	if err := b.SetAdapters(m.Adapters()...); err != nil { // ends the codes
		t.Fatal(err)
	}
	want[send()] = skippedText
	for b.Len() > 0 {
		if _, err := b.Step(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	for a, text := range want {
		if a.Text() != text {
			t.Errorf("%q, want %q", a.Text(), text)
		}
	}
	if err := b.SetAdapters(); err != nil {
		t.Fatal(err)
	}
	if err := b.SetCodes(m.Adapters()[0].Adapter, never); !errors.Is(err, vibrant.ErrAdapter) {
		t.Errorf("codes of an adapter that is not active: %v", err)
	}
}

func TestAdaptersOfOpenAreActiveAndPredicted(t *testing.T) {
	model := filepath.Join(t.TempDir(), "model.gguf")
	if err := os.WriteFile(model, testmodel.Reciter(recited...), 0o600); err != nil {
		t.Fatal(err)
	}
	options := []vibrant.Option{vibrant.WithDevice("cpu"), vibrant.WithAdapter(skipper(t), 1)}
	m, err := vibrant.Open(t.Context(), model, options...)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	if got := read(t, newSession(t, m, vibrant.WithGeneration(greedy())).Send(t.Context(), "Hi")); got != skippedText {
		t.Errorf("%q", got)
	}
	fit, err := vibrant.PredictFit(model, options...)
	if err != nil {
		t.Fatal(err)
	}
	if got := m.Info().Memory; got != fit.Memory || got.Adapters == 0 {
		t.Errorf("predicted %+v, are %+v", fit.Memory, got)
	}
	if _, err := vibrant.Open(t.Context(), model, vibrant.WithDevice("cpu"), vibrant.WithAdapter(model, 1)); !errors.Is(err, vibrant.ErrAdapter) || !strings.Contains(err.Error(), "general.type") {
		t.Errorf("a model as an adapter: %v", err)
	}
}

func ExampleSession_SetAdapters() {
	ctx := context.Background()
	model := open()
	defer model.Close()
	path := filepath.Join(os.TempDir(), "vibrant-example-adapter.gguf") // a file of yours
	if err := os.WriteFile(path, testmodel.ReciterAdapter(6), 0o600); err != nil {
		log.Fatal(err)
	}
	defer os.Remove(path)
	adapter, err := model.LoadAdapter(ctx, path)
	if err != nil {
		log.Fatal(err)
	}
	session, err := model.NewSession()
	if err != nil {
		log.Fatal(err)
	}
	for _, active := range [][]vibrant.ActiveAdapter{nil, {adapter.At(1)}} {
		if err := session.SetAdapters(active...); err != nil {
			log.Fatal(err)
		}
		for token, err := range session.Send(ctx, "Why is the sky blue?") {
			if err != nil {
				log.Fatal(err)
			}
			fmt.Print(token.Text)
		}
		fmt.Println()
	}
	// Output:
	// Light scatters, blue most.
	//  Light, most.
}
