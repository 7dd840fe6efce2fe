//go:build !js && !wasip1 && !plan9

package main

import (
	"bytes"
	"io"
	"slices"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"
)

// markPastes asks the terminal for marks around pasted text.
const markPastes = "\x1b[?2004h"

// pasted is added to the newlines and tabs of pasted text while the line is edited, so that they end and complete
// nothing. The sums are of Unicode's private use area: no keyboard has them.
const pasted = '\uf700'

// toPasted prepares pasted text for the line editor. Other control characters than newline and tab are dropped.
func toPasted(text string) string {
	text = strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(text)
	text = strings.TrimRight(text, "\n")
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\t':
			return pasted + r
		case unicode.IsControl(r):
			return -1
		}
		return r
	}, text)
}

// fromPasted gives an edited line its newlines and tabs back.
func fromPasted(line string) string {
	return strings.NewReplacer(string(pasted+'\n'), "\n", string(pasted+'\t'), "\t").Replace(line)
}

// pasteKey stands for a pasted text among the keys. The line editor takes keys one by one, and each takes as long as the line is:
// the text comes into the line at once instead.
const pasteKey = '\uf6ff'

// fewestPasted is the length from which a text without control characters counts as pasted where one read brings it: from terminals
// without the marks, and from programs that type.
const fewestPasted = 64

// pasteReader reads what is typed, and a pasteKey for what is pasted.
type pasteReader struct {
	r   io.Reader
	in  []byte // read, but not looked at
	out []byte // to give out
	err error

	searched int // bytes of in that the end of its paste is not in

	mu    sync.Mutex
	texts [][]rune // of the keys that were given out, by toPasted
}

// paste gives out the key of a text.
func (p *pasteReader) paste(text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.texts = append(p.texts, []rune(toPasted(text)))
	p.out = utf8.AppendRune(p.out, pasteKey)
}

// insert puts the text of the next pasteKey in the place of the key, which is before pos. A search, which has no line, drops it.
func (p *pasteReader) insert(line []rune, pos int) ([]rune, int, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.texts) == 0 {
		return nil, 0, false
	}
	text := p.texts[0]
	p.texts = p.texts[1:]
	if pos == 0 || line[pos-1] != pasteKey {
		return nil, 0, false
	}
	return slices.Concat(line[:pos-1], text, line[pos:]), pos - 1 + len(text), true
}

func (p *pasteReader) Read(b []byte) (int, error) {
	for len(p.out) == 0 {
		if p.err != nil {
			return 0, p.err
		}
		var chunk [4096]byte
		n, err := p.r.Read(chunk[:])
		p.in, p.err = append(p.in, chunk[:n]...), err
		p.rewrite()
	}
	n := copy(b, p.out)
	p.out = p.out[n:]
	return n, nil
}

// keys gives out what came without marks. What follows an Escape may be the name of a key.
func (p *pasteReader) keys(in []byte) {
	for escaped := false; len(in) > 0; {
		n := bytes.IndexFunc(in, unicode.IsControl)
		if n < 0 {
			n = len(in)
		}
		if n >= fewestPasted && !escaped && utf8.Valid(in[:n]) {
			p.paste(string(in[:n]))
		} else {
			n = max(n, 1)
			p.out = append(p.out, in[:n]...)
		}
		escaped = in[n-1] == '\x1b'
		in = in[n:]
	}
}

// rewrite moves what is complete from in to out.
func (p *pasteReader) rewrite() {
	for {
		start := bytes.Index(p.in, []byte(pasteStart))
		if start < 0 {
			// An Escape key alone must not wait for more: only a longer beginning of the mark does.
			keep := 0
			for n := len(pasteStart) - 1; n > 2 && p.err == nil; n-- {
				if bytes.HasSuffix(p.in, []byte(pasteStart[:n])) {
					keep = n
					break
				}
			}
			p.keys(p.in[:len(p.in)-keep])
			p.in = p.in[len(p.in)-keep:]
			return
		}
		p.keys(p.in[:start])
		p.in = p.in[start:]
		end := bytes.Index(p.in[p.searched:], []byte(pasteEnd))
		if end < 0 {
			p.searched = max(0, len(p.in)-len(pasteEnd)+1)
			if p.err != nil { // the input ended inside
				p.paste(string(p.in[len(pasteStart):]))
				p.in = nil
			}
			return
		}
		end += p.searched
		p.searched = 0
		text := p.in[len(pasteStart):end]
		if !utf8.Valid(text) {
			text = bytes.ToValidUTF8(text, []byte("\ufffd"))
		}
		p.paste(string(text))
		p.in = p.in[end+len(pasteEnd):]
	}
}
