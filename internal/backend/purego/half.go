package purego

import "math"

// f16ToF32 widens an IEEE binary16 exactly. Shifted into float32's fields, a finite half is 2^-112 times its value, denormals included.
func f16ToF32(h uint16) float32 {
	sign := uint32(h&0x8000) << 16
	if h&0x7c00 == 0x7c00 { // infinity and NaN keep their payload
		return math.Float32frombits(sign | 0x7f800000 | uint32(h&0x3ff)<<13)
	}
	f := math.Float32frombits(uint32(h&0x7fff)<<13) * 0x1p112
	return math.Float32frombits(math.Float32bits(f) | sign)
}

// f32ToF16 rounds to the nearest binary16, ties to even; beyond 65504 by half a step or more it is infinite. NaN stays
// NaN, quiet, with the upper bits of its payload, as x86's and ARM's conversions do.
func f32ToF16(f float32) uint16 {
	b := math.Float32bits(f)
	sign := uint16(b >> 16 & 0x8000)
	b &= 0x7fffffff
	switch {
	case b > 0x7f800000:
		return sign | 0x7e00 | uint16(b>>13&0x3ff)
	case b >= 0x47800000: // 65536 and infinity
		return sign | 0x7c00
	case b < 0x38800000: // below 2^-14: adding 0.5 leaves the half's denormal, rounded by the hardware, in the low bits
		return sign | uint16(math.Float32bits(math.Float32frombits(b)+0.5)-0x3f000000)
	}
	b += 0xfff + b>>13&1 // may carry into the exponent, up to infinity
	return sign | uint16((b-0x38000000)>>13)
}

func bf16ToF32(h uint16) float32 { return math.Float32frombits(uint32(h) << 16) }

// f32ToBF16 rounds to nearest even; NaN stays NaN, quiet.
func f32ToBF16(f float32) uint16 {
	b := math.Float32bits(f)
	if b&0x7fffffff > 0x7f800000 {
		return uint16(b>>16) | 0x40
	}
	return uint16((b + 0x7fff + b>>16&1) >> 16)
}
