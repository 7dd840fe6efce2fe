package engine

import (
	"context"
	"errors"
	"fmt"

	"github.com/vibrant-ml/vibrant/gpu"
	"github.com/vibrant-ml/vibrant/internal/language/model"
	"github.com/vibrant-ml/vibrant/tensor"
)

// ErrContextFull says that a prompt has more tokens than the context, or that no other token fits.
var ErrContextFull = errors.New("the prompt does not fit into the context")

// StageChunk is how many tokens of a prompt one pass computes, at most, where devices have whole layers each: two H200s compute 2,048
// and 8,192 tokens a tenth faster so than by 256.
const StageChunk = 512

// shortChunk is at most how many tokens a pass computes of the last 2,048 of a prompt, where devices have one run of layers each: two tiles
// of the products of a prompt on Hopper. Two H100s compute 2,048 tokens 6 % faster so than by 512 and 256.
const shortChunk = 352

// fewestTogether is from how many tokens on a prompt is cut into chunks that devices with several runs of layers compute together.
const fewestTogether = 256

// stride returns how many of the n tokens left of a prompt the next pass computes, and how many such chunks are computed together.
// Devices that have whole layers each take the end of a prompt in chunks of one size, so that all of them are busy.
func (r *runner) stride(n int) (tokens, together int) {
	together = r.model.Together()
	switch {
	case together > 1 && n >= fewestTogether:
		groups := (n + together*r.chunk - 1) / (together * r.chunk)
		chunks := groups * together
		return (n + chunks - 1) / chunks, together
	case together > 1 || r.chunk != StageChunk || !r.model.Staged() || n > 4*r.chunk:
		return min(n, r.chunk), 1
	}
	chunks := (n + shortChunk - 1) / shortChunk
	return (n + chunks - 1) / chunks, 1
}

// defaultChunk is how many tokens of a prompt one pass computes: enough for matrix products to run at full speed, few enough
// that cancelling is prompt and the workspace small (0.13 MB a token for 3 billion parameters). GPUs of compute capability 9,
// which have 80 GB and more, are a quarter faster with 2048 than with 512.
func defaultChunk(d *gpu.Device) int {
	if d.Info().ComputeMajor == 9 {
		return 2048
	}
	return 512
}

// fewestRows is how many tokens of a prompt a session has memory for when it opens, enough for a short question. The first prompt that
// is longer takes the memory of a chunk.
const fewestRows = 24

// runner is what a Session and a Batch have in common: a stream, a cache, a workspace, and passes over prompts.
type runner struct {
	model   *model.Model
	streams *gpu.Communicator // of the model's devices
	stream  *gpu.Stream       // of the first, which results are read from
	cache   *model.Cache
	work    *model.Workspace
	past    past // of a session's sequence
	context int  // tokens a sequence
	chunk   int  // tokens of a prompt a pass
	rows    int  // of them the workspace has room for: chunk, or fewer until a prompt needs more

	ids, positions *tensor.Tensor // of a prompt: of the chunks that are computed together
	sequence       *tensor.Tensor // [1]: where in the cache it goes
	place          []int32        // the same on the host
	row            []float32      // logits on the host

	// Of generation: captured steps, and the results of those that the host has not looked at yet.
	steps   steps
	results *tensor.Readback
	// One element a row of a step: the newest token, and where it goes.
	stepIDs, stepPositions *tensor.Tensor
	likeliest              likeliest      // of which they are parts
	topValues, topIDs      *tensor.Tensor // [rows][k] for the choice that the steps were captured for
	ban                    ban
	adapters               adapters
	// lookAhead says that a step is worth enqueuing before the host has seen the token that it feeds: the device has it
	// already, and works on while the host decodes text. On a CPU there is nothing to win: a call returns when its work is
	// done.
	lookAhead bool
}

// open allocates. rows is how many a step may have. The caller closes the runner, also after an
// error.
func (r *runner) open(m *model.Model, sequences, rows, logitRows int, o Options) (err error) {
	if o.Context < 1 || o.Context > m.MaxContext() {
		return fmt.Errorf("engine: context of %d tokens: want 1 to %d", o.Context, m.MaxContext())
	}
	if o.Chunk == 0 {
		o.Chunk = defaultChunk(m.Device())
	}
	r.model, r.context, r.chunk = m, o.Context, min(o.Chunk, o.Context)
	r.place = make([]int32, 1) // of its own: C is given no memory that holds pointers of Go
	r.steps = steps{}
	if r.streams, err = m.NewStreams(); err != nil {
		return err
	}
	r.lookAhead = !m.Device().Info().HostMemory && m.Captures(r.streams)
	r.stream = r.streams.Stream(0)
	r.results = tensor.NewReadback(r.stream)
	if r.cache, err = m.NewCache(r.streams, cacheOptions(&m.Config, sequences, o)); err != nil {
		return err
	}
	r.past = newPast(m, r.cache)
	r.rows = r.chunk
	if sequences == 1 && m.Alone() {
		r.rows = min(r.chunk, fewestRows)
	}
	if r.work, err = m.NewWorkspace(r.streams, max(r.rows, rows), logitRows); err != nil {
		return err
	}
	if err := r.likeliest.open(r.stream, rows); err != nil {
		return err
	}
	r.stepIDs, r.stepPositions = r.likeliest.ids.Slice(0, rows), r.likeliest.positions
	return r.ints(map[**tensor.Tensor]int{&r.ids: r.chunk * m.Together(), &r.positions: r.chunk * m.Together(), &r.sequence: 1})
}

// cacheOptions says what a cache is for. Sequences of a batch never go back, so that they need no checkpoints.
func cacheOptions(c *model.Config, sequences int, o Options) model.CacheOptions {
	cache := model.CacheOptions{Sequences: sequences, Capacity: o.Context, Type: o.KVType, Rows: min(o.Chunk, o.Context)}
	if sequences == 1 && c.Recurrent() {
		cache.Checkpoints = checkpoints
	}
	return cache
}

// ints allocates vectors of I32.
func (r *runner) ints(lengths map[**tensor.Tensor]int) (err error) {
	for place, n := range lengths {
		if *place, err = tensor.New(r.stream, tensor.I32, n); err != nil {
			return err
		}
	}
	return nil
}

// close gives everything back.
func (r *runner) close() error {
	r.steps.drop(all)
	r.adapters.free()
	r.results.Close()
	r.cache.Free()
	r.work.Free()
	r.likeliest.memory.Free()
	for _, t := range []*tensor.Tensor{r.ids, r.positions, r.sequence, r.topValues, r.topIDs, r.ban.mask} {
		t.Free()
	}
	if r.streams == nil {
		return nil
	}
	return r.model.CloseStreams(r.streams)
}

// check says why ids cannot be a prompt.
func (r *runner) check(ids []int32) error {
	if len(ids) == 0 {
		return fmt.Errorf("engine: the prompt is empty")
	}
	if len(ids) > r.context {
		return fmt.Errorf("%w: %d tokens, of %d", ErrContextFull, len(ids), r.context)
	}
	return r.model.CheckIDs(ids)
}

// prompt computes ids from index `from` on, chunk by chunk, and returns the logits [1][Vocab] after the last. each, where it
// is set, gets the hidden states of each chunk, of n tokens from the first on; done is told how many ids the cache holds.
func (r *runner) prompt(ctx context.Context, ids []int32, from, sequence int,
	each func(hidden *tensor.Tensor, first, n int) error, done func(n int)) (logits *tensor.Tensor, err error) {
	if len(ids)-from > r.rows && r.rows < r.chunk {
		if err := r.replaceWorkspace(r.chunk, r.work.Adapted()); err != nil {
			return nil, err
		}
	}
	r.place[0] = int32(sequence)
	if err := r.sequence.WriteInt32s(r.place); err != nil {
		return nil, err
	}
	for lo := from; lo < len(ids); {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		tokens, together := r.stride(len(ids) - lo)
		if each != nil || r.model.Recurrent() {
			together = 1 // each chunk's rows are read, or its state kept, before the next one comes
		}
		hi := min(lo+together*tokens, len(ids))
		if r.model.Recurrent() && r.cache.Checkpoints > 0 && lo < len(ids)-tail {
			hi = min(hi, len(ids)-tail)
		}
		if err := r.past.save(lo); err != nil {
			return nil, err
		}
		r.past.begin(lo, hi)
		var hidden *tensor.Tensor
		last := lo + (hi-lo-1)/tokens*tokens // where the last of the chunks begins
		if hidden, err = r.pass(ctx, ids[lo:hi], lo, tokens); err == nil && each != nil {
			err = each(hidden, lo, hi-lo)
		}
		if err == nil && hi == len(ids) {
			err = tensor.Try(func() { logits = r.model.Logits(r.work, hidden, hi-last-1, hi-last) })
		}
		if err == nil && (hi == len(ids) || !r.model.Staged()) {
			// Cancelling is prompt because no more than one chunk is ever enqueued, or one for each stage.
			err = r.streams.Synchronize()
		}
		if err == nil {
			err = r.model.Intact()
		}
		if err != nil {
			return nil, err
		}
		r.past.end(hi)
		done(hi)
		lo = hi
	}
	return logits, nil
}

// replaceWorkspace puts a workspace of so many rows of a prompt, for adapters or for none, in the place of the one that there is.
// Captured steps end with it.
func (r *runner) replaceWorkspace(rows int, adapted bool) error {
	if err := r.stream.Synchronize(); err != nil {
		return err
	}
	create := r.model.NewWorkspace
	if adapted {
		create = r.model.NewAdaptedWorkspace
	}
	work, err := create(r.streams, max(rows, r.stepIDs.Len()), r.work.LogitRows)
	if err != nil {
		return err
	}
	r.steps.drop(all)
	r.work.Free()
	r.work, r.rows = work, rows
	return nil
}

// pass computes ids at positions first, first+1, ... of the sequence: in chunks of so many tokens together where there are more.
// hidden is of the last chunk.
func (r *runner) pass(ctx context.Context, ids []int32, first, tokens int) (hidden *tensor.Tensor, err error) {
	active, err := r.adapters.ofPrompt(ids)
	if err != nil {
		return nil, err
	}
	var chunks []model.Batch
	for lo := 0; lo < len(ids); lo += tokens {
		at, hi := len(chunks)*r.chunk, min(lo+tokens, len(ids))
		positions := make([]int32, hi-lo)
		for i := range positions {
			positions[i] = int32(first + lo + i)
		}
		b := model.Batch{
			Count: 1, Seq: hi - lo, IDs: r.ids.Slice(at, at+hi-lo), Positions: r.positions.Slice(at, at+hi-lo), Sequences: r.sequence,
			KVLen: first + hi, Adapters: active,
		}
		b.Known.IDs, b.Known.Positions, b.Known.Sequences = ids[lo:hi], positions, r.place
		if err := b.IDs.WriteInt32s(b.Known.IDs); err != nil {
			return nil, err
		}
		if err := b.Positions.WriteInt32s(positions); err != nil {
			return nil, err
		}
		if r.stream.Device().Info().HostMemory {
			b.Check = ctx.Err
		}
		chunks = append(chunks, b)
	}
	if len(chunks) == 1 {
		return r.forward(chunks[0])
	}
	if e := tensor.Try(func() { hidden, err = r.model.ForwardTogether(r.work, r.cache, chunks) }); e != nil {
		return nil, e
	}
	return hidden, err
}

// read copies logits to the host, into memory that is used again.
func (r *runner) read(logits *tensor.Tensor) ([]float32, error) {
	if n := logits.Len(); len(r.row) < n {
		r.row = make([]float32, n)
	}
	row := r.row[:logits.Len()]
	return row, logits.ReadFloat32s(row)
}

// stepKey says what a captured step computes: for how many sequences, how many of the likeliest tokens it finds after the logits
// (1: the next token; 0: none, the host reads all logits), for which rows it bans tokens, and from which stacks it reads adapters.
// The sequences' lengths and which adapters they have are no part of it: kernels find them on the device, so that a conversation
// of any length replays one graph, and so do turns with one adapter and another of its stack.
type stepKey struct {
	rows, candidates int
	banned           rowSet
	stacks           stackSet
}

// steps holds captured steps by what they compute.
type steps map[stepKey]*capturedStep

// capturedStep is a step that was computed once or more: from the second time on as one graph of all devices, of stages as one for
// each segment.
type capturedStep struct {
	graph  *model.Captured
	replay *model.Replay
}

// of returns the step of a key, and whether it was computed before.
func (g steps) of(key stepKey, staged bool) (step *capturedStep, seen bool) {
	if step, seen = g[key]; !seen {
		step = &capturedStep{}
		if staged {
			step.replay = model.NewReplay()
		}
		g[key] = step
	}
	return step, seen
}

// drop gives captured steps back.
func (g steps) drop(which func(stepKey) bool) {
	for key, step := range g {
		if which(key) {
			if step.graph != nil {
				step.graph.Close()
			}
			step.replay.Close()
			delete(g, key)
		}
	}
}

// step enqueues what batch says: one token of each of some sequences. The first time it is computed as it stands, since what a library sets up at
// its first call may not be captured; the second time it is captured, and then replayed: everything that changes from one to the
// next is read from device memory.
func (r *runner) step(key stepKey, batch func() model.Batch) error {
	staged := r.model.Staged()
	step, seen := r.steps.of(key, staged)
	compute := func() error {
		b := batch()
		b.Replay = step.replay
		hidden, err := r.forward(b)
		if err != nil {
			return err
		}
		choose := func() error {
			return tensor.Try(func() {
				if key.candidates == 1 && key.banned == 0 && r.model.FindsLikeliest(key.rows) {
					r.likeliest.find(r.model, r.work, hidden, key.rows)
				} else {
					r.choose(r.model.Logits(r.work, hidden, 0, key.rows), key)
				}
				tensor.IncrementI32(b.Positions)
			})
		}
		if staged {
			return step.replay.After(r.stream, choose)
		}
		return choose()
	}
	switch {
	case !seen || !r.model.Captures(r.streams):
		return compute()
	case step.graph == nil:
		var err error
		if step.graph, err = r.model.Capture(r.streams, compute); err != nil {
			return err
		}
	}
	return step.graph.Launch()
}

// forward is model.Forward whose panics are errors.
func (r *runner) forward(b model.Batch) (hidden *tensor.Tensor, err error) {
	if e := tensor.Try(func() { hidden, err = r.model.Forward(r.work, r.cache, b) }); e != nil {
		return nil, e
	}
	return hidden, err
}

func all(stepKey) bool { return true }
