package vibrant

import (
	"context"
	"fmt"
	"math"

	"github.com/vibrant-ml/vibrant/internal/language/engine"
)

// PerplexityOptions say how a text is scored.
type PerplexityOptions struct {
	Context  int                                       // tokens of a chunk, 0 for 512
	Chunks   int                                       // score so many chunks at most, 0 for all
	Progress func(done, total int, perplexity float64) // called after each chunk; may be nil
}

// PerplexityResult is how well a model predicts a text.
type PerplexityResult struct {
	Perplexity float64 `json:"ppl"`
	Error      float64 `json:"error"` // standard error of Perplexity
	Chunks     int     `json:"chunks"`
	Scored     int     `json:"scored"` // tokens
}

// Perplexity scores a text by llama.cpp's method, so that figures compare: the text is tokenized as a whole, with the
// begin token in front where the model adds one, and cut into chunks, of which a last incomplete one is dropped. Each
// chunk is computed on its own, its first token replaced by the begin token, and the tokens of its second half are
// scored.
func (m *Model) Perplexity(ctx context.Context, text string, o PerplexityOptions) (*PerplexityResult, error) {
	if o.Context == 0 {
		o.Context = 512
	}
	if o.Context < 4 || o.Context > m.config.context {
		return nil, fmt.Errorf("perplexity: chunks of %d tokens in a context of %d: want at least 4 and at most the context", o.Context, m.config.context)
	}
	t, err := m.Tokenizer()
	if err != nil {
		return nil, err
	}
	ids, err := t.Encode(ctx, text, EncodeOptions{AddBOS: true})
	if err != nil {
		return nil, err
	}
	chunks := len(ids) / o.Context
	if chunks == 0 {
		return nil, fmt.Errorf("perplexity: the text has %d tokens, fewer than one chunk of %d", len(ids), o.Context)
	}
	if o.Chunks > 0 {
		chunks = min(chunks, o.Chunks)
	}
	result := &PerplexityResult{}
	var sum, squares float64
	err = m.withEngine(o.Context, 64, func(s *engine.Session) error {
		for i := range chunks {
			chunk := append([]int32(nil), ids[i*o.Context:(i+1)*o.Context]...)
			if t.t.AddsBOS() {
				chunk[0] = t.t.BOS()
			}
			s.Reset()
			first := o.Context / 2
			err := s.Logits(ctx, chunk, first, func(j int, logits []float32) error {
				if j+1 < len(chunk) {
					loss := negativeLogLikelihood(logits, chunk[j+1])
					sum += loss
					squares += loss * loss
					result.Scored++
				}
				return nil
			})
			if err != nil {
				return err
			}
			result.Chunks++
			if o.Progress != nil {
				o.Progress(i+1, chunks, math.Exp(sum/float64(result.Scored)))
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	n := float64(result.Scored)
	mean := sum / n
	result.Perplexity = math.Exp(mean)
	if variance := squares/n - mean*mean; variance > 0 && n > 1 {
		result.Error = result.Perplexity * math.Sqrt(variance/(n-1))
	}
	if math.IsNaN(result.Perplexity) {
		return nil, fmt.Errorf("perplexity: the model's logits are not numbers")
	}
	return result, nil
}

// negativeLogLikelihood returns -log softmax(logits)[id].
func negativeLogLikelihood(logits []float32, id int32) float64 {
	top := logits[0]
	for _, x := range logits {
		top = max(top, x)
	}
	var sum float64
	for _, x := range logits {
		sum += math.Exp(float64(x - top))
	}
	return math.Log(sum) + float64(top) - float64(logits[id])
}
