package tensor_test

import (
	"errors"
	"runtime"
	"runtime/metrics"
	"testing"
	"time"

	"github.com/vibrant-ml/vibrant/gpu"
	"github.com/vibrant-ml/vibrant/internal/backend/kernel"
	"github.com/vibrant-ml/vibrant/tensor"
)

// sums adds a tensor of 4 MB to itself, and returns the most that its device's pool held and how long it took.
func sums(t *testing.T, d *gpu.Device, n int, after func(*tensor.Tensor)) (most int64, took time.Duration) {
	t.Helper()
	a, err := tensor.New(d.Stream(), tensor.F32, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Free()
	a.Zero()
	before := d.Pool().Stats()
	start := time.Now()
	for range n {
		after(tensor.Add(a, a))
		now := d.Pool().Stats()
		most = max(most, now.InUse+now.Cached-before.InUse)
	}
	if err := d.Stream().Synchronize(); err != nil {
		t.Fatal(err)
	}
	return most, time.Since(start)
}

// TestDroppedTensorsDoNotPileUp is a loop that frees nothing, beside one that frees each result; it prints both times.
func TestDroppedTensorsDoNotPileUp(t *testing.T) {
	eachBackend(t, func(t *testing.T, b kernel.Backend, d *gpu.Device) {
		n := 1500
		if b.Name() == "go" || b.Name() == "fake" || testing.Short() || raceDetector {
			n = 100
		}
		runtime.GC() // of what other tests have left
		_, freed := sums(t, d, n, (*tensor.Tensor).Free)
		most, dropped := sums(t, d, n, func(*tensor.Tensor) {})
		t.Logf("%d sums: %v freed, %v dropped, at most %.1f MB, %d collections", n, freed, dropped, float64(most)/1e6, d.Pool().Stats().Paced)
		// 56 MiB come between two collections, and one result may still be in reach: 63 MB. A collection waits a second for cleanups that a
		// busy machine runs late. It is due where memory has doubled, as for Go's own heap: what other tests keep alive counts. A GPU fills
		// far more in the time of one.
		live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
		metrics.Read(live)
		limit := 64e6
		if !d.Info().HostMemory {
			limit = max(limit, float64(d.Info().TotalMemory)/200)
		}
		if limit += float64(live[0].Value.Uint64()); float64(most) > limit {
			t.Errorf("dropped tensors take %.1f MB, want at most %.1f", float64(most)/1e6, limit/1e6)
		}
	})
}

func TestScopeFreesWhatItMadeAndDoesNotKeep(t *testing.T) {
	eachBackend(t, func(t *testing.T, b kernel.Backend, d *gpu.Device) {
		a, err := tensor.New(d.Stream(), tensor.F32, 3)
		if err == nil {
			err = a.WriteFloat32s([]float32{1, 2, 3})
		}
		if err != nil {
			t.Fatal(err)
		}
		defer a.Free()
		before := d.Pool().Stats().InUse
		var sum, inner, other *tensor.Tensor
		tensor.Scope(func(keep func(*tensor.Tensor) *tensor.Tensor) {
			tensor.Scope(func(keep func(*tensor.Tensor) *tensor.Tensor) {
				inner = keep(tensor.Mul(a, a))
				tensor.Mul(inner, inner)
			})
			sum = keep(tensor.Add(inner, tensor.Add(a, a)))
			done := make(chan struct{})
			go func() { // made by another goroutine: not this scope's
				other = tensor.Add(a, a)
				close(done)
			}()
			<-done
		})
		equal(t, "kept", sum, 3, 8, 15)
		equal(t, "another goroutine's", other, 2, 4, 6)
		sum.Free()
		other.Free()
		if n := d.Pool().Stats().InUse; n != before {
			t.Errorf("%d bytes stay in use", n-before)
		}
		if err := inner.ReadFloat32s(make([]float32, 3)); !errors.Is(err, gpu.ErrClosed) {
			t.Errorf("what the inner scope kept outlived the outer: %v", err)
		}
		func() {
			defer func() { recover() }()
			tensor.Scope(func(func(*tensor.Tensor) *tensor.Tensor) { tensor.Add(a, a); panic("stop") })
		}()
		if n := d.Pool().Stats().InUse; n != before {
			t.Errorf("%d bytes stay in use after a panic", n-before)
		}
	})
}
