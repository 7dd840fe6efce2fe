package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync/atomic"
	"unicode"
	"unicode/utf8"

	"golang.org/x/term"
)

// isTerminal reports whether v is a terminal: a file, or a screen over one.
func isTerminal(v any) bool {
	f := terminalFile(v)
	return f != nil && term.IsTerminal(int(f.Fd()))
}

// terminalFile returns the file behind v, nil if there is none.
func terminalFile(v any) *os.File {
	switch v := v.(type) {
	case *os.File:
		return v
	case *screen:
		return v.file
	case *resultWriter:
		return terminalFile(v.Writer)
	}
	return nil
}

// screen writes to a terminal and shows control characters instead of sending them. File names, texts of files and
// generated texts could otherwise move the cursor, set the title, reorder a line or answer for the user. Newlines and tabs pass.
type screen struct {
	file    *os.File
	pending []byte // the beginning of a character
}

// onScreen returns a screen where w is a terminal, else w: what is piped stays as it is.
func onScreen(w io.Writer) io.Writer {
	if f, ok := w.(*os.File); ok && isTerminal(f) {
		return &screen{file: f}
	}
	return w
}

func (s *screen) Write(b []byte) (int, error) {
	text := append(s.pending, b...)
	s.pending = nil
	var out strings.Builder
	for len(text) > 0 {
		if !utf8.FullRune(text) {
			s.pending = append([]byte(nil), text...)
			break
		}
		r, n := utf8.DecodeRune(text)
		switch {
		case r == '\n' || r == '\t' || r == '\r' && len(text) > 1 && text[1] == '\n':
			out.WriteRune(r)
		case unicode.IsControl(r), reorders(r):
			out.WriteString(escaped(r))
		default:
			out.WriteRune(r) // U+FFFD for a stray byte, which may be a control character of an 8-bit terminal
		}
		text = text[n:]
	}
	if _, err := io.WriteString(s.file, out.String()); err != nil {
		return 0, err
	}
	return len(b), nil
}

// raw returns a writer that a terminal obeys, for the command's own control sequences.
func raw(w io.Writer) io.Writer {
	switch w := w.(type) {
	case *screen:
		return w.file
	case *resultWriter:
		return raw(w.Writer)
	}
	return w
}

func escaped(r rune) string {
	if r < 0x80 {
		return fmt.Sprintf(`\x%02x`, r)
	}
	return fmt.Sprintf(`\u%04x`, r)
}

// reorders reports whether a character has a terminal show others in another order (Unicode Standard Annex 9), as names that lie do.
func reorders(r rune) bool { return r >= 0x202a && r <= 0x202e || r >= 0x2066 && r <= 0x2069 }

// unseen reports whether a character of a name is not shown, or ends a line.
func unseen(r rune) bool {
	return unicode.IsControl(r) || reorders(r) || r == 0x200e || r == 0x200f || r == 0x61c || r == 0x2028 || r == 0x2029 || r == 0xfeff
}

// oneLine returns a text of a file as part of a line: control characters, newlines too, are escaped.
func oneLine(text string) string {
	if strings.IndexFunc(text, unseen) < 0 {
		return text
	}
	var out strings.Builder
	for _, r := range text {
		if unseen(r) {
			out.WriteString(escaped(r))
		} else {
			out.WriteRune(r)
		}
	}
	return out.String()
}

// shorten leaves out the middle of a text of more than limit characters.
func shorten(text string, limit int) string {
	r := []rune(text)
	if len(r) <= limit {
		return text
	}
	return string(r[:limit*2/3]) + "..." + string(r[len(r)-limit/3:])
}

// Terminals put these marks around pasted text where they were asked to ("bracketed paste", ESC[?2004h), until leavePastes:
// https://invisible-island.net/xterm/ctlseqs/ctlseqs.html#h2-Bracketed-Paste-Mode
const (
	pasteStart  = "\x1b[200~"
	pasteEnd    = "\x1b[201~"
	leavePastes = "\x1b[?2004l"
)

// atExit is how a terminal was before it was read from, nil while it is as it was.
var atExit atomic.Pointer[terminalState]

type terminalState struct {
	file  int
	state *term.State
	out   *os.File
}

// restoreTerminal is for the end of the process in the middle of a line.
func restoreTerminal() {
	if t := atExit.Load(); t != nil {
		io.WriteString(t.out, leavePastes)
		term.Restore(t.file, t.state)
	}
}
