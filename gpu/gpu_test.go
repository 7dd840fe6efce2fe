package gpu

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
	"unsafe"

	"go.uber.org/goleak"

	"github.com/vibrant-ml/vibrant/internal/backend/fake"
	"github.com/vibrant-ml/vibrant/internal/backend/kernel"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// openFake opens a fake GPU and checks at the end that it was used well and that nothing is left on it.
func openFake(t testing.TB, c fake.Config, opts ...Option) (*Device, *fake.GPU) {
	t.Helper()
	b := fake.New(c)
	d, err := OpenBackend(b, 0, opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
		if n := b.GPU(0).Used(); n != 0 {
			t.Errorf("%d bytes of the device are still allocated after Close", n)
		}
		for _, err := range b.GPU(0).Misuse() {
			t.Error(err)
		}
	})
	return d, b.GPU(0)
}

func must[T any](t testing.TB) func(T, error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func wants(t testing.TB, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("got error %v, want %v", err, want)
	}
}

func pattern(n int, seed uint64) []byte {
	r := rand.New(rand.NewPCG(seed, 0))
	b := make([]byte, 0, n+8)
	for len(b) < n {
		b = binary.LittleEndian.AppendUint64(b, r.Uint64())
	}
	return b[:n]
}

func TestDevicesListsTheCPUFirst(t *testing.T) {
	all := must[[]Info](t)(Devices())
	if len(all) == 0 || all[0].ID != "cpu" || !all[0].HostMemory || all[0].TotalMemory <= 0 || all[0].Multiprocessors <= 0 {
		t.Fatalf("devices: %+v", all)
	}
	d := CPU()
	if d.Info().ID != "cpu" || d != CPU() {
		t.Errorf("the process-wide CPU is %v", d)
	}
	if free, total, err := d.Memory(); err != nil || free <= 0 || free > total {
		t.Errorf("memory: %d free of %d, %v", free, total, err)
	}
	d.Close()
	if CPU() == d || CPU().Err() != nil {
		t.Error("CPU returns a closed device")
	}
	CPU().Close()
}

func TestOpenNamesWhatIsWrong(t *testing.T) {
	for _, id := range []string{"", "tpu", "cuda:", "cuda:x", "cuda:-1", "cuda:+1", "cuda:01", "cuda: 1", "cuda:1 ", " cuda:1", "cuda:1e0", "cuda:0x1",
		"cuda:-0", "cuda:1_0", "cuda:99999999999999999999", "cuda:1:2", "cpu:00", "cpu:1", "cpu ", "CPU", "CUDA", "CUDA:0"} {
		_, err := Open(id)
		wants(t, err, ErrInvalid)
		if err == nil || !strings.Contains(err.Error(), `"`+id+`"`) {
			t.Errorf("Open(%q): %v does not name it", id, err)
		}
	}
	for _, n := range []int{-1, 1025} {
		_, err := Open("cpu", WithThreads(n))
		wants(t, err, ErrInvalid)
		if err == nil || !strings.Contains(err.Error(), strconv.Itoa(n)) {
			t.Errorf("%d threads: %v does not name them", n, err)
		}
	}
	_, err := Open("cpu", WithPoolFraction(0))
	wants(t, err, ErrInvalid)
	_, err = OpenBackend(fake.New(fake.Config{}), 3)
	wants(t, err, ErrNoDevice)
	if d, err := Open("cuda"); err == nil {
		d.Close()
	} else if !errors.Is(err, ErrNotCompiled) && !errors.Is(err, ErrNoDevice) && !errors.Is(err, ErrNoKernelImage) {
		t.Errorf("Open(cuda): %v", err)
	}
}

func TestCopiesOfAnySizeComeBack(t *testing.T) {
	for _, c := range []struct {
		name string
		open func(t *testing.T) *Device
	}{
		{"fake", func(t *testing.T) *Device { d, _ := openFake(t, fake.Config{Delay: 100 * time.Microsecond}); return d }},
		{"cpu", func(t *testing.T) *Device {
			d := must[*Device](t)(Open("cpu"))
			t.Cleanup(func() { d.Close() })
			return d
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := c.open(t)
			for _, n := range []int{0, 1, 127, 255, smallCopy - 1, smallCopy, smallCopy + 1, 2*largeCopy - 5, 2 * largeCopy, 3*largeCopy + 17} {
				b := must[*Buffer](t)(d.Alloc(int64(n)))
				src := pattern(n, uint64(n))
				sent := bytes.Clone(src)
				if err := b.CopyFromHost(sent); err != nil {
					t.Fatal(err)
				}
				clear(sent) // the caller may reuse it at once
				got := make([]byte, n)
				if err := b.CopyToHost(got); err != nil {
					t.Fatal(err)
				}
				if !bytes.Equal(got, src) {
					t.Errorf("%d bytes came back different", n)
				}
				b.Free()
			}
		})
	}
}

func TestManySmallCopiesKeepTheirOrder(t *testing.T) {
	d, _ := openFake(t, fake.Config{})
	b := must[*Buffer](t)(d.Alloc(100))
	src := make([]byte, 100)
	for i := range 3000 { // several times around the staging buffers
		src[0], src[99] = byte(i), byte(i>>8)
		if err := b.CopyFromHost(src); err != nil {
			t.Fatal(err)
		}
		if i%500 == 7 || i == 2999 {
			got := make([]byte, 100)
			if err := b.CopyToHost(got); err != nil || !bytes.Equal(got, src) {
				t.Fatalf("copy %d: %v, %v", i, err, got)
			}
		}
	}
}

func TestCopiesOutsideABufferAreRefused(t *testing.T) {
	d, _ := openFake(t, fake.Config{})
	b := must[*Buffer](t)(d.Alloc(100)) // its block is larger
	wants(t, b.CopyFromHost(make([]byte, 101)), ErrInvalid)
	wants(t, b.CopyToHost(make([]byte, 101)), ErrInvalid)
	wants(t, b.CopyFromHostAt(make([]byte, 1), 100), ErrInvalid)
	wants(t, b.CopyFromHostAt(make([]byte, 1), -1), ErrInvalid)
	wants(t, b.CopyToHostAt(make([]byte, 2), 99), ErrInvalid)
	_, err := d.Alloc(-1)
	wants(t, err, ErrInvalid)
	_, err = d.Alloc(1 << 60)
	wants(t, err, ErrInvalid)
	_, err = d.FromHost(make([]byte, 10), nil)
	wants(t, err, ErrUnsupported)
}

func TestHostMemoryIsUsedInPlaceByTheCPU(t *testing.T) {
	d := must[*Device](t)(Open("cpu"))
	defer d.Close()
	memory := pattern(1000, 1)
	b := must[*Buffer](t)(d.FromHost(memory, nil))
	if b.Ptr() != unsafe.Pointer(&memory[0]) || b.Size() != 1000 {
		t.Error("the buffer is not the memory")
	}
	b.Free()
	b.Free()
	wants(t, b.CopyToHost(make([]byte, 1)), ErrClosed)
}

func TestEndedHandlesFailAndCloseTwice(t *testing.T) {
	d, g := openFake(t, fake.Config{})
	s := must[*Stream](t)(d.NewStream())
	b, onStream := must[*Buffer](t)(d.Alloc(10)), must[*Buffer](t)(s.Alloc(10))
	e := d.NewEvent()
	if err := s.Record(e); err != nil {
		t.Fatal(err)
	}
	graph := must[*Graph](t)(s.Capture(func() error { return nil }))

	s.Close()
	wants(t, s.Synchronize(), ErrClosed)
	wants(t, onStream.CopyToHost(make([]byte, 1)), ErrClosed)
	wants(t, graph.Launch(), ErrClosed)
	_, err := s.Alloc(1)
	wants(t, err, ErrClosed)
	onStream.Free()

	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	wants(t, d.Err(), ErrClosed)
	wants(t, b.CopyFromHost(make([]byte, 1)), ErrClosed)
	wants(t, b.Err(), ErrClosed)
	wants(t, d.Stream().Synchronize(), ErrClosed)
	wants(t, s.Record(e), ErrClosed)
	_, err = e.Done()
	wants(t, err, ErrClosed)
	_, err = d.Alloc(1)
	wants(t, err, ErrClosed)
	_, err = d.NewStream()
	wants(t, err, ErrClosed)
	_, _, err = d.Memory()
	wants(t, err, ErrClosed)
	for range 2 {
		b.Free()
		graph.Close()
		e.Close()
		s.Close()
		d.Stream().Close()
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	}
	if g.Used() != 0 {
		t.Errorf("%d bytes left", g.Used())
	}
}

func TestALostDeviceStaysLost(t *testing.T) {
	d, g := openFake(t, fake.Config{})
	b := must[*Buffer](t)(d.Alloc(1000))
	g.Poison()
	err := b.CopyFromHost(make([]byte, 1000))
	wants(t, err, ErrDeviceLost)
	if !strings.Contains(err.Error(), "illegal address") {
		t.Errorf("%v does not say why", err)
	}
	calls := g.Calls(fake.Copy)
	wants(t, b.CopyToHost(make([]byte, 1)), ErrDeviceLost)
	wants(t, d.Stream().Synchronize(), ErrDeviceLost)
	_, err = d.Alloc(10)
	wants(t, err, ErrDeviceLost)
	wants(t, d.Err(), ErrDeviceLost)
	if g.Calls(fake.Copy) != calls {
		t.Error("the device was asked again")
	}
	b.Free()
	if err := d.Close(); err != nil {
		t.Errorf("closing a lost device: %v", err)
	}
}

func TestInjectedFaultsAreReportedAndPass(t *testing.T) {
	boom := errors.New("boom")
	d, g := openFake(t, fake.Config{})
	b := must[*Buffer](t)(d.Alloc(1000))
	data := pattern(1000, 3)
	for _, c := range []struct {
		name string
		call fake.Call
		do   func() error
	}{
		{"alloc", fake.Alloc, func() error { b, err := d.Alloc(5000); b.Free(); return err }},
		{"staging", fake.AllocHost, func() error { return b.CopyFromHost(data) }},
		{"upload", fake.Copy, func() error { return b.CopyFromHost(data) }},
		{"download", fake.Copy, func() error { return b.CopyToHost(make([]byte, 10)) }},
		{"launch", fake.Launch, func() error {
			return d.Stream().Do(func(k kernel.Stream) error { return k.Memset(b.Ptr(), 0, 10) })
		}},
		{"sync", fake.Sync, func() error { return d.Stream().Synchronize() }},
	} {
		t.Run(c.name, func(t *testing.T) {
			g.FailAfter(c.call, 0, boom)
			wants(t, c.do(), boom)
			if err := c.do(); err != nil {
				t.Errorf("after the fault: %v", err)
			}
		})
	}
}

func TestEventsOrderStreamsAndMeasureTime(t *testing.T) {
	const delay = 2 * time.Millisecond
	d, _ := openFake(t, fake.Config{Delay: delay})
	a, b := d.Stream(), must[*Stream](t)(d.NewStream())
	x, y := must[*Buffer](t)(a.Alloc(1000)), must[*Buffer](t)(b.Alloc(1000))
	start, written := d.NewEvent(), d.NewEvent()
	data := pattern(1000, 5)
	begin := time.Now()
	if err := errors.Join(b.Wait(written), a.Record(start), x.CopyFromHost(data), a.Record(written), b.Wait(written)); err != nil {
		t.Fatal(err)
	}
	if done, err := written.Done(); done && time.Since(begin) < delay || err != nil {
		t.Errorf("done before the work could be: %v, %v", done, err)
	}
	err := b.Do(func(k kernel.Stream) error { return k.CopyOnDevice(y.Ptr(), x.Ptr(), 1000) })
	got := make([]byte, 1000)
	if err := errors.Join(err, y.CopyToHost(got)); err != nil || !bytes.Equal(got, data) {
		t.Errorf("the second stream read too early: %v", err)
	}
	if done, err := written.Done(); !done || err != nil {
		t.Errorf("not done: %v, %v", done, err)
	}
	if dt, err := written.Since(start); err != nil || dt < delay {
		t.Errorf("took %v, %v", dt, err)
	}
	other, _ := openFake(t, fake.Config{})
	wants(t, other.Stream().Record(written), ErrInvalid)
	start.Close()
	wants(t, a.Record(start), ErrClosed)
}

func TestAnyGoroutineMayUseADevice(t *testing.T) {
	d, _ := openFake(t, fake.Config{Memory: 4 << 20})
	streams := []*Stream{d.Stream(), must[*Stream](t)(d.NewStream()), must[*Stream](t)(d.NewStream())}
	var wg sync.WaitGroup
	for i := range 12 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			r := rand.New(rand.NewPCG(uint64(i), 9))
			for j := range 40 {
				s := streams[r.IntN(len(streams))]
				n := 1 + r.IntN(20000)
				b, err := s.Alloc(int64(n))
				if err != nil {
					t.Error(err)
					return
				}
				src, got := pattern(n, uint64(i*1000+j)), make([]byte, n)
				if err := errors.Join(b.CopyFromHost(src), b.CopyToHost(got)); err != nil || !bytes.Equal(got, src) {
					t.Errorf("goroutine %d: %v, equal %v", i, err, bytes.Equal(got, src))
					return
				}
				switch r.IntN(3) {
				case 0:
					b.Free()
				case 1:
					go b.Free()
					b.Free()
				} // else dropped
				if j%20 == 19 {
					d.Pool().Trim()
				}
			}
		}()
	}
	wg.Wait()
}

func TestClosingWhileOthersWork(t *testing.T) {
	d, _ := openFake(t, fake.Config{})
	var wg sync.WaitGroup
	for range 6 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for {
				s, err := d.NewStream()
				if err == nil {
					var b *Buffer
					if b, err = s.Alloc(3000); err == nil {
						e := d.NewEvent()
						err = errors.Join(b.CopyFromHost(make([]byte, 3000)), s.Record(e), e.Synchronize(), e.Close())
						b.Free()
					}
					s.Close()
				}
				if err != nil {
					wants(t, err, ErrClosed)
					return
				}
			}
		}()
	}
	time.Sleep(5 * time.Millisecond)
	if err := d.Close(); err != nil {
		t.Error(err)
	}
	wg.Wait()
}
