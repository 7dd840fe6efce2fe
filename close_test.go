package vibrant

import (
	"context"
	"errors"
	"io"
	"slices"
	"testing"
	"time"

	files "github.com/vibrant-ml/vibrant/gguf"
	"github.com/vibrant-ml/vibrant/gpu"
	"github.com/vibrant-ml/vibrant/internal/check/busy"
	"github.com/vibrant-ml/vibrant/internal/check/testmodel"
	"github.com/vibrant-ml/vibrant/internal/language/gguf"
	"github.com/vibrant-ml/vibrant/tensor/npy"
	"github.com/vibrant-ml/vibrant/tensor/safetensors"
)

// slow returns a model whose prompts of 4,000 tokens take seconds.
func slow(t *testing.T) *Model {
	t.Helper()
	shape := testmodel.Shape{Hidden: 256, Layers: 8, Heads: 8, KVHeads: 8, HeadDim: 32, FeedForward: 512, Vocab: 64, Context: 4096}
	m, err := OpenBytes(context.Background(), testmodel.Random(shape), WithDevice("cpu"), WithContext(4096))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	return m
}

// costOfPrompt is what a slow model computes for a prompt.
func costOfPrompt(t *testing.T, ids []int32) time.Duration {
	t.Helper()
	s, err := slow(t).NewSession()
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	start := busy.Processor()
	if err := s.Prefill(context.Background(), ids); err != nil {
		t.Fatal(err)
	}
	return busy.Processor() - start
}

func TestClosingNothingIsHarmless(t *testing.T) {
	for _, c := range []io.Closer{(*Model)(nil), (*Session)(nil), (*Batch)(nil), (*gpu.Device)(nil), (*gpu.Stream)(nil),
		(*gpu.Event)(nil), (*gpu.Graph)(nil), (*gpu.Graphs)(nil), (*gpu.Communicator)(nil), (*gpu.Ranks)(nil), (*files.File)(nil),
		(*safetensors.File)(nil), (*npy.Archive)(nil)} {
		if err := c.Close(); err != nil {
			t.Errorf("%T: %v", c, err)
		}
	}
}

// TestClosingStopsAPromptUnderWay closes a session, a batch or the model of a prompt that would take seconds more. A tenth of a
// second is the goal on an idle machine. The test allows half of what the prompt costs, of which a tenth is measured.
func TestClosingStopsAPromptUnderWay(t *testing.T) {
	ids := slices.Repeat([]int32{1, 2, 3, 4}, 1000)
	ctx := context.Background()
	limit := costOfPrompt(t, ids[:len(ids)/10]) * 10 / 2
	prefill := func(t *testing.T, m *Model) (run, own func() error) {
		s, err := m.NewSession()
		if err != nil {
			t.Fatal(err)
		}
		return func() error { return s.Prefill(ctx, ids) }, s.Close
	}
	join := func(t *testing.T, m *Model) (run, own func() error) {
		b, err := m.NewBatch(1)
		if err != nil {
			t.Fatal(err)
		}
		return func() error { _, err := b.Join(ctx, ids, DefaultGeneration()); return err }, b.Close
	}
	for name, start := range map[string]func(*testing.T, *Model) (run, own func() error){"session": prefill, "batch": join} {
		for _, byModel := range []bool{false, true} {
			m := slow(t)
			run, closeIt := start(t, m)
			if byModel {
				closeIt = m.Close
			}
			done, idle := make(chan error), busy.Processor()
			go func() { done <- run() }()
			busy.Until(t, "the prompt does not begin", func() bool { return busy.Processor()-idle > limit/20 })
			begin, start := busy.Processor(), time.Now()
			if err := closeIt(); err != nil {
				t.Error(err)
			}
			err := <-done
			took := busy.Processor() - begin
			t.Logf("%s, closed with its model %v: ended after %v, %v of a processor", name, byModel, time.Since(start), took)
			if !errors.Is(err, ErrClosed) || took > limit {
				t.Errorf("%s, closed with its model %v: %v after %v of a processor, want %v at most", name, byModel, err, took, limit)
			}
		}
	}
}

func TestResetOfABusySessionIsRefused(t *testing.T) {
	m := reciter(t)
	s, err := m.NewSession()
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for _, err := range s.Send(context.Background(), "Count!") {
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Reset(); !errors.Is(err, ErrBusy) || len(s.History()) == 0 {
			t.Errorf("reset within an answer: %v, history %v", err, s.History())
		}
	}
	if err := s.Reset(); err != nil || len(s.History()) != 0 {
		t.Errorf("reset after it: %v, history %v", err, s.History())
	}
}

// TestDevicesOfARefusedFileAreClosed opens a model whose file is refused while its device is being opened.
func TestDevicesOfARefusedFileAreClosed(t *testing.T) {
	d, err := gpu.Open("cpu")
	if err != nil {
		t.Fatal(err)
	}
	c, err := newConfig(nil)
	if err != nil {
		t.Fatal(err)
	}
	c.opened = []*gpu.Device{d}
	refused := errors.New("refused")
	if _, err := open(context.Background(), func() (*gguf.File, error) { return nil, refused }, "", c); !errors.Is(err, refused) {
		t.Errorf("%v, want %v", err, refused)
	}
	busy.Until(t, "the device is open still", func() bool { return d.Err() != nil })
}
