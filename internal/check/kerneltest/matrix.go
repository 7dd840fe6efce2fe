package kerneltest

import (
	"math"

	"github.com/vibrant-ml/vibrant/internal/backend/kernel"
)

func testMatMul(h *harness) {
	shapes := [][3]int{{0, 3, 4}, {3, 0, 4}, {1, 1, 1}, {1, 127, 255}, {2, 3, 5}, {4, 8, 16}, {7, 33, 17}, {33, 64, 65}, {127, 129, 31}, {5, 1000, 257}, {64, 300, 48}}
	for _, t := range floatTypes {
		for _, s := range shapes {
			m, k, n := s[0], s[1], s[2]
			a, pa := h.floats(t, m*k, 1)
			b, pb := h.floats(t, k*n, 1)
			want := make([]float64, m*n)
			for i := range m {
				for l := range k {
					for j := range n {
						want[i*n+j] += a[i*k+l] * b[l*n+j]
					}
				}
			}
			// Random signs: the error of float32 sums grows like sqrt(k) epsilon against results of size sqrt(k).
			abs := 1e-6 * math.Sqrt(float64(k)) * 4
			out := h.output(t, m*n)
			h.ok(h.stream.MatMul(matmul(out, pa, pb, t, m, k, n)))
			name := sizeName("matmul ", t, " ", s)
			h.near(name, h.read(out, t, m*n), want, 1.001*epsilon(t), abs)
			if m == 1 {
				h.ok(h.stream.MatMulSingleRow(out, pa, pb, t, k, n))
				h.near(name+" single row", h.read(out, t, m*n), want, 1.001*epsilon(t), abs)
			}
		}
	}
}

// matmul is a product of contiguous matrices.
func matmul(c, a, b kernel.Ptr, t kernel.DType, m, k, n int) *kernel.MatMulArgs {
	return &kernel.MatMulArgs{C: c, A: a, B: b, M: m, K: k, N: n, Batch: 1, AStride: k, BStride: n, CStride: n, Type: t}
}

// linearOf returns the outputs and the RMS size of a sum of such products with random signs. An error is measured against
// that where it is larger than the outputs: a few sums may cancel.
func linearOf(x, w, bias []float64, n, rows, cols int) (y []float64, scale float64) {
	y = make([]float64, n*rows)
	for i := range n {
		for r := range rows {
			sum := 0.0
			for c := range cols {
				product := x[i*cols+c] * w[r*cols+c]
				sum += product
				scale += product * product
			}
			if bias != nil {
				sum += bias[r]
			}
			y[i*rows+r] = sum
		}
	}
	return y, math.Sqrt(scale / float64(max(len(y), 1)))
}

func testLinear(h *harness) {
	types := append([]kernel.DType{kernel.F32, kernel.F16, kernel.BF16}, quantTypes()...)
	for _, dt := range types {
		tol := h.tol.Linear
		if dt == kernel.F32 {
			tol = min(tol, 1e-6)
		}
		colCounts := []int{dt.BlockSize(), 3 * dt.BlockSize(), 1024}
		if !dt.Quantized() {
			colCounts = []int{1, 7, 127, 255, 1000}
		}
		allError, allOutputs := 0.0, 0
		for _, cols := range colCounts {
			for _, rows := range []int{0, 1, 3, 16, 37} {
				values, w := h.matrix(dt, rows, cols)
				bias, pb := h.f32(rows)
				for _, n := range []int{0, 1, 2, 5, 8, 17, 40} {
					x, px := h.f32(n * cols)
					for _, biased := range []bool{false, true} {
						var b []float64
						var p kernel.Ptr
						if biased {
							b, p = bias, pb
						}
						y := h.output(kernel.F32, n*rows)
						h.ok(h.stream.Linear(y, px, w, p, n))
						got := h.read(y, kernel.F32, n*rows)
						want, scale := linearOf(x, values, b, n, rows, cols)
						// The limit is for the mean of many errors, which all shapes together are; a few may be worse.
						limit := tol * (1 + 2/math.Sqrt(max(1, float64(len(want))/4)))
						e := relativeRMS(got, want, scale)
						for i := 0; i < len(want) && scale > 0; i++ {
							allError += (got[i] - want[i]) * (got[i] - want[i]) / (scale * scale)
							allOutputs++
						}
						if len(want) > 0 && !(e <= limit) {
							h.t.Errorf("linear %v, %d x %d, n = %d, bias %v: relative RMS error %.2e, limit %.0e", dt, rows, cols, n, biased, e, limit)
						}
						if size, err := h.dev.PackedSize(w); err != nil {
							h.t.Fatal(err)
						} else if size > 0 {
							packed := w
							packed.Data, packed.Packed = h.alloc(int(size)), true
							h.ok(h.stream.WeightPack(packed.Data, w))
							h.ok(h.stream.Linear(y, px, packed, p, n))
							if e := relativeRMS(h.read(y, kernel.F32, n*rows), want, scale); len(want) > 0 && !(e <= limit) {
								h.t.Errorf("packed linear %v, %d x %d, n = %d: relative RMS error %.2e", dt, rows, cols, n, e)
							}
						}
					}
				}
			}
			h.freeAll()
		}
		if e := math.Sqrt(allError / float64(allOutputs)); !(e <= tol) {
			h.t.Errorf("linear %v, %d outputs of all shapes: relative RMS error %.2e, limit %.0e", dt, allOutputs, e, tol)
		}
	}
	testLinearExtremes(h)
}

// testLinearExtremes feeds activations on which a quantizer of activations can stumble.
func testLinearExtremes(h *harness) {
	for _, dt := range []kernel.DType{kernel.Q4_0, kernel.Q5_0, kernel.Q8_0, kernel.Q4_K, kernel.Q5_K, kernel.Q6_K, kernel.TQ2_0} {
		const cols, rows = 512, 8
		values, w := h.matrix(dt, rows, cols)
		for name, fill := range map[string]func(i int) float64{
			"zeros":    func(int) float64 { return 0 },
			"tiny":     func(int) float64 { return 1e-30 * h.rng.NormFloat64() },
			"huge":     func(int) float64 { return 1e30 * h.rng.NormFloat64() },
			"constant": func(int) float64 { return 3 },
			"outlier": func(i int) float64 {
				if i == 77 {
					return 1000
				}
				return 0
			},
			"denormal": func(int) float64 { return 1e-42 },
		} {
			x := make([]float64, 2*cols)
			for i := range x {
				x[i] = float64(float32(fill(i % cols)))
			}
			y := h.output(kernel.F32, 2*rows)
			h.ok(h.stream.Linear(y, upload(h, encode(x, kernel.F32)), w, nil, 2))
			want, scale := linearOf(x, values, nil, 2, rows, cols)
			got := h.read(y, kernel.F32, 2*rows)
			if name == "denormal" { // below what float32 scales can express: a result near zero will do
				h.near(sizeName(dt, " ", name), got, make([]float64, len(got)), 0, 1e-36)
			} else if e := relativeRMS(got, want, scale); !(e <= 3*h.tol.Linear) {
				h.t.Errorf("linear %v of %s: relative RMS error %.2e", dt, name, e)
			}
		}
		for name, bad := range map[string]float64{"NaN": math.NaN(), "Inf": math.Inf(1)} {
			x := make([]float64, cols)
			x[100] = bad
			y := h.output(kernel.F32, rows)
			h.ok(h.stream.Linear(y, upload(h, encode(x, kernel.F32)), w, nil, 1))
			for _, v := range h.read(y, kernel.F32, rows) {
				if !math.IsNaN(v) && !math.IsInf(v, 0) {
					h.t.Errorf("linear %v hides %s: %v", dt, name, v)
					break
				}
			}
		}
	}
}

func testEmbedding(h *harness) {
	for _, dt := range append([]kernel.DType{kernel.F32, kernel.F16, kernel.BF16}, quantTypes()...) {
		rows, cols := 19, 2*dt.BlockSize()
		values, table := h.matrix(dt, rows, cols)
		ids := []int32{18, 0, 7, 7, 3}
		var want []float64
		for _, id := range ids {
			want = append(want, values[int(id)*cols:(int(id)+1)*cols]...)
		}
		out := h.output(kernel.F32, len(want))
		h.ok(h.stream.Embedding(out, table, upload(h, ids), len(ids)))
		h.near(dt.String(), h.read(out, kernel.F32, len(want)), want, 0, 0)
		h.ok(h.stream.Embedding(out, table, nil, 0))
		for _, id := range []int32{-1, 19, math.MaxInt32, math.MinInt32} {
			err := h.stream.Embedding(out, table, upload(h, []int32{0, id}), 2)
			if h.dev.Info().HostMemory {
				h.is(sizeName("id ", id), err, kernel.ErrInvalid)
			} else {
				h.ok(err)
				for _, v := range h.read(out, kernel.F32, len(want))[cols : 2*cols] {
					if !math.IsNaN(v) {
						h.t.Fatalf("id %d gives %v, want NaN", id, v)
					}
				}
			}
		}
	}
}
