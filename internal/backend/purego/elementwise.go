package purego

import (
	"fmt"
	"math"
	"unsafe"

	"github.com/vibrant-ml/vibrant/internal/backend/kernel"
)

// chunk is how many elements a thread takes at a time: large against the cost of a goroutine, small against the caches.
const chunk = 1 << 13

// elementwise calls f(out, a, b) on pieces as float32. b may be nil, and then f gets nil.
func (s *stream) elementwise(op string, out, a, b kernel.Ptr, t kernel.DType, n int, f func(out, a, b []float32)) error {
	if n, err := volume(op, n); n == 0 {
		return err
	}
	if err := floatType(op, t); err != nil {
		return err
	}
	dst, x, y := array{out, t}, array{a, t}, array{b, t}
	s.device.parallel(n, chunk, func(lo, hi int) {
		n := hi - lo
		xs := x.load(lo, n, x.buffer(n))
		var ys []float32
		if b != nil {
			ys = y.load(lo, n, y.buffer(n))
		}
		v := dst.view(lo, n, xs) // xs is scratch where t is not F32, and element i is read before it is written
		f(v, xs, ys)
		dst.commit(lo, v)
	})
	return nil
}

// binary is elementwise with both operands required.
func (s *stream) binary(op string, out, a, b kernel.Ptr, t kernel.DType, n int, f func(out, a, b []float32)) error {
	if n != 0 {
		if err := notNil(op, out, a, b); err != nil {
			return err
		}
	}
	return s.elementwise(op, out, a, b, t, n, f)
}

func (s *stream) unary(op string, out, a kernel.Ptr, t kernel.DType, n int, f func(out, a []float32)) error {
	if n != 0 {
		if err := notNil(op, out, a); err != nil {
			return err
		}
	}
	return s.elementwise(op, out, a, nil, t, n, func(out, a, _ []float32) { f(out, a) })
}

func (s *stream) Add(out, a, b kernel.Ptr, t kernel.DType, n int) error {
	return s.binary("add", out, a, b, t, n, func(out, a, b []float32) {
		for i := range out {
			out[i] = a[i] + b[i]
		}
	})
}

func (s *stream) Mul(out, a, b kernel.Ptr, t kernel.DType, n int) error {
	return s.binary("mul", out, a, b, t, n, func(out, a, b []float32) {
		for i := range out {
			out[i] = a[i] * b[i]
		}
	})
}

func (s *stream) MulScalar(out, a kernel.Ptr, scalar float32, t kernel.DType, n int) error {
	return s.unary("mul_scalar", out, a, t, n, func(out, a []float32) {
		for i := range out {
			out[i] = a[i] * scalar
		}
	})
}

func silu(x float32) float64 { return float64(x) / (1 + math.Exp(-float64(x))) }

func (s *stream) SiLU(out, a kernel.Ptr, t kernel.DType, n int) error {
	return s.unary("silu", out, a, t, n, func(out, a []float32) {
		for i := range out {
			out[i] = float32(silu(a[i]))
		}
	})
}

// gelu is accurate relative to its result, also where that is tiny.
func gelu(x float32) float64 { return float64(x) / 2 * math.Erfc(-float64(x)/math.Sqrt2) }

// geluTanh uses (1 + tanh(u)) / 2 = 1 / (1 + exp(-2u)).
func geluTanh(v float32) float64 {
	x := float64(v)
	return x / (1 + math.Exp(-2*math.Sqrt(2/math.Pi)*(x+0.044715*x*x*x)))
}

func (s *stream) GELU(out, a kernel.Ptr, t kernel.DType, n int) error {
	return s.unary("gelu", out, a, t, n, func(out, a []float32) {
		for i, x := range a {
			out[i] = float32(gelu(x))
		}
	})
}

func (s *stream) GELUTanh(out, a kernel.Ptr, t kernel.DType, n int) error {
	return s.unary("gelu_tanh", out, a, t, n, func(out, a []float32) {
		for i, x := range a {
			out[i] = float32(geluTanh(x))
		}
	})
}

func (s *stream) SwiGLU(out, gate, up kernel.Ptr, t kernel.DType, n int) error {
	return s.binary("swiglu", out, gate, up, t, n, func(out, gate, up []float32) {
		for i := range out {
			out[i] = float32(silu(gate[i]) * float64(up[i]))
		}
	})
}

// gate returns the function of vb_activation.
func gate(op string, act kernel.Activation, alpha, limit float32) (func(g, u float32) float64, error) {
	switch act {
	case kernel.ActivationSiLU:
		return func(g, u float32) float64 { return silu(g) * float64(u) }, nil
	case kernel.ActivationGELU:
		return func(g, u float32) float64 { return gelu(g) * float64(u) }, nil
	case kernel.ActivationGELUTanh:
		return func(g, u float32) float64 { return geluTanh(g) * float64(u) }, nil
	case kernel.ActivationReLUSquared:
		return func(g, u float32) float64 { g = max(g, 0); return float64(g) * float64(g) * float64(u) }, nil
	case kernel.ActivationClampedSiLU:
		if !(limit >= 0) {
			return nil, fmt.Errorf("%s: limit %v: %w", op, limit, kernel.ErrInvalid)
		}
		return func(g, u float32) float64 {
			x, y := float64(min(g, limit)), float64(max(-limit, min(u, limit)))
			return (y + 1) * x / (1 + math.Exp(-float64(alpha)*x))
		}, nil
	}
	return nil, fmt.Errorf("%s: activation %d: %w", op, act, kernel.ErrInvalid)
}

func (s *stream) GLU(out, gates, ups kernel.Ptr, act kernel.Activation, alpha, limit float32, t kernel.DType, n int) error {
	f, err := gate("glu", act, alpha, limit)
	if err != nil {
		return err
	}
	return s.binary("glu", out, gates, ups, t, n, func(out, g, u []float32) {
		for i := range out {
			out[i] = float32(f(g[i], u[i]))
		}
	})
}

func (s *stream) Sigmoid(out, a kernel.Ptr, t kernel.DType, n int) error {
	return s.unary("sigmoid", out, a, t, n, func(out, a []float32) {
		for i, x := range a {
			out[i] = float32(1 / (1 + math.Exp(-float64(x))))
		}
	})
}

func (s *stream) SoftCap(out, a kernel.Ptr, limit float32, t kernel.DType, n int) error {
	if !(limit > 0) {
		return fmt.Errorf("soft_cap: cap %v: %w", limit, kernel.ErrInvalid)
	}
	return s.unary("soft_cap", out, a, t, n, func(out, a []float32) {
		for i, x := range a {
			out[i] = float32(float64(limit) * math.Tanh(float64(x)/float64(limit)))
		}
	})
}

// blocks checks n elements of a type of any kind.
func blocks(op string, t kernel.DType, n int) error {
	if !t.Known() {
		return fmt.Errorf("%s: %v: %w", op, t, kernel.ErrInvalid)
	}
	if n%t.BlockSize() != 0 {
		return fmt.Errorf("%s: %d elements are no multiple of %v's block of %d: %w", op, n, t, t.BlockSize(), kernel.ErrInvalid)
	}
	return nil
}

func (s *stream) Copy(out, in kernel.Ptr, t kernel.DType, n int) error {
	if n, err := volume("copy", n); n == 0 {
		return err
	}
	if err := blocks("copy", t, n); err != nil {
		return err
	}
	return s.copy(out, in, t.Bytes(n))
}

func (s *stream) Convert(out kernel.Ptr, outType kernel.DType, in kernel.Ptr, inType kernel.DType, n int) error {
	if n, err := volume("convert", n); n == 0 {
		return err
	}
	if err := notNil("convert", out, in); err != nil {
		return err
	}
	if block := quantizeFunc(outType); block != nil && inType == kernel.F32 {
		return s.quantize(out, outType, slice[float32](in, n), block)
	}
	if err := blocks("convert", inType, n); err != nil {
		return err
	}
	if inType == kernel.U8 || inType == kernel.BOOL {
		return fmt.Errorf("convert %v: %w", inType, kernel.ErrInvalid)
	}
	if err := floatType("convert to", outType); err != nil {
		return err
	}
	if outType != kernel.F32 && floatType("", inType) != nil {
		return fmt.Errorf("convert %v to %v: %w", inType, outType, kernel.ErrInvalid)
	}
	dst := array{out, outType}
	s.device.parallel(n, chunk, func(lo, hi int) { // chunk is a multiple of every block size
		v := dst.view(lo, hi-lo, dst.buffer(hi-lo))
		dequantize(v, unsafe.Add(in, inType.Bytes(lo)), inType)
		dst.commit(lo, v)
	})
	return nil
}

func (s *stream) IncrementI32(x kernel.Ptr, n int) error {
	if n, err := volume("increment_i32", n); n == 0 {
		return err
	}
	if err := notNil("increment_i32", x); err != nil {
		return err
	}
	for i := range slice[int32](x, n) {
		slice[int32](x, n)[i]++
	}
	return nil
}
