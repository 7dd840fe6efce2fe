package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/vibrant-ml/vibrant"
)

// savedConversation is a file of /save and --session: its messages, from which the session computes its cache again.
type savedConversation struct {
	Model    string            `json:"model"`
	System   string            `json:"system,omitempty"`
	Messages []vibrant.Message `json:"messages"`
}

func (s *savedConversation) messages() []vibrant.Message {
	if s == nil {
		return nil
	}
	return s.Messages
}

// loadConversation reads a file of save. It returns os.ErrNotExist where there is none.
func loadConversation(path string) (*savedConversation, error) {
	st, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !st.Mode().IsRegular() {
		return nil, fmt.Errorf("%s: %w", path, errNotRegular)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	s := &savedConversation{}
	if err := json.Unmarshal(b, s); err != nil {
		return nil, fmt.Errorf("%s is no saved conversation: %w", path, err)
	}
	for i, m := range s.Messages {
		if m.Role != "user" && m.Role != "assistant" && m.Role != "system" {
			return nil, fmt.Errorf("%s is no saved conversation: message %d has the role %q", path, i+1, m.Role)
		}
	}
	return s, nil
}

// save writes the conversation whole or not at all, for its user alone.
func (c *chat) save(path string) (err error) {
	if path == "" {
		return errors.New("/save FILE: the name of the file is missing")
	}
	out, err := createOutput(path, io.Discard, c.flags.model)
	if err != nil {
		return err
	}
	defer func() { err = out.finish(err) }()
	if err := out.private(); err != nil {
		return err
	}
	e := json.NewEncoder(out)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(savedConversation{Model: c.model.Info().Name, System: c.session.System(), Messages: nonNilMessages(c.session.History())})
}

func nonNilMessages(m []vibrant.Message) []vibrant.Message {
	if m == nil {
		return []vibrant.Message{}
	}
	return m
}

// load replaces the conversation by a saved one.
func (c *chat) load(path string) error {
	if path == "" {
		return errors.New("/load FILE: the name of the file is missing")
	}
	saved, err := loadConversation(path)
	if err != nil {
		return err
	}
	if err := c.session.Reset(); err != nil {
		return err
	}
	c.session.SetSystem(saved.System)
	return c.session.SetHistory(saved.Messages)
}

// takeBack removes the newest question and its answer, and returns the question.
func (c *chat) takeBack() (question string, restore func(), err error) {
	h := c.session.History()
	for i := len(h) - 1; i >= 0; i-- {
		if h[i].Role == "user" {
			return h[i].Content, func() { c.session.SetHistory(h) }, c.session.SetHistory(h[:i])
		}
	}
	return "", nil, errors.New("there is no question yet")
}

// lastAnswer returns the newest answer.
func (c *chat) lastAnswer() (string, error) {
	h := c.session.History()
	if len(h) == 0 || h[len(h)-1].Role != "assistant" {
		return "", errors.New("there is no answer yet")
	}
	return h[len(h)-1].Content, nil
}
