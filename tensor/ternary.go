package tensor

import (
	"errors"
	"fmt"
	"math"
	"runtime"
	"sync"

	"github.com/vibrant-ml/vibrant/gpu"
	"github.com/vibrant-ml/vibrant/internal/backend/kernel"
)

// Ternary is a matrix of weights -1, 0 and 1 times scales, in two bits a weight: what BitNet's layers multiply by (Ma et al. 2024,
// "The Era of 1-bit LLMs"). Its tensors are on one device; Free gives them back.
type Ternary struct {
	Rows, Cols int
	Layout     Int2Layout // Int2Rows or Int2Interleaved
	Codes      *Tensor    // I8 (Rows, Int2RowBytes(Layout, Cols))
	Scales     *Tensor    // F32 (segments), nil for ones
	Ends       *Tensor    // I32 (segments): the row after the last of each segment; nil for equal segments
}

// ErrNotTernary is wrapped by the errors of matrices whose rows hold other numbers than -s, 0 and s.
var ErrNotTernary = errors.New("not ternary")

// Free gives the memory back.
func (w *Ternary) Free() {
	w.Codes.Free()
	w.Scales.Free()
	w.Ends.Free()
}

// Bytes returns the size of the codes and scales.
func (w *Ternary) Bytes() int64 {
	bytes := w.Codes.Bytes()
	for _, t := range []*Tensor{w.Scales, w.Ends} {
		if t != nil {
			bytes += t.Bytes()
		}
	}
	return bytes
}

// NewTernary encodes values (rows*cols of -1, 0, 1) for a device, in Int2Interleaved, which its kernels read fastest. cols is a
// multiple of 4. scales has one number a segment and ends the row after each segment's last (nil for equal segments); nil scales are
// ones. Errors: ErrInt2Code, *ShapeError, and those of the device.
func NewTernary(d *gpu.Device, values []int8, rows, cols int, scales []float32, ends []int32) (*Ternary, error) {
	codes, err := EncodeInt2(Int2Interleaved, values, rows, cols)
	if err != nil {
		return nil, err
	}
	return TernaryFromCodes(d, Int2Interleaved, codes, rows, cols, scales, ends)
}

// TernaryFromCodes is NewTernary of codes of any layout, such as Microsoft's, as EncodeInt2 or another program wrote them.
// Errors: those of NewTernary.
func TernaryFromCodes(d *gpu.Device, layout Int2Layout, codes []byte, rows, cols int, scales []float32, ends []int32) (*Ternary, error) {
	const op = "ternary"
	switch {
	case cols%4 != 0:
		return nil, &ShapeError{op, fmt.Sprintf("(%d,%d): columns are a multiple of 4", rows, cols)}
	case len(scales) > rows || ends != nil && len(ends) != len(scales):
		return nil, &ShapeError{op, fmt.Sprintf("(%d,%d): %d scales and %d ends of segments", rows, cols, len(scales), len(ends))}
	}
	for i, end := range ends {
		if i > 0 && end < ends[i-1] || end < 0 || i == len(ends)-1 && int(end) != rows {
			return nil, &ShapeError{op, fmt.Sprintf("(%d,%d): segments end at %v: want them to ascend to the last row", rows, cols, ends)}
		}
	}
	if layout != Int2Interleaved {
		var err error
		if codes, err = ConvertInt2(Int2Interleaved, layout, codes, rows, cols); err != nil {
			return nil, err
		}
	}
	w := &Ternary{Rows: rows, Cols: cols, Layout: Int2Interleaved}
	var err error
	if w.Codes, err = FromMemory(d, I8, codes, nil, rows, Int2RowBytes(Int2Interleaved, cols)); err != nil {
		return nil, err
	}
	if scales != nil {
		if w.Scales, err = FromMemory(d, F32, bytesOf(scales), nil, len(scales)); err != nil {
			w.Free()
			return nil, err
		}
	}
	if ends != nil {
		if w.Ends, err = FromMemory(d, I32, bytesOf(ends), nil, len(ends)); err != nil {
			w.Free()
			return nil, err
		}
	}
	return w, nil
}

// TernaryOf encodes a matrix of weights of any type on the device of the tensor, with a scale for each row, or one where all are
// equal. ErrNotTernary where a row has other numbers than -s, 0 and s: nothing is rounded. It waits for the device.
// Errors: *ShapeError for another shape or type, ErrNotTernary, trouble of the device.
func TernaryOf(t *Tensor) (*Ternary, error) {
	codes, scales, err := EncodeTernary(t)
	if err != nil {
		return nil, err
	}
	return TernaryFromCodes(t.Device(), Int2Interleaved, codes, t.shape[0], t.shape[1], scales, nil)
}

// EncodeTernary returns the codes, in Int2Interleaved, and scales of TernaryOf in host memory.
// Errors: those of TernaryOf.
func EncodeTernary(t *Tensor) (codes []byte, scales []float32, err error) {
	const op = "ternary"
	if len(t.shape) != 2 || t.dtype == I32 || t.dtype == I8 || t.packed || t.shape[1]%4 != 0 {
		return nil, nil, &ShapeError{op, fmt.Sprintf("%v %s: want (rows, cols) of weights as stored, cols a multiple of 4", t.dtype, shapeString(t.shape))}
	}
	codes, scales, err = EncodeTernaryRows(t.shape[0], t.shape[1], func(first int, values []float32) error {
		return t.Slice(first, first+len(values)/t.shape[1]).ReadFloat32s(values)
	})
	if err != nil {
		err = fmt.Errorf("%s: %v %s: %w", op, t.dtype, shapeString(t.shape), err)
	}
	return codes, scales, err
}

// EncodeTernaryRows is EncodeTernary of rows that read gives: values of whole rows from row first on.
// Errors: ErrNotTernary, and read's.
func EncodeTernaryRows(rows, cols int, read func(first int, values []float32) error) (codes []byte, scales []float32, err error) {
	rowBytes := Int2RowBytes(Int2Interleaved, cols)
	codes, scales = make([]byte, rows*rowBytes), make([]float32, rows)
	const run = 256 // rows whose values are in memory at once
	values := make([]float32, min(run, rows)*cols)
	for first := 0; first < rows; first += run {
		n := min(run, rows-first)
		if err := read(first, values[:n*cols]); err != nil {
			return nil, nil, err
		}
		errs := make([]error, n)
		parallelRows(n, func(r int) {
			scales[first+r], errs[r] = encodeRow(codes[(first+r)*rowBytes:][:rowBytes], values[r*cols:][:cols])
		})
		for r, err := range errs {
			if err != nil {
				return nil, nil, fmt.Errorf("row %d: %w", first+r, err)
			}
		}
	}
	return codes, oneScale(scales), nil
}

// oneScale returns the scale that all rows share, where they do. A scale of 0, of a row of zeros, fits any.
func oneScale(scales []float32) []float32 {
	one := float32(0)
	for _, s := range scales {
		if s == 0 || s == one {
			continue
		}
		if one != 0 {
			return scales
		}
		one = s
	}
	return []float32{one}
}

// encodeRow writes a row in Int2Interleaved and returns its scale.
func encodeRow(codes []byte, values []float32) (scale float32, err error) {
	for i := range codes {
		codes[i] = 0x55
	}
	for k, v := range values {
		if v == 0 {
			continue
		}
		size := float32(math.Abs(float64(v)))
		if scale == 0 && size == size && !math.IsInf(float64(size), 0) {
			scale = size
		}
		if size != scale {
			return 0, fmt.Errorf("%w: %v beside %v", ErrNotTernary, v, scale)
		}
		at, shift := int2Place(Int2Interleaved, 0, k, len(values))
		if v > 0 {
			codes[at] += 1 << shift
		} else {
			codes[at] -= 1 << shift
		}
	}
	return scale, nil
}

// parallelRows calls f for 0..n-1 on all processors.
func parallelRows(n int, f func(i int)) {
	var wg sync.WaitGroup
	workers := min(n, runtime.GOMAXPROCS(0))
	for w := range workers {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for i := w; i < n; i += workers {
				f(i)
			}
		}()
	}
	wg.Wait()
}

// QuantizeRows rounds each row of x (..., cols) F32 to int8 as BitNet's code does: codes (I8, of x's shape) are x * scale to the
// nearest, ties to even, with scales (F32, one a row) 127 / max(|x|, 1e-5). Panics: *ShapeError, *OpError.
func QuantizeRows(x *Tensor) (codes, scales *Tensor) {
	const op = "quantize rows"
	if len(x.shape) == 0 {
		misuse(op, "%v %s: want (..., cols) of F32", x.dtype, shapeString(x.shape))
	}
	codes, scales = output(op, x.Stream(), I8, x.Shape()), output(op, x.Stream(), F32, x.shape[:len(x.shape)-1])
	QuantizeRowsInto(codes, scales, x)
	return codes, scales
}

// QuantizeRowsInto writes QuantizeRows(x) to codes and scales. Panics: *ShapeError, *OpError.
func QuantizeRowsInto(codes, scales, x *Tensor) { NormQuantizeInto(codes, scales, x, Rounding{}) }

// Rounding says what is rounded in the place of x.
type Rounding struct {
	Up         *Tensor    // Activation(x, Up), F32 of x's shape; nil for x
	Activation Activation // with Up: ActivationSiLU or ActivationReLUSquared
	RMSNorm    bool       // RMSNorm of that
	Norm       *Tensor    // its weight, F32 (cols); nil for ones
	Eps        float32
}

// NormQuantizeInto is QuantizeRowsInto of a gated unit, of RMSNorm of x, or both. Panics: *ShapeError, *OpError.
func NormQuantizeInto(codes, scales, x *Tensor, o Rounding) {
	const op = "quantize rows"
	if x.dtype != F32 || len(x.shape) == 0 || codes.dtype != I8 || codes.n != x.n || scales.dtype != F32 || scales.n != x.rows() {
		misuse(op, "%v %s to %v %s and %v %s: want F32 to I8, and F32 of one a row", x.dtype, shapeString(x.shape), codes.dtype,
			shapeString(codes.shape), scales.dtype, shapeString(scales.shape))
	}
	if o.Up != nil && (o.Up.dtype != F32 || o.Up.n != x.n) || o.Norm != nil && (o.Norm.dtype != F32 || o.Norm.n != x.cols()) {
		misuse(op, "%s: up or norm do not fit", shapeString(x.shape))
	}
	norm := o.Norm.on(op, codes.Stream())
	exec(op, codes.Stream(), 2, func(s kernel.Stream, p pointers) error {
		return s.NormQuantize(&kernel.NormQuantizeArgs{Codes: p[0], Scales: p[1], In: p[2], Up: p[3], Norm: p[4], Rows: x.rows(), Cols: x.cols(),
			Activation: o.Activation.kind, Eps: o.Eps, Normed: o.RMSNorm})
	}, codes, scales, x, o.Up, norm)
}

// DequantizeRows returns codes / scales, row by row: F32 of codes' shape. Panics: *ShapeError, *OpError.
func DequantizeRows(codes, scales *Tensor) *Tensor {
	out := output("dequantize rows", codes.Stream(), F32, codes.Shape())
	DequantizeRowsInto(out, codes, scales)
	return out
}

// DequantizeRowsInto writes DequantizeRows(codes, scales) to dst. Panics: *ShapeError, *OpError.
func DequantizeRowsInto(dst, codes, scales *Tensor) {
	const op = "dequantize rows"
	if codes.dtype != I8 || len(codes.shape) == 0 || dst.dtype != F32 || dst.n != codes.n || scales.dtype != F32 || scales.n != codes.rows() {
		misuse(op, "%v %s and %v %s to %v %s: want I8, F32 of one a row, and F32", codes.dtype, shapeString(codes.shape), scales.dtype,
			shapeString(scales.shape), dst.dtype, shapeString(dst.shape))
	}
	exec(op, dst.Stream(), 1, func(s kernel.Stream, p pointers) error {
		return s.DequantizeRows(p[0], p[1], p[2], codes.rows(), codes.cols())
	}, dst, codes, scales)
}

// W2A8Options are what W2A8 adds and how it goes about it; the zero value lets the library choose.
type W2A8Options struct {
	Bias *Tensor // F32 (rows of weights), added; nil for none
	Add  *Tensor // F32 of the result's shape, added; may be the result; nil for none
	Tuning
}

// Tuning is how a GPU computes products of up to eight rows; the result is the same. Zero means what the library thinks best.
type Tuning struct {
	Threads     int  // of a block: 64, 128, 256, or with 4 lanes 512
	Lanes       int  // that share the elements of a row: 4 (int8 tensor cores), 8, 16 or 32
	Tile        int  // rows that a thread has at a time: 1 or 2; with 4 lanes pairs of rows
	Persistent  bool // as many blocks as the GPU holds, each for several tiles; with 4 lanes, one row, by products of single bits (9.0)
	WithoutDP4A bool // byte by byte instead of by dp4a
	Narrow      bool // weights are read by 4 bytes instead of 16
}

// W2A8Sums returns the exact int32 sums of codes (..., cols) I8 times each row of w: I32 (..., rows).
// Panics: *ShapeError, *OpError.
func W2A8Sums(codes *Tensor, w *Ternary) *Tensor {
	return w2a8Output(I32, codes, w, func(out *Tensor) { W2A8Into(out, codes, nil, w, W2A8Options{}) })
}

// W2A8 returns sums / scales * w.Scales + o.Bias + o.Add in F32 (..., rows), with codes and scales of QuantizeRows.
// Panics: *ShapeError, *OpError.
func W2A8(codes, scales *Tensor, w *Ternary, o W2A8Options) *Tensor {
	return w2a8Output(F32, codes, w, func(out *Tensor) { W2A8Into(out, codes, scales, w, o) })
}

func w2a8Output(t DType, codes *Tensor, w *Ternary, fill func(*Tensor)) *Tensor {
	if len(codes.shape) == 0 {
		misuse("w2a8", "%s: want (..., cols)", shapeString(codes.shape))
	}
	shape := codes.Shape()
	shape[len(shape)-1] = w.Rows
	out := output("w2a8", codes.Stream(), t, shape)
	fill(out)
	return out
}

// W2A8Into writes W2A8(codes, scales, w, o) to dst of F32, F16 or BF16. To dst of I32 it writes W2A8Sums(codes, w), which takes
// neither scales nor addends, and ignores w's scales. Panics: *ShapeError, *OpError.
func W2A8Into(dst, codes, scales *Tensor, w *Ternary, o W2A8Options) {
	const op = "w2a8"
	n := codes.rows()
	switch {
	case codes.dtype != I8 || codes.cols() != w.Cols || dst.n != n*w.Rows || dst.cols() != w.Rows:
		misuse(op, "%v %s x ternary (%d,%d)^T into %v %s", codes.dtype, shapeString(codes.shape), w.Rows, w.Cols, dst.dtype, shapeString(dst.shape))
	case w.Cols%4 != 0:
		misuse(op, "ternary (%d,%d): rows of no multiple of 4 codes", w.Rows, w.Cols)
	case dst.dtype != I32 && dst.dtype != F32 && dst.dtype != F16 && dst.dtype != BF16:
		misuse(op, "result %v %s: want I32, F32, F16 or BF16", dst.dtype, shapeString(dst.shape))
	case dst.dtype == I32 && (scales != nil || o.Bias != nil || o.Add != nil):
		misuse(op, "sums of I32 with scales, bias or addend")
	case scales != nil && (scales.dtype != F32 || scales.n != n), o.Bias != nil && (o.Bias.dtype != F32 || o.Bias.n != w.Rows),
		o.Add != nil && (o.Add.dtype != F32 || o.Add.n != dst.n):
		misuse(op, "%s x ternary (%d,%d)^T: scales, bias or addend do not fit", shapeString(codes.shape), w.Rows, w.Cols)
	}
	args := kernel.W2A8GEMVArgs{M: n, N: w.Rows, K: w.Cols, RowBytes: Int2RowBytes(w.Layout, w.Cols), Layout: kernel.Int2Layout(w.Layout),
		OutType: dst.dtype, Settled: w.Codes.aligned(), Threads: o.Threads, Lanes: o.Lanes, Tile: o.Tile, Persistent: o.Persistent,
		WithoutDP4A: o.WithoutDP4A, Narrow: o.Narrow}
	if o.Tuning == (Tuning{}) {
		args = tuned(args, dst.Device())
	}
	stream := dst.Stream()
	values, ends := w.Scales.on(op, stream), w.Ends.on(op, stream)
	if dst.dtype == I32 {
		values, ends = nil, nil
	} else if values != nil {
		args.Segments = values.n
	}
	exec(op, stream, 1, func(s kernel.Stream, p pointers) error {
		args.Out, args.Weights, args.Activations, args.ActivationScales = p[0], p[1], p[2], p[3]
		args.WeightScales, args.SegmentEnds, args.Bias, args.Add = p[4], p[5], p[6], p[7]
		return s.W2A8GEMV(&args)
	}, dst, w.Codes.on(op, stream), codes, scales, values, ends, o.Bias.on(op, stream), o.Add)
}

// BitLinear returns x W^T + bias where the rows of x (..., cols) F32 are rounded to int8 first, as BitNet b1.58's layers do: F32 (...,
// rows). bias is F32 (rows) or nil. Panics: *ShapeError, *OpError.
func BitLinear(x *Tensor, w *Ternary, bias *Tensor) *Tensor {
	codes, scales := QuantizeRows(x)
	defer codes.Free()
	defer scales.Free()
	return W2A8(codes, scales, w, W2A8Options{Bias: bias})
}
