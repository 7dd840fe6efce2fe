package ranks

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/vibrant-ml/vibrant/internal/check/busy"
)

func TestLaunchersSayWhereAProcessStands(t *testing.T) {
	torch := "RANK=3 WORLD_SIZE=4 LOCAL_RANK=1 MASTER_ADDR=h0 MASTER_PORT=1234"
	ompi := "OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_LOCAL_RANK=1"
	slurm := "SLURM_PROCID=9 SLURM_LOCALID=1 SLURM_STEP_ID=0 SLURM_STEP_NUM_TASKS=16 SLURM_NNODES=2"
	for _, c := range []struct{ env, want string }{
		{"", "none"},
		{"MASTER_ADDR=h0 MASTER_PORT=1234", "none"},
		{torch, "3/4 local 1 at h0:1234"},
		{torch + " TORCHELASTIC_USE_AGENT_STORE=True", "3/4 local 1 at h0:1235"},
		{torch + " TORCHELASTIC_USE_AGENT_STORE=True VIBRANT_PORT=77", "3/4 local 1 at h0:77"},
		{torch + " SLURM_PROCID=0 SLURM_STEP_ID=0 SLURM_STEP_NUM_TASKS=2 SLURM_LOCALID=0", "3/4 local 1 at h0:1234"},
		{ompi + " OMPI_COMM_WORLD_LOCAL_SIZE=2", "1/2 local 1 at 127.0.0.1:29500"},
		{ompi + " OMPI_COMM_WORLD_LOCAL_SIZE=1 MASTER_ADDR=h1 MASTER_PORT=5", "1/2 local 1 at h1:5"},
		{slurm + " SLURM_STEP_NODELIST=gpu[07-09,12],x1", "9/16 local 1 at gpu07:29500"},
		{slurm + " SLURM_NODELIST=r[0-1]n[3,5]", "9/16 local 1 at r0n3:29500"},
		{"SLURM_PROCID=1 SLURM_LOCALID=1 SLURM_STEP_ID=0 SLURM_NTASKS=2 SLURM_NODELIST=a,b", "1/2 local 1 at a:29500"},
		{"SLURM_PROCID=0 SLURM_LOCALID=0 SLURM_NTASKS=16 SLURM_NODELIST=a", "none"}, // a batch script
		{"PMI_RANK=1 PMI_SIZE=2 MPI_LOCALRANKID=1 MPI_LOCALNRANKS=2", "1/2 local 1 at 127.0.0.1:29500"},
		{"LWS_LEADER_ADDRESS=l.svc LWS_GROUP_SIZE=2 LWS_WORKER_INDEX=1", "1/2 local 0 at l.svc:29500"},

		{"RANK=0", "WORLD_SIZE is not set, beside RANK=0"},
		{"RANK=0 WORLD_SIZE=2", "LOCAL_RANK is not set, beside RANK=0 and WORLD_SIZE=2"},
		{"RANK=0 WORLD_SIZE=2 LOCAL_RANK=0 MASTER_ADDR=h", "MASTER_PORT is not set"},
		{"RANK=0 WORLD_SIZE=2 LOCAL_RANK=0 MASTER_PORT=1", "MASTER_ADDR is not set"},
		{"RANK=2 WORLD_SIZE=2 LOCAL_RANK=0 MASTER_ADDR=h MASTER_PORT=1", "RANK is 2, but WORLD_SIZE is 2"},
		{"RANK=0 WORLD_SIZE=2 LOCAL_RANK=1 MASTER_ADDR=h MASTER_PORT=1", "LOCAL_RANK is 1, but RANK is 0"},
		{"RANK=x WORLD_SIZE=2 LOCAL_RANK=1 MASTER_ADDR=h MASTER_PORT=1", `RANK is "x"`},
		{"RANK=-1 WORLD_SIZE=2 LOCAL_RANK=1 MASTER_ADDR=h MASTER_PORT=1", `RANK is "-1"`},
		{"RANK=+1 WORLD_SIZE=2 LOCAL_RANK=1 MASTER_ADDR=h MASTER_PORT=1", `RANK is "+1"`},
		{"RANK=1 WORLD_SIZE=2 LOCAL_RANK=01 MASTER_ADDR=h MASTER_PORT=1", `LOCAL_RANK is "01"`},
		{"RANK=1 WORLD_SIZE=2 LOCAL_RANK=1 MASTER_ADDR=h MASTER_PORT=+1", `MASTER_PORT is "+1"`},
		{"RANK=0 WORLD_SIZE=9999 LOCAL_RANK=0 MASTER_ADDR=h MASTER_PORT=1", "WORLD_SIZE is 9999"},
		{"RANK=0 WORLD_SIZE=2 LOCAL_RANK=0 MASTER_ADDR=h MASTER_PORT=70000", `MASTER_PORT is "70000"`},
		{ompi + " OMPI_COMM_WORLD_LOCAL_SIZE=1", "MASTER_ADDR is not set"},
		{"OMPI_COMM_WORLD_RANK=1", "OMPI_COMM_WORLD_SIZE is not set"},
		{"SLURM_STEP_ID=0 SLURM_LOCALID=1", "SLURM_PROCID is not set"},
		{"LWS_GROUP_SIZE=2 LWS_WORKER_INDEX=1", "MASTER_ADDR is not set"},
	} {
		env := map[string]string{}
		for _, v := range strings.Fields(c.env) {
			name, value, _ := strings.Cut(v, "=")
			env[name] = value
		}
		p, err := FromEnvironment(func(name string) string { return env[name] })
		got := "none"
		if err != nil {
			got = err.Error()
		} else if p != nil {
			got = fmt.Sprintf("%d/%d local %d at %s", p.Rank, p.Size, p.LocalRank, p.Address)
		}
		if got != c.want && (err == nil || !strings.Contains(got, c.want)) {
			t.Errorf("%s: %s, want %s", c.env, got, c.want)
		}
	}
}

// eachRank runs f as every rank of a group; an error is that of a rank's Join.
func eachRank(t *testing.T, n int, change func(rank int, c *Config), f func(g *Group) error) []error {
	t.Helper()
	at, errs := busy.Address(t), make([]error, n)
	var all sync.WaitGroup
	for rank := range n {
		all.Add(1)
		go func() {
			defer all.Done()
			c := Config{Place: Place{Rank: rank, Size: n, Address: at}, Timeout: busy.Limit}
			if change != nil {
				change(rank, &c)
			}
			if c.Size == 0 { // does not come
				return
			}
			g, err := Join(context.Background(), c)
			if err == nil {
				err = f(g)
				g.Close()
			}
			errs[rank] = err
		}()
	}
	all.Wait()
	return errs
}

func noErrors(t *testing.T, errs []error) {
	t.Helper()
	for rank, err := range errs {
		if err != nil {
			t.Errorf("rank %d: %v", rank, err)
		}
	}
}

// wantAll wants an error of every rank that says this.
func wantAll(t *testing.T, errs []error, text string) {
	t.Helper()
	for rank, err := range errs {
		if err == nil || !strings.Contains(err.Error(), text) || strings.Contains(err.Error(), "\n") {
			t.Errorf("rank %d: %v, want %q", rank, err, text)
		}
	}
}

func TestCollectivesOfProcesses(t *testing.T) {
	for _, n := range []int{1, 2, 3, 5} {
		for _, size := range []int{0, 1, 7, 1<<20 + 5, 3 << 20} {
			if size > 1<<20 && n != 3 {
				continue
			}
			noErrors(t, eachRank(t, n, nil, func(g *Group) error {
				x := make([]float32, size)
				for i := range x {
					x[i] = float32(g.Rank()+1) * (0.1 + float32(i%13))
				}
				if err := g.AllReduce(9, x); err != nil {
					return err
				}
				for i, v := range x {
					want := float32(0)
					for r := range n {
						want += float32(r+1) * (0.1 + float32(i%13))
					}
					if v != want { // the same order of the sum
						return fmt.Errorf("sum [%d] is %g, want %g", i, v, want)
					}
				}
				parts := make([][]byte, n)
				for r := range parts {
					parts[r] = make([]byte, size*(r+1))
				}
				for i := range parts[g.Rank()] {
					parts[g.Rank()][i] = byte(i + g.Rank())
				}
				if err := g.AllGather(9, parts); err != nil {
					return err
				}
				for r, part := range parts {
					for i, b := range part {
						if b != byte(i+r) {
							return fmt.Errorf("byte %d of rank %d is %d", i, r, b)
						}
					}
				}
				for root := range n {
					data := make([]byte, size)
					if g.Rank() == root {
						for i := range data {
							data[i] = byte(i * (root + 3))
						}
					}
					if err := g.Broadcast(9, data, root); err != nil {
						return err
					}
					for i, b := range data {
						if b != byte(i*(root+3)) {
							return fmt.Errorf("byte %d of rank %d's broadcast is %d", i, root, b)
						}
					}
				}
				// Around the ring, which goes through rank 0.
				out, in := []byte{byte(g.Rank()), 7}, make([]byte, 2)
				if err := g.Send((g.Rank()+1)%n, 10, out); err != nil {
					return err
				}
				from := (g.Rank() + n - 1) % n
				if err := g.Receive(from, 10, in); err != nil || in[0] != byte(from) {
					return fmt.Errorf("%v, %v", in, err)
				}
				return nil
			}))
		}
	}
}

func TestRanksAgreeOnFacts(t *testing.T) {
	facts := func(rank int) []Fact { return []Fact{{"version", "1"}, {"model file", "a"}} }
	check := func(g *Group, own []Fact) (string, error) {
		note := "none"
		if g.Rank() == 0 {
			note = "of rank 0"
		}
		err := g.Agree(own, &note)
		return note, err
	}
	noErrors(t, eachRank(t, 3, nil, func(g *Group) error {
		note, err := check(g, facts(g.Rank()))
		if err == nil && note != "of rank 0" {
			err = errors.New(note)
		}
		return err
	}))
	wantAll(t, eachRank(t, 3, nil, func(g *Group) error {
		own := facts(g.Rank())
		if g.Rank() == 2 {
			own[1].Value = "b\nc"
		}
		_, err := check(g, own)
		return err
	}), `has another model file than rank 0: b\nc, not a`)
}

func TestRanksThatDoNotFitTogether(t *testing.T) {
	never := func(*Group) error { return errors.New("joined") }
	wantAll(t, eachRank(t, 2, func(rank int, c *Config) { c.Size = 2 + rank }, never), "was started as one of 3 ranks, rank 0 as one of 2")
	errs := eachRank(t, 3, func(rank int, c *Config) { c.Rank = min(rank, 1) }, never)
	wantAll(t, errs, "is there twice")

	// Another token: rank 0 waits for those who have its own. On a busy machine rank 1 may come when rank 0 has given up.
	const another = "another token (VIBRANT_RANKS_TOKEN)"
	for timeout := time.Second; timeout < busy.Limit; timeout *= 4 {
		errs = eachRank(t, 2, func(rank int, c *Config) { c.Token, c.Timeout = fmt.Sprint(rank), timeout }, never)
		if errs[0] != nil && strings.Contains(errs[0].Error(), another) {
			break
		}
	}
	wantAll(t, errs, another)
	noErrors(t, eachRank(t, 2, func(rank int, c *Config) { c.Token = "secret" }, func(g *Group) error { return nil }))
}

func TestAHostThatDoesNotAnswerEndsTheWait(t *testing.T) {
	never := func(*Group) error { return errors.New("joined") }
	absent := func(who ...int) func(int, *Config) {
		return func(rank int, c *Config) {
			c.Timeout = time.Second
			if slices.Contains(who, rank) {
				c.Size = 0
			}
		}
	}
	errs := eachRank(t, 4, absent(1, 3), never)
	// Rank 2 may be late on a busy machine.
	if !regexp.MustCompile(`^ranks 1, (2, )?3 of 4 did not answer at 127[.\d]+:\d+ within 1s`).MatchString(fmt.Sprint(errs[0])) {
		t.Errorf("rank 0: %v", errs[0])
	}
	if errs[2] == nil {
		t.Error("rank 2 joined nobody")
	}
	wantAll(t, eachRank(t, 2, absent(0), never)[1:], "does not answer within 1s: ")
	if _, err := Join(context.Background(), Config{Place: Place{Size: 2, Address: "192.0.2.1:99"}, Timeout: time.Second}); err == nil || !strings.Contains(err.Error(), "cannot listen at 192.0.2.1:99") {
		t.Error(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	time.AfterFunc(50*time.Millisecond, cancel)
	if _, err := Join(ctx, Config{Place: Place{Rank: 1, Size: 2, Address: busy.Address(t)}}); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// TestStrangersChangeNothing has others connect to the port of rank 0.
func TestStrangersChangeNothing(t *testing.T) {
	at := busy.Address(t)
	done := make(chan error, 1)
	go func() {
		g, err := Join(context.Background(), Config{Place: Place{Size: 2, Address: at}, Timeout: busy.Limit})
		if err == nil {
			g.Close()
		}
		done <- err
	}()
	for _, text := range []string{"", "GET / HTTP/1.1\r\n\r\n", "\xff\xff\xff\xff{", "\x02\x00\x00\x00{}", "\x04\x00\x00\x00null"} {
		var conn net.Conn
		busy.Until(t, "rank 0 does not listen", func() bool {
			var err error
			conn, err = net.Dial("tcp", at)
			return err == nil
		})
		io.WriteString(conn, text)
		conn.(*net.TCPConn).CloseWrite()
		conn.SetReadDeadline(time.Now().Add(busy.Limit))
		if b, _ := io.ReadAll(conn); len(b) != len(mark)+challengeBytes { // the end may be a reset
			t.Errorf("%q got %q", text, b)
		}
		conn.Close()
	}
	g, err := Join(context.Background(), Config{Place: Place{Rank: 1, Size: 2, Address: at}, Timeout: busy.Limit})
	if err != nil {
		t.Fatal(err)
	}
	g.Close()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// FuzzGreet has what does not know the token say something to rank 0. It is no rank.
func FuzzGreet(f *testing.F) {
	for _, text := range []string{"", "GET / HTTP/1.1\r\n\r\n", "\xff\xff\xff\xff{", "\x02\x00\x00\x00{}", "\x04\x00\x00\x00null"} {
		f.Add([]byte(text))
	}
	var b bytes.Buffer
	long := member{strings.Repeat("\x1b", 5000), -1}
	writeJSON(&b, hello{Rank: 1, Size: 2, Member: long, Challenge: make([]byte, challengeBytes), Proof: make([]byte, 32)})
	f.Add(b.Bytes())
	f.Fuzz(func(t *testing.T, text []byte) {
		stranger, own := net.Pipe()
		defer own.Close()
		go func() {
			defer stranger.Close()
			io.CopyN(io.Discard, stranger, int64(len(mark)+challengeBytes))
			stranger.Write(text)
		}()
		a, ok := greet(own, "secret", busy.Limit)
		if ok && a.err == nil || len(a.Member.Host) > 2000 || a.err != nil && len(a.err.Error()) > 300 {
			t.Fatalf("%v, %.300v, host of %d bytes", ok, a.err, len(a.Member.Host))
		}
	})
}

// failing is a listener whose first Accept finds no more files.
type failing struct {
	net.Listener
	failed atomic.Bool
}

func (f *failing) Accept() (net.Conn, error) {
	if !f.failed.Swap(true) {
		return nil, &net.OpError{Op: "accept", Err: syscall.EMFILE}
	}
	return f.Listener.Accept()
}

// TestStrangersThatSayNothingDoNotKeepARankOut has more connections than are greeted at once, which all wait, and a listener that could
// open no file for one.
func TestStrangersThatSayNothingDoNotKeepARankOut(t *testing.T) {
	limit := patience{time.Hour, 4}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	arrivals, ended := make(chan arrival), make(chan struct{})
	go func() {
		defer close(ended)
		accept(ctx, &failing{Listener: listener}, "secret", limit, arrivals)
	}()
	defer func() {
		cancel()
		listener.Close()
		<-ended
	}()
	for range 2 * limit.connections {
		stranger, err := net.Dial("tcp", listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer stranger.Close()
	}
	rank := make(chan error, 1)
	go func() {
		_, err := Join(ctx, Config{Place: Place{Rank: 1, Size: 2, Address: listener.Addr().String()}, Token: "secret", Timeout: time.Minute})
		rank <- err
	}()
	select {
	case a := <-arrivals:
		if a.err != nil || a.Rank != 1 {
			t.Errorf("rank %d, %v", a.Rank, a.err)
		}
		a.conn.Close()
	case err := <-rank:
		t.Fatal(err)
	}
	<-rank // which lost rank 0
}

func TestARankThatFailsEndsAll(t *testing.T) {
	for who := range 3 {
		lost := make(chan error, 3)
		errs := eachRank(t, 3, func(rank int, c *Config) { c.Lost = func(err error) { lost <- err } }, func(g *Group) error {
			if g.Rank() == who {
				err := errors.New("out of memory")
				g.Fail(err)
				return err
			}
			return g.Receive(who, 5, make([]byte, 1))
		})
		wantAll(t, errs, "out of memory")
		for rank, err := range errs {
			if rank != who && !strings.HasPrefix(err.Error(), fmt.Sprintf("rank %d (process ", who)) {
				t.Errorf("rank %d: %v", rank, err)
			}
		}
		for range 2 {
			<-lost
		}
	}
}

// TestARankThatDiesIsNamed ends a rank's connection as the end of its process does.
func TestARankThatDiesIsNamed(t *testing.T) {
	for who := range 3 {
		errs := eachRank(t, 3, nil, func(g *Group) error {
			if g.Rank() == who {
				time.Sleep(100 * time.Millisecond)
				g.mu.Lock()
				g.closing = true // says nothing any more
				g.mu.Unlock()
				for _, l := range g.links {
					if l != nil {
						l.conn.Close()
					}
				}
				return nil
			}
			err := g.Receive(who, 5, make([]byte, 1))
			if !errors.Is(err, ErrLost) {
				return fmt.Errorf("wraps no ErrLost: %v", err)
			}
			return err
		})
		errs = append(errs[:who], errs[who+1:]...)
		wantAll(t, errs, fmt.Sprintf("rank %d (process ", who))
		wantAll(t, errs, "is lost: its connection ended")
	}
}

// TestASilentRankIsLost has a rank that is connected and says nothing, as a host does that is gone.
func TestASilentRankIsLost(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for the silence of a rank")
	}
	var others sync.WaitGroup
	others.Add(2)
	errs := eachRank(t, 3, nil, func(g *Group) error {
		if g.Rank() == 2 {
			g.links[0].mu.Lock() // nothing is written any more
			others.Wait()
			g.links[0].mu.Unlock()
			return nil
		}
		defer others.Done()
		return g.Receive(2, 5, make([]byte, 1))
	})
	wantAll(t, errs[:2], "rank 2 (process ")
	wantAll(t, errs[:2], "is lost: no sign of life for 5s")
}

func TestARankThatLeavesIsNoLoss(t *testing.T) {
	noErrors(t, eachRank(t, 3, func(_ int, c *Config) { c.Lost = func(err error) { t.Errorf("lost: %v", err) } }, func(g *Group) error {
		if g.Rank() == 0 {
			return g.Close()
		}
		if err := g.Receive(0, 5, make([]byte, 1)); !errors.Is(err, io.EOF) {
			return fmt.Errorf("rank 0 left: %v", err)
		}
		return nil
	}))
}
