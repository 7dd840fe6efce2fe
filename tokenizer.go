package vibrant

import (
	"context"
	"errors"

	"github.com/vibrant-ml/vibrant/internal/language/tokenizer"
)

// Tokenizer turns text into token ids and back, as a model's file describes it. It may be used from several goroutines.
type Tokenizer struct{ t *tokenizer.Tokenizer }

// OpenTokenizer reads the tokenizer of a GGUF file, "" for that of RegisterDefault, without loading the weights. Of
// the options only WithPreTokenizer counts.
func OpenTokenizer(path string, options ...Option) (*Tokenizer, error) {
	c, err := newConfig(options)
	if err != nil {
		return nil, err
	}
	f, err := openFile(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	t, err := tokenizer.FromGGUF(f, c.preTokenizer)
	if errors.Is(err, tokenizer.ErrNoVocab) {
		return nil, ErrNoTokenizer
	}
	if err != nil {
		return nil, err
	}
	return &Tokenizer{t}, nil
}

// EncodeOptions say what Tokenizer.Encode adds and parses.
type EncodeOptions struct {
	AddBOS       bool // put the begin token in front, and the end token behind, where the model wants them
	ParseSpecial bool // turn the text of control tokens such as <|im_end|> into them: never for what a user typed
}

// Encode returns the ids of a text, or the error of ctx.
func (t *Tokenizer) Encode(ctx context.Context, text string, o EncodeOptions) ([]int32, error) {
	return t.t.Encode(ctx, text, tokenizer.Options{AddBOS: o.AddBOS, AddEOS: o.AddBOS, ParseSpecial: o.ParseSpecial})
}

// Decode returns the text of ids without control tokens. What is no UTF-8 becomes U+FFFD.
func (t *Tokenizer) Decode(ids []int32) (string, error) { return t.t.Decode(ids) }

// TokenText returns what a token stands for, which may be a part of a UTF-8 character; of a control token its name.
func (t *Tokenizer) TokenText(id int32) (string, error) {
	b, err := t.t.TokenText(id)
	return string(b), err
}

// IsEnd reports whether a token ends an answer.
func (t *Tokenizer) IsEnd(id int32) bool { return t.t.IsEOG(id) }

// VocabSize returns the number of tokens.
func (t *Tokenizer) VocabSize() int { return t.t.VocabSize() }

// Warnings says in what the tokenizer may differ from the one that the model was trained with.
func (t *Tokenizer) Warnings() []string { return t.t.Warnings() }
