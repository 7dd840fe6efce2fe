// Package chat turns a conversation into the prompt that a model was trained on, with the chat template of its file.
//
//	t, err := chat.New(source, chat.Tokens{BOS: "<s>", EOS: "</s>"})
//	...
//	prompt, err := t.Render([]chat.Message{chat.NewMessage("user", "Hello")}, chat.Options{AddGenerationPrompt: true})
//
// Render gives the text that Hugging Face's apply_chat_template gives. RenderSegments gives the same text in pieces and
// tells which of them came from the messages: in those, nothing may be taken for a special token.
package chat

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/vibrant-ml/vibrant/internal/language/chat/jinja"
)

// Tokens are the special tokens that templates refer to by name. BOS and EOS are always defined, the others if not empty.
type Tokens struct {
	BOS, EOS, UNK, PAD string
}

// Template is a parsed chat template. It may be used from several goroutines at once.
type Template struct {
	tokens Tokens
	source string
	parsed *jinja.Template
}

// Mentions reports whether the source has this text, such as a marker.
func (t *Template) Mentions(text string) bool { return strings.Contains(t.source, text) }

// New parses the source of a template, the value of tokenizer.chat_template in a GGUF file. An error names the line.
func New(source string, tokens Tokens) (*Template, error) {
	parsed, err := jinja.Parse(source)
	if err != nil {
		return nil, fmt.Errorf("chat template: %w", err)
	}
	return &Template{tokens, source, parsed}, nil
}

// Options are the settings of one rendering.
type Options struct {
	// Tools are the functions that the model may call, each as a JSON value (jinja.FromJSON).
	Tools []jinja.Value
	// Documents are texts for retrieval-augmented templates, as JSON values.
	Documents []jinja.Value
	// AddGenerationPrompt ends the prompt with the opening of the assistant's turn.
	AddGenerationPrompt bool
	// MergeSystem puts the system message in front of the first user message where the template does not render it
	// (Template.RenderSegments says when). Without it the template alone decides, as in Python.
	MergeSystem bool
	// Now is the clock that the template sees; time.Now by default.
	Now func() time.Time
	// Extra are further variables, such as enable_thinking; their values go through encoding/json. Plain strings count as
	// the program's own, strings inside of lists and objects as content.
	Extra map[string]any
	// Limits bound the work of the template.
	Limits jinja.Limits
	// Context stops the rendering; nil never does.
	Context context.Context
}

// Segment is a part of a prompt.
type Segment struct {
	Text string
	// FromUser tells that the text came from a message (whoever wrote it), a tool or a document, and not from the
	// template: nothing in it may be taken for a special token.
	FromUser bool
}

// Render returns the prompt for a conversation.
func (t *Template) Render(messages []Message, opts Options) (string, error) {
	s, err := t.render(messages, opts)
	return s.String(), err
}

// RenderSegments returns the prompt in segments: neighbours differ in FromUser, none is empty, and together they are what
// Render returns. To tokenize them, look for special tokens in the template's segments only and encode all text between
// two special tokens as one piece: most tokenizers merge across the border of template and content, as in "[INST] Hi".
//
// With Options.MergeSystem, a system message at the start that the template refuses (by an error) or leaves out is merged
// by MergeSystem and rendered again. If that fails too, the error is the one of the first rendering.
func (t *Template) RenderSegments(messages []Message, opts Options) ([]Segment, error) {
	s, err := t.render(messages, opts)
	if err != nil {
		return nil, err
	}
	return segments(s), nil
}

func segments(s jinja.Str) []Segment {
	var out []Segment
	add := func(text string, fromUser bool) {
		if n := len(out); n > 0 && out[n-1].FromUser == fromUser {
			out[n-1].Text += text
		} else if text != "" {
			out = append(out, Segment{text, fromUser})
		}
	}
	last := 0
	for _, span := range s.Spans() {
		add(s.String()[last:span.Start], false)
		add(s.String()[span.Start:span.End], true)
		last = span.End
	}
	add(s.String()[last:], false)
	return out
}

func (t *Template) render(messages []Message, opts Options) (jinja.Str, error) {
	s, err := t.renderOnce(messages, opts)
	if !opts.MergeSystem || hasSystem(messages) == 0 {
		return s, err
	}
	switch {
	case err == nil && rendersSystem(s, messages):
		return s, nil
	case err != nil && !errors.Is(err, jinja.ErrRaised) && !errors.Is(err, jinja.ErrRuntime):
		return s, err
	}
	merged, mergedErr := t.renderOnce(MergeSystem(messages), opts)
	if mergedErr != nil {
		if err == nil {
			err = mergedErr
		}
		return jinja.Str{}, err
	}
	return merged, nil
}

// rendersSystem reports whether each system message at the start has left text in the prompt.
func rendersSystem(s jinja.Str, messages []Message) bool {
	for i, m := range messages[:hasSystem(messages)] {
		found := strings.TrimSpace(m.Text()) == ""
		for _, span := range s.Spans() {
			found = found || span.Source == i && strings.TrimSpace(s.String()[span.Start:span.End]) != ""
		}
		if !found {
			return false
		}
	}
	return true
}

func (t *Template) renderOnce(messages []Message, opts Options) (jinja.Str, error) {
	settings := jinja.Options{Now: opts.Now, Limits: opts.Limits, Context: opts.Context}
	vars, err := t.variables(messages, opts)
	if err != nil {
		return jinja.Str{}, fmt.Errorf("chat template: %w", err)
	}
	s, err := t.parsed.Render(vars, settings)
	if errors.Is(err, jinja.ErrRuntime) && (len(opts.Tools) == 0 || len(opts.Documents) == 0) {
		// apply_chat_template passes None for lists that are not given, so that is what templates are tested with. Some
		// loop over them nevertheless, which works only where the name is undefined.
		if vars, err := t.variables(messages, opts); err == nil {
			for _, name := range []string{"tools", "documents"} {
				if vars[name] == nil {
					delete(vars, name)
				}
			}
			if s, err := t.parsed.Render(vars, settings); err == nil {
				return s, nil
			}
		}
	}
	if err != nil {
		return jinja.Str{}, fmt.Errorf("chat template: %w", err)
	}
	return s, nil
}

// variables returns what the template sees, copied and marked anew: a template may change lists and mappings.
func (t *Template) variables(messages []Message, opts Options) (map[string]jinja.Value, error) {
	list := jinja.NewList()
	for i, m := range messages {
		list.Append(m.marked(i))
	}
	vars := map[string]jinja.Value{
		"messages":              list,
		"tools":                 marked(opts.Tools, len(messages)),
		"documents":             marked(opts.Documents, len(messages)+1),
		"add_generation_prompt": opts.AddGenerationPrompt,
		"bos_token":             jinja.NewStr(t.tokens.BOS),
		"eos_token":             jinja.NewStr(t.tokens.EOS),
	}
	for name, token := range map[string]string{"unk_token": t.tokens.UNK, "pad_token": t.tokens.PAD} {
		if token != "" {
			vars[name] = jinja.NewStr(token)
		}
	}
	for name, v := range opts.Extra {
		data, err := json.Marshal(v)
		if err != nil {
			return nil, fmt.Errorf("variable %q: %w", name, err)
		}
		value, err := jinja.FromJSON(data)
		if err != nil {
			return nil, fmt.Errorf("variable %q: %w", name, err)
		}
		if _, plain := value.(jinja.Str); !plain {
			value = jinja.Clone(value, len(messages)+2)
		}
		vars[name] = value
	}
	return vars, nil
}

// marked returns a copy of the values as a list with all strings marked, or None where there are none.
func marked(values []jinja.Value, source int) jinja.Value {
	if len(values) == 0 {
		return nil
	}
	list := jinja.NewList()
	for _, v := range values {
		list.Append(jinja.Clone(v, source))
	}
	return list
}
