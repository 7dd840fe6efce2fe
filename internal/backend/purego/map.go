package purego

import (
	"fmt"
	"math"
	"math/bits"
	"unsafe"

	"github.com/vibrant-ml/vibrant/internal/backend/kernel"
)

// piece is how many elements a step of an expression computes at a time.
const piece = 256

// values are those of one value of an expression, for a piece of elements: float32 or int32.
type values struct {
	f []float32
	i []int32
}

// integer reports whether elements of a type are int32 in expressions.
func integer(t kernel.DType) bool {
	return t == kernel.I32 || t == kernel.I8 || t == kernel.U8 || t == kernel.BOOL
}

func plainType(op string, t kernel.DType) error {
	if integer(t) {
		return nil
	}
	return floatType(op, t)
}

// strided checks the shape of views and returns the number of elements, 0 where there is nothing to do.
func strided(op string, sizes [kernel.MaxDims]int, rank int, out kernel.View, in ...kernel.View) (int, error) {
	if rank < 0 || rank > kernel.MaxDims {
		return 0, fmt.Errorf("%s: %d dimensions: %w", op, rank, kernel.ErrInvalid)
	}
	n, err := volume(op, sizes[:rank]...)
	if n == 0 || err != nil {
		return 0, err
	}
	for k, v := range append([]kernel.View{out}, in...) {
		if err := notNil(op, v.Data); err != nil {
			return 0, err
		}
		if err := plainType(op, v.Type); err != nil {
			return 0, err
		}
		for d, size := range sizes[:rank] {
			if v.Strides[d] < 0 || k == 0 && v.Strides[d] == 0 && size > 1 {
				return 0, fmt.Errorf("%s: stride %d: %w", op, v.Strides[d], kernel.ErrInvalid)
			}
		}
	}
	return n, nil
}

// places writes where the elements from number lo on lie in a view, in elements behind its data.
func places(at []int, v kernel.View, sizes []int, lo int) {
	var coordinates [kernel.MaxDims]int
	place := 0
	for d := len(sizes) - 1; d >= 0; d-- {
		coordinates[d] = lo % sizes[d]
		lo /= sizes[d]
		place += coordinates[d] * v.Strides[d]
	}
	for i := range at {
		at[i] = place
		for d := len(sizes) - 1; d >= 0; d-- {
			if coordinates[d]++; coordinates[d] < sizes[d] {
				place += v.Strides[d]
				break
			}
			place -= (sizes[d] - 1) * v.Strides[d]
			coordinates[d] = 0
		}
	}
}

// fetch reads the elements at the places.
func fetch(x values, v kernel.View, at []int) {
	switch v.Type {
	case kernel.F32:
		for k, p := range at {
			x.f[k] = *(*float32)(unsafe.Add(v.Data, 4*p))
		}
	case kernel.F16:
		for k, p := range at {
			x.f[k] = f16ToF32(*(*uint16)(unsafe.Add(v.Data, 2*p)))
		}
	case kernel.BF16:
		for k, p := range at {
			x.f[k] = bf16ToF32(*(*uint16)(unsafe.Add(v.Data, 2*p)))
		}
	case kernel.I32:
		for k, p := range at {
			x.i[k] = *(*int32)(unsafe.Add(v.Data, 4*p))
		}
	case kernel.I8:
		for k, p := range at {
			x.i[k] = int32(*(*int8)(unsafe.Add(v.Data, p)))
		}
	case kernel.U8:
		for k, p := range at {
			x.i[k] = int32(*(*uint8)(unsafe.Add(v.Data, p)))
		}
	case kernel.BOOL:
		for k, p := range at {
			x.i[k] = one(*(*uint8)(unsafe.Add(v.Data, p)) != 0)
		}
	}
}

// put writes the elements at the places.
func put(v kernel.View, at []int, x values) {
	switch v.Type {
	case kernel.F32:
		for k, p := range at {
			*(*float32)(unsafe.Add(v.Data, 4*p)) = x.f[k]
		}
	case kernel.F16:
		for k, p := range at {
			*(*uint16)(unsafe.Add(v.Data, 2*p)) = f32ToF16(x.f[k])
		}
	case kernel.BF16:
		for k, p := range at {
			*(*uint16)(unsafe.Add(v.Data, 2*p)) = f32ToBF16(x.f[k])
		}
	case kernel.I32:
		for k, p := range at {
			*(*int32)(unsafe.Add(v.Data, 4*p)) = x.i[k]
		}
	case kernel.I8, kernel.U8:
		for k, p := range at {
			*(*uint8)(unsafe.Add(v.Data, p)) = uint8(x.i[k])
		}
	case kernel.BOOL:
		for k, p := range at {
			*(*uint8)(unsafe.Add(v.Data, p)) = uint8(one(x.i[k] != 0))
		}
	}
}

func one(b bool) int32 {
	if b {
		return 1
	}
	return 0
}

// kinds checks an expression and returns which of its values are integers.
func kinds(a *kernel.MapArgs) ([]bool, error) {
	ints := make([]bool, 0, a.Inputs+a.Steps)
	for _, v := range a.In[:a.Inputs] {
		ints = append(ints, integer(v.Type))
	}
	for k, s := range a.Program[:a.Steps] {
		wrong := fmt.Errorf("map: step %d: operation %d of values %d, %d, %d: %w", k, s.Op, s.A, s.B, s.C, kernel.ErrInvalid)
		of := func(values ...int32) (isInt bool, err error) {
			for i, v := range values {
				if v < 0 || int(v) >= len(ints) || i > 0 && ints[v] != isInt {
					return false, wrong
				}
				isInt = ints[v]
			}
			return isInt, nil
		}
		var result bool
		var err error
		switch {
		case s.Op == kernel.ElementConstant:
		case s.Op == kernel.ElementInteger, s.Op == kernel.ElementIndex:
			result = true
		case s.Op == kernel.ElementRandom:
			if s.C < 0 || s.C > 24 {
				err = wrong
			}
		case s.Op == kernel.ElementToFloat || s.Op == kernel.ElementToInteger:
			var isInt bool
			if isInt, err = of(s.A); err == nil && isInt != (s.Op == kernel.ElementToFloat) {
				err = wrong
			}
			result = !isInt
		case s.Op == kernel.ElementWhere:
			var isInt bool
			if isInt, err = of(s.A); err == nil && !isInt {
				err = wrong
			}
			if err == nil {
				result, err = of(s.B, s.C)
			}
		case s.Op >= kernel.ElementAdd && s.Op <= kernel.ElementMax:
			result, err = of(s.A, s.B)
		case s.Op == kernel.ElementNeg || s.Op == kernel.ElementAbs:
			result, err = of(s.A)
		case s.Op >= kernel.ElementEq && s.Op <= kernel.ElementLe:
			_, err = of(s.A, s.B)
			result = true
		case s.Op >= kernel.ElementAnd && s.Op <= kernel.ElementRem:
			if result, err = of(s.A, s.B); err == nil && !result {
				err = wrong
			}
		case s.Op == kernel.ElementPow:
			result, err = of(s.A, s.B)
		case s.Op > kernel.ElementPow && s.Op <= kernel.ElementRound:
			if result, err = of(s.A); err == nil && result {
				err = wrong
			}
		default:
			err = wrong
		}
		if err != nil {
			return nil, err
		}
		ints = append(ints, result)
	}
	if len(ints) == 0 || ints[len(ints)-1] != integer(a.Out.Type) {
		return nil, fmt.Errorf("map: the result is not of the kind of %v: %w", a.Out.Type, kernel.ErrInvalid)
	}
	if a.Steps == 0 && a.Inputs != 1 {
		return nil, fmt.Errorf("map: no steps with %d inputs: %w", a.Inputs, kernel.ErrInvalid)
	}
	return ints, nil
}

func (s *stream) Map(a *kernel.MapArgs) error {
	if a.Inputs < 0 || a.Inputs > kernel.MaxInputs || a.Steps < 0 || a.Steps > kernel.MaxSteps {
		return fmt.Errorf("map: %d inputs, %d steps: %w", a.Inputs, a.Steps, kernel.ErrInvalid)
	}
	n, err := strided("map", a.Sizes, a.Rank, a.Out, a.In[:a.Inputs]...)
	if n == 0 || err != nil {
		return err
	}
	if _, err = kinds(a); err != nil {
		return err
	}
	sizes := a.Sizes[:a.Rank]
	s.device.parallel(n, chunk, func(lo, hi int) {
		at := make([]int, piece)
		all := make([]values, a.Inputs+a.Steps)
		for i := range all {
			all[i] = values{make([]float32, piece), make([]int32, piece)}
		}
		for ; lo < hi; lo += piece {
			at := at[:min(piece, hi-lo)]
			for i, v := range a.In[:a.Inputs] {
				places(at, v, sizes, lo)
				fetch(all[i], v, at)
			}
			ints := make([]bool, 0, len(all))
			for _, v := range a.In[:a.Inputs] {
				ints = append(ints, integer(v.Type))
			}
			for i, step := range a.Program[:a.Steps] {
				ints = append(ints, perform(step, all, ints, a.Inputs+i, lo, len(at)))
			}
			places(at, a.Out, sizes, lo)
			put(a.Out, at, all[len(all)-1])
		}
	})
	return nil
}

// perform computes a step for n elements from number lo on, and returns whether its result is an integer.
func perform(s kernel.Step, all []values, ints []bool, to, lo, n int) bool {
	out := all[to]
	arg := func(v int32) values {
		if int(v) < len(ints) && v >= 0 {
			return all[v]
		}
		return values{} // a number in the step itself
	}
	a, b, c := arg(s.A), arg(s.B), arg(s.C)
	switch s.Op {
	case kernel.ElementConstant:
		for i := range n {
			out.f[i] = math.Float32frombits(uint32(s.A))
		}
		return false
	case kernel.ElementInteger:
		for i := range n {
			out.i[i] = s.A
		}
		return true
	case kernel.ElementIndex:
		for i := range n {
			out.i[i] = int32(lo + i)
		}
		return true
	case kernel.ElementRandom:
		for i := range n {
			out.f[i] = random([2]uint32{uint32(s.A), uint32(s.B)}, lo+i, int(s.C))
		}
		return false
	case kernel.ElementToFloat:
		for i := range n {
			out.f[i] = float32(a.i[i])
		}
		return false
	case kernel.ElementToInteger:
		for i := range n {
			out.i[i] = truncated(a.f[i])
		}
		return true
	case kernel.ElementWhere:
		if ints[s.B] {
			choose(out.i[:n], a.i, b.i, c.i)
			return true
		}
		choose(out.f[:n], a.i, b.f, c.f)
		return false
	case kernel.ElementEq, kernel.ElementNe, kernel.ElementLt, kernel.ElementLe:
		for i := range n {
			out.i[i] = one(ints[s.A] && compares(s.Op, a.i[i], b.i[i]) || !ints[s.A] && compares(s.Op, a.f[i], b.f[i]))
		}
		return true
	}
	if ints[s.A] {
		combine(out.i[:n], a.i, b.i, s.Op, ofIntegers)
		return true
	}
	combine(out.f[:n], a.f, b.f, s.Op, ofFloats)
	return false
}

// choose takes b where the condition is not 0, else c.
func choose[T float32 | int32](out []T, condition []int32, b, c []T) {
	for i := range out {
		if out[i] = c[i]; condition[i] != 0 {
			out[i] = b[i]
		}
	}
}

// combine computes an operation of a and b; of a and 0 where there is no b.
func combine[T float32 | int32](out, a, b []T, op kernel.ElementOp, of func(op kernel.ElementOp, a, b T) T) {
	for i := range out {
		var y T
		if b != nil {
			y = b[i]
		}
		out[i] = of(op, a[i], y)
	}
}

func compares[T float32 | int32](op kernel.ElementOp, a, b T) bool {
	switch op {
	case kernel.ElementEq:
		return a == b
	case kernel.ElementNe:
		return a != b
	case kernel.ElementLt:
		return a < b
	}
	return a <= b
}

// truncated is x towards 0, held within the range of int32; 0 for NaN.
func truncated(x float32) int32 {
	switch {
	case x != x:
		return 0
	case x >= math.MaxInt32:
		return math.MaxInt32
	case x <= math.MinInt32:
		return math.MinInt32
	}
	return int32(x)
}

func ofIntegers(op kernel.ElementOp, a, b int32) int32 {
	switch op {
	case kernel.ElementAdd:
		return a + b
	case kernel.ElementSub:
		return a - b
	case kernel.ElementMul:
		return a * b
	case kernel.ElementDiv:
		if b == 0 {
			return 0
		}
		return a / b
	case kernel.ElementRem:
		if b == 0 {
			return 0
		}
		return a % b
	case kernel.ElementMin:
		return min(a, b)
	case kernel.ElementMax:
		return max(a, b)
	case kernel.ElementNeg:
		return -a
	case kernel.ElementAbs:
		if a < 0 {
			return -a
		}
		return a
	case kernel.ElementAnd:
		return a & b
	case kernel.ElementOr:
		return a | b
	case kernel.ElementXor:
		return a ^ b
	case kernel.ElementPow:
		return power(a, b)
	}
	return int32(uint32(a) >> (uint32(b) % 32))
}

// power is a to the power of b by squares, which wrap; for b below 0 what 1 / a^-b is towards 0, and 0 where a is 0.
func power(a, b int32) int32 {
	if b < 0 {
		if a != 1 && a != -1 {
			return 0
		}
		b &= 1
	}
	result := int32(1)
	for ; b > 0; b >>= 1 {
		if b&1 != 0 {
			result *= a
		}
		a *= a
	}
	return result
}

func ofFloats(op kernel.ElementOp, a, b float32) float32 {
	x, y := float64(a), float64(b)
	switch op {
	case kernel.ElementAdd:
		return a + b
	case kernel.ElementSub:
		return a - b
	case kernel.ElementMul:
		return a * b
	case kernel.ElementDiv:
		return a / b
	case kernel.ElementMin:
		return min(a, b)
	case kernel.ElementMax:
		return max(a, b)
	case kernel.ElementNeg:
		return -a
	case kernel.ElementAbs:
		return float32(math.Abs(x))
	case kernel.ElementPow:
		return float32(math.Pow(x, y))
	case kernel.ElementExp:
		return float32(math.Exp(x))
	case kernel.ElementLog:
		return float32(math.Log(x))
	case kernel.ElementSqrt:
		return float32(math.Sqrt(x))
	case kernel.ElementRsqrt:
		return float32(1 / math.Sqrt(x))
	case kernel.ElementSin:
		return float32(math.Sin(x))
	case kernel.ElementCos:
		return float32(math.Cos(x))
	case kernel.ElementTanh:
		return float32(math.Tanh(x))
	case kernel.ElementSigmoid:
		return float32(1 / (1 + math.Exp(-x)))
	case kernel.ElementSiLU:
		return float32(silu(a))
	case kernel.ElementGELU:
		return float32(gelu(a))
	case kernel.ElementGELUTanh:
		return float32(geluTanh(a))
	case kernel.ElementFloor:
		return float32(math.Floor(x))
	case kernel.ElementCeil:
		return float32(math.Ceil(x))
	}
	return float32(math.RoundToEven(x))
}

// random is the random number of element i: of so many bits, or a normal one for 0 bits.
func random(key [2]uint32, i, bits int) float32 {
	words := philox(key, [4]uint32{uint32(i / 4)})
	if bits > 0 {
		return float32(math.Ldexp(float64(words[i%4]>>(32-bits)), -bits))
	}
	u, v := float64(words[i%4&^1]>>8)*0x1p-24, float64(words[i%4|1]>>8)*0x1p-24
	sin, cos := math.Sincos(2 * math.Pi * v)
	radius := math.Sqrt(-2 * math.Log(1-u))
	if i%2 == 1 {
		return float32(radius * sin)
	}
	return float32(radius * cos)
}

// philox is Philox 4x32-10 of a key and a counter.
func philox(key [2]uint32, x [4]uint32) [4]uint32 {
	for range 10 {
		high0, low0 := bits.Mul32(0xD2511F53, x[0])
		high1, low1 := bits.Mul32(0xCD9E8D57, x[2])
		x = [4]uint32{high1 ^ x[1] ^ key[0], low1, high0 ^ x[3] ^ key[1], low0}
		key[0] += 0x9E3779B9
		key[1] += 0xBB67AE85
	}
	return x
}
