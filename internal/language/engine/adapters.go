package engine

import (
	"fmt"
	"math"
	"math/bits"
	"slices"

	"github.com/vibrant-ml/vibrant/gpu"
	"github.com/vibrant-ml/vibrant/internal/language/model"
	"github.com/vibrant-ml/vibrant/tensor"
)

// adapters holds what a runner has of the adapters that its tokens ever had: for each stack the codes of prompts and of steps, in
// the memory that captured steps read.
type adapters struct {
	stacks []stackCodes
	prompt stackSet // that prompts read
	active []model.ActiveAdapter
	source *codeSource // of prompts, and of a session's steps; nil for none
}

// CodeSource makes the codes of tokens: codes[i] is of ids[i], one for each rank of an adapter, and holds what the adapter's scale
// gives them. It multiplies or replaces these.
type CodeSource func(ids []int32, codes [][]float32)

// codeSource is what makes the codes of one adapter.
type codeSource struct {
	adapter *model.Adapter
	f       CodeSource
}

// newCodeSource checks that the adapter is active; a nil f is no source.
func newCodeSource(a *model.Adapter, f CodeSource, active []model.ActiveAdapter) (*codeSource, error) {
	if !slices.ContainsFunc(active, func(active model.ActiveAdapter) bool { return active.Adapter == a }) {
		return nil, fmt.Errorf("engine: codes of an adapter that is not active: %w", gpu.ErrInvalid)
	}
	if f == nil {
		return nil, nil
	}
	return &codeSource{a, f}, nil
}

type stackCodes struct {
	stack *model.AdapterStack
	once  *tensor.Tensor // [1][ranks]: of all tokens of a prompt
	each  *tensor.Tensor // [tokens of a pass over a prompt][ranks], nil until tokens have codes of their own
	rows  *tensor.Tensor // [rows of a step][ranks]
	made  *tensor.Tensor // [rows of a pass][ranks], nil where the stack makes no codes
}

// write writes the codes of rows of tokens. Each source is asked once for all its tokens.
func (c *stackCodes) write(into *tensor.Tensor, tokens []codedToken) error {
	n := c.stack.Ranks()
	all := make([]float32, len(tokens)*n)
	var sources []*codeSource
	for i, t := range tokens {
		c.stack.Codes(all[i*n:(i+1)*n], t.active)
		if t.source != nil && t.source.adapter.Stack() == c.stack && !slices.Contains(sources, t.source) {
			sources = append(sources, t.source)
		}
	}
	for _, source := range sources {
		var ids []int32
		var own [][]float32
		for i, t := range tokens {
			if t.source == source {
				ids, own = append(ids, t.id), append(own, source.adapter.Own(all[i*n:(i+1)*n]))
			}
		}
		source.f(ids, own)
	}
	return into.Slice(0, len(tokens)).WriteFloat32s(all)
}

// codedToken is a token with what its codes depend on.
type codedToken struct {
	id     int32
	active []model.ActiveAdapter
	source *codeSource
}

// stackSet is a set of indices of adapters.stacks.
type stackSet uint64

const mostStacks = 64

func (s stackSet) each(f func(i int)) {
	for ; s != 0; s &= s - 1 {
		f(bits.TrailingZeros64(uint64(s)))
	}
}

// activate has the next prompts read these adapters. The first ones that are active make the workspace one that has room for
// them, and steps that were captured before are dropped.
func (r *runner) activate(active []model.ActiveAdapter) error {
	var set stackSet
	for i, a := range active {
		if a.Adapter == nil || !a.Adapter.Of(r.model) {
			return fmt.Errorf("engine: adapter %d of %d was not loaded for this model: %w", i+1, len(active), gpu.ErrInvalid)
		}
		if math.IsNaN(float64(a.Scale)) || math.IsInf(float64(a.Scale), 0) {
			return fmt.Errorf("engine: adapter %s with scale %v: %w", a.Adapter.Name, a.Scale, gpu.ErrInvalid)
		}
		index, err := r.adapters.index(r, a.Adapter.Stack())
		if err != nil {
			return err
		}
		set |= 1 << index
	}
	if set != 0 && !r.work.Adapted() {
		if err := r.replaceWorkspace(r.rows, true); err != nil {
			return err
		}
	}
	r.adapters.prompt, r.adapters.active, r.adapters.source = set, slices.Clone(active), nil
	var err error
	set.each(func(i int) {
		c := &r.adapters.stacks[i]
		row := make([]float32, c.stack.Ranks())
		c.stack.Codes(row, active)
		if err == nil {
			err = c.once.WriteFloat32s(row)
		}
	})
	return err
}

// index returns where the codes of a stack are, and allocates them the first time.
func (a *adapters) index(r *runner, stack *model.AdapterStack) (int, error) {
	for i := range a.stacks {
		if a.stacks[i].stack == stack {
			return i, nil
		}
	}
	if len(a.stacks) == mostStacks {
		return 0, fmt.Errorf("engine: adapters of more than %d loads: load those together that are used together: %w", mostStacks, gpu.ErrInvalid)
	}
	c := stackCodes{stack: stack}
	var err error
	rows := map[**tensor.Tensor]int{&c.once: 1, &c.rows: r.stepIDs.Len()}
	if stack.MakesCodes() {
		rows[&c.each], rows[&c.made] = r.chunk, max(r.chunk, r.stepIDs.Len())
	}
	for to, n := range rows {
		if *to, err = tensor.New(r.stream, tensor.F32, n, stack.Ranks()); err != nil {
			c.free()
			return 0, err
		}
	}
	a.stacks = append(a.stacks, c)
	return len(a.stacks) - 1, nil
}

// setSource has prompts ask a source, whose adapter is active, for codes; nil for none.
func (r *runner) setSource(source *codeSource) (err error) {
	if source != nil {
		i, err := r.adapters.index(r, source.adapter.Stack())
		if err != nil {
			return err
		}
		if c := &r.adapters.stacks[i]; c.each == nil {
			if c.each, err = tensor.New(r.stream, tensor.F32, r.chunk, c.stack.Ranks()); err != nil {
				return err
			}
		}
	}
	r.adapters.source = source
	return nil
}

// writeSteps writes the codes of the rows of the steps to come, for these stacks. Ids count where there are sources.
func (a *adapters) writeSteps(set stackSet, rows []codedToken) (err error) {
	set.each(func(i int) {
		if err == nil {
			err = a.stacks[i].write(a.stacks[i].rows, rows)
		}
	})
	return err
}

// ofPrompt returns what a pass over ids of a prompt reads.
func (a *adapters) ofPrompt(ids []int32) (all []model.ActiveStack, err error) {
	a.prompt.each(func(i int) {
		c := &a.stacks[i]
		codes := c.once
		if c.stack.MakesCodes() || a.source != nil && a.source.adapter.Stack() == c.stack {
			codes = c.each.Slice(0, len(ids))
			tokens := make([]codedToken, len(ids))
			for j, id := range ids {
				tokens[j] = codedToken{id, a.active, a.source}
			}
			if e := c.write(c.each, tokens); e != nil {
				err = e
			}
		}
		all = append(all, c.activeFor(codes))
	})
	return all, err
}

// activeFor returns what a pass reads with these codes.
func (c *stackCodes) activeFor(codes *tensor.Tensor) model.ActiveStack {
	active := model.ActiveStack{Stack: c.stack, Codes: codes}
	if c.stack.MakesCodes() {
		active.Made = c.made.Slice(0, codes.Dim(0))
	}
	return active
}

// beforeStep writes the codes of the one token of a session's next step, where a source makes them.
func (a *adapters) beforeStep(id int32) error {
	if a.source == nil {
		return nil
	}
	return a.writeSteps(a.prompt, []codedToken{{id, a.active, a.source}})
}

// ofStep returns what a step reads.
func (a *adapters) ofStep(key stepKey) (all []model.ActiveStack) {
	key.stacks.each(func(i int) {
		all = append(all, a.stacks[i].activeFor(a.stacks[i].rows.Slice(0, key.rows)))
	})
	return all
}

func (c *stackCodes) free() {
	for _, t := range []*tensor.Tensor{c.once, c.each, c.rows, c.made} {
		t.Free()
	}
}

func (a *adapters) free() {
	for i := range a.stacks {
		a.stacks[i].free()
	}
	*a = adapters{}
}
