package purego

import (
	"fmt"
	"math"
	"sort"

	"github.com/vibrant-ml/vibrant/internal/backend/kernel"
)

// rows checks a [rows][cols] operation on floats; n is 0 where there is nothing to do.
func rowsOf(op string, t kernel.DType, rows, cols int, ps ...kernel.Ptr) (n int, err error) {
	if n, err = volume(op, rows, cols); n == 0 {
		return 0, err
	}
	if err = floatType(op, t); err == nil {
		err = notNil(op, ps...)
	}
	return n, err
}

func (s *stream) Softmax(out, in kernel.Ptr, t kernel.DType, rows, cols int) error {
	if n, err := rowsOf("softmax", t, rows, cols, out, in); n == 0 || err != nil {
		return err
	}
	dst, src := array{out, t}, array{in, t}
	s.device.parallel(rows, grain(cols), func(lo, hi int) {
		buf := src.buffer(cols)
		for r := lo; r < hi; r++ {
			x := src.load(r*cols, cols, buf)
			y := dst.view(r*cols, cols, buf)
			softmax(y, x)
			dst.commit(r*cols, y)
		}
	})
	return nil
}

// softmax writes exp(x - max) / sum; y may be x.
func softmax(y, x []float32) {
	top := math.Inf(-1)
	for _, v := range x {
		top = math.Max(top, float64(v)) // NaN wins
	}
	sum := 0.0
	for i, v := range x {
		e := math.Exp(float64(v) - top)
		sum += e
		y[i] = float32(e)
	}
	scale := 1 / sum
	for i, v := range y {
		y[i] = float32(float64(v) * scale)
	}
}

// rmsNorm writes x / sqrt(mean(x^2) + eps) * weight; y may be x, an empty weight stands for ones.
func rmsNorm(y, x, weight []float32, eps float32) {
	sum := 0.0
	for _, v := range x {
		sum += float64(v) * float64(v)
	}
	scale := 1 / math.Sqrt(sum/float64(len(x))+float64(eps))
	for i, v := range x {
		w := 1.0
		if len(weight) > 0 {
			w = float64(weight[i])
		}
		y[i] = float32(float64(v) * scale * w)
	}
}

func optional(p kernel.Ptr, n int) []float32 {
	if p == nil {
		return nil
	}
	return slice[float32](p, n)
}

func (s *stream) RMSNorm(out, in, weight kernel.Ptr, t kernel.DType, rows, cols int, eps float32) error {
	if n, err := rowsOf("rms_norm", t, rows, cols, out, in); n == 0 || err != nil {
		return err
	}
	dst, src, w := array{out, t}, array{in, t}, optional(weight, cols)
	s.device.parallel(rows, grain(cols), func(lo, hi int) {
		buf := src.buffer(cols)
		for r := lo; r < hi; r++ {
			x := src.load(r*cols, cols, buf)
			y := dst.view(r*cols, cols, buf)
			rmsNorm(y, x, w, eps)
			dst.commit(r*cols, y)
		}
	})
	return nil
}

func (s *stream) LayerNorm(out, in, weight, bias kernel.Ptr, t kernel.DType, rows, cols int, eps float32) error {
	if n, err := rowsOf("layer_norm", t, rows, cols, out, in); n == 0 || err != nil {
		return err
	}
	dst, src, w, b := array{out, t}, array{in, t}, optional(weight, cols), optional(bias, cols)
	s.device.parallel(rows, grain(cols), func(lo, hi int) {
		buf := src.buffer(cols)
		for r := lo; r < hi; r++ {
			x := src.load(r*cols, cols, buf)
			y := dst.view(r*cols, cols, buf)
			layerNorm(y, x, w, b, eps)
			dst.commit(r*cols, y)
		}
	})
	return nil
}

// layerNorm writes (x - mean) / sqrt(variance + eps) * weight + bias; y may be x, an empty weight stands for ones and an
// empty bias for zeros.
func layerNorm(y, x, weight, bias []float32, eps float32) {
	mean := 0.0
	for _, v := range x {
		mean += float64(v)
	}
	mean /= float64(len(x))
	squares := 0.0
	for _, v := range x {
		d := float64(v) - mean
		squares += d * d
	}
	scale := 1 / math.Sqrt(squares/float64(len(x))+float64(eps))
	for i, v := range x {
		o := (float64(v) - mean) * scale
		if len(weight) > 0 {
			o *= float64(weight[i])
		}
		if len(bias) > 0 {
			o += float64(bias[i])
		}
		y[i] = float32(o)
	}
}

func (s *stream) AddRMSNorm(sum, out, a, b, weight kernel.Ptr, t kernel.DType, rows, cols int, eps float32) error {
	if n, err := rowsOf("add_rms_norm", t, rows, cols, sum, out, a, b); n == 0 || err != nil {
		return err
	}
	total, dst, x, y, w := array{sum, t}, array{out, t}, array{a, t}, array{b, t}, optional(weight, cols)
	s.device.parallel(rows, grain(cols), func(lo, hi int) {
		xbuf, ybuf := x.buffer(cols), y.buffer(cols)
		for r := lo; r < hi; r++ {
			xs, ys := x.load(r*cols, cols, xbuf), y.load(r*cols, cols, ybuf)
			v := total.view(r*cols, cols, xbuf)
			for i := range v {
				v[i] = xs[i] + ys[i]
			}
			total.commit(r*cols, v)
			v = total.load(r*cols, cols, xbuf) // the sum as stored: what a reader of it sees is what was normalised
			o := dst.view(r*cols, cols, ybuf)
			rmsNorm(o, v, w, eps)
			dst.commit(r*cols, o)
		}
	})
	return nil
}

// rank orders floats as argmax and top-k do: by value, NaN above all, zeros of both signs equal.
func rank(f float32) int32 {
	b := math.Float32bits(f)
	m := int32(b & 0x7fffffff)
	switch {
	case m > 0x7f800000:
		return math.MaxInt32
	case b>>31 != 0:
		return -m
	}
	return m
}

func (s *stream) Argmax(out, in kernel.Ptr, rows, cols int) error {
	if err := nonEmptyRows("argmax", rows, cols); rows == 0 || err != nil {
		return err
	}
	if err := notNil("argmax", out, in); err != nil {
		return err
	}
	ids, x := slice[int32](out, rows), slice[float32](in, rows*cols)
	s.device.parallel(rows, grain(cols), func(lo, hi int) {
		for r := lo; r < hi; r++ {
			best, at := int32(math.MinInt32), 0
			for i, v := range x[r*cols : (r+1)*cols] {
				if k := rank(v); k > best {
					best, at = k, i
				}
			}
			ids[r] = int32(at)
		}
	})
	return nil
}

// nonEmptyRows refuses rows without columns, which have no greatest element, and columns that an int32 cannot number.
func nonEmptyRows(op string, rows, cols int) error {
	if _, err := volume(op, rows, cols); err != nil {
		return err
	}
	if rows > 0 && (cols == 0 || cols > math.MaxInt32) {
		return fmt.Errorf("%s: rows of %d columns: %w", op, cols, kernel.ErrInvalid)
	}
	return nil
}

func (s *stream) TopK(values, ids, in kernel.Ptr, rows, cols, k int) error {
	const op = "top_k"
	if k < 0 || k > cols {
		return fmt.Errorf("%s: k = %d of %d columns: %w", op, k, cols, kernel.ErrInvalid)
	}
	if n, err := volume(op, rows, cols, max(k, 0)); n == 0 {
		return err
	}
	if err := nonEmptyRows(op, rows, cols); err != nil {
		return err
	}
	if err := notNil(op, values, ids, in); err != nil {
		return err
	}
	top, at, x := slice[float32](values, rows*k), slice[int32](ids, rows*k), slice[float32](in, rows*cols)
	s.device.parallel(rows, grain(cols), func(lo, hi int) {
		for r := lo; r < hi; r++ {
			row := x[r*cols : (r+1)*cols]
			for i, c := range topK(row, k) {
				top[r*k+i], at[r*k+i] = row[c], c
			}
		}
	})
	return nil
}

// topK returns the indices of the k greatest elements, best first. A heap holds the k best so far, the worst on top.
func topK(x []float32, k int) []int32 {
	worse := func(a, b int32) bool {
		ra, rb := rank(x[a]), rank(x[b])
		return ra < rb || ra == rb && a > b
	}
	heap := make([]int32, 0, k)
	sift := func(i int) {
		for {
			c := 2*i + 1
			if c >= k {
				return
			}
			if c+1 < k && worse(heap[c+1], heap[c]) {
				c++
			}
			if !worse(heap[c], heap[i]) {
				return
			}
			heap[i], heap[c] = heap[c], heap[i]
			i = c
		}
	}
	for i := range int32(len(x)) {
		switch {
		case len(heap) < k-1:
			heap = append(heap, i)
		case len(heap) == k-1:
			heap = append(heap, i)
			for j := k/2 - 1; j >= 0; j-- {
				sift(j)
			}
		case worse(heap[0], i):
			heap[0] = i
			sift(0)
		}
	}
	sort.Slice(heap, func(a, b int) bool { return worse(heap[b], heap[a]) })
	return heap
}
