package safetensors

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/vibrant-ml/vibrant/internal/arrayfile"
	"github.com/vibrant-ml/vibrant/internal/wholefile"
	"github.com/vibrant-ml/vibrant/tensor"
)

// dataAlignment is what the data begins at a multiple of: tensors can be used where they lie in a mapped file.
const dataAlignment = 64

// Write writes tensors by their names, and metadata (which may be nil), to a file at path, whole or not at all. The tensors are F32,
// F16, BF16, I32, I8, U8 or BOOL, on any devices; views are written as they read. Wider types come first, then names in order: the
// files are those of the format's own library, but for spaces behind the header, so that the data begins at a multiple of 64 bytes.
func Write(path string, tensors map[string]*tensor.Tensor, metadata map[string]string) error {
	h, err := plan(tensors, metadata)
	if err == nil {
		err = wholefile.Write(path, func(w io.Writer) error { return h.write(w, tensors) })
	}
	if err != nil {
		return fmt.Errorf("safetensors: %w", err)
	}
	return nil
}

// WriteTo is Write to a writer.
func WriteTo(w io.Writer, tensors map[string]*tensor.Tensor, metadata map[string]string) error {
	h, err := plan(tensors, metadata)
	if err == nil {
		err = h.write(w, tensors)
	}
	if err != nil {
		return fmt.Errorf("safetensors: %w", err)
	}
	return nil
}

// order is that of tensors by their types.
var order = []string{"F32", "I32", "BF16", "F16", "I8", "U8", "BOOL"}

// layout is a file that is about to be written.
type layout struct {
	header []byte
	names  []string
}

// plan orders the tensors and makes the header.
func plan(tensors map[string]*tensor.Tensor, metadata map[string]string) (*layout, error) {
	names := slices.Collect(maps.Keys(tensors))
	types := map[string]string{}
	for name, t := range tensors {
		switch {
		case t == nil:
			return nil, fmt.Errorf("tensor %s is nil", quote(name))
		case name == metadataKey || !utf8.ValidString(name):
			return nil, fmt.Errorf("%s is no name of a tensor", quote(name))
		}
		e, ok := arrayfile.Of(t.DType())
		if !ok {
			return nil, fmt.Errorf("tensor %s of type %v: %w (tensor.Convert makes F32 of it)", quote(name), t.DType(), ErrType)
		}
		for known, element := range elements {
			if element == e {
				types[name] = known
			}
		}
	}
	slices.SortFunc(names, func(a, b string) int {
		return cmp.Or(slices.Index(order, types[a])-slices.Index(order, types[b]), strings.Compare(a, b))
	})
	for key, value := range metadata {
		if !utf8.ValidString(key) || !utf8.ValidString(value) {
			return nil, fmt.Errorf("metadata %s: not UTF-8", quote(key))
		}
	}
	text := bytes.NewBuffer(make([]byte, 8))
	before := byte('{')
	object := func(key string, value any) error {
		text.WriteByte(before)
		before = ','
		for i, part := range []any{key, value} {
			if i == 1 {
				text.WriteByte(':')
			}
			e := json.NewEncoder(text)
			e.SetEscapeHTML(false)
			if err := e.Encode(part); err != nil {
				return err
			}
			text.Truncate(text.Len() - 1) // the line's end
		}
		return nil
	}
	if len(metadata) > 0 {
		if err := object(metadataKey, metadata); err != nil {
			return nil, err
		}
	}
	at := int64(0)
	for _, name := range names {
		t := tensors[name]
		entry := struct {
			Type    string   `json:"dtype"`
			Shape   []int    `json:"shape"`
			Offsets [2]int64 `json:"data_offsets"`
		}{types[name], t.Shape(), [2]int64{at, at + t.Bytes()}}
		at += t.Bytes()
		if err := object(name, entry); err != nil {
			return nil, err
		}
	}
	if before == '{' {
		text.WriteByte('{')
	}
	text.WriteByte('}')
	for text.Len()%dataAlignment != 0 {
		text.WriteByte(' ')
	}
	if text.Len()-8 > mostHeader {
		return nil, fmt.Errorf("a header of %d bytes; the limit is %d", text.Len()-8, mostHeader)
	}
	binary.LittleEndian.PutUint64(text.Bytes(), uint64(text.Len()-8))
	return &layout{header: text.Bytes(), names: names}, nil
}

func (l *layout) write(w io.Writer, tensors map[string]*tensor.Tensor) error {
	if _, err := w.Write(l.header); err != nil {
		return err
	}
	for _, name := range l.names {
		err := arrayfile.Data(tensors[name], func(b []byte) error {
			_, err := w.Write(b)
			return err
		})
		if err != nil {
			return fmt.Errorf("tensor %s: %w", quote(name), err)
		}
	}
	return nil
}
