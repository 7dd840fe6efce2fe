package ranks

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"time"
)

// How ranks meet. Rank 0 listens; every other rank connects and gets the mark and a random challenge. It answers with a hello:
// its number, and a proof that it has the token. When all are there, each gets a welcome, with rank 0's own proof. Then nobody
// listens any more. Both are JSON behind their length. A connection without a proof is closed and changes nothing.

const (
	mark           = "VIBRANK1"
	challengeBytes = 32
	maxHello       = 256 << 10
	retry          = 200 * time.Millisecond
	defaultTimeout = 2 * time.Minute
)

// patience is what connections get that have not said hello yet.
type patience struct {
	time        time.Duration // of each
	connections int
}

var ofRankZero = patience{10 * time.Second, 2 * MaxRanks}

type hello struct {
	Rank      int    `json:"rank"`
	Size      int    `json:"size"`
	Member    member `json:"member"`
	Challenge []byte `json:"challenge"`
	Proof     []byte `json:"proof"`
}

type welcome struct {
	Problem string   `json:"problem,omitempty"`
	Members []member `json:"members,omitempty"`
	Proof   []byte   `json:"proof,omitempty"`
}

// proof is what only a rank with the token can say to a challenge.
func proof(token, who string, challenge []byte) []byte {
	h := hmac.New(sha256.New, []byte(token))
	h.Write([]byte(mark + who))
	h.Write(challenge)
	return h.Sum(nil)
}

func writeJSON(w io.Writer, message any) error {
	text, err := json.Marshal(message)
	if err != nil {
		return err
	}
	_, err = w.Write(append(binary.LittleEndian.AppendUint32(nil, uint32(len(text))), text...))
	return err
}

func readJSON(r io.Reader, message any) error {
	var n uint32
	if err := binary.Read(r, binary.LittleEndian, &n); err != nil {
		return err
	}
	if n > maxHello {
		return fmt.Errorf("a greeting of %d bytes", n)
	}
	text := make([]byte, n)
	if _, err := io.ReadFull(r, text); err != nil {
		return err
	}
	return json.Unmarshal(text, message)
}

// Join meets the other ranks and returns when all are there. The caller closes the group.
//
// Errors, one line each: a rank that does not come within the timeout, two processes of one number, different numbers of
// ranks, another token, an address that is not of this host.
func Join(ctx context.Context, c Config) (*Group, error) {
	if c.Size < 1 || c.Size > MaxRanks || c.Rank < 0 || c.Rank >= c.Size {
		return nil, fmt.Errorf("rank %d of %d: want one of 1 to %d ranks", c.Rank, c.Size, MaxRanks)
	}
	if c.Timeout == 0 {
		c.Timeout = defaultTimeout
	}
	self := member{hostName(), os.Getpid()}
	if c.Size == 1 {
		return newGroup(c, []member{self}), nil
	}
	bounded, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	var g *Group
	var err error
	if c.Rank == 0 {
		g, err = gather(bounded, c, self)
	} else {
		g, err = meet(bounded, c, self)
	}
	if err != nil {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		return nil, err
	}
	g.start()
	return g, nil
}

// arrival is a process that has said hello.
type arrival struct {
	hello
	conn net.Conn
	err  error // of one that is no rank
}

// gather waits for all other ranks.
func gather(ctx context.Context, c Config, self member) (_ *Group, err error) {
	var listening net.ListenConfig
	listener, err := listening.Listen(ctx, "tcp", c.Address)
	if err != nil {
		return nil, fmt.Errorf("rank 0 cannot listen at %s: %w (VIBRANT_PORT names another port)", c.Address, plain(err))
	}
	arrivals := make(chan arrival)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(ctx, func() { listener.Close() })()
	defer listener.Close()
	go accept(ctx, listener, c.Token, ofRankZero, arrivals)

	members := make([]member, c.Size)
	members[0] = self
	conns := make([]net.Conn, c.Size)
	challenges := make([][]byte, c.Size)
	refused := ""
	fail := func(err error) error {
		for _, conn := range conns {
			if conn != nil {
				refuse(conn, err.Error())
			}
		}
		return err
	}
	for missing := c.Size - 1; missing > 0; {
		select {
		case <-ctx.Done():
			err := fmt.Errorf("%s did not answer at %s within %v%s", absent(conns), c.Address, c.Timeout, refused)
			return nil, fail(err)
		case a := <-arrivals:
			if a.err != nil {
				refused = "; " + a.err.Error()
				continue
			}
			name := fmt.Sprintf("rank %d (process %d on %s)", a.Rank, a.Member.Process, a.Member.Host)
			switch {
			case a.Size != c.Size:
				err = fmt.Errorf("%s was started as one of %d ranks, rank 0 as one of %d", name, a.Size, c.Size)
			case a.Rank < 1 || a.Rank >= c.Size:
				err = fmt.Errorf("%s: want 1 to %d", name, c.Size-1)
			case conns[a.Rank] != nil:
				err = fmt.Errorf("%s is there twice: also as process %d on %s", name, members[a.Rank].Process, members[a.Rank].Host)
			}
			if err != nil {
				refuse(a.conn, err.Error())
				return nil, fail(err)
			}
			members[a.Rank], conns[a.Rank], challenges[a.Rank] = a.Member, a.conn, a.Challenge
			missing--
		}
	}
	g := newGroup(c, members)
	for rank := 1; rank < c.Size; rank++ {
		conns[rank].SetDeadline(time.Time{})
		g.links[rank] = &link{rank: rank, conn: conns[rank]}
		// One that has ended meanwhile is found by its reader.
		writeJSON(conns[rank], welcome{Members: members, Proof: proof(c.Token, "leader", challenges[rank])})
	}
	return g, nil
}

// absent lists the ranks that did not come.
func absent(conns []net.Conn) string {
	var missing []string
	for rank, conn := range conns {
		if rank > 0 && conn == nil {
			missing = append(missing, fmt.Sprint(rank))
		}
	}
	of := fmt.Sprintf(" of %d", len(conns))
	if len(missing) == 1 {
		return "rank " + missing[0] + of
	}
	if len(missing) > 16 {
		missing = append(missing[:16], "...")
	}
	return "ranks " + strings.Join(missing, ", ") + of
}

func refuse(conn net.Conn, problem string) {
	conn.SetDeadline(time.Now().Add(parting))
	writeJSON(conn, welcome{Problem: problem})
	halfClose(conn)
	time.AfterFunc(parting, func() { conn.Close() })
}

// accept greets what connects, each in a goroutine. Where too many connections say nothing, or no more files can be opened, the oldest
// ends: strangers may connect as often as they like.
func accept(ctx context.Context, listener net.Listener, token string, limit patience, arrivals chan<- arrival) {
	var mu sync.Mutex
	var greeted []net.Conn // the oldest first
	for {
		conn, err := listener.Accept()
		if errors.Is(err, net.ErrClosed) || ctx.Err() != nil {
			if err == nil {
				conn.Close()
			}
			return
		}
		mu.Lock()
		if len(greeted) > 0 && (err != nil || len(greeted) >= limit.connections) {
			greeted[0].Close()
			greeted = greeted[1:]
		}
		if err == nil {
			greeted = append(greeted, conn)
		}
		mu.Unlock()
		if err != nil {
			time.Sleep(retry)
			continue
		}
		go func() {
			a, ok := greet(conn, token, limit.time)
			mu.Lock()
			greeted = slices.DeleteFunc(greeted, func(c net.Conn) bool { return c == conn })
			mu.Unlock()
			if !ok {
				conn.Close()
				return
			}
			select {
			case arrivals <- a:
			case <-ctx.Done():
				conn.Close()
			}
		}()
	}
}

// greet reads a hello; false of what is no rank.
func greet(conn net.Conn, token string, timeout time.Duration) (arrival, bool) {
	a := arrival{conn: conn}
	challenge := make([]byte, challengeBytes)
	rand.Read(challenge)
	conn.SetDeadline(time.Now().Add(timeout))
	if _, err := conn.Write(append([]byte(mark), challenge...)); err != nil {
		return a, false
	}
	if err := readJSON(conn, &a.hello); err != nil || len(a.Challenge) != challengeBytes {
		return arrival{conn: conn}, false
	}
	a.Member.Host = clip(a.Member.Host)
	if !hmac.Equal(a.Proof, proof(token, fmt.Sprintf("rank %d", a.Rank), slices.Concat(challenge, a.Challenge))) {
		refuse(conn, "rank 0 has another token (VIBRANT_RANKS_TOKEN)")
		a.err = fmt.Errorf("a process at %s has another token (VIBRANT_RANKS_TOKEN)", conn.RemoteAddr())
		return a, true
	}
	return a, true
}

// meet connects to rank 0.
func meet(ctx context.Context, c Config, self member) (_ *Group, err error) {
	conn, err := dial(ctx, c)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			conn.Close()
		}
	}()
	defer context.AfterFunc(ctx, func() { conn.SetDeadline(time.Now()) })()
	challenge := make([]byte, len(mark)+challengeBytes)
	if _, err := io.ReadFull(conn, challenge); err != nil || string(challenge[:len(mark)]) != mark {
		if ctx.Err() != nil {
			return nil, fmt.Errorf("rank 0 at %s does not answer within %v", c.Address, c.Timeout)
		}
		return nil, fmt.Errorf("what listens at %s is not rank 0 of Vibrant (VIBRANT_PORT names another port)", c.Address)
	}
	h := hello{Rank: c.Rank, Size: c.Size, Member: self, Challenge: make([]byte, challengeBytes)}
	rand.Read(h.Challenge)
	h.Proof = proof(c.Token, fmt.Sprintf("rank %d", h.Rank), slices.Concat(challenge[len(mark):], h.Challenge))
	if err := writeJSON(conn, h); err != nil {
		return nil, fmt.Errorf("rank 0 at %s is lost: %w", c.Address, plain(err))
	}
	var w welcome
	if err := readJSON(conn, &w); err != nil {
		if ctx.Err() != nil {
			return nil, fmt.Errorf("rank 0 at %s waits for other ranks: not all were there within %v", c.Address, c.Timeout)
		}
		return nil, fmt.Errorf("rank 0 at %s is lost: its connection ended", c.Address)
	}
	switch {
	case w.Problem != "":
		return nil, lostError{w.Problem}
	case !hmac.Equal(w.Proof, proof(c.Token, "leader", h.Challenge)):
		return nil, fmt.Errorf("rank 0 at %s has another token (VIBRANT_RANKS_TOKEN)", c.Address)
	case len(w.Members) != c.Size:
		return nil, fmt.Errorf("rank 0 at %s names %d ranks, not %d", c.Address, len(w.Members), c.Size)
	}
	conn.SetDeadline(time.Time{})
	g := newGroup(c, w.Members)
	g.links[0] = &link{conn: conn}
	return g, nil
}

// dial tries until rank 0 listens.
func dial(ctx context.Context, c Config) (net.Conn, error) {
	var dialer net.Dialer
	for {
		conn, err := dialer.DialContext(ctx, "tcp", c.Address)
		if err == nil {
			return conn, nil
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("rank 0 at %s does not answer within %v: %w", c.Address, c.Timeout, plain(err))
		case <-time.After(retry):
		}
	}
}

// plain leaves out of an error what the text around it says already.
func plain(err error) error {
	var op *net.OpError
	if errors.As(err, &op) {
		return op.Err
	}
	return err
}
