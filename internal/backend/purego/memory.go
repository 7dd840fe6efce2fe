package purego

import (
	"fmt"
	"math"
	"math/bits"
	"slices"
	"unsafe"

	"github.com/vibrant-ml/vibrant/internal/backend/kernel"
)

// unknownMemory stands for a size that the system does not tell: no limit.
const unknownMemory = 1 << 46

// An array is memory of a plain float type, read and written as float32; or of Q8_0, in whole blocks.
type array struct {
	p unsafe.Pointer
	t kernel.DType
}

// view returns n elements from lo on for writing: the memory itself for F32, else buf, which commit then stores.
func (a array) view(lo, n int, buf []float32) []float32 {
	if a.t == kernel.F32 {
		return unsafe.Slice((*float32)(unsafe.Add(a.p, 4*lo)), n)
	}
	return buf[:n]
}

// load returns n elements from lo on as float32: the memory itself for F32, else converted into buf.
func (a array) load(lo, n int, buf []float32) []float32 {
	v := a.view(lo, n, buf)
	switch a.t {
	case kernel.F16:
		for i, h := range unsafe.Slice((*uint16)(unsafe.Add(a.p, 2*lo)), n) {
			v[i] = f16ToF32(h)
		}
	case kernel.BF16:
		for i, h := range unsafe.Slice((*uint16)(unsafe.Add(a.p, 2*lo)), n) {
			v[i] = bf16ToF32(h)
		}
	case kernel.Q8_0:
		dequantize(v, unsafe.Add(a.p, a.t.Bytes(lo)), a.t)
	}
	return v
}

// commit stores what a caller wrote to view(lo, len(v)).
func (a array) commit(lo int, v []float32) {
	switch a.t {
	case kernel.F16:
		out := unsafe.Slice((*uint16)(unsafe.Add(a.p, 2*lo)), len(v))
		for i, f := range v {
			out[i] = f32ToF16(f)
		}
	case kernel.BF16:
		out := unsafe.Slice((*uint16)(unsafe.Add(a.p, 2*lo)), len(v))
		for i, f := range v {
			out[i] = f32ToBF16(f)
		}
	case kernel.Q8_0:
		quantizeQ8_0(slice[byte](unsafe.Add(a.p, a.t.Bytes(lo)), int(a.t.Bytes(len(v)))), v)
	}
}

// buffer returns scratch for load and view of n elements, none where F32 makes it needless.
func (a array) buffer(n int) []float32 {
	if a.t == kernel.F32 {
		return nil
	}
	return make([]float32, n)
}

func slice[T any](p kernel.Ptr, n int) []T { return unsafe.Slice((*T)(p), n) }

// The checks below name the op and what was wrong; they mirror csrc/ops.c.

// volume returns the product of the sizes, refusing negative ones and overflow.
func volume(op string, sizes ...int) (int, error) {
	for _, s := range sizes {
		if s < 0 {
			return 0, fmt.Errorf("%s: size %d: %w", op, s, kernel.ErrInvalid)
		}
	}
	if slices.Contains(sizes, 0) {
		return 0, nil
	}
	n := uint64(1)
	for _, s := range sizes {
		hi, lo := bits.Mul64(n, uint64(s))
		if hi != 0 || lo > math.MaxInt/4 { // elements of 4 bytes stay addressable
			return 0, fmt.Errorf("%s: sizes %v overflow: %w", op, sizes, kernel.ErrInvalid)
		}
		n = lo
	}
	return int(n), nil
}

func notNil(op string, ps ...kernel.Ptr) error {
	for _, p := range ps {
		if p == nil {
			return fmt.Errorf("%s: null pointer: %w", op, kernel.ErrInvalid)
		}
	}
	return nil
}

func floatType(op string, t kernel.DType) error {
	if t != kernel.F32 && t != kernel.F16 && t != kernel.BF16 {
		return fmt.Errorf("%s: type %v: %w", op, t, kernel.ErrInvalid)
	}
	return nil
}

// cacheType checks the type of a key-value cache with heads of dim.
func cacheType(op string, t kernel.DType, dim int) error {
	if t == kernel.Q8_0 {
		if dim%t.BlockSize() != 0 {
			return fmt.Errorf("%s: heads of %d in a cache of %v: want a multiple of %d: %w", op, dim, t, t.BlockSize(), kernel.ErrInvalid)
		}
		return nil
	}
	return floatType(op, t)
}

// weightBytes checks the shape and type of a stored weight (its data aside) and returns its size.
func weightBytes(op string, w kernel.Weight) (int64, error) {
	if !w.Type.Known() || integer(w.Type) {
		return 0, fmt.Errorf("%s: weights of %v: %w", op, w.Type, kernel.ErrInvalid)
	}
	if w.Packed {
		return 0, fmt.Errorf("%s: packed weights: %w", op, kernel.ErrUnsupported)
	}
	n, err := volume(op, w.Rows, w.Cols)
	if err == nil && w.Cols%w.Type.BlockSize() != 0 {
		err = fmt.Errorf("%s: %d columns are no multiple of %v's block of %d: %w", op, w.Cols, w.Type, w.Type.BlockSize(), kernel.ErrInvalid)
	}
	return w.Type.Bytes(n), err
}
