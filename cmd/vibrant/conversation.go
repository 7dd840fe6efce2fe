package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/vibrant-ml/vibrant"
)

// savedConversation is a file of /save and --session: its messages. Beside it, in cacheFile, is the session's cache, without which it
// computes them again.
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

var errNotRegular = errors.New("not a regular file")

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
	if s.Messages == nil {
		return nil, fmt.Errorf("%s is no saved conversation: it has no messages", path)
	}
	for i, m := range s.Messages {
		if m.Role != "user" && m.Role != "assistant" && m.Role != "system" {
			return nil, fmt.Errorf("%s is no saved conversation: message %d has the role %q", path, i+1, m.Role)
		}
	}
	return s, nil
}

// save writes the conversation whole or not at all, for its user alone. In the place of a file it does so only of a conversation's.
func (c *chat) save(path string) (err error) {
	if path == "" {
		return errors.New("/save FILE: the name of the file is missing")
	}
	if st, err := os.Stat(path); err == nil && st.Mode().IsRegular() && st.Size() > 0 {
		if _, err := loadConversation(path); err != nil {
			return fmt.Errorf("a file of another kind is there and stays: %w", err)
		}
	}
	out, err := createOutput(path, io.Discard, c.flags.inputs()...)
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

// atHome puts the user's folder in place of a ~ that a path typed into a chat begins with, as shells do on a command line.
func atHome(path string) string {
	if rest, ok := strings.CutPrefix(path, "~/"); ok {
		if home, err := os.UserHomeDir(); err == nil {
			return filepath.Join(home, rest)
		}
	}
	return path
}

// cacheFile is where the cache of a saved conversation lies.
func cacheFile(path string) string { return path + ".cache" }

// saveCache writes the session's cache whole or not at all, for its user alone. A conversation that is no regular file has none.
func (c *chat) saveCache(path string) (err error) {
	if st, err := os.Stat(path); err != nil || !st.Mode().IsRegular() {
		return nil
	}
	out, err := createOutput(cacheFile(path), io.Discard, c.flags.inputs()...)
	if err != nil {
		return err
	}
	defer func() { err = out.finish(err) }()
	if err := out.private(); err != nil {
		return err
	}
	buffered := bufio.NewWriterSize(out, 1<<20)
	if err := c.session.WriteCache(buffered); err != nil {
		return err
	}
	return buffered.Flush()
}

// loadCache has the session go on with the cache of a saved conversation. A cache that does not fit costs the time of computing the
// conversation again, and a line that says so.
func (c *chat) loadCache(path string) error {
	name := cacheFile(path)
	st, err := os.Stat(name)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err == nil && !st.Mode().IsRegular() {
		err = errNotRegular
	}
	var f *os.File
	if err == nil {
		f, err = os.Open(name)
	}
	if err == nil {
		defer f.Close()
		err = c.session.ReadCache(bufio.NewReaderSize(f, 1<<20))
	}
	if errors.Is(err, vibrant.ErrClosed) || errors.Is(err, vibrant.ErrBusy) {
		return err
	}
	if err != nil {
		fmt.Fprintf(c.cmd.ErrOrStderr(), "vibrant: note: the conversation is computed again: %s: %s\n", oneLine(name), errorLine(err))
	}
	return nil
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
	if err := c.session.SetHistory(saved.Messages); err != nil {
		return err
	}
	return c.loadCache(path)
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
