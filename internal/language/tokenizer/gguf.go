package tokenizer

import (
	"errors"
	"math"

	"github.com/vibrant-ml/vibrant/internal/language/gguf"
)

// roleKeys are the keys of the ids of tokens with a role, by Config's names. Later ones win.
var roleKeys = []struct{ key, role string }{
	{"tokenizer.ggml.prefix_token_id", "fim_pre"}, // the older names of three
	{"tokenizer.ggml.suffix_token_id", "fim_suf"},
	{"tokenizer.ggml.middle_token_id", "fim_mid"},
	{"tokenizer.ggml.cls_token_id", "bos"}, // BERT's names of its begin and end
	{"tokenizer.ggml.seperator_token_id", "eos"},
	{"tokenizer.ggml.bos_token_id", "bos"},
	{"tokenizer.ggml.eos_token_id", "eos"},
	{"tokenizer.ggml.eot_token_id", "eot"},
	{"tokenizer.ggml.eom_token_id", "eom"},
	{"tokenizer.ggml.unknown_token_id", "unknown"},
	{"tokenizer.ggml.padding_token_id", "padding"},
	{"tokenizer.ggml.fim_pre_token_id", "fim_pre"},
	{"tokenizer.ggml.fim_suf_token_id", "fim_suf"},
	{"tokenizer.ggml.fim_mid_token_id", "fim_mid"},
	{"tokenizer.ggml.fim_pad_token_id", "fim_pad"},
	{"tokenizer.ggml.fim_rep_token_id", "fim_rep"},
	{"tokenizer.ggml.fim_sep_token_id", "fim_sep"},
}

// FromGGUF returns the tokenizer that a file describes, or ErrNoVocab where it holds none. A pre-tokenizer that is not ""
// is used whatever the file names. It keeps no part of the file.
func FromGGUF(f *gguf.File, preTokenizer string) (*Tokenizer, error) {
	c := Config{Special: map[string]int32{}}
	var err error
	if c.Model, err = f.String("tokenizer.ggml.model"); err != nil {
		if errors.Is(err, gguf.ErrNoKey) {
			return nil, ErrNoVocab
		}
		return nil, err
	}
	if c.Model == "no_vocab" || c.Model == "none" {
		return nil, ErrNoVocab
	}
	if c.Pre, err = f.StringOr("tokenizer.ggml.pre", ""); err != nil {
		return nil, err
	}
	if preTokenizer != "" {
		c.Pre = preTokenizer
	}
	if c.Tokens, err = f.Strings("tokenizer.ggml.tokens"); err != nil {
		return nil, err
	}
	if types, err := optional(f.Ints("tokenizer.ggml.token_type")); err != nil {
		return nil, err
	} else if types != nil {
		c.Types = make([]Type, len(types))
		for i, x := range types {
			if x < 0 || x > int64(Byte) {
				x = 0
			}
			c.Types[i] = Type(x)
		}
	}
	if c.Scores, err = optional(f.Floats("tokenizer.ggml.scores")); err != nil {
		return nil, err
	}
	if c.Model == "gpt2" || c.Model == "gemma4" {
		if c.Merges, err = f.Strings("tokenizer.ggml.merges"); err != nil {
			return nil, err
		}
		c.Scores = nil
	}
	if c.Model == "t5" {
		charsMap, err := optional(f.Ints("tokenizer.ggml.precompiled_charsmap"))
		if err != nil {
			return nil, err
		}
		for _, x := range charsMap {
			c.CharsMap = append(c.CharsMap, byte(x))
		}
		remove, err := f.BoolOr("tokenizer.ggml.remove_extra_whitespaces", false)
		if err != nil {
			return nil, err
		}
		c.KeepExtraSpaces = !remove
	}
	for _, r := range roleKeys {
		id, err := f.Uint(r.key)
		switch {
		case err == nil:
			c.Special[r.role] = int32(min(id, math.MaxInt32))
		case !errors.Is(err, gguf.ErrNoKey):
			return nil, err
		}
	}
	for _, b := range []struct {
		key string
		to  **bool
	}{
		{"tokenizer.ggml.add_bos_token", &c.AddBOS},
		{"tokenizer.ggml.add_eos_token", &c.AddEOS},
		{"tokenizer.ggml.add_space_prefix", &c.AddSpacePrefix},
	} {
		x, err := f.Bool(b.key)
		switch {
		case err == nil:
			*b.to = &x
		case !errors.Is(err, gguf.ErrNoKey):
			return nil, err
		}
	}
	return New(c)
}

// optional turns an absent key into nil.
func optional[T any](v []T, err error) ([]T, error) {
	if errors.Is(err, gguf.ErrNoKey) {
		return nil, nil
	}
	return v, err
}
