package fake

import (
	"crypto/rand"
	"fmt"
	"sync"
	"time"

	"github.com/vibrant-ml/vibrant/internal/backend/kernel"
)

// hub joins ranks that know each other by an id alone, as those of other processes do. Here they are of one process, so that a
// test sees all. Ranks enqueue the same collectives in the same order: the n-th of one meets the n-th of the others,
// also where they are captured and replayed.
type hub struct {
	ranks []*stream

	mu      sync.Mutex
	joined  int
	ready   chan struct{} // closed when all have joined
	meeting map[int]*rankMeeting
}

// rankMeeting is one collective: what each rank brings, on the host.
type rankMeeting struct {
	*meeting
	out, in, add []kernel.Ptr
}

var (
	hubsLock sync.Mutex
	hubs     = map[string]*hub{}
)

// rank is the kernel.RankCommunicator of a stream.
type rank struct {
	*hub
	kernels kernel.Communicator
	number  int
	next    int // collective to enqueue
}

// RanksUsable returns Config.NoRanks.
func (d *device) RanksUsable() error { return d.config.NoRanks }

func (d *device) RanksID(id []byte) error {
	rand.Read(id)
	return nil
}

func (d *device) JoinRanks(s kernel.Stream, number, ranks int, id []byte) (kernel.RankCommunicator, error) {
	own, ok := s.(handing)
	if !ok {
		return nil, fmt.Errorf("fake: stream of another backend: %w", kernel.ErrInvalid)
	}
	hubsLock.Lock()
	h := hubs[string(id)]
	if h == nil {
		h = &hub{ranks: make([]*stream, ranks), ready: make(chan struct{}), meeting: map[int]*rankMeeting{}}
		hubs[string(id)] = h
	}
	h.ranks[number] = own.stream
	if h.joined++; h.joined == ranks {
		delete(hubs, string(id))
		close(h.ready)
	}
	hubsLock.Unlock()
	select {
	case <-h.ready:
	case <-time.After(patience):
		return nil, fmt.Errorf("fake: not all of %d ranks joined: %w", ranks, kernel.ErrDeviceLost)
	}
	k, err := d.cpu.NewCommunicator(make([]kernel.Stream, min(ranks, kernel.MaxRanks)))
	return &rank{hub: h, kernels: k, number: number}, err
}

// collective enqueues this rank's part of the next collective. operands puts its host addresses into the meeting.
func (r *rank) collective(name string, operands func(o *op, m *rankMeeting), compute func(m *rankMeeting) error) error {
	r.mu.Lock()
	m := r.meeting[r.next]
	if m == nil {
		n := len(r.ranks)
		m = &rankMeeting{newMeeting(r.ranks), make([]kernel.Ptr, n), make([]kernel.Ptr, n), make([]kernel.Ptr, n)}
		r.meeting[r.next] = m
	}
	r.next++
	o := r.ranks[r.number].op(name)
	operands(o, m)
	r.mu.Unlock()
	return o.enqueue(Launch, func() error { return m.join(r.number, func() error { return compute(m) }) })
}

func (r *rank) AllReduce(out, in, add []kernel.Ptr, n int, rounded bool) error {
	bytes := kernel.F32.Bytes(n)
	return r.collective("AllReduce", func(o *op, m *rankMeeting) {
		m.out[r.number], m.in[r.number] = o.at(out[0], bytes), o.at(in[0], bytes)
		if add != nil {
			m.add[r.number] = o.at(add[0], bytes)
		}
	}, func(m *rankMeeting) error {
		if add == nil {
			return r.kernels.AllReduce(m.out, m.in, nil, n, rounded)
		}
		return r.kernels.AllReduce(m.out, m.in, m.add, n, rounded)
	})
}

func (r *rank) AllGather(out, in []kernel.Ptr, rows int, cols []int) error {
	total := 0
	for _, n := range cols {
		total += n
	}
	return r.collective("AllGather", func(o *op, m *rankMeeting) {
		m.out[r.number], m.in[r.number] = o.at(out[0], kernel.F32.Bytes(rows*total)), o.at(in[0], kernel.F32.Bytes(rows*cols[r.number]))
	}, func(m *rankMeeting) error { return r.kernels.AllGather(m.out, m.in, rows, cols) })
}

func (r *rank) Broadcast(data []kernel.Ptr, words, root int) error {
	return r.collective("Broadcast", func(o *op, m *rankMeeting) { m.out[r.number] = o.at(data[0], kernel.F32.Bytes(words)) },
		func(m *rankMeeting) error { return r.kernels.Broadcast(m.out, words, root) })
}

func (r *rank) Send(out, in kernel.Ptr, words, from, to int) error {
	return r.collective("Send", func(o *op, m *rankMeeting) {
		if r.number == to {
			m.out[to] = o.at(out, kernel.F32.Bytes(words))
		}
		if r.number == from {
			m.in[from] = o.at(in, kernel.F32.Bytes(words))
		}
	}, func(m *rankMeeting) error { return r.kernels.Send(m.out[to], m.in[from], words, from, to) })
}

// Abort loses the device, as a kernel that is ended does.
func (r *rank) Abort() {
	g := r.ranks[r.number].GPU
	g.mu.Lock()
	defer g.mu.Unlock()
	g.lose("its communicator was aborted")
}

func (r *rank) Close() error { return nil }
