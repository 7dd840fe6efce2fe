package gpu_test

import (
	"errors"
	"testing"

	"github.com/vibrant-ml/vibrant/gpu"
	"github.com/vibrant-ml/vibrant/internal/backend/fake"
	"github.com/vibrant-ml/vibrant/internal/backend/kernel"
)

// attend enqueues an attention of so many rows, whose kernel needs scratch memory.
func attend(s *gpu.Stream, b *gpu.Buffer, rows int) error {
	p := b.Ptr()
	return s.Do(func(k kernel.Stream) error {
		return k.Attention(&kernel.AttentionArgs{
			Out: p, Q: p, K: p, V: p, Type: kernel.F32, KVType: kernel.F32, Batch: 1, Seq: rows, Heads: 1, KVHeads: 1, Dim: 8, ValueDim: 8,
			KVLen: 1, KVCapacity: 1, QBatchStride: 8 * rows, QHeadStride: 8 * rows, QRowStride: 8, Scale: 1,
		})
	})
}

func scratchDevice(t *testing.T, options ...gpu.Option) (*fake.GPU, *gpu.Device) {
	t.Helper()
	b := fake.New(fake.Config{Scratch: true})
	d, err := gpu.OpenBackend(b, 0, options...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return b.GPU(0), d
}

func TestMemoryOfStreamsComesFromThePool(t *testing.T) {
	hw, d := scratchDevice(t)
	if n := d.StreamBytes(); n != hw.Used() || n != d.Pool().Stats().InUse || n == 0 {
		t.Fatalf("a stream takes %d bytes, the device has given out %d, the pool %d", n, hw.Used(), d.Pool().Stats().InUse)
	}
	s, err := d.NewStream()
	if err != nil {
		t.Fatal(err)
	}
	b, err := s.Alloc(1 << 20)
	if err != nil {
		t.Fatal(err)
	}
	for _, rows := range []int{1, 100, 10, 1000} {
		if err := attend(s, b, rows); err != nil {
			t.Fatal(err)
		}
	}
	b.Free()
	want := 2*d.StreamBytes() + d.ScratchBytes(kernel.Pass{Rows: 1000, Heads: 1, HeadDim: 8})
	if now := d.Pool().Stats(); now.InUse != want || hw.Used() != now.InUse+now.Cached {
		t.Errorf("%d bytes in use, want %d; the device has given out %d", now.InUse, want, hw.Used())
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if n := d.Pool().Stats().InUse; n != d.StreamBytes() {
		t.Errorf("%d bytes stay after the stream", n)
	}
	for _, err := range hw.Misuse() {
		t.Error(err)
	}
}

func TestStreamThatTheCapLeavesNoMemoryForIsAnError(t *testing.T) {
	_, d := scratchDevice(t, gpu.WithPoolLimit(10<<10))
	streams := 0
	for {
		s, err := d.NewStream()
		if err == nil {
			defer s.Close()
			streams++
			continue
		}
		if !errors.Is(err, gpu.ErrOutOfMemory) || streams != 1 {
			t.Errorf("after %d streams of 4 KiB in 10: %v", streams, err)
		}
		break
	}
	b, err := d.Stream().Alloc(2 << 10)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Free()
	if err := attend(d.Stream(), b, 60); !errors.Is(err, gpu.ErrOutOfMemory) {
		t.Errorf("scratch over the cap: %v", err)
	}
}

func TestGraphKeepsTheScratchThatItWasCapturedWith(t *testing.T) {
	hw, d := scratchDevice(t)
	s := d.Stream()
	b, err := s.Alloc(1 << 20)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Free()
	before := d.Pool().Stats().InUse
	if err := attend(s, b, 10); err != nil {
		t.Fatal(err)
	}
	g, err := s.Capture(func() error { return errors.Join(attend(s, b, 10), attend(s, b, 20)) }) // grows within
	if err != nil {
		t.Fatal(err)
	}
	if err := attend(s, b, 1000); err != nil { // and after
		t.Fatal(err)
	}
	for range 3 {
		if err := g.Launch(); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Synchronize(); err != nil {
		t.Fatal(err)
	}
	g.Close()
	if n, want := d.Pool().Stats().InUse-before, int64(1000*8*4); n < want || n > want+255 {
		t.Errorf("%d bytes stay after the graph, want the %d in use", n, want)
	}
	for _, err := range hw.Misuse() {
		t.Error(err)
	}
}

// A device that is being closed holds its lock while it waits for the stream that asks for scratch.
func TestClosingWhileScratchGrowsDoesNotHang(t *testing.T) {
	for range 50 {
		b := fake.New(fake.Config{Scratch: true})
		d, err := gpu.OpenBackend(b, 0)
		if err != nil {
			t.Fatal(err)
		}
		x, err := d.Alloc(1 << 20)
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan error)
		go func() {
			var err error
			for rows := 1; err == nil && rows < 4000; rows += 7 {
				err = attend(d.Stream(), x, rows)
			}
			done <- err
		}()
		if err := d.Close(); err != nil {
			t.Error(err)
		}
		if err := <-done; err != nil && !errors.Is(err, gpu.ErrClosed) {
			t.Error(err)
		}
	}
}
