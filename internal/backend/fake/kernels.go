package fake

import (
	"fmt"
	"slices"
	"unsafe"

	"github.com/vibrant-ml/vibrant/internal/backend/kernel"
)

// op gathers the operands of one kernel: their host addresses, and the first that does not lie in live memory.
type op struct {
	stream *stream
	name   string
	blocks []*block
	err    error
}

func (s *stream) op(name string) *op {
	o := &op{stream: s, name: name}
	if slices.Contains(s.config.Lacks, name) {
		o.err = fmt.Errorf("fake: %s: %w", name, kernel.ErrUnsupported)
	}
	return o
}

// at returns the host address of an operand of that many bytes; nothing is checked for an empty one.
func (o *op) at(p kernel.Ptr, bytes int64) kernel.Ptr {
	if o.err != nil || bytes <= 0 {
		return nil
	}
	if p == nil {
		o.err = fmt.Errorf("fake: %s: null pointer: %w", o.name, kernel.ErrInvalid)
		return nil
	}
	g := o.stream.GPU
	g.mu.Lock()
	defer g.mu.Unlock()
	b, err := g.find(o.name, p, bytes)
	if err != nil {
		o.err = err
		return nil
	}
	o.blocks = append(o.blocks, b)
	return b.at(p)
}

// optional is at for an operand that may be left out.
func (o *op) optional(p kernel.Ptr, bytes int64) kernel.Ptr {
	if p == nil {
		return nil
	}
	return o.at(p, bytes)
}

func (o *op) enqueue(c Call, run func() error) error {
	if o.err != nil {
		return o.err
	}
	return o.stream.enqueue(c, work{op: o.name, blocks: o.blocks, run: run})
}

func (o *op) launch(run func() error) error { return o.enqueue(Launch, run) }

// size returns the bytes of n elements.
func size(t kernel.DType, n ...int) int64 {
	all := 1
	for _, d := range n {
		all *= d
	}
	return t.Bytes(all)
}

const (
	f32 = kernel.F32
	i32 = kernel.I32
)

func (s *stream) Add(out, a, b kernel.Ptr, t kernel.DType, n int) error {
	o := s.op("Add")
	out, a, b = o.at(out, size(t, n)), o.at(a, size(t, n)), o.at(b, size(t, n))
	return o.launch(func() error { return s.kernels.Add(out, a, b, t, n) })
}

func (s *stream) Mul(out, a, b kernel.Ptr, t kernel.DType, n int) error {
	o := s.op("Mul")
	out, a, b = o.at(out, size(t, n)), o.at(a, size(t, n)), o.at(b, size(t, n))
	return o.launch(func() error { return s.kernels.Mul(out, a, b, t, n) })
}

func (s *stream) MulScalar(out, a kernel.Ptr, scalar float32, t kernel.DType, n int) error {
	o := s.op("MulScalar")
	out, a = o.at(out, size(t, n)), o.at(a, size(t, n))
	return o.launch(func() error { return s.kernels.MulScalar(out, a, scalar, t, n) })
}

func (s *stream) SiLU(out, a kernel.Ptr, t kernel.DType, n int) error {
	o := s.op("SiLU")
	out, a = o.at(out, size(t, n)), o.at(a, size(t, n))
	return o.launch(func() error { return s.kernels.SiLU(out, a, t, n) })
}

func (s *stream) GELU(out, a kernel.Ptr, t kernel.DType, n int) error {
	o := s.op("GELU")
	out, a = o.at(out, size(t, n)), o.at(a, size(t, n))
	return o.launch(func() error { return s.kernels.GELU(out, a, t, n) })
}

func (s *stream) GELUTanh(out, a kernel.Ptr, t kernel.DType, n int) error {
	o := s.op("GELUTanh")
	out, a = o.at(out, size(t, n)), o.at(a, size(t, n))
	return o.launch(func() error { return s.kernels.GELUTanh(out, a, t, n) })
}

func (s *stream) SwiGLU(out, gate, up kernel.Ptr, t kernel.DType, n int) error {
	o := s.op("SwiGLU")
	out, gate, up = o.at(out, size(t, n)), o.at(gate, size(t, n)), o.at(up, size(t, n))
	return o.launch(func() error { return s.kernels.SwiGLU(out, gate, up, t, n) })
}

func (s *stream) GLU(out, gate, up kernel.Ptr, act kernel.Activation, alpha, limit float32, t kernel.DType, n int) error {
	o := s.op("GLU")
	out, gate, up = o.at(out, size(t, n)), o.at(gate, size(t, n)), o.at(up, size(t, n))
	return o.launch(func() error { return s.kernels.GLU(out, gate, up, act, alpha, limit, t, n) })
}

func (s *stream) Sigmoid(out, a kernel.Ptr, t kernel.DType, n int) error {
	o := s.op("Sigmoid")
	out, a = o.at(out, size(t, n)), o.at(a, size(t, n))
	return o.launch(func() error { return s.kernels.Sigmoid(out, a, t, n) })
}

func (s *stream) SoftCap(out, a kernel.Ptr, limit float32, t kernel.DType, n int) error {
	o := s.op("SoftCap")
	out, a = o.at(out, size(t, n)), o.at(a, size(t, n))
	return o.launch(func() error { return s.kernels.SoftCap(out, a, limit, t, n) })
}

func (s *stream) Copy(out, in kernel.Ptr, t kernel.DType, n int) error {
	o := s.op("Copy")
	out, in = o.at(out, size(t, n)), o.at(in, size(t, n))
	return o.launch(func() error { return s.kernels.Copy(out, in, t, n) })
}

func (s *stream) Convert(out kernel.Ptr, outType kernel.DType, in kernel.Ptr, inType kernel.DType, n int) error {
	o := s.op("Convert")
	out, in = o.at(out, size(outType, n)), o.at(in, size(inType, n))
	return o.launch(func() error { return s.kernels.Convert(out, outType, in, inType, n) })
}

func (s *stream) IncrementI32(x kernel.Ptr, n int) error {
	o := s.op("IncrementI32")
	x = o.at(x, size(i32, n))
	return o.launch(func() error { return s.kernels.IncrementI32(x, n) })
}

func (s *stream) Softmax(out, in kernel.Ptr, t kernel.DType, rows, cols int) error {
	o := s.op("Softmax")
	out, in = o.at(out, size(t, rows, cols)), o.at(in, size(t, rows, cols))
	return o.launch(func() error { return s.kernels.Softmax(out, in, t, rows, cols) })
}

func (s *stream) RMSNorm(out, in, weight kernel.Ptr, t kernel.DType, rows, cols int, eps float32) error {
	o := s.op("RMSNorm")
	out, in = o.at(out, size(t, rows, cols)), o.at(in, size(t, rows, cols))
	weight = o.optional(weight, size(f32, cols))
	return o.launch(func() error { return s.kernels.RMSNorm(out, in, weight, t, rows, cols, eps) })
}

func (s *stream) LayerNorm(out, in, weight, bias kernel.Ptr, t kernel.DType, rows, cols int, eps float32) error {
	o := s.op("LayerNorm")
	out, in = o.at(out, size(t, rows, cols)), o.at(in, size(t, rows, cols))
	weight, bias = o.optional(weight, size(f32, cols)), o.optional(bias, size(f32, cols))
	return o.launch(func() error { return s.kernels.LayerNorm(out, in, weight, bias, t, rows, cols, eps) })
}

func (s *stream) AddRMSNorm(sum, out, a, b, weight kernel.Ptr, t kernel.DType, rows, cols int, eps float32) error {
	o := s.op("AddRMSNorm")
	n := size(t, rows, cols)
	sum, out, a, b = o.at(sum, n), o.at(out, n), o.at(a, n), o.at(b, n)
	weight = o.optional(weight, size(f32, cols))
	return o.launch(func() error { return s.kernels.AddRMSNorm(sum, out, a, b, weight, t, rows, cols, eps) })
}

func (s *stream) MulRows(out, a, factors kernel.Ptr, t kernel.DType, rows, cols int) error {
	o, n := s.op("MulRows"), size(t, rows, cols)
	out, a, factors = o.at(out, n), o.at(a, n), o.at(factors, size(f32, rows))
	return o.launch(func() error { return s.kernels.MulRows(out, a, factors, t, rows, cols) })
}

func (s *stream) CopyColumns(out kernel.Ptr, outCols, outFirst int, in kernel.Ptr, inCols, inFirst int, t kernel.DType, rows, cols int) error {
	o := s.op("CopyColumns")
	out, in = o.at(out, size(t, rows, outCols)), o.at(in, size(t, rows, inCols))
	return o.launch(func() error { return s.kernels.CopyColumns(out, outCols, outFirst, in, inCols, inFirst, t, rows, cols) })
}

func (s *stream) Argmax(out, in kernel.Ptr, rows, cols int) error {
	o := s.op("Argmax")
	out, in = o.at(out, size(i32, rows)), o.at(in, size(f32, rows, cols))
	return o.launch(func() error { return s.kernels.Argmax(out, in, rows, cols) })
}

func (s *stream) TopK(values, ids, in kernel.Ptr, rows, cols, k int) error {
	o := s.op("TopK")
	values, ids, in = o.at(values, size(f32, rows, k)), o.at(ids, size(i32, rows, k)), o.at(in, size(f32, rows, cols))
	return o.launch(func() error { return s.kernels.TopK(values, ids, in, rows, cols, k) })
}

func (s *stream) MatMul(args *kernel.MatMulArgs) error {
	o, a := s.op("MatMul"), *args
	reach := func(batchStride, rows, cols, stride int, transposed bool) int64 {
		if transposed {
			rows, cols = cols, rows
		}
		if a.Batch <= 0 || rows <= 0 || cols <= 0 {
			return 0
		}
		return size(a.Type, (a.Batch-1)*batchStride+(rows-1)*stride+cols)
	}
	a.C = o.at(a.C, reach(a.CBatchStride, a.M, a.N, a.CStride, false))
	a.A = o.at(a.A, reach(a.ABatchStride, a.M, a.K, a.AStride, a.ATransposed))
	a.B = o.at(a.B, reach(a.BBatchStride, a.K, a.N, a.BStride, a.BTransposed))
	return o.launch(func() error { return s.kernels.MatMul(&a) })
}

func (s *stream) MatMulSingleRow(c, a, b kernel.Ptr, t kernel.DType, k, n int) error {
	o := s.op("MatMulSingleRow")
	c, a, b = o.at(c, size(t, n)), o.at(a, size(t, k)), o.at(b, size(t, k, n))
	return o.launch(func() error { return s.kernels.MatMulSingleRow(c, a, b, t, k, n) })
}

func (s *stream) WeightPack(out kernel.Ptr, w kernel.Weight) error {
	o := s.op("WeightPack")
	n := size(w.Type, w.Rows, w.Cols)
	out = o.at(out, packedHeader+n)
	w.Data = o.at(w.Data, n)
	return o.launch(func() error {
		return s.kernels.CopyOnDevice(unsafe.Add(out, packedHeader), w.Data, n)
	})
}

// weight makes a weight of this device one of internal/backend/purego, which knows only the stored form.
func (o *op) weight(w kernel.Weight) kernel.Weight {
	n := size(w.Type, w.Rows, w.Cols)
	if w.Packed {
		if w.Data = o.at(w.Data, packedHeader+n); w.Data != nil {
			w.Data = unsafe.Add(w.Data, packedHeader)
		}
		w.Packed = false
		return w
	}
	w.Data = o.at(w.Data, n)
	return w
}

func (s *stream) Linear(y, x kernel.Ptr, w kernel.Weight, bias kernel.Ptr, n int) error {
	o := s.op("Linear")
	y, x = o.at(y, size(f32, n, w.Rows)), o.at(x, size(f32, n, w.Cols))
	w, bias = o.weight(w), o.optional(bias, size(f32, w.Rows))
	return o.launch(func() error { return s.kernels.Linear(y, x, w, bias, n) })
}

func (s *stream) Embedding(out kernel.Ptr, table kernel.Weight, ids kernel.Ptr, n int) error {
	o := s.op("Embedding")
	out, table, ids = o.at(out, size(f32, n, table.Cols)), o.weight(table), o.at(ids, size(i32, n))
	return o.launch(func() error { return s.kernels.Embedding(out, table, ids, n) })
}

func (s *stream) RoPE(args *kernel.RoPEArgs) error {
	o, a := s.op("RoPE"), *args
	n := size(a.Type, a.Batch, a.Heads, a.Seq, a.Dim)
	a.Out, a.In = o.at(a.Out, n), o.at(a.In, n)
	a.Cos, a.Sin = o.at(a.Cos, size(f32, a.TableRows, a.Half)), o.at(a.Sin, size(f32, a.TableRows, a.Half))
	a.Positions = o.optional(a.Positions, size(i32, (a.Batch-1)*a.PositionStride+a.Seq))
	return o.launch(func() error { return s.kernels.RoPE(&a) })
}

func (s *stream) KVWrite(args *kernel.KVWriteArgs) error {
	o, a := s.op("KVWrite"), *args
	// How many sequences the cache holds is not known here; batch entries are told apart by the purego kernel.
	cache, in := size(a.Type, a.KVHeads, a.Capacity, a.Dim), size(f32, a.Batch, a.Seq, a.KVHeads, a.Dim)
	if a.Sequences == nil {
		cache *= int64(a.Batch)
	}
	a.K, a.V, a.KIn, a.VIn = o.at(a.K, cache), o.at(a.V, cache), o.at(a.KIn, in), o.at(a.VIn, in)
	a.Positions, a.Sequences = o.at(a.Positions, size(i32, a.Batch, a.Seq)), o.optional(a.Sequences, size(i32, a.Batch))
	return o.launch(func() error { return s.kernels.KVWrite(&a) })
}

func (s *stream) Attention(args *kernel.AttentionArgs) error {
	o := s.op("Attention")
	a := o.attention(*args)
	return o.launch(func() error { return s.kernels.Attention(&a) })
}

func (o *op) attention(a kernel.AttentionArgs) kernel.AttentionArgs {
	q := int64(0)
	if a.Batch > 0 && a.Seq > 0 && a.Heads > 0 && a.Dim > 0 {
		q = size(a.Type, (a.Batch-1)*a.QBatchStride+(a.Heads-1)*a.QHeadStride+(a.Seq-1)*a.QRowStride+a.Dim)
	}
	cache := size(a.KVType, a.KVHeads, a.KVCapacity, a.Dim)
	if a.Sequences == nil {
		cache *= int64(a.Batch)
	}
	a.Out, a.Q, a.K, a.V = o.at(a.Out, q), o.at(a.Q, q), o.at(a.K, cache), o.at(a.V, cache)
	a.Positions, a.Sequences = o.optional(a.Positions, size(i32, a.Batch, a.Seq)), o.optional(a.Sequences, size(i32, a.Batch))
	return a
}

func (s *stream) NormLinear(y, x, norm kernel.Ptr, eps float32, w kernel.Weight, bias, normed kernel.Ptr, n int) error {
	o, in := s.op("NormLinear"), size(f32, n, w.Cols)
	y, x, normed = o.at(y, size(f32, n, w.Rows)), o.at(x, in), o.at(normed, in)
	w, norm, bias = o.weight(w), o.optional(norm, size(f32, w.Cols)), o.optional(bias, size(f32, w.Rows))
	return o.launch(func() error { return s.kernels.NormLinear(y, x, norm, eps, w, bias, normed, n) })
}

func (s *stream) NormSwiGLU(out, x, norm kernel.Ptr, eps float32, gate, up kernel.Weight, normed, product kernel.Ptr, n int) error {
	o, in, rows := s.op("NormSwiGLU"), size(f32, n, gate.Cols), size(f32, n, gate.Rows)
	out, product, x, normed = o.at(out, rows), o.at(product, rows), o.at(x, in), o.at(normed, in)
	gate, up, norm = o.weight(gate), o.weight(up), o.optional(norm, size(f32, gate.Cols))
	return o.launch(func() error { return s.kernels.NormSwiGLU(out, x, norm, eps, gate, up, normed, product, n) })
}

func (s *stream) LinearAdd(sum, a, x kernel.Ptr, w kernel.Weight, bias, product kernel.Ptr, n int) error {
	o, rows := s.op("LinearAdd"), size(f32, n, w.Rows)
	sum, a, product, x = o.at(sum, rows), o.at(a, rows), o.at(product, rows), o.at(x, size(f32, n, w.Cols))
	w, bias = o.weight(w), o.optional(bias, size(f32, w.Rows))
	return o.launch(func() error { return s.kernels.LinearAdd(sum, a, x, w, bias, product, n) })
}

func (s *stream) FeedForward(args *kernel.FeedForwardArgs) error {
	o, a := s.op("FeedForward"), *args
	rows, inner := size(f32, a.N, a.Gate.Cols), size(f32, a.N, a.Gate.Rows)
	a.Sum, a.X, a.Normed, a.Gated, a.Product = o.at(a.Sum, rows), o.at(a.X, rows), o.at(a.Normed, rows), o.at(a.Gated, inner), o.at(a.Product, inner)
	a.Gate, a.Up, a.Down, a.Norm = o.weight(a.Gate), o.weight(a.Up), o.weight(a.Down), o.optional(a.Norm, size(f32, a.Gate.Cols))
	a.NextNorm = o.optional(a.NextNorm, size(f32, a.Gate.Cols))
	return o.launch(func() error { return s.kernels.FeedForward(&a) })
}

func (s *stream) AttentionLinearAdd(sum, a kernel.Ptr, attention *kernel.AttentionArgs, w kernel.Weight, bias, product, nextNorm, normed kernel.Ptr) (nextPrepared bool, err error) {
	o, rows := s.op("AttentionLinearAdd"), size(f32, attention.Batch, attention.Seq, w.Rows)
	args := o.attention(*attention)
	sum, a, product = o.at(sum, rows), o.at(a, rows), o.at(product, rows)
	w, bias = o.weight(w), o.optional(bias, size(f32, w.Rows))
	nextNorm, normed = o.optional(nextNorm, size(f32, w.Rows)), o.optional(normed, rows)
	err = o.launch(func() error {
		_, err := s.kernels.AttentionLinearAdd(sum, a, &args, w, bias, product, nextNorm, normed)
		return err
	})
	return false, err
}

func (s *stream) NormQKV(args *kernel.NormQKVArgs) error {
	o, a := s.op("NormQKV"), *args
	n, in := a.Batch*a.Seq, size(f32, a.Batch, a.Seq, a.WQ.Cols)
	cache, rows := size(a.KVType, a.KVHeads, a.Capacity, a.Dim), size(f32, n, a.KVHeads, a.Dim)
	if a.Sequences == nil { // as in KVWrite
		cache *= int64(a.Batch)
	}
	a.Q, a.K, a.V, a.X, a.Normed = o.at(a.Q, size(f32, n, a.Heads, a.Dim)), o.at(a.K, cache), o.at(a.V, cache), o.at(a.X, in), o.at(a.Normed, in)
	a.KNew, a.VNew, a.Norm = o.at(a.KNew, rows), o.at(a.VNew, rows), o.optional(a.Norm, size(f32, a.WQ.Cols))
	a.BQ, a.BK, a.BV = o.optional(a.BQ, size(f32, a.WQ.Rows)), o.optional(a.BK, size(f32, a.WK.Rows)), o.optional(a.BV, size(f32, a.WV.Rows))
	a.WQ, a.WK, a.WV = o.weight(a.WQ), o.weight(a.WK), o.weight(a.WV)
	a.QNorm, a.KNorm = o.optional(a.QNorm, size(f32, a.Dim)), o.optional(a.KNorm, size(f32, a.Dim))
	a.Cos, a.Sin = o.at(a.Cos, size(f32, a.TableRows, a.Half)), o.at(a.Sin, size(f32, a.TableRows, a.Half))
	a.Positions, a.Sequences = o.at(a.Positions, size(i32, n)), o.optional(a.Sequences, size(i32, a.Batch))
	return o.launch(func() error { return s.kernels.NormQKV(&a) })
}
