package model

import (
	"fmt"
	"strings"

	"github.com/vibrant-ml/vibrant/internal/backend/kernel"
	"github.com/vibrant-ml/vibrant/internal/language/gguf"
)

// architecture is all that tells one family of models from another.
type architecture struct {
	name    string // general.architecture
	example string // models that people run
	tested  string // engines whose logits and greedy ids hold the tests
	rope    kernel.RoPEMode
	// layerNorm says that the epsilon is that of LayerNorm (attention.layer_norm_epsilon).
	layerNorm bool
	// longRoPE says that files may have lists of factors for short and long contexts.
	longRoPE bool
	// latent says that keys are compressed, and values a part of them.
	latent bool
	// rounds says that the model rounds what its matrices multiply to int8 (BitNet).
	rounds bool
	// read reads the keys that llama's files do not have; nil for none. Errors stay in the reader.
	read func(r *reader, c *Config)
	// outer lists the tensors before and after the layers, layer those of layer i, with the fields that hold them.
	outer func(c *Config, w *weights) []spec
	layer func(c *Config, i int, l *layer) []spec
	// forward records the model from the tokens' ids to the logits.
	forward func(g *graph, c *Config, w *weights)
}

// Engines that the golden data of architectures is by.
const (
	transformers517 = "transformers 5.17"
	transformers523 = "transformers 5.23, llama.cpp 0.5.0"
)

// architectures is what this package computes, by name.
var architectures = []*architecture{
	&bitnet, &bitnet25, &bitnetB158,
	&deepseek2, &gemma2, &gemma3, &glm4, &glm4moe, &gptOSS, &gpt2, &granite, &graniteMoE, &llama, &llama4, &mistral3,
	&olmo2, &phi3, &qwen2, &qwen2moe, &qwen3, &qwen35, &qwen35moe, &qwen3moe, &qwen3next, &qwen3vl, &qwen3vlmoe, &smollm3, &stablelm,
}

// Architecture describes a supported architecture to users.
type Architecture struct {
	Name    string `json:"name"`    // general.architecture of its files
	Example string `json:"example"` // models that people run
	Tested  string `json:"tested"`  // whose logits and greedy ids hold its tests
}

// Architectures lists what is supported, by name.
func Architectures() []Architecture {
	var all []Architecture
	for _, a := range architectures {
		all = append(all, Architecture{Name: a.name, Example: a.example, Tested: a.tested})
	}
	return all
}

func findArchitecture(name string) (*architecture, error) {
	var names []string
	for _, a := range architectures {
		if a.name == name {
			return a, nil
		}
		names = append(names, a.name)
	}
	return nil, fmt.Errorf("architecture %s is not supported (%s are)", gguf.Quote(name), strings.Join(names, ", "))
}
