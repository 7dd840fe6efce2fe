package tensor_test

import (
	"errors"
	"slices"
	"sync"
	"testing"

	"github.com/vibrant-ml/vibrant/gpu"
	"github.com/vibrant-ml/vibrant/internal/backend/kernel"
	"github.com/vibrant-ml/vibrant/tensor"
)

// TestGoroutinesComputeWhatOneDoes has 64 goroutines do 1,000 operations each on shared and own tensors, on four streams.
func TestGoroutinesComputeWhatOneDoes(t *testing.T) {
	eachBackend(t, func(t *testing.T, b kernel.Backend, d *gpu.Device) {
		ops := 1000
		if testing.Short() || b.Name() == "go" || b.Name() == "fake" {
			ops = 100
		}
		streams := []*gpu.Stream{d.Stream()}
		for range 3 {
			s, err := d.NewStream()
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			streams = append(streams, s)
		}
		shared, err := tensor.New(d.Stream(), tensor.F32, 4, 4)
		if err == nil {
			err = shared.WriteFloat32s([]float32{.5, 0, 0, .25, 0, .5, .25, 0, 0, .25, .5, 0, .25, 0, 0, .5})
		}
		if err != nil {
			t.Fatal(err)
		}
		defer shared.Free()
		compute := func(s *gpu.Stream) ([]float32, error) {
			x, err := tensor.New(s, tensor.F32, 4, 4)
			if err == nil {
				err = x.WriteFloat32s([]float32{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16})
			}
			if err != nil {
				return nil, err
			}
			err = tensor.Try(func() {
				for i := range ops / 2 {
					y := tensor.MatMul(x, shared)
					if i%4 != 0 {
						x.Free() // the others are dropped
					}
					x = tensor.Add(y, shared)
				}
			})
			if err != nil {
				return nil, err
			}
			return x.Float32s(), nil
		}
		want, err := compute(d.Stream())
		if err != nil {
			t.Fatal(err)
		}
		var group sync.WaitGroup
		for i := range 64 {
			group.Add(1)
			go func() {
				defer group.Done()
				if got, err := compute(streams[i%len(streams)]); err != nil || !slices.Equal(got, want) {
					t.Errorf("goroutine %d: %v, %v, want %v", i, got, err, want)
				}
			}()
		}
		group.Wait()
		t.Logf("64 goroutines x %d operations", ops)
	})
}

// TestMemoryIsGivenBackByEveryCycle allocates and frees 10,000 times, and frees and uses again what is freed.
func TestMemoryIsGivenBackByEveryCycle(t *testing.T) {
	eachBackend(t, func(t *testing.T, b kernel.Backend, d *gpu.Device) {
		before := d.Pool().Stats().InUse
		for i := range 10000 {
			x, err := tensor.New(d.Stream(), tensor.F32, 1+i%5000)
			if err != nil {
				t.Fatal(err)
			}
			for range 10 {
				x.Free()
			}
			if err := x.ReadFloat32s(make([]float32, x.Len())); !errors.Is(err, gpu.ErrClosed) {
				t.Fatalf("cycle %d: use after Free: %v", i, err)
			}
		}
		if n := d.Pool().Stats().InUse; n != before {
			t.Errorf("%d bytes stay in use", n-before)
		}
		d.Pool().Trim()
		if n := d.Pool().Stats().Cached; n != 0 {
			t.Errorf("%d bytes stay cached after Trim", n)
		}
		t.Log("10,000 cycles, 100,000 frees")
	})
}
