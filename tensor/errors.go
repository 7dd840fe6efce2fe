package tensor

import (
	"fmt"
	"strconv"
	"strings"
)

// ShapeError is the panic value of an op whose operands do not fit each other: a mistake of the program, as an index
// out of range is. Try turns it into an error.
type ShapeError struct {
	Op     string // "matmul"
	Detail string // "(4,8) x (7,16): inner dimensions 8 and 7 differ"
}

func (e *ShapeError) Error() string { return e.Op + ": " + e.Detail }

// OpError is the panic value of an op that its device could not run and that may not run elsewhere. It wraps the reason
// (gpu.ErrOutOfMemory, gpu.ErrUnsupported, gpu.ErrDeviceLost, gpu.ErrClosed, ...). Try turns it into an error.
type OpError struct {
	Op     string
	Shapes [][]int // of the operands, outputs first; nil for one that was left out
	Err    error
}

func (e *OpError) Error() string {
	shapes := make([]string, len(e.Shapes))
	for i, s := range e.Shapes {
		if shapes[i] = shapeString(s); s == nil {
			shapes[i] = "none"
		}
	}
	return fmt.Sprintf("%s: %s: %v", e.Op, strings.Join(shapes, " "), e.Err)
}

func (e *OpError) Unwrap() error { return e.Err }

// Try calls f and returns the *ShapeError or *OpError that an op in it panicked with, if any. Other panics pass.
func Try(f func()) (err error) {
	defer func() {
		switch e := recover().(type) {
		case nil:
		case *ShapeError:
			err = e
		case *OpError:
			err = e
		default:
			panic(e)
		}
	}()
	f()
	return nil
}

// misuse panics with a ShapeError.
func misuse(op, format string, args ...any) {
	panic(&ShapeError{Op: op, Detail: fmt.Sprintf(format, args...)})
}

// fail panics with an OpError.
func fail(op string, err error, operands ...*Tensor) {
	shapes := make([][]int, len(operands))
	for i, t := range operands {
		if t != nil {
			shapes[i] = t.Shape()
		}
	}
	panic(&OpError{Op: op, Shapes: shapes, Err: err})
}

// shapeString prints (4,8).
func shapeString(shape []int) string {
	b := []byte{'('}
	for i, n := range shape {
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendInt(b, int64(n), 10)
	}
	return string(append(b, ')'))
}
