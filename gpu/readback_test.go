package gpu

import (
	"bytes"
	"testing"
	"time"

	"github.com/vibrant-ml/vibrant/internal/backend/fake"
)

func TestReadbackReturnsWhatTheStreamHeldWhenItWasStarted(t *testing.T) {
	d, _ := openFake(t, fake.Config{Delay: time.Millisecond})
	s := must[*Stream](t)(d.NewStream())
	a, b := must[*Buffer](t)(s.Alloc(8)), must[*Buffer](t)(s.Alloc(1000))
	r := s.NewReadback()
	defer r.Close()
	if _, err := r.Wait(); err == nil {
		t.Error("waited for nothing")
	}
	write := func(v byte) {
		t.Helper()
		for _, x := range []*Buffer{a, b} {
			if err := x.CopyFromHost(bytes.Repeat([]byte{v}, int(x.Size()))); err != nil {
				t.Fatal(err)
			}
		}
	}
	start := func(parts ...Part) {
		t.Helper()
		if err := r.Start(parts...); err != nil {
			t.Fatal(err)
		}
	}
	check := func(want ...byte) {
		t.Helper()
		if got, err := r.Wait(); err != nil || !bytes.Equal(got, want) {
			t.Errorf("got %v, %v, want %v", got, err, want)
		}
	}
	write(1)
	start(Part{a, 6, 2}, Part{b, 999, 1})
	write(2)
	start(Part{a, 0, 1})
	wants(t, r.Start(Part{a, 0, 1}), ErrInvalid)
	check(1, 1, 1)
	write(3)
	start(Part{b, 0, 1000}) // outgrows the slot
	check(2)
	check(bytes.Repeat([]byte{3}, 1000)...)
	start(Part{a, 0, 8})
	r.Drop()
	write(4)
	start(Part{a, 0, 3}, Part{a, 0, 0})
	check(4, 4, 4)
	wants(t, r.Start(Part{a, 7, 2}), ErrInvalid)
	wants(t, r.Start(Part{must[*Buffer](t)(d.Alloc(1)), 0, 1}), ErrInvalid)
	start(Part{a, 0, 8})
	r.Close()
	r.Close()
	b.Free()
	wants(t, r.Start(Part{b, 0, 1}), ErrClosed)
}

func TestReadbackOutlivesItsDevice(t *testing.T) {
	d, _ := openFake(t, fake.Config{})
	r := d.Stream().NewReadback()
	b := must[*Buffer](t)(d.Alloc(4))
	if err := r.Start(Part{b, 0, 4}); err != nil {
		t.Fatal(err)
	}
	d.Close()
	r.Wait() // an error or not, but no hang
	r.Close()
}
