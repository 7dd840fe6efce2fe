package gpu

import (
	"context"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/vibrant-ml/vibrant/internal/backend/kernel"
	"github.com/vibrant-ml/vibrant/internal/ranks"
)

// ErrRankLost is wrapped where another process of a Ranks ended, went silent or failed; the text names it.
var ErrRankLost = ranks.ErrLost

// Exchange is how processes exchange what their devices compute.
type Exchange string

const (
	// ExchangeAuto is NCCL between GPUs, and TCP between other devices.
	ExchangeAuto Exchange = "auto"
	// ExchangeNCCL is NVIDIA's library, which is found at run time (libnccl.so.2, or the file that VIBRANT_NCCL names). It goes
	// over NVLink, InfiniBand or sockets, whatever is there, and its collectives may be captured.
	ExchangeNCCL Exchange = "nccl"
	// ExchangeTCP goes through the memory of the hosts and rank 0, for devices of any kind. It cannot be captured.
	ExchangeTCP Exchange = "tcp"
)

// RanksConfig says where this process stands among processes that compute together, each a rank with a device of its own.
type RanksConfig struct {
	Rank, Size int
	LocalRank  int           // among the ranks of this host: the number of its GPU there
	Address    string        // host:port where rank 0 listens until all are there; rank 0 binds to this address alone
	Token      string        // that all ranks have, so that no other process joins; "" for none
	Timeout    time.Duration // in which all ranks have to be there; 0 for 2 minutes
	Exchange   Exchange      // "" for ExchangeAuto
	Lost       func(error)   // is called once where another rank is lost, from a goroutine of its own; may be nil
}

// RanksFromEnvironment reads what torchrun, mpirun (Open MPI, MPICH), srun or a Kubernetes LeaderWorkerSet say in variables:
// docs/distributed.md lists them. It is nil where no launcher has started this process. VIBRANT_RANKS_TOKEN is the token, VIBRANT_PORT
// another port than MASTER_PORT. Half a set of variables is an error that names the missing one.
func RanksFromEnvironment() (*RanksConfig, error) {
	p, err := ranks.FromEnvironment(os.Getenv)
	if p == nil || err != nil {
		return nil, err
	}
	return &RanksConfig{Rank: p.Rank, Size: p.Size, LocalRank: p.LocalRank, Address: p.Address, Token: os.Getenv("VIBRANT_RANKS_TOKEN")}, nil
}

// Ranks are processes that compute together.
type Ranks struct {
	group    *ranks.Group
	exchange Exchange

	mu      sync.Mutex
	channel uint32 // of the newest communicator
}

// JoinRanks meets the other processes and returns when all are there. The caller closes it, after its communicators.
//
// Errors: ErrInvalid for a config that is none; a rank that does not come in time, comes twice or has another token; the
// error of ctx.
func JoinRanks(ctx context.Context, c RanksConfig) (*Ranks, error) {
	switch c.Exchange {
	case "", ExchangeAuto, ExchangeNCCL, ExchangeTCP:
	default:
		return nil, fmt.Errorf("gpu: exchange %q: %w: want auto, nccl or tcp", c.Exchange, ErrInvalid)
	}
	g, err := ranks.Join(ctx, ranks.Config{
		Place: ranks.Place{Rank: c.Rank, Size: c.Size, LocalRank: c.LocalRank, Address: c.Address},
		Token: c.Token, Timeout: c.Timeout, Lost: c.Lost,
	})
	if err != nil {
		return nil, err
	}
	return &Ranks{group: g, exchange: c.Exchange, channel: ranks.ChannelFirst}, nil
}

// Rank returns the number of this process, from 0 on.
func (r *Ranks) Rank() int { return r.group.Rank() }

// Size returns how many processes there are.
func (r *Ranks) Size() int { return r.group.Size() }

// Fail ends all ranks because of an error of this one, which theirs then names.
func (r *Ranks) Fail(err error) { r.group.Fail(err) }

// Err returns why the ranks have ended, nil while they have not.
func (r *Ranks) Err() error { return r.group.Err() }

// Close leaves the others. nil and twice are harmless.
func (r *Ranks) Close() error {
	if r == nil {
		return nil
	}
	return r.group.Close()
}

// Group is for packages of this module.
func (r *Ranks) Group() *ranks.Group { return r.group }

// ExchangeOf returns how streams of a device exchange: ErrUnsupported where NCCL is asked for and cannot be had, with the reason.
func (r *Ranks) ExchangeOf(d *Device) (Exchange, error) { return r.exchangeOf(d.device) }

func (r *Ranks) exchangeOf(d *device) (Exchange, error) {
	exchange := r.exchange
	if exchange == "" || exchange == ExchangeAuto {
		if exchange = ExchangeNCCL; d.info.HostMemory {
			exchange = ExchangeTCP
		}
	}
	if exchange == ExchangeTCP {
		return exchange, nil
	}
	joiner, ok := d.kernel.(kernel.RankJoiner)
	if !ok {
		return "", fmt.Errorf("gpu: exchange between processes by NCCL on %s: %w; exchange tcp serves every device", d, ErrUnsupported)
	}
	if err := joiner.RanksUsable(); err != nil {
		return "", fmt.Errorf("gpu: exchange between processes on %s: %w; exchange tcp needs no NCCL", d, err)
	}
	return exchange, nil
}

// NewCommunicator joins a stream of this process with one of each other rank. All ranks call it, in the same order as
// they make other communicators, and enqueue the same collectives in the same order. Lists of operands have one element, that of
// this process. The caller closes it, before its stream.
func (r *Ranks) NewCommunicator(s *Stream) (*Communicator, error) {
	c := &Communicator{streams: []*Stream{s}}
	if r.Size() == 1 {
		return c, nil
	}
	if s.timed != nil {
		return nil, fmt.Errorf("gpu: communicator of %d processes: %w: %s is profiled, whose times would be those of waiting for the others",
			r.Size(), ErrUnsupported, s.dev)
	}
	exchange, err := r.exchangeOf(s.dev)
	if err != nil {
		return nil, err
	}
	c.ranks = r
	r.mu.Lock()
	r.channel++
	channel := r.channel
	r.mu.Unlock()
	if exchange == ExchangeTCP {
		c.staged = true
		c.kernel = &staged{group: r.group, channel: channel, device: s.dev.kernel, stream: s.kernel, host: s.dev.info.HostMemory}
	} else if c.kernel, err = r.join(s, channel); err != nil {
		return nil, fmt.Errorf("gpu: communicator of %d processes: %w", r.Size(), err)
	}
	s.mu.Lock()
	s.joined = append(s.joined, c)
	s.mu.Unlock()
	return c, nil
}

// join has the device's library meet those of the other ranks, by an id that rank 0 makes. A rank that is lost ends what waits for
// it on the device.
func (r *Ranks) join(s *Stream, channel uint32) (kernel.Communicator, error) {
	joiner := s.dev.kernel.(kernel.RankJoiner)
	id := make([]byte, kernel.RanksIDBytes)
	if r.Rank() == 0 {
		if err := joiner.RanksID(id); err != nil {
			return nil, err
		}
	}
	if err := r.group.Broadcast(channel, id, 0); err != nil {
		return nil, err
	}
	k, err := joiner.JoinRanks(s.kernel, r.Rank(), r.Size(), id)
	if err != nil {
		return nil, err
	}
	ended := make(chan struct{})
	aborted := make(chan struct{})
	go func() {
		defer close(aborted)
		select {
		case <-r.group.Lost():
			k.Abort()
		case <-ended:
		}
	}()
	return &joined{RankCommunicator: k, ranks: r, ended: ended, aborted: aborted}, nil
}

// joined is a device's communicator with processes, which is aborted where one of them is lost.
type joined struct {
	kernel.RankCommunicator
	ranks          *Ranks
	ended, aborted chan struct{}
}

func (j *joined) Close() error {
	close(j.ended)
	<-j.aborted
	return j.RankCommunicator.Close()
}
