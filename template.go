package vibrant

import (
	"errors"
	"time"

	"github.com/vibrant-ml/vibrant/internal/language/chat"
	"github.com/vibrant-ml/vibrant/internal/language/gguf"
	"github.com/vibrant-ml/vibrant/internal/language/tokenizer"
)

// Template makes prompts of conversations: the Jinja chat template of a model, or a built-in one where it has none.
type Template struct {
	source             string
	BOSToken, EOSToken string // what the template sees as bos_token and eos_token
}

// ParseTemplate reads a Jinja chat template. An error names the line.
func ParseTemplate(source string) (*Template, error) {
	if _, err := chat.New(source, chat.Tokens{}); err != nil {
		return nil, err
	}
	return &Template{source: source}, nil
}

// OpenTemplate returns the template of a GGUF file, "" for that of RegisterDefault, without loading the weights.
func OpenTemplate(path string) (*Template, error) {
	f, err := openFile(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	t, err := tokenizer.FromGGUF(f, "default") // its texts count, not how it cuts
	if err != nil {
		return nil, err
	}
	source, err := templateSource(f, &Tokenizer{t})
	if err != nil {
		return nil, err
	}
	tokens := specialTokens(t)
	return &Template{source: source, BOSToken: tokens.BOS, EOSToken: tokens.EOS}, nil
}

// Source returns the text of the template.
func (t *Template) Source() string { return t.source }

// Render returns the prompt for a conversation in JSON: a list of messages, or {"messages": [...], "tools": [...]}. now is
// what the template sees as the time. openAnswer ends the prompt with the opening of the assistant's turn.
func (t *Template) Render(conversation []byte, now time.Time, openAnswer bool) (string, error) {
	parsed, err := chat.New(t.source, chat.Tokens{BOS: t.BOSToken, EOS: t.EOSToken})
	if err != nil {
		return "", err
	}
	return parsed.RenderFile(conversation, chat.Options{AddGenerationPrompt: openAnswer, Now: func() time.Time { return now }})
}

// chatTemplate returns the template of a file; nil where it has no tokenizer.
func chatTemplate(f *gguf.File, t *Tokenizer) (*chat.Template, error) {
	if t == nil {
		return nil, nil
	}
	source, err := templateSource(f, t)
	if err != nil {
		return nil, err
	}
	return chat.New(source, specialTokens(t.t))
}

func templateSource(f *gguf.File, t *Tokenizer) (string, error) {
	source, err := f.String("tokenizer.chat_template")
	if errors.Is(err, gguf.ErrNoKey) || err == nil && source == "" {
		_, source = chat.Builtin(func(token string) bool {
			id, ok := t.t.ID(token)
			return ok && t.t.IsSpecial(id)
		})
		return source, nil
	}
	return source, err
}

func specialTokens(t *tokenizer.Tokenizer) chat.Tokens {
	text := func(id int32) string {
		b, err := t.TokenText(id)
		if err != nil {
			return "" // -1: there is none
		}
		return string(b)
	}
	return chat.Tokens{BOS: text(t.BOS()), EOS: text(t.EOS()), UNK: text(t.UNK()), PAD: text(t.PAD())}
}
