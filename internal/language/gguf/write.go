package gguf

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"reflect"
	"slices"
)

// Writer collects metadata and tensors and writes them as a GGUF v3 file. It serves tests, examples and small models: the
// tensor data is held in memory. The first mistake is remembered and returned by WriteTo. The zero Writer is ready.
type Writer struct {
	values  []keyValue
	tensors []writerTensor
	names   map[string]bool // keys, and tensors' names behind a zero byte
	align   int             // 0: the default
	err     error
}

type keyValue struct {
	key   string
	value any
}

type writerTensor struct {
	name string
	typ  Type
	dims []int
	data []byte
}

// Set adds a metadata value: a bool, string, sized integer (uint32 is what most keys are), float32, float64, or a slice
// of one of these or of such slices. Setting general.alignment sets the file's alignment.
func (w *Writer) Set(key string, value any) {
	switch {
	case key == "" || len(key) > maxName:
		w.fail("gguf: key %s: must have 1 to %d bytes", Quote(key), maxName)
	case w.taken(key):
		w.fail("gguf: key %q is set twice", key)
	default:
		if _, err := typeOf(reflect.TypeOf(value), 0); err != nil {
			w.fail("gguf: key %q: %w", key, err)
		}
		if key == alignmentKey {
			a, ok := value.(uint32)
			if !ok || a == 0 || a&(a-1) != 0 || a > maxMetadata {
				w.fail("gguf: key %q: %v (%T) is not a power of two of type uint32", key, value, value)
			}
			w.align = int(a)
		}
		w.values = append(w.values, keyValue{key, value})
	}
}

// AddTensor adds a tensor, the contiguous dimension first. data is not copied; it must have the length that the type and
// dimensions imply.
func (w *Writer) AddTensor(name string, typ Type, dims []int, data []byte) {
	in := tensorInfo{typ: typ, nDims: len(dims)}
	switch {
	case name == "" || len(name) > maxName:
		w.fail("gguf: tensor %s: the name must have 1 to %d bytes", Quote(name), maxName)
		return
	case len(dims) > maxDims:
		w.fail("gguf: tensor %q: %d dimensions; at most %d are possible", name, len(dims), maxDims)
		return
	case w.taken("\x00" + name):
		w.fail("gguf: tensor %q is added twice", name)
		return
	}
	for i, d := range dims {
		if d < 0 {
			w.fail("gguf: tensor %q: negative dimension in %v", name, dims)
			return
		}
		in.dims[i] = uint64(d)
	}
	t, err := in.tensor(name, 0, &File{Alignment: 1, Size: math.MaxInt64})
	if err == nil && t.Bytes != int64(len(data)) {
		err = fmt.Errorf("%d bytes of data; dimensions %v of %s take %d", len(data), dims, typ, t.Bytes)
	}
	if err != nil {
		w.fail("gguf: tensor %q: %w", name, err)
		return
	}
	w.tensors = append(w.tensors, writerTensor{name, typ, slices.Clone(dims), data})
}

func (w *Writer) fail(format string, args ...any) {
	if w.err == nil {
		w.err = fmt.Errorf(format, args...)
	}
}

func (w *Writer) taken(name string) bool {
	if w.names == nil {
		w.names = map[string]bool{}
	}
	was := w.names[name]
	w.names[name] = true
	return was
}

// WriteTo writes the file and returns its size in bytes.
func (w *Writer) WriteTo(out io.Writer) (int64, error) {
	if w.err != nil {
		return 0, w.err
	}
	align := int64(w.align)
	if align == 0 {
		align = defaultAlignment
	}
	pad := func(n int64) int64 { return (n + align - 1) &^ (align - 1) }

	head := append([]byte("GGUF"), 3, 0, 0, 0)
	head = binary.LittleEndian.AppendUint64(head, uint64(len(w.tensors)))
	head = binary.LittleEndian.AppendUint64(head, uint64(len(w.values)))
	for _, kv := range w.values {
		v := reflect.ValueOf(kv.value)
		typ, err := typeOf(v.Type(), 0)
		if err != nil {
			return 0, err
		}
		head = appendString(head, kv.key)
		head = binary.LittleEndian.AppendUint32(head, uint32(typ))
		head = appendValue(head, v)
	}
	offset := int64(0)
	for _, t := range w.tensors {
		head = appendString(head, t.name)
		head = binary.LittleEndian.AppendUint32(head, uint32(len(t.dims)))
		for _, d := range t.dims {
			head = binary.LittleEndian.AppendUint64(head, uint64(d))
		}
		head = binary.LittleEndian.AppendUint32(head, uint32(t.typ))
		head = binary.LittleEndian.AppendUint64(head, uint64(offset))
		offset += pad(int64(len(t.data)))
	}
	if len(head) > maxMetadata {
		return 0, fmt.Errorf("gguf: the metadata is longer than %d bytes", maxMetadata)
	}

	b := bufio.NewWriter(out)
	zeros := make([]byte, align)
	written := int64(0)
	put := func(p []byte) error {
		n, err := b.Write(p)
		written += int64(n)
		if err == nil {
			n, err = b.Write(zeros[:pad(written)-written])
			written += int64(n)
		}
		return err
	}
	err := put(head)
	for _, t := range w.tensors {
		if err == nil {
			err = put(t.data)
		}
	}
	return written, errors.Join(err, b.Flush())
}

// WriteFile writes the file at path, replacing what is there.
func (w *Writer) WriteFile(path string) error {
	f, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("gguf: %w", err)
	}
	_, err = w.WriteTo(f)
	return errors.Join(err, f.Close())
}

// typeOf returns the GGUF type for a Go type. depth counts the slices around it.
func typeOf(t reflect.Type, depth int) (ValueType, error) {
	if t == nil {
		return 0, errors.New("nil has no GGUF type")
	}
	switch t.Kind() {
	case reflect.Uint8:
		return TypeUint8, nil
	case reflect.Int8:
		return TypeInt8, nil
	case reflect.Uint16:
		return TypeUint16, nil
	case reflect.Int16:
		return TypeInt16, nil
	case reflect.Uint32:
		return TypeUint32, nil
	case reflect.Int32:
		return TypeInt32, nil
	case reflect.Uint64:
		return TypeUint64, nil
	case reflect.Int64:
		return TypeInt64, nil
	case reflect.Float32:
		return TypeFloat32, nil
	case reflect.Float64:
		return TypeFloat64, nil
	case reflect.Bool:
		return TypeBool, nil
	case reflect.String:
		return TypeString, nil
	case reflect.Slice:
		if depth == maxNesting {
			return 0, fmt.Errorf("arrays nested more than %d deep", maxNesting)
		}
		_, err := typeOf(t.Elem(), depth+1)
		return TypeArray, err
	}
	return 0, fmt.Errorf("no GGUF type for Go type %s", t)
}

func appendValue(b []byte, v reflect.Value) []byte {
	switch v.Kind() {
	case reflect.String:
		return appendString(b, v.String())
	case reflect.Slice:
		elem, _ := typeOf(v.Type().Elem(), 1) // Set checked it
		b = binary.LittleEndian.AppendUint32(b, uint32(elem))
		b = binary.LittleEndian.AppendUint64(b, uint64(v.Len()))
		for i := range v.Len() {
			b = appendValue(b, v.Index(i))
		}
		return b
	}
	b, _ = binary.Append(b, binary.LittleEndian, v.Interface()) // a sized number or bool: cannot fail
	return b
}

func appendString(b []byte, s string) []byte {
	b = binary.LittleEndian.AppendUint64(b, uint64(len(s)))
	return append(b, s...)
}
