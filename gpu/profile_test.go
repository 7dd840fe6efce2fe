package gpu

import (
	"bytes"
	"encoding/json"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/vibrant-ml/vibrant/internal/backend/fake"
	"github.com/vibrant-ml/vibrant/internal/backend/kernel"
)

// addOn enqueues out = a + a of n floats.
func addOn(t testing.TB, s *Stream, out, a *Buffer, n int) {
	t.Helper()
	if err := s.Do(func(k kernel.Stream) error { return k.Add(out.ptr, a.ptr, a.ptr, kernel.F32, n) }); err != nil {
		t.Fatal(err)
	}
}

func TestProfileSumsUpOperations(t *testing.T) {
	const delay, n = 2 * time.Millisecond, 1000
	d, _ := openFake(t, fake.Config{Delay: delay}, WithProfiling())
	s := d.Stream()
	a, out := must[*Buffer](t)(d.Alloc(4*n)), must[*Buffer](t)(d.Alloc(4*n))
	defer a.Free()
	defer out.Free()
	if err := a.CopyFromHost(make([]byte, 4*n)); err != nil {
		t.Fatal(err)
	}
	p := must[*Profile](t)(d.Profile())
	for range 3 {
		addOn(t, s, out, a, n)
	}
	g := must[*Graph](t)(s.Capture(func() error { addOn(t, s, out, a, n); return nil }))
	defer g.Close()
	for range 2 { // a graph's operations are counted one by one
		if err := g.Launch(); err != nil {
			t.Fatal(err)
		}
	}
	found := map[string]Operation{}
	for _, o := range must[[]Operation](t)(p.Operations()) {
		found[o.Name] = o
	}
	add, upload := found["Add"], found["CopyToDevice"]
	if add.Calls != 5 || add.Bytes != 5*3*4*n || add.Time < 5*delay || !(add.Roofline > 0) || add.Roofline > 100 {
		t.Errorf("Add: %+v", add)
	}
	if upload.Calls != 1 || upload.Bytes != 4*n || upload.Roofline != 0 {
		t.Errorf("CopyToDevice: %+v", upload)
	}
	if err := p.Reset(); err != nil {
		t.Fatal(err)
	}
	if all := must[[]Operation](t)(p.Operations()); len(all) != 0 {
		t.Errorf("after Reset: %+v", all)
	}
}

// TestProfiledResultsAreUnchanged holds what a profiled device computes to the sums themselves.
func TestProfiledResultsAreUnchanged(t *testing.T) {
	d, _ := openFake(t, fake.Config{}, WithProfiling())
	a, out := must[*Buffer](t)(d.Alloc(8)), must[*Buffer](t)(d.Alloc(8))
	defer a.Free()
	defer out.Free()
	if err := a.CopyFromHost([]byte{0, 0, 128, 63, 0, 0, 0, 64}); err != nil { // 1, 2
		t.Fatal(err)
	}
	addOn(t, d.Stream(), out, a, 2)
	got := make([]byte, 8)
	if err := out.CopyToHost(got); err != nil {
		t.Fatal(err)
	}
	if want := []byte{0, 0, 0, 64, 0, 0, 128, 64}; !bytes.Equal(got, want) {
		t.Errorf("sums %v, want %v", got, want)
	}
}

func TestUsageIsTrackedByName(t *testing.T) {
	const n = 64
	d, _ := openFake(t, fake.Config{}, WithProfiling())
	s := d.Stream()
	a, out := must[*Buffer](t)(d.Alloc(4*n)), must[*Buffer](t)(d.Alloc(4*n))
	defer a.Free()
	defer out.Free()
	var kept *Buffer
	for range 2 {
		err := s.Named("step", func() error {
			addOn(t, s, out, a, n)
			return s.Named("inner", func() error {
				addOn(t, s, out, a, n)
				if kept == nil {
					kept = must[*Buffer](t)(d.Alloc(1 << 20))
				}
				return nil
			})
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	defer kept.Free()
	addOn(t, s, out, a, n)
	p := must[*Profile](t)(d.Profile())
	found := map[string]Usage{}
	for _, u := range must[[]Usage](t)(p.Usage()) {
		found[u.Name] = u
	}
	step, inner := found["step"], found["step/inner"]
	if len(found) != 2 || step.Operations != 4 || step.Entered != 2 || step.Bytes != 4*3*4*n || step.Held < 1<<20 {
		t.Errorf("step: %+v of %v", step, found)
	}
	if inner.Operations != 2 || inner.Entered != 2 || inner.Held != step.Held {
		t.Errorf("inner: %+v", inner)
	}
	wants(t, s.Named("", func() error { return nil }), ErrInvalid)
	failed := errors.New("failed")
	wants(t, CPU().Stream().Named("no profile", func() error { return failed }), failed)
}

func TestProfileWantsTheOption(t *testing.T) {
	d, _ := openFake(t, fake.Config{})
	_, err := d.Profile()
	wants(t, err, ErrInvalid)
	if err == nil || !strings.Contains(err.Error(), "WithProfiling") {
		t.Errorf("%v does not name the option", err)
	}
}

func TestProfiledStreamsMayNotJoinACommunicator(t *testing.T) {
	b := fake.New(fake.Config{Devices: 2})
	var streams []*Stream
	for i := range 2 {
		d := must[*Device](t)(OpenBackend(b, i, WithProfiling()))
		defer d.Close()
		streams = append(streams, d.Stream())
	}
	_, err := NewCommunicator(streams...)
	wants(t, err, ErrUnsupported)
}

func TestAClosedDeviceHasNoProfile(t *testing.T) {
	d, _ := openFake(t, fake.Config{}, WithProfiling())
	p := must[*Profile](t)(d.Profile())
	d.Close()
	_, err := p.Operations()
	wants(t, err, ErrClosed)
	wants(t, p.WriteTrace(&bytes.Buffer{}), ErrClosed)
}

// readTrace parses a trace by the rules of its format.
func readTrace(t *testing.T, p *Profile) []traceEvent {
	t.Helper()
	var out bytes.Buffer
	if err := p.WriteTrace(&out); err != nil {
		t.Fatal(err)
	}
	var trace struct{ TraceEvents []traceEvent }
	if err := json.Unmarshal(out.Bytes(), &trace); err != nil {
		t.Fatalf("%v in %s", err, out.Bytes())
	}
	for _, e := range trace.TraceEvents {
		if e.Name == "" || e.Phase != "X" && e.Phase != "M" || e.Phase == "X" && (e.Took == nil || *e.Took < 0 || e.Start < 0) {
			t.Errorf("trace event %+v", e)
		}
	}
	return trace.TraceEvents
}

func TestTraceNestsOperationsInNames(t *testing.T) {
	d, _ := openFake(t, fake.Config{Delay: time.Millisecond}, WithProfiling())
	s := d.Stream()
	a, out := must[*Buffer](t)(d.Alloc(256)), must[*Buffer](t)(d.Alloc(256))
	defer a.Free()
	defer out.Free()
	err := s.Named("outer", func() error {
		addOn(t, s, out, a, 64)
		return s.Named("inner", func() error { addOn(t, s, out, a, 64); return nil })
	})
	if err != nil {
		t.Fatal(err)
	}
	addOn(t, s, out, a, 64)
	var adds []traceEvent
	spans := map[string]traceEvent{}
	for _, e := range readTrace(t, must[*Profile](t)(d.Profile())) {
		switch {
		case e.Phase != "X":
		case e.Category == "name":
			spans[e.Name] = e
		default:
			adds = append(adds, e)
		}
	}
	if len(adds) != 3 || len(spans) != 2 {
		t.Fatalf("%d operations in %d names", len(adds), len(spans))
	}
	within := func(e, span traceEvent) bool {
		return e.Start >= span.Start && e.Start+*e.Took <= span.Start+*span.Took+1e-3
	}
	for i, want := range []struct{ outer, inner bool }{{true, false}, {true, true}, {false, false}} {
		if within(adds[i], spans["outer"]) != want.outer || within(adds[i], spans["inner"]) != want.inner {
			t.Errorf("operation %d at %v: outer %+v, inner %+v", i, adds[i].Start, spans["outer"], spans["inner"])
		}
		if adds[i].Args["bytes"].(float64) != 3*256 {
			t.Errorf("operation %d: %v", i, adds[i].Args)
		}
	}
}

// TestCopyAndComputeOverlap runs as much copying as computing on two streams, and finds both at work at once: on a GPU in the time of
// all of it, and in the trace. The fake GPU's streams are goroutines, which a busy machine runs as it likes: that the trace has both at
// work at any moment says that neither stream waits for the other.
func TestCopyAndComputeOverlap(t *testing.T) {
	t.Run("fake", func(t *testing.T) {
		d, _ := openFake(t, fake.Config{Delay: 3 * time.Millisecond}, WithProfiling())
		overlap(t, d, 1<<10, 16, 8, 0, 0)
	})
	t.Run("cuda", func(t *testing.T) {
		d, err := Open("cuda", WithProfiling())
		if err != nil {
			t.Skip(err)
		}
		defer d.Close()
		overlap(t, d, 256<<20, 2048, 4, 1.6, 0.4)
	})
}

// overlap copies bytes some times on one stream, multiplies matrices of k x k on another for as long, and compares with one after the
// other. It wants to be more than so many times as fast, and both streams at work for more than so much of the time.
func overlap(t *testing.T, d *Device, bytes int64, k, copies int, wanted, wantedPart float64) {
	compute, transfer := d.Stream(), must[*Stream](t)(d.NewStream())
	defer transfer.Close()
	host := must[kernel.Ptr](t)(d.kernel.AllocHost(bytes))
	defer d.kernel.FreeHost(host)
	a, c := must[*Buffer](t)(d.Alloc(int64(4*k*k))), must[*Buffer](t)(d.Alloc(int64(4*k*k)))
	defer a.Free()
	defer c.Free()
	to := must[*Buffer](t)(transfer.Alloc(bytes))
	defer to.Free()
	if err := compute.Do(func(s kernel.Stream) error { return s.Memset(a.ptr, 0, int64(4*k*k)) }); err != nil {
		t.Fatal(err)
	}
	copying := func() error {
		return transfer.Do(func(s kernel.Stream) error { return s.CopyToDevice(to.ptr, host, bytes) })
	}
	computing := func() error {
		return compute.Do(func(s kernel.Stream) error {
			return s.MatMul(&kernel.MatMulArgs{C: c.ptr, A: a.ptr, B: a.ptr, M: k, K: k, N: k, Batch: 1, AStride: k, BStride: k, CStride: k})
		})
	}
	timeOf := func(copies, products int) time.Duration {
		t.Helper()
		start := time.Now()
		for i := range max(copies, products) {
			if i < products {
				if err := computing(); err != nil {
					t.Fatal(err)
				}
			}
			if i < copies {
				if err := copying(); err != nil {
					t.Fatal(err)
				}
			}
		}
		for _, s := range []*Stream{compute, transfer} {
			if err := s.Synchronize(); err != nil {
				t.Fatal(err)
			}
		}
		return time.Since(start)
	}
	timeOf(1, 1)
	oneCopy, oneProduct := timeOf(copies, 0)/time.Duration(copies), timeOf(0, 8)/8
	products := max(1, int(math.Round(float64(copies)*float64(oneCopy)/float64(oneProduct))))
	p := must[*Profile](t)(d.Profile())
	ratio, part := 0.0, 0.0
	for range 20 { // on a busy machine the host is late now and then
		if err := p.Reset(); err != nil {
			t.Fatal(err)
		}
		apart := timeOf(copies, 0) + timeOf(0, products)
		if err := p.Reset(); err != nil {
			t.Fatal(err)
		}
		together := timeOf(copies, products)
		both, all := traceOverlap(readTrace(t, p))
		ratio, part = float64(apart)/float64(together), both/all
		if ratio > wanted && part > wantedPart {
			break
		}
	}
	t.Logf("%d copies of %d bytes, %d products of %d: %.2f times as fast as one after the other", copies, bytes, products, k, ratio)
	if !(ratio > wanted && part > wantedPart) {
		t.Errorf("copying and computing together is %.2f times as fast as one after the other, want %v; both streams work for %.0f %% of the time in the trace, want %.0f",
			ratio, wanted, 100*part, 100*wantedPart)
	}
}

// traceOverlap returns the microseconds in which both tracks have an operation, and those from the first to the last one.
func traceOverlap(events []traceEvent) (both, all float64) {
	first, last := math.Inf(1), 0.0
	for _, e := range events {
		if e.Phase != "X" {
			continue
		}
		first, last = min(first, e.Start), max(last, e.Start+*e.Took)
		for _, o := range events {
			if o.Phase == "X" && o.Track > e.Track {
				both += max(0, min(e.Start+*e.Took, o.Start+*o.Took)-max(e.Start, o.Start))
			}
		}
	}
	return both, last - first
}
