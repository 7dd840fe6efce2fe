package tensor

import (
	"fmt"
	"math"
	"sync"

	"github.com/vibrant-ml/vibrant/gpu"
	"github.com/vibrant-ml/vibrant/internal/backend/kernel"
)

// tunings holds what TuneW2A8 found.
var tunings sync.Map // of tuningKey to Tuning

type tuningKey struct {
	device  *gpu.Device
	m, n, k int
}

// tuned puts what TuneW2A8 found for a product of this shape on this device into its arguments.
func tuned(a kernel.W2A8GEMVArgs, d *gpu.Device) kernel.W2A8GEMVArgs {
	if found, ok := tunings.Load(tuningKey{d, a.M, a.N, a.K}); ok {
		t := found.(Tuning)
		a.Threads, a.Lanes, a.Tile, a.Persistent, a.WithoutDP4A, a.Narrow = t.Threads, t.Lanes, t.Tile, t.Persistent, t.WithoutDP4A, t.Narrow
	}
	return a
}

// Tunings lists the ways in which a GPU may compute W2A8 of up to four rows: every combination that TuneW2A8 tries.
func Tunings() (all []Tuning) {
	all = append(all, Tuning{Lanes: 4, Persistent: true})
	for _, threads := range []int{64, 128, 256, 512} {
		for _, tile := range []int{1, 2} {
			all = append(all, Tuning{Threads: threads, Lanes: 4, Tile: tile})
		}
		if threads == 512 {
			break
		}
		for _, lanes := range []int{8, 16, 32} {
			for _, tile := range []int{1, 2} {
				for _, persistent := range []bool{false, true} {
					all = append(all, Tuning{Threads: threads, Lanes: lanes, Tile: tile, Persistent: persistent})
				}
			}
		}
	}
	return all
}

// TuneW2A8 measures the Tunings for m rows (1 to 4) of activations, and lets later calls of W2A8 with that many rows and matrices of
// these shapes take the best. weights are matrices of one shape and device: so many that together they exceed the device's last-level
// cache, or the figures are those of weights in the cache. Each measurement is the best of three runs over all of them. It returns
// the choice and microseconds a product. On a CPU, which has one way, it returns the zero Tuning.
// Errors: *ShapeError for other rows or matrices, and *OpError.
func TuneW2A8(m int, weights ...*Ternary) (best Tuning, microseconds float64, err error) {
	const op = "tune w2a8"
	if m < 1 || m > 4 || len(weights) == 0 {
		return best, 0, &ShapeError{op, fmt.Sprintf("%d rows, %d matrices: want 1 to 4, and at least one", m, len(weights))}
	}
	w := weights[0]
	d, s := w.Codes.Device(), w.Codes.Stream()
	for _, other := range weights {
		if other.Rows != w.Rows || other.Cols != w.Cols || other.Codes.Device() != d {
			return best, 0, &ShapeError{op, fmt.Sprintf("ternary (%d,%d) and (%d,%d): want one shape on one device", w.Rows, w.Cols, other.Rows, other.Cols)}
		}
	}
	if d.Info().HostMemory {
		return best, 0, nil
	}
	microseconds = math.Inf(1)
	err = Try(func() {
		codes, out := output(op, s, I8, []int{m, w.Cols}), output(op, s, I32, []int{m, w.Rows})
		defer codes.Free()
		defer out.Free()
		codes.Zero()
		for _, tuning := range Tunings() {
			us, err := measure(s, len(weights), func() {
				for _, w := range weights {
					W2A8Into(out, codes, nil, w, W2A8Options{Tuning: tuning})
				}
			})
			if err != nil {
				fail(op, err, codes)
			}
			if us < microseconds {
				best, microseconds = tuning, us
			}
		}
	})
	if err == nil {
		tunings.Store(tuningKey{d, m, w.Rows, w.Cols}, best)
	}
	return best, microseconds, err
}

// measure returns the microseconds of one of n operations that f enqueues, as a graph replays them.
func measure(s *gpu.Stream, n int, f func()) (us float64, err error) {
	f() // kernels are loaded by their first use
	graph, err := s.Capture(func() error { return Try(f) })
	if err != nil {
		return 0, err
	}
	defer graph.Close()
	start, end := s.Device().NewEvent(), s.Device().NewEvent()
	defer start.Close()
	defer end.Close()
	us = math.Inf(1)
	for range 3 {
		if err := s.Record(start); err != nil {
			return 0, err
		}
		if err := graph.Launch(); err != nil {
			return 0, err
		}
		if err := s.Record(end); err != nil {
			return 0, err
		}
		if err := end.Synchronize(); err != nil {
			return 0, err
		}
		elapsed, err := end.Since(start)
		if err != nil {
			return 0, err
		}
		us = min(us, float64(elapsed.Nanoseconds())/1e3/float64(n))
	}
	return us, nil
}
