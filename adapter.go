package vibrant

import (
	"context"
	"fmt"
	"math"
	"slices"

	"github.com/vibrant-ml/vibrant/internal/language/engine"
	"github.com/vibrant-ml/vibrant/internal/language/model"
)

// ErrAdapter is wrapped where a file holds no low-rank adapter, or one that does not fit the model; the text names the tensor.
var ErrAdapter = model.ErrAdapter

// Adapter is a low-rank change of a model's matrices (LoRA) that lies on the model's device beside the weights, which stay as they
// are. It lasts as long as its model.
type Adapter struct {
	model   *Model
	adapter *model.Adapter
}

// Name returns the path that the adapter was loaded from.
func (a *Adapter) Name() string { return a.adapter.Name }

// Ranks returns the most ranks that the change of a matrix has.
func (a *Adapter) Ranks() int { return a.adapter.Ranks() }

// At returns the adapter with its change multiplied by scale: 1 as it was trained.
func (a *Adapter) At(scale float32) ActiveAdapter { return ActiveAdapter{a, scale} }

// ActiveAdapter is an adapter in use.
type ActiveAdapter struct {
	Adapter *Adapter
	Scale   float32
}

// WithAdapter has Open load an adapter (see Model.LoadAdapters), which is active in every new session and batch, and in Logits and
// Perplexity. It may be given several times; these adapters are loaded together.
func WithAdapter(path string, scale float32) Option {
	return func(c *config) { c.adapters = append(c.adapters, adapterChoice{path, scale}) }
}

type adapterChoice struct {
	path  string
	scale float32
}

// checkAdapters says what is wrong with the adapters of options.
func checkAdapters(all []adapterChoice) error {
	for _, a := range all {
		if math.IsNaN(float64(a.scale)) || math.IsInf(float64(a.scale), 0) {
			return fmt.Errorf("adapter %s with scale %v: want a number", a.path, a.scale)
		}
	}
	return nil
}

func adapterPaths(all []adapterChoice) (paths []string) {
	for _, a := range all {
		paths = append(paths, a.path)
	}
	return paths
}

// LoadAdapter loads one adapter: see LoadAdapters.
func (m *Model) LoadAdapter(ctx context.Context, path string) (*Adapter, error) {
	all, err := m.LoadAdapters(ctx, path)
	if err != nil {
		return nil, err
	}
	return all[0], nil
}

// LoadAdapters loads low-rank adapters for Session.SetAdapters and Batch.SetAdapters: GGUF files as llama.cpp's
// convert_lora_to_gguf.py writes them, or folders of Hugging Face's PEFT. Those that are used in turns, or together, are best
// loaded by one call: one operation a matrix serves them all, of up to 256 ranks together, and changing between them captures no
// GPU graph anew. Any subset of the matrices of layers and of the output may be changed.
//
// Likely errors: ErrAdapter; gpu.ErrOutOfMemory; ErrClosed; the error of ctx.
func (m *Model) LoadAdapters(ctx context.Context, paths ...string) ([]*Adapter, error) {
	if err := m.life.enter(); err != nil {
		return nil, err
	}
	defer m.life.leave()
	stack, err := m.model.LoadAdapters(ctx, paths)
	if err != nil {
		return nil, err
	}
	var all []*Adapter
	for _, a := range stack.Adapters {
		all = append(all, &Adapter{m, a})
	}
	return all, nil
}

// Adapters returns the adapters of WithAdapter, with their scales.
func (m *Model) Adapters() []ActiveAdapter { return slices.Clone(m.adapters) }

// activeIn checks that adapters are of a model.
func activeIn(m *Model, active []ActiveAdapter) (all []model.ActiveAdapter, err error) {
	for i, a := range active {
		switch {
		case a.Adapter == nil || a.Adapter.model != m:
			return nil, fmt.Errorf("%w: number %d was loaded for none or for another", ErrAdapter, i+1)
		case math.IsNaN(float64(a.Scale)) || math.IsInf(float64(a.Scale), 0):
			return nil, fmt.Errorf("adapter %s with scale %v: want a number", a.Adapter.Name(), a.Scale)
		}
		all = append(all, model.ActiveAdapter{Adapter: a.Adapter.adapter, Scale: a.Scale})
	}
	return all, nil
}

// startAdapters makes those of WithAdapter active in a new session.
func (m *Model) startAdapters(s *engine.Session) error {
	all, err := activeIn(m, m.adapters)
	if err != nil || len(all) == 0 {
		return err
	}
	return s.SetAdapters(all)
}

// SetAdapters sets the adapters that the next answers have, in place of those before; none is the model as it is. The prompt is
// computed anew where they differ. After an error no adapter is active. Likely errors: ErrAdapter, ErrBusy, ErrClosed,
// gpu.ErrOutOfMemory the first time.
func (s *Session) SetAdapters(active ...ActiveAdapter) error {
	all, err := activeIn(s.model, active)
	if err != nil {
		return err
	}
	if err := s.begin(); err != nil {
		return err
	}
	defer s.end()
	s.adapters = nil
	if err := s.engine.SetAdapters(all); err != nil {
		return err
	}
	s.adapters = slices.Clone(active)
	return nil
}

// CodeSource makes the codes of tokens at run time: codes[i] is of ids[i], one for each rank of an adapter, and holds what the
// adapter's scale gives them. It multiplies or replaces these; 0 leaves a rank out.
type CodeSource func(ids []int32, codes [][]float32)

// SetCodes has f make the codes of one of the session's adapters for each token that is computed from now on; nil ends that, and so
// does SetAdapters. Codes may depend on the token and on what f knows, not on when it is asked: a token that the session remembers
// is not asked for again. f is called from the goroutine that ranges over the answer. Generation is slower with it, as no step is
// computed ahead of the host. Likely errors: ErrAdapter where the adapter is not active, ErrBusy, ErrClosed.
func (s *Session) SetCodes(a *Adapter, f CodeSource) error {
	if !slices.ContainsFunc(s.adapters, func(active ActiveAdapter) bool { return active.Adapter == a }) {
		return fmt.Errorf("%w: codes for one that the session does not have", ErrAdapter)
	}
	if err := s.begin(); err != nil {
		return err
	}
	defer s.end()
	return s.engine.SetCodes(a.adapter, engine.CodeSource(f))
}

// Adapters returns the adapters of the next answer.
func (s *Session) Adapters() []ActiveAdapter { return slices.Clone(s.adapters) }

// SetAdapters sets the adapters of the answers that join from now on; those that are under way keep theirs. Likely errors:
// ErrAdapter, ErrBusy, ErrClosed.
func (b *Batch) SetAdapters(active ...ActiveAdapter) error {
	all, err := activeIn(b.model, active)
	if err != nil {
		return err
	}
	if err := b.begin(); err != nil {
		return err
	}
	defer b.end()
	b.adapters = all
	b.engine.SetCodes(nil, nil)
	return nil
}

// SetCodes has f make the codes of an adapter for each token of the answers that join from now on; nil ends that, and so does
// SetAdapters. f is asked once a step for the newest tokens of all these answers, and for the tokens of each prompt. The adapter is one
// of SetAdapters or WithAdapter. Likely errors: ErrAdapter where it is not active, ErrBusy, ErrClosed.
func (b *Batch) SetCodes(a *Adapter, f CodeSource) error {
	if err := b.begin(); err != nil {
		return err
	}
	defer b.end()
	if a == nil || !slices.ContainsFunc(b.adapters, func(active model.ActiveAdapter) bool { return active.Adapter == a.adapter }) {
		return fmt.Errorf("%w: codes for one that the batch does not have", ErrAdapter)
	}
	b.engine.SetCodes(a.adapter, engine.CodeSource(f))
	return nil
}
