package vibrant

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/vibrant-ml/vibrant/internal/language/chat"
	"github.com/vibrant-ml/vibrant/internal/language/engine"
	"github.com/vibrant-ml/vibrant/internal/phase"
)

// Token is a piece of an answer.
type Token struct {
	ID   int32  // -1 where Text was held back until the end
	Text string // may be empty, where a character, a stop text or a marker is not complete yet
	Kind Kind   // what Text is; "" without a tokenizer
}

// Kind says what a piece of an answer is. The texts of all kinds together are the answer as the model wrote it, without
// control tokens.
type Kind string

// The kinds, by the markers that the model's vocabulary or chat template has, such as <think> and <tool_call>, and by the
// channels of gpt-oss. A KindToolCall is in the model's own spelling, mostly JSON; of gpt-oss "to=NAME " and arguments.
const (
	KindText     = Kind(chat.KindText)
	KindThinking = Kind(chat.KindThinking)
	KindToolCall = Kind(chat.KindToolCall)
	KindMarker   = Kind(chat.KindMarker) // what delimits the others
)

// Message is one turn of a conversation.
type Message struct {
	Role    string `json:"role"` // "system", "user" or "assistant"
	Content string `json:"content"`
}

// Stats says what the newest answer took.
type Stats struct {
	PrefillTokens int           `json:"prefill_tokens"` // of the prompt, that were computed
	ReusedTokens  int           `json:"reused_tokens"`  // of the prompt, that the session remembered
	PrefillTime   time.Duration `json:"prefill_ns"`
	DecodeTokens  int           `json:"decode_tokens"` // generated after the first
	DecodeTime    time.Duration `json:"decode_ns"`     // from the first token to the newest: a GPU works on while the caller has one
	ContextUsed   int           `json:"context_used"`
	Memory        Memory        `json:"memory"`
}

// PrefillRate returns tokens a second, 0 where there were none.
func (s Stats) PrefillRate() float64 { return rate(s.PrefillTokens, s.PrefillTime) }

// DecodeRate returns tokens a second, 0 where there were none.
func (s Stats) DecodeRate() float64 { return rate(s.DecodeTokens, s.DecodeTime) }

func rate(n int, d time.Duration) float64 {
	if n == 0 || d <= 0 {
		return 0
	}
	return float64(n) / d.Seconds()
}

// Session is one conversation with a model, with memory of its own for what was said. Sessions of one model may be used
// from different goroutines; one session does one thing at a time, and says ErrBusy meanwhile.
type Session struct {
	model   *Model
	engine  *engine.Session
	life    lifetime
	busy    atomic.Bool
	options Generation
	system  string
	history []Message

	adapters []ActiveAdapter

	contextFull ContextFull           // "" for ContextStop
	dropped     int                   // messages that left with the newest Send
	progress    func(done, total int) // of WithPromptProgress

	answer *answer // the newest
}

// SessionOption adjusts NewSession.
type SessionOption func(*Session)

// WithSystem puts a system message in front of the conversation; an empty one is none.
func WithSystem(text string) SessionOption { return func(s *Session) { s.system = text } }

// WithGeneration sets how answers are generated, instead of DefaultGeneration.
func WithGeneration(g Generation) SessionOption { return func(s *Session) { s.options = g } }

// WithPromptProgress has f called as prompts are computed, after each chunk (WithPrefillChunk), with the number of the
// prompt's tokens that the session holds by then. It is called from the goroutine that ranges over the answer.
func WithPromptProgress(f func(done, total int)) SessionOption {
	return func(s *Session) { s.progress = f }
}

// NewSession starts a conversation. The caller closes it; closing the model does so too.
func (m *Model) NewSession(options ...SessionOption) (*Session, error) {
	if err := m.life.enter(); err != nil {
		return nil, err
	}
	defer m.life.leave()
	s := &Session{model: m, options: DefaultGeneration(), answer: &answer{}}
	for _, o := range options {
		o(s)
	}
	if err := s.options.Validate(); err != nil {
		return nil, err
	}
	if _, err := ParseContextFull(string(s.ContextFull())); err != nil {
		return nil, err
	}
	e, err := engine.New(m.model, engine.Options{Context: m.config.context, KVType: m.kvType, Chunk: m.config.chunk, Progress: s.progress})
	if err != nil {
		return nil, err
	}
	if err := m.startAdapters(e); err != nil {
		e.Close()
		return nil, err
	}
	phase.Done("session opened")
	s.engine, s.adapters = e, m.Adapters()
	s.life.release = m.own(e)
	return s, nil
}

// Close gives the session's memory back; an answer under way ends with ErrClosed. Closing nil or twice is harmless.
func (s *Session) Close() error {
	if s == nil {
		return nil
	}
	return s.life.close()
}

// begin claims the session for one thing to do.
func (s *Session) begin() error {
	if !s.busy.CompareAndSwap(false, true) {
		return ErrBusy
	}
	err := s.model.life.enter()
	if err == nil {
		if err = s.life.enter(); err != nil {
			s.model.life.leave()
		}
	}
	if err != nil {
		s.busy.Store(false)
	}
	return err
}

func (s *Session) end() {
	s.life.leave()
	s.model.life.leave()
	s.busy.Store(false)
}

// Send says text to the model and returns the tokens of its answer as they are generated. Nothing in text is taken for a
// special token. Leaving the loop or cancelling ctx, also while the prompt is computed, stops the answer; what was said
// of it stays in the history. After an error that comes before the first token the history is as it was.
//
// A prompt of which the session has computed the beginning, as it has in a conversation, is computed from there on.
//
// What becomes of a conversation that outgrows the context is WithContextFull's to say.
//
// Likely errors: ErrContextFull, ErrNoTokenizer, ErrBusy, ErrClosed, the error of ctx.
func (s *Session) Send(ctx context.Context, text string) iter.Seq2[Token, error] {
	return func(yield func(Token, error) bool) {
		if err := s.begin(); err != nil {
			yield(Token{ID: -1}, err)
			return
		}
		defer s.end()
		said, ids, err := s.fit(ctx, append(slices.Clone(s.history), Message{"user", text}))
		if err != nil {
			yield(Token{ID: -1}, err)
			return
		}
		var reply strings.Builder
		started := false
		s.generate(ctx, ids, func(t Token, err error) bool {
			started = started || err == nil
			reply.WriteString(s.answer.said(t))
			if started {
				// The loop's body may look at the history, or leave.
				s.history = append(said, Message{"assistant", reply.String()})
			}
			return yield(t, err)
		})
		if !started && s.answer.finish != FinishNone {
			s.history = append(said, Message{"assistant", ""})
		}
	}
}

// Complete continues a raw prompt, without the chat template. The begin token is put in front where the model wants it;
// special tokens are not parsed. The conversation's history is neither used nor changed.
func (s *Session) Complete(ctx context.Context, prompt string) iter.Seq2[Token, error] {
	return func(yield func(Token, error) bool) {
		t, err := s.model.Tokenizer()
		var ids []int32
		if err == nil {
			ids, err = t.Encode(ctx, prompt, EncodeOptions{AddBOS: true})
		}
		if err != nil {
			yield(Token{ID: -1}, err)
			return
		}
		s.CompleteIDs(ctx, ids)(yield)
	}
}

// CompleteIDs is Complete for a prompt of token ids. Without a tokenizer the tokens have no text.
func (s *Session) CompleteIDs(ctx context.Context, ids []int32) iter.Seq2[Token, error] {
	return func(yield func(Token, error) bool) {
		if err := s.begin(); err != nil {
			yield(Token{ID: -1}, err)
			return
		}
		defer s.end()
		s.generate(ctx, ids, yield)
	}
}

// Prefill computes a prompt of token ids without generating, so that what starts with it later is answered sooner.
func (s *Session) Prefill(ctx context.Context, ids []int32) error {
	if err := s.begin(); err != nil {
		return err
	}
	defer s.end()
	s.engine.ResetStats()
	return s.prefill(ctx, ids)
}

// prefill computes a prompt, until the session or its model is closed.
func (s *Session) prefill(ctx context.Context, ids []int32) error {
	ctx, stop := whileOpen(ctx, &s.life, &s.model.life)
	defer stop()
	return closedError(ctx, contextError(s.engine.Prefill(ctx, ids)))
}

// generate computes a prompt and yields what follows.
func (s *Session) generate(ctx context.Context, ids []int32, yield func(Token, error) bool) {
	a := newAnswer(s.model, s.options, ids)
	s.answer = a
	s.engine.ResetStats()
	fail := func(err error) { yield(Token{ID: -1}, contextError(err)) }
	err := s.engine.Ban(s.model.banned(s.options))
	if err == nil {
		err = s.prefill(ctx, ids)
	}
	if err != nil {
		fail(err)
		return
	}
	phase.Done("prompt computed")
	defer phase.Done("answer ended")
	a.begin()
	for n := 0; a.finish == FinishNone; n++ {
		if err := ctx.Err(); err != nil {
			fail(err)
			return
		}
		if s.life.isClosed() || s.model.life.isClosed() {
			fail(ErrClosed)
			return
		}
		id, err := s.engine.Next(a.sampler)
		if n == 0 {
			phase.Done("first token chosen")
		}
		var token Token
		if err == nil {
			token, err = a.take(id, s.engine.Room())
		}
		if err != nil {
			fail(err)
			return
		}
		if a.ended {
			break
		}
		if !yield(token, nil) {
			return
		}
		if a.finish == FinishNone {
			if err := s.engine.Step(id, a.sampler); err != nil {
				fail(err)
				return
			}
		}
	}
	for _, t := range a.rest() {
		if !yield(t, nil) {
			return
		}
	}
}

// Reset forgets the conversation, but not the system message. ErrBusy: an answer is under way.
func (s *Session) Reset() error {
	if err := s.begin(); err != nil {
		return err
	}
	defer s.end()
	s.history, s.answer = nil, &answer{}
	s.engine.Reset()
	return nil
}

// History returns what was said, without the system message.
func (s *Session) History() []Message { return slices.Clone(s.history) }

// SetHistory replaces the conversation, without the system message.
func (s *Session) SetHistory(h []Message) error {
	for _, m := range h {
		if m.Role == "" {
			return fmt.Errorf("a message has no role")
		}
	}
	s.history = slices.Clone(h)
	return nil
}

// System returns the system message, "" for none.
func (s *Session) System() string { return s.system }

// SetSystem changes it from the next answer on.
func (s *Session) SetSystem(text string) { s.system = text }

// Generation returns how answers are generated.
func (s *Session) Generation() Generation { return s.options.withDefaults() }

// SetGeneration changes it from the next answer on.
func (s *Session) SetGeneration(g Generation) error {
	if err := g.Validate(); err != nil {
		return err
	}
	s.options = g
	return nil
}

// Generated returns the ids of the newest answer.
func (s *Session) Generated() []int32 { return append([]int32{}, s.answer.ids...) }

// Finish says why the newest answer ended.
func (s *Session) Finish() FinishReason { return s.answer.finish }

// Stats says what the newest answer took.
func (s *Session) Stats() Stats {
	e := s.engine.Stats()
	return Stats{
		PrefillTokens: e.PrefillTokens, ReusedTokens: e.ReusedTokens, PrefillTime: e.PrefillTime,
		DecodeTokens: e.DecodeTokens, DecodeTime: e.DecodeTime, ContextUsed: len(s.engine.Tokens()),
		Memory: s.model.memory(),
	}
}
