package fake

import (
	"errors"
	"strings"
	"testing"
	"time"
	"unsafe"

	"go.uber.org/goleak"

	"github.com/vibrant-ml/vibrant/internal/backend/kernel"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func open(t *testing.T, c Config) (kernel.Device, kernel.Stream, *GPU) {
	t.Helper()
	b := New(c)
	d, err := b.Open(0, kernel.Options{})
	if err != nil {
		t.Fatal(err)
	}
	s, err := d.NewStream(nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close(); d.Close() })
	return d, s, b.GPU(0)
}

func alloc(t *testing.T, d kernel.Device, n int64) kernel.Ptr {
	t.Helper()
	p, err := d.Alloc(n)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestWhatMayNotBeDoneIsFound(t *testing.T) {
	for want, f := range map[string]func(d kernel.Device, s kernel.Stream, p kernel.Ptr) error{
		"Add: 404 bytes at offset 0 of an allocation of 400": func(d kernel.Device, s kernel.Stream, p kernel.Ptr) error {
			return s.Add(p, p, p, kernel.F32, 101)
		},
		"copy to device: 4 bytes at offset 398 of an allocation of 400": func(d kernel.Device, s kernel.Stream, p kernel.Ptr) error {
			var v [4]byte
			return s.CopyToDevice(unsafe.Add(p, 398), unsafe.Pointer(&v), 4)
		},
		"SiLU: 4 bytes at an address that is not allocated": func(d kernel.Device, s kernel.Stream, p kernel.Ptr) error {
			return errors.Join(d.Free(p), s.SiLU(p, p, kernel.F32, 1))
		},
		"free of an address that is not allocated": func(d kernel.Device, s kernel.Stream, p kernel.Ptr) error {
			return errors.Join(d.Free(p), d.Free(p))
		},
		"Mul: memory was freed": func(d kernel.Device, s kernel.Stream, p kernel.Ptr) error { // by the replay of a graph
			err := s.BeginCapture()
			err = errors.Join(err, s.Mul(p, p, p, kernel.F32, 10))
			g, gerr := s.EndCapture()
			return errors.Join(err, gerr, d.Free(p), s.Launch(g), s.Synchronize())
		},
	} {
		d, s, g := open(t, Config{})
		err := f(d, s, alloc(t, d, 400))
		found := g.Misuse()
		if err == nil || len(found) != 1 || !strings.Contains(found[0].Error(), want) {
			t.Errorf("%s: found %v, error %v", want, found, err)
		}
	}
}

func TestWorkIsAsynchronousAndOrdered(t *testing.T) {
	const delay = 5 * time.Millisecond
	d, s, g := open(t, Config{Delay: delay})
	p := alloc(t, d, 8)
	in := [2]float32{1, 2}
	quickest := time.Hour
	for range 50 { // a busy machine may take the processor from the one that enqueues
		out := [2]float32{}
		begin := time.Now()
		err := errors.Join(
			s.CopyToDevice(p, unsafe.Pointer(&in), 8), s.Add(p, p, p, kernel.F32, 2), s.CopyToHost(unsafe.Pointer(&out), p, 8))
		quickest = min(quickest, time.Since(begin))
		if err := errors.Join(err, s.Synchronize()); err != nil || out != [2]float32{2, 4} {
			t.Fatalf("%v, %v", out, err)
		}
		if quickest < delay {
			break
		}
	}
	if quickest >= delay {
		t.Errorf("enqueuing took %v, as if it waited for the work", quickest)
	}
	if len(g.Misuse()) != 0 {
		t.Error(g.Misuse())
	}
}

func TestFaultsComeWhenTheyAreDue(t *testing.T) {
	boom := errors.New("boom")
	d, s, g := open(t, Config{Memory: 1000, Lacks: []string{"Mul"}})
	g.FailAfter(Alloc, 1, boom)
	p := alloc(t, d, 400)
	if _, err := d.Alloc(1); !errors.Is(err, boom) {
		t.Errorf("second allocation: %v", err)
	}
	if _, err := d.Alloc(601); !errors.Is(err, kernel.ErrOutOfMemory) {
		t.Errorf("more than there is: %v", err)
	}
	if err := s.Mul(p, p, p, kernel.F32, 1); !errors.Is(err, kernel.ErrUnsupported) {
		t.Errorf("lacking op: %v", err)
	}
	e, err := d.NewEvent()
	if err != nil {
		t.Fatal(err)
	}
	g.Poison()
	for _, err := range []error{s.Synchronize(), s.Add(p, p, p, kernel.F32, 1), d.Free(p), s.Record(e), e.Synchronize()} {
		if err != nil && !errors.Is(err, kernel.ErrDeviceLost) {
			t.Error(err)
		}
	}
	if _, err := d.Alloc(1); !errors.Is(err, kernel.ErrDeviceLost) {
		t.Error(err)
	}
}
