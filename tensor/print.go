package tensor

import (
	"fmt"
	"math"
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

// String shows the elements as numpy prints arrays, for which it waits.
func (t *Tensor) String() string {
	var text string
	if err := Try(func() { text = t.array() }); err != nil {
		return fmt.Sprintf("%v%s on %s (%v)", t.dtype, shapeString(t.shape), t.Device(), err)
	}
	return text
}

// Format prints the elements for %v and %s, and with %+v their type, shape and device before them.
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

// array prints the elements.
func (t *Tensor) array() string {
	if t.packed || t.dtype.Quantized() {
		t = Convert(t, F32)
		defer t.Free()
	}
	if t.n == 0 {
		return "[]"
	}
	summarized := t.n > printAll
	var places []int // numbers of the elements that are shown, in row-major order
	var walk func(d, from int)
	strides := rowMajor(t.shape)
	walk = func(d, from int) {
		if d == len(t.shape) {
			places = append(places, from)
			return
		}
		for i := 0; i < t.shape[d]; i++ {
			if summarized && t.shape[d] > 2*printEdge && i == printEdge {
				i = t.shape[d] - printEdge
			}
			walk(d+1, from+i*strides[d])
		}
	}
	walk(0, 0)
	texts := t.texts(places)
	width := 0
	for _, s := range texts {
		width = max(width, len(s))
	}
	for i, s := range texts {
		texts[i] = strings.Repeat(" ", width-len(s)) + s
	}
	var b strings.Builder
	t.nest(&b, &texts, 0, summarized, 1)
	return b.String()
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
		case inner && column+1+len(word)+1 > printWidth:
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

// texts formats elements, not yet aligned.
func (t *Tensor) texts(places []int) []string {
	texts := make([]string, len(places))
	if integers(t.dtype) {
		x := t
		if t.dtype != I32 {
			x = Convert(t, I32)
			defer x.Free()
		}
		values := x.Int32s()
		for i, p := range places {
			texts[i] = strconv.Itoa(int(values[p]))
			if t.dtype == BOOL {
				texts[i] = map[bool]string{true: "True", false: "False"}[values[p] != 0]
			}
		}
		return texts
	}
	all := t.Float32s()
	values := make([]float64, len(places))
	least, most := math.Inf(1), 0.0
	for i, p := range places {
		values[i] = float64(all[p])
		if a := math.Abs(values[i]); a != 0 && !math.IsInf(a, 0) && a == a {
			least, most = min(least, a), max(most, a)
		}
	}
	scientific := most >= 1e8 || most > 0 && (least < 1e-4 || most/least > 1000)
	format := byte('f')
	if scientific {
		format = 'e'
	}
	digits := 0 // behind the point, the most that an element needs
	for _, v := range values {
		if math.IsInf(v, 0) || v != v {
			continue
		}
		digits = max(digits, behindPoint(v, format))
	}
	for i, v := range values {
		switch {
		case v != v:
			texts[i] = "nan"
		case math.IsInf(v, 0):
			texts[i] = strings.ToLower(strings.TrimPrefix(strconv.FormatFloat(v, 'f', -1, 64), "+"))
		default:
			texts[i] = strconv.FormatFloat(v, format, digits, 32)
			if digits == 0 {
				mantissa, exponent, _ := strings.Cut(texts[i], "e")
				texts[i] = strings.TrimSuffix(mantissa+".e"+exponent, "e")
			}
			if short := behindPoint(v, format); !scientific && short < digits {
				texts[i] = texts[i][:len(texts[i])-digits+short] + strings.Repeat(" ", digits-short)
			}
		}
	}
	return texts
}

// behindPoint returns how many digits behind the point the shortest text of a float32 has, as many at most as are printed.
func behindPoint(v float64, format byte) int {
	text := strconv.FormatFloat(v, format, -1, 32)
	if format == 'f' {
		if text = strconv.FormatFloat(v, 'f', -1, 32); len(text)-strings.IndexByte(text+".", '.')-1 > printDigit {
			text = strings.TrimRight(strconv.FormatFloat(v, 'f', printDigit, 32), "0")
		}
	}
	mantissa, _, _ := strings.Cut(text, "e")
	_, fraction, _ := strings.Cut(mantissa, ".")
	return min(len(fraction), printDigit)
}
