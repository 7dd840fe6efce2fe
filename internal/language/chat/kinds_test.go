package chat

import (
	"slices"
	"strings"
	"testing"
)

// split feeds an answer, in pieces of n bytes, where {..} is a control token; it returns the kinds with their texts.
func split(s *Splitter, answer string, n int) []string {
	var got []string
	var last Kind
	take := func() {
		for {
			text, kind, ok := s.Take()
			if !ok {
				return
			}
			if kind != last {
				got, last = append(got, string(kind)+":"), kind
			}
			got[len(got)-1] += text
		}
	}
	for answer != "" {
		if answer[0] == '{' {
			end := strings.IndexByte(answer, '}')
			s.Control(answer[1:end])
			answer = answer[end+1:]
			take()
			continue
		}
		size := min(n, len(answer))
		if i := strings.IndexByte(answer, '{'); i >= 0 {
			size = min(size, i)
		}
		s.Text(answer[:size])
		answer = answer[size:]
		take()
	}
	s.End()
	take()
	return got
}

func TestKindsOfAnswers(t *testing.T) {
	tags := []string{"<think>", "</think>", "<tool_call>", "[TOOL_CALLS]", "[THINK]"}
	harmony := []string{"<|channel|>", "<|message|>", "<|start|>"}
	for _, c := range []struct {
		name, prompt, answer string
		knows, want          []string
	}{
		{"plain", "", "Hello <b>you</b> <", tags, []string{"text:Hello <b>you</b> <"}},
		{"thinking", "", "<think>\nHm <thin\n</think>\n\nYes", tags, []string{"marker:<think>", "thinking:\nHm <thin\n", "marker:</think>", "text:\n\nYes"}},
		{"the prompt opens", "...assistant\n<think>\n", "Hm</think>Yes", tags, []string{"thinking:Hm", "marker:</think>", "text:Yes"}},
		{"cut off", "", "<think>Hm</thi", tags, []string{"marker:<think>", "thinking:Hm</thi"}},
		{"calls", "", "a<tool_call>{x</tool_call>\n<tool_call>y</tool_call>", tags, nil},
		{"a list of calls", "", "[TOOL_CALLS][1, <think>]", tags, []string{"marker:[TOOL_CALLS]", "tool_call:[1, <think>]"}},
		{"control tokens", "", "{[THINK]}Hm{[/THINK]}Yes{[TOOL_CALLS]}f[ARGS]1", tags, []string{"thinking:Hm", "text:Yes", "tool_call:f[ARGS]1"}},
		{"not known", "", "<think>x</think>", nil, []string{"text:<think>x</think>"}},
		{"harmony", "", "{<|channel|>}analysis{<|message|>}Hm{<|end|>}{<|start|>}assistant{<|channel|>}final{<|message|>}Yes", harmony,
			[]string{"marker:analysis", "thinking:Hm", "marker:assistantfinal", "text:Yes"}},
		{"harmony's call", "", "{<|channel|>}commentary to=functions.f {<|constrain|>}json{<|message|>}[1]{<|call|>}", harmony,
			[]string{"marker:commentary ", "tool_call:to=functions.f ", "marker:json", "tool_call:[1]"}},
		{"harmony's preamble", "", "{<|channel|>}commentary{<|message|>}I call.{<|end|>}", harmony, []string{"marker:commentary", "text:I call."}},
	} {
		if c.name == "calls" {
			c.answer = strings.ReplaceAll(c.answer, "{", "(") // no control token
			c.want = []string{"text:a", "marker:<tool_call>", "tool_call:(x", "marker:</tool_call>", "text:\n", "marker:<tool_call>", "tool_call:y", "marker:</tool_call>"}
		}
		for n := 1; n <= len(c.answer); n++ {
			s := NewSplitter(func(m string) bool { return slices.Contains(c.knows, m) }, c.prompt)
			if got := split(s, c.answer, n); !slices.Equal(got, c.want) {
				t.Errorf("%s, %d bytes at a time: %q, want %q", c.name, n, got, c.want)
			}
		}
	}
}

// Text is not held back longer than it may be a marker.
func TestKindsAreToldAtOnce(t *testing.T) {
	s := NewSplitter(func(m string) bool { return m == "<think>" }, "")
	for _, step := range [][2]string{{"a", "a"}, {"<", ""}, {"b", "<b"}, {" <thi", " "}, {"s", "<this"}} {
		s.Text(step[0])
		if text, _, _ := s.Take(); text != step[1] {
			t.Errorf("after %q: %q, want %q", step[0], text, step[1])
		}
	}
}
