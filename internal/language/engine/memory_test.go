package engine

import (
	"math"
	"testing"

	"github.com/vibrant-ml/vibrant/internal/check/testmodel"
	"github.com/vibrant-ml/vibrant/tensor"
)

// TestSessionTakesWhatIsPredicted compares SessionBytes with what the device has given out, after a prompt and an answer.
func TestSessionTakesWhatIsPredicted(t *testing.T) {
	hw, d := fakeGPU(t)
	m := randomModel(t, d, testmodel.Shape{Hidden: 128, Layers: 3, Heads: 4, KVHeads: 2, HeadDim: 32, FeedForward: 256, Vocab: 2000, Context: 8192})
	for _, o := range []Options{
		{Context: 8192, KVType: tensor.F16},
		{Context: 8192, KVType: tensor.F32, Chunk: 64},
		{Context: 1000, KVType: tensor.F16, LogitRows: 50},
		{Context: 300, KVType: tensor.F16},
		{Context: 8192, KVType: tensor.Q8_0},
		{Context: 1001, KVType: tensor.Q8_0, Chunk: 100},
		{Context: 17, KVType: tensor.Q8_0},
	} {
		d.Pool().Trim()
		before := hw.Used()
		s := newSession(t, m, o)
		if o.Chunk == 64 {
			greedy(t, s, randomIDs(1, 20, m.Vocab), 3)
		}
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
	for _, kv := range []tensor.DType{tensor.F32, tensor.F16} {
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

func TestScratchOfAQuantizedCacheIsForeseen(t *testing.T) {
	for _, c := range []struct {
		headDim, context int
		want             int64 // MiB
	}{{128, 1, 0}, {128, 65536, 0}, {128, 65537, 64}, {64, 131072, 0}, {128, 131072, 64}, {128, 131073, 64 + 128}, {256, 262144, 64 + 128 + 256}} {
		if got := convertedHeadGrowth(c.headDim, c.context); got != c.want<<20 {
			t.Errorf("heads of %d, context of %d: %d bytes, want %d MiB", c.headDim, c.context, got, c.want)
		}
	}
}
