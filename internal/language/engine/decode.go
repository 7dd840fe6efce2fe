package engine

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/vibrant-ml/vibrant/gpu"
	"github.com/vibrant-ml/vibrant/internal/language/model"
	"github.com/vibrant-ml/vibrant/tensor"
)

// Chooser picks tokens by their logits. A nil Chooser takes the likeliest, which needs no visit to the host.
type Chooser interface {
	// Candidates returns how many of the likeliest tokens the choice depends on; 0 for all of them. 1 means the likeliest
	// itself, and Choose is not asked.
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

// noChoice says that nothing was computed from the logits yet.
const noChoice = -1

// Next chooses a token by the logits after the newest Prefill or Step, and waits for them; asked again it returns the same.
// At most four bytes a token come from a GPU where the choice is greedy, a few hundred where the likeliest suffice.
//
// A greedy choice is in the GPU's memory before the host has it, so the step that feeds it is enqueued before Next waits:
// the Step that follows finds it done or under way. Where another token is fed, or none, that step was for nothing: what
// it wrote lies beyond what the session counts as its tokens, and is written anew by the next Prefill or Step.
func (s *Session) Next(c Chooser) (int32, error) {
	if s.next != noChoice {
		return s.next, nil
	}
	if s.logits == nil {
		return 0, fmt.Errorf("engine: no logits to choose by: %w", gpu.ErrInvalid)
	}
	k := s.candidates(c)
	id, err := s.choice(k, c)
	if err != nil {
		s.forget()
		return 0, err
	}
	now := time.Now()
	if !s.newest.IsZero() {
		s.stats.DecodeTokens++
		s.stats.DecodeTime += now.Sub(s.newest)
	}
	s.newest, s.next = now, id
	return id, nil
}

// choice returns the token that c chooses among the k likeliest.
func (s *Session) choice(k int, c Chooser) (int32, error) {
	if err := s.prepareChoice(k); err != nil {
		return 0, err
	}
	if s.chosen != k {
		s.results.Drop()
		err := tensor.Try(func() { s.choose(k) })
		if err == nil {
			err = s.fetch(k)
		}
		if err != nil {
			return 0, err
		}
		s.chosen = k
	}
	if k == 0 {
		row, err := s.read(s.logits)
		if err != nil {
			return 0, err
		}
		return c.Choose(row, nil), nil
	}
	if k == 1 && s.lookAhead && s.Room() > 0 {
		if err := s.enqueue(k); err != nil {
			return 0, err
		}
		s.ahead = true
	}
	bits, err := s.results.Wait()
	if err != nil {
		return 0, err
	}
	if k == 1 {
		return int32(bits[0]), nil
	}
	return c.Choose(unpack(bits[:k], bits[k:])), nil
}

// unpack returns candidates as a Chooser takes them.
func unpack(valueBits, idBits []uint32) (values []float32, ids []int32) {
	values, ids = make([]float32, len(valueBits)), make([]int32, len(idBits))
	for i := range values {
		values[i], ids[i] = math.Float32frombits(valueBits[i]), int32(idBits[i])
	}
	return values, ids
}

// fetch starts to bring the k candidates of the newest logits to the host.
func (s *Session) fetch(k int) error {
	switch k {
	case 0:
		return nil
	case 1:
		return s.results.Start(s.stepID)
	}
	return s.results.Start(s.topValues, s.topIDs)
}

// Step feeds a token, so that Next can choose the one after it with c. On a GPU it returns before the work is done.
func (s *Session) Step(id int32, c Chooser) error {
	if s.logits == nil {
		return fmt.Errorf("engine: step without a prompt: %w", gpu.ErrInvalid)
	}
	if s.Room() == 0 {
		return fmt.Errorf("%w: %d tokens are in it", ErrContextFull, len(s.tokens))
	}
	if err := s.model.CheckIDs([]int32{id}); err != nil {
		return err
	}
	k := s.candidates(c)
	if s.ahead && id == s.next {
		k = 1
	} else if err := s.feed(id, k); err != nil {
		s.forget() // the position on the device may have moved: only a Prefill helps
		return err
	}
	s.tokens = append(s.tokens, id)
	s.chosen, s.next, s.ahead = k, noChoice, false
	return nil
}

// feed enqueues the step of an id that the host chose.
func (s *Session) feed(id int32, k int) error {
	if err := s.prepareChoice(k); err != nil {
		return err
	}
	if s.ahead { // of another id
		if err := s.stepPosition.WriteInt32s([]int32{int32(len(s.tokens))}); err != nil {
			return err
		}
	}
	if s.ahead || s.chosen != 1 || s.next != id {
		if err := s.stepID.WriteInt32s([]int32{id}); err != nil {
			return err
		}
	}
	s.results.Drop()
	return s.enqueue(k)
}

// enqueue enqueues the step of the id and position on the device, and what brings its k candidates to the host.
func (s *Session) enqueue(k int) error {
	key := stepKey{1, k}
	if err := s.steps.run(s.stream, key, func() error { return s.step(key) }); err != nil {
		return err
	}
	return s.fetch(k)
}

// step enqueues one token: everything that changes from one to the next is read from device memory.
func (s *Session) step(key stepKey) error {
	return tensor.Try(func() {
		hidden, _ := s.model.Forward(s.work, s.cache, model.Batch{
			Count: 1, Seq: 1, IDs: s.stepID, Positions: s.stepPosition, KVLen: s.context,
		})
		s.model.Logits(s.work, hidden, 0, 1)
		s.choose(key.candidates)
		tensor.IncrementI32(s.stepPosition)
	})
}

// choose enqueues what the device does with the logits.
func (s *Session) choose(k int) {
	if s.banned != nil {
		tensor.AddInto(s.logits, s.logits, s.banned)
	}
	switch k {
	case 0:
	case 1:
		tensor.ArgmaxInto(s.stepID, s.logits)
	default:
		tensor.TopKInto(s.topValues, s.topIDs, s.logits)
	}
}

// prepareChoice allocates what a choice among k candidates is read from. Steps that were captured for another k > 1 are
// dropped, as their memory is.
func (s *Session) prepareChoice(k int) (err error) {
	if k <= 1 || s.topIDs != nil && s.topIDs.Dim(1) == k {
		return nil
	}
	s.steps.drop(func(key stepKey) bool { return key.candidates > 1 })
	s.topValues.Free()
	s.topIDs.Free()
	s.topIDs = nil
	if s.topValues, err = tensor.New(s.stream, tensor.F32, 1, k); err == nil {
		s.topIDs, err = tensor.New(s.stream, tensor.I32, 1, k)
	}
	return err
}

// Ban sets the ids that are never chosen from the next Prefill on.
func (s *Session) Ban(ids []int32) error {
	if slices.Equal(ids, s.bannedIDs) {
		return nil
	}
	s.bannedIDs = slices.Clone(ids)
	s.forget()
	s.steps.drop(all) // they were captured with or without the old ones
	s.banned.Free()
	s.banned = nil
	if len(ids) == 0 {
		return nil
	}
	mask := make([]float32, s.model.Vocab)
	for _, id := range ids {
		if id >= 0 && int(id) < len(mask) {
			mask[id] = float32(math.Inf(-1))
		}
	}
	banned, err := tensor.New(s.stream, tensor.F32, 1, s.model.Vocab)
	if err == nil {
		s.banned, err = banned, banned.WriteFloat32s(mask)
	}
	return err
}
