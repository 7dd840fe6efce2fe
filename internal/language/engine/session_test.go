package engine

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/vibrant-ml/vibrant/gpu"
	"github.com/vibrant-ml/vibrant/internal/check/busy"
	"github.com/vibrant-ml/vibrant/internal/check/testmodel"
	"github.com/vibrant-ml/vibrant/internal/language/gguf"
	"github.com/vibrant-ml/vibrant/internal/language/model"
	"github.com/vibrant-ml/vibrant/tensor"
)

func randomModel(t testing.TB, d *gpu.Device, s testmodel.Shape) *model.Model {
	t.Helper()
	f, err := gguf.FromBytes(testmodel.Random(s))
	if err != nil {
		t.Fatal(err)
	}
	m, err := model.Load(context.Background(), f, d, model.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Close)
	return m
}

func randomIDs(seed uint64, n, vocab int) []int32 {
	r := rand.New(rand.NewPCG(seed, 0))
	ids := make([]int32, n)
	for i := range ids {
		ids[i] = int32(r.IntN(vocab))
	}
	return ids
}

func TestChunkedPrefillEqualsUnchunked(t *testing.T) {
	eachDevice(t, func(t *testing.T, d *gpu.Device) {
		for _, arch := range fewer([]string{"llama", "qwen2", "qwen3"}) {
			shape := testmodel.Tiny
			shape.Architecture = arch
			m := randomModel(t, d, shape)
			for _, n := range []int{1, 127, 128, 255} {
				ids := randomIDs(uint64(n), n, m.Vocab)
				whole := allLogits(t, newSession(t, m, Options{Context: 256, KVType: tensor.F32, LogitRows: 256}), ids)
				for _, chunk := range []int{1, 7, 64} {
					s := newSession(t, m, Options{Context: 256, KVType: tensor.F32, Chunk: chunk, LogitRows: 3})
					if w := worst(allLogits(t, s, ids), whole); !(w <= 1e-4) {
						t.Errorf("%s, %d tokens in chunks of %d: logits differ by %g", arch, n, chunk, w)
					}
				}
			}
		}
	})
}

func TestSessionsSideBySideEqualAlone(t *testing.T) {
	eachDevice(t, func(t *testing.T, d *gpu.Device) {
		m := randomModel(t, d, testmodel.Tiny)
		const sessions = 8
		want := make([][]int32, sessions)
		for i := range want {
			want[i] = greedy(t, newSession(t, m, Options{Context: 128, KVType: tensor.F16}), randomIDs(uint64(i), 5+9*i, m.Vocab), 40)
		}
		var wg sync.WaitGroup
		got := make([][]int32, sessions)
		for i := range got {
			s := newSession(t, m, Options{Context: 128, KVType: tensor.F16})
			wg.Add(1)
			go func() {
				defer wg.Done()
				if err := s.Prefill(context.Background(), randomIDs(uint64(i), 5+9*i, m.Vocab)); err != nil {
					t.Error(err)
					return
				}
				for range 40 {
					id, err := s.Next(nil)
					if err == nil {
						err = s.Step(id, nil)
					}
					if err != nil {
						t.Error(err)
						return
					}
					got[i] = append(got[i], id)
				}
			}()
		}
		wg.Wait()
		for i := range got {
			if !slices.Equal(got[i], want[i]) {
				t.Errorf("session %d: %v, alone %v", i, got[i], want[i])
			}
		}
	})
}

// TestBatchedStepsEqualSingle runs one token of several sequences at different positions in one pass.
func TestBatchedStepsEqualSingle(t *testing.T) {
	eachDevice(t, func(t *testing.T, d *gpu.Device) {
		m := randomModel(t, d, testmodel.Tiny)
		prompts := [][]int32{randomIDs(1, 3, m.Vocab), randomIDs(2, 70, m.Vocab), randomIDs(3, 1, m.Vocab)}
		var want [][]float32
		for _, p := range prompts {
			rows := allLogits(t, newSession(t, m, Options{Context: 96, KVType: tensor.F32}), p)
			want = append(want, rows[len(rows)-1])
		}

		streams, err := gpu.NewCommunicator(d.Stream())
		if err != nil {
			t.Fatal(err)
		}
		s := d.Stream()
		cache, err := m.NewCache(streams, model.CacheOptions{Sequences: len(prompts), Capacity: 96, Type: tensor.F32})
		if err != nil {
			t.Fatal(err)
		}
		defer cache.Free()
		w, err := m.NewWorkspace(streams, 96, len(prompts))
		if err != nil {
			t.Fatal(err)
		}
		defer w.Free()
		ints := func(v ...int32) *tensor.Tensor {
			x, err := tensor.New(s, tensor.I32, len(v))
			if err == nil {
				err = x.WriteInt32s(v)
			}
			if err != nil {
				t.Fatal(err)
			}
			return x
		}
		// The sequences lie in the cache in another order than in the batch.
		places := []int32{2, 0, 1}
		var last, positions []int32
		for i, p := range prompts {
			n := len(p) - 1
			last, positions = append(last, p[n]), append(positions, int32(n))
			if n == 0 {
				continue
			}
			pos := make([]int32, n)
			for j := range pos {
				pos[j] = int32(j)
			}
			if _, err := m.Forward(w, cache, model.Batch{Count: 1, Seq: n, IDs: ints(p[:n]...), Positions: ints(pos...), Sequences: ints(places[i]), KVLen: n}); err != nil {
				t.Fatal(err)
			}
		}
		hidden, err := m.Forward(w, cache, model.Batch{Count: 3, Seq: 1, IDs: ints(last...), Positions: ints(positions...), Sequences: ints(places...), KVLen: 70})
		if err != nil {
			t.Fatal(err)
		}
		flat := m.Logits(w, hidden, 0, 3).Float32s()
		got := [][]float32{flat[:m.Vocab], flat[m.Vocab : 2*m.Vocab], flat[2*m.Vocab:]}
		if d := worst(got, want); !(d <= 1e-4) {
			t.Errorf("logits differ by %g", d)
		}
	})
}

func TestPromptReusesItsCommonBeginning(t *testing.T) {
	eachDevice(t, func(t *testing.T, d *gpu.Device) {
		m := randomModel(t, d, testmodel.Tiny)
		s := newSession(t, m, Options{Context: 256, KVType: tensor.F16})
		first := randomIDs(1, 50, m.Vocab)
		answer := greedy(t, s, first, 10)
		second := slices.Concat(first, answer, randomIDs(2, 20, m.Vocab))
		s.ResetStats()
		got := greedy(t, s, second, 10)
		// The last token of the answer was chosen but never fed.
		if st := s.Stats(); st.ReusedTokens != 59 || st.PrefillTokens != 21 {
			t.Errorf("%d reused, %d computed, want 59 and 21", st.ReusedTokens, st.PrefillTokens)
		}
		if want := greedy(t, newSession(t, m, Options{Context: 256, KVType: tensor.F16}), second, 10); !slices.Equal(got, want) {
			t.Errorf("with reuse %v, without %v", got, want)
		}
		// The same prompt again computes its last token only; a shorter one forgets the rest.
		for _, p := range [][]int32{second, first} {
			s.ResetStats()
			a := greedy(t, s, p, 5)
			if st := s.Stats(); st.PrefillTokens != 1 {
				t.Errorf("%d tokens were computed again, want 1", st.PrefillTokens)
			}
			if want := greedy(t, newSession(t, m, Options{Context: 256, KVType: tensor.F16}), p, 5); !slices.Equal(a, want) {
				t.Errorf("again %v, want %v", a, want)
			}
		}
	})
}

// top is a Chooser that takes the likeliest, by another way than the device's argmax.
type top struct{ k int }

func (c top) Candidates() int { return c.k }

func (c top) Choose(logits []float32, ids []int32) int32 {
	best := 0
	for i := range logits {
		if logits[i] > logits[best] {
			best = i
		}
	}
	if ids != nil {
		return ids[best]
	}
	return int32(best)
}

func TestChoicesOnDeviceAndHostAgree(t *testing.T) {
	eachDevice(t, func(t *testing.T, d *gpu.Device) {
		m := randomModel(t, d, testmodel.Tiny)
		prompt := randomIDs(4, 9, m.Vocab)
		want := greedy(t, newSession(t, m, Options{Context: 256, KVType: tensor.F16}), prompt, 60)
		s := newSession(t, m, Options{Context: 256, KVType: tensor.F16})
		choosers := []Chooser{top{0}, top{5}, nil, top{40}, top{1000}, nil}
		if err := s.Prefill(context.Background(), prompt); err != nil {
			t.Fatal(err)
		}
		for i, id := range want {
			c := choosers[i/4%len(choosers)]
			got, err := s.Next(c)
			if err != nil || got != id {
				t.Fatalf("token %d by %v: %d, %v, want %d", i, c, got, err, id)
			}
			// The next choice may be another than the one that the step was asked for.
			if err := s.Step(got, choosers[(i+2)/4%len(choosers)]); err != nil {
				t.Fatal(err)
			}
		}
	})
}

func TestBannedTokensAreNeverChosen(t *testing.T) {
	eachDevice(t, func(t *testing.T, d *gpu.Device) {
		m := randomModel(t, d, testmodel.Tiny)
		prompt := randomIDs(4, 9, m.Vocab)
		s := newSession(t, m, Options{Context: 256, KVType: tensor.F16})
		free := greedy(t, s, prompt, 30)
		banned := []int32{free[0], free[3]}
		if err := s.Ban(banned); err != nil {
			t.Fatal(err)
		}
		for _, id := range greedy(t, s, prompt, 30) {
			if slices.Contains(banned, id) {
				t.Fatalf("%d was chosen, though banned", id)
			}
		}
		if err := s.Ban(nil); err != nil {
			t.Fatal(err)
		}
		if again := greedy(t, s, prompt, 30); !slices.Equal(again, free) {
			t.Errorf("after the ban %v, before %v", again, free)
		}
	})
}

func TestCancelInsidePrefillReturnsPromptly(t *testing.T) {
	eachDevice(t, func(t *testing.T, d *gpu.Device) {
		shape := testmodel.Shape{Hidden: 128, Layers: 8, Heads: 4, KVHeads: 4, HeadDim: 32, FeedForward: 256, Vocab: 256, Context: 4096}
		m := randomModel(t, d, shape)
		ids := randomIDs(1, 4096, m.Vocab)
		// It is cancelled in the third chunk or, on a CPU, which looks between two layers, in the first one.
		const chunk, look = 32, 3
		whole := newSession(t, m, Options{Context: 4096, KVType: tensor.F16, Chunk: chunk})
		if err := whole.Prefill(busy.AtLook(look, func() {}), ids); !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		if n := len(whole.Tokens()); n >= look*chunk || d.Info().HostMemory && n >= chunk {
			t.Errorf("%d tokens were computed", n)
		}
		// What was computed is kept, and the session goes on from there.
		kept := len(whole.Tokens())
		short := ids[:min(kept+20, len(ids))]
		got := greedy(t, whole, short, 5)
		if want := greedy(t, newSession(t, m, Options{Context: 4096, KVType: tensor.F16}), short, 5); !slices.Equal(got, want) {
			t.Errorf("after cancelling %v, want %v", got, want)
		}
	})
}

func TestMemoryIsFlatOverFiftyTurns(t *testing.T) {
	eachDevice(t, func(t *testing.T, d *gpu.Device) {
		m := randomModel(t, d, testmodel.Tiny)
		s := newSession(t, m, Options{Context: 256, KVType: tensor.F16})
		var after2 gpu.PoolStats
		for turn := range 50 {
			greedy(t, s, randomIDs(uint64(turn), 49-turn%30, m.Vocab), 30) // the longest first, for which the workspace grows
			for range 3 {
				id, err := s.Next(top{40})
				if err == nil {
					err = s.Step(id, top{40})
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			if turn == 1 {
				after2 = d.Pool().Stats()
			}
		}
		if now := d.Pool().Stats(); now.InUse != after2.InUse || now.InUse+now.Cached > after2.InUse+after2.Cached {
			t.Errorf("in use %d, cached %d; after two turns %d, %d", now.InUse, now.Cached, after2.InUse, after2.Cached)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	})
}

func TestContextFillsUpToItsLastToken(t *testing.T) {
	eachDevice(t, func(t *testing.T, d *gpu.Device) {
		m := randomModel(t, d, testmodel.Tiny)
		s := newSession(t, m, Options{Context: 64, KVType: tensor.F32})
		if err := s.Prefill(context.Background(), randomIDs(1, 65, m.Vocab)); !errors.Is(err, ErrContextFull) {
			t.Errorf("a prompt of 65 tokens in a context of 64: %v", err)
		}
		if err := s.Prefill(context.Background(), randomIDs(1, 60, m.Vocab)); err != nil {
			t.Fatal(err)
		}
		for range 4 {
			id, err := s.Next(nil)
			if err == nil {
				err = s.Step(id, nil)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		id, err := s.Next(nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Step(id, nil); !errors.Is(err, ErrContextFull) {
			t.Errorf("a 65th token: %v", err)
		}
	})
}

func TestMistakesAreErrors(t *testing.T) {
	d, err := gpu.Open("cpu")
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	m := randomModel(t, d, testmodel.Tiny)
	for _, context := range []int{0, -1, 257} {
		if _, err := New(m, Options{Context: context, KVType: tensor.F16}); err == nil {
			t.Errorf("context %d was accepted", context)
		}
	}
	s := newSession(t, m, Options{Context: 64, KVType: tensor.F16})
	if _, err := s.Next(nil); err == nil {
		t.Error("a choice without logits was made")
	}
	if err := s.Step(1, nil); err == nil {
		t.Error("a step without a prompt was made")
	}
	for _, ids := range [][]int32{nil, {-1}, {int32(m.Vocab)}, {1, 2, 1 << 30}} {
		if err := s.Prefill(context.Background(), ids); err == nil {
			t.Errorf("the prompt %v was accepted", ids)
		}
	}
	if err := s.Prefill(context.Background(), []int32{1}); err != nil {
		t.Fatal(err)
	}
	if err := s.Step(int32(m.Vocab), nil); err == nil {
		t.Error("an id outside the vocabulary was fed")
	}
}
