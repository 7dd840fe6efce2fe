package main

import (
	"bufio"
	"io"
	"os"
	"os/signal"
	"regexp"
	"strings"
	"sync/atomic"
)

// plainReader reads lines as the terminal's driver edits them: where it takes no part in line editing, as TERM=dumb,
// script and the shells of editors.
type plainReader struct {
	out        io.Writer
	lines      chan readLine
	interrupts chan os.Signal
	cancelled  atomic.Int64 // lines, by Ctrl-C
	prompted   bool
}

type readLine struct {
	text string
	err  error
}

func newPlainReader(in io.Reader, out io.Writer) *plainReader {
	p := &plainReader{out: out, lines: make(chan readLine), interrupts: make(chan os.Signal, 1)}
	signal.Notify(p.interrupts, os.Interrupt)
	go func() { // ends with the input, or with the process
		r := bufio.NewReader(in)
		for {
			text, err := p.read(r)
			p.lines <- readLine{text, err}
			if err != nil {
				return
			}
		}
	}()
	return p
}

// positionReport is the answer to a probe that came late.
var positionReport = regexp.MustCompile(`\x1b\[[0-9]+;[0-9]+R`)

// read reads a line, or all lines of a paste that the terminal has marked. Ctrl-C takes back what came of a paste: the terminal's
// driver drops the rest and its end.
func (p *plainReader) read(r *bufio.Reader) (string, error) {
	line, err := r.ReadString('\n')
	begun := func(line string) int { return strings.Count(line, pasteStart) - strings.Count(line, pasteEnd) }
	lines, pastes, cancelled := []byte(line), begun(line), p.cancelled.Load()
	for err == nil && pastes > 0 {
		line, err = r.ReadString('\n')
		if now := p.cancelled.Load(); now != cancelled {
			cancelled, lines, pastes = now, nil, 0
		}
		lines, pastes = append(lines, line...), pastes+begun(line)
	}
	text := string(lines)
	if text != "" && err == io.EOF {
		err = nil
	}
	text = strings.NewReplacer(pasteStart, "", pasteEnd, "", "\r\n", "\n").Replace(text)
	return strings.TrimSuffix(positionReport.ReplaceAllString(text, ""), "\n"), err
}

func (p *plainReader) begin() {}

func (p *plainReader) line(prompt string) (string, error) {
	if p.prompted {
		select {
		case <-p.interrupts: // of earlier: it stopped an answer
		default:
		}
	}
	p.prompted = true
	io.WriteString(p.out, prompt)
	select {
	case l := <-p.lines:
		if l.err != nil {
			io.WriteString(p.out, "\n")
		}
		return l.text, l.err
	case <-p.interrupts:
		p.cancelled.Add(1)
		io.WriteString(p.out, "\n")
		return "", errLineInterrupted
	}
}

func (p *plainReader) close() { signal.Stop(p.interrupts) }
