package gpu

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"

	"github.com/vibrant-ml/vibrant/internal/backend/kernel"
)

// Communicator joins streams of several devices, one a rank, so that they compute together: collectives
// (tensor.AllReduceInto, tensor.AllGatherInto) enqueue a part on each stream, and every rank gets the same bits. A
// communicator of one stream is that stream alone, so that a program has one path. GPUs exchange through each other's
// memory, over NVLink or PCIe.
//
// No rank's part ends before all have begun. So what a communicator enqueues on its streams comes there in one order
// for all communicators of the process, which take turns on a device, and a Graphs launches on all its devices. A rank
// that waits for 30 seconds loses its device.
type Communicator struct {
	streams []*Stream           // of this process
	kernel  kernel.Communicator // nil for one stream, and after Close; every stream's lock guards it
	closed  bool

	ranks  *Ranks // the processes that are joined too; nil for this one alone
	staged bool   // what is exchanged passes through host memory
}

// collective is held while something that makes devices wait for each other is given to all of them: another order on
// another device would have them wait for ever.
var collective struct {
	sync.Mutex
	newest map[*device]*Communicator // which communicator came to a device last, until it is closed
}

// launching keeps the launches of a communicator's ranks together. It is held for writing while they go to one device
// after the other, and for reading around every other call that may wait for a device: the first launch of a kernel,
// which loads the kernel, and calls of memory and graphs. Such a call would wait for a rank that has begun, and the
// driver would have the next rank's launch wait for the call. No lock but those of pools is taken while it is held.
var launching sync.RWMutex

// call runs f, which may wait for the device.
func (d *device) call(f func() error) error {
	if d.info.HostMemory {
		return f()
	}
	launching.RLock()
	defer launching.RUnlock()
	return f()
}

// NewCommunicator joins streams, each of a device of its own in the order of ranks. (Two streams of one device may be
// joined too, which is for tests: their kernels must find room side by side.) The caller closes it, before its streams.
//
// Errors: ErrInvalid for no stream, more than eight, one twice, or devices of several kinds; ErrUnsupported where two
// GPUs cannot reach each other's memory; ErrOutOfMemory.
func NewCommunicator(streams ...*Stream) (*Communicator, error) {
	if len(streams) < 1 || len(streams) > kernel.MaxRanks {
		return nil, fmt.Errorf("gpu: communicator of %d streams: %w: want 1 to %d", len(streams), ErrInvalid, kernel.MaxRanks)
	}
	seen := map[*Stream]bool{}
	for _, s := range streams {
		if seen[s] {
			return nil, fmt.Errorf("gpu: communicator with a stream of %s twice: %w", s.dev, ErrInvalid)
		}
		seen[s] = true
		if s.dev.info.Backend != streams[0].dev.info.Backend {
			return nil, fmt.Errorf("gpu: communicator of %s and %s: %w: devices of several kinds", streams[0].dev, s.dev, ErrInvalid)
		}
	}
	c := &Communicator{streams: append([]*Stream(nil), streams...)}
	if len(streams) == 1 {
		return c, nil
	}
	for _, s := range streams {
		if s.timed != nil {
			return nil, fmt.Errorf("gpu: communicator of %v: %w: %s is profiled, whose times would be those of waiting for the others",
				c, ErrUnsupported, s.dev)
		}
	}
	err := c.locked(func() (err error) {
		kernels := make([]kernel.Stream, len(streams))
		for i, s := range streams {
			kernels[i] = s.kernel
		}
		if c.kernel, err = streams[0].dev.kernel.NewCommunicator(kernels); err != nil {
			return fmt.Errorf("gpu: communicator of %v: %w", c, err)
		}
		for _, s := range streams {
			s.joined = append(s.joined, c)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return c, nil
}

// NewStreamGroup joins streams of devices of any kinds for Synchronize alone: it has no collectives.
func NewStreamGroup(streams ...*Stream) (*Communicator, error) {
	if len(streams) == 0 {
		return nil, fmt.Errorf("gpu: group of no stream: %w", ErrInvalid)
	}
	return &Communicator{streams: append([]*Stream(nil), streams...)}, nil
}

// String lists the devices: "cuda:0, cuda:1".
func (c *Communicator) String() string {
	text := ""
	for i, s := range c.streams {
		if i > 0 {
			text += ", "
		}
		text += s.dev.String()
	}
	return text
}

// CommunicatorBytes returns the memory that a communicator of so many GPUs takes of each, outside of its pool.
func CommunicatorBytes(ranks int) int64 {
	if ranks < 2 {
		return 0
	}
	return communicatorBytes + int64(ranks)*communicatorRankBytes
}

// communicatorBytes and communicatorRankBytes are a little more than what cuda/collective/exchange.cuh takes for all ranks to
// write to together, and for each one.
const (
	communicatorBytes     = 65 << 20
	communicatorRankBytes = 11 << 20
)

// Ranks returns how many streams are joined, those of other processes too.
func (c *Communicator) Ranks() int {
	if c.ranks != nil {
		return c.ranks.Size()
	}
	return len(c.streams)
}

// Local returns how many ranks are of this process.
func (c *Communicator) Local() int { return len(c.streams) }

// First returns the number of the first rank of this process.
func (c *Communicator) First() int {
	if c.ranks != nil {
		return c.ranks.Rank()
	}
	return 0
}

// Captures reports whether collectives may be captured: those that pass through host memory may not.
func (c *Communicator) Captures() bool { return !c.staged }

// Stream returns that of a local rank: the first has the index 0.
func (c *Communicator) Stream(i int) *Stream { return c.streams[i] }

// order has other communicators of this process wait. Processes keep the order of what they enqueue themselves.
func (c *Communicator) order() (release func()) {
	if c.ranks != nil {
		return func() {}
	}
	collective.Lock()
	return collective.Unlock
}

// takeTurn has what follows wait for the work of the communicators that came to the devices before. The kernels of two
// communicators may have no room beside each other: then each could hold a device that the other waits for. What a
// capture records has no turn.
func (c *Communicator) takeTurn() error {
	first := c.streams[0]
	if c.ranks != nil || c.kernel == nil || first.dev.info.HostMemory || first.capture.Load() != nil {
		return nil
	}
	for _, s := range c.streams {
		before := collective.newest[s.dev]
		if before == nil || before == c {
			continue
		}
		for _, other := range before.streams {
			if other.dev != s.dev {
				continue
			}
			if err := s.awaits(other.stream); err != nil {
				return err
			}
		}
	}
	if collective.newest == nil {
		collective.newest = map[*device]*Communicator{}
	}
	for _, s := range c.streams {
		collective.newest[s.dev] = c
	}
	return nil
}

// locked calls f while nobody else enqueues on any of the streams, nor a collective anywhere.
func (c *Communicator) locked(f func() error) error {
	defer c.order()()
	if err := c.takeTurn(); err != nil {
		return err
	}
	for _, s := range c.streams {
		s.mu.Lock()
		defer s.mu.Unlock()
		if err := s.usable(); err != nil {
			return err
		}
	}
	if c.closed {
		return fmt.Errorf("gpu: communicator of %v: %w", c, ErrClosed)
	}
	if len(c.streams) > 1 {
		launching.Lock()
		defer launching.Unlock()
	}
	return c.check(f())
}

// check notes that devices are lost: where one is, the others wait for it in vain.
func (c *Communicator) check(err error) error {
	if errors.Is(err, ErrDeviceLost) {
		for _, s := range c.streams {
			s.dev.check(err)
		}
	}
	return err
}

// Do enqueues a collective of more than one rank: f runs with the locks of all streams held and must not keep its
// argument, nor call anything of this package. It is the one door to the collectives, for package tensor.
func (c *Communicator) Do(f func(kernel.Communicator) error) error {
	return c.locked(func() error {
		for _, s := range c.streams {
			s.enqueued.Add(1)
		}
		if c.kernel == nil {
			return fmt.Errorf("gpu: collective of a group of streams: %w", ErrUnsupported)
		}
		return f(c.kernel)
	})
}

// Synchronize waits for all work enqueued so far on each stream, and returns the first error.
func (c *Communicator) Synchronize() error {
	var first error
	for _, s := range c.streams {
		if err := s.Synchronize(); err != nil && first == nil {
			first = err
		}
	}
	return first
}

// Close waits for the work of all ranks and gives the communicator's memory back. The streams stay open. Closing nil or
// twice is harmless.
func (c *Communicator) Close() error {
	if c == nil {
		return nil
	}
	defer c.order()()
	for _, s := range c.streams {
		s.mu.Lock()
		defer s.mu.Unlock()
	}
	for _, s := range c.streams {
		s.joined = slices.DeleteFunc(s.joined, func(o *Communicator) bool { return o == c })
	}
	c.closed = true
	for d, newest := range collective.newest {
		if newest == c {
			delete(collective.newest, d)
		}
	}
	k := c.kernel
	c.kernel = nil
	if k == nil {
		return nil
	}
	return k.Close()
}

// Graphs is recorded work of the streams of a communicator: a graph of each, which are launched together.
type Graphs struct {
	communicator *Communicator
	graphs       []*Graph
}

// Capture records what f enqueues on the streams, as Stream.Capture does for one.
func (c *Communicator) Capture(f func() error) (*Graphs, error) {
	g := &Graphs{communicator: c}
	capture := f
	if !c.streams[0].dev.info.HostMemory { // what a CPU replays is f itself, once for all ranks
		for _, s := range c.streams[1:] {
			inner := capture
			capture = func() error {
				one, err := s.Capture(inner)
				if err == nil && one.replay != nil {
					err = fmt.Errorf("gpu: graphs of %s: %w", s.dev, ErrUnsupported)
				}
				if one != nil {
					g.graphs = append(g.graphs, one)
				}
				return err
			}
		}
	}
	first, err := c.streams[0].Capture(capture)
	if first != nil {
		g.graphs = append(g.graphs, first)
	}
	if err == nil && len(c.streams) > 1 {
		err = g.prepare()
	}
	if err != nil {
		g.Close()
		return nil, err
	}
	return g, nil
}

// prepare does what the first launch would do, which may wait for a device that has begun to wait for another.
func (g *Graphs) prepare() error {
	return g.communicator.locked(func() error {
		for _, one := range g.graphs {
			if one.kernel == nil {
				continue
			}
			if err := one.kernel.Prepare(); err != nil {
				return fmt.Errorf("gpu: prepare a graph of %s: %w", one.stream.dev, err)
			}
		}
		return nil
	})
}

// Launch enqueues the work of all graphs.
func (g *Graphs) Launch() error {
	defer runtime.KeepAlive(g)
	if len(g.graphs) == 1 {
		return g.graphs[0].Launch()
	}
	for _, one := range g.graphs {
		one.mu.Lock()
		defer one.mu.Unlock()
		if one.closed {
			return fmt.Errorf("gpu: launch: graph: %w", ErrClosed)
		}
	}
	return g.communicator.locked(func() error {
		for _, one := range g.graphs {
			one.stream.enqueued.Add(1)
			if err := one.stream.kernel.Launch(one.kernel); err != nil {
				return fmt.Errorf("gpu: launch on %s: %w", one.stream.dev, err)
			}
		}
		return nil
	})
}

// Close gives the graphs back. A launch under way still finishes. Closing nil or twice is harmless.
func (g *Graphs) Close() error {
	if g == nil {
		return nil
	}
	var first error
	for _, one := range g.graphs {
		if err := one.Close(); err != nil && first == nil {
			first = err
		}
	}
	return first
}
