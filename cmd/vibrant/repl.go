package main

import (
	"errors"
	"strings"
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
