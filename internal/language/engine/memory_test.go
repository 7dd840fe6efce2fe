package engine

import (
	"cmp"
	"math"
	"testing"

	"github.com/vibrant-ml/vibrant/gpu"
	"github.com/vibrant-ml/vibrant/internal/backend/fake"
	"github.com/vibrant-ml/vibrant/internal/check/testmodel"
	"github.com/vibrant-ml/vibrant/tensor"
)

// TestSessionTakesWhatIsPredicted compares SessionBytes with what the device has given out, after a prompt and an answer.
func TestSessionTakesWhatIsPredicted(t *testing.T) {
	b := fake.New(fake.Config{Scratch: true})
	d, err := gpu.OpenBackend(b, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	hw := b.GPU(0)
	m := randomModel(t, d, testmodel.Shape{Hidden: 128, Layers: 3, Heads: 4, KVHeads: 2, HeadDim: 32, FeedForward: 256, Vocab: 2000, Context: 8192})
	for _, o := range fewer([]Options{
		{Context: 8192, KVType: tensor.F16, Chunk: 128},
		{Context: 8192, KVType: tensor.F32, Chunk: 64},
		{Context: 1000, KVType: tensor.F16, Chunk: 128, LogitRows: 50},
		{Context: 200, KVType: tensor.F16},
		{Context: 8192, KVType: tensor.Q8_0, Chunk: 32},
		{Context: 1001, KVType: tensor.Q8_0, Chunk: 100},
		{Context: 17, KVType: tensor.Q8_0},
	}) {
		d.Pool().Trim()
		before := hw.Used()
		s := newSession(t, m, o)
		chunk := min(cmp.Or(o.Chunk, 200), o.Context-3)
		greedy(t, s, randomIDs(1, chunk, m.Vocab), 3)
		cache, workspace := SessionBytes(&m.Config, d, o)
		taken := hw.Used() - before
		if off := math.Abs(float64(taken)/float64(cache+workspace) - 1); !(off <= 0.03) {
			t.Errorf("%+v: predicted %d + %d bytes, taken %d: %.1f %% off", o, cache, workspace, taken, 100*off)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		d.Pool().Trim()
		if n := hw.Used(); n != before {
			t.Errorf("%+v: %d bytes are left after Close", o, n-before)
		}
	}
}

// TestLongConversationKeepsItsMemory lets one session answer again and again until its context is full.
func TestLongConversationKeepsItsMemory(t *testing.T) {
	hw, d := fakeGPU(t)
	shape := testmodel.Tiny
	shape.Context = 1024
	m := randomModel(t, d, shape)
	for _, kv := range fewer([]tensor.DType{tensor.F32, tensor.F16}) {
		s := newSession(t, m, Options{Context: 1024, KVType: kv, Chunk: 32})
		var ids []int32
		var used int64
		for turn := range 30 {
			ids = append(ids, randomIDs(uint64(turn), 20, m.Vocab)...)
			ids = append(ids, greedy(t, s, ids, 12)...)
			if turn == 1 {
				used = hw.Used()
			}
		}
		if now := hw.Used(); now != used {
			t.Errorf("cache of %v: %d bytes after the second turn, %d after %d tokens", kv, used, now, len(ids))
		}
		if n := len(s.steps); n != 1 {
			t.Errorf("cache of %v: %d kinds of steps were captured for one conversation", kv, n)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}
