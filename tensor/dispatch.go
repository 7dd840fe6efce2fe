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
	"github.com/vibrant-ml/vibrant/internal/kernel"
)

// pointers are the addresses of an op's operands, in the order in which they were passed to exec.
type pointers [8]kernel.Ptr

// exec enqueues one op on a stream: f gets the addresses of the operands, of which the first `outputs` are written.
// Operands may be nil. It is where operands meet: what is on another stream is ordered, what is on another device is
// moved, and what the device has no kernel for runs on the CPU, unless strict.
func exec(op string, s *gpu.Stream, outputs int, f func(kernel.Stream, pointers) error, operands ...*Tensor) {
	var p pointers
	for i, t := range operands {
		if t == nil {
			continue
		}
		if t.buffer.Stream() != s {
			if t.Device() != s.Device() {
				execMoved(op, s, outputs, f, operands)
				return
			}
			if err := t.buffer.Use(s); err != nil {
				fail(op, err, operands...)
			}
		}
		if p[i] = t.ptr(); p[i] == nil && t.n > 0 {
			fail(op, t.buffer.Err(), operands...)
		}
	}
	err := s.Do(func(k kernel.Stream) error { return f(k, p) })
	if err != nil {
		if !errors.Is(err, gpu.ErrUnsupported) || s.Device().Info().HostMemory || strict.Load() {
			fail(op, err, operands...)
		}
		onCPU(op, s, outputs, f, operands, err)
	}
	for _, t := range operands {
		runtime.KeepAlive(t)
	}
}

// execMoved is exec where an input lies on another device.
func execMoved(op string, s *gpu.Stream, outputs int, f func(kernel.Stream, pointers) error, operands []*Tensor) {
	here := slices.Clone(operands)
	for i, t := range operands {
		if t == nil || t.Device() == s.Device() {
			continue
		}
		reason := fmt.Sprintf("operand on %s, op on %s", t.Device(), s.Device())
		if i < outputs || strict.Load() {
			fail(op, fmt.Errorf("%w: %s", gpu.ErrInvalid, reason), operands...)
		}
		count(op, reason)
		c, err := t.ToStream(s)
		if err != nil {
			fail(op, err, operands...)
		}
		defer c.Free()
		here[i] = c
	}
	exec(op, s, outputs, f, here...)
}

// onCPU runs an op that its device has no kernel for on copies of all operands, and copies the outputs back.
func onCPU(op string, s *gpu.Stream, outputs int, f func(kernel.Stream, pointers) error, operands []*Tensor, reason error) {
	count(op, reason.Error())
	cpu := gpu.CPU().Stream()
	there := make([]*Tensor, len(operands))
	for i, t := range operands {
		if t == nil {
			continue
		}
		for j, earlier := range operands[:i] { // in place: one copy for one piece of memory
			if earlier != nil && earlier.buffer == t.buffer && earlier.offset == t.offset && earlier.n == t.n {
				there[i] = there[j]
			}
		}
		if there[i] == nil {
			c, err := t.ToStream(cpu)
			if err != nil {
				fail(op, fmt.Errorf("%w; on the CPU instead: %w", reason, err), operands...)
			}
			defer c.Free()
			there[i] = c
		}
	}
	exec(op, cpu, outputs, f, there...)
	for i, t := range operands[:outputs] {
		if t == nil {
			continue
		}
		if err := transfer(t, there[i]); err != nil {
			fail(op, err, operands...)
		}
	}
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
// operand to it that is no weight. Without it, both happen, are counted, and are logged once.
func SetStrict(on bool) { strict.Store(on) }

// Strict returns what SetStrict set.
func Strict() bool { return strict.Load() }

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
