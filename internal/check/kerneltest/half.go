package kerneltest

import (
	"encoding/binary"
	"math"
	"sync"

	"github.com/vibrant-ml/vibrant/internal/backend/kernel"
)

// halfValues holds the value of every code.
var halfValues = sync.OnceValue(func() *[1 << 16]float64 {
	var table [1 << 16]float64
	for h := range table {
		table[h] = defineHalf(uint16(h))
	}
	return &table
})

func halfValue(h uint16) float64 { return halfValues()[h] }

// defineHalf is the definition of binary16 in float64: sign, five bits of exponent, ten of fraction.
func defineHalf(h uint16) float64 {
	sign := 1.0
	if h>>15 != 0 {
		sign = -1
	}
	exponent, fraction := int(h>>10&31), float64(h&1023)/1024
	switch {
	case exponent == 31 && fraction != 0:
		return math.NaN()
	case exponent == 31:
		return math.Inf(int(sign))
	case exponent == 0:
		return sign * math.Ldexp(fraction, -14)
	}
	return sign * math.Ldexp(1+fraction, exponent-15)
}

func bfloatValue(h uint16) float64 { return float64(math.Float32frombits(uint32(h) << 16)) }

// nearest searches the 16-bit code whose value is nearest to v, ties to even. Codes of positive values are ordered.
func nearest(v float64, value func(uint16) float64, infinity uint16) uint16 {
	sign := uint16(0)
	if math.Signbit(v) {
		sign, v = 0x8000, -v
	}
	if math.IsNaN(v) {
		return infinity | 1<<6 | sign
	}
	lo, hi := uint16(0), infinity
	for hi-lo > 1 { // value(lo) <= v < value(hi)
		if mid := lo + (hi-lo)/2; value(mid) <= v {
			lo = mid
		} else {
			hi = mid
		}
	}
	top := value(hi)
	if hi == infinity { // one step past the largest finite value
		top = 2*value(lo) - value(lo-1)
		if math.IsInf(v, 1) {
			return sign | infinity
		}
	}
	below, above := v-value(lo), top-v
	if below < above || below == above && lo&1 == 0 {
		return sign | lo
	}
	return sign | hi
}

func encode(v []float64, t kernel.DType) []byte {
	var out []byte
	for _, x := range v {
		switch t {
		case kernel.F32:
			out = binary.LittleEndian.AppendUint32(out, math.Float32bits(float32(x)))
		case kernel.F16:
			out = binary.LittleEndian.AppendUint16(out, nearest(x, halfValue, 0x7c00))
		case kernel.BF16:
			out = binary.LittleEndian.AppendUint16(out, nearest(x, bfloatValue, 0x7f80))
		}
	}
	return out
}

func decode(raw []byte, t kernel.DType) []float64 {
	v := make([]float64, len(raw)/t.BlockBytes())
	for i := range v {
		switch t {
		case kernel.F32:
			v[i] = float64(math.Float32frombits(binary.LittleEndian.Uint32(raw[4*i:])))
		case kernel.F16:
			v[i] = halfValue(binary.LittleEndian.Uint16(raw[2*i:]))
		case kernel.BF16:
			v[i] = bfloatValue(binary.LittleEndian.Uint16(raw[2*i:]))
		}
	}
	return v
}
