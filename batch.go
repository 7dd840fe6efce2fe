package vibrant

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/vibrant-ml/vibrant/internal/language/engine"
	"github.com/vibrant-ml/vibrant/internal/language/model"
)

// MaxBatch is the most answers that a Batch generates together.
const MaxBatch = engine.MaxSequences

// ErrBatchFull says that a batch has no place for another answer.
var ErrBatchFull = errors.New("the batch is full")

// Batch generates several answers together: a step computes one token of each in one pass, which reads the weights once
// for all of them: docs/benchmarks.md says what that gains.
//
//	batch, err := model.NewBatch(32)
//	...
//	defer batch.Close()
//	for _, question := range questions {
//		_, err := batch.Send(ctx, []vibrant.Message{{Role: "user", Content: question}}, vibrant.DefaultGeneration())
//		...
//	}
//	for batch.Len() > 0 {
//		answers, err := batch.Step(ctx)
//		...
//		for _, a := range answers {
//			fmt.Println(a.Token().Text, a.Finish()) // the first token too
//		}
//	}
//
// Answers join and leave between steps, each with a prompt, a sampler and a length of its own, and each is what a Session
// would generate. The memory of NewBatch holds the given number of contexts. A batch does one thing at a time, and says
// ErrBusy meanwhile.
type Batch struct {
	model   *Model
	engine  *engine.Batch
	life    lifetime
	busy    atomic.Bool
	answers []*Answer

	adapters []model.ActiveAdapter // of answers that join
}

// Answer is one of the answers of a Batch. It may be read between the calls on its batch, also after it is complete.
type Answer struct {
	batch    *Batch
	sequence *engine.Sequence
	state    *answer
	token    Token
	tokens   []Token // token, and what was held back where it ended the answer
	text     strings.Builder
}

// NewBatch allocates for up to so many answers, each with a context as long as a session's. The caller closes it; closing
// the model does so too. Likely errors: a number that is not 1 to MaxBatch, gpu.ErrOutOfMemory.
func (m *Model) NewBatch(answers int) (*Batch, error) {
	if err := m.life.enter(); err != nil {
		return nil, err
	}
	defer m.life.leave()
	e, err := engine.NewBatch(m.model, answers, engine.Options{Context: m.config.context, KVType: m.kvType, Chunk: m.config.chunk})
	if err != nil {
		return nil, err
	}
	active, err := activeIn(m, m.adapters)
	if err != nil {
		e.Close()
		return nil, err
	}
	b := &Batch{model: m, engine: e, adapters: active}
	b.life.release = m.own(e)
	return b, nil
}

// Close gives the batch's memory back. Closing nil or twice is harmless.
func (b *Batch) Close() error {
	if b == nil {
		return nil
	}
	return b.life.close()
}

// Len returns how many answers are being generated.
func (b *Batch) Len() int { return len(b.answers) }

// Send adds the answer to a conversation, rendered by the model's chat template: see Join.
func (b *Batch) Send(ctx context.Context, messages []Message, g Generation) (*Answer, error) {
	ids, err := b.model.prompt(ctx, "", messages)
	if err != nil {
		return nil, err
	}
	return b.Join(ctx, ids, g)
}

// Join adds the continuation of a prompt of token ids. It computes the prompt, while the others wait; the answer's first token comes
// from the next Step, as all others do.
//
// Likely errors: ErrBatchFull, ErrContextFull, ErrBusy, ErrClosed, the error of ctx.
func (b *Batch) Join(ctx context.Context, ids []int32, g Generation) (*Answer, error) {
	if err := g.Validate(); err != nil {
		return nil, err
	}
	if err := b.begin(); err != nil {
		return nil, err
	}
	defer b.end()
	ctx, stop := whileOpen(ctx, &b.life, &b.model.life)
	defer stop()
	banned := b.model.banned(g)
	if banned != nil {
		if err := b.engine.Ban(banned); err != nil {
			return nil, err
		}
	}
	a := &Answer{batch: b, state: newAnswer(b.model, g, ids)}
	var err error
	if a.sequence, err = b.engine.Join(ctx, ids, a.state.sampler, banned != nil, b.adapters...); err != nil {
		if errors.Is(err, engine.ErrBatchFull) {
			return nil, wrapped{ErrBatchFull, err.Error()}
		}
		return nil, closedError(ctx, contextError(err))
	}
	a.state.begin()
	b.answers = append(b.answers, a)
	return a, nil
}

// Step generates one token of every answer and returns these answers in the order in which they joined. Those that are
// complete have left the batch. After an error every answer is as before, but for a model whose logits are not numbers:
// then the answers that met them have left.
func (b *Batch) Step(ctx context.Context) ([]*Answer, error) {
	if err := b.begin(); err != nil {
		return nil, err
	}
	defer b.end()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if err := b.engine.Step(); err != nil {
		return nil, contextError(err)
	}
	stepped := slices.Clone(b.answers)
	var failed error
	for _, a := range stepped {
		if err := a.take(); err != nil {
			failed = err
			a.leave()
		}
	}
	b.answers = slices.DeleteFunc(b.answers, func(a *Answer) bool { return a.sequence == nil })
	return stepped, failed
}

// take takes the sequence's newest token.
func (a *Answer) take() (err error) {
	if a.state.finish != FinishNone { // no token was asked for
		a.token = Token{ID: -1}
		a.leave()
		return nil
	}
	// The newest token is not in the cache yet: there must be room for it, or it is the last.
	if a.token, err = a.state.take(a.sequence.Newest(), a.sequence.Room()); err != nil {
		return err
	}
	if a.state.finish != FinishNone {
		a.leave()
	}
	a.tokens = []Token{a.token}
	if a.state.finish != FinishNone {
		a.tokens = append(a.tokens, a.state.rest()...)
	}
	a.token.Text = ""
	for _, t := range a.tokens {
		a.token.Text += t.Text
	}
	a.text.WriteString(a.token.Text)
	return nil
}

func (a *Answer) leave() {
	a.sequence.Leave()
	a.sequence = nil
}

// Leave ends the answer before it is complete, so that another may take its place. Leaving twice is harmless.
func (a *Answer) Leave() error {
	if err := a.batch.begin(); err != nil {
		return err
	}
	defer a.batch.end()
	if a.sequence != nil {
		a.leave()
		a.batch.answers = slices.DeleteFunc(a.batch.answers, func(x *Answer) bool { return x == a })
	}
	return nil
}

// Token returns the token of the newest Step, whose text may be empty where a character or stop text is not complete yet, or where
// the token ended the answer. Its text may be of several kinds where it
// ended the answer: see Tokens.
func (a *Answer) Token() Token { return a.token }

// Tokens returns the newest token and, where it ended the answer, what was held back until then, each of one Kind.
func (a *Answer) Tokens() []Token { return slices.Clone(a.tokens) }

// Text returns the answer so far.
func (a *Answer) Text() string { return a.text.String() }

// Generated returns the ids so far.
func (a *Answer) Generated() []int32 { return append([]int32{}, a.state.ids...) }

// Finish says why the answer ended, FinishNone while it goes on.
func (a *Answer) Finish() FinishReason { return a.state.finish }

func (b *Batch) begin() error {
	if !b.busy.CompareAndSwap(false, true) {
		return fmt.Errorf("batch: %w", ErrBusy)
	}
	err := b.model.life.enter()
	if err == nil {
		if err = b.life.enter(); err != nil {
			b.model.life.leave()
		}
	}
	if err != nil {
		b.busy.Store(false)
	}
	return err
}

func (b *Batch) end() {
	b.life.leave()
	b.model.life.leave()
	b.busy.Store(false)
}
