package tensor

import (
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
)

// How much of a tensor is printed, as numpy's defaults have it.
const (
	printAll   = 1000 // elements; longer tensors are summarized
	printEdge  = 3    // places at either end of a dimension that is summarized
	printWidth = 75   // columns
	printDigit = 8    // behind the point
)

// String shows the elements as numpy prints arrays, for which it waits. Panics: *ShapeError, *OpError.
func (t *Tensor) String() string {
	var text string
	if err := Try(func() { text = t.array() }); err != nil {
		return fmt.Sprintf("%v%s on %s (%v)", t.dtype, shapeString(t.shape), t.Device(), err)
	}
	return text
}

// Format prints the elements for %v and %s, and with %+v their type, shape and device before them.
// Panics: *ShapeError, *OpError.
func (t *Tensor) Format(f fmt.State, verb rune) {
	if t == nil {
		fmt.Fprint(f, "<nil>")
		return
	}
	if verb == 'v' && f.Flag('+') {
		fmt.Fprintf(f, "%v%s on %s\n", t.dtype, shapeString(t.shape), t.Device())
	}
	fmt.Fprint(f, t.String())
}

var spacesAtEnd = regexp.MustCompile(" +\n")

// array prints the elements.
func (t *Tensor) array() (text string) {
	if t.n == 0 {
		return "[]"
	}
	Scope(func(func(*Tensor) *Tensor) {
		texts := t.shown().texts()
		width := 0
		for _, s := range texts {
			width = max(width, len(s))
		}
		for i, s := range texts {
			texts[i] = strings.Repeat(" ", width-len(s)) + s
		}
		var b strings.Builder
		t.nest(&b, &texts, 0, t.n > printAll, 1)
		text = spacesAtEnd.ReplaceAllString(b.String(), "\n")
	})
	return text
}

// shown returns the elements that are printed, of a type whose elements have addresses: of a tensor that is summarized, the elements at
// either end of each dimension. So a tensor of many gigabytes is not read for them.
func (t *Tensor) shown() *Tensor {
	if t.packed {
		t = Convert(t, F32)
	}
	summarized := t.n > printAll
	if rows := t.shape; t.dtype.Quantized() {
		if summarized && len(rows) > 1 && rows[0] > 2*printEdge {
			t = Concat(0, Convert(t.Slice(0, printEdge), F32), Convert(t.Slice(rows[0]-printEdge, rows[0]), F32))
		} else {
			t = Convert(t, F32)
		}
	}
	for summarized {
		longest := 0
		for d, n := range t.shape {
			if n > t.shape[longest] {
				longest = d
			}
		}
		n := t.shape[longest]
		if n <= 2*printEdge {
			break
		}
		t = Concat(longest, t.SliceAlong(longest, 0, printEdge, 1), t.SliceAlong(longest, n-printEdge, n, 1))
	}
	return t
}

// nest prints the elements of a dimension, of which texts are left, between brackets.
func (t *Tensor) nest(b *strings.Builder, texts *[]string, d int, summarized bool, indent int) {
	if d == len(t.shape) {
		b.WriteString((*texts)[0])
		*texts = (*texts)[1:]
		return
	}
	inner := d == len(t.shape)-1
	cut := summarized && t.shape[d] > 2*printEdge
	b.WriteByte('[')
	column := indent
	for i := 0; i < t.shape[d]; i++ {
		word := ""
		if cut && i == printEdge {
			word, i = "...", t.shape[d]-printEdge-1
		} else if inner {
			word = (*texts)[0]
			*texts = (*texts)[1:]
		}
		switch {
		case i == 0:
		case inner && column+1+len(word) > printWidth-len(t.shape): // room for the brackets at the end
			b.WriteString("\n" + strings.Repeat(" ", indent))
			column = indent
		case inner:
			b.WriteByte(' ')
			column++
		default:
			b.WriteString(strings.Repeat("\n", len(t.shape)-1-d) + strings.Repeat(" ", indent))
		}
		if inner || word != "" {
			b.WriteString(word)
			column += len(word)
		} else {
			t.nest(b, texts, d+1, summarized, indent+1)
		}
	}
	b.WriteByte(']')
}

// texts formats the elements, not yet aligned.
func (t *Tensor) texts() []string {
	texts := make([]string, t.n)
	if integers(t.dtype) {
		for i, v := range t.Int32s() {
			texts[i] = strconv.Itoa(int(v))
			if t.dtype == BOOL {
				texts[i] = map[bool]string{true: "True", false: "False"}[v != 0]
				if len(t.shape) > 0 {
					texts[i] = fmt.Sprintf("%5s", texts[i])
				}
			}
		}
		return texts
	}
	values := t.Float32s()
	if len(t.shape) == 0 {
		return []string{scalarText(values[0], t.dtype)}
	}
	least, most := math.Inf(1), 0.0
	for _, v := range values {
		if a := math.Abs(float64(v)); a != 0 && !math.IsInf(a, 0) && a == a {
			least, most = min(least, a), max(most, a)
		}
	}
	format := byte('f')
	if most >= greatest(t.dtype) || most > 0 && (least < 1e-4 || most/least > 1000) {
		format = 'e'
	}
	digits := 0 // behind the point, the most that an element needs
	for i, v := range values {
		texts[i] = floatText(v, t.dtype, format)
		_, fraction, _ := strings.Cut(mantissa(texts[i]), ".")
		digits = max(digits, len(fraction))
	}
	for i, text := range texts {
		_, fraction, finite := strings.Cut(mantissa(text), ".")
		switch {
		case finite && format == 'e' && digits > 0:
			texts[i] = strconv.FormatFloat(float64(values[i]), 'e', digits, 64)
		case finite && format == 'f':
			texts[i] += strings.Repeat(" ", digits-len(fraction))
		}
	}
	return texts
}

// greatest is from where on numbers of a type are printed with exponents.
func greatest(t DType) float64 {
	if t == F32 {
		return 1e6
	}
	return 1e3
}

// mantissa returns the text of a number before its exponent.
func mantissa(text string) string {
	m, _, _ := strings.Cut(text, "e")
	return m
}

// floatText returns the shortest text with a point that is no other element of the type. It has at most as many digits behind the point
// as are printed.
func floatText(v float32, t DType, format byte) string {
	if text, special := specialText(v); special {
		return text
	}
	text := strconv.FormatFloat(shortest(v, t), format, -1, 64)
	m := mantissa(text)
	if _, fraction, _ := strings.Cut(m, "."); len(fraction) > printDigit {
		text = strconv.FormatFloat(float64(v), format, printDigit, 64)
		if m = mantissa(text); format == 'f' {
			text = strings.TrimRight(text, "0")
			m = text
		}
	}
	if !strings.Contains(m, ".") {
		text = m + "." + text[len(m):]
	}
	return text
}

// scalarText is floatText of a tensor without dimensions, which numpy prints as a number.
func scalarText(v float32, t DType) string {
	if text, special := specialText(v); special {
		return text
	}
	d := shortest(v, t)
	if a := math.Abs(float64(v)); a != 0 && (a < 1e-4 || a >= greatest(t)) {
		return strconv.FormatFloat(d, 'e', -1, 64)
	}
	text := strconv.FormatFloat(d, 'f', -1, 64)
	if !strings.Contains(text, ".") {
		text += ".0"
	}
	return text
}

func specialText(v float32) (text string, special bool) {
	switch f := float64(v); {
	case math.IsNaN(f):
		return "nan", true
	case math.IsInf(f, 1):
		return "inf", true
	case math.IsInf(f, -1):
		return "-inf", true
	}
	return "", false
}

// shortest returns the number with the fewest decimal digits that is rounded to v in a type of floats.
func shortest(v float32, t DType) float64 {
	bits, least := 24, -149 // of the significand; the exponent of the smallest number
	switch t {
	case F16:
		bits, least = 11, -24
	case BF16:
		bits, least = 8, -133
	}
	exact := float64(v)
	fraction, exponent := math.Frexp(exact)
	gap := math.Ldexp(1, max(exponent-bits, least)) // to the next number of the type
	for digits := 0; ; digits++ {
		d, _ := strconv.ParseFloat(strconv.FormatFloat(exact, 'e', digits, 64), 64)
		within := gap / 2
		if math.Abs(fraction) == 0.5 && math.Abs(d) < math.Abs(exact) && exponent-bits > least { // below a power of two they are nearer
			within /= 2
		}
		off := math.Abs(d - exact)
		if off < within || off == within && math.Mod(exact/gap, 2) == 0 || d == exact { // numbers in the middle are rounded to even ones
			return d
		}
	}
}
