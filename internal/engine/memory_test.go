package engine

import (
	"math"
	"testing"

	"github.com/vibrant-ml/vibrant/internal/testmodel"
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
