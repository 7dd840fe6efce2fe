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
	joined []*Sequence // since the newest step: their first token was chosen by their prompt

	source  *codeSource // of sequences that join
	current bool        // the rows' tensors are what active says; else they are written before the next step
	ahead   bool        // and the next step, which feeds them, is on the device already
	lost    bool        // the states of recurrent sequences
}

// Sequence is a member of a Batch.
type Sequence struct {
	batch   *Batch
	chooser Chooser
	place   int
	tokens  []int32 // whose keys and values the cache holds
	newest  int32   // chosen, and fed by the next step
	banned  bool    // from choosing what Ban has set

	active []model.ActiveAdapter
	stacks stackSet // of these
	source *codeSource
}

// NewBatch opens a batch of up to that many sequences of o.Context tokens each. Its memory is allocated here and given
// back by Close.
func NewBatch(m *model.Model, sequences int, o Options) (*Batch, error) {
	if sequences < 1 || sequences > MaxSequences {
		return nil, fmt.Errorf("engine: batch of %d sequences: want 1 to %d", sequences, MaxSequences)
	}
	b := &Batch{places: make([]bool, sequences)}
	if err := b.open(m, sequences, sequences, sequences, o); err != nil {
		b.Close()
		return nil, err
	}
	return b, nil
}

// Close gives the batch's memory back. Closing twice is harmless.
func (b *Batch) Close() error {
	err := b.runner.close()
	*b = Batch{}
	return err
}

// Ban sets the ids that sequences which join with `banned` never choose.
func (b *Batch) Ban(ids []int32) error {
	b.current, b.ahead = false, false
	return b.setBan(ids)
}

// Join computes a prompt in a free place of the cache and chooses its first token, which the next Step makes the Newest. The other
// sequences wait meanwhile. A nil Chooser takes the likeliest. The sequence has the active adapters, whatever others have. Likely
// errors: ErrBatchFull, ErrContextFull, the error of ctx.
func (b *Batch) Join(ctx context.Context, ids []int32, c Chooser, banned bool, active ...model.ActiveAdapter) (*Sequence, error) {
	place := slices.Index(b.places, false)
	if place < 0 {
		return nil, fmt.Errorf("%w: it has %d sequences", ErrBatchFull, len(b.places))
	}
	if err := b.check(ids); err != nil {
		return nil, err
	}
	b.current, b.ahead = false, false // what is ahead of the host may be in a workspace that goes
	if err := b.activateFor(active, b.source); err != nil {
		return nil, err
	}
	logits, err := b.prompt(ctx, ids, 0, place, nil, func(int) {})
	if err != nil {
		return nil, err
	}
	s := &Sequence{batch: b, chooser: c, place: place, tokens: slices.Clone(ids), banned: banned && b.ban.mask != nil,
		active: slices.Clone(active), stacks: b.adapters.prompt, source: b.source}
	key := stepKey{rows: 1}
	if s.banned {
		key.banned = 1
	}
	if err := tensor.Try(func() { b.choose(logits, key) }); err != nil {
		return nil, err
	}
	row, err := b.read(logits)
	if err != nil {
		return nil, err
	}
	s.newest = pick(c, row, nil)
	b.places[place] = true
	b.joined = append(b.joined, s)
	b.current = false
	return s, nil
}

// SetCodes has f make the codes of an adapter for the tokens of sequences that join from now on, all of which have the adapter active;
// nil ends that. f is asked once a step for all sequences of a SetCodes. No step is computed ahead meanwhile.
func (b *Batch) SetCodes(a *model.Adapter, f CodeSource) {
	b.source = nil
	if f != nil {
		b.source = &codeSource{a, f}
	}
}

// activateFor has prompts read these adapters, and ask a source for codes.
func (b *Batch) activateFor(active []model.ActiveAdapter, source *codeSource) error {
	if source != nil {
		if _, err := newCodeSource(source.adapter, source.f, active); err != nil {
			return err
		}
	}
	if err := b.activate(active); err != nil {
		return err
	}
	return b.setSource(source)
}

// Newest returns the token that was chosen last; the next Step feeds it, but for the Step that gives the first one out.
func (s *Sequence) Newest() int32 { return s.newest }

// Tokens returns the prompt and what was fed since. The caller must not change the slice.
func (s *Sequence) Tokens() []int32 { return s.tokens }

// Room returns how many tokens still fit. A sequence without room must leave before the next step.
func (s *Sequence) Room() int { return s.batch.context - len(s.tokens) }

// Leave gives the sequence's place back. Leaving twice is harmless.
func (s *Sequence) Leave() {
	b := s.batch
	for _, list := range []*[]*Sequence{&b.active, &b.joined} {
		if i := slices.Index(*list, s); i >= 0 {
			*list = slices.Delete(*list, i, i+1)
			b.places[s.place] = false
			b.current = false
		}
	}
}

// Step gives every sequence its next token, Newest: those that joined since the newest step the one that their prompt chose, the
// others the one after the token that they feed. Without sequences it does nothing. After an error each sequence is as before.
//
// Where all choices are greedy and nobody joins or leaves, a GPU is given the step after this one before the host has the
// tokens of this one, as Session.Next explains.
func (b *Batch) Step() error {
	if len(b.active) > 0 {
		err := b.restore()
		if err == nil {
			err = b.advance()
		}
		if err != nil {
			b.current, b.ahead, b.lost = false, false, b.model.Recurrent()
			return err
		}
	}
	if len(b.joined) > 0 {
		b.active, b.joined = append(b.active, b.joined...), nil
		b.current = false
	}
	return nil
}

// restore computes the states of recurrent models anew after a step that failed: two steps may have changed them.
func (b *Batch) restore() error {
	for _, s := range b.active {
		if !b.lost {
			break
		}
		if err := b.activateFor(s.active, s.source); err != nil {
			return err
		}
		if _, err := b.prompt(context.Background(), s.tokens, 0, s.place, nil, func(int) {}); err != nil {
			return err
		}
	}
	b.lost = false
	return nil
}

// advance computes a step of the active sequences.
func (b *Batch) advance() error {
	key, longest, asks := stepKey{rows: len(b.active), candidates: 1}, 0, false
	for i, s := range b.active {
		if s.Room() == 0 {
			return fmt.Errorf("%w: a sequence has %d tokens", ErrContextFull, len(s.tokens))
		}
		longest = max(longest, len(s.tokens)+1)
		key.stacks |= s.stacks
		asks = asks || s.source != nil
		if s.banned {
			key.banned |= 1 << i
		}
		if c := b.candidates(s.chooser); c == 0 || key.candidates == 0 {
			key.candidates = 0 // somebody needs all logits
		} else {
			key.candidates = max(key.candidates, c)
		}
	}
	step := func() model.Batch {
		rows := b.rows(key)
		rows.Adapters = b.adapters.ofStep(key)
		return rows
	}
	if !b.current || !b.ahead {
		b.results.Drop()
		if err := b.prepare(key); err != nil {
			return err
		}
		if err := b.enqueue(key, step); err != nil {
			return err
		}
	}
	b.current = key.candidates == 1 && !asks // the device chooses, and moves the positions on; a source is asked on the host
	b.ahead = b.current && b.lookAhead && longest < b.context
	if b.ahead {
		if err := b.enqueue(key, step); err != nil {
			return err
		}
	}
	next, err := b.choices(key, func(row int) Chooser { return b.active[row].chooser })
	if err != nil {
		return err
	}
	for i, s := range b.active {
		s.tokens = append(s.tokens, s.newest)
		s.newest = next[i]
	}
	return nil
}

// prepare brings ids, positions and places to the device where it does not have them, and allocates for the choice.
func (b *Batch) prepare(key stepKey) error {
	if !b.current {
		step := b.rows(key)
		for t, values := range map[*tensor.Tensor][]int32{step.IDs: step.Known.IDs, step.Positions: step.Known.Positions, step.Sequences: step.Known.Sequences} {
			if err := t.WriteInt32s(values); err != nil {
				return err
			}
		}
		tokens := make([]codedToken, key.rows)
		for i, s := range b.active {
			tokens[i] = codedToken{s.newest, s.active, s.source}
		}
		if err := b.adapters.writeSteps(key.stacks, tokens); err != nil {
			return err
		}
	}
	return b.prepareChoice(key.candidates)
}

// rows returns one token of each sequence, without adapters.
func (b *Batch) rows(key stepKey) model.Batch {
	n := key.rows
	step := model.Batch{
		Count: n, Seq: 1, IDs: b.stepIDs.Slice(0, n), Positions: b.stepPositions.Slice(0, n), Sequences: b.likeliest.places.Slice(0, n),
		KVLen: b.context, Together: b.likeliest.ids,
	}
	for _, s := range b.active {
		step.Known.IDs = append(step.Known.IDs, s.newest)
		step.Known.Positions = append(step.Known.Positions, int32(len(s.tokens)))
		step.Known.Sequences = append(step.Known.Sequences, int32(s.place))
	}
	return step
}
