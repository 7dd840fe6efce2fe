package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"

	"github.com/ergochat/readline"
)

// lineReader reads lines with a prompt.
type lineReader interface {
	// line returns io.EOF at the end of input (Ctrl-D) and errLineInterrupted on Ctrl-C.
	line(prompt string) (string, error)
	close()
}

var errLineInterrupted = errors.New("interrupted")

const fence = `"""`

// readTurn reads what the user says next: a line, or all lines between two fences.
func readTurn(r lineReader) (string, error) {
	first, err := r.line(">>> ")
	if err != nil {
		return "", err
	}
	trimmed := strings.TrimSpace(first)
	if !strings.HasPrefix(trimmed, fence) {
		return trimmed, nil
	}
	rest := strings.TrimPrefix(trimmed, fence)
	if text, ok := strings.CutSuffix(rest, fence); ok {
		return text, nil
	}
	var lines []string
	if rest != "" {
		lines = append(lines, rest)
	}
	for {
		next, err := r.line("... ")
		if err != nil {
			return "", err
		}
		if text, ok := strings.CutSuffix(strings.TrimRight(next, " \t"), fence); ok {
			if text != "" {
				lines = append(lines, text)
			}
			return strings.Join(lines, "\n"), nil
		}
		lines = append(lines, next)
	}
}

// terminalReader edits lines on the terminal and keeps their history.
type terminalReader struct{ rl *readline.Instance }

func newLineReader() (lineReader, error) {
	rl, err := readline.NewFromConfig(&readline.Config{
		Prompt:            ">>> ",
		HistoryFile:       historyFile(),
		HistoryLimit:      1000,
		HistorySearchFold: true,
		InterruptPrompt:   "\n",
		EOFPrompt:         "\n",
		AutoComplete:      commandCompleter(),
	})
	if err != nil {
		return nil, err
	}
	return terminalReader{rl}, nil
}

func (t terminalReader) line(prompt string) (string, error) {
	t.rl.SetPrompt(prompt)
	line, err := t.rl.ReadLine()
	if errors.Is(err, readline.ErrInterrupt) {
		return "", errLineInterrupted
	}
	return line, err
}

func (t terminalReader) close() { t.rl.Close() }

// historyFile returns where typed lines are kept, by the XDG convention; "" (no history) where there is no home or it
// cannot be written.
func historyFile() string {
	dir := os.Getenv("XDG_STATE_HOME")
	if dir == "" {
		home, err := os.UserHomeDir()
		if err != nil || home == "" {
			return ""
		}
		dir = filepath.Join(home, ".local", "state")
	}
	dir = filepath.Join(dir, "vibrant")
	if os.MkdirAll(dir, 0o700) != nil {
		return ""
	}
	path := filepath.Join(dir, "history")
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return ""
	}
	f.Close()
	return path
}

func commandCompleter() readline.AutoCompleter {
	var items []*readline.PrefixCompleter
	for _, c := range chatCommands {
		items = append(items, readline.PcItem(c.name))
	}
	return readline.NewPrefixCompleter(items...)
}
