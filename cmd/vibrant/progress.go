package main

import (
	"fmt"
	"io"
	"time"

	"github.com/vibrant-ml/vibrant"
)

// progress draws one line about loading on a terminal, and nothing elsewhere.
type progress struct {
	w     io.Writer // nil: silent
	last  time.Time
	drawn bool
}

func newProgress(w io.Writer) *progress {
	if !isTerminal(w) {
		return &progress{}
	}
	return &progress{w: raw(w), last: time.Now()}
}

func (p *progress) update(s vibrant.Progress) {
	// What loads at once shows nothing; else ten lines a second suffice.
	if p.w == nil || time.Since(p.last) < 100*time.Millisecond {
		return
	}
	p.last, p.drawn = time.Now(), true
	fmt.Fprintf(p.w, "\r\x1b[Kloading: %s of %s, layer %d of %d", byteSize(s.Bytes), byteSize(s.TotalBytes), s.Layers, s.TotalLayers)
}

// done clears the line.
func (p *progress) done() {
	if p.drawn {
		fmt.Fprint(p.w, "\r\x1b[K")
		p.drawn = false
	}
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
