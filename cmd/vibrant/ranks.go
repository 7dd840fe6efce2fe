package main

import (
	"context"
	"errors"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/vibrant-ml/vibrant"
	"github.com/vibrant-ml/vibrant/gpu"
)

// rankFlags say whether a launcher's processes compute one model together.
type rankFlags struct {
	use, exchange string
	timeout       time.Duration
	config        *gpu.RanksConfig // nil for one process
	met           bool             // or tried to: vibrant.Open tells the others of its errors
}

// errFollowed says that this process was a rank above 0, and that rank 0 has ended.
var errFollowed = errors.New("followed rank 0")

// lastWords is how long a command may take to end after a rank was lost.
const lastWords = 3 * time.Second

// farewell is how long a rank that fails before it has met the others waits for them, to say why.
const farewell = 10 * time.Second

// addRanks has a command run as several processes, of which rank 0 talks. others are flags that go without a model.
func (m *modelFlags) addRanks(c *cobra.Command, others ...string) {
	f := c.Flags()
	f.StringVar(&m.ranks.use, "ranks", "auto", "auto: processes that torchrun, mpirun, srun or a LeaderWorkerSet has started compute one model together; off: each alone")
	f.DurationVar(&m.ranks.timeout, "ranks-timeout", 2*time.Minute, "time in which all ranks have to be there")
	f.StringVar(&m.ranks.exchange, "exchange", "auto", "how ranks exchange: nccl, tcp, or auto (nccl between GPUs)")
	complete(c, "ranks", func() []string { return []string{"auto", "off"} })
	complete(c, "exchange", func() []string { return []string{"auto", "nccl", "tcp"} })
	before, run := c.PreRunE, c.RunE
	c.RunE = func(cmd *cobra.Command, args []string) error { return m.ranks.tell(cmd.Context(), run(cmd, args)) }
	c.PreRunE = func(cmd *cobra.Command, args []string) error {
		for _, name := range others {
			if cmd.Flags().Changed(name) {
				return before(cmd, args)
			}
		}
		if err := m.readRanks(cmd); err != nil {
			return err
		}
		return m.ranks.tell(cmd.Context(), func() error {
			if err := before(cmd, args); err != nil || m.ranks.config == nil || m.ranks.config.Rank == 0 {
				return err
			}
			if cmd.Name() == "chat" { // whose argument is a model
				if err := m.modelArgument(args); err != nil {
					return err
				}
			}
			model, err := m.open(cmd)
			if err != nil {
				return err
			}
			defer model.Close()
			if err := model.Follow(cmd.Context()); err != nil {
				return err
			}
			return errFollowed
		}())
	}
}

// tell has the other ranks end with an error that this one had before it met them, such as a file that is not there. They would wait
// for it until their time is over. It returns the error.
func (r *rankFlags) tell(ctx context.Context, err error) error {
	if err == nil || r.config == nil || r.met || ctx.Err() != nil {
		return err
	}
	r.met = true
	config := *r.config
	config.Timeout, config.Lost = min(config.Timeout, farewell), nil
	if others, e := gpu.JoinRanks(ctx, config); e == nil {
		others.Fail(err)
		others.Close()
	}
	return err
}

// readRanks reads what a launcher says.
func (m *modelFlags) readRanks(cmd *cobra.Command) (err error) {
	exchange := gpu.Exchange(m.ranks.exchange)
	switch {
	case exchange != gpu.ExchangeAuto && exchange != gpu.ExchangeNCCL && exchange != gpu.ExchangeTCP:
		return usagef("--exchange is %q, want auto, nccl or tcp", m.ranks.exchange)
	case m.ranks.use == "off":
		return nil
	case m.ranks.use != "auto":
		return usagef("--ranks is %q, want auto or off", m.ranks.use)
	case m.ranks.timeout <= 0:
		return usagef("--ranks-timeout is %v, want more than 0", m.ranks.timeout)
	}
	config, err := gpu.RanksFromEnvironment()
	if err != nil {
		return usagef("%v (--ranks off runs this process alone)", err)
	}
	if config == nil || config.Size == 1 {
		return nil
	}
	config.Timeout, config.Exchange = m.ranks.timeout, exchange
	ctx := cmd.Context()
	config.Lost = stopperOf(ctx)
	// What waits for a device or for stdin does not see the end of a context: an interrupt, or the loss of a rank.
	context.AfterFunc(ctx, func() {
		time.Sleep(lastWords)
		restoreTerminal()
		os.Exit(report(os.Stderr, lost(ctx, ctx.Err())))
	})
	m.ranks.config = config
	return nil
}

// stopper ends the context of a command with a cause.
type stopper struct{}

func withStopper(ctx context.Context) context.Context {
	ctx, cancel := context.WithCancelCause(ctx)
	return context.WithValue(ctx, stopper{}, cancel)
}

func stopperOf(ctx context.Context) context.CancelCauseFunc {
	if f, ok := ctx.Value(stopper{}).(context.CancelCauseFunc); ok {
		return f
	}
	return func(error) {}
}

// lost returns why a command's ranks ended, where that is why it failed.
func lost(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); err != nil && errors.Is(cause, vibrant.ErrRankLost) {
		return cause
	}
	for e := err; e != nil; e = errors.Unwrap(e) { // an operation may fail before the context ends
		if errors.Unwrap(e) == vibrant.ErrRankLost {
			return e
		}
	}
	return err
}
