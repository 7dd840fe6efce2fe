//go:build cgo

package csrc_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"testing"
	"unsafe"

	"github.com/vibrant-ml/vibrant/internal/backend/kernel"
	"github.com/vibrant-ml/vibrant/internal/check/testdata"
)

// benchStream opens a CPU with all threads and a stream on it.
func benchStream(b *testing.B) (kernel.Device, kernel.Stream) {
	dev := open(b, 0)
	s, err := dev.NewStream(nil)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { s.Close() })
	return dev, s
}

func alloc(b *testing.B, dev kernel.Device, bytes int64) unsafe.Pointer {
	p, err := dev.Alloc(bytes)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { dev.Free(p) })
	return p
}

func randomFloats(p unsafe.Pointer, n int) {
	for i := range unsafe.Slice((*float32)(p), n) {
		unsafe.Slice((*float32)(p), n)[i] = float32(rand.NormFloat64())
	}
}

// BenchmarkRead is the speed of reading memory: what products of weights with one row are measured against.
func BenchmarkRead(b *testing.B) {
	dev, s := benchStream(b)
	const rows, cols = 256, 1 << 18
	x, y := alloc(b, dev, 4*rows*cols), alloc(b, dev, 4*rows)
	randomFloats(x, rows*cols)
	b.SetBytes(4 * rows * cols)
	for b.Loop() {
		if err := s.Argmax(y, x, rows, cols); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkLinear multiplies weights with 1, 4, 16 and 128 rows. The matrices together exceed the caches, so that with one row
// MB/s is memory read.
//
//	go test -run '^$' -bench 'Read|Linear/.*/n=1$' ./csrc
func BenchmarkLinear(b *testing.B) {
	const rows, cols, total = 1024, 4096, 256 << 20
	for _, t := range []kernel.DType{
		kernel.Q4_0, kernel.Q4_1, kernel.Q5_0, kernel.Q5_1, kernel.Q8_0, kernel.Q2_K, kernel.Q3_K, kernel.Q4_K, kernel.Q5_K, kernel.Q6_K,
		kernel.IQ1_S, kernel.IQ1_M, kernel.IQ2_XXS, kernel.IQ2_XS, kernel.IQ2_S, kernel.IQ3_XXS, kernel.IQ3_S, kernel.IQ4_NL, kernel.IQ4_XS,
		kernel.TQ1_0, kernel.TQ2_0, kernel.Q1_0, kernel.Q2_0, kernel.MXFP4, kernel.NVFP4, kernel.F16, kernel.BF16, kernel.F32,
	} {
		for _, n := range []int{1, 2, 4, 16, 128} {
			b.Run(fmt.Sprintf("%v/n=%d", t, n), func(b *testing.B) {
				benchLinear(b, t, rows, cols, n, total)
			})
		}
	}
}

// BenchmarkLinearShapes has the matrices of a Qwen2 0.5B.
func BenchmarkLinearShapes(b *testing.B) {
	for _, c := range []struct {
		t          kernel.DType
		rows, cols int
	}{{kernel.Q5_0, 896, 896}, {kernel.Q5_0, 4864, 896}, {kernel.Q8_0, 4864, 896}, {kernel.Q6_K, 896, 4864}, {kernel.Q4_K, 896, 4864}, {kernel.Q8_0, 151936, 896}} {
		for _, n := range []int{1, 128} {
			b.Run(fmt.Sprintf("%v/%dx%d/n=%d", c.t, c.rows, c.cols, n), func(b *testing.B) {
				benchLinear(b, c.t, c.rows, c.cols, n, 128<<20)
			})
		}
	}
}

func benchLinear(b *testing.B, t kernel.DType, rows, cols, n, total int) {
	dev, s := benchStream(b)
	bytes := int(t.Bytes(rows * cols))
	count := max(total/bytes, 1)
	weights := alloc(b, dev, int64(count*bytes))
	if t.Quantized() {
		blocks, err := os.ReadFile(testdata.Path(b, "quants", t.String()+".blocks.bin"))
		if err != nil {
			b.Fatal(err)
		}
		for w := unsafe.Slice((*byte)(weights), count*bytes); len(w) > 0; {
			w = w[copy(w, blocks[len(blocks)/2:]):]
		}
	} else {
		clear(unsafe.Slice((*byte)(weights), count*bytes))
	}
	x, y := alloc(b, dev, int64(4*n*cols)), alloc(b, dev, int64(4*n*rows))
	randomFloats(x, n*cols)
	b.SetBytes(int64(bytes))
	i := 0
	for b.Loop() {
		w := kernel.Weight{Data: unsafe.Add(weights, i%count*bytes), Type: t, Rows: rows, Cols: cols}
		if err := s.Linear(y, x, w, nil, n); err != nil {
			b.Fatal(err)
		}
		i++
	}
	b.ReportMetric(float64(rows)*float64(cols)*float64(n)*float64(b.N)/b.Elapsed().Seconds()/1e9, "GMAC/s")
}
