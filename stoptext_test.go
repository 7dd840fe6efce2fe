package vibrant

import (
	"slices"
	"testing"
)

func TestStopTextIsCutAndItsBeginningHeldBack(t *testing.T) {
	for _, c := range []struct {
		stops  []string
		pieces []string
		want   []string
		rest   string
		stop   bool
	}{
		{nil, []string{"a", "b"}, []string{"a", "b"}, "", false},
		{[]string{"END"}, []string{"ab", "cE", "N", "x", "E"}, []string{"ab", "c", "", "ENx", ""}, "E", false},
		{[]string{"END"}, []string{"abE", "N", "D and more", "x"}, []string{"ab", "", "", ""}, "", true},
		{[]string{"\n\n", "User:"}, []string{"a\n", "User", ": b"}, []string{"a", "\n", ""}, "", true},
		{[]string{"aab"}, []string{"aa", "a", "b"}, []string{"", "a", ""}, "", true},
		{[]string{"é"}, []string{"x\u00e9y"}, []string{"x"}, "", true},
	} {
		s := newStopText(c.stops)
		var got []string
		for _, p := range c.pieces {
			got = append(got, s.next(p))
		}
		if !slices.Equal(got, c.want) || s.stopped != c.stop {
			t.Errorf("%q of %q: %q, stopped %v, want %q, %v", c.stops, c.pieces, got, s.stopped, c.want, c.stop)
		}
		if rest := s.rest(); rest != c.rest {
			t.Errorf("%q of %q: rest %q, want %q", c.stops, c.pieces, rest, c.rest)
		}
	}
}
