//go:build !js && !wasip1 && !plan9

package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/ergochat/readline"
	"github.com/rivo/uniseg"
	"golang.org/x/term"
)

// newLineReader returns a reader that edits lines where the terminal takes part in it, else one that reads plain lines.
func newLineReader(in, out *os.File) (terminalReader, error) {
	if name := os.Getenv("TERM"); name == "dumb" || name == "" {
		return newPlainReader(in, out), nil
	}
	typed, answers, err := probe(in, out)
	if err != nil {
		return nil, err
	}
	if strings.Contains(typed, "\x03") { // Ctrl-C before there is a prompt
		return nil, context.Canceled
	}
	if !answers {
		return newPlainReader(io.MultiReader(strings.NewReader(cooked(typed)), in), out), nil
	}
	return newEditor(io.MultiReader(strings.NewReader(typed), in), in, out, historyPath())
}

// editor edits lines on the terminal and keeps their history.
type editor struct {
	rl      *readline.Instance
	makeRaw func() error
	exitRaw func() error
	out     *os.File
	history *history
}

func newEditor(input io.Reader, in, out *os.File, historyPath string) (*editor, error) {
	var state *term.State // before it became raw; nil: it is not
	enterRaw := func() (err error) {
		if state == nil {
			state, err = makeRaw(in, out)
		}
		return err
	}
	exitRaw := func() error {
		if state == nil {
			return nil
		}
		before := state
		state = nil
		return leaveRaw(in, before)
	}
	pastes := &pasteReader{r: input}
	var graphemes graphemeEraser
	rl, err := readline.NewFromConfig(&readline.Config{
		HistoryLimit:      historyLimit,
		HistorySearchFold: true,
		InterruptPrompt:   "\n",
		EOFPrompt:         "\n",
		AutoComplete:      commandCompleter(),
		Painter:           showPasted,
		Stdin:             pastes,
		Listener: func(line []rune, pos int, key rune) ([]rune, int, bool) {
			if key != pasteKey {
				return graphemes.listen(line, pos, key)
			}
			line, pos, ok := pastes.insert(line, pos)
			if ok {
				graphemes.line, graphemes.pos = slices.Clone(line), pos
			}
			return line, pos, ok
		},
		Stdout:         lineEnds{out},
		Stderr:         lineEnds{out},
		FuncIsTerminal: func() bool { return true },
		FuncMakeRaw:    enterRaw,
		FuncExitRaw:    exitRaw,
		FuncFilterInputRune: func(key rune) (rune, bool) {
			switch key {
			case readline.CharCtrlZ: // the editor itself would wait for SIGCONT, which may never come
				exitRaw()
				suspend()
				enterRaw()
				return key, false
			case 0: // what the terminal's driver makes of a Ctrl-D during an answer: unseen, it would keep the next one from leaving
				return key, false
			}
			return key, true
		},
		FuncGetSize: func() (width, height int) {
			if width, height, err := term.GetSize(int(out.Fd())); err == nil && width > 0 {
				return width, height
			}
			return 80, 24
		},
	})
	if err != nil {
		return nil, err
	}
	e := &editor{rl: rl, makeRaw: enterRaw, exitRaw: exitRaw, out: out, history: openHistory(historyPath)}
	for _, line := range e.history.lines {
		rl.SaveToHistory(line)
	}
	return e, nil
}

func (e *editor) begin() { e.makeRaw() }

func (e *editor) line(prompt string) (string, error) {
	e.rl.SetPrompt(prompt)
	io.WriteString(e.out, markPastes)
	line, err := e.rl.ReadLine()
	io.WriteString(e.out, leavePastes)
	if errors.Is(err, readline.ErrInterrupt) {
		return "", errLineInterrupted
	}
	if err == nil {
		e.history.add(line)
	}
	return fromPasted(line), err
}

// lineEnds puts a carriage return before each newline. The editor writes newlines alone, and a terminal in raw mode does not add it.
type lineEnds struct{ w io.Writer }

func (l lineEnds) Write(b []byte) (int, error) {
	if _, err := l.w.Write(bytes.ReplaceAll(b, []byte("\n"), []byte("\r\n"))); err != nil {
		return 0, err
	}
	return len(b), nil
}

// prefill has the next line begin as a text, for the user to edit.
func (e *editor) prefill(text string) { e.rl.SetDefault(toPasted(text)) }

func (e *editor) close() {
	e.exitRaw()
	e.rl.Close()
}

// showPasted draws the control characters of pasted text as one visible character each.
func showPasted(line []rune, _ int) []rune {
	shown := make([]rune, len(line))
	for i, r := range line {
		switch r {
		case pasted + '\n':
			r = '↵'
		case pasted + '\t':
			r = ' '
		}
		shown[i] = r
	}
	return shown
}

// graphemeEraser has Backspace and Delete take what the user sees as one character, of how many code points it may be.
type graphemeEraser struct {
	line []rune // before the key
	pos  int
}

func (g *graphemeEraser) listen(line []rune, pos int, key rune) ([]rune, int, bool) {
	before, at := g.line, g.pos
	g.line, g.pos = append([]rune(nil), line...), pos
	if len(before) != len(line)+1 {
		return nil, 0, false
	}
	start, end := graphemeAt(before, pos)
	backward := key == readline.CharBackspace || key == readline.CharCtrlH
	if !backward && key != readline.MetaDeleteKey && key != readline.CharEOT || end-start < 2 || backward && end != at {
		return nil, 0, false
	}
	g.line = append(append([]rune(nil), before[:start]...), before[end:]...)
	g.pos = start
	return append([]rune(nil), g.line...), start, true
}

// graphemeAt returns where the grapheme cluster that holds a rune begins and ends.
func graphemeAt(line []rune, pos int) (start, end int) {
	clusters := uniseg.NewGraphemes(string(line))
	for clusters.Next() {
		end = start + len(clusters.Runes())
		if pos < end {
			return start, end
		}
		start = end
	}
	return start, start
}

func commandCompleter() readline.AutoCompleter {
	var items []*readline.PrefixCompleter
	for _, c := range chatCommands {
		items = append(items, readline.PcItem(c.name))
	}
	return readline.NewPrefixCompleter(items...)
}
