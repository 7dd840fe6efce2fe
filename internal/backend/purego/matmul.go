package purego

import (
	"fmt"

	"github.com/vibrant-ml/vibrant/internal/backend/kernel"
)

func (s *stream) MatMulSingleRow(c, a, b kernel.Ptr, t kernel.DType, k, n int) error {
	return s.MatMul(&kernel.MatMulArgs{C: c, A: a, B: b, M: 1, K: k, N: n, Batch: 1, AStride: k, BStride: n, CStride: n, Type: t})
}

// MatMul walks panels of columns, so that the sums of one row of a panel stay in the cache; each sum is float32 over
// runs of 64 products and float64 over the runs. That is more than any precision asks for.
func (s *stream) MatMul(a *kernel.MatMulArgs) error {
	if size, err := checkMatMul(a); size == 0 || err != nil {
		return err
	}
	const panel = 256
	panels := (a.N + panel - 1) / panel
	rows := min(max(a.M*panels*a.Batch/(4*s.device.threads), 1), a.M, 64) // that share a panel of b while it is in the cache
	tiles := (a.M + rows - 1) / rows
	s.device.parallel(a.Batch*panels*tiles, 1, func(lo, hi int) {
		m := newMatrixProduct(a, rows, panel)
		for item := lo; item < hi; item++ {
			i, j := item%tiles*rows, item/tiles%panels*panel
			m.tile(item/(tiles*panels), i, min(i+rows, a.M), j, min(j+panel, a.N))
		}
	})
	return nil
}

// checkMatMul returns how many elements the output has.
func checkMatMul(a *kernel.MatMulArgs) (int, error) {
	const op = "matmul"
	size, err := volume(op, a.Batch, a.M, a.N)
	if err == nil {
		_, err = volume(op, a.Batch, a.M, a.K, a.N)
	}
	if size == 0 || err != nil {
		return 0, err
	}
	if err := floatType(op, a.Type); err != nil {
		return 0, err
	}
	if a.Precision < kernel.PrecisionFloat32 || a.Precision > kernel.PrecisionTF32 {
		return 0, fmt.Errorf("%s: precision %d: %w", op, a.Precision, kernel.ErrInvalid)
	}
	for _, x := range []struct {
		name                            string
		rows, cols, stride, batchStride int
		transposed                      bool
	}{{"a", a.M, a.K, a.AStride, a.ABatchStride, a.ATransposed}, {"b", a.K, a.N, a.BStride, a.BBatchStride, a.BTransposed}, {"c", a.M, a.N, a.CStride, a.CBatchStride, false}} {
		if x.transposed {
			x.rows, x.cols = x.cols, x.rows
		}
		if x.stride < 0 || x.rows > 0 && x.stride < x.cols || x.batchStride < 0 {
			return 0, fmt.Errorf("%s: %s of %d columns with strides %d and %d: %w", op, x.name, x.cols, x.stride, x.batchStride, kernel.ErrInvalid)
		}
		if _, err := volume(op, x.rows, x.stride); err != nil {
			return 0, err
		}
		if _, err := volume(op, a.Batch, x.batchStride); err != nil {
			return 0, err
		}
	}
	interleaved := a.CBatchStride >= a.N && a.CStride >= (a.Batch-1)*a.CBatchStride+a.N
	if a.Batch > 1 && a.CBatchStride < (a.M-1)*a.CStride+a.N && !interleaved {
		return 0, fmt.Errorf("%s: matrices of c overlap each other: %w", op, kernel.ErrInvalid)
	}
	if err := notNil(op, a.C); err != nil || a.K == 0 {
		return size, err
	}
	if err := notNil(op, a.A, a.B); err != nil {
		return 0, err
	}
	element := a.Type.BlockBytes()
	c := matrices{a.C, a.Batch, a.CBatchStride, a.M, a.CStride, a.N, element}
	if c.overlap(newMatrices(a.A, a.Batch, a.ABatchStride, a.M, a.AStride, a.K, element, a.ATransposed)) {
		return 0, fmt.Errorf("%s: c overlaps a: %w", op, kernel.ErrInvalid)
	}
	if c.overlap(newMatrices(a.B, a.Batch, a.BBatchStride, a.K, a.BStride, a.N, element, a.BTransposed)) {
		return 0, fmt.Errorf("%s: c overlaps b: %w", op, kernel.ErrInvalid)
	}
	return size, nil
}

// matrices are an operand of a product as it is stored: batch matrices of rows of cols elements.
type matrices struct {
	data                                            kernel.Ptr
	batch, batchStride, rows, stride, cols, element int
}

func newMatrices(data kernel.Ptr, batch, batchStride, rows, stride, cols, element int, transposed bool) matrices {
	if transposed {
		rows, cols = cols, rows
	}
	return matrices{data, batch, batchStride, rows, stride, cols, element}
}

// bytes returns how far the matrices reach.
func (m matrices) bytes() int {
	return ((m.batch-1)*m.batchStride + (m.rows-1)*m.stride + m.cols) * m.element
}

// overlap reports whether two operands share memory. Where their rows lie equally far apart, x may have the columns beside those
// of c; else neither may begin before the other's end.
func (c matrices) overlap(x matrices) bool {
	apart := int(uintptr(x.data) - uintptr(c.data))
	if apart >= c.bytes() || -apart >= x.bytes() {
		return false
	}
	if c.stride != x.stride || c.batchStride%c.stride != 0 || x.batchStride%c.stride != 0 {
		return true
	}
	row := c.stride * c.element
	column := (apart%row + row) % row
	return column < c.cols*c.element || column+x.cols*x.element > row
}

// run is how many products a float32 sum takes.
const run = 64

// A matrixProduct computes tiles of a matrix product, with scratch of its own.
type matrixProduct struct {
	*kernel.MatMulArgs
	a, b, c          array
	panel            int // columns of a tile at most
	abuf, bbuf, cbuf []float32
	column           []float32 // a stretch of a column of b, where that is transposed
	strip            []float32 // [run][panel] of b, where that is transposed
	sums             []float64 // [rows][panel]
	part             []float32
}

func newMatrixProduct(a *kernel.MatMulArgs, rows, panel int) *matrixProduct {
	p := &matrixProduct{MatMulArgs: a, a: array{a.A, a.Type}, b: array{a.B, a.Type}, c: array{a.C, a.Type}, panel: panel}
	p.abuf, p.bbuf, p.cbuf = make([]float32, run), p.b.buffer(panel), p.c.buffer(panel)
	p.sums, p.part = make([]float64, rows*panel), make([]float32, panel)
	if a.BTransposed {
		p.strip, p.column = make([]float32, run*panel), p.b.buffer(run)
	}
	return p
}

// terms returns a[i][l0:l1] of a matrix at an offset.
func (p *matrixProduct) terms(offset, i, l0, l1 int) []float32 {
	if !p.ATransposed {
		return p.a.load(offset+i*p.AStride+l0, l1-l0, p.abuf)
	}
	var one [1]float32
	for l := l0; l < l1; l++ {
		p.abuf[l-l0] = p.a.load(offset+l*p.AStride+i, 1, one[:])[0]
	}
	return p.abuf[:l1-l0]
}

// tile computes rows i0..i1-1 and columns j0..j1-1 of matrix z.
func (p *matrixProduct) tile(z, i0, i1, j0, j1 int) {
	a, b, c := z*p.ABatchStride, z*p.BBatchStride, z*p.CBatchStride
	w := j1 - j0
	clear(p.sums)
	for l0 := 0; l0 < p.K; l0 += run {
		l1 := min(l0+run, p.K)
		for q := range w {
			if !p.BTransposed {
				break
			}
			for l, v := range p.b.load(b+(j0+q)*p.BStride+l0, l1-l0, p.column) {
				p.strip[l*p.panel+q] = v
			}
		}
		for i := i0; i < i1; i++ {
			part := p.part[:w]
			clear(part)
			for l, av := range p.terms(a, i, l0, l1) {
				var row []float32
				if p.BTransposed {
					row = p.strip[l*p.panel:][:len(part)]
				} else {
					row = p.b.load(b+(l0+l)*p.BStride+j0, w, p.bbuf)[:len(part)]
				}
				for q, bv := range row {
					part[q] += av * bv
				}
			}
			sum := p.sums[(i-i0)*p.panel:][:w]
			for q, v := range part {
				sum[q] += float64(v)
			}
		}
	}
	for i := i0; i < i1; i++ {
		out := p.c.view(c+i*p.CStride+j0, w, p.cbuf)
		for q := range out {
			out[q] = float32(p.sums[(i-i0)*p.panel+q])
		}
		p.c.commit(c+i*p.CStride+j0, out)
	}
}
