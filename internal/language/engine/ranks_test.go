package engine

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vibrant-ml/vibrant/gpu"
	"github.com/vibrant-ml/vibrant/internal/backend/fake"
	"github.com/vibrant-ml/vibrant/internal/backend/kernel"
	"github.com/vibrant-ml/vibrant/internal/backend/purego"
	"github.com/vibrant-ml/vibrant/internal/check/busy"
	"github.com/vibrant-ml/vibrant/internal/check/testdata"
	"github.com/vibrant-ml/vibrant/internal/check/testmodel"
	"github.com/vibrant-ml/vibrant/internal/language/gguf"
	"github.com/vibrant-ml/vibrant/internal/language/model"
	"github.com/vibrant-ml/vibrant/tensor"
)

// rankKinds are the devices and the ways between processes.
var rankKinds = map[string]struct {
	exchange gpu.Exchange
	open     func(fakes *fake.Backend, rank int) (*gpu.Device, error)
}{
	"cpu by tcp":  {gpu.ExchangeTCP, func(*fake.Backend, int) (*gpu.Device, error) { return gpu.Open("cpu", gpu.WithThreads(1)) }},
	"go by tcp":   {gpu.ExchangeTCP, func(*fake.Backend, int) (*gpu.Device, error) { return gpu.OpenBackend(purego.Backend(), 0) }},
	"fake by tcp": {gpu.ExchangeTCP, func(f *fake.Backend, rank int) (*gpu.Device, error) { return gpu.OpenBackend(f, rank) }},
	"fake":        {gpu.ExchangeAuto, func(f *fake.Backend, rank int) (*gpu.Device, error) { return gpu.OpenBackend(f, rank) }},
}

// eachRanks runs f with what loads a model that n ranks have, which here are goroutines: they share nothing but a socket. load
// returns rank 0's.
func eachRanks(t *testing.T, n int, f func(t *testing.T, load func(t *testing.T, f *gguf.File, tokens int) (*model.Model, error))) {
	for name, kind := range rankKinds {
		t.Run(name, func(t *testing.T) {
			f(t, func(t *testing.T, file *gguf.File, tokens int) (*model.Model, error) {
				fakes := fake.New(fake.Config{Devices: n})
				if strings.HasPrefix(name, "fake") {
					t.Cleanup(func() {
						for i := range n {
							for _, err := range fakes.GPU(i).Misuse() {
								t.Error(err)
							}
						}
					})
				}
				return loadRanks(t, n, file, tokens, kind.exchange, func(rank int) (*gpu.Device, error) { return kind.open(fakes, rank) })
			})
		})
	}
}

func loadRanks(t *testing.T, n int, f *gguf.File, tokens int, exchange gpu.Exchange, open func(rank int) (*gpu.Device, error)) (*model.Model, error) {
	t.Helper()
	at := busy.Address(t)
	follow := make(chan error, n)
	start := func(rank int) (m *model.Model, r *gpu.Ranks, d *gpu.Device, err error) {
		if d, err = open(rank); err != nil {
			return
		}
		if r, err = gpu.JoinRanks(context.Background(), gpu.RanksConfig{Rank: rank, Size: n, LocalRank: rank, Address: at,
			Timeout: busy.Limit, Exchange: exchange}); err != nil {
			return
		}
		m, err = model.LoadSplit(context.Background(), f, []*gpu.Device{d}, model.Options{Context: tokens, Ranks: r})
		return
	}
	for rank := 1; rank < n; rank++ {
		go func() {
			m, r, d, err := start(rank)
			if err == nil {
				err = m.Follow()
				m.Close()
			}
			r.Close()
			d.Close()
			follow <- err
		}()
	}
	m, r, d, err := start(0)
	if err != nil {
		r.Close()
		return nil, err
	}
	t.Cleanup(func() {
		m.Close()
		r.Close()
		d.Close()
		for range n - 1 {
			select {
			case err := <-follow:
				if err != nil && r.Err() == nil {
					t.Errorf("a rank ended: %v", err)
				}
			case <-time.After(busy.Limit):
				t.Fatal("a rank did not end")
			}
		}
	})
	return m, nil
}

// TestRanksMatchTransformers holds models that processes compute to other engines' logits and greedy ids.
func TestRanksMatchTransformers(t *testing.T) {
	dir := testdata.Path(t, "models")
	eachRanks(t, 2, func(t *testing.T, load func(*testing.T, *gguf.File, int) (*model.Model, error)) {
		for _, c := range fewer(randomModels) {
			if undivided[c.file] != "" {
				continue
			}
			t.Run(c.file, func(t *testing.T) {
				golden := readGolden(t, dir, c.file)
				tokens := 128
				if c.context > 0 {
					tokens = c.context
				}
				f, err := gguf.Open(filepath.Join(dir, c.file+".gguf"))
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { f.Close() })
				m, err := load(t, f, tokens)
				if err != nil {
					t.Fatal(err)
				}
				checkGolden(t, m, golden, tokens, c.f32, "on")
			})
		}
	})
}

// TestRanksAnswerAsOneProcess compares two and four ranks, with two key-value heads among them, with one process: caches in F32 and
// F16, a prompt of several chunks, two sessions and a batch in turns, a cancelled prompt.
func TestRanksAnswerAsOneProcess(t *testing.T) {
	shape := testmodel.Tiny
	shape.Heads, shape.KVHeads, shape.FeedForward, shape.Vocab = 4, 2, 43, 61
	data := testmodel.Random(shape)
	file := func(t *testing.T) *gguf.File {
		f, err := gguf.FromBytes(data)
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	one, err := model.Load(context.Background(), file(t), gpu.CPU(), model.Options{Context: 64})
	if err != nil {
		t.Fatal(err)
	}
	defer one.Close()
	prompt := randomIDs(3, 20, one.Vocab)
	for _, n := range []int{2, 4} {
		eachRanks(t, n, func(t *testing.T, load func(*testing.T, *gguf.File, int) (*model.Model, error)) {
			m, err := load(t, file(t), 64)
			if err != nil {
				t.Fatal(err)
			}
			for _, kv := range []tensor.DType{tensor.F32, tensor.F16} { // its heads are too small for blocks
				o := Options{Context: 64, KVType: kv, Chunk: 7}
				s, alone := newSession(t, m, o), newSession(t, one, o)
				want := greedy(t, alone, prompt, 30)
				for range 2 { // the second time by what the cache holds
					if got := greedy(t, s, prompt, 30); !slices.Equal(got, want) {
						t.Errorf("cache in %v: %v, alone %v", kv, got, want)
					}
				}
				s.Close()
			}
			// Two sessions and a batch in turns.
			o := Options{Context: 64, KVType: tensor.F32}
			a, b, batch := newSession(t, m, o), newSession(t, m, o), (*Batch)(nil)
			if batch, err = NewBatch(m, 2, o); err != nil {
				t.Fatal(err)
			}
			defer batch.Close()
			want := greedy(t, newSession(t, one, o), prompt, 8)
			q, err := batch.Join(context.Background(), prompt, nil, false)
			if err != nil {
				t.Fatal(err)
			}
			var got [3][]int32
			for _, s := range []*Session{a, b} {
				if err := s.Prefill(context.Background(), prompt); err != nil {
					t.Fatal(err)
				}
			}
			for range 8 {
				for i, s := range []*Session{a, b} {
					id, err := s.Next(nil)
					if err == nil {
						got[i] = append(got[i], id)
						err = s.Step(id, nil)
					}
					if err != nil {
						t.Fatal(err)
					}
				}
				if err := batch.Step(); err != nil {
					t.Fatal(err)
				}
				got[2] = append(got[2], q.Newest())
			}
			for i, ids := range got {
				if !slices.Equal(ids, want) {
					t.Errorf("in turn %d: %v, want %v", i, ids, want)
				}
			}
			// A prompt that is cancelled leaves all ranks in step.
			ctx, cancel := context.WithCancel(context.Background())
			cancel()
			if err := a.Prefill(ctx, randomIDs(9, 30, m.Vocab)); !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
			if ids := greedy(t, a, prompt, 8); !slices.Equal(ids, want) {
				t.Errorf("after a cancelled prompt: %v, want %v", ids, want)
			}
		})
	}
}

// TestStepsOfRanksAreCaptured counts what rank 0 captured, where ranks exchange on their devices.
func TestStepsOfRanksAreCaptured(t *testing.T) {
	eachRanks(t, 2, func(t *testing.T, load func(*testing.T, *gguf.File, int) (*model.Model, error)) {
		f, err := gguf.FromBytes(testmodel.Random(testmodel.Tiny))
		if err != nil {
			t.Fatal(err)
		}
		m, err := load(t, f, 64)
		if err != nil {
			t.Fatal(err)
		}
		s := newSession(t, m, Options{Context: 64, KVType: tensor.F32})
		greedy(t, s, randomIDs(3, 5, m.Vocab), 20)
		captured := 0
		for _, g := range s.steps {
			if g.graph != nil {
				captured++
			}
		}
		if want := strings.HasSuffix(t.Name(), "fake"); (captured > 0) != want {
			t.Errorf("%d captured steps", captured)
		}
	})
}

// TestARankWithoutMemoryIsNamed gives the second of two ranks too little memory for a cache.
func TestARankWithoutMemoryIsNamed(t *testing.T) {
	fakes := fake.New(fake.Config{Devices: 2, Memory: 8 << 20})
	f, err := gguf.FromBytes(testmodel.Random(testmodel.Tiny))
	if err != nil {
		t.Fatal(err)
	}
	m, err := loadRanks(t, 2, f, 64, gpu.ExchangeAuto, func(rank int) (*gpu.Device, error) { return gpu.OpenBackend(fakes, rank) })
	if err != nil {
		t.Fatal(err)
	}
	o := Options{Context: 64, KVType: tensor.F32}
	want := greedy(t, newSession(t, m, o), []int32{1, 2}, 5)
	giveBack := takeMemory(t, fakes)
	if _, err := New(m, o); err == nil || !strings.Contains(err.Error(), "rank 1 (process ") || !strings.Contains(err.Error(), "out of device memory") {
		t.Errorf("a session without memory: %v", err)
	}
	giveBack()
	if got := greedy(t, newSession(t, m, o), []int32{1, 2}, 5); !slices.Equal(got, want) {
		t.Errorf("afterwards %v, want %v", got, want)
	}
}

// takeMemory takes what the second device has left, and returns what gives it back.
func takeMemory(t *testing.T, fakes *fake.Backend) func() {
	d, err := fakes.Open(1, kernel.Options{})
	if err != nil {
		t.Fatal(err)
	}
	var taken []kernel.Ptr
	for n := int64(8 << 20); n >= 256; n /= 2 {
		if p, err := d.Alloc(n); err == nil {
			taken = append(taken, p)
		}
	}
	return func() {
		for _, p := range taken {
			d.Free(p)
		}
	}
}

// TestGPUsWithoutNCCLSayWhatIsNeeded asks devices that have no library for ranks.
func TestGPUsWithoutNCCLSayWhatIsNeeded(t *testing.T) {
	fakes := fake.New(fake.Config{Devices: 2, NoRanks: fmt.Errorf("NCCL 2.10.3 is too old: %w", kernel.ErrUnsupported)})
	f, err := gguf.FromBytes(testmodel.Random(testmodel.Tiny))
	if err != nil {
		t.Fatal(err)
	}
	_, err = loadRanks(t, 2, f, 64, gpu.ExchangeAuto, func(rank int) (*gpu.Device, error) { return gpu.OpenBackend(fakes, rank) })
	if !errors.Is(err, gpu.ErrUnsupported) || !strings.Contains(err.Error(), "2.10.3 is too old") || !strings.Contains(err.Error(), "tcp") {
		t.Error(err)
	}
}
