package fake

import (
	"fmt"
	"sync"
	"time"

	"github.com/vibrant-ml/vibrant/internal/backend/kernel"
)

// communicator joins streams of fake GPUs as kernels join those of real ones: each rank's part is work of its stream,
// which does not end before all have begun, and may be captured.
type communicator struct {
	streams []*stream
	kernels kernel.Communicator // on host addresses
}

// patience is how long a rank waits for the others before it loses its device.
const patience = 30 * time.Second

func (d *device) NewCommunicator(streams []kernel.Stream) (kernel.Communicator, error) {
	c := &communicator{}
	for _, k := range streams {
		s, ok := k.(handing)
		if !ok {
			return nil, fmt.Errorf("fake: stream of another backend: %w", kernel.ErrInvalid)
		}
		if s.config.NoPeers && s.GPU != d.GPU {
			return nil, fmt.Errorf("fake: fake:%d cannot reach the memory of fake:%d (no peer access): %w", d.index, s.index, kernel.ErrUnsupported)
		}
		c.streams = append(c.streams, s.stream)
	}
	var err error
	c.kernels, err = d.cpu.NewCommunicator(make([]kernel.Stream, len(streams)))
	return c, err
}

// meeting is where the ranks of one collective come together, again and again where it was captured.
type meeting struct {
	gpus []*GPU // of the ranks

	mu      sync.Mutex
	arrived int
	round   *round
}

type round struct {
	done chan struct{} // closed when all have come, and the last one has computed
	err  error
}

func newMeeting(streams []*stream) *meeting {
	m := &meeting{round: &round{done: make(chan struct{})}}
	for _, s := range streams {
		m.gpus = append(m.gpus, s.GPU)
	}
	return m
}

// join waits for all ranks; the last one computes for them. A rank that will not come costs the waiting one its device.
func (m *meeting) join(rank int, compute func() error) error {
	m.mu.Lock()
	r := m.round
	if m.arrived++; m.arrived == len(m.gpus) {
		m.arrived, m.round = 0, &round{done: make(chan struct{})}
		r.err = compute()
		close(r.done)
	}
	m.mu.Unlock()
	poll := time.NewTicker(5 * time.Millisecond)
	defer poll.Stop()
	for start := time.Now(); ; {
		select {
		case <-r.done:
			return r.err
		case <-poll.C:
		}
		lost := time.Since(start) > patience
		for _, g := range m.gpus {
			g.mu.Lock()
			lost = lost || g.lost != nil
			g.mu.Unlock()
		}
		if lost {
			g := m.gpus[rank]
			g.mu.Lock()
			defer g.mu.Unlock()
			g.lose("a rank waited in vain")
			return g.lost
		}
	}
}

// collective enqueues each rank's part. operands makes the host addresses of one rank's operands.
func (c *communicator) collective(name string, operands func(o *op, rank int), compute func() error) error {
	m := newMeeting(c.streams)
	all := make([]*op, len(c.streams))
	for r, s := range c.streams {
		all[r] = s.op(name)
		operands(all[r], r)
		if all[r].err != nil {
			return all[r].err
		}
	}
	for r, o := range all {
		run := func() error { return m.join(r, compute) }
		if g := c.streams[r].GPU; g.config.Crowded {
			run = func() error {
				g.room.Lock()
				defer g.room.Unlock()
				return m.join(r, compute)
			}
		}
		if err := o.enqueue(Launch, run); err != nil {
			return err
		}
	}
	return nil
}

func (c *communicator) AllReduce(out, in, add []kernel.Ptr, n int, rounded bool) error {
	ranks := len(c.streams)
	outs, ins := make([]kernel.Ptr, ranks), make([]kernel.Ptr, ranks)
	var adds []kernel.Ptr
	if add != nil {
		adds = make([]kernel.Ptr, ranks)
	}
	bytes := kernel.F32.Bytes(n)
	return c.collective("AllReduce", func(o *op, r int) {
		outs[r], ins[r] = o.at(out[r], bytes), o.at(in[r], bytes)
		if add != nil {
			adds[r] = o.at(add[r], bytes)
		}
	}, func() error { return c.kernels.AllReduce(outs, ins, adds, n, rounded) })
}

// AllReduceRows leaves in normed what preparing checks, as the fused operations do. It leaves all columns on every rank.
func (c *communicator) AllReduceRows(out, in []kernel.Ptr, rows *kernel.SumOfRows) error {
	n, cols, ranks := rows.N, rows.Cols, len(c.streams)
	var outs, ins, adds, norms, normed [kernel.MaxRanks]kernel.Ptr
	rows.Prepared, rows.Parted = true, false
	return c.collective("AllReduceRows", func(o *op, r int) {
		bytes := kernel.F32.Bytes(n * cols)
		outs[r], ins[r], adds[r], normed[r] = o.at(out[r], bytes), o.at(in[r], bytes), o.at(rows.Add[r], bytes), o.at(rows.Normed[r], bytes)
		norms[r] = o.at(rows.Norm[r], kernel.F32.Bytes(cols))
	}, func() error {
		if err := c.kernels.AllReduce(outs[:ranks], ins[:ranks], adds[:ranks], n*cols, true); err != nil {
			return err
		}
		for r := range ranks {
			prepare(normed[r], outs[r], norms[r], n, cols)
		}
		return nil
	})
}

func (c *communicator) LinearAllReduce(out, product []kernel.Ptr, sum *kernel.SumOfProducts) error {
	ranks, rows := len(c.streams), sum.W[0].Rows
	var outs, products, adds, xs, biases [kernel.MaxRanks]kernel.Ptr
	var ws [kernel.MaxRanks]kernel.Weight
	return c.collective("LinearAllReduce", func(o *op, r int) {
		bytes := kernel.F32.Bytes(sum.N * rows)
		outs[r], products[r], adds[r] = o.at(out[r], bytes), o.at(product[r], bytes), o.at(sum.Add[r], bytes)
		xs[r], biases[r] = o.at(sum.X[r], kernel.F32.Bytes(sum.N*sum.W[r].Cols)), o.optional(sum.Bias[r], kernel.F32.Bytes(rows))
		ws[r] = o.weight(sum.W[r])
	}, func() error {
		for r, s := range c.streams {
			if err := s.kernels.Linear(products[r], xs[r], ws[r], biases[r], sum.N); err != nil {
				return err
			}
		}
		return c.kernels.AllReduce(outs[:ranks], products[:ranks], adds[:ranks], sum.N*rows, true)
	})
}

func (c *communicator) AllGather(out, in []kernel.Ptr, rows int, cols []int) error {
	ranks, total := len(c.streams), 0
	for _, n := range cols {
		total += n
	}
	outs, ins := make([]kernel.Ptr, ranks), make([]kernel.Ptr, ranks)
	return c.collective("AllGather", func(o *op, r int) {
		outs[r], ins[r] = o.at(out[r], kernel.F32.Bytes(rows*total)), o.at(in[r], kernel.F32.Bytes(rows*cols[r]))
	}, func() error { return c.kernels.AllGather(outs, ins, rows, cols) })
}

func (c *communicator) Broadcast(data []kernel.Ptr, words, root int) error {
	all := make([]kernel.Ptr, len(c.streams))
	return c.collective("Broadcast", func(o *op, r int) { all[r] = o.at(data[r], kernel.F32.Bytes(words)) },
		func() error { return c.kernels.Broadcast(all, words, root) })
}

// Send has the ranks that it does not concern wait too, which costs nothing here.
func (c *communicator) Send(out, in kernel.Ptr, words, from, to int) error {
	var hostOut, hostIn kernel.Ptr
	return c.collective("Send", func(o *op, r int) {
		if r == to {
			hostOut = o.at(out, kernel.F32.Bytes(words))
		}
		if r == from {
			hostIn = o.at(in, kernel.F32.Bytes(words))
		}
	}, func() error { return c.kernels.Send(hostOut, hostIn, words, from, to) })
}

func (c *communicator) Close() error { return nil }
