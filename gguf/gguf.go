// Package gguf reads GGUF files, the format of ggml's models: typed keys, then named tensors
// (https://github.com/ggml-org/ggml/blob/master/docs/gguf.md). It also writes small ones.
//
// Versions 2 and 3, little-endian, also of models that are divided among several files. A file is mapped: opening one of many
// gigabytes reads its head alone. tensor.FromGGUF makes a tensor of one of the file.
//
// Files come from strangers: every count, length, offset and product is checked before it is used. Memory stays proportional to the
// size of the head. Errors name the key or tensor and the byte.
package gguf

import (
	"fmt"
	"io"
	"slices"

	"github.com/vibrant-ml/vibrant/dtype"
	"github.com/vibrant-ml/vibrant/internal/language/gguf"
)

var (
	// ErrNotGGUF says that the file is something else, or of a version or byte order that is not supported.
	ErrNotGGUF = gguf.ErrNotGGUF
	// ErrInvalid says that the file is GGUF and breaks its rules; the error names the field and where it lies.
	ErrInvalid = gguf.ErrInvalid
	// ErrTruncated says that the file ends before what it announces; ErrInvalid says so too.
	ErrTruncated = gguf.ErrTruncated
	// ErrMissingPart says that not all files of a divided model are there.
	ErrMissingPart = gguf.ErrMissingPart
	// ErrFileChanged says that the file became shorter or longer while it was open.
	ErrFileChanged = gguf.ErrFileChanged
	// ErrNoKey says that a file lacks a key.
	ErrNoKey = gguf.ErrNoKey
	// ErrNoTensor says that a file lacks a tensor.
	ErrNoTensor = gguf.ErrNoTensor
	// ErrClosed is returned for data of a closed file.
	ErrClosed = gguf.ErrClosed
)

// File is an open file, or all files of a divided model. Goroutines may share it; Close comes after all other use.
type File struct{ f *gguf.File }

// Tensor describes a tensor of a file.
type Tensor struct {
	Name  string
	Type  dtype.Type // by ggml's number: also of types without kernels here, such as F64
	Shape []int      // outermost dimension first, as package tensor has it: ggml's dimensions in reverse
	Bytes int64      // of the data
}

// Open opens a file and maps it where the system can. Of a divided model (NAME-00001-of-00003.gguf) any part may be named: all are
// opened as one File. The caller closes it.
//
// Where others cut a mapped file short while it is open, its data reads as zeros, and Intact returns ErrFileChanged.
func Open(path string) (*File, error) {
	f, err := gguf.OpenPrivate(path)
	if err != nil {
		return nil, err
	}
	return &File{f}, nil
}

// NewReader reads a file of size bytes from r, which stays the caller's and must stay usable.
func NewReader(r io.ReaderAt, size int64) (*File, error) {
	f, err := gguf.Parse(r, size)
	if err != nil {
		return nil, err
	}
	return &File{f}, nil
}

// Close closes the file. Keys stay valid; data ends, but for what Keep holds. Closing nil or twice is harmless.
func (f *File) Close() error {
	if f == nil {
		return nil
	}
	return f.f.Close()
}

// Intact returns ErrFileChanged where a mapped file was cut short or grew since it was opened: its data may then be zeros.
func (f *File) Intact() error { return f.f.Intact() }

// Tensors returns all tensors in the order of the file.
func (f *File) Tensors() []Tensor {
	all := make([]Tensor, len(f.f.Tensors()))
	for i, t := range f.f.Tensors() {
		all[i] = describe(&t)
	}
	return all
}

// Tensor returns the tensor of that name, or an error that wraps ErrNoTensor.
func (f *File) Tensor(name string) (Tensor, error) {
	t, err := f.f.Tensor(name)
	if err != nil {
		return Tensor{}, err
	}
	return describe(t), nil
}

func describe(t *gguf.Tensor) Tensor {
	shape := slices.Clone(t.Dims)
	slices.Reverse(shape)
	return Tensor{Name: t.Name, Type: dtype.Type(t.Type), Shape: shape, Bytes: t.Bytes}
}

// Data returns the bytes of a tensor as the file has them: blocks of quantized types, rows first. Of a mapped file they are a part of the
// mapping, which ends with Close or, where keep is not nil, not before keep is dropped; they may be written, and the file does not
// change. Of NewReader they are read into memory.
func (f *File) Data(name string) (data []byte, keep any, err error) {
	t, err := f.f.Tensor(name)
	if err != nil {
		return nil, nil, err
	}
	if data, err = f.f.Data(t); err != nil {
		return nil, nil, err
	}
	return data, f.f.Keep(t), nil
}

// The methods below return the value of a key. A key that is missing is an error that wraps ErrNoKey; a key of another type is an error that
// names the key and its type.

// Keys returns the keys in the order of the file. The caller must not change the slice.
func (f *File) Keys() []string { return f.f.Keys() }

// Value returns the value of a key as the Go type that corresponds: uint8 to float64, bool, string, a slice of one of these, or
// []any for an array of arrays.
func (f *File) Value(key string) (any, error) {
	v, ok := f.f.Value(key)
	if !ok {
		return nil, fmt.Errorf("gguf: key %s: %w", gguf.Quote(key), ErrNoKey)
	}
	return v.Any(), nil
}

// String returns a string.
func (f *File) String(key string) (string, error) { return f.f.String(key) }

// Int returns an integer of any size and sign that fits.
func (f *File) Int(key string) (int64, error) { return f.f.Int(key) }

// Uint returns an integer of any size that is not negative.
func (f *File) Uint(key string) (uint64, error) { return f.f.Uint(key) }

// Float returns a float32 or float64.
func (f *File) Float(key string) (float64, error) { return f.f.Float(key) }

// Bool returns a bool.
func (f *File) Bool(key string) (bool, error) { return f.f.Bool(key) }

// Strings returns an array of strings.
func (f *File) Strings(key string) ([]string, error) { return f.f.Strings(key) }

// Ints returns an array of integers of any size and sign that fit.
func (f *File) Ints(key string) ([]int64, error) { return f.f.Ints(key) }

// Floats returns an array of float32, or of float64 rounded to float32.
func (f *File) Floats(key string) ([]float32, error) { return f.f.Floats(key) }

// Bools returns an array of bools.
func (f *File) Bools(key string) ([]bool, error) { return f.f.Bools(key) }
