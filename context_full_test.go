package vibrant_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/vibrant-ml/vibrant"
	"github.com/vibrant-ml/vibrant/internal/check/testmodel"
)

func say(t *testing.T, s *vibrant.Session, text string) error {
	t.Helper()
	for _, err := range s.Send(context.Background(), text) {
		if err != nil {
			return err
		}
	}
	return nil
}

func TestOldestTurnsLeaveAFullContext(t *testing.T) {
	model, err := vibrant.OpenBytes(context.Background(), testmodel.Reciter("▁Yes", "."), vibrant.WithDevice("cpu"), vibrant.WithContext(96))
	if err != nil {
		t.Fatal(err)
	}
	defer model.Close()
	greedy := vibrant.DefaultGeneration()
	greedy.Temperature = 0
	open := func(options ...vibrant.SessionOption) *vibrant.Session {
		s, err := model.NewSession(append(options, vibrant.WithGeneration(greedy), vibrant.WithSystem("Be brief."))...)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	question := func(i int) string { return strings.Repeat(string(rune('a'+i)), 12) }

	s := open(vibrant.WithContextFull(vibrant.ContextDrop))
	dropped := 0
	for i := range 20 {
		if err := say(t, s, question(i)); err != nil {
			t.Fatalf("turn %d: %v", i, err)
		}
		dropped += s.Dropped()
		h := s.History()
		if len(h)%2 != 0 || len(h)+dropped != 2*(i+1) || h[0].Role != "user" || h[len(h)-2].Content != question(i) || h[len(h)-1].Content != " Yes." {
			t.Fatalf("turn %d, %d dropped: %v", i, dropped, h)
		}
	}
	if dropped == 0 || s.System() != "Be brief." {
		t.Errorf("%d dropped, system message %q", dropped, s.System())
	}
	before := len(s.History())
	if err := say(t, s, strings.Repeat("x", 200)); !errors.Is(err, vibrant.ErrContextFull) || len(s.History()) != before {
		t.Errorf("a question larger than the context: %v, %d messages of %d", err, len(s.History()), before)
	}

	// Of a long conversation all turns stay that fit, as if one after the other had left.
	var long []vibrant.Message
	for i := range 400 {
		long = append(long, vibrant.Message{Role: "user", Content: strings.Repeat("x", i*7%13)}, vibrant.Message{Role: "assistant", Content: strings.Repeat("y", i*5%11)})
	}
	drop := func(said []vibrant.Message) int {
		if err := errors.Join(s.SetHistory(said), say(t, s, "z")); err != nil {
			t.Fatal(err)
		}
		return s.Dropped()
	}
	for n := 2; n <= len(long); n += 2 + n/8*2 {
		dropped := drop(long[:n])
		if again := drop(long[dropped:n]); again != 0 {
			t.Errorf("of %d messages %d leave, and then %d more", n, dropped, again)
		}
		if dropped == 0 {
			continue
		}
		if one := drop(long[dropped-2 : n]); one != 2 {
			t.Errorf("of %d messages %d leave, of the turn before and those behind it %d", n, dropped, one)
		}
	}

	s = open()
	for i := 0; err == nil && i < 20; i++ {
		err = say(t, s, question(i))
	}
	if !errors.Is(err, vibrant.ErrContextFull) || s.Dropped() != 0 {
		t.Errorf("stop: %v, %d dropped", err, s.Dropped())
	}
	if _, err := model.NewSession(vibrant.WithContextFull("shift")); err == nil {
		t.Error("an unknown policy was taken")
	}
}

func TestGenerationsOfLiteralsHaveDefaults(t *testing.T) {
	model := open()
	defer model.Close()
	s, err := model.NewSession(vibrant.WithGeneration(vibrant.Generation{}))
	if err != nil {
		t.Fatal(err)
	}
	d := vibrant.DefaultGeneration()
	if g := s.Generation(); g.Temperature != d.Temperature || g.TopK != d.TopK || g.TopP != d.TopP || g.RepeatPenalty != 1 {
		t.Errorf("%+v", g)
	}
	if err := s.SetGeneration(vibrant.Generation{MaxTokens: 2, TopK: 1}); err != nil {
		t.Fatal(err)
	}
	if g := s.Generation(); g.MaxTokens != 2 || g.TopK != 1 || g.TopP != d.TopP || g.MinP != d.MinP || g.RepeatLastN != d.RepeatLastN {
		t.Errorf("%+v", g)
	}
	d.Temperature, d.MinP = 0, 0
	if err := s.SetGeneration(d); err != nil {
		t.Fatal(err)
	}
	if g := s.Generation(); g.Temperature != 0 || g.MinP != 0 {
		t.Errorf("zeros that were asked for: %+v", g)
	}
	batch, err := model.NewBatch(1)
	if err != nil {
		t.Fatal(err)
	}
	defer batch.Close()
	if _, err := batch.Send(context.Background(), []vibrant.Message{{Role: "user", Content: "Why?"}}, vibrant.Generation{}); err != nil {
		t.Error(err)
	}
}

func TestPromptsReportProgress(t *testing.T) {
	model, err := vibrant.OpenBytes(context.Background(), testmodel.Reciter("▁Yes", "."), vibrant.WithDevice("cpu"), vibrant.WithPrefillChunk(16))
	if err != nil {
		t.Fatal(err)
	}
	defer model.Close()
	var seen []int
	s, err := model.NewSession(vibrant.WithPromptProgress(func(done, total int) {
		if total != 40 {
			t.Errorf("of %d tokens", total)
		}
		seen = append(seen, done)
	}))
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Prefill(context.Background(), make([]int32, 40)); err != nil || !slices.Equal(seen, []int{16, 32, 40}) {
		t.Errorf("%v, %v", seen, err)
	}
}
