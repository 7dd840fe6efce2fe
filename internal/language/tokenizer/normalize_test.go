package tokenizer

import (
	"context"
	"errors"
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

// A text is normalized part by part: what is cut there is what is made of all of it.
func TestNormalizingInPartsChangesNothing(t *testing.T) {
	unit := "cafe\u0301 \u1112\u1161\u11ab\uac00\u11a8 \u0327c\u0301\xff中Å"
	for _, lead := range []string{"", "a", "ab", "\u0301", "é", "\u1100", "\xff"} {
		text := lead + strings.Repeat(unit, 1<<18/len(unit))
		e := &encoder{ctx: t.Context()}
		got, err := e.nfc(text)
		if err != nil || got != nfc(text) {
			t.Errorf("%q in front: another text, %v", lead, err)
		}
	}
}

func TestNormalizingStopsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	e := &encoder{ctx: ctx}
	if _, err := e.nfc(strings.Repeat("e\u0301", 1<<17)); !errors.Is(err, context.Canceled) {
		t.Errorf("NFC: %v", err)
	}
	for model, text := range map[string]string{"bert": "\u0301", "t5": " "} { // which no token comes of
		tok := must(t, Config{Model: model, Tokens: []string{"[UNK]", "▁a"}, Special: map[string]int32{"unknown": 0}})
		if err := tok.model.encode(&encoder{t: tok, ctx: ctx}, strings.Repeat(text, 1<<17), true); !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v", model, err)
		}
	}
}
