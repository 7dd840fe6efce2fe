package model

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/vibrant-ml/vibrant/gpu"
	"github.com/vibrant-ml/vibrant/tensor"
)

// ErrAdapter is wrapped where a file holds no adapter, or one that does not fit the model.
var ErrAdapter = errors.New("not an adapter of this model")

// Adapter is a low-rank change of some of a model's matrices: W + scale B A (Hu et al. 2021, "LoRA").
type Adapter struct {
	Name  string // of the file
	stack *AdapterStack
	first int // its first rank in the stack
	ranks int // the most of its matrices
	scale float32
}

// Ranks returns the most ranks that a matrix's change has.
func (a *Adapter) Ranks() int { return a.ranks }

// AdapterStack holds adapters that were loaded together: their ranks lie side by side, so that one operation a matrix serves
// all. A row of codes says which of them a token has.
type AdapterStack struct {
	Adapters []*Adapter
	model    *Model
	ranks    int
	within   bool // fused operations can add the changes: they are of F16, and the device has a kernel of FusedUpdate
	changes  map[*weight]change
	codes    codesMaker
	memory   *tensor.Arena
}

// codesMaker makes the codes of tokens from their embeddings, for those adapters of a stack that say how: weight [ranks][hidden] and
// bias [ranks]; both nil where none does. The others' rows are zeros, with ones in the bias.
type codesMaker struct{ weight, bias *tensor.Tensor }

// change is U V^T of one matrix: v [ranks][cols], u [rows][ranks].
type change struct{ v, u *tensor.Tensor }

// ActiveAdapter is an adapter in use, with a factor of its change.
type ActiveAdapter struct {
	Adapter *Adapter
	Scale   float32
}

// ActiveStack is what a pass has of a stack: Codes is F32 of [rows of the pass][ranks], or [1][ranks] for all. Where the stack makes
// codes, there is a row for each, and the pass writes their product with Codes to Made, of the same shape.
type ActiveStack struct {
	Stack       *AdapterStack
	Codes, Made *tensor.Tensor
}

// Stack returns what the adapter was loaded with.
func (a *Adapter) Stack() *AdapterStack { return a.stack }

// Own returns what of a row of its stack's codes is the adapter's: one for each rank.
func (a *Adapter) Own(row []float32) []float32 { return row[a.first : a.first+a.ranks] }

// Of reports whether the adapter was loaded for a model.
func (a *Adapter) Of(m *Model) bool { return a.stack.model == m }

// Ranks returns how many codes a row has.
func (s *AdapterStack) Ranks() int { return s.ranks }

// MakesCodes reports whether one of the adapters makes the codes of a token from its embedding.
func (s *AdapterStack) MakesCodes() bool { return s.codes.weight != nil }

// Codes fills a row with those of the active adapters that are in this stack, and zeros for the others.
func (s *AdapterStack) Codes(row []float32, active []ActiveAdapter) {
	clear(row)
	for _, a := range active {
		if a.Adapter.stack == s {
			for i := range a.Adapter.ranks {
				row[a.Adapter.first+i] += a.Scale * a.Adapter.scale
			}
		}
	}
}

// mostRanks is what tensor.FusedUpdate takes.
const mostRanks = 256

// rankTile is what kernels skip together where its codes are 0: an adapter begins at a multiple of it.
const rankTile = 8

// stackPlan says what adapters take on a device, side by side.
type stackPlan struct {
	files   []*adapterFile
	first   []int
	ranks   int
	dtype   tensor.DType
	weights []*weight // that are changed, in the model's order
	makes   bool      // codes
	bytes   int64
}

// planStack checks adapters against the model's shape.
func (c *Config) planStack(files []*adapterFile) (*stackPlan, error) {
	p := &stackPlan{files: files, dtype: tensor.F16}
	can, changed := c.adapted.adaptable(), map[*weight]bool{}
	for _, f := range files {
		if f.architecture != "" && f.architecture != c.Architecture {
			return nil, fmt.Errorf("%s: %w: it is of architecture %.200q, the model of %q", f.path, ErrAdapter, f.architecture, c.Architecture)
		}
		if len(f.pairs) == 0 {
			return nil, fmt.Errorf("%s: %w: it changes no tensor", f.path, ErrAdapter)
		}
		for _, name := range slices.Sorted(maps.Keys(f.pairs)) {
			pair := f.pairs[name]
			if err := pair.check(); err != nil {
				return nil, fmt.Errorf("%s: %w: %v", f.path, ErrAdapter, err)
			}
			found := false
			for _, w := range c.weights.all {
				if w.name != name {
					continue
				}
				if found = true; !can[w] {
					return nil, fmt.Errorf("%s: %w: tensor %.200s: adapters change matrices of layers and of the output alone", f.path, ErrAdapter, name)
				}
				rows := w.rows
				if w.of > 0 {
					rows = w.of
				}
				if pair.a.cols != w.cols || pair.b.rows != rows {
					return nil, fmt.Errorf("%s: %w: tensors %s and %s change a matrix of %d rows and %d columns, %s has %d and %d",
						f.path, ErrAdapter, pair.a.name, pair.b.name, pair.b.rows, pair.a.cols, name, rows, w.cols)
				}
				changed[w] = true
			}
			if !found {
				return nil, fmt.Errorf("%s: %w: tensor %s changes %s, which the model does not have", f.path, ErrAdapter, pair.a.name, name)
			}
			if !pair.a.half || !pair.b.half {
				p.dtype = tensor.F32
			}
		}
		if err := f.checkScale(); err != nil {
			return nil, fmt.Errorf("%s: %w: %v", f.path, ErrAdapter, err)
		}
		if err := f.codes.check(f.ranks(), c.weights.embedding.cols); err != nil {
			return nil, fmt.Errorf("%s: %w: %v", f.path, ErrAdapter, err)
		}
		p.makes = p.makes || f.codes.weight != nil
		p.first = append(p.first, p.ranks)
		p.ranks += (f.ranks() + rankTile - 1) / rankTile * rankTile
	}
	if p.ranks > mostRanks {
		return nil, fmt.Errorf("%w: together the adapters have %d ranks, at most %d may be loaded at once", ErrAdapter, p.ranks, mostRanks)
	}
	for _, w := range c.weights.all {
		if changed[w] {
			p.weights = append(p.weights, w)
			p.bytes += tensor.Aligned(p.dtype.Bytes(p.ranks*w.cols)) + tensor.Aligned(p.dtype.Bytes(p.ranks*w.rows))
		}
	}
	if p.makes {
		p.bytes += tensor.Aligned(tensor.F32.Bytes(p.ranks*c.weights.embedding.cols)) + tensor.Aligned(tensor.F32.Bytes(p.ranks))
	}
	return p, nil
}

// AdapterBytes predicts the memory of adapters that are loaded together: GGUF files, or folders of PEFT.
func (c *Config) AdapterBytes(paths []string) (int64, error) {
	if len(paths) == 0 {
		return 0, nil
	}
	files, err := c.readAdapters(paths)
	defer closeAll(files)
	if err != nil {
		return 0, err
	}
	p, err := c.planStack(files)
	if err != nil {
		return 0, err
	}
	return p.bytes, nil
}

// LoadAdapters brings adapters to the model's device, where they lie side by side until the model is closed: GGUF files, or
// folders of PEFT. Weights in F16 stay so, others become F32. Errors wrap ErrAdapter and name the tensor.
func (m *Model) LoadAdapters(ctx context.Context, paths []string) (_ *AdapterStack, err error) {
	if len(m.followers) > 0 {
		return nil, fmt.Errorf("%w: adapters of a model on %d devices are not supported", ErrAdapter, len(m.followers)+1)
	}
	files, err := m.readAdapters(paths)
	defer closeAll(files)
	if err != nil {
		return nil, err
	}
	p, err := m.planStack(files)
	if err != nil {
		return nil, err
	}
	s := &AdapterStack{model: m, ranks: p.ranks, changes: map[*weight]change{}}
	s.within = p.dtype == tensor.F16 && tensor.FusedUpdateAvailable(m.device) == nil
	for i, f := range files {
		s.Adapters = append(s.Adapters, &Adapter{Name: f.path, stack: s, first: p.first[i], ranks: f.ranks(), scale: f.scale(f.ranks())})
	}
	if s.memory, err = tensor.NewArena(m.device.Stream(), p.bytes); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			s.memory.Free()
		}
	}()
	for _, w := range p.weights {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if s.changes[w], err = s.fill(p, w); err != nil {
			return nil, err
		}
	}
	if p.makes {
		if s.codes, err = s.codesMaker(p, m.weights.embedding.cols); err != nil {
			return nil, err
		}
	}
	if err := m.device.Stream().Synchronize(); err != nil {
		return nil, err
	}
	m.stacks.Lock()
	m.stacks.loaded = append(m.stacks.loaded, s)
	m.stacks.Unlock()
	return s, nil
}

// AdapterMemory returns the bytes of all adapters that were loaded.
func (m *Model) AdapterMemory() (bytes int64) {
	m.stacks.Lock()
	defer m.stacks.Unlock()
	for _, s := range m.stacks.loaded {
		for _, c := range s.changes {
			bytes += tensor.Aligned(c.v.Bytes()) + tensor.Aligned(c.u.Bytes())
		}
		if s.MakesCodes() {
			bytes += tensor.Aligned(s.codes.weight.Bytes()) + tensor.Aligned(s.codes.bias.Bytes())
		}
	}
	return bytes
}

// fill puts the matrices of all adapters that change a weight side by side.
func (s *AdapterStack) fill(p *stackPlan, w *weight) (c change, err error) {
	v, u := make([]float32, p.ranks*w.cols), make([]float32, w.rows*p.ranks)
	for i, f := range p.files {
		pair := f.pairs[w.name]
		if pair == nil {
			continue
		}
		a, err := pair.a.values()
		if err != nil {
			return c, fmt.Errorf("%s: tensor %s: %w", f.path, pair.a.name, err)
		}
		b, err := pair.b.values()
		if err != nil {
			return c, fmt.Errorf("%s: tensor %s: %w", f.path, pair.b.name, err)
		}
		copy(v[p.first[i]*w.cols:], a)
		ranks := pair.b.cols
		own := f.scale(ranks) / s.Adapters[i].scale // codes have the scale of matrices with the most ranks
		for row := range w.rows {
			for r := range ranks {
				u[row*p.ranks+p.first[i]+r] = own * b[(w.first+row)*ranks+r]
			}
		}
	}
	if c.v, err = s.write(p.dtype, v, p.ranks, w.cols); err == nil {
		c.u, err = s.write(p.dtype, u, w.rows, p.ranks)
	}
	return c, err
}

// codesMaker puts what makes the codes of all adapters side by side.
func (s *AdapterStack) codesMaker(p *stackPlan, hidden int) (c codesMaker, err error) {
	weight, bias := make([]float32, p.ranks*hidden), make([]float32, p.ranks)
	for i, f := range p.files {
		own := bias[p.first[i]:][:f.ranks()]
		if f.codes.weight == nil {
			for j := range own {
				own[j] = 1
			}
			continue
		}
		if err := f.codes.weight.copyTo(weight[p.first[i]*hidden:]); err != nil {
			return c, fmt.Errorf("%s: %w", f.path, err)
		}
		if f.codes.bias == nil {
			continue
		}
		if err := f.codes.bias.copyTo(own); err != nil {
			return c, fmt.Errorf("%s: %w", f.path, err)
		}
	}
	if c.weight, err = s.write(tensor.F32, weight, p.ranks, hidden); err == nil {
		if c.bias, err = s.memory.New(tensor.F32, p.ranks); err == nil {
			err = c.bias.WriteFloat32s(bias)
		}
	}
	return c, err
}

func (s *AdapterStack) write(dtype tensor.DType, values []float32, rows, cols int) (*tensor.Tensor, error) {
	t, err := s.memory.New(dtype, rows, cols)
	if err != nil || dtype == tensor.F32 {
		if err == nil {
			err = t.WriteFloat32s(values)
		}
		return t, err
	}
	exact, err := tensor.NewTensorOnDevice(gpu.CPU(), tensor.F32, rows, cols)
	if err != nil {
		return nil, err
	}
	defer exact.Free()
	if err := exact.WriteFloat32s(values); err != nil {
		return nil, err
	}
	raw := make([]byte, t.Bytes())
	err = tensor.Try(func() {
		half := tensor.Convert(exact, dtype)
		defer half.Free()
		if err := half.ReadBytes(raw); err != nil {
			panic(err)
		}
	})
	if err != nil {
		return nil, err
	}
	return t, t.WriteBytes(raw)
}
