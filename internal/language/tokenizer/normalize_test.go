package tokenizer

import (
	"strings"
	"testing"

	"golang.org/x/text/unicode/norm"
	"pgregory.net/rapid"
)

// What Python's unicodedata.normalize("NFC", s) gives.
func TestLongRunsOfMarksAreNormalizedAsInPython(t *testing.T) {
	fillClasses()
	r := strings.Repeat
	for in, want := range map[string]string{
		"e" + r("\u0301", 40):                        "é" + r("\u0301", 39),
		"a" + r("\u0301", 20) + r("\u0323", 20):      "ạ" + r("\u0323", 19) + r("\u0301", 20),
		"\u1112\u1161\u11ab" + r("\u0301", 33) + "x": "한" + r("\u0301", 33) + "x",
		"\xff" + "e" + r("\u0301", 9) + "\xff":       "\xffé" + r("\u0301", 8) + "\xff",
	} {
		if got := nfc(in); got != want {
			t.Errorf("%+q: %+q, want %+q", in, got, want)
		}
	}
}

// Where x/text normalizes exactly, what is done here for other texts gives the same. U+0F73 is left out: before it x/text joins
// a mark to a letter beyond another letter ("a\u09be\u0301\u0f73"), where Python does not.
func TestComposingIsThatOfTheLibrary(t *testing.T) {
	fillClasses()
	part := rapid.SampledFrom([]string{"a", "e", "\u0301", "\u0323", "\u0344", "é", "ạ", "가", "\u1112", "\u1161", "\u11ab", "\u09c7", "\u09be", "Å", "\ufb2c", "\xff", "\U0001d15e"})
	rapid.Check(t, func(t *rapid.T) {
		text := strings.Join(rapid.SliceOfN(part, 0, 12).Draw(t, "parts"), "")
		if got, want := composeMarks(text), norm.NFC.String(text); got != want {
			t.Fatalf("%+q: %+q, want %+q", text, got, want)
		}
	})
}
