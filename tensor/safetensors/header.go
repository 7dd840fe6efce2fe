package safetensors

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"math/bits"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/vibrant-ml/vibrant/internal/arrayfile"
)

const (
	mostHeader  = 100_000_000 // bytes, as the format's own library has it
	longestName = 255         // of a file, as most file systems have it
	mostDims    = 64          // as numpy has it
	metadataKey = "__metadata__"
)

// typeBits are the types of the format by the bits of an element.
var typeBits = map[string]uint64{
	"BOOL": 8, "U8": 8, "I8": 8, "F8_E5M2": 8, "F8_E4M3": 8, "F8_E8M0": 8, "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8, "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6,
	"I16": 16, "U16": 16, "F16": 16, "BF16": 16, "I32": 32, "U32": 32, "F32": 32, "I64": 64, "U64": 64, "F64": 64, "C64": 64,
}

// elements are the types that become tensors, as they are or converted.
var elements = map[string]arrayfile.Element{
	"BOOL": {Kind: 'b', Size: 1}, "U8": {Kind: 'u', Size: 1}, "I8": {Kind: 'i', Size: 1}, "F16": {Kind: 'f', Size: 2}, "BF16": {Kind: 'B', Size: 2},
	"I16": {Kind: 'i', Size: 2}, "U16": {Kind: 'u', Size: 2}, "I32": {Kind: 'i', Size: 4}, "U32": {Kind: 'u', Size: 4}, "F32": {Kind: 'f', Size: 4},
	"I64": {Kind: 'i', Size: 8}, "U64": {Kind: 'u', Size: 8}, "F64": {Kind: 'f', Size: 8},
}

// header is what the JSON of a file says. Offsets of its tensors count from the start of the data.
type header struct {
	metadata map[string]string
	tensors  []Info
}

// parseHeader reads a header; check comes after it.
func parseHeader(text []byte) (*header, error) {
	if len(text) == 0 || text[0] != '{' {
		return nil, errors.New("the header does not begin with {")
	}
	h := &header{}
	d, err := decode(text)
	if err != nil {
		return nil, fmt.Errorf("header: %w", err)
	}
	err = d.object(func(name string) error {
		if name == metadataKey {
			h.metadata = map[string]string{}
			err := d.object(func(key string) (err error) {
				h.metadata[key], err = d.string()
				return d.field(key, err)
			})
			return d.field(metadataKey, err)
		}
		info, err := d.tensor()
		if err != nil {
			return fmt.Errorf("tensor %s: %w", quote(name), err)
		}
		info.Name = name
		h.tensors = append(h.tensors, info)
		return nil
	})
	if err == nil {
		err = d.end()
	}
	if err != nil {
		return nil, fmt.Errorf("header: %w", err)
	}
	return h, nil
}

// check holds shapes and offsets against each other and a file with so many bytes of data, and orders the tensors by their data.
func (h *header) check(data int64) error {
	for i := range h.tensors {
		t := &h.tensors[i]
		size, known, err := bytesOf(t)
		if err != nil {
			return fmt.Errorf("tensor %s: %w", quote(t.Name), err)
		}
		if known && size != uint64(t.Bytes) {
			return fmt.Errorf("tensor %s: data_offsets [%d %d] are %d bytes, %s of shape %v takes %d", quote(t.Name), t.offset, t.offset+t.Bytes,
				t.Bytes, t.Type, shorten(t.Shape), size)
		}
	}
	slices.SortFunc(h.tensors, func(a, b Info) int {
		return cmp.Or(cmp.Compare(a.offset, b.offset), cmp.Compare(a.Bytes, b.Bytes), strings.Compare(a.Name, b.Name))
	})
	end := int64(0)
	last := "the header"
	for _, t := range h.tensors {
		switch {
		case t.offset < end:
			return fmt.Errorf("tensor %s: data_offsets [%d %d] overlap those of tensor %s", quote(t.Name), t.offset, t.offset+t.Bytes, last)
		case t.offset > end:
			return fmt.Errorf("tensor %s: data_offsets [%d %d] leave a gap of %d bytes behind %s", quote(t.Name), t.offset, t.offset+t.Bytes,
				t.offset-end, last)
		case t.Bytes > data-t.offset:
			return fmt.Errorf("tensor %s: data_offsets [%d %d] reach beyond the %d bytes of data", quote(t.Name), t.offset, t.offset+t.Bytes, data)
		}
		end, last = t.offset+t.Bytes, quote(t.Name)
	}
	if end != data {
		return fmt.Errorf("%d bytes of data behind %s, which ends at byte %d", data-end, last, end)
	}
	return nil
}

// bytesOf returns the size that a type and a shape imply, where the type is known.
func bytesOf(t *Info) (size uint64, known bool, err error) {
	width, known := typeBits[t.Type]
	n := uint64(1)
	if slices.Contains(t.Shape, 0) {
		n = 0
	}
	for _, d := range t.Shape {
		high, low := bits.Mul64(n, uint64(d))
		if high != 0 || low > math.MaxInt64/64 {
			return 0, known, fmt.Errorf("shape %v has too many elements", shorten(t.Shape))
		}
		n = low
	}
	if n*width%8 != 0 {
		return 0, known, fmt.Errorf("shape %v of %s is no whole number of bytes", shorten(t.Shape), t.Type)
	}
	return n * width / 8, known, nil
}

// shorten is a shape for an error.
func shorten(shape []int) []int { return shape[:min(len(shape), 16)] }

// parseIndex reads which file holds each tensor: {"weight_map": {"NAME": "FILE"}}.
func parseIndex(text []byte) (map[string]string, error) {
	places := map[string]string{}
	d, err := decode(text)
	if err != nil {
		return nil, err
	}
	found := false
	err = d.object(func(key string) error {
		if key != "weight_map" {
			return d.skip()
		}
		found = true
		err := d.object(func(name string) error {
			file, err := d.string()
			if err == nil && (file == "" || len(file) > longestName || file != filepath.Base(file) || strings.ContainsAny(file, `/\`) || file == ".." || file == ".") {
				err = fmt.Errorf("%.64q is no name of a file in the same folder", file)
			}
			places[name] = file
			return d.field(name, err)
		})
		return d.field(key, err)
	})
	if err == nil {
		err = d.end()
	}
	if err == nil && !found {
		err = errors.New("no weight_map")
	}
	return places, err
}

// decoder reads JSON token by token: it sees names that are there twice, and what it keeps is proportional to the text.
type decoder struct{ *json.Decoder }

func decode(text []byte) (*decoder, error) {
	if !utf8.Valid(text) {
		return nil, errors.New("not UTF-8")
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	return &decoder{d}, nil
}

// next returns the next token, which is of a kind.
func next[T json.Token](d *decoder, what string) (T, error) {
	token, err := d.Token()
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	t, ok := token.(T)
	if err == nil && !ok {
		err = fmt.Errorf("byte %d: want %s", d.InputOffset(), what)
	}
	return t, err
}

func (d *decoder) string() (string, error) { return next[string](d, "a string") }

// delimiter reads a bracket.
func (d *decoder) delimiter(want json.Delim) error {
	got, err := next[json.Delim](d, want.String())
	if err == nil && got != want {
		err = fmt.Errorf("byte %d: want %v", d.InputOffset(), want)
	}
	return err
}

// object calls member for each name of an object, which reads its value. No name may be there twice.
func (d *decoder) object(member func(name string) error) error {
	if err := d.delimiter('{'); err != nil {
		return err
	}
	seen := map[string]bool{}
	for d.More() {
		name, err := d.string()
		if err != nil {
			return err
		}
		if seen[name] {
			return fmt.Errorf("%s is there twice", quote(name))
		}
		seen[name] = true
		if err := member(name); err != nil {
			return err
		}
	}
	return d.delimiter('}')
}

// field names the field that an error is of.
func (d *decoder) field(name string, err error) error {
	if err != nil {
		err = fmt.Errorf("%s: %w", quote(name), err)
	}
	return err
}

// whole reads a number that is no less than 0.
func (d *decoder) whole() (int64, error) {
	number, err := next[json.Number](d, "a whole number")
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseUint(string(number), 10, 63)
	if err != nil {
		return 0, fmt.Errorf("%.32s is no whole number below 2^63", number)
	}
	return int64(n), nil
}

// list reads an array of at most `most` whole numbers.
func (d *decoder) list(most int) (list []int64, err error) {
	if err := d.delimiter('['); err != nil {
		return nil, err
	}
	for d.More() {
		n, err := d.whole()
		if err != nil {
			return nil, err
		}
		if len(list) == most {
			return nil, fmt.Errorf("more than %d numbers", most)
		}
		list = append(list, n)
	}
	return list, d.delimiter(']')
}

// tensor reads a tensor's description.
func (d *decoder) tensor() (info Info, err error) {
	var offsets, shape []int64
	var typed, shaped bool
	err = d.object(func(key string) (err error) {
		switch key {
		case "dtype":
			typed = true
			info.Type, err = d.string()
		case "shape":
			shaped = true
			shape, err = d.list(mostDims)
		case "data_offsets":
			if offsets, err = d.list(2); err == nil && (len(offsets) != 2 || offsets[0] > offsets[1]) {
				err = fmt.Errorf("%v: want where the data begins and ends", offsets)
			}
		default:
			err = d.skip()
		}
		return d.field(key, err)
	})
	switch {
	case err != nil:
		return info, err
	case !typed:
		return info, errors.New("no dtype")
	case !shaped:
		return info, errors.New("no shape")
	case offsets == nil:
		return info, errors.New("no data_offsets")
	}
	info.offset, info.Bytes = offsets[0], offsets[1]-offsets[0]
	info.Shape = make([]int, len(shape))
	for i, n := range shape {
		if n > math.MaxInt {
			return info, fmt.Errorf("shape: dimension %d of %d elements", i, n)
		}
		info.Shape[i] = int(n)
	}
	return info, nil
}

// skip reads a value of any kind.
func (d *decoder) skip() error {
	var any json.RawMessage
	return d.Decode(&any)
}

// end wants nothing but space after the value.
func (d *decoder) end() error {
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return fmt.Errorf("byte %d: more than one value", d.InputOffset())
	}
	return nil
}
