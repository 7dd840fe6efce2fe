package purego

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"sync/atomic"

	"github.com/vibrant-ml/vibrant/internal/backend/kernel"
)

// The quantizers are those of csrc/cpu_quantize.c, which describes them: float32(...) around a product forbids a fused
// multiply-add, so that codes and scales equal those of ggml's reference quantizers bit for bit.

// mostValue is more than any block holds; below it the sums of the searches stay finite.
const mostValue = 1e9

// tiny is the scale below which a block is zeros: ggml's GROUP_MAX_EPS.
const tiny = 1e-15

// quantizeFunc returns what makes a block of a type, nil where nothing does. It reports whether the block's scales are finite.
func quantizeFunc(t kernel.DType) func(b []byte, x []float32) bool {
	switch t {
	case kernel.Q4_0:
		return quantizeQ4_0
	case kernel.Q8_0:
		return func(b []byte, x []float32) bool {
			quantizeQ8_0(b, x)
			return finite(b)
		}
	case kernel.Q4_K:
		return quantizeQ4K
	case kernel.Q6_K:
		return quantizeQ6K
	}
	return nil
}

// quantize makes blocks of values.
func (s *stream) quantize(out kernel.Ptr, t kernel.DType, in []float32, block func(b []byte, x []float32) bool) error {
	if err := blocks("convert", t, len(in)); err != nil {
		return err
	}
	size, bytes := t.BlockSize(), t.BlockBytes()
	codes := slice[byte](out, int(t.Bytes(len(in))))
	var bad atomic.Bool
	s.device.parallel(len(in)/size, 8, func(lo, hi int) {
		for i := lo; i < hi; i++ {
			x := in[i*size : i*size+size]
			if slices.ContainsFunc(x, func(v float32) bool { return !(abs32(v) <= mostValue) }) || !block(codes[i*bytes:i*bytes+bytes], x) {
				bad.Store(true)
			}
		}
	})
	if bad.Load() {
		return fmt.Errorf("in: a value is infinite, NaN, or too large for the scale of its block: %w", kernel.ErrInvalid)
	}
	return nil
}

// nearest rounds |x| < 2^22 to the nearest integer, ties to even; of infinity and NaN it returns what C's twin does.
func nearest(x float32) int32 {
	return int32(math.Float32bits(float32(x)+12582912)&0x7fffff) - 0x400000
}

func clamp32(x, low, high int32) int32 { return max(low, min(x, high)) }

func abs32(x float32) float32 { return math.Float32frombits(math.Float32bits(x) &^ (1 << 31)) }

// finite reports whether the half at b is: scales of values that are too large are not.
func finite(b []byte) bool { return binary.LittleEndian.Uint16(b)&0x7c00 != 0x7c00 }

// putHalf writes x as a half and reports whether it is finite.
func putHalf(b []byte, x float32) bool {
	binary.LittleEndian.PutUint16(b, f32ToF16(x))
	return finite(b)
}

// largest returns the largest magnitude, and the first value that has it.
func largest(x []float32) (most, value float32) {
	for _, v := range x {
		if a := abs32(v); a > most {
			most, value = a, v
		}
	}
	return most, value
}

func quantizeQ4_0(b []byte, x []float32) bool {
	_, value := largest(x)
	d, inverse := value/-8, float32(0)
	if d != 0 {
		inverse = 1 / d
	}
	var q [32]byte
	for i, v := range x {
		if v = float32(v*inverse) + 8.5; v > 0 && v < 17 {
			q[i] = byte(clamp32(int32(v), 0, 15))
		}
	}
	for i := range 16 {
		b[2+i] = q[i] | q[i+16]<<4
	}
	return putHalf(b, d)
}

// codesOf rounds 32 values to codes of one step.
func codesOf(q *[32]int32, x []float32, inverse, low float32) {
	for i, v := range x {
		q[i] = clamp32(nearest(inverse*(v-low)), 0, 15)
	}
}

// errorOf returns the weighted error of 32 codes.
func errorOf(q *[32]int32, x []float32, weights *[32]float32, scale, low float32) (sum float32) {
	for i, v := range x {
		diff := float32(scale*float32(q[i])) + low - v
		sum += float32(weights[i] * float32(diff*diff))
	}
	return sum
}

// fitOffset finds codes 0..15 of 32 values, which are scale * code - offset.
func fitOffset(q *[32]int32, x []float32, weights *[32]float32) (scale, offset float32) {
	low, high := x[0], x[0]
	var sumW, sumX float32
	for i, v := range x {
		if v < low {
			low = v
		}
		if v > high {
			high = v
		}
		sumW += weights[i]
		sumX += float32(weights[i] * v)
	}
	if low > 0 {
		low = 0
	}
	if high == low {
		*q = [32]int32{}
		return 0, -low
	}
	inverse := 15 / (high - low)
	scale = 1 / inverse
	codesOf(q, x, inverse, low)
	best := errorOf(q, x, weights, scale, low)
	for step := range 21 {
		var trial [32]int32
		inverse = (-1 + float32(float32(0.1)*float32(step)) + 15) / (high - low)
		codesOf(&trial, x, inverse, low)
		var sumQ, sumQQ, sumQX float32
		for i, v := range x {
			code := float32(trial[i])
			wq := float32(weights[i] * code)
			sumQ += wq
			sumQQ += float32(wq * code)
			sumQX += float32(wq * v)
		}
		determinant := float32(sumW*sumQQ) - float32(sumQ*sumQ)
		if !(determinant > 0) {
			continue
		}
		thisScale := (float32(sumW*sumQX) - float32(sumX*sumQ)) / determinant
		thisLow := (float32(sumQQ*sumX) - float32(sumQ*sumQX)) / determinant
		if thisLow > 0 {
			thisLow, thisScale = 0, sumQX/sumQQ
		}
		if e := errorOf(&trial, x, weights, thisScale, thisLow); e < best {
			*q, best, scale, low = trial, e, thisScale, thisLow
		}
	}
	return scale, -low
}

func quantizeQ4K(b []byte, x []float32) bool {
	var q [8][32]int32
	var scales, offsets [8]float32
	var maxScale, maxOffset float32
	for s := range q {
		v := x[32*s : 32*s+32]
		var weights [32]float32
		var squares float32
		for _, a := range v {
			squares += float32(a * a)
		}
		mean := float32(math.Sqrt(float64(squares / 32)))
		for i, a := range v {
			weights[i] = mean + abs32(a)
		}
		scales[s], offsets[s] = fitOffset(&q[s], v, &weights)
		maxScale, maxOffset = max(maxScale, scales[s]), max(maxOffset, offsets[s])
	}
	var byScale, byOffset float32
	if maxScale > 0 {
		byScale = 63 / maxScale
	}
	if maxOffset > 0 {
		byOffset = 63 / maxOffset
	}
	packed := b[4:16]
	clear(packed)
	for s := range q {
		scale := min(63, uint8(nearest(byScale*scales[s])))
		offset := min(63, uint8(nearest(byOffset*offsets[s])))
		if s < 4 {
			packed[s], packed[s+4] = scale, offset
		} else {
			packed[s+4] = scale&15 | offset<<4
			packed[s-4] |= scale >> 4 << 6
			packed[s] |= offset >> 4 << 6
		}
	}
	good := putHalf(b, maxScale/63)
	good = putHalf(b[2:], maxOffset/63) && good
	for s := range q {
		scale, offset := k4Scale(packed, s)
		d, low := float32(half(b)*scale), float32(half(b[2:])*offset)
		if d == 0 {
			continue // the codes of the search stay
		}
		for i := range q[s] {
			q[s][i] = clamp32(nearest((x[32*s+i]+low)/d), 0, 15)
		}
	}
	for s := 0; s < 8; s += 2 {
		for i := range 32 {
			b[16+16*s+i] = byte(q[s][i] | q[s+1][i]<<4)
		}
	}
	return good
}

// fitScale finds codes 0..63 of 16 values, which are scale * (code - 32); their weights are their squares.
func fitScale(codes []int32, x []float32) (scale float32) {
	clear(codes)
	most, value := largest(x)
	if most < tiny {
		return 0
	}
	var best float32
	try := func(step int, first bool) {
		var q [16]int32
		var sumQX, sumQQ float32
		inverse := -(32 + float32(float32(0.1)*float32(step))) / value
		for i, v := range x {
			w := float32(v * v)
			q[i] = clamp32(nearest(inverse*v), -32, 31)
			sumQX += float32(float32(w*v) * float32(q[i]))
			sumQQ += float32(float32(w*float32(q[i])) * float32(q[i]))
		}
		if !first && !(sumQQ > 0 && float32(sumQX*sumQX) > float32(best*sumQQ)) {
			return
		}
		if scale = 0; sumQQ != 0 {
			scale = sumQX / sumQQ
		}
		best = scale * sumQX
		for i := range q {
			codes[i] = q[i] + 32
		}
	}
	try(0, true)
	for step := -9; step <= 9; step++ {
		if step != 0 {
			try(step, false)
		}
	}
	return scale
}

func quantizeQ6K(b []byte, x []float32) bool {
	var q [256]int32
	var scales [16]float32
	for s := range scales {
		scales[s] = fitScale(q[16*s:16*s+16], x[16*s:16*s+16])
	}
	clear(b)
	most, value := largest(scales[:])
	if most < tiny {
		return true
	}
	inverse := -128 / value
	good := putHalf(b[208:], 1/inverse)
	for s := range scales {
		scale := min(127, nearest(inverse*scales[s]))
		b[192+s] = byte(scale)
		d := half(b[208:]) * float32(int8(scale))
		if d == 0 {
			continue // the codes of the search stay
		}
		for i := 16 * s; i < 16*s+16; i++ {
			q[i] = clamp32(nearest(x[i]/d), -32, 31) + 32
		}
	}
	for h := range 2 {
		for l := range 32 {
			v := q[128*h+l:]
			b[64*h+l] = byte(v[0]&15 | v[64]&15<<4)
			b[64*h+32+l] = byte(v[32]&15 | v[96]&15<<4)
			b[128+32*h+l] = byte(v[0]>>4 | v[32]>>4<<2 | v[64]>>4<<4 | v[96]>>4<<6)
		}
	}
	return good
}
