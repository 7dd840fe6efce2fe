package purego

import (
	"encoding/binary"
	"math"
	"unsafe"

	"github.com/vibrant-ml/vibrant/internal/backend/kernel"
)

// dequantize writes len(dst) elements of type t that are stored at src; len(dst) is a multiple of the block size.
// csrc/quant.h describes the blocks. The products are rounded one by one (float32(...) forbids a fused multiply-add),
// so that values equal those of other engines bit for bit.
func dequantize(dst []float32, src unsafe.Pointer, t kernel.DType) {
	switch t {
	case kernel.F32:
		copy(dst, unsafe.Slice((*float32)(src), len(dst)))
		return
	case kernel.F16, kernel.BF16:
		array{src, t}.load(0, len(dst), dst)
		return
	case kernel.I8:
		for i, v := range unsafe.Slice((*int8)(src), len(dst)) {
			dst[i] = float32(v)
		}
		return
	case kernel.I32:
		for i, v := range unsafe.Slice((*int32)(src), len(dst)) {
			dst[i] = float32(v)
		}
		return
	}
	block := blockFunc(t)
	size, bytes := t.BlockSize(), t.BlockBytes()
	in := unsafe.Slice((*byte)(src), t.Bytes(len(dst)))
	for len(dst) > 0 {
		block(dst[:size], in[:bytes])
		dst, in = dst[size:], in[bytes:]
	}
}

func blockFunc(t kernel.DType) func(y []float32, b []byte) {
	switch t {
	case kernel.Q4_0:
		return blockQ4_0
	case kernel.Q4_1:
		return blockQ4_1
	case kernel.Q5_0:
		return blockQ5_0
	case kernel.Q5_1:
		return blockQ5_1
	case kernel.Q8_0:
		return blockQ8_0
	case kernel.IQ4_NL:
		return blockIQ4NL
	case kernel.MXFP4:
		return blockMXFP4
	case kernel.Q2_K:
		return blockQ2K
	case kernel.Q3_K:
		return blockQ3K
	case kernel.Q4_K:
		return blockQ4K
	case kernel.Q5_K:
		return blockQ5K
	case kernel.Q6_K:
		return blockQ6K
	case kernel.IQ4_XS:
		return blockIQ4XS
	case kernel.TQ1_0:
		return blockTQ1
	case kernel.TQ2_0:
		return blockTQ2
	case kernel.IQ2_XXS:
		return blockIQ2XXS
	case kernel.IQ2_XS:
		return blockIQ2XS
	case kernel.IQ2_S:
		return blockIQ2S
	case kernel.IQ3_XXS:
		return blockIQ3XXS
	case kernel.IQ3_S:
		return blockIQ3S
	case kernel.IQ1_S:
		return blockIQ1S
	case kernel.IQ1_M:
		return blockIQ1M
	case kernel.Q1_0:
		return blockQ1
	case kernel.Q2_0:
		return blockQ2
	case kernel.NVFP4:
		return blockNVFP4
	}
	panic("purego: no blocks of " + t.String())
}

func half(b []byte) float32 { return f16ToF32(binary.LittleEndian.Uint16(b)) }

func blockQ4_0(y []float32, b []byte) {
	d := half(b)
	for i, q := range b[2:18] {
		y[i] = float32(int(q&15)-8) * d
		y[i+16] = float32(int(q>>4)-8) * d
	}
}

func blockQ4_1(y []float32, b []byte) {
	d, m := half(b), half(b[2:])
	for i, q := range b[4:20] {
		y[i] = float32(float32(q&15)*d) + m
		y[i+16] = float32(float32(q>>4)*d) + m
	}
}

func blockQ5_0(y []float32, b []byte) {
	d, high := half(b), binary.LittleEndian.Uint32(b[2:])
	for i, q := range b[6:22] {
		y[i] = float32(int(q&15)+int(high>>i&1)<<4-16) * d
		y[i+16] = float32(int(q>>4)+int(high>>(i+16)&1)<<4-16) * d
	}
}

func blockQ5_1(y []float32, b []byte) {
	d, m, high := half(b), half(b[2:]), binary.LittleEndian.Uint32(b[4:])
	for i, q := range b[8:24] {
		y[i] = float32(float32(int(q&15)+int(high>>i&1)<<4)*d) + m
		y[i+16] = float32(float32(int(q>>4)+int(high>>(i+16)&1)<<4)*d) + m
	}
}

func blockQ8_0(y []float32, b []byte) {
	d := half(b)
	y = y[:32]
	for i, q := range b[2:34] {
		y[i] = float32(int32(int8(q))) * d
	}
}

// quantizeQ8_0 stores blocks as ggml does: d = max |x| / 127, q = round(x / d), halves away from 0. A NaN makes all of its block NaN.
func quantizeQ8_0(b []byte, x []float32) {
	for ; len(x) > 0; b, x = b[34:], x[32:] {
		greatest := float32(0)
		for _, v := range x[:32] {
			if size := float32(math.Abs(float64(v))); size > greatest || size != size {
				greatest = size // NaN stays
			}
		}
		d, inverse := greatest/127, float32(0)
		if d != 0 {
			inverse = 1 / d
		}
		binary.LittleEndian.PutUint16(b, f32ToF16(d))
		for i, v := range x[:32] {
			q := math.Round(float64(v * inverse))
			if !(math.Abs(q) <= 127) { // NaN, or infinite where d is denormal
				q = 0
			}
			b[2+i] = byte(int8(q))
		}
	}
}

// The values of 4-bit codes; csrc/quant.h holds the same tables.
var (
	iq4nlValues = [16]float32{-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113}
	mxfp4Values = [16]float32{0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12}
)

func blockTable(y []float32, qs []byte, values *[16]float32, d float32) {
	for i, q := range qs {
		y[i] = d * values[q&15]
		y[i+16] = d * values[q>>4]
	}
}

func blockIQ4NL(y []float32, b []byte) { blockTable(y, b[2:18], &iq4nlValues, half(b)) }

func blockMXFP4(y []float32, b []byte) {
	blockTable(y, b[1:17], &mxfp4Values, float32(math.Ldexp(1, int(b[0])-128)))
}

func blockQ2K(y []float32, b []byte) {
	scales, qs, d, min := b[:16], b[16:80], half(b[80:]), half(b[82:])
	for i := range y {
		sub := scales[i/16]
		q := qs[i/128*32+i%32] >> (i % 128 / 32 * 2) & 3
		y[i] = float32(float32(d*float32(sub&15))*float32(q)) - float32(min*float32(sub>>4))
	}
}

func blockQ3K(y []float32, b []byte) {
	hmask, qs, scales, d := b[:32], b[32:96], b[96:108], half(b[108:])
	var sub [16]float32
	for s := range sub {
		low := scales[s%8] >> (s / 8 * 4) & 15
		high := scales[8+s%4] >> (s / 4 * 2) & 3
		sub[s] = d * float32(int(low|high<<4)-32)
	}
	for i := range y {
		q := qs[i/128*32+i%32]>>(i%128/32*2)&3 | hmask[i%32]>>(i/32)&1<<2
		y[i] = sub[i/16] * float32(int(q)-4)
	}
}

// k4Scale returns the 6-bit scale and min of sub-block s of Q4_K and Q5_K.
func k4Scale(b []byte, s int) (scale, min float32) {
	if s < 4 {
		return float32(b[s] & 63), float32(b[s+4] & 63)
	}
	return float32(b[s+4]&15 | b[s-4]>>6<<4), float32(b[s+4]>>4 | b[s]>>6<<4)
}

func blockQ4K(y []float32, b []byte) {
	d, dmin, scales, qs := half(b), half(b[2:]), b[4:16], b[16:144]
	for s := range 8 {
		scale, min := k4Scale(scales, s)
		scale, min = d*scale, dmin*min
		shift := s % 2 * 4
		out := y[s*32 : s*32+32]
		for i, q := range qs[s/2*32 : s/2*32+32] {
			out[i] = float32(scale*float32(q>>shift&15)) - min
		}
	}
}

func blockQ5K(y []float32, b []byte) {
	d, dmin, scales, qh, qs := half(b), half(b[2:]), b[4:16], b[16:48], b[48:176]
	for s := range 8 {
		scale, min := k4Scale(scales, s)
		scale, min = d*scale, dmin*min
		shift := s % 2 * 4
		out := y[s*32 : s*32+32]
		for i, q := range qs[s/2*32 : s/2*32+32] {
			out[i] = float32(scale*float32(q>>shift&15|qh[i]>>s&1<<4)) - min
		}
	}
}

func blockQ6K(y []float32, b []byte) {
	ql, qh, scales, d := b[:128], b[128:192], b[192:208], half(b[208:])
	for j := range 8 { // runs of 32 elements, two scales each
		low, high := ql[j/4*64+j%2*32:][:32], qh[j/4*32:][:32]
		lowShift, highShift := j%4/2*4, j%4*2
		s0, s1 := d*float32(int8(scales[2*j])), d*float32(int8(scales[2*j+1]))
		out := y[j*32 : j*32+32]
		for i := range out {
			q := float32(int(low[i]>>lowShift&15|high[i]>>highShift&3<<4) - 32)
			if i < 16 {
				out[i] = s0 * q
			} else {
				out[i] = s1 * q
			}
		}
	}
}

func blockIQ4XS(y []float32, b []byte) {
	d, high, low, qs := half(b), binary.LittleEndian.Uint16(b[2:]), b[4:8], b[8:136]
	for s := range 8 {
		scale := int(low[s/2]>>(s%2*4)&15) | int(high>>(2*s)&3)<<4
		blockTable(y[s*32:s*32+32], qs[s*16:s*16+16], &iq4nlValues, d*float32(scale-32))
	}
}

func blockTQ1(y []float32, b []byte) {
	d := half(b[52:])
	digits := func(y []float32, bytes []byte, digits int) {
		power := byte(1)
		for n := range digits {
			for l, v := range bytes {
				y[n*len(bytes)+l] = float32(int(uint16(v*power)*3>>8)-1) * d
			}
			power *= 3
		}
	}
	digits(y[:160], b[:32], 5)
	digits(y[160:240], b[32:48], 5)
	digits(y[240:], b[48:52], 4)
}

func blockTQ2(y []float32, b []byte) {
	d := half(b[64:])
	for i := range y {
		q := b[i/128*32+i%32] >> (i % 128 / 32 * 2) & 3
		y[i] = float32(int(q)-1) * d
	}
}
