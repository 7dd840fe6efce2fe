package kerneltest

import (
	"math"
	"sort"

	"github.com/vibrant-ml/vibrant/dtype"
	"github.com/vibrant-ml/vibrant/internal/backend/kernel"
)

var sizes = []int{0, 1, 2, 7, 8, 15, 16, 17, 31, 33, 127, 128, 255, 256, 1000, 20481}

func testElementwise(h *harness) {
	silu := func(x float64) float64 { return x / (1 + math.Exp(-x)) }
	s := h.stream
	const scalar = -1.5
	ops := []struct {
		name string
		run  func(out, a, b kernel.Ptr, t kernel.DType, n int) error
		want func(a, b float64) float64
		// rel beyond the rounding of the result: exp in float32 is good to a few units.
		rel float64
	}{
		{"add", s.Add, func(a, b float64) float64 { return a + b }, 0},
		{"mul", s.Mul, func(a, b float64) float64 { return a * b }, 0},
		{"mul_scalar", func(out, a, _ kernel.Ptr, t kernel.DType, n int) error { return s.MulScalar(out, a, scalar, t, n) },
			func(a, _ float64) float64 { return a * scalar }, 0},
		{"silu", func(out, a, _ kernel.Ptr, t kernel.DType, n int) error { return s.SiLU(out, a, t, n) },
			func(a, _ float64) float64 { return silu(a) }, 1e-6},
		{"swiglu", s.SwiGLU, func(a, b float64) float64 { return silu(a) * b }, 1e-6},
	}
	for _, op := range ops {
		for _, t := range floatTypes {
			for _, n := range sizes {
				a, pa := h.floats(t, n, 8)
				b, pb := h.floats(t, n, 1)
				out := h.output(t, n)
				h.ok(op.run(out, pa, pb, t, n))
				want := make([]float64, n)
				for i := range want {
					want[i] = op.want(a[i], b[i])
				}
				name := sizeName(op.name, " ", t, " ", n)
				rel := 1.001*epsilon(t) + op.rel
				tiny := 0x1p-25 // half a step of F16's denormals
				h.near(name, h.read(out, t, n), want, rel, tiny)
				h.ok(op.run(pa, pa, pb, t, n))
				h.near(name+" in place", decode(download[byte](h, pa, int(t.Bytes(n))), t), want, rel, tiny)
			}
		}
	}
	// silu far from zero neither overflows nor loses its sign.
	x := []float64{-1000, -100, -88, -50, 0, 50, 88, 100, 1000, math.Inf(1), math.NaN()}
	out := h.output(kernel.F32, len(x))
	h.ok(s.SiLU(out, upload(h, encode(x, kernel.F32)), kernel.F32, len(x)))
	want := make([]float64, len(x))
	for i, v := range x {
		want[i] = silu(v)
	}
	h.near("silu of extremes", h.read(out, kernel.F32, len(x)), want, 2e-6, 1e-36)
}

func testCopy(h *harness) {
	for _, t := range dtype.All() {
		for _, n := range []int{0, t.BlockSize(), 3 * t.BlockSize()} {
			raw := make([]byte, t.Bytes(n))
			for i := range raw {
				raw[i] = byte(h.rng.Uint32())
			}
			out := h.alloc(len(raw))
			h.ok(h.stream.Copy(out, upload(h, raw), t, n))
			if got := download[byte](h, out, len(raw)); string(got) != string(raw) {
				h.t.Fatalf("copy of %d %v differs", n, t)
			}
		}
	}
	in := []int32{0, 1, -1, math.MaxInt32, math.MinInt32}
	out := h.output(kernel.F32, len(in))
	h.ok(h.stream.Convert(out, kernel.F32, upload(h, in), kernel.I32, len(in)))
	h.near("convert I32", h.read(out, kernel.F32, len(in)), []float64{0, 1, -1, 1 << 31, -1 << 31}, 0, 0)
	for _, from := range floatTypes {
		for _, to := range floatTypes {
			for _, n := range sizes {
				v, p := h.floats(from, n, 1)
				out := h.output(to, n)
				h.ok(h.stream.Convert(out, to, p, from, n))
				h.near(sizeName(from, " to ", to), h.read(out, to, n), decode(encode(v, to), to), 0, 0)
			}
		}
	}
}

func testIncrement(h *harness) {
	for _, n := range []int{0, 1, 33} {
		p := upload(h, make([]int32, n+1))
		h.ok(h.stream.IncrementI32(p, n))
		h.ok(h.stream.IncrementI32(p, n))
		for i, v := range download[int32](h, p, n+1) {
			if want := int32(2); i < n && v != want || i == n && v != 0 {
				h.t.Fatalf("element %d of %d is %d", i, n, v)
			}
		}
	}
}

var rowShapes = [][2]int{{0, 5}, {1, 1}, {1, 7}, {3, 127}, {5, 255}, {2, 256}, {17, 33}, {1, 20481}, {40, 896}}

func softmaxOf(x []float64) []float64 {
	top := math.Inf(-1)
	for _, v := range x {
		top = math.Max(top, v)
	}
	sum, y := 0.0, make([]float64, len(x))
	for i, v := range x {
		y[i] = math.Exp(v - top)
		sum += y[i]
	}
	for i := range y {
		y[i] /= sum
	}
	return y
}

func testSoftmax(h *harness) {
	for _, t := range floatTypes {
		for _, shape := range rowShapes {
			rows, cols := shape[0], shape[1]
			x, p := h.floats(t, rows*cols, 5)
			var want []float64
			for r := range rows {
				want = append(want, softmaxOf(x[r*cols:(r+1)*cols])...)
			}
			out := h.output(t, rows*cols)
			h.ok(h.stream.Softmax(out, p, t, rows, cols))
			name := sizeName("softmax ", t, " ", shape)
			h.near(name, h.read(out, t, rows*cols), want, 4e-6+epsilon(t), 0x1p-25)
			h.ok(h.stream.Softmax(p, p, t, rows, cols))
			h.near(name+" in place", decode(download[byte](h, p, int(t.Bytes(rows*cols))), t), want, 4e-6+epsilon(t), 0x1p-25)
		}
	}
	inf := math.Inf(1)
	for _, x := range [][]float64{{-inf, -inf}, {-inf, 0}, {1e30, -1e30, 1e30}, {math.NaN(), 1, 2}, {3e38, 3e38}, {inf, 1}} {
		want := softmaxOf(x)
		out := h.output(kernel.F32, len(x))
		h.ok(h.stream.Softmax(out, upload(h, encode(x, kernel.F32)), kernel.F32, 1, len(x)))
		h.near(sizeName("softmax of ", x), h.read(out, kernel.F32, len(x)), want, 1e-6, 0)
	}
}

func rmsNormOf(x, w []float64, eps float64) []float64 {
	sum := 0.0
	for _, v := range x {
		sum += v * v
	}
	y := make([]float64, len(x))
	for i, v := range x {
		y[i] = v / math.Sqrt(sum/float64(len(x))+eps)
		if w != nil {
			y[i] *= w[i]
		}
	}
	return y
}

func testRMSNorm(h *harness) {
	const eps = 1e-5
	for _, t := range floatTypes {
		for _, shape := range rowShapes {
			for _, weighted := range []bool{true, false} {
				rows, cols := shape[0], shape[1]
				n := rows * cols
				a, pa := h.floats(t, n, 3)
				b, pb := h.floats(t, n, 3)
				var w []float64
				var pw kernel.Ptr
				if weighted {
					w, pw = h.f32(cols)
				}
				var norm, sumNorm []float64
				sum := make([]float64, n)
				for i := range sum {
					sum[i] = a[i] + b[i]
				}
				sum = decode(encode(sum, t), t)
				for r := range rows {
					norm = append(norm, rmsNormOf(a[r*cols:(r+1)*cols], w, float64(float32(eps)))...)
					sumNorm = append(sumNorm, rmsNormOf(sum[r*cols:(r+1)*cols], w, float64(float32(eps)))...)
				}
				name := sizeName("rms_norm ", t, " ", shape, " ", weighted)
				rel, abs := 2e-6+1.001*epsilon(t), 0x1p-25
				out, total := h.output(t, n), h.output(t, n)
				h.ok(h.stream.RMSNorm(out, pa, pw, t, rows, cols, eps))
				h.near(name, h.read(out, t, n), norm, rel, abs)
				h.ok(h.stream.AddRMSNorm(total, out, pa, pb, pw, t, rows, cols, eps))
				h.near(name+" sum", h.read(total, t, n), sum, 0, 0)
				// A device may keep the sum in float32 for the norm: one more rounding of the type.
				h.near(name+" of sum", h.read(out, t, n), sumNorm, rel+epsilon(t), abs)
				h.ok(h.stream.AddRMSNorm(pb, out, pa, pb, pw, t, rows, cols, eps))
				h.near(name+" sum in b", decode(download[byte](h, pb, int(t.Bytes(n))), t), sum, 0, 0)
				h.near(name+" of sum in b", h.read(out, t, n), sumNorm, rel+epsilon(t), abs)
				h.ok(h.stream.RMSNorm(pa, pa, pw, t, rows, cols, eps))
				h.near(name+" in place", decode(download[byte](h, pa, int(t.Bytes(n))), t), norm, rel, abs)
			}
		}
	}
}

// greater orders as the contract of argmax does.
func greater(a, b float64) bool { return math.IsNaN(a) && !math.IsNaN(b) || a > b }

func order(x []float64) []int32 {
	ids := make([]int32, len(x))
	for i := range ids {
		ids[i] = int32(i)
	}
	sort.SliceStable(ids, func(i, j int) bool { return greater(x[ids[i]], x[ids[j]]) })
	return ids
}

// rowsWithTies are random rows in which values repeat, and rows of special values.
func (h *harness) rowsWithTies(cols int) [][]float64 {
	nan, inf, zero := math.NaN(), math.Inf(1), math.Copysign(0, -1)
	specials := []float64{nan, inf, -inf, zero, 0, 1, -1, 1e-45, -1e-45, 3e38}
	rows := make([][]float64, 6)
	for r := range rows {
		rows[r] = make([]float64, cols)
		for i := range rows[r] {
			switch r {
			case 0:
				rows[r][i] = float64(float32(h.rng.NormFloat64()))
			case 1:
				rows[r][i] = float64(h.rng.IntN(5))
			case 2:
				rows[r][i] = -inf
			case 3:
				rows[r][i] = specials[h.rng.IntN(len(specials))]
			case 4:
				rows[r][i] = specials[3+h.rng.IntN(2)]
			default:
				rows[r][i] = -float64(i)
			}
		}
		for i, v := range rows[r] {
			rows[r][i] = float64(float32(v))
		}
	}
	return rows
}

func testArgmax(h *harness) {
	for _, cols := range []int{1, 2, 15, 16, 17, 127, 255, 1000, 20481} {
		rows := h.rowsWithTies(cols)
		var flat []float64
		for _, r := range rows {
			flat = append(flat, r...)
		}
		out := h.alloc(4 * len(rows))
		h.ok(h.stream.Argmax(out, upload(h, encode(flat, kernel.F32)), len(rows), cols))
		for r, got := range download[int32](h, out, len(rows)) {
			if want := order(rows[r])[0]; got != want {
				h.t.Errorf("argmax of row kind %d, %d columns: %d, want %d", r, cols, got, want)
			}
		}
	}
}

func testTopK(h *harness) {
	for _, shape := range [][2]int{{1, 1}, {17, 1}, {17, 17}, {255, 40}, {1000, 8}, {20481, 64}} {
		cols, k := shape[0], shape[1]
		rows := h.rowsWithTies(cols)
		var flat, want []float64
		var wantIDs []int32
		for _, r := range rows {
			flat = append(flat, r...)
			for _, id := range order(r)[:k] {
				want, wantIDs = append(want, r[id]), append(wantIDs, id)
			}
		}
		n := len(rows) * k
		values, ids := h.output(kernel.F32, n), h.output(kernel.I32, n)
		h.ok(h.stream.TopK(values, ids, upload(h, encode(flat, kernel.F32)), len(rows), cols, k))
		h.near(sizeName("top_k values ", shape), h.read(values, kernel.F32, n), want, 0, 0)
		for i, got := range download[int32](h, ids, n) {
			if got != wantIDs[i] {
				h.t.Fatalf("top_k %v: id %d of row kind %d is %d, want %d", shape, i%k, i/k, got, wantIDs[i])
			}
		}
	}
}
