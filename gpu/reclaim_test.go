package gpu

import (
	"runtime"
	"testing"
	"time"

	"github.com/vibrant-ml/vibrant/internal/backend/fake"
	"github.com/vibrant-ml/vibrant/internal/backend/kernel"
	"github.com/vibrant-ml/vibrant/internal/check/busy"
)

// eventually collects until the condition holds.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	busy.Until(t, what, func() bool { runtime.GC(); return holds() })
}

// useAndDrop gives a stream memory, an event and a copy, and holds none of them.
func useAndDrop(t *testing.T, s *Stream) {
	t.Helper()
	b := must[*Buffer](t)(s.Alloc(4 << 10))
	e := s.Device().NewEvent()
	err := b.CopyFromHost(make([]byte, 4<<10))
	if err == nil {
		err = s.Record(e)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestDroppedHandlesAreReclaimed opens 1,000 streams and 1,000 devices, uses them and drops them without Close.
func TestDroppedHandlesAreReclaimed(t *testing.T) {
	const handles = 1000
	backends := map[string]kernel.Backend{"fake": fake.New(fake.Config{}), "cpu": cpuBackend()}
	if infos, err := cudaBackend().Devices(); err == nil && len(infos) > 0 {
		backends["cuda"] = cudaBackend()
	}
	for name, backend := range backends {
		t.Run(name, func(t *testing.T) {
			routines := runtime.NumGoroutine()
			d := must[*Device](t)(OpenBackend(backend, 0))
			before := d.Pool().Stats().InUse
			for range handles {
				useAndDrop(t, must[*Stream](t)(d.NewStream()))
			}
			eventually(t, "streams are not reclaimed", func() bool {
				d.mu.Lock()
				defer d.mu.Unlock()
				return len(d.streams) == 1 && len(d.handles) == 0
			})
			eventually(t, "memory of streams is not reclaimed", func() bool { return d.Pool().Stats().InUse == before })
			d.Close()

			var closed []*device
			for range handles {
				d := must[*Device](t)(OpenBackend(backend, 0))
				useAndDrop(t, d.Stream())
				useAndDrop(t, must[*Stream](t)(d.NewStream()))
				closed = append(closed, d.device)
			}
			eventually(t, "devices are not reclaimed", func() bool {
				for len(closed) > 0 && closed[0].closed.Load() {
					closed = closed[1:]
				}
				return len(closed) == 0
			})
			eventually(t, "goroutines are left", func() bool { return runtime.NumGoroutine() <= routines })
			if g, ok := backend.(*fake.Backend); ok {
				eventually(t, "memory of devices is left", func() bool { return g.GPU(0).Used() == 0 })
				for _, err := range g.GPU(0).Misuse() {
					t.Error(err)
				}
			}
			t.Logf("%d streams and %d devices reclaimed", handles, handles)
		})
	}
}

// TestWhatIsHeldKeepsItsStreamAndDevice holds a buffer alone, then a stream alone.
func TestWhatIsHeldKeepsItsStreamAndDevice(t *testing.T) {
	g := fake.New(fake.Config{})
	b := must[*Buffer](t)(must[*Stream](t)(must[*Device](t)(OpenBackend(g, 0)).NewStream()).Alloc(16))
	for range 5 {
		runtime.GC()
		time.Sleep(time.Millisecond)
		if err := b.CopyFromHost(make([]byte, 16)); err != nil {
			t.Fatal(err)
		}
	}
	s := b.Stream()
	b.Free()
	for range 5 {
		runtime.GC()
		time.Sleep(time.Millisecond)
		if err := s.Synchronize(); err != nil {
			t.Fatal(err)
		}
	}
	s.Device().Close()
}
