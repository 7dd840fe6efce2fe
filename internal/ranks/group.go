// Package ranks joins processes that compute together, each a rank. It finds the place of this process in the variables of a
// launcher and meets the others at rank 0's address over TCP. It carries messages between them, and tells all when one is lost.
//
// The ranks form a star: each has a connection to rank 0, which passes on what others send each other. So one port is open, on
// one host, and until all are there. A rank sends a sign of life every second. A rank that is silent for five, or whose
// connection ends, is lost, and rank 0 tells the others which one it was.
package ranks

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"time"
)

// MaxRanks is the most processes that join.
const MaxRanks = 1024

// ErrLost is wrapped where a rank ended, went silent or failed; the text names it.
var ErrLost = errors.New("ranks ended")

const (
	beat    = time.Second
	silence = 5 * time.Second // without a sign of life a rank is lost
	parting = time.Second     // in which what was said last arrives

	maxFrame  = 4 << 20 // bytes of a message's part
	maxQueued = 1 << 30 // bytes that came and that nobody took
	maxReason = 4096    // bytes of what a rank says about its failure
)

// Config says how to join.
type Config struct {
	Place
	Token   string        // that all ranks have; "" for none
	Timeout time.Duration // in which all have to be there, 0 for 2 minutes
	Lost    func(error)   // is called once where another rank is lost, from a goroutine of its own; may be nil
}

// Group is this process among the ranks. Any number of goroutines may use it, one at a time for a channel and a rank.
type Group struct {
	config  Config
	members []member
	links   []*link // to each rank; of a rank above 0 that to rank 0 alone

	mu      sync.Mutex
	changed sync.Cond
	queues  map[source]*queue
	queued  int
	err     error
	closing bool
	failed  bool          // by Fail
	lost    chan struct{} // closed when err is set
	readers sync.WaitGroup
}

type member struct {
	Host    string `json:"host"`
	Process int    `json:"process"`
}

// source is where a message comes from.
type source struct {
	rank    int
	channel uint32
}

type queue struct{ parts [][]byte }

// link is the connection to another rank.
type link struct {
	rank int
	conn net.Conn
	mu   sync.Mutex // of writing
	bye  bool       // it said that it ends; the group's mutex guards this and what follows
	gone bool       // nothing more comes
}

// Kinds of frames.
const (
	frameData = iota + 1
	frameBeat
	frameFail // the text says why the sender ends all
	frameBye  // the sender ends, and nothing is wrong
)

// header precedes what a frame carries. Numbers are little-endian.
type header struct {
	Kind     uint32
	From, To uint32
	Channel  uint32
	Bytes    uint32
}

const headerBytes = 20

// Rank returns the number of this process.
func (g *Group) Rank() int { return g.config.Rank }

// Size returns how many ranks there are.
func (g *Group) Size() int { return g.config.Size }

// Name returns a rank as errors name it.
func (g *Group) Name(rank int) string {
	m := g.members[rank]
	return fmt.Sprintf("rank %d (process %d on %s)", rank, m.Process, m.Host)
}

func newGroup(c Config, members []member) *Group {
	g := &Group{config: c, members: members, links: make([]*link, c.Size), queues: map[source]*queue{}, lost: make(chan struct{})}
	g.changed.L = &g.mu
	return g
}

// start serves the links.
func (g *Group) start() {
	for _, l := range g.links {
		if l == nil {
			continue
		}
		g.readers.Add(1)
		go func() {
			defer g.readers.Done()
			g.read(l)
			l.conn.Close()
			g.mu.Lock()
			l.gone = true
			g.changed.Broadcast()
			g.mu.Unlock()
		}()
		go g.beat(l)
	}
}

func (g *Group) beat(l *link) {
	t := time.NewTicker(beat)
	defer t.Stop()
	for {
		select {
		case <-g.lost:
			return
		case <-t.C:
			if l.write(header{Kind: frameBeat}, nil) != nil {
				return // the reader finds out why
			}
		}
	}
}

func (l *link) write(h header, data []byte) error {
	var b [headerBytes]byte
	h.Bytes = uint32(len(data))
	for i, n := range []uint32{h.Kind, h.From, h.To, h.Channel, h.Bytes} {
		binary.LittleEndian.PutUint32(b[4*i:], n)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	_, err := (&net.Buffers{b[:], data}).WriteTo(l.conn)
	return err
}

// patient reads as long as something comes.
type patient struct{ net.Conn }

func (p patient) Read(b []byte) (int, error) {
	if err := p.SetReadDeadline(time.Now().Add(silence)); err != nil {
		return 0, err
	}
	return p.Conn.Read(b)
}

// read takes what a rank sends, until it ends.
func (g *Group) read(l *link) {
	in := patient{l.conn}
	var b [headerBytes]byte
	for {
		if _, err := io.ReadFull(in, b[:]); err != nil {
			g.ended(l, err)
			return
		}
		word := func(i int) uint32 { return binary.LittleEndian.Uint32(b[4*i:]) }
		h := header{word(0), word(1), word(2), word(3), word(4)}
		if h.Bytes > maxFrame || h.From >= uint32(g.Size()) || h.To >= uint32(g.Size()) || g.Rank() == 0 && h.Kind == frameData && int(h.From) != l.rank {
			g.lose(fmt.Errorf("%s sent what is no message of a rank: %w", g.Name(l.rank), ErrLost))
			return
		}
		data := make([]byte, h.Bytes)
		if _, err := io.ReadFull(in, data); err != nil {
			g.ended(l, err)
			return
		}
		switch h.Kind {
		case frameBeat:
		case frameData:
			g.take(h, data)
		case frameFail:
			text := string(data[:min(len(data), maxReason)])
			if g.Rank() == 0 {
				text = g.Name(l.rank) + ": " + text
			}
			g.lose(lostError{text})
		case frameBye:
			g.mu.Lock()
			l.bye = true
			g.changed.Broadcast()
			g.mu.Unlock()
		}
	}
}

// lostError is an ErrLost with a text of its own.
type lostError struct{ text string }

func (e lostError) Error() string { return e.text }
func (e lostError) Unwrap() error { return ErrLost }

// take queues what came for this rank, and passes on what is for another.
func (g *Group) take(h header, data []byte) {
	if int(h.To) != g.Rank() {
		if l := g.links[h.To]; l != nil {
			l.write(h, data) // its own reader finds out why not
		}
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.queue(source{int(h.From), h.Channel}, data)
}

func (g *Group) queue(s source, data []byte) {
	q := g.queues[s]
	if q == nil {
		q = &queue{}
		g.queues[s] = q
	}
	q.parts = append(q.parts, data)
	if g.queued += len(data); g.queued > maxQueued && g.err == nil {
		go g.lose(fmt.Errorf("%s sent more than %d bytes that nobody took: %w", g.Name(s.rank), maxQueued, ErrLost))
	}
	g.changed.Broadcast()
}

// ended says why the connection to a rank ended.
func (g *Group) ended(l *link, err error) {
	g.mu.Lock()
	quiet := l.bye || g.closing || g.err != nil
	g.mu.Unlock()
	if quiet {
		return
	}
	var timeout net.Error
	if errors.As(err, &timeout) && timeout.Timeout() {
		g.lose(lostError{fmt.Sprintf("%s is lost: no sign of life for %v", g.Name(l.rank), silence)})
		return
	}
	g.lose(lostError{g.Name(l.rank) + " is lost: its connection ended"})
}

// lose ends the group: nothing is sent or received any more, and rank 0 tells the others.
func (g *Group) lose(err error) {
	g.mu.Lock()
	if g.err != nil || g.closing {
		g.mu.Unlock()
		return
	}
	g.err = err
	failed := g.failed
	close(g.lost)
	g.changed.Broadcast()
	g.mu.Unlock()
	if g.Rank() == 0 {
		g.tell(err.Error())
	}
	for _, l := range g.links {
		if l != nil {
			halfClose(l.conn)
			time.AfterFunc(parting, func() { l.conn.Close() })
		}
	}
	if g.config.Lost != nil && !failed {
		go g.config.Lost(err)
	}
}

// tell sends each linked rank the reason of the end.
func (g *Group) tell(text string) {
	for _, l := range g.links {
		if l == nil {
			continue
		}
		l.conn.SetWriteDeadline(time.Now().Add(parting / 2)) // also of a write that is under way
		l.write(header{Kind: frameFail, From: uint32(g.Rank())}, []byte(text[:min(len(text), maxReason)]))
	}
}

// halfClose says that nothing more is sent: what was sent arrives, as a connection that is closed at once may drop it.
func halfClose(c net.Conn) {
	if half, ok := c.(interface{ CloseWrite() error }); ok {
		half.CloseWrite()
	}
}

// Fail ends all ranks because of an error of this one. Theirs names this rank. Where the group has ended, it does nothing.
func (g *Group) Fail(err error) {
	g.mu.Lock()
	over := g.err != nil || g.closing || g.failed || err == nil
	g.failed = g.failed || !over
	g.mu.Unlock()
	if over {
		return
	}
	if g.Rank() == 0 {
		g.lose(lostError{g.Name(0) + ": " + err.Error()})
	} else {
		g.tell(err.Error())
		g.lose(err)
	}
	g.part()
}

// part waits until the other ends have taken what was sent, for a second at most.
func (g *Group) part() {
	done := make(chan struct{})
	go func() { g.readers.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(parting):
	}
}

// Err returns why the group has ended, nil while it has not.
func (g *Group) Err() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.err
}

// Lost is closed when the group has ended because of an error.
func (g *Group) Lost() <-chan struct{} { return g.lost }

// Close leaves. The others are told that nothing is wrong; each of them leaves too. Closing twice is harmless.
func (g *Group) Close() error {
	g.mu.Lock()
	over := g.closing || g.err != nil
	g.closing = true
	g.changed.Broadcast()
	g.mu.Unlock()
	if over {
		return nil
	}
	for _, l := range g.links {
		if l != nil {
			l.write(header{Kind: frameBye, From: uint32(g.Rank())}, nil)
		}
	}
	if g.Rank() == 0 {
		g.dismiss()
	}
	for _, l := range g.links {
		if l != nil {
			halfClose(l.conn)
		}
	}
	g.part()
	for _, l := range g.links {
		if l != nil {
			l.conn.Close()
		}
	}
	return nil
}

// dismiss waits until the others leave, for a second at most: until then rank 0 passes on what they send each other.
func (g *Group) dismiss() {
	late := false
	defer time.AfterFunc(parting, func() {
		g.mu.Lock()
		late = true
		g.changed.Broadcast()
		g.mu.Unlock()
	}).Stop()
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, l := range g.links {
		for l != nil && !l.bye && !l.gone && !late {
			g.changed.Wait()
		}
	}
}

// Send sends data to another rank, or to this one. What is sent on one channel arrives in order.
func (g *Group) Send(to int, channel uint32, data []byte) error {
	if to == g.Rank() {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.queue(source{to, channel}, append([]byte(nil), data...))
		return g.err
	}
	l := g.links[to]
	if l == nil {
		l = g.links[0] // which passes it on
	}
	for first := true; first || len(data) > 0; first = false {
		n := min(len(data), maxFrame)
		if err := l.write(header{Kind: frameData, From: uint32(g.Rank()), To: uint32(to), Channel: channel}, data[:n]); err != nil {
			return g.broken(l, err)
		}
		data = data[n:]
	}
	return nil
}

// broken returns why a rank cannot be reached: the reader knows better, and needs a moment.
func (g *Group) broken(l *link, err error) error {
	select {
	case <-g.lost:
	case <-time.After(parting):
		g.ended(l, err)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.err != nil {
		return g.err
	}
	return fmt.Errorf("%s has left: %w", g.Name(l.rank), ErrLost)
}

// next returns the next part of a message from a rank.
func (g *Group) next(from int, channel uint32) ([]byte, error) {
	key := source{from, channel}
	g.mu.Lock()
	defer g.mu.Unlock()
	for {
		if q := g.queues[key]; q != nil && len(q.parts) > 0 {
			part := q.parts[0]
			q.parts = q.parts[1:]
			g.queued -= len(part)
			return part, nil
		}
		link := g.links[from]
		if link == nil {
			link = g.links[0]
		}
		switch {
		case g.err != nil:
			return nil, g.err
		case g.closing, link != nil && (link.gone || link.bye && link.rank == from):
			return nil, fmt.Errorf("%s has left: %w", g.Name(from), io.EOF)
		}
		g.changed.Wait()
	}
}

// Receive fills data with what a rank sent, with as many bytes in one Send. io.EOF is wrapped where it has left.
func (g *Group) Receive(from int, channel uint32, data []byte) error {
	for first := true; first || len(data) > 0; first = false {
		part, err := g.next(from, channel)
		if err != nil {
			return err
		}
		if len(part) > len(data) || len(part) == 0 && len(data) > 0 {
			return fmt.Errorf("%s sent %d bytes, not %d: the ranks do not compute the same", g.Name(from), len(part), len(data))
		}
		data = data[copy(data, part):]
	}
	return nil
}

// Forget drops what came on a channel and was not taken.
func (g *Group) Forget(channel uint32) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for s, q := range g.queues {
		if s.channel == channel {
			for _, part := range q.parts {
				g.queued -= len(part)
			}
			delete(g.queues, s)
		}
	}
}

// Say sends a message, which is encoded as JSON, to a rank.
func (g *Group) Say(to int, channel uint32, message any) error {
	text, err := json.Marshal(message)
	if err == nil && len(text) > maxFrame {
		err = fmt.Errorf("a message of %d bytes, %d at most", len(text), maxFrame)
	}
	if err != nil {
		return err
	}
	return g.Send(to, channel, text)
}

// Hear waits for a message of Say.
func (g *Group) Hear(from int, channel uint32, message any) error {
	text, err := g.next(from, channel)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(text, message); err != nil {
		return fmt.Errorf("%s sent a message that cannot be read: %w", g.Name(from), err)
	}
	return nil
}

// Channels that the group itself uses, and those that rank 0 tells others on what to do, and is answered on.
const (
	channelAgree = iota
	ChannelOrders
	ChannelReplies
	ChannelFirst // of those that are free
)

// Fact is something that has to be the same of all ranks.
type Fact struct {
	Name  string `json:"name"` // "model file"
	Value string `json:"value"`
}

// Agree compares facts, which each rank gives in the same order, and waits for all. The error names the first rank that has
// another, and what differs. note of rank 0, if any, arrives in note of the others.
func (g *Group) Agree(facts []Fact, note any) error {
	type verdict struct {
		Problem string          `json:"problem,omitempty"`
		Note    json.RawMessage `json:"note,omitempty"`
	}
	if g.Rank() > 0 {
		var v verdict
		err := g.Say(0, channelAgree, facts)
		if err == nil {
			err = g.Hear(0, channelAgree, &v)
		}
		if err == nil && v.Problem != "" {
			err = lostError{v.Problem}
		}
		if err == nil && note != nil {
			err = json.Unmarshal(v.Note, note)
		}
		return err
	}
	var v verdict
	for rank := 1; rank < g.Size(); rank++ {
		var theirs []Fact
		if err := g.Hear(rank, channelAgree, &theirs); err != nil {
			return err
		}
		if problem := g.difference(rank, facts, theirs); problem != "" && v.Problem == "" {
			v.Problem = problem
		}
	}
	var err error
	if v.Note, err = json.Marshal(note); err != nil {
		return err
	}
	for rank := 1; rank < g.Size(); rank++ {
		if err := g.Say(rank, channelAgree, v); err != nil {
			return err
		}
	}
	if v.Problem != "" {
		return lostError{v.Problem}
	}
	return nil
}

func (g *Group) difference(rank int, own, theirs []Fact) string {
	if len(own) != len(theirs) {
		return fmt.Sprintf("%s is another program than rank 0", g.Name(rank))
	}
	for i, f := range theirs {
		if f.Name != own[i].Name {
			return fmt.Sprintf("%s is another program than rank 0", g.Name(rank))
		}
		if f.Value != own[i].Value {
			return fmt.Sprintf("%s has another %s than rank 0: %s, not %s", g.Name(rank), f.Name, clip(f.Value), clip(own[i].Value))
		}
	}
	return ""
}

// clip returns what another rank said as part of a line.
func clip(s string) string {
	quoted := fmt.Sprintf("%.200q", s)
	return quoted[1 : len(quoted)-1]
}

// hostName is how this machine is named in errors.
func hostName() string {
	name, err := os.Hostname()
	if err != nil {
		return "an unnamed host"
	}
	return name
}
