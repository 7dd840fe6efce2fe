package engine

import (
	"fmt"
	"slices"
	"time"

	"github.com/vibrant-ml/vibrant/gpu"
	"github.com/vibrant-ml/vibrant/internal/language/model"
	"github.com/vibrant-ml/vibrant/tensor"
)

// noChoice says that nothing was computed from the logits yet.
const noChoice = -1

// Next chooses a token by the logits after the newest Prefill or Step, and waits for them; asked again it returns the same.
// At most eight bytes a token come from a GPU where the choice is greedy, a few hundred where the likeliest suffice.
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
	id, err := s.choice(s.key(c), c)
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

// key names the step after which c chooses.
func (s *Session) key(c Chooser) stepKey {
	key := stepKey{rows: 1, candidates: s.candidates(c), stacks: s.adapters.prompt}
	if s.ban.mask != nil {
		key.banned = 1
	}
	return key
}

// choice returns the token that c chooses among the candidates of a step.
func (s *Session) choice(key stepKey, c Chooser) (int32, error) {
	if err := s.prepareChoice(key.candidates); err != nil {
		return 0, err
	}
	if s.chosen != key.candidates {
		s.results.Drop()
		err := tensor.Try(func() { s.choose(s.logits, key) })
		if err == nil {
			err = s.fetch(key)
		}
		if err != nil {
			return 0, err
		}
		s.chosen = key.candidates
	}
	if key.candidates == 1 && s.lookAhead && s.adapters.source == nil && s.Room() > 0 {
		if err := s.advance(key, nil); err != nil {
			return 0, err
		}
		s.ahead = true
	}
	next, err := s.choices(key, func(int) Chooser { return c })
	if err != nil {
		return 0, err
	}
	return next[0], nil
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
	key := s.key(c)
	if s.ahead && id == s.next {
		key.candidates = 1
	} else if err := s.feed(id, key); err != nil {
		s.forget() // the position on the device may have moved: only a Prefill helps
		return err
	}
	s.tokens = append(s.tokens, id)
	s.chosen, s.next, s.ahead = key.candidates, noChoice, false
	return nil
}

// feed enqueues the step of an id that the host chose.
func (s *Session) feed(id int32, key stepKey) error {
	if err := s.prepareChoice(key.candidates); err != nil {
		return err
	}
	if s.ahead { // of another id
		if err := s.stepPositions.WriteInt32s([]int32{int32(len(s.tokens))}); err != nil {
			return err
		}
	}
	if s.ahead || s.chosen != 1 || s.next != id {
		if err := s.stepIDs.WriteInt32s([]int32{id}); err != nil {
			return err
		}
	}
	if err := s.adapters.beforeStep(id); err != nil {
		return err
	}
	s.results.Drop()
	return s.advance(key, []int32{id})
}

// advance enqueues the step of the token after those of the session, whose id may be known to the device alone.
func (s *Session) advance(key stepKey, ids []int32) error {
	at := len(s.tokens)
	s.past.begin(at, at+1)
	err := s.enqueue(key, func() model.Batch {
		b := model.Batch{
			Count: 1, Seq: 1, IDs: s.stepIDs, Positions: s.stepPositions, KVLen: s.context, Adapters: s.adapters.ofStep(key),
			Together: s.likeliest.ids,
		}
		b.Known.IDs, b.Known.Positions = ids, []int32{int32(at)}
		return b
	})
	if err != nil {
		return err
	}
	s.past.end(at + 1)
	return nil
}

// SetAdapters sets the adapters that tokens have from the next Prefill on, in place of those before; none is the model as
// it is. Keys and values of other adapters are forgotten; after an error no adapter is active. Steps of adapters that were
// loaded together are captured once for all.
func (s *Session) SetAdapters(active []model.ActiveAdapter) error {
	if slices.Equal(active, s.active) && s.adapters.source == nil {
		return nil
	}
	s.Reset()
	s.active = nil
	err := s.activate(active)
	if err == nil {
		err = s.adapters.writeSteps(s.adapters.prompt, []codedToken{{active: active}})
	}
	if err != nil {
		s.adapters.prompt = 0
		return err
	}
	s.active = slices.Clone(active)
	return nil
}

// SetCodes has f make the codes of an active adapter for each token that is computed from now on, instead of its scale
// alone; nil ends that, and so does SetAdapters. Codes may depend on the token, not on when it is computed: a token whose
// keys the session holds is not asked for again. The host has to see each token before its step, so no step is computed
// ahead.
func (s *Session) SetCodes(a *model.Adapter, f CodeSource) error {
	source, err := newCodeSource(a, f, s.active)
	if err != nil {
		return err
	}
	s.Reset()
	if err := s.setSource(source); err != nil || source != nil {
		return err
	}
	return s.adapters.writeSteps(s.adapters.prompt, []codedToken{{active: s.active}})
}

// Ban sets the ids that are never chosen from the next Prefill on.
func (s *Session) Ban(ids []int32) error {
	s.forget()
	return s.setBan(ids)
}
