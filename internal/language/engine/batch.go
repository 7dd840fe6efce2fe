package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/vibrant-ml/vibrant/internal/language/model"
	"github.com/vibrant-ml/vibrant/tensor"
)

// MaxSequences is the most that a Batch generates together.
const MaxSequences = 64

// ErrBatchFull says that a batch has no place for another sequence.
var ErrBatchFull = errors.New("the batch is full")

// Batch generates several sequences together: a step computes one token of each in one pass, which reads the weights once
// for all. Sequences join and leave between steps, and each has positions of its own. A batch is used by one goroutine
// at a time.
type Batch struct {
	runner
	places []bool      // of the cache: which are taken
	active []*Sequence // in the order of the rows of a pass

	// One element a row, in the order of active: the newest token, where it goes, and which place of the cache it is.
	stepIDs, stepPositions, stepPlaces *tensor.Tensor
	current                            bool           // they are what active says; else they are written before the next step
	ahead                              bool           // and the next step, which feeds them, is on the device already
	topValues, topIDs                  *tensor.Tensor // [sequences][k]
}

// Sequence is a member of a Batch.
type Sequence struct {
	batch   *Batch
	chooser Chooser
	place   int
	tokens  []int32 // whose keys and values the cache holds
	newest  int32   // chosen, and fed by the next step
}

// NewBatch opens a batch of up to that many sequences of o.Context tokens each. Its memory is allocated here and given
// back by Close.
func NewBatch(m *model.Model, sequences int, o Options) (*Batch, error) {
	if sequences < 1 || sequences > MaxSequences {
		return nil, fmt.Errorf("engine: batch of %d sequences: want 1 to %d", sequences, MaxSequences)
	}
	b := &Batch{places: make([]bool, sequences)}
	err := b.open(m, sequences, sequences, sequences, o)
	if err == nil {
		err = b.ints(map[**tensor.Tensor]int{&b.stepIDs: sequences, &b.stepPositions: sequences, &b.stepPlaces: sequences})
	}
	if err != nil {
		b.Close()
		return nil, err
	}
	return b, nil
}

// Close gives the batch's memory back. Closing twice is harmless.
func (b *Batch) Close() error {
	for _, t := range []*tensor.Tensor{b.stepIDs, b.stepPositions, b.stepPlaces, b.topValues, b.topIDs} {
		t.Free()
	}
	err := b.runner.close()
	*b = Batch{}
	return err
}

// Join computes a prompt in a free place of the cache and chooses its first token: Sequence.Newest. The other sequences wait
// meanwhile. A nil Chooser takes the likeliest. Likely errors: ErrBatchFull, ErrContextFull, the error of ctx.
func (b *Batch) Join(ctx context.Context, ids []int32, c Chooser) (*Sequence, error) {
	place := slices.Index(b.places, false)
	if place < 0 {
		return nil, fmt.Errorf("%w: it has %d sequences", ErrBatchFull, len(b.places))
	}
	if err := b.check(ids); err != nil {
		return nil, err
	}
	logits, err := b.prompt(ctx, ids, 0, place, nil, func(int) {})
	if err != nil {
		return nil, err
	}
	s := &Sequence{batch: b, chooser: c, place: place, tokens: slices.Clone(ids)}
	row, err := b.read(logits)
	if err != nil {
		return nil, err
	}
	s.newest = choose(c, row, nil)
	b.places[place] = true
	b.active = append(b.active, s)
	b.current = false
	return s, nil
}

// Newest returns the token that was chosen last; the next step feeds it.
func (s *Sequence) Newest() int32 { return s.newest }

// Tokens returns the prompt and what was fed since. The caller must not change the slice.
func (s *Sequence) Tokens() []int32 { return s.tokens }

// Room returns how many tokens still fit. A sequence without room must leave before the next step.
func (s *Sequence) Room() int { return s.batch.context - len(s.tokens) }

// Leave gives the sequence's place back. Leaving twice is harmless.
func (s *Sequence) Leave() {
	b := s.batch
	if i := slices.Index(b.active, s); i >= 0 {
		b.active = slices.Delete(b.active, i, i+1)
		b.places[s.place] = false
		b.current = false
	}
}

// Step feeds the newest token of every sequence and chooses the one after it. Without sequences it does nothing. After an
// error each sequence is as before.
//
// Where all choices are greedy and nobody joins or leaves, a GPU is given the step after this one before the host has the
// tokens of this one, as Session.Next explains.
func (b *Batch) Step() error {
	n, longest, k := len(b.active), 0, 1
	if n == 0 {
		return nil
	}
	for _, s := range b.active {
		if s.Room() == 0 {
			return fmt.Errorf("%w: a sequence has %d tokens", ErrContextFull, len(s.tokens))
		}
		longest = max(longest, len(s.tokens)+1)
		switch c := b.candidates(s.chooser); {
		case c == 0 || k == 0:
			k = 0 // somebody needs all logits
		default:
			k = max(k, c)
		}
	}
	next, err := b.advance(n, longest, k)
	if err != nil {
		b.current, b.ahead = false, false
		return err
	}
	for i, s := range b.active {
		s.tokens = append(s.tokens, s.newest)
		s.newest = next[i]
	}
	return nil
}

// advance computes a step of n sequences, the longest of which has that many tokens after it, and returns what was chosen.
func (b *Batch) advance(n, longest, k int) ([]int32, error) {
	if !b.current || !b.ahead {
		b.results.Drop()
		if err := b.prepare(n, k); err != nil {
			return nil, err
		}
		if err := b.enqueue(n, k); err != nil {
			return nil, err
		}
	}
	b.current = k == 1 // the device chooses, and moves the positions on
	b.ahead = b.current && b.lookAhead && longest < b.context
	if b.ahead {
		if err := b.enqueue(n, k); err != nil {
			return nil, err
		}
	}
	return b.choices(n, k)
}

// enqueue enqueues one token of each sequence and what brings the choice to the host.
func (b *Batch) enqueue(n, k int) error {
	key := stepKey{n, k}
	if err := b.steps.run(b.stream, key, func() error { return b.step(key) }); err != nil {
		return err
	}
	switch k {
	case 0:
		return nil
	case 1:
		return b.results.Start(b.stepIDs.Slice(0, n))
	}
	return b.results.Start(b.topValues.Slice(0, n), b.topIDs.Slice(0, n))
}

// prepare brings ids, positions and places to the device where it does not have them, and allocates for the choice.
func (b *Batch) prepare(n, k int) (err error) {
	if !b.current {
		ids, positions, places := make([]int32, n), make([]int32, n), make([]int32, n)
		for i, s := range b.active {
			ids[i], positions[i], places[i] = s.newest, int32(len(s.tokens)), int32(s.place)
		}
		for t, values := range map[*tensor.Tensor][]int32{b.stepIDs: ids, b.stepPositions: positions, b.stepPlaces: places} {
			if err := t.Slice(0, n).WriteInt32s(values); err != nil {
				return err
			}
		}
	}
	if k <= 1 || b.topIDs != nil && b.topIDs.Dim(1) == k {
		return nil
	}
	b.steps.drop(func(key stepKey) bool { return key.candidates > 1 })
	b.topValues.Free()
	b.topIDs.Free()
	b.topIDs = nil
	if b.topValues, err = tensor.New(b.stream, tensor.F32, len(b.places), k); err == nil {
		b.topIDs, err = tensor.New(b.stream, tensor.I32, len(b.places), k)
	}
	return err
}

// step enqueues one token of each sequence.
func (b *Batch) step(key stepKey) error {
	return tensor.Try(func() {
		n := key.rows
		ids, positions := b.stepIDs.Slice(0, n), b.stepPositions.Slice(0, n)
		hidden, _ := b.model.Forward(b.work, b.cache, model.Batch{
			Count: n, Seq: 1, IDs: ids, Positions: positions, Sequences: b.stepPlaces.Slice(0, n), KVLen: b.context,
		})
		logits := b.model.Logits(b.work, hidden, 0, n)
		switch key.candidates {
		case 0:
		case 1:
			tensor.ArgmaxInto(ids, logits)
		default:
			tensor.TopKInto(b.topValues.Slice(0, n), b.topIDs.Slice(0, n), logits)
		}
		tensor.IncrementI32(positions)
	})
}

// choices waits for the step's results and returns the next token of each sequence.
func (b *Batch) choices(n, k int) ([]int32, error) {
	next := make([]int32, n)
	if k == 0 {
		rows, err := b.read(b.work.Logits(n))
		if err != nil {
			return nil, err
		}
		for i, s := range b.active {
			next[i] = choose(s.chooser, rows[i*b.model.Vocab:(i+1)*b.model.Vocab], nil)
		}
		return next, nil
	}
	bits, err := b.results.Wait()
	if err != nil {
		return nil, err
	}
	if k == 1 {
		for i := range next {
			next[i] = int32(bits[i])
		}
		return next, nil
	}
	for i, s := range b.active {
		own := b.candidates(s.chooser)
		values, ids := unpack(bits[i*k:i*k+own], bits[(n+i)*k:(n+i)*k+own])
		next[i] = choose(s.chooser, values, ids)
	}
	return next, nil
}

// choose picks from logits on the host, also where the choice is the likeliest.
func choose(c Chooser, logits []float32, ids []int32) int32 {
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
