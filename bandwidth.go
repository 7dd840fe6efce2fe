package vibrant

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/vibrant-ml/vibrant/gpu"
	"github.com/vibrant-ml/vibrant/tensor"
)

// hostBandwidth returns the median rate at which so many threads read memory that no cache holds.
func hostBandwidth(ctx context.Context, threads int) (float64, error) {
	const words = 64 << 20 / 8 // a thread: far above a last-level cache's share
	memory := make([][]uint64, threads)
	for i := range memory {
		memory[i] = make([]uint64, words)
		for j := range memory[i] {
			memory[i][j] = uint64(j) // pages that were never written are all one page
		}
	}
	var sink atomic.Uint64
	var rates []float64
	for range 9 {
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		start := time.Now()
		var wg sync.WaitGroup
		for _, m := range memory {
			wg.Add(1)
			go func() {
				defer wg.Done()
				var a, b, c, d uint64 // independent sums: the loads, not the additions, are what is measured
				for i := 0; i+8 <= len(m); i += 8 {
					w := m[i : i+8 : i+8]
					a += w[0] + w[4]
					b += w[1] + w[5]
					c += w[2] + w[6]
					d += w[3] + w[7]
				}
				sink.Add(a + b + c + d)
			}()
		}
		wg.Wait()
		rates = append(rates, float64(threads*words*8)/time.Since(start).Seconds())
	}
	slices.Sort(rates)
	return rates[len(rates)/2], nil
}

// copyBandwidth returns the median rate, read and written, at which a GPU copies, measured over at least `each`.
func copyBandwidth(ctx context.Context, d *gpu.Device, each time.Duration) (float64, error) {
	s, err := d.NewStream()
	if err != nil {
		return 0, err
	}
	defer s.Close()
	const elements = 256 << 20 / 4                  // several times any L2
	memory, err := tensor.NewArena(s, 2*4*elements) // not the pool's, which would keep it
	if err != nil {
		return 0, err
	}
	defer memory.Free()
	a, err := memory.New(tensor.F32, elements)
	if err != nil {
		return 0, err
	}
	b, err := memory.New(tensor.F32, elements)
	if err != nil {
		return 0, err
	}
	var rates []float64
	err = tensor.Try(func() { a.Zero(); tensor.CopyInto(b, a) })
	for i := 0; i < 9 && err == nil; i++ {
		if err = s.Synchronize(); err == nil {
			err = ctx.Err()
		}
		start, copies := time.Now(), 0
		for err == nil && time.Since(start) < each {
			err = tensor.Try(func() {
				for range 16 { // a wait costs as much as a tenth of a copy
					tensor.CopyInto(b, a)
				}
			})
			copies += 16
			if err == nil {
				err = s.Synchronize()
			}
		}
		rates = append(rates, float64(2*copies*elements*4)/time.Since(start).Seconds())
	}
	if err != nil {
		return 0, err
	}
	slices.Sort(rates)
	return rates[len(rates)/2], nil
}
