package gpu

import (
	"math"
	"runtime"
	"runtime/metrics"
	"sync"
	"time"

	"github.com/vibrant-ml/vibrant/internal/cgroup"
)

// pace decides when the garbage collector is to look for dropped buffers: Go does not see the memory behind them, and would let a
// program that frees nothing by itself fill the device. Memory handed out counts as Go's heap does: a collection is due when it has
// grown by GOGC percent of what was alive after the one before, Go's heap included, and by leastGrowth at least; on a device with memory
// of its own by 1/256 of that, since what a GPU fills in the time of one collection is far more than leastGrowth. On devices that
// compute on host memory, GOMEMLIMIT and the cgroup's limit make it due earlier.
type pace struct {
	pooled     int64     // bytes in use, but for reserved ones; the pool's lock guards it and next
	next       int64     // pooled bytes at which a collection is due
	doublings  int       // of leastGrowth; the lock of collecting guards it, ended and late
	ended      time.Time // the collection before
	late       bool      // its cleanups did not run in time
	collecting sync.Mutex
}

const (
	leastGrowth   = 14 << 20 // which caches hold
	mostDoublings = 2

	// How long a collection waits for the cleanups of dropped buffers. A busy machine runs them late, and what it has not run counts as
	// alive, so that a pool would grow by twice as much. A cleanup of the program's own may block them all: then the next wait is short.
	longWait, shortWait = time.Second, 100 * time.Millisecond
)

// adapt doubles the least growth where a collection took long beside the time since the one before, as on a busy machine, and halves it
// where it took little: a program that drops its results then writes to memory that a cache still holds.
func (p *pace) adapt(took, before time.Duration) {
	switch {
	case took > before/2:
		p.doublings = min(p.doublings+1, mostDoublings)
	case took < before/4:
		p.doublings = max(p.doublings-1, 0)
	}
}

// leastGrowth is by how much memory grows between collections, doubled so many times.
func (d *device) leastGrowth(doublings int) int64 {
	if d.info.HostMemory {
		return leastGrowth << doublings
	}
	return max(leastGrowth<<mostDoublings, d.info.TotalMemory/256)
}

// collectPaced collects, and says when the next collection is due. While another goroutine does so it returns at once.
func (p *Pool) collectPaced() {
	if !p.pace.collecting.TryLock() {
		return
	}
	defer p.pace.collecting.Unlock()
	wait := longWait
	if p.pace.late {
		wait = shortWait
	}
	start := time.Now()
	p.pace.late = !collect(wait)
	end := time.Now()
	p.pace.adapt(end.Sub(start), start.Sub(p.pace.ended))
	p.pace.ended = end
	heap := readHeap()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stats.Paced++
	growth := heap.growth(p.pace.pooled)
	if p.dev.info.HostMemory {
		growth = min(growth, heap.room(p.stats.InUse+p.stats.Cached))
	}
	p.pace.next = p.pace.pooled + max(p.dev.leastGrowth(p.pace.doublings), growth)
}

// collect runs the garbage collector and waits until the cleanups of dropped buffers have run, at most so long. It reports whether they
// have.
func collect(wait time.Duration) bool {
	deadline := time.Now().Add(wait)
	done := make(chan struct{})
	sentinel := new([64]byte)
	runtime.AddCleanup(sentinel, func(c chan struct{}) { close(c) }, done)
	runtime.GC()
	select {
	case <-done:
	case <-time.After(time.Until(deadline)):
		return false
	}
	queued, executed := cleanups()
	for executed < queued && time.Now().Before(deadline) {
		time.Sleep(50 * time.Microsecond)
		_, executed = cleanups()
	}
	return executed >= queued
}

// cleanups returns how many cleanups this process has queued and executed. Before Go 1.25, which runs them one after the other, both are 0.
func cleanups() (queued, executed uint64) {
	samples := []metrics.Sample{{Name: "/gc/cleanups/queued:cleanups"}, {Name: "/gc/cleanups/executed:cleanups"}}
	metrics.Read(samples)
	if samples[0].Value.Kind() == metrics.KindUint64 && samples[1].Value.Kind() == metrics.KindUint64 {
		queued, executed = samples[0].Value.Uint64(), samples[1].Value.Uint64()
	}
	return queued, executed
}

// goHeap is what the Go runtime says of its memory.
type goHeap struct {
	live, total int64 // bytes alive after the newest collection; bytes taken from the system
	percent     uint64
	limit       int64 // GOMEMLIMIT
}

func readHeap() goHeap {
	samples := []metrics.Sample{
		{Name: "/gc/heap/live:bytes"}, {Name: "/memory/classes/total:bytes"}, {Name: "/gc/gogc:percent"}, {Name: "/gc/gomemlimit:bytes"},
	}
	metrics.Read(samples)
	value := func(i int) uint64 { return min(samples[i].Value.Uint64(), math.MaxInt64) }
	return goHeap{int64(value(0)), int64(value(1)), value(2), int64(value(3))}
}

// growth returns by how much memory may grow of which so much is alive.
func (h goHeap) growth(live int64) int64 {
	all := float64(max(live, h.live))                               // in pure Go the pool's memory is of Go's heap
	return int64(min(all*float64(h.percent)/100, float64(maxSize))) // GOGC=off is a huge percentage
}

// room returns how much memory is left to a process whose pool has so much, half of it for what does not come from the pool.
func (h goHeap) room(pool int64) int64 {
	return (min(h.limit, cgroup.MemoryLimit()) - h.total - pool) / 2
}
