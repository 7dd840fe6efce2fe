package gpu

import (
	"runtime"
	"runtime/debug"
	"testing"
	"time"
)

// TestLongCollectionsComeLater has collections of 10 ms in place of 1 ms among tensors that take 5 ms, as a busy machine makes them.
func TestLongCollectionsComeLater(t *testing.T) {
	var p pace
	for i, c := range []struct {
		took time.Duration
		want int
	}{{1, 0}, {10, 1}, {10, 2}, {10, 2}, {2, 2}, {1, 1}, {1, 0}, {1, 0}} {
		if p.adapt(c.took*time.Millisecond, 5*time.Millisecond); p.doublings != c.want {
			t.Errorf("collection %d of %d ms: growth doubled %d times, want %d", i, c.took, p.doublings, c.want)
		}
	}
}

// TestCollectionsComeEarlierUnderALimit drops buffers of 4 MB with GOGC off, where only the limit calls for collections.
func TestCollectionsComeEarlierUnderALimit(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	drop := func() uint64 {
		d := must[*Device](t)(Open("cpu"))
		defer d.Close()
		for range 200 {
			must[*Buffer](t)(d.Alloc(4 << 20))
		}
		return uint64(d.Pool().Stats().Paced)
	}
	free := drop()
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(256 << 20))
	if limited := drop(); limited <= free || limited < 4 {
		t.Errorf("%d collections without a limit, %d under one", free, limited)
	}
}

// TestCollectionsWaitForLateCleanups has a cleanup that takes long, as on a busy machine, and one that blocks for good.
func TestCollectionsWaitForLateCleanups(t *testing.T) {
	if collect(longWait); !countsCleanups() {
		t.Skip("Go counts cleanups from 1.25 on")
	}
	started, end := make(chan struct{}), make(chan struct{})
	runtime.AddCleanup(new([64]byte), func(int) { close(started); <-end }, 0)
	if collect(10 * time.Millisecond) {
		t.Error("a collection did not wait for a cleanup")
	}
	<-started
	time.AfterFunc(50*time.Millisecond, func() { close(end) })
	if !collect(time.Minute) {
		t.Error("a cleanup that ended did not end the wait")
	}
}

func countsCleanups() bool { queued, _ := cleanups(); return queued > 0 }
