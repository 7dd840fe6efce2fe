package npy

import (
	"archive/zip"
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/vibrant-ml/vibrant/internal/mapped"
	"github.com/vibrant-ml/vibrant/internal/wholefile"
	"github.com/vibrant-ml/vibrant/tensor"
)

// ErrNoArray says that an archive has no array of that name.
var ErrNoArray = errors.New("no such array")

const suffix = ".npy" // of the files in an archive

// defaultMaxBytes is what compressed arrays may take where Archive.MaxBytes is 0.
const defaultMaxBytes = 4 << 30

// Archive is an open .npz file. Goroutines may share it; Close comes after all other use.
type Archive struct {
	// MaxBytes bounds what a compressed array, or all that ReadAll inflates, may take in memory: a small file can announce, and
	// inflate to, a thousand times its size. 0 is 4 GiB. It is set before the first use.
	MaxBytes int64

	reader *mapped.Reader
	names  []string
	files  map[string]*zip.File
}

// OpenArchive opens a .npz file. The caller closes it.
func OpenArchive(path string) (*Archive, error) {
	r, err := mapped.Open(path)
	if err != nil {
		return nil, wrap(err)
	}
	a, err := newArchive(r)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("npy: %s: %w", path, err), r.Close())
	}
	return a, nil
}

// NewArchive reads a .npz file of size bytes from r, which stays the caller's and must stay usable.
func NewArchive(r io.ReaderAt, size int64) (*Archive, error) {
	a, err := newArchive(mapped.NewReader(r, size))
	return a, wrap(err)
}

func newArchive(r *mapped.Reader) (*Archive, error) {
	z, err := zip.NewReader(r, r.Size())
	if err != nil && !errors.Is(err, zip.ErrInsecurePath) { // names are not used as paths
		return nil, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	a := &Archive{reader: r, files: map[string]*zip.File{}}
	for _, f := range z.File {
		name, ok := strings.CutSuffix(f.Name, suffix)
		if !ok {
			continue
		}
		if a.files[name] != nil {
			return nil, fmt.Errorf("%w: array %.64q is there twice", ErrInvalid, name)
		}
		a.files[name] = f
		a.names = append(a.names, name)
	}
	return a, nil
}

// Close closes the file. Tensors stay. Closing nil or twice is harmless.
func (a *Archive) Close() error {
	if a == nil {
		return nil
	}
	return a.reader.Close()
}

// Names returns the names of the arrays in the order of the file. The caller must not change the slice.
func (a *Archive) Names() []string { return a.names }

// Header describes an array without reading its data.
func (a *Archive) Header(name string) (h Header, err error) {
	err = a.open(name, func(_ *zip.File, read *header, _ io.Reader) error {
		h = read.Header
		return nil
	})
	return h, err
}

// Tensor reads an array onto the CPU. Errors: ErrNoArray, ErrInvalid, ErrType, and for one that is larger than MaxBytes.
func (a *Archive) Tensor(name string) (*tensor.Tensor, error) {
	return a.tensor(name, nil, a.limits())
}

// TensorAs is Tensor converted to another type, as ReadAs is.
func (a *Archive) TensorAs(name string, t tensor.DType) (*tensor.Tensor, error) {
	return a.tensor(name, &t, a.limits())
}

// ReadAll reads all arrays onto the CPU. With an error it frees those that it has read.
func (a *Archive) ReadAll() (map[string]*tensor.Tensor, error) {
	all := make(map[string]*tensor.Tensor, len(a.names))
	left := a.limits()
	for _, name := range a.names {
		x, err := a.tensor(name, nil, left)
		if err != nil {
			for _, x := range all {
				x.Free()
			}
			return nil, err
		}
		all[name] = x
	}
	return all, nil
}

// limits are how many bytes may still be inflated, and read as they are stored: entries that share data would make much of a small file.
type limits struct{ inflated, stored int64 }

func (a *Archive) limits() *limits {
	return &limits{cmp.Or(max(0, a.MaxBytes), defaultMaxBytes), a.reader.Size()}
}

// tensor reads an array within the limits, from which it takes what it read.
func (a *Archive) tensor(name string, to *tensor.DType, left *limits) (x *tensor.Tensor, err error) {
	err = a.open(name, func(f *zip.File, h *header, r io.Reader) (err error) {
		size, err := h.bytes(to)
		if err != nil {
			return err
		}
		switch {
		case f.Method != zip.Store && size > left.inflated:
			return fmt.Errorf("%d bytes are compressed; Archive.MaxBytes allows %d", size, left.inflated)
		case f.Method != zip.Store:
			left.inflated -= size
		case size > left.stored:
			return fmt.Errorf("%w: shape %v of %s takes %d bytes, and all arrays more than the file has", ErrInvalid, h.Shape, h.Type, size)
		default:
			left.stored -= size
		}
		if x, err = h.read(r, to); err != nil {
			return err
		}
		var one [1]byte
		if n, err := io.ReadFull(r, one[:]); n > 0 || !errors.Is(err, io.EOF) { // at the end the checksum is compared
			x.Free()
			if n > 0 {
				err = fmt.Errorf("%w: more than the %d bytes of shape %v", ErrInvalid, size, h.Shape)
			}
			return err
		}
		return nil
	})
	return x, err
}

// open calls do with an array's header and what is behind it.
func (a *Archive) open(name string, do func(*zip.File, *header, io.Reader) error) error {
	f := a.files[name]
	if f == nil {
		return fmt.Errorf("npy: array %.64q: %w", name, ErrNoArray)
	}
	r, err := f.Open()
	if err == nil {
		defer r.Close()
		var h *header
		if h, _, err = readHeader(r); err == nil {
			err = do(f, h, r)
		}
	}
	if errors.Is(err, zip.ErrFormat) || errors.Is(err, zip.ErrAlgorithm) || errors.Is(err, zip.ErrChecksum) {
		err = fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	if err != nil {
		return fmt.Errorf("npy: array %.64q: %w", name, err)
	}
	return nil
}

// SaveArchive writes tensors by their names to a .npz file at path, whole or not at all, as numpy.savez does, or compressed as
// numpy.savez_compressed. The types are those of Write.
func SaveArchive(path string, arrays map[string]*tensor.Tensor, compressed bool) error {
	names := slices.Sorted(maps.Keys(arrays))
	headers := map[string][]byte{}
	for _, name := range names {
		if name == "" || len(name) > 1<<15 || !utf8.ValidString(name) {
			return fmt.Errorf("npy: %.64q is no name of an array", name)
		}
		h, err := headerOf(arrays[name])
		if err != nil {
			return fmt.Errorf("npy: array %.64q: %w", name, err)
		}
		headers[name] = h
	}
	method := zip.Store
	if compressed {
		method = zip.Deflate
	}
	return wrap(wholefile.Write(path, func(w io.Writer) error {
		z := zip.NewWriter(w)
		for _, name := range names {
			entry, err := z.CreateHeader(&zip.FileHeader{Name: name + suffix, Method: method})
			if err == nil {
				err = write(entry, headers[name], arrays[name])
			}
			if err != nil {
				return fmt.Errorf("array %.64q: %w", name, err)
			}
		}
		return z.Close()
	}))
}
