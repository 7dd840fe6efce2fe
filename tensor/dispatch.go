package tensor

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/vibrant-ml/vibrant/gpu"
	"github.com/vibrant-ml/vibrant/internal/backend/kernel"
)

// pointers are the addresses of an op's operands, in the order in which they were passed to exec.
type pointers [27]kernel.Ptr

// exec enqueues one op on a stream: f gets the addresses of the operands, of which the first `outputs` are written.
// Operands may be nil. It is where operands meet: those of another stream are ordered, those of another device, or not aligned,
// are copied. An operation that the device has no kernel for runs on the CPU, unless strict.
func exec(op string, s *gpu.Stream, outputs int, f func(kernel.Stream, pointers) error, operands ...*Tensor) {
	checkRepeats(op, operands[:outputs])
	again := func(s *gpu.Stream, there []*Tensor) { exec(op, s, outputs, f, there...) }
	for _, t := range operands {
		if t != nil && t.Stream() != s && t.Device() != s.Device() {
			checkMove(op, s, outputs, operands)
			onCopies(op, s, outputs, again, operands, func(t *Tensor) bool { return t.Device() != s.Device() })
			return
		}
		if t != nil && !t.direct() {
			onCopies(op, s, outputs, again, operands, func(t *Tensor) bool { return !t.direct() })
			return
		}
	}
	if slices.ContainsFunc(operands[outputs:], func(t *Tensor) bool { return t.torn(operands[:outputs]) }) {
		onCopies(op, s, outputs, again, operands, func(t *Tensor) bool { return t.torn(operands[:outputs]) })
		return
	}
	err := enqueue(s, f, operands...)
	if err == nil {
		return
	}
	if !errors.Is(err, gpu.ErrUnsupported) || s.Device().Info().HostMemory || strictOn(s.Device()) {
		fail(op, err, operands...)
	}
	count(op, err.Error())
	onCopies(op, gpu.CPU().Stream(), outputs, again, operands, func(*Tensor) bool { return true })
}

// execViews is exec for operations that take strides and any alignment: f gets the operands themselves, or copies in their place.
func execViews(op string, s *gpu.Stream, outputs int, f func(kernel.Stream, []*Tensor, pointers) error, operands ...*Tensor) {
	checkRepeats(op, operands[:outputs])
	again := func(s *gpu.Stream, there []*Tensor) { execViews(op, s, outputs, f, there...) }
	for _, t := range operands {
		if t.Stream() != s && t.Device() != s.Device() {
			checkMove(op, s, outputs, operands)
			onCopies(op, s, outputs, again, operands, func(t *Tensor) bool { return t.Device() != s.Device() })
			return
		}
	}
	err := enqueue(s, func(k kernel.Stream, p pointers) error { return f(k, operands, p) }, operands...)
	if err == nil {
		return
	}
	if !errors.Is(err, gpu.ErrUnsupported) || s.Device().Info().HostMemory || strictOn(s.Device()) {
		fail(op, err, operands...)
	}
	count(op, err.Error())
	onCopiedMemory(op, gpu.CPU().Stream(), outputs, again, operands)
}

// enqueue calls f with the addresses of operands that are all on the stream's device.
func enqueue(s *gpu.Stream, f func(kernel.Stream, pointers) error, operands ...*Tensor) error {
	var p pointers
	for i, t := range operands {
		if t == nil {
			continue
		}
		if err := t.buffer.Err(); err != nil {
			return err
		}
		if err := t.buffer.Use(s); err != nil {
			return err
		}
		p[i] = t.ptr()
	}
	err := s.Do(func(k kernel.Stream) error { return f(k, p) })
	for _, t := range operands {
		runtime.KeepAlive(t)
	}
	return err
}

// alignment is what kernels rely on for float data: see vibrant.h.
const alignment = 16

// aligned reports whether kernels may read the tensor where it is: a view may begin anywhere.
func (t *Tensor) aligned() bool { return t.offset%alignment == 0 || t.dtype == I32 }

// direct reports whether kernels that know no strides may read the tensor where it is.
func (t *Tensor) direct() bool { return t.strides == nil && t.aligned() }

// torn reports whether t shares some of its memory with an output, but not all of it: an element may be written before it is read.
func (t *Tensor) torn(outputs []*Tensor) bool {
	return t != nil && !slices.Contains(outputs, t) && slices.ContainsFunc(outputs, func(out *Tensor) bool {
		return out != nil && t.overlaps(out) && (t.ptr() != out.ptr() || t.Bytes() != out.Bytes())
	})
}

// checkRepeats panics where elements of an output share a place in memory, of which one would stay.
func checkRepeats(op string, outputs []*Tensor) {
	for _, t := range outputs {
		if t != nil && t.repeats() {
			misuse(op, "into %s of strides %v, whose elements share memory", shapeString(t.shape), t.strides)
		}
	}
}

// checkMove counts the operands on other devices than the op, or panics where they may not be moved.
func checkMove(op string, s *gpu.Stream, outputs int, operands []*Tensor) {
	for i, t := range operands {
		if t == nil || t.Device() == s.Device() {
			continue
		}
		reason := fmt.Sprintf("operand on %s, op on %s", t.Device(), s.Device())
		if i < outputs || strictOn(s.Device()) || t.Device().Strict() {
			fail(op, fmt.Errorf("%w: %s", gpu.ErrInvalid, reason), operands...)
		}
		count(op, reason)
	}
}

// onCopies runs an op on a stream, by calling run, with copies of some operands in their place, and copies outputs back.
func onCopies(op string, s *gpu.Stream, outputs int, run func(*gpu.Stream, []*Tensor), operands []*Tensor, copied func(*Tensor) bool) {
	there := slices.Clone(operands)
	for i, t := range operands {
		if t == nil || !copied(t) {
			continue
		}
		earlier := slices.IndexFunc(operands[:i], func(e *Tensor) bool { // in place: one copy for one piece of memory
			return e != nil && e.Device() == t.Device() && e.ptr() == t.ptr() && e.n == t.n && slices.Equal(e.strides, t.strides)
		})
		if earlier >= 0 {
			there[i] = there[earlier]
			continue
		}
		c, err := t.duplicate(s)
		if err != nil {
			fail(op, err, operands...)
		}
		defer c.Free()
		there[i] = c
	}
	run(s, there)
	for i, t := range operands[:outputs] {
		if t != there[i] {
			if err := transfer(t, there[i]); err != nil {
				fail(op, err, operands...)
			}
		}
	}
}

// onCopiedMemory runs an op of views elsewhere, where their device has no kernel of strides, which a copy without gaps takes: with
// copies of all memory between the first and the last element of each operand.
func onCopiedMemory(op string, s *gpu.Stream, outputs int, run func(*gpu.Stream, []*Tensor), operands []*Tensor) {
	memory := make([]*Tensor, len(operands))
	for i, t := range operands {
		if t != nil {
			memory[i] = t.memory()
		}
	}
	for i, t := range memory[:outputs] {
		if slices.ContainsFunc(memory[:i], t.overlaps) {
			fail(op, fmt.Errorf("%w: results whose elements alternate in memory", gpu.ErrUnsupported), operands...)
		}
	}
	onCopies(op, s, outputs, func(s *gpu.Stream, there []*Tensor) {
		views := make([]*Tensor, len(there))
		for i, t := range operands {
			if t != nil {
				views[i] = there[i].strided(t.shape, t.Strides(), 0)
			}
		}
		run(s, views)
	}, memory, func(*Tensor) bool { return true })
}

// memory returns all elements of the tensor's type between its first and its last one, as one row.
func (t *Tensor) memory() *Tensor {
	n := int(t.reach() / t.dtype.Bytes(1))
	return t.view([]int{n}, n, t.offset)
}

// on returns a weight on the stream's device. The copy of one that is elsewhere is made once and kept.
func (t *Tensor) on(op string, s *gpu.Stream) *Tensor {
	if t == nil || t.Device() == s.Device() {
		return t
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	d := s.Device()
	if c := t.copies[d]; c != nil && c.buffer.Err() == nil {
		return c
	}
	c, err := t.ToStream(d.Stream())
	if err != nil {
		fail(op, err, t)
	}
	if t.copies == nil {
		t.copies = map[*gpu.Device]*Tensor{}
	}
	t.copies[d] = c
	return c
}

var strict atomic.Bool

// SetStrict makes it an error (gpu.ErrUnsupported or gpu.ErrInvalid) when an op would leave its device, or would move an
// operand to it that is no weight. Without it, both happen, are counted, and are logged once, except on devices that are
// strict themselves (gpu.Device.SetStrict).
func SetStrict(on bool) { strict.Store(on) }

// Strict returns what SetStrict set.
func Strict() bool { return strict.Load() }

func strictOn(d *gpu.Device) bool { return strict.Load() || d.Strict() }

// Fallback counts how often an op did not run where and on what it was asked to.
type Fallback struct {
	Op     string
	Reason string
	Count  int64
}

var fallbacks struct {
	sync.Mutex
	counts map[Fallback]int64 // Count is 0 in the key
}

// Fallbacks returns the fallbacks of this process, by op and reason.
func Fallbacks() []Fallback {
	fallbacks.Lock()
	defer fallbacks.Unlock()
	all := make([]Fallback, 0, len(fallbacks.counts))
	for f, n := range fallbacks.counts {
		f.Count = n
		all = append(all, f)
	}
	slices.SortFunc(all, func(a, b Fallback) int {
		return cmp.Or(cmp.Compare(a.Op, b.Op), cmp.Compare(a.Reason, b.Reason))
	})
	return all
}

func count(op, reason string) {
	fallbacks.Lock()
	defer fallbacks.Unlock()
	if fallbacks.counts == nil {
		fallbacks.counts = map[Fallback]int64{}
	}
	f := Fallback{Op: op, Reason: reason}
	if fallbacks.counts[f]++; fallbacks.counts[f] == 1 {
		slog.Warn("tensor: op left its device", "op", op, "reason", reason)
	}
}
