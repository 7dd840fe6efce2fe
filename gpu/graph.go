package gpu

import (
	"errors"
	"fmt"
	"runtime"
	"sync"

	"github.com/vibrant-ml/vibrant/internal/backend/kernel"
)

// Graph is recorded work, to be launched many times at the cost of one call. It reads and writes the same memory at
// each launch: memory that was allocated or freed while it was captured stays with it until Close, all other memory
// that it uses must outlive it.
type Graph struct{ *graph }

// graph is what a dropped Graph leaves to give back.
type graph struct {
	stream *Stream
	mu     sync.Mutex
	kernel kernel.Graph
	replay func() error // on a device without graphs
	kept   []*block
	closed bool
}

// capture is the recording that goes on on a stream. The pool's lock guards it.
type capture struct {
	kept map[*block]struct{} // blocks that the graph may use, each counted once for it
	free map[int][]*block    // those of them that were freed while capturing: later work of the same graph may use them
}

// Capture records what f enqueues on the stream instead of running it. f may use the stream's memory, but not wait, and
// not copy from or to the host; no other goroutine may use the stream meanwhile.
//
// On a device without graphs, such as a CPU, the graph keeps f itself and Launch calls it: so f should do nothing but
// enqueue work on memory that was allocated before.
func (s *Stream) Capture(f func() error) (*Graph, error) {
	defer runtime.KeepAlive(s)
	s.mu.Lock()
	err := s.usable()
	if err == nil && s.capture.Load() != nil {
		err = fmt.Errorf("gpu: capture while capturing: %w", ErrInvalid)
	}
	if err == nil && !s.dev.info.HostMemory {
		if s.before == nil {
			s.before = s.dev.newEvent()
		}
		err = s.mark(s.before, s.kernel.Record)
	}
	if err == nil {
		err = s.dev.check(s.kernel.BeginCapture())
	}
	if err == nil {
		c := &capture{kept: map[*block]struct{}{}, free: map[int][]*block{}}
		s.dev.pool.keepAll(s.own, c)
		s.capture.Store(c)
	}
	s.mu.Unlock()
	if errors.Is(err, ErrUnsupported) {
		return &Graph{&graph{stream: s, replay: f}}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("gpu: capture: %w", err)
	}
	ended := false
	defer func() {
		if !ended { // f panicked
			if g, _ := s.endCapture(); g != nil {
				g.Close()
			}
		}
	}()
	err = f()
	g, endErr := s.endCapture()
	ended = true
	if err == nil {
		err = endErr
	}
	if err != nil {
		if g != nil {
			g.Close()
		}
		return nil, fmt.Errorf("gpu: capture: %w", err)
	}
	return g, nil
}

func (s *Stream) endCapture() (*Graph, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.capture.Swap(nil)
	if err := s.usable(); err != nil {
		s.dev.pool.putAll(keys(c.kept))
		return nil, err
	}
	var k kernel.Graph
	err := s.dev.call(func() (err error) { k, err = s.kernel.EndCapture(); return err })
	if err != nil {
		s.dev.pool.putAll(keys(c.kept))
		return nil, s.dev.check(err)
	}
	if err := s.dev.adopt(k); err != nil {
		return nil, err // the device is closing: its memory goes with it
	}
	g := &Graph{&graph{stream: s, kernel: k, kept: keys(c.kept)}}
	runtime.AddCleanup(g, func(g *graph) { g.close() }, g.graph)
	return g, nil
}

func keys(m map[*block]struct{}) []*block {
	all := make([]*block, 0, len(m))
	for b := range m {
		all = append(all, b)
	}
	return all
}

// Launch enqueues the graph's work on the stream that it was captured on.
func (g *Graph) Launch() error {
	defer runtime.KeepAlive(g)
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return fmt.Errorf("gpu: launch: graph: %w", ErrClosed)
	}
	if g.replay != nil {
		return g.replay()
	}
	if err := g.stream.Do(func(k kernel.Stream) error { return k.Launch(g.kernel) }); err != nil {
		return fmt.Errorf("gpu: launch: %w", err)
	}
	return nil
}

// updating is held while two graphs are locked, so that the order does not matter.
var updating sync.Mutex

// Update puts the work of a newer capture in place of this graph's, which is cheaper than a new graph where only
// addresses and sizes differ. ErrUnsupported means that more differs: use the newer graph instead. The newer graph is
// not changed and is still to be closed.
func (g *Graph) Update(newer *Graph) error {
	defer runtime.KeepAlive(g)
	defer runtime.KeepAlive(newer)
	if g.graph == newer.graph {
		return nil
	}
	if g.stream != newer.stream {
		return fmt.Errorf("gpu: update: graphs of different streams: %w", ErrInvalid)
	}
	updating.Lock()
	defer updating.Unlock()
	g.mu.Lock()
	defer g.mu.Unlock()
	newer.mu.Lock()
	defer newer.mu.Unlock()
	if g.closed || newer.closed {
		return fmt.Errorf("gpu: update: graph: %w", ErrClosed)
	}
	if g.replay != nil {
		g.replay = newer.replay
		return nil
	}
	if err := g.stream.Do(func(kernel.Stream) error { return g.kernel.Update(newer.kernel) }); err != nil {
		return fmt.Errorf("gpu: update: %w", err)
	}
	pool := g.stream.dev.pool
	pool.share(newer.kept)
	pool.putAll(g.kept)
	g.kept = newer.kept
	return nil
}

// Close gives the graph back. A launch under way still finishes. Closing nil or twice is harmless.
func (g *Graph) Close() error {
	if g == nil {
		return nil
	}
	err := g.close()
	runtime.KeepAlive(g)
	return err
}

func (g *graph) close() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return nil
	}
	g.closed, g.replay = true, nil
	var err error
	if g.kernel != nil {
		err = g.stream.dev.release(g.kernel)
	}
	g.stream.dev.pool.putAll(g.kept)
	g.kept = nil
	return err
}
