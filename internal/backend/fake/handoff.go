package fake

import (
	"math"
	"unsafe"

	"github.com/vibrant-ml/vibrant/internal/backend/kernel"
)

// handing is a stream whose fused operations hand over wherever they are asked to. What they leave in scratch memory is
// no number that a product could use, and says which rows and norm it was made of: a test sees rows that are taken for
// others.
type handing struct{ *stream }

func (s handing) FeedForward(a *kernel.FeedForwardArgs) error {
	err := s.stream.FeedForward(a)
	a.NextPrepared = err == nil && a.NextNorm != nil
	return err
}

func (s handing) AttentionLinearAdd(sum, a kernel.Ptr, attention *kernel.AttentionArgs, w kernel.Weight,
	bias kernel.Ptr, update *kernel.UpdateArgs, product, nextNorm, normed kernel.Ptr) (nextPrepared bool, err error) {
	_, err = s.stream.AttentionLinearAdd(sum, a, attention, w, bias, update, product, nextNorm, normed)
	return err == nil && nextNorm != nil, err
}

func (s handing) FeedForwardPart(a *kernel.FeedForwardArgs) error {
	o := s.op("FeedForwardPart")
	p := o.placeFeedForwardArgs(*a)
	return o.launch(func() error {
		preparing{gpu: s.GPU}.checkPrepared("FeedForwardPart", p.Normed, p.X, p.Norm, p.N, p.Gate.Cols)
		if err := s.kernels.NormSwiGLU(p.Gated, p.X, p.Norm, p.Eps, p.Gate, p.Up, p.Normed, p.Product, p.N); err != nil {
			return err
		}
		return s.kernels.Linear(p.Sum, p.Gated, p.Down, nil, p.N)
	})
}

// preparing computes on host addresses, as the stream it wraps does, and writes and checks what is handed over.
type preparing struct {
	kernel.Stream
	gpu *GPU
}

func (s preparing) FeedForward(a *kernel.FeedForwardArgs) error {
	if a.Prepared {
		s.checkPrepared("FeedForward", a.Normed, a.X, a.Norm, a.N, a.Gate.Cols)
	}
	err := s.Stream.FeedForward(a)
	if err == nil && a.NextNorm != nil {
		prepare(a.Normed, a.Sum, a.NextNorm, a.N, a.Gate.Cols)
	}
	return err
}

func (s preparing) AttentionLinearAdd(sum, a kernel.Ptr, attention *kernel.AttentionArgs, w kernel.Weight,
	bias kernel.Ptr, update *kernel.UpdateArgs, product, nextNorm, normed kernel.Ptr) (nextPrepared bool, err error) {
	_, err = s.Stream.AttentionLinearAdd(sum, a, attention, w, bias, update, product, nextNorm, normed)
	if err == nil && nextNorm != nil {
		prepare(normed, sum, nextNorm, attention.Batch*attention.Seq, w.Rows)
	}
	return false, err
}

func (s preparing) NormQKV(a *kernel.NormQKVArgs) error {
	if a.Prepared {
		s.checkPrepared("NormQKV", a.Normed, a.X, a.Norm, a.Batch*a.Seq, a.WQ.Cols)
	}
	return s.Stream.NormQKV(a)
}

// mark is a NaN that tells a row's element and a norm's from others.
func mark(x, norm float32) uint32 {
	return 0x7fc00000 | (math.Float32bits(x)^math.Float32bits(norm)*2654435761)>>10
}

func prepare(normed, x, norm kernel.Ptr, rows, cols int) {
	to, from, weight := words(normed, rows*cols), floats(x, rows*cols), floats(norm, cols)
	for i := range to {
		to[i] = mark(from[i], weight[i%cols])
	}
}

func (s preparing) checkPrepared(op string, normed, x, norm kernel.Ptr, rows, cols int) {
	got, from, weight := words(normed, rows*cols), floats(x, rows*cols), floats(norm, cols)
	for i := range got {
		if got[i] != mark(from[i], weight[i%cols]) {
			s.gpu.mu.Lock()
			defer s.gpu.mu.Unlock()
			s.gpu.blame("%s: row %d was prepared of another row or for another norm", op, i/cols)
			return
		}
	}
}

func floats(p kernel.Ptr, n int) []float32 { return unsafe.Slice((*float32)(p), n) }
func words(p kernel.Ptr, n int) []uint32   { return unsafe.Slice((*uint32)(p), n) }
