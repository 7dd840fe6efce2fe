package gpu

import (
	"errors"
	"runtime"
	"sync/atomic"
	"testing"
	"unsafe"

	"github.com/vibrant-ml/vibrant/internal/backend/fake"
)

// fromC returns memory that outlives Go's objects: of another buffer of the device, which stands for somebody else.
func fromC(t *testing.T, d *Device, bytes int64) *Buffer {
	t.Helper()
	b := must[*Buffer](t)(d.Alloc(bytes))
	t.Cleanup(b.Free)
	return b
}

func TestForeignMemoryIsReleasedOnce(t *testing.T) {
	fakeGPU, _ := openFake(t, fake.Config{})
	cpu := must[*Device](t)(Open("cpu"))
	defer cpu.Close()
	for name, d := range map[string]*Device{"cpu": cpu, "fake": fakeGPU} {
		theirs := fromC(t, d, 1000)
		var released atomic.Int32
		foreign := func() *Buffer {
			return must[*Buffer](t)(d.Stream().Foreign(theirs.Ptr(), 1000, func() { released.Add(1) }))
		}
		b := foreign()
		want := pattern(1000, 3)
		if err := b.CopyFromHost(want); err != nil {
			t.Fatal(err)
		}
		b.Free()
		b.Free()
		if n := released.Load(); n != 1 {
			t.Errorf("%s: freed twice, released %d times", name, n)
		}
		wants(t, b.Err(), ErrClosed)
		got := make([]byte, 1000)
		if err := theirs.CopyToHost(got); err != nil || string(got) != string(want) {
			t.Errorf("%s: what was written is not there (%v)", name, err)
		}
		// Dropped, and never freed.
		foreign()
		eventually(t, name+": dropped memory is not released", func() bool { return released.Load() == 2 })
		// Held by others: Free ends its use here alone.
		b = foreign()
		first, second := must[func()](t)(b.Hold()), must[func()](t)(b.Hold())
		b.Free()
		_, err := b.Hold()
		wants(t, err, ErrClosed)
		first()
		first()
		if n := released.Load(); n != 2 {
			t.Errorf("%s: released while it is held", name)
		}
		second()
		if n := released.Load(); n != 3 {
			t.Errorf("%s: released %d times", name, n)
		}
		runtime.KeepAlive(theirs)
	}
}

func TestForeignMemoryIsReleasedBehindTheWorkOnIt(t *testing.T) {
	d, _ := openFake(t, fake.Config{})
	other := must[*Stream](t)(d.NewStream())
	theirs := fromC(t, d, 64)
	var enqueued uint64
	b := must[*Buffer](t)(d.Stream().Foreign(theirs.Ptr(), 64, func() { enqueued = other.finished.Load() }))
	if err := b.Use(other); err != nil {
		t.Fatal(err)
	}
	if err := other.Enqueue(func(native unsafe.Pointer) error { return nil }); err != nil {
		t.Fatal(err)
	}
	b.Free()
	if enqueued != other.Enqueued() {
		t.Errorf("released when %d of %d pieces of work had finished", enqueued, other.Enqueued())
	}
}

func TestForeignMemoryIsChecked(t *testing.T) {
	d, _ := openFake(t, fake.Config{})
	theirs := fromC(t, d, 1000)
	host := make([]byte, 10)
	for name, f := range map[string]func() (*Buffer, error){
		"negative":   func() (*Buffer, error) { return d.Stream().Foreign(theirs.Ptr(), -1, nil) },
		"nil":        func() (*Buffer, error) { return d.Stream().Foreign(nil, 1, nil) },
		"host":       func() (*Buffer, error) { return d.Stream().Foreign(unsafe.Pointer(&host[0]), 10, nil) },
		"too much":   func() (*Buffer, error) { return d.Stream().Foreign(theirs.Ptr(), 1<<20, nil) },
		"its middle": func() (*Buffer, error) { return d.Stream().Foreign(unsafe.Add(theirs.Ptr(), 500), 1<<20, nil) },
	} {
		if _, err := f(); !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	b := must[*Buffer](t)(d.Stream().Foreign(unsafe.Add(theirs.Ptr(), 500), 500, nil))
	b.Free()
}

func TestEnqueueReturnsTheErrorOfItsFunction(t *testing.T) {
	d, _ := openFake(t, fake.Config{})
	mine := errors.New("mine")
	if err := d.Stream().Enqueue(func(unsafe.Pointer) error { return mine }); err != mine {
		t.Error(err)
	}
	d.Close()
	err := d.Stream().Enqueue(func(unsafe.Pointer) error { t.Error("called"); return nil })
	wants(t, err, ErrClosed)
}
