package main

import (
	"fmt"
	"io"
	"os"
	"time"

	"github.com/rivo/uniseg"
	"golang.org/x/term"

	"github.com/vibrant-ml/vibrant"
)

// progress draws one line about long work on a terminal, and nothing elsewhere.
type progress struct {
	w     *os.File // nil: silent
	last  time.Time
	drawn bool
}

func newProgress(w io.Writer) *progress {
	if name := os.Getenv("TERM"); !isTerminal(w) || name == "dumb" || name == "" { // such a terminal cannot clear a line
		return &progress{}
	}
	return &progress{w: terminalFile(w), last: time.Now()}
}

// show draws the line anew, cut to the terminal's width. What is done at once shows nothing; else ten lines a second suffice.
func (p *progress) show(format string, args ...any) {
	if p.w == nil || time.Since(p.last) < 100*time.Millisecond {
		return
	}
	p.last, p.drawn = time.Now(), true
	line := []rune(fmt.Sprintf(format, args...))
	if columns, _, err := term.GetSize(int(p.w.Fd())); err == nil && columns > 0 {
		for len(line) > 0 && uniseg.StringWidth(string(line)) >= columns-len("^C") { // which the terminal shows behind it
			line = line[:len(line)-1]
		}
	}
	fmt.Fprint(p.w, "\r\x1b[K"+string(line))
}

// done clears the line.
func (p *progress) done() {
	if p.drawn {
		fmt.Fprint(p.w, "\r\x1b[K")
		p.drawn = false
	}
}

func (p *progress) loading(s vibrant.Progress) {
	p.show("loading: %s of %s, layer %d of %d", byteSize(s.Bytes), byteSize(s.TotalBytes), s.Layers, s.TotalLayers)
}

// prompt shows how far a prompt is, until it is computed. An interrupted one leaves its line to done.
func (p *progress) prompt() func(done, total int) {
	start, newest := time.Now(), 0
	return func(done, total int) {
		if done <= newest { // another prompt
			start = time.Now()
		}
		newest = done
		if done == total {
			p.done()
			newest, p.last = 0, time.Now()
			return
		}
		p.show("prompt: %d of %d tokens, %s left", done, total, timeLeft(start, done, total))
	}
}

// timeLeft estimates how long the rest of some work takes, of which a part is done since start.
func timeLeft(start time.Time, done, total int) time.Duration {
	return (time.Since(start) / time.Duration(max(done, 1)) * time.Duration(total-done)).Round(time.Second)
}

// byteSize formats bytes in decimal units, as file sizes are published.
func byteSize(n int64) string {
	if n < 1000 {
		return fmt.Sprintf("%d B", n)
	}
	return quantity(float64(n)) + "B"
}

// quantity formats a number with three digits and a decimal prefix: "1.54 G".
func quantity(x float64) string {
	for _, u := range []struct {
		size   float64
		prefix string
	}{{1e12, "T"}, {1e9, "G"}, {1e6, "M"}, {1e3, "k"}} {
		if x >= u.size {
			return fmt.Sprintf("%.3g %s", x/u.size, u.prefix)
		}
	}
	return fmt.Sprintf("%.0f ", x)
}
