package vibrant

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/vibrant-ml/vibrant/internal/language/sample"
)

// Generation says how the next token is chosen and when an answer ends. Generation{} means DefaultGeneration(), and a field
// that a literal leaves zero means that field's default: Generation{MaxTokens: 100} samples as DefaultGeneration does. To
// set a field to zero, as a temperature of 0, start from DefaultGeneration.
type Generation struct {
	Temperature      float64 // 0 takes the likeliest token; else logits are divided by it
	TopK             int     // sample among so many of the likeliest tokens; 0 for all
	TopP             float64 // ... among the likeliest that reach this probability together; 1 for all
	MinP             float64 // ... among those at least this likely relative to the likeliest; 0 for all
	RepeatPenalty    float64 // divides the logits of tokens among the last RepeatLastN (multiplies negative ones); 1 for none
	PresencePenalty  float64 // is subtracted from the logits of such tokens; 0 for none
	FrequencyPenalty float64 // is subtracted as often as they occur; 0 for none
	RepeatLastN      int     // tokens that the penalties look back on; -1 for all
	Seed             *uint64 // of the sampler; nil for a random one. The same seed gives the same tokens on the same build and device.

	MaxTokens int      // ends an answer; -1 for no limit but the context; 0 computes the prompt alone
	Stop      []string // texts that end an answer and are not part of it
	IgnoreEOS bool     // never choose a token that ends the text

	complete bool // of DefaultGeneration: zero fields mean zero
}

// DefaultGeneration returns llama.cpp's defaults: temperature 0.8, top-k 40, top-p 0.95, min-p 0.05, no penalties, no limit
// of tokens.
func DefaultGeneration() Generation {
	o := sample.Defaults()
	return Generation{Temperature: o.Temperature, TopK: o.TopK, TopP: o.TopP, MinP: o.MinP, RepeatPenalty: o.RepeatPenalty,
		RepeatLastN: o.RepeatLastN, MaxTokens: -1, complete: true}
}

// withDefaults puts the defaults in place of the zero fields of a literal.
func (g Generation) withDefaults() Generation {
	if g.complete {
		return g
	}
	d := DefaultGeneration()
	return Generation{
		Temperature: cmp.Or(g.Temperature, d.Temperature), TopK: cmp.Or(g.TopK, d.TopK), TopP: cmp.Or(g.TopP, d.TopP),
		MinP: cmp.Or(g.MinP, d.MinP), RepeatPenalty: cmp.Or(g.RepeatPenalty, d.RepeatPenalty),
		PresencePenalty: g.PresencePenalty, FrequencyPenalty: g.FrequencyPenalty, RepeatLastN: cmp.Or(g.RepeatLastN, d.RepeatLastN),
		Seed: g.Seed, MaxTokens: cmp.Or(g.MaxTokens, d.MaxTokens), Stop: g.Stop, IgnoreEOS: g.IgnoreEOS, complete: true,
	}
}

// Validate names the first field that is out of range.
func (g Generation) Validate() error {
	g = g.withDefaults()
	if err := g.choosing().Validate(); err != nil {
		return err
	}
	if g.MaxTokens < -1 || g.MaxTokens > math.MaxInt32 {
		return fmt.Errorf("most tokens is %d, want -1 to %d", g.MaxTokens, math.MaxInt32)
	}
	for _, s := range g.Stop {
		if s == "" {
			return fmt.Errorf("a stop text is empty")
		}
	}
	return nil
}

// FinishReason says why an answer ended.
type FinishReason string

const (
	FinishNone    FinishReason = ""        // it has not, or failed
	FinishStop    FinishReason = "stop"    // the model ended it, or a stop text was met
	FinishLength  FinishReason = "length"  // MaxTokens were generated
	FinishContext FinishReason = "context" // the context is full
)

// sampler returns what chooses the tokens after a prompt.
func (g Generation) sampler(prompt []int32) *sample.Sampler {
	seed := rand.Uint64()
	if g.Seed != nil {
		seed = *g.Seed
	}
	o := g.choosing()
	o.Seed = seed
	return sample.New(o, prompt)
}

// choosing returns what a sampler is told, but for its seed.
func (g Generation) choosing() sample.Options {
	return sample.Options{
		Temperature: g.Temperature, TopK: g.TopK, TopP: g.TopP, MinP: g.MinP,
		RepeatPenalty: g.RepeatPenalty, PresencePenalty: g.PresencePenalty, FrequencyPenalty: g.FrequencyPenalty,
		RepeatLastN: g.RepeatLastN,
	}
}
