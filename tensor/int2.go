package tensor

import (
	"errors"
	"fmt"

	"github.com/vibrant-ml/vibrant/internal/backend/kernel"
)

// Int2Layout is an order of two-bit codes in memory. The code c of the first two stands for the weight c - 1; docs/ternary.md has
// pictures.
type Int2Layout int

const (
	// Int2Rows has element k of a row in byte k / 4, at bit 2 (k % 4).
	Int2Rows = Int2Layout(kernel.Int2Rows)
	// Int2Interleaved has rows of pieces of 16 bytes, in the order that the kernels read.
	Int2Interleaved = Int2Layout(kernel.Int2Interleaved)
	// Int2Microsoft is that of Microsoft's BitNet for its GPU kernel, whose code c stands for c - 2: tiles of 16 rows and 32 elements.
	// It is for ConvertInt2 and TernaryFromCodes.
	Int2Microsoft = Int2Layout(kernel.Int2Microsoft)
)

// ErrInt2Code is wrapped by the errors of weights, or codes, that are none of -1, 0, 1.
var ErrInt2Code = errors.New("no ternary weight")

// Int2RowBytes returns the bytes of a row of cols elements; 0 where the layout has no such row.
func Int2RowBytes(layout Int2Layout, cols int) int {
	switch {
	case cols < 0:
		return 0
	case layout == Int2Rows:
		return (cols + 3) / 4
	case layout == Int2Interleaved:
		return (cols + 63) / 64 * 16
	case layout == Int2Microsoft && cols%32 == 0:
		return cols / 4
	}
	return 0
}

// int2Place returns the byte of a matrix of rows of cols elements, and the bit in it, where element k of row r lies.
func int2Place(layout Int2Layout, r, k, cols int) (at, shift int) {
	switch layout {
	case Int2Rows:
		return r*((cols+3)/4) + k/4, k % 4 * 2
	case Int2Interleaved:
		pieces, word := min(8, (cols+63)/64-k/512*8), k%512/16
		return r*((cols+63)/64*16) + k/512*128 + word%pieces*16 + word/pieces*4 + k%4, k % 16 / 4 * 2
	}
	return r/16*4*cols + k/32*128 + r%16/8*64 + k%32/16*32 + r%8*4 + k%4, k % 16 / 4 * 2
}

func int2Matrix(op string, layout Int2Layout, rows, cols int) error {
	if rows < 0 || cols < 0 || cols > 0 && Int2RowBytes(layout, cols) == 0 || layout == Int2Microsoft && rows%16 != 0 {
		return &ShapeError{op, fmt.Sprintf("(%d,%d) in layout %d", rows, cols, layout)}
	}
	return nil
}

// int2Zero is the code of the weight 0.
func int2Zero(layout Int2Layout) int8 {
	if layout == Int2Microsoft {
		return 2
	}
	return 1
}

// EncodeInt2 returns values (rows*cols of -1, 0, 1) as codes of a layout. Errors: ErrInt2Code for another value, *ShapeError.
func EncodeInt2(layout Int2Layout, values []int8, rows, cols int) ([]byte, error) {
	const op = "encode int2"
	if err := int2Matrix(op, layout, rows, cols); err != nil {
		return nil, err
	}
	if len(values) != rows*cols {
		return nil, &ShapeError{op, fmt.Sprintf("%d values do not fill (%d,%d)", len(values), rows, cols)}
	}
	out := make([]byte, rows*Int2RowBytes(layout, cols))
	for i := range out {
		out[i] = 0x55
	}
	for i, v := range values {
		if v < -1 || v > 1 {
			return nil, fmt.Errorf("%s: %w: %d at row %d, column %d", op, ErrInt2Code, v, i/cols, i%cols)
		}
		at, shift := int2Place(layout, i/cols, i%cols, cols)
		out[at] = out[at]&^(3<<shift) | byte(v+int2Zero(layout))<<shift
	}
	return out, nil
}

// DecodeInt2 returns the weights of codes. Errors: ErrInt2Code for a code that stands for none, *ShapeError.
func DecodeInt2(layout Int2Layout, codes []byte, rows, cols int) ([]int8, error) {
	const op = "decode int2"
	if err := int2Matrix(op, layout, rows, cols); err != nil {
		return nil, err
	}
	if len(codes) != rows*Int2RowBytes(layout, cols) {
		return nil, &ShapeError{op, fmt.Sprintf("%d bytes for (%d,%d), which takes %d", len(codes), rows, cols, rows*Int2RowBytes(layout, cols))}
	}
	values := make([]int8, rows*cols)
	for i := range values {
		at, shift := int2Place(layout, i/cols, i%cols, cols)
		values[i] = int8(codes[at]>>shift&3) - int2Zero(layout)
		if values[i] < -1 || values[i] > 1 {
			return nil, fmt.Errorf("%s: %w: code %d at row %d, column %d", op, ErrInt2Code, codes[at]>>shift&3, i/cols, i%cols)
		}
	}
	return values, nil
}

// ConvertInt2 returns codes in another layout; there and back gives the same bytes. Errors: those of DecodeInt2.
func ConvertInt2(to, from Int2Layout, codes []byte, rows, cols int) ([]byte, error) {
	values, err := DecodeInt2(from, codes, rows, cols)
	if err != nil {
		return nil, err
	}
	return EncodeInt2(to, values, rows, cols)
}

// FromInt8s returns an I8 tensor on the CPU with a copy of values; no shape means one dimension.
// Panics: *ShapeError, *OpError.
func FromInt8s(values []int8, shape ...int) *Tensor {
	return fromHost("from int8s", I8, bytesOf(values), len(values), shape)
}

// Int8s returns a copy of the values of an I8 tensor; it waits for the device. Panics: *ShapeError, *OpError.
func (t *Tensor) Int8s() []int8 {
	if t.dtype != I8 {
		misuse("int8s", "%v %s: want I8", t.dtype, shapeString(t.shape))
	}
	values := make([]int8, t.n)
	if err := t.read(bytesOf(values)); err != nil {
		fail("int8s", err, t)
	}
	return values
}
