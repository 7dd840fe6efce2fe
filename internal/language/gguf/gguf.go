// Package gguf reads and writes GGUF, the file format of ggml's models: typed metadata, then named tensors.
//
// Versions 2 and 3, little-endian. The format is specified in https://github.com/ggml-org/ggml/blob/master/docs/gguf.md:
//
//	header    "GGUF", version u32, tensor count u64, metadata count u64
//	metadata  key string, type u32, value; a string is a length u64 and its bytes, an array a type u32, a count u64
//	          and its elements
//	tensors   name string, number of dimensions u32, dimensions u64 (the contiguous one first), type u32, offset u64
//	data      starts at a multiple of general.alignment (32 by default), as each tensor does; offsets count from here
//
// Files come from strangers: every count, length, offset and product is checked before it is used, what is allocated
// stays proportional to the size of the file, and errors name the key or tensor and the byte offset.
//
// A [File] may be used from several goroutines; only [File.Close] must come after all other use.
package gguf

import (
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"sync/atomic"

	"github.com/vibrant-ml/vibrant/internal/mapped"
)

var (
	// ErrNotGGUF says that the file is something else, or of a version or byte order that is not supported.
	ErrNotGGUF = errors.New("not a readable GGUF file")
	// ErrInvalid says that the file is GGUF and breaks its rules; the error names the field and where it lies.
	ErrInvalid = errors.New("invalid GGUF file")
	// ErrTruncated says that the file ends before what it announces; ErrInvalid says so too.
	ErrTruncated error = truncated{}
	// ErrFileChanged says that the file became shorter or longer while it was open.
	ErrFileChanged = mapped.ErrFileChanged
	// ErrNoKey says that the metadata lacks a key.
	ErrNoKey = errors.New("missing from the metadata")
	// ErrNoTensor says that the file lacks a tensor.
	ErrNoTensor = errors.New("no such tensor")
	// ErrClosed is returned by File.Data after File.Close.
	ErrClosed = errors.New("gguf: file is closed")
)

// truncated is a way of being invalid.
type truncated struct{}

func (truncated) Error() string { return "truncated" }

func (truncated) Is(target error) bool { return target == ErrInvalid }

// File is an open GGUF file: its metadata in memory, its tensor data mapped, in memory or read on demand.
type File struct {
	Version   uint32
	Alignment int   // bytes, a power of two
	Size      int64 // bytes of the whole file
	DataStart int64 // where the tensor data begins

	keys    []string
	values  map[string]Value
	tensors []Tensor
	byName  map[string]int // index into tensors

	others []*File // of a split model: the parts after the first

	data   []byte       // the whole file where it is mapped or was given as bytes, else nil
	memory *mapped.File // what data is a part of, where it is mapped
	r      io.ReaderAt  // the file, but where it was given as bytes
	closer func() error
	closed atomic.Bool
}

// Tensor describes one tensor of a file.
type Tensor struct {
	Name   string
	Type   Type
	Dims   []int // at most 4; Dims[0] is the contiguous one (ggml's ne), so a matrix [out][in] has Dims {in, out}
	Offset int64 // of the data, in bytes from the start of the file; a multiple of File.Alignment past File.DataStart
	Bytes  int64 // of the data
	part   int   // of a split model: which file holds the data, from 0
}

// Elements returns the product of the dimensions: 1 for a tensor without any.
func (t *Tensor) Elements() int {
	n := 1
	for _, d := range t.Dims {
		n *= d // cannot overflow: checked when the file was parsed
	}
	return n
}

// Open opens the file and maps it where the system can, else reads tensor data on demand. The caller closes the File.
// Of a split model (NAME-00001-of-00003.gguf) any part may be named: all are opened, as one File, whose offsets count
// from the start of the part that holds the tensor. ErrMissingPart names those that are not there.
//
// Where others cut a mapped file short while it is open, its data reads as zeros and Intact returns ErrFileChanged.
func Open(path string) (*File, error) { return openPath(path, mapped.Map) }

// OpenPrivate is Open of files whose data may be written to in memory; the files do not change.
func OpenPrivate(path string) (*File, error) { return openPath(path, mapped.MapPrivate) }

func openPath(path string, mapping mapper) (*File, error) {
	f, err := open(path, mapping)
	if err != nil {
		// os errors name the path already.
		var pe *os.PathError
		if errors.As(err, &pe) {
			return nil, fmt.Errorf("gguf: %w", err)
		}
		return nil, fmt.Errorf("gguf: %s: %w", path, err)
	}
	return f, nil
}

// mapper maps the first bytes of a file: mapped.Map or mapped.MapPrivate.
type mapper func(fd *os.File, size int64) (*mapped.File, error)

func open(path string, mapping mapper) (*File, error) {
	f, err := openOne(path, mapping)
	if err != nil {
		return nil, err
	}
	whole, err := join(path, f, mapping)
	if err != nil {
		f.Close()
	}
	return whole, err
}

// openOne opens one file, which may be a part of a model.
func openOne(path string, mapping mapper) (*File, error) {
	fd, size, err := mapped.OpenFile(path)
	if errors.Is(err, mapped.ErrNotRegular) {
		return nil, fmt.Errorf("%w: %w", ErrNotGGUF, err)
	}
	if err != nil {
		return nil, err
	}
	f, err := openFile(fd, size, mapping)
	if err != nil {
		fd.Close()
		return nil, err
	}
	return f, nil
}

// openFile opens what fd is, which it owns from then on unless it fails.
func openFile(fd *os.File, size int64, mapping mapper) (*File, error) {
	m, err := mapping(fd, size)
	if errors.Is(err, errors.ErrUnsupported) {
		f, err := parse(&parser{r: fd, size: size})
		if err != nil {
			return nil, err
		}
		f.r, f.closer = fd, fd.Close
		return f, nil
	}
	if err != nil {
		return nil, fmt.Errorf("mapping %d bytes: %w (is the address space limited, as by ulimit -v?)", size, err)
	}
	f, err := parseMapped(m)
	if err != nil {
		m.Close()
		return nil, err
	}
	f.data, f.memory, f.r = m.Bytes(), m, fd
	f.closer = func() error { return errors.Join(m.Close(), fd.Close()) }
	return f, nil
}

// parseMapped parses a file that others may be cutting short.
func parseMapped(m *mapped.File) (f *File, err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	err = ErrFileChanged // where Recover ends what follows
	defer mapped.Recover()
	f, err = parse(&parser{buf: m.Bytes(), size: int64(len(m.Bytes()))})
	if changed := m.Intact(); changed != nil {
		return nil, changed
	}
	return f, err
}

// Fetch has the system bring mapped files of up to most bytes into memory in the background, until Close. It is called once at most.
func (f *File) Fetch(most int64) {
	parts := append([]*File{f}, f.others...)
	for _, p := range parts {
		most -= int64(len(p.data))
	}
	for _, p := range parts {
		if p.memory != nil && most >= 0 {
			p.memory.Fetch()
		}
	}
}

// Parse reads the metadata of a file of size bytes from r. Data reads from r when it is called, so r must stay usable;
// Close does not close it.
func Parse(r io.ReaderAt, size int64) (*File, error) {
	f, err := parse(&parser{r: r, size: size})
	if err != nil {
		return nil, fmt.Errorf("gguf: %w", err)
	}
	f.r = r
	return f, nil
}

// FromBytes parses a whole file that lies in memory. The metadata is copied; Data returns parts of b, which must not
// change afterwards.
func FromBytes(b []byte) (*File, error) {
	f, err := parse(&parser{buf: b, size: int64(len(b))})
	if err != nil {
		return nil, fmt.Errorf("gguf: %w", err)
	}
	f.data = b
	return f, nil
}

// Close unmaps or closes the file. Slices that Data returned must not be used afterwards; strings and arrays of the
// metadata stay valid. A second Close does nothing. There is no clean-up by the garbage collector, which cannot see
// whether such a slice is still in use.
func (f *File) Close() error {
	if f.closed.Swap(true) {
		return nil
	}
	var errs []error
	if f.closer != nil {
		errs = append(errs, f.closer())
	}
	for _, p := range f.others {
		errs = append(errs, p.Close())
	}
	return errors.Join(errs...)
}

// Intact returns ErrFileChanged where a mapped file, or a part of a split model, was cut short or grew since it was opened. What
// was computed from its data before may then be wrong.
func (f *File) Intact() error {
	if f.memory != nil && !f.closed.Load() {
		if err := f.memory.Intact(); err != nil {
			return fmt.Errorf("gguf: %w", err)
		}
	}
	for _, p := range f.others {
		if err := p.Intact(); err != nil {
			return err
		}
	}
	return nil
}

// Tensors returns all tensors in the order of the file. The caller must not change the slice.
func (f *File) Tensors() []Tensor { return f.tensors }

// Tensor returns the tensor of that name, or an error that wraps ErrNoTensor.
func (f *File) Tensor(name string) (*Tensor, error) {
	i, ok := f.byName[name]
	if !ok {
		return nil, fmt.Errorf("gguf: tensor %s: %w", Quote(name), ErrNoTensor)
	}
	return &f.tensors[i], nil
}

// HasTensor reports whether the file holds a tensor of that name.
func (f *File) HasTensor(name string) bool {
	_, ok := f.byName[name]
	return ok
}

// Data returns the t.Bytes bytes of a tensor of this file, as stored. Of a mapped file and of FromBytes it is a part of
// the mapping or slice: no copy, read only (a write to a mapping faults), invalid after Close. Else it is read into a
// new slice. A mapped tensor is aligned in memory as in the file, up to the page size.
func (f *File) Data(t *Tensor) ([]byte, error) {
	f, err := f.holding(t)
	if err != nil {
		return nil, err
	}
	if f.data != nil {
		end := t.Offset + t.Bytes
		return f.data[t.Offset:end:end], nil
	}
	b := make([]byte, t.Bytes)
	if n, err := f.r.ReadAt(b, t.Offset); n < len(b) {
		return nil, fmt.Errorf("gguf: tensor %s: reading %d bytes at byte %d: %w", Quote(t.Name), t.Bytes, t.Offset, readError(err))
	}
	return b, nil
}

// Keep returns a value that holds the memory of a tensor's data beyond Close, until the garbage collector finds the value dropped;
// nil where the data lies in no mapping.
func (f *File) Keep(t *Tensor) any {
	p, err := f.holding(t)
	if err != nil || p.memory == nil {
		return nil
	}
	return p.memory.Keep()
}

// ReadTensor fills dst with the bytes of a tensor from an offset on. Where a file is read once, from start to end, it is
// faster than Data, whose pages the system has to map one after the other; and it returns an error where Data's slice of
// a file that somebody has truncated would fault.
func (f *File) ReadTensor(t *Tensor, dst []byte, offset int64) error {
	f, err := f.holding(t)
	if err != nil {
		return err
	}
	if offset < 0 || int64(len(dst)) > t.Bytes-offset {
		return fmt.Errorf("gguf: tensor %s: %d bytes at offset %d of %d", Quote(t.Name), len(dst), offset, t.Bytes)
	}
	if f.r == nil {
		copy(dst, f.data[t.Offset+offset:])
		return nil
	}
	if n, err := f.r.ReadAt(dst, t.Offset+offset); n < len(dst) {
		return fmt.Errorf("gguf: tensor %s: reading %d bytes at byte %d: %w", Quote(t.Name), len(dst), t.Offset+offset, readError(err))
	}
	return nil
}

// holding returns the file that holds a tensor's data, or why it cannot be read.
func (f *File) holding(t *Tensor) (*File, error) {
	if f.closed.Load() {
		return nil, ErrClosed
	}
	p := f.file(t)
	if p == nil || t.Offset < p.DataStart || t.Bytes < 0 || t.Bytes > p.Size-t.Offset {
		return nil, fmt.Errorf("gguf: tensor %s: bytes %d to %d are not of this file", Quote(t.Name), t.Offset, t.Offset+t.Bytes)
	}
	return p, nil
}

// readError tells a file that ends too early from other trouble: it was longer when it was opened.
func readError(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return ErrFileChanged
	}
	return err
}
