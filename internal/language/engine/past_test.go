package engine

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"testing"

	"github.com/vibrant-ml/vibrant/gpu"
	"github.com/vibrant-ml/vibrant/internal/backend/fake"
	"github.com/vibrant-ml/vibrant/internal/check/testdata"
	"github.com/vibrant-ml/vibrant/internal/language/gguf"
	"github.com/vibrant-ml/vibrant/internal/language/model"
	"github.com/vibrant-ml/vibrant/tensor"
)

// goesBack lists models whose caches cannot go back to every position.
var goesBack = []string{"tiny-gemma3", "tiny-gpt-oss", "tiny-olmo2-swa", "tiny-qwen35", "tiny-qwen35moe", "tiny-qwen3next"}

// TestSessionsThatGoBackEqualFreshOnes lets one session take prompts that share some of what it holds, cut short and gone on
// differently, with answers between them of which some end in a token computed ahead for nothing.
func TestSessionsThatGoBackEqualFreshOnes(t *testing.T) {
	dir := testdata.Path(t, "models")
	eachDevice(t, func(t *testing.T, d *gpu.Device) {
		for _, name := range goesBack {
			t.Run(name, func(t *testing.T) {
				const tokens = 512
				turns := 14
				if testing.Short() { // the race detector takes a minute for more
					turns = 4
				}
				m := loadModel(t, d, filepath.Join(dir, name+".gguf"), tokens)
				o := Options{Context: tokens, KVType: tensor.F32, Chunk: 24}
				s, r := newSession(t, m, o), rand.New(rand.NewPCG(5, 0))
				var ids []int32
				for turn := range turns {
					switch kept := r.IntN(4); kept {
					case 0:
						ids = slices.Clone(s.Tokens())
					case 1:
						ids = slices.Clone(s.Tokens()[:r.IntN(len(s.Tokens())+1)])
					case 2:
						ids = slices.Clone(s.Tokens()[:max(0, len(s.Tokens())-1-r.IntN(12))])
					}
					if ids = append(ids, randomIDs(uint64(turn), 1+r.IntN(70), m.Vocab)...); len(ids) > tokens-20 || r.IntN(8) == 0 {
						ids = ids[:20]
						s.Reset()
					}
					answer := greedy(t, s, ids, 1+r.IntN(9))
					if want := greedy(t, newSession(t, m, o), ids, len(answer)); !slices.Equal(answer, want) {
						t.Fatalf("turn %d, %d tokens: %v, want %v", turn, len(ids), answer, want)
					}
				}
			})
		}
	})
}

// TestAskingAgainComputesFewTokens holds what going back costs: the last tokens of a prompt, not all of them.
func TestAskingAgainComputesFewTokens(t *testing.T) {
	dir := testdata.Path(t, "models")
	_, d := fakeGPU(t)
	for name, most := range map[string]int{"tiny-qwen35": tail, "tiny-gemma3": 1, "tiny-qwen3": 1} {
		if raceDetector && name != "tiny-qwen35" {
			continue
		}
		m := loadModel(t, d, filepath.Join(dir, name+".gguf"), 512)
		s := newSession(t, m, Options{Context: 512, KVType: tensor.F16, Chunk: 64})
		prompt := randomIDs(1, 300, m.Vocab)
		first := greedy(t, s, prompt, 40)
		s.ResetStats()
		again := greedy(t, s, prompt, 40)
		if n := s.Stats().PrefillTokens; n > most || !slices.Equal(first, again) {
			t.Errorf("%s: the same prompt computes %d tokens, want at most %d", name, n, most)
		}
		s.ResetStats()
		if err := s.Prefill(context.Background(), slices.Concat(prompt[:150], prompt)); err != nil {
			t.Fatal(err)
		}
		if n := s.Stats().ReusedTokens; m.Recurrent() && n < 64 {
			t.Errorf("%s: a prompt whose first 150 of 300 tokens are the same reuses %d", name, n)
		}
	}
}

// TestCancelledPromptsLeaveNoTrace stops within a pass, where some layers have changed their state and others have not.
func TestCancelledPromptsLeaveNoTrace(t *testing.T) {
	dir := testdata.Path(t, "models")
	d, err := gpu.Open("cpu")
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	m := loadModel(t, d, filepath.Join(dir, "tiny-qwen35.gguf"), 256)
	o := Options{Context: 256, KVType: tensor.F32, Chunk: 16}
	prompt := randomIDs(3, 100, m.Vocab)
	want := greedy(t, newSession(t, m, o), prompt, 8)
	s := newSession(t, m, o)
	for checks := range 40 {
		if checks%7 == 0 {
			s.Reset()
		}
		ctx := &endsAfter{Context: context.Background(), left: checks}
		if err := s.Prefill(ctx, prompt); err == nil && ctx.left < 0 {
			t.Fatal("a cancelled prompt is no error")
		}
		if err := s.WriteCache(io.Discard); (err == nil) != s.past.whole(len(s.Tokens())) {
			t.Fatalf("cancelled at check %d: the cache was written, %v", checks, err)
		}
		if got := greedy(t, s, prompt, 8); !slices.Equal(got, want) {
			t.Fatalf("cancelled at check %d: %v, want %v", checks, got, want)
		}
	}
}

// TestReadCachesGoBackAsFarAsTheyCan hands the cache of a session to another, which then takes prompts that leave its tokens at
// any point, or go on after them.
func TestReadCachesGoBackAsFarAsTheyCan(t *testing.T) {
	dir := testdata.Path(t, "models")
	eachDevice(t, func(t *testing.T, d *gpu.Device) {
		for _, name := range fewer(goesBack) {
			m := loadModel(t, d, filepath.Join(dir, name+".gguf"), 512)
			o := Options{Context: 512, KVType: tensor.F32, Chunk: 24}
			first := newSession(t, m, o)
			greedy(t, first, randomIDs(8, 101, m.Vocab), 12)
			var kept bytes.Buffer
			if err := first.WriteCache(&kept); err != nil {
				t.Fatal(err)
			}
			ids := slices.Clone(first.Tokens())
			for _, shared := range []int{len(ids), len(ids) - 1, len(ids) - 5, 60, 0} {
				s := newSession(t, m, o)
				if err := s.ReadCache(bytes.NewReader(kept.Bytes()), ids, first.Past(), func() error { return nil }); err != nil {
					t.Fatal(err)
				}
				prompt := slices.Concat(ids[:shared], randomIDs(uint64(shared), 3, m.Vocab))
				got, want := greedy(t, s, prompt, 6), greedy(t, newSession(t, m, o), prompt, 6)
				if !slices.Equal(got, want) {
					t.Errorf("%s, %d of %d tokens shared: %v, want %v", name, shared, len(ids), got, want)
				}
				if n := s.Stats().ReusedTokens; shared == len(ids) && n != shared {
					t.Errorf("%s: %d of %d tokens were computed again", name, shared-n, shared)
				}
			}
		}
	})
}

// endsAfter is a context that ends when it was asked so many times.
type endsAfter struct {
	context.Context
	left int
}

func (c *endsAfter) Err() error {
	if c.left--; c.left < 0 {
		return context.Canceled
	}
	return nil
}

// TestFailedStepsOfRecurrentModelsLeaveNoTrace makes calls of the device fail within prompts and steps, of a session and of a batch.
func TestFailedStepsOfRecurrentModelsLeaveNoTrace(t *testing.T) {
	dir := testdata.Path(t, "models")
	hw, d := fakeGPU(t)
	m := loadModel(t, d, filepath.Join(dir, "tiny-qwen35.gguf"), 128)
	o := Options{Context: 128, KVType: tensor.F32, Chunk: 16}
	prompt := randomIDs(4, 50, m.Vocab)
	want := greedy(t, newSession(t, m, o), prompt, 10)
	s := newSession(t, m, o)
	b, err := NewBatch(m, 2, o)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	calls := 60
	switch {
	case raceDetector: // it takes a minute for more
		calls = 3
	case testing.Short():
		calls = 12
	}
	for call, name := range map[fake.Call]string{fake.Copy: "copy", fake.Launch: "launch", fake.Sync: "synchronization"} {
		for n := range calls {
			hw.FailAfter(call, n, errInjected)
			err := s.Prefill(context.Background(), prompt)
			for i := 0; err == nil && i < 6; i++ {
				var id int32
				if id, err = s.Next(nil); err == nil {
					err = s.Step(id, nil)
				}
			}
			hw.FailAfter(call, -1, nil)
			if err != nil && !errors.Is(err, errInjected) {
				t.Fatal(err)
			}
			if got := greedy(t, s, prompt, 10); !slices.Equal(got, want) {
				t.Fatalf("%s %d failed in a session: %v, want %v", name, n, got, want)
			}

			member, err := b.Join(context.Background(), prompt, nil, false)
			if err != nil {
				t.Fatal(err)
			}
			other, err := b.Join(context.Background(), prompt[:9], nil, false)
			if err != nil {
				t.Fatal(err)
			}
			var got []int32
			failed := false
			for len(got) < len(want) {
				if len(got) == 3 && !failed {
					hw.FailAfter(call, n%8, errInjected)
					failed = true
				}
				err := b.Step()
				if err != nil {
					hw.FailAfter(call, -1, nil)
					continue
				}
				got = append(got, member.Newest())
			}
			hw.FailAfter(call, -1, nil)
			if !slices.Equal(got, want) {
				t.Fatalf("%s %d failed in a batch: %v, want %v", name, n%8, got, want)
			}
			member.Leave()
			other.Leave()
		}
	}
}

// TestCachesOfWindowsAndStatesStaySmall holds what a longer context costs: nothing for layers with a window or a state.
func TestCachesOfWindowsAndStatesStaySmall(t *testing.T) {
	dir := testdata.Path(t, "models")
	for name, whole := range map[string]int{"tiny-gemma3": 2, "tiny-gemma2": 2, "tiny-gpt-oss": 2, "tiny-olmo2-swa": 2, "tiny-qwen35": 2, "tiny-qwen3next": 2} {
		f, err := gguf.Open(filepath.Join(dir, name+".gguf"))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		c, err := model.ReadConfig(f)
		if err != nil {
			t.Fatal(err)
		}
		bytes := func(context int) int64 {
			return c.CacheBytes(cacheOptions(c, 1, Options{Context: context, Chunk: 64, KVType: tensor.F16}))
		}
		perToken := int64(whole) * 2 * int64(c.KVHeads*c.HeadDim) * 2
		if got := bytes(2048) - bytes(1024); got != 1024*perToken {
			t.Errorf("%s: 1024 more tokens take %d bytes, want those of %d layers, %d", name, got, whole, 1024*perToken)
		}
	}
}
