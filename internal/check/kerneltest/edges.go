package kerneltest

import (
	"math"

	"github.com/vibrant-ml/vibrant/dtype"
	"github.com/vibrant-ml/vibrant/internal/backend/kernel"
)

// testOutOfRange writes through ids and positions that lie outside: an error on a device in host memory, NaN or nothing on others.
func testOutOfRange(h *harness) {
	const rows, cols = 19, 4
	table := kernel.Weight{Data: upload(h, encode(make([]float64, rows*cols), kernel.F32)), Type: kernel.F32, Rows: rows, Cols: cols}
	out := h.output(kernel.F32, 2*cols)
	for _, id := range []int32{-1, rows, math.MaxInt32, math.MinInt32} {
		err := h.stream.Embedding(out, table, upload(h, []int32{0, id}), 2)
		if h.dev.Info().HostMemory {
			h.is(sizeName("id ", id), err, kernel.ErrInvalid)
			continue
		}
		h.ok(err)
		for _, v := range h.read(out, kernel.F32, 2*cols)[cols:] {
			if !math.IsNaN(v) {
				h.t.Fatalf("id %d gives %v, want NaN", id, v)
			}
		}
	}
	if h.dev.Info().HostMemory {
		x, table := h.output(kernel.F32, 8), h.output(kernel.F32, 8)
		for _, p := range []int32{-1, 4, math.MaxInt32} {
			h.is(sizeName("rope at ", p), h.stream.RoPE(&kernel.RoPEArgs{Out: x, In: x, Cos: table, Sin: table, Positions: upload(h, []int32{0, p}),
				Batch: 1, Heads: 1, Seq: 2, Dim: 4, Half: 2, TableRows: 4}), kernel.ErrInvalid)
		}
	}
	for _, p := range []int32{-1, 3} {
		in, cache := h.output(kernel.F32, 4), h.output(kernel.F32, 12)
		err := h.stream.KVWrite(&kernel.KVWriteArgs{K: cache, V: cache, KIn: in, VIn: in, Positions: upload(h, []int32{p}), Batch: 1, Seq: 1, KVHeads: 1, Dim: 4, ValueDim: 4, Capacity: 3})
		if h.dev.Info().HostMemory {
			h.is(sizeName("kv_write at ", p), err, kernel.ErrInvalid)
		} else {
			h.ok(err)
		}
		for i, b := range download[byte](h, cache, 48) {
			if b != 0xaa {
				h.t.Fatalf("kv_write at %d changed byte %d", p, i)
			}
		}
	}
}

// testSumInPlace lets AddRMSNorm write the sum where its second operand lies.
func testSumInPlace(h *harness) {
	const rows, cols = 5, 255
	for _, t := range floatTypes {
		a, pa := h.floats(t, rows*cols, 3)
		b, pb := h.floats(t, rows*cols, 3)
		sum := make([]float64, rows*cols)
		for i := range sum {
			sum[i] = a[i] + b[i]
		}
		h.ok(h.stream.AddRMSNorm(pb, h.output(t, rows*cols), pa, pb, nil, t, rows, cols, 1e-5))
		h.near(sizeName("sum of ", t, " in b"), decode(download[byte](h, pb, int(t.Bytes(rows*cols))), t), decode(encode(sum, t), t), 0, 0)
	}
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

type attentionCase struct {
	batch, seq, heads, kvHeads, dim, capacity, kvLen, offset, window int
	causal, positions, sequences, interleaved                        bool
	t, kv                                                            kernel.DType
}

// testAttention covers what package tensor does not pass on: caches of sequences in another order, and no keys at all; and scores
// far apart, and equal ones.
func testAttention(h *harness) {
	const f32, f16, bf16 = kernel.F32, kernel.F16, kernel.BF16
	cases := []attentionCase{
		{batch: 2, seq: 5, heads: 4, kvHeads: 2, dim: 33, capacity: 40, kvLen: 35, causal: true, positions: true, sequences: true},
		{batch: 3, seq: 1, heads: 8, kvHeads: 2, dim: 64, capacity: 64, kvLen: 50, causal: true, positions: true, sequences: true, interleaved: true},
		{batch: 1, seq: 2, heads: 2, kvHeads: 2, dim: 8, capacity: 4, kvLen: 0},
		{batch: 1, seq: 0, heads: 2, kvHeads: 2, dim: 8, capacity: 4, kvLen: 0},
	}
	for _, types := range [][2]kernel.DType{{f32, f32}, {f32, f16}, {f32, bf16}, {f16, f16}, {bf16, bf16}} {
		for _, c := range cases {
			c.t, c.kv = types[0], types[1]
			h.attention(c)
		}
		h.freeAll()
	}
	for _, scale := range []float64{0, 100} {
		q, pq := h.floats(f32, 64, scale)
		k, pk := h.floats(f32, 40*64, 1)
		v, pv := h.floats(f32, 40*64, 1)
		a := kernel.AttentionArgs{Out: h.output(f32, 64), Q: pq, K: pk, V: pv, Batch: 1, Seq: 1, Heads: 1, KVHeads: 1, Dim: 64, ValueDim: 64, KVCapacity: 40, KVLen: 40, Scale: 1}
		h.ok(h.stream.Attention(&a))
		h.near(sizeName("attention with queries of ", scale), h.read(a.Out, f32, 64), attendOne(q, k, v, 64, 1), 1e-3, 1e-4)
	}
}

// attendOne is attention of one query to all keys.
func attendOne(q, k, v []float64, dim int, scale float64) []float64 {
	out, scores := make([]float64, dim), make([]float64, len(k)/dim)
	for j := range scores {
		for d := range dim {
			scores[j] += q[d] * k[j*dim+d] * scale
		}
	}
	for j, p := range softmaxOf(scores) {
		for d := range dim {
			out[d] += p * v[j*dim+d]
		}
	}
	return out
}

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

func (h *harness) attention(c attentionCase) {
	h.t.Helper()
	n, cache := c.batch*c.seq*c.heads*c.dim, c.batch*c.kvHeads*c.capacity*c.dim
	q, pq := h.floats(c.t, n, 1)
	k, pk := h.floats(c.kv, cache, 1)
	v, pv := h.floats(c.kv, cache, 1)
	scale := float32(1 / math.Sqrt(float64(c.dim)))
	a := kernel.AttentionArgs{Out: h.output(c.t, n), Q: pq, K: pk, V: pv, Batch: c.batch, Seq: c.seq, Heads: c.heads, KVHeads: c.kvHeads, Dim: c.dim, ValueDim: c.dim,
		QBatchStride: c.seq * c.heads * c.dim, QHeadStride: c.seq * c.dim, QRowStride: c.dim,
		KVCapacity: c.capacity, KVLen: c.kvLen, Offset: c.offset, Window: c.window, Scale: scale, Causal: c.causal, Type: c.t, KVType: c.kv}
	if c.interleaved { // [batch][seq][heads][dim], as a projection leaves them
		a.QHeadStride, a.QRowStride = c.dim, c.heads*c.dim
	}
	positions, sequences := make([]int32, c.batch*c.seq), make([]int32, c.batch)
	for i := range positions {
		positions[i] = int32(h.rng.IntN(max(c.kvLen, 1)))
	}
	for b := range sequences {
		sequences[b] = int32(c.batch - 1 - b)
	}
	if c.positions {
		a.Positions = upload(h, positions)
	}
	if c.sequences {
		a.Sequences = upload(h, sequences)
	}
	want := make([]float64, n)
	for b := range c.batch {
		for head := range c.heads {
			for i := range c.seq {
				first, end := 0, c.kvLen
				if c.causal {
					end = c.offset + i + 1
					if c.positions {
						end = int(positions[b*c.seq+i]) + 1
					}
					if c.window > 0 {
						first = max(0, end-c.window)
					}
				}
				sequence := b
				if c.sequences {
					sequence = int(sequences[b])
				}
				at := b*a.QBatchStride + head*a.QHeadStride + i*a.QRowStride
				base := (sequence*c.kvHeads + head/(c.heads/c.kvHeads)) * c.capacity * c.dim
				lo, hi := base+first*c.dim, base+end*c.dim
				copy(want[at:at+c.dim], attendOne(q[at:at+c.dim], k[lo:hi], v[lo:hi], c.dim, float64(scale)))
			}
		}
	}
	h.ok(h.stream.Attention(&a))
	// Beyond rounding of the output, float32 (in 16-bit types: 16-bit probabilities) sums over the keys.
	h.near(sizeName("attention ", c), h.read(a.Out, c.t, n), want, 2*epsilon(c.t)+1e-5, 3*epsilon(c.t)+2e-6)
}
