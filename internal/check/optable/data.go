package optable

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"unsafe"

	"github.com/vibrant-ml/vibrant/internal/backend/kernel"
	"github.com/vibrant-ml/vibrant/internal/backend/purego"
	"github.com/vibrant-ml/vibrant/tensor"
)

// Array is an operand on the host: its bytes as a device gets them, and what they mean exactly.
type Array struct {
	Type   tensor.DType
	Shape  []int
	Raw    []byte
	Values []float64
}

// Generator makes operands from a seed. In a benchmark it repeats a stretch of random data, which is as good there and
// quick, and leaves Values out.
type Generator struct {
	rng    *rand.Rand
	fast   bool
	shapes bool // operands have no values
	most   int  // where not 0, how many elements an operand may have: build panics beyond
}

// NewGenerator returns a generator for tests.
func NewGenerator(seed uint64) *Generator {
	return &Generator{rng: rand.New(rand.NewPCG(seed, 0x5eed))}
}

// stretch is how many elements a fast generator makes before it repeats them: a multiple of every block size.
const stretch = 1 << 16

// Normal makes normally distributed values of a float type.
func (g *Generator) Normal(t tensor.DType, shape ...int) *Array { return g.Scaled(1, t, shape...) }

// Scaled makes normally distributed values of a given standard deviation.
func (g *Generator) Scaled(sigma float64, t tensor.DType, shape ...int) *Array {
	return g.build(t, shape, func(n int) []byte {
		raw := make([]byte, 0, t.Bytes(n))
		for range n {
			raw = appendFloat(raw, t, g.rng.NormFloat64()*sigma)
		}
		return raw
	})
}

// Cache makes keys or values about as large as Normal's, in Q8_0 as well.
func (g *Generator) Cache(t tensor.DType, shape ...int) *Array {
	if !t.Quantized() {
		return g.Normal(t, shape...)
	}
	a := g.Weight(t, product(shape)/max(1, shape[len(shape)-1]), shape[len(shape)-1]) // scales of 2^-8 and bytes to 127
	a.Shape = shape
	return a
}

// Offset makes normally distributed values around a mean.
func (g *Generator) Offset(mean float64, t tensor.DType, shape ...int) *Array {
	return g.build(t, shape, func(n int) []byte {
		raw := make([]byte, 0, t.Bytes(n))
		for range n {
			raw = appendFloat(raw, t, mean+g.rng.NormFloat64())
		}
		return raw
	})
}

// Ints makes I32 values in [0, limit).
func (g *Generator) Ints(limit int, shape ...int) *Array {
	return g.build(tensor.I32, shape, func(n int) []byte {
		raw := make([]byte, 0, 4*n)
		for range n {
			raw = binary.LittleEndian.AppendUint32(raw, uint32(g.rng.IntN(max(1, limit))))
		}
		return raw
	})
}

// Whole makes whole numbers of an integer type: of its whole range, and for I32 of some that overflow and some that are small.
func (g *Generator) Whole(t tensor.DType, shape ...int) *Array {
	return g.build(t, shape, func(n int) []byte {
		raw := make([]byte, 0, t.Bytes(n))
		for range n {
			switch t {
			case tensor.I32:
				raw = binary.LittleEndian.AppendUint32(raw, uint32(int32(g.rng.Uint32())>>g.rng.IntN(32)))
			case tensor.BOOL:
				raw = append(raw, byte(g.rng.IntN(2)))
			default:
				raw = append(raw, byte(g.rng.Uint32()))
			}
		}
		return raw
	})
}

// List makes an I32 array of given values.
func List(values ...int) *Array {
	a := &Array{Type: tensor.I32, Shape: []int{len(values)}}
	for _, v := range values {
		a.Raw = binary.LittleEndian.AppendUint32(a.Raw, uint32(v))
		a.Values = append(a.Values, float64(v))
	}
	return a
}

// Floats makes an F32 array of given values.
func Floats(values []float64, shape ...int) *Array {
	a := &Array{Type: tensor.F32, Shape: shape}
	for _, v := range values {
		a.Raw = appendFloat(a.Raw, tensor.F32, v)
		a.Values = append(a.Values, float64(float32(v)))
	}
	return a
}

// Of makes F32 values that are a function of their index.
func (g *Generator) Of(f func(i int) float64, shape ...int) *Array {
	return g.build(tensor.F32, shape, func(n int) []byte {
		raw := make([]byte, 0, 4*n)
		for i := range n {
			raw = appendFloat(raw, tensor.F32, f(i))
		}
		return raw
	})
}

// Weight makes a matrix of weights of any type: random blocks with scales of sensible sizes.
func (g *Generator) Weight(t tensor.DType, rows, cols int) *Array {
	if !t.Quantized() {
		return g.Scaled(1/math.Sqrt(float64(max(1, cols))), t, rows, cols)
	}
	return g.build(t, []int{rows, cols}, func(n int) []byte {
		raw := make([]byte, t.Bytes(n))
		for i := range raw {
			raw[i] = byte(g.rng.Uint32())
		}
		for b := 0; b < len(raw); b += t.BlockBytes() {
			g.setScales(raw[b:b+t.BlockBytes()], t)
		}
		return raw
	})
}

// scaleOffsets are where the blocks of each type hold their float16 scales and minimums (see csrc/quant.h).
var scaleOffsets = map[tensor.DType][]int{
	tensor.Q4_0: {0}, tensor.Q4_1: {0, 2}, tensor.Q5_0: {0}, tensor.Q5_1: {0, 2}, tensor.Q8_0: {0},
	tensor.Q2_K: {80, 82}, tensor.Q3_K: {108}, tensor.Q4_K: {0, 2}, tensor.Q5_K: {0, 2}, tensor.Q6_K: {208},
	tensor.IQ4_NL: {0}, tensor.IQ4_XS: {0}, tensor.TQ1_0: {52}, tensor.TQ2_0: {64},
	tensor.Q1_0: {0}, tensor.Q2_0: {0}, tensor.IQ1_S: {0}, tensor.IQ2_XXS: {0}, tensor.IQ2_XS: {0}, tensor.IQ2_S: {0},
	tensor.IQ3_XXS: {0}, tensor.IQ3_S: {0},
}

func (g *Generator) setScales(block []byte, t tensor.DType) {
	switch t {
	case tensor.MXFP4:
		block[0] = byte(118 + g.rng.IntN(8)) // the exponent of a power of two, biased by 127
		return
	case tensor.NVFP4:
		for i := range 4 {
			block[i] = byte(g.rng.IntN(24)) // four bits of exponent above three: up to 2^-5
		}
		return
	case tensor.IQ1_M: // the scale is the upper nibbles of four words
		scale := binary.LittleEndian.Uint16(appendFloat(nil, tensor.F16, (0.5+g.rng.Float64())*0x1p-8))
		for i := range 4 {
			block[49+2*i] = block[49+2*i]&15 | byte(scale>>(4*i)&15<<4)
		}
		return
	}
	for _, at := range scaleOffsets[t] {
		scale := (0.5 + g.rng.Float64()) * 0x1p-8
		if g.rng.IntN(2) == 0 {
			scale = -scale
		}
		copy(block[at:], appendFloat(nil, tensor.F16, scale))
	}
}

func (g *Generator) build(t tensor.DType, shape []int, random func(n int) []byte) *Array {
	a := &Array{Type: t, Shape: shape}
	n, exact := product(shape), 1.0
	for _, size := range shape {
		exact *= float64(size)
	}
	if g.most > 0 && exact > float64(g.most) {
		panic(fmt.Sprintf("an operand of %g elements, where %d are the most", exact, g.most))
	}
	if g.shapes {
		return a
	}
	if !g.fast {
		a.Raw = random(n)
		a.Values = decode(a.Raw, t, n)
		return a
	}
	a.Raw = make([]byte, t.Bytes(n))
	if n > 0 {
		part := random(min(n, stretch))
		for at := 0; at < len(a.Raw); {
			at += copy(a.Raw[at:], part)
		}
	}
	return a
}

func appendFloat(b []byte, t tensor.DType, v float64) []byte {
	switch t {
	case tensor.F32:
		return binary.LittleEndian.AppendUint32(b, math.Float32bits(float32(v)))
	case tensor.F16:
		return binary.LittleEndian.AppendUint16(b, halfBits(v))
	case tensor.BF16:
		u := math.Float32bits(float32(v))
		return binary.LittleEndian.AppendUint16(b, uint16((u+0x7fff+u>>16&1)>>16))
	}
	panic(fmt.Sprintf("optable: no floats of %v", t))
}

// halfBits rounds a value in the normal range of float16 to the nearest, and smaller ones towards zero: operands only
// have to be representable.
func halfBits(v float64) uint16 {
	u := math.Float32bits(float32(v))
	sign := uint16(u >> 16 & 0x8000)
	e := int(u>>23&0xff) - 127 + 15
	if e <= 0 {
		return sign
	}
	rounded := uint32(e)<<23 | u&0x7fffff
	rounded += 0x0fff + rounded>>13&1 // to the nearest, ties to even
	return sign | uint16(rounded>>13)
}

// decode returns the exact values of n elements. Quantized blocks are read by internal/backend/purego, which is tested against
// other engines' golden data, in one call to it.
func decode(raw []byte, t tensor.DType, n int) []float64 {
	values := make([]float64, n)
	if n == 0 {
		return values
	}
	if t == tensor.I32 {
		for i := range values {
			values[i] = float64(int32(binary.LittleEndian.Uint32(raw[4*i:])))
		}
		return values
	}
	if t == tensor.F32 {
		for i := range values {
			values[i] = float64(math.Float32frombits(binary.LittleEndian.Uint32(raw[4*i:])))
		}
		return values
	}
	if t == tensor.I8 {
		for i := range values {
			values[i] = float64(int8(raw[i]))
		}
		return values
	}
	if t == tensor.U8 || t == tensor.BOOL { // any byte but 0 and 1 of a BOOL is wrong
		for i := range values {
			values[i] = float64(raw[i])
		}
		return values
	}
	f := make([]float32, n)
	err := plain(func(k kernel.Stream) error {
		return k.Convert(unsafe.Pointer(&f[0]), tensor.F32, unsafe.Pointer(&raw[0]), t, n)
	})
	if err != nil {
		panic(err)
	}
	for i, v := range f {
		values[i] = float64(v)
	}
	return values
}

// plain calls a kernel of internal/backend/purego on host memory.
func plain(f func(kernel.Stream) error) error {
	d, err := purego.Backend().Open(0, kernel.Options{Threads: 1})
	if err != nil {
		return err
	}
	defer d.Close()
	s, err := d.NewStream(nil)
	if err != nil {
		return err
	}
	defer s.Close()
	return f(s)
}
