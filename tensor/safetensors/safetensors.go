// Package safetensors reads and writes tensors in safetensors files, the format of the Hugging Face hub
// (https://github.com/huggingface/safetensors, "Format"):
//
//	length    of the header, u64, little-endian, at most 100 MB
//	header    JSON: {"NAME": {"dtype": "F32", "shape": [2, 3], "data_offsets": [BEGIN, END]}, ..., "__metadata__": {...}}
//	data      of the tensors, row-major, little-endian, one after the other without gaps
//
// Open maps a file, so that only tensors which are used come into memory; it also opens folders whose weights are divided
// among several files (model.safetensors.index.json). Write writes a file whole or not at all.
//
// Files come from strangers: lengths, offsets, shapes and products are checked before they are used, memory stays
// proportional to the header, and errors name the tensor and the field.
package safetensors

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"

	"github.com/vibrant-ml/vibrant/gpu"
	"github.com/vibrant-ml/vibrant/internal/arrayfile"
	"github.com/vibrant-ml/vibrant/internal/mapped"
	"github.com/vibrant-ml/vibrant/tensor"
)

var (
	// ErrInvalid says that a file breaks the rules of the format; the error names the tensor and the field.
	ErrInvalid = errors.New("invalid safetensors file")
	// ErrNoTensor says that there is no tensor of that name.
	ErrNoTensor = errors.New("no such tensor")
	// ErrType says that tensors do not have the type of a file, or the format not that of a tensor.
	ErrType = arrayfile.ErrType
	// ErrFileChanged says that a file became shorter or longer while it was open.
	ErrFileChanged = mapped.ErrFileChanged
	// ErrClosed is returned after File.Close.
	ErrClosed = errors.New("safetensors: file is closed")
)

// Info describes a tensor of a file.
type Info struct {
	Name  string
	Type  string // as the file says: F32, F16, BF16, I32, I8, U8, BOOL are tensors' own; F64, I64, ... are not
	Shape []int  // outermost dimension first; none of a scalar
	Bytes int64  // of the data

	part   int
	offset int64 // from the start of the part
}

// File is an open file, or several that belong together. Goroutines may share it; Close comes after all other use.
type File struct {
	parts    []*mapped.Reader
	tensors  []Info
	byName   map[string]int
	metadata map[string]string
	closed   atomic.Bool
}

// Names that folders of the hub have.
const (
	indexFile  = "model.safetensors.index.json"
	singleFile = "model.safetensors"
)

// Open opens a file, an index of several (NAME.safetensors.index.json), or a folder with model.safetensors.index.json or
// model.safetensors. The caller closes it.
func Open(path string) (*File, error) {
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		folder := path
		path = filepath.Join(folder, indexFile)
		if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) {
			path = filepath.Join(folder, singleFile)
		}
	}
	f := &File{byName: map[string]int{}}
	var err error
	if filepath.Ext(path) == ".json" {
		err = f.openIndex(path)
	} else {
		err = f.openPart(path)
	}
	if err != nil {
		f.Close()
		var pe *os.PathError
		if errors.As(err, &pe) { // which names the path
			return nil, fmt.Errorf("safetensors: %w", err)
		}
		return nil, fmt.Errorf("safetensors: %s: %w", path, err)
	}
	return f, nil
}

// NewReader reads a file of size bytes from r, which stays the caller's and must stay usable.
func NewReader(r io.ReaderAt, size int64) (*File, error) {
	f := &File{byName: map[string]int{}}
	if err := f.add(mapped.NewReader(r, size)); err != nil {
		return nil, fmt.Errorf("safetensors: %w", err)
	}
	return f, nil
}

func (f *File) openPart(path string) error {
	r, err := mapped.Open(path)
	if err != nil {
		return err
	}
	if err := f.add(r); err != nil {
		return errors.Join(err, r.Close())
	}
	return nil
}

// add reads the header of one more file.
func (f *File) add(r *mapped.Reader) error {
	var length [8]byte
	if r.Size() < 8 {
		return fmt.Errorf("%w: %d bytes long", ErrInvalid, r.Size())
	}
	if _, err := r.ReadAt(length[:], 0); err != nil {
		return err
	}
	size := binary.LittleEndian.Uint64(length[:])
	if size > mostHeader || int64(size) > r.Size()-8 {
		return fmt.Errorf("%w: a header of %d bytes in a file of %d; the limit is %d", ErrInvalid, size, r.Size(), mostHeader)
	}
	text := make([]byte, size)
	if _, err := r.ReadAt(text, 8); err != nil {
		return fmt.Errorf("header: %w", err)
	}
	h, err := parseHeader(text)
	if err == nil {
		err = h.check(r.Size() - 8 - int64(size))
	}
	if err != nil {
		return fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	for _, t := range h.tensors {
		if _, twice := f.byName[t.Name]; twice {
			return fmt.Errorf("%w: tensor %s is in another file, too", ErrInvalid, quote(t.Name))
		}
		t.part, t.offset = len(f.parts), t.offset+8+int64(size)
		f.byName[t.Name] = len(f.tensors)
		f.tensors = append(f.tensors, t)
	}
	if f.metadata == nil {
		f.metadata = h.metadata
	}
	f.parts = append(f.parts, r)
	return nil
}

// Close closes the files. Tensors that lie in them stay valid: the mapping ends when the last of them is freed or collected.
// Closing nil or twice is harmless.
func (f *File) Close() error {
	if f == nil || f.closed.Swap(true) {
		return nil
	}
	var errs []error
	for _, p := range f.parts {
		errs = append(errs, p.Close())
	}
	return errors.Join(errs...)
}

// Intact returns ErrFileChanged where a file was cut short or grew since it was opened: tensors that lie in it may then hold zeros.
func (f *File) Intact() error {
	if f.closed.Load() {
		return ErrClosed
	}
	for _, p := range f.parts {
		if err := p.Intact(); err != nil {
			return fmt.Errorf("safetensors: %w", err)
		}
	}
	return nil
}

// Metadata returns what the file says of itself, such as {"format": "pt"}; of several files, what the first that says something does.
// The caller must not change it.
func (f *File) Metadata() map[string]string { return f.metadata }

// Tensors returns all tensors in the order of their data. The caller must not change the slice.
func (f *File) Tensors() []Info { return f.tensors }

// Info returns the tensor of that name, or an error that wraps ErrNoTensor.
func (f *File) Info(name string) (Info, error) {
	i, ok := f.byName[name]
	if !ok {
		return Info{}, fmt.Errorf("safetensors: tensor %s: %w", quote(name), ErrNoTensor)
	}
	return f.tensors[i], nil
}

// Tensor returns a tensor on a device. On a CPU it lies in the mapped file where its data is aligned to 16 bytes, as most data by
// Write is; else it has memory of its own. It may be written either way, and the file does not change. Tensors of one name
// that lie in the file share memory.
//
// Errors: ErrNoTensor; ErrType for a type that tensors do not have, such as F64 and I64 (TensorAs converts these).
func (f *File) Tensor(d *gpu.Device, name string) (*tensor.Tensor, error) {
	return f.load(d, name, nil)
}

// TensorAs is Tensor converted to another type. Types of tensors are converted as by tensor.Convert, F64 to F32, and I16, I64, U16,
// U32 and U64 to I32 or, rounded to nearest, to F32. A value that I32 does not hold is an error.
func (f *File) TensorAs(d *gpu.Device, name string, t tensor.DType) (*tensor.Tensor, error) {
	return f.load(d, name, &t)
}

func (f *File) load(d *gpu.Device, name string, to *tensor.DType) (*tensor.Tensor, error) {
	if f.closed.Load() {
		return nil, ErrClosed
	}
	info, err := f.Info(name)
	if err != nil {
		return nil, err
	}
	t, err := f.read(d, info, to)
	if err != nil {
		hint := ""
		if near, ok := elements[info.Type].Near(); ok && to == nil {
			hint = fmt.Sprintf(" (TensorAs converts it to %v)", near)
		}
		return nil, fmt.Errorf("safetensors: tensor %s of type %.16s: %w%s", quote(name), info.Type, err, hint)
	}
	return t, nil
}

func (f *File) read(d *gpu.Device, info Info, to *tensor.DType) (*tensor.Tensor, error) {
	e := elements[info.Type]
	_, stored := e.Stored()
	if _, near := e.Near(); !stored && (!near || to == nil) {
		return nil, arrayfile.ErrType
	}
	data, keep, err := f.parts[info.part].Part(info.offset, info.Bytes)
	if err != nil {
		return nil, err
	}
	return arrayfile.Tensor(d, e, binary.LittleEndian, data, keep, to, info.Shape...)
}

// ReadAll returns all tensors on a device. With an error it frees those that it has made.
func (f *File) ReadAll(d *gpu.Device) (map[string]*tensor.Tensor, error) {
	all := make(map[string]*tensor.Tensor, len(f.tensors))
	for _, info := range f.tensors {
		t, err := f.Tensor(d, info.Name)
		if err != nil {
			for _, t := range all {
				t.Free()
			}
			return nil, err
		}
		all[info.Name] = t
	}
	return all, nil
}

// quote prints a name for an error, at most 64 characters of it.
func quote(name string) string { return fmt.Sprintf("%.64q", name) }

// openIndex opens the files that an index names.
func (f *File) openIndex(path string) error {
	text, err := readIndex(path)
	if err != nil {
		return err
	}
	places, err := parseIndex(text)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	number := map[string]int{} // of each file
	for _, file := range places {
		number[file] = 0
	}
	files, missing := slices.Sorted(maps.Keys(number)), []string(nil)
	folder := filepath.Dir(path)
	for _, file := range files {
		if _, err := os.Stat(filepath.Join(folder, file)); errors.Is(err, os.ErrNotExist) {
			missing = append(missing, file)
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("%d of %d files are missing: %q: %w", len(missing), len(files), missing[:min(len(missing), 8)], os.ErrNotExist)
	}
	for i, file := range files {
		if err := f.openPart(filepath.Join(folder, file)); err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		number[file] = i
	}
	for name, file := range places {
		if at, ok := f.byName[name]; !ok || f.tensors[at].part != number[file] {
			return fmt.Errorf("%w: tensor %s is not in %s, where weight_map has it", ErrInvalid, quote(name), file)
		}
	}
	return nil
}

func readIndex(path string) ([]byte, error) {
	fd, size, err := mapped.OpenFile(path)
	if err != nil {
		return nil, err
	}
	defer fd.Close()
	if size > mostHeader {
		return nil, fmt.Errorf("%w: an index of %d bytes; the limit is %d", ErrInvalid, size, mostHeader)
	}
	return io.ReadAll(io.LimitReader(fd, size))
}
