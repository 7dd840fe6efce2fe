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
	// ContextDrop has the oldest turns leave the conversation, each question with its answer, until the newest question fits
	// and a quarter of the context (or Generation.MaxTokens, where that is less) is free for its answer. The system message
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

// fit returns the prompt of a conversation whose last message is to be answered, and what of the conversation is in it.
func (s *Session) fit(ctx context.Context, said []Message) (kept []Message, ids []int32, err error) {
	s.dropped = 0
	room := s.model.config.context
	reserve := room / 4
	if n := s.Generation().MaxTokens; n >= 0 {
		reserve = min(reserve, n)
	}
	for {
		ids, err = s.model.prompt(ctx, s.system, said)
		turn := oldestTurn(said)
		if err != nil || s.ContextFull() == ContextStop || len(ids)+reserve <= room || turn == len(said) {
			return said, ids, err
		}
		said = said[turn:]
		s.dropped += turn
	}
}

// oldestTurn returns how many messages come before the second question.
func oldestTurn(said []Message) int {
	for i := 1; i < len(said); i++ {
		if said[i].Role == "user" {
			return i
		}
	}
	return len(said)
}
