package model

import (
	"github.com/vibrant-ml/vibrant/gpu"
	"github.com/vibrant-ml/vibrant/tensor"
)

// How stages run: segment after segment, with what crosses between two of them. Between GPUs of one kind a value is copied in the
// order of their streams; while one computes a chunk of a prompt, the next one has the chunk before. To a device of another kind it
// goes through the host's memory: it is on its way while the device that sends it is given what else it can compute.

// Replay keeps the work of a step of stages from the second time on: a captured graph for each segment of a device that has graphs.
type Replay struct {
	warm   bool
	graphs map[int]*gpu.Graph // by segment, and -1 for what follows the layers
}

// NewReplay returns a replay of steps of one shape, in one workspace. The caller closes it before the workspace.
func NewReplay() *Replay { return &Replay{graphs: map[int]*gpu.Graph{}} }

// After has f, which enqueues what follows Forward on a stream, computed as a segment is.
func (r *Replay) After(s *gpu.Stream, f func() error) error {
	warm := r.warm
	r.warm = true
	return r.run(-1, s, warm, f)
}

// run computes a segment: as it stands the first time, since what a library sets up at its first call may not be captured.
func (r *Replay) run(segment int, s *gpu.Stream, warm bool, f func() error) error {
	if !warm || s.Device().Info().HostMemory {
		return f()
	}
	if r.graphs[segment] == nil {
		g, err := s.Capture(f)
		if err != nil {
			return err
		}
		r.graphs[segment] = g
	}
	return r.graphs[segment].Launch()
}

// Close gives the graphs back. Closing nil or twice is harmless.
func (r *Replay) Close() error {
	if r == nil {
		return nil
	}
	var first error
	for _, g := range r.graphs {
		if err := g.Close(); err != nil && first == nil {
			first = err
		}
	}
	r.graphs = map[int]*gpu.Graph{}
	return first
}

// relay brings values from the workspaces of a pass to each other.
type relay struct {
	passes    []*pass            // by device
	readbacks []*tensor.Readback // of devices whose memory is not the host's
}

// direct reports whether a value is copied when the other device needs it, and not put on its way before.
func (r *relay) direct(x crossing) bool {
	from, to := r.passes[x.from].model.device.Info(), r.passes[x.to].model.device.Info()
	return from.HostMemory || from.Backend == to.Backend
}

// send puts what other devices receive on its way.
func (r *relay) send(s *segment) error {
	var values []*tensor.Tensor
	from := s.device
	for _, x := range s.sends {
		if !r.direct(x) {
			values = append(values, r.passes[from].rows(x.value))
		}
	}
	if len(values) == 0 {
		return nil
	}
	return r.readbacks[from].Start(values...)
}

// at returns the pass of the device that computes a segment.
func (r *relay) at(segment int) *pass { return r.passes[r.passes[0].graph.segments[segment].device] }

// receive waits for what a segment reads of other devices, and puts it where the device has room for it.
func (r *relay) receive(at int) error {
	s := &r.at(at).graph.segments[at]
	var values []*tensor.Tensor
	from := 0
	for i, x := range s.receives {
		to := r.passes[x.to].rows(x.value)
		if !r.direct(x) {
			from, values = x.from, append(values, to)
			continue
		}
		sender := r.passes[x.from]
		tensor.CopyInto(to, sender.rows(sender.graph.segments[at].receives[i].value))
	}
	if len(values) == 0 {
		return nil
	}
	return r.readbacks[from].WaitInto(values...)
}

// forwardStages computes the segments in order, of chunks of a prompt that follow each other: while a chunk is in a segment, the next
// one is in the segment before. passes[0] of a chunk is that of the last device. lent is nil where each device has its own weights.
func (w *Workspace) forwardStages(chunks [][]*pass, replay *Replay, lent *streamedPass, check func() error) error {
	var relays []*relay
	for _, passes := range chunks {
		if err := w.share(passes); err != nil {
			return err
		}
		relays = append(relays, &relay{passes: append(append([]*pass{}, passes[1:]...), passes[0]), readbacks: w.readbacks})
	}
	for _, b := range w.readbacks {
		b.Drop() // of a pass that failed
	}
	segments := len(chunks[0][0].graph.segments)
	for step := range segments + len(chunks) - 1 {
		for i, r := range relays {
			if at := step - i; at >= 0 && at < segments {
				if err := w.segment(r, at, replay, lent, check); err != nil {
					return err
				}
			}
		}
		// The chunk that is ahead goes first: what a device receives then does not lie where its result of this step does.
		for i, r := range relays {
			if next := step - i + 1; next > 0 && next < segments {
				if err := r.receive(next); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// segment computes a segment, and puts what it sends on its way.
func (w *Workspace) segment(r *relay, at int, replay *Replay, lent *streamedPass, check func() error) error {
	p := r.at(at)
	s := &p.graph.segments[at]
	compute := func() error {
		for block := s.first; block < s.end; block++ {
			run := func() error { return w.run(block, []*pass{p}, check) }
			var err error
			if layer := block - (len(p.graph.blocks) - 1 - len(p.model.weights.layers)); p.graph.brings && layer >= 0 {
				err = lent.layer(layer, run)
			} else {
				err = run()
			}
			if err != nil {
				return err
			}
		}
		return nil
	}
	var err error
	if replay == nil {
		err = compute()
	} else {
		err = replay.run(at, w.stageStream(s.device), replay.warm, compute)
	}
	if err != nil {
		return err
	}
	return r.send(s)
}

// stageStream returns the stream of a stage's device: the last one's is the first of all.
func (w *Workspace) stageStream(device int) *gpu.Stream {
	return w.streams.Stream((device + 1) % w.streams.Ranks())
}

// share brings the batch, which lies on the last device, to the others that have layers. What the host knows of it need not be read.
func (w *Workspace) share(passes []*pass) error {
	known := passes[0].batch.Known
	for _, part := range []struct {
		known []int32
		of    func(Batch) *tensor.Tensor
	}{
		{known.IDs, func(b Batch) *tensor.Tensor { return b.IDs }},
		{known.Positions, func(b Batch) *tensor.Tensor { return b.Positions }},
		{known.Sequences, func(b Batch) *tensor.Tensor { return b.Sequences }},
	} {
		values, of := part.known, part.of
		from := of(passes[0].batch)
		if from == nil {
			continue
		}
		for _, p := range passes[1:] {
			if !p.graph.positioned {
				continue
			}
			if values == nil {
				values = make([]int32, from.Len())
				if err := from.ReadInt32s(values); err != nil {
					return err
				}
			}
			if err := of(p.batch).WriteInt32s(values); err != nil {
				return err
			}
		}
	}
	return nil
}
