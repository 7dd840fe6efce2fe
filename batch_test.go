package vibrant

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/vibrant-ml/vibrant/internal/check/testmodel"
)

func reciter(t *testing.T) *Model {
	t.Helper()
	m, err := OpenBytes(context.Background(), testmodel.Reciter("▁one", "▁two", "▁three", "▁four"), WithDevice("cpu"), WithContext(64))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	return m
}

// TestAnswersOfABatchEqualASessions lets answers with different options join while others are being generated.
func TestAnswersOfABatchEqualASessions(t *testing.T) {
	m, ctx := reciter(t), context.Background()
	seed := uint64(3)
	options := []func(*Generation){
		func(g *Generation) { g.Temperature = 0 },
		func(g *Generation) { g.Seed = &seed },
		func(g *Generation) { g.Temperature, g.MaxTokens = 0, 2 },
		func(g *Generation) { g.Temperature, g.Stop = 0, []string{"o th"} },
		func(g *Generation) { g.Temperature, g.MaxTokens = 0, 1 },
		func(g *Generation) { g.MaxTokens = 0 },
		func(g *Generation) { g.TopK, g.Seed = 0, &seed },
		func(g *Generation) { g.Temperature, g.IgnoreEOS, g.MaxTokens = 0, true, 20 },
	}
	b, err := m.NewBatch(3)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	var answers []*Answer
	streamed := map[*Answer]string{}
	next := 0
	for next < len(options) || b.Len() > 0 {
		if next < len(options) && b.Len() < 3 {
			g := DefaultGeneration()
			options[next](&g)
			a, err := b.Send(ctx, []Message{{"user", "Count!"}}, g)
			if err != nil {
				t.Fatal(err)
			}
			answers = append(answers, a)
			next++
		}
		stepped, err := b.Step(ctx)
		if err != nil {
			t.Fatal(err)
		}
		for _, a := range stepped {
			streamed[a] += a.Token().Text
		}
	}
	for i, a := range answers {
		if streamed[a] != a.Text() {
			t.Errorf("answer %d: its steps gave %q, the whole is %q", i, streamed[a], a.Text())
		}
		g := DefaultGeneration()
		options[i](&g)
		s, err := m.NewSession(WithGeneration(g))
		if err != nil {
			t.Fatal(err)
		}
		want := ""
		for token, err := range s.Send(ctx, "Count!") {
			if err != nil {
				t.Fatal(err)
			}
			want += token.Text
		}
		if a.Text() != want || a.Finish() != s.Finish() || !slices.Equal(a.Generated(), s.Generated()) {
			t.Errorf("answer %d: %q %v %q, of a session %q %v %q", i, a.Text(), a.Generated(), a.Finish(), want, s.Generated(), s.Finish())
		}
		s.Close()
	}
}

func TestBatchEndsAnswersAtTheContextAndSaysWhatItCannotDo(t *testing.T) {
	m, ctx := reciter(t), context.Background()
	for _, n := range []int{0, -1, MaxBatch + 1} {
		if _, err := m.NewBatch(n); err == nil {
			t.Errorf("a batch of %d was made", n)
		}
	}
	b, err := m.NewBatch(2)
	if err != nil {
		t.Fatal(err)
	}
	g := DefaultGeneration()
	g.Temperature, g.IgnoreEOS = 0, true
	long, err := b.Join(ctx, slices.Repeat([]int32{5}, 60), g)
	if err != nil {
		t.Fatal(err)
	}
	g.MaxTokens = 40
	short, err := b.Join(ctx, []int32{5}, g)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.Join(ctx, []int32{5}, g); !errors.Is(err, ErrBatchFull) {
		t.Errorf("a third answer: %v", err)
	}
	for b.Len() > 0 {
		if _, err := b.Step(ctx); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(long.Generated()); n != 5 || long.Finish() != FinishContext { // the last needs no place in the cache
		t.Errorf("%d tokens after 60 in a context of 64, %q", n, long.Finish())
	}
	if n := len(short.Generated()); n != 40 || short.Finish() != FinishLength {
		t.Errorf("%d tokens, %q", n, short.Finish())
	}
	if _, err := b.Join(ctx, slices.Repeat([]int32{5}, 65), g); !errors.Is(err, ErrContextFull) {
		t.Errorf("a prompt of 65 tokens: %v", err)
	}
	if _, err := b.Join(ctx, []int32{-1}, g); err == nil {
		t.Error("token -1 joined")
	}
	a, err := b.Join(ctx, []int32{5}, g)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := a.Leave(); err != nil || b.Len() != 0 {
			t.Errorf("left: %v, %d are there", err, b.Len())
		}
	}
	if stepped, err := b.Step(ctx); err != nil || len(stepped) != 0 {
		t.Errorf("a step of nothing: %v, %v", stepped, err)
	}
	cancelled, cancel := context.WithCancel(ctx)
	cancel()
	if _, err := b.Step(cancelled); !errors.Is(err, context.Canceled) {
		t.Errorf("a step after cancelling: %v", err)
	}
	m.Close()
	if _, err := b.Step(ctx); !errors.Is(err, ErrClosed) {
		t.Errorf("a step after the model was closed: %v", err)
	}
	if err := b.Close(); err != nil {
		t.Error(err)
	}
}
