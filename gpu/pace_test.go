package gpu

import (
	"math"
	"runtime"
	"runtime/debug"
	"testing"
	"testing/fstest"
	"time"
)

func TestTheLeastLimitOfTheCgroupsCounts(t *testing.T) {
	file := func(text string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(text)} }
	for name, c := range map[string]struct {
		files fstest.MapFS
		own   string
		want  int64
	}{
		"none":                {fstest.MapFS{}, "0::/\n", math.MaxInt64},
		"container":           {fstest.MapFS{"memory.max": file("1000\n")}, "0::/\n", 1000},
		"unlimited":           {fstest.MapFS{"memory.max": file("max\n")}, "0::/\n", math.MaxInt64},
		"slice":               {fstest.MapFS{"a/b/memory.max": file("max\n"), "a/memory.max": file("2000\n")}, "0::/a/b\n", 2000},
		"the group's own":     {fstest.MapFS{"a/b/memory.max": file("500\n"), "a/memory.max": file("2000\n")}, "0::/a/b\n", 500},
		"another's":           {fstest.MapFS{"c/memory.max": file("500\n")}, "0::/a\n", math.MaxInt64},
		"names of outside":    {fstest.MapFS{"memory.max": file("700\n")}, "0::/system/docker/1\n", 700},
		"version 1":           {fstest.MapFS{"memory/a/memory.limit_in_bytes": file("300\n")}, "5:cpu:/x\n4:memory:/a\n", 300},
		"version 1, together": {fstest.MapFS{"memory/memory.limit_in_bytes": file("300\n")}, "4:hugetlb,memory:/a\n", 300},
	} {
		if got := cgroupLimitIn(c.files, c.own); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
}

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
