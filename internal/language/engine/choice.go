package engine

import (
	"math"
	"math/bits"
	"slices"

	"github.com/vibrant-ml/vibrant/gpu"
	"github.com/vibrant-ml/vibrant/internal/language/model"
	"github.com/vibrant-ml/vibrant/tensor"
)

// Chooser picks tokens by their logits. A nil Chooser takes the likeliest.
type Chooser interface {
	// Candidates returns how many of the likeliest tokens the choice depends on; 0 for all of them. 1 means the likeliest
	// itself, which the device feeds before Choose has seen its logit.
	Candidates() int
	// Choose returns one of ids, whose logits are given in descending order; ids nil means 0, 1, 2, ... as the
	// vocabulary has them. It may change both slices.
	Choose(logits []float32, ids []int32) int32
}

// candidates returns how many of the vocabulary's tokens c wants to see.
func (r *runner) candidates(c Chooser) int {
	if c == nil {
		return 1
	}
	return min(c.Candidates(), r.model.Vocab)
}

// likeliest is the memory of greedy choices: the ids of so many rows and behind them their logits, which tell whether they are numbers.
// One copy brings both to the host. Positions and places of the rows follow, so that one broadcast brings all of a step to other ranks.
type likeliest struct {
	memory            *tensor.Arena
	ids               *tensor.Tensor // I32, all of the memory
	logits            *tensor.Tensor // F32, the same
	positions, places *tensor.Tensor // I32 of each row, parts of it
}

func (l *likeliest) open(s *gpu.Stream, rows int) (err error) {
	part := wholeVectors(rows)
	if l.memory, err = tensor.NewArena(s, tensor.I32.Bytes(4*part)); err != nil {
		return err
	}
	if l.ids, err = l.memory.New(tensor.I32, 4*part); err != nil {
		return err
	}
	l.positions, l.places = l.ids.Slice(2*part, 2*part+rows), l.ids.Slice(3*part, 3*part+rows)
	l.memory.Reset()
	l.logits, err = l.memory.New(tensor.F32, 4*part)
	return err
}

// choose enqueues the choice for [rows][Vocab].
func (l *likeliest) choose(logits *tensor.Tensor, rows int) {
	ids, values := l.of(rows)
	tensor.TopKInto(values, ids.Reshape(rows, 1), logits)
}

// find enqueues the choice for rows of what Forward returned, by ranks that each look among their own logits.
func (l *likeliest) find(m *model.Model, w *model.Workspace, hidden *tensor.Tensor, rows int) {
	ids, values := l.of(rows)
	m.Likeliest(w, hidden, ids, values)
}

// of returns where the ids of so many rows go, and their logits, which begin at a whole vector as kernels want it.
func (l *likeliest) of(rows int) (ids, logits *tensor.Tensor) {
	at := wholeVectors(rows)
	return l.ids.Slice(0, rows), l.logits.Slice(at, at+rows).Reshape(rows, 1)
}

// wholeVectors returns the next multiple of a vector's elements.
func wholeVectors(n int) int { return (n + 3) &^ 3 }

// rowSet is a set of rows of a step, of which there are at most MaxSequences.
type rowSet uint64

// runs calls f for each run of rows of the set that lie together.
func (s rowSet) runs(f func(from, to int)) {
	for s != 0 {
		from := bits.TrailingZeros64(uint64(s))
		n := bits.TrailingZeros64(^uint64(s >> from))
		f(from, from+n)
		if from+n == 64 {
			return
		}
		s = s >> (from + n) << (from + n)
	}
}

// ban holds the tokens that rows of a step may not choose.
type ban struct {
	ids  []int32
	mask *tensor.Tensor // [rows][Vocab]: -inf at ids, else 0; nil where none is banned
}

// setBan sets the ids that banned rows never choose. Steps that were captured with others are dropped.
func (r *runner) setBan(ids []int32) (err error) {
	if slices.Equal(ids, r.ban.ids) {
		return nil
	}
	r.steps.drop(func(key stepKey) bool { return key.banned != 0 })
	r.ban.mask.Free()
	r.ban = ban{}
	if len(ids) == 0 {
		return nil
	}
	vocab, rows := r.model.Vocab, r.stepIDs.Len()
	mask := make([]float32, rows*vocab)
	for row := range rows {
		for _, id := range ids {
			if id >= 0 && int(id) < vocab {
				mask[row*vocab+int(id)] = float32(math.Inf(-1))
			}
		}
	}
	t, err := tensor.New(r.stream, tensor.F32, rows, vocab)
	if err != nil {
		return err
	}
	if err := t.WriteFloat32s(mask); err != nil {
		t.Free()
		return err
	}
	r.ban = ban{slices.Clone(ids), t}
	return nil
}

// choose enqueues what the device does with the logits of a step: [rows][Vocab].
func (r *runner) choose(logits *tensor.Tensor, key stepKey) {
	key.banned.runs(func(from, to int) {
		some := logits.Slice(from, to)
		tensor.AddInto(some, some, r.ban.mask.Slice(0, to-from))
	})
	switch key.candidates {
	case 0:
	case 1:
		r.likeliest.choose(logits, key.rows)
	default:
		tensor.TopKInto(r.topValues.Slice(0, key.rows), r.topIDs.Slice(0, key.rows), logits)
	}
}

// prepareChoice allocates what a choice among k candidates is read from. Steps that were captured for another k > 1 are
// dropped, as their memory is.
func (r *runner) prepareChoice(k int) (err error) {
	if k <= 1 || r.topIDs != nil && r.topIDs.Dim(1) == k {
		return nil
	}
	r.steps.drop(func(key stepKey) bool { return key.candidates > 1 })
	r.topValues.Free()
	r.topIDs.Free()
	r.topIDs = nil
	if r.topValues, err = tensor.New(r.stream, tensor.F32, r.stepIDs.Len(), k); err == nil {
		r.topIDs, err = tensor.New(r.stream, tensor.I32, r.stepIDs.Len(), k)
	}
	return err
}

// enqueue enqueues a step and what brings its choice to the host.
func (r *runner) enqueue(key stepKey, batch func() model.Batch) error {
	if err := r.step(key, batch); err != nil {
		return err
	}
	return r.fetch(key)
}

// fetch starts to bring the candidates of the newest logits to the host.
func (r *runner) fetch(key stepKey) error {
	switch key.candidates {
	case 0:
		return nil
	case 1:
		return r.results.Start(r.likeliest.ids.Slice(0, wholeVectors(key.rows)+key.rows))
	}
	return r.results.Start(r.topIDs.Slice(0, key.rows), r.topValues.Slice(0, key.rows))
}

// choices waits for what fetch has started, or for all logits, and returns the token that each row's chooser takes.
func (r *runner) choices(key stepKey, chooser func(row int) Chooser) ([]int32, error) {
	n, k := key.rows, key.candidates
	next := make([]int32, n)
	if k == 0 {
		rows, err := r.read(r.work.Logits(n, r.adapters.ofStep(key)))
		if err != nil {
			return nil, err
		}
		for i := range next {
			next[i] = pick(chooser(i), rows[i*r.model.Vocab:(i+1)*r.model.Vocab], nil)
		}
		return next, r.model.Intact()
	}
	words, err := r.results.Wait()
	if err != nil {
		return nil, err
	}
	logits := words[n*k:]
	if k == 1 {
		logits = words[wholeVectors(n):]
	}
	for i := range next {
		c := chooser(i)
		own := r.candidates(c)
		values, ids := unpack(logits[i*k:i*k+own], words[i*k:i*k+own])
		next[i] = pick(c, values, ids)
	}
	return next, r.model.Intact()
}

// unpack returns candidates as a Chooser takes them.
func unpack(valueBits, idBits []uint32) (values []float32, ids []int32) {
	values, ids = make([]float32, len(valueBits)), make([]int32, len(idBits))
	for i := range values {
		values[i], ids[i] = math.Float32frombits(valueBits[i]), int32(idBits[i])
	}
	return values, ids
}

// pick chooses from logits on the host, also where the choice is the likeliest.
func pick(c Chooser, logits []float32, ids []int32) int32 {
	if c != nil {
		return c.Choose(logits, ids)
	}
	best := 0
	for i, x := range logits {
		if x > logits[best] || x != x && logits[best] == logits[best] { // NaN is the greatest, as on the device
			best = i
		}
	}
	if ids != nil {
		return ids[best]
	}
	return int32(best)
}
