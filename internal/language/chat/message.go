package chat

import (
	"errors"
	"fmt"
	"strings"

	"github.com/vibrant-ml/vibrant/internal/language/chat/jinja"
)

// Message is one message of a conversation: a JSON object with a role and, mostly, a content. The content is a string, or a list
// of parts, of which those of type text have a text. Templates may look at other keys (tool_calls, tool_call_id, name,
// reasoning_content). Its keys keep their order. Messages are values: the methods that change one return a copy.
type Message struct{ fields *jinja.Dict }

// NewMessage returns a message with a role (system, user, assistant, tool) and a text.
func NewMessage(role, content string) Message {
	d := jinja.NewDict()
	d.Set("role", jinja.NewStr(role))
	d.Set("content", jinja.NewStr(content))
	return Message{d}
}

// Role returns who speaks.
func (m Message) Role() string {
	s, _ := m.get("role").(jinja.Str)
	return s.String()
}

// Text returns the content as text: of a list of parts, the texts in it with nothing between.
func (m Message) Text() string {
	switch c := m.get("content").(type) {
	case jinja.Str:
		return c.String()
	case *jinja.List:
		var b strings.Builder
		for i := 0; i < c.Len(); i++ {
			if part, ok := c.At(i).(*jinja.Dict); ok {
				text, _ := part.Get("text")
				s, _ := text.(jinja.Str)
				b.WriteString(s.String())
			}
		}
		return b.String()
	}
	return ""
}

// Get returns the value of a key, nil if there is none.
func (m Message) get(key string) jinja.Value {
	if m.fields == nil {
		return nil
	}
	v, _ := m.fields.Get(key)
	return v
}

// With returns a copy of the message with a value (jinja.NewStr, jinja.FromJSON) stored under a key.
func (m Message) With(key string, v jinja.Value) Message {
	d := jinja.NewDict()
	if m.fields != nil {
		d = jinja.Clone(m.fields, -1).(*jinja.Dict)
	}
	d.Set(key, v)
	return Message{d}
}

// UnmarshalJSON reads a message, and refuses one without a role or with a content that is no text, list or null.
func (m *Message) UnmarshalJSON(data []byte) error {
	v, err := jinja.FromJSON(data)
	if err != nil {
		return err
	}
	read, err := messageOf(v)
	if err != nil {
		return err
	}
	*m = read
	return nil
}

// MarshalJSON writes the message with its keys in order.
func (m Message) MarshalJSON() ([]byte, error) {
	if m.fields == nil {
		return []byte("{}"), nil
	}
	s, err := jinja.ToJSON(m.fields)
	return []byte(s), err
}

func messageOf(v jinja.Value) (Message, error) {
	d, ok := v.(*jinja.Dict)
	if !ok {
		return Message{}, errors.New("a message must be an object")
	}
	m := Message{d}
	if _, ok := m.get("role").(jinja.Str); !ok {
		return Message{}, errors.New(`a message needs a "role" that is a string`)
	}
	switch m.get("content").(type) {
	case nil, jinja.Str, *jinja.List:
		return m, nil
	}
	return Message{}, errors.New(`the "content" of a message must be a string, a list of parts or null`)
}

// marked returns the fields for a template to use, all strings marked as coming from source. The role alone is not:
// it is a word of the protocol, and some templates build special tokens of it ('<|' + role + '|>').
func (m Message) marked(source int) jinja.Value {
	if m.fields == nil {
		return jinja.NewDict()
	}
	d := jinja.Clone(m.fields, source).(*jinja.Dict)
	if role, ok := m.get("role").(jinja.Str); ok {
		d.Set("role", role)
	}
	return d
}

// hasSystem returns how many messages at the start are the system's.
func hasSystem(messages []Message) int {
	n := 0
	for n < len(messages) && (messages[n].Role() == "system" || messages[n].Role() == "developer") {
		n++
	}
	return n
}

// MergeSystem returns the conversation with the system messages at its start put in front of the first user message, a
// newline between, for templates that know no system role. Without a user message they become one.
func MergeSystem(messages []Message) []Message {
	n := hasSystem(messages)
	if n == 0 {
		return messages
	}
	var texts []string
	for _, m := range messages[:n] {
		if text := m.Text(); text != "" {
			texts = append(texts, text)
		}
	}
	system := strings.Join(texts, "\n")
	rest := append([]Message(nil), messages[n:]...)
	if system == "" {
		return rest
	}
	for i, m := range rest {
		if m.Role() == "user" {
			rest[i] = m.prepend(system + "\n")
			return rest
		}
	}
	return append([]Message{NewMessage("user", system)}, rest...)
}

// prepend puts text in front of the content.
func (m Message) prepend(text string) Message {
	parts, ok := m.get("content").(*jinja.List)
	if !ok {
		return m.With("content", jinja.NewStr(text+m.Text()))
	}
	part := jinja.NewDict()
	part.Set("type", jinja.NewStr("text"))
	part.Set("text", jinja.NewStr(text))
	list := jinja.NewList(part)
	for i := 0; i < parts.Len(); i++ {
		list.Append(parts.At(i))
	}
	return m.With("content", list)
}

// Conversation is what a messages file holds.
type Conversation struct {
	Messages []Message
	Tools    []jinja.Value
	// Documents and Extra fill the fields of that name in Options.
	Documents []jinja.Value
	Extra     map[string]any
}

// ParseConversation reads a messages file: a JSON list of messages, or an object with "messages" and, if wanted, "tools",
// "documents" (lists) and "chat_template_kwargs" (an object of further variables).
func ParseConversation(data []byte) (Conversation, error) {
	var c Conversation
	v, err := jinja.FromJSON(data)
	if err != nil {
		return c, fmt.Errorf("messages: %w", err)
	}
	d, ok := v.(*jinja.Dict)
	if !ok {
		d = jinja.NewDict()
		d.Set("messages", v)
	}
	if _, ok := d.Get("messages"); !ok {
		return c, errors.New(`messages: the object has no "messages"`)
	}
	d.Each(func(key, value jinja.Value) bool {
		err = c.set(key.(jinja.Str).String(), value)
		return err == nil
	})
	return c, err
}

func (c *Conversation) set(key string, value jinja.Value) error {
	if key == "chat_template_kwargs" {
		d, ok := value.(*jinja.Dict)
		if !ok {
			return fmt.Errorf("messages: %q must be an object", key)
		}
		c.Extra = map[string]any{}
		d.Each(func(key, value jinja.Value) bool {
			c.Extra[key.(jinja.Str).String()] = rawJSON{value}
			return true
		})
		return nil
	}
	if key != "messages" && key != "tools" && key != "documents" {
		return fmt.Errorf(`messages: unknown key %q (known: messages, tools, documents, chat_template_kwargs)`, key)
	}
	if value == nil && key != "messages" {
		return nil
	}
	list, ok := value.(*jinja.List)
	if !ok {
		return fmt.Errorf("messages: %q must be a list", key)
	}
	for i := 0; i < list.Len(); i++ {
		switch key {
		case "messages":
			m, err := messageOf(list.At(i))
			if err != nil {
				return fmt.Errorf("messages: message %d: %w", i+1, err)
			}
			c.Messages = append(c.Messages, m)
		case "tools":
			c.Tools = append(c.Tools, list.At(i))
		default:
			c.Documents = append(c.Documents, list.At(i))
		}
	}
	return nil
}

// rawJSON lets a value pass through encoding/json with its order and number types.
type rawJSON struct{ v jinja.Value }

func (r rawJSON) MarshalJSON() ([]byte, error) {
	s, err := jinja.ToJSON(r.v)
	return []byte(s), err
}

// RenderFile renders the conversation of a messages file (see ParseConversation). Tools and documents of the file stand in
// for those of opts, and its variables are added.
func (t *Template) RenderFile(data []byte, opts Options) (string, error) {
	c, err := ParseConversation(data)
	if err != nil {
		return "", err
	}
	return t.Render(c.Messages, c.Apply(opts))
}

// Apply returns opts with the tools, documents and variables of the conversation, where it has some.
func (c Conversation) Apply(opts Options) Options {
	if c.Tools != nil {
		opts.Tools = c.Tools
	}
	if c.Documents != nil {
		opts.Documents = c.Documents
	}
	if c.Extra != nil {
		extra := map[string]any{}
		for k, v := range opts.Extra {
			extra[k] = v
		}
		for k, v := range c.Extra {
			extra[k] = v
		}
		opts.Extra = extra
	}
	return opts
}
