package demomodel

import (
	"bytes"
	"encoding/binary"
	"strings"
	"testing"
)

func TestEmbeddedFileIsASmallGGUF(t *testing.T) {
	b := GGUF()
	if len(b) < 1<<20 || len(b) > 8<<20 {
		t.Errorf("embedded file has %d bytes, want 1 to 8 MiB", len(b))
	}
	if !bytes.HasPrefix(b, []byte("GGUF")) || binary.LittleEndian.Uint32(b[4:]) != 3 {
		t.Errorf("embedded file begins with %q, want GGUF version 3", b[:8])
	}
	for _, want := range []string{"qwen2", "tokenizer.chat_template", "<|im_start|>", "Vibrant"} {
		if !bytes.Contains(b, []byte(want)) {
			t.Errorf("embedded file does not contain %q", want)
		}
	}
}

func readQuestions(t *testing.T) []Question {
	t.Helper()
	questions, err := Questions()
	if err != nil {
		t.Fatal(err)
	}
	return questions
}

func TestQuestionsCoverWhatTheModelIsScoredOn(t *testing.T) {
	counts, seen := map[string]int{}, map[string]bool{}
	for _, q := range readQuestions(t) {
		key := strings.Join(append(q.History, q.Text), "\n")
		if q.Text == "" || len(q.Accept) == 0 || seen[key] {
			t.Errorf("question %q is empty, has no accepted answer or stands twice", q.Text)
		}
		seen[key] = true
		counts[q.Kind]++
		if q.Right("") {
			t.Errorf("question %q accepts an empty answer", q.Text)
		}
		if declined := q.Right("I don't know that."); declined != (q.Kind == "unknown" || q.Kind == "probe") {
			t.Errorf("question %q (%s) accepts declining: %v", q.Text, q.Kind, declined)
		}
	}
	for kind, least := range map[string]int{"fact": 300, "follow": 20, "talk": 10, "math": 60, "units": 20, "words": 40, "unknown": 80, "probe": 300} {
		if counts[kind] < least {
			t.Errorf("%d questions of kind %s, want at least %d", counts[kind], kind, least)
		}
	}
}

func TestRightMatchesAnyPatternWithoutCase(t *testing.T) {
	qs, err := parseQuestions([]byte(`[{"q":"a","accept":["make x\\b","y$"],"kind":"fact"}]`))
	if err != nil {
		t.Fatal(err)
	}
	for answer, want := range map[string]bool{"Run MAKE X now": true, "only Y": true, "make xy z": false, "": false} {
		if got := qs[0].Right(answer); got != want {
			t.Errorf("Right(%q) = %v, want %v", answer, got, want)
		}
	}
}

func TestABadPatternIsNamed(t *testing.T) {
	if _, err := parseQuestions([]byte(`[{"q":"why?","accept":["("]}]`)); err == nil || !strings.Contains(err.Error(), "why?") {
		t.Errorf("a bad pattern: error %v, want one that names the question", err)
	}
	if _, err := parseQuestions([]byte(`{`)); err == nil {
		t.Error("broken JSON: no error")
	}
}

func TestGoldenAnswersAreComplete(t *testing.T) {
	cases, err := GoldenAnswers()
	if err != nil {
		t.Fatal(err)
	}
	if len(cases) < 300 {
		t.Errorf("%d golden answers, want at least 300", len(cases))
	}
	asked := map[string]bool{}
	for _, q := range readQuestions(t) {
		asked[q.Text] = true
	}
	for _, c := range cases {
		if !asked[c.Text] || len(c.PromptIDs) == 0 || len(c.IDs) < 2 || len(c.FirstLogits) == 0 {
			t.Errorf("golden answer to %q: %d prompt ids, %d ids, %d logits, a held-out question: %v", c.Text, len(c.PromptIDs), len(c.IDs), len(c.FirstLogits), asked[c.Text])
		}
		// Engines round differently: what is decided by less would be no test.
		if !(c.LeastLead > 1e-3) {
			t.Errorf("golden answer to %q is decided by %g", c.Text, c.LeastLead)
		}
	}
}
