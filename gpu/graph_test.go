package gpu

import (
	"errors"
	"testing"
	"time"

	"github.com/vibrant-ml/vibrant/internal/backend/fake"
	"github.com/vibrant-ml/vibrant/internal/backend/kernel"
)

func fill(s *Stream, b *Buffer, v byte) error {
	return s.Do(func(k kernel.Stream) error { return k.Memset(b.Ptr(), v, b.Size()) })
}

func read(t *testing.T, b *Buffer) byte {
	t.Helper()
	got := make([]byte, b.Size())
	if err := b.CopyToHost(got); err != nil {
		t.Fatal(err)
	}
	for _, v := range got {
		if v != got[0] {
			t.Fatalf("mixed contents: %d and %d", v, got[0])
		}
	}
	return got[0]
}

func TestACaptureIsReplayedNotRun(t *testing.T) {
	for name, c := range map[string]fake.Config{"graphs": {Delay: time.Millisecond}, "without": {NoGraphs: true}} {
		t.Run(name, func(t *testing.T) {
			d, _ := openFake(t, c)
			s, b := d.Stream(), must[*Buffer](t)(d.Alloc(1000))
			if err := fill(s, b, 1); err != nil {
				t.Fatal(err)
			}
			g := must[*Graph](t)(s.Capture(func() error { return fill(s, b, 7) }))
			if v := read(t, b); v != 1 {
				t.Fatalf("capturing wrote %d", v)
			}
			for range 3 {
				if err := errors.Join(fill(s, b, 1), g.Launch()); err != nil {
					t.Fatal(err)
				}
				if v := read(t, b); v != 7 {
					t.Fatalf("replay left %d", v)
				}
			}
			newer := must[*Graph](t)(s.Capture(func() error { return fill(s, b, 9) }))
			if err := errors.Join(g.Update(newer), newer.Close(), g.Launch()); err != nil {
				t.Fatal(err)
			}
			if v := read(t, b); v != 9 {
				t.Errorf("the updated graph left %d", v)
			}
			g.Close()
			g.Close()
			wants(t, g.Launch(), ErrClosed)
			wants(t, g.Update(newer), ErrClosed)
		})
	}
}

// A stream that uses what another one records waits for the work before the capture, and is not drawn into it.
func TestAStreamFollowsOneThatRecords(t *testing.T) {
	d, _ := openFake(t, fake.Config{Delay: 20 * time.Millisecond})
	s, other, third := d.Stream(), must[*Stream](t)(d.NewStream()), must[*Stream](t)(d.NewStream())
	b, copied := must[*Buffer](t)(s.Alloc(1000)), must[*Buffer](t)(other.Alloc(1000))
	recorded := must[*Buffer](t)(third.Alloc(1000))
	take := func(by *Stream, to *Buffer) error {
		return errors.Join(b.Use(by), by.Do(func(k kernel.Stream) error { return k.CopyOnDevice(to.Ptr(), b.Ptr(), 1000) }))
	}
	if err := fill(s, b, 5); err != nil {
		t.Fatal(err)
	}
	var inner *Graph
	g, err := s.Capture(func() (err error) {
		if err := errors.Join(fill(s, b, 6), take(other, copied)); err != nil {
			return err
		}
		inner, err = third.Capture(func() error { return take(third, recorded) })
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if v := read(t, copied); v != 5 {
		t.Errorf("a stream beside the capture has read %d", v)
	}
	if err := inner.Launch(); err != nil {
		t.Fatal(err)
	}
	if v := read(t, recorded); v != 5 {
		t.Errorf("a second capture has read %d", v)
	}
	if err := errors.Join(g.Launch(), inner.Close(), g.Close(), other.Close(), third.Close()); err != nil {
		t.Fatal(err)
	}
}

func TestMemoryOfACaptureStaysWithItsGraph(t *testing.T) {
	d, _ := openFake(t, fake.Config{})
	s := d.Stream()
	out := must[*Buffer](t)(s.Alloc(3000))
	must[*Buffer](t)(s.Alloc(5000)).Free() // so that the capture meets a cached block
	var kept *Buffer
	g := must[*Graph](t)(s.Capture(func() error {
		a, err := s.Alloc(5000)
		if err != nil {
			return err
		}
		p := a.Ptr()
		err = fill(s, a, 3)
		a.Free()
		again, aerr := s.Alloc(5000) // work of one graph is ordered: it may have the block again
		if aerr == nil && again.Ptr() != p {
			t.Error("a block freed during a capture is not reused in it")
		}
		kept = again
		return errors.Join(err, aerr, fill(s, again, 4), s.Do(func(k kernel.Stream) error {
			return k.CopyOnDevice(out.Ptr(), again.Ptr(), 3000)
		}))
	}))
	p := kept.Ptr()
	kept.Free()
	for range 3 { // nobody else may get the graph's memory
		b := must[*Buffer](t)(s.Alloc(5000))
		if b.Ptr() == p {
			t.Fatal("memory of a live graph was given away")
		}
		if err := errors.Join(fill(s, b, 9), g.Launch()); err != nil {
			t.Fatal(err)
		}
		if v := read(t, b); v != 9 {
			t.Fatalf("a replay wrote %d into memory of others", v)
		}
		if v := read(t, out); v != 4 {
			t.Fatalf("the replay computed %d", v)
		}
	}
	inUse := d.Pool().Stats().InUse
	g.Close()
	if st := d.Pool().Stats(); st.InUse != inUse-5120 {
		t.Errorf("the closed graph keeps memory: %+v", st)
	}
}

func TestWhatCannotBeCapturedIsAnError(t *testing.T) {
	d, _ := openFake(t, fake.Config{})
	s, b := d.Stream(), must[*Buffer](t)(d.Alloc(10))
	for name, f := range map[string]func() error{
		"upload":      func() error { return b.CopyFromHost(make([]byte, 1)) },
		"download":    func() error { return b.CopyToHost(make([]byte, 1)) },
		"synchronize": s.Synchronize,
	} {
		_, err := s.Capture(f)
		if err == nil {
			t.Errorf("%s was captured", name)
		}
		wants(t, err, ErrUnsupported)
	}
	_, err := s.Capture(func() error { _, err := s.Capture(func() error { return nil }); return err })
	wants(t, err, ErrInvalid)
	func() {
		defer func() { recover() }()
		s.Capture(func() error { panic("in between") })
	}()
	if err := fill(s, b, 5); err != nil {
		t.Fatal(err)
	}
	if v := read(t, b); v != 5 {
		t.Errorf("the stream still captures: read %d", v)
	}
	other := must[*Stream](t)(d.NewStream())
	g, h := must[*Graph](t)(s.Capture(func() error { return nil })), must[*Graph](t)(other.Capture(func() error { return nil }))
	wants(t, g.Update(h), ErrInvalid)
	h2 := must[*Graph](t)(s.Capture(func() error { return fill(s, b, 1) }))
	wants(t, g.Update(h2), ErrUnsupported)
}
