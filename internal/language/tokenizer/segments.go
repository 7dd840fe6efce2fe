package tokenizer

import (
	"context"
	"slices"
	"strings"
)

// Segment is a part of a prompt.
type Segment struct {
	Text string
	// ParseSpecial allows control tokens: for what a template wrote, never for what came from a message.
	ParseSpecial bool
}

// EncodeSegments returns the ids of the segments as one text: words and spaces merge across their borders, as in the text
// that the model was trained on. A control token is taken only where all of it lies in segments that allow it, so that a
// message can neither hold one nor complete one. Options.ParseSpecial is not looked at.
func (t *Tokenizer) EncodeSegments(ctx context.Context, segments []Segment, o Options) ([]int32, error) {
	var text strings.Builder
	var plain []span // where control tokens are not allowed, in order
	for _, s := range segments {
		start := text.Len()
		text.WriteString(s.Text)
		if !s.ParseSpecial && s.Text != "" {
			plain = append(plain, span{start, text.Len()})
		}
	}
	return t.encode(ctx, text.String(), o, func(start, end int, id int32) bool {
		if t.isOrdinary(id) {
			return true
		}
		i, _ := slices.BinarySearchFunc(plain, start, func(p span, at int) int {
			if p.end <= at {
				return -1
			}
			return 1
		})
		return i == len(plain) || end <= plain[i].start
	})
}

type span struct{ start, end int }
