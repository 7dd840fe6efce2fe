package vibrant

import "strings"

// stopText cuts a stream of text at the first of several stop texts, and holds back what may become the start of one.
type stopText struct {
	stops   []string
	held    string
	stopped bool
}

// newStopText returns a filter for these texts, none of them empty.
func newStopText(stops []string) *stopText { return &stopText{stops: stops} }

// next takes the next piece and returns the text that is safe to show. Once a stop text was met it returns what lies
// before it, and stopped is true.
func (s *stopText) next(piece string) string {
	if s.stopped || len(s.stops) == 0 {
		if s.stopped {
			return ""
		}
		return piece
	}
	text := s.held + piece
	s.held = ""
	first := -1
	for _, stop := range s.stops {
		if i := strings.Index(text, stop); i >= 0 && (first < 0 || i < first) {
			first = i
		}
	}
	if first >= 0 {
		s.stopped = true
		return text[:first]
	}
	keep := 0
	for _, stop := range s.stops {
		for n := min(len(stop)-1, len(text)); n > keep; n-- {
			if strings.HasSuffix(text, stop[:n]) {
				keep = n
			}
		}
	}
	s.held = text[len(text)-keep:]
	return text[:len(text)-keep]
}

// rest returns what was held back, at the end of the stream.
func (s *stopText) rest() string {
	held := s.held
	s.held = ""
	return held
}
