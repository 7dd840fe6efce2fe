package tensor_test

import (
	"errors"
	"runtime"
	"slices"
	"sync"
	"testing"

	"github.com/vibrant-ml/vibrant/gpu"
	"github.com/vibrant-ml/vibrant/internal/backend/fake"
	"github.com/vibrant-ml/vibrant/tensor"
)

// TestTwoDevicesInTurn has threads call two devices in turn: every operation, allocation, copy and release is for another device than
// the one before, and values go to and fro. CUDA's current device belongs to a thread, so that a call that trusts it computes on
// the wrong one. What one device computes alone is the reference. Where a backend has one device, both are that one, and the test says so.
func TestTwoDevicesInTurn(t *testing.T) {
	for _, b := range append(backends(), fake.New(fake.Config{Devices: 2, Memory: 1 << 30})) {
		infos, err := b.Devices()
		name := b.Name()
		if name == "fake" && len(infos) == 2 {
			name = "two fakes"
		}
		t.Run(name, func(t *testing.T) {
			if err != nil || len(infos) == 0 {
				t.Skipf("no device: %v", err)
			}
			var pair [2]*gpu.Device
			for i := range pair {
				var err error
				if pair[i], err = gpu.OpenBackend(b, i%len(infos)); err != nil {
					t.Fatal(err)
				}
				defer pair[i].Close()
			}
			rounds := 100
			if testing.Short() || b.Name() == "go" || b.Name() == "fake" {
				rounds = 20
			}
			want, err := inTurn([2]*gpu.Device{pair[0], pair[0]}, rounds)
			if err != nil {
				t.Fatal(err)
			}
			var group sync.WaitGroup
			for i := range 16 {
				group.Add(1)
				go func() {
					defer group.Done()
					if i%2 == 0 { // the others change threads between calls
						runtime.LockOSThread()
					}
					if got, err := inTurn(pair, rounds); err != nil || !slices.Equal(got, want) {
						t.Errorf("goroutine %d: %v, %v, want %v", i, got, err, want)
					}
				}()
			}
			group.Wait()
			if len(infos) == 1 {
				t.Logf("one device was here, %s, opened twice: nothing went from one device to another", pair[0])
			}
			t.Logf("%s and %s: 16 goroutines, %d rounds in turn", pair[0], pair[1], rounds)
		})
	}
}

// inTurn computes on streams of its own on two devices, an operation on each in turn. Every fourth round the values change places.
func inTurn(devices [2]*gpu.Device, rounds int) (values []float32, err error) {
	var streams [2]*gpu.Stream
	var x, w [2]*tensor.Tensor
	for i, d := range devices {
		if streams[i], err = d.NewStream(); err != nil {
			return nil, err
		}
		defer streams[i].Close()
	}
	for i, s := range streams {
		x[i], err = tensor.New(s, tensor.F32, 4, 4)
		if err == nil {
			w[i], err = tensor.New(s, tensor.F32, 4, 4)
		}
		if err != nil {
			return nil, err
		}
		start := []float32{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, float32(16 + i)}
		if err := errors.Join(x[i].WriteFloat32s(start), w[i].WriteFloat32s([]float32{.5, 0, 0, .25, 0, .5, .25, 0, 0, .25, .5, 0, .25, 0, 0, .5})); err != nil {
			return nil, err
		}
	}
	err = tensor.Try(func() {
		for round := range rounds {
			var y [2]*tensor.Tensor
			for i := range y {
				y[i] = tensor.MatMul(x[i], w[i])
			}
			for i := range y {
				x[i].Free()
				x[i] = tensor.Add(y[i], w[i])
			}
			if round%4 == 3 {
				for i := range y {
					tensor.CopyInto(y[i], x[1-i])
				}
				x, y = y, x
			}
			for i := range y {
				y[i].Free()
			}
		}
		values = slices.Concat(x[0].Float32s(), x[1].Float32s())
	})
	return values, err
}
