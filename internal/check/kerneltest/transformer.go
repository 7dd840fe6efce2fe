package kerneltest

import (
	"math"
	"unsafe"

	"github.com/vibrant-ml/vibrant/internal/backend/kernel"
)

func testRoPE(h *harness) {
	const tableRows = 50
	for _, t := range floatTypes {
		for _, mode := range []kernel.RoPEMode{kernel.RoPEInterleaved, kernel.RoPENeoX} {
			for _, s := range []struct{ batch, heads, seq, dim, half int }{
				{1, 1, 1, 2, 1}, {1, 14, 1, 64, 32}, {2, 3, 5, 64, 32}, {2, 2, 7, 80, 32}, {1, 2, 3, 7, 3}, {1, 1, 4, 6, 0}, {3, 1, 2, 128, 64}, {2, 0, 3, 4, 2},
			} {
				n := s.batch * s.heads * s.seq * s.dim
				x, px := h.floats(t, n, 1)
				cos, sin := make([]float64, tableRows*s.half), make([]float64, tableRows*s.half)
				for i := range cos {
					angle := h.rng.Float64() * 7
					cos[i], sin[i] = float64(float32(math.Cos(angle))), float64(float32(math.Sin(angle)))
				}
				pc, ps := upload(h, encode(cos, kernel.F32)), upload(h, encode(sin, kernel.F32))
				for _, placed := range []string{"own", "shared", "none"} {
					positions := make([]int32, s.batch*s.seq)
					for i := range positions {
						positions[i] = int32(h.rng.IntN(tableRows))
					}
					a := kernel.RoPEArgs{In: px, Cos: pc, Sin: ps, Positions: upload(h, positions), PositionStride: s.seq,
						Batch: s.batch, Heads: s.heads, Seq: s.seq, Dim: s.dim, Half: s.half, TableRows: tableRows, Type: t, Mode: mode}
					if placed != "own" {
						a.PositionStride = 0
					}
					if placed == "none" {
						a.Positions = nil
					}
					want := append([]float64{}, x...)
					for r := range s.batch * s.heads * s.seq {
						b, i := r/(s.heads*s.seq), r%s.seq
						p := i
						if a.Positions != nil {
							p = int(positions[b*a.PositionStride+i])
						}
						row, in := want[r*s.dim:(r+1)*s.dim], x[r*s.dim:(r+1)*s.dim]
						for j := range s.half {
							u, v := 2*j, 2*j+1
							if mode == kernel.RoPENeoX {
								u, v = j, j+s.half
							}
							c, sn := cos[p*s.half+j], sin[p*s.half+j]
							row[u], row[v] = in[u]*c-in[v]*sn, in[u]*sn+in[v]*c
						}
					}
					name := sizeName("rope ", t, " mode ", mode, " ", s, " positions ", placed)
					a.Out = h.output(t, n)
					h.ok(h.stream.RoPE(&a))
					h.near(name, h.read(a.Out, t, n), want, 1.001*epsilon(t), 1e-6)
					_, inPlace := h.floats(t, n, 0)
					h.ok(h.stream.CopyOnDevice(inPlace, px, t.Bytes(n)))
					a.In, a.Out = inPlace, inPlace
					h.ok(h.stream.RoPE(&a))
					h.near(name+" in place", decode(download[byte](h, inPlace, int(t.Bytes(n))), t), want, 1.001*epsilon(t), 1e-6)
				}
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
}

func testKVWrite(h *harness) {
	for _, t := range []kernel.DType{kernel.F32, kernel.F16} {
		for _, s := range []struct{ batch, seq, kvHeads, dim, capacity int }{{1, 1, 1, 1, 1}, {1, 1, 2, 64, 9}, {2, 3, 3, 33, 11}, {3, 5, 1, 128, 5}, {0, 1, 1, 1, 1}} {
			for _, placed := range []bool{false, true} {
				sequences := make([]int32, s.batch) // reversed: each batch entry has its own
				for b := range sequences {
					sequences[b] = int32(s.batch - 1 - b)
				}
				positions := make([]int32, s.batch*s.seq)
				for b := range s.batch {
					for i, p := range h.rng.Perm(s.capacity)[:s.seq] {
						positions[b*s.seq+i] = int32(p)
					}
				}
				cache := s.batch * s.kvHeads * s.capacity * s.dim
				n := s.batch * s.seq * s.kvHeads * s.dim
				k, pk := h.f32(n)
				v, pv := h.f32(n)
				before, _ := h.floats(t, cache, 1)
				a := kernel.KVWriteArgs{K: h.output(t, cache), V: h.output(t, cache), KIn: pk, VIn: pv, Positions: upload(h, positions),
					Batch: s.batch, Seq: s.seq, KVHeads: s.kvHeads, Dim: s.dim, ValueDim: s.dim, Capacity: s.capacity, Type: t}
				if placed {
					a.Sequences = upload(h, sequences)
				}
				wantK, wantV := append([]float64{}, before...), append([]float64{}, before...)
				for _, p := range []kernel.Ptr{a.K, a.V} {
					if raw := encode(before, t); len(raw) > 0 {
						h.ok(h.stream.CopyToDevice(p, unsafe.Pointer(&raw[0]), int64(len(raw))))
					}
				}
				for r := range s.batch * s.seq {
					b := r / s.seq
					if placed {
						b = int(sequences[b])
					}
					for head := range s.kvHeads {
						to := ((b*s.kvHeads+head)*s.capacity + int(positions[r])) * s.dim
						from := (r*s.kvHeads + head) * s.dim
						copy(wantK[to:to+s.dim], decode(encode(k[from:from+s.dim], t), t))
						copy(wantV[to:to+s.dim], decode(encode(v[from:from+s.dim], t), t))
					}
				}
				h.ok(h.stream.KVWrite(&a))
				name := sizeName("kv_write ", t, " ", s, " sequences ", placed)
				h.near(name+" k", h.read(a.K, t, cache), wantK, 0, 0)
				h.near(name+" v", h.read(a.V, t, cache), wantV, 0, 0)
			}
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

type attentionCase struct {
	batch, seq, heads, kvHeads, dim, capacity, kvLen, offset, window int
	causal, positions, sequences, interleaved                        bool
	t, kv                                                            kernel.DType
}

func testAttention(h *harness) {
	const f32, f16, bf16 = kernel.F32, kernel.F16, kernel.BF16
	cases := []attentionCase{
		{batch: 1, seq: 1, heads: 1, kvHeads: 1, dim: 1, capacity: 1, kvLen: 1, causal: true},
		{batch: 1, seq: 1, heads: 14, kvHeads: 2, dim: 64, capacity: 300, kvLen: 255, offset: 254, causal: true},
		{batch: 1, seq: 1, heads: 14, kvHeads: 2, dim: 64, capacity: 300, kvLen: 300, causal: true, positions: true},
		{batch: 1, seq: 1, heads: 4, kvHeads: 4, dim: 128, capacity: 2100, kvLen: 2049, offset: 2048, causal: true},
		{batch: 1, seq: 17, heads: 4, kvHeads: 2, dim: 64, capacity: 64, kvLen: 17, causal: true, interleaved: true},
		{batch: 1, seq: 33, heads: 3, kvHeads: 1, dim: 80, capacity: 200, kvLen: 133, offset: 100, causal: true, interleaved: true},
		{batch: 2, seq: 5, heads: 4, kvHeads: 2, dim: 33, capacity: 40, kvLen: 35, causal: true, positions: true, sequences: true},
		{batch: 3, seq: 1, heads: 8, kvHeads: 2, dim: 64, capacity: 64, kvLen: 50, causal: true, positions: true, sequences: true, interleaved: true},
		{batch: 1, seq: 20, heads: 2, kvHeads: 1, dim: 16, capacity: 64, kvLen: 60, offset: 40, window: 7, causal: true},
		{batch: 1, seq: 3, heads: 2, kvHeads: 2, dim: 256, capacity: 10, kvLen: 9, window: 100, causal: true, offset: 6},
		{batch: 2, seq: 7, heads: 2, kvHeads: 1, dim: 24, capacity: 31, kvLen: 29},
		{batch: 1, seq: 130, heads: 2, kvHeads: 2, dim: 64, capacity: 130, kvLen: 130, causal: true, interleaved: true},
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
	// Scores far apart, and equal ones.
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
