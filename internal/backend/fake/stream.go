package fake

import (
	"fmt"
	"slices"
	"sync"
	"time"
	"unsafe"

	"github.com/vibrant-ml/vibrant/internal/backend/kernel"
)

// work is a step of a stream. Steps that are kernels name their op and the memory that they use.
type work struct {
	op     string
	blocks []*block
	run    func() error
}

// stream runs its queue in a goroutine.
type stream struct {
	*device
	kernels kernel.Stream // of internal/backend/purego: computes on host addresses

	q       sync.Mutex
	changed sync.Cond // the queue grew, or became empty
	queue   []work
	busy    bool
	closed  bool
	err     error  // of work since the last synchronization
	capture *graph // what is being recorded

	memory            kernel.Allocator // of the two below; nil: they are not needed
	counters, scratch kernel.Ptr
	scratchBytes      int64
}

const counterBytes = 4096

func (d *device) NewStream(memory kernel.Allocator) (kernel.Stream, error) {
	k, err := d.cpu.NewStream(nil)
	if err != nil {
		return nil, err
	}
	s := &stream{device: d, kernels: preparing{k, d.GPU}}
	s.changed.L = &s.q
	if d.config.Scratch && memory != nil {
		s.memory = memory
		if s.counters, err = memory.Alloc(counterBytes); err != nil {
			return nil, err
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.lost != nil {
		return nil, d.lost
	}
	d.streams[s] = struct{}{}
	go s.serve()
	return handing{s}, nil
}

func (s *stream) serve() {
	s.q.Lock()
	defer s.q.Unlock()
	for {
		for len(s.queue) == 0 {
			if s.closed {
				return
			}
			s.changed.Wait()
		}
		w := s.queue[0]
		s.queue = s.queue[1:]
		s.busy = true
		s.q.Unlock()
		err := s.perform(w)
		s.q.Lock()
		s.busy = false
		if err != nil && s.err == nil {
			s.err = fmt.Errorf("fake: %s: %w", w.op, err)
		}
		if len(s.queue) == 0 {
			s.changed.Broadcast()
		}
	}
}

func (s *stream) perform(w work) error {
	if s.config.Delay > 0 {
		time.Sleep(s.config.Delay)
	}
	s.mu.Lock()
	lost := s.lost
	for _, b := range w.blocks {
		if b.freed && lost == nil { // a replay of a graph whose memory is gone
			lost = s.blame("%s: memory was freed", w.op)
			s.lose(lost.Error())
			lost = s.lost
		}
	}
	s.mu.Unlock()
	if lost != nil && w.op != "record" { // waiters must not hang
		return lost
	}
	return w.run()
}

// enqueue appends work, or records it. The call is what it counts as.
func (s *stream) enqueue(c Call, w work) error {
	s.serial()
	s.mu.Lock()
	err := s.enter(c)
	s.mu.Unlock()
	if err != nil {
		return err
	}
	s.q.Lock()
	defer s.q.Unlock()
	if s.closed {
		return fmt.Errorf("fake: stream: %w", kernel.ErrClosed)
	}
	if s.capture != nil {
		s.capture.steps = append(s.capture.steps, w)
		return nil
	}
	s.push(w)
	return nil
}

func (s *stream) push(w ...work) {
	s.queue = append(s.queue, w...)
	s.changed.Broadcast()
}

// settle waits until the queue is empty. The caller holds q.
func (s *stream) settle() {
	for len(s.queue) > 0 || s.busy {
		s.changed.Wait()
	}
}

// idle waits until the queue is empty and returns the first error of its work.
func (s *stream) idle() error {
	s.q.Lock()
	defer s.q.Unlock()
	s.settle()
	err := s.err
	s.err = nil
	return err
}

func (s *stream) Synchronize() error {
	s.mu.Lock()
	err := s.enter(Sync)
	s.mu.Unlock()
	if err != nil {
		return err
	}
	if err := s.refuseCapture("synchronize"); err != nil {
		return err
	}
	return s.idle()
}

// refuseCapture is what a real device does with calls that cannot be part of a graph.
func (s *stream) refuseCapture(op string) error {
	s.q.Lock()
	defer s.q.Unlock()
	if s.capture != nil {
		return fmt.Errorf("fake: %s during capture: %w", op, kernel.ErrInvalid)
	}
	return nil
}

func (s *stream) copy(op string, dst, src kernel.Ptr, bytes int64, dstOnDevice, srcOnDevice bool) error {
	o := s.op(op)
	if dstOnDevice {
		dst = o.anywhere(dst, bytes)
	}
	if srcOnDevice {
		src = o.anywhere(src, bytes)
	}
	return o.enqueue(Copy, func() error {
		copy(unsafe.Slice((*byte)(dst), bytes), unsafe.Slice((*byte)(src), bytes))
		return nil
	})
}

func (s *stream) CopyToDevice(dst, src kernel.Ptr, bytes int64) error {
	return s.copy("copy to device", dst, src, bytes, true, false)
}

func (s *stream) CopyToHost(dst, src kernel.Ptr, bytes int64) error {
	return s.copy("copy to host", dst, src, bytes, false, true)
}

func (s *stream) CopyOnDevice(dst, src kernel.Ptr, bytes int64) error {
	return s.copy("copy on device", dst, src, bytes, true, true)
}

func (s *stream) Memset(dst kernel.Ptr, value byte, bytes int64) error {
	o := s.op("memset")
	dst = o.at(dst, bytes)
	return o.enqueue(Launch, func() error { return s.kernels.Memset(dst, value, bytes) })
}

func (s *stream) Close() error {
	s.idle()
	for _, p := range []kernel.Ptr{s.scratch, s.counters} {
		if p != nil {
			s.memory.Free(p)
		}
	}
	s.q.Lock()
	s.closed = true
	s.changed.Broadcast()
	s.q.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.streams, s)
	return s.lost
}

// event counts its records, so that waiting means the newest one at the time of the call.
type event struct {
	gpu            *GPU
	mu             sync.Mutex
	changed        sync.Cond
	recorded, done uint64
	at             time.Time
}

func (d *device) NewEvent() (kernel.Event, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	e := &event{gpu: d.GPU}
	e.changed.L = &e.mu
	return e, d.lost
}

func (s *stream) Record(ev kernel.Event) error {
	if err := s.refuseCapture("record"); err != nil {
		return err
	}
	e := ev.(*event)
	e.mu.Lock()
	e.recorded++
	n := e.recorded
	e.mu.Unlock()
	s.q.Lock()
	defer s.q.Unlock()
	s.push(work{op: "record", run: func() error {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.done, e.at = max(e.done, n), time.Now()
		e.changed.Broadcast()
		return nil
	}})
	return nil
}

func (e *event) await(n uint64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for e.done < n {
		e.changed.Wait()
	}
}

func (e *event) newest() uint64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.recorded
}

func (s *stream) Wait(ev kernel.Event) error {
	if err := s.refuseCapture("wait"); err != nil {
		return err
	}
	e := ev.(*event)
	n := e.newest()
	s.q.Lock()
	defer s.q.Unlock()
	s.push(work{op: "wait", run: func() error { e.await(n); return nil }})
	return nil
}

func (e *event) Done() (bool, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.done >= e.recorded, nil
}

func (e *event) Synchronize() error {
	e.await(e.newest())
	e.gpu.mu.Lock()
	defer e.gpu.mu.Unlock()
	return e.gpu.lost
}

func (e *event) ElapsedMS(start kernel.Event) (float32, error) {
	from := start.(*event)
	from.mu.Lock()
	begin, ok := from.at, from.done > 0
	from.mu.Unlock()
	e.mu.Lock()
	defer e.mu.Unlock()
	if !ok || e.done == 0 {
		return 0, fmt.Errorf("fake: elapsed time of an event that was not recorded: %w", kernel.ErrInvalid)
	}
	return float32(e.at.Sub(begin).Seconds() * 1e3), nil
}

func (e *event) Close() error { return nil }

type graph struct{ steps []work }

func (s *stream) BeginCapture() error {
	if s.config.NoGraphs {
		return fmt.Errorf("fake: graphs: %w", kernel.ErrUnsupported)
	}
	s.q.Lock()
	defer s.q.Unlock()
	if s.capture != nil {
		return fmt.Errorf("fake: capture during capture: %w", kernel.ErrInvalid)
	}
	s.capture = &graph{}
	return nil
}

func (s *stream) EndCapture() (kernel.Graph, error) {
	s.q.Lock()
	defer s.q.Unlock()
	g := s.capture
	s.capture = nil
	if g == nil {
		return nil, fmt.Errorf("fake: end of a capture that did not begin: %w", kernel.ErrInvalid)
	}
	return g, nil
}

func (s *stream) Launch(g kernel.Graph) error {
	s.serial()
	s.mu.Lock()
	err := s.enter(Launch)
	s.mu.Unlock()
	if err != nil {
		return err
	}
	s.q.Lock()
	defer s.q.Unlock()
	s.push(g.(*graph).steps...)
	return nil
}

// Update replaces the steps where they are the same operations.
func (g *graph) Update(newer kernel.Graph) error {
	n := newer.(*graph)
	same := slices.EqualFunc(g.steps, n.steps, func(a, b work) bool { return a.op == b.op })
	if !same {
		return fmt.Errorf("fake: update of a graph by other operations: %w", kernel.ErrUnsupported)
	}
	g.steps = n.steps
	return nil
}

func (g *graph) Prepare() error { return nil }

func (g *graph) Close() error { return nil }
