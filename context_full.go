package vibrant

import (
	"context"
	"fmt"
)

// ContextFull says what becomes of a conversation that outgrows its session's context.
type ContextFull string

const (
	// ContextStop has Send fail with ErrContextFull. It is the default.
	ContextStop ContextFull = "stop"
	// ContextDrop has the oldest turns leave the conversation, each question with its answer, until the newest question fits.
	// A quarter of the context, or Generation.MaxTokens where that is less, is left free for its answer. The system message
	// stays. Session.Dropped counts what has left. A question that does not fit alone fails with ErrContextFull.
	ContextDrop ContextFull = "drop"
)

// ParseContextFull reads "stop" or "drop".
func ParseContextFull(s string) (ContextFull, error) {
	switch p := ContextFull(s); p {
	case ContextStop, ContextDrop:
		return p, nil
	}
	return "", fmt.Errorf("unknown policy for a full context %q: want stop or drop", s)
}

// WithContextFull sets what becomes of a conversation that outgrows the context; the default is ContextStop.
func WithContextFull(p ContextFull) SessionOption { return func(s *Session) { s.contextFull = p } }

// ContextFull returns what becomes of a conversation that outgrows the context.
func (s *Session) ContextFull() ContextFull {
	if s.contextFull == "" {
		return ContextStop
	}
	return s.contextFull
}

// Dropped returns how many of the oldest messages the newest Send has taken out of the conversation.
func (s *Session) Dropped() int { return s.dropped }

// fit returns the prompt of a conversation whose last message is to be answered, and what of the conversation is in it. It looks for
// the first turn that stays in steps of twice as many turns, and then between the last two: each look renders what is left.
func (s *Session) fit(ctx context.Context, said []Message) (kept []Message, ids []int32, err error) {
	s.dropped = 0
	room := s.model.config.context
	reserve := room / 4
	if n := s.Generation().MaxTokens; n >= 0 {
		reserve = min(reserve, n)
	}
	begins := turns(said)
	last := len(begins) - 1
	look := func(turn int) (fits bool, err error) {
		found, err := s.model.prompt(ctx, s.system, said[begins[turn]:])
		if fits = err == nil && len(found)+reserve <= room; fits || turn == 0 || turn == last {
			kept, ids, s.dropped = said[begins[turn]:], found, begins[turn]
		}
		return fits, err
	}
	fits, err := look(0)
	if err != nil || fits || s.ContextFull() == ContextStop {
		return kept, ids, err
	}
	before, turn := 0, 0 // a turn that is too early, and a later one
	for step := 1; !fits && turn < last; step *= 2 {
		before, turn = turn, min(turn+step, last)
		if fits, err = look(turn); err != nil {
			return kept, ids, err
		}
	}
	for fits && turn-before > 1 {
		middle := (before + turn) / 2
		if early, err := look(middle); err != nil {
			return kept, ids, err
		} else if early {
			turn = middle
		} else {
			before = middle
		}
	}
	return kept, ids, nil
}

// turns returns where each turn begins: the first message, and every later question.
func turns(said []Message) []int {
	begins := []int{0}
	for i := 1; i < len(said); i++ {
		if said[i].Role == "user" {
			begins = append(begins, i)
		}
	}
	return begins
}
