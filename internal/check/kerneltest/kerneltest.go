// Package kerneltest holds kernel backends to what the table of operations (package optable) cannot say: golden blocks of other
// engines, operands at the edge of what is allowed, memory, and the errors that the contract promises.
//
// It speaks to a device through package kernel only, so one suite serves the CPUs and the GPU.
package kerneltest

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"unsafe"

	"github.com/vibrant-ml/vibrant/internal/backend/kernel"
)

// Tolerance says how far a backend may be from exact arithmetic where the contract leaves it room.
type Tolerance struct {
	// Linear is the relative RMS error of products with weights other than F32.
	Linear float64
}

// Run tests every operation of the device.
func Run(t *testing.T, dev kernel.Device, tol Tolerance) {
	h := newHarness(t, dev)
	h.tol = tol
	for _, part := range []struct {
		name string
		run  func(*harness)
	}{
		{"HalfConversions", testHalfConversions}, {"Dequantize", testDequantize}, {"LinearGolden", testLinearGolden}, {"Copy", testCopy},
		{"LinearExtremes", testLinearExtremes}, {"Attention", testAttention}, {"SumInPlace", testSumInPlace}, {"OutOfRange", testOutOfRange},
		{"Errors", testErrors}, {"Memory", testMemory},
	} {
		t.Run(part.name, func(t *testing.T) {
			sub := *h
			sub.t = t
			sub.rng = rand.New(rand.NewPCG(1, 2))
			part.run(&sub)
			sub.freeAll()
		})
	}
}

type harness struct {
	t      testing.TB
	dev    kernel.Device
	stream kernel.Stream
	tol    Tolerance
	rng    *rand.Rand
	memory []kernel.Ptr
}

func newHarness(t *testing.T, dev kernel.Device) *harness {
	stream, err := dev.NewStream(nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stream.Close() })
	return &harness{t: t, dev: dev, stream: stream}
}

func (h *harness) ok(err error) {
	h.t.Helper()
	if err != nil {
		h.t.Fatal(err)
	}
}

func (h *harness) alloc(bytes int) kernel.Ptr {
	h.t.Helper()
	p, err := h.dev.Alloc(int64(bytes))
	h.ok(err)
	h.memory = append(h.memory, p)
	return p
}

func (h *harness) freeAll() {
	for _, p := range h.memory {
		h.ok(h.dev.Free(p))
	}
	h.memory = nil
}

// upload copies a slice to new device memory.
func upload[T any](h *harness, v []T) kernel.Ptr {
	h.t.Helper()
	bytes := len(v) * int(unsafe.Sizeof(*new(T)))
	p := h.alloc(bytes)
	if bytes > 0 {
		h.ok(h.stream.CopyToDevice(p, unsafe.Pointer(&v[0]), int64(bytes)))
	}
	return p
}

func download[T any](h *harness, p kernel.Ptr, n int) []T {
	h.t.Helper()
	v := make([]T, n)
	if n > 0 {
		h.ok(h.stream.CopyToHost(unsafe.Pointer(&v[0]), p, int64(n)*int64(unsafe.Sizeof(v[0]))))
	}
	h.ok(h.stream.Synchronize())
	return v
}

// guard surrounds outputs: what a kernel writes past their end shows.
const guard = 64

// output allocates n elements of a float type between guards.
func (h *harness) output(t kernel.DType, n int) kernel.Ptr {
	h.t.Helper()
	bytes := int(t.Bytes(n))
	p := h.alloc(bytes + guard)
	h.ok(h.stream.Memset(p, 0xaa, int64(bytes+guard)))
	return p
}

// read returns n elements as float64 and checks the guard.
func (h *harness) read(p kernel.Ptr, t kernel.DType, n int) []float64 {
	h.t.Helper()
	bytes := int(t.Bytes(n))
	raw := download[byte](h, p, bytes+guard)
	for i, b := range raw[bytes:] {
		if b != 0xaa {
			h.t.Fatalf("byte %d past the end of the output was overwritten", i)
		}
	}
	return decode(raw[:bytes], t)
}

// floats makes n random values of a float type: their exact float64 values and their device memory.
func (h *harness) floats(t kernel.DType, n int, scale float64) ([]float64, kernel.Ptr) {
	h.t.Helper()
	v := make([]float64, n)
	raw := make([]byte, 0, int(t.Bytes(n))+guard)
	for i := range v {
		// Normal numbers of the type are float32 with the low bits clear: no rounding that could be wrong.
		x := float32(h.rng.NormFloat64() * scale)
		bits := math.Float32bits(x)
		switch {
		case t == kernel.F32:
			raw = binary.LittleEndian.AppendUint32(raw, bits)
		case t == kernel.BF16:
			bits &^= 0xffff
			raw = binary.LittleEndian.AppendUint16(raw, uint16(bits>>16))
		case math.Abs(float64(x)) < 0x1p-14:
			bits = 0
			raw = append(raw, 0, 0)
		default:
			bits &^= 0x1fff
			raw = binary.LittleEndian.AppendUint16(raw, uint16(bits>>16&0x8000|(bits&0x7fffffff-0x38000000)>>13))
		}
		v[i] = float64(math.Float32frombits(bits))
	}
	return v, upload(h, raw[:cap(raw)])
}

var floatTypes = []kernel.DType{kernel.F32, kernel.F16, kernel.BF16}

// epsilon is half a step of rounding to the type, relative.
func epsilon(t kernel.DType) float64 {
	switch t {
	case kernel.F16:
		return 0x1p-11
	case kernel.BF16:
		return 0x1p-8
	}
	return 0x1p-24
}

// near fails unless every |got - want| <= abs + rel * |want|; NaN matches NaN and infinities their like only.
func (h *harness) near(what string, got, want []float64, rel, abs float64) {
	h.t.Helper()
	if len(got) != len(want) {
		h.t.Fatalf("%s: %d elements, want %d", what, len(got), len(want))
	}
	for i, w := range want {
		g := got[i]
		if g == w || math.IsNaN(g) && math.IsNaN(w) {
			continue
		}
		if !(math.Abs(g-w) <= abs+rel*math.Abs(w)) {
			h.t.Fatalf("%s: element %d of %d is %v, want %v (relative %.1e)", what, i, len(want), g, w, math.Abs(g-w)/math.Abs(w))
		}
	}
}

// relativeRMS returns the RMS of got - want over that of want, or over scale if that is larger; +Inf if anything is not
// finite.
func relativeRMS(got, want []float64, scale float64) float64 {
	var diff, norm float64
	for i := range want {
		diff += (got[i] - want[i]) * (got[i] - want[i])
		norm += want[i] * want[i]
	}
	n := float64(len(want))
	e := math.Sqrt(diff/n) / max(math.Sqrt(norm/n), scale)
	if diff == 0 {
		return 0
	}
	if len(got) != len(want) || math.IsNaN(e) {
		return math.Inf(1)
	}
	return e
}

// is fails unless err wraps want.
func (h *harness) is(what string, err, want error) {
	h.t.Helper()
	if !errors.Is(err, want) {
		h.t.Errorf("%s: error %v, want %v", what, err, want)
	}
}

func sizeName(v ...any) string { return fmt.Sprint(v...) }
