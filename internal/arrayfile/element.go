// Package arrayfile has what the formats of arrays in files share: the types of elements there, and those of tensors.
package arrayfile

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"runtime/debug"
	"slices"

	"github.com/vibrant-ml/vibrant/gpu"
	"github.com/vibrant-ml/vibrant/internal/mapped"
	"github.com/vibrant-ml/vibrant/tensor"
)

// ErrType says that tensors, or files, do not have a type.
var ErrType = errors.New("type not supported")

// Element is a type of elements in files.
type Element struct {
	Kind byte // 'f' IEEE float, 'i' integer, 'u' integer without sign, 'b' bool; 'B' bfloat16
	Size int  // bytes
}

// Stored returns the tensor type of the same elements, and whether there is one.
func (e Element) Stored() (tensor.DType, bool) {
	t, ok := map[Element]tensor.DType{
		{'f', 4}: tensor.F32, {'f', 2}: tensor.F16, {'B', 2}: tensor.BF16, {'i', 4}: tensor.I32, {'i', 1}: tensor.I8,
		{'u', 1}: tensor.U8, {'b', 1}: tensor.BOOL,
	}[e]
	return t, ok
}

// Of returns how elements of a tensor type are stored, and whether files have it.
func Of(t tensor.DType) (Element, bool) {
	e, ok := map[tensor.DType]Element{
		tensor.F32: {'f', 4}, tensor.F16: {'f', 2}, tensor.BF16: {'B', 2}, tensor.I32: {'i', 4}, tensor.I8: {'i', 1},
		tensor.U8: {'u', 1}, tensor.BOOL: {'b', 1},
	}[t]
	return e, ok
}

// Near returns the tensor type that elements without one of their own convert to: F32 for F64, I32 for integers. Integers may
// become F32, too.
func (e Element) Near() (tensor.DType, bool) {
	switch {
	case e == Element{'f', 8}:
		return tensor.F32, true
	case e.Kind == 'i' && (e.Size == 2 || e.Size == 8), e.Kind == 'u' && (e.Size == 2 || e.Size == 4 || e.Size == 8):
		return tensor.I32, true
	}
	return 0, false
}

// Tensor makes a tensor of elements as a file has them, of type `to`, or of their own where to is nil. It converts where a
// caller asks for that, and never else. data may be changed. keep is what holds its memory, or nil. Data of a mapped file that was cut
// short meanwhile is zeros, or mapped.ErrFileChanged.
func Tensor(d *gpu.Device, e Element, order binary.ByteOrder, data []byte, keep any, to *tensor.DType, shape ...int) (t *tensor.Tensor, err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	err = mapped.ErrFileChanged // where Recover ends what follows
	defer mapped.Recover()
	return e.tensor(d, order, data, keep, to, shape)
}

func (e Element) tensor(d *gpu.Device, order binary.ByteOrder, data []byte, keep any, to *tensor.DType, shape []int) (*tensor.Tensor, error) {
	stored, ok := e.Stored()
	if !ok {
		if to == nil {
			return nil, ErrType
		}
		near, ok := e.Near()
		if !ok {
			return nil, ErrType
		}
		stored = near
		if near == tensor.I32 && *to == tensor.F32 {
			stored = tensor.F32
		}
		var err error
		if data, err = e.convert(stored, order, data); err != nil {
			return nil, err
		}
		keep = nil
	} else if order == binary.BigEndian && e.Size > 1 {
		for i := 0; i < len(data); i += e.Size {
			slices.Reverse(data[i : i+e.Size])
		}
	}
	if stored == tensor.BOOL {
		for i, b := range data {
			if b > 1 {
				return nil, fmt.Errorf("element %d is a bool of value %d", i, b)
			}
		}
	}
	t, err := tensor.FromMemory(d, stored, data, keep, shape...)
	if err != nil || to == nil || *to == stored {
		return t, err
	}
	defer t.Free()
	var converted *tensor.Tensor
	err = tensor.Try(func() { converted = tensor.Convert(t, *to) })
	return converted, err
}

// convert returns the elements as F32 or I32 of this machine. An integer that I32 does not hold is an error.
func (e Element) convert(to tensor.DType, order binary.ByteOrder, data []byte) ([]byte, error) {
	n := len(data) / e.Size
	out := make([]byte, 0, 4*n)
	for i := range n {
		b := data[i*e.Size : (i+1)*e.Size]
		var word uint64
		switch e.Size {
		case 2:
			word = uint64(order.Uint16(b))
		case 4:
			word = uint64(order.Uint32(b))
		default:
			word = order.Uint64(b)
		}
		whole, float := int64(word), float64(word)
		switch e.Kind {
		case 'f':
			float = math.Float64frombits(word)
		case 'i':
			whole = int64(word<<(64-8*e.Size)) >> (64 - 8*e.Size)
			float = float64(whole)
		}
		switch {
		case to == tensor.F32 && e.Kind == 'i':
			out = binary.NativeEndian.AppendUint32(out, math.Float32bits(float32(whole)))
		case to == tensor.F32 && e.Kind == 'u':
			out = binary.NativeEndian.AppendUint32(out, math.Float32bits(float32(word)))
		case to == tensor.F32:
			out = binary.NativeEndian.AppendUint32(out, math.Float32bits(float32(float)))
		case float < math.MinInt32 || float > math.MaxInt32:
			return nil, fmt.Errorf("element %d, %.0f, does not fit I32", i, float)
		default:
			out = binary.NativeEndian.AppendUint32(out, uint32(int32(whole)))
		}
	}
	return out, nil
}

// chunk bounds the host memory that a tensor passes through on its way to a file.
const chunk = 16 << 20

// Data hands the elements of a tensor, in row-major order, to write, piece by piece.
func Data(t *tensor.Tensor, write func([]byte) error) error {
	return catch(func() error {
		flat := t.ToContiguous()
		if flat != t {
			defer flat.Free()
		}
		size := t.DType().BlockBytes()
		flat = flat.Reshape(t.Len())
		b := make([]byte, min(int64(chunk), t.Bytes()))
		for at, most := 0, chunk/size; at < t.Len(); at += most {
			part := flat.Slice(at, min(at+most, t.Len()))
			b := b[:part.Bytes()]
			if err := part.ReadBytes(b); err != nil {
				return err
			}
			if err := write(b); err != nil {
				return err
			}
		}
		return nil
	})
}

// catch returns the error of f, or of an operation in it.
func catch(f func() error) (err error) {
	if panicked := tensor.Try(func() { err = f() }); panicked != nil {
		return panicked
	}
	return err
}
