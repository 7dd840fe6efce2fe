package engine

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/vibrant-ml/vibrant/gpu"
	"github.com/vibrant-ml/vibrant/internal/model"
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

// Next chooses a token by the logits after the newest Prefill or Step, and waits for them. At most four bytes a token
// come from a GPU where the choice is greedy, a few hundred where the likeliest suffice.
func (s *Session) Next(c Chooser) (id int32, err error) {
	start := time.Now()
	if s.logits == nil {
		return 0, fmt.Errorf("engine: no logits to choose by: %w", gpu.ErrInvalid)
	}
	k := s.candidates(c)
	if err := s.prepareChoice(k); err != nil {
		return 0, err
	}
	if s.chosen != k {
		if err := tensor.Try(func() { s.choose(k) }); err != nil {
			return 0, err
		}
		s.chosen, s.onDevice = k, noChoice
	}
	switch k {
	case 1:
		var one [1]int32
		if err = s.stepID.ReadInt32s(one[:]); err == nil {
			id, s.onDevice = one[0], int64(one[0])
		}
	case 0:
		var row []float32
		if row, err = s.read(s.logits); err == nil {
			id = c.Choose(row, nil)
		}
	default:
		var values []float32
		ids := make([]int32, k)
		if values, err = s.read(s.topValues); err == nil {
			if err = s.topIDs.ReadInt32s(ids); err == nil {
				id = c.Choose(values, ids)
			}
		}
	}
	s.stats.DecodeTime += time.Since(start)
	return id, err
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
	start := time.Now()
	key := stepKey{1, s.bucket(len(s.tokens) + 1), s.candidates(c)}
	err := s.prepareChoice(key.candidates)
	if err == nil && s.onDevice != int64(id) {
		err = s.stepID.WriteInt32s([]int32{id})
	}
	s.onDevice, s.chosen = noChoice, noChoice
	if err == nil {
		err = s.steps.run(s.stream, key, func() error { return s.step(key) })
	}
	if err != nil {
		s.logits = nil // the position on the device may have moved: only a Prefill helps
		return err
	}
	s.tokens = append(s.tokens, id)
	s.chosen = key.candidates
	s.stats.DecodeTokens++
	s.stats.DecodeTime += time.Since(start)
	return nil
}

// step enqueues one token: everything that changes from one to the next is read from device memory.
func (s *Session) step(key stepKey) error {
	return tensor.Try(func() {
		hidden, _ := s.model.Forward(s.work, s.cache, model.Batch{
			Count: 1, Seq: 1, IDs: s.stepID, Positions: s.stepPosition, KVLen: key.kvLen,
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
	s.logits = nil
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
