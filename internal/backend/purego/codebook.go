package purego

import "encoding/binary"

// The IQ formats and those of few bits, as csrc/quant.h describes their blocks.

// signs negates the magnitudes whose bit is set.
func signs(y []float32, bits byte) {
	for i := range y {
		if bits>>i&1 != 0 {
			y[i] = -y[i]
		}
	}
}

// even returns seven signs and the eighth, which makes the number of negative ones even.
func even(seven byte) byte {
	parity := seven ^ seven>>4
	parity ^= parity >> 2
	parity ^= parity >> 1
	return seven&127 | parity<<7
}

var (
	iq2Magnitudes    = [4]float32{8, 25, 43}
	iq3XXSMagnitudes = [8]float32{4, 12, 20, 28, 36, 44, 52, 62}
)

// eightOf writes the eight magnitudes of an entry of IQ2's codebooks, times d.
func eightOf(y []float32, entry uint16, d float32) {
	for i := range y[:8] {
		y[i] = d * iq2Magnitudes[entry>>(2*i)&3]
	}
}

func blockIQ2XXS(y []float32, b []byte) {
	d := half(b)
	for s := range 8 { // runs of 32
		indices, rest := b[2+8*s:], binary.LittleEndian.Uint32(b[6+8*s:])
		scale := float32(d*(0.5+float32(rest>>28))) * 0.25
		for g := range 4 {
			out := y[32*s+8*g:][:8]
			eightOf(out, codebookIQ2XXS[indices[g]], scale)
			signs(out, even(byte(rest>>(7*g)&127)))
		}
	}
}

// halfScale returns the scale of 16 elements: a nibble for each.
func halfScale(d float32, scales []byte, sixteenth int) float32 {
	return float32(d*(0.5+float32(scales[sixteenth/2]>>(sixteenth%2*4)&15))) * 0.25
}

func blockIQ2XS(y []float32, b []byte) {
	d, scales := half(b), b[66:74]
	for g := range 32 {
		code, out := binary.LittleEndian.Uint16(b[2+2*g:]), y[8*g:][:8]
		eightOf(out, codebookIQ2XS[code&511], halfScale(d, scales, g/2))
		signs(out, even(byte(code>>9)))
	}
}

func blockIQ2S(y []float32, b []byte) {
	d, low, bits, high, scales := half(b), b[2:34], b[34:66], b[66:74], b[74:82]
	for g := range 32 {
		index, out := int(low[g])|int(high[g/4]>>(g%4*2)&3)<<8, y[8*g:][:8]
		eightOf(out, codebookIQ2S[index], halfScale(d, scales, g/2))
		signs(out, bits[g])
	}
}

func blockIQ3XXS(y []float32, b []byte) {
	d, indices := half(b), b[2:66]
	for s := range 8 {
		rest := binary.LittleEndian.Uint32(b[66+4*s:])
		scale := float32(d*(0.5+float32(rest>>28))) * 0.5
		for g := range 8 {
			entry, out := codebookIQ3XXS[indices[8*s+g]], y[32*s+4*g:][:4]
			for i := range out {
				out[i] = scale * iq3XXSMagnitudes[entry>>(3*i)&7]
			}
			signs(out, even(byte(rest>>(g/2*7)&127))>>(g%2*4))
		}
	}
}

func blockIQ3S(y []float32, b []byte) {
	d, low, high, bits, scales := half(b), b[2:66], b[66:74], b[74:106], b[106:110]
	for g := range 64 {
		scale := d * float32(1+2*int(scales[g/16]>>(g/8%2*4)&15))
		entry, out := codebookIQ3S[int(low[g])|int(high[g/8]>>(g%8)&1)<<8], y[4*g:][:4]
		for i := range out {
			out[i] = scale * float32(2*int(entry>>(3*i)&7)+1)
		}
		signs(out, bits[g/2]>>(g%2*4))
	}
}

// iq1 writes scale * (t + delta), t = -1, 0, 1 of an entry, delta an eighth with the sign bit of shift.
func iq1(y []float32, index int, scale float32, minus bool) {
	delta := float32(0.125)
	if minus {
		delta = -delta
	}
	entry := codebookIQ1[index]
	for i := range y[:8] {
		y[i] = scale * (float32(int(entry>>(2*i)&3)-1) + delta)
	}
}

func blockIQ1S(y []float32, b []byte) {
	d, low := half(b), b[2:34]
	for g := range 32 {
		rest := binary.LittleEndian.Uint16(b[34+g/4*2:])
		index := int(low[g]) | int(rest>>(g%4*3)&7)<<8
		iq1(y[8*g:], index, d*float32(2*int(rest>>12&7)+1), rest&0x8000 != 0)
	}
}

func blockIQ1M(y []float32, b []byte) {
	low, high, scales := b[:32], b[32:48], b[48:56]
	var bits uint16 // of the half that scales all: a nibble at the top of each 16 bits of scales
	for i := range 4 {
		bits |= uint16(scales[2*i+1]>>4) << (4 * i)
	}
	d := f16ToF32(bits)
	for g := range 32 {
		sixteenth := g / 2
		scale := binary.LittleEndian.Uint16(scales[sixteenth/4*2:]) >> (sixteenth % 4 * 3) & 7
		nibble := high[g/2] >> (g % 2 * 4)
		iq1(y[8*g:], int(low[g])|int(nibble&7)<<8, d*float32(2*int(scale)+1), nibble&8 != 0)
	}
}

func blockQ1(y []float32, b []byte) {
	d := half(b)
	for i := range y {
		y[i] = d * float32(2*int(b[2+i/8]>>(i%8)&1)-1)
	}
}

func blockQ2(y []float32, b []byte) {
	d := half(b)
	for i := range y {
		y[i] = d * float32(int(b[2+i/4]>>(i%4*2)&3)-1)
	}
}

// ue4m3 returns half the value of a float of 4 exponent and 3 mantissa bits without a sign; its NaN is 0.
func ue4m3(code byte) float32 {
	exponent, mantissa := int(code>>3&15), float32(code&7)
	switch {
	case code == 0x7f:
		return 0
	case exponent == 0:
		return mantissa * 0x1p-10
	}
	return (8 + mantissa) * float32(int(1)<<exponent) * 0x1p-11
}

func blockNVFP4(y []float32, b []byte) {
	for s := range 4 {
		d := ue4m3(b[s])
		for i, q := range b[4+8*s : 12+8*s] {
			y[16*s+i], y[16*s+8+i] = d*mxfp4Values[q&15], d*mxfp4Values[q>>4]
		}
	}
}
