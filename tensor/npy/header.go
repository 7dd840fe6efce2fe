package npy

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"math/bits"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/vibrant-ml/vibrant/internal/arrayfile"
	"github.com/vibrant-ml/vibrant/tensor"
)

const (
	magic      = "\x93NUMPY"
	mostHeader = 1 << 16 // bytes; those of arrays of numbers have about a hundred
	mostDims   = 64      // as numpy has it
	alignment  = 64      // of the data in a file
)

// header is a Header that was checked, and what it means.
type header struct {
	Header
	element  arrayfile.Element
	order    binary.ByteOrder
	elements int64
}

// readHeader reads what is before the data, and returns its length too.
func readHeader(r io.Reader) (*header, int64, error) {
	var b [12]byte
	if _, err := io.ReadFull(r, b[:8]); err != nil {
		return nil, 0, cut(err)
	}
	if string(b[:6]) != magic {
		return nil, 0, fmt.Errorf("%w: starts with %q, not with %q", ErrInvalid, b[:6], magic)
	}
	width := 2
	switch {
	case b[7] != 0 || b[6] < 1 || b[6] > 3:
		return nil, 0, fmt.Errorf("%w: version %d.%d; 1.0, 2.0 and 3.0 are supported", ErrInvalid, b[6], b[7])
	case b[6] > 1:
		width = 4
	}
	if _, err := io.ReadFull(r, b[8:8+width]); err != nil {
		return nil, 0, cut(err)
	}
	length := binary.LittleEndian.Uint32(b[8:]) // the bytes behind a u16 are zeros
	if length > mostHeader {
		return nil, 0, fmt.Errorf("%w: a header of %d bytes; the limit is %d", ErrInvalid, length, mostHeader)
	}
	text := make([]byte, length)
	if _, err := io.ReadFull(r, text); err != nil {
		return nil, 0, cut(err)
	}
	h, err := parseHeader(string(text), b[6] == 3)
	if err != nil && !errors.Is(err, ErrType) {
		err = fmt.Errorf("%w: header: %w", ErrInvalid, err)
	}
	if err != nil {
		return nil, 0, err
	}
	return h, int64(8 + width + len(text)), nil
}

// cut names the reason where the file ends too early.
func cut(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("%w: ends within the header: %w", ErrInvalid, io.ErrUnexpectedEOF)
	}
	return err
}

// parseHeader reads a dictionary of Python with three keys.
func parseHeader(text string, isUTF8 bool) (*header, error) {
	if isUTF8 && !utf8.ValidString(text) {
		return nil, errors.New("not UTF-8")
	}
	p := &parser{rest: text}
	h := &header{}
	seen := map[string]bool{}
	p.want("{")
	for p.err == nil && !p.take("}") {
		key := p.text()
		p.want(":")
		if p.err == nil && seen[key] {
			p.fail("%.32q is there twice", key)
		}
		seen[key] = true
		switch {
		case p.err != nil:
		case key == "descr" && !p.at("'") && !p.at(`"`): // a record's fields
			return nil, fmt.Errorf("'descr': %.64s: %w", p.rest, ErrType)
		case key == "descr":
			h.Type = p.text()
		case key == "fortran_order":
			if h.Fortran = p.take("True"); !h.Fortran {
				p.want("False")
			}
		case key == "shape":
			h.Shape = p.shape()
		default:
			p.fail("unknown key %.32q", key)
		}
		if p.err != nil && key != "" {
			return nil, fmt.Errorf("%.32q: %w", key, p.err)
		}
		if !p.take(",") && !p.at("}") {
			p.want(",")
		}
	}
	if p.space(); p.err == nil && p.rest != "" {
		p.fail("%.16q behind the dictionary", p.rest)
	}
	for _, key := range []string{"descr", "fortran_order", "shape"} {
		if p.err == nil && !seen[key] {
			p.fail("no %q", key)
		}
	}
	if p.err != nil {
		return nil, p.err
	}
	return h, h.check()
}

// check reads the type and multiplies the shape.
func (h *header) check() error {
	h.order = binary.LittleEndian
	if len(h.Type) > 1 {
		size, err := strconv.Atoi(h.Type[2:])
		kind, known := map[byte]byte{'f': 'f', 'i': 'i', 'u': 'u', 'b': 'b'}[h.Type[1]]
		if order := h.Type[0]; err == nil && known && strings.IndexByte("<>=|", order) >= 0 && (order != '|' || size == 1) {
			h.element = arrayfile.Element{Kind: kind, Size: size}
			if order == '>' {
				h.order = binary.BigEndian
			}
		}
	}
	n, zero := uint64(1), false
	for _, d := range h.Shape {
		zero = zero || d == 0
		high, low := bits.Mul64(n, uint64(max(d, 1)))
		if high != 0 || low > math.MaxInt64/16 {
			return fmt.Errorf("'shape': %v has too many elements", h.Shape)
		}
		n = low
	}
	if h.elements = int64(n); zero {
		h.elements = 0
	}
	return nil
}

// parser reads Python's literals. The first mistake stays.
type parser struct {
	rest string
	err  error
}

func (p *parser) fail(format string, args ...any) {
	if p.err == nil {
		p.err = fmt.Errorf(format, args...)
	}
}

func (p *parser) space() { p.rest = strings.TrimLeft(p.rest, " \t\r\n") }

// at reports whether a word comes next.
func (p *parser) at(word string) bool {
	p.space()
	return strings.HasPrefix(p.rest, word)
}

// take moves past a word, if it comes next.
func (p *parser) take(word string) bool {
	if !p.at(word) {
		return false
	}
	p.rest = p.rest[len(word):]
	return true
}

func (p *parser) want(word string) {
	if !p.take(word) {
		p.fail("want %q, not %.16q", word, p.rest)
	}
}

// text reads a string without escapes.
func (p *parser) text() string {
	quote := "'"
	if p.at(`"`) {
		quote = `"`
	}
	if p.want(quote); p.err != nil {
		return ""
	}
	s, rest, closed := strings.Cut(p.rest, quote)
	if !closed || strings.ContainsAny(s, "\\\n") {
		p.fail("a string that does not end, or with an escape: %.16q", p.rest)
	}
	p.rest = rest
	return s
}

// shape reads a tuple of numbers.
func (p *parser) shape() []int {
	shape := []int{}
	p.want("(")
	for p.err == nil && !p.take(")") {
		p.space()
		digits := len(p.rest) - len(strings.TrimLeft(p.rest, "0123456789"))
		n, err := strconv.Atoi(p.rest[:digits])
		switch {
		case digits == 0:
			p.fail("want a number, not %.16q", p.rest)
		case err != nil:
			p.fail("%.32s is too large", p.rest[:digits])
		case len(shape) == mostDims:
			p.fail("more than %d dimensions", mostDims)
		}
		shape, p.rest = append(shape, n), strings.TrimPrefix(p.rest[digits:], "L") // Python 2's long
		if len(shape) == 1 || !p.at(")") {
			p.want(",")
		}
	}
	return shape
}

// headerOf makes what comes before the data of a tensor, as numpy does: version 1.0, padded with spaces.
func headerOf(x *tensor.Tensor) ([]byte, error) {
	kind, ok := map[tensor.DType]string{tensor.F32: "<f4", tensor.F16: "<f2", tensor.I32: "<i4", tensor.I8: "|i1", tensor.U8: "|u1", tensor.BOOL: "|b1"}[x.DType()]
	if !ok {
		return nil, fmt.Errorf("tensor of type %v: %w (tensor.Convert makes F32 of it)", x.DType(), ErrType)
	}
	shape := make([]string, x.Rank())
	for i, n := range x.Shape() {
		shape[i] = strconv.Itoa(n)
	}
	tuple := strings.Join(shape, ", ")
	if len(shape) == 1 {
		tuple += ","
	}
	text := fmt.Sprintf("{'descr': '%s', 'fortran_order': False, 'shape': (%s), }", kind, tuple)
	// numpy leaves room for the first dimension to grow to 21 digits.
	if len(shape) > 0 {
		text += strings.Repeat(" ", max(0, 21-len(shape[0])))
	}
	spaces := alignment - (10+len(text)+1)%alignment
	text += strings.Repeat(" ", spaces) + "\n"
	if len(text) > math.MaxUint16 {
		return nil, fmt.Errorf("a tensor of %d dimensions", len(shape))
	}
	return append(append([]byte(magic), 1, 0, byte(len(text)), byte(len(text)>>8)), text...), nil
}
