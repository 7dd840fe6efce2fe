package tensor_test

import (
	"runtime"
	"sync"
	"testing"

	"github.com/vibrant-ml/vibrant/gpu"
	"github.com/vibrant-ml/vibrant/internal/backend/kernel"
	"github.com/vibrant-ml/vibrant/internal/check/optable"
	"github.com/vibrant-ml/vibrant/tensor"
)

// TestOpsOnThreadsThatCalledNothingBefore has many threads run every operation at the same time, each thread on a device and
// stream of its own. Each operation is the first call that its thread makes to the backend: CUDA's current device and context
// belong to a thread, and goroutines change threads between any two calls.
func TestOpsOnThreadsThatCalledNothingBefore(t *testing.T) {
	strictly(t)
	eachBackend(t, func(t *testing.T, b kernel.Backend, d *gpu.Device) {
		threads := 4 // where no state belongs to a thread
		if b.Name() == "cuda" {
			threads = 64
		} else if raceDetector && b.Name() != "fake" {
			t.Skip("left out under the race detector")
		}
		devices := make([]*gpu.Device, threads)
		for i := range devices {
			var err error
			if devices[i], err = gpu.OpenBackend(b, 0, gpu.WithThreads(1)); err != nil {
				t.Fatal(err)
			}
			defer devices[i].Close()
		}
		runs := 0
		for _, op := range optable.Table() {
			if b.Name() == "ptx" && op.NoPTX {
				continue
			}
			var cases []optable.Case
			for _, c := range op.Cases {
				if !c.Large && !(b.Name() == "ptx" && c.Adapted()) && (b.Name() == "cuda" || !long(b, op, c)) { // kernels of prompts have the long cases
					cases = append(cases, c)
				}
			}
			fresh := *op
			fresh.Run = func(out, in []*tensor.Tensor, c optable.Case) {
				if err := onFreshThread(func() error { return tensor.Try(func() { op.Run(out, in, c) }) }); err != nil {
					t.Errorf("%s/%s: %v", op.Name, c.Name(), err)
				}
			}
			var group sync.WaitGroup
			for i, own := range devices {
				c := cases[i%len(cases)]
				runs++
				group.Add(1)
				go func() {
					defer group.Done()
					if _, err := fresh.Check(own, c, uint64(i)); err != nil {
						t.Errorf("thread %d: %s/%s: %v", i, op.Name, c.Name(), err)
					}
				}()
			}
			group.Wait()
			if t.Failed() {
				return
			}
		}
		t.Logf("%d operations on fresh threads, %d at a time", runs, threads)
	})
}

// onFreshThread calls f on a new thread of the system, which ends with it.
func onFreshThread(f func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the runtime ends the thread
		done <- f()
	}()
	return <-done
}
