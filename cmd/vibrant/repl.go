package main

import (
	"errors"
	"fmt"
	"io"
	"strings"
)

// lineReader reads lines with a prompt.
type lineReader interface {
	// line returns io.EOF at the end of input (Ctrl-D) and errLineInterrupted on Ctrl-C.
	line(prompt string) (string, error)
	close()
}

// terminalReader reads the lines of a terminal.
type terminalReader interface {
	lineReader
	// begin takes the keys from the terminal, so that Ctrl-C is a key from then on, where lines are edited here.
	begin()
}

var errLineInterrupted = errors.New("interrupted")

const fence = `"""`

// readTurn reads what the user says next: a line, or all lines between two fences. Input that ends between them is
// io.ErrUnexpectedEOF.
func readTurn(r lineReader) (string, error) {
	first, err := r.line(">>> ")
	if err != nil {
		return "", err
	}
	trimmed := strings.TrimSpace(first)
	if !strings.HasPrefix(trimmed, fence) {
		if strings.Contains(trimmed, "\n") && !strings.HasPrefix(trimmed, "/") { // a paste keeps its indentation
			return strings.TrimRight(first, " \t\r\n"), nil
		}
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
		if err == io.EOF {
			err = fmt.Errorf("the message that %s begins has no end: %w", fence, io.ErrUnexpectedEOF)
		}
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
