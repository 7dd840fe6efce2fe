package model

import (
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/vibrant-ml/vibrant/gpu"
	"github.com/vibrant-ml/vibrant/internal/ranks"
	"github.com/vibrant-ml/vibrant/tensor"
)

// Ranks in other processes. Rank 0 is used as a model on one device is. What it does with streams, caches, workspaces and passes
// it orders the others to do too, each order before its own part; they follow in Model.Follow. So all ranks enqueue the same
// collectives in the same order. Tokens are chosen on rank 0 alone: ids and positions go to the others at the start of a pass,
// from device to device. What is not ordered does not happen, so that cancelling rank 0 cancels all, between passes.

// world is what rank 0 knows of the others.
type world struct {
	ranks *gpu.Ranks

	mu       sync.Mutex // of orders, and of what rank 0 enqueues for them
	sessions map[*gpu.Communicator]*session
	next     int
}

// session is what stands behind the streams of NewStreams.
type session struct {
	number    int
	graphs    int
	capturing bool // the world's mutex is held for it
}

// order is what rank 0 tells the others to do.
type order struct {
	Do      string
	Session int

	Cache           *CacheOptions `json:",omitempty"`
	Rows, LogitRows int           `json:",omitempty"` // of a workspace

	Count, Seq, KVLen int  `json:",omitempty"` // of a pass
	Sequences         bool `json:",omitempty"`
	From, To          int  `json:",omitempty"` // rows whose logits are asked for
	Graph             int  `json:",omitempty"`
}

// What is ordered.
const (
	orderOpen      = "open"
	orderClose     = "close"
	orderCache     = "cache"
	orderWorkspace = "workspace"
	orderForward   = "forward"
	orderLogits    = "logits"
	orderCapture   = "capture" // until orderCaptured
	orderCaptured  = "captured"
	orderLaunch    = "launch"
	orderDrop      = "drop"
)

// reply says how an order that may fail ended.
type reply struct{ Problem string }

// give has the others do something, and enqueues rank 0's part meanwhile. An error of that part ends all ranks, which would else
// wait for each other.
func (w *world) give(streams *gpu.Communicator, o order, part func() error) (err error) {
	s := w.session(streams)
	if s == nil {
		return fmt.Errorf("model: streams of no session: %w", gpu.ErrClosed)
	}
	if !s.capturing {
		w.mu.Lock()
		defer w.mu.Unlock()
	}
	o.Session = s.number
	if err := w.send(o); err != nil {
		return err
	}
	ended := false
	defer func() {
		if !ended { // by a panic of an operation, which goes on to the caller
			w.ranks.Fail(errors.New("a pass failed"))
		} else if err != nil {
			w.ranks.Fail(err)
		}
	}()
	err = part()
	ended = true
	return err
}

func (w *world) send(o order) error {
	for rank := 1; rank < w.ranks.Size(); rank++ {
		if err := w.ranks.Group().Say(rank, ranks.ChannelOrders, o); err != nil {
			return err
		}
	}
	return nil
}

// allocate is give for what may fail on each rank without harm. The caller closes the session after an error.
func (w *world) allocate(o order, part func() error) error {
	if err := w.send(o); err != nil {
		return err
	}
	first := part()
	for rank := 1; rank < w.ranks.Size(); rank++ {
		var r reply
		if err := w.ranks.Group().Hear(rank, ranks.ChannelReplies, &r); err != nil {
			return err
		}
		if r.Problem != "" && first == nil {
			first = fmt.Errorf("%s: %s", w.ranks.Group().Name(rank), r.Problem)
		}
	}
	return first
}

// sessionsLock guards the maps of all worlds, which are read while a world's own mutex may be held.
var sessionsLock sync.Mutex

func (w *world) session(streams *gpu.Communicator) *session {
	sessionsLock.Lock()
	defer sessionsLock.Unlock()
	return w.sessions[streams]
}

// open makes the streams of a session.
func (w *world) open(m *Model) (c *gpu.Communicator, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.next++
	number := w.next
	err = w.allocate(order{Do: orderOpen, Session: number}, func() error {
		c, err = m.joinStream(w.ranks)
		return err
	})
	if err != nil {
		w.send(order{Do: orderClose, Session: number})
		closeStreams(c)
		return nil, err
	}
	sessionsLock.Lock()
	defer sessionsLock.Unlock()
	w.sessions[c] = &session{number: number}
	return c, nil
}

// joinStream joins a new stream of the model's device with those of the other ranks.
func (m *Model) joinStream(r *gpu.Ranks) (*gpu.Communicator, error) {
	s, err := m.device.NewStream()
	if err != nil {
		// The others wait for a communicator, and there is none without this rank.
		r.Fail(err)
		return nil, err
	}
	c, err := r.NewCommunicator(s)
	if err != nil {
		r.Fail(err)
		s.Close()
		return nil, err
	}
	return c, nil
}

// make is allocate of something of a session.
func (w *world) make(streams *gpu.Communicator, o order, part func() error) error {
	s := w.session(streams)
	if s == nil {
		return fmt.Errorf("model: streams of no session: %w", gpu.ErrClosed)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	o.Session = s.number
	return w.allocate(o, part)
}

func (w *world) close(streams *gpu.Communicator) error {
	s := w.session(streams)
	if s == nil {
		return nil
	}
	sessionsLock.Lock()
	delete(w.sessions, streams)
	sessionsLock.Unlock()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.send(order{Do: orderClose, Session: s.number}) // where ranks are lost nothing is left to close
	return closeStreams(streams)
}

// Captured is recorded work of the streams of NewStreams.
type Captured struct {
	graphs  *gpu.Graphs
	world   *world
	streams *gpu.Communicator
	number  int
}

// Captures reports whether work on the streams can be captured.
func (m *Model) Captures(streams *gpu.Communicator) bool { return !m.staged && streams.Captures() }

// Capture records what f enqueues on the streams, on all ranks.
func (m *Model) Capture(streams *gpu.Communicator, f func() error) (*Captured, error) {
	c := &Captured{world: m.world, streams: streams}
	if m.world == nil {
		var err error
		if c.graphs, err = streams.Capture(f); err != nil {
			return nil, err
		}
		return c, nil
	}
	s := m.world.session(streams)
	if s == nil {
		return nil, fmt.Errorf("model: streams of no session: %w", gpu.ErrClosed)
	}
	s.graphs++
	c.number = s.graphs
	err := m.world.give(streams, order{Do: orderCapture, Graph: c.number}, func() (err error) {
		s.capturing = true
		defer func() { s.capturing = false }()
		c.graphs, err = streams.Capture(f)
		if err == nil {
			err = m.world.send(order{Do: orderCaptured, Session: s.number})
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return c, nil
}

// Launch enqueues the work.
func (c *Captured) Launch() error {
	if c.world == nil {
		return c.graphs.Launch()
	}
	return c.world.give(c.streams, order{Do: orderLaunch, Graph: c.number}, c.graphs.Launch)
}

// Close gives the recorded work back.
func (c *Captured) Close() error {
	if c.world == nil || c.world.session(c.streams) == nil {
		return c.graphs.Close()
	}
	return c.world.give(c.streams, order{Do: orderDrop, Graph: c.number}, c.graphs.Close)
}

// followed is what a rank has of a session of rank 0.
type followed struct {
	streams *gpu.Communicator
	cache   *Cache
	work    *Workspace
	batch   *follower // for the batch that rank 0 sends
	graphs  map[int]*gpu.Graphs
}

func (s *followed) close() error {
	for _, g := range s.graphs {
		g.Close()
	}
	if s.batch != nil {
		s.batch.free()
	}
	s.cache.Free()
	return closeStreams(s.streams)
}

// Follow does what rank 0 orders, until that leaves, which is no error. Of a rank above 0 it is all that the model is for.
func (m *Model) Follow() (err error) {
	if m.leader == nil {
		return fmt.Errorf("model: no rank to follow: %w", gpu.ErrInvalid)
	}
	sessions := map[int]*followed{}
	defer func() {
		if err != nil {
			m.leader.Fail(err)
		}
		for _, s := range sessions {
			s.close()
		}
	}()
	for {
		o, err := m.hear()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil {
			err = m.follow(sessions, o)
		}
		if err != nil {
			return err
		}
	}
}

func (m *Model) hear() (o order, err error) {
	err = m.leader.Group().Hear(0, ranks.ChannelOrders, &o)
	return o, err
}

func (m *Model) follow(sessions map[int]*followed, o order) error {
	s := sessions[o.Session]
	if s == nil && o.Do != orderClose {
		if o.Do != orderOpen {
			return fmt.Errorf("model: order %q of session %d, which is not open: %w", o.Do, o.Session, gpu.ErrInvalid)
		}
		s = &followed{graphs: map[int]*gpu.Graphs{}}
		sessions[o.Session] = s
	}
	switch o.Do {
	case orderOpen, orderCache, orderWorkspace:
		r := reply{}
		if err := m.allocate(s, o); err != nil {
			r.Problem = err.Error()
		}
		return m.leader.Group().Say(0, ranks.ChannelReplies, r)
	case orderClose:
		delete(sessions, o.Session)
		if s == nil {
			return nil
		}
		return s.close()
	case orderForward, orderLogits:
		var err error
		if e := tensor.Try(func() { err = s.pass(o) }); e != nil {
			err = e
		}
		return err
	case orderCapture:
		var err error
		s.graphs[o.Graph], err = s.streams.Capture(func() error {
			for {
				inner, err := m.hear()
				if err != nil || inner.Do == orderCaptured {
					return err
				}
				if err := m.follow(sessions, inner); err != nil {
					return err
				}
			}
		})
		return err
	case orderLaunch, orderDrop:
		g := s.graphs[o.Graph]
		if g == nil {
			return fmt.Errorf("model: graph %d was not captured: %w", o.Graph, gpu.ErrInvalid)
		}
		if o.Do == orderLaunch {
			return g.Launch()
		}
		delete(s.graphs, o.Graph)
		return g.Close()
	}
	return fmt.Errorf("model: unknown order %q: %w", o.Do, gpu.ErrInvalid)
}

// allocate makes what an order asks for.
func (m *Model) allocate(s *followed, o order) (err error) {
	switch {
	case o.Do == orderOpen:
		s.streams, err = m.joinStream(m.leader)
	case s.streams == nil:
		err = gpu.ErrClosed
	case o.Do == orderCache && o.Cache != nil:
		s.cache, err = m.newCache(s.streams.Stream(0), *o.Cache)
	default:
		if s.batch, err = m.newFollower(s.streams.Stream(0), o.Rows, o.LogitRows); err == nil {
			s.work = s.batch.work
			s.work.streams = s.streams
		}
	}
	return err
}

// pass computes a rank's part of a pass, or of logits.
func (s *followed) pass(o order) error {
	if s.work == nil || s.cache == nil {
		return fmt.Errorf("model: a pass before a cache and a workspace: %w", gpu.ErrInvalid)
	}
	if o.Do == orderLogits {
		p := s.batch.logits(o.From, o.To)
		return s.work.run(len(p.graph.blocks)-1, []*pass{p}, nil)
	}
	b := Batch{Count: o.Count, Seq: o.Seq, KVLen: o.KVLen}
	if o.Sequences {
		b.Sequences = s.batch.sequences
	}
	p := s.batch.pass(s.work.plain, s.cache, b, 0)
	return s.work.layers([]*pass{p}, []*follower{s.batch}, nil)
}
