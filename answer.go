package vibrant

import (
	"context"
	"errors"
	"strings"

	"github.com/vibrant-ml/vibrant/internal/language/chat"
	"github.com/vibrant-ml/vibrant/internal/language/sample"
	"github.com/vibrant-ml/vibrant/internal/language/tokenizer"
)

// answer turns chosen ids into text and says when it is complete.
type answer struct {
	options Generation
	vocab   *Tokenizer // nil: no text
	sampler *sample.Sampler
	decoder *tokenizer.Decoder
	stop    *stopText
	kinds   *chat.Splitter
	ids     []int32
	finish  FinishReason
	ended   bool // by a token that is not part of it
}

func newAnswer(m *Model, g Generation, prompt []int32) *answer {
	g = g.withDefaults()
	a := &answer{options: g, vocab: m.tokenizer, sampler: g.sampler(prompt), stop: newStopText(g.Stop)}
	if a.vocab != nil {
		a.decoder = a.vocab.t.NewDecoder()
		a.kinds = m.splitter(prompt)
	}
	return a
}

// splitter returns what tells the kinds of an answer to a prompt apart.
func (m *Model) splitter(prompt []int32) *chat.Splitter {
	d := m.tokenizer.t.NewDecoder()
	d.Special = true
	var end strings.Builder // of the prompt: it may open the model's thinking
	for _, id := range prompt[max(0, len(prompt)-16):] {
		text, _ := d.Next(id) // ids without a token have no text
		end.WriteString(text)
	}
	return chat.NewSplitter(func(marker string) bool {
		_, ok := m.tokenizer.t.ID(marker)
		return ok || m.template != nil && m.template.Mentions(marker)
	}, end.String())
}

// begin ends an answer that is to have no token, once its prompt is computed.
func (a *answer) begin() {
	if a.options.MaxTokens == 0 {
		a.finish = FinishLength
	}
}

// take takes the next id, with so much room left in the context, and returns what to show of it, unless it ended the
// answer.
func (a *answer) take(id int32, room int) (Token, error) {
	if err := a.sampler.Err(); err != nil { // logits that are NaN
		return Token{}, err
	}
	if a.vocab != nil && !a.options.IgnoreEOS && a.vocab.IsEnd(id) {
		a.finish, a.ended = FinishStop, true
		return Token{ID: id}, nil
	}
	a.sampler.Accept(id)
	a.ids = append(a.ids, id)
	token := Token{ID: id}
	if a.decoder != nil {
		text, err := a.decoder.Next(id)
		if err != nil && !errors.Is(err, tokenizer.ErrOutOfRange) { // rows that pad the matrix have no token
			return Token{}, err
		}
		a.kinds.Text(a.stop.next(text))
		if a.vocab.t.IsSpecial(id) {
			a.kinds.Text(a.stop.rest()) // no stop text goes across a control token
			name, _ := a.vocab.TokenText(id)
			a.kinds.Control(name)
		}
		text, kind, _ := a.kinds.Take()
		token.Text, token.Kind = text, Kind(kind)
	}
	switch {
	case a.stop.stopped:
		a.finish = FinishStop
	case len(a.ids) == a.options.MaxTokens:
		a.finish = FinishLength
	case room == 0:
		a.finish = FinishContext
	}
	return token, nil
}

// banned returns the ids that answers with these options may not choose.
func (m *Model) banned(g Generation) []int32 {
	if g.IgnoreEOS && m.tokenizer != nil {
		return m.tokenizer.t.EOGs()
	}
	return nil
}

// rest returns the text that was held back, once the answer is complete.
func (a *answer) rest() []Token {
	if a.decoder == nil {
		return nil
	}
	if !a.stop.stopped {
		a.kinds.Text(a.stop.next(a.decoder.Flush()) + a.stop.rest())
	}
	a.kinds.End()
	var tokens []Token
	for {
		text, kind, ok := a.kinds.Take()
		if !ok {
			return tokens
		}
		tokens = append(tokens, Token{ID: -1, Text: text, Kind: Kind(kind)})
	}
}

// said returns what of a token belongs into the history: templates take thinking between markers apart themselves, but
// not that of harmony, whose markers have no text.
func (a *answer) said(t Token) string {
	if a.kinds != nil && a.kinds.Harmony() && t.Kind != KindText {
		return ""
	}
	return t.Text
}

// prompt renders a conversation by the model's chat template and returns its ids.
func (m *Model) prompt(ctx context.Context, system string, messages []Message) ([]int32, error) {
	if m.tokenizer == nil {
		return nil, ErrNoTokenizer
	}
	var list []chat.Message
	if system != "" {
		list = append(list, chat.NewMessage("system", system))
	}
	for _, x := range messages {
		list = append(list, chat.NewMessage(x.Role, x.Content))
	}
	segments, err := m.template.RenderSegments(list, chat.Options{AddGenerationPrompt: true, MergeSystem: true, Context: ctx})
	if err != nil {
		return nil, err
	}
	parts := make([]tokenizer.Segment, len(segments))
	for i, p := range segments {
		parts[i] = tokenizer.Segment{Text: p.Text, ParseSpecial: !p.FromUser}
	}
	return m.tokenizer.t.EncodeSegments(ctx, parts, tokenizer.Options{AddBOS: true})
}
