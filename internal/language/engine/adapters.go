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
	source codeSource
}

// CodeSource makes the codes of tokens: codes[i] is of ids[i], one for each rank of an adapter, and holds what the adapter's scale
// gives them. It multiplies or replaces these.
type CodeSource func(ids []int32, codes [][]float32)

// codeSource is what makes the codes of one adapter, where f is not nil.
type codeSource struct {
	adapter *model.Adapter
	f       CodeSource
	rows    *tensor.Tensor // [tokens of a pass over a prompt][ranks of the stack]
}

// fill writes the codes of ids to the first rows of a tensor.
func (a *adapters) fill(into *tensor.Tensor, ids []int32) error {
	stack := a.source.adapter.Stack()
	n := stack.Ranks()
	all, own := make([]float32, len(ids)*n), make([][]float32, len(ids))
	for i := range ids {
		row := all[i*n : (i+1)*n]
		stack.Codes(row, a.active)
		own[i] = a.source.adapter.Own(row)
	}
	a.source.f(ids, own)
	return into.Slice(0, len(ids)).WriteFloat32s(all)
}

type stackCodes struct {
	stack *model.AdapterStack
	once  *tensor.Tensor // [1][ranks]: of all tokens of a prompt
	rows  *tensor.Tensor // [rows of a step][ranks]
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
		if err := r.adapt(); err != nil {
			return err
		}
	}
	r.adapters.prompt, r.adapters.active = set, slices.Clone(active)
	r.adapters.source.f = nil
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

// adapt puts a workspace for adapters in the place of that for none.
func (r *runner) adapt() error {
	if err := r.stream.Synchronize(); err != nil {
		return err
	}
	r.steps.drop(all)
	work, err := r.model.NewAdaptedWorkspace(r.streams, max(r.chunk, r.stepIDs.Len()), r.work.LogitRows)
	if err != nil {
		return err
	}
	r.work.Free()
	r.work = work
	return nil
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
	if c.once, err = tensor.New(r.stream, tensor.F32, 1, stack.Ranks()); err == nil {
		c.rows, err = tensor.New(r.stream, tensor.F32, r.stepIDs.Len(), stack.Ranks())
	}
	if err != nil {
		c.once.Free()
		return 0, err
	}
	a.stacks = append(a.stacks, c)
	return len(a.stacks) - 1, nil
}

// writeSteps says which adapters each row of the steps to come has, for these stacks.
func (a *adapters) writeSteps(set stackSet, active [][]model.ActiveAdapter) (err error) {
	set.each(func(i int) {
		c := &a.stacks[i]
		n := c.stack.Ranks()
		codes := make([]float32, len(active)*n)
		for row := range active {
			c.stack.Codes(codes[row*n:(row+1)*n], active[row])
		}
		if err == nil {
			err = c.rows.Slice(0, len(active)).WriteFloat32s(codes)
		}
	})
	return err
}

// ofPrompt returns what a pass over ids of a prompt reads.
func (a *adapters) ofPrompt(ids []int32) (all []model.ActiveStack, err error) {
	a.prompt.each(func(i int) {
		codes := a.stacks[i].once
		if a.source.f != nil && a.source.adapter.Stack() == a.stacks[i].stack {
			codes, err = a.source.rows.Slice(0, len(ids)), a.fill(a.source.rows, ids)
		}
		all = append(all, model.ActiveStack{Stack: a.stacks[i].stack, Codes: codes})
	})
	return all, err
}

// beforeStep writes the codes of the one token of a session's next step, where they are made for each.
func (a *adapters) beforeStep(id int32) (err error) {
	if a.source.f == nil {
		return nil
	}
	a.prompt.each(func(i int) {
		if a.source.adapter.Stack() == a.stacks[i].stack {
			err = a.fill(a.stacks[i].rows, []int32{id})
		}
	})
	return err
}

// ofStep returns what a step reads.
func (a *adapters) ofStep(key stepKey) (all []model.ActiveStack) {
	key.stacks.each(func(i int) {
		all = append(all, model.ActiveStack{Stack: a.stacks[i].stack, Codes: a.stacks[i].rows.Slice(0, key.rows)})
	})
	return all
}

func (a *adapters) free() {
	a.source.rows.Free()
	for _, c := range a.stacks {
		c.once.Free()
		c.rows.Free()
	}
	*a = adapters{}
}
