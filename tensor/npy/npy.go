// Package npy reads and writes arrays in numpy's files: .npy, one array, and .npz, a zip archive of them
// (https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html).
//
//	magic     "\x93NUMPY", version 1.0, 2.0 or 3.0
//	length    of the header: u16, from version 2 on u32
//	header    {'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }
//	data      of the elements, in the order that the header says
//
// Types that tensors have come as they are: float32, float16, int32, int8, uint8 and bool, of either byte order. ReadAs and
// LoadAs convert float64 and the other integers; without a request for that they are ErrType, as are text, records, objects and
// complex numbers. numpy has no bfloat16.
//
// An array in Fortran's order becomes a tensor of the same shape whose strides are Fortran's.
//
// Files come from strangers: lengths, shapes and products are checked before they are used, and memory stays proportional to the
// data that is there.
package npy

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"runtime"
	"slices"

	"github.com/vibrant-ml/vibrant/gpu"
	"github.com/vibrant-ml/vibrant/internal/arrayfile"
	"github.com/vibrant-ml/vibrant/internal/mapped"
	"github.com/vibrant-ml/vibrant/internal/wholefile"
	"github.com/vibrant-ml/vibrant/tensor"
)

var (
	// ErrInvalid says that a file is something else, or breaks the rules of the format; the error names the field.
	ErrInvalid = errors.New("invalid npy file")
	// ErrType says that tensors do not have the type of an array, or numpy not that of a tensor.
	ErrType = arrayfile.ErrType
)

// Header describes an array.
type Header struct {
	Type    string // numpy's, such as "<f4": byte order, kind, bytes
	Shape   []int  // none of a scalar
	Fortran bool   // the first dimension is the contiguous one
}

// Read reads an array from r, which it leaves behind the array, onto the CPU.
func Read(r io.Reader) (*tensor.Tensor, error) { return read(r, nil) }

// ReadAs is Read converted to another type. Types of tensors are converted as by tensor.Convert, float64 to F32, and 16- and 64-bit
// integers and uint32 to I32 or, rounded to nearest, to F32. A value that I32 does not hold is an error.
func ReadAs(r io.Reader, t tensor.DType) (*tensor.Tensor, error) { return read(r, &t) }

func read(r io.Reader, to *tensor.DType) (*tensor.Tensor, error) {
	h, _, err := readHeader(r)
	if err != nil {
		return nil, wrap(err)
	}
	x, err := h.read(r, to)
	return x, wrap(err)
}

// Load reads the array of a .npy file onto the CPU. Where the system can, the tensor lies in the mapped file: only what is used comes
// into memory, and the tensor may be written, which does not change the file. The file must not be cut short meanwhile: what is
// gone reads as zeros.
func Load(path string) (*tensor.Tensor, error) { return load(path, nil) }

// LoadAs is Load converted to another type, as ReadAs is.
func LoadAs(path string, t tensor.DType) (*tensor.Tensor, error) { return load(path, &t) }

func load(path string, to *tensor.DType) (*tensor.Tensor, error) {
	r, err := mapped.Open(path)
	if err != nil {
		return nil, wrap(err)
	}
	defer r.Close()
	file := io.NewSectionReader(r, 0, r.Size())
	h, start, err := readHeader(file)
	if err != nil {
		return nil, fmt.Errorf("npy: %s: %w", path, err)
	}
	size, err := h.bytes(to)
	if err == nil && size > r.Size()-start {
		err = fmt.Errorf("%w: shape %v of %s takes %d bytes, the file has %d", ErrInvalid, h.Shape, h.Type, size, r.Size()-start)
	}
	var x *tensor.Tensor
	if err == nil {
		var data []byte
		var keep any
		if data, keep, err = r.Part(start, size); err == nil {
			x, err = h.tensor(data, keep, to)
			runtime.KeepAlive(keep)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("npy: %s: %w", path, err)
	}
	return x, nil
}

// wrap names the package of an error.
func wrap(err error) error {
	if err != nil {
		err = fmt.Errorf("npy: %w", err)
	}
	return err
}

// bytes returns the size of the data, after checking that its type is one that is read.
func (h *header) bytes(to *tensor.DType) (int64, error) {
	_, stored := h.element.Stored()
	_, near := h.element.Near()
	if !stored && !near {
		return 0, fmt.Errorf("'descr': %.32q: %w", h.Type, ErrType)
	}
	if near && to == nil {
		to, _ := h.element.Near()
		return 0, fmt.Errorf("'descr': %.32q: %w (ReadAs and LoadAs convert it to %v)", h.Type, ErrType, to)
	}
	size := h.elements * int64(h.element.Size)
	if size > math.MaxInt {
		return 0, fmt.Errorf("shape %v of %s: more than this system addresses", h.Shape, h.Type)
	}
	return size, nil
}

// read reads the data behind a header. Memory grows with the data that is there, not with what the header announces.
func (h *header) read(r io.Reader, to *tensor.DType) (*tensor.Tensor, error) {
	size, err := h.bytes(to)
	if err != nil {
		return nil, err
	}
	const most = 16 << 20 // taken at once on trust
	var data []byte
	if size <= most {
		data = make([]byte, size)
		_, err = io.ReadFull(r, data)
	} else {
		b := bytes.NewBuffer(make([]byte, 0, most))
		var n int64
		if n, err = io.CopyN(b, r, size); errors.Is(err, io.EOF) && n > 0 {
			err = io.ErrUnexpectedEOF
		}
		data = b.Bytes()
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return nil, fmt.Errorf("%w: shape %v of %s takes %d bytes: %w", ErrInvalid, h.Shape, h.Type, size, io.ErrUnexpectedEOF)
	}
	if err != nil {
		return nil, err
	}
	return h.tensor(data, nil, to)
}

// tensor makes a tensor of the data.
func (h *header) tensor(data []byte, keep any, to *tensor.DType) (*tensor.Tensor, error) {
	shape := slices.Clone(h.Shape)
	if h.Fortran {
		slices.Reverse(shape)
	}
	x, err := arrayfile.Tensor(gpu.CPU(), h.element, h.order, data, keep, to, shape...)
	if err != nil {
		return nil, err
	}
	if h.Fortran && len(shape) > 1 {
		order := make([]int, len(shape))
		for i := range order {
			order[i] = len(shape) - 1 - i
		}
		x = x.Permute(order...)
	}
	return x, nil
}

// Write writes a tensor (F32, F16, I32, I8, U8 or BOOL) of any device to w, in C's order, as numpy.save does. A view is written as it
// reads. Errors: ErrType for other types, BF16 among them; tensor.Convert makes F32 of these.
func Write(w io.Writer, x *tensor.Tensor) error {
	h, err := headerOf(x)
	if err == nil {
		err = write(w, h, x)
	}
	return wrap(err)
}

// Save is Write to a file at path, whole or not at all.
func Save(path string, x *tensor.Tensor) error {
	h, err := headerOf(x)
	if err == nil {
		err = wholefile.Write(path, func(w io.Writer) error { return write(w, h, x) })
	}
	return wrap(err)
}

func write(w io.Writer, h []byte, x *tensor.Tensor) error {
	if _, err := w.Write(h); err != nil {
		return err
	}
	return arrayfile.Data(x, func(b []byte) error {
		_, err := w.Write(b)
		return err
	})
}
