package vibrant

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/vibrant-ml/vibrant/gpu"
	"github.com/vibrant-ml/vibrant/internal/language/gguf"
	"github.com/vibrant-ml/vibrant/internal/ranks"
)

// ErrRankLost is wrapped where another process of WithRanks ended, went silent or failed; the text names it.
var ErrRankLost = gpu.ErrRankLost

// WithRanks divides the model among processes, a rank each with a device of its own, on any number of hosts: each has a part of
// every layer, as with WithDevices. nil is this process alone, so that gpu.RanksFromEnvironment may be passed on. Every process opens the same
// file with the same options. Open returns when all have loaded their parts. Rank 0 is then used as any model; every other rank
// calls Model.Follow. Context and length of prompt chunks are those of rank 0.
//
// The device "auto" or "cuda" is the GPU of the rank's number on its host. Without adapters, layers on several devices, and profiling;
// caches of conversations are not saved. docs/distributed.md has the launchers' manifests.
//
// Errors of Open: a rank that does not come in time, or whose version, model file, kind of device or options differ, each with the
// rank's name. An error of one rank is that of all.
func WithRanks(r *gpu.RanksConfig) Option { return func(c *config) { c.ranks = r } }

// Rank returns the number of this process among those of WithRanks, 0 for one alone.
func (m *Model) Rank() int {
	if m.ranks == nil {
		return 0
	}
	return m.ranks.Rank()
}

// Follow computes what rank 0 asks for, and returns nil when that closes its model. It is what a rank above 0 does: there are no
// sessions. Errors: ErrRankLost; that of ctx, whose end ends all ranks.
func (m *Model) Follow(ctx context.Context) error {
	if m.Rank() == 0 {
		return fmt.Errorf("rank 0 follows nobody: %w", gpu.ErrInvalid)
	}
	if err := m.life.enter(); err != nil {
		return err
	}
	defer m.life.leave()
	ctx, stop := whileOpen(ctx, &m.life)
	defer stop()
	defer context.AfterFunc(ctx, func() { m.ranks.Fail(fmt.Errorf("it was told to end: %w", context.Cause(ctx))) })()
	err := m.model.Follow()
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// join meets the other ranks; nil for one process.
func (c *config) join(ctx context.Context) (*gpu.Ranks, error) {
	r := c.ranks
	if r == nil || r.Size == 1 {
		return nil, nil
	}
	switch {
	case len(c.adapters) > 0:
		return nil, errors.New("adapters of a model in several processes are not supported")
	case c.gpuLayers != nil || c.layerSplit:
		return nil, errors.New("whole layers on devices, and processes that share every layer: choose one")
	case c.profiling:
		return nil, errors.New("profiling of a model in several processes is not supported")
	case strings.Contains(c.device, ","):
		return nil, fmt.Errorf("devices %s of one of several processes: want one device for each", c.device)
	}
	return gpu.JoinRanks(ctx, *r)
}

// rankDevice returns the name of a rank's device: what its launcher calls its local rank is the GPU's number, unless the launcher shows
// each process one GPU alone.
func (c *config) rankDevice() (string, error) {
	kind, err := deviceKind(c.device)
	if err != nil || kind != "auto" && kind != "cuda" {
		return c.device, err
	}
	infos, err := gpu.Devices()
	if err != nil {
		return "", err
	}
	gpus := 0
	for _, i := range infos {
		if !i.HostMemory {
			gpus++
		}
	}
	return gpuOfRank(kind, c.ranks.LocalRank, gpus, os.Getenv("CUDA_VISIBLE_DEVICES") != "")
}

// gpuOfRank returns the device of a kind for a rank of a host with so many GPUs; chosen says that the launcher has shown them to it.
func gpuOfRank(kind string, local, gpus int, chosen bool) (string, error) {
	switch {
	case gpus == 0 && kind == "auto":
		return "cpu", nil
	case gpus == 0 || local < gpus:
		return fmt.Sprintf("cuda:%d", local), nil
	case gpus == 1 && chosen:
		return "cuda:0", nil
	}
	return "", fmt.Errorf("local rank %d wants a GPU of its own, but this host shows %d: %w", local, gpus, gpu.ErrNoDevice)
}

// settings are those of rank 0 that hold for all.
type settings struct {
	Context, Enough, Chunk int
}

// agree compares what all ranks must have alike, and takes the settings of rank 0.
func (m *Model) agree(f *gguf.File, c *config) error {
	exchange, err := m.ranks.ExchangeOf(m.device)
	if err != nil {
		return err
	}
	file, err := fingerprint(f)
	if err != nil {
		return err
	}
	info := m.device.Info()
	kind := info.Backend
	if info.ComputeMajor > 0 {
		kind = fmt.Sprintf("%s of compute capability %d.%d", kind, info.ComputeMajor, info.ComputeMinor)
	}
	s := settings{c.context, c.enough, c.chunk}
	err = m.ranks.Group().Agree([]ranks.Fact{
		{Name: "version of Vibrant", Value: Version},
		{Name: "model file", Value: fmt.Sprintf("%d bytes, sampled hash %.16s", f.Size, file)},
		{Name: "kind of device", Value: kind},
		{Name: "type of cache", Value: string(c.kvType)},
		{Name: "pre-tokenizer", Value: c.preTokenizer},
		{Name: "exchange", Value: string(exchange)},
	}, &s)
	c.context, c.enough, c.chunk = s.Context, s.Enough, s.Chunk
	return err
}

// failRanks tells the other ranks of an error of this one, and not of one that they told.
func (m *Model) failRanks(err error) {
	if m.ranks != nil && !errors.Is(err, ErrRankLost) {
		m.ranks.Fail(err)
	}
}
