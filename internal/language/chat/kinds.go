package chat

import "strings"

// Kind says what a piece of an answer is.
type Kind string

// The kinds. The pieces of all kinds together are the answer as the model wrote it.
const (
	KindText     Kind = "text"
	KindThinking Kind = "thinking"
	KindToolCall Kind = "tool_call" // as the model writes calls, mostly JSON; of harmony "to=NAME " and the arguments
	KindMarker   Kind = "marker"    // what delimits the others, such as <think>
)

// section is a part of an answer between two markers, which are tokens or text.
type section struct {
	open, close string // close "": up to the end of the answer
	kind        Kind
}

var sections = []section{
	{"<think>", "</think>", KindThinking},
	{"<thinking>", "</thinking>", KindThinking},
	{"<seed:think>", "</seed:think>", KindThinking},
	{"[THINK]", "[/THINK]", KindThinking},
	{"<|START_THINKING|>", "<|END_THINKING|>", KindThinking},
	{"<|channel>", "<channel|>", KindThinking},
	{"<tool_call>", "</tool_call>", KindToolCall},
	{"<|tool_call>", "<tool_call|>", KindToolCall},
	{"<seed:tool_call>", "</seed:tool_call>", KindToolCall},
	{"<|START_ACTION|>", "<|END_ACTION|>", KindToolCall},
	{"<|tool_calls_section_begin|>", "<|tool_calls_section_end|>", KindToolCall},
	{"<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>", KindToolCall},
	{"[TOOL_CALLS]", "", KindToolCall},
	{"<|tool_call|>", "", KindToolCall},
	{"<|python_tag|>", "", KindToolCall},
}

// Splitter tells the kinds of an answer apart while it is generated. It holds text back while that may be the beginning of
// a marker. In OpenAI's harmony format (https://github.com/openai/harmony) the kind follows from a message's header.
type Splitter struct {
	sections []section // those that the model knows
	harmony  bool

	now      section
	inHeader bool
	held     string // not told apart yet
	pieces   []piece
}

type piece struct {
	text string
	kind Kind
}

// NewSplitter returns a splitter for the markers that knows holds for: those that the vocabulary or the template has. The
// prompt may end with a marker, as templates do that have the model think.
func NewSplitter(knows func(marker string) bool, prompt string) *Splitter {
	s := &Splitter{now: section{kind: KindText}, harmony: knows("<|channel|>") && knows("<|message|>")}
	prompt = strings.TrimSpace(prompt)
	for _, x := range sections {
		if knows(x.open) {
			s.sections = append(s.sections, x)
			if strings.HasSuffix(prompt, x.open) {
				s.now = x
			}
		}
	}
	return s
}

// Harmony reports whether the model writes in the harmony format: then only text of KindText belongs into the history.
func (s *Splitter) Harmony() bool { return s.harmony }

// Text takes the next text of the answer.
func (s *Splitter) Text(text string) {
	s.held += text
	for !s.inHeader {
		at, found := len(s.held), section{}
		for _, x := range s.candidates() {
			if i := strings.Index(s.held, x.open); i >= 0 && (i < at || i == at && len(x.open) > len(found.open)) {
				at, found = i, x
			}
		}
		if found.open == "" {
			keep := 0
			for _, x := range s.candidates() {
				for n := min(len(x.open)-1, len(s.held)); n > keep; n-- {
					if strings.HasSuffix(s.held, x.open[:n]) {
						keep = n
					}
				}
			}
			s.add(len(s.held)-keep, s.now.kind)
			return
		}
		s.add(at, s.now.kind)
		s.add(len(found.open), KindMarker)
		s.now = found
	}
}

// candidates returns the markers that may come next, each as the opening of what follows it.
func (s *Splitter) candidates() []section {
	switch {
	case s.now.kind == KindText:
		return s.sections
	case s.now.close != "":
		return []section{{open: s.now.close, kind: KindText}}
	}
	return nil
}

// Control takes a control token by its name. It has no text of its own.
func (s *Splitter) Control(name string) {
	if s.harmony && s.controlHarmony(name) {
		return
	}
	for _, x := range s.candidates() {
		if x.open == name {
			s.add(len(s.held), s.now.kind)
			s.now = x
			return
		}
	}
}

// controlHarmony reads <|start|>ROLE<|channel|>CHANNEL to=NAME<|message|>TEXT<|end|>, where to=NAME may follow the role.
func (s *Splitter) controlHarmony(name string) bool {
	switch name {
	case "<|start|>", "<|channel|>":
		if !s.inHeader {
			s.add(len(s.held), s.now.kind)
		}
		s.inHeader = true
	case "<|message|>":
		s.now = section{kind: KindText}
		if strings.Contains(s.held, "analysis") {
			s.now.kind = KindThinking
		}
		if i := strings.Index(s.held, "to="); s.inHeader && i >= 0 {
			s.now.kind = KindToolCall
			s.add(i, KindMarker)
			if end := strings.IndexAny(s.held, " <"); end >= 0 {
				s.add(end+1, KindToolCall)
			} else {
				s.held += " "
				s.add(len(s.held), KindToolCall)
			}
		}
		s.add(len(s.held), KindMarker)
		s.inHeader = false
	case "<|end|>", "<|call|>", "<|return|>":
		s.add(len(s.held), s.now.kind)
		s.now, s.inHeader = section{kind: KindText}, false
	case "<|constrain|>":
	default:
		return false
	}
	return true
}

// add tells the first n bytes of what is held.
func (s *Splitter) add(n int, kind Kind) {
	if n == 0 {
		return
	}
	text := s.held[:n]
	s.held = s.held[n:]
	if last := len(s.pieces) - 1; last >= 0 && s.pieces[last].kind == kind {
		s.pieces[last].text += text
		return
	}
	s.pieces = append(s.pieces, piece{text, kind})
}

// Take returns the first piece that is told apart, and whether there is one. Its kind without one is that of the text
// that comes next.
func (s *Splitter) Take() (text string, kind Kind, ok bool) {
	if len(s.pieces) == 0 {
		return "", s.now.kind, false
	}
	p := s.pieces[0]
	s.pieces = s.pieces[1:]
	return p.text, p.kind, true
}

// End tells what is held back, at the end of the answer.
func (s *Splitter) End() {
	kind := s.now.kind
	if s.inHeader {
		kind = KindMarker
	}
	s.add(len(s.held), kind)
}
