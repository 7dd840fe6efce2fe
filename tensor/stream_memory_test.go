package tensor_test

import (
	"testing"

	"github.com/vibrant-ml/vibrant/gpu"
	"github.com/vibrant-ml/vibrant/internal/backend/kernel"
	"github.com/vibrant-ml/vibrant/tensor"
)

// TestScratchOfAStreamComesFromThePool has a stream of CUDA's kernels sort, which takes scratch memory: with and without cgo the pool knows
// of it, and gets it back when the stream is closed.
func TestScratchOfAStreamComesFromThePool(t *testing.T) {
	eachBackend(t, func(t *testing.T, b kernel.Backend, d *gpu.Device) {
		if b.Name() != "cuda" {
			t.Skip("its streams take no memory of a device when they are made")
		}
		x := on(t, d, tensor.FromSlice(make([]float32, 20000)))
		before := d.Pool().Stats().InUse
		s, err := d.NewStream()
		if err != nil {
			t.Fatal(err)
		}
		own := d.Pool().Stats().InUse - before
		if own != d.StreamBytes() || own == 0 {
			t.Errorf("a new stream takes %d bytes of the pool, want %d and more than none", own, d.StreamBytes())
		}
		y, err := x.ToStream(s)
		if err != nil {
			t.Fatal(err)
		}
		z := tensor.Sort(y, 0, false)
		if err := s.Synchronize(); err != nil {
			t.Fatal(err)
		}
		tensors := 2 * tensor.F32.Bytes(x.Len())
		if taken := d.Pool().Stats().InUse - before - own; taken < tensors+tensor.F32.Bytes(x.Len()) {
			t.Errorf("a sort of %d bytes takes %d of the pool, operands and all", tensor.F32.Bytes(x.Len()), taken)
		}
		y.Free()
		z.Free()
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		if now := d.Pool().Stats().InUse; now != before {
			t.Errorf("%d bytes stay after the stream", now-before)
		}
	})
}
