package tokenizer

import (
	"fmt"
)

// A pre-tokenizer cuts text into pieces that no merge crosses. The models define it by regular expressions with
// lookahead, which Go's regexp lacks; here each is a function written by hand, which looks at a character a bounded
// number of times. The expressions stand above the functions, with \p{..} and \s as in Unicode.

// stage cuts a text into pieces, none of them empty, until yield returns false, which it then returns too.
type stage func(s string, yield func(piece string) bool) bool

// cut makes a stage of a function that returns the length of the first piece, at least 1, of a text that is not empty.
func cut(first func(s string) int) stage {
	return func(s string, yield func(piece string) bool) bool {
		for s != "" {
			n := first(s)
			if !yield(s[:n]) {
				return false
			}
			s = s[n:]
		}
		return true
	}
}

// preTokenizer is what a value of tokenizer.ggml.pre asks for.
type preTokenizer struct {
	stages []stage // each cuts the pieces of the one before further

	// nfc: text is brought to Unicode's normal form C first. The models' tokenizer.json says so, no key of a file does.
	nfc bool
	// ignoreMerges: a piece that is a token is taken whole, whether or not merges lead to it.
	ignoreMerges bool
	// phrases: pieces have several words, and are merged word by word (phrase.go).
	phrases bool
	addBOS  bool // unless the file says otherwise
}

// split calls yield for each piece of s, which is normalized, until it returns false.
func (p *preTokenizer) split(s string, yield func(piece string) bool) {
	for i := len(p.stages) - 1; i >= 0; i-- {
		stage, next := p.stages[i], yield
		yield = func(piece string) bool { return stage(piece, next) }
	}
	if s != "" {
		yield(s)
	}
}

// The pre-tokenizers by their first or best known name.
var (
	preGPT2      = &preTokenizer{stages: []stage{cut(gpt2)}}
	preStarcoder = &preTokenizer{stages: []stage{number1, cut(gpt2)}}
	preQwen2     = &preTokenizer{stages: []stage{cut(cl100k{digits: 1}.next)}}
	preDBRX      = &preTokenizer{stages: []stage{cut(cl100k{digits: 3}.next)}}
	preLlama3    = &preTokenizer{stages: preDBRX.stages, ignoreMerges: true, addBOS: true}
	preGPT4o     = &preTokenizer{stages: []stage{cut(o200k{digits: 3, contractions: true, newlines: "\r\n/"}.next)}}
	preTekken    = &preTokenizer{stages: []stage{cut(o200k{digits: 1, newlines: "\r\n/"}.next)}, ignoreMerges: true, addBOS: true}
	preCohere    = &preTokenizer{stages: []stage{decimalsFromRight, preGPT4o.stages[0]}}
	preDefault   = &preTokenizer{stages: []stage{operators(""), cut(gpt2), numbers, cut(threeDigits)}}
	preDeepseek3 = &preTokenizer{stages: []stage{number3, cjk3, cut(deepseek3{afterSigns: "\r\n"}.next)}}
	preBloom     = &preTokenizer{stages: []stage{cut(bloom)}}

	preTokenizers = map[string]*preTokenizer{
		"default": preDefault,

		"llama3": preLlama3, "llama-v3": preLlama3, "llama-bpe": preLlama3, "falcon3": preLlama3,
		"falcon-h1": preLlama3, "midm-2.0": preLlama3, "lfm2": preLlama3, "jina-v5-nano": preLlama3,
		"dbrx": preDBRX, "smaug-bpe": preDBRX, "chatglm-bpe": preDBRX,
		"glm4":     {stages: preDBRX.stages, ignoreMerges: true},
		"glm5":     {stages: preDBRX.stages, ignoreMerges: true},
		"minicpm5": {stages: []stage{number3, preDBRX.stages[0]}, ignoreMerges: true},

		"qwen2":            {stages: preQwen2.stages, nfc: true},
		"qwen35":           {stages: []stage{cut(cl100k{digits: 1, marks: mark}.next)}, nfc: true},
		"deepseek-r1-qwen": preQwen2, "kormo": preQwen2, "openpangu": preQwen2, "f2llmv2": preQwen2,
		"megrez": preQwen2, "stablelm2": preQwen2, "hunyuan": preQwen2, "solar-open": preQwen2, "grok-2": preQwen2,
		"bailingmoe": preQwen2, "bailingmoe2": preQwen2, "llada-moe": preQwen2,
		"ufakzeka":   {stages: []stage{cut(cl100k{digits: 1, noContractions: true}.next)}},
		"laguna":     {stages: []stage{lines, preQwen2.stages[0]}},
		"seed-coder": {stages: []stage{cut(cl100k{digits: 1, noNewlinesInSigns: true}.next)}},
		"jais-2":     {stages: []stage{jais2}},
		"exaone-moe": {stages: []stage{cut(exaoneMoE)}, phrases: true},

		"gpt-2": preGPT2, "phi-2": preGPT2, "jina-es": preGPT2, "jina-de": preGPT2, "gigachat": preGPT2,
		"jina-v2-es": preGPT2, "jina-v2-de": preGPT2, "jina-v1-en": preGPT2, "jina-v2-code": preGPT2,
		"roberta-bpe": preGPT2, "a.x-4.0": preGPT2, "mellum": preGPT2, "modern-bert": preGPT2, "exaone4": preGPT2,
		"jais": preGPT2, "trillion": preGPT2, "granite-docling": preGPT2,
		"mpt": {stages: preGPT2.stages, nfc: true}, "olmo": {stages: preGPT2.stages, nfc: true},

		"starcoder": preStarcoder, "refact": preStarcoder, "smollm": preStarcoder, "codeshell": preStarcoder,
		"exaone": preStarcoder, "minerva-7b": preStarcoder, "mellum2": preStarcoder,
		"command-r": {stages: preStarcoder.stages, nfc: true},

		"gpt-4o": preGPT4o, "llama4": preGPT4o, "kanana2": preGPT4o, "talkie": preGPT4o, "minimax-m2": preGPT4o,
		"tekken": preTekken, "pixtral": preTekken,
		"kimi-k2": {stages: []stage{cut(o200k{digits: 3, contractions: true, hanApart: true, newlines: "\r\n"}.next)}},
		"youtu": {
			stages:       []stage{youtuScripts, cut(o200k{digits: 1, contractions: true, newlines: "\r\n/"}.next)},
			ignoreMerges: true,
		},
		"tiny_aya": preCohere, "cohere2moe": preCohere, "cohere2_moe": preCohere,

		"falcon": {stages: []stage{operators("`"), cut(gpt2), cut(digitBytes), cut(threeDigits)}},

		"deepseek-v3": preDeepseek3, "hunyuan-dense": preDeepseek3, "joyai-llm": preDeepseek3, "hy_v4": preDeepseek3,
		"deepseek-coder": {stages: []stage{newline1, spacedLetters, spacedPunct, cjk1, number1}},
		"deepseek-llm":   {stages: []stage{newline1, spacedCased, spacedSigns, cut(trailingSpaces), cjk1, number1}},
		"afmoe":          {stages: []stage{numbersFromRight, asianScripts, preDeepseek3.stages[2]}},
		"spark2_5":       {stages: []stage{number3, cjk3, cut(deepseek3{oneNewline: true}.next), number1}},

		"bloom": preBloom, "poro-chat": preBloom, "gpt3-finnish": preBloom,
		"viking": {stages: []stage{cut(bloom), number1}},
	}
)

// findPreTokenizer returns the pre-tokenizer of a name in tokenizer.ggml.pre.
func findPreTokenizer(name string) (*preTokenizer, error) {
	if pre, ok := preTokenizers[name]; ok {
		return pre, nil
	}
	return nil, fmt.Errorf("tokenizer: %w %.200q (tokenizer.ggml.pre); --force-pretokenizer takes a known one", ErrUnknownPreTokenizer, name)
}
