package tensor

import (
	"fmt"
	"slices"

	"github.com/vibrant-ml/vibrant/gpu"
	"github.com/vibrant-ml/vibrant/internal/backend/kernel"
)

// Arena is one piece of device memory that several tensors are cut from: what lives and dies together takes exactly its
// size, and one allocation. Free of any of its tensors frees them all.
type Arena struct {
	stream *gpu.Stream
	buffer *gpu.Buffer
	used   int64
}

// arenaAlignment is that of the device's own allocations.
const arenaAlignment = 256

// Aligned returns what a tensor of that many bytes takes in an arena.
func Aligned(bytes int64) int64 { return (bytes + arenaAlignment - 1) &^ (arenaAlignment - 1) }

// NewArena reserves memory in the order of a stream: the sum of Aligned over the tensors to come.
// Errors: gpu.ErrOutOfMemory and other trouble of the device.
func NewArena(s *gpu.Stream, bytes int64) (*Arena, error) {
	b, err := s.Reserve(bytes)
	if err != nil {
		return nil, err
	}
	return &Arena{stream: s, buffer: b}, nil
}

// New cuts off a tensor with undefined contents. Errors: *ShapeError for a shape that is none, gpu.ErrOutOfMemory where the arena is used up.
func (a *Arena) New(dtype DType, shape ...int) (*Tensor, error) {
	n, err := elements("new", dtype, shape)
	if err != nil {
		return nil, err
	}
	return a.cut(&Tensor{dtype: dtype, shape: append([]int(nil), shape...), n: n}, dtype.Bytes(n))
}

// NewPacked cuts off weights, (rows, cols) or (experts, rows, cols), in the form that their device reads fastest, for
// PackInto to fill; nil where the device gains nothing from packing.
// Errors: gpu.ErrOutOfMemory where the arena is used up, and those of PackedSize.
func (a *Arena) NewPacked(dtype DType, shape ...int) (*Tensor, error) {
	bytes, err := PackedSize(a.stream.Device(), dtype, shape...)
	if err != nil || bytes == 0 {
		return nil, err
	}
	return a.cut(&Tensor{dtype: dtype, shape: append([]int(nil), shape...), n: extent(shape), packed: true, packedBytes: bytes}, bytes)
}

func (a *Arena) cut(t *Tensor, bytes int64) (*Tensor, error) {
	if bytes > a.buffer.Size()-a.used {
		return nil, fmt.Errorf("tensor: %d bytes of an arena of %d with %d used: %w", bytes, a.buffer.Size(), a.used, gpu.ErrOutOfMemory)
	}
	t.buffer, t.offset = a.buffer, a.used
	a.used = min(a.used+Aligned(bytes), a.buffer.Size())
	return t, nil
}

// Reset makes the whole arena free for other tensors. Those that were cut before share its memory with them: it is for
// memory that is used in turns, in the order of the stream.
func (a *Arena) Reset() { a.used = 0 }

// Free gives the memory back. Freeing nil or twice is harmless.
func (a *Arena) Free() {
	if a != nil {
		a.buffer.Free()
	}
}

// PackedSize returns the bytes of weights, (rows, cols) or (experts, rows, cols), in packed form; 0 where the device gains
// nothing from packing. Errors: *ShapeError, and trouble of the device (gpu.ErrClosed, gpu.ErrDeviceLost).
func PackedSize(d *gpu.Device, dtype DType, shape ...int) (int64, error) {
	if err := checkPacked("packed size", dtype, shape); err != nil {
		return 0, err
	}
	if _, err := elements("packed size", dtype, shape); err != nil {
		return 0, err
	}
	if !packable(shape) {
		return 0, nil
	}
	last := len(shape) - 1
	return packedSize(d, kernel.Weight{Type: dtype, Rows: extent(shape[:last]), Cols: shape[last]})
}

// PackInto fills dst, of Arena.NewPacked, with the weights of src as stored, on the same device.
// Errors: *ShapeError for other types or shapes, and *OpError.
func PackInto(dst, src *Tensor) error { return PackOn(dst.Stream(), dst, src) }

// PackOn is PackInto in the order of another stream of the device. Errors: those of PackInto.
func PackOn(s *gpu.Stream, dst, src *Tensor) error {
	if !dst.packed || src.packed || dst.dtype != src.dtype || !slices.Equal(dst.shape, src.shape) {
		return &ShapeError{"pack", fmt.Sprintf("%v %s into %v %s", src.dtype, shapeString(src.shape), dst.dtype, shapeString(dst.shape))}
	}
	return Try(func() {
		exec("pack", s, 1, func(k kernel.Stream, p pointers) error {
			return k.WeightPack(p[0], src.weight(p[1]))
		}, dst, src)
	})
}

// Upload describes data, as stored, that is to fill the tensor, which is contiguous: see gpu.Upload.
// Panics: *ShapeError.
func (t *Tensor) Upload(read func(dst []byte, offset int64) error, then func() error) gpu.Upload {
	if t.strides != nil {
		misuse("upload", "%s: a view with strides", shapeString(t.shape))
	}
	return gpu.Upload{To: t.buffer, At: t.offset, Bytes: t.Bytes(), Read: read, Then: then}
}
